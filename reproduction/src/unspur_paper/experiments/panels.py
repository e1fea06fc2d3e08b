"""What the illustration draws: rows in a plane, before and after each direction is removed."""

from __future__ import annotations

from typing import Any

import numpy as np

from unspur import ERM, Subspace
from unspur._typing import FloatArray
from unspur_paper.rows import Rows

#: Rows that are kept for a scatter plot, and directions after which one is made.
POINTS, STEPS = 600, 2


def panels(rows: Rows, spurious: Subspace, main: Subspace, axes: tuple[FloatArray, FloatArray]) -> list[dict[str, Any]]:
    """One panel before any removal, in the plane of the two features; then one after each direction (two at most).

    Later panels lie in the plane that separates the main-task labels best: along the weights of a logistic
    regression, and along those of a second one orthogonal to it. Each holds points, labels, and the directions found,
    as they lie in the plane: the spurious one that is removed next, and in the first panel the main-task ones and the
    two label vectors.
    """
    d = rows.Z.shape[1]
    centred = rows.Z - rows.Z.mean(axis=0)
    found = []
    for step in range(min(spurious.dim, STEPS) + 1):
        removed = Subspace(spurious.basis[:, :step])
        left = centred - removed.component(centred.T).T
        plane = np.eye(d)[:, :2] if step == 0 else _separating(left, rows)
        arrows = []
        if step < spurious.dim:
            arrows.append(_arrow("spurious", spurious.basis[:, step], plane))
        if step == 0:
            arrows += [_arrow("main", direction, plane) for direction in main.basis.T[:1]]
            arrows += [
                _arrow(f"true {role}", axis, plane) for role, axis in zip(("spurious", "main"), axes, strict=True)
            ]
        found.append(
            {
                "removed": step,
                "points": np.round(left[:POINTS] @ plane, 2).tolist(),
                "main": rows.y[:POINTS].tolist(),
                "concept": rows.concept[:POINTS].tolist(),
                "arrows": arrows,
            }
        )
    return found


def _separating(z: FloatArray, rows: Rows) -> FloatArray:
    """Orthonormal directions (d, 2) that separate the main-task labels best, one after the other."""
    plane = Subspace.empty(z.shape[1])
    for _ in range(2):
        left = z - plane.component(z.T).T
        plane = plane.with_direction(ERM().fit(left, rows.y).coef_[0])
    return plane.basis


def _arrow(role: str, direction: FloatArray, plane: FloatArray) -> dict[str, Any]:
    unit = direction / np.linalg.norm(direction)
    return {"role": role, "at": np.round(unit @ plane, 3).tolist()}
