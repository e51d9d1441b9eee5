"""The command line: parses, calls, prints. Everything heavier than typer is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from paperworks.claims.errors import PaperworksError, UsageError, did_you_mean, interrupted

app = typer.Typer(
    name="paperworks",
    help="ICLR 2026 papers that work: use the method, check the claim, try your own.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
MANY_SEEDS = 50  # a larger number alone is more often one seed than so many

Papers = Annotated[list[str] | None, typer.Argument(metavar="[PAPER]...", help="Papers; all when none is named.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
ScaleOption = Annotated[str | None, typer.Option("--scale", help="smoke, laptop, overnight or paper.")]
SeedsOption = Annotated[str | None, typer.Option("--seeds", help="Seeds: 6 (0 to 5), 6:12 (6 to 11) or 1,4,9.")]
LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", help="The ledger file.", show_default="paperworks-runs/ledger.db")
]


def main() -> None:
    """Run the command line; what goes wrong is one line on standard error and an exit code."""
    code: object = 0
    try:
        with _terminated_like_interrupted():
            if not _read_quickly(sys.argv[1:]):
                code = app(standalone_mode=False, prog_name="paperworks")
            sys.stdout.flush()  # a reader that is gone is found out here, not at exit
    except PaperworksError as error:
        _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer carries its own copy of click's usage errors
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message(), file=sys.stderr)
            sys.exit(2)
        _complain(f"{error.format_message()} (see `paperworks --help`)", 2)
    if code == INTERRUPTED:  # typer swallows a KeyboardInterrupt and returns this
        _complain(
            "interrupted; what `run` has finished is in the ledger, and the same command goes on from there",
            INTERRUPTED,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _read_quickly(arguments: list[str]) -> bool:
    """Do `list` and `show PAPER` without typer, which imports pydantic whenever it parses a command."""
    words, as_json = [word for word in arguments if word != "--json"], "--json" in arguments
    if words == ["list"]:
        list_papers(as_json)
    elif len(words) == 2 and words[0] == "show" and not words[1].startswith("-"):
        show(words[1], as_json)
    else:
        return False
    return True


def _complain(message: str, code: int) -> None:
    print(f"paperworks: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: workers stopped, the ledger closed."""
    import signal

    def stop(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, stop)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
            signal.signal(signal.SIGINT, stop)
    yield


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


@app.command("list")
def list_papers(as_json: Json = False) -> None:
    """List the papers."""
    from paperworks.claims import catalog

    rows = catalog.summaries()
    if as_json:
        _print_json(rows)
        return
    widths = {
        key: max(len(str(row[key])) for row in [*rows, {key: key}]) for key in ("paper", "family", "status", "basis")
    }
    print(*(key.ljust(width) for key, width in widths.items()), "claims", "title", sep="  ")
    for row in rows:
        print(
            *(str(row[key]).ljust(width) for key, width in widths.items()),
            f"{row['claims']:>6}",
            row["title"],
            sep="  ",
        )


@app.command()
def show(paper: Annotated[str, typer.Argument(help="A paper.")], as_json: Json = False) -> None:
    """Show what a paper's method is, what it claims and how that is tested here."""
    from paperworks.claims import catalog
    from paperworks.claims.rawtoml import read_toml
    from paperworks.printing import paper_lines

    room = catalog.find(paper)
    raw = read_toml(room.folder)
    try:
        shown: Any = {"paper": room.slug, "module": room.module, **raw} if as_json else paper_lines(room, raw)
        text = json.dumps(shown, indent=2, allow_nan=False) if as_json else "\n".join(shown)
    except (KeyError, TypeError, ValueError, AttributeError):
        from paperworks.claims.paper import load_paper

        load_paper(room.folder)  # says in one line what is wrong with the file
        raise
    print(text)


@app.command()
def verdicts(
    papers: Papers = None,
    scale: ScaleOption = None,
    seeds: SeedsOption = None,
    ledger: LedgerOption = None,
    as_json: Json = False,
) -> None:
    """Print what the evidence says about each claim: yours where you have run it, else the shipped."""
    from paperworks.claims import api
    from paperworks.printing import own_lines, verdict_lines

    chosen = parse_seeds(seeds)
    found = api.verdicts(papers or (), scale=scale, ledger=ledger, seeds=chosen)
    own = api.own_verdicts(papers or (), scale=scale, ledger=ledger, seeds=chosen)
    if as_json:
        _print_json([verdict.to_dict() for verdict in [*found, *own]])
    else:
        print("\n".join([*verdict_lines(found), *own_lines(own)]))


@app.command()
def run(
    targets: Annotated[list[str], typer.Argument(metavar="PAPER[.CLAIM|.EXPERIMENT]...", help="What to run.")],
    scale: Annotated[str, typer.Option("--scale", help="smoke, laptop, overnight or paper.")] = "laptop",
    seeds: SeedsOption = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            "--arm", help="Run only this arm; or NAME=package.module:factory, yours beside the others. Repeatable."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE: change a setting; shown, never judged. Repeatable.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes.", show_default="all cores")
    ] = None,
    ledger: LedgerOption = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what the ledger has.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Compare with the shipped evidence.")] = False,
    as_json: Json = False,
) -> None:
    """Run claims or experiments; what the ledger has is not run again."""
    from paperworks.claims import api
    from paperworks.claims.engine import Request
    from paperworks.printing import comparison_lines, mean_lines, own_lines, report_line, verdict_lines

    request = Request(
        targets=tuple(targets),
        scale=scale,
        seeds=parse_seeds(seeds),
        arms=parse_arms(arm or []),
        settings=parse_settings(set_ or []),
        again=again,
    )
    _require_assets(targets)
    report = api.run(request, ledger=ledger, jobs=jobs, command=" ".join(["paperworks", *sys.argv[1:]]), show=True)
    print(report_line(report, ledger), file=sys.stderr)
    means = api.outcomes(report, targets, ledger=ledger) if request.settings or request.own else None
    if request.settings:
        found, own = [], []
        print("changed settings (--set): the outcomes are in the ledger and are not judged", file=sys.stderr)
    else:
        found = api.verdicts(targets, scale=scale, ledger=ledger, seeds=request.seeds, source="yours")
        own = api.own_verdicts(targets, scale=scale, ledger=ledger, seeds=request.seeds, methods=report.methods)
    compared = api.comparisons(found) if compare else []
    if as_json:
        _print_json(
            {
                "ran": report.ran,
                "skipped": report.skipped,
                "failed": len(report.failed),
                "verdicts": [verdict.to_dict() for verdict in [*found, *own]],
                "comparisons": [one.to_dict() for one in compared],
                "means": [] if means is None else json.loads(means.to_json(orient="records")),
            }
        )
    else:
        lines = [*verdict_lines(found), *own_lines(own), *comparison_lines(compared)]
        print("\n".join(lines if means is None else [*lines, *mean_lines(means)]))
    if report.failed:
        raise typer.Exit(1)


@app.command()
def speed(
    papers: Annotated[list[str] | None, typer.Argument(metavar="[PAPER]...", help="Papers.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All papers.")] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Write the ratios into the paper's room, to be shipped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Time ours against the named peers, in turn and in one process, after comparing their outputs; peak memory too."""
    from paperworks.claims import api, catalog
    from paperworks.printing import speed_lines

    if bool(papers) == every:
        raise UsageError("speed: name papers, or --all")
    ratios, problems = {}, {}
    for slug in catalog.rooms() if every else papers or ():
        ratios[slug], problems[slug] = api.speed(slug, save=save, tell=lambda line: print(line, file=sys.stderr))
    if as_json:
        _print_json([{"paper": slug, **ratio.to_dict()} for slug, found in ratios.items() for ratio in found])
    else:
        print("\n".join(speed_lines(ratios)))
    for slug, found in problems.items():
        for problem in found:
            print(f"{slug}: {problem}", file=sys.stderr)
    if any(problems.values()) or not all(ratio.met for found in ratios.values() for ratio in found):
        raise typer.Exit(1)


@app.command()
def report(
    papers: Papers = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("paperworks-report"),
    ledger: LedgerOption = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="Leave your ledger out.")] = False,
) -> None:
    """Write the papers, their verdicts and the evidence as pages that open from disk."""
    from paperworks.claims.report import write_site

    try:
        index = write_site(out, papers or None, ledger, source="shipped" if shipped else None)
    except OSError as error:
        raise PaperworksError(f"--out {str(out)!r} cannot be written: {error.strerror or error}") from None
    print(f"report: {index.resolve()}")


@app.command()
def data(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER|ASSET]...", help="What to fetch; nothing lists all.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fetch all.")] = False,
    as_json: Json = False,
) -> None:
    """List data sets and models, or fetch those of a paper."""
    from paperworks.claims import catalog
    from paperworks.claims.rawtoml import read_toml
    from paperworks.kit import assets
    from paperworks.printing import asset_lines

    known = assets.catalog()
    rooms = catalog.rooms()
    wanted: list[str] = list(known) if every else []
    for name in names or []:
        if name in rooms:
            wanted += [asset["name"] for asset in read_toml(rooms[name].folder).get("asset", [])]
        elif name in known:
            wanted.append(name)
        else:
            hint = did_you_mean(name, [*known, *rooms])
            raise UsageError(f"no paper or asset is called {name!r}{hint}; `paperworks data` lists the assets")
    if wanted:
        try:
            assets.fetch_all(list(dict.fromkeys(wanted)), lambda line: print(line, file=sys.stderr, flush=True))
        except assets.AssetError as error:
            raise PaperworksError(str(error)) from None
    rows = assets.describe(list(dict.fromkeys(wanted)) if wanted or names else None)
    if as_json:
        _print_json(rows)
    else:
        print("\n".join(asset_lines(rows)))


@app.command()
def lint(
    papers: Papers = None,
    placebo: Annotated[
        bool, typer.Option("--placebo", help="Check the placebo alone: the method's arm with the baseline's factory.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check papers against the contract that all of them keep, placebo included."""
    from paperworks.claims import catalog, contract
    from paperworks.kit import assets
    from paperworks.printing import lint_lines

    rooms = [catalog.find(name) for name in papers] if papers else list(catalog.rooms().values())
    known = list(assets.catalog())
    reports = [contract.check(room, known, placebo=placebo) for room in rooms]
    if as_json:
        _print_json([report.to_dict() for report in reports])
    else:
        print("\n".join(lint_lines(reports)))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="FAMILY/PAPER", help="Such as layers/mypaper.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where its distribution goes.", show_default="./paperworks-PAPER")
    ] = None,
) -> None:
    """Write a room that passes the contract as it is: here in a checkout of paperworks, else a distribution."""
    from paperworks.claims import scaffold
    from paperworks.printing import written_lines

    print("\n".join(written_lines(scaffold.new(name, folder), name.rpartition("/")[2])))


@app.command()
def eject(
    paper: Annotated[str, typer.Argument(help="A paper.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
) -> None:
    """Copy a paper's method out as a package that needs nothing of paperworks, with its licence and tests."""
    from paperworks.claims import scaffold
    from paperworks.printing import ejected_lines

    print("\n".join(ejected_lines(scaffold.eject(paper, folder))))


@app.command()
def evidence(paper: Annotated[str, typer.Argument(help="A paper.")], ledger: LedgerOption = None) -> None:
    """Export a ledger's outcomes of a paper into its room, to be shipped."""
    from paperworks.claims import api

    path, count = api.export(paper, ledger=ledger)
    print(f"{count} outcomes are now in {path}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine has: versions, extras, data, ledger."""
    from paperworks.doctor import examine
    from paperworks.printing import doctor_lines

    findings = examine()
    if as_json:
        _print_json(findings)
    else:
        print("\n".join(doctor_lines(findings)))


def _require_assets(targets: list[str]) -> None:
    """Stop before anything runs when data that the targets open is not here."""
    from paperworks.claims import engine
    from paperworks.kit import assets

    for target in targets:
        _, paper, experiments, claim = engine.resolve(target)
        needed = {s.experiment for s in claim.statements()} if claim else set(experiments)
        for asset in paper.asset:
            if not asset.experiments or needed & set(asset.experiments):
                try:
                    assets.open_asset(asset.name)
                except assets.AssetError as error:
                    raise PaperworksError(str(error)) from None


def parse_seeds(text: str | None) -> tuple[int, ...] | None:
    """'6' is 0 to 5, '6:12' is 6 to 11, '1,4,9' are these."""
    if text is None:
        return None
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            seeds = tuple(range(first, last))
        elif "," in text:
            seeds = tuple(int(part) for part in text.split(","))
        else:
            seeds = tuple(range(count := int(text)))
            if count > MANY_SEEDS:
                raise UsageError(
                    f"--seeds {text} would be {count} seeds: write 0:{count}, or {text}:{count + 1} for one"
                )
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0:
        raise UsageError(f"--seeds {text!r}: write 6 (seeds 0 to 5), 6:12 (seeds 6 to 11) or 1,4,9")
    return tuple(dict.fromkeys(seeds))


def parse_arms(texts: list[str]) -> dict[str, str | None]:
    """'quest' selects an arm, 'mine=package.module:factory' adds one's own."""
    arms: dict[str, str | None] = {}
    for text in texts:
        name, given, factory = text.partition("=")
        if not name or (given and not (factory and name.isidentifier())):
            raise UsageError(f"--arm {text!r}: write the name of an arm, or NAME=package.module:factory")
        arms[name] = factory if given else None
    return arms


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """'steps=100' as {"steps": 100}: values are JSON where they can be, else text."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not given or not key:
            raise UsageError(f"--set {text!r}: write KEY=VALUE, such as steps=100")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return settings


if __name__ == "__main__":
    main()
