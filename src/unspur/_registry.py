"""Removers and heads by name: those of this package, and those that others offer by entry points.

One of ours is registered here. Type checkers and the reference also need its import in ``__init__.py`` of its package
and of `unspur`, and its line in ``docs/api``. An entry point of the group ``unspur.removers`` or ``unspur.heads`` has
the name of the class that it leads to. Names are listed without importing anything, scikit-learn included. A class is
imported when it is asked for; if that fails, an `InputError` says so, and the others are not affected.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from unspur._text import brief
from unspur.exceptions import InputError, InputWarning, UnspurError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Modules of `unspur.removers`.
REMOVERS = {
    "JSE": "jse",
    "INLP": "inlp",
    "RLACE": "rlace",
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


def entry_points_by_name(group: str, own: Mapping[str, Any]) -> dict[str, EntryPoint]:
    """Entry points of installed packages by name, without those whose name is taken; a warning names these."""
    found: dict[str, EntryPoint] = {}
    for point in _entry_points(group, _search_path()):
        if point.name in own or (point.name in found and point != found[point.name]):
            owner = "unspur" if point.name in own else _package(found[point.name])
            _warn_once(
                f"{_package(point)} offers {brief(point.name, 60)!r} as one of {group}, a name that {owner} has. It is "
                "left out; its authors can rename it."
            )
        else:
            found[point.name] = point
    return found


def _search_path() -> tuple[tuple[str, int], ...]:
    """Folders that packages are found in, and when each last changed, which it does with every installation."""

    def changed(folder: str) -> int:
        try:
            return os.stat(folder or os.curdir).st_mtime_ns
        except OSError:
            return 0

    return tuple((folder, changed(folder)) for folder in sys.path)


@lru_cache(maxsize=8)
def _entry_points(group: str, _path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Entry points of a group. To find them, a file of every installed package is read, so they are kept."""
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


@cache
def _warn_once(text: str) -> None:
    """Warn, but only once in a process: entry points are looked up again and again."""
    warnings.warn(text, InputWarning, stacklevel=4)


def _package(point: EntryPoint) -> str:
    """The package that an entry point belongs to."""
    return "a package" if point.dist is None else f"the package {brief(point.dist.name, 60)}"


class Registry(Mapping[str, Any]):
    """Classes by name: our `own` first, then those of other packages, which must derive from `base`."""

    def __init__(self, own: Mapping[str, Any], group: str, base: type):
        self.own, self._group, self._base = dict(own), group, base

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *entry_points_by_name(self._group, self.own)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in entry_points_by_name(self._group, self.own)

    def __getitem__(self, name: str) -> Any:
        return self.own[name] if name in self.own else self._load(entry_points_by_name(self._group, self.own)[name])

    def _load(self, point: EntryPoint) -> Any:
        """The class of an entry point; InputError if it cannot be imported or is not such a class."""
        base, package = f"{self._base.__module__.removesuffix('.base')}.{self._base.__name__}", _package(point)
        with self.named_errors(point.name):
            kind = point.load()
        if not isinstance(kind, type) or not issubclass(kind, self._base):
            raise InputError(
                f"{point.name} of {package} is {brief(repr(kind), 80)}, and not a class that derives from {base}."
            )
        if kind.__name__ != point.name:
            raise InputError(
                f"{point.name} of {package} leads to the class {kind.__name__}. Saved files name the class, so the "
                "entry point must have the same name."
            )
        with self.named_errors(point.name):
            kind()  # methods are made without arguments, and then get their parameters
        return kind

    def require_saveable(self, estimator: Any) -> None:
        """Raise InputError unless a saved file, which names the class alone, can be loaded again."""
        kind = type(estimator)
        if kind.__name__ not in self or self.own.get(kind.__name__, kind) is not kind:
            raise InputError(
                f"{kind.__name__} of {kind.__module__} cannot be saved: a file has the name of its class, and load "
                f"knows {', '.join(self)}. Offer the class by an entry point of the group {self._group!r}, or fit one "
                "of these."
            )

    @contextmanager
    def named_errors(self, name: str) -> Iterator[None]:
        """Raise errors of another package's method as an InputError that names both; our own pass."""
        try:
            yield
        except UnspurError:
            raise
        except Exception as error:
            if name in self.own:
                raise
            package = _package(entry_points_by_name(self._group, self.own)[name])
            said = f"{type(error).__name__}: {brief(error)}"
            raise InputError(f"{name} of {package} failed ({said}). Ask its authors, or remove it.") from error
