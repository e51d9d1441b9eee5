"""Errors of a flow: end-point error, outliers, Fl, WAUC, by distance to motion boundaries and by displacement."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

Flow = Float[Tensor, " b 2 h w"]
Mask = Bool[Tensor, " b h w"]


def _errors(flow: Flow, target: Flow, valid: Mask | None) -> tuple[Tensor, Tensor]:
    """End-point errors and lengths of the truth at the valid pixels, both (n,)."""
    if flow.shape != target.shape or flow.ndim != 4 or flow.shape[1] != 2:
        raise ValueError(f"flow {tuple(flow.shape)} and target {tuple(target.shape)} must both be (batch, 2, h, w)")
    known = torch.isfinite(target).all(1)
    if valid is not None:
        known = known & (valid > 0)
    error = torch.linalg.vector_norm(flow - target, dim=1)[known]
    if error.numel() == 0:
        raise ValueError("valid leaves no pixel with a known flow; an error needs at least one")
    return error, torch.linalg.vector_norm(target, dim=1)[known]


def epe(flow: Flow, target: Flow, valid: Mask | None = None) -> float:
    """Mean end-point error |f - f_gt|_2, pixels.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        target: Truth (b, 2, h, w); not finite where unknown.
        valid: Pixels that count (b, h, w); all known ones unless given.
    """
    return _errors(flow, target, valid)[0].mean().item()


def px_outlier(flow: Flow, target: Flow, threshold: float = 1.0, valid: Mask | None = None) -> float:
    """Share of pixels with an error above a threshold, per cent.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        target: Truth (b, 2, h, w); not finite where unknown.
        threshold: Pixels.
        valid: Pixels that count (b, h, w).
    """
    return 100 * (_errors(flow, target, valid)[0] > threshold).double().mean().item()


def fl_all(flow: Flow, target: Flow, valid: Mask | None = None) -> float:
    """KITTI's Fl: share of pixels with an error above 3 px and above 5 % of the true length, per cent.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        target: Truth (b, 2, h, w); not finite where unknown.
        valid: Pixels that count (b, h, w).
    """
    error, length = _errors(flow, target, valid)
    return 100 * ((error > 3) & (error > 0.05 * length)).double().mean().item()


def wauc(flow: Flow, target: Flow, valid: Mask | None = None, largest: float = 5.0, steps: int = 100) -> float:
    """Weighted area under the accuracy curve (Spring, VIPER), per cent; 100 is best.

    The share of pixels with an error of at most d_i = largest i / steps, i = 1..steps, weighted by 1 - (i - 1) / steps.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        target: Truth (b, 2, h, w); not finite where unknown.
        valid: Pixels that count (b, h, w).
        largest: Largest threshold, pixels.
        steps: Number of thresholds.
    """
    error, _ = _errors(flow, target, valid)
    i = torch.arange(1, steps + 1, dtype=torch.float64)
    weight = 1 - (i - 1) / steps
    ordered = error.double().sort().values
    within = torch.searchsorted(ordered, (largest * i / steps).to(ordered.device), right=True).cpu() / len(ordered)
    return (100 * (weight * within).sum() / weight.sum()).item()


def motion_boundary(target: Flow, within: int = 3, jump: float = 1.0) -> Mask:
    """Tell the pixels near a jump of the true flow.

    Args:
        target: Truth (b, 2, h, w), pixels.
        within: Largest distance to the jump, pixels (squares).
        jump: Difference of neighbouring flows that makes a boundary, pixels.
    """
    right = torch.linalg.vector_norm(target[..., :, 1:] - target[..., :, :-1], dim=1) > jump
    down = torch.linalg.vector_norm(target[..., 1:, :] - target[..., :-1, :], dim=1) > jump
    edge = torch.zeros_like(target[:, 0], dtype=torch.bool)
    edge[..., :, 1:] |= right
    edge[..., :, :-1] |= right
    edge[..., 1:, :] |= down
    edge[..., :-1, :] |= down
    return F.max_pool2d(edge[:, None].float(), 2 * within + 1, stride=1, padding=within)[:, 0] > 0


def displacement_report(
    flow: Flow, target: Flow, valid: Mask | None = None, edges: tuple[float, ...] = (0.0, 5.0, 10.0, 20.0, 40.0)
) -> list[dict[str, float]]:
    """The end-point error by the length of the true displacement: the stress test that the reviewers asked for.

    Args:
        flow: Prediction (b, 2, h, w), pixels.
        target: Truth (b, 2, h, w); not finite where unknown.
        valid: Pixels that count (b, h, w).
        edges: Lower ends of the bins, pixels; the last bin is open.

    Returns:
        For each bin that holds a pixel: `low`, `high`, `share` of the pixels, `epe`, and `zero`, that of no motion.
    """
    error, length = _errors(flow, target, valid)
    rows = []
    for low, high in zip(edges, (*edges[1:], float("inf")), strict=True):
        inside = (length >= low) & (length < high)
        if inside.any():
            rows.append(
                {
                    "low": low,
                    "high": high,
                    "share": inside.double().mean().item(),
                    "epe": error[inside].mean().item(),
                    "zero": length[inside].mean().item(),
                }
            )
    return rows
