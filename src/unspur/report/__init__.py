"""A fitted removal and rows are measured, and what was measured becomes a page, tables and figures.

::

    remover, training rows, test rows, pictures or texts ──measure──▶ Findings ──▶ page, tables, figures

Whatever is measured is measured by `measure`; drawing never fits anything.
"""

import warnings
from typing import Any

from unspur.report.measuring import measure
from unspur.report.model_card import card
from unspur.report.page import build
from unspur.report.results import Findings

__all__ = ["Findings", "build", "card", "measure"]


def __getattr__(name: str) -> Any:
    """`measure` under its old name, with a warning."""
    if name != "find":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "unspur.report.find is now unspur.report.measure; the old name will be removed in version 0.2.",
        FutureWarning,
        stacklevel=2,
    )
    return measure
