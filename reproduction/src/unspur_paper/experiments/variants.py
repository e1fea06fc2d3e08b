"""Removers as specs name them: the library's, with the variants of JSE that the paper describes or compares with.

A spec, and the record of its cell, has the names of the day it was written: `weight_decay` for `penalty`,
`orthogonality` for `metric` 0 or 1, `validation_fraction` for a share in `cv`. They are translated here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from unspur import INLP, JSE, LEACE, RLACE, SAL, SPLINCE
from unspur.exceptions import InputError
from unspur_paper.experiments.training_scalars import TrainingScalars

#: Removers by name.
REMOVERS: dict[str, type[Any]] = {
    "JSE": JSE,
    "INLP": INLP,
    "RLACE": RLACE,
    "LEACE": LEACE,
    "SAL": SAL,
    "SPLINCE": SPLINCE,
}
#: Values of the options that make a variant of JSE; the first is the library's.
VARIANTS: dict[str, tuple[str, ...]] = {
    "inner": ("main", "spurious"),
    "candidate": ("last_accepted", "failing"),
    "tests": ("group", "plain"),
    "output": ("off_spurious", "onto_main"),
    "scalars": ("held_out", "training"),
}
#: Old names of parameters.
RENAMED = {"weight_decay": "penalty"}
#: Options that are no parameters of the library's removers and heads, besides variants.
TRANSLATED = {"JSE": {"orthogonality", "validation_fraction"}, "INLP": {"validation_fraction"}}


def option_names(kind: type[Any]) -> set[str]:
    """Options that a spec may give a remover or a last layer."""
    names = set(inspect.signature(kind).parameters) - {"random_state", "verbose"}
    names = {next((old for old, new in RENAMED.items() if new == name), name) for name in names}
    return names | TRANSLATED.get(kind.__name__, set()) | (set(VARIANTS) if kind is JSE else set())


def parameters_of(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the library from the options of a spec, variants left out."""
    given = {RENAMED.get(name, name): value for name, value in options.items()}
    if method == "JSE":
        given = {name: value for name, value in given.items() if name not in VARIANTS}
        orthogonality = given.pop("orthogonality", "weights")  # the paper's, unless a metric is given
        given.setdefault("metric", 1.0 if orthogonality == "scores" else 0.0)
    if method in ("JSE", "INLP"):
        share = given.pop("validation_fraction", 0.2)
        if "cv" in given and given["cv"] is None:
            given["cv"] = share
    return given


def jse(options: Mapping[str, Any]) -> JSE:
    """JSE with the variants that a spec asks for."""
    chosen = {name: options.get(name, values[0]) for name, values in VARIANTS.items()}
    for name, value in chosen.items():
        if value not in VARIANTS[name]:
            raise InputError(f"{name} of JSE is {' or '.join(VARIANTS[name])}; got {value!r}.")
    given = parameters_of("JSE", options)
    variant: dict[str, Any] = {
        name: chosen[option]
        for name, option in (("inner_role", "inner"), ("candidate", "candidate"), ("test_weighting", "tests"))
        if chosen[option] != VARIANTS[option][0]
    }
    if chosen["scalars"] == "training":
        variant["_tests"] = TrainingScalars
    if given.get("delta") == "auto":
        del given["delta"]
        variant["estimate_delta"] = heuristic_delta
    kind = type("JSE", (JSE,), variant) if variant else JSE
    made: JSE = kind(**given)
    return made


def heuristic_delta(self: JSE, first_pair: Callable[[], tuple[Any, Any]]) -> tuple[float, float]:  # noqa: ARG001
    """The paper's Δ: by how much the concept is harder than the task, each along its direction of the first pair."""
    concept, task = first_pair()
    return float(concept.mean - task.mean), float(np.hypot(concept.error, task.error))
