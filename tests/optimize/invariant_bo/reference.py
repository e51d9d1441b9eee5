"""The formulas, written out in plain numpy and slowly: every group element, every pair, float64."""

import itertools
import math

import numpy as np


def signs(d):
    return [np.diag(s) for s in itertools.product((1.0, -1.0), repeat=d)]


def permutations(d):
    return [np.eye(d)[list(p)] for p in itertools.permutations(range(d))]


def signed(d):
    return [s @ p for s in signs(d) for p in permutations(d)]


def blocks(b, size):
    return [np.kron(p, np.eye(size)) for p in permutations(b)]


def rotations(m):
    turns = [2 * math.pi * i / m for i in range(m)]
    return [np.array([[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]]) for t in turns]


def rbf(x, y, lengthscale):
    return math.exp(-float(np.sum((x - y) ** 2)) / (2 * lengthscale**2))


def matern52(x, y, lengthscale):
    r = math.sqrt(float(np.sum((x - y) ** 2))) / lengthscale
    return (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)


def max_gram(X, Y, group, kernel):
    return np.array([[max(kernel(g @ x, h @ y) for g in group for h in group) for y in Y] for x in X])


def average_gram(X, Y, group, kernel):
    return np.array([[sum(kernel(g @ x, h @ y) for g in group for h in group) / len(group) ** 2 for y in Y] for x in X])


def projected(K, tol):
    """K_+ and its pseudo-inverse."""
    values, Q = np.linalg.eigh(K)
    keep = values > tol * values.max()
    plus = sum((v * np.outer(q, q) for v, q, k in zip(values, Q.T, keep, strict=True) if k), np.zeros_like(K))
    inverse = sum((np.outer(q, q) / v for v, q, k in zip(values, Q.T, keep, strict=True) if k), np.zeros_like(K))
    return plus, inverse


def posterior(k_xx, k_xd, k_dd, y, noise):
    """Mean and variance of a zero-mean process at points x."""
    solve = np.linalg.solve(k_dd + noise * np.eye(len(y)), np.column_stack([y, k_xd.T]))
    return k_xd @ solve[:, 0], np.diag(k_xx - k_xd @ solve[:, 1:])
