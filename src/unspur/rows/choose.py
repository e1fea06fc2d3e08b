"""Which row source serves what a user passed as Z: where its rows live decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from unspur._arrays import is_of, is_tensor, on_numpy
from unspur._typing import Array
from unspur.rows.memmap import MemmapRows, file_behind
from unspur.rows.memory import MemoryRows
from unspur.rows.source import Columns, RowSource
from unspur.rows.stored import StoredRows

#: Where rows live: anything NumPy can see, a tensor and its device, a cluster, or files read block by block.
Home: TypeAlias = Literal["memory", "torch", "dask", "files"]


def home_of(z: Any) -> Home:
    """Where the rows of an array live; looks at its type alone, so that no library is imported for it."""
    if isinstance(z, StoredRows):
        return "files"
    return "torch" if is_tensor(z) else "dask" if is_of("dask", z) else "memory"


def at_hand(z: Array) -> Array:
    """The same rows, ready to be visited often while the result is kept: chunks of a Dask array stay computed."""
    if home_of(z) != "dask":
        return z
    from unspur.rows.dask import kept

    return kept(z)


def fetched(*given: Any) -> tuple[Any, ...]:
    """Labels, weights or answers on the host: those of Dask computed once and together; the rest as `on_numpy` has it.

    What is not known of a Dask array before, such as its length, is known of the result.
    """
    given = tuple(dict(zip(value, fetched(*value.values()), strict=True)) if isinstance(value, Mapping) else value
                  for value in given)  # fmt: skip
    if any(home_of(value) == "dask" for value in given):
        from unspur.rows.dask import computed

        given = computed(given)
    return tuple(map(on_numpy, given))


def rows_of(z: Array, columns: Columns) -> RowSource:
    """Row source for an array: the file it maps where it maps one, else where its rows are."""
    home = home_of(z)
    if home == "torch" and _numpy_sees(z):
        return MemoryRows(on_numpy(z), columns)
    if home == "torch":
        from unspur.rows.torch import TorchRows

        return TorchRows(z, columns)
    if home == "dask":
        from unspur.rows.dask import DaskRows

        return DaskRows(z, columns)
    if isinstance(z, StoredRows):
        return z.source(columns)
    path = file_behind(z)
    return MemoryRows(z, columns) if path is None else MemmapRows(path, columns, mapped=z)


def _numpy_sees(z: Any) -> bool:
    """Whether a tensor's memory can be an array's: then NumPy is quicker, and there is one pool of threads less."""
    return bool(z.device.type == "cpu" and str(z.dtype) != "torch.bfloat16")
