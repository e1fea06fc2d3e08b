"""MultiNLI in the groups that it is usually published with: three classes, with and without a word of negation.

Main label: contradiction, entailment or neutral, as 0, 1 and 2. Concept: 1 where the second sentence has one of the
words `NEGATION`, which annotators wrote into contradictions. Pairs are as they are, so the correlation is that of the
data, in all three splits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array, IntArray
from unspur.exceptions import InputError
from unspur_paper.datasets.multinli import FILES, NO_LABEL, read_lines
from unspur_paper.datasets.published import required_file
from unspur_paper.embedding.examples import Kind, digest_of

NEGATION = frozenset({"nobody", "no", "never", "nothing"})
CLASSES = ("contradiction", "entailment", "neutral")
#: Share of the pairs in each split, as published.
SHARES = {"train": 0.5, "validation": 0.2, "test": 0.3}


@dataclass(frozen=True, slots=True)
class NegatedPairs:
    """Pairs of sentences as they are, with the labels `y` and `concept`."""

    folder: Path
    files: tuple[str, ...]
    pairs: Sequence[tuple[str, str]]
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str = "multinli-negation"
    kind: Kind = "text"

    @classmethod
    def read(cls, root: Path, files: Sequence[str] = FILES) -> NegatedPairs:
        """From the folder that holds ``multinli_1.0``, or that folder itself; pairs without a label are left out."""
        folder = root / "multinli_1.0" if (root / "multinli_1.0").is_dir() else root
        pairs, y, ids = [], [], []
        for file in files:
            for number, line in read_lines(required_file(folder, file, what="a file of MultiNLI")):
                pair = line["sentence1"].strip(), line["sentence2"].strip()
                if line["gold_label"] != NO_LABEL and all(pair):
                    pairs.append(pair)
                    y.append(CLASSES.index(line["gold_label"]))
                    ids.append(f"{Path(file).stem}:{number}")
        if not pairs:
            raise InputError(f"{', '.join(files)} in {folder} hold no labelled pairs; some are needed.")
        concept = np.array([is_negated(second) for _, second in pairs], dtype=np.int64)
        labels = {"y": np.array(y, dtype=np.int64), "concept": concept}
        return cls(folder, tuple(files), pairs, ids, labels, {"files": list(files), "negation": sorted(NEGATION)})

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, str]:
        """(premise, hypothesis)."""
        return self.pairs[index]

    def digest(self) -> str:
        """Of the files."""
        return digest_of(self.name, self.settings, self.labels, (self.folder / file for file in self.files))


def is_negated(sentence: str) -> bool:
    """Whether a sentence has a word of negation."""
    return not NEGATION.isdisjoint(re.findall(r"[a-z]+", sentence.lower()))


def draw(n: int, rng: np.random.Generator) -> dict[str, IntArray]:
    """Pairs of each split, at random."""
    order, ends = rng.permutation(n), np.round(np.cumsum([0.0, *SHARES.values()]) * n).astype(int)
    return {name: order[ends[k] : ends[k + 1]] for k, name in enumerate(SHARES)}
