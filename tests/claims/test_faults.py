"""Whatever is killed, full or broken: one clear line, and no finished outcome is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Desk, children_of, workers_of
from paperworks.claims.errors import LedgerError
from paperworks.claims.ledger import Ledger, Row, RunInfo
from toy_package import STUDY

SLOW_STUDY = STUDY.replace("pause: float = Field(0.0", "pause: float = Field(0.15")
TARGETS = ("toy.estimate", "toy.jointly")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The outcomes of a run that nobody disturbs (the pause changes nothing but the time)."""
    from toy_package import write_distribution

    base = tmp_path_factory.mktemp("undisturbed")
    (base / "work").mkdir()
    desk = Desk(base / "work", base / "plugins", write_distribution(base / "plugins"))
    done = desk.call("run", "toy")
    assert done.returncode == 0, done.stderr
    outcomes = desk.outcomes()
    assert len(outcomes) == 40
    return outcomes


@pytest.fixture
def slow(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk(study=SLOW_STUDY)


def resume(desk: Desk, before: int) -> None:
    """The same command does what is missing and nothing else."""
    done = desk.call("run", "toy")
    assert done.returncode == 0, done.stderr
    assert f"running {40 - before} cells, {before} are in the ledger" in done.stderr
    assert desk.count() == 40


def one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("paperworks:")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_ctrl_c_keeps_what_is_finished(slow: Desk, undisturbed: dict) -> None:
    driver = slow.start("run", "toy")
    slow.wait_for(lambda: slow.count() >= 4)
    assert driver.poll() is None, "the run was over before it could be interrupted"
    os.killpg(driver.pid, signal.SIGINT)  # a terminal sends it to the whole group
    _, err = driver.communicate(timeout=30)
    assert driver.returncode == 130
    assert "the same command goes on from there" in one_line(err)
    slow.wait_for(lambda: not children_of(driver.pid), 5)
    before = slow.count()
    assert 4 <= before < 40
    resume(slow, before)
    assert slow.outcomes() == undisturbed


def test_sigterm_is_as_gentle(slow: Desk) -> None:
    driver = slow.start("run", "toy.estimate")
    slow.wait_for(lambda: slow.count() >= 2)
    driver.terminate()
    _, err = driver.communicate(timeout=30)
    assert driver.returncode == 130
    one_line(err)
    assert slow.count() >= 2


def test_killed_driver_leaves_no_child_and_is_resumed(slow: Desk, undisturbed: dict) -> None:
    driver = slow.start("run", "toy")
    slow.wait_for(lambda: slow.count() >= 4)
    left = children_of(driver.pid)
    assert left
    driver.kill()
    driver.communicate(timeout=30)
    slow.wait_for(lambda: not any(_alive(pid) for pid in left), 10)
    resume(slow, slow.count())
    assert slow.outcomes() == undisturbed


def _alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_workers_killed_while_running(slow: Desk, undisturbed: dict) -> None:
    """Each loss costs a retry at most; a trial hit twice would be recorded as failed and run again."""
    driver = slow.start("run", "toy", "--jobs", "2")
    chance = random.Random(0)
    for wanted in (2, 9, 16):
        slow.wait_for(lambda wanted=wanted: slow.count() >= wanted or driver.poll() is not None)
        if workers := workers_of(driver.pid):
            os.kill(chance.choice(workers), signal.SIGKILL)
    _, err = driver.communicate(timeout=90)
    if driver.returncode:
        assert "killed 2 times" in err
        assert slow.call("run", "toy").returncode == 0
    assert slow.outcomes() == undisturbed


def test_all_workers_killed_while_idle(make_desk: Callable[..., Desk], undisturbed: dict) -> None:
    """Between two tasks the pool breaks as a whole; it is built anew and the rest is run."""
    # The first experiment's workers are idle as soon as a single, long trial is left to another worker.
    study = STUDY.replace("def draws(", "HOLD = 4.0\n\n\ndef draws(").replace(
        "    misbehave(trial)\n",
        "    misbehave(trial)\n    if (trial.seed, trial.arm, trial.level['outliers']) == (5, 'median', 'some'):\n"
        "        time.sleep(HOLD)\n",
    )
    desk = make_desk(study=study)
    driver = desk.start("run", "toy.estimate", "--jobs", "2")
    desk.wait_for(lambda: desk.count() >= 23)
    time.sleep(0.3)
    for worker in workers_of(driver.pid):
        os.kill(worker, signal.SIGKILL)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert desk.outcomes() == {cell: m for cell, m in undisturbed.items() if cell[0] == "estimate"}


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("raise", "failed", "ValueError: no such luck"),
        ("kill", "failed", "its worker was killed 2 times"),
        ("hang", "timeout", "not finished within 3 s"),
    ],
)
def test_a_trial_that_fails_is_recorded_and_the_others_go_on(
    make_desk: Callable[..., Desk], fault: str, status: str, says: str
) -> None:
    from toy_package import PAPER

    desk = make_desk(paper=PAPER.replace("timeout = 20", "timeout = 3"))
    done = desk.call("run", "toy.estimate", "--set", f"fault={fault}")
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "1 failed" in done.stderr
    with Ledger(desk.ledger, readonly=True) as ledger:
        rows = ledger.rows("toy")
    (failed,) = [row for row in rows if row.status != "ok"]
    assert (failed.status, failed.arm, failed.seed) == (status, "median", 1)
    assert says in failed.error
    assert len(rows) == 24
    if fault == "raise":
        assert "Traceback" in failed.error  # the whole of it is kept
    again = desk.call("run", "toy.estimate", "--set", f"fault={fault}")  # only the failed cell is tried again
    assert "running 1 cell, 23 are in the ledger" in again.stderr


def test_a_joint_call_keeps_what_it_yielded(make_desk: Callable[..., Desk], undisturbed: dict) -> None:
    """Killed in mid-call, a restart hands it the missing cells only."""
    study = SLOW_STUDY.replace(
        '        yield cell, Outcome({"error": error})',
        '        yield cell, Outcome({"error": error})\n'
        "        if cell.seed == 3 and not os.path.exists('once'):\n"
        "            open('once', 'w').close()\n"
        "            os.kill(os.getpid(), 9)",
    )
    desk = make_desk(study=study)
    done = desk.call("run", "toy.jointly", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert (desk.folder / "once").exists()
    assert desk.count() == 16
    assert desk.outcomes() == {cell: m for cell, m in undisturbed.items() if cell[0] == "jointly"}


def test_two_runs_at_once_on_one_ledger(slow: Desk, undisturbed: dict) -> None:
    both = [slow.start("run", "toy", "--jobs", "2") for _ in range(2)]
    for driver in both:
        _, err = driver.communicate(timeout=120)
        assert driver.returncode == 0, err
    assert slow.count() == 40  # none doubled
    assert slow.outcomes() == undisturbed


def _fill(ledger: Ledger) -> int:
    """Write outcomes until the disk is full; returns how many were accepted."""
    ledger.start_run(RunInfo("toy", "laptop", "", {}, {}, ""))
    for seed in range(100_000):
        row = Row(f"key{seed}", "toy", "estimate", 1, "laptop", "mean", {}, seed, metrics={"x" * 500: 1.0})
        try:
            ledger.record(row)
        except LedgerError as error:
            refused = str(error)
            break
    assert "disk is full; free some space and run the same command again" in refused
    return seed


def test_full_disk_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger._db.execute("PRAGMA max_page_count=60")  # SQLite's own limit: the same error as a full file system
        accepted = _fill(ledger)
    assert accepted > 10
    with Ledger(tmp_path / "ledger.db", readonly=True) as ledger:
        assert [row.seed for row in ledger.rows("toy")] == list(range(accepted))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting a small file system needs root")
def test_full_file_system(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this container may not mount a file system; the test above covers SQLite's own error")
    try:
        with Ledger(small / "ledger.db") as ledger:
            accepted = _fill(ledger)
        assert accepted > 10
        with Ledger(small / "ledger.db", readonly=True) as ledger:
            assert len(ledger.rows("toy")) == accepted
    finally:
        subprocess.run(["umount", str(small)], check=False)


def test_full_disk_during_a_run_is_one_line(slow: Desk) -> None:
    slow.ledger.parent.mkdir()
    with Ledger(slow.ledger):
        pass
    # An outcome that is refused ends the run: a trigger raises what SQLite raises when the disk is full.
    database = sqlite3.connect(slow.ledger)
    database.execute(
        "CREATE TRIGGER full BEFORE INSERT ON outcome WHEN (SELECT count(*) FROM outcome) >= 3 "
        "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
    )
    database.commit()
    database.close()
    driver = slow.start("run", "toy.estimate")
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 1
    assert "disk is full; free some space and run the same command again" in one_line(err)
    slow.wait_for(lambda: not children_of(driver.pid), 5)
    assert slow.count() == 3


def test_ledger_that_cannot_be_written_is_one_line_as_root_too(desk: Desk) -> None:
    (desk.folder / "file").write_text("")
    for place in ("file/ledger.db", "/proc/paperworks/ledger.db" if sys.platform == "linux" else "file/x/ledger.db"):
        done = desk.call("run", "toy.estimate", "--ledger", place)
        assert done.returncode == 1
        assert place in one_line(done.stderr)
        assert "--ledger" in done.stderr
    folder = desk.folder / "folder.db"
    folder.mkdir()
    assert "cannot open ledger folder.db" in one_line(desk.call("run", "toy.estimate", "--ledger", "folder.db").stderr)


def test_what_is_no_ledger_is_left_alone(desk: Desk) -> None:
    other = desk.folder / "notes.txt"
    other.write_text("dear diary " * 1000)
    done = desk.call("run", "toy.estimate", "--ledger", "notes.txt")
    assert done.returncode == 1
    assert "not a database" in one_line(done.stderr)
    assert other.read_text().startswith("dear diary")


def test_newer_ledger_is_refused(desk: Desk) -> None:
    database = sqlite3.connect(desk.folder / "new.db")
    database.execute("PRAGMA user_version=99")
    database.commit()
    database.close()
    done = desk.call("run", "toy.estimate", "--ledger", "new.db")
    assert "format 99" in one_line(done.stderr)
