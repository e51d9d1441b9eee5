"""Transformer blocks, the ViT of the recurrent update, and DINOv2 as a frozen encoder's trunk."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of an update's transformer and of the DPT head on it.

    Attributes:
        width: Width of a token.
        depth: Number of blocks.
        heads: Attention heads.
        features: Channels of the DPT head, and of WAFT's maps (the authors' network_dim).
        out_channels: Channels of the four taps after their projection.
        taps: Blocks after which tokens are taken, counted from 0.
    """

    width: int
    depth: int
    heads: int
    features: int
    out_channels: tuple[int, int, int, int]
    taps: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        if self.width % self.heads or self.features % 2 or not all(0 <= tap < self.depth for tap in self.taps):
            raise ValueError(f"{self}: width must be a multiple of heads, features even and taps within 0..depth-1")


VIT_CONFIGS = {
    "vit_micro": ViTConfig(64, 4, 2, 32, (16, 24, 32, 48), (0, 1, 2, 3)),  # ours, for a laptop
    "vit_t": ViTConfig(192, 12, 3, 32, (24, 48, 96, 192), (2, 5, 8, 11)),
    "vit_s": ViTConfig(384, 12, 6, 64, (48, 96, 192, 384), (2, 5, 8, 11)),
    "vit_b": ViTConfig(768, 12, 12, 128, (96, 192, 384, 768), (2, 5, 8, 11)),
    "vit_l": ViTConfig(1024, 24, 16, 256, (256, 512, 1024, 1024), (4, 11, 17, 23)),
}


class SelfAttention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, " b n d"]) -> Float[Tensor, " b n d"]:
        """Mix tokens."""
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    """A pre-norm transformer block; `layer_scale` adds DINOv2's learned factors on both branches."""

    def __init__(self, width: int, heads: int, layer_scale: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = SelfAttention(width, heads)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale1 = nn.Parameter(torch.ones(width)) if layer_scale else None
        self.scale2 = nn.Parameter(torch.ones(width)) if layer_scale else None

    def forward(self, x: Float[Tensor, " b n d"]) -> Float[Tensor, " b n d"]:
        """Mix tokens, then features."""
        mixed = self.attn(self.norm1(x))
        x = x + (mixed if self.scale1 is None else self.scale1 * mixed)
        mixed = self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x + (mixed if self.scale2 is None else self.scale2 * mixed)


def resized_positions(
    table: Float[Tensor, " 1 n d"], height: int, width: int, offset: float = 0.0
) -> Float[Tensor, " 1 m d"]:
    """Resize a square table of positions to another grid, bicubically.

    Args:
        table: Positions of a square grid (1, side^2, d), row by row.
        height: Rows wanted.
        width: Columns wanted.
        offset: DINOv2 was trained with scale factors (rows + 0.1) / side instead of rows / side; 0 asks for the size
            itself, since a factor can round to one row too few.
    """
    side = round(table.shape[1] ** 0.5)
    if (height, width) == (side, side):
        return table
    grid = table.view(1, side, side, -1).permute(0, 3, 1, 2)
    if offset:
        factor = ((height + offset) / side, (width + offset) / side)
        grid = F.interpolate(grid, scale_factor=factor, mode="bicubic")
    else:
        grid = F.interpolate(grid, size=(height, width), mode="bicubic")
    return grid.flatten(2).transpose(1, 2)


class TapViT(nn.Module):
    """The update's transformer: patches of a map to tokens, whose values after four blocks are handed on.

    Positions are a table of 8x8, zero at the start, resized to the grid at hand.
    """

    SIDE = 8

    def __init__(self, in_channels: int, patch: int, config: ViTConfig) -> None:
        super().__init__()
        self.patch, self.taps = patch, config.taps
        self.embed = nn.Conv2d(in_channels, config.width, patch, stride=patch)
        self.positions = nn.Parameter(torch.zeros(1, self.SIDE**2, config.width))
        self.blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.depth))

    def forward(self, x: Float[Tensor, " b c h w"]) -> list[Float[Tensor, " b d rows columns"]]:
        """Return the four taps as maps of tokens."""
        x = self.embed(x)
        rows, columns = x.shape[2:]
        x = x.flatten(2).transpose(1, 2) + resized_positions(self.positions, rows, columns)
        taken = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in self.taps:
                taken.append(x.transpose(1, 2).unflatten(2, (rows, columns)))
        return taken


class DINOv2(nn.Module):
    """DINOv2's transformer, from the layout of its weights: patch 14, a class token, positions of 37x37.

    Args:
        config: Sizes.
        taps: Blocks after which tokens are taken.
    """

    PATCH = 14
    SIDE = 37

    def __init__(self, config: ViTConfig, taps: Sequence[int] | None = None) -> None:
        super().__init__()
        self.taps = tuple(taps or config.taps)
        self.embed = nn.Conv2d(3, config.width, self.PATCH, stride=self.PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + self.SIDE**2, config.width))
        nn.init.normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(Block(config.width, config.heads, layer_scale=True) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=1e-6)

    def forward(self, x: Float[Tensor, " b 3 h w"]) -> list[Float[Tensor, " b d rows columns"]]:
        """Return the normed taps as maps of tokens, without the class token.

        Args:
            x: Normalised pictures (b, 3, h, w); h and w multiples of 14.
        """
        x = self.embed(x)
        rows, columns = x.shape[2:]
        place = resized_positions(self.positions[:, 1:], rows, columns, offset=0.1)
        first = (self.class_token + self.positions[:, :1]).expand(len(x), -1, -1)
        x = torch.cat([first, x.flatten(2).transpose(1, 2) + place], dim=1)
        taken = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in self.taps:
                taken.append(self.norm(x)[:, 1:].transpose(1, 2).unflatten(2, (rows, columns)))
        return taken
