"""Finds the papers: the rooms in this package and those of other distributions, without importing any of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paperworks.claims.errors import PaperError, UsageError, did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
ENTRY_POINTS = "paperworks.papers"


class Room(NamedTuple):
    """Where a paper lives."""

    slug: str
    folder: Path
    module: str  # dotted name of the room's package, for those who want to import it


def rooms() -> dict[str, Room]:
    """All papers by slug: ours in order of family and slug, then other distributions'.

    Raises:
        PaperError: When two papers have one slug; it names both folders.
    """
    found: dict[str, Room] = {}
    for room in (*_own(), *_plugins()):
        if room.slug in found:
            raise PaperError(f"two papers are called {room.slug!r}: {found[room.slug].folder} and {room.folder}")
        found[room.slug] = room
    return found


def _own() -> Iterator[Room]:
    for toml in sorted(PACKAGE.glob("*/*/paper.toml")):
        yield Room(toml.parent.name, toml.parent, f"paperworks.{toml.parent.parent.name}.{toml.parent.name}")


def _plugins() -> Iterator[Room]:
    """Rooms that other distributions announce: an entry point ``slug = "package.room"`` in "paperworks.papers"."""
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda e: e.name):
        top, *below = entry.value.split(".")
        spec = importlib.util.find_spec(top)  # of the top alone: for a dotted name it would import the parents
        if spec is None or not spec.submodule_search_locations:
            raise PaperError(
                f"entry point {entry.name!r} = {entry.value!r} in {ENTRY_POINTS}: package {top!r} is not there"
            )
        folder = Path(next(iter(spec.submodule_search_locations)), *below)
        if folder.name != entry.name:
            raise PaperError(
                f"entry point {entry.name!r} = {entry.value!r} in {ENTRY_POINTS}: its room must have that name"
            )
        yield Room(entry.name, folder, entry.value)


def find(slug: str) -> Room:
    """The room of one paper.

    Raises:
        UsageError: When there is none of that name; it says which is close.
    """
    known = rooms()
    slug = slug.rpartition("/")[2]
    if slug not in known:
        whole = slug.partition(".")[0]
        hint = f" (did you mean {whole!r}?)" if whole in known else did_you_mean(slug, known)
        raise UsageError(f"no paper is called {slug!r}{hint}; `paperworks list` shows them all")
    return known[slug]


def summaries() -> list[dict[str, Any]]:
    """What `paperworks list` shows, read with tomllib alone."""
    from paperworks.claims.rawtoml import read_toml

    rows = []
    for room in rooms().values():
        raw = read_toml(room.folder)
        rows.append(
            {
                "paper": room.slug,
                "family": raw.get("family", ""),
                "title": raw.get("title", ""),
                "status": raw.get("status", "draft"),
                "basis": raw.get("basis", ""),
                "claims": len(raw.get("claim", [])),
                "extra": raw.get("extra", ""),
            }
        )
    return rows
