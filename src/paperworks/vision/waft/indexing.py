"""How the second frame is read at each iteration: by warping, by a cost volume, or not at all.

Each is a module with `channels`, `prepare(first, second, view)` once a pair, and `forward(state, flow)` once an
iteration. `view(flow)` encodes the second picture anew, warped by a flow; only `ImageWarp` asks for it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .warp import backward_warp, pixel_grid, sample

Map = Float[Tensor, " b d h w"]
View = Callable[[Tensor], Tensor]


class Warp(nn.Module):
    """The paper's: the second frame's features, warped by the current flow; one vector a pixel.

    Args:
        dim: Channels of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.channels = dim

    def prepare(self, first: Map, second: Map, view: View | None = None) -> Any:
        """Keep the second map (b, dim, h, w)."""
        return second

    def forward(self, state: Any, flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
        """Read the second frame.

        Args:
            state: From `prepare`.
            flow: Current flow (b, 2, h, w), pixels of this map.
        """
        return backward_warp(state, flow)


class NoWarp(Warp):
    """Direct refinement: the second frame's features where they are."""

    def forward(self, state: Any, flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
        """Return the second map, whatever the flow.

        Args:
            state: From `prepare`.
            flow: Not used, (b, 2, h, w).
        """
        return state


class ImageWarp(Warp):
    """The second picture is warped and encoded anew at each iteration."""

    def prepare(self, first: Map, second: Map, view: View | None = None) -> Any:
        """Keep the function that encodes the warped picture."""
        if view is None:
            raise ValueError("ImageWarp needs `view`, the function that encodes the second picture warped by a flow")
        return view

    def forward(self, state: Any, flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
        """Warp the picture and encode it.

        Args:
            state: From `prepare`.
            flow: Current flow (b, 2, h, w), pixels of this map.
        """
        return state(flow)


def window(radius: int, like: Tensor) -> Float[Tensor, " 2 k"]:
    """Offsets (x, y) of a square window, row by row.

    Args:
        radius: The window has side 2 radius + 1.
        like: A tensor of any shape (...) whose type and device the offsets take.
    """
    return pixel_grid(2 * radius + 1, 2 * radius + 1, like=like).flatten(1) - radius


class AllPairs(nn.Module):
    """RAFT's cost volume: all dot products, a pyramid of them, and a window around the current target on each level.

    Args:
        dim: Channels of the features.
        levels: Levels of the pyramid, each half the one before.
        radius: The window has side 2 radius + 1.
    """

    def __init__(self, dim: int, levels: int = 4, radius: int = 4) -> None:
        super().__init__()
        self.dim, self.levels, self.radius = dim, levels, radius
        self.channels = levels * (2 * radius + 1) ** 2

    def prepare(self, first: Map, second: Map, view: View | None = None) -> Any:
        """Build the pyramid: level l has shape (b h w, 1, h / 2^l, w / 2^l)."""
        b, d, h, w = first.shape
        smallest = 2**self.levels
        if min(h, w) < smallest:
            raise ValueError(
                f"features are {h}x{w}; a pyramid of {self.levels} levels needs sides of {smallest} or more"
            )
        volume = torch.einsum("bdp,bdq->bpq", first.flatten(2), second.flatten(2)) / d**0.5
        pyramid = [volume.reshape(b * h * w, 1, h, w)]
        for _ in range(self.levels - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2))
        return pyramid

    def forward(self, state: Any, flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
        """Look the window up on each level.

        Args:
            state: From `prepare`.
            flow: Current flow (b, 2, h, w), pixels of this map.
        """
        b, _, h, w = flow.shape
        target = (pixel_grid(h, w, like=flow) + flow).permute(0, 2, 3, 1).reshape(b * h * w, 2, 1, 1)
        offsets = window(self.radius, flow).view(1, 2, 1, -1)
        found = [sample(level, target / 2**i + offsets) for i, level in enumerate(state)]  # (b h w, 1, 1, k) each
        return torch.cat(found, dim=-1).view(b, h, w, -1).permute(0, 3, 1, 2)


class LocalVolume(nn.Module):
    """Dot products with a window around the current target, made anew at each iteration: no volume of all pairs.

    Args:
        dim: Channels of the features.
        radius: The window has side 2 radius + 1.
    """

    def __init__(self, dim: int, radius: int = 4) -> None:
        super().__init__()
        self.radius, self.channels = radius, (2 * radius + 1) ** 2

    def prepare(self, first: Map, second: Map, view: View | None = None) -> Any:
        """Keep both maps (b, dim, h, w)."""
        return first, second

    def forward(self, state: Any, flow: Float[Tensor, " b 2 h w"]) -> Float[Tensor, " b c h w"]:
        """Compare with the window.

        Args:
            state: From `prepare`.
            flow: Current flow (b, 2, h, w), pixels of this map.
        """
        first, second = state
        offsets = window(self.radius, flow).T.view(-1, 1, 2, 1, 1)  # one shift after another, so as to hold one map
        costs = [torch.einsum("bdhw,bdhw->bhw", first, backward_warp(second, flow + shift)) for shift in offsets]
        return torch.stack(costs, dim=1) / first.shape[1] ** 0.5


INDEXING = {
    "warp": Warp,
    "no_warp": NoWarp,
    "image_warp": ImageWarp,
    "all_pairs": AllPairs,
    "local_volume": LocalVolume,
}
