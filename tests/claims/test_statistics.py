"""Every statistic of a verdict against hand-worked numbers or scipy."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.claims import statistics as stats

SAMPLES = [
    [0.1, 0.2, 0.15, 0.3, 0.05, 0.12],
    [-1.0, 2.0, 0.5, 0.7, 3.0, -0.2, 1.1, 0.4],
    [5.0, 5.1, 4.9, 5.3, 5.2, 4.8, 5.05, 5.15, 4.95, 5.25, 4.85, 5.0],
]
floats = st.floats(-100, 100, allow_subnormal=False).map(lambda x: round(x, 3))
samples = st.lists(floats, min_size=6, max_size=12)


@pytest.mark.parametrize("values", SAMPLES)
@pytest.mark.parametrize("null", [0.0, 0.1])
def test_t_test_and_interval_agree_with_scipy(values, null):
    from scipy.stats import ttest_1samp

    theirs = ttest_1samp(values, null)
    mean, low, high = stats.t_interval(values)
    interval = theirs.confidence_interval(0.95)
    assert float(stats.t_statistic(values, null)) == pytest.approx(theirs.statistic)
    assert float(stats.t_test(values, null)) == pytest.approx(theirs.pvalue)
    assert (float(low), float(high)) == pytest.approx((interval.low, interval.high))
    assert float(mean) == pytest.approx(np.mean(values))


def test_t_interval_by_hand():
    # mean 2, sd 1, standard error 1 / sqrt(3), t(2) = 4.3027
    assert [float(x) for x in stats.t_interval([1, 2, 3])] == pytest.approx([2, 2 - 2.4841, 2 + 2.4841], abs=1e-4)
    mean, low, high = stats.t_interval([7.0])
    assert float(mean) == 7
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("values", SAMPLES)
@pytest.mark.parametrize("null", [0.0, 0.1, 5.0])
def test_sign_flip_agrees_with_scipys_exact_permutation_test(values, null):
    from scipy.stats import permutation_test

    theirs = permutation_test(
        (np.array(values) - null,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert float(stats.sign_flip(values, null)) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([1] * 6, 2 / 64),  # only all + and all - are as far out
        ([1] * 5, 2 / 32),  # five can never reach 0.05
        ([1, 1, 1, 1, 1, -1], 14 / 64),  # |sum| >= 4: 2 * (1 + 6) of 64
        ([3, 2, 1], 2 / 8),
        ([3, 2, -1], 4 / 8),  # |sum| >= 4: +-(3+2+1), +-(3+2-1)
        ([0, 0, 0, 0, 0, 0], 1.0),
        ([0, 0, 1, 1], 2 / 4),  # zeros do not matter
    ],
)
def test_sign_flip_by_hand(values, p):
    assert float(stats.sign_flip(values)) == p


def test_sign_flip_counts_floating_ties_as_ties():
    # every flip of 0.1, 0.2, -0.3 that sums to zero does so only up to rounding
    assert float(stats.sign_flip([0.1, 0.2, -0.3])) == 1.0
    assert float(stats.sign_flip([0.3, 0.1 * 3, 0.9 / 3] * 2)) == 2 / 64


def test_sign_flip_takes_the_null_off_first():
    assert float(stats.sign_flip([0.1 * 3] * 6, 0.3)) == 1.0
    assert float(stats.sign_flip([1, 2, 3, 4, 5, 6.0], 3.5)) == 1.0


def test_sign_flip_of_many_units_is_close_to_exact_and_does_not_depend_on_order():
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(3)
    values = rng.normal(0.3, 1, size=60)
    p = float(stats.sign_flip(values))
    assert p == pytest.approx(ttest_1samp(values, 0).pvalue, abs=0.01)
    assert float(stats.sign_flip(rng.permutation(values))) == p
    assert float(stats.sign_flip(-values)) == p
    assert float(stats.sign_flip(np.full(40, 2.0))) == pytest.approx(1e-4)  # the least it can be: 1 / 10,000


def test_sign_flip_of_many_units_is_exact_when_few_differ_from_the_null():
    values = np.zeros(500)
    values[:10] = 1
    assert float(stats.sign_flip(values)) == 2 / 2**10
    assert float(stats.sign_flip(np.zeros(500))) == 1.0


def test_many_studies_at_once_are_the_single_ones():
    rng = np.random.default_rng(0)
    data = rng.normal(0.5, 1, size=(300, 7))
    for equivalence in (False, True):
        many = stats.decide_many(data, 0.2, equivalence=equivalence)
        for i in range(0, 300, 17):
            one = stats.decide(data[i], 0.2, equivalence=equivalence)
            assert one.verdict == many.verdict[i]
            assert (one.mean, one.low, one.high, one.p) == pytest.approx(
                (many.mean[i], many.low[i], many.high[i], many.p[i])
            )


@pytest.mark.parametrize("values", SAMPLES)
@pytest.mark.parametrize("margin", [0.4, 2.0, 6.0])
def test_tost_is_two_one_sided_t_tests(values, margin):
    from scipy.stats import ttest_1samp

    below = ttest_1samp(values, margin, alternative="less").pvalue
    above = ttest_1samp(values, -margin, alternative="greater").pvalue
    assert float(stats.tost(values, margin)) == pytest.approx(max(below, above))


def test_equivalence_is_the_interval_inside_or_outside():
    near = [0.01, -0.02, 0.0, 0.015, -0.01, 0.02, 0.0, -0.015]
    assert stats.decide(near, 0.05, equivalence=True).verdict == "supported"
    assert stats.decide(near, 0.01, equivalence=True).verdict == "undecided"
    away = [x + 0.3 for x in near]
    assert stats.decide(away, 0.05, equivalence=True).verdict == "opposite"
    assert stats.decide([-x for x in away], 0.05, equivalence=True).verdict == "opposite"


@pytest.mark.parametrize(
    ("shift", "margin", "verdict"),
    [
        (0.5, 0.0, "supported"),
        (0.5, 0.3, "supported"),
        (0.5, 0.5, "undecided"),
        (0.5, 0.8, "below margin"),
        (0.0, 0.8, "below margin"),
        (-0.5, 0.8, "opposite"),
        (-0.5, 0.0, "opposite"),
        (-0.5, -0.8, "supported"),
        (-0.5, -0.3, "opposite"),
        (0.0, 0.0, "undecided"),
        (-0.1, -0.1, "undecided"),
    ],
)
def test_verdict_of_a_shift_and_a_margin(shift, margin, verdict):
    noise = np.array([0.05, -0.05, 0.02, -0.02, 0.04, -0.04])
    assert stats.decide(noise + shift, margin).verdict == verdict


def test_zero_variance_leaves_it_to_the_sign_flips():
    same = stats.decide([0.1] * 6)
    assert (same.verdict, same.p) == ("supported", 2 / 64)
    assert stats.decide([-0.1] * 6).verdict == "opposite"
    assert stats.decide([0.1] * 6, 0.1).verdict == "undecided"
    zeros = stats.decide([0.0] * 6)
    assert (zeros.verdict, zeros.p, zeros.low, zeros.high) == ("undecided", 1.0, 0.0, 0.0)
    equal = stats.decide([0.0] * 6, 0.05, equivalence=True)
    assert (equal.verdict, equal.p) == ("supported", 2 / 64)
    assert stats.decide([0.05] * 6, 0.05, equivalence=True).verdict == "undecided"
    assert stats.decide([0.1] * 6, 0.05, equivalence=True).verdict == "opposite"


def test_both_tests_must_agree():
    # the t test alone would decide (p = 0.016), the signs do not (p = 4/64)
    values = [1.0, 1.1, 0.9, 1.2, 1.05, -0.02]
    assert float(stats.t_test(values)) < 0.05 < float(stats.sign_flip(values))
    assert stats.decide(values).verdict == "undecided"
    # the signs alone would (all +), the t test does not
    values = [0.01, 0.01, 0.01, 0.01, 0.01, 9.0]
    assert float(stats.sign_flip(values)) < 0.05 < float(stats.t_test(values))
    assert stats.decide(values).verdict == "undecided"


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_fewer_than_six_decide_nothing(n):
    assert stats.decide(np.arange(n) / 100 + 5).verdict == "undecided"
    assert stats.decide([0.0] * n, 1.0, equivalence=True).verdict == "undecided"


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.8]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_benjamini_hochberg_agrees_with_scipy():
    from scipy.stats import false_discovery_control

    p = [0.01, 0.04, 0.03, 0.005, 0.9, 0.04]
    assert stats.benjamini_hochberg(p) == pytest.approx(list(false_discovery_control(p)))
    assert stats.benjamini_hochberg([0.01, 0.02]) == pytest.approx([0.02, 0.02])
    assert stats.benjamini_hochberg([]) == []


def test_detectable_effect():
    assert stats.detectable(5) == math.inf
    assert stats.detectable(6) == 1.80
    # t(15) at 0.975 and 0.8 are 2.1314 and 0.8662
    assert stats.detectable(16) == pytest.approx((2.1314 + 0.8662) / 4, abs=1e-4)
    falling = [stats.detectable(n) for n in range(6, 60)]
    assert falling == sorted(falling, reverse=True)
    assert all(stats.detectable(n, equivalence=True) > stats.detectable(n) for n in range(6, 60))


def test_units_that_would_decide():
    assert stats.units_to_decide(2.0, 1.0) == 6
    assert stats.units_to_decide(1.0, 1.0) == 11  # detectable(10) = 1.01, detectable(11) = 0.94
    n = stats.units_to_decide(0.2, 1.0)
    assert n is not None
    assert stats.detectable(n) <= 0.2 < stats.detectable(n - 1)
    assert n == pytest.approx(((1.96 + 0.8416) / 0.2) ** 2, abs=3)
    assert stats.units_to_decide(1.0, 0.0) == 6
    assert stats.units_to_decide(0.0, 1.0) is None
    assert stats.units_to_decide(1e-4, 1.0) is None


def test_prediction_interval_by_hand():
    # n = 3, sd 1, t(2) = 4.3027, m = 6: 4.3027 * sqrt(1/3 + 1/6) = 3.0424
    assert stats.prediction_interval([1, 2, 3], 6) == pytest.approx((2 - 3.0424, 2 + 3.0424), abs=1e-4)
    assert stats.prediction_interval([1.0], 6) is None


def test_prediction_interval_covers_95_percent():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        old, new = rng.normal(size=6), rng.normal(size=8)
        low, high = stats.prediction_interval(old, len(new))
        hits += low <= new.mean() <= high
    assert hits / 2000 == pytest.approx(0.95, abs=0.015)


def test_skewness_agrees_with_scipy():
    from scipy.stats import skew

    for values in SAMPLES:
        assert stats.skewness(values) == pytest.approx(skew(values))
    assert stats.skewness([0.3] * 6) == 0.0


def test_skewed():
    one_outlier = [0.0, 0.0, 0.01, 0.0, 0.01, 5.0]
    assert stats.skewed(one_outlier, [], one_sample=False)
    even = [0.9, 1.1, 1.0, 0.95, 1.05, 1.0]
    assert not stats.skewed(even, [0.0], one_sample=True)  # 34 standard errors away: no skew makes that
    wide = [0.4, 1.6, 1.0, 0.5, 1.5, 1.0]
    assert stats.decide(wide).verdict == "supported"
    assert stats.skewed(wide, [0.0], one_sample=True)  # 5 standard errors: exponential values could
    assert not stats.skewed(wide, [0.0], one_sample=False)
    assert not stats.skewed(one_outlier[:5], [], one_sample=False)


@given(samples, st.floats(0, 5), st.booleans())
def test_orientation_symmetry(values, margin, equivalence):
    data = np.array(values)
    if equivalence:
        mine = stats.decide(data, margin + 0.1, equivalence=True)
        mirrored = stats.decide(-data, margin + 0.1, equivalence=True)
        assert mine.verdict == mirrored.verdict
    else:
        mine, mirrored = stats.decide(data), stats.decide(-data)
        swap = {"supported": "opposite", "opposite": "supported"}
        assert mirrored.verdict == swap.get(mine.verdict, mine.verdict)
    assert (mirrored.low, mirrored.high) == pytest.approx((-mine.high, -mine.low))
    assert mirrored.p == pytest.approx(mine.p)


@given(samples, st.randoms(use_true_random=False), st.integers(-5, 5))
def test_order_does_not_matter_and_margin_moves_with_the_values(values, random, shift):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert stats.decide(shuffled).verdict == stats.decide(values).verdict
    exact = np.round(np.array(values) * 8)  # whole numbers: no rounding when shifted
    assert (stats.decide(exact, 0.0).p) == pytest.approx(stats.decide(exact + shift, float(shift)).p)


@given(samples, st.floats(0.01, 5))
def test_a_larger_margin_never_helps(values, margin):
    if stats.decide(values, margin).verdict == "supported":
        assert stats.decide(values, 0.0).mean > margin
        assert stats.decide(values, margin / 2).low > margin / 2


def test_is_fast():
    values = np.random.default_rng(0).normal(size=16)
    start = time.process_time()
    for _ in range(100):
        stats.decide(values, 0.1)
    assert time.process_time() - start < 1.0
