"""Columns that were taken for features and may be none: row numbers, and numbers of another order than all others."""

from __future__ import annotations

import shlex

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.lab.files.table import Table

#: Fewest rows of which order says something.
ROWS = 10
#: Times the median variance from which on a column hides the others.
DOMINANT = 1e4
#: Columns that are looked at together: bounds the temporary copies.
BLOCK = 64
#: Columns that are named one by one.
NAMED = 3
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def odd_features(table: Table) -> list[str]:
    """Sentences about columns that may be no features; only of named columns in memory."""
    if table.features is None or not isinstance(table.Z, np.ndarray) or len(table.Z) < ROWS:
        return []
    orders = ((j, _order(table.Z[:, j])) for j in range(len(table.features)))
    told = {j: f"{order}; is it a feature? If not" for j, order in orders if order}
    variance = _variances(table.Z)
    positive = variance[variance > 0]
    median = float(np.median(positive)) if len(positive) else np.inf
    for j in np.flatnonzero(variance >= DOMINANT * median).tolist():
        power = str(int(np.log10(variance[j] / median))).translate(SUPERSCRIPTS)
        told.setdefault(
            j, f"has 10{power} times the median variance of the features and will dominate them. If it is no feature"
        )
    notes = [
        f"the column {table.features[j]!r} {what}: --ignore {shlex.quote(table.features[j])}."
        for j, what in list(told.items())[:NAMED]
    ]
    return [*notes, f"so it is with {len(told) - NAMED} more columns."] if len(told) > NAMED else notes


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


def _variances(z: Array) -> FloatArray:
    """Variance of each column, in units in which none can overflow."""
    largest = max(float(z.max()), -float(z.min()))
    if not largest > 0:
        return np.zeros(z.shape[1])
    blocks = range(0, z.shape[1], BLOCK)
    return np.concatenate([np.var(z[:, j : j + BLOCK] / np.float64(largest), axis=0) for j in blocks])
