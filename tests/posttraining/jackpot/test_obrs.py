"""OBRS against a plain reference, its theorems as properties, its limits and its errors."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.posttraining.jackpot.obrs import (
    full_topk,
    kl_divergence,
    merge_topk,
    obrs_accept_prob,
    obrs_log_density,
    obrs_normalizer,
    obrs_topk_normalizer,
    obrs_weight,
    solve_batch_lambda,
    solve_lambda,
    top_tokens,
)

from . import reference

LAMBDAS = [1e-3, 0.25, 0.7, 1.0, 1.7, 4.0, 1e3]


def pair(seed, size=50, shift=1.0, rows=()):
    """Two log-distributions in float64, the second a disturbed first."""
    generator = torch.Generator().manual_seed(seed)
    base = 2 * torch.randn(*rows, size, generator=generator, dtype=torch.float64)
    other = base + shift * torch.randn(*rows, size, generator=generator, dtype=torch.float64)
    return base.log_softmax(-1), other.log_softmax(-1)


@pytest.mark.parametrize("lam", LAMBDAS)
def test_equal_the_reference(lam):
    p, q = pair(0)
    p, q = p.clone(), q.clone()
    p[3], q[5] = -math.inf, -math.inf
    pp, qq = p.exp().tolist(), q.exp().tolist()
    accept = [reference.accept(a, b, lam) for a, b in zip(pp, qq, strict=True)]
    torch.testing.assert_close(obrs_accept_prob(p, q, lam).tolist(), accept)
    assert obrs_normalizer(p, q, lam).item() == pytest.approx(reference.normaliser(pp, qq, lam))
    torch.testing.assert_close(obrs_log_density(p, q, lam).exp().tolist(), reference.density(pp, qq, lam))
    both = [(a, b) for a, b in zip(pp, qq, strict=True) if b > 0]
    mine = kl_divergence(*(torch.tensor(x, dtype=torch.float64).log() for x in zip(*both, strict=True)))
    assert mine.item() == pytest.approx(reference.kl(*zip(*both, strict=True)))
    assert kl_divergence(p, q) == math.inf
    for k in (1, 5, 50):
        got = obrs_topk_normalizer(full_topk(p, q, k), lam).item()
        assert got == pytest.approx(reference.topk_normaliser(pp, qq, k, lam))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.floats(0.01, 4), size=st.integers(2, 60))
def test_theorems(seed, shift, size):
    """(a) KL to q~ falls with lam, from KL(p || q) to 0; (b) q~ = p from max p/q on; lam Z <= 1; Z is E_q[a]."""
    p, q = pair(seed, size, shift)
    ratio = (p - q).exp()
    budgets = torch.cat((ratio.sort().values, ratio.max()[None] * 3, ratio.min()[None] / 3)).sort().values
    z = torch.stack([obrs_normalizer(p, q, lam) for lam in budgets])
    kl = torch.stack([kl_divergence(p, obrs_log_density(p, q, lam)) for lam in budgets])
    assert (kl.diff() <= 1e-10).all()
    assert kl[0].item() == pytest.approx(kl_divergence(p, q).item(), abs=1e-12)
    assert kl[-1].item() == pytest.approx(0, abs=1e-12)
    assert (z.diff() <= 1e-12).all()
    assert (budgets * z <= 1 + 1e-12).all()
    torch.testing.assert_close(obrs_log_density(p, q, ratio.max()), p)
    for lam, expected in zip(budgets, z, strict=True):
        assert (q.exp() * obrs_accept_prob(p, q, lam)).sum().item() == pytest.approx(expected.item())
        weight = obrs_weight(p, q, expected, lam)
        torch.testing.assert_close(weight, (p - obrs_log_density(p, q, lam)).exp())
        assert (weight >= lam * expected - 1e-12).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), lam=st.floats(0.05, 5), shift=st.floats(0.1, 3))
def test_slope_of_the_divergence(seed, lam, shift):
    """d KL / d log lam = P(r < lam) (1 - 1 / (lam Z)), by central differences away from the kinks."""
    p, q = pair(seed, 30, shift)
    ratio = (p - q).exp()
    step = 1e-5
    if ((ratio / lam).log().abs() < 2 * step).any():
        return
    ends = [kl_divergence(p, obrs_log_density(p, q, lam * math.exp(s))).item() for s in (-step, step)]
    exact = p.exp()[ratio < lam].sum() * (1 - 1 / (lam * obrs_normalizer(p, q, lam)))
    assert (ends[1] - ends[0]) / (2 * step) == pytest.approx(exact.item(), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), wanted=st.floats(0.01, 1), shift=st.floats(0.01, 4), size=st.integers(2, 60))
def test_solved_budget_has_the_wanted_acceptance(seed, wanted, shift, size):
    p, q = pair(seed, size, shift)
    lam = solve_lambda(p, q, wanted)
    assert obrs_normalizer(p, q, lam).item() == pytest.approx(wanted, rel=1e-9)
    if wanted < 0.999:  # near 1 the budget is anything below the smallest ratio
        assert lam.item() == pytest.approx(reference.bisect(p.exp().tolist(), q.exp().tolist(), wanted), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), wanted=st.floats(0.2, 0.95), size=st.integers(3, 12))
def test_no_other_rule_of_the_same_acceptance_is_closer(seed, wanted, size):
    """(c) Against random acceptance rules, and against small changes of OBRS itself, at equal acceptance."""
    p, q = pair(seed, size)
    lam = solve_lambda(p, q, wanted)
    best = kl_divergence(p, obrs_log_density(p, q, lam)).item()
    generator = torch.Generator().manual_seed(seed)
    ours = obrs_accept_prob(p, q, lam)
    for spread in (1e-3, 0.1, 1.0):
        for _ in range(5):
            noise = torch.rand(size, generator=generator, dtype=torch.float64)
            rule = ((1 - spread) * ours + spread * noise).clamp(1e-9, 1)
            # Scale to the same acceptance, where that keeps it a probability.
            rule = rule * (wanted / (q.exp() * rule).sum())
            if rule.max() <= 1:
                assert kl_divergence(p, (q + rule.log()).log_softmax(-1)).item() >= best - 1e-10


def test_batches_of_distributions_solve_row_by_row():
    p, q = pair(4, 40, rows=(3, 2))
    wanted = torch.tensor([[0.3, 0.5], [0.9, 1.0], [0.99, 0.7]], dtype=torch.float64)
    lam = solve_lambda(p, q, wanted)
    assert lam.shape == (3, 2)
    torch.testing.assert_close(obrs_normalizer(p, q, lam), wanted)
    single = torch.stack([solve_lambda(a, b, w) for a, b, w in zip(p[:, 0], q[:, 0], wanted[:, 0], strict=True)])
    torch.testing.assert_close(lam[:, 0], single)


def test_probabilities_of_nothing():
    """p = 0 is never kept, nor where q is 0 too; q = 0 < p always is (an engine rounded it away)."""
    nothing = torch.tensor(-math.inf)
    some = torch.tensor(-1.0)
    for p, q, kept in ((nothing, some, 0.0), (nothing, nothing, 0.0), (some, nothing, 1.0)):
        assert obrs_accept_prob(p, q, 2.0).item() == kept
    assert obrs_normalizer(torch.stack((nothing, some)), torch.stack((some, nothing))).item() == 0


def test_what_the_actor_alone_has_cannot_be_kept():
    p = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    assert obrs_normalizer(p, q, solve_lambda(p, q, 0.9)).item() == pytest.approx(0.5)
    assert obrs_normalizer(p, q, solve_lambda(p, q, 0.4)).item() == pytest.approx(0.4)
    assert obrs_normalizer(q, p, solve_lambda(q, p, 0.3)).item() == pytest.approx(0.3)


def test_one_budget_for_a_batch_of_drawn_tokens():
    p, q = pair(5, 200)
    drawn = torch.multinomial(q.exp(), 20_000, replacement=True, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(len(drawn))
    mask[-500:] = 0
    lam = solve_batch_lambda(p[drawn], q[drawn], mask, 0.8)
    kept = obrs_accept_prob(p[drawn], q[drawn], lam)
    assert kept[:-500].mean().item() == pytest.approx(0.8)
    assert obrs_normalizer(p, q, lam).item() == pytest.approx(0.8, abs=0.02)  # about 5 standard errors
    with pytest.raises(ValueError, match="mask has no 1"):
        solve_batch_lambda(p[drawn], q[drawn], 0 * mask, 0.8)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 40), lam=st.floats(0.1, 5))
def test_topk_normaliser_is_below_and_reaches_the_whole(seed, k, lam):
    p, q = pair(seed, 40)
    whole = obrs_normalizer(p, q, lam)
    part = obrs_topk_normalizer(full_topk(p, q, k), lam)
    assert part <= whole + 1e-12
    if k == 40:
        torch.testing.assert_close(part, whole)


def test_parts_of_an_engine_make_the_same_union():
    """With cross terms it is that of the whole distributions; without, each rule does as said."""
    p, q = pair(7, 40, rows=(3,))
    of_q, of_p = q.topk(6).indices, p.topk(6).indices
    parts = (of_q, q.gather(-1, of_q), p.gather(-1, of_q), of_p, p.gather(-1, of_p))
    whole = obrs_topk_normalizer(full_topk(p, q, 6), 0.8)
    torch.testing.assert_close(obrs_topk_normalizer(merge_topk(*parts, q.gather(-1, of_p), vocabulary=40), 0.8), whole)
    rules = {u: merge_topk(*parts, vocabulary=40, unknown=u) for u in ("drop", "tail", "bound")}
    drop, tail, bound = (obrs_topk_normalizer(t, 0.8) for t in rules.values())
    assert (drop <= tail).all()
    assert (tail <= bound).all()
    assert (drop < whole).any()
    assert (whole <= bound + 1e-12).all()
    new = ~(of_p.unsqueeze(-1) == of_q.unsqueeze(-2)).any(-1)
    outside = (1 - q.topk(6).values.exp().sum(-1, keepdim=True)) / 34
    torch.testing.assert_close(rules["tail"].logq[:, 6:].exp()[new], outside.expand(3, 6)[new])
    # Places that the engine left empty are as if they were not there, whatever token number fills them.
    filler = of_p[new][0].item()
    pads = [torch.cat((x, torch.full((3, 2), fill, dtype=x.dtype)), -1)
            for x, fill in zip(parts[:3], (filler, -math.inf, -1.0), strict=True)]  # fmt: skip
    for unknown in rules:
        padded = merge_topk(*pads, *parts[3:], vocabulary=40, unknown=unknown)
        torch.testing.assert_close(obrs_topk_normalizer(padded, 0.8), obrs_topk_normalizer(rules[unknown], 0.8))
    with pytest.raises(ValueError, match="unknown is 'guess': allowed are 'tail', 'bound', 'drop'"):
        merge_topk(*parts, unknown="guess")
    with pytest.raises(ValueError, match="needs vocabulary"):
        merge_topk(*parts)


@pytest.mark.parametrize("size", [50, 640, 1000, 4113])
def test_likeliest_tokens_are_those_of_torch(size):
    scores = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(size))
    scores[0, 0, -1], scores[1, 1, : min(60, size)] = 9.0, 5.0 + torch.arange(float(min(60, size)))
    values, places = top_tokens(scores, 7)
    expected = scores.topk(7)
    torch.testing.assert_close(values, expected.values, rtol=0, atol=0)
    assert torch.equal(places, expected.indices)


def test_bad_input_is_named():
    p, q = pair(0)
    for call in (obrs_accept_prob, obrs_normalizer, obrs_log_density):
        with pytest.raises(ValueError, match="lam is 0: allowed is any number above 0"):
            call(p, q, 0)
    for wanted in (0, 1.5):
        with pytest.raises(ValueError, match=rf"acceptance is {wanted}: allowed is \(0, 1\]"):
            solve_lambda(p, q, wanted)
    with pytest.raises(ValueError, match="k is 51: allowed is 1 to 50"):
        top_tokens(p, 51)
