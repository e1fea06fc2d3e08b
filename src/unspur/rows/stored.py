"""Rows in files that are read piece by piece and never held as a whole."""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np
from tqdm import tqdm

from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import InputError, NotFiniteError
from unspur.rows.ahead import read_ahead
from unspur.rows.budget import Budget, as_bytes
from unspur.rows.memory import MemoryRows
from unspur.rows.source import Block, Columns, RowSource, S, Weighting
from unspur.rows.spool import Spool

#: Bytes of projected rows that are computed at a time, besides where they go.
PROJECTED = 4 * 2**20
#: Stretches of rows in order: which rows, and their values (m, d). To be closed where one stops early.
Stretches: TypeAlias = Generator[tuple[slice, Array], None, None]

#: Why an index may be refused, and what to do.
_ORDERED = "rows of files come in their order, each once. Sort the index with numpy.unique, and the labels with it."


class StoredRows(ABC):
    """What a user passes as Z when the rows are in files: a shape, a type, and a way to visit them.

    Attributes
    ----------
    shape : (n, d).
    dtype : floating-point type that rows arrive in.
    feature_names : one name per feature where the files have them, else None.
    column_names : what :meth:`column` can read.
    budget : how memory is divided.
    """

    ndim = 2
    #: Whether reading takes more than a look at the file, so that rows that fit are better kept than read again.
    _decoded = True
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    feature_names: list[str] | None
    column_names: list[str]
    budget: Budget

    def __init__(self, paths: Sequence[Path], *, progress: bool = False, scratch: str | PathLike[str] | None = None):
        self._paths = tuple(Path(path).absolute() for path in paths)
        self._as_found = self._state()
        self._progress = progress
        self._scratch = None if scratch is None else Path(scratch).absolute()
        self._passes = 0
        self._wanted: BoolArray | None = None
        self._checked = False
        self._copy: Array | None = None
        self._spool: Spool | None = None
        self._cuts: list[slice] = []

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        n, d = self.shape
        return f"<{n:,} rows of {d} features ({self.dtype}) in {self.name}>"

    @property
    def name(self) -> str:
        """The file, or the first of them and how many more there are."""
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"{self._paths[0]}{more}"

    @abstractmethod
    def _pieces(self) -> Stretches:
        """All rows of the files in order, in pieces within the budget; one with no wanted row may be left out."""

    @abstractmethod
    def place_of(self, row: int) -> str:
        """Where a row of the files is, in words."""

    @abstractmethod
    def _whole_column(self, name: str) -> Array:
        """A column that is no feature, for all rows of the files."""

    def column(self, name: str) -> Array:
        """A column that is no feature, such as a label: shape (n,). Nothing else is read for it."""
        if name not in self.column_names:
            there = ", ".join(self.column_names) or "none besides the features"
            raise InputError(f"{self.name} has no column {name!r} (it has: {there}).")
        self._require_unchanged()
        column = self._whole_column(name)
        return column if self._wanted is None else column[self._wanted]

    def select(self, rows: Array | slice) -> Self:
        """Some of the rows by mask, slice or increasing index; what is left out is skipped.

        Rows come in the order of the files, so an index that asks for another one, or for a row twice, is refused.
        """
        chosen = _mask(rows, len(self))
        index = chosen if self._wanted is None else np.flatnonzero(self._wanted)[chosen]
        there = np.zeros(self.budget.rows, dtype=bool)
        there[index] = True
        some = object.__new__(type(self))
        some.__dict__.update(self.__dict__)
        some.shape, some._wanted, some._copy = (int(there.sum()), self.shape[1]), there, None
        some._spool, some._cuts = None, []
        return some

    def within(self, memory: int | str) -> Self:
        """The same rows with another budget."""
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)
        same.budget = replace(self.budget, total=as_bytes(memory))
        same.budget.require_enough(self.name)
        same._copy, same._spool, same._cuts = None, None, []
        return same

    def source(self, columns: Columns) -> RowSource:
        """The rows with their columns, for the algorithms."""
        return FileRows(self, columns)

    def blocks(self) -> Stretches:
        """All rows in order: which they are, and their values (m, d). Close it if you stop early."""
        self._require_unchanged()
        self._passes += 1
        with self._bar() as bar, closing(self._read() if self._copy is None else self._copied()) as blocks:
            for rows, z in blocks:
                yield rows, z
                if bar is not None:
                    bar.update(len(z))

    def _bar(self) -> AbstractContextManager[Any]:
        """Rows of this pass and rows per second, for passes that are long enough to be watched."""
        if not self._progress:
            return nullcontext()
        text = f"pass {self._passes}"
        bar: AbstractContextManager[Any] = tqdm(
            total=len(self), desc=text, unit=" rows", unit_scale=True, leave=False, delay=0.5, disable=None
        )
        return bar

    def _read(self, into: Array | None = None) -> Stretches:
        """Wanted rows from the files, kept once all were read: in `into`; in memory if they fit; in a scratch file."""
        spool = None
        if into is None and self._decoded and self._fits:
            into = np.empty(self.shape, self.dtype)
        elif into is None and self._decoded and self._scratch is not None:
            spool = Spool(self.shape, self.dtype, "A decoded copy of the rows", self._scratch)
            into = spool.array
        start, cuts = 0, []
        with closing(self._arriving()) as pieces:
            for rows, piece in pieces:
                z = piece if self._wanted is None else piece[self._wanted[rows]]
                if not len(z):
                    continue
                here = slice(start, start + len(z))
                if into is not None:
                    into[here] = z
                    cuts.append(here)
                yield here, z
                start = here.stop
                del piece, z  # not held while the next is read
        if into is not None:
            self._copy, self._cuts, self._spool = into, cuts, spool or self._spool

    @property
    def _fits(self) -> bool:
        """Whether a copy of all rows is within the budget."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize <= self.budget.room

    def _copied(self) -> Stretches:
        """The same blocks from the copy, so that sums over them come out the same to the last bit."""
        for rows in self._cuts:
            yield rows, self._copy[rows]  # type: ignore[index]

    def _arriving(self) -> Stretches:
        """Pieces of the files, read ahead."""
        return read_ahead(self._pieces)

    def check(self) -> None:
        """Read everything once and raise an error that names what is damaged, missing or not finite, and where.

        What was found whole is not read for this again as long as its files do not change.
        """
        if self._checked:
            return
        counts, first = np.zeros((2, self.shape[1])), None
        with closing(self.blocks()) as blocks:
            for rows, z in blocks:
                with np.errstate(over="ignore", invalid="ignore"):
                    if np.isfinite(z.sum()):
                        continue
                bad = ~np.isfinite(z)
                if first is None and bad.any():
                    first = rows.start + int(np.argmax(bad.any(axis=1)))
                counts += np.stack([np.isnan(z).sum(axis=0), np.isinf(z).sum(axis=0)])
        if first is not None:
            at = first if self._wanted is None else int(np.flatnonzero(self._wanted)[first])
            raise NotFiniteError(
                f"Z must be finite; found {self._faults(counts)}, the first in {self.place_of(at)}. Drop those rows or "
                "fill the values in."
            )
        self._checked = True

    def _faults(self, counts: FloatArray) -> str:
        parts = []
        for kind, per_column in zip(("NaN", "infinity"), counts, strict=True):
            bad = np.flatnonzero(per_column)
            names = [j if self.feature_names is None else repr(self.feature_names[j]) for j in bad[:5]]
            parts += [f"{int(per_column[j])} {kind} in column {name}" for j, name in zip(bad[:5], names, strict=True)]
            if len(bad) > 5:
                parts.append(f"{kind} in {len(bad) - 5} more columns")
        return "; ".join(parts)

    def at_random(self) -> Array:
        """The rows as an array that can be indexed: a copy, in memory where it fits into the budget, else in a file."""
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
        """Size and time of change of each file."""
        return tuple((found.st_size, found.st_mtime_ns) for found in (path.stat() for path in self._paths))

    def _require_unchanged(self) -> None:
        try:
            now = self._state()
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read any more ({error.strerror}).") from error
        for path, before, after in zip(self._paths, self._as_found, now, strict=True):
            if before != after:
                raise InputError(f"{path} was changed after it was opened. Open the rows again.")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copy": None, "_spool": None, "_cuts": []}

    def __array__(self, *args: Any, **options: Any) -> NoReturn:
        raise InputError(
            f"{self.name} is read piece by piece and is not an array. Loop over its blocks(), or load the rows "
            "yourself if they fit into memory."
        )


class FileRows(RowSource):
    """Stored rows with their columns; travels between processes as paths."""

    def __init__(self, stored: StoredRows, columns: Columns):
        if len(stored) != len(columns):
            raise InputError(f"Z of shape {stored.shape} does not go with {len(columns)} labels.")
        self._stored = stored
        self._columns = columns

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._stored.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self._stored.shape[1]

    @property
    def n_folds(self) -> int:
        """Number of folds that are held out in turn."""
        return self._columns.n_folds

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the rows of a block."""
        return self._stored.dtype

    def check(self) -> None:
        """Raise an error unless the files are whole and all rows finite (see :meth:`StoredRows.check`)."""
        self._stored.check()

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, in row order."""
        with closing(self._stored.blocks()) as blocks:
            # What was read are rows in memory, which know what size of block the processor likes.
            parts = (MemoryRows(z, _part(self._columns, rows)).sum(statistic) for rows, z in blocks)
            return functools.reduce(operator.add, parts)

    def project(self, directions: Array, centre: Array) -> RowSource:
        """Rows ``(z − centre) @ directions`` in float64: in memory if the budget allows, else in a temporary file."""
        n, k = self.n_rows, directions.shape[1]
        if 8 * n * k <= self._stored.budget.room:
            out = np.empty((k, n)).T  # each column in one piece: they are often used one by one
            spool = None
        else:
            what = f"Projecting {n:,} rows onto {k} directions"
            spool = Spool((n, k), np.float64, what, self._stored._scratch)
            out = spool.array
        if k:
            with closing(self._stored.blocks()) as blocks:
                for rows, z in blocks:
                    for start in range(0, len(z), step := max(1, PROJECTED // (8 * k))):
                        here = slice(rows.start + start, min(rows.start + start + step, rows.stop))
                        part = MemoryRows(z[start : start + step], _part(self._columns, here))
                        out[here] = part.project(directions, centre)._z
        if spool is None:
            return MemoryRows(out, self._columns)
        from unspur.rows.memmap import StoredNpy

        options: dict[str, Any] = {"progress": self._stored._progress, "scratch": self._stored._scratch}
        total = self._stored.budget.total
        return FileRows(StoredNpy(spool.path, memory=total, spool=spool, **options), self._columns)

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks (see :class:`RowSource`), drawn as rows in memory are, with a copy of the rows."""
        return MemoryRows(self._stored.at_random(), self._columns).minibatches(size, rng, weighting)


def _part(columns: Columns, rows: slice) -> Columns:
    return Columns(columns.targets[:, rows], columns.cell[rows], columns.weight[rows], columns.n_folds)


def _mask(rows: Any, n: int) -> BoolArray:
    """Which of n rows a mask, a slice with a positive step or an increasing index names."""
    chosen = np.zeros(n, dtype=bool)
    if isinstance(rows, slice):
        if rows.step is not None and rows.step < 1:
            raise InputError(f"A slice with step {rows.step} was given; {_ORDERED}")
        chosen[rows] = True
        return chosen
    given = np.asarray(rows)
    if given.dtype == bool:
        if given.shape != (n,):
            raise InputError(f"A mask of shape {given.shape} does not go with {n:,} rows; it needs one value for each.")
        return given
    if given.ndim != 1 or (given.dtype.kind not in "iu" and len(given)):
        raise InputError(f"Rows were named by {given.dtype} of shape {given.shape}; a mask, a slice or an index works.")
    if not len(given):
        return chosen
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= n:
        raise InputError(f"Row {low if low < 0 else high} was named; there are rows 0 to {n - 1:,}.")
    falls = np.flatnonzero(given[1:] <= given[:-1])
    if len(falls):
        before, after = given[falls[0]], given[falls[0] + 1]
        raise InputError(f"Row {after} was named after row {before}; {_ORDERED}")
    chosen[given] = True
    return chosen
