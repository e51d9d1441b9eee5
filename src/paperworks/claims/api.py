"""What the command line and ``import paperworks`` call: run, judge, compare, export."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from paperworks.claims import catalog, engine, evidence, statistics, verdict
from paperworks.claims import speed as timing
from paperworks.claims.engine import Listener, Report, Request
from paperworks.claims.errors import PaperError, UsageError
from paperworks.claims.executors import one_thread
from paperworks.claims.ledger import DEFAULT_PATH, Ledger
from paperworks.claims.paper import SCALES, Claim, Paper, load_paper
from paperworks.claims.verdict import Comparison, Verdict


def run(
    request: Request, *, ledger: Path | None = None, jobs: int | None = None, command: str = "", show: bool = False
) -> Report:
    """Run what is asked for and is not in the ledger.

    Args:
        request: What to run.
        ledger: The ledger file; ``paperworks-runs/ledger.db`` here unless given.
        jobs: Worker processes; all cores unless given.
        command: The command line, kept with the run.
        show: Show progress on standard error.
    """
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(Ledger(ledger or DEFAULT_PATH))
        listener: Listener | None = None
        if show and sys.stderr.isatty():
            from paperworks.claims.progress import RichProgress

            listener = stack.enter_context(RichProgress())
        elif show:
            from paperworks.claims.progress import PlainProgress

            listener = PlainProgress()
        return engine.run(request, opened, jobs=jobs, command=command, listener=listener)


def verdicts(
    targets: Iterable[str] = (),
    *,
    scale: str | None = None,
    ledger: Path | None = None,
    seeds: Sequence[int] | None = None,
    source: str | None = None,
) -> list[Verdict]:
    """Judge claims: on your outcomes where you have some of the claim at that scale, else on the shipped.

    Args:
        targets: "paper", "paper.claim" or "paper.experiment"; all papers when empty, and only then with a
            Benjamini-Hochberg p over the index.
        scale: The scale; for each claim the first of laptop, overnight and paper at which it is tested unless given.
        ledger: The ledger file.
        seeds: Judge these seeds of yours instead of the declared ones; such verdicts are exploratory.
        source: "shipped" or "yours" to look at one of them only.
    """
    if scale is not None and scale not in SCALES:
        raise UsageError(f"--scale {scale!r} is not one of {', '.join(SCALES)}")
    named = list(targets)
    found: list[Verdict] = []
    with contextlib.ExitStack() as stack:
        opened = None
        if source != "shipped" and (ledger is not None or DEFAULT_PATH.exists()):
            opened = stack.enter_context(Ledger(ledger or DEFAULT_PATH, readonly=True))
        for slug, claims in _claims_of(named or catalog.rooms()).items():
            room = catalog.find(slug)
            found += _judge_paper(room, load_paper(room.folder), claims, scale, opened, seeds, source)
    return found if named else verdict.adjust_index(found)


def _claims_of(targets: Iterable[str]) -> dict[str, list[str]]:
    """The claims that targets name, by paper."""
    found: dict[str, list[str]] = {}
    for target in targets:
        room, paper, experiments, claim = engine.resolve(target)
        if claim is not None:
            named = [claim.id]
        else:
            named = [c.id for c in paper.claim if {s.experiment for s in c.statements()} & set(experiments)]
        there = found.setdefault(room.slug, [])
        there += [name for name in named if name not in there]
    return found


def _judge_paper(
    room: catalog.Room,
    paper: Paper,
    claims: Sequence[str],
    scale: str | None,
    ledger: Ledger | None,
    seeds: Sequence[int] | None,
    source: str | None,
) -> list[Verdict]:
    mine = None if ledger is None else evidence.recorded(ledger, paper.slug)
    shipped = None if source == "yours" else evidence.shipped(room.folder)
    chosen_scale = {claim.id: scale or _usual_scale(paper, claim) for claim in paper.claim}
    judged: dict[tuple[str, str], dict[str, Verdict]] = {}

    def look(record: evidence.Record | None, at: str) -> dict[str, Verdict]:
        key = ("none" if record is None else record.source, at)
        if key not in judged:
            own = seeds if record is None or record.source == "yours" else None
            given = None if record is None else evidence.evidence_at(paper, room.folder, record, at, own)
            judged[key] = {v.claim: v for v in verdict.judge(paper, given, at, own)}
        return judged[key]

    found = []
    for claim in paper.claim:
        at = chosen_scale[claim.id]
        if seeds is not None:  # seeds of one's own are never answered with the shipped ones
            found.append(look(mine, at)[claim.id])
            continue
        tried, needed = (0, 0) if mine is None else evidence.coverage(paper, claim, mine, at)
        there = look(shipped, at)[claim.id]
        if tried and (tried == needed or there.verdict == "untested"):
            found.append(look(mine, at)[claim.id])
        elif tried:
            rest = f"`paperworks run {paper.slug}.{claim.id}` runs the rest"
            also = f"Of its {needed:,} cells you have run {tried:,}: {rest}."
            found.append(dataclasses.replace(there, also=also))
        else:
            found.append(there)
    family = [v.p for v in found if v.judged and v.p is not None]
    adjusted = iter(statistics.holm(family))
    found = [dataclasses.replace(v, p_holm=next(adjusted) if v.judged else None) for v in found]
    return [v for v in found if v.claim in claims]


def own_verdicts(
    targets: Iterable[str] = (),
    *,
    scale: str | None = None,
    ledger: Path | None = None,
    seeds: Sequence[int] | None = None,
    methods: Mapping[str, engine.Method] | None = None,
) -> list[Verdict]:
    """Judge the arms of a reader's own, each in the place of the method's, by every claim that reads it.

    Args:
        targets: "paper", "paper.claim" or "paper.experiment"; all papers when empty.
        scale: The scale; for each claim the first of laptop, overnight and paper at which it is tested unless given.
        ledger: The ledger file.
        seeds: Judge these seeds instead of the declared ones; such verdicts are exploratory.
        methods: The arms wanted, each with its factory and code; all unless given, each as it was run last.

    Returns:
        Verdicts with ``custom`` and ``stands_for``; each is of the reader's own outcomes alone, and a claim of which
        nothing was run has none.
    """
    path = ledger or DEFAULT_PATH
    if ledger is None and not path.exists():
        return []
    found = []
    with Ledger(path, readonly=True) as opened:
        for slug, claims in _claims_of(list(targets) or catalog.rooms()).items():
            room = catalog.find(slug)
            paper = load_paper(room.folder)
            recorded = evidence.recorded(opened, slug)
            record = recorded if methods is None else evidence.only(recorded, methods)
            for at in SCALES if scale is None else (scale,):
                wanted = {c.id for c in paper.claim if c.id in claims and at == (scale or _usual_scale(paper, c))}
                for own, (method, places) in evidence.own_arms(paper, record, at, seeds).items() if wanted else ():
                    for arm in places if methods is None or own in methods else ():
                        given = evidence.stand_in(paper, room.folder, record, at, own, arm, seeds)
                        judged = verdict.judge(paper.standing_in(own, arm), given, at, seeds)
                        kept = [v for v in judged if v.claim in wanted and v.verdict != "untested"]
                        also = _also_held(own, str(method[0]), evidence.others(recorded, own, method))
                        found += [_as_own(v, own, arm, str(method[0]), also) for v in kept]
    return found


def _also_held(own: str, factory: str, others: Sequence[str]) -> str:
    if not others:
        return ""
    names = list(dict.fromkeys(name for name in others if name != factory))
    what = f"of {', '.join(names)}" if names else "of earlier code"
    return f"This is {own} = {factory}; outcomes {what} that the ledger holds under that name are not judged here."


def _as_own(found: Verdict, own: str, arm: str, factory: str, also: str = "") -> Verdict:
    """A verdict on an arm of a reader's own; what it says to run next names that arm too."""
    command, sentence = found.command, found.sentence
    if command is not None:
        by_value = factory.startswith("__main__:") or "<" in factory or "(" in factory
        command = f"{command} --arm {own}={'package.module:factory' if by_value else factory}"
        sentence = sentence.replace(f"`{found.command}`", f"`{command}`")
    return dataclasses.replace(
        found, custom=(own,), stands_for=arm, command=command, sentence=sentence, also=also or found.also
    )


def outcomes(report: Report, targets: Iterable[str], *, ledger: Path | None = None) -> pd.DataFrame:
    """The mean of every metric over the seeds of a run, also of cells that it found in the ledger.

    Returns:
        Columns experiment, the level axes, metric, and one an arm.
    """
    keys = set(report.keys)
    rows = []
    with Ledger(ledger or DEFAULT_PATH, readonly=True) as opened:
        for slug in dict.fromkeys(target.partition(".")[0] for target in targets):
            for row in opened.rows(catalog.find(slug).slug, drawings=False):
                if row.key in keys and row.status == "ok":
                    scores = {name: sum(s.values()) / len(s) for name, s in row.items.items() if s}
                    for metric, value in {**scores, **row.metrics}.items():
                        level = " ".join(f"{axis}={value}" for axis, value in row.level.items())
                        rows.append((row.experiment, level, metric, row.arm, value))
    table = pd.DataFrame(rows, columns=["experiment", "level", "metric", "arm", "mean"])
    order = list(dict.fromkeys(table["arm"]))
    index = ["experiment", "level", "metric"]
    wide = table.groupby([*index, "arm"], sort=False)["mean"].mean().unstack("arm")
    return wide.reindex(columns=order).reset_index()


def _usual_scale(paper: Paper, claim: Claim) -> str:
    scales = paper.scales_of(claim)
    return next((s for s in ("laptop", "overnight", "paper") if s in scales), "laptop")


def comparisons(found: Iterable[Verdict]) -> list[Comparison]:
    """Set verdicts on your outcomes beside the shipped ones."""
    compared = []
    for own in found:
        if own.evidence == "yours":
            (shipped,) = verdicts([f"{own.paper}.{own.claim}"], scale=own.scale, source="shipped")
            compared.append(verdict.compare(shipped, own))
    return compared


def export(slug: str, *, ledger: Path | None = None) -> tuple[Path, int]:
    """Write a ledger's laptop and overnight outcomes of a paper into its room; returns the file and their number."""
    room = catalog.find(slug)
    with Ledger(ledger or DEFAULT_PATH, readonly=True) as opened:
        record = evidence.recorded(opened, room.slug, drawings=True)
        return evidence.export(load_paper(room.folder), room.folder, record)


def speed(
    slug: str, *, save: bool = False, tell: Callable[[str], None] = lambda line: None
) -> tuple[list[timing.Ratio], list[str]]:
    """Measure every ``[[speed]]`` entry of a paper on one thread.

    Args:
        slug: The paper.
        save: Write the ratios into the room.
        tell: Hears what is measured next.

    Returns:
        The ratios, and for each entry that could not be measured one line that says why.
    """
    room = catalog.find(slug)
    ratios, problems = [], []
    for target in load_paper(room.folder).speed:
        tell(f"{slug} {target.name}: against {target.peer}")
        try:
            pair = timing.pair_of(room.module, target.name, "full")
            with one_thread():
                ratio = timing.measure(pair, target.name, target.peer, target.target)
                ours, peer = (timing.peak_memory(room.module, target.name, side) for side in ("ours", "peer"))
                ratios.append(dataclasses.replace(ratio, memory=ours, peer_memory=peer))
        except ModuleNotFoundError as error:
            problems.append(f"{target.name}: {error.name!r} is not installed (peers: uv pip install --group peers)")
        except PaperError as error:
            problems.append(f"{target.name}: {error}")
    if save and not problems:
        timing.save(room.folder, ratios)
    return ratios, problems
