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
from unspur._typing import Array
from unspur.certificate import row_hashes
from unspur.clusters import has_continuous_columns
from unspur.exceptions import InputError, UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy, group_accuracy
from unspur.selection import GRIDS, PAPER_PENALTIES, PENALTIES, Rows, Selection, choose_layer, penalties_for

#: Rows that tell whether equal ones are copies.
FIRST = 2000
#: What can be compared, by name. "none" leaves the rows as they are; "JSE-s" has orthogonal scores.
REMOVERS: dict[str, Callable[..., Any] | None] = {
    "none": None,
    "JSE": JSE,
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
    train: Rows,
    test: Rows,
    validation: Rows | None,
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
    """
    require_known(removers, REMOVERS)
    require_known(heads, HEADS)
    penalties = penalties_for(train.Z)
    known = train.with_known_concept(), None if validation is None else validation.with_known_concept()
    shared = tuple(shared_rows(train.Z, test.Z, None if validation is None else validation.Z).values())
    results = []
    for remover_name in removers:
        report(remover_name)
        start = time.perf_counter()
        remover = make_remover(remover_name, balance, seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is in the table: directions removed, and accuracy
                if remover is not None:
                    fit_remover(remover, known[0], known[1])
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
        accuracy = group_accuracy(test.y, chosen.head.predict(test.Z), test.concept, empty="nan")
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


def choose_head(
    name: str,
    train: Rows,
    validation: Rows | None,
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


def fit_remover(remover: Any, train: Rows, validation: Rows | None) -> None:
    """Fit a remover; validation rows go to those that judge directions on them."""
    judges_directions = "X_val" in inspect.signature(remover.fit).parameters
    more = train.cluster_kwargs() if judges_directions else {}
    if validation is not None and judges_directions:
        more |= {**validation.held_out(), **validation.cluster_kwargs("_val")}
    remover.fit(train.Z, train.y, concept=train.concept, **more)


def _cleaned(remover: Any, rows: Rows) -> Rows:
    return rows if remover is None else replace(rows, Z=remover.transform(rows.Z))
