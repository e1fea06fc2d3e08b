"""Maps for birds and faces that are made up: the concept is seen beside what counts, and all else on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unspur_paper.experiments.registry import PICTURED
from unspur_paper.experiments.synthetic import DIGEST, synthetic_rows
from unspur_paper.networks.maps import Maps

#: Cells of a map along either side, and of a bird.
_GRID, _BIRD = 5, 2
#: Feature of made-up rows that is shifted by the concept.
_BACKGROUND = 1


def synthetic_maps(data: Mapping[str, Any], run: int) -> Maps | None:
    """Maps of made-up test pictures, which add up to their rows; None for data without pictures."""
    if data["name"] not in PICTURED:
        return None
    rows, ids, labels = synthetic_rows(data, run)
    rng = np.random.default_rng([run, 0xCA4])
    test = np.flatnonzero(labels["split"] == "test")
    coverage = np.zeros((len(test), _GRID, _GRID), dtype=np.float32)
    for cells, (top, left) in zip(coverage, rng.integers(_GRID - _BIRD + 1, size=(len(test), 2)), strict=True):
        cells[top : top + _BIRD, left : left + _BIRD] = 1.0
    on, beside = (part / part.sum(axis=(1, 2), keepdims=True) for part in (coverage, 1.0 - coverage))
    values = rows[test][:, :, None, None] * on[:, None]
    values[:, _BACKGROUND] = rows[test][:, _BACKGROUND, None, None] * beside
    return Maps(tuple(ids[i] for i in test), values.astype(np.float16), coverage, {"digest": DIGEST})
