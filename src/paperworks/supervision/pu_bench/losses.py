"""The losses of positive-unlabeled learning, as pure functions of real scores.

A score f is the difference of the two logits of a softmax head, so p(y = +1 | x) = sigmoid(f), and cross-entropy to
label +1 is softplus(-f). Everything is written in log space: no logarithm is taken of a probability that may be 0.

All functions treat the last axis as the batch and keep the axes before it ("lanes": models trained side by side), so a
loss has the shape of the lanes, and its sum over lanes gives every lane its own gradient. Symbols: pi the class prior,
P the labelled positives, U the unlabeled rows, m_P and m_U means over a batch, CE+ and CE- cross-entropy to +1 and -1.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

BaseLoss: TypeAlias = Literal["ce", "logistic", "sigmoid"]
Scores: TypeAlias = Float[Tensor, "*lanes n"]
Loss: TypeAlias = Float[Tensor, " *lanes"]

BASE_LOSSES = ("ce", "logistic", "sigmoid")


def base_loss(scores: Scores, sign: int, loss: BaseLoss = "ce") -> Scores:
    """Loss l(f, y) of every row.

    Args:
        scores: f, shape (*lanes, n).
        sign: The label y, +1 or -1.
        loss: "ce" is the cross-entropy of the two-logit head, which is the logistic loss of the difference of its
            logits ("logistic" names the same); "sigmoid" is sigmoid(-y f).

    Returns:
        Shape (*lanes, n).
    """
    if loss not in BASE_LOSSES:
        raise ValueError(f"loss must be one of {', '.join(BASE_LOSSES)}, got {loss!r}")
    return torch.sigmoid(-sign * scores) if loss == "sigmoid" else F.softplus(-sign * scores)


def mean_over(values: Scores, weights: Float[Tensor, "*lanes n"] | None = None) -> Loss:
    """Mean over the batch.

    Args:
        values: Shape (*lanes, n).
        weights: Weights of the rows that sum to 1, shape (n,) or (*lanes, n); ``None`` for equal ones.

    Returns:
        Shape (*lanes,).
    """
    return values.mean(dim=-1) if weights is None else (values * weights).sum(dim=-1)


def _check_prior(prior: float) -> None:
    if not 0 < prior < 1:
        raise ValueError(f"prior must lie strictly between 0 and 1, got {prior}")


def _risks(
    scores_p: Tensor, scores_u: Tensor, prior: float, loss: BaseLoss, weights_u: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return pi m_P l+ and the estimate m_U l- - pi m_P l- of the negative part, which can come out negative."""
    _check_prior(prior)
    positive = prior * base_loss(scores_p, 1, loss).mean(dim=-1)
    negative = mean_over(base_loss(scores_u, -1, loss), weights_u) - prior * base_loss(scores_p, -1, loss).mean(dim=-1)
    return positive, negative


def naive(
    scores_p: Scores, scores_u: Scores, prior: float = 0.5, loss: BaseLoss = "ce", weights_u: Tensor | None = None
) -> Loss:
    """P against U as if U were negative, both of weight 1/2: the trivial baseline.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: Not used; here so that every loss is called alike.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    return (base_loss(scores_p, 1, loss).mean(dim=-1) + mean_over(base_loss(scores_u, -1, loss), weights_u)) / 2


def upu(
    scores_p: Scores, scores_u: Scores, prior: float, loss: BaseLoss = "ce", weights_u: Tensor | None = None
) -> Loss:
    """Unbiased risk: pi m_P l+ + m_U l- - pi m_P l-. Unbounded below when l is.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    positive, negative = _risks(scores_p, scores_u, prior, loss, weights_u)
    return positive + negative


def nnpu(
    scores_p: Scores,
    scores_u: Scores,
    prior: float,
    loss: BaseLoss = "ce",
    weights_u: Tensor | None = None,
    beta: float = 0.0,
) -> Loss:
    """Non-negative risk: pi m_P l+ + max(-beta, m_U l- - pi m_P l-). PUSB trains with it too.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).
        beta: How far below 0 the negative part may go.

    Returns:
        Shape (*lanes,).
    """
    positive, negative = _risks(scores_p, scores_u, prior, loss, weights_u)
    return positive + negative.clamp(min=-beta)


def nnpu_ga(
    scores_p: Scores,
    scores_u: Scores,
    prior: float,
    loss: BaseLoss = "ce",
    weights_u: Tensor | None = None,
    beta: float = 0.0,
    gamma: float = 1.0,
) -> Loss:
    """Non-negative risk as first published: where the negative part r falls below -beta, descend on -gamma r instead.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).
        beta: Tolerance of the negative part.
        gamma: Size of the step back.

    Returns:
        Shape (*lanes,); its value is a training objective, not a risk.
    """
    positive, negative = _risks(scores_p, scores_u, prior, loss, weights_u)
    return torch.where(negative < -beta, -gamma * negative, positive + negative)


def pusb_threshold(scores_u: Scores, prior: float, weights_u: Tensor | None = None) -> Loss:
    """PUSB's threshold: the (1 - pi) quantile of the unlabeled training scores, so that a share pi lies at or above it.

    Args:
        scores_u: f of unlabeled training rows, shape (*lanes, n_u).
        prior: pi.
        weights_u: Weights of the rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    ordered, index = scores_u.sort(dim=-1)
    if weights_u is None:
        weights_u = torch.full_like(scores_u, 1 / scores_u.shape[-1])
    weight = weights_u.expand_as(scores_u).gather(-1, index)
    above = weight.flip(-1).cumsum(dim=-1).flip(-1)  # weight at or above each score
    place = ((above >= prior - 1e-6).sum(dim=-1) - 1).clamp(min=0)
    return ordered.gather(-1, place[..., None])[..., 0]


def pubn_eta(prob_u: Scores, prior: float, tau: float = 0.7, rho: float = 0.2) -> Loss:
    """PUbN's eta: the share tau (1 - pi - rho) of U with the least positive probability lies at or below it.

    Args:
        prob_u: s, estimated positive probabilities of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        tau: Share of the presumed negatives that count as sure.
        rho: Share of labelled negatives in PUbN's own setting.

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    share = tau * (1 - prior - rho)
    if not 0 < share < 1:
        raise ValueError(
            f"tau (1 - prior - rho) must lie in (0, 1), got {share:g}: choose rho < 1 - prior = {1 - prior:g}"
        )
    return torch.quantile(prob_u, share, dim=-1)


def pubn(
    scores_p: Scores,
    scores_u: Scores,
    prior: float,
    prob_p: Scores,
    prob_u: Scores,
    eta: Loss | float,
    loss: BaseLoss = "ce",
    weights_u: Tensor | None = None,
) -> Loss:
    """PUbN without labelled negatives, as its paper derives it.

    pi m_P l+ + m_U [s <= eta] (1 - s) l- + pi m_P [s > eta] l- (1 - s) / s. The last two terms estimate the negative
    part without bias for any s, so the last has a plus sign.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        prob_p: s, estimated positive probabilities of the labelled rows, shape (*lanes, n_p); no gradient.
        prob_u: The same for the unlabeled rows, shape (*lanes, n_u).
        eta: Threshold on s, shape (*lanes,) or a number.
        loss: The base loss.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    prob_p, prob_u = prob_p.detach(), prob_u.detach()
    cut = eta[..., None] if isinstance(eta, Tensor) else eta
    unsure = torch.where(prob_p > cut, (1 - prob_p) / prob_p.clamp(min=torch.finfo(prob_p.dtype).tiny), 0)
    sure = torch.where(prob_u <= cut, 1 - prob_u, 0)
    return (
        prior * base_loss(scores_p, 1, loss).mean(dim=-1)
        + mean_over(sure * base_loss(scores_u, -1, loss), weights_u)
        + prior * (unsure * base_loss(scores_p, -1, loss)).mean(dim=-1)
    )


def vpu(scores_p: Scores, scores_u: Scores, prior: float = 0.5, weights_u: Tensor | None = None) -> Loss:
    """Variational risk: log m_U phi - m_P log phi with phi = sigmoid(f). It needs no prior.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: Not used; here so that every loss is called alike.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    log_phi_u = F.logsigmoid(scores_u)
    log_weight = -math.log(scores_u.shape[-1]) if weights_u is None else weights_u.log()
    return torch.logsumexp(log_phi_u + log_weight, dim=-1) - F.logsigmoid(scores_p).mean(dim=-1)


def vpu_mixup(scores_mix: Scores, scores_partner: Scores, share: Float[Tensor, "*lanes 1"] | float) -> Loss:
    """VPU's regulariser: mean (log y_mix - log phi(x_mix))^2 where y_mix = lambda + (1 - lambda) phi(partner).

    Args:
        scores_mix: f of lambda x_p + (1 - lambda) x_u, shape (*lanes, n).
        scores_partner: f of the unlabeled x_u alone, shape (*lanes, n); no gradient flows into the target.
        share: lambda, the weight of the labelled row, shape (*lanes, 1) or a number in (0, 1).

    Returns:
        Shape (*lanes,).
    """
    share = torch.as_tensor(share, dtype=scores_mix.dtype, device=scores_mix.device)
    tiny = torch.finfo(scores_mix.dtype).tiny
    log_one = share.clamp(min=tiny).log().expand_as(scores_partner)
    target = torch.logaddexp(log_one, (1 - share).clamp(min=tiny).log() + F.logsigmoid(scores_partner.detach()))
    return (target - F.logsigmoid(scores_mix)).square().mean(dim=-1)


def cvir_keep(scores_u: Scores, prior: float) -> Tensor:
    """Rows of U that CVIR keeps: all but the pi n_u least negative ones.

    Args:
        scores_u: f of all unlabeled training rows, shape (*lanes, n_u).
        prior: pi.

    Returns:
        Row numbers, shape (*lanes, n_u - round(pi n_u)), at least one.
    """
    _check_prior(prior)
    count = scores_u.shape[-1]
    return scores_u.topk(max(1, count - round(prior * count)), dim=-1, largest=False).indices


def cvir(
    scores_p: Scores, scores_kept: Scores, prior: float, loss: BaseLoss = "ce", weights_u: Tensor | None = None
) -> Loss:
    """CVIR's loss once the presumed positives have been dropped: pi m_P l+ + (1 - pi) m_kept l-.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_kept: f of unlabeled rows that `cvir_keep` has kept, shape (*lanes, n).
        prior: pi.
        loss: The base loss.
        weights_u: Weights of the kept rows that sum to 1, shape (n,) or (*lanes, n).

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    kept = mean_over(base_loss(scores_kept, -1, loss), weights_u)
    return prior * base_loss(scores_p, 1, loss).mean(dim=-1) + (1 - prior) * kept


def dist_pu(scores_p: Scores, scores_u: Scores, prior: float, weights_u: Tensor | None = None) -> Loss:
    """Dist-PU's label-distribution loss with one bin: L_P + L_U / (2 pi).

    L_P and L_U are L1 distances of the two-bin soft histogram, (1 - m p, m p), to (0, 1) and to (1 - pi, pi).

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.
        weights_u: Weights of the unlabeled rows that sum to 1, shape (n_u,) or (*lanes, n_u).

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    far_p = 2 * torch.sigmoid(-scores_p).mean(dim=-1)  # 1 - m_P p without rounding near p = 1
    far_u = 2 * (mean_over(torch.sigmoid(scores_u), weights_u) - prior).abs()
    return far_p + far_u / (2 * prior)


def binary_entropy(scores: Scores) -> Scores:
    """Entropy of Bernoulli(sigmoid(f)) of every row, in nats.

    Args:
        scores: f, shape (*lanes, n).

    Returns:
        Shape (*lanes, n).
    """
    p = torch.sigmoid(scores)
    return p * F.softplus(-scores) + (1 - p) * F.softplus(scores)


def soft_ce(scores: Scores, target: Scores) -> Scores:
    """Cross-entropy of every row to a soft label.

    Args:
        scores: f, shape (*lanes, n).
        target: Probability of label +1, shape (*lanes, n).

    Returns:
        Shape (*lanes, n).
    """
    return target * F.softplus(-scores) + (1 - target) * F.softplus(scores)


def _count_tables(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log weights of j positives among the first i rows and among the last i rows, i = 0..n, j = 0..count.

    The weight of a row is e^f when it is positive and 1 when not, so a table holds elementary symmetric polynomials of
    the odds. Both directions run in one recursion, vectorised over j: n steps of a vector, in place of n * count.
    """
    n = scores.shape[-1]
    both = torch.stack([scores, scores.flip(-1)]).movedim(-1, 0)[..., None]  # (n, 2, *lanes, 1)
    table = scores.new_full((n + 1, 2, *scores.shape[:-1], count + 1), -math.inf)
    table[..., 0] = 0
    if count > 0:
        for i in range(n):
            torch.logaddexp(table[i, ..., 1:], table[i, ..., :-1] + both[i], out=table[i + 1, ..., 1:])
    return table[:, 0], table[:, 1]


class _CountLogProb(torch.autograd.Function):
    """Log P(exactly `count` positives), whose gradient in f_i is P(y_i = 1 | count) - p_i."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, count: int) -> Tensor:
        first, last = _count_tables(scores, count)
        ctx.save_for_backward(scores, _posterior(scores, first, last, count))
        return first[-1, ..., count] - F.softplus(scores).sum(dim=-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        scores, posterior = ctx.saved_tensors
        return grad[..., None] * (posterior - torch.sigmoid(scores)), None


def _posterior(scores: Tensor, first: Tensor, last: Tensor, count: int) -> Tensor:
    """P(y_i = 1 | exactly `count` positives) from the two tables."""
    n = scores.shape[-1]
    if count == 0:
        return torch.zeros_like(scores)
    before = first[:n, ..., :count]  # j positives before row i
    after = last[:n].flip(0)[..., :count].flip(-1)  # count - 1 - j positives after it
    log_joint = torch.logsumexp(before + after, dim=-1).movedim(0, -1) + scores
    return (log_joint - first[-1, ..., count, None]).exp()


def _check_count(scores: Tensor, count: int) -> None:
    if not 0 <= count <= scores.shape[-1]:
        raise ValueError(f"count must lie between 0 and the number of rows {scores.shape[-1]}, got {count}")


def count_log_prob(scores: Scores, count: int) -> Loss:
    """Log probability that exactly `count` rows are positive, row i with probability sigmoid(f_i), independently.

    Args:
        scores: f, shape (*lanes, n).
        count: Number of positives, 0..n.

    Returns:
        Shape (*lanes,); differentiable once.
    """
    _check_count(scores, count)
    return _CountLogProb.apply(scores, count)


def count_posterior(scores: Scores, count: int) -> Scores:
    """P(y_i = +1 | exactly `count` of the rows are positive), by a forward and a backward pass over the count.

    Args:
        scores: f, shape (*lanes, n).
        count: Number of positives, 0..n.

    Returns:
        Shape (*lanes, n), without gradient; the rows of a lane sum to `count`.
    """
    _check_count(scores, count)
    with torch.no_grad():
        return _posterior(scores, *_count_tables(scores, count), count)


def count_loss(scores_p: Scores, scores_u: Scores, prior: float) -> Loss:
    """CountLoss: m_P CE+ - log P(exactly round(pi n_u) positives among the unlabeled rows).

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u).
        prior: pi.

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    return F.softplus(-scores_p).mean(dim=-1) - count_log_prob(scores_u, round(prior * scores_u.shape[-1]))


def glws(scores_p: Scores, scores_u: Scores, prior: float) -> Loss:
    """GLWS: m_P CE+ + m_U soft cross-entropy to the posteriors given that exactly int(pi n_u) rows are positive.

    Args:
        scores_p: f of labelled rows, shape (*lanes, n_p).
        scores_u: f of unlabeled rows, shape (*lanes, n_u); no gradient flows through the targets.
        prior: pi.

    Returns:
        Shape (*lanes,).
    """
    _check_prior(prior)
    target = count_posterior(scores_u, int(prior * scores_u.shape[-1] + 1e-9))
    return F.softplus(-scores_p).mean(dim=-1) + soft_ce(scores_u, target).mean(dim=-1)


def lbe_posterior(scores: Scores, scores_label: Scores, labelled: Bool[Tensor, "*lanes n"]) -> Scores:
    """LBE's E-step: q(y = 1 | x, l), proportional to eta^l (1 - eta)^(1 - l) h, against [l = 0] (1 - h).

    Args:
        scores: Logits of h(x) = p(y = 1 | x), shape (*lanes, n).
        scores_label: Logits of eta(x) = p(labelled | y = 1, x), shape (*lanes, n).
        labelled: l, shape (*lanes, n) or (n,).

    Returns:
        Shape (*lanes, n), without gradient; 1 for labelled rows.
    """
    with torch.no_grad():
        posterior = torch.sigmoid(scores + F.logsigmoid(-scores_label))  # odds h (1 - eta) / (1 - h)
        return torch.where(labelled, torch.ones_like(posterior), posterior)


def lbe(
    scores: Scores,
    scores_label: Scores,
    posterior: Scores,
    labelled: Bool[Tensor, "*lanes n"],
    weights: Tensor | None = None,
) -> Loss:
    """LBE's M-step: cross-entropy of h to q, and q-weighted cross-entropy of eta to l.

    Args:
        scores: Logits of h, shape (*lanes, n).
        scores_label: Logits of eta, shape (*lanes, n).
        posterior: q from `lbe_posterior`, shape (*lanes, n).
        labelled: l, shape (*lanes, n) or (n,).
        weights: Weights of the rows that sum to 1, shape (n,) or (*lanes, n).

    Returns:
        Shape (*lanes,).
    """
    fit_label = posterior * soft_ce(scores_label, labelled.to(scores.dtype).expand_as(scores_label))
    return mean_over(soft_ce(scores, posterior) + fit_label, weights)


def calibrated(
    loss_fn: Callable[..., Tensor], c: float, how: Literal["weights", "batch_concat"] = "weights"
) -> Callable[..., Tensor]:
    """A two-sample loss made right for the one-sample setting: labelled rows go back into its unlabeled term.

    In the one-sample setting U is what labelling left over. "weights" gives P the total weight c pi and U the rest in
    every mean over unlabeled rows, which for `upu` is Eq. 8. "batch_concat" is what the authors' release does: it
    appends a P batch to an equally large U batch with equal weights, which is biased unless c pi = 1/2; it is here to
    reproduce that.

    Args:
        loss_fn: A loss with arguments (scores_p, scores_u, prior, ..., weights_u).
        c: p(labelled | y = +1), in (0, 1].
        how: "weights" or "batch_concat".

    Returns:
        A function with the arguments of `loss_fn`, less ``weights_u``.

    Example:
        >>> import torch
        >>> f_p, f_u = torch.randn(4), torch.randn(8)
        >>> calibrated(upu, c=0.6)(f_p, f_u, prior=0.5).shape
        torch.Size([])
    """
    if not 0 < c <= 1:
        raise ValueError(f"c = p(labelled | positive) must lie in (0, 1], got {c:g}: more labels than positives?")
    if how not in ("weights", "batch_concat"):
        raise ValueError(f"how must be 'weights' or 'batch_concat', got {how!r}")

    def calibrated_loss(scores_p: Tensor, scores_u: Tensor, prior: float, *args: Any, **kwargs: Any) -> Tensor:
        weights = union_weights(scores_p.shape[-1], scores_u.shape[-1], c * prior if how == "weights" else None)
        union = torch.cat([scores_p, scores_u], dim=-1)
        return loss_fn(scores_p, union, prior, *args, weights_u=weights.to(union), **kwargs)

    return calibrated_loss


def union_weights(n_p: int, n_u: int, share: float | None) -> Float[Tensor, " n"]:
    """Weights of P and U rows, in this order, in a mean over both.

    Args:
        n_p: Number of labelled rows.
        n_u: Number of unlabeled rows.
        share: Total weight of the labelled rows; ``None`` for equal weights of all rows.

    Returns:
        Shape (n_p + n_u,), float64, sum 1.
    """
    if share is None:
        share = n_p / (n_p + n_u)
    weights = torch.empty(n_p + n_u, dtype=torch.float64)
    weights[:n_p], weights[n_p:] = share / n_p, (1 - share) / n_u
    return weights
