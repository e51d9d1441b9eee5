"""Rates with the intervals that small sets need, and paired comparisons that are exact."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from .judging import GRADES, Grade


@dataclasses.dataclass(frozen=True)
class Rate:
    """A share with its 95 % Wilson interval.

    Attributes:
        count: Successes.
        n: Trials.
        value: Their ratio; 0 when there are no trials.
        low: Lower end.
        high: Upper end.
    """

    count: float
    n: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}] ({self.count:g}/{self.n})"


def wilson(count: float, n: int, confidence: float = 0.95) -> Rate:
    """Wilson's interval: at 11 of 111 it is 5.6 to 16.9 %, where Wald's would be 9.9 +- 5.6.

    Args:
        count: Successes, from 0 to n; a sum of means over tries may be no whole number.
        n: Trials; without any the interval is 0 to 1.
        confidence: Coverage.

    Returns:
        The share and its interval.
    """
    if not 0 <= count <= n:
        raise ValueError(f"count={count}, n={n}; allowed is a count from 0 to n")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}; allowed is a share between 0 and 1")
    if n == 0:
        return Rate(0, 0, 0.0, 0.0, 1.0)
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    p = count / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if count == 0 else max(0.0, centre - half)
    high = 1.0 if count == n else min(1.0, centre + half)
    return Rate(count, n, p, low, high)


def summary(grades: Sequence[Grade]) -> dict[str, float]:
    """Rates of a set of grades.

    Args:
        grades: "A", "B" or "C" for each question.

    Returns:
        accuracy (correct of all) with accuracy_low and accuracy_high, attempted (not C, of all), given_attempted
        (correct of attempted) and f_score, the harmonic mean of accuracy and given_attempted, as in SimpleQA.
    """
    if wrong := set(grades) - set(GRADES):
        raise ValueError(f"grades has {sorted(wrong)}; allowed are 'A', 'B' and 'C'")
    return rates([float(g == "A") for g in grades], [float(g != "C") for g in grades])


def rates(correct: Sequence[float], attempted: Sequence[float]) -> dict[str, float]:
    """The same from numbers, which may be means over several tries of a question.

    Args:
        correct: For each question the share of tries that were right.
        attempted: For each question the share of tries that were attempted.
    """
    n, right, tried = len(correct), sum(correct), sum(attempted)
    rate = wilson(right, n)
    given = right / tried if tried else 0.0
    both = rate.value + given
    return {
        "accuracy": rate.value,
        "accuracy_low": rate.low,
        "accuracy_high": rate.high,
        "attempted": tried / n if n else 0.0,
        "given_attempted": given,
        "f_score": 2 * rate.value * given / both if both else 0.0,
    }


@dataclasses.dataclass(frozen=True)
class Paired:
    """Two settings on the same questions.

    Attributes:
        difference: Accuracy of the second minus that of the first.
        gained: Questions that only the second has right.
        lost: Questions that only the first has right.
        p: Exact two-sided McNemar p.
    """

    difference: float
    gained: int
    lost: int
    p: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> Paired:
    """Compares two settings question by question; for the noise effect, closed book and with search.

    Args:
        first: Whether each question was answered right in the first setting.
        second: The same for the second.
    """
    if len(first) != len(second) or not len(first):
        raise ValueError(f"first has {len(first)} and second {len(second)} questions; allowed are equal counts above 0")
    gained = sum(bool(b and not a) for a, b in zip(first, second, strict=True))
    lost = sum(bool(a and not b) for a, b in zip(first, second, strict=True))
    p = float(stats.binomtest(gained, gained + lost, 0.5).pvalue) if gained + lost else 1.0
    return Paired((gained - lost) / len(first), gained, lost, p)


def position_effect(positions: Sequence[float], correct: Sequence[bool], bins: int = 10) -> list[tuple[float, Rate]]:
    """Accuracy by where the gold page stood.

    Args:
        positions: From 0 (first) to 1 (last).
        correct: Whether each question was answered right.
        bins: How many equal parts; 10 gives deciles.

    Returns:
        (middle of the part, rate) for each part that holds a question.
    """
    where, right = np.asarray(positions, dtype=float), np.asarray(correct, dtype=bool)
    if where.ndim != 1 or where.shape != right.shape:
        raise ValueError(f"positions has shape {where.shape} and correct {right.shape}; allowed are equal lengths")
    if not ((where >= 0) & (where <= 1)).all() or bins < 1:
        raise ValueError(f"bins={bins}, positions={list(positions)}; allowed are bins from 1 on, positions from 0 to 1")
    place = np.minimum((where * bins).astype(int), bins - 1)
    return [
        ((b + 0.5) / bins, wilson(int(right[place == b].sum()), int((place == b).sum())))
        for b in range(bins)
        if (place == b).any()
    ]


def confusion(labels: Sequence[Grade], judged: Sequence[Grade]) -> npt.NDArray[np.int64]:
    """The 3 x 3 table of labels (rows A, B, C) and judgements (columns).

    Args:
        labels: By hand.
        judged: By a judge.
    """
    table = np.zeros((3, 3), dtype=np.int64)
    for label, said in zip(labels, judged, strict=True):
        table[GRADES.index(label), GRADES.index(said)] += 1
    return table


def slope_on_log(ks: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of values on ln k.

    Args:
        ks: Numbers of documents, two different ones at least.
        values: Accuracy at each.
    """
    if len(ks) != len(values) or len(set(ks)) < 2 or not min(ks) > 0:
        raise ValueError(f"ks={list(ks)}, {len(values)} values; allowed are two different counts above 0 or more")
    x = np.log(np.asarray(ks, dtype=float))
    y = np.asarray(values, dtype=float)
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())
