"""What examples are read from: text tables, Parquet and Arrow files, saved data sets, and folders of class folders.

::

    .csv .tsv .csv.gz ─────────────┐
    .parquet .arrow ───────────────┤
    a data set of Hugging Face ────┼─ read_example_table ──▶ ExampleTable ──▶ TableExamples
    root/<class>/*.jpg, root/*.jpg ┘

A column is a list of texts, as in a .csv file. Pictures inside of Parquet and Arrow files stay there until they are
asked for. Data sets that the library `datasets` saved are Arrow files with a description, so pyarrow alone reads them.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from unspur._arrays import is_missing
from unspur._extras import require
from unspur._reading import (
    PARQUET,
    TEXT_TABLES,
    csv_table,
    index_columns,
    parse_json,
    quoted,
    read_json,
    require_distinct,
    require_kinds,
    suffix_of,
)
from unspur._resources import available_memory
from unspur._text import brief
from unspur.exceptions import InputError
from unspur.rows.backends import parquet_below
from unspur.rows.parquet import RowGroup, batches, opened, readable
from unspur.rows.stored import format_size

#: Columns that are not labels.
IMAGE, TEXT, PAIR, ID = "image", "text", "text_pair", "id"
#: How names of files end that hold examples.
EXAMPLE_FILES = (*TEXT_TABLES, *PARQUET, ".arrow")
#: How names of pictures end.
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
#: Names of folders and files that are parts of a data set and no classes.
SPLIT_NAMES = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
#: Files of a data set that `datasets` saved: of several splits, and of one.
DATASET_DICT, DATASET = "dataset_dict.json", "state.json"
#: Names such as train-00000-of-00003.parquet, by which the hub tells splits apart.
_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}(-\w+)?\.(parquet|pq)")
#: Rows of a Parquet file that are decoded in one go.
ROWS_AT_ONCE = 1024
#: Bytes that a text takes in a list, at least.
TEXT_BYTES = 64


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """Columns by name, the files that they were read from, and what a reader should know."""

    columns: dict[str, Sequence[Any]]
    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def holds_examples(path: str | Path) -> bool:
    """Whether a path could be read by `read_example_table`, by its name or as a folder."""
    return suffix_of(path) in EXAMPLE_FILES or Path(path).is_dir()


def read_example_table(path: Path, *, allow_outside: bool = False) -> ExampleTable:
    """Columns of a file, or of a folder with Parquet files, a saved data set or class folders.

    With `allow_outside`, pictures of class folders may be links to files elsewhere.
    """
    if path.is_dir():
        return _read_folder(path, allow_outside=allow_outside)
    kind = suffix_of(path)
    if kind not in EXAMPLE_FILES:
        raise InputError(
            f"{path} is not a table of examples; supported endings are {', '.join(EXAMPLE_FILES)}. Pass one of these, "
            "a folder of class folders, or the name of a dataset."
        )
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if kind in TEXT_TABLES:
        return ExampleTable(_text_columns(path), (path,))
    return _arrow_table(path, list((_row_groups if kind in PARQUET else _arrow_batches)(path)))


def _read_folder(folder: Path, *, allow_outside: bool) -> ExampleTable:
    from unspur_paper.embedding.store import is_store  # which needs the labels of examples

    if is_store(folder):
        raise InputError(f"{folder} is an embedding store already: its examples have been embedded.")
    if (folder / DATASET_DICT).is_file() or (folder / DATASET).is_file():
        return _arrow_table(folder, list(_saved_dataset(folder)))
    files = sorted(parquet_below(folder))
    if not files:
        return _class_folders(folder, allow_outside=allow_outside)
    splits = {file: _split_of(file) for file in files}
    named = [file for file in files if splits[file].lower() in SPLIT_NAMES]
    if named and len(named) < len(files) and not all(splits.values()):
        other = next(file for file in files if not splits[file])
        raise InputError(
            f"{folder} has {named[0].name}, a part of a data set, and {other.name}: which part is that? Give one of "
            "the files, or call them train.parquet, validation.parquet and test.parquet."
        )
    parts = [part for file in files for part in _row_groups(file)]
    if all(splits.values()):
        parts = [part._replace(split=splits[part.file]) for part in parts]
    return _arrow_table(folder, parts)


def _split_of(file: Path) -> str:
    """The part of a data set that a file is by its name: train-00000-of-00003.parquet, or train.parquet; or ""."""
    if shard := _SHARD.fullmatch(file.name):
        return shard[1]
    return file.stem if file.stem.lower() in SPLIT_NAMES else ""


# Text tables


def _text_columns(table: Path) -> dict[str, Sequence[Any]]:
    """Columns of a table by name."""
    with csv_table(table) as (names, lines):
        require_distinct(table, names)
        columns = list(zip(*lines, strict=True))
    if not columns:
        raise InputError(f"{table} has no rows below a header.")
    return {name: list(fields) for name, fields in zip(names, columns, strict=True)}


# Parquet and Arrow


class _Part(NamedTuple):
    """Some rows of a file: a row group of Parquet, or all rows of an Arrow file, which is not read but mapped."""

    file: Path
    schema: Any
    rows: int
    #: Bytes of memory that reading all columns takes.
    size: int
    #: Names of columns -> a pyarrow.Table.
    read: Callable[[list[str]], Any]
    split: str = ""


class StoredPictures(Sequence[bytes]):
    """Pictures in a column of Parquet or Arrow files, as the bytes of their files; thread-safe.

    At most two parts are in memory at a time, because threads that load examples may be at the end of one part and at
    the beginning of the next.
    """

    def __init__(self, parts: Sequence[_Part], column: str):
        self._parts, self._column = parts, column
        self._ends = list(accumulate(part.rows for part in parts))
        self._recent: dict[int, Any] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        """The bytes of one picture."""
        if isinstance(index, slice):
            return [self[number] for number in range(len(self))[index]]
        index = range(len(self))[index]
        at = bisect_right(self._ends, index)
        part = self._parts[at]
        with self._lock:
            if at not in self._recent:
                if len(self._recent) > 1:
                    del self._recent[next(iter(self._recent))]
                with readable(part.file, part.file.suffix):
                    self._recent[at] = part.read([self._column])[self._column]
            column = self._recent[at]
        value = column[index - self._ends[at] + part.rows].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not content:
            raise InputError(
                f"{part.file}: row {index + 1} has no picture in the column {self._column!r}, or only its path. Write "
                "the data set with the pictures in it: `datasets` does so in save_to_disk, and does not in to_parquet."
            )
        return bytes(content)


def _row_groups(path: Path) -> Iterator[_Part]:
    def read(group: RowGroup, names: list[str]) -> Any:
        import pyarrow as pa

        with opened(path) as file:  # anew each time: a data set may have more files than can be open
            return pa.Table.from_batches(list(batches(file, group, names, ROWS_AT_ONCE)))

    with opened(path) as file, readable(path):
        about, schema = file.metadata, file.schema_arrow
        for number in range(about.num_row_groups):
            inside = about.row_group(number)
            group = RowGroup(path, number, inside.num_rows, 0)
            yield _Part(path, schema, group.rows, inside.total_byte_size, partial(read, group))


def _arrow_batches(path: Path) -> Iterator[_Part]:
    require("Data sets of Hugging Face need", "pyarrow")
    import pyarrow as pa

    with (
        readable(path, "Arrow"),
        pa.memory_map(str(path)) as mapped,
    ):  # what was read keeps the map, without an open file
        try:
            table = pa.ipc.open_stream(mapped).read_all()
        except pa.ArrowInvalid:  # the other of the two formats
            mapped.seek(0)
            table = pa.ipc.open_file(mapped).read_all()
        table.validate(full=True)  # offsets that lead out of the file would crash the process
    yield _Part(path, table.schema, len(table), 0, table.select)


def _saved_dataset(folder: Path) -> Iterator[_Part]:
    """Parts of a `Dataset` or `DatasetDict` that save_to_disk wrote."""
    try:
        splits = [""]
        if (folder / DATASET_DICT).is_file():
            splits = read_json(folder / DATASET_DICT, {"splits": [str]})["splits"]
        for split in splits:
            place = folder / Path(split).name
            state = read_json(place / DATASET, {"_data_files": [{"filename": str}]})
            if state.get("_indices_data_files"):
                raise InputError(
                    f"{place} holds a selection of rows as an old version of `datasets` wrote it. Load it and save it "
                    "again."
                )
            for file in state["_data_files"]:
                for part in _arrow_batches(place / Path(file["filename"]).name):
                    yield part._replace(split=split)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder} is not a complete Hugging Face dataset: {brief(error)}.") from error


def _arrow_table(path: Path, parts: list[_Part]) -> ExampleTable:
    """Columns of parts that all have the same."""
    parts = [part for part in parts if part.rows]
    if not parts:
        raise InputError(f"{path} has no rows.")
    schema = parts[0].schema
    odd = next((part for part in parts if part.schema.names != schema.names), None)
    if odd is not None:
        raise InputError(
            f"{odd.file} has the columns {quoted(odd.schema.names)}, and {parts[0].file} {quoted(schema.names)}. Give "
            "files of one data set, or one file."
        )
    require_distinct(parts[0].file, schema.names)
    features = {part.file: _features(part.schema) for part in parts}
    index = index_columns(schema)
    kinds = {name: _common_kind(name, parts, features) for name in schema.names if name not in index}
    notes: list[str] = []
    pictures = _picture_column(schema, features[parts[0].file], notes)
    stored = pictures is not None and kinds.get(pictures) != _TEXTS
    labels = [name for name, kind in kinds.items() if kind != _OTHER and not (stored and name == pictures)]
    if left_out := [name for name in kinds if name not in (pictures, *labels)]:
        notes.append(f"{quoted(left_out)} of {path} left out: neither texts nor numbers.")
    for name in (TEXT, PAIR):
        if name in kinds and kinds[name] != _TEXTS:
            raise InputError(f"{path}: the column {name!r} holds {schema.field(name).type}, and no texts.")
    rows = sum(part.rows for part in parts)
    require_memory(path, rows * len(labels) * TEXT_BYTES, "Embed it in parts.")
    columns: dict[str, Sequence[Any]] = {name: [] for name in labels}
    for part in parts:
        with readable(part.file, part.file.suffix):
            read = part.read(labels)
            require_memory(path, read.nbytes, "Embed it in parts.")
        for name in labels:
            texts = _as_texts(read[name], features[part.file].get(name, {}), by_value=kinds[name] == _MIXED_NUMBERS)
            columns[name] += texts  # type: ignore[operator]
    if pictures is not None:
        if stored:
            largest = max(parts, key=lambda part: part.size)
            require_memory(largest.file, 2 * largest.size, "Write smaller row groups, such as row_group_size=100.")
            columns[pictures] = StoredPictures(parts, pictures)
        columns[IMAGE] = columns.pop(pictures)
    if any(part.split for part in parts) and "split" not in columns:
        columns["split"] = [part.split for part in parts for _ in range(part.rows)]
    return ExampleTable(columns, tuple(dict.fromkeys(part.file for part in parts)), tuple(notes))


def require_memory(what: Any, size: int, advice: str, largest: str = "") -> None:
    """Raise InputError if something would take more than half of the free memory, before it is read."""
    free = available_memory()
    if free is not None and size > free / 2:
        raise InputError(
            f"{what} would take {format_size(size)} of the {format_size(free)} of memory that are free{largest}. "
            f"{advice}"
        )


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What `datasets` notes of the columns of a file: their kind, and the names of classes."""
    try:
        note = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        require_kinds(note, {"info": {"features": dict}})
    except ValueError:
        return {}
    return {name: kind for name, kind in note["info"]["features"].items() if isinstance(kind, dict)}


def _picture_column(schema: Any, features: Mapping[str, Mapping[str, Any]], notes: list[str]) -> str | None:
    """The column of pictures: `image`, or the only one that `datasets` calls a picture, whatever its name."""
    if IMAGE in schema.names:
        return IMAGE
    named = [name for name in schema.names if features.get(name, {}).get("_type") == "Image"]
    if len(named) != 1 or TEXT in schema.names:
        return None
    notes.append(f"Its pictures are those of the column {named[0]!r}.")
    return str(named[0])


#: Kinds of columns. Dates and times are of the kind that Arrow calls them.
_TEXTS, _NUMBERS, _MIXED_NUMBERS, _MISSING, _OTHER = "texts", "numbers", "numbers of several types", "nothing", "other"


def _common_kind(name: str, parts: list[_Part], features: Mapping[Path, Mapping[str, Mapping[str, Any]]]) -> str:
    """The kind of a column in all parts; InputError if values that are the same would not be called the same."""
    first: dict[str, _Part] = {}
    for part in parts:
        first.setdefault(_kind(part.schema.field(name).type, features[part.file].get(name, {})), part)
    first.pop(_MISSING, None)
    if len(first) > 1:
        (kind, part), (other, odd), *_ = first.items()
        raise InputError(
            f"The column {name!r} holds {odd.schema.field(name).type} ({other}) in {odd.file}, and "
            f"{part.schema.field(name).type} ({kind}) in {part.file}. Write it with the same type in both, or leave it "
            "out of both."
        )
    kind = next(iter(first), _MISSING)
    types = {str(part.schema.field(name).type) for part in parts} - {"null"}
    return _MIXED_NUMBERS if kind == _NUMBERS and len(types) > 1 else kind


def _kind(arrow_type: Any, feature: Mapping[str, Any]) -> str:
    """What a column holds; classes with names are texts."""
    from pyarrow import types

    if _class_names(arrow_type, feature) is not None:
        return _TEXTS
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    kinds = {
        _TEXTS: (types.is_string, types.is_large_string, types.is_string_view),
        _NUMBERS: (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        str(arrow_type): (types.is_temporal,),
        _MISSING: (types.is_null,),
    }
    return next((kind for kind, tests in kinds.items() if any(test(arrow_type) for test in tests)), _OTHER)


def _class_names(arrow_type: Any, feature: Mapping[str, Any]) -> list[Any] | None:
    """Names of the classes 0, 1, … of a column, or None."""
    from pyarrow import types

    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    return names if isinstance(names, list) and types.is_integer(arrow_type) else None


def _as_texts(column: Any, feature: Mapping[str, Any], *, by_value: bool = False) -> list[str]:
    """Values as a .csv file would have them, "" where one is missing; of classes their names.

    With `by_value`, True, 1 and 1.0 are the same.
    """
    from pyarrow import string, types

    if types.is_temporal(column.type):
        column = column.cast(string())
    values = column.to_pylist()
    if (names := _class_names(column.type, feature)) is not None:
        known = {code: str(name) for code, name in enumerate(names)}
        values = [known.get(value, None if value in (None, -1) else value) for value in values]
    elif by_value:
        values = [None if value is None else int(value) if value % 1 == 0 else float(value) for value in values]
    return ["" if is_missing(value) else str(value) for value in values]


# Folders of class folders


def _class_folders(root: Path, *, allow_outside: bool) -> ExampleTable:
    """Pictures of ``root/<class>/…``, ``root/<split>/<class>/…`` or ``root/…`` in the order of their names."""
    names, notes = _pictures_below(root, allow_outside=allow_outside)
    if not names:
        raise InputError(
            f"{root} holds no pictures, no Parquet files and no data set. Pictures lie in a folder for each class, "
            f"such as {root / 'gull' / '1.jpg'}. {' '.join(notes)}".rstrip()
        )
    parts = [Path(name).parts for name in names]
    tops = sorted({part[0] for part in parts if len(part) > 1})
    splits = [top for top in tops if top.lower() in SPLIT_NAMES]
    if splits and splits != tops:
        other = next(top for top in tops if top not in splits)
        raise InputError(
            f"{root} has the folders {splits[0]!r} and {other!r}: are they parts of a data set, or classes? Name one "
            "of its folders, or put all classes into train, validation and test."
        )
    if not tops:
        notes.append("They lie in no class folders, so they have no labels: they can be predicted, but not fitted on.")
        return ExampleTable({IMAGE: names}, (), tuple(notes))
    level = 1 if splits else 0
    loose = [name for name, part in zip(names, parts, strict=True) if len(part) < level + 2]
    if loose:
        raise InputError(
            f"{len(loose)} of {len(names)} pictures of {root} lie in no class folder, such as "
            f"{brief(loose[0], 80)!r}. Put each into the folder of its class."
        )
    columns: dict[str, Sequence[Any]] = {IMAGE: names, "class": [part[level] for part in parts]}
    if all(len(part) > level + 2 for part in parts):
        columns["subfolder"] = [part[level + 1] for part in parts]
    if splits:
        columns["split"] = [part[0] for part in parts]
    if len(set(columns["class"])) == 1:
        notes.append(f"There is only one class, {columns['class'][0]!r}.")
    return ExampleTable(columns, (), tuple(notes))


def _pictures_below(root: Path, *, allow_outside: bool) -> tuple[list[str], list[str]]:
    """Paths of pictures relative to a folder, sorted, and notes about what was left out. Links are confined."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from error

    place, names, left_out = root.resolve(), list[str](), defaultdict[str, list[str]](list)
    for folder, folders, files in os.walk(root, onerror=refuse):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (here / name).is_symlink():
                left_out["linked folders were not entered"].append(str(here / name))
        for name in sorted(name for name in files if not name.startswith(".")):
            path = here / name
            relative = path.relative_to(root).as_posix()
            if path.suffix.lower() not in PICTURE_SUFFIXES or not path.is_file() or not relative.isprintable():
                left_out["files that are not images were skipped"].append(str(path))
            elif path.is_symlink() and not allow_outside and not path.resolve().is_relative_to(place):
                note = "links that lead to files elsewhere were left out (--allow-outside reads them)"
                left_out[note].append(str(path))
            else:
                names.append(relative)
        if not folders and not files:
            left_out["folders hold nothing"].append(folder)
    notes = [f"{len(found)} {what}, such as {brief(found[0], 80)}." for what, found in left_out.items()]
    return sorted(names), notes
