"""The published datasets as `unspur embed` and `unspur report --show` find them: entry points of unspur.sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.waterbirds import Composites, read_published
from unspur_paper.embedding.examples import Examples
from unspur_paper.embedding.registry import Source


def _birds(root: Path, settings: Mapping[str, Any]) -> Examples:
    rule: Any = settings.get("rule") or "species"
    scenes = Path(settings.get("scenes") or root)
    return Composites.draw(root, scenes, settings.get("seed", 0), settings.get("sizes"), rule)


def _faces(root: Path, settings: Mapping[str, Any]) -> Examples:
    # A manifest says how many images there were, the command line where to stop.
    return CelebA.read(root, settings.get("limit") or settings.get("images"))


WATERBIRDS = Source(("y", "background"), _birds, paired=True)
WATERBIRDS_PUBLISHED = Source(("y", "background"), lambda root, settings: read_published(root, settings.get("rule")))
CELEBA = Source(("Smiling", "Male"), _faces)
MULTINLI = Source(("y", "concept"), lambda root, _: MultiNLI.read(root), paired=True)
