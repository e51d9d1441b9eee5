"""What runs inside a worker process: one task, its outcomes and progress appended to the task's own spool file.

A spool file has one JSON object a line. Because an outcome is in the file as soon as its cell is finished, killing the
worker later loses only the cells that were not finished.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from paperworks.claims.errors import PaperError, PaperworksError, UsageError
from paperworks.claims.study import Cell, Factory, Outcome, Prepared, Study, Trial, seed_globals

PROGRESS_EVERY = 0.2  # seconds


@dataclasses.dataclass(frozen=True)
class Task:
    """One call of a study's function, as plain data that can travel to any worker.

    Attributes:
        module: Dotted name of the room's package.
        cells: The cells to compute; several only when the experiment is joint.
        config: JSON of the configuration.
        arms: For arms that are not the study's own: name to "pkg:factory", to "=other" for another arm's factory, or to
            a factory as `pack` made it ready to travel.
        metrics: The metrics each outcome must have, no more and no fewer; ``curves`` likewise (at most).
        timeout: Seconds for the whole call.
        build: Name of a `prepared` artefact to build instead of computing cells.
    """

    id: int
    paper: str
    module: str
    experiment: str
    version: int
    scale: str
    cells: tuple[Cell, ...]
    config: str
    arms: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    timeout: float = 600.0
    gpus: float = 0.0
    build: str = ""
    prepared: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    @property
    def study_module(self) -> str:
        """Dotted name of the room's study."""
        return f"{self.module}.study"


class Spool:
    """Writes a task's lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = 0.0

    def write(self, **line: Any) -> None:
        """Append one line, whole."""
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def progress(self, done: int, total: int) -> None:
        """Append how far the task is, a few times a second at most."""
        now = time.monotonic()
        if now - self._last >= PROGRESS_EVERY:
            self._last = now
            self.write(done=done, total=total)


def start_worker(driver: int, modules: tuple[str, ...]) -> None:
    """Prepare a fresh worker: it exits with its driver, leaves Ctrl-C to it, and has imported the studies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(driver,), daemon=True).start()
    for module in modules:
        with contextlib.suppress(Exception):  # raised again, and recorded, by the trial that needs it
            importlib.import_module(module)
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def _exit_with(driver: int) -> None:
    while os.getppid() == driver:
        time.sleep(0.25)
    os._exit(1)


def run_task(task: Task, spool_path: str) -> None:
    """Compute a task; everything it has to say goes into the spool file."""
    with open(spool_path, "a", encoding="utf-8") as stream:
        spool = Spool(stream)
        todo = {i for i in range(len(task.cells))}
        started = time.perf_counter()
        _reset_peak_memory()
        try:
            results = _build(task) if task.build else _outcomes(task, spool)
            for cell, outcome in results:
                index = task.cells.index(cell)
                now = time.perf_counter()
                spool.write(
                    cell=index,
                    status="ok",
                    metrics=outcome.metrics,
                    items=outcome.items,
                    curves=outcome.curves,
                    figures=outcome.figures,
                    seconds=now - started,
                    memory=_peak_memory(),
                )
                todo.discard(index)
                started = now
            if todo:
                raise PaperError(f"the study returned no outcome for {task.cells[min(todo)]}")
        except (Exception, SystemExit) as error:  # a library that calls exit() must not take the worker with it
            # A factory of the user's own that is not there, or cannot be called so, is a wrong command.
            if isinstance(error, UsageError) and task.arms.keys() & {cell.arm for cell in task.cells}:
                spool.write(cell=min(todo), refused=str(error))
                return
            for index in sorted(todo) or ([-1] if task.build else []):
                spool.write(
                    cell=index,
                    status="failed",
                    error="".join(traceback.format_exception(error)),
                    seconds=time.perf_counter() - started,
                    memory=_peak_memory(),
                )


def _outcomes(task: Task, spool: Spool) -> Iterator[tuple[Cell, Outcome]]:
    study = find_study(task.study_module, task.experiment)
    origin = (task.paper, task.experiment, task.version)
    # Nothing should draw from the global generators outside trial.seeded(...); if it does, it must not see what the
    # trial before left behind.
    seed_globals(0)
    trial = Trial(
        origin=origin,
        cells=task.cells,
        scale=task.scale,
        config=type(study.config[task.scale]).model_validate_json(task.config),
        arms=resolve_arms(study, task.arms),
        prepared=(lambda name, seed: _prepared_folder(task, name, seed)) if study.prepared else None,
        on_progress=spool.progress,
        gpus=task.gpus,
    )
    result: Any = study.function(trial)
    pairs = [(task.cells[0], result)] if isinstance(result, Outcome) else result
    if not isinstance(pairs, Iterable) or isinstance(pairs, Mapping):
        raise PaperError(
            f"{task.experiment} returned a {type(result).__name__}; it must return an Outcome, or yield (cell, Outcome)"
        )
    yielded: set[Cell] = set()
    for cell, outcome in pairs:
        if cell in yielded or cell not in task.cells:
            how = "twice" if cell in yielded else "although it is none of trial.cells"
            raise PaperError(f"{task.experiment} yielded an outcome for {cell} {how}")
        yielded.add(cell)
        finished = trial.finish(cell, outcome)
        _check_names(task, finished)
        yield cell, finished


def _check_names(task: Task, outcome: Outcome) -> None:
    measured = {**outcome.metrics, **outcome.items}
    for what, got, allowed in (("metric", measured, task.metrics), ("curve", outcome.curves, task.curves)):
        extra = sorted(set(got) - set(allowed), key=str)
        if extra:
            raise PaperError(f"{task.experiment} returned {what} {extra[0]!r}, which its paper.toml does not declare")
    missing = sorted(set(task.metrics) - set(measured))
    if missing:
        raise PaperError(f"{task.experiment} returned no metric {missing[0]!r}, which its paper.toml declares")


def _prepared_folder(task: Task, name: str, seed: int | None) -> Path:
    if name not in task.prepared:
        raise PaperError(f"{task.experiment} opens prepared artefact {name!r}, which its @experiment does not list")
    folders = task.prepared[name]
    if "" in folders:
        return Path(folders[""])
    if seed is None:
        raise PaperError(f"prepared artefact {name!r} is one a seed: say which cell of this joint call is meant")
    return Path(folders[str(seed)])


def _build(task: Task) -> Iterator[tuple[Cell, Outcome]]:
    from paperworks.claims.artefacts import build

    builder = find_prepared(task.study_module, task.build)
    for seed, folder in task.prepared[task.build].items():
        build(builder, task.paper, task.scale, int(seed) if seed else None, Path(folder))
    return iter(())


def load_study(module: str) -> Any:
    """Import a room's study.

    Raises:
        UsageError: When a package is missing; it says which extra to install.
        PaperError: When there is no study.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise PaperError(
                f"{module.removesuffix('.study')} has no study.py: its experiments cannot be run"
            ) from None
        raise UsageError(f"{module} needs {error.name!r}, which is not installed: see `paperworks doctor`") from None
    except PaperworksError:
        raise
    except ImportError as error:  # a room's own line on a missing extra
        raise UsageError(f"{module}: {error}") from None
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        line = f"{where.filename}, line {where.lineno}: " if not isinstance(error, SyntaxError) else ""
        raise PaperError(f"{module} cannot be imported: {line}{type(error).__name__}: {error}") from error


def find_study(module: str, experiment: str) -> Study:
    """The study function of an experiment."""
    for value in vars(load_study(module)).values():
        if isinstance(value, Study) and value.name == experiment:
            return value
    raise PaperError(f"{module} has no @experiment({experiment!r}), which paper.toml names")


def find_prepared(module: str, name: str) -> Prepared:
    """The builder of a prepared artefact."""
    for value in vars(load_study(module)).values():
        if isinstance(value, Prepared) and value.name == name:
            return value
    raise PaperError(f"{module} has no @prepared({name!r}), which an @experiment lists")


def resolve_arms(study: Study, replaced: Mapping[str, Any]) -> dict[str, Factory]:
    """The study's factories with the user's own in their places."""
    arms = dict(study.arms)
    for name, reference in replaced.items():
        if isinstance(reference, bytes):
            arms[name] = pickle.loads(reference)
        elif reference.startswith("="):
            arms[name] = study.arms[reference[1:]]
        else:
            arms[name] = import_factory(reference)
    return arms


def pack(factory: Any) -> Any:
    """A factory so that it can travel to a worker: one that a notebook or script defines goes there by value.

    Raises:
        UsageError: When it holds something that cannot travel, such as an open file.
    """
    if isinstance(factory, str):
        return factory
    if not callable(factory):
        raise UsageError(f"an arm of your own must be a factory or 'package.module:factory', got {factory!r}")
    import cloudpickle

    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise UsageError(f"factory {factory!r} cannot be sent to a worker: {error}; define it in a module") from None


def import_factory(reference: str) -> Factory:
    """Import ``pkg.module:attribute``, looking in the current folder too.

    Raises:
        UsageError: Naming the reference and what is wrong with it.
    """
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise UsageError(f"--arm {reference!r}: write it as package.module:factory")
    if "/" in module or module.startswith(".") or module.endswith(".py"):
        raise UsageError(f"--arm {reference!r}: write the module's name, not its file: {Path(module).stem}:{attribute}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--arm {reference!r}: {error}") from None
    except Exception as error:
        raise UsageError(f"--arm {reference!r}: {module} cannot be imported: {type(error).__name__}: {error}") from None
    if not callable(value):
        raise UsageError(f"--arm {reference!r} is a {type(value).__name__}; a factory must be callable")
    return value  # type: ignore[no-any-return]


def _reset_peak_memory() -> None:
    with contextlib.suppress(OSError):  # Linux only; elsewhere the peak is that of the worker's whole life
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> float:
    """Peak resident memory in MiB."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    with contextlib.suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
    return 0.0  # Windows
