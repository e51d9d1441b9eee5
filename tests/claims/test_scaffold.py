"""`paperworks new` writes a room that passes; `paperworks eject` takes a method out that works alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paperworks.claims import catalog, scaffold
from paperworks.claims.errors import PaperError, UsageError

OWN = [room.slug for room in catalog.rooms().values() if room.folder.is_relative_to(catalog.PACKAGE)]


def command(*arguments: str, cwd: Path, path: Path | None = None, code: int = 0) -> str:
    environment = {**os.environ, "COLUMNS": "200"} | ({"PYTHONPATH": str(path)} if path else {})
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def paperworks(*arguments: str, cwd: Path, path: Path | None = None, code: int = 0) -> str:
    return command("-m", "paperworks.cli", *arguments, cwd=cwd, path=path, code=code)


# --- new -----------------------------------------------------------------------------------------------------------


def test_a_new_distribution_is_installed_listed_run_and_reported_like_a_paper_of_ours(tmp_path: Path) -> None:
    """Built and installed by pip; listing it imports nothing of it."""
    said = paperworks("new", "theory/my_mean", cwd=tmp_path)
    written = tmp_path / "paperworks-my_mean"
    assert f"install it: pip install -e {written}" in said
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command(
        *install, "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site), str(written), cwd=tmp_path
    )
    (site / "paperworks_my_mean" / "__init__.py").write_text(
        "import sys\nif 'list' in sys.argv: raise ImportError('listing papers must import none of them')\n"
    )
    listed = [line.split()[:3] for line in paperworks("list", cwd=tmp_path, path=site).splitlines()]
    assert ["my_mean", "theory", "draft"] in listed
    assert "my_mean: ok" in paperworks("lint", "my_mean", cwd=tmp_path, path=site)
    assert "C1  SUPPORTED  (direct test, laptop, your" in paperworks("run", "my_mean", "-j1", cwd=tmp_path, path=site)
    paperworks("report", "my_mean", cwd=tmp_path, path=site)
    assert "plain minus trimmed" in (tmp_path / "paperworks-report" / "papers" / "my_mean.html").read_text()
    assert " passed" in command("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=written, path=site)


def test_two_papers_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    written = scaffold.new("theory/my_mean", tmp_path / "made")
    site = tmp_path / "site"
    shutil.copytree(written.room.parents[1], site)
    room = site / "paperworks_my_mean" / "my_mean"
    room.rename(room.with_name("quest"))
    info = site / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[paperworks.papers]\nquest = paperworks_my_mean.quest\n")
    said = paperworks("list", cwd=tmp_path, path=site, code=2)
    theirs = room.with_name("quest")
    assert said == f"paperworks: two papers are called 'quest': {catalog.find('quest').folder} and {theirs}\n"


def test_a_new_room_in_a_checkout_is_as_tidy_as_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "paperworks" / "claims").mkdir(parents=True)
    (tmp_path / "src" / "paperworks" / "__init__.py").write_text('"""As in a checkout."""\n')
    monkeypatch.chdir(tmp_path)
    first, second = scaffold.new("theory/my_mean"), scaffold.new("theory/my_other")
    assert (first.new_family, second.new_family, first.distribution) == (True, False, None)
    assert first.room == tmp_path / "src" / "paperworks" / "theory" / "my_mean"
    assert first.tests == tmp_path / "tests" / "theory" / "my_mean"
    assert "from paperworks.theory.my_mean import trimmed_mean" in (first.tests / "test_estimator.py").read_text()
    shutil.copy(catalog.PACKAGE.parents[1] / "pyproject.toml", tmp_path)
    command("-m", "ruff", "check", "--no-cache", "src", "tests", cwd=tmp_path)
    command("-m", "ruff", "format", "--no-cache", "--check", "src", "tests", cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mypaper", "'mypaper' names no room: write FAMILY/PAPER in small letters, such as layers/mypaper"),
        ("layers/My", "'layers/My' names no room"),
        ("layers/class", "'layers/class' names no room"),
        ("a/b/c", "'a/b/c' names no room"),
        ("../x", "'../x' names no room"),
        ("theory/quest", "there is a paper 'quest' already, in "),
    ],
)
def test_names_that_cannot_be(name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        scaffold.new(name)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_or_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    scaffold.new("theory/my_mean", tmp_path / "there")
    with pytest.raises(UsageError, match=r"there exists already; nothing was written"):
        scaffold.new("theory/my_mean", tmp_path / "there")
    (tmp_path / "file").write_text("")
    with pytest.raises((PaperError, UsageError), match="file"):
        scaffold.new("theory/my_mean", tmp_path / "file" / "below")
    with pytest.raises(UsageError, match="there exists already and is not an empty folder; nothing was written"):
        scaffold.eject("quest", tmp_path / "there")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "there"]


# --- eject ---------------------------------------------------------------------------------------------------------

ALONE = """
import sys
sys.modules["paperworks"] = None
import {slug} as method
for name in method.__all__:
    getattr(method, name)
import pytest
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("slug", OWN)
def test_what_is_ejected_needs_nothing_of_this_library(slug: str, tmp_path: Path) -> None:
    """All its names come without paperworks, and its tests are collected; those of `slow` run them."""
    ejected = scaffold.eject(slug, tmp_path / "out")
    assert ejected.tests
    assert "test_study.py" in ejected.left_out
    for path in (tmp_path / "out").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n# Copyright The Paperworks authors. From paper")
        assert f"paperworks.{catalog.find(slug).folder.parent.name}" not in text
    assert (tmp_path / "out" / "LICENSE").read_text().strip().startswith("Apache License")
    said = command("-c", ALONE.format(slug=slug), "--collect-only", "tests", cwd=tmp_path / "out")
    assert " tests collected" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("slug", OWN)
def test_what_is_ejected_passes_its_own_tests(slug: str, tmp_path: Path) -> None:
    scaffold.eject(slug, tmp_path / "out")
    assert " passed" in command("-c", ALONE.format(slug=slug), "tests", cwd=tmp_path / "out")


def test_a_small_method_that_was_ejected_passes_its_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `slow` does for the papers."""
    written = scaffold.new("theory/my_mean", tmp_path / "made")
    monkeypatch.setattr(catalog, "rooms", lambda: {"my_mean": catalog.Room("my_mean", written.room, "pkg.my_mean")})
    ejected = scaffold.eject("my_mean", tmp_path / "out")
    assert ejected.tests == ()  # tests of another distribution are not ours to find
    assert '"numpy>=1.26",' in (tmp_path / "out" / "pyproject.toml").read_text()
    code = "import sys; sys.modules['paperworks'] = None; import my_mean; print(my_mean.trimmed_mean([1, 2, 9], 0.4))"
    assert command("-c", code, cwd=tmp_path / "out") == "2.0\n"
    (written.room / "estimator.py").write_text("from paperworks.kit import assets\n")
    with pytest.raises(PaperError, match=r"imports paperworks\.kit: a method that needs other parts of paperworks"):
        scaffold.eject("my_mean", tmp_path / "more")
    assert not (tmp_path / "more").exists()
