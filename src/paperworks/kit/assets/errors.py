"""What can go wrong with an asset; every message is one line that says what to do."""

from __future__ import annotations


class AssetError(Exception):
    """Anything about assets that the user has to act on."""


class CatalogError(AssetError):
    """An `assets.toml` that does not follow its schema."""


class UnknownAsset(AssetError):
    """A name that the catalogue does not have."""


class AssetMissing(AssetError, FileNotFoundError):
    """An asset that is not on this machine; the message names the command that gets it, and its size."""


class CacheError(AssetError):
    """A cache folder that cannot be written."""


class FetchError(AssetError):
    """No source delivered the asset; the message says why for each of them."""


class SourceError(Exception):
    """One source failed; the next one is tried."""


class ChecksumError(SourceError):
    """A source delivered other bytes than those declared."""


def one_line(text: object, limit: int = 300) -> str:
    """Joins `text` into one line of at most `limit` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
