"""What is to be removed, as users have it: a binary or multi-class concept, several of them, or a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from unspur._arrays import on_numpy
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, LabelError
from unspur.labels import ClassLabel, class_label, concept_names

ConceptType: TypeAlias = Literal["class", "continuous"]


@dataclass(frozen=True, slots=True)
class Concepts:
    """One or more concepts of the same rows.

    Parameters
    ----------
    columns : shape (k, n): for a concept of m classes the indicators of all but its first, for a number the number.
    present : shape (n,), rows for which every concept is known.
    group : shape (n,), code of the combination of classes; zeros for numbers.
    classes : the classes of each concept; empty for numbers.
    names : what to call each concept.
    """

    columns: FloatArray
    present: BoolArray
    group: IntArray
    classes: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...]

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
    name: str = "concept",
) -> Concepts:
    """Concepts from one column or several (an array of shape (n, m) or a DataFrame).

    Integer codes of four classes are four classes; numbers are only taken as such with ``kind="continuous"``.
    """
    columns = concept_columns(values, n_rows, name)
    if kind == "continuous":
        numbers = np.stack([_numbers(column, label, n_rows, missing) for label, column in columns.items()])
        present = np.asarray(np.isfinite(numbers).all(axis=0))
        _require_present(present, name)
        numbers[:, ~present] = 0.0
        return Concepts(numbers, present, np.zeros(n_rows, dtype=np.intp), (), tuple(columns))
    known = [None] * len(columns) if classes is None else classes
    if len(known) != len(columns):
        raise LabelError(f"{name} has {len(columns)} columns; {len(known)} were fitted.")
    labels = [
        class_label(column, label, n_rows, missing=missing, classes=expected)
        for (label, column), expected in zip(columns.items(), known, strict=True)
    ]
    present = np.logical_and.reduce([label.present for label in labels])
    _require_present(present, name)
    group = np.zeros(n_rows, dtype=np.intp)
    for label in labels:
        group = group * len(label.classes) + label.codes
    return Concepts(
        np.concatenate([indicators(label) for label in labels]),
        present,
        group,
        tuple(label.classes for label in labels),
        tuple(columns),
    )


def concept_columns(values: Array, n_rows: int, name: str) -> dict[str, Array]:
    """The concepts by name, from one column, an array (n, m), a DataFrame or a mapping from names to columns.

    One column keeps the plain name.
    """
    if values is None:
        raise LabelError(f"{name} is missing: it is what is to be removed.")
    if isinstance(values, Mapping):
        return dict(zip(concept_names(values), map(on_numpy, values.values()), strict=True))
    values = on_numpy(values)
    if hasattr(values, "columns") and hasattr(values, "iloc"):  # a DataFrame, without importing pandas
        names = concept_names(values.columns)
        return dict(zip(names, (values[column].to_numpy() for column in values.columns), strict=True))
    array = values if hasattr(values, "ndim") else np.asarray(values, dtype=object if _mixed(values) else None)
    if getattr(array, "ndim", 1) == 2 and array.shape[1] > 1:
        if array.shape[0] != n_rows:
            raise LabelError(f"{name} has {array.shape[0]} rows for {n_rows} rows of Z. Each row needs one.")
        return dict(zip(numbered(name, array.shape[1]), array.T, strict=True))
    return {name: values}


def numbered(name: str, columns: int) -> tuple[str, ...]:
    """What columns without names are called: by their number where there are several."""
    return (name,) if columns == 1 else tuple(f"{name}[{j}]" for j in range(columns))


def _mixed(values: Any) -> bool:
    return isinstance(values, list | tuple) and any(isinstance(v, str) or v is None for v in values)


def _numbers(column: Array, name: str, n_rows: int, missing: Any) -> FloatArray:
    try:
        numbers = np.array(on_numpy(column), dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise LabelError(f"{name} is not a column of numbers; use concept_type='class'.") from None
    if len(numbers) != n_rows:
        raise LabelError(f"{name} has {len(numbers)} values for {n_rows} rows of Z. Each row needs one.")
    if np.isinf(numbers).any():
        raise LabelError(f"{name} has {int(np.isinf(numbers).sum())} infinite values.")
    if missing is not None:
        numbers[numbers == missing] = np.nan
    known = numbers[np.isfinite(numbers)]
    if len(known) and np.ptp(known) == 0:
        raise LabelError(f"{name} is the same number in all rows; there is nothing to remove.")
    return numbers


def _require_present(present: BoolArray, name: str) -> None:
    if not present.any():
        raise LabelError(f"No row has a known {name}.")


def indicators(label: ClassLabel) -> FloatArray:
    """One row per class but the first: they span what all of them do, without their constant sum."""
    return np.asarray(label.codes == np.arange(1, len(label.classes))[:, None], dtype=np.float64)


def balanced_weights(weight: FloatArray, balance: str, concept: IntArray | None, main: IntArray | None) -> FloatArray:
    """Row weights under which the classes that `balance` names have equal total weight; the total is kept."""
    if balance == "none":
        return weight
    needed = {"concept": (concept,), "main": (main,), "group": (concept, main)}[balance]
    if any(codes is None for codes in needed):
        what = "y" if main is None else "a concept of classes"
        raise InputError(f"balance={balance!r} needs {what}. Pass it, or use balance='none'.")
    known = [codes for codes in needed if codes is not None]
    _, group = np.unique(np.stack(known, axis=1), axis=0, return_inverse=True)
    group = group.reshape(-1)
    total = np.bincount(group, weights=weight)
    filled = total > 0
    factor = np.divide(weight.sum() / filled.sum(), total, out=np.zeros_like(total), where=filled)
    return np.asarray(weight * factor[group])
