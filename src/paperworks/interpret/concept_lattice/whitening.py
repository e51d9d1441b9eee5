"""The causal inner product of Park et al.: a frame in which the unembedding vectors are white.

Under <x, y> = x^T Cov(gamma)^{-1} y, gamma being the unembedding vector of a token drawn uniformly from the vocabulary,
concepts that vary independently are orthogonal. With W = Cov(gamma)^{-1/2} it is the plain inner product of W x, W y.
A hidden state v meets gamma in the logit v^T gamma = (W^{-1} v)^T (W gamma), so the frame that fits it is W^{-1}; the
paper at hand is reported to apply W. Both are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

SIDES = ("unembedding", "embedding")


class CausalWhitening(TransformerMixin, BaseEstimator):
    """v -> Cov(gamma)^{-1/2} (v - mean gamma), learned from rows gamma.

    Parameters
    ----------
    side : {"unembedding", "embedding"}, default="unembedding"
        "unembedding" applies Cov^{-1/2}: the rows it was learned from become white. "embedding" applies Cov^{1/2}, the
        frame of the vectors that are paired with such rows.
    ridge : float, default=1e-6
        Added to the eigenvalues of the covariance, in units of their mean.

    Attributes:
    ----------
    matrix_ : ndarray of shape (features, features)
        What is applied, symmetric.
    mean_ : ndarray of shape (features,)
        What is taken off first.
    n_features_in_ : int
        Number of features.
    """

    def __init__(self, side: str = "unembedding", ridge: float = 1e-6) -> None:
        self.side = side
        self.ridge = ridge

    def fit(self, X: Any, y: Any = None) -> CausalWhitening:
        """Learn mean and covariance.

        Parameters
        ----------
        X : array of shape (tokens, features)
            Unembedding vectors, or whatever shall be white.
        y : ignored

        Returns:
        -------
        self : CausalWhitening
        """
        if self.side not in SIDES:
            raise ValueError(f"side={self.side!r}; allowed are {', '.join(map(repr, SIDES))}")
        if not self.ridge >= 0:
            raise ValueError(f"ridge={self.ridge!r}; allowed is 0 or more")
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.mean_ = X.mean(axis=0)
        centered = X - self.mean_
        values, vectors = np.linalg.eigh(centered.T @ centered / len(X))
        values = np.clip(values, 0, None) + self.ridge * max(values.mean(), np.finfo(float).tiny)
        if not (values > 0).all():
            raise ValueError(f"ridge={self.ridge!r}; allowed is above 0 for rows that do not vary in every direction")
        power = -0.5 if self.side == "unembedding" else 0.5
        self.matrix_ = (vectors * values**power) @ vectors.T
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """Bring vectors into the frame.

        Parameters
        ----------
        X : array of shape (objects, features)
            Vectors.

        Returns:
        -------
        Z : ndarray of shape (objects, features)
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray((X - self.mean_) @ self.matrix_)
