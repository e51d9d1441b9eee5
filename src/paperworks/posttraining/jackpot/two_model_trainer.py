"""Two models in one TRL run: a small actor draws, and learns; the policy learns from it by Jackpot."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paperworks.kit.lm.trl_adapter import TokenBatch

from .actors import ModelActor
from .losses import jackpot_loss
from .trainer import JackpotGRPOConfig, JackpotGRPOTrainer
from .two_models import distillation_loss


@dataclass(init=False)
class TwoModelGRPOConfig(JackpotGRPOConfig):
    """JackpotGRPOConfig with the options of the actor's training.

    Args:
        actor_learning_rate: The actor's learning rate; the policy's by default.
        distill_weight: lambda_distill.
        kl_direction: "forward" or "reverse".
        actor_clip_eps: eps of the actor's clip.
    """

    actor_learning_rate: float | None = field(default=None, metadata={"help": "By default the policy's."})
    distill_weight: float = field(default=0.1, metadata={"help": "Weight of the distillation."})
    kl_direction: str = field(default="forward", metadata={"help": "forward or reverse."})
    actor_clip_eps: float = field(default=0.2, metadata={"help": "Clip of the actor's ratio."})


class TwoModelGRPOTrainer(JackpotGRPOTrainer):
    """JackpotGRPOTrainer whose actor is a second model, trained in the same steps by an AdamW of its own.

    The actor and its optimiser are saved in `actor.pt` of each checkpoint and come back when a run is resumed. Both
    models score each batch once. The distillation holds the distributions of one micro-batch; it runs in one process.

    Args:
        *args: As GRPOTrainer, with a `TwoModelGRPOConfig`.
        actor_model: The small model, of the same vocabulary.
        **kwargs: As JackpotGRPOTrainer.

    Raises:
        ValueError: `actor_model` has another vocabulary, or there are several processes.
    """

    def __init__(self, *args: Any, actor_model: Any, **kwargs: Any) -> None:
        config = kwargs.get("args", args[2] if len(args) > 2 else None)
        if not isinstance(config, TwoModelGRPOConfig):
            raise ValueError(f"args is a {type(config).__name__}: allowed is a TwoModelGRPOConfig")
        if config.distill_weight < 0:
            raise ValueError(f"distill_weight is {config.distill_weight}: allowed are 0 and more")
        if not config.actor_clip_eps > 0:
            raise ValueError(f"actor_clip_eps is {config.actor_clip_eps}: allowed is any number above 0")
        one = torch.zeros(1, 1, 1)
        distillation_loss(one, one, one[0], config.kl_direction)  # type: ignore[arg-type]  # refuses what it does not know
        super().__init__(*args, actor=None, **kwargs)
        sizes = [m.config.get_text_config().vocab_size for m in (actor_model, self.model)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"actor_model has {sizes[0]} tokens: the policy has {sizes[1]}")
        if self.accelerator.num_processes > 1:
            raise ValueError(f"there are {self.accelerator.num_processes} processes: two models train in one")
        actor_model.to(self.accelerator.device)
        tokenizer = self.processing_class
        drawing = copy.deepcopy(actor_model)  # the next p_inf: renewed at each collection, fixed in between
        self.actor = _Renewed(drawing, actor_model, tokenizer.eos_token_id, tokenizer.pad_token_id)
        self.actor_model = actor_model.train()
        rate = self.args.actor_learning_rate or self.args.learning_rate
        self.actor_optimizer = torch.optim.AdamW(actor_model.parameters(), lr=rate, weight_decay=0.0)

    def auxiliary_loss(self, batch: TokenBatch, model: nn.Module) -> Tensor:
        """The actor's clipped loss and the distillation; neither has a gradient for the policy."""
        keep = batch.completion_ids.shape[1]
        # Padding stands on the left; the same token within a prompt is no padding.
        prompt_mask = ((batch.prompt_ids != self.processing_class.pad_token_id).cumsum(1) > 0).long()
        inputs = {
            "input_ids": torch.cat((batch.prompt_ids, batch.completion_ids), dim=1),
            "attention_mask": torch.cat((prompt_mask, batch.mask.long()), dim=1),
            "logits_to_keep": keep + 1,
        }
        actor = (self.actor_model(**inputs).logits[:, :-1].float() / self.temperature).log_softmax(-1)
        with torch.no_grad():
            policy = (model(**inputs).logits[:, :-1].float() / self.temperature).log_softmax(-1)
        own = actor.gather(-1, batch.completion_ids.unsqueeze(-1)).squeeze(-1)
        actor_loss = jackpot_loss(
            own, batch.sampling_logps, batch.sampling_logps, batch.advantages, batch.mask, correction="none",
            clip_eps=self.args.actor_clip_eps,
        ).loss  # fmt: skip
        distillation = distillation_loss(policy, actor, batch.mask, self.args.kl_direction)
        self._log("jackpot/distillation", distillation)
        return actor_loss + self.args.distill_weight * distillation

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """TRL's step; the actor's weights move when the policy's do."""
        out = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:
            nn.utils.clip_grad_norm_(self.actor_model.parameters(), self.args.max_grad_norm)
            self.actor_optimizer.step()
            self.actor_optimizer.zero_grad()
        return out

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        state = {"model": self.actor_model.state_dict(), "optimizer": self.actor_optimizer.state_dict()}
        torch.save(state, folder / "actor.pt")

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            state = torch.load(Path(checkpoint) / "actor.pt", weights_only=True)
            self.actor_model.load_state_dict(state["model"])
            self.actor_optimizer.load_state_dict(state["optimizer"])


class _Renewed(ModelActor):
    """Draws from a copy of the model in training that is renewed before each collection."""

    def __init__(self, drawing: Any, source: nn.Module, eos_token_id: int, pad_token_id: int) -> None:
        super().__init__(drawing, eos_token_id, pad_token_id)
        self.source = source

    def sync(self, policy: nn.Module, step: int) -> None:
        """Copy the actor in training."""
        self.model.load_state_dict(self.source.state_dict())
