"""The parts of the study that a verdict leans on: derived metrics, the blind search, what arms share."""

import math
from functools import partial

import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Trial
from paperworks.optimize.invariant_bo import max_kernel_bo, study
from paperworks.optimize.invariant_bo.derive import group_size
from paperworks.optimize.invariant_bo.groups import SignFlips


def test_gain_and_growth():
    regrets = {
        ("average", "signs"): 3.0,
        ("average", "signed"): 5.0,
        ("psd_max", "signs"): 2.5,
        ("psd_max", "signed"): 1.0,
        ("base", "signs"): 6.0,
    }
    rows = [{"arm": a, "group": g, "metric": "regret", "value": v, "seed": 3} for (a, g), v in regrets.items()]
    table = pd.DataFrame([*rows, {"arm": "psd_max", "group": "signs", "metric": "best", "value": 9.0, "seed": 3}])
    found = {(r.arm, r.group, r.metric): r.value for r in group_size(table, 3).itertuples()}
    assert found.pop(("psd_max", "signs", "gain")) == pytest.approx(0.5)
    assert found.pop(("psd_max", "signed", "gain")) == pytest.approx(4.0)
    assert found.pop(("base", "signs", "gain")) == pytest.approx(-3.0)
    ((arm, _, metric), growth), *others = found.items()
    assert (arm, metric, growth) == ("psd_max", "growth", pytest.approx(3.5))
    assert not others
    assert group_size(table[table.arm != "average"], 3).empty


def trial(experiment, arm, level=None, seed=100, told=None, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    cells = (Cell(arm, level or {}, seed),)
    arms = {**experiment.arms, **({arm: told} if told else {})}
    return Trial(origin=("invariant_bo", experiment.name, 1), cells=cells, scale="smoke", config=config, arms=arms)


def test_arms_share_initial_points_and_noise_and_see_the_noise():
    seen = {}

    def watching(name):
        def factory(train_X, train_Y, group, base):
            seen[name] = (train_X.clone(), train_Y.clone(), base)
            return study.ARMS["base"](train_X, train_Y, group, base=base)

        return factory

    for name, noise in (("a", 0.02), ("b", 0.02), ("exact", 0.0)):
        study.regret.function(trial(study.regret, "base", {"problem": "radial2d"}, told=watching(name), noise=noise))
    assert torch.equal(seen["a"][0], seen["b"][0])
    assert torch.equal(seen["a"][1], seen["b"][1])
    assert not torch.equal(seen["a"][1], seen["exact"][1])
    assert seen["a"][2] == "rbf"


def test_regret_is_the_sum_of_what_the_optimum_is_above():
    t = trial(study.regret, "base", {"problem": "rastrigin3d"})
    metrics = study._regret(t, torch.tensor([-3.0, -1.0, 0.0], dtype=torch.float64))
    assert metrics == {"regret": pytest.approx(math.log(5.0)), "best": 0.0}


def test_the_blind_search_does_not_look_at_its_data():
    x = 2 * torch.rand(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    far = torch.tensor([[[0.5, 0.5]], [[-0.4, 0.9]]], dtype=torch.float64)
    model = study.blind(x, x.sum(-1, keepdim=True), SignFlips(2), "matern52")
    posterior = model.posterior(far)
    assert float(posterior.mean.detach().std()) < 1e-9
    assert float(posterior.variance.detach().std()) < 1e-9


def test_the_blind_search_never_comes_back():
    """The incumbent is a candidate: a process that remembers its value would ask there again."""
    problem = study.PROBLEMS["rastrigin3d"][0]()
    run = max_kernel_bo(
        lambda x: problem(x, noise=False),
        problem.bounds,
        problem.group,
        6,
        model=partial(study.blind, base="matern52"),
        raw=64,
        starts=2,
    )
    assert float((torch.cdist(run.X, run.X) + 9 * torch.eye(11)).min()) > 1e-2


def test_prototypes_are_of_real_digits():
    problem = study._prototypes()
    assert problem.points.shape == (1797, 2)
    assert float(problem.points.abs().max()) == pytest.approx(1.0)
    variances = problem.points.var(0)
    assert float(variances[0]) > float(variances[1]) > 0.05


def test_spectra_are_of_the_kernels_named():
    tails = {
        arm: study.spectrum.function(trial(study.spectrum, arm, {"base": "matern52", "dim": 2})).metrics["tail"]
        for arm in study.spectrum.arms
    }
    assert tails["average"] < tails["psd_max"] < tails["base"] < 0
