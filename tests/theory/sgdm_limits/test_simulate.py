"""The simulators: equal in law to the algorithm as it is written, one lane whatever its neighbours."""

import dataclasses
import math
import re
import warnings

import numpy as np
import pytest

from paperworks.theory.sgdm_limits.dynamics import EffectiveDynamics
from paperworks.theory.sgdm_limits.lanes import simulate_lanes
from paperworks.theory.sgdm_limits.problems import SingleIndex, SpikedTensorPCA

from . import reference

SQUARE = (lambda z: z * z, lambda z: 2 * z)


def clipping(tau):
    return lambda s: np.minimum(1.0, tau / s)


def assert_same_law(ours, theirs):
    """Means within 4.5 standard errors, standard deviations within 5 of theirs (1/sqrt(2 N) each, times tails)."""
    for a, b in zip(ours, theirs, strict=True):
        error = math.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) < 4.5 * error
        tail = max(((x - x.mean()) ** 4).mean() / x.var() ** 2 for x in (a, b))  # 3 for a normal
        spread = math.sqrt((tail - 1) / 4 * (1 / len(a) + 1 / len(b)))
        assert abs(math.log(a.std() / b.std())) < 5 * spread


CASES = [
    (SpikedTensorPCA(2, 0.8), 0.3, 0.0, "sgd"),
    (SpikedTensorPCA(2, 0.8), 0.3, 0.6, "sgd"),
    (SpikedTensorPCA(2, 0.8), 0.6, 0.6, "unit"),
    (SpikedTensorPCA(3, 1.0), 0.3, 0.3, "unit"),
    (SpikedTensorPCA(3, 1.0), 0.05, 0.3, "sgd"),
    (SpikedTensorPCA(2, 0.8), 0.5, 0.4, clipping(1.2)),
    (SingleIndex(*SQUARE, 0.1), 0.02, 0.5, "sgd"),
    (SingleIndex(*SQUARE, 0.1), 0.4, 0.5, "unit"),
    (SingleIndex(*SQUARE, 0.1), 0.3, 0.5, clipping(0.5)),
]


@pytest.mark.filterwarnings("ignore:beta")
@pytest.mark.parametrize(("problem", "c", "beta", "algorithm"), CASES)
def test_reduced_simulator_has_the_law_of_the_vectors(problem, c, beta, algorithm):
    """n = 8, where the reduction has nothing to hide behind; 25 steps, 3,000 runs each."""
    kwargs = {"n": 8, "c": c, "beta": beta, "algorithm": algorithm, "steps": 25, "batch": 3000, "points": 2}
    ours = problem.simulate(**kwargs, seed=0)
    theirs = problem.simulate(**kwargs, seed=1, method="vector")
    assert_same_law((ours.m[-1], ours.r2[-1]), (theirs.m[-1], theirs.r2[-1]))


@pytest.mark.filterwarnings("ignore:beta")
@pytest.mark.parametrize("k", [2, 3])
def test_reduced_simulator_has_the_law_of_whole_tensors(k):
    """The package's own tensor sampler, and the reference's loops over entries, at n = 5 and 4."""
    problem, c, beta, steps = SpikedTensorPCA(k, 1.1), 0.1, 0.5, 8
    kwargs = {"c": c, "beta": beta, "algorithm": "unit", "steps": steps, "points": 2}
    ours = problem.simulate(5, **kwargs, batch=1500)
    theirs = problem.simulate(5, **kwargs, batch=500, method="tensor", seed=2)
    assert_same_law((ours.m[-1], ours.r2[-1]), (theirs.m[-1], theirs.r2[-1]))
    rng, n, runs = np.random.default_rng(3), 4, {2: 150, 3: 60}[k]
    plain = np.array(
        [
            reference.run(
                lambda x: reference.tensor_gradient(x, problem.sample(n, rng)), [0.3, 1.0, 0, 0], c / n, beta, 4, True
            )
            for _ in range(runs)
        ]
    )
    ours = problem.simulate(n, **{**kwargs, "steps": 4}, batch=1500)
    assert_same_law((ours.m[-1], ours.r2[-1]), plain.T)


def dynamics():
    problems = [SpikedTensorPCA(2, lam) for lam in (0.8, 2.2)]
    return [
        EffectiveDynamics(p, beta, 0.7, algorithm)
        for p in problems
        for beta, algorithm in ((0.0, "sgd"), (0.5, "sgd"), (0.0, "unit"), (0.5, "unit"), (0.3, clipping(1.5)))
    ]


def test_a_lane_does_not_depend_on_its_neighbours():
    """Alone, in company and in another order; at a thousand steps rounding is far below 1e-9."""
    some = dynamics()
    seeds = range(len(some))

    def run(which):
        return simulate_lanes([some[i] for i in which], 200, 1000, [np.random.default_rng(seeds[i]) for i in which])

    together = run(list(seeds))
    backwards = run(list(seeds)[::-1])
    np.testing.assert_allclose(backwards.m[:, ::-1], together.m, rtol=1e-12, atol=1e-12)
    for i in seeds:
        alone = run([i])
        np.testing.assert_allclose(alone.m[:, 0], together.m[:, i], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(alone.r2[:, 0], together.r2[:, i], rtol=1e-9)
    assert len({m.item() for m in together.m[-1]}) == len(some)


def test_one_generator_for_many_lanes_is_the_same_noise():
    some = dynamics()
    shared = np.random.default_rng(5)
    together = simulate_lanes(some, 200, 300, [shared] * len(some))
    for i, d in enumerate(some):
        alone = simulate_lanes([d], 200, 300, [np.random.default_rng(5)])
        np.testing.assert_allclose(alone.m[:, 0], together.m[:, i], rtol=1e-9, atol=1e-12)


def test_a_diverged_lane_changes_no_other():
    f = SingleIndex(*SQUARE, 0.1)
    cs = [1.0, 1e-3, 10.0, 2e-3]
    together = simulate_lanes(
        [EffectiveDynamics(f, 0.5, c) for c in cs], 100, 500, [np.random.default_rng(i) for i in range(4)]
    )
    assert together.diverged.tolist() == [True, False, True, False]
    for i in (1, 3):
        alone = simulate_lanes([EffectiveDynamics(f, 0.5, cs[i])], 100, 500, [np.random.default_rng(i)])
        np.testing.assert_allclose(alone.r2[:, 0], together.r2[:, i], rtol=1e-9)
    assert np.isfinite(together.m).all()
    assert np.isfinite(together.r2).all()
    assert (together.m[-1, [0, 2]] == 0).all()
    np.testing.assert_allclose(together.r2[-1, [0, 2]], 1e12)
    vector = f.simulate(100, 10.0, 0.5, steps=500, batch=2, method="vector")
    assert vector.diverged.all()
    assert np.isfinite(vector.r2).all()
    assert vector.alignment[-1].tolist() == [0, 0]


def test_unit_gradients_cannot_explode():
    """No step is longer than c/sqrt(n), momentum adds up to 1/(1 - beta) of them; plain SGD diverges at once."""
    n, c, beta, steps = 100, 20.0, 0.5, 200
    problem = SingleIndex(lambda z: z**7 + 4 * z**4, lambda z: 7 * z**6 + 16 * z**3)
    run = problem.simulate(n, c, beta, "unit", steps, batch=5, points=steps + 1)
    size = np.sqrt(run.m**2 + run.r2)
    assert (np.diff(size, axis=0) <= 1.0001 * c / math.sqrt(n) / (1 - beta)).all()
    assert size[1] == pytest.approx(size[0], abs=1.0001 * c / math.sqrt(n))
    assert not run.diverged.any()
    assert problem.simulate(n, c, beta, "sgd", steps, batch=5).diverged.all()


def test_everything_may_diverge():
    run = SingleIndex(*SQUARE).simulate(100, 50.0, steps=400, batch=3)
    assert run.diverged.all()
    assert run.m.shape == (200, 3)


def test_a_run_is_the_beginning_of_a_longer_one():
    problem = SpikedTensorPCA(2, 1.0)
    short = problem.simulate(100, beta=0.5, steps=150, seed=4, batch=2, points=151)
    long = problem.simulate(100, beta=0.5, steps=400, seed=4, batch=3, points=401)
    np.testing.assert_allclose(short.m, long.m[:151, :2], rtol=1e-12)


def test_seeds_differ_and_repeat():
    problem = SpikedTensorPCA(2, 1.0)
    a, b, c = (problem.simulate(100, steps=50, seed=s).m for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_what_a_trajectory_holds():
    run = SpikedTensorPCA(2, 1.0).simulate(100, 0.5, steps=1000, batch=3, points=11)
    np.testing.assert_array_equal(run.step, np.arange(0, 1001, 100))
    np.testing.assert_allclose(run.t, run.step * 0.005)
    assert run.m.shape == run.r2.shape == run.alignment.shape == (11, 3)
    np.testing.assert_allclose(run.m[0], 0.3)
    np.testing.assert_allclose(run.r2[0], 1.0)
    np.testing.assert_allclose(run.alignment, np.abs(run.m) / np.sqrt(run.m**2 + run.r2))
    assert not run.diverged.any()
    two = [EffectiveDynamics(SpikedTensorPCA(2, 1.0), c=c) for c in (0.5, 1.0)]
    lanes = simulate_lanes(two, 100, 10, [np.random.default_rng(i) for i in range(2)], points=3)
    np.testing.assert_allclose(lanes.t, np.outer([0, 5, 10], [0.005, 0.01]))
    few = SpikedTensorPCA(2, 1.0).simulate(100, steps=3, points=50)
    assert few.step.tolist() == [0, 1, 2, 3]


def test_alignment_of_nothing_is_zero():
    run = SingleIndex(*SQUARE).simulate(10, 0.1, steps=1, start=(0.0, 0.0))  # f'(0) = 0: it stays
    assert run.alignment.tolist() == [[0.0], [0.0]]
    resting = SpikedTensorPCA(3, 1.0).simulate(10, 1.0, algorithm="unit", steps=20, start=(0.0, 0.0))
    assert resting.r2[-1, 0] == 0  # a gradient of 0 is not divided by its length


def test_random_start_has_the_law_of_a_normal_vector():
    run = SpikedTensorPCA(2, 1.0).simulate(50, 1e-12, steps=1, batch=4000, start="random")
    assert run.m[0].mean() == pytest.approx(0, abs=4.5 / math.sqrt(50 * 4000))
    assert run.m[0].std() == pytest.approx(50**-0.5, rel=0.05)
    assert run.r2[0].mean() == pytest.approx(49 / 50, rel=0.02)
    assert run.r2[0].std() == pytest.approx(math.sqrt(2 * 49) / 50, rel=0.06)


def test_stationary_values_at_a_thousand_dimensions():
    """r^2 of SGD, of momentum and of unit gradients: c, c/(1 - beta), c/(2 sqrt(2 lam)), within 6 %."""
    problem = SpikedTensorPCA(2, 1.5)
    arms = [(0.0, "sgd", 0.5), (0.5, "sgd", 1.0), (0.0, "unit", 0.5 / (2 * math.sqrt(3)))]
    lanes = [EffectiveDynamics(problem, beta, 0.5, name) for beta, name, _ in arms]
    run = simulate_lanes(lanes, 1000, 12_000, [np.random.default_rng(0)] * 3)
    for i, (*_, residual) in enumerate(arms):
        assert run.r2[100:, i].mean() == pytest.approx(residual, rel=0.06)
        assert (run.m[100:, i] ** 2).mean() == pytest.approx(1.5 - residual, rel=0.06)


def test_loose_clipping_is_plain_and_tight_clipping_is_unit_with_a_small_step():
    problem = SpikedTensorPCA(2, 1.2)
    kwargs = {"n": 100, "steps": 200, "beta": 0.4, "seed": 1}
    np.testing.assert_allclose(
        problem.simulate(c=0.5, algorithm=clipping(1e9), **kwargs).m, problem.simulate(c=0.5, **kwargs).m, rtol=1e-12
    )
    tight = problem.simulate(c=100.0, algorithm=clipping(1e-3), **kwargs)
    np.testing.assert_allclose(tight.m, problem.simulate(c=0.1, algorithm="unit", **kwargs).m, rtol=1e-9)
    index = SingleIndex(*SQUARE, 0.1)
    tight = index.simulate(c=100.0, algorithm=clipping(1e-9), **kwargs)
    np.testing.assert_allclose(tight.m, index.simulate(c=1e-7, algorithm="unit", **kwargs).m, rtol=1e-6)


def test_progress_is_told_and_ends_at_the_last_step():
    seen = []
    simulate_lanes(dynamics()[:1], 100, 700, [np.random.default_rng(0)], progress=lambda i, n: seen.append((i, n)))
    assert seen[-1] == (700, 700)
    assert [i for i, _ in seen] == sorted({i for i, _ in seen})


def test_long_memory_is_warned_about():
    with pytest.warns(UserWarning, match=r"beta=0.99 at n=500: momentum remembers 1/\(1 - beta\) = 100 steps"):
        SpikedTensorPCA(2, 1.0).simulate(500, beta=0.99, steps=1)
    pair = [EffectiveDynamics(SpikedTensorPCA(2, 1.0), beta) for beta in (0.0, 0.99)]
    with pytest.warns(UserWarning, match="beta=0.99 at n=500"):
        simulate_lanes(pair, 500, 1, [np.random.default_rng(0)] * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SpikedTensorPCA(2, 1.0).simulate(10_000, beta=0.99, steps=1)
        SpikedTensorPCA(2, 1.0).simulate(5, steps=1)


def test_problems_stay_as_they_are():
    problem = SpikedTensorPCA(2, 1.0)
    before = dataclasses.replace(problem)
    problem.simulate(50, steps=20)
    assert problem == before


PCA = SpikedTensorPCA(2, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PCA.simulate(3), "n=3; allowed are 4, 5, ..."),
        (lambda: PCA.simulate(10, c=0), "c=0; allowed are finite numbers above 0"),
        (lambda: PCA.simulate(10, beta=1), "beta=1; allowed is 0 <= beta < 1"),
        (lambda: PCA.simulate(10, steps=0), "steps=0; allowed are 1, 2, ..."),
        (lambda: PCA.simulate(10, batch=0), "batch=0; allowed are 1, 2, ..."),
        (lambda: PCA.simulate(10, points=1), "points=1; allowed are 2, 3, ..."),
        (lambda: PCA.simulate(10, algorithm="adam"), "algorithm='adam'; allowed are 'sgd', 'unit'"),
        (lambda: PCA.simulate(10, method="exact"), "method='exact'; allowed are 'reduced', 'vector', 'tensor'"),
        (lambda: PCA.simulate(10, start="zero"), "start='zero'; allowed are 'random' and a pair"),
        (lambda: PCA.simulate(10, start=(0.1, -1.0)), "start=(0.1, -1.0); allowed are 'random' and a pair"),
        (lambda: SingleIndex(*SQUARE).simulate(10, method="tensor"), "method='tensor' with SingleIndex; allowed"),
        (lambda: simulate_lanes([], 10, 1, []), "0 dynamics with 0 streams"),
        (lambda: simulate_lanes(dynamics(), 10, 1, []), "10 dynamics with 0 streams"),
        (
            lambda: simulate_lanes(
                [EffectiveDynamics(SpikedTensorPCA(k, 1.0)) for k in (2, 3)], 10, 1, [np.random.default_rng(0)] * 2
            ),
            "dynamics has 2 kinds of problems; allowed is one k",
        ),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
