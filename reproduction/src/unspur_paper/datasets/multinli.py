"""MultiNLI: pairs of sentences, with and without two exclamation marks at the end of the second.

Main label: 1 where the second sentence (hypothesis) contradicts the first (premise), 0 for entailment and neutral.
Concept: 1 where the hypothesis ends with ``!!``. Every pair exists in both versions, so that any strength of the
correlation is a choice of one version of each pair; see `draw`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unspur._text import brief
from unspur._typing import Array, IntArray
from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.datasets.published import required_file
from unspur_paper.datasets.resampling import advice, agreeing, binary, check_plan, shrink
from unspur_paper.embedding.examples import Kind, digest_of

#: Appended as it is, without a space: "Fun for only children." becomes "Fun for only children.!!".
MARK = "!!"
#: Of the paper.
SIZES = {"train": 50_000, "validation": 5_000, "test": 5_000}
FILES = ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.jsonl")
#: Published label to main label.
GOLD = {"contradiction": 1, "entailment": 0, "neutral": 0}
#: Published where the annotators did not agree.
NO_LABEL = "-"
KEYS = ("gold_label", "sentence1", "sentence2")
#: Bytes of a line; those that are published have some thousand.
LONGEST = 2**20


@dataclass(frozen=True, slots=True)
class MultiNLI:
    """Example 2i is pair i as it is, 2i + 1 the same pair with the mark.

    Labels: `y`, `concept`, `pair` (i), `source` (``train`` or ``dev_matched``: the file without what all names share)
    and, where a file tells it, `genre` ("" where not). Premises recur: the published data have about three hypotheses
    for each, so that two pairs may share one.
    """

    folder: Path
    files: tuple[str, ...]
    #: (premise, hypothesis) without the mark, without space at their ends.
    pairs: Sequence[tuple[str, str]]
    ids: Sequence[str]
    labels: Mapping[str, Array]
    settings: Mapping[str, Any]
    name: str = "multinli"
    kind: Kind = "text"

    @classmethod
    def read(cls, root: Path, files: Sequence[str] = FILES) -> MultiNLI:
        """From the folder that holds ``multinli_1.0``, or that folder itself.

        Left out, and counted in `settings`: pairs without an agreed label, with an empty sentence, or with a hypothesis
        that ends with the mark already and so does not exist without it.
        """
        root = Path(root)
        folder = root / "multinli_1.0" if (root / "multinli_1.0").is_dir() else root
        kept, ids, left_out = [], [], {"no label": 0, "empty": 0, "marked": 0}
        for file in files:
            stem = Path(file).stem
            for number, line in read_lines(required_file(folder, file, what="a file of MultiNLI")):
                premise, hypothesis = line["sentence1"].strip(), line["sentence2"].strip()
                if (why := _why_not(line["gold_label"], premise, hypothesis)) is not None:
                    left_out[why] += 1
                    continue
                source, genre = stem.removeprefix("multinli_1.0_"), str(line.get("genre") or "")
                kept.append(((premise, hypothesis), GOLD[line["gold_label"]], source, genre))
                ids += [f"{stem}:{number}", f"{stem}:{number}{MARK}"]
        if not kept:
            raise InputError(f"{', '.join(files)} in {folder} hold no labelled pairs; some are needed.")
        if len(set(ids)) != len(ids):
            raise InputError(f"A file is given twice in {', '.join(files)}; each is to be read once.")
        pairs, y, sources, genres = zip(*kept, strict=True)
        labels: dict[str, Array] = {
            "y": np.repeat(np.array(y, dtype=np.int64), 2),
            "concept": np.tile(np.arange(2), len(pairs)),
            "pair": np.repeat(np.arange(len(pairs)), 2),
            "source": np.repeat(np.array(sources), 2),
        }
        if any(genres):
            labels["genre"] = np.repeat(np.array(genres), 2)
        settings = {"files": list(files), "mark": MARK, "left_out": left_out}
        return cls(folder, tuple(files), pairs, ids, labels, settings)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[str, str]:
        """(premise, hypothesis), the latter with the mark in odd examples."""
        premise, hypothesis = self.pairs[index // 2]
        return premise, hypothesis + MARK if index % 2 else hypothesis

    @property
    def pairs_y(self) -> IntArray:
        """Main label of each pair, shape (n / 2,), as `draw` needs it."""
        return np.asarray(self.labels["y"][::2])

    def digest(self) -> str:
        """Of the files."""
        return digest_of(self.name, self.settings, self.labels, (self.folder / file for file in self.files))


def draw(
    pairs_y: ArrayLike, sizes: Mapping[str, int], strengths: Mapping[str, float], rng: np.random.Generator
) -> dict[str, IntArray]:
    """Examples of each split: no pair in two splits, and one version of each pair.

    A split of n has ``n // 2`` contradictions; within each class ``round(p · n_y)`` pairs have concept = y, so that a
    contradiction has the mark and another pair does not.
    """
    y = binary(pairs_y, "pairs_y")
    check_plan(sizes, strengths)
    if not _fits(sizes, y):
        have, need = _have(y), _needed(sizes)
        raise GroupSizeError(
            f"Too few pairs for splits of {' / '.join(map(str, sizes.values()))}: there are {have[1]} contradictions "
            f"and {have[0]} others; {need[1]} and {need[0]} are wanted. {advice(sizes, largest_sizes(y, sizes))}"
        )
    orders = [rng.permutation(np.flatnonzero(y == value)) for value in (0, 1)]
    starts = [0, 0]
    splits = {}
    for name, size in sizes.items():
        chosen = []
        for value, count in enumerate((size - size // 2, size // 2)):
            chosen.append(orders[value][starts[value] : starts[value] + count])
            starts[value] += count
        pairs = rng.permutation(np.concatenate(chosen))
        splits[name] = 2 * pairs + agreeing(y[pairs], strengths[name], rng)
    return splits


def largest_sizes(pairs_y: ArrayLike, sizes: Mapping[str, int] = SIZES) -> dict[str, int] | None:
    """The sizes, scaled down by one factor if that is necessary for `draw` to succeed; None if no factor is enough."""
    y = binary(pairs_y, "pairs_y")
    return dict(sizes) if _fits(sizes, y) else shrink(sizes, lambda smaller: _fits(smaller, y))


def _have(y: IntArray) -> tuple[int, int]:
    return int(np.sum(y == 0)), int(np.sum(y == 1))


def _needed(sizes: Mapping[str, int]) -> tuple[int, int]:
    """Pairs of either class."""
    return sum(size - size // 2 for size in sizes.values()), sum(size // 2 for size in sizes.values())


def _fits(sizes: Mapping[str, int], y: IntArray) -> bool:
    return all(need <= there for need, there in zip(_needed(sizes), _have(y), strict=True))


def _why_not(gold: str, premise: str, hypothesis: str) -> str | None:
    """Why a pair is left out, or None."""
    if gold == NO_LABEL:
        return "no label"
    if not premise or not hypothesis:
        return "empty"
    return "marked" if hypothesis.endswith(MARK) else None


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Checked lines of a file with their numbers, from 1."""
    # Bytes: other signs that Python takes for the end of a line may stand inside of a sentence.
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
            if not raw.strip():
                continue
            where = f"Line {number} of {path}"
            if len(raw) > LONGEST:
                raise InputError(
                    f"{where} has more than {LONGEST:,} bytes, and not two sentences. Is it the right file?"
                )
            try:
                line = json.loads(raw.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{where} is not JSON in UTF-8: {brief(error)}. Is the file complete?") from error
            keys = line if isinstance(line, dict) else {}
            missing = [key for key in KEYS if not isinstance(keys.get(key), str)]
            if missing:
                raise InputError(
                    f"{where} needs texts under {', '.join(KEYS)}; it has none under {', '.join(missing)}."
                )
            if line["gold_label"] not in (*GOLD, NO_LABEL):
                label = brief(line["gold_label"], 40)
                raise InputError(f"{where} has the label {label!r}; known are {', '.join(GOLD)}.")
            yield number, line
