"""Groups: orbits, representatives and orbit distances against every element written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.optimize.invariant_bo import (
    BlockPermutations,
    Cyclic,
    MatrixGroup,
    Permutations,
    PlanarRotations,
    Scaling,
    SignedPermutations,
    SignFlips,
)

from . import reference

FINITE = {
    "signs": (SignFlips(3), reference.signs(3)),
    "permutations": (Permutations(4), reference.permutations(4)),
    "signed": (SignedPermutations(3), reference.signed(3)),
    "blocks": (BlockPermutations(3, 2), reference.blocks(3, 2)),
    "blocks_of_one": (BlockPermutations(3, 1), reference.permutations(3)),
    "cyclic": (Cyclic(5), reference.rotations(5)),
    "matrices": (MatrixGroup(torch.tensor(np.array(reference.rotations(4)))), reference.rotations(4)),
}


def points(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", FINITE)
def test_the_orbit_is_that_of_all_matrices(name):
    group, matrices = FINITE[name]
    x = points(2, group.dim)
    images = group.act(x)
    assert images.shape == (len(matrices), 2, group.dim)
    assert group.order == len(matrices)
    torch.testing.assert_close(images[0], x)
    wanted = sorted(tuple(np.round(g @ x[0].numpy(), 9) + 0.0) for g in matrices)
    assert sorted(tuple(np.round(y.numpy(), 9) + 0.0) for y in images[:, 0]) == wanted


@pytest.mark.parametrize("name", FINITE)
def test_the_distance_of_orbits_is_the_least_over_all_elements(name):
    group, matrices = FINITE[name]
    x, y = points(4, group.dim, 1), points(3, group.dim, 2)
    brute = [[min(np.sum((a - g @ b) ** 2) for g in matrices) for b in y.numpy()] for a in x.numpy()]
    torch.testing.assert_close(group.min_sqdist(x, y), torch.tensor(np.array(brute)))
    batched = group.min_sqdist(x.expand(2, 4, -1), y)
    torch.testing.assert_close(batched, torch.tensor(np.array([brute, brute])))


@pytest.mark.parametrize("name", [n for n in FINITE if n != "matrices"])
def test_representatives_are_the_same_for_a_whole_orbit_and_belong_to_it(name):
    group, _ = FINITE[name]
    x = points(3, group.dim, 3)
    images = group.act(x)
    chosen = group.canonicalize(images)
    torch.testing.assert_close(chosen, group.canonicalize(x).expand_as(chosen))
    assert float((images - group.canonicalize(x)).abs().amax(-1).amin(0).max()) < 1e-9


@pytest.mark.parametrize("group", [group for group, _ in FINITE.values() if group.exact] + [PlanarRotations()], ids=str)
def test_exact_means_that_representatives_keep_the_distance(group):
    x, y = points(5, group.dim, 4), points(4, group.dim, 5)
    dense = Cyclic(20_000) if isinstance(group, PlanarRotations) else group
    kept = torch.cdist(group.canonicalize(x), group.canonicalize(y)).square()
    least = dense.reduce(x, y, lambda a, b: torch.cdist(a, b).square(), torch.minimum)
    torch.testing.assert_close(kept, least, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("group", [BlockPermutations(3, 2), Cyclic(3)], ids=str)
def test_inexact_means_that_representatives_do_not(group):
    x, y = points(40, group.dim, 4), points(40, group.dim, 5)
    kept = torch.cdist(group.canonicalize(x), group.canonicalize(y)).square()
    assert not group.exact
    assert bool((kept > group.min_sqdist(x, y) + 1e-3).any())


def test_many_blocks_are_matched_by_linear_assignment():
    few, many = BlockPermutations(5, 2), BlockPermutations(5, 2)
    many.ENUMERATE = 0
    x, y = points(3, 10).requires_grad_(), points(4, 10, 1)
    torch.testing.assert_close(many.min_sqdist(x, y), few.min_sqdist(x, y))
    gradients = [torch.autograd.grad(g.min_sqdist(x, y).sum(), x)[0] for g in (few, many)]
    torch.testing.assert_close(*gradients)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 47), st.integers(0, 47))
def test_orbit_distance_is_invariant_symmetric_and_below_the_distance(seed, i, j):
    group = SignedPermutations(3)
    x, y = points(1, 3, seed), points(1, 3, seed + 1)
    d = group.min_sqdist(x, y)
    torch.testing.assert_close(group.min_sqdist(group.act(x)[i], group.act(y)[j]), d)
    torch.testing.assert_close(group.min_sqdist(y, x), d)
    assert float(d) <= float((x - y).square().sum()) + 1e-12


def test_scaling_forgets_common_factors():
    group = Scaling()
    x = points(3, 2).exp()
    torch.testing.assert_close(group.canonicalize(7.0 * x), group.canonicalize(x))
    assert float(group.min_sqdist(x[:1], 3 * x[:1])) < 1e-20
    expected = ((x[0, 0] / x[0, 1]).log() - (x[1, 0] / x[1, 1]).log()).square() / 2
    torch.testing.assert_close(group.min_sqdist(x[:1], x[1:2])[0, 0], expected)


@pytest.mark.parametrize("group", [SignedPermutations(3), PlanarRotations(), Scaling()], ids=str)
def test_a_sample_of_images_starts_with_the_point_and_stays_in_the_orbit(group):
    x = points(4, group.dim).exp()
    images = group.sample(6, torch.Generator().manual_seed(1))(x)
    assert images.shape == (6, 4, group.dim)
    torch.testing.assert_close(images[0], x)
    assert float(torch.stack([group.min_sqdist(x, y).diagonal() for y in images]).max()) < 1e-20
    assert len({tuple(y.flatten().tolist()) for y in images}) == 6


def test_a_ray_belongs_to_the_orbit_and_stays_in_the_unit_square():
    group, x = Scaling(), 0.3 * points(4, 2).exp()
    ray = group.ray(x, 5)
    assert ray.shape == (5, 4, 2)
    torch.testing.assert_close(group.ray(7 * x, 5), ray)
    torch.testing.assert_close(ray.amax(-1), torch.logspace(-2, 0, 5, dtype=torch.float64)[:, None].expand(5, 4))
    assert float(torch.stack([group.min_sqdist(x, y).diagonal() for y in ray]).max()) < 1e-20


def test_a_sample_of_more_than_all_is_all():
    x = points(2, 2)
    torch.testing.assert_close(SignFlips(2).sample(9)(x), SignFlips(2).act(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SignFlips(0), "dim = 0: a whole number of at least 1"),
        (lambda: Permutations(2.5), "dim = 2.5: a whole number"),
        (lambda: BlockPermutations(3, 0), "size = 0"),
        (lambda: Cyclic(-1), "order = -1"),
        (
            lambda: SignFlips(3).min_sqdist(torch.zeros(2, 2), torch.zeros(2, 3)),
            r"x1 has shape \(2, 2\): SignFlips\(3\)",
        ),
        (lambda: PlanarRotations().act(torch.zeros(1, 2)), "infinitely many"),
        (lambda: Scaling().canonicalize(torch.tensor([[1.0, -2.0]])), "a value of -2.0: .* positive"),
        (lambda: MatrixGroup(torch.eye(2)), r"shape \(2, 2\): \(\|G\|, d, d\)"),
        (lambda: MatrixGroup(torch.stack([torch.eye(2), 2 * torch.eye(2)])), r"matrices\[1\] is not orthogonal"),
        (lambda: MatrixGroup(-torch.eye(2)[None]), "lack the identity"),
        (
            lambda: MatrixGroup(torch.tensor(np.array([np.eye(2), reference.rotations(3)[1]]))),
            "not closed: the product of elements 1 and 1",
        ),
        (lambda: MatrixGroup(torch.eye(2).expand(2, 2, 2)), "matrices 0 and 1 are the same"),
        (lambda: MatrixGroup(torch.full((1, 2, 2), math.nan)), "not orthogonal"),
        (lambda: MatrixGroup(torch.eye(2)[None]).canonicalize(torch.zeros(1, 2)), "no orbit representative"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_blocks_are_put_in_lexicographic_order():
    x = torch.tensor([[1.0, 0.0, 0.0, 5.0, 0.0, 2.0]])
    assert BlockPermutations(3, 2).canonicalize(x).tolist() == [[0.0, 2.0, 0.0, 5.0, 1.0, 0.0]]


def test_matrices_act_in_their_order_with_the_identity_first():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    powers = [torch.linalg.matrix_power(turn, i) for i in (1, 2, 0, 3)]
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    images = MatrixGroup(torch.stack(powers)).act(x)
    assert images.round().tolist() == [[[2.0, 1.0]], [[-1.0, 2.0]], [[-2.0, -1.0]], [[1.0, -2.0]]]
