"""Pictures of experiments, drawn with matplotlib from their summaries: curves over the strength, and rows in a plane.

Ours is a solid line with its 95 % band; what the paper published is dashed, with open markers and 95 % bars. The same
summary gives the same bytes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from unspur.exceptions import InputError
from unspur.lab.experiments.metrics import GROUPS, INSIDE_GROUPS, TITLES, TWO_ACCURACIES
from unspur.lab.experiments.published import BAND
from unspur.lab.experiments.spec import Experiment, Method
from unspur.lab.experiments.summary import Line, Summary
from unspur.lab.report import figures
from unspur.lab.report.experiment_sheet import GREY, PANEL, STYLE, axis_name_of, handle, sheet, write_figure
from unspur.lab.report.illustration import illustration
from unspur.lab.report.pictures import pictures

#: Colours that the common kinds of colour blindness keep apart (Okabe and Ito; Tol), the same in every figure.
METHOD_COLOURS = {
    **figures.METHOD_COLOURS, "INLP": "#D55E00", "LEACE": "#0072B2", "RLACE": "#CC79A7", "true axis": "#000000",
    "GW-ERM": "#E69F00", "SUBG": "#56B4E9", "GDRO": "#882255", "GDRO as released": "#CC79A7", "JTT": "#332288",
    "SPLINCE": "#56B4E9", "SAL": "#882255", "DFR": "#332288", "JSE + GW-ERM": "#000000",
}  # fmt: skip
_CYCLE = ("#00795A", "#E69F00", "#0072B2", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#332288")
_MARKERS = "os^Dv<>ph*"

_METRICS = {
    **TITLES, "average": "average accuracy, %", "worst_group": "accuracy of the worst group, %",
    "d_spurious": "spurious directions found", "d_main": "main-task directions found",
    "mse_main": r"error of rebuilding $z_{\mathrm{mt}}$", "mse_spurious": r"error of rebuilding $z_{\mathrm{sp}}$",
}  # fmt: skip
#: Metrics whose lines lie on each other so often that they are drawn this far apart.
_COUNTS, _SHIFT = {"d_spurious", "d_main"}, 0.035
_PERCENT = {
    *GROUPS, *TWO_ACCURACIES, "average", "worst_group", "found", "any_spurious", "inside", *INSIDE_GROUPS, "area",
}  # fmt: skip
#: Rows of panels under "sizes": more are not readable.
_SIZE_METRICS = 3
#: Keywords of a matplotlib line; metric -> value and name of its dotted line; points of a curve: where, and what.
Look: TypeAlias = Mapping[str, Any]
Marks: TypeAlias = Mapping[str, tuple[float, str]]
Curve: TypeAlias = Sequence[tuple[float, Line]]


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
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InputError("Figures need matplotlib: pip install 'unspur[report]'.") from error
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


def method_colours(methods: Sequence[Method]) -> dict[str, str]:
    """A colour for each method: its own in every figure, or else the next that no other method here has."""
    taken = {METHOD_COLOURS[method.name] for method in methods if method.name in METHOD_COLOURS}
    free = [colour for colour in _CYCLE if colour not in taken] or list(_CYCLE)
    variants = [method.name for method in methods if method.name not in METHOD_COLOURS]
    given = {name: free[k % len(free)] for k, name in enumerate(variants)}
    return {method.name: METHOD_COLOURS.get(method.name) or given[method.name] for method in methods}


# Curves: one panel per metric, one line per method --------------------------------------------------------------------


def _curves(summary: Summary, marks: Marks) -> Any:
    """Lines over the strength; where it has one value only, one point per method."""
    experiment = summary.experiment
    if others := [axis for axis in experiment.axes if axis != experiment.strength]:
        raise InputError(
            f"'curves' vary {experiment.strength} only; {experiment.name} also varies {', '.join(others)}."
        )
    looks, places = _method_looks(summary), _places(summary)
    measured = {line.metric for line in summary.lines if line.method in looks and not math.isnan(line.mean)}
    metrics = [metric for metric in _metrics(experiment) if metric in measured]
    # Of methods that share a published line (one of them repeats a fault of the authors' program), the last carries it.
    bearers = {experiment.method(name).published: name for name in looks}.values()
    single, columns = len(places) == 1, min(len(metrics), 2)
    rows = -(-len(metrics) // columns)
    height = rows * (0.7 + 0.32 * len(looks) if single else PANEL)
    name = f"at {axis_name_of(experiment.strength, 0)} = {next(iter(places)):g}" if single else None
    figure = sheet(summary, height, _method_legend(summary, looks, marks, single), name)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=not single, sharey=single)
    for axis, metric in zip(grid.flat, metrics, strict=False):
        for k, (name, look) in enumerate(looks.items()):
            curve = _curve(summary, places, name, metric)
            if single and curve:
                _point(axis, k, curve[0][1], look, with_published=name in bearers)
            elif not single:
                _band(axis, curve, look, shift=_SHIFT * ((len(looks) - 1) / 2 - k) if metric in _COUNTS else 0.0)
                _published(axis, curve if name in bearers else [], look)
        apart = " (lines set slightly apart)" if metric in _COUNTS and not single and len(looks) > 1 else ""
        axis.set_title(_METRICS.get(metric, metric) + apart, loc="left")
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
    present = _present(summary)
    colours = method_colours([method for method in summary.experiment.methods if method.name in present])
    markers = dict(zip(colours, _MARKERS * len(colours), strict=False))
    widths = 1.3 + min(0.35, 1.8 / len(present)) * np.arange(len(present))[::-1]
    return {
        name: {"color": colours[name], "marker": markers[name], "linewidth": float(width)}
        for name, width in zip(present, widths, strict=True)
    }


def _published(axis: Any, curve: Curve, look: Look) -> None:
    known = [(x, line.published.mean, BAND * line.published.error) for x, line in curve if line.published is not None]
    if known:
        style = {**look, **_OPEN, "linewidth": 1.0, "linestyle": (0, (4, 2))}
        axis.errorbar(*np.transpose(known), **style, zorder=3)


def _point(axis: Any, k: int, line: Line, look: Look, *, with_published: bool) -> None:
    axis.errorbar([line.mean], [k], xerr=[_half(line)], **{**look, **_FILLED})
    if line.published is not None and with_published:
        half = BAND * line.published.error
        axis.errorbar([line.published.mean], [k + 0.28], xerr=[half], **{**look, **_OPEN, "linestyle": ""})


_FILLED = {"markersize": 5.5, "elinewidth": 1.7, "linestyle": ""}
_OPEN = {"markerfacecolor": "white", "markeredgewidth": 1.0, "markersize": 4.5, "elinewidth": 0.9}


def _method_legend(summary: Summary, looks: Mapping[str, Look], marks: Marks, single: bool) -> list[list[Any]]:
    """Methods, unless each has its name beside it; then what solid, dashed and dotted lines are."""
    metrics = _metrics(summary.experiment)
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
    metrics, methods, places = _metrics(experiment, _SIZE_METRICS), _present(summary), _places(summary)
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
                _band(axis, _curve(summary, places, method, metric, {others[0]: value}), look)
        _finish(list(row), metric, marks)
        row[0].set_ylabel(textwrap.fill(_METRICS.get(metric, metric), 22))
    for axis, method in zip(grid[0], methods, strict=True):
        axis.set_title(textwrap.fill(method, 76 // len(methods)))
    figure.align_ylabels()
    _label_places(grid[-1], places)
    return figure


def _sequential_looks(number: int) -> list[Look]:
    import matplotlib as mpl

    colours = mpl.colormaps["viridis"](np.linspace(0.82, 0.0, number))
    return [
        {"color": tuple(colour), "marker": marker, "markersize": 3.8, "linewidth": 1.5}
        for colour, marker in zip(colours, _MARKERS * number, strict=False)
    ]


_LAYOUTS = {"curves": _curves, "sizes": _sizes}


# What both share ------------------------------------------------------------------------------------------------------


def _metrics(experiment: Experiment, most: int | None = None) -> list[str]:
    """Those worth a panel: of the paper's six accuracies the average and the worst group, in this order."""
    found = [metric for metric in experiment.metrics if metric not in GROUPS][:most] or list(experiment.metrics)[:most]
    pair = iter([metric for metric in ("average", "worst_group") if metric in found])
    return [next(pair) if metric in ("average", "worst_group") else metric for metric in found]


def _present(summary: Summary) -> list[str]:
    """Methods that have runs and are to be shown, in the order of the spec."""
    measured = {line.method for line in summary.lines}
    shown = summary.experiment.shown or [method.name for method in summary.experiment.methods]
    return [method.name for method in summary.experiment.methods if method.name in measured and method.name in shown]


def _strength(experiment: Experiment, line: Line) -> float:
    return float(line.at.get(experiment.strength, experiment.dataset[experiment.strength]))


def _places(summary: Summary) -> dict[float, float]:
    """Where each strength is drawn: at its value, or side by side where values crowd at one end."""
    values = sorted({_strength(summary.experiment, line) for line in summary.lines})
    gaps = np.diff(values)
    crowded = len(values) > 2 and gaps.max() > 4 * gaps.min()
    return {value: float(k) if crowded else value for k, value in enumerate(values)}


def _curve(
    summary: Summary, places: Mapping[float, float], method: str, metric: str, at: Mapping[str, Any] | None = None
) -> Curve:
    """Points of one curve from left to right."""
    chosen = [
        (places[_strength(summary.experiment, line)], line)
        for line in summary.lines
        if line.method == method and line.metric == metric and (at or {}).items() <= line.at.items()
    ]
    return sorted(chosen, key=lambda point: point[0])


def _half(line: Line) -> float:
    """Half the width of the 95 % interval; zero for a single run, which has none."""
    return line.half or 0.0


def _band(axis: Any, curve: Curve, look: Look, *, shift: float = 0.0) -> None:
    """Means as a line with its band; a single point gets a bar, which can be seen. No metric is below zero."""
    if not curve:
        return
    x, mean, half = np.transpose([(x, line.mean, _half(line)) for x, line in curve])
    if len(curve) == 1:
        axis.errorbar(x, mean, half, **{**look, "linestyle": ""}, elinewidth=1.2)
        return
    most = 100.0 if curve[0][1].metric in _PERCENT else None
    low, high = np.clip(mean - half, 0, None) + shift, np.clip(mean + half, None, most) + shift
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
    if metric in _PERCENT:
        short = max(0.0, 5.0 - (high - low)) / 2
        low, high = max(low - short, -2.5), min(high + short, 102.5)
    elif metric.startswith("mse"):
        low, high = -0.04, max(high, 1.08)
    else:
        high = max(1.05 * high, 1.25)
        low = -0.1 * high
    getattr(axes[0], f"set_{which}lim")(low, high)
    ticks = MaxNLocator(nbins=7, steps=[1, 2, 5, 10], integer=metric in _COUNTS)
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
        f"{name}: {value:.4g}{' %' if metric in _PERCENT else ''}": None
        for metric, (value, name) in marks.items()
        if metric in metrics
    }
    return [handle(name, **_DOTTED) for name in names]
