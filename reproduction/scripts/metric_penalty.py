"""The page on the metric of the constraint and that of the penalty, one at a time: that they should go together.

    python reproduction/scripts/metric_penalty.py

`JSE(metric=τ)` asks for ``w_sᵀ M(τ) w_y = 0`` and penalises ``wᵀ M(τ) w``. In these records the two have metrics of their
own. They were computed with unspur 0.1.0, whose solver of pairs took another penalty; this version's does not.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

#: Metric of the constraint and of the penalty.
PAIRS = ((0.0, 0.0), (0.25, 0.25), (0.25, 0.0), (0.0, 0.25), (1.0, 1.0), (1.0, 0.0))
RECORDS = Path(__file__).parents[1] / "results" / "metric-penalty.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "metric-penalty.md"
TEXT = """# Constraint and penalty, each in a metric of its own

<!-- written by reproduction/scripts/metric_penalty.py; do not edit -->

`JSE(metric=τ)` uses M(τ) twice: the two directions are orthogonal in it, and the penalty is `wᵀ M(τ) w`. Which of the
two brings the gain? Here each has a metric of its own. Worst-group accuracy in percent after a group-weighted head, as
in [regret](regret.md), with the mean number of directions removed in brackets; two networks or three Toy draws a cell.

{table}

The constraint decides. With the constraint at τ = 0.25 the metric of the penalty makes no clear difference, and with
the constraint at τ = 0 a penalty at τ = 0.25 gains nothing on fine-tuned networks. At τ = 1 a Euclidean penalty is
sometimes better and sometimes worse. So both stay together, which needs no second parameter and keeps the problem
diagonal. The cells are few; differences of one or two points are within their noise.
"""


def page(path: Path) -> str:
    """The page, from the records."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    sets = sorted({(line["set"], line["strength"]) for line in lines})
    rows = ["| constraint τ, penalty τ | " + " | ".join(f"{name} {p:g}" for name, p in sets) + " |"]
    rows.append("| --- |" + " ---: |" * len(sets))
    for pair in PAIRS:
        cells = []
        for where in sets:
            own = [
                line
                for line in lines
                if (line["set"], line["strength"]) == where and (line["constraint"], line["penalty"]) == pair
            ]
            worst, removed = (np.mean([line[name] for line in own]) for name in ("worst", "removed"))
            cells.append(f"{100 * worst:.1f} ({removed:.1f})")
        rows.append(f"| {pair[0]:g}, {pair[1]:g} | " + " | ".join(cells) + " |")
    return TEXT.format(table="\n".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page(RECORDS), encoding="utf-8")
