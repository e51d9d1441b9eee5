"""Plans the cells of a run, skips those that the ledger has, runs the rest and writes down what becomes of them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from paperworks.claims import artefacts, catalog, fingerprint
from paperworks.claims.errors import PaperError, PaperworksError, UsageError, did_you_mean, last_line, place
from paperworks.claims.executors import Event, Executor, local
from paperworks.claims.ledger import Ledger, Row, RunInfo
from paperworks.claims.paper import SCALES, Claim, Experiment, LevelValue, Paper, Statement, grid, load_paper
from paperworks.claims.study import Cell, ExperimentConfig, Study
from paperworks.claims.worker import Task, find_prepared, find_study, import_factory, load_study, pack


@dataclasses.dataclass(frozen=True)
class Request:
    """What a user asks to be run.

    Attributes:
        targets: "paper", "paper.claim" or "paper.experiment".
        scale: The scale to run at.
        seeds: Seeds to run instead of the scale's own.
        arms: Arms to run instead of all (name to None), and own ones ("name" to "pkg:factory" or a factory).
        settings: Configuration fields to change ("field" or "experiment.field" to a value).
        again: Run also what the ledger has.
        placebo: Arms given another arm's factory under their own names, for the contract's check.
    """

    targets: tuple[str, ...]
    scale: str = "laptop"
    seeds: tuple[int, ...] | None = None
    arms: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    again: bool = False
    placebo: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        """The arms whose factory is not the study's: a factory, "pkg:factory", or "=arm" for another arm's."""
        given = {arm: factory for arm, factory in self.arms.items() if factory is not None}
        return given | {arm: f"={other}" for arm, other in self.placebo.items()}


@dataclasses.dataclass(frozen=True)
class Work:
    """One cell of a plan with all that decides its outcome."""

    experiment: str
    cell: Cell
    config: ExperimentConfig
    custom: Mapping[str, Any]
    key: str


Method = tuple[Any, Any]  # an own arm's factory by name, and the fingerprint of its code


@dataclasses.dataclass
class Report:
    """What a run did."""

    ran: int = 0
    skipped: int = 0
    failed: list[Row] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    keys: list[str] = dataclasses.field(default_factory=list)  # of all cells asked for, run or skipped
    methods: dict[str, Method] = dataclasses.field(default_factory=dict)  # the reader's own arms, as they are now


class Listener(Protocol):
    """Hears what a run does, for progress bars and other sinks."""

    def started(self, stage: str, total: int, skipped: int) -> None:
        """A stage begins: so many cells to do, so many in the ledger already."""

    def progress(self, task: Task, done: int, total: int) -> None:
        """A task says how far it is."""

    def finished(self, row: Row) -> None:
        """A cell was tried."""

    def ended(self, task: Task) -> None:
        """A task is over."""


class Silent:
    """A listener that does nothing."""

    def started(self, stage: str, total: int, skipped: int) -> None:
        """Ignore."""

    def progress(self, task: Task, done: int, total: int) -> None:
        """Ignore."""

    def finished(self, row: Row) -> None:
        """Ignore."""

    def ended(self, task: Task) -> None:
        """Ignore."""


# --- what to run ---------------------------------------------------------------------------------------------------


def resolve(target: str) -> tuple[catalog.Room, Paper, list[str], Claim | None]:
    """The paper, experiments and claim that a target names."""
    slug, _, part = target.partition(".")
    room = catalog.find(slug)
    paper = load_paper(room.folder)
    if not part:
        return room, paper, list(paper.experiment), None
    if part in paper.claims:
        return room, paper, [], paper.claims[part]
    if part in paper.experiment:
        return room, paper, [part], None
    known = [*paper.claims, *paper.experiment]
    raise UsageError(
        f"{slug} has no claim or experiment {part!r}{did_you_mean(part, known)}; it has {', '.join(known)}"
    )


def cells_of_statement(statement: Statement, experiment: Experiment, seeds: Iterable[int]) -> list[Cell]:
    """The cells that a statement reads."""
    metric = experiment.metric[statement.metric]
    chosen = statement.selection(experiment)
    levels = {axis: chosen.get(axis, values) for axis, values in experiment.level.items()}
    arms = tuple(dict.fromkeys((*statement.arms, *metric.needs)))
    return [Cell(arm, level, seed) for seed in seeds for level in grid(levels) for arm in arms]


def cells_of_experiment(experiment: Experiment, scale: str, seeds: Iterable[int]) -> list[Cell]:
    """All cells of an experiment at a scale."""
    levels, arms = experiment.levels_at(scale), experiment.arms_at(scale)
    return [Cell(arm, level, seed) for seed in seeds for level in grid(levels) for arm in arms]


def _wanted(request: Request, target: str) -> tuple[catalog.Room, Paper, dict[str, list[Cell]]]:
    """The cells of one target, by experiment, in an order in which whole seeds are finished first."""
    room, paper, experiments, claim = resolve(target)
    scale = request.scale
    if scale not in SCALES:
        raise UsageError(f"--scale {scale!r} is not one of {', '.join(SCALES)}")
    found: dict[str, list[Cell]] = {}
    if claim is not None:
        if not any(paper.runnable(claim, s) for s in paper.scales_of(claim)) and scale != "smoke":
            note = f": {claim.note}" if claim.note else ""
            raise UsageError(f"{target} is about the paper's own setting, which nothing here runs{note}")
        if scale != "smoke" and scale not in paper.scales_of(claim):
            raise UsageError(
                f"{target} is tested only at scale {' or '.join(paper.scales_of(claim)) or 'none yet'}, not {scale!r}"
            )
        if not paper.runnable(claim, scale):
            raise UsageError(f"{target} cannot be run at scale {scale!r}: {_runnable_hint(paper, claim)}")
        for statement in claim.statements():
            experiment = paper.experiment[statement.experiment]
            seeds = request.seeds if request.seeds is not None else range(experiment.at(scale).seeds)
            _add(found, statement.experiment, cells_of_statement(statement, experiment, seeds))
    for name in experiments:
        experiment = paper.experiment[name]
        if scale in experiment.scale:
            seeds = request.seeds if request.seeds is not None else range(experiment.at(scale).seeds)
            found[name] = cells_of_experiment(experiment, scale, seeds)
        elif len(experiments) == 1:
            raise UsageError(f"{target} has no scale {scale!r}; it has {', '.join(experiment.scale)}")
    if not found:
        raise UsageError(f"{target} has nothing to run at scale {scale!r}")
    return room, paper, found


def _add(cells: dict[str, list[Cell]], experiment: str, more: Iterable[Cell]) -> None:
    """Add cells that are not there yet."""
    cells[experiment] = list(dict.fromkeys((*cells.get(experiment, ()), *more)))


def _runnable_hint(paper: Paper, claim: Claim) -> str:
    scales = [s for s in SCALES if paper.runnable(claim, s)]
    return f"its arms and levels are run at {', '.join(scales)}" if scales else "no scale runs all its arms and levels"


def _with_arms(cells: Sequence[Cell], request: Request) -> list[Cell]:
    """The cells of the arms asked for; own ones come first within a seed, so that their mistakes show soon."""
    named = [arm for arm, factory in request.arms.items() if factory is None]
    own = [arm for arm, factory in request.arms.items() if factory is not None]
    found = list(dict.fromkeys(dataclasses.replace(cell, arm=arm) for arm in own for cell in cells))
    found += [cell for cell in cells if not named or cell.arm in named]
    return sorted(found, key=lambda cell: cell.seed)


def _check_arms(request: Request, paper: Paper, cells: Mapping[str, Sequence[Cell]]) -> None:
    """Raise UsageError for an arm that none of the experiments has, or that nothing asked for would run."""
    known = list(dict.fromkeys(arm for name in cells for arm in paper.experiment[name].arms))
    run = list(dict.fromkeys(cell.arm for found in cells.values() for cell in found))
    for arm in (arm for arm, factory in request.arms.items() if factory is None):
        if arm not in known:
            raise UsageError(
                f"--arm {arm!r} is not an arm of {', '.join(cells)}{did_you_mean(arm, known)}; known: "
                f"{', '.join(known)}; own ones are given as NAME=package.module:factory"
            )
        if arm not in run:
            raise UsageError(f"--arm {arm!r}: what is asked for runs only {', '.join(run)} at scale {request.scale!r}")
    for arm, factory in request.own.items():
        if arm in known and arm not in request.placebo:
            raise UsageError(
                f"--arm {arm}=...: {arm!r} is an arm of {', '.join(cells)}; give yours another name, as in mine=..."
            )
        if isinstance(factory, str) and factory.startswith("=") and factory[1:] not in known:
            raise UsageError(f"--arm {arm}={factory}: {factory[1:]!r} is not one of {', '.join(known)}")


# --- configurations ------------------------------------------------------------------------------------------------


def configured(
    studies: Mapping[str, Study], scale: str, settings: Mapping[str, Any]
) -> dict[str, tuple[ExperimentConfig, dict[str, Any]]]:
    """Each experiment's configuration with the user's settings, and which of them it took."""
    taken: set[str] = set()
    result = {}
    for name, study in studies.items():
        base = study.config[scale]
        changes: dict[str, Any] = {}
        for key, value in settings.items():
            owner, _, field = key.rpartition(".")
            if owner in ("", name) and field in type(base).model_fields:
                changes[field] = value
                taken.add(key)
        try:
            config = type(base).model_validate({**base.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise UsageError(f"--set {field}={first.get('input')!r}: {first['msg']}") from None
        # A setting that changes nothing must not keep the study's own outcomes from being judged.
        result[name] = (
            config,
            {field: v for field, v in changes.items() if getattr(config, field) != getattr(base, field)},
        )
    for key in settings:
        if key not in taken:
            known = sorted({f for s in studies.values() for f in type(s.config[scale]).model_fields})
            raise UsageError(
                f"--set {key!r} is not a setting of {', '.join(studies)}{did_you_mean(key, known)}; "
                f"known: {', '.join(known)}"
            )
    return result


def check_study(experiment: Experiment, study: Study, where: str) -> None:
    """Raise PaperError where study.py and paper.toml do not name the same arms and scales."""
    named = f"@experiment({study.name!r})"
    for what, declared, given in (("arms", experiment.arms, study.arms), ("scale", experiment.scale, study.config)):
        missing = sorted(set(declared) - set(given))
        if missing:
            raise PaperError(f"{where}: paper.toml names {what} {missing[0]!r}, which {named} has not")
    extra = sorted(set(study.arms) - set(experiment.arms))
    if extra:
        raise PaperError(f"{where}: {named} has arm {extra[0]!r}, which paper.toml does not name")
    if study.tuning is None:
        return
    measured = [name for name, metric in experiment.metric.items() if not metric.derived]
    if study.tuning.metric not in measured:
        raise PaperError(
            f"{where}: @tune of {study.name!r} by {study.tuning.metric!r}, not one of {', '.join(measured)}"
        )
    judged = max(scale.seeds for scale in experiment.scale.values())
    shared = sorted(seed for seed in study.tuning.seeds if seed < judged)
    if shared:
        raise PaperError(
            f"{where}: @tune of {study.name!r} chooses on seed {shared[0]}, which is judged; take seeds from 100 on"
        )


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


# --- running -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Context:
    """One paper within a run."""

    room: catalog.Room
    paper: Paper
    request: Request
    studies: dict[str, Study]
    configs: dict[str, tuple[ExperimentConfig, dict[str, Any]]]
    artefact_folders: dict[str, dict[str, str]]
    own_arms: dict[str, Any]  # ready to travel
    own_code: dict[str, str]  # an own arm that was edited is run again
    info: RunInfo

    def work(self, experiment: str, cell: Cell) -> Work:
        config, changed = self.configs[experiment]
        custom: dict[str, Any] = {"set": changed} if changed else {}
        factory = self.request.own.get(cell.arm)
        if factory is not None:
            custom["arm"] = factory if isinstance(factory, str) else _name_of(factory)
            if cell.arm in self.own_code:
                custom["code"] = self.own_code[cell.arm]
        prepared = {
            name: self.artefact_folders[name].get(str(cell.seed), self.artefact_folders[name].get(""))
            for name in self.studies[experiment].prepared
        }
        key = _key(
            self.paper.slug,
            experiment,
            self.paper.experiment[experiment].version,
            self.request.scale,
            cell.to_dict(),
            config.model_dump(mode="json"),
            [custom["arm"], custom.get("code")] if "arm" in custom else None,
            {name: (folder or "").rpartition("/")[2] for name, folder in prepared.items()},
        )
        return Work(experiment, cell, config, custom, key)

    def info_with_artefacts(self) -> RunInfo:
        """The run's line with the content hash of every prepared artefact, once they are built."""
        hashes = {
            name: {seed: artefacts.recorded_hash(Path(folder)) for seed, folder in folders.items()}
            for name, folders in self.artefact_folders.items()
        }
        return dataclasses.replace(self.info, environment={**self.info.environment, "prepared": hashes})

    def task(self, number: int, group: Sequence[Work]) -> Task:
        first = group[0]
        experiment = self.paper.experiment[first.experiment]
        return Task(
            id=number,
            paper=self.paper.slug,
            module=self.room.module,
            experiment=first.experiment,
            version=experiment.version,
            scale=self.request.scale,
            cells=tuple(work.cell for work in group),
            config=first.config.model_dump_json(),
            arms=self.own_arms,
            metrics=tuple(name for name, metric in experiment.metric.items() if not metric.derived),
            curves=tuple(experiment.curve),
            timeout=experiment.timeout * len(group),
            gpus=experiment.at(self.request.scale).gpus,
            prepared={name: self.artefact_folders[name] for name in self.studies[first.experiment].prepared},
        )


def run(
    request: Request,
    ledger: Ledger,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    backend: str = "local",
    command: str = "",
    listener: Listener | None = None,
) -> Report:
    """Run what is asked for and is not in the ledger.

    Args:
        request: What to run.
        ledger: Where outcomes are kept; every finished cell is there as soon as it is finished.
        executor: Where tasks run; workers on this machine unless given.
        jobs: Number of workers for the local executor.
        backend: Name of the executor, kept with the run.
        command: The command line, kept with the run.
        listener: Hears of progress.

    Returns:
        How many cells were run and skipped, and those that failed. A failed cell is recorded and does not stop others.
    """
    started = time.perf_counter()
    executor = executor or local(jobs)
    listener = listener or Silent()
    report = Report()
    for room, paper, cells in _merged(request):
        _check_arms(request, paper, cells)
        context = _context(request, room, paper, cells, executor, jobs or 0, backend, command)
        planned = {name: _with_arms(found, request) for name, found in cells.items()}
        _prepare(context, executor, listener)
        ledger.start_run(context.info_with_artefacts())
        tuned = _tune(context, planned, ledger, executor, listener, report)
        _execute(context, "trial", tuned, ledger, executor, listener, report)
    report.seconds = time.perf_counter() - started
    return report


def _merged(request: Request) -> list[tuple[catalog.Room, Paper, dict[str, list[Cell]]]]:
    """One entry a paper, although several targets may name it."""
    by_paper: dict[str, tuple[catalog.Room, Paper, dict[str, list[Cell]]]] = {}
    for target in request.targets:
        room, paper, cells = _wanted(request, target)
        entry = by_paper.setdefault(room.slug, (room, paper, {}))
        for name, found in cells.items():
            _add(entry[2], name, found)
    return list(by_paper.values())


def _context(
    request: Request,
    room: catalog.Room,
    paper: Paper,
    cells: Mapping[str, Sequence[Cell]],
    executor: Executor,
    jobs: int,
    backend: str,
    command: str,
) -> _Context:
    module = f"{room.module}.study"
    own_arms = {arm: pack(factory) for arm, factory in request.own.items()}
    own_code = {
        arm: _code_of(factory)
        for arm, factory in request.own.items()
        if not (isinstance(factory, str) and factory.startswith("="))
    }
    load_study(module)
    studies = {name: find_study(module, name) for name in cells}
    for name, study in studies.items():
        check_study(paper.experiment[name], study, str(room.folder / "study.py"))
        tuned_on = sorted(set(study.tuning.seeds if study.tuning else ()) & set(request.seeds or ()))
        if tuned_on:
            raise UsageError(f"--seeds: {name} chooses its knobs on seed {tuned_on[0]}; take seeds that are fresh")
    folders: dict[str, dict[str, str]] = {}
    for name, study in studies.items():
        for wanted in study.prepared:
            builder = find_prepared(module, wanted)
            used = {cell.seed for cell in cells[name]} | set(study.tuning.seeds if study.tuning else ())
            seeds = [None] if builder.scope == "once" else sorted(used)
            paths = {
                ("" if s is None else str(s)): artefacts.folder_of(builder, room.slug, request.scale, s) for s in seeds
            }
            folders.setdefault(wanted, {}).update({seed: path.as_posix() for seed, path in paths.items()})
    info = RunInfo(
        paper=room.slug,
        scale=request.scale,
        command=command,
        environment=fingerprint.environment(getattr(executor, "jobs", jobs), backend),
        statements={claim.id: paper.statement_hash(claim, request.scale) for claim in paper.claim},
        code=fingerprint.code_hash(room.folder),
    )
    configs = configured(studies, request.scale, request.settings)
    return _Context(room, paper, request, studies, configs, folders, own_arms, own_code, info)


def _name_of(factory: Any) -> str:
    """A factory as "module:name", a partial with what it fixes."""
    if isinstance(factory, functools.partial):
        fixed = [*map(repr, factory.args), *(f"{key}={value!r}" for key, value in sorted(factory.keywords.items()))]
        return f"{_name_of(factory.func)}({', '.join(fixed)})"
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def _code_of(factory: Any) -> str:
    """Fingerprint of the files in which an own arm's factory is named and defined, or of its source in a notebook."""
    made = import_factory(factory) if isinstance(factory, str) else factory
    while isinstance(made, functools.partial):
        made = made.func
    modules = [made.__module__, *([factory.partition(":")[0]] if isinstance(factory, str) else [])]
    files = [getattr(sys.modules.get(name), "__file__", None) for name in modules]
    parts = list(dict.fromkeys(fingerprint.file_hash(file) for file in files if file))
    if not all(files):
        try:
            source = inspect.getsource(made).encode()
        except (OSError, TypeError):
            source = pack(made)
        parts.append(hashlib.sha256(source).hexdigest()[:16])
    code = getattr(made, "__code__", None)
    if code is not None:  # two lambdas of one file have one name
        parts.append(hashlib.sha256(repr(list(code.co_positions())).encode()).hexdigest()[:8])
    return "-".join(parts)


def _prepare(context: _Context, executor: Executor, listener: Listener) -> None:
    """Build the artefacts that are not there yet, before any trial and at nobody's cost but their own."""
    tasks: list[Task] = []
    for name, folders in context.artefact_folders.items():
        builder = find_prepared(f"{context.room.module}.study", name)
        for seed, folder in folders.items():
            if not artefacts.ready(Path(folder)):
                tasks.append(
                    Task(
                        id=len(tasks),
                        paper=context.paper.slug,
                        module=context.room.module,
                        experiment=next(e for e, s in context.studies.items() if name in s.prepared),
                        version=builder.version,
                        scale=context.request.scale,
                        cells=(),
                        config="",
                        timeout=builder.timeout,
                        build=name,
                        prepared={name: {seed: folder}},
                    )
                )
    if not tasks:
        return
    listener.started("prepare", len(tasks), 0)
    for event in executor.run(tasks):
        if event.kind == "cell":
            raise PaperError(
                f"{context.paper.slug}: preparing {event.task.build!r} failed: {last_line(event.line['error'])}"
            )
        if event.kind == "progress":
            listener.progress(event.task, event.line["done"], event.line["total"])


def _tune(
    context: _Context,
    planned: Mapping[str, list[Cell]],
    ledger: Ledger,
    executor: Executor,
    listener: Listener,
    report: Report,
) -> dict[str, list[Cell]]:
    """Choose the knobs of every arm at every level, on the tuning seeds; returns the cells with their knobs."""
    result = {}
    for name, cells in planned.items():
        tuning = context.studies[name].tuning
        if tuning is None:
            result[name] = cells
            continue
        points = dict.fromkeys(Cell(c.arm, c.level, 0) for c in cells)
        knobs = list(grid({k: tuple(v) for k, v in tuning.knobs.items()}))
        candidates = [Cell(c.arm, c.level, seed, k) for seed in tuning.seeds for c in points for k in knobs]
        _execute(context, "tune", {name: candidates}, ledger, executor, listener, report)
        scores = {
            row.key: row.metrics[tuning.metric]
            for row in ledger.rows(context.paper.slug, context.request.scale, drawings=False)
            if row.status == "ok" and row.kind == "tune" and row.experiment == name
        }
        sign = 1 if tuning.better == "higher" else -1
        best: dict[Cell, Mapping[str, LevelValue]] = {}
        for cell in points:
            means = []
            for k in knobs:
                keys = [context.work(name, Cell(cell.arm, cell.level, seed, k)).key for seed in tuning.seeds]
                found = [scores[key] for key in keys if key in scores]
                means.append(sign * sum(found) / len(found) if len(found) == len(keys) else float("-inf"))
            if max(means) == float("-inf"):
                raise PaperError(
                    f"{context.paper.slug}.{name}: tuning of {cell.arm} failed for every knob; see the failed cells"
                )
            best[cell] = knobs[means.index(max(means))]
        result[name] = [dataclasses.replace(c, knobs=best[Cell(c.arm, c.level, 0)]) for c in cells]
    return result


def _execute(
    context: _Context,
    kind: str,
    planned: Mapping[str, Sequence[Cell]],
    ledger: Ledger,
    executor: Executor,
    listener: Listener,
    report: Report,
) -> None:
    work = [context.work(name, cell) for name, cells in planned.items() for cell in cells]
    present = set() if context.request.again else ledger.present(w.key for w in work)
    todo = [w for w in work if w.key not in present]
    report.skipped += len(work) - len(todo)
    if kind == "trial":
        report.keys += [w.key for w in work]
        report.methods |= {w.cell.arm: (w.custom["arm"], w.custom.get("code")) for w in work if "arm" in w.custom}
    proven: set[str] = set()
    listener.started(kind, len(todo), len(work) - len(todo))
    by_cell = {(w.experiment, w.cell): w for w in todo}
    tasks = [context.task(i, group) for i, group in enumerate(_groups(context.paper, todo))]
    for event in executor.run(tasks):
        if event.kind == "progress":
            listener.progress(event.task, event.line["done"], event.line["total"])
        elif "refused" in event.line:
            raise UsageError(event.line["refused"])
        elif event.kind == "cell":
            cell = event.task.cells[event.line["cell"]]
            row = _row(context, kind, by_cell[event.task.experiment, cell], event)
            ledger.record(row, again=context.request.again)
            report.ran += 1
            if row.status != "ok":
                report.failed.append(row)
            listener.finished(row)
            if row.status == "ok":
                proven.add(row.arm)
            elif "arm" in row.custom and row.arm not in proven and not context.request.placebo:
                _stop_at_first(row)
        else:
            listener.ended(event.task)


def _stop_at_first(row: Row) -> None:
    """A reader's own arm that fails in its first cell would fail in all: say why, at once."""
    where = f" ({found})" if (found := place(row.error)) else ""
    what = last_line(row.error) or row.status
    raise PaperworksError(
        f"arm {row.arm!r} failed in its first cell, {row.experiment}, seed {row.seed}: {what}{where}; no more was run"
    )


def _groups(paper: Paper, todo: Sequence[Work]) -> list[list[Work]]:
    """What one call computes: cells that differ in the experiment's joint axes only."""
    groups: dict[str, list[Work]] = {}
    for work in todo:
        joint = paper.experiment[work.experiment].joint
        apart = {
            k: v for k, v in {"arm": work.cell.arm, "seed": work.cell.seed, **work.cell.level}.items() if k not in joint
        }
        groups.setdefault(_key(work.experiment, apart, dict(work.cell.knobs)), []).append(work)
    return list(groups.values())


def _row(context: _Context, kind: str, work: Work, event: Event) -> Row:
    line = event.line
    return Row(
        key=work.key,
        paper=context.paper.slug,
        experiment=work.experiment,
        version=event.task.version,
        scale=context.request.scale,
        arm=work.cell.arm,
        level=work.cell.level,
        seed=work.cell.seed,
        kind=kind,
        knobs=work.cell.knobs,
        custom=work.custom,
        status=line["status"],
        metrics=line.get("metrics", {}),
        items=line.get("items", {}),
        curves=line.get("curves", {}),
        figures=line.get("figures", {}),
        seconds=line["seconds"],
        memory=line["memory"],
        error=line.get("error", ""),
        run=context.info.id,
    )
