"""Rows with their labels, read from any kind of file, and warnings about their columns."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from unspur import _reading
from unspur._arrays import is_missing
from unspur._reading import did_you_mean, first_names, quoted
from unspur._text import brief
from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError
from unspur.removers import Remover
from unspur.rows.backends import ARRAY_READERS
from unspur.selection import column_variances

#: Fewest rows for a warning about the order of their values.
MIN_ROWS = 10
#: A column of this many times the median variance dominates the others.
DOMINANT_VARIANCE = 1e4
#: Columns that warnings name one by one.
MAX_COLUMNS_NAMED = 3
#: A whole number as text: 0, -3 or 2.0, and not 01, which may be a name.
WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d{0,17})(\.0+)?")
#: A date with a time as text: day, minute, second, fraction of a second, and zone.
ISO_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows Z with the names of their features (None for arrays) and the other columns."""

    path: Path
    Z: Array
    features: list[str] | None
    columns: dict[str, Array]
    #: Columns as they are in the file, where `columns` has them decoded.
    undecoded: dict[str, Array] = field(default_factory=dict)
    #: Indices of these rows in the file, increasing; None for all rows.
    kept: IntArray | None = None
    #: Number of rows of the file, where these are some of them.
    file_rows: int | None = None
    #: Name of the array of rows in a .npz file.
    array: str = "Z"

    def label(self, name: str) -> Array:
        """A label: a column or array of this file, or a one-dimensional ``.npy`` file."""
        if name in self.columns:
            return self.columns[name]
        if name.endswith(".npy") and Path(name).is_file():
            column = as_text(load_npy(Path(name), "labels"))
            rows = len(self.Z) if self.file_rows is None else self.file_rows
            if column.shape[:1] != (rows,):
                given = len(column) if column.ndim else 1
                raise InputError(f"{name} has {given} labels for the {rows} rows of {self.path}. Each row needs one.")
            return column if self.kept is None else column[self.kept]
        kind = self.path.suffix.lower()
        what = "array" if kind == ".npz" else "column"
        hint = did_you_mean(name, self.columns)
        if kind in ARRAY_READERS:
            hint = f" Labels of a {kind} file are .npy files{' themselves' if kind == '.npy' else ''}."
        raise InputError(f"{self.path} has no {what} {name!r} (it has: {first_names(self.columns) or 'none'}).{hint}")

    def where(self, name: str, value: str) -> Table:
        """The rows whose label `name` is written as `value`; "" selects rows without the label."""
        column = self.label(name)
        if column.shape != (len(self.Z),):
            raise InputError(f"{name} of {self.path} has shape {column.shape}; {len(self.Z)} values are needed.")
        chosen = np.flatnonzero(_written_as(column, value))
        if not len(chosen):
            there = sorted(set(as_strings(column)))
            more = f", … ({len(there)} values)" if len(there) > 10 else ""
            raise InputError(
                f"{self.path} has no rows left where {name} is {value!r}; what there is: "
                f"{', '.join(map(repr, there[:10]))}{more}."
            )
        return self.select(chosen)

    def select(self, chosen: IntArray) -> Table:
        """Some of the rows, by index and in their order."""
        n = len(self.Z)
        if len(chosen) == n:
            return self
        columns, undecoded = (
            {key: values[chosen] if values.shape[:1] == (n,) else values for key, values in given.items()}
            for given in (self.columns, self.undecoded)
        )
        kept = chosen if self.kept is None else self.kept[chosen]
        file_rows = n if self.file_rows is None else self.file_rows
        together = chosen[-1] - chosen[0] + 1 == len(chosen)  # consecutive rows need no copy
        z = self.Z[chosen[0] : chosen[-1] + 1] if together else self.Z[chosen]
        return replace(self, Z=z, columns=columns, undecoded=undecoded, kept=kept, file_rows=file_rows)

    def as_in_file(self) -> Table:
        """The table with all columns as they are in the file."""
        return replace(self, columns={**self.columns, **self.undecoded}, undecoded={})

    def with_features_of(self, names: Sequence[str] | None, n_features: int) -> Table:
        """The table with the features of a removal in its order, matched by name if both have names."""
        if names is not None and self.features is not None:
            missing = [name for name in names if name not in self.features]
            if missing:
                columns = "column" if len(missing) == 1 else "columns"
                raise InputError(f"{self.path} lacks the {columns} {quoted(missing)} that the removal was fitted on.")
            unknown = [name for name in self.features if name not in set(names)]
            if unknown:
                columns = "a column" if len(unknown) == 1 else "columns"
                raise InputError(
                    f"{self.path} has {columns} {quoted(unknown)} that the removal does not know. Name labels with "
                    "--label, and other columns with --ignore."
                )
            order = [self.features.index(name) for name in names]
            z = self.Z if order == list(range(len(order))) else self.Z[:, order]
            return replace(self, Z=z, features=list(names))
        if self.Z.shape[1] != n_features:
            raise InputError(f"{self.path} has {self.Z.shape[1]} features; the removal was fitted on {n_features}.")
        return self


def _written_as(column: Array, value: str) -> BoolArray:
    """Mask of values that are written as `value` or, for numbers, equal it."""
    same = np.array([word == value for word in as_strings(column)], dtype=bool)
    if same.any() or column.dtype.kind not in "iufM":
        return same
    try:
        return np.asarray(column == (np.datetime64(value) if column.dtype.kind == "M" else float(value)), dtype=bool)
    except ValueError:
        return same


def as_text(column: Array) -> Array:
    """A column of bytes, or of NumPy's own strings, as one of text; others as they are."""
    if column.dtype.kind == "S":
        return np.asarray(np.char.decode(column, "utf-8", "replace"))
    if column.dtype.kind == "T":
        return column.astype(str)
    if column.dtype.kind == "O" and any(isinstance(value, bytes) for value in column.ravel()):
        decoded = [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in column.ravel()]
        return np.array(decoded, dtype=object).reshape(column.shape)
    return column


def tables_of_one_type(tables: Sequence[Table], names: Sequence[str]) -> list[Table]:
    """The tables with each of the columns `names` in one type (`columns_of_one_type`); not all tables need have it."""
    found = [dict(table.columns) for table in tables]
    for name in names:
        having = [columns for columns in found if name in columns]
        for columns, column in zip(having, columns_of_one_type([one[name] for one in having]), strict=True):
            columns[name] = column
    return [replace(table, columns=columns) for table, columns in zip(tables, found, strict=True)]


def columns_of_one_type(columns: Sequence[Array]) -> list[Array]:
    """Parts of one label column; if text, numbers and dates meet, all become text. Missing values stay missing.

    Beside numbers that were read as text, True is 1 and False is 0.
    """
    kinds = [_kind(column) for column in columns]
    if len(set(kinds) - {""}) < 2:
        return list(columns)
    name = time_name if {"dates", "times"} & set(kinds) else class_name
    texts = {value for column, kind in zip(columns, kinds, strict=True) if kind == "text" for value in column.tolist()}
    if name is class_name and all(WHOLE_NUMBER.fullmatch(str(text)) for text in texts if not is_missing(text)):
        name = _number_name
    return [_as_names(column, name) if kind else column for column, kind in zip(columns, kinds, strict=True)]


def _kind(column: Array) -> str:
    """What a label column holds: "text" (also with numbers), "numbers", "dates", NumPy's "times", or "" (nothing)."""
    if column.dtype.kind == "M":
        return "times"
    types = {type(value) for value in column.tolist() if not is_missing(value)} if column.ndim == 1 else set()
    if types and all(issubclass(one, date) for one in types):  # a datetime is a date
        return "dates"
    if not types or not all(issubclass(one, str | int | float | Decimal | np.generic) for one in types):
        return ""
    return "text" if any(issubclass(one, str) for one in types) else "numbers"


def _as_names(column: Array, name: Callable[[Any], str]) -> Array:
    """A column as text by a function of its values; missing values are None."""
    values = [word or None for word in as_strings(column)] if column.dtype.kind == "M" else column.tolist()
    names = {value: None if is_missing(value) else name(value) for value in set(values)}
    found = np.full(len(values), None, dtype=object)
    found[:] = [names[value] for value in values]
    return found


def times_as_text(column: Array) -> Array:
    """A column of NumPy's times or durations as text; others as they are."""
    if column.dtype.kind == "m":
        column = column.astype("m8[us]")
        column = np.array([None if np.isnat(value) else str(value.item()) for value in column], dtype=object)
    return _as_names(column, time_name) if column.dtype.kind == "M" else column


def class_name(value: Any) -> str:
    """A class as text. Whole numbers have no decimals, also if they were read as text."""
    word = str(value)
    return str(int(word.partition(".")[0])) if WHOLE_NUMBER.fullmatch(word) else word


def _number_name(value: Any) -> str:
    """A class as text, where True is 1 and False is 0."""
    return class_name(int(value) if isinstance(value, bool | np.bool_) else value)


def time_name(value: Any) -> str:
    """A class as text, where all ways to write a time in ISO 8601 are one; midnight without a zone is the date."""
    found = ISO_TIME.fullmatch(str(value))
    if found is None:
        return class_name(value)
    day, minute, second, fraction, zone = found.groups(default="")
    clock = f"{minute}{second or ':00'}{fraction.rstrip('0').rstrip('.')}{zone}"
    return day if clock == "00:00:00" else f"{day} {clock}"


def as_strings(column: Array) -> list[str]:
    """Values as text, missing ones as ""; dates in ISO 8601 with no more digits than needed."""
    if column.dtype.kind == "M":
        for unit in ("D", "s", "ms", "us"):
            if np.array_equal(coarse := column.astype(f"M8[{unit}]"), column, equal_nan=True):
                column = coarse
                break
        return ["" if word == "NaT" else word for word in np.datetime_as_string(column).tolist()]
    if column.dtype.kind == "m":
        return ["" if np.isnat(value) else str(value) for value in column]
    return ["" if is_missing(value) else str(value) for value in column.tolist()]


def apply_removal(remover: Remover, table: Table) -> Table:
    """The table with a removal applied to its rows."""
    names = getattr(remover, "feature_names_in_", None)
    table = table.with_features_of(names, remover.n_features_in_)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were matched above
        return replace(table, Z=remover._cleaned(table.Z))


def load_npy(path: Path, what: str, *, mapped: bool = False) -> Array:
    """The array of a ``.npy`` file; InputError if it is damaged."""
    try:
        return _reading.load_npy(path, mapped=mapped)
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as a .npy file of {what}: {brief(error)}.") from error


def name_of_rows_array(path: Path, arrays: Mapping[str, Any], labels: Sequence[str]) -> str:
    """The name of the array that holds the rows: Z, or the only one with two dimensions."""
    wide = [name for name, array in arrays.items() if len(array.shape) == 2 and name not in labels]
    if len(wide) > 1:  # one column beside rows is a label
        wide = [name for name in wide if arrays[name].shape[1] > 1 or name == "Z"] or wide
    if "Z" not in wide and len(wide) != 1:
        found = ", ".join(wide) or "none"
        raise InputError(f"{path} needs one two-dimensional array, or one named Z; found: {found}.")
    return "Z" if "Z" in wide else wide[0]


def labels_inside(names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Labels that a file with the columns `names` must have: all that are not .npy files themselves."""
    return [name for name in labels if name in names or not name.endswith(".npy")]


def require_known(path: Path, names: list[str], ignore: tuple[str, ...]) -> None:
    """Raise InputError if a column to ignore does not exist."""
    unknown = [name for name in ignore if name not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names)
        raise InputError(f"{path} has no {quoted(unknown)} to ignore (it has: {first_names(names)}).{hint}")


def not_features_advice(names: Sequence[str]) -> str:
    """Advice for columns that were taken for features."""
    options = " ".join(f"--ignore {shlex.quote(name)}" for name in names[:5]) + (" …" if len(names) > 5 else "")
    seen = "they are not features" if len(names) > 1 else "it is not a feature"
    return f"If {seen}: {options}. Columns named as labels or with --where are not features either."


def suspicious_feature_notes(table: Table) -> list[str]:
    """Warnings about named columns in memory that may not be features."""
    if table.features is None or not isinstance(table.Z, np.ndarray) or len(table.Z) < MIN_ROWS:
        return []
    orders = ((j, _order(table.Z[:, j])) for j in range(len(table.features)))
    oddities = {j: f"{order}; is it a feature? If not" for j, order in orders if order}
    for j, what in dominating(table.Z).items():
        oddities.setdefault(j, f"{what}. If it is not a feature")
    notes = [
        f"the column {table.features[j]!r} {what}: --ignore {shlex.quote(table.features[j])}."
        for j, what in list(oddities.items())[:MAX_COLUMNS_NAMED]
    ]
    if len(oddities) > MAX_COLUMNS_NAMED:
        notes.append(f"the same holds for {len(oddities) - MAX_COLUMNS_NAMED} more columns.")
    return notes


def dominating(Z: Array) -> dict[int, str]:
    """Warnings about columns whose variance dominates the others, by index."""
    variance = column_variances(Z)
    positive = variance[variance > 0]
    median = float(np.median(positive)) if len(positive) else np.inf
    powers = {
        j: int(np.log10(variance[j] / median)) for j in np.flatnonzero(variance >= DOMINANT_VARIANCE * median).tolist()
    }
    times = {j: f"10{str(power).translate(_SUPERSCRIPTS)}" for j, power in powers.items()}
    return {j: f"has {n} times the median variance of the features and will dominate them" for j, n in times.items()}


def _order(column: Array) -> str:
    """Warning about a column of increasing integers; "" for other columns."""
    head = column[:MIN_ROWS]
    if not np.array_equal(head, np.floor(head)) or len(np.unique(head)) < len(head):
        return ""
    column = np.asarray(column, dtype=np.float64)  # differences of unsigned numbers would have no sign
    if not np.array_equal(column, np.floor(column)):
        return ""
    if np.all(np.diff(np.sort(column)) == 1):
        return "counts the rows"
    return "rises from row to row" if np.all(np.diff(column) > 0) else ""
