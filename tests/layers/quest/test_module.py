"""`QuestAttention` beside `nn.MultiheadAttention`: same function for norm="none", same masks, same state dict."""

import copy
import itertools
import math
import pickle
import re

import pytest
import torch
from torch import nn

from paperworks.layers.quest.attention import NORMS, attention_logits, unit
from paperworks.layers.quest.cache import UnitKeyCache
from paperworks.layers.quest.module import QuestAttention, project_heads

E, H, B, N, S = 8, 2, 3, 4, 5


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(norm="none", **options):
    """A torch module and ours with its state."""
    theirs = nn.MultiheadAttention(E, H, dtype=torch.float64, **options)
    with torch.no_grad():
        for i, p in enumerate(theirs.parameters()):
            p.copy_(rand(*p.shape, seed=20 + i))
    ours = QuestAttention(E, H, dtype=torch.float64, norm=norm, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def inputs(batch_first=True, kdim=E, vdim=E):
    shapes = [(B, N, E), (B, S, kdim), (B, S, vdim)]
    return [rand(*s, seed=i) if batch_first else rand(*s, seed=i).transpose(0, 1) for i, s in enumerate(shapes)]


BLOCK = torch.tensor([[0, 1, 0, 0, 1], [1, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]], dtype=torch.bool)
PADDING = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_first": True},
        {"batch_first": False},
        {"batch_first": True, "bias": False},
        {"batch_first": True, "kdim": 6, "vdim": 10},
        {"batch_first": False, "add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("masks", ["none", "bool", "padding", "both", "float", "per_head"])
def test_norm_none_is_torch(options, masks):
    ours, theirs = pair(**options)
    x = inputs(options["batch_first"], options.get("kdim", E), options.get("vdim", E))
    extra = {
        "none": {},
        "bool": {"attn_mask": BLOCK},
        "padding": {"key_padding_mask": PADDING},
        "both": {"attn_mask": BLOCK, "key_padding_mask": PADDING},
        "float": {"attn_mask": rand(N, S, seed=7), "key_padding_mask": rand(B, S, seed=8)},
        "per_head": {"attn_mask": rand(B * H, N, S, seed=9) > 1},
    }[masks]
    for average in (True, False):
        got, weights = ours(*x, average_attn_weights=average, **extra)
        want, expected = theirs(*x, average_attn_weights=average, **extra)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(weights, expected)
    fused, no_weights = ours(*x, need_weights=False, **extra)
    assert no_weights is None
    torch.testing.assert_close(fused, want)


def test_inputs_without_a_batch():
    ours, theirs = pair()
    x = [t[0] for t in inputs()]
    for padding in (None, PADDING[0]):
        for got, want in zip(ours(*x, key_padding_mask=padding), theirs(*x, key_padding_mask=padding), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("norm", NORMS)
def test_weights_path_agrees_with_the_fused_path(norm):
    ours, _ = pair(norm, batch_first=True)
    ours = ours.float()
    x = [t.float() for t in inputs()]
    out, weights = ours(*x, attn_mask=BLOCK)
    torch.testing.assert_close(ours(*x, attn_mask=BLOCK, need_weights=False)[0], out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, N))
    assert weights[:, BLOCK].eq(0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_each_variant_is_the_function_of_its_projections(norm):
    """The module adds projections only: weights equal those of the logits of the projected heads."""
    ours, _ = pair(norm, batch_first=True)
    x = inputs()
    q, k, _ = project_heads(ours, *x)
    logits = attention_logits(q, k, norm, ours.q_gain, ours.k_gain)
    torch.testing.assert_close(ours(*x, average_attn_weights=False)[1], logits.softmax(-1))


def test_initial_values_are_those_of_torch():
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(E, H, add_bias_kv=True)
    torch.manual_seed(3)
    ours = QuestAttention(E, H, add_bias_kv=True)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    ours._reset_parameters()
    assert not torch.equal(ours.in_proj_weight, theirs.in_proj_weight)


@pytest.mark.parametrize(("norm", "shapes"), [("qk", [()]), ("qk_hs", [(H, 1, 1)]), ("qk_ds", [(E // H,)] * 2)])
def test_gains_are_learned_saved_and_kept_when_a_torch_state_lacks_them(norm, shapes):
    ours, theirs = pair(norm)
    named = {name: p for name, p in ours.named_parameters() if "gain" in name}
    assert [tuple(p.shape) for p in named.values()] == shapes
    start = math.sqrt(E / H) if norm != "qk_ds" else (E / H) ** 0.25
    assert all(p.eq(start).all() for p in named.values())
    ours(*inputs(False))[0].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in named.values())
    with torch.no_grad():
        for p in named.values():
            p.fill_(2.0)
    ours.load_state_dict(theirs.state_dict())
    assert all(p.eq(2).all() for p in named.values())
    fresh = QuestAttention(E, H, dtype=torch.float64, norm=norm)
    fresh.load_state_dict(ours.state_dict())
    assert fresh.q_gain.eq(2).all()


def test_true_blocks_as_in_multihead_attention():
    ours, _ = pair("quest", batch_first=True)
    query, key, value = inputs()
    blocked = torch.tensor([False, False, True, True, True]).expand(N, S)
    torch.testing.assert_close(
        ours(query, key, value, attn_mask=blocked, need_weights=False)[0],
        ours(query, key[:, :2], value[:, :2], need_weights=False)[0],
    )


def test_is_causal_builds_the_triangle_or_is_a_hint():
    ours, theirs = pair(batch_first=True)
    x = rand(B, N, E)
    triangle = torch.ones(N, N, dtype=torch.bool).triu(1)
    want = theirs(x, x, x, attn_mask=triangle)[0]
    torch.testing.assert_close(ours(x, x, x, is_causal=True, need_weights=False)[0], want)
    torch.testing.assert_close(ours(x, x, x, is_causal=True, attn_mask=triangle)[0], want)


def test_a_fully_padded_sequence_gives_the_bias_of_the_output_and_no_nan():
    ours, _ = pair("quest", batch_first=True)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1] = True
    for need_weights in (True, False):
        out, _ = ours(*inputs(), key_padding_mask=padding, need_weights=need_weights)
        torch.testing.assert_close(out[1], ours.out_proj.bias.expand(N, E))
        assert torch.isfinite(out).all()


def test_dropout_in_training_only():
    ours, _ = pair("quest", batch_first=True, dropout=0.5)
    x = inputs()
    for need_weights in (True, False):
        still = ours.eval()(*x, need_weights=need_weights)[0]
        assert torch.equal(still, ours(*x, need_weights=need_weights)[0])
        assert not torch.allclose(ours.train()(*x, need_weights=need_weights)[0], still)


@pytest.mark.parametrize("norm", NORMS)
def test_autocast_in_both_paths(norm):
    ours, _ = pair(norm, batch_first=True)
    ours = ours.float()
    x = [t.float() for t in inputs()]
    exact, _ = ours(*x, attn_mask=BLOCK)
    for need_weights in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, _ = ours(*x, attn_mask=BLOCK, need_weights=need_weights)
        assert out.dtype == torch.bfloat16
        assert (out.float() - exact).square().mean() < 1e-3 * exact.var()


def test_elliptical_reads_the_values_of_the_layer_before():
    """The metric of layer 2 comes from the same pass; layer 1 is quest; copies follow their own copies."""
    first, second = (QuestAttention(E, H, batch_first=True, norm="elliptical_quest") for _ in range(2))
    second.follow(first)
    x = rand(B, N, E).float()
    y, _ = first(x, x, x)
    out, _ = second(y, y, y)
    change = (project_heads(second, y, y, y).v - project_heads(first, x, x, x).v).abs().mean(-2, keepdim=True)
    m = change / change.amax(-1, keepdim=True)
    q, k, v = project_heads(second, y, y, y)
    expected = (m * q @ unit(k).mT).softmax(-1) @ v
    torch.testing.assert_close(out, second.out_proj(expected.transpose(1, 2).flatten(2)))
    assert list(second.state_dict()) == list(first.state_dict())
    one, two = copy.deepcopy(nn.ModuleList([first, second]))
    assert two._before[0] is one


def test_elliptical_values_stay_out_of_files_and_replicas_are_refused():
    """Copies hold no data of the last pass; nn.DataParallel would compare with the values of another replica."""
    first, second = (QuestAttention(E, H, batch_first=True, norm="elliptical_quest") for _ in range(2))
    second.follow(first)
    x = rand(B, N, E).float()
    first(x, x, x)
    assert first._values is not None
    assert pickle.loads(pickle.dumps(first))._values is None
    replica = second._replicate_for_data_parallel()
    replica._parameters, replica._modules = second._parameters, second._modules
    with pytest.raises(ValueError, match=r"replica of nn.DataParallel .* allowed is DistributedDataParallel"):
        replica(x, x, x)


def test_eps_reaches_the_fused_path_the_weights_and_the_cache():
    torch.manual_seed(0)
    layer = QuestAttention(E, H, batch_first=True, eps=100.0, dtype=torch.float64)  # no key is that long
    x = rand(B, N, E)
    q, k, v = project_heads(layer, x, x, x)
    expected = layer.out_proj(((q @ k.mT / 100).softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(x, x, x)[0], expected)
    torch.testing.assert_close(layer(x, x, x, need_weights=False)[0], expected)
    cache = UnitKeyCache()
    cache.append(k[..., :-1, :], v[..., :-1, :], eps=100.0)
    torch.testing.assert_close(layer.decode(x[:, -1:], cache), expected[:, -1:])


@pytest.mark.parametrize("norm", [n for n in NORMS if n != "elliptical_quest"])
def test_decoding_with_cached_unit_keys_equals_full_recomputation(norm):
    """Prompt of 3 tokens, one single token, then two at once, past the first growth of the cache."""
    ours, _ = pair(norm, batch_first=True)
    x = rand(B, 20, E)
    full, _ = ours(x, x, x, is_causal=True)
    cache = UnitKeyCache(norm)
    cuts = [0, 3, 4, 6, 16, 17, 20]
    parts = [ours.decode(x[:, a:b], cache) for a, b in itertools.pairwise(cuts)]
    torch.testing.assert_close(torch.cat(parts, 1), full)
    if norm == "quest":
        torch.testing.assert_close(cache.keys.norm(dim=-1), torch.ones(B, H, 20, dtype=torch.float64))


def test_cache_with_grouped_queries():
    q, k, v = rand(B, 4, 6, 4), rand(B, 2, 6, 4, seed=1), rand(B, 2, 6, 4, seed=2)
    cache = UnitKeyCache()
    out = torch.cat([cache.attend(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1]) for i in range(6)], 2)
    logits = q @ unit(k).repeat_interleave(2, 1).mT
    weights = logits.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
    torch.testing.assert_close(out, weights @ v.repeat_interleave(2, 1))


X = torch.zeros(B, N, E)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: QuestAttention(E, H, norm="keys"), ["norm='keys'", "'quest'"]),
        (lambda: QuestAttention(9, H), ["embed_dim=9", "num_heads=2"]),
        (lambda: QuestAttention(E, 0), ["num_heads=0; allowed are 1, 2"]),
        (lambda: QuestAttention(E, H)(X[..., :6], X, X), ["query has width 6; allowed is 8"]),
        (lambda: QuestAttention(E, H, vdim=6)(X, X, X), ["value has width 8; allowed is 6"]),
        (lambda: QuestAttention(E, H, batch_first=True)(X, X, X[:, :2]), ["(3, 4, 8), (3, 2, 8)", "keys and values"]),
        (lambda: QuestAttention(E, H, batch_first=True)(X, X[:1], X[:1]), ["(1, 4, 8)", "one batch"]),
        (lambda: QuestAttention(E, H)(X, X, X[0]), ["(3, 4, 8), (4, 8)", "2 or all with 3 axes"]),
        (
            lambda: QuestAttention(E, H, batch_first=True)(X, X, X, attn_mask=torch.zeros(3, 4)),
            ["attn_mask has shape (3, 4)", "(4, 4) or (6, 4, 4)"],
        ),
        (
            lambda: QuestAttention(E, H, batch_first=True)(X, X, X, key_padding_mask=torch.zeros(4, 3)),
            ["key_padding_mask has shape (4, 3)", "(3, 4)"],
        ),
        (
            lambda: QuestAttention(E, H, batch_first=True)(X, X, X, attn_mask=torch.zeros(4, 4, dtype=torch.int32)),
            ["dtype torch.int32", "True blocks"],
        ),
        (lambda: QuestAttention(E, H).decode(X, UnitKeyCache("qk")), ["norm='qk'", "'quest'"]),
        (
            lambda: QuestAttention(E, H, norm="elliptical_quest").decode(X, UnitKeyCache()),
            ["decode with norm='elliptical_quest'"],
        ),
        (lambda: UnitKeyCache("elliptical_quest"), ["norm='elliptical_quest'", "'quest'"]),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_cache_refuses_keys_of_another_shape():
    cache = UnitKeyCache()
    with pytest.raises(ValueError, match="the cache is empty"):
        cache.keys  # noqa: B018
    cache.attend(*[torch.zeros(2, 1, 1, 4)] * 3)
    with pytest.raises(ValueError, match=r"k has shape \(3, 1, 1, 4\); allowed .* \(2, 1, 'n', 4\)"):
        cache.attend(*[torch.zeros(3, 1, 1, 4)] * 3)
