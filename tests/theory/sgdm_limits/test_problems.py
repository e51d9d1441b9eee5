"""Losses, the law of one gradient and its moments."""

import math
import re

import numpy as np
import pytest
import sympy
import torch

from paperworks.theory.sgdm_limits.algorithms import eta
from paperworks.theory.sgdm_limits.problems import N_LIMIT, SingleIndex, SpikedTensorPCA

from . import reference

LINKS = {
    "x^2": (lambda z: z * z, lambda z: 2 * z),
    "x^3": (lambda z: z * z * z, lambda z: 3 * z * z),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "sin": (np.sin, np.cos),
}


@pytest.mark.parametrize("k", [2, 3, 4])
def test_loss_and_its_gradient_equal_the_reference(k):
    rng = np.random.default_rng(k)
    problem, x = SpikedTensorPCA(k, 0.7), rng.standard_normal(3)
    y = problem.sample(3, rng)
    assert problem.loss(x, y) == pytest.approx(reference.tensor_loss(x, y), rel=1e-12)
    leaf = torch.tensor(x, requires_grad=True)
    (g,) = torch.autograd.grad(problem.loss(leaf, torch.tensor(y)), leaf)
    np.testing.assert_allclose(g.numpy(), reference.tensor_gradient(x, y), rtol=1e-10)
    assert torch.autograd.gradcheck(lambda x: problem.loss(x, torch.tensor(y)), leaf)


def test_sample_has_the_signal_in_its_first_entry():
    for k in (2, 3):
        noise = SpikedTensorPCA(k, 0.0).sample(4, np.random.default_rng(0))
        signal = SpikedTensorPCA(k, 2.5).sample(4, np.random.default_rng(0)) - noise
        assert noise.shape == (4,) * k
        assert signal.flat[0] == pytest.approx(2.5)
        assert not signal.ravel()[1:].any()


def test_single_index_loss_and_gradient():
    problem = SingleIndex(lambda z: z**3, lambda z: 3 * z * z, 0.2)
    rng = np.random.default_rng(0)
    a, y = problem.sample(5, rng)
    x = rng.standard_normal(5)
    leaf = torch.tensor(x, requires_grad=True)
    loss = problem.loss(leaf, (torch.tensor(a), torch.tensor(y)))
    assert loss.item() == pytest.approx((float(a @ x) ** 3 - float(y)) ** 2)
    (g,) = torch.autograd.grad(loss, leaf)
    np.testing.assert_allclose(g.numpy(), 2 * ((a @ x) ** 3 - y) * 3 * (a @ x) ** 2 * a, rtol=1e-10)
    assert torch.autograd.gradcheck(lambda x: problem.loss(x, (torch.tensor(a), torch.tensor(y))), leaf)


@pytest.mark.parametrize("k", [2, 3])
def test_covariance_of_the_gradient_noise_by_algebra(k):
    """G is linear in W: the sum of products of its coefficients is k R^(2k-2) I + k(k-1) R^(2k-4) x x^T."""
    x = sympy.symbols("x:2")
    square = sum(v**2 for v in x)
    coefficients = [{}, {}]  # of each entry of W in each component of G
    for at in np.ndindex(*[2] * k):
        for place, i in enumerate(at):
            term = sympy.prod(x[j] for other, j in enumerate(at) if other != place)
            coefficients[i][at] = coefficients[i].get(at, 0) + term
    for i in range(2):
        for j in range(2):
            covariance = sum(coefficients[i].get(at, 0) * coefficients[j].get(at, 0) for at in np.ndindex(*[2] * k))
            ours = k * square ** (k - 1) * int(i == j) + k * (k - 1) * square ** (k - 2) * x[i] * x[j]
            assert sympy.expand(covariance - ours) == 0


def gradients(problem, m, r, n, count, rng):
    """Components of many gradients at one point, shape (3, count), and the squared lengths beyond them."""
    z = rng.standard_normal((problem.normals, count))
    noise = (z[0], z[1], z[2], rng.chisquare(n - 3, count), *z[3:])
    g = problem.components(np.float64(m), np.float64(r), noise)
    amplitude = 1.0 if g.amplitude is None else g.amplitude
    return amplitude * np.stack([g.g0, g.g1, g.g2]), amplitude**2 * g.rest


@pytest.mark.parametrize("k", [2, 3])
def test_components_have_the_law_of_a_tensors_gradient(k):
    """Means, covariances and the squared length, within 5 standard errors, at n = 5."""
    n, count, rng = 5, 12_000, np.random.default_rng(1)
    problem, m, r = SpikedTensorPCA(k, 1.3), 0.6, 0.8
    x = np.zeros((count, n))
    x[:, 0], x[:, 1] = m, r
    for draw in (problem.tensor_gradient, problem.vector_gradient):
        if draw is problem.tensor_gradient and k == 3:
            x = x[:3000]
        g = draw(x, rng)
        ours, rest = gradients(problem, m, r, n, count, rng)
        theirs = [g[:, 0], g[:, 1], g[:, 2], (g**2).sum(axis=1), g[:, 0] * g[:, 1], g[:, 1] ** 2, g[:, 0] ** 2]
        own = [*ours, (ours**2).sum(axis=0) + rest, ours[0] * ours[1], ours[1] ** 2, ours[0] ** 2]
        for a, b in zip(own, theirs, strict=True):
            error = math.sqrt(a.var() / len(a) + b.var() / len(b))
            assert abs(a.mean() - b.mean()) < 5 * error
        x = x[:count]


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("name", ["sgd", "unit"])
def test_tensor_moments_equal_the_closure(k, name):
    """The quasi Monte Carlo sample has 2^14 points: means agree to 1e-3 of the gradient's size."""
    problem = SpikedTensorPCA(k, 1.1)
    u = np.array([[0.5, 0.6], [0.0, 1.0], [1.1, 0.0]])
    exact, sampled = problem.moments(u, name), problem.closure(u, name)
    scale = np.sqrt(exact.square)
    np.testing.assert_allclose(sampled.square, exact.square, rtol=1e-6)
    assert np.abs((sampled.mean - exact.mean) / scale[:, None]).max() < 1e-3
    assert np.abs((sampled.covariance - exact.covariance) / scale[:, None, None] ** 2).max() < 3e-3


def test_index_moments_equal_the_closure():
    problem = SingleIndex(np.sin, np.cos, 0.3)
    u = np.array([[0.5, 0.6], [0.9, 0.2]])
    for name in ("sgd", "unit"):
        exact, sampled = problem.moments(u, name), problem.closure(u, name)
        for a, b in zip(exact, sampled, strict=True):
            np.testing.assert_allclose(a, b, atol=5e-3)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("unit", [False, True])
def test_index_moments_equal_the_midpoint_rule(name, noise, unit):
    """The reference steps over the sign's jumps in cells of 1/70: its error is about 1e-3."""
    f, fprime = LINKS[name]
    m, r2 = 0.5, 0.6
    got = SingleIndex(f, fprime, noise).moments(np.array([m, r2]), "unit" if unit else "sgd")
    want = reference.index_rate(f, fprime, noise, m, r2, 0.7, 0.0, unit)
    ours = -got.mean[0], -2 * math.sqrt(r2) * got.mean[1] + 0.7 * got.square
    np.testing.assert_allclose(ours, want, rtol=2e-3, atol=2e-3)


def test_a_flat_part_of_the_link_has_no_sign():
    """For the positive part, f'(Z) = 0 half of the time: sign(0) = 0, and |h|^2/n is the share of the rest."""
    problem = SingleIndex(lambda z: np.maximum(z, 0.0), lambda z: (np.asarray(z) > 0).astype(float), 0.0)
    got = problem.moments(np.array([0.7, 0.5]), "unit")
    assert got.square == pytest.approx(0.5, abs=1e-3)
    dm, dr2 = reference.index_rate(problem.f, problem.fprime, 0.0, 0.7, 0.5, 1.0, 0.0, True)
    np.testing.assert_allclose(-got.mean[0], dm, atol=2e-3)
    np.testing.assert_allclose(-2 * math.sqrt(0.5) * got.mean[1] + got.square, dr2, atol=2e-3)


def test_second_moments_with_a_flat_part():
    """f'(Z) = 0 below h = 0.5: with w = (A, B), x = h/q, E[1(Z > h) w w^T] = P I + x phi(x) Corr(w, Z) Corr(w, Z)^T."""
    problem = SingleIndex(lambda z: np.maximum(z - 0.5, 0.0), lambda z: (np.asarray(z) > 0.5).astype(float), 0.0)
    m, r2 = 0.7, 0.5
    got = problem.moments(np.array([m, r2]), "unit")
    q = math.sqrt(m * m + r2)
    x, rho = 0.5 / q, np.array([m, math.sqrt(r2)]) / q
    share = 0.5 * math.erfc(x / math.sqrt(2))
    want = share * np.eye(2) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * np.outer(rho, rho)
    assert got.square == pytest.approx(share, abs=1e-3)
    np.testing.assert_allclose(got.covariance + np.outer(got.mean, got.mean), want, atol=2e-3)


def test_second_moments_of_the_sign():
    """S^2 = 1 almost surely for a link without flat parts, so that E[S^2 (A, B)(A, B)^T] = I."""
    got = SingleIndex(*LINKS["x^3"], 0.3).moments(np.array([0.4, 0.9]), "unit")
    np.testing.assert_allclose(got.covariance + np.outer(got.mean, got.mean), np.eye(2), atol=1e-6)
    assert got.square == pytest.approx(1.0, abs=1e-9)


def test_noise_enters_the_square_only():
    u = np.array([0.4, 0.9])
    quiet, loud = (SingleIndex(*LINKS["x^3"], s).moments(u, "sgd") for s in (0.0, 0.5))
    np.testing.assert_allclose(quiet.mean, loud.mean, rtol=1e-12)
    slope = 0.4**2 + 0.9  # variance of Z; E f'(Z)^2 = 9 E Z^4 = 27 var^2
    assert loud.square - quiet.square == pytest.approx(4 * 0.25 * 27 * slope**2, rel=1e-9)


def test_huge_and_tiny_links_keep_their_sign():
    """Residuals of 1e200 would overflow when squared; unit gradients need their sign only."""
    for size in (1e-180, 1e180):
        problem = SingleIndex(lambda z, size=size: size * z, lambda z: 1.0 + 0.0 * np.asarray(z), 0.0)
        plain = SingleIndex(lambda z: z, lambda z: 1.0 + 0.0 * np.asarray(z), 0.0)
        a, b = (p.simulate(50, 0.5, algorithm="unit", steps=200, batch=2, seed=3) for p in (problem, plain))
        assert a.m[-1, 0] != a.m[0, 0]
        np.testing.assert_allclose(a.m, b.m, rtol=1e-12)


def test_unit_factor_of_a_zero_gradient_is_zero():
    assert eta("unit", np.array([0.0, 2.0])).tolist() == [0.0, 0.5]


def test_components_at_the_origin_are_finite():
    for problem in (SpikedTensorPCA(2, 1.0), SpikedTensorPCA(3, 1.0), SingleIndex(*LINKS["x^2"])):
        z = np.ones(problem.normals)
        parts = problem.components(np.float64(0.0), np.float64(0.0), (*z[:3], N_LIMIT, *z[3:]))
        assert all(np.isfinite(p).all() for p in parts if p is not None)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SpikedTensorPCA(1, 1.0), "k=1; allowed are 2, 3, ..."),
        (lambda: SpikedTensorPCA(2.0, 1.0), "k=2.0; allowed are 2, 3, ..."),
        (lambda: SpikedTensorPCA(2, -1.0), "lam=-1.0; allowed are finite numbers of at least 0"),
        (lambda: SpikedTensorPCA(2, math.nan), "lam=nan; allowed"),
        (lambda: SingleIndex(1, np.cos), "f=1; allowed are functions"),
        (lambda: SingleIndex(np.sin, "cos"), "fprime='cos'; allowed are functions"),
        (lambda: SingleIndex(np.sin, np.cos, -0.1), "noise=-0.1; allowed"),
        (
            lambda: SpikedTensorPCA(2, 1.0).loss(np.ones(3), np.ones((2, 2))),
            "sample has shape (2, 2); allowed is (3, 3)",
        ),
        (
            lambda: SingleIndex(np.sin, np.cos).loss(np.ones(3), (np.ones(2), 1.0)),
            "sample has a of shape (2,); allowed",
        ),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
