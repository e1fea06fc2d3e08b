"""Rows that look like embeddings of Waterbirds and CelebA, and are drawn in a moment: for smoke runs and tests.

Main label, concept and, for faces, a second concept lie along directions of their own; pictures have them at the places
where glasses and smiles are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray
from unspur.lab.datasets.celeba import EYES, MOUTH, box_mask
from unspur.lab.experiments.registry import MADE_UP_PIXELS

#: Changes when the rows do.
DIGEST = "made-up-1"
SIDE = 12
_WIDTH, _BIRDS, _FACES = 40, {"train": 400, "validation": 200, "test": 400}, 3000
#: Distance of the two classes of a label, in standard deviations of a feature.
_APART = 3.0

Rows = tuple[Array, tuple[str, ...], dict[str, Array]]


def made_up_rows(data: Mapping[str, Any], run: int) -> Rows:
    """Rows, ids and labels for a dataset of the registry."""
    rng = np.random.default_rng([run, 0xFACE])
    return _birds(rng) if data["name"] == "waterbirds" else _faces(data, rng)


def _birds(rng: np.random.Generator) -> Rows:
    """Every bird on land and on water; one in four is a waterbird."""
    split = np.repeat(list(_BIRDS), list(_BIRDS.values()))
    y = (rng.random(len(split)) < 0.25).astype(np.int64)
    bird = rng.standard_normal((len(split), _WIDTH))
    bird[:, 0] += _APART * (y - 0.5)
    rows = np.repeat(bird, 2, axis=0) + 0.3 * rng.standard_normal((2 * len(split), _WIDTH))
    background = np.tile(np.arange(2), len(split))
    rows[:, 1] += _APART * (background - 0.5)
    species = np.where(y == 1, "001.Some_Gull", "002.Some_Wren")
    ids = tuple(f"{species[i // 2]}/{i // 2}@{i % 2}" for i in range(len(rows)))
    labels = {"y": np.repeat(y, 2), "background": background, "split": np.repeat(split, 2),
              "bird": np.repeat(np.arange(len(split)), 2)}  # fmt: skip
    return rows.astype(np.float32), ids, labels


def _faces(data: Mapping[str, Any], rng: np.random.Generator) -> Rows:
    """Faces whose attributes are independent, and as frequent as not."""
    names = [name.removeprefix("not ") for name in (data["main"], data["concept"], data["second"]) if name != "none"]
    labels = {name: rng.integers(2, size=_FACES) for name in dict.fromkeys(names)}
    if data["encoder"] == MADE_UP_PIXELS:
        rows = 0.5 + 0.08 * rng.standard_normal((_FACES, SIDE * SIDE))
        for column, place in zip(labels.values(), (EYES, MOUTH), strict=False):
            rows += 0.07 * np.outer(column - 0.5, _flat(box_mask(place, SIDE)))
    else:
        rows = rng.standard_normal((_FACES, _WIDTH))
        rows[:, : len(labels)] += _APART * (np.column_stack(list(labels.values())) - 0.5)
    return rows.astype(np.float32), tuple(f"{i:06}.jpg" for i in range(_FACES)), labels


def _flat(mask: BoolArray) -> Array:
    return mask.ravel().astype(float)
