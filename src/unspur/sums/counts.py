"""How many rows, and how much weight, lie in each cell (fold, y, concept); and the weightings built from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from unspur._arrays import cast, namespace, sum_by
from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import GroupSizeError
from unspur.rows import Block, RowSource, Weighting

Balance: TypeAlias = Literal["none", "concept", "main", "group"]


def group_names(classes: tuple[Any, Any], concept_classes: tuple[Any, Any]) -> tuple[str, ...]:
    """What users call the four groups, in the order 2·main + concept."""
    return tuple(f"main={y}, concept={c}" for y in classes for c in concept_classes)


#: Names of the groups of labels that are codes.
GROUPS = group_names((0, 1), (0, 1))


@dataclass(frozen=True, slots=True)
class CellCounts:
    """Rows with positive weight, sum of weights and of their squares per cell.

    Each is of shape (n_folds + 1, 2, 2): fold, y, concept.
    """

    rows: FloatArray
    weight: FloatArray
    squares: FloatArray
    #: What users call the groups, 2·main + concept.
    names: tuple[str, ...] = GROUPS

    @classmethod
    def of(cls, rows: RowSource, names: tuple[str, ...] = GROUPS) -> CellCounts:
        """Count the cells of a row source without reading Z."""
        cells = 4 * (rows.n_folds + 1)

        def count(block: Block) -> Array:
            present = cast(block.weight > 0, np.float64)
            return sum_by(block.cell, namespace(present).stack([present, block.weight, block.weight**2]), cells)

        labels = rows.project(np.empty((rows.n_features, 0)), np.zeros(rows.n_features))
        present, weight, squares = labels.sum(count).reshape(3, -1, 2, 2)
        return cls(present, weight, squares, names)

    @property
    def n_folds(self) -> int:
        """Number of folds that are held out in turn."""
        return len(self.rows) - 1

    def without(self, fold: int | None) -> BoolArray:
        """Mask over fold numbers: all but one (all when None)."""
        return np.array([number != fold for number in range(self.n_folds + 1)])

    def only(self, fold: int) -> BoolArray:
        """Mask over fold numbers: one."""
        return ~self.without(fold)

    @property
    def held_out(self) -> BoolArray:
        """Mask over fold numbers: all that are held out in turn."""
        return self.without(0)

    @property
    def effective_held_out(self) -> FloatArray:
        """Effective number of held-out rows of each group, (Σw)² / Σw², (2, 2): their number if weights are equal."""
        return _effective(self.weight[1:].sum(axis=0), self.squares[1:].sum(axis=0))

    @property
    def effective_held_out_in_all(self) -> float:
        """Effective number of all held-out rows."""
        return float(_effective(self.weight[1:].sum(), self.squares[1:].sum()))

    def weighting(self, folds: BoolArray, balance: Balance) -> Weighting:
        """Weights, summing to one, of the rows in `folds`.

        `balance` gives the classes of the concept, of the main label, or the four groups the same total weight.
        """
        total = self.weight[folds].sum(axis=0)  # (y, concept)
        classes = total.sum(axis=_WITHIN[balance], keepdims=True)
        if np.any(classes <= 0):
            empty = np.argwhere(np.broadcast_to(classes, (2, 2)) <= 0)
            cells = ", ".join(f"({self.names[2 * y + c]})" for y, c in empty)
            raise GroupSizeError(
                f"No rows with positive weight in {cells}, so these classes cannot be given equal weight. "
                "Add such rows, hold out fewer, or use a coarser balance."
            )
        factor = np.zeros_like(self.weight)
        factor[folds] = np.broadcast_to(1.0 / (classes.size * classes), (2, 2))
        return Weighting(factor.ravel())


#: Axes of (y, concept) inside a class of each balance: summed over to get the weight of the class.
_WITHIN: dict[Balance, tuple[int, ...]] = {"none": (0, 1), "concept": (0,), "main": (1,), "group": ()}


def _effective(weight: FloatArray, squares: FloatArray) -> FloatArray:
    """(Σw)² / Σw², and 0 without rows; sums of equal weights round, and a whole number of rows stays one."""
    return np.asarray(np.round(np.divide(weight**2, squares, out=np.zeros_like(weight), where=squares > 0), 9))
