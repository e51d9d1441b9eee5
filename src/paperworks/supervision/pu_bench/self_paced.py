"""Robust-PU: nnPU first, then P against U with weights that let easy rows in before hard ones.

Zhu, Wang, Zhao, Du, Zhang, Dong, Qiao, Lin, Rajmohan, Zhang, "Robust Positive-Unlabeled Learning via Noise Negative
Sample Self-correction", KDD 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import Loss, Scores, nnpu

if TYPE_CHECKING:
    from .training import Run


def self_paced_weights(scores: Scores, sign: int, threshold: float, temperature: float = 1.0) -> Scores:
    """Welsch weights exp(-hardness / threshold^2), where hardness is the logistic loss of f / temperature.

    Args:
        scores: f, shape (*lanes, n); no gradient.
        sign: +1 for labelled rows, -1 for unlabeled ones, whose weight falls the more positive they look.
        threshold: The larger, the more even the weights.
        temperature: Smooths scores.

    Returns:
        Shape (*lanes, n), in [0, 1].
    """
    require(threshold > 0, "threshold", threshold, "be greater than 0")
    require(temperature > 0, "temperature", temperature, "be greater than 0")
    return torch.exp(-F.softplus(-sign * scores.detach() / temperature) / threshold**2)


def paced_threshold(update: int, first: float, last: float, updates: int) -> float:
    """The threshold at an update: linear from `first` to `last`, where it stays.

    Args:
        update: Number of the update, from 0.
        first: At update 0.
        last: From update `updates` on.
        updates: How many updates the growth takes.

    Returns:
        The threshold.
    """
    return first + (last - first) * min(1.0, update / updates)


def robust_pu(scores_p: Scores, scores_u: Scores, weights_p: Scores, weights_u: Scores) -> Loss:
    """Robust-PU's loss: m_P w CE+ + m_U w CE-; twice the naive loss where all weights are 1.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        weights_p: Weights of the rows, in [0, 1], shape (*lanes, n_p); they need not sum to 1.
        weights_u: The same, shape (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    return (weights_p * F.softplus(-scores_p)).mean(dim=-1) + (weights_u * F.softplus(scores_u)).mean(dim=-1)


class RobustPU(Algorithm):
    """Warm-up by nnPU, then training with self-paced weights that are set anew from time to time.

    The hardness of an unlabeled row is its loss as a negative, as in the authors' code; the benchmark's release has
    its loss as a positive there, which lets in what looks positive. P and U have equal weight, as in all batches here.

    Args:
        update_every: Share of `max_steps` between updates of the weights: 5 epochs of about 100.
        updates: Updates over which thresholds grow.
        first_p: First threshold of P.
        first_u: First threshold of U.
        last_p: Last threshold of P.
        last_u: Last threshold of U.
        temperature_p: Of the hardness of P.
        temperature_u: Of the hardness of U.
        options: Of `nnpu` in the warm-up, such as ``loss``.
    """

    puts_back = "weights"

    def __init__(
        self,
        update_every: float = 0.05,
        updates: int = 5,
        first_p: float = 0.1,
        first_u: float = 0.11,
        last_p: float = 1.0,
        last_u: float = 1.0,
        temperature_p: float = 1.0,
        temperature_u: float = 1.3,
        **options: Any,
    ) -> None:
        require(0 < update_every <= 1, "update_every", update_every, "lie in (0, 1]")
        require(updates >= 1, "updates", updates, "be at least 1")
        for name, value in (
            ("first_p", first_p),
            ("first_u", first_u),
            ("last_p", last_p),
            ("last_u", last_u),
            ("temperature_p", temperature_p),
            ("temperature_u", temperature_u),
        ):
            require(value > 0, name, value, "be greater than 0")
        self.update_every, self.updates, self.options = update_every, updates, options
        self.pace_p, self.pace_u = (first_p, last_p, updates), (first_u, last_u, updates)
        self.temperature_p, self.temperature_u = temperature_p, temperature_u

    def begin(self, run: Run) -> None:
        """Train by nnPU."""
        for _ in range(run.warmup_steps):
            batch = run.draw()
            run.step(run.risk(nnpu, *run.scores(batch.x_p, batch.x_u), **self.options))

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """The weighted loss, after an update of the weights when one is due."""
        update, late = divmod(run.done, max(1, round(self.update_every * run.max_steps)))
        if not late:
            pace_p, pace_u = paced_threshold(update, *self.pace_p), paced_threshold(update, *self.pace_u)
            self.weights_p = self_paced_weights(run.score_all(run.x_p), 1, pace_p, self.temperature_p)
            self.weights_u = self_paced_weights(run.score_all(run.x_u), -1, pace_u, self.temperature_u)
        f_p, f_u = run.scores(batch.x_p, batch.x_u)
        return robust_pu(f_p, f_u, self.weights_p.gather(1, batch.rows_p), self.weights_u.gather(1, batch.rows_u))
