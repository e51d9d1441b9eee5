"""The command line: what it prints, where it prints it and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Desk, forget
from paperworks import cli
from paperworks.claims import api, engine
from paperworks.claims.errors import UsageError
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import Ledger
from toy_package import PAPER, STUDY, write_distribution

HEAVY = ("torch", "scipy", "pandas", "numpy", "pydantic", "rich", "transformers", "jinja2")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A toy paper of which everything was run, with evidence; tests only read it."""
    base = tmp_path_factory.mktemp("cli")
    (base / "work").mkdir()
    desk = Desk(base / "work", base / "plugins", write_distribution(base / "plugins"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(desk.plugins))
        forget()
        with Ledger(desk.ledger) as ledger:
            engine.run(engine.Request(("toy",)), ledger, executor=InlineExecutor())
        assert api.export("toy", ledger=desk.ledger)[1] == 40
        forget()
    return desk


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Calls the command line in this process: its exit code and what it wrote."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["paperworks", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def at(ran: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """This process at the desk of which everything was run."""
    monkeypatch.syspath_prepend(str(ran.plugins))
    monkeypatch.setenv("PYTHONPATH", ran.environment()["PYTHONPATH"])
    monkeypatch.chdir(ran.folder)
    forget()
    return ran


# --- what is imported ----------------------------------------------------------------------------------------------

LOADED = """
import json, sys
sys.argv = ["paperworks", *sys.argv[1:]]
try:
    from paperworks.cli import main
    main()
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted({m.partition(".")[0] for m in sys.modules})]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["list"], ["list", "--json"], ["show", "quest"], ["show", "--json", "toy"]]
)
def test_reading_commands_import_nothing_heavy(ran: Desk, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments], env=ran.environment(), capture_output=True, text=True, check=True
    )
    code, loaded = json.loads(done.stderr.splitlines()[-1])
    assert not code
    assert done.stdout
    assert not set(HEAVY) & set(loaded)
    assert "toy_papers" not in loaded


def test_importing_the_package_and_listing_import_no_paper(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(explode="yes")
    code = "import paperworks, sys; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=desk.environment(), capture_output=True, text=True, check=True
    )
    assert not any(f"'{name}'" in done.stdout for name in (*HEAVY, "typer", "toy_papers"))
    assert {row["paper"] for row in desk.json("list")} >= {"toy", "quest"}  # toy_papers would explode


# --- one document --------------------------------------------------------------------------------------------------


def test_list(at: Desk, call: Call) -> None:
    code, out, err = call("list", "--json")
    assert (code, err) == (0, "")
    rows = {row["paper"]: row for row in json.loads(out)}
    assert rows["toy"] == {
        "paper": "toy", "family": "theory", "title": "Estimating a mean", "status": "draft", "basis": "full-text",
        "claims": 3, "extra": "core",
    }  # fmt: skip
    code, out, err = call("list")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.split() == ["paper", "family", "status", "basis", "claims", "title"]
    assert any(line.split()[:5] == ["toy", "theory", "draft", "full-text", "3"] for line in lines)


def test_show(at: Desk, call: Call) -> None:
    code, out, _ = call("show", "toy", "--json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["paper"], shown["module"], len(shown["claim"])) == ("toy", "toy_papers.toy", 3)
    _, out, _ = call("show", "theory/toy")
    for words in ("toy: Estimating a mean", "M1  Outliers hurt", "estimate: arms mean, median", "smoke (2 seeds)"):
        assert words in out


FIELDS = {
    "paper", "claim", "text", "test", "metric", "verdict", "effect", "low", "high", "n", "unit", "margin", "p",
    "p_holm", "reason", "flags", "sentence", "scale", "version", "paper_arm", "paper_against", "evidence",
}  # fmt: skip


def test_run_prints_one_document_and_progress_elsewhere(desk: Desk) -> None:
    done = desk.call("run", "toy", "--json")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert set(document) == {"ran", "skipped", "failed", "verdicts", "comparisons", "means"}
    assert (document["ran"], document["skipped"], document["failed"]) == (40, 0, 0)
    assert [v["verdict"] for v in document["verdicts"]] == ["supported", "supported", "untested"]
    assert all(set(v) >= FIELDS for v in document["verdicts"])
    assert "running 40 cells" in done.stderr
    assert "40/40 done" in done.stderr
    assert "ran 40 cells in" in done.stderr


def test_an_arm_of_ones_own_is_judged_and_shown_apart(desk: Desk) -> None:
    (desk.folder / "my_estimator.py").write_text("import numpy as np\ndef make():\n    return np.median\n")
    done = desk.call("run", "toy.M1", "--arm", "mine=my_estimator:make", "--jobs", "1")
    plain, _, own = done.stdout.partition("Your own: mine in the place of median\n")
    assert done.returncode == 0, done.stderr
    assert "M1  SUPPORTED" in plain
    assert "M1  SUPPORTED  (direct test, laptop, your evidence; custom)" in own
    assert "mean minus mine" in own
    found = desk.json("verdicts", "toy")
    assert [(v["claim"], v["stands_for"]) for v in found][-2:] == [("M1", "median"), ("M2", "median")]
    done = desk.call("run", "toy.M1", "--arm", "bad=statistics:fmean", "--jobs", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "arm 'bad' is built as factory(); this factory takes (data, weights): missing a required" in done.stderr
    out = desk.call("show", "toy").stdout
    assert "an arm of your own: factory() makes an estimator: a function of an array, with axis=" in out
    assert "it is judged in the place of median" in out


def test_verdicts(at: Desk, call: Call) -> None:
    code, out, err = call("verdicts", "toy", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert all(set(v) >= FIELDS for v in found)
    assert [v["evidence"] for v in found] == ["yours", "yours", None]
    _, out, _ = call("verdicts", "toy.M1", "--ledger", "paperworks-runs/ledger.db")
    assert "M1  SUPPORTED  (direct test, laptop, your evidence" in out
    code, out, _ = call("verdicts", "toy", "--seeds", "6:12", "--json")
    assert {v["verdict"] for v in json.loads(out)} == {"untested"}
    assert code == 0  # a verdict never changes an exit code


def test_lint(at: Desk, call: Call) -> None:
    code, out, err = call("lint", "toy", "--json")
    (report,) = json.loads(out)
    assert err == ""
    assert set(report) >= {"paper", "ok", "problems"}
    assert (code, report["paper"], report["ok"]) == (1, "toy", False)
    assert report["problems"] == ["claim M2 has no control that fails when nothing was learnt"]
    code, out, _ = call("lint", "toy", "--placebo")
    assert (code, out.partition(" (")[0]) == (0, "toy: ok")
    code, out, _ = call("lint", "toy")
    assert code == 1
    assert "toy: 1 problems" in out
    assert "problem: claim M2" in out


def test_data_and_doctor(at: Desk, call: Call) -> None:
    code, out, err = call("data", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)
    assert all({"name", "what", "size", "licence", "status"} <= set(row) for row in rows)
    code, out, err = call("data", "toy", "--json")  # it opens none
    assert (code, json.loads(out)) == (0, [])
    code, out, err = call("doctor", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {"paperworks", "python", "platform", "cores", "extras", "assets", "ledger"}
    assert found["extras"]["core"] == []
    assert set(found["assets"]) == {row["name"] for row in rows}
    code, out, _ = call("doctor")
    assert "extra core  installed" in out


def test_doctor_says_what_an_extra_lacks(at: Desk, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    from paperworks import doctor

    real = doctor._installed
    monkeypatch.setattr(doctor, "_installed", lambda name: name != "jaxtyping" and real(name))
    assert doctor.missing_of("torch") == ["jaxtyping"]
    _, out, _ = call("doctor")
    assert "extra torch lacks jaxtyping: pip install 'paperworks[torch]'" in out


def test_run_again_compares_and_says_what_was_there(at: Desk, call: Call) -> None:
    code, out, err = call("run", "toy.M1", "--compare", "--json")
    document = json.loads(out)
    assert (code, document["ran"], document["skipped"]) == (0, 0, 24)
    assert [(c["claim"], c["inside"]) for c in document["comparisons"]] == [("M1", True)]
    assert "running 0 cells, 24 are in the ledger" in err
    code, out, err = call("run", "toy.M1", "--compare")
    assert "Shipped evidence and yours" in out
    assert "ran 0 cells in 0 s, 24 were in the ledger" in err


def test_run_options_reach_the_engine(toy: Desk, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(engine, "run", lambda request, ledger, **kw: asked.append((request, kw)) or engine.Report())
    options = (
        "--scale smoke --seeds 1,4 --arm mean --arm mine=a.b:c --set draws=5 --set x.y=text --again -j 3 --ledger l.db"
    )
    code, _, err = call("run", "toy.M1", "toy.jointly", *options.split())
    assert code == 0
    ((request, given),) = asked
    assert request == engine.Request(
        ("toy.M1", "toy.jointly"), "smoke", (1, 4), {"mean": None, "mine": "a.b:c"}, {"draws": 5, "x.y": "text"}, True
    )
    assert given["jobs"] == 3
    assert given["command"] == "paperworks run toy.M1 toy.jointly " + options
    assert Path("l.db").exists()
    assert "changed settings (--set): the outcomes are in the ledger and are not judged" in err


# --- how it ends ---------------------------------------------------------------------------------------------------

LINES = {
    "command": (["verdict"], 2, "No such command 'verdict'"),
    "option": (["list", "--jsn"], 2, "No such option: --jsn"),
    "no argument": (["show"], 2, "Missing argument 'paper'"),
    "no target": (["run"], 2, "Missing argument 'PAPER[.CLAIM|.EXPERIMENT]...'"),
    "two papers to show": (["show", "toy", "quest"], 2, "Got unexpected extra argument"),
    "option of show": (["show", "toy", "--jsn"], 2, "No such option: --jsn"),
    "paper": (["show", "toi"], 2, "no paper is called 'toi' (did you mean 'toy'?)"),
    "paper to judge": (["verdicts", "toi"], 2, "no paper is called 'toi'"),
    "paper to lint": (["lint", "toi"], 2, "no paper is called 'toi'"),
    "nothing to time": (["speed"], 2, "speed: name papers, or --all"),
    "all and one to time": (["speed", "toy", "--all"], 2, "speed: name papers, or --all"),
    "name of a new room": (["new", "mypaper"], 2, "'mypaper' names no room: write FAMILY/PAPER"),
    "paper to eject": (["eject", "toi", "there"], 2, "no paper is called 'toi'"),
    "claim": (["run", "toy.M9"], 2, "toy has no claim or experiment 'M9'; it has M1, M2, M3, estimate, jointly"),
    "arm": (
        ["run", "toy", "--arm", "meen"],
        2,
        "--arm 'meen' is not an arm of estimate, jointly (did you mean 'mean'?)",
    ),
    "arm's form": (
        ["run", "toy", "--arm", "mine="],
        2,
        "--arm 'mine=': write the name of an arm, or NAME=package.module:",
    ),
    "own arm": (["run", "toy", "--arm", "mine=numpy"], 2, "--arm 'numpy': write it as package.module:factory"),
    "taken arm": (["run", "toy", "--arm", "mean=a:b"], 2, "'mean' is an arm of"),
    "setting": (["run", "toy", "--set", "drows=1"], 2, "--set 'drows' is not a setting"),
    "setting's form": (["run", "toy", "--set", "draws"], 2, "--set 'draws': write KEY=VALUE, such as steps=100"),
    "setting's value": (
        ["run", "toy", "--set", "draws=many"],
        2,
        "--set draws='many': Input should be a valid integer",
    ),
    "scale": (["run", "toy", "--scale", "lab"], 2, "--scale 'lab' is not one of smoke, laptop, overnight, paper"),
    "scale to judge": (["verdicts", "toy", "--scale", "lab"], 2, "--scale 'lab' is not one of"),
    "seeds": (
        ["run", "toy", "--seeds", "six"],
        2,
        "--seeds 'six': write 6 (seeds 0 to 5), 6:12 (seeds 6 to 11) or 1,4,9",
    ),
    "jobs": (["run", "toy", "--jobs", "0"], 2, "'--jobs' / '-j'"),
    "asset": (["data", "mnist"], 2, "no paper or asset is called 'mnist' (did you mean 'mnist5k'?)"),
    "ledger": (["verdicts", "toy", "--ledger", "no.db"], 1, "there is no ledger no.db; `paperworks run` makes one"),
    "evidence of nothing": (
        ["evidence", "quest"],
        2,
        "the ledger has no outcomes of quest at scale laptop or overnight",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_what_is_wrong_is_one_line_and_an_exit_code(at: Desk, call: Call, case: str) -> None:
    arguments, code, says = LINES[case]
    ended, out, err = call(*arguments)
    assert (ended, out) == (code, "")
    (line,) = err.splitlines()
    assert line.startswith("paperworks: ")
    assert says in line


def test_without_arguments_there_is_help(call: Call) -> None:
    code, out, err = call()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: paperworks [OPTIONS] COMMAND [ARGS]...\n")
    assert "verdicts  Print what the evidence says" in err


def test_a_paper_toml_that_is_wrong_is_one_line_for_every_command(make_toy: Callable[..., Desk], call: Call) -> None:
    make_toy(paper=PAPER.replace('id = "M1"\n', ""))
    for arguments in (["show", "toy"], ["verdicts", "toy"], ["run", "toy"]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert "paper.toml: claim[0].id: is missing" in err
        assert len(err.splitlines()) == 1
    assert call("lint", "toy")[0] == 1
    assert call("list")[0] == 0


def test_data_that_is_missing_stops_a_run_before_it_starts(
    make_toy: Callable[..., Desk], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paperworks.kit import assets

    make_toy(paper=PAPER + '\n[[asset]]\nname = "mnist5k"\nexperiments = ["jointly"]\n')
    monkeypatch.setattr(assets.store, "_search", lambda asset: (None, None))  # whatever this machine has
    code, out, err = call("run", "toy.jointly", "--scale", "smoke")
    assert (code, out) == (1, "")
    assert "paperworks data mnist5k" in err
    assert not Path("paperworks-runs").exists()
    assert call("run", "toy.M2", "--scale", "smoke", "--jobs", "1")[0] == 0  # it does not open them


def test_a_trial_that_fails_makes_the_exit_code_1(make_toy: Callable[..., Desk], call: Call) -> None:
    make_toy(study=STUDY.replace('fault: str = Field(""', 'fault: str = Field("raise"'))
    code, out, err = call("run", "toy.M2", "--json", "--jobs", "1")
    document = json.loads(out)
    assert (code, document["failed"]) == (1, 1)
    assert document["verdicts"][0]["flags"] == ["incomplete"]
    assert "failed: toy.estimate median, outliers=none, seed 1: ValueError: no such luck" in err
    assert "1 failed" in err


def test_ctrl_c_is_130(at: Desk, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "verdicts", interrupted)
    code, out, err = call("verdicts", "toy")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("paperworks: interrupted; what `run` has finished is in the ledger")


@pytest.mark.parametrize("arguments", [["list"], ["verdicts", "toy", "--json"]])  # less and more than a buffer holds
def test_a_reader_that_goes_away_is_no_error_to_speak_of(
    ran: Desk, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    process = ran.start(*arguments)
    process.stdout.close()  # before anything is written
    err = process.stderr.read()
    assert process.wait(60) == 1
    assert err == ""
    process.stderr.close()


# --- forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        (None, None),
        ("3", (0, 1, 2)),
        ("6:9", (6, 7, 8)),
        ("1,4,9", (1, 4, 9)),
        ("4,4,1", (4, 1)),
        ("0:1", (0,)),
        (" 2", (0, 1)),
    ],
)
def test_seeds(text: str | None, seeds: tuple[int, ...] | None) -> None:
    assert cli.parse_seeds(text) == seeds


def test_a_large_number_of_seeds_is_taken_for_a_slip() -> None:
    with pytest.raises(UsageError, match="--seeds 100 would be 100 seeds: write 0:100, or 100:101 for one"):
        cli.parse_seeds("100")
    assert cli.parse_seeds("0:100") == tuple(range(100))


@pytest.mark.parametrize("text", ["", "0", "-1", "6:6", "9:6", "6:12:2", "1,", "1,x", "-2,3", "1.5", "a:b", ":"])
def test_no_seeds(text: str) -> None:
    with pytest.raises(UsageError, match=r"--seeds '.*': write 6"):
        cli.parse_seeds(text)


def test_arms() -> None:
    assert cli.parse_arms([]) == {}
    assert cli.parse_arms(["quest", "top-2", "mine=my.pkg:Make"]) == {
        "quest": None,
        "top-2": None,
        "mine": "my.pkg:Make",
    }
    for text in ("", "=x:y", "mine=", "my-own=x:y", "a b=x:y"):
        with pytest.raises(UsageError, match=r"--arm '.*': write the name of an arm, or NAME=package.module:factory"):
            cli.parse_arms([text])


def test_settings() -> None:
    given = ["a=1", "b=0.5", "c=true", "d=text", 'e="1"', "f=[1, 2]", "g=a=b", "h=", "e.x=null"]
    assert cli.parse_settings(given) == {
        "a": 1, "b": 0.5, "c": True, "d": "text", "e": "1", "f": [1, 2], "g": "a=b", "h": "", "e.x": None,
    }  # fmt: skip
    for text in ("steps", "=1", ""):
        with pytest.raises(UsageError, match=r"--set '.*': write KEY=VALUE"):
            cli.parse_settings([text])


def test_the_module_is_the_command(ran: Desk) -> None:
    script = Path(sys.executable).parent / "paperworks"
    if not script.exists():
        pytest.skip("the package is not installed with its script")
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert done.stdout.startswith("Usage: paperworks")
