"""Pictures fit their budget, each row is loaded once, and a thumbnail shows its own row."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from tests.report.making import Pictures
from unspur.report.page.packing import sheet, shrunk, sources


@pytest.fixture
def coloured():
    """Nine rows, each of one colour of its own."""
    values = np.linspace(0.1, 0.9, 9)
    images = np.broadcast_to(
        np.stack([values, values[::-1], np.full(9, 0.5)], axis=1)[:, None, None, :], (9, 80, 60, 3)
    )
    return Pictures(images.astype(np.float32))


def decoded(address):
    head, data = address.split(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=float) / 255


def test_every_tile_shows_its_row(coloured):
    pictures = shrunk(coloured, range(9), ())
    made = sheet([pictures[k] for k in range(9)], 10**6)
    whole = decoded(made.source)
    for k in range(9):
        row, column = divmod(k, made.columns)
        middle = whole[row * made.size + made.size // 2, column * made.size + made.size // 2]
        distances = np.abs(coloured.images[:, 0, 0] - middle).sum(axis=1)
        assert distances.argmin() == k


def test_rows_are_loaded_once(coloured):
    shrunk(coloured, [0, 1, 1, 2], [2, 3])
    assert coloured.loaded.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_a_small_budget_means_smaller_tiles_then_fewer_and_says_so():
    noise = Pictures(np.random.default_rng(0).random((60, 64, 64, 3)).astype(np.float32))
    pictures = list(shrunk(noise, range(60), ()).values())
    large, small, tiny = (sheet(pictures, budget) for budget in (10**7, 36_000, 2_400))
    assert large.size == 64
    assert small.size < large.size
    assert small.count == 60
    assert 0 < tiny.count < 60
    for made, budget in ((small, 36_000), (tiny, 2_400)):
        assert len(made.source) <= budget


def test_single_pictures_share_their_budget():
    noise = Pictures(np.random.default_rng(0).random((8, 192, 192, 3)).astype(np.float32))
    pictures = list(shrunk(noise, (), range(8)).values())
    assert sum(map(len, sources(pictures, 40_000))) <= 40_000
    assert sum(map(len, sources(pictures, 10**7))) > 40_000
    none_left = sources(pictures, 2_000)
    assert none_left[0]
    assert none_left[-1] == ""
    assert sum(map(len, none_left)) <= 2_000


def test_no_pictures_no_sheet():
    assert sheet([], 1000) is None
