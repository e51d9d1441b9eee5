"""The recurrent update: ViT with a DPT head as in the paper, or ConvGRU, ResNet and 1x1 convolutions in its place.

Each is a module with `out_channels` that is called as update(x, net) with two maps (b, dim, h, w).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .dpt import DPTHead
from .vit import TapViT, ViTConfig

Map = Float[Tensor, " b d h w"]


class ViTUpdate(nn.Module):
    """Section 3 of the paper: patch tokens, transformer blocks, DPT head, back to the resolution of the map.

    Args:
        dim: Channels of the map.
        patch: Side of a patch, pixels of the map; 16 / index_stride keeps tokens at 1/16 of the picture.
        config: Sizes.
        detour: See `DPTHead`.
    """

    def __init__(self, dim: int, patch: int, config: ViTConfig, detour: int | None = None) -> None:
        super().__init__()
        self.vit = TapViT(dim, patch, config)
        self.head = DPTHead(config.width, config.features, config.out_channels, detour)
        self.out_channels = config.features // 2

    def forward(self, x: Map, net: Map) -> Float[Tensor, " b c h w"]:
        """Update.

        Args:
            x: Mixed input (b, dim, h, w).
            net: Hidden state (b, dim, h, w); not used, since `x` holds it.
        """
        return F.interpolate(self.head(self.vit(x)), size=x.shape[2:], mode="bilinear", align_corners=True)


class ConvGRU(nn.Module):
    """RAFT's gated update with 3x3 convolutions.

    Args:
        dim: Channels of the hidden state.
        in_channels: Channels of the input; `dim` unless given.
    """

    def __init__(self, dim: int, in_channels: int | None = None) -> None:
        super().__init__()
        total = dim + (dim if in_channels is None else in_channels)
        self.out_channels = dim
        self.gates = nn.Conv2d(total, 2 * dim, 3, padding=1)
        self.candidate = nn.Conv2d(total, dim, 3, padding=1)

    def forward(self, x: Float[Tensor, " b c h w"], net: Map) -> Map:
        """Return the next hidden state.

        Args:
            x: Input (b, in_channels, h, w).
            net: Hidden state (b, dim, h, w).
        """
        z, r = torch.sigmoid(self.gates(torch.cat([net, x], dim=1))).chunk(2, dim=1)
        q = torch.tanh(self.candidate(torch.cat([r * net, x], dim=1)))
        return (1 - z) * net + z * q


class ResNetUpdate(nn.Module):
    """Residual blocks of two 3x3 convolutions at the resolution of the map, as in SEA-RAFT.

    Args:
        dim: Channels of the map.
        blocks: Number of blocks.
    """

    def __init__(self, dim: int, blocks: int = 4) -> None:
        super().__init__()
        self.out_channels = dim
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(dim, dim, 3, padding=1), nn.GroupNorm(1, dim), nn.GELU(), nn.Conv2d(dim, dim, 3, padding=1)
            )
            for _ in range(blocks)
        )

    def forward(self, x: Map, net: Map) -> Map:
        """Update.

        Args:
            x: Mixed input (b, dim, h, w).
            net: Hidden state (b, dim, h, w); not used, since `x` holds it.
        """
        for block in self.blocks:
            x = x + block(x)
        return x


class PointwiseUpdate(nn.Module):
    """1x1 convolutions: no pixel sees another.

    Args:
        dim: Channels of the map.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.out_channels = dim
        self.mix = nn.Sequential(nn.Conv2d(dim, 2 * dim, 1), nn.GELU(), nn.Conv2d(2 * dim, dim, 1))

    def forward(self, x: Map, net: Map) -> Map:
        """Update.

        Args:
            x: Mixed input (b, dim, h, w).
            net: Hidden state (b, dim, h, w); not used, since `x` holds it.
        """
        return x + self.mix(x)


UPDATES = {"convgru": ConvGRU, "resnet": ResNetUpdate, "pointwise": PointwiseUpdate}
