"""`AttributeDirections` against the formula, scikit-learn's own checks, its equivariances and its errors."""

import re

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from paperworks.interpret.concept_lattice.directions import (
    ESTIMATORS,
    AttributeDirections,
    canonical_shift,
    discriminants,
)
from paperworks.interpret.concept_lattice.whitening import CausalWhitening

from . import reference

# No check fails; those of estimator="random" on accuracy are switched off by its tag poor_score.
CHECKED = [*map(AttributeDirections, ESTIMATORS), AttributeDirections(normalize=False, alpha=3.0), CausalWhitening()]


@pytest.mark.parametrize("estimator", CHECKED, ids=str)
def test_scikit_learn(estimator):
    """All of its checks, on one column and on several; none is expected to fail."""
    results = check_estimator(estimator, on_skip=None)
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}  # needs an environment variable, set before scipy is imported
    assert len(results) > 40


def data(n=30, d=6, m=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 1
    score = X @ rng.normal(size=(d, m)) + rng.normal(size=(n, m))
    return X, score > np.quantile(score, np.linspace(0.3, 0.8, m), axis=0).diagonal()


@pytest.mark.parametrize("shape", [(30, 6), (12, 20), (9, 9)], ids=["more objects", "more features", "equal"])
@pytest.mark.parametrize("reg", [0.0, 0.01, 5.0])
def test_directions_and_thresholds_are_those_of_the_formula(shape, reg):
    X, table = data(*shape)
    model = AttributeDirections(reg=reg, normalize=False).fit(X, table)
    for m in range(table.shape[1]):
        line, threshold = reference.direction(X, table[:, m], reg)
        np.testing.assert_allclose(model.directions_[m], line, rtol=1e-8, atol=1e-10)
        assert model.thresholds_[m] == pytest.approx(threshold, rel=1e-8, abs=1e-9)
    unit = AttributeDirections(reg=reg).fit(X, table)
    length = np.linalg.norm(model.directions_, axis=1)
    np.testing.assert_allclose(unit.directions_, model.directions_ / length[:, None], rtol=1e-9)
    np.testing.assert_array_equal(unit.predict(X), model.predict(X))


@pytest.mark.parametrize("shrinkage", [0.3, 1.0, None])
def test_fixed_shrinkage(shrinkage):
    X, table = data()
    found = discriminants(X, table, shrinkage, reg=0.1)
    for m in range(table.shape[1]):
        system = 0.1 * np.eye(6)
        for rows in (X[table[:, m]], X[~table[:, m]]):
            S, s = np.cov(rows.T, bias=True), shrinkage or 0.0
            system += (1 - s) * S + s * np.trace(S) / 6 * np.eye(6)
        gap = X[table[:, m]].mean(axis=0) - X[~table[:, m]].mean(axis=0)
        np.testing.assert_allclose(found[m], np.linalg.solve(system, gap), rtol=1e-9)


def test_without_shrinkage_and_equal_classes_it_is_textbook_lda():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], 40)
    X = rng.normal(size=(80, 5)) + y[:, None]
    ours = AttributeDirections(shrinkage=None, reg=0.0).fit(X, y)
    theirs = LinearDiscriminantAnalysis().fit(X, y)
    np.testing.assert_allclose(ours.directions_[0], theirs.coef_[0] / np.linalg.norm(theirs.coef_[0]), rtol=1e-8)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("estimator", ["lda", "mean", "random"])
def test_the_threshold_is_the_midpoint_and_mean_is_the_centroid(estimator):
    X, table = data()
    model = AttributeDirections(estimator, normalize=False, random_state=0).fit(X, table)
    for m, has in enumerate(table.T):
        projected = X @ model.directions_[m]
        assert model.thresholds_[m] == pytest.approx((projected[has].mean() + projected[~has].mean()) / 2)
        if estimator == "mean":
            np.testing.assert_allclose(model.directions_[m], X[has].mean(axis=0))
    again = AttributeDirections(estimator, normalize=False, random_state=1).fit(X, table)
    assert np.array_equal(again.directions_, model.directions_) == (estimator != "random")


def test_logistic_and_svm_are_those_of_scikit_learn_column_by_column():
    X, table = data()
    model = AttributeDirections("svm", reg=0.5, normalize=False, random_state=0).fit(X, table)
    theirs = LinearSVC(C=2.0, dual="auto", random_state=0).fit(X, table[:, 2])
    np.testing.assert_allclose(model.decision_function(X)[:, 2], theirs.decision_function(X), atol=1e-3)
    model = AttributeDirections("logistic", reg=0.5, normalize=False).fit(X, table)
    theirs = LogisticRegression(C=2.0, max_iter=1000).fit(X, table[:, 2])
    np.testing.assert_allclose(model.decision_function(X)[:, 2], theirs.decision_function(X), rtol=1e-9)


def test_equivariances():
    """A shift of all embeddings moves thresholds alone; a rotation turns directions; columns are independent."""
    X, table = data()
    model = AttributeDirections().fit(X, table)
    shift, turn = np.arange(6.0), np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    moved = AttributeDirections().fit(X + shift, table)
    np.testing.assert_allclose(moved.directions_, model.directions_, atol=1e-9)
    np.testing.assert_allclose(moved.thresholds_, model.thresholds_ + model.directions_ @ shift, atol=1e-9)
    np.testing.assert_allclose(
        AttributeDirections().fit(X @ turn, table).directions_, model.directions_ @ turn, atol=1e-9
    )
    alone = AttributeDirections().fit(X, table[:, 1])
    np.testing.assert_allclose(alone.decision_function(X), model.decision_function(X)[:, 1], atol=1e-9)
    opposite = AttributeDirections().fit(X, ~table)  # complementary attributes have antipodal directions
    np.testing.assert_allclose(opposite.directions_, -model.directions_, atol=1e-9)


def test_soft_and_hard_incidence():
    X, table = data()
    model = AttributeDirections(alpha=2.0, delta=0.7).fit(X, table)
    margins = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), 1 / (1 + np.exp(-2 * margins)))
    np.testing.assert_array_equal(model.predict(X), model.predict_proba(X) >= 0.7)
    np.testing.assert_array_equal(model.predict_proba(X, alpha=np.inf), margins > 0)
    np.testing.assert_allclose(model.predict_proba(X, alpha=1e9), margins > 0, atol=1e-6)
    line = AttributeDirections("mean").fit([[1.0], [-1.0]], [[1], [0]])  # the border is at 0
    assert line.predict([[0.0], [-1e-9]]).tolist() == [[1], [0]]  # it belongs to the half-space
    assert line.predict_proba([[0.0]], alpha=np.inf).tolist() == [[0.5]]


def test_the_canonical_shift_brings_all_thresholds_to_zero_where_it_can():
    X, table = data()
    model = AttributeDirections().fit(X, table)  # 4 independent directions in 6 dimensions
    assert model.canonical_residual_ < 1e-10
    np.testing.assert_allclose(
        (X - model.canonical_shift_) @ model.directions_.T, model.decision_function(X), atol=1e-9
    )
    both = np.column_stack([table, ~table[:, :1]])  # antipodal directions, thresholds t and -t: still solvable
    assert AttributeDirections().fit(X, both).canonical_residual_ < 1e-10
    shift, residual = canonical_shift([[1.0, 0.0], [1.0, 0.0]], [1.0, 3.0])  # no point lies on both borders
    np.testing.assert_allclose(shift, [2.0, 0.0])
    assert residual == pytest.approx(1.0)
    wide = data(n=40, d=3, m=6)
    assert AttributeDirections().fit(*wide).canonical_residual_ > 1e-3  # more attributes than dimensions


def test_an_attribute_with_too_few_positives_is_named_or_skipped():
    X, table = data()
    table[:, 1] = False
    table[:2, 1] = True
    table[:, 3] = True
    with pytest.raises(ValueError, match=re.escape("attribute 1 (column of y) has 2 positives, fewer than 5")):
        AttributeDirections(min_positives=5).fit(X, table)
    with pytest.raises(ValueError, match=re.escape("attribute 3 (column of y) has 0 negatives, fewer than 1")):
        AttributeDirections().fit(X, table)
    model = AttributeDirections(min_positives=5, on_degenerate="skip").fit(X, table)
    assert model.skipped_ == {1: "2 positives, fewer than 5", 3: "0 negatives, fewer than 5"}
    assert not model.predict(X)[:, 1].any()
    assert model.predict(X)[:, 3].all()
    assert not model.directions_[[1, 3]].any()
    assert model.canonical_residual_ < 1e-10
    for options in ({"alpha": 0.1, "delta": 0.7}, {"alpha": 0.1, "delta": 0.3}):  # where logit(delta) / alpha is large
        model = AttributeDirections(min_positives=5, on_degenerate="skip", **options).fit(X, table)
        np.testing.assert_array_equal(model.predict(X)[:, [1, 3]], np.tile([0, 1], (len(X), 1)))


@pytest.mark.parametrize("call", [([[np.nan, 1.0]], [0.0]), ([[1.0, 1.0]], [np.inf])])
def test_a_shift_of_what_is_not_finite_is_refused(call):
    with pytest.raises(ValueError, match="directions or thresholds have entries that are not finite"):
        canonical_shift(*call)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimator": "tree"}, "estimator='tree'; allowed are 'lda', 'mean', 'random', 'logistic', 'svm'"),
        ({"shrinkage": 1.5}, "shrinkage=1.5; allowed are 'ledoit_wolf', 0 to 1, and None"),
        ({"reg": -1}, "reg=-1; allowed is 0 or more"),
        ({"reg": 0, "estimator": "svm"}, "reg=0; allowed is above 0"),
        ({"alpha": 0}, "alpha=0; allowed is above 0"),
        ({"delta": 1}, "delta=1; allowed is between 0 and 1"),
        ({"min_positives": 0}, "min_positives=0; allowed is 1 or more"),
        ({"on_degenerate": "drop"}, "on_degenerate='drop'; allowed are 'raise' and 'skip'"),
    ],
)
def test_bad_parameters_are_named(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        AttributeDirections(**options).fit(*data())


@pytest.mark.parametrize("shape", [(9, 20), (30, 6)])
def test_a_singular_system_says_what_to_do(shape):
    X, table = data(*shape)
    X[:, 0] = X[:, 1] = 0.0
    with pytest.raises(ValueError, match="singular without shrinkage and reg; set reg above 0"):
        AttributeDirections(shrinkage=None, reg=0.0).fit(X, table)


def test_whitening():
    gamma = np.random.default_rng(0).normal(size=(200, 4)) @ np.diag([1.0, 2.0, 3.0, 4.0]) + 5
    frame = CausalWhitening(ridge=0.0).fit(gamma)
    white = frame.transform(gamma)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(frame.matrix_, frame.matrix_.T)
    flat = CausalWhitening(ridge=0.5).fit(np.array([[1.0, 0.0], [-1.0, 0.0]]))  # eigenvalues 1 and 0, their mean 1/2
    np.testing.assert_allclose(flat.matrix_, np.diag([1.25**-0.5, 0.25**-0.5]), atol=1e-12)
    paired = CausalWhitening("embedding", ridge=0.0).fit(gamma)
    v = np.arange(4.0) + paired.mean_
    logits = (gamma - gamma.mean(axis=0)) @ np.arange(4.0)
    np.testing.assert_allclose(white @ paired.transform(v[None])[0], logits, atol=1e-8)  # the pairing stays as it is
    for options, words in (({"side": "both"}, "side='both'"), ({"ridge": -1.0}, "ridge=-1.0; allowed is 0 or more")):
        with pytest.raises(ValueError, match=re.escape(words)):
            CausalWhitening(**options).fit(gamma)
    with pytest.raises(ValueError, match="allowed is above 0 for rows that do not vary"):
        CausalWhitening(ridge=0.0).fit(np.eye(3)[:2] * 0)
