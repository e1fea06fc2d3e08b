"""Grad-CAM of some test pictures for every method of an experiment, for a page that is made where the data are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur_paper.embedding.base import Preparation
from unspur_paper.experiments.embedded import fitted_cell
from unspur_paper.experiments.gradcam import Layer, groups_of, numbers_of, open_maps, shares
from unspur_paper.experiments.registry import CONCEPT, FINETUNED
from unspur_paper.experiments.spec import Experiment
from unspur_paper.experiments.stores import Embedded, open_embedded
from unspur_paper.networks.maps import Maps


@dataclass(frozen=True, slots=True)
class Seen:
    """What one method sees in n pictures: signed maps (n, h, w), predictions (n,), and the share inside (n,)."""

    maps: Array
    predicted: IntArray
    right: BoolArray
    inside: FloatArray


@dataclass(frozen=True, slots=True)
class LookedAt:
    """Some test pictures: ids, groups (2 · y + concept), and what each method sees in them."""

    ids: tuple[str, ...]
    group: IntArray
    #: Share of each picture that is bird, or mouth, shape (n,).
    area: FloatArray
    #: How pictures were cut; None where that is not known.
    preparation: Preparation | None
    #: Where the rows come from, in words.
    where: str
    methods: dict[str, Seen]


def gradcam_pictures(experiment: Experiment, embeddings: Path, *, each: int = 3, run: int = 0) -> LookedAt:
    """Fit every method of an experiment, at its last strength, and show where it looks in `each` pictures of a group.

    Pictures are chosen at random among those with maps, before anything is fitted.
    """
    specs = {cell.method: cell.spec for cell in experiment.cells("exact", run + 1) if cell.spec["run"] == run}
    data = next(iter(specs.values()))["dataset"]
    maps, embedded = _opened(data, run, embeddings)
    group = groups_of(maps, embedded, CONCEPT[data["name"]])
    chosen = _chosen(group, each, run)
    names = tuple(maps.ids[i] for i in chosen)
    return LookedAt(
        ids=names,
        group=group[chosen],
        area=maps.coverage[chosen].mean(axis=(1, 2)),
        preparation=maps.preparation,
        where=f"{data['name']} by {data['encoder']}, p = {data['p']:g}, run {run}",
        methods={name: _seen(spec, names, group[chosen] // 2, embeddings) for name, spec in specs.items()},
    )


def _opened(data: Mapping[str, Any], run: int, embeddings: Path) -> tuple[Maps, Embedded]:
    maps = open_maps(data, run, embeddings)
    if maps is None:
        raise InputError(
            f"There are no maps beside the rows of {data['name']} by {data['encoder']}, run {run}. "
            f"`unspur-paper finetune {FINETUNED[data['name']]} --maps N` keeps them."
        )
    return maps, open_embedded(data, run, embeddings)


def _chosen(group: IntArray, each: int, run: int) -> IntArray:
    """Some pictures of every group, by number."""
    rng = np.random.default_rng([run, 0x9C])
    found = [rng.permutation(np.flatnonzero(group == g))[:each] for g in range(4)]
    if not sum(map(len, found)):
        raise InputError("None of the maps is of a test picture; write maps of some.")
    return np.concatenate(found)


def _seen(spec: Mapping[str, Any], names: Sequence[str], y: IntArray, embeddings: Path) -> Seen:
    """Fit one method and look at the pictures called `names`, of main label `y`."""
    # Its own store: a method may have a network to itself.
    maps, embedded = _opened(spec["dataset"], spec["run"], embeddings)
    drawn, removal, last, _ = fitted_cell(spec, embeddings)
    layer = Layer.of(last, removal, drawn.reduction)
    chosen = numbers_of(names, maps.ids)
    signed = maps.signed(layer.weights, chosen)
    rows = np.asarray(embedded.rows[numbers_of(names, embedded.ids)], dtype=np.float64)
    predicted = (layer(rows) > 0).astype(np.int64)
    return Seen(signed, predicted, predicted == y, shares(signed, maps.coverage[chosen]))
