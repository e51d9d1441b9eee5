"""all-MiniLM-L6-v2, a sentence encoder of 22.7 million parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import BertModel, PreTrainedTokenizerFast

from paperworks.kit.assets import catalog, open_asset
from paperworks.kit.features import cached_features
from paperworks.kit.lm.embedding import pad_right, pool
from paperworks.kit.lm.loading import no_progress_bar

WIDTH = 384
MAX_TOKENS = 256  # as the encoder was trained, [CLS] and [SEP] included; longer texts are cut


def load_minilm(device: str | torch.device = "cpu") -> tuple[BertModel, PreTrainedTokenizerFast]:
    """Loads the encoder, in evaluation mode and float32.

    Args:
        device: Where the model goes.

    Returns:
        The model, and a tokenizer that pads and cuts as it is told in each call (`model_max_length` is 256).

    Raises:
        AssetMissing: The model is not on this machine.
    """
    folder = open_asset("minilm")
    with no_progress_bar():
        model = BertModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        model_max_length=MAX_TOKENS,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
    )
    return model.to(device).eval(), tokenizer


def encode(
    texts: Sequence[str], batch_size: int = 64, *, device: str | torch.device = "cpu", cache: bool = True
) -> npt.NDArray[np.float32]:
    """Encodes texts; dot products of the results are cosine similarities.

    The mean of the last hidden states over a text's tokens, [CLS] and [SEP] included, divided by its Euclidean norm.
    Texts are cut after 256 tokens. What was encoded once on this machine is looked up, without loading the model.

    Args:
        texts: Any number of texts, repeated or not.
        batch_size: Texts in one batch.
        device: Where the model runs.
        cache: Whether to look up and keep features in the cache folder.

    Returns:
        Vectors of length 1, of shape (len(texts), 384).

    Raises:
        AssetMissing: The model is not on this machine, and some text is new.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts is the text {texts!r}; a sequence of texts is expected")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; allowed: 1 or more")
    run = partial(_encode, batch_size=batch_size, device=str(device))
    if not cache:
        return run(list(texts)) if texts else np.empty((0, WIDTH), np.float32)
    name = f"minilm-{catalog()['minilm'].digest[:16]}-mean-norm-{MAX_TOKENS}"
    return cached_features(name, texts, run, WIDTH)


@torch.inference_mode()
def _encode(texts: list[str], batch_size: int, device: str) -> npt.NDArray[np.float32]:
    model, tokenizer = _loaded(device)
    tokens = tokenizer(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    vectors = np.empty((len(texts), WIDTH), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # like lengths share a batch, with little padding
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        ids, mask = pad_right([tokens[i] for i in rows], device=device)
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        pooled = torch.nn.functional.normalize(pool(states, mask, "mean"), dim=-1)
        vectors[rows] = pooled.cpu().numpy()
    return vectors


@lru_cache(maxsize=1)
def _loaded(device: str) -> tuple[Any, Any]:
    return load_minilm(device)
