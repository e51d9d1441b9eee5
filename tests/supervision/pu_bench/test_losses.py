"""The losses against a plain reference, forward and gradient; their identities, limits and errors."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.supervision.pu_bench import losses

from . import reference

PRIOR = 0.4


def rand(*shape, seed=0, scale=1.0):
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


F_P, F_U = rand(5, seed=1), rand(6, seed=2)
S_P, S_U = torch.sigmoid(rand(5, seed=3)), torch.sigmoid(rand(6, seed=4))
OVER = (F_P + 3, F_U - 3)  # separated: the negative part of the risk is below 0
BETWEEN = (F_P, F_U - 2)  # it is below 0, and the whole risk above

CASES = {
    "upu": (losses.upu, reference.upu, {}),
    "upu, sigmoid": (losses.upu, reference.upu, {"loss": "sigmoid"}),
    "nnpu": (losses.nnpu, reference.nnpu, {}),
    "nnpu, sigmoid": (losses.nnpu, reference.nnpu, {"loss": "sigmoid", "beta": 0.1}),
    "nnpu_ga": (losses.nnpu_ga, reference.nnpu_ga, {"gamma": 0.7}),
    "nnpu_ga, beta": (losses.nnpu_ga, reference.nnpu_ga, {"beta": 0.3}),
    "vpu": (lambda p, u, prior: losses.vpu(p, u), lambda p, u, prior: reference.vpu(p, u), {}),
    "dist_pu": (losses.dist_pu, reference.dist_pu, {}),
    "count": (losses.count_loss, reference.count_loss, {}),
    "pubn": (
        lambda p, u, prior: losses.pubn(p, u, prior, S_P, S_U, 0.5),
        lambda p, u, prior: reference.pubn(p, u, prior, S_P.tolist(), S_U.tolist(), 0.5),
        {},
    ),
    "cvir": (
        lambda p, u, prior: losses.cvir(p, u.gather(-1, losses.cvir_keep(u, prior)), prior),
        reference.cvir,
        {},
    ),
}


@pytest.mark.parametrize("scores", [(F_P, F_U), OVER, BETWEEN], ids=["mixed", "separated", "between"])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_equal_the_reference(name, scores):
    ours, plain, options = CASES[name]
    p, u = (x.clone().requires_grad_() for x in scores)
    loss = ours(p, u, PRIOR, **options)
    lists = p.tolist(), u.tolist()
    assert loss.item() == pytest.approx(plain(*lists, PRIOR, **options), rel=1e-10)
    got = torch.autograd.grad(loss, (p, u), allow_unused=True)
    wanted = (
        reference.gradient(lambda x: plain(x, lists[1], PRIOR, **options), lists[0]),
        reference.gradient(lambda x: plain(lists[0], x, PRIOR, **options), lists[1]),
    )
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(0.0 if a is None else a.numpy(), b, rtol=1e-5, atol=1e-8)


def test_the_separated_scores_do_reach_the_clamp():
    assert losses.nnpu(*OVER, PRIOR) > losses.upu(*OVER, PRIOR)
    assert losses.nnpu_ga(*OVER, PRIOR) != losses.upu(*OVER, PRIOR)
    assert losses.upu(*BETWEEN, PRIOR) > 0 > -losses.nnpu_ga(*BETWEEN, PRIOR), "a sign rule on the whole risk shows"
    assert losses.nnpu_ga(*BETWEEN, PRIOR) != losses.upu(*BETWEEN, PRIOR) == losses.nnpu_ga(*BETWEEN, PRIOR, beta=0.3)
    torch.testing.assert_close(losses.nnpu(F_P, F_U, PRIOR), losses.upu(F_P, F_U, PRIOR), rtol=0, atol=0)
    torch.testing.assert_close(losses.nnpu_ga(F_P, F_U, PRIOR), losses.upu(F_P, F_U, PRIOR), rtol=0, atol=0)
    torch.testing.assert_close(losses.nnpu(*OVER, PRIOR, beta=99), losses.upu(*OVER, PRIOR))


def test_vpu_regulariser_and_its_gradient():
    mixed, partner = rand(4, seed=5).requires_grad_(), rand(4, seed=6).requires_grad_()
    loss = losses.vpu_mixup(mixed, partner, 0.3)
    assert loss.item() == pytest.approx(reference.vpu_mixup(mixed.tolist(), partner.tolist(), 0.3), rel=1e-10)
    got, none = torch.autograd.grad(loss, (mixed, partner), allow_unused=True)
    plain = reference.gradient(lambda x: reference.vpu_mixup(x, partner.tolist(), 0.3), mixed.tolist())
    np.testing.assert_allclose(got.numpy(), plain, rtol=1e-5)
    assert none is None, "no gradient flows into the target"
    assert losses.vpu_mixup(mixed, mixed, 0.0).item() == pytest.approx(0, abs=1e-12)  # nothing mixed in


def test_glws_targets_and_loss():
    p, u = F_P.clone().requires_grad_(), F_U.clone().requires_grad_()
    count = 2  # int(0.4 * 6)
    total, each = reference.count_joint(u.tolist(), count)
    targets = [e / total for e in each]
    np.testing.assert_allclose(losses.count_posterior(u, count).numpy(), targets, rtol=1e-10)
    loss = losses.glws(p, u, PRIOR)
    assert loss.item() == pytest.approx(reference.glws(p.tolist(), u.tolist(), PRIOR, targets), rel=1e-10)
    got = torch.autograd.grad(loss, u)[0]
    plain = reference.gradient(lambda x: reference.glws(p.tolist(), x, PRIOR, targets), u.tolist())
    np.testing.assert_allclose(got.numpy(), plain, rtol=1e-5, atol=1e-9)  # with targets held fixed


def test_lbe_steps():
    f, g = rand(6, seed=7).requires_grad_(), rand(6, seed=8).requires_grad_()
    labelled = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)
    q = losses.lbe_posterior(f, g, labelled)
    plain = [reference.lbe_posterior(*row) for row in zip(f.tolist(), g.tolist(), labelled.tolist(), strict=True)]
    np.testing.assert_allclose(q.numpy(), plain, rtol=1e-12)
    loss = losses.lbe(f, g, q, labelled)
    assert loss.item() == pytest.approx(reference.lbe(f.tolist(), g.tolist(), plain, labelled.tolist()), rel=1e-12)
    for x, other in ((f, 0), (g, 1)):
        got = torch.autograd.grad(loss, x, retain_graph=True)[0]
        both = [f.tolist(), g.tolist()]
        numeric = reference.gradient(
            lambda v, i=other, b=both: reference.lbe(*[*b[:i], v, *b[i + 1 :]], plain, labelled.tolist()), both[other]
        )
        np.testing.assert_allclose(got.numpy(), numeric, rtol=1e-5, atol=1e-9)


def test_counts_of_positives_are_rounded_as_stated():
    p, u = rand(5), rand(7)  # 2.8 positives
    count = losses.base_loss(p, 1).mean() - losses.count_log_prob(u, 3)
    torch.testing.assert_close(losses.count_loss(p, u, PRIOR), count)
    assert losses.cvir_keep(u, PRIOR).shape == (4,)
    for n, prior, positives in ((7, PRIOR, 2), (50, 0.58, 29)):  # 0.58 * 50 is 28.999... in floats
        u = rand(n)
        soft = losses.soft_ce(u, losses.count_posterior(u, positives)).mean()
        torch.testing.assert_close(losses.glws(p, u, prior), losses.base_loss(p, 1).mean() + soft)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_count_probabilities_sum_to_one(n):
    f = rand(3, n, scale=2)
    total = sum(losses.count_log_prob(f, k).exp() for k in range(n + 1))
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64), rtol=1e-12, atol=0)
    for k in range(n + 1):
        torch.testing.assert_close(
            losses.count_posterior(f, k).sum(dim=-1), torch.full((3,), float(k), dtype=torch.float64)
        )


def test_count_probabilities_equal_enumeration_and_survive_extreme_scores():
    f = rand(8, scale=3)
    for k in range(9):
        total, _ = reference.count_joint(f.tolist(), k)
        assert losses.count_log_prob(f, k).item() == pytest.approx(math.log(total), rel=1e-10)
    sure = torch.full((64,), -40.0, requires_grad=True)
    value = losses.count_log_prob(sure, 32)
    # All rows alike: log of the binomial coefficient, plus 32 log p, up to 32 log(1 - p) = 0.
    assert value.item() == pytest.approx(math.log(math.comb(64, 32)) - 32 * 40, rel=1e-6)
    assert torch.autograd.grad(value, sure)[0].numpy() == pytest.approx(np.full(64, 0.5), rel=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, u: losses.calibrated(losses.upu, 0.6)(p, u, PRIOR),
        lambda p, u: losses.calibrated(losses.vpu, 0.6)(p, u, PRIOR),
        lambda p, u: losses.count_loss(p, u, PRIOR),
        lambda p, u: losses.dist_pu(p, u, PRIOR),
        lambda p, u: losses.pubn(p, u, PRIOR, S_P.expand(2, -1), S_U.expand(2, -1), 0.5),
        lambda p, u: losses.naive(p, u),
    ],
    ids=["upu-c", "vpu-c", "count", "dist_pu", "pubn", "naive"],
)
def test_gradcheck_with_lanes(function):
    assert torch.autograd.gradcheck(function, (rand(2, 5).requires_grad_(), rand(2, 6, seed=1).requires_grad_()))


PLAIN = ("naive", "upu", "nnpu", "nnpu_ga", "vpu", "dist_pu", "count_loss", "glws")
LANED = {
    **{name: getattr(losses, name) for name in PLAIN},
    "upu-c": losses.calibrated(losses.upu, 0.5),
    "threshold": lambda p, u, prior: losses.pusb_threshold(u, prior),
    "posterior": lambda p, u, prior: losses.count_posterior(u, 2).sum(dim=-1),
}  # fmt: skip


@pytest.mark.parametrize("name", LANED)
def test_a_lane_is_what_it_is_alone(name):
    p, u = rand(3, 5), rand(3, 6, seed=1)
    p[1], u[1] = p[1] + 3, u[1] - 3
    together = LANED[name](p, u, PRIOR)
    assert together.shape == (3,)
    for lane in range(3):
        torch.testing.assert_close(together[lane], LANED[name](p[lane], u[lane], PRIOR), rtol=1e-12, atol=0)


@pytest.mark.parametrize("prior", [0.3, 0.5])
def test_calibrated_upu_is_equation_8_and_upu_on_the_union(prior):
    p, u = rand(12), rand(28, seed=1)
    c = 12 / (prior * 40)
    ours = losses.calibrated(losses.upu, c)(p, u, prior)
    assert ours.item() == pytest.approx(reference.upu_calibrated(p.tolist(), u.tolist(), prior, c), rel=1e-12)
    torch.testing.assert_close(ours, losses.upu(p, torch.cat([p, u]), prior), rtol=1e-12, atol=0)


@pytest.mark.parametrize("function", [losses.nnpu, losses.nnpu_ga, losses.vpu, losses.dist_pu, losses.naive])
def test_weights_are_rows_of_the_union_for_every_mean(function):
    p, u = rand(12), rand(28, seed=1)
    torch.testing.assert_close(
        losses.calibrated(function, 0.6)(p, u, 0.5), function(p, torch.cat([p, u]), 0.5), rtol=1e-12, atol=0
    )


def test_batch_concatenation_is_exact_only_where_half_of_the_weight_is_labelled():
    p, u = rand(8), rand(8, seed=1)
    exact, concat = (losses.calibrated(losses.upu, 0.6, how)(p, u, 0.5) for how in ("weights", "batch_concat"))
    assert abs(exact - concat) > 1e-3
    torch.testing.assert_close(concat, losses.calibrated(losses.upu, 1.0)(p, u, 0.5))


def test_limits_of_weights_and_priors():
    p, u = rand(5), rand(6, seed=1)
    # Hardly anything labelled: calibration changes nothing. Everything labelled: U holds negatives alone.
    torch.testing.assert_close(losses.calibrated(losses.upu, 1e-12)(p, u, 0.5), losses.upu(p, u, 0.5))
    supervised = (losses.base_loss(p, 1).mean() + losses.base_loss(u, -1).mean()) / 2
    torch.testing.assert_close(losses.calibrated(losses.upu, 1.0)(p, u, 0.5), supervised)
    torch.testing.assert_close(losses.naive(p, u), supervised)
    perfect = torch.full((4,), 60.0)
    assert losses.dist_pu(perfect, torch.cat([perfect, -perfect]), 0.5).item() == pytest.approx(0, abs=1e-6)


def test_pubn_is_unbiased_for_any_probability_estimate():
    """On a finite population its two negative terms add up to the mean of (1 - s) l- over the population."""
    s, positive = torch.sigmoid(rand(40)), torch.rand(40, generator=torch.Generator().manual_seed(1)) < 0.5
    s = torch.where(positive, s, s * 0.3)
    f, prior = rand(40, seed=2), 0.35
    # p(x | y = 1) of row i is s_i / (40 prior); as weights of the P term these need no sampling.
    weight = s / (40 * prior)
    cut = 0.4
    sure = torch.where(s <= cut, 1 - s, 0) * losses.base_loss(f, -1)
    unsure = prior * (weight * torch.where(s > cut, (1 - s) / s, 0) * losses.base_loss(f, -1)).sum()
    torch.testing.assert_close(sure.mean() + unsure, ((1 - s) * losses.base_loss(f, -1)).mean())
    ours = losses.pubn(f, f, prior, s, s, cut)
    plain = prior * losses.base_loss(f, 1).mean() + sure.mean()
    plain += prior * (torch.where(s > cut, (1 - s) / s, 0) * losses.base_loss(f, -1)).mean()
    torch.testing.assert_close(ours, plain)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=9), st.floats(0.05, 0.95), st.floats(-5, 5))
@settings(max_examples=40, deadline=None)
def test_threshold_and_count_follow_shifts(scores, prior, shift):
    f = torch.tensor(scores, dtype=torch.float64)
    threshold = losses.pusb_threshold(f, prior)
    above = (f >= threshold).double().mean().item()
    assert above >= prior - 1e-6
    assert (f > threshold).double().mean().item() < prior
    torch.testing.assert_close(losses.pusb_threshold(f + shift, prior), threshold + shift)
    k = len(scores) // 2
    # One shift of all scores changes every odds alike, so who is positive given the count does not change.
    torch.testing.assert_close(losses.count_posterior(f + shift, k), losses.count_posterior(f, k), rtol=1e-6, atol=1e-9)


def test_threshold_with_weights_is_that_of_repeated_rows():
    f = rand(4)
    weights = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    repeated = f.repeat_interleave(torch.tensor([1, 4, 2, 3]))
    for prior in (0.15, 0.35, 0.6, 0.95):
        torch.testing.assert_close(losses.pusb_threshold(f, prior, weights), losses.pusb_threshold(repeated, prior))


def test_entropy_and_its_limits():
    f = torch.tensor([0.0, 1.5, -1.5, 800.0, -800.0], dtype=torch.float64)
    p = 1 / (1 + math.exp(-1.5))
    plain = -p * math.log(p) - (1 - p) * math.log(1 - p)
    np.testing.assert_allclose(losses.binary_entropy(f).numpy(), [math.log(2), plain, plain, 0, 0], atol=1e-12)


def test_eta_leaves_the_stated_share_below():
    s = torch.linspace(0, 1, 101, dtype=torch.float64)
    assert losses.pubn_eta(s, prior=0.3, tau=0.5, rho=0.2).item() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: losses.upu(F_P, F_U, 1.0), "prior must lie strictly between 0 and 1, got 1.0"),
        (lambda: losses.glws(F_P, F_U, 0.0), "prior must lie strictly"),
        (lambda: losses.calibrated(losses.upu, 1.2), "c = p(labelled | positive) must lie in (0, 1], got 1.2"),
        (lambda: losses.calibrated(losses.upu, 0.5, "average"), "how must be 'weights' or 'batch_concat'"),
        (lambda: losses.upu(F_P, F_U, 0.5, loss="hinge"), "loss must be one of ce, logistic, sigmoid, got 'hinge'"),
        (lambda: losses.count_log_prob(F_U, 7), "count must lie between 0 and the number of rows 6, got 7"),
        (lambda: losses.count_posterior(F_U, -1), "count must lie between 0"),
        (lambda: losses.pubn_eta(S_U, 0.9), "choose rho < 1 - prior = 0.1"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def test_logistic_is_the_cross_entropy_of_two_logits():
    logits = rand(6, 2)
    label = torch.ones(6, dtype=torch.long)
    ours = losses.base_loss(logits[:, 1] - logits[:, 0], 1, "logistic")
    torch.testing.assert_close(ours, torch.nn.functional.cross_entropy(logits, label, reduction="none"))
