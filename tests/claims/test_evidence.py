"""Shipped evidence says what the ledger it came from says, and nothing that is not sound."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Desk
from paperworks.claims import api, engine, evidence
from paperworks.claims.engine import Request
from paperworks.claims.errors import PaperError
from paperworks.claims.evidence import Record, current, curve_band, export, long_table, recorded, shipped
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import Ledger, Row, RunInfo
from paperworks.claims.paper import Paper, load_paper
from toy_package import DERIVE, LAB_PAPER, LAB_STUDY, PAPER

LEDGER = Path("ledger.db")


def run(*targets: str, **request: Any) -> None:
    with Ledger(LEDGER) as opened:
        opened._db.execute("PRAGMA synchronous=OFF")
        engine.run(Request(targets or ("toy",), **request), opened, executor=InlineExecutor())


def record(*, drawings: bool = True) -> Record:
    with Ledger(LEDGER, readonly=True) as opened:
        return recorded(opened, "toy", drawings=drawings)


def ship(desk: Desk) -> list[dict[str, Any]]:
    """Export, and return the lines."""
    path, count = export(load_paper(desk.room), desk.room, record())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum(line["line"] == "outcome" for line in lines) == count
    assert sorted(p.name for p in desk.room.glob("evidence*")) == ["evidence.jsonl"]
    return lines


def judged(source: str) -> list[dict[str, Any]]:
    found = api.verdicts(["toy"], ledger=LEDGER, source=source)
    unlike = {"evidence", "minutes_to_decide", "sentence"}  # seconds are rounded in the file
    return [{k: v for k, v in verdict.to_dict().items() if k not in unlike} for verdict in found]


# --- export and import ---------------------------------------------------------------------------------------------


def test_verdicts_from_shipped_evidence_are_those_of_its_ledger(toy: Desk) -> None:
    run()
    lines = ship(toy)
    mine, theirs = judged("yours"), judged("shipped")
    assert [v["verdict"] for v in mine] == ["supported", "supported", "untested"]
    assert mine == theirs  # every number, bit by bit
    assert [line["line"] for line in lines] == ["run"] + ["outcome"] * 40 + ["curve"] * 4
    again = shipped(toy.room)
    assert again.problems == []
    assert {(r.experiment, r.arm, r.seed, str(r.level)): dict(r.metrics) for r in again.rows} == {
        (r.experiment, r.arm, r.seed, str(r.level)): dict(r.metrics) for r in record().rows
    }


def test_items_and_knobs_are_shipped_too(lab: Desk) -> None:
    run("toy.tuned", "toy.marked")
    lines = ship(lab)
    assert judged("yours") == judged("shipped")
    assert {v["claim"]: (v["n"], v["unit"]) for v in judged("shipped")} == {"L1": (6, "seed"), "L2": (8, "item")}
    tuned = [line for line in lines if line.get("kind") == "tune"]
    assert len(tuned) == 32
    assert {line["seed"] for line in tuned} == {100, 101, 102, 103}
    assert all(line["knobs"] for line in tuned)


def test_what_is_not_for_others_stays_in_the_ledger(toy: Desk) -> None:
    run("toy.estimate", arms={"mine": lambda: max}, seeds=(0, 1, 7))  # an own arm, an exploratory seed
    run("toy.estimate", settings={"draws": 20}, seeds=(2,))
    run("toy.estimate", scale="smoke", seeds=(3,))
    assert {(line["arm"], line["seed"]) for line in ship(toy) if line["line"] == "outcome"} == {
        (arm, seed) for arm in ("mean", "median") for seed in (0, 1)
    }


def test_failures_are_shipped_with_their_last_line(toy: Desk) -> None:
    run("toy.estimate")
    with Ledger(LEDGER) as opened:
        bad = opened.rows("toy")[0]
        opened._db.execute(
            "UPDATE outcome SET status='failed', metrics='{}', error='Traceback\n  x\nE: y' WHERE key=?", [bad.key]
        )
    (line,) = [line for line in ship(toy) if line.get("status")]
    assert (line["status"], line["error"]) == ("failed", "E: y")
    verdict = api.verdicts(["toy.M1"], source="shipped")[0]
    assert (verdict.verdict, verdict.flags) == ("undecided", ("incomplete",))
    assert "E: y" in verdict.reason


def test_of_two_configurations_of_a_cell_the_one_run_last_is_shipped(toy: Desk) -> None:
    """Also when the first was run again after the second: the order of the lines must not decide."""
    run("toy.estimate")
    found = record().rows[0]
    info = next(iter(record().runs.values()))
    with Ledger(LEDGER) as opened:
        for key, value, when in (("other", 55.0, 1), (found.key, 66.0, 2)):
            from dataclasses import replace

            opened.record(
                replace(
                    found, key=key, metrics={"error": value, "spread": 1.0}, finished=found.finished + when, run=info.id
                ),
                again=True,
            )
    ship(toy)
    assert judged("yours") == judged("shipped")
    values = [
        r.metrics["error"]
        for r in shipped(toy.room).rows
        if (r.arm, r.seed, r.level, r.experiment) == (found.arm, found.seed, found.level, found.experiment)
    ]
    assert values == [66.0]


def test_nothing_to_export_and_too_much(toy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    run("toy.estimate", scale="smoke")
    with pytest.raises(PaperError, match="the ledger has no outcomes of toy at scale laptop or overnight to export"):
        ship(toy)
    run("toy.estimate")
    with monkeypatch.context() as patch:
        patch.setattr(evidence, "EVIDENCE_LIMIT", 5000)
        with pytest.raises(PaperError, match=r"evidence of toy would be \d+ KB; at most 5 KB are shipped"):
            ship(toy)
    assert not (toy.room / "evidence.jsonl").exists()
    assert evidence.EVIDENCE_LIMIT == 300_000
    assert len(ship(toy)) == 1 + 24 + 4


def test_a_room_that_cannot_be_written_is_one_line(toy: Desk) -> None:
    run("toy.estimate", seeds=(0,))
    (toy.room / "evidence.jsonl.partial").mkdir()
    with pytest.raises(PaperError, match=r"cannot write .*evidence\.jsonl: Is a directory"):
        ship(toy)


def test_a_scale_that_paper_toml_no_longer_has(toy: Desk) -> None:
    run("toy.estimate", "toy.jointly")
    paper = PAPER.replace("scale.laptop = { seeds = 8 }", "scale.paper = { seeds = 8 }")
    (toy.room / "paper.toml").write_text(paper)
    assert {line.get("experiment") for line in ship(toy)} == {None, "estimate"}
    assert api.verdicts(["toy.M2"], ledger=LEDGER)[0].n == 6


# --- lines that are not sound --------------------------------------------------------------------------------------


def damage(lines: list[str]) -> dict[str, tuple[int, str, str]]:
    """For each kind: which line, its new text, what is said of it."""
    outcome = json.loads(lines[1])

    def edit(**changes: Any) -> str:
        return json.dumps({k: v for k, v in {**outcome, **changes}.items() if v is not None})

    return {
        "cut off": (1, lines[1][: len(lines[1]) // 2], "line 2: JSONDecodeError"),
        "not JSON": (3, "hello", "line 4: JSONDecodeError"),
        "no object": (3, "[1, 2]", "line 4: TypeError"),
        "unknown line": (3, '{"line": "outcme"}', "line 4: ValueError: unknown line 'outcme'"),
        "no kind": (3, '{"seed": 1}', "line 4: KeyError: 'line'"),
        "unknown key": (1, edit(sed=1), "unexpected keyword argument 'sed'"),
        "missing key": (1, edit(seed=None), "missing 1 required positional argument: 'seed'"),
        "text for a seed": (1, edit(seed="0"), "line 2: ValueError: seed = '0' is not sound"),
        "truth for a seed": (1, edit(seed=True), "seed = 'True' is not sound"),
        "text for a metric": (1, edit(metrics={"error": "0.1"}), "metrics = "),
        "NaN": (1, edit(metrics={"error": float("nan")}), "line 2: ValueError: NaN is no finite number"),
        "a list of metrics": (1, edit(metrics=[1.0]), "metrics = '[1.0]' is not sound"),
        "items": (1, edit(items={"error": [1.0]}), "items = "),
        "level": (1, edit(level={"outliers": ["none"]}), "level = "),
        "status": (1, edit(status="fine"), "status = 'fine' is not sound"),
        "kind": (1, edit(kind="pilot"), "kind = 'pilot' is not sound"),
        "own arm": (1, edit(custom={"arm": "x:y"}), "custom = "),
        "another run": (1, edit(run="r9"), "line 2: ValueError: no line above describes run 'r9'"),
        "no text": (1, "\xff", "line 2: UnicodeDecodeError"),
        "curve": (25, lines[25].replace('"mean":[', '"mean":[1.0,'), "ValueError: step, mean, low and high differ"),
    }  # fmt: skip


KINDS = tuple(damage(['{"line": "run"}', "{}", *["{}"] * 30]))


@pytest.mark.parametrize("kind", KINDS)
def test_lines_that_are_not_sound_are_named_and_the_others_used(toy: Desk, kind: str) -> None:
    run("toy.estimate")
    ship(toy)
    path = toy.room / "evidence.jsonl"
    lines = path.read_text().splitlines()
    number, text, says = damage(lines)[kind]
    lines[number] = text
    path.write_bytes("\n".join(lines).encode("latin-1") + b"\n")
    found = shipped(toy.room)
    (problem,) = found.problems
    assert problem.startswith(f"evidence.jsonl, line {number + 1}: ")
    assert says in problem
    assert len(found.rows) == 24 - (number in (1, 3))
    assert len(found.curves) == 4 - (number == 25)
    verdicts = api.verdicts(["toy"], source="shipped")  # and they can be judged
    assert verdicts[0].verdict == ("supported" if number == 25 else "undecided")


def test_a_run_line_that_is_gone_takes_its_outcomes_with_it(toy: Desk) -> None:
    """Nothing is known of what made them."""
    run("toy.estimate")
    ship(toy)
    path = toy.room / "evidence.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    found = shipped(toy.room)
    assert (len(found.rows), len(found.problems)) == (0, 24)
    assert shipped(toy.room.parent).rows == []  # no file at all


# --- yours and theirs ----------------------------------------------------------------------------------------------


def change_evidence(desk: Desk, value: float) -> None:
    """Make what is shipped unlike what is run here."""
    path = desk.room / "evidence.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "metrics" in line:
            line["metrics"] = {**line["metrics"], "error": value + line["metrics"]["error"]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_shipped_evidence_never_makes_a_cell_present_and_is_never_pooled(toy: Desk) -> None:
    run("toy.estimate")
    ship(toy)
    change_evidence(toy, 100.0)
    LEDGER.unlink()
    run("toy.M2", seeds=(0, 1))
    assert len(record().rows) == 4  # they were run, although they are shipped
    m1, m2 = api.verdicts(["toy.M1", "toy.M2"], ledger=LEDGER)
    assert [(v.evidence, v.n, bool(v.also)) for v in (m1, m2)] == [("shipped", 6, True)] * 2  # yours are a part
    (m2,) = api.verdicts(["toy.M2"], ledger=LEDGER, source="yours")
    assert (m2.evidence, m2.n, m2.verdict) == ("yours", 2, "undecided")
    run("toy.M2")
    (m2,) = api.verdicts(["toy.M2"], ledger=LEDGER)
    assert (m2.evidence, m2.n) == ("yours", 6)
    assert m2.arm_mean < 1
    (theirs,) = api.verdicts(["toy.M2"], ledger=LEDGER, source="shipped")
    assert theirs.arm_mean > 99


def test_shipped_is_judged_where_you_have_nothing(toy: Desk) -> None:
    run("toy.estimate")
    ship(toy)
    LEDGER.unlink()
    assert {v.evidence for v in api.verdicts(["toy.M1", "toy.M2"])} == {"shipped"}
    run("toy.estimate", scale="smoke")  # another scale
    run("toy.jointly")  # another experiment
    run("toy.estimate", seeds=(6, 7))  # exploratory seeds
    run("toy.estimate", settings={"draws": 20})
    assert {v.evidence for v in api.verdicts(["toy.M1", "toy.M2"], ledger=LEDGER)} == {"shipped"}
    run("toy.estimate", seeds=(0,), arms={"mean": None})
    m1, m2 = api.verdicts(["toy.M1", "toy.M2"], ledger=LEDGER)
    assert (m1.evidence, m2.evidence) == ("shipped", "shipped")  # a part of yours does not replace the whole of it
    assert m1.also == "Of its 24 cells you have run 2: `paperworks run toy.M1` runs the rest."
    assert m2.also == "Of its 12 cells you have run 1: `paperworks run toy.M2` runs the rest."
    run("toy.M2")
    m1, m2 = api.verdicts(["toy.M1", "toy.M2"], ledger=LEDGER)
    assert (m1.evidence, m2.evidence, m2.also) == ("shipped", "yours", "")
    (toy.room / "evidence.jsonl").unlink()
    assert api.verdicts(["toy.M1"], ledger=LEDGER)[0].evidence == "yours"  # there is nothing better


def test_cells_that_a_claim_does_not_read_do_not_count_as_yours(toy: Desk) -> None:
    paper = load_paper(toy.room)
    run("toy.estimate")
    rows = [r for r in record().rows if r.level["outliers"] == "some"]
    some = Record("yours", rows, record().runs)
    assert evidence.coverage(paper, paper.claims["M1"], some, "laptop") == (12, 24)
    assert evidence.coverage(paper, paper.claims["M2"], some, "laptop") == (0, 12)  # it reads outliers = "none" only
    assert evidence.coverage(paper, paper.claims["M1"], some, "smoke") == (0, 8)
    assert evidence.coverage(paper, paper.claims["M3"], some, "paper") == (0, 0)


# --- the long table ------------------------------------------------------------------------------------------------


def row(seed: int = 0, arm: str = "mean", **changes: Any) -> Row:
    given: dict[str, Any] = {
        "key": "k", "paper": "toy", "experiment": "estimate", "version": 1, "scale": "laptop", "arm": arm, "seed": seed,
        "level": {"outliers": "none"}, "metrics": {"error": 1.0, "spread": 2.0}, "run": "r1",
    }  # fmt: skip
    return Row(**{**given, **changes})


def both(seed: int = 0, arm: str = "mean", **errors: float) -> list[Row]:
    return [row(seed, arm, level={"outliers": o}, metrics={"error": e, "spread": 1.0}) for o, e in errors.items()]


@pytest.fixture
def paper(toy: Desk) -> Paper:
    return load_paper(toy.room)


def test_the_long_table(paper: Paper) -> None:
    rows = [*both(0, none=0.5, some=2.0), *both(1, none=0.25, some=1.0), row(2, status="failed")]
    rows.append(row(3, metrics={"error": 1.0}, items={"spread": {"q1": 3.0, "q2": 4.0}}))
    table = long_table(paper, paper.folder, rows)
    assert list(table.columns) == [
        "experiment", "version", "scale", "arm", "seed", "item", "metric", "value", "outliers",
    ]  # fmt: skip
    gains = table[table.metric == "gain"]
    assert gains.set_index("seed").value.to_dict() == {0: 1.5, 1: 0.75}
    assert set(gains.scale) == {"laptop"}
    assert gains.outliers.isna().all()
    assert table[table.seed == 2].empty
    items = table[table.item.notna()]
    assert items.set_index("item").value.to_dict() == {"q1": 3.0, "q2": 4.0}
    assert long_table(paper, paper.folder, []).empty


def test_only_comparable_trials_count(paper: Paper) -> None:
    rows = [
        row(0, finished=5.0),
        row(0, metrics={"error": 9.0, "spread": 1.0}, finished=7.0, key="later"),
        row(1, version=2),
        row(2, scale="smoke"),
        row(3, kind="tune"),
        row(4, custom={"set": {"draws": 1}}),
        row(5, experiment="gone"),
        row(6, arm="mine", custom={"arm": "a:b"}),
    ]
    found = current(paper, Record("yours", rows, {}), "laptop")
    assert [(r.seed, r.metrics["error"]) for r in found] == [(0, 9.0), (6, 1.0)]
    assert [r.metrics["error"] for r in current(paper, Record("yours", rows[1::-1], {}), "laptop")] == [9.0]


WRONG_DERIVE = {
    "raises": ("    wide = ", "    wide = table['no_such']; ", "estimate failed for seed 0 with KeyError: 'no_such'"),
    "undeclared": ('"metric": "gain"', '"metric": "gian"', "estimate returned metric 'gian', which paper.toml"),
    "no table": ('return pd.DataFrame({"arm"', 'return 3 or ({"arm"', "estimate must return a table with columns"),
    "no column": ('"gain", "value"', '"gain", "worth"', "estimate must return a table with columns"),
    "twice": ('"value": gain.to_numpy()})', '"value": gain.to_numpy()}).sample(4, replace=True)', "more than once"),
    "no function": ("def estimate(", "def estimated(", "has no function 'estimate'"),
    "no import": ("import pandas as pd", "import no_such_pandas", "cannot be imported: ModuleNotFoundError"),
    "no Python": ("def estimate(", "def estimate((", "cannot be imported: SyntaxError"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_DERIVE)
def test_a_derive_that_is_wrong_is_one_line(paper: Paper, case: str) -> None:
    old, new, says = WRONG_DERIVE[case]
    assert old in DERIVE
    (paper.folder / "derive.py").write_text(DERIVE.replace(old, new))
    rows = [*both(0, none=0.5, some=2.0), *both(0, "median", none=0.5, some=2.0)]
    with pytest.raises(PaperError) as caught:
        long_table(paper, paper.folder, rows)
    assert str(paper.folder / "derive.py") in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_derive_that_is_missing(paper: Paper) -> None:
    (paper.folder / "derive.py").unlink()
    with pytest.raises(
        PaperError, match=r"derive\.py is missing, but paper\.toml declares derived metrics of 'estimate'"
    ):
        long_table(paper, paper.folder, [row()])


def test_a_derive_may_return_nothing_and_never_sees_what_it_did_before(paper: Paper) -> None:
    assert set(long_table(paper, paper.folder, [row()]).metric) == {"error", "spread"}  # one level is not there yet
    spoils = DERIVE.replace("    wide = ", "    table['value'] = 7.0\n    wide = ")
    (paper.folder / "derive.py").write_text(spoils)
    table = long_table(paper, paper.folder, both(0, none=0.5, some=2.0))
    assert table[table.metric == "error"].value.tolist() == [0.5, 2.0]
    infinite = DERIVE.replace("gain.to_numpy()", "gain.to_numpy() / 0")
    (paper.folder / "derive.py").write_text(infinite)
    with np.errstate(divide="ignore"):
        assert "gain" not in set(long_table(paper, paper.folder, both(0, none=0.5, some=2.0)).metric)


def test_a_derive_that_forgets_a_level(make_toy: Callable[..., Desk]) -> None:
    paper = PAPER.replace("level.outliers", "level.size = [1]\nlevel.outliers", 1)
    paper = paper.replace('metric = "gain"', 'metric = "gain"\nlevel = "mean"').replace(
        'outliers = "none"', 'size = 1, outliers = "none"'
    )
    desk = make_toy(paper=paper)
    rows = [row(level={"size": 1, "outliers": o}) for o in ("none", "some")]
    with pytest.raises(PaperError, match="estimate returned 'gain' without column 'size'"):
        long_table(load_paper(desk.room), desk.room, rows)


# --- curves --------------------------------------------------------------------------------------------------------


def test_a_band_has_64_points_at_most_on_the_common_range() -> None:
    curves = [[(float(s), a * s) for s in range(start, 500)] for a, start in ((1.0, 0), (3.0, 10))]
    band = curve_band(curves)
    assert {len(points) for points in band.values()} == {64}
    assert (band["step"][0], band["step"][-1]) == (10, 499)
    np.testing.assert_allclose(band["mean"], 2 * np.array(band["step"]), rtol=1e-3)  # four digits are kept
    # two seeds: the 95 % interval of their mean is 12.706 standard errors wide
    half = np.sqrt(2) * np.array(band["step"]) / np.sqrt(2) * 12.7062
    np.testing.assert_allclose(np.array(band["high"]) - band["mean"], half, rtol=2e-3)
    np.testing.assert_allclose(np.array(band["mean"]) - band["low"], half, rtol=2e-3)


def test_a_short_curve_keeps_its_own_steps() -> None:
    band = curve_band([[(1, 1.0), (5, 2.0), (6, 4.0)]])
    assert band == {"step": [1, 5, 6], "mean": [1, 2, 4], "low": [1, 2, 4], "high": [1, 2, 4]}
    band = curve_band([[(1, 1.0), (5, 2.0), (7, 4.0)], [(2, 1.0), (6, 5.0)]])
    assert band["step"] == [5]
    assert band["mean"] == [pytest.approx((2 + 4) / 2)]
    assert curve_band([[(1, 1.0)], [(5, 2.0)]]) == {"step": [], "mean": [], "low": [], "high": []}


def test_shipped_curves_are_bands(toy: Desk) -> None:
    run("toy.estimate")
    lines = [line for line in ship(toy) if line["line"] == "curve"]
    assert {(line["arm"], line["level"]["outliers"], line["name"]) for line in lines} == {
        (arm, outliers, "running") for arm in ("mean", "median") for outliers in ("none", "some")
    }
    mean = np.mean(
        [r.curves["running"][-1][1] for r in record().rows if (r.arm, r.level["outliers"]) == ("mean", "some")]
    )
    (line,) = [line for line in lines if (line["arm"], line["level"]["outliers"]) == ("mean", "some")]
    assert line["mean"][-1] == pytest.approx(mean, rel=1e-3)
    assert shipped(toy.room).curves[0]["step"] == list(range(1, 11))


# --- what was fixed before the run ---------------------------------------------------------------------------------


def flags(claim: str = "M1", **options: Any) -> tuple[str, ...]:
    return api.verdicts([f"toy.{claim}"], ledger=LEDGER, **options)[0].flags


def rewrite(desk: Desk, *, old: str, new: str, name: str = "paper.toml") -> None:
    path = desk.room / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_a_statement_that_is_changed_after_the_run_says_so(toy: Desk) -> None:
    run("toy.estimate")
    ship(toy)
    assert flags() == flags("M2") == ()
    rewrite(toy, old="Outliers hurt", new="Outliers harm")
    assert flags() == ()
    rewrite(toy, old="margin = 0.1", new="margin = 0.05")
    for source in ("yours", "shipped"):
        assert flags(source=source) == ("statement_changed",)
        assert flags("M2", source=source) == ()
    run("toy.estimate")  # nothing is run: the outcomes are still those from before
    assert flags() == ("statement_changed",)


def test_fresh_seeds_clear_a_changed_statement(toy: Desk) -> None:
    run("toy.estimate")
    rewrite(toy, old="margin = 0.1", new="margin = 0.05")
    run("toy.estimate", seeds=tuple(range(6, 12)))
    assert flags() == ("statement_changed",)
    assert "statement_changed" not in flags(seeds=range(6, 12))
    assert "statement_changed" in flags(seeds=range(3, 9))


def test_a_claim_that_was_stated_after_the_run_says_so(toy: Desk) -> None:
    """Also when a later run, of which the claim reads nothing, knew it."""
    text = PAPER.replace('id = "M2"', 'id = "M4"')
    run("toy.estimate")
    (toy.room / "paper.toml").write_text(text)
    assert flags("M4") == ("statement_changed",)
    run("toy.jointly")
    run("toy.estimate", seeds=(6,))
    run("toy.estimate", scale="smoke")
    assert flags("M4") == ("statement_changed",)
    run("toy.estimate", again=True)
    assert flags("M4") == ()


def test_code_that_is_changed_after_the_run_says_so(toy: Desk) -> None:
    run("toy.estimate")
    ship(toy)
    rewrite(
        toy, name="study.py", old="def misbehave(trial):", new='def misbehave(trial):\n    """A comment."""  # and more'
    )
    rewrite(toy, name="derive.py", old="gain = wide", new="# why\n    gain = wide")
    assert flags() == ()
    rewrite(toy, name="study.py", old="x[: len(x) // 10] += 20", new="x[: len(x) // 10] += 30")
    assert flags() == flags(source="shipped") == ("code_changed",)
    run("toy.estimate", again=True)  # a run of which nothing is judged any more does not count
    assert flags() == ()


def test_a_derived_metric_that_is_changed_after_the_run_says_so(toy: Desk) -> None:
    run("toy.estimate")
    ship(toy)
    rewrite(toy, name="derive.py", old="gain = wide", new="gain = 1 * wide")
    assert flags() == flags(source="shipped") == ("statement_changed",)


def test_another_version_starts_anew(toy: Desk) -> None:
    run("toy.estimate")
    rewrite(toy, old="[experiment.estimate]", new="[experiment.estimate]\nversion = 2")
    assert api.verdicts(["toy.M1"], ledger=LEDGER)[0].verdict == "untested"
    run("toy.estimate")
    assert api.verdicts(["toy.M1"], ledger=LEDGER)[0].n == 6


def test_an_own_arm_in_a_claims_place_is_flagged(toy: Desk) -> None:
    run("toy.estimate")
    rows = [r if r.arm != "median" else Row(**{**r.__dict__, "custom": {"arm": "=mean"}}) for r in record().rows]
    found = evidence.evidence_at(load_paper(toy.room), toy.room, Record("yours", rows, record().runs), "laptop")
    assert found.custom == {"median"}


def test_a_record_without_runs_can_be_judged(paper: Paper) -> None:
    found = evidence.evidence_at(paper, paper.folder, Record("yours", [row()], {}), "laptop")
    assert found.statement_hashes == {}
    assert not found.code_changed
    runs: Mapping[str, RunInfo] = {"r1": RunInfo("toy", "laptop", "", {}, {}, "old", id="r1")}
    found = evidence.evidence_at(paper, paper.folder, Record("yours", [row()], runs), "laptop")
    assert found.statement_hashes["M1"] == {""}
    assert found.code_changed


def test_the_lab_ships_what_it_is_asked(make_toy: Callable[..., Desk]) -> None:
    desk = make_toy(paper=LAB_PAPER, study=LAB_STUDY)
    run("toy.cached")
    (line,) = [line for line in ship(desk) if line["line"] == "run"]
    assert set(line["environment"]["prepared"]) == {"corpus", "split"}
