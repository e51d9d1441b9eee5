"""Distances of all pairs over all factors, in the memory of a few."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .geometry.lorentz import EPS

METRICS = ("l1", "l2", "linf")
TOGETHER = 2**19  # distances that are worked on at once: as many factors as that takes


def _acosh(z: Tensor) -> Tensor:
    """acosh(z) in operations that are vectorised on the CPU, where torch's own is not."""
    above = z - 1
    return (above + (above * (z + 1)).sqrt()).log1p()


def _cosh(x: Tensor, y: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-c<x_i, y_j> (f, n, m) of some factors, and the times of x (f, n) and y (f, m)."""
    time_x, time_y = ((1 / c.unsqueeze(-1) + p.square().sum(-1)).sqrt() for p in (x, y))
    product = torch.baddbmm(time_x.unsqueeze(-1) * time_y.unsqueeze(-2), x, y.mT, alpha=-1)
    return product.mul_(c[:, None, None]), time_x, time_y


def _some(x: Tensor, y: Tensor) -> range:
    """The first factors of each part that is worked on at once."""
    return range(0, x.shape[1], max(1, TOGETHER // max(1, len(x) * len(y))))


class _Pairwise(torch.autograd.Function):
    """Sum, root of the sum of squares or maximum over factors; distances are computed again on the way back."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor, c: Tensor, metric: str, eps: float) -> Tensor:  # type: ignore[no-untyped-def, override]
        total = x.new_zeros(len(x), len(y))
        which = torch.zeros(len(x), len(y), dtype=torch.long, device=x.device) if metric == "linf" else None
        starts = _some(x, y)
        for f in starts:
            own = slice(f, f + starts.step)
            cosh, _, _ = _cosh(x[:, own].transpose(0, 1), y[:, own].transpose(0, 1), c[own])
            parts = _acosh(cosh.clamp_(min=1 + eps)).div_(c[own].sqrt()[:, None, None])
            if metric == "l1":
                total += parts.sum(0)
            elif metric == "l2":
                total += parts.square_().sum(0)
            else:
                assert which is not None
                largest, index = parts.max(0)
                which = torch.where(largest > total, index + f, which)
                total = torch.maximum(total, largest)
        if metric == "l2":
            total = total.sqrt_()
        ctx.metric, ctx.eps = metric, eps
        ctx.save_for_backward(x, y, c, total if metric == "l2" else None, which)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # type: ignore[no-untyped-def, override]
        x, y, c, total, which = ctx.saved_tensors
        grad_x, grad_y, grad_c = torch.empty_like(x), torch.empty_like(y), torch.empty_like(c)
        starts = _some(x, y)
        for f in starts:
            own = slice(f, f + starts.step)
            xf, yf, cf = x[:, own].transpose(0, 1), y[:, own].transpose(0, 1), c[own]
            root = cf.sqrt()[:, None, None]
            cosh, time_x, time_y = _cosh(xf, yf, cf)
            parts = _acosh(cosh.clamp(min=1 + ctx.eps)).div_(root)
            if ctx.metric == "l1":
                share = grad
            elif ctx.metric == "l2":
                share = grad * parts / total
            else:
                factors = torch.arange(f, f + len(cf), device=x.device)
                share = grad * (which == factors[:, None, None])
            slope = share / (cosh.square().sub_(1).clamp_(min=ctx.eps).sqrt_() * root)
            slope = slope.masked_fill_(cosh <= 1 + ctx.eps, 0.0)  # d/d cosh
            by_x, by_y = (slope @ time_y.unsqueeze(-1)).squeeze(-1), (slope.mT @ time_x.unsqueeze(-1)).squeeze(-1)
            scale = cf[:, None, None]
            grad_x[:, own] = (scale * ((by_x / time_x).unsqueeze(-1) * xf - slope @ yf)).transpose(0, 1)
            grad_y[:, own] = (scale * ((by_y / time_y).unsqueeze(-1) * yf - slope.mT @ xf)).transpose(0, 1)
            # The curvature is in the factor, in cosh and in both times (dt/dc = -1 / (2 c^2 t)).
            through_times = ((by_x / time_x).sum(-1) + (by_y / time_y).sum(-1)) / (2 * cf)
            grad_c[own] = (slope * cosh).sum((1, 2)) / cf - through_times - (share * parts).sum((1, 2)) / (2 * cf)
        return grad_x, grad_y, grad_c, None, None


def product_dist(x: Tensor, y: Tensor, c: Tensor, metric: str = "l1", eps: float = EPS) -> Tensor:
    """Distances in a product of hyperbolic spaces, of all pairs.

    Memory is of the order n m, not factors n m, on the way back as well: distances are computed twice, and only some
    of the factors at once where all would have more than half a million pairs.

    Args:
        x: Points (n, factors, d), space components.
        y: Points (m, factors, d).
        c: Minus the curvatures (factors,).
        metric: "l1": sum over the factors, "l2": root of the sum of squares, "linf": maximum.
        eps: As in `geometry.lorentz.dist`.

    Returns:
        Distances (n, m). Gradients of the first order only.

    Raises:
        ValueError: For another metric, or shapes that do not fit.
    """
    if metric not in METRICS:
        raise ValueError(f"metric = {metric!r}: one of {', '.join(METRICS)} is needed")
    if x.dim() != 3 or y.dim() != 3 or x.shape[1:] != y.shape[1:] or c.shape != (x.shape[1],):
        raise ValueError(
            f"x {tuple(x.shape)}, y {tuple(y.shape)}, c {tuple(c.shape)}: (n, factors, d), (m, factors, d) and "
            "(factors,) are needed"
        )
    return _Pairwise.apply(x, y, c, metric, eps)  # type: ignore[no-any-return, no-untyped-call]
