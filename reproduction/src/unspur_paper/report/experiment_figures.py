"""Pictures of experiments, drawn with matplotlib from their summaries: curves over the strength, and rows in a plane.

Ours is a solid line with its 95 % band; what the paper published is dashed, with open markers and 95 % bars. The same
summary gives the same bytes.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unspur._extras import require
from unspur.exceptions import InputError
from unspur_paper.experiments.published import BAND
from unspur_paper.experiments.summary import Line, Summary
from unspur_paper.report.experiment_lines import (
    COUNTS,
    METRIC_NAMES,
    PERCENT,
    Curve,
    axis_name_of,
    bearers,
    curve_of,
    half_of,
    metrics_of,
    places_of,
    present,
    require_strength_only,
)
from unspur_paper.report.experiment_sheet import GREY, PANEL, STYLE, handle, sheet, write_figure
from unspur_paper.report.illustration import illustration
from unspur_paper.report.pictures import pictures

#: The same in every figure; common kinds of colour blindness keep them apart.
METHOD_COLOURS = {
    "no removal": "#6E6E6E",
    "ERM": "#6E6E6E",
    "JSE": "#00795A",
    "INLP": "#D55E00",
    "LEACE": "#0072B2",
    "RLACE": "#CC79A7",
    "true axis": "#000000",
    "GW-ERM": "#E69F00",
    "SUBG": "#56B4E9",
    "GDRO": "#882255",
    "GDRO as released": "#CC79A7",
    "JTT": "#332288",
    "SPLINCE": "#56B4E9",
    "SAL": "#882255",
    "DFR": "#332288",
    "JSE + GW-ERM": "#000000",
    "GroupWeighted": "#E69F00",
    "GroupDRO": "#882255",
}
#: For methods without a colour of their own.
COLOUR_CYCLE = ("#00795A", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#332288")
_MARKERS = "os^Dv<>ph*"
#: Lines of counts lie on each other so often that they are drawn this far apart.
_SHIFT = 0.035
#: Rows of panels under "sizes": more are not readable.
_SIZE_METRICS = 3
#: Keywords of a matplotlib line; metric -> value and name of its dotted line.
Look: TypeAlias = Mapping[str, Any]
Marks: TypeAlias = Mapping[str, tuple[float, str]]


def draw(
    summary: Summary,
    folder: Path,
    *,
    stem: str = "figure",
    reference: Mapping[str, float] | None = None,
    reference_label: str = "Bayes accuracy",
) -> list[Path]:
    """Draw `stem`, and `stem`-illustration or -pictures where those were kept, as SVG and PNG; return the files.

    `reference` gives metrics a dotted line, in their own units, that the legend calls `reference_label`. A method
    without runs is left out, and an experiment without any has no figure.
    """
    require("Figures need", "matplotlib")
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    marks = {"mse_spurious": (1.0, "nothing left")}
    marks |= {metric: (value, reference_label) for metric, value in (reference or {}).items()}
    written = []
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings are
        mpl.rcParams.update(STYLE)
        if summary.lines:
            written += write_figure(_LAYOUTS[summary.experiment.figure](summary, marks), folder / stem)
        if any(any(picture) for picture in summary.pictures.values()):
            written += write_figure(pictures(summary), folder / f"{stem}-pictures")
        if summary.panels:
            written += write_figure(illustration(summary), folder / f"{stem}-illustration")
    return written


# Curves: one panel per metric, one line per method --------------------------------------------------------------------


def _curves(summary: Summary, marks: Marks) -> Any:
    """Lines over the strength; where it has one value only, one point per method."""
    experiment = summary.experiment
    require_strength_only(experiment, "'curves'")
    looks, places = _method_looks(summary), places_of(summary)
    measured = {line.metric for line in summary.lines if line.method in looks and not math.isnan(line.mean)}
    metrics = [metric for metric in metrics_of(experiment) if metric in measured]
    bearing = bearers(experiment, looks)
    single, columns = len(places) == 1, min(len(metrics), 2)
    rows = -(-len(metrics) // columns)
    height = rows * (0.7 + 0.32 * len(looks) if single else PANEL)
    name = f"at {axis_name_of(experiment.strength, 0)} = {next(iter(places)):g}" if single else None
    figure = sheet(summary, height, _method_legend(summary, looks, marks, single), name)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=not single, sharey=single)
    for axis, metric in zip(grid.flat, metrics, strict=False):
        for k, (name, look) in enumerate(looks.items()):
            curve = curve_of(summary, places, name, metric)
            if single and curve:
                _point(axis, k, curve[0][1], look, with_published=name in bearing)
            elif not single:
                _band(axis, curve, look, shift=_SHIFT * ((len(looks) - 1) / 2 - k) if metric in COUNTS else 0.0)
                _published(axis, curve if name in bearing else [], look)
        apart = " (lines set slightly apart)" if metric in COUNTS and not single and len(looks) > 1 else ""
        axis.set_title(METRIC_NAMES.get(metric, metric) + apart, loc="left")
        _finish([axis], metric, marks, horizontal=single)
    if single:
        grid[0, 0].set_yticks(range(len(looks)), list(looks))
        grid[0, 0].set_ylim(len(looks) - 0.4, -0.6)
        for axis in grid.flat:
            axis.tick_params(axis="y", length=0)
    else:
        _label_places(grid[-1], places)
    for axis in grid.flat[len(metrics) :]:
        axis.set_axis_off()
    return figure


def _method_looks(summary: Summary) -> dict[str, Look]:
    """Colour, marker and width of each method that has runs. Later lines are thinner, so that equal ones all show."""
    methods = present(summary)
    colours = method_colours(methods)
    markers = dict(zip(colours, _MARKERS * len(colours), strict=False))
    widths = 1.3 + min(0.35, 1.8 / len(methods)) * np.arange(len(methods))[::-1]
    return {
        name: {"color": colours[name], "marker": markers[name], "linewidth": float(width)}
        for name, width in zip(methods, widths, strict=True)
    }


def method_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method: the same in every figure, or the next one that no other method here has."""
    names = list(dict.fromkeys(names))
    taken = {METHOD_COLOURS[name] for name in names if name in METHOD_COLOURS}
    free = [colour for colour in COLOUR_CYCLE if colour not in taken] or list(COLOUR_CYCLE)
    variants = [name for name in names if name not in METHOD_COLOURS]
    given = {name: free[k % len(free)] for k, name in enumerate(variants)}
    return {name: METHOD_COLOURS.get(name) or given[name] for name in names}


def _published(axis: Any, curve: Curve, look: Look) -> None:
    known = [(x, line.published.mean, BAND * line.published.error) for x, line in curve if line.published is not None]
    if known:
        style = {**look, **_OPEN, "linewidth": 1.0, "linestyle": (0, (4, 2))}
        axis.errorbar(*np.transpose(known), **style, zorder=3)


def _point(axis: Any, k: int, line: Line, look: Look, *, with_published: bool) -> None:
    axis.errorbar([line.mean], [k], xerr=[half_of(line)], **{**look, **_FILLED})
    if line.published is not None and with_published:
        half = BAND * line.published.error
        axis.errorbar([line.published.mean], [k + 0.28], xerr=[half], **{**look, **_OPEN, "linestyle": ""})


_FILLED = {"markersize": 5.5, "elinewidth": 1.7, "linestyle": ""}
_OPEN = {"markerfacecolor": "white", "markeredgewidth": 1.0, "markersize": 4.5, "elinewidth": 0.9}


def _method_legend(summary: Summary, looks: Mapping[str, Look], marks: Marks, single: bool) -> list[list[Any]]:
    """Methods, unless each has its name beside it; then what solid, dashed and dotted lines are."""
    metrics = metrics_of(summary.experiment)
    methods = [] if single else [handle(name, **{**look, "marker": ""}) for name, look in looks.items()]
    kinds = []
    if any(line.published is not None for line in summary.lines if line.metric in metrics):
        solid = {"color": GREY, "marker": "o", "linestyle": ""} if single else {"color": GREY}
        dashed = {**solid, "marker": "o", "linestyle": "" if single else (0, (4, 2)), "linewidth": 1.0}
        kinds = [handle("ours", **solid), handle("published", **{**_OPEN, **dashed})]
    return [methods, kinds + _mark_handles(marks, metrics)]


# Sizes: rows of metrics, columns of methods, one line per value of a second axis --------------------------------------


def _sizes(summary: Summary, marks: Marks) -> Any:
    """The darker a line, the larger the value of the second axis."""
    experiment = summary.experiment
    others = [axis for axis in experiment.axes if axis != experiment.strength]
    if len(others) != 1:
        raise InputError(
            f"'sizes' vary {experiment.strength} and one more setting; {experiment.name} varies "
            f"{', '.join(experiment.axes) or 'none'}."
        )
    metrics, methods, places = metrics_of(experiment, _SIZE_METRICS), present(summary), places_of(summary)
    values = sorted({line.at[others[0]] for line in summary.lines})
    looks = dict(zip(values, _sequential_looks(len(values)), strict=True))
    symbol = axis_name_of(others[0], 0)
    lines = [handle(f"{symbol} = {value:,}", **look) for value, look in looks.items()]
    height = len(metrics) * (2.2 if len(methods) <= 2 else 1.9) + 0.2
    figure = sheet(summary, height, [lines, _mark_handles(marks, metrics)])
    grid = figure.subplots(len(metrics), len(methods), squeeze=False, sharex=True, sharey="row")
    for row, metric in zip(grid, metrics, strict=True):
        for axis, method in zip(row, methods, strict=True):
            for value, look in looks.items():
                _band(axis, curve_of(summary, places, method, metric, {others[0]: value}), look)
        _finish(list(row), metric, marks)
        row[0].set_ylabel(textwrap.fill(METRIC_NAMES.get(metric, metric), 22))
    for axis, method in zip(grid[0], methods, strict=True):
        axis.set_title(_in_lines(method, 76 // len(methods)))
    figure.align_ylabels()
    _label_places(grid[-1], places)
    return figure


def _in_lines(name: str, width: int) -> str:
    """The name of a method in lines of at most this width; one long word is broken before a capital letter."""
    words = name if len(name) <= width else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return textwrap.fill(words, width, break_long_words=False)


def _sequential_looks(number: int) -> list[Look]:
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"](np.linspace(0.82, 0.0, number))
    return [
        {"color": tuple(colour), "marker": marker, "markersize": 3.8, "linewidth": 1.5}
        for colour, marker in zip(colours, _MARKERS * number, strict=False)
    ]


_LAYOUTS = {"curves": _curves, "sizes": _sizes}


# What both share ------------------------------------------------------------------------------------------------------


def _band(axis: Any, curve: Curve, look: Look, *, shift: float = 0.0) -> None:
    """Means as a line with its band; a single point gets a bar, which can be seen. No metric is below zero."""
    if not curve:
        return
    x, mean, half = np.transpose([(x, line.mean, half_of(line)) for x, line in curve])
    if len(curve) == 1:
        axis.errorbar(x, mean, half, **{**look, "linestyle": ""}, elinewidth=1.2)
        return
    most = 100.0 if curve[0][1].metric in PERCENT else np.inf
    low, high = np.maximum(mean - half, 0.0) + shift, np.minimum(mean + half, most) + shift
    axis.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    # Without a size of their own, markers are left to the published line.
    axis.plot(x, mean + shift, **(look if "markersize" in look else {**look, "marker": ""}))


def _finish(axes: Sequence[Any], metric: str, marks: Marks, *, horizontal: bool = False) -> None:
    """Dotted line, faint grid, and a range in which noise does not look like an effect, for axes that share it."""
    from matplotlib.ticker import MaxNLocator

    which = "x" if horizontal else "y"
    for axis in axes:
        axis.grid(axis=which, color="0.92", linewidth=0.7)
        if metric in marks:
            (axis.axvline if horizontal else axis.axhline)(marks[metric][0], **_DOTTED)
    low, high = getattr(axes[0], f"get_{which}lim")()
    if metric in PERCENT:
        short = max(0.0, 5.0 - (high - low)) / 2
        low, high = max(low - short, -2.5), min(high + short, 102.5)
    elif metric.startswith("mse"):
        low, high = -0.04, max(high, 1.08)
    else:
        high = max(1.05 * high, 1.25)
        low = -0.1 * high
    getattr(axes[0], f"set_{which}lim")(low, high)
    ticks = MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=metric in COUNTS)
    getattr(axes[0], f"{which}axis").set_major_locator(ticks)


_DOTTED = {"color": "0.25", "linestyle": (0, (1, 1.6)), "linewidth": 1.2, "zorder": 1.5}


def _label_places(axes: Sequence[Any], places: Mapping[float, float]) -> None:
    """Name strengths one by one where they are few or not drawn at their values."""
    few, at = len(places) <= 3, list(places.values())
    if few or at != list(places):
        room = (0.2 if few else 0.06) * (at[-1] - at[0]) or 1.0
        axes[0].set_xticks(at, [f"{value:g}" for value in places])
        axes[0].set_xlim(at[0] - room, at[-1] + room)
        for axis in axes:
            axis.tick_params(axis="x", labelsize=8.5 if few else 7.5)


def _mark_handles(marks: Marks, metrics: Sequence[str]) -> list[Any]:
    names = {
        f"{name}: {value:.4g}{' %' if metric in PERCENT else ''}": None
        for metric, (value, name) in marks.items()
        if metric in metrics
    }
    return [handle(name, **_DOTTED) for name in names]
