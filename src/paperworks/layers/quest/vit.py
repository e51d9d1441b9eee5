"""A small Vision Transformer whose attention can be replaced."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .module import QuestAttention


class ViT(nn.Module):
    """Pre-norm Vision Transformer with a class token and learned positions.

    Args:
        image_size: height and width of the images, a multiple of `patch_size`.
        patch_size: height and width of a patch.
        channels: colour channels.
        classes: number of classes.
        dim: width of a token.
        depth: number of blocks.
        heads: attention heads of a block.
        mlp_ratio: width of the hidden layer of a block's network, in units of `dim`.
        norm: the variant of attention, a key of `paperworks.layers.quest.NORMS`.
        attention: called as `attention(dim, heads)` in place of `norm`; it returns a module with the interface of
            `nn.MultiheadAttention(dim, heads, batch_first=True)`.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        channels: int = 1,
        classes: int = 10,
        dim: int = 48,
        depth: int = 3,
        heads: int = 4,
        mlp_ratio: float = 2.0,
        norm: str = "quest",
        attention: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"image_size={image_size}; allowed are multiples of patch_size={patch_size}")
        attention = attention or partial(QuestAttention, norm=norm, batch_first=True)
        tokens = (image_size // patch_size) ** 2
        self.patch_size = patch_size
        self.patch = nn.Linear(channels * patch_size**2, dim)
        self.class_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, 1, dim), std=0.02))
        self.position = nn.Parameter(nn.init.trunc_normal_(torch.empty(1, tokens + 1, dim), std=0.02))
        self.blocks = nn.Sequential(*(Block(dim, attention(dim, heads), mlp_ratio) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        for before, block in pairwise(self.blocks):
            if isinstance(block.attention, QuestAttention) and isinstance(before.attention, QuestAttention):
                block.attention.follow(before.attention)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return the class scores of `images`."""
        p = self.patch_size
        patches = images.unfold(2, p, p).unfold(3, p, p)  # (b, c, rows, columns, p, p)
        tokens = self.patch(patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))
        tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1) + self.position
        return self.head(self.norm(self.blocks(tokens)[:, 0]))


class Block(nn.Module):
    """Attention and a two-layer network, each after a layer norm and beside a residual."""

    def __init__(self, dim: int, attention: nn.Module, mlp_ratio: float) -> None:
        super().__init__()
        hidden = int(mlp_ratio * dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """Mix tokens, then features."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))
