"""The Duquenne-Guigues base: the fewest implications between attributes from which all that hold can be derived.

A set P is pseudo-closed when it is not closed and contains the closure of every pseudo-closed set properly inside it.
The base has the implication P -> P'' for each pseudo-closed P.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from .context import FormalContext


class Implication(NamedTuple):
    """Every object with all of `premise` has all of `conclusion`.

    Attributes:
        premise: Labels of attributes.
        conclusion: Labels of further attributes, none of them in the premise.
        support: Number of objects that have all of the premise.
    """

    premise: frozenset[Any]
    conclusion: frozenset[Any]
    support: int


def duquenne_guigues(
    context: FormalContext, min_support: int = 0, max_implications: int = 100_000
) -> tuple[Implication, ...]:
    """Find the base of all implications that hold in a context.

    Args:
        context: The formal context.
        min_support: Implications whose premise fewer objects have are left out of the answer; those that hold for
            want of objects have a support of 0.
        max_implications: Most pseudo-closed sets looked at.

    Raises:
        ValueError: There are more than `max_implications`, or `min_support` is negative.
    """
    if min_support < 0:
        raise ValueError(f"min_support={min_support}; allowed is 0 or more")
    count, everything = len(context.attributes), context.all_attributes
    base: list[tuple[int, int]] = []  # premise, its closure

    def saturate(attributes: int) -> int:
        changed = True
        while changed:
            changed = False
            for premise, closed in base:
                if attributes & premise == premise and closed & ~attributes:
                    # A premise equal to the set itself would close it: only proper subsets may.
                    if premise == attributes:
                        continue
                    attributes |= closed
                    changed = True
        return attributes

    at = 0
    while True:
        closed = context.closure_bits(at)
        if closed != at:
            base.append((at, closed))
            if len(base) > max_implications:
                raise ValueError(f"more than max_implications={max_implications} implications")
        if at == everything:
            break
        for m in reversed(range(count)):
            bit = 1 << m
            if at & bit:
                continue
            before = at & (bit - 1)
            candidate = saturate(before | bit)
            if not (candidate & ~before) & (bit - 1):
                at = candidate
                break
    found = []
    for premise, closed in base:
        support = context.extent_bits(premise).bit_count()
        if support >= min_support:
            labels = context.attribute_labels
            found.append(Implication(labels(premise), labels(closed & ~premise), support))
    return tuple(found)


def consequences(implications: Sequence[Implication], attributes: Iterable[Hashable]) -> frozenset[Any]:
    """Return all attributes that follow from some by implications.

    Args:
        implications: Such as `duquenne_guigues` returns.
        attributes: What is known.
    """
    known = set(attributes)
    waiting = list(implications)
    while True:
        ready = [i for i in waiting if i.premise <= known]
        if not ready:
            return frozenset(known)
        waiting = [i for i in waiting if not i.premise <= known]
        for implication in ready:
            known |= implication.conclusion


def confidence(context: FormalContext, implication: Implication) -> float:
    """Return the share of the premise's objects in a context that have the conclusion; 1 when there are none.

    Args:
        context: May be another one than that of the implication, with the same attributes.
        implication: What is asked about.
    """
    premise = context.extent_bits(context.attribute_bits(implication.premise))
    both = premise & context.extent_bits(context.attribute_bits(implication.conclusion))
    return both.bit_count() / premise.bit_count() if premise else 1.0
