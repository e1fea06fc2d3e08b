"""Choose the row source for user data: `rows_of` for arrays, `open_rows` for files."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from unspur._arrays import is_instance, is_tensor, to_numpy
from unspur._reading import PARQUET, TEXT_TABLES
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows.source import MemoryRows, RowLabels, RowSource
from unspur.rows.stored import MemmapRows, StoredNpy, StoredRows, file_behind

#: Where rows live: anything NumPy can see, a tensor and its device, a cluster, or files read block by block.
Backend: TypeAlias = Literal["memory", "torch", "dask", "files"]


def backend_of(z: Any) -> Backend:
    """Backend of an array, from its type alone, so that no library is imported."""
    if isinstance(z, StoredRows):
        return "files"
    return "torch" if is_tensor(z) else "dask" if is_instance(z, "dask") else "memory"


def persisted(z: Array) -> Array:
    """The same rows; chunks of a Dask array are computed once and kept as long as the result is."""
    if backend_of(z) != "dask":
        return z
    from unspur.rows.dask import persist_rows

    return persist_rows(z)


def to_host(*given: Any) -> tuple[Any, ...]:
    """Labels or weights as NumPy arrays on the host; Dask collections are computed together, once."""
    given = tuple(
        dict(zip(value, to_host(*value.values()), strict=True)) if isinstance(value, Mapping) else value
        for value in given
    )
    if any(backend_of(value) == "dask" for value in given):
        from unspur.rows.dask import compute_together

        given = compute_together(given)
    return tuple(map(to_numpy, given))


def rows_of(z: Array, labels: RowLabels) -> RowSource:
    """Row source for an array on its backend; a memory map of a whole file is read through its path."""
    backend = backend_of(z)
    if backend == "torch" and _numpy_sees(z):
        return MemoryRows(to_numpy(z), labels)
    if backend == "torch":
        from unspur.rows.torch import TorchRows

        return TorchRows(z, labels)
    if backend == "dask":
        from unspur.rows.dask import DaskRows

        return DaskRows(z, labels)
    if isinstance(z, StoredRows):
        return z.source(labels)
    path = file_behind(z)
    return MemoryRows(z, labels) if path is None else MemmapRows(path, labels, mapped=z)


def _numpy_sees(z: Any) -> bool:
    """Whether NumPy can share a tensor's memory; NumPy is then quicker and needs no second thread pool."""
    return bool(z.device.type == "cpu" and str(z.dtype) != "torch.bfloat16")


#: Files that hold one array, by suffix. All other files are taken for Parquet.
ARRAY_READERS: dict[str, Callable[..., StoredRows]] = {".npy": StoredNpy}
Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]


def open_rows(
    paths: Paths,
    *,
    features: str | Sequence[str] | None = None,
    labels: Sequence[str] = (),
    memory: int | str = "1GB",
    progress: bool = False,
    check: bool = True,
    scratch: str | PathLike[str] | None = None,
) -> StoredRows:
    """Rows in files that need not fit into memory, to be passed to `fit` in place of an array.

    Parameters
    ----------
    paths : str, path or list of them
        Parquet files, folders of them (all below, sorted; names that begin with "_" or "." are left out), patterns such
        as ``"big/*.parquet"``; or one ``.npy`` file of shape (n, d).
    features : str or list of str, optional
        Of Parquet files: a column of lists that all have the same length, or columns of numbers or booleans, one
        per feature. By default the only column of lists; where there is none, all columns besides `labels`, which
        must then be named, and an index of pandas.
    labels : list of str
        Columns that must exist and are not features. ``rows.column(name)`` reads any column, named here or not.
    memory : int or str, default="1GB"
        Budget in bytes for reading, for 128 bytes per row that a fit keeps, and for what it computes from the rows;
        larger projections go to a temporary file. The interpreter and d × d matrices come on top.
    progress : bool, default=False
        Show a bar for each pass over the rows where standard error is a terminal.
    check : bool, default=True
        Read all rows once now, so that damaged row groups, nulls, lists of different length, NaN and infinity are
        refused here, by file and row group. The next `fit` then does without the pass it would have made for this. With
        False it is `fit` that checks, before it estimates anything.
    scratch : folder, optional
        Where temporary files go; by default that of the system. Naming one also asks for a decoded copy of Parquet rows
        that do not fit into the budget: made in the first pass, as large as Z, removed at the end. Later passes read it
        several times as fast as Parquet can be decoded, which matters as a fit makes dozens.

    Returns
    -------
    StoredRows
        With `shape`, `dtype` (float32 for half and single precision, else float64), `column`, `select`, `blocks`.

    Notes
    -----
    A damaged page is noticed where it has a checksum or cannot be decoded. Of pages without checksums a changed byte
    may just be another number; write files with checksums (``write_page_checksum=True`` in pyarrow) to be sure.

    Examples
    --------
    >>> rows = open_rows("big/*.parquet", memory="1GB")  # doctest: +SKIP
    >>> JSE().fit(rows, rows.column("bird"), concept=rows.column("background"))  # doctest: +SKIP
    """
    files = find_files(paths)
    _refuse_tables_in_memory(files)
    kind = _kind(files[0])
    if kind in ARRAY_READERS:
        if len(files) > 1:
            raise InputError(f"{files[0]} is one of {len(files)} files; of {kind} files one at a time can be opened.")
        if features is not None or labels:
            raise InputError(f"{files[0]} is one array; features and labels are for Parquet files.")
        rows: StoredRows = ARRAY_READERS[kind](files[0], memory=memory, progress=progress, scratch=scratch)
    else:
        from unspur.rows.parquet import ParquetRows

        rows = ParquetRows(files, features=features, labels=labels, memory=memory, progress=progress, scratch=scratch)
    if check:
        rows.check()
    return rows


def _refuse_tables_in_memory(files: Sequence[Path]) -> None:
    """Raise InputError for files that can only be read as a whole."""
    for path in files:
        if path.name.lower().endswith((*TEXT_TABLES, ".npz")):
            raise InputError(
                f"{path} is not a file whose rows can stay there: open_rows reads Parquet files and "
                f"{', '.join(ARRAY_READERS)} arrays. Write the rows as one of these, such as by DataFrame.to_parquet "
                "of pandas; or read them into memory, and pass the array to fit."
            )


def _kind(path: Path) -> str:
    """The suffix of a file that holds one array; all other files are taken for Parquet."""
    suffix = path.suffix.lower()
    return suffix if suffix in ARRAY_READERS else ".parquet"


def find_files(paths: Paths) -> list[Path]:
    """The files behind names, folders and patterns, in order; InputError if there are none or duplicates."""
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    if not given:
        raise InputError("No file was named.")
    found: list[Path] = []
    for name in given:
        found += _one(str(name))
    kinds = sorted({_kind(path).replace(".parquet", "Parquet") for path in found})
    if len(kinds) > 1:
        raise InputError(f"{', '.join(map(str, given[:5]))}: {' and '.join(kinds)} files cannot be mixed.")
    seen: dict[Path, Path] = {}
    for path in found:
        if not path.is_file():
            raise InputError(f"{path} is not a plain file that can be read: a pipe, a device, or a link to nothing.")
        if (real := path.resolve()) in seen:
            raise InputError(f"{path} is named twice; its rows would count twice.")
        seen[real] = path
    return found


def _one(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return _below(path)
    if path.exists():
        return [path]
    matches = [Path(match) for match in sorted(glob.glob(name, recursive=True))]
    if not matches:
        raise InputError(f"There is no file {name}, and none that matches it as a pattern.")
    files = [file for match in matches for file in (_below(match) if match.is_dir() else [match])]
    return [file for file in files if not file.name.startswith(("_", "."))] or files


def parquet_below(folder: Path) -> Iterator[Path]:
    """Parquet files in a folder and below it; ``_SUCCESS``, ``_metadata`` and hidden ones are the writer's own."""
    for path in folder.rglob("*"):
        own = any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts)
        if path.suffix.lower() in PARQUET and not own and path.is_file():
            yield path


def _below(folder: Path) -> list[Path]:
    files = sorted(parquet_below(folder))
    if not files:
        hint = f" Of an embedding store open {folder / 'rows.npy'}." if (folder / "rows.npy").exists() else ""
        raise InputError(f"{folder} holds no Parquet files.{hint}")
    return files
