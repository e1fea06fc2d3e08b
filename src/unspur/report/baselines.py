"""Heads on the original rows, after the removal, and after every method that it is compared with.

`selection.tune_head` chooses all of them by one rule, on the same rows and from the same penalties.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from unspur.metrics import GroupAccuracy, Leakage, PairedDifference, paired_difference, worst_difference
from unspur.removers import Remover
from unspur.report.results import MethodResult, StrengthResult
from unspur.selection import Selection, penalty_grid

#: Name of the original rows among methods.
NO_REMOVAL = "no removal"
#: Names of the unweighted head, and of the group-weighted one that is always evaluated too.
PLAIN, WEIGHTED = "ERM", "GroupWeighted"
#: Strengths at which the removal is evaluated, besides its own.
STRENGTHS = (0.0, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class HeadEvaluation:
    """A head on test rows: which of its predictions are correct (n,), and their accuracy by group."""

    head: Any
    correct: BoolArray
    accuracy: GroupAccuracy
    chosen: Selection
    #: Worst-group accuracy at every penalty tried; empty without `refit_all`.
    worst_by_penalty: Mapping[float, float]


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

    def __call__(
        self, head: str, clean: Mapping[str, Array] | None = None, *, refit_all: bool = False
    ) -> HeadEvaluation:
        """A head by name, on the original rows or on transformed rows by split.

        With `refit_all`, its worst group is also measured at the penalties that were not chosen.
        """
        given = self.rows
        if clean is not None:
            given = {name: replace(part, X=clean[name]) for name, part in self.rows.items()}
        chosen = tune_named_head(
            head, given["training"], given.get("validation"), self.seed, self.penalties, refit_all=refit_all
        )
        correct = self._correct(chosen.head, given["test"].X)
        worst_by_penalty = {
            penalty: accuracy_of(self._correct(head, given["test"].X), self.test).worst
            for penalty, head in (chosen.fitted_heads.items() if refit_all else ())
        }
        return HeadEvaluation(chosen.head, correct, accuracy_of(correct, self.test), chosen, worst_by_penalty)

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

    def _correct(self, head: Any, z: Array) -> BoolArray:
        return np.asarray(head.predict(z) == self.test.main.values)


def changes(
    before: HeadEvaluation, after: HeadEvaluation, test: LabelledData
) -> tuple[PairedDifference, PairedDifference, PairedDifference]:
    """Changes of the averages over rows and over groups, and of the worst group, in the order of `MethodResult`.

    The average over rows counts all rows, the others count those whose group is known.
    """
    first, second = before.correct[test.concept_known], after.correct[test.concept_known]
    return (
        paired_difference(before.correct, after.correct),
        paired_difference(first, second, test.group[test.concept_known]),
        worst_difference(before.accuracy, after.accuracy),
    )


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
    """Evaluate unweighted and group-weighted heads on the original and on the transformed rows, at every penalty."""
    name, removed = type(remover).__name__, remover.n_removed_
    before, after = evaluate(PLAIN, refit_all=True), evaluate(PLAIN, clean, refit_all=True)
    results = [
        method_result(NO_REMOVAL, 0, before),
        method_result(name, removed, after, changes(before, after, evaluate.test)),
    ]
    weighted_after = None
    with suppress(UnspurError):  # which the result says
        weighted_after = evaluate(WEIGHTED, clean, refit_all=True)
    results = [
        replace(result, weighted=group_weighted_result(evaluate, result, of, before, weighted_after, refit_all=True))
        for result, of in zip(results, (None, clean), strict=True)
    ]
    notes = evaluate.selection_notes(before.chosen)
    return RemovalResult(before, after, weighted_after, (results[0], results[1]), notes)


def method_result(
    name: str,
    removed: int,
    found: HeadEvaluation,
    changed: tuple[PairedDifference | None, PairedDifference | None, PairedDifference | None] = (None,) * 3,
) -> MethodResult:
    """The result of one head after one method."""
    average, by_group, worst = changed
    return MethodResult(
        name,
        removed,
        found.accuracy,
        average,
        by_group,
        worst,
        penalty=found.chosen.penalty,
        grid_edge=found.chosen.grid_edge,
        worst_by_penalty=found.worst_by_penalty,
    )


def group_weighted_result(
    evaluate: Evaluator,
    unweighted: MethodResult,
    clean: Mapping[str, Array] | None,
    before: HeadEvaluation,
    weighted_after: HeadEvaluation | None,
    *,
    refit_all: bool = False,
) -> MethodResult:
    """The same method with a group-weighted head, or with the problem that prevents one."""
    try:
        found = evaluate(WEIGHTED, clean, refit_all=refit_all)
    except UnspurError as error:
        return MethodResult(unweighted.name, unweighted.n_removed, None, problem=str(error))
    result = method_result(unweighted.name, unweighted.n_removed, found, changes(before, found, evaluate.test))
    return result if weighted_after is None else relative_to_removal(result, found, weighted_after, evaluate.test)


def relative_to_removal(
    result: MethodResult, found: HeadEvaluation, after: HeadEvaluation, test: LabelledData
) -> MethodResult:
    """The result with its differences from the same kind of head after the removal (`after`)."""
    _, average, worst = changes(after, found, test)
    return replace(result, worst_relative_to_removal=worst, average_relative_to_removal=average)


def evaluate_strengths(
    evaluate: Evaluator,
    strength: float,
    removal: RemovalResult,
    leaks: Sequence[Mapping[str, Leakage]],
    clean: Mapping[str, Array],
    probed: IntArray,
) -> tuple[StrengthResult, ...]:
    """The unweighted head and the probes at each of `STRENGTHS`.

    Rows after the removal are `clean`, of this `strength`. The results of 0 and of `strength` are known: they are those
    of `removal`, and of the probes `leaks` before and after it.
    """
    known = {0.0: (removal.before, leaks[0]), strength: (removal.after, leaks[1])}
    found = []
    for value in sorted({*STRENGTHS, strength}):
        if value in known:
            head, leak = known[value]
        else:
            share = value / strength
            rows = {name: part.X + share * (clean[name] - part.X) for name, part in evaluate.rows.items()}
            head, test = evaluate(PLAIN, rows), evaluate.test.select(probed)
            leak = probe_concepts(rows["test"][probed], test, seed=evaluate.seed)[0]
        found.append(StrengthResult(value, head.accuracy, leak, head.chosen.penalty))
    return tuple(found)


def transform_splits(remover: Remover, rows: Mapping[str, LabelledData]) -> dict[str, Array]:
    """Rows after the removal, by split."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were compared before
        return {name: np.asarray(remover._cleaned(part.X)) for name, part in rows.items()}


def compare_with(name: str, evaluate: Evaluator, removal: RemovalResult, probed: IntArray) -> MethodResult:
    """Another method by name, fitted and evaluated on the rows of the removal; or the problem that prevents it.

    Probes are measured on the test rows `probed`, by number.
    """
    registry = REMOVERS if name in REMOVERS else HEADS
    try:
        with registry.named_errors(name):
            if registry is REMOVERS:
                return _other_removal(name, evaluate, removal, probed)
            found = evaluate(name)
            return method_result(name, 0, found, changes(removal.before, found, evaluate.test))
    except UnspurError as error:
        return MethodResult(name, 0, None, problem=str(error))


def _other_removal(name: str, evaluate: Evaluator, removal: RemovalResult, probed: IntArray) -> MethodResult:
    rows, test = evaluate.rows, evaluate.test
    remover = make_remover(name, "group", evaluate.seed)
    with warnings.catch_warnings(action="ignore"):  # the result has the same facts: directions removed, and accuracy
        fit_remover(remover, rows["training"], rows.get("validation"))
        clean = transform_splits(remover, rows)
    found = evaluate(PLAIN, clean)
    result = method_result(name, remover.spurious_.dim, found, changes(removal.before, found, test))
    return replace(
        relative_to_removal(result, found, removal.after, test),
        leakage=probe_concepts(clean["test"][probed], test.select(probed), seed=evaluate.seed)[0],
        weighted=group_weighted_result(evaluate, result, clean, removal.before, removal.weighted_after),
    )


def methods_to_compare(names: Sequence[str], remover: Any) -> list[str]:
    """The methods to compare with, each once, without the removal itself and "none"."""
    own, metric = type(remover).__name__, getattr(remover, "metric", None)
    left_out = {"none", *([f"{own} (metric {metric:g})"] if metric in (0, 1) else ())}
    if metric != 1:
        left_out.add(own)
    return [name for name in dict.fromkeys(known_names(names, REMOVERS, HEADS)) if name not in left_out]
