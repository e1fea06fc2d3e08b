"""Encode labels (integers, booleans or strings, some perhaps missing) as integer codes, and dates as seconds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from itertools import product
from typing import Any, Self

import numpy as np

from unspur._arrays import is_missing, to_numpy
from unspur._text import brief, counted
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, LabelError, MissingCodeWarning

#: What a missing value becomes where a column is turned into text, besides "".
_MISSING_AS_TEXT = frozenset(("nan", "NaN", "<NA>", "NaT"))


@dataclass(frozen=True, slots=True)
class ClassLabel:
    """A label as codes 0, 1, …, with the rows where it is present and the class of each code."""

    codes: IntArray
    present: BoolArray
    classes: tuple[Any, ...]
    name: str = ""
    #: The class that is contrasted with the rest, if there were more than two.
    of_class: Any = None

    @property
    def full_name(self) -> str:
        """The name, with the class that is contrasted with the rest: "season=winter"."""
        return self.name if self.of_class is None else f"{self.name}={self.of_class}"

    def binary(self) -> list[Self]:
        """One label per class against the rest, or the label itself if it has two classes."""
        if len(self.classes) == 2:
            return [self]
        found = []
        for code, value in enumerate(self.classes):
            rest = "rest" if str(value) != "rest" else "others"
            last = str(value) > rest
            codes = (self.codes == code) if last else (self.codes != code)
            classes = (rest, value) if last else (value, rest)
            found.append(replace(self, codes=codes.astype(np.intp), classes=classes, of_class=value))
        return found

    def select(self, rows: Array) -> Self:
        """The label of some rows, by mask or index."""
        return replace(self, codes=self.codes[rows], present=self.present[rows])

    @property
    def values(self) -> Array:
        """The class of each row, shape (n,); None where it is missing."""
        found = class_array(self.classes)[self.codes]
        if not self.present.all():
            found = found.astype(object)
            found[~self.present] = None
        return found

    @property
    def occurring_classes(self) -> tuple[Any, ...]:
        """The classes that occur."""
        seen = np.bincount(self.codes[self.present], minlength=len(self.classes))
        return tuple(value for value, count in zip(self.classes, seen, strict=True) if count)

    def occurring(self, min_classes: int = 2) -> Self:
        """The label without classes that do not occur; at least `min_classes` must be left."""
        classes = self.occurring_classes
        _require_several(np.array(classes, dtype=object), self.name, self.codes, min_classes)
        return self if classes == self.classes else self.recode(classes)

    def recode(self, classes: tuple[Any, ...]) -> Self:
        """The label coded by other classes, which must include all that occur."""
        if classes == self.classes:
            return self
        place = np.array([classes.index(value) if value in classes else -1 for value in self.classes])
        codes = np.where(self.present, place[self.codes], 0)
        if codes.min(initial=0) < 0:
            _refuse_unknown(self.classes[self.codes[np.argmin(codes)]], self.name, classes)
        return replace(self, codes=codes, classes=classes)


def class_label(
    values: Array | ClassLabel,
    name: str,
    n_rows: int,
    *,
    missing: Any = None,
    classes: tuple[Any, ...] | None = None,
    min_classes: int = 2,
) -> ClassLabel:
    """Code a label by its values, in their order; a label that is decoded already gets this name.

    Parameters
    ----------
    missing : besides NaN and None, the value that stands for "not known".
    classes : the values to expect, when they are known from other rows.
    min_classes : how many classes there must be, when they are not.

    NaN, None and `missing` are marked as not present and coded 0.
    """
    if isinstance(values, ClassLabel):
        label = replace(values, name=name)
        return label.occurring(min_classes) if classes is None else label.recode(classes)
    array = _column(values, name, n_rows)
    present = ~missing_values(array, missing)
    known = array[present]
    if missing is not None:
        _warn_of_another_type(known, missing, name, met=len(known) < len(array))
    try:
        seen = _distinct(known, sort=classes is None)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in known.tolist()})
        raise LabelError(
            "Unsupported label type: {label} mixes values that cannot be ordered ({kinds}). Use one kind.",
            label=name,
            kinds=", ".join(kinds),
        ) from None
    if classes is None:
        _require_several(seen, name, array, min_classes)
        _warn_of_missing_as_text(known, seen, missing, name)
        classes = _of_one_type(tuple(value.item() if hasattr(value, "item") else value for value in seen), name)
    elif unknown := [value for value in seen.tolist() if value not in classes]:
        _refuse_unknown(unknown[0], name, classes)
    codes = np.zeros(n_rows, dtype=np.intp)
    where = None if len(known) == n_rows else np.flatnonzero(present)
    for code, value in enumerate(classes[1:], start=1):
        if where is None:
            np.putmask(codes, known == value, code)  # twice as fast as an assignment
        else:
            codes[where[known == value]] = code
    return ClassLabel(codes, present, classes, name)


def _warn_of_another_type(known: Array, missing: Any, name: str, *, met: bool) -> None:
    """Warn if the code for a missing value does not occur but its text does, such as "-1" for −1."""
    values = [] if met or (known.dtype.kind in "biuf" and not isinstance(missing, str)) else known.tolist()
    alike = sum(str(value) == str(missing) for value in values)
    if alike:
        kind = type(next(value for value in values if str(value) == str(missing)))
        warnings.warn(
            f"{name} is never {missing!r} (the missing value), but is {str(missing)!r} of type {kind.__name__} in "
            f"{counted(alike, 'row')}; these are treated as a class. Pass the value in the type that it has there.",
            MissingCodeWarning,
            stacklevel=3,
        )


def _warn_of_missing_as_text(known: Array, seen: Array, missing: Any, name: str) -> None:
    """Warn if one of several classes is an empty text, or what becomes of NaN as text; not again of the code."""
    texts = [value for value in seen.tolist() if looks_missing(value) and value != str(missing)]
    for value in texts if len(seen) > 1 else []:
        warnings.warn(
            f"{name} is {value!r} in {int(np.sum(known == value)):,} rows; these are treated as a class. If it "
            f"stands for a missing value, pass None in these rows; of a concept, missing_concept={value!r} does "
            "the same.",
            MissingCodeWarning,
            stacklevel=3,
        )


def looks_missing(value: Any) -> bool:
    """Whether a value is an empty text, or what becomes of NaN as text."""
    return isinstance(value, str) and (not value.strip() or value in _MISSING_AS_TEXT)


def joint_label(labels: Sequence[ClassLabel]) -> ClassLabel:
    """One label whose classes are all combinations of classes of several; present where all of them are."""
    if len(labels) == 1:
        return labels[0]
    present = np.logical_and.reduce([label.present for label in labels])
    shape = tuple(len(label.classes) for label in labels)
    codes = np.ravel_multi_index(tuple(label.codes for label in labels), shape)
    name = ", ".join(label.name for label in labels)
    return ClassLabel(codes, present, tuple(product(*(label.classes for label in labels))), name)


def label_columns(values: Array, n_rows: int, name: str) -> dict[str, Array]:
    """The concepts by name, from one column, an array (n, m), a DataFrame or a mapping from names to columns.

    One column keeps the plain name.
    """
    if values is None:
        raise LabelError("{label} is missing: it is what is to be removed.", label=name)
    require_values(values, name)
    if isinstance(values, Mapping):
        columns = dict(zip(concept_names(values, name), map(to_numpy, values.values()), strict=True))
        for called, column in columns.items():
            if hasattr(column, "__len__") and not isinstance(column, str) and len(column) != n_rows:
                raise LabelError(
                    f"{called} has {len(column)} labels for {n_rows} rows of X. Each row needs one. In a search or "
                    "cross-validation pass a DataFrame: scikit-learn splits its rows, and not those of a dict."
                )
        return columns
    values = to_numpy(values)
    if is_frame(values):
        names = concept_names(values.columns, name)
        return dict(zip(names, (values[column].to_numpy() for column in values.columns), strict=True))
    array = values if hasattr(values, "ndim") else np.asarray(values, dtype=object if _mixed(values) else None)
    if getattr(array, "ndim", 1) == 2 and array.shape[1] > 1:
        if array.shape[0] != n_rows:
            raise LabelError(
                "{label} has {given} rows for {rows} rows of X. Each row needs one.",
                label=name,
                given=array.shape[0],
                rows=n_rows,
            )
        return dict(zip(numbered(name, array.shape[1]), array.T, strict=True))
    return {name: values}


def named_concepts(concept: Any, name: str | Sequence[str]) -> dict[str, Array]:
    """Concepts by name, from one column, a mapping, a DataFrame or an array of shape (n, m).

    `name` is that of one column, or what numbered columns of an array are called; or there is one for each column.
    """
    if isinstance(concept, Mapping) or is_frame(concept):
        keys = list(concept if isinstance(concept, Mapping) else concept.columns)
        return dict(zip(concept_names(keys), (concept[key] for key in keys), strict=True))
    values: Array = np.empty(0) if isinstance(concept, ClassLabel) else np.asarray(to_numpy(concept))
    m = values.shape[1] if values.ndim == 2 else 1
    names = [name] if isinstance(name, str) else list(map(str, name))
    if isinstance(name, str) and m > 1:
        names = list(numbered(name, m))
    if len(set(names)) != m:
        each = "each needs its own" if m > 1 else "pass one name"
        raise InputError(f"The number of concepts is {m}, and their names are {', '.join(names)}; {each}.")
    return dict(zip(names, values.T, strict=True)) if m > 1 else {names[0]: concept}


def is_frame(values: Any) -> bool:
    """Whether this is a DataFrame, of pandas or polars, without importing either."""
    return hasattr(values, "columns") and hasattr(values, "to_numpy")


def columns_in_order(columns: Mapping[str, Array], names: tuple[str, ...], called: str, known: str) -> list[Array]:
    """Columns in the order of `names`, which other rows have; columns of arrays, without names, in their own order.

    Messages call the two sets of columns `called` and `known`.
    """
    if len(columns) != len(names):
        raise LabelError(f"{called} has {len(columns)} columns and {known} {len(names)}; they must be the same.")
    if set(columns) == set(names):
        return [columns[name] for name in names]
    if tuple(columns) != numbered(called, len(names)) and names != numbered("concept", len(names)):
        raise LabelError(
            f"{called} has the columns {', '.join(columns)} and {known} {', '.join(names)}; they must be the same."
        )
    return list(columns.values())


def series_name(values: Any) -> str:
    """The name of a Series, or ""; names of other arrays, such as Dask's, are made up."""
    name = getattr(values, "name", None)
    return name if hasattr(values, "to_numpy") and isinstance(name, str) else ""


def main_column(y: Any, name: str = "y") -> tuple[str, Any]:
    """Name and values of the main label, which may be a mapping from its name or a decoded label."""
    if not isinstance(y, Mapping):
        return (y.name, y) if isinstance(y, ClassLabel) else (name, y)
    if len(y) != 1:
        raise LabelError(
            "{label} has {columns} columns ({names}); the main label is one. Pass the one that is to be kept.",
            label=name,
            columns=len(y),
            names=", ".join(map(str, y)),
        )
    ((called, values),) = y.items()
    return str(called), values


def require_no_missing(label: ClassLabel, concepts: Sequence[str]) -> None:
    """Raise LabelError where the main label is missing in some rows."""
    if not label.present.all():
        raise LabelError(
            "{label} is missing in {rows}; only {concepts} may have missing values. Drop such rows, or fill in the "
            "label.",
            label=label.name,
            rows=counted(int(np.sum(~label.present)), "row"),
            concepts=" and ".join(concepts) or "concept",
        )


def numbered(name: str, columns: int) -> tuple[str, ...]:
    """Names for columns that have none: numbered if there are several."""
    return (name,) if columns == 1 else tuple(f"{name}[{j}]" for j in range(columns))


def _mixed(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(isinstance(v, str) or v is None for v in values)


def concept_names(columns: Iterable[Any], argument: str = "concept") -> list[str]:
    """Names of several concepts as text; LabelError if two are the same, or if the user's `argument` has none."""
    names = [str(name) for name in columns]
    if not names:
        raise LabelError(f"{argument} is empty: it has no columns. Pass one or more.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"Two concepts are called {twice!r}. Give each a name of its own.")
    return names


def _distinct(known: Array, *, sort: bool) -> Array:
    """Unique values, sorted; small ranges of integers are counted, which is far quicker than sorting."""
    if known.dtype.kind in "biu" and len(known):
        low = int(known.min())
        if int(known.max()) - low < 256 and abs(low) < 2**62:
            return (np.flatnonzero(np.bincount(known.astype(np.intp) - low)) + low).astype(known.dtype)
    return np.unique(known) if sort else np.array(sorted(set(known.tolist())), dtype=known.dtype)


def _of_one_type(classes: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Numbers of several types, from a column of objects, as numbers of one; other classes as they are.

    Raises LabelError if no type holds all of them.
    """
    if len(set(map(type, classes))) == 1 or not all(isinstance(value, int | float) for value in classes):
        return classes
    same = tuple(np.array(classes).tolist())
    if same != classes:
        rounded = next(value for value, other in zip(classes, same, strict=True) if value != other)
        raise LabelError(
            "{label} mixes floats with the integer {value}, which has more digits than a float64 holds. Pass the "
            "classes as text.",
            label=name,
            value=rounded,
        )
    return same


def _refuse_unknown(value: Any, name: str, classes: tuple[Any, ...]) -> None:
    raise LabelError(
        "{label} has the value {value!r}, which the training rows do not have ({classes}).",
        label=name,
        value=value,
        classes=list(classes),
    )


def _require_several(seen: Array, name: str, array: Array, min_classes: int) -> None:
    if len(seen) == 0:
        raise LabelError("{label} is missing in all {rows} rows.", label=name, rows=len(array))
    if len(seen) < min_classes:
        raise LabelError(
            "{label} has one class only ({value}); two are needed to find a direction that tells them apart.",
            label=name,
            value=seen[0],
        )
    if array.dtype.kind == "f" and len(seen) > 10 and np.any(seen != np.round(seen)):
        raise LabelError(  # scikit-learn's checks of estimators require its words, "Unknown label type"
            "Unknown label type: {label} has {values} distinct values that are not whole numbers and looks "
            "continuous. Cut it into classes first.",
            label=name,
            values=len(seen),
        )


def as_numbers(values: Any) -> FloatArray:
    """A new array of numbers in float64, NaN where they are missing.

    Dates count in seconds since 1970-01-01 UTC, whatever their unit, and durations in seconds; NaT is missing. Raises
    TypeError or ValueError for what is not numbers.
    """
    values = to_numpy(values)
    dates = dates_in(values)
    if dates is not None:
        return seconds(dates)
    array = np.array(values, dtype=object if isinstance(values, list | tuple) else None)
    if array.dtype.kind == "O":
        array = np.where(missing_values(array.ravel(), None).reshape(array.shape), np.nan, array)
    return np.array(array, dtype=np.float64)


def missing_number(code: Any, name: str, *, dates: bool) -> Any:
    """The number that a code for a missing value has in a column of numbers or dates; None if it cannot occur there.

    Raises LabelError for a code that is not a date, of a column of dates.
    """
    if code is None or not dates:
        return None if is_date(code) else code
    try:
        return float(seconds(np.asarray(as_date(code))))
    except (TypeError, ValueError):
        raise LabelError(
            "{label} contains dates, but missing_concept={code!r} is not a date. Pass the date that stands for a "
            "missing value, such as '1900-01-01', or NaT in these rows.",
            label=name,
            code=code,
        ) from None


def numeric_column(values: Any, name: str, n_rows: int, missing: Any = None) -> FloatArray:
    """A numeric concept, shape (n,); NaN where it is missing, or has the value `missing`."""
    try:
        numbers = as_numbers(values)
    except (TypeError, ValueError):
        raise LabelError(
            "{label} is not a column of numbers or dates. Pass dates as datetime64, or use concept_type='class'.",
            label=name,
        ) from None
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.shape != (n_rows,):
        raise LabelError(
            "{label} has shape {shape}; {rows} numbers are needed, one for each row of X.",
            label=name,
            shape=numbers.shape,
            rows=n_rows,
        )
    if np.isinf(numbers).any():
        raise LabelError("{label} has {values} infinite values.", label=name, values=int(np.isinf(numbers).sum()))
    if (code := missing_number(missing, name, dates=holds_dates(values))) is not None:
        numbers[numbers == code] = np.nan
    return numbers


def require_values(values: Any, name: str) -> None:
    """Raise LabelError if a label is text or a single value instead of one value for each row."""
    if isinstance(values, str | bytes):
        raise LabelError(
            "{label} is the text {value!r}, and not a value for each row. Pass the column itself, such as "
            "{label}=frame[{value!r}], and leave it out of X.",
            label=name,
            value=brief(values, 40),
        )
    if isinstance(values, bool | int | float | np.generic):
        raise LabelError(
            "{label} is the single value {value}; each row needs one. Pass an array of shape (n,).",
            label=name,
            value=values,
        )


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple | dict | set | np.ndarray)


def _column(values: Array, name: str, n_rows: int) -> Array:
    if values is None:
        raise LabelError("{label} is missing: it is needed to tell the concept from the task.", label=name)
    require_values(values, name)
    array = as_labels(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise LabelError("{label} must be one column; got an array of shape {shape}.", label=name, shape=array.shape)
    if array.dtype.kind == "O" and (nested := next(filter(_is_nested, array), None)) is not None:
        raise LabelError(
            "{label} holds several values in a row, such as {value}; a label is one value for each row. Write each of "
            "them as a label of its own.",
            label=name,
            value=brief(repr(nested), 40),
        )
    if len(array) != n_rows:
        named = len(array) < n_rows and all(isinstance(value, str) for value in array[:20].tolist())
        how = " If these are names of columns, pass the columns: frame[[...]]." if named else ""
        raise LabelError(
            "{label} has {given} labels for {rows} rows of X. Each row needs one.{how}",
            label=name,
            given=len(array),
            rows=n_rows,
            how=how,
        )
    if array.dtype.kind not in "biufUO":
        raise LabelError(
            "Unsupported label type: {label} has type {type}; labels are integers, booleans, strings or two floats.",
            label=name,
            type=array.dtype,
        )
    return array


def as_labels(values: Any) -> Array:
    """Like numpy.asarray, but numbers beside strings and large whole numbers stay what they are, and bytes are text."""
    if isinstance(values, list | tuple) and len({isinstance(value, str) for value in values}) == 2:
        return np.array(values, dtype=object)
    array = class_array(values) if isinstance(values, list | tuple) else np.asarray(to_numpy(values))
    if array.dtype.kind == "S":
        return np.char.decode(array, "utf-8", "replace")
    return array.astype(object) if array.dtype.kind == "T" else array


def class_array(classes: Sequence[Any]) -> Array:
    """The classes as an array: whole numbers on both sides of 2⁶³ become uint64, not floats that make them equal."""
    array = np.array(classes)
    if len(classes) and array.dtype.kind == "f" and all(isinstance(value, int) for value in classes):
        return np.array(classes, dtype=np.uint64 if min(classes) >= 0 else object)
    return array


def missing_values(array: Array, code: Any) -> BoolArray:
    """Mask of labels that are NaN, None or `code`."""
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    elif array.dtype.kind == "O":
        missing = np.fromiter((is_missing(value) for value in array), dtype=bool, count=len(array))
    else:
        missing = np.zeros(len(array), dtype=bool)
    if code is not None:
        missing[~missing] = np.asarray(array[~missing] == code, dtype=bool)
    return np.asarray(missing, dtype=bool)


# Dates and durations as numbers of seconds, whatever the unit or the kind of object they come in

_SECOND = np.timedelta64(1, "s")


def dates_in(values: Any) -> Array | None:
    """Dates or durations as an array of datetime64 or timedelta64; None if `values` are something else.

    Python's dates and pandas' Timestamps and Periods become datetime64, a Period by its start. Dates with a time zone
    become UTC.
    """
    kind = getattr(values, "dtype", None)
    zoned = getattr(kind, "tz", None) is not None
    array = np.asarray(values, dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]" if zoned else None)
    if array.dtype.kind in "mM":
        return array
    known = (value for value in array.flat if not is_missing(value)) if array.dtype.kind == "O" else iter(())
    first = next(known, None)
    if isinstance(first, timedelta | np.timedelta64):
        gap = np.timedelta64("NaT", "us")
        return np.array([gap if is_missing(value) else np.timedelta64(value) for value in array.flat], dtype="m8[us]")
    if not is_date(first):
        return None
    return np.array([as_date(value) for value in array.flat], dtype="datetime64[us]").reshape(array.shape)


def holds_dates(values: Any) -> bool:
    """Whether values are dates; durations are not."""
    dates = dates_in(values)
    return dates is not None and dates.dtype.kind == "M"


def date_text(number: float) -> str:
    """The date of a number of seconds since 1970, with no more digits than it needs."""
    time = np.datetime64(round(number * 1e6), "us")
    unit = next((unit for unit in ("D", "s") if time.astype(f"datetime64[{unit}]") == time), "us")
    return str(time.astype(f"datetime64[{unit}]"))


def is_date(value: Any) -> bool:
    """Whether a value is a date, or a period that starts at one."""
    return isinstance(value, date | np.datetime64) or hasattr(value, "to_timestamp")


def as_date(value: Any) -> np.datetime64:
    """A date, or its text, as datetime64 in UTC; NaT if it is missing. Raises TypeError or ValueError otherwise."""
    if is_missing(value):
        return np.datetime64("NaT", "us")
    if hasattr(value, "to_timestamp"):  # a Period
        value = value.to_timestamp()
    if hasattr(value, "to_datetime64"):  # a Timestamp, which has nanoseconds
        value = value.to_datetime64()
    if getattr(value, "tzinfo", None) is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if not is_date(value) and not isinstance(value, str):
        raise TypeError(f"{value!r} is not a date")
    return np.datetime64(value)


def seconds(dates: Array) -> FloatArray:
    """Dates as seconds since 1970-01-01, and durations in seconds; NaN for NaT.

    The same date gives the same number in every unit: whole seconds and the rest are converted apart, since
    nanoseconds since 1970 have more digits than a float64.
    """
    kind = f"{dates.dtype.kind}8[s]"
    whole = dates.astype(kind)
    if np.datetime_data(dates.dtype)[0] in ("Y", "M"):  # numpy subtracts no seconds from months
        dates = whole
    return np.asarray((whole - np.zeros((), kind)) / _SECOND + (dates - whole) / _SECOND)
