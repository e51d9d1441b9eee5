"""The parts of the study that verdicts lean on: derived metrics, splits, regimes, selection rules, own arms."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from paperworks.claims.study import Cell, Trial
from paperworks.kit.assets import load_letter, open_asset, status
from paperworks.supervision.pu_bench import derive, oracle_accuracy, study

from . import reference

needs_data = pytest.mark.skipif(
    "missing" in {status(name).state for name in ("letter", "mnist5k")}, reason="data: paperworks data pu_bench"
)


def rows(values, axis):
    keys = ["arm", axis, "metric", "value"]
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"seed": 3, "item": None} for row in values])


def benchmark(accuracy):
    """A table in which algorithm i has the given first and second accuracies on two data sets."""
    table = []
    for i, name in enumerate(derive.ALGORITHMS):
        for regime in ("os", "osc", "ts"):
            for data in ("x", "y"):
                first, second = accuracy(i, regime, data)
                mean = (first + second) / 2
                values = (("accuracy", mean), ("first", first), ("second", second), ("auc", 0.9))
                table += [(f"{name}_{regime}", data, metric, value) for metric, value in values]
    return rows(table, "data")


def test_lift_and_its_mean():
    table = benchmark(lambda i, regime, data: (0.7 + 0.01 * i * (regime == "osc"),) * 2)
    naive = rows(
        [(f"naive_{regime}", d, "accuracy", v) for d in ("x", "y") for regime, v in (("osc", 0.5), ("os", 0.9))], "data"
    )
    copy = table.copy()
    out = derive.regimes(pd.concat([table, naive]), 3)
    lift = out[out["metric"] == "mean_lift"].set_index("arm")["value"]
    assert lift.to_dict() == pytest.approx({"naive_osc": -0.4, "upu_osc": np.mean([0.01 * i for i in range(9)])})
    pd.testing.assert_frame_equal(table, copy)


def test_shortfall_is_chosen_on_one_repetition_and_tested_on_the_other():
    def accuracy(i, regime, data):
        # Algorithm 1 is best on average; 2 wins on x, and 3 on y. What they reach shows on the other repetition.
        first = {1: 0.8, 2: 0.9 if data == "x" else 0.5, 3: 0.5 if data == "x" else 0.85}.get(i, 0.4)
        second = {1: 0.7, 2: 0.76 if data == "x" else 0.5, 3: 0.5 if data == "x" else 0.72}.get(i, 0.3)
        return first, second

    out = derive.regimes(benchmark(accuracy), 3)
    value = out[out["metric"] == "shortfall"]["value"].item()
    assert value == pytest.approx(((0.76 + 0.72) / 2 - 0.7 + (0.9 + 0.85) / 2 - 0.8) / 2)


def test_noise_alone_gives_no_shortfall():
    values = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        first, second = rng.normal(0.8, 0.02, (9, 3)), rng.normal(0.8, 0.02, (9, 3))
        values.append((derive._shortfall(first, second) + derive._shortfall(second, first)) / 2)
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(300)
    assert np.std(values) > 1e-3


def test_missing_inputs_give_no_row():
    table = benchmark(lambda i, regime, data: (0.7, 0.7))
    out = derive.regimes(table[~((table["arm"] == "glws_osc") & (table["data"] == "y"))], 3)
    assert out.empty
    assert derive.regimes(table[:0], 3).empty
    assert derive.regimes(table[table["arm"] == "upu_ts"], 3).empty
    assert derive.shares(rows([("upu_os", 0.1, "accuracy", 0.7)], "share"), 3).empty


def test_slope_of_the_gap():
    shares = (0.1, 0.3, 0.45)
    table = rows(
        [("upu_ts", s, "accuracy", 0.9 - 0.1 * s) for s in shares]
        + [("upu_os", s, "accuracy", 0.9 - 0.4 * s) for s in shares]
        + [("upu_osc", s, "accuracy", 0.8 - 0.1 * s) for s in shares],
        "share",
    )
    out = derive.shares(table, 3).set_index("arm")["value"]
    assert out.to_dict() == pytest.approx({"upu_os": 0.03, "upu_osc": 0.0}, abs=1e-12)


def trial(experiment, arm, level, seeds=(100,), arms=(), **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    cells = [Cell(a, level, seed) for a in arms or (arm,) for seed in seeds]
    own = {**experiment.arms, **({"mine": arm} if callable(arm) else {})}
    return Trial(origin=("pu_bench", experiment.name, 1), cells=cells, scale="smoke", config=config, arms=own)


@needs_data
@pytest.mark.parametrize(("name", "classes", "per_class"), [("letter2", 26, 500), ("mnist1", 10, 400)])
def test_pool_and_test_rows_are_apart_and_complete(name, classes, per_class):
    config = study.regimes.config["laptop"]
    pool = study._pool(name, config, np.random.default_rng(0))
    assert np.unique(pool.y, return_counts=True)[1].tolist() == [per_class] * classes
    assert len(pool.x_test) == {"letter2": 20_000 - 13_000, "mnist1": 1000}[name]
    assert 0.4 < pool.truth.mean() < 0.6
    assert set(pool.positive) <= set(pool.y.tolist())
    if name == "letter2":
        letters, labels = load_letter()
        together = np.concatenate([pool.x, pool.x_test])
        scale = letters[labels == "A"].std(axis=0)
        assert len(together) == len(letters)
        assert np.abs(pool.x.mean(axis=0)).max() < 1e-4
        assert (scale > 0).all()
    other = study._pool(name, config, np.random.default_rng(1))
    assert not np.array_equal(pool.x, other.x)


def test_positive_classes_are_the_paper_s():
    lists = {"letter1": list("BVLRIOWSJKCHZ"), "letter2": list("DTAYQGBLIWJCZ"), "mnist1": [4, 7, 9, 5, 8]}
    assert lists == study.POSITIVE


def test_arms_are_what_their_names_say():
    regimes = {"os": ("one-sample", False), "osc": ("one-sample", True), "ts": ("two-sample", False)}
    for name, factory in {**study.regimes.arms, **study.shares.arms}.items():
        algorithm, _, regime = name.rpartition("_")
        learner = factory()
        assert (learner.algorithm, (learner.setting, learner.calibrate)) == (algorithm, regimes[regime])
        assert learner.learning_rate == study.RATES[algorithm][list(regimes).index(regime)]
        assert learner.options == ({"late": False} if algorithm == "dist_pu" else None)


@needs_data
def test_regimes_share_their_pool_and_differ_in_what_is_drawn():
    drawn = {}
    for arm in ("upu_os", "upu_osc", "upu_ts"):
        _, learners, data, pools = study._lanes(trial(study.regimes, arm, {"data": "letter1"}), "letter1", 0.3, 2)
        drawn[arm] = learners, data, pools
    os_, osc, ts = (drawn[arm] for arm in ("upu_os", "upu_osc", "upu_ts"))
    np.testing.assert_array_equal(os_[1][0].x, osc[1][0].x)
    np.testing.assert_array_equal(os_[2][1].x_test, ts[2][1].x_test)
    assert [learner.random_state for learner in os_[0]] == [learner.random_state for learner in ts[0]]
    assert os_[1][0].unlabeled_share == pytest.approx(2 / 7)
    assert ts[1][0].unlabeled_share == 0.5
    assert not np.array_equal(os_[1][0].x, os_[1][1].x), "the two repetitions are independent"
    assert not np.array_equal(os_[1][0].rows, os_[1][1].rows)
    assert os_[0][0].random_state != os_[0][1].random_state
    assert not np.array_equal(os_[2][0].x_test, os_[2][1].x_test)


@needs_data
def test_cells_do_not_depend_on_their_company():
    def metrics(seeds):
        t = trial(study.regimes, "vpu_osc", {"data": "letter1"}, seeds)
        return {cell.seed: outcome.metrics for cell, outcome in study.regimes.function(t)}

    both = metrics((100, 101))
    assert both[100]["accuracy"] == pytest.approx((both[100]["first"] + both[100]["second"]) / 2, abs=1e-4)
    assert both[100]["first"] != both[100]["second"]
    assert metrics((101,))[101] == both[101]
    assert both[100] != both[101]


@needs_data
def test_anyone_s_classifier_can_be_an_arm():
    labelled = []

    class Mine(LogisticRegression):
        setting = "one-sample"

        def __init__(self, **ignored):
            super().__init__()

        def fit(self, X, y):
            labelled.append(y.mean())
            return super().fit(X, y)

        @classmethod
        def _get_param_names(cls):
            return []

    t = trial(study.regimes, Mine, {"data": "letter1"}, arms=("mine",))
    ((_, outcome),) = study.regimes.function(t)
    assert outcome.metrics.keys() == {"accuracy", "auc", "f1", "pa", "pauc", "oa", "first", "second"}
    assert outcome.metrics["auc"] > 0.5
    ((_, outcome),) = study.shares.function(trial(study.shares, Mine, {"share": 0.1}, arms=("mine",)))
    assert outcome.metrics.keys() == {"accuracy", "auc"}
    assert labelled == pytest.approx([0.3, 0.3, 0.1], abs=0.01)


def test_criteria_are_those_of_the_chosen_checkpoint():
    learner = study.PULearner()
    learner.history_ = {"step": [10, 20], "pa": [1.2, 1.1], "pauc": [0.7, 0.8], "oa": [-np.inf, 0.9]}
    learner.checkpoint_step_ = 10
    assert study._chosen(learner, None) == {"pa": 1.2, "pauc": 0.7, "oa": 0.0}, "a net that blew up has none"


@pytest.mark.parametrize("setting", ["one-sample", "two-sample"])
def test_selection_rules_are_the_criteria(setting):
    y, f, truth = np.array([1, 1, 0, 0, 0]), np.array([2.0, -1.0, 1.0, -3.0, -0.5]), np.array([1, 1, 1, 0, 0])
    rules = (study.by_pa, study.by_pauc, study.by_oracle, study.at_random)
    found = [rule(0.4, setting)(y, f, truth) for rule in rules]
    p, u = f[:2].tolist(), f[2:].tolist()
    oracle = {"one-sample": 4 / 5, "two-sample": 3 / 3}[setting]
    pa, pauc = reference.proxy_accuracy(p, u, 0.4, setting), reference.proxy_auc(p, u)
    assert found == pytest.approx([pa, pauc, oracle, 0])


@needs_data
def test_selection_rules_choose_what_they_say():
    level = {"data": "letter1", "algorithm": "upu"}
    t = trial(study.selection, "", level, seeds=(100, 101), arms=("pa", "oa", "random"), steps=80)
    found = {(cell.arm, cell.seed): outcome.metrics for cell, outcome in study.selection.function(t)}
    assert len(found) == 6

    def worst(prior, setting):
        return lambda y_pu, score, y_true: -oracle_accuracy(y_true, score)

    ((_, least),) = study.selection.function(trial(study.selection, worst, level, arms=("mine",), steps=80))
    assert found["oa", 100]["accuracy"] > found["random", 100]["accuracy"] > least.metrics["accuracy"]

    def every(prior, setting):
        seen = []
        study_rules.append(seen)
        return lambda y_pu, score, y_true: seen.append((y_pu.mean(), y_true.mean(), len(score))) or float(len(seen))

    study_rules = []
    t = trial(study.selection, every, level, arms=("mine",))
    ((_, outcome),) = study.selection.function(t)
    (calls,) = study_rules
    assert len(calls) == 4 * 3  # learning rates times looks
    assert calls[0] == (pytest.approx(0.3, abs=0.01), pytest.approx(0.5, abs=0.1), 130)
    assert outcome.metrics.keys() == {"accuracy", "auc"}


@needs_data
def test_letters_equal_a_plain_reading():
    features, labels = load_letter()
    assert (features.shape, features.dtype, labels.shape) == ((20_000, 16), np.uint8, (20_000,))
    with open(open_asset("letter")) as stream:
        plain = [line.strip().split(",") for i, line in enumerate(stream) if i % 500 == 3]
    assert [[int(v) for v in row[:-1]] for row in plain] == features[3::500].tolist()
    assert [row[-1] for row in plain] == labels[3::500].tolist()
    counts = np.unique(labels, return_counts=True)
    assert "".join(counts[0]) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    assert (counts[1].min(), counts[1].max()) == (734, 813)
    assert (features.min(), features.max()) == (0, 15)
    features[:] = 99
    assert load_letter()[0].max() == 15
