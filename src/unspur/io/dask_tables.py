"""Tables whose rows are read by the workers of a Dask cluster, chunk by chunk, from a shared disk.

Labels are read in this process. Rows come from Zarr groups, Parquet files or files of one array. A task is a path and a
range of rows, and opens its file itself, so that a missing file is an error: a Zarr array that was opened elsewhere
would read missing chunks as zeros.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unspur._extras import require
from unspur._reading import read_json
from unspur._text import brief
from unspur._typing import Array
from unspur._version import __version__
from unspur.exceptions import InputError
from unspur.io.files import IN_MEMORY_SUFFIXES, read_table
from unspur.io.table import Table, name_of_rows_array, require_known
from unspur.rows.backends import ARRAY_READERS
from unspur.rows.parquet import ParquetRows, RowGroup, read_groups
from unspur.rows.source import slices
from unspur.rows.stored import NO_MEMORY_LIMIT

#: Seconds to wait for a scheduler, and for its first worker.
CONNECT_SECONDS = 10.0


@contextmanager
def connected(where: str, *, default: bool = True) -> Iterator[Any]:
    """A client of a cluster, once a worker is there and all have this version of unspur.

    Parameters
    ----------
    where : ``tcp://host:8786``, the file that a scheduler wrote (``--scheduler-file``), or "local" for a cluster of
        this machine's cores, which ends with the block.
    default : whether Dask sends its work to this cluster while the block lasts.
    """
    require("A Dask cluster needs", "dask", "distributed")
    import distributed

    if where == "local":
        with (
            distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster,
            distributed.Client(cluster, set_as_default=default) as client,
        ):
            yield client
        return
    with _client(distributed, where, default) as client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise InputError(
                f"The Dask scheduler at {where} has no workers after {CONNECT_SECONDS:g} s. Start some with "
                f"{worker_command(where)}."
            ) from error
        _expect_this_version(client, where)
        yield client


def _client(distributed: Any, where: str, default: bool) -> Any:
    address: dict[str, str] = {"address": where}
    if Path(where).is_file():
        _require_address(where)
        address = {"scheduler_file": where}
    elif not re.fullmatch(r"(tcp|tls|ws|wss|ucx|inproc)://\S+", where):
        raise InputError(
            f"{where!r} is not the address of a Dask scheduler; pass what it prints, such as tcp://host:8786, or the "
            "file that it wrote (dask scheduler --scheduler-file)."
        )
    try:
        return distributed.Client(**address, timeout=CONNECT_SECONDS, set_as_default=default)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"No Dask scheduler answers at {where} ({error}). Start one with `dask scheduler`, and pass the address "
            "it prints (tcp://host:port)."
        ) from error


def _require_address(file: str) -> None:
    """Raise InputError unless a file is one that a scheduler wrote."""
    try:
        read_json(file, {"address": str})
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file} is not a file that a Dask scheduler wrote ({brief(error)}). Pass the one of dask scheduler "
            "--scheduler-file, or the address that it prints."
        ) from error


def worker_command(where: str) -> str:
    """The command that starts workers of a cluster."""
    place = where if "://" in where else f"--scheduler-file {where}"
    return f"`dask worker {place} --nworkers auto --nthreads 1`"


def _expect_this_version(client: Any, where: str) -> None:
    """Raise InputError unless all workers have this version: statistics are sent to them as code."""

    def version() -> str:  # inside a function it travels by value, to where unspur may be missing
        try:
            from unspur._version import __version__ as found
        except ImportError:
            return "none"
        return found

    versions = sorted(set(client.run(version).values()) | {__version__})
    if len(versions) > 1:
        raise InputError(
            f"The workers of {where} and this process have different versions of unspur: {', '.join(versions)}. "
            "Install the same everywhere."
        )


#: Bytes of rows in a chunk: enough to be worth a task, and few enough that several fit into a worker.
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 4 * 2**20, 128 * 2**20
#: Most chunks: a scheduler takes up to a millisecond for each.
MAX_CHUNKS = 2000
#: Chunks per thread for few rows, so that threads finish at about the same time.
CHUNKS_PER_THREAD = 2


#: A function that reads a range of rows, its arguments, and the range.
Reading: TypeAlias = tuple[Callable[..., Array], tuple[Any, ...], slice]


def read_dask_table(
    paths: Sequence[str | Path], labels: tuple[str, ...], ignore: tuple[str, ...], client: Any
) -> Table:
    """Rows as a Dask array that the workers of `client` read, and labels as arrays.

    `paths` is one Zarr group, one file of `ARRAY_READERS` or embedding store, or Parquet files, a folder of them or a
    pattern.
    """
    threads = max(1, sum(client.nthreads().values()))
    if len(paths) == 1 and _is_zarr(Path(paths[0])):
        folder = Path(paths[0]).absolute()
        _require_visible(client, [folder])
        return _read_zarr(folder, labels, ignore, threads)
    if any(str(path).lower().endswith(IN_MEMORY_SUFFIXES) for path in paths):
        raise InputError(
            f"{paths[0]} has to be read as a whole; on a cluster rows come from Zarr, Parquet or "
            f"{' or '.join(ARRAY_READERS)}. Write one of these."
        )
    # A chunk is held as a whole anyway.
    table = read_table(paths, labels, ignore, memory=str(NO_MEMORY_LIMIT))
    stored, tasks = table.Z, list[Reading]()
    if not isinstance(stored, ParquetRows):
        path = Path(stored.name)
        _require_visible(client, [path])
        dtype = stored.read_slice(slice(0, 1)).dtype
        size = _rows_per_chunk(stored.shape, dtype.itemsize, threads)
        tasks = [(_single_file_rows, (str(path), part), part) for part in slices(len(stored), size)]
    else:
        files = list(dict.fromkeys(group.path for group in stored.groups))
        _require_visible(client, files)
        dtype = stored.dtype
        size = _rows_per_chunk(stored.shape, dtype.itemsize, threads)
        tasks = [
            (read_groups, (groups, stored.layout), slice(groups[0].start, groups[-1].start + groups[-1].rows))
            for groups in _together(stored.groups, size)
        ]
    return replace(table, Z=_array(tasks, stored.shape[1], dtype))


def _array(tasks: Sequence[Reading], d: int, dtype: Any) -> Array:
    """A Dask array of shape (n, d) from tasks that read ranges of its rows."""
    import dask
    import dask.array as da

    return da.concatenate(
        [
            da.from_delayed(dask.delayed(read, pure=False)(*arguments), (rows.stop - rows.start, d), dtype)
            for read, arguments, rows in tasks
        ]
    )


def _rows_per_chunk(shape: tuple[int, int], itemsize: int, threads: int) -> int:
    row = shape[1] * itemsize
    total = shape[0] * row
    size = min(MAX_CHUNK_BYTES, max(MIN_CHUNK_BYTES, total // (CHUNKS_PER_THREAD * threads)))
    return max(1, max(size, total // MAX_CHUNKS) // row)


def _together(groups: Sequence[RowGroup], size: int) -> Iterator[list[RowGroup]]:
    """Consecutive row groups, possibly of several files, with about `size` rows together.

    A row group is never divided, since it would be read twice.
    """
    here: list[RowGroup] = []
    for group in groups:
        if here and group.start + group.rows - here[0].start > size:
            yield here
            here = []
        here.append(group)
    yield here


def _require_visible(client: Any, paths: Sequence[Path]) -> None:
    """Raise InputError unless every worker sees every path."""
    names = [str(path) for path in paths]
    missing = {worker: absent for worker, absent in client.run(_absent, names).items() if absent}
    if missing:
        worker, absent = next(iter(missing.items()))
        raise InputError(
            f"{len(missing)} of {len(client.nthreads())} workers do not see {absent[0]} (the first: {worker}). Workers "
            "read the rows themselves: put files on a disk that all share, under the same path, or start a cluster "
            "here with --dask local."
        )


def _absent(names: list[str]) -> list[str]:
    return [name for name in names if not os.access(name, os.R_OK)]


def _single_file_rows(path: str, rows: slice) -> Array:
    return ARRAY_READERS[Path(path).suffix.lower()](path, memory=NO_MEMORY_LIMIT).read_slice(rows)


# Zarr


def _is_zarr(path: Path) -> bool:
    marks = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
    return path.suffix.lower() == ".zarr" or any((path / mark).exists() for mark in marks)


def _open_zarr(path: str | Path) -> Any:
    require("Zarr arrays need", "zarr")
    import zarr

    try:
        return zarr.open(str(path), mode="r")
    except Exception as error:  # zarr's own errors differ from version to version
        raise InputError(f"{path} cannot be read as Zarr: {str(error)[:200] or type(error).__name__}.") from error


def _read_zarr(path: Path, labels: tuple[str, ...], ignore: tuple[str, ...], threads: int) -> Table:
    found = _open_zarr(path)
    alone = hasattr(found, "shape")  # an array, not a group of them
    named = {} if alone else dict(sorted(found.arrays()))
    require_known(path, list(named), ignore)
    named = {name: item for name, item in named.items() if name not in ignore}
    name = "" if alone else name_of_rows_array(path, named, labels)
    rows = found if alone else named[name]
    if len(rows.shape) != 2 or rows.dtype.kind != "f" or not all(rows.shape):
        raise InputError(
            f"{path} holds {rows.dtype} of shape {rows.shape}; rows must be floating point of shape (n, d)."
        )
    # Only labels are read; others may be anything, and long.
    columns = {label: np.asarray(named[label][:]) for label in labels if label in named}
    size = _rows_per_chunk(rows.shape, rows.dtype.itemsize, threads)
    own = int(rows.chunks[0])
    size = max(own, size // own * own)  # a piece that lies in two chunks would be read twice
    tasks = [(_zarr_rows, (str(path), name, part), part) for part in slices(rows.shape[0], size)]
    return Table(path, _array(tasks, int(rows.shape[1]), rows.dtype), None, columns)


def _zarr_rows(path: str, name: str, rows: slice) -> Array:
    found = _open_zarr(path)
    return np.asarray((found[name] if name else found)[rows])
