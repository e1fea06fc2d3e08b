"""What a summary has to draw, whoever draws it: metrics and their names, methods, and points of curves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from unspur.exceptions import InputError
from unspur_paper.experiments.metrics import GROUPS, INSIDE_GROUPS, TITLES, TWO_ACCURACIES
from unspur_paper.experiments.spec import Experiment
from unspur_paper.experiments.summary import Line, Summary

#: What a metric is called along an axis; those in %; those that are whole numbers.
METRIC_NAMES = {
    **TITLES,
    "average": "average accuracy, %",
    "worst_group": "accuracy of the worst group, %",
    "d_spurious": "spurious directions found",
    "d_main": "main-task directions found",
    "mse_main": r"error of rebuilding $z_{\mathrm{mt}}$",
    "mse_spurious": r"error of rebuilding $z_{\mathrm{sp}}$",
}
PERCENT = {
    *GROUPS,
    *TWO_ACCURACIES,
    "average",
    "worst_group",
    "found",
    "any_spurious",
    "inside",
    *INSIDE_GROUPS,
    "area",
    "on_mouth",
    "mouth_area",
    "probe",
    "adversary",
}
COUNTS = {"d_spurious", "d_main"}
#: Setting of a dataset -> its symbol, and its name along an axis.
_AXES = {
    "rho": ("ρ", "ρ, correlation of the two features in training"),
    "n": ("n", "n, rows of the training pool"),
    "p": ("p", "p, share of training rows whose concept agrees with the main label"),
    "labelled": ("labelled rows", "training rows whose concept is known"),
    "angle": ("angle", "angle between the label vectors, degrees"),
    "pca": ("components", "principal components"),
}
#: Points of a curve from left to right: where, and what.
Curve: TypeAlias = Sequence[tuple[float, Line]]


def bearers(experiment: Experiment, methods: Collection[str]) -> Collection[str]:
    """Methods beside which a published line is drawn.

    Of methods that share one (one of them repeats a fault of the authors' program), the last carries it.
    """
    return {experiment.method(name).published: name for name in methods}.values()


def require_strength_only(experiment: Experiment, what: str, fixed: Collection[str] = ()) -> None:
    """Raise InputError where more than the strength varies."""
    if others := [axis for axis in experiment.axes if axis != experiment.strength and axis not in fixed]:
        raise InputError(f"{what} vary {experiment.strength} only; {experiment.name} also varies {', '.join(others)}.")


def metrics_of(experiment: Experiment, most: int | None = None) -> list[str]:
    """Those worth a panel: of the paper's six accuracies the average and the worst group, in this order."""
    found = [metric for metric in experiment.metrics if metric not in GROUPS][:most] or list(experiment.metrics)[:most]
    pair = iter([metric for metric in ("average", "worst_group") if metric in found])
    return [next(pair) if metric in ("average", "worst_group") else metric for metric in found]


def present(summary: Summary) -> list[str]:
    """Methods that have runs and are to be shown, in the order of the spec."""
    measured = {line.method for line in summary.lines}
    shown = summary.experiment.shown or [method.name for method in summary.experiment.methods]
    return [method.name for method in summary.experiment.methods if method.name in measured and method.name in shown]


def strength_of(experiment: Experiment, line: Line) -> float:
    """Strength at which a line was measured."""
    return float(line.at.get(experiment.strength, experiment.dataset[experiment.strength]))


def places_of(summary: Summary) -> dict[float, float]:
    """Where each strength is drawn: at its value, or side by side where values crowd at one end."""
    values = sorted({strength_of(summary.experiment, line) for line in summary.lines})
    gaps = np.diff(values)
    crowded = len(values) > 2 and gaps.max() > 4 * gaps.min()
    return {value: float(k) if crowded else value for k, value in enumerate(values)}


def curve_of(
    summary: Summary, places: Mapping[float, float], method: str, metric: str, at: Mapping[str, Any] | None = None
) -> Curve:
    """Points of one curve from left to right."""
    chosen = [
        (places[strength_of(summary.experiment, line)], line)
        for line in summary.lines
        if line.method == method and line.metric == metric and (at or {}).items() <= line.at.items()
    ]
    return sorted(chosen, key=lambda point: point[0])


def half_of(line: Line) -> float:
    """Half the width of the 95 % interval; zero for a single run, which has none."""
    return line.half or 0.0


def axis_name_of(setting: str, form: int) -> str:
    """Symbol (form 0) or full name (form 1) of a setting of a dataset."""
    return _AXES.get(setting, (setting, setting))[form]
