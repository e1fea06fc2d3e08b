"""Weighted logistic regression against scikit-learn, finite differences and its own invariances."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from unspur.exceptions import NotConvergedWarning
from unspur.rows import MemoryRows, RowLabels, Weighting
from unspur.solvers import logistic
from unspur.solvers.coordinates import Geometry, LogisticCoordinates
from unspur.solvers.logistic import (
    CellLosses,
    LinearLogits,
    SoftmaxLoss,
    loss_and_residual,
    n_logits,
    solve_softmax,
    solve_softmax_many,
)
from unspur.subspace import AffineMap, Subspace


def problem(k, n=600, d=8, seed=0, stretch=10.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(k), rng.choice(k, size=n - k, p=np.arange(1, k + 1) / np.arange(1, k + 1).sum())])
    z = rng.standard_normal((n, d))
    z[np.arange(n), y] += 1.5
    return z * np.geomspace(stretch, 1 / stretch, d) + 1.0, y, rng.uniform(0.2, 3.0, n)


def source(z, y, weight=None, block_rows=100):
    weight = np.ones(len(y)) if weight is None else weight
    columns = RowLabels(np.stack([np.zeros(len(y)), y]).astype(float), np.asarray(y), weight, 0)
    return MemoryRows(z, columns, block_rows=block_rows)


def solve(z, y, weight=None, penalty=0.01, **options):
    rows = source(z, y, weight)
    k = int(y.max()) + 1
    total = len(y) if weight is None else weight.sum()
    weighting = Weighting(np.full(k, 1.0 / total))
    whitening = LogisticCoordinates.of(Geometry.of_rows(rows, weighting, in_float64=True), penalty)
    return solve_softmax(rows, weighting, whitening, k, **options), whitening


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_solution_equals_scikit_learns(k, weighted):
    z, y, weight = problem(k)
    weight = weight if weighted else np.ones(len(y))
    model, whitening = solve(z, y, weight, tol=1e-8)
    assert model.outcome.converged
    peer = LogisticRegression(C=1.0 / (whitening.decay * weight.sum()), tol=1e-12, max_iter=10_000, solver="newton-cg")
    peer.fit(z, y, sample_weight=weight)
    assert_allclose(model.weights, peer.coef_, atol=1e-7 * np.abs(peer.coef_).max())
    assert_allclose(
        model.intercepts_uncentred - model.intercepts_uncentred.mean() * (k > 2), peer.intercept_, atol=1e-6
    )
    other, _ = solve(z, y, np.roll(weight, 7) if weighted else weight, penalty=0.02, tol=1e-8)
    assert np.abs(other.weights - peer.coef_).max() > 1e-3 * np.abs(peer.coef_).max()  # control: another problem


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("centred", [False, True])
def test_gradient_equals_finite_differences(k, centred):
    z, y, weight = problem(k, n=40, d=3, stretch=2.0)
    rows, weighting = source(z, y, weight, block_rows=7), Weighting(np.linspace(0.5, 1.0, k))
    rng = np.random.default_rng(1)
    m = n_logits(k)
    theta, centre = rng.standard_normal((m, 4)), rng.standard_normal(3)

    def sums(at):
        return rows.sum(SoftmaxLoss(LinearLogits(at[:, :3], at[:, 3], centre, centred), weighting))

    here, numeric = sums(theta), np.empty_like(theta)
    for index in np.ndindex(theta.shape):
        h = np.zeros_like(theta)
        h[index] = 1e-5
        numeric[index] = (sums(theta + h)[0] - sums(theta - h)[0]) / 2e-5
    assert_allclose(here[1 : 1 + m], numeric[:, 3], rtol=1e-6, atol=1e-6)
    assert_allclose(here[1 + m :].reshape(m, 3), numeric[:, :3], rtol=1e-6, atol=1e-6)
    assert np.abs(numeric).max() > 1.0


def test_two_classes_are_the_softmax_of_two_logits():
    t, codes = np.array([[-3.0, 0.2, 800.0, -800.0]]), np.array([0, 1, 1, 1])
    one = loss_and_residual(t, codes)
    two = loss_and_residual(np.concatenate([-t / 2, t / 2]), codes)
    assert_allclose(one[0], two[0], atol=1e-12)
    assert_allclose(one[1][0], two[1][1], atol=1e-12)
    assert one[0][3] == 800.0


def test_losses_per_cell_add_up_and_are_apart():
    z, y, weight = problem(3, n=50, d=4)
    logits = LinearLogits(np.ones((3, 4)) * np.arange(3)[:, None] / 9, np.zeros(3), np.zeros(4))
    rows = source(z, y, weight, block_rows=9)
    cells = rows.sum(CellLosses(logits, 3))
    assert_allclose(cells.sum(), rows.sum(SoftmaxLoss(logits, Weighting(np.ones(3))))[0])
    only = rows.sum(SoftmaxLoss(logits, Weighting(np.array([0.0, 1.0, 0.0]))))[0]
    assert_allclose(cells[1], only)
    assert only < 0.9 * cells.sum()


@pytest.mark.parametrize("k", [2, 4])
def test_scale_and_offset_of_the_rows_do_not_matter(k):
    z, y, weight = problem(k)
    plain, _ = solve(z, y, weight, tol=1e-8)
    logits = z @ plain.weights.T + plain.intercepts_uncentred
    for factor, shift in ((1e-4, 0.0), (1e5, 3.0), (1.0, 1e4)):
        moved = factor * (z + shift)
        model, _ = solve(moved, y, weight, tol=1e-8)
        assert model.outcome.converged
        assert_allclose(moved @ model.weights.T + model.intercepts_uncentred, logits, atol=1e-5)
    decays = [LogisticRegression(C=0.1, max_iter=10_000).fit(f * z, y).predict_proba(f * z) for f in (1.0, 1e-4)]
    assert np.abs(decays[0] - decays[1]).max() > 0.1  # control: an absolute penalty does feel the scale


def test_columns_that_repeat_or_do_not_vary_change_nothing():
    z, y, weight = problem(3)
    wide = np.column_stack([z, np.full(len(y), 7.0)])
    model, _ = solve(wide, y, weight, tol=1e-8)
    plain, _ = solve(z, y, weight, tol=1e-8)
    assert_allclose(model.weights[:, :-1], plain.weights, atol=1e-6 * np.abs(plain.weights).max())
    assert_allclose(model.weights[:, -1], 0, atol=1e-12)
    twice, _ = solve(np.column_stack([z, z[:, 0]]), y, weight, tol=1e-8)
    assert twice.outcome.converged
    assert_allclose(twice.weights[:, 0], twice.weights[:, -1], atol=1e-8)


def test_stretched_rows_need_few_evaluations():
    z, y, weight = problem(2, stretch=1e4)
    model, _ = solve(z, y, weight, penalty=1e-9)
    assert model.outcome.converged
    assert model.outcome.evaluations < 60


def test_single_precision_converges_to_the_same_solution():
    z, y, weight = problem(3, n=3000)
    double, _ = solve(z, y, weight)
    single, _ = solve(z.astype(np.float32), y, weight)
    assert single.outcome.converged
    assert_allclose(single.weights, double.weights, atol=1e-4 * np.abs(double.weights).max())
    assert_allclose(solve(z.astype(np.float16), y, weight)[0].intercepts, double.intercepts, atol=0.1)


def test_a_start_close_by_saves_evaluations():
    z, y, weight = problem(4)
    far, _ = solve(z, y, weight)
    near, _ = solve(z, y, weight, start=solve(z, y, weight, penalty=0.0105)[0])
    assert near.outcome.evaluations < far.outcome.evaluations
    assert_allclose(near.weights, far.weights, atol=1e-4 * np.abs(far.weights).max())


def test_a_start_with_another_centre_is_the_same_start():
    z, y, weight = problem(2)
    rows, weighting = source(z, y, weight), Weighting(np.full(2, 1.0 / weight.sum()))
    solution, whitening = solve(z, y, weight)
    moved = replace(solution, centre=solution.centre + 9, intercepts=solution.intercepts + solution.weights.sum() * 9)
    again = solve_softmax(rows, weighting, whitening, 2, start=moved)
    assert_allclose(again.weights, solution.weights, atol=1e-12)
    assert again.outcome.evaluations <= 3
    wrong = solve_softmax(rows, weighting, whitening, 2, start=replace(moved, intercepts=solution.intercepts))
    assert wrong.outcome.evaluations > 5


def test_stopping_early_is_an_outcome_with_a_reason():
    z, y, weight = problem(4)
    model, _ = solve(z, y, weight, max_iter=2)
    assert not model.outcome.converged
    assert "relative gradient" in model.outcome.reason
    with pytest.warns(NotConvergedWarning, match="Raise max_iter"):
        model.outcome.warn_unless_converged()
    solve(z, y, weight)[0].outcome.warn_unless_converged()  # control: silent


def test_labels_without_a_trace_leave_the_shares_of_the_classes():
    z = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]] * 9)
    y = np.repeat([0, 1, 1], 12)
    model, _ = solve(z, y)
    assert model.outcome.converged
    assert_allclose(model.weights, 0, atol=1e-6)
    assert_allclose(model.intercepts, np.log(2.0), atol=1e-5)


class Visits(MemoryRows):
    """Rows that count the passes over them."""

    passes = 0

    def sum(self, statistic):
        self.passes += 1
        return super().sum(statistic)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("removed", [False, True])
def test_regressions_side_by_side_are_those_one_by_one_in_fewer_passes(n_classes, removed):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_classes, 300)
    Z = rng.normal(size=(300, 8)) * np.geomspace(1.0, 0.01, 8) + 1.5 * np.eye(8)[codes]
    cell = rng.integers(0, 4, 300)
    rows = Visits(Z, RowLabels(np.stack([codes, codes]).astype(float), cell, np.ones(300), 0))
    everything = Weighting(np.full(4, 1.0 / 300))
    geometry = Geometry.of_rows(rows, everything)
    if removed:
        geometry = geometry.transformed(AffineMap.removing(Subspace(np.eye(8)[:, :1]), Z.mean(axis=0)).matrix(), 8)
    without = [Weighting(np.where(np.arange(4) == k, 0.0, 1.0 / np.sum(cell != k))) for k in range(4)]
    problems = [(weighting, decay) for weighting in without for decay in (1.0, 1e-2, 1e-4)]
    rows.passes = 0
    many = solve_softmax_many(rows, geometry, problems, n_classes, tol=1e-8)
    together, rows.passes = rows.passes, 0
    one_by_one = [
        solve_softmax(rows, weighting, LogisticCoordinates.of(geometry, decay), n_classes, tol=1e-8)
        for weighting, decay in problems
    ]
    assert together < rows.passes / 5
    assert together == max(model.outcome.evaluations for model in many)
    for found, expected in zip(many, one_by_one, strict=True):
        assert found.outcome.converged
        np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5 * np.abs(expected.weights).max())
        np.testing.assert_allclose(found.intercepts, expected.intercepts, atol=1e-5)
    assert np.abs(many[0].weights - many[2].weights).max() > 0.1  # penalties and folds differ
    assert np.abs(many[1].weights - many[4].weights).max() > 1e-3


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("bounded", [True, False])
def test_small_penalties_on_separable_rows_are_solved_at_a_rough_tolerance(k, bounded, monkeypatch):
    """Where the loss is small its gradient is, too, however far the minimum is."""
    if not bounded:  # the control
        monkeypatch.setattr(logistic, "MAX_GRADIENT_TO_LOSS", np.inf)
    rng = np.random.default_rng(0)
    y = np.arange(80) % k
    z = rng.standard_normal((80, 120)) + 2.0 * np.eye(120)[y]
    exact, whitening = solve(z, y, penalty=1e-6, tol=1e-12)
    rows, weighting = source(z, y), Weighting(np.full(k, 1.0 / len(y)))
    alone = solve_softmax(rows, weighting, whitening, k, tol=1e-5)
    beside = solve_softmax_many(rows, whitening.geometry, [(weighting, 1e-6), (weighting, 1.0)], k, tol=1e-5)[0]
    for found in (alone, beside):
        assert found.outcome.converged
        assert (found.outcome.objective < 1.0001 * exact.outcome.objective) == bounded
        error = np.linalg.norm(found.weights - exact.weights) / np.linalg.norm(exact.weights)
        assert (error < 0.01) == bounded


def test_without_a_penalty_separable_rows_are_solved_as_far_as_the_tolerance_says():
    y = np.arange(80) % 2
    z = np.random.default_rng(0).standard_normal((80, 120)) + 2.0 * np.eye(120)[y]
    assert solve(z, y, penalty=0.0)[0].outcome.converged  # though there is no minimum


def test_a_regression_that_is_not_solved_in_time_says_so():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 100)
    rows = MemoryRows(rng.normal(size=(100, 5)) + 3.0 * codes[:, None], RowLabels.of(codes, codes))
    weighting = Weighting(np.full(4, 0.01))
    geometry = Geometry.of_rows(rows, weighting)
    easy, hard = solve_softmax_many(rows, geometry, [(weighting, 1e3), (weighting, 1e-6)], 2, tol=1e-3, max_iter=2)
    assert easy.outcome.converged
    assert not hard.outcome.converged
    assert "limit" in hard.outcome.reason
