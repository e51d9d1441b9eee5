"""Which particles have broken, and into how many pieces a body has fallen."""

import dataclasses

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

from .state import State


def fracture_mask(state: State, threshold: float = 0.0) -> Tensor:
    """Whether a particle has broken: a brittle material with alpha above a threshold, by default without strength.

    Args:
        state: All particles.
        threshold: alpha beyond which a particle counts as broken; 0 is where p0 is at its floor (the paper's value is
            not known to us).

    Returns:
        (n,), bool.
    """
    return state.brittle & (state.alpha > threshold)


@dataclasses.dataclass(frozen=True)
class Fragments:
    """Connected pieces.

    Args:
        count: Number of pieces with enough particles.
        labels: Piece of each particle (n,), from 0, largest first; -1 for dust.
    """

    count: int
    labels: Tensor


def fragments(state: State, reach: float = 1.5, least: int = 3, *, intact_only: bool = False) -> Fragments:
    """Connected components of each body, particles being joined up to a distance.

    Args:
        state: All particles, of one body or of several; those of two bodies are never joined.
        reach: Distance up to which two particles are joined, in initial spacings (volume^(1/d)), > 0.
        least: Particles that a piece must have at least; smaller ones are dust.
        intact_only: Join unbroken particles only, so that a crack divides a body before it opens; broken ones are dust.
    """
    if not reach > 0:
        raise ValueError(f"reach must be > 0, got {reach}")
    n = len(state.x)
    labels = np.full(n, -1)
    found: list[np.ndarray] = []
    broken = fracture_mask(state).cpu().numpy()
    body = state.body.cpu().numpy()
    for k in np.unique(body):
        rows = np.flatnonzero((body == k) & ~broken if intact_only else body == k)
        if not len(rows):
            continue
        spacing = float(state.volume[torch.from_numpy(rows)].mean()) ** (1 / state.dim)
        pairs = cKDTree(state.x[torch.from_numpy(rows)].detach().cpu().numpy()).query_pairs(
            reach * spacing, output_type="ndarray"
        )
        joined = coo_matrix((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(rows), len(rows)))
        count, piece = connected_components(joined, directed=False)
        found += [rows[piece == i] for i in range(count)]
    kept = sorted((piece for piece in found if len(piece) >= least), key=len, reverse=True)
    for number, piece in enumerate(kept):
        labels[piece] = number
    return Fragments(len(kept), torch.from_numpy(labels))
