"""Concepts as profiles over attributes, and as regions: inclusion, equivalence, meet and join.

    (5)  R(Y)     = {v : v.d_m >= tau_m for all m in Y}                      the region of a set of attributes Y
    (6)  pi_C(m)  = mean over members v of C of (v.d_m - tau_m), then the vector divided by its length
    (7)  Inc(A <= B) = sum_m softplus(pi_B(m)) sigmoid(pi_A(m)) / sum_m softplus(pi_B(m))
    (8)  soft equivalence: the harmonic mean of Inc(A <= B) and Inc(B <= A)

(Equation numbers are ours. In canonical form, after `canonical_shift`, every tau_m is 0.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from .context import FormalContext

Array = npt.NDArray[np.float64]
MODES = ("paper", "fca", "region")


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """An intersection of half-spaces through the origin or elsewhere (5).

    Attributes:
        attributes: Indices of the attributes Y.
        directions: Of all attributes, of shape (attributes, features).
        thresholds: Of all attributes, of shape (attributes,).
    """

    attributes: frozenset[int]
    directions: Array
    thresholds: Array

    def contains(self, V: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which embeddings (objects, features) lie inside, of shape (objects,)."""
        rows = sorted(self.attributes)
        margins = _embeddings(V, self.directions) @ self.directions[rows].T - self.thresholds[rows]
        return np.asarray((margins >= 0).all(axis=1))

    def _with(self, attributes: frozenset[int]) -> Region:
        return dataclasses.replace(self, attributes=attributes)


@dataclasses.dataclass(frozen=True, eq=False)
class ConceptProfile:
    """How far the members of a concept lie inside each half-space, on average (6).

    Attributes:
        values: One number for each attribute, of shape (attributes,); of length 1 when made from members.
        name: A label for people.
    """

    values: Array
    name: Hashable = None

    def __post_init__(self) -> None:
        """Check the shape."""
        values = np.asarray(self.values, dtype=float)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError(f"values of shape {values.shape}; allowed is (attributes,), all finite")
        object.__setattr__(self, "values", values)

    @classmethod
    def from_margins(cls, margins: npt.ArrayLike, name: Hashable = None, normalize: bool = True) -> ConceptProfile:
        """Make the profile of a concept from the margins v.d_m - tau_m of its members.

        Args:
            margins: Of shape (members, attributes).
            name: A label for people.
            normalize: Whether to divide by the length; a profile of zeros stays as it is.
        """
        margins = np.asarray(margins, dtype=float)
        if margins.ndim != 2 or not len(margins):
            raise ValueError(
                f"margins has shape {margins.shape}; allowed is (members, attributes) with a member or more"
            )
        mean = margins.mean(axis=0)
        length = float(np.linalg.norm(mean))
        return cls(mean / length if normalize and length > 0 else mean, name)

    def intent(self, threshold: float = 0.0) -> frozenset[int]:
        """Return the indices of the attributes whose value is at least `threshold`."""
        return frozenset(np.flatnonzero(self.values >= threshold).tolist())


def _embeddings(V: npt.ArrayLike, directions: Array) -> Array:
    V = np.asarray(V, dtype=float)
    if V.ndim != 2 or V.shape[1] != directions.shape[1]:
        raise ValueError(f"V has shape {V.shape}; allowed is (objects, {directions.shape[1]})")
    if not np.isfinite(V).all():
        raise ValueError("V has entries that are not finite; allowed are numbers")
    return V


Concept = TypeVar("Concept", ConceptProfile, Region)


def _weights(x: Array) -> Array:
    """softplus(x), each row up to a factor that keeps its sum above 0 where softplus itself is too small for it."""
    top = np.minimum(x.max(axis=-1, keepdims=True, initial=-np.inf), 0.0)
    # softplus(x) = exp(x) (1 - exp(x)/2 + ...): below -40 the exponential alone is exact, and it may be shifted.
    return np.where(top < -40, np.exp(np.minimum(x - top, 0.0)), np.logaddexp(0.0, x))


def _values(profile: ConceptProfile | npt.ArrayLike) -> Array:
    return profile.values if isinstance(profile, ConceptProfile) else np.asarray(profile, dtype=float)


def soft_inclusion(
    A: ConceptProfile | npt.ArrayLike, B: ConceptProfile | npt.ArrayLike, temperature: float = 1.0
) -> Any:
    """Return to what degree A lies below B (7): A has what B is made of.

    Profiles of length 1 have entries of about 1/sqrt(attributes), where a sigmoid is near 1/2: all inclusions then lie
    close to 1/2. A temperature below 1 spreads them.

    Args:
        A: A profile, or an array of profiles of shape (..., attributes).
        B: The same; leading axes broadcast.
        temperature: Profiles are divided by it; 1 is the paper's.

    Returns:
        Numbers between 0 and 1, of the shape of the leading axes.
    """
    if not temperature > 0:
        raise ValueError(f"temperature={temperature!r}; allowed is above 0")
    a, b = _values(A) / temperature, _values(B) / temperature
    for name, values in (("A", a), ("B", b)):
        if not (values.ndim and values.shape[-1]):
            raise ValueError(f"{name} has shape {values.shape}; allowed is (..., attributes) with an attribute or more")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"A and B have {a.shape[-1]} and {b.shape[-1]} attributes; allowed are equally many")
    weight = _weights(b)
    total = (weight * expit(a)).sum(axis=-1) / weight.sum(axis=-1)
    return float(total) if np.ndim(total) == 0 else total


def soft_equivalence(
    A: ConceptProfile | npt.ArrayLike, B: ConceptProfile | npt.ArrayLike, temperature: float = 1.0
) -> Any:
    """Return the harmonic mean of the inclusions of A in B and of B in A (8).

    Args:
        A: As in `soft_inclusion`.
        B: As there.
        temperature: As there.
    """
    there, back = soft_inclusion(A, B, temperature), soft_inclusion(B, A, temperature)
    total = np.asarray(there + back)
    mean = 2 * there * (back / np.where(total > 0, total, 1.0))  # 0 where neither has anything of the other
    return float(mean) if np.ndim(mean) == 0 else mean


def meet(A: Concept, B: Concept, mode: str = "paper") -> Concept:
    """Compose what is below both.

    Args:
        A: A profile, or for "region" a `Region`.
        B: The same.
        mode: "paper": elementwise minimum of the profiles. "fca": elementwise maximum, because a meet has every
            attribute of both. "region": R(Y_A u Y_B), which is the intersection of the regions.

    Returns:
        A profile, not divided by its length again; for "region" a `Region`.
    """
    return _compose(A, B, mode, {"paper": np.minimum, "fca": np.maximum}, frozenset.union)


def join(A: Concept, B: Concept, mode: str = "paper") -> Concept:
    """Compose what is above both.

    Args:
        A: A profile, or for "region" a `Region`.
        B: The same.
        mode: "paper": elementwise maximum of the profiles. "fca": elementwise minimum, because a join has the
            attributes that are common to both. "region": R(Y_A n Y_B). For half-spaces through the origin it holds the
            conic hull of both regions, and is that hull if the directions of Y_A u Y_B are linearly independent; of
            dependent ones it may be larger.

    Returns:
        A profile, not divided by its length again; for "region" a `Region`.
    """
    return _compose(A, B, mode, {"paper": np.maximum, "fca": np.minimum}, frozenset.intersection)


def _compose(A: Any, B: Any, mode: str, on_profiles: dict[str, Any], on_sets: Any) -> Any:
    if mode not in MODES:
        raise ValueError(f"mode={mode!r}; allowed are {', '.join(map(repr, MODES))}")
    kind = Region if mode == "region" else ConceptProfile
    for name, value in (("A", A), ("B", B)):
        if not isinstance(value, kind):
            raise TypeError(f"{name} is a {type(value).__name__}; mode={mode!r} takes a {kind.__name__}")
    if mode == "region":
        if A.directions is not B.directions and not np.array_equal(A.directions, B.directions):
            raise ValueError("A and B are regions of different directions; allowed are those of one space")
        return A._with(on_sets(A.attributes, B.attributes))
    if A.values.shape != B.values.shape:
        raise ValueError(f"A and B have {len(A.values)} and {len(B.values)} attributes; allowed are equally many")
    return ConceptProfile(on_profiles[mode](A.values, B.values))


class Match(NamedTuple):
    """A concept found by `HalfSpaceSpace.query`.

    Attributes:
        name: The concept.
        score: Its soft equivalence to what was asked for.
    """

    name: Hashable
    score: float


class HalfSpaceSpace:
    """Embeddings seen through fitted half-spaces: a context, and a vocabulary of concepts to search.

    Args:
        directions: A fitted `AttributeDirections`, or anything with `directions_` of shape (attributes, features) and
            `thresholds_` of shape (attributes,).
        attributes: Labels of the attributes; 0, 1, ... when left out.
        temperature: Of `soft_inclusion`.
    """

    def __init__(self, directions: Any, attributes: Sequence[Hashable] | None = None, temperature: float = 1.0) -> None:
        self.directions = np.asarray(directions.directions_, dtype=float)
        self.thresholds = np.asarray(directions.thresholds_, dtype=float)
        self.attributes = tuple(range(len(self.directions))) if attributes is None else tuple(attributes)
        if len(self.attributes) != len(self.directions):
            raise ValueError(
                f"attributes has {len(self.attributes)} labels; allowed is one for each of {len(self.directions)}"
            )
        self.temperature = temperature
        self._names: list[Hashable] = []
        self._profiles: list[Array] = []

    def __len__(self) -> int:
        return len(self._names)

    def margins(self, V: npt.ArrayLike) -> Array:
        """Return v.d_m - tau_m of embeddings (objects, features), of shape (objects, attributes)."""
        return np.asarray(_embeddings(V, self.directions) @ self.directions.T - self.thresholds)

    def profile(self, members: npt.ArrayLike, name: Hashable = None) -> ConceptProfile:
        """Return the profile (6) of a concept with these member embeddings, of shape (members, features)."""
        return ConceptProfile.from_margins(self.margins(members), name)

    def region(self, profile: ConceptProfile, threshold: float = 0.0) -> Region:
        """Return R(Y) with Y the attributes whose value in a profile is at least `threshold`."""
        return Region(profile.intent(threshold), self.directions, self.thresholds)

    def context(self, V: npt.ArrayLike, objects: Sequence[Hashable] | None = None) -> FormalContext:
        """Return the formal context of embeddings (objects, features): who lies in which half-space."""
        return FormalContext(self.margins(V) >= 0, objects, self.attributes)

    def add(self, name: Hashable, members: npt.ArrayLike) -> ConceptProfile:
        """Put a concept into the vocabulary and return its profile."""
        found = self.profile(members, name)
        self._names.append(name)
        self._profiles.append(found.values)
        return found

    def query(self, profile: ConceptProfile, k: int = 10, exclude: Sequence[Hashable] = ()) -> list[Match]:
        """Return the k concepts of the vocabulary nearest to a profile by soft equivalence (8), best first.

        Args:
            profile: Such as `meet` or `join` return.
            k: Most answers.
            exclude: Names that are not wanted, such as the two that were composed.
        """
        if k < 1:
            raise ValueError(f"k={k}; allowed is 1 or more")
        if isinstance(exclude, str):
            raise ValueError(
                f"exclude={exclude!r} is one text; allowed is a collection of names, such as [{exclude!r}]"
            )
        unwanted = set(exclude)
        rows = [i for i, name in enumerate(self._names) if name not in unwanted]
        if not rows:
            return []
        scores = soft_equivalence(np.stack([self._profiles[i] for i in rows]), profile, self.temperature)
        order = np.argsort(-scores, kind="stable")[:k]
        return [Match(self._names[rows[i]], float(scores[i])) for i in order]
