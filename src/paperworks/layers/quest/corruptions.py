"""Six corruptions of grey images at three severities, after the kinds of ImageNet-C: noise, blur, digital, geometry.

Lengths are fractions of the image width, so that one severity means the same at 8 and at 28 pixels.
"""

import numpy as np
from jaxtyping import Float
from scipy import ndimage

CORRUPTIONS = {  # strength at severity 1, 2, 3
    "noise": (0.15, 0.30, 0.45),  # standard deviation of Gaussian noise, in units of the grey range
    "blur": (0.035, 0.055, 0.075),  # standard deviation of the Gaussian kernel / width
    "contrast": (0.5, 0.3, 0.15),  # factor on the distance from the image's mean
    "occlusion": (0.25, 0.35, 0.50),  # side of a black square at a random place / width
    "shift": (0.07, 0.11, 0.15),  # distance along both axes, each with a random sign / width
    "rotation": (15.0, 30.0, 45.0),  # degrees, with a random sign
}
SEVERITIES = (1, 2, 3)


def corrupt(
    images: Float[np.ndarray, "b h w"], kind: str, severity: int, rng: np.random.Generator
) -> Float[np.ndarray, "b h w"]:
    """Return corrupted copies.

    Args:
        images: grey levels within 0..1; 0 is the background that shifts and rotations bring in.
        kind: a key of `CORRUPTIONS`.
        severity: 1, 2 or 3.
        rng: draws noise, places and signs.

    Raises:
        ValueError: unknown kind or severity.
    """
    if kind not in CORRUPTIONS:
        raise ValueError(f"kind={kind!r}; allowed are {', '.join(map(repr, CORRUPTIONS))}")
    if severity not in SEVERITIES:
        raise ValueError(f"severity={severity!r}; allowed are {', '.join(map(str, SEVERITIES))}")
    strength = CORRUPTIONS[kind][severity - 1]
    count, height, width = images.shape
    if kind == "noise":
        out = images + strength * rng.standard_normal(images.shape)
    elif kind == "blur":
        out = ndimage.gaussian_filter(images, sigma=(0, strength * width, strength * width))
    elif kind == "contrast":
        mean = images.mean(axis=(1, 2), keepdims=True)
        out = mean + strength * (images - mean)
    elif kind == "occlusion":
        side = round(strength * width)
        top, left = rng.integers(0, height - side + 1, count), rng.integers(0, width - side + 1, count)
        rows, columns = np.arange(height)[None, :, None], np.arange(width)[None, None, :]
        below, beside = rows - top[:, None, None], columns - left[:, None, None]
        inside = (below >= 0) & (below < side) & (beside >= 0) & (beside < side)
        out = np.where(inside, 0.0, images)
    elif kind == "shift":
        moves = strength * width * rng.choice([-1.0, 1.0], (count, 2))
        out = np.stack([ndimage.shift(x, move, order=1) for x, move in zip(images, moves, strict=True)])
    else:
        angles = strength * rng.choice([-1.0, 1.0], count)
        turned = (ndimage.rotate(x, a, reshape=False, order=1) for x, a in zip(images, angles, strict=True))
        out = np.stack(list(turned))
    return np.clip(out, 0.0, 1.0).astype(images.dtype)
