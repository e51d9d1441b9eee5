"""Inference on pictures larger than those of training: resizing, and tiles blended by Gaussian weights."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Images = Float[Tensor, " b 3 h w"]
Estimate = Callable[[Tensor, Tensor], Tensor]


def blending_weights(height: int, width: int, like: Tensor) -> Float[Tensor, " h w"]:
    """exp(-r^2 / 2), r the distance to the tile's centre in units of its sides; all weights are near 1.

    Args:
        height: Rows of the tile.
        width: Columns of the tile.
        like: A tensor of any shape (...) whose type and device the weights take.
    """
    y, x = (
        (torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n - 0.5 for n in (height, width)
    )  # centres of pixels
    return torch.exp(-(y[:, None] ** 2 + x**2) / 2)


def tile_corners(height: int, width: int, tile: tuple[int, int]) -> list[tuple[int, int]]:
    """Top left corners of tiles that cover a picture, 3/4 of a tile apart, the last ones moved inside.

    Args:
        height: Rows of the picture, at least those of the tile.
        width: Columns of the picture.
        tile: Height and width of a tile.
    """
    axes: list[list[int]] = []
    for size, side in zip((height, width), tile, strict=True):
        axes.append(list(dict.fromkeys(min(i, size - side) for i in range(0, size, max(side // 4 * 3, 1)))))
    return [(top, left) for top in axes[0] for left in axes[1]]


def tiled(estimate: Estimate, img1: Images, img2: Images, tile: tuple[int, int] | None) -> Float[Tensor, " b c h w"]:
    """Estimate in tiles; overlapping estimates are averaged.

    The result lies between the estimates of the tiles at each pixel, so that a seam is no higher than their
    disagreement there.

    Args:
        estimate: Gives a map (b, c, h, w) for two tiles.
        img1: First pictures (b, 3, h, w).
        img2: Second pictures (b, 3, h, w).
        tile: Height and width of a tile; pictures that are smaller are padded with zeros, evenly. ``None``: one tile.

    Raises:
        ValueError: A side of the tile is smaller than 16.
    """
    if tile is None:
        return estimate(img1, img2)
    if min(tile) < 16:
        raise ValueError(f"tile={tile}; a tile has at least 16 rows and 16 columns")
    height, width = img1.shape[2:]
    down, right = max(tile[0] - height, 0), max(tile[1] - width, 0)
    margins = (right // 2, right - right // 2, down // 2, down - down // 2)
    img1, img2 = (F.pad(x, margins) for x in (img1, img2))
    weight = blending_weights(*tile, like=img1)
    total: Tensor | None = None
    share = img1.new_zeros(img1.shape[2:])
    for top, left in tile_corners(img1.shape[2], img1.shape[3], tile):
        rows, columns = slice(top, top + tile[0]), slice(left, left + tile[1])
        part = estimate(img1[..., rows, columns], img2[..., rows, columns])
        if total is None:
            total = part.new_zeros(*part.shape[:2], *img1.shape[2:])
        total[..., rows, columns] += weight * part
        share[rows, columns] += weight
    assert total is not None  # a picture has at least one tile
    return (total / share)[..., margins[2] : margins[2] + height, margins[0] : margins[0] + width]


def resized(estimate: Estimate, img1: Images, img2: Images, scale: float) -> Float[Tensor, " b 2 h w"]:
    """Estimate a flow on pictures resized by 2^scale, and resize it back.

    Args:
        estimate: Gives a flow (b, 2, h, w) for two pictures.
        img1: First pictures (b, 3, h, w).
        img2: Second pictures (b, 3, h, w).
        scale: Logarithm to base 2 of the factor; 0 leaves everything as it is.
    """
    if scale == 0:
        return estimate(img1, img2)
    height, width = img1.shape[2:]
    size = (max(round(height * 2**scale), 1), max(round(width * 2**scale), 1))
    one, two = (F.interpolate(x, size=size, mode="bilinear", align_corners=True) for x in (img1, img2))
    flow = F.interpolate(estimate(one, two), size=(height, width), mode="bilinear", align_corners=True)
    return flow * flow.new_tensor([width / size[1], height / size[0]]).view(1, 2, 1, 1)
