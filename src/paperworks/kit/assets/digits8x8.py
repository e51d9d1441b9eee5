"""1,797 digits of 8x8 pixels, the small set that scikit-learn ships."""

from __future__ import annotations

import gzip
import io
from functools import lru_cache
from typing import TYPE_CHECKING

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt


def load_digits8x8() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Reads the digits of `sklearn.datasets.load_digits`, without scikit-learn.

    Returns:
        Images of shape (1797, 8, 8), grey levels 0..16, 0 the background; labels 0..9 of shape (1797,).
        Both are yours to change.

    Raises:
        AssetMissing: The file is not on this machine.
    """
    images, labels = _read(open_asset("digits8x8"))
    return images.copy(), labels.copy()


@lru_cache(maxsize=1)
def _read(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    import numpy as np

    text = gzip.decompress(path.read_bytes()).decode("ascii")
    table = np.loadtxt(io.StringIO(text), delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
