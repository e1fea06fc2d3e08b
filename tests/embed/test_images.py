"""Preparation is what it says, to the grey level."""

import struct
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import ExifTags, Image, ImageOps
from sklearn.datasets import load_sample_image

from unspur.embed.base import IMAGENET, Preparation, batch_tensor, resize_and_crop
from unspur.embed.examples import TableExamples, as_rgb, open_image
from unspur.embed.registry import Grey
from unspur.exceptions import InputError

PLAIN = Preparation(resize=256, crop=224, mean=(0.0,) * 3, scale=(1.0,) * 3)


def pixels(image, preparation):
    return batch_tensor([resize_and_crop(image, preparation)], preparation, "cpu")[0].numpy()


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


#: From black to white.
RAMP = np.linspace(0, 1, 256).reshape(16, 16)


def pgm(levels):
    return b"P5\n16 16\n%d\n" % levels + (RAMP * levels).astype(">u2").tobytes()


def tiff(pixels, *, bits=None, signed=False, white_is_zero=False):
    """A TIFF of one strip, in the byte order of the pixels."""
    data, order = pixels.tobytes(), ">" if pixels.dtype.str[0] == ">" else "<"
    shorts = {
        256: 16,
        257: 16,
        258: bits or 8 * pixels.itemsize,
        259: 1,
        262: 0 if white_is_zero else 1,
        273: 8 + 2 + 12 * 9 + 4,
        278: 16,
        279: len(data),
        339: 2 if signed else 1,
    }
    entries = b"".join(struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in shorts.items())
    start = (b"MM" if order == ">" else b"II") + struct.pack(f"{order}HIH", 42, 8, len(shorts))
    return start + entries + struct.pack(f"{order}I", 0) + data


def packed(values):
    """Two numbers of twelve bits in three bytes."""
    high, low = values.reshape(-1, 2).T
    return np.stack([high >> 4, (high & 15) << 4 | low >> 8, low & 255], axis=1).astype(np.uint8)


DEEP = {
    "PGM of 16 bits": pgm(65535),
    "PGM of 12 bits": pgm(4095),
    "TIFF of 16 bits": tiff((RAMP * 65535).astype("<u2")),
    "TIFF of 12 bits": tiff(packed((RAMP * 4095).astype(int)), bits=12),
    "big-endian TIFF": tiff((RAMP * 65535).astype(">u2")),
    "TIFF whose white is 0": tiff(((1 - RAMP) * 65535).astype("<u2"), white_is_zero=True),
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_grey_is_scaled_and_not_cut_off(tmp_path, kind):
    (tmp_path / "deep").write_bytes(DEEP[kind])
    seen = open_image(tmp_path / "deep")
    assert_allclose(np.asarray(seen)[..., 0], 255 * RAMP, atol=1.01)
    assert_array_equal(np.asarray(open_image(tmp_path / "deep", "L")), np.asarray(seen)[..., 0])
    # An image that was opened elsewhere has the same pixels.
    with Image.open(tmp_path / "deep") as image:
        assert_array_equal(np.asarray(as_rgb(image)), np.asarray(seen))
        assert_array_equal(Grey()([image]), Grey()([seen]))


UNSCALED = {
    "signed TIFF": tiff((RAMP * 32767).astype("<i2"), signed=True),
    "TIFF of 32 bits": tiff((RAMP * 65535).astype("<u4")),
    "PFM": b"Pf\n16 16\n-1.0\n" + RAMP.astype("<f4").tobytes(),
}


@pytest.mark.parametrize("kind", UNSCALED)
def test_pixels_without_black_and_white_are_refused(tmp_path, kind):
    (tmp_path / "odd").write_bytes(UNSCALED[kind])
    with pytest.raises(InputError, match=r"odd has signed, 32-bit or fractional pixels \(mode [IF]\).*8 or 16 bits"):
        open_image(tmp_path / "odd")
    with Image.open(tmp_path / "odd") as image, pytest.raises(InputError, match="A picture has signed"):
        Grey()([image])


def test_transparent_palettes_are_converted_in_silence(tmp_path, pictures):
    image = pictures[0].convert("P")
    image.save(tmp_path / "a.png", transparency=bytes(range(256)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen = open_image(tmp_path / "a.png")
        assert not told
        with Image.open(tmp_path / "a.png") as stored:
            stored.convert("RGB")
        assert told  # control: Pillow does warn
    assert_array_equal(np.asarray(seen), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_images_of_any_mode_are_converted(pictures, mode):
    image = pictures[0].convert(mode)
    assert_array_equal(np.asarray(as_rgb(image)), np.asarray(image.convert("RGB")))


def test_arrays_are_pictures_if_their_scale_is_known(pictures):
    pixels = np.asarray(pictures[0])
    for array in (pixels, pixels / 255, (pixels / 255).astype(np.float32)):
        assert_array_equal(np.asarray(as_rgb(array)), pixels)


@pytest.mark.parametrize(
    ("example", "got"),
    [
        (np.full((4, 4, 3), 200.0), r"float64 of shape \(4, 4, 3\), with values from 200 to 200"),
        (np.full((4, 4, 3), -0.5), "values from -0.5"),
        (np.full((4, 4, 3), np.nan), "values from nan"),
        (np.zeros((4, 4, 3), dtype=np.int64), "int64"),
        (np.zeros((3, 4, 4), dtype=np.uint8), r"\(3, 4, 4\)"),
        (np.zeros((4, 4), dtype=np.uint8), r"\(4, 4\)"),
        (np.zeros((0, 4, 3)), r"\(0, 4, 3\)"),
        ("bird.png", "str 'bird.png'"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_picture_is_refused(example, got):
    with pytest.raises(InputError, match=got):
        Grey()([example])


def test_an_encoder_takes_a_list():
    with pytest.raises(InputError, match="a list of images; got one Image"):
        Grey()(Image.new("RGB", (4, 4)))
    with pytest.raises(InputError, match=r"got an array of uint8 of shape \(4, 3\)"):
        Grey()(np.zeros((4, 4, 3), dtype=np.uint8))
    assert Grey()([]).shape == (0, 2500)
