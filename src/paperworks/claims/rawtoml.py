"""Reads paper.toml without validating it: cheap enough for `list` and `show`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from paperworks.claims.errors import PaperError


def read_toml(folder: Path) -> dict[str, Any]:
    """The raw content of ``folder/paper.toml``."""
    path = folder / "paper.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PaperError(f"{path} does not exist") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PaperError(f"{path} is not valid TOML: {error}") from None
