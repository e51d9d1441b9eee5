"""Where tasks run. An executor takes tasks and yields what becomes of them; the engine does not care where that is."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any, Protocol

from paperworks.claims.errors import PaperworksError
from paperworks.claims.worker import Task, run_task, start_worker

# One thread a worker: workers fill the machine, and an outcome must not depend on how many threads summed its numbers.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_RETRIES = 1
_REBUILDS_WITHOUT_SUCCESS = 5
_POLL = 0.1  # seconds between looks at progress
_STALL = 180.0  # seconds: a worker killed in the instant it takes a task leaves that task unheard of


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that became of a task.

    Attributes:
        kind: "cell" (an outcome or a failure, in ``line``), "progress" (``line`` has done and total) or "end".
    """

    task: Task
    kind: str
    line: dict[str, Any] = dataclasses.field(default_factory=dict)


class Executor(Protocol):
    """Runs tasks somewhere."""

    def run(self, tasks: Iterable[Task]) -> Iterator[Event]:
        """Run all tasks; a "cell" event for every cell of each, then its "end"."""
        ...


@dataclasses.dataclass
class _Running:
    task: Task
    spool: Path
    losses: int
    since: float = dataclasses.field(default_factory=time.monotonic)
    read: int = 0
    rest: str = ""
    seen: set[int] = dataclasses.field(default_factory=set)

    def events(self) -> Iterator[Event]:
        """What the worker has written since the last look, whole lines only."""
        with contextlib.suppress(FileNotFoundError), self.spool.open(encoding="utf-8") as stream:
            stream.seek(self.read)
            text = stream.read()
            self.read = stream.tell()
            *lines, self.rest = (self.rest + text).split("\n")
            for line in map(json.loads, lines):
                if "cell" in line:
                    self.seen.add(line["cell"])
                    yield Event(self.task, "cell", line)
                else:
                    yield Event(self.task, "progress", line)

    def left(self) -> list[int]:
        """The cells without an outcome; [-1] stands for the whole of a build."""
        wanted = [-1] if self.task.build else range(len(self.task.cells))
        return [index for index in wanted if index not in self.seen]


class LocalExecutor:
    """Worker processes on this machine that live across tasks, one thread each.

    A worker that is killed costs its running task, which is tried once more; a task over its time costs itself; a pool
    that breaks is built anew. Workers exit when this process is gone.

    Args:
        jobs: Number of workers.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def run(self, tasks: Iterable[Task]) -> Iterator[Event]:
        """Run all tasks; see `Executor`."""
        waiting = collections.deque((task, 0) for task in tasks)
        if not waiting:
            return
        modules = tuple(dict.fromkeys(task.study_module for task, _ in waiting))
        with _one_thread_each(), tempfile.TemporaryDirectory(prefix="paperworks-") as folder:
            spools = (Path(folder) / f"{i}.jsonl" for i in range(10**9))
            running: dict[Any, _Running] = {}
            pool = _start_pool(min(self.jobs, len(waiting)), modules)
            rebuilds = 0
            try:
                while waiting or running:
                    broken = False
                    while waiting and len(running) < self.jobs + 1 and not broken:
                        task, losses = waiting.popleft()
                        slot = _Running(task, next(spools), losses)
                        try:
                            future = pool.schedule(run_task, args=(task, str(slot.spool)), timeout=task.timeout)
                        except RuntimeError:  # the pool broke between two tasks
                            waiting.appendleft((task, losses))
                            broken = True
                        else:
                            running[future] = slot
                    done, _ = wait(running, timeout=_POLL, return_when=FIRST_COMPLETED) if running else ((), ())
                    for slot in list(running.values()):
                        yield from slot.events()
                    for future in done:
                        slot = running.pop(future)
                        yield from slot.events()
                        again, lost_pool = yield from _ended(future, slot)
                        broken = broken or lost_pool
                        rebuilds = rebuilds if again else 0
                        if again:
                            waiting.appendleft(again)
                    if broken or not pool.active or self._stalled(running):
                        rebuilds += 1
                        if rebuilds > _REBUILDS_WITHOUT_SUCCESS:
                            raise PaperworksError(
                                f"the worker pool broke {rebuilds} times in a row without finishing a task: workers "
                                "are being killed from outside (is memory short?); what is in the ledger stays there"
                            )
                        _stop(pool)
                        for slot in running.values():  # their workers are gone; the cells they finished are kept
                            yield from slot.events()
                            waiting.appendleft((_remaining(slot), slot.losses))
                        running.clear()
                        pool = _start_pool(self.jobs, modules)
                pool.close()
                pool.join()
            finally:
                _stop(pool)

    def _stalled(self, running: Mapping[Any, _Running]) -> bool:
        """Whether a task has waited long for a worker although fewer tasks have started than there are workers."""
        started = sum(slot.spool.exists() for slot in running.values())
        idle = [slot for slot in running.values() if not slot.spool.exists()]
        return started < self.jobs and any(time.monotonic() - slot.since > _STALL for slot in idle)


def _ended(future: Any, slot: _Running) -> Any:
    """Say how a task ended. Returns (task to run again or None, whether the pool is broken); yields events."""
    from concurrent.futures.process import BrokenProcessPool

    from pebble import ProcessExpired

    error = future.exception()
    left = slot.left()
    if error is None and slot.task.build and left:
        slot.seen.add(-1)
        left = []
    if isinstance(error, BrokenProcessPool) and left:
        return (_remaining(slot), slot.losses), True
    if isinstance(error, ProcessExpired) and left and slot.losses < _RETRIES:
        return (_remaining(slot), slot.losses + 1), False
    for index in left:
        if isinstance(error, TimeoutError):
            status, reason = "timeout", f"not finished within {slot.task.timeout:g} s"
        elif isinstance(error, ProcessExpired):
            status, reason = "failed", f"its worker was killed {slot.losses + 1} times (exit code {error.exitcode})"
        else:
            status, reason = "failed", f"its worker ended without an outcome: {error!r}"
        yield Event(
            slot.task, "cell", {"cell": index, "status": status, "error": reason, "seconds": 0.0, "memory": 0.0}
        )
    yield Event(slot.task, "end")
    return None, isinstance(error, BrokenProcessPool)


def _remaining(slot: _Running) -> Task:
    """The task with the cells that have no outcome yet."""
    if slot.task.build:
        return slot.task
    return dataclasses.replace(slot.task, cells=tuple(slot.task.cells[i] for i in slot.left()))


def _start_pool(jobs: int, modules: tuple[str, ...]) -> Any:
    from pebble import ProcessPool

    with _interrupts_kept_from_children():
        return _started(
            ProcessPool(
                max_workers=jobs,
                context=multiprocessing.get_context("spawn"),
                initializer=start_worker,
                initargs=(os.getpid(), modules),
            )
        )


def _started(pool: Any) -> Any:
    pool.active  # noqa: B018 - the property starts the pool's threads, which hand their signal mask to the workers
    return pool


def _stop(pool: Any) -> None:
    with contextlib.suppress(RuntimeError):
        pool.stop()
        pool.join()


@contextlib.contextmanager
def _interrupts_kept_from_children() -> Iterator[None]:
    """Ctrl-C goes to the whole process group; threads and processes started here never see it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class InlineExecutor:
    """Runs tasks one after the other in this process: for the contract's small checks and for a debugger.

    No timeouts, and a crash is a crash; outcomes are those of any other executor.
    """

    jobs = 1

    def run(self, tasks: Iterable[Task]) -> Iterator[Event]:
        """Run all tasks; see `Executor`."""
        with tempfile.TemporaryDirectory(prefix="paperworks-") as folder:
            for i, task in enumerate(tasks):
                slot = _Running(task, Path(folder) / f"{i}.jsonl", 0)
                run_task(task, str(slot.spool))
                yield from slot.events()
                yield Event(task, "end")


def local(jobs: int | None = None) -> LocalExecutor:
    """Workers on this machine, as many as it has cores unless told."""
    return LocalExecutor(jobs or available_cores())


def available_cores() -> int:
    """Cores that this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
