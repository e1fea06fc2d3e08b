"""Files that may be anything: what is in them, or a `ValueError` that says in a line why not.

Whoever reads turns that into an error of its own kind, which names the file. Nothing here trusts what a file says about
its size, waits for a pipe, follows a nest of brackets to the end of the stack, or runs what it finds.
"""

from __future__ import annotations

import json
import math
import os
import stat
import tokenize
from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from typing import IO, Any

import numpy as np

from unspur._typing import Array

#: Bytes of a text that is read as a whole; those that are written here have a few thousand.
MAX_TEXT_BYTES = 64 * 2**20
#: Values in a JSON text, and how deep they are nested: each takes up to 200 bytes, and repr goes down by recursion.
MAX_JSON_VALUES, MAX_JSON_DEPTH = 500_000, 50
#: Bytes of the header of a .npy file; NumPy writes a hundred. Some thousand signs are too many for Python's parser.
MAX_NPY_HEADER_BYTES = 4_000
#: Axes of an array; NumPy has no more.
MAX_AXES = 64
#: Characters of what another library says, or a file holds, that a message repeats.
MAX_QUOTED_CHARACTERS = 200
#: Kinds of values for `require_kinds`.
NUMBER, MAYBE_NUMBER, MAYBE_TEXT = (int, float), (int, float, type(None)), (str, type(None))
#: What NumPy raises for a header that is none.
_NO_HEADER = (ValueError, TypeError, OverflowError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)


def brief(what: object, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """What was said or found, on one line that is not too long."""
    text = " ".join(str(what).split()).rstrip(".")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def require_regular(path: str | PathLike[str]) -> int:
    """Bytes of a plain file; of a folder, a pipe or a device nobody knows how much there is to read."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a plain file")
    return found.st_size


def read_text(path: str | PathLike[str], most: int = MAX_TEXT_BYTES) -> str:
    """A text in UTF-8."""
    if (size := require_regular(path)) > most:
        raise ValueError(f"it has {size:,} bytes, more than the {most:,} that are read")
    with open(path, "rb") as file:
        content = file.read(most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from error


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds."""
    marks: tuple[Any, ...] = (",", "[", "{") if isinstance(text, str) else (b",", b"[", b"{")
    if (count := sum(text.count(mark) for mark in marks)) > MAX_JSON_VALUES:
        raise ValueError(f"it has some {count:,} values, more than the {MAX_JSON_VALUES:,} that are read")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start})") from error
    _require_shallow(value)
    return value


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        holders = [one for one in level if isinstance(one, dict | list)]
        level = [inner for one in holders for inner in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def read_json(path: str | PathLike[str], kind: Any = object) -> Any:
    """What a small JSON file holds, if it is of a kind (see `require_kinds`)."""
    value = parse_json(read_text(path))
    if kind is not object:
        require_kinds(value, kind)
    return value


def require_kinds(value: Any, kind: Any, place: str = "it") -> None:
    """Raise unless a value of JSON is of a kind; `place` is what it is called.

    A kind is a type, or a tuple of types, where True is no number and whole numbers have 64 bits; ``[kind]``, a list of
    such values; or a table of kinds by key, ``...`` standing for all keys that are not named.
    """
    if isinstance(kind, list):
        require_kinds(value, list, place)
        for number, item in enumerate(value):
            require_kinds(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, Mapping):
        require_kinds(value, dict, place)
        for key in kind:
            if key is not ... and key not in value:
                raise ValueError(f"{place} has no {key!r}")
        for key, item in value.items():
            if (wanted := kind.get(key, kind.get(...))) is not None:
                require_kinds(item, wanted, f"{brief(key, 40)!r} of {place}")
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is {brief(repr(value), 40)}, which is of another type than it should be")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{place} is a number of {len(str(abs(value)))} digits, which is too large")


def load_npy(path: str | PathLike[str], *, mapped: bool = False) -> Array:
    """The array of a .npy file: in memory, or mapped and read-only."""
    size = require_regular(path)
    with open(path, "rb") as file:
        require_npy(file, size)
    try:
        array: Array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except _NO_HEADER as error:
        raise ValueError(brief(error)) from error
    return array


def require_npy(file: IO[bytes], size: int) -> None:
    """Raise unless a file of `size` bytes begins as .npy files do and has all the numbers that its header promises."""
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8:
        raise ValueError("it is no .npy file, as numpy.save writes them" if magic else "it is empty")
    measure = file.read(2 if magic[6] == 1 else 4)
    length = int.from_bytes(measure, "little")
    if magic[6] not in (1, 2, 3) or length > min(MAX_NPY_HEADER_BYTES, size):
        raise ValueError(f"its header, of version {magic[6]}, would have {length:,} bytes")
    header = magic + measure + file.read(length)
    shape, dtype = _promised(header)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read. Write plain arrays, of numbers")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > size - len(header):
        raise ValueError(f"it is cut off: {size - len(header):,} bytes where shape {brief(shape, 60)} takes {wanted:,}")


def _promised(header: bytes) -> tuple[tuple[int, ...], Any]:
    file = BytesIO(header)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except _NO_HEADER as error:
        raise ValueError(f"its header is damaged ({brief(error) or type(error).__name__})") from error
    if not all(type(length) is int and 0 <= length < 2**63 for length in shape) or len(shape) > MAX_AXES:
        raise ValueError(f"its shape is {brief(shape, 60)}")
    return shape, dtype
