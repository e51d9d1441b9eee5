"""Ours beside a peer doing the same work: the reduced simulator, and the optimiser's step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from paperworks.claims.speed import Pair

from .optimizer import UnitGradSGD
from .problems import SpikedTensorPCA
from .simulate import Trajectory


def _in_law(trajectory: Trajectory) -> np.ndarray:
    """Means and standard deviations of m and r^2 over the runs at the end."""
    last = np.stack([trajectory.m[-1], trajectory.r2[-1]])
    return np.concatenate([last.mean(axis=1), last.std(axis=1)])


def _simulators(n: int, steps: int, batch: int, peer: str) -> Pair:
    """The same runs by the reduced simulator and by a plain one, on independent noise.

    The tolerance is 5 standard errors of a difference of two means, 5 sqrt(2/batch) times the standard deviation, which
    is at most that of the fluctuations of (m, r^2) in the limit; standard deviations vary less than means do.
    """
    problem = SpikedTensorPCA(2, 2.0)

    def run(method: str, seed: int) -> np.ndarray:
        return _in_law(
            problem.simulate(n, c=1.0, beta=0.5, steps=steps, seed=seed, batch=batch, points=2, method=method)
        )

    spread = run("reduced", 2)[2:].max()
    return Pair(
        ours=lambda: run("reduced", 0), peer=lambda: run(peer, 1), rtol=0.0, atol=float(5 * np.sqrt(2 / batch) * spread)
    )


def against_tensors(size: str = "full") -> Pair:
    """The reduced simulator against whole tensors drawn for every step: k = 2, n = 1,000, 20 steps, 20 runs."""
    return _simulators(1000, 20, 20, "tensor") if size == "full" else _simulators(40, 12, 400, "tensor")


def against_vectors(size: str = "full") -> Pair:
    """The reduced simulator against the O(n) sampler: k = 2, n = 10,000, 50 steps, 20 runs."""
    return _simulators(10_000, 50, 20, "vector") if size == "full" else _simulators(40, 30, 2000, "vector")


def against_vectors_small(size: str = "full") -> Pair:
    """The same at n = 1,000, 200 steps."""
    return _simulators(1000, 200, 20, "vector") if size == "full" else _simulators(40, 20, 1000, "vector")


def _optimisers(size: str, make: Callable[[list[torch.nn.Parameter]], Callable[[], None]], clipped: bool) -> Pair:
    count, shape = (100, (128, 128)) if size == "full" else (5, (4, 3))
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for _ in range(count)]
    grads = [torch.randn(shape, generator=generator) for _ in range(count)]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
    # Gradients of the length that ours would give them, so that both optimisers take the same steps.
    grads = [g * ((count * shape[0] * shape[1]) ** 0.5 / norm if not clipped else 1 / norm) for g in grads]

    def runner(build: Callable[[list[torch.nn.Parameter]], Callable[[], None]]) -> Callable[[], Any]:
        params = [torch.nn.Parameter(p.clone()) for p in start]
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        step = build(params)
        first: list[torch.Tensor] = []

        def call() -> torch.Tensor:
            step()
            if not first:  # later calls go on from here: only the first is the same step for both
                first.append(params[0].detach().clone())
            return first[0]

        return call

    scale = "unit" if clipped else "sqrt_n"
    return Pair(
        ours=runner(lambda params: UnitGradSGD(params, lr=1e-3, momentum=0.9, scale=scale).step),
        peer=runner(make),
        rtol=1e-5,
        atol=1e-6,
    )


def optimizer_step(size: str = "full") -> Pair:
    """A step of `UnitGradSGD` and of `torch.optim.SGD`, both with momentum and foreach: 100 tensors of 128 x 128."""
    return _optimisers(
        size, lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9, foreach=True).step, clipped=False
    )


def optimizer_step_clipping(size: str = "full") -> Pair:
    """The same against `clip_grad_norm_` to length 1 followed by `torch.optim.SGD`."""

    def make(params: list[torch.nn.Parameter]) -> Callable[[], None]:
        sgd = torch.optim.SGD(params, lr=1e-3, momentum=0.9, foreach=True)

        def step() -> None:
            torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
            sgd.step()

        return step

    return _optimisers(size, make, clipped=True)
