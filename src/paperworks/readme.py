"""The README's generated parts: the table of papers and one paper's verdicts, from the rooms and their evidence.

``python -m paperworks.readme`` writes them anew; a test fails when they are out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from paperworks.claims import api, catalog, speed
from paperworks.claims.paper import Paper, load_paper
from paperworks.claims.verdict import Verdict

README = catalog.PACKAGE.parents[1] / "README.md"
SHOWN = "quest"


def render(text: str) -> str:
    """The README with its generated parts as they should be now."""
    verdicts = api.verdicts(source="shipped")
    own = [room for room in catalog.rooms().values() if room.folder.is_relative_to(catalog.PACKAGE)]
    papers = [load_paper(room.folder) for room in own]
    parts = {
        "papers": papers_table(papers, verdicts),
        "verdicts": verdicts_table(v for v in verdicts if v.paper == SHOWN),
    }
    for name, content in parts.items():
        pattern = re.compile(rf"(<!-- {name}: generated[^\n]*-->\n).*?(<!-- /{name} -->)", re.DOTALL)
        found = pattern.findall(text)
        if len(found) != 1:
            raise ValueError(f"README.md must have the marks '<!-- {name}: generated -->' and '<!-- /{name} -->' once")
        before, _, rest = text.partition(found[0][0])
        text = f"{before}{found[0][0]}{content}\n{found[0][1]}{rest.partition(found[0][1])[2]}"
    return text


def papers_table(papers: Iterable[Paper], verdicts: Iterable[Verdict]) -> str:
    """One row a paper."""
    found = list(verdicts)
    rows = [
        "| paper | method | details known from | kind of test | time, ours / peer | verdicts |",
        "|---|---|---|---|---|---|",
    ]
    for paper in papers:
        tests = ", ".join(dict.fromkeys(claim.test for claim in paper.claim))
        by_verdict: dict[str, list[str]] = {}
        for v in found:
            if v.paper == paper.slug:
                by_verdict.setdefault(v.verdict, []).append(v.claim)
        judged = "; ".join(f"{verdict}: {', '.join(claims)}" for verdict, claims in by_verdict.items())
        hardest = max(speed.saved(paper.folder), key=lambda r: r.median, default=None)  # of its peers
        ratio = f"{hardest.median:.2g} ({hardest.peer})" if hardest else "not measured"
        link = f"[{paper.slug}](https://arxiv.org/abs/{paper.arxiv})" if paper.arxiv else paper.slug
        rows.append(f"| {link}: {paper.summary} | {paper.status} | {paper.basis} | {tests} | {ratio} | {judged} |")
    return "\n".join(rows)


def verdicts_table(verdicts: Iterable[Verdict]) -> str:
    """The first claim of each verdict: a rule, so that nobody picks."""
    first: dict[str, Verdict] = {}
    for one in verdicts:
        first.setdefault(one.verdict, one)
    rows = ["| claim | verdict | in our setting |", "|---|---|---|"]
    rows += [f"| {v.claim}: {v.text} | **{v.verdict}** | {v.sentence} |".replace("\n", " ") for v in first.values()]
    return "\n".join(rows)


def main(path: Path = README) -> None:
    """Write the generated parts anew."""
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
