"""The experiments: regret (C1), real objectives (C2), size of the group (C3), an indefinite kernel (N1), spectra (C5).

An arm of all but `spectrum` is called as ``factory(train_X, train_Y, group, base=...)`` and returns a fitted BoTorch
model; an arm of `spectrum` as ``factory(base_kernel, group)`` and returns a GPyTorch kernel.
"""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.models.model import Model
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from pydantic import Field
from torch import Tensor

from paperworks.claims.study import ExperimentConfig, Outcome, Trial, experiment
from paperworks.kit.assets import load_digits8x8

from .groups import Group, Permutations, SignedPermutations, SignFlips
from .kernels import OrbitAverageKernel, PSDMaxKernel
from .loop import max_kernel_bo
from .model import BASES, InvariantGP, fitted
from .problems import (
    WLAN,
    CyclicWells,
    InvariantAckley,
    InvariantGriewank,
    InvariantRastrigin,
    PartPack,
    PrototypeSelection,
    Radial,
    RatioScaling,
)


class Search(ExperimentConfig):
    """Sizes of a run of Bayesian optimisation."""

    rounds: int = Field(25, gt=0, description="rounds after the initial points")
    initial: int = Field(5, gt=0, description="initial points, uniform in the box")
    raw: int = Field(512, gt=0, description="Sobol points for the acquisition in each round")
    starts: int = Field(5, gt=0, description="starts of L-BFGS-B in each round")
    steps: int = Field(50, gt=0, description="steps of L-BFGS-B from each start, at most")
    noise: float = Field(0.02, ge=0, description="variance of the observation noise by the variance of f over the box")


SMOKE = Search(rounds=1, initial=5, raw=16, starts=1, steps=4)
PAPER = Search(rounds=50, starts=10)


def _prototypes() -> PrototypeSelection:
    """Digits in two principal components, real data that come inside packages."""
    images, _ = load_digits8x8()
    x = np.asarray(images, dtype=np.float64).reshape(len(images), -1)
    x -= x.mean(axis=0)
    plane = x @ np.linalg.svd(x, full_matrices=False)[2][:2].T
    return PrototypeSelection(torch.tensor(plane / np.abs(plane).max()), prototypes=4)


# Base kernels as in the paper: Matern-5/2 for finite groups, RBF for continuous ones.
PROBLEMS: dict[str, tuple[Callable[[], Any], str]] = {
    "rastrigin3d": (partial(InvariantRastrigin, 3), "matern52"),
    "radial2d": (Radial, "rbf"),
    "ackley2d": (partial(InvariantAckley, 2), "matern52"),
    "griewank6d": (partial(InvariantGriewank, 6), "matern52"),
    "rastrigin5d": (partial(InvariantRastrigin, 5), "matern52"),
    "scaling2d": (RatioScaling, "rbf"),
    "wlan8d": (WLAN, "matern52"),
    "prototypes8d": (_prototypes, "matern52"),
    "partpack6d": (PartPack, "matern52"),
}
GROUPS: dict[str, Callable[[int], Group]] = {
    "signs": SignFlips,
    "permutations": Permutations,
    "signed": SignedPermutations,
}


def blind(train_X: Tensor, train_Y: Tensor, group: Group, base: str) -> Model:
    """A process that learns nothing from its data: it takes any Sobol point where it has not been."""
    model = InvariantGP(train_X, 0 * train_Y, group, base=base, kernel="base")  # type: ignore[arg-type]
    model.base_kernel.lengthscale = 1e-3
    return model.eval()  # type: ignore[no-any-return]


ARMS: dict[str, Callable[..., Model]] = {
    "blind": blind,
    "base": partial(fitted, kernel="base"),
    "augment": partial(fitted, kernel="base", augment=16),
    "average": partial(fitted, kernel="average"),
    "average_unit": partial(fitted, kernel="average", unit=True),
    "canonical": partial(fitted, kernel="canonical"),
    "psd_max": partial(fitted, kernel="psd_max"),
    "psd_max_fitc": partial(fitted, kernel="psd_max", fitc=True),
}
LEARNED: dict[str, Callable[..., Model]] = {
    "average_learned": partial(fitted, kernel="average", fit="kernel"),
    "psd_max_learned": partial(fitted, kernel="psd_max", fit="kernel"),
}


def _search(trial: Trial[Search], problem: Any, base: str, group: Group) -> tuple[Tensor, Tensor, Model]:
    """One run: all points (n, d), noise-free values after the initial ones (rounds,), and the last model."""
    c = trial.config
    box = problem.bounds
    unit = torch.rand(c.initial, box.shape[1], generator=trial.generator("initial"), dtype=torch.float64)
    noise = torch.randn(c.initial + c.rounds, generator=trial.generator("noise"), dtype=torch.float64)
    sobol = torch.quasirandom.SobolEngine(box.shape[1], scramble=True, seed=0).draw(1024, dtype=torch.float64)
    spread = problem(box[0] + (box[1] - box[0]) * sobol, noise=False).std()
    draws = iter(math.sqrt(c.noise) * spread * noise)

    def observe(x: Tensor) -> Tensor:
        return problem(x, noise=False) + next(draws)

    def told(t: int, model: Model, point: Tensor) -> None:
        trial.progress(t + 1, c.rounds)

    run = max_kernel_bo(
        observe,
        box,
        group,
        c.rounds,
        initial=box[0] + (box[1] - box[0]) * unit,
        model=partial(trial.build, base=base),
        raw=c.raw,
        starts=c.starts,
        steps=c.steps,
        seed=trial.seed,
        callback=told,
    )
    return run.X, problem(run.X[c.initial :], noise=False), run.model


def _regret(trial: Trial[Search], values: Tensor) -> dict[str, float]:
    """All these functions have the optimum 0."""
    total = (-values).cumsum(0)
    for t, value in enumerate(total.tolist(), start=1):
        trial.curve("regret", t, value)
    return {"regret": math.log1p(float(total[-1])), "best": float(values.max())}


SEARCH = {"smoke": SMOKE, "laptop": Search(), "paper": PAPER}


@experiment("regret", config=SEARCH, arms={**ARMS, **LEARNED})
def regret(trial: Trial[Search]) -> Outcome:
    """Cumulative regret on functions with a known optimum."""
    make, base = PROBLEMS[str(trial.level["problem"])]
    problem = make()
    _, values, _ = _search(trial, problem, base, problem.group)
    return Outcome(_regret(trial, values))


@experiment("real", config={**SEARCH, "laptop": Search(rounds=40)}, arms=ARMS)
def real(trial: Trial[Search]) -> Outcome:
    """Best value found on objectives from practice, whose optimum nobody knows."""
    make, base = PROBLEMS[str(trial.level["problem"])]
    problem = make()
    _, values, _ = _search(trial, problem, base, problem.group)
    best = values.cummax(0).values
    for t, value in enumerate(best.tolist(), start=1):
        trial.curve("best", t, value)
    return Outcome({"best": float(best[-1]), "mean": float(values.mean())})


@experiment(
    "group_size",
    config={**SEARCH, "laptop": Search(rounds=20)},
    arms={k: ARMS[k] for k in ("base", "average", "average_unit", "psd_max")},
)
def group_size(trial: Trial[Search]) -> Outcome:
    """The same function of four variables, known to be invariant under a smaller or a larger group."""
    _, values, _ = _search(trial, InvariantRastrigin(4), "matern52", GROUPS[str(trial.level["group"])](4))
    return Outcome(_regret(trial, values))


@experiment(
    "indefinite",
    config={**SEARCH, "smoke": Search(rounds=1, initial=20, raw=16, starts=1, steps=4), "laptop": Search(rounds=30)},
    arms={k: ARMS[k] for k in ("base", "average", "average_unit", "canonical", "psd_max", "psd_max_fitc")},
)
def indefinite(trial: Trial[Search]) -> Outcome:
    """Threefold wells, where the max kernel has negative eigenvalues."""
    problem = CyclicWells(3, ripple=0.0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Cyclic")  # rotations move the corners of a square out of it
        points, values, model = _search(trial, problem, "rbf", problem.group)
    kernel = BASES["rbf"]()
    kernel.lengthscale = model.base_kernel.lengthscale.detach() if hasattr(model, "base_kernel") else 1.0
    scaled = points / float(problem.bounds.abs().max())
    clipped = PSDMaxKernel(kernel.double(), problem.group, scaled).clipped_mass()
    return Outcome({**_regret(trial, values), "clipped": float(clipped)})


class Spectrum(ExperimentConfig):
    """Sizes of a Gram matrix."""

    points: int = Field(1000, gt=0, description="uniform points in [-1, 1]^d")
    lengthscale: float = Field(0.5, gt=0, description="of the base kernel")
    modes: int = Field(20, gt=0, description="eigenvalues that do not count as tail")


def _bare(base_kernel: Kernel, group: Group) -> Kernel:
    return base_kernel


def _psd_part(base_kernel: Kernel, group: Group) -> Kernel:
    return PSDMaxKernel(base_kernel, group)


@experiment(
    "spectrum",
    config={"smoke": Spectrum(points=80), "laptop": Spectrum(), "paper": Spectrum(points=3000)},
    arms={"base": _bare, "average": OrbitAverageKernel, "psd_max": _psd_part},
)
def spectrum(trial: Trial[Spectrum]) -> Outcome:
    """Eigenvalues of the Gram matrix of uniform points."""
    c = trial.config
    dim = int(trial.level["dim"])
    kernel = MaternKernel(nu=2.5) if trial.level["base"] == "matern52" else RBFKernel()
    kernel.lengthscale = c.lengthscale
    points = 2 * torch.rand(c.points, dim, generator=trial.generator("points"), dtype=torch.float64) - 1
    built = trial.build(kernel.double(), SignedPermutations(dim))
    if hasattr(built, "set_design"):
        built.set_design(points)
    with torch.no_grad():
        gram = built(points, points).to_dense()
    values = torch.linalg.eigvalsh(gram).clamp(min=0).flip(0)
    values = values / values.sum()
    for i in range(min(60, len(values))):
        trial.curve("spectrum", i + 1, math.log10(max(float(values[i]), 1e-16)))
    return Outcome({"tail": math.log10(max(float(values[c.modes :].sum()), 1e-14))})
