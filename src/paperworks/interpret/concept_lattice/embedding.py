"""Terms as embeddings: hidden states of a causal language model, one vector for an object and its synonyms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .whitening import CausalWhitening

POOLINGS = ("last", "mean")


@torch.inference_mode()
def embed_terms(
    model: Any,
    tokenizer: Any,
    terms: Sequence[str | Sequence[str]],
    layer: int = -1,
    pooling: str = "last",
    template: str | None = None,
    whiten: bool = True,
    batch_size: int = 32,
) -> npt.NDArray[np.float64]:
    """Embed words and phrases.

    Args:
        model: A `transformers` causal language model.
        tokenizer: Its tokenizer.
        terms: Each a text, or a collection of synonyms, of whose vectors the mean is taken. Underscores become spaces.
        layer: Which hidden states: 0 is the embedding of tokens, -1 the last layer after the final normalisation.
        pooling: "last", the state of the last token (of a word of several tokens the one that has seen all of it), or
            "mean", the mean over tokens.
        template: A text with "{term}" in it, such as "an animal called {term}"; the bare term when left out. It
            should end with the term: the last token is what is read.
        whiten: Whether to apply `CausalWhitening` of the model's unembedding matrix.
        batch_size: Texts in one batch.

    Returns:
        Shape (terms, width).

    Raises:
        ValueError: An argument out of range, a text without tokens, or a model without an unembedding matrix.
    """
    if isinstance(terms, str):
        raise ValueError(f"terms={terms!r} is one text; allowed is a collection of them, such as [{terms!r}]")
    if pooling not in POOLINGS:
        raise ValueError(f"pooling={pooling!r}; allowed are {', '.join(map(repr, POOLINGS))}")
    if template is not None and "{term}" not in template:
        raise ValueError(f"template={template!r}; allowed is a text with '{{term}}' in it")
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}; allowed is 1 or more")
    depth = model.config.get_text_config().num_hidden_layers
    if not -depth - 1 <= layer <= depth:
        raise ValueError(f"layer={layer}; allowed is {-depth - 1} to {depth}")
    synonyms = [(term,) if isinstance(term, str) else tuple(term) for term in terms]
    if empty := [i for i, group in enumerate(synonyms) if not group]:
        raise ValueError(f"terms[{empty[0]}] has no synonyms; allowed is one or more")
    pattern = template or "{term}"
    texts = {word: pattern.replace("{term}", word.replace("_", " ")) for group in synonyms for word in group}
    states = _states(model, tokenizer, list(texts.values()), layer, pooling, batch_size)
    of = dict(zip(texts, states, strict=True))
    vectors = np.array([np.mean([of[word] for word in group], axis=0) for group in synonyms])
    return unembedding_frame(model).transform(vectors) if whiten else vectors


def unembedding_frame(model: Any) -> CausalWhitening:
    """Return the causal frame of a model: whitening fitted to the rows of its unembedding matrix.

    Args:
        model: A `transformers` causal language model.

    Raises:
        ValueError: The model has no unembedding matrix.
    """
    head = model.get_output_embeddings()
    if head is None:
        raise ValueError(f"{type(model).__name__} has no unembedding matrix; set whiten=False")
    return CausalWhitening().fit(head.weight.detach().float().cpu().numpy())


def _states(
    model: Any, tokenizer: Any, texts: list[str], layer: int, pooling: str, batch_size: int
) -> npt.NDArray[np.float64]:
    """Pooled hidden states, of shape (texts, width)."""
    tokens = tokenizer(texts, padding=False)["input_ids"] if texts else []
    if empty := [i for i, ids in enumerate(tokens) if not ids]:
        raise ValueError(f"the text {texts[empty[0]]!r} has no tokens")
    found = np.empty((len(tokens), model.config.get_text_config().hidden_size))
    order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))  # like lengths share a batch
    training = model.training
    model.eval()
    try:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            longest = max(len(tokens[i]) for i in rows)
            # Padding stands on the right, where no token of a causal model looks.
            ids = torch.zeros(len(rows), longest, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, i in enumerate(rows):
                ids[row, : len(tokens[i])] = torch.tensor(tokens[i])
                mask[row, : len(tokens[i])] = 1
            ids, mask = ids.to(model.device), mask.to(model.device)
            # The base model: no logits over the vocabulary.
            out = model.base_model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False)
            hidden = out.hidden_states[layer].double()
            if pooling == "last":
                pooled = hidden[torch.arange(len(rows)), mask.sum(dim=1) - 1]
            else:
                pooled = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            found[rows] = pooled.cpu().numpy()
    finally:
        model.train(training)
    return found
