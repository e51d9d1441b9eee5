"""Where tasks run. An executor takes tasks and yields what becomes of them; the engine does not care where that is."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from paperworks.claims.errors import PaperworksError, interrupted
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
_BREAKS = 5
_POLL = 0.1  # seconds between looks at progress


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


@dataclasses.dataclass
class _Worker:
    """A pool of one process. Workers share no pipe and no lock, so that killing one is nobody else's business."""

    modules: tuple[str, ...]
    pool: Any = None
    future: Any = None
    running: _Running | None = None

    def start(self, task: Task, losses: int, spool: Path) -> None:
        """Hand the worker a task; a pool that was broken while idle is built anew."""
        self.running = _Running(task, spool, losses)
        for _ in range(2):
            if self.pool is None:
                self.pool = _start_pool(self.modules)
            try:
                self.future = self.pool.schedule(run_task, args=(task, str(spool)), timeout=task.timeout)
            except RuntimeError:
                self.stop()
            else:
                return
        raise PaperworksError("a fresh worker process does not start; what is in the ledger stays there")

    def stop(self) -> None:
        """End the process."""
        if self.pool is not None:
            _stop(self.pool)
        self.pool = None


class LocalExecutor:
    """Worker processes on this machine that live across tasks, one thread each.

    A worker that is killed costs its running task, which is tried once more with the cells that it had not finished; a
    task over its time costs itself. Workers exit when this process is gone.

    Args:
        jobs: Number of workers.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def run(self, tasks: Iterable[Task]) -> Iterator[Event]:
        """Run all tasks; see `Executor`."""
        waiting = collections.deque((task, 0) for task in tasks)
        modules = tuple(dict.fromkeys(task.study_module for task, _ in waiting))
        workers = [_Worker(modules) for _ in range(min(self.jobs, len(waiting)))]
        breaks = 0  # workers lost before they took their task, without one finished task since
        with _one_thread_each(), tempfile.TemporaryDirectory(prefix="paperworks-") as folder:
            spools = (Path(folder) / f"{i}.jsonl" for i in itertools.count())
            try:
                while waiting or any(worker.running for worker in workers):
                    for worker in workers:
                        if waiting and worker.running is None:
                            worker.start(*waiting.popleft(), next(spools))
                    busy = [worker for worker in workers if worker.running]
                    wait([worker.future for worker in busy], timeout=_POLL, return_when=FIRST_COMPLETED)
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    for worker in busy:
                        assert worker.running is not None
                        ended = worker.future.done()  # asked before reading: then nothing is written afterwards
                        yield from worker.running.events()
                        if not ended:
                            continue
                        running, worker.running = worker.running, None
                        again = yield from _ended(worker.future, running)
                        if again is not None:
                            waiting.appendleft(again)
                        breaks = breaks + 1 if again and again[1] == running.losses else 0
                        if breaks > _BREAKS:
                            raise PaperworksError(
                                f"{breaks} worker processes in a row were killed before they took a task (is memory "
                                "short?); what is in the ledger stays there"
                            )
            finally:
                for worker in workers:
                    worker.stop()


def _ended(future: Any, slot: _Running) -> Generator[Event, None, tuple[Task, int] | None]:
    """Say how a task ended; returns the task to run again, with its losses so far, or None."""
    from concurrent.futures.process import BrokenProcessPool

    from pebble import ProcessExpired

    error = future.exception()
    if error is None and slot.task.build:
        slot.seen.add(-1)
    left = slot.left()
    lost = isinstance(error, ProcessExpired | BrokenProcessPool)
    started = slot.spool.exists()
    if lost and left and (not started or slot.losses < _RETRIES):
        return _remaining(slot), slot.losses + started
    for index in left:
        if isinstance(error, TimeoutError):
            status, reason = "timeout", f"not finished within {slot.task.timeout:g} s"
        elif lost:
            status, reason = "failed", f"its worker was killed {slot.losses + 1} times ({error})"
        else:
            status, reason = "failed", f"its worker ended without an outcome: {error!r}"
        line = {"cell": index, "status": status, "error": reason, "seconds": 0.0, "memory": 0.0}
        yield Event(slot.task, "cell", line)
    yield Event(slot.task, "end")
    return None


def _remaining(slot: _Running) -> Task:
    """The task with the cells that have no outcome yet."""
    if slot.task.build:
        return slot.task
    return dataclasses.replace(slot.task, cells=tuple(slot.task.cells[i] for i in slot.left()))


_MAIN_MODULE = threading.Lock()


class _SpawnProcess(SpawnProcess):
    """A spawned process that does not run the user's own script again, whether or not it has a main guard."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        # What a child prepares is read off the main module; a factory defined there travels by value (see worker.pack).
        with _MAIN_MODULE:  # each pool starts its process in a thread of its own
            main = sys.modules["__main__"]
            sys.modules["__main__"] = types.ModuleType("__main__")
            try:
                return SpawnProcess._Popen(process_obj)
            finally:
                sys.modules["__main__"] = main


class _SpawnContext(SpawnContext):
    Process = _SpawnProcess


def _start_pool(modules: tuple[str, ...]) -> Any:
    from pebble import ProcessPool

    with _interrupts_kept_from_children():
        pool = ProcessPool(
            max_workers=1,
            context=_SpawnContext(),
            initializer=start_worker,
            initargs=(os.getpid(), modules),
        )
        assert pool.active  # asking starts the pool's threads, which hand their signal mask to the worker
    return pool


def _stop(pool: Any) -> None:
    """End a pool and its workers, one that is only starting as well.

    The pool itself would take its locks away first, and a worker that is just being started would complain of that.
    """
    with contextlib.suppress(RuntimeError):
        pool.stop()
        for child in list(pool._pool_manager.worker_manager.workers.values()):
            child.kill()
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


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch, BLAS and OpenMP in this process, for what is computed or timed inline."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else 0
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(threads)


def local(jobs: int | None = None) -> LocalExecutor:
    """Workers on this machine, as many as it has cores unless told."""
    return LocalExecutor(jobs or available_cores())


def available_cores() -> int:
    """Cores that this process may use."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
