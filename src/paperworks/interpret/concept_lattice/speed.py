"""Ours beside a peer on the same inputs: times are compared after the results."""

from typing import Any

import numpy as np
import numpy.typing as npt

from paperworks.claims.speed import Pair

from .context import FormalContext
from .directions import discriminants
from .lattice import ConceptLattice


def _lattice_pair(table: npt.NDArray[np.bool_], algorithm: str = "in_close") -> Pair:
    """Build all concepts and the covering relation; the outcome is a table of extents, intents and lower covers."""
    import concepts

    objects, attributes = [f"g{i}" for i in range(table.shape[0])], [f"m{i}" for i in range(table.shape[1])]

    def ours() -> npt.NDArray[np.float64]:
        lattice = ConceptLattice.from_context(FormalContext(table, objects, attributes), algorithm)
        return _as_table(lattice.extents, lattice.intents, lattice.lower_covers())

    def peer() -> npt.NDArray[np.float64]:
        lattice = list(concepts.Context(objects, attributes, table.tolist()).lattice)
        extents = [_bits(concept._extent) for concept in lattice]
        intents = [_bits(concept._intent) for concept in lattice]
        place = {extent: i for i, extent in enumerate(extents)}
        covers = [[place[_bits(lower._extent)] for lower in concept.lower_neighbors] for concept in lattice]
        return _as_table(extents, intents, covers)

    return Pair(ours=ours, peer=peer, rtol=0, atol=0)


def _bits(bitset: Any) -> int:
    return int(bitset)


def _as_table(extents: list[int], intents: list[int], covers: Any) -> npt.NDArray[np.float64]:
    """One row a concept, sorted by extent: size of extent and intent, hashes of both, number and hash of covers."""
    rows = []
    for extent, intent, below in zip(extents, intents, covers, strict=True):
        lower = sum(extents[j] % 1_000_003 for j in below)
        rows.append((extent, (extent.bit_count(), extent % 1_000_003, intent % 1_000_003, len(below), lower)))
    return np.array([row for _, row in sorted(rows)], dtype=float)


def zoo_table() -> npt.NDArray[np.bool_]:
    """The 101 animals of UCI Zoo by 15 traits."""
    from paperworks.kit.assets import load_zoo

    zoo = load_zoo()
    keep = [m for m, name in enumerate(zoo.attributes) if name != "legs"]
    return zoo.features[:, keep].astype(bool)


def zoo_lattice(size: str = "full") -> Pair:
    """Zoo: 238 concepts; the first 30 animals when small."""
    table = zoo_table()
    return _lattice_pair(table if size == "full" else table[:30])


def random_lattice(size: str = "full") -> Pair:
    """200 objects by 40 attributes, a fifth filled: about 5,000 concepts; 30 by 12 when small."""
    shape = (200, 40) if size == "full" else (30, 12)
    return _lattice_pair(np.random.default_rng(0).random(shape) < 0.2)


def directions(size: str = "full") -> Pair:
    """200 linear attributes of 350 embeddings of width 256, and a loop of scikit-learn's LDA over them.

    Both shrink each class covariance by Ledoit and Wolf's estimate. The peer weighs the two by equal priors, so that
    its coefficients are twice ours; they are halved.
    """
    from sklearn.covariance import LedoitWolf
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    n, d, m = (350, 256, 200) if size == "full" else (40, 60, 3)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) / np.sqrt(d)
    score = X @ rng.normal(size=(d, m)) / np.sqrt(d) + rng.normal(size=(n, m))
    table = score > np.quantile(score, rng.uniform(0.4, 0.9, m), axis=0).diagonal()

    def peer() -> npt.NDArray[np.float64]:
        models = (
            LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf(), priors=[0.5, 0.5])
            for _ in range(m)
        )
        return np.stack([model.fit(X, y).coef_[0] / 2 for model, y in zip(models, table.T, strict=True)])

    return Pair(ours=lambda: discriminants(X, table, reg=0.0), peer=peer, rtol=1e-6, atol=1e-8)
