"""Tests of JSE whose slope and intercept are fitted on the rows that a direction was estimated from, as in the paper.

The library fits them on held-out rows: those of rows that an encoder knows by heart are far too confident.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.criteria import Average, DirectionTests, _fit_scalars
from unspur.rows import Block, MappedRows, RowSource, validation_part
from unspur.solvers.held_out_losses import GroupLosses, _group_sums, _series, clustered_losses
from unspur.solvers.statistics import CellCounts


@dataclass(frozen=True, slots=True)
class TrainingScalars(DirectionTests):
    """The tests of the library, with the scalars of each fold fitted on the rows outside it.

    γ on held-out rows is not known then, so a direction that points away from its label is judged by its losses alone.
    """

    def losses(self, rows: RowSource, counts: CellCounts, directions: FloatArray, centre: FloatArray) -> GroupLosses:
        """Held-out losses of both labels along `directions`, shape (folds, d): row k − 1 for the rows of fold k."""
        scores = rows.project(directions.T, centre)
        return replace(self._summed(scores, counts), shared_noise=self._shared_noise(scores, counts))

    def own_losses(
        self, rows: RowSource, counts: CellCounts, directions: FloatArray, centre: FloatArray
    ) -> tuple[Average, Average]:
        """Held-out loss of each label along its own directions, shape (2, folds, d): concept, main."""
        summed = self._summed(rows.project(directions.reshape(-1, directions.shape[-1]).T, centre), counts)
        return self.summarise(summed, "concept"), self.summarise(summed, "main")

    def _summed(self, scores: RowSource, counts: CellCounts) -> GroupLosses:
        """Sums over the held-out rows, those of each fold by the scalars that the other rows give."""
        labels = validation_part(scores).labels
        losses, fold_of = np.zeros((2, len(labels))), labels.cell >> 2
        for fold in range(1, counts.n_folds + 1):
            losses = np.where(fold_of == fold, self._losses_outside(scores, counts, fold), losses)
        chance = self._chance(counts)
        if self.clusters is not None:
            return clustered_losses(losses, chance, self.clusters)
        return _group_sums(_series(losses, labels.targets, chance), labels.weight * (fold_of >= 1), labels.cell)

    def _losses_outside(self, scores: RowSource, counts: CellCounts, fold: int) -> FloatArray:
        """Loss of each label for each row, (2, n), along the directions of a fold, by scalars fitted outside it."""

        def along(block: Block) -> Array:
            return block.z[:, fold - 1 :: counts.n_folds]

        weighting, held_out = counts.weighting(counts.without(fold), self._balance), validation_part(scores)
        fit = _fit_scalars(MappedRows(scores, along), weighting)
        x = np.concatenate(held_out.sum(lambda block: [along(block).T]), axis=1)
        logits = fit.gamma[:, None] * fit.standardise(x) + fit.intercept[:, None]
        return np.asarray(np.logaddexp(0.0, logits) - held_out.labels.targets * logits)
