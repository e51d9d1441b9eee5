"""Against pulearn, somebody else's implementation. It is a peer, compared with where it is installed."""

import numpy as np
import pytest
import torch

from paperworks.claims.speed import difference
from paperworks.supervision.pu_bench import PULearner, losses, speed

pulearn = pytest.importorskip("pulearn", reason="pulearn is in the dependency group of peers, not in the extra")


@pytest.mark.parametrize(("prior", "clamped"), [(0.1, False), (0.7, True)])
def test_nnpu_descends_as_pulearn_does(prior, clamped):
    """Weights after 30 steps agree, with the correction in use and not."""
    rng = np.random.default_rng(0)
    y = (np.arange(80) < 30).astype(int)
    x = rng.normal(size=(80, 3)) + 2 * y[:, None]
    peer = pulearn.NNPUClassifier(prior=prior, max_iter=30, learning_rate=0.5, random_state=1).fit(x, y)
    weight = torch.from_numpy(np.random.RandomState(1).randn(3) * 0.01).requires_grad_()
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    corrected = False
    for _ in range(30):
        f = torch.from_numpy(x) @ weight + bias
        f_p, f_u = f[y == 1], f[y == 0]
        corrected |= bool(losses.nnpu(f_p, f_u, prior, "sigmoid") > losses.upu(f_p, f_u, prior, "sigmoid"))
        loss = losses.nnpu_ga(f_p, f_u, prior, "sigmoid")
        for leaf, gradient in zip((weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True):
            leaf.data -= 0.5 * gradient
    assert corrected == clamped
    np.testing.assert_allclose(weight.detach().numpy(), peer.coef_, rtol=1e-8)
    np.testing.assert_allclose(bias.detach().numpy(), peer.intercept_, rtol=1e-8)


@pytest.mark.parametrize("convention", [(1, 0), (1, -1), (True, False)])
def test_labels_that_pulearn_takes_are_taken(convention):
    rng = np.random.default_rng(0)
    labelled = np.arange(60) < 20
    x = rng.normal(size=(60, 2)) + 8 * labelled[:, None]
    y = np.where(labelled, *convention)
    normal = pulearn.normalize_pu_labels(y)
    learner = PULearner(prior=0.35, setting="one-sample", max_steps=40, learning_rate=0.1, random_state=0).fit(x, y)
    np.testing.assert_array_equal(learner.predict(x) == convention[0], normal == 1)


@pytest.mark.parametrize("name", ["count_loss", "proxy_auc", "nnpu_linear"])
def test_speed_pairs_do_the_same_work(name):
    assert difference(getattr(speed, name)("small")) == ""
