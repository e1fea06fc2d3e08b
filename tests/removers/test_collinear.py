"""Closed forms on columns that are nearly copies of each other, and tell the concept by their differences."""

import warnings

import numpy as np
import pytest

from unspur import LEACE, SAL, SPLINCE
from unspur.exceptions import IllConditionedWarning, NothingRemovedWarning

METHODS = (LEACE, SAL, SPLINCE)


def nearly_copies(epsilon, *, d=6, copies=0, dtype=np.float64, seed=0, n=800):
    """Rows whose last column is a combination of the others plus `epsilon` times the concept; then exact copies."""
    rng = np.random.default_rng(seed)
    concept = rng.permutation(np.arange(n) % 2)
    y = np.where(rng.random(n) < 0.75, concept, 1 - concept)
    z = rng.standard_normal((n, d - 1))
    if d > 2:
        z[:, 1] += 0.8 * y
    last = z @ np.where(np.arange(d - 1) == 0, 1.0, rng.standard_normal(d - 1)) + epsilon * concept
    z = np.column_stack([z, last])
    return np.column_stack([z, z[:, :copies]]).astype(dtype), y, concept


def multiple_correlation(x, label, like):
    """That of a label with all columns of x, by pivoted orthogonalisation in extended precision.

    Directions in which x varies by no more than the rounding of `like`, the rows that it was made of, do not count.
    """
    rows = like.astype(np.longdouble)
    spread = rows.std(axis=0)
    rounding = 8 * np.finfo(like.dtype).eps * (np.sqrt((rows**2).mean(axis=0)) / spread).max()
    rest, label = (x - x.astype(np.longdouble).mean(axis=0)) / spread, label - np.longdouble(label.mean())
    found = np.longdouble(0)
    for _ in range(x.shape[1]):
        sizes = np.sqrt((rest**2).mean(axis=0))
        if sizes.max() <= rounding:
            break
        axis = rest[:, sizes.argmax()] / np.sqrt((rest[:, sizes.argmax()] ** 2).sum())
        found += (axis @ label) ** 2
        for _ in range(2):
            rest = rest - np.outer(axis, axis @ rest)
    return float(np.sqrt(found / (label @ label)))


def textbook(z, concept):
    """LEACE by a pseudo-inverse that cuts small eigenvalues off, as it is usually written."""
    around, label = z - z.mean(axis=0), concept - concept.mean()
    values, vectors = np.linalg.eigh(around.T @ around / len(z))
    kept = values > 1e-12 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    inverse = vectors[:, kept] / np.sqrt(values[kept])
    u = inverse.T @ (around.T @ label)
    u /= np.linalg.norm(u)
    return z - np.outer(around @ (inverse @ u), root @ u)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("d", "copies"), [(3, 0), (6, 0), (6, 3), (20, 0)])
def test_no_combination_of_columns_tells_the_concept(method, d, copies, dtype):
    eps = float(np.finfo(dtype).eps)
    for power in range(2, 10):
        z, y, concept = nearly_copies(10.0**-power, d=d, copies=copies, dtype=dtype, seed=power)
        if 10.0**-power < 30 * eps:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)  # of SPLINCE, where few columns vary
            clean = method().fit(z, y, concept=concept).transform(z)
        allowed = 1000 * eps * 10.0**power
        assert multiple_correlation(clean, concept, z) < allowed, power
        if allowed < 0.1:
            assert multiple_correlation(z, concept, z) > 0.99  # control: before it is all there


def test_a_cut_alone_would_leave_it():
    z, _, concept = nearly_copies(1e-7)
    assert multiple_correlation(textbook(z, concept), concept, z) > 0.9
    same, _, _ = nearly_copies(1e-2)
    assert multiple_correlation(textbook(same, concept), concept, same) < 1e-10


@pytest.mark.parametrize("epsilon", [1e-2, 1e-5, 1e-6, 1e-7, 1e-9])
def test_splince_keeps_the_task_also_where_columns_are_nearly_copies(epsilon):
    z, y, concept = nearly_copies(epsilon, copies=2)
    clean = SPLINCE().fit(z, y, concept=concept).transform(z)
    around = y - y.mean()
    before, after = (around @ (rows - rows.mean(axis=0)) / len(z) for rows in (z, clean))
    np.testing.assert_allclose(after, before, atol=1e-12)
    # Also of the difference that tells the concept, which goes with the task: in its own unit.
    direction = np.linalg.lstsq(z[:, :5], z[:, 5] - epsilon * concept, rcond=None)[0]
    faint_before, faint_after = (float(around @ (rows[:, 5] - rows[:, :5] @ direction)) for rows in (z, clean))
    assert faint_before > 0.05 * epsilon * len(z)
    assert faint_after == pytest.approx(faint_before, rel=1e-3)
    leace = LEACE().fit(z, concept=concept).transform(z)
    assert abs(float(around @ (leace[:, 5] - leace[:, :5] @ direction)) - faint_before) > 0.1 * faint_before  # control


@pytest.mark.parametrize("epsilon", [1e-6, 1e-8])
def test_a_concept_that_only_a_faint_direction_tells_is_found(epsilon):
    """The columns themselves have no covariance with it at all."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((400, 3))
    z, concept = np.vstack([half, half]), np.arange(800) // 400
    z = np.column_stack([z, z[:, 0] + epsilon * concept])
    leace = LEACE().fit(z, concept=concept)
    assert leace.spurious_.dim == 1
    assert multiple_correlation(leace.transform(z), concept, z) < 1e-3
    with pytest.warns(NothingRemovedWarning):
        assert LEACE().fit(z[:, :3], concept=concept).spurious_.dim == 0  # control: without it there is nothing
