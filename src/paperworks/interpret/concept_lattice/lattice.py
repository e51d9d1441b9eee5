"""Concept lattices: all concepts of a context, their order, meets and joins.

A formal concept is a pair (A, B) with A' = B and B' = A. Concepts are ordered by their extents; the meet of two has the
intersection of their extents, the join the intersection of their intents (Theorem 1: this is a complete lattice).

In-Close walks attribute by attribute and keeps an intersection of columns only where no attribute before the current
one was missed, so each extent is met once. NextClosure goes through the closed sets in lectic order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .context import FormalContext, ones

ALGORITHMS = ("in_close", "next_closure")


class FormalConcept(NamedTuple):
    """A concept of a lattice.

    Attributes:
        extent: Labels of its objects.
        intent: Labels of its attributes.
    """

    extent: frozenset[Any]
    intent: frozenset[Any]


class TooManyConcepts(ValueError):
    """The lattice has more concepts than were allowed."""


class ConceptLattice:
    """The concepts of a context by growing extent; make one with `from_context`.

    With a least support it is the upper part of the lattice ("iceberg"): every join is there, a meet only where its
    extent is large enough.

    Args:
        context: The formal context.
        extents: Bit sets of objects, of all concepts.
        intents: Bit sets of attributes, in the same order.
    """

    def __init__(self, context: FormalContext, extents: Sequence[int], intents: Sequence[int]) -> None:
        order = sorted(range(len(extents)), key=lambda i: (extents[i].bit_count(), extents[i]))
        self.context = context
        self.extents = [extents[i] for i in order]
        self.intents = [intents[i] for i in order]
        self._place = {extent: i for i, extent in enumerate(self.extents)}
        self._lower: list[tuple[int, ...]] | None = None

    @classmethod
    def from_context(
        cls,
        context: FormalContext,
        algorithm: str = "in_close",
        min_support: int = 0,
        max_concepts: int = 1_000_000,
    ) -> ConceptLattice:
        """Find all concepts.

        Args:
            context: The formal context.
            algorithm: "in_close" or "next_closure"; both find the same.
            min_support: Least number of objects of a concept.
            max_concepts: Most concepts; a lattice may have 2^min(objects, attributes).

        Raises:
            TooManyConcepts: There are more than `max_concepts`.
            ValueError: An argument out of range.
        """
        if algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm={algorithm!r}; allowed are {', '.join(map(repr, ALGORITHMS))}")
        if not 0 <= min_support <= len(context.objects):
            raise ValueError(
                f"min_support={min_support}; allowed is 0 to {len(context.objects)}, the number of objects"
            )
        found = (in_close if algorithm == "in_close" else next_closure)(context, min_support, max_concepts)
        return cls(context, *found)

    # --- concepts ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.extents)

    def __repr__(self) -> str:
        return f"ConceptLattice({len(self)} concepts of {self.context!r})"

    def __iter__(self) -> Iterator[FormalConcept]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int) -> FormalConcept:
        return FormalConcept(
            self.context.object_labels(self.extents[index]), self.context.attribute_labels(self.intents[index])
        )

    def __contains__(self, concept: object) -> bool:
        return isinstance(concept, tuple) and any(concept == own for own in self)

    @property
    def top(self) -> FormalConcept:
        """The concept of all objects."""
        return self[len(self) - 1]

    @property
    def bottom(self) -> FormalConcept:
        """The concept with the smallest extent; with a least support there may be none, then ValueError."""
        if self.context.extent_bits(self.context.all_attributes) not in self._place:
            raise ValueError("this lattice has no bottom: its support is below min_support")
        return self[0]

    # --- order ---------------------------------------------------------------------------------------------------

    def meet(self, *concepts: FormalConcept) -> FormalConcept:
        """Return the largest concept below all of these; the top for none.

        Raises:
            ValueError: Its support is below the least support of this lattice.
        """
        extent = self.context.all_objects
        for concept in concepts:
            extent &= self.extents[self._index(concept)]
        if extent not in self._place:
            raise ValueError(f"the meet has {extent.bit_count()} objects, below min_support: it is not in this lattice")
        return self[self._place[extent]]

    def join(self, *concepts: FormalConcept) -> FormalConcept:
        """Return the smallest concept above all of these; the bottom for none."""
        if not concepts:
            return self.bottom
        intent = self.context.all_attributes
        for concept in concepts:
            intent &= self.intents[self._index(concept)]
        return self[self._place[self.context.extent_bits(intent)]]

    def covers(self, concept: FormalConcept) -> tuple[FormalConcept, ...]:
        """Return the concepts directly below one, those that it covers, by growing extent."""
        return tuple(self[i] for i in self.lower_covers()[self._index(concept)])

    def lower_covers(self) -> list[tuple[int, ...]]:
        """For each concept the indices of those directly below it.

        The concepts below (A, B) that one more attribute m gives have the extents A n m'. One of them is covered by
        (A, B) exactly when all attributes that its intent has beyond B give this same extent.
        """
        if self._lower is None:
            columns, place, intents = self.context.columns, self._place, self.intents
            sizes = [intent.bit_count() for intent in intents]
            bits = [(1 << m, column) for m, column in enumerate(columns)]
            self._lower = []
            for extent, intent, size in zip(self.extents, intents, sizes, strict=True):
                counts = Counter([extent & column for bit, column in bits if not intent & bit])
                # With a least support an extent may be missing; nothing that small is covered.
                below = [(place[e], n) for e, n in counts.items() if e in place]
                self._lower.append(tuple(sorted(i for i, n in below if sizes[i] - size == n)))
        return self._lower

    def to_networkx(self) -> Any:
        """Return the covering relation as a `networkx.DiGraph`, from each concept to those that it covers.

        Nodes are 0, 1, ... in the order of the lattice, with the attributes `extent` and `intent`.
        """
        import networkx as nx

        graph = nx.DiGraph()
        for i, concept in enumerate(self):
            graph.add_node(i, extent=concept.extent, intent=concept.intent)
        graph.add_edges_from((i, j) for i, below in enumerate(self.lower_covers()) for j in below)
        return graph

    def _index(self, concept: FormalConcept) -> int:
        extent = self.context.object_bits(concept[0])
        if extent not in self._place:
            raise ValueError(f"a concept with {len(concept[0])} objects is not in this lattice")
        return self._place[extent]


def in_close(context: FormalContext, min_support: int, max_concepts: int) -> tuple[list[int], list[int]]:
    """Extents and intents of all concepts, by In-Close with attributes handed down."""
    columns = context.columns
    count = len(columns)
    extents: list[int] = []
    intents: list[int] = []
    waiting = [(context.all_objects, 0, 0)]
    if len(context.objects) < min_support:
        return extents, intents
    while waiting:
        extent, intent, start = waiting.pop()
        children = []
        for m in range(start, count):
            if intent >> m & 1:
                continue
            smaller = extent & columns[m]
            if smaller == extent:
                intent |= 1 << m
            elif smaller.bit_count() >= min_support:
                # Canonical: no attribute before m, outside the intent so far, holds for all of the smaller extent.
                for j in ones(((1 << m) - 1) & ~intent):
                    if smaller & columns[j] == smaller:
                        break
                else:
                    children.append((smaller, m))
        extents.append(extent)
        intents.append(intent)
        if len(extents) > max_concepts:
            raise TooManyConcepts(
                f"more than max_concepts={max_concepts} concepts; raise min_support ({min_support}) or max_concepts"
            )
        waiting += [(smaller, intent | 1 << m, m + 1) for smaller, m in children]
    return extents, intents


def next_closure(context: FormalContext, min_support: int, max_concepts: int) -> tuple[list[int], list[int]]:
    """Extents and intents of all concepts, by NextClosure.

    With a least support, what too few objects have is closed to all attributes: this is a closure operator as well.
    """
    count = len(context.attributes)
    everything = context.all_attributes

    def close(attributes: int) -> tuple[int, int]:
        extent = context.extent_bits(attributes)
        return (extent, context.intent_bits(extent)) if extent.bit_count() >= min_support else (0, everything)

    extents: list[int] = []
    intents: list[int] = []
    extent, intent = close(0)
    while True:
        # All attributes may stand for "too few objects".
        if extent.bit_count() >= min_support and context.extent_bits(intent) == extent:
            extents.append(extent)
            intents.append(intent)
            if len(extents) > max_concepts:
                raise TooManyConcepts(
                    f"more than max_concepts={max_concepts} concepts; raise min_support ({min_support}) or max_concepts"
                )
        for m in reversed(range(count)):
            bit = 1 << m
            if intent & bit:
                continue
            before = intent & (bit - 1)
            extent, closed = close(before | bit)
            if not (closed & ~before) & (bit - 1):  # nothing new before m: the next one in lectic order
                intent = closed
                break
        else:
            return extents, intents
