"""Verdicts of a toy paper, from a long table to the JSON that a reader gets."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.claims import statistics
from paperworks.claims.paper import parse_paper
from paperworks.claims.verdict import VERDICTS, Evidence, adjust_index, compare, judge, needed_cells

COLUMNS = ["experiment", "version", "scale", "arm", "cue", "host", "seed", "item", "metric", "value"]
NOISE = np.array([0.011, -0.008, 0.004, -0.012, 0.009, -0.004])
BASE = {
    "id": "Q1",
    "text": "Quest is better than none.",
    "test": "reduced",
    "experiment": "grid",
    "metric": "acc",
    "arm": "quest",
    "against": "none",
    "level": {"cue": "masked", "host": "mean"},
}
THRESHOLD = {**BASE, "against": None, "value": 0.85}


def make_paper(*claims, basis="full-text", **grid):
    experiment = {
        "text": "At 600 steps on the toy task",
        "version": 2,
        "arms": ["none", "quest", "other"],
        "level": {"cue": ["masked", "present"], "host": ["a", "b", "c"]},
        "metric": {"acc": "accuracy", "loss": "loss", "harm": {"text": "acc(masked) - acc(present)", "over": ["cue"]}},
        "scale": {"smoke": {"seeds": 2}, "laptop": {"seeds": 6}, "paper": {"seeds": 3}},
    }
    second = {
        "text": "On the second task",
        "arms": ["none", "quest"],
        "metric": {"acc": "accuracy"},
        "scale": {"laptop": {"seeds": 6}},
    }
    raw = {
        "title": "Toy",
        "authors": ["A. Author"],
        "year": 2026,
        "licence": "Apache-2.0",
        "family": "layers",
        "extra": "torch",
        "basis": basis,
        "summary": "A toy.",
        "experiment": {"grid": {**experiment, **grid}, "second": second},
        "claim": list(claims),
    }
    return parse_paper(raw, Path("layers/quest"))


def cell_rows(
    value, *, seeds=6, scale="laptop", metric="acc", arms=("none", "quest"), items=(None,), experiment="grid"
):
    """One row for each cell; ``value(arm, cue, host, seed, item)`` gives its number."""
    grid = itertools.product(arms, ("masked", "present"), "abc", range(seeds), items)
    rows = [
        (experiment, 2, scale, arm, cue, host, seed, item, metric, value(arm, cue, host, seed, item))
        for arm, cue, host, seed, item in grid
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def gain(effect, noise=NOISE, base=0.8):
    def value(arm, cue, host, seed, item):
        return base + (arm == "quest") * (effect + noise[seed % len(noise)])

    return value


def one(claim, table, scale="laptop", seeds=None, *, basis="full-text", **more):
    evidence = None if table is None else Evidence(table, "yours", **more)
    (verdict,) = judge(make_paper(claim, basis=basis), evidence, scale, seeds)
    json.dumps(verdict.to_dict(), allow_nan=False)
    return verdict


@pytest.mark.parametrize(
    ("claim", "effect", "verdict"),
    [
        (BASE, 0.1, "supported"),
        (BASE, -0.1, "opposite"),
        (BASE, 0.0, "undecided"),
        ({**BASE, "margin": 0.05}, 0.1, "supported"),
        ({**BASE, "margin": 0.2}, 0.1, "below margin"),
        ({**BASE, "margin": 0.2}, -0.1, "opposite"),
        ({**BASE, "margin": -0.05}, 0.0, "supported"),
        ({**BASE, "margin": -0.05}, -0.1, "opposite"),
        ({**BASE, "better": "lower"}, -0.1, "supported"),
        ({**BASE, "better": "lower"}, 0.1, "opposite"),
        ({**BASE, "equivalence": True, "margin": 0.05}, 0.0, "supported"),
        ({**BASE, "equivalence": True, "margin": 0.05}, 0.1, "opposite"),
        ({**BASE, "equivalence": True, "margin": 0.05}, 0.05, "undecided"),
        ({**BASE, "ratio": 1.1}, 0.1, "supported"),  # 0.9 > 1.1 x 0.8
        ({**BASE, "ratio": 1.2}, 0.1, "opposite"),  # 0.9 < 0.96
        (THRESHOLD, 0.1, "supported"),
        (THRESHOLD, 0.0, "opposite"),
        ({**THRESHOLD, "margin": 0.1}, 0.1, "below margin"),
        ({**THRESHOLD, "better": "lower"}, 0.0, "supported"),
    ],
)
def test_verdict(claim, effect, verdict):
    assert one(claim, cell_rows(gain(effect))).verdict == verdict


def test_numbers_of_a_verdict():
    found = one({**BASE, "margin": 0.05}, cell_rows(gain(0.1)))
    contrasts = 0.1 + NOISE
    mean, low, high = (float(x) for x in statistics.t_interval(contrasts))
    assert (found.effect, found.low, found.high) == pytest.approx((mean, low, high))
    assert found.p == 2 / 64
    assert (found.n, found.units, found.unit) == (6, (0, 1, 2, 3, 4, 5), "seed")
    assert found.values == pytest.approx(contrasts)
    assert found.arm_values == pytest.approx(0.8 + contrasts)
    assert found.against_values == pytest.approx([0.8] * 6)
    assert (found.arm_mean, found.against_mean) == pytest.approx((0.8 + mean, 0.8))
    assert found.smallest_detectable == pytest.approx(0.05 + 1.8 * contrasts.std(ddof=1))
    assert (found.version, found.scale, found.evidence, found.command) == (2, "laptop", "yours", None)


def test_json_has_every_field_of_the_contract_and_no_nan():
    record = one(BASE, cell_rows(gain(0.1))).to_dict()
    contract = """paper claim text test metric verdict effect low high n unit margin p p_holm p_bh reason flags sentence
        scale version paper_arm paper_against evidence values arm_mean against_mean controls smallest_detectable
        units_to_decide minutes_to_decide command"""
    assert set(contract.split()) <= set(record)
    assert record["level"] == {"cue": ["masked"], "host": ["a", "b", "c"]}
    single = one(BASE, cell_rows(gain(0.1), seeds=1), seeds=[0]).to_dict()
    assert single["low"] is None
    assert single["effect"] is not None


def test_levels_are_a_value_a_list_or_the_mean():
    table = cell_rows(
        lambda arm, cue, host, seed, item: (arm == "quest") * ("abc".index(host) + 10 * (cue == "masked"))
    )

    def effect(level):
        return one({**BASE, "level": level}, table).effect

    assert effect({"cue": "masked", "host": "b"}) == 11
    assert effect({"cue": "masked", "host": ["a", "c"]}) == 11
    assert effect({"cue": "present", "host": ["b", "c"]}) == 1.5
    assert effect({"cue": "mean", "host": "mean"}) == 6
    assert effect("mean") == 6


def test_a_derived_metric_lacks_the_axes_it_was_taken_over():
    rows = [
        ("grid", 2, "laptop", arm, np.nan, host, seed, None, "harm", 0.3 * (arm == "none") + 0.01 * seed)
        for arm in ("none", "quest")
        for host in "abc"
        for seed in range(6)
    ]
    table = pd.concat([cell_rows(gain(0.1)), pd.DataFrame(rows, columns=COLUMNS)])
    claim = {**BASE, "metric": "harm", "arm": "none", "against": "quest", "level": {"host": "mean"}}
    found = one(claim, table)
    assert (found.verdict, round(found.effect, 9)) == ("supported", 0.3)


def test_rounding_in_a_derived_metric_is_no_difference():
    """A slope of equal numbers is 1e-16 or so, the same in every seed: no sign flips it, and it says nothing."""

    def harm(value):
        rows = [
            ("grid", 2, "laptop", arm, np.nan, host, seed, None, "harm", value)
            for arm in ("none", "quest")
            for host in "abc"
            for seed in range(6)
        ]
        claim = {**BASE, "metric": "harm", "arm": "none", "against": None, "value": 0.0, "level": {"host": "mean"}}
        return one(claim, pd.concat([cell_rows(gain(0.1)), pd.DataFrame(rows, columns=COLUMNS)]))

    assert harm(-4.5e-16).effect == 0
    assert harm(-4.5e-16).verdict == harm(4.5e-16).verdict == "undecided"
    assert harm(1e-6).verdict == "supported"


def test_numbers_as_levels_are_found_whatever_their_type_in_the_table():
    paper = make_paper(
        {**BASE, "level": {"size": 4, "flag": True}},
        level={"size": [4, 8], "flag": [True, False]},
        metric={"acc": "accuracy"},
    )
    rows = [
        ("grid", 2, "laptop", arm, float(size), flag, seed, None, "acc", (arm == "quest") * (size + flag))
        for arm in ("none", "quest")
        for size in (4, 8)
        for flag in (True, False)
        for seed in range(6)
    ]
    columns = ["experiment", "version", "scale", "arm", "size", "flag", "seed", "item", "metric", "value"]
    (found,) = judge(paper, Evidence(pd.DataFrame(rows, columns=columns), "yours"))
    assert (found.verdict, found.effect) == ("supported", 5.0)


def test_items_are_the_units_averaged_over_seeds_and_levels():
    def value(arm, cue, host, seed, item):
        return (arm == "quest") * (0.1 + int(item) / 100) + seed + "abc".index(host)

    items = [str(i) for i in range(8)]
    claim = {**BASE, "unit": "item"}
    found = one(claim, cell_rows(value, items=items))
    assert (found.verdict, found.n, found.units) == ("supported", 8, tuple(items))
    assert found.values == pytest.approx([0.1 + i / 100 for i in range(8)])
    assert found.arm_values == pytest.approx([0.1 + i / 100 + 2.5 + 1 for i in range(8)])
    assert one(claim, cell_rows(value, items=items[:5])).flags == ("few_seeds",)
    assert one(claim, cell_rows(gain(0.1))).verdict == "untested"  # cells, but no single items
    table = cell_rows(value, items=items)
    lacking = one(claim, table.drop(table.index[[40]]))
    assert (lacking.verdict, lacking.flags) == ("undecided", ("incomplete",))


def test_zero_variance():
    exact = np.zeros(6)
    found = one(BASE, cell_rows(gain(0.1, exact)))
    assert (found.verdict, found.p) == ("supported", 2 / 64)
    assert one(BASE, cell_rows(gain(0.0, exact))).verdict == "undecided"
    assert one({**BASE, "equivalence": True, "margin": 0.01}, cell_rows(gain(0.0, exact))).verdict == "supported"
    # 0.3 and 3 * 0.1 are the same number, and so no difference
    rounded = cell_rows(lambda arm, cue, host, seed, item: 0.3 if arm == "quest" else 0.1)
    found = one({**BASE, "ratio": 3.0}, rounded)
    assert (found.verdict, found.effect) == ("undecided", 0.0)


def test_fewer_than_six_seeds_show_a_trend():
    found = one(BASE, cell_rows(gain(0.1), seeds=3, scale="paper"), "paper")
    assert (found.verdict, found.flags, found.n) == ("undecided", ("few_seeds",), 3)
    assert found.effect == pytest.approx(0.1 + NOISE[:3].mean())
    assert found.units_to_decide == 6
    assert found.command == "paperworks run quest.Q1 --scale paper --seeds 3:9"
    assert not found.judged


def test_smoke_runs_decide_nothing():
    found = one(BASE, cell_rows(gain(0.1), seeds=8, scale="smoke"), "smoke", seeds=range(8))
    assert (found.verdict, found.units_to_decide, found.command) == ("undecided", None, "paperworks run quest.Q1")


@pytest.mark.parametrize("arm", ["none", "quest"])
def test_a_missing_cell_makes_it_incomplete_and_drops_no_pair(arm):
    table = cell_rows(gain(0.1))
    where = (table.arm == arm) & (table.seed == 4) & (table.cue == "masked") & (table.host == "b")
    found = one(BASE, table[~where])
    assert (found.verdict, found.flags, found.effect, found.n) == ("undecided", ("incomplete",), None, 5)
    assert f"{arm}, cue = masked, host = b, seed 4" in found.reason
    assert "1 of 36 needed values" in found.reason
    assert found.command == "paperworks run quest.Q1"
    not_a_number = table.assign(value=table.value.where(~where))
    assert one(BASE, not_a_number).flags == ("incomplete",)
    unneeded = table[~((table.cue == "present") & (table.seed == 4))]
    assert one(BASE, unneeded).verdict == "supported"


def test_a_failed_cell_is_named_with_its_error():
    table = cell_rows(gain(0.1))
    lost = (table.arm == "quest") & (table.seed == 4) & (table.cue == "masked") & (table.host == "b")
    cell = {"experiment": "grid", "arm": "quest", "cue": "masked", "host": "b", "seed": 4}
    failed = pd.DataFrame([{**cell, "status": "timeout", "error": "no result after 120 s"}])
    found = one(BASE, table[~lost], failed=failed)
    assert found.reason == (
        "1 of 36 needed values of acc is missing, for 1 cell did not finish "
        "(quest, cue = masked, host = b, seed 4: timeout: no result after 120 s)"
    )
    all_failed = one(BASE, table[:0], failed=failed)
    assert (all_failed.verdict, all_failed.flags) == ("undecided", ("incomplete",))
    elsewhere = pd.DataFrame([{**cell, "seed": 17, "status": "failed", "error": None}])
    assert one(BASE, table[:0], failed=elsewhere).verdict == "untested"
    other_experiment = pd.DataFrame(
        [{"experiment": "second", "arm": "quest", "seed": 4, "status": "failed", "error": ""}]
    )
    assert one(BASE, table[:0], failed=other_experiment).verdict == "untested"


def test_untested():
    for table in (None, cell_rows(gain(0.1), arms=("other",)), cell_rows(gain(0.1)).assign(version=1)):
        found = one(BASE, table)
        assert (found.verdict, found.evidence, found.effect, found.n) == ("untested", None, None, 0)
        assert found.command == "paperworks run quest.Q1"
    only = one({**BASE, "scales": ["paper"]}, cell_rows(gain(0.1)))
    assert (only.verdict, only.command) == ("untested", "paperworks run quest.Q1 --scale paper")
    assert one({**BASE, "scales": ["laptop"]}, cell_rows(gain(0.1), scale="paper"), "paper").verdict == "untested"


CONTROL = {"metric": "acc", "arm": "quest", "level": {"cue": "present", "host": "a"}, "value": 0.85}


def test_a_control_that_is_not_supported_voids_the_claim():
    table = cell_rows(gain(0.1))
    fine = one({**BASE, "control": [CONTROL]}, table)
    assert (fine.verdict, [c.verdict for c in fine.controls]) == ("supported", ["supported"])
    void = one({**BASE, "control": [CONTROL, {**CONTROL, "value": 0.95}]}, table)
    assert (void.verdict, void.p_holm) == ("void", None)
    assert [c.verdict for c in void.controls] == ["supported", "opposite"]
    assert void.reason == (
        "its control, acc of quest = 0.900 [0.890, 0.910] at cue = present, host = a, does not lie above 0.95"
    )
    assert void.effect == pytest.approx(0.1)
    unsure = one({**BASE, "control": [{**CONTROL, "value": 0.899}]}, table)
    assert unsure.verdict == "void"
    assert "is not shown to lie above 0.899" in unsure.reason


def test_a_ratio_to_something_not_above_zero_is_void():
    table = cell_rows(lambda arm, cue, host, seed, item: 1.0 if arm == "quest" else float(seed))
    found = one({**BASE, "ratio": 0.1}, table)
    assert (found.verdict, found.reason) == ("void", "a ratio to none means nothing where none is not above 0")


def test_a_control_without_outcomes_leaves_the_claim_open():
    control = {"experiment": "second", "metric": "acc", "arm": "quest", "value": 0.5}
    found = one({**BASE, "control": [control]}, cell_rows(gain(0.1)))
    assert (found.verdict, found.flags, found.reason) == ("undecided", ("incomplete",), "control 1: no outcomes")
    assert found.effect == pytest.approx(0.1)


def test_a_changed_statement_is_flagged():
    table = cell_rows(gain(0.1))
    paper = make_paper(BASE)
    current = paper.statement_hash(paper.claims["Q1"], "laptop")
    assert one(BASE, table, statement_hashes={"Q1": frozenset({current})}).flags == ()
    assert one(BASE, table, statement_hashes={}).flags == ()
    for hashes in ({"Q1": frozenset({"0" * 16})}, {"Q1": frozenset({current, "0" * 16})}, {"Q7": frozenset({"1"})}):
        found = one(BASE, table, statement_hashes=hashes)
        assert (found.verdict, found.flags) == ("supported", ("statement_changed",))


def test_further_flags():
    table = cell_rows(gain(0.1))
    assert one(BASE, table, custom=frozenset({"quest", "other"})).custom == ("quest",)
    assert one(BASE, table, custom=frozenset({"other"})).flags == ()
    assert one(BASE, table, code_changed=True).flags == ("code_changed",)
    assert one(BASE, table, basis="secondary").flags == ()
    assert one({**BASE, "better": "lower"}, table, basis="secondary").flags == ("secondary_basis",)
    near = one(THRESHOLD, cell_rows(gain(0.065)))  # 0.865 against 0.85, 4 standard errors
    assert (near.verdict, near.flags) == ("supported", ("skewed",))
    outlier = np.array([0, 0.001, 0, -0.001, 0, 0.5])
    assert one(BASE, cell_rows(gain(0.1, outlier))).flags == ("skewed",)


def test_an_undecided_verdict_says_what_would_decide():
    claim = {**BASE, "margin": 0.09}
    table = cell_rows(gain(0.1))
    found = one(claim, table, seconds={"grid": 10.0})
    sd = float((0.1 + NOISE).std(ddof=1))
    assert found.verdict == "undecided"
    assert found.units_to_decide == statistics.units_to_decide(0.01, sd) == 10
    assert found.minutes_to_decide == pytest.approx(10 * 6 * 10 / 60)  # two arms, one cue, three hosts
    assert found.command == "paperworks run quest.Q1 --seeds 6:16"
    assert one(claim, table).minutes_to_decide is None
    near = one({**claim, "margin": 0.098}, table)
    assert near.units_to_decide > 100
    assert (
        near.command == f"paperworks run quest.Q1 --seeds 1000:{1000 + near.units_to_decide}"
    )  # clear of tuning seeds
    at_zero = one({**BASE, "margin": 0.1}, cell_rows(gain(0.1, np.array([1, -1, 1, -1, 1, -1]) / 8)))
    assert (at_zero.units_to_decide, at_zero.command) == (None, None)
    far = one({**claim, "margin": 0.0995}, table)  # thousands of seeds are no proposal
    assert (far.verdict, far.units_to_decide, far.command) == ("undecided", None, None)
    on_it = one({**BASE, "margin": 0.1}, cell_rows(gain(0.1, np.zeros(6))))  # without spread more seeds say the same
    assert (on_it.verdict, on_it.units_to_decide) == ("undecided", None)


def test_needed_cells():
    claim = {**BASE, "metric": "harm", "level": {"host": "b"}, "control": [{**CONTROL, "arm": "other"}]}
    paper = make_paper(claim, metric={"acc": "a", "harm": {"text": "h", "over": ["cue"], "needs": ["other"]}})
    cells = needed_cells(paper, paper.claims["Q1"], "laptop")
    arms = ("none", "quest", "other")
    assert cells == {
        "grid": {(arm, (cue, "b")) for arm in arms for cue in ("masked", "present")} | {("other", ("present", "a"))}
    }


def test_other_seeds_are_exploratory_and_declared_ones_alone_decide():
    noise = np.concatenate([NOISE, NOISE - 0.3, NOISE])
    table = cell_rows(gain(0.1, noise), seeds=18)
    declared = one(BASE, table)
    assert (declared.verdict, declared.units, declared.flags) == ("supported", tuple(range(6)), ())
    assert one(BASE, table, seeds=range(6)) == declared
    further = one(BASE, table, seeds=range(6, 12))
    assert (further.verdict, further.units, further.flags) == ("opposite", tuple(range(6, 12)), ("exploratory",))
    assert "6 exploratory seeds (6:12)" in further.sentence
    lacking = one(BASE, table, seeds=range(16, 22))
    assert (lacking.flags, lacking.command) == (("incomplete", "exploratory"), "paperworks run quest.Q1 --seeds 16:22")
    with pytest.raises(ValueError, match="at least one seed"):
        one(BASE, table, seeds=[])


def test_a_cell_given_twice_is_refused():
    table = cell_rows(gain(0.1))
    with pytest.raises(
        ValueError, match=r"quest.grid: 'acc' of cell \('none', 'masked', 'a', 0\) stands .* more than once"
    ):
        one(BASE, pd.concat([table, table[:1]]))


def test_holm_over_the_paper_and_benjamini_hochberg_over_the_index():
    claims = [
        BASE,
        {**BASE, "id": "Q2", "margin": 0.2},
        {**BASE, "id": "Q3", "margin": 0.1},
        {**BASE, "id": "Q4", "scales": ["paper"]},
        {**BASE, "id": "Q5", "control": [{**CONTROL, "value": 0.99}]},
    ]
    verdicts = judge(make_paper(*claims), Evidence(cell_rows(gain(0.1)), "shipped"))
    assert [v.verdict for v in verdicts] == ["supported", "below margin", "undecided", "untested", "void"]
    p = [v.p for v in verdicts[:3]]
    assert p[:2] == [2 / 64] * 2
    assert [v.p_holm for v in verdicts] == [*statistics.holm(p), None, None]
    index = adjust_index([*verdicts, *verdicts])
    assert [v.p_bh for v in index[:5]] == [*statistics.benjamini_hochberg(p * 2)[:3], None, None]
    assert [v.verdict for v in index] == [v.verdict for v in verdicts] * 2


def test_compare():
    shipped, yours = one(BASE, cell_rows(gain(0.1))), one(BASE, cell_rows(gain(0.105, NOISE[::-1])))
    found = compare(shipped, yours)
    interval = statistics.prediction_interval(shipped.values, 6)
    assert found.inside
    assert (found.low, found.high) == pytest.approx(interval)
    assert (found.effect, found.shipped_effect) == (yours.effect, shipped.effect)
    json.dumps(found.to_dict(), allow_nan=False)
    assert not compare(shipped, one(BASE, cell_rows(gain(0.2)))).inside
    exact = one(BASE, cell_rows(gain(0.1, np.zeros(6))))
    assert compare(exact, exact).inside
    untested = compare(shipped, one(BASE, None))
    assert (untested.inside, untested.reason) == (None, "your run has no effect yet")
    other = compare(shipped, one({**BASE, "level": "mean"}, cell_rows(gain(0.1))))
    assert (other.inside, other.reason) == (None, "their level differs")


@st.composite
def studies(draw):
    seeds = draw(st.integers(6, 8))
    values = draw(st.lists(st.integers(-4, 4), min_size=4 * seeds, max_size=4 * seeds))
    numbers = dict(zip(itertools.product(("none", "quest"), ("masked", "present"), range(seeds)), values, strict=True))
    return seeds, numbers


def study_table(study):
    seeds, numbers = study
    return cell_rows(lambda arm, cue, host, seed, item: numbers[arm, cue, seed] / 4, seeds=seeds)


def judged(claim, table, seeds):
    (found,) = judge(make_paper(claim, scale={"laptop": {"seeds": seeds}}), Evidence(table, "yours"))
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.verdict in VERDICTS
    return found


@settings(max_examples=25, deadline=None)
@given(studies(), st.sampled_from([0.0, 0.25, -0.25]), st.randoms(use_true_random=False))
def test_what_must_not_change_a_verdict(study, margin, random):
    seeds, table = study[0], study_table(study)
    claim = {**BASE, "margin": margin}
    first = judged(claim, table, seeds)
    core = ("verdict", "effect", "low", "high", "n", "p", "values", "units")

    def same(other):
        return all(getattr(other, name) == getattr(first, name) for name in core)

    order = list(range(len(table)))
    random.shuffle(order)
    assert same(judged(claim, table.iloc[order], seeds))
    foreign = table[table.seed < 2].assign(seed=lambda t: t.seed + 50, value=9.0)
    assert same(judged(claim, pd.concat([foreign, table]), seeds))
    assert same(judged(claim, table.assign(value=table.value + 3.0), seeds))  # whole quarters: no rounding
    swapped = {"better": "lower", "arm": "none", "against": "quest"}
    assert same(judged({**claim, **swapped}, table, seeds))
    assert same(judged({**claim, "better": "lower"}, table.assign(value=-table.value), seeds))


@settings(max_examples=15, deadline=None)
@given(studies())
def test_turning_the_claim_round_turns_the_verdict_round(study):
    seeds, table = study[0], study_table(study)
    there, back = judged(BASE, table, seeds), judged({**BASE, "better": "lower"}, table, seeds)
    turned = {"supported": "opposite", "opposite": "supported"}
    assert back.verdict == turned.get(there.verdict, there.verdict)
    assert (back.effect, back.low, back.high) == pytest.approx((-there.effect, -there.high, -there.low))
    assert back.p == there.p


def test_ten_thousand_outcomes_are_judged_in_a_second():
    hosts = [f"h{i}" for i in range(139)]
    claims = [{**BASE, "id": f"Q{i}", "level": {"cue": "mean", "host": ["mean", hosts[i]][i % 2]}} for i in range(12)]
    paper = make_paper(*claims, level={"cue": ["masked", "present"], "host": hosts})
    grid = itertools.product(("none", "quest"), ("masked", "present"), hosts, range(6))
    rows = [
        ("grid", 2, "laptop", arm, cue, host, seed, None, metric, (arm == "quest") * NOISE[seed])
        for arm, cue, host, seed in grid
        for metric in ("acc", "loss", "harm")
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    assert len(table) > 10_000
    start = time.process_time()
    assert len(judge(paper, Evidence(table, "yours"))) == 12
    assert time.process_time() - start < 1.0


def test_judging_imports_neither_torch_nor_the_slow_half_of_scipy():
    code = "import sys, paperworks.claims.verdict; print([m for m in ('torch', 'scipy.stats') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
