"""OBRS and the loss, token by token in plain Python floats, from the formulas."""

import math


def accept(p, q, lam):
    if q == 0:
        return 1.0 if p > 0 else 0.0
    return min(1.0, p / (lam * q))


def normaliser(p, q, lam):
    return sum(min(b, a / lam) for a, b in zip(p, q, strict=True))


def density(p, q, lam):
    z = normaliser(p, q, lam)
    return [min(b, a / lam) / z for a, b in zip(p, q, strict=True)]


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def bisect(p, q, wanted):
    """The budget by bisection of log lam."""
    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        if normaliser(p, q, math.exp(middle)) > wanted:
            low = middle
        else:
            high = middle
    return math.exp(low)


def topk_normaliser(p, q, k, lam):
    def best(x):
        return set(sorted(range(len(x)), key=lambda i: -x[i])[:k])

    return sum(min(q[i], p[i] / lam) for i in best(p) | best(q))


def loss(new, ref, actor, advantage, mask, uniform, z_approx, *, lam, target, eps, c1, c2, correction, cap=2.0):
    """Loss and its gradient with respect to log p_new; lists of rows of probabilities."""
    rows, columns = range(len(new)), range(len(new[0]))
    on = [(i, j) for i in rows for j in columns if mask[i][j]]
    goal = new if target == "new" else ref
    keep, w = {}, {}
    if correction == "jackpot":
        keep = {(i, j): float(uniform[i][j] < accept(goal[i][j], actor[i][j], lam)) for i, j in on}
        kappa = sum(keep.values()) / sum(z_approx[i][j] for i, j in on)
        for i, j in on:
            z = min(1.0, kappa * z_approx[i][j])
            w[i, j] = min(c1, z * max(lam, goal[i][j] / actor[i][j]))
    for i, j in on:
        x = goal[i][j] / actor[i][j]
        if correction != "jackpot":
            keep[i, j] = 1.0
            w[i, j] = {"none": 1.0, "is": x, "tis": min(x, cap), "icepop": x if 0.5 <= x <= 5 else 0.0}[correction]
        if target == "new" and correction != "none":
            w[i, j] *= min(c2, ref[i][j] / new[i][j])
    total, gradient = 0.0, [[0.0 for _ in columns] for _ in rows]
    for i, j in on:
        ratio, a = new[i][j] / ref[i][j], advantage[i]
        surrogate, active = ratio * a, True
        if eps is not None:
            clipped = min(max(ratio, 1 - eps), 1 + eps) * a
            active = surrogate <= clipped
            surrogate = min(surrogate, clipped)
        total -= keep[i, j] * w[i, j] * surrogate / len(on)
        gradient[i][j] = -keep[i, j] * w[i, j] * a * ratio * active / len(on)
    return total, gradient
