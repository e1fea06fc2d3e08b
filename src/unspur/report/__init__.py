"""A fitted removal and rows are measured, and what was measured becomes a page, tables and figures.

::

    remover, training rows, test rows, pictures or texts ──measure──▶ Findings ──▶ page, tables, figures

Whatever is measured is measured by `measure`; drawing never fits anything.
"""

from unspur.report.measuring import measure
from unspur.report.page import build
from unspur.report.results import Findings

__all__ = ["Findings", "build", "measure"]
