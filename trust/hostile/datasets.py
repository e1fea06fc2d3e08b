"""Datasets as others publish them: archives, images, pairs of sentences, and tables that name files."""

from __future__ import annotations

import gzip
import io
import shutil
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trust.hostile.arrays import csv_attacks, forged_parquet, parquet_attacks
from trust.hostile.damage import ODD_JSON, as_json, odd_fields
from trust.hostile.trials import NOT_FILES, Attacks, Bad, Reader, promised
from unspur.embed.examples import MAX_PICTURE_MEMORY, TableExamples, open_image
from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.downloads.archives import Limits, unpack
from unspur_paper.datasets.multinli import FILES, MultiNLI
from unspur_paper.datasets.waterbirds import PUBLISHED, Birds, read_published

PLAIN = {"set/a.txt": b"aaa" * 200, "set/sub/b.jpg": bytes(range(256)) * 8}
#: Small, so that bombs need not be large; those of real archives have more of everything.
LIMITS = Limits(members=200, single=4 << 20, total=8 << 20, ratio=200)


# Archives


def _tar(*members: tarfile.TarInfo, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in PLAIN.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in members:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return file.getvalue()


def waterbirds_archive() -> bytes:
    """An archive with all that the published Waterbirds must have."""
    file = io.BytesIO()
    files = {"metadata.csv": b"img_filename,y,split,place\na/b.jpg,0,0,0\n", "a/b.jpg": _picture("JPEG")}
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"{PUBLISHED}/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def _zip(*members: tuple[str, bytes, int]) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        for name, content in PLAIN.items():
            archive.writestr(name, content)
        for name, content, kind in members:
            info = zipfile.ZipInfo("x")
            info.filename, info.external_attr = name, (kind | 0o777) << 16
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _made(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return make


def _unpack(path: Path) -> None:
    """Files are written below the folder and nowhere else, plain ones, and no more of them than is allowed."""
    place = path.parent / "unpacked"
    try:
        count = unpack(path, place, LIMITS)
        there = [one for one in place.rglob("*") if not one.is_dir()]
        promised(count == len(there), f"{count} files are said to be unpacked and {len(there)} are there")
        for one in there:
            kind = one.lstat().st_mode
            promised(
                stat.S_ISREG(kind) and not kind & 0o7000 and one.resolve().is_relative_to(place.resolve()),
                f"{one} is no plain file",
            )
        promised(sum(one.stat().st_size for one in there) <= LIMITS.total, "more was written than is allowed")
    finally:
        shutil.rmtree(place, ignore_errors=True)


NAMES = (
    "/etc/evil",
    "//evil",
    "../evil",
    "set/../../evil",
    "a/b/../../../evil",
    "..",
    ".",
    "./",
    "",
    "/",
    "C:\\evil",
    "C:evil",
    "..\\evil",
    "a\\..\\..\\evil",
    "\\\\host\\evil",
    "a\x00b",
    "set/a.txt",
    "set",
    "SET/A.TXT",
    "a" * 300,
    "b/" * 300 + "c",
    "a\nb",
    "\x1b[31mred",
    "\u202egnp.exe",
    "con",
    "a:b",
    "~/evil",
    "$HOME/evil",
    "-rf",
    "\udce4",
    "\xe9",
    "e\u0301",
    "a/" * 5000,
)


def tar_attacks(_: bytes) -> Attacks:
    """Members that lead out, are no files, or are too much."""
    for name in NAMES:
        info = tarfile.TarInfo(name)
        yield f"a file {name[:20]!r}", _tar(info)
        folder = tarfile.TarInfo(name)
        folder.type = tarfile.DIRTYPE
        yield f"a folder {name[:20]!r}", _tar(folder)
    kinds = (
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CONTTYPE,
        b"S",
        b"X",
    )
    for kind in kinds:
        for target in ("../../canary", "/etc/passwd", "set/a.txt", "."):
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, target
            inside = tarfile.TarInfo("link/evil")
            yield f"type {kind!r} to {target}", _tar(info)
            yield f"type {kind!r} to {target}, and a file behind it", _tar(info, inside)
    for size in (2**40, 2**62, -1):
        header = tarfile.TarInfo("huge")
        header.size = size
        with_size = header.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
        yield f"claims {size} bytes", gzip.compress(with_size)
        yield f"claims {size} bytes, not packed", with_size
    large = tarfile.TarInfo("large")
    large.size = 5 << 20
    yield "a bomb", _tar(large)
    some = [tarfile.TarInfo(f"part{k}") for k in range(4)]
    for info in some:
        info.size = 3 << 20
    yield "a bomb in parts", _tar(*some)
    yield "too many members", _tar(*(tarfile.TarInfo(str(k)) for k in range(300)))
    yield "a name of a megabyte", gzip.compress(_long_name(2**20))
    yield "a name that claims 64 GB", gzip.compress(_long_name(2**20, claimed=2**36))
    for records in (
        {"path": "../../evil"},
        {"size": "99999999999"},
        {"size": "x"},
        {"mtime": "1e400"},
        {"GNU.sparse.major": "1"},
    ):
        yield f"a header that says {records}", _pax(records)
    yield "a gzip in a gzip", gzip.compress(gzip.compress(_tar()))
    yield "gigabytes of nothing after the end", _tar() + gzip.compress(bytes(64 << 20))
    yield "a bomb of zeros", gzip.compress(bytes(64 << 20))
    yield "a web page", b"<!DOCTYPE html><html>Log in</html>"
    yield from _other_packings()
    yield from NOT_FILES


def _other_packings() -> Iterator[tuple[str, Bad]]:
    for mode in ("w:", "w:bz2", "w:xz"):
        sound = _tar(mode=mode)
        yield f"sound, {mode}", sound
        for k in range(12):
            yield f"cut, {mode} {k}", sound[: len(sound) * k // 12]
            at = len(sound) * k // 12
            yield f"changed, {mode} {k}", sound[:at] + bytes([sound[at] ^ 0x55]) + sound[at + 1 :]


def _long_name(size: int, claimed: int | None = None) -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, claimed or size
    return header.tobuf(tarfile.GNU_FORMAT) + b"a" * size + tarfile.TarInfo("x").tobuf() + bytes(1024)


def _pax(records: dict[str, str]) -> bytes:
    body = b"".join(_pax_line(key, value) for key, value in records.items())
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(body)
    padded = body + bytes(-len(body) % 512)
    return gzip.compress(header.tobuf() + padded + tarfile.TarInfo("x").tobuf() + bytes(1024))


def _pax_line(key: str, value: str) -> bytes:
    text = f" {key}={value}\n"
    size = len(text) + len(str(len(text) + 2))
    return f"{size}{text}".encode()


def zip_attacks(sound: bytes) -> Attacks:
    """The same, in the other format."""
    for name in NAMES:
        if name.isprintable() and name:
            yield f"a file {name[:20]!r}", _zip((name, b"x", stat.S_IFREG))
            yield f"a folder {name[:20]!r}", _zip((name + "/", b"", stat.S_IFDIR))
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK, 0o170000):
        for target in (b"../../canary", b"/etc/passwd"):
            yield f"type {kind:o} to {target!r}", _zip(("link", target, kind), ("link/evil", b"x", stat.S_IFREG))
    yield "a bomb", _zip(("large", bytes(5 << 20), stat.S_IFREG))
    yield "a bomb in parts", _zip(*((f"{k}", bytes(3 << 20), stat.S_IFREG) for k in range(4)))
    yield "too many members", _zip(*((f"{k}", b"", stat.S_IFREG) for k in range(300)))
    end = sound.rindex(b"PK\x05\x06")
    for at, width in ((4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)):
        for value in (0, 1, 2**31 - 1, 2**32 - 1):
            place = end + at
            field = (value % 256**width).to_bytes(width, "little")
            yield f"{at} of the end is {value}", sound[:place] + field + sound[place + width :]
    start = sound.index(b"PK\x01\x02")
    for at, width in ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)):
        for value in (0, 1, 12, 2**31 - 1, 2**32 - 1):
            place = start + at
            field = (value % 256**width).to_bytes(width, "little")
            yield f"{at} of the table is {value}", sound[:place] + field + sound[place + width :]
    yield "overlapping members", _overlapping(sound)
    yield "bytes before it", b"x" * 100 + sound
    yield "a comment of 65,535 bytes", sound[:-2] + b"\xff\xff" + bytes(65_535)
    yield from NOT_FILES


def _overlapping(sound: bytes) -> bytes:
    """Twenty entries in the table for one and the same member."""
    start, end = sound.index(b"PK\x01\x02"), sound.rindex(b"PK\x05\x06")
    entry = sound[start : sound.index(b"PK\x01\x02", start + 4)]
    table = b"".join(entry.replace(b"set/a.txt", b"set/%c.txt" % (97 + k)) for k in range(20))
    tail = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 20, 20, len(table), start, 0)
    return sound[:start] + table + tail + sound[:0] * (end > 0)


# Images


def _picture(kind: str, mode: str = "RGB", size: tuple[int, int] = (24, 18)) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    grey = np.random.default_rng(0).integers(256, size=(size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(grey).convert(mode).save(file, kind)
    return file.getvalue()


def _open_image(path: Path) -> None:
    image = open_image(path)
    promised(image.mode == "RGB" and image.width >= 1 and image.height >= 1, "no picture in colours")
    last = (image.width - 1, image.height - 1, image.width, image.height)  # all of them would be a copy of the trial's
    promised(np.asarray(image.crop(last)).shape == (1, 1, 3), "pixels are of another shape")


def image_attacks(_: bytes) -> Attacks:
    """Sizes that lie, bombs, other kinds of files under the same name."""
    for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO", "TGA", "PCX"):
        sound = _picture(kind)
        yield f"{kind}, sound", sound
        for k in range(10):
            yield f"{kind}, cut {k}", sound[: len(sound) * k // 10]
    for side in (1, 10_000, 20_000, 2**31 - 1):
        yield f"a PNG of {side} × {side}", _png(side, side)
    for side in (3_000, 4_900, 5_100, 13_300):
        yield (
            f"a PNG of {side} × {side} that has all its pixels",
            _png(side, side, pixels=bytes((side + 15) // 8 * side)),
        )
    yield "a PNG without pixels", _png(0, 0)
    yield "a PNG with a text of 64 MB", _png(1, 1, (b"zTXt", b"x\x00\x00" + zlib.compress(bytes(64 << 20))))
    yield "a PNG with a profile of 64 MB", _png(1, 1, (b"iCCP", b"x\x00\x00" + zlib.compress(bytes(64 << 20))))
    yield "PostScript", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(touch ../EXECUTED) system\n"
    yield "SVG", b"<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>"
    yield "a text", b"not a picture"
    yield from NOT_FILES


def _png(width: int, height: int, *chunks: tuple[bytes, bytes], pixels: bytes = bytes(100_000)) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    body = b"".join(chunk(*one) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


# Pairs of sentences

PAIRS = [
    {"gold_label": "neutral", "sentence1": "It rains.", "sentence2": "The street is wet.", "genre": "fiction"},
    {"gold_label": "contradiction", "sentence1": "Fun for all.", "sentence2": "For children.", "genre": "slate"},
    {"gold_label": "-", "sentence1": "Nobody", "sentence2": "agrees", "pairID": 7},
    {"gold_label": "entailment", "sentence1": "Café", "sentence2": "Coffee"},
]


def _make_pairs(folder: Path) -> Path:
    for name in FILES:
        (folder / name).write_bytes(b"".join(as_json(line) + b"\n" for line in PAIRS))
    return folder / FILES[0]


def _read_pairs(path: Path) -> None:
    nli = MultiNLI.read(path.parent)
    promised(
        len(nli) == len(nli.ids) and all(len(column) == len(nli) for column in nli.labels.values()), "other lengths"
    )
    promised(set(np.unique(nli.labels["y"])) <= {0, 1}, "labels are neither 0 nor 1")
    for k in range(min(len(nli), 10)):
        promised(all(isinstance(text, str) and text for text in nli[k]), "a text is none")


def pairs_attacks(sound: bytes) -> Attacks:
    """Lines of other kinds."""
    lines = sound.splitlines()
    for what, text in ODD_JSON.items():
        yield what, text
        yield f"{what}, as a line", b"\n".join([lines[0], text, *lines[1:]])
    for what, value in odd_fields(PAIRS[0]):
        yield what, b"\n".join([as_json(value), *lines[1:]])
    yield "a line of 32 MB", b'{"gold_label": "' + b"x" * (32 << 20) + b'"}'
    yield "a sentence of 32 MB", as_json({**PAIRS[0], "sentence1": "x" * (32 << 20)})
    yield "a label of a megabyte", as_json({**PAIRS[0], "gold_label": "x" * (1 << 20)})
    yield "many line ends", sound.replace(b"\n", b"\r\x0b\x0c\n")
    yield "half a surrogate in a sentence", b'{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": "b"}\n'
    yield from NOT_FILES


# Tables that name files


def _make_own(folder: Path) -> Path:
    for k in range(4):
        (folder / f"{k}.png").write_bytes(_picture("PNG"))
    (folder / "mine.csv").write_text("image,bird,place\n" + "".join(f"{k}.png,{k % 2},land\n" for k in range(4)))
    return folder / "mine.csv"


def _read_own(path: Path) -> None:
    own = TableExamples.read(path)
    promised(len(own) == len(own.ids) == len(set(own.ids)), "ids are not distinct")
    promised(all(column.shape == (len(own),) for column in own.labels.values()), "labels are of another length")
    if own.kind == "image":
        for name in own.content:
            promised((path.parent / name).resolve().is_relative_to(path.parent.resolve()), f"{name!r} leads out")
    promised(len(own.digest()) == 16 and own[0] is not None, "it cannot be read")


def own_attacks(sound: bytes) -> Attacks:
    """Names that lead out, and tables that are none."""
    for name in (*NAMES, "/dev/zero", "../../../../etc/passwd", "link.png", "."):
        yield f"an image {name[:20]!r}", sound.replace(b"0.png", name.encode("utf-8", "surrogateescape"), 1)
    yield "images twice", sound.replace(b"1.png", b"0.png")
    yield "texts", sound.replace(b"image", b"text")
    yield "both", sound.replace(b"bird", b"text")
    yield "a label of 5,000 digits", sound.replace(b",1,", b"," + b"1" * 5000 + b",")
    yield from csv_attacks(sound)


def _make_packed(folder: Path) -> Path:
    table = _make_own(folder)
    (folder / "mine.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    return folder / "mine.csv.gz"


def packed_attacks(sound: bytes) -> Attacks:
    """Bombs, and what is damaged inside."""
    plain = gzip.decompress(sound)
    yield "a gigabyte of zeros", gzip.compress(plain + bytes(1 << 28)) * 4
    yield "many lines", gzip.compress(plain + b"0.png,1,land\n" * 7_000_000)
    yield "packed twice", gzip.compress(sound)
    yield "not packed", plain
    yield "two in one", sound + sound
    yield "nothing", gzip.compress(b"")
    yield "more behind it", sound + b"more"
    for what, bad in csv_attacks(plain):
        if isinstance(bad, bytes):
            yield what, gzip.compress(bad)


def _stored_pictures() -> Any:
    import pyarrow as pa

    names = {"info": {"features": {"bird": {"_type": "ClassLabel", "names": ["gull", "tern"]}}}}
    images = [{"bytes": _picture("PNG"), "path": f"{k}.png"} for k in range(4)]
    table = pa.table({"image": images, "bird": [0, 1, 0, 1], "place": ["land", "sea", None, "land"]})
    return table.replace_schema_metadata({"huggingface": as_json(names)})


def _make_stored(folder: Path) -> Path:
    from pyarrow import parquet

    parquet.write_table(_stored_pictures(), folder / "mine.parquet", row_group_size=2)
    return folder / "mine.parquet"


def _make_arrow(folder: Path) -> Path:
    import pyarrow as pa

    with pa.OSFile(str(folder / "mine.arrow"), "wb") as file, pa.ipc.new_stream(file, _stored_pictures().schema) as out:
        out.write_table(_stored_pictures(), max_chunksize=2)
    return folder / "mine.arrow"


def _read_stored(path: Path) -> None:
    own = TableExamples.read(path)
    promised(len(own) == len(own.ids) == len(set(own.ids)), "ids are not distinct")
    promised(all(column.shape == (len(own),) for column in own.labels.values()), "labels are of another length")
    promised(len(own.digest()) == 16, "it has no digest")
    promised(all(own[k] is not None for k in range(len(own))), "it cannot be read")


def _make_published(folder: Path) -> Path:
    (folder / "001.Tern").mkdir()
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for k in range(4):
        (folder / "001.Tern" / f"{k}.jpg").write_bytes(_picture("JPEG"))
        lines.append(f"{k},001.Tern/{k}.jpg,{k % 2},{k % 3},{k % 2},/o/{k}.jpg")
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder / "metadata.csv"


def _read_published(path: Path) -> None:
    found = read_published(path.parent)
    promised(
        len(found) and all(column.shape == (len(found),) for column in found.labels.values()),
        "labels of another length",
    )
    promised(set(np.unique(found.labels["y"])) <= {0, 1}, "labels are neither 0 nor 1")
    for name in found.ids:
        promised((path.parent / name).resolve().is_relative_to(path.parent.resolve()), f"{name!r} leads out")


def published_attacks(sound: bytes) -> Attacks:
    """Names that lead out, numbers that are none."""
    for name in (*NAMES, "/dev/zero", "../../../../etc/passwd"):
        yield f"an image {name[:20]!r}", sound.replace(b"001.Tern/0.jpg", name.encode("utf-8", "surrogateescape"), 1)
    for word in (b"2", b"-1", b"x", b"", b"1.0", b"9" * 30, b"9" * 5000, "٣".encode(), b"1_0", b" 1"):
        yield f"a label {word[:30]!r}", sound.replace(b"0.jpg,0,", b"0.jpg," + word + b",", 1)
    yield from csv_attacks(sound)


def _make_birds(folder: Path) -> Path:
    for name in ("images", "segmentations"):
        (folder / name).mkdir()
    (folder / "images.txt").write_text("".join(f"{k} 141.Artic_Tern/{k}.jpg\n" for k in range(5)))
    return folder / "images.txt"


def _read_birds(path: Path) -> None:
    birds = Birds.read(path.parent)
    promised(len(birds.files) == len(birds.y) > 0, "labels of another length")
    for k in range(min(len(birds.files), 20)):
        promised(birds.image(k).resolve().is_relative_to(path.parent.resolve()), "a bird leads out")
        promised(birds.mask(k).suffix == ".png", "a mask is none")


def birds_attacks(sound: bytes) -> Attacks:
    """Names that lead out, and lines that are none."""
    for name in NAMES:
        yield (
            f"a bird {name[:20]!r}",
            sound.replace(b"141.Artic_Tern/0.jpg", name.encode("utf-8", "surrogateescape"), 1),
        )
    yield from csv_attacks(sound)


def _make_faces(folder: Path) -> Path:
    (folder / "img_align_celeba").mkdir()
    names = " ".join(f"Attribute_{k:02}" for k in range(40))
    for k in range(3):
        (folder / "img_align_celeba" / f"{k:06}.jpg").write_bytes(b"")
    lines = [f"{k:06}.jpg " + " ".join("1" if (j + k) % 2 else "-1" for j in range(40)) for k in range(3)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["3", names, *lines]) + "\n")
    return folder / "list_attr_celeba.txt"


def _read_faces(path: Path) -> None:
    faces = CelebA.read(path.parent)
    promised(
        len(faces.labels) == 40 and all(column.shape == (len(faces),) for column in faces.labels.values()), "no labels"
    )
    promised(set(np.unique(np.stack(list(faces.labels.values())))) <= {0, 1}, "labels are neither 0 nor 1")


def faces_attacks(sound: bytes) -> Attacks:
    """Counts that lie, names that lead out."""
    for count in (b"-1", b"0", b"4", b"9" * 30, b"9" * 5000, "٣".encode(), "²".encode(), b"x", b""):
        yield f"{count[:20]!r} faces", sound.replace(b"3\n", count + b"\n", 1)
    for name in NAMES:
        yield f"a face {name[:20]!r}", sound.replace(b"000000.jpg", name.encode("utf-8", "surrogateescape"), 1)
    yield from csv_attacks(sound)


tar = Reader(_made("set.tar.gz", _tar), _unpack, tar_attacks)
zips = Reader(_made("set.zip", _zip), _unpack, zip_attacks)
jpeg = Reader(_made("picture.jpg", lambda: _picture("JPEG")), _open_image, image_attacks, most=MAX_PICTURE_MEMORY)
png = Reader(_made("picture.png", lambda: _picture("PNG")), _open_image, most=MAX_PICTURE_MEMORY)
gif = Reader(_made("picture.gif", lambda: _picture("GIF")), _open_image, most=MAX_PICTURE_MEMORY)
tiff = Reader(_made("picture.tif", lambda: _picture("TIFF")), _open_image, most=MAX_PICTURE_MEMORY)
deep_grey = Reader(_made("picture.png", lambda: _picture("PNG", "I;16")), _open_image, most=MAX_PICTURE_MEMORY)
pairs = Reader(_make_pairs, _read_pairs, pairs_attacks, text=True)
own = Reader(_make_own, _read_own, own_attacks, text=True)
packed = Reader(_make_packed, _read_own, packed_attacks)
stored = Reader(_make_stored, _read_stored, parquet_attacks, forged=forged_parquet)
arrow = Reader(_make_arrow, _read_stored, lambda _: NOT_FILES)
published = Reader(_make_published, _read_published, published_attacks, text=True)
birds = Reader(_make_birds, _read_birds, birds_attacks, text=True)
faces = Reader(_make_faces, _read_faces, faces_attacks, text=True)
