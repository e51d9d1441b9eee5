"""Formal contexts: which object has which attribute, kept as bit sets.

A row and a column of the table are each one Python integer, bit i for the i-th attribute or object, so that the
derivation operators of Formal Concept Analysis are a few AND operations:

    A' = {m : every g in A has m}        B' = {g : g has every m in B}        B'' = (B')', the closure of B
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class FormalContext:
    """A table of objects by attributes.

    Args:
        I: The incidence: True where an object has an attribute; any 0/1 array, of shape (objects, attributes).
        objects: Their labels, all different; 0, 1, ... when left out.
        attributes: Their labels, all different; 0, 1, ... when left out.
    """

    def __init__(
        self,
        I: npt.ArrayLike,  # noqa: E741 - the field's letter
        objects: Sequence[Hashable] | None = None,
        attributes: Sequence[Hashable] | None = None,
    ) -> None:
        table = np.asarray(I)
        if table.ndim != 2:
            raise ValueError(f"I has shape {table.shape}; allowed is (objects, attributes)")
        if table.dtype != bool:
            if not np.isin(table, (0, 1)).all():
                raise ValueError(f"I has entries such as {table[~np.isin(table, (0, 1))][0]!r}; allowed are 0 and 1")
            table = table.astype(bool)
        self.I = table.copy()
        self.I.setflags(write=False)
        self.objects = _labels("objects", objects, table.shape[0])
        self.attributes = _labels("attributes", attributes, table.shape[1])
        self._object_bit = {label: i for i, label in enumerate(self.objects)}
        self._attribute_bit = {label: i for i, label in enumerate(self.attributes)}
        self.rows = to_bits(table)
        self.columns = to_bits(table.T)
        self.all_objects = (1 << len(self.objects)) - 1
        self.all_attributes = (1 << len(self.attributes)) - 1

    def __repr__(self) -> str:
        filled = self.I.mean() if self.I.size else 0.0
        return f"FormalContext({len(self.objects)} objects, {len(self.attributes)} attributes, {filled:.0%} filled)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FormalContext):
            return NotImplemented
        mine, theirs = (self.objects, self.attributes), (other.objects, other.attributes)
        return mine == theirs and np.array_equal(self.I, other.I)

    __hash__ = None  # type: ignore[assignment]

    # --- on labels -----------------------------------------------------------------------------------------------

    def intent(self, objects: Iterable[Hashable]) -> frozenset[Any]:
        """Return the attributes that all of these objects have: A'."""
        return self.attribute_labels(self.intent_bits(self.object_bits(objects)))

    def extent(self, attributes: Iterable[Hashable]) -> frozenset[Any]:
        """Return the objects that have all of these attributes: B'."""
        return self.object_labels(self.extent_bits(self.attribute_bits(attributes)))

    def closure(self, attributes: Iterable[Hashable]) -> frozenset[Any]:
        """Return the attributes that every object with these attributes has as well: B''."""
        return self.attribute_labels(self.closure_bits(self.attribute_bits(attributes)))

    def join_overshoot(self, A: Iterable[Hashable], B: Iterable[Hashable]) -> frozenset[Any]:
        """Return the objects that the closure of a union adds: (A u B)'' less A u B.

        A join is an intersection of half-spaces, so it may take in objects that are in neither part.

        Args:
            A: Labels of objects.
            B: Labels of objects.
        """
        union = self.object_bits(A) | self.object_bits(B)
        return self.object_labels(self.extent_bits(self.intent_bits(union)) & ~union)

    # --- on bit sets ---------------------------------------------------------------------------------------------

    def intent_bits(self, objects: int) -> int:
        """A' of a bit set of objects."""
        return _common(self.rows, objects, self.all_attributes)

    def extent_bits(self, attributes: int) -> int:
        """B' of a bit set of attributes."""
        return _common(self.columns, attributes, self.all_objects)

    def closure_bits(self, attributes: int) -> int:
        """B'' of a bit set of attributes."""
        return self.intent_bits(self.extent_bits(attributes))

    def object_bits(self, labels: Iterable[Hashable]) -> int:
        """The bit set of some objects."""
        return _to_set("object", labels, self._object_bit)

    def attribute_bits(self, labels: Iterable[Hashable]) -> int:
        """The bit set of some attributes."""
        return _to_set("attribute", labels, self._attribute_bit)

    def object_labels(self, bits: int) -> frozenset[Any]:
        """The objects of a bit set."""
        return frozenset(self.objects[i] for i in ones(bits))

    def attribute_labels(self, bits: int) -> frozenset[Any]:
        """The attributes of a bit set."""
        return frozenset(self.attributes[i] for i in ones(bits))

    # --- other libraries -----------------------------------------------------------------------------------------

    def to_concepts(self) -> Any:
        """Return the same context as a `concepts.Context` (MIT); labels become text.

        Raises:
            ImportError: `concepts` is not installed.
        """
        context = _other("concepts").Context
        return context(self._texts("objects"), self._texts("attributes"), self.I.tolist())

    def to_fcapy(self) -> Any:
        """Return the same context as an `fcapy.context.FormalContext` (fcapy is under the GPL-3); labels become text.

        Raises:
            ImportError: `fcapy` is not installed.
        """
        context = _other("fcapy", "fcapy.context").FormalContext
        return context(
            data=self.I.tolist(), object_names=self._texts("objects"), attribute_names=self._texts("attributes")
        )

    @classmethod
    def from_concepts(cls, context: Any) -> FormalContext:
        """Make a context of a `concepts.Context`."""
        return cls(np.array(context.bools, dtype=bool), context.objects, context.properties)

    @classmethod
    def from_fcapy(cls, context: Any) -> FormalContext:
        """Make a context of an `fcapy.context.FormalContext`."""
        table = np.zeros((context.n_objects, context.n_attributes), dtype=bool)
        for g in range(context.n_objects):
            table[g, list(context.intention_i([g]))] = True
        return cls(table, context.object_names, context.attribute_names)

    def _texts(self, what: str) -> list[str]:
        texts = [str(label) for label in getattr(self, what)]
        if what == "attributes" and set(texts) & set(map(str, self.objects)):
            # Theirs must not share a name between an object and an attribute.
            texts = [f"attribute {text}" for text in texts]
        if len(set(texts)) < len(texts):
            raise ValueError(f"{what} have labels that are the same as text; give them different texts")
        return texts


def _other(package: str, module: str = "") -> Any:
    import importlib

    try:
        return importlib.import_module(module or package)
    except ModuleNotFoundError as error:
        raise ImportError(f"this needs {package!r}, which is not installed: pip install {package}") from error


def _labels(what: str, labels: Sequence[Hashable] | None, count: int) -> tuple[Any, ...]:
    found = tuple(range(count)) if labels is None else tuple(labels)
    if len(found) != count:
        raise ValueError(f"{what} has {len(found)} labels; allowed is one for each of the {count} in I")
    if len(set(found)) < count:
        twice = next(label for i, label in enumerate(found) if label in found[:i])
        raise ValueError(f"{what} has {twice!r} twice; allowed are different labels")
    return found


def _to_set(what: str, labels: Iterable[Hashable], bit: dict[Any, int]) -> int:
    if isinstance(labels, str):
        raise ValueError(f"{labels!r} is one text; allowed is a collection of {what}s, such as [{labels!r}]")
    found = 0
    for label in labels:
        if label not in bit:
            raise ValueError(f"{label!r} is no {what} of this context")
        found |= 1 << bit[label]
    return found


def to_bits(table: npt.NDArray[np.bool_]) -> list[int]:
    """One integer for each row of a table of shape (rows, bits): bit j is the j-th entry."""
    packed = np.packbits(table, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def ones(bits: int) -> Iterator[int]:
    """The positions of the bits that are set, in order."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _common(sets: Sequence[int], chosen: int, everything: int) -> int:
    found = everything
    while chosen and found:
        low = chosen & -chosen
        found &= sets[low.bit_length() - 1]
        chosen ^= low
    return found
