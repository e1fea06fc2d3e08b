"""Published datasets that installed packages know how to read, found by entry point.

A package offers one by an entry point of the group ``unspur.sources`` that leads to a `Source`, and networks in folders
of its own making by one of the group ``unspur.encoders`` that leads to a `FolderReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from unspur.embed.base import NetworkEncoder
from unspur.embed.examples import Examples


@dataclass(frozen=True, slots=True)
class Source:
    """How to read a published dataset.

    Attributes
    ----------
    labels : main label and concept to try first.
    read : (folder of the data, settings) -> examples. Settings are those in the manifest of a store; without any, the
        dataset as it is published.
    paired : whether examples are there twice, once with each value of the concept, so that a fit on all rows would
        judge rows by their twins.
    """

    labels: tuple[str, str]
    read: Callable[[Path, Mapping[str, Any]], Examples]
    paired: bool = False


class FolderReader(Protocol):
    """Makes an encoder of a folder that holds a network in a format of its own."""

    def recognises(self, folder: Path) -> bool:
        """Whether the folder is one of its own."""

    def load(self, folder: Path, **options: Any) -> NetworkEncoder:
        """The encoder; `options` are those of `load_encoder`."""


def source_names() -> tuple[str, ...]:
    """Names of all sources, without importing any."""
    return tuple(sorted(_points("unspur.sources")))


def load_source(name: str) -> Source:
    """A source by its name."""
    found: Source = _points("unspur.sources")[name].load()
    return found


def folder_readers() -> tuple[FolderReader, ...]:
    """What installed packages bring to read networks in folders."""
    return tuple(point.load() for point in _points("unspur.encoders").values())


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}
