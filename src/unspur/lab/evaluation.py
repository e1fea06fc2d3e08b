"""What a last layer makes of rows, group by group."""

from __future__ import annotations

from unspur import ERM
from unspur._typing import Array
from unspur.labels import ClassLabel
from unspur.metrics import GroupAccuracy


def judge_last_layer(train: tuple[Array, ClassLabel], test: tuple[Array, ClassLabel, ClassLabel]) -> GroupAccuracy:
    """Train a last layer (ERM) on (Z, y) and count its right predictions on (Z, y, concept)."""
    z, y, concept = test
    known = concept.present
    right = ERM().fit(train[0], train[1].codes).predict(z[known]) == y.codes[known]
    return GroupAccuracy.of(
        right, y.codes[known], concept.codes[known], classes=y.classes, concept_classes=concept.classes
    )
