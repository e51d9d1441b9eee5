"""Hidden states of causal models: a batch gives what each text alone gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from paperworks.kit.lm import embed_lm
from paperworks.kit.lm.embedding import pool

from .reference import embed_one

WORDS = ["[PAD]", "a", "b", "c", "sea", "lion", "cat", "dog"]
TEXTS = ["sea lion", "a", "a b c cat dog lion sea a b c", "dog", "c c c", "sea lion cat", "lion sea"]
DEPTH = 3


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", padding_side="left")


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    if request.param == "llama":
        config = LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=DEPTH,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.5,
        )
        return LlamaForCausalLM(config).eval()
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=len(WORDS), n_embd=32, n_layer=DEPTH, n_head=4, initializer_range=0.5)
    ).eval()


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("layer", [0, 1, DEPTH, -1, -2])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_equals_one_by_one_without_padding(
    model: Any, tokenizer: Any, layer: int, pooling: Any, batch_size: int
) -> None:
    got = embed_lm(model, tokenizer, TEXTS, layer, pooling, batch_size)
    assert (got.dtype, got.shape) == (np.float32, (len(TEXTS), 32))
    expected = np.stack([embed_one(model, tokenizer, text, layer, pooling) for text in TEXTS])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        got / scale, expected / scale, atol=3e-5
    )  # float32 sums in another order; a wrong position is 0.01 off
    assert np.abs(expected[0] - expected[6]).max() > 0.01 or (layer == 0 and pooling == "mean")  # order of words counts


def test_a_model_in_training_is_evaluated_and_stays_in_training(model: Any, tokenizer: Any) -> None:
    model.train()
    try:
        got = embed_lm(model, tokenizer, TEXTS)
        assert model.training
    finally:
        model.eval()
    np.testing.assert_array_equal(got, embed_lm(model, tokenizer, TEXTS))


def test_no_texts(model: Any, tokenizer: Any) -> None:
    assert embed_lm(model, tokenizer, []).shape == (0, 32)


def test_bad_input_is_named(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"layer is 4; allowed: -4 to 3"):
        embed_lm(model, tokenizer, TEXTS, layer=4)
    with pytest.raises(ValueError, match="pooling is 'max'; allowed: 'last', 'mean'"):
        embed_lm(model, tokenizer, TEXTS, pooling="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batch_size is 0"):
        embed_lm(model, tokenizer, TEXTS, batch_size=0)
    with pytest.raises(ValueError, match=r"texts\[1\] is ' ', which has no tokens"):
        embed_lm(model, tokenizer, ["a", " "])
    with pytest.raises(TypeError, match="texts is the text 'a b'"):
        embed_lm(model, tokenizer, "a b")


@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling_ignores_padding_on_either_side(side: str) -> None:
    states = torch.arange(24.0).reshape(2, 4, 3)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0] if side == "right" else [0, 0, 1, 1]])
    own = states[1, :2] if side == "right" else states[1, 2:]
    torch.testing.assert_close(pool(states, mask, "last"), torch.stack([states[0, 3], own[-1]]))
    torch.testing.assert_close(pool(states, mask, "mean"), torch.stack([states[0].mean(0), own.mean(0)]))
