"""Backward warping, and what a flow and its reverse tell about occlusion."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


def pixel_grid(height: int, width: int, like: Tensor) -> Float[Tensor, " 2 h w"]:
    """Return the coordinates (x, y) of every pixel.

    Args:
        height: Rows.
        width: Columns.
        like: A tensor of any shape (...) whose type and device the grid takes.
    """
    y = torch.arange(height, dtype=like.dtype, device=like.device)
    x = torch.arange(width, dtype=like.dtype, device=like.device)
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)])


def sample(feat: Float[Tensor, " b c h w"], coords: Float[Tensor, " b 2 k m"]) -> Float[Tensor, " b c k m"]:
    """Read a map at positions in pixels, bilinearly; zeros lie outside.

    Args:
        feat: Map (b, c, h, w).
        coords: Positions (b, 2, k, m) as (x, y), (0, 0) being the centre of the first pixel.

    Raises:
        ValueError: The map is a single row or column, where the normalised coordinate 2 x / (w - 1) - 1 has no meaning.
    """
    height, width = feat.shape[-2:]
    if height < 2 or width < 2:
        raise ValueError(f"feat is {height}x{width}; a map to sample from needs at least 2 rows and 2 columns")
    span = coords.new_tensor([width - 1, height - 1]).view(1, 2, 1, 1)
    grid = (2 * coords / span - 1).permute(0, 2, 3, 1)  # -1 and 1 are centres of pixels: align_corners=True
    return F.grid_sample(feat, grid, mode="bilinear", padding_mode="zeros", align_corners=True)


def backward_warp(feat: Float[Tensor, " b c h w"], flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
    """Bring a map of frame 2 to frame 1: out(p) = feat(p + flow(p)).

    Args:
        feat: Map of the second frame (b, c, h, w).
        flow: Motion from frame 1 to frame 2 (b, 2, h, w) as (x, y), in pixels of this map.

    Raises:
        ValueError: The shapes do not fit, or the map is a single row or column.
    """
    if (
        flow.ndim != 4
        or flow.shape[1] != 2
        or feat.ndim != 4
        or (feat.shape[0], *feat.shape[2:])
        != (
            flow.shape[0],
            *flow.shape[2:],
        )
    ):
        raise ValueError(
            f"flow has shape {tuple(flow.shape)}; for feat {tuple(feat.shape)} it must be (batch, 2, height, width)"
        )
    return sample(feat, pixel_grid(flow.shape[2], flow.shape[3], like=flow) + flow)


def occlusion_mask(
    forward: Float[Tensor, " b 2 h w"],
    backward: Float[Tensor, " b 2 h w"],
    relative: float = 0.01,
    absolute: float = 0.5,
) -> Bool[Tensor, " b h w"]:
    """Tell pixels of frame 1 that have no partner in frame 2, by forward-backward consistency.

    A pixel p is occluded when |f(p) + g(p + f(p))|^2 > relative (|f|^2 + |g|^2) + absolute, or p + f(p) is outside.

    Args:
        forward: Flow f from frame 1 to frame 2 (b, 2, h, w), pixels.
        backward: Flow g from frame 2 to frame 1 (b, 2, h, w), pixels.
        relative: Share of the squared lengths that is tolerated.
        absolute: Tolerated squared distance, pixels^2.
    """
    back = backward_warp(backward, forward)
    gap = (forward + back).square().sum(1)
    length = forward.square().sum(1) + back.square().sum(1)
    height, width = forward.shape[2:]
    x, y = (pixel_grid(height, width, like=forward) + forward).unbind(1)
    outside = (x < 0) | (y < 0) | (x > width - 1) | (y > height - 1)
    return (gap > relative * length + absolute) | outside
