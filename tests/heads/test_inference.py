"""Concepts that are known for few rows: what is inferred for the others, and how it becomes weights."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from unspur import LEACE, RobustClassifier, load
from unspur._data import decode_fit_arguments
from unspur._validation import generator
from unspur.datasets import make_toy
from unspur.exceptions import UninformativeInferenceWarning
from unspur.heads import ERM, GroupWeighted
from unspur.heads.inference import PROBE_TOL, infer_concept
from unspur.metrics import group_accuracy
from unspur.selection import tune_head

TOY, TEST = make_toy(3000, d=10, rho=0.9, random_state=0), make_toy(6000, d=10, rho=0.0, random_state=1)


def partly_known(number, concept=TOY.concept, seed=0):
    """The concept, missing in all but some rows."""
    known = np.random.default_rng(seed).permutation(len(concept))[:number]
    labels = np.full(len(concept), np.nan)
    labels[known] = concept[known]
    return labels


def inferred(Z, y, concept, **weights):
    """Probabilities of the classes of the concept."""
    rows = decode_fit_arguments(GroupWeighted(), Z, y, concept, **weights)
    return infer_concept(GroupWeighted(tol=PROBE_TOL), rows, generator(0))


def test_nothing_changes_if_all_concepts_are_known():
    plain = GroupWeighted().fit(TOY.Z, TOY.y, concept=TOY.concept)
    same = GroupWeighted(unknown="infer").fit(TOY.Z, TOY.y, concept=TOY.concept)
    assert_array_equal(same.coef_, plain.coef_)
    assert_array_equal(same.group_counts_, plain.group_counts_)
    few = partly_known(300)
    assert np.abs(GroupWeighted(unknown="infer").fit(TOY.Z, TOY.y, concept=few).coef_ - plain.coef_).max() > 1e-3


def test_weights_are_shares_of_groups():
    """By hand: a row counts for each group by its probability, and groups have the same total."""
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 3000)
    concept = partly_known(300)
    found = inferred(TOY.Z, TOY.y, concept, sample_weight=weight).probability
    known = ~np.isnan(concept)
    found[known] = np.eye(2)[concept[known].astype(int)]
    omega = np.zeros(3000)
    for y in (0, 1):
        own = TOY.y == y
        omega[own] = weight[own] * (found[own] / (weight[own, None] * found[own]).sum(axis=0)).sum(axis=1)
    head = GroupWeighted(unknown="infer", random_state=0, tol=1e-8)
    head.fit(TOY.Z, TOY.y, concept=concept, sample_weight=weight)
    by_hand = ERM(tol=1e-8).fit(TOY.Z, TOY.y, sample_weight=omega)
    assert_allclose(head.coef_, by_hand.coef_, atol=1e-6)
    assert np.abs(ERM().fit(TOY.Z, TOY.y, sample_weight=weight).coef_ - by_hand.coef_).max() > 0.2
    assert_allclose(head.group_counts_.sum(axis=1), np.bincount(TOY.y))


def test_probabilities_are_calibrated_within_classes():
    concept = partly_known(600)
    unknown = np.isnan(concept)
    probability = inferred(TOY.Z, TOY.y, concept).probability[unknown, 1]
    truth, y = TOY.concept[unknown], TOY.y[unknown]
    for main in (0, 1):
        own = y == main
        assert abs(probability[own].mean() - truth[own].mean()) < 0.03
        order = np.argsort(probability[own])
        for part in np.array_split(order, 6):
            assert abs(probability[own][part].mean() - truth[own][part].mean()) < 0.1
    brier = np.mean((probability - truth) ** 2)
    chance = np.mean((np.array([TOY.concept[TOY.y == main].mean() for main in (0, 1)])[y] - truth) ** 2)
    assert brier < 0.8 * chance  # control: not just the shares of the classes
    hard = np.mean((np.round(probability) - truth) ** 2)
    assert brier < 0.8 * hard  # nor certain where it is not


@pytest.mark.parametrize("seed", range(3))
def test_few_labels_go_a_long_way(seed):
    concept = partly_known(100, seed=seed)
    everything = GroupWeighted().fit(TOY.Z, TOY.y, concept=TOY.concept)
    few = GroupWeighted().fit(TOY.Z, TOY.y, concept=concept)
    more = GroupWeighted(unknown="infer", random_state=0).fit(TOY.Z, TOY.y, concept=concept)
    worst = [group_accuracy(TEST.y, head.predict(TEST.Z), TEST.concept).worst for head in (few, more, everything)]
    assert worst[1] > worst[0] + 0.03
    assert worst[1] > worst[2] - 0.06


@pytest.mark.parametrize("seed", range(4))
def test_a_concept_that_is_not_in_the_rows_leaves_classes_of_equal_weight(seed):
    rng = np.random.default_rng(seed)
    concept = partly_known(400, np.where(rng.random(3000) < 0.8, TOY.y, 1 - TOY.y), seed)
    with pytest.warns(UninformativeInferenceWarning, match="not clearly better than chance. Label more rows"):
        head = GroupWeighted(unknown="infer").fit(TOY.Z, TOY.y, concept=concept)
    with pytest.warns(UninformativeInferenceWarning):  # also where its penalty is chosen
        tune_head(GroupWeighted(unknown="infer"), {"penalty": (0.1,)}, (TOY.Z, TOY.y, concept))
    balanced = ERM(balance="main").fit(TOY.Z, TOY.y)
    few = GroupWeighted().fit(TOY.Z, TOY.y, concept=concept)
    near, far = (np.linalg.norm(one.coef_ - balanced.coef_) for one in (head, few))
    assert near < 0.6 * far  # labelled rows alone are the control


def test_labels_that_are_too_few_to_predict_give_shares():
    rare = partly_known(300)
    rare[np.flatnonzero(rare == 1)[4:]] = np.nan
    same = np.where(TOY.concept == TOY.y, partly_known(300), np.nan)
    for concept in (rare, same):
        with pytest.warns(UninformativeInferenceWarning, match="not clearly better than chance"):
            GroupWeighted(unknown="infer").fit(TOY.Z, TOY.y, concept=concept)
        found = inferred(TOY.Z, TOY.y, concept)
        assert not found.better_than_chance
        for y in (0, 1):
            assert_allclose(found.probability[TOY.y == y].std(axis=0), 0.0, atol=0.02)
    assert inferred(TOY.Z, TOY.y, partly_known(300)).probability[TOY.y == 0].std() > 0.1  # control


def test_a_group_without_labelled_rows_is_found_by_its_concept():
    concept = partly_known(600)
    concept[(TOY.y == 1) & (concept == 0)] = np.nan
    found = inferred(TOY.Z, TOY.y, concept)
    assert "No labelled row is in 1, 0.0, so its share is a guess." in found.note
    guess, truth = found.probability[TOY.y == 1, 0], TOY.concept[TOY.y == 1] == 0
    assert 0 < guess.mean() < 0.1
    assert guess[truth].mean() > 2 * guess[~truth].mean()
    # Where next to no row is missing, a group that has none stays empty.
    nearly = np.where((TOY.y == 1) & (TOY.concept == 0), 1.0, TOY.concept)
    nearly[:20] = np.nan
    found = inferred(TOY.Z, TOY.y, nearly)
    assert "No labelled row" not in found.note
    assert_array_equal(found.probability[TOY.y == 1, 0], 0.0)
    assert found.probability[TOY.y == 0, 1].max() > 0.5
    assert GroupWeighted(unknown="infer").fit(TOY.Z, TOY.y, concept=nearly).group_counts_[1, 0] == 0


def test_rows_without_weight_are_absent():
    concept, weight = partly_known(500), np.ones(3000)
    weight[1000:2000] = 0
    fitted = GroupWeighted(unknown="infer", random_state=0).fit(TOY.Z, TOY.y, concept=concept, sample_weight=weight)
    other = TOY.Z.copy()
    other[1000:2000] += np.random.default_rng(0).standard_normal((1000, 10))
    again = GroupWeighted(unknown="infer", random_state=0).fit(other, TOY.y, concept=concept, sample_weight=weight)
    assert_allclose(again.coef_, fitted.coef_, atol=1e-6)
    assert again.group_counts_.sum() == pytest.approx(2000)
    assert np.abs(GroupWeighted(unknown="infer").fit(other, TOY.y, concept=concept).coef_ - fitted.coef_).max() > 1e-2


def test_several_classes_and_concepts():
    season = np.digitize(TOY.Z[:, 3] + 0.3 * TOY.y, [-0.5, 0.5])
    third = np.digitize(TOY.Z[:, 0] + TOY.Z[:, 1], [-1.0, 1.0])
    for y, concept in ((third, season), (TOY.y, np.column_stack([TOY.concept, season == 1]))):
        few = concept.astype(float)
        few[np.random.default_rng(0).permutation(3000)[500:]] = np.nan
        head = GroupWeighted(unknown="infer", random_state=0).fit(TOY.Z, y, concept=few)
        full = GroupWeighted().fit(TOY.Z, y, concept=concept)
        assert head.group_counts_.shape == full.group_counts_.shape
        assert np.abs(head.group_counts_ - full.group_counts_).max() < 150
        left_out = GroupWeighted().fit(TOY.Z, y, concept=few)
        assert np.abs(head.coef_ - full.coef_).max() < 0.7 * np.abs(left_out.coef_ - full.coef_).max()


def test_rows_in_files_and_wide_rows(tmp_path):
    concept = partly_known(400)
    expected = GroupWeighted(unknown="infer", random_state=0).fit(TOY.Z, TOY.y, concept=concept)
    np.save(tmp_path / "rows.npy", TOY.Z)
    in_files = GroupWeighted(unknown="infer", random_state=0).fit(
        np.load(tmp_path / "rows.npy", mmap_mode="r"), TOY.y, concept=concept
    )
    assert_allclose(in_files.coef_, expected.coef_, atol=1e-6)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((700, 10)))[0]
    part = slice(0, 600)
    narrow, wide = (
        GroupWeighted(unknown="infer", random_state=0).fit(Z, TOY.y[part], concept=concept[part])
        for Z in (TOY.Z[part], TOY.Z[part] @ basis.T)
    )
    assert_allclose(wide.coef_ @ basis, narrow.coef_, atol=1e-3)


@pytest.mark.parametrize("library", ["torch", "dask.array"])
def test_rows_elsewhere(library):
    module = pytest.importorskip(library)
    Z = module.from_numpy(TOY.Z) if library == "torch" else module.from_array(TOY.Z, chunks=(700, 10))
    here, there = (
        GroupWeighted(unknown="infer", random_state=0).fit(rows, TOY.y, concept=partly_known(400))
        for rows in (TOY.Z, Z)
    )
    assert_allclose(there.coef_, here.coef_, atol=1e-9)


@pytest.mark.parametrize("validated", [False, True])
def test_the_classifier_passes_it_on(validated, tmp_path):
    concept, held = partly_known(200), make_toy(600, d=10, rho=0.9, random_state=5)
    given = {"X_val": held.Z, "y_val": held.y, "concept_val": held.concept} if validated else {}
    worst = {}
    for unknown in ("ignore", "infer"):
        model = RobustClassifier(LEACE(), GroupWeighted(unknown=unknown), random_state=0)
        model.fit(TOY.Z, TOY.y, concept=concept, **given)
        worst[unknown] = group_accuracy(TEST.y, model.predict(TEST.Z), TEST.concept).worst
        assert model.head_.group_counts_.shape == (2, 2)
        assert (model.head_.group_counts_.sum() > 2999) == (unknown == "infer")
    assert worst["infer"] > worst["ignore"] - (0.01 if validated else -0.02)
    assert "2,800 of 3,000 rows have no concept and were left out of the removal." in model.notes_
    assert any("inferred from 200 labelled rows" in note for note in model.notes_)
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.head_.unknown == "infer"
    assert_array_equal(loaded.predict(TEST.Z), model.predict(TEST.Z))


def test_of_several_concepts_those_that_are_known_are_kept():
    rng = np.random.default_rng(0)
    other = rng.integers(2, size=len(TOY.y))
    Z = TOY.Z + np.outer(other, np.eye(10)[5])
    both = np.column_stack([TOY.concept.astype(float), partly_known(200, other)])
    missing = np.isnan(both[:, 1])
    found = inferred(Z, TOY.y, both).probability[missing].reshape(-1, 2, 2)
    assert_allclose(found.sum(axis=2), np.eye(2)[TOY.concept[missing]], atol=1e-12)
    head = GroupWeighted(unknown="infer", random_state=0).fit(Z, TOY.y, concept=both)
    counts = np.zeros((2, 2))
    np.add.at(counts, (TOY.y, TOY.concept), 1)
    assert_allclose(head.group_counts_.reshape(2, 2, 2).sum(axis=2), counts)


def test_a_known_class_that_no_labelled_row_has_is_kept():
    """Nothing tells the other concept of such rows, so its classes have equal shares."""
    other = partly_known(200, np.random.default_rng(0).integers(2, size=len(TOY.y)))
    first = np.where(np.isnan(other) & (TOY.Z[:, 7] > 1.5), 2.0, TOY.concept)
    found = inferred(TOY.Z, TOY.y, np.column_stack([first, other]))
    rows = first == 2
    assert_array_equal(found.probability[rows], np.tile([0, 0, 0, 0, 0.5, 0.5], (rows.sum(), 1)))
    assert f"No labelled row agrees with what is known of {rows.sum()} rows" in found.note


def test_rows_without_a_concept_choose_the_penalty_too():
    concept = partly_known(60)
    grid = {"penalty": (10.0, 1.0, 0.1, 0.01, 1e-3)}
    few = tune_head(GroupWeighted(), grid, (TOY.Z, TOY.y, concept))
    more = tune_head(GroupWeighted(unknown="infer", random_state=0), grid, (TOY.Z, TOY.y, concept))
    full = tune_head(GroupWeighted(), grid, (TOY.Z, TOY.y, TOY.concept))
    losses = [np.array([loss for _, loss in found.results]) for found in (few, more, full)]
    # A dozen labelled rows say little about a loss; six hundred inferred ones say nearly as much as labelled ones.
    assert np.abs(losses[1] - losses[2]).max() < 0.1
    assert np.abs(losses[0] - losses[2]).max() > 0.1
    everything = tune_head(GroupWeighted(unknown="infer"), grid, (TOY.Z, TOY.y, TOY.concept))
    assert everything.results == full.results


def test_the_classifier_is_the_same_if_all_concepts_are_known():
    one, other = (
        RobustClassifier(LEACE(), GroupWeighted(unknown=unknown), random_state=0).fit(TOY.Z, TOY.y, concept=TOY.concept)
        for unknown in ("ignore", "infer")
    )
    assert_array_equal(one.coef_, other.coef_)


def test_the_classifier_says_when_labels_are_too_few():
    rng = np.random.default_rng(0)
    concept = partly_known(400, np.where(rng.random(3000) < 0.8, TOY.y, 1 - TOY.y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RobustClassifier(LEACE(), GroupWeighted(unknown="infer"), random_state=0)
        model.fit(TOY.Z, TOY.y, concept=concept)
    assert any("better than chance" in note for note in model.notes_)


def repeated(seed, shown, near=0.0):
    """150 rows in 600, four times each, equal or `near`; the concept of a part of them, `shown` by X or not."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=150)
    concept = np.where(rng.random(150) < 0.8, y, 1 - y).astype(float)
    X = rng.standard_normal((150, 20))
    X[:, 0] += 2 * y
    X[:, 1] += 3 * concept * shown
    concept[rng.random(150) < 0.4] = np.nan
    X, y, concept = (np.repeat(part, 4, axis=0) for part in (X, y, concept))
    return X + near * rng.standard_normal(X.shape), y, concept


@pytest.mark.parametrize("near", [0.0, 0.1], ids=["copies", "clusters"])
@pytest.mark.parametrize("robust", [False, True])
def test_rows_that_are_repeated_do_not_make_chance_look_like_a_finding(near, robust):
    clusters = np.repeat(np.arange(150), 4) if near else None

    def warned(seed, shown):
        X, y, concept = repeated(seed, shown, near)
        head = GroupWeighted(unknown="infer", random_state=seed)
        model = RobustClassifier(LEACE(), head, random_state=seed) if robust else head
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y, concept=concept, clusters=clusters)
        return any(issubclass(one.category, UninformativeInferenceWarning) for one in caught)

    assert all(warned(seed, shown=False) for seed in range(5 if robust else 20))
    assert not any(warned(seed, shown=True) for seed in range(5))
