"""Ours beside a peer on the same inputs: times are compared after the results."""

import torch
import torch.nn.functional as F

from paperworks.claims.speed import Pair

from .attention import quest_attention, unit
from .cache import UnitKeyCache


def _inputs(size: str) -> list[torch.Tensor]:
    shape = (8, 8, 512, 64) if size == "full" else (2, 2, 24, 8)  # (batch, heads, tokens, head_dim)
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for _ in range(4)]


def _with_gradients(function, *inputs: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = function(*leaves)
    return out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)


def forward_backward(size: str = "full") -> Pair:
    """Forward and backward of quest, and of fused plain attention whose keys were normalised beforehand.

    Both return the output and the gradients of q and v, which agree; the gradient of k does not (ours goes through the
    normalisation, which is the work that is measured) and is computed by both but not returned.
    """
    q, k, v, weight = _inputs(size)
    unit_k = unit(k)

    def ours():
        out, dq, _, dv = _with_gradients(quest_attention, q, k, v, weight=weight)
        return out, dq, dv

    def plain(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=1.0)

    def peer():
        out, dq, _, dv = _with_gradients(plain, q, unit_k, v, weight=weight)
        return out, dq, dv

    return Pair(ours=ours, peer=peer, rtol=1e-4, atol=1e-4)


def against_eager(size: str = "full") -> Pair:
    """Forward and backward of quest, fused and written out; all three gradients agree."""
    q, k, v, weight = _inputs(size)

    def written_out(q, k, v):
        return torch.softmax(q @ unit(k).mT, dim=-1) @ v

    return Pair(
        ours=lambda: _with_gradients(quest_attention, q, k, v, weight=weight),
        peer=lambda: _with_gradients(written_out, q, k, v, weight=weight),
        rtol=1e-4,
        atol=1e-4,
    )


class _PlainCache:
    """The same storage without normalisation, as cached plain attention has it."""

    def __init__(self, k: torch.Tensor, v: torch.Tensor, room: int) -> None:
        self.length = k.shape[-2]
        pad = (0, 0, 0, room - self.length)
        self.keys, self.values = F.pad(k, pad), F.pad(v, pad)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        end = self.length + 1
        self.keys[..., self.length : end, :], self.values[..., self.length : end, :] = k, v
        self.length = end
        return F.scaled_dot_product_attention(q, self.keys[..., :end, :], self.values[..., :end, :], scale=1.0)


def decode(size: str = "full") -> Pair:
    """Decode tokens one by one against a cache: unit keys made by us, and plain keys that are unit already.

    Full size decodes 64 tokens after a prompt of 2,048, batch 8, 8 heads of width 64. The cache is set back before each
    measurement, so that every one starts from the prompt.
    """
    batch, heads, prompt, new, d = (8, 8, 2048, 64, 64) if size == "full" else (2, 2, 20, 5, 8)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(batch, heads, prompt + new, d, generator=generator) for _ in range(3))
    unit_k = unit(k)
    ours_cache = UnitKeyCache()
    plain_cache = _PlainCache(unit_k[..., :prompt, :], v[..., :prompt, :], room=prompt + new)
    with torch.no_grad():
        ours_cache.append(k[..., :prompt, :], v[..., :prompt, :])

    @torch.no_grad()
    def run(cache, keys):
        cache.length = prompt
        steps = [slice(i, i + 1) for i in range(prompt, prompt + new)]
        return torch.cat([cache.attend(q[..., s, :], keys[..., s, :], v[..., s, :]) for s in steps], dim=-2)

    return Pair(ours=lambda: run(ours_cache, k), peer=lambda: run(plain_cache, unit_k), rtol=1e-4, atol=1e-5)
