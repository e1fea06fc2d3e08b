"""Figures for papers, drawn with matplotlib from finished results: findings, traces, accuracies, summaries.

::

    subspaces, ladder, group_bars       what one removal found and what came of it
    curves                              anybody's numbers, with bands
    ood_curves, reconstruction_curves   experiments of the paper
    gradcam_grid                        where last layers look
    write                               .svg, .pdf, .eps or .png, the same bytes each time

Every function returns a `matplotlib.figure.Figure` that pyplot knows nothing of. Methods and groups have the colours
that they have in the report page. Settings of matplotlib (a style, another font size) have no effect on the figures and
are not changed.
"""

from unspur.lab.report.figures.bars import group_bars
from unspur.lab.report.figures.demonstration import DemoFigure, draw_demo
from unspur.lab.report.figures.lines import curves
from unspur.lab.report.figures.maps import gradcam_grid
from unspur.lab.report.figures.plane import subspaces
from unspur.lab.report.figures.rungs import ladder
from unspur.lab.report.figures.summaries import ood_curves, reconstruction_curves
from unspur.lab.report.figures.writing import check_format, write

__all__ = [
    "DemoFigure",
    "check_format",
    "curves",
    "draw_demo",
    "gradcam_grid",
    "group_bars",
    "ladder",
    "ood_curves",
    "reconstruction_curves",
    "subspaces",
    "write",
]
