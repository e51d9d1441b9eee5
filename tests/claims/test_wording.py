"""The sentences, word for word."""

import re
from dataclasses import replace

import pytest

from paperworks.claims import wording
from paperworks.claims.paper import Experiment
from paperworks.claims.verdict import Comparison, Verdict

EXPERIMENT = Experiment(
    text="At 600 steps on MNIST-5k.",
    arms=("none", "quest"),
    level={"cue": ("masked", "present"), "host": ("a", "b", "c")},
    metric={"acc": "accuracy", "loss": "loss"},
    scale={"laptop": {"seeds": 6}},
)
BASE = Verdict(
    paper="quest",
    claim="Q1",
    text="Quest is better.",
    test="reduced",
    scale="laptop",
    evidence="shipped",
    experiment="grid",
    version=1,
    metric="acc",
    arm="quest",
    against="none",
    value=None,
    ratio=1.0,
    level={},
    better="higher",
    margin=0.0,
    equivalence=False,
    unit="seed",
    verdict="supported",
    reason="",
    effect=0.1,
    low=0.08,
    high=0.12,
    n=6,
    p=0.03125,
    arm_mean=0.9,
    units=(0, 1, 2, 3, 4, 5),
    paper_arm=0.58,
    paper_against=0.25,
    paper_setting="on ImageNet",
)
THRESHOLD = {"against": None, "value": 0.85, "effect": 0.05, "low": 0.03, "high": 0.07, "paper_against": None}
PAPER = "the paper reports +0.33 on ImageNet, which this does not test."


def say(**changes):
    return wording.sentence(replace(BASE, **changes), EXPERIMENT)


def test_a_difference():
    assert say() == (
        "At 600 steps on MNIST-5k, 6 seeds, quest minus none = 0.10 [0.08, 0.12] in acc, "
        "in the direction of the claim; " + PAPER
    )


HEAD = "At 600 steps on MNIST-5k, 6 seeds, "
DIFFERENCE = HEAD + "quest minus none = 0.10 [0.08, 0.12] in acc"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"margin": 0.03}, DIFFERENCE + ", above the margin of 0.03"),
        ({"margin": 0.2, "verdict": "below margin"}, DIFFERENCE + ", below the margin of 0.2"),
        ({"margin": -0.2}, DIFFERENCE + ", at most 0.2 worse"),
        (
            {"effect": -0.1, "low": -0.12, "high": -0.08, "verdict": "opposite"},
            HEAD + "quest minus none = -0.10 [-0.12, -0.08] in acc, in the direction opposite to the claim",
        ),
        (
            {"effect": -0.1, "low": -0.12, "high": -0.08, "verdict": "opposite", "margin": -0.05},
            HEAD + "quest minus none = -0.10 [-0.12, -0.08] in acc, worse by more than 0.05",
        ),
        ({"equivalence": True, "margin": 0.2}, DIFFERENCE + ", inside ±0.2"),
        ({"equivalence": True, "margin": 0.05, "verdict": "opposite"}, DIFFERENCE + ", outside ±0.05"),
        (
            {"level": {"cue": ("masked",), "host": ("a", "b", "c")}, "margin": 0.03},
            DIFFERENCE + " at cue = masked, mean over host, above the margin of 0.03",
        ),
        (
            {"level": {"cue": ("masked", "present"), "host": ("a", "b")}, "margin": 0.03},
            DIFFERENCE + " mean over cue and host a and b, above the margin of 0.03",
        ),
    ],
)
def test_differences(changes, expected):
    assert say(**changes) == f"{expected}; {PAPER}"


def test_lower_is_better_is_said_and_the_larger_is_named_first():
    assert say(better="lower", metric="loss", paper_arm=0.25, paper_against=0.58) == (
        HEAD + "none minus quest = 0.10 [0.08, 0.12] in loss (lower is better), in the direction of the claim; " + PAPER
    )


def test_a_ratio():
    assert say(ratio=0.5) == (
        HEAD + "quest minus 0.5 × none = 0.10 [0.08, 0.12] in acc, in the direction of the claim; "
        "the paper reports 0.58 against 0.25 on ImageNet, which this does not test."
    )
    assert "0.5 × none minus quest" in say(ratio=0.5, better="lower")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "acc of quest = 0.90 [0.88, 0.92], above 0.85"),
        ({"margin": 0.01}, "acc of quest = 0.90 [0.88, 0.92], above 0.86"),
        ({"better": "lower"}, "acc of quest = 0.80 [0.78, 0.82], below 0.85"),
        (
            {"better": "lower", "verdict": "opposite", "effect": -0.05, "low": -0.07, "high": -0.03},
            "acc of quest = 0.90 [0.88, 0.92], above 0.85, where the claim says below 0.85",
        ),
        (
            {"verdict": "below margin", "margin": 0.1},
            "acc of quest = 0.90 [0.88, 0.92], below 0.95, where the claim says above",
        ),
        ({"equivalence": True, "margin": 0.1}, "acc of quest = 0.90 [0.88, 0.92], within 0.1 of 0.85"),
        (
            {"equivalence": True, "margin": 0.01, "verdict": "opposite"},
            "acc of quest = 0.90 [0.88, 0.92], more than 0.01 from 0.85",
        ),
        ({"low": 0.05, "high": 0.05}, "acc of quest = 0.9 in every seed, above 0.85"),
        (
            {"n": 500, "unit": "item", "level": {"cue": ("masked",)}},
            "acc of quest = 0.90 [0.88, 0.92] at cue = masked, above 0.85",
        ),
    ],
)
def test_thresholds(changes, expected):
    head = "At 600 steps on MNIST-5k, 500 items, " if changes.get("unit") == "item" else HEAD
    assert say(**{**THRESHOLD, **changes}) == (
        f"{head}{expected}; the paper reports 0.58 on ImageNet, which this does not test."
    )


def test_an_analogue_speaks_of_the_mechanism():
    assert "; the mechanism shows in our analogue; the paper" in say(test="analogue")
    for verdict in ("opposite", "below margin"):
        assert "; the mechanism does not show in our analogue; the paper" in say(test="analogue", verdict=verdict)
    assert "; whether the mechanism shows in our analogue is open; " in say(test="analogue", verdict="undecided")


def test_what_the_paper_reports():
    assert say(test="direct").endswith("; the paper reports +0.33 on ImageNet.")
    assert say(paper_setting="toy, lr x wd grid").endswith(
        "; the paper reports +0.33 (toy, lr x wd grid), which this does not test."
    )
    assert say(paper_arm="wins", paper_against="loses").endswith(
        "; the paper reports wins against loses on ImageNet, which this does not test."
    )
    assert say(paper_arm=None).endswith("; the paper reports 0.25 for none on ImageNet, which this does not test.")
    nothing = {"paper_arm": None, "paper_against": None}
    assert say(**nothing).endswith("; the paper's own setting on ImageNet is not tested by this.")
    assert say(**nothing, test="direct").endswith(", in the direction of the claim.")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("secondary_basis", "details of the method are unconfirmed, for our sources are secondary"),
        ("custom", "with your own quest"),
        ("skewed", "skewed values could give this result too often"),
        ("statement_changed", "the statement was changed after these runs"),
        ("code_changed", "the code was changed after these runs"),
    ],
)
def test_cautions(flag, words):
    assert f"; {words}; the paper" in say(flags=(flag,), custom=("quest",), verdict="opposite")


UNDECIDED = {
    "verdict": "undecided",
    "low": -0.02,
    "high": 0.22,
    "smallest_detectable": 0.1834,
    "units_to_decide": 12,
    "minutes_to_decide": 4.2,
    "command": "paperworks run quest.Q1b --seeds 6:18",
}


def test_undecided_says_what_would_decide():
    assert say(**UNDECIDED) == (
        HEAD + "quest minus none = 0.10 [-0.02, 0.22] in acc, which decides nothing (6 seeds find a difference of 0.18 "
        "in four studies of five); about 12 fresh seeds (about 4 minutes) would decide: "
        "`paperworks run quest.Q1b --seeds 6:18`; " + PAPER
    )
    assert "(6 seeds confirm a half width of 0.18 in four studies of five)" in say(**UNDECIDED, equivalence=True)
    one_sample = say(**{**UNDECIDED, **THRESHOLD})
    assert "(6 seeds find a difference of 0.18 from 0.85 in four studies of five)" in one_sample
    near = say(**{**UNDECIDED, "units_to_decide": None, "command": None})
    assert "; it lies so near the margin that no practical number of seeds would decide; the paper" in near


def test_few_seeds_show_a_trend():
    few = {"n": 3, "flags": ("few_seeds",), "smallest_detectable": None, "units_to_decide": 6}
    verdict = replace(BASE, **{**UNDECIDED, **few}, scale="paper")
    assert wording.sentence(replace(verdict, reason=wording.why(verdict)), EXPERIMENT) == (
        "At 600 steps on MNIST-5k (paper scale), 3 seeds, quest minus none = 0.10 [-0.02, 0.22] in acc, a trend only "
        "(3 seeds: fewer than 6 decide nothing); about 6 fresh seeds (about 4 minutes) would decide: "
        "`paperworks run quest.Q1b --seeds 6:18`; " + PAPER
    )
    single = say(**{**UNDECIDED, **few, "n": 1, "low": None, "high": None, "reason": "too few"})
    assert "1 seed, quest minus none = 0.1 in acc, a trend only (too few); about 6 fresh seeds" in single


def test_smoke_is_a_trend():
    command = "paperworks run quest.Q1b"
    assert say(**{**UNDECIDED, "scale": "smoke", "reason": "smoke decides nothing", "command": command}) == (
        "At 600 steps on MNIST-5k (smoke scale), 6 seeds, quest minus none = 0.10 [-0.02, 0.22] in acc, a trend only "
        "(smoke decides nothing); `paperworks run quest.Q1b` judges it; " + PAPER
    )


def test_exploratory_seeds_are_named():
    found = say(flags=("exploratory",), units=tuple(range(6, 18)), n=12)
    assert found.startswith("At 600 steps on MNIST-5k, 12 exploratory seeds (6:18), quest minus none")


def test_incomplete_untested_and_void():
    nothing = {"effect": None, "low": None, "high": None, "p": None, "command": "paperworks run quest.Q1b"}
    assert say(**nothing, verdict="undecided", flags=("incomplete",), reason="1 of 36 is missing") == (
        "At 600 steps on MNIST-5k, undecided: 1 of 36 is missing; `paperworks run quest.Q1b` runs what is missing; "
        + PAPER
    )
    assert say(**nothing, verdict="untested", reason="no outcomes at the laptop scale") == (
        "Not tested here: no outcomes at the laptop scale; `paperworks run quest.Q1b` would test it; "
        "the paper reports +0.33 on ImageNet."
    )
    only = say(**{**nothing, "command": None}, verdict="untested", reason="only the paper's own setting can test it")
    assert only == "Not tested here: only the paper's own setting can test it; the paper reports +0.33 on ImageNet."
    low = {**THRESHOLD, "value": 0.95, "verdict": "opposite", "effect": -0.05, "low": -0.07, "high": -0.03}
    reason = wording.not_controlled(replace(BASE, **low), EXPERIMENT)
    assert reason == "its control, acc of quest = 0.90 [0.88, 0.92], does not lie above 0.95"
    assert say(verdict="void", reason=reason) == (
        HEAD + "the test is void: its control, acc of quest = 0.90 [0.88, 0.92], does not lie above 0.95; "
        "so quest minus none = 0.10 [0.08, 0.12] in acc says nothing of the claim; " + PAPER
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "the contrast lies above 0 (p = 0.031)"),
        ({"margin": 0.03}, "the contrast lies above 0.03 (p = 0.031)"),
        ({"verdict": "opposite", "margin": 0.03}, "the contrast lies below 0 (p = 0.031)"),
        ({"verdict": "opposite", "margin": -0.03}, "the contrast lies below -0.03 (p = 0.031)"),
        ({"verdict": "below margin", "margin": 0.3}, "the contrast lies below the margin of 0.3 (p = 0.031)"),
        ({"verdict": "undecided", "p": 0.2}, "the contrast cannot be told from 0 (p = 0.2)"),
        ({"equivalence": True, "margin": 0.3, "p": 0.0001}, "the contrast lies inside ±0.3 (p < 0.001)"),
        (
            {"equivalence": True, "margin": 0.1, "verdict": "undecided"},
            "the contrast can be told neither inside nor outside ±0.1 (p = 0.031)",
        ),
        ({"n": 1}, "1 seed: fewer than 6 decide nothing"),
    ],
)
def test_reasons(changes, expected):
    assert wording.why(replace(BASE, **changes)) == expected


@pytest.mark.parametrize(
    ("values", "spread", "marks", "expected"),
    [
        ([0.1, 0.08, 0.12], 0.02, [], ["0.10", "0.08", "0.12"]),
        ([0.10021, 0.0878, 0.1126], 0.0124, [], ["0.100", "0.088", "0.113"]),
        ([0.05, 0.0312, 0.0688], 0.02, [0.03], ["0.050", "0.031", "0.069"]),  # 0.03 would look like the margin
        ([0.02, 0.0004, 0.04], 0.02, [0.0], ["0.0200", "0.0004", "0.0400"]),
        ([12345.6, 12000, 12700], 350, [], ["12,300", "12,000", "12,700"]),
        ([1234567890.0, 1.2e9, 1.3e9], 5e7, [], ["1.23e+09", "1.20e+09", "1.30e+09"]),
        ([3.21e-9, 3.0e-9, 3.4e-9], 2e-10, [], ["3.2e-09", "3.0e-09", "3.4e-09"]),
        ([-0.0004, -0.02, 0.02], 0.02, [], ["0.00", "-0.02", "0.02"]),
        ([0.25], 0.0, [], ["0.25"]),
        ([0.0], 0.0, [], ["0"]),
        ([1.0], 0.0, [], ["1"]),
        ([1 / 3], 0.0, [], ["0.333"]),
    ],
)
def test_numbers_keep_the_digits_that_their_interval_leaves(values, spread, marks, expected):
    assert wording.numbers(values, spread, marks) == expected


def test_small_formats():
    assert [wording.number(x) for x in (0.03, 600.0, 1e-5, -2)] == ["0.03", "600", "1e-05", "-2"]
    assert [wording.about(x) for x in (0.1834, 1234.0, 0.0)] == ["0.18", "1200", "0"]
    assert [wording.duration(x) for x in (0.2, 4.2, 89, 91, 60 * 40)] == [
        "1 minute",
        "4 minutes",
        "89 minutes",
        "2 hours",
        "2 days",
    ]
    assert [wording.seed_list(x) for x in ([6, 7, 8], [7], [1, 4])] == ["6:9", "7:8", "1,4"]


def test_comparison():
    found = Comparison("quest", "Q1", 0.12, 6, "seed", 0.1, 6, 0.07, 0.13, True)
    assert wording.compared(found) == (
        "Your 6 seeds give 0.12, inside the interval [0.07, 0.13] "
        "in which the 6 shipped ones let 95 % of such runs lie."
    )
    outside = replace(found, effect=0.1301, inside=False)
    assert wording.compared(outside).startswith("Your 6 seeds give 0.1301, outside the interval [0.07, 0.13]")
    other = replace(found, inside=None, reason="their scale differs")
    assert wording.compared(other) == "The two runs of quest.Q1 cannot be compared: their scale differs."


def test_no_sentence_judges_the_paper():
    for verdict in ("supported", "opposite", "below margin", "undecided", "void", "untested"):
        for test in ("direct", "reduced", "analogue"):
            text = say(verdict=verdict, test=test, flags=("secondary_basis", "skewed"))
            assert not re.search(r"\b(right|wrong|holds?|fails?|failed|reproduc\w+|refut\w+|confirmed)\b", text)
            assert text[0].isupper()
            assert text.endswith(".")
            assert "  " not in text
            assert ";;" not in text
