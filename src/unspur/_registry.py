"""Removers and heads by name: those of this package, and those that others offer by entry points.

One of ours is registered here. Type checkers and the reference also need its import in ``__init__.py`` of its package
and of `unspur`, and its line in ``docs/api``. An entry point of the group ``unspur.removers`` or ``unspur.heads`` has
the name of the class that it leads to. Names are listed without importing anything, scikit-learn included. A class is
imported when it is asked for; if that fails, an `InputError` says so. Of two with a name, ours comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from unspur._text import brief
from unspur.exceptions import InputError, UnspurError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Modules of `unspur.removers`.
REMOVERS = {
    "JSE": "jse",
    "INLP": "inlp",
    "RLACE": "leace",
    "LEACE": "leace",
    "SAL": "leace",
    "SPLINCE": "leace",
}
#: Modules of `unspur.heads`.
HEADS = {
    "ERM": "reweighted",
    "GroupWeighted": "reweighted",
    "SUBG": "reweighted",
    "GroupDRO": "group_dro",
    "JTT": "reweighted",
    "DFR": "reweighted",
    "AFR": "reweighted",
}
#: Groups of entry points.
REMOVER_POINTS, HEAD_POINTS = "unspur.removers", "unspur.heads"


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    """Entry points by name; to find them, a file of every installed package is read."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


def entry_points_by_name(group: str, own: Mapping[str, Any]) -> dict[str, EntryPoint]:
    """Entry points of installed packages by name, without our own names."""
    return {name: point for name, point in _entry_points(group).items() if name not in own}


class Registry(Mapping[str, Any]):
    """Classes by name: our `own` first, then those of other packages, which must derive from `base`."""

    def __init__(self, own: Mapping[str, Any], group: str, base: type):
        self.own, self._group, self._base = dict(own), group, base

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *entry_points_by_name(self._group, self.own)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in _entry_points(self._group)

    def __getitem__(self, name: str) -> Any:
        if name in self.own:
            return self.own[name]
        point = _entry_points(self._group)[name]
        with self.named_errors(name):
            kind = point.load()
            if not issubclass(kind, self._base) or kind.__name__ != name:
                raise TypeError(f"{point.value} is not a {self._base.__name__} of this name")
            kind()  # methods are made without arguments, and then get their parameters
        return kind

    def require_saveable(self, estimator: Any) -> None:
        """Raise InputError unless a saved file, which names the class alone, can be loaded again."""
        kind = type(estimator)
        if kind.__name__ not in self or self.own.get(kind.__name__, kind) is not kind:
            raise InputError(
                f"{kind.__name__} of {kind.__module__} cannot be saved: a file has the name of its class, and load "
                f"knows {', '.join(self)}. Offer the class by an entry point of the group {self._group!r}."
            )

    @contextmanager
    def named_errors(self, name: str) -> Iterator[None]:
        """Raise errors of another package's method as an InputError that names both; our own pass."""
        try:
            yield
        except Exception as error:
            if name in self.own or isinstance(error, UnspurError):
                raise
            dist = _entry_points(self._group)[name].dist
            package = "another package" if dist is None else f"the package {brief(dist.name, 60)}"
            raise InputError(f"{name} of {package} failed ({type(error).__name__}: {brief(error)}).") from error
