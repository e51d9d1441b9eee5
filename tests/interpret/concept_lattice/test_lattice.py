"""Contexts, lattices and implications against the definitions, against `concepts`, and by their laws."""

import itertools
import re

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.interpret.concept_lattice.context import FormalContext
from paperworks.interpret.concept_lattice.drawing import draw_lattice
from paperworks.interpret.concept_lattice.implications import Implication, confidence, consequences, duquenne_guigues
from paperworks.interpret.concept_lattice.lattice import ALGORITHMS, ConceptLattice, TooManyConcepts
from paperworks.interpret.concept_lattice.speed import zoo_table
from paperworks.kit.assets import status

from . import reference

needs_zoo = pytest.mark.skipif(status("zoo").state == "missing", reason="not on this machine: paperworks data zoo")
PETS = FormalContext(
    [[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]],
    ["dog", "cat", "lion", "stone"],
    ["alive", "large", "feline", "blue"],
)


@st.composite
def tables(draw, objects=6, attributes=5):
    rows, columns = draw(st.integers(1, objects)), draw(st.integers(1, attributes))
    return draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=rows, max_size=rows))


def as_sets(lattice):
    return {(concept.extent, concept.intent) for concept in lattice}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=30, deadline=None)
@given(table=tables(), support=st.integers(0, 3))
def test_concepts_and_covers_are_those_of_the_definition(algorithm, table, support):
    expected = {c for c in reference.concepts(table) if len(c[0]) >= support}
    lattice = ConceptLattice.from_context(FormalContext(table), algorithm, min_support=min(support, len(table)))
    if support <= len(table):
        assert as_sets(lattice) == expected
        assert len(lattice) == len(expected)  # none twice
        graph = lattice.to_networkx()
        both = {(tuple(lattice[j]), tuple(lattice[i])) for i, j in graph.edges}
        assert both == reference.covers(expected)


@settings(max_examples=25, deadline=None)
@given(table=tables())
def test_the_lattice_laws(table):
    lattice = ConceptLattice.from_context(FormalContext(table))
    for a, b in itertools.product(lattice, repeat=2):
        low, high = lattice.meet(a, b), lattice.join(a, b)
        assert low.extent == a.extent & b.extent
        assert high.intent == a.intent & b.intent
        assert lattice.join(a, low) == a == lattice.meet(a, high)  # absorption
        assert all(c.extent <= low.extent for c in lattice if c.extent <= a.extent and c.extent <= b.extent)
        assert all(c.extent >= high.extent for c in lattice if c.extent >= a.extent and c.extent >= b.extent)
    assert lattice.top == lattice.meet()
    assert lattice.bottom == lattice.join()
    assert lattice.top.extent == frozenset(range(len(table)))


@settings(max_examples=30, deadline=None)
@given(table=tables(), data=st.data())
def test_the_derivations_are_a_galois_connection(table, data):
    context = FormalContext(table)
    A = data.draw(st.sets(st.integers(0, len(table) - 1)))
    B = data.draw(st.sets(st.integers(0, len(table[0]) - 1)))
    assert context.intent(A) == reference.intent(table, A)
    assert context.extent(B) == reference.extent(table, B)
    assert (context.extent(B) >= A) == (context.intent(A) >= B)
    closed = context.closure(B)
    assert closed >= B
    assert context.closure(closed) == closed


def test_labels_and_overshoot():
    assert PETS.intent(["dog", "cat"]) == {"alive"}
    assert PETS.extent(["alive", "large"]) == {"dog", "lion"}
    assert PETS.closure(["large"]) == {"alive", "large"}
    assert PETS.intent([]) == {"alive", "large", "feline", "blue"}
    assert PETS.join_overshoot(["dog"], ["cat"]) == {"lion"}  # the half-space "alive" takes it in
    assert PETS.join_overshoot(["dog"], ["lion"]) == frozenset()


@needs_zoo
def test_zoo_has_its_238_concepts_and_they_are_those_of_concepts():
    concepts = pytest.importorskip("concepts")
    context = FormalContext(zoo_table())
    lattice = ConceptLattice.from_context(context)
    assert len(lattice) == 238
    theirs = concepts.Context.fromstring(context.to_concepts().tostring()).lattice
    assert {(frozenset(map(int, c.extent)), len(c.intent)) for c in theirs} == {
        (c.extent, len(c.intent)) for c in lattice
    }
    edges = {(int(c._extent), int(d._extent)) for c in theirs for d in c.lower_neighbors}
    assert edges == {(lattice.extents[i], lattice.extents[j]) for i, j in lattice.to_networkx().edges}


def test_a_random_context_equals_concepts_by_labels():
    pytest.importorskip("concepts")
    context = FormalContext(np.random.default_rng(1).random((25, 9)) < 0.4)
    theirs = context.to_concepts().lattice
    found = {(frozenset(c.extent), frozenset(c.intent)) for c in theirs}
    lattice = ConceptLattice.from_context(context)
    ours = {(frozenset(map(str, c.extent)), frozenset(f"attribute {m}" for m in c.intent)) for c in lattice}
    assert ours == found


@needs_zoo
def test_zoo_equals_fcapy():
    pytest.importorskip("fcapy", reason="fcapy (GPL-3) is not installed; nothing of ours needs it")
    from fcapy.lattice import ConceptLattice as Theirs

    context = FormalContext(zoo_table(), [f"g{i}" for i in range(101)], [f"m{i}" for i in range(15)])
    assert FormalContext.from_fcapy(context.to_fcapy()) == context
    theirs = {(frozenset(c.extent), frozenset(c.intent)) for c in Theirs.from_context(context.to_fcapy())}
    assert theirs == as_sets(ConceptLattice.from_context(context))


def test_to_concepts_and_back():
    pytest.importorskip("concepts")
    assert FormalContext.from_concepts(PETS.to_concepts()) == PETS
    numbered = FormalContext([[1, 0], [1, 1]])  # theirs must not name an object and an attribute alike
    assert FormalContext.from_concepts(numbered.to_concepts()).attributes == ("attribute 0", "attribute 1")


def test_without_fcapy_there_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fcapy", None)
    monkeypatch.setitem(__import__("sys").modules, "fcapy.context", None)
    with pytest.raises(ImportError, match="this needs 'fcapy', which is not installed: pip install fcapy"):
        PETS.to_fcapy()


def test_an_iceberg_has_every_join_and_says_where_a_meet_is_missing():
    lattice = ConceptLattice.from_context(PETS, min_support=2)
    large, feline = (next(c for c in lattice if label in c.intent) for label in ("large", "feline"))
    assert lattice.join(large, feline).intent == {"alive"}
    with pytest.raises(ValueError, match="the meet has 1 objects, below min_support"):
        lattice.meet(large, feline)
    with pytest.raises(ValueError, match="no bottom"):
        _ = lattice.bottom
    assert [c.intent for c in lattice.covers(lattice.top)] == [frozenset({"alive"})]


def test_limits():
    full = FormalContext(np.ones((3, 2)))
    assert len(ConceptLattice.from_context(full)) == 1
    boolean = FormalContext(1 - np.eye(8))  # all subsets: 2^8 concepts
    assert len(ConceptLattice.from_context(boolean)) == 2**8
    assert nx.is_directed_acyclic_graph(ConceptLattice.from_context(boolean).to_networkx())
    for algorithm in ALGORITHMS:
        assert len(ConceptLattice.from_context(boolean, algorithm, max_concepts=2**8)) == 2**8
        with pytest.raises(TooManyConcepts):
            ConceptLattice.from_context(boolean, algorithm, max_concepts=2**8 - 1)
        with pytest.raises(TooManyConcepts, match=r"more than max_concepts=100 concepts; raise min_support \(0\)"):
            ConceptLattice.from_context(boolean, algorithm, max_concepts=100)
        assert len(ConceptLattice.from_context(FormalContext(np.zeros((2, 0))), algorithm)) == 1
        assert len(ConceptLattice.from_context(FormalContext(np.zeros((0, 2))), algorithm)) == 1
    assert repr(FormalContext(np.zeros((0, 2)))) == "FormalContext(0 objects, 2 attributes, 0% filled)"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: FormalContext([1, 0]), "I has shape (2,); allowed is (objects, attributes)"),
        (lambda: FormalContext([[2, 0]]), "I has entries such as"),
        (lambda: FormalContext([[1, 0]], ["a", "b"]), "objects has 2 labels; allowed is one for each of the 1"),
        (lambda: FormalContext([[1, 0]], None, ["a", "a"]), "attributes has 'a' twice"),
        (lambda: PETS.extent("alive"), "'alive' is one text; allowed is a collection of attributes"),
        (lambda: PETS.extent(["red"]), "'red' is no attribute of this context"),
        (lambda: ConceptLattice.from_context(PETS, "fast"), "algorithm='fast'; allowed are 'in_close', 'next_closure'"),
        (lambda: ConceptLattice.from_context(PETS, min_support=5), "min_support=5; allowed is 0 to 4"),
        (lambda: duquenne_guigues(PETS, min_support=-1), "min_support=-1; allowed is 0 or more"),
        (lambda: duquenne_guigues(PETS, max_implications=1), "more than max_implications=1 implications"),
        (lambda: draw_lattice(ConceptLattice.from_context(PETS), max_concepts=2), "lattice has 6 concepts"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


@settings(max_examples=30, deadline=None)
@given(table=tables())
def test_the_base_is_the_pseudo_closed_sets_and_gives_every_closure(table):
    context = FormalContext(table)
    base = duquenne_guigues(context)
    expected = {(p, c - p, len(reference.extent(table, p))) for p, c in reference.pseudo_closed(table)}
    assert {tuple(implication) for implication in base} == expected
    for k in range(len(table[0]) + 1):
        for attributes in itertools.combinations(range(len(table[0])), k):
            assert consequences(base, attributes) == context.closure(attributes)
    for left_out in base:  # none follows from the others
        others = [i for i in base if i != left_out]
        assert not left_out.conclusion <= consequences(others, left_out.premise)
    assert all(confidence(context, implication) == 1 for implication in base)


def test_confidence_in_another_context():
    implication = Implication(frozenset({"alive"}), frozenset({"large"}), 3)
    assert confidence(PETS, implication) == pytest.approx(2 / 3)
    assert confidence(PETS, Implication(frozenset({"blue"}), frozenset({"large"}), 0)) == 1


def test_the_picture_has_every_concept_and_every_label_once():
    lattice = ConceptLattice.from_context(PETS)
    svg = draw_lattice(lattice)
    assert svg.count("<circle") == len(lattice)
    assert svg.count("<path") == lattice.to_networkx().number_of_edges()
    for label in (*PETS.objects, *PETS.attributes):
        assert len(re.findall(rf">(?:[^<]*, )?{label}[,<]", svg)) == 1, label
    assert "<b>" not in draw_lattice(ConceptLattice.from_context(FormalContext([[1]], ["<b>"], ["&"])))
