"""The paper's choice of what is left open in a last layer: the smallest loss on validation rows, groups alike."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from unspur._typing import BoolArray
from unspur_paper.experiments.variants import RENAMED
from unspur_paper.rows import Rows

_DECAYS = (1.0, 0.1, 0.01, 1e-3, 1e-4)
#: The paper's grids, and one for each last layer that it does not have.
GRIDS: dict[str, dict[str, Sequence[float]]] = {
    **{name: {"weight_decay": _DECAYS} for name in ("ERM", "GroupWeighted", "SUBG", "DFR")},
    "GroupDRO": {"weight_decay": _DECAYS[:4], "adjustment": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)},
    "JTT": {"weight_decay": _DECAYS[:4], "upweight": (2.0, 5.0, 10.0, 25.0)},
    "AFR": {"weight_decay": _DECAYS[:4], "gamma": (0.0, 2.0, 4.0, 8.0, 16.0)},
}


def settings_of(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """All combinations, by the names of specs."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def with_settings(head: Any, settings: Mapping[str, Any]) -> Any:
    """A clone of a head with settings of a grid."""
    return clone(head).set_params(**{RENAMED.get(name, name): value for name, value in settings.items()})


def select_head(
    head: Any, grid: Mapping[str, Sequence[float]], train: Rows, validation: Rows, held_out: Rows | None = None
) -> tuple[Any, dict[str, float]]:
    """The fitted head of the grid with the smallest `group_loss` on validation rows, and its settings.

    `held_out` are rows that go to the fit itself, for heads that train on such.
    """
    more = {} if held_out is None else held_out.arguments("_val")
    settings = settings_of(grid)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # a fit that fails is not chosen
        fitted = [with_settings(head, given).fit(**train.arguments(), **more) for given in settings]
    best = int(np.argmin([group_loss(one, validation) for one in fitted]))
    return fitted[best], settings[best]


def group_loss(head: Any, rows: Rows) -> float:
    """Mean over groups of their mean log losses."""
    code = np.searchsorted(head.classes_, rows.y)
    losses = -np.log(np.maximum(head.predict_proba(rows.Z)[np.arange(len(rows)), code], 1e-300))
    total = np.bincount(rows.group)
    return float(np.mean(np.bincount(rows.group, weights=losses)[total > 0] / total[total > 0]))


def half_of_each_group(rows: Rows, rng: np.random.Generator) -> BoolArray:
    """Mask of a random half of each group: one row at least, but never the only one."""
    held = np.zeros(len(rows), dtype=bool)
    for g in np.unique(rows.group):
        members = rng.permutation(np.flatnonzero(rows.group == g))
        held[members[: min(max(1, round(0.5 * len(members))), len(members) - 1)]] = True
    return held
