"""Charts of the page and figures for papers, drawn with matplotlib from finished results.

Every function returns a `matplotlib.figure.Figure` that is not registered with pyplot, and `write` writes it as SVG,
PDF or PNG, the same bytes each time. Methods and groups have the same colours everywhere. Settings of matplotlib (a
style, another font size) have no effect on the figures and are not changed.
"""

from unspur.report.figures.charts import curves, group_bars, ladder, probes
from unspur.report.figures.rows import draw_demo, subspaces
from unspur.report.figures.style import check_format, write

__all__ = [
    "check_format",
    "curves",
    "draw_demo",
    "group_bars",
    "ladder",
    "probes",
    "subspaces",
    "write",
]
