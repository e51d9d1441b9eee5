"""Real bytes that are on every machine: Python's own standard library, and the glosses of WordNet."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
HELD_OUT = 20  # one file, or one gloss, in so many is for validation


def _sources() -> Iterator[bytes]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"} & set(parts):
            yield path.read_bytes()


def _glosses(folder: Path) -> Iterator[bytes]:
    for file in sorted(folder.glob("data.*")):
        for line in file.read_bytes().splitlines():
            if not line.startswith(b"  ") and b" | " in line:
                yield line.split(b" | ", 1)[1].strip() + b"\n"


def _split(pieces: Iterator[bytes]) -> tuple[Bytes, Bytes]:
    train, held_out = bytearray(), bytearray()
    for i, piece in enumerate(pieces):
        (held_out if i % HELD_OUT == 0 else train).extend(piece)
    return np.frombuffer(bytes(train), dtype=np.uint8), np.frombuffer(bytes(held_out), dtype=np.uint8)


def python_bytes() -> tuple[Bytes, Bytes]:
    """The sources of the standard library of this Python: bytes to train on and bytes held out, by whole files."""
    return _split(_sources())


def gloss_bytes(wordnet: Path) -> tuple[Bytes, Bytes]:
    """WordNet's glosses, one a line: bytes to train on and bytes held out.

    Args:
        wordnet: Folder with WordNet's data files.
    """
    return _split(_glosses(wordnet))
