"""A descent ends where the rows have no digits left, and not before."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unspur.datasets import make_toy
from unspur.rows import CONCEPT, MemoryRows, RowLabels
from unspur.solvers import logistic
from unspur.solvers.coordinates import Geometry, LogisticCoordinates
from unspur.solvers.descent import minimize
from unspur.solvers.logistic import solve_logistic
from unspur.solvers.statistics import CellCounts


def solved(dtype, offset):
    toy = make_toy(900, d=16, rho=0.6, random_state=0)
    rows = MemoryRows((toy.Z + offset).astype(dtype), RowLabels.of(toy.y, toy.concept))
    counts = CellCounts.of(rows)
    weighting = counts.weighting(counts.without(None), "none")
    whitening = LogisticCoordinates.of(Geometry.of_rows(rows, weighting), 0.01)
    return solve_logistic(rows, weighting, whitening, CONCEPT, tol=1e-7)


def test_float32_rows_away_from_zero_are_solved_as_far_as_their_digits_go(monkeypatch):
    narrow, wide = solved(np.float32, 40.0), solved(np.float64, 40.0)
    assert narrow.outcome.converged
    assert narrow.outcome.reason == "gradient at the rounding error of the rows"
    assert narrow.outcome.evaluations < 200
    assert_allclose(narrow.weights, wide.weights, atol=1e-4 * np.abs(wide.weights).max())
    monkeypatch.setattr(logistic, "rounding_error", lambda _: 0.0)  # control: noise that it does not know of
    assert solved(np.float32, 40.0).outcome.evaluations > 1000


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_slow_progress_is_not_taken_for_noise(noise):
    """Rosenbrock's valley, whose gradient takes many steps to become half of what it was."""

    def valley(x):
        a, b = x[:-1], x[1:]
        slope = np.zeros_like(x)
        slope[:-1] += -400.0 * a * (b - a**2) - 2.0 * (1.0 - a)
        slope[1:] += 200.0 * (b - a**2)
        return float(np.sum(100.0 * (b - a**2) ** 2 + (1.0 - a) ** 2)), slope

    end = minimize(valley, np.full(12, -1.2), 1e-8, 2000, noise)
    assert end.gradient <= 1e-8
