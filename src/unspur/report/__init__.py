"""A fitted removal and rows are measured, and what was measured becomes a page, tables and figures.

::

    remover, training rows, test rows, pictures or texts ──find──▶ Findings ──▶ page, tables, figures

Whatever is measured is measured by `find`; drawing never fits anything.
"""

from unspur.report.building import build
from unspur.report.measuring import find
from unspur.report.results import Findings

__all__ = ["Findings", "build", "find"]
