"""How often an interval holds the truth: one cell for each setting, counted, and compared with what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binom

from trust.tally import Tally

#: A cell has failed when fewer sets are covered than happens once in a thousand cells that cover at their level.
CHANCE = 0.001


def least(sets: int, level: float = 0.95) -> int:
    """Fewest covered sets of so many that go with an interval of this level."""
    return int(binom.ppf(CHANCE, sets, level))


def most(sets: int, size: float) -> int:
    """Most rejections in so many sets that go with a test of this size."""
    return int(binom.isf(CHANCE, sets, size))


@dataclass
class Cells:
    """Settings of one kind of interval, each with its counts."""

    level: float = 0.95
    cells: list[dict[str, Any]] = field(default_factory=list)

    def add(self, setting: dict[str, Any], low: Any, high: Any, truth: Any) -> bool:
        """Count the sets whose interval holds the truth, rounding aside; returns whether the cell holds its level."""
        low, high = (np.asarray(bound, dtype=np.float64).ravel() for bound in (low, high))
        covered = (low <= np.ravel(truth) + 1e-12) & (np.ravel(truth) - 1e-12 <= high)
        held = bool(covered.sum() >= least(len(low), self.level))
        self.cells.append(
            {
                **setting,
                "sets": len(low),
                "covered": int(covered.sum()),
                "rate": round(float(covered.mean()), 4),
                "width": round(float(np.mean(high - low)), 4),
                "held": held,
            }
        )
        return held

    @property
    def failed(self) -> list[dict[str, Any]]:
        """Cells that cover too rarely."""
        return [cell for cell in self.cells if not cell["held"]]

    def told(self, line: Tally) -> None:
        """Trials are cells; the figure is how often they cover, at least and on average."""
        line.trials(len(self.cells), len(self.cells) - len(self.failed))
        rates = [cell["rate"] for cell in self.cells]
        sets = sum(cell["sets"] for cell in self.cells)
        line.figure = f"covers {100 * min(rates):.1f} % at least, mean {100 * np.mean(rates):.1f} ({sets:,} sets)"
        line.data = {"level": self.level, "cells": self.cells}
