"""Ours beside a peer on the same inputs: times are compared after the results."""

import torch
from torch import Tensor

from paperworks.claims.speed import Pair

from .geometry import lorentz
from .pairwise import product_dist


def _inputs(size: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, k, d = (768, 64, 8) if size == "full" else (12, 4, 3)
    generator = torch.Generator().manual_seed(0)
    v, w = (torch.randn(n, k, d, generator=generator) * d**-0.5 for _ in range(2))
    c = torch.linspace(0.5, 2.0, k)
    weight = torch.randn(n, n, generator=generator) / n**2
    return lorentz.exp_map0(v, c), lorentz.exp_map0(w, c), c, weight


def _gradients(distances, x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
    x, y = (p.detach().requires_grad_() for p in (x, y))
    total = distances(x, y)
    return total.detach(), *torch.autograd.grad((total * weight).sum(), (x, y))


def geoopt_loop(size: str = "full") -> Pair:
    """All 768 x 768 distances over 64 factors with gradients: ours, and geoopt's `Lorentz.dist` factor by factor."""
    from geoopt.manifolds import Lorentz

    x, y, c, weight = _inputs(size)
    manifolds = [Lorentz(k=1 / float(curvature)) for curvature in c]

    def looped(x: Tensor, y: Tensor) -> Tensor:
        whole = [torch.cat([lorentz.time(p, c).unsqueeze(-1), p], dim=-1) for p in (x, y)]
        parts = [m.dist(whole[0][:, None, f], whole[1][None, :, f]) for f, m in enumerate(manifolds)]
        return torch.stack(parts).sum(0)

    return Pair(
        ours=lambda: _gradients(lambda x, y: product_dist(x, y, c), x, y, weight),
        peer=lambda: _gradients(looped, x, y, weight),
        rtol=2e-3,
        atol=1e-5,
    )


def materialised(size: str = "full") -> Pair:
    """The same, and all factors at once in one tensor (64, 768, 768) by einsum, as in the release."""
    x, y, c, weight = _inputs(size)

    def whole(x: Tensor, y: Tensor) -> Tensor:
        product = torch.einsum("ikd,jkd->kij", x, y) - torch.einsum(
            "ik,jk->kij", lorentz.time(x, c), lorentz.time(y, c)
        )
        factor = c[:, None, None]
        return ((-factor * product).clamp(min=1 + lorentz.EPS).acosh() / factor.sqrt()).sum(0)

    return Pair(
        ours=lambda: _gradients(lambda x, y: product_dist(x, y, c), x, y, weight),
        peer=lambda: _gradients(whole, x, y, weight),
        rtol=1e-3,
        atol=1e-5,
    )
