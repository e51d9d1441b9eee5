"""The code's fingerprint moves with what the code does and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from paperworks.claims import fingerprint

CODE = '''"""A method."""
import math


def area(r: float, scale: float = 1.0) -> float:
    """The area of a disc."""
    if r > 0:
        r = r * scale
        r = r + 1
    return math.pi * r**2
'''


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "method.py").write_text(CODE)
    (tmp_path / "study.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A method.", "Another description."),
        ('    """The area of a disc."""\n', ""),
        ("import math\n", "import math\n\n# a comment\n\n\n"),
        ("r * scale", "(r *\n              scale)"),
        ("1.0", "1.00"),
        ("    return", "    # why\n    return"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(room: Path, old: str, new: str) -> None:
    before = fingerprint.code_hash(room)
    (room / "method.py").write_text(CODE.replace(old, new))
    assert fingerprint.code_hash(room) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r**2", "r**3"),
        ("1.0", "2.0"),
        ("r > 0", "r >= 0"),
        ("        r = r + 1", "    r = r + 1"),  # out of the block
        ("r * scale", "scale * r"),
        ("def area", "def surface"),
        ("float = 1.0)", "float = True)"),
        ("import math", "import cmath as math"),
    ],
)
def test_what_it_does_counts(room: Path, old: str, new: str) -> None:
    before = fingerprint.code_hash(room)
    assert old in CODE
    (room / "method.py").write_text(CODE.replace(old, new))
    assert fingerprint.code_hash(room) != before


def test_which_files_count(room: Path) -> None:
    before = fingerprint.code_hash(room)
    for name in ("derive.py", "speed.py", "notes.txt"):
        (room / name).write_text("x = 2\n")
    (room / "__pycache__").mkdir()
    (room / "__pycache__" / "old.py").write_text("x = 3\n")
    assert fingerprint.code_hash(room) == before
    (room / "study.py").write_text("x = 2\n")
    changed = fingerprint.code_hash(room)
    assert changed != before
    (room / "study.py").rename(room / "studies.py")
    assert fingerprint.code_hash(room) not in (before, changed)
    (room / "part").mkdir()
    (room / "part" / "more.py").write_text("y = 1\n")
    assert fingerprint.code_hash(room) not in (before, changed)


def test_code_that_does_not_parse_can_be_judged_all_the_same(room: Path) -> None:
    (room / "study.py").write_text("def broken(:\n")
    first = fingerprint.code_hash(room)
    (room / "study.py").write_text("def broken(::\n")
    assert fingerprint.code_hash(room) != first


def test_environment_says_what_ran_where() -> None:
    found = fingerprint.environment(2, "local")
    assert set(found) == {
        "versions", "platform", "processor", "cores", "jobs", "threads", "backend", "device", "commit",
    }  # fmt: skip
    assert found["versions"]["numpy"]
    assert (found["jobs"], found["threads"], found["backend"]) == (2, 1, "local")
