"""Rows in files that are read chunk by chunk and never held as a whole.

`StoredRows` is what a user passes as X, and `FileRows` what the algorithms see of it. A `Budget` says how much is read
at a time, `read_ahead` has the next chunk read meanwhile, and a `Spool` is a temporary file for what does not fit.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from tqdm import tqdm

from unspur._files import remove_abandoned, reserve_space, temporary_name
from unspur._reading import column_faults, load_npy
from unspur._typing import Array, BoolArray
from unspur.exceptions import InputError, NotFiniteError, Parameter
from unspur.rows.source import slices

#: Bytes that a fit keeps for each row besides its features: two labels as given, as codes and as targets, which rows
#: have them, weight, group, cell and fold, and the hash a certificate needs.
BYTES_KEPT_PER_ROW = 128
#: A budget for those who hold all rows anyway.
NO_MEMORY_LIMIT = 2**60
#: Larger chunks of a file are not read faster.
MAX_CHUNK_BYTES = 64 * 2**20
#: Chunks that exist at once: one is summed, one waits, and one is decoded, which takes its values, their levels (as
#: large again for float32) and room to grow.
CHUNKS_AT_ONCE = 8
#: Fewest rows that are read at a time.
MIN_CHUNK_ROWS = 16
#: Bytes of projected rows that are computed at a time.
MAX_PROJECTED_BYTES = 4 * 2**20
#: Consecutive chunks of rows: a slice and the values (m, d). Close the generator to stop early.
RowChunks: TypeAlias = Generator[tuple[slice, Array], None, None]
#: Why an index may be refused, and what to do.
_ORDER_ADVICE = (
    "rows of files come in their order, each once. Sort the index with numpy.unique, and the labels with it."
)

T = TypeVar("T")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_size(size: int | str) -> int:
    """A size such as ``2_000_000``, "512MB", "1.5 GiB" or "1g" in bytes; units are decimal unless they have an i."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", size.lower()) if isinstance(size, str) else None
    if found is None or found[2] not in _UNITS or int(float(found[1]) * _UNITS[found[2]]) < 1:
        raise InputError(f"{size!r} is not an amount of memory; write a number of bytes, or '500MB', '1GB', '2GiB'.")
    return int(float(found[1]) * _UNITS[found[2]])


def format_size(size: float) -> str:
    """A size as text, such as ``1.2 GB``, rounded up."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{-(-size * 10 // unit) / 10:g} {name}"
    return f"{size:g} bytes"


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of bytes, divided among n-long columns, reading, and columns computed from the rows.

    ``total = BYTES_KEPT_PER_ROW · rows + overhead + CHUNKS_AT_ONCE · chunk + 2 room``. `overhead` is what a reader
    holds besides its chunks (pages of every column it reads at once), `chunk` the rows read at once, and `room` what a
    copy or a projection of the rows may take before it goes to a temporary file. The d × d matrices of an algorithm
    come on top. `row_bytes` is 0 for rows that are not copied when they are read, such as those of a map.
    """

    total: int
    rows: int
    row_bytes: int
    overhead: int = 0

    @property
    def needed(self) -> int:
        """The smallest total that suffices."""
        return BYTES_KEPT_PER_ROW * self.rows + self.overhead + CHUNKS_AT_ONCE * MIN_CHUNK_ROWS * self.row_bytes

    @property
    def chunk_rows(self) -> int:
        """Rows to read at a time."""
        share = (self.total - BYTES_KEPT_PER_ROW * self.rows - self.overhead) // (2 * CHUNKS_AT_ONCE)
        return max(MIN_CHUNK_ROWS, min(share, MAX_CHUNK_BYTES) // max(1, self.row_bytes))

    @property
    def reading(self) -> int:
        """Bytes that reading may take."""
        return self.overhead + CHUNKS_AT_ONCE * self.chunk_rows * self.row_bytes

    @property
    def room(self) -> int:
        """Bytes for a copy of the rows, or for columns computed from them; there is room for two."""
        return max(0, self.total - BYTES_KEPT_PER_ROW * self.rows - self.reading) // 2

    def require_enough(self, what: str) -> None:
        """Raise InputError unless the total suffices."""
        if self.total >= self.needed:
            return
        pages = f" ({format_size(self.overhead)} for the pages of one row group)" if self.overhead else ""
        large = self.overhead > self.needed / 2
        raise InputError(
            "{memory} is too little for {what}: {rows:,} rows × {each} bytes for labels, weights and hashes are "
            "{labels}, and reading takes at least {reading}. Pass {enough} or more{smaller}.",
            memory=Parameter("memory", format_size(self.total)),
            what=what,
            rows=self.rows,
            each=BYTES_KEPT_PER_ROW,
            labels=format_size(BYTES_KEPT_PER_ROW * self.rows),
            reading=format_size(self.needed - BYTES_KEPT_PER_ROW * self.rows) + pages,
            enough=enough_memory(self.needed),
            smaller=", or write the file with smaller row groups" if large else "",
        )


def file_names(paths: Sequence[Path]) -> str:
    """The file, or the first of several and how many more there are."""
    return f"{paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}"


def enough_memory(needed: int) -> Parameter:
    """The value of `memory` to suggest if this many bytes are needed."""
    return Parameter("memory", f"{-(-needed // 10**6)}MB")


def divide(total: int, budgets: Sequence[Budget]) -> list[int]:
    """Divide a total among sets of rows: what each needs, and the rest in proportion to their rows."""
    needed = [budget.needed for budget in budgets]
    rest = total - sum(needed)
    if rest < 0:
        raise InputError(
            "{memory} is too little for training and validation rows together, which need {needed}. Pass {enough} or "
            "more.",
            memory=Parameter("memory", format_size(total)),
            needed=" and ".join(map(format_size, needed)),
            enough=enough_memory(sum(needed)),
        )
    rows = sum(budget.rows for budget in budgets)
    return [least + rest * budget.rows // rows for least, budget in zip(needed, budgets, strict=True)]


def read_ahead(make: Callable[[], Generator[T, None, None]]) -> Generator[T, None, None]:
    """Iterate over ``make()`` in a thread: while one item is in use, one waits and one is made.

    An error in the thread is raised in the consumer. The thread ends with the iterator: after the last item, after an
    error on either side, or at `close`.
    """
    end: Any = object()
    with closing(make()) as items, ThreadPoolExecutor(1, thread_name_prefix="unspur read-ahead") as pool:
        try:
            ahead = deque(pool.submit(next, items, end) for _ in range(2))
            while (item := ahead.popleft().result()) is not end:
                ahead.append(pool.submit(next, items, end))
                yield item
                del item  # do not hold it while the next one is made
        finally:
            pool.shutdown(cancel_futures=True)


class Spool:
    """A temporary ``.npy`` file of shape (n, k), open for writing as `array`; removed with the last reference."""

    def __init__(self, shape: tuple[int, int], dtype: Any, what: str, folder: Path | None = None):
        size = shape[0] * shape[1] * np.dtype(dtype).itemsize
        folder = Path(tempfile.gettempdir()) if folder is None else folder
        _require_folder(folder)
        free = shutil.disk_usage(folder).free
        if size > free:
            raise _no_room(what, size, folder, f"has {format_size(free)} left")
        remove_abandoned(folder)
        self.path = folder / temporary_name()
        os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._finalizer = weakref.finalize(self, Path.unlink, self.path, missing_ok=True)
        try:
            self.array = np.lib.format.open_memmap(self.path, mode="w+", dtype=dtype, shape=shape)
            reserve_space(self.path)
        except OSError as error:  # others take room as well; a quota, a limit of this process
            self._finalizer()
            raise _no_room(what, size, folder, f"refuses it ({error.strerror})") from error


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder} for temporary files; create it, or name another.")


def _no_room(what: str, size: int, folder: Path, but: str) -> InputError:
    return InputError(
        f"{what} takes a temporary file of {format_size(size)}; {folder} {but}. Name a folder on a larger disk "
        "(scratch, or TMPDIR), or pass more memory."
    )


class StoredRows(ABC):
    """Rows in files, which a user passes as X: a shape, a dtype, and a way to visit them.

    Attributes
    ----------
    shape : (n, d).
    dtype : floating-point type that rows arrive in.
    feature_names : one name per feature where the files have them, else None.
    column_names : what :meth:`column` can read.
    budget : how memory is divided.

    A subclass sets these attributes, asks ``budget.require_enough``, then calls ``super().__init__``; open files are
    dropped in ``__getstate__``, so that rows can be pickled.
    """

    ndim = 2
    #: Whether the first pass keeps a copy of rows that fit into memory: yes if reading them includes decoding.
    _keeps_copy = True
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    feature_names: list[str] | None
    column_names: list[str]
    budget: Budget

    def __init__(self, paths: Sequence[Path], *, progress: bool = False, scratch: str | PathLike[str] | None = None):
        self._paths = tuple(Path(path).absolute() for path in paths)
        self._initial_state = self._state()
        self._progress = progress
        self._scratch = None if scratch is None else Path(scratch).absolute()
        if self._scratch is not None:
            _require_folder(self._scratch)
        self._passes = 0
        self._selected: BoolArray | None = None
        self._checked = False
        self._copy: Array | None = None
        self._spool: Spool | None = None
        self._block_slices: list[slice] = []

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} features ({self.dtype}) in {self.name}>"

    @property
    def name(self) -> str:
        """What messages call the rows: their file, or the first of several."""
        return file_names(self._paths)

    @abstractmethod
    def _chunks(self) -> RowChunks:
        """All rows of the files in order, in chunks within the budget; chunks without a selected row may be skipped."""

    @abstractmethod
    def location_of(self, row: int) -> str:
        """Describe where in the files a row is."""

    @abstractmethod
    def _whole_column(self, name: str) -> Array:
        """A column other than the features, for all rows of the files."""

    def column(self, name: str) -> Array:
        """A column other than the features, such as a label, shape (n,); nothing else is read."""
        if name not in self.column_names:
            there = ", ".join(self.column_names) or "none besides the features"
            raise InputError(f"{self.name} has no column {name!r} (it has: {there}).")
        self._require_unchanged()
        column = self._whole_column(name)
        return column if self._selected is None else column[self._selected]

    def select(self, rows: Array | slice) -> Self:
        """Some of the rows by mask, slice or increasing index.

        Rows come in the order of the files, so an index in another order, or with duplicates, is an error.
        """
        chosen = _mask(rows, len(self))
        index = chosen if self._selected is None else np.flatnonzero(self._selected)[chosen]
        there = np.zeros(self.budget.rows, dtype=bool)
        there[index] = True
        some = self._without_copy()
        some.shape, some._selected = (int(there.sum()), self.shape[1]), there
        return some

    def with_memory(self, memory: int | str) -> Self:
        """The same rows with another budget."""
        same = self._without_copy()
        same.budget = replace(self.budget, total=parse_size(memory))
        same.budget.require_enough(self.name)
        return same

    def _without_copy(self) -> Self:
        """The same rows, without what was kept of them when they were read."""
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)
        same._copy, same._spool, same._block_slices = None, None, []
        return same

    def read_slice(self, rows: slice) -> Array:
        """Consecutive rows as one array, for a process that needs no others."""
        with closing(self.select(rows).blocks()) as blocks:
            return np.concatenate([z for _, z in blocks])

    def blocks(self) -> RowChunks:
        """All rows in order, as pairs of a slice and values (m, d). Close the generator to stop early."""
        self._require_unchanged()
        self._passes += 1
        # A copy has the same blocks as the files, so that sums come out the same to the last bit.
        copied = ((rows, self._copy[rows]) for rows in self._block_slices)  # type: ignore[index]
        with self._bar() as bar, closing(self._read() if self._copy is None else copied) as blocks:
            for rows, z in blocks:
                yield rows, z
                if bar is not None:
                    bar.update(len(z))

    def _bar(self) -> AbstractContextManager[Any]:
        """Progress bar of one pass."""
        if not self._progress:
            return nullcontext()
        text = f"pass {self._passes}"
        bar: AbstractContextManager[Any] = tqdm(
            total=len(self), desc=text, unit=" rows", unit_scale=True, leave=False, delay=0.5, disable=None
        )
        return bar

    def _read(self, into: Array | None = None) -> RowChunks:
        """Selected rows from the files; a copy is kept in `into`, in memory if they fit, or in a scratch file."""
        spool = None
        if into is None and self._keeps_copy and self._fits:
            into = np.empty(self.shape, self.dtype)
        elif into is None and self._keeps_copy and self._scratch is not None:
            spool = Spool(self.shape, self.dtype, "A decoded copy of the rows", self._scratch)
            into = spool.array
        start, cuts = 0, []
        with closing(self._chunks_ahead()) as chunks:
            for rows, chunk in chunks:
                z = chunk if self._selected is None else chunk[self._selected[rows]]
                if not len(z):
                    continue
                here = slice(start, start + len(z))
                if into is not None:
                    into[here] = z
                    cuts.append(here)
                yield here, z
                start = here.stop
                del chunk, z  # not held while the next is read
        if into is not None:
            self._copy, self._block_slices, self._spool = into, cuts, spool or self._spool

    @property
    def nbytes(self) -> int:
        """Bytes that the rows would take in memory."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def _fits(self) -> bool:
        """Whether a copy of all rows is within the budget."""
        return self.nbytes <= self.budget.room

    def _chunks_ahead(self) -> RowChunks:
        """Chunks of the files, read ahead."""
        return read_ahead(self._chunks)

    def check(self) -> None:
        """Read everything once and raise an error that says what is damaged, missing or not finite, and where.

        Rows that passed are not checked again as long as their files do not change.
        """
        if not self._checked:
            deque(self.checked_blocks(), maxlen=0)

    def checked_blocks(self) -> RowChunks:
        """What :meth:`blocks` yields; and what :meth:`check` raises, after the last of them."""
        counts, first = np.zeros((2, self.shape[1])), None
        with closing(self.blocks()) as blocks:
            for rows, z in blocks:
                yield rows, z
                with np.errstate(over="ignore", invalid="ignore"):
                    if self._checked or np.isfinite(z.sum()):
                        continue
                bad = ~np.isfinite(z)
                if first is None and bad.any():
                    first = rows.start + int(np.argmax(bad.any(axis=1)))
                counts += np.stack([np.isnan(z).sum(axis=0), np.isinf(z).sum(axis=0)])
        if first is not None:
            at = first if self._selected is None else int(np.flatnonzero(self._selected)[first])
            faults = column_faults(counts, self.feature_names)
            raise NotFiniteError(
                f"X must be finite; found {faults}, the first in {self.location_of(at)}. Drop those rows or fill the "
                "values in."
            )
        self._checked = True

    def random_access_copy(self) -> Array:
        """A copy of the rows for random access, in memory if the budget allows, else in a temporary file."""
        if self._copy is None:
            self._require_unchanged()
            if self._fits:
                into: Array = np.empty(self.shape, self.dtype)
            else:
                self._spool = Spool(self.shape, self.dtype, "Drawing rows at random", self._scratch)
                into = self._spool.array
            deque(self._read(into), maxlen=0)
        return self._copy

    def _state(self) -> tuple[tuple[int, int], ...]:
        """Size and modification time of each file."""
        return tuple((found.st_size, found.st_mtime_ns) for found in (path.stat() for path in self._paths))

    def _require_unchanged(self) -> None:
        try:
            now = self._state()
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read any more ({error.strerror}).") from error
        for path, before, after in zip(self._paths, self._initial_state, now, strict=True):
            if before != after:
                raise InputError(f"{path} was changed after it was opened. Open the rows again.")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copy": None, "_spool": None, "_block_slices": []}

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise InputError(
            f"{self.name} is read chunk by chunk and is not an array. Loop over its blocks(), or load the rows "
            "yourself if they fit into memory."
        )


def _mask(rows: Any, n: int) -> BoolArray:
    """Mask (n,) of rows given by a mask, a slice with a positive step or an increasing index."""
    if isinstance(rows, slice):
        if rows.step is not None and rows.step < 1:
            raise InputError(f"A slice with step {rows.step} was given; {_ORDER_ADVICE}")
        given: Array = np.arange(n)[rows]
    else:
        given = np.asarray(rows)
    if given.dtype == bool:
        if given.shape != (n,):
            raise InputError(f"A mask of shape {given.shape} does not go with {n:,} rows; it needs one value for each.")
        return np.asarray(given, dtype=bool)
    if given.ndim != 1 or (given.dtype.kind not in "iu" and len(given)):
        raise InputError(f"Rows were named by {given.dtype} of shape {given.shape}; a mask, a slice or an index works.")
    index = given.astype(np.intp)
    if len(outside := index[(index < 0) | (index >= n)]):
        raise InputError(f"Row {outside[0]} was named; there are rows 0 to {n - 1:,}.")
    falls = np.flatnonzero(np.diff(index) <= 0)
    if len(falls):
        before, after = index[falls[0] : falls[0] + 2]
        raise InputError(f"Row {after} was named after row {before}; {_ORDER_ADVICE}")
    chosen = np.zeros(n, dtype=bool)
    chosen[index] = True
    return chosen


# Rows of a .npy file, mapped and never loaded as a whole


def open_npy(path: str | PathLike[str]) -> np.memmap[Any, Any]:
    """Read-only map of a ``.npy`` file of numbers, shape (n, d)."""
    try:
        mapped = load_npy(path, mapped=True)
    except ValueError as error:
        raise InputError(f"{path} cannot be mapped as a .npy file: {error}. Write it with numpy.save.") from error
    if not isinstance(mapped, np.memmap) or mapped.ndim != 2 or mapped.dtype.kind not in "biuf":
        shape, kind = getattr(mapped, "shape", None), getattr(mapped, "dtype", type(mapped).__name__)
        raise InputError(f"{path} holds {kind} of shape {shape}; rows must be numbers of shape (n, d).")
    return mapped


class StoredNpy(StoredRows):
    """The rows of a ``.npy`` file, with a budget for what is computed from them; the rows themselves stay mapped.

    Mapped pages belong to the system, which takes them back when it needs them: they count as the file's, not as the
    process's own (anonymous) memory. `spool` is the owner of a temporary file.
    """

    _keeps_copy = False

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
        self._map = self._open(path)
        n, d = self._map.shape
        self.shape = (int(n), int(d))
        # Whole numbers become float64, as in memory.
        least = np.float32 if self._map.dtype.kind == "f" else np.float64
        self.dtype = np.promote_types(self._map.dtype, least)
        self.feature_names, self.column_names = None, []
        if not n or not d:
            raise InputError(f"{path} has shape {self._map.shape}; at least one row and one feature are needed.")
        copied = self._map.dtype != self.dtype  # half precision or whole numbers, a chunk at a time
        row_bytes = d * self.dtype.itemsize
        self.budget = Budget(parse_size(memory), self.shape[0], row_bytes if copied else 0)
        if spool is None:  # what goes to a temporary file does so for want of memory
            self.budget.require_enough(str(path))
        self._block_rows = block_rows
        self._owner = spool
        super().__init__([Path(path)], progress=progress, scratch=scratch)

    @staticmethod
    def _open(path: str | PathLike[str]) -> np.memmap[Any, Any]:
        """Read-only map of the rows; override it for arrays in files of another kind."""
        return open_npy(path)

    def _chunks(self) -> RowChunks:
        n, size = len(self._map), self._rows_at_once
        prefetch(self._map, 0, size * self._map.itemsize * self.shape[1])
        for rows in slices(n, size):
            prefetch(self._map, rows.stop, size * self._map.itemsize * self.shape[1])
            yield rows, self._map[rows].astype(self.dtype, copy=False)

    @property
    def _rows_at_once(self) -> int:
        if self._block_rows is not None:
            return self._block_rows
        copied = self.budget.row_bytes > 0
        return self.budget.chunk_rows if copied else max(1, MAX_CHUNK_BYTES // (self.shape[1] * self.dtype.itemsize))

    def _chunks_ahead(self) -> RowChunks:
        return self._chunks()  # the system reads ahead

    def random_access_copy(self) -> Array:
        """The map itself, unless rows were selected or are whole numbers."""
        return self._map if self._selected is None and self._map.dtype.kind == "f" else super().random_access_copy()

    def read_slice(self, rows: slice) -> Array:
        """Part of the map, in the type of the file, unless rows were selected."""
        return self._map[rows] if self._selected is None else super().read_slice(rows)

    def location_of(self, row: int) -> str:
        """The number of the row."""
        return f"row {row} of {self._paths[0]}"

    def _whole_column(self, name: str) -> Array:
        raise NotImplementedError(name)  # there are none

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in ("_map", "_owner")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._require_unchanged()
        self._map, self._owner = self._open(self._paths[0]), None


def prefetch(z: Array, row: int, size: int) -> int:
    """Ask the system to read `size` bytes of a map ahead, from a row on; return the row after them.

    This saves waiting for a slow disk, and costs next to nothing for pages that are in memory already.
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
