"""Bayesian optimisation by upper confidence bounds, as in the paper's experiments."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from gpytorch.utils.warnings import NumericalWarning
from torch import Tensor

from .groups import Group
from .model import fitted

Factory = Callable[[Tensor, Tensor, Group], Model]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run has tried.

    Attributes:
        X: All points in order, the initial ones first (n_initial + n_iter, d).
        Y: What was observed there (n_initial + n_iter, 1).
        n_initial: Number of initial points.
        model: The model after the last observation, without a refit for it.
    """

    X: Tensor
    Y: Tensor
    n_initial: int
    model: Model

    @property
    def best(self) -> tuple[Tensor, float]:
        """The point with the largest observed value, and the value."""
        i = int(self.Y.argmax())
        return self.X[i], float(self.Y[i])


def suggest(
    model: Model, bounds: Tensor, beta: float, incumbent: Tensor, *, raw: int, starts: int, seed: int, steps: int = 50
) -> Tensor:
    """Maximise mu + sqrt(beta) sigma: Sobol points and the incumbent, the best of them improved by L-BFGS-B.

    Args:
        model: A BoTorch model.
        bounds: Box (2, d).
        beta: Weight of the variance.
        incumbent: A point (d,) that is always among the candidates.
        raw: Number of Sobol points.
        starts: Number of points from which L-BFGS-B starts.
        seed: Of the Sobol sequence.
        steps: At most so many steps of L-BFGS-B.

    Returns:
        The best point found (1, d).
    """
    acquisition = UpperConfidenceBound(model, beta=beta)
    sobol = torch.quasirandom.SobolEngine(bounds.shape[-1], scramble=True, seed=seed)
    points = bounds[0] + (bounds[1] - bounds[0]) * sobol.draw(raw, dtype=bounds.dtype)
    points = torch.cat([points, incumbent.unsqueeze(0)])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=NumericalWarning)
        values = acquisition(points.unsqueeze(1))
    chosen = points[values.topk(min(starts, len(points))).indices].unsqueeze(1)
    with warnings.catch_warnings():
        # A line search that ends early at a kink, and variances rounded up to 0, are part of the trade.
        warnings.filterwarnings("ignore", category=NumericalWarning)
        warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
        found, value = optimize_acqf(
            acquisition,
            bounds,
            q=1,
            num_restarts=len(chosen),
            batch_initial_conditions=chosen,
            options={"maxiter": steps},
        )
    best = int(values.argmax())
    return found if float(value) >= float(values[best]) else points[best : best + 1]


def max_kernel_bo(
    f: Callable[[Tensor], Tensor],
    bounds: Tensor,
    group: Group,
    n_iter: int,
    *,
    n_initial: int = 5,
    initial: Tensor | None = None,
    model: Factory = fitted,
    raw: int = 512,
    starts: int = 10,
    steps: int = 50,
    seed: int = 0,
    callback: Callable[[int, Model, Tensor], None] | None = None,
    **options: Any,
) -> Run:
    """Maximise an invariant function by GP-UCB with beta_t = d log(t) / 2, t being the number of observations.

    Args:
        f: The objective: (1, d) to a tensor with one number, noisy or not.
        bounds: Box (2, d). Coordinates are divided by its largest absolute bound before they reach the model: a common
            factor leaves the group's action as it is. A warning is given when the group moves the box onto another.
        group: The group under which f does not change.
        n_iter: Number of rounds after the initial points.
        n_initial: Number of initial points, uniform in the box.
        initial: The initial points (n, d) themselves, instead.
        model: ``factory(train_X, train_Y, group)`` makes a fitted BoTorch model from (n, d) and (n, 1).
        raw: Sobol points for the acquisition in each round.
        starts: Starts of L-BFGS-B in each round.
        steps: At most so many steps of it.
        seed: Of initial points and Sobol sequences.
        callback: Called as ``callback(round, model, point)`` in each round.
        **options: For `fitted`, when that is the model.

    Returns:
        The points, values and last model.

    Raises:
        ValueError: For bounds of another shape or order, no rounds, or values of f that are not finite.
    """
    bounds = torch.as_tensor(bounds, dtype=torch.float64)
    if bounds.shape != (2, group.dim) or not bool((bounds[0] < bounds[1]).all()):
        raise ValueError(
            f"bounds of shape {tuple(bounds.shape)}: (2, {group.dim}) with lower < upper is needed for {group}"
        )
    if n_iter < 1 or n_initial < 1:
        raise ValueError(f"n_iter = {n_iter}, n_initial = {n_initial}: at least 1 each is needed")
    _warn_if_moved(bounds, group)
    generator = torch.Generator().manual_seed(seed)
    if initial is None:
        unit = torch.rand(n_initial, group.dim, generator=generator, dtype=torch.float64)
        initial = bounds[0] + (bounds[1] - bounds[0]) * unit
    group.check(initial, "initial")
    scale = float(bounds.abs().max())
    tried = initial.double()
    x = initial.double() / scale
    y = torch.stack([_value(f, point) for point in initial.double()])
    box = bounds / scale
    for t in range(n_iter):
        process = model(x, y, group, **options)
        beta = 0.5 * group.dim * math.log(len(x))
        seed_t = seed * 100_003 + t
        best = x[int(y.argmax())]
        new = suggest(process, box, beta, best, raw=raw, starts=starts, seed=seed_t, steps=steps).detach()
        point = torch.clamp(new * scale, bounds[0], bounds[1])  # rounding may leave the box
        if callback is not None:
            callback(t, process, point)
        x, tried = torch.cat([x, new]), torch.cat([tried, point])
        y = torch.cat([y, _value(f, point[0]).unsqueeze(0)])
    return Run(X=tried, Y=y, n_initial=len(initial), model=process)


def _warn_if_moved(bounds: Tensor, group: Group) -> None:
    """A finite group should map the box onto itself: looked up at its corners."""
    if group.order > 10_000 or group.dim > 10:
        return
    corners = torch.cartesian_prod(*bounds.T.unbind()).reshape(-1, group.dim)
    room = 1e-9 * float(bounds.abs().max())
    images = group.act(corners)
    if bool(((images < bounds[0] - room) | (images > bounds[1] + room)).any()):
        warnings.warn(f"{group} moves the box {bounds.tolist()} out of itself: optima may lie outside", stacklevel=3)


def _value(f: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    value = torch.as_tensor(f(point.unsqueeze(0)), dtype=torch.float64).reshape(-1)
    if value.numel() != 1 or not bool(torch.isfinite(value).all()):
        raise ValueError(f"f gave {value.tolist()} at {point.tolist()}: one finite number is needed")
    return value
