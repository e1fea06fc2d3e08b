"""A fitted removal and rows are measured, and what was measured becomes a page, tables and figures.

::

    remover, training rows, test rows, pictures or texts ──measure──▶ Findings ──▶ page, tables, figures

Whatever is measured is measured by `measure`; drawing never fits anything.
"""

from unspur._deprecation import renamed_attributes
from unspur.report.measuring import measure
from unspur.report.model_card import card
from unspur.report.page.rendering import build
from unspur.report.results import Findings

__all__ = ["Findings", "build", "card", "measure"]

__getattr__ = renamed_attributes(__name__, {"find": "measure"}, removed_in="0.2")
