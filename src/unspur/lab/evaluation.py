"""What a last layer makes of rows, group by group."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from unspur._typing import Array
from unspur.labels import BinaryLabel
from unspur.metrics import GroupAccuracy

#: Penalty of the last layer in units of the mean variance of its rows.
WEIGHT_DECAY = 0.01


def last_layer(Z: Array, y: Array) -> LogisticRegression:
    """Logistic regression (ERM) on rows, with a penalty that does not depend on their scale."""
    decay = WEIGHT_DECAY * float(np.var(Z, axis=0, dtype=np.float64).mean())
    return LogisticRegression(C=1.0 / max(decay * len(Z), 1e-300), max_iter=2000).fit(Z, y)


def judge_last_layer(train: tuple[Array, BinaryLabel], test: tuple[Array, BinaryLabel, BinaryLabel]) -> GroupAccuracy:
    """Train a last layer on (Z, y) and count its right predictions on (Z, y, concept)."""
    z, y, concept = test
    known = concept.present
    right = last_layer(train[0], train[1].codes).predict(z[known]) == y.codes[known]
    return GroupAccuracy.of(
        right, y.codes[known], concept.codes[known], classes=y.classes, concept_classes=concept.classes
    )
