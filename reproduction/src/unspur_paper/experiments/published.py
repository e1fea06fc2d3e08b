"""The published values: facts from the tables and figures of the paper, one line each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache

from unspur_paper.experiments.folder import experiments_folder

#: Half the width of a 95 % band in standard errors.
BAND = 1.959964


@dataclass(frozen=True, slots=True)
class Published:
    """Mean over the runs of the paper, and its standard error."""

    mean: float
    error: float
    runs: int


@cache
def published_values() -> dict[tuple[str, str, str, float, str], Published]:
    """All of them, by (source, dataset, method, strength, metric)."""
    with (experiments_folder() / "published.csv").open(encoding="utf-8", newline="") as file:
        return {
            (line["source"], line["dataset"], line["method"], float(line["strength"]), line["metric"]): Published(
                float(line["mean"]), _error(line), int(line["runs"])
            )
            for line in csv.DictReader(file)
        }


def _error(line: dict[str, str]) -> float:
    if line["se"]:
        return float(line["se"])
    return (float(line["high95"]) - float(line["low95"])) / (2.0 * BAND)
