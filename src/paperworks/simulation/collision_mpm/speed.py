"""Ours beside a peer on the same inputs: times are compared after the results."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperworks.claims.speed import Pair

from .contact import ContactModel, InterfaceForce, SingleField
from .ellipsoids import fracture_gaussians, mvee_lens
from .gaussians import GaussianCloud
from .materials import NeoHookean
from .sampling import lattice
from .solver import MPMSolver
from .splatting import Camera, render


def _bodies(cells: int) -> list[Tensor]:
    """Two blocks side by side, jittered, four particles a cell."""
    generator = torch.Generator().manual_seed(0)
    boxes = (((0.2, 0.3), (0.5, 0.7)), ((0.5, 0.3), (0.8, 0.7)))
    return [lattice(low, high, 0.5 / cells, jitter=0.25, generator=generator) for low, high in boxes]


def _solver(cells: int, contact: ContactModel, velocities: Any, dt: float) -> MPMSolver:
    solver = MPMSolver(cells, dt, contact=contact)
    for x, v in zip(_bodies(cells), velocities, strict=True):
        solver.add_body(x, NeoHookean(1e4, 0.3), v)
    solver.step(0)
    return solver


def _taichi(x0: np.ndarray, v0: np.ndarray, cells: int, dt: float, E: float, nu: float) -> Any:
    """The 99-line solver's scheme (MLS-MPM, quadratic B-splines, APIC, one field), with our material, in float64."""
    import taichi as ti

    ti.init(arch=ti.cpu, cpu_max_num_threads=1, default_fp=ti.f64, log_level=ti.ERROR, offline_cache=True)
    n, nodes, inv_dx = len(x0), cells + 1, float(cells)
    volume = mass = (0.5 / cells) ** 2
    mu, lam = E / (2 * (1 + nu)), E * nu / ((1 + nu) * (1 - 2 * nu))
    x, v = (ti.Vector.field(2, ti.f64, n) for _ in range(2))
    C, F = (ti.Matrix.field(2, 2, ti.f64, n) for _ in range(2))
    grid_v, grid_m = ti.Vector.field(2, ti.f64, (nodes, nodes)), ti.field(ti.f64, (nodes, nodes))
    x.from_numpy(x0)
    v.from_numpy(v0)
    F.from_numpy(np.tile(np.eye(2), (n, 1, 1)))
    C.fill(0)

    @ti.kernel
    def substep():
        for i, j in grid_m:
            grid_v[i, j] = [0.0, 0.0]
            grid_m[i, j] = 0.0
        for p in x:
            base = (x[p] * inv_dx - 0.5).cast(int)
            fx = x[p] * inv_dx - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            logJ = ti.log(F[p].determinant())
            tau = mu * (F[p] @ F[p].transpose()) + ti.Matrix.identity(ti.f64, 2) * (lam * logJ - mu)
            affine = mass * C[p] - (4 * dt * volume * inv_dx * inv_dx) * tau
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                dpos = (offset.cast(float) - fx) / inv_dx
                weight = w[i][0] * w[j][1]
                grid_v[base + offset] += weight * (mass * v[p] + affine @ dpos)
                grid_m[base + offset] += weight * mass
        for i, j in grid_m:
            if grid_m[i, j] > 0:
                grid_v[i, j] /= grid_m[i, j]
        for p in x:
            base = (x[p] * inv_dx - 0.5).cast(int)
            fx = x[p] * inv_dx - base.cast(float)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector.zero(ti.f64, 2)
            new_C = ti.Matrix.zero(ti.f64, 2, 2)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                g_v = grid_v[base + offset]
                weight = w[i][0] * w[j][1]
                new_v += weight * g_v
                new_C += 4 * inv_dx * weight * g_v.outer_product(offset.cast(float) - fx)
            v[p], C[p] = new_v, new_C
            x[p] += dt * new_v
            F[p] = (ti.Matrix.identity(ti.f64, 2) + dt * new_C) @ F[p]

    def run(steps: int) -> np.ndarray:
        for _ in range(steps):
            substep()
        return x.to_numpy()

    return run


def step(size: str = "full") -> Pair:
    """Steps of one velocity field in the plane: ours on one CPU thread, and taichi's 99-line scheme on one."""
    cells, steps = (64, 200) if size == "full" else (16, 5)
    dt = 0.1 / cells / 116
    velocities = ((1.0, 0.5), (-1.0, 0.0))
    solver = _solver(cells, SingleField(), velocities, dt)
    bodies = _bodies(cells)
    v0 = np.concatenate([np.tile(v, (len(x), 1)) for x, v in zip(bodies, velocities, strict=True)])
    peer = _taichi(torch.cat(bodies).numpy(), v0, cells, dt, 1e4, 0.3)

    def ours() -> Tensor:
        solver.step(steps)
        return solver.state().x

    return Pair(ours=ours, peer=lambda: peer(steps), rtol=1e-9, atol=1e-9)


def contact(size: str = "full") -> Pair:
    """Steps with the interface force between two bodies, and with one velocity field.

    The bodies touch and fly on together, so that both must return the same.
    """
    cells, steps = (64, 200) if size == "full" else (16, 5)
    dt = 1e-7
    both = ((1.0, 0.5), (1.0, 0.5))
    two, one = (_solver(cells, model, both, dt) for model in (InterfaceForce(), SingleField()))

    def run(solver: MPMSolver) -> Tensor:
        solver.step(steps)
        return solver.state().x

    return Pair(ours=lambda: run(two), peer=lambda: run(one), rtol=1e-9, atol=1e-9)


def _pairs(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    r1, r2 = 0.5 + torch.rand(2, n, generator=g, dtype=torch.float64)
    D = (r1 - r2).abs() + (0.3 + 0.6 * torch.rand(n, generator=g, dtype=torch.float64)) * (r1 + r2 - (r1 - r2).abs())
    c1 = torch.randn(n, 3, generator=g, dtype=torch.float64)
    axis = torch.nn.functional.normalize(torch.randn(n, 3, generator=g, dtype=torch.float64), dim=1)
    return c1, r1, c1 + D[:, None] * axis, r2


def _surface(
    c1: np.ndarray, r1: np.ndarray, c2: np.ndarray, r2: np.ndarray, along: int = 4, around: int = 6
) -> np.ndarray:
    """Points of the surface of each overlap of two balls, its rim among them: (n, 2 along around, 3)."""
    D = np.linalg.norm(c2 - c1, axis=1)
    axis = (c2 - c1) / D[:, None]
    x0 = (D**2 + r1**2 - r2**2) / (2 * D)
    side = np.cross(axis, np.eye(3)[np.abs(axis).argmin(1)])
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    other = np.cross(axis, side)
    t = np.linspace(0, 1, along)
    first = np.arccos(np.clip(x0 / r1, -1, 1))[:, None] * t  # from the tip of ball 1 to the rim
    second = np.arccos(np.clip((D - x0) / r2, -1, 1))[:, None] * t
    x = np.concatenate([r1[:, None] * np.cos(first), D[:, None] - r2[:, None] * np.cos(second)], 1)
    rho = np.concatenate([r1[:, None] * np.sin(first), r2[:, None] * np.sin(second)], 1)
    phi = np.arange(around) * 2 * np.pi / around
    ring = np.cos(phi)[:, None] * side[:, None, :] + np.sin(phi)[:, None] * other[:, None, :]
    points = c1[:, None, None, :] + x[..., None, None] * axis[:, None, None, :] + rho[..., None, None] * ring[:, None]
    return points.reshape(len(c1), -1, 3)


def khachiyan(points: np.ndarray, iterations: int) -> np.ndarray:
    """Covariance-like shapes (n, 3, 3) of the smallest ellipsoids about points (n, k, 3), by Khachiyan's ascent."""
    n, k, d = points.shape
    Q = np.concatenate([points, np.ones((n, k, 1))], 2)
    u = np.full((n, k), 1.0 / k)
    rows = np.arange(n)
    for _ in range(iterations):
        X = np.einsum("nk,nki,nkj->nij", u, Q, Q, optimize=True)
        M = np.einsum("nki,nki->nk", Q @ np.linalg.inv(X), Q)
        j = M.argmax(1)
        most = M[rows, j]
        step = np.clip((most - d - 1) / ((d + 1) * (most - 1)), 0, 1)
        u *= (1 - step)[:, None]
        u[rows, j] += step
    centre = np.einsum("nk,nki->ni", u, points)
    spread = np.einsum("nk,nki,nkj->nij", u, points, points, optimize=True) - centre[:, :, None] * centre[:, None, :]
    return d * spread


def ellipsoids(size: str = "full") -> Pair:
    """Smallest ellipsoids about 10,000 overlaps of two balls: in closed form, and by Khachiyan's ascent."""
    pairs = _pairs(10_000 if size == "full" else 20)
    arrays = [t.numpy() for t in pairs]

    def ours() -> Tensor:
        return mvee_lens(*pairs).covariance()

    def peer() -> np.ndarray:
        return khachiyan(_surface(*arrays), 150)

    return Pair(ours=ours, peer=peer, rtol=0.05, atol=0.05)


def _broken(size: str) -> tuple[Tensor, Tensor, Camera]:
    n = 16 if size == "full" else 4
    means = lattice((-0.5,) * 3, (0.5,) * 3, 1 / n, jitter=0.25, generator=torch.Generator().manual_seed(0))
    camera = Camera((0.4, 0.6, 2.2), (0.0, 0.0, 0.0), width=128 if size == "full" else 24, height=96)
    return means, (means @ torch.tensor([0.8, 0.6, 0.0], dtype=torch.float64)).abs() < 0.12, camera


def picture(size: str = "full") -> Pair:
    """M6: a picture with the broken quarter of 4,096 Gaussians replaced by FPGO, replacing included, and without.

    The pictures differ; what is compared first is where the unbroken Gaussians are.
    """
    means, broken, camera = _broken(size)
    sigma = 0.6 * float(means[:, 0].max() - means[:, 0].min()) / (16 if size == "full" else 4)
    radii = torch.full((len(means),), sigma, dtype=means.dtype)
    intact = int((~broken).sum())

    def ours() -> Tensor:
        cloud = fracture_gaussians(means, radii, broken, 4 * sigma)
        render(cloud, camera)
        return cloud.means[:intact]

    def peer() -> Tensor:
        cloud = GaussianCloud.isotropic(means, sigma)
        render(cloud, camera)
        return cloud.means[~broken]

    return Pair(ours=ours, peer=peer)
