"""All errors and warnings of the package.

Errors derive from `UnspurError`, and those about the data given from `InputError`, which is a ValueError as well.

Every message says what was seen, what is needed and what to do. The facts in it are the `fields` of the error, such as
``error.fields["label"]``. A field may be a `Parameter`: ``str(error)`` names it as in Python, ``cv=5``, and the command
line, through `format`, as an option, ``--cv 5``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.exceptions import ConvergenceWarning

    class NotConvergedWarning(ConvergenceWarning):
        """A solver stopped before its tolerance; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a message names, with the value to pass, if any."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        return f"{self.name}={'' if self.value is None else repr(self.value)}"


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence with fields in braces; without fields, braces are plain text."""

    template: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def format(self, parameter: Callable[[Parameter], str] = str) -> str:
        """The sentence, with parameters formatted by `parameter`."""
        if not self.fields:
            return self.template
        return self.template.format_map({name: _formatted(value, parameter) for name, value in self.fields.items()})

    def __str__(self) -> str:
        return self.format()


def _formatted(value: Any, parameter: Callable[[Parameter], str]) -> Any:
    if isinstance(value, Message):
        return value.format(parameter)
    return parameter(value) if isinstance(value, Parameter) else value


class WithFields(Exception):  # noqa: N818 — a warning may be one as well
    """An error or a warning with fields.

    Parameters
    ----------
    message : the text, or a template with the names of the fields in braces.
    **fields : facts: numbers, names, parameters to pass, and parts of the message that have such.
    """

    def __init__(self, message: str = "", **fields: Any):
        self.message = Message(message, fields)
        super().__init__(str(self.message))

    @property
    def fields(self) -> Mapping[str, Any]:
        """The facts in the message."""
        return self.message.fields

    def format(self, parameter: Callable[[Parameter], str]) -> str:
        """The message, with parameters formatted by `parameter`."""
        return self.message.format(parameter)


class UnspurError(WithFields):
    """Base of all errors raised on purpose by this package."""


class InputError(UnspurError, ValueError):
    """The data given cannot be used."""


class NotFiniteError(InputError):
    """The rows contain NaN or infinity."""


class LabelError(InputError):
    """A label column has the wrong length, kind or number of classes."""


class ArgumentError(InputError, TypeError):
    """A keyword-only argument was passed positionally, or is missing."""


class GroupSizeError(InputError):
    """A group (main, concept) has too few rows for what is asked."""


class MissingExtraError(InputError, ImportError):
    """A library that is installed only if asked for is needed; the message has the command that installs it."""


class EmptySubspaceError(UnspurError, ValueError):
    """A projection onto a subspace without any direction was asked for."""


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


class FewRowsWarning(WithFields, UserWarning):
    """Validation rows are too few to test on, so they were pooled with the training rows."""


class InputWarning(WithFields, UserWarning):
    """The input is valid but probably not what was meant."""


class NoErrorsWarning(UserWarning):
    """The identification model of JTT classifies every row correctly, so no row is upweighted."""


class UninformativeInferenceWarning(UserWarning):
    """Missing concepts are inferred, and the labelled rows predict them no better than chance does."""


class UsedRowsWarning(UserWarning):
    """A certificate is measured on rows that the removal was fitted on, so it is too optimistic."""


class ClusterWarning(WithFields, UserWarning):
    """Rows are not independent: some are duplicates, or a group lies in few clusters; the message says more."""


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
