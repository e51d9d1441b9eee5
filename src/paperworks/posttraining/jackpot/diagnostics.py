"""How far an actor is from the policy: numbers for a batch and by position, for any run."""

from typing import NamedTuple

import torch
from torch import Tensor

from .obrs import obrs_accept_prob


class Diagnosis(NamedTuple):
    """The shift between actor and policy on drawn tokens.

    Attributes:
        kl: Estimate of KL(q || p) in nats a token, from differences that are never negative.
        ess: Effective share of the tokens under importance weights, in (0, 1].
        ess_sequence: The same of whole completions, whose weights are products.
        acceptance: Share that OBRS would keep.
        largest_ratio: Largest p / q.
        acceptance_by_position: Share kept at each position, of shape (tokens,); NaN where no token counts.
        kl_by_position: Divergence at each position, of shape (tokens,).
    """

    kl: float
    ess: float
    ess_sequence: float
    acceptance: float
    largest_ratio: float
    acceptance_by_position: Tensor
    kl_by_position: Tensor


@torch.no_grad()
def diagnose(logp_policy: Tensor, logp_actor: Tensor, mask: Tensor, lam: float = 1.0) -> Diagnosis:
    """Describe the shift of a batch; nothing but the log-probabilities of the drawn tokens is needed.

    Args:
        logp_policy: log p of the tokens, of shape (batch, tokens).
        logp_actor: log q of the tokens, of shape (batch, tokens).
        mask: 1 at tokens that count, of shape (batch, tokens).
        lam: The budget of OBRS.

    Returns:
        The numbers.

    Raises:
        ValueError: Shapes differ, or no token counts.
    """
    if not logp_policy.shape == logp_actor.shape == mask.shape:
        shapes = ", ".join(str(tuple(x.shape)) for x in (logp_policy, logp_actor, mask))
        raise ValueError(f"logp_policy, logp_actor and mask are of shapes {shapes}: they have to be the same")
    valid = mask > 0
    if not bool(valid.any()):
        raise ValueError("mask has no 1: a diagnosis needs at least one token")
    log_ratio = torch.where(valid, logp_policy - logp_actor, 0.0).double()
    ratio = log_ratio.exp()
    divergence = torch.where(valid, ratio - 1 - log_ratio, 0.0)  # k3: mean KL(q || p), never below 0
    accept = torch.where(valid, obrs_accept_prob(log_ratio, torch.zeros_like(log_ratio), lam), 0.0)
    count = valid.sum(0).double()
    total = log_ratio.sum(-1)[valid.any(-1)]
    weight = (total - total.max()).exp()
    own = ratio[valid]
    return Diagnosis(
        kl=(divergence.sum() / valid.sum()).item(),
        ess=(own.sum() ** 2 / (len(own) * own.square().sum())).item(),
        ess_sequence=(weight.sum() ** 2 / (len(weight) * weight.square().sum())).item(),
        acceptance=(accept.sum() / valid.sum()).item(),
        largest_ratio=own.max().item(),
        acceptance_by_position=accept.sum(0) / count,
        kl_by_position=divergence.sum(0) / count,
    )
