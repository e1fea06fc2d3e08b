"""Tables of rows in files: CSV and Parquet by pandas and pyarrow, .npz and .npy by NumPy.

Rows are the features of a file: all numbers but those of the columns that are kept apart (labels, ids, paths).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pandas as pd
from pandas.api import types

from unspur._extras import require
from unspur._files import atomic
from unspur._resources import available_memory
from unspur._text import brief
from unspur._typing import Array
from unspur.exceptions import InputError, NotFiniteError

#: Kinds of files by the ends of their names; a folder is read as the Parquet files in it.
CSV, PARQUET = (".csv", ".csv.gz"), (".parquet", ".pq")
READABLE = (*CSV, *PARQUET, ".npz", ".npy")
WRITABLE = (".csv", *PARQUET, ".npz", ".npy")
#: Bytes of a Parquet file that are read at a time where a command goes through it.
BATCH_BYTES = 2**25


@dataclass(frozen=True)
class Table:
    """The rows of a file, and its other columns.

    Attributes
    ----------
    path : of the file.
    X : rows (n, d): a DataFrame if features have names, else an array.
    columns : all other columns. The index is the number of the row in the file.
    array : what X is called in the file, if it is an array.
    pictures : arrays with more than one number for each row, beside the rows of a .npz file.
    schema : Parquet types of the columns, and what the file says about itself, if it is a Parquet file.
    """

    path: Path
    X: Any
    columns: pd.DataFrame
    array: str = "Z"
    pictures: Mapping[str, Array] = field(default_factory=dict)
    schema: Any = None

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def features(self) -> list[str] | None:
        """Names of the features; None if they have none."""
        return list(self.X.columns) if isinstance(self.X, pd.DataFrame) else None

    @property
    def encoding(self) -> dict[str, Any] | None:
        """Encoder and options that `unspur embed` noted in the file; None of other files."""
        made = _made_by_embed(self.schema)
        return {name: made.get(name) for name in ("encoder", "options")} if made else None

    def select(self, rows: Array) -> Table:
        """Some of the rows, by number or mask."""
        X = self.X.iloc[rows] if isinstance(self.X, pd.DataFrame) else self.X[rows]
        pictures = {name: values[rows] for name, values in self.pictures.items()}
        return replace(self, X=X, columns=self.columns.iloc[rows], pictures=pictures)

    def column(self, name: str) -> pd.Series:
        """One of the other columns."""
        if name in self.columns:
            return self.columns[name]
        near = get_close_matches(name, list(map(str, self.columns)), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        hint = hint if len(self.columns.columns) else " Pass labels as --labels FILE.csv, row by row."
        raise InputError(f"{self.path} has no column {name!r} (it has: {_listed(self.columns) or 'none'}).{hint}")

    def matching(self, where: Sequence[tuple[str, str]]) -> Table:
        """The rows in which every column of `where` is written as its value; "" is a missing value."""
        kept = np.ones(len(self), dtype=bool)
        for name, value in where:
            kept &= as_text(self.column(name)) == value
        return self if kept.all() else self.select(kept)

    def where(self, where: Sequence[tuple[str, str]]) -> Table:
        """The same rows; InputError if there are none."""
        found = self.matching(where)
        if not len(found):
            name, value = next((pair for pair in where if not len(self.matching([pair]))), where[-1])
            there = ", ".join(map(repr, sorted(set(as_text(self.column(name)).tolist()))[:10]))
            raise InputError(f"{self.path} has no row left where {name} is {value!r}; there are {there}.")
        return found

    def with_columns(self, columns: Mapping[str, Any], X: Any) -> Table:
        """Other rows, and more columns; InputError if the file already has one of that name."""
        if clash := [name for name in columns if name in self.columns]:
            raise InputError(f"{self.path} already has a column {clash[0]!r}. Leave it out with --ignore {clash[0]}.")
        return replace(self, X=X, columns=self.columns.assign(**columns))

    def frame(self) -> pd.DataFrame:
        """Other columns and features side by side; features without names are numbered, z0, z1."""
        X = self.X if self.features else pd.DataFrame(np.asarray(self.X)).add_prefix("z")
        if clash := [name for name in self.columns if name in X.columns]:
            raise InputError(f"{clash[0]!r} is a column and a feature of {self.path}. Leave it out with --ignore.")
        return pd.concat([self.columns.reset_index(drop=True), X.reset_index(drop=True)], axis=1)


def as_text(column: pd.Series) -> Array:
    """Values of a column as text; "" where it is missing."""
    return np.where(column.isna(), "", column.astype(str)).astype(str)


def plain(column: pd.Series) -> Array:
    """A column as a NumPy array: missing values are NaN among numbers, and None among others."""
    missing = bool(column.isna().any())
    if types.is_bool_dtype(column.dtype) or not types.is_numeric_dtype(column.dtype):
        return column.to_numpy(dtype=object, na_value=None) if missing else np.asarray(column.tolist())
    return column.to_numpy(dtype=float, na_value=np.nan) if missing else column.to_numpy()


def kind_of(path: str | Path) -> str:
    """The kind of a file by its name: ".csv", ".parquet" (a folder as well), ".npz" or ".npy"; "" if it is another."""
    name = Path(path).name.lower()
    if name.endswith(PARQUET) or Path(path).is_dir():
        return ".parquet"
    return ".csv" if name.endswith(CSV) else next((kind for kind in READABLE if name.endswith(kind)), "")


# Reading


def read_table(
    path: str | Path,
    apart: Sequence[str] = (),
    *,
    features: Sequence[str] | None = None,
    labels: str | Path | None = None,
    guess: bool = False,
) -> Table:
    """Read rows and other columns from a file, or from a folder of Parquet files.

    Parameters
    ----------
    path : of the file. An array of a .npy file is memory-mapped; all others must fit into memory.
    apart : columns that are not features.
    features : names of the features, if they are known; all other columns are then kept apart.
    labels : a CSV file with more columns, row by row; they take the place of columns of the same name.
    guess : whether only columns of numbers with a decimal point, and without gaps, are features.
    """
    path, more = Path(path), None
    if labels is not None:
        if kind_of(labels) != ".csv" and Path(labels).exists():
            raise InputError(f"{labels} is no .csv file; labels are read from a .csv file.")
        with _reading(Path(labels)):
            more = _read_csv(Path(labels)).convert_dtypes()
    given = [] if more is None else list(more)
    here = [name for name in apart if name not in given]
    with _reading(path):
        _require_memory(path)
        kind = kind_of(path)
        if kind == ".npy":
            X = np.load(path, mmap_mode="r")
            table = Table(path, X, pd.DataFrame(index=range(len(X) if X.ndim else 0)))
        elif kind == ".npz":
            table = _from_arrays(path)
        elif kind == ".csv":
            table = _from_frame(path, _read_csv(path).drop(columns=given, errors="ignore"), here, features, guess)
        else:
            from pyarrow import concat_tables

            parts = [file.read() for file in _parquet_files(path)]
            arrow = concat_tables(parts, promote_options="permissive")
            arrow = arrow.drop_columns([name for name in given if name in arrow.column_names])
            table = _from_arrow(path, arrow, here, features, guess)
    if more is not None:
        if len(more) != len(table):
            raise InputError(f"{labels} has {len(more)} rows, and {path} has {len(table)}; each row needs its labels.")
        kept = table.columns.drop(columns=given, errors="ignore")
        table = replace(table, columns=pd.concat([kept, more], axis=1))
    return _checked(table, apart)


def read_batches(
    path: str | Path, apart: Sequence[str] = (), *, features: Sequence[str] | None = None, labels: Any = None
) -> Iterator[Table]:
    """The rows of `read_table`, those of Parquet files a batch at a time."""
    path = Path(path)
    if kind_of(path) != ".parquet" or labels is not None:
        yield read_table(path, apart, features=features, labels=labels)
        return
    with _reading(path):
        from pyarrow import Table as ArrowTable

        for file in _parquet_files(path):
            for i in range(file.num_row_groups):  # all at once, they would all be in memory
                group = file.metadata.row_group(i)
                rows = max(1, BATCH_BYTES * group.num_rows // max(1, group.total_byte_size))
                for batch in file.iter_batches(rows, row_groups=[i]):
                    table = _from_arrow(path, ArrowTable.from_batches([batch]), apart, features, guess=False)
                    yield _checked(table, apart)


def column_names(path: str | Path) -> list[str]:
    """Names of the columns or arrays of a file, from its header alone."""
    path = Path(path)
    with _reading(path):
        if kind_of(path) == ".csv":
            return _header(path)
        if kind_of(path) == ".npz":
            with np.load(path) as archive:
                return list(archive.files)
        return [] if kind_of(path) == ".npy" else list(next(_parquet_files(path)).schema_arrow.names)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A context in which an error of a library becomes one sentence that names the file."""
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    if not kind_of(path):
        raise InputError(f"{path} is of an unknown kind; known are {', '.join(READABLE)}, and folders of .parquet.")
    try:
        yield
    except (InputError, PermissionError, MemoryError):
        raise
    except Exception as error:  # libraries raise errors of every kind for damaged files
        said = (brief(error) or type(error).__name__).removeprefix("Error tokenizing data. C error: ")
        if isinstance(error, UnicodeDecodeError):
            said = "it is not in UTF-8. Save it in UTF-8"
        if "allow_pickle" in said:
            said = "it holds Python objects. Save texts as np.array(values, dtype=str)"
        raise InputError(f"{path} cannot be read as {kind_of(path)}: {said}.") from error


def _require_memory(path: Path) -> None:
    """Raise InputError for a file that is larger, once it is read, than the memory that is free."""
    kind, free = kind_of(path), available_memory()
    size = 0 if kind == ".npy" else path.stat().st_size * (4 if path.suffix == ".gz" else 1)
    if kind == ".npz":
        with ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
    elif kind == ".parquet":
        about = [file.metadata for file in _parquet_files(path)]
        size = sum(one.row_group(i).total_byte_size for one in about for i in range(one.num_row_groups))
    if free is not None and 2 * size > free:  # what is read is converted once
        raise InputError(
            f"{path} takes {size / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free, of which a half can be "
            "filled. predict and apply take larger .parquet files. Fit in Python, where rows may stay on the disk:\n"
            '    X = np.load("rows.npy", mmap_mode="r")\n'
            'or in chunks:\n    X = dask.dataframe.read_parquet("rows.parquet").to_dask_array().compute_chunk_sizes()\n'
            "and then\n    JSE().fit(X, y, concept=concept)"
        )


def _parquet_files(path: Path) -> Iterator[Any]:
    """The Parquet files of a folder, in the order of their names, or the file itself."""
    require("Parquet files need", "pyarrow")
    from pyarrow import parquet

    files = sorted(file for kind in PARQUET for file in path.glob(f"*{kind}")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} is a folder without .parquet files.")
    if path.is_dir():  # of unspur embed, which notes in each part how many rows there are in all
        rows = sum(parquet.read_metadata(file).num_rows for file in files)
        wanted = _made_by_embed(parquet.read_schema(files[0])).get("rows", rows)
        if wanted != rows:
            raise InputError(f"{path} has {rows:,} of {wanted:,} rows. Give the command that embeds them again.")
    return (parquet.ParquetFile(file) for file in files)


def _made_by_embed(schema: Any) -> dict[str, Any]:
    """What a part of `unspur embed` says about itself; empty for other files."""
    return dict(json.loads((getattr(schema, "metadata", None) or {}).get(b"unspur.embed", b"{}")))


def _header(path: Path) -> list[str]:
    """The first line of a CSV file; InputError if a column has no name, or two have the same."""
    names = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    if len(names) == 1 and set(names.iloc[0]) & set(";\t|"):
        raise InputError(f"{path} has one column, {brief(names.iloc[0], 40)!r}; save it with commas between columns.")
    if (names == "").any():
        raise InputError(f"{path}: column {int((names == '').argmax()) + 1} has no name. Name it, or drop it.")
    if names.duplicated().any():
        raise InputError(f"{path} has several columns {names[names.duplicated()].iloc[0]!r}. Rename or drop them.")
    return list(names)


def _read_csv(path: Path) -> pd.DataFrame:
    """A table of text. Empty cells and NA, NaN, null and None are missing, as pandas has it."""
    _header(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more cells than names
        return pd.read_csv(path, index_col=False, low_memory=False)


def _from_frame(
    path: Path, frame: pd.DataFrame, apart: Sequence[str], features: Sequence[str] | None, guess: bool
) -> Table:
    known = features is not None
    if features is None:
        features = [name for name in frame if name not in apart]
        if guess:
            features = [name for name in features if frame[name].dtype.kind == "f" and not frame[name].isna().any()]
    if frame.empty and len(frame.columns):
        raise InputError(f"{path} has columns, but no rows.")
    for name in apart:
        Table(path, None, frame).column(name)
    if missing := [name for name in features if name not in frame]:
        raise InputError(f"{path} has no column {missing[0]!r}, a feature of the fit.")
    if not features:
        raise InputError(f"{path} has no feature columns besides {_listed(frame)}.")
    for name in features:
        if not types.is_numeric_dtype(frame[name]):
            there = frame[name].dropna()
            strange = there[pd.to_numeric(there, errors="coerce").isna()]
            value = brief(next(iter(strange if len(strange) else there), ""), 40)
            advice = (
                "The model was fitted on numbers."
                if known
                else (
                    f"If it is not a feature, pass --ignore {name}; pictures and texts become numbers by unspur embed."
                )
            )
            raise InputError(f"The column {name!r} of {path} holds {value!r}, which is not a number. {advice}")
    single = all(frame[name].dtype.kind == "f" and frame[name].dtype.itemsize < 8 for name in features)
    values = frame[list(features)].to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)
    others = frame[[name for name in frame if name not in set(features)]]
    return Table(path, pd.DataFrame(values, columns=list(features)), others.convert_dtypes())


def _from_arrow(path: Path, arrow: Any, apart: Sequence[str], features: Sequence[str] | None, guess: bool) -> Table:
    """A Parquet table: rows are its only column of lists of numbers or, without one, columns of numbers."""
    lists = [one.name for one in arrow.schema if hasattr(one.type, "value_field") and one.name not in apart]
    if len(lists) > 1:
        raise InputError(f"{path} has several columns of lists: {_listed(lists)}. Name all but one with --ignore.")
    frame = arrow.drop_columns(lists).to_pandas()
    index = [name for name in frame.index.names if name is not None]  # no feature, whatever it holds
    frame = frame.reset_index(drop=not index)
    if not lists:
        return replace(_from_frame(path, frame, [*apart, *index], features, guess), schema=arrow.schema)
    column = arrow.column(lists[0]).combine_chunks()
    values = column.flatten()
    if column.null_count or values.null_count or len(set(column.value_lengths().to_pylist())) > 1:
        raise InputError(f"{lists[0]} of {path} has missing vectors or numbers, or vectors of several lengths.")
    X = values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return Table(path, X, frame.convert_dtypes(), lists[0], schema=arrow.schema)


def _from_arrays(path: Path) -> Table:
    """A .npz file: rows are Z, or the only array of two dimensions; arrays of as many values are columns."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    wide = [name for name, array in arrays.items() if array.ndim == 2 and array.shape[1] > 1]
    wide = ["Z"] if "Z" in arrays else wide
    if len(wide) != 1:
        raise InputError(f"{path} needs an array Z, or only one of two dimensions; it has {_listed(arrays)}.")
    X = arrays.pop(wide[0])
    same = {name: array for name, array in arrays.items() if array.shape[:1] == X.shape[:1]}
    flat = {name: array.reshape(len(X)) for name, array in same.items() if array.size == len(X)}
    columns = pd.DataFrame(flat, index=range(len(X))).replace("", None).convert_dtypes()
    return Table(path, X, columns, wide[0], {name: array for name, array in same.items() if name not in flat})


def _checked(table: Table, apart: Sequence[str]) -> Table:
    """The table; InputError if it has no rows, if they are not finite numbers, or if a column is not there."""
    path, X = table.path, np.asarray(table.X)
    if X.ndim != 2 or not X.size or X.dtype.kind not in "biuf":
        raise InputError(f"{path} holds {X.dtype} of shape {X.shape}; rows are numbers of shape (n, d).")
    if table.features is not None and not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        name = table.features[column]
        raise NotFiniteError(f"Column {name!r} of {path} has no finite number in row {row + 1}. Fill it in.")
    for name in apart:
        if name not in table.pictures:
            table.column(name)
    return table


def _listed(names: Any) -> str:
    """The first twenty names, and the number of others."""
    names = list(map(str, names))
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


# Writing


@contextmanager
def writing(path: str | Path, *, overwrite: bool = False) -> Iterator[Callable[[Table], None]]:
    """A function that writes tables to a file, one below the other; the file appears at the end of the block."""
    if not str(path).lower().endswith(WRITABLE):
        raise InputError(f"{path} is of an unknown kind; {', '.join(WRITABLE)} can be written.")
    with atomic(path, overwrite=overwrite) as temporary:
        if kind_of(path) == ".parquet":
            with _parquet_writer(temporary) as write:
                yield write
            return
        parts: list[Table] = []
        yield parts.append
        X = parts[0].X if len(parts) == 1 else np.concatenate([np.asarray(part.X) for part in parts])
        if parts[0].features is not None:
            X = pd.DataFrame(X, columns=parts[0].features)
        table = replace(parts[0], X=X, columns=pd.concat([part.columns for part in parts], ignore_index=True))
        _write_whole(table, temporary, path)


def _write_whole(table: Table, path: Path, name: str | Path) -> None:
    """Write all rows at once, as the kind of the file `name`."""
    kind = kind_of(name)
    if kind == ".csv":
        table.frame().to_csv(path, index=False)
        return
    if kind == ".npy" and len(table.columns.columns):
        there = _listed(table.columns)
        raise InputError(
            f"{name} can hold no columns, and the rows have {there}. Write .npz or .csv, or --ignore them."
        )
    with path.open("wb") as file:
        if kind == ".npy":
            np.save(file, np.asarray(table.X), allow_pickle=False)
            return
        arrays = {column: plain(values) for column, values in table.columns.items()}
        arrays |= {column: as_text(table.columns[column]) for column in arrays if arrays[column].dtype == object}
        np.savez(file, allow_pickle=False, **{table.array: np.asarray(table.X), **arrays})


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[Table], None]]:
    """A function that writes tables as row groups; columns keep their types and their order."""
    require("Parquet files need", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    writers: list[Any] = []

    def write(table: Table) -> None:
        frame = table.columns.reset_index(drop=True) if table.features is None else table.frame()
        there = [] if table.schema is None else list(table.schema)
        known = {one.name: one.type for one in there if one.name in table.columns}
        schema = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
        schema = pa.schema([one.with_type(known.get(one.name, one.type)) for one in schema])
        arrow = pa.Table.from_pandas(frame, schema, preserve_index=False)
        if table.features is None:
            values = pa.array(np.ascontiguousarray(table.X).ravel())
            rows = pa.FixedSizeListArray.from_arrays(values, table.X.shape[1])
            arrow = arrow.append_column(table.array, rows)
        order = [one.name for one in there]
        arrow = arrow.select(sorted(arrow.column_names, key=lambda name: [*order, name].index(name)))
        if not writers:
            writers.append(parquet.ParquetWriter(path, arrow.schema, use_dictionary=False))
        writers[0].write_table(arrow.cast(writers[0].schema))

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()
