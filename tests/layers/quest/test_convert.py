"""Conversion of torch and transformers models, query rescaling, distillation."""

import copy
import warnings

import pytest
import torch
from torch import nn

from paperworks.kit.assets import load_digits8x8
from paperworks.layers.quest.attention import unit
from paperworks.layers.quest.convert import convert_attention, looks_trained, register_quest
from paperworks.layers.quest.distill import distill_attention
from paperworks.layers.quest.module import QuestAttention, project_heads
from paperworks.layers.quest.vit import ViT

E, H = 16, 2


def encoder(layers=2, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(E, H, 32, 0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, layers).eval()


def trained(model):
    """Move every parameter off its start."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def by_hand(encoder, x, padding=None):
    """A post-norm encoder whose attention is quest, spelled out."""
    for layer in encoder.layers:
        q, k, v = project_heads(layer.self_attn, x, x, x)
        logits = q @ unit(k).mT
        if padding is not None:
            logits = logits.masked_fill(padding[:, None, None], float("-inf"))
        z = (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = layer.norm1(x + layer.self_attn.out_proj(z))
        x = layer.norm2(x + layer.linear2(layer.linear1(x).relu()))
    return x


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("padded", [True, False])
def test_transformer_encoder_computes_quest_with_and_without_gradients(grad, padded):
    """Without gradients torch would take its fused kernels of plain attention, and nested tensors for padding."""
    model = convert_attention(encoder())
    x = torch.randn(3, 5, E)
    padding = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool) if padded else None
    with torch.set_grad_enabled(grad):
        out, expected = model(x, src_key_padding_mask=padding), by_hand(model, x, padding)
    keep = torch.ones(3, 5, dtype=torch.bool) if padding is None else ~padding
    torch.testing.assert_close(out[keep], expected[keep], rtol=1e-4, atol=1e-5)


def test_norm_none_leaves_outputs_and_parameters_as_they_are():
    model = trained(encoder())
    x = torch.randn(3, 5, E)
    with torch.no_grad():
        before = model(x)
    parameters = [id(p) for p in model.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = convert_attention(model, "none")
    assert same is model
    with torch.no_grad():
        torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    assert [id(p) for p in model.parameters()] == parameters


def test_options_modes_and_sharing_survive():
    shared = nn.MultiheadAttention(E, H, 0.3, bias=False, add_bias_kv=True, kdim=6, vdim=10, dtype=torch.float64)
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared]), "c": nn.MultiheadAttention(E, H)}).eval()
    model["c"].in_proj_weight.requires_grad_(False)
    convert_attention(model, "qk_hs")
    layer = model["a"]
    assert type(layer) is QuestAttention
    assert layer is model["b"][0]
    assert not layer.training
    assert (layer.dropout, layer.in_proj_bias, layer.kdim, layer.vdim) == (0.3, None, 6, 10)
    assert layer.q_gain.dtype == torch.float64
    assert layer.q_gain.eq((E / H) ** 0.5).all()
    assert not model["c"].in_proj_weight.requires_grad
    convert_attention(model, "quest")
    assert model["c"].norm == "quest"
    assert model["c"].q_gain is None
    assert type(convert_attention(nn.MultiheadAttention(E, H))) is QuestAttention


def test_hooks_stay_and_parametrised_weights_are_refused():
    model = encoder(1)
    seen = []
    handle = model.layers[0].self_attn.register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(2, 4, E)
    convert_attention(model)(x)
    assert seen == [1]
    handle.remove()
    model(x)
    assert seen == [1]
    layer = nn.utils.parametrizations.weight_norm(nn.MultiheadAttention(E, H), "in_proj_weight")
    with pytest.raises(ValueError, match=r"in_proj_weight of .* is parametrised; allowed are plain parameters"):
        convert_attention(nn.ModuleList([layer]))


def test_elliptical_layers_follow_each_other():
    model = convert_attention(encoder(3), "elliptical_quest")
    layers = [layer.self_attn for layer in model.layers]
    assert [layer._before for layer in layers] == [(), (layers[0],), (layers[1],)]
    x = torch.randn(2, 4, E)
    with torch.no_grad():
        assert not torch.allclose(model(x), by_hand(model, x))


def test_a_warning_when_weights_look_trained():
    assert not looks_trained(encoder())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert_attention(encoder())
    model = trained(encoder())
    assert looks_trained(model)
    with pytest.warns(UserWarning, match="TransformerEncoder look trained: with norm='quest'.*rescale_queries=True"):
        convert_attention(model)


def test_rescaled_queries_keep_the_mean_size_of_logits():
    """Wq and its bias of each head times mean |k| / sqrt(d), nothing else; measured in each layer's own place."""
    model = trained(encoder())
    before = copy.deepcopy(model)
    x = torch.randn(4, 6, E)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert_attention(model, rescale_queries=True, calibration=[x[:2], x[2:]])
    y = x
    for old, new in zip(before.layers, model.layers, strict=True):
        k = project_heads(old.self_attn, y, y, y).k
        factor = (k.norm(dim=-1).mean((0, 2)) / (E / H) ** 0.5).repeat_interleave(E // H)
        expected = old.self_attn.in_proj_weight.clone(), old.self_attn.in_proj_bias.clone()
        for p in expected:
            p[:E] *= factor.view(-1, *[1] * (p.ndim - 1))
        torch.testing.assert_close(new.self_attn.in_proj_weight, expected[0])
        torch.testing.assert_close(new.self_attn.in_proj_bias, expected[1])
        y = old(y)


def test_rescaling_is_exact_when_all_keys_are_equally_long():
    """One head, Wk three times a rotation, tokens of equal norm: then kbar is k up to a constant, which Wq takes."""
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(E, 1, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight[E : 2 * E] = 3 * torch.linalg.qr(torch.randn(E, E)).Q
    x = 2 * unit(torch.randn(3, 6, E))
    before, _ = layer(x, x, x)
    after, _ = convert_attention(layer, rescale_queries=True, calibration=[(x, x, x)])(x, x, x)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    plain, _ = convert_attention(nn.ModuleList([copy.deepcopy(layer)]))[0](x, x, x)
    assert torch.equal(plain, after)


def test_distillation_recovers_a_model_trained_on_digits():
    """On images that neither training saw, the error of the converted model falls at least tenfold."""
    images, labels = load_digits8x8()
    torch.manual_seed(0)
    order = torch.randperm(len(images))
    x, y = torch.tensor(images / 16, dtype=torch.float32)[order][:, None], torch.tensor(labels)[order]
    teacher = ViT(8, 2, dim=32, depth=2, heads=2, norm="none")
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=5e-3)
    for _ in range(150):
        rows = torch.randint(1200, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(teacher(x[rows]), y[rows]).backward()
        optimizer.step()
    student = copy.deepcopy(teacher)
    batches = x[:1200].split(64)
    convert_attention(student, rescale_queries=True, calibration=batches)

    def error():
        with torch.no_grad():
            target = teacher(x[1200:])
            return (student(x[1200:]) - target).square().mean() / target.var()

    state, before = copy.deepcopy(teacher.state_dict()), error()
    losses = distill_attention(student, teacher, batches, steps=100, lr=2e-3)
    assert len(losses) == 100
    assert before > 0.05  # the conversion alone did change the outputs
    assert error() < 0.1 * before
    assert student.training
    assert all(torch.equal(p, state[name]) for name, p in teacher.state_dict().items())


def llama():
    transformers = pytest.importorskip("transformers", reason="transformers is in the extra `llm`")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).eval()


def llama_by_hand(model, ids):
    """Queries rotate, keys rotate and lose their norm, no 1/sqrt(d); the rest as in the model's own layers."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    x = model.model.embed_tokens(ids)
    rotary = model.model.rotary_emb(x, torch.arange(ids.shape[1])[None])
    causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
    for layer in model.model.layers:
        y, a = layer.input_layernorm(x), layer.self_attn
        q, k, v = (p(y).unflatten(-1, (-1, 8)).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
        q, k = apply_rotary_pos_emb(q, k, *rotary)
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        weights = (q @ unit(k).mT).masked_fill(causal, float("-inf")).softmax(-1)
        x = x + a.o_proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.lm_head(model.model.norm(x))


def test_transformers_model_computes_quest_with_grouped_queries():
    model = llama()
    ids = torch.randint(50, (2, 7))
    plain = model(ids).logits
    convert_attention(model)
    out = model(ids).logits
    torch.testing.assert_close(out, llama_by_hand(model, ids), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(out, plain, atol=1e-2)


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")  # its new name is unknown to older versions
def test_transformers_cache_and_padding_agree_with_full_recomputation():
    """Token by token through the model's own cache; then a left-padded batch beside the sequence alone."""
    model = convert_attention(llama())
    ids = torch.randint(50, (2, 8))
    with torch.no_grad():
        full = model(ids).logits
        out = model(ids[:, :4], use_cache=True)
        parts = [out.logits]
        for i in range(4, 8):
            out = model(ids[:, i : i + 1], past_key_values=out.past_key_values, use_cache=True)
            parts.append(out.logits)
        torch.testing.assert_close(torch.cat(parts, 1), full, rtol=1e-4, atol=1e-4)
        padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
        mask = torch.tensor([[0] * 3 + [1] * 8] * 2)
        positions = (mask.cumsum(1) - 1).clamp_min(0)
        shifted = model(padded, attention_mask=mask, position_ids=positions).logits[:, 3:]
        torch.testing.assert_close(shifted, full, rtol=1e-4, atol=1e-4)


def test_transformers_generate_with_and_without_its_cache():
    model = convert_attention(llama())
    ids = torch.randint(1, 50, (2, 5))
    for options in ({}, {"num_beams": 2}):
        texts = [
            model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0, use_cache=cached, **options)
            for cached in (True, False)
        ]
        assert torch.equal(*texts)


def test_transformers_model_loads_with_attn_implementation(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is in the extra `llm`")
    model = llama()
    model.save_pretrained(tmp_path)
    register_quest()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="quest")
    ids = torch.randint(50, (1, 5))
    torch.testing.assert_close(loaded(ids).logits, convert_attention(model)(ids).logits)


def test_rescaling_a_transformers_model():
    model = llama()
    weights = [layer.self_attn.q_proj.weight.clone() for layer in model.model.layers]
    ids = torch.randint(50, (2, 7))
    keys = []
    hooks = [layer.self_attn.k_proj.register_forward_hook(lambda *a: keys.append(a[2])) for layer in model.model.layers]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    convert_attention(model, rescale_queries=True, calibration=[{"input_ids": ids}])
    for layer, weight, key in zip(model.model.layers, weights, keys, strict=True):
        size = key.unflatten(-1, (2, 8)).norm(dim=-1).mean((0, 1)) / 8**0.5  # a rotation keeps the norm
        factor = size.repeat_interleave(2).repeat_interleave(8)  # two query heads a key head, eight rows a head
        torch.testing.assert_close(layer.self_attn.q_proj.weight, weight * factor[:, None], rtol=1e-4, atol=1e-5)
    assert model.config._attn_implementation == "quest"


def gpt2():
    transformers = pytest.importorskip("transformers", reason="transformers is in the extra `llm`")
    return transformers.GPT2Model(transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2)).eval()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: convert_attention(encoder(), "l2"), "norm='l2'; allowed are 'none', 'quest'"),
        (lambda: convert_attention(nn.Linear(2, 2)), "model=Linear has no attention"),
        (lambda: convert_attention(llama(), "qk"), "norm='qk' with LlamaForCausalLM; allowed .* 'quest'"),
        (lambda: convert_attention(encoder(), rescale_queries=True), "norm='quest' and calibration=None"),
        (
            lambda: convert_attention(encoder(), "q", rescale_queries=True, calibration=[1]),
            "norm='q' and calibration=given",
        ),
        (
            lambda: convert_attention(encoder(), rescale_queries=True, calibration=[]),
            "calibration reached no attention",
        ),
        (
            lambda: convert_attention(gpt2(), rescale_queries=True, calibration=[torch.zeros(1, 3, dtype=torch.long)]),
            "rescale_queries=True with GPT2Attention; allowed are layers with a linear q_proj",
        ),
        (
            lambda: convert_attention(convert_attention(encoder()), rescale_queries=True, calibration=[1]),
            "rescale_queries=True with converted TransformerEncoder; allowed is plain attention",
        ),
        (
            lambda: convert_attention(convert_attention(llama()), rescale_queries=True, calibration=[1]),
            "rescale_queries=True with converted LlamaForCausalLM",
        ),
        (lambda: distill_attention(encoder(), encoder(), [], steps=2), "batches is empty"),
        (lambda: distill_attention(encoder(), encoder(), [1], steps=0), "steps=0; allowed are 1, 2"),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=words):
        call()
