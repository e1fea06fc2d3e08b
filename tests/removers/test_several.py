"""Several concepts, and concepts of more than two classes, for the methods that know one binary concept at a time."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from unspur import INLP, JSE, LEACE, load
from unspur.exceptions import (
    GroupSizeError,
    LabelError,
    TaskLostWarning,
)
from unspur.trace import Traces

FAST = {"penalty": 0.1, "cv": 0.2, "random_state": 0}
#: Where bases are to be orthogonal in the ordinary sense.
PAPER = {**FAST, "metric": 0.0}


@pytest.fixture(scope="module")
def birds():
    """Rows with a task on axis 0, a binary concept on axis 1 and one of three classes in the plane of axes 2 and 3."""
    rng = np.random.default_rng(0)
    n = 4000
    y = rng.integers(2, size=n)
    water = np.where(rng.random(n) < 0.7, y, 1 - y)
    season = np.where(rng.random(n) < 0.4, 2 * y, rng.integers(3, size=n))
    z = rng.standard_normal((n, 10))
    z[:, 0] += 2.0 * y
    z[:, 1] += 2.0 * water
    z[:, 2:4] += 2.0 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])[season]
    return z, y, water, np.array(["spring", "summer", "winter"])[season]


@pytest.mark.parametrize("penalty", [0.1, "auto"])
def test_classes_that_have_no_room_left_end_the_search(penalty):
    rng = np.random.default_rng(0)
    concept, y = rng.integers(3, size=900), rng.integers(2, size=900)
    Z = rng.normal(size=(900, 3)) + 3 * np.eye(3)[concept] + 2 * y[:, None] * np.eye(3)[0]
    with pytest.warns(TaskLostWarning):
        jse = JSE(random_state=0, cv=0.3, penalty=penalty).fit(Z, y, concept=concept)
    assert jse.spurious_.dim == 2
    *_, last = jse.trace_.parts.values()
    assert not len(last)
    assert last.stopped == "fewer than two free dimensions are left"


@pytest.mark.parametrize("method", [JSE, INLP])
def test_a_concept_of_three_classes_is_taken_class_by_class(birds, method, tmp_path):
    z, y, _, season = birds
    remover = method(**FAST).fit(z, y, concept=season)
    assert isinstance(remover.trace_, Traces)
    assert set(remover.trace_.parts) == {"concept=spring", "concept=summer", "concept=winter"}
    assert remover.concept_classes_ == ("spring", "summer", "winter")
    shown = np.linalg.norm(remover.spurious_.basis[2:4], axis=1)
    assert np.all(shown > 0.95)  # the whole plane is found
    clean = remover.transform(z)
    same = y == 0  # the season travels with the task, which stays; within one class of it nothing may be left
    before, after = (
        max(np.abs(np.corrcoef(rows[same].T, season[same] == kind)[:-1, -1]).max() for kind in np.unique(season))
        for rows in (z, clean)
    )
    assert before > 0.5
    assert after < 0.15
    remover.save(tmp_path / "r.safetensors")
    again = load(tmp_path / "r.safetensors")
    assert str(again.trace_) == str(remover.trace_)
    assert again.concept_classes_ == remover.concept_classes_


@pytest.mark.parametrize("method", [JSE, INLP])
def test_several_concepts_are_removed_one_after_the_other(birds, method):
    z, y, water, season = birds
    options = PAPER if method is JSE else FAST
    both = method(**options).fit(z, y, concept=pd.DataFrame({"water": water, "season": season}))
    assert next(iter(both.trace_.parts)) == "water"
    assert both.concept_classes_ == ((0, 1), ("spring", "summer", "winter"))
    basis = both.spurious_.basis
    assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-12)
    assert np.all(np.linalg.norm(basis[1:4], axis=1) > 0.95)
    one = method(**options).fit(z, y, concept=water)
    assert np.linalg.norm(one.spurious_.basis[2:4]) < np.linalg.norm(basis[2:4]) - 0.5  # one alone leaves the other
    if method is JSE:
        assert_allclose(both.main_.basis.T @ basis, 0, atol=1e-12)
        assert abs(both.main_.basis[0]).max() > 0.95  # and the task is still there


def test_a_validation_set_has_its_concepts_in_the_same_columns(birds):
    z, y, water, season = birds
    concepts = pd.DataFrame({"water": water, "season": season})
    train, held = slice(0, 2500), slice(2500, 4000)
    jse = JSE(penalty=0.1).fit(
        z[train], y[train], concept=concepts[train], X_val=z[held], y_val=y[held], concept_val=concepts[held]
    )
    assert np.all(np.linalg.norm(jse.spurious_.basis[1:4], axis=1) > 0.95)
    turned = {name: concepts[held][name].to_numpy() for name in ("season", "water")}  # found by name
    again = JSE(penalty=0.1).fit(
        z[train], y[train], concept=concepts[train], X_val=z[held], y_val=y[held], concept_val=turned
    )
    assert_allclose(again.removal_.matrix(), jse.removal_.matrix())
    with pytest.raises(LabelError, match="columns wet, season"):
        JSE().fit(
            z[train],
            y[train],
            concept=concepts[train],
            X_val=z[held],
            y_val=y[held],
            concept_val={"wet": water[held], "season": season[held]},
        )
    unknown = concepts[held].assign(season="autumn")
    with pytest.raises(LabelError, match="autumn"):
        JSE().fit(z[train], y[train], concept=concepts[train], X_val=z[held], y_val=y[held], concept_val=unknown)


def test_a_main_task_of_three_classes_loses_none_of_its_directions(birds):
    """With y of three classes, water is removed and the plane that tells the classes apart is not."""
    z, y, water, season = birds
    spread = np.random.default_rng(1).random(len(y)) < 0.6
    water = np.where(spread, season == "winter", water).astype(int)  # travels with one class of the task
    z = z.copy()
    z[:, 1] = np.random.default_rng(2).standard_normal(len(y)) + 2.0 * water
    jse = JSE(**PAPER).fit(z, season, concept=water)
    assert jse.classes_ == ("spring", "summer", "winter")
    assert abs(jse.spurious_.basis[1]).max() > 0.95
    assert np.linalg.norm(jse.spurious_.basis[2:4]) < 0.35
    assert np.all(np.linalg.norm(jse.main_.basis[2:4], axis=1) > 0.95)
    assert_allclose(jse.main_.basis.T @ jse.spurious_.basis, 0, atol=1e-12)
    clean = jse.transform(z)
    probe = LogisticRegression(max_iter=1000)
    assert probe.fit(clean, season).score(clean, season) > probe.fit(z, season).score(z, season) - 0.04
    two = season != "summer"
    with pytest.raises(LabelError, match="equal to y"):
        JSE(**PAPER).fit(z[two], season[two], concept=season[two])


def test_every_block_of_a_trace_says_which_concept_and_which_classes_it_is_about(birds, tmp_path):
    z, y, water, season = birds
    jse = JSE(max_spurious=1, **FAST).fit(z[:, :5], season, concept={"water": water, "bird": y})
    assert list(jse.trace_.parts) == [
        f"{concept}, y={kind}" for concept in ("water", "bird") for kind in ("spring", "summer", "winter")
    ]
    part = jse.trace_["bird, y=winter"]
    assert (part.concept, part.concept_class, part.main, part.main_class) == ("bird", None, "y", "winter")
    jse.save(tmp_path / "r.safetensors")
    assert load(tmp_path / "r.safetensors").trace_.to_dict() == jse.trace_.to_dict()
    other = jse.trace_.renamed("season", {"water": "wet"})
    assert next(iter(other.parts)) == "wet, season=spring"
    for name in other.parts:
        assert name in str(other)


def test_the_trace_has_the_directions_that_each_main_class_needs(birds):
    """They are found before any spurious one; without them the trace would say that nothing predicts the task."""
    z, y, water, season = birds
    jse = JSE(max_spurious=1, **FAST).fit(z[:, :5], season, concept=water)
    for part in jse.trace_.parts.values():
        first, later = ([step.verdict for step in part if (step.outer == 0) == zero] for zero in (True, False))
        assert first[0].role == "main"
        assert first[0].proper
        assert not any(verdict.proper for verdict in later if verdict.role == "main")
        assert f"round 0: directions that y={part.main_class} needs" in " ".join(str(part).split())
    binary = JSE(max_spurious=1, **FAST).fit(z[:, :5], y, concept=water)
    assert not binary.trace_.round_zero_note
    assert "round 0" not in str(binary.trace_)


def test_parts_that_are_called_the_same_are_all_there(birds):
    z, y, water, season = birds
    jse = JSE(max_spurious=1, **FAST).fit(z[:, :5], y, concept={"season": season, "season=winter": water})
    assert len(jse.trace_.parts) == 4
    assert jse.trace_["season=winter (2)"].concept == "season=winter"


@pytest.mark.parametrize("method", [JSE, LEACE])
def test_a_mapping_is_as_good_as_a_table_or_an_array(birds, method):
    z, y, water, season = birds
    options = {} if method is LEACE else FAST
    codes = np.unique(season, return_inverse=True)[1]
    by_mapping = method(**options).fit(z, y, concept={"water": water, "season": codes})
    for given in (pd.DataFrame({"water": water, "season": codes}), np.column_stack([water, codes])):
        assert_allclose(by_mapping.removal_.matrix(), method(**options).fit(z, y, concept=given).removal_.matrix())
    alone = method(**options).fit(z, y, concept={"water": water})
    assert_allclose(alone.removal_.matrix(), method(**options).fit(z, y, concept=water).removal_.matrix())
    assert by_mapping.spurious_.dim > alone.spurious_.dim


def test_complaints_say_which_concept_and_which_class_they_are_about(birds):
    z, y, water, season = birds
    rare = np.where(np.arange(len(y)) < 30, "storm", season)
    with pytest.raises(GroupSizeError, match=r"^season=storm: .* group \(y=., season=storm\) has "):
        JSE(**FAST).fit(z, y, concept={"water": water, "season": rare})
    with pytest.raises(GroupSizeError, match=r"^y=storm: .* group \(y=storm, concept=.\) has "):
        JSE(**FAST).fit(z, rare, concept=water)
    with pytest.raises(LabelError, match=r"^copy: copy is equal to y"):
        JSE(**FAST).fit(z, y, concept={"water": water, "copy": y})
    with pytest.raises(LabelError, match=r"^concept is equal to y"):  # one needs no name
        JSE(**FAST).fit(z, y, concept=y)


@pytest.mark.parametrize("method", [JSE, INLP])
def test_a_class_called_rest_is_a_class_like_any_other(birds, method, tmp_path):
    z, y, _, season = birds
    renamed = np.where(season == "winter", "rest", season)
    fitted = method(**FAST).fit(z, y, concept=renamed)
    assert np.all(np.linalg.norm(fitted.spurious_.basis[2:4], axis=1) > 0.95)
    fitted.save(tmp_path / "rest.safetensors")  # losses of steps are saved by the names of groups
    assert str(load(tmp_path / "rest.safetensors").trace_) == str(fitted.trace_)


def test_inlp_asks_nothing_of_a_task_it_does_not_use(birds):
    z, y, water, season = birds
    plain = INLP(**FAST).fit(z, concept=water).removal_.matrix()
    gaps = np.where(np.arange(len(y)) % 7 == 0, np.nan, y)
    for task in (season, gaps, y):
        assert_allclose(INLP(**FAST).fit(z, task, concept=water).removal_.matrix(), plain)


@pytest.mark.parametrize(
    "options", [{"tests": "group"}, {"balance": "group"}, {"balance": "main"}, {"tests": "group", "balance": "group"}]
)
def test_inlp_takes_groups_with_a_task_of_three_classes(birds, options, tmp_path):
    z, y, water, season = birds
    inlp = INLP(**FAST, **options).fit(z, season, concept=water)
    assert inlp.classes_ == ("spring", "summer", "winter")
    assert np.linalg.norm(inlp.spurious_.basis[1]) > 0.95
    assert "y=winter" in inlp.trace_.stopped
    clean = inlp.transform(z)
    for kind in inlp.classes_:  # the concept is gone within every class of the task, where it was before
        rows = season == kind
        before, after = (np.abs(np.corrcoef(x[rows].T, water[rows])[1, -1]) for x in (z, clean))
        assert after < 0.15 < 0.5 < before
    inlp.save(tmp_path / "inlp.safetensors")
    assert load(tmp_path / "inlp.safetensors").classes_ == inlp.classes_
    train, held = slice(0, 2500), slice(2500, 4000)
    given = {"X_val": z[held], "y_val": season[held], "concept_val": water[held]}
    judged = INLP(**FAST, **options).fit(z[train], season[train], concept=water[train], **given)
    assert np.linalg.norm(judged.spurious_.basis[1]) > 0.95
    with pytest.raises(LabelError, match="autumn"):
        INLP(**FAST, **options).fit(
            z[train], season[train], concept=water[train], **{**given, "y_val": np.full(1500, "autumn")}
        )
    two = INLP(**FAST, **options).fit(z, y, concept=water)  # control: two classes are one fit
    assert two.classes_ == (0, 1)
    assert "y=" not in two.trace_.stopped


def test_a_concept_called_like_a_class_of_another_has_folds_of_its_own():
    rng = np.random.default_rng(0)
    y, other = rng.integers(0, 2, (2, 2000))
    c = np.where(rng.random(2000) < 0.4, y, rng.integers(0, 3, 2000))
    Z = rng.standard_normal((2000, 6))
    Z[:, 0] += 3 * y
    Z[:, 1] += 3 * (c == 1)
    Z[:, 2] += 3 * (c == 2)
    Z[:, 3] += 3 * other
    plain, alike = (JSE(random_state=0).fit(Z, y, concept={"c": c, name: other}) for name in ("other", "c=2"))
    np.testing.assert_allclose(alike.transform(Z), plain.transform(Z))
    assert plain.spurious_.dim == 3
