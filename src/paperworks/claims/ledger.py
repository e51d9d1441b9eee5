"""The ledger: one SQLite file with every outcome that was ever tried, and the evidence file that a paper ships.

Only the driver writes. An outcome is in the ledger, whole, when `Ledger.record` has returned.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from paperworks.claims.errors import LedgerError

DEFAULT_PATH = Path("paperworks-runs") / "ledger.db"
FORMAT = 1
_PATIENCE = 60  # seconds to wait for another process that writes
OutcomeStatus = Literal["ok", "failed", "timeout"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    id TEXT PRIMARY KEY, paper TEXT NOT NULL, scale TEXT NOT NULL, started REAL NOT NULL, command TEXT NOT NULL,
    environment TEXT NOT NULL, statements TEXT NOT NULL, code TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcome (
    id INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), key TEXT NOT NULL, kind TEXT NOT NULL,
    paper TEXT NOT NULL, experiment TEXT NOT NULL, version INTEGER NOT NULL, scale TEXT NOT NULL, arm TEXT NOT NULL,
    level TEXT NOT NULL, seed INTEGER NOT NULL, knobs TEXT NOT NULL, custom TEXT NOT NULL, status TEXT NOT NULL,
    metrics TEXT NOT NULL, items TEXT NOT NULL, curves TEXT NOT NULL, figures TEXT NOT NULL,
    seconds REAL NOT NULL, memory REAL NOT NULL, error TEXT NOT NULL, finished REAL NOT NULL);
CREATE INDEX IF NOT EXISTS outcome_key ON outcome(key);
CREATE INDEX IF NOT EXISTS outcome_paper ON outcome(paper, scale);
"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One tried cell.

    Attributes:
        key: Fingerprint of the cell with all that decides its outcome.
        kind: "trial", or "tune" for the stage in which knobs are chosen.
        custom: What the user replaced: {"set": {...}} and {"arm": "pkg:factory", "code": "its fingerprint"}; empty for
            the study as it is.
        seconds: Wall-clock time of the cell.
        memory: Peak resident memory of the worker during the call, in MiB.
    """

    key: str
    paper: str
    experiment: str
    version: int
    scale: str
    arm: str
    level: Mapping[str, Any]
    seed: int
    kind: str = "trial"
    knobs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    custom: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    status: OutcomeStatus = "ok"
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    items: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    memory: float = 0.0
    error: str = ""
    finished: float = 0.0
    run: str = ""


_JSON = ("level", "knobs", "custom", "metrics", "items", "curves", "figures")
_COLUMNS = tuple(field.name for field in dataclasses.fields(Row))


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What was true for a whole run.

    Attributes:
        statements: Claim id to `Paper.statement_hash` when the run was started: what was fixed before it.
        code: Fingerprint of the room's code.
        environment: Versions, platform, commit, threads, device, prepared artefacts.
    """

    paper: str
    scale: str
    command: str
    environment: Mapping[str, Any]
    statements: Mapping[str, str]
    code: str
    started: float = dataclasses.field(default_factory=time.time)
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)


class Ledger:
    """An open ledger file.

    Args:
        path: The SQLite file; its folder is made when it is not there.
        readonly: Open what exists and write nothing.

    Raises:
        LedgerError: One line saying what the machine refuses and what to do.
    """

    def __init__(self, path: Path = DEFAULT_PATH, *, readonly: bool = False) -> None:
        self.path = Path(path)
        with _one_line(self.path, "open"):
            if readonly:
                self._db = _connect_to_read(self.path)
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            with _one_line(self.path, "open"):
                self._prepare(readonly)
        except LedgerError:
            self._db.close()
            raise

    def _prepare(self, readonly: bool) -> None:
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise LedgerError(
                f"ledger {self.path} has format {found}, this version reads up to {FORMAT}: upgrade paperworks "
                "or name another file with --ledger"
            )
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        if tables and "outcome" not in tables:
            raise LedgerError(f"{self.path} is a database of another program; name another file with --ledger")
        if readonly:
            if not tables:  # a run was killed before it had written anything
                self._db.close()
                self._db = sqlite3.connect(":memory:")
                self._db.executescript(_SCHEMA)
            return
        self._set_journal()
        self._db.execute("PRAGMA synchronous=FULL")
        with self._transaction():
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={FORMAT}")

    def _set_journal(self) -> None:
        """Switch to WAL; SQLite does not wait by itself when another process is just doing the same."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with _one_line(self.path, "close"):
            self._db.close()

    def start_run(self, info: RunInfo) -> None:
        """Write the line that all outcomes of a run refer to."""
        with _one_line(self.path, "write"), self._transaction():
            self._db.execute(
                "INSERT INTO run VALUES (?,?,?,?,?,?,?,?)",
                (
                    info.id,
                    info.paper,
                    info.scale,
                    info.started,
                    info.command,
                    json.dumps(info.environment),
                    json.dumps(info.statements),
                    info.code,
                ),
            )

    def record(self, row: Row, *, again: bool = False) -> bool:
        """Write one tried cell; when this returns it is on the disk.

        Returns:
            False when another run had recorded a good outcome of the same cell meanwhile, and this one was dropped.
        """
        values = dataclasses.asdict(row) | {"finished": row.finished or time.time()}
        encoded = [json.dumps(values[c]) if c in _JSON else values[c] for c in _COLUMNS]
        with _one_line(self.path, "write"), self._transaction():
            if not again and self._present([row.key]):
                return False
            marks = ",".join("?" * len(_COLUMNS))
            self._db.execute(f"INSERT INTO outcome ({','.join(_COLUMNS)}) VALUES ({marks})", encoded)
        return True

    def _present(self, keys: list[str]) -> set[str]:
        found: set[str] = set()
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ",".join("?" * len(part))
            query = f"SELECT DISTINCT key FROM outcome WHERE status = 'ok' AND key IN ({marks})"
            found.update(key for (key,) in self._db.execute(query, part))
        return found

    def present(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that have a good outcome."""
        with _one_line(self.path, "read"):
            return self._present(list(keys))

    def rows(self, paper: str, scale: str | None = None, *, drawings: bool = True) -> list[Row]:
        """The newest attempt of every cell of a paper; a good one is never hidden by a later failure.

        Args:
            paper: The paper's slug.
            scale: One scale, or all.
            drawings: Whether to read curves and figures, which no verdict needs.
        """
        wanted = [c if drawings or c not in ("curves", "figures") else f"'{{}}' AS {c}" for c in _COLUMNS]
        query = f"SELECT {','.join(wanted)} FROM outcome WHERE paper = ?"
        parameters: list[Any] = [paper]
        if scale is not None:
            query, parameters = f"{query} AND scale = ?", [paper, scale]
        newest: dict[str, Row] = {}
        with _one_line(self.path, "read"):
            for values in self._db.execute(f"{query} ORDER BY id", parameters):
                named = dict(zip(_COLUMNS, values, strict=True))
                row = Row(**{c: json.loads(v) if c in _JSON else v for c, v in named.items()})
                if row.status == "ok" or row.key not in newest or newest[row.key].status != "ok":
                    newest[row.key] = row
        return list(newest.values())

    def runs(self, paper: str) -> dict[str, RunInfo]:
        """The runs of a paper by id."""
        query = "SELECT paper, scale, command, environment, statements, code, started, id FROM run WHERE paper = ?"
        with _one_line(self.path, "read"):
            return {
                r[7]: RunInfo(r[0], r[1], r[2], json.loads(r[3]), json.loads(r[4]), r[5], r[6], r[7])
                for r in self._db.execute(query, [paper])
            }


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing and leaves nothing beside the file.

    Opened as "mode=ro", a database in WAL mode would keep its two helper files for ever; they go when a connection that
    could write is closed. Where that cannot be opened, a place of which one may only read, the others follow.
    """
    if not path.exists():
        raise LedgerError(f"there is no ledger {path}; `paperworks run` makes one")
    modes = ["mode=rw", "mode=ro", *([] if Path(f"{path}-wal").exists() else ["immutable=1"])]
    for mode in modes:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30)
        try:
            connection.execute("PRAGMA query_only=ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            connection.close()
            refused = isinstance(error, sqlite3.OperationalError) and "locked" not in str(error)
            if mode == modes[-1] or not refused:
                raise
        else:
            return connection
    raise AssertionError


@contextlib.contextmanager
def _one_line(path: Path, doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        message = str(error)
        if "full" in message:
            advice = "free some space and run the same command again: what is in the ledger stays there"
        elif "not a database" in message or "malformed" in message:
            advice = "move the file away, or name another with --ledger"
        elif "locked" in message:
            advice = "another program holds it; wait for it, or name another file with --ledger"
        else:
            advice = "name a place that can be written with --ledger"
        raise LedgerError(f"cannot {doing} ledger {path}: {message}; {advice}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise LedgerError(
            f"cannot {doing} ledger {path}: {reason}; name a place that can be written with --ledger"
        ) from error
