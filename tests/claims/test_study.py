"""Streams, outcomes, joint trials and knobs: what a study is written with."""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Desk
from paperworks.claims import engine
from paperworks.claims.errors import PaperError, UsageError
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import Ledger, Row
from paperworks.claims.study import Cell, ExperimentConfig, Outcome, Streams, Trial, experiment, prepared, tune
from toy_package import LAB_PAPER, LAB_STUDY


def trial(*cells: Cell, origin: tuple[object, ...] = ("toy", "estimate", 1), **options: Any) -> Trial[Any]:
    cells = cells or (Cell("mean", {"outliers": "none"}, 3),)
    arms = {"mean": lambda *a, **k: ("mean", a, k), "median": lambda *a, **k: ("median", a, k)}
    return Trial(origin=origin, cells=cells, scale="laptop", config=ExperimentConfig(), arms=arms, **options)


def draw(generator: np.random.Generator) -> list[float]:
    return generator.normal(size=4).tolist()


# --- streams -------------------------------------------------------------------------------------------------------


def test_a_stream_is_the_same_for_every_arm_and_level_and_starts_anew() -> None:
    cells = [Cell(arm, {"outliers": o}, 3) for arm in ("mean", "median") for o in ("none", "some")]
    drawn = [draw(trial(cell).rng("data")) for cell in cells]
    assert all(d == drawn[0] for d in drawn)
    one = trial()
    assert draw(one.rng("data")) == draw(one.rng("data"))  # asked for twice, it starts at the same place


def test_the_numbers_stay_for_ever() -> None:
    """Outcomes of other machines and releases must be comparable: changing this makes all evidence stale."""
    drawn = Streams("toy", "estimate", 1, 3).rng("data").integers(0, 2**32, 3).tolist()
    assert drawn == [2658449253, 2229080237, 1983235334]
    entropy = int.from_bytes(hashlib.sha256(b"toy/estimate/1/3/data").digest()[:16], "big")
    assert drawn == np.random.default_rng(entropy).integers(0, 2**32, 3).tolist()


def test_another_name_seed_experiment_version_or_paper_is_another_stream() -> None:
    base = draw(trial().rng("data"))
    others = [
        trial().rng("init"),
        trial(Cell("mean", {"outliers": "none"}, 4)).rng("data"),
        trial(origin=("toy", "jointly", 1)).rng("data"),
        trial(origin=("toy", "estimate", 2)).rng("data"),
        trial(origin=("other", "estimate", 1)).rng("data"),
    ]
    drawn = [base, *map(draw, others)]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.text(min_size=1, max_size=8)), min_size=2, max_size=6, unique=True))
def test_streams_of_any_names_and_seeds_differ(named: list[tuple[int, str]]) -> None:
    firsts = [Streams("toy", "estimate", 1, seed).rng(name).integers(2**63) for seed, name in named]
    assert len(set(firsts)) == len(named)


def test_streams_are_independent() -> None:
    """Correlations over 300 streams of neighbouring seeds and of two names are no larger than chance."""
    drawn = np.array([[Streams("t", "e", 1, seed).rng(n).normal(size=50) for n in ("a", "b")] for seed in range(300)])
    flat = drawn.reshape(600, 50)
    between = np.corrcoef(flat)[np.triu_indices(600, 1)]
    assert abs(between.mean()) < 0.003
    assert between.std() == pytest.approx(1 / math.sqrt(49), rel=0.05)


def test_a_stream_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        trial().rng("")


def test_torch_generators_are_named_streams_too() -> None:
    torch = pytest.importorskip("torch")
    one = trial()
    first = torch.rand(4, generator=one.generator("init"))
    assert torch.equal(first, torch.rand(4, generator=one.generator("init")))
    assert not torch.equal(first, torch.rand(4, generator=one.generator("data")))


@pytest.mark.parametrize("fails", [False, True])
def test_seeded_seeds_all_globals_and_restores_them(fails: bool) -> None:
    torch = pytest.importorskip("torch")

    def sample() -> tuple[Any, ...]:
        return random.random(), np.random.rand(2).tolist(), torch.rand(2).tolist()  # noqa: NPY002

    def state() -> tuple[Any, ...]:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    before = state()
    inside = []
    for name in ("init", "init", "other"):
        try:
            with trial().seeded(name):
                inside.append(sample())
                if fails:
                    raise RuntimeError("in the middle")
        except RuntimeError:
            assert fails
        assert state() == before
    assert inside[0] == inside[1]
    assert all(a != b for a, b in zip(inside[0], inside[2], strict=True))


def test_seeded_contexts_may_be_nested() -> None:
    with trial().seeded("outer"):
        alone = [random.random() for _ in range(3)]
    with trial().seeded("outer"):
        first = random.random()
        with trial().seeded("inner"):
            random.random()
        assert [first, random.random(), random.random()] == alone


GLOBAL = """
import random

import numpy as np

from paperworks.claims.study import ExperimentConfig, Outcome, experiment

C = {"smoke": ExperimentConfig(), "laptop": ExperimentConfig()}


@experiment("estimate", config=C, arms={"mean": lambda: 1, "median": lambda: 2})
def estimate(trial):
    first = random.random() + np.random.rand()
    random.seed(trial.seed + 1000 * trial.build())  # leaves its mark, as careless third parties do
    np.random.seed(trial.seed)
    return Outcome({"error": first, "spread": first})
"""


def test_global_generators_do_not_leak_from_trial_to_trial(make_toy: Callable[..., Desk]) -> None:
    make_toy(study=GLOBAL)
    with Ledger(Path("ledger.db")) as ledger:
        for arms in ({}, {"median": None}):
            engine.run(engine.Request(("toy.estimate",), arms=arms, again=True), ledger, executor=InlineExecutor())
            values = {row.metrics["error"] for row in ledger.rows("toy")}
            assert len(values) == 1  # what was drawn or seeded before is never seen


# --- outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan")])
@pytest.mark.parametrize("where", ["metrics", "items", "curve", "step"])
def test_an_outcome_holds_finite_numbers(where: str, bad: float) -> None:
    given: dict[str, Any] = {
        "metrics": {"metrics": {"acc": bad}},
        "items": {"metrics": {}, "items": {"acc": {"q1": 1.0, "q2": bad}}},
        "curve": {"metrics": {}, "curves": {"loss": [(0, 1.0), (1, bad)]}},
        "step": {"metrics": {}, "curves": {"loss": [(bad, 1.0)]}},
    }[where]
    with pytest.raises(ValueError, match=r"('acc'|'loss') is .*finite numbers \(make divergence a metric"):
        Outcome(**given)


def test_numbers_of_any_kind_become_floats() -> None:
    outcome = Outcome({"a": np.float32(0.5), "b": True, "c": np.int64(3)}, items={"d": {7: np.float64(1.5)}})
    assert outcome.metrics == {"a": 0.5, "b": 1.0, "c": 3.0}
    assert outcome.items == {"d": {"7": 1.5}}
    assert {type(v) for v in outcome.metrics.values()} == {float}
    with pytest.raises((ValueError, TypeError)):
        Outcome({"a": [1.0, 2.0]})


def test_curves_are_kept_by_cell_and_points_that_are_not_finite_left_out() -> None:
    cells = (Cell("mean", {}, 0), Cell("mean", {}, 1))
    joint = trial(*cells)
    joint.curve("loss", 1, 5.0, cells[0])
    joint.curve("loss", 2, math.nan, cells[0])
    joint.curve("loss", math.inf, 1.0, cells[0])
    joint.curve("loss", 3, 4.0, cells[0])
    joint.curve("loss", 1, 9.0, cells[1])
    assert joint.finish(cells[0], Outcome({"m": 1})).curves == {"loss": [(1.0, 5.0), (3.0, 4.0)]}
    assert joint.finish(cells[1], Outcome({"m": 1})).curves == {"loss": [(1.0, 9.0)]}
    with pytest.raises(ValueError, match="2 cells jointly: say which"):
        joint.curve("loss", 4, 1.0)


# --- trials --------------------------------------------------------------------------------------------------------


def test_a_trial_of_one_cell() -> None:
    told = []
    one = trial(on_progress=lambda *a: told.append(a))
    assert (one.arm, dict(one.level), one.seed, dict(one.knobs)) == ("mean", {"outliers": "none"}, 3, {})
    assert one.build(1, width=2) == ("mean", (1,), {"width": 2})
    one.progress(1, 10)
    assert told == [(1, 10)]
    with pytest.raises(TypeError):
        one.level["outliers"] = "some"
    with pytest.raises(PaperError, match=r"'x': the experiment does not list it in prepared"):
        one.prepared("x")


def test_a_joint_trial_asks_which_cell_where_they_differ() -> None:
    cells = (Cell("mean", {"p": 1}, 0), Cell("median", {"p": 1}, 1))
    joint = trial(*cells)
    assert dict(joint.level) == {"p": 1}  # shared
    for read in (
        lambda: joint.arm,
        lambda: joint.seed,
        joint.build,
        lambda: joint.rng("data"),
        lambda: joint.seeded("x"),
    ):
        with pytest.raises(ValueError, match=r"differ in (arm|seed): read it from each of trial\.cells"):
            read()
    assert joint.build(cell=cells[1])[0] == "median"
    assert draw(joint.rng("data", cells[1])) == draw(trial(cells[1]).rng("data"))
    assert draw(joint.rng("data", cells[1])) != draw(joint.rng("data", cells[0]))


def test_a_joint_trial_names_the_seed_whose_artefact_it_means() -> None:
    cells = (Cell("mean", {}, 0), Cell("mean", {}, 1))
    asked = []
    joint = trial(*cells, prepared=lambda name, seed: asked.append((name, seed)) or Path())
    joint.prepared("corpus")
    joint.prepared("corpus", cells[1])
    trial(cells[1], prepared=lambda name, seed: asked.append((name, seed)) or Path()).prepared("corpus")
    assert asked == [("corpus", None), ("corpus", 1), ("corpus", 1)]


def test_configurations_are_immutable_and_closed() -> None:
    class Config(ExperimentConfig):
        steps: int = 3

    with pytest.raises(ValueError, match="frozen"):
        Config().steps = 4
    with pytest.raises(ValueError, match="Extra inputs"):
        Config(stepz=4)


@settings(max_examples=50, deadline=None)
@given(st.floats(allow_nan=False), st.integers())
def test_configurations_reach_the_workers_unchanged(real: float, whole: int) -> None:
    class Config(ExperimentConfig):
        limit: float
        steps: int

    config = Config(limit=real, steps=whole)
    again = Config.model_validate_json(config.model_dump_json())
    assert (repr(again.limit), again.steps) == (repr(real), whole)


# --- knobs ---------------------------------------------------------------------------------------------------------


def run(target: str, **request: Any) -> list[Row]:
    with Ledger(Path("ledger.db")) as ledger:
        engine.run(engine.Request((target,), **request), ledger, executor=InlineExecutor())
        return ledger.rows("toy")


def test_knobs_are_chosen_by_the_mean_on_the_tuning_seeds_only(lab: Desk) -> None:
    rows = run("toy.tuned")
    tuned, tried = ([row for row in rows if row.kind == kind] for kind in ("tune", "trial"))
    assert len(tuned) == 2 * 2 * 2 * 4  # arms, sizes, rates, seeds
    assert {row.seed for row in tuned} == {100, 101, 102, 103}
    assert len(tried) == 2 * 2 * 6
    chosen = {(row.arm, row.level["size"]): row.knobs["rate"] for row in tried}
    # At size 1 rate 1.0 is better on most tuning seeds and on every trial seed, but not in the mean over tuning seeds.
    assert chosen == {("plain", 1.0): 0.1, ("odd", 1.0): 0.1, ("plain", 2.0): 1.0, ("odd", 2.0): 1.0}
    assert all(row.metrics["loss"] == pytest.approx((row.knobs["rate"] == 0.1) + 0.5 * (row.arm == "odd")
               + row.seed / 1000) for row in tried)  # fmt: skip


def test_an_own_arm_is_tuned_as_the_others_are(lab: Desk) -> None:
    rows = run("toy.tuned", arms={"mine": zero_point_two})
    for arm in ("plain", "odd", "mine"):
        assert sum(row.kind == "tune" for row in rows if row.arm == arm) == 16
    assert {row.knobs["rate"] for row in rows if row.arm == "mine" and row.kind == "trial"} == {0.1, 1.0}


def zero_point_two() -> float:
    return 0.2


def test_tuning_is_not_disturbed_by_other_experiments_of_the_paper(lab: Desk) -> None:
    """Their outcomes lie in the same ledger and have other metrics."""
    run("toy.cached")
    run("toy.marked")
    assert sum(row.kind == "trial" and row.experiment == "tuned" for row in run("toy.tuned")) == 24


def test_higher_may_be_better(make_toy: Callable[..., Desk]) -> None:
    make_toy(paper=LAB_PAPER, study=LAB_STUDY.replace('better="lower"', 'better="higher"'))
    rows = run("toy.tuned", scale="smoke")
    assert {row.knobs["rate"] for row in rows if row.kind == "trial" and row.level["size"] == 1.0} == {1.0}
    assert {row.knobs["rate"] for row in rows if row.kind == "trial" and row.level["size"] == 2.0} == {0.1}


def test_tuning_that_fails_for_one_knob_chooses_among_the_others(make_toy: Callable[..., Desk]) -> None:
    fails = "    if trial.knobs['rate'] == 1.0 and trial.seed == 102:\n        raise RuntimeError('diverged')\n"
    make_toy(paper=LAB_PAPER, study=LAB_STUDY.replace("def tuned(trial):\n", f"def tuned(trial):\n{fails}"))
    rows = run("toy.tuned", scale="smoke")
    assert {row.knobs["rate"] for row in rows if row.kind == "trial"} == {0.1}
    assert sum(row.status == "failed" for row in rows) == 4


def test_tuning_that_fails_altogether_is_one_line(make_toy: Callable[..., Desk]) -> None:
    study = LAB_STUDY.replace("def tuned(trial):\n", "def tuned(trial):\n    if trial.seed == 101:\n        1 / 0\n")
    make_toy(paper=LAB_PAPER, study=study)
    with pytest.raises(PaperError, match=r"toy\.tuned: tuning of plain failed for every knob; see the failed cells"):
        run("toy.tuned", scale="smoke")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds=range(100, 104)", "seeds=range(5, 9)", "chooses on seed 5, which is judged; take seeds from 100 on"),
        ('metric="loss"', 'metric="lost"', "@tune of 'tuned' by 'lost', not one of loss"),
        (", rate=[0.1, 1.0]", "", "@tune needs at least one knob"),
        ("rate=[0.1, 1.0]", "rate=[]", "@tune needs at least one knob"),
        ("seeds=range(100, 104)", "seeds=[]", "@tune needs at least one seed"),
    ],
)
def test_tuning_that_cannot_be_right_is_refused(make_toy: Callable[..., Desk], old: str, new: str, says: str) -> None:
    make_toy(paper=LAB_PAPER, study=LAB_STUDY.replace(old, new))
    with pytest.raises(PaperError) as caught:
        run("toy.tuned")
    assert says in str(caught.value)


def test_seeds_on_which_knobs_are_chosen_are_not_run_as_trials(lab: Desk) -> None:
    with pytest.raises(UsageError, match="--seeds: tuned chooses its knobs on seed 102; take seeds that are fresh"):
        run("toy.tuned", seeds=(99, 103, 102))
    assert len(run("toy.marked", seeds=(102,))) == 2  # no knobs there


def test_the_decorators_keep_what_they_are_given() -> None:
    config = {"smoke": ExperimentConfig()}

    @tune(seeds=range(100, 102), metric="m", better="lower", lr=[1, 2])
    @experiment("e", config=config, arms={"a": dict}, prepared=("p",))
    def study(trial: Trial[Any]) -> Outcome:
        return Outcome({"m": 1})

    @prepared("p", version=3, scope="seed", timeout=5)
    def builder(preparation: Any) -> None:
        """Nothing."""

    assert (study.name, study.prepared, study.arms, study.config) == ("e", ("p",), {"a": dict}, config)
    assert study.tuning.knobs == {"lr": [1, 2]}
    assert (study.tuning.metric, study.tuning.better, study.tuning.seeds) == ("m", "lower", (100, 101))
    assert (builder.name, builder.version, builder.scope, builder.timeout) == ("p", 3, "seed", 5)
