"""Accuracy by group (main class × concept classes), of the worst group and on average, with confidence intervals.

Intervals are of proportions (one, several at once, the smallest, their mean) and of paired differences. Scorers for
scikit-learn's searches and cross-validation come last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, norm
from sklearn.utils.metadata_routing import MetadataRequest

from unspur._arrays import to_python
from unspur._text import brief, one_line
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import cluster_codes
from unspur.exceptions import InputError, LabelError
from unspur.labels import (
    ClassLabel,
    as_labels,
    class_label,
    missing_values,
    named_concepts,
    numbered,
    series_name,
    storable,
)

#: Most standard errors for which a p-value is computed (1e-299).
MAX_STANDARD_ERRORS = 37.0


def require_level(level: float) -> None:
    """Raise InputError unless the level is a probability between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"level is a probability between 0 and 1, such as 0.95; got {level}.")


def tail_probability(level: float) -> float:
    """Probability on either side of an interval of this level."""
    require_level(level)
    return 0.5 - level / 2


def exact_bounds(correct: Array, rows: Array, tail: float) -> FloatArray:
    """Exact bounds of a proportion with probability `tail` beyond each (Clopper and Pearson, 1934), shape (..., 2).

    They hold for any proportion and number of rows. Score intervals (Wilson's) are narrower by a tenth at 30 rows, but
    hold their level only on average over proportions: near 0 and 1 a 95 % interval covers 84 %, and at 30 rows and an
    accuracy of 99.5 % it covers 86 %. Numbers of rows may be fractional (effective rows); NaN without rows.
    """
    x, n = np.asarray(correct, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    return np.stack([_lower(x, n, tail), 1.0 - _lower(n - x, n, tail)], axis=-1)


def expected_minimum(share: FloatArray, rows: Array, points: int = 4096) -> float:
    """Mean of ``min_g X_g / n_g`` over independent ``X_g ~ Binomial(n_g, share_g)``: ∫ Π_g P(X_g / n_g > t) dt."""
    spread = np.sqrt(share * (1 - share) / rows)
    low = max(0.0, float((share - 9 * spread).min()))
    high = min(1.0, float((share + 9 * spread).min()))
    t = low + (np.arange(points) + 0.5) * (high - low) / points
    above = np.prod([binom.sf(np.floor(n * t), n, p) for n, p in zip(rows, share, strict=True)], axis=0)
    return low + (high - low) * float(above.mean())


def mean_interval(share: FloatArray, rows: FloatArray, z: float) -> tuple[float, float]:
    """Bounds of the plain mean of k independent proportions from the exact bounds l, u of each (Zou and Donner, 2008).

    ``mean ∓ √Σ a² / k`` with ``a = p − l`` below and ``u − p`` above, neither less than half of u − l, since small
    shares are skewed and their mean hardly is.
    """
    low, high = exact_bounds(share * rows, rows, float(norm.sf(z))).T
    below, above = mean_margins(share, low, high)
    mean = float(share.mean())
    return max(0.0, mean - below), min(1.0, mean + above)


def mean_margins(value: FloatArray, low: FloatArray, high: FloatArray) -> tuple[float, float]:
    """Margins below and above the mean of k independent estimates, from the bounds of each."""
    half = (high - low) / 2
    below, above = (np.linalg.norm(np.maximum(part, half)) / len(value) for part in (value - low, high - value))
    return float(below), float(above)


def p_above(share: FloatArray, rows: FloatArray, value: float) -> float:
    """One-sided p-value of the null hypothesis that the mean is at most `value`.

    This is the level at which the bound of `mean_interval` reaches `value`. It is ½ if `value` lies between the
    bounds even at level zero, since exact bounds are apart there.
    """
    low, high = mean_interval(share, rows, 0.0)
    if low <= value <= high:
        return 0.5
    side = 0 if value < low else 1

    def gap(z: float) -> float:
        return mean_interval(share, rows, z)[side] - value

    z = MAX_STANDARD_ERRORS if gap(0.0) * gap(MAX_STANDARD_ERRORS) > 0 else float(brentq(gap, 0.0, MAX_STANDARD_ERRORS))
    return float(norm.sf(z) if side == 0 else norm.cdf(z))


def _lower(correct: FloatArray, rows: FloatArray, tail: float) -> FloatArray:
    """Lower exact bound: the proportion at which P(X ≥ correct) is `tail`; NaN without rows."""
    some = np.maximum(correct, np.finfo(np.float64).tiny)
    bound = np.where(correct > 0, betaincinv(some, rows - correct + 1.0, tail), 0.0)
    return np.where(rows > 0, bound, np.nan)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Accuracy of the second set minus that of the first, and its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0.0 <= self.high


def paired_difference(before: Array, after: Array, group: Array | None = None, level: float = 0.95) -> PairedDifference:
    """Difference of two accuracies on the same rows, over all rows or as the mean over groups.

    Only b rows that the second set alone has right, and c rows that the first alone has right, tell about the
    difference. The bounds of ``(b − c) / n`` are Tango's (1998) with a continuity correction: all Δ that a score test
    does not reject,

    ::

        |b − c − nΔ| ≤ h + z √(n (2q + Δ − Δ²)),    q the most likely share of c-rows if the difference is Δ,
                                                    h = ½ (1 + (b + c) / n)

    h is half a step of b − c, which is one if most rows agree and two if all differ. With it the interval covers at
    least at its level for two rows or more (up to a level of 95 %); without it a 95 % interval covers 93 % if few rows
    differ. It is not empty if b = c = 0. With groups, each has such bounds l, u around its difference d, and those of
    the mean over k groups are ``mean ∓ √Σ a² / k`` with a = d − l below and u − d above (Zou and Donner, 2008), neither
    less than half of u − l.

    Parameters
    ----------
    before, after : whether each prediction is right, shape (n,).
    group : group of each row, shape (n,); groups then count the same, and rows where it is missing (NaN, None) are
        left out. Without it, rows count the same.
    """
    first, second = _answers(before, after)
    z = float(norm.isf(tail_probability(level)))
    if group is None:
        return PairedDifference(*_tango(int(np.sum(second & ~first)), int(np.sum(first & ~second)), len(first), z))
    groups = as_labels(group)
    if groups.shape != first.shape:
        raise InputError(f"group has shape {groups.shape}; {len(first)} values are needed, one for each row.")
    known = ~missing_values(groups, None)
    if not known.any():
        raise InputError(f"group is missing in all {len(groups)} rows.")
    first, second, numbers = first[known], second[known], cluster_codes(groups[known], "group", int(known.sum()))
    better, worse, rows = (
        np.bincount(numbers, weights=counted).astype(int)
        for counted in (second & ~first, first & ~second, np.ones(len(first)))
    )
    bounds = [_tango(int(b), int(c), int(n), z) for b, c, n in zip(better, worse, rows, strict=True)]
    value, low, high = np.array(bounds).T
    mean, (below, above) = float(value.mean()), mean_margins(value, low, high)
    return PairedDifference(mean, max(-1.0, mean - below), min(1.0, mean + above))


def worst_difference(before: GroupAccuracy, after: GroupAccuracy, level: float = 0.95) -> PairedDifference:
    """Change of the accuracy of the worst group, which may be another one afterwards.

    From the intervals l, u of the two, ``low = d − √((after − l')² + (u − before)²)`` and likewise above (Zou and
    Donner, 2008), which holds for independent accuracies. Accuracies on the same rows are correlated, so the interval
    is usually too wide. It is too narrow only if the second set is right on just those rows of the worst group that the
    first has wrong. In that case a 95 % interval covers about 90 %, and as little as 72 % if the group is small or its
    accuracy close to 0 or 1.
    """
    (low, high), (lower, higher) = before.worst_interval(level), after.worst_interval(level)
    change = after.worst - before.worst
    below = math.hypot(after.worst - lower, high - before.worst)
    above = math.hypot(higher - after.worst, before.worst - low)
    return PairedDifference(change, max(-1.0, change - below), min(1.0, change + above))


def _tango(better: int, worse: int, n: int, z: float) -> tuple[float, float, float]:
    """(b − c) / n and the two Δ at which the continuity-corrected score statistic is z and −z."""
    value = (better - worse) / n
    step = (1 + (better + worse) / n) / 2

    def statistic(delta: float, toward: float) -> float:
        linear = (2 * n - better + worse) * delta - better - worse
        root = np.sqrt(max(0.0, linear**2 + 8 * n * worse * delta * (1 - delta)))
        q = (root - linear) / (4 * n)
        variance = max(n * (2 * q + delta * (1 - delta)), 1e-300)  # zero where nothing but Δ itself is possible
        return float((better - worse - n * delta - toward) / np.sqrt(variance))

    # The statistic falls from +∞ to −∞, so each bound is the one root on its side.
    edge = 1 - 1e-12
    low = -1.0 if statistic(-edge, step) <= z else float(brentq(lambda at: statistic(at, step) - z, -edge, value))
    high = 1.0 if statistic(edge, -step) >= -z else float(brentq(lambda at: statistic(at, -step) + z, value, edge))
    return value, low, high


def _answers(before: Array, after: Array) -> tuple[BoolArray, BoolArray]:
    given = [np.asarray(answers) for answers in (before, after)]
    if any(one.dtype.kind not in "biuf" or not np.all((one == 0) | (one == 1)) for one in given):
        raise InputError("before and after must say of each prediction whether it is right. Pass predicted == y.")
    first, second = (answers.astype(bool) for answers in given)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise InputError(
            f"before and after must be 1-D, non-empty and of equal length; got {first.shape} and {second.shape}."
        )
    return first, second


#: A group without rows is an error, or has accuracy NaN and is left out of the worst group and the averages.
Empty: TypeAlias = Literal["error", "nan"]
#: Name of the rows of which a concept is unknown.
NO_GROUP = "no concept, in no group"


def group_accuracy(
    y: Array,
    predicted: Array,
    concept: Array,
    *,
    missing_concept: Any = None,
    empty: Empty = "error",
    classes: Sequence[Any] = (),
    concept_classes: Sequence[Any] = (),
) -> GroupAccuracy:
    """Accuracy of predictions in every group.

    Parameters
    ----------
    y, predicted : true and predicted task of each row, shape (n,); two or more classes.
    concept : label of each row, shape (n,); for several concepts a mapping from names to labels, a DataFrame, or an
        array (n, m). Groups are all combinations of main class and concept classes.
    missing_concept : besides NaN and None, the value that means "unknown". Rows of which a concept is unknown are in no
        group, but count in the average over rows.
    empty : "error", or "nan" if combinations without rows are expected.
    classes, concept_classes : classes of `y` and of the concept besides those that occur in these rows, such as those
        of all folds; for several concepts one sequence for each.

    Labels are called "main" and "concept", or by the name of a Series or of the columns of a DataFrame.
    """
    truth = _label_among(y, "main", len(y), classes, empty)
    if not truth.present.all():
        raise LabelError(f"y is missing in {np.sum(~truth.present)} rows; predictions cannot be evaluated there.")
    right = _right(y, predicted, truth.classes)
    columns = named_concepts(concept, series_name(concept) or "concept")
    expected = [concept_classes] if len(columns) == 1 else list(concept_classes) or [()] * len(columns)
    if len(expected) != len(columns):
        raise InputError(f"concept_classes has classes of {len(expected)} concepts; there are {len(columns)}.")
    labels = [
        _label_among(values, name, len(right), others, empty, missing=missing_concept)
        for (name, values), others in zip(columns.items(), expected, strict=True)
    ]
    known = np.all([label.present for label in labels], axis=0)
    return GroupAccuracy.of(
        right[known],
        truth.codes[known],
        np.column_stack([label.codes[known] for label in labels]),
        classes=truth.classes,
        concept_classes=tuple(label.classes for label in labels),
        names=(_main_name(y, columns), *columns),
        empty=empty,
        ungrouped=(right[~known], truth.codes[~known]),
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupAccuracy:
    """Rows and correct predictions per group, both of shape (main classes, classes of concept 1, of concept 2, …).

    `levels` holds the classes along each axis and `names` the names of the axes. Rows in no group, of which a concept
    is unknown, are counted by main class in `ungrouped_by_class` (empty without such rows), and the correct ones among
    them in `ungrouped_correct`.
    """

    rows: IntArray
    correct: IntArray
    levels: tuple[tuple[Any, ...], ...]
    names: tuple[str, ...] = ("main", "concept")
    ungrouped_by_class: tuple[int, ...] = ()
    ungrouped_correct: int = 0

    @classmethod
    def of(
        cls,
        correct: Array,
        y: Array,
        concept: Array,
        *,
        classes: tuple[Any, ...] | None = None,
        concept_classes: tuple[Any, ...] | None = None,
        names: tuple[str, ...] | None = None,
        empty: Empty = "error",
        ungrouped: tuple[Array, Array] | None = None,
    ) -> GroupAccuracy:
        """Count from codes 0, 1, … of `y` (n,) and `concept` (n,) or (n, m), and a mask of `correct` predictions.

        `concept_classes` holds the classes of the concept, or for a 2-D `concept` one tuple of them per column.
        `ungrouped` is a mask of correct predictions and the codes of `y` for further rows, which are in no group.
        """
        codes = np.column_stack([np.asarray(y), np.asarray(concept)]).astype(np.intp)
        if concept_classes is None:
            concept_classes = (None,) * (codes.shape[1] - 1)
        elif np.ndim(concept) < 2:
            concept_classes = (concept_classes,)
        levels = tuple(
            tuple(range(max(2, 1 + int(column.max(initial=0))))) if level is None else tuple(level)
            for column, level in zip(codes.T, (classes, *concept_classes), strict=True)
        )
        names = names or ("main", *numbered("concept", codes.shape[1] - 1))
        shape = tuple(map(len, levels))
        if np.any(codes < 0) or np.any(codes >= shape):
            raise InputError(
                f"Codes must lie between 0 and the number of classes, here {shape}. Encode the labels again."
            )
        cell = np.ravel_multi_index(tuple(codes.T), shape)
        size = int(np.prod(shape))
        rows = np.bincount(cell, minlength=size).reshape(shape)
        right = np.bincount(cell[np.asarray(correct, dtype=bool)], minlength=size).reshape(shape)
        others, their_y = ([], []) if ungrouped is None else ungrouped
        by_class = np.bincount(np.asarray(their_y, dtype=np.intp), minlength=shape[0])
        result = cls(rows, right, levels, names, tuple(by_class.tolist()), int(np.sum(others)))
        if empty not in ("error", "nan"):
            raise InputError(f"empty is 'error' or 'nan'; got {empty!r}.")
        if not rows.any():
            raise InputError("There are no rows to evaluate.")
        if empty == "error" and (missing := result.empty_groups()):
            raise InputError(
                f"No rows with {missing[0]}: its accuracy is unknown, and so is the worst group. Evaluate on rows of "
                f"all {size} groups, or pass empty='nan' to leave such groups out."
            )
        return result

    @property
    def classes(self) -> tuple[Any, ...]:
        """Classes of the task."""
        return self.levels[0]

    @property
    def concept_classes(self) -> tuple[Any, ...]:
        """Classes of the concept; with several concepts, one tuple of classes for each."""
        return self.levels[1] if len(self.levels) == 2 else self.levels[1:]

    @property
    def accuracy(self) -> FloatArray:
        """Accuracy of each group, in the shape of `rows`; NaN for a group without rows."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.correct / self.rows)

    @property
    def worst(self) -> float:
        """Accuracy of the worst group among those with rows: the plug-in minimum.

        It is biased low, since a group can be the worst by bad luck: by 1.9 points for four groups of 500 rows with an
        accuracy of 80 % each, and not at all if one group is clearly the worst. See `worst_corrected`.
        """
        return float(np.nanmin(self.accuracy))

    @property
    def worst_corrected(self) -> float:
        """Plug-in minimum less its bias: ``2 min p̂ − E[min p̂*]``, with ``p̂*_g ~ Binomial(n_g, p̂_g) / n_g``.

        The expectation is exact. It removes 40 % of the bias if all groups are equal, and all of it if they differ a
        little. It is at most the average over groups. No estimate removes all bias everywhere; rely on the interval.
        """
        share, rows = self.accuracy[self.rows > 0], self.rows[self.rows > 0]
        return min(self.group_average, 2 * self.worst - expected_minimum(share, rows))

    @property
    def worst_group(self) -> tuple[Any, ...]:
        """Classes of the worst group: main, then each concept."""
        return self._at(np.unravel_index(int(np.nanargmin(self.accuracy)), self.rows.shape))

    def worst_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval of the true accuracy of the worst group: the smallest lower and the smallest upper bound.

        Bounds hold for all groups at once (`interval(simultaneous=True)`), so the smallest accuracy lies between the
        smallest bounds with at least that probability, also if groups are tied.
        """
        low, high = np.nanmin(self.interval(level, simultaneous=True).reshape(-1, 2), axis=0)
        return float(low), float(high)

    @property
    def group_average(self) -> float:
        """Mean of the group accuracies; every group with rows counts the same."""
        return float(np.nanmean(self.accuracy))

    @property
    def average(self) -> float:
        """Accuracy over all rows, also those in no group."""
        return (int(self.correct.sum()) + self.ungrouped_correct) / self.n_rows

    @property
    def ungrouped_rows(self) -> int:
        """Number of rows in no group, since a concept is unknown."""
        return sum(self.ungrouped_by_class)

    @property
    def n_rows(self) -> int:
        """Number of rows, also those in no group."""
        return int(self.rows.sum()) + self.ungrouped_rows

    @property
    def majority(self) -> float:
        """Share of the most frequent main class among all rows: the accuracy of a constant prediction."""
        by_class = self.rows.reshape(len(self.classes), -1).sum(axis=1)
        if self.ungrouped_by_class:
            by_class = by_class + self.ungrouped_by_class
        return float(by_class.max() / by_class.sum())

    def group_average_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval of `group_average`, from the exact one of every group with rows (`mean_interval`)."""
        filled = self.rows > 0
        return mean_interval(
            self.accuracy[filled], self.rows[filled].astype(np.float64), float(norm.isf(tail_probability(level)))
        )

    def average_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Exact interval of `average`, for rows drawn at random or group by group."""
        low, high = exact_bounds(self.correct.sum() + self.ungrouped_correct, self.n_rows, tail_probability(level))
        return float(low), float(high)

    def weighted_average(self, train_shares: Array) -> float:
        """Group accuracies averaged with the shares that the groups have among the *training* rows.

        `train_shares` has the shape of `rows`: shares, or numbers of rows, as `group_counts(y_train, concept_train)`
        returns them.
        """
        shares = np.asarray(train_shares, dtype=np.float64)
        if shares.shape != self.rows.shape or not np.all(shares >= 0) or not 0 < shares.sum() < np.inf:
            raise InputError(
                f"train_shares must be shares ≥ 0 of the groups in an array of shape {self.rows.shape}; got "
                f"{np.array2string(shares, threshold=8)}."
            )
        if np.any(empty := (shares > 0) & (self.rows == 0)):
            raise InputError(
                f"Group ({self.labels()[int(np.argmax(empty))]}) has training rows and none here, so its accuracy is "
                "unknown. Leave the group out of train_shares, or evaluate on rows of it."
            )
        return float(np.nansum(self.accuracy * shares) / shares.sum())

    def group_counts(self, y: Array, concept: Array) -> IntArray:
        """Number of other labelled rows (say, training rows) in each of these groups, in the shape of `rows`.

        Several concepts must come in the order of `names`.
        """
        known = self.concept_classes if self.rows.ndim == 2 else self.levels[1:]
        counted = group_accuracy(y, y, concept, empty="nan", classes=self.classes, concept_classes=known)
        if counted.rows.shape != self.rows.shape or (self.rows.ndim > 2 and counted.names[1:] != self.names[1:]):
            raise LabelError(
                f"These rows have the groups {', '.join(counted.labels())}; accuracies are known of "
                f"{', '.join(self.labels())}. Pass rows of these groups, and concepts in this order."
            )
        return counted.rows

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> FloatArray:
        """Exact interval of each group's accuracy, shape ``(*rows.shape, 2)``: low and high; NaN without rows.

        Clopper and Pearson's interval covers at least at its level for any accuracy and number of rows. With
        `simultaneous` the intervals hold for all groups at once (Šidák).
        """
        tail = tail_probability(level)
        if simultaneous:
            tail = (1 - level ** (1 / np.count_nonzero(self.rows))) / 2
        return exact_bounds(self.correct, self.rows, tail)

    def per_concept(self) -> dict[str, GroupAccuracy]:
        """Accuracy by main class and one concept at a time, summed over the others, of rows where all are known.

        If other concepts have missing values, these are fewer rows than `group_accuracy` of one concept counts.
        """
        tables = {}
        for axis, name in enumerate(self.names[1:], start=1):
            others = tuple(other for other in range(1, len(self.levels)) if other != axis)
            levels = (self.levels[0], self.levels[axis])
            rows, correct = self.rows.sum(axis=others), self.correct.sum(axis=others)
            others_too = self.ungrouped_by_class, self.ungrouped_correct
            tables[name] = GroupAccuracy(rows, correct, levels, (self.names[0], name), *others_too)
        return tables

    def empty_groups(self) -> list[str]:
        """Names of the groups without rows."""
        return [label for label, rows in zip(self.labels(), self.rows.ravel(), strict=True) if not rows]

    def groups(self) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
        """Index into `rows` and classes of each group, main class by main class."""
        for index in np.ndindex(self.rows.shape):
            yield index, self._at(index)

    def labels(self, names: tuple[str, ...] | None = None) -> list[str]:
        """Names of the groups, such as "main=land, concept=sea", in the order of `groups`."""
        names = names or self.names
        return [one_line(", ".join(f"{n}={v}" for n, v in zip(names, at, strict=True))) for _, at in self.groups()]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON; None for groups without rows.

        `names` are those of the task and the concepts. `rows` and `average` include rows in no group, which
        `ungrouped_rows` and `ungrouped_correct` count.
        """
        groups = []
        for (index, classes), bounds in zip(self.groups(), self.interval().reshape(-1, 2), strict=True):
            main, *concepts = storable(classes)
            share, low, high = (None if np.isnan(one) else float(one) for one in (self.accuracy[index], *bounds))
            group = {"main": main, "concept": concepts[0]}
            if len(concepts) > 1:
                group["concept"] = dict(zip(self.names[1:], concepts, strict=True))
            counts = {"rows": int(self.rows[index]), "correct": int(self.correct[index])}
            groups.append({**group, **counts, "accuracy": share, "low95": low, "high95": high})
        low, high = self.worst_interval()
        return {
            "names": list(self.names),
            "groups": groups,
            "worst": self.worst,
            "worst_corrected": self.worst_corrected,
            "worst_low95": low,
            "worst_high95": high,
            "group_average": self.group_average,
            "average": self.average,
            "rows": self.n_rows,
            "ungrouped_rows": self.ungrouped_rows,
            "ungrouped_correct": self.ungrouped_correct,
        }

    def to_frame(self) -> Any:
        """A pandas DataFrame with one line for each group: rows, correct ones, accuracy and its exact 95 % interval.

        The index has a level for the task and one for each concept, by their names, so that
        ``frame.loc["waterbird", "land"]`` is a group and ``frame["accuracy"].unstack()`` a table. Rows in no group are
        not in it; those without any have NaN.
        """
        import pandas as pd

        interval = self.interval().reshape(-1, 2)
        index = pd.MultiIndex.from_tuples([classes for _, classes in self.groups()], names=list(self.names))
        columns = {
            "rows": self.rows.ravel(),
            "correct": self.correct.ravel(),
            "accuracy": self.accuracy.ravel(),
            "low95": interval[:, 0],
            "high95": interval[:, 1],
        }
        return pd.DataFrame(columns, index=index)

    def _at(self, index: Any) -> tuple[Any, ...]:
        return tuple(to_python(level[i]) for level, i in zip(self.levels, index, strict=True))

    def __repr__(self) -> str:
        return f"GroupAccuracy({' × '.join(self.names)}, worst={self.worst:.4f}, average={self.average:.4f})"

    def _table(self) -> Any:
        """The groups, the worst one and the averages as a DataFrame of texts."""
        import pandas as pd

        low, high = self.interval().reshape(-1, 2).T
        groups = zip(self.labels(), self.rows.ravel(), self.accuracy.ravel(), low, high, strict=True)
        found: list[tuple[str, Any, Any, Any, Any]] = list(groups)
        if self.ungrouped_rows:
            share = self.ungrouped_correct / self.ungrouped_rows
            found.append((NO_GROUP, self.ungrouped_rows, share, np.nan, np.nan))
        found += [
            ("worst group", 0, self.worst, *self.worst_interval()),
            ("average over groups", 0, self.group_average, *self.group_average_interval()),
            ("average over rows", self.n_rows, self.average, *self.average_interval()),
        ]
        cells = [
            (
                f"{rows:,}" if rows else "none" if np.isnan(share) else "",
                "" if np.isnan(share) else f"{100 * share:.1f}",
                "" if np.isnan(low) else f"{100 * low:.1f} – {100 * high:.1f}",
            )
            for _, rows, share, low, high in found
        ]
        names = [brief(name, 44) for name, *_ in found]
        return pd.DataFrame(cells, index=names, columns=["rows", "accuracy, %", "95 % interval"])

    def __str__(self) -> str:
        return str(self._table().to_string())

    def _repr_html_(self) -> str:
        return str(self._table().to_html())


def _label_among(
    values: Array, name: str, n_rows: int, others: Sequence[Any], empty: Empty, *, missing: Any = None
) -> ClassLabel:
    """A label with some classes and those that occur; one class alone is an error unless groups may be empty."""
    label = class_label(values, name, n_rows, missing=missing, min_classes=1)
    known = tuple(map(to_python, others))
    classes = (*known, *(value for value in label.classes if value not in known))
    if len(classes) < 2 and empty == "error":
        raise LabelError(
            f"{name} has one class only ({classes[0]}), so the accuracy of other groups is unknown, and so is the "
            "worst group. Evaluate on rows of all groups, or pass empty='nan' to leave groups without rows out."
        )
    return label.recode(classes)


def _right(y: Array, predicted: Array, classes: tuple[Any, ...]) -> Array:
    """Mask of correct predictions; LabelError if predictions are no classes."""
    truth, guess = as_labels(y).ravel(), as_labels(predicted).ravel()
    if truth.shape != guess.shape:
        raise LabelError(f"There are {len(guess)} predictions for {len(truth)} rows. Each row needs one.")
    if missing := int(missing_values(guess, None).sum()):
        raise LabelError(f"{missing:,} of {len(guess):,} predictions are missing. Predict a class for each row.")
    right = np.asarray(truth == guess, dtype=bool)
    odd = [one for one in np.unique(guess).tolist() if isinstance(one, float) and not one.is_integer()]
    if (odd and odd[0] not in classes) or (not right.any() and not set(guess.tolist()) & set(classes)):
        strange, known = to_python(odd[0] if odd else guess[0]), to_python(truth[0])
        raise LabelError(
            f"Predicted values such as {strange!r} are no class of y ({known!r}, …). "
            "Predictions must be class labels of y, not probabilities."
        )
    return right


def _main_name(y: Array, concepts: Mapping[str, Array]) -> str:
    """Name of the task: that of its Series, "main" or "y", the first that no concept has."""
    return next(name for name in (series_name(y), "main", "y", "main label") if name and name not in concepts)


@dataclass(frozen=True)
class GroupScorer:
    """Scorer by group, called as ``scorer(estimator, X, y, concept=concept)``; larger is better.

    Pass it as `scoring` to ``GridSearchCV``, ``cross_validate`` and the like, with
    ``sklearn.set_config(enable_metadata_routing=True)``. It requests `concept` by itself. The ready ones are
    ``worst_group_scorer`` and ``group_average_scorer``.

    Parameters
    ----------
    statistic : {"worst", "group_average"}, default="worst"
        Accuracy of the worst group, or the mean of the group accuracies.
    missing_concept : scalar or None, default=None
        Value of `concept` that means "not known", besides NaN and None. Such rows are in no group.
    empty : {"error", "nan"}, default="error"
        Whether a group without rows, such as in a small fold, is an error or left out.
    concept_classes : tuple, default=()
        All classes of the concept; for several concepts a tuple of classes for each. A fold of which no row has one of
        them has empty groups. A scorer sees one fold only, and does not miss a class that it is not told of. Classes of
        `y` are those of the estimator.

    Examples
    --------
    >>> from unspur import RobustClassifier
    >>> from unspur.datasets import make_toy
    >>> from unspur.metrics import worst_group_scorer
    >>> train, test = (make_toy(1000, rho=rho, random_state=0) for rho in (0.8, 0.0))
    >>> model = RobustClassifier(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> bool(worst_group_scorer(model, test.Z, test.y, concept=test.concept) > 0.6)
    True
    """

    statistic: Literal["worst", "group_average"] = "worst"
    missing_concept: Any = None
    empty: Empty = "error"
    concept_classes: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.statistic not in ("worst", "group_average"):
            raise InputError(f"statistic is 'worst' or 'group_average'; got {self.statistic!r}.")

    def __call__(self, estimator: Any, X: Array, y: Array, *, concept: Array | None = None) -> float:
        """The score of a fitted estimator on these rows."""
        if concept is None:
            raise InputError(
                "A score by group needs the concept of every row, and got none. Call "
                "sklearn.set_config(enable_metadata_routing=True), and pass concept= to `fit` of the search, or "
                "params={'concept': concept} to cross_validate."
            )
        found = group_accuracy(
            y,
            estimator.predict(X),
            concept,
            missing_concept=self.missing_concept,
            empty=self.empty,
            classes=getattr(estimator, "classes_", ()),
            concept_classes=self.concept_classes,
        )
        return float(getattr(found, self.statistic))

    def get_metadata_routing(self) -> MetadataRequest:
        """What scikit-learn passes on: `concept`, without a request by the user."""
        request = MetadataRequest(owner=type(self).__name__)
        request.score.add_request(param="concept", alias=True)
        return request


#: Accuracy of the worst group.
worst_group_scorer = GroupScorer("worst")
#: Mean of the accuracies of all groups.
group_average_scorer = GroupScorer("group_average")
