"""The DPT head: tokens of four depths fused to one map, from coarse to fine."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class ResidualUnit(nn.Module):
    """ReLU, conv, ReLU, conv beside a skip."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, x: Float[Tensor, " b c h w"]) -> Float[Tensor, " b c h w"]:
        """Refine a map."""
        return x + self.conv2(F.relu(self.conv1(F.relu(x))))


class Fusion(nn.Module):
    """A RefineNet block: add a finer map, refine, resize, project."""

    def __init__(self, features: int, joins: bool) -> None:
        super().__init__()
        self.join = ResidualUnit(features) if joins else None  # the coarsest level has nothing to be joined with
        self.refine = ResidualUnit(features)
        self.out = nn.Conv2d(features, features, 1)

    def forward(
        self, x: Float[Tensor, " b c h w"], finer: Float[Tensor, " b c h w"] | None, size: tuple[int, int]
    ) -> Float[Tensor, " b c h2 w2"]:
        """Return the fused map at `size`."""
        if self.join is not None and finer is not None:
            x = x + self.join(finer)
        return self.out(F.interpolate(self.refine(x), size=size, mode="bilinear", align_corners=True))


class DPTHead(nn.Module):
    """Four maps of tokens on one grid (rows, columns) to one map of `features` // 2 channels.

    Args:
        width: Width of a token.
        features: Channels within.
        out_channels: Channels of the four taps after their projection.
        detour: The authors' head resizes its output to `detour` x the grid, a leftover of the patch size 14, before
            the caller resizes it to what it needs; their weights were trained so. ``None`` leaves that out.
    """

    def __init__(
        self, width: int, features: int, out_channels: tuple[int, int, int, int], detour: int | None = None
    ) -> None:
        super().__init__()
        a, b, _, d = out_channels
        self.detour = detour
        self.project = nn.ModuleList(nn.Conv2d(width, c, 1) for c in out_channels)
        self.resize = nn.ModuleList(
            [
                nn.ConvTranspose2d(a, a, 4, stride=4),
                nn.ConvTranspose2d(b, b, 2, stride=2),
                nn.Identity(),
                nn.Conv2d(d, d, 3, stride=2, padding=1),
            ]
        )
        self.reduce = nn.ModuleList(nn.Conv2d(c, features, 3, padding=1, bias=False) for c in out_channels)
        self.fuse = nn.ModuleList(Fusion(features, joins=i < 3) for i in range(4))
        self.out = nn.Conv2d(features, features // 2, 3, padding=1)

    def forward(self, taps: list[Float[Tensor, " b d rows columns"]]) -> Float[Tensor, " b c h w"]:
        """Fuse the taps.

        Args:
            taps: Four maps (b, width, rows, columns).

        Returns:
            Map (b, features // 2, 8 rows, 8 columns), or `detour` times the grid.
        """
        rows, columns = taps[0].shape[2:]
        levels = [
            reduce(resize(project(x)))
            for x, project, resize, reduce in zip(taps, self.project, self.resize, self.reduce, strict=True)
        ]
        x = self.fuse[3](levels[3], None, levels[2].shape[2:])
        x = self.fuse[2](x, levels[2], levels[1].shape[2:])
        x = self.fuse[1](x, levels[1], levels[0].shape[2:])
        x = self.fuse[0](x, levels[0], (8 * rows, 8 * columns))
        x = self.out(x)
        if self.detour is not None:
            x = F.interpolate(x, size=(self.detour * rows, self.detour * columns), mode="bilinear", align_corners=True)
        return x
