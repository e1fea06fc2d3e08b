"""Where each method changes a picture: the mean over test rows and runs, with the places that are measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from unspur_paper.datasets.celeba import EYES, MOUTH
from unspur_paper.experiments.summary import Summary
from unspur_paper.report.experiment_sheet import GREY, handle, sheet

_BOXES = {"eyes": (EYES, "#0072B2"), "mouth": (MOUTH, "#D55E00")}
_COLUMNS = 4


def pictures(summary: Summary) -> Any:
    """One panel a method: change of each pixel relative to the largest, dark where most; shares of the two boxes."""
    names = [method.name for method in summary.experiment.methods if any(summary.pictures.get(method.name, []))]
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    legend = [handle(f"around the {name}", color=colour) for name, (_, colour) in _BOXES.items()]
    says = "root mean square change of each pixel over test rows and runs, each panel relative to its largest"
    figure = sheet(summary, 2.45 * rows, [legend], "", says)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axis, name in zip(grid.flat, names, strict=False):
        change = np.array(summary.pictures[name])
        side = math.isqrt(change.size)
        axis.imshow(change.reshape(side, side), cmap="Greys", vmin=0.0, vmax=change.max(), extent=(0, 1, 1, 0))
        for (top, left, bottom, right), colour in _BOXES.values():
            corners = ([left, right, right, left, left], [top, top, bottom, bottom, top])
            axis.plot(*corners, color=colour, linewidth=1.3)
        axis.set_title(name)
        axis.set_xlabel(_shares(summary, name), fontsize=8.0, color=GREY)
        axis.set_xticks([])
        axis.set_yticks([])
    for axis in grid.flat[len(names) :]:
        axis.set_axis_off()
    return figure


def _shares(summary: Summary, method: str) -> str:
    means = {line.metric: line.mean for line in summary.lines if line.method == method}
    return " · ".join(
        f"{name} {means[f'{name}_share']:.0f} %" for name in ("mouth", "eyes") if f"{name}_share" in means
    )
