"""Concepts as users pass them: classes, several concepts, or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, LabelError
from unspur.labels import (
    ClassLabel,
    class_label,
    columns_in_order,
    label_columns,
    numeric_column,
)

ConceptType: TypeAlias = Literal["auto", "class", "continuous"]
#: Fewest rounding errors that the numbers of a concept must span, and the sizes that can be squared and summed.
MIN_ROUNDING_ERRORS, MIN_SIZE, MAX_SIZE = 64.0, 1e-152, 1e152
#: Most distinct numbers that are taken for codes of classes.
MAX_CLASS_CODES = 20
#: Most distinct numbers that are taken for codes however few rows each has.
MAX_RARE_CODES = 10
#: Fewest rows per code, on average, if there are more.
MIN_ROWS_PER_CODE = 5


@dataclass(frozen=True, slots=True)
class Concepts:
    """One or more concepts of the same rows.

    Parameters
    ----------
    columns : shape (k, n): for a concept of m classes the indicators of all but its first, for a number the number.
    present : shape (n,), rows for which every concept is known.
    group : shape (n,), code of the combination of classes; zeros for numbers.
    classes : the classes of each concept; empty for numbers.
    names : name of each concept.
    labels : the concepts as labels; empty for numbers.
    """

    columns: FloatArray
    present: BoolArray
    group: IntArray
    classes: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...]
    labels: tuple[ClassLabel, ...] = ()

    @property
    def codes(self) -> dict[str, FloatArray]:
        """One column (n,) for each concept: the code of its class, or its number."""
        parts = self.by_name(np.ones(self.columns.shape[1], dtype=bool))
        return {name: np.arange(1.0, len(part) + 1.0) @ part for name, part in parts.items()}

    def by_name(self, rows: BoolArray) -> dict[str, FloatArray]:
        """The columns (k, m) of each concept, for some rows."""
        widths = [len(classes) - 1 for classes in self.classes] or [1] * len(self.names)
        parts = np.split(self.columns[:, rows], np.cumsum(widths)[:-1])
        return dict(zip(self.names, parts, strict=True))


def read_concepts(
    values: Array,
    n_rows: int,
    *,
    kind: ConceptType = "class",
    missing: Any = None,
    classes: Sequence[tuple[Any, ...]] | None = None,
    names: tuple[str, ...] = (),
    varying: bool = True,
) -> Concepts:
    """Concepts from one column or several (an array of shape (n, m) or a DataFrame).

    Integer codes of four classes are four classes; numbers are only taken as such with ``kind="continuous"``. With
    "auto", columns of many distinct numbers are refused: they may be either. Columns are brought into the order of
    `names`, those of earlier rows. A number must be `varying`, unless these are some rows of several.
    """
    columns = label_columns(values, n_rows, "concept")
    if names:
        ordered = columns_in_order(columns, names, "concept", "that of earlier rows")
        columns = dict(zip(names if set(columns) == set(names) else columns, ordered, strict=True))
    if kind == "continuous":
        numbers = np.stack(
            [_numbers(column, name, n_rows, missing, varying=varying) for name, column in columns.items()]
        )
        present = np.asarray(np.isfinite(numbers).all(axis=0))
        _require_present(present, tuple(columns))
        numbers[:, ~present] = 0.0
        return Concepts(numbers, present, np.zeros(n_rows, dtype=np.intp), (), tuple(columns))
    known = [None] * len(columns) if classes is None else classes
    if len(known) != len(columns):
        raise LabelError(f"concept has {len(columns)} columns; {len(known)} were fitted.")
    labels = []
    for (called, column), expected in zip(columns.items(), known, strict=True):
        labels.append(class_label(column, called, n_rows, missing=missing, classes=expected))
        if kind == "auto" and expected is None:
            require_few_codes(labels[-1].classes, int(labels[-1].present.sum()), called)
    present = np.logical_and.reduce([label.present for label in labels])
    _require_present(present, tuple(columns))
    group = np.zeros(n_rows, dtype=np.intp)
    for label in labels:
        group = group * len(label.classes) + label.codes
    return Concepts(
        np.concatenate([indicators(label) for label in labels]),
        present,
        group,
        tuple(label.classes for label in labels),
        tuple(columns),
        tuple(labels),
    )


def _numbers(column: Array, name: str, n_rows: int, missing: Any, *, varying: bool) -> FloatArray:
    """The column, unless its numbers do not vary or are too large or small to be squared."""
    numbers = numeric_column(column, name, n_rows, missing)
    known = numbers[np.isfinite(numbers)]
    spread, largest = (float(np.ptp(known)), float(np.abs(known).max())) if len(known) else (1.0, 1.0)
    if varying and not spread:
        raise LabelError(f"{name} is the same number in all rows; there is nothing to remove.")
    if varying and len(known):
        require_digits(spread, float(np.median(known)), largest, name)
    if not (MIN_SIZE if varying else -1.0) < spread <= 2 * largest < MAX_SIZE:
        raise LabelError(f"{name} has numbers of the order of {largest:.0e}, which cannot be squared. Rescale it.")
    return numbers


def require_digits(spread: float, centre: float, largest: float, name: str) -> None:
    """Raise LabelError for numbers around `centre` and up to `largest` whose deviations are rounding errors."""
    if spread < MIN_ROUNDING_ERRORS * np.finfo(np.float64).eps * largest:
        raise LabelError(
            f"{name} varies by {spread:.2g} around {centre:.10g}, which is about the rounding error of numbers of that "
            "size. Subtract what they have in common before they are rounded."
        )


def require_few_codes(classes: tuple[Any, ...], rows: int, name: str) -> None:
    """Raise for many numbers: ages and years look like codes, and removing so many classes removes everything."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in classes):
        return
    if len(classes) > MAX_CLASS_CODES or (len(classes) > MAX_RARE_CODES and rows < MIN_ROWS_PER_CODE * len(classes)):
        raise LabelError(
            f"{name} has {len(classes)} distinct whole numbers between {min(classes):g} and {max(classes):g}, "
            f"{rows / len(classes):.0f} rows each on average: numbers such as ages, or codes of classes? Pass "
            "concept_type='continuous' for what is linear in the number, or concept_type='class' for every class."
        )


def class_label_or_none(y: Array | None, name: str, n_rows: int) -> ClassLabel | None:
    """The task as classes, if it can be read so; it is only compared with the concept.

    LabelError if it has another number of rows.
    """
    if y is None:
        return None
    try:
        return class_label(y, name, n_rows)
    except LabelError:
        if hasattr(y, "__len__") and len(y) != n_rows:
            raise
        return None


def require_concept_differs_from_task(concepts: Mapping[str, Array], main: ClassLabel, usable: BoolArray) -> None:
    """Raise LabelError if a concept is the task, also under other names, in the `usable` rows.

    Parameters
    ----------
    concepts : codes of each concept, shape (n,), by name.
    main : the task.
    usable : mask of the rows that have a concept, a task and a weight, shape (n,).
    """
    rows, y = np.flatnonzero(usable), main.codes
    for name, codes in concepts.items():
        # For most labels a few rows show that they differ.
        if not _one_to_one(codes[rows[:1000]], y[rows[:1000]]) or not _one_to_one(codes[rows], y[rows]):
            continue
        if 1 < len(np.unique(codes[rows])) < len(rows):
            raise LabelError(
                f"{name} and {main.name} are the same label in all {len(rows):,} rows, up to the names of the classes: "
                "removing it would remove the task, and no data could tell the two apart. Rows where they disagree are "
                "needed."
            )


def _one_to_one(one: Array, other: Array) -> bool:
    """Whether the values of two columns map one to one."""
    pairs = len(np.unique(np.stack([one, other], axis=1), axis=0))
    return len(np.unique(one)) == len(np.unique(other)) == pairs


def _require_present(present: BoolArray, names: tuple[str, ...]) -> None:
    if present.any():
        return
    if len(names) == 1:
        raise LabelError(f"No row has a known {names[0]}.")
    raise LabelError(
        f"No row has all of {', '.join(names)} known, and rows where one is missing are left out. Label some rows with "
        "all of them, or remove one concept after the other."
    )


def indicators(label: ClassLabel) -> FloatArray:
    """Indicators of every class but the first, shape (classes − 1, n)."""
    return np.asarray(label.codes == np.arange(1, len(label.classes))[:, None], dtype=np.float64)


def balanced_weights(weight: FloatArray, balance: str, concept: IntArray | None, main: IntArray | None) -> FloatArray:
    """Row weights under which the classes that `balance` names have equal total weight; the total is kept.

    `concept` is None if it is a number, and `main` if `balance` does not name it.
    """
    if balance == "none":
        return weight
    needed = {"concept": (concept,), "main": (main,), "group": (concept, main)}[balance]
    known = [codes for codes in needed if codes is not None]
    if len(known) < len(needed):
        raise InputError(
            f"balance={balance!r} gives classes of the concept equal weight, and the concept is a number "
            "(concept_type='continuous'). Use balance='main' or balance='none'."
        )
    _, group = np.unique(np.stack(known, axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    total = np.bincount(group, weights=weight)
    filled = total > 0
    factor = np.divide(weight.sum() / filled.sum(), total, out=np.zeros_like(total), where=filled)
    return np.asarray(weight * factor[group])
