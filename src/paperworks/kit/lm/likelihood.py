"""How likely a model finds given continuations, with what prompts share computed once."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch


@torch.inference_mode()
def continuation_logprobs(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    options: Sequence[Sequence[str]],
    add_special_tokens: bool = True,
) -> list[list[float]]:
    """Sums the log-probabilities of each option's tokens after its prompt.

    Prompts are worked through in sorted order and keep the keys and values of their common beginning; the options of a
    prompt run as one batch on top of it. So documents that open several prompts, and the prompt of several options, are
    computed once. Prompt and option are tokenised apart: end the prompt without a space and begin options with one.

    Args:
        model: A `transformers` causal model with a `DynamicCache`; it is used as it is, so put it into evaluation mode.
        tokenizer: Its tokenizer.
        prompts: n prompts of a token or more.
        options: For each prompt its options, of a token or more each.
        add_special_tokens: Whether the tokenizer may add what it adds by default to prompts; not to those that come out
            of a chat template, which has done so.

    Returns:
        For each prompt, for each of its options, the sum in nats.

    Raises:
        ValueError: Counts differ, a prompt or option has no tokens, or both do not fit into the model's context.
    """
    if len(prompts) != len(options):
        raise ValueError(f"prompts has {len(prompts)} and options {len(options)} entries; they go in pairs")
    ids = [tokenizer(prompt, add_special_tokens=add_special_tokens)["input_ids"] for prompt in prompts]
    ends = [[tokenizer(o, add_special_tokens=False)["input_ids"] for o in row] for row in options]
    if empty := [i for i, row in enumerate(ids) if not row]:
        raise ValueError(f"prompts[{empty[0]}] is {prompts[empty[0]]!r}, which has no tokens")
    if empty := [i for i, row in enumerate(ends) if not row or not all(row)]:
        raise ValueError(f"options[{empty[0]}] is {list(options[empty[0]])!r}; one option or more, of a token or more")
    room = getattr(model.config, "max_position_embeddings", None)
    for i, (prompt, row) in enumerate(zip(ids, ends, strict=True)):
        if room is not None and (need := len(prompt) + max(map(len, row))) > room:
            raise ValueError(f"prompts[{i}] and its longest option have {need} tokens; allowed: {room} in all")
    results: list[list[float]] = [[] for _ in prompts]
    cache, held = _new_cache(model), list[int]()
    for i in sorted(range(len(ids)), key=lambda i: ids[i]):
        prompt = ids[i]
        shared = _common(held, prompt[:-1])  # the last token is run anew, for its logits
        if len(held) > shared:
            cache.crop(shared - len(held))  # a negative count of tokens to remove
        states = _run(model, prompt[shared:], cache)
        held = prompt
        first = _head(model, states[:, -1:])[0, -1].float().log_softmax(-1)
        results[i] = _score(model, cache, len(held), first, ends[i])
    return results


def _score(model: Any, cache: Any, length: int, first: torch.Tensor, ends: list[list[int]]) -> list[float]:
    totals = [float(first[end[0]]) for end in ends]
    rest = [end[:-1] for end in ends]
    width = max(map(len, rest))
    if width == 0:
        return totals
    batch = torch.zeros(len(ends), width, dtype=torch.long)
    mask = torch.zeros(len(ends), length + width, dtype=torch.long)
    mask[:, :length] = 1
    for row, tokens in enumerate(rest):
        batch[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)
        mask[row, length : length + len(tokens)] = 1
    branched = copy.deepcopy(cache)
    branched.batch_repeat_interleave(len(ends))
    states = model.base_model(
        input_ids=batch.to(model.device),
        attention_mask=mask.to(model.device),
        use_cache=True,
        **cache_argument(model, branched),
    ).last_hidden_state
    places = [(row, column) for row, tokens in enumerate(rest) for column in range(len(tokens))]
    rows, columns = (torch.tensor(side, device=states.device) for side in zip(*places, strict=True))
    logprobs = _head(model, states[rows, columns]).float().log_softmax(-1)  # (places, vocabulary)
    for place, (row, column) in enumerate(places):
        totals[row] += float(logprobs[place, ends[row][column + 1]])
    return totals


def _run(model: Any, tokens: list[int], cache: Any) -> torch.Tensor:
    """Hidden states of further tokens, shape (1, tokens, width); the cache grows by them."""
    ids = torch.tensor([tokens], device=model.device)
    states = model.base_model(input_ids=ids, use_cache=True, **cache_argument(model, cache)).last_hidden_state
    return states  # type: ignore[no-any-return]


def _head(model: Any, states: torch.Tensor) -> torch.Tensor:
    return model.get_output_embeddings()(states)  # type: ignore[no-any-return]


def _new_cache(model: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


def cache_argument(model: Any, cache: Any) -> dict[str, Any]:
    """The cache under the name that a model's forward has for it: releases of `transformers` differ.

    Args:
        model: A `transformers` model.
        cache: Its keys and values so far.
    """
    names = inspect.signature(model.base_model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": cache}


def _common(a: list[int], b: list[int]) -> int:
    same = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        same += 1
    return same
