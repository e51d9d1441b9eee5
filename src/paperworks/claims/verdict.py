"""Verdicts: what the outcomes say of each claim of a paper.

One concept: a contrast per unit, judged against a margin. A verdict is a pure function of ``paper.toml`` and the long
table of outcomes; neither torch nor a study is imported here. ``docs/verdicts.md`` explains the rule.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from paperworks.claims import statistics, wording
from paperworks.claims.paper import Claim, Experiment, LevelValue, Paper, Statement
from paperworks.claims.statistics import MIN_UNITS

VERDICTS = ("supported", "opposite", "below margin", "undecided", "void", "untested")
NEGATIVE = frozenset({"opposite", "below margin"})
FLAGS = (
    "incomplete",
    "few_seeds",
    "skewed",
    "custom",
    "statement_changed",
    "code_changed",
    "exploratory",
    "secondary_basis",
)

# Tuning and pilots use seeds from 100 on; fresh seeds are proposed below them or well above.
_TUNING_SEEDS, _FRESH_SEEDS = 100, 1000
_SNAP = 1e-12  # relative; a contrast of two equal numbers is zero, whatever the rounding

Cells = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Evidence:
    """The outcomes of one scale, and what is known of the runs they come from.

    Attributes:
        table: Long table with columns experiment, version, scale, arm, the level axes, seed, item, metric, value;
            derived rows included, one row a cell and metric (and item).
        source: "shipped" or "yours".
        statement_hashes: For each claim id the values of ``Paper.statement_hash`` that were stored with them. When any
            claim is named, one that is not was written after the runs, and counts as changed.
        failed: Cells tried and not ok: experiment, arm, the level axes, seed, status, error.
        seconds: For each experiment the mean seconds of one cell.
        custom: Arms whose factory or settings the user replaced.
        code_changed: Whether the code is not the one that made the outcomes.
    """

    table: pd.DataFrame
    source: str
    statement_hashes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    failed: pd.DataFrame | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    custom: frozenset[str] = frozenset()
    code_changed: bool = False


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the outcomes say of one statement: of a claim's own, or of one of its controls.

    ``effect``, ``low``, ``high`` and ``values`` are contrasts, oriented so that larger supports the statement.

    Attributes:
        experiment: Name of the experiment.
        version: Its version.
        metric: The metric compared.
        arm: The arm spoken of.
        against: The arm it is compared with.
        value: The number it is compared with, when no arm.
        ratio: Factor on ``against``.
        level: For each level axis the values averaged over.
        better: The direction that supports the statement.
        margin: What the contrast must exceed, or the half width of an equivalence.
        equivalence: Whether no difference is what is stated.
        unit: "seed" or "item".
        verdict: One of ``VERDICTS``.
        reason: Why, in a few words.
        effect: Mean contrast.
        low: Lower end of its 95 % t interval.
        high: Upper end.
        n: Number of units with all their cells.
        p: Two-sided p against the margin: the larger of the t test's and the sign-flip test's.
        arm_mean: Mean of the arm over the units.
        against_mean: Mean of ``against`` over the units, without the ratio.
        units: The seeds or items.
        values: Contrast of each unit.
        arm_values: The arm's value for each unit.
        against_values: The other arm's.
        smallest_detectable: The true contrast that this many units find in 80 % of studies; for an equivalence the
            half width they confirm.
        units_to_decide: About how many fresh units would decide, when undecided.
        flags: Members of ``FLAGS``.
    """

    experiment: str
    version: int
    metric: str
    arm: str
    against: str | None
    value: float | None
    ratio: float
    level: Mapping[str, tuple[LevelValue, ...]]
    better: str
    margin: float
    equivalence: bool
    unit: str
    verdict: str
    reason: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None
    arm_mean: float | None = None
    against_mean: float | None = None
    units: tuple[int | str, ...] = ()
    values: tuple[float, ...] = ()
    arm_values: tuple[float, ...] = ()
    against_values: tuple[float, ...] = ()
    smallest_detectable: float | None = None
    units_to_decide: int | None = None
    flags: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON takes them; what is unknown is ``None``, never NaN."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


@dataclass(frozen=True, kw_only=True)
class Verdict(Finding):
    """What the outcomes at one scale say of a claim.

    Attributes:
        paper: Slug of the paper.
        claim: Id of the claim.
        text: The claim, in our words.
        test: "direct", "reduced" or "analogue".
        scale: The scale judged.
        evidence: "shipped" or "yours"; ``None`` when untested.
        sentence: The verdict in words.
        controls: What was found for each control.
        p_holm: ``p``, adjusted for the claims of the paper that were judged.
        p_bh: ``p``, adjusted for the whole index; set by ``adjust_index``.
        minutes_to_decide: About how long the fresh units take on one worker.
        command: What to run next; ``None`` when nothing is open.
        custom: Arms of the reader's own that the claim reads.
        stands_for: The method's arm in whose place an arm of the reader's own is judged.
        also: What a reader's own run has of it when the verdict is of the shipped evidence.
        paper_arm: The paper's own number for the arm.
        paper_against: The paper's own number for the other.
        paper_setting: The paper's setting.
        paper_source: Where the paper says so.
    """

    paper: str
    claim: str
    text: str
    test: str
    scale: str
    evidence: str | None
    sentence: str = ""
    controls: tuple[Finding, ...] = ()
    p_holm: float | None = None
    p_bh: float | None = None
    minutes_to_decide: float | None = None
    command: str | None = None
    custom: tuple[str, ...] = ()
    stands_for: str | None = None
    also: str = ""
    paper_arm: float | str | None = None
    paper_against: float | str | None = None
    paper_setting: str = ""
    paper_source: str = ""

    @property
    def judged(self) -> bool:
        """Whether a test was made with enough units, so that its p belongs to a family of tests."""
        tested = self.verdict in NEGATIVE or self.verdict in {"supported", "undecided"}
        return (
            tested
            and self.p is not None
            and self.scale != "smoke"
            and not {"incomplete", "few_seeds"} & set(self.flags)
        )


@dataclass(frozen=True)
class Comparison:
    """A reader's own run of a claim beside the shipped one.

    Attributes:
        paper: Slug of the paper.
        claim: Id of the claim.
        effect: Mean contrast of the reader's run.
        n: Its units.
        unit: "seed" or "item".
        shipped_effect: Mean contrast of the shipped run.
        shipped_n: Its units.
        low: Lower end of the 95 % prediction interval for the mean of ``n`` fresh units, given the shipped ones.
        high: Upper end.
        inside: Whether ``effect`` lies in it; ``None`` when the two cannot be compared.
        reason: Why they cannot.
        sentence: The comparison in words.
    """

    paper: str
    claim: str
    effect: float | None
    n: int
    unit: str
    shipped_effect: float | None
    shipped_n: int
    low: float | None = None
    high: float | None = None
    inside: bool | None = None
    reason: str = ""
    sentence: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON takes them."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def judge(
    paper: Paper, evidence: Evidence | None, scale: str = "laptop", seeds: Sequence[int] | None = None
) -> list[Verdict]:
    """Judge every claim of a paper on the outcomes of one scale.

    Args:
        paper: The paper.
        evidence: Its outcomes at that scale; ``None`` when there are none.
        scale: The scale.
        seeds: Judge these seeds instead of the declared 0 .. n-1; such verdicts are flagged "exploratory".

    Returns:
        A verdict for each claim, in the paper's order, with Holm's p over those judged.

    Raises:
        ValueError: When a cell stands in the table twice, or ``seeds`` is empty.
    """
    if seeds is not None and not seeds:
        raise ValueError("seeds must name at least one seed, or be None for the declared ones")
    outcomes = _Outcomes(paper, evidence, scale)
    chosen = None if seeds is None else tuple(sorted(set(seeds)))
    verdicts = [_judge_claim(paper, claim, evidence, outcomes, scale, chosen) for claim in paper.claim]
    family = [v.p for v in verdicts if v.judged and v.p is not None]
    adjusted = iter(statistics.holm(family))
    return [replace(v, p_holm=next(adjusted)) if v.judged else v for v in verdicts]


def adjust_index(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The same verdicts with Benjamini-Hochberg's p over all that were judged, of all papers."""
    every = list(verdicts)
    family = [v.p for v in every if v.judged and v.p is not None]
    adjusted = iter(statistics.benjamini_hochberg(family))
    return [replace(v, p_bh=next(adjusted)) if v.judged else v for v in every]


def compare(shipped: Verdict, yours: Verdict) -> Comparison:
    """Set a reader's own run beside the shipped one: does its effect lie where fresh units are expected to?

    Two runs of the same study need not get the same verdict; this is the comparison to make instead.
    """
    both = Comparison(yours.paper, yours.claim, yours.effect, yours.n, yours.unit, shipped.effect, shipped.n)
    reason = _incomparable(shipped, yours)
    interval = None if reason else statistics.prediction_interval(shipped.values, yours.n)
    if interval is None or yours.effect is None:
        both = replace(both, reason=reason or "the shipped run has a single unit")
        return replace(both, sentence=wording.compared(both))
    low, high = interval
    slack = statistics.TIE * max(abs(low), abs(high))
    both = replace(both, low=low, high=high, inside=low - slack <= yours.effect <= high + slack)
    return replace(both, sentence=wording.compared(both))


def _incomparable(shipped: Verdict, yours: Verdict) -> str:
    if shipped.effect is None:
        return f"there are no shipped outcomes at scale {yours.scale!r}"
    if yours.effect is None:
        return "your run has no effect yet"
    for name in ("scale", "version", "metric", "arm", "against", "value", "ratio", "level", "better", "unit"):
        if getattr(shipped, name) != getattr(yours, name):
            return f"their {name} differs"
    return ""


def needed_cells(paper: Paper, claim: Claim, scale: str) -> dict[str, frozenset[tuple[str, tuple[LevelValue, ...]]]]:
    """The cells of one seed that a claim and its controls read, by experiment: (arm, values of its level axes).

    For a derived metric these are the cells from which it is computed.
    """
    cells: dict[str, set[tuple[str, tuple[LevelValue, ...]]]] = {}
    for statement in claim.statements():
        experiment = paper.experiment[statement.experiment]
        levels = {**experiment.levels_at(scale), **statement.selection(experiment)}
        grid = itertools.product(*(levels[axis] for axis in experiment.level))
        arms = (*statement.arms, *experiment.metric[statement.metric].needs)
        cells.setdefault(statement.experiment, set()).update(itertools.product(arms, grid))
    return {name: frozenset(found) for name, found in cells.items()}


class _Outcomes:
    """The table as dictionaries from cell to value, one for each experiment and metric, made when first asked for."""

    def __init__(self, paper: Paper, evidence: Evidence | None, scale: str) -> None:
        self._paper = paper
        self._cells: dict[tuple[str, str, bool], Cells] = {}
        self._failed = None if evidence is None else evidence.failed
        table = pd.DataFrame(columns=["experiment", "metric"]) if evidence is None else evidence.table
        if "scale" in table:
            table = table[(table["scale"] == scale).to_numpy()]
        self._table = table
        self._rows = table.groupby(["experiment", "metric"], sort=False, observed=True).indices if len(table) else {}

    def cells(self, experiment: str, metric: str, items: bool) -> Cells:
        """Values by (arm, level values, seed), with the item last if ``items``."""
        key = (experiment, metric, items)
        if key not in self._cells:
            self._cells[key] = self._read(experiment, metric, items)
        return self._cells[key]

    def _read(self, name: str, metric: str, items: bool) -> Cells:
        experiment = self._paper.experiment[name]
        columns = ["arm", *experiment.axes_of(metric), "seed", *(["item"] if items else [])]
        if (name, metric) not in self._rows or not set(columns) <= set(self._table.columns):
            return {}
        rows = self._table.iloc[self._rows[name, metric]]
        wanted = (rows["version"] == experiment.version).to_numpy()
        if "item" in rows:
            wanted &= rows["item"].notna().to_numpy() == items
        rows = rows[wanted]
        keys = list(zip(*(rows[column].tolist() for column in columns), strict=True))
        cells = dict(zip(keys, rows["value"].tolist(), strict=True))
        if len(cells) != len(keys):
            twice = Counter(keys).most_common(1)[0][0]
            raise ValueError(
                f"{self._paper.slug}.{name}: {metric!r} of cell {twice} stands in the table more than once"
            )
        return cells

    def failed(self, statement: Statement, seeds: Sequence[int]) -> pd.DataFrame | None:
        """The failed cells from which a statement's values would have come; ``None`` when there are none."""
        if self._failed is None or self._failed.empty:
            return None
        experiment = self._paper.experiment[statement.experiment]
        arms = [*statement.arms, *experiment.metric[statement.metric].needs]
        table = self._failed[(self._failed["experiment"] == statement.experiment).to_numpy()]
        where = table["arm"].isin(arms) & table["seed"].isin(seeds)
        for axis, values in statement.selection(experiment).items():
            where &= table[axis].isin(values) if axis in table else False
        return table[where.to_numpy()] if where.any() else None


@dataclass(frozen=True)
class _Units:
    """A statement's values: one row a unit, one column a cell that the unit averages over."""

    units: tuple[int | str, ...]
    arm: NDArray[np.float64]
    against: NDArray[np.float64] | None
    missing: tuple[tuple[Any, ...], ...]
    needed: int


def _gather(statement: Statement, experiment: Experiment, cells: Cells, seeds: Sequence[int]) -> _Units:
    grid = list(itertools.product(*statement.selection(experiment).values()))
    if statement.unit == "item":
        wanted = {(arm, *levels, seed) for arm in statement.arms for levels in grid for seed in seeds}
        units: tuple[int | str, ...] = tuple(sorted({key[-1] for key in cells if key[:-1] in wanted}, key=str))
        tails = [[(*levels, seed, item) for levels in grid for seed in seeds] for item in units or (None,)]
    else:
        units = tuple(seeds)
        tails = [[(*levels, seed) for levels in grid] for seed in seeds]
    missing: list[tuple[Any, ...]] = []
    arrays = []
    for arm in statement.arms:
        keys = [[(arm, *tail) for tail in row] for row in tails]
        array = np.array([[cells.get(key, math.nan) for key in row] for row in keys], dtype=float)
        missing += [keys[i][j] for i, j in np.argwhere(~np.isfinite(array))]
        arrays.append(array)
    needed = sum(array.size for array in arrays)
    return _Units(units, arrays[0], arrays[1] if len(arrays) > 1 else None, tuple(missing), needed)


def _judge_statement(paper: Paper, statement: Statement, outcomes: _Outcomes, seeds: Sequence[int]) -> Finding:
    experiment = paper.experiment[statement.experiment]
    blank = _blank(statement, experiment)
    cells = outcomes.cells(statement.experiment, statement.metric, statement.unit == "item")
    found = _gather(statement, experiment, cells, seeds)
    if found.missing:
        failed = outcomes.failed(statement, seeds)
        if len(found.missing) == found.needed and failed is None:
            return replace(blank, reason="no outcomes" + (" for single items" if statement.unit == "item" else ""))
        reason = _missing(found, statement, experiment, failed)
        complete = 0 if statement.unit == "item" else len(seeds) - len({key[-1] for key in found.missing})
        return replace(blank, verdict="undecided", reason=reason, flags=("incomplete",), n=complete)
    return _decide(blank, statement, found, derived=experiment.metric[statement.metric].derived)


def _blank(statement: Statement, experiment: Experiment) -> Finding:
    shared = statement.model_dump(
        include={"experiment", "metric", "arm", "against", "value", "ratio", "better", "margin", "equivalence", "unit"}
    )
    level = statement.selection(experiment)
    return Finding(**shared, version=experiment.version, level=level, verdict="untested", reason="")


def _decide(blank: Finding, statement: Statement, found: _Units, *, derived: bool) -> Finding:
    arm = found.arm.mean(axis=1)
    if found.against is None:
        against, other = None, np.full_like(arm, statement.value)
    else:
        against = found.against.mean(axis=1)
        other = statement.ratio * against
    contrast = arm - other
    # What derive.py subtracts is out of sight here: a slope of equal numbers is 1e-16, and nothing like it is meant.
    scale = np.maximum(np.maximum(np.abs(arm), np.abs(other)), 1.0 if derived else 0.0)
    contrast[np.abs(contrast) <= _SNAP * scale] = 0.0
    if statement.better == "lower":
        contrast = 0.0 - contrast
    decision = statistics.decide(contrast, statement.margin, equivalence=statement.equivalence)
    n = len(contrast)
    sd = float(contrast.std(ddof=1)) if n > 1 else 0.0
    one_sample = statement.value is not None
    skewed = statistics.skewed(contrast, _bounds(statement, decision), one_sample=one_sample)
    finding = replace(
        blank,
        verdict=decision.verdict,
        effect=decision.mean,
        low=_finite(decision.low),
        high=_finite(decision.high),
        n=n,
        p=decision.p if n > 1 else None,
        arm_mean=float(arm.mean()),
        against_mean=None if against is None else float(against.mean()),
        units=found.units,
        values=tuple(contrast.tolist()),
        arm_values=tuple(arm.tolist()),
        against_values=() if against is None else tuple(against.tolist()),
        smallest_detectable=_detectable(statement, n, sd),
        units_to_decide=_to_decide(statement, decision, n, sd) if decision.verdict == "undecided" else None,
        flags=_ordered(["few_seeds"] * (n < MIN_UNITS) + ["skewed"] * skewed),
    )
    return replace(finding, reason=wording.why(finding))


def _bounds(statement: Statement, decision: statistics.Decision) -> list[float]:
    """The numbers that the contrasts were found to lie beyond."""
    margin = statement.margin
    if decision.verdict == "undecided":
        return []
    if statement.equivalence:
        return [margin, -margin] if decision.verdict == "supported" else [math.copysign(margin, decision.mean)]
    return [min(0.0, margin) if decision.verdict == "opposite" else margin]


def _detectable(statement: Statement, n: int, sd: float) -> float | None:
    if n < MIN_UNITS:
        return None
    size = statistics.detectable(n, equivalence=statement.equivalence) * sd
    return size if statement.equivalence else statement.margin + size


def _to_decide(statement: Statement, decision: statistics.Decision, n: int, sd: float) -> int | None:
    if n < 3:
        return MIN_UNITS
    inside = statement.equivalence and abs(decision.mean) < statement.margin
    position = abs(decision.mean) if statement.equivalence else decision.mean
    if math.isclose(position, statement.margin, rel_tol=statistics.TIE, abs_tol=_SNAP):
        return None  # on the margin itself
    return statistics.units_to_decide(abs(position - statement.margin), sd, equivalence=inside)


def _missing(found: _Units, statement: Statement, experiment: Experiment, failed: pd.DataFrame | None) -> str:
    """What is missing, and of the first failed cell how it ended."""
    axes = experiment.axes_of(statement.metric)
    names = ["arm", *axes, "seed", "item"]

    def cell(names: Sequence[str], key: Sequence[Any]) -> str:
        pairs = [
            f"{n} {k}" if n in {"seed", "item"} else f"{n} = {k}" for n, k in zip(names[1:], key[1:], strict=False)
        ]
        return ", ".join([str(key[0]), *pairs])

    missing = found.missing if statement.unit == "seed" or found.units else tuple(key[:-1] for key in found.missing)
    count, what = len(missing), f"values of {statement.metric}"
    text = f"{count:,} of {found.needed:,} needed {what} {'are' if count > 1 else 'is'} missing"
    if failed is None:
        return f"{text} ({'the first: ' if count > 1 else ''}{cell(names, missing[0])})"
    row = failed.sort_values(["seed", "arm"], kind="stable").iloc[0]
    own = ["arm", *experiment.level, "seed"]
    error = str(row["error"] or "").strip().splitlines() if pd.notna(row.get("error")) else []
    ended = f"{row['status']}{': ' + error[-1][:120] if error else ''}"
    cells = f"{len(failed):,} cell{'s' * (len(failed) > 1)}"
    return f"{text}, for {cells} did not finish ({cell(own, [row[name] for name in own])}: {ended})"


def _judge_claim(
    paper: Paper,
    claim: Claim,
    evidence: Evidence | None,
    outcomes: _Outcomes,
    scale: str,
    seeds: tuple[int, ...] | None,
) -> Verdict:
    if not paper.runnable(claim, scale) or scale not in ("smoke", *paper.scales_of(claim)):
        blank = _blank(claim, paper.experiment[claim.experiment])
        own, scales = replace(blank, reason=_not_here(paper, claim, scale)), paper.scales_of(claim)
        elsewhere = next((s for s in scales if s != scale and paper.runnable(claim, s)), None)
        command = _command(paper, claim, elsewhere, None) if elsewhere else None
        return _worded(paper, _verdict(paper, claim, scale, own, command=command))
    declared = [tuple(range(_declared(paper, s, scale))) for s in claim.statements()]
    chosen = declared if seeds is None else [seeds] * len(declared)
    findings = [
        _judge_statement(paper, s, outcomes, units) for s, units in zip(claim.statements(), chosen, strict=True)
    ]
    own, controls = findings[0], tuple(findings[1:])
    again = None if chosen == declared else seeds
    found, reason, raised = _combine(paper, own, controls, scale)
    if found == "untested" or evidence is None:
        command = _command(paper, claim, scale, again)
        return _worded(paper, _verdict(paper, claim, scale, own, reason=reason, command=command))
    custom = tuple(sorted(_arms(paper, claim) & evidence.custom))
    also = {
        "custom": bool(custom),
        "statement_changed": _changed(paper, claim, scale, evidence.statement_hashes),
        "code_changed": evidence.code_changed,
        "exploratory": again is not None,
        "secondary_basis": paper.basis == "secondary" and found in NEGATIVE,
    }
    flags = _ordered([*own.flags, *raised, *(flag for flag, up in also.items() if up)])
    more = own.units_to_decide if own.verdict == "undecided" or "few_seeds" not in flags else MIN_UNITS
    if found != "undecided" or "incomplete" in flags or scale == "smoke":
        more = None
    verdict = _verdict(
        paper,
        claim,
        scale,
        own,
        verdict=found,
        reason=reason,
        flags=flags,
        evidence=evidence.source,
        controls=controls,
        custom=custom,
        units_to_decide=more,
        minutes_to_decide=_minutes(paper, claim, scale, evidence.seconds, more),
    )
    last = max(itertools.chain.from_iterable(chosen))
    return _worded(paper, replace(verdict, command=_next_command(paper, claim, verdict, again, last)))


def _declared(paper: Paper, statement: Statement, scale: str) -> int:
    return paper.experiment[statement.experiment].scale[scale].seeds  # type: ignore[index]


def _verdict(paper: Paper, claim: Claim, scale: str, own: Finding, **changes: Any) -> Verdict:
    values: dict[str, Any] = {f.name: getattr(own, f.name) for f in fields(Finding)}
    values |= {
        "paper": paper.slug,
        "claim": claim.id,
        "text": claim.text,
        "test": claim.test,
        "scale": scale,
        "evidence": None,
        "paper_arm": claim.paper.arm,
        "paper_against": claim.paper.against,
        "paper_setting": claim.paper.setting,
        "paper_source": claim.paper.source,
    }
    return Verdict(**values | changes)


def _worded(paper: Paper, verdict: Verdict) -> Verdict:
    return replace(verdict, sentence=wording.sentence(verdict, paper.experiment[verdict.experiment]))


def _combine(paper: Paper, own: Finding, controls: Sequence[Finding], scale: str) -> tuple[str, str, list[str]]:
    """Verdict, reason and flags of a claim from its own finding and its controls'."""
    if own.verdict == "untested":
        return "untested", f"{own.reason} at the {scale} scale", []
    named = [("", own), *((f"control {i + 1}: ", control) for i, control in enumerate(controls))]
    for name, finding in named:
        if finding.verdict == "untested" or "incomplete" in finding.flags:
            return "undecided", name + finding.reason, ["incomplete"]
    few = [(name, finding) for name, finding in named if "few_seeds" in finding.flags]
    if scale == "smoke":
        return "undecided", "smoke runs check that a study works and decide nothing", ["few_seeds"] * bool(few)
    for name, finding in few:
        return "undecided", name + finding.reason, ["few_seeds"]
    for name, finding in named:
        if finding.ratio != 1 and min(finding.against_values) <= 0:
            return (
                "void",
                f"{name}a ratio to {finding.against} means nothing where {finding.against} is not above 0",
                [],
            )
    for control in controls:
        if control.verdict != "supported":
            return "void", wording.not_controlled(control, paper.experiment[control.experiment]), []
    return own.verdict, own.reason, []


def _not_here(paper: Paper, claim: Claim, scale: str) -> str:
    scales = paper.scales_of(claim)
    if scales == ("paper",):
        return "only the paper's own setting can test it"
    if scale in scales or not scales:
        return f"the {scale} scale does not run all that it reads"
    return f"it is judged at the {' and '.join(scales)} scale{'s' * (len(scales) > 1)} only"


def _arms(paper: Paper, claim: Claim) -> frozenset[str]:
    """Every arm that the claim, its controls and their derived metrics read."""
    needs = (paper.experiment[s.experiment].metric[s.metric].needs for s in claim.statements())
    return frozenset(itertools.chain(*needs, *(s.arms for s in claim.statements())))


def _changed(paper: Paper, claim: Claim, scale: str, hashes: Mapping[str, frozenset[str]]) -> bool:
    return bool(hashes) and set(hashes.get(claim.id, ())) != {paper.statement_hash(claim, scale)}


def _minutes(paper: Paper, claim: Claim, scale: str, seconds: Mapping[str, float], units: int | None) -> float | None:
    cells = needed_cells(paper, claim, scale)
    if units is None or claim.unit == "item" or not set(cells) <= set(seconds):
        return None
    return units * sum(len(found) * seconds[name] for name, found in cells.items()) / 60


def _next_command(paper: Paper, claim: Claim, verdict: Verdict, seeds: Sequence[int] | None, last: int) -> str | None:
    """What to run next: the missing cells, or fresh seeds after the last one judged."""
    if "incomplete" in verdict.flags:
        return _command(paper, claim, verdict.scale, seeds)
    if verdict.scale == "smoke":
        scale = next((s for s in paper.scales_of(claim) if paper.runnable(claim, s)), None)
        return _command(paper, claim, scale, None) if scale else None
    if verdict.units_to_decide is None or claim.unit == "item":
        return None
    start = last + 1
    if start < _FRESH_SEEDS and start + verdict.units_to_decide > _TUNING_SEEDS:
        start = _FRESH_SEEDS
    return _command(paper, claim, verdict.scale, range(start, start + verdict.units_to_decide))


def _command(paper: Paper, claim: Claim, scale: str, seeds: Sequence[int] | None) -> str:
    where = "" if scale == "laptop" else f" --scale {scale}"
    which = "" if seeds is None else f" --seeds {wording.seed_list(seeds)}"
    return f"paperworks run {paper.slug}.{claim.id}{where}{which}"


def _ordered(flags: Iterable[str]) -> tuple[str, ...]:
    raised = set(flags)
    return tuple(flag for flag in FLAGS if flag in raised)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return _finite(value) if isinstance(value, float) else value
