"""Rebuilding the features of Toy: what is there is found, what was removed is not."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from unspur import AffineMap, Subspace
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.metrics import reconstruction_error


def explained_variance(rows, feature):
    return 100 * (1 - (reconstruction_error(rows, feature) / feature.std()) ** 2)


@pytest.fixture(scope="module")
def toy():
    return make_toy(5000, rho=0.0, random_state=0)


def test_hand_computed():
    rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    feature = np.array([0.0, 2.0, 1.0, 3.0])  # slope 0.8, residuals −0.3, 0.9, −0.9, 0.3
    assert explained_variance(rows, feature) == pytest.approx(64.0)
    assert reconstruction_error(rows, feature) == pytest.approx(np.sqrt(0.45))


def test_scikit_learn_agrees_and_neither_offset_nor_unit_matters(toy):
    rng = np.random.default_rng(0)
    feature = toy.Z[:, 0] + rng.standard_normal(5000)
    model = LinearRegression().fit(toy.Z, feature)
    assert explained_variance(toy.Z, feature) == pytest.approx(100 * model.score(toy.Z, feature))
    moved = 1e-6 * toy.Z + 7
    assert explained_variance(moved, 100 * feature - 3) == pytest.approx(explained_variance(toy.Z, feature), rel=1e-6)
    assert reconstruction_error(moved, 100 * feature) == pytest.approx(100 * reconstruction_error(toy.Z, feature))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_removed_feature_cannot_be_rebuilt_and_the_other_can(toy, dtype):
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((20, 20)))[0]  # so that no column is the feature
    Z = (toy.Z @ turn + 3).astype(dtype)
    removal = AffineMap.removing(Subspace.spanned_by(turn.T @ np.eye(20)[:, :1]), np.full(20, 3.0))
    clean = removal(Z)
    spurious, main = toy.Z[:, 0], toy.Z[:, 1]
    assert explained_variance(Z, spurious) > 99.9
    assert explained_variance(clean, spurious) < 1.5  # 100 · 20 / 5000 by chance
    assert explained_variance(clean, main) > 99.9
    assert reconstruction_error(clean, spurious) == pytest.approx(spurious.std(), rel=0.01)
    assert reconstruction_error(clean, main) < 0.01 * main.std()


def test_what_cannot_be_judged_says_so(toy):
    with pytest.raises(InputError, match="rebuilt perfectly"):
        reconstruction_error(toy.Z[:20], toy.Z[:20, 0])
    with pytest.raises(InputError, match="one per row"):
        reconstruction_error(toy.Z, toy.Z)
