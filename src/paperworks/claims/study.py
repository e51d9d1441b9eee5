"""How a study is written: an experiment is a function of a `Trial` that returns an `Outcome`.

The arms of an experiment are factories. The function asks ``trial.build(...)`` for the method under test and never
looks at the arm's name, so anybody's own method can take an arm's place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from paperworks.claims.errors import PaperError, UsageError

if TYPE_CHECKING:
    import torch

    from paperworks.claims.paper import LevelValue


class ExperimentConfig(BaseModel):
    """Base of a study's configuration: immutable, unknown fields refused; document every field with its unit."""

    # It travels to the workers as JSON, where an infinite number must not become null.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


ConfigT = TypeVar("ConfigT", bound=ExperimentConfig)
Factory = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """The unit of record: one arm at one point of the level axes with one seed (and, when tuning, one set of knobs)."""

    arm: str
    level: Mapping[str, LevelValue]
    seed: int
    knobs: Mapping[str, LevelValue] = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.arm, tuple(sorted(self.level.items())), self.seed, tuple(sorted(self.knobs.items()))))

    def __str__(self) -> str:
        named = {**self.level, **self.knobs}
        return ", ".join([self.arm, *(f"{axis}={value}" for axis, value in named.items()), f"seed {self.seed}"])

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe copy."""
        return {"arm": self.arm, "level": dict(self.level), "seed": self.seed, "knobs": dict(self.knobs)}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one cell measured.

    Attributes:
        metrics: Metric name to finite number; divergence is a metric of its own, not NaN.
        items: For metrics measured on a fixed item set: metric name to {item id: score}.
        figures: File name to SVG text, shown in the report.
        curves: Curve name to [(step, value), ...]; filled in from ``trial.curve``.
    """

    metrics: Mapping[str, float]
    items: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[float, float]]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Turn numbers into plain floats and refuse those that are not finite."""
        object.__setattr__(self, "metrics", {name: _finite(f"metric {name!r}", v) for name, v in self.metrics.items()})
        items = {m: {str(i): _finite(f"item {i!r} of {m!r}", v) for i, v in s.items()} for m, s in self.items.items()}
        object.__setattr__(self, "items", items)
        curves = {
            c: [(_finite(f"step of {c!r}", s), _finite(f"value of {c!r}", v)) for s, v in points]
            for c, points in self.curves.items()
        }
        object.__setattr__(self, "curves", curves)


def _finite(what: str, value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}; an outcome holds finite numbers (make divergence a metric of its own)")
    return number


class Streams:
    """Independent named random streams of one seed of one experiment.

    They depend on the paper, the experiment and its version, the seed and the stream's name: never on arm, level or the
    number of workers, so that arms are paired.
    """

    def __init__(self, *origin: object) -> None:
        self._origin = "/".join(str(part) for part in origin)

    def _entropy(self, name: str) -> int:
        if not name:
            raise ValueError("a random stream needs a name, such as 'data' or 'init'")
        return int.from_bytes(hashlib.sha256(f"{self._origin}/{name}".encode()).digest()[:16], "big")

    def rng(self, name: str) -> np.random.Generator:
        """A NumPy generator at the start of the named stream."""
        return np.random.default_rng(self._entropy(name))

    def generator(self, name: str, device: str = "cpu") -> torch.Generator:
        """A torch generator at the start of the named stream."""
        import torch

        return torch.Generator(device=device).manual_seed(self._entropy(name) % 2**63)

    @contextlib.contextmanager
    def seeded(self, name: str) -> Iterator[None]:
        """Seed the global generators of Python, NumPy and torch for code that takes none, and restore them after."""
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        with contextlib.ExitStack() as stack:
            if "torch" in sys.modules:
                import torch

                stack.enter_context(torch.random.fork_rng())
            seed_globals(self._entropy(name))
            try:
                yield
            finally:
                random.setstate(python_state)
                np.random.set_state(numpy_state)  # noqa: NPY002


def seed_globals(entropy: int) -> None:
    """Seed the global generators of Python, NumPy and, where it is loaded, torch."""
    random.seed(entropy)
    np.random.seed(entropy % 2**32)  # noqa: NPY002 - third parties draw from it
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(entropy % 2**63)


class Trial(Generic[ConfigT]):
    """One call of a study's function: what to compute, the arm's factory and the random streams.

    Attributes:
        cells: The cells that this call computes; more than one only when the experiment is ``joint``.
        scale: "smoke", "laptop", "overnight" or "paper".
        config: The configuration at this scale.
    """

    def __init__(
        self,
        *,
        origin: Sequence[object],
        cells: Sequence[Cell],
        scale: str,
        config: ConfigT,
        arms: Mapping[str, Factory],
        prepared: Callable[[str, int | None], Path] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        gpus: float = 0.0,
    ) -> None:
        self._gpus = gpus
        self.cells = tuple(cells)
        self.scale = scale
        self.config = config
        self._origin = tuple(origin)
        self._arms = arms
        self._prepared = prepared
        self._on_progress = on_progress
        self._curves: dict[int, dict[str, list[tuple[float, float]]]] = {}

    def _cell(self, cell: Cell | None) -> Cell:
        if cell is not None:
            return cell
        if len(self.cells) == 1:
            return self.cells[0]
        raise ValueError(f"this call computes {len(self.cells)} cells jointly: say which cell is meant")

    def _shared(self, what: str) -> Any:
        values = {json.dumps(value, sort_keys=True): value for value in (getattr(c, what) for c in self.cells)}
        if len(values) > 1:
            raise ValueError(f"the cells of this joint call differ in {what}: read it from each of trial.cells")
        return next(iter(values.values()))

    @property
    def arm(self) -> str:
        """The arm's name, for labels only: what differs between arms belongs in the factory."""
        return str(self._shared("arm"))

    @property
    def level(self) -> Mapping[str, LevelValue]:
        """The value of every level axis."""
        return MappingProxyType(dict(self._shared("level")))

    @property
    def knobs(self) -> Mapping[str, LevelValue]:
        """The tuned values for this arm, from the `tune` stage."""
        return MappingProxyType(dict(self._shared("knobs")))

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self._shared("seed"))

    @property
    def device(self) -> str:
        """Where to compute: "cuda" when the scale asks for GPUs and there is one, else "cpu"."""
        if self._gpus <= 0:
            return "cpu"
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def build(self, *args: Any, cell: Cell | None = None, **kwargs: Any) -> Any:
        """Call the arm's factory.

        Raises:
            UsageError: When the factory cannot be called with these arguments; a reader's own may have another shape.
        """
        arm = self._cell(cell).arm if cell is not None or len(self.cells) == 1 else self.arm
        _check_call(arm, self._arms[arm], args, kwargs)
        return self._arms[arm](*args, **kwargs)

    def _streams(self, cell: Cell | None) -> Streams:
        seed = cell.seed if cell is not None else self.seed
        return Streams(*self._origin, seed)

    def rng(self, name: str, cell: Cell | None = None) -> np.random.Generator:
        """A NumPy generator at the start of the named stream of this seed, the same for every arm and level."""
        return self._streams(cell).rng(name)

    def generator(self, name: str, cell: Cell | None = None, device: str = "cpu") -> torch.Generator:
        """A torch generator at the start of the named stream of this seed, the same for every arm and level."""
        return self._streams(cell).generator(name, device)

    def seeded(self, name: str, cell: Cell | None = None) -> contextlib.AbstractContextManager[None]:
        """A context in which the global generators are seeded from the named stream."""
        return self._streams(cell).seeded(name)

    def prepared(self, name: str, cell: Cell | None = None) -> Path:
        """The folder that the `prepared` builder of this name has filled."""
        if self._prepared is None:
            raise PaperError(f"prepared artefact {name!r}: the experiment does not list it in prepared=(...)")
        seeds = {c.seed for c in (self.cells if cell is None else (cell,))}
        return self._prepared(name, seeds.pop() if len(seeds) == 1 else None)

    def progress(self, done: int, total: int) -> None:
        """Tell how far this call is; shown to the user, never recorded."""
        if self._on_progress is not None:
            self._on_progress(done, total)

    def curve(self, name: str, step: float, value: float, cell: Cell | None = None) -> None:
        """Add a point to a curve of this cell's outcome; a value that is not finite is left out."""
        if math.isfinite(value) and math.isfinite(step):
            index = self.cells.index(self._cell(cell))
            self._curves.setdefault(index, {}).setdefault(name, []).append((float(step), float(value)))

    def finish(self, cell: Cell, outcome: Outcome) -> Outcome:
        """The outcome with the curves drawn for this cell."""
        curves = {**self._curves.get(self.cells.index(cell), {}), **outcome.curves}
        return dataclasses.replace(outcome, curves=curves)


def _check_call(arm: str, factory: Factory, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # what is written in C may not tell
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = ", ".join([*("..." for _ in args), *(f"{name}=..." for name in kwargs)])
        raise UsageError(
            f"arm {arm!r} is built as factory({given}); this factory takes ({', '.join(signature.parameters)}): "
            f"{error}; `paperworks show PAPER` says what it is called with and must return"
        ) from None


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Knobs to choose for every arm alike, before the trials and on seeds of their own."""

    knobs: Mapping[str, Sequence[LevelValue]]
    metric: str
    better: Literal["higher", "lower"]
    seeds: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment's function with its configurations and arms; made by `experiment`."""

    name: str
    function: Callable[[Trial[Any]], Outcome | Iterator[tuple[Cell, Outcome]]]
    config: Mapping[str, ExperimentConfig]
    arms: Mapping[str, Factory]
    prepared: tuple[str, ...] = ()
    tuning: Tuning | None = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A builder of something costly that trials share; made by `prepared`."""

    name: str
    function: Callable[[Preparation], None]
    version: int
    scope: Literal["once", "seed"]
    timeout: float
    config: Mapping[str, ExperimentConfig]


@dataclasses.dataclass(frozen=True)
class Preparation(Streams):
    """What a `prepared` builder gets: an empty folder to fill, the configuration and named random streams."""

    folder: Path
    config: Any
    seed: int | None
    origin: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        """Start the streams."""
        object.__setattr__(self, "_origin", "/".join(str(part) for part in self.origin))


def experiment(
    name: str, *, config: Mapping[str, ExperimentConfig], arms: Mapping[str, Factory], prepared: Sequence[str] = ()
) -> Callable[[Callable[[Trial[Any]], Any]], Study]:
    """Make a function the study of ``[experiment.<name>]`` in paper.toml.

    Args:
        name: The experiment's name in paper.toml.
        config: A configuration for every scale that paper.toml lists for it.
        arms: A factory for every arm that paper.toml lists for it.
        prepared: Names of the `prepared` artefacts that the function opens.
    """

    def decorate(function: Callable[[Trial[Any]], Any]) -> Study:
        return Study(name, function, dict(config), dict(arms), tuple(prepared))

    return decorate


def tune(
    *, seeds: Sequence[int], metric: str, better: Literal["higher", "lower"] = "higher", **knobs: Sequence[LevelValue]
) -> Callable[[Study], Study]:
    """Choose knobs for each arm at each level on seeds of their own, by the mean of one metric; put above `experiment`.

    The function reads them as ``trial.knobs["lr"]``. Outcomes of this stage are kept as kind "tune" and never judged.
    """
    if not knobs or not all(knobs.values()):
        raise PaperError("@tune needs at least one knob with its values, such as lr=[0.1, 0.01]")
    if not seeds:
        raise PaperError("@tune needs at least one seed, such as seeds=range(100, 104)")

    def decorate(study: Study) -> Study:
        return dataclasses.replace(study, tuning=Tuning(knobs, metric, better, tuple(seeds)))

    return decorate


def prepared(
    name: str,
    *,
    version: int = 1,
    scope: Literal["once", "seed"] = "once",
    timeout: float = 600,
    config: Mapping[str, ExperimentConfig] | None = None,
) -> Callable[[Callable[[Preparation], None]], Prepared]:
    """Make a function the builder of an artefact that trials share: a corpus, a tiny pre-trained model.

    It runs in a stage of its own before the trials, under a lock, once for all (or once a seed), and fills
    ``preparation.folder``. Move ``version`` when what it builds changes.
    """

    def decorate(function: Callable[[Preparation], None]) -> Prepared:
        return Prepared(name, function, version, scope, timeout, dict(config or {}))

    return decorate
