"""The engine runs the cells that are asked for and missing, each the same whatever else is run."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from conftest import Desk, forget
from paperworks.claims import api, engine
from paperworks.claims.engine import Report, Request
from paperworks.claims.errors import PaperError, PaperworksError, UsageError
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import Ledger, Row
from toy_package import LAB_PAPER, LAB_STUDY, PAPER, STUDY

LEDGER = Path("ledger.db")


def run(*targets: str, ledger: Path = LEDGER, executor: Any = None, jobs: int | None = None, **request: Any) -> Report:
    with Ledger(ledger) as opened:
        opened._db.execute("PRAGMA synchronous=OFF")
        given = Request(targets or ("toy",), **request)
        return engine.run(given, opened, executor=executor or (None if jobs else InlineExecutor()), jobs=jobs)


def rows(ledger: Path = LEDGER) -> list[Row]:
    with Ledger(ledger, readonly=True) as opened:
        return opened.rows("toy")


def cells(ledger: Path = LEDGER) -> dict[tuple[Any, ...], Any]:
    """All that was measured, by cell."""
    found = {}
    for row in rows(ledger):
        key = (row.experiment, row.scale, row.arm, tuple(sorted(row.level.items())), row.seed)
        assert key not in found
        found[key] = (row.metrics, row.curves) if row.status == "ok" else row.status
    return found


def close(a: Any, b: Any) -> bool:
    """Bitwise the same, but within 1e-6 where several cells were computed jointly."""
    return a.keys() == b.keys() and all(
        a[key] == b[key] or (key[0] == "jointly" and a[key][0] == pytest.approx(b[key][0], rel=1e-6)) for key in a
    )


# --- the same outcomes ---------------------------------------------------------------------------------------------


def test_outcomes_depend_neither_on_workers_nor_on_order_nor_on_what_else_is_run(toy: Desk) -> None:
    run("toy", ledger=Path("inline.db"))
    reference = cells(Path("inline.db"))
    assert len(reference) == 6 * 2 * 2 + 8 * 2
    for jobs in (1, 2, 3):
        targets = ("toy.jointly", "toy.estimate") if jobs == 2 else ("toy.M2", "toy") if jobs == 3 else ("toy",)
        run(*targets, ledger=Path(f"{jobs}.db"), jobs=jobs)
        assert close(cells(Path(f"{jobs}.db")), reference)
    # one arm, some seeds and one claim at a time
    part = Path("part.db")
    run("toy", ledger=part, arms={"median": None}, seeds=(4, 2))
    run("toy.M2", ledger=part, seeds=(0, 5))
    found = cells(part)
    assert {key[4] for key in found} == {0, 2, 4, 5}
    assert close(found, {key: reference[key] for key in found})
    run("toy", ledger=part)
    assert close(cells(part), reference)


# --- what is run ---------------------------------------------------------------------------------------------------


def test_what_the_ledger_has_is_skipped_and_again_appends(toy: Desk) -> None:
    assert (run("toy.estimate").ran, run("toy.estimate").skipped) == (24, 24)
    before = cells()
    report = run("toy", again=False)
    assert (report.ran, report.skipped) == (16, 24)
    report = run("toy.estimate", again=True)
    assert (report.ran, report.skipped) == (24, 0)
    with Ledger(LEDGER) as ledger:
        assert ledger._db.execute("SELECT count(*) FROM outcome").fetchone() == (64,)
    assert all(cells()[key] == before[key] for key in before)


def test_a_claim_runs_only_the_cells_that_it_and_its_controls_read(make_toy: Callable[..., Desk]) -> None:
    paper = PAPER.replace('arms = ["mean", "median"]\njoint', 'arms = ["mean", "median", "third"]\njoint')
    paper = paper.replace(
        "control = [{", 'control = [{ experiment = "jointly", metric = "error", arm = "third", value = 0 }, {'
    )
    study = STUDY.replace(
        '@experiment("jointly", config=CONFIG, arms={',
        '@experiment("jointly", config=CONFIG, arms={"third": lambda: np.max, ',
    )
    make_toy(paper=paper, study=study)

    def seen(target: str) -> set[tuple[Any, ...]]:
        run(target, ledger=Path(f"{target}.db"), seeds=(3,))
        return {(key[0], key[2], *key[3]) for key in cells(Path(f"{target}.db"))}

    estimate = set(itertools.product(["estimate"], ["mean", "median"], [("outliers", "none"), ("outliers", "some")]))
    assert seen("toy.M2") == {e for e in estimate if e[2][1] == "none"}
    assert seen("toy.M1") == estimate | {("jointly", "third")}  # a derived metric, and a control of another experiment
    assert run("toy.M1", "toy.M2", "toy.estimate", seeds=(3,)).ran == 5  # each cell once


def test_an_arm_that_a_derived_metric_needs_is_run_too(make_toy: Callable[..., Desk]) -> None:
    paper = PAPER.replace('arms = ["mean", "median"]\ntimeout', 'arms = ["mean", "median", "zero", "other"]\ntimeout')
    paper = paper.replace('over = ["outliers"] }', 'over = ["outliers"], needs = ["zero"] }')
    study = STUDY.replace(
        '@experiment("estimate", config=CONFIG, arms={',
        '@experiment("estimate", config=CONFIG, arms={"zero": lambda: np.min, "other": lambda: np.max, ',
    )
    make_toy(paper=paper, study=study)
    run("toy.M1", seeds=(0,))
    assert {row.arm for row in rows()} == {"mean", "median", "zero"}


def test_whole_seeds_are_finished_first(toy: Desk) -> None:
    run("toy.estimate", arms={"mine": lambda: max})
    order = [row.seed for row in rows()]
    assert order == sorted(order)


def test_scales_choose_seeds_arms_and_levels(make_toy: Callable[..., Desk]) -> None:
    scale = 'scale.smoke = { seeds = 2, arms = ["median"], level = { outliers = ["some"] } }'
    make_toy(paper=PAPER.replace("scale.smoke = { seeds = 2 }", scale, 1))
    assert run("toy.estimate", scale="smoke").ran == 2
    assert {(r.arm, r.level["outliers"], r.seed, r.scale) for r in rows()} == {
        ("median", "some", s, "smoke") for s in (0, 1)
    }
    assert run("toy.estimate").skipped == 0  # another scale, other cells


def test_a_level_written_as_a_whole_number_is_the_same_cell(lab: Desk) -> None:
    """Claim L1 names size 2, the experiment's level is 2.0."""
    run("toy.tuned", scale="smoke")
    assert run("toy.L1", scale="smoke").ran == 0


def test_failed_cells_are_run_again_and_nothing_else(make_toy: Callable[..., Desk]) -> None:
    desk = make_toy(study=STUDY.replace('fault: str = Field(""', 'fault: str = Field("raise"'))
    report = run("toy.estimate")
    assert [(row.arm, row.seed, row.status) for row in report.failed] == [("median", 1, "failed")]
    assert "no such luck" in report.failed[0].error
    report = run("toy.estimate")
    assert (report.ran, report.skipped, len(report.failed)) == (1, 23, 1)
    # mended, without a change of configuration
    (desk.room / "study.py").write_text(
        STUDY.replace('fault: str = Field(""', 'fault: str = Field("raise"').replace("raise ValueError", "return  # ")
    )
    forget()
    report = run("toy.estimate")
    assert (report.ran, report.skipped, report.failed) == (1, 23, [])
    assert {row.status for row in rows()} == {"ok"}


# --- settings ------------------------------------------------------------------------------------------------------


def test_settings_change_the_key_are_kept_and_never_judged(toy: Desk) -> None:
    assert run("toy.estimate", settings={"draws": 50}).ran == 24
    assert {tuple(row.custom) for row in rows()} == {("set",)}
    assert rows()[0].custom == {"set": {"draws": 50}}
    assert [v.verdict for v in api.verdicts(["toy.M2"], ledger=LEDGER, source="yours")] == ["untested"]
    assert run("toy.estimate", settings={"draws": 50}).skipped == 24
    assert run("toy.estimate", settings={"estimate.draws": 51}).ran == 24
    assert run("toy.estimate").ran == 24
    (verdict,) = api.verdicts(["toy.M2"], ledger=LEDGER)
    assert (verdict.n, verdict.evidence) == (6, "yours")
    assert "custom" not in verdict.flags


def test_a_setting_that_changes_nothing_is_no_setting(toy: Desk) -> None:
    """Its outcomes are the study's own; were they kept as changed, the study's own could never be judged."""
    run("toy.estimate", settings={"draws": 200})
    assert {tuple(row.custom) for row in rows()} == {()}
    assert run("toy.estimate").skipped == 24
    (verdict,) = api.verdicts(["toy.M2"], ledger=LEDGER)
    assert verdict.n == 6


def test_settings_go_to_the_experiments_that_have_them(make_toy: Callable[..., Desk]) -> None:
    study = STUDY.replace(
        '@experiment("jointly", config=CONFIG', '@experiment("jointly", config={"smoke": Other(), "laptop": Other()}'
    )
    study = study.replace("CONFIG = {", "class Other(ExperimentConfig):\n    pause: float = 0.0\n\n\nCONFIG = {")
    make_toy(study=study)
    run("toy", settings={"draws": 50})
    assert {(row.experiment, bool(row.custom)) for row in rows()} == {("estimate", True), ("jointly", False)}


# --- own arms ------------------------------------------------------------------------------------------------------


def test_an_own_arm_runs_beside_the_others(toy: Desk) -> None:
    Path("my_method.py").write_text("import numpy as np\ndef make():\n    return np.max\n")
    run("toy.M2", arms={"mine": "my_method:make"}, jobs=2)
    found = rows()
    assert Counter(row.arm for row in found) == {"mean": 6, "median": 6, "mine": 6}
    assert {row.custom.get("arm") for row in found} == {None, "my_method:make"}
    (verdict,) = api.verdicts(["toy.M2"], ledger=LEDGER)
    assert verdict.n == 6
    assert "custom" not in verdict.flags  # the claim does not speak of it
    assert run("toy.M2").ran == 0


def test_an_own_arm_whose_code_changed_is_run_again(toy: Desk) -> None:
    import importlib
    import sys

    Path("my_other.py").write_text("def make():\n    return max\n")
    request = {"arms": {"mine": "my_other:make", "mean": None}, "seeds": (0,)}
    assert run("toy.M2", **request).ran == 2
    assert run("toy.M2", **request).ran == 0
    Path("my_other.py").write_text("def make():\n    return min\n")
    del sys.modules["my_other"]
    importlib.invalidate_caches()
    assert run("toy.M2", **request).ran == 1
    assert len({row.metrics["error"] for row in rows() if row.arm == "mine"}) == 2
    del sys.modules["my_other"]


def test_a_partial_is_as_new_as_the_function_in_it(toy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.syspath_prepend(str(toy.folder))
    ran = []
    for body in ("max", "max", "min"):
        Path("my_third.py").write_text(f"def make(index):\n    return {body}\n")
        sys.modules.pop("my_third", None)
        importlib.invalidate_caches()
        made = partial(importlib.import_module("my_third").make, 0)
        ran.append(run("toy.M2", arms={"mine": made, "mean": None}, seeds=(0,)).ran)
    assert ran == [2, 0, 1]
    del sys.modules["my_third"]


def test_a_factory_object_may_be_given(toy: Desk) -> None:
    largest = partial(sorted, reverse=True)
    for jobs, make in ((1, lambda: lambda x: largest(x)[0]), (2, partial(take, -1)), (2, lambda: max)):
        run("toy.M2", arms={"mine": make}, seeds=(0,), jobs=jobs)
    found = [row for row in rows() if row.arm == "mine"]
    assert len({row.metrics["error"] for row in found}) == 2  # the first and the last are the same estimator
    name = f"{__name__}:test_a_factory_object_may_be_given.<locals>.<lambda>"
    assert [row.custom["arm"] for row in found] == [name, f"{__name__}:take(-1)", name]


def take(index: int) -> Any:
    return lambda x: x[index]


def test_a_factory_that_cannot_be_called_so_stops_the_run_at_once(toy: Desk) -> None:
    words = r"arm 'mine' is built as factory\(\); this factory takes \(data, weights\): missing a required argument"
    with pytest.raises(UsageError, match=words):
        run("toy.estimate", arms={"mine": "statistics:fmean"}, jobs=2)
    assert all(row.arm != "mine" for row in rows())
    with Path("open.txt").open("w") as stream, pytest.raises(UsageError, match="cannot be sent to a worker"):
        run("toy.estimate", arms={"mine": lambda: stream})
    with pytest.raises(UsageError, match=r"must be a factory or 'package\.module:factory', got 3"):
        run("toy.estimate", arms={"mine": 3})


def test_a_study_that_builds_its_own_arms_wrongly_is_a_failure_of_its_cells(make_toy: Callable[..., Desk]) -> None:
    make_toy(study=STUDY.replace("estimator = trial.build()\n    for", "estimator = trial.build(1)\n    for"))
    report = run("toy.M2", seeds=(0,))
    assert [row.status for row in report.failed] == ["failed"] * 2
    assert "arm 'mean' is built as factory(...); this factory takes (): too many positional" in report.failed[0].error


SCRIPT = """
import paperworks as pw

print("main")


class Mine:
    def __call__(self, x):
        return {value}


print(pw.run("toy.M2", arms={{"mine": lambda: Mine()}}, jobs=2)["verdict"].to_dict())
import __main__
assert __main__.Mine is Mine
"""


def test_a_method_that_a_plain_script_defines_runs_in_workers(toy: Desk) -> None:
    """No main guard, no module to import it from; and what was changed is run again."""
    import subprocess
    import sys

    for value, ran in (("max(x)", 18), ("max(x)", 18), ("min(x)", 24)):
        Path("script.py").write_text(SCRIPT.format(value=value))
        done = subprocess.run(
            [sys.executable, "script.py"], env=toy.environment(), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("main") == 1  # no worker runs the script again
        assert "('toy', 'M2'): 'supported'" in done.stdout
        assert toy.count() == ran


def test_another_arms_factory_may_be_borrowed(toy: Desk) -> None:
    run("toy.M2", arms={"mine": "=mean"}, seeds=(0, 1))
    by_arm = {(row.arm, row.seed): row.metrics for row in rows()}
    assert by_arm["mine", 0] == by_arm["mean", 0] != by_arm["median", 0]


def test_a_placebo_keeps_the_arms_name(toy: Desk) -> None:
    run("toy.M2", arms={"median": None}, placebo={"median": "mean"}, seeds=(0,))
    run("toy.M2", seeds=(0,))
    placebo, mean, median = (r.metrics for r in sorted(rows(), key=lambda r: (not r.custom, r.arm)))
    assert placebo == mean != median


# --- what cannot be asked for --------------------------------------------------------------------------------------

USAGE = {
    "paper": (("toi",), {}, "no paper is called 'toi' (did you mean 'toy'?)"),
    "claim": (("toy.M9",), {}, "toy has no claim or experiment 'M9'; it has M1, M2, M3"),
    "experiment": (("toy.estimat",), {}, "(did you mean 'estimate'?); it has M1, M2, M3, estimate, jointly"),
    "scale": (("toy",), {"scale": "lap"}, "--scale 'lap' is not one of smoke, laptop, overnight, paper"),
    "scale of a claim": (("toy.M3",), {}, "toy.M3 is about the paper's own setting, which nothing here runs"),
    "scale that runs nothing": (("toy",), {"scale": "overnight"}, "toy has nothing to run at scale 'overnight'"),
    "scale of an experiment": (("toy.jointly",), {"scale": "paper"}, "has no scale 'paper'; it has smoke, laptop"),
    "arm": (("toy",), {"arms": {"meen": None}}, "'meen' is not an arm of estimate, jointly (did you mean 'mean'?)"),
    "own arm of a taken name": (("toy",), {"arms": {"mean": "a:b"}}, "'mean' is an arm of estimate, jointly; give"),
    "own arm without colon": (("toy",), {"arms": {"mine": "numpy.mean"}}, "write it as package.module:factory"),
    "own arm by its file": (("toy",), {"arms": {"mine": "./own.py:x"}}, "write the module's name, not its file: own:x"),
    "own arm of no module": (("toy",), {"arms": {"mine": "no_such:x"}}, "'no_such:x': No module named 'no_such'"),
    "own arm of no name": (("toy",), {"arms": {"mine": "math:x"}}, "'math:x': module 'math' has no attribute 'x'"),
    "own arm that is no factory": (("toy",), {"arms": {"mine": "math:pi"}}, "is a float; a factory must be callable"),
    "own arm that fails": (("toy",), {"arms": {"mine": "fails_:x"}}, "fails_ cannot be imported: ZeroDiv"),
    "borrowed arm": (("toy",), {"arms": {"mine": "=meen"}}, "--arm mine==meen: 'meen' is not one of mean, median"),
    "setting": (("toy",), {"settings": {"drows": 1}}, "--set 'drows' is not a setting of estimate, jointly (did"),
    "setting of an experiment": (("toy",), {"settings": {"jointli.draws": 1}}, "'jointli.draws' is not a setting"),
    "value of a setting": (("toy",), {"settings": {"draws": "many"}}, "draws='many': Input should be a valid integer"),
    "size of a setting": (("toy",), {"settings": {"draws": 0}}, "--set draws=0: Input should be greater than 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", USAGE)
def test_what_cannot_be_asked_for_is_one_line(toy: Desk, case: str) -> None:
    targets, request, says = USAGE[case]
    Path("fails_.py").write_text("1 / 0\n")
    with pytest.raises(UsageError) as caught:
        run(*targets, **request)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    assert rows() == []


def test_a_claim_whose_cells_no_scale_runs(make_toy: Callable[..., Desk]) -> None:
    make_toy(paper=PAPER.replace("scale.smoke = { seeds = 2 }", 'scale.smoke = { seeds = 2, arms = ["mean"] }', 1))
    with pytest.raises(
        UsageError, match=r"toy\.M2 cannot be run at scale 'smoke': its arms and levels are run at laptop"
    ):
        run("toy.M2", scale="smoke")
    with pytest.raises(UsageError, match="--arm 'median': what is asked for runs only mean at scale 'smoke'"):
        run("toy.estimate", scale="smoke", arms={"median": None})


def test_an_arm_that_only_one_experiment_has_runs_there(make_toy: Callable[..., Desk]) -> None:
    paper = PAPER.replace('arms = ["mean", "median"]\njoint', 'arms = ["mean", "median", "third"]\njoint')
    study = STUDY.replace(
        '@experiment("jointly", config=CONFIG, arms={',
        '@experiment("jointly", config=CONFIG, arms={"third": lambda: np.max, ',
    )
    make_toy(paper=paper, study=study)
    run("toy", arms={"third": None})
    assert {(row.experiment, row.arm) for row in rows()} == {("jointly", "third")}


# --- rooms that are wrong ------------------------------------------------------------------------------------------

ROOMS = {
    "arm not in the study": (STUDY.replace('"median": lambda: np.median', '"other": lambda: np.max'),
                             "paper.toml names arms 'median', which @experiment('estimate') has not"),
    "arm not in paper.toml": (STUDY.replace('arms={"mean"', 'arms={"new": dict, "mean"', 1),
                              "@experiment('estimate') has arm 'new', which paper.toml does not name"),
    "scale not in the study": (STUDY.replace('CONFIG = {"smoke": Estimate(), ', "CONFIG = {"),
                               "paper.toml names scale 'smoke', which @experiment('estimate') has not"),
    "no such experiment": (STUDY.replace('@experiment("estimate"', '@experiment("other"'),
                           "toy_papers.toy.study has no @experiment('estimate'), which paper.toml names"),
    "a package that is missing": ("import no_such_package\n", "needs 'no_such_package', which is not installed"),
    "a name that is missing": ("from json import no_such\n", "toy_papers.toy.study: cannot import name 'no_such'"),
    "an error at import": ("x = 1\n1 / 0\n", "study.py, line 2: ZeroDivisionError: division by zero"),
    "no Python": ("def broken(:\n", "toy_papers.toy.study cannot be imported: SyntaxError: "),
}  # fmt: skip


@pytest.mark.parametrize("case", ROOMS)
def test_a_study_that_does_not_fit_its_paper_is_one_line(make_toy: Callable[..., Desk], case: str) -> None:
    study, says = ROOMS[case]
    make_toy(study=study)
    with pytest.raises(PaperworksError) as caught:
        run("toy.estimate")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_study_that_is_missing(toy: Desk) -> None:
    (toy.room / "study.py").unlink()
    with pytest.raises(PaperError, match=r"toy_papers\.toy has no study\.py: its experiments cannot be run"):
        run("toy.estimate")


def test_what_is_measured_and_declared_must_agree(make_toy: Callable[..., Desk]) -> None:
    make_toy()
    for fault, says in (("nan", "metric 'error' is nan"), ("undeclared", "returned metric 'foo'")):
        report = run("toy.estimate", settings={"fault": fault}, seeds=(0,))
        assert len(report.failed) == 4
        assert all(says in row.error for row in report.failed)


# --- the record ----------------------------------------------------------------------------------------------------


class Heard:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def started(self, *what: Any) -> None:
        self.said.append(("started", *what))

    def progress(self, task: Any, done: int, total: int) -> None:
        self.said.append(("progress", done, total))

    def finished(self, row: Row) -> None:
        self.said.append(("finished", row.arm))

    def ended(self, task: Any) -> None:
        self.said.append(("ended",))


def test_a_listener_hears_every_stage(lab: Desk) -> None:
    heard = Heard()
    with Ledger(LEDGER) as ledger:
        for target in ("toy.cached", "toy.tuned", "toy.tuned"):
            engine.run(Request((target,), scale="smoke"), ledger, executor=InlineExecutor(), listener=heard)
    started = [said[1:] for said in heard.said if said[0] == "started"]
    assert started == [
        ("prepare", 3, 0), ("trial", 4, 0), ("tune", 32, 0), ("trial", 8, 0), ("tune", 0, 32), ("trial", 0, 8),
    ]  # fmt: skip
    assert sum(said[0] == "finished" for said in heard.said) == 4 + 32 + 8


def test_a_run_line_says_what_was_fixed_before(toy: Desk) -> None:
    run("toy.estimate", seeds=(0,))
    with Ledger(LEDGER) as ledger:
        (info,) = ledger.runs("toy").values()
    paper = engine.load_paper(toy.room)
    assert info.statements == {claim.id: paper.statement_hash(claim, info.scale) for claim in paper.claim}
    assert (info.paper, info.scale, info.environment["threads"], info.environment["jobs"]) == ("toy", "laptop", 1, 1)
    assert info.environment["prepared"] == {}
    assert re.fullmatch("[0-9a-f]{16}", info.code)
    assert {row.run for row in rows()} == {info.id}


def test_keys_stay_from_release_to_release(toy: Desk) -> None:
    """Were they to change, nobody's ledger would count any more."""
    run("toy.M2", seeds=(0,), arms={"mean": None})
    assert [row.key for row in rows()] == ["19575683430e5fbbc9ab70d31e7329e4cbcc68efb3461cd2b9e0bb81a6c34306"]


def test_joint_cells_are_grouped_by_what_is_not_joint(make_toy: Callable[..., Desk]) -> None:
    make_toy(
        paper=LAB_PAPER.replace("[experiment.tuned]", '[experiment.tuned]\njoint = ["seed", "size"]'), study=LAB_STUDY
    )
    paper = engine.load_paper(Path(engine.catalog.find("toy").folder))
    with Ledger(LEDGER) as ledger:
        request = Request(("toy.tuned",))
        room, _, found = engine._merged(request)[0]
        context = engine._context(request, room, paper, found, InlineExecutor(), 1, "local", "")
        groups = engine._groups(paper, [context.work("tuned", cell) for cell in found["tuned"]])
        assert [len(group) for group in groups] == [12, 12]
        assert all(len({work.cell.arm for work in group}) == 1 for group in groups)
        assert context.task(0, groups[0]).timeout == 12 * paper.experiment["tuned"].timeout
        assert ledger.rows("toy") == []


def test_an_executor_is_anything_that_runs_tasks(toy: Desk) -> None:

    class Backwards:
        def run(self, tasks: Any) -> Any:
            return InlineExecutor().run(reversed(list(tasks)))

    run("toy", ledger=Path("a.db"))
    run("toy", ledger=Path("b.db"), executor=Backwards())
    assert cells(Path("a.db")) == cells(Path("b.db"))
