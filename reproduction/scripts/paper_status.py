"""What became of every published value: a status for each, and how far the order of the methods agrees.

    python reproduction/scripts/paper_status.py            # the counts, as on the page on the claims of the paper

Toy is the same data, so its values are reproduced or not: within two standard errors of ours under the preset that
repeats the authors' program. Networks and pictures are not the same, so values of birds, faces and pairs are compared
by their order. One measure is the rank correlation over methods of published and own worst-group accuracies, at one
strength, averaged over strengths: median and 95 % interval over 2,000 draws of both sides' means within their standard
errors. The other counts pairs of methods that differ by more than two standard errors in the paper, and asks which of
the two is better here.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
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
    ("reweighting", "celeba"): ("celeba-reweighting/exact",),
    ("two-concepts", "celeba"): ("celeba-two-concepts/exact",),
    ("removal", "multinli"): ("multinli-ood/exact",),
    ("reweighting", "multinli"): ("multinli-reweighting/exact",),
    ("clean-encoder", "multinli"): ("multinli-clean-encoder/exact",),
}
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


def own_value(key: Key) -> Own | None:
    """Our value for a published one."""
    source, dataset, method, strength, metric = key
    for record in COUNTERPARTS[source, dataset]:
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


class Order(NamedTuple):
    """How far the order of the methods agrees."""

    correlation: float
    low: float
    high: float
    methods: int
    strengths: int
    #: Pairs of methods that clearly differ in the paper: better one also better here, of which clearly; worse; clearly.
    same: int
    clearly_same: int
    reversed: int
    clearly_reversed: int
    records: tuple[str, ...]


def order_of(source: str, dataset: str, metric: str = "worst_group") -> Order | None:
    """How far the order of the methods agrees; None with fewer than three methods at every strength."""
    by_strength: dict[float, list[tuple[Published, Own]]] = defaultdict(list)
    for key, value in published_values().items():
        if (key[0], key[1], key[4]) == (source, dataset, metric) and (own := own_value(key)) is not None:
            by_strength[key[3]].append((value, own))
    blocks = [pairs for pairs in by_strength.values() if len(pairs) >= 3]
    if not blocks:
        return None
    rng, drawn = np.random.default_rng(0), np.zeros(DRAWS)
    for pairs in blocks:
        sides = [
            rankdata(rng.normal([one.mean for one in side], [one.error for one in side], (DRAWS, len(pairs))), axis=1)
            for side in zip(*pairs, strict=True)
        ]
        first, second = (side - side.mean(axis=1, keepdims=True) for side in sides)
        drawn += (first * second).sum(axis=1) / np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    low, median, high = np.quantile(drawn / len(blocks), [0.025, 0.5, 0.975])
    records = tuple(sorted({own.record for pairs in blocks for _, own in pairs}))
    return Order(
        float(median), float(low), float(high), max(map(len, blocks)), len(blocks), *concordance(blocks), records
    )


def concordance(blocks: list[list[tuple[Published, Own]]]) -> tuple[int, int, int, int]:
    """Pairs that clearly differ in the paper: same order here, clearly so, reversed, clearly so."""
    found = Counter[str]()
    for pairs in blocks:
        for (there, here), (other_there, other_here) in combinations(pairs, 2):
            published = _in_errors(there, other_there)
            if abs(published) <= MAX_ERRORS:
                continue
            own = _in_errors(here, other_here) * np.sign(published)
            found["same" if own > 0 else "reversed"] += 1
            found["clearly same"] += own > MAX_ERRORS
            found["clearly reversed"] += own < -MAX_ERRORS
    return found["same"], found["clearly same"], found["reversed"], found["clearly reversed"]


def _in_errors(one: Published | Own, other: Published | Own) -> float:
    """Difference of two means in standard errors."""
    return (one.mean - other.mean) / max(float(np.hypot(one.error, other.error)), 1e-9)


def counts() -> dict[tuple[str, str], Counter[Status]]:
    """Number of values of each status, by source and data set."""
    found: dict[tuple[str, str], Counter[Status]] = defaultdict(Counter)
    for key, value in published_values().items():
        found[key[0], key[1]][status_of(key, value)] += 1
    return dict(found)


def table() -> str:
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


def orders() -> str:
    """How far the order of the methods agrees on each data set, in Markdown."""
    lines = [
        "| values of | methods, strengths | rank correlation | same order (clearly) | reversed (clearly) | records |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for source, dataset in COUNTERPARTS:
        found = None if dataset.startswith("toy") else order_of(source, dataset)
        if found is None:
            continue
        where = ", ".join(f"[{name.split('/')[0]}](../results/{name}.md)" for name in found.records)
        lines.append(
            f"| {source}, {dataset} | {found.methods}, {found.strengths} | "
            f"{found.correlation:.2f} ({found.low:.2f} – {found.high:.2f}) | {found.same} ({found.clearly_same}) | "
            f"{found.reversed} ({found.clearly_reversed}) | {where} |"
        )
    return "\n".join(lines)


def missing() -> str:
    """Published values without a counterpart, by source, data set and method."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for key, value in published_values().items():
        if status_of(key, value) == "no counterpart":
            found[key[:3]].append(key[3])
    return "\n".join(
        f"- {source}, {dataset}, {method}: {len(at)} values, at {', '.join(f'{p:g}' for p in sorted(set(at)))}"
        for (source, dataset, method), at in found.items()
    )


if __name__ == "__main__":
    print(table(), orders(), missing(), sep="\n\n")
