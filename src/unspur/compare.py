"""Every remover with every chosen last layer on one set of embeddings."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from unspur import JSE, removers
from unspur._data import LabelledData, labelled
from unspur._typing import Array, BoolArray
from unspur.certificate import row_hashes
from unspur.clusters import has_continuous_columns
from unspur.exceptions import InputError, UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy
from unspur.selection import GRIDS, PAPER_PENALTIES, PENALTIES, Selection, as_data, choose_layer, penalties_for

#: Rows that tell whether equal ones are copies.
FIRST = 2000
#: What can be compared, by name. "none" leaves the rows as they are; "JSE-s" has orthogonal scores.
REMOVERS: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "JSE": JSE,
    "JSE-w": partial(JSE, metric=0.0),
    "JSE-s": partial(JSE, metric=1.0),
    **{name: kind for name, kind in removers.REMOVERS.items() if kind is not JSE},
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One remover with one head: accuracy on test rows, directions removed, seconds, what was chosen; or why not."""

    remover: str
    head: str
    removed: int
    accuracy: GroupAccuracy | None
    parameters: dict[str, Any]
    seconds: float
    problem: str = ""
    #: Of the head on held-out rows, `selection.temperature_scaled_loss`: what a choice between methods may go by.
    validation_loss: float | None = None
    #: "largest" or "smallest", where the penalty is the last on that side of those tried.
    edge: str = ""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        measured = None
        if self.accuracy is not None:
            low, high = self.accuracy.worst_interval()
            measured = {**self.accuracy.to_dict(), "worst_low95": low, "worst_high95": high}
        return {
            "remover": self.remover,
            "head": self.head,
            "removed": self.removed,
            "parameters": self.parameters,
            "seconds": self.seconds,
            "accuracy": measured,
            "problem": self.problem,
            "validation_loss": self.validation_loss,
            "penalty": self.parameters.get("weight_decay"),
            "edge_of_grid": self.edge,
            "notes": list(self.notes),
        }


def compare(
    train: Any,
    test: Any,
    validation: Any,
    removers: Sequence[str],
    heads: Sequence[str],
    seed: int = 0,
    balance: str = "group",
    report: Callable[[str], object] = lambda name: None,  # noqa: ARG005 — a progress bar that is not there
) -> list[Comparison]:
    """Fit removers on the training rows (and validation rows, where they take them) and heads on what is left.

    All removers give the same classes equal weight, those of `balance`; else they would not be compared like with like.
    Heads choose their parameters by `selection.choose_layer`: on validation rows; without any, on a fifth of each group
    of the training rows. Rows whose concept is missing train heads that do not ask for it. A method that cannot be
    fitted is a line with its reason, not an end of the comparison.

    Training, test and validation rows (or None) are tuples (Z, y, concept), with clusters a fourth, of arrays, lists,
    DataFrames or tensors. Several concepts are a mapping from their names to labels, or an array (n, m). Test and
    validation rows have the features and the classes of the training rows. Validation rows of which none has a known
    concept are left out.
    """
    require_known(removers, REMOVERS)
    require_known(heads, HEADS)
    train = labelled(train)
    test = labelled(test, "test", like=train)
    validation = None if validation is None else labelled(validation, "validation", like=train)
    penalties = penalties_for(train.X)
    shared = tuple(shared_rows(train.X, test.X, None if validation is None else validation.X).values())
    results = []
    for remover_name in removers:
        report(remover_name)
        start = time.perf_counter()
        remover = make_remover(remover_name, balance, seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is in the table: directions removed, and accuracy
                if remover is not None:
                    fit_remover(remover, train, validation)
                clean = [rows if rows is None else _cleaned(remover, rows) for rows in (train, validation, test)]
            problem = ""
        except UnspurError as error:
            problem, clean = str(error), []
        spent = time.perf_counter() - start
        for head_name in heads:
            report(f"{remover_name} + {head_name}")
            found = Comparison(remover_name, head_name, 0, None, {}, spent, problem, notes=shared)
            if not problem:
                removed = 0 if remover is None else remover.spurious_.dim
                found = _with_head(replace(found, removed=removed), clean, seed, penalties)
            results.append(found)
    return results


def _with_head(line: Comparison, clean: Sequence[Any], seed: int, penalties: Sequence[float]) -> Comparison:
    """The line with what its head makes of cleaned training, validation and test rows."""
    start, (train, validation, test) = time.perf_counter(), clean
    try:
        chosen = choose_head(line.head, train, validation, seed, penalties)
        accuracy = accuracy_of(chosen.head.predict(test.X) == test.main.values, test)
    except UnspurError as error:
        return replace(line, removed=0, problem=str(error), seconds=line.seconds + time.perf_counter() - start)
    return replace(
        line,
        accuracy=accuracy,
        parameters={"weight_decay": chosen.penalty, **chosen.parameters},
        seconds=line.seconds + time.perf_counter() - start,
        validation_loss=chosen.loss,
        edge=chosen.edge,
        notes=(*line.notes, *chosen.notes),
    )


def accuracy_of(right: BoolArray, test: LabelledData) -> GroupAccuracy:
    """By group; groups without rows are left out. Rows whose group is not known count in the average over rows."""
    known = test.known
    if not known.any():
        raise InputError(
            f"No test row has a known {' and '.join(test.concept_names)}; group by group nothing can be said."
        )
    return GroupAccuracy.of(
        right[known],
        test.main.codes[known],
        np.column_stack([label.codes[known] for label in test.concepts]),
        classes=test.main.classes,
        concept_classes=tuple(label.classes for label in test.concepts),
        names=("main" if test.main.name == "y" else test.main.name, *test.concept_names),
        empty="nan",
        ungrouped=(right[~known], test.main.codes[~known]),
    )


def choose_head(
    name: str,
    train: Any,
    validation: Any,
    seed: int,
    penalties: Sequence[float] = PENALTIES,
    *,
    every: bool = False,
) -> Selection:
    """A last layer by name, its parameters chosen by `selection.choose_layer` with these penalties among them."""
    grid = dict(GRIDS.get(name, {"weight_decay": PAPER_PENALTIES}))
    smaller = (penalty for penalty in penalties if penalty < min(grid["weight_decay"]))
    grid["weight_decay"] = (*grid["weight_decay"], *smaller)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return choose_layer(HEADS[name](random_state=seed), grid, train, validation, seed=seed, every=every)


def shared_rows(train: Array, test: Array, validation: Array | None = None) -> dict[tuple[str, str], str]:
    """What is to be said of rows that are in two of the three sets, by name; of none that are equal by chance."""
    sets = {"training": train, "test": test} | ({} if validation is None else {"validation": validation})
    hashes = {name: row_hashes(rows) for name, rows in sets.items()}
    said = {}
    for one, other, what in (
        ("test", "training", "what is measured on them flatters every method"),
        ("validation", "test", "what was chosen on them looks better on test rows than it is"),
        ("validation", "training", "penalties that were chosen on them are those that fit the training rows best"),
    ):
        shared = int(np.isin(hashes[one], hashes[other]).sum()) if one in sets else 0
        if shared and has_continuous_columns(sets[one][:FIRST]):
            said[one, other] = (
                f"{shared:,} of {len(sets[one]):,} {one} rows are {other} rows as well; {what}. Hold rows out."
            )
    return said


def require_known(names: Sequence[str], *kinds: Mapping[str, Any]) -> None:
    """Names that are in none of `kinds` are an error that says what there is."""
    unknown = [name for name in names if not any(name in kind for kind in kinds)]
    if unknown:
        there = "; and ".join(", ".join(kind) for kind in kinds)
        raise InputError(f"Unknown: {', '.join(unknown)}. There are {there}.")


def make_remover(name: str, balance: str, seed: int) -> Any:
    """A remover by name, not fitted yet; None for "none"."""
    kind = REMOVERS[name]
    if kind is None:
        return None
    remover = kind(balance=balance)
    return remover.set_params(random_state=seed) if "random_state" in remover.get_params() else remover


def fit_remover(remover: Any, train: Any, validation: Any) -> None:
    """Fit a remover on rows with a known concept; validation rows go to those that judge directions on them."""
    judges_directions = "X_val" in inspect.signature(remover.fit).parameters
    arguments = as_data(train).with_known_concept().arguments(clusters=judges_directions)
    validation = as_data(validation, "validation")
    if judges_directions and validation is not None and validation.known.any():
        arguments |= validation.with_known_concept().arguments("_val")
    remover.fit(**arguments)


def _cleaned(remover: Any, rows: LabelledData) -> LabelledData:
    return rows if remover is None else replace(rows, X=remover.transform(rows.X))
