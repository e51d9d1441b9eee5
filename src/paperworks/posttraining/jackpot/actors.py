"""Actors: what draws completions in the policy's place, with the log-probabilities of what it drew from."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .obrs import top_tokens


class Rollouts(NamedTuple):
    """Completions and what the actor says of them; lists over completions, of lists over tokens.

    Attributes:
        completion_ids: Drawn tokens, the end-of-sequence token included.
        logps: Their log-probabilities in the distribution that they were drawn from.
        topk_ids: For each token its k likeliest alternatives, or ``None``.
        topk_logps: Their log-probabilities.
    """

    completion_ids: list[list[int]]
    logps: list[list[float]]
    topk_ids: list[Any] | None
    topk_logps: list[Any] | None


class ActorPool(Protocol):
    """What a `JackpotGRPOTrainer` takes as its actor; a stale copy, a quantised one, a smaller model, a server."""

    def sync(self, policy: nn.Module, step: int) -> None:
        """Take over what it wants of the policy's weights before a collection.

        Args:
            policy: The policy, unwrapped.
            step: Optimisation steps taken.
        """
        ...

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], *, max_tokens: int, temperature: float, topk: int
    ) -> Rollouts:
        """Draw one completion a prompt.

        Args:
            prompt_ids: Token ids of the prompts.
            max_tokens: Longest completion.
            temperature: What logits are divided by.
            topk: Likeliest tokens to return for each token, 0 for none.
        """
        ...


class ModelActor:
    """Draws from a causal model of Transformers on this machine, one fixed model.

    Args:
        model: The model; put into evaluation mode.
        eos_token_id: Token that ends a completion.
        pad_token_id: Token that fills; prompts are padded on the left.
        generator: Source of the draws; by default torch's own.
        temperature: A factor on the temperature asked for: a tempered actor. The log-probabilities are those of the
            tempered distribution.
    """

    def __init__(
        self,
        model: Any,
        eos_token_id: int,
        pad_token_id: int,
        *,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
    ) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}: allowed is any number above 0")
        self.model = model.eval()
        self.eos_token_id = eos_token_id
        self.pad_token_id = pad_token_id
        self.generator = generator
        self.temperature = temperature

    def sync(self, policy: nn.Module, step: int) -> None:
        """Do nothing: the model stays as it is."""

    @torch.no_grad()
    def generate(
        self, prompt_ids: Sequence[Sequence[int]], *, max_tokens: int, temperature: float, topk: int
    ) -> Rollouts:
        """Draw one completion a prompt, with the model's cache; see `ActorPool`."""
        device = next(self.model.parameters()).device
        width = max(map(len, prompt_ids))
        ids = torch.full((len(prompt_ids), width), self.pad_token_id)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(prompt_ids):
            ids[i, width - len(row) :], mask[i, width - len(row) :] = torch.tensor(list(row)), 1
        ids, mask = ids.to(device), mask.to(device)
        cache, alive = None, torch.ones(len(ids), dtype=torch.bool, device=device)
        drawn, logps, tops, lives = [], [], [], []
        for _ in range(max_tokens):
            out = self.model(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            cache = out.cache if hasattr(out, "cache") else out.past_key_values
            scores = (out.logits[:, -1].float() / (temperature * self.temperature)).log_softmax(-1)
            token = torch.multinomial(scores.exp(), 1, generator=self.generator)
            drawn.append(token)
            logps.append(scores.gather(-1, token))
            lives.append(alive)
            if topk:
                tops.append(top_tokens(scores, topk))
            alive = alive & (token[:, 0] != self.eos_token_id)
            if not bool(alive.any()):
                break
            ids = torch.where(alive[:, None], token, self.pad_token_id)
            mask = torch.cat((mask, torch.ones_like(token)), dim=1)
        lengths = torch.stack(lives).sum(0).tolist()

        def rows(parts: list[Tensor]) -> list[Any]:
            return [row[:n].tolist() for row, n in zip(torch.stack(parts, dim=1).cpu(), lengths, strict=True)]

        flat = [[x.squeeze(-1) for x in parts] for parts in (drawn, logps)]
        likeliest = [rows([best[i] for best in tops]) for i in (1, 0)] if topk else [None, None]
        return Rollouts(rows(flat[0]), rows(flat[1]), *likeliest)


class StaleActor(ModelActor):
    """A copy of the policy that is renewed every so many collections.

    Args:
        policy: The policy that is copied.
        eos_token_id: As in `ModelActor`.
        pad_token_id: As in `ModelActor`.
        every: Collections between two renewals, 1 or more.
        change: What is done to each new copy, in place, such as ``partial(quantise_, bits=4)``; by default nothing.
        **options: As in `ModelActor`.

    Raises:
        ValueError: `every` is below 1.
    """

    def __init__(
        self,
        policy: Any,
        eos_token_id: int,
        pad_token_id: int,
        *,
        every: int = 1,
        change: Any = None,
        **options: Any,
    ) -> None:
        if every < 1:
            raise ValueError(f"every is {every}: allowed are 1 and more")
        copied = copy.deepcopy(policy)
        copied.__dict__.pop("forward", None)  # a trainer of TRL's patches it, and a copy of the patch runs the original
        super().__init__(copied, eos_token_id, pad_token_id, **options)
        self.every = every
        self.change = change
        self._collections = 0

    def sync(self, policy: nn.Module, step: int) -> None:
        """Copy the policy's weights when it is time; an adapter of PEFT is merged into the copy."""
        if self._collections % self.every == 0:
            plain = policy
            if hasattr(policy, "merge_and_unload"):
                plain = copy.deepcopy(policy).merge_and_unload()
            self.model.load_state_dict(plain.state_dict())
            if self.change is not None:
                self.change(self.model)
        self._collections += 1


@torch.no_grad()
def quantise_(model: nn.Module, bits: int = 4) -> nn.Module:
    """Round the weights of all linear layers but the head onto a grid, each row on a scale of its own, in place.

    Args:
        model: The model.
        bits: Bits of a weight, 2 to 16.

    Returns:
        The model.

    Raises:
        ValueError: `bits` is outside 2 .. 16.
    """
    if not 2 <= bits <= 16:
        raise ValueError(f"bits is {bits}: allowed are 2 to 16")
    top = 2 ** (bits - 1) - 1
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and not name.endswith("lm_head"):
            scale = layer.weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / top
            layer.weight.copy_((layer.weight / scale).round() * scale)
    return model


def drop_layers_(model: Any, layers: Sequence[int]) -> Any:
    """Take blocks out of a decoder, in place; the others keep the places of their caches in a row.

    Args:
        model: A causal model whose blocks are ``model.model.layers``.
        layers: Their numbers, from 0.

    Returns:
        The model.

    Raises:
        ValueError: A number that is no block's, or all of them.
    """
    blocks = model.model.layers
    unknown = [i for i in layers if not 0 <= i < len(blocks)]
    if unknown or len(set(layers)) == len(blocks):
        raise ValueError(f"layers is {list(layers)}: allowed are numbers from 0 to {len(blocks) - 1}, not all of them")
    model.model.layers = nn.ModuleList(block for i, block in enumerate(blocks) if i not in set(layers))
    for i, block in enumerate(model.model.layers):
        block.self_attn.layer_idx = block.self_attn.layer = i  # Transformers' name, and TinyGPT's
    model.config.num_hidden_layers = len(model.model.layers)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [t for i, t in enumerate(model.config.layer_types) if i not in set(layers)]
    return model
