"""A room's docstring, read without importing it."""

from __future__ import annotations

import pytest

from paperworks.claims.report.docstring import Block, blocks, public_names, read_room, split, statements

GOOGLE = """Title.

More.

Example:
    >>> a = f(1)
    >>> a
    3

Differences from the paper:
    One.
    Two goes
    on.

After it:
    more
"""

UNDERLINED = """Title.

Usage
-----
::

    import a
    a.f()

Text after.

Differences from the paper
--------------------------
- one
- two
"""

HASHES = """Title.

## Example
```python
import a
```

## Differences from the paper
None known.
"""


@pytest.mark.parametrize(
    ("text", "about", "example", "differences"),
    [
        (GOOGLE, "Title.\n\nMore.\n\nAfter it:\n    more", "a = f(1)\na\n# 3", "One.\nTwo goes\non."),
        (UNDERLINED, "Title.", "import a\na.f()", "- one\n- two"),
        (HASHES, "Title.", "import a", "None known."),
        ("Title.\n\nDifferences from the paper: none known.", "Title.", "", "none known."),
        ("Title.\n\n>>> f(1)\n2\n\nMore.", "Title.\n\n\nMore.", "f(1)\n# 2", ""),
        ("Differences from the paper are many.", "Differences from the paper are many.", "", ""),
        ("Example of a title that is none.", "Example of a title that is none.", "", ""),
        ("", "", "", ""),
    ],
)
def test_parts(text, about, example, differences):
    found = split(text)
    assert found.about == about
    assert found.example == example
    assert found.differences == differences


def test_a_room_is_parsed_and_not_run(tmp_path):
    (tmp_path / "__init__.py").write_text('"""Text."""\nraise SystemExit("imported")\n')
    assert read_room(tmp_path).about == "Text."
    (tmp_path / "__init__.py").write_text('"""Text.\n')
    assert read_room(tmp_path).about == ""
    assert read_room(tmp_path / "nowhere").about == ""


def test_public_names(tmp_path):
    assert public_names(tmp_path) == []
    (tmp_path / "__init__.py").write_text('__all__ = ["a", "b"]\n')
    assert public_names(tmp_path) == ["a", "b"]
    (tmp_path / "__init__.pyi").write_text("from .x import C as C\nfrom .y import d\n")
    assert public_names(tmp_path) == ["C", "d"]
    (tmp_path / "__init__.pyi").write_text('from .x import C\n__all__ = ["C"]\n')
    assert public_names(tmp_path) == ["C"]


def test_blocks():
    text = "One\nline.\n\n- a\n  more\n- b\n\n    x = 1\n\n    y = 2\n\n"
    text += "Here:\n    `f`: does\n        this.\n    `g`: that."
    assert blocks(text) == [
        Block("paragraph", ("One line.",)),
        Block("list", ("a more", "b")),
        Block("literal", ("x = 1\n\ny = 2",)),
        Block("paragraph", ("Here:",)),
        Block("list", ("`f`: does this.", "`g`: that.")),
    ]


def test_statements():
    assert statements("One of\nthem. It goes on.\nTwo.") == [Block("list", ("One of them. It goes on.", "Two."))]
    assert statements("Only one.") == [Block("paragraph", ("Only one.",))]
    assert statements("- a.\n- b.") == [Block("list", ("a.", "b."))]
