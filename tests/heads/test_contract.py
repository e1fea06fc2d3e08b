"""What every head promises."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from unspur import JSE, heads
from unspur.datasets import make_toy
from unspur.exceptions import LabelError, NotConvergedWarning, NotFiniteError
from unspur.heads import AFR, DFR, ERM, SUBG

SETTINGS = {"SUBG": {"random_state": 0}, "DFR": {"n_draws": 3, "random_state": 0}, "AFR": {"random_state": 0}}
HEADS = [kind(**SETTINGS.get(name, {})) for name, kind in heads.HEADS.items()]
NEEDS_CONCEPT = tuple(kind for kind in heads.HEADS.values() if kind._needs_concept)


@pytest.fixture(params=HEADS, ids=lambda head: type(head).__name__)
def head(request):
    return clone(request.param)


def birds(n=600, k=3, concepts=2, seed=0):
    """Rows of k classes and several backgrounds that go together; labels are words, not in the order of codes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    concept = np.where(rng.random(n) < 0.7, y % concepts, rng.integers(concepts, size=n))
    z = rng.standard_normal((n, 6))
    z[np.arange(n), y] += 2.0
    z[:, 5] += 2.0 * concept
    return z, np.array(["wren", "auk", "kite", "tern"])[y], np.array(["sea", "land", "city"])[concept]


@pytest.fixture(scope="module")
def toy():
    return make_toy(600, d=6, rho=0.7, random_state=0)


@pytest.mark.parametrize(("k", "concepts"), [(2, 2), (2, 3), (4, 3)])
def test_predictions_agree_with_each_other(head, k, concepts):
    z, y, concept = birds(k=k, concepts=concepts)
    head.fit(z, y, concept=concept)
    assert_array_equal(head.classes_, np.unique(y))
    lines = 1 if k == 2 else k
    assert head.coef_.shape == (lines, 6)
    assert head.intercept_.shape == (lines,)
    assert head.n_features_in_ == 6
    probability = head.predict_proba(z)
    assert probability.shape == (len(z), k)
    assert_allclose(probability.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(np.exp(head.predict_log_proba(z)), probability, atol=1e-12)
    assert_array_equal(head.predict(z), head.classes_[probability.argmax(axis=1)])
    logits = head.decision_function(z)
    assert_allclose(logits, (z @ head.coef_.T + head.intercept_).squeeze(), atol=1e-10)
    # The order of the classes: a model that exchanged two of them would score below chance.
    assert head.score(z, y) > 0.6
    assert head.outcome_.converged


def test_clone_and_repetition(head, toy):
    copy = clone(head)
    assert copy.get_params() == head.get_params()
    head.fit(toy.Z, toy.y, concept=toy.concept)
    assert not hasattr(copy, "coef_")
    copy.fit(toy.Z, toy.y, concept=toy.concept)
    assert_array_equal(copy.coef_, head.coef_)
    if isinstance(head, SUBG | DFR | AFR):
        other = clone(head).set_params(random_state=1).fit(toy.Z, toy.y, concept=toy.concept)
        assert not np.array_equal(other.coef_, head.coef_)


def test_it_follows_a_remover_in_a_pipeline(head, toy):
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(JSE(random_state=0, cv=0.2, penalty=0.01), head)
        pipe.fit(toy.Z, toy.y, concept=toy.concept)
    clean = pipe[0].transform(toy.Z)
    assert_allclose(pipe[1].coef_, clone(head).fit(clean, toy.y, concept=toy.concept).coef_, rtol=1e-6, atol=1e-9)
    assert pipe.score(toy.Z, toy.y) > 0.7


def test_scale_and_offset_do_not_matter(head):
    z, y, concept = birds(k=3)
    head.set_params(tol=1e-8)
    probability = clone(head).fit(z, y, concept=concept).predict_proba(z)
    for factor, shift in ((1e-3, 0.0), (100.0, 50.0)):
        moved = factor * (z + shift)
        assert_allclose(clone(head).fit(moved, y, concept=concept).predict_proba(moved), probability, atol=1e-4)
    heavier = clone(head).set_params(penalty=1.0).fit(z, y, concept=concept).predict_proba(z)
    assert np.abs(heavier - probability).max() > 0.01  # control: the penalty does act


def test_single_precision_files_and_frames(head, tmp_path):
    z, y, concept = birds(k=3)
    expected = clone(head).fit(z, y, concept=concept).coef_
    single = z.astype(np.float32)
    np.save(tmp_path / "z.npy", single)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    frame = pd.DataFrame(single, columns=list("abcdef"))
    for rows in (single, mapped, frame):
        fitted = clone(head).fit(rows, pd.Series(y), concept=pd.Series(concept))
        assert_allclose(fitted.coef_, expected, atol=1e-3)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"a": "z"}))


def test_rows_without_a_concept(head):
    z, y, concept = birds(k=2)
    gaps = concept.astype(object)
    gaps[::3] = None
    fitted = clone(head).fit(z, y, concept=gaps)
    kept = np.array([value is not None for value in gaps])
    without = clone(head).fit(z[kept], y[kept], concept=concept[kept])
    everything = clone(head).fit(z, y, concept=concept)
    needed = isinstance(head, NEEDS_CONCEPT)
    same, different = (without, everything) if needed else (everything, without)
    if not isinstance(head, SUBG | DFR):  # these draw rows by position
        assert_allclose(fitted.coef_, same.coef_, rtol=1e-4, atol=1e-5)
        assert np.abs(fitted.coef_ - different.coef_).max() > 1e-3
    marked = np.where(kept, concept, "?")
    assert_array_equal(clone(head).set_params(missing_concept="?").fit(z, y, concept=marked).coef_, fitted.coef_)


def test_weight_zero_is_absence(head, toy):
    weight = np.ones(len(toy.y))
    weight[:200] = 0
    fitted = clone(head).fit(toy.Z, toy.y, concept=toy.concept, sample_weight=weight)
    shuffled = toy.Z.copy()
    shuffled[:200] = np.random.default_rng(0).standard_normal((200, 6)) * 9
    again = clone(head).fit(shuffled, toy.y, concept=toy.concept, sample_weight=weight)
    assert_allclose(again.coef_, fitted.coef_, atol=1e-6)
    assert np.abs(clone(head).fit(shuffled, toy.y, concept=toy.concept).coef_ - fitted.coef_).max() > 1e-2


def test_a_failed_fit_leaves_no_trace(head, toy):
    head.fit(toy.Z, toy.y, concept=toy.concept)
    before = head.coef_
    broken = toy.Z.copy()
    broken[3, 2] = np.nan
    with pytest.raises(NotFiniteError, match="1 NaN in column 2"):
        head.fit(broken, toy.y, concept=toy.concept)
    assert head.coef_ is before
    fresh = clone(head)
    with pytest.raises(NotFiniteError):
        fresh.fit(broken, toy.y, concept=toy.concept)
    assert not hasattr(fresh, "n_features_in_")


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        (lambda y: y.astype(object), "i"),
        (lambda y: y + 1.0, "f"),
        (lambda y: np.array(["land", "water"], dtype=object)[y], "O"),
    ],
)
def test_scores_are_accuracies_whatever_the_type_of_the_classes(toy, kind, classes):
    fitted = ERM().fit(toy.Z, kind(toy.y))
    assert fitted.classes_.dtype.kind == classes
    plain, weight = ERM().fit(toy.Z, toy.y), np.arange(600)
    right = plain.predict(toy.Z) == toy.y
    assert fitted.score(toy.Z, kind(toy.y)) == right.mean()
    assert fitted.score(toy.Z, kind(toy.y), weight) == pytest.approx(np.average(right, weights=weight))


def test_scores_of_other_classes(toy):
    fitted = ERM().fit(toy.Z, toy.y)
    unseen = np.where(np.arange(600) < 60, 7, toy.y)
    assert fitted.score(toy.Z, unseen) == pytest.approx((fitted.predict(toy.Z) == unseen).mean())
    with pytest.raises(LabelError, match=r"y has values such as '0'; the classes of the fit are \[0, 1\]"):
        fitted.score(toy.Z, toy.y.astype(str))
    with pytest.raises(LabelError, match="y is missing in 60 rows"):
        fitted.score(toy.Z, np.where(np.arange(600) < 60, np.nan, toy.y))


def test_labels_that_cannot_be_used_are_named(head, toy):
    for bad, message in (
        ({"y": np.zeros(600)}, "one class only"),
        ({"y": toy.y[:-1]}, "599 labels for 600 rows"),
        ({"sample_weight": -np.ones(600)}, "not negative"),
        ({"sample_weight": (toy.y == 0).astype(float)}, "Class 1 of y has no row"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(head).fit(toy.Z, **{"y": toy.y, "concept": toy.concept, **bad})
    if isinstance(head, NEEDS_CONCEPT):
        with pytest.raises(LabelError, match="one class only"):
            clone(head).fit(toy.Z, toy.y, concept=np.zeros(600))
        with pytest.raises(LabelError, match="no row with a positive weight and a known concept"):
            clone(head).fit(toy.Z, toy.y, concept=np.where(toy.y == 1, np.nan, toy.concept))
        with pytest.raises(ValueError, match="together"):
            clone(head).fit(toy.Z, toy.y, concept=toy.concept, X_val=toy.Z, y_val=toy.y)


def test_a_wrong_parameter_is_named(head, toy):
    for name, value in {"penalty": -1, "tol": 0, "max_iter": 0}.items():
        with pytest.raises(ValueError, match=f"'{name}' parameter"):
            clone(head).set_params(**{name: value}).fit(toy.Z, toy.y, concept=toy.concept)


def test_stopping_early_warns(head, toy):
    with pytest.warns(NotConvergedWarning, match="head was not solved"):
        head.set_params(max_iter=1, tol=1e-9).fit(toy.Z, toy.y, concept=toy.concept)
    assert not head.outcome_.converged


def test_there_is_no_method_outside_this_suite():
    assert {type(head).__name__ for head in HEADS} == set(heads.HEADS) == set(heads.__all__) - {"HEADS", "Head"}
