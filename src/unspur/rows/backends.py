"""Choose the row source for user data: `rows_of` for arrays, `open_rows` for files."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

from unspur._reading import PARQUET
from unspur.exceptions import InputError
from unspur.rows.stored import StoredNpy, StoredRows

#: Where rows live: anything NumPy can see, a tensor and its device, a cluster, or files read block by block.
Backend: TypeAlias = Literal["memory", "torch", "dask", "files"]


#: Files that hold one array, by suffix. All other files are taken for Parquet.
ARRAY_READERS: dict[str, Callable[..., StoredRows]] = {".npy": StoredNpy}
Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]


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
