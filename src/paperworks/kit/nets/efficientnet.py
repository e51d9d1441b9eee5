"""EfficientNet-Lite0, a real image encoder that one package carries."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from paperworks.kit.assets import catalog, open_asset
from paperworks.kit.features import cached_features

WIDTH = 1280
STRIDES = (2, 4, 8, 16, 32)
CHANNELS = (16, 24, 40, 112, 320)


class EfficientNetLite0(nn.Module):
    """The network with frozen ImageNet weights; it stays in evaluation mode whatever module it is part of.

    Pictures are (batch, 3, height, width) in RGB, 0..255, of any size from 32; the network was trained at 224.

    Args:
        network: The architecture with its weights.
    """

    def __init__(self, network: EfficientNet) -> None:
        super().__init__()
        self.network = network.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> EfficientNetLite0:
        """Does nothing: BatchNorm's statistics are part of what is frozen."""
        return super().train(False)

    def stages(self, images: Tensor) -> list[Tensor]:
        """The last map at each resolution.

        Args:
            images: Of shape (batch, 3, height, width), 0..255.

        Returns:
            Five maps at strides 2, 4, 8, 16 and 32 with 16, 24, 40, 112 and 320 channels.

        Raises:
            ValueError: The pictures have another shape, or are smaller than 32 pixels.
        """
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < 32:
            raise ValueError(f"images have shape {tuple(images.shape)}; expected (batch, 3, height, width) from 32x32")
        net = self.network
        x = net._swish(net._bn0(net._conv_stem((images - 127.0) / 128.0)))
        maps = [x]
        for block in net._blocks:
            x = block(x)
            if x.shape[2:] == maps[-1].shape[2:]:
                maps[-1] = x
            else:
                maps.append(x)
        return maps

    def pooled(self, images: Tensor) -> Tensor:
        """The mean over positions of what the classifier sees.

        Args:
            images: Of shape (batch, 3, height, width), 0..255.

        Returns:
            Features of shape (batch, 1280).
        """
        net = self.network
        return net._swish(net._bn1(net._conv_head(self.stages(images)[-1]))).mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the 1,000 classes of ImageNet.

        Args:
            images: Of shape (batch, 3, height, width), 0..255.

        Returns:
            Logits of shape (batch, 1000).
        """
        return self.network._fc(self.pooled(images))


def efficientnet_lite0() -> EfficientNetLite0:
    """Loads the network, on the CPU.

    Raises:
        AssetMissing: The weights are not on this machine.
    """
    network = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(open_asset("efficientnet_lite0"), map_location="cpu", weights_only=True)
    network.load_state_dict(weights)
    return EfficientNetLite0(network)


def image_features(images: npt.NDArray[np.uint8], size: int = 96, batch_size: int = 64) -> npt.NDArray[np.float32]:
    """Encodes pictures with the frozen network; what was encoded once on this machine is looked up.

    Args:
        images: Of shape (n, height, width, 3), RGB, 0..255; scaled to `size` by bilinear interpolation.
        size: Side of the square that the network sees, 32 or more; 0 leaves the pictures as they are.
        batch_size: Pictures in one batch.

    Returns:
        Pooled features of shape (n, 1280), yours to change.

    Raises:
        AssetMissing: The weights are not on this machine.
        ValueError: The pictures have another shape or type.
    """
    if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise ValueError(f"images are {images.dtype} of shape {images.shape}; expected uint8, (n, height, width, 3)")

    def encode(part: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        rows = []
        for i in range(0, len(part), batch_size):
            batch = torch.from_numpy(np.stack(part[i : i + batch_size])).permute(0, 3, 1, 2).float()
            if size:
                batch = nn.functional.interpolate(
                    batch, size=(size, size), mode="bilinear", align_corners=False, antialias=True
                )
            rows.append(_network().pooled(batch))
        return torch.cat(rows).numpy()

    digest = catalog()["efficientnet_lite0"].digest
    return cached_features(f"efficientnet-lite0-{digest[:16]}-pooled-{size}", list(images), encode, WIDTH)


@lru_cache(maxsize=1)
def _network() -> EfficientNetLite0:
    return efficientnet_lite0()
