"""Exact shares, hidden labels, independence of seeds, and refusals of the data generator."""

import re

import numpy as np
import pytest

from paperworks.supervision.pu_bench import make_pu

X = np.arange(520)[:, None] * np.ones(3)
Y = np.repeat(list("ABCDEFGHIJ"), 52)
POSITIVE = list("ACEGI")


def per_class(rows):
    return dict(zip(*np.unique(Y[rows], return_counts=True), strict=True))


def test_one_sample_shares_are_those_of_the_release():
    """Setting 3: 30 % labelled, so 28.57 % of U are positive."""
    data = make_pu(X, Y, POSITIVE, 0.5, n_p=150, n_total=500, setting="one-sample", rng=0)
    assert data.unlabeled_share == pytest.approx(100 / 350)
    assert per_class(data.rows) == dict.fromkeys("ABCDEFGHIJ", 50)
    assert per_class(data.rows[data.y == 1]) == dict.fromkeys(POSITIVE, 30)
    assert len(set(data.rows)) == 500, "one sample: a row comes once"
    np.testing.assert_array_equal(data.x[:, 0], data.rows)
    np.testing.assert_array_equal(data.hidden, np.isin(Y[data.rows], POSITIVE))
    assert data.y.tolist() == [1] * 150 + [0] * 350
    assert (data.positive.shape, data.unlabeled.shape) == ((150, 3), (350, 3))
    assert (data.hidden[data.y == 1] == 1).all()


def test_two_samples_are_drawn_apart():
    data = make_pu(X, Y, POSITIVE, 0.5, n_p=150, n_total=500, setting="two-sample", rng=0)
    assert data.unlabeled_share == 0.5
    p, u = data.rows[:150], data.rows[150:]
    assert per_class(p) == dict.fromkeys(POSITIVE, 30)
    assert per_class(u) == dict.fromkeys("ABCDEFGHIJ", 35)
    assert len(set(p)) == 150
    assert len(set(u)) == 350
    # 30 and 35 of the same 52 rows: independent draws share about 20 of each positive class.
    assert 70 < len(set(p) & set(u)) < 130


@pytest.mark.parametrize("setting", ["one-sample", "two-sample"])
def test_other_priors_and_remainders(setting):
    n_p = 40 if setting == "two-sample" else 20
    data = make_pu(X, Y, ["A", "B", "C"], 0.3, n_p, n_total=103, setting=setting, rng=1)
    expected = 19 / 63 if setting == "two-sample" else (31 - 20) / 83
    assert data.unlabeled_share == pytest.approx(expected)
    counts = per_class(data.rows[data.y == 0])
    assert max(counts[c] for c in "DEFGHIJ") - min(counts[c] for c in "DEFGHIJ") <= 1
    assert len(data.x) == 103


def test_labels_never_exceed_a_class_of_the_sample():
    """31 positives of three classes are 11, 10 and 10; labelling all of them must take just these."""
    for seed in range(20):
        data = make_pu(X, Y, ["A", "B", "C"], 0.31, n_p=31, n_total=100, setting="one-sample", rng=seed)
        assert data.unlabeled_share == 0


def test_seeds_and_generators():
    def draw(rng):
        return make_pu(X, Y, POSITIVE, 0.5, 100, 400, "one-sample", rng).rows.tolist()

    assert draw(3) == draw(3) == draw(np.random.default_rng(3))
    assert draw(3) != draw(4)
    rows = np.array(draw(3))
    assert (np.diff(rows[:100]) < 0).any(), "not sorted by class"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prior": 0.0}, "prior must lie strictly between 0 and 1, got 0.0"),
        ({"setting": "os"}, "setting must be 'two-sample' or 'one-sample', got 'os'"),
        ({"n_p": 260}, "n_p = 260 labels exceed the 250 positives of a sample of 500 at prior 0.5"),
        ({"n_p": 0}, "n_p must lie between 0 and n_total = 500, got 0"),
        ({"n_p": 500}, "n_p must lie between 0 and n_total = 500, got 500"),
        ({"positive": ["A", "Z"]}, "positive names classes that y does not have: ['Z']"),
        ({"positive": list("ABCDEFGHIJ")}, "positive names every class of y"),
        ({"n_total": 600}, "class 'A' has 22 rows left, 30 are needed: lower n_total"),
        ({"y": Y[:-1]}, "X and y must have the same length, got 520 and 519"),
    ],
)
def test_bad_input_is_named(change, said):
    arguments = {"X": X, "y": Y, "positive": POSITIVE, "prior": 0.5, "n_p": 150, "n_total": 500, "rng": 0}
    with pytest.raises(ValueError, match=re.escape(said)):
        make_pu(**{"setting": "one-sample", **arguments, **change})
