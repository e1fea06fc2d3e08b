"""What last layers make of rows: as they are, after the removal, and after every method it is compared with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError, UnspurError
from unspur.lab.compare import HEADS, REMOVERS, choose_head, fit_remover, make_remover, require_known
from unspur.lab.evaluation import LastLayer
from unspur.lab.findings.inputs import Labelled
from unspur.lab.findings.values import Change, Judged
from unspur.metrics import GroupAccuracy, Leakage, leakage, paired_difference, worst_difference

#: What the rows as they are are called among methods.
AS_THEY_ARE = "as they are"


@dataclass(frozen=True, slots=True)
class Answers:
    """A last layer on test rows: which of its answers are right (n,), and their accuracy by group."""

    layer: Any
    right: BoolArray
    accuracy: GroupAccuracy


def answers(train: tuple[Array, IntArray], z: Array, test: Labelled, main: str) -> Answers:
    """Train a last layer on rows and codes of the main label, and judge it on test rows `z` labelled like `test`."""
    layer = LastLayer.fit(*train)
    right = np.asarray(layer.predict(z) == test.y.codes)
    return Answers(layer, right, accuracy_of(right, test, main))


def accuracy_of(right: BoolArray, test: Labelled, main: str) -> GroupAccuracy:
    """By group; groups without rows are left out. Rows whose group is not known count in the average over rows."""
    known = test.known
    if not known.any():
        raise InputError(f"No test row has a known {' and '.join(test.concepts)}; group by group nothing can be said.")
    return GroupAccuracy.of(
        right[known],
        test.y.codes[known],
        test.concept_codes[known],
        classes=test.y.classes,
        concept_classes=tuple(label.classes for label in test.concepts.values()),
        names=(main, *test.concepts),
        empty="nan",
        ungrouped=right[~known],
    )


def changes(before: Answers, after: Answers, test: Labelled) -> tuple[Change, Change, Change]:
    """Of the averages over rows and over groups, and of the worst group, in the order of `Judged`.

    That over rows is of all rows, the others of those whose group is known.
    """
    first, second = before.right[test.known], after.right[test.known]
    found = (
        paired_difference(before.right, after.right),
        paired_difference(first, second, test.group[test.known]),
        worst_difference(before.accuracy, after.accuracy),
    )
    alike, by_group, worst = (Change(change.value, change.low, change.high) for change in found)
    return alike, by_group, worst


@dataclass(frozen=True, slots=True)
class Comparing:
    """The rows on which other methods are fitted and judged, as the removal itself is."""

    train: Labelled
    test: Labelled
    validation: Labelled | None
    main: str
    #: On the rows as they are.
    before: Answers
    #: Test rows that probes are measured on, by number.
    probed: IntArray
    seed: int

    def __call__(self, name: str) -> Judged:
        """One method by name; one that cannot be fitted is a line with its reason."""
        try:
            return self._remover(name) if name in REMOVERS else self._head(name)
        except UnspurError as error:
            return Judged(name, 0, None, problem=str(error))

    def _remover(self, name: str) -> Judged:
        remover = make_remover(name, "group", self.seed)
        rows = None if self.validation is None else self.validation.as_rows()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is in the line: directions removed, and accuracy
            fit_remover(remover, self.train.as_rows(), rows)
            clean = remover.transform(self.train.Z), remover.transform(self.test.Z)
        found = answers((clean[0], self.train.y.codes), clean[1], self.test, self.main)
        left = probes(clean[1][self.probed], self.test.select(self.probed))[0]
        changed = changes(self.before, found, self.test)
        return Judged(name, remover.spurious_.dim, found.accuracy, *changed, left)

    def _head(self, name: str) -> Judged:
        rows = self.train.as_rows(joined=True)
        if self.validation is None:
            fit_on, choose_on = rows.split(0.2, self.seed)
        else:
            fit_on, choose_on = rows, self.validation.as_rows(joined=True)
        chosen = choose_head(name, fit_on, choose_on, self.seed)
        right = np.asarray(chosen.head.predict(self.test.Z) == np.array(self.test.y.classes)[self.test.y.codes])
        found = Answers(chosen.head, right, accuracy_of(right, self.test, self.main))
        return Judged(name, 0, found.accuracy, *changes(self.before, found, self.test))


def chosen_methods(names: Sequence[str], remover: Any) -> list[str]:
    """Those that are compared: known, each once, and not the removal itself or the rows as they are."""
    require_known(names, REMOVERS, HEADS)
    scores = getattr(remover, "orthogonality", "weights") == "scores"
    itself = "JSE-s" if type(remover).__name__ == "JSE" and scores else type(remover).__name__
    return [name for name in dict.fromkeys(names) if name not in ("none", itself)]


def probes(
    z: Array, rows: Labelled, kind: Any = "linear", seed: int = 0
) -> tuple[Mapping[str, Leakage], tuple[str, ...]]:
    """What a fresh probe finds of each concept in rows `z`; and why not, where classes are too rare."""
    found, problems = {}, []
    for name, label in rows.concepts.items():
        values = np.array(label.classes)[label.codes]
        try:
            together = None if rows.clusters is None else rows.clusters[rows.known]
            found[name] = leakage(z[rows.known], values[rows.known], probe=kind, clusters=together, random_state=seed)
        except InputError as error:
            problems.append(f"{name}: not probed. {error}")
    return found, tuple(problems)
