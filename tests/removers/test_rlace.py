"""RLACE: exact where it can be, honest where it cannot, and the published schedule beside it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from unspur import RLACE, SAL, SGD
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotConvergedWarning
from unspur.removers.rlace import _BestResponse, onto_fantope
from unspur.rows import MemoryRows, RowLabels, Weighting
from unspur.subspace import Subspace


def classes(n=900, d=6, k=4, seed=0):
    rng = np.random.default_rng(seed)
    concept = rng.integers(k, size=n)
    return rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((k, d))[concept], concept


def test_the_exact_answer_leaves_the_best_response_at_the_loss_of_a_constant():
    toy = make_toy(1500, d=8, rho=0.8, random_state=0)
    rlace = RLACE().fit(toy.Z, concept=toy.concept)
    assert rlace.trace_.response_loss == pytest.approx(rlace.trace_.chance_loss, abs=1e-9)
    assert_allclose(rlace.removal_.matrix(), SAL().fit(toy.Z, concept=toy.concept).removal_.matrix(), atol=1e-9)
    turned = _response(toy.Z, toy.concept[None] == 1)(Subspace.spanned_by(np.ones((8, 1))))
    assert turned[0] < rlace.trace_.chance_loss - 0.05  # another direction does not


def _response(z, columns):
    columns = np.atleast_2d(columns).astype(float)
    rows = MemoryRows(z, RowLabels(columns, np.zeros(len(z), dtype=np.intp), np.ones(len(z)), 0))
    return _BestResponse(rows, Weighting(np.full(1, 1.0 / len(z))), len(columns))


def test_gradient_of_the_best_response_equals_finite_differences():
    z, concept = classes()
    response = _response(z, concept == np.arange(1, 4)[:, None])
    rng = np.random.default_rng(1)
    v = np.linalg.qr(rng.standard_normal((6, 2)))[0]
    turn = rng.standard_normal((6, 2))
    turn -= v @ (v.T @ turn)

    def loss(h):
        q, r = np.linalg.qr(v + h * turn)
        return response.with_gradient(q * np.sign(np.diag(r)))[0]

    numeric = (loss(1e-4) - loss(-1e-4)) / 2e-4
    assert np.sum(response.with_gradient(v)[1] * turn) == pytest.approx(numeric, rel=1e-4)
    assert abs(numeric) > 1e-3


@pytest.mark.parametrize("rank", [1, 2])
def test_with_fewer_directions_than_class_means_differ_in_none_tried_leaves_less(rank):
    z, concept = classes()
    rlace = RLACE(rank=rank).fit(z, concept=concept)
    assert rlace.spurious_.dim == rank
    response = _response(z, concept == np.arange(1, 4)[:, None])
    rng = np.random.default_rng(0)
    others = [response(Subspace.spanned_by(rng.standard_normal((6, rank))))[0] for _ in range(30)]
    best_of_sal = [response(Subspace(SAL().fit(z, concept=concept).spurious_.basis[:, :rank]))[0]]
    assert rlace.trace_.response_loss >= max(others + best_of_sal) - 1e-6
    assert rlace.trace_.response_loss < rlace.trace_.chance_loss - 1e-3  # and it says that some is left
    assert RLACE(rank=3).fit(z, concept=concept).trace_.response_loss == pytest.approx(
        rlace.trace_.chance_loss, abs=1e-6
    )


def test_more_directions_than_there_are_to_find_are_refused():
    z, concept = classes(k=2)
    with pytest.raises(InputError, match="differ in 1 direction"):
        RLACE(rank=2).fit(z, concept=concept)


def test_the_schedule_that_stops_early_says_so():
    toy = make_toy(1500, d=8, rho=0.5, random_state=0)
    with pytest.warns(NotConvergedWarning, match="ended before the concept was gone"):
        early = RLACE(solver="sgd", random_state=0).fit(0.1 * toy.Z, concept=toy.concept)
    assert early.trace_.response_accuracy > early.trace_.majority + 0.02
    exact = RLACE().fit(0.1 * toy.Z, concept=toy.concept)
    assert exact.trace_.response_loss > early.trace_.response_loss
    assert 0.3 < abs(early.spurious_.basis[:, 0] @ exact.spurious_.basis[:, 0]) < 0.999  # on its way there


def test_projection_onto_the_fantope():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((5, 5))
    point = onto_fantope(matrix, 2)
    values = np.linalg.eigvalsh(point)
    assert np.trace(point) == pytest.approx(2)
    assert values.min() > -1e-9
    assert values.max() < 1 + 1e-9
    symmetric = (matrix + matrix.T) / 2
    nearest = np.linalg.norm(point - symmetric)
    for _ in range(50):  # no other point of it is nearer
        basis = np.linalg.qr(rng.standard_normal((5, 5)))[0]
        other = onto_fantope((basis * rng.random(5) * 3) @ basis.T, 2)
        assert np.linalg.norm(0.9 * point + 0.1 * other - symmetric) >= nearest - 1e-9


def test_a_learning_rate_at_which_the_schedule_diverges_is_told():
    toy = make_toy(400, d=6, rho=0.8, random_state=0)
    with pytest.warns(NotConvergedWarning, match=r"diverged after \d+ iterations, with too large a learning_rate"):
        rlace = RLACE(solver=SGD(learning_rate=1e300), random_state=0).fit(toy.Z, concept=toy.concept)
    assert "diverged" in rlace.trace_.stopped
    assert np.isfinite(rlace.transform(toy.Z)).all()


@pytest.mark.parametrize("name", ["batch_size", "max_epochs", "patience", "learning_rate"])
def test_truth_values_are_no_numbers_of_sgd(name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of SGD must be a number"):
        SGD(**{name: True})
    assert getattr(SGD(**{name: 1}), name) == 1  # the control


def test_a_removed_concept_of_equal_classes_is_not_said_to_beat_the_majority():
    rng = np.random.default_rng(0)
    for seed in range(12):
        concept = rng.permutation(np.repeat([0, 1], 500))
        Z = np.random.default_rng(seed).standard_normal((1000, 6))
        Z[:, 0] += 2.0 * concept
        rlace = RLACE().fit(Z, concept=concept)
        assert rlace.trace_.response_accuracy == rlace.trace_.majority
        assert not any("beats the majority" in note for note in rlace._notes())
    one = RLACE(rank=1).fit(np.column_stack([Z, Z[:, 0] ** 2]), concept=np.arange(1000) % 3)
    assert one.trace_.response_accuracy >= one.trace_.majority
