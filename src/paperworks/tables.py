"""The library in Python: `papers`, `verdicts` and `run`, as pandas tables that a notebook cell shows well."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import pandas as pd

from paperworks.claims import api, catalog
from paperworks.claims.engine import Request
from paperworks.claims.errors import UsageError, last_line
from paperworks.claims.verdict import Verdict

# The field of a verdict by its column.
_COLUMNS = {
    "verdict": "verdict",
    "effect": "effect",
    "low": "low",
    "high": "high",
    "margin": "margin",
    "n": "n",
    "unit": "unit",
    "p": "p",
    "p_holm": "p_holm",
    "test": "test",
    "scale": "scale",
    "evidence": "evidence",
    "flags": "flags",
    "own_arm": "custom",
    "in_place_of": "stands_for",
    "text": "text",
    "sentence": "sentence",
}
_COLOURS = {"supported": "#1a7f37", "opposite": "#b35900", "void": "#8250df"}


class Table(pd.DataFrame):
    """A DataFrame that a notebook shows with its long texts whole; what is taken from it is a plain DataFrame."""

    shown: tuple[str, ...] = ()
    _metadata = ["shown"]

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        shown = self.reset_index()[list(self.shown)]
        style = shown.style.hide(axis="index").format(precision=3, na_rep="", escape="html")
        style = style.set_properties(None, **{"text-align": "left", "vertical-align": "top", "white-space": "normal"})
        if "verdict" in shown:
            style = style.map(lambda v: f"font-weight: 600; color: {_COLOURS.get(v, 'inherit')}", subset=["verdict"])
        return str(style.set_table_styles([{"selector": "th", "props": "text-align: left"}]).to_html())


def _table(
    rows: Sequence[Mapping[str, Any]], index: Sequence[str], columns: Sequence[str], shown: Sequence[str]
) -> Table:
    table = Table(pd.DataFrame(rows, columns=[*index, *columns]).set_index(list(index)))
    table.shown = tuple(shown)
    return table


def papers() -> pd.DataFrame:
    """The papers: one row each, by slug; columns family, title, status, basis, claims, extra and module."""
    columns = ("family", "title", "status", "basis", "claims", "extra", "module")
    modules = {slug: room.module for slug, room in catalog.rooms().items()}
    rows = [{**row, "module": modules[row["paper"]]} for row in catalog.summaries()]
    return _table(rows, ["paper"], columns, ("paper", "family", "title", "status", "claims", "module"))


def verdicts(*targets: str, scale: str | None = None, ledger: str | Path | None = None) -> pd.DataFrame:
    """What the evidence says about each claim: yours where you have run all of it, else the shipped.

    Args:
        targets: "paper", "paper.claim" or "paper.experiment"; all papers when there is none.
        scale: "smoke", "laptop", "overnight" or "paper"; for each claim the first at which it is tested unless given.
        ledger: The ledger file; ``paperworks-runs/ledger.db`` here, where there is one, unless given.

    Returns:
        One row a claim, by paper and claim: the verdict, the mean contrast ``effect`` with its 95 % interval ``low`` to
        ``high`` (larger supports the claim), the ``margin`` it is judged against, ``sentence`` in words and others. An
        arm of your own has rows of its own, with ``own_arm`` and the arm ``in_place_of`` which it is judged.
    """
    path = None if ledger is None else Path(ledger)
    found = api.verdicts(targets, scale=scale, ledger=path)
    return _verdict_table([*found, *api.own_verdicts(targets, scale=scale, ledger=path)])


def run(
    *targets: str,
    scale: str = "laptop",
    seeds: int | Iterable[int] | None = None,
    arms: Mapping[str, Any] | Iterable[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    ledger: str | Path | None = None,
    again: bool = False,
) -> pd.DataFrame:
    """Run claims or experiments; what the ledger has is not run again.

    Args:
        targets: "paper", "paper.claim" or "paper.experiment", one at least.
        scale: "smoke", "laptop", "overnight" or "paper".
        seeds: How many (6 is 0 to 5), or which; the declared ones unless given.
        arms: Names of the arms to run, all unless given; or arms of your own to run beside them, as
            ``{"mine": MyAttention}``, a class, function or "package.module:factory". `paperworks show` tells what an
            experiment calls a factory with.
        settings: Fields of the study's configuration to change; such outcomes are never judged.
        jobs: Worker processes; all cores unless given.
        ledger: The ledger file; ``paperworks-runs/ledger.db`` here unless given.
        again: Run also what the ledger has.

    Returns:
        The verdicts on your outcomes, as `verdicts` has them. Cells that failed are told in a warning.

    Raises:
        UsageError: When something that is named does not exist, or a factory cannot be called as it must be.
    """
    path = None if ledger is None else Path(ledger)
    if not targets or not all(isinstance(target, str) for target in targets):
        raise UsageError(f"run{targets!r}: name what to run, such as 'quest' or 'quest.Q1b'")
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs = {jobs!r}: a number of worker processes of at least 1 is needed")
    if isinstance(arms, str):
        raise UsageError(f"arms = {arms!r}: a list of names is needed, or a dictionary of arms of your own")
    chosen = _seeds(seeds)
    named = dict(arms) if isinstance(arms, Mapping) else dict.fromkeys(arms or ())
    request = Request(targets, scale, chosen, named, dict(settings or {}), again)
    report = api.run(request, ledger=path, jobs=jobs, command=f"paperworks.run{targets!r}", show=sys.stderr.isatty())
    if report.failed:
        first = report.failed[0]
        warnings.warn(
            f"{len(report.failed)} of {report.ran} cells failed, the first in {first.experiment}, arm {first.arm}, "
            f"seed {first.seed}: {last_line(first.error)}",
            stacklevel=2,
        )
    if request.settings:
        return _verdict_table([])
    found = api.verdicts(targets, scale=scale, ledger=path, seeds=chosen, source="yours")
    own = api.own_verdicts(targets, scale=scale, ledger=path, seeds=chosen, methods=report.methods)
    return _verdict_table([*found, *own])


def _seeds(given: int | Iterable[int] | None) -> tuple[int, ...] | None:
    if given is None:
        return None
    whole = isinstance(given, int) and not isinstance(given, bool)
    seeds: tuple[Any, ...] = ()
    if whole:
        seeds = tuple(range(given))  # type: ignore[arg-type]
    elif isinstance(given, Iterable) and not isinstance(given, str):
        seeds = tuple(dict.fromkeys(given))
    if not seeds or not all(isinstance(s, Integral) and not isinstance(s, bool) and int(s) >= 0 for s in seeds):
        raise UsageError(f"seeds = {given!r}: a number of seeds, or whole numbers of at least 0, are needed")
    return tuple(int(seed) for seed in seeds)


def _verdict_table(found: Sequence[Verdict]) -> pd.DataFrame:
    rows = []
    for one in found:
        row = {column: getattr(one, field) for column, field in _COLUMNS.items()}
        rows.append({**row, "paper": one.paper, "claim": one.claim, "own_arm": ", ".join(one.custom) or None})
    own = ["own_arm", "in_place_of"] if any(one.custom for one in found) else []
    return _table(rows, ["paper", "claim"], list(_COLUMNS), ("paper", "claim", "verdict", *own, "text", "sentence"))
