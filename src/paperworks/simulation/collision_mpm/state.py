"""The particles of a simulation, and the background grid."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Grid:
    """A background grid of square cells.

    Args:
        cells: Cells along each axis, at least 4.
        dx: Edge of a cell > 0, in units of length.
        origin: Lowest corner; zeros unless given.
    """

    cells: tuple[int, ...]
    dx: float
    origin: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if len(self.cells) not in (2, 3) or min(self.cells) < 4:
            raise ValueError(f"cells must be two or three numbers >= 4, got {self.cells}")
        if not self.dx > 0:
            raise ValueError(f"dx must be > 0, got {self.dx}")
        if not self.origin:
            object.__setattr__(self, "origin", (0.0,) * len(self.cells))
        elif len(self.origin) != len(self.cells):
            raise ValueError(f"origin must have {len(self.cells)} numbers, got {self.origin}")

    @classmethod
    def unit(cls, cells: int, dim: int) -> "Grid":
        """The unit square or cube in ``cells`` cells a side."""
        return cls((cells,) * dim, 1.0 / cells)

    @classmethod
    def around(cls, low: Sequence[float], high: Sequence[float], cells: int) -> "Grid":
        """A grid over the box from low to high (d numbers each), ``cells`` along its longest side."""
        dx = max(h - a for a, h in zip(low, high, strict=True)) / cells
        return cls(tuple(max(4, round((h - a) / dx)) for a, h in zip(low, high, strict=True)), dx, tuple(low))

    @property
    def dim(self) -> int:
        """2 or 3."""
        return len(self.cells)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes along each axis: one more than cells."""
        return tuple(n + 1 for n in self.cells)


@dataclasses.dataclass(frozen=True)
class State:
    """All particles at one time, body after body.

    Attributes:
        x: Positions (n, d).
        v: Velocities (n, d).
        C: Affine velocity (n, d, d), 1/time.
        F: Elastic deformation gradient (n, d, d).
        alpha: Internal variable of the material (n,).
        mass: Masses (n,).
        volume: Volumes at rest (n,).
        body: Number of the body (n,), int64.
        brittle: Whether the material is one that breaks (`NACC`) (n,), bool.
        rest: Positions at the start (n, d).
        dx: Edge of a cell.
        deformation: Whole deformation gradient, elastic and plastic (n, d, d), where the solver tracks it.
        time: Time since the start.
        clamped: Singular values set to 0.05 so far, by the return mapping of all particles and steps.
        capped: How often a particle has come to the least alpha, -0.48/xi, so far.
    """

    x: Tensor
    v: Tensor
    C: Tensor
    F: Tensor
    alpha: Tensor
    mass: Tensor
    volume: Tensor
    body: Tensor
    brittle: Tensor
    rest: Tensor
    dx: float
    deformation: Tensor | None = None
    time: float = 0.0
    clamped: int = 0
    capped: int = 0

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.x.shape[1]

    def of(self, body: int) -> "State":
        """The particles of one body."""
        rows = self.body == body
        return self.where(rows)

    def where(self, rows: Tensor) -> "State":
        """The particles at which ``rows`` (n,), bool, is true."""
        return dataclasses.replace(
            self,
            **{
                f.name: getattr(self, f.name)[rows]
                for f in dataclasses.fields(self)
                if isinstance(getattr(self, f.name), Tensor)
            },
        )

    def cpu(self) -> "State":
        """The same on the CPU."""
        tensors = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return dataclasses.replace(self, **{k: v.cpu() for k, v in tensors.items() if isinstance(v, Tensor)})

    def to(self, dtype: torch.dtype) -> "State":
        """The same with its floating-point numbers in another type."""
        return dataclasses.replace(
            self,
            **{
                f.name: getattr(self, f.name).to(dtype)
                for f in dataclasses.fields(self)
                if isinstance(getattr(self, f.name), Tensor) and getattr(self, f.name).is_floating_point()
            },
        )
