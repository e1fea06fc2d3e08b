"""Datasets that a spec may name: their settings, with defaults and what they may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A number that describes a dataset: its default (the paper's), and what it needs to be, in words and as a test."""

    default: int | float
    needs: str
    valid: Callable[[Any], bool]


DATASETS: dict[str, dict[str, Setting]] = {
    "toy": {
        "n": Setting(2000, "a whole number of at least 50", lambda n: n >= 50),
        "d": Setting(20, "a whole number of at least 2", lambda d: d >= 2),
        "rho": Setting(0.0, "a correlation between -1 and 1", lambda rho: -1.0 < rho < 1.0),
        "separability_concept": Setting(3.0, "a positive number", lambda gamma: 0.0 < gamma < 1e6),
        "separability_main": Setting(3.0, "a positive number", lambda gamma: 0.0 < gamma < 1e6),
        "angle": Setting(90.0, "degrees between 0 and 180", lambda angle: 0.0 < angle < 180.0),
    },
}

#: Settings, besides the strength, that published values are for; all others are the defaults.
PUBLISHED: dict[str, tuple[str, dict[str, float]]] = {
    "toy": ("toy", {}),
    "toy gamma_sp=6 gamma_mt=2": ("toy", {"separability_concept": 6.0, "separability_main": 2.0}),
}
