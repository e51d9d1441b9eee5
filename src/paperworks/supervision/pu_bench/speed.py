"""Ours beside a peer on the same inputs: times are compared after the results."""

import numpy as np
import torch
import torch.nn.functional as F

from paperworks.claims.speed import Pair

from . import losses, metrics


def _scores(lanes: int, n: int) -> torch.Tensor:
    return torch.randn(lanes, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def count_loss(size: str = "full") -> Pair:
    """Value and gradient of CountLoss for one unlabeled batch of 64: ours, and one tensor operation an entry."""
    n = 64 if size == "full" else 6
    f_p, f_u = _scores(1, n)[0], _scores(2, n)[1]
    count = n // 2

    def ours():
        leaf = f_u.clone().requires_grad_()
        loss = losses.count_loss(f_p, leaf, 0.5)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    def peer():
        leaf = f_u.clone().requires_grad_()
        yes, no = F.logsigmoid(leaf), F.logsigmoid(-leaf)
        none = torch.tensor(-torch.inf, dtype=torch.float64)
        row = [torch.zeros((), dtype=torch.float64)]  # row[j] = log P(j positives so far)
        for i in range(n):
            stay = [entry + no[i] for entry in row] + [none]
            move = [none] + [entry + yes[i] for entry in row]
            inner = [torch.logaddexp(a, b) for a, b in zip(stay[1:-1], move[1:-1], strict=True)]
            row = [stay[0], *inner, move[-1]][: count + 1]
        loss = F.softplus(-f_p).mean() - row[count]
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    return Pair(ours=ours, peer=peer, rtol=1e-8, atol=1e-9)


def proxy_auc(size: str = "full") -> Pair:
    """Proxy AUC of 2,000 labelled and 5,000 unlabeled rows with ties: by sorting, and pair by pair."""
    n_p, n_u = (2000, 5000) if size == "full" else (7, 11)
    rng = np.random.default_rng(0)
    p, u = rng.normal(1, 1, n_p).round(2), rng.normal(0, 1, n_u).round(2)
    y, score = np.repeat([1, 0], [n_p, n_u]), np.concatenate([p, u])

    def peer():
        more, same = p[:, None] > u[None, :], p[:, None] == u[None, :]
        return more.mean() + same.mean() / 2

    return Pair(ours=lambda: metrics.proxy_auc(y, score), peer=peer, rtol=1e-12, atol=0)


def nnpu_linear(size: str = "full") -> Pair:
    """Non-negative PU with gradient ascent and the sigmoid loss, a linear model on all rows: weights after 100 steps.

    The peer has no minibatches and no other model, so ours runs its schedule: same start, step and order of operations.
    """
    from pulearn import NNPUClassifier

    n, features, steps = (13_000, 16, 100) if size == "full" else (60, 3, 20)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, features)) + (np.arange(n) < n // 2)[:, None]
    y = (np.arange(n) < n // 4).astype(int)
    x_p, x_u = torch.from_numpy(x[y == 1]), torch.from_numpy(x[y == 0])

    def ours():
        start = np.random.RandomState(0).randn(features) * 0.01  # the peer's own start
        weight = torch.from_numpy(start).requires_grad_()
        bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        for _ in range(steps):
            loss = losses.nnpu_ga(x_p @ weight + bias, x_u @ weight + bias, 0.4, loss="sigmoid")
            for leaf, gradient in zip((weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True):
                leaf.data -= 0.5 * gradient
        return weight.detach(), bias.detach()

    def peer():
        model = NNPUClassifier(prior=0.4, max_iter=steps, learning_rate=0.5, random_state=0).fit(x, y)
        return model.coef_, model.intercept_

    return Pair(ours=ours, peer=peer, rtol=1e-6, atol=1e-8)
