"""What every paper must pass: `paperworks lint` and the contract tests both call `check`."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paperworks.claims import catalog, engine, evidence, fingerprint
from paperworks.claims.errors import PaperworksError, last_line
from paperworks.claims.executors import InlineExecutor, one_thread
from paperworks.claims.ledger import Ledger, Row
from paperworks.claims.paper import Claim, Paper, load_paper

CPU_BUDGET = 24.0  # seconds a paper, smoke included
SMOKE_BUDGET = 10.0
JOINT_RTOL = 1e-6


@dataclasses.dataclass
class Report:
    """What the contract found wrong with one paper.

    Attributes:
        problems: What must be mended.
        notes: What was not checked, or is worth knowing.
        seconds: Processor seconds of each part.
    """

    paper: str
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing must be mended."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe copy."""
        return {
            "paper": self.paper,
            "ok": self.ok,
            "problems": self.problems,
            "notes": self.notes,
            "seconds": self.seconds,
        }


@dataclasses.dataclass
class _Subject:
    room: catalog.Room
    paper: Paper
    report: Report
    known_assets: Collection[str] | None

    def complain(self, problem: str) -> None:
        self.report.problems.append(problem)


def check(room: catalog.Room, known_assets: Collection[str] | None = None, *, placebo: bool = False) -> Report:
    """Run the whole contract on one paper.

    Args:
        room: The paper.
        known_assets: Names in the assets' catalogue, to check the paper's against.
        placebo: Check the placebo alone.
    """
    report = Report(room.slug)
    try:
        subject = _Subject(room, load_paper(room.folder), report, known_assets)
    except PaperworksError as error:
        report.problems.append(str(error))
        return report
    every = (check_metadata, check_public_names, check_docstrings, check_evidence, check_speed, check_smoke)
    for part in (check_placebo,) if placebo else every:
        begun = time.process_time()
        try:
            part(subject)
        except PaperworksError as error:
            subject.complain(str(error))
        except Exception as error:
            subject.complain(f"{part.__name__}: {type(error).__name__}: {error}")
        report.seconds[part.__name__.removeprefix("check_")] = round(time.process_time() - begun, 2)
    return report


# --- metadata ------------------------------------------------------------------------------------------------------


def check_metadata(subject: _Subject) -> None:
    """What paper.toml alone can tell, beyond its own models."""
    room, paper = subject.room, subject.paper
    if room.folder.is_relative_to(catalog.PACKAGE) and paper.family != room.folder.parent.name:
        subject.complain(f"family is {paper.family!r}, but the room lies in {room.folder.parent.name!r}")
    if not paper.claim:
        subject.complain("paper.toml has no [[claim]]")
    for claim in paper.claim:
        for scale in paper.scales_of(claim):
            if scale != "paper" and not paper.runnable(claim, scale):
                subject.complain(
                    f"claim {claim.id} is judged at {scale!r}, where not all its arms, levels and experiments are run"
                )
        if "laptop" in paper.scales_of(claim):
            if not claim.control:
                subject.complain(f"claim {claim.id} has no control that fails when nothing was learnt")
            if not paper.runnable(claim, "smoke"):
                subject.complain(f"claim {claim.id}: the smoke scale does not run all arms and levels that it names")
            if paper.experiment[claim.experiment].scale["laptop"].seeds < 6:
                subject.complain(f"claim {claim.id}: fewer than 6 seeds at laptop scale show a trend only")
    for name, experiment in paper.experiment.items():
        for key in ("method", "factory") if "laptop" in experiment.scale else ():
            if not getattr(experiment, key):
                subject.complain(f"experiment {name}: {key!r} is missing, which an arm of a reader's own needs")
    if subject.known_assets is not None:
        for asset in paper.asset:
            if asset.name not in subject.known_assets:
                subject.complain(f"asset {asset.name!r} is not in the assets' catalogue")
    _check_errata(subject)


def _check_errata(subject: _Subject) -> None:
    root = catalog.PACKAGE.parents[1]
    for erratum in subject.paper.erratum:
        file, _, test = erratum.check.partition("::")
        if not (root / "tests").is_dir():
            subject.report.notes.append("errata: no tests folder here, their tests were not looked for")
            return
        path = root / file
        if not path.is_file() or f"def {test.rpartition('::')[2]}(" not in path.read_text(encoding="utf-8"):
            subject.complain(f"erratum {erratum.where!r}: its test {erratum.check} does not exist")


# --- public names --------------------------------------------------------------------------------------------------

# Runs in a process of its own, in which packages outside ``allowed`` (or inside ``blocked``) are not to be had.
_RESOLVE = """
import importlib, importlib.metadata, importlib.util, json, sys
allowed, blocked = set({allowed!r}), set({blocked!r})
owners = importlib.metadata.packages_distributions()
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        found = {{o.lower().replace("_", "-").replace(".", "-") for o in owners.get(top, [])}}
        if found & blocked or (allowed and found and not found & allowed):
            raise ModuleNotFoundError(f"No module named {{top!r}}", name=top)
sys.meta_path.insert(0, Refuse())
probe = importlib.util.find_spec
def absent(name, package=None):  # who asks whether a package is there is told no, as on a machine without it
    try:
        return probe(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = absent
room = importlib.import_module({module!r})
heavy = ("torch", "transformers", "sklearn", "scipy", "pandas", "numpy", "pydantic")
early = [m for m in heavy if m in sys.modules]
broken = {{}}
for name in getattr(room, "__all__", []):
    try:
        getattr(room, name)
    except Exception as error:
        broken[name] = f"{{type(error).__name__}}: {{error}}"
print(json.dumps({{"early": early, "broken": broken, "count": len(getattr(room, "__all__", []))}}))
"""


def _python(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise PaperworksError(last_line(done.stderr))
    return json.loads(done.stdout.splitlines()[-1])


def check_public_names(subject: _Subject) -> None:
    """Names resolve lazily, with no more than the declared extra; without it there is one clear line."""
    module, extra = subject.room.module, subject.paper.extra
    extras = ["core", *(importlib.metadata.metadata("paperworks").get_all("Provides-Extra") or [])]
    if extra not in extras:
        subject.complain(
            f"extra {extra!r} is not one of {', '.join(extras)}: name it in pyproject.toml and install anew"
        )
        return
    core = closure({"paperworks"})
    wanted = extra_requirements(extra)
    # A paper of another distribution brings what that one requires.
    home = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    allowed = sorted(core | closure(wanted) | closure(home))
    found = _python(_RESOLVE.format(module=module, allowed=allowed, blocked=[]))
    if found["early"]:
        subject.complain(f"importing {module} already imports {', '.join(found['early'])}: work at import time")
    if not found["count"]:
        subject.report.notes.append(f"{module} has no public names in __all__")
    for name, problem in found["broken"].items():
        subject.complain(f"{module}.{name} does not resolve with extra {extra!r} alone: {problem}")
    blocked = sorted(wanted - core)
    without = _python(_RESOLVE.format(module=module, allowed=[], blocked=blocked)) if blocked else {"broken": {}}
    for name, line in without["broken"].items():
        if f"pip install 'paperworks[{extra}]'" not in line:
            subject.complain(f"without extra {extra!r}, {module}.{name} says {line!r} and not how to install it")


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def extra_requirements(extra: str) -> set[str]:
    """Canonical names of what an extra of this package asks for directly, extras within extras included."""
    return {_canonical(name) for name in _requirements("paperworks", extra)} - {"paperworks"}


def _requirements(distribution: str, extra: str = "") -> set[str]:
    from packaging.requirements import Requirement

    try:
        texts = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    found: set[str] = set()
    for requirement in map(Requirement, texts):
        plain = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        wanted = plain if not extra else not plain and requirement.marker.evaluate({"extra": extra})  # type: ignore[union-attr]
        if not wanted:
            continue
        found.add(requirement.name)
        for inner in requirement.extras:
            found |= _requirements(requirement.name, inner)
    return found


def closure(distributions: Collection[str]) -> set[str]:
    """Canonical names of distributions with all that they require."""
    seen: set[str] = set()
    waiting = [_canonical(name) for name in distributions]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [_canonical(required) for required in _requirements(name)]
    return seen


# --- docstrings ----------------------------------------------------------------------------------------------------


def check_docstrings(subject: _Subject) -> None:
    """Every public name is documented, argument by argument, and every tensor with its shape."""
    room = importlib.import_module(subject.room.module)
    text = inspect.getdoc(room) or ""
    if "differences from the paper" not in text.lower():
        subject.complain(f"{subject.room.module}: the docstring has no 'Differences from the paper'")
    for name in getattr(room, "__all__", []):
        value = getattr(room, name)
        if not callable(value):
            continue
        for problem in _undocumented(name, value):
            subject.complain(problem)


def _undocumented(name: str, value: Any) -> Iterator[str]:
    text = inspect.getdoc(value) or ""
    if not text or (inspect.isclass(value) and value.__doc__ is None):
        yield f"{name} has no docstring"
        return
    calls: list[tuple[str, Callable[..., Any], str]] = []
    if inspect.isclass(value):
        if "__init__" in vars(value):
            calls.append((name, value.__init__, text + (inspect.getdoc(value.__init__) or "")))
        if "forward" in vars(value):
            calls.append((f"{name}.forward", vars(value)["forward"], inspect.getdoc(vars(value)["forward"]) or ""))
    else:
        calls.append((name, value, text))
    for called, function, doc in calls:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in {"self", "args", "kwargs"} or parameter.name.startswith("_"):
                continue
            if parameter.name not in doc:
                yield f"{called}: argument {parameter.name!r} is not in the docstring"
            annotation = str(parameter.annotation)
            if "Tensor" in annotation and "[" not in annotation and f"{parameter.name}" in doc:
                # Its line under "Args:" where it has one; a short name stands in many words.
                own = re.search(rf"^\s*\**{re.escape(parameter.name)}\b[^:\n]*:", doc, re.MULTILINE)
                entry = (doc[own.end() :] if own else doc.split(parameter.name, 1)[1])[:200]
                if not any(mark in entry for mark in "(["):
                    yield f"{called}: tensor {parameter.name!r} has no shape in signature or docstring"


# --- evidence ------------------------------------------------------------------------------------------------------


def check_evidence(subject: _Subject) -> None:
    """A "verified" paper ships evidence that judges every laptop claim, with the statements and code of today."""
    room, paper = subject.room, subject.paper
    record = evidence.shipped(room.folder)
    for problem in record.problems:
        subject.complain(problem)
    path = room.folder / "evidence.jsonl"
    if path.is_file() and path.stat().st_size > evidence.EVIDENCE_LIMIT:
        subject.complain(f"evidence.jsonl has {path.stat().st_size / 1000:.0f} KB; at most 300 KB are shipped")
    if paper.status != "verified":
        return
    from paperworks.claims import api

    for verdict in api.verdicts([room.slug], source="shipped"):
        claim = paper.claims[verdict.claim]
        if "laptop" in paper.scales_of(claim) and verdict.verdict == "untested":
            subject.complain(f"status is 'verified', but claim {claim.id} has no shipped evidence")
        if "incomplete" in verdict.flags:
            subject.complain(f"status is 'verified', but claim {claim.id} is not judged: {verdict.reason}")
        if "statement_changed" in verdict.flags:
            subject.complain(
                f"claim {claim.id} was changed after its evidence was run: move the version and run it again"
            )
    code = fingerprint.code_hash(room.folder)
    for run in record.runs.values():
        if run.code != code:
            subject.complain(
                "the method or study was changed after the shipped evidence was run: run `make evidence` again"
            )
            break


# --- speed ---------------------------------------------------------------------------------------------------------


def check_speed(subject: _Subject) -> None:
    """At small size ours and every peer return the same numbers."""
    from paperworks.claims import speed

    for target in subject.paper.speed:
        try:
            pair = speed.pair_of(subject.room.module, target.name, "small")
        except ModuleNotFoundError as error:
            subject.report.notes.append(f"speed {target.name}: peer {error.name!r} is not installed, not compared")
            continue
        problem = speed.difference(pair)
        if problem:
            subject.complain(f"speed {target.name}: {problem}")


# --- smoke ---------------------------------------------------------------------------------------------------------


def check_smoke(subject: _Subject) -> None:
    """Runs the smoke scale: repeatable, seeds and arms matter, no metric is constant, the placebo shows nothing."""
    paper, slug = subject.paper, subject.room.slug
    missing = [n for n, e in paper.experiment.items() if "smoke" not in e.scale and "laptop" in e.scale]
    for name in missing:
        subject.complain(f"experiment {name!r} has no smoke scale")
    if not any("smoke" in e.scale for e in paper.experiment.values()):
        return
    begun = time.process_time()
    first = _run(slug)
    spent = time.process_time() - begun
    if spent > SMOKE_BUDGET:
        subject.report.notes.append(f"the smoke scale took {spent:.1f} CPU-s; at most {SMOKE_BUDGET:g} are meant")
    for row in first:
        if row.status != "ok":
            subject.complain(f"smoke: {row.experiment} {row.arm}, seed {row.seed}: {last_line(row.error)}")
    if subject.report.problems:
        return
    for name, experiment in paper.experiment.items():
        if "smoke" in experiment.scale:
            _check_experiment(subject, name, [row for row in first if row.experiment == name])
    _check_statements(subject, first)
    check_placebo(subject, first)


def _run(target: str, **request: Any) -> list[Row]:
    """Run at smoke scale in this process, into a ledger that is thrown away."""
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger, one_thread():
        engine.run(engine.Request((target,), scale="smoke", **request), ledger, executor=InlineExecutor())
        found = ledger.rows(target.partition(".")[0])
        return [row for row in found if row.kind == "trial" or row.status != "ok"]


def _check_experiment(subject: _Subject, name: str, rows: list[Row]) -> None:
    experiment = subject.paper.experiment[name]
    sample = rows[0]
    again = _run(f"{subject.room.slug}.{name}", seeds=(sample.seed,), arms={sample.arm: None})
    twin = next((r for r in again if r.arm == sample.arm and r.level == sample.level), None)
    if twin is None or not _same(_numbers(twin), _numbers(sample), JOINT_RTOL if experiment.joint else 0.0):
        subject.complain(f"{name}: the same cell run twice gives different metrics: {_first_difference(sample, twin)}")
    for metric in (name for name, m in experiment.metric.items() if not m.derived):
        values = {v for row in rows for v in [*row.items.get(metric, {}).values(), row.metrics.get(metric)]} - {None}
        if len(values) == 1 and len(rows) > 1:
            subject.complain(f"{name}: metric {metric!r} is {values.pop():g} in every smoke outcome")
    # A baseline may know no chance; of some arm the seeds must differ.
    by_seed = {(r.arm, str(r.level), r.seed): _numbers(r) for r in rows}
    first = {(arm, level): numbers for (arm, level, seed), numbers in by_seed.items() if seed == sample.seed}
    twins = [(first[arm, level], n) for (arm, level, seed), n in by_seed.items()
             if seed != sample.seed and (arm, level) in first]  # fmt: skip
    if twins and all(one == other for one, other in twins):
        subject.complain(f"{name}: different seeds give the same metrics")


def _numbers(row: Row) -> dict[str, float]:
    """All that a cell measured: its metrics, and the score of each item."""
    items = {f"{metric} of item {item}": v for metric, scores in row.items.items() for item, v in scores.items()}
    return {**row.metrics, **items}


def _first_difference(first: Row, second: Row | None) -> str:
    if second is None:
        return "the second run has no such cell"
    a, b = _numbers(first), _numbers(second)
    return next((f"{m} = {a.get(m)!r} and {b.get(m)!r}" for m in {**a, **b} if a.get(m) != b.get(m)), "")


def _same(a: Mapping[str, float], b: Mapping[str, float], rtol: float) -> bool:
    return a.keys() == b.keys() and all(a[m] == b[m] or math.isclose(a[m], b[m], rel_tol=rtol) for m in a)


def _check_statements(subject: _Subject, rows: list[Row]) -> None:
    """Every metric that a claim reads is there, derived ones too, and its two arms differ in something."""
    room, paper = subject.room, subject.paper
    table = evidence.long_table(paper, room.folder, rows)
    for row in {row.experiment: row for row in rows}.values():  # after Ctrl-C a table may hold a single cell
        evidence.long_table(paper, room.folder, [row])
    for claim in _testable(paper):
        for statement in claim.statements():
            found = table[(table["experiment"] == statement.experiment) & (table["metric"] == statement.metric)]
            for arm in statement.arms:
                if found[found["arm"] == arm].empty:
                    subject.complain(
                        f"claim {claim.id}: the smoke outcomes have no {statement.metric!r} of arm {arm!r}"
                    )
        if claim.against is not None:
            mine, other = (
                {
                    (r.seed, json.dumps(r.level)): _numbers(r)
                    for r in rows
                    if r.experiment == claim.experiment and r.arm == arm
                }
                for arm in claim.arms
            )
            if mine == other:
                subject.complain(f"claim {claim.id}: arms {claim.arm!r} and {claim.against!r} give the same outcomes")


def check_placebo(subject: _Subject, rows: Sequence[Row] | None = None) -> None:
    """Under its own name, but with the baseline's factory, the method's arm must agree with the baseline.

    Then the factory is all that differs between the two, and the study never looks at an arm's name.

    Args:
        subject: The paper.
        rows: Its smoke outcomes; run unless given.
    """
    rows = _run(subject.room.slug) if rows is None else rows
    done = set()
    for claim in _testable(subject.paper):
        if claim.against is None or (claim.experiment, *claim.arms) in done:
            continue
        done.add((claim.experiment, *claim.arms))
        arm, against = claim.arms
        seed = min(row.seed for row in rows if row.experiment == claim.experiment)
        fake = _run(f"{subject.room.slug}.{claim.experiment}", seeds=(seed,), arms={arm: None}, placebo={arm: against})
        baseline = {
            json.dumps(r.level): r
            for r in rows
            if r.experiment == claim.experiment and r.arm == against and r.seed == seed
        }
        for row in fake:
            if json.dumps(row.level) in baseline:
                other = baseline[json.dumps(row.level)]
                if row.status != "ok" or not _same(_numbers(row), _numbers(other), JOINT_RTOL):
                    how = _first_difference(other, row) if row.status == "ok" else last_line(row.error)
                    subject.complain(
                        f"claim {claim.id}, placebo: {arm!r} given the factory of {against!r} still differs: {how}"
                    )
                    break


def _testable(paper: Paper) -> list[Claim]:
    return [claim for claim in paper.claim if paper.runnable(claim, "smoke")]
