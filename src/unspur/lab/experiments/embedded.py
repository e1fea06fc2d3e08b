"""One cell on embeddings: draw rows at a strength, remove the concept, train a last layer, measure on test rows.

Training rows train, validation rows decide (the tests of JSE and INLP, the weight decay of last layers), test rows
measure. Where only some training rows have a known concept, removers see those alone and cross-fit; last layers that
need the concept see them too, and the others all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.lab.compare import HEADS
from unspur.lab.experiments.draws import Draw, draw, entropy
from unspur.lab.experiments.fitting import LinearHead, Removal, estimator, fit_last_layer, fit_removal
from unspur.lab.experiments.pixels import picture_change
from unspur.lab.experiments.presets import ON_VALIDATION_ROWS
from unspur.lab.experiments.registry import PIXELS
from unspur.lab.experiments.stores import store_digest
from unspur.lab.selection import GRIDS, Rows, select_head
from unspur.metrics import GroupAccuracy

#: Last layers that do not look at the concept of training rows.
WITHOUT_CONCEPT = ("ERM", "JTT")
#: Share of the rows with a known concept that decides, where those are few.
DECIDING = 0.2


def embedded_digest(spec: Mapping[str, Any], embeddings: Path) -> str:
    """Digest of the store that a cell reads."""
    return store_digest(spec["dataset"], spec["run"], embeddings)


def embedded_cell(spec: Mapping[str, Any], embeddings: Path) -> dict[str, Any]:
    """Evaluate one cell: right predictions and rows of each group, dimensions, and what happened to pictures."""
    data, rng = spec["dataset"], _training_numbers(spec, "head")
    drawn, removal = fitted_removal(spec, embeddings)
    seen = _seen_by_head(drawn, data.get("concepts", "first"), spec["head"]["name"], removal)
    last, decay = _last_layer(spec["head"], seen, rng)
    result = {**_measure(last, removal, drawn), "head_weight_decay": decay}
    if data["encoder"] in PIXELS:
        after = removal(drawn.test)
        result |= picture_change(drawn.unreduced(drawn.test.Z), drawn.unreduced(after.Z))
    return result


def fitted_removal(spec: Mapping[str, Any], embeddings: Path) -> tuple[Draw, Removal]:
    """The rows of a cell, and its removal, fitted."""
    data = spec["dataset"]
    drawn = draw(data, spec["run"], embeddings)
    rows = _seen_by_remover(drawn, data.get("concepts", "first"))
    return drawn, fit_removal(spec["remover"], *rows, _training_numbers(spec, "remover"))


def _training_numbers(spec: Mapping[str, Any], what: str) -> np.random.Generator:
    """Random numbers of a fit: folds of cross-fitting, subsamples of last layers."""
    which = {"remover": 2, "head": 3}[what]  # 0 and 1 are those of the draw
    return np.random.default_rng(np.random.SeedSequence(entropy(spec["dataset"], spec["run"])).spawn(4)[which])


def _seen_by_remover(drawn: Draw, which: str) -> tuple[Rows, Rows | None]:
    """Rows to fit on and rows to judge on; None where those are to be made of the former."""
    train = _with_concepts(drawn.train, drawn.second.get("train"), which)
    if not drawn.known.all():
        return train.select(drawn.known), None
    return train, _with_concepts(drawn.validation, drawn.second.get("validation"), which)


def _with_concepts(rows: Rows, second: Array | None, which: str) -> Rows:
    """The rows with the first concept, the second, or both as two columns."""
    if which == "first":
        return rows
    if second is None:
        raise InputError("The dataset has no second concept; name one as 'second'.")
    concept = second if which == "second" else np.column_stack([rows.concept, second])
    return Rows(rows.Z, rows.y, concept)


def _seen_by_head(drawn: Draw, which: str, name: str, removal: Removal) -> tuple[Rows, Rows]:
    """Rows to train on and rows to decide on, without the concept."""
    train = removal(_in_one_column(drawn.train, drawn.second.get("train"), which))
    validation = removal(_in_one_column(drawn.validation, drawn.second.get("validation"), which))
    if drawn.known.all():
        return train, validation
    deciding = np.zeros(len(train), dtype=bool)
    members = np.flatnonzero(drawn.known)
    group = train.group[members]
    for g in np.unique(group):  # the first of each group: their order is random
        mine = members[group == g]
        deciding[mine[: max(1, round(DECIDING * len(mine)))]] = True
    training = ~deciding if name in WITHOUT_CONCEPT else drawn.known & ~deciding
    return train.select(training), train.select(deciding)


def _in_one_column(rows: Rows, second: Array | None, which: str) -> Rows:
    """The rows with one concept, whose classes are the combinations of both where both count."""
    if which != "both" or second is None:
        return _with_concepts(rows, second, which)
    return Rows(rows.Z, rows.y, 2 * rows.concept + second)


def _last_layer(
    named: Mapping[str, Any], rows: tuple[Rows, Rows], rng: np.random.Generator
) -> tuple[LinearHead, float]:
    """The last layer and its weight decay, which the paper's rule chooses if the spec leaves it open."""
    train, deciding = rows
    if named.get("weight_decay") != ON_VALIDATION_ROWS:
        return fit_last_layer(named, train, deciding, rng), float(named["weight_decay"])
    name = named["name"]
    head = estimator(HEADS, {key: value for key, value in named.items() if key != "weight_decay"}, rng)
    grid = {"weight_decay": GRIDS[name]["weight_decay"]}
    if name != "DFR":
        chosen = select_head(head, grid, train, deciding)
        return LinearHead.of(chosen.head), chosen.parameters["weight_decay"]
    # It trains on held-out rows: one half of them for the choice, all of them in the end.
    half, other = deciding.split(0.5, 0)
    decay = select_head(head, grid, train, other, held_out=half).parameters["weight_decay"]
    return fit_last_layer({**named, "weight_decay": decay}, train, deciding, rng), decay


def _measure(last: LinearHead, removal: Removal, drawn: Draw) -> dict[str, Any]:
    test = removal(drawn.test)
    right = last.right(test)
    counts = GroupAccuracy.of(right, test.y, test.concept)
    result = {
        "right": counts.correct.ravel().tolist(),
        "rows": counts.rows.ravel().tolist(),
        "d_spurious": removal.spurious.dim,
        "d_main": removal.main.dim,
    }
    if drawn.second:
        counts = GroupAccuracy.of(right, test.y, drawn.second["test"])
        result |= {"right_second": counts.correct.ravel().tolist(), "rows_second": counts.rows.ravel().tolist()}
    return result
