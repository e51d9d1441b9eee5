"""paper.toml: what it holds, and one clear line for whatever is wrong with it."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.claims.errors import PaperError
from paperworks.claims.paper import Experiment, Paper, Statement, grid, load_paper, parse_paper
from paperworks.claims.verdict import needed_cells
from toy_package import PAPER

FOLDER = Path("/rooms/toy")


def parse(text: str = PAPER) -> Paper:
    return parse_paper(tomllib.loads(text), FOLDER)


def edited(old: str, new: str) -> str:
    assert old in PAPER, old
    return PAPER.replace(old, new, 1)


def test_the_toy_paper_is_read_whole() -> None:
    paper = parse()
    assert (paper.slug, paper.family, paper.status) == ("toy", "theory", "draft")
    assert list(paper.claims) == ["M1", "M2", "M3"]
    assert paper.experiment["estimate"].metric["gain"].derived
    assert not paper.experiment["estimate"].metric["error"].derived
    own, control = paper.claims["M1"].statements()
    assert (own.against, control.value, control.experiment) == ("median", 0.5, "estimate")


# What is wrong, and what the one line must say of it: the place, the value, what is allowed.
WRONG = {
    "misspelt key of the paper": ("year = 2026", "yaer = 2026", ["yaer: unknown key", "'year'", "2026", "title"]),
    "misspelt key of an experiment": ("timeout = 20", "timeot = 20", ["experiment.estimate.timeot", "'timeout'"]),
    "misspelt key of a claim": ("margin = 0.1", "marign = 0.1", ["claim M1.marign", "(did you mean 'margin'?)"]),
    "misspelt key of a control": ("value = 0.5 }", "valu = 0.5 }", ["claim M1.control[0].valu", "against, value"]),
    "misspelt key of a metric": ('over = ["outliers"]', 'ovr = ["outliers"]', ["metric.gain.ovr", "text, over, needs"]),
    "misspelt key of a scale": ("smoke = { seeds", "smoke = { seed", ["scale.smoke.seed: unknown key", "'seeds'"]),
    "unknown scale": ("scale.laptop", "scale.labtop", ["scale.labtop", "'smoke', 'laptop', 'overnight' or 'paper'"]),
    "missing key": ("year = 2026\n", "", ["paper.toml: year: is missing"]),
    "missing key of a claim": ('metric = "gain"\n', "", ["claim M1.metric: is missing"]),
    "claim's experiment": ('experiment = "estimate"', 'experiment = "estimat"', ["M1.experiment", "'estimate'"]),
    "claim's metric": ('metric = "gain"', 'metric = "gian"', ["claim M1.metric: 'gian'", "'error', 'spread', 'gain'"]),
    "claim's arm": ('arm = "mean"\nagainst', 'arm = "meen"\nagainst', ["claim M1.arm: 'meen'", "'mean', 'median'"]),
    "claim's other arm": ('against = "median"', 'against = "m"', ["claim M1.arm: 'm'", "'mean', 'median'"]),
    "claim's level axis": ('{ outliers = "none" }\n', '{ o = "none" }\n', ["M2.level: 'o'", "'outliers'"]),
    "claim's level value": (
        'level = { outliers = "none" }\n',
        'level = { outliers = "nune" }\n',
        ["claim M2.level.outliers: 'nune'", "'none', 'some'"],
    ),
    "claim's empty level": ('{ outliers = "none" }\n', "{ outliers = [] }\n", ["M2.level.outliers", "different"]),
    "claim's doubled level": (
        '{ outliers = "none" }\n',
        '{ outliers = ["none", "none"] }\n',
        ["M2.level.outliers", "['none', 'none']"],
    ),
    "'mean' within a list": ('{ outliers = "none" }\n', '{ outliers = ["mean"] }\n', ["M2.level.outliers: 'mean'"]),
    "claim's missing level": ('level = { outliers = "none" }\n', "level = {}\n", ["M2.level", "['outliers'] missing"]),
    "derived metric's vanished axis": (
        "margin = 0.1",
        'margin = 0.1\nlevel = { outliers = "none" }',
        ["claim M1.level: 'outliers'"],
    ),
    "control's metric": ('[{ metric = "error"', '[{ metric = "e"', ["claim M1.control[0].metric: 'e'"]),
    "two claims of one id": ('id = "M2"', 'id = "M1"', ["claim id 'M1' is there twice"]),
    "claim called like an experiment": ('id = "M2"', 'id = "jointly"', ["'jointly' names both"]),
    "claim's id": ('id = "M1"', 'id = "M.1"', ["claim M.1.id", "must match"]),
    "two arms of one name": ('arms = ["mean", "median"]', 'arms = ["mean", "mean"]', ["arms must be different"]),
    "two levels of one value": ('["none", "some"]', '["none", "none"]', ["level.outliers must hold different values"]),
    "no level value": ('["none", "some"]', "[]", ["level.outliers must hold different values"]),
    "reserved axis": ("level.outliers =", "level.seed =", ["level axis 'seed' is a reserved name"]),
    "metric over": ('over = ["outliers"]', 'over = ["outlier"]', ["metric.gain.over: 'outlier'", "'outliers'"]),
    "metric needs": ('["outliers"] }', '["outliers"], needs = ["x"] }', ["metric.gain.needs: 'x'", "'median'"]),
    "needs without over": (
        'metric.spread = "spread of the draws"',
        'metric.spread = { text = "spread", needs = ["mean"] }',
        ["metric.spread.needs", "derived"],
    ),
    "joint axis": ('joint = ["seed"]', 'joint = ["seeds"]', ["joint: 'seeds'", "'seed', 'arm'"]),
    "scale's arm": ("smoke = { seeds = 2 }", 'smoke = { seeds = 2, arms = ["x"] }', ["scale.smoke.arms: 'x'"]),
    "scale's empty arms": ("smoke = { seeds = 2 }", "smoke = { seeds = 2, arms = [] }", ["scale.smoke.arms", "1 item"]),
    "scale's axis": ("smoke = { seeds = 2 }", "smoke = { seeds = 2, level = { x = [1] } }", ["scale.smoke.level: 'x'"]),
    "scale's level": (
        "smoke = { seeds = 2 }",
        'smoke = { seeds = 2, level = { outliers = ["x"] } }',
        ["scale.smoke.level.outliers: 'x'", "'none', 'some'"],
    ),
    "scale's empty level": (
        "smoke = { seeds = 2 }",
        "smoke = { seeds = 2, level = { outliers = [] } }",
        ["scale.smoke.level.outliers is empty"],
    ),
    "no seeds": ("smoke = { seeds = 2 }", "smoke = { seeds = 0 }", ["scale.smoke.seeds", "greater than or equal to 1"]),
    "type of seeds": ("smoke = { seeds = 2 }", 'smoke = { seeds = "two" }', ["scale.smoke.seeds", "'two'"]),
    "type of arms": ('arms = ["mean", "median"]', 'arms = "mean"', ["experiment.estimate.arms", "a list", "'mean'"]),
    "type of a metric": ('spread = "spread of the draws"', "spread = 3", ["metric.spread: must be a table", "(got 3)"]),
    "type of level": ('level = "mean"', 'level = "max"', ["claim M3.level: must be a table or 'mean'", "'max'"]),
    "kind of test": ('test = "reduced"', 'test = "small"', ["claim M3.test", "'direct', 'reduced' or 'analogue'"]),
    "better": ('better = "lower", value', 'better = "less", value', ["M1.control[0].better", "'higher' or 'lower'"]),
    "margin that is no number": ("margin = 0.1", "margin = nan", ["claim M1.margin", "finite", "nan"]),
    "endless timeout": ("timeout = 20", "timeout = inf", ["experiment.estimate.timeout", "finite", "inf"]),
    "neither arm nor value": ('against = "median"\n', "", ["claim M1", "exactly one of 'against'"]),
    "both arm and value": ("margin = 0.1", "value = 0.5", ["claim M1", "exactly one of 'against'"]),
    "an arm against itself": ('against = "median"', 'against = "mean"', ["claim M1", "another arm than 'mean'"]),
    "equivalence without margin": ("margin = 0.1", "equivalence = true", ["claim M1", "needs a margin > 0, got 0.0"]),
    "ratio without arm": ("value = 0.5 }", "value = 0.5, ratio = 2.0 }", ["M1.control[0]", "'ratio' needs 'against'"]),
    "negative ratio": ("margin = 0.1", "ratio = -1.0", ["claim M1.ratio", "greater than 0"]),
    "scale of a claim": ('scales = ["paper"]', 'scales = ["smoke"]', ["claim M3.scales[0]", "'laptop'", "'smoke'"]),
    "status": ('status = "draft"', 'status = "done"', ["status", "'draft', 'working' or 'verified'", "'done'"]),
    "no authors": ('authors = ["Nobody"]', "authors = []", ["authors", "at least 1 item"]),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_one_clear_line(wrong: str) -> None:
    old, new, says = WRONG[wrong]
    with pytest.raises(PaperError) as caught:
        parse(edited(old, new))
    line = str(caught.value)
    assert line.startswith("/rooms/toy/paper.toml: ")
    assert "\n" not in line
    assert len(line) < 400
    for words in says:
        assert words in line, line


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[[asset]]\nname = "x"\nexperiments = ["estimat"]', "asset x.experiments: 'estimat'"),
        ('[[asset]]\nname = "x"\n[[asset]]\nname = "x"', "asset 'x' is there twice"),
        ('[[speed]]\nname = "f"\npeer = "p"\ntarget = 0', "speed f.target"),
        ('[[speed]]\nname = "f"\npeer = "p"\ntarget = 1\n' * 2, "speed 'f' is there twice"),
        ('[[erratum]]\nwhere = "Eq. 1"', "erratum[0].printed: is missing"),
        ("[experiment.x.y]", "experiment.x.y: unknown key"),
    ],
)
def test_other_tables(table: str, says: str) -> None:
    with pytest.raises(PaperError) as caught:
        parse(PAPER + table)
    assert says in str(caught.value)


def test_a_file_that_is_no_toml_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(PaperError, match=r"paper\.toml does not exist"):
        load_paper(tmp_path)
    (tmp_path / "paper.toml").write_text("title = \nyear")
    with pytest.raises(PaperError, match=r"paper\.toml is not valid TOML: .*line 1"):
        load_paper(tmp_path)
    (tmp_path / "paper.toml").write_bytes(b'title = "\xff"')
    with pytest.raises(PaperError, match="is not valid TOML"):
        load_paper(tmp_path)


def test_a_whole_number_written_for_a_real_one_is_the_same_cell() -> None:
    experiment = Experiment(
        text="", arms=("a", "b"), level={"p": (0.5, 1.0), "on": (True, False)}, metric={"m": "m"},
        scale={"laptop": {"seeds": 1, "level": {"p": [1]}}},
    )  # fmt: skip
    for named in (1, [1]):
        statement = Statement(metric="m", arm="a", value=0.0, level={"p": named, "on": "mean"})
        assert repr(statement.selection(experiment)["p"]) == "(1.0,)"
    assert repr(experiment.levels_at("laptop")["p"]) == "(1.0,)"


AXES = st.dictionaries(
    st.sampled_from(["p", "q", "r"]),
    st.lists(st.one_of(st.integers(-5, 5), st.sampled_from(["x", "mean", "y"])), min_size=1, max_size=4, unique=True),
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(AXES, st.data())
def test_selection_reads_what_is_named(axes: dict[str, list[Any]], data: st.DataObject) -> None:
    over = data.draw(st.lists(st.sampled_from(sorted(axes)), unique=True)) if axes else []
    experiment = Experiment(
        text="", arms=("a",), level={k: tuple(v) for k, v in axes.items()},
        metric={"m": {"text": "m", "over": over}}, scale={"laptop": {"seeds": 1}},
    )  # fmt: skip
    level, wanted = {}, {}
    for axis, values in axes.items():
        if axis in over:
            continue
        kind = data.draw(st.sampled_from(["one", "some", "mean"]))
        if kind == "one":
            level[axis] = data.draw(st.sampled_from(values))
            wanted[axis] = {level[axis]}
        elif kind == "some":
            level[axis] = data.draw(st.lists(st.sampled_from(values), min_size=1, unique=True))
            wanted[axis] = set(level[axis])
        else:
            level[axis] = "mean"
            wanted[axis] = {"mean"} if "mean" in values else set(values)
    statement = Statement(metric="m", arm="a", value=0.0, level=level)
    statement.check_against(experiment, "claim X")
    assert {axis: set(values) for axis, values in statement.selection(experiment).items()} == wanted
    everything = statement.model_copy(update={"level": "mean"}).selection(experiment)
    assert set(everything) == set(wanted)
    assert len(list(grid(everything))) == len(set(itertools.product(*everything.values())))


def digest(paper: Paper, claim: str) -> str:
    return paper.statement_hash(paper.claims[claim], "laptop")


def test_hash_changes_with_the_code_of_derive_and_not_with_its_comments(tmp_path: Path) -> None:
    derive = tmp_path / "derive.py"
    digests = []
    for code in ("x = 1\n", "x = 1  # why\n", "x = 2\n"):
        derive.write_text(code)
        paper = parse_paper(tomllib.loads(PAPER), tmp_path)
        digests.append((digest(paper, "M1"), digest(paper, "M2")))
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[2][0]
    assert digests[0][1] == digests[2][1]  # M2 reads no derived metric


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_paper_goes_through_its_own_form_unchanged(data: st.DataObject) -> None:
    paper = parse()
    changes = data.draw(
        st.fixed_dictionaries(
            {"margin": st.floats(-10, 10), "better": st.sampled_from(["higher", "lower"]), "note": st.text(max_size=20)}
        )
    )
    raw = {**tomllib.loads(PAPER)}
    raw["claim"] = [{**raw["claim"][0], **changes}, *raw["claim"][1:]]
    changed = parse_paper(raw, FOLDER)
    form = changed.model_dump(mode="json", exclude={"slug", "folder"})
    again = parse_paper(form, FOLDER)
    assert again == changed
    assert [digest(again, c.id) for c in again.claim] == [digest(changed, c.id) for c in changed.claim]
    moved = (changes["margin"], changes["better"]) != (0.1, "higher")
    assert (digest(changed, "M1") != digest(paper, "M1")) is moved
    assert digest(changed, "M2") == digest(paper, "M2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("margin = 0.1", "margin = 0.2"),
        ('arm = "mean"\nagainst = "median"\nmargin', 'arm = "median"\nagainst = "mean"\nmargin'),
        ("margin = 0.1", 'margin = 0.1\nbetter = "lower"'),
        ("margin = 0.1", "margin = 0.1\nequivalence = true"),
        ("margin = 0.1", "margin = 0.1\nratio = 0.5"),
        ("margin = 0.1", 'margin = 0.1\nunit = "item"'),
        ("value = 0.5 }", "value = 0.6 }"),
        ('level = { outliers = "none" }, better = "lower", value', 'level = "mean", better = "lower", value'),
        ('control = [{ metric = "error", arm = "mean"', 'control = [{ metric = "error", arm = "median"'),
        ('metric = "gain"', 'metric = "error"\nlevel = "mean"'),
        ("scale.laptop = { seeds = 6 }", "scale.laptop = { seeds = 12 }"),
        ('level.outliers = ["none", "some"]', 'level.outliers = ["none", "some", "many"]'),
        ('over = ["outliers"] }', 'over = ["outliers"], needs = ["median"] }'),
    ],
)
def test_hash_changes_with_the_statement_and_its_controls(old: str, new: str) -> None:
    assert digest(parse(edited(old, new)), "M1") != digest(parse(), "M1")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Outliers hurt the mean more than the median.", "Something else."),
        ('test = "direct"', 'test = "analogue"'),
        ("margin = 0.1", 'margin = 0.1\nnote = "x"\npilot = "y"\npaper = { arm = 1.0 }'),
        ('id = "M1"', 'id = "M1x"'),
        ("timeout = 20", "timeout = 30"),
        ("margin = 0.1", 'margin = 0.1\nratio = 1.0\nbetter = "higher"'),
    ],
)
def test_hash_stays_with_other_words(old: str, new: str) -> None:
    changed = parse(edited(old, new))
    assert digest(changed, changed.claim[0].id) == digest(parse(), "M1")


def test_scales_of_a_claim() -> None:
    paper = parse(edited("scale.laptop = { seeds = 6 }", "scale.laptop = { seeds = 6 }\nscale.paper = { seeds = 3 }"))
    assert paper.scales_of(paper.claims["M1"]) == ("laptop", "paper")  # all but smoke
    assert paper.scales_of(paper.claims["M3"]) == ("paper",)
    assert parse().scales_of(parse().claims["M1"]) == ("laptop",)


@pytest.mark.parametrize(
    ("scale", "claim", "runs"),
    [
        ("{ seeds = 2 }", "M1", True),
        ('{ seeds = 2, arms = ["mean"] }', "M1", False),  # an arm of the claim
        ('{ seeds = 2, level = { outliers = ["some"] } }', "M2", False),  # its level
        ('{ seeds = 2, level = { outliers = ["none"] } }', "M2", True),
        (
            '{ seeds = 2, level = { outliers = ["none"] } }',
            "M1",
            False,
        ),  # an axis that its derived metric is taken over
        ('{ seeds = 2, level = { outliers = ["none"] } }', "M3", False),  # level = "mean"
    ],
)
def test_runnable(scale: str, claim: str, runs: bool) -> None:
    paper = parse(edited("scale.smoke = { seeds = 2 }", f"scale.smoke = {scale}"))
    assert paper.runnable(paper.claims[claim], "smoke") is runs
    assert not paper.runnable(paper.claims[claim], "overnight")


def test_runnable_looks_at_controls_and_at_what_a_derived_metric_needs() -> None:
    control = edited('control = [{ metric = "error", arm = "mean", level = { outliers = "none" }',
                     'control = [{ experiment = "jointly", metric = "error", arm = "mean"')  # fmt: skip
    paper = parse(
        control.replace("scale.smoke = { seeds = 2 }\nscale.laptop = { seeds = 8 }", "scale.laptop = { seeds = 8 }")
    )
    assert not paper.runnable(paper.claims["M1"], "smoke")
    assert paper.runnable(paper.claims["M1"], "laptop")
    assert set(needed_cells(paper, paper.claims["M1"], "laptop")) == {"estimate", "jointly"}
    text = PAPER.replace('arms = ["mean", "median"]\ntimeout', 'arms = ["mean", "median", "zero"]\ntimeout')
    text = text.replace('over = ["outliers"] }', 'over = ["outliers"], needs = ["zero"] }')
    text = text.replace("scale.smoke = { seeds = 2 }", 'scale.smoke = { seeds = 2, arms = ["mean", "median"] }', 1)
    paper = parse(text)
    assert not paper.runnable(paper.claims["M1"], "smoke")
    assert paper.runnable(paper.claims["M2"], "smoke")


def test_models_cannot_be_changed(toy: Callable[..., Any]) -> None:
    paper = load_paper(toy.room)
    with pytest.raises(Exception, match="frozen"):
        paper.title = "another"
