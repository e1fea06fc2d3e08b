"""The page: one HTML file that opens in any browser, without a network.

::

    rendering.py    findings -> the page; rows -> the page (`build`)
    verdict.py      what came of it, in sentences
    charts.py       key figures, accuracy of every group, what probes find
    ladder.py       the tests of a fit
    examples.py     what directions mean, and where a network looks
    packing.py      scores, texts and thumbnails within a budget
    formatting.py   numbers and names
"""

from unspur.report.page.rendering import build, check_page, render, write_page
from unspur.report.page.verdict import verdict

__all__ = ["build", "check_page", "render", "verdict", "write_page"]
