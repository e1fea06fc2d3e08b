"""Accuracy in each group (main, concept), the worst of them, and two averages that are not the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError


@dataclass(frozen=True, slots=True)
class GroupAccuracy:
    """Rows and correct predictions per group, both of shape (2, 2): main, concept; with the names of the classes."""

    rows: IntArray
    correct: IntArray
    classes: tuple[Any, Any]
    concept_classes: tuple[Any, Any]

    @classmethod
    def of(
        cls,
        correct: Array,
        y: Array,
        concept: Array,
        *,
        classes: tuple[Any, Any] = (0, 1),
        concept_classes: tuple[Any, Any] = (0, 1),
    ) -> GroupAccuracy:
        """Count; `y` and `concept` are codes 0 and 1, `correct` says which predictions were right."""
        cell = 2 * np.asarray(y, dtype=np.intp) + np.asarray(concept, dtype=np.intp)
        rows = np.bincount(cell, minlength=4).reshape(2, 2)
        if rows.min() == 0:
            y0, c0 = np.argwhere(rows == 0)[0]
            raise InputError(
                f"No rows with main={classes[y0]}, concept={concept_classes[c0]}: its accuracy is unknown, and so is "
                "the worst group. Evaluate on rows of all four groups."
            )
        right = np.bincount(cell, weights=np.asarray(correct, dtype=np.float64), minlength=4).astype(np.intp)
        return cls(rows, right.reshape(2, 2), classes, concept_classes)

    @property
    def accuracy(self) -> FloatArray:
        """Accuracy of each group, shape (2, 2)."""
        return np.asarray(self.correct / self.rows)

    @property
    def worst(self) -> float:
        """Accuracy of the worst group (the plug-in minimum, which is biased low)."""
        return float(self.accuracy.min())

    @property
    def group_average(self) -> float:
        """Mean of the four group accuracies: every group counts the same."""
        return float(self.accuracy.mean())

    @property
    def average(self) -> float:
        """Share of all rows that are right: every row counts the same."""
        return float(self.correct.sum() / self.rows.sum())

    def interval(self, level: float = 0.95) -> FloatArray:
        """Wilson interval of each group's accuracy, shape (2, 2, 2): main, concept, (low, high)."""
        z = float(norm.ppf(0.5 + level / 2))
        n, p = self.rows, self.accuracy
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
        return np.stack([centre - half, centre + half], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        interval = self.interval()
        groups = [
            {
                "main": self.classes[y],
                "concept": self.concept_classes[c],
                "rows": int(self.rows[y, c]),
                "accuracy": float(self.accuracy[y, c]),
                "low95": float(interval[y, c, 0]),
                "high95": float(interval[y, c, 1]),
            }
            for y in (0, 1)
            for c in (0, 1)
        ]
        return {"groups": groups, "worst": self.worst, "group_average": self.group_average, "average": self.average}
