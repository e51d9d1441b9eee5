"""What one asks a simulation: momenta, distances, overlap, restitution."""

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from .state import State


def momentum(state: State) -> Tensor:
    """Linear momentum (d,).

    Args:
        state: All particles.
    """
    return (state.mass[:, None] * state.v).sum(0)


def angular_momentum(state: State) -> Tensor:
    """Angular momentum about the origin, (1,) in the plane and (3,) in space, with the affine motion that APIC carries.

    Args:
        state: All particles.
    """
    # sum m (x v^T - v x^T) + m dx^2/4 (C^T - C): the axial vector of an antisymmetric matrix.
    spin = (state.mass[:, None, None] * (state.x[:, :, None] * state.v[:, None, :])).sum(0)
    spin = spin + (state.mass[:, None, None] * state.dx**2 / 4 * state.C.mT).sum(0)
    spin = spin - spin.mT
    if state.dim == 2:
        return spin[0, 1][None]
    return torch.stack([spin[1, 2], spin[2, 0], spin[0, 1]])


def _distances(state: State, a: int, b: int) -> Tensor:
    """From each particle of body a to the nearest of body b."""
    ours, theirs = (state.x[state.body == k].detach().cpu().numpy() for k in (a, b))
    if not len(ours) or not len(theirs):
        raise ValueError(f"body {a if not len(ours) else b} has no particles in this state")
    return torch.from_numpy(cKDTree(theirs).query(ours)[0]).to(state.x.dtype)


def gap(state: State, a: int = 0, b: int = 1) -> float:
    """Least distance of a particle of body a and one of body b, in units of length.

    Args:
        state: All particles.
        a: Number of a body.
        b: Number of another.
    """
    return float(_distances(state, a, b).min())


def penetration(state: State, a: int = 0, b: int = 1) -> float:
    """Share of the particles of body a that lie within body b.

    A particle lies within b when one of b's is nearer than sqrt(d)/2 spacings, which holds everywhere in a square
    lattice of b's.

    Args:
        state: All particles.
        a: Number of a body.
        b: Number of another.
    """
    spacing = float(state.volume[state.body == b].mean()) ** (1 / state.dim)
    return float((_distances(state, a, b) < spacing * state.dim**0.5 / 2).double().mean())


def restitution(before: State, after: State, a: int = 0, b: int = 1) -> float:
    """Speed at which the centres of mass part over the speed at which they met, along the initial relative velocity.

    Args:
        before: All particles before a collision.
        after: All particles after it.
        a: Number of a body.
        b: Number of another.
    """

    def relative(state: State) -> Tensor:
        means = []
        for k in (a, b):
            rows = state.body == k
            means.append((state.mass[rows, None] * state.v[rows]).sum(0) / state.mass[rows].sum())
        return means[0] - means[1]

    first, last = relative(before), relative(after)
    square = float(first @ first)
    if square == 0:
        raise ValueError("the bodies had no relative velocity before: restitution has no meaning")
    return -float(first @ last) / square
