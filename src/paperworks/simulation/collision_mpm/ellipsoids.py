"""The smallest ellipsoid about the overlap of two balls, and the Gaussians of broken particles made of it (FPGO)."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from .gaussians import GaussianCloud


class Lens(NamedTuple):
    """Ellipsoids of revolution.

    Attributes:
        center: Centres (n, d).
        axis: Unit vectors along which they are thin (n, d).
        axial: Semi-axes along ``axis`` (n,).
        radial: Semi-axes across it (n,).
    """

    center: Tensor
    axis: Tensor
    axial: Tensor
    radial: Tensor

    def covariance(self, c: float = 1.0) -> Tensor:
        """R diag(a^2, b^2, ...) R^T / c^2, (n, d, d).

        Args:
            c: Radii in standard deviations.
        """
        along = self.axis[:, :, None] * self.axis[:, None, :]
        eye = torch.eye(self.axis.shape[1], dtype=along.dtype, device=along.device)
        a2, b2 = self.axial.square()[:, None, None], self.radial.square()[:, None, None]
        return (a2 * along + b2 * (eye - along)) / c**2


def mvee_lens(c1: Tensor, r1: Tensor, c2: Tensor, r2: Tensor) -> Lens:
    """Minimum-volume enclosing ellipsoid of the overlap of two balls in space, in closed form, for any radii.

    With the larger ball first, D the distance of the centres, x measured from the larger's centre: the rim of the lens
    has x0 = (D^2 + r1^2 - r2^2) / 2D and radius h, the lens reaches from D - r2 to r1. For an ellipsoid with centre
    m + s (towards the rim) and semi-axes A = l + s and B that meets the far tip and the rim, V ~ A B^2 is least at
    s = (3 k - l) / 4 or at 0. For equal radii: r - D/2 along, sqrt(r^2 - D^2/4) across.

    Args:
        c1: Centres (n, 3).
        r1: Radii (n,) > 0.
        c2: Centres (n, 3), other than c1 unless one ball holds the other.
        r2: Radii (n,) > 0.

    Returns:
        The ellipsoids; the smaller ball itself where it is smallest.

    Raises:
        ValueError: When two balls do not overlap.
    """
    for name, r in (("r1", r1), ("r2", r2)):
        if not bool((r > 0).all()):
            raise ValueError(f"{name} must be > 0 everywhere, got {float(r.min())}")
    step = c2 - c1
    D = step.norm(dim=-1)
    if bool((r1 + r2 <= D).any()):
        raise ValueError(f"{int((r1 + r2 <= D).sum())} pairs of balls do not overlap: leave them out")
    first = r1 >= r2
    big, small = torch.maximum(r1, r2), torch.minimum(r1, r2)
    far = torch.where(D > 0, D, 1.0)
    unit = torch.zeros_like(step)
    unit[..., 0] = 1.0
    unit = torch.where((D > 0)[:, None], step / far[:, None], unit)
    x0 = (far.square() + big.square() - small.square()) / (2 * far)
    # More than two thirds of the smaller ball's axis lie within the larger: no ellipsoid is smaller than that ball.
    ball = (big - small >= D) | (x0 - D >= small / 3)
    h2 = (big.square() - x0.square()).clamp(min=0)
    left, right = D - small, big
    half, middle = (right - left) / 2, (left + right) / 2
    k = (x0 - middle).abs()
    s = ((3 * k - half) / 4).clamp(min=0)
    axial = half + s
    radial = (h2 / (1 - ((k - s) / axial).square()).clamp(min=torch.finfo(h2.dtype).eps)).sqrt()
    along = middle + s * torch.sign(x0 - middle)
    axial, radial = torch.where(ball, small, axial), torch.where(ball, small, radial)
    along = torch.where(ball, D, along)
    # `along` counts from the larger ball's centre towards the smaller's.
    center = torch.where(first[:, None], c1 + along[:, None] * unit, c2 - along[:, None] * unit)
    return Lens(center, unit, axial, radial)


def fracture_gaussians(
    means: Tensor,
    radii: Tensor,
    fractured: Tensor,
    d_c: float,
    *,
    colors: Tensor | None = None,
    opacities: Tensor | None = None,
    c: float = 1.0,
    neighbours: int = 2,
) -> GaussianCloud:
    """Replace the Gaussian of each broken particle by ellipsoids about its overlaps with intact neighbours (FPGO).

    Args:
        means: Centres (n, 3).
        radii: Radii (n,) of the balls, c standard deviations.
        fractured: Whether a particle has broken (n,), bool.
        d_c: Distance > 0 within which intact neighbours are looked for.
        colors: RGB in [0, 1] (n, 3); grey unless given. New Gaussians inherit them.
        opacities: In (0, 1) (n,); 0.95 unless given. New Gaussians inherit them.
        c: Radii in standard deviations > 0.
        neighbours: Ellipsoids per broken particle at most, nearest overlapping neighbours first; the paper has 2.

    Returns:
        The intact Gaussians, then those of broken particles without an overlap, both as they were, then the new ones,
        which are flagged as ``crack``.
    """
    n = len(means)
    for name, value, shape in (("means", means, (n, 3)), ("radii", radii, (n,)), ("fractured", fractured, (n,))):
        if tuple(value.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}")
    if not d_c > 0:
        raise ValueError(f"d_c must be > 0, got {d_c}")
    if not c > 0:
        raise ValueError(f"c must be > 0, got {c}")
    if neighbours < 1:
        raise ValueError(f"neighbours must be >= 1, got {neighbours}")
    every = GaussianCloud.isotropic(means, radii / c, colors=colors, opacities=opacities)
    broken, intact = torch.nonzero(fractured).squeeze(1), torch.nonzero(~fractured).squeeze(1)
    if not len(broken) or not len(intact):
        return every
    tree = cKDTree(means[intact].detach().cpu().numpy())
    # An overlapping one may be farther than one that is not, where radii differ.
    near = tree.query_ball_point(means[broken].detach().cpu().numpy(), d_c)
    counts = np.array([len(hits) for hits in near])
    i = broken[torch.from_numpy(np.repeat(np.arange(len(broken)), counts)).to(means.device)]
    j = intact[torch.from_numpy(np.array([q for hits in near for q in hits], dtype=np.int64)).to(means.device)]
    D = (means[i] - means[j]).norm(dim=1)
    keep = radii[i] + radii[j] > D
    i, j, D = i[keep], j[keep], D[keep]
    order = torch.argsort(D, stable=True)
    order = order[torch.argsort(i[order], stable=True)]  # by particle, nearest first
    i, j = i[order], j[order]
    starts = torch.searchsorted(i, i)
    first = torch.arange(len(i), device=i.device) - starts < neighbours
    i, j = i[first], j[first]
    lens = mvee_lens(means[i], radii[i], means[j], radii[j])
    new = GaussianCloud.ellipsoids(lens.center, lens.axis, lens.axial / c, lens.radial / c, crack=True)
    new = new.like(every, i)
    kept = ~fractured
    alone = fractured.clone()
    alone[i] = False
    return every.where(kept).join(every.where(alone)).join(new)
