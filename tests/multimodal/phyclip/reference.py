"""Plain float64 formulas, one pair of points and one factor at a time; nothing of the library."""

import math

import numpy as np


def exp_map0(v, c):
    r = math.sqrt(c) * math.sqrt(sum(a * a for a in v))
    return [math.sinh(r) / r * a if r > 0 else a for a in v]


def time(x, c):
    return math.sqrt(1 / c + sum(a * a for a in x))


def inner(x, y, c):
    return sum(a * b for a, b in zip(x, y, strict=True)) - time(x, c) * time(y, c)


def dist(x, y, c):
    return math.acosh(max(1.0, -c * inner(x, y, c))) / math.sqrt(c)


def angle(x, y, c):
    """By the hyperbolic law of cosines in the triangle of origin, x and y: pi minus its angle at x."""
    o = [0.0] * len(x)
    a, b, opposite = (math.sqrt(c) * dist(p, q, c) for p, q in ((o, x), (x, y), (o, y)))
    cosine = (math.cosh(a) * math.cosh(b) - math.cosh(opposite)) / (math.sinh(a) * math.sinh(b))
    return math.pi - math.acos(min(1.0, max(-1.0, cosine)))


def aperture(x, c, r):
    return math.asin(min(1.0, 2 * r / (math.sqrt(c) * math.sqrt(sum(a * a for a in x)))))


def product(X, Y, c, metric):
    out = np.zeros((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            parts = [dist(x[f], y[f], c[f]) for f in range(len(c))]
            out[i, j] = {"l1": sum(parts), "l2": math.sqrt(sum(p * p for p in parts)), "linf": max(parts)}[metric]
    return out


def cross_entropy(logits):
    """The targets are on the diagonal."""
    rows = [math.log(sum(math.exp(b) for b in row)) - row[i] for i, row in enumerate(logits)]
    return sum(rows) / len(rows)


def loss(image, text, box_image, box_text, c, scale, weight, eta, eta2, r):
    """All inputs are points (batch, k, d), lifted already."""
    k, n = len(c), len(image)

    def contrast(X, Y):
        return cross_entropy((-scale * product(X, Y, c, "l1") / k).tolist())

    def cone(apex, point, factor):
        total = 0.0
        for a, p in zip(apex, point, strict=True):
            total += sum(max(0.0, angle(a[f], p[f], c[f]) - factor * aperture(a[f], c[f], r)) for f in range(k))
        return total / (n * k)

    contrastive = contrast(image, text) + contrast(text, image) + contrast(box_image, text) + contrast(box_text, image)
    cones = cone(text, image, eta) + cone(box_text, box_image, eta)
    cones += cone(box_image, image, eta2) + cone(box_text, text, eta2)
    return contrastive / 4 + weight * cones / 2
