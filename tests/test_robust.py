"""The recommended classifier: what it promises beyond its two parts."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.heads.test_sklearn import _WithConcept
from tests.probing import quick_probes
from unspur import AFR, DFR, ERM, JSE, JTT, LEACE, SUBG, GroupWeighted, RobustClassifier, load, surgery
from unspur.datasets import make_toy
from unspur.exceptions import FewRowsWarning, GroupSizeError
from unspur.metrics import group_accuracy

TRAIN = make_toy(1500, d=8, rho=0.6, random_state=0)
VAL = make_toy(600, d=8, rho=0.6, random_state=1)
TEST = make_toy(4000, d=8, random_state=2)
HELD_OUT = {"X_val": VAL.Z, "y_val": VAL.y, "concept_val": VAL.concept}


def fitted(model=None, train=TRAIN, **options):
    return (model or RobustClassifier(random_state=0)).fit(train.Z, train.y, concept=train.concept, **options)


@pytest.fixture(scope="module")
def model():
    return fitted()


@pytest.mark.parametrize("head", [GroupWeighted(tol=1e-9), ERM(tol=1e-9)])
@pytest.mark.parametrize("remover", [JSE(metric=0.0), JSE(metric=0.25), LEACE()])
def test_one_linear_layer_equals_the_layer_trained_on_rows_after_the_removal(remover, head):
    one = fitted(RobustClassifier(remover, head, random_state=0))
    after = clone(head).set_params(penalty=one.selection_.penalty)
    after.fit(one.transform(TRAIN.Z), TRAIN.y, concept=TRAIN.concept)
    logits = one.decision_function(TEST.Z)
    assert_allclose(logits, after.decision_function(one.transform(TEST.Z)), atol=1e-5)
    before = clone(after).fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept)  # control: the removal makes a difference
    assert np.abs(before.decision_function(TEST.Z) - logits).max() > 0.1


def test_its_predictions_do_not_change_with_what_was_removed(model):
    assert model.remover_.spurious_.dim == 1
    assert_allclose(model.decision_function(model.transform(TEST.Z)), model.decision_function(TEST.Z), atol=1e-9)
    assert_array_equal(model.predict(TEST.Z), model.predict_proba(TEST.Z).argmax(axis=1))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_dfr_does_not_choose_its_penalty_on_copies_of_the_validation_rows_it_is_trained_on():
    rng, place = np.random.default_rng(0), np.repeat(np.arange(80), 3)
    rows = {"X": rng.normal(size=(200, 60)), "y": np.arange(200) % 2, "concept": np.arange(200) // 2 % 2}
    noise = {"X_val": rng.normal(size=(80, 60))[place], "y_val": place % 2, "concept_val": place // 2 % 2}
    apart = {"clusters": np.arange(1000, 1200), "clusters_val": np.arange(240)}
    model = RobustClassifier(LEACE(), DFR(), random_state=0)
    assert model.fit(**rows, **noise).selection_.loss > 0.6  # chance is log 2
    assert model.fit(**rows, **noise, **apart).selection_.loss < 0.4  # control


def test_validation_rows_choose_and_then_train():
    one = fitted(**HELD_OUT)
    both = [np.concatenate([getattr(TRAIN, name), getattr(VAL, name)]) for name in ("Z", "y", "concept")]
    layer = GroupWeighted(penalty=one.selection_.penalty, tol=1e-9)
    layer.fit(one.transform(both[0]), both[1], concept=both[2])
    assert_allclose(one.decision_function(TEST.Z), layer.decision_function(one.transform(TEST.Z)), atol=1e-4)
    assert min(loss for _, loss in one.selection_.results) == one.selection_.loss


def test_validation_rows_too_few_to_judge_on_are_pooled_and_it_says_so():
    few = {name: values[:25] for name, values in HELD_OUT.items()}
    with pytest.raises(GroupSizeError):
        fitted(JSE(random_state=0), **few)
    with pytest.warns(FewRowsWarning, match="too few rows to test"):
        one = fitted(**few)
    assert "cross-fitted" in one.notes_[0]
    assert one.remover_.spurious_.dim == 1


def test_penalties_are_chosen_on_rows_left_out():
    """With as many columns as rows, a layer without penalty is right in every training row and in few others."""
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=(2, 400))
    Z = rng.standard_normal((400, 300))
    Z[:, 0] += 2.0 * y
    Z[:, 1] += 2.0 * concept
    chosen = RobustClassifier(random_state=0).fit(Z, y, concept=concept)
    assert chosen.selection_.penalty >= 0.01
    losses = {tried["penalty"]: loss for tried, loss in chosen.selection_.results}
    assert losses[1e-6] > losses[chosen.selection_.penalty] + 0.02


def test_rows_may_live_anywhere(tmp_path, model):
    np.save(tmp_path / "z.npy", TRAIN.Z)
    logits = model.decision_function(TEST.Z)
    one = RobustClassifier(random_state=0).fit(
        np.load(tmp_path / "z.npy", mmap_mode="r"), TRAIN.y, concept=TRAIN.concept
    )
    assert_allclose(one.decision_function(TEST.Z), logits, atol=1e-6)
    torch = pytest.importorskip("torch")
    one = RobustClassifier(random_state=0).fit(torch.tensor(TRAIN.Z), TRAIN.y, concept=TRAIN.concept)
    assert_allclose(one.decision_function(TEST.Z), logits, atol=1e-6)
    dask = pytest.importorskip("dask.array")
    chunks = dask.from_array(TRAIN.Z, chunks=(400, -1))
    one = RobustClassifier(random_state=0).fit(chunks, TRAIN.y, concept=TRAIN.concept)
    assert_allclose(one.decision_function(TEST.Z), logits, atol=1e-6)


def test_whole_weights_count_like_repeated_rows():
    weight = np.where(TRAIN.Z[:, 2] > 0, 1, 3)
    one = fitted(RobustClassifier(LEACE(), GroupWeighted(tol=1e-9), random_state=0), sample_weight=weight)
    Z, y, concept = (np.repeat(getattr(TRAIN, name), weight, axis=0) for name in ("Z", "y", "concept"))
    assert_allclose(one.transform(TEST.Z), LEACE().fit(Z, y, concept=concept).transform(TEST.Z), atol=1e-9)
    layer = GroupWeighted(penalty=one.selection_.penalty, tol=1e-9).fit(one.transform(Z), y, concept=concept)
    logits = one.decision_function(TEST.Z)
    assert_allclose(logits, layer.decision_function(one.transform(TEST.Z)), atol=1e-5)
    alike = clone(layer).fit(one.transform(TRAIN.Z), TRAIN.y, concept=TRAIN.concept)  # control
    assert np.abs(logits - alike.decision_function(one.transform(TEST.Z))).max() > 0.01


def test_three_classes_two_concepts_and_gaps():
    rng = np.random.default_rng(0)
    y = rng.choice(["crow", "duck", "gull"], size=3000)
    sea, night = (np.where(rng.random(3000) < 0.7, y == "gull", rng.random(3000) < 0.5) for _ in range(2))
    Z = rng.standard_normal((3000, 10))
    for k, bird in enumerate(("crow", "duck", "gull")):
        Z[:, k] += 2.5 * (y == bird)
    Z[:, 3] += 3.0 * sea
    Z[:, 4] += 3.0 * night
    sea = sea.astype(object)
    sea[:50] = None
    model = RobustClassifier(random_state=0).fit(Z, y, concept={"sea": sea, "night": night})
    assert model.coef_.shape == (3, 10)
    assert list(model.classes_) == ["crow", "duck", "gull"]
    assert group_accuracy(y, model.predict(Z), night).worst > 0.75
    assert np.abs(model.coef_[:, 3:5]).max() < 0.25 * np.abs(model.coef_[:, :3]).max()


@pytest.mark.parametrize("head", [JTT(), ERM(balance="main"), GroupWeighted()])
def test_other_layers_are_folded_as_well(head):
    one = fitted(RobustClassifier(JSE(), head, random_state=0))
    assert one.score(TEST.Z, TEST.y) > 0.75
    assert_allclose(one.decision_function(one.transform(TEST.Z)), one.decision_function(TEST.Z), atol=1e-9)


@quick_probes()
def test_it_is_saved_in_one_file_with_its_removal(model, tmp_path):
    model.certificate(TEST.Z, TEST.y, TEST.concept)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert isinstance(again, RobustClassifier)
    assert_array_equal(again.decision_function(TEST.Z), model.decision_function(TEST.Z))
    assert_array_equal(again.transform(TEST.Z), model.transform(TEST.Z))
    assert str(again.remover_.trace_) == str(model.remover_.trace_)
    assert again.remover_.certificate_.to_dict() == model.remover_.certificate_.to_dict()
    assert again.selection_.results == model.selection_.results
    assert_array_equal(again.predict(TEST.Z), model.predict(TEST.Z))
    fitted(clone(again))  # its parameters make the same classifier
    model.remover_.save(tmp_path / "alone.safetensors")
    assert isinstance(load(tmp_path / "alone.safetensors"), JSE)


def test_a_fit_that_fails_leaves_it_as_it_was(model):
    before = model.decision_function(TEST.Z)
    with pytest.raises(ValueError, match="concept"):
        clone(model).fit(TRAIN.Z, TRAIN.y, concept=None)
    again = fitted()
    with pytest.raises(ValueError, match="one class"):
        again.fit(TRAIN.Z, np.zeros(1500), concept=TRAIN.concept)
    assert_array_equal(again.decision_function(TEST.Z), before)


def test_it_becomes_a_layer(model):
    layer = surgery.fold(model)
    assert_allclose(layer.decision_function(TEST.Z), model.decision_function(TEST.Z), atol=1e-9)


def test_it_takes_part_in_cross_validation():
    with_concept = {"concept": TRAIN.concept}
    scores = cross_val_score(RobustClassifier(random_state=0), TRAIN.Z, TRAIN.y, cv=3, params=with_concept)
    assert scores.min() > 0.7


class RobustWithConcept(_WithConcept, RobustClassifier):
    pass


EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "folds are drawn by row",
    "check_n_features_in_after_fitting": "too few rows for the tests of directions",
    "check_sample_weights_not_overwritten": "too few rows for the tests of directions",
}


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@parametrize_with_checks(
    [RobustWithConcept(JSE(smallest_group=2, penalty=0.1, cv=2, random_state=0), cv=2, random_state=0)],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("head", [SUBG(), DFR(), AFR(), JTT(), ERM()], ids=lambda head: type(head).__name__)
def test_data_frames_that_were_asked_for_do_not_reach_the_head(head):
    """Neither by `set_output` of the remover nor for all of scikit-learn."""
    train = make_toy(600, d=8, rho=0.6, random_state=0)
    plain = fitted(RobustClassifier(LEACE(), head, random_state=0), train)
    own = fitted(RobustClassifier(LEACE().set_output(transform="pandas"), head, random_state=0), train)
    with config_context(transform_output="pandas"):
        everywhere = fitted(RobustClassifier(LEACE(), head, random_state=0), train)
        assert isinstance(everywhere.transform(TEST.Z), pd.DataFrame)  # control
    for other in (own, everywhere):
        assert_array_equal(other.coef_, plain.coef_)


def test_notes_count_rows_that_have_a_weight():
    weight = np.where((TRAIN.y == 0) & (TRAIN.concept == 1), 0.0, 1.0)
    (note,) = fitted(RobustClassifier(LEACE(), random_state=0), sample_weight=weight).notes_
    assert note.startswith("No training row has y and concept = (0, 1)")
    weight[np.flatnonzero(weight == 0)[0]] = 1.0
    (note,) = fitted(RobustClassifier(LEACE(), random_state=0), sample_weight=weight).notes_
    assert note.startswith("1 group has one training row only")
