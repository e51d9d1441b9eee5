"""Encoders to train from scratch: the paper's ViT and text Transformer, and small ones."""

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn

VISION = {"small": (384, 12, 12), "base": (768, 12, 12), "large": (1024, 24, 16)}  # width, layers, heads


def sincos_positions(height: int, width: int, channels: int) -> Tensor:
    """Two-dimensional sine and cosine codes (height * width, channels); channels divisible by 4."""
    if channels % 4:
        raise ValueError(f"channels = {channels}: a multiple of 4 is needed")
    omega = 10_000 ** -(torch.arange(channels // 4) / (channels // 4))
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    parts = [f(p.flatten()[:, None] * omega) for p in (x, y) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=1)


def _blocks(width: int, layers: int, heads: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class VisionEncoder(nn.Module):
    """A Vision Transformer with fixed sine-cosine positions and a class token.

    Args:
        size: "small" (12 heads, as in MoCo v3), "base", "large", or (width, layers, heads).
        image_size: Height and width of pictures.
        patch: Side of a patch.
    """

    def __init__(
        self, size: str | tuple[int, int, int] = "small", image_size: tuple[int, int] = (224, 224), patch: int = 16
    ) -> None:
        super().__init__()
        if isinstance(size, str) and size not in VISION:
            raise ValueError(f"size = {size!r}: one of {', '.join(VISION)} or (width, layers, heads) is needed")
        if any(side % patch for side in image_size):
            raise ValueError(f"image_size = {image_size}: multiples of patch = {patch} are needed")
        width, layers, heads = VISION[size] if isinstance(size, str) else size
        self.out_features = width
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(1e-6 * torch.randn(width))
        self.register_buffer(
            "positions", sincos_positions(image_size[0] // patch, image_size[1] // patch, width), persistent=False
        )
        self.blocks = _blocks(width, layers, heads)

    def forward(self, images: Tensor) -> Tensor:
        """Features of pictures.

        Args:
            images: Of shape (batch, 3, height, width).

        Returns:
            Features (batch, width).
        """
        tokens = self.patches(images).flatten(2).mT + self.positions
        tokens = torch.cat([self.class_token.expand(len(tokens), 1, -1), tokens], dim=1)
        return self.blocks(tokens)[:, 0]  # type: ignore[no-any-return]


class SmallConvNet(nn.Module):
    """Four strided convolutions, for pictures of a few dozen pixels.

    Args:
        width: Features that come out.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.out_features = width
        sizes = [3, width // 4, width // 2, width, width]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.GroupNorm(1, b), nn.GELU())
                for a, b in itertools.pairwise(sizes)
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features (batch, width) of pictures (batch, 3, height, width)."""
        return self.layers(images).mean((2, 3))  # type: ignore[no-any-return]


class TextEncoder(nn.Module):
    """A causal Transformer whose feature is the state at the end-of-text token.

    Args:
        vocabulary: Number of tokens; the end of a text is the largest of its ids, as in CLIP's vocabulary.
        width: Width.
        layers: Layers.
        heads: Heads.
        context: Tokens of the longest text.
    """

    def __init__(
        self, vocabulary: int = 49_408, width: int = 512, layers: int = 12, heads: int = 8, context: int = 77
    ) -> None:
        super().__init__()
        self.out_features = width
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.01 * torch.randn(context, width))
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = _blocks(width, layers, heads)

    def forward(self, ids: Tensor) -> Tensor:
        """Features of texts.

        Args:
            ids: Token ids (batch, tokens).

        Returns:
            Features (batch, width).

        Raises:
            ValueError: For more tokens than there are positions.
        """
        if ids.shape[1] > len(self.positions):
            raise ValueError(f"ids has {ids.shape[1]} tokens: at most {len(self.positions)} are possible")
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        states = self.blocks(self.tokens(ids) + self.positions[: ids.shape[1]], mask=mask, is_causal=True)
        return states[torch.arange(len(ids)), ids.argmax(dim=1)]  # type: ignore[no-any-return]


class TwoTowers(nn.Module):
    """A picture and a text encoder with open_clip's interface, for `PHyCLIPHead`.

    Args:
        vision: Module: pictures to features.
        text: Module: token ids to features.
    """

    def __init__(self, vision: nn.Module, text: nn.Module) -> None:
        super().__init__()
        self.vision, self.text = vision, text

    def encode_image(self, images: Tensor) -> Any:
        """Features of pictures.

        Args:
            images: What `vision` takes.
        """
        return self.vision(images)

    def encode_text(self, ids: Tensor) -> Any:
        """Features of texts.

        Args:
            ids: What `text` takes.
        """
        return self.text(ids)


def parameter_groups(module: nn.Module, weight_decay: float = 0.2) -> list[dict[str, Any]]:
    """Groups for AdamW: no decay on scales, curvatures, gains, biases and normalisations (all of one axis or none)."""
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    decayed = [p for _, p in named if p.dim() > 1]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": [p for _, p in named if p.dim() <= 1], "weight_decay": 0.0},
    ]


def warmup_cosine(step: int, warmup: int, total: int) -> float:
    """The factor on the rate at a step: a linear warm-up, then half a cosine to 0."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))
