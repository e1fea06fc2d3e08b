"""Pictures that would take much memory: read smaller where the decoder can do that, else refused in words."""

import io
import struct
import zlib

import numpy as np
import pytest

from tests.optional import Image
from unspur.embed import examples
from unspur.embed.examples import open_image
from unspur.exceptions import InputError

pytestmark = pytest.mark.filterwarnings("ignore:Image size")


def png(width, height):
    """A PNG of one bit a pixel that promises this size."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(height * (1 + -(-width // 8)))))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def photograph(kind="JPEG", side=400, mode="RGB", **options):
    """Smooth, so that one that was reduced looks like the whole."""
    ramp = np.linspace(0, 255, side).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(
        np.stack(
            [np.tile(ramp, (side, 1)), np.tile(ramp[:, None], (1, side)), np.full((side, side), 90)], axis=2
        ).astype(np.uint8)
    ).convert(mode).save(file, kind, **options)
    return file.getvalue()


def split_scans(jpeg):
    """A JPEG whose first scan has one of its three layers: the decoder must keep all coefficients."""
    at = jpeg.index(b"\xff\xda")
    (length,) = struct.unpack(">H", jpeg[at + 2 : at + 4])
    return jpeg[:at] + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + jpeg[at + 2 + length :]


def tiled(side):
    """A TIFF of 10 × 10 pixels in one tile of side × side."""
    pixels = zlib.compress(bytes(1000))
    tags = [
        (256, 10),
        (257, 10),
        (258, 8),
        (259, 8),
        (262, 1),
        (277, 1),
        (322, side),
        (323, side),
        (324, 134),
        (325, len(pixels)),
    ]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0) + pixels


@pytest.fixture
def read(tmp_path):
    """Open the picture that some bytes are."""

    def reading(content):
        path = tmp_path / "picture"
        path.write_bytes(content)
        return open_image(path)

    return reading


def test_twenty_kilobytes_are_not_unpacked_to_a_gigabyte(read):
    bomb = png(13_300, 13_300)
    assert len(bomb) < 25_000
    with pytest.raises(InputError, match=r"13300 × 13300 pixels; .* 1,415 MB .* gets 200 MB\. Save a smaller copy"):
        read(bomb)
    with pytest.raises(InputError, match=r"is not read: Image size .* Save a smaller copy"):
        read(png(20_000, 20_000))
    assert read(png(1_330, 1_330)).size == (1330, 1330)  # the control


@pytest.mark.parametrize("kind", ["PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_what_cannot_be_reduced_is_refused_before_it_is_decoded(read, monkeypatch, kind):
    content = photograph(kind, side=100)
    whole = read(content)
    assert whole.size == (100, 100)
    assert np.asarray(whole).shape == (100, 100, 3)
    monkeypatch.setattr(examples, "MAX_PICTURE_MEMORY", 79_999)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda *_: pytest.fail("decoded"))
    with pytest.raises(InputError, match=r"100 × 100 pixels; to read it would take some 0 MB"):
        read(content)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"progressive": True, "subsampling": 0}])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_large_jpeg_is_decoded_smaller(read, monkeypatch, mode, options):
    content = photograph(mode=mode, **(options if mode == "RGB" else {}))
    whole = np.asarray(read(content), dtype=float)
    assert whole.shape == (400, 400, 3)
    coefficients = 2 * 400 * 400 * (0 if not options or mode != "RGB" else 3 if "subsampling" in options else 1.5)
    monkeypatch.setattr(examples, "MAX_PICTURE_MEMORY", int(coefficients) + 8 * 110 * 110)
    small = read(content)
    assert small.size == (100, 100)
    assert np.abs(np.asarray(small, dtype=float) - whole.reshape(100, 4, 100, 4, 3).mean(axis=(1, 3))).mean() < 3.0
    monkeypatch.setattr(examples, "MAX_PICTURE_MEMORY", int(coefficients) + 8 * 49 * 49)
    with pytest.raises(InputError, match="400 × 400 pixels"):
        read(content)


def test_coefficients_of_several_scans_count(read, monkeypatch):
    """They are kept for the whole picture, however small it is decoded."""
    monkeypatch.setattr(examples, "MAX_PICTURE_MEMORY", 200_000)
    for content in (photograph(progressive=True, subsampling=0), split_scans(photograph())):
        with pytest.raises(InputError, match="400 × 400 pixels"):
            read(content)
    assert read(photograph()).size == (100, 100)  # one scan, as most have


def test_a_tile_that_is_larger_than_its_picture_is_refused(read):
    with pytest.raises(InputError, match=r"10 × 10 pixels in tiles of 40000 × 40000; .* 12,80. MB"):
        read(tiled(40_000))


def test_other_kinds_and_files_of_any_size_are_refused(read, tmp_path):
    with pytest.raises(InputError, match=r"it is none of JPEG, PNG, .*WEBP\. Convert it"):
        read(photograph("ICO", side=64))
    with (tmp_path / "long.png").open("wb") as file:
        file.write(png(4, 4))
        file.truncate(10**10)
    with pytest.raises(InputError, match=r"has 10,000,000,000 bytes; pictures of up to 300,000,000 are read"):
        open_image(tmp_path / "long.png")


def test_a_chunk_that_claims_a_gigabyte_is_not_made_room_for(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 100)
    with examples._BoundedReader(io.FileIO(path)) as file:
        assert file.read(60) == b"x" * 60
        assert file.read(2**60) == b"x" * 40  # of a plain file that is a MemoryError
        assert file.read() == b""
    with path.open("rb") as plain, pytest.raises((MemoryError, OverflowError)):
        plain.read(2**60)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # so Pillow says of a TIFF that ends early
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.01])
def test_files_that_are_read_at_once_give_the_same_pixels_and_messages(read, monkeypatch, kind, share):
    content = photograph(kind, side=100, **({"compression": "tiff_lzw"} if kind == "TIFF" else {}))
    content = content[: int(share * len(content))]

    def outcome():
        try:
            return np.asarray(read(content)).tobytes()
        except InputError as error:
            return str(error)

    at_once = outcome()
    monkeypatch.setattr(examples, "MAX_BYTES_AT_ONCE", -1)
    monkeypatch.setattr(examples, "BytesIO", lambda *_: pytest.fail("at once"))
    assert outcome() == at_once
    assert isinstance(at_once, bytes if share == 1.0 else str)
