"""Columns that were taken for features and may be none: row numbers, and numbers of another order than all others."""

from __future__ import annotations

import shlex

import numpy as np

from unspur._typing import Array
from unspur.io.table import Table
from unspur.selection import column_variances

#: Fewest rows of which order says something.
ROWS = 10
#: Times the median variance from which on a column hides the others.
DOMINANT = 1e4
#: Columns that are named one by one.
NAMED = 3
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def odd_features(table: Table) -> list[str]:
    """Sentences about columns that may be no features; only of named columns in memory."""
    if table.features is None or not isinstance(table.Z, np.ndarray) or len(table.Z) < ROWS:
        return []
    orders = ((j, _order(table.Z[:, j])) for j in range(len(table.features)))
    told = {j: f"{order}; is it a feature? If not" for j, order in orders if order}
    for j, what in dominating(table.Z).items():
        told.setdefault(j, f"{what}. If it is no feature")
    notes = [
        f"the column {table.features[j]!r} {what}: --ignore {shlex.quote(table.features[j])}."
        for j, what in list(told.items())[:NAMED]
    ]
    return [*notes, f"so it is with {len(told) - NAMED} more columns."] if len(told) > NAMED else notes


def dominating(Z: Array) -> dict[int, str]:
    """What is to be said of columns that hide the others, by their number."""
    variance = column_variances(Z)
    positive = variance[variance > 0]
    median = float(np.median(positive)) if len(positive) else np.inf
    powers = {j: int(np.log10(variance[j] / median)) for j in np.flatnonzero(variance >= DOMINANT * median).tolist()}
    times = {j: f"10{str(power).translate(SUPERSCRIPTS)}" for j, power in powers.items()}
    return {j: f"has {n} times the median variance of the features and will dominate them" for j, n in times.items()}


def _order(column: Array) -> str:
    """What the order of whole numbers says of a column; nothing of others."""
    head = column[:ROWS]
    if not np.array_equal(head, np.floor(head)) or len(np.unique(head)) < len(head):
        return ""
    column = np.asarray(column, dtype=np.float64)  # differences of unsigned numbers would have no sign
    if not np.array_equal(column, np.floor(column)):
        return ""
    if np.all(np.diff(np.sort(column)) == 1):
        return "counts the rows"
    return "rises from row to row" if np.all(np.diff(column) > 0) else ""
