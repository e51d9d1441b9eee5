"""From tried cells to what verdicts are computed from: shipped evidence, the long table, derived metrics.

``evidence.jsonl`` in a paper's room has one JSON object a line: a "run" line, "outcome" lines that refer to it, and
"curve" lines with mean and band. Nothing here imports a study.
"""

from __future__ import annotations

import collections
import dataclasses
import importlib.util
import json
import math
import os
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperworks.claims import fingerprint
from paperworks.claims.errors import PaperError, last_line
from paperworks.claims.ledger import Ledger, Row, RunInfo
from paperworks.claims.paper import Claim, Experiment, Paper
from paperworks.claims.verdict import Evidence, needed_cells

EVIDENCE_LIMIT = 300_000  # bytes a paper
CURVE_POINTS = 64
_FIXED = ("experiment", "version", "scale", "arm", "seed", "item", "metric", "value")


@dataclasses.dataclass(frozen=True)
class Record:
    """All tried cells from one source, with the runs they belong to.

    Attributes:
        source: "shipped" (the room's evidence.jsonl) or "yours" (a ledger).
        problems: Lines of an evidence file that could not be read, each named.
        curves: The shipped curves, as (mean, low, high) on common steps.
    """

    source: str
    rows: Sequence[Row]
    runs: Mapping[str, RunInfo]
    problems: Sequence[str] = ()
    curves: Sequence[Mapping[str, Any]] = ()


def shipped(folder: Path) -> Record:
    """What the room's ``evidence.jsonl`` holds; lines that are not sound are named and left out."""
    path = folder / "evidence.jsonl"
    rows: list[Row] = []
    runs: dict[str, RunInfo] = {}
    curves: list[Mapping[str, Any]] = []
    problems = []
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line, parse_constant=_no_constant)
            kind = content.pop("line")
            if kind == "run":
                run = RunInfo(**content)
                _sound(run, _RUN)
                runs[run.id] = run
            elif kind == "outcome":
                row = Row(paper=folder.name, key="", **content)
                _sound(row, _OUTCOME)
                if row.run not in runs:
                    raise ValueError(f"no line above describes run {row.run!r}")
                rows.append(row)
            elif kind == "curve":
                if len({len(content[name]) for name in ("step", "mean", "low", "high")}) > 1:
                    raise ValueError("step, mean, low and high differ in length")
                curves.append(content)
            else:
                raise ValueError(f"unknown line {kind!r}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(f"{path.name}, line {number}: {type(error).__name__}: {error}")
    return Record("shipped", rows, runs, problems, curves)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no finite number")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _table(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _scalar(value: Any) -> bool:
    return isinstance(value, str | bool) or _number(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_RUN: Mapping[str, Callable[[Any], bool]] = {
    "id": _text,
    "code": _text,
    "statements": _table(_text),
    "environment": _table(lambda _: True),
}
_OUTCOME: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("experiment", "scale", "arm", "run", "error"), _text),
    **dict.fromkeys(("version", "seed"), _whole),
    **dict.fromkeys(("level", "knobs"), _table(_scalar)),
    **dict.fromkeys(("seconds", "memory"), _number),
    "kind": lambda value: value in ("trial", "tune"),
    "status": lambda value: value in ("ok", "failed", "timeout"),
    "metrics": _table(_number),
    "items": _table(_table(_number)),
    "figures": _table(_text),
    "custom": lambda value: value == {},
    "curves": lambda value: value == {},
}


def _sound(line: Any, checks: Mapping[str, Callable[[Any], bool]]) -> None:
    """Raise ValueError for a value that cannot stand in a line of its kind."""
    for name, check in checks.items():
        value = getattr(line, name)
        if not check(value):
            raise ValueError(f"{name} = {str(value)[:80]!r} is not sound")


def recorded(ledger: Ledger, paper: str, scale: str | None = None, *, drawings: bool = False) -> Record:
    """What a ledger holds of a paper."""
    return Record("yours", ledger.rows(paper, scale, drawings=drawings), ledger.runs(paper))


def current(paper: Paper, record: Record, scale: str) -> list[Row]:
    """The trials at one scale that are comparable: of the current versions, and without changed settings.

    A cell that was run with several configurations (a study edited without moving its version) counts once, as it was
    run last. Of an arm of the reader's own only what was run last counts: the outcomes of an earlier method or code of
    that name belong to another method.
    """
    latest: dict[str, tuple[float, Any]] = {}
    for row in record.rows:
        if row.scale == scale and "arm" in row.custom and row.finished >= latest.get(row.arm, (-math.inf, None))[0]:
            latest[row.arm] = (row.finished, _method(row))
    versions = {name: experiment.version for name, experiment in paper.experiment.items()}
    newest: dict[tuple[Any, ...], Row] = {}
    for row in record.rows:
        if (
            row.scale == scale
            and row.kind == "trial"
            and versions.get(row.experiment) == row.version
            and "set" not in row.custom
            and ("arm" not in row.custom or _method(row) == latest[row.arm][1])
        ):
            cell = (row.experiment, row.arm, tuple(sorted(row.level.items())), row.seed)
            if cell not in newest or row.finished >= newest[cell].finished:
                newest[cell] = row
    return list(newest.values())


def only(record: Record, methods: Mapping[str, tuple[Any, Any]]) -> Record:
    """The record without what other methods or code of the same names have left in it."""
    rows = [r for r in record.rows if "arm" not in r.custom or methods.get(r.arm, _method(r)) == _method(r)]
    return dataclasses.replace(record, rows=rows)


def others(record: Record, own: str, method: tuple[Any, Any]) -> list[str]:
    """Factories of an own arm's name that the record holds beside the method that is judged, in their order."""
    found = dict.fromkeys(_method(r) for r in record.rows if r.arm == own and "arm" in r.custom)
    return list(dict.fromkeys(str(name) for name, code in found if (name, code) != method))


def _method(row: Row) -> tuple[Any, Any]:
    return row.custom.get("arm"), row.custom.get("code")


def long_table(paper: Paper, folder: Path, rows: Iterable[Row]) -> pd.DataFrame:
    """One row a metric (and item), derived metrics included.

    Columns: experiment, version, scale, arm, each level axis, seed, item, metric, value.
    """
    by_experiment: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        if row.status == "ok":
            by_experiment[row.experiment].append(row)
    parts = []
    for name, found in by_experiment.items():
        table = _measured(found, tuple(paper.experiment[name].level))
        parts.append(table)
        derived = _derived(paper.experiment[name], name, folder, table)
        if derived is not None:
            parts.append(derived)
    if not parts:
        return pd.DataFrame(columns=list(_FIXED))
    return pd.concat(parts, ignore_index=True)


def _measured(rows: Sequence[Row], axes: tuple[str, ...]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {name: [] for name in (*_FIXED, *axes)}

    def add(row: Row, item: str | None, metric: str, value: float) -> None:
        fixed = (row.experiment, row.version, row.scale, row.arm, row.seed, item, metric, value)
        for name, entry in zip(_FIXED, fixed, strict=True):
            columns[name].append(entry)
        for axis in axes:
            columns[axis].append(row.level.get(axis))

    for row in rows:
        for metric, value in row.metrics.items():
            add(row, None, metric, value)
        for metric, scores in row.items.items():
            for item, value in scores.items():
                add(row, item, metric, value)
    return pd.DataFrame(
        {name: pd.Series(v, dtype=object if name in (*axes, "item") else None) for name, v in columns.items()}
    )


def _derived(experiment: Experiment, name: str, folder: Path, table: pd.DataFrame) -> pd.DataFrame | None:
    """What the room's derive.py makes of one experiment's table, seed by seed."""
    declared = {metric for metric, m in experiment.metric.items() if m.derived}
    if not declared:
        return None
    where = f"{folder / 'derive.py'}: {name}"
    function = _derive_function(folder, name)
    given = table.drop(columns=["experiment", "version", "scale"])
    parts = []
    for seed, rows in given.groupby("seed", sort=True):
        try:
            made = function(rows.copy(), int(str(seed)))
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].lineno
            raise PaperError(
                f"{where} failed for seed {seed} with {type(error).__name__}: {error} (line {line}); for inputs that "
                "are missing it should return no row"
            ) from error
        if not isinstance(made, pd.DataFrame) or (len(made) and not {"arm", "metric", "value"} <= set(made.columns)):
            raise PaperError(f"{where} must return a table with columns arm, metric, value and its level axes")
        if len(made):
            parts.append(made.assign(seed=seed))
    if not parts:
        return None
    made = pd.concat(parts, ignore_index=True).assign(experiment=name, item=None)
    unknown = sorted(set(made["metric"]) - declared, key=str)
    if unknown:
        raise PaperError(f"{where} returned metric {unknown[0]!r}, which paper.toml does not declare")
    for metric in declared:
        axes = ["arm", *experiment.axes_of(metric), "seed"]
        own = made[made["metric"] == metric]
        if len(own) and not set(axes) <= set(own.columns):
            raise PaperError(f"{where} returned {metric!r} without column {sorted(set(axes) - set(own.columns))[0]!r}")
        if len(own) and own.duplicated(axes).any():
            raise PaperError(f"{where} returned {metric!r} of one cell more than once")
    made = made[np.isfinite(made["value"].astype(float))]
    return made.assign(version=experiment.version, scale=table["scale"].iloc[0])


def _derive_function(folder: Path, name: str) -> Callable[[pd.DataFrame, int], pd.DataFrame]:
    path = folder / "derive.py"
    spec = importlib.util.spec_from_file_location(f"paperworks_derive_{folder.name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PaperError(f"{path} is missing, but paper.toml declares derived metrics of {name!r}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PaperError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        raise PaperError(f"{path} has no function {name!r}, but paper.toml declares derived metrics of that experiment")
    return getattr(module, name)  # type: ignore[no-any-return]


def own_arms(
    paper: Paper, record: Record, scale: str, seeds: Collection[int] | None = None
) -> dict[str, tuple[tuple[Any, Any], tuple[str, ...]]]:
    """The arms of a reader's own run at a scale: factory and code, and the arms in whose place each is judged.

    Only those count that were run on the seeds judged: the declared ones unless given.
    """
    found: dict[str, dict[str, None]] = {}
    methods = {}
    for row in current(paper, record, scale):
        experiment = paper.experiment[row.experiment]
        if "arm" not in row.custom or row.arm in experiment.arms or scale not in experiment.scale:
            continue
        if row.seed in (range(experiment.at(scale).seeds) if seeds is None else seeds):
            found.setdefault(row.arm, {}).update(dict.fromkeys(experiment.method))
            methods[row.arm] = _method(row)
    return {own: (methods[own], tuple(places)) for own, places in found.items()}


def stand_in(
    paper: Paper, folder: Path, record: Record, scale: str, own: str, arm: str, seeds: Collection[int] | None = None
) -> Evidence:
    """What is judged, by ``paper.standing_in(own, arm)``, of an arm of a reader's own in the place of the method's.

    `derive.py` knows the paper's arms alone, so the derived metrics are computed under the method's name.
    """
    places = {name for name, experiment in paper.experiment.items() if arm in experiment.method}
    rows = []
    for row in record.rows:
        if row.experiment not in places:
            rows.append(row)
        elif row.arm == own:
            rows.append(dataclasses.replace(row, arm=arm))
        elif row.arm != arm:
            rows.append(row)
    found = evidence_at(paper, folder, dataclasses.replace(record, rows=rows), scale, seeds)
    for table in (found.table, found.failed):
        if table is not None:
            table.loc[table["experiment"].isin(places) & (table["arm"] == arm), "arm"] = own
    return dataclasses.replace(found, statement_hashes={}, custom=frozenset({own}))


def evidence_at(
    paper: Paper, folder: Path, record: Record, scale: str, seeds: Collection[int] | None = None
) -> Evidence:
    """What the verdicts at one scale are computed from.

    Args:
        paper: The paper.
        folder: Its room.
        record: Where the outcomes come from.
        scale: The scale.
        seeds: The seeds that will be judged, when they are not the declared ones.
    """
    rows = current(paper, record, scale)
    hashes = {}
    used: set[str] = set()
    for claim in paper.claim:
        runs = {row.run for row in filter(_reads(paper, claim, scale, seeds), rows) if row.run in record.runs}
        used |= runs
        # A run that knew nothing of the claim was made before it was stated.
        hashes[claim.id] = frozenset(record.runs[run].statements.get(claim.id, "") for run in runs)
    seconds: dict[str, list[float]] = collections.defaultdict(list)
    for row in rows:
        if row.status == "ok":
            seconds[row.experiment].append(row.seconds)
    code = fingerprint.code_hash(folder)
    failed = [
        {
            "experiment": r.experiment,
            "arm": r.arm,
            **r.level,
            "seed": r.seed,
            "status": r.status,
            "error": last_line(r.error),
        }
        for r in rows
        if r.status != "ok"
    ]
    return Evidence(
        table=long_table(paper, folder, rows),
        source=record.source,
        statement_hashes={claim: values for claim, values in hashes.items() if values},
        failed=pd.DataFrame(failed) if failed else None,
        seconds={name: float(np.mean(values)) for name, values in seconds.items()},
        custom=frozenset(row.arm for row in rows if row.custom),
        code_changed=any(record.runs[run].code != code for run in used),
    )


def coverage(paper: Paper, claim: Claim, record: Record, scale: str) -> tuple[int, int]:
    """Of the cells that a claim reads on the declared seeds: how many were tried, and how many there are."""
    if not paper.runnable(claim, scale):
        return 0, 0
    cells = needed_cells(paper, claim, scale)
    needed = sum(len(found) * paper.experiment[name].at(scale).seeds for name, found in cells.items())
    return sum(map(_reads(paper, claim, scale, None), current(paper, record, scale))), needed


def _reads(paper: Paper, claim: Claim, scale: str, seeds: Collection[int] | None) -> Callable[[Row], bool]:
    """Whether a claim's verdict at a scale reads a row: one of its cells, at one of the seeds that are judged."""
    if not paper.runnable(claim, scale):
        return lambda row: False
    cells = needed_cells(paper, claim, scale)
    judged = {name: range(paper.experiment[name].at(scale).seeds) if seeds is None else seeds for name in cells}
    axes = {name: tuple(paper.experiment[name].level) for name in cells}

    def reads(row: Row) -> bool:
        name = row.experiment
        return (
            name in cells
            and row.seed in judged[name]
            and (row.arm, tuple(row.level.get(axis) for axis in axes[name])) in cells[name]
        )

    return reads


# --- export --------------------------------------------------------------------------------------------------------


def export(
    paper: Paper, folder: Path, record: Record, scales: Sequence[str] = ("laptop", "overnight")
) -> tuple[Path, int]:
    """Write the room's ``evidence.jsonl`` from a ledger: declared seeds, current versions, nothing custom.

    Returns:
        The file and the number of outcomes in it.

    Raises:
        PaperError: When there is nothing to export, or the file would be larger than 300 KB.
    """
    rows: list[Row] = []
    for scale in scales:
        run_at = {name: e for name, e in paper.experiment.items() if scale in e.scale}
        trials = [r for r in current(paper, record, scale) if r.experiment in run_at and not r.custom]
        rows += [r for r in trials if r.seed < run_at[r.experiment].at(scale).seeds]
        rows += [
            r
            for r in record.rows
            if (r.kind, r.scale) == ("tune", scale)
            and r.experiment in run_at
            and r.version == run_at[r.experiment].version
            and not r.custom
        ]
    if not rows:
        raise PaperError(f"the ledger has no outcomes of {paper.slug} at scale {' or '.join(scales)} to export")
    names = {run: f"r{i}" for i, run in enumerate(dict.fromkeys(row.run for row in rows), 1)}
    lines = [{"line": "run", **dataclasses.asdict(record.runs[run]), "id": short} for run, short in names.items()]
    for line in lines:  # where the ledger lay is nobody's business
        line["command"] = re.sub(r"\s--ledger[= ]\S+", "", line["command"])
    lines += [_outcome_line(row, names[row.run]) for row in rows]
    lines += _curve_lines(rows)
    text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
    if len(text.encode()) > EVIDENCE_LIMIT:
        raise PaperError(
            f"evidence of {paper.slug} would be {len(text.encode()) / 1000:.0f} KB; "
            f"at most {EVIDENCE_LIMIT // 1000} KB are shipped"
        )
    path = folder / "evidence.jsonl"
    partial = path.with_name("evidence.jsonl.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise PaperError(f"cannot write {path}: {error.strerror or error}") from None
    return path, len(rows)


def _outcome_line(row: Row, run: str) -> dict[str, Any]:
    line: dict[str, Any] = {"line": "outcome", "run": run}
    defaults = Row(key="", paper="", experiment="", version=0, scale="", arm="", level={}, seed=0)
    for name in (
        "experiment",
        "version",
        "scale",
        "arm",
        "level",
        "seed",
        "kind",
        "knobs",
        "status",
        "metrics",
        "items",
        "figures",
    ):
        value = getattr(row, name)
        if name in ("experiment", "version", "scale", "arm", "level", "seed") or value != getattr(defaults, name):
            line[name] = value
    if row.status != "ok":
        line["error"] = last_line(row.error)
    return line | {"seconds": round(row.seconds, 3), "memory": round(row.memory, 1)}


def _curve_lines(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Mean and 95 % band of the mean over seeds, on 64 common steps."""
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        if row.kind == "trial" and row.status == "ok":
            groups[json.dumps([row.experiment, row.version, row.scale, row.arm, row.level], sort_keys=True)].append(row)
    lines = []
    for key, found in groups.items():
        experiment, version, scale, arm, level = json.loads(key)
        for name in dict.fromkeys(name for row in found for name in row.curves):
            band = curve_band([row.curves[name] for row in found if row.curves.get(name)])
            lines.append(
                {
                    "line": "curve",
                    "experiment": experiment,
                    "version": version,
                    "scale": scale,
                    "arm": arm,
                    "level": level,
                    "name": name,
                    **band,
                }
            )
    return lines


def curve_band(curves: Sequence[Sequence[tuple[float, float]]]) -> dict[str, list[float]]:
    """Curves of several seeds as mean and 95 % band of the mean.

    Args:
        curves: For each seed its (step, value) points, steps ascending.

    Returns:
        "step", "mean", "low" and "high", at most 64 points on the range that all seeds share.
    """
    from scipy.special import stdtrit

    low, high = max(c[0][0] for c in curves), min(c[-1][0] for c in curves)
    longest = max(curves, key=len)
    own = [step for step, _ in longest if low <= step <= high]
    steps = np.array(own) if len(own) <= CURVE_POINTS else np.linspace(low, high, CURVE_POINTS)
    values = np.stack([np.interp(steps, [step for step, _ in c], [value for _, value in c]) for c in curves])
    mean = values.mean(axis=0)
    n = len(curves)
    half = values.std(axis=0, ddof=1) / np.sqrt(n) * stdtrit(n - 1, 0.975) if n > 1 else np.zeros_like(mean)
    named = {"step": steps, "mean": mean, "low": mean - half, "high": mean + half}
    return {name: [float(f"{v:.4g}") for v in array] for name, array in named.items()}
