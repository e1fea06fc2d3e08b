"""Toy and photodigits are what they say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression

from unspur.datasets import embed_images, make_photodigits, make_toy
from unspur.exceptions import InputError


def test_toy_has_the_covariance_and_label_model_of_the_paper():
    toy = make_toy(200_000, rho=0.7, random_state=0)
    expected = np.eye(20)
    expected[0, 1] = expected[1, 0] = 0.7
    assert_allclose(np.cov(toy.Z.T), expected, atol=0.02)
    for label, axis in ((toy.concept, toy.spurious_axis), (toy.y, toy.main_axis)):
        fit = LogisticRegression(C=1e6).fit(toy.Z, label)
        assert_allclose(fit.coef_[0], axis, atol=0.12)
        assert_allclose(fit.intercept_, 0, atol=0.05)
    assert_allclose(toy.spurious_axis[:2], [3, 0])
    assert_allclose(toy.main_axis[:2], [0, 3], atol=1e-12)


def test_toy_can_be_unequally_hard_and_not_orthogonal():
    toy = make_toy(10, separability=(6.0, 2.0), random_state=0)
    assert (toy.spurious_axis[0], round(toy.main_axis[1], 12)) == (6.0, 2.0)
    oblique = make_toy(10, angle=75.0, random_state=0)
    assert_allclose(oblique.main_axis[:2], [0.634, 2.366], atol=1e-3)  # as the paper prints it
    cosine = oblique.main_axis @ oblique.spurious_axis / np.linalg.norm(oblique.main_axis) / 3
    assert_allclose(np.degrees(np.arccos(cosine)), 75)


def test_toy_sets_are_reproducible_and_independent_across_seeds():
    assert_array_equal(make_toy(50, random_state=1).Z, make_toy(50, random_state=1).Z)
    one, two = make_toy(5000, random_state=1).Z, make_toy(5000, random_state=2).Z
    assert abs(np.corrcoef(one[:, 0], two[:, 0])[0, 1]) < 0.05
    with pytest.raises(InputError, match="between −1 and 1"):
        make_toy(10, rho=1.5)


def test_photodigits_agree_as_often_as_asked_and_never_share_a_digit_between_splits():
    sets = {name: make_photodigits(name, agreement=0.9, random_state=0) for name in ("train", "validation", "test")}
    for data in sets.values():
        assert data.images.shape[1:] == (32, 32, 3)
        assert data.images.min() >= 0
        assert data.images.max() <= 1
        assert abs(np.mean(data.y == data.concept) - 0.9) < 0.03
        assert_array_equal(data.y, data.digit >= 5)
    half = make_photodigits("test", agreement=0.5, random_state=0)
    assert abs(np.mean(half.y == half.concept) - 0.5) < 0.05
    # The strokes of a digit are white wherever it lies: compare the brightest pixels of single digits.
    ink = {
        name: {
            tuple((make_photodigits(name, repeats=1, random_state=0).images[i] > 0.99).all(axis=2).nonzero()[0][:20])
            for i in range(100)
        }
        for name in ("train", "test")
    }
    assert len(ink["train"] & ink["test"]) < 10
    with pytest.raises(InputError, match="train, validation, test"):
        make_photodigits("holdout")


def test_embedding_is_fixed_and_shows_both_labels():
    train, test = (
        make_photodigits("train", agreement=0.5, random_state=0),
        make_photodigits("test", agreement=0.5, random_state=1),
    )
    Z, Z_test = embed_images(train.images), embed_images(test.images)
    assert_array_equal(Z[:5], embed_images(train.images[:5]))
    for label, label_test in ((train.y, test.y), (train.concept, test.concept)):
        score = LogisticRegression(C=100, max_iter=2000).fit(Z, label).score(Z_test, label_test)
        assert score > 0.85
