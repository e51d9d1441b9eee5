"""HolisticPU: pseudo labels from the trend of each unlabeled row's prediction during a warm-up.

Wang, Wan, Geng, Li, Chen, "Beyond Myopia: Learning from Positive and Unlabeled Data through Holistic Predictive
Trends", NeurIPS 2023. Trained against P, the prediction of an unlabeled negative falls, that of a positive does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import Loss, Scores, soft_ce
from .teacher import Teacher

if TYPE_CHECKING:
    from .training import Run


def trend_score(predictions: Float[Tensor, "*lanes n records"]) -> Float[Tensor, "*lanes n"]:
    """Robust mean of the changes d of a prediction from record to record: mean log(1 + d + d^2 / 2).

    This is what HolisticPU's authors run and call the simplified trend score.

    Args:
        predictions: p(y = +1 | x) of every row at every record, in order, shape (*lanes, n, records).

    Returns:
        Shape (*lanes, n).
    """
    require(predictions.shape[-1] >= 2, "predictions", tuple(predictions.shape), "have at least 2 records")
    change = predictions.diff(dim=-1)
    return torch.log1p(change + change.square() / 2).mean(dim=-1)


def fisher_break(values: Float[Tensor, "*lanes n"]) -> Float[Tensor, " *lanes"]:
    """Fisher's natural break into two classes: the largest value of the lower class.

    The break minimises the squared distances to the means of the classes. With two classes it is one of n - 1 places
    in the order of the values, and prefix sums give all of them in O(n log n).

    Args:
        values: Shape (*lanes, n), n >= 1.

    Returns:
        Shape (*lanes,); values above it form the upper class, which is empty when all values are equal.
    """
    ordered = values.double().sort(dim=-1).values
    n = ordered.shape[-1]
    centred = ordered - ordered.mean(dim=-1, keepdim=True)
    below = centred.cumsum(dim=-1)[..., :-1]
    size = torch.arange(1, n, device=values.device, dtype=torch.float64)
    # Total less within-class squares: S_k^2 / k + S_k^2 / (n - k), as the centred values sum to 0.
    between = below.square() * (1 / size + 1 / (n - size))
    between = torch.where(ordered[..., 1:] > ordered[..., :-1], between, -1.0)  # equal values stay together
    if n == 1:
        return values[..., 0]
    place = torch.where(between.amax(dim=-1) < 0, n - 1, between.argmax(dim=-1))
    return ordered.gather(-1, place[..., None])[..., 0].to(values.dtype)


def trend_labels(scores: Float[Tensor, "*lanes n"], limit: float) -> Bool[Tensor, "*lanes n"]:
    """Pseudo labels: rows with a trend score above the break.

    When the break is above 0, outliers have drawn it up; it is sought again among the scores below `limit`.

    Args:
        scores: From `trend_score`, shape (*lanes, n).
        limit: What counts as an outlier.

    Returns:
        Shape (*lanes, n); True for presumed positives.
    """
    labels = []
    for row in scores.reshape(-1, scores.shape[-1]):
        cut = fisher_break(row)
        usual = row[row < limit]
        if cut > 0 and len(usual):
            cut = fisher_break(usual)
        labels.append(row > cut)
    return torch.stack(labels).reshape(scores.shape)


def holistic_warmup(scores_p: Scores, scores_u: Scores, smoothing: float = 0.1) -> Loss:
    """HolisticPU's warm-up: P against U, batches of one size, labels of P smoothed to 1 - smoothing / 2.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        smoothing: Weight of the uniform label.

    Returns:
        Shape (*lanes,).
    """
    smooth = torch.full_like(scores_p, 1 - smoothing / 2)
    return soft_ce(scores_p, smooth).mean(dim=-1) + F.softplus(scores_u).mean(dim=-1)


def holistic_pu(
    scores_p: Scores,
    scores_u: Scores,
    pseudo: Scores,
    share: float,
    scores_strong: Scores | None = None,
    confidence: float = 0.9,
) -> Loss:
    """HolisticPU's second stage: m_P CE+ + m_U CE to the label lambda * pseudo + (1 - lambda) * 0, plus consistency.

    The consistency is cross-entropy of a second view of U to the class that the first finds with at least the
    confidence; other rows count 0.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        pseudo: Their pseudo labels, 1 or 0, shape (*lanes, n_u).
        share: lambda, the weight of pseudo labels, in [0, 1].
        scores_strong: f of another view of the same unlabeled rows, shape (*lanes, n_u); ``None`` for the same view.
        confidence: Probability from which a row's own class is its target; above 1 for no row.

    Returns:
        Shape (*lanes,).
    """
    require(0 <= share <= 1, "share", share, "lie in [0, 1]")
    sure = torch.sigmoid(scores_u.detach().abs()) >= confidence
    view = scores_u if scores_strong is None else scores_strong
    consistency = torch.where(sure, soft_ce(view, (scores_u.detach() >= 0).to(view.dtype)), 0.0)
    fit = soft_ce(scores_u, share * pseudo.to(scores_u.dtype))
    return F.softplus(-scores_p).mean(dim=-1) + (fit + consistency).mean(dim=-1)


class HolisticPU(Algorithm):
    """A first net is warmed up as P against U; the trends of its teacher's predictions label U for a second net.

    It needs no prior, and no calibration: its warm-up is the naive classifier, its break follows the scores of U.
    Tables have no augmentation, as in the benchmark: both views are the row itself unless `augment` is given. The
    net that is chosen from is the second net, as in the authors' code; the benchmark's release takes its average. The
    warm-up's average forgets its random start, see `Teacher`: theirs, over 2,000 steps and more, need not. No
    learning-rate schedule and no Nesterov momentum: all algorithms here share one optimizer.

    Args:
        records: Records of the predictions, evenly over the warm-up (10 epochs of the benchmark's 2,000 steps). The
            warm-up has at least two steps, so that there is a trend.
        smoothing: Label smoothing of P in the warm-up.
        decay: Decay of the warm-up's teacher.
        jump: A prediction that rises by so much over all records counts as an outlier in a second search for the break.
        power: lambda is (share of the stage that is over) ** power.
        confidence: Of the consistency term.
        augment: Makes another view of rows (lanes, n, features).
    """

    puts_back = "never"

    def __init__(
        self,
        records: int = 10,
        smoothing: float = 0.1,
        decay: float = 0.999,
        jump: float = 0.2,
        power: float = 0.8,
        confidence: float = 0.9,
        augment: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        require(records >= 2, "records", records, "be at least 2")
        require(0 <= smoothing <= 1, "smoothing", smoothing, "lie in [0, 1]")
        require(0 <= decay < 1, "decay", decay, "lie in [0, 1)")
        require(power > 0, "power", power, "be greater than 0")
        require(confidence >= 0.5, "confidence", confidence, "be at least 0.5")
        self.records, self.smoothing, self.decay, self.jump = records, smoothing, decay, jump
        self.power, self.confidence, self.augment = power, confidence, augment

    def begin(self, run: Run) -> None:
        """Warm the first net up, record, label."""
        run.add_net("warm")
        teacher = Teacher(run, "warm teacher", "warm", self.decay)
        steps = max(2, run.warmup_steps)
        records = min(self.records, steps)
        when = {math.ceil(steps * (i + 1) / records) for i in range(records)}
        predictions = []
        for step in range(1, steps + 1):
            batch = run.draw()
            views = [batch.x_p] if self.augment is None else [batch.x_p, self.augment(batch.x_p)]
            f_u, *f_p = run.scores(batch.x_u, *views, net="warm")
            loss = torch.stack([holistic_warmup(f, f_u, self.smoothing) for f in f_p]).mean(dim=0)
            run.step(loss, "warm")
            teacher.update()
            if step in when:
                predictions.append(torch.sigmoid(run.score_all(run.x_u, net="warm teacher").double()))
        trends = trend_score(torch.stack(predictions, dim=-1))
        self.pseudo = trend_labels(trends, self.jump / (records - 1)).to(run.x_u.dtype)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """The second stage's loss."""
        views = [] if self.augment is None else [self.augment(batch.x_u)]
        f_p, f_u, *other = run.scores(batch.x_p, batch.x_u, *views)
        strong = other[0] if other else None
        share = (run.done / run.max_steps) ** self.power
        pseudo = self.pseudo.gather(1, batch.rows_u)
        return holistic_pu(f_p, f_u, pseudo, share, strong, self.confidence)
