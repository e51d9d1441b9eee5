"""The nouns of WordNet 3.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    from pathlib import Path


def load_wordnet() -> Path:
    """Returns the folder of WordNet's database files `index.noun` and `data.noun`, in the format of wndb(5).

    Raises:
        AssetMissing: The files are not on this machine.
    """
    return open_asset("wordnet")
