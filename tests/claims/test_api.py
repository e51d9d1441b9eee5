"""What the command line and ``import paperworks`` call."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Desk
from paperworks.claims import api, catalog, engine
from paperworks.claims.engine import Request
from paperworks.claims.errors import LedgerError, PaperError, PaperworksError, UsageError
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import DEFAULT_PATH, Ledger
from toy_package import PAPER


def run(*targets: str, **request: Any) -> engine.Report:
    with Ledger(DEFAULT_PATH) as opened:
        opened._db.execute("PRAGMA synchronous=OFF")
        return engine.run(Request(targets or ("toy",), **request), opened, executor=InlineExecutor())


@pytest.fixture
def shipping(toy: Desk) -> Desk:
    """The toy paper with evidence of its own, and no ledger."""
    run()
    api.export("toy")
    DEFAULT_PATH.unlink()
    return toy


def test_targets_name_claims(shipping: Desk) -> None:
    def claims(*targets: str) -> list[str]:
        return [verdict.claim for verdict in api.verdicts(targets)]

    assert claims("toy") == claims("toy.estimate") == ["M1", "M2", "M3"]
    assert claims("toy.M2", "toy.M1", "toy.M2") == ["M1", "M2"]
    assert claims("toy.jointly") == []  # no claim speaks of it
    with pytest.raises(UsageError, match="toy has no claim or experiment 'M9'"):
        claims("toy.M9")
    with pytest.raises(UsageError, match="--scale 'lab' is not one of smoke, laptop, overnight, paper"):
        api.verdicts(["toy"], scale="lab")


def test_holm_is_over_the_paper_and_benjamini_hochberg_over_the_index(
    shipping: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    m1, m2, m3 = api.verdicts(["toy"])
    assert sorted([m1.p_holm, m2.p_holm]) == pytest.approx(
        sorted([min(m1.p, m2.p) * 2, max(min(m1.p, m2.p) * 2, m1.p, m2.p)])
    )
    assert m3.p_holm is None
    assert {m1.p_bh, m2.p_bh} == {None}
    assert api.verdicts(["toy.M1"])[0].p_holm == m1.p_holm  # asking for one does not make it the only one
    monkeypatch.setattr(catalog, "_own", lambda: iter(()))  # a rewrite of a room must not fail this test
    every = {verdict.claim: verdict for verdict in api.verdicts()}
    assert set(every) == {"M1", "M2", "M3"}
    assert every["M1"].p_bh is not None


def test_seeds_of_ones_own_are_never_answered_with_the_shipped(shipping: Desk) -> None:
    assert api.verdicts(["toy.M1"])[0].evidence == "shipped"
    (none,) = api.verdicts(["toy.M1"], seeds=range(6, 12))
    assert (none.verdict, none.evidence) == ("untested", None)
    run("toy.M1", seeds=tuple(range(6, 12)))
    (own,) = api.verdicts(["toy.M1"], seeds=range(6, 12))
    assert (own.evidence, own.n, own.units) == ("yours", 6, tuple(range(6, 12)))
    assert "exploratory" in own.flags
    (declared,) = api.verdicts(["toy.M1"])
    assert (declared.evidence, declared.units) == ("shipped", tuple(range(6)))  # further seeds do not move it


def test_comparisons(shipping: Desk) -> None:
    run("toy.M1", seeds=tuple(range(6, 12)))
    (compared,) = api.comparisons(api.verdicts(["toy.M1"], seeds=range(6, 12)))
    (shipped,) = api.verdicts(["toy.M1"], source="shipped")
    assert (compared.claim, compared.n, compared.shipped_n) == ("M1", 6, 6)
    assert compared.shipped_effect == shipped.effect
    assert compared.low < shipped.effect < compared.high
    assert isinstance(compared.inside, bool)
    assert api.comparisons(api.verdicts(["toy.M2"])) == []  # shipped alone


def test_a_claim_is_judged_at_the_first_scale_it_is_tested_at(make_toy: Callable[..., Desk]) -> None:
    make_toy(
        paper=PAPER.replace(
            "scale.laptop = { seeds = 6 }", "scale.overnight = { seeds = 7 }\nscale.paper = { seeds = 3 }", 1
        )
    )
    assert [verdict.scale for verdict in api.verdicts(["toy"])] == ["overnight", "overnight", "paper"]
    assert {verdict.scale for verdict in api.verdicts(["toy"], scale="smoke")} == {"smoke"}


def test_a_ledger_that_is_named_must_be_there(toy: Desk) -> None:
    assert api.verdicts(["toy.M1"])[0].verdict == "untested"  # the default one need not be
    with pytest.raises(LedgerError, match=r"there is no ledger other\.db"):
        api.verdicts(["toy"], ledger=Path("other.db"))
    with pytest.raises(LedgerError, match=r"there is no ledger paperworks-runs/ledger\.db; `paperworks run` makes one"):
        api.export("toy")
    assert not DEFAULT_PATH.parent.exists()


def test_run_keeps_the_command_and_is_silent_unless_told(toy: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    report = api.run(Request(("toy.M2",), seeds=(0,)), jobs=1, command="paperworks run toy.M2")
    assert (report.ran, report.failed) == (2, [])
    assert capfd.readouterr() == ("", "")
    api.run(Request(("toy.M2",), seeds=(0,)), show=True)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "running 0 cells, 2 are in the ledger\n")
    with Ledger(DEFAULT_PATH, readonly=True) as ledger:
        assert sorted(info.command for info in ledger.runs("toy").values()) == ["", "paperworks run toy.M2"]


SPEED = """
import time
import numpy as np
from paperworks.claims.speed import Pair


def quick(size):
    return Pair(lambda: np.ones(3), lambda: np.ones(3))


def other(size):
    return Pair(lambda: np.ones(3), lambda: np.zeros(3))


def absent(size):
    import no_such_peer
"""
TABLE = '\n[[speed]]\nname = "{}"\npeer = "itself"\ntarget = 1.15\n'


def test_speed_measures_what_it_can(make_toy: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    paper = PAPER + "".join(TABLE.format(name) for name in ("quick", "other", "absent", "missing"))
    desk = make_toy(paper=paper, speed=SPEED)
    real = api.timing.measure
    monkeypatch.setattr(api.timing, "measure", lambda *a: real(*a, seconds=0.05))
    monkeypatch.setenv("PYTHONPATH", str(desk.plugins))
    ratios, problems = api.speed("toy", save=True)
    assert [ratio.name for ratio in ratios] == ["quick"]
    assert [problem.partition(":")[0] for problem in problems] == ["other", "absent", "missing"]
    assert "nothing was timed" in problems[0]
    assert "'no_such_peer' is not installed" in problems[1]
    assert "has no function 'missing'" in problems[2]
    assert not (desk.room / "speed.json").exists()  # half a measurement is not shipped


def test_a_room_with_a_wrong_paper_is_one_line(make_toy: Callable[..., Desk]) -> None:
    make_toy(paper=PAPER.replace("margin = 0.1", "marjin = 0.1"))
    for call in (lambda: api.verdicts(["toy"]), lambda: api.verdicts(), lambda: api.export("toy"), lambda: run("toy")):
        with pytest.raises((PaperError, LedgerError)) as caught:
            call()
        assert "\n" not in str(caught.value)


JUDGE = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "sklearn"}:
            raise ImportError("judging needs no " + name)
sys.meta_path.insert(0, Refuse())
from paperworks.claims import api
found = {source: [v.to_dict() for v in api.verdicts(["toy"], source=source)] for source in ("shipped", "yours")}
print(json.dumps({"found": found, "loaded": sorted(m for m in sys.modules if m.startswith(("torch", "toy_papers")))}))
"""


def judged_elsewhere(desk: Desk) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", JUDGE], env=desk.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_verdicts_need_neither_study_nor_torch(toy: Desk) -> None:
    run()
    api.export("toy")
    before = judged_elsewhere(toy)
    assert [v["verdict"] for v in before["found"]["shipped"]] == ["supported", "supported", "untested"]
    (toy.room / "study.py").unlink()
    (toy.room / "__init__.py").unlink()
    after = judged_elsewhere(toy)
    assert after["loaded"] == []
    for source in ("shipped", "yours"):
        for verdict in after["found"][source]:
            if verdict["verdict"] != "untested":
                assert "code_changed" in verdict["flags"]
                verdict["flags"].remove("code_changed")
    assert without_sentences(after) == without_sentences(before)


def without_sentences(judged: dict[str, Any]) -> Any:
    """The verdicts; only a sentence may speak of the flag."""
    return [
        {k: v for k, v in verdict.items() if k != "sentence"} for found in judged["found"].values() for verdict in found
    ]


# --- arms of one's own ---------------------------------------------------------------------------------------------


def test_an_own_arm_is_judged_in_the_place_of_the_method(toy: Desk) -> None:
    run(arms={"mine": "=median", "worse": "=mean"})
    plain = {v.claim: v for v in api.verdicts(["toy"])}
    assert plain.keys() == {"M1", "M2", "M3"}  # what the paper's arms say does not change
    assert not any(v.custom for v in plain.values())
    found = {(v.custom, v.claim): v for v in api.own_verdicts(["toy"])}
    assert found.keys() == {((own,), claim) for own in ("mine", "worse") for claim in ("M1", "M2")}
    for claim in ("M1", "M2"):
        mine = (("mine",), claim)
        assert found[mine].values == plain[claim].values  # a derived metric's too
        assert (found[mine].against, found[mine].stands_for, found[mine].flags) == ("mine", "median", ("custom",))
        assert "mean minus mine" in found[mine].sentence or "mine minus mean" in found[mine].sentence
    worse = (("worse",), "M1")
    assert set(found[worse].values) == {0.0}
    assert found[worse].verdict == "below margin"
    assert [v.claim for v in api.own_verdicts(["toy.M2"])] == ["M2", "M2"]
    assert api.own_verdicts(["toy"], scale="smoke") == []


def test_an_own_arm_that_was_run_in_part_says_what_runs_the_rest(toy: Desk) -> None:
    run("toy.M1", arms={"mine": "=median", "mean": None}, seeds=(0, 1))
    (found,) = (v for v in api.own_verdicts(["toy"]) if v.claim == "M1")
    assert (found.verdict, found.evidence) == ("undecided", "yours")
    assert found.command == "paperworks run toy.M1 --arm mine==median"
    assert f"`{found.command}` runs what is missing" in found.sentence
    exploratory = api.own_verdicts(["toy.M1"], seeds=(0, 1))
    assert [(v.n, v.units) for v in exploratory] == [(2, (0, 1))]


def test_an_own_arm_stands_in_for_an_arm_that_a_metric_needs_and_for_one_of_a_control(
    make_toy: Callable[..., Desk],
) -> None:
    paper = PAPER.replace('over = ["outliers"] }', 'over = ["outliers"], needs = ["median"] }')
    paper = paper.replace('against = "median"\nmargin = 0.1', "value = 0.0\nmargin = 0.1")
    paper = paper.replace('{ metric = "error", arm = "mean", level', '{ metric = "error", arm = "median", level')
    make_toy(paper=paper)
    run(arms={"mine": "=mean"})
    found = {v.claim: v for v in api.own_verdicts(["toy"])}
    assert found.keys() == {"M1", "M2"}
    assert (found["M1"].arm, found["M1"].controls[0].arm) == ("mean", "mine")
    assert found["M1"].controls[0].arm_mean != api.verdicts(["toy.M1"])[0].controls[0].arm_mean


def test_an_own_arm_at_a_scale_that_names_its_arms(make_toy: Callable[..., Desk]) -> None:
    make_toy(
        paper=PAPER.replace("scale.smoke = { seeds = 2 }", 'scale.smoke = { seeds = 2, arms = ["mean", "median"] }')
    )
    run("toy.M2", scale="smoke", arms={"mine": "=median"})
    (found,) = api.own_verdicts(["toy.M2"], scale="smoke")
    assert (found.n, found.against, found.evidence) == (2, "mine", "yours")


def test_other_seeds_of_an_own_arm_are_judged_when_asked_for_only(toy: Desk) -> None:
    run("toy.M2", arms={"mine": "=median"}, seeds=(6, 7))
    assert api.own_verdicts(["toy.M2"]) == []
    assert [v.n for v in api.own_verdicts(["toy.M2"], seeds=(6, 7))] == [2]
    assert api.own_verdicts(["toy.M2"], seeds=(6, 7), methods={"other": ("=median", None)}) == []


def test_an_own_arm_of_a_scale_that_the_paper_no_longer_has(toy: Desk) -> None:
    run("toy.M2", arms={"mine": "=median"}, seeds=(0,))
    (toy.room / "paper.toml").write_text(PAPER.replace("scale.laptop = { seeds = 6 }\n", "", 1))
    assert api.own_verdicts(["toy"]) == []


def test_an_own_arm_that_fails_at_once_stops_the_run_and_says_why(toy: Desk) -> None:
    with pytest.raises(PaperworksError, match=r"arm 'mine' failed in its first cell.*ZeroDivisionError.*line \d+\)"):
        run("toy.M2", arms={"mine": lambda: lambda x: 1 / 0})
    (found,) = api.own_verdicts(["toy.M2"])
    assert "(mine, outliers = none, seed 0: failed: ZeroDivisionError: division by zero)" in found.reason


def test_two_methods_of_one_name_are_never_judged_together(toy: Desk) -> None:
    """Neither another factory nor an edited one: of a name what was run last counts."""
    run("toy.M2", arms={"mine": "=mean"})
    run("toy.M2", arms={"mine": "=median", "mean": None}, seeds=(0, 1))
    (found,) = api.own_verdicts(["toy.M2"])
    assert "4 of 12 needed values" in found.reason
    run("toy.M2", arms={"mine": "=median"})
    (found,) = api.own_verdicts(["toy.M2"])
    assert found.against_values == api.verdicts(["toy.M2"])[0].against_values
    for body, missing in (("max", "0"), ("min", "5 of 12")):
        module = toy.folder / "own_method.py"
        module.write_text(f"def make():\n    return {body}\n")
        sys.modules.pop("own_method", None)
        run("toy.M2", arms={"mine": "own_method:make"}, seeds=(0,) if body == "min" else None)
        (found,) = api.own_verdicts(["toy.M2"])
        assert ("missing" in found.reason) == (missing != "0")
        assert missing == "0" or missing in found.reason
    sys.modules.pop("own_method")


def test_a_method_that_is_run_again_is_judged_itself_not_what_came_between(toy: Desk) -> None:
    def judged(factory: str) -> Any:
        report = run("toy.M2", arms={"mine": factory})
        (found,) = api.own_verdicts(["toy.M2"], methods=report.methods)
        return report, found

    first, median = judged("=median")
    between, mean = judged("=mean")
    again, same = judged("=median")
    assert (first.ran > 0, between.ran > 0, again.ran) == (True, True, 0)
    assert same.values == median.values != mean.values
    assert "This is mine = =median; outcomes of =mean that the ledger holds" in same.also
    assert median.also == ""
    assert "--arm mine==median" in (same.command or "--arm mine==median")
    (newest,) = api.own_verdicts(["toy.M2"])
    assert newest.values == mean.values
    assert "This is mine = =mean; outcomes of =median" in newest.also


def test_the_means_of_a_run_are_told_also_of_cells_that_were_there(toy: Desk) -> None:
    run("toy.M2", seeds=(0, 1))
    report = run("toy.M2", arms={"mine": "=median"}, seeds=(0, 1))
    means = api.outcomes(report, ["toy.M2"])
    assert {"mean", "median", "mine"} <= set(means.columns)
    assert (means["mine"] == means["median"]).all()
    assert set(means["metric"]) >= {"error"}


def test_no_arm_of_ones_own_no_verdict(toy: Desk) -> None:
    assert api.own_verdicts(["toy"]) == []
    run()
    assert api.own_verdicts() == []
