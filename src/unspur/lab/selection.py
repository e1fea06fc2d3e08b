"""Hyper-parameters by the paper's rule: group-weighted loss on validation rows, with the table it was decided from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone

from unspur import ERM, JSE
from unspur._typing import Array, FloatArray, IntArray
from unspur.clusters import cluster_codes, folds_by_cluster
from unspur.exceptions import InputError, NotConvergedWarning, NothingRemovedWarning, TaskLostWarning
from unspur.rows import CONCEPT, MAIN

#: The grids of the paper; weight decay relative to the variance of the rows, its 0 replaced by a value that separable
#: classes can live with.
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "JSE": {"weight_decay": (1.0, 0.1, 0.01, 1e-3, 1e-4)},
    "JSE by SGD": {"learning_rate": (1e-1, 1e-2, 1e-3, 1e-4), "weight_decay": (0.0, 1e-3, 1e-2, 1e-1, 1.0)},
    "ERM": {"weight_decay": (1.0, 0.1, 0.01, 1e-3, 1e-4)},
    "GroupWeighted": {"weight_decay": (1.0, 0.1, 0.01, 1e-3, 1e-4)},
    "SUBG": {"weight_decay": (1.0, 0.1, 0.01, 1e-3, 1e-4)},
    "DFR": {"weight_decay": (1.0, 0.1, 0.01, 1e-3, 1e-4)},
    "GroupDRO": {"weight_decay": (1.0, 0.1, 0.01, 1e-3), "adjustment": (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)},
    "JTT": {"weight_decay": (1.0, 0.1, 0.01, 1e-3), "upweight": (2.0, 5.0, 10.0, 25.0)},
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Embeddings with their two labels; several concepts are a mapping from their names to labels.

    `clusters` are labels of the rows that belong together, if some do.
    """

    Z: Array
    y: Array
    concept: Any
    clusters: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: Array) -> Rows:
        """Some of the rows, by mask or index."""
        if isinstance(self.concept, Mapping):
            concept: Any = {name: labels[rows] for name, labels in self.concept.items()}
        else:
            concept = self.concept[rows]
        return Rows(self.Z[rows], self.y[rows], concept, None if self.clusters is None else self.clusters[rows])

    @property
    def group(self) -> IntArray:
        """Number of the combination of main label and concepts of each row."""
        concepts = self.concept.values() if isinstance(self.concept, Mapping) else (self.concept,)
        codes = [np.unique(labels, return_inverse=True)[1] for labels in (self.y, *concepts)]
        return np.asarray(np.unique(np.stack(codes), axis=1, return_inverse=True)[1]).reshape(-1)

    def held_out(self) -> dict[str, Any]:
        """These rows as those to judge on: the arguments of `fit` that say so."""
        return {"X_val": self.Z, "y_val": self.y, "concept_val": self.concept}

    def together(self, suffix: str = "") -> dict[str, Array]:
        """Which rows belong together, as an argument of `fit`: `clusters`, or `clusters_val`."""
        return {} if self.clusters is None else {f"clusters{suffix}": self.clusters}

    def split(self, share: float, seed: int) -> tuple[Rows, Rows]:
        """The rows without, and with only, a share of each group (one row at least); clusters stay together."""
        rng, group = np.random.default_rng(seed), self.group
        if self.clusters is not None:
            code = cluster_codes(self.clusters, "clusters", len(self))
            there = folds_by_cluster(code, group, np.array([share, 1.0 - share]), rng) == 0
            return self.select(~there), self.select(there)
        held = np.zeros(len(self), dtype=bool)
        for g in range(int(group.max()) + 1):
            members = rng.permutation(np.flatnonzero(group == g))
            held[members[: max(1, round(share * len(members)))]] = True
        return self.select(~held), self.select(held)


@dataclass(frozen=True, slots=True)
class Selection:
    """The fitted head that won, its parameters, and the loss of every combination that was tried."""

    head: Any
    parameters: dict[str, Any]
    table: tuple[tuple[dict[str, Any], float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {"parameters": self.parameters, "table": [{**tried, "loss": loss} for tried, loss in self.table]}


def select_head(
    head: Any, grid: Mapping[str, Sequence[Any]], train: Rows, validation: Rows, *, held_out: Rows | None = None
) -> Selection:
    """Fit a head with every combination of `grid` and keep the one with the least group-weighted validation loss.

    `held_out` rows go to the fit itself, for heads that train on such.
    """
    more = {} if held_out is None else held_out.held_out()
    tried: list[tuple[dict[str, Any], float]] = []
    best: tuple[float, Any, dict[str, Any]] | None = None
    for values in product(*grid.values()):
        parameters = dict(zip(grid, values, strict=True))
        fitted = clone(head).set_params(**parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # a value that cannot be solved loses on its own
            fitted.fit(train.Z, train.y, concept=train.concept, **train.together(), **more)
        loss = group_loss(fitted, validation)
        tried.append((parameters, loss))
        if best is None or loss < best[0]:
            best = (loss, fitted, parameters)
    if best is None:
        raise InputError("The grid is empty; there is nothing to choose from.")
    return Selection(best[1], best[2], tuple(tried))


@dataclass(frozen=True, slots=True)
class FirstPairSelection:
    """Parameters of JSE that won, the strength they were chosen at, and the loss of every combination tried there."""

    parameters: dict[str, Any]
    strength: float
    table: tuple[tuple[dict[str, Any], float], ...]


def select_first_pair(
    jse: JSE, grid: Mapping[str, Sequence[Any]], sets: Mapping[float, tuple[Rows, Rows]]
) -> FirstPairSelection:
    """The paper's rule: chosen once, at the strongest correlation, by what the first pair loses on validation rows.

    `sets` maps the strength of the correlation to training and validation rows. The loss is the group-weighted one of
    both labels, each along its own direction.
    """
    strength = max(sets)
    train, validation = sets[strength]
    held_out = validation.held_out()

    def loss(parameters: dict[str, Any]) -> float:
        total = 0.0
        # A limit of one for one role and none for the other leaves a single test: that of the first pair's direction.
        for limits, label in (
            ({"max_spurious": 0, "max_main": 1}, MAIN),
            ({"max_spurious": 1, "max_main": 0}, CONCEPT),
        ):
            tried = clone(jse).set_params(**parameters, **limits, tests="group")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tried.fit(train.Z, train.y, concept=train.concept, **held_out)
            total += float(next(iter(tried.trace_)).verdict.losses[label].mean())
        return total

    table = [
        (parameters, loss(parameters))
        for parameters in (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    ]
    if not table:
        raise InputError("The grid is empty; there is nothing to choose from.")
    return FirstPairSelection(min(table, key=lambda line: line[1])[0], strength, tuple(table))


def select_orthogonality(
    jse: JSE, train: Rows, validation: Rows | None = None, seed: int = 0
) -> tuple[JSE, dict[str, float]]:
    """Fit JSE with orthogonal weights and with orthogonal scores; return the better one, and the loss of each.

    The loss is that of a plain last layer on what is left, on validation rows and with groups of equal weight: the rule
    that the paper chooses hyper-parameters by. Without validation rows, on a fifth of each group of the training rows,
    which then take no part in either fit; the better one is fitted again on all of them.
    """
    fit_on, judged_on = (train, validation) if validation is not None else train.split(0.2, seed)
    fitted, losses = {}, {}
    for kind in ("weights", "scores"):
        tried = fitted[kind] = clone(jse).set_params(orthogonality=kind)
        with warnings.catch_warnings():
            for expected in (TaskLostWarning, NothingRemovedWarning):
                warnings.simplefilter("ignore", expected)
            _fit(tried, fit_on, judged_on if validation is not None else None)
        left = [replace(rows, Z=tried.transform(rows.Z)) for rows in (fit_on, judged_on)]
        losses[kind] = min(loss for _, loss in select_head(ERM(), GRIDS["ERM"], *left).table)
    best = min(losses, key=lambda kind: losses[kind])
    if validation is None:
        _fit(fitted[best], train, None)
    return fitted[best], losses


def _fit(jse: JSE, train: Rows, validation: Rows | None) -> None:
    held_out = {} if validation is None else {**validation.held_out(), **validation.together("_val")}
    jse.fit(train.Z, train.y, concept=train.concept, **train.together(), **held_out)


def group_loss(head: Any, rows: Rows) -> float:
    """Mean over groups (main, concept) of the mean log loss in each."""
    probabilities: FloatArray = head.predict_proba(rows.Z)
    code = np.asarray(np.searchsorted(head.classes_, rows.y))
    losses = -np.log(np.maximum(probabilities[np.arange(len(rows)), code], 1e-300))
    group = rows.group
    return float(np.mean(np.bincount(group, weights=losses) / np.bincount(group)))
