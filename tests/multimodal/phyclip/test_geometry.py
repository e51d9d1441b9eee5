"""Lorentz operations against plain formulas, geoopt and their identities."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.multimodal.phyclip import ProductHyperbolic, pairwise, product_dist
from paperworks.multimodal.phyclip.geometry import lorentz

from . import reference

F64 = torch.float64
C = torch.tensor([0.3, 1.0, 4.0], dtype=F64)


def points(n, k=3, d=4, seed=0, size=1.0):
    return size * torch.randn(n, k, d, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.fixture(scope="module")
def pair():
    return lorentz.exp_map0(points(5), C), lorentz.exp_map0(points(4, seed=1), C)


def test_points_are_those_of_the_formula_and_come_back(pair):
    v = points(5)
    plain = [[reference.exp_map0(v[i, f].tolist(), float(C[f])) for f in range(3)] for i in range(5)]
    torch.testing.assert_close(pair[0], torch.tensor(plain, dtype=F64))
    torch.testing.assert_close(lorentz.log_map0(pair[0], C), v)
    on_it = pair[0].square().sum(-1) - lorentz.time(pair[0], C).square()
    torch.testing.assert_close(on_it, (-1 / C).expand(5, 3))


def test_the_norm_of_a_tangent_vector_is_the_distance_from_the_origin(pair):
    origin = torch.zeros_like(pair[0])
    torch.testing.assert_close(lorentz.dist(origin, pair[0], C), points(5).norm(dim=-1))


def test_distances_are_those_of_the_formula(pair):
    x, y = pair
    plain = [[[reference.dist(a[f].tolist(), b[f].tolist(), float(C[f])) for b in y] for a in x] for f in range(3)]
    torch.testing.assert_close(lorentz.pairwise_dist(x, y, C), torch.tensor(plain, dtype=F64))
    torch.testing.assert_close(lorentz.dist(x[:4], y, C), torch.tensor(plain, dtype=F64).diagonal(dim1=1, dim2=2).mT)
    flat = [[[reference.inner(a[f].tolist(), b[f].tolist(), float(C[f])) for b in y] for a in x] for f in range(3)]
    torch.testing.assert_close(lorentz.pairwise_inner(x, y, C), torch.tensor(flat, dtype=F64))


def test_angles_and_apertures_are_those_of_the_triangle(pair):
    x, y = pair[0][:4], pair[1]
    for i in range(4):
        for f, c in enumerate(C.tolist()):
            a, b = x[i, f].tolist(), y[i, f].tolist()
            assert float(lorentz.oxy_angle(x[i, f], y[i, f], c)) == pytest.approx(reference.angle(a, b, c), abs=1e-6)
            got = float(lorentz.half_aperture(x[i, f], c, 0.2))
            assert got == pytest.approx(reference.aperture(a, c, 0.2), abs=2e-3 if got > 1.5 else 1e-9)


def test_a_point_straight_behind_the_apex_lies_in_its_axis_and_the_origin_opposite():
    x = torch.tensor([0.6, 0.8], dtype=F64)
    behind, before = 3 * x, 0.2 * x
    assert float(lorentz.oxy_angle(x, behind)) < 2e-3  # clamped before acos
    assert float(lorentz.oxy_angle(x, before)) > math.pi - 2e-3
    assert float(lorentz.oxy_angle(x, x)) == 0
    assert float(lorentz.oxy_angle(0 * x, x)) == 0
    assert float(lorentz.half_aperture(0 * x)) == pytest.approx(math.pi / 2, abs=2e-3)


def test_angles_and_distances_of_near_points_are_right_in_single_precision():
    v = points(200, 3, 4, 5).float()
    x = lorentz.exp_map0(v, C.float())
    assert float(lorentz.oxy_angle(x, x, C.float()).abs().max()) == 0
    y = lorentz.exp_map0(v + 1e-3 * points(200, 3, 4, 6).float(), C.float())
    for function in (lorentz.oxy_angle, lambda *a: lorentz.dist(*a, eps=1e-12)):
        torch.testing.assert_close(
            function(x, y, C.float()).double(), function(x.double(), y.double(), C), rtol=2e-3, atol=2e-4
        )


def test_geoopt_agrees(pair):
    geoopt = pytest.importorskip("geoopt")
    x, y = pair[0][:4], pair[1]
    for f, c in enumerate(C.tolist()):
        manifold = geoopt.manifolds.Lorentz(k=1 / c)  # wants 1/c, and the time first
        whole = [torch.cat([lorentz.time(p[:, f], c).unsqueeze(-1), p[:, f]], -1) for p in (x, y)]
        torch.testing.assert_close(lorentz.dist(x[:, f], y[:, f], c), manifold.dist(*whole), rtol=1e-6, atol=1e-8)
        origin = torch.zeros(4, 5, dtype=F64)
        tangent = torch.cat([origin[:, :1], points(5)[:4, f]], -1)
        lifted = manifold.expmap0(tangent)
        torch.testing.assert_close(lifted[:, 1:], x[:, f], rtol=1e-6, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(0.01, 3))
def test_distances_are_a_metric(seed, c, size):
    x, y, z = (lorentz.exp_map0(points(1, 1, 3, seed + i, size)[0, 0], c) for i in range(3))
    d = lambda a, b: float(lorentz.dist(a, b, c))  # noqa: E731
    assert d(x, y) == pytest.approx(d(y, x))
    assert d(x, z) <= d(x, y) + d(y, z) + 1e-6
    assert d(x, x) <= math.sqrt(2.1e-6 / c)


def test_with_little_curvature_the_space_is_flat():
    v, w = points(6, 1, 3), points(6, 1, 3, 1)
    c = torch.tensor([1e-6], dtype=F64)
    got = lorentz.dist(lorentz.exp_map0(v, c), lorentz.exp_map0(w, c), c, eps=1e-15)
    torch.testing.assert_close(got, (v - w).norm(dim=-1), rtol=1e-4, atol=1e-4)


def test_large_vectors_do_not_overflow_and_small_ones_do_not_vanish():
    big = lorentz.exp_map0(torch.tensor([1e4, 0.0]), 1.0)
    assert big.tolist() == [pytest.approx(2.0**15, rel=1e-3), 0]
    assert bool(torch.isfinite(lorentz.dist(big, -big)))
    zero = torch.zeros(2, requires_grad=True)
    lorentz.exp_map0(zero).sum().backward()
    assert zero.grad.tolist() == [1, 1]


@pytest.mark.parametrize("metric", ["l1", "l2", "linf"])
def test_the_product_is_that_of_the_formula_with_its_gradients(pair, metric):
    x, y = pair
    got = product_dist(x, y, C, metric)
    np.testing.assert_allclose(got.numpy(), reference.product(x.tolist(), y.tolist(), C.tolist(), metric), rtol=1e-9)
    inputs = [t.clone().requires_grad_() for t in (x, y, C)]
    assert torch.autograd.gradcheck(lambda *a: product_dist(*a, metric), inputs, eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("metric", ["l1", "l2", "linf"])
def test_the_product_has_the_gradients_of_autograd(pair, metric):
    space = ProductHyperbolic(3, 4, metric=metric).double()
    weight = points(5, 4, 1, 7)[..., 0]
    found = []
    for distance in (space.dist, lambda a, b: _reduced(space.factor_dist(a, b), metric)):
        inputs = [t.clone().requires_grad_() for t in pair]
        total = (distance(*inputs) * weight).sum()
        found.append(torch.autograd.grad(total, [*inputs, space.log_curv]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def _reduced(parts, metric):
    return parts.sum(0) if metric == "l1" else parts.square().sum(0).sqrt() if metric == "l2" else parts.amax(0)


def test_equal_points_have_no_gradient_and_no_nan(pair):
    x = pair[0].clone().requires_grad_()
    product_dist(x, pair[0], C).diagonal().sum().backward()
    assert x.grad.abs().max() == 0


@pytest.mark.parametrize("metric", ["l1", "l2", "linf"])
def test_factors_in_parts_give_the_same(pair, metric, monkeypatch):
    found = []
    for together in (2**19, 1, 45):  # all factors, one by one, two and one
        monkeypatch.setattr(pairwise, "TOGETHER", together)
        inputs = [t.clone().requires_grad_() for t in (*pair, C)]
        total = product_dist(*inputs, metric)
        found.append([total, *torch.autograd.grad(total.square().sum(), inputs)])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b)


def test_memory_on_the_way_back_is_that_of_one_factor():
    kept = []

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    x = torch.randn(50, 16, 2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        product_dist(x, x, torch.ones(16))
    assert max(kept) == 50 * 16 * 2  # the points, and no (factors, n, m)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(2, 3, 4), torch.zeros(2, 2, 4), torch.ones(3)), r"y \(2, 2, 4\)"),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), torch.ones(2)), r"c \(2,\)"),
        ((torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), torch.ones(3), "l3"), "metric = 'l3': one of l1, l2, linf"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        product_dist(*arguments)
