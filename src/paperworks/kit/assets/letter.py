"""UCI Letter Recognition."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt


def load_letter() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.str_]]:
    """Reads the 20,000 letters of UCI Letter Recognition, 734 to 813 of each.

    Returns:
        Features of shape (20000, 16), whole numbers 0..15; labels "A" to "Z" of shape (20000,).
        Both are yours to change.

    Raises:
        AssetMissing: The file is not on this machine.
    """
    features, labels = _read(open_asset("letter"))
    return features.copy(), labels.copy()


@lru_cache(maxsize=1)
def _read(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.str_]]:
    import numpy as np

    lines = path.read_text(encoding="ascii").split()
    features = np.array([line.split(",")[:-1] for line in lines], dtype=np.uint8)
    return features, np.array([line[-1] for line in lines])
