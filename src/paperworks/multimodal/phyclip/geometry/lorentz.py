"""The Lorentz model (hyperboloid) of hyperbolic space, batched over factors with a curvature each.

A point is stored by its space components x (..., d); its time component is t = sqrt(1/c + |x|^2), so that the Lorentz
inner product <x, x> = |x|^2 - t^2 is -1/c. The curvature is -c, c > 0; c broadcasts over all axes but the last, so for
points (batch, factors, d) it has the shape (factors,).
"""

import math
from typing import TypeAlias

import torch
from torch import Tensor

EPS = 1e-6  # least argument of sinh; least distance of an argument of acosh, acos and asin from the end of its domain
LARGEST = math.asinh(2.0**15)  # largest argument of sinh

Curvature: TypeAlias = Tensor | float


def _root(c: Curvature) -> Tensor | float:
    """sqrt(c), with an axis for the coordinates."""
    return c.sqrt().unsqueeze(-1) if isinstance(c, Tensor) else math.sqrt(c)


def _norm(x: Tensor) -> Tensor:
    """|x| (..., 1), with gradient 0 at 0."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def exp_map0(v: Tensor, c: Curvature = 1.0, eps: float = EPS) -> Tensor:
    """The exponential map at the origin, x = sinh(sqrt(c)|v|) v / (sqrt(c)|v|).

    Args:
        v: Tangent vectors (..., d).
        c: Minus the curvature, of shape (...) or a number.
        eps: Least argument of sinh; the largest is asinh(2^15), beyond which |x| no longer grows.

    Returns:
        Space components (..., d).
    """
    length = _root(c) * _norm(v)
    return length.clamp(eps, LARGEST).sinh() * v / length.clamp(min=eps)


def log_map0(x: Tensor, c: Curvature = 1.0, eps: float = EPS) -> Tensor:
    """The logarithmic map at the origin, the inverse of `exp_map0`.

    Args:
        x: Space components (..., d).
        c: Minus the curvature, of shape (...) or a number.
        eps: Least norm times sqrt(c) that is divided by.

    Returns:
        Tangent vectors (..., d).
    """
    length = _root(c) * _norm(x)
    return length.clamp(min=eps).asinh() * x / length.clamp(min=eps)


def time(x: Tensor, c: Curvature = 1.0) -> Tensor:
    """The time component sqrt(1/c + |x|^2) (...) of points x (..., d)."""
    return (1 / c + x.square().sum(-1)).sqrt()


def inner(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """The Lorentz inner product <x, y> = x . y - t_x t_y (...) of points (..., d); at most -1/c."""
    return (x * y).sum(-1) - time(x, c) * time(y, c)


def dist(x: Tensor, y: Tensor, c: Curvature = 1.0, eps: float = EPS) -> Tensor:
    """The geodesic distance acosh(-c <x, y>) / sqrt(c).

    Args:
        x: Points (..., d).
        y: Points (..., d).
        c: Minus the curvature, of shape (...) or a number.
        eps: Arguments of acosh are raised to 1 + eps: there the gradient is 0 in place of infinity, and a distance is
            never below about sqrt(2 eps / c).

    Returns:
        Distances (...).
    """
    above = _above_one(x, y, c)[0].clamp(min=eps)
    return (above + (above * (above + 2)).sqrt()).log1p() / (c.sqrt() if isinstance(c, Tensor) else math.sqrt(c))


def _above_one(x: Tensor, y: Tensor, c: Curvature) -> tuple[Tensor, Tensor]:
    """-c<x, y> - 1 and t_y - t_x (...), from differences: both are lost to rounding otherwise where x is near y."""
    way = y - x
    later = (way * (y + x)).sum(-1) / (time(x, c) + time(y, c))
    return (c / 2 * (way.square().sum(-1) - later.square())).clamp(min=0), later


def pairwise_inner(x: Tensor, y: Tensor, c: Curvature = 1.0) -> Tensor:
    """<x_i, y_j> (factors, n, m) of points x (n, factors, d) and y (m, factors, d), by one batched matrix product."""
    whole_x = torch.cat([x, -time(x, c).unsqueeze(-1)], dim=-1).transpose(0, 1)
    whole_y = torch.cat([y, time(y, c).unsqueeze(-1)], dim=-1).transpose(0, 1)
    return whole_x @ whole_y.mT


def pairwise_dist(x: Tensor, y: Tensor, c: Curvature = 1.0, eps: float = EPS) -> Tensor:
    """Distances in each factor.

    Args:
        x: Points (n, factors, d).
        y: Points (m, factors, d).
        c: Minus the curvatures (factors,) or a number.
        eps: As in `dist`.

    Returns:
        Distances (factors, n, m): `ProductHyperbolic.dist` adds them up in less memory.
    """
    if isinstance(c, Tensor) and c.dim():
        factor = c[:, None, None]
        return (-factor * pairwise_inner(x, y, c)).clamp(min=1 + eps).acosh() / factor.sqrt()
    return (-c * pairwise_inner(x, y, c)).clamp(min=1 + eps).acosh() / c**0.5


def oxy_angle(x: Tensor, y: Tensor, c: Curvature = 1.0, eps: float = EPS) -> Tensor:
    """The exterior angle at the apex x, pi minus the angle of the triangle (origin, x, y).

        acos((t_y + t_x c<x, y>) / (|x| sqrt((c<x, y>)^2 - 1)))

    Args:
        x: Apexes (..., d), the more general of each pair.
        y: Points (..., d).
        c: Minus the curvature, of shape (...) or a number.
        eps: Arguments of acos keep this distance from -1 and 1.

    Returns:
        Angles (...) in [0, pi]; 0 where x is the origin or x and y are (nearly) one point: there is no angle.
    """
    above, later = _above_one(x, y, c)
    near = above < eps**2
    sinh = torch.where(near, 1.0, above * (above + 2)).sqrt()  # of the distance times sqrt(c)
    below = x.norm(dim=-1) * sinh
    defined = ~near & (below > eps**2)
    cosine = (later - time(x, c) * above) / torch.where(defined, below, 1.0)
    return torch.where(defined, cosine.clamp(-1 + eps, 1 - eps).acos(), 0.0)


def half_aperture(x: Tensor, c: Curvature = 1.0, radius: float = 0.1, eps: float = EPS) -> Tensor:
    """Half the aperture asin(2 r / (sqrt(c) |x|)) of the entailment cone at x.

    Args:
        x: Apexes (..., d).
        c: Minus the curvature, of shape (...) or a number.
        radius: r: apexes with sqrt(c) |x| <= 2 r have a cone of (nearly) half the space.
        eps: The argument of asin keeps this distance from 1.

    Returns:
        Half apertures (...) in (0, pi / 2).
    """
    scale = c.sqrt() if isinstance(c, Tensor) else math.sqrt(c)
    length = (scale * x.norm(dim=-1)).clamp(min=EPS)
    return (2 * radius / length).clamp(max=1 - eps).asin()
