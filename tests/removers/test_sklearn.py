"""JSE as a citizen of scikit-learn: its own checks, metadata routing, pipelines, searches, output containers."""

import contextlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from unspur import INLP, JSE, LEACE, SAL, SPLINCE
from unspur.datasets import make_toy


def derived_concept(X):
    """Two classes from the rows alone, row by row."""
    rows = np.asarray(X)
    with contextlib.suppress(ValueError, TypeError):
        rows = rows.astype(float) if rows.dtype.kind != "c" else rows
    plain = rows.ndim == 2 and rows.size and rows.dtype.kind == "f"
    digits = rows[:, :2].sum(axis=1) * 500.5 if plain else np.zeros(np.shape(X)[0])
    return np.floor(np.nan_to_num(np.abs(digits), posinf=0)).astype(int) % 2


def two_classes(y):
    labels = None if y is None else np.asarray(y)
    with contextlib.suppress(ValueError, TypeError):
        if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iufO":
            return labels.astype(float) == labels.astype(float).min()
    return y


class WithConcept:
    """For scikit-learn's checks, which know of no concept: derives one from X, and two classes from y."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, two_classes(y), concept=derived_concept(X), sample_weight=sample_weight)


class JSEWithConcept(WithConcept, JSE):
    test_weighting = "plain"  # the checks have few rows


class INLPWithConcept(WithConcept, INLP):
    pass


class SALWithConcept(WithConcept, SAL):
    pass


class SPLINCEWithConcept(WithConcept, SPLINCE):
    pass


class LEACEWithConcept(WithConcept, LEACE):
    def partial_fit(self, X, y=None, sample_weight=None):
        classes = (0, 1)
        return super().partial_fit(
            X, y, concept=derived_concept(X), sample_weight=sample_weight, concept_classes=classes
        )


FAST = {"cv": 2, "balance": "none", "penalty": 0.1, "random_state": 0}


#: Copies share a fold, and which is drawn by row: repeated rows are in other folds than weighted ones.
FOLDS_BY_ROW = {"check_sample_weight_equivalence_on_dense_data": "folds are drawn by row"}


@parametrize_with_checks(
    [
        JSEWithConcept(**FAST),
        INLPWithConcept(**FAST),
        LEACEWithConcept(),
        SALWithConcept(),
        SPLINCEWithConcept(),
    ],
    expected_failed_checks=lambda estimator: FOLDS_BY_ROW if isinstance(estimator, INLP) else {},
)
@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@pytest.mark.filterwarnings("ignore::unspur.exceptions.IllConditionedWarning")
@pytest.mark.filterwarnings("ignore::unspur.exceptions.ClusterWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def toy():
    return make_toy(1200, d=8, rho=0.7, random_state=0)


def test_concept_is_required(toy):
    with pytest.raises(TypeError, match="concept"):
        JSE().fit(toy.Z, toy.y)


def test_pipeline_routes_the_concept(toy, routing):
    pipe = make_pipeline(PCA(), JSE(random_state=0), LogisticRegression())
    pipe.fit(toy.Z, toy.y, concept=toy.concept)
    alone = JSE(random_state=0).fit(PCA().fit_transform(toy.Z), toy.y, concept=toy.concept)
    assert pipe[1].spurious_.dim == alone.spurious_.dim == 1
    np.testing.assert_allclose(np.abs(pipe[1].spurious_.basis), np.abs(alone.spurious_.basis), atol=1e-6)
    assert pipe.score(toy.Z, toy.y) > 0.75


def test_cross_validation_and_search_slice_the_concept_with_the_rows(toy, routing):
    pipe = make_pipeline(JSE(random_state=0, penalty=0.01, cv=0.2), LogisticRegression())
    scores = cross_validate(pipe, toy.Z, toy.y, params={"concept": toy.concept}, cv=3, error_score="raise")
    assert np.mean(scores["test_score"]) > 0.75
    search = GridSearchCV(pipe, {"jse__penalty": np.array([0.01, 1.0])}, cv=2, error_score="raise")
    search.fit(toy.Z, toy.y, concept=toy.concept)
    assert search.best_estimator_[0].spurious_.dim >= 1


def test_a_validation_set_goes_through_the_steps_before(routing):
    toy = make_toy(3000, d=8, rho=0.5, random_state=0)
    toy = replace(toy, Z=toy.Z * [3, 3, 1, 1, 1, 1, 1, 1])  # so that the two features are among the components kept
    n = len(toy.y) // 2
    val = {"X_val": toy.Z[n:], "y_val": toy.y[n:], "concept_val": toy.concept[n:]}
    pipe = Pipeline([("pca", PCA(6)), ("jse", JSE())], transform_input=["X_val"])
    pipe.fit(toy.Z[:n], toy.y[:n], concept=toy.concept[:n], **val)
    assert pipe[1].spurious_.dim == 1
    pca = PCA(6).fit(toy.Z[:n])
    by_hand = JSE().fit(
        pca.transform(toy.Z[:n]), toy.y[:n], concept=toy.concept[:n], **{**val, "X_val": pca.transform(toy.Z[n:])}
    )
    np.testing.assert_allclose(pipe[1].removal_.matrix(), by_hand.removal_.matrix(), atol=1e-8)
    with pytest.raises(ValueError, match="features"):  # control: untransformed, its width gives it away
        Pipeline([("pca", PCA(6)), ("jse", JSE())]).fit(toy.Z[:n], toy.y[:n], concept=toy.concept[:n], **val)


def test_sample_weights_are_routed(toy, routing):
    weight = np.random.default_rng(0).uniform(0.1, 5, len(toy.y))
    pipe = make_pipeline(JSE(random_state=0), LogisticRegression().set_fit_request(sample_weight=True))
    with_weight = clone(pipe).fit(toy.Z, toy.y, concept=toy.concept, sample_weight=weight)[0].spurious_.basis
    without = clone(pipe).fit(toy.Z, toy.y, concept=toy.concept)[0].spurious_.basis
    assert np.abs(with_weight - without).max() > 1e-3


def test_data_frames_come_back_as_data_frames_with_their_names(toy):
    frame = pd.DataFrame(toy.Z.astype(np.float32), columns=[f"unit_{i}" for i in range(8)], index=range(100, 1300))
    jse = JSE(random_state=0).set_output(transform="pandas")
    clean = jse.fit_transform(frame, pd.Series(toy.y), concept=pd.Series(toy.concept))
    assert list(clean.columns) == list(frame.columns) == list(jse.get_feature_names_out())
    assert list(clean.index) == list(frame.index)
    assert (clean.dtypes == np.float32).all()
    with pytest.raises(ValueError, match="feature names"):
        jse.transform(frame.rename(columns={"unit_0": "other"}))


def test_fit_transform_equals_fit_then_transform(toy):
    both = JSE(random_state=0).fit_transform(toy.Z, toy.y, concept=toy.concept)
    jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    np.testing.assert_array_equal(both, jse.transform(toy.Z))


def test_a_wrong_parameter_is_named(toy):
    for name, value in {"balance": "both", "cv": 1, "penalty": -1, "significance_level": 2, "delta": "x"}.items():
        with pytest.raises(ValueError, match=f"'{name}' parameter"):
            JSE(**{name: value}).fit(toy.Z, toy.y, concept=toy.concept)
