"""A look at rows before they are used: labels that are none, columns that may be no features, rows with no concept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unspur.cli.words import say

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.io.table import Table
    from unspur.labels import ClassLabel

#: Different values up to which a column of numbers may be classes.
FEW = 10
#: Rows that tell whether a column is a label.
HEAD = 10_000


def look_at(table: Table, main: str, concepts: Sequence[str]) -> list[str]:
    """Refuse labels that are no classes, and note on standard error what may be no feature; the notes are returned."""
    from unspur.io.table import odd_features

    _require_classes(table.label(main), main)
    for concept in concepts:
        _require_classes(
            table.label(concept), concept,
            " (Concepts that are numbers: LEACE and SAL in Python, with concept_type='continuous'.)",
        )  # fmt: skip
    notes = odd_features(table)
    for note in notes:
        say(f"Note: {note}", err=True)
    return notes


def say_left_out(concepts: Mapping[str, ClassLabel], *, together: bool = False, of: str = "the fit") -> list[str]:
    """Note on standard error how many rows have no concept, and what they are left out `of`; the notes are returned.

    With several, rows are left out of the fit of the concept that they lack; `together`: of all.
    """
    from unspur.labels import joint_label

    if together and len(concepts) > 1:
        concepts = {" or no ".join(concepts): joint_label(list(concepts.values()))}
    notes = []
    for name, label in concepts.items():
        n, gone = len(label.present), int((~label.present).sum())
        if gone:
            have, are = ("has", "it is") if gone == 1 else ("have", "they are")
            what = of if len(concepts) == 1 else f"{of} of {name}"
            notes.append(f"{gone:,} of {n:,} rows {have} no {name}; {are} left out of {what}.")
            say(f"Note: {notes[-1]}", err=True)
    return notes


def _require_classes(values: Array, name: str, hint: str = "") -> None:
    """Raise LabelError where a column holds many fractions, or something else in about every row."""
    from unspur.exceptions import LabelError

    if values.ndim == 2 and values.shape[1] > 1:
        raise LabelError(
            f"{name} is an array of shape {values.shape}; a label is one column. Write each concept under a name of "
            "its own, and repeat --concept."
        )
    head = values[:HEAD].tolist() if values.ndim == 1 else []
    if any(isinstance(value, list | dict) for value in head[:1]):
        return  # others say that this is no column of a label
    known = list(dict.fromkeys(value for value in head if not _is_gap(value)))
    numbers = [_number(value) for value in known]
    fractions = None not in numbers and any(number != round(number) for number in numbers if number is not None)
    if len(known) <= FEW or not (fractions or len(known) > len(head) / 2):
        return
    many = len({value for value in values.tolist() if not _is_gap(value)})
    shown = ", ".join(
        f"{number:.4g}" if fractions else str(value) for value, number in list(zip(known, numbers, strict=True))[:3]
    )
    raise LabelError(
        f"{name} has {many:,} different values, such as {shown}; a label has a few classes.{hint if fractions else ''}"
    )


def _is_gap(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _number(value: Any) -> float | None:
    """A value as a finite number, also where it was read as text."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
