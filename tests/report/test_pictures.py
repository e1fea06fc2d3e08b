"""Rows that are pictures, and where a network looks in pictures, against the heads themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA

from tests.embed.conftest import crops
from tests.embed.tiny import TinyConv
from tests.labelled_rows import Rows
from tests.report.rows import removal
from unspur import LEACE
from unspur.compare import tune_named_head
from unspur.embed.store import Reduction
from unspur.exceptions import InputError
from unspur.report.measuring import measure

SHAPE = (4, 3)


def pixels(n, seed):
    """Pictures of 4 × 3: the task lights the left column, the concept the top row."""
    rng = np.random.default_rng(seed)
    y, c = rng.integers(2, size=n), rng.integers(2, size=n)
    Z = rng.standard_normal((n, *SHAPE))
    Z[:, 1:, 0] += 1.5 * y[:, None]
    Z[:, 0, 1:] += 2.5 * c[:, None]
    return Z.reshape(n, -1), y, c


def test_directions_of_pixels_are_pictures():
    train, test = pixels(900, 0), pixels(300, 1)
    jse = removal(train)
    found = measure(jse, train, test, image_shape=SHAPE)
    assert set(found.pixels.directions) == {ends.axis for ends in found.extremes}
    spurious = np.abs(found.pixels.directions[0])
    assert spurious.shape == SHAPE
    assert spurious[0, 1:].mean() > 5 * spurious[1:].mean()  # the top row
    assert_allclose(found.pixels.directions[0].ravel(), jse.spurious_.basis[:, 0])
    counts = np.bincount(found.group[found.pixels.rows], minlength=4)
    assert_array_equal(counts, 2)
    assert_allclose(found.pixels.before.reshape(8, -1), test[0][found.pixels.rows])
    assert_allclose(found.pixels.after.reshape(8, -1), jse.transform(test[0])[found.pixels.rows])


def test_rows_of_components_are_brought_back_to_pixels():
    train, test = pixels(900, 0), pixels(300, 1)
    pca = PCA(8).fit(train[0] + 7.0)
    reduced = [(pca.transform(rows[0] + 7.0), *rows[1:]) for rows in (train, test)]
    jse = removal(reduced[0])
    found = measure(jse, *reduced, image_shape=SHAPE, to_pixels=pca.inverse_transform)
    # The mean of the pictures, which the way back adds to each, is no part of a direction.
    assert_allclose(found.pixels.directions[0].ravel(), pca.components_.T @ jse.spurious_.basis[:, 0], atol=1e-9)
    assert found.pixels.before.mean() > 5


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 5), "25 numbers; rows have shape"),
        ((12,), "image_shape is"),
        ((2, 3, 2), "image_shape is"),
        ((0, 12), "is"),
    ],
)
def test_a_shape_that_rows_do_not_have_is_refused(shape, message):
    train = pixels(300, 0)
    with pytest.raises(InputError, match=message):
        measure(erased(train), train, pixels(100, 1), image_shape=shape)


@pytest.fixture(scope="module")
def photographs():
    """Cuts of two photographs, their embeddings by a tiny network, and labels."""
    tiny, rng = TinyConv(), np.random.default_rng(0)
    pictures = crops("china.jpg", 90) + crops("flower.jpg", 90, seed=1)
    concept = np.repeat([0, 1], 90)
    Z = tiny.rows(pictures).astype(np.float64)
    middle = np.repeat([np.median(Z[:90, 3]), np.median(Z[90:, 3])], 90)  # of each photograph: all groups have rows
    y = (Z[:, 3] + 0.2 * Z[:, 3].std() * rng.standard_normal(180) > middle).astype(int)
    order = rng.permutation(180)
    pictures = [pictures[i] for i in order]
    return tiny, pictures, Z[order], y[order], concept[order]


def erased(rows):
    Z, y, concept = rows
    return LEACE().fit(Z, y, concept=concept)


@pytest.mark.parametrize("reduced", [False, True])
def test_maps_add_up_to_the_logit(photographs, reduced):
    """Of the head on the original rows and, through the removal, on the transformed ones."""
    tiny, pictures, Z, y, c = photographs
    reduction = Reduction.fit(Z[:90], 6) if reduced else None
    rows = Z if reduction is None else reduction(Z)
    train, test = (rows[:90], y[:90], c[:90]), (rows[90:], y[90:], c[90:])
    leace = erased(train)
    assert not np.allclose(leace.removal_.left, leace.removal_.right)  # oblique: the harder case to fold
    found = measure(leace, train, test, pictures=pictures[90:], encoder=tiny, reduction=reduction)
    looks = found.saliency
    assert looks.maps["before"].shape == (len(looks.rows), 7, 7)
    assert set(np.bincount(found.group[looks.rows])) <= {0, 1, 2}
    for name, clean in (("before", lambda z: z), ("after", leace.transform)):
        head = tune_named_head("ERM", Rows(clean(train[0]), *train[1:]), None, 0).head
        logits = head.decision_function(clean(test[0][looks.rows]))
        total = looks.maps[name].sum(axis=(1, 2))
        # Up to the bias of the folded layer, which is the same for every picture.
        assert_allclose(total - total[0], logits - logits[0], rtol=1e-3, atol=1e-3 * np.abs(logits).max())
    assert not np.allclose(looks.maps["before"], looks.maps["after"], rtol=0.1)
    assert looks.pictures[0].size == (28, 28)  # as the network is shown it


def test_a_pca_of_scikit_learn_is_a_reduction(photographs):
    tiny, pictures, Z, y, c = photographs
    pca = PCA(6).fit(Z[:90])
    rows = pca.transform(Z)
    train, test = (rows[:90], y[:90], c[:90]), (rows[90:], y[90:], c[90:])
    leace = erased(train)
    found = measure(leace, train, test, pictures=pictures[90:], encoder=tiny, reduction=pca)
    assert found.saliency is not None
    with pytest.raises(InputError, match="PCA without whitening"):
        measure(leace, train, test, pictures=pictures[90:], encoder=tiny, reduction=PCA(6, whiten=True).fit(Z[:90]))


def test_another_network_or_other_pictures_are_noticed(photographs):
    tiny, pictures, Z, y, c = photographs
    train, test = (Z[:90], y[:90], c[:90]), (Z[90:], y[90:], c[90:])
    leace = erased(train)
    with pytest.raises(InputError, match="differ from the rows by"):
        measure(leace, train, test, pictures=pictures[:90], encoder=tiny)
    narrow = [(part[0][:, :5], *part[1:]) for part in (train, test)]
    with pytest.raises(InputError, match="makes 12 numbers of a picture; rows have 5"):
        measure(erased(narrow[0]), *narrow, pictures=pictures[90:], encoder=tiny)
    with pytest.raises(InputError, match="Saliency maps need images"):
        measure(leace, train, test, texts=["a"] * 90, encoder=tiny)
    with pytest.raises(InputError, match="has no feature maps; omit `encoder`"):
        measure(leace, train, test, pictures=pictures[90:], encoder=object())


def test_more_than_two_classes_have_no_maps_and_a_remark(photographs):
    tiny, pictures, Z, _, c = photographs
    y = np.digitize(Z[:, 3], np.quantile(Z[:, 3], [1 / 3, 2 / 3]))
    train, test = (Z[:90], y[:90], c[:90]), (Z[90:], y[90:], c[90:])
    found = measure(erased(train), train, test, pictures=pictures[90:], encoder=tiny)
    assert found.saliency is None
    assert any("binary tasks only" in remark for remark in found.origin.remarks)
