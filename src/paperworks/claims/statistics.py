"""The statistics of a verdict: one rule for a contrast per unit, judged against a margin.

Every function takes the contrasts of one study, shape (units,), or of many at once, shape (studies, units), and works
along the last axis, so that thousands of simulated studies can be judged by the code that judges the real ones.
``docs/verdicts.md`` says the same in words, with the measured error rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05  # two-sided; 2.5 % on each side
MIN_UNITS = 6  # the least n whose exact sign-flip test can reach p <= ALPHA: 2 / 2**6 = 0.031
EXACT_UNITS = 16  # sign-flips are enumerated up to here
FLIPS = 9_999  # random flips beyond
MAX_UNITS = 500  # no study is proposed that needs more
POWER = 0.8
TIE = 1e-9  # relative; sums of the same numbers in another order are equal

# The true effect, in standard deviations, which the rule finds in 80 % and in 90 % of studies. For few units the
# sign-flip test is the stricter one and the formula for the t test too hopeful. Simulated, 40,000 studies each.
DETECTABLE = {6: (1.80, 2.12), 7: (1.36, 1.58), 8: (1.20, 1.39), 9: (1.10, 1.27), 10: (1.01, 1.17)}

SKEWNESS = (
    1.4  # contrasts beyond this look skewed; 2 % of normal samples do, 13 % of exponential ones at n = 6, 44 % at 24
)

# The t statistic that the mean of n exponential values exceeds in 2.5 % of studies on its liberal side, by n. From
# a million simulated studies each (200,000 from n = 100). For normal values it would be 2.57 at n = 6.
SKEW_T = {
    6: 5.59,
    7: 5.02,
    8: 4.62,
    9: 4.34,
    10: 4.13,
    12: 3.79,
    16: 3.40,
    24: 3.00,
    48: 2.59,
    100: 2.35,
    250: 2.18,
    1000: 2.06,
}


@dataclass(frozen=True)
class Decision:
    """What the rule says of the contrasts of one study.

    Attributes:
        verdict: "supported", "opposite", "below margin" or "undecided".
        mean: Mean contrast.
        low: Lower end of its 95 % interval; ``nan`` for a single unit.
        high: Upper end of its 95 % interval.
        p: Two-sided p against the margin, the larger of the t test's and the sign-flip test's.
    """

    verdict: str
    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Decisions:
    """``Decision`` for many studies: each attribute an array of shape (studies,)."""

    verdict: NDArray[np.str_]
    mean: Floats
    low: Floats
    high: Floats
    p: Floats


def decide(values: ArrayLike, margin: float = 0.0, *, equivalence: bool = False) -> Decision:
    """Judge the contrasts of one study, shape (units,), against a margin; see ``decide_many``."""
    many = decide_many(np.asarray(values, dtype=float)[None, :], margin, equivalence=equivalence)
    return Decision(str(many.verdict[0]), *(float(x[0]) for x in (many.mean, many.low, many.high, many.p)))


def decide_many(values: ArrayLike, margin: float = 0.0, *, equivalence: bool = False) -> Decisions:
    """Judge the contrasts of many studies.

    A contrast lies beyond a bound when both the t test and the sign-flip test say so, each two-sided at 5 %.

    Args:
        values: Contrasts, oriented so that larger supports the claim, shape (studies, units).
        margin: "supported" means above it, "opposite" below the smaller of it and zero, "below margin" below it only.
        equivalence: "supported" then means inside ±margin, "opposite" outside.
    """
    data = np.atleast_2d(np.asarray(values, dtype=float))
    mean, low, high = t_interval(data)
    verdict = np.full(len(data), "undecided", dtype="<U12")
    if equivalence:
        flips = np.maximum(sign_flip(data, margin), sign_flip(data, -margin))
        inside = np.minimum(1.0, np.maximum(2 * tost(data, margin), flips))
        outside = np.where(mean > 0, _p(data, margin), _p(data, -margin))
        within = np.abs(mean) < margin
        p = np.where(within, inside, outside)
        chosen = {"supported": within & (inside <= ALPHA), "opposite": ~within & (outside <= ALPHA)}
    else:
        zero = min(0.0, margin)
        p = _p(data, margin)
        p_zero = p if margin <= 0 else _p(data, zero)
        chosen = {
            "supported": (mean > margin) & (p <= ALPHA),
            "below margin": (mean < margin) & (p <= ALPHA),
            "opposite": (mean < zero) & (p_zero <= ALPHA),
        }
    if data.shape[1] >= MIN_UNITS:
        for name, where in chosen.items():
            verdict[where] = name
    return Decisions(verdict, mean, low, high, p)


def _p(values: Floats, null: float) -> Floats:
    return np.maximum(t_test(values, null), sign_flip(values, null))


def deviations(values: ArrayLike, null: float) -> Floats:
    """``values - null``, with exact zeros where the two are equal but for rounding."""
    data = np.asarray(values, dtype=float)
    scale = np.maximum(np.max(np.abs(data), axis=-1, keepdims=True, initial=0.0), abs(null))
    away = data - null
    return np.where(np.abs(away) <= TIE * scale, 0.0, away)


def t_interval(values: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Mean and the ends of its 95 % t interval; the ends are ``nan`` for a single unit."""
    data = np.asarray(values, dtype=float)
    n = data.shape[-1]
    mean = np.asarray(data.mean(axis=-1))
    if n < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = t_quantile(1 - ALPHA / 2, n - 1) * data.std(axis=-1, ddof=1) / math.sqrt(n)
    return mean, mean - half, mean + half


def t_statistic(values: ArrayLike, null: float = 0.0) -> Floats:
    """The mean's distance from ``null`` in standard errors; infinite without variance, 0 when all values equal it."""
    away = deviations(values, null)
    n = away.shape[-1]
    mean = np.asarray(away.mean(axis=-1))
    if n < 2:
        return np.zeros_like(mean)
    error = away.std(axis=-1, ddof=1) / math.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(mean == 0, 0.0, mean / error)


def t_test(values: ArrayLike, null: float = 0.0) -> Floats:
    """Two-sided p of the one-sample t test; 0 without variance away from ``null``, 1 when every value equals it."""
    return np.minimum(1.0, 2 * _t_below(-np.abs(t_statistic(values, null)), np.asarray(values).shape[-1]))


def tost(values: ArrayLike, margin: float) -> Floats:
    """Two one-sided t tests: p of "the mean lies inside ±margin" (judged at 2.5 %, like everything one-sided here)."""
    n = np.asarray(values).shape[-1]
    return np.maximum(_t_below(t_statistic(values, margin), n), _t_below(-t_statistic(values, -margin), n))


def sign_flip(values: ArrayLike, null: float = 0.0) -> Floats:
    """Two-sided p of the sign-flip test: how often random signs give a sum at least as far from zero as the observed.

    Units that equal ``null`` do not matter and are left out. The signs of up to 16 others are enumerated, so that p is
    exact; beyond, 9,999 random flips from a fixed stream, with the observed one counted, give the same p for the same
    data whatever its order.
    """
    away = deviations(values, null)
    flat = np.sort(np.abs(away).reshape(-1, away.shape[-1]), axis=-1)
    observed = np.abs(away.sum(axis=-1)).reshape(-1)
    if flat.shape[-1] <= EXACT_UNITS:
        rows = max(1, 2**22 >> flat.shape[-1])
        parts = [_exact(flat[i : i + rows], observed[i : i + rows]) for i in range(0, len(flat), rows)]
        p = np.concatenate(parts) if parts else np.empty(0)
    else:
        p = np.array([_few_or_random(row[row > 0], total) for row, total in zip(flat, observed, strict=True)])
    return p.reshape(away.shape[:-1])


def _exact(sizes: Floats, observed: Floats) -> Floats:
    """Sizes of shape (studies, units). The first sign is fixed: the mirror image of each flip is as far from zero."""
    sums = sizes[:, :1]
    for i in range(1, sizes.shape[1]):
        sums = np.concatenate([sums + sizes[:, i : i + 1], sums - sizes[:, i : i + 1]], axis=1)
    bar = observed - TIE * sizes.sum(axis=1)
    return np.asarray((np.abs(sums) >= bar[:, None]).mean(axis=1), dtype=float)


def _few_or_random(sizes: Floats, observed: float) -> float:
    if len(sizes) <= EXACT_UNITS:
        return float(_exact(sizes[None, :], np.array([observed]))[0]) if len(sizes) else 1.0
    rng = np.random.default_rng(20260101)
    bar = observed - TIE * sizes.sum()
    hits, rows = 1, max(1, 2**22 // len(sizes))
    for start in range(0, FLIPS, rows):
        k = min(rows, FLIPS - start)
        bits = np.unpackbits(np.frombuffer(rng.bytes(k * -(-len(sizes) // 8)), dtype=np.uint8).reshape(k, -1), axis=1)
        hits += int((np.abs((2.0 * bits[:, : len(sizes)] - 1.0) @ sizes) >= bar).sum())
    return hits / (FLIPS + 1)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1)
    return _in_order(np.minimum(1.0, np.maximum.accumulate(steps)), order)


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg adjusted p values, in the order given."""
    order = np.argsort(p, kind="stable")
    steps = np.asarray(p, dtype=float)[order] * len(p) / np.arange(1, len(p) + 1)
    return _in_order(np.minimum(1.0, np.minimum.accumulate(steps[::-1])[::-1]), order)


def _in_order(adjusted: Floats, order: NDArray[np.intp]) -> list[float]:
    out = np.empty(len(order))
    out[order] = adjusted
    return [float(x) for x in out]


def detectable(n: int, *, equivalence: bool = False) -> float:
    """The distance from the margin, in standard deviations, that ``n`` units find in 80 % of studies.

    For an equivalence at a true difference of zero: the half width that they confirm; both sides must be missed in at
    most 10 % of studies. Infinite below six units.
    """
    if n < MIN_UNITS:
        return math.inf
    if n in DETECTABLE:
        return DETECTABLE[n][equivalence]
    power = 1 - (1 - POWER) / (2 if equivalence else 1)
    return (t_quantile(1 - ALPHA / 2, n - 1) + t_quantile(power, n - 1)) / math.sqrt(n)


def units_to_decide(distance: float, sd: float, *, equivalence: bool = False) -> int | None:
    """How many fresh units find an effect this far from the margin in 80 % of studies; ``None`` above 500."""
    if distance <= 0:
        return None

    def enough(n: int) -> bool:
        return detectable(n, equivalence=equivalence) * sd <= distance

    if not enough(MAX_UNITS):
        return None
    return _first(enough, MIN_UNITS, MAX_UNITS)


def _first(true: Callable[[int], bool], low: int, high: int) -> int:
    """The least integer in [low, high] where a condition that stays true becomes true."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if true(middle) else (middle + 1, high)
    return low


def prediction_interval(values: ArrayLike, fresh: int) -> tuple[float, float] | None:
    """Where the mean of ``fresh`` new units lies with 95 %, given these; ``None`` for fewer than two."""
    data = np.asarray(values, dtype=float)
    n = len(data)
    if n < 2 or fresh < 1:
        return None
    half = t_quantile(1 - ALPHA / 2, n - 1) * data.std(ddof=1) * math.sqrt(1 / n + 1 / fresh)
    return float(data.mean() - half), float(data.mean() + half)


def skewness(values: ArrayLike) -> float:
    """Third standardised moment; 0 without variance. Its largest value for n units is (n - 2) / sqrt(n - 1)."""
    data = np.asarray(values, dtype=float)
    centred = deviations(data, float(data.mean()))
    spread = float((centred**2).mean())
    return float((centred**3).mean()) / spread**1.5 if spread > 0 else 0.0


def skewed(values: ArrayLike, nulls: Sequence[float], *, one_sample: bool) -> bool:
    """Whether a skewed law could have made the decision, or the contrasts are so skewed that it shows.

    Differences of exchangeable arms are symmetric; a number compared with a threshold need not be, and the few units of
    a study cannot show it: a long tail is most misleading when it was not drawn. So a comparison with a threshold is
    flagged unless its t statistic would be convincing for exponential values too.

    Args:
        values: Contrasts, shape (units,).
        nulls: The bounds that the contrasts were judged beyond; empty for an undecided verdict.
        one_sample: Whether the comparison is with a fixed number.
    """
    n = np.asarray(values).shape[-1]
    if n < MIN_UNITS:
        return False
    if abs(skewness(values)) > SKEWNESS:
        return True
    return one_sample and any(abs(float(t_statistic(values, null))) < _skew_t(n) for null in nulls)


def _skew_t(n: int) -> float:
    known = sorted(SKEW_T)
    return float(np.interp(-1 / math.sqrt(n), [-1 / math.sqrt(k) for k in known], [SKEW_T[k] for k in known]))


def t_quantile(share: float, df: int) -> float:
    """Quantile of the t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(df, share))


def _t_below(t: Floats, n: int) -> Floats:
    from scipy.special import stdtr

    if n < 2:
        return np.ones_like(t)
    return np.asarray(stdtr(n - 1, t), dtype=float)
