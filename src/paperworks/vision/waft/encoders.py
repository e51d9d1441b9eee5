"""Image encoders: the protocol of a frozen one, Depth-Anything-V2, and the trainable side network."""

import itertools
import math
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .dpt import DPTHead
from .vit import VIT_CONFIGS, DINOv2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def normalise(images: Float[Tensor, " b 3 h w"]) -> Float[Tensor, " b 3 h w"]:
    """Bring RGB 0..255 to ImageNet's mean 0 and deviation 1.

    Args:
        images: Pictures (b, 3, h, w), 0..255.
    """
    mean, std = (images.new_tensor(x).view(1, 3, 1, 1) for x in (MEAN, STD))
    return (images / 255.0 - mean) / std


def denormalise(images: Float[Tensor, " b 3 h w"]) -> Float[Tensor, " b 3 h w"]:
    """Undo `normalise`, for an encoder that wants pixels.

    Args:
        images: Normalised pictures (b, 3, h, w).
    """
    mean, std = (images.new_tensor(x).view(1, 3, 1, 1) for x in (MEAN, STD))
    return (images * std + mean) * 255.0


@runtime_checkable
class Encoder(Protocol):
    """Any image encoder: normalised pictures (b, 3, h, w) to a map (b, out_channels, h / stride, w / stride).

    `multiple` (optional) is what height and width must be a multiple of; `stride` unless given.
    """

    out_channels: int
    stride: int

    def __call__(self, x: Float[Tensor, " b 3 h w"], /) -> Float[Tensor, " b c h2 w2"]:
        """Encode pictures.

        Args:
            x: Normalised pictures (b, 3, h, w).
        """
        ...


class DepthAnything(nn.Module):
    """Depth-Anything-V2's features: DINOv2 with a DPT head, frozen in WAFT. Random until weights are loaded.

    Args:
        size: "vit_s", "vit_b" or "vit_l", or another key of `VIT_CONFIGS`.
    """

    stride = 1
    multiple = 14

    def __init__(self, size: str = "vit_s") -> None:
        super().__init__()
        if size not in VIT_CONFIGS:
            raise ValueError(f"size={size!r}; allowed are {', '.join(VIT_CONFIGS)}")
        config = VIT_CONFIGS[size]
        self.vit = DINOv2(config)
        self.head = DPTHead(config.width, config.features, config.out_channels, detour=14)
        self.out_channels = config.features // 2

    def forward(self, x: Float[Tensor, " b 3 h w"]) -> Float[Tensor, " b c h w"]:
        """Encode pictures.

        Args:
            x: Normalised pictures (b, 3, h, w); h and w multiples of 14.
        """
        return self.head(self.vit(x))


class ResConv(nn.Module):
    """GELU, conv k x k, GELU, conv 3x3, beside a skip that is 1x1 where the shape changes."""

    def __init__(self, inp: int, out: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inp, out, kernel, stride=stride, padding=kernel // 2)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(inp, out, 1, stride=stride) if inp != out or stride != 1 else nn.Identity()

    def forward(self, x: Float[Tensor, " b c h w"]) -> Float[Tensor, " b c2 h2 w2"]:
        """Refine a map."""
        gelu = nn.functional.gelu
        return self.conv2(gelu(self.conv1(gelu(x)))) + self.skip(x)


class BasicBlock(nn.Module):
    """ResNet's block of two 3x3 convolutions; its names are those of ResNet weights everywhere."""

    def __init__(self, inp: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inp, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inp, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))
            if inp != out or stride != 1
            else None
        )

    def forward(self, x: Float[Tensor, " b c h w"]) -> Float[Tensor, " b c2 h2 w2"]:
        """Refine a map."""
        skip = x if self.downsample is None else self.downsample(x)
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)) + skip)


class SideNetwork(nn.Module):
    """The trainable branch: a stem to half resolution, ResNet stages down, transposed convolutions up again.

    Args:
        in_channels: Channels of picture and frozen features together.
        out_channels: Channels of the result.
        widths: Channels of the stages, the first at half resolution; ResNet-18 has (64, 128, 256, 512).
        blocks: Blocks of a stage; 2 in ResNet-18.
    """

    def __init__(
        self, in_channels: int, out_channels: int = 64, widths: tuple[int, ...] = (64, 128, 256, 512), blocks: int = 2
    ) -> None:
        super().__init__()
        if len(widths) < 2:
            raise ValueError(f"widths={widths}; a side network has at least 2 stages")
        self.out_channels, self.multiple = out_channels, 2 ** len(widths)
        self.stem = ResConv(in_channels, widths[0], kernel=7, stride=2)
        self.stages = nn.ModuleList()
        for i, (inp, out) in enumerate(zip((widths[0], *widths), widths, strict=False)):
            first = BasicBlock(inp, out, stride=1 if i == 0 else 2)
            self.stages.append(nn.Sequential(first, *(BasicBlock(out, out) for _ in range(blocks - 1))))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(deep, shallow, 2, stride=2) for shallow, deep in itertools.pairwise(widths)
        )
        outs = (out_channels, *widths[1:-1])
        self.join = nn.ModuleList(ResConv(inp, out) for inp, out in zip(widths, outs, strict=False))

    def forward(self, x: Float[Tensor, " b c h w"]) -> Float[Tensor, " b c2 h2 w2"]:
        """Encode pictures with frozen features.

        Args:
            x: Maps (b, in_channels, h, w), h and w multiples of `multiple`.

        Returns:
            Map (b, out_channels, h / 2, w / 2).
        """
        x = self.stem(x)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](levels[i] + self.up[i](x))
        return x


def least_multiple(*values: int) -> int:
    """The least common multiple, such as 112 of 14 and 16.

    Args:
        values: Whole numbers > 0.
    """
    return math.lcm(*values)
