"""Rows in a ``.npy`` file, mapped and never loaded as a whole."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.memory import MemoryRows
from unspur.rows.source import Columns


def open_npy(path: str | PathLike[str]) -> np.memmap[Any, Any]:
    """Read-only map of a ``.npy`` file of shape (n, d) with floating-point rows."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be mapped as a .npy file: {error}. Write it with numpy.save.") from error
    if not isinstance(mapped, np.memmap) or mapped.ndim != 2 or mapped.dtype.kind != "f":
        shape, kind = getattr(mapped, "shape", None), getattr(mapped, "dtype", type(mapped).__name__)
        raise InputError(f"{path} holds {kind} of shape {shape}; rows must be floating point of shape (n, d).")
    return mapped


class MemmapRows(MemoryRows):
    """Rows of a ``.npy`` file; travels between processes as its path.

    `mapped` is the file's map where one is open already: it stays valid should the name come to mean another file.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        columns: Columns,
        *,
        block_rows: int | None = None,
        mapped: np.memmap[Any, Any] | None = None,
    ):
        self.path = Path(path).absolute()
        super().__init__(open_npy(path) if mapped is None else mapped, columns, block_rows=block_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self._columns, self._block_rows)


def _reopen(path: str, columns: Columns, block_rows: int) -> MemmapRows:
    return MemmapRows(path, columns, block_rows=block_rows)


def file_behind(z: Array) -> str | None:
    """Path of the ``.npy`` file that an array maps from its first element to its last, if it does.

    A slice or a view of a map is rows in memory like any other; only the whole file is worth its path. A map that can
    be written to may differ from its file.
    """
    if not isinstance(z, np.memmap) or z.filename is None or z.mode != "r" or not str(z.filename).endswith(".npy"):
        return None
    try:
        whole = open_npy(z.filename)
    except (InputError, OSError):
        return None
    same = whole.shape == z.shape and whole.dtype == z.dtype and whole.offset == z.offset
    return str(z.filename) if same and whole.strides == z.strides else None
