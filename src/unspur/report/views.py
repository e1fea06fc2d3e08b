"""Rows seen along directions: axes, scores before and after, where last layers decide, and rows far out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.heads import Head
from unspur.metrics import principal_angles, shared_variance
from unspur.removers import Remover
from unspur.report.results import Axis, Boundary, Extremes, Role, View
from unspur.subspace import Subspace

#: Directions of each subspace that are looked along.
MOST_AXES = 6
#: Rows on either end of an axis that are shown.
FARTHEST = 6
#: Axes closer to each other than this cosine are one.
SAME = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Directions:
    """Axes and their directions, unit columns of shape (d, m)."""

    axes: tuple[Axis, ...]
    columns: FloatArray

    def of(self, *roles: Role) -> list[int]:
        """Numbers of the axes that have one of these roles."""
        return [i for i, axis in enumerate(self.axes) if axis.role in roles]


def directions_of(
    remover: Remover, names: tuple[Sequence[str], str], layers: tuple[Head, Head], rows: Array
) -> Directions:
    """The spurious and the main-task directions, then those of the last layers before and after.

    `names` are those of the spurious directions, and of the main label.

    A last layer that points where an earlier axis does is left out: two axes in one direction span no plane. Where that
    leaves a single axis, the direction of the largest variance beside it in `rows` is a second one.
    """
    spurious, main = names
    found = [
        (Axis(name, "spurious"), np.asarray(direction))
        for name, direction in zip(spurious[:MOST_AXES], read_along(remover).T, strict=False)
    ]
    found += [
        (Axis(f"{main} {i + 1}", "main"), np.asarray(direction))
        for i, direction in enumerate(remover.main_.basis.T[:MOST_AXES])
    ]
    for name, layer in zip(("before", "after"), layers, strict=True):
        direction = layer_direction(layer)
        if direction is not None and not _there(direction, found):
            found.append((Axis(f"last layer, {name}", "layer"), direction))
    if len(found) < 2 and rows.shape[1] > 1:
        found.append((Axis("largest variance", "layer"), _largest_variance(rows, [one for _, one in found])))
    return Directions(tuple(axis for axis, _ in found), np.column_stack([direction for _, direction in found]))


def read_along(remover: Remover) -> FloatArray:
    """Directions (d, k) of the scores that a removal takes out: after it, all rows have the same.

    Of an orthogonal removal they span `spurious_`. An oblique one, x ↦ x − (x − c) R Lᵀ, subtracts multiples of L,
    which `spurious_` of LEACE and SPLINCE is, and takes out scores along R.
    """
    removal, spurious = remover.removal_, remover.spurious_
    if removal.form == "keep" or not removal.right.shape[1]:
        return spurious.basis
    outside = removal.right - spurious.basis @ (spurious.basis.T @ removal.right)
    if np.linalg.norm(outside) <= 1e-8 * np.linalg.norm(removal.right):
        return spurious.basis
    return Subspace.spanned_by(removal.right).basis


def layer_direction(layer: Head) -> FloatArray | None:
    """Unit direction (d,) along which the logits of a last layer change most; None where none of them does.

    Of two classes, the weights of the second; of more, the first right singular vector of the weights, turned so that
    later classes lie higher.
    """
    weights = layer.coef_
    if len(weights) == 1:
        direction = weights[0]
    else:
        centred = weights - weights.mean(axis=0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        order = np.arange(len(weights)) - (len(weights) - 1) / 2
        direction = direction * (1.0 if order @ (centred @ direction) >= 0 else -1.0)
    length = float(np.linalg.norm(direction))
    return np.asarray(direction / length) if length > 0 else None


def view_of(directions: Directions, remover: Remover, before: Array, after: Array, layers: tuple[Head, Head]) -> View:
    """Scores of rows as they are and cleaned, from the centre of the removal, and the layers along the axes."""
    centre, columns = remover.removal_.centre, directions.columns
    scores = [np.asarray((rows - centre) @ columns) for rows in (before, after)]
    decided = [_boundary(layer, centre, columns) for layer in layers]
    return View(directions.axes, scores[0], scores[1], columns.T @ columns, decided[0], decided[1])


def _boundary(layer: Head, centre: FloatArray, columns: FloatArray) -> Boundary | None:
    weights, bias = layer.coef_, layer.intercept_
    if len(weights) > 1:
        return None
    return Boundary(float(weights[0] @ centre + bias[0]), np.asarray(columns.T @ weights[0]))


def extremes_of(directions: Directions, scores: FloatArray) -> tuple[Extremes, ...]:
    """Rows farthest out along every spurious and main-task axis, of `scores` (n, m)."""
    found = []
    for axis in directions.of("spurious", "main"):
        # Stable: rows that are equally far out come in their order, the same every time.
        order = np.argsort(scores[:, axis], kind="stable")
        backwards = np.argsort(-scores[:, axis], kind="stable")
        few = min(FARTHEST, len(order) // 2)
        found.append(Extremes(axis, order[:few], backwards[:few]))
    return tuple(found)


def in_common(spurious: FloatArray, main: FloatArray, rows: Array) -> tuple[tuple[float, ...], float | None]:
    """Principal angles in degrees, and the share of variance that scores of `rows` along the two have in common.

    Both are orthonormal columns, those that are looked along (`read_along`): angles are those of the axes drawn.
    """
    k = spurious.shape[1]
    if not k or not main.shape[1]:
        return (), None
    angles = tuple(float(angle) for angle in principal_angles(Subspace(spurious), Subspace(main)))
    both = np.column_stack([spurious, main])
    scores = (rows - rows.mean(axis=0, dtype=np.float64)) @ both
    covariance = scores.T @ scores / len(scores)
    # The same number from the covariance of the scores as from that of the rows, which has d² entries.
    unit = np.eye(both.shape[1])
    if not all(np.trace(part) > 0 for part in _blocks(covariance, k)):
        return angles, None
    return angles, shared_variance(Subspace(unit[:, :k]), Subspace(unit[:, k:]), covariance)


def _blocks(covariance: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    return covariance[:k, :k], covariance[k:, k:]


def _there(direction: FloatArray, found: list[tuple[Axis, FloatArray]]) -> bool:
    return any(abs(direction @ other) > SAME * np.linalg.norm(other) for _, other in found)


def _largest_variance(rows: Array, besides: list[FloatArray]) -> FloatArray:
    """First principal direction (d,) of rows, orthogonal to some directions, its largest entry positive."""
    centred = np.asarray(rows - rows.mean(axis=0, dtype=np.float64))
    for direction in besides:
        centred = centred - np.outer(centred @ direction, direction)
    direction = np.linalg.svd(centred, full_matrices=False)[2][0]
    return np.asarray(direction * np.sign(direction[np.argmax(np.abs(direction))]))
