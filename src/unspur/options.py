"""Values for JSON: parameters of estimators, and classes of labels."""

from __future__ import annotations

import json
from typing import Any

from unspur._arrays import to_python

#: Longest parameter that is saved, in characters.
MAX_PARAMETER_CHARACTERS = 100_000


def is_plain(value: Any) -> bool:
    """Whether a parameter can be saved: a generator cannot be written as JSON, and folds of all rows are too long."""
    try:
        return len(json.dumps(value)) <= MAX_PARAMETER_CHARACTERS
    except TypeError:
        return False


def storable(value: Any) -> Any:
    """A class, or nested tuples of classes, for JSON; what it has no word for becomes text."""
    if isinstance(value, tuple | list):
        return [storable(item) for item in value]
    value = to_python(value)
    return value if is_plain(value) else str(value)
