"""The class prior: an estimate where it is unknown, and a change of it after training."""

from typing import Any

import numpy as np
import numpy.typing as npt

from .metrics import Setting, check_prior, check_setting, labelled_mask


def mixture_share(
    score_p: npt.ArrayLike, score_u: npt.ArrayLike, confidence: float = 0.1, spread: float = 0.01
) -> float:
    """Estimate the share of positives in U from scores of held-out rows.

    For any threshold the share of U above it is at least the mixture share times the share of P above it. The estimate
    is the smallest ratio of the two, at the threshold that has the smallest upper confidence bound ("best bin").

    Args:
        score_p: Shape (n_p,). Scores of labelled rows that the scorer was not fitted to.
        score_u: Shape (n_u,). Scores of unlabeled rows that it was not fitted to.
        confidence: Probability with which the bound may fail.
        spread: Relative slack of the bound.

    Returns:
        In (0, 1].
    """
    p, u = np.sort(np.asarray(score_p, dtype=float)), np.sort(np.asarray(score_u, dtype=float))
    if not len(p) or not len(u):
        raise ValueError(f"both kinds of rows are needed, got {len(p)} labelled and {len(u)} unlabeled")
    cuts = np.unique(np.concatenate([p, u]))
    above_p = 1 - np.searchsorted(p, cuts, side="left") / len(p)
    above_u = 1 - np.searchsorted(u, cuts, side="left") / len(u)
    keep = above_p > 0
    above_p, above_u = above_p[keep], above_u[keep]
    noise = sum(np.sqrt(np.log(4 / confidence) / (2 * n)) for n in (len(p), len(u)))
    best = np.argmin((above_u + (1 + spread) * noise) / above_p)
    return float(np.clip(above_u[best] / above_p[best], 1 / (len(u) + 1), 1.0))


def estimate_prior(
    X: npt.ArrayLike, y: npt.ArrayLike, setting: Setting, estimator: Any = None, cv: int = 3, random_state: Any = None
) -> float:
    """Estimate the population's share of positives from PU data.

    Args:
        X: Shape (n_samples, n_features). Features.
        y: Shape (n_samples,). 1 for labelled rows, 0 or -1 for unlabeled ones.
        setting: Two-sample: the share in U. One-sample: the share in P and U together.
        estimator: Tells P from U; gradient-boosted trees by default. It must have `predict_proba`. Optional.
        cv: Folds for scores of rows that the estimator was not fitted to.
        random_state: For the folds and the default estimator.

    Returns:
        Inside (0, 1). It errs upwards where no region holds positives alone.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.utils import check_random_state

    check_setting(setting)
    labelled = labelled_mask(y)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    if estimator is None:
        estimator = HistGradientBoostingClassifier(max_iter=50, random_state=seed)
    folds = StratifiedKFold(cv, shuffle=True, random_state=seed)
    score = cross_val_predict(estimator, X, labelled.astype(int), cv=folds, method="predict_proba")[:, 1]
    share = mixture_share(score[labelled], score[~labelled])
    if setting == "one-sample":
        share = (labelled.sum() + share * (~labelled).sum()) / len(labelled)
    return float(np.clip(share, 1e-3, 1 - 1e-3))


def shift_prior(proba: npt.ArrayLike, prior: float, new_prior: float) -> npt.NDArray[np.float64]:
    """Positive probabilities after the share of positives has changed, with p(x | y) as it was.

    Args:
        proba: Shape (n_samples,). p(y = +1 | x) under `prior`.
        prior: Share of positives that the model was trained for.
        new_prior: Share of positives where it is used.

    Returns:
        Shape (n_samples,).
    """
    check_prior(prior)
    check_prior(new_prior)
    p = np.asarray(proba, dtype=float)
    positive, negative = p * new_prior / prior, (1 - p) * (1 - new_prior) / (1 - prior)
    return np.asarray(positive / (positive + negative))
