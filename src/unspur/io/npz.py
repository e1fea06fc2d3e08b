"""The arrays of a .npz file, which is a zip of .npy files: unpacked only as far as they fit, and never unpickled."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from lzma import LZMAError
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from unspur._reading import brief, require_npy
from unspur._typing import Array
from unspur.embed.memory import available_memory
from unspur.exceptions import InputError
from unspur.io.table import require_known
from unspur.rows.names import some
from unspur.rows.stored import in_words

#: How many times smaller the usual ways to pack can make something: more is a lie about its size.
MOST_PACKED = {ZIP_STORED: 1, ZIP_DEFLATED: 1100}
#: What unpacking something damaged raises; an encrypted member is a RuntimeError.
_DAMAGE = (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, BadZipFile, zlib.error, LZMAError)


def read_arrays(path: Path, ignore: tuple[str, ...]) -> dict[str, Array]:
    """All arrays by name but those to ignore."""
    try:
        with ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ValueError("it has several arrays of the same name")
            require_known(path, list(members), ignore)
            wanted = {name: info for name, info in members.items() if name not in ignore}
            _require_memory(path, wanted.values())
            return {name: _array(archive, info) for name, info in wanted.items()}
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory. Write its rows as .npy, and pass --memory 1GB.") from error
    except _DAMAGE as error:
        raise InputError(f"{path} cannot be read as a .npz file: {brief(error) or type(error).__name__}.") from error


def _array(archive: ZipFile, info: ZipInfo) -> Array:
    size = info.file_size
    if size > MOST_PACKED.get(info.compress_type, size) * max(1, info.compress_size):
        raise ValueError(f"{info.filename!r} claims {size:,} bytes, more than {info.compress_size:,} packed ones hold")
    try:
        with archive.open(info) as file:
            require_npy(file, size)
        with archive.open(info) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except ValueError as error:
        raise ValueError(f"{info.filename!r}: {error}") from error


def _require_memory(path: Path, members: Iterable[ZipInfo]) -> None:
    """Refuse what would take more than half of the memory there is, before it is unpacked."""
    size, free = sum(info.file_size for info in members), available_memory()
    if free is not None and size > free / 2:
        largest = [info.filename for info in sorted(members, key=lambda info: -info.file_size)]
        raise InputError(
            f"{path} would take {in_words(size)} of the {in_words(free)} of memory that are free (largest: "
            f"{some(largest[:2])}). Write its rows as .npy, and pass --memory 1GB to leave them there."
        )
