"""Slow and plain, from the definitions, in float64 and with sets; imports nothing of the package under test."""

import itertools
import math

import numpy as np


def intent(table, objects):
    return frozenset(m for m in range(len(table[0])) if all(table[g][m] for g in objects))


def extent(table, attributes):
    return frozenset(g for g in range(len(table)) if all(table[g][m] for m in attributes))


def concepts(table):
    """All (extent, intent): every set of attributes is tried."""
    count = len(table[0])
    found = set()
    for k in range(count + 1):
        for attributes in itertools.combinations(range(count), k):
            objects = extent(table, attributes)
            found.add((objects, intent(table, objects)))
    return found


def covers(found):
    """Pairs (lower, upper) of concepts with none between."""
    return {(a, b) for a in found for b in found if a[0] < b[0] and not any(a[0] < c[0] and c[0] < b[0] for c in found)}


def pseudo_closed(table):
    """All pseudo-closed sets with their closures, smallest first."""
    count = len(table[0])
    found = []
    for k in range(count + 1):
        for attributes in map(frozenset, itertools.combinations(range(count), k)):
            closed = intent(table, extent(table, attributes))
            if closed != attributes and all(c <= attributes for p, c in found if p < attributes):
                found.append((attributes, closed))
    return found


def ledoit_wolf(rows):
    """Covariance of rows (n, d), shrunk: the weights are those of Ledoit and Wolf (2004), written out."""
    n, d = rows.shape
    centered = rows - rows.mean(axis=0)
    S = sum(np.outer(x, x) for x in centered) / n
    mean = np.trace(S) / d
    spread = ((S - mean * np.eye(d)) ** 2).sum() / d
    noise = sum(((np.outer(x, x) - S) ** 2).sum() / d for x in centered) / n**2
    s = min(noise, spread) / spread if spread > 0 else 0.0
    return (1 - s) * S + s * mean * np.eye(d)


def direction(X, has, reg):
    """(S_+ + S_- + reg I)^-1 (mu_+ - mu_-), and the midpoint of the mean projections."""
    positive, negative = X[has], X[~has]
    system = ledoit_wolf(positive) + ledoit_wolf(negative) + reg * np.eye(X.shape[1])
    line = np.linalg.solve(system, positive.mean(axis=0) - negative.mean(axis=0))
    return line, ((positive @ line).mean() + (negative @ line).mean()) / 2


def inclusion(a, b):
    top = bottom = 0.0
    for x, y in zip(a, b, strict=True):
        weight = math.log1p(math.exp(y))
        top += weight / (1 + math.exp(-x))
        bottom += weight
    return top / bottom
