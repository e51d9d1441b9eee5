"""The step in plain torch: the reference, and differentiable for elastic materials.

Nothing is written in place, so that gradients reach the initial positions, velocities and deformations.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from .contact import ContactModel, InterfaceForce, resolve
from .materials import LARGEST_HARDENING, Material, clamp_stretch
from .state import Grid


def bspline(fx: Tensor) -> tuple[Tensor, Tensor]:
    """Quadratic B-spline weights of the three nodes on each axis, and their derivatives.

    Args:
        fx: Distance from the first node, in cells, (n, d), in [0.5, 1.5).

    Returns:
        Weights (n, 3, d) and their derivatives by fx (n, 3, d).
    """
    w = torch.stack([0.5 * (1.5 - fx).square(), 0.75 - (fx - 1).square(), 0.5 * (fx - 0.5).square()], 1)
    return w, torch.stack([fx - 1.5, -2 * (fx - 1), fx - 0.5], 1)


class TorchBackend:
    """State on torch tensors; see `MPMSolver` for what the arguments mean."""

    x: Tensor
    v: Tensor
    C: Tensor
    F: Tensor
    alpha: Tensor
    mass: Tensor
    volume: Tensor
    deformation: Tensor

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
        self.grid, self.contact = grid, contact
        self.flip = flip if transfer == "flip" else None
        self.walls, self.margin = walls, margin
        self.gravity = torch.tensor(gravity, dtype=dtype, device=device)
        self.origin = torch.tensor(grid.origin, dtype=dtype, device=device)
        self.shape = torch.tensor(grid.nodes, device=device)
        self.clamped = self.capped = 0

    def load(self, particles: dict[str, Tensor], body: Tensor, materials: Sequence[Material]) -> None:
        """Take over all particles."""
        self.names = tuple(particles)
        self.__dict__.update(particles)
        self.body, self.materials = body, list(materials)
        self.rows = [torch.nonzero(body == b).squeeze(1) for b in range(len(materials))]

    def read(self) -> dict[str, Tensor]:
        """The tensors as they are now."""
        return {name: getattr(self, name) for name in self.names}

    def step(self, dt: float) -> tuple[int, str] | None:
        """One step of length dt; returns the body that failed and how, or None."""
        dx, dim = self.grid.dx, self.grid.dim
        X = (self.x - self.origin) / dx
        base = torch.floor(X.detach() - 0.5).long()
        outside = ((base < 0) | (base + 3 > self.shape)).any(1)
        if bool(outside.any()):
            return int(self.body[outside][0]), "left the grid"
        w, g = bspline(X - base)
        count = len(self.materials) if self.contact.separate else 1
        nodes = int(self.shape.prod())
        strides = [int(self.shape[a + 1 :].prod()) for a in range(dim)]
        first = sum(base[:, a] * strides[a] for a in range(dim))
        if self.contact.separate:
            first = first + self.body * nodes

        pull = torch.empty_like(self.F)
        tau = torch.zeros_like(pull)
        for b, material in enumerate(self.materials):
            tau = tau.index_add(0, self.rows[b], material.stress(self.F[self.rows[b]], self.alpha[self.rows[b]]))
        push = self.mass[:, None] * self.v
        carry = -4 * dt / dx * self.volume[:, None, None] * tau
        if self.flip is None:
            carry = carry + dx * self.mass[:, None, None] * self.C
        columns: list[list[Tensor]] = []  # at each of the 3^d nodes: index, weight, offset, gradient
        for corner in itertools.product(range(3), repeat=dim):
            weight = torch.stack([w[:, corner[a], a] for a in range(dim)]).prod(0)
            slope = torch.stack(
                [
                    torch.stack([(g if a == axis else w)[:, corner[a], a] for a in range(dim)]).prod(0)
                    for axis in range(dim)
                ],
                1,
            )
            r = torch.tensor(corner, dtype=X.dtype, device=X.device) - (X - base)
            index = first + sum(corner[a] * strides[a] for a in range(dim))
            columns.append([index, weight, r, slope])
        index = torch.cat([c[0] for c in columns])

        def scatter(parts: list[Tensor]) -> Tensor:
            values = torch.cat(parts)
            total = torch.zeros((count * nodes, *values.shape[1:]), dtype=values.dtype, device=values.device)
            return total.index_add(0, index, values).unflatten(0, (count, nodes))

        mass = scatter([weight * self.mass for _, weight, _, _ in columns])
        momentum = scatter(
            [weight[:, None] * (push + (carry @ r[:, :, None]).squeeze(2)) for _, weight, r, _ in columns]
        )
        full = mass > 0
        divisor = torch.where(full, mass, 1.0)[..., None]
        velocity = momentum / divisor + torch.where(full[..., None], dt * self.gravity, 0.0)
        before = None
        if self.flip is not None:
            before = scatter([weight[:, None] * push for _, weight, _, _ in columns]) / divisor
        if isinstance(self.contact, InterfaceForce) and count > 1:
            gradient = scatter([self.mass[:, None] * slope for _, _, _, slope in columns])
            centre = None
            if self.contact.gate is not None:
                centre = scatter([-(weight * self.mass)[:, None] * r for _, weight, r, _ in columns]) / divisor
            velocity = resolve(velocity, mass, gradient, self.contact, centre)
        velocity = self._bounded(velocity).flatten(0, 1)

        mean = sum(weight[:, None] * velocity[i] for i, weight, _, _ in columns)
        grad = (
            4 / dx * sum(weight[:, None, None] * velocity[i][:, :, None] * r[:, None, :] for i, weight, r, _ in columns)
        )
        if before is None:
            v = mean
        else:
            old = before.flatten(0, 1)
            v = self.v + mean - sum(weight[:, None] * old[i] for i, weight, _, _ in columns)
            v = self.flip * v + (1 - self.flip) * mean  # type: ignore[operator]
        self.v, self.C, self.x = v, grad, self.x + dt * mean
        broken = ~torch.isfinite(self.x).all(1) | ~torch.isfinite(self.v).all(1)
        if bool(broken.any()):
            return int(self.body[broken][0]), "has a velocity that is not finite"
        trial = self.F + dt * grad @ self.F
        if "deformation" in self.names:
            self.deformation = self.deformation + dt * grad @ self.deformation
        F, alpha = torch.zeros_like(trial), torch.zeros_like(self.alpha)
        for b, material in enumerate(self.materials):
            rows = self.rows[b]
            clipped, changed = clamp_stretch(trial[rows])
            self.clamped += int(changed.sum())
            mapped, risen = material.return_map(clipped, self.alpha[rows])
            if material.brittle:
                least = -LARGEST_HARDENING / material.parameters()[5]
                self.capped += int(((risen <= least) & (self.alpha[rows] > least)).sum())
            F, alpha = F.index_add(0, rows, mapped), alpha.index_add(0, rows, risen)
        self.F, self.alpha = F, alpha
        return None

    def _bounded(self, velocity: Tensor) -> Tensor:
        if self.walls is None:
            return velocity
        cells = torch.stack(
            torch.meshgrid(*(torch.arange(n, device=velocity.device) for n in self.grid.nodes), indexing="ij"), -1
        ).flatten(0, -2)
        low, high = cells < self.margin, cells >= self.shape - self.margin
        if self.walls == "sticky":
            return torch.where((low | high).any(1)[None, :, None], 0.0, velocity)
        stopped = low | high
        if self.walls == "separate":
            stopped = (low & (velocity < 0)) | (high & (velocity > 0))
        return torch.where(stopped, 0.0, velocity)
