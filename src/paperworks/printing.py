"""Plain text for the terminal. Standard library only: `list` and `show` must stay quick."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from paperworks.claims.catalog import Room
    from paperworks.claims.contract import Report as LintReport
    from paperworks.claims.engine import Report
    from paperworks.claims.scaffold import Ejected, Written
    from paperworks.claims.speed import Ratio
    from paperworks.claims.verdict import Comparison, Verdict

WIDTH = 110


def wrap(text: str, indent: str = "") -> list[str]:
    """Lines of at most 110 characters."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent) or [""]


def paper_lines(room: Room, raw: Mapping[str, Any]) -> list[str]:
    """What `paperworks show` prints."""
    links = [f"https://arxiv.org/abs/{raw['arxiv']}"] if raw.get("arxiv") else []
    links += [f"https://openreview.net/forum?id={raw['openreview']}"] if raw.get("openreview") else []
    links += [raw["code"]] if raw.get("code") else []
    lines = [f"{room.slug}: {raw.get('title', '')}", ", ".join(raw.get("authors", []))]
    lines += [f"{raw.get('venue', '')}  {'  '.join(links)}".strip(), ""]
    lines += [*wrap(raw.get("summary", "")), ""]
    lines += [f"import   from {room.module} import ...   (pip install 'paperworks[{raw.get('extra', '')}]')"]
    lines += [f"status   {raw.get('status', 'draft')}; the method's details are known from: {raw.get('basis', '')}"]
    data = [asset["name"] for asset in raw.get("asset", [])]
    lines += [f"data     {', '.join(data)}   (paperworks data {room.slug})"] if data else []
    lines += ["", "Claims"]
    for claim in raw.get("claim", []):
        against = claim.get("against", claim.get("value"))
        lines += wrap(f"{claim['id']}  {claim['text']}", "  ")
        lines += [
            f"      {claim['test']} test, {claim['experiment']}: {claim['metric']} of {claim['arm']} against {against}"
        ]
    lines += ["", "Experiments"]
    for name, experiment in raw.get("experiment", {}).items():
        scales = ", ".join(f"{scale} ({body['seeds']} seeds)" for scale, body in experiment.get("scale", {}).items())
        lines += wrap(f"{name}: arms {', '.join(experiment['arms'])}; scales {scales}", "  ")
        if experiment.get("factory"):
            lines += wrap(f"an arm of your own: {experiment['factory']}", "      ")
            lines += wrap(f"it is judged in the place of {', '.join(experiment.get('method', []))}", "      ")
    lines += ["", f"Run them: paperworks run {room.slug}; one claim: paperworks run {room.slug}.<claim>"]
    return lines


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """A heading a paper, then each claim with its verdict and sentence."""
    lines: list[str] = []
    for i, one in enumerate(verdicts):
        if i == 0 or verdicts[i - 1].paper != one.paper:
            lines += ["", one.paper] if lines else [one.paper]
        source = {"shipped": "shipped evidence", "yours": "your evidence"}.get(one.evidence or "", "no evidence")
        flags = f"; {', '.join(one.flags)}" if one.flags else ""
        lines += [f"  {one.claim}  {one.verdict.upper()}  ({one.test} test, {one.scale}, {source}{flags})"]
        mine = f", with {' and '.join(one.custom)} in the place of {one.stands_for}" if one.stands_for else ""
        lines += wrap(f"Claim{mine}: {one.text}", "      ")
        lines += wrap(" ".join(filter(None, [one.sentence, one.also])), "      ")
    return lines


def mean_lines(means: pd.DataFrame) -> list[str]:
    """The mean of each metric over the seeds, a column an arm."""
    lines = []
    for (experiment, level), rows in means.groupby(["experiment", "level"], sort=False):
        arms = [arm for arm in means.columns[3:] if rows[arm].notna().any()]
        width = max(12, *(len(arm) for arm in arms)) if arms else 12
        name = max(len(metric) for metric in rows["metric"])
        lines += ["", f"Means over the seeds: {experiment}{f', {level}' if level else ''}"]
        lines.append("  ".join([" " * (name + 2), *(arm.rjust(width) for arm in arms)]))
        for row in rows.to_dict("records"):
            values = [f"{row[arm]:.4g}" if row[arm] == row[arm] else "-" for arm in arms]
            lines.append("  ".join([f"  {row['metric'].ljust(name)}", *(value.rjust(width) for value in values)]))
    return lines


def own_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """The verdicts on arms of the user's own, by arm and the method's arm in whose place each is judged."""
    lines: list[str] = []
    for own, place in dict.fromkeys((one.custom, one.stands_for) for one in verdicts):
        chosen = [one for one in verdicts if (one.custom, one.stands_for) == (own, place)]
        lines += ["", f"Your own: {', '.join(own)} in the place of {place}", *verdict_lines(chosen)]
    return lines


def comparison_lines(comparisons: Iterable[Comparison]) -> list[str]:
    """Shipped against yours, a sentence each."""
    lines = [line for one in comparisons for line in wrap(f"{one.paper}.{one.claim}: {one.sentence}", "  ")]
    return ["", "Shipped evidence and yours", *lines] if lines else []


def report_line(report: Report, ledger: Path | None) -> str:
    """One line on what a run did."""
    failed = f", {len(report.failed)} failed" if report.failed else ""
    present = f", {report.skipped} were in the ledger" if report.skipped else ""
    return f"ran {report.ran} cells in {report.seconds:.0f} s{failed}{present}"


def speed_lines(ratios: Mapping[str, Sequence[Ratio]]) -> list[str]:
    """A line a measurement: time of ours over time of the peer."""
    return [
        f"{slug} {r.name}: {r.median:.3g} [{r.low:.3g}, {r.high:.3g}] of the time of {r.peer} "
        f"(target {r.target:g}{'' if r.met else ', MISSED'}; {r.pairs} pairs, ours {1000 * r.ours:.2f} ms"
        + (f"; peak {r.memory:.0f} MiB, the peer's {r.peer_memory:.0f})" if r.memory is not None else ")")
        for slug, found in ratios.items()
        for r in found
    ]


def asset_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line an asset."""
    from paperworks.kit.assets import size_text

    return [
        f"{row['name']:<14} {row['status']:<8} {size_text(row['size']):>9}  {row['what']} [{row['licence']}]"
        for row in rows
    ] or ["no assets"]


def lint_lines(reports: Sequence[LintReport]) -> list[str]:
    """A line a paper, its problems and notes below."""
    lines = []
    for report in reports:
        spent = sum(report.seconds.values())
        lines.append(f"{report.paper}: {'ok' if report.ok else f'{len(report.problems)} problems'} ({spent:.1f} CPU-s)")
        lines += [f"  problem: {problem}" for problem in report.problems]
        lines += [f"  note: {note}" for note in report.notes]
    return lines


def written_lines(written: Written, slug: str) -> list[str]:
    """Where a new room is, and what to do next."""
    lines = [f"{slug}: its room is {written.room}, its tests are in {written.tests}"]
    if written.distribution is not None:
        lines.append(f"install it: pip install -e {written.distribution}")
    if written.new_family:
        family = written.room.parent.name
        lines.append(f"the family is new: name 'paperworks.{family}' in the import rules of pyproject.toml")
    return [*lines, f"then: paperworks lint {slug}; paperworks run {slug}; replace it part by part"]


def ejected_lines(ejected: Ejected) -> list[str]:
    """What came out and what did not."""
    lines = [
        f"the method is in {ejected.folder}; install it with what its tests need: cd {ejected.folder} && "
        "pip install -e . --group test; then: python -m pytest tests"
    ]
    if not ejected.tests:
        lines = [f"the method is in {ejected.folder}; its tests are in a checkout of paperworks only"]
    return [*lines, *(f"left out: {name}, which imports {what}" for name, what in ejected.left_out.items())]


def doctor_lines(findings: Mapping[str, Any]) -> list[str]:
    """What the machine has, and what to do about what it lacks."""
    lines = [f"{key:<11} {findings[key]}" for key in ("paperworks", "python", "platform", "cores", "ledger")]
    for extra, missing in findings["extras"].items():
        state = "installed" if not missing else f"lacks {', '.join(missing)}: pip install 'paperworks[{extra}]'"
        lines.append(f"extra {extra:<5} {state}")
    for asset, status in findings["assets"].items():
        lines.append(f"data  {asset:<12} {status}" + (f": paperworks data {asset}" if status != "ready" else ""))
    return lines
