"""Slow and plain: BM25 (Lucene's formula, and BM25+), Wilson's interval, McNemar's test, a slope, log-probabilities."""

import math
from fractions import Fraction


def bm25(query, texts, k1=1.5, b=0.75):
    """Lucene's BM25: idf = ln(1 + (N - df + 0.5) / (df + 0.5)), tf saturated with length, no factor k1 + 1."""
    n = len(texts)
    mean = sum(len(t) for t in texts) / n
    scores = []
    for text in texts:
        total = 0.0
        for word in query:
            df = sum(word in t for t in texts)
            if df == 0:
                continue
            idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
            tf = text.count(word)
            total += idf * tf / (tf + k1 * (1 - b + b * len(text) / mean))
        scores.append(total)
    return scores


def wilson(count, n, z=1.959963984540054):
    """The two roots of (p - count / n)^2 = z^2 p (1 - p) / n, found by bisection."""

    def inside(p):
        return (p - count / n) ** 2 - z * z * p * (1 - p) / n

    def root(low, high):
        sign = inside(low) > 0
        for _ in range(200):
            middle = (low + high) / 2
            if (inside(middle) > 0) == sign:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    share = count / n
    return (0.0 if count == 0 else root(0.0, share), 1.0 if count == n else root(1.0, share))


def mcnemar(gained, lost):
    """Two-sided exact p: the probability of all splits that are no likelier than the one seen."""
    n = gained + lost
    weights = [Fraction(math.comb(n, i), 2**n) for i in range(n + 1)]
    return float(sum(w for w in weights if w <= weights[gained]))


def slope(xs, ys):
    """Least squares by the normal equations."""
    n = len(xs)
    sx, sy = sum(xs), sum(ys)
    sxx, sxy = sum(x * x for x in xs), sum(x * y for x, y in zip(xs, ys, strict=True))
    return (n * sxy - sx * sy) / (n * sxx - sx * sx)
