"""Pictures for papers and for the demonstration, drawn with matplotlib from finished results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy

#: Colours that the common kinds of colour blindness keep apart (Okabe and Ito).
GROUP_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#D55E00")
METHOD_COLOURS = {"ERM": "#6E6E6E", "JSE": "#00795A"}


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


def pyplot() -> Any:
    """Matplotlib without a screen, or a sentence that says how to get it."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise InputError("Figures need matplotlib: pip install 'unspur[report]'.") from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def draw_demo(content: DemoFigure) -> Any:
    """Four panels: the pictures, the rows before and after removal, and the accuracy of every group."""
    plt = pyplot()
    figure = plt.figure(figsize=(12.8, 4.2), layout="constrained")
    pictures, before, after, bars = figure.subfigures(1, 4, width_ratios=[0.85, 1.1, 0.95, 1.25])
    _draw_examples(pictures, content)
    reach = 1.05 * np.abs(content.before).max(axis=0)
    _draw_scatter(before.subplots(), content, reach)
    _draw_densities(after.subplots(), content, reach[1])
    _draw_bars(bars.subplots(), content)
    return figure


def _draw_examples(part: Any, content: DemoFigure) -> None:
    for axis, image, colour, name in zip(
        part.subplots(2, 2).flat, content.examples, GROUP_COLOURS, content.group_names, strict=True
    ):
        axis.imshow(np.clip(image, 0, 1), interpolation="nearest")
        axis.set(xticks=[], yticks=[])
        axis.set_title(name, fontsize=8.5, color="black")
        for spine in axis.spines.values():
            spine.set(edgecolor=colour, linewidth=3)


def _draw_scatter(axis: Any, content: DemoFigure, reach: FloatArray) -> None:
    for g, colour in enumerate(GROUP_COLOURS):
        x, y = content.before[content.group == g].T
        axis.scatter(x, y, s=5, color=colour, alpha=0.55, linewidths=0, rasterized=True)
    axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), xticks=[], yticks=[], title="embeddings, before")
    axis.set_xlabel(f"first of {content.found[0]} spurious directions")
    axis.set_ylabel(f"first of {content.found[1]} main-task directions")
    _plain(axis)


def _draw_densities(axis: Any, content: DemoFigure, reach: float) -> None:
    """Where the groups lie along the main-task direction once the spurious one is the same for all."""
    edges = np.linspace(-reach, reach, 36)
    for g, colour in enumerate(GROUP_COLOURS):
        share, _ = np.histogram(content.after[content.group == g, 1], edges, density=True)
        axis.stairs(share, edges, orientation="horizontal", color=colour, linewidth=1.8)
    axis.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axis.set(xlim=(0, None), ylim=(-reach, reach), xticks=[], yticks=[], title="after JSE: the photograph is gone")
    axis.set_xlabel("share of each group")
    _plain(axis)


def _draw_bars(axis: Any, content: DemoFigure) -> None:
    height = 0.8 / len(content.results)
    for k, (method, result) in enumerate(content.results.items()):
        accuracy, interval = 100 * result.accuracy.ravel(), 100 * result.interval().reshape(4, 2)
        at = np.arange(4) + (k - (len(content.results) - 1) / 2) * height
        reach = np.abs(interval - accuracy[:, None]).T
        colour = METHOD_COLOURS.get(method, "#CC79A7")
        axis.barh(at, accuracy, height * 0.92, xerr=reach, color=colour, label=method, error_kw={"elinewidth": 1})
        for y, value in zip(at, accuracy, strict=True):
            axis.text(2, y, f"{value:.1f}", va="center", fontsize=8, color="white")
    axis.set_yticks(range(4), content.group_names)
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.set(xlim=(0, 100), title="accuracy, % (95 % interval)")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2, frameon=False, fontsize=9)
    _plain(axis)


def _plain(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.title.set_fontsize(10)
