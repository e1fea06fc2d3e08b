"""Where a last layer looks: the share of its Grad-CAM map that lies on the bird or the mouth, group by group.

A removal and a last layer are one layer on the rows of the store, and the map of a picture is linear in its weights
(`unspur_paper.networks.maps`). So what is measured is the very layer whose accuracy is, and no network is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import ArtifactError
from unspur_paper.embedding.store import Reduction
from unspur_paper.experiments.fitting import LinearHead, Removal
from unspur_paper.experiments.registry import CONCEPT, MADE_UP
from unspur_paper.experiments.stores import Embedded, found_folder, open_embedded
from unspur_paper.experiments.synthetic_maps import synthetic_maps
from unspur_paper.networks.maps import Maps, read_maps


@dataclass(frozen=True, slots=True)
class Layer:
    """logit = weights · z + bias on the rows z of a store, shape (k,)."""

    weights: FloatArray
    bias: float

    @classmethod
    def of(cls, last: LinearHead, removal: Removal, reduction: Reduction | None) -> Layer:
        """The last layer with the removal and the principal components before it folded in."""
        weights, bias = last.weights[None].astype(np.float64), np.array([last.bias])
        if removal.map is not None:
            weights, bias = removal.map.fold_into(weights, bias)
        weights = weights[0]
        if reduction is None:
            return cls(weights, float(bias[0]))
        weights = reduction.components @ weights
        return cls(weights, float(bias[0] - weights @ reduction.mean))

    def __call__(self, rows: Array) -> FloatArray:
        """Logits, shape (n,)."""
        return np.asarray(rows @ self.weights + self.bias)


def open_maps(data: Mapping[str, Any], run: int, embeddings: Path) -> Maps | None:
    """The maps beside the rows of a run; None where there are none."""
    return synthetic_maps(data, run) if data["encoder"] == MADE_UP else read_maps(found_folder(data, run, embeddings))


def looked_at(layer: Layer, data: Mapping[str, Any], run: int, embeddings: Path) -> dict[str, Any]:
    """What `inside` finds on the test pictures of a run; nothing where no maps were written."""
    maps = open_maps(data, run, embeddings)
    if maps is None:
        return {}
    return inside(layer.weights, maps, groups_of(maps, open_embedded(data, run, embeddings), CONCEPT[data["name"]]))


def numbers_of(names: Sequence[str], ids: Sequence[str]) -> IntArray:
    """Where each of the pictures called `names` is among `ids`, shape (m,)."""
    number = {name: i for i, name in enumerate(ids)}
    missing = [name for name in names if name not in number]
    if missing:
        raise ArtifactError(
            f"Maps and rows are not of the same pictures: {len(missing)} are in one place only, the first "
            f"{missing[0]}. Write the maps again, for pictures of the store."
        )
    return np.array([number[name] for name in names], dtype=np.int64)


def groups_of(maps: Maps, embedded: Embedded, concept: str = "background") -> IntArray:
    """2 · y + concept of each picture that has a map; -1 for one that is no test picture. Shape (m,)."""
    rows, labels = numbers_of(maps.ids, embedded.ids), embedded.labels
    group = 2 * labels["y"][rows] + labels[concept][rows]
    return np.where(labels["split"][rows] == "test", group, -1)


def inside(weights: Array, maps: Maps, group: Array) -> dict[str, Any]:
    """Mean over the pictures of each group of the share of a map that lies inside the mask, and of the mask's area.

    The area is what a map gives that is the same everywhere. A picture whose map is zero has no share; a group without
    any has None. Groups are numbered 0 to 3, and other numbers are left out.
    """
    found, area = shares(maps.signed(weights), maps.coverage), maps.coverage.mean(axis=(1, 2))
    return {"inside": _means(found, group), "inside_area": _means(area, group)}


def shares(signed: Array, coverage: Array) -> FloatArray:
    """Σ_u |M(u)| coverage(u) / Σ_u |M(u)| of each map, shape (m,); NaN where the map is zero."""
    size = np.abs(np.asarray(signed, dtype=np.float64))
    total = size.sum(axis=(1, 2))
    # Not total = 0 replaced afterwards: dividing by it would warn.
    return np.asarray((size * coverage).sum(axis=(1, 2)) / np.where(total > 0, total, np.nan))


def _means(values: Array, group: Array) -> list[float | None]:
    found = [values[(group == g) & np.isfinite(values)] for g in range(4)]
    return [float(part.mean()) if len(part) else None for part in found]
