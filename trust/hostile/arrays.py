"""Rows and labels in files: .npy, .npz, .csv and Parquet."""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from trust.hostile.bounded import CANARY
from trust.hostile.damage import damaged
from trust.hostile.trials import NOT_FILES, Attacks, Bad, Reader, promised
from unspur.io.files import read_table
from unspur.io.table import Table
from unspur.rows import open_rows

ROWS, WIDTH = 12, 3


def _z(dtype: str = "<f8") -> Any:
    return np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(dtype)


def _usable(table: Table, *labels: str) -> None:
    """What `read_table` promises: rows of numbers, and labels that can be looked up."""
    z = np.asarray(table.Z)
    promised(z.ndim == 2 and z.dtype.kind in "biuf" and z.size, f"rows are {z.dtype} of shape {z.shape}")
    if table.features is not None:
        promised(len(table.features) == z.shape[1] == len(set(table.features)), "names do not fit the features")
        promised(np.isfinite(np.asarray(z, dtype=np.float64)).all(), "named features are not finite")
    for name in labels:
        column = table.label(name)
        promised(isinstance(column, np.ndarray), "a label is no array")
        if table.path.suffix == ".csv":
            promised(column.shape == (len(z),), f"a label has shape {column.shape} for {len(z)} rows")


class _Attack:
    """Makes a file where it can be seen, if anybody unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch ../{CANARY}",)


def npy(array: Any, **options: Any) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npy_of(header: str, body: bytes = bytes(96), version: bytes = b"\x01\x00") -> bytes:
    """A .npy file with a header of one's own."""
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + version + size + header.encode("latin1") + body


def npy_attacks(_: bytes) -> Attacks:
    """Headers that lie, and objects that would run code."""
    yield "an object that runs code", npy(np.array([_Attack()], dtype=object), allow_pickle=True)
    yield "a pickle that runs code", pickle.dumps(_Attack())
    yield "objects, with a body that is none", npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }")
    shapes = (
        "(1000000000000, 3)",
        "(12, 1000000000000)",
        "(4611686018427387904, 4)",
        "(18446744073709551616, 3)",
        "(-1, 3)",
        "(12, -3)",
        "(12, 0)",
        "(0, 3)",
        "()",
        "(36,)",
        "(2, 2, 3)",
        "(12, 3.0)",
        "(True, 3)",
        "12",
        "None",
        "'ab'",
        f"({'9' * 4000}, 3)",
        f"({'9' * 5000}, 3)",
        f"({'1, ' * 33})",
        f"({'1, ' * 3000})",
        "(12, 3",
        "[12, 3]",
        "(300000000, 1)",
        "(__import__('os'), 3)",
        "(3).__class__",
    )
    for shape in shapes:
        yield (
            f"shape {shape[:30]}",
            npy_of(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}", bytes(288)),
        )
    kinds = (
        "'<f2'",
        "'<f4'",
        "'>f8'",
        "'<f16'",
        "'<c16'",
        "'<i8'",
        "'|b1'",
        "'<U4'",
        "'|S8'",
        "'<M8[s]'",
        "'|V8'",
        "'<f9'",
        "'O'",
        "'<U99999999999'",
        "'|V0'",
        "'<U0'",
        "[('a', '<f8'), ('b', '|O')]",
        "[('a', '<f8')]",
        "('<f8', (2,))",
        "{'names': []}",
        "None",
        "3",
        "'<f8,' * 9",
        "'f8,f8,O'",
        "('|V8', {})",
        "('<f8', (1000000, 1000000))",
    )
    for kind in kinds:
        yield f"type {kind}", npy_of(f"{{'descr': {kind}, 'fortran_order': False, 'shape': (4, 3), }}", bytes(400))
    yield "nested 5,000 times", npy_of("(" * 5000 + ")" * 5000)
    yield "negated 9,000 times", npy_of("-" * 9000 + "1")
    yield "nested 30,000 times", npy_of("[" * 30_000 + "]" * 30_000)
    yield "a header of a megabyte", npy_of(" " * 2**20, version=b"\x02\x00")
    yield "a header as long as can be", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"
    yield "a version to come", npy_of("{}", version=b"\x09\x00")
    yield "another order", npy_of("{'descr': '<f8', 'fortran_order': 'x', 'shape': (4, 3), }")
    yield "a key too many", npy_of("{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3), 'x': 1}")
    yield "only a zip", zip_of({"Z.npy": npy(_z())})
    yield "not finite", npy(np.full((4, 3), np.nan))
    yield from NOT_FILES


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The bytes of a zip."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def npz_attacks(sound: bytes) -> Attacks:
    """Members that are bad .npy files, bombs, and tables of contents that lie."""
    y = npy(np.arange(ROWS) % 2)
    for what, bad in npy_attacks(sound):
        if isinstance(bad, bytes):
            yield f"rows: {what}", zip_of({"Z.npy": bad, "y.npy": y})
            yield f"labels: {what}", zip_of({"Z.npy": npy(_z()), "y.npy": bad})
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (%d, 1000), }"
    bomb = npy_of(header % 4000, bytes(32 * 10**6))
    yield "a bomb of 32 MB, which is read", zip_of({"Z.npy": bomb})
    yield "a bomb of 6 GB", _zipped(header % 750_000, 6 * 10**9)
    yield "claims 6 GB, has none", zip_of({"Z.npy": npy_of(header % 750_000)})
    yield "claims 8 TB, has none", zip_of({"Z.npy": npy_of(header % 10**9)})
    yield "a member twice", _twice
    yield "a name that leads out", zip_of({"../../Z.npy": npy(_z()), "y.npy": y})
    yield "a name without an end", zip_of({"Z": b"plain", "y.npy": y})
    yield "an odd name", zip_of({"Z.npy": npy(_z()), "\x1b[31m\n.npy": y})
    yield "no members", zip_of({})
    yield "thousands of members", zip_of({f"{k}.npy": b"" for k in range(3000)})
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield f"packed by method {method}", zip_of({"Z.npy": npy(_z()), "y.npy": y}, method)
    yield (
        "encrypted",
        bytes(sound)
        .replace(b"PK\x03\x04\x14\x00\x00\x00", b"PK\x03\x04\x14\x00\x01\x00")
        .replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"),
    )
    yield from NOT_FILES


def _zipped(header: str, zeros: int) -> Callable[[Path], None]:
    """A member of many zeros, packed a piece at a time."""

    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            info = zipfile.ZipInfo("Z.npy")
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as member:
                member.write(npy_of(header, b""))
                for _ in range(zeros // 10**8 // 60):  # a part is enough: it is the claim that is tried
                    member.write(bytes(10**6))

    return make


def _twice(path: Path) -> None:
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("Z.npy", npy(_z()))


def _make_npy(folder: Path) -> Path:
    np.save(folder / "rows.npy", _z())
    return folder / "rows.npy"


def _read_npy(path: Path) -> None:
    _usable(read_table(path))


def _open_npy(path: Path) -> None:
    _checked_rows(open_rows(path, memory="64MB"))


def _checked_rows(rows: Any) -> None:
    seen = sum(len(block) for _, block in rows.blocks())
    promised(seen == len(rows) and len(rows.shape) == 2 and all(rows.shape), "blocks are not the rows")
    for _, block in rows.blocks():
        promised(np.isfinite(block).all(), "rows that were checked are not finite")


def _make_labels(folder: Path) -> Path:
    np.save(folder / "rows.npy", _z())
    np.save(folder / "y.npy", np.arange(ROWS) % 2)
    return folder / "y.npy"


def _read_labels(path: Path) -> None:
    _usable(read_table(path.parent / "rows.npy"), str(path))


def _make_npz(folder: Path) -> Path:
    np.savez_compressed(folder / "rows.npz", Z=_z(), y=np.arange(ROWS) % 2)
    return folder / "rows.npz"


def _read_npz(path: Path) -> None:
    table = read_table(path, ("y",))
    _usable(table, *table.columns)


def _csv() -> bytes:
    lines = [
        f"{','.join(f'{value:.6g}' for value in row)},{'land' if k % 2 else 'water'}" for k, row in enumerate(_z())
    ]
    return ("f0,f1,f2,place\n" + "\n".join(lines) + "\n").encode()


def _make_csv(folder: Path) -> Path:
    (folder / "rows.csv").write_bytes(_csv())
    return folder / "rows.csv"


def _read_csv(path: Path) -> None:
    _usable(read_table(path, ("place",)), "place")


def csv_attacks(sound: bytes) -> Attacks:
    """Lines, fields and encodings that no spreadsheet writes."""
    head, _, rest = sound.partition(b"\n")
    yield "NUL bytes", sound.replace(b",", b"\x00", 3)
    yield "NUL in a label", sound.replace(b"land", b"la\x00nd")
    yield "UTF-16", sound.decode().encode("utf-16")
    yield "Latin-1", sound.replace(b"land", b"l\xe4nd")
    yield "a byte order mark", b"\xef\xbb\xbf" + sound
    yield "a field of 4 MB", sound.replace(b"land", b"x" * 4_000_000, 1)
    yield "a number of 4 MB", head + b"\n1,2," + b"1" * 4_000_000 + b",land\n" + rest
    yield "a line of 16 MB without an end", b"x" * 16_000_000
    yield "a million columns", b",".join(b"f%d" % k for k in range(1_000_000)) + b"\n1\n"
    yield "a million columns of one name", b"f," * 1_000_000 + b"f\n1\n"
    yield "a million fields in a row", sound + b"1," * 1_000_000 + b"\n"
    yield "a million empty lines", head + b"\n" * 1_000_000
    yield "ragged rows", head + b"\n1,2,3,a\n1,2\n1,2,3,4,5,6\n"
    yield "a quote that never ends", sound + b'1,2,"3,land\n' * 200
    yield "only quotes", b'"' * 100_000
    yield "only a header", head + b"\n"
    yield "only line ends", b"\r\n" * 50
    yield "old line ends", sound.replace(b"\n", b"\r")
    yield "many line ends", b"\x0b\x0c\x1c\x1d\x85\n".join(sound.split(b"\n"))
    yield "names twice", sound.replace(b"f1", b"f0", 1)
    yield "no names", sound.replace(b"f0,f1", b",", 1)
    for word in (
        b"nan",
        b"inf",
        b"-inf",
        b"1e400",
        b"1e-400",
        b"0x1p3",
        b"1_0",
        "٣".encode(),
        b" 1 ",
        b"1,5",
        b"",
        b"--1",
    ):
        yield f"a field {word!r}", head + b"\n" + word + b",2,3,land\n" + rest
    yield "labels of 30 digits", head + b"\n" + b"\n".join(b"1,2,3," + b"1" * k for k in (30, 31, 5000)) + b"\n"
    yield "formulas", sound.replace(b"land", b"=cmd|' /C calc'!A0")
    yield from NOT_FILES


def _make_parquet(folder: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {f"f{k}": column for k, column in enumerate(_z().T)}
    words = ["land" if k % 2 else "water" for k in range(ROWS)]
    table = pa.table({**columns, "place": words})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=5)
    return folder / "rows.parquet"


def _make_lists(folder: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    words = pa.array(["land" if k % 2 else "water" for k in range(ROWS)]).dictionary_encode()
    table = pa.table({"z": [row.tolist() for row in _z("<f4")], "place": words, "n": list(range(ROWS))})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=7, compression="zstd")
    return folder / "rows.parquet"


def _read_parquet(path: Path) -> None:
    _usable(read_table(path, ("place",)), "place")


def _open_parquet(path: Path) -> None:
    rows = open_rows(path, labels=["place"], memory="64MB")
    _checked_rows(rows)
    promised(rows.column("place").shape == (len(rows),), "a label has another length than the rows")


def parquet_attacks(sound: bytes) -> Attacks:
    """Footers that lie, and schemas that are none of rows."""
    footer = int.from_bytes(sound[-8:-4], "little")
    for size in (0, 1, footer - 1, footer + 1, len(sound), 2**31 - 1, 2**31, 2**32 - 1):
        yield f"a footer of {size} bytes", sound[:-8] + size.to_bytes(4, "little") + sound[-4:]
    yield "another magic at the end", sound[:-4] + b"PARE"
    yield "another magic at the start", b"XXXX" + sound[4:]
    yield "only magic", b"PAR1"
    yield "magic twice", b"PAR1PAR1"
    yield "magic around an empty footer", b"PAR1\x00\x00\x00\x00PAR1"
    yield "the footer of another file", sound[: len(sound) // 2] + sound[-footer - 8 :]
    yield from _flipped_footers(sound, footer)
    yield from _schemas()
    yield from NOT_FILES


def _flipped_footers(sound: bytes, footer: int) -> Iterator[tuple[str, Bad]]:
    """Each byte of the footer changed, which is where counts, offsets and types are."""
    start = len(sound) - footer - 8
    for at in range(start, start + footer):
        for change in (0x01, 0x80, 0xFF):
            yield (
                f"byte {at - start} of the footer ^ {change}",
                sound[:at] + bytes([sound[at] ^ change]) + sound[at + 1 :],
            )


def _schemas() -> Iterator[tuple[str, Bad]]:
    import pyarrow as pa

    place = pa.array(["land", "water"] * 6)
    f = pa.array(np.arange(12.0))
    tables = {
        "lists of different length": {"z": pa.array([[1.0]] * 11 + [[1.0, 2.0]]), "place": place},
        "empty lists": {"z": pa.array([[]] * 12, pa.list_(pa.float32())), "place": place},
        "lists of nulls": {"z": pa.array([[None, 1.0]] * 12), "place": place},
        "lists of lists": {"z": pa.array([[[1.0]]] * 12), "place": place},
        "lists of texts": {"z": pa.array([["x"]] * 12), "place": place},
        "a map": {"z": pa.array([[("a", 1.0)]] * 12, pa.map_(pa.string(), pa.float64())), "place": place},
        "a struct": {"z": pa.array([{"a": 1.0}] * 12), "f": f, "place": place},
        "dates": {"z": pa.array([1] * 12, pa.date32()), "f": f, "place": place},
        "decimals": {"z": pa.array(range(12), pa.int64()).cast(pa.decimal128(20, 0)), "place": place},
        "nulls": {"z": pa.array([None] * 12, pa.float64()), "place": place},
        "of type null": {"z": pa.nulls(12), "place": place},
        "bytes": {"z": pa.array([b"x"] * 12), "place": place},
        "halves": {"z": pa.array(np.arange(12, dtype=np.float16)), "place": place},
        "labels that are lists": {"f": f, "place": pa.array([[1.0]] * 12)},
        "labels that are structs": {"f": f, "place": pa.array([{"a": 1}] * 12)},
        "labels that are null": {"f": f, "place": pa.nulls(12)},
        "labels that are bytes": {"f": f, "place": pa.array([b"\xff"] * 12)},
        "labels that are huge": {"f": f, "place": pa.array([2**63 - 1] * 12)},
        "labels that are durations": {"f": f, "place": pa.array([1] * 12, pa.duration("ns"))},
        "labels that are times": {"f": f, "place": pa.array([2**62] * 12, pa.timestamp("us"))},
        "no rows": {"f": f[:0], "place": place[:0]},
        "no columns": {},
        "infinity": {"f": pa.array([np.inf] * 12), "place": place},
        "numbers beyond float64": {"f": pa.array([2**64 - 1] * 12, pa.uint64()), "place": place},
        "columns without a name": {"": f, "place": place},
    }
    for what, columns in tables.items():
        yield what, _parquet_of(pa.table(columns))
    yield "columns twice", _parquet_of(pa.table([f, f, place], names=["f", "f", "place"]))
    odd = pa.table({"f": f, "place": place}).replace_schema_metadata({"pandas": "{", "ARROW:schema": "x"})
    yield "metadata of pandas that are none", _parquet_of(odd)
    for text in ("[]", "1", '{"index_columns": 3}', '{"index_columns": [3, null, "f"]}', '{"columns": 1}', "[" * 5000):
        yield f"metadata of pandas {text[:20]}", _parquet_of(odd.replace_schema_metadata({"pandas": text}))


def _parquet_of(table: Any) -> bytes:
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def forged_npy(sound: bytes, rng: np.random.Generator) -> bytes:
    """The header of another array, and as many bytes as it needs, or some more or fewer."""
    kinds = ("<f8", "<f4", ">f8", "<f2", "<i8", "|b1", "<u1", "<U4", "|S3", "<M8[s]", "<c16", "|V4", "|O", "<f16")
    kind = str(rng.choice(kinds))
    axes = [1, 1, 2, 2, 2, 3][rng.integers(6)]
    shape = tuple(int(rng.choice([0, 1, 3, 12, 12, 40, 10**6, 10**12, 2**62])) for _ in range(axes))
    order = bool(rng.integers(2))
    size = min(4096, math.prod(shape) * (8 if kind == "|O" else np.dtype(kind).itemsize))
    body = bytes(sound[-size:] if size else b"").ljust(size, b"\x01")[
        : max(0, size + int(rng.choice([0, 0, 0, -1, 7])))
    ]
    return npy_of(f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape}, }}", body)


def forged_npz(sound: bytes, rng: np.random.Generator) -> bytes:
    """A zip with a bad member; or a sound one with another number in its table of contents."""
    with zipfile.ZipFile(io.BytesIO(sound)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[rng.integers(len(members))]
    way = rng.integers(3)
    if way == 0:
        return zip_of({**members, name: forged_npy(members[name], rng)}, int(rng.choice([0, 8])))
    if way == 1:
        return zip_of({**members, name: damaged(members[name], sound, rng, text=False)}, int(rng.choice([0, 8])))
    content, start = bytearray(sound), sound.index(b"PK\x01\x02")
    at, width = ((8, 2), (10, 2), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4))[rng.integers(7)]
    value = int(rng.choice([0, 1, 8, 12, 14, 100, 2**16 - 1, 2**31 - 1, 2**32 - 1])) % 256**width
    content[start + at : start + at + width] = value.to_bytes(width, "little")
    return bytes(content)


def forged_parquet(sound: bytes, rng: np.random.Generator) -> bytes:
    """Other bytes in the footer, or at the head of a page, where numbers are: of values, of bytes, of pages."""
    footer = int.from_bytes(sound[-8:-4], "little")
    content, start = bytearray(sound), len(sound) - footer - 8
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        at = int(rng.integers(start, start + footer)) if rng.integers(3) else int(rng.integers(4, min(start, 80)))
        content[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
    if not rng.integers(4):  # a number of ten bytes in the place of one of one
        at = int(rng.integers(start, start + footer))
        content[at : at + 1] = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        content[-8:-4] = (footer + 9).to_bytes(4, "little")
    return bytes(content)


npy_rows = Reader(_make_npy, _read_npy, npy_attacks, forged=forged_npy)
npy_opened = Reader(_make_npy, _open_npy, npy_attacks, forged=forged_npy)
npy_labels = Reader(_make_labels, _read_labels, npy_attacks, forged=forged_npy)
npz = Reader(_make_npz, _read_npz, npz_attacks, forged=forged_npz)
csv = Reader(_make_csv, _read_csv, csv_attacks, text=True)
parquet = Reader(_make_parquet, _read_parquet, parquet_attacks, forged=forged_parquet)
parquet_lists = Reader(_make_lists, _read_parquet, parquet_attacks, forged=forged_parquet)
parquet_opened = Reader(_make_parquet, _open_parquet, parquet_attacks, forged=forged_parquet)
parquet_lists_opened = Reader(_make_lists, _open_parquet, parquet_attacks, forged=forged_parquet)
