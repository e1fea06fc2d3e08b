"""Parquet files: read into memory, left in place with a memory budget, or cleaned piece by piece."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unspur._files import output_exists, staging_dir
from unspur._reading import first_names, index_columns, quoted, require_distinct, require_labels
from unspur._typing import Array
from unspur.embed.tables import require_memory
from unspur.exceptions import InputError, NotFiniteError, OutputExistsError
from unspur.io.table import Table, labels_inside, not_features_advice, require_known, tables_of_one_type
from unspur.removers import Remover
from unspur.rows.backends import find_files
from unspur.rows.parquet import (
    Layout,
    ParquetRows,
    batches,
    is_list,
    is_number,
    opened,
    read_groups,
    readable,
    values_of,
)
from unspur.rows.stored import NO_MEMORY_LIMIT, file_names

#: Bytes of rows that are cleaned at a time, and of the row groups they become.
PIECE_BYTES = 2**26


def read_parquet(files: Sequence[Path], labels: tuple[str, ...], ignore: tuple[str, ...]) -> Table:
    """All rows of some files in memory.

    The features are the only column of lists, and all other columns are kept; or, without lists, all columns that are
    neither labels nor ignored.
    """
    schemas, size = dict[Path, Any](), 0
    for path in files:
        with opened(path) as file, readable(path):
            schema, about = file.schema_arrow, file.metadata
        require_distinct(path, schema.names)
        require_labels(path, schema.names, labels_inside(schema.names, labels))
        size += sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        if about.num_rows:
            schemas[path] = schema
    _require_known(files, ignore)
    if not schemas:
        raise InputError(f"{file_names(files)} has no rows.")
    require_memory(file_names(files), size, "Use fewer files.")
    first, *others = parts = [_loaded(path, schema, labels, ignore) for path, schema in schemas.items()]
    for k, part in enumerate(others, start=1):
        found, wanted = ((set(one.features or ()), one.Z.shape[1], set(one.columns)) for one in (part, first))
        if found != wanted:
            names = sorted(found[0] ^ wanted[0])
            differ = f" Features that only one of them has: {quoted(names)}." if names else ""
            raise InputError(
                f"{part.path} has {part.Z.shape[1]} features and the columns {quoted(list(part.columns))}; "
                f"{first.path} has {first.Z.shape[1]} and {quoted(list(first.columns))}. All files need the "
                f"same.{differ}"
            )
        parts[k] = part.with_features_of(first.features, first.Z.shape[1])  # columns are matched by name
    if not others:
        return first
    parts = tables_of_one_type(parts, list(first.columns))
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns}
    return Table(first.path, np.concatenate([part.Z for part in parts]), first.features, columns)


def _loaded(path: Path, schema: Any, labels: Sequence[str], ignore: Sequence[str]) -> Table:
    rows = _rows([path], schema, labels, ignore, memory=NO_MEMORY_LIMIT)
    aside = {*ignore, *index_columns(schema)} if rows.layout.lists else {*rows.column_names}
    aside -= {*labels}
    columns = {name: rows.column(name) for name in rows.column_names if name not in aside}
    return Table(path, read_groups(rows.groups, rows.layout), rows.feature_names, columns)


def _rows(
    files: Sequence[Path], schema: Any, labels: Sequence[str], ignore: Sequence[str], **options: Any
) -> ParquetRows:
    named = labels_inside(schema.names, labels)
    require_labels(files[0], schema.names, named)
    return ParquetRows(files, features=feature_columns(files[0], schema, (*named, *ignore)), labels=named, **options)


def feature_columns(path: Path, schema: Any, apart: Sequence[str]) -> list[str]:
    """The only column of lists, or all columns that are neither `apart` nor an index of pandas."""
    features = [name for name in schema.names if name not in {*apart, *index_columns(schema)}]
    lists = [name for name in features if is_list(schema.field(name).type)]
    if len(lists) > 1:
        raise InputError(f"{path} has several columns of lists: {quoted(lists)}. Name all but one with --ignore.")
    features = lists or features
    text = [name for name in features if not lists and not is_number(schema.field(name).type)]
    if text:
        are = "columns {} are not numbers" if len(text) > 1 else "column {} is not of numbers"
        raise InputError(f"{path}: {are.format(quoted(text))}. {not_features_advice(text)}")
    if not features:
        raise InputError(f"{path} has no feature columns besides {first_names(schema.names)}.")
    return features


def label_like_fields(path: Path) -> list[str]:
    """Columns that do not look like features: all but floats without nulls; of a file with lists, all but the lists.

    Floats with nulls are whole numbers or labels of which some are missing.
    """
    schema = parquet_schema(path)
    from pyarrow import types

    fields = [field for field in schema if field.name not in index_columns(schema)]
    lists, missing = any(is_list(field.type) for field in fields), _columns_with_nulls(path)
    return [
        field.name
        for field in fields
        if not is_list(field.type) and (lists or not types.is_floating(field.type) or field.name in missing)
    ]


def _columns_with_nulls(path: Path) -> set[str]:
    """Columns in which some row group has nulls, as far as the file says."""
    found = set()
    with opened(path) as file, readable(path):
        about = file.metadata
        for i, j in product(range(about.num_row_groups), range(about.num_columns)):
            column = about.row_group(i).column(j)
            if column.statistics is not None and column.statistics.null_count:
                found.add(column.path_in_schema)
    return found


def parquet_schema(path: Path) -> Any:
    """The schema of a file; InputError if two columns have the same name."""
    with opened(path) as file, readable(path):
        schema = file.schema_arrow
    require_distinct(path, schema.names)
    return schema


def _require_known(files: Sequence[Path], ignore: Sequence[str]) -> None:
    """Raise InputError if none of the files has a column to ignore."""
    if ignore:
        names = dict.fromkeys(name for path in files for name in parquet_schema(path).names)
        require_known(files[0], list(names), tuple(ignore))


def clean_parquet(
    remover: Remover,
    paths: Sequence[str | Path],
    output: str | Path,
    labels: Sequence[str] = (),
    ignore: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> int:
    """Write each file to the folder `output` with a removal applied to its features; return the number of rows.

    Files below a folder that was named keep their relative paths. The output appears when all files are written; files
    of other names in it stay.
    """
    _refuse_inside(Path(output), paths)
    places = _places(paths)
    files = list(places.values())
    features = _features(remover, files, labels, ignore)
    rows = ParquetRows(files, features=features, labels=labels, memory=NO_MEMORY_LIMIT)
    if rows.shape[1] != remover.n_features_in_:
        raise InputError(
            f"{files[0]} has {rows.shape[1]} features; the removal was fitted on {remover.n_features_in_}."
        )
    with _folder(Path(output), files, overwrite) as folder:
        for place, path in places.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            _clean(remover, rows, path, target, ignore)
    return rows.shape[0]


def _refuse_inside(output: Path, paths: Sequence[str | Path]) -> None:
    """Refuse an output inside a folder of rows: it would be read with them the next time."""
    for name in paths:
        for folder in _folders(str(name)):
            if folder.resolve() in output.resolve().parents:
                raise InputError(f"--output {output} lies in the folder of the rows, {folder}; choose another place.")


def _folders(name: str) -> list[Path]:
    """The folders that a name or a pattern reads as a whole."""
    if Path(name).is_dir():
        return [Path(name)]
    before, deep, _ = name.partition("**")
    return [Path(match) for match in glob.glob((before or ".") if deep else name) if Path(match).is_dir()]


def _places(paths: Sequence[str | Path]) -> dict[Path, Path]:
    """The file to be written at each relative path of the output."""
    places: dict[Path, Path] = {}
    for name in paths:
        for path in find_files(name):
            place = path.relative_to(name) if Path(name).is_dir() else Path(path.name)
            if place in places:
                raise InputError(f"{path} and {places[place]} would both be written as {place}. Clean one at a time.")
            places[place] = path
    return places


def _features(remover: Remover, files: list[Path], labels: Sequence[str], ignore: Sequence[str]) -> list[str]:
    """The feature columns of a removal, by name if it has names."""
    schema = parquet_schema(files[0])
    require_labels(files[0], schema.names, labels)
    _require_known(files, ignore)
    names = getattr(remover, "feature_names_in_", None)
    if names is None:
        return feature_columns(files[0], schema, (*labels, *ignore))
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise InputError(f"{files[0]} lacks the columns {quoted(missing)} that the removal was fitted on.")
    return list(names)


@contextmanager
def _folder(output: Path, inputs: list[Path], overwrite: bool) -> Iterator[Path]:
    """A temporary folder beside `output`, whose files are moved into it at the end of the block."""
    if output.exists() and not output.is_dir():
        raise OutputExistsError(f"{output} is a file; name a folder.")
    if any(output.resolve() in path.resolve().parents for path in inputs):
        raise InputError(f"--output {output} holds the rows themselves; choose another folder.")
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise output_exists(output)
    if not output.resolve().parent.is_dir():
        raise FileNotFoundError(f"The folder {output.resolve().parent} does not exist; create it first.")
    with staging_dir(output.resolve()) as temporary:
        (new := temporary / "new").mkdir()
        mode = new.stat().st_mode & 0o777  # of new folders; the umask could only be read by changing it
        new.rmdir()
        yield temporary
        temporary.chmod(output.stat().st_mode & 0o777 if output.exists() else mode)
        try:
            temporary.replace(output)
            return
        except OSError:  # a link, a disk of its own, a system that replaces no folders, one that has files
            if not output.exists():
                raise
        if any(output.iterdir()) and not overwrite:  # of another process, meanwhile
            raise output_exists(output)
        for path in [path for path in temporary.rglob("*") if path.is_file()]:
            target = output / path.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


def _clean(remover: Remover, rows: ParquetRows, path: Path, target: Path, ignore: Sequence[str]) -> None:
    """Clean one file piece by piece; each piece becomes a row group."""
    import pyarrow as pa
    from pyarrow import parquet

    layout = rows.layout
    step = max(1, PIECE_BYTES // (layout.width * layout.dtype.itemsize))
    with opened(path) as file:
        before = file.schema_arrow
        kept = [name for name in before.names if name not in ignore]
        # What pandas noted about columns does not hold if some are left out.
        schema = pa.schema([_written(before.field(name), layout) for name in kept], None if ignore else before.metadata)
        with parquet.ParquetWriter(target, schema, write_page_checksum=True) as writer:
            for group in rows.groups:
                if group.path != path.absolute():
                    continue
                for batch in batches(file, group, kept, step):
                    z = values_of(batch, layout, group)
                    if not np.isfinite(z.sum()) and not np.isfinite(z).all():
                        raise NotFiniteError(
                            f"{group} has {int(np.sum(~np.isfinite(z)))} values that are NaN or infinite. Drop those "
                            "rows or fill the values in."
                        )
                    clean = _arrays(layout, remover.removal_(z), schema)
                    columns = [clean[name] if name in clean else batch.column(name) for name in kept]
                    writer.write_table(pa.table(columns, schema=schema), row_group_size=step)


def _written(field: Any, layout: Layout) -> Any:
    """A field of the output: integer features become float64, everything else keeps its type."""
    import pyarrow as pa

    if field.name not in layout.columns:
        return field
    kind = field.type.value_type if layout.lists else field.type
    kind = kind if pa.types.is_floating(kind) else pa.float64()
    return field.with_type(pa.list_(pa.field("item", kind), layout.width) if layout.lists else kind)


def _arrays(layout: Layout, z: Array, schema: Any) -> dict[str, Any]:
    """Feature columns by name from rows (m, d)."""
    import pyarrow as pa

    if not layout.lists:
        return {
            name: pa.array(np.ascontiguousarray(z[:, j])).cast(schema.field(name).type)
            for j, name in enumerate(layout.columns)
        }
    name = layout.columns[0]
    kind = schema.field(name).type
    values = pa.array(np.ascontiguousarray(z).reshape(-1)).cast(kind.value_type)
    return {name: pa.FixedSizeListArray.from_arrays(values, type=kind)}
