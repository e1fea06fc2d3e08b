"""Scorers by group, in scikit-learn's own searches."""

import copy

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unspur import LEACE, GroupWeighted, RobustClassifier
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.metrics import GroupScorer, group_accuracy, group_average_scorer, worst_group_scorer


@pytest.fixture(scope="module")
def toy():
    return make_toy(600, d=6, rho=0.7, random_state=0)


@pytest.fixture(scope="module")
def folds(toy):
    group = 2 * toy.y + toy.concept
    return list(StratifiedKFold(3, shuffle=True, random_state=0).split(toy.Z, group))


def by_hand(model, toy, rows):
    right = model.predict(toy.Z[rows]) == toy.y[rows]
    group = (2 * toy.y + toy.concept)[rows]
    return [right[group == g].mean() for g in range(4)]


def test_scores_are_those_of_the_groups(toy):
    model = LogisticRegression().fit(toy.Z, toy.y)
    groups = by_hand(model, toy, np.arange(600))
    assert worst_group_scorer(model, toy.Z, toy.y, concept=toy.concept) == pytest.approx(min(groups))
    assert group_average_scorer(model, toy.Z, toy.y, concept=toy.concept) == pytest.approx(np.mean(groups))
    assert min(groups) < np.mean(groups) - 0.05 < model.score(toy.Z, toy.y)


def test_a_search_over_a_pipeline_is_scored_by_the_worst_group(toy, folds):
    pipe = make_pipeline(StandardScaler(), LEACE(), LogisticRegression())
    grid = {"leace__strength": [0.5, 1.0], "logisticregression__C": [0.001, 1.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipe, grid, scoring=worst_group_scorer, cv=folds)
        search.fit(toy.Z, toy.y, concept=toy.concept)
        for k, (train, test) in enumerate(folds):
            best = sklearn.clone(search.best_estimator_)
            best.fit(toy.Z[train], toy.y[train], concept=toy.concept[train])
            scored = search.cv_results_[f"split{k}_test_score"][search.best_index_]
            assert scored == pytest.approx(min(by_hand(best, toy, test)))
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert len(set(search.cv_results_["mean_test_score"])) > 1


@pytest.mark.parametrize("head", [GroupWeighted(), None])
def test_cross_validation_of_a_classifier_with_several_scores(toy, folds, head):
    model = make_pipeline(StandardScaler(), RobustClassifier(LEACE(), head, random_state=0))
    scorers = {"worst": worst_group_scorer, "average": group_average_scorer, "accuracy": "accuracy"}
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(
            model,
            toy.Z,
            toy.y,
            cv=folds,
            scoring=scorers,
            params={"concept": toy.concept},
            return_estimator=True,
            error_score="raise",
        )
    for k, (_, test) in enumerate(folds):
        groups = by_hand(found["estimator"][k], toy, test)
        assert found["test_worst"][k] == pytest.approx(min(groups))
        assert found["test_average"][k] == pytest.approx(np.mean(groups))
    assert not np.allclose(found["test_worst"], found["test_accuracy"])


def test_without_routing_the_message_says_what_to_do(toy, folds):
    with pytest.raises(InputError, match="enable_metadata_routing=True"):
        cross_validate(LogisticRegression(), toy.Z, toy.y, cv=folds, scoring=worst_group_scorer, error_score="raise")


def test_missing_concepts_and_empty_groups(toy):
    model = LogisticRegression().fit(toy.Z, toy.y)
    coded = np.where(np.arange(600) % 3 == 0, -1, toy.concept)
    known = coded >= 0
    expected = group_accuracy(toy.y[known], model.predict(toy.Z[known]), toy.concept[known]).worst
    assert GroupScorer(missing_concept=-1)(model, toy.Z, toy.y, concept=coded) == expected
    scores = [one(model, toy.Z, toy.y, concept=coded) for one in (GroupScorer("group_average"), group_average_scorer)]
    assert scores[0] == scores[1]  # where -1 is a class
    assert GroupScorer("group_average", missing_concept=-1)(model, toy.Z, toy.y, concept=coded) != scores[1]
    some = (toy.y == 0) | (toy.concept == 1)
    rows = toy.Z[some], toy.y[some]
    with pytest.raises(InputError, match="No rows with"):
        worst_group_scorer(model, *rows, concept=toy.concept[some])
    assert 0 < GroupScorer(empty="nan")(model, *rows, concept=toy.concept[some]) < 1


def test_folds_that_lack_a_whole_class(toy):
    model = LogisticRegression().fit(toy.Z, toy.y)
    right = model.predict(toy.Z) == toy.y

    def score(scorer, rows, concept=toy.concept):
        return scorer(model, toy.Z[rows], toy.y[rows], concept=concept[rows])

    one_hospital, one_class = toy.concept == 0, toy.y == 1
    for rows, name in ((one_hospital, "concept has one class only"), (one_class, "No rows with main=0")):
        groups = [right[rows & (toy.y == y) & (toy.concept == c)] for y in (0, 1) for c in (0, 1)]
        expected = min(group.mean() for group in groups if len(group))
        assert score(GroupScorer(empty="nan"), rows) == pytest.approx(expected)
        with pytest.raises(InputError, match=rf"{name}.*pass empty='nan'"):
            score(worst_group_scorer, rows)
    wrong = one_class & ~right  # of which every prediction is the other class
    assert score(GroupScorer(empty="nan"), wrong) == 0.0
    # Three classes: a fold without one of them is noticed by a scorer that is told of all.
    places = np.where(toy.concept == 1, "sea", np.where(np.arange(600) % 2, "land", "sky"))
    told = GroupScorer(concept_classes=("land", "sea", "sky"))
    with pytest.raises(InputError, match="No rows with main=0, concept=sky"):
        score(told, places != "sky", places)
    assert score(told, places != "", places) == score(worst_group_scorer, places != "", places)
    both = np.column_stack([toy.concept.astype(object), places])
    several = [GroupScorer("group_average", "-", "nan", given) for given in ((), ((0, 1), ("land", "sea", "sky")))]
    scores = [score(one, places != "sky", both) for one in several]
    assert scores[0] == pytest.approx(scores[1])
    with pytest.raises(InputError, match="concept_classes has classes of 3 concepts; there are 2"):
        score(told, places != "sky", both)


def test_a_scorer_is_a_value():
    assert copy.deepcopy(worst_group_scorer) == worst_group_scorer == GroupScorer() != group_average_scorer
    with pytest.raises(InputError, match="'worst' or 'group_average'; got 'best'"):
        GroupScorer("best")
