"""A fitted removal and rows become findings: frozen values that pages and figures are drawn from.

::

    remover, training rows, test rows, pictures or texts ──find──▶ Findings

Whatever is measured is measured here; nothing is drawn.
"""

from unspur.lab.findings.find import STEPS, find
from unspur.lab.findings.values import Findings

__all__ = ["STEPS", "Findings", "find"]
