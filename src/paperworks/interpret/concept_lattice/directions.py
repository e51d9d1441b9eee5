"""Attributes as half-spaces: a direction and a threshold for each, fitted to embeddings and labels.

    (1)  l_m = (S_+ + S_- + reg I)^{-1} (mu_+ - mu_-)      class covariances, each shrunk by Ledoit and Wolf
    (2)  tau_m = (mean of v.l_m over positives + mean over negatives) / 2
    (3)  P(m(v) = 1) = sigmoid(alpha (v.l_m - tau_m))
    (4)  c = D^+ tau: moving all embeddings by -c brings every threshold to 0, exactly when D c = tau can be solved

(Equation numbers are ours.)
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

Array = npt.NDArray[np.float64]
_SINGULAR = "the class covariances are singular without shrinkage and reg; set reg above 0"
ESTIMATORS = ("lda", "mean", "random", "logistic", "svm")


class AttributeDirections(ClassifierMixin, BaseEstimator):
    """Linear attributes of embeddings, many at once: a scikit-learn multilabel classifier.

    Parameters
    ----------
    estimator : {"lda", "mean", "random", "logistic", "svm"}, default="lda"
        How a direction is found. "lda" is (1). "mean" is the centroid of the positives, so it depends on the origin:
        center the embeddings first. "random" is a Gaussian draw. All three take their threshold from (2). "logistic"
        and "svm" are scikit-learn's `LogisticRegression` and `LinearSVC` with their own intercepts.
    shrinkage : "ledoit_wolf", float in [0, 1] or None, default="ledoit_wolf"
        Of each class covariance in "lda": S -> (1 - s) S + s tr(S)/d I. None is 0.
    reg : float, default=1e-2
        For "lda" the ridge in (1), in squared units of the embeddings; for "logistic" and "svm" 1/C.
    normalize : bool, default=True
        Whether directions have length 1, so that `decision_function` is a distance from the border. The half-spaces
        are the same; profiles weigh attributes differently.
    alpha : float, default=1.0
        Steepness of (3), in inverse units of `decision_function`.
    delta : float in (0, 1), default=0.5
        Least probability with which an object has an attribute.
    min_positives : int, default=1
        Fewest positives, and fewest negatives, that an attribute needs.
    on_degenerate : {"raise", "skip"}, default="raise"
        What becomes of an attribute with fewer. When skipped its direction is 0, it is always predicted as the likelier
        class, and `skipped_` says why.
    random_state : int, RandomState or None, default=None
        Draws the directions of "random"; also given to "svm".

    Attributes:
    ----------
    directions_ : ndarray of shape (attributes, features)
        Rows of D.
    thresholds_ : ndarray of shape (attributes,)
        tau.
    canonical_shift_ : ndarray of shape (features,)
        c of (4), of least norm.
    canonical_residual_ : float
        max |D c - tau|; above rounding no shift brings all half-spaces through the origin.
    skipped_ : dict of int to str
        Column of each attribute that was skipped, with the reason.
    classes_ : ndarray of shape (2,)
        The values of `y`, the same for all attributes; the second is "has the attribute".
    n_features_in_ : int
        Number of features.

    Examples:
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> V = rng.normal(size=(60, 8))
    >>> I = V[:, :3] > 0
    >>> model = AttributeDirections().fit(V, I)
    >>> model.directions_.shape
    (3, 8)
    >>> bool((model.predict(V) == I).mean() > 0.8)
    True
    """

    def __init__(
        self,
        estimator: str = "lda",
        shrinkage: str | float | None = "ledoit_wolf",
        reg: float = 1e-2,
        normalize: bool = True,
        alpha: float = 1.0,
        delta: float = 0.5,
        min_positives: int = 1,
        on_degenerate: str = "raise",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.shrinkage = shrinkage
        self.reg = reg
        self.normalize = normalize
        self.alpha = alpha
        self.delta = delta
        self.min_positives = min_positives
        self.on_degenerate = on_degenerate
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.poor_score = self.estimator == "random"
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> AttributeDirections:
        """Fit a direction and a threshold for each attribute.

        Parameters
        ----------
        X : array of shape (objects, features)
            Embeddings.
        y : array of shape (objects, attributes) of 0 and 1, or of shape (objects,) with two values
            Which object has which attribute.

        Returns:
        -------
        self : AttributeDirections

        Raises:
        ------
        ValueError
            A parameter or a label out of range, or an attribute with too few positives or negatives.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, ensure_min_samples=2)
        check_classification_targets(y)
        table = self._labels(np.asarray(y))
        self.skipped_ = self._degenerate(table)
        keep = np.array([m not in self.skipped_ for m in range(table.shape[1])])
        directions = np.zeros((table.shape[1], X.shape[1]))
        thresholds = np.where(2 * table.sum(axis=0) >= len(X), -1.0, 1.0)  # for those skipped: the likelier class
        if keep.any():
            directions[keep], thresholds[keep] = self._fit_columns(X, table[:, keep])
        if self.normalize:
            length = np.linalg.norm(directions, axis=1)
            some = length > 0
            directions[some] /= length[some, None]
            thresholds[some & keep] /= length[some & keep]
        self.directions_, self.thresholds_ = directions, thresholds
        if keep.any():
            self.canonical_shift_, self.canonical_residual_ = canonical_shift(directions[keep], thresholds[keep])
        else:
            self.canonical_shift_, self.canonical_residual_ = np.zeros(X.shape[1]), 0.0
        return self

    def decision_function(self, X: Any) -> Array:
        """Return v.l_m - tau_m.

        Parameters
        ----------
        X : array of shape (objects, features)
            Embeddings.

        Returns:
        -------
        margins : ndarray of shape (objects, attributes), or (objects,) when `y` had one dimension
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        margins = X @ self.directions_.T - self.thresholds_
        return margins[:, 0] if self._flat else margins

    def predict_proba(self, X: Any, alpha: float | None = None) -> Array:
        """Return the soft incidence (3).

        Parameters
        ----------
        X : array of shape (objects, features)
            Embeddings.
        alpha : float, optional
            Instead of the one of this classifier; infinity gives 0, 1/2 and 1.

        Returns:
        -------
        probabilities : ndarray of shape (objects, attributes), or (objects, 2) when `y` had one dimension
        """
        check_is_fitted(self)
        alpha = self.alpha if alpha is None else alpha
        if not alpha > 0:
            raise ValueError(f"alpha={alpha!r}; allowed is above 0")
        margins = self.decision_function(X)
        share = np.heaviside(margins, 0.5) if np.isinf(alpha) else expit(alpha * margins)
        return np.column_stack([1 - share, share]) if self._flat else share

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return who has what: the hard incidence {P >= delta}.

        Parameters
        ----------
        X : array of shape (objects, features)
            Embeddings.

        Returns:
        -------
        y : ndarray of shape (objects, attributes) of 0 and 1, or (objects,) of the values of `y`
        """
        has = self.decision_function(X) >= logit(self.delta) / self.alpha
        for m in self.skipped_:  # whatever alpha and delta are
            has.reshape(len(has), -1)[:, m] = self.thresholds_[m] < 0
        if self._flat:
            return self.classes_[has.astype(int)]
        return has.astype(self._dtype)

    # --- inside --------------------------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator={self.estimator!r}; allowed are {', '.join(map(repr, ESTIMATORS))}")
        number = isinstance(self.shrinkage, numbers.Real) and 0 <= self.shrinkage <= 1
        if not (self.shrinkage is None or self.shrinkage == "ledoit_wolf" or number):
            raise ValueError(f"shrinkage={self.shrinkage!r}; allowed are 'ledoit_wolf', 0 to 1, and None")
        if not self.reg >= 0 or (self.reg == 0 and self.estimator in ("logistic", "svm")):
            allowed = "above 0" if self.estimator in ("logistic", "svm") else "0 or more"
            raise ValueError(f"reg={self.reg!r}; allowed is {allowed}")
        if not self.alpha > 0:
            raise ValueError(f"alpha={self.alpha!r}; allowed is above 0")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta={self.delta!r}; allowed is between 0 and 1")
        if not self.min_positives >= 1:
            raise ValueError(f"min_positives={self.min_positives!r}; allowed is 1 or more")
        if self.on_degenerate not in ("raise", "skip"):
            raise ValueError(f"on_degenerate={self.on_degenerate!r}; allowed are 'raise' and 'skip'")

    def _labels(self, y: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        self._flat = y.ndim == 1
        if self._flat:
            self.classes_ = np.unique(y)
            if len(self.classes_) > 2:
                raise ValueError(
                    f"Only binary classification is supported. The type of the target is {type_of_target(y)}: "
                    "give several attributes as columns of 0 and 1"
                )
            if len(self.classes_) < 2:
                raise ValueError(f"y has one class, {self.classes_[0]!r}; allowed are two classes")
            return np.asarray(y == self.classes_[1])[:, None]
        if not np.isin(y, (0, 1)).all():
            raise ValueError(f"y has {y[~np.isin(y, (0, 1))][0]!r}; allowed in several columns are 0 and 1")
        self.classes_ = np.array([0, 1])
        self._dtype = y.dtype if y.dtype != bool else np.dtype(int)
        return y.astype(bool)

    def _degenerate(self, table: npt.NDArray[np.bool_]) -> dict[int, str]:
        positives = table.sum(axis=0)
        reasons = {}
        for m, count in enumerate(positives):
            for word, n in (("positives", int(count)), ("negatives", int(len(table) - count))):
                if n < self.min_positives:
                    reasons[m] = f"{n} {word}, fewer than {self.min_positives}"
        if reasons and self.on_degenerate == "raise":
            m, reason = next(iter(reasons.items()))
            raise ValueError(f"attribute {m} (column of y) has {reason}; leave it out, or set on_degenerate='skip'")
        return reasons

    def _fit_columns(self, X: Array, table: npt.NDArray[np.bool_]) -> tuple[Array, Array]:
        if self.estimator in ("logistic", "svm"):
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            models = []
            for column in table.T:
                if self.estimator == "logistic":
                    model: Any = LogisticRegression(C=1 / self.reg, max_iter=1000)
                else:
                    model = LinearSVC(C=1 / self.reg, random_state=seed, dual="auto")
                models.append(model.fit(X, column))
            return np.stack([m.coef_[0] for m in models]), np.array([-m.intercept_[0] for m in models])
        n_positive = table.sum(axis=0)[:, None]
        mu_positive = table.T.astype(float) @ X / n_positive
        mu_negative = (~table).T.astype(float) @ X / (len(X) - n_positive)
        if self.estimator == "lda":
            directions = discriminants(X, table, self.shrinkage, self.reg)
        elif self.estimator == "mean":
            directions = mu_positive
        else:
            directions = check_random_state(self.random_state).standard_normal((table.shape[1], X.shape[1]))
        return directions, np.einsum("md,md->m", directions, mu_positive + mu_negative) / 2  # (2)


def canonical_shift(directions: npt.ArrayLike, thresholds: npt.ArrayLike) -> tuple[Array, float]:
    """Return the shift that brings thresholds to 0, and what is left of them.

    Args:
        directions: D, of shape (attributes, features).
        thresholds: tau, of shape (attributes,).

    Returns:
        c = D^+ tau of shape (features,), the shortest of the best ones, and max |D c - tau|. With linearly independent
        directions the latter is 0 up to rounding.
    """
    D, tau = np.asarray(directions, dtype=float), np.asarray(thresholds, dtype=float)
    if D.ndim != 2 or tau.shape != (len(D),):
        raise ValueError(
            f"directions and thresholds have shapes {D.shape} and {tau.shape}; allowed are (attributes, features) "
            "and (attributes,)"
        )
    if not (np.isfinite(D).all() and np.isfinite(tau).all()):
        raise ValueError("directions or thresholds have entries that are not finite; allowed are numbers")
    shift = np.linalg.lstsq(D, tau, rcond=None)[0]
    return shift, float(np.abs(D @ shift - tau).max(initial=0.0))


def discriminants(
    X: npt.ArrayLike,
    table: npt.NDArray[np.bool_],
    shrinkage: str | float | None = "ledoit_wolf",
    reg: float = 1e-2,
) -> Array:
    """Return (1) for many attributes at once.

    What the attributes share is computed once: the Gram matrix of the objects, from which the scatter, the shrinkage
    and, where there are fewer objects than features, also the linear system of each attribute follow without another
    look at the features.

    Args:
        X: Embeddings, of shape (objects, features).
        table: Who has what, of shape (objects, attributes); every attribute has positives and negatives.
        shrinkage: "ledoit_wolf", a number from 0 to 1, or None.
        reg: The ridge.

    Returns:
        Directions of shape (attributes, features).
    """
    centered = np.asarray(X, dtype=float)
    centered = centered - centered.mean(axis=0)  # changes nothing but the rounding
    n, d = centered.shape
    gram = centered @ centered.T
    second = None if n < d else centered.T @ centered  # (features, features)
    found = np.zeros((table.shape[1], n if second is None else d))
    for m, column in enumerate(table.T):
        parts = [np.flatnonzero(column), np.flatnonzero(~column)]
        ridge = float(reg)
        kept = []
        for rows in parts:
            weight, flat = _shrink(gram[np.ix_(rows, rows)], d, shrinkage)
            kept.append(weight)
            ridge += flat
        if second is None:
            found[m] = _solve_by_objects(gram, parts, kept, ridge)
        else:
            found[m] = _solve_by_features(centered, second, parts, kept, ridge)
    return np.asarray(found @ centered) if second is None else found


def _shrink(gram: Array, d: int, shrinkage: str | float | None) -> tuple[float, float]:
    """(1 - s, s tr(S)/d) of one class, from the Gram matrix of its members.

    With centered members x_i: tr S = mean |x_i|^2, |S|^2 = mean (x_i.x_j)^2, and Ledoit and Wolf's estimate is
    s = min(1, b/t) with t = |S|^2 - tr(S)^2/d and b = (mean |x_i|^4 - |S|^2) / n.
    """
    n = len(gram)
    column = gram.mean(axis=0)
    centered = gram - column - column[:, None] + column.mean()
    squares = np.diag(centered)
    trace = float(squares.mean())
    if shrinkage is None:
        return 1.0, 0.0
    if shrinkage != "ledoit_wolf":
        return 1.0 - float(shrinkage), float(shrinkage) * trace / d
    flat = centered.ravel()
    norm = float(flat @ flat) / n**2
    spread = norm - trace**2 / d
    error = min((float((squares**2).mean()) - norm) / n, spread)
    s = error / spread if error > 0 else 0.0
    return 1.0 - s, s * trace / d


def _solve_by_objects(gram: Array, parts: list[npt.NDArray[np.intp]], kept: list[float], ridge: float) -> Array:
    """Coefficients a of l = X^T a, from (Z^T Z + ridge I) l = X^T e with Z = W X.

    W (n, n) centers the rows of each class and scales them by sqrt(kept / size); e has 1/size on positives and -1/size
    on negatives. By the identity of Woodbury a = (e - W^T (W G W^T + ridge I)^{-1} W G e) / ridge with G = X X^T.
    """
    n = len(gram)
    e = np.zeros(n)
    scale = np.empty(n)
    for sign, rows, weight in zip((1.0, -1.0), parts, kept, strict=True):
        e[rows] = sign / len(rows)
        scale[rows] = np.sqrt(weight / len(rows))

    def center(values: Array) -> Array:  # each class of the first axis
        for rows in parts:
            values[rows] -= values[rows].mean(axis=0)
        return values

    if not ridge > 0:
        raise ValueError(_SINGULAR)
    right = scale * center(gram @ e)
    inner = center(center(gram.copy()).T) * scale * scale[:, None]
    inner.flat[:: n + 1] += ridge
    solved = cho_solve(cho_factor(inner, lower=True, overwrite_a=True, check_finite=False), right, check_finite=False)
    return (e - center(scale * solved)) / ridge


def _solve_by_features(
    X: Array, second: Array, parts: list[npt.NDArray[np.intp]], kept: list[float], ridge: float
) -> Array:
    small, large = sorted((0, 1), key=lambda k: len(parts[k]))
    moments = {small: X[parts[small]].T @ X[parts[small]]}
    moments[large] = second - moments[small]
    means = [X[rows].mean(axis=0) for rows in parts]
    system = np.zeros_like(second)
    for k, rows in enumerate(parts):
        system += kept[k] * (moments[k] / len(rows) - np.outer(means[k], means[k]))
    system.flat[:: len(system) + 1] += ridge
    try:
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ValueError(_SINGULAR) from None
    return np.asarray(cho_solve(factor, means[0] - means[1], check_finite=False))
