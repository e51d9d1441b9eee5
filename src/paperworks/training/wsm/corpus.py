"""Real bytes that are on every machine: Python's own standard library, and the glosses of WordNet."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
HELD_OUT = 20  # one file, or one gloss, in so many is for validation


def _sources() -> Iterator[bytes]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"} & set(parts):
            yield path.read_bytes()


def _entries(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """The first word of each set of synonyms, and its gloss."""
    for file in sorted(folder.glob("data.*")):
        for line in file.read_bytes().splitlines():
            if not line.startswith(b"  ") and b" | " in line:
                facts, gloss = line.split(b" | ", 1)
                yield facts.split()[4].replace(b"_", b" "), gloss.strip()


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
    return _split(gloss + b"\n" for _, gloss in _entries(wordnet))


def word_questions(wordnet: Path, length: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Questions "word: " with the gloss as answer; the same are held out as in `gloss_bytes`.

    Args:
        wordnet: Folder with WordNet's data files.
        length: Bytes of a row: a longer answer is cut off; a question of more than half of them is left out.

    Returns:
        Bytes (n, length) and labels (n, length) to train on, and the same held out. Labels are -100 at the question and
        at the padding, which is a zero byte.
    """
    rows: tuple[list[bytes], list[bytes]] = ([], [])
    starts: tuple[list[int], list[int]] = ([], [])
    for i, (word, gloss) in enumerate(_entries(wordnet)):
        question = word + b": "
        if len(question) <= length // 2:
            rows[i % HELD_OUT == 0].append((question + gloss + b"\n")[:length])
            starts[i % HELD_OUT == 0].append(len(question))
    tables: list[IntArray] = []
    for texts, begin in zip(rows, starts, strict=True):
        raw = np.frombuffer(b"".join(text.ljust(length, b"\0") for text in texts), dtype=np.uint8)
        table: IntArray = raw.reshape(len(texts), length).astype(np.int64)
        place = np.arange(length)
        answer = (place >= np.array(begin)[:, None]) & (place < np.array([len(t) for t in texts])[:, None])
        tables += [table, np.where(answer, table, -100)]
    return tables[0], tables[1], tables[2], tables[3]
