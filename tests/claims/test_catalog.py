"""Papers are found without importing any of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Desk
from paperworks.claims import catalog
from paperworks.claims.errors import PaperError, UsageError, did_you_mean
from toy_package import write_distribution


def test_a_plugin_is_found_and_not_imported(make_toy: Callable[..., Desk]) -> None:
    desk = make_toy(explode="yes")
    room = catalog.find("toy")
    assert room == ("toy", desk.room, "toy_papers.toy")
    assert "toy_papers" not in sys.modules
    with pytest.raises(ImportError, match="import none of them"):
        __import__("toy_papers")  # it does explode
    row = next(row for row in catalog.summaries() if row["paper"] == "toy")
    assert row == {
        "paper": "toy", "family": "theory", "title": "Estimating a mean", "status": "draft", "basis": "full-text",
        "claims": 3, "extra": "core",
    }  # fmt: skip


def test_own_rooms_come_first_and_have_their_module() -> None:
    rooms = list(catalog.rooms().values())
    assert rooms[0].folder.is_relative_to(catalog.PACKAGE)
    assert rooms[0].module == f"paperworks.{rooms[0].folder.parent.name}.{rooms[0].slug}"
    assert catalog.find("layers/quest") == catalog.find("quest")


def test_two_papers_of_one_slug_name_both_folders(toy: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "paperworks"
    (own / "theory" / "toy").mkdir(parents=True)
    (own / "theory" / "toy" / "paper.toml").touch()
    monkeypatch.setattr(catalog, "PACKAGE", own)
    with pytest.raises(PaperError) as caught:
        catalog.rooms()
    assert str(caught.value) == f"two papers are called 'toy': {own / 'theory' / 'toy'} and {toy.room}"


def test_unknown_slug_has_a_hint(toy: Desk) -> None:
    with pytest.raises(UsageError, match=r"no paper is called 'toi' \(did you mean 'toy'\?\); `paperworks list`"):
        catalog.find("toi")
    with pytest.raises(UsageError, match="no paper is called 'xyzzy'; `paperworks list`"):
        catalog.find("xyzzy")
    assert did_you_mean("seeds", ["steps", "seed"]) == " (did you mean 'seed'?)"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("toy = gone.toy", "entry point 'toy' = 'gone.toy' in paperworks.papers: package 'gone' is not there"),
        ("toy = json.toy2", "entry point 'toy' = 'json.toy2' in paperworks.papers: its room must have that name"),
        ("toy = sys", "package 'sys' is not there"),
    ],
)
def test_broken_entry_points_are_named(toy: Desk, entry: str, says: str) -> None:
    (toy.plugins / "toy_papers-1.0.dist-info" / "entry_points.txt").write_text(f"[paperworks.papers]\n{entry}\n")
    with pytest.raises(PaperError) as caught:
        catalog.rooms()
    assert says in str(caught.value)


def test_an_entry_point_without_a_room(toy: Desk) -> None:
    (toy.room / "paper.toml").unlink()
    with pytest.raises(PaperError, match=r"toy_papers/toy/paper\.toml does not exist"):
        catalog.summaries()


def test_a_package_that_only_an_import_hook_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As setuptools installs a flat layout in development: not on sys.path, found by a finder."""
    from importlib.machinery import PathFinder

    hidden, shown = tmp_path / "hidden", tmp_path / "shown"
    room = write_distribution(hidden, slug="hooked")
    shown.mkdir()
    (hidden / "hooked_papers-1.0.dist-info").rename(shown / "hooked_papers-1.0.dist-info")
    monkeypatch.syspath_prepend(str(shown))

    class Finder:
        def find_spec(self, name: str, path: object = None, target: object = None) -> object:
            return PathFinder.find_spec(name, [str(hidden)]) if name == "hooked_papers" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert catalog.find("hooked").folder == room
