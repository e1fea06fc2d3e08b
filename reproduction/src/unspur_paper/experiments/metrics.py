"""What tables show: numbers read off the result of one cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Result = Mapping[str, Any]

#: Groups in the order in which results count them: 2·main + concept.
GROUPS = ("main=0,spurious=0", "main=0,spurious=1", "main=1,spurious=0", "main=1,spurious=1")


def _group(g: int) -> Callable[[Result], float]:
    return lambda result: float(100.0 * result["right"][g] / result["rows"][g])


def _group_of_second(g: int) -> Callable[[Result], float]:
    def accuracy(result: Result) -> float:
        rows = result["rows_second"][g]
        return float(100.0 * result["right_second"][g] / rows) if rows else math.nan

    return accuracy


def _share(name: str) -> Callable[[Result], float]:
    """In %; not a number where nothing was changed."""
    return lambda result: math.nan if result[name] is None else 100.0 * result[name]


def _of_groups(name: str, g: int | None = None) -> Callable[[Result], float]:
    """Mean over groups, or the value of one, in %; not a number where it was not measured."""

    def mean(result: Result) -> float:
        found = result.get(name) or [None]
        wanted = found if g is None or len(found) == 1 else [found[g]]
        return math.nan if None in wanted else float(100.0 * np.mean(wanted))

    return mean


def _adversary(result: Result) -> float:
    """In %; not a number where the network was trained without one."""
    accuracy = result["training"]["adversary_accuracy"]
    return math.nan if accuracy is None else 100.0 * accuracy


def _found(result: Result) -> float:
    return 100.0 * bool(result["d_spurious"] == 1 and result["d_main"] == 1)


#: Metric -> its value for one cell. Accuracies are in %, and named as in the published values.
METRICS: dict[str, Callable[[Result], float]] = {
    **{name: _group(g) for g, name in enumerate(GROUPS)},
    "worst_group": lambda result: 100.0 * min(np.divide(result["right"], result["rows"])),
    "average": lambda result: 100.0 * sum(result["right"]) / sum(result["rows"]),
    "mse_main": lambda result: result["mse_main"],
    "mse_spurious": lambda result: result["mse_spurious"],
    "d_spurious": lambda result: float(result["d_spurious"]),
    "d_main": lambda result: float(result["d_main"]),
    "found": _found,
    # With two concepts, named as in the published values: those are sex and glasses.
    **{name.replace("spurious", "sex"): _group(g) for g, name in enumerate(GROUPS)},
    "worst_group(sex)": lambda result: 100.0 * min(np.divide(result["right"], result["rows"])),
    **{name.replace("spurious", "glasses"): _group_of_second(g) for g, name in enumerate(GROUPS)},
    "worst_group(glasses)": lambda result: 100.0 * min(np.divide(result["right_second"], result["rows_second"])),
    "mouth_share": _share("mouth_share"),
    "eyes_share": _share("eyes_share"),
    "change": lambda result: 100.0 * math.sqrt(result["change"]),
    "any_spurious": lambda result: 100.0 * (result["d_spurious"] > 0),
    "probe": lambda result: 100.0 * result["probe"],
    "adversary": _adversary,
    "inside": _of_groups("inside"),
    **{f"inside {name}": _of_groups("inside", g) for g, name in enumerate(GROUPS)},
    "area": _of_groups("inside_area"),
    # The same of faces, under names of their own.
    "on_mouth": _of_groups("inside"),
    "mouth_area": _of_groups("inside_area"),
}
#: What "inside per group" in a spec stands for.
INSIDE_GROUPS = tuple(f"inside {name}" for name in GROUPS)
#: Those of networks that were trained for the run.
OF_TRAINED = ("probe", "adversary", "inside", *INSIDE_GROUPS, "area", "on_mouth", "mouth_area")

#: What "accuracy" in a spec stands for: the paper's six.
ACCURACIES = (*GROUPS, "worst_group", "average")

#: What "two accuracies" stands for: the paper's with two concepts.
TWO_ACCURACIES = (
    "average",
    *(name.replace("spurious", "sex") for name in GROUPS),
    "worst_group(sex)",
    *(name.replace("spurious", "glasses") for name in GROUPS),
    "worst_group(glasses)",
)
#: Names in a spec that stand for several metrics.
BUNDLES = {"accuracy": ACCURACIES, "two accuracies": TWO_ACCURACIES, "inside per group": INSIDE_GROUPS}

#: How a metric is called in headings.
TITLES = {
    "worst_group": "worst group",
    "mse_main": "error of z_mt",
    "mse_spurious": "error of z_sp",
    "d_spurious": "spurious directions",
    "d_main": "main-task directions",
    "worst_group(sex)": "worst group (sex)",
    "worst_group(glasses)": "worst group (glasses)",
    "mouth_share": "share of the change around the mouth, %",
    "eyes_share": "share of the change around the eyes, %",
    "change": "change of a pixel (root mean square), % of white",
    "found": "one direction each found, %",
    "any_spurious": "any spurious direction found, %",
    "probe": "concept read off test rows by a fresh probe, %",
    "adversary": "concept read off by the adversary, %",
    "inside": "share of the map on the bird, %",
    "area": "share of the picture that is bird, %",
    "on_mouth": "share of the map on the mouth, %",
    "mouth_area": "share of the picture that is mouth, %",
    **{f"inside {name}": f"on the bird, {name}, %" for name in GROUPS},
}
