"""PULDA: Dist-PU's label-distribution loss with running means, a margin, and mixup with remembered pseudo labels.

Jiang, Xu, Zhao, Yang, Wen, Cao, Huang, "Positive-Unlabeled Learning With Label Distribution Alignment", TPAMI 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import Loss, Scores, mean_over, soft_ce

if TYPE_CHECKING:
    from .training import Run


class RunningMeans(NamedTuple):
    """What PULDA averages over batches; without gradient, each of shape (*lanes,).

    Attributes:
        predicted: Mean of sigmoid(f) over U.
        margin_p: Mean of the negative margin loss over P.
        margin_u: Mean of the negative margin loss over U.
    """

    predicted: Tensor
    margin_p: Tensor
    margin_u: Tensor


def softplus_distance(a: Tensor, b: Tensor | float, temperature: float = 3.5) -> Tensor:
    """Smooth |a - b|, up to a constant: (log(1 + e^(t d)) + log(1 + e^(-t d))) / t with d = a - b.

    Args:
        a: Any shape.
        b: Broadcasts against it.
        temperature: t; the larger, the nearer to |a - b|, with the least value 2 log(2) / t.

    Returns:
        Shape of a - b.
    """
    require(temperature > 0, "temperature", temperature, "be greater than 0")
    return F.softplus(a - b, beta=temperature) + F.softplus(b - a, beta=temperature)


def margin_loss(scores: Scores, sign: int, margin: float = 0.6) -> Scores:
    """Two-way sigmoid loss: sigmoid(z) sigmoid(margin - z) with z = sign * f; least far from the boundary.

    Args:
        scores: f, shape (*lanes, n).
        sign: +1 or -1.
        margin: Where the loss starts to fall, on the right side of the boundary.

    Returns:
        Shape (*lanes, n).
    """
    return torch.sigmoid(sign * scores) * torch.sigmoid(margin - sign * scores)


def pulda(
    scores_p: Scores,
    scores_u: Scores,
    prior: float,
    before: RunningMeans | None = None,
    momentum: float = 0.85,
    temperature: float = 3.5,
    margin: float | None = 0.6,
    margin_momentum: float = 0.5,
    weights_u: Tensor | None = None,
) -> tuple[Loss, RunningMeans]:
    """PULDA's loss of a batch, and the running means that it leaves.

    Alignment: 2 pi (1 - m_P p) + D(M, pi) / (1 - momentum), where M = momentum * (M before) + (1 - momentum) m_U p is
    a running mean, through which the gradient flows for this batch alone; the division restores its size.
    Margin: pi m_P l+ + D'(M_U, pi M_P) / (1 - margin_momentum), with running means of the negative margin loss over U
    and P and D' of temperature 1. The first batch has no past, and no division.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        before: The running means of the batch before; ``None`` at first.
        momentum: alpha_U, in [0, 1).
        temperature: Of D, `softplus_distance`.
        margin: Of `margin_loss`; ``None`` leaves the margin terms out.
        margin_momentum: alpha_CN, in [0, 1).
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        The loss, shape (*lanes,), and the new running means.
    """
    require(0 < prior < 1, "prior", prior, "lie strictly between 0 and 1")
    require(0 <= momentum < 1, "momentum", momentum, "lie in [0, 1)")
    require(0 <= margin_momentum < 1, "margin_momentum", margin_momentum, "lie in [0, 1)")
    width = 0.0 if margin is None else margin
    means = RunningMeans(
        mean_over(torch.sigmoid(scores_u), weights_u),
        margin_loss(scores_p, -1, width).mean(dim=-1),
        mean_over(margin_loss(scores_u, -1, width), weights_u),
    )
    scale = margin_scale = 1.0
    if before is not None:
        momenta = momentum, margin_momentum, margin_momentum
        means = RunningMeans(*(a * old + (1 - a) * new for a, old, new in zip(momenta, before, means, strict=True)))
        scale, margin_scale = 1 / (1 - momentum), 1 / (1 - margin_momentum)
    # 1 - m_P p without rounding near p = 1
    loss = 2 * prior * torch.sigmoid(-scores_p).mean(dim=-1)
    loss = loss + softplus_distance(means.predicted, prior, temperature) * scale
    if margin is not None:
        loss = loss + prior * margin_loss(scores_p, 1, margin).mean(dim=-1)
        loss = loss + softplus_distance(means.margin_u, prior * means.margin_p, 1.0) * margin_scale
    return loss, RunningMeans(*(value.detach() for value in means))


class PULDA(Algorithm):
    """Alignment; from the middle of the training on also mixup of P and U, with each row's latest prediction for label.

    Both stages share one learning rate and have no schedule; scores are not clamped to [-10, 10] as in the authors'
    code, where that keeps a logarithm finite. Running means start anew with the second stage, as there. Its stages are
    equally long in the authors' code, 60 epochs each; in the benchmark's release the first has 2,000 of 22,000 steps.

    The authors and the benchmark have temperature 3.5 and margin 0.6; here they are 20 and ``None``. At a constant p
    near 1 the loss pulls down with tanh(t (1 - pi) / 2) and pushes up with 2 pi. At 3.5 and pi of 0.4 or more the push
    wins: a plain net, with batch normalisation too, calls everything positive before it has learned to tell rows
    apart, and the margin loss, least far from the boundary on either side, hastens it. With pi of 0.3 or less the
    authors' numbers work. At 20 both nearly cancel at pi = 1/2, and learning is slow at first; above 1/2 the push wins
    at any temperature.

    Args:
        momentum: Of the mean prediction over U.
        temperature: Of the distance to pi.
        margin: Of the two-way sigmoid loss; ``None`` leaves it out.
        margin_momentum: Of the means of that.
        start: Share of `max_steps` after which mixup starts.
        mixup: Weight of the mixup loss.
        alpha: Mixup weights are drawn from Beta(alpha, alpha).
    """

    puts_back = "weights"

    def __init__(
        self,
        momentum: float = 0.85,
        temperature: float = 20.0,
        margin: float | None = None,
        margin_momentum: float = 0.5,
        start: float = 0.5,
        mixup: float = 4.2,
        alpha: float = 11.0,
    ) -> None:
        require(0 <= momentum < 1, "momentum", momentum, "lie in [0, 1)")
        require(0 <= margin_momentum < 1, "margin_momentum", margin_momentum, "lie in [0, 1)")
        require(temperature > 0, "temperature", temperature, "be greater than 0")
        require(0 <= start <= 1, "start", start, "lie in [0, 1]")
        require(mixup >= 0, "mixup", mixup, "be at least 0")
        require(alpha > 0, "alpha", alpha, "be greater than 0")
        self.options = {
            "momentum": momentum,
            "temperature": temperature,
            "margin": margin,
            "margin_momentum": margin_momentum,
        }
        self.start, self.mixup, self.alpha = start, mixup, alpha

    def begin(self, run: Run) -> None:
        """Nothing is remembered yet."""
        self.means: RunningMeans | None = None
        self.pseudo: Tensor | None = None

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """Alignment, and mixup when it is time."""
        late = run.done >= self.start * run.max_steps
        if late and self.pseudo is None:
            self.pseudo, self.means = torch.sigmoid(run.score_all(run.x_u)), None
        if self.pseudo is None:
            f_p, f_u = run.scores(batch.x_p, batch.x_u)
            extra: Tensor | float = 0.0
        else:
            label = torch.cat([torch.ones_like(batch.x_p[..., 0]), self.pseudo.gather(1, batch.rows_u)], dim=1)
            x = torch.cat([batch.x_p, batch.x_u], dim=1)
            order = run.permutation(x.shape[1])
            share = run.beta(self.alpha)[:, None]
            mixed = share[..., None] * x + (1 - share[..., None]) * x.gather(1, order[..., None].expand_as(x))
            target = share * label + (1 - share) * label.gather(1, order)
            f_p, f_u, f_mix = run.scores(batch.x_p, batch.x_u, mixed)
            self.pseudo.scatter_(1, batch.rows_u, torch.sigmoid(f_u.detach()))
            extra = self.mixup * soft_ce(f_mix, target).mean(dim=-1)
        aligned, self.means = run.risk(pulda, f_p, f_u, before=self.means, **self.options)
        return aligned + extra
