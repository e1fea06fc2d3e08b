"""The published datasets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unspur.exceptions import InputError
from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.waterbirds import Composites, read_published
from unspur_paper.embedding.examples import Examples


def _birds(root: Path, settings: Mapping[str, Any]) -> Examples:
    rule: Any = settings.get("rule") or "species"
    scenes = Path(settings.get("scenes") or root)
    return Composites.draw(root, scenes, settings.get("seed", 0), settings.get("sizes"), rule)


#: Name -> (folder of the data, options of the command line) -> examples.
SOURCES: dict[str, Callable[[Path, Mapping[str, Any]], Examples]] = {
    "celeba": lambda root, settings: CelebA.read(root, settings.get("limit")),
    "multinli": lambda root, _: MultiNLI.read(root),
    "waterbirds": _birds,
    "waterbirds-published": lambda root, settings: read_published(root, settings.get("rule")),
}


def read_source(name: str, root: Path | None, settings: Mapping[str, Any]) -> Examples:
    """The examples of a source."""
    if root is None:
        raise InputError(f"{name} needs --root, the folder of its data.")
    return SOURCES[name](root, settings)
