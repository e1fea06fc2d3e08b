"""Evaluate a cell: a pure function of its spec and data, so that any process on any machine gives the same result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspur_paper.experiments.embedded import embedded_cell, embedded_digest
from unspur_paper.experiments.registry import EMBEDDED
from unspur_paper.experiments.stores import EMBEDDINGS
from unspur_paper.experiments.toy import toy_cell, toy_digest


def run_cell(spec: Mapping[str, Any], embeddings: Path = EMBEDDINGS) -> dict[str, Any]:
    """Result of one cell: plain numbers, ready for JSON."""
    return embedded_cell(spec, embeddings) if spec["dataset"]["name"] in EMBEDDED else toy_cell(spec)


def data_digest(spec: Mapping[str, Any], embeddings: Path = EMBEDDINGS) -> str:
    """What the data of a cell are besides its spec; part of the key of its record."""
    return embedded_digest(spec, embeddings) if spec["dataset"]["name"] in EMBEDDED else toy_digest()
