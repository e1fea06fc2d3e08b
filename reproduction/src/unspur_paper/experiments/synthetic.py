"""Rows that look like embeddings of the datasets, and are drawn in a moment: for smoke runs and tests.

Main label, concept and, for faces, a second concept lie along directions of their own; pictures have them at the places
where glasses and smiles are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray
from unspur_paper.datasets.celeba import EYES, MOUTH, box_mask
from unspur_paper.datasets.resampling import agreeing
from unspur_paper.experiments.registry import CONCEPT, FINETUNED, MADE_UP_PIXELS, without_marks

#: Changes when the rows do.
DIGEST = "made-up-2"
SIDE = 12
_WIDTH, _SIZES, _FACES = 40, {"train": 400, "validation": 400, "test": 400}, 3000
#: Distance of the two classes of a label, in standard deviations of a feature; and what an adversary leaves of it.
_APART, _LEFT = 3.0, 0.3

Rows = tuple[Array, tuple[str, ...], dict[str, Array]]


def synthetic_rows(data: Mapping[str, Any], run: int) -> Rows:
    """Rows, ids and labels for a dataset of the registry."""
    rng = np.random.default_rng([run, 0xFACE])
    if data["name"] in FINETUNED:
        return _pairs(rng) if without_marks(data) else _trained_on(data, rng)
    return {"waterbirds": _birds, "celeba": _faces}[data["name"]](data, rng)


def synthetic_training(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the store of a trained network says of its training: one epoch."""
    adversary = {"adversary_balanced_accuracy": 0.6} if data["adversary"] else {}
    return {"history": [{"epoch": 1, "validation_accuracy": 0.9, **adversary}], "kept_epoch": 1}


def _birds(_: Mapping[str, Any], rng: np.random.Generator) -> Rows:
    """Every bird on land and on water; one in four is a waterbird."""
    rows, y, background, split = _twins(0.25, rng)
    species = np.where(y == 1, "001.Some_Gull", "002.Some_Wren")
    ids = tuple(f"{species[i]}/{i // 2}@{i % 2}" for i in range(len(rows)))
    return rows, ids, {"y": y, "background": background, "split": split, "bird": np.arange(len(rows)) // 2}


def _pairs(rng: np.random.Generator) -> Rows:
    """Every pair of sentences without and with the mark."""
    rows, y, concept, split = _twins(0.5, rng)
    ids = tuple(f"pair {i // 2}{'!!' * (i % 2)}" for i in range(len(rows)))
    return rows, ids, {"y": y, "concept": concept, "split": split, "pair": np.arange(len(rows)) // 2}


def _twins(share: float, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Rows, main label (1 for a `share` of examples), concept and split of examples that are there with either concept.

    Twins are neighbours, and alike but for the concept and a little noise.
    """
    split = np.repeat(list(_SIZES), list(_SIZES.values()))
    y = (rng.random(len(split)) < share).astype(np.int64)
    example = rng.standard_normal((len(split), _WIDTH))
    example[:, 0] += _APART * (y - 0.5)
    rows = np.repeat(example, 2, axis=0) + 0.3 * rng.standard_normal((2 * len(split), _WIDTH))
    concept = np.tile(np.arange(2), len(split))
    rows[:, 1] += _APART * (concept - 0.5)
    return rows.astype(np.float32), np.repeat(y, 2), concept, np.repeat(split, 2)


def _trained_on(data: Mapping[str, Any], rng: np.random.Generator) -> Rows:
    """Every example once, at strength p but in test rows; with an adversary the concept is harder to see."""
    share = 0.25 if FINETUNED[data["name"]] == "waterbirds" else 0.5
    split = np.repeat(list(_SIZES), list(_SIZES.values()))
    y = (rng.random(len(split)) < share).astype(np.int64)
    p = data.get("p", 0.7)
    concept = np.concatenate([agreeing(y[split == name], 0.5 if name == "test" else p, rng) for name in _SIZES])
    rows = rng.standard_normal((len(split), _WIDTH))
    rows[:, 0] += _APART * (y - 0.5)
    rows[:, 1] += _APART * (_LEFT if data["adversary"] else 1.0) * (concept - 0.5)
    if data["name"] == "multinli-negation":  # a third class, along a direction of its own
        third = (y == 0) & (rng.random(len(y)) < 0.5)
        rows[:, 2] += _APART * (third - 0.5)
        y = np.where(third, 2, y)
    labels = {"y": y, CONCEPT[data["name"]]: concept, "split": split}
    return rows.astype(np.float32), tuple(f"example {i}" for i in range(len(rows))), labels


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
