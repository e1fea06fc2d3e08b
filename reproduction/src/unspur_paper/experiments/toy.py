"""One cell on Toy: draw data, remove the concept, train a last layer, measure on test rows.

A preset says which splits are drawn and which code fits; all end with a removal and a linear last layer, which one
function judges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from unspur import Subspace
from unspur.datasets import label_axes, make_toy
from unspur.metrics import reconstruction_error
from unspur_paper.experiments.draws import entropy
from unspur_paper.experiments.fitting import LinearHead, Removal, counts, fit_last_layer, fit_removal, seed
from unspur_paper.experiments.panels import panels
from unspur_paper.experiments.released_methods import released_head, released_removal
from unspur_paper.released.toy import Splits, released_splits
from unspur_paper.rows import Rows

#: Test rows of the preset `exact`: 5,000 a group, where the plug-in worst group is biased by half a point only.
TEST_ROWS = 20_000

Settings: TypeAlias = Mapping[str, Any]
Fitted: TypeAlias = tuple[Splits, Removal, LinearHead]


@cache
def toy_digest() -> str:
    """Digest of a few rows of both generators: another stream of random numbers, another digest."""
    drawn = make_toy(4, rho=0.5, random_state=0)
    splits = released_splits(10, 3, 0.5, (3.0, 3.0), 90.0, np.random.default_rng(0))
    parts = [drawn.Z, drawn.y, drawn.concept, splits.train.Z, splits.test.Z, splits.test.y]
    return hashlib.sha256(b"".join(np.round(part, 9).tobytes() for part in parts)).hexdigest()[:16]


def toy_cell(spec: Settings) -> dict[str, Any]:
    """Evaluate one cell: right predictions and rows of each group, errors of reconstruction, dimensions."""
    data = spec["dataset"]
    draws, training = (
        np.random.default_rng(child) for child in np.random.SeedSequence(entropy(data, spec["run"])).spawn(2)
    )
    splits, removal, last = _PRESETS[spec["preset"]](data, spec["remover"], spec["head"], draws, training)
    result = _measure(removal, last, splits.test)
    if "panels" in spec.get("keep", ()):
        result["panels"] = panels(splits.train, removal.spurious, removal.main, _axes(data))
    return result


def _measure(removal: Removal, last: LinearHead, test: Rows) -> dict[str, Any]:
    clean = removal(test)
    return {
        **counts(last.right(clean), test.y, test.concept),
        "mse_spurious": _rounded(reconstruction_error(clean.Z, test.Z[:, 0]) ** 2),
        "mse_main": _rounded(reconstruction_error(clean.Z, test.Z[:, 1]) ** 2),
        "d_spurious": removal.spurious.dim,
        "d_main": removal.main.dim,
    }


def _rounded(value: float) -> float:
    """Six digits: finer ones say nothing and weigh in the records; zero for what is rounding error only."""
    return float(f"{value:.6g}") if value > 1e-12 else 0.0


def _exact(
    data: Settings, remover: Settings, head: Settings, draws: np.random.Generator, training: np.random.Generator
) -> Fitted:
    """The library, cross-fitting on all rows."""
    train, test = _drawn(data, data["n"], data["rho"], draws), _drawn(data, TEST_ROWS, 0.0, draws)
    if remover["name"] == "true axis":
        axis = Subspace.spanned_by(_axes(data)[0][:, None])
        removal = Removal.of(axis, Subspace.empty(data["d"]), train.Z.mean(axis=0))
    else:
        removal = fit_removal(remover, train, None, training)
    last = fit_last_layer(head, removal(train), None, training)
    return Splits(train, train, test, np.zeros(data["d"])), removal, last


def _released(
    data: Settings, remover: Settings, head: Settings, draws: np.random.Generator, training: np.random.Generator
) -> Fitted:
    """The authors' program."""
    splits = released_splits(data["n"], data["d"], data["rho"], _separability(data), data["angle"], draws)
    removal = released_removal(remover, splits, training)
    return splits, removal, released_head(head, removal(splits.train), training)


def _released_fresh(
    data: Settings, remover: Settings, head: Settings, draws: np.random.Generator, training: np.random.Generator
) -> Fitted:
    """The authors' program, judged on rows that share nothing with its training rows."""
    splits, removal, last = _released(data, remover, head, draws, training)
    fresh = _drawn(data, data["n"], 0.0, draws)
    return replace(splits, test=Rows(fresh.Z - splits.centre, fresh.y, fresh.concept)), removal, last


_PRESETS: dict[str, Callable[..., Fitted]] = {
    "exact": _exact,
    "released": _released,
    "released-fresh": _released_fresh,
}


def _separability(data: Settings) -> tuple[float, float]:
    return data["separability_concept"], data["separability_main"]


def _axes(data: Settings) -> tuple[Any, Any]:
    return label_axes(data["d"], _separability(data), data["angle"])


def _drawn(data: Settings, n: int, rho: float, rng: np.random.Generator) -> Rows:
    drawn = make_toy(
        n, d=data["d"], rho=rho, separability=_separability(data), angle=data["angle"], random_state=seed(rng)
    )
    return Rows(drawn.Z, drawn.y, drawn.concept)
