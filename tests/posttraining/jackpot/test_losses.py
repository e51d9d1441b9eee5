"""The loss against a plain reference, forward and gradients; its limits, its expectation, its errors."""

import math
import re
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.posttraining.jackpot.losses import OBRS, PRESETS, group_advantages, jackpot_loss
from paperworks.posttraining.jackpot.obrs import TopK, full_topk, obrs_normalizer

from . import reference

B, T, V = 4, 6, 30


def batch(seed=0, shift=0.7):
    """Whole distributions of three policies, drawn tokens and their log-probabilities, in float64."""
    g = torch.Generator().manual_seed(seed)
    base = 1.5 * torch.randn(B, T, V, generator=g, dtype=torch.float64)
    new, ref, actor = ((base + shift * torch.randn(B, T, V, generator=g, dtype=torch.float64)).log_softmax(-1)
                       for _ in range(3))  # fmt: skip
    ids = torch.multinomial(actor.exp().flatten(0, 1), 1, generator=g).view(B, T, 1)
    mask = torch.ones(B, T)
    mask[0, 4:] = mask[2, 2:] = 0
    of = {name: x.gather(-1, ids).squeeze(-1) for name, x in (("new", new), ("ref", ref), ("actor", actor))}
    of["new"].requires_grad_()
    uniform = torch.rand(B, T, generator=g, dtype=torch.float64)
    return {"whole": (new, ref, actor), **of, "advantage": torch.tensor([1.0, -2.0, 0.5, 0.3], dtype=torch.float64),
            "mask": mask, "uniform": uniform}  # fmt: skip


def run(b, **options):
    return jackpot_loss(
        b["new"], b["ref"], b["actor"], b["advantage"], b["mask"], **{"uniform": b["uniform"]} | options
    )


@pytest.mark.parametrize("correction", ["jackpot", "tis", "is", "icepop", "none"])
@pytest.mark.parametrize("target", ["new", "ref"])
@pytest.mark.parametrize("eps", [0.2, None])
def test_forward_and_gradients_equal_the_reference(correction, target, eps):
    b = batch()
    topk = full_topk(b["whole"][0 if target == "new" else 1], b["whole"][2], 5)
    out = run(b, correction=correction, target=target, clip_eps=eps, topk=topk, lam=1.3, c1=1.5, c2=1.4)
    (gradient,) = torch.autograd.grad(out.loss, b["new"])
    goal = b["whole"][0 if target == "new" else 1]
    z = [[reference.topk_normaliser(goal[i, j].exp().tolist(), b["whole"][2][i, j].exp().tolist(), 5, 1.3)
          for j in range(T)] for i in range(B)]  # fmt: skip
    plain = [b[name].exp().tolist() for name in ("new", "ref", "actor")]
    expected, slopes = reference.loss(
        *plain, b["advantage"].tolist(), b["mask"].tolist(), b["uniform"].tolist(), z,
        lam=1.3, target=target, eps=eps, c1=1.5, c2=1.4, correction=correction,
    )  # fmt: skip
    assert out.loss.item() == pytest.approx(expected)
    torch.testing.assert_close(gradient.tolist(), slopes)


@pytest.mark.parametrize("target", ["new", "ref"])
@pytest.mark.parametrize("eps", [0.2, None])
def test_without_correction_it_is_plain_ppo(target, eps):
    """The baselines off_policy and no_clip, by PPO's formula alone: nothing is turned back to p_ref."""
    b = batch()
    ratio = (b["new"] - b["ref"]).exp()
    gain = ratio * b["advantage"][:, None]
    if eps is not None:
        gain = torch.minimum(gain, ratio.clamp(1 - eps, 1 + eps) * b["advantage"][:, None])
    expected = -(gain * b["mask"]).sum() / b["mask"].sum()
    assert run(b, correction="none", target=target, clip_eps=eps).loss.item() == pytest.approx(expected.item())


def test_bounds_of_the_baselines():
    """F at and beside its bounds: 2 for tis, 0.5 and 5 (both within) for icepop."""
    x = torch.tensor([[0.49, 0.5, 1.9, 2.1, 5.0, 5.1]], dtype=torch.float64)
    zero = torch.zeros_like(x)
    # log(0.5) and log(5) come back exact enough only beside the bound.
    x[0, 1], x[0, 4] = 0.5 * (1 + 1e-12), 5.0 * (1 - 1e-12)
    expected = {"tis": [0.49, 0.5, 1.9, 2, 2, 2], "icepop": [0, 0.5, 1.9, 2.1, 5.0, 0], "is": x[0].tolist()}
    for correction, weights in expected.items():
        out = jackpot_loss(x.log(), x.log(), zero, torch.ones(1), zero + 1, correction=correction, target="ref")
        assert out.weight[0].tolist() == pytest.approx(weights)


def test_metrics_count_tokens():
    """Ratios to the actor 3.1, 2.5 and 1, to p_ref 1.5, 0.5 and 1, with gain, loss and gain; the fourth is padding."""
    actor = -torch.tensor([[3.1, 2.5, 1.0, 9.0]], dtype=torch.float64).log()
    ref = -torch.tensor([[1.5, 0.5, 1.0, 9.0]], dtype=torch.float64).log()
    zero = torch.zeros_like(actor)
    advantages, mask = torch.tensor([[1.0, -1.0, 1.0, 1.0]]), torch.tensor([[1, 1, 1, 0]])

    def metrics(gains, **options):
        return jackpot_loss(zero, ref, actor, gains, mask, uniform=zero, **options).metrics

    found = metrics(advantages, correction="tis")
    assert found["fraction_truncated"] == pytest.approx(2 / 3)
    assert found["clipped"] == pytest.approx(2 / 3)
    assert metrics(-advantages, correction="tis")["clipped"] == 0
    assert metrics(advantages)["fraction_truncated"] == pytest.approx(1 / 3)  # Z = 1 and c1 = 3
    assert found["kl_actor_policy"] == pytest.approx(-math.log(3.1 * 2.5) / 3)
    alike = metrics(advantages, correction="tis", target="ref")  # 3.1 / 1.5, 2.5 / 0.5, 1
    weights = [2.0, 2.0, 1.0]
    assert alike["ess"] == pytest.approx(sum(weights) ** 2 / (3 * sum(w * w for w in weights)))


def test_no_shift_is_no_correction():
    """With p_new = p_ref = q nothing is rejected and every correction leaves the policy gradient as it is."""
    b = batch()
    b["ref"] = b["actor"] = b["new"].detach()
    plain = run(b, correction="none")
    for correction in ("jackpot", "tis", "is", "icepop"):
        out = run(b, correction=correction, z=torch.ones(B, T, dtype=torch.float64))
        assert out.loss.item() == pytest.approx(plain.loss.item())
        assert out.metrics["acceptance"] == 1
    assert run(b).metrics["kappa"] == 1


@pytest.mark.parametrize("lam", [1e-9, 1e9])
def test_limits_of_the_budget(lam):
    """All is kept with the weights of importance sampling; or samples of p at weight 1."""
    b = batch()
    z = obrs_normalizer(b["whole"][0], b["whole"][2], lam)
    out = run(b, lam=lam, z=z, c1=math.inf, c2=math.inf, clip_eps=None, mask_mode="none")
    if lam < 1:
        expected = run(b, correction="is", clip_eps=None, target="ref")
        torch.testing.assert_close(out.per_token, expected.per_token)
        assert run(b, lam=lam, z=z, c1=math.inf).metrics["acceptance"] == 1
    else:
        torch.testing.assert_close(out.weight, torch.where(b["mask"] > 0, (b["ref"] - b["new"]).exp(), 0.0).detach())


def test_expected_gradient_is_the_one_of_the_target_times_acceptance():
    """E_q[M w f] = Z E_p[f] at one state, exactly, by summing over the vocabulary."""
    new, _, actor = batch()["whole"]
    p, q, f = new[0, 0], actor[0, 0], torch.randn(V, dtype=torch.float64)
    z = obrs_normalizer(p, q, 1.2)
    out = jackpot_loss(
        p[None], p[None], q[None], torch.ones(1), torch.ones(1, V), lam=1.2, z=z.expand(1, V), c1=math.inf, c2=math.inf,
        clip_eps=None, mask_mode="expected",
    )  # fmt: skip
    torch.testing.assert_close((q.exp() * out.weight[0] * f).sum(), z * (p.exp() * f).sum())


def test_expected_mask_is_the_mean_of_the_sampled_one():
    b = batch()
    z = obrs_normalizer(b["whole"][0], b["whole"][2])
    expected = run(b, mask_mode="expected", z=z).weight
    g = torch.Generator().manual_seed(0)
    draws = torch.stack([run(b, uniform=None, generator=g, z=z).weight for _ in range(500)])
    error = draws.std(0) / 500**0.5
    assert ((draws.mean(0) - expected).abs() <= 5 * error + 1e-12).all()
    assert (error > 0).any()


def test_kappa_makes_the_mean_of_z_the_acceptance():
    b = batch(shift=0.4)
    topk = full_topk(b["whole"][0], b["whole"][2], 8)
    out = run(b, topk=topk, mask_mode="expected")
    assert out.metrics["kappa"] > 1
    assert out.metrics["z"] == pytest.approx(out.metrics["acceptance"], rel=0.02)  # not exact: Z is clamped to 1
    off = run(b, topk=topk, mask_mode="expected", correction=OBRS(mask="expected", bias_correction=False))
    assert off.metrics["kappa"] == 1
    assert off.metrics["z"] < out.metrics["z"]


def test_kappa_and_clamp_by_hand():
    """Z_approx is 1/2 and 1: kept whole, kappa is 4/3 and the second Z is clamped to 1; p = q / 2 has a = 1/2."""
    half = torch.tensor([[[0.5], [1.0]]], dtype=torch.float64).log()
    one = torch.ones(1, 2, dtype=torch.float64)
    zero = 0 * one

    def weight(p, **options):
        out = jackpot_loss(p, p, zero, one[:, 0], one, topk=TopK(half, half, half < 1), uniform=zero, **options)
        return out.metrics["kappa"], out.weight[0].tolist()

    assert weight(zero) == (pytest.approx(4 / 3), pytest.approx([2 / 3, 1]))
    # All kept, by name: Z is still the mean of a(x).
    assert weight(zero - math.log(2), mask_mode="none") == (pytest.approx(2 / 3), pytest.approx([1 / 3, 2 / 3]))
    assert weight(zero - math.log(2), mask_mode="expected") == (pytest.approx(2 / 3), pytest.approx([1 / 6, 1 / 3]))


def test_padding_changes_nothing():
    b = batch()
    topk = full_topk(b["whole"][0], b["whole"][2], 3)
    first = run(b, topk=topk)
    for name in ("ref", "actor", "uniform"):
        b[name] = torch.where(b["mask"] > 0, b[name], torch.tensor(math.nan, dtype=torch.float64))
    b["new"] = torch.where(b["mask"] > 0, b["new"].detach(), -math.inf).requires_grad_()
    dirty = (torch.where(b["mask"][..., None] > 0, x, math.nan) for x in topk[:2])
    second = run(b, topk=type(topk)(*dirty, topk.counted))
    assert run(b, z=torch.where(b["mask"] > 0, 0.5, math.nan)).loss.isfinite()
    assert second.loss.item() == first.loss.item()
    assert second.metrics == first.metrics
    (gradient,) = torch.autograd.grad(second.loss, b["new"])
    assert (gradient[b["mask"] == 0] == 0).all()


def test_micro_batches_that_share_their_random_numbers_add_up():
    """The mask belongs to the tokens, and kappa pools the sums of what came before."""
    b = batch()
    topk = full_topk(b["whole"][0], b["whole"][2], 3)
    whole = run(b, topk=topk)
    tokens = b["mask"].sum(1)

    def part(i, pool):
        rows = {k: v[i : i + 1] for k, v in b.items() if k != "whole"}
        return run(rows, topk=type(topk)(*(x[i : i + 1] for x in topk)), pool=pool)

    sums = []
    for i in range(B):
        part(i, lambda s: sums.append(s) or s)
    total = sum(sums)
    parts = [part(i, lambda _: total) for i in range(B)]
    loss = sum(p.loss * n for p, n in zip(parts, tokens, strict=True)) / tokens.sum()
    assert loss.item() == pytest.approx(whole.loss.item())
    assert [p.metrics["kappa"] for p in parts] == pytest.approx([whole.metrics["kappa"]] * B)


def test_adaptive_budget_keeps_what_is_asked_for():
    b = batch()
    out = run(b, acceptance=0.7, mask_mode="expected")
    assert out.metrics["acceptance"] == pytest.approx(0.7)
    assert out.metrics["budget"] != 1


def test_adaptive_budget_where_an_engine_rounded_q_to_nothing():
    b = batch()
    b["actor"] = b["actor"].clone()
    b["actor"][1, 0] = b["actor"][3, 1] = -math.inf
    out = run(b, acceptance=0.7, mask_mode="expected")
    assert out.metrics["acceptance"] == pytest.approx(0.7)
    assert math.isfinite(out.metrics["budget"])


def test_nothing_kept_is_loss_zero_and_a_warning():
    b = batch()
    b["uniform"] = torch.full((B, T), 1 - 1e-12, dtype=torch.float64)
    for normalise in ("tokens", "accepted"):
        with pytest.warns(UserWarning, match="no token of the batch was kept"):
            out = run(b, lam=1e6, normalise=normalise)
        assert out.loss.item() == 0
        assert (torch.autograd.grad(out.loss, b["new"])[0] == 0).all()
        assert all(map(math.isfinite, out.metrics.values()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        b["mask"] = torch.zeros(B, T)
        assert run(b).loss.item() == 0


def test_divided_by_what_was_kept():
    b = batch()
    by_tokens, by_accepted = run(b), run(b, normalise="accepted")
    assert by_accepted.loss.item() == pytest.approx(by_tokens.loss.item() / by_tokens.metrics["acceptance"])
    for options in ({}, {"mask_mode": "expected"}, {"correction": "icepop"}):
        out = run(b, normalise="accepted", **options)
        assert out.loss.item() == pytest.approx((out.per_token.sum() / out.keep.sum()).item())
    assert out.keep.sum() == b["mask"].sum()  # icepop weighs with 0 and keeps all, as its paper


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("correction", ["jackpot", "tis", "is", "icepop"])
def test_rounded_probabilities_stay_finite(dtype, correction):
    b = batch()
    b["actor"] = b["actor"].clone()
    b["actor"][1, 0] = b["actor"][3, 1] = -math.inf
    half = {k: v.to(dtype) if torch.is_tensor(v) else v for k, v in b.items() if k != "whole"}
    out = run(half, correction=correction, target="new", clip_eps=None)
    assert (out.weight >= 0).all()
    assert all(map(math.isfinite, out.metrics.values()))
    assert out.loss.isfinite()
    assert out.loss.dtype == torch.float32
    (gradient,) = torch.autograd.grad(out.loss, half["new"])
    assert gradient.dtype == dtype


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), shift=st.floats(0, 6), lam=st.floats(0.05, 20), c1=st.floats(0.5, 5),
       target=st.sampled_from(["new", "ref"]), mode=st.sampled_from(["sample", "expected", "none"]))  # fmt: skip
def test_weights_are_bounded_whatever_the_shift(seed, shift, lam, c1, target, mode):
    b = batch(seed, shift)
    topk = full_topk(b["whole"][0], b["whole"][2], 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = run(b, lam=lam, c1=c1, c2=2.0, target=target, mask_mode=mode, topk=topk)
    assert ((out.weight >= 0) & (out.weight <= c1 * (2.0 if target == "new" else 1.0) * (1 + 1e-9))).all()
    assert 0 < out.metrics["ess"] <= 1 + 1e-9 or out.metrics["acceptance"] == 0
    assert out.loss.isfinite()


def test_own_correction_and_presets():
    b = batch()

    def twice(shift):
        return OBRS(mask="none")(shift)._replace(weight=torch.full_like(shift.logp_target, 2.0))

    mine, plain = run(b, correction=twice, target="ref"), run(b, correction="none", target="ref")
    assert mine.loss.item() == pytest.approx(2 * plain.loss.item())
    assert PRESETS["on_policy"] == PRESETS["off_policy"]
    losses = {name: run(b, **options).loss.item() for name, options in PRESETS.items()}
    assert len(set(losses.values())) == len(losses) - 1  # on_policy and off_policy differ in their samples alone


def test_advantages_are_relative_to_the_group():
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    got = group_advantages(rewards, 4)
    expected = 0.5 / (1 / 3**0.5 + 1e-4)
    torch.testing.assert_close(got, torch.tensor([1.0, -1.0, -1.0, 1.0, 0, 0, 0, 0]) * expected)
    for group in (1, 3):
        with pytest.raises(ValueError, match=f"group is {group}: allowed is 2 or more that divides the 8 rewards"):
            group_advantages(rewards, group)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correction": "ppo"}, "correction is 'ppo': allowed are 'jackpot', 'tis', 'is', 'icepop', 'none'"),
        ({"target": "old"}, "target is 'old': allowed are 'new', 'ref'"),
        ({"mask_mode": "draw"}, "mask_mode is 'draw'"),
        ({"normalise": "sum"}, "normalise is 'sum'"),
        ({"lam": -1}, "lam is -1: allowed is any number above 0"),
        ({"c1": 0}, "c1 is 0"),
        ({"clip_eps": -0.1}, "clip_eps is -0.1"),
        ({"acceptance": 2.0}, "acceptance is 2.0: allowed is (0, 1]"),
        ({"uniform": torch.zeros(2, 2)}, "uniform is of shape (2, 2): logp_new has (4, 6)"),
        ({"z": torch.ones(4)}, "z is of shape (4,): logp_new has (4, 6)"),
        ({"topk": full_topk(*torch.zeros(2, 4, 5, 9), 2)}, "topk is of shape (4, 5, 4): allowed is (4, 6) and one"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(batch(), **options)
    with pytest.raises(ValueError, match="advantages is of shape"):
        run(batch() | {"advantage": torch.ones(3)})
    for key, name in (("new", "logp_new"), ("ref", "logp_ref"), ("actor", "logp_actor")):
        b = batch()
        b[key] = b[key].detach().clone()
        b[key][0, 0] = math.nan
        with pytest.raises(ValueError, match=f"{name} is NaN at a token that counts"):
            run(b)
