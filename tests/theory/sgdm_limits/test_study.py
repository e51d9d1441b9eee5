"""The parts of the study that a verdict leans on: derived metrics, arms, noise shared by arms, figures, tasks."""

import math
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Trial
from paperworks.theory.sgdm_limits import study
from paperworks.theory.sgdm_limits.derive import pca as derived
from paperworks.theory.sgdm_limits.dynamics import EffectiveDynamics
from paperworks.theory.sgdm_limits.figures import lines_over_points, phase_diagram
from paperworks.theory.sgdm_limits.problems import SpikedTensorPCA
from paperworks.theory.sgdm_limits.simulate import Trajectory


def rows(values):
    keys = ["arm", "lam", "size", "metric", "value"]
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"seed": 3, "item": None} for row in values])


def test_decay_is_the_log_ratio_of_the_larger_errors():
    table = rows(
        [
            ("sgd", 0.8, "small", "sup_m", 0.1),
            ("sgd", 0.8, "small", "sup_r2", 1.0),
            ("sgd", 0.8, "large", "sup_m", 0.2),
            ("sgd", 0.8, "large", "sup_r2", 0.1),
            ("sgd", 0.8, "large", "m", 100.0),
            ("sgd_u", 0.8, "large", "sup_m", 0.2),
        ]
    )
    copy = table.copy()
    out = derived(table, 3)
    assert [(r.arm, r.lam, r.metric) for r in out.itertuples()] == [("sgd", 0.8, "decay")]
    assert out.value.item() == pytest.approx(math.log10(1.0 / 0.2))
    pd.testing.assert_frame_equal(table, copy)
    assert derived(table[table["size"] == "large"], 3).empty


def trial(experiment, cells, scale="smoke", **changes):
    config = experiment.config[scale].model_copy(update=changes)
    origin = ("sgdm_limits", experiment.name, 1)
    return Trial(origin=origin, cells=cells, scale=scale, config=config, arms=experiment.arms)


def outcomes(experiment, cells, **changes):
    return dict(experiment.function(trial(experiment, cells, **changes)))


def test_outcomes_do_not_depend_on_what_is_computed_together():
    level = {"lam": 1.2, "size": "small"}
    cells = [Cell(arm, level, seed) for arm in study.pca.arms for seed in (100, 101)]
    together = outcomes(study.pca, cells, horizon=1.0, points=41)
    for cell in cells[::3]:
        alone = outcomes(study.pca, [cell], horizon=1.0, points=41)
        assert alone[cell].metrics == pytest.approx(together[cell].metrics, rel=1e-9)
    assert len({tuple(o.metrics.values()) for o in together.values()}) == len(cells)


def test_the_rescaled_arm_has_the_limit_of_momentum_step_by_step():
    problem = SpikedTensorPCA(2, 2.2)
    slow, fast = (study.pca.arms[name](problem, c=0.7) for name in ("sgdm_0.5", "sgd_rescaled"))
    steps = np.array([0.0, 0.05, 0.4])
    u0 = np.array([0.3, 1.0])
    np.testing.assert_allclose(slow.solve_ode(u0, steps * slow.c), fast.solve_ode(u0, steps * fast.c), rtol=1e-6)
    assert (slow.beta, fast.beta) == (0.5, 0.0)


def test_arms_are_what_their_names_say():
    problem = SpikedTensorPCA(2, 1.0)
    for experiment in (study.pca, study.pca_random, study.steps, study.phase, study.index):
        for name, factory in experiment.arms.items():
            d = factory(problem, c=0.5)
            assert isinstance(d, EffectiveDynamics)
            assert d.algorithm == ("unit" if name == "sgd_u" else "sgd")
            assert d.beta == (float(name.partition("_")[2]) if name.startswith("sgdm") else 0.0)
            assert d.c == (1.0 if name == "sgd_rescaled" else 0.5)


def test_last_crossing():
    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert study._last_crossing(x, np.array([0.5, 0.3, 0.0, 0.0]), 0.1) == pytest.approx(1 + 2 / 3)
    assert study._last_crossing(x, np.array([0.0, 0.3, 0.2, 0.0]), 0.1) == pytest.approx(2.5)
    assert study._last_crossing(x, np.zeros(4), 0.1) == 0.0
    assert study._last_crossing(x, np.ones(4), 0.1) == 3.0


def test_divergence_is_a_metric_and_a_step_size_below_the_grid_when_all_diverge():
    cell = Cell("sgd", {"f": "x^7+4x^4", "noise": 0.1}, 100)
    (outcome,) = outcomes(study.index, [cell], steps=200, powers=(0, 1)).values()
    assert outcome.metrics == {"log_c": -2, "log_usable": -2, "align_top": 0, "align_best": 0, "diverged": 1}
    calm = outcomes(study.index, [Cell("sgd_u", cell.level, 100)], steps=200, powers=(0, 1))
    assert next(iter(calm.values())).metrics["log_c"] == 0


def test_largest_calm_step_has_no_diverged_one_below_it(monkeypatch):
    """Diverged, calm, diverged, calm, calm: only the last two count."""

    def fake(trial, lanes, n, steps, start, points):
        assert [d.c for _, d in lanes] == pytest.approx([10.0**-k for k in range(5)])
        assert {d.problem.noise for _, d in lanes} == {0.3}
        gone = np.array([True, False, True, False, False])
        align = np.tile([[0.1, 0.95, 0.1, 0.3, 0.92]], (2, 1))
        return type("Run", (), {"diverged": gone, "alignment": align})()

    monkeypatch.setattr(study, "_run", fake)
    cell = Cell("sgd", {"f": "x^2", "noise": 0.3}, 100)
    (outcome,) = outcomes(study.index, [cell], powers=(0, 1, 2, 3, 4)).values()
    want = {"log_c": -3, "log_usable": -1, "align_top": 0.3, "align_best": 0.95, "diverged": 0.4}
    assert outcome.metrics == pytest.approx(want)


def stand_in(monkeypatch, m, r2, step, calls=None):
    """Put a made-up run, arrays (T, lanes), in the place of the simulator."""

    def fake(trial, lanes, n, steps, start, points):
        if calls is not None:
            calls.append((n, steps, start))
        gone = np.zeros(m.shape[1], dtype=bool)
        return Trajectory(np.asarray(step), np.asarray(step) / n, m, r2, gone)

    monkeypatch.setattr(study, "_run", fake)


def test_metrics_of_a_path(monkeypatch):
    """Errors at single times, at the time of the arm's own step size; early and late values."""
    n, step, calls = 200, np.arange(201), []
    limit = EffectiveDynamics(SpikedTensorPCA(2, 1.2), c=2.0).solve_ode(np.array([0.3, 1.0]), 2.0 * step / n)
    m, r2 = -limit[:, 0] + 0.0, limit[:, 1] + 0.0
    m[50], r2[70] = limit[50, 0] + 4.0, limit[70, 1] - 0.25
    stand_in(monkeypatch, m[:, None], r2[:, None], step, calls)
    cell = Cell("sgd_rescaled", {"lam": 1.2, "size": "small"}, 100)
    got = outcomes(study.pca, [cell], small=n, horizon=1.0)[cell].metrics
    assert calls == [(n, n, (0.3, 1.0))]
    assert got["sup_m"] == pytest.approx(4.0, rel=1e-6)
    assert got["sup_r2"] == pytest.approx(0.25, rel=1e-6)
    assert got["r2_early"] == pytest.approx(limit[5, 1], rel=1e-6)
    assert got["m"] == pytest.approx(limit[-40:, 0].mean(), rel=1e-6)
    assert got["r2"] == pytest.approx(limit[-40:, 1].mean(), rel=1e-6)
    assert got["align"] == pytest.approx((limit[-40:, 0] / np.hypot(limit[-40:, 0], limit[-40:, 1] ** 0.5)).mean())


def test_escape_from_a_random_start(monkeypatch):
    n, calls = 100, []
    align = np.array([0.1, 0.19, 0.21, 0.1, 0.6])
    stand_in(monkeypatch, align[:, None], 1 - align[:, None] ** 2, 25 * np.arange(5), calls)
    cell = Cell("sgd", {"lam": 1.2}, 100)
    got = outcomes(study.pca_random, [cell], large=n, horizon=1.0)[cell].metrics
    assert calls == [(n, n, "random")]
    assert got["escape"] == 0.5
    assert got["align"] == pytest.approx(0.6)
    stand_in(monkeypatch, 0.1 + 0 * align[:, None], np.ones((5, 1)), 25 * np.arange(5))
    assert outcomes(study.pca_random, [cell], large=n, horizon=1.0)[cell].metrics["escape"] == 1.0


def test_largest_step_of_a_grid(monkeypatch):
    align = np.array([[0.9, 0.5, 0.3, 0.05]])
    stand_in(monkeypatch, align, 1 - align**2, [0])
    cell = Cell("sgd", {}, 100)
    got = outcomes(study.steps, [cell], lowest=0.1, highest=100.0, count=4)[cell].metrics
    assert got == pytest.approx({"log_c": 1.8, "align_lowest": 0.9, "align_highest": 0.05})
    d = EffectiveDynamics(SpikedTensorPCA(2, 2.0), c=1.0)
    assert study._alignment_of(d.problem, d) == pytest.approx(0.5**0.5)
    assert study._alignment_of(d.problem, d.with_step(2.1)) == 0


def test_points_of_the_phase_diagram_near_the_line_do_not_count(monkeypatch):
    """SGD, whose line is lambda = c; two points lie 5 % beside it, and one far from it is wrong."""
    learns = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]])  # lambda down, c across
    align = np.where(learns, 0.25, 0.15).reshape(1, -1)
    stand_in(monkeypatch, align, 1 - align**2, [0])
    cell = Cell("sgd", {}, 100)
    got = outcomes(study.phase, [cell], lam=(2.1, 8.4), c=(1.0, 4.0), count=3)[cell].metrics
    assert got == pytest.approx({"agree": 6 / 7, "learnt": 5 / 9})


def test_links_and_their_slopes():
    z = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64, requires_grad=True)
    want = {"x^2": z**2, "x^3": z**3, "x^7+4x^4": z**7 + 4 * z**4}
    for name, (f, slope) in study.LINKS.items():
        torch.testing.assert_close(f(z), want[name])
        torch.testing.assert_close(slope(z), torch.autograd.grad(f(z).sum(), z)[0])


def test_tasks_have_a_start_that_scores_low_and_a_loss_with_its_optimum():
    oja = study.TASKS["oja_mnist"](trial(study.real, [Cell("sgd", {"task": "oja_mnist"}, 100)]))
    _, top = study._centred_mnist()
    assert oja.score(top) == pytest.approx(1.0, abs=1e-4)
    assert oja.score(oja.start) < 0.3
    leaf = top.clone().requires_grad_()
    sum(oja.loss(leaf, i) for i in range(0, oja.examples, 5)).backward()
    slope = leaf.grad @ top / (oja.examples / 5)
    assert abs(slope.item()) < 0.3  # 4 (1 - mean (y, top)^2), of a fifth of the data
    logistic = study.TASKS["logistic_digits"](trial(study.real, [Cell("sgd", {"task": "logistic_digits"}, 100)]))
    assert logistic.score(logistic.start) == pytest.approx(0.0, abs=1e-6)
    assert logistic.loss(logistic.start, 0).item() == pytest.approx(math.log(2))
    assert logistic.score(torch.full_like(logistic.start, 1e6)) == 0.0


def test_a_real_run_that_blows_up_scores_nothing():
    cell = Cell("sgd", {"task": "oja_mnist"}, 100)
    outcome = study.real.function(trial(study.real, [cell], steps=60, lowest=2.0, highest=4.0, count=3))
    assert outcome.metrics["best"] == outcome.metrics["width"] == 0.0
    assert outcome.metrics["log_lr"] == 1.0


def test_width_of_the_usable_rates(monkeypatch):
    """x grows by the rate a step: read once, after 51 of 60 steps. At a rate of 1 the loss is infinite from 52 on."""

    def loss(x, i):
        return -x.sum() if x.item() < 51.5 else x.sum() * math.inf

    task = study.Task(torch.zeros(1), 3, loss, lambda x: float(0.3 < x.item() < 60), usable=0.5)
    monkeypatch.setitem(study.TASKS, "oja_mnist", lambda trial: task)
    cell = Cell("sgd", {"task": "oja_mnist"}, 100)
    got = study.real.function(trial(study.real, [cell], steps=60, lowest=-3.0, highest=1.0, count=5)).metrics
    assert got == {"width": 2.0, "log_lr": -1.0, "best": 1.0}


def test_figures_are_svg_with_every_point_and_line():
    text = lines_over_points("a < b", ("x", "y"), {"m": [(0, 0), (1, 2)]}, {"m": [(0, 0.1), (0.5, math.inf), (1, 1.9)]})
    tree = ElementTree.fromstring(text)
    (dots,) = (e.get("d") for e in tree.iter() if e.tag.endswith("path"))
    (line,) = (e.get("points") for e in tree.iter() if e.tag.endswith("polyline"))
    places = [tuple(map(float, dot.removesuffix("h0").split())) for dot in dots.split("M")[1:]]
    assert len(places) == len(line.split()) == 2  # the infinite point is left out
    assert places[0][0] < places[1][0]
    assert places[0][1] > places[1][1]  # y points down
    text = phase_diagram(
        "t", ("x", "y"), [1, 10], [0.1, 1, 10], [[0, 0.5, 1], [0, 0, 2]], [(1, 0.1), (10, 10), (1e9, 1)]
    )
    tree = ElementTree.fromstring(text)
    fills = {e.get("fill"): e.get("d").count("M") for e in tree.iter() if (e.get("fill") or "").startswith("rgb")}
    assert fills == {"rgb(127,191,255)": 1, "rgb(0,127,255)": 2}
