"""The panel against whole distributions, and its limits."""

import math

import pytest
import torch

from paperworks.posttraining.jackpot.diagnostics import diagnose
from paperworks.posttraining.jackpot.obrs import kl_divergence, obrs_normalizer


def test_estimates_are_those_of_the_whole_distributions():
    g = torch.Generator().manual_seed(0)
    base = torch.randn(3, 30, generator=g, dtype=torch.float64)
    p = (base + torch.tensor([0.1, 0.5, 1.0])[:, None] * torch.randn(3, 30, generator=g)).log_softmax(-1)
    q = base.log_softmax(-1)
    ids = torch.multinomial(q.exp(), 40_000, replacement=True, generator=g).T  # (batch, positions)
    at = torch.arange(3).expand_as(ids)
    found = diagnose(p[at, ids], q[at, ids], torch.ones(ids.shape), lam=1.2)
    kl, z = kl_divergence(q, p), obrs_normalizer(p, q, 1.2)
    torch.testing.assert_close(found.kl_by_position, kl, rtol=0.05, atol=0.002)
    torch.testing.assert_close(found.acceptance_by_position, z, rtol=0.02, atol=0)
    assert found.kl == pytest.approx(kl.mean().item(), rel=0.05)
    assert found.acceptance == pytest.approx(z.mean().item(), rel=0.02)
    squares = (p + (p - q)).exp().sum(-1).mean()
    assert found.ess == pytest.approx(1 / squares.item(), rel=0.1)
    assert found.ess_sequence < found.ess
    assert found.largest_ratio == pytest.approx((p - q).exp()[at, ids].max().item())


def test_no_shift_and_padding():
    logp = torch.full((2, 3), -1.0)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    same = diagnose(logp, logp, mask)
    assert same[:5] == (0, 1, 1, 1, 1)
    assert same.acceptance_by_position.isnan().tolist() == [False, False, True]
    dirty = logp.clone()
    dirty[mask == 0] = 50.0
    assert diagnose(dirty, logp, mask)[:5] == same[:5]


def test_divergence_of_one_token_is_not_negative():
    """exp(x) - 1 - x at x = log p / q, whichever side is larger."""
    for x in (-0.7, 0.7):
        found = diagnose(torch.tensor([[x]]), torch.zeros(1, 1), torch.ones(1, 1))
        assert found.kl == pytest.approx(math.exp(x) - 1 - x, rel=1e-5)


def test_bad_input_is_named():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"are of shapes \(2, 3\), \(2, 2\), \(2, 3\)"):
        diagnose(x, x[:, :2], x)
    with pytest.raises(ValueError, match="mask has no 1"):
        diagnose(x, x, x)
