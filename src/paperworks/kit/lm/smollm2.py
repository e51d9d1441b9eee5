"""SmolLM2-135M-Instruct, a language model of 134.5 million parameters that answers on a laptop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from paperworks.kit.assets import derive
from paperworks.kit.lm.gguf import GGUF
from paperworks.kit.lm.loading import no_progress_bar

_CONTROL = 3  # GGUF's type of tokens that no text makes, such as <|im_end|>
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_smollm2(device: str | torch.device = "cpu") -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Loads the model, in evaluation mode and float32, and its tokenizer with the chat template.

    The weights lie on a grid of 4 bits (8 for the embedding of tokens): make no claims about quantisation with them.
    The first call on a machine converts the asset, which takes some seconds.

    Args:
        device: Where the model goes.

    Returns:
        The model and the tokenizer, which pads on the left, ready for generation. Both are yours to change.

    Raises:
        AssetMissing: The model is not on this machine, nor what was made of it.
    """
    folder = derive("smollm2", "safetensors", 1, convert)
    with no_progress_bar():
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.to(device).eval(), PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)


def convert(source: Path, folder: Path) -> None:
    """Writes a GGUF file of the Llama architecture as a folder that `transformers` loads.

    Args:
        source: The GGUF file, with SmolLM's tokenizer inside.
        folder: An existing folder.
    """
    gguf = GGUF(source)
    config = _config(gguf)
    config.save_pretrained(folder)
    GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    ).save_pretrained(folder)
    _tokenizer(gguf).save_pretrained(folder)
    save_file(_weights(gguf, config), folder / "model.safetensors", metadata={"format": "pt"})


def _config(gguf: GGUF) -> LlamaConfig:
    of = {key.removeprefix("llama."): value for key, value in gguf.metadata.items()}
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=of["vocab_size"],
        hidden_size=of["embedding_length"],
        intermediate_size=of["feed_forward_length"],
        num_hidden_layers=of["block_count"],
        num_attention_heads=of["attention.head_count"],
        num_key_value_heads=of["attention.head_count_kv"],
        max_position_embeddings=of["context_length"],
        rms_norm_eps=float(f"{of['attention.layer_norm_rms_epsilon']:.6g}"),  # 1e-5, stored in float32
        rope_parameters={"rope_type": "default", "rope_theta": of["rope.freq_base"]},
        tie_word_embeddings="output.weight" not in gguf.names,
        bos_token_id=of["tokenizer.ggml.bos_token_id"],
        eos_token_id=of["tokenizer.ggml.eos_token_id"],
        pad_token_id=of["tokenizer.ggml.padding_token_id"],
        dtype="float32",
    )


def _weights(gguf: GGUF, config: LlamaConfig) -> dict[str, npt.NDArray[np.float32]]:
    weights = {}
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for name in gguf.names:
        part = name.removesuffix(".weight")
        tensor = gguf.tensor(name)
        if part in top:
            weights[f"{top[part]}.weight"] = tensor
            continue
        _, layer, role = part.split(".")
        if role == "attn_q":
            tensor = _halves(tensor, config.num_attention_heads)
        elif role == "attn_k":
            tensor = _halves(tensor, config.num_key_value_heads)
        weights[f"model.layers.{layer}.{_LAYER[role]}.weight"] = tensor
    return weights


def _halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Reorders the rows of each head from pairs that rotate together (2i, 2i+1) to halves (i, i + size/2)."""
    pairs = weight.reshape(heads, -1, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _tokenizer(gguf: GGUF) -> PreTrainedTokenizerFast:
    """Builds SmolLM's byte-level BPE: digits one by one, then words as GPT-2 cuts them."""
    of = {key.removeprefix("tokenizer."): value for key, value in gguf.metadata.items()}
    if (kind := (of["ggml.model"], of["ggml.pre"])) != ("gpt2", "smollm"):
        raise ValueError(f"the tokenizer is {kind}; known: ('gpt2', 'smollm')")
    tokens: list[str] = of["ggml.tokens"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in of["ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, type_ in zip(tokens, of["ggml.token_type"], strict=True) if type_ == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    named = {
        f"{role}_token": tokens[of[f"ggml.{key}_token_id"]]
        for role, key in {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}.items()
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=of["chat_template"],
        model_max_length=gguf.metadata["llama.context_length"],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        **named,
    )
