"""Rows in a ``.npy`` file, mapped and never loaded as a whole."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._reading import load_npy
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.source import Columns, MemoryRows
from unspur.rows.stored import MAX_PIECE_BYTES, Budget, Spool, StoredRows, Stretches, as_bytes


def open_npy(path: str | PathLike[str]) -> np.memmap[Any, Any]:
    """Read-only map of a ``.npy`` file of shape (n, d) with floating-point rows."""
    try:
        mapped = load_npy(path, mapped=True)
    except ValueError as error:
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

    def _slices(self) -> Iterator[slice]:
        turn, asked = 0, ask_for(self._z, 0, MAX_PIECE_BYTES)
        for rows in super()._slices():
            if rows.start >= turn:
                turn, asked = asked, ask_for(self._z, asked, MAX_PIECE_BYTES)
            yield rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self._columns, self._block_rows)


def _reopen(path: str, columns: Columns, block_rows: int) -> MemmapRows:
    return MemmapRows(path, columns, block_rows=block_rows)


class StoredNpy(StoredRows):
    """The rows of a ``.npy`` file, with a budget for what is computed from them; the rows themselves stay mapped.

    Mapped pages belong to the system, which takes them back when it needs them: they count as the file's, not as the
    process's own (anonymous) memory. `spool` is the owner of a temporary file.
    """

    _decoded = False

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        memory: int | str = "1GB",
        progress: bool = False,
        scratch: str | PathLike[str] | None = None,
        block_rows: int | None = None,
        spool: Spool | None = None,
    ):
        self._map: np.memmap[Any, Any] = open_npy(path)
        n, d = self._map.shape
        self.shape, self.dtype = (int(n), int(d)), np.promote_types(self._map.dtype, np.float32)
        self.feature_names, self.column_names = None, []
        if not n or not d:
            raise InputError(f"{path} has shape {self._map.shape}; at least one row and one feature are needed.")
        copied = self._map.dtype != self.dtype  # half precision, a piece at a time
        row_bytes = d * self.dtype.itemsize
        self.budget = Budget(as_bytes(memory), self.shape[0], row_bytes if copied else 0)
        if spool is None:  # what goes to a temporary file does so for want of memory
            self.budget.require_enough(str(path))
        self._block_rows = block_rows
        self._owner = spool
        super().__init__([Path(path)], progress=progress, scratch=scratch)

    def _pieces(self) -> Stretches:
        n, size = len(self._map), self._rows_at_once
        ask_for(self._map, 0, size * self._map.itemsize * self.shape[1])
        for start in range(0, n, size):
            rows = slice(start, min(start + size, n))
            ask_for(self._map, rows.stop, size * self._map.itemsize * self.shape[1])
            yield rows, self._map[rows].astype(self.dtype, copy=False)

    @property
    def _rows_at_once(self) -> int:
        if self._block_rows is not None:
            return self._block_rows
        copied = self.budget.row_bytes > 0
        return self.budget.piece_rows if copied else max(1, MAX_PIECE_BYTES // (self.shape[1] * self.dtype.itemsize))

    def _arriving(self) -> Stretches:
        return self._pieces()  # the system reads ahead

    def at_random(self) -> Array:
        """The map itself, unless rows were selected."""
        return self._map if self._wanted is None else super().at_random()

    def place_of(self, row: int) -> str:
        """The number of the row."""
        return f"row {row} of {self._paths[0]}"

    def _whole_column(self, name: str) -> Array:
        raise NotImplementedError(name)  # there are none

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_map", "_owner")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._require_unchanged()
        self._map, self._owner = open_npy(self._paths[0]), None


def ask_for(z: Array, row: int, size: int) -> int:
    """Have the system read `size` bytes of a map from a row on while others are worked on; the row after them.

    Saves the wait for a slow disk; where pages are in memory already it costs next to nothing.
    """
    row_bytes = z.shape[1] * z.itemsize
    stop = int(min(len(z), row + max(1, size // max(1, row_bytes))))
    mapped = getattr(z, "_mmap", None)
    if row < stop and z.flags.c_contiguous and mapped is not None and hasattr(mmap, "MADV_WILLNEED"):
        before = z.offset % mmap.ALLOCATIONGRANULARITY  # the map begins at a page, its array where the header ends
        first = (before + row * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError, ValueError):  # a hint, no more
            mapped.madvise(mmap.MADV_WILLNEED, first, before + stop * row_bytes - first)
    return stop


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
