"""Shows a run on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

from paperworks.claims.errors import last_line
from paperworks.claims.ledger import Row
from paperworks.claims.worker import Task

_STAGES = {"prepare": "preparing", "tune": "tuning", "trial": "running"}
_LINE_EVERY = 10.0  # seconds


class PlainProgress:
    """A line every few seconds, for logs."""

    def __init__(self) -> None:
        self._total = self._done = 0
        self._begun = self._said = 0.0

    def started(self, stage: str, total: int, skipped: int) -> None:
        """Say what will be done."""
        self._total, self._done, self._begun, self._said = total, 0, time.monotonic(), time.monotonic()
        cached = f", {skipped} are in the ledger" if skipped else ""
        print(f"{_STAGES[stage]} {total} cell{'s' if total != 1 else ''}{cached}", file=sys.stderr, flush=True)

    def progress(self, task: Task, done: int, total: int) -> None:
        """Too fine for a log."""

    def ended(self, task: Task) -> None:
        """Too fine for a log."""

    def finished(self, row: Row) -> None:
        """Count, and say how long it will take."""
        self._done += 1
        if row.status != "ok":
            print(failure_line(row), file=sys.stderr, flush=True)
        now = time.monotonic()
        if now - self._said >= _LINE_EVERY or self._done == self._total:
            self._said = now
            left = (now - self._begun) / self._done * (self._total - self._done)
            print(f"{self._done}/{self._total} done, about {left:.0f} s left", file=sys.stderr, flush=True)


class RichProgress:
    """Two kinds of bars: all cells with the time left, and each task that is under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}", justify="left"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._main = self._progress.add_task("", visible=False)
        self._bars: dict[int, object] = {}

    def __enter__(self) -> RichProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, stage: str, total: int, skipped: int) -> None:
        """Show the bar over all cells."""
        cached = f" ({skipped} in the ledger)" if skipped else ""
        self._progress.reset(self._main, total=total, description=f"{_STAGES[stage]}{cached}", visible=total > 0)

    def progress(self, task: Task, done: int, total: int) -> None:
        """Show a bar for one task."""
        if task.id not in self._bars:
            cell = task.cells[0] if task.cells else task.build
            self._bars[task.id] = self._progress.add_task(f"  {task.experiment}: {cell}")
        self._progress.update(self._bars[task.id], completed=done, total=total)  # type: ignore[arg-type]

    def ended(self, task: Task) -> None:
        """Take the task's bar away."""
        if task.id in self._bars:
            self._progress.remove_task(self._bars.pop(task.id))  # type: ignore[arg-type]

    def finished(self, row: Row) -> None:
        """Advance, and keep failures in view."""
        self._progress.advance(self._main)
        if row.status != "ok":
            self._progress.console.print(failure_line(row), markup=False, highlight=False)


def failure_line(row: Row) -> str:
    """One line on a cell that failed."""
    levels = "".join(f", {axis}={value}" for axis, value in row.level.items())
    return f"{row.status}: {row.paper}.{row.experiment} {row.arm}{levels}, seed {row.seed}: {last_line(row.error)}"
