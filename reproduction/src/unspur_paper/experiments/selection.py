"""The paper's choice of hyper-parameters for JSE: by the first pair, at the strongest correlation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from sklearn.base import clone

from unspur import JSE
from unspur.exceptions import InputError
from unspur.removers.joint import PAPER_PENALTIES
from unspur.rows import CONCEPT, MAIN
from unspur.selection import ensure_decoded

#: The paper's grids, for the exact solver and for SGD.
EXACT_GRID = {"weight_decay": PAPER_PENALTIES}
SGD_GRID = {"learning_rate": (1e-1, 1e-2, 1e-3, 1e-4), "weight_decay": (0.0, 1e-3, 1e-2, 1e-1, 1.0)}


@dataclass(frozen=True, slots=True)
class FirstPairSelection:
    """Chosen parameters of JSE, the strength they were chosen at, and the loss of every combination tried there."""

    parameters: dict[str, Any]
    strength: float
    table: tuple[tuple[dict[str, Any], float], ...]


def select_first_pair(
    jse: JSE, grid: Mapping[str, Sequence[Any]], sets: Mapping[float, tuple[Any, Any]]
) -> FirstPairSelection:
    """Choose parameters by the loss of the first pair on validation rows, at the strongest correlation.

    `sets` maps the strength of the correlation to training and validation rows. The loss is the group-weighted one of
    both labels, each along its own direction.
    """
    strength = max(sets)
    train, validation = (ensure_decoded(rows) for rows in sets[strength])
    arguments = {**train.arguments(clusters=False), **validation.arguments("_val", clusters=False)}

    def loss(parameters: dict[str, Any]) -> float:
        total = 0.0
        # A limit of one for one role and none for the other leaves a single test: that of the first pair's direction.
        for limits, label in (
            ({"max_spurious": 0, "max_main": 1}, MAIN),
            ({"max_spurious": 1, "max_main": 0}, CONCEPT),
        ):
            tried = clone(jse).set_params(**parameters, **limits)
            with warnings.catch_warnings(action="ignore"):
                tried.fit(**arguments)
            total += float(next(iter(tried.trace_)).verdict.losses[label].mean())
        return total

    table = [
        (parameters, loss(parameters))
        for parameters in (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    ]
    if not table:
        raise InputError("The grid is empty; there is nothing to choose from.")
    return FirstPairSelection(min(table, key=lambda line: line[1])[0], strength, tuple(table))
