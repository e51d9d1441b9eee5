"""GloVe's word vectors, as packed by wink-nlp."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from paperworks.kit.assets.derived import derive
from paperworks.kit.assets.errors import AssetError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

_DIMENSIONS = 100


def load_wink_vectors(words: Sequence[str]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Looks up GloVe vectors (6 billion tokens, 100 dimensions), not normalised.

    The vocabulary is lower case, most frequent words first, and has no phrases: "sea" and "lion", not "sea lion". The
    first call on a machine converts the asset, which takes about 5 s and 1 GB of memory; later ones map the result.

    Args:
        words: Any number of words, repeated or not.

    Returns:
        Vectors of shape (len(words), 100), a row of NaN for a word that is not in the vocabulary; and which words are,
        of shape (len(words),). Both are yours to change.

    Raises:
        AssetMissing: The file is not on this machine, nor what was made of it.
    """
    import numpy as np

    if isinstance(words, str):
        raise TypeError(f"words is the text {words!r}; a sequence of words is expected")
    vocabulary, vectors = _open(derive("wink_vectors", "npy", 1, convert))
    rows = np.array([vocabulary.get(word, -1) for word in words], dtype=np.int64)
    known = rows >= 0
    found = np.full((len(rows), _DIMENSIONS), np.nan, dtype=np.float32)
    found[known] = vectors[rows[known]]
    return found, known


@lru_cache(maxsize=1)
def _open(folder: Path) -> tuple[dict[str, int], npt.NDArray[np.float32]]:
    import numpy as np

    words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    return {word: row for row, word in enumerate(words)}, np.load(folder / "vectors.npy", mmap_mode="r")


def convert(source: Path, folder: Path) -> None:
    """Writes `words.txt`, one a line, and `vectors.npy` of shape (341479, 100).

    The file is one object, {..., "words": [...], "vectors": {word: [100 numbers, norm, row], ...}, "unkVector": ...}.
    Its vectors are read one by one: as one object they would take more than a gigabyte.
    """
    import numpy as np

    text = source.read_text(encoding="utf-8")
    begin = text.index('"vectors":{', text.index("],"))  # a word in quotation marks is followed by a comma
    header = json.loads(text[:begin].rstrip(",") + "}")
    words: list[str] = header["words"]
    vectors = np.empty((len(words), _DIMENSIONS), dtype=np.float32)
    read, position = json.JSONDecoder().raw_decode, begin + len('"vectors":')
    for row, word in enumerate(words):
        key, position = read(text, position + 1)  # after "{" or ","
        values, position = read(text, position + 1)  # after ":"
        if key != word or values[-1] != row or len(values) != _DIMENSIONS + 2:
            raise AssetError(f"asset 'wink_vectors': row {row} is the vector of {key!r}; expected {word!r}")
        vectors[row] = values[:_DIMENSIONS]
    np.save(folder / "vectors.npy", vectors)
    (folder / "words.txt").write_text("\n".join(words), encoding="utf-8", newline="\n")
