"""The paper's solvers, of pairs and of heads: they go where the exact ones go, and stop as the paper says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.solvers.test_softmax import problem, solve, source
from unspur.datasets import make_toy
from unspur.rows import CONCEPT, MemoryRows, RowLabels, Weighting
from unspur.solvers.coordinates import Geometry, LogisticCoordinates
from unspur.solvers.logistic import LogisticLosses, SoftmaxLoss, n_logits, solve_logistic
from unspur.solvers.orthogonal_pair import PairLosses, PairSpace, Spectrum, directions, solve_pairs
from unspur.solvers.sgd import (
    SGDSettings,
    chain_to_parameters,
    effective_weights,
    solve_pair_by_sgd,
    solve_softmax_by_sgd,
)
from unspur.solvers.statistics import CellCounts, Moments
from unspur.subspace import Subspace


def setting(n=3000, rho=0.5, seed=0, balance="none"):
    toy = make_toy(n, d=6, rho=rho, random_state=seed)
    fold = (np.arange(n) % 5 == 0).astype(int)
    rows = MemoryRows(toy.Z, RowLabels.of(toy.y, toy.concept, fold=fold))
    counts = CellCounts.of(rows)
    train, validation = (counts.weighting(mask, balance) for mask in (counts.without(1), counts.only(1)))
    return rows, train, validation, Moments.of(rows, train)


def run(seed=0, removed=None, settings=SGDSettings(), **options):  # noqa: B008 — frozen
    rows, train, validation, moments = setting(**options)
    away = Subspace.empty(6) if removed is None else removed
    return solve_pair_by_sgd(rows, train, validation, moments.mean, away, settings, np.random.default_rng(seed))


def test_sgd_finds_the_directions_of_the_exact_solver():
    rows, train, _, moments = setting()
    space = PairSpace.of(Spectrum.of(Geometry.of(moments, 8)), 0.0)
    losses = PairLosses(rows, space.spectrum, (train,))
    exact = solve_pairs(losses, [space], losses.at_zero())[0]
    by_sgd = directions(run())
    assert np.all(np.abs(np.sum(by_sgd * directions(exact), axis=1)) > 0.99)
    barely = directions(run(settings=SGDSettings(learning_rate=1e-4, max_epochs=1)))
    assert np.abs(np.sum(barely * directions(exact), axis=1)).min() < 0.99


def test_weights_are_orthogonal_to_each_other_and_to_what_was_removed():
    removed = Subspace.spanned_by(np.random.default_rng(0).standard_normal((6, 2)))
    pair = run(removed=removed)
    assert abs(pair.weights[0] @ pair.weights[1]) < 1e-12
    assert_allclose(removed.basis.T @ pair.weights.T, 0, atol=1e-12)
    assert np.abs(removed.basis.T @ run().weights.T).max() > 0.1


def test_it_stops_after_the_epochs_without_improvement_and_keeps_the_best():
    wild = SGDSettings(learning_rate=3.0, patience=2, max_epochs=40)
    pair = run(settings=wild)
    assert "no improvement for 2 epochs" in pair.outcome.reason
    assert pair.outcome.evaluations < 40
    longest = run(settings=SGDSettings(learning_rate=1e-4, max_epochs=3))
    assert longest.outcome.evaluations == 3
    assert "still improving" in longest.outcome.reason


def test_the_weights_returned_are_those_of_the_best_epoch():
    rows, _, validation, moments = setting()
    pair = run(settings=SGDSettings(learning_rate=3.0, patience=4, max_epochs=40))
    held_out = LogisticLosses.of_one(pair.weights, pair.intercepts, moments.mean, validation)
    value = rows.sum(held_out)[..., 0].sum()
    assert_allclose(value, pair.outcome.objective)
    shorter = [run(settings=SGDSettings(learning_rate=3.0, patience=40, max_epochs=k)).outcome for k in range(1, 9)]
    assert np.all(np.diff([outcome.objective for outcome in shorter]) <= 0)
    last = run(settings=SGDSettings(learning_rate=3.0, patience=4, max_epochs=pair.outcome.evaluations - 4))
    assert_allclose(last.weights, pair.weights)  # the best came four epochs before the end


def test_early_stopping_watches_the_validation_rows():
    rows, train, validation, moments = setting()
    weights = {}
    for name, watched in (("validation", validation), ("training", train)):
        pair = solve_pair_by_sgd(
            rows, train, watched, moments.mean, Subspace.empty(6), SGDSettings(), np.random.default_rng(0)
        )
        weights[name] = pair
    assert weights["validation"].outcome.objective != weights["training"].outcome.objective


@pytest.mark.parametrize("change", [{"momentum": 0.0}, {"penalty": 0.1}, {"batch_size": 64}, {"learning_rate": 0.03}])
def test_every_setting_has_an_effect(change):
    assert not np.allclose(run(settings=SGDSettings(**change)).weights, run().weights, rtol=1e-3)


def test_a_learning_rate_that_diverges_is_an_outcome():
    outcome = run(settings=SGDSettings(learning_rate=1e3)).outcome
    assert not outcome.converged
    assert "diverged" in outcome.reason
    with pytest.warns(UserWarning, match="Lower learning_rate"):
        outcome.warn_unless_converged()
    assert run().outcome.converged


def test_it_starts_elsewhere_when_equal_weights_are_forbidden():
    pair = run(removed=Subspace.spanned_by(np.ones((6, 1))))
    assert np.linalg.norm(pair.weights, axis=1).min() > 0.1
    assert_allclose(pair.weights.sum(axis=1), 0, atol=1e-12)


def test_gradient_of_the_parameters_equals_finite_differences():
    rng = np.random.default_rng(0)
    parameters, slope = rng.standard_normal((2, 5)), rng.standard_normal((2, 5))
    numeric = np.empty((2, 5))
    for index in np.ndindex(2, 5):
        h = np.zeros((2, 5))
        h[index] = 1e-6
        numeric[index] = np.sum(slope * (effective_weights(parameters + h) - effective_weights(parameters - h))) / 2e-6
    assert_allclose(chain_to_parameters(parameters, slope), numeric, atol=1e-8)


def test_same_generator_same_bits_and_another_seed_other_bits():
    assert np.array_equal(run(seed=3).weights, run(seed=3).weights)
    assert not np.array_equal(run(seed=3).weights, run(seed=4).weights)


def test_one_label_alone_is_found_like_a_pair():
    rows, train, validation, moments = setting()

    def alone(away):
        rng = np.random.default_rng(0)
        return solve_pair_by_sgd(rows, train, validation, moments.mean, away, SGDSettings(), rng, only=CONCEPT)

    found = alone(Subspace.empty(6))
    exact = solve_logistic(rows, train, LogisticCoordinates.of(Geometry.of(moments, 8), 0.0), CONCEPT)
    assert found.outcome.converged
    assert found.weights.shape == (1, 6)
    assert found.weights[0] @ exact.weights > 0.98 * np.linalg.norm(found.weights) * np.linalg.norm(exact.weights)
    assert found.intercepts == pytest.approx([exact.intercept], abs=0.2)
    away = Subspace.spanned_by(exact.weights[:, None])
    assert abs(away.basis[:, 0] @ alone(away).weights[0]) < 1e-12


def layer_setting(k=2):
    z, y, weight = problem(k, stretch=1.0)
    return source(z, y, weight), Weighting(np.full(k, 1.0 / weight.sum())), (z, y, weight)


def layer_run(k=2, *, watch=True, start=None, seed=0, **options):
    rows, weighting, (z, _, _) = layer_setting(k)

    def loss(logits):
        return float(rows.sum(SoftmaxLoss(logits, weighting))[0])

    return solve_softmax_by_sgd(
        rows,
        weighting,
        z.mean(axis=0),
        n_logits(k),
        SGDSettings(**{"learning_rate": 0.05, **options}),
        np.random.default_rng(seed),
        watch=loss if watch else None,
        start=start,
    )


class TestLastLayer:
    """Where it starts, what it watches, and when it stops."""

    @pytest.mark.parametrize("k", [2, 4])
    def test_it_comes_close_to_the_exact_solution(self, k):
        exact, _ = solve(*layer_setting(k)[2], penalty=0.0)
        by_sgd = layer_run(k, patience=20)
        assert by_sgd.outcome.objective < exact.outcome.objective + 0.02
        assert layer_run(k, max_epochs=1, learning_rate=1e-4).outcome.objective > exact.outcome.objective + 0.1

    def test_it_stops_after_the_epochs_without_improvement_and_keeps_the_best(self):
        wild = layer_run(learning_rate=1.0, patience=3)
        assert "no improvement for 3 epochs" in wild.outcome.reason
        assert wild.outcome.evaluations < 50
        best = layer_run(learning_rate=1.0, patience=3, max_epochs=wild.outcome.evaluations - 3)
        assert_allclose(best.weights, wild.weights)
        last = layer_run(learning_rate=1.0, watch=False, max_epochs=wild.outcome.evaluations)
        assert not np.allclose(last.weights, wild.weights)
        assert last.outcome.objective > wild.outcome.objective
        assert "still improving" in layer_run(learning_rate=1e-4, max_epochs=4).outcome.reason

    def test_it_goes_on_from_a_start(self):
        first = layer_run(max_epochs=10)
        near = layer_run(max_epochs=1, learning_rate=1e-6, start=first)
        assert_allclose(near.weights, first.weights, atol=1e-3)
        assert np.abs(layer_run(max_epochs=1, learning_rate=1e-6).weights - first.weights).max() > 0.1

    @pytest.mark.parametrize("change", [{"momentum": 0.0}, {"penalty": 0.5}, {"batch_size": 64}])
    def test_every_setting_has_an_effect(self, change):
        assert not np.allclose(layer_run(**change).weights, layer_run().weights, rtol=1e-3)

    def test_a_learning_rate_that_diverges_is_an_outcome(self):
        for rate, decay in ((1e3, 0.0), (10.0, 1.0)):
            outcome = layer_run(learning_rate=rate, penalty=decay).outcome
            assert not outcome.converged
            assert "diverged" in outcome.reason
        assert layer_run().outcome.converged
