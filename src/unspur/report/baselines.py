"""Last layers on rows as they are, after the removal, and after every method that it is compared with.

One rule chooses all of them, `selection.choose_layer`, on the same rows and from the same penalties.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unspur._data import LabelledData
from unspur._typing import Array, BoolArray, IntArray
from unspur.compare import REMOVERS, accuracy_of, choose_head, fit_remover, known_names, make_remover, probes
from unspur.exceptions import UnspurError
from unspur.heads import HEADS
from unspur.metrics import GroupAccuracy, paired_difference, worst_difference
from unspur.removers import Remover
from unspur.report.results import Change, MethodResult
from unspur.selection import Selection, penalty_grid

#: Name of the rows without any removal among methods.
NO_REMOVAL = "as they are"
#: Names of the plain last layer and of the one that stands beside it.
PLAIN, WEIGHTED = "ERM", "GroupWeighted"


@dataclass(frozen=True, slots=True)
class Answers:
    """A last layer on test rows: which of its predictions are right (n,), and their accuracy by group."""

    layer: Any
    right: BoolArray
    accuracy: GroupAccuracy
    chosen: Selection
    #: Worst-group accuracy at every penalty that was tried, if asked for.
    worst_at: Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Trains last layers on "training" rows, chooses them on "validation" rows, if any, and judges on "test" rows."""

    rows: Mapping[str, LabelledData]
    seed: int
    penalties: tuple[float, ...]

    @classmethod
    def of(cls, rows: Mapping[str, LabelledData], seed: int) -> Evaluator:
        """An evaluator with the penalties for the training rows as they are."""
        return cls(rows, seed, penalty_grid(rows["training"].X))

    @property
    def test(self) -> LabelledData:
        """The rows that are judged on."""
        return self.rows["test"]

    def __call__(self, head: str, clean: Mapping[str, Array] | None = None, *, refit_all: bool = False) -> Answers:
        """A last layer by name, on the rows as they are or on cleaned ones by split.

        With `refit_all`, its worst group is also measured at the penalties that were not chosen.
        """
        given = self.rows
        if clean is not None:
            given = {name: replace(part, X=clean[name]) for name, part in self.rows.items()}
        chosen = choose_head(
            head, given["training"], given.get("validation"), self.seed, self.penalties, refit_all=refit_all
        )
        right = self._right(chosen.head, given["test"].X)
        worst_at = {
            penalty: accuracy_of(self._right(layer, given["test"].X), self.test).worst
            for penalty, layer in (chosen.fitted.items() if refit_all else ())
        }
        return Answers(chosen.head, right, accuracy_of(right, self.test), chosen, worst_at)

    def how(self, chosen: Selection) -> tuple[str, ...]:
        """Sentences that say how penalties were chosen."""
        validation = self.rows.get("validation")
        on = "a fifth of each group of the training rows"
        if self.rows["training"].clusters is not None:
            on = "about a fifth of the clusters of each group of the training rows"
        if validation is not None and validation.concept_known.any():
            on = f"{np.sum(validation.concept_known):,} validation rows"
        tried = ", ".join(f"{penalty:g}" for penalty in self.penalties)
        rule = (
            f"The penalty of every last layer is the one of {tried} (times the mean variance of its rows) with the "
            f"least loss on {on}, in which every group {'that has rows there ' if chosen.notes else ''}has the same "
            "weight and all logits are multiplied by the factor that serves the layer best, so that how sure it is "
            "does not count."
        )
        return (rule, *chosen.notes)

    def _right(self, layer: Any, z: Array) -> BoolArray:
        return np.asarray(layer.predict(z) == self.test.main.values)


def changes(before: Answers, after: Answers, test: LabelledData) -> tuple[Change, Change, Change]:
    """Changes of the averages over rows and over groups, and of the worst group, in the order of `MethodResult`.

    The average over rows counts all rows, the others count those whose group is known.
    """
    first, second = before.right[test.concept_known], after.right[test.concept_known]
    found = (
        paired_difference(before.right, after.right),
        paired_difference(first, second, test.group[test.concept_known]),
        worst_difference(before.accuracy, after.accuracy),
    )
    alike, by_group, worst = (Change(change.value, change.low, change.high) for change in found)
    return alike, by_group, worst


@dataclass(frozen=True, slots=True)
class RemovalResult:
    """The rows as they are and after a removal, under plain and group-weighted layers."""

    #: The plain layers.
    before: Answers
    after: Answers
    lines: tuple[MethodResult, MethodResult]
    choice: tuple[str, ...]


def evaluate_removal(evaluate: Evaluator, remover: Remover, clean: Mapping[str, Array]) -> RemovalResult:
    """Judge plain and group-weighted layers on the rows as they are and on cleaned ones, at every penalty."""
    name, removed = type(remover).__name__, remover.spurious_.dim
    before, after = evaluate(PLAIN, refit_all=True), evaluate(PLAIN, clean, refit_all=True)
    lines = [
        method_result(NO_REMOVAL, 0, before),
        method_result(name, removed, after, changes(before, after, evaluate.test)),
    ]
    lines = [
        replace(line, weighted=group_weighted_result(evaluate, line, of, before, after, refit_all=True))
        for line, of in zip(lines, (None, clean), strict=True)
    ]
    return RemovalResult(before, after, (lines[0], lines[1]), evaluate.how(before.chosen))


def method_result(
    name: str, removed: int, found: Answers, changed: tuple[Change | None, Change | None, Change | None] = (None,) * 3
) -> MethodResult:
    """The result of one layer of one method."""
    average, by_group, worst = changed
    return MethodResult(
        name,
        removed,
        found.accuracy,
        average,
        by_group,
        worst,
        penalty=found.chosen.penalty,
        edge=found.chosen.edge,
        worst_at=found.worst_at,
    )


def group_weighted_result(
    evaluate: Evaluator,
    line: MethodResult,
    clean: Mapping[str, Array] | None,
    before: Answers,
    after: Answers,
    *,
    refit_all: bool = False,
) -> MethodResult:
    """The same method with a group-weighted layer, or with the problem that prevents one."""
    try:
        found = evaluate(WEIGHTED, clean, refit_all=refit_all)
    except UnspurError as error:
        return MethodResult(line.name, line.removed, None, problem=str(error))
    result = method_result(line.name, line.removed, found, changes(before, found, evaluate.test))
    return beside(result, found, after, evaluate.test)


def beside(line: MethodResult, found: Answers, after: Answers, test: LabelledData) -> MethodResult:
    """The result with its differences from a plain layer on what the removal leaves (`after`)."""
    _, average, worst = changes(after, found, test)
    return replace(line, worst_beside=worst, average_beside=average)


def cleaned(remover: Remover, rows: Mapping[str, LabelledData]) -> dict[str, Array]:
    """Rows after the removal, by split."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were compared before
        return {name: np.asarray(remover.transform(part.X)) for name, part in rows.items()}


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """Fits other methods on the rows of the removal, and judges them in the same way."""

    evaluate: Evaluator
    #: Plain layers on the rows as they are, and on what the removal leaves.
    before: Answers
    after: Answers
    #: Test rows that probes are measured on, by number.
    probed: IntArray

    def __call__(self, name: str) -> MethodResult:
        """The result of one method by name, or the problem that prevents one."""
        try:
            return self._remover(name) if name in REMOVERS else self._head(name)
        except UnspurError as error:
            return MethodResult(name, 0, None, problem=str(error))

    def _remover(self, name: str) -> MethodResult:
        rows, test = self.evaluate.rows, self.evaluate.test
        remover = make_remover(name, "group", self.evaluate.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the line: directions removed, and accuracy
            fit_remover(remover, rows["training"], rows.get("validation"))
            clean = cleaned(remover, rows)
        found = self.evaluate(PLAIN, clean)
        line = method_result(name, remover.spurious_.dim, found, changes(self.before, found, test))
        line = replace(
            beside(line, found, self.after, test),
            leakage=probes(clean["test"][self.probed], test.select(self.probed))[0],
        )
        return replace(line, weighted=group_weighted_result(self.evaluate, line, clean, self.before, self.after))

    def _head(self, name: str) -> MethodResult:
        found = self.evaluate(name)
        return method_result(name, 0, found, changes(self.before, found, self.evaluate.test))


def chosen_methods(names: Sequence[str], remover: Any) -> list[str]:
    """The methods to compare with, each once, without the removal itself and the rows as they are."""
    own, metric = type(remover).__name__, getattr(remover, "metric", None)
    left_out = {"none", *([f"{own} (metric {metric:g})"] if metric in (0, 1) else ())}
    if metric != 1:
        left_out.add(own)
    return [name for name in dict.fromkeys(known_names(names, REMOVERS, HEADS)) if name not in left_out]
