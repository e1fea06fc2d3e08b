"""From records to what tables and figures show: means over runs, agreement with the paper, differences run by run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from unspur_paper.experiments.metrics import METRICS
from unspur_paper.experiments.published import Published, published_values
from unspur_paper.experiments.spec import Cell, Experiment

#: Values further apart than this many combined standard errors do not agree ...
APART = 2.0
#: ... which happens to 4.6 % of them when both sides measure the same thing.
EXPECTED = math.erf(APART / math.sqrt(2.0))


@dataclass(frozen=True, slots=True)
class Line:
    """Mean over runs of one metric of one method at one point of the axes; and the published value, if there is one."""

    method: str
    at: Mapping[str, Any]
    metric: str
    mean: float
    #: Standard error of the mean; None for a single run.
    error: float | None
    runs: int
    published: Published | None

    @property
    def half(self) -> float | None:
        """Half the width of the 95 % interval of the mean; None for a single run."""
        return _half(self.error, self.runs)

    @property
    def distance(self) -> float | None:
        """Ours minus published, in combined standard errors."""
        if self.published is None or self.error is None:
            return None
        combined, difference = math.hypot(self.error, self.published.error), self.mean - self.published.mean
        if combined == 0:
            return 0.0 if difference == 0 else math.copysign(math.inf, difference)
        return difference / combined


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many of a method's published values lie within two combined standard errors of ours."""

    method: str
    within: int
    total: int
    #: Whether the method is held to the published values, or only stands beside them.
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over runs of one method minus another on the same data, with its standard error."""

    method: str
    other: str
    at: Mapping[str, Any]
    metric: str
    mean: float
    error: float | None
    runs: int

    @property
    def half(self) -> float | None:
        """Half the width of the 95 % interval of the mean; None for a single run."""
        return _half(self.error, self.runs)


def _half(error: float | None, runs: int) -> float | None:
    """By Student's t: with five runs, intervals of 1.96 standard errors would cover 88 %."""
    return None if error is None else float(student_t.ppf(0.975, runs - 1) * error)


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that is drawn of one experiment under one preset."""

    experiment: Experiment
    preset: str
    version: str
    lines: tuple[Line, ...]
    differences: tuple[Difference, ...]
    #: Method -> panels of its illustration.
    panels: Mapping[str, list[dict[str, Any]]]
    #: Cells that there is no record of.
    missing: int
    #: Method -> mean over runs of how much each pixel was changed, where rows are pictures.
    pictures: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def agreement(self) -> tuple[Agreement, ...]:
        """Per method, in the order of the spec, for those with published values."""
        counted = []
        for method in self.experiment.methods:
            apart = [abs(d) for line in self.lines if line.method == method.name and (d := line.distance) is not None]
            if apart:
                found = sum(d <= APART for d in apart)
                counted.append(Agreement(method.name, found, len(apart), method.counted))
        return tuple(counted)


def summarise(
    experiment: Experiment,
    preset: str,
    version: str,
    cells: Iterable[Cell],
    results: Iterable[Mapping[str, Any] | None],
) -> Summary:
    """Means and comparisons of cells and their results (None where there is no record)."""
    values: dict[tuple[str, tuple[Any, ...]], dict[int, Mapping[str, Any]]] = {}
    places: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    panels: dict[str, list[dict[str, Any]]] = {}
    missing = 0
    for cell, result in zip(cells, results, strict=True):
        if result is None:
            missing += 1
        elif "panels" in result:
            panels[cell.method] = result["panels"]
        else:
            place = tuple(cell.at.values())
            places[place] = cell.at
            values.setdefault((cell.method, place), {})[cell.spec["run"]] = result
    lines = tuple(
        _line(experiment, method, places[place], metric, runs)
        for metric in experiment.metrics
        for (method, place), runs in values.items()
    )
    lines = tuple(line for line in lines if not math.isnan(line.mean))
    differences = tuple(d for d in _differences(experiment, values, places) if not math.isnan(d.mean))
    return Summary(experiment, preset, version, lines, differences, panels, missing, _pictures(values))


def _pictures(values: Mapping[tuple[str, tuple[Any, ...]], Mapping[int, Mapping[str, Any]]]) -> dict[str, list[float]]:
    """Mean picture of each method at the last point of the axes that it has runs at."""
    found = {}
    for (method, _), runs in values.items():
        pictures = [result["picture"] for result in runs.values() if any(result.get("picture", ()))]
        if pictures:
            found[method] = np.mean(pictures, axis=0).tolist()
    return found


def _line(
    experiment: Experiment, method: str, at: Mapping[str, Any], metric: str, runs: Mapping[int, Mapping[str, Any]]
) -> Line:
    mean, error, measured = _mean([METRICS[metric](result) for result in runs.values()])
    return Line(method, at, metric, mean, error, measured, _published(experiment, method, at, metric))


def _published(experiment: Experiment, method: str, at: Mapping[str, Any], metric: str) -> Published | None:
    """The published value, if there is one."""
    if experiment.published is None:
        return None
    line, dataset = experiment.method(method), experiment.published["dataset"]
    source = line.source or experiment.published["source"]
    key = (source, dataset, line.published, float(at[experiment.strength]), metric)
    return published_values().get(key)


def _differences(
    experiment: Experiment,
    values: Mapping[tuple[str, tuple[Any, ...]], Mapping[int, Mapping[str, Any]]],
    places: Mapping[tuple[Any, ...], Mapping[str, Any]],
) -> tuple[Difference, ...]:
    """The first method minus each other, and the pairs that the experiment names, over the runs that both have."""
    first = experiment.methods[0].name
    found = []
    for metric in experiment.metrics:
        for (other, place), theirs in values.items():
            minuends = [first, *(one for one, subtracted in experiment.compare if subtracted == other and one != first)]
            for minuend in minuends:
                ours = values.get((minuend, place), {})
                runs = sorted(set(ours) & set(theirs))
                if other != minuend and runs:
                    values_of = [METRICS[metric](ours[r]) - METRICS[metric](theirs[r]) for r in runs]
                    found.append(Difference(minuend, other, places[place], metric, *_mean(values_of)))
    return tuple(found)


def _mean(values: list[float]) -> tuple[float, float | None, int]:
    """Mean, its standard error, and how many runs had something to measure."""
    values = [value for value in values if not math.isnan(value)]
    if len(values) < 2:
        return (values[0] if values else math.nan), None, len(values)
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))), len(values)
