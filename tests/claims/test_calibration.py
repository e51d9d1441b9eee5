"""How often the rule is wrong, and how often it finds what is there: thousands of simulated studies.

The bounds are those of ``docs/verdicts.md``. Each share is tested with a binomial margin, so that a true 2.5 % passes
and 3.1 % does not.
"""

import numpy as np
import pytest
from scipy.special import bdtri, bdtrik

from paperworks.claims import statistics as stats

STUDIES = 12_000
UNITS = (6, 8, 12)


def most(share: float, studies: int = STUDIES) -> float:
    """The share that ``studies`` with a true ``share`` exceed once in 10,000 times."""
    return float(np.ceil(bdtrik(0.9999, studies, share))) / studies


def least(share: float, studies: int = STUDIES) -> float:
    return 1 - most(1 - share, studies)


def paired(draw):
    """Arms that differ in nothing: independent draws of one law on top of what the seed gives both."""

    def law(rng, shape):
        seed = rng.normal(size=shape)
        return (seed + draw(rng, shape)) - (seed + draw(rng, shape))

    return law


EXCHANGEABLE = {
    "normal": paired(lambda rng, shape: rng.normal(size=shape)),
    "heavy tails (t, 3 degrees)": paired(lambda rng, shape: rng.standard_t(3, size=shape)),
    "skewed (exponential)": paired(lambda rng, shape: rng.exponential(size=shape)),
    "skewed (log-normal)": paired(lambda rng, shape: np.exp(rng.normal(size=shape))),
    "rare failures (1 in 10)": lambda rng, shape: rng.binomial(1, 0.9, shape) - rng.binomial(1, 0.9, shape) * 1.0,
    "plus or minus one": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape),
}
SKEWED = {  # mean 0, the long tail on the side of the claim's bound that a small sample misses
    "exponential": lambda rng, shape: 1 - rng.exponential(size=shape),
    "log-normal": lambda rng, shape: np.exp(0.5) - np.exp(rng.normal(size=shape)),
    "share near 1 (beta 9, 1)": lambda rng, shape: rng.beta(9, 1, size=shape) - 0.9,
}


def share(data, verdict="supported", margin=0.0, equivalence=False):
    return float((stats.decide_many(data, margin, equivalence=equivalence).verdict == verdict).mean())


@pytest.mark.parametrize("n", UNITS)
@pytest.mark.parametrize("law", EXCHANGEABLE)
def test_exchangeable_arms_are_called_different_in_at_most_2_5_percent_on_each_side(law, n):
    data = EXCHANGEABLE[law](np.random.default_rng([n, 1]), (STUDIES, n))
    verdicts = stats.decide_many(data).verdict
    assert (verdicts == "supported").mean() <= most(0.025)
    assert (verdicts == "opposite").mean() <= most(0.025)


def test_the_bound_also_holds_at_a_margin_that_the_effect_just_meets():
    for law in EXCHANGEABLE.values():
        data = law(np.random.default_rng(11), (STUDIES, 6))
        assert share(data + 0.5, margin=0.5) <= most(0.025)
        assert share(data - 0.5, margin=-0.5) <= most(0.025)


def test_the_bound_also_lies_where_flips_are_drawn():
    data = EXCHANGEABLE["skewed (exponential)"](np.random.default_rng(2), (600, 20))
    assert share(data) <= most(0.025, 600)


@pytest.mark.parametrize("n", UNITS)
def test_a_difference_as_large_as_the_margin_is_called_equivalent_in_at_most_2_5_percent(n):
    rng = np.random.default_rng([n, 3])
    for law in ("normal", "plus or minus one"):
        data = EXCHANGEABLE[law](rng, (STUDIES, n)) + 3.0
        assert share(data, margin=3.0, equivalence=True) <= most(0.025)


@pytest.mark.parametrize(("n", "effect", "power"), [(6, 1, 0.34), (6, 2, 0.87), (8, 1, 0.645), (12, 1, 0.88)])
def test_power(n, effect, power):
    data = np.random.default_rng([n, 4]).normal(effect, 1, size=(STUDIES, n))
    assert share(data) == pytest.approx(power, abs=0.015)
    assert share(data, "opposite") < 0.001


@pytest.mark.parametrize("n", [6, 7, 8, 9, 12])
def test_the_smallest_detectable_effect_is_found_in_80_percent(n):
    rng = np.random.default_rng([n, 5])
    data = rng.normal(size=(STUDIES, n))
    assert share(data + stats.detectable(n)) == pytest.approx(0.80, abs=0.015)
    assert share(data, margin=stats.detectable(n, equivalence=True), equivalence=True) == pytest.approx(0.80, abs=0.02)


@pytest.mark.parametrize("n", UNITS)
@pytest.mark.parametrize("law", SKEWED)
def test_a_threshold_with_skewed_values_is_called_met_too_often_and_then_flagged(law, n):
    data = SKEWED[law](np.random.default_rng([n, 6]), (STUDIES, n))
    wrong = data[stats.decide_many(data).verdict == "supported"]
    flagged = np.array([stats.skewed(row, [0.0], one_sample=True) for row in wrong])
    assert 0.04 < len(wrong) / STUDIES < 0.17  # far more than 2.5 %, whence the flag
    unflagged = float((~flagged).sum()) / STUDIES
    assert unflagged <= (most(0.05) if law == "log-normal" else most(0.025))


def test_the_flags_t_is_the_one_exponential_values_exceed_in_2_5_percent():
    rng = np.random.default_rng(7)
    for n in (6, 11, 24, 100):
        t = stats.t_statistic(1 - rng.exponential(size=(STUDIES, n)))
        bound = np.interp(-1 / np.sqrt(n), [-1 / np.sqrt(k) for k in stats.SKEW_T], list(stats.SKEW_T.values()))
        assert least(0.022) <= float((t > bound).mean()) <= most(0.028)


def test_six_equal_values_say_little_of_rare_failures():
    # a share of 0.9 that is 1 in nine seeds of ten: six ones are seen in half of all studies
    data = np.random.default_rng(8).binomial(1, 0.9, size=(STUDIES, 6)) - 0.9
    assert share(data) == pytest.approx(0.9**6, abs=0.02)


def test_binomial_margin():
    assert most(0.025) < 0.031
    assert bdtri(5, 10, 0.5) < 1  # scipy's binomial functions are there
