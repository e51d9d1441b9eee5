"""The attention function against a plain float64 reference, its identities, its limits and its errors."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.layers.quest.attention import (
    FORMS,
    NORMS,
    attention_logits,
    attention_weights,
    quest_attention,
    unit,
    value_change_metric,
)

from . import reference

H, N, S, D, DV = 2, 3, 5, 4, 3


def rand(*shape, seed=0, grad=False):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.requires_grad_(grad)


def gains(norm, grad=False, heads=H):
    shapes = {"qk": ((),), "qk_hs": ((heads, 1, 1),), "qk_ds": ((D,), (D,)), "elliptical_quest": ((heads, 1, D),)}
    names = FORMS[norm].gains
    return {
        name: (1.5 + rand(*shape, seed=9).abs()).requires_grad_(grad)
        for name, shape in zip(names, shapes.get(norm, ()), strict=True)
    }


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("mask", ["open", "keep", "add", "causal"])
def test_forward_and_gradients_equal_the_reference(norm, mask):
    """Output, and gradients of q, k, v and of every gain."""
    ours = {
        "q": rand(H, N, D, grad=True),
        "k": rand(H, S, D, seed=1, grad=True),
        "v": rand(H, S, DV, seed=2, grad=True),
    }
    ours |= gains(norm, grad=True)
    plain = {name: x.detach().clone().requires_grad_() for name, x in ours.items()}
    keep = torch.tensor([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]], dtype=torch.bool)
    add = rand(N, S, seed=3)
    ours_mask = {"open": {}, "keep": {"attn_mask": keep}, "add": {"attn_mask": add}, "causal": {"is_causal": True}}[
        mask
    ]
    plain_mask = {"open": {}, "keep": {"keep": keep}, "add": {"add": add}, "causal": {"keep": torch.ones(N, S).tril()}}
    out = quest_attention(**ours, **ours_mask, norm=norm)
    expected = reference.attention(**plain, **plain_mask[mask], norm=norm)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-10)
    weight = rand(H, N, DV, seed=4)
    got = torch.autograd.grad((out * weight).sum(), list(ours.values()))
    want = torch.autograd.grad((expected * weight).sum(), list(plain.values()))
    for name, a, b in zip(ours, got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("norm", NORMS)
def test_gradcheck(norm):
    fixed = gains(norm)
    inputs = [rand(H, N, D, grad=True), rand(H, S, D, seed=1, grad=True), rand(H, S, DV, seed=2, grad=True)]
    assert torch.autograd.gradcheck(
        lambda q, k, v: quest_attention(q, k, v, norm=norm, **fixed), inputs, fast_mode=True
    )


@pytest.mark.parametrize("norm", NORMS)
def test_weights_written_out_agree_with_the_fused_path(norm):
    q, k, v = rand(H, N, D).float(), rand(H, S, D, seed=1).float(), rand(H, S, DV, seed=2).float()
    keep = torch.tensor([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 1, 0, 1]], dtype=torch.bool)
    for extra in ({}, {"attn_mask": keep}, {"is_causal": True}):
        weights = attention_weights(q, k, norm=norm, **gains(norm), **extra)
        out = quest_attention(q, k, v, norm=norm, **gains(norm), **extra)
        torch.testing.assert_close(weights.to(v) @ v, out, rtol=1e-5, atol=1e-5)
        rows = weights.sum(-1)
        assert torch.all((rows - 1).abs().lt(1e-5) | rows.eq(0))


def test_norm_none_is_torch_attention():
    q, k, v = rand(2, H, N, D), rand(2, H, S, D, seed=1), rand(2, H, S, DV, seed=2)
    torch.testing.assert_close(quest_attention(q, k, v, norm="none"), F.scaled_dot_product_attention(q, k, v))


def test_unit_keys_make_quest_torch_attention_with_scale_one():
    q, k, v = rand(2, H, N, D), unit(rand(2, H, S, D, seed=1)), rand(2, H, S, DV, seed=2)
    torch.testing.assert_close(quest_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=1.0))


def test_left_out_gains_give_the_scale_of_the_paper_variants():
    """qk and qk_ds start at logits sqrt(d) cos(q, k); elliptical_quest without a metric is quest."""
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    expected = math.sqrt(D) * unit(q) @ unit(k).mT
    for norm in ("qk", "qk_hs", "qk_ds"):
        torch.testing.assert_close(attention_logits(q, k, norm), expected)
    torch.testing.assert_close(quest_attention(q, k, v, norm="elliptical_quest"), quest_attention(q, k, v))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(1e-3, 1e3), min_size=S, max_size=S))
def test_only_the_normalised_side_is_free_of_scale(seed, factors):
    """Rescale each key, then each query: a variant's output stays exactly when it normalises that side."""
    q, k, v = rand(H, N, D, seed=seed), rand(H, S, D, seed=seed + 1), rand(H, S, DV, seed=seed + 2)
    factor = torch.tensor(factors, dtype=torch.float64)[:, None]
    for norm in NORMS:
        out = quest_attention(q, k, v, norm=norm)
        if FORMS[norm].unit_key:
            torch.testing.assert_close(quest_attention(q, k * factor, v, norm=norm), out)
        if FORMS[norm].unit_query:
            torch.testing.assert_close(quest_attention(q * factor[:N], k, v, norm=norm), out)


def test_the_free_side_does_depend_on_scale():
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    for norm in NORMS:
        for side, is_unit in (("q", FORMS[norm].unit_query), ("k", FORMS[norm].unit_key)):
            scaled = {"q": q, "k": k} | {side: 3 * (q if side == "q" else k)}
            moved = (quest_attention(v=v, norm=norm, **scaled) - quest_attention(q, k, v, norm=norm)).abs().max()
            assert (moved < 1e-9) == is_unit


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_logits_lie_within_the_norm_of_the_query(seed, size):
    q, k = size * rand(H, N, D, seed=seed), rand(H, S, D, seed=seed + 1)
    bound = q.norm(dim=-1, keepdim=True) * (1 + 1e-12)
    assert torch.all(attention_logits(q, k).abs() <= bound)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.permutations(range(S)))
def test_order_of_keys_does_not_matter(seed, order):
    q, k, v = rand(H, N, D, seed=seed), rand(H, S, D, seed=seed + 1), rand(H, S, DV, seed=seed + 2)
    torch.testing.assert_close(quest_attention(q, k[:, order], v[:, order]), quest_attention(q, k, v))


def test_rotating_before_or_after_the_norm_is_the_same():
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    angle = torch.arange(S, dtype=torch.float64)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], -1).reshape(S, 2, 2)

    def rotate(x):
        return torch.einsum("sab,hscb->hsca", turn, x.reshape(H, S, D // 2, 2)).reshape(H, S, D)

    torch.testing.assert_close(rotate(unit(k)), unit(rotate(k)))
    torch.testing.assert_close(quest_attention(q, rotate(unit(k)), v), quest_attention(q, rotate(k), v))


def test_zero_keys_share_the_row_and_have_finite_gradients():
    q, v = rand(H, N, D), rand(H, S, DV, seed=2)
    k = torch.zeros(H, S, D, dtype=torch.float64, requires_grad=True)
    out = quest_attention(q, k, v)
    torch.testing.assert_close(out, v.mean(1, keepdim=True).expand(H, N, DV))
    out.square().sum().backward()
    assert torch.isfinite(k.grad).all()
    assert attention_logits(q, k).eq(0).all()


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_row_that_may_attend_to_nothing_gives_zeros_and_no_nan_gradient(kind):
    q, k, v = rand(H, N, D, grad=True), rand(H, S, D, seed=1, grad=True), rand(H, S, DV, seed=2)
    keep = torch.ones(N, S, dtype=torch.bool)
    keep[1] = False
    mask = keep if kind == "bool" else torch.zeros(N, S, dtype=torch.float64).masked_fill(~keep, -math.inf)
    out = quest_attention(q, k, v, attn_mask=mask)
    assert out[:, 1].eq(0).all()
    assert out[:, 0].ne(0).all()
    out.sum().backward()
    weights = attention_weights(q, k, attn_mask=mask)
    assert weights[:, 1].eq(0).all()
    (weights @ v).sum().backward()
    assert torch.isfinite(q.grad).all()
    assert torch.isfinite(k.grad).all()


def test_true_keeps_as_in_sdpa():
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    keep = torch.tensor([True, True, False, False, False])
    torch.testing.assert_close(quest_attention(q, k, v, attn_mask=keep), quest_attention(q, k[:, :2], v[:, :2]))
    expected = F.scaled_dot_product_attention(q, unit(k), v, attn_mask=keep.expand(N, S), scale=1.0)
    torch.testing.assert_close(quest_attention(q, k, v, attn_mask=keep), expected)


@pytest.mark.parametrize("norm", NORMS)
def test_grouped_queries(norm):
    q, k, v = rand(2 * H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    more = gains(norm, heads=2 * H)
    out = quest_attention(q, k, v, norm=norm, enable_gqa=True, **more)
    torch.testing.assert_close(out, reference.attention(q, k, v, norm, **more))
    weights = attention_weights(q, k, norm=norm, enable_gqa=True, **more)
    torch.testing.assert_close(weights @ v.repeat_interleave(2, 0), out)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)])
def test_any_number_of_leading_axes(lead):
    """(n, d), (h, n, d), (b, h, n, d), (r, b, h, n, d): each slice is attended alone, masks included."""
    q, k, v = rand(*lead, N, D), rand(*lead, S, D, seed=1), rand(*lead, S, DV, seed=2)
    keep = rand(*lead, N, S, seed=3) > 0
    out = quest_attention(q, k, v, attn_mask=keep)
    assert out.shape == (*lead, N, DV)
    for at in torch.cartesian_prod(*map(torch.arange, lead)).reshape(-1, len(lead)).tolist() if lead else [[]]:
        at = tuple(at)
        alone = reference.attention(q[at][None], k[at][None], v[at][None], "quest", keep=keep[at])
        torch.testing.assert_close(out[at], alone[0])


def test_queries_are_shared_along_leading_axes_of_size_one():
    q, k, v = rand(1, 1, H, N, D), rand(4, 3, H, S, D, seed=1), rand(4, 3, H, S, DV, seed=2)
    keep = rand(4, 1, 1, N, S, seed=3) > 0
    expected = quest_attention(q.expand(4, 3, H, N, D), k, v, attn_mask=keep.expand(4, 3, H, N, S))
    torch.testing.assert_close(quest_attention(q, k, v, attn_mask=keep), expected)
    torch.testing.assert_close(quest_attention(q[0], k[0], v[0]), quest_attention(q.expand(4, 3, H, N, D), k, v)[0])
    one_head = quest_attention(q[..., :1, :, :], k, v)
    torch.testing.assert_close(one_head, quest_attention(q[..., :1, :, :].expand(4, 3, H, N, D), k, v))


def test_no_queries_and_no_batch_give_empty_outputs():
    q, k, v = rand(2, H, N, D), rand(2, H, S, D, seed=1), rand(2, H, S, DV, seed=2)
    assert quest_attention(q[:, :, :0], k, v).shape == (2, H, 0, DV)
    assert quest_attention(q[:0], k[:0], v[:0]).shape == (0, H, N, DV)


def test_a_key_shorter_than_eps_is_divided_by_eps():
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), rand(H, S, DV, seed=2)
    k[:, 0] *= 1e-3
    out = quest_attention(q, k, v, eps=0.5)
    torch.testing.assert_close(out, reference.attention(q, k, v, "quest", eps=0.5))
    torch.testing.assert_close(attention_weights(q, k, eps=0.5) @ v, out)
    assert not torch.allclose(out, quest_attention(q, k, v))


def test_keys_and_masks_are_shared_along_leading_axes_of_size_one():
    q, k, v = rand(2, 3, H, N, D), rand(1, 3, 1, S, D, seed=1), rand(1, 3, 1, S, DV, seed=2)
    keep = rand(2, 1, 1, N, S, seed=3) > 0
    spelled = [x.expand(2, 3, H, *x.shape[-2:]).contiguous() for x in (k, v, keep)]
    expected = quest_attention(q, spelled[0], spelled[1], attn_mask=spelled[2])
    torch.testing.assert_close(quest_attention(q, k, v, attn_mask=keep), expected)
    torch.testing.assert_close(attention_weights(q, k, attn_mask=keep) @ v, expected)


def test_per_run_gains_broadcast_over_a_leading_axis():
    q, k, v = rand(3, 2, H, N, D), rand(3, 2, H, S, D, seed=1), rand(3, 2, H, S, DV, seed=2)
    gain = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).reshape(3, 1, 1, 1, 1)
    out = quest_attention(q, k, v, norm="qk", q_gain=gain)
    for r in range(3):
        torch.testing.assert_close(out[r], quest_attention(q[r], k[r], v[r], norm="qk", q_gain=gain[r, 0, 0, 0, 0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_are_taken_in_float32_for_16_bit_inputs(dtype):
    """kbar is rounded once, from a float32 quotient; taken in 16 bits the norm would be rounded before, or overflow."""
    keys = rand(200, D, seed=1).to(dtype)
    kbar = unit(keys)
    assert kbar.dtype == dtype
    exact = unit(keys.double())
    half_ulp = torch.finfo(dtype).eps / 2
    assert torch.all((kbar.double() - exact).abs() <= 1.001 * half_ulp * exact.abs())
    huge = 5e4 * keys.sign()  # each entry fits float16, the norm 1e5 does not
    torch.testing.assert_close(unit(huge), (keys.sign() / 2).to(dtype))
    q, v = rand(H, N, D).to(dtype), rand(H, 200, DV, seed=2).to(dtype)
    out = quest_attention(q, huge.expand(H, 200, D), v)
    assert out.dtype == dtype
    expected = quest_attention(q.double(), huge.double().expand(H, 200, D), v.double())
    torch.testing.assert_close(out.double(), expected, rtol=0.03, atol=0.03)


def test_autocast():
    q, k, v = rand(1, H, N, D).float(), 1e4 * rand(1, H, S, D, seed=1).float(), rand(1, H, S, DV, seed=2).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = quest_attention(q, k, v)
    torch.testing.assert_close(out.float(), quest_attention(q, k, v), rtol=0.03, atol=0.03)


def test_dropout_acts_on_weights_and_keeps_the_mean():
    q, k, v = rand(H, N, D), rand(H, S, D, seed=1), torch.ones(H, S, DV, dtype=torch.float64)
    torch.manual_seed(0)
    out = quest_attention(q.expand(400, H, N, D), k.expand(400, H, S, D), v.expand(400, H, S, DV), dropout_p=0.3)
    assert out.std() > 0.1
    assert abs(out.mean() - 1) < 0.03


def test_compiles_to_one_graph_without_breaks():
    graphs = torch._dynamo.explain(quest_attention)(rand(1, H, N, D), rand(1, H, S, D), rand(1, H, S, DV))
    assert graphs.graph_break_count == 0


def test_the_fused_path_keeps_no_weights_for_the_backward_pass():
    """Largest tensor kept: of the size of q; written out, attention keeps all n x s weights."""
    q, k, v = (torch.randn(2, 2, 128, 8, requires_grad=True) for _ in range(3))

    def largest_kept(function):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            function()
        return max(sizes)

    assert largest_kept(lambda: quest_attention(q, k, v)) == q.numel()
    assert largest_kept(lambda: attention_weights(q, k) @ v) == 2 * 2 * 128 * 128


def test_metric_equals_the_reference_and_carries_no_gradient():
    v, before = rand(H, N, D, grad=True), rand(H, N, D, seed=1)
    m = value_change_metric(v, before)
    torch.testing.assert_close(m, reference.metric(v.detach(), before))
    assert not m.requires_grad
    assert value_change_metric(before, before).eq(1).all()


Q, K, V = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.zeros(2, 5, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm": "l2"}, ["norm='l2'", "'quest'", "'qk_hs'"]),
        ({"q_gain": torch.ones(())}, ["q_gain", "norm='quest'", "qk, qk_hs, qk_ds"]),
        ({"norm": "qk", "k_gain": torch.ones(4)}, ["k_gain of shape (4,)", "norm='qk'", "qk_ds"]),
        ({"k": torch.zeros(2, 5, 6)}, ["k has head dimension 6", "4"]),
        ({"v": torch.zeros(2, 4, 4)}, ["v has 4 tokens", "5"]),
        ({"q": torch.zeros(4)}, ["q has shape (4,)", "(..., tokens, features)"]),
        ({"q": torch.zeros(4, 3, 4)}, ["k has 2 heads and q 4", "enable_gqa=True"]),
        ({"q": torch.zeros(5, 3, 4), "enable_gqa": True}, ["k has 2 heads", "divisors of q's 5"]),
        ({"q": Q.long()}, ["q has dtype torch.int64", "floating"]),
        ({"v": torch.zeros(3, 5, 4)}, ["v has 3 heads", "2"]),
        (
            {"q": torch.zeros(4, 2, 3, 4), "k": torch.zeros(3, 2, 5, 4), "v": torch.zeros(3, 2, 5, 4)},
            ["q, k, v have shapes (4, 2, 3, 4), (3, 2, 5, 4)", "broadcast"],
        ),
        ({"norm": "qk_ds", "k_gain": torch.ones(3)}, ["k_gain has shape (3,)", "(2, 5, 4)"]),
        ({"norm": "qk_hs", "q_gain": torch.ones(4)}, ["q_gain has shape (4,)", "norm='qk_hs'", "(..., h, 1, 1)"]),
        ({"attn_mask": torch.zeros(3, 4)}, ["attn_mask has shape (3, 4)", "(2, 3, 5)"]),
        ({"attn_mask": torch.zeros(3, 5, dtype=torch.int64)}, ["dtype torch.int64", "bool (True keeps)"]),
        ({"attn_mask": torch.zeros(3, 5), "is_causal": True}, ["is_causal=True", "attn_mask"]),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(change, words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as error:
        quest_attention(**({"q": Q, "k": K, "v": V} | change))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_metric_refuses_values_of_another_shape():
    with pytest.raises(ValueError, match=r"v_before has shape \(2, 3, 4\); allowed .* \(2, 5, 4\)"):
        value_change_metric(V, Q)
