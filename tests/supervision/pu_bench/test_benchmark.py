"""`run_benchmark`: its table is complete, tidy and what single learners give."""

import numpy as np
import pytest

from paperworks.supervision.pu_bench import BenchmarkConfig, PULearner, make_pu, run_benchmark
from paperworks.supervision.pu_bench.benchmark import Task, classification_scores

LEARNER = {"max_steps": 20, "hidden": 8, "batch_size": 16, "eval_every": 10, "learning_rate": 0.05}


def task(seed=0):
    rng = np.random.default_rng(seed)
    y = np.tile(["a", "b", "c", "d"], 150)
    X = rng.normal(size=(600, 2)) + 2 * np.isin(y, ["a", "b"])[:, None]
    return Task(X[:400], y[:400], X[400:], y[400:], ["a", "b"])


def test_table():
    own, calls = task(), []
    config = BenchmarkConfig(
        {"easy": own}, ("upu", "count"), seeds=(3, 5), n_total=300, draws=3, criteria=("pa", "last"), learner=LEARNER
    )
    table = run_benchmark(config, lambda done, total: calls.append((done, total)))
    keys = ["task", "algorithm", "regime", "seed", "criterion", "draw", "metric"]
    assert not table.duplicated(keys).any()
    assert len(table) == 2 * 3 * 2 * 3 * (6 + 6)  # algorithms, regimes, seeds, draws; five metrics and the criterion
    assert calls[-1] == (18, 18)
    chosen = table[table["chosen"]]
    assert (chosen.groupby(["algorithm", "regime", "seed", "criterion"])["draw"].nunique() == 1).all()
    by_pa = table[(table["criterion"] == "pa") & (table["metric"] == "pa")]
    best = by_pa.groupby(["algorithm", "regime", "seed"])["value"].max()
    picked = by_pa[by_pa["chosen"]].set_index(["algorithm", "regime", "seed"])["value"]
    assert (picked.sort_index() == best.sort_index()).all()
    rates = table.groupby("draw")["learning_rate"].unique()
    assert all(len(r) == 1 for r in rates), "all algorithms try the same draws"
    assert rates[0] == [0.05]
    assert all(10**-4.5 <= r[0] <= 10**-2.5 for r in rates[1:])
    assert set(table["batch_size"].unique()) <= {16, 32, 64}
    data = make_pu(own.X, own.y, ["a", "b"], 0.5, 90, 300, "one-sample", np.random.default_rng([5, 0]))
    learner = PULearner("upu", setting="one-sample", random_state=5, **LEARNER).fit(data.x, data.y, data.hidden)
    row = table[
        (table["algorithm"] == "upu")
        & (table["regime"] == "one-sample-c")
        & (table["seed"] == 5)
        & (table["criterion"] == "pa")
        & (table["draw"] == 0)
    ].set_index("metric")["value"]
    plain = classification_scores(np.isin(own.y_test, ["a", "b"]), learner.decision_function(own.X_test))
    assert row[list(plain)].to_dict() == pytest.approx(plain)


def test_scores_of_a_known_table():
    scores = classification_scores([1, 1, 1, 0, 0], [1.0, 0.5, -1.0, 2.0, -2.0])
    assert scores == pytest.approx({"accuracy": 3 / 5, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "auc": 3 / 6})
    nothing = classification_scores([1, 0], [-1.0, -2.0])
    assert (nothing["precision"], nothing["recall"], nothing["f1"]) == (0, 0, 0)
    blown_up = classification_scores([1, 0, 0], [np.nan, np.nan, np.nan])
    assert (blown_up["accuracy"], blown_up["auc"]) == (pytest.approx(1 / 3), 0.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"algorithms": ("upu", "pun")}, "algorithms: 'pun' is not one of naive, upu"),
        ({"regimes": ("os",)}, "regimes: 'os' is not one of two-sample"),
        ({"criteria": ("acc",)}, "criteria: 'acc' is not one of pa"),
        ({"draws": 0}, "draws: at least one is needed"),
        ({"tasks": {}}, "tasks: at least one is needed"),
    ],
)
def test_bad_input_is_named(change, said):
    with pytest.raises(ValueError, match=said):
        BenchmarkConfig(**{"tasks": {"easy": task()}, **change})
