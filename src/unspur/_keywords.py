"""Arguments that go by name: a method that is given them in order says so, and what to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from unspur.exceptions import ArgumentError

F = TypeVar("F", bound=Callable[..., Any])


def named_after_y(method: F) -> F:
    """A method of X, y and arguments by name, which refuses more than two in order in a sentence.

    Python itself would count them, and not say which of them should have had a name.
    """
    named = [p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    third = named[0] if named else "concept"

    @functools.wraps(method)
    def checked(self: Any, *given: Any, **keywords: Any) -> Any:
        if len(given) > 2:
            call = f"{type(self).__name__}.{method.__name__}"
            raise ArgumentError(
                f"{call} takes X and y in order and all else by name; it got {len(given)} arguments in order. If the "
                f"third is the {third.replace('_', ' ')}, write {method.__name__}(X, y, {third}=...)."
            )
        return method(self, *given, **keywords)

    return cast(F, checked)
