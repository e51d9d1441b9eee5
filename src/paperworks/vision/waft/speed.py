"""Ours beside a peer on the same inputs: times are compared after the results."""

import numpy as np
import torch
from torch import Tensor

from paperworks.claims.speed import Pair

from .indexing import AllPairs, Warp
from .warp import backward_warp


def _map(size: str) -> tuple[Tensor, Tensor]:
    """A map of 64 channels and a smooth flow that stays inside: outside the peers extrapolate otherwise."""
    channels, side = (64, 256) if size == "full" else (3, 24)
    generator = torch.Generator().manual_seed(0)
    feat = torch.rand(1, channels, side, side, generator=generator)
    flow = 3 * torch.randn(1, 2, side, side, generator=generator)
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy")).float()
    return feat, (grid + flow).clamp(0, side - 1) - grid


def warp_scipy(size: str = "full") -> Pair:
    """A map of 64 channels warped: ours, and scipy channel by channel."""
    from scipy.ndimage import map_coordinates

    feat, flow = _map(size)
    array, (dx, dy) = feat[0].numpy(), flow[0].numpy()
    rows, columns = np.mgrid[: array.shape[1], : array.shape[2]].astype(np.float32)

    def peer() -> np.ndarray:
        at = np.stack([rows + dy, columns + dx])
        return np.stack([map_coordinates(channel, at, order=1) for channel in array])[None]

    return Pair(ours=lambda: backward_warp(feat, flow), peer=peer, rtol=1e-5, atol=5e-5)


def warp_opencv(size: str = "full") -> Pair:
    """A map of 64 channels warped: ours, and OpenCV on its own layout, channels last, without the transposition."""
    import cv2

    feat, flow = _map(size)
    array = np.ascontiguousarray(feat[0].permute(1, 2, 0).numpy())
    dx, dy = flow[0].numpy()
    rows, columns = np.mgrid[: array.shape[0], : array.shape[1]].astype(np.float32)
    parts = [np.ascontiguousarray(array[..., i : i + 4]) for i in range(0, array.shape[2], 4)]  # at most 4 channels

    def peer() -> np.ndarray:
        x, y = columns + dx, rows + dy
        found = [cv2.remap(part, x, y, cv2.INTER_LINEAR).reshape(*x.shape, -1) for part in parts]
        return np.concatenate(found, axis=-1).transpose(2, 0, 1)[None]

    return Pair(ours=lambda: backward_warp(feat, flow), peer=peer, rtol=0, atol=5e-2)


def _reads(size: str, side: int, stride: int) -> Pair:
    """Five reads of the second frame: the warp at 1/2 and all pairs at 1/stride, their preparation included."""
    dim, side = (64, side) if size == "full" else (4, 64 if stride == 4 else 128)
    generator = torch.Generator().manual_seed(0)
    half = [torch.randn(1, dim, side // 2, side // 2, generator=generator) for _ in range(2)]
    coarse = [torch.nn.functional.avg_pool2d(x, stride // 2) for x in half]
    flow = 3 * torch.randn(1, 2, side // 2, side // 2, generator=generator)
    small = torch.nn.functional.avg_pool2d(flow, stride // 2)
    warp, volume = Warp(dim), AllPairs(dim)

    @torch.no_grad()
    def ours() -> Tensor:
        state = warp.prepare(*half)
        reads = [warp(state, flow) for _ in range(5)]
        return torch.tensor(len(reads))

    @torch.no_grad()
    def peer() -> Tensor:
        state = volume.prepare(*coarse)
        reads = [volume(state, small) for _ in range(5)]
        return torch.tensor(len(reads))

    return Pair(ours=ours, peer=peer)


def index_eighth(size: str = "full") -> Pair:
    """Reading at 1/2 by warping, and at 1/8 in all pairs, for 512x512 pixels."""
    return _reads(size, 512, 8)


def index_quarter(size: str = "full") -> Pair:
    """Reading at 1/2 by warping, and at 1/4 in all pairs, for 256x256 pixels."""
    return _reads(size, 256, 4)
