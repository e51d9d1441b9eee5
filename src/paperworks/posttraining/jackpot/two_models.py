"""A small actor that draws, trained beside the large policy that learns from it (Eq. 7)."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from .losses import LossOutput, jackpot_loss

KLDirection = Literal["forward", "reverse"]


def distillation_loss(
    logp_policy: Tensor, logp_actor: Tensor, mask: Tensor, kl_direction: KLDirection = "forward"
) -> Tensor:
    """Mean divergence between the policy, held fixed, and the actor, on states that the actor has visited.

    Args:
        logp_policy: Log-probabilities of the policy, of shape (batch, tokens, vocabulary); no gradient goes to it.
        logp_actor: Log-probabilities of the actor, of shape (batch, tokens, vocabulary).
        mask: 1 at tokens that count, of shape (batch, tokens).
        kl_direction: "forward", KL(policy || actor), the paper's equation; "reverse", KL(actor || policy).

    Returns:
        A scalar, in nats a token.

    Raises:
        ValueError: `kl_direction` is another word.
    """
    if kl_direction not in ("forward", "reverse"):
        raise ValueError(f"kl_direction is {kl_direction!r}: allowed are 'forward', 'reverse'")
    p, q = logp_policy.detach(), logp_actor
    first, second = (p, q) if kl_direction == "forward" else (q, p)
    gap = torch.where(first == -math.inf, 0.0, first - second)  # what has no probability adds nothing, 0 log 0
    kl = torch.where(mask > 0, (first.exp() * gap).sum(-1), 0.0)
    return kl.sum() / mask.sum().clamp(min=1)


def two_model_loss(
    policy: LossOutput,
    actor_logp: Tensor,
    actor_old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    distillation: Tensor,
    *,
    weight: float = 0.1,
    clip_eps: float | None = 0.2,
) -> LossOutput:
    """Sum of the policy's loss, the actor's own clipped loss without rejection, and the weighted distillation.

    Args:
        policy: What `jackpot_loss` returned for the policy, the actor being q.
        actor_logp: log p_omega of the drawn tokens, with gradient, of shape (batch, tokens).
        actor_old_logp: The same when they were drawn, of shape (batch, tokens).
        advantages: A, of shape (batch,), (batch, 1) or (batch, tokens).
        mask: 1 at tokens that count, of shape (batch, tokens).
        distillation: What `distillation_loss` returned, of shape ().
        weight: lambda_distill, 0 or more.
        clip_eps: eps of the actor's clip.

    Returns:
        The sum as loss, the policy's metrics with the parts besides, the policy's loss of each token and weights.

    Raises:
        ValueError: `weight` is below 0.
    """
    if weight < 0:
        raise ValueError(f"weight is {weight}: allowed are 0 and more")
    own = jackpot_loss(
        actor_logp, actor_old_logp, actor_old_logp, advantages, mask, correction="none", clip_eps=clip_eps
    )
    parts: dict[str, Any] = {"actor_loss": own.loss.item(), "distillation": distillation.item()}
    total = policy.loss + own.loss + weight * distillation
    return policy._replace(loss=total, metrics={**policy.metrics, **parts})
