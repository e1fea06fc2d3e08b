"""The heads as citizens of scikit-learn: its own checks, metadata routing, pipelines, searches."""

import contextlib

import numpy as np
import pytest
import sklearn
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from unspur import JSE
from unspur.datasets import make_toy
from unspur.heads import AFR, DFR, ERM, JTT, SUBG, GroupDRO, GroupWeighted


class _WithConcept:
    """For scikit-learn's checks, which know of no concept: derives one from X, row by row."""

    def fit(self, X, y, sample_weight=None):
        rows = np.asarray(X)
        with contextlib.suppress(ValueError, TypeError):
            rows = rows.astype(float) if rows.dtype.kind != "c" else rows
        plain = rows.ndim == 2 and rows.size and rows.dtype.kind == "f"
        digits = rows[:, :2].sum(axis=1) * 500.5 if plain else np.zeros(np.shape(X)[0])
        concept = np.floor(np.nan_to_num(np.abs(digits), posinf=0)).astype(int) % 2
        if len(concept) and len(np.unique(concept)) == 1:
            concept = np.arange(len(concept)) % 2
        return super().fit(X, y, concept=concept, sample_weight=sample_weight)


class ERMWithConcept(_WithConcept, ERM):
    pass


class GroupWeightedWithConcept(_WithConcept, GroupWeighted):
    pass


class SUBGWithConcept(_WithConcept, SUBG):
    pass


class GroupDROWithConcept(_WithConcept, GroupDRO):
    pass


class JTTWithConcept(_WithConcept, JTT):
    pass


class DFRWithConcept(_WithConcept, DFR):
    pass


class AFRWithConcept(_WithConcept, AFR):
    pass


def expected_failures(estimator):
    """Where rows are drawn at random, weights cannot stand for repetition."""
    if isinstance(estimator, SUBG | DFR | AFR):
        return {"check_sample_weight_equivalence_on_dense_data": "draws rows"}
    return {}


@parametrize_with_checks(
    [
        ERMWithConcept(),
        GroupWeightedWithConcept(),
        SUBGWithConcept(random_state=0),
        GroupDROWithConcept(),
        JTTWithConcept(),
        DFRWithConcept(n_draws=2, random_state=0),
        AFRWithConcept(random_state=0),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore::unspur.exceptions.NoErrorsWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def toy():
    return make_toy(800, d=6, rho=0.7, random_state=0)


def test_concept_is_required_where_groups_are(toy):
    for head in (GroupWeighted, SUBG, GroupDRO, DFR):
        for given in ({}, {"concept": None}):
            with pytest.raises(ValueError, match="concept is missing"):
                head().fit(toy.Z, toy.y, **given)
    for head in (ERM(), JTT(), AFR(), DFR(balance="main")):
        head.fit(toy.Z, toy.y)


def test_searches_slice_the_concept_with_the_rows(toy, routing):
    pipe = make_pipeline(PCA(), GroupDRO())
    scores = cross_validate(pipe, toy.Z, toy.y, params={"concept": toy.concept}, cv=3, error_score="raise")
    assert np.mean(scores["test_score"]) > 0.75
    search = GridSearchCV(pipe, {"groupdro__adjustment": [0.0, 1.0]}, cv=2, error_score="raise")
    assert search.fit(toy.Z, toy.y, concept=toy.concept).best_estimator_[1].coef_.shape == (1, 6)


def test_a_validation_set_passes_through_the_steps_before_the_head(toy, routing):
    n = 500
    val = {"X_val": toy.Z[n:], "y_val": toy.y[n:], "concept_val": toy.concept[n:]}
    head = DFR(random_state=0).set_fit_request(X_val=True, y_val=True, concept_val=True)
    pipe = Pipeline([("pca", PCA(4)), ("dfr", head)], transform_input=["X_val"])
    pipe.fit(toy.Z[:n], toy.y[:n], concept=toy.concept[:n], **val)
    pca = PCA(4).fit(toy.Z[:n])
    by_hand = DFR(random_state=0).fit(
        pca.transform(toy.Z[:n]), toy.y[:n], concept=toy.concept[:n], **{**val, "X_val": pca.transform(toy.Z[n:])}
    )
    np.testing.assert_allclose(pipe[1].coef_, by_hand.coef_, atol=1e-10)
    without = DFR(random_state=0).fit(pca.transform(toy.Z[:n]), toy.y[:n], concept=toy.concept[:n])
    assert np.abs(without.coef_ - by_hand.coef_).max() > 1e-3


def test_remove_then_reweight_is_two_lines(toy, routing):
    pipe = make_pipeline(JSE(random_state=0, cv=0.2, penalty=0.01), GroupWeighted())
    pipe.fit(toy.Z, toy.y, concept=toy.concept)
    basis = pipe[0].spurious_.basis
    assert basis.shape[1] >= 1
    along = np.linalg.norm(pipe[1].coef_ @ basis) / np.linalg.norm(pipe[1].coef_)
    alone = GroupWeighted().fit(toy.Z, toy.y, concept=toy.concept)
    assert along < 1e-6 < np.linalg.norm(alone.coef_ @ basis) / np.linalg.norm(alone.coef_)
