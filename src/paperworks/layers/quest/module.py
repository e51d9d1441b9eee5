"""`QuestAttention`: `torch.nn.MultiheadAttention` with the normalisation of keys (or queries) chosen by `norm`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from .attention import (
    FORMS,
    NORMS,
    attention_logits,
    attention_weights,
    initial_gain,
    quest_attention,
    value_change_metric,
)
from .cache import UnitKeyCache


class Heads(NamedTuple):
    """Projected queries, keys and values of shape (batch, heads, tokens, head_dim)."""

    q: Float[Tensor, "b h n d"]
    k: Float[Tensor, "b h s d"]
    v: Float[Tensor, "b h s d"]


class QuestAttention(nn.MultiheadAttention):
    """Multi-head attention with the constructor, parameters, initial values and `forward` of `nn.MultiheadAttention`.

    It loads the state dict of an `nn.MultiheadAttention` of the same sizes; gains that such a dict lacks keep their
    value. With `norm="none"` it computes the same function. It differs in three ways: a row that may attend to nothing
    gives zeros (torch: zeros or NaN, by path), `is_causal=True` without a mask builds the triangle (torch: an error),
    and nested tensors are refused.

    `elliptical_quest` compares its values with those that the layer before it (`follow`) had in the same forward pass;
    without any of the same shape it is `quest`. Its metric is a mean over all tokens, padded ones included. The layer
    before keeps its last values for that, so finish one pass before the next: recomputing a pass after another one
    (`torch.utils.checkpoint`) would read the wrong values, and `nn.DataParallel` is refused.

    Args:
        embed_dim: width E of queries and outputs; a multiple of `num_heads`.
        num_heads: number of heads H.
        dropout: probability of dropping an attention weight in training.
        bias: whether the projections have biases.
        add_bias_kv: append one learned key and value to every sequence.
        add_zero_attn: append one zero key and value; a zero key stays zero when normalised.
        kdim: width of `key`; `embed_dim` when left out.
        vdim: width of `value`; `embed_dim` when left out.
        batch_first: inputs are (batch, tokens, width), otherwise (tokens, batch, width), as in torch.
        device: where the parameters are made.
        dtype: their type.
        norm: the variant, a key of `paperworks.layers.quest.NORMS`.
        eps: smallest norm that is divided by.

    Attributes:
        q_gain: learned C or c_q of `qk` (shape ()), `qk_hs` (H, 1, 1) and `qk_ds` (E / H,); None otherwise.
        k_gain: learned c_k of `qk_ds` (E / H,); None otherwise.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        norm: str = "quest",
        eps: float = 1e-6,
    ) -> None:
        if norm not in FORMS:
            raise ValueError(f"norm={norm!r}; allowed are {', '.join(map(repr, NORMS))}")
        if num_heads < 1:
            raise ValueError(f"num_heads={num_heads}; allowed are 1, 2, ...")
        if embed_dim < 1 or embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim}; allowed are multiples of num_heads={num_heads}")
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        self.norm, self.eps = norm, eps
        # nn.TransformerEncoderLayer reads this flag before it hands our weights to a fused kernel of plain attention
        # instead of calling us. False makes it call us.
        self._qkv_same_embed_dim = False
        shape = {"qk": (), "qk_hs": (num_heads, 1, 1), "qk_ds": (self.head_dim,)}.get(norm)
        for name in ("q_gain", "k_gain"):
            learned = shape is not None and name in FORMS[norm].gains
            start = (
                torch.full(shape, initial_gain(norm, self.head_dim), device=device, dtype=dtype) if learned else None
            )
            self.register_parameter(name, nn.Parameter(start) if learned else None)
        self._before: tuple[QuestAttention, ...] = ()
        self._is_followed = False
        self._values: Tensor | None = None

    def follow(self, before: "QuestAttention") -> None:
        """Name the layer before this one, whose values `elliptical_quest` compares with its own; others need none."""
        if self.norm == "elliptical_quest":
            self._before = (before,)  # in a tuple, so that it is not registered as a part of this module
            before._is_followed = True

    def forward(
        self,
        query: Float[Tensor, "b n e"],
        key: Float[Tensor, "b s e_k"],
        value: Float[Tensor, "b s e_v"],
        key_padding_mask: Bool[Tensor, "b s"] | Float[Tensor, "b s"] | None = None,
        need_weights: bool = True,
        attn_mask: Bool[Tensor, "*bh n s"] | Float[Tensor, "*bh n s"] | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "b n e"], Float[Tensor, "b *h n s"] | None]:
        """Attend, with the arguments of `nn.MultiheadAttention.forward`.

        Args:
            query: (b, n, E) with `batch_first`, else (n, b, E); or (n, E) without a batch.
            key: the same with s tokens of width `kdim`.
            value: the same with s tokens of width `vdim`.
            key_padding_mask: True (or -inf) BLOCKS a key for all queries of its sequence.
            need_weights: also return the weights, which are then written out instead of fused.
            attn_mask: (n, s) or (b * H, n, s); True BLOCKS a pair, floats are added to the logits.
            average_attn_weights: return the mean over heads, else one map for each head.
            is_causal: with `attn_mask` a hint that changes nothing; without, query i sees keys 0..i.

        Returns:
            The output in the layout of `query`, and None or the weights (b, n, s) or (b, H, n, s); both without b for
            inputs without a batch.
        """
        batched = query.ndim == 3
        if query.is_nested or query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            shapes = "nested" if query.is_nested else [tuple(x.shape) for x in (query, key, value)]
            raise ValueError(
                f"query, key, value are {shapes}; allowed are dense tensors, all with 2 or all with 3 axes"
            )
        if not batched:
            query, key, value = query[None], key[None], value[None]
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        widths = self.embed_dim, self.kdim, self.vdim
        for name, x, width in zip(("query", "key", "value"), (query, key, value), widths, strict=True):
            if x.shape[-1] != width:
                raise ValueError(f"{name} has width {x.shape[-1]}; allowed is {width}")
        if key.shape[:2] != value.shape[:2] or len(query) != len(key):
            shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
            raise ValueError(
                f"query, key, value are (batch first) {shapes}; allowed are one batch and s keys and values"
            )
        q, k, v = project_heads(self, query, key, value)
        mask = merge_masks(attn_mask, key_padding_mask, is_causal, q, key.shape[1], k.shape[-2])
        options: dict[str, Any] = {"attn_mask": mask, "norm": self.norm, "eps": self.eps, **self.gains(v)}
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            weights = F.dropout(attention_weights(q, k, **options), dropout)
            out = weights @ v
        else:
            weights, out = None, quest_attention(q, k, v, dropout_p=dropout, **options)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return out[0], None if weights is None else weights[0]
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def decode(self, query: Float[Tensor, "b n e"], cache: UnitKeyCache) -> Float[Tensor, "b n e"]:
        """Attend causally from n further tokens to themselves and to all tokens that `cache` holds, and store them.

        The cost of a token is that of plain cached attention: keys are normalised once, when they are stored.

        Args:
            query: the new tokens, batch first whatever `batch_first` says.
            cache: one for each layer, `UnitKeyCache(norm=layer.norm)`.
        """
        if self.norm == "elliptical_quest" or self.bias_k is not None or self.add_zero_attn:
            what = "norm='elliptical_quest'" if self.norm == "elliptical_quest" else "add_bias_kv or add_zero_attn"
            raise ValueError(f"decode with {what}; allowed are the other norms, without appended keys")
        if cache.norm != self.norm:
            raise ValueError(f"cache has norm={cache.norm!r}; allowed is that of the layer, {self.norm!r}")
        q, k, v = project_heads(self, query, query, query)
        return self.out_proj(cache.attend(q, k, v, **self.gains(v), eps=self.eps).transpose(1, 2).flatten(2))

    def gains(self, v: Float[Tensor, "b h s d"]) -> Mapping[str, Tensor | None]:
        """Return the gains of `quest_attention`: learned, or the metric of `elliptical_quest` from these values."""
        if self._before and getattr(self, "_is_replica", False):
            what = "a replica of nn.DataParallel cannot see the values of the layer before it"
            raise ValueError(f"norm='elliptical_quest': {what}; allowed is DistributedDataParallel")
        if self._is_followed:
            self._values = v.detach()
        if not self._before or self._before[0]._values is None or self._before[0]._values.shape != v.shape:
            return {"q_gain": self.q_gain, "k_gain": self.k_gain}  # the first layer has no metric yet: m = 1
        return {"q_gain": value_change_metric(v, self._before[0]._values), "k_gain": None}

    def logits(
        self, q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h s d"], v: Float[Tensor, "b h s d"]
    ) -> Float[Tensor, "b h n s"]:
        """Return what goes into the softmax for projected queries, keys and values, before any mask."""
        return attention_logits(q, k, self.norm, **self.gains(v), eps=self.eps)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the values of the last pass out of copies and files."""
        return self.__dict__ | {"_values": None}

    def extra_repr(self) -> str:
        """Show the variant in the printed module."""
        return f"{self.embed_dim}, {self.num_heads}, norm={self.norm!r}"

    def _reset_parameters(self) -> None:
        # torch's own method asks the flag that __init__ has to turn off
        flag, self._qkv_same_embed_dim = self._qkv_same_embed_dim, self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = flag

    def _load_from_state_dict(self, state_dict, prefix, *args) -> None:
        for name in ("q_gain", "k_gain"):
            if getattr(self, name) is not None:
                state_dict.setdefault(prefix + name, getattr(self, name).detach())
        super()._load_from_state_dict(state_dict, prefix, *args)


def project_heads(
    layer: nn.MultiheadAttention,
    query: Float[Tensor, "b n e"],
    key: Float[Tensor, "b s e_k"],
    value: Float[Tensor, "b s e_v"],
) -> Heads:
    """Return the queries, keys and values of each head of a layer, appended ones included, before any normalisation."""
    if layer.in_proj_weight is not None and query is key and key is value:
        q, k, v = F.linear(query, layer.in_proj_weight, layer.in_proj_bias).chunk(3, dim=-1)  # one product, not three
    else:
        separate = layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
        weights = separate if layer.in_proj_weight is None else layer.in_proj_weight.chunk(3)
        biases = (None, None, None) if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    if layer.bias_k is not None:
        k = torch.cat([k, layer.bias_k.expand(k.shape[0], 1, -1)], dim=1)
        v = torch.cat([v, layer.bias_v.expand(v.shape[0], 1, -1)], dim=1)
    if layer.add_zero_attn:
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    return Heads(*(x.unflatten(-1, (layer.num_heads, layer.head_dim)).transpose(1, 2) for x in (q, k, v)))


def merge_masks(
    attn_mask: Bool[Tensor, "*bh n s"] | Float[Tensor, "*bh n s"] | None,
    key_padding_mask: Bool[Tensor, "b s"] | Float[Tensor, "b s"] | None,
    is_causal: bool,
    q: Float[Tensor, "b h n d"],
    tokens: int,
    keys: int,
) -> Bool[Tensor, "#b #h n s"] | Float[Tensor, "#b #h n s"] | None:
    """Join the masks of `nn.MultiheadAttention` (True blocks) into one of `quest_attention` (True keeps).

    Args:
        attn_mask: as in `QuestAttention.forward`.
        key_padding_mask: as there.
        is_causal: as there.
        q: projected queries.
        tokens: length of the sequence of keys that the masks speak of.
        keys: the same with the keys that the layer appends, which are open to all.
    """
    b, h, n, _ = q.shape
    masks = []
    if attn_mask is not None:
        _check_mask("attn_mask", attn_mask, [(n, tokens), (b * h, n, tokens)])
        masks.append(attn_mask.reshape(b, h, n, tokens) if attn_mask.ndim == 3 else attn_mask[None, None])
    elif is_causal:
        masks.append(torch.ones(1, 1, n, tokens, dtype=torch.bool, device=q.device).triu(1))
    if key_padding_mask is not None:
        _check_mask("key_padding_mask", key_padding_mask, [(b, tokens), *([(tokens,)] if b == 1 else [])])
        masks.append(key_padding_mask.reshape(b, 1, 1, tokens))
    if not masks:
        return None
    if all(mask.dtype == torch.bool for mask in masks):
        blocked = masks[0] if len(masks) == 1 else masks[0] | masks[1]
        return F.pad(~blocked, (0, keys - tokens), value=True)
    return F.pad(sum(_additive(mask, q.dtype) for mask in masks), (0, keys - tokens))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))


def _check_mask(name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"{name} has dtype {mask.dtype}; allowed are bool (True blocks) and floating point (added)")
    if tuple(mask.shape) not in shapes:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; allowed is {' or '.join(map(str, shapes))}")
