"""Preparation is what it says, to the grey level."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import ExifTags, Image, ImageOps
from sklearn.datasets import load_sample_image

from unspur.embed.base import IMAGENET, Preparation, square, standardised
from unspur.embed.examples import TableExamples, open_image
from unspur.embed.registry import Grey

PLAIN = Preparation(resize=256, crop=224, mean=(0.0,) * 3, scale=(1.0,) * 3)


def pixels(image, preparation):
    return standardised([square(image, preparation)], preparation, "cpu")[0].numpy()


@pytest.mark.parametrize("size", [(640, 427), (100, 301), (31, 17)])
@pytest.mark.parametrize("photograph", ["china.jpg", "flower.jpg"])
def test_pixels_are_those_of_scaling_and_cutting(photograph, size):
    image = Image.fromarray(load_sample_image(photograph)).resize(size)
    plainly = image.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    expected = np.asarray(plainly, dtype=np.float32).transpose(2, 0, 1)
    assert_allclose(pixels(image, PLAIN), expected, atol=1)
    uncut = image.resize((224, 224), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(uncut, dtype=np.float32).transpose(2, 0, 1) - expected).max() > 10


def test_colours_are_shifted_and_stretched_one_by_one():
    image = Image.new("RGB", (50, 50), (255, 0, 128))
    red, green, blue = pixels(image, IMAGENET)
    for colour, value, mean, scale in (
        (red, 1, 0.485, 0.229),
        (green, 0, 0.456, 0.224),
        (blue, 128 / 255, 0.406, 0.225),
    ):
        assert_allclose(colour, (value - mean) / scale, rtol=1e-5)
    assert red.dtype == np.float32
    assert red.shape == (224, 224)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_viewers_show_them(tmp_path, kind, orientation):
    stored = Image.fromarray(load_sample_image("china.jpg")).resize((64, 40))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stored.save(tmp_path / "a.jpg", kind, exif=exif, quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        expected = ImageOps.exif_transpose(image).convert("RGB")
    upright = open_image(tmp_path / "a.jpg", upright=True)
    assert upright.size == ((64, 40) if orientation < 5 else (40, 64))
    assert_array_equal(np.asarray(upright), np.asarray(expected))
    (tmp_path / "table.csv").write_text("image,bird\na.jpg,1\n")
    assert_array_equal(np.asarray(TableExamples.read(tmp_path / "table.csv")[0]), np.asarray(expected))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow says so, however the picture is opened
def test_pictures_whose_exif_data_are_damaged_are_as_they_are_stored(tmp_path):
    stored = Image.new("RGB", (6, 4), "red")
    stored.save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff\x01\x12")
    assert open_image(tmp_path / "a.jpg", upright=True).size == (6, 4)
    assert open_image(tmp_path / "a.jpg").size == (6, 4)


def test_grey_pixels_are_rows_between_0_and_1():
    left_half = np.zeros((100, 100, 3), dtype=np.uint8)
    left_half[:, :50] = 255
    rows = Grey()([Image.new("RGB", (64, 30), "white"), Image.fromarray(left_half)])
    assert rows.shape == (2, Grey.width) == (2, 2500)
    assert rows.dtype == np.float32
    assert_array_equal(rows[0], 1.0)
    assert_array_equal(rows[1].reshape(50, 50)[:, :24], 1.0)
    assert_array_equal(rows[1].reshape(50, 50)[:, 26:], 0.0)
