"""Curves of the paper's experiments, from their summaries: accuracy out of distribution, and reconstruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unspur.exceptions import InputError
from unspur.report.figures.charts import Panel, draw_panels
from unspur.report.figures.style import Width, styled
from unspur_paper.experiments.published import BAND
from unspur_paper.experiments.summary import Summary
from unspur_paper.report.experiment_lines import (
    METRIC_NAMES,
    PERCENT,
    Curve,
    axis_name_of,
    bearers,
    curve_of,
    half_of,
    places_of,
    present,
    require_strength_only,
)


@styled
def ood_curves(
    summary: Summary,
    *,
    at: Mapping[str, Any] | None = None,
    published: bool = True,
    reference: Mapping[str, float] | None = None,
    reference_label: str = "Bayes accuracy",
    width: Width = "page",
) -> Any:
    """Average accuracy and that of the worst group over the strength, with 95 % bands; published values dashed.

    Parameters
    ----------
    summary : of an experiment, as `unspur_paper.experiments.summary.summarise` or `reproduce` return it.
    at : values of settings besides the strength, where the experiment varies some.
    published : whether to draw what the paper published, where there is something.
    reference : metric -> value of a dotted line, which the legend calls `reference_label`.
    width : "column", "page", or inches.

    Examples
    --------
    >>> from unspur_paper.experiments.reproduce import find_experiments
    >>> from unspur_paper.experiments.summary import summarise
    >>> from unspur_paper.report.curves import ood_curves
    >>> experiment = find_experiments(["toy-ood"])[0]
    >>> cells = experiment.cells("exact", runs=2)
    >>> results = [{"right": [85, 80, 80, 85 + cell.spec["run"]], "rows": [100] * 4} for cell in cells]
    >>> ood_curves(summarise(experiment, "exact", "0", cells, results))
    <Figure size ...>
    """
    marks = {metric: {reference_label: value} for metric, value in (reference or {}).items()}
    return _draw(summary, _is_accuracy, "accuracies", at or {}, published, marks, width)


@styled
def reconstruction_curves(
    summary: Summary, *, at: Mapping[str, Any] | None = None, published: bool = True, width: Width = "page"
) -> Any:
    """Error of rebuilding the main-task and the spurious feature from what is left, over the strength.

    A removal is good where the first stays near 0 and the second near 1, which is the error of a constant.
    Arguments are those of `ood_curves`.

    Examples
    --------
    >>> from unspur_paper.experiments.reproduce import find_experiments
    >>> from unspur_paper.experiments.summary import summarise
    >>> from unspur_paper.report.curves import reconstruction_curves
    >>> experiment = find_experiments(["toy-reconstruction"])[0]
    >>> cells = experiment.cells("exact", runs=2)
    >>> results = [{"mse_main": 0.01 * cell.spec["run"], "mse_spurious": 0.9} for cell in cells]
    >>> reconstruction_curves(summarise(experiment, "exact", "0", cells, results))
    <Figure size ...>
    """
    marks = {"mse_spurious": {"nothing left": 1.0}}
    return _draw(summary, _is_error, "errors of reconstruction", at or {}, published, marks, width)


def _is_accuracy(metric: str) -> bool:
    return metric.startswith(("average", "worst_group"))


def _is_error(metric: str) -> bool:
    return metric in ("mse_main", "mse_spurious")


def _draw(
    summary: Summary,
    wanted: Callable[[str], bool],
    words: str,
    at: Mapping[str, Any],
    published: bool,
    marks: Mapping[str, Mapping[str, float]],
    width: Width,
) -> Any:
    experiment = summary.experiment
    require_strength_only(experiment, f"Curves of {words}", at)
    methods = present(summary)
    bearing = bearers(experiment, methods) if published else ()
    measured = {line.metric for line in summary.lines if at.items() <= line.at.items()}
    metrics = sorted((m for m in experiment.metrics if wanted(m) and m in measured), key=lambda m: m != "average")
    if not metrics:
        raise InputError(
            f"{experiment.name} has no {words}{f' at {dict(at)}' if at else ''}: it measured "
            f"{', '.join(sorted({line.metric for line in summary.lines})) or 'nothing yet'}."
        )
    places = places_of(summary)
    panels = []
    for metric in metrics:
        found = {name: curve_of(summary, places, name, metric, at) for name in methods}
        ours = {name: _ours(curve, metric) for name, curve in found.items() if curve}
        beside = {name: _theirs(curve) for name, curve in found.items() if name in bearing}
        beside = {name: points for name, points in beside.items() if points.size}
        least = 5.0 if metric in PERCENT else 0.1
        panels.append(Panel(METRIC_NAMES.get(metric, metric), ours, beside, marks.get(metric, {}), least))
    placed = list(places.values()) != list(places) or len(places) <= 3
    ticks = {place: f"{value:g}" for value, place in places.items()} if placed else None
    name = axis_name_of(experiment.strength, 0 if len(places) == 1 else 1)
    return draw_panels(panels, name, "", width, ticks)


def _ours(curve: Curve, metric: str) -> Any:
    x, mean, half = np.transpose([(x, line.mean, half_of(line)) for x, line in curve])
    low, high = np.maximum(mean - half, 0.0), mean + half
    return np.array([x, mean, low, np.minimum(high, 100.0) if metric in PERCENT else high])


def _theirs(curve: Sequence[Any]) -> Any:
    known = [(x, line.published.mean, BAND * line.published.error) for x, line in curve if line.published is not None]
    x, mean, half = np.transpose(known) if known else np.empty((3, 0))
    return np.array([x, mean, mean - half, mean + half])
