from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from toy_package import write_distribution


@dataclasses.dataclass
class Desk:
    """A folder to work in, with a small real plugin distribution on the path, and the command line."""

    folder: Path
    plugins: Path
    room: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "paperworks-runs" / "ledger.db"

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(self.plugins), os.environ.get("PYTHONPATH")]))
        return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start the command line in a process group of its own, as a terminal does."""
        return subprocess.Popen(
            [sys.executable, "-m", "paperworks.cli", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )

    def call(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def outcomes(self, ledger: Path | None = None) -> dict[tuple[Any, ...], dict[str, float]]:
        """Good outcomes by cell; it is an error when a cell has two."""
        from paperworks.claims.ledger import Ledger

        found: dict[tuple[Any, ...], dict[str, float]] = {}
        with Ledger(ledger or self.ledger, readonly=True) as opened:
            for row in opened.rows("toy"):
                if row.status == "ok":
                    cell = (row.experiment, row.scale, row.arm, tuple(sorted(row.level.items())), row.seed)
                    assert cell not in found
                    found[cell] = dict(row.metrics)
        return found

    def count(self) -> int:
        """How many rows the ledger has, repeated attempts included; 0 before there is a ledger."""
        import sqlite3

        if not self.ledger.exists():
            return 0
        try:
            database = sqlite3.connect(f"{self.ledger.as_uri()}?mode=ro", uri=True, timeout=5)
            with database:
                return int(database.execute("SELECT count(*) FROM outcome").fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)


def children_of(pid: int) -> list[int]:
    """The living descendants of a process."""
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def workers_of(pid: int) -> list[int]:
    """The pool's workers among them."""
    import psutil

    found = []
    for child in children_of(pid):
        try:
            if "spawn_main" in " ".join(psutil.Process(child).cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture
def make_desk(tmp_path: Path) -> Callable[..., Desk]:
    def make(**files: str) -> Desk:
        folder, plugins = tmp_path / "work", tmp_path / "plugins"
        folder.mkdir()
        return Desk(folder, plugins, write_distribution(plugins, **files))

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()


@pytest.fixture
def make_toy(make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    """Makes toy papers that this process finds too; it then works in the desk's folder, with a cache of its own."""

    def make(**files: str) -> Desk:
        desk = make_desk(**files)
        monkeypatch.syspath_prepend(str(desk.plugins))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a study edited within a second would be found in it
        monkeypatch.setenv("PAPERWORKS_CACHE", str(desk.folder.parent / "cache"))
        monkeypatch.chdir(desk.folder)
        forget()
        return desk

    yield make
    forget()


def forget() -> None:
    """Let the toy paper be imported anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_papers"]:
        del sys.modules[name]


@pytest.fixture
def toy(make_toy: Callable[..., Desk]) -> Desk:
    """The toy paper, found by this process too."""
    return make_toy()


@pytest.fixture
def lab(make_toy: Callable[..., Desk]) -> Desk:
    """The second toy paper, with knobs, prepared artefacts and items."""
    from toy_package import LAB_PAPER, LAB_STUDY

    return make_toy(paper=LAB_PAPER, study=LAB_STUDY)
