"""Words, links and names of the pages. Everything here that returns Markup has escaped what it was given."""

from __future__ import annotations

import csv
import io
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from paperworks.claims import wording
from paperworks.claims.paper import Paper
from paperworks.claims.report.docstring import Block, blocks, statements

TESTS = {
    "direct": "direct test",
    "reduced": "reduced test",
    "analogue": "analogue test",
}
TEST_MEANING = {
    "direct": "theory, or the paper's own data and setting",
    "reduced": "the same system, smaller",
    "analogue": "another system in which the same mechanism should show",
}
BASES = {
    "official-code": "official code",
    "full-text": "full text",
    "secondary": "secondary sources",
}
STATUSES = {
    "draft": "draft",
    "working": "working: the method and its study pass the contract",
    "verified": "working, and every claim that a laptop can test has been judged here",
}
FLAGS = {
    "incomplete": "Some cells that this claim reads are missing or did not finish.",
    "few_seeds": "Fewer than six units: this shows a trend and decides nothing.",
    "skewed": "The unit values are skewed, so that the interval could mislead.",
    "custom": "An arm was replaced by a method of the reader's own.",
    "statement_changed": "The statement was changed after these runs; only fresh seeds can judge it.",
    "code_changed": "The code was changed after these runs.",
    "exploratory": "Seeds other than the declared ones: exploratory.",
    "secondary_basis": "Details of the method are known from secondary sources only and may differ from the authors'.",
}
VERDICT_MEANING = {
    "supported": "The whole 95 % interval of the contrast lies beyond the margin, and the sign-flip test agrees.",
    "opposite": "The whole interval lies on the other side of no difference.",
    "below margin": "The interval lies below a positive margin, without lying on the other side of no difference.",
    "undecided": "The units measured so far decide nothing; the page says how many would.",
    "void": "A control did not pass, so that the contrast says nothing of the claim.",
    "untested": "No outcomes here; often only the paper's own scale can test it.",
}
SOURCES = {"shipped": "shipped evidence", "yours": "your evidence"}

_ARXIV = re.compile(r"^(\d{4}\.\d{4,5}|[a-z-]+(\.[A-Z]{2})?/\d{7})(v\d+)?$")
_OPENREVIEW = re.compile(r"^[A-Za-z0-9_-]+$")
_CODE_SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def web_address(text: str) -> str | None:
    """The text itself when it is an http or https address, else ``None``: nothing else is ever made a link."""
    try:
        parts = urllib.parse.urlsplit(text.strip())
    except ValueError:
        return None
    return text.strip() if parts.scheme in ("http", "https") and parts.netloc else None


def author_links(paper: Paper) -> list[tuple[str, str]]:
    """Label and address of the authors' own pages that paper.toml names soundly."""
    links = []
    if _ARXIV.fullmatch(paper.arxiv):
        links.append((f"arXiv {paper.arxiv}", f"https://arxiv.org/abs/{paper.arxiv}"))
    if _OPENREVIEW.fullmatch(paper.openreview):
        links.append(("OpenReview", f"https://openreview.net/forum?id={paper.openreview}"))
    if code := web_address(paper.code):
        links.append(("the authors' code", code))
    return links


def code_spans(text: str) -> Markup:
    """Text with what stands between backticks as code."""
    parts = []
    end = 0
    for match in _CODE_SPAN.finditer(text):
        parts += [escape(text[end : match.start()]), Markup("<code>{}</code>").format(match[2].strip())]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def prose(text: str) -> Markup:
    """A docstring's text as paragraphs, lists and literal blocks."""
    return _markup(blocks(text))


def listed(text: str) -> Markup:
    """A docstring's section of short statements, as a list."""
    return _markup(statements(text))


def _markup(found: Iterable[Block]) -> Markup:
    made = []
    for block in found:
        if block.kind == "list":
            entries = Markup("").join(Markup("<li>{}</li>").format(code_spans(entry)) for entry in block.lines)
            made.append(Markup("<ul>{}</ul>").format(entries))
        elif block.kind == "literal":
            made.append(Markup('<pre tabindex="0"><code>{}</code></pre>').format(block.lines[0]))
        else:
            made.append(Markup("<p>{}</p>").format(code_spans(block.lines[0])))
    return Markup("\n").join(made)


def level_value(value: Any) -> str:
    """One value of a level axis."""
    return wording.number(value) if isinstance(value, float) else str(value)


def level_text(level: Mapping[str, Any]) -> str:
    """A combination of level values: "cue = masked, host = bare"."""
    return ", ".join(f"{axis} = {level_value(value)}" for axis, value in level.items())


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; numbers with all their digits, nothing for ``None``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


class Names:
    """Gives out file names and anchors: safe in a path, an address and an id, and never twice, whatever the case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def new(self, *parts: str) -> str:
        """A name made of parts, such as "biased_retrieval.laptop.key_ratio"."""
        safe = [_UNSAFE_NAME.sub("-", part)[:60].strip("-") or "x" for part in parts]
        base = name = ".".join(safe)
        count = 1
        while name.casefold() in self._taken:
            count += 1
            name = f"{base}-{count}"
        self._taken.add(name.casefold())
        return name
