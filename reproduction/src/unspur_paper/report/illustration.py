"""Rows in a plane: what a method finds, before and after each direction is removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unspur._typing import FloatArray
from unspur_paper.experiments.summary import Summary
from unspur_paper.report.experiment_lines import axis_name_of
from unspur_paper.report.experiment_sheet import GREY, handle, sheet

_LABEL_COLOURS = ("#56B4E9", "#E69F00")
_CONCEPT_MARKERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("o", {"s": 8, "alpha": 0.6, "linewidths": 0}),
    ("x", {"s": 9, "alpha": 0.75, "linewidths": 0.8}),
)
_ARROWS = {"spurious": ("#000000", "spurious direction,\nremoved next"), "main": ("#9A2A6B", "main-task direction")}
#: How long a direction is drawn that lies in the plane.
_ARROW_LENGTH = 2.4
_TRUE = {"color": "0.45", "linestyle": (0, (4, 3)), "linewidth": 0.9, "zorder": 2.5}
_STEPS = ("before", "one direction removed", "two directions removed")


def illustration(summary: Summary) -> Any:
    """One row of panels per method, INLP first as in the paper; the legend takes a free place among the panels."""
    rows = sorted(summary.panels.items(), key=lambda item: item[0] != "INLP")
    every = [panel for _, panels in rows for panel in panels]
    columns = max(3, *(len(panels) for _, panels in rows))
    handles, beside = _rows_legend(every), len(rows[-1][1]) < columns
    figure = sheet(summary, 2.95 * len(rows), [] if beside else [handles], "", _rows_subtitle(summary))
    grid = figure.subplots(len(rows), columns, squeeze=False)
    reach = 1.04 * max(np.abs(panel["points"]).max() for panel in every)
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    for row, (method, panels) in zip(grid, rows, strict=True):
        for axis, panel in zip(row, panels, strict=False):
            _draw_rows(axis, panel, reach)
            axis.set_title(f"{next(letters)}  {method}: {_step(panel['removed'])}", loc="left", fontsize=9.0)
        for axis in row[len(panels) :]:
            axis.set_axis_off()
    if beside:
        free = grid[-1, len(rows[-1][1])]
        free.legend(handles=handles, loc="center left", frameon=False, labelspacing=0.8).set_in_layout(False)
    return figure


def _rows_subtitle(summary: Summary) -> str:
    where = summary.experiment.illustration or {}
    at = [f"{axis_name_of(axis, 0)} = {where[axis]:g}" for axis in summary.experiment.axes if axis in where]
    parts = [f"preset {summary.preset}", "training rows of one run", *at]
    return " · ".join([*parts, "length of an arrow: how much of the direction lies in the plane"])


def _draw_rows(axis: Any, panel: Mapping[str, Any], reach: float) -> None:
    points, main, concept = (np.asarray(panel[key]) for key in ("points", "main", "concept"))
    for label, colour in enumerate(_LABEL_COLOURS):
        for value, (marker, look) in enumerate(_CONCEPT_MARKERS):
            axis.scatter(*points[(main == label) & (concept == value)].T, marker=marker, color=colour, **look)
    for arrow in panel["arrows"]:
        _draw_arrow(axis, arrow["role"], np.asarray(arrow["at"], dtype=float))
    axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axis.locator_params(nbins=5)
    names = (r"spurious feature $z_{\mathrm{sp}}$", r"main-task feature $z_{\mathrm{mt}}$")
    if panel["removed"]:
        names = ("first direction that separates\nthe main label", "second such direction")
    axis.set_xlabel(names[0], fontsize=8.5)
    axis.set_ylabel(names[1], fontsize=8.5, labelpad=1)


def _draw_arrow(axis: Any, role: str, at: FloatArray) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.patheffects import withStroke

    if role not in _ARROWS:
        axis.axline((0.0, 0.0), tuple(at), **_TRUE)
        return
    halo = withStroke(linewidth=3.2, foreground="white")
    arrow = FancyArrowPatch(
        (0.0, 0.0),
        tuple(_ARROW_LENGTH * at),
        arrowstyle="-|>",
        mutation_scale=9,
        shrinkA=0.0,
        shrinkB=0.0,
        color=_ARROWS[role][0],
        linewidth=1.6,
        path_effects=[halo],
        zorder=4,
    )
    axis.add_patch(arrow)


def _rows_legend(panels: Sequence[Mapping[str, Any]]) -> list[Any]:
    roles = {arrow["role"] for panel in panels for arrow in panel["arrows"]}
    point: dict[str, Any] = {"linestyle": "", "markersize": 5.0}
    handles = [handle(f"main label {k}", marker="o", color=c, **point) for k, c in enumerate(_LABEL_COLOURS)]
    handles += [handle(f"concept {k}", marker=m, color=GREY, **point) for k, (m, _) in enumerate(_CONCEPT_MARKERS)]
    handles += [handle(label, color=colour) for role, (colour, label) in _ARROWS.items() if role in roles]
    return handles + ([handle("true label vectors", **_TRUE)] if roles - set(_ARROWS) else [])


def _step(removed: int) -> str:
    return _STEPS[removed] if removed < len(_STEPS) else f"{removed} directions removed"
