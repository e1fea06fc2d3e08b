"""Pictures that were scaled before are the same pictures to a network."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("PIL")

from reproduction.tests.networks.tuning import labels
from reproduction.tests.strips import Pictures
from unspur_paper.datasets.squares import Squares, fill, finish, reserve, squares_file
from unspur_paper.embedding.base import Preparation, resize_and_crop
from unspur_paper.embedding.examples import as_rgb


@pytest.fixture
def photographs():
    """Pictures of different shapes."""
    from PIL import Image

    rng = np.random.default_rng(0)
    sizes = [(90, 60), (64, 64), (47, 130), (256, 200), (31, 33)]
    pixels = [rng.integers(0, 255, (height, width, 3), dtype=np.uint8) for width, height in sizes]
    return Pictures([Image.fromarray(picture) for picture in pixels], labels(len(sizes), 0.5, 0))


def test_a_network_sees_the_same_pixels(photographs, tmp_path):
    cut = Preparation(resize=64, crop=56, mean=(0.0,) * 3, scale=(1.0,) * 3)
    scaled = Squares.of(photographs, tmp_path, 64)
    assert scaled.pixels.shape == (5, 64, 64, 3)
    for i in range(5):
        seen, expected = (resize_and_crop(one, cut).astype(int) for one in (as_rgb(scaled[i]), photographs[i]))
        assert np.abs(seen - expected).max() <= 1  # rounding
    assert np.ptp(scaled[0]) > 50  # and something is seen


def test_squares_stand_for_their_pictures(photographs, tmp_path):
    scaled = Squares.of(photographs, tmp_path, 16)
    assert scaled.digest() == photographs.digest()
    assert (scaled.name, scaled.kind, list(scaled.ids), len(scaled)) == (
        photographs.name,
        "image",
        list(photographs.ids),
        len(photographs),
    )
    assert scaled.labels is photographs.labels


def test_they_are_made_once_and_only_whole_ones_count(photographs, tmp_path):
    path = squares_file(photographs, tmp_path, 16)
    reserve(photographs, path, 16)
    fill(photographs, path, range(3), 1)  # and then the process is killed
    whole = Squares.of(photographs, tmp_path, 16).pixels.copy()
    assert whole[4].any()
    photographs.images = None  # would be an error if they were loaded again
    assert_array_equal(Squares.of(photographs, tmp_path, 16).pixels, whole)


def test_several_processes_may_each_fill_their_part(photographs, tmp_path):
    path = squares_file(photographs, tmp_path / "parts", 16)
    reserve(photographs, path, 16)
    fill(photographs, path, range(3, 5), 1)
    fill(photographs, path, range(3), 1)
    finish(photographs.digest(), path)
    parts = Squares.of(photographs, tmp_path / "parts", 16)
    assert_array_equal(parts.pixels, Squares.of(photographs, tmp_path / "whole", 16).pixels)
