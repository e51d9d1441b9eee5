"""Model selection with positive and unlabeled data only: proxy accuracy, proxy AUC, and the oracle to compare with.

All three are plain functions of labels and scores, and work with scikit-learn:
``make_scorer(proxy_auc, response_method="decision_function")`` goes into `GridSearchCV` with the labels that
`PULearner.fit` takes. Labels are 1 for a labelled positive and 0, -1 or False for an unlabeled row.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

Setting = Literal["two-sample", "one-sample"]
SETTINGS = ("two-sample", "one-sample")


def check_setting(setting: str) -> None:
    """Raise unless `setting` is a known one."""
    if setting not in SETTINGS:
        raise ValueError(f"setting must be 'two-sample' or 'one-sample', got {setting!r}")


def check_prior(prior: float) -> None:
    """Raise unless `prior` is a number in (0, 1)."""
    if isinstance(prior, str | bool) or not np.isreal(prior) or not 0 < prior < 1:
        raise ValueError(f"prior must lie strictly between 0 and 1, got {prior!r}")


def labelled_mask(y_pu: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Where `y_pu` marks a labelled positive.

    Args:
        y_pu: Shape (n_samples,). 1 or True for labelled positives; 0, -1 or False for unlabeled rows.

    Returns:
        Shape (n_samples,).

    Raises:
        ValueError: For other labels, or when one of the two kinds is missing.
    """
    y = np.asarray(y_pu)
    if y.ndim != 1:
        raise ValueError(f"y must have shape (n_samples,), got {y.shape}")
    known = np.isin(y, (1, 0, -1))
    if not known.all():
        raise ValueError(f"y must hold 1 (labelled) and 0 or -1 (unlabeled), got {y[~known][0].item()!r}")
    labelled = y == 1
    if not labelled.any():
        raise ValueError("y has one class only: no labelled positives (1) among its rows")
    if labelled.all():
        raise ValueError("y has one class only: no unlabeled rows (0 or -1), only labelled positives")
    return labelled


def _scores(y: npt.NDArray[np.bool_], score: npt.ArrayLike) -> npt.NDArray[np.float64]:
    values = np.asarray(score, dtype=float)
    if values.shape != y.shape:
        raise ValueError(f"score must have the shape of y, {y.shape}, got {values.shape}")
    if np.isnan(values).any():
        raise ValueError("score contains NaN")
    return values


def proxy_accuracy(
    y_pu: npt.ArrayLike, score: npt.ArrayLike, prior: float = 0.5, setting: Setting = "two-sample"
) -> float:
    """Estimate accuracy up to a constant: E[PA] = accuracy + prior.

    2 pi times the share of labelled rows with f >= 0, plus the share of rows with f < 0 among the unlabeled rows
    ("two-sample"), or among all rows ("one-sample", where only both together are a sample of the population). It is
    not clipped: its largest value is 1 + prior.

    Args:
        y_pu: Shape (n_samples,). 1 for labelled rows, 0 or -1 for unlabeled ones.
        score: Shape (n_samples,). f, positive for the positive class.
        prior: Share of positives in the population.
        setting: How the labels came about.

    Returns:
        The number.
    """
    check_prior(prior)
    check_setting(setting)
    labelled = labelled_mask(y_pu)
    f = _scores(labelled, score)
    negative = f < 0
    population = negative if setting == "one-sample" else negative[~labelled]
    return float(2 * prior * (1 - negative[labelled].mean()) + population.mean())


def proxy_auc(y_pu: npt.ArrayLike, score: npt.ArrayLike) -> float:
    """AUC of labelled against unlabeled rows, which needs no prior: a / 2 + (1 - a) AUC, a the positive share of U.

    Counted by sorting in O(n log n); a tie counts one half.

    Args:
        y_pu: Shape (n_samples,). 1 for labelled rows, 0 or -1 for unlabeled ones.
        score: Shape (n_samples,). f, larger for the positive class.

    Returns:
        The number.
    """
    labelled = labelled_mask(y_pu)
    f = _scores(labelled, score)
    unlabeled = np.sort(f[~labelled])
    # Sorted queries walk the table in order, which is several times faster than jumping about in it.
    positive = np.sort(f[labelled])
    below = np.searchsorted(unlabeled, positive, side="left") + np.searchsorted(unlabeled, positive, side="right")
    return float(below.mean() / (2 * len(unlabeled)))


def oracle_accuracy(
    y_true: npt.ArrayLike,
    score: npt.ArrayLike,
    y_pu: npt.ArrayLike | None = None,
    setting: Setting = "two-sample",
) -> float:
    """Accuracy with the true labels, which PU data do not have: an upper reference for the proxies.

    Args:
        y_true: Shape (n_samples,). 1 for positive, 0 or -1 for negative.
        score: Shape (n_samples,). f, positive for the positive class.
        y_pu: Shape (n_samples,). PU labels. With them the mean runs over unlabeled rows only in the two-sample
            setting; without them, over all. Optional.
        setting: How the labels came about; only read together with `y_pu`.

    Returns:
        The number.
    """
    check_setting(setting)
    truth = np.asarray(y_true)
    if not np.isin(truth, (1, 0, -1)).all():
        raise ValueError("y_true must hold 1 (positive) and 0 or -1 (negative)")
    right = (_scores(truth == 1, score) >= 0) == (truth == 1)
    if y_pu is not None and setting == "two-sample":
        right = right[~labelled_mask(y_pu)]
    return float(right.mean())
