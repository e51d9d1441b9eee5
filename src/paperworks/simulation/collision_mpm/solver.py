"""The solver: bodies of particles on a grid, with a contact model, on one of two backends."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from .contact import ContactModel, InterfaceForce
from .materials import Material
from .state import Grid, State

Walls = Literal["sticky", "slip", "separate"] | None


class MPMSolver:
    """MLS-MPM with quadratic B-splines, several bodies and Collision-MPM's interface force.

    A step: particles to one grid per body, gravity, contact, walls, grid to particles, F <- (I + dt C) F, return map.

    Args:
        grid: A `Grid`, or the number of cells along each side of the unit square or cube.
        dt: Length of a step > 0; ``None`` for 0.3 dx / (c + |v|max), c the speed of sound of the stiffest body, anew
            before every call of `step`.
        backend: "warp" (compiled, CPU or GPU) or "torch" (plain; gradients flow through it for elastic materials).
        dim: 2 (plane strain) or 3.
        contact: `InterfaceForce` or `SingleField`.
        gravity: Acceleration, d numbers; none unless given.
        transfer: "apic" or "flip".
        flip: With "flip", the share of FLIP in a blend with PIC, in [0, 1].
        walls: At the outermost nodes: "sticky", "slip", "separate" (bodies may leave the wall), or ``None`` for no
            walls. Momentum is conserved without walls only.
        margin: Nodes from the edge of the grid that are wall.
        track: Keep the whole deformation gradient too, plastic flow included (`State.deformation`).
        dtype: ``torch.float64`` or ``torch.float32``.
        device: "cpu" or a CUDA device such as "cuda:0".

    Raises:
        ValueError: When an argument has no meaning, the message saying what is allowed.
    """

    def __init__(
        self,
        grid: Grid | int,
        dt: float | None = None,
        backend: Literal["warp", "torch"] = "warp",
        dim: int = 2,
        *,
        contact: ContactModel | None = None,
        gravity: Sequence[float] | None = None,
        transfer: Literal["apic", "flip"] = "apic",
        flip: float = 0.7,
        walls: Walls = None,
        margin: int = 3,
        track: bool = False,
        dtype: torch.dtype = torch.float64,
        device: str = "cpu",
    ) -> None:
        if dim not in (2, 3):
            raise ValueError(f"dim must be 2 or 3, got {dim}")
        self.grid = Grid.unit(grid, dim) if isinstance(grid, int) else grid
        if self.grid.dim != dim:
            raise ValueError(f"grid has {self.grid.dim} axes, but dim is {dim}")
        if dt is not None and not (dt > 0 and math.isfinite(dt)):
            raise ValueError(f"dt must be > 0 or None, got {dt}")
        if backend not in ("warp", "torch"):
            raise ValueError(f"backend must be 'warp' or 'torch', got {backend!r}")
        if transfer not in ("apic", "flip"):
            raise ValueError(f"transfer must be 'apic' or 'flip', got {transfer!r}")
        if not 0 <= flip <= 1:
            raise ValueError(f"flip must lie in [0, 1], got {flip}")
        if walls not in (None, "sticky", "slip", "separate"):
            raise ValueError(f"walls must be None, 'sticky', 'slip' or 'separate', got {walls!r}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        pull = tuple(gravity) if gravity is not None else (0.0,) * dim
        if len(pull) != dim:
            raise ValueError(f"gravity must have {dim} numbers, got {pull}")
        self.dt, self.backend, self.dtype, self.device, self.track = dt, backend, dtype, device, track
        self.contact = InterfaceForce() if contact is None else contact
        self.gravity = pull
        settings = (self.grid, self.contact, pull, transfer, flip, walls, margin, dtype, device)
        self._engine: Any
        if backend == "warp":
            from .warp_backend import WarpBackend

            self._engine = WarpBackend(*settings)
        else:
            from .torch_backend import TorchBackend

            self._engine = TorchBackend(*settings)
        self.materials: list[Material] = []
        self.names: list[str] = []
        self.time = 0.0
        self._new: list[dict[str, Tensor]] = []
        self._loaded = False

    @property
    def dim(self) -> int:
        """2 or 3."""
        return self.grid.dim

    def add_body(
        self,
        particles: Tensor,
        material: Material,
        velocity: Tensor | Sequence[float] | None = None,
        *,
        volume: float | Tensor | None = None,
        name: str = "",
    ) -> int:
        """Add a body at rest shape.

        Args:
            particles: Positions (n, d), within the grid and half a cell away from its edge.
            material: What it is made of.
            velocity: Velocity of all its particles (d,), or of each (n, d); zero unless given.
            volume: Volume of a particle, or of each (n,); (dx / 2)^d unless given, which is 2^d particles a cell.
            name: For messages; "body 0" and so on unless given.

        Returns:
            The body's number, from 0.
        """
        number = len(self.materials)
        name = name or f"body {number}"
        if self._loaded:
            raise RuntimeError(f"{name} must be added before the first step")
        x = torch.as_tensor(particles).to(dtype=self.dtype, device=self.device)
        if x.ndim != 2 or x.shape[1] != self.dim or not len(x):
            raise ValueError(f"{name}: particles must have shape (n, {self.dim}) with n > 0, got {tuple(x.shape)}")
        kwargs = {"dtype": self.dtype, "device": self.device}
        v = torch.zeros(self.dim, **kwargs) if velocity is None else torch.as_tensor(velocity).to(**kwargs)
        if v.shape not in (x.shape, (self.dim,)):
            raise ValueError(
                f"{name}: velocity must have shape ({self.dim},) or {tuple(x.shape)}, got {tuple(v.shape)}"
            )
        V = torch.as_tensor((self.grid.dx / 2) ** self.dim if volume is None else volume).to(**kwargs)
        if V.shape not in ((), x.shape[:1]) or not bool((V > 0).all()):
            raise ValueError(f"{name}: volume must be > 0, one number or {len(x)} of them")
        cells = (x - torch.tensor(self.grid.origin, **kwargs)) / self.grid.dx
        last = torch.tensor(self.grid.cells, **kwargs) - 0.5
        if not bool(((cells >= 0.5) & (cells < last)).all()):
            raise ValueError(f"{name}: particles must lie within the grid, half a cell away from its edge")
        V = V.expand(len(x))
        self._new.append(
            {
                "x": x,
                "v": v.expand_as(x),
                "C": torch.zeros(len(x), self.dim, self.dim, **kwargs),
                "F": torch.eye(self.dim, **kwargs).repeat(len(x), 1, 1),
                "alpha": torch.full((len(x),), material.initial_alpha, **kwargs),
                "mass": material.rho * V,
                "volume": V,
                **({"deformation": torch.eye(self.dim, **kwargs).repeat(len(x), 1, 1)} if self.track else {}),
            }
        )
        self.materials.append(material)
        self.names.append(name)
        return number

    def _load(self) -> None:
        if self._loaded:
            return
        if not self._new:
            raise RuntimeError("the solver has no body: call add_body first")
        particles = {key: torch.cat([body[key] for body in self._new]) for key in self._new[0]}
        counts = torch.tensor([len(body["x"]) for body in self._new], device=self.device)
        self._body = torch.repeat_interleave(torch.arange(len(counts), device=self.device), counts)
        self._rest = particles["x"].detach().clone()
        brittle = torch.tensor([m.brittle for m in self.materials], device=self.device)
        self._brittle = brittle[self._body]
        self._engine.load(particles, self._body, self.materials)
        self._loaded = True

    def stable_dt(self) -> float:
        """0.3 dx / (c + |v|max), c the speed of sound of the stiffest body."""
        self._load()
        speed = float(self._engine.read()["v"].detach().norm(dim=1).max())
        return 0.3 * self.grid.dx / (max(m.sound_speed for m in self.materials) + speed)

    def step(self, n: int = 1) -> None:
        """Advance by n steps.

        Args:
            n: Number of steps >= 0.

        Raises:
            RuntimeError: When particles leave the grid or a velocity is not finite; the message names the body.
        """
        self._load()
        dt = self.dt if self.dt is not None else self.stable_dt()
        failed: tuple[int, str] | None = None
        if self.backend == "warp":
            failed = self._engine.steps(n, dt)
        else:
            for _ in range(n):
                failed = self._engine.step(dt)
                if failed:
                    break
        if failed:
            raise RuntimeError(
                f"{self.names[failed[0]]} {failed[1]} before t = {self.time + n * dt:.6g}: take a larger grid or "
                f"walls, or a smaller dt than {dt:.3g}"
            )
        self.time += n * dt

    def run(self, time: float, *, every: int = 0) -> "list[State]":
        """Advance until ``time``, by steps of at most dt that end there.

        Args:
            time: Time to reach.
            every: Also keep a state every so many steps; 0 for the last only.

        Returns:
            The states kept, the last one at ``time``.
        """
        self._load()
        limit = self.dt if self.dt is not None else self.stable_dt()
        steps = max(1, math.ceil((time - self.time) / limit - 1e-9))
        kept, given = [], self.dt
        self.dt = (time - self.time) / steps
        try:
            done = 0
            while done < steps:
                now = min(every or steps, steps - done)
                self.step(now)
                done += now
                kept.append(self.state())
        finally:
            self.dt = given
        return kept

    def state(self) -> State:
        """All particles as they are now; copies for "warp", in the graph of autograd for "torch"."""
        self._load()
        return State(
            **self._engine.read(),
            body=self._body,
            brittle=self._brittle,
            rest=self._rest,
            dx=self.grid.dx,
            time=self.time,
            clamped=self._engine.clamped,
            capped=self._engine.capped,
        )

    def energy(self) -> dict[str, float]:
        """Kinetic, elastic and potential energy and their sum.

        The kinetic part counts the affine motion within a particle's cell, m dx^2 |C|^2 / 8, which APIC carries.
        """
        state = self.state()
        square = state.v.square().sum(1) + state.dx**2 / 4 * state.C.square().sum((1, 2))
        kinetic = float((state.mass * square).sum() / 2)
        elastic = 0.0
        for number, material in enumerate(self.materials):
            body = state.of(number)
            elastic += float((body.volume * material.energy(body.F, body.alpha)).sum())
        pull = torch.tensor(self.gravity, dtype=state.x.dtype, device=state.x.device)
        potential = -float((state.mass * (state.x @ pull)).sum())
        return {
            "kinetic": kinetic,
            "elastic": elastic,
            "potential": potential,
            "total": kinetic + elastic + potential,
        }
