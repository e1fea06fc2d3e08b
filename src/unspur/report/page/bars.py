"""Dots with whiskers on a common scale. Positions are percent of the width, so that a chart fits any screen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Where a value lies, in percent of the width; what lies outside is at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return round(100 * min(1.0, max(0.0, share)), 3)


@dataclass(frozen=True, slots=True)
class Whisker:
    """A dot and its interval: positions in percent, height in pixels, number of the series, what to say of it."""

    at: float
    low: float
    high: float
    y: float
    series: int
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick and its label."""

    at: float
    label: str


def share_scale(lows: Iterable[float], most: float = 1.0) -> Scale:
    """From the ten percent below the smallest bound up to `most`; at least thirty points wide."""
    known = [low for low in lows if not math.isnan(low)]
    start = math.floor(10 * min(known, default=0.0) + 1e-9) / 10
    return Scale(max(0.0, min(start, most - 0.3)), most)


def share_ticks(scale: Scale) -> list[Tick]:
    """Whole percents, no more than five: beside many methods there is little room."""
    wide = 100 * (scale.high - scale.low)
    step = next(step for step in (10, 20, 25, 50) if wide / step <= 4)
    first = math.ceil(100 * scale.low / step - 1e-9) * step
    values = range(first, round(100 * scale.high) + 1, step)
    return [Tick(scale.at(value / 100), f"{value}") for value in values]
