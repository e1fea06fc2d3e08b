"""From what a user passes to `fit` of a last layer to labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, column_or_1d

from unspur._data import LabelledData, read_data
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.rows import to_host


@dataclass(frozen=True, slots=True)
class HeadData:
    """Training rows, rows to judge on if any were passed, and the values behind the codes."""

    train: LabelledData
    validation: LabelledData | None
    classes: Array
    concept_classes: tuple[Any, ...] | None


def head_data(
    estimator: BaseEstimator,
    train: dict[str, Any],
    validation: dict[str, Any],
    missing: Any,
    *,
    needs_concept: bool,
) -> HeadData:
    """Check and decode arguments of `fit`: X, y, concept, sample_weight and clusters of either set.

    Without `needs_concept` that of the training rows is not looked at: they have one group per class. That of a
    validation set is, where it is passed.
    """
    train = {**train, "y": _one_column(train["y"], "y")}
    rows = read_data(estimator, **train, missing=missing, needs_concept=needs_concept).with_labels()
    rows.require_classes("with a positive weight" + (" and a known concept" if needs_concept else ""))
    given = np.asarray(train["y"]).dtype
    classes = np.array(rows.main.classes, dtype=given if given.kind in "biufUO" else None)
    known = rows.concept.classes if needs_concept else None
    if all(value is None for value in validation.values()):
        return HeadData(rows, None, classes, known)
    if any(validation[name] is None for name in (("X", "y", "concept") if needs_concept else ("X", "y"))):
        raise InputError("A validation set needs X_val, y_val and concept_val together.")
    validation = {**validation, "y": _one_column(validation["y"], "y_val")}
    held_out = read_data(estimator, **validation, missing=missing, like=rows, needs_concept=needs_concept)
    return HeadData(rows, held_out.with_labels(), classes, known)


def _one_column(y: Any, name: str) -> Any:
    """The main label on the host, as one column; infinity is no class."""
    y = to_host(y)[0]
    if getattr(y, "ndim", 1) != 1:
        y = column_or_1d(y, warn=True)
    if getattr(y, "dtype", np.dtype(object)).kind == "f":
        assert_all_finite(y, allow_nan=True, input_name=name)
    return y
