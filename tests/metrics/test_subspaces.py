"""Angles and shared variance against cases worked out by hand and canonical correlations of rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unspur import Subspace
from unspur.exceptions import InputError
from unspur.metrics import principal_angles, shared_variance

E = np.eye(4)


def span(*vectors):
    return Subspace.spanned_by(np.column_stack(vectors))


def test_a_direction_at_a_known_angle():
    turned = np.cos(np.pi / 6) * E[0] + np.sin(np.pi / 6) * E[2]
    a, b = span(E[0], E[1]), span(turned)
    assert_allclose(principal_angles(a, b), [30.0])
    assert shared_variance(a, b) == pytest.approx(0.75)
    assert shared_variance(b, a) == pytest.approx(0.75)
    assert_allclose(principal_angles(a, span(turned, E[3])), [30.0, 90.0], atol=1e-6)
    assert shared_variance(a, span(turned, E[3])) == pytest.approx(0.375)


def test_extremes():
    a = span(E[0], E[1])
    assert shared_variance(a, span(E[2], E[3])) == pytest.approx(0, abs=1e-15)
    assert shared_variance(a, span(E[0] + E[1], E[0] - E[1])) == pytest.approx(1)
    assert shared_variance(a, span(E[0], E[1], E[2])) == pytest.approx(1)


def test_orthogonal_directions_share_variance_where_rows_correlate():
    covariance = np.eye(4)
    covariance[0, 1] = covariance[1, 0] = 0.6
    assert shared_variance(span(E[0]), span(E[1])) == pytest.approx(0)
    assert shared_variance(span(E[0]), span(E[1]), covariance) == pytest.approx(0.36)
    assert shared_variance(span(E[0]), span(E[2]), covariance) == pytest.approx(0)


def test_weighted_version_is_the_mean_squared_canonical_correlation_of_scores():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 6))
    z -= z.mean(axis=0)
    a, b = (Subspace.spanned_by(rng.standard_normal((6, k))) for k in (2, 3))
    # Canonical correlations by regression: R² of the whitened scores of one side on the scores of the other.
    u = np.linalg.qr(z @ a.basis)[0]
    fitted = (z @ b.basis) @ np.linalg.lstsq(z @ b.basis, u, rcond=None)[0]
    expected = np.sum(fitted**2) / 2
    covariance = z.T @ z / 500
    assert shared_variance(a, b, covariance) == pytest.approx(expected)
    assert shared_variance(a, b, 1e-9 * covariance) == pytest.approx(expected)
    assert shared_variance(a, b, np.eye(6)) == pytest.approx(shared_variance(a, b))
    assert abs(shared_variance(a, b) - expected) > 0.01


def test_directions_without_variance_are_left_out():
    flat = np.diag([1.0, 1.0, 0.0, 0.0])
    assert shared_variance(span(E[0], E[2]), span(E[0], E[3]), flat) == pytest.approx(1)
    with pytest.raises(InputError, match="no variance inside"):
        shared_variance(span(E[2]), span(E[0]), flat)


def test_what_cannot_be_compared_says_so():
    with pytest.raises(InputError, match="0 and 1"):
        shared_variance(Subspace.empty(4), span(E[0]))
    with pytest.raises(InputError, match="R\\^4 and R\\^3"):
        shared_variance(span(E[0]), Subspace.empty(3))
    with pytest.raises(InputError, match="symmetric"):
        shared_variance(span(E[0]), span(E[1]), np.triu(np.ones((4, 4))))
    with pytest.raises(InputError, match="eigenvalues"):
        shared_variance(span(E[0]), span(E[1]), -E)
    assert principal_angles(Subspace.empty(4), span(E[0])).shape == (0,)
