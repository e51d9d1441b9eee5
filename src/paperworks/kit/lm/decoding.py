"""Generation of several answers at once, each with settings and a random stream of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch

from paperworks.kit.lm.likelihood import cache_argument


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked of a model.

    Attributes:
        prompt: The text as the model reads it, chat template applied.
        max_tokens: Tokens to generate at most.
        temperature: 0 takes the likeliest token; else logits are divided by it.
        top_p: Mass of the likeliest tokens that are kept, in (0, 1].
        top_k: How many tokens are kept; 0 for all.
        seed: Start of the request's own random stream: what it draws does not depend on its batch.
        stop: Texts at which the answer ends; they are not part of it.
        top_logprobs: Likeliest tokens to report at each place.
    """

    prompt: str
    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; allowed: 1 or more")
        if not self.temperature >= 0:
            raise ValueError(f"temperature is {self.temperature}; allowed: 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; allowed: above 0, at most 1")
        if self.top_k < 0 or self.top_logprobs < 0:
            raise ValueError(f"top_k is {self.top_k}, top_logprobs {self.top_logprobs}; allowed: 0 or more")


@dataclasses.dataclass(frozen=True)
class Token:
    """A generated token: its text, its log-probability (nats, before temperature) and the likeliest at its place."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a model said.

    Attributes:
        text: Without special tokens and stop texts.
        tokens: One entry a generated token, the one that ended the answer included.
        stop: Why it ended: "stop", "max_tokens", or "model_length" when no room was left in the model's context.
        input_tokens: Tokens of the prompt.
    """

    text: str
    tokens: tuple[Token, ...]
    stop: Literal["stop", "max_tokens", "model_length"]
    input_tokens: int


@torch.inference_mode()
def generate_batch(model: Any, tokenizer: Any, requests: Sequence[Request]) -> list[Answer]:
    """Generates an answer to every request in one batch; rows that have ended leave it.

    Args:
        model: A `transformers` causal model in evaluation mode.
        tokenizer: Its tokenizer.
        requests: Any number, of any lengths and settings.

    Returns:
        The answers, in order. A prompt that fills the context has an empty answer.
    """
    from transformers import DynamicCache

    ids = [tokenizer(request.prompt, add_special_tokens=False)["input_ids"] for request in requests]
    room = model.config.max_position_embeddings
    rows = [_Row(i, request, prompt) for i, (request, prompt) in enumerate(zip(requests, ids, strict=True))]
    answers: dict[int, Answer] = {}
    for row in rows:
        if len(row.prompt) >= room or not row.prompt:
            answers[row.place] = Answer("", (), "model_length" if row.prompt else "stop", len(row.prompt))
    alive = [row for row in rows if row.place not in answers]
    if not alive:
        return [answers[i] for i in range(len(requests))]
    width = max(len(row.prompt) for row in alive)
    mask = torch.tensor([[0] * (width - len(row.prompt)) + [1] * len(row.prompt) for row in alive])
    tokens = torch.tensor([[0] * (width - len(row.prompt)) + row.prompt for row in alive])
    ends = _end_tokens(model, tokenizer)
    cache = DynamicCache(config=model.config)
    device = model.device
    while alive:
        logits = _next_logits(model, tokens.to(device), mask.to(device), cache).cpu()  # (alive, vocabulary)
        logprobs = logits.log_softmax(-1)
        kept, chosen = [], []
        for i, row in enumerate(alive):
            token = row.choose(logits[i])
            row.add(token, logprobs[i], tokenizer)
            answer = row.finished(token in ends, room, tokenizer)
            if answer is None:
                kept.append(i)
                chosen.append(token)
            else:
                answers[row.place] = answer
        if len(kept) < len(alive):
            index = torch.tensor(kept, dtype=torch.long)
            mask = mask[index]
            cache.batch_select_indices(index.to(device))
        alive = [alive[i] for i in kept]
        tokens = torch.tensor(chosen, dtype=torch.long)[:, None]
        mask = torch.cat([mask, torch.ones(len(alive), 1, dtype=mask.dtype)], dim=1)
    return [answers[i] for i in range(len(requests))]


def _next_logits(model: Any, tokens: torch.Tensor, mask: torch.Tensor, cache: Any) -> torch.Tensor:
    positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
    states = model.base_model(
        input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=True, **cache_argument(model, cache)
    ).last_hidden_state
    return model.get_output_embeddings()(states[:, -1]).float()  # type: ignore[no-any-return]


def _end_tokens(model: Any, tokenizer: Any) -> set[int]:
    known = [tokenizer.eos_token_id]
    configured = getattr(model.generation_config, "eos_token_id", None)
    known += configured if isinstance(configured, list) else [configured]
    return {token for token in known if token is not None}


class _Row:
    """One request while it runs."""

    def __init__(self, place: int, request: Request, prompt: list[int]) -> None:
        self.place, self.request, self.prompt = place, request, prompt
        self.ids: list[int] = []
        self.tokens: list[Token] = []
        self.stream = torch.Generator().manual_seed(request.seed)

    def choose(self, logits: torch.Tensor) -> int:
        r = self.request
        if r.temperature == 0:
            return int(logits.argmax())
        values, order = (logits / r.temperature).sort(descending=True, stable=True)
        if r.top_k:
            values[r.top_k :] = -torch.inf
        weights = values.softmax(-1)
        weights[weights.cumsum(-1) - weights >= r.top_p] = 0  # the token that crosses the mass is kept
        return int(order[torch.multinomial(weights, 1, generator=self.stream)])

    def add(self, token: int, logprobs: torch.Tensor, tokenizer: Any) -> None:
        top: tuple[tuple[str, float], ...] = ()
        if self.request.top_logprobs:
            values, order = logprobs.topk(min(self.request.top_logprobs, len(logprobs)))
            pairs = zip(order.tolist(), values.tolist(), strict=True)
            top = tuple((tokenizer.decode([other]), value) for other, value in pairs)
        self.ids.append(token)
        self.tokens.append(Token(tokenizer.decode([token]), float(logprobs[token]), top))

    def finished(self, ended: bool, room: int, tokenizer: Any) -> Answer | None:
        text = tokenizer.decode(self.ids, skip_special_tokens=True)
        places = [text.find(stop) for stop in self.request.stop if stop in text]
        if ended or places:
            return self._answer(text[: min(places)] if places else text, "stop")
        if len(self.ids) >= self.request.max_tokens:
            return self._answer(text, "max_tokens")
        if len(self.prompt) + len(self.ids) >= room:
            return self._answer(text, "model_length")
        return None

    def _answer(self, text: str, stop: Literal["stop", "max_tokens", "model_length"]) -> Answer:
        return Answer(text, tuple(self.tokens), stop, len(self.prompt))
