"""What rows are rows of: pictures and texts in all the forms that people have them in."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.optional import Image
from unspur.exceptions import InputError
from unspur.report.views import content_of


@dataclass
class Examples:
    images: list
    kind: str = "image"

    @property
    def ids(self):
        return [f"digit {i}" for i in range(len(self.images))]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


COLOURS = np.random.default_rng(0).integers(256, size=(4, 6, 5, 3), dtype=np.uint8)


def test_arrays_become_pictures():
    content = content_of(COLOURS, None, 4)
    assert (len(content), content.kind) == (4, "image")
    assert_array_equal(np.asarray(content[2]), COLOURS[2])
    shares = content_of(COLOURS / 255.0, None, 4)
    assert_array_equal(np.asarray(shares[2]), COLOURS[2])
    grey = content_of(COLOURS[..., 0], None, 4)
    assert grey[1].mode == "RGB"
    assert_array_equal(np.asarray(grey[1])[..., 2], COLOURS[1, :, :, 0])
    single = content_of(COLOURS[..., :1], None, 4)
    assert_array_equal(np.asarray(single[1]), np.asarray(grey[1]))
    assert np.asarray(content_of(np.ones((1, 2, 2), dtype=bool), None, 1)[0]).min() == 255


def test_paths_and_images_are_loaded_when_asked_for(tmp_path):
    Image.fromarray(COLOURS[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    content = content_of([str(tmp_path / "a.png"), tmp_path / "b.png", Image.fromarray(COLOURS[1])], None, 3)
    assert_array_equal(np.asarray(content[0]), COLOURS[0])
    assert_array_equal(np.asarray(content[2]), COLOURS[1])
    with pytest.raises(InputError, match=r"b\.png cannot be read as an image"):
        content[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([COLOURS[0] / 100.0], "these are float64 from 0 to 2"),
        ([COLOURS[0].transpose(2, 0, 1)], "Pictures have shape"),
        (np.zeros((1, 0, 5), dtype=np.uint8), "no pixels"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused_before_anything_is_drawn(given, said):
    with pytest.raises(InputError, match=said):
        content_of(given, None, 1)
    assert len(content_of([COLOURS[0], COLOURS[1, :3]], None, 2)) == 2  # sizes may differ


def test_a_missing_file_is_named_before_anything_is_loaded(tmp_path):
    Image.fromarray(COLOURS[0]).save(tmp_path / "a.png")
    names = [tmp_path / name for name in ("a.png", "b.png", "c.png", "d.png", "e.png")]
    with pytest.raises(InputError, match=r"4 of 5 .*b\.png"):
        content_of(names, None, 5)


def test_texts_and_pairs():
    content = content_of(None, np.array(["one", "two"]), 2)
    assert (content.kind, content[1]) == ("text", "two")
    pairs = content_of(None, [("a", "b"), ["c", "d"]], 2)
    assert pairs[1] == ("c", "d")


def test_examples_are_taken_as_they_are():
    examples = Examples(images=[Image.fromarray(picture) for picture in COLOURS])
    content = content_of(examples, None, 4)
    assert content[3] is examples[3]
    with pytest.raises(InputError, match="pass it as pictures"):
        content_of(None, examples, 4)


@pytest.mark.parametrize(
    ("pictures", "texts", "message"),
    [
        (COLOURS, None, "4 pictures for 9 test rows"),
        (None, ["a"], "1 texts for 9 test rows"),
        (None, "one string", "a single string"),
        (None, [1, 2], "string or a pair"),
        (None, [("a", "b", "c")] * 9, "string or a pair"),
        (COLOURS[..., :2], None, r"shape \(n, h, w\)"),
        (np.zeros((9, 4)), None, r"shape \(n, h, w\)"),
        (COLOURS * 1.0, None, "from 0 to 1"),
        (np.full((9, 2, 2), np.nan), None, "from 0 to 1"),
        (COLOURS.astype(int) + 200, None, "from 0 to 255"),
        ([3] * 9, None, "got a int"),
    ],
)
def test_what_is_neither_is_refused(pictures, texts, message):
    with pytest.raises(InputError, match=message):
        content_of(pictures, texts, 9)


def test_rows_may_be_rows_of_nothing():
    assert content_of(None, None, 3) is None
