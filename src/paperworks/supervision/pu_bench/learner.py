# ruff: noqa: D416 - an estimator has numpydoc sections, as scikit-learn has them
"""`PULearner`: the benchmark's algorithms as one scikit-learn classifier."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from .algorithms import ALGORITHMS, Algorithm
from .metrics import SETTINGS, oracle_accuracy
from .nets import margin
from .prior import estimate_prior
from .training import Calibration, Plan, Run, Split

CRITERIA = ("pa", "pauc", "oa", None)
CALIBRATIONS = ("exact", "sampling", "batch_concat")
OWN_TO_A_LANE = ("learning_rate", "random_state")


class SettingWarning(UserWarning):
    """The setting was not declared, and the data look like one sample."""


class PULearner(ClassifierMixin, BaseEstimator):
    """Classifier trained from labelled positives and unlabeled rows.

    Ten percent of P and of U are held out; every `eval_every` steps the criterion is computed on them, and the
    checkpoint that maximises it is the model. Features are used as they are: put a scaler before it in a pipeline.

    Parameters
    ----------
    algorithm : str or Algorithm, default="nnpu"
        One of "naive", "upu", "nnpu", "nnpu_ga", "pusb", "pubn", "vpu", "cvir", "dist_pu", "count", "glws", "lbe",
        "pue", "holistic_pu", "pulda", "pan", "p3mix_e", "p3mix_c", "robust_pu", or an object with the hooks of
        `Algorithm`.
    prior : float or "estimate", default=0.5
        Share of positives in the population, in (0, 1). "estimate" calls `estimate_prior`. "naive", "vpu", "lbe",
        "holistic_pu", "pan", "p3mix_e" and "p3mix_c" train without it, but the criterion "pa" uses it.
    setting : {"two-sample", "one-sample"} or None, default=None
        "two-sample": U is a sample of the population, drawn apart from P. "one-sample": one sample was drawn and some
        of its positives labelled; U is what is left and holds fewer positives. ``None`` is an error unless
        ``calibrate=False``; it is then taken for "two-sample", with a warning where no labelled row occurs in U again,
        as when one sample was split.
    calibrate : bool or "auto", default="auto"
        Whether labelled rows go back into the loss's unlabeled term. "auto": when the setting is "one-sample", which
        must then be declared.
    calibration : {"exact", "sampling", "batch_concat"}, default="exact"
        "exact" weighs labelled rows as in Eq. 8, and puts them into U as rows where a loss counts or sorts rows;
        "sampling" does the latter always; "batch_concat" is the authors' release's way, biased unless half of the
        population is labelled.
    module : torch.nn.Module or callable or None, default=None
        The network, or a function of the number of features that makes it; it maps (n, features) to logits of shape
        (n, 2), (n, 1) or (n,). ``None`` is an MLP with one hidden ReLU layer.
    hidden : int, default=500
        Width of that layer.
    max_steps : int, default=2000
        Optimisation steps.
    warmup_steps : int or None, default=None
        Steps before them for "pubn", "lbe", "pue", "holistic_pu" and "robust_pu"; ``None`` is a tenth of `max_steps`.
    batch_size : int, default=64
        Labelled rows in a batch, and as many unlabeled ones.
    learning_rate : float, default=0.01
        Learning rate of SGD.
    momentum : float, default=0.9
        Momentum of SGD.
    weight_decay : float, default=0.0
        L2 penalty.
    eval_every : int, default=100
        Steps between two looks at the held-out rows.
    criterion : {"pa", "pauc", "oa"} or None, default="pa"
        What chooses the checkpoint: proxy accuracy, proxy AUC, or accuracy with the true labels, for which `fit` must
        get them. ``None`` holds nothing out and takes the last.
    validation_fraction : float, default=0.1
        Share of P and of U that is held out.
    options : dict or None, default=None
        Further arguments of the algorithm, such as ``{"beta": 0.1}`` for "nnpu" or ``{"late": False}`` for "dist_pu".
    device : str, default="cpu"
        Where torch computes.
    random_state : int, RandomState or None, default=None
        Split, initialisation and batches.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The label of unlabeled rows, taken for negative, and that of labelled ones.
    history_ : dict of str to list of float
        "step", "loss" (mean since the step before), "pa", "pauc" and, with true labels, "oa".
    module_ : torch.nn.Module
        The network at the chosen checkpoint.
    threshold_ : float
        The score from which a row is called positive; 0 but for "pusb".
    prior_ : float
        The prior used.
    c_ : float
        p(labelled | y = +1) of the training rows in the one-sample setting, else NaN.
    checkpoint_step_ : int
        Step of the chosen checkpoint.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    Of the two labels the larger in sorted order is taken for "labelled": 1 of 0 and 1, "unlabeled" of "positive" and
    "unlabeled", which is why numbers are safer. In cross-validation y holds these labels, not the truth, so the default
    score rewards "naive": give ``scoring`` a proxy, as below.

    Examples
    --------
    >>> import numpy as np
    >>> from paperworks.supervision.pu_bench import PULearner
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(2, 1, (300, 2)), rng.normal(-2, 1, (200, 2))])
    >>> y = np.repeat([1, 0], [100, 400])
    >>> learner = PULearner(prior=0.6, setting="one-sample", max_steps=300, random_state=0).fit(X, y)
    >>> bool((learner.predict(X) == np.repeat([1, 0], [300, 200])).mean() > 0.95)
    True

    Model selection without negatives, by scikit-learn:

    >>> from sklearn.metrics import make_scorer
    >>> from sklearn.model_selection import GridSearchCV
    >>> from paperworks.supervision.pu_bench import proxy_accuracy
    >>> scoring = make_scorer(
    ...     proxy_accuracy, response_method="decision_function", prior=0.6, setting="one-sample"
    ... )
    >>> grid = {"algorithm": ["naive", "upu"]}
    >>> learner = PULearner(prior=0.6, setting="one-sample", max_steps=100, random_state=0)
    >>> sorted(GridSearchCV(learner, grid, scoring=scoring, cv=2).fit(X, y).best_params_)
    ['algorithm']
    """

    def __init__(
        self,
        algorithm: str | Algorithm = "nnpu",
        *,
        prior: float | Literal["estimate"] = 0.5,
        setting: Literal["two-sample", "one-sample"] | None = None,
        calibrate: bool | Literal["auto"] = "auto",
        calibration: Calibration = "exact",
        module: nn.Module | Callable[[int], nn.Module] | None = None,
        hidden: int = 500,
        max_steps: int = 2000,
        warmup_steps: int | None = None,
        batch_size: int = 64,
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        eval_every: int = 100,
        criterion: Literal["pa", "pauc", "oa"] | None = "pa",
        validation_fraction: float = 0.1,
        options: dict[str, Any] | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.prior = prior
        self.setting = setting
        self.calibrate = calibrate
        self.calibration = calibration
        self.module = module
        self.hidden = hidden
        self.max_steps = max_steps
        self.warmup_steps = warmup_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.eval_every = eval_every
        self.criterion = criterion
        self.validation_fraction = validation_fraction
        self.options = options
        self.device = device
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, y_true: npt.ArrayLike | None = None) -> PULearner:
        """Train.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features of labelled and unlabeled rows.
        y : array-like of shape (n_samples,)
            1 or True for labelled positives; 0, -1 or False for unlabeled rows. Of any other two labels the larger
            one marks labelled positives.
        y_true : array-like of shape (n_samples,), optional
            True classes, 1 and 0 or -1: only for the criterion "oa" and its curve, never for training.

        Returns
        -------
        PULearner
            Itself.
        """
        fit_together([self], [X], [y], None if y_true is None else [y_true])
        return self

    def at(self, criterion: Literal["pa", "pauc", "oa", "last"]) -> PULearner:
        """The fitted learner as another criterion would have chosen it.

        Parameters
        ----------
        criterion : {"pa", "pauc", "oa", "last"}
            "oa" only when `fit` got the true labels; "last" is the last step.

        Returns
        -------
        PULearner
            A copy; it shares nothing that changes.
        """
        check_is_fitted(self)
        if criterion not in self._checkpoints:
            raise ValueError(f"criterion must be one of {', '.join(self._checkpoints)}, got {criterion!r}")
        other = copy.copy(self)
        other._take(criterion)
        return other

    def _take(self, criterion: str) -> None:
        best = self._checkpoints[criterion]
        self.module_, self.threshold_, self.checkpoint_step_ = best.module, best.threshold, best.step

    def decision_function(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Scores f less the threshold, positive for the positive class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        # In float64 a row's score does not depend on the rows beside it.
        model = copy.deepcopy(self.module_).double().eval()
        with torch.no_grad():
            parts = torch.as_tensor(rows, device=self.device).split(4096)
            score = torch.cat([margin(model(part)) for part in parts])
        return np.asarray(score.cpu().numpy() - self.threshold_)

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Probabilities of negative and positive, the sigmoid of the decision function.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples, 2)
            Only proper losses make these probabilities; see `shift_prior` for another prior.
        """
        f = torch.as_tensor(self.decision_function(X))
        return np.asarray(torch.stack([torch.sigmoid(-f), torch.sigmoid(f)], dim=1).numpy())

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Classes of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Features.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        called = self.decision_function(X) >= 0
        return np.asarray(self.classes_[called.astype(int)])


def fit_together(
    learners: Sequence[PULearner],
    X: Sequence[npt.ArrayLike],
    y: Sequence[npt.ArrayLike],
    y_true: Sequence[npt.ArrayLike] | None = None,
    callback: Callable[[int, Callable[[Any], npt.NDArray[np.float64]]], None] | None = None,
) -> list[PULearner]:
    """Fit learners that differ in data, `random_state` and `learning_rate` only, side by side in batched products.

    Each becomes what its own `fit` would have made of it.

    Args:
        learners: The learners.
        X: Features for each, all of one shape (n_samples, n_features).
        y: PU labels for each, shape (n_samples,), all with equally many labelled rows.
        y_true: True classes for each, shape (n_samples,), if they are known.
        callback: Called as ``callback(step, score)`` at every look at the held-out rows; ``score(x)`` takes rows of
            shape (n, n_features), or (learners, n, n_features), and returns scores of shape (learners, n).

    Returns:
        The learners, fitted.

    Raises:
        ValueError: When they differ in more than they may.
    """
    first = learners[0]
    for other in learners[1:]:
        theirs = other.get_params(deep=False)
        for name, value in first.get_params(deep=False).items():
            if name not in OWN_TO_A_LANE and theirs[name] is not value and theirs[name] != value:
                raise ValueError(f"learners differ in {name}: {value!r} and {theirs[name]!r}; fit them apart")
    truths = [None] * len(learners) if y_true is None else list(y_true)
    parts = list(starmap(_prepared, zip(learners, X, y, truths, strict=True)))
    splits, seeds = [split for split, _ in parts], [seed for _, seed in parts]
    if len({(s.x_p.shape, s.x_u.shape) for s in splits}) > 1:
        raise ValueError(
            "learners fitted together need data of one shape with equally many labelled rows; fit them apart"
        )
    if len({learner.prior_ for learner in learners}) > 1:
        raise ValueError("learners fitted together need one prior, and estimates differ; fit them apart")
    run = Run(_plan(first), splits, [learner.learning_rate for learner in learners], seeds)
    for learner, (history, checkpoints) in zip(learners, run.train(splits, callback), strict=True):
        learner.history_, learner._checkpoints = history, checkpoints
        learner.c_ = run.c if learner.setting == "one-sample" else float("nan")
        learner._take(first.criterion or "last")
    return list(learners)


def _plan(learner: PULearner) -> Plan:
    """The parameters that a call's learners share, checked."""
    _check_choice("setting", learner.setting, (*SETTINGS, None))
    _check_choice("calibration", learner.calibration, CALIBRATIONS)
    _check_choice("calibrate", learner.calibrate, (True, False, "auto"))
    if not isinstance(learner.algorithm, Algorithm):
        _check_choice("algorithm", learner.algorithm, tuple(ALGORITHMS))
    elif learner.options:
        raise ValueError("options are for an algorithm given by name; an object has its own")
    warmup = learner.max_steps // 10 if learner.warmup_steps is None else learner.warmup_steps
    counts = {name: (getattr(learner, name), 1) for name in ("hidden", "max_steps", "batch_size", "eval_every")}
    for name, (value, lowest) in {**counts, "warmup_steps": (warmup, 0)}.items():
        if not isinstance(value, int | np.integer) or value < lowest:
            raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
    if learner.module is not None and not callable(learner.module):
        raise ValueError(f"module must be a torch module, a function that makes one, or None, got {learner.module!r}")
    _check_range("momentum", learner.momentum, 0, 1)
    _check_range("weight_decay", learner.weight_decay, 0, math.inf)
    one_sample = learner.setting == "one-sample"
    if learner.calibrate is True and not one_sample:
        raise ValueError(
            f"calibrate=True is for data of one sample, but setting is {learner.setting!r}: pass setting='one-sample', "
            "or calibrate='auto'"
        )
    return Plan(
        algorithm=learner.algorithm,
        options=dict(learner.options or {}),
        prior=learner.prior_,
        setting="one-sample" if one_sample else "two-sample",
        calibrate=one_sample and learner.calibrate is not False,
        calibration=learner.calibration,
        module=learner.module,
        hidden=learner.hidden,
        max_steps=learner.max_steps,
        warmup_steps=warmup,
        batch_size=learner.batch_size,
        momentum=learner.momentum,
        weight_decay=learner.weight_decay,
        eval_every=learner.eval_every,
        device=learner.device,
    )


def _check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _check_range(name: str, value: Any, lowest: float, below: float) -> None:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not lowest <= value < below:
        raise ValueError(f"{name} must be a number of at least {lowest} and less than {below}, got {value!r}")


def _prepared(
    learner: PULearner, X: npt.ArrayLike, y: npt.ArrayLike, y_true: npt.ArrayLike | None
) -> tuple[Split, int]:
    """Validate one learner's data, settle its prior, hold rows out; return the rows and a seed."""
    _check_choice("criterion", learner.criterion, CRITERIA)
    _check_range("learning_rate", learner.learning_rate, 0, math.inf)
    rows, labels = validate_data(learner, X, y, dtype=np.float64)
    check_classification_targets(labels)
    learner.classes_, labelled = _labels(labels)
    truth = None
    if y_true is not None:
        truth = np.asarray(y_true)
        if truth.shape != labels.shape or not np.isin(truth, (1, 0, -1)).all():
            raise ValueError(f"y_true must have the shape of y, {labels.shape}, and hold 1 and 0 or -1")
        truth = (truth == 1).astype(np.int64)
    if learner.criterion == "oa" and truth is None:
        raise ValueError("criterion='oa' needs the true labels: fit(X, y, y_true), or take 'pa' or 'pauc'")
    random = check_random_state(learner.random_state)
    learner.prior_ = _prior(learner, rows, labelled, random)
    if learner.setting == "one-sample" and labelled.mean() > learner.prior_ + 1e-9:
        raise ValueError(
            f"labelled rows are a share {labelled.mean():.3g} of the one sample, more than prior {learner.prior_:g}: "
            "c = p(labelled | positive) would exceed 1; check prior, or take setting='two-sample'"
        )
    if learner.setting is None:
        _undeclared(learner, _repeats(rows, labelled))
    held = _held_out(learner, labelled, random)
    rows32 = rows.astype(np.float32)
    order = np.concatenate([np.flatnonzero(held & labelled), np.flatnonzero(held & ~labelled)])
    split = Split(
        x_p=rows32[labelled & ~held],
        x_u=rows32[~labelled & ~held],
        x_held=rows32[order],
        y_held=labelled[order].astype(np.int64),
        truth_held=None if truth is None else truth[order],
    )
    return split, int(random.randint(2**31 - 1))


def _labels(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """The two classes, and where the labelled one is."""
    found = np.unique(labels)
    if labels.dtype.kind in "biuf" and np.isin(found, (1, 0, -1)).all():
        labelled = labels == 1
        classes = np.array([found[0] if len(found) == 2 else 0, 1]).astype(labels.dtype)
    elif len(found) == 2:
        labelled, classes = labels == found[1], found
    else:
        labelled, classes = labels == found[-1], found
    if len(found) > 2 and len(classes) != 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: y must hold "
            "1 for labelled positives and 0 or -1 for unlabeled rows"
        )
    if labelled.all() or not labelled.any():
        lacking = "unlabeled rows (0 or -1)" if labelled.all() else "labelled positives (1)"
        raise ValueError(f"y has one class only, {found[0]!r}: there are no {lacking}")
    return classes, labelled


def _prior(
    learner: PULearner, rows: npt.NDArray[Any], labelled: npt.NDArray[np.bool_], random: np.random.RandomState
) -> float:
    if isinstance(learner.prior, str) and learner.prior == "estimate":
        return estimate_prior(rows, labelled.astype(int), learner.setting or "two-sample", random_state=random)
    number = isinstance(learner.prior, float | np.floating | int) and not isinstance(learner.prior, bool)
    if not number or not 0 < learner.prior < 1:
        raise ValueError(f"prior must lie strictly between 0 and 1, or be 'estimate', got {learner.prior!r}")
    return float(learner.prior)


def _undeclared(learner: PULearner, repeats: bool) -> None:
    """Refuse to calibrate by a setting that nobody declared; without calibration warn where it may be one sample."""
    looks = (
        "some labelled rows occur among the unlabeled ones again, as in two samples of one pool"
        if repeats
        else "no labelled row occurs among the unlabeled ones, as when some positives of one sample were labelled"
    )
    what = f"setting is not declared, and {looks}: pass setting='one-sample' or 'two-sample'"
    if learner.calibrate == "auto":
        raise ValueError(f"{what}, or calibrate=False; calibrate='auto' cannot decide")
    if not repeats:
        warnings.warn(f"{what}; the criterion follows it, too", SettingWarning, stacklevel=5)


def _repeats(rows: npt.NDArray[np.float64], labelled: npt.NDArray[np.bool_]) -> bool:
    """Whether any labelled row occurs among the unlabeled ones."""
    known = {row.tobytes() for row in rows[labelled]}
    return any(row.tobytes() in known for row in rows[~labelled])


def _held_out(
    learner: PULearner, labelled: npt.NDArray[np.bool_], random: np.random.RandomState
) -> npt.NDArray[np.bool_]:
    """Which rows choose the checkpoint: the same share of P and of U, at least one of each."""
    held = np.zeros(len(labelled), dtype=bool)
    if learner.criterion is None:
        return held
    if not 0 < learner.validation_fraction < 1:
        raise ValueError(f"validation_fraction must lie strictly between 0 and 1, got {learner.validation_fraction!r}")
    for kind, name in ((labelled, "labelled"), (~labelled, "unlabeled")):
        rows = np.flatnonzero(kind)
        count = max(1, round(learner.validation_fraction * len(rows)))
        if count >= len(rows):
            raise ValueError(
                f"{len(rows)} {name} rows do not suffice to hold out {count}: give more, or pass criterion=None"
            )
        held[random.permutation(rows)[:count]] = True
    return held


def prior_sensitivity(
    learner: PULearner,
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    priors: Sequence[float],
    X_test: npt.ArrayLike | None = None,
    y_test: npt.ArrayLike | None = None,
) -> pd.DataFrame:
    """How results depend on the prior that the learner is told.

    Args:
        learner: What is refitted, with each prior and otherwise unchanged.
        X: Shape (n_samples, n_features). Features.
        y: Shape (n_samples,). PU labels.
        priors: Priors to tell it. Those for which one-sample data are impossible give a row without numbers.
        X_test: Shape (n_test, n_features). Rows with known classes. Optional.
        y_test: Shape (n_test,). Their classes, 1 and 0 or -1. Optional.

    Returns:
        Columns prior; pa and pauc at the chosen checkpoint on the held-out rows, pa under that same prior; predicted,
        the share of unlabeled rows called positive; and accuracy on the test rows, if given. PA under different
        priors is not comparable; PAUC is.
    """
    rows = []
    for prior in priors:
        fitted = clone(learner).set_params(prior=prior)
        try:
            fitted.fit(X, y)
        except ValueError as error:
            if "would exceed 1" not in str(error):
                raise
            rows.append({"prior": prior})
            continue
        _, labelled = _labels(np.asarray(y))
        row = {"prior": prior, "predicted": float((fitted.decision_function(np.asarray(X)[~labelled]) >= 0).mean())}
        if fitted.criterion is not None:
            at = fitted.history_["step"].index(fitted.checkpoint_step_)
            row |= {name: fitted.history_[name][at] for name in ("pa", "pauc")}
        if X_test is not None and y_test is not None:
            row["accuracy"] = oracle_accuracy(y_test, fitted.decision_function(X_test))
        rows.append(row)
    columns = ["prior", "pa", "pauc", "predicted", *(["accuracy"] if X_test is not None else [])]
    return pd.DataFrame(rows, columns=columns)
