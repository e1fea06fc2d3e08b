"""The paper's solver for a last layer: where it starts, what it watches, and when it stops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.solvers.test_softmax import problem, solve, source
from unspur.rows import Weighting
from unspur.solvers.sgd import SGDSettings
from unspur.solvers.softmax_sgd import solve_softmax_by_sgd
from unspur.sums.softmax import SoftmaxLoss, n_logits


def setting(k=2):
    z, y, weight = problem(k, stretch=1.0)
    return source(z, y, weight), Weighting(np.full(k, 1.0 / weight.sum())), (z, y, weight)


def run(k=2, *, watch=True, start=None, seed=0, **options):
    rows, weighting, (z, _, _) = setting(k)

    def loss(logits):
        return float(rows.sum(SoftmaxLoss(logits, weighting))[0])

    return solve_softmax_by_sgd(
        rows, weighting, z.mean(axis=0), n_logits(k), SGDSettings(**{"learning_rate": 0.05, **options}),
        np.random.default_rng(seed), watch=loss if watch else None, start=start,
    )  # fmt: skip


@pytest.mark.parametrize("k", [2, 4])
def test_it_comes_close_to_the_exact_solution(k):
    exact, _ = solve(*setting(k)[2], weight_decay=0.0)
    by_sgd = run(k, patience=20)
    assert by_sgd.outcome.objective < exact.outcome.objective + 0.02
    assert run(k, max_epochs=1, learning_rate=1e-4).outcome.objective > exact.outcome.objective + 0.1


def test_it_stops_after_the_epochs_without_improvement_and_keeps_the_best():
    wild = run(learning_rate=1.0, patience=3)
    assert "no improvement for 3 epochs" in wild.outcome.reason
    assert wild.outcome.evaluations < 50
    best = run(learning_rate=1.0, patience=3, max_epochs=wild.outcome.evaluations - 3)
    assert_allclose(best.weights, wild.weights)
    last = run(learning_rate=1.0, watch=False, max_epochs=wild.outcome.evaluations)
    assert not np.allclose(last.weights, wild.weights)
    assert last.outcome.objective > wild.outcome.objective
    assert "still improving" in run(learning_rate=1e-4, max_epochs=4).outcome.reason


def test_it_goes_on_from_a_start():
    first = run(max_epochs=10)
    near = run(max_epochs=1, learning_rate=1e-6, start=first)
    assert_allclose(near.weights, first.weights, atol=1e-3)
    assert np.abs(run(max_epochs=1, learning_rate=1e-6).weights - first.weights).max() > 0.1


@pytest.mark.parametrize("change", [{"momentum": 0.0}, {"weight_decay": 0.5}, {"batch_size": 64}])
def test_every_setting_has_an_effect(change):
    assert not np.allclose(run(**change).weights, run().weights, rtol=1e-3)


def test_a_learning_rate_that_diverges_is_an_outcome():
    for rate, decay in ((1e3, 0.0), (10.0, 1.0)):
        outcome = run(learning_rate=rate, weight_decay=decay).outcome
        assert not outcome.converged
        assert "diverged" in outcome.reason
    assert run().outcome.converged
