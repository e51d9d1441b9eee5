"""Lazy public names for a paper's room, with one clear line when an extra is missing."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import lazy_loader


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Make the names in a room's ``__init__.pyi`` importable, each on first use.

    Args:
        package: The room's ``__name__``.
        file: The room's ``__file__``; ``__init__.pyi`` and ``paper.toml`` lie beside it.

    Returns:
        ``__getattr__``, ``__dir__`` and ``__all__`` for the room's namespace.
    """
    load, list_names, names = lazy_loader.attach_stub(package, file)

    def __getattr__(name: str) -> object:
        try:
            return load(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing in {"", "paperworks", package.partition(".")[0]}:
                raise
            raise ImportError(_missing_extra(package, file, missing), name=error.name) from error

    return __getattr__, list_names, names


def _missing_extra(package: str, file: str, missing: str) -> str:
    room = Path(file).parent
    extra = tomllib.loads((room / "paper.toml").read_text(encoding="utf-8")).get("extra", "all")
    return f"{room.parent.name}/{room.name} needs {missing!r}: pip install 'paperworks[{extra}]'"
