"""Some examples of a dataset, at a strength of the correlation and divided into splits: what a network is trained on.

::

    strength  p = P(concept = y | main = y)  of training and validation examples; 1/2 of test examples

Draws depend on seed and strength alone, so that trainings that differ in anything else see the same examples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, IntArray
from unspur.exceptions import GroupSizeError
from unspur_paper.datasets import celeba, multinli, negation
from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.negation import NegatedPairs
from unspur_paper.datasets.resampling import agreeing
from unspur_paper.datasets.waterbirds import Composites
from unspur_paper.embedding.examples import Examples, Kind

SPLITS = ("train", "validation", "test")
#: Strength among test examples: none of the correlation is left.
INDEPENDENT = 0.5


@dataclass(frozen=True, slots=True)
class Selected:
    """Examples `members` of `whole`, in that order, with the labels given."""

    whole: Examples
    members: IntArray
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, whole: Examples, rows: Mapping[str, IntArray], more: Mapping[str, Array], **settings: Any) -> Selected:
        """Rows of each split, in the order of the dataset; `more` are labels of the whole dataset."""
        members = np.concatenate(list(rows.values()))
        split = np.repeat(list(rows), [len(part) for part in rows.values()])
        order = np.argsort(members, kind="stable")
        members, split = members[order], split[order]
        labels = {name: np.asarray(column)[members] for name, column in more.items()}
        return cls(whole, members, {**labels, "split": split}, {**whole.settings, **settings})

    @property
    def name(self) -> str:
        """Of the whole dataset."""
        return self.whole.name

    @property
    def kind(self) -> Kind:
        """Images or texts."""
        return self.whole.kind

    @property
    def ids(self) -> Sequence[str]:
        """Of the examples selected."""
        return [self.whole.ids[i] for i in self.members]

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Any:
        """Load one example."""
        return self.whole[int(self.members[index])]

    def digest(self) -> str:
        """Of the whole dataset, and of what is selected from it."""
        total = hashlib.sha256(f"{self.whole.digest()} {sorted(self.settings.items())!r}".encode())
        total.update(self.members.astype("<i8").tobytes())
        total.update(",".join(self.labels["split"].tolist()).encode())
        return total.hexdigest()[:16]


def birds_at(birds: Composites, p: float, seed: int) -> Selected:
    """One of the two pictures of each bird."""
    rng, y, split = _numbers(seed, p), birds.labels["y"][::2], birds.labels["split"][::2]
    rows = {}
    for name in SPLITS:
        members = np.flatnonzero(split == name)
        rows[name] = 2 * members + agreeing(y[members], INDEPENDENT if name == "test" else p, rng)
    labels = {name: birds.labels[name] for name in ("y", "background", "bird")}
    return Selected.of(birds, rows, labels, p=p)


def faces_at(faces: CelebA, p: float, seed: int, main: str, concept: str, sizes: Mapping[str, int]) -> Selected:
    """Faces drawn balanced in the main label."""
    rows = celeba.draw(faces.labels, main, concept, _numbers(seed, p), p=p, sizes=sizes)
    labels = {"y": celeba.label(faces.labels, main), "concept": celeba.label(faces.labels, concept)}
    return Selected.of(faces, dict(rows), labels, p=p, seed=seed, main=main, concept=concept, sizes=dict(sizes))


def pairs_at(pairs: MultiNLI, p: float, seed: int, sizes: Mapping[str, int] | None = None) -> Selected:
    """One version of each pair that is drawn; pairs balanced in the main label."""
    sizes = _sizes(pairs, sizes)
    strengths = {name: INDEPENDENT if name == "test" else p for name in sizes}
    rows = multinli.draw(pairs.pairs_y, sizes, strengths, _numbers(seed, p))
    return Selected.of(pairs, rows, _pair_labels(pairs), p=p, seed=seed, sizes=sizes)


def unmarked_pairs(pairs: MultiNLI, seed: int, sizes: Mapping[str, int] | None = None) -> tuple[Selected, Selected]:
    """Pairs without the mark, to train on; and both versions of the same pairs, to embed, one after the other."""
    sizes = _sizes(pairs, sizes)
    drawn = multinli.draw(pairs.pairs_y, sizes, dict.fromkeys(sizes, INDEPENDENT), _numbers(seed, 0.0))
    plain = {name: rows // 2 * 2 for name, rows in drawn.items()}
    both = {name: np.concatenate([rows, rows + 1]) for name, rows in plain.items()}
    labels = _pair_labels(pairs)
    told: dict[str, Any] = {"seed": seed, "sizes": sizes}
    return (
        Selected.of(pairs, {name: plain[name] for name in SPLITS[:2]}, labels, versions="unmarked", **told),
        Selected.of(pairs, both, labels, versions="both", **told),
    )


def negated_pairs(pairs: NegatedPairs, seed: int) -> Selected:
    """All pairs, divided at random; the correlation is that of the data."""
    return Selected.of(pairs, negation.draw(len(pairs), _numbers(seed, 0.0)), pairs.labels, seed=seed)


def _pair_labels(pairs: MultiNLI) -> dict[str, Array]:
    return {name: pairs.labels[name] for name in ("y", "concept", "pair")}


def _sizes(pairs: MultiNLI, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Those given, or the paper's, scaled down to what there is."""
    found = dict(sizes) if sizes is not None else multinli.largest_sizes(pairs.pairs_y)
    if found is None:
        raise GroupSizeError(f"{len(pairs.pairs_y)} pairs are too few for three splits with all groups.")
    return found


def _numbers(seed: int, p: float) -> np.random.Generator:
    return np.random.default_rng([seed, round(p * 1e9), 0x5E1EC7])
