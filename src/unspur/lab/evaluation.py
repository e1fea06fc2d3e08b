"""What a last layer makes of rows, group by group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from unspur._typing import Array, BoolArray, FloatArray
from unspur.clusters import cluster_codes, folds_by_cluster
from unspur.labels import ClassLabel
from unspur.metrics import GroupAccuracy

#: Penalty of the last layer in units of the mean variance of its columns; `heads.ERM` counts independent columns only,
#: which would shift the figures of docs/defaults.md by some tenths.
WEIGHT_DECAY = 0.01


@dataclass(frozen=True, slots=True)
class LastLayer:
    """Logistic regression (ERM) on rows in units in which neither their scale nor their offset matters."""

    centre: FloatArray
    unit: float
    model: LogisticRegression

    @classmethod
    def fit(cls, Z: Array, y: Array) -> LastLayer:
        """Train on rows of shape (n, d)."""
        centre = np.asarray(np.mean(Z, axis=0, dtype=np.float64))
        unit = float(np.sqrt(np.mean(np.var(Z, axis=0, dtype=np.float64)))) or 1.0
        model = LogisticRegression(C=1.0 / (WEIGHT_DECAY * len(Z)), tol=1e-6, max_iter=5000)
        return cls(centre, unit, model.fit((Z - centre) / unit, y))

    def predict(self, Z: Array) -> Array:
        """Predicted labels of rows of shape (n, d)."""
        return self.model.predict((Z - self.centre) / self.unit)

    def linear(self) -> tuple[FloatArray, FloatArray]:
        """Weights (m, d) and bias (m,) of the logits on rows as they came; m = 1 for two classes, for the second."""
        weights = self.model.coef_ / self.unit
        return weights, np.asarray(self.model.intercept_ - weights @ self.centre)


def held_out(
    y: ClassLabel,
    concept: ClassLabel,
    rng: np.random.Generator,
    share: float = 0.3,
    clusters: Array | None = None,
) -> BoolArray:
    """A mask of test rows: a share of each group, of the rows whose concept is known. Shape (n,).

    With labels of `clusters`, (n,), whole clusters are held out, also rows of theirs whose concept is not known.
    """
    held = np.zeros(len(y.codes), dtype=bool)
    group = len(concept.classes) * y.codes + concept.codes
    if clusters is not None:
        code = cluster_codes(clusters, "clusters", len(held))
        group = np.where(concept.present, group, len(y.classes) * len(concept.classes))
        return np.asarray(folds_by_cluster(code, group, np.array([share, 1.0 - share]), rng) == 0)
    for g in range(len(y.classes) * len(concept.classes)):
        members = rng.permutation(np.flatnonzero(concept.present & (group == g)))
        held[members[: round(share * len(members))]] = True
    return held


def judge_last_layer(train: tuple[Array, ClassLabel], test: tuple[Array, ClassLabel, ClassLabel]) -> GroupAccuracy:
    """Train a last layer on (Z, y) and count its right predictions on (Z, y, concept)."""
    z, y, concept = test
    known = concept.present
    right = LastLayer.fit(train[0], train[1].codes).predict(z[known]) == y.codes[known]
    return GroupAccuracy.of(
        right, y.codes[known], concept.codes[known], classes=y.classes, concept_classes=concept.classes
    )
