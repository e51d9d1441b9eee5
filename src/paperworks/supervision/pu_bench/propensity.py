"""PUe: uPU with labelled rows weighted by the inverse of an estimated propensity to be labelled.

Wang, Chen, Guo, Wang, "PUe: Biased Positive-Unlabeled Learning Enhancement by Causal Inference", NeurIPS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import BaseLoss, Loss, Scores, base_loss, mean_over, union_weights

if TYPE_CHECKING:
    from .training import Run


def inverse_propensity_weights(scores_propensity: Scores) -> Scores:
    """Normalised inverse-propensity weights of labelled rows: (1 / e_i) / sum_j (1 / e_j), with e = sigmoid(g).

    Args:
        scores_propensity: Logits g of the propensity to be labelled, shape (*lanes, n_p).

    Returns:
        Shape (*lanes, n_p); they sum to 1. Where a propensity underflows they stay finite.
    """
    return torch.softmax(F.softplus(-scores_propensity), dim=-1)  # log 1/e = softplus(-g)


def pue_propensity(
    scores_p: Scores, scores_u: Scores, labelled_share: float | None = None, penalty: float = 0.1
) -> Loss:
    """Loss of PUe's propensity net: cross-entropy of labelled or not, plus penalty * |sum e - n_P|.

    Args:
        scores_p: Logits g of labelled rows, shape (*lanes, n_p).
        scores_u: Logits g of unlabeled rows, shape (*lanes, n_u).
        labelled_share: Share of labelled rows in the data, which all means follow whatever their share of the batch;
            ``None`` when the batch has it. n_P is that share of the rows of the batch.
        penalty: alpha, weight of the penalty on the number of rows expected to be labelled; 15 in PUe's paper.

    Returns:
        Shape (*lanes,).
    """
    n_p, n_u = scores_p.shape[-1], scores_u.shape[-1]
    share = n_p / (n_p + n_u) if labelled_share is None else labelled_share
    require(0 < share < 1, "labelled_share", share, "lie strictly between 0 and 1")
    weights = union_weights(n_p, n_u, share).to(scores_p)
    fit = mean_over(torch.cat([F.softplus(-scores_p), F.softplus(scores_u)], dim=-1), weights)
    expected = mean_over(torch.sigmoid(torch.cat([scores_p, scores_u], dim=-1)), weights)
    return fit + penalty * (n_p + n_u) * (expected - share).abs()


def pue(
    scores_p: Scores,
    scores_u: Scores,
    prior: float,
    weights_p: Tensor | None = None,
    loss: BaseLoss = "ce",
    weights_u: Tensor | None = None,
) -> Loss:
    """PUe's risk: pi sum_P w l+ + m_U l- - pi sum_P w l-; `upu` where all w are 1 / n_p.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        weights_p: w, such as `inverse_propensity_weights`, shape (n_p,) or (*lanes, n_p); ``None`` for equal ones.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    require(0 < prior < 1, "prior", prior, "lie strictly between 0 and 1")
    rest = mean_over(base_loss(scores_p, 1, loss) - base_loss(scores_p, -1, loss), weights_p)
    return prior * rest + mean_over(base_loss(scores_u, -1, loss), weights_u)


class PUe(Algorithm):
    """A net learns who is labelled, in the warm-up; then inverse propensities weigh P in the risk of uPU.

    The weights sum to 1 over all labelled training rows, so a batch gives an unbiased estimate of the risk (in the
    benchmark's release they sum to 1 over those of a batch, which is a ratio of two estimates). Like PUe's paper it
    takes p(labelled | x) for the propensity p(labelled | y = 1, x), and adds no clamp to the risk.

    The penalty's weight is divided by the rows of a batch, like the cross-entropy beside it, which PUe's formula does
    not do: a kink of that size throws the net about, until a few rows of P have all the weight.

    Args:
        penalty: Weight of |sum e - n_P| / n over a batch of n rows, in which both parts weigh as in the data.
        options: ``loss``, the base loss.
    """

    puts_back = "weights"

    def __init__(self, penalty: float = 0.1, **options: Any) -> None:
        require(penalty >= 0, "penalty", penalty, "be at least 0")
        self.penalty, self.options = penalty, options

    def begin(self, run: Run) -> None:
        """Train the propensity net; weigh all labelled rows."""
        run.add_net("propensity")
        for _ in range(run.warmup_steps):
            batch = run.draw()
            g_p, g_u = run.scores(batch.x_p, batch.x_u, net="propensity")
            penalty = self.penalty / (g_p.shape[1] + g_u.shape[1])
            run.step(pue_propensity(g_p, g_u, run.labelled_share, penalty), "propensity")
        self.weights = inverse_propensity_weights(run.score_all(run.x_p, net="propensity")) * run.x_p.shape[1]

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """PUe's risk of the batch."""
        weights = self.weights.gather(1, batch.rows_p) / batch.rows_p.shape[1]
        return run.risk(pue, *run.scores(batch.x_p, batch.x_u), weights_p=weights, **self.options)
