"""Texts as vectors: hidden states of a transformer, pooled over the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

Pooling = Literal["last", "mean"]


def pool(
    states: Float[Tensor, " batch tokens width"], mask: Int[Tensor, " batch tokens"], pooling: Pooling
) -> Float[Tensor, " batch width"]:
    """Makes one vector of the states of each text.

    Args:
        states: Hidden states, of shape (batch, tokens, width).
        mask: 1 at the tokens of the text, 0 at padding, of shape (batch, tokens); each row has a 1.
        pooling: "last", the state of the last token, or "mean", the mean over tokens.

    Returns:
        Vectors of shape (batch, width).
    """
    if pooling == "last":
        positions = torch.arange(mask.shape[1], device=mask.device)
        last = (positions * (mask > 0)).argmax(1)
        return states[torch.arange(len(states), device=states.device), last]
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)
    raise ValueError(f"pooling is {pooling!r}; allowed: 'last', 'mean'")


@torch.inference_mode()
def embed_lm(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    layer: int = -1,
    pooling: Pooling = "last",
    batch_size: int = 32,
) -> npt.NDArray[np.float32]:
    """Embeds texts by a causal language model's hidden states.

    A text's vector does not depend on the others by more than rounding: texts are padded on the right, where no token
    of a causal model looks, and texts of like length share a batch.

    Args:
        model: A `transformers` causal model (or its base model); its mode, training or not, is left as it was.
        tokenizer: Its tokenizer; its own padding settings are not used. Special tokens are added as it does by default.
        texts: The texts, of one token or more each.
        layer: Which hidden states: 0 is the embedding of tokens, -1 the last layer after the final normalisation.
        pooling: "last", the state of the last token, or "mean", the mean over tokens.
        batch_size: Texts in one batch.

    Returns:
        Vectors of shape (len(texts), width).

    Raises:
        ValueError: A text has no tokens, or `layer`, `pooling` or `batch_size` is out of range.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts is the text {texts!r}; a sequence of texts is expected")
    if pooling not in ("last", "mean"):
        raise ValueError(f"pooling is {pooling!r}; allowed: 'last', 'mean'")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; allowed: 1 or more")
    config = model.config.get_text_config()
    depth = config.num_hidden_layers
    if not -depth - 1 <= layer <= depth:
        raise ValueError(f"layer is {layer}; allowed: {-depth - 1} to {depth}")
    tokens = tokenizer(list(texts), padding=False, truncation=False)["input_ids"] if texts else []
    if empty := [i for i, ids in enumerate(tokens) if not ids]:
        raise ValueError(f"texts[{empty[0]}] is {texts[empty[0]]!r}, which has no tokens")
    base = model.base_model  # no logits over the vocabulary
    vectors = np.empty((len(tokens), config.hidden_size), dtype=np.float32)
    training = model.training
    model.eval()
    try:
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            ids, mask = pad_right([tokens[i] for i in rows], device=model.device)
            states = base(
                input_ids=ids, attention_mask=mask, output_hidden_states=layer not in (-1, depth), use_cache=False
            )
            chosen = states.last_hidden_state if layer in (-1, depth) else states.hidden_states[layer]
            vectors[rows] = pool(chosen, mask, pooling).float().cpu().numpy()
    finally:
        model.train(training)
    return vectors


def pad_right(
    tokens: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = 0
) -> tuple[Int[Tensor, " batch tokens"], Int[Tensor, " batch tokens"]]:
    """Makes one batch of token lists.

    Args:
        tokens: Lists of token ids, of one or more each.
        device: Where the batch goes.
        fill: What stands at padding; the mask hides it.

    Returns:
        Ids and mask (1 at tokens, 0 at padding), each of shape (batch, longest).
    """
    longest = max(map(len, tokens))
    ids = torch.full((len(tokens), longest), fill)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(tokens):
        ids[row, : len(one)] = torch.tensor(one)
        mask[row, : len(one)] = 1
    return ids.to(device), mask.to(device)
