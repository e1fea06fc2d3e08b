"""From a store of embeddings to the rows of one run: splits at a strength of the correlation, reduced by PCA."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unspur._typing import Array, BoolArray, FloatArray
from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.datasets import celeba
from unspur_paper.datasets.resampling import agreeing
from unspur_paper.datasets.selected import INDEPENDENT, SPLITS
from unspur_paper.datasets.waterbirds import is_waterbird
from unspur_paper.embedding.store import Reduction
from unspur_paper.experiments.records import canonical
from unspur_paper.experiments.registry import CONCEPT, FINETUNED, drawn_settings, without_marks
from unspur_paper.experiments.stores import Embedded, open_embedded
from unspur_paper.rows import Rows

#: Rows of each split; main label and concept of all rows of the store.
Chosen: TypeAlias = tuple[dict[str, Array], Array, Array]


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
    #: Where the rows of each split are in the store.
    members: Mapping[str, Array] = field(default_factory=dict)

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
        np.random.default_rng(child) for child in np.random.SeedSequence(entropy(drawn_settings(data), run)).spawn(2)
    )
    embedded = open_embedded(data, run, embeddings)
    rows, y, concept = _chosen(data, embedded, rng)
    z = {split: np.asarray(embedded.rows[rows[split]], dtype=np.float32) for split in SPLITS}
    reduction = _reduction(z["train"], data["pca"])
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
        members=rows,
    )


def _reduction(train: Array, pca: int) -> Reduction | None:
    """The principal components of training rows; None where rows are to stay as they are, or have just so many."""
    n, width = train.shape
    if pca > width:
        raise InputError(
            f"Rows of the store have {width} features; pca is {pca}. Set pca to {width} or less, or to 0 for the rows "
            "as they are."
        )
    if pca == width:
        return None
    # Of more features than rows, only those in the span of the training rows take part in any fit or removal: turned
    # into that span, the same comes out, and much sooner.
    components = pca or (n - 1 if width >= n else 0)
    return Reduction.fit(train, components) if components else None


def _chosen(data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator) -> Chosen:
    """What a run of the dataset sees."""
    if data["name"] in FINETUNED:
        return _pairs(data, embedded, rng) if without_marks(data) else _all(data, embedded)
    return {"waterbirds": _birds, "celeba": _faces}[data["name"]](data, embedded, rng)


def _birds(data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator) -> Chosen:
    """One of the two pictures of each bird, so that a share p of either class is on its own background."""
    labels = embedded.labels
    y = np.array([is_waterbird(name.split("/")[0], data["rule"]) for name in embedded.ids[::2]], dtype=np.int64)
    birds = _members(labels["split"][::2])
    if len(birds["train"]) < data["n"]:
        raise InputError(f"The store has {len(birds['train'])} birds to train on; n is {data['n']}.")
    birds["train"] = rng.permutation(birds["train"])[: data["n"]]
    return _one_of_two(birds, y, data["p"], rng), np.repeat(y, 2), labels["background"]


def _pairs(data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator) -> Chosen:
    """One of the two versions of each pair of sentences, so that a share p of either class has its own."""
    y, concept, split = _columns(data, embedded)
    if len(y) % 2 or np.any(concept != np.arange(len(y)) % 2) or np.any(y[::2] != y[1::2]):
        raise InputError(
            "A store of a network trained on unmarked pairs has every pair twice, first without and then with the "
            "mark; this one has not. Fine-tune again."
        )
    return _one_of_two(_members(split[::2]), y[::2], data["p"], rng), y, concept


def _all(data: Mapping[str, Any], embedded: Embedded) -> Chosen:
    """All rows: the network was trained on them, at their strength, so there is nothing left to draw."""
    y, concept, split = _columns(data, embedded)
    return _members(split), y, concept


def _columns(data: Mapping[str, Any], embedded: Embedded) -> tuple[Array, Array, Array]:
    """Main label, concept and split of all rows of a fine-tuned network's store."""
    names = ("y", CONCEPT[data["name"]], "split")
    missing = [name for name in names if name not in embedded.labels]
    if missing:
        raise InputError(
            f"A store of {data['name']} needs the labels {', '.join(names)}; this one has none called "
            f"{', '.join(missing)}. Fine-tune again."
        )
    y, concept, split = (embedded.labels[name] for name in names)
    return y, concept, split


def _members(split: Array) -> dict[str, Array]:
    """Where each split is."""
    found = {name: np.flatnonzero(split == name) for name in SPLITS}
    empty = [name for name, members in found.items() if not len(members)]
    if empty:
        raise InputError(f"The store has no rows in the split {empty[0]!r}; {', '.join(SPLITS)} are needed.")
    return found


def _one_of_two(examples: Mapping[str, Array], y: Array, p: float, rng: np.random.Generator) -> dict[str, Array]:
    """Rows of examples that are there twice, 2i without and 2i + 1 with the concept: one each, at strength p."""
    return {
        name: 2 * members + agreeing(y[members], INDEPENDENT if name == "test" else p, rng)
        for name, members in examples.items()
    }


def _faces(data: Mapping[str, Any], embedded: Embedded, rng: np.random.Generator) -> Chosen:
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
