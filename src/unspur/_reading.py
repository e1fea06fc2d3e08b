"""Checks of what a saved file holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from unspur._text import brief

#: Columns that a message lists, and characters of a name that it shows.
MAX_COLUMNS_LISTED, MAX_NAME_CHARACTERS = 20, 60
#: Kinds of values for `require_kinds`.
NUMBER, MAYBE_NUMBER = (int, float), (int, float, type(None))


def require_kinds(value: Any, kind: Any, place: str = "it") -> None:
    """Raise ValueError unless a JSON value is of the given kind; messages call it `place`.

    A kind is a type or a tuple of types (booleans are not numbers, and integers have 64 bits); ``[kind]`` for a list;
    or a mapping from keys to kinds, with ``...`` for all other keys.
    """
    if isinstance(kind, list):
        require_kinds(value, list, place)
        for number, item in enumerate(value):
            require_kinds(item, kind[0], f"{place}[{number}]")
    elif isinstance(kind, Mapping):
        require_kinds(value, dict, place)
        for key in kind:
            if key is not ... and key not in value:
                raise ValueError(f"{place} has no {key!r}")
        for key, item in value.items():
            if (wanted := kind.get(key, kind.get(...))) is not None:
                require_kinds(item, wanted, f"{brief(key, 40)!r} of {place}")
    elif not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{place} is {brief(repr(value), 40)}, which is of another type than it should be")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{place} is a number of {len(str(abs(value)))} digits, which is too large")


def first_names(names: Collection[str]) -> str:
    """The first twenty names, and the number of others."""
    more = f" and {len(names) - MAX_COLUMNS_LISTED} more" if len(names) > MAX_COLUMNS_LISTED else ""
    return ", ".join(brief(name, MAX_NAME_CHARACTERS) for name in list(names)[:MAX_COLUMNS_LISTED]) + more
