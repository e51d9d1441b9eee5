"""Slow and plain: losses, weights and scores of the staged algorithms, one row at a time. Imports numpy only."""

import itertools
import math

from .reference import base, mean, sigmoid


def inverse_propensity_weights(g):
    inverse = [1 / sigmoid(x) for x in g]
    return [x / sum(inverse) for x in inverse]


def pue_propensity(g_p, g_u, share, penalty):
    n = len(g_p) + len(g_u)
    fit = share * mean(base(g, 1) for g in g_p) + (1 - share) * mean(base(g, -1) for g in g_u)
    expected = share * mean(sigmoid(g) for g in g_p) + (1 - share) * mean(sigmoid(g) for g in g_u)
    return fit + penalty * abs(n * expected - n * share)


def pue(p, u, prior, w):
    value = prior * sum(w_i * base(f, 1) for f, w_i in zip(p, w, strict=True)) + mean(base(f, -1) for f in u)
    return value - prior * sum(w_i * base(f, -1) for f, w_i in zip(p, w, strict=True))


def trend_score(predictions):
    changes = [b - a for a, b in itertools.pairwise(predictions)]
    return mean(math.log(1 + d + 0.5 * d**2) for d in changes)


def squares(values):
    return sum((v - mean(values)) ** 2 for v in values) if values else 0.0


def fisher_breaks(values):
    """Of every break the squared distances to the class means, by the largest value of the lower class."""
    ordered = sorted(values)
    return {
        ordered[k - 1]: squares(ordered[:k]) + squares(ordered[k:])
        for k in range(1, len(ordered))
        if ordered[k] > ordered[k - 1]
    }


def soft(f, target):
    return target * base(f, 1) + (1 - target) * base(f, -1)


def holistic_warmup(p, u, smoothing):
    smooth = (1 - smoothing) * 1.0 + smoothing * 0.5
    return mean(soft(f, smooth) for f in p) + mean(base(f, -1) for f in u)


def holistic_pu(p, u, pseudo, share, strong, confidence):
    value = mean(base(f, 1) for f in p)
    value += mean(soft(f, share * y + (1 - share) * 0) for f, y in zip(u, pseudo, strict=True))
    sure = [(f, s) for f, s in zip(u, strong, strict=True) if max(sigmoid(f), sigmoid(-f)) >= confidence]
    return value + sum(base(s, 1 if f >= 0 else -1) for f, s in sure) / len(u)


def distance(a, b, t):
    return (math.log(1 + math.exp(t * (a - b))) + math.log(1 + math.exp(-t * (a - b)))) / t


def margin_loss(f, sign, margin):
    return sigmoid(sign * f) * sigmoid(-(sign * f - margin))


def pulda(batches, prior, momentum=0.85, t=3.5, margin=0.6, margin_momentum=0.5):
    """The loss of the last of some batches (p, u)."""
    before = None
    for p, u in batches:
        now = [
            mean(sigmoid(f) for f in u),
            mean(margin_loss(f, -1, margin) for f in p),
            mean(margin_loss(f, -1, margin) for f in u),
        ]
        a, b = 1.0, 1.0
        if before is not None:
            a, b = 1 - momentum, 1 - margin_momentum
            now = [(1 - k) * old + k * new for k, old, new in zip((a, b, b), before, now, strict=True)]
        value = 2 * prior * (1 - mean(sigmoid(f) for f in p)) + distance(now[0], prior, t) / a
        value += prior * mean(margin_loss(f, 1, margin) for f in p) + distance(now[2], prior * now[1], 1.0) / b
        before = now
    return value


def pan_classifier(f, g, epsilon):
    return mean(
        (math.log(1 - sigmoid(a) + epsilon) - math.log(sigmoid(a) + epsilon)) * (2 * sigmoid(b) - 1)
        for a, b in zip(f, g, strict=True)
    )


def pan_discriminator(g_p, g_u, f, weight, epsilon, spare, average=None):
    average = mean(sigmoid(g) for g in g_u) if average is None else average
    value = mean(math.log(sigmoid(g)) for g in g_p)
    rest = [math.log(1 - sigmoid(g)) for g in g_u]
    value += mean(max(r - math.log(1 - average), 0) if spare else r for r in rest)
    return -(value + weight * pan_classifier(f, g_u, epsilon))


def entropy(f):
    return -sum(q * math.log(q) for q in (sigmoid(f), 1 - sigmoid(f)))


def p3mix(p, u, target_p, target_u, weight):
    value = mean(soft(f, t) for f, t in zip(p, target_p, strict=True))
    value += mean(soft(f, t) for f, t in zip(u, target_u, strict=True))
    return value + weight * mean(entropy(f) for f in [*p, *u])


def elr(f, target, least=1e-4):
    total = []
    for x, t in zip(f, target, strict=True):
        q = min(max(sigmoid(x), least), 1 - least)
        total.append(math.log(1 - (q * t + (1 - q) * (1 - t))))
    return mean(total)


def self_paced_weight(f, sign, threshold, temperature):
    return math.exp(-base(f / temperature, sign) / threshold**2)


def robust_pu(p, u, w_p, w_u):
    value = mean(w * base(f, 1) for f, w in zip(p, w_p, strict=True))
    return value + mean(w * base(f, -1) for f, w in zip(u, w_u, strict=True))
