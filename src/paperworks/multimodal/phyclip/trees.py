"""Finite metric spaces to embed, products of trees and cubes, and the embedding."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .spaces import _Space

Array = npt.NDArray[np.float64]


def wordnet_children(folder: str | Path, root: str) -> dict[str, list[str]]:
    """The hyponyms of every noun synset below a root, by offset.

    Args:
        folder: Folder with WordNet's `index.noun` and `data.noun`.
        root: A lemma; its first sense is the root, the first key of the result.

    Raises:
        ValueError: When the lemma is no noun of WordNet.
    """
    folder = Path(folder)
    start = ""
    with (folder / "index.noun").open(encoding="utf-8") as index:
        for line in index:
            if line.startswith(f"{root} "):
                fields = line.split()
                start = fields[-int(fields[2])]
    if not start:
        raise ValueError(f"root = {root!r}: it is no noun of WordNet")
    lines = (folder / "data.noun").read_text(encoding="utf-8").splitlines()
    by_offset = {line[:8]: line for line in lines}

    def below(offset: str) -> list[str]:
        fields = by_offset[offset].partition(" | ")[0].split()
        pointers = fields[5 + 2 * int(fields[3], 16) :]
        return [there for symbol, there in zip(pointers[::4], pointers[1::4], strict=True) if symbol == "~"]

    children: dict[str, list[str]] = {}
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in children:  # some have two hypernyms
            children[node] = below(node)
            waiting += children[node]
    return children


def grow_tree(children: Mapping[str, Sequence[str]], count: int, rng: np.random.Generator) -> list[int]:
    """A random connected subtree of `count` nodes, grown from the root by one random child after another.

    Args:
        children: Of every node; the root is the first key. A node with two parents belongs to the one that is met.
        count: Number of nodes.
        rng: Random numbers.

    Returns:
        The parent of each node by its number, -1 for the root, which is node 0.

    Raises:
        ValueError: When there are fewer nodes.
    """
    root = next(iter(children))
    parents, met = [-1], {root}
    border = [(child, 0) for child in children[root]]
    while len(parents) < count:
        if not border:
            raise ValueError(f"count = {count}: there are only {len(parents)} nodes below the root")
        child, parent = border.pop(int(rng.integers(len(border))))
        if child not in met:
            met.add(child)
            parents.append(parent)
            border += [(c, len(parents) - 1) for c in children[child]]
    return parents


def tree_distances(parents: Sequence[int]) -> Array:
    """Numbers of edges between the nodes (n, n) of a tree given by each node's parent; a parent comes before."""
    n = len(parents)
    d = np.zeros((n, n))
    for node, parent in enumerate(parents):
        if parent >= 0:
            d[node, :node] = d[:node, node] = d[parent, :node] + 1
    return d


def cube_distances(n: int) -> Array:
    """Hamming distances (2^n, 2^n) of the Boolean lattice {0, 1}^n."""
    bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    return (bits[:, None] != bits[None]).sum(-1).astype(float)


class Embedded(NamedTuple):
    """How well a finite metric space was embedded.

    Attributes:
        points: The points (n, k, d).
        scale: What distances were multiplied by.
        loss: Mean squared relative error over the pairs.
        mean: Mean relative error |scale D / T - 1|.
        worst: Largest over smallest of D / T: the multiplicative distortion, 1 for an isometry.
    """

    points: Tensor
    scale: float
    loss: float
    mean: float
    worst: float


def embed_metric(
    space: _Space,
    target: Array,
    *,
    generator: torch.Generator,
    steps: int = 1500,
    lr: float = 0.03,
    batch: int = 96,
    start: float = 0.3,
) -> Embedded:
    """Place points so that their distances, times a learned scale, are those of a finite metric space.

    Adam on the mean squared relative error over random subsets of the points; the rate falls by half a cosine.

    Args:
        space: The space; its curvatures are learned with the points.
        target: Distances T (n, n), above 0 off the diagonal.
        generator: For the start and the subsets.
        steps: Steps of Adam.
        lr: Its learning rate.
        batch: Points of a step.
        start: Standard deviation of the tangent vectors at the start.
    """
    n = len(target)
    T = torch.as_tensor(target, dtype=torch.float32)
    v = (start * torch.randn(n, space.k, space.d, generator=generator)).requires_grad_()
    log_scale = torch.zeros((), requires_grad=True)
    learned = [p for name, p in space.named_parameters() if p.requires_grad and "gain" not in name]
    optimiser = torch.optim.Adam([v, log_scale, *learned], lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: 0.5 * (1 + math.cos(math.pi * t / steps)))

    def error(rows: Tensor) -> Tensor:
        x = space.lift(v[rows])
        ratio = log_scale.exp() * space.dist(x, x) / T[rows][:, rows].clamp(min=1e-9)
        off = ~torch.eye(len(rows), dtype=torch.bool)
        return ratio[off]

    for _ in range(steps):
        rows = torch.randperm(n, generator=generator)[:batch]
        loss = (error(rows) - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        ratio = error(torch.arange(n))
        points = space.lift(v)
    return Embedded(
        points=points,
        scale=float(log_scale.detach().exp()),
        loss=float((ratio - 1).square().mean()),
        mean=float((ratio - 1).abs().mean()),
        worst=float(ratio.max() / ratio.min()),
    )
