"""GRPO with Jackpot's loss, as a TRL trainer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from paperworks.kit.lm.trl_adapter import GRPOConfig, TokenBatch, TokenLoss, TokenLossTrainer

from .actors import ActorPool
from .losses import Correction, jackpot_loss
from .obrs import TopK, merge_topk

GOLDEN = (math.sqrt(5) - 1) / 2  # of which no multiples are near one another modulo 1


@dataclass(init=False)
class JackpotGRPOConfig(GRPOConfig):
    """TRL's GRPOConfig with the options of `jackpot_loss`, by keyword; TRL's `epsilon` is not read.

    Args:
        *args: As GRPOConfig.
        lam: The budget of OBRS, above 0.
        target: p_target, "new" or "ref".
        clip_eps: eps of the ratio's clip; ``None``, the default, for no clip, as in the paper's large shifts.
        c1: Truncation of the OBRS weight.
        c2: Truncation of p_ref / p_new.
        correction: "jackpot", "tis", "is", "icepop" or "none".
        mask_mode: "sample", "expected" or "none".
        acceptance: Share of tokens to keep; then `lam` is solved for in every micro-batch.
        normalise: "tokens" or "accepted": what `loss_type` divides by; the second needs "grpo" or "bnpo".
        obrs_topk: Likeliest tokens from each side for the normaliser; 0: all states share one Z.
        unknown: What stands for a probability that the engine did not return: "tail", "bound" or "drop".
        **kwargs: As GRPOConfig.
    """

    lam: float = field(default=1.0, metadata={"help": "Budget of OBRS."})
    target: str = field(default="new", metadata={"help": "Distribution the samples are moved to: new or ref."})
    clip_eps: float | None = field(default=None, metadata={"help": "Clip of the ratio; none by default."})
    c1: float = field(default=3.0, metadata={"help": "Truncation of the OBRS weight."})
    c2: float = field(default=3.0, metadata={"help": "Truncation of p_ref / p_new."})
    correction: str = field(default="jackpot", metadata={"help": "jackpot, tis, is, icepop or none."})
    mask_mode: str = field(default="sample", metadata={"help": "How OBRS rejects: sample, expected or none."})
    acceptance: float | None = field(default=None, metadata={"help": "Share of tokens to keep, in (0, 1]."})
    normalise: str = field(default="tokens", metadata={"help": "Divide by tokens or by accepted tokens."})
    obrs_topk: int = field(default=20, metadata={"help": "Likeliest tokens from each side."})
    unknown: str = field(default="tail", metadata={"help": "Unknown probabilities: tail, bound or drop."})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        theirs = {f.name for f in fields(GRPOConfig)}
        for own in fields(self):
            if own.name not in theirs:
                setattr(self, own.name, kwargs.pop(own.name, own.default))
        super().__init__(*args, **kwargs)


class JackpotGRPOTrainer(TokenLossTrainer):
    """TRL's GRPOTrainer with `jackpot_loss`; rewards, datasets and models as there.

    Rejection is tied to the tokens: each has a random number from its collection, shifted in each pass over it, so that
    accumulation and recomputation agree. kappa is one for an optimisation step: it pools the sums of its micro-batches
    so far, and of all processes. (The first of eight micro-batches sees an eighth of them; a second forward would be
    the price of all.) Neither needs a further pass of the model.

    Args:
        *args: As GRPOTrainer, with a `JackpotGRPOConfig`.
        actor: What draws the completions (see `ActorPool`); by default the policy itself, or vLLM when `args.use_vllm`.
        correction: A `Correction` of yours, in place of the one that the configuration names.
        **kwargs: As GRPOTrainer.

    Raises:
        ValueError: Sampling filters with the policy as its own actor (the distribution that tokens were drawn from
            would not be the one that is scored), or options that are not allowed.
    """

    def __init__(
        self, *args: Any, actor: ActorPool | None = None, correction: Correction | None = None, **kwargs: Any
    ) -> None:
        config = kwargs.get("args", args[2] if len(args) > 2 else None)
        if not isinstance(config, JackpotGRPOConfig):
            raise ValueError(f"args is a {type(config).__name__}: allowed is a JackpotGRPOConfig")
        if actor is None and not config.use_vllm:
            filters = {"top_p": 1.0, "top_k": (0, None), "min_p": (None, 0.0), "repetition_penalty": 1.0}
            for name, plain in filters.items():
                value = getattr(config, name)
                if value != plain and not (isinstance(plain, tuple) and value in plain):
                    raise ValueError(
                        f"{name} is {value}: OBRS needs the probabilities that tokens were drawn with, which a filter "
                        "changes; leave it out, or draw with vLLM or an actor that returns processed log-probabilities"
                    )
        if config.normalise == "accepted" and config.loss_type not in ("grpo", "bnpo"):
            raise ValueError(
                f"normalise is 'accepted': loss_type {config.loss_type!r} divides by a number fixed beforehand; "
                "allowed are 'grpo' and 'bnpo'"
            )
        self._correction = correction
        super().__init__(*args, actor=actor, topk=config.obrs_topk, **kwargs)
        self.topk_of_old = config.target == "ref"
        self._window = torch.zeros(0)
        # Refuses at once what the first step would refuse.
        one = torch.zeros(1, 1)
        jackpot_loss(one, one, one, torch.zeros(1), torch.ones(1, 1), **self._options(config), uniform=one)

    def _options(self, config: JackpotGRPOConfig) -> dict[str, Any]:
        names = ("lam", "target", "clip_eps", "c1", "c2", "correction", "mask_mode", "acceptance", "normalise")
        options = {name: getattr(config, name) for name in names}
        if self._correction is not None:
            options["correction"] = self._correction
        return options

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """Jackpot's loss of each token, and its metrics under their names with "jackpot/" before."""
        args = self.args
        old, new = batch.old_logps, batch.logps.detach()
        # Where the engine gave no number nothing is known of the shift: as if the policy had drawn the token.
        actor = torch.where(batch.sampling_logps.isnan(), old, batch.sampling_logps)
        if batch.first:
            self._window = torch.zeros(3, dtype=torch.float64, device=new.device)
        out = jackpot_loss(
            batch.logps,
            old,
            actor,
            batch.advantages,
            batch.mask,
            topk=self._union(batch),
            uniform=((batch.uniform + GOLDEN * batch.iteration) % 1).to(new.dtype),
            pool=self._pool,
            **self._options(args),
        )
        metrics = {f"jackpot/{name}": value for name, value in out.metrics.items()}
        return TokenLoss(out.per_token, metrics, out.keep if args.normalise == "accepted" else None)

    def _union(self, batch: TokenBatch) -> TopK | None:
        top = batch.topk
        if top is None:
            return None
        target = (top.actor_logp, top.policy_ids, top.policy_logp)
        if self.args.target == "ref":
            target = (top.old_actor_logp, top.old_ids, top.old_logp)
        return merge_topk(
            top.actor_ids,
            top.actor_logq,
            *target,
            vocabulary=self.model.config.get_text_config().vocab_size,
            unknown=self.args.unknown,
        )

    def _pool(self, sums: Tensor) -> Tensor:
        self._window = self._window + self.accelerator.reduce(sums, reduction="sum")
        return self._window
