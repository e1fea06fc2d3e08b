"""What `RobustClassifier` makes of weights, gaps, clusters, copies and parts that users bring."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.optional import torch
from tests.probing import quick_probes
from unspur import (
    AFR,
    DFR,
    ERM,
    JSE,
    JTT,
    LEACE,
    SPLINCE,
    SUBG,
    GroupDRO,
    GroupWeighted,
    RobustClassifier,
    load,
)
from unspur.datasets import make_toy
from unspur.exceptions import (
    ClusterWarning,
    EverythingRemovedWarning,
    FewRowsWarning,
    InputError,
    TaskLostWarning,
    UsedRowsWarning,
)

TRAIN, TEST = make_toy(1000, rho=0.8, random_state=0), make_toy(1000, rho=0.0, random_state=1)
VALIDATION = make_toy(500, rho=0.8, random_state=2)
HELD_OUT = {"X_val": VALIDATION.Z, "y_val": VALIDATION.y, "concept_val": VALIDATION.concept}
HEADS = [GroupWeighted(), ERM(), ERM(balance="main"), SUBG(), DFR(), JTT(upweight=2.0), GroupDRO(), AFR()]


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_rows_without_weight_change_nothing(head):
    junk = make_toy(1500, rho=0.8, random_state=3)
    X, concept = np.vstack([TRAIN.Z, junk.Z]), np.append(TRAIN.concept, junk.concept)
    y = np.append(TRAIN.y, 1 - junk.y)  # all of them wrong
    weight = np.append(np.ones(1000), np.zeros(1500))
    model = RobustClassifier(LEACE(), head, random_state=0)
    accuracy = model.fit(X, y, concept=concept, sample_weight=weight).score(TEST.Z, TEST.y)
    assert accuracy > 0.7
    assert model.fit(X, y, concept=concept).score(TEST.Z, TEST.y) < 0.6  # had they counted


def test_weights_count_in_the_choice_of_the_penalty():
    rng = np.random.default_rng(0)
    X, y = np.vstack([TRAIN.Z, TRAIN.Z]), np.append(TRAIN.y, rng.permutation(TRAIN.y))
    concept, model = np.append(TRAIN.concept, TRAIN.concept), RobustClassifier(LEACE(), random_state=0)
    clusters = np.tile(np.arange(1000), 2)
    tiny, equal = (
        model.fit(
            X, y, concept=concept, clusters=clusters, sample_weight=np.append(np.ones(1000), np.full(1000, weight))
        ).selection_.loss
        for weight in (1e-9, 1.0)
    )
    assert tiny < equal - 0.03  # rows with labels drawn at random have no say


@pytest.mark.parametrize("head", [SUBG(), GroupDRO()], ids=str)
def test_every_layer_is_trained_on_validation_rows_as_well(head):
    model = RobustClassifier(LEACE(), head, random_state=0)
    coef = model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, **HELD_OUT).coef_
    penalty = model.selection_.penalty
    alone = type(head)(random_state=model.head_.random_state, penalty=penalty)
    clean = [model.transform(part.Z) for part in (TRAIN, VALIDATION)]
    y, concept = (np.append(getattr(TRAIN, name), getattr(VALIDATION, name)) for name in ("y", "concept"))
    pooled = alone.fit(np.vstack(clean), y, concept=concept).decision_function(model.transform(TEST.Z))
    np.testing.assert_allclose(TEST.Z @ coef[0] + model.intercept_[0], pooled, atol=1e-6)
    only_train = alone.fit(clean[0], TRAIN.y, concept=TRAIN.concept).decision_function(model.transform(TEST.Z))
    assert np.abs(only_train - pooled).max() > 1e-3


def test_dfr_is_trained_on_validation_rows_alone():
    model = RobustClassifier(LEACE(), DFR(), random_state=0)
    model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, **HELD_OUT)
    alone = DFR(random_state=model.head_.random_state, penalty=model.selection_.penalty)
    held_out = {**HELD_OUT, "X_val": model.transform(VALIDATION.Z)}
    alone.fit(model.transform(TRAIN.Z), TRAIN.y, concept=TRAIN.concept, **held_out)
    rows = model.transform(TEST.Z)
    np.testing.assert_allclose(model.decision_function(TEST.Z), alone.decision_function(rows), atol=1e-6)
    assert model.head_.group_counts_.sum() == len(VALIDATION.y)


def test_rows_of_two_kinds_are_both_trained_on():
    torch_rows = {**HELD_OUT, "X_val": torch.from_numpy(VALIDATION.Z)}
    model = RobustClassifier(LEACE(), SUBG(), random_state=0)
    same, mixed = (
        model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, **given).coef_ for given in (HELD_OUT, torch_rows)
    )
    np.testing.assert_allclose(mixed, same, atol=1e-8)


def test_balanced_classes_have_the_penalty_units_of_rows_weighted_so():
    """The removal is not applied to the rows, yet the head is that of transformed rows."""
    y = np.where(np.arange(len(TRAIN.y)) % 3 == 0, TRAIN.y, 0)  # one class is rare
    model = RobustClassifier(LEACE(), ERM(balance="main"), random_state=0).fit(TRAIN.Z, y, concept=TRAIN.concept)
    alone = ERM(balance="main", penalty=model.selection_.penalty).fit(model.transform(TRAIN.Z), y)
    plain = ERM(penalty=model.selection_.penalty).fit(model.transform(TRAIN.Z), y)
    logits = alone.decision_function(model.transform(TRAIN.Z))
    np.testing.assert_allclose(model.decision_function(TRAIN.Z), logits, atol=1e-3)
    assert np.abs(plain.decision_function(model.transform(TRAIN.Z)) - logits).max() > 0.1


def test_validation_rows_are_checked_for_every_remover():
    same = {"X_val": TRAIN.Z, "y_val": TRAIN.y, "concept_val": TRAIN.concept}
    with pytest.warns(UsedRowsWarning, match="1,000 of 1,000 validation rows are training rows"):
        RobustClassifier(LEACE(), random_state=0).fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, **same)
    films = {"clusters": np.arange(1000) // 2, "clusters_val": np.arange(500) // 2}
    with pytest.raises(InputError, match="250 clusters are among the training rows"):
        RobustClassifier(LEACE()).fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, **HELD_OUT, **films)


def test_rows_without_a_concept_are_counted_in_the_notes():
    some = TRAIN.concept.astype(float)
    some[::4] = np.nan
    model = RobustClassifier(LEACE(), ERM(), random_state=0).fit(TRAIN.Z, TRAIN.y, concept=some)
    assert "250 of 1,000 rows have no concept and were left out." in model.notes_
    assert not model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept).notes_
    weight = np.arange(1000) % 8 > 0  # half of the rows without a concept have no weight
    for head, end in ((ERM(), "."), (GroupWeighted(unknown="infer"), " of the removal.")):
        model = RobustClassifier(LEACE(), head, random_state=0)
        model.fit(TRAIN.Z, TRAIN.y, concept=some, sample_weight=weight.astype(float))
        assert f"125 of 875 rows have no concept and were left out{end}" in model.notes_


@pytest.mark.parametrize("where", ["classifier", "remover", "head"])
@quick_probes()
def test_a_code_for_not_known_is_that_of_all_parts(where, tmp_path):
    rng = np.random.default_rng(0)
    coded, fresh = (np.where(rng.random(1000) < 0.3, -1, part.concept) for part in (TRAIN, TEST))
    given = {
        "classifier": {"missing_concept": -1},
        "remover": {"remover": JSE(missing_concept=-1, random_state=0)},
        "head": {"head": GroupWeighted(missing_concept=-1)},
    }[where]
    model = RobustClassifier(**given, random_state=0).fit(TRAIN.Z, TRAIN.y, concept=coded)
    assert model.remover_.concept_classes_ == (0, 1)
    certificate = model.certificate(TEST.Z, TEST.y, fresh)
    gaps = model.certificate(TEST.Z, TEST.y, np.where(fresh < 0, np.nan, fresh))
    assert certificate.rows == gaps.rows == np.sum(fresh >= 0)
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").missing_concept == -1


def test_two_codes_for_not_known_are_refused():
    model = RobustClassifier(JSE(missing_concept=-1), missing_concept=9)
    with pytest.raises(InputError, match=r"missing_concept differs: RobustClassifier 9, JSE -1"):
        model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept)


def test_clusters_of_two_sets_are_told_apart_by_their_labels():
    def films(name: str, n: int) -> np.ndarray:
        return np.array([f"{name} {i // 2}" for i in range(n)])

    given = {"concept": TRAIN.concept, **HELD_OUT, "clusters": films("train", 1000)}
    model = RobustClassifier(random_state=0).fit(TRAIN.Z, TRAIN.y, **given, clusters_val=films("val", 500))
    assert model.remover_.spurious_.dim == 1
    with pytest.raises(InputError, match=r"250 clusters are among the training rows and .*, such as 'train 0'"):
        RobustClassifier(random_state=0).fit(TRAIN.Z, TRAIN.y, **given, clusters_val=films("train", 500))


def test_copies_of_a_row_share_a_fold_when_the_penalty_is_chosen():
    rng = np.random.default_rng(0)
    few = make_toy(250, rho=0.5, random_state=0)
    X, copied = np.hstack([few.Z, rng.normal(size=(250, 150))]), np.repeat(np.arange(250), 4)
    model = RobustClassifier(LEACE(), random_state=0)
    model.fit(X[copied], few.y[copied], concept=few.concept[copied])
    assert model.selection_.loss > 0.4
    rows = model.fit(X, few.y, concept=few.concept).selection_.loss
    assert rows > 0.4  # as without copies; in folds that tear copies apart the loss is next to 0


def test_only_the_penalty_of_a_layer_is_chosen_and_a_saved_one_keeps_its_parameters(tmp_path):
    model = RobustClassifier(LEACE(), GroupDRO(adjustment=2.5), random_state=7)
    model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept).save(tmp_path / "model.safetensors")
    assert model.head_.adjustment == 2.5
    assert set(model.selection_.parameters) == {"penalty"}
    again = load(tmp_path / "model.safetensors")
    assert again.head.adjustment == 2.5
    assert again.random_state == 7


def test_a_task_that_goes_with_one_of_two_features_is_said_to_be_lost():
    rng = np.random.default_rng(0)
    latent = rng.normal(size=1200)
    y, concept = (
        (latent + rng.normal(size=1200) > 0).astype(int),
        (latent + 0.3 * rng.normal(size=1200) > 0).astype(int),
    )
    with pytest.warns(TaskLostWarning):
        JSE(random_state=0).fit(np.column_stack([latent, rng.normal(size=1200)]), y, concept=concept)


def test_too_few_training_rows_are_not_blamed_on_the_validation_rows():
    rows = np.flatnonzero((TRAIN.y == 1) | (TRAIN.concept == 0))[:100]  # one group has none
    with pytest.warns(FewRowsWarning, match="training and validation rows were pooled"):
        RobustClassifier(random_state=0).fit(TRAIN.Z[rows], TRAIN.y[rows], concept=TRAIN.concept[rows], **HELD_OUT)


def test_validation_rows_do_not_pass_a_pipeline_untransformed_in_silence():
    scaled = {**HELD_OUT, "X_val": 100 * VALIDATION.Z + 5}
    fit = {"X": 100 * TRAIN.Z + 5, "y": TRAIN.y, "concept": TRAIN.concept}
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(TypeError, match="X_val"):
            make_pipeline(StandardScaler(), RobustClassifier(random_state=0)).fit(**fit, **scaled)
        asked = RobustClassifier(random_state=0).set_fit_request(X_val=True, y_val=True, concept_val=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("model", asked)], transform_input=["X_val"])
        assert pipeline.fit(**fit, **scaled).score(100 * TEST.Z + 5, TEST.y) > 0.8


def test_copies_are_warned_of_once():
    rows = np.append(np.arange(1000), np.arange(200))
    with pytest.warns(ClusterWarning, match="exact duplicates"):
        RobustClassifier(random_state=0).fit(TRAIN.Z[rows], TRAIN.y[rows], concept=TRAIN.concept[rows])


@pytest.mark.parametrize("validated", [False, True])
def test_rows_without_a_concept_count_for_nothing_even_where_they_are_most(validated):
    toy, known = make_toy(900, rho=0.7, random_state=0), np.arange(900) % 5 < 2
    concept = np.where(known, toy.concept.astype(float), np.nan)
    other = make_toy(400, rho=0.7, random_state=1)
    seen = np.arange(400) % 5 < 2 if validated else np.ones(400, dtype=bool)
    validation = {
        "X_val": other.Z,
        "y_val": other.y,
        "concept_val": np.where(seen, other.concept.astype(float), np.nan),
    }
    short = {"X_val": other.Z[seen], "y_val": other.y[seen], "concept_val": other.concept[seen].astype(float)}
    some = RobustClassifier(LEACE(), random_state=0).fit(
        toy.Z, toy.y, concept=concept, **(validation if validated else {})
    )
    rest = RobustClassifier(LEACE(), random_state=0).fit(
        toy.Z[known], toy.y[known], concept=concept[known], **(short if validated else {})
    )
    assert some.selection_.penalty == rest.selection_.penalty or not validated  # folds are drawn by row
    losses = [loss for _, loss in some.selection_.results]
    assert max(losses) < np.log(2.0)  # logits of other rows would predict nothing
    assert abs(some.score(other.Z, other.y) - rest.score(other.Z, other.y)) < 0.02


def test_weights_of_training_and_validation_rows_mean_the_same():
    train, other = make_toy(600, rho=0.6, random_state=0), make_toy(120, rho=0.6, random_state=1)
    weight = np.ones(600)
    weight[:3] = 300.0
    validation = {"X_val": other.Z, "y_val": other.y, "concept_val": other.concept}

    def fit(scale_val):
        return RobustClassifier(LEACE(), random_state=0).fit(
            train.Z,
            train.y,
            concept=train.concept,
            sample_weight=weight,
            **validation,
            sample_weight_val=np.full(120, scale_val),
        )

    found = fit(1.0)
    head = GroupWeighted(penalty=found.head_.penalty).fit(
        found.transform(np.concatenate([train.Z, other.Z])),
        np.concatenate([train.y, other.y]),
        concept=np.concatenate([train.concept, other.concept]),
        sample_weight=np.concatenate([weight, np.ones(120)]),
    )
    expected = head.decision_function(found.transform(other.Z))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.decision_function(other.Z), expected, atol=1e-2 * scale)
    assert np.abs(fit(300.0).decision_function(other.Z) - expected).max() > 3e-2 * scale  # control: another weight


@pytest.mark.parametrize("head", [GroupWeighted(), SUBG()], ids=str)
@pytest.mark.parametrize("copies", [False, True], ids=["all features", "copies of one"])
def test_a_removal_that_leaves_nothing_is_refused_and_not_undone(head, copies):
    rng = np.random.default_rng(0)
    concept = rng.integers(2 if copies else 5, size=300)
    y = (concept + rng.integers(3, size=300)) % 2
    X = rng.standard_normal((300, 3)) + rng.standard_normal((5, 3))[concept]
    if copies:
        X = np.outer(X[:, 0] - X[:, 0].mean(), [1.0, 2.0, 3.0])
    model = RobustClassifier(LEACE(), head, random_state=0)
    with pytest.warns(EverythingRemovedWarning), pytest.raises(InputError, match="LEACE removes all directions"):
        model.fit(X, y, concept=concept)
    wider = np.column_stack([X, rng.standard_normal((300, 3)) + y[:, None]])  # control: something is left
    model.fit(wider, y, concept=concept)
    assert np.abs(model.coef_).max() > 0
    assert_allclose(model.decision_function(model.transform(wider)), model.decision_function(wider), atol=1e-6)


@pytest.mark.parametrize("head", [GroupWeighted(), ERM(), SUBG(), JTT(upweight=2.0), GroupDRO()], ids=str)
@pytest.mark.parametrize("films", [np.zeros(1000), TRAIN.y], ids=["one film", "a film of each class"])
def test_a_penalty_that_no_fold_can_choose_is_the_default(tmp_path, head, films):
    model = RobustClassifier(LEACE(), head, random_state=0)
    model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, clusters=films)
    assert model.head_.penalty == head.penalty
    assert model.selection_.results == ()
    assert model.notes_[-1].startswith("The rows lie in too few clusters to hold some out, so no penalty")
    model.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").notes_ == model.notes_
    model.fit(TRAIN.Z, TRAIN.y, concept=TRAIN.concept, clusters=np.arange(1000) // 10)  # control
    assert len(model.selection_.results) > 1
    assert not model.notes_


@pytest.mark.parametrize("remover", [LEACE, SPLINCE])
def test_a_number_as_concept_is_refused_with_what_to_do(remover):
    age = TRAIN.Z[:, 0].round(1)
    with pytest.raises(InputError, match=r"groups, which need classes\. Fit the remover alone"):
        RobustClassifier(remover(concept_type="continuous")).fit(TRAIN.Z, TRAIN.y, concept=age)
    leace = remover(concept_type="continuous").fit(TRAIN.Z, TRAIN.y, concept=age)  # what the message advises
    head = GroupWeighted().fit(leace.transform(TRAIN.Z), TRAIN.y, concept=age > 0)
    assert head.score(leace.transform(TRAIN.Z), TRAIN.y) > 0.6
