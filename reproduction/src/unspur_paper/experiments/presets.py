"""What a preset adds to the methods of a spec: solvers, and the hyper-parameters that were selected.

All of it becomes part of a cell's spec, so a record says what it is a record of, and workers read no files.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from unspur_paper.experiments.fitting import HEADS
from unspur_paper.experiments.folder import experiments_folder
from unspur_paper.experiments.registry import EMBEDDED, FINETUNED
from unspur_paper.experiments.variants import REMOVERS, option_names

#: How a cell is evaluated.
PRESETS: dict[str, str] = {
    "exact": "the library's solvers and defaults; an independent test set of 20,000 rows",
    "released": "the authors' program: its early stopping, start and tests, and its test set",
    "released-fresh": "the same with an independent test set",
}
#: The same on embeddings, where test rows are what is left of a dataset.
ON_EMBEDDINGS = {
    "exact": "the library's solvers and defaults, directions and weight decay judged on validation rows",
}
#: Options of the authors' program.
_RELEASED: dict[str, set[str]] = {
    "JSE": {"learning_rate", "delta", "significance_level"},
    "INLP": {"learning_rate", "significance_level"},
    "RLACE": {"learning_rate", "rank", "judges"},
    "LEACE": set(),
    "ERM": {"learning_rate"},
    "GroupWeighted": {"learning_rate"},
    "SUBG": {"learning_rate", "batch_size"},
    "GroupDRO": {"learning_rate", "start_learning_rate", "adjustment", "step_size", "indexing_fault"},
    "JTT": {"learning_rate", "identification_learning_rate", "upweight"},
}
#: A weight decay of a last layer that is chosen on validation rows, by the paper's rule.
ON_VALIDATION_ROWS = "validation"
#: A removal and a last layer in one, with everything as the library has it.
RECOMMENDED = "RobustClassifier"
#: Removers that have nothing to set.
_BARE = ("none", "true axis")


def preset_words(preset: str, dataset: str) -> str:
    """What a preset means for a dataset."""
    return ON_EMBEDDINGS[preset] if dataset in EMBEDDED else PRESETS[preset]


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((experiments_folder() / "hyperparameters.toml").read_text(encoding="utf-8"))


def hyperparameters(table: str, dataset: str, method: str) -> dict[str, Any]:
    """Values that the paper, or the authors' program ("released"), has for a method; empty where it has none."""
    return dict(_tables()[table].get(FINETUNED.get(dataset, dataset), {}).get(method, {}))


def complete_remover(preset: str, dataset: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """A remover with everything the preset sets; what the spec says itself wins."""
    name = named["name"]
    if preset == "exact" or name in _BARE:
        return dict(named)
    return {**hyperparameters("released", dataset, name), **named}


def complete_head(preset: str, dataset: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """A last layer with everything the preset sets; what the spec says itself wins."""
    name = named["name"]
    if name == RECOMMENDED:
        return dict(named)
    if preset == "exact":  # solved, and with the paper's choices that are not about SGD
        selected = hyperparameters("paper", dataset, name)
        chosen = {key: value for key, value in selected.items() if key in ("weight_decay", "adjustment", "upweight")}
        if dataset in EMBEDDED:  # its decay is absolute, ours in units of the rows' variance: chosen again, by its rule
            chosen["weight_decay"] = ON_VALIDATION_ROWS
        return {"weight_decay": 0.0, **chosen, **named}
    return {**hyperparameters("released", dataset, name), **named}


def has_method(preset: str, name: str) -> bool:
    """Whether a preset has a remover or last layer of this name."""
    if preset.startswith("released"):
        return name == "none" or name in _RELEASED
    if name == RECOMMENDED:
        return preset == "exact"
    return name in (*REMOVERS, *HEADS, "none") or (name == "true axis" and preset == "exact")


def known_options(preset: str, name: str) -> set[str]:
    """Options that a remover or last layer takes under a preset."""
    if name in (*_BARE, RECOMMENDED):
        return set()
    if preset.startswith("released"):
        return _RELEASED[name]
    return option_names({**REMOVERS, **HEADS}[name])
