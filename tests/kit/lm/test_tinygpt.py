"""TinyGPT against a plain float64 reference, against Llama, and inside the libraries it is made for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from paperworks.kit.lm.tinygpt import TinyGPT, TinyGPTConfig

SHAPE = dict(
    vocab_size=23, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=2, initializer_range=0.2,
)  # fmt: skip


def build(**change: object) -> TinyGPT:
    torch.manual_seed(0)
    return TinyGPT(TinyGPTConfig(**{**SHAPE, **change})).eval()


def tokens(rows: int = 2, length: int = 9) -> torch.Tensor:
    return torch.randint(3, 23, (rows, length), generator=torch.Generator().manual_seed(1))


def reference(model: TinyGPT, ids: list[int]) -> torch.Tensor:
    """Logits in float64, position by position and head by head, from the formulas."""
    w = {name: value.double() for name, value in model.state_dict().items()}
    c = model.config
    size, half = c.hidden_size // c.num_attention_heads, c.hidden_size // c.num_attention_heads // 2

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean() + c.rms_norm_eps).sqrt() * weight

    def turn(x: torch.Tensor, position: int) -> torch.Tensor:
        y = x.clone()
        for i in range(half):
            angle = torch.tensor(position * c.rope_theta ** (-2 * i / size), dtype=torch.float64)
            y[i] = x[i] * angle.cos() - x[i + half] * angle.sin()
            y[i + half] = x[i + half] * angle.cos() + x[i] * angle.sin()
        return y

    xs = [w["model.embed_tokens.weight"][i] for i in ids]
    for n in range(c.num_hidden_layers):
        p = f"model.layers.{n}."
        normed = [norm(x, w[p + "input_layernorm.weight"]) for x in xs]
        q, k, v = ([w[p + f"self_attn.{a}_proj.weight"] @ x for x in normed] for a in "qkv")
        for t in range(len(xs)):
            heads = []
            for h in range(c.num_attention_heads):
                g = h // (c.num_attention_heads // c.num_key_value_heads)
                one, shared = slice(h * size, (h + 1) * size), slice(g * size, (g + 1) * size)
                score = [turn(q[t][one], t) @ turn(k[s][shared], s) / size**0.5 for s in range(t + 1)]
                weight = torch.stack(score).softmax(0)
                heads.append(sum(weight[s] * v[s][shared] for s in range(t + 1)))
            xs[t] = xs[t] + w[p + "self_attn.o_proj.weight"] @ torch.cat(heads)
        for t, x in enumerate(xs):
            y = norm(x, w[p + "post_attention_layernorm.weight"])
            gate = w[p + "mlp.gate_proj.weight"] @ y
            up = w[p + "mlp.up_proj.weight"] @ y
            xs[t] = x + w[p + "mlp.down_proj.weight"] @ (gate / (1 + (-gate).exp()) * up)
    return torch.stack([w["lm_head.weight"] @ norm(x, w["model.norm.weight"]) for x in xs])


@torch.no_grad()
def test_logits_are_those_of_the_reference() -> None:
    model, ids = build(), tokens(1)
    torch.testing.assert_close(model(ids).logits[0].double(), reference(model, ids[0].tolist()), atol=2e-4, rtol=1e-4)


@torch.no_grad()
def test_logits_are_those_of_llama() -> None:
    model, ids = build(tie_word_embeddings=False), tokens()
    llama = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    llama.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(ids).logits, llama(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["cache", "past_key_values"])  # the older name of it, too
@torch.no_grad()
def test_cached_decoding_is_the_full_forward(name: str) -> None:
    model, ids = build(), tokens()
    full = model(ids).logits
    out = model(ids[:, :3], use_cache=True)
    parts = [out.logits]
    for a, b in ((3, 4), (4, 7), (7, 9)):  # a chunk of several tokens too
        out = model(ids[:, a:b], use_cache=True, **{name: out.cache})
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), full, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_left_padding_changes_nothing() -> None:
    model, ids = build(), tokens()
    padded, mask = ids.clone(), torch.ones_like(ids)
    padded[0, :4], mask[0, :4] = 0, 0
    torch.testing.assert_close(
        model(padded, attention_mask=mask).logits[0, 4:], model(ids[:1, 4:]).logits[0], atol=1e-4, rtol=1e-4
    )
    both = model.generate(padded, attention_mask=mask, max_new_tokens=6, do_sample=False)
    alone = model.generate(ids[:1, 4:], max_new_tokens=6, do_sample=False)[0, 5:]
    assert both[0, 9 : 9 + len(alone)].tolist() == alone.tolist()


@torch.no_grad()
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy_generation_is_a_hand_loop(use_cache: bool) -> None:
    model, ids = build(eos_token_id=None), tokens(1, 4)
    out = model.generate(ids, max_new_tokens=8, do_sample=False, use_cache=use_cache)
    for _ in range(8):
        ids = torch.cat((ids, model(ids).logits[:, -1:].argmax(-1)), 1)
    assert out.tolist() == ids.tolist()


@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded_bitwise(tmp_path: Path, tied: bool) -> None:
    model = build(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(loaded) is TinyGPT
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert torch.equal(loaded.eval()(tokens()).logits, model(tokens()).logits)


def test_loss_is_the_shifted_cross_entropy_without_what_is_masked() -> None:
    model, ids = build(), tokens()
    labels = ids.clone()
    labels[:, :5] = -100
    out = model(ids, labels=labels)
    expected = F.cross_entropy(out.logits[:, 4:-1].flatten(0, 1), ids[:, 5:].flatten())
    torch.testing.assert_close(out.loss, expected)


def test_gradients_flow_and_checkpointing_keeps_them() -> None:
    model, ids = build().train(), tokens()
    model(ids, labels=ids).loss.backward()
    plain = {name: value.grad.clone() for name, value in model.named_parameters()}
    assert all(g.abs().sum() > 0 for g in plain.values())
    model.zero_grad()
    model.gradient_checkpointing_enable()
    model(ids, labels=ids).loss.backward()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.grad, plain[name])


def test_lora_trains_its_adapters_alone() -> None:
    adapted = get_peft_model(build(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    before = {name: value.detach().clone() for name, value in adapted.named_parameters()}
    optimiser = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=1.0)
    adapted(input_ids=tokens(), labels=tokens()).loss.backward()
    optimiser.step()
    moved = {name for name, value in adapted.named_parameters() if not torch.equal(value, before[name])}
    assert len(moved) == 4  # B of q and v in two layers; A stands still while B is zero
    assert all("lora_B" in name for name in moved)


@torch.no_grad()
def test_images_fill_their_slots() -> None:
    model = build(image_size=8, patch_size=4, image_token_id=3)
    ids = torch.tensor([[2, 3, 3, 3, 3, 7, 8]])
    images = torch.randn(2, 1, 3, 8, 8, generator=torch.Generator().manual_seed(2))
    first, second = (model(ids, pixel_values=image).logits for image in images)
    assert torch.equal(first[:, 0], second[:, 0])  # before the image nothing of it is seen
    assert not torch.allclose(first[:, -1], second[:, -1])
    out = model.generate(ids, pixel_values=images[0], max_new_tokens=3, do_sample=False, eos_token_id=None)
    hand = ids
    for _ in range(3):
        hand = torch.cat((hand, model(hand, pixel_values=images[0]).logits[:, -1:].argmax(-1)), 1)
    assert out.tolist() == hand.tolist()
    with pytest.raises(ValueError, match="input_ids hold 3 image tokens: pixel_values fill 4"):
        model(ids[:, 2:], pixel_values=images[0])


def test_bad_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size is 30"):
        TinyGPTConfig(hidden_size=30, num_attention_heads=4)
    with pytest.raises(ValueError, match="exactly one"):
        build()()
