"""Heads on the original rows, after the removal, and after every method that it is compared with.

`selection.tune_head` chooses all of them by one rule, on the same rows and from the same penalties.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unspur._data import LabelledData
from unspur._typing import Array, BoolArray, IntArray
from unspur.clusters import row_hashes
from unspur.compare import (
    REMOVERS,
    accuracy_of,
    fit_remover,
    known_names,
    make_remover,
    probe_concepts,
    tune_named_head,
)
from unspur.exceptions import UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy, PairedDifference, paired_difference, worst_difference
from unspur.removers import Remover
from unspur.report.results import MethodResult
from unspur.selection import Selection, penalty_grid

#: Name of the original rows among methods.
NO_REMOVAL = "no removal"
#: Names of the unweighted head, and of the group-weighted one that is always evaluated too.
PLAIN, WEIGHTED = "ERM", "GroupWeighted"


@dataclass(frozen=True, slots=True)
class HeadEvaluation:
    """A head on test rows: which of its predictions are correct (n,), and their accuracy by group."""

    head: Any
    correct: BoolArray
    accuracy: GroupAccuracy
    chosen: Selection


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Trains heads on "training" rows, chooses them on "validation" rows, if any, and evaluates them on "test" rows."""

    rows: Mapping[str, LabelledData]
    seed: int
    penalties: tuple[float, ...]

    @classmethod
    def of(cls, rows: Mapping[str, LabelledData], seed: int) -> Evaluator:
        """An evaluator with the penalties for the original training rows."""
        training = rows["training"]
        training = training.with_duplicate_clusters(row_hashes(training.X))
        return cls({**rows, "training": training}, seed, penalty_grid(training.X))

    @property
    def test(self) -> LabelledData:
        """The rows that heads are evaluated on."""
        return self.rows["test"]

    def __call__(self, head: str, clean: Mapping[str, Array] | None = None) -> HeadEvaluation:
        """A head by name, on the original rows or on transformed rows by split."""
        given = self.rows
        if clean is not None:
            given = {name: replace(part, X=clean[name]) for name, part in self.rows.items()}
        chosen = tune_named_head(head, given["training"], given.get("validation"), self.seed, self.penalties)
        correct = np.asarray(chosen.head.predict(given["test"].X) == self.test.main.values)
        return HeadEvaluation(chosen.head, correct, accuracy_of(correct, self.test), chosen)

    def selection_notes(self, chosen: Selection) -> tuple[str, ...]:
        """Sentences that say how penalties were chosen."""
        validation = self.rows.get("validation")
        on = "a fifth of each group of the training rows"
        if self.rows["training"].clusters_are_duplicates:
            on = "about a fifth of each group of the training rows, with copies of a row on one side"
        elif self.rows["training"].clusters is not None:
            on = "about a fifth of the clusters of each group of the training rows"
        if validation is not None and validation.concept_known.any():
            on = f"{np.sum(validation.concept_known):,} validation rows"
        tried = ", ".join(f"{penalty:g}" for penalty in self.penalties)
        groups = "group that has rows there" if chosen.notes else "group"
        rule = (
            f"Each penalty is chosen from {tried} (times the mean variance of the rows). It minimises the held-out "
            f"loss on {on}, with equal weight for every {groups}. Logits are rescaled by the best temperature first, "
            "so confidence does not matter."
        )
        return (rule, *chosen.notes)


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """Unweighted and group-weighted heads on the original rows and after a removal."""

    #: The unweighted heads.
    before: HeadEvaluation
    after: HeadEvaluation
    #: The group-weighted head after the removal; None if it cannot be fitted.
    weighted_after: HeadEvaluation | None
    results: tuple[MethodResult, MethodResult]
    selection_notes: tuple[str, ...]


def evaluate_removal(evaluate: Evaluator, remover: Remover, clean: Mapping[str, Array]) -> RemovalResult:
    """Evaluate unweighted and group-weighted heads on the original and on the transformed rows."""
    before, after = evaluate(PLAIN), evaluate(PLAIN, clean)
    weighted_after, problem = None, ""
    try:
        weighted_after = evaluate(WEIGHTED, clean)
    except UnspurError as error:
        problem = str(error)
    original = _result(NO_REMOVAL, 0, before)
    original = replace(original, weighted=_weighted(evaluate, original, None, before, weighted_after))
    name, removed = type(remover).__name__, remover.n_removed_
    removal = _result(name, removed, after, before, evaluate.test)
    weighted = MethodResult(name, removed, None, problem=problem)
    if weighted_after is not None:
        weighted = _result(name, removed, weighted_after, before, evaluate.test)
    notes = evaluate.selection_notes(before.chosen)
    return RemovalResult(before, after, weighted_after, (original, replace(removal, weighted=weighted)), notes)


def compare_with(name: str, evaluate: Evaluator, removal: RemovalResult, probed: IntArray) -> MethodResult:
    """Another method by name, fitted and evaluated on the rows of the removal; or the problem that prevents it.

    Probes are measured on the test rows `probed`, by number.
    """
    registry = REMOVERS if name in REMOVERS else HEADS
    try:
        with registry.named_errors(name):
            if registry is REMOVERS:
                return _other_removal(name, evaluate, removal, probed)
            return _result(name, 0, evaluate(name), removal.before, evaluate.test)
    except UnspurError as error:
        return MethodResult(name, 0, None, problem=str(error))


def _other_removal(name: str, evaluate: Evaluator, removal: RemovalResult, probed: IntArray) -> MethodResult:
    rows, test = evaluate.rows, evaluate.test
    remover = make_remover(name, "group", evaluate.seed)
    with warnings.catch_warnings(action="ignore"):  # the result has the same facts: directions removed, and accuracy
        fit_remover(remover, rows["training"], rows.get("validation"))
        clean = transform_splits(remover, rows)
    found = evaluate(PLAIN, clean)
    result = _result(name, remover.spurious_.dim, found, removal.before, test)
    return replace(
        _relative_to_removal(result, found, removal.after, test),
        leakage=probe_concepts(clean["test"][probed], test.select(probed), seed=evaluate.seed)[0],
        weighted=_weighted(evaluate, result, clean, removal.before, removal.weighted_after),
    )


def _result(
    name: str, removed: int, found: HeadEvaluation, before: HeadEvaluation | None = None, test: Any = None
) -> MethodResult:
    """The result of one head after one method, with its differences from the head `before`."""
    average = by_group = worst = None
    if before is not None:
        average = paired_difference(before.correct, found.correct)
        by_group, worst = _group_differences(before, found, test)
    chosen = found.chosen
    return MethodResult(
        name,
        removed,
        found.accuracy,
        average,
        by_group,
        worst,
        penalty=chosen.penalty,
        grid_edge=chosen.grid_edge,
    )


def _group_differences(
    first: HeadEvaluation, second: HeadEvaluation, test: LabelledData
) -> tuple[PairedDifference, PairedDifference]:
    """Differences of the average over groups and of the worst group, over rows whose group is known."""
    known = test.concept_known
    average = paired_difference(first.correct[known], second.correct[known], test.group[known])
    return average, worst_difference(first.accuracy, second.accuracy)


def _weighted(
    evaluate: Evaluator,
    unweighted: MethodResult,
    clean: Mapping[str, Array] | None,
    before: HeadEvaluation,
    weighted_after: HeadEvaluation | None,
) -> MethodResult:
    """The same method with a group-weighted head, or with the problem that prevents one."""
    name, removed = unweighted.name, unweighted.n_removed
    try:
        found = evaluate(WEIGHTED, clean)
    except UnspurError as error:
        return MethodResult(name, removed, None, problem=str(error))
    result = _result(name, removed, found, before, evaluate.test)
    return result if weighted_after is None else _relative_to_removal(result, found, weighted_after, evaluate.test)


def _relative_to_removal(
    result: MethodResult, found: HeadEvaluation, after: HeadEvaluation, test: LabelledData
) -> MethodResult:
    """The result with its differences from the same kind of head after the removal (`after`)."""
    average, worst = _group_differences(after, found, test)
    return replace(result, worst_relative_to_removal=worst, average_relative_to_removal=average)


def transform_splits(remover: Remover, rows: Mapping[str, LabelledData]) -> dict[str, Array]:
    """Rows after the removal, by split."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were compared before
        return {name: np.asarray(remover._cleaned(part.X)) for name, part in rows.items()}


def methods_to_compare(names: Sequence[str], remover: Any) -> list[str]:
    """The methods to compare with, each once, without the removal itself and "none"."""
    own, metric = type(remover).__name__, getattr(remover, "metric", None)
    left_out = {"none", *([f"{own} (metric {metric:g})"] if metric in (0, 1) else ())}
    if metric != 1:
        left_out.add(own)
    return [name for name in dict.fromkeys(known_names(names, REMOVERS, HEADS)) if name not in left_out]
