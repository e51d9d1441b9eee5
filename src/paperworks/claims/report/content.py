"""What stands on a paper's page: verdicts, tables, curves and figures, gathered from paper.toml and evidence."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paperworks.claims import evidence, wording
from paperworks.claims.catalog import Room
from paperworks.claims.errors import last_line
from paperworks.claims.evidence import Record
from paperworks.claims.ledger import Row, RunInfo
from paperworks.claims.paper import SCALES, Claim, Experiment, Paper, grid
from paperworks.claims.report import drawing
from paperworks.claims.report.docstring import RoomText, public_names, read_room
from paperworks.claims.report.drawing import Curve, IntervalFigure
from paperworks.claims.report.speeds import Measured
from paperworks.claims.report.text import Names, csv_text, level_text, level_value
from paperworks.claims.verdict import Comparison, Finding, Verdict, compare

FIGURE_LIMIT = 24  # figures shown of one experiment and scale
FIGURE_BYTES = 400_000
PANELS_SHOWN = 8  # further panels of a curve are folded away
ROWS_SHOWN = 40  # longer tables are folded away
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]*>", re.IGNORECASE)  # the plain one that drawing libraries write
SHOWN_SCALES = tuple(scale for scale in SCALES if scale != "smoke")


@dataclasses.dataclass(frozen=True)
class ControlView:
    """A control with its words."""

    finding: Finding
    measured: str
    wanted: str


@dataclasses.dataclass(frozen=True)
class ClaimView:
    """A claim, what was found for it, and its drawing.

    Attributes:
        claim: The claim.
        verdict: Its verdict.
        anchor: Its id on the page.
        figure: The interval against the margin.
        data: The file with the unit values; empty when there are none.
        controls: Its controls.
        statement: What was fixed before the run, in words.
        metric: What the metric is.
        comparison: The reader's own run beside the shipped one.
        command: What runs it.
    """

    claim: Claim
    verdict: Verdict
    anchor: str
    figure: IntervalFigure | None
    data: str
    controls: tuple[ControlView, ...]
    statement: str
    metric: str
    comparison: Comparison | None
    command: str

    @property
    def interval_text(self) -> str:
        """Contrast and interval, as the sentence has them but always as a contrast."""
        v = self.verdict
        if v.effect is None:
            return ""
        if v.low is None or v.high is None:
            return wording.about(v.effect)
        shown = wording.numbers([v.effect, v.low, v.high], (v.high - v.low) / 2, [0.0, v.margin])
        return f"{shown[0]} [{shown[1]}, {shown[2]}]"


@dataclasses.dataclass(frozen=True)
class Cell:
    """Mean and spread over the seeds of one arm at one combination of levels."""

    n: int
    mean: float
    sd: float | None


@dataclasses.dataclass(frozen=True)
class LevelRow:
    """A row of the table of all levels: one combination of levels, one cell an arm."""

    level: str
    cells: tuple[tuple[str, str] | None, ...]  # mean and standard deviation as they are shown


@dataclasses.dataclass(frozen=True)
class LevelGroup:
    """All rows of one metric."""

    metric: str
    text: str
    rows: tuple[LevelRow, ...]


@dataclasses.dataclass(frozen=True)
class LevelTable:
    """All measured levels of one experiment at one scale."""

    experiment: str
    text: str
    scale: str
    source: str
    arms: tuple[str, ...]
    own_arms: tuple[str, ...]
    groups: tuple[LevelGroup, ...]
    seeds: str
    failed: tuple[str, ...]
    data: str

    @property
    def folded(self) -> bool:
        """Whether the table is too long to stand open."""
        return sum(len(group.rows) for group in self.groups) > ROWS_SHOWN


@dataclasses.dataclass(frozen=True)
class Panel:
    """One panel of a curve's small multiples."""

    title: str
    svg: str


@dataclasses.dataclass(frozen=True)
class CurveFigure:
    """A curve at all levels."""

    experiment: str
    scale: str
    source: str
    name: str
    text: str
    log: bool
    legend: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]
    data: str

    @property
    def shown(self) -> tuple[Panel, ...]:
        """Panels that stand open."""
        return self.panels[:PANELS_SHOWN]

    @property
    def more(self) -> tuple[Panel, ...]:
        """Panels folded away."""
        return self.panels[PANELS_SHOWN:]


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A figure that a study made. ``uri`` is empty when it was left out, and ``problem`` then says why."""

    name: str
    where: str
    uri: str
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class DrawingGroup:
    """The figures of one experiment at one scale."""

    experiment: str
    scale: str
    drawings: tuple[Drawing, ...]
    left_out: int


@dataclasses.dataclass(frozen=True)
class TunedRow:
    """What was tried for one arm before the trials, with which knobs."""

    experiment: str
    arm: str
    knobs: str
    seeds: str
    metrics: str


@dataclasses.dataclass(frozen=True)
class RunView:
    """A run that outcomes on the page come from."""

    date: str
    source: str
    scale: str
    command: str
    versions: str
    machine: str
    commit: str


@dataclasses.dataclass(frozen=True)
class PaperPage:
    """All that a paper's page shows, and the files that lie beside it.

    Attributes:
        room: Where the paper lives.
        paper: The paper.
        text: Its docstring.
        name: Name of its page's file, without ending, and of its folder of data.
        claims: Its claims.
        curves: Its curves.
        tables: All measured levels.
        drawings: Figures from outcomes.
        tuned: What was tuned beforehand.
        speeds: Speed targets with what was measured.
        runs: Runs that the outcomes come from.
        problems: Lines of the evidence that could not be read.
        usage: The lines of the example.
        files: Content of the data files by name.
    """

    room: Room
    paper: Paper
    text: RoomText
    name: str
    claims: tuple[ClaimView, ...]
    own_arms: tuple[OwnArm, ...]
    curves: tuple[CurveFigure, ...]
    tables: tuple[LevelTable, ...]
    drawings: tuple[DrawingGroup, ...]
    tuned: tuple[TunedRow, ...]
    speeds: tuple[tuple[str, str, float, str, Measured | None], ...]
    runs: tuple[RunView, ...]
    problems: tuple[str, ...]
    usage: str
    files: Mapping[str, str]

    @property
    def own(self) -> bool:
        """Whether it is part of this package, and not of another distribution."""
        return self.room.module.startswith("paperworks.")

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales at which a claim can be run here, the smallest first."""
        known = {scale for experiment in self.paper.experiment.values() for scale in experiment.scale}
        return tuple(scale for scale in SHOWN_SCALES if scale in known)

    @property
    def tests(self) -> tuple[str, ...]:
        """The kinds of test among its claims."""
        return tuple(
            kind for kind in ("direct", "reduced", "analogue") if any(c.claim.test == kind for c in self.claims)
        )

    @property
    def by_verdict(self) -> dict[str, list[ClaimView]]:
        """Its claims by verdict word, in the paper's order."""
        found: dict[str, list[ClaimView]] = {}
        for view in self.claims:
            found.setdefault(view.verdict.verdict, []).append(view)
        return found


@dataclasses.dataclass(frozen=True)
class OwnArm:
    """A reader's own arm in the place of one of the method's, and what the claims that read it say."""

    name: str
    place: str
    factory: str
    claims: tuple[ClaimView, ...]


@dataclasses.dataclass(frozen=True)
class _Source:
    """The rows of one experiment at one scale, from one record."""

    experiment: str
    scale: str
    record: Record
    rows: Sequence[Row]  # declared seeds, those not ok included

    @property
    def good(self) -> list[Row]:
        return [row for row in self.rows if row.status == "ok"]


def gather(
    room: Room,
    paper: Paper,
    verdicts: Sequence[Verdict],
    shipped_verdicts: Sequence[Verdict],
    shipped: Record | None,
    yours: Record | None,
    measured: Sequence[Measured],
    name: str,
    own: Sequence[Verdict] = (),
) -> PaperPage:
    """Gather a paper's page.

    Args:
        room: Where the paper lives.
        paper: The paper.
        verdicts: A verdict for each claim.
        shipped_verdicts: The verdicts on shipped evidence, to set a reader's own runs beside them.
        shipped: The room's evidence.
        yours: The reader's ledger.
        measured: Measured speed ratios of the paper.
        name: Name of the page.
        own: The verdicts on arms of the reader's own.
    """
    names = Names()
    files: dict[str, str] = {}
    sources = _sources(paper, shipped, yours)
    beside = {v.claim: v for v in shipped_verdicts}
    claims = tuple(_claim(paper, v, beside.get(v.claim), names, files) for v in verdicts)
    tables = tuple(_table(paper, room, source, names, files) for source in sources)
    curves = tuple(figure for source in sources for figure in _curves(paper, source, names, files))
    groups = (_drawings(source) for source in sources)
    ratios = {one.name: one for one in measured}
    text = read_room(room.folder)
    return PaperPage(
        room=room,
        paper=paper,
        text=text,
        name=name,
        claims=claims,
        own_arms=_own_arms(paper, own, yours, names, files),
        curves=curves,
        tables=tables,
        drawings=tuple(group for group in groups if group is not None),
        tuned=tuple(_tuned(paper, [r for r in (yours, shipped) if r is not None])),
        speeds=tuple((s.name, s.peer, s.target, s.note, ratios.get(s.name)) for s in paper.speed),
        runs=tuple(_runs(sources)),
        problems=tuple(shipped.problems) if shipped is not None else (),
        usage=text.example or _import_line(room),
        files=files,
    )


def _own_arms(
    paper: Paper, verdicts: Sequence[Verdict], yours: Record | None, names: Names, files: dict[str, str]
) -> tuple[OwnArm, ...]:
    factories = {row.arm: row.custom["arm"] for row in (yours.rows if yours else ()) if "arm" in row.custom}
    found = []
    for (own,), place in dict.fromkeys((v.custom, str(v.stands_for)) for v in verdicts):
        read = paper.standing_in(own, place)
        chosen = [v for v in verdicts if (v.custom, v.stands_for) == ((own,), place)]
        views = tuple(_claim(read, v, None, names, files, f"own-{own}-{place}-{v.claim}") for v in chosen)
        found.append(OwnArm(own, place, factories.get(own, ""), views))
    return tuple(found)


def _import_line(room: Room) -> str:
    names = public_names(room.folder)[:4]
    return f"from {room.module} import {', '.join(names)}" if names else f"import {room.module}"


def _sources(paper: Paper, shipped: Record | None, yours: Record | None) -> list[_Source]:
    """For each experiment and scale the reader's rows when all was run, else what the reader has and the shipped."""
    found = []
    for scale in SHOWN_SCALES:
        by_record = [
            (record, evidence.current(paper, record, scale)) for record in (yours, shipped) if record is not None
        ]
        for name, experiment in paper.experiment.items():
            if scale not in experiment.scale:
                continue
            seeds = experiment.at(scale).seeds
            levels = [tuple(level.items()) for level in grid(experiment.levels_at(scale))]
            whole = {(arm, level, s) for arm in experiment.arms_at(scale) for level in levels for s in range(seeds)}
            for record, rows in by_record:
                own = [row for row in rows if row.experiment == name and row.seed < seeds]
                if own:
                    found.append(_Source(name, scale, record, own))
                if whole <= {
                    (r.arm, tuple((axis, r.level.get(axis)) for axis in experiment.level), r.seed) for r in own
                }:
                    break
    order = list(paper.experiment)
    return sorted(found, key=lambda source: order.index(source.experiment))


# --- claims --------------------------------------------------------------------------------------------------------


def _claim(
    paper: Paper,
    verdict: Verdict,
    shipped: Verdict | None,
    names: Names,
    files: dict[str, str],
    anchor: str = "",
) -> ClaimView:
    claim = paper.claims[verdict.claim]
    anchor = anchor or f"claim-{claim.id}"
    controls = tuple(
        ControlView(
            control,
            wording.measured(control, paper.experiment[control.experiment]) if control.effect is not None else "",
            wording.wanted(control),
        )
        for control in verdict.controls
    )
    data = ""
    if verdict.values:
        data = f"{names.new(anchor)}.csv"
        files[data] = units_csv(verdict)
    comparison = None
    if verdict.evidence == "yours" and shipped is not None and shipped.evidence and shipped.scale == verdict.scale:
        comparison = compare(shipped, verdict)
    where = "" if verdict.scale == "laptop" else f" --scale {verdict.scale}"
    return ClaimView(
        claim=claim,
        verdict=verdict,
        anchor=anchor,
        figure=drawing.interval(verdict, anchor),
        data=data,
        controls=controls,
        statement=fixed(verdict, paper.experiment[verdict.experiment]),
        metric=paper.experiment[verdict.experiment].metric[verdict.metric].text,
        comparison=comparison,
        command=f"paperworks run {paper.slug}.{claim.id}{where}",
    )


def fixed(finding: Finding, experiment: Experiment) -> str:
    """What a statement asks for, without what was found: "quest minus none, in acc, at lr = 0.01: above 0.02"."""
    levels = []
    for axis, chosen in finding.level.items():
        if len(chosen) == 1:
            levels.append(f"{axis} = {level_value(chosen[0])}")
        elif set(chosen) == set(experiment.level[axis]):
            levels.append(f"mean over {axis}")
        else:
            levels.append(f"mean over {axis} {' and '.join(map(level_value, chosen))}")
    where = f", {', '.join(levels)}" if levels else ""
    return f"{drawing.axis_title(finding)}{where}: {wording.wanted(finding)}"


UNIT_COLUMNS = (
    "statement",
    "experiment",
    "scale",
    "metric",
    "unit",
    "arm",
    "arm_value",
    "against",
    "against_value",
    "ratio",
    "contrast",
)


def units_csv(verdict: Verdict) -> str:
    """The unit values of a claim and of its controls."""
    rows: list[tuple[Any, ...]] = []
    named: list[tuple[str, Finding]] = [("claim", verdict)]
    named += [(f"control {i}", control) for i, control in enumerate(verdict.controls, 1)]
    for name, finding in named:
        against: Sequence[float | None] = finding.against_values or [finding.value] * len(finding.units)
        for unit, own, other, contrast in zip(finding.units, finding.arm_values, against, finding.values, strict=True):
            rows.append(
                (
                    name,
                    finding.experiment,
                    verdict.scale,
                    finding.metric,
                    unit,
                    finding.arm,
                    own,
                    finding.against if finding.against is not None else "value",
                    other,
                    finding.ratio,
                    contrast,
                )
            )
    return csv_text(UNIT_COLUMNS, rows)


# --- all measured levels -------------------------------------------------------------------------------------------


def _table(paper: Paper, room: Room, source: _Source, names: Names, files: dict[str, str]) -> LevelTable:
    experiment = paper.experiment[source.experiment]
    cells = level_means(paper, room, source.experiment, source.good)
    present = {arm for _, arm, _ in cells}
    arms = tuple(arm for arm in experiment.arms if arm in present)
    own = tuple(sorted(present - set(experiment.arms)))
    groups = []
    for metric, declared in experiment.metric.items():
        axes = experiment.axes_of(metric)
        levels = dict.fromkeys(level for name, _, level in cells if name == metric)
        places = decimals([cell for (name, _, _), cell in cells.items() if name == metric])
        rows = [
            LevelRow(
                level_text(dict(zip(axes, level, strict=True))),
                tuple(shown(cells.get((metric, arm, level)), places) for arm in (*arms, *own)),
            )
            for level in sorted(levels, key=lambda level: _place_in(experiment, axes, level))
        ]
        if rows:
            groups.append(LevelGroup(metric, declared.text, tuple(rows)))
    data = f"{names.new(source.experiment, source.scale, 'levels')}.csv"
    files[data] = _levels_csv(experiment, source, cells)
    seeds = sorted({row.seed for row in source.good})
    return LevelTable(
        experiment=source.experiment,
        text=experiment.text,
        scale=source.scale,
        source=source.record.source,
        arms=(*arms, *own),
        own_arms=own,
        groups=tuple(groups),
        seeds=_seeds_text(seeds),
        failed=tuple(_failure(row) for row in source.rows if row.status != "ok"),
        data=data,
    )


def level_means(
    paper: Paper, room: Room, name: str, rows: Iterable[Row]
) -> dict[tuple[str, str, tuple[Any, ...]], Cell]:
    """Mean and spread over seeds by metric, arm and level values; what is kept by item is first averaged over items."""
    experiment = paper.experiment[name]
    table = evidence.long_table(paper, room.folder, rows)
    columns = {column: table[column].tolist() for column in table.columns}
    whole: dict[tuple[Any, ...], list[float]] = collections.defaultdict(list)
    by_item: dict[tuple[Any, ...], list[float]] = collections.defaultdict(list)
    axes_of = {metric: experiment.axes_of(metric) for metric in experiment.metric}
    for i, metric in enumerate(columns["metric"]):
        if metric not in axes_of:
            continue
        level = tuple(columns[axis][i] for axis in axes_of[metric])
        item = columns["item"][i]
        kept = whole if item is None or item != item else by_item
        kept[metric, columns["arm"][i], level, columns["seed"][i]].append(float(columns["value"][i]))
    for key, values in by_item.items():
        if key not in whole:
            whole[key] = [statistics.fmean(values)]
    seeds: dict[tuple[str, str, tuple[Any, ...]], list[float]] = collections.defaultdict(list)
    for (metric, arm, level, _), values in whole.items():
        seeds[metric, arm, level].append(statistics.fmean(values))
    return {key: Cell(len(values), statistics.fmean(values), _sd(values)) for key, values in seeds.items()}


def decimals(cells: Sequence[Cell]) -> int | None:
    """How many decimals one metric's means are shown with, from their median spread; ``None`` for three digits."""
    spreads = sorted(cell.sd for cell in cells if cell.sd)
    largest = max((abs(cell.mean) for cell in cells), default=0.0)
    if largest >= 1e7:
        return None
    if spreads:
        size = spreads[len(spreads) // 2]
        exponent = math.floor(math.log10(size))
        places = -exponent + (size / 10.0**exponent < 2)
    else:
        places = 2 - math.floor(math.log10(largest)) if largest > 0 else 0
    return max(0, places) if places <= 6 else None


def shown(cell: Cell | None, places: int | None) -> tuple[str, str] | None:
    """Mean and standard deviation as text; the latter is empty when all seeds agree or there is one."""
    if cell is None:
        return None
    numbers = []
    for value in (cell.mean, cell.sd or 0.0):
        text = f"{value:.3g}" if places is None else f"{value:,.{places}f}"
        if value and not text.strip("-0.,"):
            text = f"{value:.1g}"
        numbers.append(text if text.strip("-0.,") else text.removeprefix("-"))
    return numbers[0], numbers[1] if cell.sd else ""


def _seeds_text(seeds: Sequence[int]) -> str:
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}" if seeds else ""


def _sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _place_in(experiment: Experiment, axes: Sequence[str], level: Sequence[Any]) -> tuple[int, ...]:
    """Where a combination of levels stands in the experiment's order."""
    return tuple(
        experiment.level[axis].index(value) if value in experiment.level[axis] else len(experiment.level[axis])
        for axis, value in zip(axes, level, strict=True)
    )


def _levels_csv(experiment: Experiment, source: _Source, cells: Mapping[tuple[str, str, tuple[Any, ...]], Cell]) -> str:
    axes = tuple(experiment.level)
    header = ("experiment", "version", "scale", "source", "metric", *axes, "arm", "seeds", "mean", "sd")
    rows = []
    for (metric, arm, level), cell in cells.items():
        named = dict(zip(experiment.axes_of(metric), level, strict=True))
        rows.append(
            (
                source.experiment,
                experiment.version,
                source.scale,
                source.record.source,
                metric,
                *(named.get(axis) for axis in axes),
                arm,
                cell.n,
                cell.mean,
                cell.sd,
            )
        )
    return csv_text(header, rows)


def _failure(row: Row) -> str:
    level = f", {level_text(row.level)}" if row.level else ""
    error = last_line(row.error)
    return f"{row.arm}{level}, seed {row.seed}: {row.status}{f' ({error[:160]})' if error else ''}"


# --- curves --------------------------------------------------------------------------------------------------------


def _curves(paper: Paper, source: _Source, names: Names, files: dict[str, str]) -> list[CurveFigure]:
    experiment = paper.experiment[source.experiment]
    lines = _curve_lines(source, experiment)
    figures = []
    for name in dict.fromkeys([*experiment.curve, *(line["name"] for line in lines)]):
        own = [line for line in lines if line["name"] == name]
        curves = {id(line): Curve(line["arm"], line["step"], line["mean"], line["low"], line["high"]) for line in own}
        scale = drawing.shared_scale(curves.values())
        if scale is None:
            continue
        arms = [*experiment.arms, *sorted({line["arm"] for line in own} - set(experiment.arms))]
        order = {arm: i for i, arm in enumerate(arms)}
        by_level: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        for line in own:
            by_level[json.dumps([line["level"].get(axis) for axis in experiment.level])].append(line)
        file = names.new(source.experiment, source.scale, "curve", name)
        panels = []
        keys = sorted(by_level, key=lambda key: _place_in(experiment, tuple(experiment.level), json.loads(key)))
        for i, key in enumerate(keys):
            at = by_level[key]
            title = level_text(at[0]["level"])
            drawn = sorted((curves[id(line)] for line in at), key=lambda curve: order[curve.arm])
            full = f"{name} of {source.experiment}{f' at {title}' if title else ''}"
            anchor = f"curve-{file.replace('.', '-')}-{i}"
            panels.append(Panel(title, drawing.panel(drawn, scale, order, anchor, full)))
        files[f"{file}.csv"] = _curves_csv(experiment, source, own)
        present = {line["arm"] for line in own}
        figures.append(
            CurveFigure(
                experiment=source.experiment,
                scale=source.scale,
                source=source.record.source,
                name=name,
                text=experiment.curve.get(name, ""),
                log=scale.log,
                legend=tuple((arm, drawing.legend_key(order[arm])) for arm in arms if arm in present),
                panels=tuple(panels),
                data=f"{file}.csv",
            )
        )
    return figures


def _curve_lines(source: _Source, experiment: Experiment) -> list[dict[str, Any]]:
    """Curves with bands: those shipped, or made from the seeds of a ledger."""
    if source.record.source == "shipped":
        return [
            dict(line)
            for line in source.record.curves
            if line.get("experiment") == source.experiment
            and line.get("version") == experiment.version
            and line.get("scale") == source.scale
            and _drawable(line)
        ]
    groups: dict[str, list[Row]] = collections.defaultdict(list)
    for row in source.good:
        groups[json.dumps([row.arm, row.level], sort_keys=True)].append(row)
    lines = []
    for rows in groups.values():
        for name in dict.fromkeys(name for row in rows for name in row.curves):
            band = evidence.curve_band([row.curves[name] for row in rows if row.curves.get(name)])
            line = {"arm": rows[0].arm, "level": dict(rows[0].level), "name": name, **band}
            lines += [line] if _drawable(line) else []
    return lines


def _drawable(line: Mapping[str, Any]) -> bool:
    """Whether a curve line has what a drawing needs: four lists of numbers of one length."""
    arrays = [line.get(key) for key in ("step", "mean", "low", "high")]
    return (
        isinstance(line.get("arm"), str)
        and isinstance(line.get("name"), str)
        and isinstance(line.get("level"), Mapping)
        and all(isinstance(a, list) and len(a) == len(arrays[0] or []) > 0 for a in arrays)
        and all(isinstance(v, int | float) and math.isfinite(v) for a in arrays for v in a or ())
    )


def _curves_csv(experiment: Experiment, source: _Source, lines: Iterable[Mapping[str, Any]]) -> str:
    axes = tuple(experiment.level)
    same = (source.experiment, source.scale, source.record.source)
    rows = [
        (*same, line["name"], *(line["level"].get(axis) for axis in axes), line["arm"], *point)
        for line in lines
        for point in zip(line["step"], line["mean"], line["low"], line["high"], strict=True)
    ]
    return csv_text(("experiment", "scale", "source", "curve", *axes, "arm", "step", "mean", "low", "high"), rows)


# --- figures, tuning, runs -----------------------------------------------------------------------------------------


def _drawings(source: _Source) -> DrawingGroup | None:
    """The figures of each arm's and level's first seed, as images that cannot run scripts or load anything."""
    first: dict[str, Row] = {}
    for row in sorted(source.good, key=lambda row: row.seed):
        if row.figures:
            first.setdefault(json.dumps([row.arm, row.level], sort_keys=True), row)
    same: dict[tuple[str, str], list[Row]] = {}
    for row in first.values():
        for name, svg in row.figures.items():
            same.setdefault((name, svg), []).append(row)
    drawings = []
    for (name, svg), rows in same.items():  # a picture that several arms have is shown once
        row, others = rows[0], len(rows) - 1
        where = f"{row.arm}{f', {level_text(row.level)}' if row.level else ''}, seed {row.seed}"
        drawings.append(as_image(name, f"{where}; the same in {others} more" if others else where, svg))
    if not drawings:
        return None
    shown = tuple(drawings[:FIGURE_LIMIT])
    total = len({(name, svg) for row in source.good for name, svg in row.figures.items()})
    return DrawingGroup(source.experiment, source.scale, shown, total - len(shown))


def as_image(name: str, where: str, svg: str) -> Drawing:
    """An SVG text as a data address: a browser runs no script in an image and fetches nothing for it."""
    svg = _DOCTYPE.sub("", svg)
    lower = svg.lower()
    if "<svg" not in lower:
        return Drawing(name, where, "", "it is no SVG")
    if "<!entity" in lower or "<!doctype" in lower:
        return Drawing(name, where, "", "it declares entities")
    encoded = svg.encode("utf-8", "replace")
    if len(encoded) > FIGURE_BYTES:
        return Drawing(name, where, "", f"it is larger than {FIGURE_BYTES // 1000} KB")
    return Drawing(name, where, f"data:image/svg+xml;base64,{base64.b64encode(encoded).decode('ascii')}")


def _tuned(paper: Paper, records: Sequence[Record]) -> list[TunedRow]:
    """What was tried beforehand, by arm and knobs; from the first record that has any of an experiment."""
    found = []
    for name, experiment in paper.experiment.items():
        for record in records:
            rows = [
                row
                for row in record.rows
                if row.kind == "tune" and row.experiment == name and row.version == experiment.version
            ]
            groups: dict[str, list[Row]] = collections.defaultdict(list)
            for row in rows:
                groups[json.dumps([row.scale, row.arm, row.level, row.knobs], sort_keys=True)].append(row)
            for group in groups.values():
                found.append(_tuned_row(name, group))
            if rows:
                break
    return found


def _tuned_row(experiment: str, rows: Sequence[Row]) -> TunedRow:
    values: dict[str, list[float]] = collections.defaultdict(list)
    for row in rows:
        for metric, value in row.metrics.items():
            values[metric].append(value)
    level = f" at {level_text(rows[0].level)}" if rows[0].level else ""
    return TunedRow(
        experiment=experiment,
        arm=f"{rows[0].arm}{level}",
        knobs=level_text(rows[0].knobs) or "as the study has them",
        seeds=_seeds_text(sorted({row.seed for row in rows})).partition(" ")[2],
        metrics=", ".join(f"{metric} {statistics.fmean(v):.3g}" for metric, v in values.items()),
    )


def _runs(sources: Iterable[_Source]) -> list[RunView]:
    found: dict[str, RunView] = {}
    for source in sources:
        for run in dict.fromkeys(row.run for row in source.rows):
            info = source.record.runs.get(run)
            if info is not None and run not in found:
                found[run] = _run(info, source.record.source)
    return list(found.values())


def _run(info: RunInfo, source: str) -> RunView:
    environment = info.environment if isinstance(info.environment, Mapping) else {}
    versions = environment.get("versions")
    named = versions if isinstance(versions, Mapping) else {}
    machine = [str(environment[key]) for key in ("processor", "device", "platform") if environment.get(key)]
    try:
        date = datetime.datetime.fromtimestamp(info.started, datetime.UTC).strftime("%Y-%m-%d")
    except (OverflowError, OSError, ValueError, TypeError):
        date = ""
    return RunView(
        date=date,
        source=source,
        scale=info.scale,
        command=info.command,
        versions=", ".join(f"{package} {version}" for package, version in named.items()),
        machine=", ".join(machine),
        commit=str(environment.get("commit") or ""),
    )
