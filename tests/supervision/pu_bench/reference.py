"""Slow and plain: losses and criteria from their formulas, one row at a time in Python floats. Imports numpy only."""

import itertools
import math

import numpy as np


def sigmoid(f):
    return 1 / (1 + math.exp(-f))


def base(f, sign, loss="ce"):
    return 1 - sigmoid(sign * f) if loss == "sigmoid" else -math.log(sigmoid(sign * f))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def upu(p, u, prior, loss="ce"):
    return (
        prior * mean(base(f, 1, loss) for f in p)
        + mean(base(f, -1, loss) for f in u)
        - prior * mean(base(f, -1, loss) for f in p)
    )


def nnpu(p, u, prior, loss="ce", beta=0.0):
    rest = mean(base(f, -1, loss) for f in u) - prior * mean(base(f, -1, loss) for f in p)
    return prior * mean(base(f, 1, loss) for f in p) + max(-beta, rest)


def nnpu_ga(p, u, prior, loss="ce", beta=0.0, gamma=1.0):
    rest = mean(base(f, -1, loss) for f in u) - prior * mean(base(f, -1, loss) for f in p)
    return -gamma * rest if rest < -beta else prior * mean(base(f, 1, loss) for f in p) + rest


def upu_calibrated(p, u, prior, c):
    """Eq. 8, term by term."""
    first = prior / len(p) * sum(base(f, 1) + (c - 1) * base(f, -1) for f in p)
    return first + (1 - c * prior) / len(u) * sum(base(f, -1) for f in u)


def pubn(p, u, prior, s_p, s_u, eta):
    value = prior * mean(base(f, 1) for f in p)
    value += mean((1 - s) * base(f, -1) if s <= eta else 0.0 for f, s in zip(u, s_u, strict=True))
    return value + prior * mean((1 - s) / s * base(f, -1) if s > eta else 0.0 for f, s in zip(p, s_p, strict=True))


def vpu(p, u):
    return math.log(mean(sigmoid(f) for f in u)) - mean(math.log(sigmoid(f)) for f in p)


def vpu_mixup(mixed, partner, share):
    return mean(
        (math.log(share + (1 - share) * sigmoid(g)) - math.log(sigmoid(f))) ** 2
        for f, g in zip(mixed, partner, strict=True)
    )


def cvir(p, u_all, prior):
    kept = sorted(u_all)[: len(u_all) - round(prior * len(u_all))]
    return prior * mean(base(f, 1) for f in p) + (1 - prior) * mean(base(f, -1) for f in kept)


def histogram_distance(scores, share):
    m = mean(sigmoid(f) for f in scores)
    return abs((1 - m) - (1 - share)) + abs(m - share)


def dist_pu(p, u, prior):
    return histogram_distance(p, 1.0) + histogram_distance(u, prior) / (2 * prior)


def count_joint(scores, count):
    """P(exactly `count` positives), and the same with each row positive, by going through all labellings."""
    total, each = 0.0, [0.0] * len(scores)
    for labels in itertools.product((0, 1), repeat=len(scores)):
        if sum(labels) == count:
            chance = math.prod(sigmoid(f) if y else 1 - sigmoid(f) for f, y in zip(scores, labels, strict=True))
            total += chance
            each = [e + chance * y for e, y in zip(each, labels, strict=True)]
    return total, each


def count_loss(p, u, prior):
    return mean(base(f, 1) for f in p) - math.log(count_joint(u, round(prior * len(u)))[0])


def glws(p, u, prior, targets):
    return mean(base(f, 1) for f in p) + mean(
        q * base(f, 1) + (1 - q) * base(f, -1) for f, q in zip(u, targets, strict=True)
    )


def lbe_posterior(f, g, labelled):
    h, eta = sigmoid(f), sigmoid(g)
    yes = h * (eta if labelled else 1 - eta)
    no = 0.0 if labelled else 1 - h
    return yes / (yes + no)


def lbe(f, g, q, labelled):
    return mean(
        q_i * base(f_i, 1) + (1 - q_i) * base(f_i, -1) + q_i * base(g_i, 1 if l_i else -1)
        for f_i, g_i, q_i, l_i in zip(f, g, q, labelled, strict=True)
    )


def proxy_accuracy(p, u, prior, setting):
    population = list(u) + (list(p) if setting == "one-sample" else [])
    return 2 * prior * mean(float(f >= 0) for f in p) + mean(float(f < 0) for f in population)


def proxy_auc(p, u):
    return mean(1.0 if a > b else 0.5 if a == b else 0.0 for a in p for b in u)


def gradient(function, x, step=1e-6):
    """Central differences of a function of a list of floats."""
    out = []
    for i in range(len(x)):
        up, down = list(x), list(x)
        up[i] += step
        down[i] -= step
        out.append((function(up) - function(down)) / (2 * step))
    return np.array(out)
