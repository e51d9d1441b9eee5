"""PAN: a classifier picks from U what a discriminator cannot tell from P.

Hu, Le, Liu, Ji, Ma, Zhao, Yan, "Predictive Adversarial Learning from Positive and Unlabeled Data", AAAI 2021.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import Loss, Scores

if TYPE_CHECKING:
    from .training import Run


def pan_classifier(scores_u: Scores, scores_d: Scores, epsilon: float = 0.01) -> Loss:
    """What PAN's classifier descends on: m_U [log(1 - C + epsilon) - log(C + epsilon)] (2 D - 1).

    Args:
        scores_u: Logits f of the classifier C for unlabeled rows, shape (*lanes, n_u).
        scores_d: Logits g of the discriminator D for the same rows, shape (*lanes, n_u).
        epsilon: Bounds what a row that C is sure of still adds; 0 makes the bracket -f.

    Returns:
        Shape (*lanes,).
    """
    require(0 <= epsilon < 1, "epsilon", epsilon, "lie in [0, 1)")
    odds = -scores_u
    if epsilon > 0:
        odds = (torch.sigmoid(-scores_u) + epsilon).log() - (torch.sigmoid(scores_u) + epsilon).log()
    return (odds * torch.tanh(scores_d / 2)).mean(dim=-1)


def pan_discriminator(
    scores_d_p: Scores,
    scores_d_u: Scores,
    scores_u: Scores,
    weight: float = 1e-4,
    epsilon: float = 0.01,
    spare: bool = True,
) -> Loss:
    """What PAN's discriminator descends on: the negative of its objective.

    The objective is m_P log D + m_U max(log(1 - D) - log(1 - m_U D), 0) + weight * (the classifier's loss).

    Args:
        scores_d_p: Logits g of the discriminator D for labelled rows, shape (*lanes, n_p).
        scores_d_u: The same for unlabeled rows, shape (*lanes, n_u).
        scores_u: Logits f of the classifier for unlabeled rows, shape (*lanes, n_u); no gradient.
        weight: lambda.
        epsilon: As in `pan_classifier`.
        spare: Whether rows of U that D finds more positive than their mean are spared, as the max says; without it
            the middle term is m_U log(1 - D), and D tells P from all of U. No gradient flows through the mean.

    Returns:
        Shape (*lanes,).
    """
    log_rest = F.logsigmoid(-scores_d_u)  # log(1 - D)
    if spare:
        log_mean = torch.logsumexp(log_rest.detach(), dim=-1, keepdim=True) - math.log(log_rest.shape[-1])
        log_rest = (log_rest - log_mean).clamp(min=0)
    objective = F.logsigmoid(scores_d_p).mean(dim=-1) + log_rest.mean(dim=-1)
    return -objective - weight * pan_classifier(scores_u.detach(), scores_d_u, epsilon)


class PAN(Algorithm):
    """A step of the discriminator on P and U, then one of the classifier on U against it.

    The classifier never sees P, nor pi. Means stand for sums over a batch, and the classifier descends on its term
    without lambda: either changes a net's learning rate only, and lambda is 0.0001.

    `spare` is as in the benchmark's release; code by others has the plain logarithm. With it, as long as D finds most
    of U positive, so does the classifier; at learning rates above the default, where it gets sure of that, it stays
    there. At the default it is the better one: 0.72 against 0.67 accuracy on letters in trials of three seeds. Without
    it all rates train.

    Args:
        weight: lambda, of the classifier's term in the discriminator's objective.
        epsilon: Added inside the logarithms of the classifier's term, as in the benchmark's release. Without it the
            term is linear in f, and the many rows that D rejects decide for all.
        spare: Whether the discriminator spares rows of U above their mean; see `pan_discriminator`.
    """

    puts_back = "never"

    def __init__(self, weight: float = 1e-4, epsilon: float = 0.01, spare: bool = True) -> None:
        require(weight >= 0, "weight", weight, "be at least 0")
        require(0 <= epsilon < 1, "epsilon", epsilon, "lie in [0, 1)")
        self.weight, self.epsilon, self.spare = weight, epsilon, spare

    def begin(self, run: Run) -> None:
        """Make the discriminator."""
        run.add_net("discriminator")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """Step of the discriminator; then the classifier's loss."""
        (f_u,) = run.scores(batch.x_u)
        d_p, d_u = run.scores(batch.x_p, batch.x_u, net="discriminator")
        run.step(pan_discriminator(d_p, d_u, f_u, self.weight, self.epsilon, self.spare), "discriminator")
        with torch.no_grad():
            (d_u,) = run.scores(batch.x_u, net="discriminator")
        return pan_classifier(f_u, d_u, self.epsilon)
