"""The certificate: what it measures, and that nothing it should say goes unsaid."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from unspur import INLP, JSE, LEACE, SAL, SPLINCE, load
from unspur.certificate import Certificate, certify
from unspur.clusters import fingerprint, row_hashes
from unspur.datasets import make_toy
from unspur.exceptions import EverythingRemovedWarning, InputError, UsedRowsWarning
from unspur.labels import class_label
from unspur.metrics import leakage
from unspur.removers.seen_rows import rounded_hashes
from unspur.subspace import AffineMap


@pytest.fixture(scope="module")
def sets():
    return make_toy(2500, d=8, rho=0.8, random_state=0), make_toy(2500, d=8, rho=0.8, random_state=1)


def test_it_tells_methods_apart_that_differ_in_what_they_keep(sets):
    train, test = sets
    jse, leace = (
        remover.fit(train.Z, train.y, concept=train.concept).certificate(test.Z, test.y, test.concept)
        for remover in (JSE(cv=0.2, penalty=0.1, random_state=0), LEACE())
    )
    before, after = jse.probe["concept, task held fixed"]
    assert before.low > 0.75
    assert after.high < 0.7  # less is left than there was; the task's own feature still tells some of it
    assert jse.probe["concept"][1].low > after.high  # and the label of the task the rest
    assert leace.probe["concept"][1].low < 0.53  # LEACE leaves no linear trace of it,
    assert jse.task[1].low > leace.task[1].high  # and paid for that with the task
    assert leace.covariance_left["concept"] < 0.2 < jse.covariance_left["concept"]
    assert 0 < jse.distortion < 0.3


def test_distortion_rank_and_covariance_are_what_they_say(sets):
    train, test = sets
    sal = SAL().fit(train.Z, concept=train.concept)
    certificate = sal.certificate(test.Z, concept=test.concept)
    clean = sal.transform(test.Z)
    assert certificate.rank == np.linalg.matrix_rank(sal.removal_.matrix()) == 7
    assert certificate.removed == 1
    assert str(certificate).startswith("SAL: 1 direction removed, rank 7 left")
    assert str(replace(certificate, removed=2)).startswith("SAL: 2 directions removed")
    variance = np.sum(np.var(test.Z, axis=0)) * len(test.Z)
    assert certificate.distortion == pytest.approx(np.sum((clean - test.Z) ** 2) / variance)
    left, there = (np.linalg.norm(np.cov(rows.T, test.concept)[:-1, -1]) for rows in (clean, test.Z))
    assert certificate.covariance_left["concept"] == pytest.approx(left / there)
    assert certificate.task is None


def test_it_warns_on_rows_of_the_fit_and_only_on_those(sets, tmp_path):
    train, test = sets
    leace = LEACE().fit(train.Z, concept=train.concept)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leace.certificate(test.Z, concept=test.concept)
    half = np.concatenate([train.Z[:500], test.Z[:500]])
    labels = np.concatenate([train.concept[:500], test.concept[:500]])
    with pytest.warns(UsedRowsWarning, match="500 of the 1,000 rows measured"):
        certificate = leace.certificate(half, concept=labels)
    assert any("500 of the 1,000 rows measured" in note for note in certificate.notes)
    with pytest.warns(UsedRowsWarning, match=f"{len(train.Z):,} of the {len(train.Z):,} rows measured"):
        leace.certificate(train.Z[::-1], concept=train.concept[::-1])
    leace.save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    with pytest.warns(UsedRowsWarning, match=f"{len(train.Z):,} of the {len(train.Z):,} rows measured"):
        again.certificate(train.Z, concept=train.concept)
    assert any("cannot tell" in note for note in again.certificate(train.Z[1:], concept=train.concept[1:]).notes)
    leace.fit(test.Z, concept=test.concept)  # a new fit forgets the old rows, and the old certificate
    assert not hasattr(leace, "certificate_")
    first, second = (LEACE().fit(s.Z, concept=s.concept) for s in sets)
    with pytest.warns(UsedRowsWarning, match=f"{len(train.Z):,} of the {len(train.Z):,} rows measured"):
        first.merge(second).certificate(test.Z, concept=test.concept)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leace.certificate(train.Z, concept=train.concept)


def _used(remover, z):
    return remover._used_rows_note(np.asarray(z))


def test_rows_that_decided_on_directions_are_recognised(sets):
    train, test = sets
    validation = {"X_val": test.Z, "y_val": test.y, "concept_val": test.concept}
    jse = JSE(penalty=0.1, random_state=0).fit(train.Z, train.y, concept=train.concept, **validation)
    with pytest.warns(
        UsedRowsWarning,
        match="2,500 of the 2,500 rows measured were validation rows, on which the directions were tested",
    ):
        jse.certificate(test.Z, test.y, test.concept)
    jse.fit(train.Z, train.y, concept=train.concept)
    assert _used(jse, test.Z) == ""


def test_rows_that_are_all_the_same_are_refused(sets):
    train, test = sets
    leace = LEACE().fit(train.Z, concept=train.concept)
    same = np.repeat(test.Z[:1], len(test.Z), axis=0)
    with pytest.raises(InputError, match="All rows are the same: nothing can be measured"):
        leace.certificate(same, concept=test.concept)
    same[0] += 1.0
    assert np.isfinite(leace.certificate(same, concept=test.concept).distortion)  # the control


def test_below_chance_is_said():
    """Rows that a closed form was fitted on are worse than chance in folds; the note says where that comes from."""
    rng = np.random.default_rng(0)
    z, concept = rng.standard_normal((300, 40)), rng.integers(2, size=300)
    leace = LEACE().fit(z, concept=concept)
    with pytest.warns(UsedRowsWarning):
        used = leace.certificate(z, concept=concept)
    assert any("below chance after removal. Were these rows" in note for note in used.notes)
    fresh = leace.certificate(rng.standard_normal((300, 40)), concept=rng.integers(2, size=300))
    assert not any("below chance" in note for note in fresh.notes)


def test_what_blinds_a_careless_probe_does_not_blind_the_certificate():
    rng = np.random.default_rng(0)
    concept = rng.integers(2, size=1000)
    z = rng.standard_normal((1000, 6))
    z[:, 0] += 4.0 * concept
    z[:, 3] *= 1e6
    another = LEACE().fit(rng.standard_normal((1000, 6)), concept=rng.integers(2, size=1000))
    for rows in (z, z.astype(np.float32)):
        certificate = another.certificate(rows, concept=concept)
        before, after = certificate.probe["concept"]  # what it takes out has nothing to do with the concept
        assert before.low > 0.9
        assert after.low > 0.8
        assert any("column 3 is" in note for note in certificate.notes)


def test_it_is_saved_with_the_removal_and_survives_json(sets, tmp_path):
    train, test = sets
    inlp = INLP(cv=0.2, penalty=0.1, random_state=0).fit(train.Z, concept=train.concept)
    certificate = inlp.certificate(test.Z, test.y, test.concept)
    assert Certificate.from_dict(json.loads(json.dumps(certificate.to_dict()))).to_dict() == certificate.to_dict()
    inlp.save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    assert str(again.certificate_) == str(certificate)
    assert again.training_hash_ == inlp.training_hash_ == fingerprint(rounded_hashes(train.Z))
    assert max(map(len, str(certificate).splitlines())) <= 120


def test_dropped_directions_conditions_and_nothing_removed_are_said(sets):
    train, test = sets
    twice = LEACE().fit(train.Z, concept=np.column_stack([train.concept, train.concept]))
    certificate = twice.certificate(test.Z, concept=np.column_stack([test.concept, test.concept]))
    assert any("dropped" in note for note in certificate.notes)
    none = JSE(cv=0.2, penalty=0.1, random_state=0, max_spurious=0).fit(train.Z, train.y, concept=train.concept)
    (note,) = none.certificate(test.Z, test.y, test.concept).notes  # and nothing of assumptions, which it cannot know
    assert "nothing was removed" in note
    apart, others = (make_toy(2500, d=8, random_state=seed) for seed in (0, 1))
    fine = JSE(penalty=0.1, random_state=0).fit(apart.Z, apart.y, concept=apart.concept)
    assert fine.certificate(others.Z, others.y, others.concept).notes == ()


def test_assumptions_that_fail_are_said_in_words(sets):
    """Erasing all covariance with a correlated concept takes part of the task; the words, and how they come back."""
    train, test = sets
    measured = SPLINCE().fit(train.Z, train.y, concept=train.concept).certificate(test.Z, test.y, test.concept)
    before, after = measured.task_alone
    assert after.high < before.low
    assert "the task got worse" in " ".join(measured.notes)
    assert "task, concept held fixed" in str(measured)
    assert Certificate.from_dict(measured.to_dict()).to_dict() == measured.to_dict()
    few = test.y.copy()
    few[:40] = 1 - few[:40]
    nearly = JSE(penalty=0.1, random_state=0).fit(train.Z, train.y, concept=train.concept)
    assert "differ in only 40 of 2,500 rows" in " ".join(nearly.certificate(test.Z, test.y, few).notes)
    another = LEACE().fit(train.Z, concept=train.Z[:, 5] > 0)
    assert "can still be predicted after the removal" in " ".join(
        another.certificate(test.Z, test.y, test.concept).notes
    )


def test_a_concept_that_can_still_be_read_is_noted_without_a_task(sets):
    train, test = sets
    another = LEACE().fit(train.Z, concept=train.Z[:, 5] > 0)
    (note,) = another.certificate(test.Z, concept=test.concept).notes
    assert note.startswith("concept can still be predicted after the removal: ")
    assert "Pass y" in note
    assert another.certificate(test.Z, concept=test.Z[:, 5] > 0).notes == ()  # control
    number = LEACE(concept_type="continuous").fit(train.Z, concept=train.Z[:, 5])
    (note,) = number.certificate(test.Z, concept=test.Z[:, 2]).notes
    assert note.startswith("concept can still be predicted after the removal: R² ")
    assert number.certificate(test.Z, concept=test.Z[:, 5]).notes == ()  # control


def test_rare_labels_are_not_nearly_the_same_because_most_rows_have_neither():
    rng = np.random.default_rng(0)
    z, y, concept = rng.standard_normal((4000, 6)), np.zeros(4000, int), np.zeros(4000, int)
    y[:80], concept[70:150] = 1, 1  # 140 of 4,000 rows tell them apart, of 160 at most
    z[:, 0] += 3.0 * concept
    removal = LEACE().fit(z + 1.0, concept=concept)
    assert not any("same label" in note for note in removal.certificate(z, y, concept).notes)
    concept[:] = y
    concept[78:82] = 1 - y[78:82]
    assert any(
        "same label: they differ in only 4 of 4,000 rows" in note for note in removal.certificate(z, y, concept).notes
    )


def test_several_concepts_and_numbers(sets):
    train, test = sets
    frames = [pd.DataFrame({"a": s.concept, "b": np.where(s.Z[:, 3] > 0, "x", "y")}) for s in sets]
    certificate = LEACE().fit(train.Z, concept=frames[0]).certificate(test.Z, test.y, frames[1])
    assert {"a", "b"} < set(certificate.probe)
    assert set(certificate.covariance_left) == {"a", "b"}
    number = LEACE(concept_type="continuous").fit(train.Z, concept=train.Z[:, 2] ** 3)
    measured = number.certificate(test.Z, concept=test.Z[:, 2] ** 3)
    assert measured.probe == {}
    assert measured.covariance_left["concept"] < 0.2
    before, after = measured.numbers["concept"]
    assert before.low > 0.4  # of its cube a linear probe predicts 60 %
    assert after.low < 0 < after.high < 0.1
    assert "R² of a linear probe" in str(measured)
    assert Certificate.from_dict(json.loads(json.dumps(measured.to_dict()))) == measured
    assert list(certificate.to_frame().index) == [
        "a",
        "a, task held fixed",
        "b",
        "b, task held fixed",
        "task",
        "task, concept held fixed",
    ]


def test_hashes_know_rows_in_any_float_type_and_tell_others_apart():
    z = np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32)
    np.testing.assert_array_equal(row_hashes(z), row_hashes(z.astype(np.float64)))
    assert len(np.unique(row_hashes(z))) == 50
    assert row_hashes(z[:, ::-1])[0] != row_hashes(z)[0]
    zeros = np.zeros((1, 5))
    assert row_hashes(zeros)[0] == row_hashes(-zeros)[0]
    assert fingerprint(row_hashes(z)) == fingerprint(row_hashes(z[::-1]))
    assert fingerprint(row_hashes(z)) != fingerprint(row_hashes(z[1:]))


def test_clusters_widen_its_intervals_and_copies_are_a_note(sets):
    train, test = sets
    leace = LEACE().fit(train.Z, concept=train.concept)
    cluster = np.repeat(np.arange(300), 3)
    near = 0.01 * np.random.default_rng(0).normal(size=(900, 8))
    Z, concept = test.Z[cluster], test.concept[cluster]
    apart, together = (
        leace.certificate(Z + near, concept=concept, clusters=c).probe["concept"][0] for c in (None, cluster)
    )
    assert together.high - together.low > 1.4 * (apart.high - apart.low)
    assert any("duplicates of others" in note for note in leace.certificate(Z, concept=concept).notes)
    assert not any("duplicates" in note for note in leace.certificate(Z + near, concept=concept).notes)


@pytest.mark.parametrize("what", ["clusters", "copies"])
def test_a_number_that_is_nowhere_is_not_read_off_rows_of_the_same_cluster(what):
    rng = np.random.default_rng(0)
    train = rng.normal(size=(500, 50))
    leace = LEACE(concept_type="continuous").fit(train, concept=train[:, 0] + rng.normal(size=500))
    patient = np.repeat(np.arange(100), 4)
    Z, age = rng.normal(size=(100, 50))[patient], rng.normal(size=100)[patient]
    if what == "clusters":
        found = leace.certificate(Z + 0.1 * rng.normal(size=Z.shape), concept=age, clusters=patient)
    else:
        found = leace.certificate(Z, concept=age)
    assert found.numbers["concept"][1].p > 0.01
    assert any("300 of the 400 rows measured are duplicates" in note for note in found.notes) == (what == "copies")
    apart = leace.certificate(Z + 0.1 * rng.normal(size=Z.shape), concept=age)  # the control: nothing is said
    assert apart.numbers["concept"][1].p < 1e-4


def test_counted_rows_are_equal_by_chance_and_not_said_to_be_used():
    rng = np.random.default_rng(0)
    concept = np.arange(1000) % 2
    rows = rng.poisson(1.0, (1000, 5)).astype(float)
    leace = LEACE().fit(rows, concept=concept)
    other = rng.poisson(1.0, (1000, 5)).astype(float)
    assert not any("used" in note or "rounding" in note for note in leace.certificate(other, None, concept).notes)
    with pytest.warns(UsedRowsWarning, match="1,000 of the 1,000"):  # the very rows of the fit are noticed
        leace.certificate(rows, None, concept)


def test_a_rare_class_of_the_task_is_a_note_that_names_it():
    rng = np.random.default_rng(0)
    concept, y = rng.integers(2, size=300), rng.choice(["cat", "dog"], size=300)
    y[:2] = "owl"
    Z = rng.standard_normal((300, 6)) + 2.0 * concept[:, None] * np.eye(6)[0]
    found = LEACE().fit(Z[:150], concept=concept[:150]).certificate(Z[150:], y[:150], concept[150:])
    assert found.task is None
    assert "concept" in found.probe
    assert any(note.startswith("task: not measured. There are 2 rows with y=owl in 5 folds") for note in found.notes)


def test_rounding_errors_of_a_removal_that_leaves_nothing_are_not_measured():
    rng = np.random.default_rng(0)
    concept = rng.integers(2, size=600)
    one = rng.standard_normal(600) + 2.0 * concept
    Z = np.outer(one - one.mean(), [1.0, 2.0, 3.0])
    with pytest.warns(EverythingRemovedWarning):
        leace = LEACE().fit(Z[:300], concept=concept[:300])
    assert (
        leakage(leace.transform(Z[300:]), concept[300:], random_state=0).low > 0.6
    )  # control: who rescales reads them
    before, after = leace.certificate(Z[300:], concept=concept[300:]).probe["concept"]
    assert before.low > 0.7
    assert after.p > 0.05


def test_a_task_that_is_left_as_it_was_is_not_called_gone():
    """Labels that agree in 90 % of rows: most of what predicted the task was the concept, which was removed."""

    def rows(seed, n):
        rng = np.random.default_rng(seed)
        c = rng.integers(2, size=n)
        y = np.where(rng.random(n) < 0.9, c, 1 - c)
        X = rng.normal(size=(n, 6))
        X[:, 0] += 4 * c
        X[:, 1] += 0.5 * y
        return X, y, c

    def notes(columns, seed, n):
        """Of a removal of the first columns: 0 has the concept, and 1 the task."""
        X, y, c = rows(seed, n)
        directions = np.eye(6)[:, :columns]
        labels = [class_label(values, name, n) for values, name in ((y, "y"), (c, "c"))]
        removal = AffineMap(X.mean(axis=0), directions, directions)
        return " ".join(certify("By hand", removal, columns, X, labels[0], {"c": labels[1]}, {}, (), seed).notes)

    few = [notes(1, seed, 300) for seed in range(1, 4)]
    assert not any("gone" in text for text in few)
    assert any("cannot be distinguished from chance" in text for text in few)
    assert "the task" not in notes(1, 1, 1500)
    assert "the task is gone" in notes(2, 1, 1500)  # the control


@pytest.mark.parametrize("remover", [JSE(random_state=0), LEACE()])
@pytest.mark.parametrize("why", ["no concept", "no weight"])
def test_rows_that_did_not_count_were_not_used_in_the_fit(remover, why, tmp_path):
    toy = make_toy(900, rho=0.6, random_state=0)
    concept, weight = toy.concept.astype(float), np.ones(900)
    if why == "no concept":
        concept[:300] = np.nan
    else:
        weight[:300] = 0.0
    remover.fit(toy.Z, toy.y, concept=concept, sample_weight=weight)

    def used(rows, kind=float, labels=toy.concept, model=remover):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UsedRowsWarning)
            notes = model.certificate(toy.Z[rows].astype(kind), toy.y[rows], labels[rows]).notes
        return [note for note in notes if "rows measured" in note]

    assert used(slice(0, 300)) == []
    assert used(slice(0, 300), np.float32) == []
    assert "300 of the 600 rows measured were used in the fit" in used(slice(0, 600))[0]  # the controls
    if why == "no concept":  # rows without one are not measured either
        remover.save(tmp_path / "r.safetensors")
        for model in (remover, load(tmp_path / "r.safetensors")):
            assert "600 of the 600 rows measured were used" in used(slice(None), labels=concept, model=model)[0]


def test_a_concept_called_task_keeps_its_line(sets):
    train, test = sets

    def lines(name):
        leace = LEACE().fit(train.Z, train.y, concept={name: train.concept})
        return leace.certificate(test.Z, test.y, {name: test.concept}).to_frame()

    assert list(lines("task").index) == [
        "task",
        "task, task held fixed",
        "main label",
        "main label, concept held fixed",
    ]
    np.testing.assert_array_equal(lines("task"), lines("place"))
