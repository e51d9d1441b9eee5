"""Merge weights and decay curves are two views of one thing (Theorem 3.1).

Checkpoints theta_0 .. theta_k, g_i the total update from theta_{i-1} to theta_i with its sign and learning rate:

    sum_j c_j theta_j  =  theta_0 - sum_i w_i g_i,   w_i = sum_{j >= i} c_j   (1 <= i <= k),

whatever the optimiser. So an average of checkpoints is a decay of the updates after the fact, and each decay that never
rises has its average.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
CurveName = Literal["linear", "1-sqrt", "cosine", "inverse_sqrt", "exponential", "ema", "constant"]
Curve = CurveName | Callable[[float], float]


def _inverse_sqrt(u: Vector, end: float, s: float = 1.0) -> Vector:
    _positive("s", s)
    last = math.sqrt(s / (s + end))
    return (np.sqrt(s / (s + u)) - last) / (1 - last)


def _exponential(u: Vector, end: float, r: float = 0.8) -> Vector:
    _share("r", r)
    return r**u


def _ema(u: Vector, end: float, alpha: float = 0.2) -> Vector:
    # The average starts at the oldest checkpoint and moves the share alpha towards each later one.
    _share("alpha", alpha)
    return 1 - (1 - alpha) ** (end - u)


# u = i, the block's place counted in mean spacings (1 .. k for equal ones), end = k + 1, where a decay reaches 0.
CURVES: Mapping[str, Callable[..., Vector]] = {
    "linear": lambda u, end: 1 - u / end,
    "1-sqrt": lambda u, end: 1 - np.sqrt(u / end),
    "cosine": lambda u, end: (1 + np.cos(np.pi * u / end)) / 2,
    "inverse_sqrt": _inverse_sqrt,
    "exponential": _exponential,
    "ema": _ema,
    "constant": lambda u, end: np.ones_like(u),
}


def _number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _positive(name: str, value: float) -> None:
    if not _number(value) or not value > 0:
        raise ValueError(f"{name} = {value!r}: a number above 0 is needed")


def _share(name: str, value: float) -> None:
    if not _number(value) or not 0 < value < 1:
        raise ValueError(f"{name} = {value!r}: a number between 0 and 1 is needed")


def decay_curve(
    curve: Curve, k: int | None = None, *, steps: Sequence[float] | None = None, **options: float
) -> Vector:
    """The coefficients w_1 .. w_k of a decay over k updates between k + 1 checkpoints.

    For equal spacing w_i is the curve at x_i = i / (k + 1), so that "linear" is the plain mean of the checkpoints. For
    other spacing i is replaced by (t_i - t_0) over the mean spacing.

    Args:
        curve: "linear" 1 - x; "1-sqrt" 1 - sqrt(x); "cosine" (1 + cos(pi x)) / 2; "inverse_sqrt" sqrt(s / (s + i)),
            moved and scaled to end at 0; "exponential" r^i; "ema": an exponential average that starts at the oldest
            checkpoint; "constant" 1, which is the newest checkpoint alone; or a function of x in (0, 1).
        k: Number of updates, one less than the number of checkpoints.
        steps: Steps at which the k + 1 checkpoints were taken, rising, when they are not equally spaced.
        **options: `s` (inverse_sqrt, default 1), `r` (exponential, 0.8), `alpha` (ema, 0.2).

    Returns:
        w, shape (k,).

    Raises:
        ValueError: For an unknown curve or option, a negative k, or steps that do not rise or are not k + 1.
    """
    if steps is not None:
        t = np.asarray(steps, dtype=np.float64)
        if t.ndim != 1 or len(t) == 0 or not np.isfinite(t).all() or not (np.diff(t) > 0).all():
            raise ValueError(f"steps = {list(steps)}: rising numbers, one a checkpoint, are needed")
        if k is not None and k != len(t) - 1:
            raise ValueError(f"k = {k}, steps has {len(t)} values: k + 1 are needed")
        k = len(t) - 1
        u = (t[1:] - t[0]) * (k / (t[-1] - t[0])) if k else np.empty(0)
    elif k is None or isinstance(k, bool) or int(k) != k or k < 0:
        raise ValueError(f"k = {k!r}: a whole number of at least 0, one less than the checkpoints, is needed")
    else:
        u = np.arange(1, k + 1, dtype=np.float64)
    if callable(curve):
        if options:
            raise ValueError(f"options {sorted(options)}: a function of x takes none")
        return np.array([float(curve(float(x))) for x in u / (k + 1)])
    if curve not in CURVES:
        raise ValueError(f"curve = {curve!r}: one of {', '.join(CURVES)} or a function of x is needed")
    if curve == "ema" and steps is not None and k:
        u = np.concatenate([[0.0], u[:-1]]) + 1  # the share that an average keeps counts from the block's start
    try:
        return CURVES[curve](u, float(k + 1), **options)
    except TypeError:
        known = {"inverse_sqrt": "s", "exponential": "r", "ema": "alpha"}.get(curve, "none")
        raise ValueError(f"options {sorted(options)}: {curve!r} takes {known}") from None


def merge_weights(
    curve: Curve = "linear", k: int | None = None, *, steps: Sequence[float] | None = None, **options: Any
) -> Vector:
    """The weights c_0 .. c_k, oldest first, whose average of k + 1 checkpoints equals the decay.

    Args:
        curve: As in `decay_curve`.
        k: One less than the number of checkpoints.
        steps: Their steps, when they are not equally spaced.
        **options: As in `decay_curve`; `allow_negative` as in `merge_from_decay`.

    Returns:
        c, shape (k + 1,), summing to 1.
    """
    negative = bool(options.pop("allow_negative", False))
    return merge_from_decay(decay_curve(curve, k, steps=steps, **options), allow_negative=negative)


def merge_from_decay(w: npt.ArrayLike, *, allow_negative: bool = False) -> Vector:
    """The merge weights of a decay: c_0 = 1 - w_1, c_j = w_j - w_{j+1}, c_k = w_k (Theorem 3.1).

    Args:
        w: Coefficients (k,) of the updates, oldest first, 1 >= w_1 >= ... >= w_k >= 0.
        allow_negative: Take a w that rises, too; some weights are then negative.

    Returns:
        c, shape (k + 1,).

    Raises:
        ValueError: For a w that rises or leaves [0, 1], unless allowed.
    """
    w = np.atleast_1d(np.asarray(w, dtype=np.float64))
    if w.ndim != 1 or not np.isfinite(w).all():
        raise ValueError(f"w of shape {w.shape}: finite numbers (k,) are needed")
    c = -np.diff(np.concatenate([[1.0], w, [0.0]]))
    if not allow_negative and (c < -1e-12).any():
        j = int((c < -1e-12).argmax())
        raise ValueError(
            f"c_{j} = {c[j]:.4g}: w must fall from at most 1 to at least 0 (allow_negative=True takes it as it is)"
        )
    return c + 0.0  # no -0


def decay_from_merge(c: npt.ArrayLike) -> Vector:
    """The decay of an average: w_i = sum of c_j over j >= i.

    Args:
        c: Weights (k + 1,), oldest checkpoint first, summing to 1.

    Returns:
        w, shape (k,).

    Raises:
        ValueError: When c does not sum to 1.
    """
    c = np.atleast_1d(np.asarray(c, dtype=np.float64))
    if c.ndim != 1 or not abs(c.sum() - 1) < 1e-6:
        raise ValueError(f"c of shape {c.shape} sums to {c.sum():.6g}: weights (k + 1,) that sum to 1 are needed")
    return np.cumsum(c[::-1])[::-1][1:]
