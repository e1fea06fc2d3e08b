"""One cell on embeddings: draw rows at a strength, remove the concept, train a last layer, measure on test rows.

Training rows train, validation rows decide (the tests of JSE and INLP, the weight decay of last layers), test rows
measure. Where only some training rows have a known concept, removers see those alone and cross-fit, and weight decay is
chosen in folds of them; last layers that need the concept see them alone too, and the others all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspur import RobustClassifier
from unspur._typing import Array, BoolArray
from unspur.exceptions import InputError
from unspur.metrics import leakage
from unspur_paper.experiments.choosing import (
    GRIDS,
    group_loss,
    half_of_each_group,
    select_head,
    settings_of,
    with_settings,
)
from unspur_paper.experiments.draws import Draw, draw, entropy
from unspur_paper.experiments.fitting import (
    HEADS,
    LinearHead,
    Removal,
    counts,
    estimator,
    fit_last_layer,
    fit_quietly,
    fit_removal,
    seed,
)
from unspur_paper.experiments.gradcam import Layer, looked_at
from unspur_paper.experiments.pixels import picture_change
from unspur_paper.experiments.presets import ON_VALIDATION_ROWS, RECOMMENDED
from unspur_paper.experiments.registry import FINETUNED, PICTURED, PIXELS
from unspur_paper.experiments.stores import kept_epoch, store_digest
from unspur_paper.rows import Rows

#: Last layers that do not look at the concept of training rows.
WITHOUT_CONCEPT = ("ERM", "JTT", "AFR")
#: Last layers that train on held-out rows, which a fine-tuned network has not seen; AFR's first model on training rows.
ON_HELD_OUT_ROWS = ("DFR", "AFR")
#: Folds in which rows with a known concept decide, where those are few.
FOLDS = 5


def embedded_digest(spec: Mapping[str, Any], embeddings: Path) -> str:
    """Digest of the store that a cell reads."""
    return store_digest(spec["dataset"], spec["run"], embeddings)


def embedded_cell(spec: Mapping[str, Any], embeddings: Path) -> dict[str, Any]:
    """Evaluate one cell: right predictions and rows of each group, dimensions, and what happened to pictures.

    Of a network that was trained for the run also how it was trained, what a probe finds after the removal, and, where
    its maps were kept, how much of them lies on the bird.
    """
    data = spec["dataset"]
    drawn, removal, last, chosen = fitted_cell(spec, embeddings)
    result = {**_measure(last, removal, drawn), **{f"head_{name}": float(value) for name, value in chosen.items()}}
    if data["encoder"] in PIXELS:
        after = removal(drawn.test)
        result |= picture_change(drawn.unreduced(drawn.test.Z), drawn.unreduced(after.Z))
    if data["name"] in FINETUNED:
        result |= {
            "probe": _probe(removal, drawn, _training_numbers(spec, "probe")),
            "training": kept_epoch(data, spec["run"], embeddings),
        }
    if data["name"] in PICTURED:
        result |= looked_at(Layer.of(last, removal, drawn.reduction), data, spec["run"], embeddings)
    return result


def fitted_cell(spec: Mapping[str, Any], embeddings: Path) -> tuple[Draw, Removal, LinearHead, dict[str, float]]:
    """The rows of a cell, its removal, and its last layer with the weight decay of that and what else was chosen.

    What is to be orthogonal in JSE is chosen like a weight decay, if left open: by the validation loss of the last
    layer, with groups of equal weight.
    """
    if spec["head"]["name"] == RECOMMENDED:
        return _recommended(spec, embeddings)
    best: tuple[float, tuple[Draw, Removal, LinearHead, dict[str, float]]] | None = None
    for remover in _alternatives(spec["remover"]):
        drawn, removal = fitted_removal({**spec, "remover": remover}, embeddings)
        last, chosen = _last_layer(spec, drawn, removal, _training_numbers(spec, "head"))
        loss = group_loss(last, removal(drawn.validation))
        if best is None or loss < best[0]:
            best = (loss, (drawn, removal, last, chosen))
    assert best is not None
    return best[1]


def _recommended(spec: Mapping[str, Any], embeddings: Path) -> tuple[Draw, Removal, LinearHead, dict[str, float]]:
    """The same by the classifier that the library recommends, with its defaults."""
    data = spec["dataset"]
    drawn = draw(data, spec["run"], embeddings)
    train, deciding = _seen_by_remover(drawn, data)
    model = RobustClassifier(random_state=seed(_training_numbers(spec, "remover")))
    fit_quietly(model, train, deciding)
    removal = Removal(model.removal_, model.remover_.spurious_, model.remover_.main_)
    # Its coefficients are for the original rows; on rows without the concept they give the same logits.
    return drawn, removal, LinearHead.of(model), {"weight_decay": model.selection_.parameters["penalty"]}


def _alternatives(remover: Mapping[str, Any]) -> list[dict[str, Any]]:
    if remover.get("orthogonality") != ON_VALIDATION_ROWS:
        return [dict(remover)]
    return [{**remover, "orthogonality": kind} for kind in ("weights", "scores")]


def fitted_removal(spec: Mapping[str, Any], embeddings: Path) -> tuple[Draw, Removal]:
    """The rows of a cell, and its removal, fitted."""
    data = spec["dataset"]
    drawn = draw(data, spec["run"], embeddings)
    return drawn, fit_removal(spec["remover"], *_seen_by_remover(drawn, data), _training_numbers(spec, "remover"))


def _training_numbers(spec: Mapping[str, Any], what: str) -> np.random.Generator:
    """Random numbers of a fit: folds of cross-fitting, subsamples of last layers, rows that a probe sets aside."""
    which = {"remover": 2, "head": 3, "probe": 4}[what]  # the draw has the first two of its own settings
    return np.random.default_rng(np.random.SeedSequence(entropy(spec["dataset"], spec["run"])).spawn(5)[which])


def _seen_by_remover(drawn: Draw, data: Mapping[str, Any]) -> tuple[Rows, Rows | None]:
    """Rows to fit on and rows to judge on; None where those are to be made of the former."""
    which = data.get("concepts", "first")
    train = _with_concepts(drawn.train, drawn.second.get("train"), which)
    if drawn.known is not None:
        return train.select(drawn.known), None
    if data.get("judged") == "cross-fitting":
        return train, None
    return train, _with_concepts(drawn.validation, drawn.second.get("validation"), which)


def _with_concepts(rows: Rows, second: Array | None, which: str) -> Rows:
    """The rows with the first concept, the second, or both as two columns."""
    if which == "first":
        return rows
    if second is None:
        raise InputError("The dataset has no second concept; name one as 'second'.")
    concept = second if which == "second" else np.column_stack([rows.concept, second])
    return Rows(rows.Z, rows.y, concept)


def _in_one_column(rows: Rows, second: Array | None) -> Rows:
    """The rows with one concept, whose classes are the combinations of both where there are two."""
    return rows if second is None else Rows(rows.Z, rows.y, 2 * rows.concept + second)


def _last_layer(
    spec: Mapping[str, Any], drawn: Draw, removal: Removal, rng: np.random.Generator
) -> tuple[LinearHead, dict[str, float]]:
    """The last layer on what the removal leaves, and its parameters; those left open are chosen by the paper's rule.

    With two concepts, every method is chosen by the same loss, that of all their combinations; and last layers that
    weigh groups weigh those.
    """
    named = spec["head"]
    train, deciding = (
        removal(_in_one_column(rows, drawn.second.get(split)))
        for split, rows in (("train", drawn.train), ("validation", drawn.validation))
    )
    left_open = [name for name, value in named.items() if value == ON_VALIDATION_ROWS]
    if not left_open:
        head = estimator(HEADS, named, rng)
        return fit_last_layer(named, train, deciding, rng), {"weight_decay": float(head.penalty)}
    head = estimator(HEADS, {key: value for key, value in named.items() if key not in left_open}, rng)
    grid = {name: GRIDS[named["name"]][name] for name in left_open}
    if drawn.known is not None:
        seen = np.ones(len(train), dtype=bool) if named["name"] in WITHOUT_CONCEPT else drawn.known
        return _cross_selected(head, grid, train, drawn.known, seen)
    if named["name"] not in ON_HELD_OUT_ROWS:
        found, chosen = select_head(head, grid, train, deciding)
        return LinearHead.of(found), chosen
    # One half of the held-out rows for the choice, all of them in the end.
    aside = half_of_each_group(deciding, np.random.default_rng(0))
    _, chosen = select_head(head, grid, train, deciding.select(aside), held_out=deciding.select(~aside))
    return fit_last_layer({**named, **chosen}, train, deciding, rng), chosen


def _cross_selected(
    head: Any, grid: Mapping[str, Sequence[float]], train: Rows, known: BoolArray, seen: BoolArray
) -> tuple[LinearHead, dict[str, float]]:
    """Choose parameters in folds of the rows with a `known` concept, then fit on all rows that may be `seen`.

    Parameters with which a fold cannot be fitted are not chosen.
    """
    fold = np.full(len(train), -1)
    members = np.flatnonzero(known)
    # One after the other inside each group; the order of rows is random.
    fold[members[np.argsort(train.group[members], kind="stable")]] = np.arange(len(members)) % FOLDS
    settings = settings_of(grid)
    losses = []
    for parameters in settings:
        total = 0.0
        for k in range(FOLDS):
            fitted = with_settings(head, parameters)
            try:
                fitted.fit(**train.select(seen & (fold != k)).arguments())
            except InputError:  # as where a large γ of AFR leaves a single row with a weight
                total = np.inf
                break
            total += group_loss(fitted, train.select(fold == k))
        losses.append(total)
    best = settings[int(np.argmin(losses))]
    return LinearHead.of(with_settings(head, best).fit(**train.select(seen).arguments())), best


def _measure(last: LinearHead, removal: Removal, drawn: Draw) -> dict[str, Any]:
    test = removal(drawn.test)
    right = last.right(test)
    result = {
        **counts(right, test.y, test.concept),
        "d_spurious": removal.spurious.dim,
        "d_main": removal.main.dim,
    }
    if drawn.second:
        second = counts(right, test.y, drawn.second["test"])
        result |= {f"{name}_second": values for name, values in second.items()}
    return result


def _probe(removal: Removal, drawn: Draw, rng: np.random.Generator) -> float:
    """Class-balanced accuracy, on test rows, of a fresh linear probe of the concept after the removal.

    It is trained on training rows, whose groups count the same: else it would learn the main label, which goes with the
    concept there and not in test rows, and find less than there is.
    """
    train, test = removal(drawn.train), removal(drawn.test)
    weight = 1.0 / np.bincount(train.group)[train.group]
    found = leakage(
        train.Z, train.concept, X_test=test.Z, concept_test=test.concept, sample_weight=weight, random_state=rng
    )
    return float(found.accuracy)
