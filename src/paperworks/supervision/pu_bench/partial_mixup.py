"""P3MIX: unsure unlabeled rows are mixed with labelled rows near the boundary.

Li, Li, Feng, Ouyang, "Who Is Your Right Mixup Partner in Positive and Unlabeled Learning", ICLR 2022. Trained as P
against U, the boundary lies too far on the positive side; such partners push it back. P3MIX-E adds early-learning
regularisation (Liu et al., NeurIPS 2020) towards a teacher, P3MIX-C relabels rows of U that look positive.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from .base import Algorithm, Batch, require
from .losses import Loss, Scores, binary_entropy, soft_ce
from .teacher import Teacher

if TYPE_CHECKING:
    from .training import Run


def p3mix_pool(scores_p: Scores, size: int = 96) -> Int[Tensor, "*lanes size"]:
    """Candidate partners: the labelled rows with the highest entropy, so those nearest to the boundary.

    Args:
        scores_p: f of all labelled rows, shape (*lanes, n_p).
        size: How many, at most n_p.

    Returns:
        Row numbers, shape (*lanes, min(size, n_p)).
    """
    require(size >= 1, "size", size, "be at least 1")
    return scores_p.abs().topk(min(size, scores_p.shape[-1]), dim=-1, largest=False).indices


def p3mix_unsure(scores_u: Scores, gamma: float = 0.85) -> Bool[Tensor, "*lanes n_u"]:
    """Rows of U whose partner comes from the pool: 1 - gamma < p < gamma.

    Args:
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        gamma: In (0.5, 1).

    Returns:
        Shape (*lanes, n_u).
    """
    require(0.5 < gamma < 1, "gamma", gamma, "lie strictly between 0.5 and 1")
    return scores_u.abs() < math.log(gamma / (1 - gamma))


def p3mix(scores_p: Scores, scores_u: Scores, target_p: Scores, target_u: Scores, entropy: float = 0.1) -> Loss:
    """P3MIX's loss of mixed rows: m_P CE + m_U CE to mixed labels + entropy * mean entropy of all.

    Args:
        scores_p: f of mixed rows whose first part is labelled, shape (*lanes, n_p).
        scores_u: The same of those whose first part is unlabeled, shape (*lanes, n_u).
        target_p: Mixed labels, in [0, 1], shape (*lanes, n_p).
        target_u: The same, shape (*lanes, n_u).
        entropy: Weight of the entropy.

    Returns:
        Shape (*lanes,).
    """
    fit = soft_ce(scores_p, target_p).mean(dim=-1) + soft_ce(scores_u, target_u).mean(dim=-1)
    return fit + entropy * binary_entropy(torch.cat([scores_p, scores_u], dim=-1)).mean(dim=-1)


def elr(scores: Scores, target: Scores, least: float = 1e-4) -> Loss:
    """Early-learning regularisation: mean log(1 - <p, t>), which rewards agreement with a teacher.

    It is 0 for rows that contradict a sure teacher outright, and unbounded below where both are sure; so p is kept in
    [least, 1 - least], beyond which the gradient vanishes.

    Args:
        scores: f, shape (*lanes, n).
        target: The teacher's p(y = +1 | x), shape (*lanes, n); no gradient.
        least: Least probability.

    Returns:
        Shape (*lanes,).
    """
    require(0 < least < 0.5, "least", least, "lie strictly between 0 and 0.5")
    bound = math.log((1 - least) / least)
    f, target = scores.clamp(-bound, bound), target.detach()
    tiny = torch.finfo(target.dtype).tiny
    # 1 - <p, t> = p (1 - t) + (1 - p) t
    against = F.logsigmoid(f) + (1 - target).clamp(min=tiny).log()
    return torch.logaddexp(against, F.logsigmoid(-f) + target.clamp(min=tiny).log()).mean(dim=-1)


class P3Mix(Algorithm):
    """What both share: plain mixup at first, then partners from the pool for unsure rows.

    It needs no prior, and no calibration: U is taken for negative. With as many rows of P as of U in a batch, the
    boundary of P against U is already right at pi = 1/2; partners from the pool then push it too far, and plain mixup,
    ``start=1``, can be better. One mixing weight a batch, max(l, 1 - l) with l ~ Beta(alpha, alpha), mixes inputs. All
    algorithms here share a constant learning rate; the release halves it.

    Args:
        gamma: Probability up to which a row is unsure.
        entropy: Weight of the entropy.
        pool: Size of the pool, which is chosen anew with every pass over U.
        start: Share of `max_steps` of plain mixup: 5 epochs of about 100.
        alpha: Of the Beta distribution.
    """

    puts_back = "never"

    def __init__(self, gamma: float, entropy: float, pool: int = 96, start: float = 0.05, alpha: float = 1.0) -> None:
        require(0.5 < gamma < 1, "gamma", gamma, "lie strictly between 0.5 and 1")
        require(entropy >= 0, "entropy", entropy, "be at least 0")
        require(pool >= 1, "pool", pool, "be at least 1")
        require(0 <= start <= 1, "start", start, "lie in [0, 1]")
        require(alpha > 0, "alpha", alpha, "be greater than 0")
        self.gamma, self.entropy, self.pool, self.start, self.alpha = gamma, entropy, pool, start, alpha

    def epoch(self, run: Run) -> None:
        """Choose the pool."""
        self.rows = p3mix_pool(run.score_all(run.x_p), self.pool)

    def mixing(self, run: Run) -> Tensor:
        """The mixing weight of every lane, shape (lanes, 1)."""
        share = run.beta(self.alpha)
        return torch.maximum(share, 1 - share)[:, None]

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """P3MIX's loss of mixed rows, and what the variant adds."""
        x, n_p, n_u = torch.cat([batch.x_p, batch.x_u], dim=1), batch.x_p.shape[1], batch.x_u.shape[1]
        late = run.done >= self.start * run.max_steps
        label = torch.zeros_like(x[..., 0])
        label[:, :n_p] = 1
        unsure = torch.zeros_like(label, dtype=torch.bool)
        if late:
            with torch.no_grad():
                (f_u,) = run.scores(batch.x_u)
            unsure[:, n_p:] = p3mix_unsure(f_u, self.gamma)
            label[:, n_p:] = self.correct(f_u)
        order = run.permutation(n_p + n_u)
        other, other_label = x.gather(1, order[..., None].expand_as(x)), label.gather(1, order)
        if late:
            draw = run.permutation(max(n_p + n_u, self.rows.shape[1]))[:, : n_p + n_u] % self.rows.shape[1]
            near = run.x_p.gather(1, self.rows.gather(1, draw)[..., None].expand_as(x))
            other, other_label = torch.where(unsure[..., None], near, other), torch.where(unsure, 1, other_label)
        share = self.mixing(run)
        (f,) = run.scores(share[..., None] * x + (1 - share[..., None]) * other)
        target = share * label + (1 - share) * other_label
        loss = p3mix(f[:, :n_p], f[:, n_p:], target[:, :n_p], target[:, n_p:], self.entropy)
        return loss + self.extra(run, f, x, order, unsure, share)

    def correct(self, scores_u: Tensor) -> Tensor:
        """Labels of unlabeled rows, shape (lanes, n_u)."""
        return torch.zeros_like(scores_u)

    def extra(
        self, run: Run, scores: Tensor, x: Tensor, order: Tensor, unsure: Tensor, share: Tensor
    ) -> Tensor | float:
        """What a variant adds to the loss."""
        return 0.0


class P3MixE(P3Mix):
    """P3MIX with early-learning regularisation towards a teacher's mixed predictions; partners of the pool count 1.

    The teacher moves once an epoch of about 100, as in the benchmark's release; with every step, as in ELR+, it follows
    the net closely. Teacher and regularisation start late: at this weight the regularisation makes a net sure of its
    first guesses if it is there before the net has learned anything. The release starts at once.

    Args:
        gamma: Probability up to which a row is unsure.
        entropy: Weight of the entropy.
        elr: Weight of the regularisation.
        decay: Decay of the teacher.
        move_every: Share of `max_steps` between two moves of the teacher.
        elr_start: Share of `max_steps` after which teacher and regularisation start.
        options: Of `P3Mix`.
    """

    def __init__(
        self,
        gamma: float = 0.85,
        entropy: float = 0.5,
        elr: float = 5.0,
        decay: float = 0.997,
        move_every: float = 0.01,
        elr_start: float = 0.2,
        **options: Any,
    ) -> None:
        super().__init__(gamma, entropy, **options)
        require(elr >= 0, "elr", elr, "be at least 0")
        require(0 <= decay < 1, "decay", decay, "lie in [0, 1)")
        require(0 < move_every <= 1, "move_every", move_every, "lie in (0, 1]")
        require(0 <= elr_start <= 1, "elr_start", elr_start, "lie in [0, 1]")
        self.elr, self.decay, self.move_every, self.elr_start = elr, decay, move_every, elr_start

    def begin(self, run: Run) -> None:
        """Make the teacher."""
        self.teacher = Teacher(run, "teacher", decay=self.decay)

    def extra(
        self, run: Run, scores: Tensor, x: Tensor, order: Tensor, unsure: Tensor, share: Tensor
    ) -> Tensor | float:
        """The regularisation."""
        late = run.done - math.ceil(self.elr_start * run.max_steps)
        if late < 0:
            return 0.0
        if late % max(1, round(self.move_every * run.max_steps)) == 0:
            self.teacher.update()
        with torch.no_grad():
            (f,) = run.scores(x, net="teacher")
        taught = torch.sigmoid(f)
        partner = torch.where(unsure, 1, taught.gather(1, order))
        return self.elr * elr(scores, share * taught + (1 - share) * partner)


class P3MixC(P3Mix):
    """P3MIX with corrected labels: rows of U with p >= gamma count as positive.

    Args:
        gamma: Probability up to which a row is unsure, and from which one of U is relabelled.
        entropy: Weight of the entropy.
        options: Of `P3Mix`.
    """

    def __init__(self, gamma: float = 0.8, entropy: float = 0.1, **options: Any) -> None:
        super().__init__(gamma, entropy, **options)

    def correct(self, scores_u: Tensor) -> Tensor:
        """1 where p >= gamma."""
        return (scores_u >= math.log(self.gamma / (1 - self.gamma))).to(scores_u.dtype)
