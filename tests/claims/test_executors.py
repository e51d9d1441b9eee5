"""Executors: the same outcomes wherever tasks run, and a clear word on those that go wrong."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from conftest import Desk
from paperworks.claims import engine, executors
from paperworks.claims.executors import Event, InlineExecutor, LocalExecutor
from paperworks.claims.ledger import DEFAULT_PATH, Ledger
from paperworks.claims.study import Cell
from paperworks.claims.worker import Task
from toy_package import PAPER, STUDY

CELLS = [Cell(arm, {"outliers": o}, seed) for seed in range(3) for arm in ("mean", "median") for o in ("none", "some")]


def task(number: int, *cells: Cell, **changes: Any) -> Task:
    given = {
        "paper": "toy", "module": "toy_papers.toy", "experiment": "estimate", "version": 1, "scale": "laptop",
        "config": "{}", "metrics": ("error", "spread"), "curves": ("running",), "timeout": 20.0,
    }  # fmt: skip
    return Task(id=number, cells=cells, **{**given, **changes})


def outcomes(events: Iterable[Event]) -> dict[Cell, Any]:
    """Metrics by cell, or the status and last line of those that went wrong; each task must end once."""
    found: dict[Cell, Any] = {}
    ended: Counter[int] = Counter()
    for event in events:
        if event.kind == "cell":
            assert not ended[event.task.id]
            cell = event.task.cells[event.line["cell"]]
            assert cell not in found
            ok = event.line["status"] == "ok"
            found[cell] = event.line["metrics"] if ok else (event.line["status"], event.line["error"].splitlines()[-1])
        elif event.kind == "end":
            ended[event.task.id] += 1
    assert set(ended.values()) <= {1}
    return found


def test_outcomes_are_those_of_any_executor_number_of_workers_and_order(toy: Desk) -> None:
    tasks = [task(i, cell) for i, cell in enumerate(CELLS)]
    inline = outcomes(InlineExecutor().run(tasks))
    assert len(inline) == 12
    assert outcomes(LocalExecutor(1).run(tasks)) == inline
    assert outcomes(LocalExecutor(3).run(reversed(tasks))) == inline
    alone = outcomes(InlineExecutor().run([task(0, CELLS[7])]))
    assert alone == {CELLS[7]: inline[CELLS[7]]}


def test_progress_and_curves_come_through(toy: Desk) -> None:
    events = list(InlineExecutor().run([task(0, CELLS[0])]))
    (line,) = [event.line for event in events if event.kind == "cell"]
    assert [step for step, _ in line["curves"]["running"]] == list(range(1, 11))
    assert line["seconds"] > 0
    assert line["memory"] > 10  # MiB
    progress = [event.line for event in events if event.kind == "progress"]
    assert progress[0] == {"done": 1, "total": 10}
    assert events[-1].kind == "end"


def wrong(cell: str = "", *, body: str = "", end: str = "") -> str:
    """The toy study with an estimate that goes wrong."""
    text = STUDY.replace("    misbehave(trial)\n", f"    {body}\n") if body else STUDY
    return text.replace("    return Outcome(metrics)", f"    {end}") if end else text


WRONG = {
    "undeclared metric": (
        wrong(end='return Outcome({**metrics, "foo": 1.0})'),
        "returned metric 'foo', which its paper",
    ),
    "undeclared item metric": (
        wrong(end='return Outcome(metrics, items={"foo": {"q": 1.0}})'),
        "returned metric 'foo', which its paper",
    ),
    "missing metric": (
        wrong(end='return Outcome({"error": 1.0})'),
        "returned no metric 'spread', which its paper.toml",
    ),
    "undeclared curve": (wrong(body='trial.curve("foo", 1, 2.0)'), "returned curve 'foo', which its paper"),
    "not a number": (wrong(end='return Outcome({"error": float("nan"), "spread": 1})'), "metric 'error' is nan"),
    "infinite": (wrong(end='return Outcome({"error": 1, "spread": 1e999})'), "metric 'spread' is inf"),
    "nothing": (wrong(end="return None"), "returned a NoneType; it must return an Outcome"),
    "a dictionary": (wrong(end="return metrics"), "returned a dict; it must return an Outcome"),
    "the wrong cell": (
        wrong(end="from paperworks.claims.study import Cell\n    return iter([(Cell('x', {}, 0), Outcome(metrics))])"),
        "yielded an outcome for x, seed 0 although it is none of trial.cells",
    ),
    "an exception": (wrong(body="1 / 0"), "ZeroDivisionError: division by zero"),
    "an exit": (wrong(body="raise SystemExit(3)"), "SystemExit: 3"),
    "a study that does not import": (wrong() + "\n1 / 0\n", "cannot be imported: "),
    "no such experiment": (
        STUDY.replace('@experiment("estimate"', '@experiment("estimates"'),
        "no @experiment('estimate')",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_goes_wrong_in_a_trial_is_its_own_failure(make_toy: Callable[..., Desk], case: str) -> None:
    study, says = WRONG[case]
    make_toy(study=study)
    found = outcomes(InlineExecutor().run([task(0, CELLS[0]), task(1, CELLS[1])]))
    assert set(found) == set(CELLS[:2])
    for status, line in found.values():
        assert status == "failed"
        assert says in line


def test_a_cell_yielded_twice_is_recorded_once(make_toy: Callable[..., Desk]) -> None:
    make_toy(
        study=STUDY.replace(
            '        yield cell, Outcome({"error": error})', '        yield trial.cells[0], Outcome({"error": error})'
        )
    )
    cells = [Cell("mean", {}, seed) for seed in range(3)]
    found = outcomes(InlineExecutor().run([task(0, *cells, experiment="jointly", metrics=("error",), curves=())]))
    assert isinstance(found[cells[0]], dict)
    for cell in cells[1:]:
        assert "yielded an outcome for mean, seed 0 twice" in found[cell][1]


def test_joint_cells_without_an_outcome_fail_and_the_others_stay(make_toy: Callable[..., Desk]) -> None:
    make_toy(
        study=STUDY.replace(
            "        yield cell, Outcome", "        if cell.seed == 1:\n            return\n        yield cell, Outcome"
        )
    )
    cells = [Cell("mean", {}, seed) for seed in range(3)]
    found = outcomes(InlineExecutor().run([task(0, *cells, experiment="jointly", metrics=("error",), curves=())]))
    assert set(found[cells[0]]) == {"error"}
    for cell in cells[1:]:
        assert "the study returned no outcome for mean, seed 1" in found[cell][1]


@pytest.mark.parametrize("where", ["inline", "local"])
def test_joint_batches_do_not_matter(toy: Desk, where: str) -> None:
    cells = [Cell("median", {}, seed) for seed in range(6)]
    executor = InlineExecutor() if where == "inline" else LocalExecutor(2)
    found = []
    for groups in ([cells], [cells[:2], cells[2:]], [[cell] for cell in reversed(cells)]):
        tasks = [task(i, *group, experiment="jointly", metrics=("error",), curves=()) for i, group in enumerate(groups)]
        found.append(outcomes(executor.run(tasks)))
        if where == "local":
            break
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for cell in cells:
            assert other[cell]["error"] == pytest.approx(found[0][cell]["error"], rel=1e-6)


LOST = STUDY.replace(
    "    misbehave(trial)\n",
    "    if trial.seed == 1 and trial.arm == 'mean':\n        os.kill(os.getpid(), 9)\n"
    "    if trial.seed == 2 and trial.arm == 'mean':\n        time.sleep(600)\n",
)


def test_a_worker_that_is_lost_and_a_trial_that_hangs_cost_themselves_alone(make_toy: Callable[..., Desk]) -> None:
    make_toy(study=LOST, paper=PAPER)
    tasks = [task(i, cell, timeout=1.0) for i, cell in enumerate(CELLS)]
    found = outcomes(LocalExecutor(2).run(tasks))
    assert len(found) == 12
    for cell, outcome in found.items():
        if cell.arm == "mean" and cell.seed == 1:
            assert outcome[0] == "failed"
            assert "its worker was killed 2 times" in outcome[1]
        elif cell.arm == "mean" and cell.seed == 2:
            assert outcome == ("timeout", "not finished within 1 s")
        else:
            assert set(outcome) == {"error", "spread"}


def test_a_factory_that_cannot_travel_is_a_failure_of_its_cells(toy: Desk) -> None:
    found = outcomes(LocalExecutor(1).run([task(0, CELLS[0], arms={"mean": lambda: sum})]))
    assert "its worker ended without an outcome" in found[CELLS[0]][1]


def test_workers_have_one_thread_and_the_driver_its_own_setting_back(
    make_toy: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = "threads = {m: float(os.environ[f'{v}_NUM_THREADS']) for m, v in (('error', 'OMP'), ('spread', 'MKL'))}"
    end += "\n    return Outcome(threads)"
    make_toy(study=wrong(end=end))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert outcomes(LocalExecutor(1).run([task(0, CELLS[0])])) == {CELLS[0]: {"error": 1.0, "spread": 1.0}}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_nothing_to_do_starts_nothing() -> None:
    assert list(LocalExecutor(2).run([])) == []
    assert list(InlineExecutor().run([])) == []


def test_as_many_workers_as_cores_unless_told() -> None:
    assert executors.local().jobs == executors.available_cores() >= 1
    assert executors.local(3).jobs == 3


def test_one_thread_is_given_back() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with contextlib.suppress(RuntimeError), executors.one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_interrupt_that_was_swallowed_still_ends_the_run(toy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops an exception that a signal handler raises within a finaliser; the flag remains."""
    monkeypatch.setattr(executors, "interrupted", threading.Event())

    class Swallowed(engine.Silent):
        def finished(self, row: object) -> None:
            executors.interrupted.set()

    with Ledger(DEFAULT_PATH) as ledger, pytest.raises(KeyboardInterrupt):
        engine.run(engine.Request(("toy",)), ledger, jobs=1, listener=Swallowed())
