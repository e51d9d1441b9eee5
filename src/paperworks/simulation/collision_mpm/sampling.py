"""Particles within a shape: a signed distance, a triangle mesh or the Utah teapot."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import trimesh


class Sample(NamedTuple):
    """Particles of a body.

    Attributes:
        points: Positions (n, d), float64.
        volume: Volume of each, the same for all.
    """

    points: Tensor
    volume: float


def lattice(
    low: Sequence[float],
    high: Sequence[float],
    spacing: float,
    *,
    jitter: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Centres of the square cells of a box, moved at random.

    Args:
        low: Lowest corner (d numbers).
        high: Highest corner (d numbers).
        spacing: Edge of a cell > 0.
        jitter: Largest displacement on each axis, in spacings, in [0, 0.5].
        generator: Source of chance; torch's own unless given.

    Returns:
        Points (n, d), float64.
    """
    if not spacing > 0:
        raise ValueError(f"spacing must be > 0, got {spacing}")
    if not 0 <= jitter <= 0.5:
        raise ValueError(f"jitter must lie in [0, 0.5] spacings, got {jitter}")
    axes = []
    for a, b in zip(low, high, strict=True):
        count = max(1, round((b - a) / spacing))
        axes.append(a + (torch.arange(count, dtype=torch.float64) + 0.5) * spacing)
    points = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)
    return points + spacing * jitter * (2 * torch.rand(points.shape, dtype=torch.float64, generator=generator) - 1)


def sample_sdf(
    sdf: Callable[[Tensor], Tensor],
    n: int,
    *,
    low: Sequence[float] = (0.0, 0.0, 0.0),
    high: Sequence[float] = (1.0, 1.0, 1.0),
    jitter: float = 0.25,
    generator: torch.Generator | None = None,
) -> Sample:
    """About n particles, evenly spaced, where a signed distance is <= 0.

    Args:
        sdf: Maps points (m, d) to signed distances (m,), or anything that is <= 0 within the shape.
        n: Particles wanted >= 1; the number found differs by what the surface cuts off.
        low: Lowest corner of a box about the shape (d numbers).
        high: Highest corner (d numbers).
        jitter: See `lattice`.
        generator: Source of chance.

    Raises:
        ValueError: When nothing of the shape lies in the box.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, got {n}")
    size = np.prod([b - a for a, b in zip(low, high, strict=True)])
    probe = lattice(low, high, float((size / 4096) ** (1 / len(low))))
    share = float((sdf(probe) <= 0).double().mean())
    if share == 0:
        raise ValueError(f"sdf is > 0 everywhere in the box from {tuple(low)} to {tuple(high)}")
    spacing = float((size * share / n) ** (1 / len(low)))
    points = lattice(low, high, spacing, jitter=jitter, generator=generator)
    points = points[sdf(points) <= 0]
    if not len(points):
        raise ValueError(f"n = {n} particles are too few for this shape in the box given")
    return Sample(points, spacing ** len(low))


def winding_number(points: Tensor, triangles: Tensor, *, chunk: int = 2_000_000) -> Tensor:
    """How often a mesh winds about points: 1 within, 0 without, in between where the mesh has holes.

    Args:
        points: (n, 3).
        triangles: Corners (m, 3, 3), facing outwards.
        chunk: Pairs of point and triangle at a time.

    Returns:
        (n,): the sum of solid angles over 4 pi.
    """
    found = []
    for part in points.split(max(1, chunk // len(triangles))):
        r = triangles[None] - part[:, None, None, :]
        length = r.norm(dim=-1)
        a, b, c = r.unbind(2)
        la, lb, lc = length.unbind(2)
        volume = (a * torch.linalg.cross(b, c)).sum(-1)
        below = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
        found.append(2 * torch.atan2(volume, below).sum(1))
    return torch.cat(found) / (4 * torch.pi)


def sample_mesh(
    mesh: "trimesh.Trimesh", n: int, *, jitter: float = 0.25, generator: torch.Generator | None = None
) -> Sample:
    """About n particles, evenly spaced, within a triangle mesh; small holes do no harm.

    Args:
        mesh: Anything with ``vertices`` and ``faces``, such as a ``trimesh.Trimesh``.
        n: Particles wanted.
        jitter: See `lattice`.
        generator: Source of chance.
    """
    vertices = torch.as_tensor(np.asarray(mesh.vertices), dtype=torch.float64)
    faces = torch.as_tensor(np.asarray(mesh.faces), dtype=torch.int64)
    triangles = vertices[faces]

    def inside(points: Tensor) -> Tensor:
        return 0.5 - winding_number(points, triangles).abs()

    low, high = vertices.min(0).values, vertices.max(0).values
    return sample_sdf(inside, n, low=low.tolist(), high=high.tolist(), jitter=jitter, generator=generator)
