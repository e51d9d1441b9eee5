"""The mixture of two Laplacians, and the loss over all iterations."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

MAX_FLOW = 40000.0


def mixture_parameters(
    info: Float[Tensor, " b 4 h w"], var_min: float = 0.0, var_max: float = 10.0
) -> tuple[Float[Tensor, " b 2 h w"], Float[Tensor, " b 2 h w"]]:
    """Split the head's channels into mixture logits and log-scales.

    Component 1 is wide, 0 <= log b <= var_max; component 2 is narrow, var_min <= log b <= 0. With `var_min` = 0, as in
    every configuration of the authors, component 2 is the plain L1 with b = 1 and its raw scale gets no gradient.

    Args:
        info: Channels 0:2 the logits, 2:4 the raw log-scales, (b, 4, h, w).
        var_min: Smallest log-scale of component 2; <= 0.
        var_max: Largest log-scale of component 1; >= 0.

    Raises:
        ValueError: A bound lies on the wrong side of 0, or so far off that exp would overflow.
    """
    if not -80 <= var_min <= 0 <= var_max <= 80:
        raise ValueError(f"var_min={var_min}, var_max={var_max}; allowed are -80 <= var_min <= 0 <= var_max <= 80")
    logits, raw = info[:, :2], info[:, 2:]
    return logits, torch.stack([raw[:, 0].clamp(0, var_max), raw[:, 1].clamp(var_min, 0)], dim=1)


def absolute_error(flow: Float[Tensor, " b 2 h w"], target: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b 2 h w"]:
    """|target - flow|, and 0 where the truth is unknown: a NaN here would come back in the gradient, as 0 times NaN.

    Args:
        flow: Prediction (b, 2, h, w).
        target: Truth (b, 2, h, w), not finite where unknown.
    """
    return torch.where(torch.isfinite(target), target, flow.detach()).sub(flow).abs()


def unknown_as_nan(loss: Float[Tensor, " b 2 h w"], target: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b 2 h w"]:
    """Mark the loss as NaN where the truth is unknown, without a gradient there.

    Args:
        loss: Loss (b, 2, h, w), finite everywhere.
        target: Truth (b, 2, h, w), not finite where unknown.
    """
    return loss.masked_fill(~torch.isfinite(target), torch.nan)


def mixture_laplace_nll(
    flow: Float[Tensor, " b 2 h w"],
    info: Float[Tensor, " b 4 h w"],
    target: Float[Tensor, " b 2 h w"],
    var_min: float = 0.0,
    var_max: float = 10.0,
) -> Float[Tensor, " b 2 h w"]:
    """Return the negative log-likelihood of each flow component.

    nll = logsumexp_k a_k - logsumexp_k (a_k - log 2 - log b_k - |target - flow| / b_k), the same a and b for x and y.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        info: Mixture logits and raw log-scales (b, 4, h, w).
        target: True flow (b, 2, h, w), pixels; NaN where unknown, which gives NaN there.
        var_min: Smallest log-scale of component 2.
        var_max: Largest log-scale of component 1.
    """
    logits, log_b = mixture_parameters(info, var_min, var_max)
    error = absolute_error(flow, target).unsqueeze(2)  # (b, 2, 1, h, w)
    inner = (logits - math.log(2) - log_b).unsqueeze(1) - error * torch.exp(-log_b).unsqueeze(1)
    return unknown_as_nan(torch.logsumexp(logits, dim=1, keepdim=True) - torch.logsumexp(inner, dim=2), target)


def sequence_loss(
    nll: Sequence[Float[Tensor, " b 2 h w"]],
    target: Float[Tensor, " b 2 h w"],
    valid: Float[Tensor, " b h w"] | None = None,
    gamma: float = 0.85,
    max_flow: float = MAX_FLOW,
) -> Float[Tensor, ""]:
    """Sum the mean losses of all iterations, later ones weighing more: sum_i gamma^(T-1-i) mean(nll_i).

    Args:
        nll: The loss of each iteration (b, 2, h, w), first iteration first.
        target: True flow (b, 2, h, w); not finite where unknown.
        valid: 1 where the truth is known (b, h, w); everywhere unless given.
        gamma: Decay; 0.85 in every configuration of the authors.
        max_flow: Longer displacements are left out, pixels.

    Returns:
        A scalar. 0 with a graph when no pixel is valid.

    Raises:
        ValueError: No iteration is given, or `gamma` lies outside 0..1.
    """
    if not nll:
        raise ValueError("nll is empty; give the loss of at least one iteration")
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}; allowed is 0 < gamma <= 1")
    known = torch.isfinite(target).all(1) & (target.square().sum(1).sqrt() < max_flow)  # NaN < x is False too
    if valid is not None:
        known = known & (valid >= 0.5)
    total = nll[0].new_zeros(())
    for i, loss in enumerate(nll):
        mask = known[:, None] & torch.isfinite(loss.detach())
        # What is left out must not be multiplied by 0: NaN times 0 is NaN, in the gradient as well.
        kept = torch.where(mask, loss, torch.zeros_like(loss)).sum()
        total = total + gamma ** (len(nll) - 1 - i) * kept / mask.sum().clamp(min=1)
    return total
