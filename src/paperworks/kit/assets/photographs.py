"""Photographs, and a real pair of pictures with the measured motion between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt


class Motorcycle(NamedTuple):
    """A rectified stereo pair.

    Attributes:
        left: The left picture, of shape (500, 741, 3), 0..255.
        right: The right picture, of the same shape.
        disparity: Of shape (500, 741), in pixels, NaN where it was not measured: what stands at column x of the left
            picture stands at column x - disparity of the right one, in the same row.
    """

    left: npt.NDArray[np.uint8]
    right: npt.NDArray[np.uint8]
    disparity: npt.NDArray[np.float32]


def load_photographs() -> dict[str, npt.NDArray[np.uint8]]:
    """Reads 13 photographs: those of scikit-image, and china and flower of scikit-learn.

    Returns:
        Pictures of shape (height, width, 3), 0..255, by name, in alphabetical order; yours to change. Grey ones
        (brick, camera, grass, gravel) have three equal channels.

    Raises:
        AssetMissing: The files are not on this machine.
    """
    paths = [*open_asset("photographs").glob("*.*g"), *open_asset("china_flower").glob("*.jpg")]
    known = {"astronaut", "brick", "camera", "chelsea", "china", "coffee", "flower", "grass", "gravel"}
    known |= {"hubble_deep_field", "ihc", "retina", "rocket"}  # an installed package's folder holds more than these
    return {path.stem: _read(path) for path in sorted(paths, key=lambda path: path.stem) if path.stem in known}


def load_motorcycle() -> Motorcycle:
    """Reads the Motorcycle pair of Middlebury 2014.

    Returns:
        A new copy, yours to change.

    Raises:
        AssetMissing: The files are not on this machine.
    """
    import numpy as np

    folder = open_asset("motorcycle")
    with np.load(folder / "motorcycle_disp.npz", allow_pickle=False) as arrays:
        disparity = arrays["arr_0"].astype(np.float32)
    disparity[~np.isfinite(disparity)] = np.nan
    return Motorcycle(_read(folder / "motorcycle_left.png"), _read(folder / "motorcycle_right.png"), disparity)


def _read(path: Path) -> npt.NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    with Image.open(path) as picture:
        return np.array(picture.convert("RGB"))
