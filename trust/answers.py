"""What a fit on any table may end in: an answer that is finite throughout, or a clear error. Nothing else."""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspur.criteria import Verdict
from unspur.exceptions import (
    EverythingRemovedWarning,
    IllConditionedWarning,
    NoErrorsWarning,
    NotConvergedWarning,
    NothingRemovedWarning,
    TaskLostWarning,
    UnspurError,
)

#: Warnings that are part of an answer.
SPOKEN = (
    EverythingRemovedWarning,
    IllConditionedWarning,
    NoErrorsWarning,
    NotConvergedWarning,
    NothingRemovedWarning,
    TaskLostWarning,
)
#: Which BLAS libraries set off now and then for finite numbers (numpy#24067); whether answers are finite is looked at.
OF_BLAS = "invalid value encountered in matmul"


@dataclass
class Ending:
    """How one call ended: its answer or the name of its error, the warnings it spoke, and what is wrong with it."""

    answer: Any = None
    error: str = ""
    spoken: frozenset[type[Warning]] = frozenset()
    faults: list[str] = field(default_factory=list)


def ending(call: Callable[[], Any]) -> Ending:
    """Run a call. Errors of the project are clear, and what scikit-learn refuses; all others are faults."""
    end = Ending()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            end.answer = call()
        except UnspurError as error:
            end.error = type(error).__name__
        except Exception as error:  # whatever it is, it is to be told beside the table
            frame = traceback.extract_tb(error.__traceback__)[-1]
            end.error = type(error).__name__
            if type(error) is not ValueError or "sklearn" not in frame.filename:
                end.faults.append(f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}")
    end.spoken = frozenset(warning.category for warning in caught)
    end.faults += [
        f"{warning.category.__name__} leaked: {warning.message}"
        for warning in caught
        if not issubclass(warning.category, SPOKEN) and str(warning.message) != OF_BLAS
    ]
    return end


def not_finite(value: Any, path: str = "") -> Iterator[str]:
    """Paths to numbers that are NaN or infinite, in attributes, values, containers and arrays.

    The mean loss of a group that has no row is NaN by promise, and no fault.
    """
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            yield path
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fO":
        numbers = value.astype(np.float64) if value.dtype.kind == "f" else np.zeros(0)
        if not np.isfinite(numbers).all():
            yield path
        if value.dtype.kind == "O":
            yield from not_finite(value.tolist(), path)
    elif hasattr(value, "detach"):
        yield from not_finite(value.detach().double().numpy(), path)
    elif isinstance(value, Verdict):
        there = ~np.isnan(value.losses).all(axis=0)
        yield from not_finite(value.losses[:, there], f"{path}.losses")
        yield from not_finite(dataclasses.asdict(dataclasses.replace(value, losses=np.zeros(0))), path)
    elif dataclasses.is_dataclass(value):
        for part in dataclasses.fields(value):
            yield from not_finite(getattr(value, part.name), f"{path}.{part.name}")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from not_finite(part, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from not_finite(part, f"{path}[{i}]")


@dataclass
class Account:
    """Endings of many calls, with the tables on which something was wrong."""

    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Any, list[str]]] = field(default_factory=list)

    def add(self, what: Any, end: Ending) -> bool:
        """Count one; returns whether nothing was wrong."""
        if end.faults:
            self.wrong.append((what, end.faults))
        elif end.error:
            self.errors[end.error] += 1
        else:
            self.answers += 1
        return not end.faults

    @property
    def figure(self) -> str:
        """For instance "83 answers, 37 clear errors"."""
        return f"{self.answers:,} answers, {sum(self.errors.values()):,} clear errors"

    @property
    def data(self) -> dict[str, Any]:
        """The same with the errors by name."""
        return {"answers": self.answers, "errors": dict(self.errors), "wrong": len(self.wrong)}

    def __str__(self) -> str:
        simplest = sorted(self.wrong, key=lambda entry: len(repr(entry[0])))[:5]
        return "\n".join(f"{what}\n    {'; '.join(faults)}" for what, faults in simplest)
