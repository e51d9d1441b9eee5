"""The experiments: trajectories of matrix PCA (C1 to C4), step sizes (C5), single index models (C6), real digits.

All but the last are the theory's own model, run by the reduced simulator at the paper's own dimension; all their cells
(arms, levels, seeds) are lanes of one loop. An arm is called as `factory(problem, c=)` and returns the
`EffectiveDynamics` whose algorithm is run and whose limit it is compared with. An arm of `real` is called as
`factory(params, lr=)` and returns a torch optimiser.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from paperworks.claims.study import Cell, ExperimentConfig, Outcome, Trial, experiment
from paperworks.kit.assets import load_digits8x8, load_mnist5k

from .dynamics import EffectiveDynamics
from .figures import lines_over_points, phase_diagram
from .lanes import simulate_lanes
from .optimizer import UnitGradSGD
from .problems import SingleIndex, SpikedTensorPCA
from .simulate import Trajectory

TAIL = 0.2  # share of a run, at its end, over which stationary values are averaged


def rescaled(problem: Any, c: float, beta: float) -> EffectiveDynamics:
    """SGD with the step that makes it, step by step, the same limit as momentum beta with step c/n: c/(1 - beta)."""
    return EffectiveDynamics(problem, c=c / (1 - beta))


SGD = EffectiveDynamics
UNIT = partial(EffectiveDynamics, algorithm="unit")


def _momentum(beta: float) -> Any:
    return partial(EffectiveDynamics, beta=beta)


def _run(
    trial: Trial, lanes: Sequence[tuple[Cell, EffectiveDynamics]], n: int, steps: int, start: Any, points: int
) -> Trajectory:
    """Run lanes; those of one seed see the same noise, whatever the arm and level, and whatever else is run."""
    streams = {cell.seed: trial.rng("noise", cell) for cell, _ in lanes}
    return simulate_lanes(
        [d for _, d in lanes], n, steps, [streams[cell.seed] for cell, _ in lanes], start, points, trial.progress
    )


def _tail(values: np.ndarray) -> Any:
    """Mean over the last part of a run, time first."""
    return values[-max(1, round(TAIL * len(values))) :].mean(axis=0)


def _short(metrics: dict[str, Any]) -> dict[str, float]:
    """Eight digits, so that the evidence of several hundred cells stays small."""
    return {name: float(f"{value:.8g}") for name, value in metrics.items()}


# --- matrix PCA ------------------------------------------------------------------------------------------------------


class PCA(ExperimentConfig):
    """Sizes of the PCA experiments."""

    small: int = Field(1_000, ge=4, description="dimension of the smaller runs")
    large: int = Field(10_000, ge=4, description="dimension of the larger runs")
    horizon: float = Field(20.0, gt=0, description="steps of a run, in multiples of the dimension")
    c: float = Field(1.0, gt=0, description="step size times dimension")
    m0: float = Field(0.3, description="<x, v> at the start")
    r0: float = Field(1.0, ge=0, description="|x - m v|^2 at the start")
    early: float = Field(0.025, gt=0, description="step at which early values are read, in multiples of the dimension")
    points: int = Field(801, ge=2, description="times at which a run is compared with its limit")
    drawn: int = Field(18, ge=2, description="points of a curve")


@experiment(
    "pca",
    config={"smoke": PCA(small=220, large=1_000, horizon=6.0, points=241), "laptop": PCA(), "paper": PCA()},
    arms={
        "sgd": SGD,
        "sgdm_0.5": _momentum(0.5),
        "sgdm_0.9": _momentum(0.9),
        "sgd_rescaled": partial(rescaled, beta=0.5),
        "sgd_u": UNIT,
    },
)
def pca(trial: Trial[PCA]) -> Iterator[tuple[Cell, Outcome]]:
    """Follow (m, r^2) from a warm start and compare with the solution of the limiting equation."""
    c = trial.config
    size = {str(cell.level["size"]) for cell in trial.cells}.pop()
    n = {"small": c.small, "large": c.large}[size]
    lanes = [(cell, trial.build(SpikedTensorPCA(2, cell.level["lam"]), c=c.c, cell=cell)) for cell in trial.cells]
    run = _run(trial, lanes, n, round(c.horizon * n), (c.m0, c.r0), c.points)
    early = int(np.argmin(np.abs(run.step - c.early * n)))
    some = np.unique((np.linspace(0, 1, c.drawn) ** 2 * (len(run.step) - 1)).round().astype(int))  # denser at first
    first = min(cell.seed for cell in trial.cells)
    limits: dict[str, np.ndarray] = {}
    for lane, (cell, dynamics) in enumerate(lanes):
        t = run.step * dynamics.c / n
        if repr(dynamics) not in limits:
            limits[repr(dynamics)] = dynamics.solve_ode(np.array([c.m0, c.r0]), t)
        limit = limits[repr(dynamics)]
        m, r2, align = run.m[:, lane], run.r2[:, lane], run.alignment[:, lane]
        figures = {}
        if size == "large":
            paths = {"m": m, "r2": r2, "m_limit": limit[:, 0], "r2_limit": limit[:, 1]}
            points = {name: [(run.step[i] / n, values[i]) for i in some] for name, values in paths.items()}
            for name in ("m", "r2"):
                for step, value in points[name]:
                    trial.curve(name, step, value, cell)
            if cell.seed == first:  # the report shows the first seed's
                figures["trajectory.svg"] = lines_over_points(
                    f"{cell.arm}, lambda = {cell.level['lam']}, n = {n}, seed {cell.seed}",
                    ("steps / n", "points: run, lines: limit"),
                    {"m": points["m"], "r²": points["r2"]},
                    {"m": points["m_limit"], "r²": points["r2_limit"]},
                )
        metrics = {
            "sup_m": np.abs(m - limit[:, 0]).max(),
            "sup_r2": np.abs(r2 - limit[:, 1]).max(),
            "m": _tail(np.abs(m)),
            "r2": _tail(r2),
            "align": _tail(align),
            "r2_early": r2[early],
        }
        yield cell, Outcome(metrics=_short(metrics), figures=figures)


@experiment(
    "pca_random",
    config={
        "smoke": PCA(large=300, horizon=10.0, points=121),
        "laptop": PCA(points=401, drawn=16),
        "paper": PCA(points=401, drawn=16),
    },
    arms={"sgd": SGD, "sgdm_0.9": _momentum(0.9), "sgd_u": UNIT},
)
def pca_random(trial: Trial[PCA]) -> Iterator[tuple[Cell, Outcome]]:
    """Start at x ~ N(0, I/n), where m is of order 1/sqrt(n) and has to escape from 0."""
    c, n = trial.config, trial.config.large
    lanes = [(cell, trial.build(SpikedTensorPCA(2, cell.level["lam"]), c=c.c, cell=cell)) for cell in trial.cells]
    run = _run(trial, lanes, n, round(c.horizon * n), "random", c.points)
    for lane, (cell, _) in enumerate(lanes):
        align = run.alignment[:, lane]
        out = np.nonzero(align > 0.2)[0]
        for i in np.unique(np.linspace(0, len(align) - 1, c.drawn).round().astype(int)):
            trial.curve("align", run.step[i] / n, align[i], cell)
        metrics = {
            "align": _tail(align),
            "r2": _tail(run.r2[:, lane]),
            "escape": run.step[out[0]] / n if len(out) else c.horizon,
        }
        yield cell, Outcome(metrics=_short(metrics))


# --- step sizes ------------------------------------------------------------------------------------------------------


class Steps(ExperimentConfig):
    """Sizes of the step-size experiment; one cell runs the whole grid of c."""

    n: int = Field(10_000, ge=4, description="dimension")
    horizon: float = Field(40.0, gt=0, description="steps of a run, in multiples of the dimension")
    lam: float = Field(2.0, gt=0, description="signal-to-noise ratio")
    lowest: float = Field(0.6, gt=0, description="smallest c")
    highest: float = Field(12.0, gt=0, description="largest c")
    count: int = Field(24, ge=4, description="values of c, in geometric progression")
    learnt: float = Field(0.1, gt=0, lt=1, description="alignment from which something was learnt")
    m0: float = Field(0.3, description="<x, v> at the start")
    r0: float = Field(1.0, ge=0, description="|x - m v|^2 at the start")


def _alignment_of(problem: SpikedTensorPCA, dynamics: EffectiveDynamics) -> float:
    """Alignment at the best stable fixed point of the limit, 0 when there is none."""
    u, stable = dynamics.fixed_points()
    u = u[stable]
    return max((m / np.sqrt(m * m + r2) for m, r2 in u), default=0.0)


def _last_crossing(x: np.ndarray, y: np.ndarray, level: float) -> float:
    """The largest x at which y, linear between its points, falls to a level; an end of x when it does not."""
    above = np.nonzero(y > level)[0]
    if not len(above):
        return float(x[0])
    i = above[-1]
    if i == len(x) - 1:
        return float(x[-1])
    return float(x[i] + (y[i] - level) / (y[i] - y[i + 1]) * (x[i + 1] - x[i]))


@experiment(
    "steps",
    config={"smoke": Steps(n=200, horizon=10.0, count=8), "laptop": Steps(), "paper": Steps()},
    arms={"sgd": SGD, "sgdm_0.5": _momentum(0.5), "sgd_u": UNIT},
)
def steps(trial: Trial[Steps]) -> Iterator[tuple[Cell, Outcome]]:
    """Find the largest c at which a run ends aligned."""
    c = trial.config
    grid = np.geomspace(c.lowest, c.highest, c.count)
    problem = SpikedTensorPCA(2, c.lam)
    lanes = [(cell, trial.build(problem, c=float(value), cell=cell)) for cell in trial.cells for value in grid]
    run = _run(trial, lanes, c.n, round(c.horizon * c.n), (c.m0, c.r0), 201)
    align = _tail(run.alignment).reshape(len(trial.cells), c.count)
    first = min(cell.seed for cell in trial.cells)
    expected: dict[str, list[float]] = {}
    for i, cell in enumerate(trial.cells):
        if cell.arm not in expected:
            own = [d for _, d in lanes[i * c.count : (i + 1) * c.count]]
            expected[cell.arm] = [_alignment_of(problem, d) for d in own]
        x = np.log10(grid)
        for place, value, limit in zip(x, align[i], expected[cell.arm], strict=True):
            trial.curve("align", place, value, cell)
            trial.curve("align_limit", place, limit, cell)
        figures = {}
        if cell.seed == first:
            figures["steps.svg"] = lines_over_points(
                f"{cell.arm}, lambda = {c.lam}, n = {c.n}, seed {cell.seed}",
                ("log10 c", "points: run, line: limit"),
                {"alignment": list(zip(x, align[i], strict=True))},
                {"alignment": list(zip(x, expected[cell.arm], strict=True))},
            )
        metrics = {
            "log_c": _last_crossing(x, align[i], c.learnt),
            "align_lowest": align[i, 0],
            "align_highest": align[i, -1],
        }
        yield cell, Outcome(metrics=_short(metrics), figures=figures)


class Phase(ExperimentConfig):
    """Sizes of the phase diagram; one cell runs the whole grid of lambda and c."""

    n: int = Field(1_000, ge=4, description="dimension")
    horizon: float = Field(40.0, gt=0, description="steps of a run, in multiples of the dimension")
    lam: tuple[float, float] = Field((0.2, 4.0), description="smallest and largest signal-to-noise ratio")
    c: tuple[float, float] = Field((0.1, 20.0), description="smallest and largest c")
    count: int = Field(16, ge=3, description="values on each axis, in geometric progression")
    learnt: float = Field(0.2, gt=0, lt=1, description="alignment from which something was learnt")
    aside: float = Field(
        0.1, ge=0, description="relative distance of lambda from the line below which points are left out"
    )
    m0: float = Field(0.3, description="<x, v> at the start")
    r0: float = Field(1.0, ge=0, description="|x - m v|^2 at the start")


@experiment(
    "phase",
    config={"smoke": Phase(n=100, horizon=10.0, count=6), "laptop": Phase()},
    arms={"sgd": SGD, "sgdm_0.5": _momentum(0.5), "sgd_u": UNIT},
)
def phase(trial: Trial[Phase]) -> Iterator[tuple[Cell, Outcome]]:
    """Colour the plane of lambda and c by what was learnt, and draw the critical line over it."""
    c = trial.config
    lams, steps_ = np.geomspace(*c.lam, c.count), np.geomspace(*c.c, c.count)
    plane = [(float(lam), float(step)) for lam in lams for step in steps_]
    lanes = [(cell, trial.build(SpikedTensorPCA(2, lam), c=s, cell=cell)) for cell in trial.cells for lam, s in plane]
    run = _run(trial, lanes, c.n, round(c.horizon * c.n), (c.m0, c.r0), 101)
    align = _tail(run.alignment).reshape(len(trial.cells), c.count, c.count)
    first = min(cell.seed for cell in trial.cells)
    critical: dict[str, np.ndarray] = {}
    for i, cell in enumerate(trial.cells):
        if cell.arm not in critical:  # the critical lambda does not depend on lambda
            own = [d for _, d in lanes[i * len(plane) : i * len(plane) + c.count]]
            critical[cell.arm] = np.array([d.critical_snr() for d in own])
        ratio = lams[:, None] / critical[cell.arm]
        clear = np.abs(ratio - 1) > c.aside
        agrees = (align[i] > c.learnt) == (ratio > 1)
        figures = {}
        if cell.seed == first:
            figures["phase.svg"] = phase_diagram(
                f"{cell.arm}: alignment after {c.horizon:g} n steps, n = {c.n}, seed {cell.seed}",
                ("lambda", "c"),
                lams.tolist(),
                steps_.tolist(),
                align[i],
                list(zip(critical[cell.arm], steps_, strict=True)),
            )
        metrics = {"agree": agrees[clear].mean(), "learnt": (align[i] > c.learnt).mean()}
        yield cell, Outcome(metrics=_short(metrics), figures=figures)


# --- single index models ---------------------------------------------------------------------------------------------


def square(z: Any) -> Any:
    """z^2."""
    return z * z


def square_slope(z: Any) -> Any:
    """Its derivative."""
    return 2.0 * z


def cube(z: Any) -> Any:
    """z^3."""
    return z * z * z


def cube_slope(z: Any) -> Any:
    """Its derivative."""
    return 3.0 * z * z


def seventh(z: Any) -> Any:
    """z^7 + 4 z^4, by products."""
    fourth = (z * z) * (z * z)
    return fourth * (z * z * z + 4.0)


def seventh_slope(z: Any) -> Any:
    """Its derivative."""
    third = z * z * z
    return third * (7.0 * third + 16.0)


LINKS = {"x^2": (square, square_slope), "x^3": (cube, cube_slope), "x^7+4x^4": (seventh, seventh_slope)}


class Index(ExperimentConfig):
    """Sizes of the single-index experiment; one cell runs the whole grid of c."""

    n: int = Field(10_000, ge=4, description="dimension")
    steps: int = Field(1_000_000, gt=0, description="steps of a run")
    powers: tuple[float, ...] = Field(
        (0, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.6, *range(2, 12)),
        description="the grid: c = 10^-k for these k, ascending",
    )
    usable: float = Field(0.9, gt=0, lt=1, description="alignment from which a step size was usable")
    m0: float = Field(0.3, description="<x, v> at the start")
    r0: float = Field(1.0, ge=0, description="|x - m v|^2 at the start")


@experiment(
    "index",
    config={
        "smoke": Index(n=300, steps=2_500, powers=(0, 1, 2, 3, 5), usable=0.4),
        "laptop": Index(),
        "paper": Index(),
    },
    arms={"sgd": SGD, "sgdm_0.9": _momentum(0.9), "sgd_u": UNIT},
)
def index(trial: Trial[Index]) -> Iterator[tuple[Cell, Outcome]]:
    """Find the largest power of ten for c that does not diverge, and what is learnt there."""
    c = trial.config
    name = {str(cell.level["f"]) for cell in trial.cells}.pop()
    values = [10.0**-k for k in c.powers]
    lanes = [
        (cell, trial.build(SingleIndex(*LINKS[name], cell.level["noise"]), c=value, cell=cell))
        for cell in trial.cells
        for value in values
    ]
    run = _run(trial, lanes, c.n, c.steps, (c.m0, c.r0), 101)
    shape = (len(trial.cells), len(values))
    gone = run.diverged.reshape(shape)
    align = np.where(gone, 0.0, _tail(run.alignment).reshape(shape))
    for i, cell in enumerate(trial.cells):
        for k, value in zip(c.powers, align[i], strict=True):
            trial.curve("align", -k, value, cell)
        powers, below = -np.array(c.powers, dtype=float), -float(c.powers[-1] + 1)
        calm = np.cumsum(gone[i][::-1])[::-1] == 0  # neither it nor a smaller c diverged
        usable = align[i] > c.usable
        metrics = {
            "log_c": powers[calm].max(initial=below),
            "log_usable": powers[usable].max(initial=below),
            "align_top": align[i][calm][0] if calm.any() else 0.0,
            "align_best": align[i].max(),
            "diverged": gone[i].mean(),
        }
        yield cell, Outcome(metrics=_short(metrics))


# --- real digits -----------------------------------------------------------------------------------------------------


class Real(ExperimentConfig):
    """Sizes of the runs on real data; one cell runs the whole grid of learning rates."""

    steps: int = Field(1_500, gt=0, description="steps of a run, one example each")
    lowest: float = Field(-4.5, description="log10 of the smallest learning rate")
    highest: float = Field(0.5, description="log10 of the largest learning rate")
    count: int = Field(16, ge=3, description="learning rates, in geometric progression")


class Task(NamedTuple):
    """What is learnt: a start (d,), the number of examples, the loss of one, a score from 0 to 1 and its pass mark."""

    start: torch.Tensor
    examples: int
    loss: Callable[[torch.Tensor, int], torch.Tensor]
    score: Callable[[torch.Tensor], float]
    usable: float


@cache
def _centred_mnist() -> tuple[torch.Tensor, torch.Tensor]:
    """Centred images (5000, 784), scaled to a top eigenvalue of 1, and the top component (784,)."""
    images, _ = load_mnist5k()
    y = images.reshape(len(images), -1).astype(np.float64)
    y -= y.mean(axis=0)
    values, vectors = np.linalg.eigh(y.T @ y / len(y))
    return torch.tensor(y / np.sqrt(values[-1]), dtype=torch.float32), torch.tensor(vectors[:, -1], dtype=torch.float32)


def _oja(trial: Trial[Real]) -> Task:
    """The top component of MNIST. The loss is least at |x| = 1, as the top eigenvalue is 1."""
    data, top = _centred_mnist()
    start = torch.randn(data.shape[1], generator=trial.generator("start"))

    def loss(x: torch.Tensor, i: int) -> torch.Tensor:
        """|y y^T - x x^T|^2 without its constant: spiked PCA, k = 2, with y y^T in the place of Y."""
        return x.square().sum().square() - 2.0 * (data[i] @ x).square()

    def score(x: torch.Tensor) -> float:
        return ((top @ x).abs() / x.norm()).item()

    return Task(start / start.norm(), len(data), loss, score, usable=0.8)


def _logistic(trial: Trial[Real]) -> Task:
    """Odd against even digits of 8x8 pixels; the score is the share of the labels' entropy that is explained.

    Accuracy would not do: from a start at 0 it hardly depends on the learning rate.
    """
    images, labels = load_digits8x8()
    order = trial.rng("split").permutation(len(images))
    data = torch.tensor(images[order].reshape(len(images), -1) / 16.0, dtype=torch.float32)
    data = torch.cat([data - data.mean(dim=0), torch.ones(len(data), 1)], dim=1)
    odd = torch.tensor(labels[order] % 2, dtype=torch.float32)
    train = 1200
    start = torch.zeros(data.shape[1])

    def loss(x: torch.Tensor, i: int) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(data[i] @ x, odd[i])

    def score(x: torch.Tensor) -> float:
        loss = F.binary_cross_entropy_with_logits(data[train:] @ x, odd[train:]).item()
        return max(1.0 - loss / math.log(2), 0.0)

    return Task(start, train, loss, score, usable=0.4)


TASKS = {"oja_mnist": _oja, "logistic_digits": _logistic}


@experiment(
    "real",
    config={"smoke": Real(steps=200, count=5), "laptop": Real()},
    arms={
        "sgd": torch.optim.SGD,
        "sgdm_0.9": partial(torch.optim.SGD, momentum=0.9),
        "sgd_u": UnitGradSGD,
    },
)
def real(trial: Trial[Real]) -> Outcome:
    """Learn from single examples of real digits at each learning rate of a grid."""
    c = trial.config
    task = TASKS[str(trial.level["task"])](trial)
    rates = np.linspace(c.lowest, c.highest, c.count)
    rows = trial.rng("order").integers(task.examples, size=c.steps)
    scores = []
    for done, rate in enumerate(rates):
        trial.progress(done, c.count)
        x = task.start.clone().requires_grad_()
        optimizer = trial.build([x], lr=float(10.0**rate))
        seen = []
        for step, i in enumerate(rows):
            optimizer.zero_grad()
            value = task.loss(x, int(i))
            if not torch.isfinite(value):
                seen = [0.0]
                break
            value.backward()
            optimizer.step()
            if step >= (1 - TAIL) * c.steps and step % 10 == 0:
                seen.append(task.score(x.detach()))
        scores.append(float(np.nan_to_num(np.mean(seen))))
        trial.curve("score", rate, scores[-1])
    usable = np.array(scores) > task.usable
    spacing = rates[1] - rates[0]
    metrics = {
        "width": spacing * usable.sum(),
        "log_lr": rates[usable].max() if usable.any() else rates[0] - spacing,
        "best": max(scores),
    }
    return Outcome(metrics=_short(metrics))
