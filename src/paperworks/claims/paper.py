"""What a paper claims and how we test it: the pydantic models of ``paper.toml``.

Everything that a run or a verdict needs to know about a claim is data in this file's shapes. Unknown keys are errors,
and so is a statement that names an arm, a level or a metric which its experiment does not have.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from paperworks.claims.errors import PaperError, did_you_mean
from paperworks.claims.fingerprint import source_hash
from paperworks.claims.rawtoml import read_toml

LevelValue = str | int | float | bool
Better = Literal["higher", "lower"]
Status = Literal["draft", "working", "verified"]
Basis = Literal["official-code", "full-text", "secondary"]
TestKind = Literal["direct", "reduced", "analogue"]

SCALES = ("smoke", "laptop", "overnight", "paper")
RESERVED_AXES = frozenset({"experiment", "version", "scale", "arm", "seed", "item", "metric", "value"})


class Model(BaseModel):
    """Base of all models here: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Metric(Model):
    """One number of an outcome, or one that ``derive.py`` computes from several outcomes.

    Attributes:
        text: What it is, with its unit.
        over: For a derived metric, the level axes that vanish in it; ``None`` for a metric of the outcome itself.
        needs: Further arms whose rows the derived metric reads.
    """

    text: str
    over: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()

    @property
    def derived(self) -> bool:
        """Whether ``derive.py`` computes it."""
        return self.over is not None


def _metric_from_text(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


class Scale(Model):
    """How much of an experiment one scale runs.

    Attributes:
        seeds: Seeds 0 .. seeds-1 are the units of the claims.
        arms: The arms run at this scale; ``None`` for all.
        level: The values run of some level axes; an axis not named runs whole.
        gpus: GPUs one task asks for.
    """

    seeds: int = Field(ge=1)
    arms: tuple[str, ...] | None = Field(None, min_length=1)
    level: dict[str, tuple[LevelValue, ...]] = {}
    gpus: float = Field(0, ge=0)


class Experiment(Model):
    """A grid of arms, levels and seeds, and what one cell of it measures.

    Attributes:
        text: The setting, as it stands in a verdict's sentence.
        version: Moves when outcomes stop being comparable; old outcomes are then no longer read.
        arms: Names of the methods compared; the factories stand in ``study.py``.
        method: Those of them that are the paper's method: an arm of a reader's own is judged in the place of each.
        factory: What the factory of an arm is called with, and what it must return; for a reader who writes one.
        timeout: Seconds allowed for one cell.
        joint: Axes that one call of the study computes together.
        level: Level axes and their values.
        metric: Every metric of an outcome, and the derived ones.
        curve: Every curve of an outcome.
        scale: The scales that can be run.
    """

    text: str
    version: int = Field(1, ge=1)
    arms: tuple[str, ...] = Field(min_length=1)
    method: tuple[str, ...] = ()
    factory: str = ""
    timeout: float = Field(600, gt=0)
    joint: tuple[str, ...] = ()
    level: dict[str, tuple[LevelValue, ...]] = {}
    metric: dict[str, Annotated[Metric, BeforeValidator(_metric_from_text)]]
    curve: dict[str, str] = {}
    scale: dict[Literal["smoke", "laptop", "overnight", "paper"], Scale]

    @model_validator(mode="after")
    def _names_exist(self) -> Experiment:
        for axis, values in self.level.items():
            if axis in RESERVED_AXES:
                raise ValueError(f"level axis {axis!r} is a reserved name; take another")
            if not values or len(set(values)) != len(values):
                raise ValueError(f"level.{axis} must hold different values, got {list(values)}")
        if len(set(self.arms)) != len(self.arms):
            raise ValueError(f"arms must be different, got {list(self.arms)}")
        for arm in self.method:
            _known("method", arm, self.arms)
        for axis in self.joint:
            _known("joint", axis, ["seed", "arm", *self.level])
        for name, metric in self.metric.items():
            for axis in metric.over or ():
                _known(f"metric.{name}.over", axis, self.level)
            for arm in metric.needs:
                _known(f"metric.{name}.needs", arm, self.arms)
            if metric.needs and not metric.derived:
                raise ValueError(f"metric.{name}.needs is for derived metrics only: give 'over' too, or leave it out")
        for name, scale in self.scale.items():
            for arm in scale.arms or ():
                _known(f"scale.{name}.arms", arm, self.arms)
            for axis, values in scale.level.items():
                _known(f"scale.{name}.level", axis, self.level)
                if not values:
                    raise ValueError(f"scale.{name}.level.{axis} is empty; leave it out to run all its values")
                for value in values:
                    _known(f"scale.{name}.level.{axis}", value, self.level[axis])
        return self

    def at(self, scale: str) -> Scale:
        """How much one scale runs."""
        return self.scale[scale]  # type: ignore[index]

    def arms_at(self, scale: str) -> tuple[str, ...]:
        """The arms run at a scale, in the experiment's order."""
        chosen = self.at(scale).arms
        return self.arms if chosen is None else tuple(arm for arm in self.arms if arm in chosen)

    def levels_at(self, scale: str) -> dict[str, tuple[LevelValue, ...]]:
        """The level axes with the values run at a scale."""
        chosen = self.at(scale).level
        return {axis: self.own_values(axis, chosen.get(axis, values)) for axis, values in self.level.items()}

    def own_values(self, axis: str, named: tuple[LevelValue, ...]) -> tuple[LevelValue, ...]:
        """The axis's own values that are named, so that a 1 written for its 1.0 is the same cell."""
        return tuple(self.level[axis][self.level[axis].index(value)] for value in named)

    def axes_of(self, metric: str) -> tuple[str, ...]:
        """The level axes that a metric still has (all of them, less those a derived metric is taken over)."""
        over = self.metric[metric].over or ()
        return tuple(axis for axis in self.level if axis not in over)


class Statement(Model):
    """A contrast judged against a margin: the shape of a claim's core and of each control.

    The contrast of a unit is ``arm - ratio * against`` or ``arm - value``, times -1 when ``better`` is "lower", so that
    a larger contrast always speaks for the statement.

    Attributes:
        experiment: Name of the experiment; a control left without one takes its claim's.
        metric: The metric that is compared.
        arm: The arm spoken of.
        against: The arm it is compared with, or ``None`` when it is compared with ``value``.
        value: A fixed number to compare with.
        ratio: Factor on ``against``.
        level: For every level axis of the metric a value, a list of values (mean over them) or "mean".
        better: The direction that supports the statement.
        margin: The contrast must lie above it; the half width for ``equivalence``.
        equivalence: Whether "no difference beyond the margin" is what is stated.
        unit: What is repeated: seeds, or the items of a fixed set.
    """

    experiment: str = ""
    metric: str
    arm: str
    against: str | None = None
    value: float | None = None
    ratio: float = Field(1.0, gt=0)
    level: dict[str, LevelValue | tuple[LevelValue, ...]] | Literal["mean"] = {}
    better: Better = "higher"
    margin: float = 0.0
    equivalence: bool = False
    unit: Literal["seed", "item"] = "seed"

    @model_validator(mode="after")
    def _one_comparison(self) -> Statement:
        if (self.against is None) == (self.value is None):
            raise ValueError("exactly one of 'against' (an arm) and 'value' (a number) must be given")
        if self.ratio != 1.0 and self.against is None:
            raise ValueError("'ratio' needs 'against'")
        if self.against == self.arm:
            raise ValueError(f"'against' must be another arm than {self.arm!r}")
        if self.equivalence and self.margin <= 0:
            raise ValueError(f"an equivalence needs a margin > 0, got {self.margin}")
        return self

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms it names."""
        return (self.arm,) if self.against is None else (self.arm, self.against)

    def selection(self, experiment: Experiment) -> dict[str, tuple[LevelValue, ...]]:
        """The values of each of the metric's level axes over which the statement takes the mean."""
        chosen: dict[str, tuple[LevelValue, ...]] = {}
        for axis in experiment.axes_of(self.metric):
            named = "mean" if self.level == "mean" else self.level[axis]
            if named == "mean" and "mean" not in experiment.level[axis]:
                chosen[axis] = experiment.level[axis]
            else:
                chosen[axis] = experiment.own_values(axis, named if isinstance(named, tuple) else (named,))
        return chosen

    def check_against(self, experiment: Experiment, where: str) -> None:
        """Raise ValueError naming the first arm, metric or level that the experiment does not have."""
        _known(f"{where}.metric", self.metric, experiment.metric)
        for arm in self.arms:
            _known(f"{where}.arm", arm, experiment.arms)
        axes = experiment.axes_of(self.metric)
        if self.level == "mean":
            return
        for axis, named in self.level.items():
            _known(f"{where}.level", axis, axes)
            values = named if isinstance(named, tuple) else (named,)
            if named == "mean":
                continue
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{where}.level.{axis} must name different values, got {list(values)}")
            for value in values:
                _known(f"{where}.level.{axis}", value, experiment.level[axis])
        missing = [axis for axis in axes if axis not in self.level]
        if missing:
            raise ValueError(
                f"{where}.level must name every axis of {self.metric!r} (a value, a list or 'mean'): {missing} missing"
            )


class PaperValue(Model):
    """What the paper itself reports, in its own setting."""

    arm: float | str | None = None
    against: float | str | None = None
    setting: str = ""
    source: str = ""


class Claim(Statement):
    """One sentence that can be tested, and how it is tested here.

    Attributes:
        id: Short name, unique in the paper.
        text: The claim in our words, one sentence.
        test: "direct" (theory, or the paper's own data), "reduced" (smaller) or "analogue" (another system).
        scales: The scales at which it is judged; ("paper",) for one that only the paper's own setting can test.
        control: Statements that must be supported before this one means anything.
        paper: The paper's own numbers.
        pilot: What was tried before the run, and on which seeds.
        note: Anything a reader should know, such as a measured cost.
    """

    id: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")
    text: str
    test: TestKind
    scales: tuple[Literal["laptop", "overnight", "paper"], ...] = ()
    control: tuple[Statement, ...] = ()
    paper: PaperValue = PaperValue()
    pilot: str = ""
    note: str = ""

    def statements(self) -> tuple[Statement, ...]:
        """The claim's own statement, then its controls, each with its experiment named."""
        controls = (c if c.experiment else c.model_copy(update={"experiment": self.experiment}) for c in self.control)
        return (self, *controls)


class Erratum(Model):
    """A printed constant or formula that we found wrong, with the test that shows it."""

    where: str
    printed: str
    ours: str
    check: str


class SpeedTarget(Model):
    """A measurement of ``speed.py``: time of ours over time of the peer, wanted at most ``target``."""

    name: str
    peer: str
    target: float = Field(gt=0)
    note: str = ""


class AssetName(Model):
    """A data set or model of ``kit.assets`` that the paper's study opens.

    Attributes:
        name: Its name in the assets' catalogue.
        experiments: The experiments that open it; empty for all.
    """

    name: str
    experiments: tuple[str, ...] = ()


class Paper(Model):
    """A paper's room, as data."""

    slug: str
    folder: Path
    title: str
    authors: tuple[str, ...] = Field(min_length=1)
    year: int
    venue: str = ""
    arxiv: str = ""
    openreview: str = ""
    code: str = ""
    licence: str
    family: str
    extra: str
    status: Status = "draft"
    basis: Basis
    summary: str
    response: str = ""
    experiment: dict[str, Experiment] = {}
    claim: tuple[Claim, ...] = ()
    erratum: tuple[Erratum, ...] = ()
    speed: tuple[SpeedTarget, ...] = ()
    asset: tuple[AssetName, ...] = ()

    @model_validator(mode="after")
    def _claims_fit(self) -> Paper:
        seen: set[str] = set()
        for claim in self.claim:
            if claim.id in seen:
                raise ValueError(f"claim id {claim.id!r} is there twice")
            if claim.id in self.experiment:
                raise ValueError(f"{claim.id!r} names both a claim and an experiment")
            seen.add(claim.id)
            for index, statement in enumerate(claim.statements()):
                where = f"claim {claim.id}" if index == 0 else f"claim {claim.id}.control[{index - 1}]"
                _known(f"{where}.experiment", statement.experiment, self.experiment)
                statement.check_against(self.experiment[statement.experiment], where)
        for what, names in (("speed", [s.name for s in self.speed]), ("asset", [a.name for a in self.asset])):
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{what} {name!r} is there twice")
        for asset in self.asset:
            for name in asset.experiments:
                _known(f"asset {asset.name}.experiments", name, self.experiment)
        return self

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """The claims by id, in order."""
        return {claim.id: claim for claim in self.claim}

    def standing_in(self, own: str, arm: str) -> Paper:
        """The paper as it reads with an arm of a reader's own in the place of one of the method's.

        Only the claims whose own statement reads that arm are left.
        """
        raw = self.model_dump()
        places = {name for name, experiment in self.experiment.items() if arm in experiment.method}

        def swap(names: Iterable[str]) -> list[str]:
            return [own if name == arm else name for name in names]

        for name in places:
            body = raw["experiment"][name]
            body["arms"], body["method"] = swap(body["arms"]), swap(body["method"])
            for metric in body["metric"].values():
                metric["needs"] = swap(metric["needs"])
            for scale in body["scale"].values():
                scale["arms"] = scale["arms"] and swap(scale["arms"])
        kept = []
        for claim, body in zip(self.claim, raw["claim"], strict=True):
            needs = self.experiment[claim.experiment].metric[claim.metric].needs
            if claim.experiment not in places or arm not in (*claim.arms, *needs):
                continue
            for statement in (body, *body["control"]):
                if (statement["experiment"] or claim.experiment) in places:
                    statement["arm"] = swap([statement["arm"]])[0]
                    statement["against"] = statement["against"] and swap([statement["against"]])[0]
            kept.append(body)
        return Paper.model_validate(raw | {"claim": kept})

    def scales_of(self, claim: Claim) -> tuple[str, ...]:
        """The scales at which a claim is judged: those it names, else all of its experiment but smoke."""
        if claim.scales:
            return tuple(s for s in SCALES if s in claim.scales)
        return tuple(s for s in SCALES if s != "smoke" and s in self.experiment[claim.experiment].scale)

    def statement_hash(self, claim: Claim, scale: str) -> str:
        """Fingerprint of all that must be fixed before a run: not of the wording.

        These are the statement and its controls, the values behind "mean", the number of seeds and, where a metric is
        derived, the code of derive.py.
        """
        parts: list[Any] = []
        derived = False
        for statement in claim.statements():
            experiment = self.experiment[statement.experiment]
            metric = experiment.metric[statement.metric]
            derived = derived or metric.derived
            seeds = experiment.at(scale).seeds if scale in experiment.scale else None
            over = {axis: experiment.level[axis] for axis in metric.over or ()}
            core = statement.model_dump(mode="json", include=set(Statement.model_fields))
            parts.append([core, statement.selection(experiment), over, metric.needs, seeds])
        if derived:
            parts.append(source_hash([self.folder / "derive.py"]))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def runnable(self, claim: Claim, scale: str) -> bool:
        """Whether every experiment that the claim reads has this scale with the arms and levels it names."""
        return all(_statement_fits(s, self.experiment[s.experiment], scale) for s in claim.statements())


def _statement_fits(statement: Statement, experiment: Experiment, scale: str) -> bool:
    if scale not in experiment.scale:
        return False
    levels = experiment.levels_at(scale)
    over = experiment.metric[statement.metric].over or ()
    return (
        set(statement.arms) <= set(experiment.arms_at(scale))
        and set(experiment.metric[statement.metric].needs) <= set(experiment.arms_at(scale))
        and all(set(values) <= set(levels[axis]) for axis, values in statement.selection(experiment).items())
        and all(set(experiment.level[axis]) == set(levels[axis]) for axis in over)
    )


def _known(where: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{where}: {value!r} is not one of {', '.join(map(repr, allowed))}")


def grid(levels: Mapping[str, tuple[LevelValue, ...]]) -> Iterator[dict[str, LevelValue]]:
    """Every combination of level values, the last axis fastest."""
    for values in itertools.product(*levels.values()):
        yield dict(zip(levels, values, strict=True))


def parse_paper(raw: Mapping[str, Any], folder: Path) -> Paper:
    """Validate the content of a ``paper.toml``.

    Raises:
        PaperError: Naming the file, the key, what stands there and what is allowed.
    """
    try:
        return Paper.model_validate({**raw, "slug": folder.name, "folder": folder})
    except ValidationError as error:
        raise PaperError(f"{folder / 'paper.toml'}: {_in_words(error, raw)}") from None


def _in_words(error: ValidationError, raw: Mapping[str, Any]) -> str:
    """The first problem: its key, what is wrong with it and what stands there."""
    found = error.errors(include_url=False)
    first = next((p for p in found if p["type"] == "extra_forbidden"), found[0])  # a misspelt key is missed elsewhere
    key = _key_of(first, raw)
    if first["type"] == "extra_forbidden":
        allowed = _fields_at(first["loc"][:-1])
        said = f"unknown key{did_you_mean(str(first['loc'][-1]), allowed)}; allowed: {', '.join(allowed)}"
    elif first["type"] == "missing":
        said = "is missing"
    else:  # a union complains once for each of its members: what all of them would take is said together
        same = dict.fromkeys(p["msg"] for p in found if _key_of(p, raw) == key)
        said = " or ".join(dict.fromkeys(_plain(message) for message in same)).replace(" or must be ", " or ")
    shown = repr(first["input"])
    shown = "" if isinstance(first["input"], dict) or not key else f" (got {shown[:80]}{'...' * (len(shown) > 80)})"
    return f"{key}: {said}{shown}" if key else said


_TOML_WORDS = {
    "Value error, ": "",
    "Input should be": "must be",
    "String should": "must",
    "Tuple should": "must",
    " or instance of Metric": "",
    "valid dictionary": "table",
    "valid tuple": "list",
    "valid integer": "whole number",
    "a valid ": "a ",
    " after validation, not 0": "",
}


def _plain(message: str) -> str:
    """A message of pydantic's in the words of a TOML file."""
    for theirs, ours in _TOML_WORDS.items():
        message = message.replace(theirs, ours)
    return message


def _key_of(problem: Any, raw: Any) -> str:
    """The path of a problem as a reader of the file would write it; what pydantic adds for unions is left out."""
    parts: list[str] = []
    for place, part in enumerate(problem["loc"]):
        if isinstance(raw, Mapping) and part in raw:
            parts.append(str(part))
            raw = raw[part]
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
            name = (raw.get("id") or raw.get("name")) if isinstance(raw, Mapping) else None
            parts[-1] += f"[{part}]" if name is None else f" {name}"
        elif problem["type"] == "missing" and place == len(problem["loc"]) - 1:
            parts.append(str(part))
    return ".".join(parts)


def _fields_at(path: tuple[int | str, ...]) -> list[str]:
    """The keys that the model at a path of the file has."""
    kind: Any = Paper
    for part in path:
        if hasattr(kind, "model_fields"):
            kind = kind.model_fields[part].annotation
        else:  # a table of models or a list of them
            kind = typing.get_args(kind)[1 if typing.get_origin(kind) is dict else 0]
        if typing.get_origin(kind) is Annotated:
            kind = typing.get_args(kind)[0]
    return [name for name in kind.model_fields if kind is not Paper or name not in ("slug", "folder")]


def load_paper(folder: Path) -> Paper:
    """Read and validate ``folder/paper.toml``."""
    return parse_paper(read_toml(folder), folder)
