"""Merge weights and decay: both directions, the theorem on recorded runs, and the one case where paths agree."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperworks.training.wsm import CURVES, WSDScheduler, decay_curve, decay_from_merge, merge_from_decay, merge_weights

from . import reference


@pytest.mark.parametrize("k", [1, 4, 15])
@pytest.mark.parametrize("curve", [c for c in CURVES if c != "constant"])
def test_curves_are_those_of_the_formulas(curve, k):
    np.testing.assert_allclose(decay_curve(curve, k), reference.decay(curve, k), rtol=1e-12)


def test_options_of_curves():
    for curve, option in [("ema", {"alpha": 0.5}), ("exponential", {"r": 0.3}), ("inverse_sqrt", {"s": 7.0})]:
        np.testing.assert_allclose(decay_curve(curve, 5, **option), reference.decay(curve, 5, **option), rtol=1e-12)
        assert not np.allclose(decay_curve(curve, 5, **option), decay_curve(curve, 5))


def test_weights_as_printed():
    np.testing.assert_allclose(merge_weights("linear", 4), 0.2)
    np.testing.assert_allclose(merge_weights("1-sqrt", 4), [0.4472, 0.1852, 0.1421, 0.1198, 0.1056], atol=5e-5)
    np.testing.assert_allclose(merge_weights("cosine", 4), [0.0955, 0.25, 0.3090, 0.25, 0.0955], atol=5e-5)
    np.testing.assert_allclose(decay_curve("ema", 4, alpha=0.2), [0.5904, 0.4880, 0.3600, 0.2000], atol=1e-12)
    assert merge_weights("constant", 3).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("curve", CURVES)
def test_one_checkpoint_is_itself(curve):
    assert merge_weights(curve, 0).tolist() == [1.0]
    assert decay_curve(curve, 0).shape == (0,)
    assert merge_weights(curve, steps=[700]).tolist() == [1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_both_directions_undo_each_other(values):
    w = np.sort(values)[::-1]
    c = merge_from_decay(w)
    assert c.min() >= 0
    assert c.sum() == pytest.approx(1)
    np.testing.assert_allclose(decay_from_merge(c), w, atol=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12))
def test_any_average_is_a_decay_that_never_rises(values):
    c = np.array(values) / sum(values)
    w = decay_from_merge(c)
    assert np.all(np.diff(np.concatenate([[1.0], w, [0.0]])) <= 1e-12)
    np.testing.assert_allclose(merge_from_decay(w), c, atol=1e-12)


@pytest.mark.parametrize("curve", [c for c in CURVES if c != "constant"])
def test_the_theorem_holds_on_a_recorded_run_of_adamw(curve):
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(6, generator=generator, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.AdamW([theta], lr=0.05, weight_decay=0.1)
    recorded = [theta.detach().tolist()]
    for _ in range(7):
        for _ in range(3):
            optimiser.zero_grad()
            (theta - 1).pow(4).sum().backward()
            theta.grad += 0.3 * torch.randn(6, generator=generator, dtype=torch.float64)
            optimiser.step()
        recorded.append(theta.detach().tolist())
    merge = reference.merged(recorded, merge_weights(curve, 7))
    np.testing.assert_allclose(merge, reference.decayed(recorded, decay_curve(curve, 7)), atol=1e-12)


@pytest.mark.parametrize("curve", ["linear", "1-sqrt", "cosine"])
def test_under_a_constant_gradient_the_decayed_run_ends_where_the_merge_is(curve):
    """The scheduler's decay and the merge weights are one curve, to the last step."""

    def run(decay):
        theta = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.SGD([theta], lr=0.1)
        schedule = WSDScheduler(optimiser, warmup=3, stable=5, decay=decay, curve=curve)
        states = []
        for step in range(3 + 5 + 9):
            theta.grad = torch.ones_like(theta)
            optimiser.step()
            schedule.step()
            if step >= 3 + 5 - 1:
                states.append(theta.item())
        return states

    merged = float(np.dot(merge_weights(curve, 9), run(0)))
    assert run(9)[-1] == pytest.approx(merged, abs=1e-12)


def test_on_a_quadratic_the_two_agree_to_first_order_only():
    c, w = merge_weights("linear", 4), decay_curve("linear", 4)

    def gap(ah):
        merged = sum(cj * (1 - ah) ** j for j, cj in enumerate(c))
        return abs(merged - np.prod(1 - ah * w))

    assert gap(0.1) > 1e-3
    assert gap(0.1) / gap(0.05) == pytest.approx(4, rel=0.2)  # second order


def test_steps_at_equal_distances_change_nothing_and_others_do():
    for curve in CURVES:
        np.testing.assert_allclose(
            merge_weights(curve, steps=[100, 150, 200, 250]), merge_weights(curve, 3), atol=1e-12
        )
    w = decay_curve("linear", steps=[0, 10, 40])
    np.testing.assert_allclose(w, [1 - 10 / 60, 1 - 40 / 60])  # mean spacing 20: the decay would end at 60
    np.testing.assert_allclose(decay_curve(lambda x: 1 - x**2, steps=[0, 10, 40]), [1 - (1 / 6) ** 2, 1 - (2 / 3) ** 2])
    # An average that starts at 0 keeps (1 - alpha)^2 of it over two mean spacings.
    np.testing.assert_allclose(merge_weights("ema", steps=[0, 10, 40], alpha=0.2)[0], 0.8**2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: merge_weights("quadratic", 3), "curve = 'quadratic': one of linear, 1-sqrt"),
        (lambda: merge_weights("linear", -1), "k = -1: a whole number"),
        (lambda: merge_weights("linear"), "k = None"),
        (lambda: merge_weights("linear", 2.5), "k = 2.5"),
        (lambda: merge_weights("linear", 2, steps=[0, 1]), "k = 2, steps has 2 values: k \\+ 1"),
        (lambda: merge_weights("linear", steps=[0, 2, 2]), "rising numbers"),
        (lambda: merge_weights("ema", 3, alpha=1.0), "alpha = 1.0: a number between 0 and 1"),
        (lambda: merge_weights("exponential", 3, r=0.0), "r = 0.0"),
        (lambda: merge_weights("inverse_sqrt", 3, s=-1.0), "s = -1.0: a number above 0"),
        (lambda: merge_weights("linear", 3, alpha=0.1), r"options \['alpha'\]: 'linear' takes none"),
        (lambda: merge_weights("ema", 3, r=0.1), r"options \['r'\]: 'ema' takes alpha"),
        (lambda: merge_from_decay([0.5, 0.7]), "c_1 = -0.2: w must fall"),
        (lambda: merge_from_decay([1.2]), "c_0 = -0.2"),
        (lambda: merge_weights(lambda x: x, 3), "c_1 = .*allow_negative=True"),
        (lambda: merge_from_decay([float("nan")]), "finite numbers"),
        (lambda: decay_from_merge([0.5, 0.4]), "sums to 0.9"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_curve_that_rises_is_taken_when_allowed():
    c = merge_weights(lambda x: x, 3, allow_negative=True)
    np.testing.assert_allclose(decay_from_merge(c), [0.25, 0.5, 0.75])
    assert c.min() < 0


def test_the_schedule_step_by_step():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    schedule = WSDScheduler(optimiser, warmup=2, stable=2, decay=3, curve="linear")
    rates = []
    for _ in range(9):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    np.testing.assert_allclose(rates, [1, 2, 2, 2, 1.5, 1, 0.5, 0, 0])
    restored = WSDScheduler(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0), 2, 2, 3, "linear")
    restored.load_state_dict(schedule.state_dict())
    assert restored.last_epoch == 9
    endless = WSDScheduler(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0), 0, 0)
    assert endless.factor(10**6) == 1.0
    with pytest.raises(ValueError, match="stable = -1"):
        WSDScheduler(optimiser, 1, -1)
