"""Labels as integer codes with the classes behind them: whole numbers, booleans, text or categories, or two floats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from numbers import Real
from typing import Any, Self

import numpy as np

from unspur._arrays import to_numpy, to_python
from unspur._text import brief, counted
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, LabelError


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
        found = np.array(self.classes)[self.codes]
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
        _require_several(classes, self.name, len(self.codes), min_classes)
        return self.recode(classes)

    def recode(self, classes: tuple[Any, ...]) -> Self:
        """The label coded by other classes, which must include all that occur."""
        if classes == self.classes:
            return self
        place = _places(self.classes, classes, self.name, occurring=self.occurring_classes)
        return replace(self, codes=np.where(self.present, place[self.codes], 0), classes=classes)


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
    missing : besides NaN, None and pandas.NA, the value that stands for "not known".
    classes : the values to expect, when they are known from other rows.
    min_classes : how many classes there must be, when they are not.

    Missing values are marked as not present and coded 0.
    """
    if isinstance(values, ClassLabel):
        label = replace(values, name=name)
        return label.occurring(min_classes) if classes is None else label.recode(classes)
    import pandas as pd

    array = _column(values, name, n_rows)
    try:
        codes, found = pd.factorize(array)
    except TypeError:  # a list in a row has no hash
        raise _unsupported(name, "several values in a row") from None
    seen = tuple(value.item() if isinstance(value, np.generic) else value for value in found)
    known = tuple(value for value in seen if missing is None or value != missing)
    _require_plain(known, name)
    expected = tuple(sorted(known)) if classes is None else classes
    if classes is None:
        _require_several(expected, name, n_rows, min_classes)
    codes = np.append(_places(seen, expected, name, occurring=known), -1)[codes]  # pandas codes missing values -1
    present = codes >= 0
    if len(set(map(type, expected))) > 1:  # integers beside floats
        expected = tuple(np.array(expected).tolist())
    return ClassLabel(np.where(present, codes, 0), present, expected, name)


def _places(values: tuple[Any, ...], classes: tuple[Any, ...], name: str, occurring: tuple[Any, ...]) -> IntArray:
    """Code of each value, -1 for what is no class; LabelError if such a value occurs."""
    code = {value: k for k, value in enumerate(classes)}
    if unknown := [value for value in occurring if value not in code]:
        raise LabelError(
            f"{name} has the value {unknown[0]!r}, which the training rows do not have ({brief(list(classes))})."
        )
    return np.array([code.get(value, -1) for value in values], dtype=np.intp)


def _require_plain(values: tuple[Any, ...], name: str) -> None:
    """Raise LabelError unless all values are numbers, or all are texts."""
    texts = [isinstance(value, str) for value in values]
    if any(texts) and not all(texts):
        kinds = sorted({type(value).__name__ for value in values})
        raise LabelError(f"{name} mixes texts and other values ({', '.join(kinds)}). Pass labels of one kind.")
    for value in values:
        if not isinstance(value, str | int | float):
            raise _unsupported(name, type(value).__name__)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise LabelError(f"{name} has the label {value}, beyond 64 bits. Pass such labels as text.")


def _unsupported(name: str, kind: Any) -> LabelError:
    return LabelError(  # scikit-learn's checks of estimators require its words, "Unknown label type"
        f"Unknown label type: {name} holds {kind}. Labels are whole numbers, booleans, texts or categories, one for "
        "each row."
    )


def _require_several(classes: tuple[Any, ...], name: str, n_rows: int, min_classes: int) -> None:
    if not classes:
        raise LabelError(f"{name} is missing in all {n_rows} rows.")
    if len(classes) < min_classes:
        raise LabelError(
            f"{name} has one class only ({classes[0]}); two are needed to find a direction that tells them apart."
        )
    if fractions := [value for value in classes if isinstance(value, float) and not value.is_integer()]:
        raise LabelError(
            f"Unknown label type: {name} holds {fractions[0]:g}, no whole number. Cut it into classes, or pass it to "
            "LEACE, SAL or SPLINCE with concept_type='continuous'."
        )


def _column(values: Array, name: str, n_rows: int) -> Array:
    """A label as an array of shape (n,)."""
    if values is None:
        raise LabelError(f"{name} is missing: it is needed to tell the concept from the task.")
    require_values(values, name)
    array = as_labels(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise LabelError(f"{name} must be one column; got {type(values).__name__} of shape {array.shape}.")
    if len(array) != n_rows:
        names = len(array) < n_rows and all(isinstance(value, str) for value in array[:20].tolist())
        how = " If these are names of columns, pass the columns: frame[[...]]." if names else ""
        raise LabelError(f"{name} has {len(array)} labels for {n_rows} rows of X. Each row needs one.{how}")
    if array.dtype.kind not in "biufUO":
        raise _unsupported(name, array.dtype)
    return array


def as_labels(values: Any) -> Array:
    """Like numpy.asarray, but a list of values of several kinds stays what it is."""
    if isinstance(values, list | tuple):
        array = np.array(values, dtype=object)
        kinds = set(map(type, array.flat))
        return np.array(values) if len(kinds) == 1 and kinds <= {bool, int, float, str} else array
    return np.asarray(to_numpy(values))


def require_values(values: Any, name: str) -> None:
    """Raise LabelError if a label is a text or a single value instead of one value for each row."""
    if isinstance(values, str | bytes):
        value = brief(values, 40)
        raise LabelError(
            f"{name} is the text {value!r}, and not a value for each row. Pass the column itself, such as "
            f"{name}=frame[{value!r}], and leave it out of X."
        )
    if isinstance(values, bool | int | float | np.generic):
        raise LabelError(f"{name} is the single value {values}; each row needs one. Pass an array of shape (n,).")


def missing_values(array: Array, code: Any = None) -> BoolArray:
    """Mask of values that are NaN, None, pandas.NA or `code`."""
    import pandas as pd

    missing = np.array(pd.isna(array), dtype=bool)
    if code is not None:
        missing[~missing] = array[~missing] == code
    return missing


def numeric_column(values: Any, name: str, n_rows: int, missing: Any = None) -> FloatArray:
    """A numeric concept, shape (n,); NaN where it is missing, or has the value `missing`."""
    array = as_labels(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n_rows,):
        raise LabelError(f"{name} has shape {array.shape}; {n_rows} numbers are needed, one for each row of X.")
    gap = missing_values(array, missing)
    known = array[~gap]
    if not (known.dtype.kind in "biuf" or (known.dtype.kind == "O" and all(isinstance(one, Real) for one in known))):
        raise LabelError(f"{name} is not a column of numbers. Pass numbers, or use concept_type='class'.")
    numbers = np.full(n_rows, np.nan)
    numbers[~gap] = known.astype(np.float64)
    if infinite := int(np.isinf(numbers).sum()):
        raise LabelError(f"{name} has {infinite} infinite values.")
    return numbers


def label_columns(values: Any, n_rows: int | None, name: str) -> dict[str, Array]:
    """The concepts by name, from one column, an array (n, m), a DataFrame or a mapping from names to columns.

    One column keeps the plain name.
    """
    if values is None:
        raise LabelError(f"{name} is missing: it is what is to be removed.")
    require_values(values, name)
    if isinstance(values, Mapping) or is_frame(values):
        keys = list(values if isinstance(values, Mapping) else values.columns)
        columns = {called: values[key] for called, key in zip(concept_names(keys, name), keys, strict=True)}
        for called, column in columns.items():
            if n_rows is not None and hasattr(column, "__len__") and len(column) != n_rows:
                raise LabelError(
                    f"{called} has {len(column)} labels for {n_rows} rows of X. Each row needs one. In a search or "
                    "cross-validation pass a DataFrame: scikit-learn splits its rows, and not those of a dict."
                )
        return columns
    if isinstance(values, ClassLabel):
        return {name: values}
    array = values if hasattr(values, "ndim") else as_labels(values)
    if array.ndim == 2 and array.shape[1] > 1:
        return dict(zip(numbered(name, array.shape[1]), to_numpy(array).T, strict=True))
    return {name: values}


def named_concepts(concept: Any, name: str | Sequence[str]) -> dict[str, Array]:
    """Concepts by name, from one column, a mapping, a DataFrame or an array of shape (n, m).

    `name` is that of one column, or what numbered columns of an array are called; or there is one for each column.
    """
    columns = label_columns(concept, None, name if isinstance(name, str) else "concept")
    if isinstance(name, str) or isinstance(concept, Mapping) or is_frame(concept):
        return columns
    names = list(map(str, name))
    if len(set(names)) != len(columns):
        raise InputError(
            f"The number of concepts is {len(columns)}, and their names are {', '.join(names)}; each needs its own."
        )
    return dict(zip(names, columns.values(), strict=True))


def is_frame(values: Any) -> bool:
    """Whether this is a DataFrame, of pandas or polars, without importing either."""
    return hasattr(values, "columns") and hasattr(values, "to_numpy")


def columns_in_order(columns: Mapping[str, Array], names: tuple[str, ...], called: str, known: str) -> list[Array]:
    """Columns in the order of `names`, which other rows have; columns of arrays, without names, in their own order.

    Messages call the two sets of columns `called` and `known`.
    """
    if set(columns) == set(names):
        return [columns[name] for name in names]
    unnamed = tuple(columns) == numbered(called, len(names)) or names == numbered("concept", len(names))
    if len(columns) != len(names) or not unnamed:
        raise LabelError(
            f"{called} has the columns {', '.join(columns)} and {known} {', '.join(names)}; they must be the same."
        )
    return list(columns.values())


def series_name(values: Any) -> str:
    """The name of a Series, or ""; names of other arrays, such as Dask's, are made up."""
    name = getattr(values, "name", None)
    return name if hasattr(values, "to_numpy") and isinstance(name, str) else ""


def main_column(y: Any, name: str = "y") -> tuple[str, Any]:
    """Name and values of the task: a decoded label has a name of its own."""
    return (y.name if isinstance(y, ClassLabel) else name), y


def require_no_missing(label: ClassLabel, concepts: Sequence[str]) -> None:
    """Raise LabelError where the task is missing in some rows."""
    if gaps := int(np.sum(~label.present)):
        raise LabelError(
            f"{label.name} is missing in {counted(gaps, 'row')}; only {' and '.join(concepts) or 'concept'} may have "
            "missing values. Drop such rows, or fill in the label."
        )


def numbered(name: str, columns: int) -> tuple[str, ...]:
    """Names for columns that have none: numbered if there are several."""
    return (name,) if columns == 1 else tuple(f"{name}[{j}]" for j in range(columns))


def concept_names(columns: Iterable[Any], argument: str = "concept") -> list[str]:
    """Names of several concepts as text; LabelError if two are the same, or if the user's `argument` has none."""
    names = [str(name) for name in columns]
    if not names:
        raise LabelError(f"{argument} is empty: it has no columns. Pass one or more.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LabelError(f"Two concepts are called {twice!r}. Give each a name of its own.")
    return names


def joint_label(labels: Sequence[ClassLabel]) -> ClassLabel:
    """One label whose classes are all combinations of classes of several; present where all of them are."""
    if len(labels) == 1:
        return labels[0]
    present = np.logical_and.reduce([label.present for label in labels])
    shape = tuple(len(label.classes) for label in labels)
    codes = np.ravel_multi_index(tuple(label.codes for label in labels), shape)
    name = ", ".join(label.name for label in labels)
    return ClassLabel(codes, present, tuple(product(*(label.classes for label in labels))), name)


def storable(value: Any) -> Any:
    """A class, or nested tuples of classes, for JSON; what it has no word for becomes text."""
    if isinstance(value, tuple | list):
        return [storable(item) for item in value]
    value = to_python(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
