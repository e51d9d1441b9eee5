"""The formulas, written out in plain Python floats."""

import math


def decay(curve, k, **o):
    x = [i / (k + 1) for i in range(1, k + 1)]
    if curve == "linear":
        return [1 - v for v in x]
    if curve == "1-sqrt":
        return [1 - math.sqrt(v) for v in x]
    if curve == "cosine":
        return [(1 + math.cos(math.pi * v)) / 2 for v in x]
    if curve == "exponential":
        return [o.get("r", 0.8) ** i for i in range(1, k + 1)]
    if curve == "inverse_sqrt":
        s = o.get("s", 1.0)
        raw = [math.sqrt(s / (s + i)) for i in range(k + 2)]
        return [(v - raw[-1]) / (raw[0] - raw[-1]) for v in raw[1:-1]]
    if curve == "ema":  # run the recursion on unit vectors, sum what is newer
        a = o.get("alpha", 0.2)
        c = [1.0] + [0.0] * k
        for j in range(1, k + 1):
            c = [(1 - a) * v for v in c]
            c[j] += a
        return [sum(c[i:]) for i in range(1, k + 1)]
    raise KeyError(curve)


def merged(checkpoints, c):
    return [sum(w * theta[n] for w, theta in zip(c, checkpoints, strict=True)) for n in range(len(checkpoints[0]))]


def decayed(checkpoints, w):
    """theta_0 minus the weighted updates."""
    total = list(checkpoints[0])
    for i, weight in enumerate(w, start=1):
        for n in range(len(total)):
            total[n] -= weight * (checkpoints[i - 1][n] - checkpoints[i][n])
    return total
