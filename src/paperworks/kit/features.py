"""Features of frozen encoders, kept on disk: what was encoded once is looked up ever after."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from paperworks.kit.assets.errors import CacheError
from paperworks.kit.assets.store import cache_folder, writing

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

_PATIENCE = 60.0  # seconds to wait for another process that writes
_LOOKUP = 500  # keys in one query; SQLite of old allows 999

Item = TypeVar("Item", str, "npt.NDArray[np.uint8]")


def cached_features(
    encoder: str,
    items: Sequence[Item],
    encode: Callable[[list[Item]], npt.NDArray[np.float32]],
    width: int,
    chunk: int = 1024,
) -> npt.NDArray[np.float32]:
    """Encodes texts or pictures, those which are new; the others come from the cache folder.

    One SQLite file an encoder, a row an item under the sha256 of the text or the picture. Several processes may use it
    at once: the worst that happens is that two of them encode the same item. Each chunk is saved as soon as it is
    encoded, so a run that is cut short loses one.

    Args:
        encoder: Names the encoder and everything that its features depend on (checksum of the weights, layer, pooling,
            truncation), in letters, digits, "-", "_" and "."; another name is another file.
        items: What to encode, texts or arrays of pixels, repeated or not.
        encode: Given up to `chunk` different items, returns their features of shape (n, width). An item's features
            must not depend on the others in the chunk by more than rounding.
        width: Number of features.
        chunk: Items in one call of `encode`.

    Returns:
        Features of shape (len(items), width), yours to change.

    Raises:
        CacheError: The cache cannot be written or is damaged.
        ValueError: `encode` returned features of another shape, or not finite; `encoder` is no plain name, or the
            cache holds features of another width under it.
    """
    import numpy as np

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", encoder):
        raise ValueError(f"encoder is {encoder!r}; allowed: letters, digits, '-', '_' and '.'")
    if isinstance(items, str):
        raise TypeError(f"items is the text {items!r}; a sequence of texts is expected")
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}; allowed: 1 or more")
    keys = [_key(item) for item in items]
    by_key = dict(zip(keys, items, strict=True))
    with _database(cache_folder() / "features" / f"{encoder}.db") as database:
        found = _lookup(database, list(by_key), width)
        new = [key for key in by_key if key not in found]
        new.sort(key=lambda key: len(by_key[key]))  # texts of like length share a batch, with little padding
        for i in range(0, len(new), chunk):
            part = new[i : i + chunk]
            features = np.asarray(encode([by_key[key] for key in part]), dtype="<f4")
            if features.shape != (len(part), width):
                raise ValueError(f"encode returned shape {features.shape}; expected {(len(part), width)}")
            if not np.isfinite(features).all():
                raise ValueError("encode returned features that are not finite")
            with database:
                database.executemany(
                    "INSERT OR IGNORE INTO feature VALUES (?, ?)",
                    [(key, row.tobytes()) for key, row in zip(part, features, strict=True)],
                )
            found |= _lookup(database, part, width)  # where another process was faster, what it saved
    return np.stack([found[key] for key in keys]).astype(np.float32) if keys else np.empty((0, width), np.float32)


def _key(item: str | npt.NDArray[np.uint8]) -> bytes:
    if isinstance(item, str):
        return hashlib.sha256(item.encode("utf-8", "surrogatepass")).digest()
    return hashlib.sha256(f"{item.dtype.str} {item.shape} ".encode() + item.tobytes()).digest()


def _lookup(database: sqlite3.Connection, keys: list[bytes], width: int) -> dict[bytes, npt.NDArray[np.float32]]:
    import numpy as np

    found = {}
    for i in range(0, len(keys), _LOOKUP):
        part = keys[i : i + _LOOKUP]
        query = f"SELECT key, value FROM feature WHERE key IN ({','.join('?' * len(part))})"
        for key, value in database.execute(query, part):
            if len(value) != 4 * width:
                raise ValueError(
                    f"width is {width}; the cache holds {len(value) // 4} features an item under this name"
                )
            found[key] = np.frombuffer(value, dtype="<f4")
    return found


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with writing():
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        database = sqlite3.connect(path, timeout=_PATIENCE)
        try:
            database.execute("CREATE TABLE IF NOT EXISTS feature (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
            yield database
        finally:
            database.close()
    except sqlite3.Error as error:
        raise CacheError(
            f"the cache of features {path} cannot be used ({error}); delete it to start anew, "
            "or set PAPERWORKS_CACHE to a folder that you may write to"
        ) from error
