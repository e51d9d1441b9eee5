"""What the experiments compare: the method in a frame, and the baselines it has to beat.

Three interfaces. A *probe* has ``fit(V, I)``, ``predict(V)`` and ``decision_function(V)``. An *inclusion* has
``fit(V, I)`` and ``score(lower, upper)``, one number for each pair of concepts. A *composer* has ``fit(V, I)``,
``index(candidates)`` and ``score(operation, first, second)``, one row for each pair of concepts and one column for each
candidate. V are embeddings (objects, features), I labels (objects, attributes), concepts are lists of `Concept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .directions import AttributeDirections
from .profiles import ConceptProfile, join, meet, soft_equivalence, soft_inclusion

Array = npt.NDArray[np.float64]


class Concept(NamedTuple):
    """A set of objects, as far as it is shown.

    Attributes:
        members: Embeddings of some of its members, of shape (members, features).
        size: Number of all its members.
    """

    members: Array
    size: int


# --- probes ----------------------------------------------------------------------------------------------------------


class Frame:
    """Whitens or not, takes off the mean of the training rows and divides by one number, their root mean square.

    The "mean" estimator needs the origin to be the mean; one scale makes a ridge mean the same in every frame.
    """

    def __init__(self, whitening: Any, whiten: bool = True) -> None:
        self.whitening = whitening if whiten else None

    def fit(self, V: Array) -> Frame:
        """Learn mean and scale."""
        Z = self._white(V)
        self.mean = Z.mean(axis=0)
        self.scale = float(np.sqrt(((Z - self.mean) ** 2).mean()))
        return self

    def __call__(self, V: Array) -> Array:
        """Bring rows into the frame."""
        return np.asarray((self._white(V) - self.mean) / self.scale)

    def _white(self, V: Array) -> Array:
        return V if self.whitening is None else np.asarray(self.whitening.transform(V))


class Probe:
    """Half-spaces in a frame; with `shuffle` they were shown the labels of other objects, whole rows of I permuted."""

    def __init__(
        self,
        frame: Any,
        random_state: int,
        estimator: str = "lda",
        whiten: bool = True,
        reg: float = 1e-2,
        shuffle: bool = False,
    ) -> None:
        self.frame = Frame(frame, whiten)
        self.model = AttributeDirections(estimator, reg=reg, random_state=random_state)
        self.rng = np.random.default_rng(random_state)
        self.shuffle = shuffle

    def fit(self, V: Array, I: npt.NDArray[Any]) -> Probe:  # noqa: E741
        """Learn the frame, then the half-spaces."""
        labels = I[self.rng.permutation(len(I))] if self.shuffle else I
        self.model.fit(self.frame.fit(V)(V), labels)
        return self

    def predict(self, V: Array) -> npt.NDArray[Any]:
        """Who has what."""
        return self.model.predict(self.frame(V))

    def decision_function(self, V: Array) -> Array:
        """Margins."""
        return self.model.decision_function(self.frame(V))


class Prevalence:
    """Predicts the likelier class of each attribute, whatever the embedding: it needs nothing that arms are given."""

    def __init__(self, frame: Any, random_state: int) -> None:
        pass

    def fit(self, V: Array, I: npt.NDArray[Any]) -> Prevalence:  # noqa: E741
        """Count."""
        self.share = np.asarray(I, dtype=float).mean(axis=0)
        return self

    def predict(self, V: Array) -> npt.NDArray[Any]:
        """The same for all rows."""
        return (self.decision_function(V) >= 0).astype(int)

    def decision_function(self, V: Array) -> Array:
        """The same for all rows."""
        return np.tile(self.share - 0.5, (len(V), 1))


# --- inclusion -------------------------------------------------------------------------------------------------------


def _means(rows: Any, concepts: Sequence[Concept]) -> list[Array]:
    """`rows` of all members at once, then cut by concept."""
    ends = np.cumsum([len(c.members) for c in concepts])[:-1]
    return list(np.split(rows(np.concatenate([c.members for c in concepts])), ends))


class ProfileInclusion:
    """Soft inclusion of profiles over the half-spaces of a probe; takes the options of `Probe`."""

    def __init__(self, frame: Any, random_state: int, temperature: float = 1.0, **options: Any) -> None:
        self.probe = Probe(frame, random_state, **options)
        self.temperature = temperature

    def fit(self, V: Array, I: npt.NDArray[Any]) -> ProfileInclusion:  # noqa: E741
        """Fit the half-spaces."""
        self.probe.fit(V, I)
        return self

    def profiles(self, concepts: Sequence[Concept]) -> Array:
        """Of the members that are shown, of shape (concepts, attributes)."""
        margins = _means(self.probe.decision_function, concepts)
        return np.stack([ConceptProfile.from_margins(m).values for m in margins])

    def score(self, lower: Sequence[Concept], upper: Sequence[Concept]) -> Array:
        """Inc(lower <= upper)."""
        return np.asarray(soft_inclusion(self.profiles(lower), self.profiles(upper), self.temperature))


class CosineInclusion:
    """Cosine of the two centroids. It is symmetric: it cannot tell a pair from its reverse."""

    def __init__(self, frame: Any, random_state: int, whiten: bool = False) -> None:
        self.frame = Frame(frame, whiten)

    def fit(self, V: Array, I: npt.NDArray[Any]) -> CosineInclusion:  # noqa: E741
        """Learn the origin."""
        self.frame.fit(V)
        return self

    def centroids(self, concepts: Sequence[Concept]) -> Array:
        """Of length 1, of shape (concepts, features)."""
        means = np.stack([rows.mean(axis=0) for rows in _means(self.frame, concepts)])
        return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))

    def score(self, lower: Sequence[Concept], upper: Sequence[Concept]) -> Array:
        """The cosines."""
        return np.asarray((self.centroids(lower) * self.centroids(upper)).sum(axis=1))


class SizeInclusion:
    """The larger set is taken for the upper one, whatever is in them: it needs nothing that arms are given."""

    def __init__(self, frame: Any, random_state: int) -> None:
        pass

    def fit(self, V: Array, I: npt.NDArray[Any]) -> SizeInclusion:  # noqa: E741
        """Nothing to learn."""
        return self

    def score(self, lower: Sequence[Concept], upper: Sequence[Concept]) -> Array:
        """Log of the ratio of the sizes."""
        return np.array([np.log(b.size / a.size) for a, b in zip(lower, upper, strict=True)])


# --- composition -----------------------------------------------------------------------------------------------------


class ProfileComposer:
    """Composes two profiles and ranks by soft equivalence; takes the options of `Probe`."""

    def __init__(self, frame: Any, random_state: int, mode: str, **options: Any) -> None:
        self.inclusion = ProfileInclusion(frame, random_state, **options)
        self.mode = mode

    def fit(self, V: Array, I: npt.NDArray[Any]) -> ProfileComposer:  # noqa: E741
        """Fit the half-spaces."""
        self.inclusion.fit(V, I)
        return self

    def index(self, candidates: Sequence[Concept]) -> None:
        """Keep their profiles."""
        self.candidates = self.inclusion.profiles(candidates)

    def score(self, operation: str, first: Sequence[Concept], second: Sequence[Concept]) -> Array:
        """Soft equivalence of each candidate to each meet or join."""
        compose = {"meet": meet, "join": join}[operation]
        pairs = zip(self.inclusion.profiles(first), self.inclusion.profiles(second), strict=True)
        composed = [compose(ConceptProfile(a), ConceptProfile(b), self.mode) for a, b in pairs]
        return np.stack([soft_equivalence(self.candidates, c, self.inclusion.temperature) for c in composed])


class CentroidComposer:
    """The mean of the two centroids, whichever the operation; candidates are ranked by cosine."""

    def __init__(self, frame: Any, random_state: int, whiten: bool = False) -> None:
        self.cosine = CosineInclusion(frame, random_state, whiten)

    def fit(self, V: Array, I: npt.NDArray[Any]) -> CentroidComposer:  # noqa: E741
        """Learn the origin."""
        self.cosine.fit(V, I)
        return self

    def index(self, candidates: Sequence[Concept]) -> None:
        """Keep their centroids."""
        self.candidates = self.cosine.centroids(candidates)

    def score(self, operation: str, first: Sequence[Concept], second: Sequence[Concept]) -> Array:
        """Cosines, up to a factor for each row."""
        return np.asarray((self.cosine.centroids(first) + self.cosine.centroids(second)) @ self.candidates.T)


class SizeComposer:
    """The largest candidates first for a join, the smallest first for a meet, whatever is asked for."""

    def __init__(self, frame: Any, random_state: int) -> None:
        self.rng = np.random.default_rng(random_state)

    def fit(self, V: Array, I: npt.NDArray[Any]) -> SizeComposer:  # noqa: E741
        """Nothing to learn."""
        return self

    def index(self, candidates: Sequence[Concept]) -> None:
        """Keep their sizes."""
        self.sizes = np.array([c.size for c in candidates], dtype=float)

    def score(self, operation: str, first: Sequence[Concept], second: Sequence[Concept]) -> Array:
        """Their sizes, or minus that, in every row."""
        return np.tile(self.sizes if operation == "join" else -self.sizes, (len(first), 1))


class RandomComposer(SizeComposer):
    """A random order, another one for every question."""

    def score(self, operation: str, first: Sequence[Concept], second: Sequence[Concept]) -> Array:
        """Uniform numbers."""
        return self.rng.random((len(first), len(self.sizes)))
