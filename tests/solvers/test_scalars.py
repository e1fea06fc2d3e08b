"""Two-scalar fits against scikit-learn, and the leave-one-out step against refitting for every row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from unspur.criteria import DirectionTests
from unspur.datasets import make_toy
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers import held_out_losses
from unspur.solvers.held_out_losses import HeldOutLosses, LeaveOneOut, fit_scalars
from unspur.solvers.statistics import CellCounts


def fitted(z, y, concept, balance="none", weight=None):
    rows = MemoryRows(z, RowLabels.of(y, concept, weight))
    counts = CellCounts.of(rows)
    weighting = counts.weighting(counts.without(None), balance)
    return rows, weighting, fit_scalars(rows, weighting)


def without_each_row(x, y, concept, balance="group"):
    """Losses of each row by the fit without it, and by the fit with it, shape (2, n)."""
    rows, weighting, fit = fitted(x[:, None], y, concept, balance)
    weight = np.bincount(2 * y + concept, weights=rows.sum(lambda block: weighting(block)), minlength=4)
    weight = weight if balance == "group" else weight.sum(keepdims=True)
    losses = HeldOutLosses(fit, LeaveOneOut.of(rows, fit, weighting, weight), np.zeros((2, 2)))
    t = fit.gamma[:, None] * fit.standardise(x[None]) + fit.intercept[:, None]
    return rows.sum(losses.losses), np.logaddexp(0, t) - np.stack([concept, y]) * t


def test_scalars_equal_those_of_logistic_regression():
    toy = make_toy(500, d=2, rho=0.6, random_state=0)
    z = toy.Z * [1e-6, 1e6] + [3e-6, -5e6]  # neither scale nor offset may matter
    rows, weighting, fit = fitted(z, toy.y, toy.concept, "group")
    omega = rows.sum(lambda block: weighting(block))
    for k, label in ((0, toy.concept), (1, toy.y)):
        x = (z[:, [k]] - z[:, k].mean()) / z[:, k].std()
        peer = LogisticRegression(C=1e8, tol=1e-10).fit(x, label, sample_weight=omega * 500)
        slope = fit.gamma[k] / fit.standardise.deviation[k] * z[:, k].std()
        assert_allclose(slope, peer.coef_[0, 0], rtol=1e-4)


def test_separable_scores_keep_their_scalars_finite():
    x = np.r_[-np.ones(50), np.ones(50)]
    label = (x > 0).astype(int)
    _, _, fit = fitted(np.column_stack([x, x]), label, label)
    assert np.all(np.isfinite(fit.gamma))
    assert np.all(fit.gamma > 5)
    assert np.all(fit.objective < 1e-3)


def test_a_constant_score_predicts_nothing_and_breaks_nothing():
    label = np.repeat([0, 1], 50)
    _, _, fit = fitted(np.ones((100, 2)), label, label)
    assert_allclose(fit.gamma, 0, atol=1e-6)
    assert_allclose(fit.objective, np.log(2), rtol=1e-6)


def test_leaving_one_out_agrees_with_refitting_without_each_row():
    toy = make_toy(240, d=2, rho=0.7, random_state=3)
    z, n = toy.Z, 240
    for balance in ("group", "none"):
        fast, in_sample = without_each_row(z[:, 0], toy.y, toy.concept, balance)
        slow = np.empty((2, n))
        for i in range(n):
            keep = np.arange(n) != i
            z2 = np.column_stack([z[:, 0], z[:, 0]])
            _, _, fit = fitted(z2[keep], toy.y[keep], toy.concept[keep], balance)
            t = fit.gamma * fit.standardise(z2[[i]].T)[:, 0] + fit.intercept
            label = np.array([toy.concept[i], toy.y[i]])
            slow[:, i] = np.logaddexp(0, t) - label * t
        moved = np.abs(slow - in_sample)
        assert np.abs(fast - slow).max() < 0.15 * moved.max()
        assert_allclose(fast.mean(axis=1), slow.mean(axis=1), rtol=1e-3)
        assert np.all(in_sample.mean(axis=1) < slow.mean(axis=1) - 5e-4)  # control: the rows' own fit flatters


@pytest.mark.parametrize("size", [2, 3, 6])
def test_leaving_one_out_of_a_small_group_is_not_flattered(size):
    """Rows of a group of `size`: the average loss agrees with refitting, where the fit with the row is far too good."""
    fast, slow, with_it = [], [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        y = np.r_[np.repeat([0, 1], 60), np.ones(size, dtype=int)]
        concept = np.r_[np.repeat([0, 1], 60), np.zeros(size, dtype=int)]
        extra = np.r_[np.zeros(120, dtype=int), np.ones(size, dtype=int)]
        y, concept = np.r_[y, 0, 0, 0], np.r_[concept, 1, 1, 1]
        extra = np.r_[extra, 0, 0, 0]
        n = len(y)
        x = concept + rng.standard_normal(n)
        small = np.flatnonzero(extra)
        of_rows, in_sample = without_each_row(x, y, concept)
        fast.append(of_rows[:, small])
        with_it.append(in_sample[:, small])
        both = np.column_stack([x, x])
        for i in small:
            keep = np.arange(n) != i
            _, _, fit = fitted(both[keep], y[keep], concept[keep], "group")
            t = fit.gamma * fit.standardise(both[[i]].T)[:, 0] + fit.intercept
            slow.append(np.logaddexp(0, t) - np.array([concept[i], y[i]]) * t)
    truth, step, flattered = np.mean(slow), np.mean(fast), np.mean(with_it)
    assert abs(step - truth) < 0.3 * (truth - flattered)


def rejected_though_separable(trials=100):
    """How often a score of ten rows a group that separates the concept is said not to predict it."""
    y, concept = np.repeat([0, 0, 1, 1], 10), np.tile(np.repeat([0, 1], 10), 2)
    tests, lost = DirectionTests(), 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal(40) if seed % 2 else rng.uniform(-2.5, 2.5, 40)
        x = np.clip(noise, -2.5, 2.5) + rng.choice([6.0, 8.0, 20.0]) * concept
        rows = MemoryRows(x[:, None], RowLabels.of(y, concept, fold=np.ones(40, dtype=int)))
        losses = tests.losses(rows, CellCounts.of(rows), np.ones((1, 1)), np.zeros(1))
        lost += not tests.informative("spurious", losses).proper
    return lost


def test_a_score_that_separates_the_classes_is_never_said_to_predict_nothing(monkeypatch):
    assert rejected_though_separable() == 0
    monkeypatch.setattr(held_out_losses, "RIDGE_IN_ROWS", 0.0)  # control: the rows beside the gap alone do not hold γ
    assert rejected_though_separable() > 5
