"""All errors and warnings of the package.

Errors derive from `UnspurError`, and those about the data given from `InputError`, which is a ValueError as well. Every
message says what was seen, what is needed and what to do, and names parameters as they are spelled in Python and, with
two dashes, on the command line.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.exceptions import ConvergenceWarning

    class NotConvergedWarning(ConvergenceWarning):
        """A solver stopped before its tolerance; the message says why and what to do."""


class UnspurError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(UnspurError, ValueError):
    """The data given cannot be used."""


class NotFiniteError(InputError):
    """The rows contain NaN or infinity."""


class LabelError(InputError):
    """A label column has the wrong length, kind or number of classes."""


class GroupSizeError(InputError):
    """A group (main, concept) has too few rows for what is asked."""


class MissingExtraError(InputError, ImportError):
    """A library that is installed only if asked for is needed; the message has the command that installs it."""


class ArtifactError(UnspurError, ValueError):
    """A saved removal cannot be read."""


class OutputExistsError(UnspurError, FileExistsError):
    """A result would overwrite an existing file."""


class ClusterLostError(UnspurError, ConnectionError):
    """The Dask cluster that holds the rows did not finish what it was asked."""


class SearchLimitWarning(UserWarning):
    """A search ended at its limit, not at a test, so that more of the concept may be left; the message says where."""


class SlowFitWarning(UserWarning):
    """A fit takes long; the message says where it is and what to try."""


class NothingRemovedWarning(UserWarning):
    """No spurious direction was accepted, so `transform` does not change the rows; the message says why."""


class TaskLostWarning(UserWarning):
    """What is left no longer predicts the task, or may not; the message says what was lost and what to try."""


class EverythingRemovedWarning(UserWarning):
    """A removal takes all directions in which rows vary, or nearly all; the message says how many."""


class IllConditionedWarning(UserWarning):
    """Separating concept and task amplifies noise, or rounding of the cleaned rows reveals the concept."""


class FewRowsWarning(UserWarning):
    """Validation rows are too few to test on, so they were pooled with the training rows."""


class NoErrorsWarning(UserWarning):
    """The identification model of JTT classifies every row correctly, so no row is upweighted."""


class UninformativeInferenceWarning(UserWarning):
    """Missing concepts are inferred, and the labelled rows predict them no better than chance does."""


class UsedRowsWarning(UserWarning):
    """A certificate is measured on rows that the removal was fitted on, so it is too optimistic."""


class ClusterWarning(UserWarning):
    """Rows are not independent: some are duplicates, or a group lies in few clusters; the message says more."""


#: Packages whose lines a warning does not name.
_OURS = {"unspur", "contextlib", "sklearn"}


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning that names the line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def __getattr__(name: str) -> Any:
    """Define `NotConvergedWarning` on first use: importing its base, and with it scikit-learn, takes a second."""
    if name != "NotConvergedWarning":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import ConvergenceWarning

    about = "A solver stopped before its tolerance; the message says why and what to do."
    globals()[name] = type(name, (ConvergenceWarning,), {"__doc__": about, "__module__": __name__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), "NotConvergedWarning"})
