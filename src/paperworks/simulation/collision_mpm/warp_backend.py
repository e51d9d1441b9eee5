"""The step in Warp, on CPU or GPU: recorded launches of the kernels, replayed."""

from collections.abc import Sequence
from typing import Any

import torch
import warp as wp
from torch import Tensor

from .contact import ContactModel, InterfaceForce
from .kernels import BROKEN, CAPPED, CRUSHED, LEFT, kernels, start
from .materials import Material
from .state import Grid

WALLS = (None, "sticky", "slip", "separate")


class WarpBackend:
    """State on Warp arrays; see `MPMSolver` for what the arguments mean."""

    def __init__(
        self,
        grid: Grid,
        contact: ContactModel,
        gravity: Sequence[float],
        transfer: str,
        flip: float,
        walls: str | None,
        margin: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        self.grid, self.contact, self.gravity = grid, contact, tuple(gravity)
        self.affine, self.flip = float(transfer == "apic"), float(flip)
        self.wall, self.margin = WALLS.index(walls), margin
        self.scalar = {torch.float32: wp.float32, torch.float64: wp.float64}[dtype]
        start()
        self.device = wp.get_device(device)
        self.kernels = kernels(grid.dim, self.scalar, bool(self.device.is_cpu))
        self._launches: tuple[float, list[Any]] | None = None

    def load(self, particles: dict[str, Tensor], body: Tensor, materials: Sequence[Material]) -> None:
        """Take over all particles."""
        k, grid = self.kernels, self.grid
        types = {"x": k.vec, "v": k.vec, "C": k.mat, "F": k.mat, "deformation": k.mat}
        self.particles = {
            name: wp.clone(wp.from_torch(value.detach().contiguous(), dtype=types.get(name, self.scalar)))
            for name, value in particles.items()
        }
        self.body = wp.clone(wp.from_torch(body.int().contiguous()))
        separate = isinstance(self.contact, InterfaceForce) and len(materials) > 1
        fields = range(len(materials)) if self.contact.separate else [0] * len(materials)
        self.field = wp.array(list(fields), dtype=wp.int32, device=self.device)
        self.kind = wp.array([m.kind for m in materials], dtype=wp.int32, device=self.device)
        numbers = [[min(value, 1e30) for value in m.parameters()] for m in materials]
        self.parameter = wp.array(numbers, dtype=self.scalar, ndim=2, device=self.device)
        self.tracked = int("deformation" in self.particles)
        self.total = self.particles.get("deformation", wp.zeros(1, dtype=k.mat, device=self.device))
        nodes = 1
        for n in grid.nodes:
            nodes *= n
        count = max(fields) + 1

        def field(wanted: bool, dtype: Any) -> Any:
            return wp.zeros((count, nodes if wanted else 1), dtype=dtype, device=self.device)

        gated = isinstance(self.contact, InterfaceForce) and self.contact.gate is not None
        self.separate, self.gated = int(separate), int(gated and separate)
        self.fields = [
            field(True, self.scalar),
            field(True, k.vec),
            field(self.affine == 0, k.vec),
            field(separate, k.vec),
            field(bool(self.gated), k.vec),
        ]
        self.counters = wp.zeros(4, dtype=wp.int32, device=self.device)
        self._launches = None

    def read(self) -> dict[str, Tensor]:
        """Copies of the tensors as they are now."""
        return {name: wp.to_torch(value).clone() for name, value in self.particles.items()}

    def _record(self, dt: float) -> list[Any]:
        k, q, s = self.kernels, self.particles, self.scalar
        shape, origin = k.ivec(*self.grid.nodes), k.vec(*self.grid.origin)
        n, nodes = len(self.body), self.fields[0].shape[1]
        contact = self.contact if isinstance(self.contact, InterfaceForce) else InterfaceForce(mu=0.0)
        place = [shape, origin, s(self.grid.dx), s(dt), s(self.affine)]
        bodies = [self.body, self.kind, self.parameter, self.field]
        moved = [q["x"], q["v"], q["C"], q["F"]]
        gate = s(-1.0 if contact.gate is None else contact.gate)
        laws = [self.separate, s(contact.mu), s(contact.friction), gate, int(contact.printed), self.wall, self.margin]
        velocities = [self.fields[1], self.fields[2], self.counters]
        flags = [self.separate, self.gated]
        common = {"device": self.device, "record_cmd": True}
        return [
            wp.launch(
                k.p2g,
                n,
                [*moved, q["mass"], q["volume"], *bodies, *place, *flags, *self.fields, self.counters],
                **common,
            ),
            wp.launch(
                k.update,
                nodes,
                [*self.fields, shape, k.vec(*self.gravity), s(dt), s(self.affine), *laws],
                **common,
            ),
            wp.launch(
                k.g2p,
                n,
                [*moved, q["alpha"], self.total, self.tracked, *bodies, *place, s(self.flip), *velocities],
                **common,
            ),
        ]

    def steps(self, n: int, dt: float) -> tuple[int, str] | None:
        """N steps of length dt; returns the body that failed and how, or None."""
        if self._launches is None or self._launches[0] != dt:
            self._launches = (dt, self._record(dt))
        used = [f for f in self.fields if f.shape[1] > 1]
        for _ in range(n):
            for field in used:
                field.zero_()
            for launch in self._launches[1]:
                launch.launch()
        found = self.counters.numpy()
        if found[BROKEN]:
            return int(found[BROKEN]) - 1, "has a velocity that is not finite"
        if found[LEFT]:
            return int(found[LEFT]) - 1, "left the grid"
        return None

    @property
    def clamped(self) -> int:
        """Particles whose stretch was clamped, over all steps."""
        return int(self.counters.numpy()[CRUSHED])

    @property
    def capped(self) -> int:
        """Particles whose alpha was capped, over all steps."""
        return int(self.counters.numpy()[CAPPED])
