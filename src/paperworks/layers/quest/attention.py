"""Softmax attention with keys on the unit sphere and free queries, and the variants it is compared with.

Per head, with q (n, d), k (s, d) and v (s, d_v):

    (1)  kbar_j = k_j / max(|k_j|_2, eps)
    (2)  A      = softmax(C q kbar^T)             C = 1: no 1/sqrt(d), nothing learned
    (3)  z      = A v

A logit is C |q_i| |k_j| cos(q_i, k_j). The norm of a query sets how sharp its own row is; the norm of a key draws every
row towards that key at once. QUEST keeps the first and removes the second. (Equation numbers are ours.)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor


class Form(NamedTuple):
    """What a variant does to queries and keys before their inner product, and which gains it takes."""

    unit_query: bool
    unit_key: bool
    gains: tuple[str, ...] = ()


FORMS = {
    "none": Form(False, False),  # softmax(q k^T / sqrt(d)), standard attention
    "quest": Form(False, True),  # softmax(q kbar^T)
    "q": Form(True, False),  # softmax(qbar k^T), the mirror of quest
    "qk": Form(True, True, ("q_gain",)),  # softmax(C qbar kbar^T), one C in a layer
    "qk_hs": Form(True, True, ("q_gain",)),  # one C in a head
    "qk_ds": Form(True, True, ("q_gain", "k_gain")),  # softmax((c_q * qbar)(c_k * kbar)^T), c_q, c_k in R^d
    "elliptical_quest": Form(False, True, ("q_gain",)),  # softmax(q diag(m) kbar^T), m from `value_change_metric`
}
NORMS = tuple(FORMS)


def initial_gain(norm: str, head_dim: int) -> float:
    """Return the value that the gains of a variant start from: logits then lie within +-sqrt(d)."""
    return {"qk": head_dim**0.5, "qk_hs": head_dim**0.5, "qk_ds": head_dim**0.25}.get(norm, 1.0)


def quest_attention(
    q: Float[Tensor, "*batch n d"],
    k: Float[Tensor, "*batch s d"],
    v: Float[Tensor, "*batch s d_v"],
    attn_mask: Bool[Tensor, "*#batch #n #s"] | Float[Tensor, "*#batch #n #s"] | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    norm: str = "quest",
    q_gain: Float[Tensor, "..."] | None = None,
    k_gain: Float[Tensor, "..."] | None = None,
    eps: float = 1e-6,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch n d_v"]:
    """Attend as `torch.nn.functional.scaled_dot_product_attention` does, with keys (or queries) normalised first.

    Args:
        q: queries; heads are the axis before n.
        k: keys. A zero key stays zero: its logits are 0. With rotary embeddings pass rotated keys; a rotation keeps
            the norm, so the order does not matter.
        v: values.
        attn_mask: broadcast against (..., n, s). Boolean: True KEEPS a pair (as in SDPA, and unlike
            `nn.MultiheadAttention`). Float: added to the logits. A row that may attend to nothing gives zeros.
        dropout_p: probability of dropping an attention weight; applied whenever it is above 0, as in SDPA.
        is_causal: row i attends to keys 0..i. Not together with `attn_mask`.
        norm: a key of `FORMS`.
        q_gain: multiplies the normalised queries, broadcast against q. `qk`: C, shape (). `qk_hs`: C of each head,
            shape (h, 1, 1). `qk_ds`: c_q, shape (d,). `elliptical_quest`: the metric m, shape (..., h, 1, d). Left
            out, it is the constant `initial_gain`.
        k_gain: multiplies the normalised keys: c_k of `qk_ds`, shape (d,).
        eps: smallest norm that is divided by. Below it a vector is divided by eps: its gradient is finite, and large.
        enable_gqa: q may have a multiple of the heads of k and v; each key head is normalised once, then shared.

    Returns:
        z, with the dtype of q. Norms and gains are computed in float32 for 16-bit inputs.

    Raises:
        ValueError: an argument that does not fit, with its value and what is allowed.
    """
    _check(q, k, v, attn_mask, is_causal, norm, q_gain, k_gain, enable_gqa)
    q, k, scale = prepare(q, k, norm, q_gain, k_gain, eps)
    mask, dead = _mask(attn_mask, q.dtype)
    # Only 4-d tensors of one batch size reach the fused kernels; others would take the slow unfused path.
    lead = _lead(q, k, v)
    out = F.scaled_dot_product_attention(
        _four(q, lead),
        _four(k, lead),
        _four(v, lead),
        attn_mask=mask if mask is None or mask.ndim < 3 else _four(mask, lead),
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )  # (2), (3)
    heads = (*lead, out.shape[1]) if max(q.ndim, k.ndim, v.ndim) > 2 else ()
    out = out.reshape(*heads, *out.shape[-2:])
    return out if dead is None else out.masked_fill(dead, 0.0)


def attention_weights(
    q: Float[Tensor, "*batch n d"],
    k: Float[Tensor, "*batch s d"],
    attn_mask: Bool[Tensor, "*#batch #n #s"] | Float[Tensor, "*#batch #n #s"] | None = None,
    is_causal: bool = False,
    norm: str = "quest",
    q_gain: Float[Tensor, "..."] | None = None,
    k_gain: Float[Tensor, "..."] | None = None,
    eps: float = 1e-6,
    enable_gqa: bool = False,
) -> Float[Tensor, "*batch n s"]:
    """Return A of `quest_attention`, written out, which costs an n x s tensor.

    Args:
        q: as in `quest_attention`.
        k: as there.
        attn_mask: as there; True keeps. A row that may attend to nothing gives zeros.
        is_causal: as there.
        norm: as there.
        q_gain: as there.
        k_gain: as there.
        eps: as there.
        enable_gqa: as there; the weights have the heads of q.
    """
    _check(q, k, k, attn_mask, is_causal, norm, q_gain, k_gain, enable_gqa)
    logits = attention_logits(q, k, norm, q_gain, k_gain, eps)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).tril()
    mask, dead = _mask(attn_mask, logits.dtype)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    weights = logits.softmax(dim=-1)  # (2)
    return weights if dead is None else weights.masked_fill(dead, 0.0)


def attention_logits(
    q: Float[Tensor, "*batch n d"],
    k: Float[Tensor, "*batch s d"],
    norm: str = "quest",
    q_gain: Float[Tensor, "..."] | None = None,
    k_gain: Float[Tensor, "..."] | None = None,
    eps: float = 1e-6,
) -> Float[Tensor, "*batch n s"]:
    """Return what goes into the softmax of (2), before masks.

    Args:
        q: as in `quest_attention`.
        k: as there; its heads are shared where q has a multiple of them.
        norm: as there.
        q_gain: as there.
        k_gain: as there.
        eps: as there.
    """
    q, k, scale = prepare(q, k, norm, q_gain, k_gain, eps)
    if q.ndim > 2 and k.ndim > 2 and 1 < k.shape[-3] < q.shape[-3]:  # grouped queries
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    return q @ k.mT * scale


def prepare(
    q: Float[Tensor, "*batch n d"],
    k: Float[Tensor, "*batch s d"],
    norm: str = "quest",
    q_gain: Float[Tensor, "..."] | None = None,
    k_gain: Float[Tensor, "..."] | None = None,
    eps: float = 1e-6,
) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch s d"], float]:
    """Return q', k' and a scale such that scale * q' k'^T are the logits of the variant `norm`."""
    form, d = FORMS[norm], q.shape[-1]
    if "q_gain" in form.gains and q_gain is None:
        q_gain = initial_gain(norm, d)
    if "k_gain" in form.gains and k_gain is None:
        k_gain = initial_gain(norm, d)
    scale = d**-0.5 if norm == "none" else 1.0
    return _side(q, form.unit_query, q_gain, eps), _side(k, form.unit_key, k_gain, eps), scale


def unit(x: Float[Tensor, "*batch d"], eps: float = 1e-6) -> Float[Tensor, "*batch d"]:
    """Divide each vector of the last axis by its Euclidean norm, or by `eps` where that is smaller: equation (1)."""
    return _side(x, True, None, eps)


def value_change_metric(
    v: Float[Tensor, "*batch n d"], v_before: Float[Tensor, "*batch n d"]
) -> Float[Tensor, "*batch 1 d"]:
    """Estimate the diagonal m of Elliptical Attention from the change of the values between two layers.

    m = mean_i |v_i - v_before_i| / delta, scaled to a largest entry of 1, one m for each sample and head, without
    gradient. The step delta of the paper cancels in the scaling. Values that did not change at all give m = 1.

    Args:
        v: values of this layer.
        v_before: values of the layer before it, of the same shape.

    Returns:
        m, ready to be the `q_gain` of `quest_attention(..., norm="elliptical_quest")`. It is a mean over all tokens, so
        under a causal mask it lets later tokens act on earlier ones.
    """
    if v.shape != v_before.shape:
        raise ValueError(f"v_before has shape {tuple(v_before.shape)}; allowed is the shape of v, {tuple(v.shape)}")
    change = (v.detach() - v_before.detach()).abs().mean(dim=-2, keepdim=True)
    top = change.amax(dim=-1, keepdim=True)
    return torch.where(top > 0, change / top.clamp_min(torch.finfo(v.dtype).tiny), torch.ones_like(change))


def _side(x: Tensor, normalise: bool, gain: Tensor | float | None, eps: float) -> Tensor:
    if not normalise and gain is None:
        return x
    # 16-bit squares overflow or vanish, so the norm is taken in float32 and the result cast back.
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if normalise:
        wide = F.normalize(wide, dim=-1, eps=eps)  # (1); the clamped form, so that a zero vector has a finite gradient
    if gain is not None:
        wide = wide * gain
    return wide.to(x.dtype)


def _mask(attn_mask: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Open the rows that may attend to nothing, and say which: kernels differ on them (zeros, NaN, NaN gradients)."""
    if attn_mask is None:
        return None, None
    attn_mask = attn_mask[None] if attn_mask.ndim == 1 else attn_mask
    if attn_mask.dtype == torch.bool:
        dead = ~attn_mask.any(dim=-1, keepdim=True)
        return attn_mask | dead, dead
    dead = attn_mask.isneginf().all(dim=-1, keepdim=True)
    return attn_mask.masked_fill(dead, 0.0).to(dtype), dead


def _lead(*inputs: Tensor) -> tuple[int, ...]:
    return torch.broadcast_shapes(*(x.shape[:-3] for x in inputs))


def _four(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Fold the axes before the heads into one."""
    if x.ndim > 3:
        x = x.expand(*lead, *x.shape[-3:])
    return x.reshape(math.prod(x.shape[:-3]), *[1] * (3 - x.ndim), *x.shape[-3:])


def _check(q, k, v, attn_mask, is_causal, norm, q_gain, k_gain, enable_gqa) -> None:
    if norm not in FORMS:
        raise ValueError(f"norm={norm!r}; allowed are {', '.join(map(repr, NORMS))}")
    for name, gain, x in (("q_gain", q_gain, q), ("k_gain", k_gain, k)):
        shape = tuple(getattr(gain, "shape", ()))
        if gain is not None and name not in FORMS[norm].gains:
            takers = [other for other in NORMS if name in FORMS[other].gains]
            raise ValueError(f"{name} of shape {shape} with norm={norm!r}; only {', '.join(takers)} take it")
        if not _broadcasts(shape, x.shape):
            raise ValueError(f"{name} has shape {shape}; allowed is what broadcasts to {tuple(x.shape)}")
        # A vector of h gains would pass for d gains where h = d.
        if norm in ("qk", "qk_hs") and any(n != 1 for n in shape[-2:]):
            raise ValueError(f"{name} has shape {shape} with norm={norm!r}; allowed are (), or (..., h, 1, 1)")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim < 2:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; allowed are two or more axes, (..., tokens, features)"
            )
        if not x.is_floating_point():
            raise ValueError(f"{name} has dtype {x.dtype}; allowed are floating point types")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"k has head dimension {k.shape[-1]}; allowed is that of q, {q.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"v has {v.shape[-2]} tokens; allowed is the number of k, {k.shape[-2]}")
    if q.ndim > 2 and k.ndim > 2:
        heads, shared = q.shape[-3], k.shape[-3]
        if enable_gqa and heads % shared:
            raise ValueError(f"k has {shared} heads; with enable_gqa=True allowed are divisors of q's {heads}")
        if not enable_gqa and heads != shared and 1 not in (heads, shared):
            raise ValueError(f"k has {shared} heads and q {heads}; allowed are equal numbers, or enable_gqa=True")
    if k.ndim > 2 and v.ndim > 2 and k.shape[-3] != v.shape[-3]:
        raise ValueError(f"v has {v.shape[-3]} heads; allowed is the number of k, {k.shape[-3]}")
    try:
        lead = _lead(q, k, v)
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v have shapes {shapes}; allowed are axes before the heads that broadcast") from None
    if attn_mask is None:
        return
    if is_causal:
        raise ValueError(
            "is_causal=True together with attn_mask; allowed is one of them: put the triangle into the mask"
        )
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise ValueError(
            f"attn_mask has dtype {attn_mask.dtype}; allowed are bool (True keeps) and floating point (added)"
        )
    heads = [x.shape[-3] for x in (q, k) if x.ndim > 2]
    full = (*lead, *([max(heads)] if heads else []), q.shape[-2], k.shape[-2])
    if not _broadcasts(attn_mask.shape, full):
        raise ValueError(f"attn_mask has shape {tuple(attn_mask.shape)}; allowed is what broadcasts to {full}")


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    return len(shape) <= len(full) and all(m in (1, n) for m, n in zip(reversed(shape), reversed(full), strict=False))
