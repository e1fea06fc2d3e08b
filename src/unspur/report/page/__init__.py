"""The page: one HTML file that opens in any browser, without a network.

::

    rendering.py    findings -> the page; rows -> the page (`build`)
    verdict.py      what came of it, in sentences
    charts.py       key figures, accuracy of every group, what probes find, the tests of a fit
    content.py      scores, texts and pictures within a budget; rows that show what directions mean
    formatting.py   numbers and names
"""

from unspur.report.page.rendering import build, check_page, render, write_page
from unspur.report.page.verdict import accuracy_verdict, verdict

__all__ = ["accuracy_verdict", "build", "check_page", "render", "verdict", "write_page"]
