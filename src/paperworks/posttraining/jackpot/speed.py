"""Ours beside plain GRPO and beside TRL's own correction, on the same tensors; times are compared after the results."""

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from paperworks.claims.speed import Pair

from .losses import jackpot_loss
from .obrs import merge_topk, top_tokens

K = 20


def _inputs(size: str, batch: int = 4) -> tuple[Tensor, ...]:
    """Logits of the policy (batch, tokens, vocabulary), drawn tokens, advantages, mask.

    A few tokens have nearly all of the mass, so that the normaliser is 1 and Jackpot without a shift is plain GRPO.
    """
    batch, tokens, vocabulary = (batch, 512, 49152) if size == "full" else (2, 8, 640)
    g = torch.Generator().manual_seed(0)
    logits = torch.empty(batch, tokens, vocabulary).normal_(generator=g)
    likely = torch.randint(vocabulary, (batch, tokens, 8), generator=g)
    logits.scatter_(-1, likely, 25 + 2 * torch.rand(batch, tokens, 8, generator=g))
    ids = likely.gather(-1, torch.randint(8, (batch, tokens, 1), generator=g))
    return logits, ids, torch.randn(batch, 1, generator=g), torch.ones(batch, tokens)


def _step(logits: Tensor, ids: Tensor, loss: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and gradient with respect to the logits (that at the drawn tokens): what a step pays beside the model."""
    leaf = logits.detach().requires_grad_()
    total = leaf.logsumexp(-1)
    logp = leaf.gather(-1, ids).squeeze(-1) - total
    value = loss(logp, leaf.detach(), total.detach())
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient.gather(-1, ids)


def _jackpot_step(logits: Tensor, ids: Tensor, advantages: Tensor, mask: Tensor, old: Tensor) -> Callable[[], Any]:
    """A step with Jackpot's loss on samples without a shift, and the gradients at the drawn tokens.

    The actor's likeliest tokens are given, as an engine gives them; the policy's are found here.
    """
    total = logits.logsumexp(-1)
    best, actor_ids = top_tokens(logits, K)
    actor_logq = best - total.unsqueeze(-1)
    uniform = torch.rand(mask.shape, generator=torch.Generator().manual_seed(1))

    def loss(logp: Tensor, scores: Tensor, total: Tensor) -> Tensor:
        best, best_ids = top_tokens(scores, K)
        topk = merge_topk(
            actor_ids,
            actor_logq,
            scores.gather(-1, actor_ids) - total.unsqueeze(-1),
            best_ids,
            best - total.unsqueeze(-1),
            vocabulary=scores.shape[-1],
        )
        return jackpot_loss(logp, old, old, advantages, mask, topk=topk, uniform=uniform, clip_eps=0.2).loss

    return lambda: _step(logits, ids, loss)


def _trl_step(
    logits: Tensor, ids: Tensor, advantages: Tensor, mask: Tensor, old: Tensor, actor: Tensor
) -> Callable[[], Any]:
    """A step with TRL's `_compute_loss`, fed with the weights min(p_old / q, 2) of its token_truncate.

    The function is the real one of GRPOTrainer; what it reads of a trainer is handed to it, with log-probabilities from
    the same logits in place of a model.
    """
    from trl import GRPOTrainer

    def loss(logp: Tensor, scores: Tensor, total: Tensor) -> Tensor:
        inputs = {
            "prompt_ids": ids[:, :1, 0], "prompt_mask": mask[:, :1], "completion_ids": ids.squeeze(-1),
            "completion_mask": mask, "advantages": advantages.squeeze(-1), "old_per_token_logps": old,
            "importance_sampling_ratio": (old - actor).exp().clamp(max=2.0), "num_items_in_batch": mask.sum(),
        }  # fmt: skip
        return GRPOTrainer._compute_loss(_Trainer(logp, torch.zeros_like(mask)), None, inputs)

    return lambda: _step(logits, ids, loss)


def overhead(size: str = "full") -> Pair:
    """A step with Jackpot's loss, k = 20, and one with GRPO's clipped loss alone; no shift, where the two agree."""
    logits, ids, advantages, mask = _inputs(size)
    old = logits.gather(-1, ids).squeeze(-1) - logits.logsumexp(-1)

    def plain(logp: Tensor, scores: Tensor, total: Tensor) -> Tensor:
        ratio = (logp - old).exp()
        return -(torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * mask).sum() / mask.sum()

    ours = _jackpot_step(logits, ids, advantages, mask, old)
    return Pair(ours=ours, peer=lambda: _step(logits, ids, plain), rtol=1e-3, atol=1e-6)


def overhead_trl(size: str = "full") -> Pair:
    """A step with Jackpot's loss, k = 20, and one with TRL's truncated importance sampling; no shift."""
    logits, ids, advantages, mask = _inputs(size)
    old = logits.gather(-1, ids).squeeze(-1) - logits.logsumexp(-1)
    rest = (logits, ids, advantages, mask, old)
    return Pair(ours=_jackpot_step(*rest), peer=_trl_step(*rest, old), rtol=1e-3, atol=1e-6)


def against_trl(size: str = "full") -> Pair:
    """A step with truncated importance sampling, ours and TRL's, on samples with a shift and a stale policy."""
    logits, ids, advantages, mask = _inputs(size, batch=1)
    g = torch.Generator().manual_seed(2)
    old = logits.gather(-1, ids).squeeze(-1) - logits.logsumexp(-1)
    old = old + 0.1 * torch.randn(mask.shape, generator=g)
    actor = old + 0.5 * torch.randn(mask.shape, generator=g)

    def tis(logp: Tensor, scores: Tensor, total: Tensor) -> Tensor:
        return jackpot_loss(logp, old, actor, advantages, mask, correction="tis", target="ref", clip_eps=0.2).loss

    peer = _trl_step(logits, ids, advantages, mask, old, actor)
    return Pair(ours=lambda: _step(logits, ids, tis), peer=peer, rtol=1e-4, atol=1e-7)


class _Trainer(SimpleNamespace):
    """What TRL's loss reads of a trainer, for one process and one batch a step."""

    def __init__(self, logp: Tensor, entropies: Tensor) -> None:
        super().__init__(
            _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, entropies, None),
            aux_loss_enabled=False, top_entropy_quantile=1.0,
            off_policy_mask_threshold=None, importance_sampling_level="token", beta=0.0, loss_type="bnpo",
            epsilon_low=0.2, epsilon_high=0.2, use_vllm=True, vllm_importance_sampling_correction=True,
            current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False,
            args=SimpleNamespace(delta=None, steps_per_generation=1), model=SimpleNamespace(training=True),
            accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x),
            _metrics={"train": defaultdict(list)},
        )  # fmt: skip
