"""PULearner: scikit-learn's contract, every algorithm, checkpoints, calibration, and what it refuses."""

import pickle
import re
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from paperworks.supervision.pu_bench import (
    ALGORITHMS,
    Algorithm,
    PULearner,
    SettingWarning,
    fit_together,
    losses,
    make_pu,
    oracle_accuracy,
    prior_sensitivity,
    proxy_accuracy,
    proxy_auc,
)
from paperworks.supervision.pu_bench.nets import LaneMLP, LaneModules, LaneSGD

QUICK = {"max_steps": 40, "hidden": 16, "batch_size": 16, "eval_every": 20, "learning_rate": 0.1, "random_state": 0}
CHECKED = PULearner(prior=0.5, setting="two-sample", **{**QUICK, "max_steps": 60})


@parametrize_with_checks([CHECKED], expected_failed_checks=lambda estimator: {})
def test_scikit_learn_contract(estimator, check):
    """No failure is expected: labels 1 and 0 of the checks are taken for labelled and unlabeled."""
    check(estimator)


def clouds(n=400, setting="one-sample", share=0.3, seed=0, distance=3.0):
    """Two normal clouds, half of the population each."""
    rng = np.random.default_rng(seed)
    classes = np.repeat([1, 0], n)
    X = rng.normal(size=(2 * n, 2)) + distance * classes[:, None]
    return make_pu(X, classes, [1], 0.5, round(share * n), n, setting, rng)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("setting", ["one-sample", "two-sample"])
def test_every_algorithm_learns_what_is_easy(algorithm, setting):
    data = clouds(setting=setting)
    rate = {"count": 0.01, "lbe": 0.3}.get(algorithm, 0.05)  # the gradient of "count" is a sum over the batch
    # EM moves slowly away from the naive classifier; half of PULDA's steps have no mixup
    steps = {"lbe": 300, "pulda": 150}.get(algorithm, 60)
    learner = PULearner(
        algorithm, setting=setting, **{**QUICK, "learning_rate": rate, "max_steps": steps, "warmup_steps": 30}
    )
    learner.fit(data.x, data.y, data.hidden)
    assert (learner.predict(data.x) == data.hidden).mean() > 0.9
    assert proxy_auc(data.hidden, learner.decision_function(data.x)) > 0.95
    assert learner.history_.keys() == {"step", "loss", "pa", "pauc", "oa"}
    assert np.isfinite([learner.history_[name] for name in learner.history_]).all()


def test_dist_pu_late_stage_differs_from_the_early_one():
    data = clouds()
    scores = [
        PULearner("dist_pu", setting="one-sample", options=options, **QUICK)
        .fit(data.x, data.y)
        .decision_function(data.x)
        for options in ({"warmup_epochs": 0}, {"late": False}, {"warmup_epochs": 99})
    ]
    assert not np.allclose(scores[0], scores[1])
    np.testing.assert_array_equal(scores[1], scores[2])


def test_checkpoint_is_the_best_one_by_its_criterion():
    data = clouds(distance=1.0)
    learner = PULearner(
        "upu", setting="one-sample", **{**QUICK, "max_steps": 100, "eval_every": 5, "learning_rate": 0.5}
    )
    learner.fit(data.x, data.y, data.hidden)
    chosen = set()
    for criterion in ("pa", "pauc", "oa"):
        other, values = learner.at(criterion), learner.history_[criterion]
        first_best = learner.history_["step"][int(np.argmax(values))]
        assert other.checkpoint_step_ == first_best
        chosen.add(first_best)
    assert learner.at("last").checkpoint_step_ == 100
    assert len(chosen) > 1, "the criteria must disagree for this test to mean anything"
    assert learner.checkpoint_step_ == learner.at("pa").checkpoint_step_
    last = clone(learner).set_params(criterion=None, validation_fraction=0.1).fit(data.x, data.y)
    assert last.checkpoint_step_ == 100
    assert last.history_.keys() == {"step", "loss"}


def dropping(features):
    layers = torch.nn.Linear(features, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 2)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("kind", "module", "setting"),
    [("nnpu", None, "two-sample"), ("nnpu", dropping, "one-sample"), ("pusb", None, "one-sample")],
)
def test_history_is_computed_on_held_out_rows_with_the_checkpoint_s_net(kind, module, setting):
    """PA of the chosen net, in evaluation mode, on all rows but those trained on is what history says."""
    data = clouds(n=200, distance=1.5)
    seen, noise = [], []

    class Spy(ALGORITHMS[kind]):
        def loss(self, run, batch):
            seen.append((run.x_p, run.x_u))
            noise.append((run.scores(batch.x_p)[0] - run.scores(batch.x_p)[0]).abs().max().item())
            assert run.epoch_steps == 126 // 16
            return super().loss(run, batch)

    learner = PULearner(Spy(), prior=0.4, setting=setting, calibrate=False, module=module, **QUICK)
    learner.fit(data.x, data.y, data.hidden)
    assert all(n > 0 for n in noise) if module else not any(noise), "training goes on in training mode"
    x_p, x_u = (part[0].numpy() for part in seen[0])
    assert (len(x_p), len(x_u)) == (54, 126)
    trained = {row.tobytes() for row in np.concatenate([x_p, x_u])}
    held = np.array([row.tobytes() not in trained for row in data.x.astype(np.float32)])
    assert held.sum() == 20
    at = learner.history_["step"].index(learner.checkpoint_step_)
    score = learner.decision_function(data.x)[held]
    assert learner.history_["pa"][at] == pytest.approx(proxy_accuracy(data.y[held], score, 0.4, setting))
    assert learner.history_["oa"][at] == oracle_accuracy(data.hidden[held], score, data.y[held], setting)
    assert learner.history_["pauc"][at] == pytest.approx(proxy_auc(data.y[held], score))


def test_an_algorithm_s_rows_are_drawn_from_in_every_pass():
    drawn, warmups = [], []

    class Few(Algorithm):
        def begin(self, run):
            warmups.append(run.warmup_steps)

        def epoch(self, run):
            return torch.arange(5).expand(1, 5)

        def loss(self, run, batch):
            drawn.append(batch.rows_u)
            return 0 * run.scores(batch.x_p)[0].mean(dim=-1) + 3

    data = clouds(n=100)
    learner = PULearner(Few(), setting="one-sample", **QUICK).fit(data.x, data.y)
    assert len(drawn) == 40
    assert all(rows.unique().tolist() == [0, 1, 2, 3, 4] for rows in drawn)
    assert learner.history_["loss"] == [3, 3], "the mean since the look before"
    learner.set_params(warmup_steps=7).fit(data.x, data.y)
    assert warmups == [4, 7], "a tenth of the steps, or what is asked for"


def test_calibration_reaches_the_loss():
    """One step from zero weights moves along the gradient of the risk, which we know."""
    data = clouds(n=100)
    steps = {}
    module = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(module.weight, 0.3)
    for name, arguments in {
        "plain": {"calibrate": False},
        "exact": {},
        "concat": {"calibration": "batch_concat"},
    }.items():
        learner = PULearner(
            "upu", setting="one-sample", module=module, criterion=None, max_steps=1, batch_size=10**6,
            learning_rate=1.0, random_state=0, **arguments,
        ).fit(data.x, data.y)  # fmt: skip
        steps[name] = (module.weight - learner.module_.weight).detach().double()
    weight = module.weight.detach().double().clone().requires_grad_()
    # Whole batches: 30 labelled rows, and of the 70 unlabeled ones all.
    f_p, f_u = (torch.tensor(part) @ weight[0] for part in (data.positive, data.unlabeled))
    for name, risk in {
        "plain": losses.upu(f_p, f_u, 0.5),
        "exact": losses.upu(f_p, torch.cat([f_p, f_u]), 0.5),
        "concat": losses.calibrated(losses.upu, 0.6, "batch_concat")(f_p, f_u, 0.5),
    }.items():
        gradient = torch.autograd.grad(risk, weight, retain_graph=True)[0]
        torch.testing.assert_close(steps[name], gradient, rtol=1e-4, atol=1e-6)
    assert learner.c_ == pytest.approx(0.6)


@pytest.mark.parametrize("algorithm", ["cvir", "count", "glws"])
def test_losses_that_count_or_sort_get_labelled_rows_back_as_rows(algorithm):
    data, sizes = clouds(n=100), {}
    kind = ALGORITHMS[algorithm]
    for calibrate in (True, False):

        class Spy(kind):
            def begin(self, run, calibrate=calibrate):
                sizes[calibrate] = run.x_u.shape[1]

        PULearner(Spy(), setting="one-sample", calibrate=calibrate, **QUICK).fit(data.x, data.y)
    assert sizes == {True: 27 + 63, False: 63}


def test_calibration_removes_the_bias_of_the_one_sample_setting():
    """Overlapping clouds, 40 % labelled: U has 20 % positives left, where plain uPU's risk has no lower bound.

    At prior 1/2 its sign is right point by point; the net is wrong for what it does between the points.
    """
    data = clouds(n=2000, share=0.4, distance=1.5)
    shares = {}
    for calibrate in (True, False):
        learner = PULearner(
            "upu", setting="one-sample", calibrate=calibrate, criterion=None, random_state=0, hidden=8, max_steps=300,
            learning_rate=0.05, batch_size=256,
        ).fit(data.x, data.y)  # fmt: skip
        shares[calibrate] = learner.predict(data.x).mean()
    assert shares[True] == pytest.approx(0.5, abs=0.06)
    assert abs(shares[False] - 0.5) > 0.15


def test_pusb_calls_the_prior_s_share_of_the_population_positive():
    for setting, arguments in (
        ("two-sample", {}),
        ("one-sample", {}),
        ("one-sample", {"calibrate": False}),  # its loss is biased, its threshold need not be
        ("one-sample", {"calibration": "sampling"}),
    ):
        data = clouds(n=1000, setting=setting, share=0.2)
        learner = PULearner("pusb", setting=setting, **{**QUICK, "criterion": None}, **arguments).fit(data.x, data.y)
        called = learner.decision_function(data.x) >= 0
        share = called[data.y == 0].mean() if setting == "two-sample" else called.mean()
        assert share == pytest.approx(0.5, abs=0.005)
        assert learner.threshold_ != 0
        plain = learner.module_(torch.tensor(data.x, dtype=torch.float32)).detach()
        np.testing.assert_allclose(
            learner.decision_function(data.x), (plain[:, 1] - plain[:, 0]).numpy() - learner.threshold_, atol=1e-5
        )


def test_together_is_as_alone():
    sets = [clouds(n=100, seed=seed) for seed in range(3)]
    kinds = (("vpu", None), ("cvir", None), ("lbe", None), ("pubn", None), ("nnpu", lambda d: torch.nn.Linear(d, 2)))
    for algorithm, module in kinds:
        own = [{"random_state": i, "learning_rate": 0.05 * (i + 1)} for i in range(3)]
        learners = [PULearner(algorithm, setting="one-sample", module=module, **{**QUICK, **o}) for o in own]
        alone = [clone(learner).fit(d.x, d.y).decision_function(d.x) for learner, d in zip(learners, sets, strict=True)]
        fit_together(learners, [d.x for d in sets], [d.y for d in sets])
        for learner, d, expected in zip(learners, sets, alone, strict=True):
            np.testing.assert_allclose(learner.decision_function(d.x), expected, rtol=1e-5, atol=1e-6)


def test_random_state_decides():
    data = clouds(n=100)
    scores = [
        PULearner(setting="one-sample", **{**QUICK, "random_state": state})
        .fit(data.x, data.y)
        .decision_function(data.x)
        for state in (0, 0, 1, np.random.RandomState(0))  # scikit-learn takes it
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[0], scores[3])
    assert not np.allclose(scores[0], scores[2])
    state = torch.random.get_rng_state()
    PULearner(setting="one-sample", module=lambda d: torch.nn.Linear(d, 2), **QUICK).fit(data.x, data.y)
    assert torch.equal(state, torch.random.get_rng_state()), "the global generator is left alone"


@pytest.mark.parametrize("labels", [(1, 0), (1, -1), (True, False), ("yes", "no"), (7, 3)])
def test_label_conventions(labels):
    data = clouds(n=100)
    y = np.where(data.y == 1, *labels)
    learner = PULearner(setting="one-sample", **QUICK).fit(data.x, y)
    assert set(np.unique(learner.predict(data.x))) == set(labels)
    reference = PULearner(setting="one-sample", **QUICK).fit(data.x, data.y)
    np.testing.assert_array_equal(learner.predict(data.x) == labels[0], reference.predict(data.x) == 1)


def test_zero_and_minus_one_together_are_unlabeled():
    data = clouds(n=100)
    y = np.where((data.y == 0) & (np.arange(100) % 2 == 0), -1, data.y)
    learner = PULearner(setting="one-sample", **QUICK).fit(data.x, y)
    assert learner.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_custom_modules_and_their_shapes(columns):
    data = clouds(n=100)

    class Net(torch.nn.Module):
        def __init__(self, features):
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(features, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, columns or 1)
            )

        def forward(self, x):
            return self.layers(x) if columns else self.layers(x)[:, 0]

    learner = PULearner(setting="one-sample", module=Net, **QUICK).fit(data.x, data.y)
    assert (learner.predict(data.x) == data.hidden).mean() > 0.9
    given = Net(2)
    before = [p.detach().clone() for p in given.parameters()]
    PULearner("lbe", setting="one-sample", module=given, **QUICK).fit(data.x, data.y)
    assert all(torch.equal(a, b) for a, b in zip(before, given.parameters(), strict=True)), "the pattern stays as it is"


def test_grid_search_with_proxy_scorers_and_a_pipeline():
    data = clouds(n=200)
    pipeline = make_pipeline(StandardScaler(), PULearner(setting="one-sample", **QUICK))
    scoring = {
        "pauc": make_scorer(proxy_auc, response_method="decision_function"),
        "pa": make_scorer(proxy_accuracy, response_method="decision_function", prior=0.5, setting="one-sample"),
    }
    grid = {"pulearner__learning_rate": [1e-9, 0.1]}
    x = data.x * -1  # where the net starts with the wrong sign, not to learn shows
    search = GridSearchCV(pipeline, grid, scoring=scoring, refit="pauc", cv=2).fit(x, data.y)
    assert search.cv_results_["mean_test_pauc"][0] < 0.5
    assert search.best_params_ == {"pulearner__learning_rate": 0.1}
    assert search.cv_results_["mean_test_pa"][1] > search.cv_results_["mean_test_pa"][0]
    assert search.score(x, data.y) == pytest.approx(proxy_auc(data.y, search.decision_function(x)))


def test_pickle_and_clone():
    data = clouds(n=100)
    learner = PULearner(setting="one-sample", **QUICK).fit(data.x, data.y)
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.decision_function(data.x), learner.decision_function(data.x))
    assert not hasattr(clone(learner), "module_")


def test_undeclared_setting_warns_where_the_data_may_be_one_sample():
    one = clouds(n=100)
    with pytest.warns(
        SettingWarning, match="as when some positives of one sample were labelled: pass setting="
    ) as told:
        PULearner(calibrate=False, **QUICK).fit(one.x, one.y)
    assert told[0].filename == __file__
    two = clouds(n=100, setting="two-sample")  # some labelled rows are in U again
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PULearner(calibrate=False, **QUICK).fit(two.x, two.y)
        PULearner(setting="one-sample", **QUICK).fit(one.x, one.y)
    for data, looks in ((one, "no labelled row occurs"), (two, "some labelled rows occur")):
        with pytest.raises(ValueError, match=f"setting is not declared, and {looks} .* calibrate='auto' cannot decide"):
            PULearner(**QUICK).fit(data.x, data.y)


def test_unknown_prior_is_estimated_and_recorded():
    data = clouds(n=600, distance=5.0)
    learner = PULearner(prior="estimate", setting="one-sample", **QUICK).fit(data.x, data.y)
    assert learner.prior_ == pytest.approx(0.5, abs=0.1)


def test_sensitivity_to_a_wrong_prior():
    data = clouds(n=300, share=0.2)
    test = clouds(n=300, seed=1)
    learner = PULearner("nnpu", setting="one-sample", **QUICK)
    table = prior_sensitivity(learner, data.x, data.y, [0.1, 0.3, 0.5, 0.9], test.x, test.hidden)
    assert table.columns.tolist() == ["prior", "pa", "pauc", "predicted", "accuracy"]
    assert table.loc[0, ["pa", "predicted", "accuracy"]].isna().all(), "0.1 is less than the labelled share"
    assert table["accuracy"].idxmax() == 2
    assert table["predicted"].iloc[3] > table["predicted"].iloc[2] + 0.1
    assert "prior" not in vars(learner) or learner.prior == 0.5
    direct = clone(learner).set_params(prior=0.9).fit(data.x, data.y)
    assert table["accuracy"].iloc[3] == oracle_accuracy(test.hidden, direct.decision_function(test.x))


def test_a_net_that_blows_up_is_not_chosen():
    data = clouds(n=200)
    learner = PULearner("upu", setting="one-sample", **{**QUICK, "learning_rate": 1e30}).fit(data.x * 1e4, data.y)
    assert np.isneginf(learner.history_["pa"]).any()
    assert learner.checkpoint_step_ in learner.history_["step"]


def test_every_positive_may_be_labelled():
    """25 of 100 rows at prior 1/4; holding out leaves 23 and 67, which would make c 1.02."""
    y = np.repeat([1, 0], [25, 75])
    learner = PULearner(setting="one-sample", prior=0.25, **QUICK).fit(np.arange(100)[:, None] / 100, y)
    assert learner.c_ == 1


@pytest.mark.parametrize("kind", ["mlp", "modules"])
def test_clipping_goes_lane_by_lane(kind):
    """A lane moves along its gradient, no further than the limit; a gentle lane moves as it would alone."""
    generators = [torch.Generator().manual_seed(i) for i in range(2)]
    net = LaneMLP(2, 3, generators) if kind == "mlp" else LaneModules(lambda: torch.nn.Linear(2, 2), [0, 1])
    x = torch.randn(2, 9, 2, generator=generators[0]) * torch.tensor([10.0, 0.01])[:, None, None]
    gradients = torch.autograd.grad((net(x) * torch.tensor([1.0, 0.01])[:, None]).sum(), list(net.parameters()))

    def moved(steps):
        before = [torch.nn.utils.parameters_to_vector(net.module(i).parameters()).detach() for i in range(2)]
        LaneSGD(net.rates(torch.ones(2)), momentum=0.0).step(steps)
        after = [torch.nn.utils.parameters_to_vector(net.module(i).parameters()).detach() for i in range(2)]
        return [a - b for a, b in zip(after, before, strict=True)]

    plain, clipped = moved(gradients), moved(net.clipped(gradients, 0.5))
    assert plain[0].norm() > 0.5 > plain[1].norm() > 0
    torch.testing.assert_close(clipped[0], 0.5 * plain[0] / plain[0].norm(), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(clipped[1], plain[1], rtol=1e-3, atol=1e-6)


def test_descent_has_momentum_decay_and_a_rate_for_each_lane():
    """As torch.optim.SGD: velocity 0.9 v + gradient + decay * weights; two steps."""
    start, rates = (
        torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0.1, 0.02])[:, None, None],
    )
    gradients = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    ours = torch.nn.Parameter(start.clone())
    sgd = LaneSGD([(ours, rates)], momentum=0.9, weight_decay=0.3)
    weights, velocity = start, torch.zeros_like(start)
    for gradient in gradients:
        sgd.step([gradient])
        velocity = 0.9 * velocity + gradient + 0.3 * weights
        weights = weights - rates * velocity
    torch.testing.assert_close(ours.detach(), weights)


def test_callback_scores_follow_the_threshold():
    data, seen = clouds(n=100), []
    learner = PULearner("pusb", setting="one-sample", **QUICK)
    fit_together([learner], [data.x], [data.y], callback=lambda step, score: seen.append((step, score(data.x)[0])))
    assert [step for step, _ in seen] == [20, 40]
    assert learner.at("last").threshold_ != 0
    np.testing.assert_allclose(seen[-1][1], learner.at("last").decision_function(data.x), atol=1e-5)


def test_steps_of_count_are_clipped():
    data, module = clouds(n=100), torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.constant_(module.weight, -2.0)
    lengths = []
    for options in ({}, {"largest_gradient": 0.5}, {"largest_gradient": None}):
        own = {"learning_rate": 1, "max_steps": 1, "batch_size": 64, "options": options}
        learner = PULearner("count", setting="one-sample", module=module, **{**QUICK, **own}).fit(data.x, data.y)
        lengths.append((learner.module_.weight - module.weight).norm().item())
    assert lengths[:2] == pytest.approx([10, 0.5], rel=1e-3)
    assert lengths[2] > 10


DATA = clouds(n=100)
BAD_Y = {"all": np.ones(100), "none": np.zeros(100), "three": np.arange(100) % 3}


@pytest.mark.parametrize(
    ("arguments", "fit", "said"),
    [
        ({"prior": 1.0}, {}, "prior must lie strictly between 0 and 1, or be 'estimate', got 1.0"),
        ({"prior": "guess"}, {}, "got 'guess'"),
        ({"setting": "os"}, {}, "setting must be one of 'two-sample', 'one-sample', None, got 'os'"),
        ({"algorithm": "nnpul"}, {}, "algorithm must be one of 'naive', 'upu'"),
        ({"algorithm": Algorithm(), "options": {"beta": 1}}, {}, "options are for an algorithm given by name"),
        ({"criterion": "accuracy"}, {}, "criterion must be one of 'pa', 'pauc', 'oa', None, got 'accuracy'"),
        ({"criterion": "oa"}, {}, "criterion='oa' needs the true labels"),
        ({"calibration": "mean"}, {}, "calibration must be one of 'exact', 'sampling', 'batch_concat', got 'mean'"),
        ({"setting": None, "calibrate": True}, {}, "calibrate=True is for data of one sample, but setting is None"),
        ({"calibrate": True, "setting": "two-sample"}, {}, "but setting is 'two-sample'"),
        ({"calibrate": "yes"}, {}, "calibrate must be one of True, False, 'auto', got 'yes'"),
        ({"setting": "one-sample", "prior": 0.25}, {}, "labelled rows are a share 0.3 of the one sample"),
        ({"setting": "one-sample", "algorithm": "glws", "calibration": "batch_concat"}, {}, "take calibration='exact'"),
        ({"max_steps": 0}, {}, "max_steps must be a whole number of at least 1, got 0"),
        ({"batch_size": 2.5}, {}, "batch_size must be a whole number of at least 1, got 2.5"),
        ({"warmup_steps": -1}, {}, "warmup_steps must be a whole number of at least 0, got -1"),
        ({"learning_rate": -0.1}, {}, "learning_rate must be a number of at least 0 and less than inf, got -0.1"),
        ({"momentum": 1.0}, {}, "momentum must be a number of at least 0 and less than 1, got 1.0"),
        ({"weight_decay": "l2"}, {}, "weight_decay must be a number of at least 0 and less than inf, got 'l2'"),
        ({"validation_fraction": 1.0}, {}, "validation_fraction must lie strictly between 0 and 1, got 1.0"),
        ({"validation_fraction": 0.99}, {}, "30 labelled rows do not suffice to hold out 30"),
        ({}, {"y": BAD_Y["all"]}, "no unlabeled rows"),
        ({}, {"y": BAD_Y["none"]}, "no labelled positives"),
        ({}, {"y": BAD_Y["three"]}, "Only binary classification is supported"),
        ({}, {"X": np.where(DATA.x > 0, DATA.x, np.nan)}, "contains NaN"),
        ({}, {"y_true": np.full(100, 3)}, "y_true must have the shape of y, (100,), and hold 1 and 0 or -1"),
        ({"module": 3}, {}, "module must be a torch module, a function that makes one, or None, got 3"),
        ({"module": lambda d: torch.nn.Linear(d, 3)}, {}, "module must return logits of shape (n, 2), (n, 1) or (n,)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(arguments, fit, said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SettingWarning)
        with pytest.raises(ValueError, match=re.escape(said)):
            PULearner(**{**QUICK, "setting": "two-sample", "max_steps": 2, **arguments}).fit(
                **{"X": DATA.x, "y": DATA.y, **fit}
            )


def test_learners_that_differ_are_not_fitted_together():
    a, b = PULearner(setting="one-sample", **QUICK), PULearner(setting="one-sample", **{**QUICK, "hidden": 8})
    with pytest.raises(ValueError, match="learners differ in hidden: 16 and 8"):
        fit_together([a, b], [DATA.x] * 2, [DATA.y] * 2)
    with pytest.raises(ValueError, match="one shape"):
        fit_together([a, clone(a)], [DATA.x, DATA.x[1:]], [DATA.y, DATA.y[1:]])
    with pytest.raises(ValueError, match="criterion must be one of last, pa, pauc, got 'oa'"):
        clone(a).fit(DATA.x, DATA.y).at("oa")


def test_others_classifiers_and_ours_agree_on_easy_data():
    """A check from outside: with everything labelled, the calibrated learner is a supervised classifier."""
    data = clouds(n=400, share=0.5)
    assert data.unlabeled_share == 0
    supervised = LogisticRegression().fit(data.x, data.hidden).predict(data.x)
    ours = PULearner("upu", setting="one-sample", **QUICK).fit(data.x, data.y).predict(data.x)
    assert (ours == supervised).mean() > 0.97
