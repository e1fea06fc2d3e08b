"""Evaluate a cell: a pure function of its spec, so that any process on any machine gives the same result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unspur.lab.experiments.toy import toy_cell, toy_digest

#: Dataset -> what evaluates its cells, and the digest of its data.
_CELLS: dict[str, tuple[Callable[[Mapping[str, Any]], dict[str, Any]], Callable[[], str]]] = {
    "toy": (toy_cell, toy_digest),
}


def run_cell(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Result of one cell: plain numbers, ready for JSON."""
    return _CELLS[spec["dataset"]["name"]][0](spec)


def data_digest(dataset: Mapping[str, Any]) -> str:
    """What the data of a cell are besides its spec; part of the key of its record."""
    return _CELLS[dataset["name"]][1]()
