"""The limiting equation: its right side, thresholds, fixed points, solvers, and what the paper's propositions say."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.theory.sgdm_limits.dynamics import EffectiveDynamics
from paperworks.theory.sgdm_limits.problems import SingleIndex, SpikedTensorPCA

from . import reference

numbers = st.floats(0.05, 2.0)
betas = st.floats(0.0, 0.95)
MONOTONE = {
    "z": (lambda z: z, lambda z: np.ones_like(z)),
    "z^3": (lambda z: z**3, lambda z: 3 * z * z),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "-exp": (lambda z: -np.exp(z), lambda z: -np.exp(z)),
}


def power(k):
    return lambda z: z**k, lambda z: k * z ** (k - 1)


def clipping(tau):
    return lambda s: np.minimum(1.0, tau / s)


@settings(max_examples=40, deadline=None)
@given(numbers, numbers, st.sampled_from([2, 3, 4]), numbers, numbers, betas, st.booleans())
def test_right_side_equals_the_formulas(m, r2, k, lam, c, beta, unit):
    d = EffectiveDynamics(SpikedTensorPCA(k, lam), beta, c, "unit" if unit else "sgd")
    want = reference.pca_rate(m, r2, k, lam, c, beta, unit)
    scale = 1 + np.abs(d.drift(np.array([m, r2]))).max()
    np.testing.assert_allclose(d.velocity(np.array([m, r2])), want, rtol=1e-9, atol=1e-11 * scale)


@settings(max_examples=10, deadline=None)
@given(numbers, numbers, numbers, betas, st.sampled_from(["sgd", "unit", "clip"]), st.booleans())
def test_momentum_is_a_larger_step_in_a_new_time(m, r2, c, beta, name, tensor):
    """SGD with c/(1 - beta), its time divided by 1 - beta, has the drift, corrector and noise of SGD-M with c."""
    algorithm = clipping(1.5) if name == "clip" else name
    problem = SpikedTensorPCA(3, 1.2) if tensor else SingleIndex(*power(2), 0.0)
    u = np.array([[m, r2], [-m, 2 * r2]])
    slow = EffectiveDynamics(problem, beta, c, algorithm)
    fast = EffectiveDynamics(problem, 0.0, c / (1 - beta), algorithm)
    for name in ("drift", "corrector", "velocity", "diffusion"):
        np.testing.assert_allclose(getattr(slow, name)(u), getattr(fast, name)(u) / (1 - beta), rtol=1e-9)


def test_drift_follows_the_population_loss_and_the_corrector_is_its_variance():
    """For SGD the drift is that of the gradient flow of R^(2k) - 2 lam m^k, by algebra; c drives the rest."""
    m, r2, lam, t = sympy.symbols("m r2 lam t", positive=True)
    for k in (2, 3):
        loss = (m**2 + r2) ** k - 2 * lam * m**k
        flow = [-sympy.diff(loss, m), -2 * sympy.sqrt(r2) * sympy.diff(loss.subs(r2, t**2), t).subs(t, sympy.sqrt(r2))]
        at = {m: 0.7, r2: 0.4, lam: 1.3}
        d = EffectiveDynamics(SpikedTensorPCA(k, 1.3), c=0.6)
        np.testing.assert_allclose(d.drift(np.array([0.7, 0.4])), [float(f.subs(at)) for f in flow], rtol=1e-10)
        got = d.corrector(np.array([0.7, 0.4]))
        assert got[0] == 0
        assert got[1] == pytest.approx(4 * k * 0.6 * (0.7**2 + 0.4) ** (k - 1))


@pytest.mark.parametrize("unit", [False, True])
def test_fixed_points_of_matrix_pca_by_algebra(unit):
    """sympy solves the printed equations; ours finds the same point, and none below the threshold."""
    square, r2 = sympy.symbols("square r2", positive=True)
    lam, c, beta = sympy.Rational(3, 2), sympy.Rational(1, 2), 0 if unit else sympy.Rational(1, 4)
    if unit:
        equations = [lam - square, -2 * sympy.sqrt(2) * sympy.sqrt(square) * r2 + c]
    else:
        equations = [lam - square, -8 * square * r2 / (1 - beta) + 8 * c * square / (1 - beta) ** 2]
    (solution,) = sympy.solve(equations, [square, r2], dict=True)
    residual = float(solution[r2])
    d = EffectiveDynamics(SpikedTensorPCA(2, 1.5), float(beta), 0.5, "unit" if unit else "sgd")
    u, stable = d.fixed_points()
    np.testing.assert_allclose(u[0], [math.sqrt(1.5 - residual), residual], rtol=1e-10)
    assert stable.tolist() == [True, False]
    assert u[1, 0] == 0
    np.testing.assert_allclose(d.velocity(u), 0, atol=1e-9)
    below = EffectiveDynamics(SpikedTensorPCA(2, 0.99 * d.critical_snr()), float(beta), 0.5, d.algorithm)
    u, stable = below.fixed_points()
    assert u.shape == (1, 2)
    assert u[0, 0] == 0
    assert stable.tolist() == [True]


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 5.0), st.floats(0.0, 0.95), st.floats(0.1, 5.0))
def test_thresholds_of_matrix_pca(c, beta, lam):
    problem = SpikedTensorPCA(2, lam)
    assert EffectiveDynamics(problem, beta, c).critical_snr() == pytest.approx(c / (1 - beta), rel=1e-9)
    assert EffectiveDynamics(problem, 0.0, c, "unit").critical_snr() == pytest.approx(0.5 * c ** (2 / 3), rel=1e-9)
    assert EffectiveDynamics(problem, beta).max_step() == pytest.approx((1 - beta) * lam, rel=1e-8)
    assert EffectiveDynamics(problem, 0.0, 1.0, "unit").max_step() == pytest.approx(8**0.5 * lam**1.5, rel=1e-8)


def test_unit_gradients_leave_the_smaller_residual_above_the_papers_threshold():
    """c/(2 sqrt(2 lam)) < c/(1 - beta) exactly when lam > (1 - beta)^2 / 8."""
    for beta in (0.0, 0.5):
        edge = (1 - beta) ** 2 / 8
        for lam, smaller in ((0.98 * edge, False), (1.02 * edge, True)):
            c = 1e-3 * edge
            unit = EffectiveDynamics(SpikedTensorPCA(2, lam), c=c, algorithm="unit").fixed_points().u[0, 1]
            plain = EffectiveDynamics(SpikedTensorPCA(2, lam), beta, c).fixed_points().u[0, 1]
            assert (unit < plain) == smaller


@pytest.mark.parametrize("k", [3, 4])
@pytest.mark.parametrize("algorithm", ["sgd", "unit", clipping(0.8)])
def test_higher_orders(k, algorithm):
    """All points found stand still; two with m > 0 above the critical lambda, none below; m = 0 is always stable."""
    d = EffectiveDynamics(SpikedTensorPCA(k, 1.0), 0.3, 0.4, algorithm)
    edge = d.critical_snr()
    for lam, count in ((0.999 * edge, 0), (1.001 * edge, 2), (2 * edge, 2)):
        there = EffectiveDynamics(SpikedTensorPCA(k, lam), 0.3, 0.4, algorithm)
        u, stable = there.fixed_points()
        positive = u[:, 0] > 0
        assert positive.sum() == count
        np.testing.assert_allclose(there.velocity(u), 0, atol=1e-8)
        assert stable[~positive].all()
        if count:
            assert stable[positive].tolist() == [True, False]
    at_edge = EffectiveDynamics(SpikedTensorPCA(k, edge), 0.3, 0.4, algorithm)
    assert at_edge.max_step() == pytest.approx(0.4, rel=1e-6)


@pytest.mark.parametrize("k", [3, 4])
def test_critical_signal_of_higher_orders_by_calculus(k):
    """SGD: minimise (m^2 + r^2)^(k-1) / m^(k-2) with r^2 = c/(1 - beta): m^2 = r^2 (k - 2)/k."""
    r2 = 0.4 / 0.7
    m2 = r2 * (k - 2) / k
    want = (m2 + r2) ** (k - 1) / m2 ** ((k - 2) / 2)
    assert EffectiveDynamics(SpikedTensorPCA(k, 1.0), 0.3, 0.4).critical_snr() == pytest.approx(want, rel=1e-8)


@pytest.mark.parametrize("k", [2, 3])
def test_proposition_3_8_stability_of_the_optimum(k):
    """f = z^k without noise: (1, 0) is stable for SGD-M exactly for c < (1 - beta)/k^2 (2k-3)!!/(4k-5)!!.

    Derived again: to first order res = f'(A)((m - 1) A + r B), so that r^2 changes at the rate
    -4 E f'^2 / (1 - beta) + 4 c E f'^4 / (1 - beta)^2; the two moments are those of a normal, checked by sympy.
    """
    z = sympy.symbols("z", real=True)
    density = sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    second, fourth = (sympy.integrate((k * z ** (k - 1)) ** p * density, (z, -sympy.oo, sympy.oo)) for p in (2, 4))
    assert second == k**2 * sympy.factorial2(2 * k - 3)
    assert fourth == k**4 * sympy.factorial2(4 * k - 5)
    for beta in (0.0, 0.6):
        edge = (1 - beta) / k**2 * float(sympy.factorial2(2 * k - 3) / sympy.factorial2(4 * k - 5))
        for c, stable in ((0.98 * edge, True), (1.02 * edge, False)):
            d = EffectiveDynamics(SingleIndex(*power(k)), beta, c)
            np.testing.assert_allclose(d.velocity(np.array([1.0, 0.0])), 0, atol=1e-9)
            assert (np.linalg.eigvals(d.jacobian(np.array([1.0, 0.0]))).real.max() < 0) == stable
        rate = -4 * float(second) / (1 - beta) + 4 * edge * float(fourth) / (1 - beta) ** 2
        assert rate == pytest.approx(0, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.floats(-0.5, 1.5), st.floats(0.02, 2.0), numbers, st.sampled_from(sorted(MONOTONE)))
def test_proposition_3_9_universal_limit_of_monotone_links(m, r2, c, name):
    """Without noise, unit gradients see the order of Z and A only: one equation for all strictly monotone links."""
    d = EffectiveDynamics(SingleIndex(*MONOTONE[name]), c=c, algorithm="unit")
    q = math.sqrt((m - 1) ** 2 + r2)
    root = math.sqrt(2 / math.pi)
    want = [-root * (m - 1) / q, -2 * root * r2 / q + c]
    np.testing.assert_allclose(d.velocity(np.array([m, r2])), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["z", "z^3", "tanh"])
def test_proposition_3_9_fixed_point(name):
    for c in (0.1, 0.6):
        u, stable = EffectiveDynamics(SingleIndex(*MONOTONE[name]), c=c, algorithm="unit").fixed_points()
        assert u.shape == (1, 2)
        np.testing.assert_allclose(u[0], [1.0, math.pi * c * c / 8], rtol=1e-5)
        assert stable.tolist() == [True]


def test_a_little_noise_changes_little():
    u = np.array([[0.6, 0.4], [1.0, 0.2]])
    quiet, noisy = (
        EffectiveDynamics(SingleIndex(*MONOTONE["z^3"], noise), algorithm="unit").velocity(u) for noise in (0.0, 1e-3)
    )
    np.testing.assert_allclose(noisy, quiet, atol=2e-2)
    assert not np.array_equal(noisy, quiet)


def test_erratum_of_proposition_3_4():
    """Near m = 0 unit gradients follow dm~ = sqrt(2) m~ (lam - r^2)/r dt + sqrt(c) dB for k = 2, not what is printed.

    One step of the algorithm itself at n = 10,000, exact in law, from m~ = 3, r = 0.7: its mean and variance a unit of
    time are ours. Antithetic noise takes the large odd part out of the mean.
    """
    n, lam, r, scaled, c, count = 10_000, 0.3, 0.7, 3.0, 1.0, 400_000
    problem, rng = SpikedTensorPCA(2, lam), np.random.default_rng(0)
    z, chi = rng.standard_normal((3, count)), rng.chisquare(n - 3, count)
    m, steps = scaled / math.sqrt(n), []
    for sign in (1.0, -1.0):
        g = problem.components(np.float64(m), np.float64(r), (*(sign * z), chi))
        length = np.sqrt(g.g0**2 + g.g1**2 + g.g2**2 + g.rest)
        steps.append(-math.sqrt(n) * (c / n) * math.sqrt(n) / length * g.g0)  # of m~
    pair = (steps[0] + steps[1]) / 2
    drift = pair.mean() * n / c
    error = pair.std() / math.sqrt(count) * n / c
    variance = steps[0].var() * n / c
    ours = math.sqrt(2) * scaled * (lam - r * r) / r
    printed = scaled * (lam / r - r)
    printed_variance = c * (scaled**2 / r**2 + 1)
    assert error < 0.02
    assert abs(drift - ours) < 5 * error + 0.01  # the second term: corrections of order m~/sqrt(n)
    assert abs(drift - printed) > 10 * error
    assert variance == pytest.approx(c, rel=0.02)
    assert variance < printed_variance / 10
    d = EffectiveDynamics(problem, c=c, algorithm="unit")
    assert d.escape_rate(r * r) * scaled == pytest.approx(ours, rel=1e-6)
    assert d.diffusion(np.array([0.0, r * r]))[0, 0] == pytest.approx(c, rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_diffusive_limit_of_sgd_near_zero(beta):
    """k = 2: dm~ = 4/(1 - beta) m~ (lam - r^2) dt + sqrt(8 c) r/(1 - beta) dB; at k = 3 the drift has no signal."""
    d = EffectiveDynamics(SpikedTensorPCA(2, 0.9), beta, 0.7)
    assert d.escape_rate(0.4) == pytest.approx(4 / (1 - beta) * (0.9 - 0.4), rel=1e-5)
    assert d.escape_rate(1.5) < 0  # mean-repelling only while r^2 < lambda
    assert d.diffusion(np.array([0.0, 0.4]))[0, 0] == pytest.approx(8 * 0.7 * 0.4 / (1 - beta) ** 2)
    third = EffectiveDynamics(SpikedTensorPCA(3, 0.9), beta, 0.7)
    assert third.escape_rate(0.4) == pytest.approx(-6 * 0.4**2 / (1 - beta), rel=1e-3)


def test_diffusion_is_the_covariance_of_one_step():
    """n delta J Cov(g) J^T, by sampling the O(n) gradient at n = 50."""
    problem, rng, n = SpikedTensorPCA(3, 1.2), np.random.default_rng(0), 50
    m, r = 0.6, 0.9
    x = np.zeros((20_000, n))
    x[:, 0], x[:, 1] = m, r
    g = problem.vector_gradient(x, rng)
    moved = np.stack([g[:, 0], 2 * r * g[:, 1]])
    want = EffectiveDynamics(problem, 0.5, 0.7).diffusion(np.array([m, r * r]))
    np.testing.assert_allclose(0.7 * np.cov(moved) / 0.25, want, rtol=0.06)


def test_ode_goes_to_the_stable_fixed_point():
    for algorithm, beta in (("sgd", 0.5), ("unit", 0.0), (clipping(1.0), 0.2)):
        d = EffectiveDynamics(SpikedTensorPCA(2, 1.5), beta, 0.5, algorithm)
        path = d.solve_ode(np.array([0.3, 1.0]), np.array([0.0, 1.0, 60.0]))
        np.testing.assert_allclose(path[0], [0.3, 1.0])
        np.testing.assert_allclose(path[-1], d.fixed_points().u[0], rtol=1e-5)


def test_ode_against_small_euler_steps():
    d = EffectiveDynamics(SpikedTensorPCA(3, 2.0), 0.3, 0.2, "unit")
    u, dt = np.array([0.5, 0.8]), 1e-3
    for _ in range(2000):
        rate = np.array(reference.pca_rate(*u, 3, 2.0, 0.2, 0.3, True))
        u = u + dt * rate
    np.testing.assert_allclose(d.solve_ode(np.array([0.5, 0.8]), np.array([0.0, 2.0]))[-1], u, rtol=2e-3)


def test_m_equal_to_zero_is_kept():
    for k in (2, 3):
        d = EffectiveDynamics(SpikedTensorPCA(k, 2.0))
        assert d.solve_ode(np.array([0.0, 0.5]), np.array([0.0, 3.0]))[-1, 0] == 0


def test_a_solution_that_explodes_is_infinite_from_then_on():
    d = EffectiveDynamics(SingleIndex(*power(3)), c=1.0)
    path = d.solve_ode(np.array([0.3, 1.0]), np.array([0.0, 1e-6, 5.0]))
    assert np.isfinite(path[1]).all()
    assert np.isinf(path[2]).all()
    far = EffectiveDynamics(SingleIndex(*MONOTONE["z"]), c=0.5).solve_ode(np.array([2e3, 0.0]), np.array([0.0, 9.0]))
    assert np.abs(far[1] - [1.0, 0.0]).max() < 0.1  # a large x alone does not count


def test_sde_has_the_mean_and_the_spread_of_the_algorithm():
    """Against the simulator at n = 2,000: means within 5 standard errors and O(1/n), spreads within 12 %."""
    n, problem = 2000, SpikedTensorPCA(2, 1.5)
    d = EffectiveDynamics(problem, 0.5, 0.4)
    t = np.array([0.0, 0.1, 0.2])
    paths = d.solve_sde(np.array([0.4, 0.8]), t, 1000, seed=1, n=n, largest_step=0.005)
    assert paths.shape == (3, 1000, 2)
    run = problem.simulate(n, 0.4, 0.5, steps=1000, batch=400, start=(0.4, 0.8), points=3)
    ode = d.solve_ode(np.array([0.4, 0.8]), t)
    for i, ours in enumerate((run.m, run.r2)):
        assert abs(paths[-1, :, i].mean() - ode[-1, i]) < 0.01
        assert abs(ours[-1].mean() - ode[-1, i]) < 0.02
        assert paths[-1, :, i].std() == pytest.approx(ours[-1].std(), rel=0.12)


def test_one_small_step_of_the_sde_has_the_covariance_of_the_diffusion():
    """k = 4, where m and r^2 are correlated; 20,000 paths fix a covariance to about 3 %."""
    d = EffectiveDynamics(SpikedTensorPCA(4, 1.0), 0.5, 0.3)
    u, dt, n = np.array([0.6, 0.5]), 1e-4, 500
    moved = d.solve_sde(u, np.array([0.0, dt]), 20_000, n=n, largest_step=dt)[-1]
    want = d.diffusion(u)
    assert abs(want[0, 1]) > 0.3 * math.sqrt(want[0, 0] * want[1, 1])
    scale = np.sqrt(np.outer(np.diag(want), np.diag(want)))
    np.testing.assert_allclose(np.cov(moved.T) * n / dt / scale, want / scale, atol=0.04)
    np.testing.assert_allclose((moved.mean(axis=0) - u) / dt, d.velocity(u), rtol=0.25)


def test_sde_near_zero_is_an_ornstein_uhlenbeck_process():
    """At r^2 = c, where r^2 stands still, Var m~ = s/(2a) (exp(2 a t) - 1), a = 4 (lam - c), s = 8 c^2."""
    d = EffectiveDynamics(SpikedTensorPCA(2, 0.9), c=0.5)
    paths = d.solve_sde(np.array([0.0, 0.5]), np.array([0.0, 0.5]), 4000, largest_step=0.002)
    a, s = 4 * 0.4, 8 * 0.25
    assert paths[-1, :, 0].var() == pytest.approx(s / (2 * a) * (math.exp(2 * a * 0.5) - 1), rel=0.1)
    np.testing.assert_allclose(paths[-1, :, 1], 0.5, rtol=1e-9)


def test_paths_of_the_sde_keep_a_residual_of_at_least_zero():
    d = EffectiveDynamics(SpikedTensorPCA(2, 0.9), c=0.2)
    paths = d.solve_sde(np.array([0.5, 0.01]), np.linspace(0, 0.5, 11), 200, n=4)
    assert np.isfinite(paths).all()
    assert paths[..., 1].min() == 0


def test_beyond_proposition_3_8_another_stable_point_appears():
    """z^3: past its threshold 1/315 the optimum repels, and a stable point with r^2 > 0 has left it."""
    u, stable = EffectiveDynamics(SingleIndex(*power(3)), c=0.004).fixed_points()
    at_optimum = np.abs(u - [1.0, 0.0]).max(axis=1) < 1e-9
    assert not stable[at_optimum].any()
    assert (stable & (u[:, 1] > 0.1)).any()


def test_largest_step_of_single_index_models():
    """z under unit gradients stays aligned above 0.1 until c = sqrt(99 * 8 / pi)."""
    top = EffectiveDynamics(SingleIndex(*MONOTONE["z"]), algorithm="unit").max_step()
    assert top == pytest.approx(math.sqrt(99 * 8 / math.pi), rel=2e-3)


def test_largest_step_of_a_squared_link():
    """z^2: the optimum is there for every c, yet stable up to Proposition 3.8's (1 - beta)/12 only."""
    assert EffectiveDynamics(SingleIndex(*power(2)), 0.5).max_step() == pytest.approx(1 / 24, rel=2e-3)


def test_no_step_is_too_large_or_too_small():
    assert EffectiveDynamics(SpikedTensorPCA(2, 0.0)).max_step() == 0.0
    # Lengths of 1e-6 whatever the gradient: the residual is below 1 for every c in reach.
    assert EffectiveDynamics(SpikedTensorPCA(2, 1.0), algorithm=lambda s: 1e-12 / s**2).max_step() == math.inf


def test_clipping_lies_between_plain_and_unit():
    u = np.array([[0.4, 0.9], [0.05, 0.01]])
    problem = SpikedTensorPCA(2, 1.2)
    plain, unit = EffectiveDynamics(problem), EffectiveDynamics(problem, algorithm="unit")
    np.testing.assert_allclose(EffectiveDynamics(problem, algorithm=clipping(1e9)).velocity(u), plain.velocity(u))
    tight = EffectiveDynamics(problem, algorithm=clipping(1e-3))
    np.testing.assert_allclose(tight.drift(u), 1e-3 * unit.drift(u), rtol=1e-9)
    np.testing.assert_allclose(tight.corrector(u), 1e-6 * unit.corrector(u), rtol=1e-9)


def test_the_theory_needs_no_torch():
    code = (
        "import sys; from paperworks.theory.sgdm_limits import EffectiveDynamics, SpikedTensorPCA;"
        "EffectiveDynamics(SpikedTensorPCA(2, 1.0)).fixed_points(); SpikedTensorPCA(2, 1.0).simulate(50, steps=5);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PCA = SpikedTensorPCA(2, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: EffectiveDynamics("pca"), "problem='pca'; allowed are SpikedTensorPCA and SingleIndex"),
        (lambda: EffectiveDynamics(SpikedTensorPCA(2, np.ones(2))), "array lam; allowed is a number"),
        (lambda: EffectiveDynamics(PCA, beta=1.0), "beta=1.0; allowed is 0 <= beta < 1"),
        (lambda: EffectiveDynamics(PCA, c=0.0), "c=0.0; allowed are finite numbers above 0"),
        (lambda: EffectiveDynamics(PCA, algorithm="adam"), "algorithm='adam'; allowed are 'sgd', 'unit'"),
        (lambda: EffectiveDynamics(PCA).velocity(np.ones(3)), "u has shape (3,); allowed is (..., 2)"),
        (
            lambda: EffectiveDynamics(PCA).solve_ode(np.ones((1, 2)), np.arange(2)),
            "u0 has shape (1, 2); allowed is (2,)",
        ),
        (lambda: EffectiveDynamics(PCA).solve_ode(np.ones(2), np.zeros(2)), "allowed are two or more ascending times"),
        (
            lambda: EffectiveDynamics(PCA).solve_sde(np.ones(2), np.arange(2), 0),
            "n_paths=0; allowed are numbers above 0",
        ),
        (lambda: EffectiveDynamics(PCA, algorithm=lambda s: np.ones(7)).drift(np.ones(2)), "shape (7,); allowed is"),
        (lambda: EffectiveDynamics(SingleIndex(np.sin, np.cos)).critical_snr(), "allowed for SpikedTensorPCA only"),
        (lambda: EffectiveDynamics(SingleIndex(np.sin, np.cos)).escape_rate(0.5), "needs a problem that keeps m = 0"),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
