"""Optimal Budget Rejection Sampling (OBRS): acceptance, post-rejection distribution, normaliser, budget.

q is the actor, from which tokens were drawn, p the target. A token is kept with probability a(x) = min(1, p / (lam q));
what is kept is distributed as q~ = min(q, p / lam) / Z, where Z = sum_x min(q, p / lam) = E_q[a] is the expected
acceptance. All functions take log-probabilities of any leading shape; where one takes a whole distribution, it is over
the last axis. A log-probability of -inf is a probability of 0.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Unknown = Literal["tail", "bound", "drop"]
UNKNOWN: tuple[Unknown, ...] = ("tail", "bound", "drop")


def log_budget(lam: float | Tensor, like: Tensor) -> Tensor:
    """Return log lam in the type of `like`; refuse what is not above 0."""
    value = torch.as_tensor(lam, dtype=like.dtype, device=like.device)
    if not bool((value > 0).all()):
        raise ValueError(f"lam is {lam}: allowed is any number above 0")
    return value.log()


def obrs_accept_prob(logp_target: Tensor, logp_actor: Tensor, lam: float | Tensor = 1.0) -> Tensor:
    """Probability a = min(1, p / (lam q)) of keeping a token (Sec. 4.1).

    Args:
        logp_target: log p, of shape (...).
        logp_actor: log q, of shape (...).
        lam: The budget, above 0, a number or of shape (...): towards 0 all is kept, from max p/q on it is exact
            rejection sampling.

    Returns:
        Probabilities of shape (...); 1 where q is 0 (an engine rounded it away), 0 where p is 0.

    Raises:
        ValueError: `lam` is not above 0.
    """
    log_a = (logp_target - logp_actor - log_budget(lam, logp_target)).clamp(max=0)
    return torch.where(logp_target == -math.inf, torch.zeros_like(log_a), log_a.exp())


def obrs_normalizer(logp_target: Tensor, logp_actor: Tensor, lam: float | Tensor = 1.0) -> Tensor:
    """Expected acceptance Z = sum_x min(q, p / lam) over the whole vocabulary.

    Args:
        logp_target: log p, of shape (..., vocabulary).
        logp_actor: log q, of shape (..., vocabulary).
        lam: The budget, a number or of shape (...).

    Returns:
        Z, of shape (...).
    """
    return _kept(logp_target, logp_actor, lam).logsumexp(-1).exp()


def obrs_log_density(logp_target: Tensor, logp_actor: Tensor, lam: float | Tensor = 1.0) -> Tensor:
    """Log of the distribution of what is kept, q~ = min(q, p / lam) / Z.

    Args:
        logp_target: log p, of shape (..., vocabulary).
        logp_actor: log q, of shape (..., vocabulary).
        lam: The budget, a number or of shape (...).

    Returns:
        log q~, of shape (..., vocabulary).
    """
    return _kept(logp_target, logp_actor, lam).log_softmax(-1)


def _kept(logp: Tensor, logq: Tensor, lam: float | Tensor) -> Tensor:
    log_lam = log_budget(lam, logp)
    return torch.minimum(logq, logp - (log_lam if log_lam.ndim == 0 else log_lam.unsqueeze(-1)))


def obrs_weight(logp_target: Tensor, logp_actor: Tensor, z: Tensor, lam: float | Tensor = 1.0) -> Tensor:
    """Weight w = p / q~ = Z max(lam, p / q) of a kept token; it is never below lam Z.

    Args:
        logp_target: log p of the tokens, of shape (...).
        logp_actor: log q of the tokens, of shape (...).
        z: Z of their states, of shape (...).
        lam: The budget, a number or of shape (...).

    Returns:
        Weights of shape (...).
    """
    return z * torch.maximum(logp_target - logp_actor, log_budget(lam, logp_target).expand_as(logp_target)).exp()


def kl_divergence(logp: Tensor, logq: Tensor) -> Tensor:
    """KL(p || q) in nats.

    Args:
        logp: log p, of shape (..., vocabulary).
        logq: log q, of shape (..., vocabulary).

    Returns:
        Divergences of shape (...); infinite where q lacks what p has.
    """
    terms = logp.exp() * (logp - logq)
    return torch.where(logp == -math.inf, torch.zeros_like(terms), terms).sum(-1)


def solve_lambda(logp_target: Tensor, logp_actor: Tensor, acceptance: float | Tensor) -> Tensor:
    """Budget at which the expected acceptance Z has a wanted value, exactly, by sorting the ratios p / q.

    Between two neighbouring ratios Z(lam) = P(r < lam) / lam + Q(r >= lam), which is solved for lam there; O(V log V).

    Args:
        logp_target: log p, of shape (..., vocabulary).
        logp_actor: log q, of shape (..., vocabulary).
        acceptance: The wanted Z, in (0, 1], a number or of shape (...).

    Returns:
        lam in float64, of shape (...). Where even the smallest budget keeps less (q has tokens that p has not), the
        smallest ratio above 0.

    Raises:
        ValueError: `acceptance` is outside (0, 1].
    """
    logp, logq = logp_target.double(), logp_actor.double()
    return _solve(logp.exp(), logq.exp(), logp - logq, acceptance)


def solve_batch_lambda(logp_target: Tensor, logp_actor: Tensor, mask: Tensor, acceptance: float | Tensor) -> Tensor:
    """Budget at which the mean acceptance of drawn tokens has a wanted value: one lam for a batch, no vocabulary.

    The tokens were drawn from q, so their mean of min(1, r / lam) estimates E_q[a]; it is solved exactly.

    Args:
        logp_target: log p of the tokens, of shape (...).
        logp_actor: log q of the tokens, of shape (...).
        mask: 1 at tokens that count, of shape (...); at least one.
        acceptance: The wanted mean, in (0, 1].

    Returns:
        lam in float64, of shape ().

    Raises:
        ValueError: `acceptance` is outside (0, 1], or no token counts.
    """
    log_ratio = (logp_target - logp_actor).double()[mask > 0]
    if not len(log_ratio):
        raise ValueError("mask has no 1: a budget needs at least one token")
    weight = torch.full_like(log_ratio, 1 / len(log_ratio))
    return _solve(weight * log_ratio.exp(), weight, log_ratio, acceptance)


def _solve(p: Tensor, q: Tensor, log_ratio: Tensor, acceptance: float | Tensor) -> Tensor:
    """Solve sum min(q, p / lam) = acceptance over the last axis."""
    wanted = torch.as_tensor(acceptance, dtype=torch.float64, device=p.device)
    if not bool(((wanted > 0) & (wanted <= 1)).all()):
        raise ValueError(f"acceptance is {acceptance}: allowed is (0, 1]")
    wanted = wanted.expand(p.shape[:-1]).unsqueeze(-1)
    # Tokens that neither has, or that p has not, take no part in the choice: p / lam is 0 for every lam.
    ratio, order = torch.where(p > 0, log_ratio.exp(), torch.full_like(p, math.inf)).sort(dim=-1)
    p, q = p.gather(-1, order), torch.where(p > 0, q, torch.zeros_like(q)).gather(-1, order)
    below = torch.cat((torch.zeros_like(p[..., :1]), p.cumsum(-1)), dim=-1)  # P of the i smallest ratios
    above = torch.cat((q.flip(-1).cumsum(-1).flip(-1), torch.zeros_like(q[..., :1])), dim=-1)  # Q of the others
    z = below[..., :-1] / ratio + above[..., :-1]  # Z at each of the ratios: it falls from left to right
    # A hair above: Z at the smallest ratio is 1 but for rounding.
    place = (z > wanted * (1 + 1e-12)).sum(-1, keepdim=True)  # so many ratios lie below lam
    under, over = below.gather(-1, place), above.gather(-1, place)
    lam = under / (wanted - over)
    return torch.where(place == 0, ratio[..., :1], lam).squeeze(-1)


class TopK(NamedTuple):
    """The union of the likeliest tokens of target and actor, each with both its probabilities.

    Attributes:
        logp: log p of the tokens, of shape (..., 2k).
        logq: log q of the tokens, of shape (..., 2k).
        counted: False where a token stands a second time or is not counted, of shape (..., 2k).
    """

    logp: Tensor
    logq: Tensor
    counted: Tensor


def top_tokens(scores: Tensor, k: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The k largest values of the last axis and where they stand, as `torch.topk`, in about one pass over memory.

    The k largest stand in the k blocks whose largest values are largest.

    Args:
        scores: Any values, of shape (..., vocabulary).
        k: How many, at most the vocabulary.
        block: Values in a block.

    Returns:
        Values and indices, each of shape (..., k), the largest first.

    Raises:
        ValueError: `k` is not in 1 .. vocabulary.
    """
    size = scores.shape[-1]
    if not 1 <= k <= size:
        raise ValueError(f"k is {k}: allowed is 1 to {size}, the size of the vocabulary")
    blocks = size // block
    if blocks < 2 * k:
        return scores.topk(k, dim=-1)
    whole, rest = scores[..., : blocks * block].unflatten(-1, (blocks, block)), scores[..., blocks * block :]
    chosen = whole.amax(-1).topk(k, dim=-1).indices  # (..., k)
    values = whole.gather(-2, chosen.unsqueeze(-1).expand(*chosen.shape, block)).flatten(-2)
    places = (chosen.unsqueeze(-1) * block + torch.arange(block, device=scores.device)).flatten(-2)
    if rest.shape[-1]:
        tail = torch.arange(blocks * block, size, device=scores.device).expand(rest.shape)
        values, places = torch.cat((values, rest), dim=-1), torch.cat((places, tail), dim=-1)
    best = values.topk(k, dim=-1)
    return best.values, places.gather(-1, best.indices)


def full_topk(logp_target: Tensor, logp_actor: Tensor, k: int) -> TopK:
    """Make the union from two whole distributions.

    Args:
        logp_target: log p, of shape (..., vocabulary).
        logp_actor: log q, of shape (..., vocabulary).
        k: Tokens from each side.

    Returns:
        The union, of 2k places.
    """
    of_q, of_p = top_tokens(logp_actor, k)[1], top_tokens(logp_target, k)[1]
    ids = torch.cat((of_q, of_p), dim=-1)
    counted = torch.cat((torch.ones_like(of_q, dtype=torch.bool), ~_among(of_p, of_q)), dim=-1)
    return TopK(logp_target.gather(-1, ids), logp_actor.gather(-1, ids), counted)


def merge_topk(
    actor_ids: Tensor,
    actor_logq: Tensor,
    actor_logp: Tensor,
    target_ids: Tensor,
    target_logp: Tensor,
    target_logq: Tensor | None = None,
    *,
    vocabulary: int | None = None,
    unknown: Unknown = "tail",
) -> TopK:
    """Make the union from what an engine returned and what the policy says.

    Args:
        actor_ids: The actor's likeliest tokens, of shape (..., k).
        actor_logq: Their log q, of shape (..., k); -inf at places that the engine left empty.
        actor_logp: Their log p (cross terms), of shape (..., k).
        target_ids: The target's likeliest tokens, of shape (..., m).
        target_logp: Their log p, of shape (..., m).
        target_logq: Their log q (cross terms), of shape (..., m), NaN where the engine did not say; ``None`` when it
            said none. A token that is among the actor's is counted there.
        vocabulary: Tokens in all; needed for "tail".
        unknown: What stands for a log q that is not known: "tail", the actor's mass outside its k spread evenly, at
            most its k-th value; "bound", its k-th value, the most it can be; "drop", the token is not counted, so that
            Z is never overestimated.

    Returns:
        The union, of k + m places.

    Raises:
        ValueError: `unknown` is another word, or "tail" without `vocabulary`.
    """
    if unknown not in UNKNOWN:
        raise ValueError(f"unknown is {unknown!r}: allowed are {', '.join(map(repr, UNKNOWN))}")
    empty = actor_logq == -math.inf  # an engine that gave fewer than k
    fresh = ~_among(target_ids, actor_ids.masked_fill(empty, -1))
    if target_logq is None:
        target_logq = torch.full_like(target_logp, math.nan)
    missing = target_logq.isnan()
    if unknown == "drop":
        fresh, target_logq = fresh & ~missing, target_logq.nan_to_num(nan=-math.inf)
    else:
        most = actor_logq.masked_fill(empty, 0.0).amin(-1, keepdim=True)
        if unknown == "tail":
            if vocabulary is None:
                raise ValueError("unknown is 'tail', which needs vocabulary, the number of tokens")
            outside = (1 - actor_logq.exp().sum(-1, keepdim=True)).clamp(min=0)
            most = torch.minimum(most, (outside / (vocabulary - (~empty).sum(-1, keepdim=True)).clamp(min=1)).log())
        target_logq = torch.where(missing, most.expand_as(target_logq), target_logq)
    return TopK(
        torch.cat((actor_logp, target_logp), dim=-1),
        torch.cat((actor_logq, target_logq), dim=-1),
        torch.cat((~empty, fresh), dim=-1),
    )


def _among(ids: Tensor, others: Tensor) -> Tensor:
    """Whether each of `ids` (..., m) is one of `others` (..., k)."""
    return (ids.unsqueeze(-1) == others.unsqueeze(-2)).any(-1)


def obrs_topk_normalizer(topk: TopK, lam: float | Tensor = 1.0) -> Tensor:
    """Sum of min(q, p / lam) over the union of likeliest tokens: never above Z while both probabilities are exact.

    Args:
        topk: The union, of shape (..., 2k).
        lam: The budget, a number or of shape (...).

    Returns:
        Z_approx, of shape (...).
    """
    kept = _kept(topk.logp, topk.logq, lam).exp()
    return torch.where(topk.counted, kept, torch.zeros_like(kept)).sum(-1)
