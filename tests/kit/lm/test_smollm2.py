"""SmolLM2: the conversion on a small model of the same architecture, and the real one."""

from __future__ import annotations

import importlib.util
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from paperworks.kit.assets import AssetMissing, open_asset, status
from paperworks.kit.lm import embed_lm, load_smollm2
from paperworks.kit.lm.smollm2 import convert

from .gguf_file import write_gguf
from .reference import embed_one

HEADS, KV_HEADS, WIDTH, INNER, DEPTH = 4, 2, 32, 48, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
)

needed = pytest.mark.skipif(status("smollm2").state == "missing", reason="not on this machine: paperworks data smollm2")


def byte_alphabet() -> list[str]:
    """GPT-2's letters for the 256 bytes: printable ones for themselves, the others from code point 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]


def in_pairs(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF's order of a rotary projection's rows: i and i + size/2 of each head side by side."""
    size = len(weight) // heads
    rows = [head * size + i + half for head in range(heads) for i in range(size // 2) for half in (0, size // 2)]
    return weight[rows]


@pytest.fixture
def small(tmp_path: Path) -> tuple[LlamaForCausalLM, Path]:
    """A random model, and the folder that `convert` makes of its GGUF."""
    tokens = [*CONTROL, *byte_alphabet(), "Ġc", "Ġca", "Ġcat", "12"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=DEPTH,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config).eval()
    names = {"embed_tokens": "token_embd", "norm": "output_norm"}
    for i in range(DEPTH):
        ours = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
        names |= {f"layers.{i}.self_attn.{theirs}": f"blk.{i}.{name}" for theirs, name in ours.items()}
        names |= {f"layers.{i}.mlp.{part}_proj": f"blk.{i}.ffn_{part}" for part in ("gate", "up", "down")}
        names |= {f"layers.{i}.input_layernorm": f"blk.{i}.attn_norm"}
        names |= {f"layers.{i}.post_attention_layernorm": f"blk.{i}.ffn_norm"}
    tensors = {}
    for theirs, name in names.items():
        weight = model.model.get_parameter(f"{theirs}.weight")
        if weight.dim() == 1:
            torch.nn.init.uniform_(weight, 0.5, 2)  # the gains of a new model are all 1
        array = weight.detach().numpy()
        if name.endswith(("attn_q", "attn_k")):
            array = in_pairs(array, HEADS if name.endswith("q") else KV_HEADS)
        tensors[f"{name}.weight"] = (array.shape, 0, array.astype("<f4").tobytes())
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": DEPTH,
        "llama.context_length": 128,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100.0,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.merges": ["Ġ c", "Ġc a", "Ġca t", "1 2"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    write_gguf(tmp_path / "small.gguf", metadata, tensors)
    (tmp_path / "folder").mkdir()
    convert(tmp_path / "small.gguf", tmp_path / "folder")
    return model, tmp_path / "folder"


def test_converted_model_computes_the_same(small: tuple[LlamaForCausalLM, Path]) -> None:
    model, folder = small
    again = AutoModelForCausalLM.from_pretrained(folder)
    assert again.dtype == torch.float32
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert again.config.rms_norm_eps == 1e-5
    assert (again.generation_config.eos_token_id, again.generation_config.pad_token_id) == (2, 2)
    ids = torch.randint(0, 200, (2, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(again(ids).logits, model(ids).logits, rtol=0, atol=0)
        assert (model(ids).logits - model(ids.flip(1)).logits.flip(1)).abs().max() > 0.1, "positions count"


def test_converted_tokenizer(small: tuple[LlamaForCausalLM, Path]) -> None:
    _, folder = small
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("a cat 12") == ["a", "Ġcat", "Ġ", "1", "2"], "digits one by one, although '12' is a token"
    for text in ("Größe 漢字 😀\n\n  x", "", " a"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "a"}], return_dict=True)["input_ids"]
    assert (chat[0], chat[-2]) == (1, 2)
    assert tokenizer.decode(chat, skip_special_tokens=True) == "user\na\n"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (CONTROL[1], CONTROL[2], CONTROL[2])
    assert tokenizer(["a", "a a"], padding=True)["attention_mask"][0][0] == 0, "pads on the left, for generation"


def test_a_missing_model_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
    monkeypatch.setattr("paperworks.kit.assets.store.installed_path", lambda source: None)
    with pytest.raises(AssetMissing, match="paperworks data smollm2"):
        load_smollm2()


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    return load_smollm2()


@pytest.mark.slow
@needed
def test_greedy_continuation(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    questions = ["What is the capital of France?", "Name the three primary colours."]
    chats = [[{"role": "user", "content": question}] for question in questions]
    batch = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**batch, max_new_tokens=24, do_sample=False)
    answers = tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answers[0] == "The capital of France is Paris."
    assert answers[1].startswith("The three primary colours are:\n\n1. Red")
    plain = tokenizer("The three laws of thermodynamics are", return_tensors="pt")
    text = tokenizer.decode(model.generate(**plain, max_new_tokens=16, do_sample=False)[0])
    begin, end = (
        "The three laws of thermodynamics are fundamental principles that govern",
        "matter and energy. These laws are:",
    )
    assert text == f"{begin} the behavior of {end}\n\n"  # the second choice is behind by 0.19 nats or more at each step


@pytest.mark.slow
@needed
def test_loads_fast_and_embeds(smollm2: tuple[Any, Any]) -> None:
    begun = time.process_time()
    load_smollm2()
    assert time.process_time() - begun < 5  # about 1 s where nothing else runs
    model, tokenizer = smollm2
    texts = ["sea lion", "cat", "an animal that lives in the sea", "1987"]
    for layer, pooling in ((-1, "last"), (15, "mean")):
        got = embed_lm(model, tokenizer, texts, layer, pooling)  # type: ignore[arg-type]
        expected = np.stack([embed_one(model, tokenizer, text, layer, pooling) for text in texts])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.slow
@needed
@pytest.mark.skipif(
    not (importlib.util.find_spec("gguf") and importlib.util.find_spec("accelerate")),
    reason="transformers reads GGUF with gguf and accelerate only",
)
def test_weights_are_those_of_transformers_own_loader(smollm2: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = smollm2
    source = open_asset("smollm2")
    shutil.copy(source, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=source.name, dtype=torch.float32)
    expected = theirs.state_dict()
    assert model.state_dict().keys() == expected.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    other = AutoTokenizer.from_pretrained(tmp_path, gguf_file=source.name)
    text = "In 1987 there're cats\n\n  ok <|im_end|> Größe"
    assert tokenizer(text)["input_ids"] == other(text)["input_ids"]
    assert tokenizer.chat_template == other.chat_template
