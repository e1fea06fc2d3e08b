"""Old names that still work for one release, with a warning that gives the new one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed_attributes(module: str, names: Mapping[str, str], removed_in: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module, which resolves old names with a FutureWarning.

    Parameters
    ----------
    module : its name, ``__name__``.
    names : old name -> new name.
    removed_in : the version without the old names.

    Examples
    --------
    >>> __getattr__ = renamed_attributes(__name__, {"find": "measure"}, removed_in="0.3")
    """

    def __getattr__(name: str) -> Any:  # noqa: N807 — it is assigned under this name
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} is now {module}.{names[name]}; the old name will be removed in version {removed_in}.",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(sys.modules[module], names[name])

    return __getattr__
