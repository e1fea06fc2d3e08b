"""Pictures before and after removal, for a page that is made where the data are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.embedded import fitted_removal
from unspur_paper.experiments.registry import PIXELS
from unspur_paper.experiments.spec import Experiment
from unspur_paper.experiments.stores import open_embedded


@dataclass(frozen=True, slots=True)
class Changed:
    """Some test pictures, shape (n, side, side), and what each method makes of them."""

    names: tuple[str, ...]
    before: FloatArray
    after: dict[str, FloatArray]


def changed_pictures(experiment: Experiment, embeddings: Path, *, each: int = 2, run: int = 0) -> Changed:
    """Fit every remover of an experiment on pictures, and show `each` test pictures of every group before and after."""
    cells = {cell.method: cell.spec for cell in experiment.cells("exact", run + 1) if cell.spec["run"] == run}
    cells = {name: spec for name, spec in cells.items() if spec["remover"]["name"] != "none"}
    data = next(iter(cells.values()))["dataset"]
    if data["encoder"] not in PIXELS:
        raise InputError(f"{experiment.name} is about embeddings by {data['encoder']}; pictures need {PIXELS[0]!r}.")
    first = draw(data, run, embeddings)
    test, members = first.test, first.members["test"]
    chosen = np.concatenate([np.flatnonzero(test.group == g)[:each] for g in range(4)])
    names = [f"{data['main']} = {test.y[i]}, {data['concept']} = {test.concept[i]}" for i in chosen]
    before = np.asarray(open_embedded(data, run, embeddings).rows[members[chosen]], dtype=np.float64)
    after = {}
    for name, spec in cells.items():
        drawn, removal = fitted_removal(spec, embeddings)
        seen = drawn.test.select(chosen)
        # The change, and not what principal components leave out besides.
        after[name] = _square(before + drawn.unreduced(removal(seen).Z) - drawn.unreduced(seen.Z))
    return Changed(tuple(names), _square(before), after)


def _square(rows: Array) -> FloatArray:
    side = math.isqrt(rows.shape[1])
    return np.asarray(rows, dtype=np.float64).reshape(-1, side, side)
