"""What figures of experiments are drawn on: style, title, legends; and files that are the same, byte by byte."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspur._files import atomic
from unspur_paper.experiments.summary import Summary
from unspur_paper.report.experiment_lines import axis_name_of

GREY = "0.42"
#: Inches. At 100 pixels an inch, 800 in all, every text is readable.
WIDTH, PANEL, _HEADER, _LEGEND_ROW = 8.0, 3.0, 0.62, 0.22
STYLE: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.7,
    "svg.fonttype": "none",
    "svg.hashsalt": "unspur",
    "savefig.dpi": 200,
}


def sheet(
    summary: Summary,
    height: float,
    legend: Sequence[Sequence[Any]],
    axis_name: str | None = None,
    subtitle: str | None = None,
) -> Any:
    """A figure with room of this height for panels, between its title and the name of their axis over the legend."""
    from matplotlib.figure import Figure

    experiment = summary.experiment
    title = textwrap.fill(experiment.title, 92)
    axis_name = axis_name_of(experiment.strength, 1) if axis_name is None else axis_name
    groups = [(handles, _legend_columns(handles)) for handles in legend if handles]
    rows = [-(-len(handles) // columns) for handles, columns in groups]
    header, name_height = _HEADER + 0.18 * title.count("\n"), 0.3 if axis_name else 0.0
    footer = name_height + _LEGEND_ROW * sum(rows) + 0.05
    total = header + height + footer
    figure: Any = Figure(figsize=(WIDTH, total), layout="constrained")
    figure.get_layout_engine().set(
        w_pad=0.07, wspace=0.03, hspace=0.03, rect=(0.0, footer / total, 1.0, height / total)
    )
    figure.text(0.012, 1 - 0.08 / total, title, ha="left", va="top", fontsize=11.5)
    subtitle = _subtitle(summary) if subtitle is None else subtitle
    figure.text(0.012, 1 - (header - 0.15) / total, subtitle, ha="left", va="bottom", fontsize=8.5, color=GREY)
    figure.text(0.5, (footer - 0.02) / total, axis_name, ha="center", va="top", fontsize=9.0)
    for k, (handles, columns) in enumerate(groups):
        in_rows = [handle for column in range(columns) for handle in handles[column::columns]]
        at = (0.5, (footer - name_height - _LEGEND_ROW * sum(rows[:k])) / total)
        figure.legend(
            handles=in_rows,
            ncols=columns,
            loc="upper center",
            bbox_to_anchor=at,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            columnspacing=1.8,
            handlelength=2.4,
        )
    return figure


def _legend_columns(handles: Sequence[Any]) -> int:
    """As many entries side by side as fit: 9 pt letters are 0.075 inches wide, and a line with its gaps 0.7."""
    widths = [0.7 + 0.075 * len(handle.get_label()) for handle in handles]
    fitting = (k for k in range(len(handles), 1, -1) if sum(max(widths[c::k]) for c in range(k)) <= WIDTH)
    return next(fitting, 1)


def _subtitle(summary: Summary) -> str:
    runs = sorted({line.runs for line in summary.lines})
    several = f"{runs[0]} to {runs[-1]}" if len(runs) > 1 else f"{runs[0]}"
    parts = [f"preset {summary.preset}", f"{several} run{'s' if runs[-1] > 1 else ''} a point"]
    parts += ["means with 95 % intervals"] if runs[-1] > 1 else []
    parts += [f"{summary.missing:,} cells not yet run"] if summary.missing else []
    return " · ".join(parts)


def handle(label: str, **look: Any) -> Any:
    """An entry of a legend that looks like the lines it stands for."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **{k: v for k, v in look.items() if k != "elinewidth"})


def write_figure(figure: Any, path: Path) -> list[Path]:
    """Write a figure as SVG and PNG, the same bytes for the same figure."""
    files = [path.with_name(f"{path.name}.{kind}") for kind in ("svg", "png")]
    for file in files:
        _save(figure, file)
    return files


def _save(figure: Any, path: Path) -> None:
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
        for axis in figure.axes:
            # The last digits of a layout depend on addresses in memory, and identifiers inside an SVG on every digit.
            axis.set_position(np.round(axis.get_position(original=True).bounds, 6))
    metadata = {"Date": None} if path.suffix == ".svg" else None  # it would be the time of writing
    with atomic(path, overwrite=True) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=200, metadata=metadata)
