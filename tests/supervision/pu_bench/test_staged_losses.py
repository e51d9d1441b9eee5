"""Losses, weights and scores of the staged algorithms against a plain reference; identities, limits, errors."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.supervision import pu_bench as pu
from paperworks.supervision.pu_bench.losses import base_loss

from . import reference, reference_staged

PRIOR = 0.4


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


F_P, F_U, STRONG, C_U = rand(5, seed=1), 3 * rand(6, seed=2), rand(6, seed=3), rand(6, seed=4)
W = torch.softmax(rand(5, seed=5), dim=0)
W_U = torch.sigmoid(rand(6, seed=6))
T_P, T_U = torch.sigmoid(rand(5, seed=7)), torch.sigmoid(rand(6, seed=8))
PSEUDO = torch.tensor([1, 0, 0, 1, 1, 0], dtype=torch.float64)
EARLIER = rand(5, seed=9), rand(6, seed=10)


def pulda(p, u):
    _, before = pu.pulda(*EARLIER, PRIOR)
    return pu.pulda(p, u, PRIOR, before)[0]


CASES = {
    "propensity": (
        lambda p, u: pu.pue_propensity(p, u, 0.3, 0.1),
        lambda p, u: reference_staged.pue_propensity(p, u, 0.3, 0.1),
    ),
    "pue": (lambda p, u: pu.pue(p, u, PRIOR, W), lambda p, u: reference_staged.pue(p, u, PRIOR, W.tolist())),
    "holistic, warm-up": (pu.holistic_warmup, lambda p, u: reference_staged.holistic_warmup(p, u, 0.1)),
    "holistic": (
        lambda p, u: pu.holistic_pu(p, u, PSEUDO, 0.7, STRONG, 0.8),
        lambda p, u: reference_staged.holistic_pu(p, u, PSEUDO.tolist(), 0.7, STRONG.tolist(), 0.8),
    ),
    "pulda, first": (lambda p, u: pu.pulda(p, u, PRIOR)[0], lambda p, u: reference_staged.pulda([(p, u)], PRIOR)),
    "pulda, second": (
        pulda,
        lambda p, u: reference_staged.pulda([tuple(x.tolist() for x in EARLIER), (p, u)], PRIOR),
    ),
    "pan, discriminator": (
        lambda p, u: pu.pan_discriminator(p, u, C_U, 0.1, spare=False),
        lambda p, u: reference_staged.pan_discriminator(p, u, C_U.tolist(), 0.1, 0.01, False),
    ),
    "pan, classifier": (
        lambda p, u: pu.pan_classifier(u, C_U) + 0 * p.sum(),
        lambda p, u: reference_staged.pan_classifier(u, C_U.tolist(), 0.01),
    ),
    "p3mix": (
        lambda p, u: pu.p3mix(p, u, T_P, T_U, 0.5),
        lambda p, u: reference_staged.p3mix(p, u, T_P.tolist(), T_U.tolist(), 0.5),
    ),
    "elr": (lambda p, u: pu.elr(u, T_U) + 0 * p.sum(), lambda p, u: reference_staged.elr(u, T_U.tolist())),
    "robust_pu": (
        lambda p, u: pu.robust_pu(p, u, W, W_U),
        lambda p, u: reference_staged.robust_pu(p, u, W.tolist(), W_U.tolist()),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_equal_the_reference(name):
    ours, plain = CASES[name]
    p, u = (x.clone().requires_grad_() for x in (F_P, F_U))
    loss, lists = ours(p, u), (F_P.tolist(), F_U.tolist())
    assert loss.item() == pytest.approx(plain(*lists), rel=1e-10)
    got = torch.autograd.grad(loss, (p, u))
    np.testing.assert_allclose(got[0], reference.gradient(lambda x: plain(x, lists[1]), lists[0]), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(got[1], reference.gradient(lambda x: plain(lists[0], x), lists[1]), rtol=1e-5, atol=1e-8)


def test_spared_rows_and_their_mean_which_has_no_gradient():
    u = F_U.clone().requires_grad_()
    loss = pu.pan_discriminator(F_P, u, C_U, 0.1)
    average = torch.sigmoid(F_U).mean().item()
    arguments = (C_U.tolist(), 0.1, 0.01, True, average)
    assert loss.item() == pytest.approx(reference_staged.pan_discriminator(F_P.tolist(), F_U.tolist(), *arguments))
    numeric = reference.gradient(
        lambda x: reference_staged.pan_discriminator(F_P.tolist(), x, *arguments), F_U.tolist()
    )
    np.testing.assert_allclose(torch.autograd.grad(loss, u)[0], numeric, rtol=1e-5, atol=1e-8)


def test_weights_and_scores_equal_the_reference():
    plain = reference_staged.inverse_propensity_weights(F_P.tolist())
    np.testing.assert_allclose(pu.inverse_propensity_weights(F_P), plain, rtol=1e-12)
    predictions = torch.sigmoid(rand(3, 4, 6))
    plain = [[reference_staged.trend_score(row) for row in lane] for lane in predictions.tolist()]
    np.testing.assert_allclose(pu.trend_score(predictions), plain, rtol=1e-10)
    for sign, temperature in ((1, 1.0), (-1, 1.3)):
        plain = [reference_staged.self_paced_weight(f, sign, 0.5, temperature) for f in F_U.tolist()]
        np.testing.assert_allclose(pu.self_paced_weights(F_U, sign, 0.5, temperature), plain, rtol=1e-12)


# --- PUe ---


def test_pue_with_a_constant_propensity_is_upu_calibrated_or_not():
    flat = pu.inverse_propensity_weights(torch.full((5,), -1.7, dtype=torch.float64))
    torch.testing.assert_close(pu.pue(F_P, F_U, PRIOR, flat), pu.upu(F_P, F_U, PRIOR))
    torch.testing.assert_close(pu.pue(F_P, F_U, PRIOR), pu.upu(F_P, F_U, PRIOR))
    ours = pu.calibrated(pu.pue, 0.6)(F_P, F_U, PRIOR, weights_p=flat)
    torch.testing.assert_close(ours, pu.calibrated(pu.upu, 0.6)(F_P, F_U, PRIOR))


def test_weighted_risk_of_a_biased_sample_is_that_of_the_positives():
    """A finite population labelled with known propensities: weights 1 / e undo the selection in expectation."""
    f, e = rand(6, seed=11), torch.tensor([0.1, 0.2, 0.4, 0.5, 0.8, 1.0], dtype=torch.float64)
    rows = torch.arange(6).repeat_interleave((e * 10).round().long())  # each row as often as it is labelled
    weights = pu.inverse_propensity_weights(torch.logit(e[rows].clamp(max=1 - 1e-12)))
    torch.testing.assert_close(pu.pue(f[rows], F_U, PRIOR, weights), pu.upu(f, F_U, PRIOR))


def test_weights_survive_vanishing_propensities():
    weights = pu.inverse_propensity_weights(torch.tensor([-2000.0, 0.0, 5.0]))
    assert weights.tolist() == [1, 0, 0]


def test_penalty_vanishes_where_the_expected_number_is_labelled():
    g_p, g_u = torch.zeros(4), torch.zeros(4)
    assert pu.pue_propensity(g_p, g_u, penalty=100.0).item() == pytest.approx(math.log(2))


# --- HolisticPU ---


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=12), st.floats(0.01, 3), st.floats(-5, 5))
@settings(max_examples=80, deadline=None)
def test_break_is_the_best_of_all(values, scale, shift):
    x = [scale * v + shift for v in values]
    cut = pu.fisher_break(torch.tensor(x, dtype=torch.float64)).item()
    every = reference_staged.fisher_breaks(x)
    if not every:
        assert cut == max(x)
        return
    assert cut in every
    assert every[cut] == pytest.approx(min(every.values()), rel=1e-6, abs=1e-9)


def test_break_in_lanes_and_far_from_zero():
    x = torch.cat([rand(2, 30, seed=1) * 1e-3, 5e-3 + rand(2, 20, seed=2) * 1e-3], dim=1) + 1e4
    torch.testing.assert_close(pu.fisher_break(x), torch.stack([pu.fisher_break(row) for row in x]))
    assert pu.fisher_break(torch.tensor([3.0])).item() == 3


def test_labels_search_again_without_outliers():
    falling, flat, jump = [-0.02, -0.021, -0.019], [-0.001, 0.0, 0.001], [0.2]
    scores = torch.tensor([falling + flat + jump, falling + flat + [0.0]])
    labels = pu.trend_labels(scores, limit=0.02)
    assert labels.tolist() == [[False] * 3 + [True] * 4] * 2
    far = torch.tensor([[0.001, 0.002, 0.01, 0.011, 0.9]])  # the first break would spare the outlier alone
    assert pu.trend_labels(far, limit=0.02).tolist() == [[False, False, True, True, True]]
    assert pu.trend_labels(far, limit=9.0).tolist() == [[False] * 4 + [True]]
    between = torch.tensor([[0.001, 0.002, 0.01, 0.011, 0.03, 0.9]])  # 0.03 is an outlier too
    assert pu.trend_labels(between, limit=0.02).tolist() == [[False] * 2 + [True] * 4]
    assert pu.trend_labels(between, limit=0.04).tolist() == [[False] * 4 + [True] * 2]


def test_trend_of_a_constant_is_zero_and_falls_with_the_predictions():
    assert pu.trend_score(torch.full((2, 5), 0.3)).abs().max() == 0
    rising = torch.linspace(0.1, 0.9, 6)
    assert pu.trend_score(rising[None]) > 0 > pu.trend_score(rising.flip(0)[None])


def test_holistic_limits():
    nothing = pu.holistic_pu(F_P, F_U, PSEUDO, 0.0, confidence=1.1)
    torch.testing.assert_close(nothing, 2 * pu.naive(F_P, F_U))  # no pseudo labels, no consistency
    torch.testing.assert_close(pu.holistic_warmup(F_P, F_U, 0.0), 2 * pu.naive(F_P, F_U))
    labelled = pu.holistic_pu(F_P, F_U, torch.ones(6), 1.0, confidence=1.1)
    torch.testing.assert_close(labelled, base_loss(F_P, 1).mean() + base_loss(F_U, 1).mean())


# --- PULDA ---


def test_running_means():
    batches = [(rand(4, seed=i), rand(4, seed=i + 50)) for i in range(4)]
    before, plain = None, None
    for p, u in batches:
        _, before = pu.pulda(p, u, PRIOR, before)
        now = torch.sigmoid(u).mean().item()
        plain = now if plain is None else 0.85 * plain + 0.15 * now
        assert before.predicted.item() == pytest.approx(plain)
    _, fresh = pu.pulda(*batches[0], PRIOR, before, momentum=0.0, margin_momentum=0.0)
    _, first = pu.pulda(*batches[0], PRIOR)
    torch.testing.assert_close(fresh, first)  # without momentum there is no past
    assert not any(value.requires_grad for value in before)


def test_distance_tends_to_the_absolute_one():
    a, b = torch.tensor([0.2, 0.9, 0.5]), 0.5
    torch.testing.assert_close(pu.softplus_distance(a, b, 1e4), (a - b).abs(), atol=2e-4, rtol=0)
    assert pu.softplus_distance(torch.tensor(b), b, 3.5).item() == pytest.approx(2 * math.log(2) / 3.5)
    # So the alignment is half of Dist-PU at pi = 1/2, where that divides by 2 pi.
    aligned, _ = pu.pulda(F_P, F_U, 0.5, temperature=1e4, margin=None)
    torch.testing.assert_close(aligned, pu.dist_pu(F_P, F_U, 0.5) / 2, atol=2e-4, rtol=0)


def test_margin_loss_is_small_far_from_the_boundary_and_mirrors():
    f = torch.tensor([-30.0, 0.3, 30.0])
    low, most, lower = pu.margin_loss(f, 1, 0.6).tolist()
    assert most == pytest.approx(1 / (1 + math.exp(-0.3)) ** 2)
    assert max(low, lower) < 1e-12
    torch.testing.assert_close(pu.margin_loss(f, 1), pu.margin_loss(-f, -1))


def test_weights_are_repeated_rows():
    rows = torch.tensor([0, 1, 1, 2, 4, 5])
    weights = torch.bincount(rows, minlength=6).double() / 6
    torch.testing.assert_close(pu.pulda(F_P, F_U, PRIOR, weights_u=weights), pu.pulda(F_P, F_U[rows], PRIOR))
    torch.testing.assert_close(pu.pue(F_P, F_U, PRIOR, W, weights_u=weights), pu.pue(F_P, F_U[rows], PRIOR, W))


# --- PAN ---


def test_pan_terms_meet_their_limits():
    torch.testing.assert_close(pu.pan_classifier(F_U, C_U, 0.0), -(F_U * (2 * torch.sigmoid(C_U) - 1)).mean())
    p, u = torch.tensor([900.0]), torch.tensor([-900.0, 900.0])
    for spare in (True, False):
        assert torch.isfinite(pu.pan_discriminator(p, u, 1e4 * u, spare=spare))
    alone = pu.pan_discriminator(F_P, F_U, C_U, weight=0.0, spare=False)
    torch.testing.assert_close(alone, 2 * pu.naive(F_P, F_U))  # without the classifier's term: P against U
    even = torch.zeros(6)  # all rows are their mean
    torch.testing.assert_close(pu.pan_discriminator(F_P, even, C_U, spare=True), base_loss(F_P, 1).mean())


# --- P3MIX ---


def test_pool_and_unsure_rows():
    f = torch.tensor([[2.0, -0.1, 0.5, -3.0], [0.0, 1.0, -1.0, 9.0]])

    assert set(pu.p3mix_pool(f, 2)[0].tolist()) == {1, 2}
    assert pu.p3mix_pool(f, 96).shape == (2, 4)
    p = torch.tensor([0.1, 0.2, 0.5, 0.84, 0.86], dtype=torch.float64)
    assert pu.p3mix_unsure(torch.logit(p), 0.85).tolist() == [False, True, True, True, False]


@given(st.lists(st.floats(-20, 20), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_elr_lies_in_its_range_and_rewards_agreement(scores, target):
    f, t = torch.tensor(scores, dtype=torch.float64), torch.tensor(target, dtype=torch.float64)
    assert math.log(1e-4) - 1e-9 <= pu.elr(f, t).item() <= 0
    assert pu.elr(f, (f >= 0).double()) <= pu.elr(f, (f < 0).double())
    torch.testing.assert_close(pu.elr(-f, 1 - t), pu.elr(f, t))


def test_elr_is_zero_for_outright_contradiction_and_bounded():
    f = torch.tensor([300.0, -300.0], dtype=torch.float64, requires_grad=True)
    assert pu.elr(f, torch.tensor([0.0, 1.0], dtype=torch.float64)).item() == pytest.approx(0, abs=2e-4)
    sure = pu.elr(f, torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert sure.item() == pytest.approx(math.log(1e-4))
    assert torch.autograd.grad(sure, f)[0].abs().max() == 0


def test_p3mix_on_unmixed_rows_is_naive():
    one, zero = torch.ones(5, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
    torch.testing.assert_close(pu.p3mix(F_P, F_U, one, zero, entropy=0.0), 2 * pu.naive(F_P, F_U))


# --- Robust-PU ---


def test_robust_pu_with_all_weights_one_is_naive():
    torch.testing.assert_close(pu.robust_pu(F_P, F_U, torch.ones(5), torch.ones(6)), 2 * pu.naive(F_P, F_U))
    torch.testing.assert_close(pu.self_paced_weights(F_U, 1, 1e6), torch.ones(6, dtype=torch.float64))


@given(st.floats(-30, 30), st.floats(0.1, 2), st.floats(0.5, 2))
@settings(max_examples=40, deadline=None)
def test_easy_rows_weigh_more_and_thresholds_let_more_in(f, threshold, temperature):
    easy, hard = pu.self_paced_weights(torch.tensor([f, f + 1], dtype=torch.float64), -1, threshold, temperature)
    assert 0 <= hard <= easy <= 1
    wider = pu.self_paced_weights(torch.tensor([f], dtype=torch.float64), -1, 1.5 * threshold, temperature)
    assert wider[0] >= easy


def test_threshold_grows_linearly_then_stays():
    assert [pu.paced_threshold(k, 0.1, 1.1, 5) for k in (0, 1, 5, 9)] == pytest.approx([0.1, 0.3, 1.1, 1.1])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pu.pue(F_P, F_U, 1.0), "prior must lie strictly between 0 and 1, got 1.0"),
        (lambda: pu.pue_propensity(F_P, F_U, 1.5), "labelled_share must lie strictly between 0 and 1, got 1.5"),
        (lambda: pu.trend_score(F_P[:, None]), "predictions must have at least 2 records, got (5, 1)"),
        (lambda: pu.holistic_pu(F_P, F_U, PSEUDO, 2.0), "share must lie in [0, 1], got 2.0"),
        (lambda: pu.pulda(F_P, F_U, 0.0), "prior must lie strictly"),
        (lambda: pu.pulda(F_P, F_U, 0.5, momentum=1.0), "momentum must lie in [0, 1), got 1.0"),
        (lambda: pu.softplus_distance(F_P, 0.5, 0.0), "temperature must be greater than 0, got 0.0"),
        (lambda: pu.pan_classifier(F_U, C_U, -1.0), "epsilon must lie in [0, 1), got -1.0"),
        (lambda: pu.p3mix_pool(F_P, 0), "size must be at least 1, got 0"),
        (lambda: pu.p3mix_unsure(F_U, 0.5), "gamma must lie strictly between 0.5 and 1, got 0.5"),
        (lambda: pu.elr(F_U, T_U, 0.6), "least must lie strictly between 0 and 0.5, got 0.6"),
        (lambda: pu.self_paced_weights(F_U, 1, 0.0), "threshold must be greater than 0, got 0.0"),
        (lambda: pu.ALGORITHMS["pue"](penalty=-1.0), "penalty must be at least 0, got -1.0"),
        (lambda: pu.ALGORITHMS["holistic_pu"](records=1), "records must be at least 2, got 1"),
        (lambda: pu.ALGORITHMS["pulda"](start=2.0), "start must lie in [0, 1], got 2.0"),
        (lambda: pu.ALGORITHMS["pan"](weight=-1.0), "weight must be at least 0, got -1.0"),
        (lambda: pu.ALGORITHMS["p3mix_e"](decay=1.0), "decay must lie in [0, 1), got 1.0"),
        (lambda: pu.ALGORITHMS["p3mix_c"](gamma=1.0), "gamma must lie strictly between 0.5 and 1, got 1.0"),
        (lambda: pu.ALGORITHMS["robust_pu"](last_u=0.0), "last_u must be greater than 0, got 0.0"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()
