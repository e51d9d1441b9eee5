"""Convex upsampling: each fine value is a weighted mean of the 3x3 coarse values around it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def convex_upsample(
    flow: Float[Tensor, " b c h w"], mask: Float[Tensor, " b k h w"], factor: int = 2, scale: float | None = None
) -> Float[Tensor, " b c fh fw"]:
    """Upsample a map with learned weights.

    Args:
        flow: Coarse map (b, c, h, w), a flow in coarse pixels unless `scale` is given.
        mask: Logits (b, 9 factor^2, h, w), ordered (neighbour, fine row, fine column); softmax goes over neighbours.
        factor: How much finer the result is.
        scale: Factor on the values; `factor` unless given, since a flow is counted in fine pixels afterwards. 1 for
            anything that is no flow.

    Returns:
        Map (b, c, factor h, factor w). Beyond the border zeros are taken, as in the authors' code.

    Raises:
        ValueError: The mask has another shape.
    """
    b, c, h, w = flow.shape
    if mask.shape != (b, 9 * factor**2, h, w):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}; for factor={factor} it must be {(b, 9 * factor**2, h, w)}"
        )
    weight = mask.view(b, 1, 9, factor, factor, h, w).softmax(dim=2)
    near = F.unfold((factor if scale is None else scale) * flow, 3, padding=1).view(b, c, 9, 1, 1, h, w)
    fine = torch.sum(weight * near, dim=2)  # (b, c, factor, factor, h, w)
    return fine.permute(0, 1, 4, 2, 5, 3).reshape(b, c, factor * h, factor * w)
