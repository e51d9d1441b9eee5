"""Slow and plain, in float64 loops, from the formulas. Imports numpy only."""

import itertools
import math

import numpy as np


def tensor_loss(x, y):
    """|Y - x^(x k)|^2, one entry at a time."""
    total = 0.0
    for at in itertools.product(range(len(x)), repeat=y.ndim):
        total += (y[at] - math.prod(x[i] for i in at)) ** 2
    return total


def tensor_gradient(x, y):
    """Its gradient: -2 times the residual, contracted with x in all places but one."""
    g = np.zeros(len(x))
    for at in itertools.product(range(len(x)), repeat=y.ndim):
        residual = y[at] - math.prod(x[i] for i in at)
        for place, i in enumerate(at):
            g[i] -= 2 * residual * math.prod(x[j] for other, j in enumerate(at) if other != place)
    return g


def run(gradient, x, delta, beta, steps, unit):
    """x <- x + p, p <- beta p - delta eta g, with eta = sqrt(n)/|g| when unit; the last (m, r^2), v the first axis."""
    x, p = np.array(x, dtype=float), np.zeros(len(x))
    for _ in range(steps):
        g = gradient(x)
        size = math.sqrt(sum(v * v for v in g))
        factor = (math.sqrt(len(x)) / size if size > 0 else 0.0) if unit else 1.0
        for i in range(len(x)):
            p[i] = beta * p[i] - delta * factor * g[i]
            x[i] = x[i] + p[i]
    return x[0], sum(v * v for v in x[1:])


def pca_rate(m, r2, k, lam, c, beta, unit):
    """Right side of the limit for spiked tensor PCA."""
    size = m * m + r2
    if unit:
        root = math.sqrt(size) ** (k - 1)
        dm = math.sqrt(k) * m * (lam * m ** (k - 2) - size ** (k - 1)) / root / (1 - beta)
        return dm, -2 * math.sqrt(k) * root * r2 / (1 - beta) + c / (1 - beta) ** 2
    dm = 2 * k * m / (1 - beta) * (lam * m ** (k - 2) - size ** (k - 1))
    pull = 4 * k * size ** (k - 1)
    return dm, -pull * r2 / (1 - beta) + c * pull / (1 - beta) ** 2


def index_rate(f, fprime, noise, m, r2, c, beta, unit, cells=900, width=6.5):
    """The same for single index models, by the midpoint rule on a fine square grid of (A, B)."""
    from math import erf

    r = math.sqrt(r2)
    edge = np.linspace(-width, width, cells + 1)
    mid = 0.5 * (edge[1:] + edge[:-1])
    w = np.exp(-0.5 * mid**2)
    w = w / w.sum()
    a, b, weight = mid[:, None], mid[None, :], w[:, None] * w[None, :]
    z = m * a + r * b
    gap, slope = f(z) - f(a), fprime(z)
    if unit:
        if noise > 0:  # E sign(gap - eps) = 2 Phi(gap / noise) - 1
            table = np.linspace(-8, 8, 4001)
            values = np.array([erf(t / math.sqrt(2)) for t in table])
            mean = np.interp(gap / noise, table, values)
        else:
            mean = np.sign(gap)
        step, square = np.sign(slope) * mean, (slope != 0).astype(float)
    else:
        step, square = 2 * gap * slope, 4 * (gap**2 + noise**2) * slope**2
    dm = -(weight * step * a).sum() / (1 - beta)
    dr2 = -2 * r * (weight * step * b).sum() / (1 - beta) + c * (weight * square).sum() / (1 - beta) ** 2
    return dm, dr2


def unit_grad_sgd(params, grads, lr, momentum=0.0, length="sqrt_n", per_tensor=False):
    """Parameters (lists of numbers) after one step for each entry of `grads`, a list of lists of numbers."""
    params = [list(p) for p in params]
    buffers = [[0.0] * len(p) for p in params]
    for step in grads:
        norms = [math.sqrt(sum(v * v for v in g)) for g in step]
        counts = [len(g) for g in step]
        if not per_tensor:
            norms = [math.sqrt(sum(v * v for v in norms))] * len(step)
            counts = [sum(counts)] * len(step)
        for p, buffer, g, norm, count in zip(params, buffers, step, norms, counts, strict=True):
            target = math.sqrt(count) if length == "sqrt_n" else 1.0
            for i in range(len(p)):
                buffer[i] = momentum * buffer[i] + (target / norm * g[i] if norm > 0 else 0.0)
                p[i] -= lr * buffer[i]
    return params
