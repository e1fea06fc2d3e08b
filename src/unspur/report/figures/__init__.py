"""Figures for papers, drawn with matplotlib from finished results: findings, traces, accuracies, summaries.

::

    subspaces, ladder, group_bars       what one removal found and what came of it
    curves                              anybody's numbers, with bands
    gradcam_grid                        saliency maps of heads
    write                               .svg, .pdf, .eps or .png, the same bytes each time

Every function returns a `matplotlib.figure.Figure` that is not registered with pyplot. Methods and groups have the
colours that they have in the report page. Settings of matplotlib (a style, another font size) have no effect on the
figures and are not changed.
"""

from unspur.report.figures.charts import curves, group_bars, ladder
from unspur.report.figures.rows import draw_demo, gradcam_grid, subspaces
from unspur.report.figures.style import check_format, write

__all__ = [
    "check_format",
    "curves",
    "draw_demo",
    "gradcam_grid",
    "group_bars",
    "ladder",
    "subspaces",
    "write",
]
