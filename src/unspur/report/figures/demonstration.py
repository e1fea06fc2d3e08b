"""The picture of the demonstration: what is shown, where the rows lie, and how well each group is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.metrics import GroupAccuracy
from unspur.report.figures.bars import draw_bars, entries, measured
from unspur.report.figures.plane import draw_densities, draw_rows
from unspur.report.figures.style import group_style, new_figure, styled


@dataclass(frozen=True, slots=True)
class DemoFigure:
    """What the picture of the demonstration shows.

    `examples` holds one image per group (4, h, w, 3); `before` and `after` are scores (n, 2) along the first
    spurious and the first main-task direction, of `found` that there are; `group` is 2·main + concept per row.
    """

    examples: Array
    before: FloatArray
    after: FloatArray
    group: Array
    group_names: tuple[str, ...]
    found: tuple[int, int]
    results: dict[str, GroupAccuracy]


@styled
def draw_demo(content: DemoFigure) -> Any:
    """Four panels: the pictures, the rows before and after removal, and the accuracy of every group."""
    figure = new_figure(12.8, 4.2)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    columns = figure.add_gridspec(1, 4, width_ratios=[0.85, 1.1, 0.95, 1.0])
    pictures = columns[0].subgridspec(2, 2)
    _draw_examples([figure.add_subplot(place) for place in pictures], content)
    reach = 1.05 * np.abs(content.before).max(axis=0)
    before, after, bars = (figure.add_subplot(place) for place in list(columns)[1:])
    draw_rows(before, content.before, np.asarray(content.group), (-reach[0], reach[0]), larger=2.5)
    before.set(ylim=(-reach[1], reach[1]), xticks=[], yticks=[])
    before.set_title("embeddings, before", loc="center")
    before.set_xlabel(f"first of {content.found[0]} spurious directions")
    before.set_ylabel(f"first of {content.found[1]} main-task directions")
    along = content.after[:, 1]
    draw_densities(after, along, np.asarray(content.group), (-reach[1], reach[1]), linewidth=1.8)
    after.set(ylim=(-reach[1], reach[1]), yticks=[])
    after.set_title("after JSE", loc="center")
    after.set_xlabel("share of each group")
    methods = {name: measured(result, averages=False) for name, result in content.results.items()}
    draw_bars(bars, methods, content.group_names, wrap=18, size=8.5)
    bars.set_title("accuracy, % (95 % interval)", loc="center")
    bars.legend(
        handles=entries(methods), loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2, frameon=False, fontsize=9
    )
    for axis in (before, after, bars):
        axis.title.set_fontsize(10)
        axis.xaxis.label.set_fontsize(10)
        axis.yaxis.label.set_fontsize(10)
    bars.tick_params(labelsize=9.5)
    return figure


def _draw_examples(axes: Any, content: DemoFigure) -> None:
    for g, (axis, image, name) in enumerate(zip(axes, content.examples, content.group_names, strict=True)):
        axis.imshow(np.clip(image, 0, 1), interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(name, loc="center", fontsize=8.5)
        axis.spines[:].set(visible=True, edgecolor=group_style(g)["color"], linewidth=3)
