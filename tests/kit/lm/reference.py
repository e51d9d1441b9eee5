"""Plain readings of what the kit does with models, as published; one text at a time. Imports nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer


def published_minilm(folder: Path, texts: list[str]) -> np.ndarray:
    """The usage that the model's card gives: mean pooling by the attention mask, then division by the norm."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch)[0]
    mask = batch["attention_mask"].unsqueeze(-1).expand(states.size()).float()
    means = torch.sum(states * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)
    return torch.nn.functional.normalize(means, p=2, dim=1).numpy()


def embed_one(model: Any, tokenizer: Any, text: str, layer: int, pooling: str) -> np.ndarray:
    with torch.no_grad():
        out = model(torch.tensor([tokenizer(text)["input_ids"]]), output_hidden_states=True)
    states = out.hidden_states[layer][0].double().numpy()
    return states[-1] if pooling == "last" else sum(states) / len(states)


def dequantise_q4_1(data: bytes) -> list[float]:
    """Blocks of 20 bytes: scale and minimum in float16, 32 numbers of 4 bits, the low halves first."""
    out = []
    for start in range(0, len(data), 20):
        scale, minimum = np.frombuffer(data[start : start + 4], "<f2").astype(float)
        packed = data[start + 4 : start + 20]
        out += [scale * (byte % 16) + minimum for byte in packed] + [scale * (byte // 16) + minimum for byte in packed]
    return out


def dequantise_q8_0(data: bytes) -> list[float]:
    """Blocks of 34 bytes: a scale in float16, 32 signed bytes."""
    out = []
    for start in range(0, len(data), 34):
        (scale,) = np.frombuffer(data[start : start + 2], "<f2").astype(float)
        out += [scale * (byte - 256 * (byte > 127)) for byte in data[start + 2 : start + 34]]
    return out
