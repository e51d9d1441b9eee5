"""The ledger keeps what it was given, bit by bit, whoever else writes."""

from __future__ import annotations

import dataclasses
import math
import os
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.claims.errors import LedgerError
from paperworks.claims.ledger import Ledger, Row, RunInfo


def row(key: str = "k", **changes: Any) -> Row:
    given = {"paper": "toy", "experiment": "e", "version": 1, "scale": "laptop", "arm": "a", "level": {}, "seed": 0}
    return Row(key, **{**given, **changes})


def info(**changes: Any) -> RunInfo:
    return dataclasses.replace(
        RunInfo("toy", "laptop", "paperworks run toy", {"cores": 2}, {"M1": "abc"}, "c0de"), **changes
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "ledger.db"


def bits(value: Any) -> Any:
    """The same, with floats as their bytes, so that -0.0 is not 0.0."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, dict):
        return {key: bits(v) for key, v in value.items()}
    return [bits(v) for v in value] if isinstance(value, list | tuple) else value


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(NAMES, FLOATS, max_size=4),
    st.dictionaries(NAMES, st.dictionaries(NAMES, FLOATS, max_size=3), max_size=2),
    st.lists(st.tuples(FLOATS, FLOATS), max_size=5),
    st.dictionaries(NAMES, st.one_of(NAMES, FLOATS, st.integers(-(2**53), 2**53), st.booleans()), max_size=3),
    NAMES,
)
def test_what_goes_in_comes_out_bit_by_bit(metrics: Any, items: Any, curve: Any, level: Any, text: str) -> None:
    given = row(
        level=level, knobs=level, metrics=metrics, items=items, curves={"loss": [list(p) for p in curve]},
        figures={"a.svg": text}, custom={"set": {"x": 1}, "arm": text}, seconds=0.1, memory=1e-300, error=text,
        status="failed", kind="tune", finished=1.5, run="r", seed=2**40,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "l.db") as ledger:
        ledger._db.execute("PRAGMA synchronous=OFF")
        assert ledger.record(given)
        (found,) = ledger.rows("toy")
    assert bits(dataclasses.asdict(found)) == bits(dataclasses.asdict(given))
    assert {k: type(v) for k, v in found.level.items()} == {k: type(v) for k, v in level.items()}


def test_runs_are_kept_with_all_they_say(path: Path) -> None:
    with Ledger(path) as ledger:
        first, second = info(), info(scale="smoke", environment={"prepared": {"corpus": {"": "ab"}}})
        ledger.start_run(first)
        ledger.start_run(second)
        ledger.start_run(info(paper="other"))
    with Ledger(path, readonly=True) as ledger:
        assert ledger.runs("toy") == {first.id: first, second.id: second}


def test_the_newest_good_attempt_of_a_cell_counts(path: Path) -> None:
    with Ledger(path) as ledger:

        def attempt(status: str, value: float, key: str = "k") -> bool:
            metrics = {"m": value} if status == "ok" else {}
            return ledger.record(row(key, status=status, metrics=metrics, error=f"{status} {value}"), again=True)

        def newest() -> tuple[str, str]:
            (found,) = [r for r in ledger.rows("toy") if r.key == "k"]
            return found.status, found.error

        attempt("failed", 1)
        assert newest() == ("failed", "failed 1")
        assert ledger.present(["k"]) == set()
        attempt("timeout", 2)
        assert newest() == ("timeout", "timeout 2")
        attempt("ok", 3)
        assert newest() == ("ok", "ok 3")
        assert ledger.present(["k", "x"]) == {"k"}
        attempt("failed", 4)  # hides nothing
        assert newest() == ("ok", "ok 3")
        attempt("ok", 5)
        assert newest() == ("ok", "ok 5")
        attempt("failed", 6, key="other")
        assert len(ledger.rows("toy")) == 2


def test_a_good_outcome_is_written_once_unless_asked_again(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.record(row(status="failed"))
        assert ledger.record(row(metrics={"m": 1.0}))
        assert not ledger.record(row(metrics={"m": 2.0}))
        assert ledger.rows("toy")[0].metrics == {"m": 1.0}
        assert ledger.record(row(metrics={"m": 3.0}), again=True)
        assert ledger.rows("toy")[0].metrics == {"m": 3.0}


def test_rows_are_those_of_one_paper_and_scale_and_without_drawings_if_told(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.record(row("a", curves={"c": [[0.0, 1.0]]}, figures={"f": "<svg/>"}))
        ledger.record(row("b", scale="smoke"))
        ledger.record(row("c", paper="other"))
        assert [r.key for r in ledger.rows("toy")] == ["a", "b"]
        assert [r.key for r in ledger.rows("toy", "smoke")] == ["b"]
        (bare,) = ledger.rows("toy", "laptop", drawings=False)
        assert (bare.curves, bare.figures) == ({}, {})
        assert ledger.rows("toy", "laptop")[0].figures == {"f": "<svg/>"}
        assert ledger.rows("toy")[0].finished > 1e9  # set when it is recorded


def test_many_keys_are_asked_for_at_once(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger._db.execute("PRAGMA synchronous=OFF")
        for i in range(0, 3000, 3):
            ledger.record(row(f"k{i}"))
        assert ledger.present(f"k{i}" for i in range(100_000)) == {f"k{i}" for i in range(0, 3000, 3)}
        assert ledger.present([]) == set()


def test_reading_writes_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.start_run(info())
        ledger.record(row())
    before, files = path.read_bytes(), sorted(os.listdir(path.parent))
    assert files == ["ledger.db"]
    with Ledger(path, readonly=True) as ledger:
        assert len(ledger.rows("toy")) == 1
        with pytest.raises(LedgerError, match="attempt to write a readonly database"):
            ledger.record(row("other"))
        with Ledger(path, readonly=True) as second:
            assert len(second.rows("toy")) == 1
    assert sorted(os.listdir(path.parent)) == files  # nothing is left beside it either
    assert path.read_bytes() == before


def test_reading_beside_a_writer_sees_whole_outcomes(path: Path) -> None:
    with Ledger(path) as writer, Ledger(path, readonly=True) as reader:
        for i in range(5):
            writer.record(row(f"k{i}"))
            assert len(reader.rows("toy")) == i + 1


def test_a_ledger_that_is_not_there(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no ledger .*ledger\.db; `paperworks run` makes one"):
        Ledger(path, readonly=True)
    assert not path.parent.exists()


def test_a_run_that_was_killed_at_once_leaves_an_empty_ledger(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Ledger(path, readonly=True) as ledger:
        assert ledger.rows("toy") == []
        assert ledger.runs("toy") == {}
    assert path.stat().st_size == 0
    with Ledger(path) as ledger:
        assert ledger.record(row())


def test_another_program_s_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE bookmarks (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    for readonly in (True, False):
        with pytest.raises(LedgerError, match="is a database of another program; name another file with --ledger"):
            Ledger(path, readonly=readonly)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["head", "middle", "cut"])
def test_a_damaged_file_is_one_line(path: Path, damage: str) -> None:
    with Ledger(path) as ledger:
        ledger._db.execute("PRAGMA synchronous=OFF")
        for i in range(300):
            ledger.record(row(f"k{i}", error="x" * 300))
    content = bytearray(path.read_bytes())
    if damage == "head":
        content[:100] = b"x" * 100
    elif damage == "middle":
        content[4096:-4096] = b"\xff" * (len(content) - 8192)
    else:
        content = content[: len(content) // 2]
    path.write_bytes(content)

    def use() -> None:
        with Ledger(path) as ledger:
            ledger.rows("toy")

    with pytest.raises(LedgerError) as caught:
        use()
    assert str(path) in str(caught.value)
    assert "move the file away, or name another with --ledger" in str(caught.value)
    assert "\n" not in str(caught.value)


WRITER = """
import sys, time
from pathlib import Path
from paperworks.claims.ledger import Ledger, Row
time.sleep(max(0, float(sys.argv[2]) - time.time()))
with Ledger(Path(sys.argv[1])) as ledger:
    ledger._db.execute("PRAGMA synchronous=OFF")
    mine = 0
    for i in range(150):
        mine += ledger.record(Row(f"shared {i}", "toy", "e", 1, "laptop", "a", {}, i, metrics={"m": float(i)}))
        ledger.record(Row(f"{sys.argv[3]} {i}", "toy", "e", 1, "laptop", "b", {}, i))
print(mine)
"""


def test_processes_that_start_and_write_together(path: Path) -> None:
    """All open a file that is not there yet, at one moment; none is turned away and no outcome is doubled or lost."""
    import time

    start = str(time.time() + 1.5)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), start, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    said = [writer.communicate(timeout=60) for writer in writers]
    assert [err for _, err in said] == [""] * 4
    assert sum(int(out) for out, _ in said) == 150
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM outcome").fetchone() == (750,)
    database.close()


def test_an_outcome_is_on_the_disk_when_record_returns(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert ledger._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_transaction_that_fails_leaves_the_ledger_usable(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(Exception, match="binding"):
            ledger.record(row("bad", seed=object()))
        assert ledger.record(row("good", metrics={"m": math.pi}))
        assert [r.key for r in ledger.rows("toy")] == ["good"]
