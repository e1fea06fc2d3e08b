"""Labels as people have them (integers, booleans, strings, with gaps) turned into codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import LabelError


@dataclass(frozen=True, slots=True)
class BinaryLabel:
    """Codes 0 and 1 of a label, which rows have one, and the two values behind the codes."""

    codes: IntArray
    present: BoolArray
    classes: tuple[Any, Any]


def binary_label(
    values: Array, name: str, n_rows: int, *, missing: Any = None, classes: tuple[Any, Any] | None = None
) -> BinaryLabel:
    """Code a label of two values; the smaller value is 0.

    Parameters
    ----------
    missing : besides NaN and None, the value that stands for "not known".
    classes : the two values to expect, when they are known from other rows.

    NaN, None and `missing` are marked as not present and coded 0.
    """
    array = _column(values, name, n_rows)
    present = ~_missing(array, missing)
    known = array[present]
    try:
        seen = np.unique(known) if classes is None else np.array(sorted(set(known.tolist())), dtype=known.dtype)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in known.tolist()})
        raise LabelError(
            f"Unknown label type: {name} mixes values that cannot be ordered ({', '.join(kinds)}). Use one kind."
        ) from None
    if classes is None:
        _require_two(seen, name, array)
        classes = (seen[0].item(), seen[1].item()) if hasattr(seen[0], "item") else (seen[0], seen[1])
    elif strange := [value for value in seen.tolist() if value not in classes]:
        raise LabelError(f"{name} has the value {strange[0]!r}, which the training rows do not have ({list(classes)}).")
    codes = np.zeros(n_rows, dtype=np.intp)
    codes[present] = known == classes[1]
    return BinaryLabel(codes, present, classes)


def _require_two(seen: Array, name: str, array: Array) -> None:
    if len(seen) == 1:
        raise LabelError(
            f"{name} has one class only ({seen[0]!s}); two are needed to find a direction that tells them apart."
        )
    if len(seen) == 0:
        raise LabelError(f"{name} is missing in all {len(array)} rows.")
    if len(seen) > 2:
        shown = ", ".join(str(value) for value in seen[:6].tolist()) + (", …" if len(seen) > 6 else "")
        kind = (
            " It looks continuous: cut it into two classes first." if array.dtype.kind == "f" and len(seen) > 10 else ""
        )
        raise LabelError(
            f"Only binary labels are supported so far: {name} has {len(seen)} classes ({shown}). "
            f"Merge or select classes so that two are left.{kind}"
        )


def _column(values: Array, name: str, n_rows: int) -> Array:
    if values is None:
        raise LabelError(f"{name} is missing: it is needed to tell the concept from the task.")
    array = _as_array(values)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    elif array.dtype.kind == "T":
        array = array.astype(object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise LabelError(f"{name} must be one column; got an array of shape {array.shape}.")
    if len(array) != n_rows:
        raise LabelError(f"{name} has {len(array)} labels for {n_rows} rows of Z. Each row needs one.")
    if array.dtype.kind not in "biufUO":
        raise LabelError(
            f"Unknown label type: {name} has type {array.dtype}; labels are integers, booleans, strings or two floats."
        )
    return array


def _as_array(values: Array) -> Array:
    """Like numpy.asarray, without turning NaN or numbers beside strings into strings, and with masked rows as gaps."""
    if np.ma.isMaskedArray(values):
        array = values.data.astype(object)
        array[np.ma.getmaskarray(values)] = None
        return array
    if isinstance(values, list | tuple) and len({isinstance(value, str) for value in values}) == 2:
        return np.array(values, dtype=object)
    return np.asarray(values)


def _missing(array: Array, code: Any) -> BoolArray:
    """Rows whose label is NaN, None or `code`."""
    if array.dtype.kind == "f":
        gaps = np.isnan(array)
    elif array.dtype.kind == "O":
        gaps = np.fromiter((_is_gap(value) for value in array), dtype=bool, count=len(array))
    else:
        gaps = np.zeros(len(array), dtype=bool)
    if code is not None:
        gaps[~gaps] = np.asarray(array[~gaps] == code, dtype=bool)
    return np.asarray(gaps, dtype=bool)


def _is_gap(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas.NA compares to neither true nor false
        return True
