"""Profiles, inclusion, meet and join: the formula, their laws, both conventions, regions and hulls."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from paperworks.interpret.concept_lattice.arms import Concept, CosineInclusion, SizeInclusion
from paperworks.interpret.concept_lattice.context import FormalContext
from paperworks.interpret.concept_lattice.directions import AttributeDirections
from paperworks.interpret.concept_lattice.lattice import ConceptLattice
from paperworks.interpret.concept_lattice.profiles import (
    ConceptProfile,
    HalfSpaceSpace,
    Region,
    join,
    meet,
    soft_equivalence,
    soft_inclusion,
)

from . import reference

vectors = arrays(float, 5, elements=st.floats(-30, 30))


@settings(max_examples=30, deadline=None)
@given(a=vectors, b=vectors)
def test_inclusion_is_that_of_the_formula_and_grows_with_what_a_has(a, b):
    found = soft_inclusion(a, b)
    assert found == pytest.approx(reference.inclusion(a, b), rel=1e-9)
    assert 0 <= found <= 1
    assert soft_inclusion(a + 1, b) >= found
    there, back = found, soft_inclusion(b, a)
    assert soft_equivalence(a, b) == pytest.approx(soft_equivalence(b, a))
    assert min(there, back) - 1e-12 <= soft_equivalence(a, b) <= max(there, back) + 1e-12
    assert soft_inclusion(a, b, temperature=0.5) == pytest.approx(soft_inclusion(2 * a, 2 * b))


def test_in_the_limit_inclusion_is_the_share_of_b_that_a_has():
    a, b = np.array([9.0, -9, 9, 9]), np.array([9.0, 9, -9, 9])
    assert soft_inclusion(a, b, temperature=0.01) == pytest.approx(2 / 3)  # two of the three attributes of b
    assert soft_inclusion(b, a, temperature=0.01) == pytest.approx(2 / 3)
    assert soft_inclusion(np.maximum(a, b), b, temperature=0.01) == pytest.approx(1)
    np.testing.assert_allclose(soft_inclusion(np.stack([a, b]), b, 0.01), [2 / 3, 1], atol=1e-9)  # broadcast


def test_inclusion_where_softplus_and_sigmoid_are_too_small_for_a_float():
    assert soft_inclusion([3.0, -1.0], [-2000.0, -2000.0]) == pytest.approx((1 / (1 + np.exp(-3)) + 1 / (1 + np.e)) / 2)
    assert soft_inclusion([3.0, -1.0], [-1.0, -1.5], temperature=1e-3) == pytest.approx(1)  # the first one alone weighs
    assert soft_inclusion([-1.0], [-1.0], temperature=1e-3) == 0
    assert soft_equivalence([-1.0], [-1.0], temperature=1e-3) == 0
    both = soft_equivalence([[-1.0, -1.0], [1.0, -1.0]], [1.0, -1.0], temperature=1e-3)
    np.testing.assert_allclose(both, [0, 1], atol=1e-9)
    row = soft_inclusion([1.0, -2.0], [[-50.0, -51.0], [2.0, -50.0]])  # rows on both sides of the border of -40
    np.testing.assert_allclose(row, [reference.inclusion([1, -2], b) for b in ([-50, -51], [2, -50])], rtol=1e-9)


def test_profiles_of_length_one_have_inclusions_near_a_half():
    """So the paper's temperature of 1 leaves little to see, and only the order can be used."""
    rng = np.random.default_rng(0)
    pairs = [[ConceptProfile.from_margins(rng.normal(size=(3, 150))) for _ in "ab"] for _ in range(40)]
    near = [soft_inclusion(a, b) for a, b in pairs]
    spread = [soft_inclusion(a, b, temperature=0.02) for a, b in pairs]
    assert np.abs(np.array(near) - 0.5).max() < 0.02
    assert np.std(spread) > 5 * np.std(near)


def test_a_profile_is_the_mean_margin_of_length_one():
    margins = np.array([[3.0, 0.0], [3.0, 8.0]])
    profile = ConceptProfile.from_margins(margins, "both")
    np.testing.assert_allclose(profile.values, [0.6, 0.8])
    assert profile.intent() == {0, 1}
    assert profile.intent(0.7) == {1}
    assert not ConceptProfile.from_margins(np.zeros((2, 3))).values.any()
    np.testing.assert_allclose(ConceptProfile.from_margins(margins, normalize=False).values, [3, 4])


@settings(max_examples=20, deadline=None)
@given(a=vectors, b=vectors)
def test_both_conventions_mirror_each_other(a, b):
    A, B = ConceptProfile(a), ConceptProfile(b)
    np.testing.assert_array_equal(meet(A, B).values, np.minimum(a, b))
    np.testing.assert_array_equal(join(A, B).values, np.maximum(a, b))
    for x, y in ((meet, join), (join, meet)):
        np.testing.assert_array_equal(x(A, B, "fca").values, y(A, B, "paper").values)
        np.testing.assert_array_equal(x(A, A, "fca").values, a)


def test_on_true_lattices_fca_gives_the_intents_and_paper_gives_those_of_the_other_operation():
    """With profiles +1 in the intent and -1 outside: max is the union of intents, whose closure is the meet's."""
    context = FormalContext(np.random.default_rng(2).random((12, 6)) < 0.5)
    lattice = ConceptLattice.from_context(context)

    def profile(concept):
        return ConceptProfile([1.0 if m in concept.intent else -1.0 for m in context.attributes])

    wrong = pairs = 0
    for a, b in itertools.combinations(lattice, 2):
        assert context.closure(meet(profile(a), profile(b), "fca").intent()) == lattice.meet(a, b).intent
        assert join(profile(a), profile(b), "fca").intent() == lattice.join(a, b).intent
        wrong += meet(profile(a), profile(b), "paper").intent() != lattice.meet(a, b).intent
        pairs += 1
    assert wrong > pairs / 2


def hull_holds(directions, A, B, point):
    """Whether point = a + b with a in R(A), b in R(B), half-spaces through the origin: a linear program."""
    d = directions.shape[1]
    rows, limits = [], []
    for m in A:
        rows.append(np.concatenate([-directions[m], np.zeros(d)]))
        limits.append(0)
    for m in B:
        rows.append(np.concatenate([np.zeros(d), -directions[m]]))
        limits.append(0)
    equal = np.hstack([np.eye(d), np.eye(d)])
    kwargs = {"A_ub": np.array(rows), "b_ub": limits} if rows else {}
    return linprog(np.zeros(2 * d), A_eq=equal, b_eq=point, bounds=(None, None), **kwargs).status == 0


def test_the_region_of_a_join_is_the_conic_hull_if_directions_are_independent():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(4, 5))
    a, b = (Region(frozenset(s), D, np.zeros(4)) for s in ({0, 1, 2}, {1, 3}))
    region = join(a, b, "region")
    assert region.attributes == {1}
    points = rng.normal(size=(60, 5))
    hull = [hull_holds(D, {0, 1, 2}, {1, 3}, p) for p in points]
    np.testing.assert_array_equal(region.contains(points), hull)
    assert 10 < sum(hull) < 50
    both = meet(a, b, "region")
    np.testing.assert_array_equal(both.contains(points), a.contains(points) & b.contains(points))


def test_of_dependent_directions_it_may_be_larger_than_the_hull_and_may_be_the_hull():
    """Independence is enough, but not needed."""
    D = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    points = np.random.default_rng(1).normal(size=(60, 2))
    a, b = Region(frozenset({0, 1}), D, np.zeros(3)), Region(frozenset({2}), D, np.zeros(3))
    hull = np.array([hull_holds(D, {0, 1}, {2}, p) for p in points])
    larger = join(a, b, "region").contains(points)
    assert larger.all()  # nothing in common: the whole plane
    assert not hull.all()  # yet R({0, 1}) lies inside R({2}), which is the hull
    np.testing.assert_array_equal(hull, b.contains(points))
    same = join(a, a, "region").contains(points)
    hull = [hull_holds(D, {0, 1}, {0, 1}, p) for p in points]
    np.testing.assert_array_equal(same, hull)
    dependent = Region(frozenset({0, 1, 2}), D, np.zeros(3))  # three directions in the plane
    hull = [hull_holds(D, {0, 1, 2}, {0, 1, 2}, p) for p in points]
    np.testing.assert_array_equal(join(dependent, dependent, "region").contains(points), hull)


def fitted():
    rng = np.random.default_rng(0)
    V = rng.normal(size=(120, 8))
    return V, V[:, :4] + 0.2 * rng.normal(size=(120, 4)) > 0


def test_the_space_finds_the_meet_of_two_half_spaces():
    V, table = fitted()
    space = HalfSpaceSpace(AttributeDirections().fit(V, table), "abcd")
    np.testing.assert_array_equal(space.context(V).I, space.margins(V) >= 0)
    for name, rows in {
        "a": table[:, 0],
        "b": table[:, 1],
        "c": table[:, 2],
        "a and b": table[:, 0] & table[:, 1],
        "not a": ~table[:, 0],
    }.items():
        space.add(name, V[rows])
    a, b = space.profile(V[table[:, 0]]), space.profile(V[table[:, 1]])
    found = space.query(meet(a, b, "fca"), k=2, exclude=["a", "b"])
    assert found[0].name == "a and b"
    assert len(found) == 2
    assert found[0].score >= found[1].score
    assert len(space) == 5
    region = meet(space.region(a, 0.5), space.region(b, 0.5), "region")
    assert region.attributes == {0, 1}
    np.testing.assert_array_equal(region.contains(V), (space.margins(V)[:, :2] >= 0).all(axis=1))
    assert space.query(a, exclude=["a", "b", "c", "a and b", "not a"]) == []


def test_a_border_belongs_to_its_half_space_and_a_search_uses_the_temperature_of_its_space():
    model = AttributeDirections("mean", normalize=False).fit([[1.0, 0.0], [-1.0, 0.0]], [[1], [0]])
    space = HalfSpaceSpace(model)
    border = [[0.0, 3.0]]
    assert space.context(border).I.tolist() == [[True]]
    assert space.region(space.profile(border)).attributes == {0}
    assert Region(frozenset({0}), space.directions, space.thresholds).contains(border).tolist() == [True]
    for temperature in (1.0, 0.1):
        space = HalfSpaceSpace(model, temperature=temperature)
        a, b = space.add("a", [[2.0, 0.0]]), space.profile([[-1.0, 0.0]])
        assert space.query(b)[0].score == pytest.approx(soft_equivalence(a, b, temperature))


class Same:
    """The frame as it is."""

    def transform(self, V):
        return V


def test_a_cosine_cannot_tell_a_pair_from_its_reverse_and_a_size_sees_nothing_else():
    V, table = fitted()
    a, b = Concept(V[:5], 5), Concept(V[7:13], 40)
    cosine = CosineInclusion(Same(), 0).fit(V, table)
    np.testing.assert_allclose(cosine.score([a], [b]), cosine.score([b], [a]))
    size = SizeInclusion(Same(), 0)
    assert size.score([a], [b])[0] == pytest.approx(np.log(8))
    assert size.score([b], [a])[0] == pytest.approx(-np.log(8))


PROFILE = ConceptProfile([1.0, 2.0])
REGION = Region(frozenset({0}), np.eye(2), np.zeros(2))
SPACE = HalfSpaceSpace(AttributeDirections().fit(*fitted()))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ConceptProfile([[1.0]]), "values of shape (1, 1); allowed is (attributes,)"),
        (lambda: ConceptProfile.from_margins(np.zeros((0, 2))), "margins has shape (0, 2)"),
        (lambda: soft_inclusion(PROFILE, [1.0]), "A and B have 2 and 1 attributes"),
        (lambda: soft_inclusion(PROFILE, PROFILE, 0), "temperature=0; allowed is above 0"),
        (lambda: meet(PROFILE, PROFILE, "best"), "mode='best'; allowed are 'paper', 'fca', 'region'"),
        (lambda: meet(PROFILE, PROFILE, "region"), "A is a ConceptProfile; mode='region' takes a Region"),
        (lambda: join(PROFILE, REGION), "B is a Region; mode='paper' takes a ConceptProfile"),
        (lambda: join(REGION, Region(frozenset(), 2 * np.eye(2), np.zeros(2)), "region"), "different directions"),
        (lambda: join(PROFILE, ConceptProfile([1.0])), "A and B have 2 and 1 attributes"),
        (lambda: HalfSpaceSpace(AttributeDirections().fit(*fitted()), "ab"), "attributes has 2 labels"),
        (lambda: HalfSpaceSpace(AttributeDirections().fit(*fitted())).query(PROFILE, 0), "k=0; allowed is 1 or more"),
        (lambda: SPACE.query(PROFILE, exclude="a"), "exclude='a' is one text"),
        (lambda: SPACE.margins(np.ones(8)), "V has shape (8,); allowed is (objects, 8)"),
        (lambda: SPACE.context([[np.nan] * 8]), "V has entries that are not finite"),
        (lambda: REGION.contains([[1.0]]), "V has shape (1, 1); allowed is (objects, 2)"),
        (lambda: soft_inclusion(1.0, [1.0]), "A has shape (); allowed is (..., attributes)"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        call()
