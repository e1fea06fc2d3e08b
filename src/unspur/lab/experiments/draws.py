"""From a store of embeddings to the rows of one run: splits at a strength of the correlation, reduced by PCA."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import GroupSizeError, InputError
from unspur.lab.datasets import celeba
from unspur.lab.datasets.resampling import agreeing
from unspur.lab.datasets.waterbirds import is_waterbird
from unspur.lab.encoders.reduction import Reduction
from unspur.lab.experiments.records import canonical
from unspur.lab.experiments.registry import drawn_settings
from unspur.lab.experiments.stores import Embedded, open_embedded
from unspur.lab.selection import Rows

SPLITS = ("train", "validation", "test")
#: Strength in the test rows: none of the correlation is left.
INDEPENDENT = 0.5


@dataclass(frozen=True, slots=True)
class Draw:
    """Rows of the three splits, reduced; which training rows have a known concept; a second concept, if any."""

    train: Rows
    validation: Rows
    test: Rows
    #: Shape (n,), over the training rows; None if all of them have.
    known: BoolArray | None
    #: Second concept of each split.
    second: Mapping[str, Array]
    reduction: Reduction | None

    def unreduced(self, rows: Array) -> FloatArray:
        """Rows in the features of the store."""
        return np.asarray(rows) if self.reduction is None else self.reduction.back(rows)


def entropy(data: Mapping[str, Any], run: int) -> list[int]:
    """What the random numbers of a run come from: the settings that decide which rows are drawn, and the run.

    Every strength has draws of its own: shared ones would repeat one stroke of luck along a whole curve. Methods share
    theirs, so that they can be compared run by run.
    """
    words = hashlib.sha256(canonical(data, "dataset").encode()).digest()[:16]
    return [run, *np.frombuffer(words, dtype="<u4").tolist()]


def draw(data: Mapping[str, Any], run: int, embeddings: Path) -> Draw:
    """The rows of one run."""
    return _draw(json.dumps(data, sort_keys=True), run, embeddings)


@lru_cache(maxsize=6)  # all runs at one strength, for one method after the other
def _draw(text: str, run: int, embeddings: Path) -> Draw:
    data = json.loads(text)
    rng, choice = (
        np.random.default_rng(child)
        for child in np.random.SeedSequence(entropy(drawn_settings(data), run)).spawn(2)
    )  # fmt: skip
    embedded = open_embedded(data, run, embeddings)
    rows, y, concept = (_birds if data["name"] == "waterbirds" else _faces)(data, embedded, rng)
    z = {split: np.asarray(embedded.rows[rows[split]], dtype=np.float32) for split in SPLITS}
    # Of more features than rows, only those in the span of the training rows take part in any fit or removal: turned
    # into that span, the same comes out, and much sooner.
    n, width = z["train"].shape
    components = data["pca"] or (n - 1 if width >= n else 0)
    reduction = Reduction.fit(z["train"], components) if components else None
    if reduction is not None:
        z = {split: reduction(part).astype(np.float32) for split, part in z.items()}
    parts = {split: Rows(z[split], y[rows[split]], concept[rows[split]]) for split in SPLITS}
    second = data.get("second", "none")
    return Draw(
        train=parts["train"],
        validation=parts["validation"],
        test=parts["test"],
        known=_known(parts["train"], data["labelled"], choice),
        second={} if second == "none" else {s: celeba.label(embedded.labels, second)[rows[s]] for s in SPLITS},
        reduction=reduction,
    )


def _birds(
    data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    """One of the two pictures of each bird, so that a share p of either class is on its own background."""
    labels = embedded.labels
    y = np.array([is_waterbird(name.split("/")[0], data["rule"]) for name in embedded.ids[::2]], dtype=np.int64)
    split, chosen = labels["split"][::2], {}
    for name in SPLITS:
        birds = np.flatnonzero(split == name)
        if name == "train":
            if len(birds) < data["n"]:
                raise InputError(f"The store has {len(birds)} birds to train on; n is {data['n']}.")
            birds = rng.permutation(birds)[: data["n"]]
        background = agreeing(y[birds], INDEPENDENT if name == "test" else data["p"], rng)
        chosen[name] = 2 * birds + background
    return chosen, np.repeat(y, 2), labels["background"]


def _faces(
    data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    """Faces drawn balanced in the main label, at strength p for the first concept."""
    labels, sizes = embedded.labels, {"train": data["n"], "validation": data["n_validation"], "test": data["n_test"]}
    rows = celeba.draw(labels, data["main"], data["concept"], rng, p=data["p"], sizes=sizes)
    return dict(rows), celeba.label(labels, data["main"]), celeba.label(labels, data["concept"])


def _known(train: Rows, labelled: int, rng: np.random.Generator) -> BoolArray | None:
    """Which training rows have a known concept, if not all: some of each group in proportion to its size."""
    if not labelled:
        return None
    if labelled > len(train):
        raise GroupSizeError(f"{labelled} labelled rows are asked for and {len(train)} are there to train on.")
    return _proportional(train.group, labelled, rng)


def _proportional(group: Array, count: int, rng: np.random.Generator) -> BoolArray:
    """A mask of `count` rows, each group within one row of its share."""
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]  # random inside each group
    # Every k-th row of rows that are sorted by group, from a random start.
    at = np.floor((np.arange(count) + rng.random()) * len(group) / count).astype(int)
    mask = np.zeros(len(group), dtype=bool)
    mask[order[at]] = True
    return mask
