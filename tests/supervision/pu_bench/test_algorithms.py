"""What algorithms add to their losses in a step, on a stub of a run whose net returns a row's only feature."""

import math
import types

import pytest
import torch

from paperworks.supervision.pu_bench import ALGORITHMS, losses
from paperworks.supervision.pu_bench.algorithms import Batch

SHARE = 0.25


def stub(**changes):
    run = types.SimpleNamespace(
        prior=0.4,
        puts_back_weights=False,
        done=60,
        max_steps=100,
        epoch_steps=2,
        scores=lambda *parts, net="main": tuple(part[..., 0] for part in parts),
        risk=lambda function, p, u, **options: function(p, u, 0.4, **options),
        beta=lambda alpha: torch.full((1,), SHARE, dtype=torch.float64),
        permutation=lambda count: torch.arange(count).flip(0)[None],
        partners=lambda x_p, x_u: x_u,
    )
    return types.SimpleNamespace(**{**vars(run), **changes})


def batch(n=4):
    rows = torch.arange(n)[None]
    x = torch.randn(2, 1, n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Batch(x[0], x[1], rows, rows)


def test_vpu_adds_the_mixup_term():
    b = batch()
    f_p, f_u = b.x_p[..., 0], b.x_u[..., 0]
    mixed = SHARE * f_p + (1 - SHARE) * f_u
    expected = losses.vpu(f_p, f_u) + 0.03 * losses.vpu_mixup(mixed, f_u, SHARE)
    torch.testing.assert_close(ALGORITHMS["vpu"]().loss(stub(), b), expected)
    torch.testing.assert_close(ALGORITHMS["vpu"](mixup=0).loss(stub(), b), losses.vpu(f_p, f_u))


@pytest.mark.parametrize(("done", "over"), [(14, 0.0), (60, 46 / 86), (100, 1.0)])
def test_dist_pu_late_stage(done, over):
    b = batch()
    f_p, f_u = b.x_p[..., 0], b.x_u[..., 0]
    f = torch.cat([f_p, f_u], dim=1)
    label = torch.cat([torch.ones_like(f_p), torch.sigmoid(f_u)], dim=1)
    mixed, target = (SHARE * v + (1 - SHARE) * v.flip(1) for v in (f, label))
    expected = losses.dist_pu(f_p, f_u, 0.4)
    expected = expected + 0.004 * (1 - math.cos(math.pi / 2 * over)) * losses.binary_entropy(f).mean()
    expected = expected + 5 * losses.soft_ce(mixed, target).mean() + 0.04 * losses.binary_entropy(mixed).mean()
    torch.testing.assert_close(ALGORITHMS["dist_pu"]().loss(stub(done=done), b), expected)


def test_dist_pu_early_stage_lasts_seven_passes():
    b = batch()
    early = losses.dist_pu(b.x_p[..., 0], b.x_u[..., 0], 0.4)
    torch.testing.assert_close(ALGORITHMS["dist_pu"]().loss(stub(done=13), b), early)
    torch.testing.assert_close(ALGORITHMS["dist_pu"](late=False).loss(stub(done=99), b), early)
    assert not torch.equal(ALGORITHMS["dist_pu"]().loss(stub(done=14), b), early)


def test_pubn_weighs_rows_by_their_own_probabilities():
    b, algorithm = batch(3), ALGORITHMS["pubn"]()
    s = torch.tensor([[0.2, 0.9, 0.6, 0.3, 0.7]], dtype=torch.float64)
    algorithm.s_p, algorithm.s_u, algorithm.eta = s, s.flip(1), torch.tensor([0.5], dtype=torch.float64)
    rows_p, rows_u = torch.tensor([[4, 0, 2]]), torch.tensor([[1, 1, 3]])
    expected = losses.pubn(b.x_p[..., 0], b.x_u[..., 0], 0.4, s[:, rows_p[0]], s.flip(1)[:, rows_u[0]], 0.5)
    b = b._replace(rows_p=rows_p, rows_u=rows_u)
    torch.testing.assert_close(algorithm.loss(stub(), b), expected)
    s_p, s_u = s[:, rows_p[0]], s.flip(1)[:, rows_u[0]]
    calibrated = losses.calibrated(losses.pubn, 0.5)
    expected = calibrated(b.x_p[..., 0], b.x_u[..., 0], 0.4, s_p, torch.cat([s_p, s_u], dim=1), 0.5)
    run = stub(
        puts_back_weights=True,
        risk=lambda function, p, u, **options: losses.calibrated(function, 0.5)(p, u, 0.4, **options),
    )
    torch.testing.assert_close(algorithm.loss(run, b), expected)


def test_lbe_weighs_parts_as_in_the_data():
    b = batch()
    f, labelled = torch.cat([b.x_p, b.x_u], dim=1)[..., 0], torch.arange(8) < 4
    q = losses.lbe_posterior(f, f, labelled)
    weights = torch.where(labelled, 0.3 / 4, 0.7 / 4).double()
    found = ALGORITHMS["lbe"]().loss(stub(labelled_share=0.3), b)
    torch.testing.assert_close(found, losses.lbe(f, f, q, labelled, weights))


def test_partners_of_a_calibrated_run_come_from_p_in_the_right_share():
    import numpy as np

    from paperworks.supervision.pu_bench.training import Plan, Run, Split

    shares = {}
    for calibration in ("exact", "batch_concat"):
        plan = Plan("vpu", {}, 0.5, "one-sample", True, calibration, None, 4, 1, 0, 64, 0.9, 0.0, 1, "cpu")
        split = Split(
            np.ones((300, 1), np.float32), np.zeros((700, 1), np.float32), np.zeros((0, 1)), np.zeros(0), None
        )
        run = Run(plan, [split], [0.1], [0])
        x_p, x_u = torch.ones(1, 4000, 1), torch.zeros(1, 4000, 1)
        shares[calibration] = run.partners(x_p, x_u).mean().item()
        for alpha in (0.3, 6.0):
            draws = torch.cat([run.beta(alpha) for _ in range(2000)])
            assert draws.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.15)
    assert shares == pytest.approx({"exact": 0.3, "batch_concat": 0.5}, abs=0.03)
