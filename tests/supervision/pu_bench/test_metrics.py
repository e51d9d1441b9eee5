"""Proxy accuracy, proxy AUC and the oracle: reference, the propositions by exact enumeration, scorers, errors."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.supervision.pu_bench import (
    estimate_prior,
    mixture_share,
    oracle_accuracy,
    proxy_accuracy,
    proxy_auc,
    shift_prior,
)

from . import reference

scores = st.lists(st.integers(-3, 3).map(lambda i: i / 2), min_size=1, max_size=8)  # ties and zeros are frequent


@given(scores, scores, st.floats(0.05, 0.95))
@settings(max_examples=60, deadline=None)
def test_both_equal_the_reference(p, u, prior):
    y, f = [1] * len(p) + [0] * len(u), p + u
    assert proxy_auc(y, f) == pytest.approx(reference.proxy_auc(p, u), abs=1e-12)
    for setting in ("two-sample", "one-sample"):
        assert proxy_accuracy(y, f, prior, setting) == pytest.approx(
            reference.proxy_accuracy(p, u, prior, setting), abs=1e-12
        )


def test_order_of_rows_and_label_conventions_do_not_matter():
    rng = np.random.default_rng(0)
    y, f = rng.integers(0, 2, 50), rng.normal(size=50).round(1)
    order = rng.permutation(50)
    for convention in (y, np.where(y, 1, -1), y.astype(bool)):
        assert proxy_auc(convention[order], f[order]) == proxy_auc(y, f)
        assert proxy_accuracy(convention[order], f[order], 0.4) == pytest.approx(proxy_accuracy(y, f, 0.4))
    assert proxy_auc(y, -f) == pytest.approx(1 - proxy_auc(y, f))
    assert proxy_auc(y, np.exp(f)) == proxy_auc(y, f)


POSITIVE, NEGATIVE = (1.0, 0.3, -0.2), (-1.0, 0.3, -0.5, 0.8)
ACCURACY_P, ACCURACY_N = 2 / 3, 2 / 4


@pytest.mark.parametrize("prior", [0.25, 0.5])
def test_expected_proxy_accuracy_is_accuracy_plus_prior(prior):
    """Over all samples, row by row; in the one-sample setting over all choices of the labelled row, too."""
    accuracy = prior * ACCURACY_P + (1 - prior) * ACCURACY_N
    # Two-sample: P is one positive, U is two rows, each positive with probability prior; all outcomes weighted.
    rows = [(f, prior / 3) for f in POSITIVE] + [(f, (1 - prior) / 4) for f in NEGATIVE]
    expected = sum(
        wp * wa * wb * proxy_accuracy([1, 0, 0], [p, a, b], prior, "two-sample")
        for p, wp in ((f, 1 / 3) for f in POSITIVE)
        for a, wa in rows
        for b, wb in rows
    )
    assert expected == pytest.approx(accuracy + prior)
    # One-sample: four rows of which exactly 4 prior are positive; one of the positives is labelled.
    k = round(4 * prior)
    values = [
        proxy_accuracy([int(i == chosen) for i in range(4)], [*p, *n], prior, "one-sample")
        for p in itertools.product(POSITIVE, repeat=k)
        for n in itertools.product(NEGATIVE, repeat=4 - k)
        for chosen in range(k)
    ]
    assert np.mean(values) == pytest.approx(accuracy + prior)


def test_expected_proxy_auc_is_linear_in_the_auc():
    """PAUC = a / 2 + (1 - a) AUC, where U holds every positive and every negative in the shares a and 1 - a."""
    auc = reference.proxy_auc(POSITIVE, NEGATIVE)
    for copies in (1, 2, 5):
        u = [*POSITIVE] * copies + [*NEGATIVE]
        a = 3 * copies / len(u)
        y = [1, 1, 1] + [0] * len(u)
        assert proxy_auc(y, [*POSITIVE, *u]) == pytest.approx(a / 2 + (1 - a) * auc)


def test_proxy_accuracy_is_not_clipped():
    assert proxy_accuracy([1, 0], [1.0, -1.0], 0.5) == pytest.approx(1 + 0.5 - 0.5 + 0.5 - 0.5 + 1)
    assert proxy_accuracy([1, 0], [1.0, -1.0], 0.9) == pytest.approx(2 * 0.9 + 1)


def test_oracle_counts_the_rows_of_its_setting():
    truth, f, y = [1, 1, 0, 0], [1.0, -1.0, -1.0, 0.0], [1, 0, 0, 0]
    assert oracle_accuracy(truth, f) == 0.5
    assert oracle_accuracy(truth, f, y, "two-sample") == pytest.approx(1 / 3)
    assert oracle_accuracy(truth, f, y, "one-sample") == 0.5
    assert oracle_accuracy([1, 1, -1, -1], f) == 0.5


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: proxy_accuracy([1, 0], [0, 0], 1.0), "prior must lie strictly between 0 and 1, got 1.0"),
        (lambda: proxy_accuracy([1, 0], [0, 0], True), "prior must lie strictly"),
        (lambda: proxy_accuracy([1, 0], [0, 0], 0.5, "os"), "setting must be 'two-sample' or 'one-sample', got 'os'"),
        (lambda: proxy_auc([1, 1], [0, 0]), "no unlabeled rows"),
        (lambda: proxy_auc([0, -1], [0, 0]), "no labelled positives"),
        (lambda: proxy_auc([1, 2], [0, 0]), "y must hold 1 (labelled) and 0 or -1 (unlabeled), got 2"),
        (lambda: proxy_auc([[1], [0]], [0, 0]), "y must have shape (n_samples,), got (2, 1)"),
        (lambda: proxy_auc([1, 0], [0, 0, 0]), "score must have the shape of y, (2,), got (3,)"),
        (lambda: proxy_auc([1, 0], [0, np.nan]), "score contains NaN"),
        (lambda: oracle_accuracy([1, 3], [0, 0]), "y_true must hold 1 (positive) and 0 or -1 (negative)"),
        (lambda: mixture_share([], [1.0]), "both kinds of rows are needed, got 0 labelled and 1 unlabeled"),
        (lambda: shift_prior([0.5], 0.5, 1.5), "prior must lie strictly"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_prior_shift_is_bayes_rule():
    rng = np.random.default_rng(0)
    positive, negative = rng.random(5), rng.random(5)  # densities at five points
    before, after = (p * positive / (p * positive + (1 - p) * negative) for p in (0.3, 0.8))
    np.testing.assert_allclose(shift_prior(before, 0.3, 0.8), after)


@pytest.mark.parametrize(("setting", "share"), [("two-sample", 0.4), ("one-sample", 0.52)])
def test_unknown_prior_is_estimated(setting, share):
    """1,000 labelled of 5,000 rows; U has 40 % positives, so the one sample has 52 %."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2)) + 4 * (np.arange(5000) < 2600)[:, None]
    y = (np.arange(5000) < 1000).astype(int)
    found = estimate_prior(X, y, setting, LogisticRegression(), random_state=0)
    assert found == pytest.approx(share, abs=0.04)
    assert mixture_share(rng.normal(9, 1, 500), rng.normal(0, 1, 500)) < 0.02
    assert mixture_share(rng.normal(0, 1, 500), rng.normal(0, 1, 500)) > 0.85
