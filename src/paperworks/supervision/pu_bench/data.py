"""Positive-unlabeled data from data with all labels, with exact shares."""

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from .metrics import Setting, check_prior, check_setting


@dataclasses.dataclass(frozen=True)
class PUData:
    """A PU sample with the labels that a learner must not see.

    Attributes:
        x: Features, shape (n_p + n_u, ...): labelled rows first.
        y: 1 for labelled rows, 0 for unlabeled ones, shape (n_p + n_u,).
        hidden: True class, 1 or 0, shape (n_p + n_u,).
        rows: Row numbers in the data that were given, shape (n_p + n_u,).
        prior: Share of positives in the population.
        setting: "two-sample" or "one-sample".
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.int64]
    hidden: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    prior: float
    setting: Setting

    @property
    def positive(self) -> npt.NDArray[Any]:
        """P: features of the labelled rows."""
        return self.x[self.y == 1]

    @property
    def unlabeled(self) -> npt.NDArray[Any]:
        """U: features of the unlabeled rows."""
        return self.x[self.y == 0]

    @property
    def unlabeled_share(self) -> float:
        """Share of positives among the unlabeled rows."""
        return float(self.hidden[self.y == 0].mean())


def make_pu(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    positive: Collection[Any],
    prior: float,
    n_p: int,
    n_total: int,
    setting: Setting,
    rng: np.random.Generator | int | None = None,
) -> PUData:
    """Draw P and U with exact shares, as the benchmark's generator does.

    One-sample: draw `n_total` rows with the share `prior` of positives, label `n_p` of the positives; U is the rest.
    Two-sample: draw `n_p` positives as P and, independently and with the share `prior`, `n_total - n_p` rows as U; a
    row can come into both, never twice into one. Every class of a side gives equally many rows (the remainder goes
    to classes chosen at random).

    Args:
        X: Features, shape (n_samples, ...).
        y: Classes, shape (n_samples,).
        positive: The classes that count as positive.
        prior: Share of positives in the population, in (0, 1).
        n_p: Number of labelled rows.
        n_total: Number of labelled and unlabeled rows together.
        setting: "two-sample" or "one-sample".
        rng: Generator, or a seed for one.

    Returns:
        Features, PU labels and hidden labels; labelled rows first, each part in random order.

    Raises:
        ValueError: When a share is impossible or a class has too few rows; the message says which.
    """
    check_prior(prior)
    check_setting(setting)
    rng = np.random.default_rng(rng)
    features, classes = np.asarray(X), np.asarray(y)
    if len(features) != len(classes):
        raise ValueError(f"X and y must have the same length, got {len(features)} and {len(classes)}")
    names = np.unique(classes)
    sides = names[np.isin(names, list(positive))], names[~np.isin(names, list(positive))]
    if len(sides[0]) < len(set(positive)):
        raise ValueError(f"positive names classes that y does not have: {sorted(set(positive) - set(names.tolist()))}")
    if not len(sides[1]):
        raise ValueError("positive names every class of y: no negatives are left")
    if not 0 < n_p < n_total:
        raise ValueError(f"n_p must lie between 0 and n_total = {n_total}, got {n_p}")
    pools = {name: rng.permutation(np.flatnonzero(classes == name)) for name in names.tolist()}
    if setting == "one-sample":
        in_sample = round(prior * n_total)
        if n_p > in_sample:
            raise ValueError(
                f"n_p = {n_p} labels exceed the {in_sample} positives of a sample of {n_total} at prior {prior}: "
                "take n_p <= prior * n_total"
            )
        shares = _shares(in_sample, sides[0], rng)
        labels = _shares(n_p, sides[0], rng, limit=shares)
        p = _take(pools, labels)
        pools = {name: rows[labels.get(name, 0) :] for name, rows in pools.items()}
        u_shares = {name: count - labels[name] for name, count in shares.items()}
    else:
        p = _take(pools, _shares(n_p, sides[0], rng))
        pools = {name: rng.permutation(rows) for name, rows in pools.items()}
        u_shares = _shares(round(prior * (n_total - n_p)), sides[0], rng)
    negatives = n_total - n_p - sum(u_shares.values())
    u = _take(pools, u_shares | _shares(negatives, sides[1], rng))
    rows = np.concatenate([rng.permutation(p), rng.permutation(u)])
    labelled = np.arange(n_total) < n_p
    hidden = np.isin(classes[rows], sides[0])
    return PUData(features[rows], labelled.astype(np.int64), hidden.astype(np.int64), rows, float(prior), setting)


def _shares(
    count: int, names: npt.NDArray[Any], rng: np.random.Generator, limit: dict[Any, int] | None = None
) -> dict[Any, int]:
    """Split a count evenly over classes; the remainder goes to random ones that have room."""
    even, rest = divmod(count, len(names))
    room = [name for name in names.tolist() if limit is None or limit[name] > even]
    extra = set(rng.permutation(len(room))[:rest].tolist())
    lucky = {name for i, name in enumerate(room) if i in extra}
    return {name: even + (name in lucky) for name in names.tolist()}


def _take(pools: dict[Any, npt.NDArray[np.int64]], counts: dict[Any, int]) -> npt.NDArray[np.int64]:
    for name, count in counts.items():
        if count > len(pools[name]):
            raise ValueError(f"class {name!r} has {len(pools[name])} rows left, {count} are needed: lower n_total")
    return np.concatenate([pools[name][:count] for name, count in counts.items()])
