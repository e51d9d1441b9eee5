"""Does the assumed symmetry hold? The data answer by leave-one-out prediction (an addition to the paper)."""

import math
from typing import Any

import torch
from torch import Tensor

from .groups import Group
from .model import InvariantGP, fitted


def _left_out(model: InvariantGP) -> Tensor:
    """Log density of each standardised value given the others (n,): Sundararajan and Keerthi (2001)."""
    with torch.no_grad():
        x, y = model.train_inputs[0], model.train_targets
        gram = model.covar_module(x, x).to_dense()
        inverse = torch.linalg.inv(gram + model.likelihood.noise.reshape(-1)[:1] * torch.eye(len(x), dtype=x.dtype))
        variance = 1 / inverse.diagonal()
        residual = inverse @ y * variance
        return -0.5 * (residual.square() / variance + variance.log() + math.log(2 * math.pi))


def symmetry_gain(train_X: Tensor, train_Y: Tensor, group: Group, **options: Any) -> tuple[float, float]:
    """Mean gain in leave-one-out log density by the invariant process over the one without symmetry.

    Both have the same hyper-parameters, fitted without symmetry. Clearly positive: the symmetry helps to predict these
    data. Clearly negative: it does not hold. For few points in many dimensions neither process predicts and the answer
    is near 0.

    Args:
        train_X: Points (n, d), n >= 3.
        train_Y: Values (n, 1).
        group: The assumed group.
        **options: For `fitted`, such as ``base="rbf"`` or ``kernel="canonical"``.

    Returns:
        The gain in nats a point, and its standard error.

    Raises:
        ValueError: For fewer than 3 points.
    """
    if len(train_X) < 3:
        raise ValueError(f"train_X has {len(train_X)} points: at least 3 are needed to leave one out")
    symmetric = fitted(train_X, train_Y, group, **options)
    plain = fitted(train_X, train_Y, group, kernel="base", **{k: options[k] for k in ("base", "fit") if k in options})
    gain = _left_out(symmetric) - _left_out(plain)
    return float(gain.mean()), float(gain.std() / math.sqrt(len(gain)))
