"""What became of every published value: a status for each, and how far the order of the methods agrees.

    python reproduction/scripts/paper_status.py            # the counts, as on the page on the claims of the paper

Toy is the same data, so its values are reproduced or not: within two standard errors of ours under the preset that
repeats the authors' program. Networks and pictures are not the same, so values of birds, faces and pairs are compared
by their order, in every metric. One measure is the rank correlation over methods of published and own accuracies, at
one strength, averaged over strengths: median and 95 % interval over 2,000 draws of both sides' means within their
standard errors. The other counts pairs of methods that differ by more than two standard errors in the paper, and asks
which of the two is better here.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import rankdata

from unspur_paper.experiments.published import Published, published_values

RESULTS = Path(__file__).parents[1] / "results"
Status = Literal["reproduced", "not reproduced", "compared by order", "no counterpart"]
#: Source, data set, method, strength and metric of a published value.
Key = tuple[str, str, str, float, str]
MAX_ERRORS = 2.0
DRAWS = 2000

#: Records that answer the values of a source and data set, the first that has a value counting.
COUNTERPARTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("removal", "toy"): ("toy-ood/released",),
    ("reweighting", "toy"): ("toy-reweighting/released",),
    ("delta", "toy gamma_sp=6 gamma_mt=2"): ("toy-delta/released",),
    ("removal", "waterbirds"): ("waterbirds-finetuned/exact", "waterbirds-ood/exact"),
    ("reweighting", "waterbirds"): ("waterbirds-reweighting/exact",),
    ("jse-variants", "waterbirds"): ("waterbirds-variants/exact",),
    ("pca-ablation", "waterbirds"): ("waterbirds-variants/exact",),
    ("test-weighting", "waterbirds"): ("waterbirds-variants/exact",),
    ("removal", "celeba"): ("celeba-finetuned/exact", "celeba-ood/exact"),
    ("reweighting", "celeba"): ("celeba-reweighting/exact", "celeba-finetuned/exact"),
    ("two-concepts", "celeba"): ("celeba-two-concepts/exact",),
    ("removal", "multinli"): ("multinli-ood/exact",),
    ("reweighting", "multinli"): ("multinli-reweighting/exact",),
    ("clean-encoder", "multinli"): ("multinli-clean-encoder/exact",),
}
#: Kinds of metrics whose orders are told apart, by how the names of the metrics begin.
KINDS = {"worst group": "worst_group", "average": "average", "single groups": "main="}
#: Methods of the paper that have another name in our records.
ALIASES = {"JSE with PCA 300": "JSE", "JSE group-weighted tests": "JSE"}


class Own(NamedTuple):
    """Mean of our runs, its standard error (0 for one run), and the record."""

    mean: float
    error: float
    record: str


@cache
def own_values(record: str) -> dict[tuple[str, float, str], Own]:
    """Values of a record by method, strength and metric; {} if there is none."""
    path = RESULTS / f"{record}.csv"
    if not path.exists():
        return {}
    found = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            strength = next((float(line[axis]) for axis in ("p", "rho") if axis in line), float("nan"))
            found[line["method"], strength, line["metric"]] = Own(
                float(line["mean"]), float(line["error"] or 0.0), record
            )
    return found


def own_value(key: Key, records: Sequence[str] | None = None) -> Own | None:
    """Our value for a published one, from the first of some records that has it; by default of all that answer it."""
    source, dataset, method, strength, metric = key
    for record in COUNTERPARTS[source, dataset] if records is None else records:
        found = own_values(record).get((ALIASES.get(method, method), strength, metric))
        if found is not None:
            return found
    return None


def status_of(key: Key, value: Published) -> Status:
    """What became of a published value."""
    own = own_value(key)
    if own is None:
        return "no counterpart"
    if not key[1].startswith("toy"):
        return "compared by order"
    distance = abs(own.mean - value.mean) / np.hypot(own.error, value.error)
    return "reproduced" if distance <= MAX_ERRORS else "not reproduced"


class Compared(NamedTuple):
    """One method at one strength, in the paper and here."""

    method: str
    strength: float
    published: Published
    own: Own


def compared(source: str, dataset: str, kind: str = "worst group", record: str | None = None) -> list[list[Compared]]:
    """Methods with a value on both sides, strength by strength and metric by metric of a kind, where there are several.

    Our values are those of one record, or of the first that has one.
    """
    blocks: dict[tuple[float, str], list[Compared]] = defaultdict(list)
    records = None if record is None else [record]
    for key, value in published_values().items():
        wanted = (key[0], key[1]) == (source, dataset) and key[4].startswith(KINDS[kind])
        if wanted and (own := own_value(key, records)) is not None:
            blocks[key[3], key[4]].append(Compared(key[2], key[3], value, own))
    return [methods for methods in blocks.values() if len(methods) > 1]


def rank_correlation(blocks: list[list[Compared]]) -> tuple[float, float, float]:
    """Median, and 95 % interval, of the rank correlation over methods, averaged over strengths."""
    rng, drawn = np.random.default_rng(0), np.zeros(DRAWS)
    for methods in blocks:
        ranks = []
        for side in ([one.published for one in methods], [one.own for one in methods]):
            means, errors = [one.mean for one in side], [one.error for one in side]
            ranks.append(rankdata(rng.normal(means, errors, (DRAWS, len(methods))), axis=1) - (len(methods) + 1) / 2)
        first, second = ranks
        drawn += (first * second).sum(axis=1) / np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    low, median, high = np.quantile(drawn / len(blocks), [0.025, 0.5, 0.975])
    return float(median), float(low), float(high)


class PairOrder(NamedTuple):
    """Two methods that clearly differ in the paper, and by how many standard errors the better one is better here."""

    better: str
    worse: str
    own: float


def clear_pairs(blocks: list[list[Compared]]) -> list[PairOrder]:
    """Pairs of methods at one strength that differ by more than two standard errors in the paper."""
    found = []
    for methods in blocks:
        for one, other in combinations(methods, 2):
            apart = _in_errors(one.published, other.published)
            if abs(apart) > MAX_ERRORS:
                better, worse = (one, other) if apart > 0 else (other, one)
                found.append(PairOrder(better.method, worse.method, _in_errors(better.own, worse.own)))
    return found


def _in_errors(one: Published | Own, other: Published | Own) -> float:
    """Difference of two means in standard errors."""
    return (one.mean - other.mean) / max(float(np.hypot(one.error, other.error)), 1e-9)


def counts() -> dict[tuple[str, str], Counter[Status]]:
    """Number of values of each status, by source and data set."""
    found: dict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
    for key, value in published_values().items():
        found[key[0], key[1]][status_of(key, value)] += 1
    return dict(found)


def status_table() -> str:
    """The counts, in Markdown."""
    statuses: tuple[Status, ...] = ("reproduced", "not reproduced", "compared by order", "no counterpart")
    lines = ["| values of | all | " + " | ".join(statuses) + " |", "| --- |" + " ---: |" * 5]
    total: Counter[Status] = Counter()
    for (source, dataset), number in counts().items():
        cells = [f"{number[status]:,}" for status in statuses]
        lines.append(f"| {source}, {dataset} | {number.total():,} | " + " | ".join(cells) + " |")
        total += number
    cells = [f"**{total[status]:,}**" for status in statuses]
    lines.append(f"| all | **{total.total():,}** | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_record() -> Iterator[tuple[str, str, str]]:
    """Source, data set and record, wherever the order of methods is compared."""
    for (source, dataset), records in COUNTERPARTS.items():
        if not dataset.startswith("toy"):
            yield from ((source, dataset, record) for record in records)


def order_table() -> str:
    """How far the order of the methods agrees on each data set, in Markdown."""
    lines = [
        "| values of | our record | methods, strengths | rank correlation, worst group | average | single groups | "
        "worst group, same order (clearly) | reversed (clearly) | other metrics, same order (clearly) | reversed (clearly) |",
        "| --- | --- |" + " ---: |" * 8,
    ]
    for source, dataset, record in by_record():
        found = {kind: compared(source, dataset, kind, record) for kind in KINDS}
        worst = found["worst group"]
        strengths = len({one.strength for methods in worst for one in methods})
        cells = [f"{max(map(len, worst))}, {strengths}"]
        cells += [_correlation_cell(blocks) for blocks in found.values()]
        others = [block for kind, blocks in found.items() if kind != "worst group" for block in blocks]
        cells += [*_pair_cells(worst), *_pair_cells(others)]
        where = f"[{record.split('/')[0]}](../results/{record}.md)"
        lines.append(f"| {source}, {dataset} | {where} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _correlation_cell(blocks: list[list[Compared]]) -> str:
    """The rank correlation with its interval; a dash for two methods, or nothing to compare."""
    several = [methods for methods in blocks if len(methods) > 2]
    if not several:
        return "–"
    median, low, high = rank_correlation(several)
    return f"{median:.2f} ({low:.2f} – {high:.2f})"


def _pair_cells(blocks: list[list[Compared]]) -> tuple[str, str]:
    """Pairs of methods in the same order and reversed, with how many of them clearly."""
    own = np.array([pair.own for pair in clear_pairs(blocks)])
    return (
        f"{np.sum(own > 0)} ({np.sum(own > MAX_ERRORS)})",
        f"{np.sum(own <= 0)} ({np.sum(own < -MAX_ERRORS)})",
    )


def order_share() -> str:
    """How many pairs of methods that clearly differ in the paper are in the same order here, by worst groups."""
    pairs = [
        pair
        for source, dataset, record in by_record()
        for pair in clear_pairs(compared(source, dataset, record=record))
    ]
    same = sum(pair.own > 0 for pair in pairs)
    return f"{same} of {len(pairs)} pairs ({100 * same / len(pairs):.0f} %)"


def reversed_pairs() -> str:
    """Pairs of methods whose worst groups are reversed here, with how often, by data set and record."""
    lines = []
    for source, dataset, record in by_record():
        pairs = clear_pairs(compared(source, dataset, record=record))
        times = Counter((pair.better, pair.worse) for pair in pairs if pair.own <= 0)
        if times:
            said = ", ".join(f"{better} over {worse} ({n})" for (better, worse), n in times.most_common())
            lines.append(f"- {source}, {dataset}, `{record.split('/')[0]}`: {said}")
    return "\n".join(lines)


def missing_values() -> str:
    """Published values without a counterpart, by source, data set and method; or that there are none."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for key, value in published_values().items():
        if status_of(key, value) == "no counterpart":
            found[key[:3]].append(key[3])
    if not found:
        return "Every published value has a counterpart."
    lines = (
        f"- {source}, {dataset}, {method}: {len(at)} values, at {', '.join(f'{p:g}' for p in sorted(set(at)))}"
        for (source, dataset, method), at in found.items()
    )
    return "\n".join(["Values without a counterpart:\n", *lines])


if __name__ == "__main__":
    print(status_table(), order_table(), reversed_pairs(), missing_values(), sep="\n\n")
