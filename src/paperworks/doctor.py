"""What this machine has, for bug reports and for those who ask what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

from paperworks import __version__
from paperworks.claims import catalog
from paperworks.claims.executors import available_cores
from paperworks.claims.ledger import DEFAULT_PATH
from paperworks.claims.rawtoml import read_toml


def examine() -> dict[str, Any]:
    """Versions, extras that are installed, data that is there, and where a ledger would be written."""
    from paperworks.kit import assets

    rooms = catalog.rooms().values()
    extras = sorted({read_toml(room.folder).get("extra", "") for room in rooms})
    return {
        "paperworks": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": available_cores(),
        "extras": {extra: missing_of(extra) for extra in extras},
        "assets": {row["name"]: row["status"] for row in assets.describe(None)},
        "ledger": _ledger_place(),
    }


def missing_of(extra: str) -> list[str]:
    """The distributions of an extra that are not installed."""
    return sorted(name for name in requirements(extra) if not _installed(name))


def requirements(extra: str) -> set[str]:
    """Names of the distributions that an extra asks for, extras within extras included; empty for "core"."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    for text in importlib.metadata.requires("paperworks") or []:
        requirement = Requirement(text)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.marker.evaluate({"extra": ""}):
            continue
        if requirement.name == "paperworks":
            for inner in requirement.extras:
                found |= requirements(inner)
        else:
            found.add(requirement.name)
    return found


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _ledger_place() -> str:
    folder = DEFAULT_PATH.parent.resolve()
    place: Path = folder
    while not place.exists():
        place = place.parent
    writable = "can" if place.is_dir() and os.access(place, os.W_OK) else "cannot"
    return f"{DEFAULT_PATH} ({writable} be written)"
