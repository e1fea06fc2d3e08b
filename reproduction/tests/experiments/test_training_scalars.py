"""Tests of JSE whose slope and intercept are fitted on training rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.rows import RowLabels, rows_of
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.statistics import CellCounts
from unspur_paper.experiments.training_scalars import TrainingScalars
from unspur_paper.experiments.variants import jse


@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize("folds", [1, 3])
def test_scalars_are_those_of_the_rows_outside_a_fold(folds, by_group):
    toy, rng = make_toy(600, d=4, rho=0.6, random_state=0), np.random.default_rng(0)
    fold = rng.integers(2, size=600) if folds == 1 else 1 + rng.integers(folds, size=600)
    labels = RowLabels.of(toy.y, toy.concept, fold=fold)
    rows, directions = rows_of(toy.Z, labels), rng.normal(size=(2, folds, 4))
    group, counts = 2 * toy.y + toy.concept, CellCounts.of(rows)

    def mean_loss(label, directions):
        losses = np.zeros(600)
        for k, direction in enumerate(directions, start=1):
            x, outside = (toy.Z @ direction)[:, None], fold != k
            weight = 1.0 / np.bincount(group[outside])[group[outside]] if by_group else np.ones(outside.sum())
            fit = LogisticRegression(C=np.inf, tol=1e-8).fit(x[outside], label[outside], sample_weight=weight)
            p = fit.predict_proba(x)[:, 1]
            losses[fold == k] = -np.log(np.where(label, p, 1.0 - p))[fold == k]
        held_out = fold >= 1
        means = [losses[held_out & (group == g)].mean() for g in range(4)] if by_group else losses[held_out]
        return np.mean(means)

    expected = [mean_loss(toy.concept, directions[0]), mean_loss(toy.y, directions[1])]
    clusters = HeldOutClusters.of(np.arange(600) // 2, labels.cell, labels.weight, by_group=by_group)
    for tests in (TrainingScalars(by_group=by_group), TrainingScalars(by_group=by_group, clusters=clusters)):
        found = tests.own_losses(rows, counts, directions, np.zeros(4))
        np.testing.assert_allclose([average.mean for average in found], expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_training_rows_known_by_heart_give_scalars_that_find_nothing():
    train, held_out = make_toy(300, d=200, rho=0.6, random_state=0), make_toy(2000, d=200, rho=0.6, random_state=50)
    few_columns = make_toy(2000, d=6, rho=0.6, random_state=0)
    kept, loss, usual = {}, {}, {}
    for scalars in ("held_out", "training"):
        options = {"scalars": scalars, "weight_decay": 1e-4}
        validation = {"X_val": held_out.Z, "y_val": held_out.y, "concept_val": held_out.concept}
        fitted = jse(options).fit(train.Z, train.y, concept=train.concept, **validation)
        kept[scalars], loss[scalars] = fitted.main_.dim, fitted.trace_.steps[0].verdict.losses[1].mean()
        usual[scalars] = jse(options).fit(few_columns.Z, few_columns.y, concept=few_columns.concept).spurious_.basis
    assert kept == {"held_out": 1, "training": 0}
    assert loss["training"] > 1.0 > np.log(2) > loss["held_out"]
    np.testing.assert_allclose(usual["training"], usual["held_out"], atol=1e-9)
    with pytest.raises(InputError, match="held_out or training"):
        jse({"scalars": "validation"})
