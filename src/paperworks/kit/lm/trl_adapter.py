"""Reinforcement learning on TRL's GRPOTrainer with a loss of one's own; the one module that touches TRL's internals.

TRL keeps what it does well: generation (Transformers or vLLM), rewards, advantages, logging, accumulation, devices,
checkpoints, PEFT. A subclass of `TokenLossTrainer` says what is new, in one hook or several:

    `token_loss(batch)`: the loss of each token, from a `TokenBatch`; the rest of the step is TRL's.
    `collected(collection, examples)`: look at, or add to, a collection of completions after it was scored.
    `auxiliary_loss(batch, model)`: a scalar to add.

Log-probabilities come from one forward pass, as TRL's own. Top-k tokens are read from the hidden states of that pass,
in slices, so that they cost a product with the head and no memory of the size of tokens times vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import torch
from packaging.version import Version
from torch import Tensor, nn

TESTED = ("1.16", "1.17")
"""The adapter was tested with TRL from the first version on, below the second."""

_READ = (
    "_compute_loss",
    "_generate_and_score_completions",
    "_generate_single_turn",
    "_get_per_token_logps_and_entropies",
)
_SLICE = 1024  # tokens whose whole distribution is held at once
_LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")


def check_trl(found: str) -> None:
    """Refuse a version of TRL whose internals were not tested.

    Args:
        found: The installed version.

    Raises:
        ImportError: It lies outside of `TESTED`.
    """
    low, high = TESTED
    if not Version(low) <= Version(found) < Version(high):
        raise ImportError(
            f"trl is {found}: tested are versions from {low} on, below {high}; pip install 'trl~={low}.0'"
        )


check_trl(version("trl"))

from trl import GRPOConfig, GRPOTrainer  # noqa: E402 - after the check, which speaks plainly

if _missing := [name for name in _READ if not hasattr(GRPOTrainer, name)]:
    raise ImportError(f"trl {version('trl')} has no GRPOTrainer.{_missing[0]}, which the adapter overrides")


class TopKScores(NamedTuple):
    """The likeliest tokens of the collecting engine and of the policy; nothing carries a gradient.

    Attributes:
        actor_ids: The engine's, of shape (batch, tokens, k).
        actor_logq: Their log-probabilities in the engine, of the same shape; -inf for places that it left empty.
        actor_logp: Their log-probabilities in the policy, of the same shape.
        policy_ids: The policy's, of shape (batch, tokens, k).
        policy_logp: Their log-probabilities in the policy, of the same shape.
        old_ids: Those of the policy that collected, of shape (batch, tokens, k); the three are ``None`` unless
            `TokenLossTrainer.topk_of_old` is set.
        old_logp: Their log-probabilities in it, of the same shape.
        old_actor_logp: Log-probabilities of the engine's likeliest tokens in it, of the same shape.
    """

    actor_ids: Tensor
    actor_logq: Tensor
    actor_logp: Tensor
    policy_ids: Tensor
    policy_logp: Tensor
    old_ids: Tensor | None = None
    old_logp: Tensor | None = None
    old_actor_logp: Tensor | None = None


@dataclasses.dataclass(frozen=True)
class TokenBatch:
    """What a loss sees of a micro-batch; tensors of shape (batch, tokens) cover the completions.

    Attributes:
        logps: log p of the policy, with gradient.
        old_logps: log p of the policy that collected, without gradient.
        sampling_logps: log q of the engine that drew the tokens, NaN where it did not say; `old_logps` where the policy
            itself drew them.
        mask: 1 at tokens that count, 0 at padding, at tokens of tools and at completions that are left out.
        advantages: A, of shape (batch, 1).
        entropies: Entropy of the policy in nats.
        uniform: A random number in [0, 1) for each token, drawn once a collection: it moves with its token, so that
            accumulation and recomputation agree.
        importance_ratio: TRL's own correction of vLLM's probabilities, where that is on.
        topk: Likeliest tokens, when asked for and when another distribution than the policy's drew the tokens.
        prompt_ids: Token ids of shape (batch, prompt), padded on the left.
        completion_ids: Token ids of shape (batch, tokens), padded on the right.
        extra: What `collected` has added, sliced alike.
        iteration: Which pass over the collection this is, from 0.
        first: Whether it is the first micro-batch of an optimisation step.
        training: False in evaluation.
    """

    logps: Tensor
    old_logps: Tensor
    sampling_logps: Tensor
    mask: Tensor
    advantages: Tensor
    entropies: Tensor
    uniform: Tensor
    importance_ratio: Tensor | None
    topk: TopKScores | None
    prompt_ids: Tensor
    completion_ids: Tensor
    extra: Mapping[str, Tensor]
    iteration: int
    first: bool
    training: bool


class TokenLoss(NamedTuple):
    """What `token_loss` returns.

    Attributes:
        per_token: The loss of each token, of shape (batch, tokens), before any mean.
        metrics: Numbers to log.
        mask: What to divide by in place of the batch's mask, of shape (batch, tokens), or ``None``.
    """

    per_token: Tensor
    metrics: Mapping[str, float] = {}
    mask: Tensor | None = None


class Rollouts(Protocol):
    """What an actor returns: lists over completions, of lists over tokens."""

    @property
    def completion_ids(self) -> Sequence[Sequence[int]]:
        """Tokens drawn, the end included."""
        ...

    @property
    def logps(self) -> Sequence[Sequence[float]]:
        """Their log-probabilities in what they were drawn from."""
        ...

    @property
    def topk_ids(self) -> Sequence[Any] | None:
        """The likeliest alternatives of each token, at most k."""
        ...

    @property
    def topk_logps(self) -> Sequence[Any] | None:
        """Their log-probabilities."""
        ...


class Actor(Protocol):
    """What draws completions in the policy's place: a stale copy, a quantised one, a smaller model, a server."""

    def sync(self, policy: nn.Module, step: int) -> None:
        """Take over what it wants of the policy before a collection at an optimisation step."""
        ...

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], *, max_tokens: int, temperature: float, topk: int
    ) -> Rollouts:
        """Draw one completion a prompt, with log-probabilities of what it drew from and its `topk` likeliest tokens."""
        ...


class TokenLossTrainer(GRPOTrainer):
    """TRL's GRPOTrainer with the loss of each token in a hook; as it stands, plain GRPO.

    Models without a backbone that runs alone (`TinyGPT` among them) are scored from their logits; all others by TRL's
    fused head.

    Args:
        *args: As GRPOTrainer.
        actor: What draws the completions; by default the policy, or vLLM when `args.use_vllm`.
        topk: How many of the likeliest tokens `TokenBatch.topk` holds; 0 for none.
        **kwargs: As GRPOTrainer.

    Attributes:
        topk_of_old: Whether `TokenBatch.topk` also holds what the policy that collected said; for a subclass to set.

    Raises:
        ValueError: An option of TRL's that its own loss would read and this one does not.
    """

    topk_of_old = False

    def __init__(self, *args: Any, actor: Actor | None = None, topk: int = 0, **kwargs: Any) -> None:
        if topk < 0:
            raise ValueError(f"topk is {topk}: allowed are 0 and more")
        super().__init__(*args, **kwargs)
        self.actor = actor
        self.topk = topk
        self._rollouts: Rollouts | None = None
        self._capture: _Capture | None = None
        self._refuse_unread_options()
        if topk:
            self._refuse_scaled_logits()
            if self.use_vllm:
                self.vllm_generation.logprobs = topk  # the sampled token's stands before them

    def _refuse_unread_options(self) -> None:
        unread = {
            "loss_type": (self.loss_type in _LOSS_TYPES, f"one of {', '.join(_LOSS_TYPES)}"),
            "importance_sampling_level": (self.importance_sampling_level == "token", "'token'"),
            "off_policy_mask_threshold": (self.args.off_policy_mask_threshold is None, "None"),
            "top_entropy_quantile": (self.args.top_entropy_quantile == 1.0, "1.0"),
            "delta": (self.args.delta is None, "None"),
            "entropy_coef": (not self._entropy_bonus_enabled, "0"),
            "tools": (not self.tools or not (self.topk or self.actor), "none with topk or an actor"),
            "use_vllm": (not (self.use_vllm and self.actor), "False with an actor"),
        }
        for name, (read, allowed) in unread.items():
            if not read:
                value = getattr(self.args, name, True)
                raise ValueError(f"{name} is {value!r}: {type(self).__name__} allows {allowed}")

    def _refuse_scaled_logits(self) -> None:
        config = self.model.config.get_text_config()
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_multiplier",
                     "lm_head_multiplier"):  # fmt: skip
            if getattr(config, name, None) not in (None, 1, 1.0):
                raise ValueError(f"topk is {self.topk}: allowed is 0 for a model with {name} in its configuration")

    # --- hooks -----------------------------------------------------------------------------------------------------

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        """Return the loss of each token; this one is GRPO's clipped surrogate, with TRL's own correction if it is on.

        Args:
            batch: A micro-batch.
        """
        ratio = (batch.logps - batch.old_logps).exp()
        clipped = ratio.clamp(1 - self.epsilon_low, 1 + self.epsilon_high)
        per_token = -torch.min(ratio * batch.advantages, clipped * batch.advantages)
        if batch.importance_ratio is not None:
            per_token = per_token * batch.importance_ratio
        return TokenLoss(per_token)

    def collected(self, collection: dict[str, Any], examples: Sequence[Mapping[str, Any]]) -> Mapping[str, Tensor]:
        """Return tensors to carry along with a collection, one row a completion; they come back as `batch.extra`.

        Args:
            collection: TRL's tensors (`completion_ids`, `completion_mask`, `advantages`, ...), which may be changed.
            examples: The dataset's rows, one a completion.
        """
        return {}

    def auxiliary_loss(self, batch: TokenBatch, model: nn.Module) -> Tensor | None:
        """Return a scalar to add to the loss of a micro-batch (a mean: accumulation is seen to here), or ``None``.

        Args:
            batch: The micro-batch.
            model: The policy as TRL has wrapped it.
        """
        return None

    # --- collection ------------------------------------------------------------------------------------------------

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, multimodal_fields: Any, num_generations: int, *args: Any, **kwargs: Any
    ) -> Any:
        if self.actor is not None:
            if images is not None:
                raise ValueError("images are given: an actor takes token ids alone")
            self.actor.sync(self.accelerator.unwrap_model(self.model), self.state.global_step)
            found = self.actor.generate(
                prompt_ids, max_tokens=self.max_completion_length, temperature=self.temperature, topk=self.topk
            )
            self._rollouts = found
            return [list(ids) for ids in found.completion_ids], [list(logps) for logps in found.logps]
        if self.use_vllm and self.topk:
            if self.state.global_step != self._last_loaded_step:  # type: ignore[has-type]
                self.vllm_generation.sync_weights()
                self._last_loaded_step = self.state.global_step
            _, ids, logps, token_ids = self.vllm_generation.generate(
                prompts=prompt_ids, images=images, num_generations=num_generations
            )
            # TRL puts the sampled token first; it is among the others again when it is one of the likeliest.
            self._rollouts = _FromEngine(ids, [[t[0] for t in row] for row in logps], *_likeliest(token_ids, logps))
            return ids, self._rollouts.logps
        return super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        self._rollouts = None
        watch = bool(self.topk) and (self.topk_of_old or (self.actor is None and not self.use_vllm))
        with self._capturing(watch) as capture:
            out: dict[str, Any] = super()._generate_and_score_completions(inputs)
        shape, device = out["completion_ids"].shape, out["completion_ids"].device
        # Seeded by where the run stands, so that a resumed run draws what an unbroken one would have.
        place = (self.args.seed, self.state.global_step, self._step % self.args.gradient_accumulation_steps)
        seed = hash((*place, self.accelerator.process_index)) % 2**63
        out["uniform"] = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(device)
        if self._rollouts is not None and self.topk:
            if self._rollouts.topk_ids is None or self._rollouts.topk_logps is None:
                raise ValueError(f"topk is {self.topk}: the actor's generate returned no topk_ids or no topk_logps")
            ids, logq = self._rollouts.topk_ids, self._rollouts.topk_logps
            out["topk_ids"] = _padded(ids, shape, self.topk, 0, torch.long).to(device)
            out["topk_logps"] = _padded(logq, shape, self.topk, -math.inf, torch.float32).to(device)
            if capture is not None and "old_per_token_logps" in out:
                names = ("old_topk_ids", "old_topk_logps", "old_topk_at")
                out |= dict(zip(names, capture.first(len(out["completion_ids"])), strict=True))
        elif capture is not None and "old_per_token_logps" in out:  # else the policy has not moved since
            out["topk_ids"], out["topk_logps"], _ = capture.first(len(out["completion_ids"]))
        added = dict(self.collected(out, inputs))
        if clash := sorted(set(added) & set(out)):
            raise ValueError(f"collected returned {clash[0]!r}: the collection has that name already")
        for name, value in added.items():
            if len(value) != shape[0]:
                raise ValueError(
                    f"collected returned {name!r} with {len(value)} rows: there are {shape[0]} completions"
                )
            out[f"extra/{name}"] = value
        return out

    # --- scoring ---------------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **fields: Any,
    ) -> Any:
        plain = self.accelerator.unwrap_model(model)
        plain = plain.get_base_model() if hasattr(plain, "get_base_model") else plain
        if self._capture is not None:
            self._capture.begin(plain, logits_to_keep, self.temperature)
            if self._capture.ids is None and self._rollouts is not None and self._rollouts.topk_ids is not None:
                ids = _padded(self._rollouts.topk_ids, (len(input_ids), logits_to_keep), self.topk, 0, torch.long)
                self._capture.ids = ids.to(input_ids.device)
        fused = _runs_alone(plain.base_model)
        if fused:
            hook = None
            if self._capture is not None:
                hook = plain.base_model.register_forward_hook(self._capture.from_hidden)
            try:
                return super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss,
                    **fields,
                )  # fmt: skip
            finally:
                if hook is not None:
                    hook.remove()
        if given := [name for name, value in fields.items() if value is not None]:
            raise ValueError(f"{given[0]} is given: a model without a backbone that runs alone is scored on text only")
        if compute_aux_loss:
            raise ValueError("router_aux_loss_coef is set: a model without a backbone that runs alone has no such loss")
        logps, entropies = [], []
        for start in range(0, len(input_ids), batch_size or len(input_ids)):
            rows = slice(start, start + (batch_size or len(input_ids)))
            with self.accelerator.autocast():
                logits = model(
                    input_ids=input_ids[rows], attention_mask=attention_mask[rows], logits_to_keep=logits_to_keep + 1
                ).logits
            logits = logits[:, :-1].float() / self.temperature
            whole = logits.log_softmax(-1)
            if self._capture is not None:
                self._capture.from_logits(logits.detach())
            logps.append(whole.gather(-1, input_ids[rows, -logits_to_keep:, None]).squeeze(-1))
            if compute_entropy:
                with torch.no_grad():
                    entropies.append(-(whole.exp() * whole).nan_to_num(nan=0.0).sum(-1))
        return torch.cat(logps), torch.cat(entropies) if compute_entropy else None, None

    @contextmanager
    def _capturing(self, on: bool, ids: Tensor | None = None) -> Iterator[_Capture | None]:
        self._capture = _Capture(self.topk, ids) if on else None
        try:
            yield self._capture
        finally:
            self._capture = None

    # --- loss ------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        mode = "train" if self.model.training else "eval"
        steps = self.current_gradient_accumulation_steps if mode == "train" else 1.0
        batch, aux = self._batch(model, inputs, mode == "train")
        made = self.token_loss(batch)
        per_token, mask = made.per_token, batch.mask
        if per_token.shape != mask.shape:
            raise ValueError(f"token_loss returned shape {tuple(per_token.shape)}: the batch has {tuple(mask.shape)}")
        if self.beta != 0.0:
            gap = inputs["ref_per_token_logps"] - batch.logps
            kl = gap.exp() - gap - 1
            if self.args.use_bias_correction_kl:
                kl = kl * (batch.logps - batch.old_logps).exp()
            per_token = per_token + self.beta * kl
            self._log("kl", _token_mean(kl, mask))
        loss = self._reduce(per_token, mask, mask if made.mask is None else made.mask, inputs, mode, steps)
        extra = self.auxiliary_loss(batch, model)
        if extra is not None:
            loss = loss + extra / steps
            self._log("auxiliary_loss", extra.detach())
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * aux / steps
        self._log("entropy", _token_mean(batch.entropies, mask))
        for name, value in made.metrics.items():
            self._log(name, torch.as_tensor(float(value), device=loss.device))
        return loss

    def _reduce(
        self, per_token: Tensor, mask: Tensor, over: Tensor, inputs: dict[str, Any], mode: str, steps: float
    ) -> Tensor:
        """The mean that `loss_type` asks for, as TRL takes it."""
        masked = per_token * mask
        if self.loss_type == "grpo":
            return (masked.sum(-1) / over.sum(-1).clamp(min=1.0)).mean() / steps
        if self.loss_type == "bnpo":
            return masked.sum() / over.sum().clamp(min=1.0) / steps
        if self.loss_type == "dr_grpo":
            return masked.sum() / (len(masked) * self.max_completion_length) / steps
        items = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        if mode == "train":
            items = items * steps / self.args.steps_per_generation
        return masked.sum() / items

    def _batch(self, model: Any, inputs: dict[str, Any], training: bool) -> tuple[TokenBatch, Tensor | None]:
        prompt_ids, completion_ids = inputs["prompt_ids"], inputs["completion_ids"]
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        names = ("pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles",
                 "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids")  # fmt: skip
        ids = inputs.get("topk_ids")
        with self._capturing(ids is not None, ids) as capture:
            logps, entropies, aux = self._get_per_token_logps_and_entropies(
                model,
                torch.cat([prompt_ids, completion_ids], dim=1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                completion_ids.size(1),
                compute_entropy=True,
                compute_aux_loss=self.aux_loss_enabled,
                **{name: inputs.get(name) for name in names},
            )
        topk = None
        if capture is not None:
            found = capture.found()
            topk = TopKScores(ids, inputs["topk_logps"], found[2], found[0], found[1])
            if self.topk_of_old:
                if "old_topk_ids" in inputs:
                    past = tuple(inputs[name] for name in ("old_topk_ids", "old_topk_logps", "old_topk_at"))
                elif "sampling_per_token_logps" in inputs:  # the policy has not moved since
                    past = found
                else:  # it drew the tokens itself
                    past = (ids, inputs["topk_logps"], inputs["topk_logps"])
                topk = topk._replace(old_ids=past[0], old_logp=past[1], old_actor_logp=past[2])
        old = inputs.get("old_per_token_logps")
        old = logps.detach() if old is None else old
        sampling = inputs.get("sampling_per_token_logps")
        use_ratio = self.use_vllm and self.vllm_importance_sampling_correction
        advantages = inputs["advantages"]
        return TokenBatch(
            logps=logps,
            old_logps=old,
            sampling_logps=old if sampling is None else sampling,
            mask=mask,
            advantages=advantages.unsqueeze(1) if advantages.dim() == 1 else advantages,
            entropies=entropies,
            uniform=inputs["uniform"] if "uniform" in inputs else torch.rand_like(old),
            importance_ratio=inputs["importance_sampling_ratio"] if use_ratio else None,
            topk=topk,
            prompt_ids=prompt_ids,
            completion_ids=completion_ids,
            extra={name.removeprefix("extra/"): v for name, v in inputs.items() if name.startswith("extra/")},
            iteration=self._step // self.args.steps_per_generation % self.num_iterations if training else 0,
            first=not training or self._step % self.current_gradient_accumulation_steps == 0,
            training=training,
        ), aux

    def _log(self, name: str, value: Tensor) -> None:
        mode = "train" if self.model.training else "eval"
        self._metrics[mode][name].append(self.accelerator.gather(value.detach().float()).mean().item())


def _token_mean(x: Tensor, mask: Tensor) -> Tensor:
    return (x * mask).sum() / mask.sum().clamp(min=1.0)


def _runs_alone(backbone: nn.Module) -> bool:
    """Whether a model's `base_model` has a forward of its own."""
    return type(backbone).forward is not nn.Module.forward


@dataclasses.dataclass
class _FromEngine:
    completion_ids: Sequence[Sequence[int]]
    logps: Sequence[Sequence[float]]
    topk_ids: Sequence[Any] | None
    topk_logps: Sequence[Any] | None


def _likeliest(token_ids: Any, logps: Any) -> tuple[list[Any], list[Any]]:
    """Of an engine's lists, in which the sampled token stands first, keep each token once, the likeliest first."""
    ids, scores = [], []
    for row_ids, row_scores in zip(token_ids, logps, strict=True):
        pairs = [dict(zip(i, s, strict=True)) for i, s in zip(row_ids, row_scores, strict=True)]
        best = [sorted(((s, t) for t, s in pair.items() if s is not None), reverse=True) for pair in pairs]
        ids.append([[t for _, t in pair] for pair in best])
        scores.append([[s for s, _ in pair] for pair in best])
    return ids, scores


def _padded(rows: Sequence[Any], shape: Any, k: int, fill: float, dtype: torch.dtype) -> Tensor:
    """Make (batch, tokens, k) of lists over completions of lists over tokens, of at most k numbers (the first)."""
    out = torch.full((*shape, k), fill, dtype=dtype)
    for i, row in enumerate(rows):
        for j, numbers in enumerate(row[: shape[1]]):
            values = torch.as_tensor(numbers, dtype=dtype)[:k]
            out[i, j, : len(values)] = values
    return out


class _Capture:
    """Reads the likeliest tokens off a forward pass, slice by slice, without gradient."""

    def __init__(self, k: int, ids: Tensor | None) -> None:
        self.k, self.ids = k, ids
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._row = 0

    def begin(self, model: Any, keep: int, temperature: float) -> None:
        """Say which model is about to run."""
        self._head, self._keep, self._temperature = model.get_output_embeddings(), keep, temperature

    @torch.no_grad()
    def from_hidden(self, module: nn.Module, args: Any, output: Any) -> None:
        """A forward hook of the backbone."""
        hidden = output.last_hidden_state[:, -self._keep - 1 : -1].detach()
        flat = hidden.flatten(0, 1).split(_SLICE)
        slices = (self._head(part.to(self._head.weight.dtype)).float() / self._temperature for part in flat)
        self._take(slices, hidden.shape[:2])

    @torch.no_grad()
    def from_logits(self, logits: Tensor) -> None:
        """Logits of shape (batch, tokens, vocabulary)."""
        self._take(iter(logits.flatten(0, 1).split(_SLICE)), logits.shape[:2])

    def _take(self, slices: Iterator[Tensor], shape: torch.Size) -> None:
        if self.ids is not None and self._row >= len(self.ids):
            return  # a later pass, of another model
        rows = slice(self._row, self._row + shape[0])
        self._row += shape[0]
        asked = None if self.ids is None else self.ids[rows].flatten(0, 1).split(_SLICE)
        ids, own, at = [], [], []
        for i, logits in enumerate(slices):
            total = logits.logsumexp(-1, keepdim=True)
            best = logits.topk(min(self.k, logits.shape[-1]), dim=-1)
            ids.append(best.indices)
            own.append(best.values - total)
            at.append(logits.gather(-1, asked[i]) - total if asked is not None else own[-1])
        self._parts.append(tuple(torch.cat(x).unflatten(0, shape) for x in (ids, own, at)))  # type: ignore[arg-type]

    def found(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and log-probabilities of the likeliest tokens, and log-probabilities of those asked for."""
        ids, own, at = (torch.cat(x) for x in zip(*self._parts, strict=True))
        return ids, own, at

    def first(self, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `found` returns, of the first pass over `rows` rows."""
        ids, own, at = self.found()
        return ids[:rows], own[:rows], at[:rows]


__all__ = [
    "TESTED",
    "Actor",
    "GRPOConfig",
    "Rollouts",
    "TokenBatch",
    "TokenLoss",
    "TokenLossTrainer",
    "TopKScores",
    "check_trl",
]
