"""Writes the site: every page and data file into a folder beside, which then takes the place of the old one."""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib.resources
import os
import shutil
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

import paperworks
from paperworks.claims import api, catalog, evidence, wording
from paperworks.claims.errors import UsageError
from paperworks.claims.evidence import Record
from paperworks.claims.ledger import DEFAULT_PATH, Ledger
from paperworks.claims.paper import load_paper
from paperworks.claims.report import text
from paperworks.claims.report.content import PaperPage, gather
from paperworks.claims.report.speeds import Measured, read_speeds, shipped_speeds
from paperworks.claims.statistics import MIN_UNITS
from paperworks.claims.verdict import VERDICTS, Verdict

MARKER = ".paperworks-report"
_MARKER_TEXT = "Written by `paperworks report`, which replaces this whole folder when it is run again.\n"
_STATIC = ("style.css", "site.js")


def write_site(
    out: Path,
    papers: Sequence[str] | None = None,
    ledger: Path | None = None,
    *,
    speed: Path | None = None,
    source: str | None = None,
) -> Path:
    """Write the report as a static site that opens from disk.

    A folder that an earlier report left at ``out`` is replaced as a whole; what stands there is either the old report
    or the new one.

    Args:
        out: The site's folder.
        papers: Slugs of the papers shown; all unless given.
        ledger: Your outcomes; ``paperworks-runs/ledger.db`` here when it is there, unless given.
        speed: JSON file of speed ratios, as `paperworks speed --json` prints them, shown instead of the shipped ones.
        source: "shipped" leaves every ledger out, "yours" the shipped evidence.

    Returns:
        The path of ``index.html``.

    Raises:
        UsageError: When ``out`` is something else than an earlier report, or a paper is unknown.
        PaperError: When a room or the file of speed ratios is wrong.
    """
    target = Path(os.path.abspath(out))
    _check_target(target)
    measured = read_speeds(speed) if speed is not None else []
    pages = collect(papers, ledger, measured, source)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        fresh.mkdir()
        _write(fresh, pages)
        _swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target / "index.html"


def _check_target(target: Path) -> None:
    """Refuse to replace anything that is not an earlier report or an empty folder."""
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError(f"--out {target} is not a folder; name a folder for the report")
    if not (target / MARKER).is_file() and any(target.iterdir()):
        raise UsageError(
            f"--out {target} holds files that no earlier report wrote (there is no {MARKER}); name another folder"
        )


def _swap(fresh: Path, target: Path) -> None:
    """Put ``fresh`` in the place of ``target``; when that fails the old folder is put back."""
    if not target.exists():
        os.rename(fresh, target)
        return
    old = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
    os.rename(target, old)
    try:
        os.rename(fresh, target)
    except OSError:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


# --- what is shown -------------------------------------------------------------------------------------------------


def collect(
    papers: Sequence[str] | None,
    ledger: Path | None,
    measured: Sequence[Measured] = (),
    source: str | None = None,
) -> list[PaperPage]:
    """Judge the papers and gather their pages, in the catalogue's order."""
    rooms = catalog.rooms()
    chosen = list(rooms) if not papers else list(dict.fromkeys(catalog.find(name).slug for name in papers))
    verdicts = _by_paper(api.verdicts(chosen if papers else (), ledger=ledger, source=source))
    own_arms = _by_paper(api.own_verdicts(chosen, ledger=ledger) if source != "shipped" else ())
    names = text.Names()
    pages = []
    with _opened(ledger, source) as opened:
        for slug in chosen:
            room = rooms[slug]
            paper = load_paper(room.folder)
            own = verdicts.get(slug, [])
            yours: Record | None = evidence.recorded(opened, slug, drawings=True) if opened is not None else None
            shipped = None if source == "yours" else evidence.shipped(room.folder)
            beside: list[Verdict] = []
            if shipped is not None and shipped.rows and any(v.evidence == "yours" for v in own):
                beside = api.verdicts([slug], source="shipped")
            ratios = [one for one in measured if one.paper == slug] or shipped_speeds(room)
            mine = own_arms.get(slug, ())
            pages.append(gather(room, paper, own, beside, shipped, yours, ratios, names.new(slug), mine))
    return pages


@contextlib.contextmanager
def _opened(ledger: Path | None, source: str | None) -> Iterator[Ledger | None]:
    if source == "shipped" or (ledger is None and not DEFAULT_PATH.exists()):
        yield None
        return
    with Ledger(ledger or DEFAULT_PATH, readonly=True) as opened:
        yield opened


def _by_paper(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.paper, []).append(verdict)
    return found


# --- pages ---------------------------------------------------------------------------------------------------------


def _write(folder: Path, pages: Sequence[PaperPage]) -> None:
    templates = environment()
    written = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    shared: dict[str, Any] = {"pages": pages, "written": written, "version": paperworks.__version__}

    def page(name: str, template: str, root: str, **more: Any) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        html = templates.get_template(template).render(**shared, root=root, here=name, **more)
        path.write_text(html, encoding="utf-8")

    (folder / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
    static = folder / "static"
    static.mkdir()
    for name in _STATIC:
        (static / name).write_text(static_text(name), encoding="utf-8")
    page("index.html", "index.html", "")
    page("errata.html", "errata.html", "")
    page("verdicts.html", "verdicts.html", "", min_units=MIN_UNITS)
    for one in pages:
        page(f"papers/{one.name}.html", "paper.html", "../", page=one)
        data = folder / "papers" / one.name
        if one.files:
            data.mkdir()
        for name, content in one.files.items():
            (data / name).write_text(content, encoding="utf-8")


@functools.cache
def static_text(name: str) -> str:
    """The site's stylesheet or script."""
    return (importlib.resources.files(__package__) / "static" / name).read_text(encoding="utf-8")


@functools.cache
def environment() -> jinja2.Environment:
    """The templates, with everything escaped that is not marked as safe."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("paperworks.claims.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["spans"] = text.code_spans
    made.filters["prose"] = text.prose
    made.filters["listed"] = text.listed
    made.filters["quoted"] = urllib.parse.quote
    made.globals |= {
        "VERDICTS": VERDICTS,
        "TESTS": text.TESTS,
        "TEST_MEANING": text.TEST_MEANING,
        "BASES": text.BASES,
        "STATUSES": text.STATUSES,
        "FLAGS": text.FLAGS,
        "SOURCES": text.SOURCES,
        "VERDICT_MEANING": text.VERDICT_MEANING,
        "author_links": text.author_links,
        "number": wording.number,
        "about": wording.about,
        "p_value": wording.p_value,
        "reported": lambda value: value if isinstance(value, str) else wording.number(value),
    }
    return made
