"""Causal decoding with cached keys that are normalised once, when they are stored."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from .attention import FORMS, NORMS, prepare


class UnitKeyCache:
    """Keys and values of one layer, the keys stored in the form in which queries meet them: kbar for `norm="quest"`.

    Storage grows by doubling, so that storing a token costs a copy of that token only. Nothing here carries gradients
    across calls; decode under `torch.no_grad()`.

    Args:
        norm: the variant of attention. `elliptical_quest` has no cache: its metric is a mean over all tokens.
    """

    def __init__(self, norm: str = "quest") -> None:
        if norm not in FORMS or norm == "elliptical_quest":
            allowed = ", ".join(repr(name) for name in NORMS if name != "elliptical_quest")
            raise ValueError(f"norm={norm!r}; allowed are {allowed}")
        self.norm = norm
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Float[Tensor, "b h s d"]:
        """All stored keys, normalised."""
        return self._filled(self._keys)

    @property
    def values(self) -> Float[Tensor, "b h s d_v"]:
        """All stored values."""
        return self._filled(self._values)

    def append(
        self,
        k: Float[Tensor, "b h n d"],
        v: Float[Tensor, "b h n d_v"],
        k_gain: Tensor | None = None,
        eps: float = 1e-6,
    ) -> None:
        """Store n tokens without attending from them; arguments as in `attend`."""
        self._store(prepare(k, k, self.norm, None, k_gain, eps)[1], v)

    def attend(
        self,
        q: Float[Tensor, "b h n d"],
        k: Float[Tensor, "b h_k n d"],
        v: Float[Tensor, "b h_k n d_v"],
        q_gain: Tensor | None = None,
        k_gain: Tensor | None = None,
        eps: float = 1e-6,
    ) -> Float[Tensor, "b h n d_v"]:
        """Store n further tokens, then attend from them to everything stored up to and including each of them.

        Args:
            q: queries of the new tokens; a multiple of the heads of k is allowed (grouped queries).
            k: their keys, rotated where the model rotates, not normalised.
            v: their values.
            q_gain: as in `quest_attention`.
            k_gain: as in `quest_attention`; it is stored with the keys, so it must not change between calls.
            eps: smallest norm that is divided by.
        """
        q, k, scale = prepare(q, k, self.norm, q_gain, k_gain, eps)
        self._store(k, v)
        new, total = q.shape[-2], self.length
        # One new token sees all that is stored; of several, token i sees all but those after it.
        mask = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(total - new) if new > 1 else None
        grouped = q.shape[-3] != k.shape[-3]
        return F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=mask, scale=scale, enable_gqa=grouped
        )

    def _filled(self, stored: Tensor | None) -> Tensor:
        if stored is None:
            raise ValueError("the cache is empty; allowed are caches that hold at least one token")
        return stored[..., : self.length, :]

    def _store(self, k: Tensor, v: Tensor) -> None:
        end = self.length + k.shape[-2]
        for name, x, stored in (("_keys", k, self._keys), ("_values", v, self._values)):
            if stored is not None and (x.shape[:-2], x.shape[-1]) != (stored.shape[:-2], stored.shape[-1]):
                allowed = (*stored.shape[:-2], "n", stored.shape[-1])
                raise ValueError(f"{name[1]} has shape {tuple(x.shape)}; allowed is that of the stored, {allowed}")
            if stored is None or end > stored.shape[-2]:
                grown = x.new_empty(*x.shape[:-2], max(2 * self.length, end, 16), x.shape[-1])
                if stored is not None:
                    grown[..., : self.length, :] = self._filled(stored)
                stored = grown
                setattr(self, name, stored)
            stored[..., self.length : end, :] = x.detach()
        self.length = end
