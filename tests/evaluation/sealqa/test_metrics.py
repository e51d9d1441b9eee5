"""Rates, intervals and exact tests."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.evaluation.sealqa import confusion, contamination, mcnemar, position_effect, summary, wilson
from paperworks.evaluation.sealqa.metrics import slope_on_log

from . import reference


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_solves_its_equation(pair):
    rate = wilson(*pair)
    low, high = reference.wilson(*pair)
    assert rate.low == pytest.approx(low, abs=1e-9)
    assert rate.high == pytest.approx(high, abs=1e-9)
    assert rate.low <= rate.value <= rate.high


def test_wilson_at_ten_percent_of_seal_0():
    rate = wilson(11, 111)
    assert (round(100 * rate.low, 1), round(100 * rate.high, 1)) == (5.6, 16.9)
    assert str(rate) == "9.9 % [5.6, 16.9] (11/111)"
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


@given(st.integers(0, 25), st.integers(0, 25))
def test_mcnemar_is_exact(gained, lost):
    first = [False] * gained + [True] * lost + [True, False]
    second = [True] * gained + [False] * lost + [True, False]
    found = mcnemar(first, second)
    assert found.p == pytest.approx(reference.mcnemar(gained, lost))
    assert (found.gained, found.lost) == (gained, lost)
    assert found.difference == pytest.approx((gained - lost) / len(first))


def test_rates_of_grades_and_f_as_in_simpleqa():
    rates = summary(["A"] * 3 + ["B"] * 2 + ["C"] * 5)
    assert rates["accuracy"] == 0.3
    assert rates["attempted"] == 0.5
    assert rates["given_attempted"] == 0.6
    assert rates["f_score"] == pytest.approx(2 * 0.3 * 0.6 / 0.9)
    assert (rates["accuracy_low"], rates["accuracy_high"]) == pytest.approx(reference.wilson(3, 10), abs=1e-9)
    assert summary(["C", "C"])["f_score"] == 0
    assert summary([])["accuracy_high"] == 1


def test_accuracy_by_where_the_gold_page_stood():
    found = position_effect([0.0, 0.09, 0.5, 0.95, 1.0], [True, False, True, True, True])
    assert [(middle, rate.count, rate.n) for middle, rate in found] == [(0.05, 1, 2), (0.55, 1, 1), (0.95, 2, 2)]


def test_slopes_and_confusion():
    ks, values = [1, 4, 8, 30], [0.9, 0.5, 0.45, 0.1]
    assert slope_on_log(ks, values) == pytest.approx(reference.slope([math.log(k) for k in ks], values))
    table = confusion(["A", "A", "B", "C"], ["A", "B", "B", "A"])
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_a_probe_prefers_what_was_seen():
    seen = {"who keeps the organ": -4.0}

    def logprob(text):
        return seen.get(text, -3.0 * len(text.split())), len(text.split())

    found = contamination(
        ["who keeps the organ", "new words here"], [["the keeper is who"], ["here new words"]], logprob
    )
    assert found.preferred == 0.5
    assert found.chance == 0.5
    assert found.margin == pytest.approx((-1 + 3 + 0) / 2)
    one = contamination(["who keeps the organ"], [["the keeper is who", "is who keeps"]], logprob)
    assert (one.preferred, one.chance) == (1, pytest.approx(1 / 3))
    seen["is who keeps"] = -1.5  # -0.5 a token: one likelier wording is enough
    assert contamination(["who keeps the organ"], [["the keeper is who", "is who keeps"]], logprob).preferred == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wilson(3, 2), "count=3, n=2; allowed is a count from 0 to n"),
        (lambda: wilson(1, 2, 1.0), "confidence=1.0; allowed is a share between 0 and 1"),
        (lambda: summary(["D"]), r"grades has \['D'\]; allowed are 'A', 'B' and 'C'"),
        (lambda: mcnemar([True], []), "first has 1 and second 0 questions"),
        (lambda: position_effect([1.5], [True]), r"bins=10, positions=\[1.5\]; allowed are bins from 1 on"),
        (lambda: position_effect([0.5], [True, False]), r"positions has shape \(1,\) and correct \(2,\)"),
        (lambda: slope_on_log([4, 4], [0.1, 0.2]), r"ks=\[4, 4\], 2 values; allowed are two different counts"),
        (lambda: contamination(["x"], [[]], len), "1 questions with 1 lists of paraphrases"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
