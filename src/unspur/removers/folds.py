"""Folds of the rows for one binary concept and one binary main label.

Every row gets a cell ``4·fold + 2·y + concept``. Fold 0 is never held out; fold k ≥ 1 is held out in round k. A
validation set is stacked under the training rows, all of it fold 1; a held-out share is fold 1; cross-fitting is folds
1 to K.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from unspur._data import LabelledData
from unspur._typing import BoolArray, IntArray
from unspur.clusters import clusters_in_two, folds_by_cluster, given_splits, held_out
from unspur.criteria import require_clusters, require_testable
from unspur.exceptions import ClusterWarning, InputError, LabelError, Message, Parameter
from unspur.labels import ClassLabel
from unspur.rows import Columns, RowSource, StackedRows, rows_of
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.statistics import CellCounts, group_names

#: Parameters that say which rows are held out.
_HOLD_OUT = {"cv": Parameter("cv", 5), "X_val": Parameter("X_val")}
#: What else can be done where most rows have no concept.
_INFER = (
    " In most rows the concept is missing: in Python, the head GroupWeighted(unknown='infer') learns from them as "
    "well, without a removal (docs/guides/missing-labels.md)."
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Training and validation rows with one binary concept and one binary main label.

    The title names the concept and class if there are several.
    """

    train: LabelledData
    validation: LabelledData | None
    title: str = ""


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Rows with folds, their cell counts, and the clusters of held-out rows (None: all are independent)."""

    rows: RowSource
    counts: CellCounts
    clusters: HeldOutClusters | None = None

    def sample(self, most: int, rng: np.random.Generator) -> FoldedRows:
        """A random sample of at most `most` rows of each group; all rows if they are few or in clusters."""
        rows = self.rows if self.clusters is not None else self.rows.sample(most, rng)
        return self if rows is self.rows else FoldedRows(rows, CellCounts.of(rows, self.counts.keys, self.counts.names))


@dataclass(frozen=True, slots=True)
class HeldOutSplitter:
    """Assigns folds without a validation set: `cv` folds, those of a splitter or a list, or one held-out share."""

    cv: Any
    rng: np.random.Generator

    @property
    def share(self) -> float | None:
        """The share of each group that is held out once; None for folds."""
        return float(self.cv) if isinstance(self.cv, Real) and not isinstance(self.cv, Integral) else None

    @property
    def given(self) -> bool:
        """Whether the folds come from a splitter or a list."""
        return not isinstance(self.cv, Real)

    @staticmethod
    def reusable_cv(cv: Any) -> Any:
        """`cv` for repeated use: the splits of a generator become a list."""
        if cv is None:
            raise InputError(
                "cv=None held out one fifth of each group, and is not taken any more. Pass cv=0.2 for that, or cv=5 "
                "for five folds."
            )
        return cv if isinstance(cv, Real) or hasattr(cv, "split") else list(cv)

    def folds(self, group: IntArray, present: BoolArray, clusters: IntArray | None = None) -> IntArray:
        """Fold of each row, stratified by group: 1…cv in turn, or 1 for the held-out share and 0 for the rest.

        Rows of a cluster share a fold, unless a splitter or a list puts them into several.
        """
        fold = np.zeros(len(group), dtype=np.intp)
        if self.given:
            return self._given(fold, group, present, clusters)
        known = None if clusters is None else clusters[present]
        if self.share is not None:
            fold[present] = held_out(group[present], self.share, self.rng, known)
            return fold
        k = int(self.cv)
        if known is not None:
            code = np.unique(known, return_inverse=True)[1].reshape(-1)
            fold[present] = 1 + folds_by_cluster(code, group[present], np.full(k, 1.0 / k), self.rng)
            return fold
        for g in range(4):
            members = self.rng.permutation(np.flatnonzero(present & (group == g)))
            fold[members] = np.arange(len(members)) % k + 1
        return fold

    def _given(self, fold: IntArray, group: IntArray, present: BoolArray, clusters: IntArray | None) -> IntArray:
        """Folds from a splitter, whose y is the group and whose groups are the clusters, or from (train, test) pairs.

        Directions are estimated from all rows outside the test set, so `train` must be those.
        """
        for k, (train, test) in enumerate(given_splits(self.cv, group, clusters), start=1):
            if np.any(fold[test]):
                raise InputError("cv: a row is in two test sets; each row can be held out once.")
            fold[test] = k
            times = np.bincount(train, minlength=len(fold))[present & (fold != k)]
            if np.any(times != 1):
                left_out = int(np.sum(times == 0))
                what = f"{left_out} rows are neither in the training set nor in the test set of split {k}"
                if not left_out:
                    what = f"{np.sum(times > 1)} rows are more than once in the training set of split {k}"
                raise InputError(
                    f"cv: {what}, but directions are estimated from every row outside the test set, once. Leave rows "
                    "out of X, or pass clusters= to keep rows that belong together on one side. Of rows in order of "
                    "time, pass the later ones as a validation set (X_val, y_val, concept_val)."
                )
        return fold


def assign_folds(
    problem: Problem, splitting: HeldOutSplitter, *, by_group: bool, smallest_group: int, needs_y: bool = True
) -> FoldedRows:
    """Assign folds, and check that every group can be estimated and tested.

    Without y the concept takes its place, so that every row has a group.
    """
    train, validation = problem.train, problem.validation
    if train.X.shape[1] < 2:
        raise InputError("X has 1 feature(s); two orthogonal directions need at least 2.")
    concept, y = train.concept, train.y
    if y is None:
        y = concept
    present = train.weight > 0
    if needs_y:
        _require_different(y.select(present), concept.select(present), problem.title)
    clusters = train.clusters
    if validation is None:
        group = 2 * y.codes + concept.codes
        fold = _folds(splitting, group, present, clusters, train.clusters_are_duplicates)
        columns = Columns.of(y.codes, concept.codes, train.weight, fold)
        rows: RowSource = rows_of(train.X, columns)
        more = "" if splitting.share is None else " a larger share to hold out ({cv} holds out all in turn),"
        mostly_missing = _INFER if np.mean(concept.present) < 0.5 else ""
        remedy = Message(
            "Pass more rows of that group," + more + " or a validation set with {X_val}." + mostly_missing, _HOLD_OUT
        )
    else:
        main_label = validation.concept if validation.y is None else validation.y
        fold = np.ones(len(validation), dtype=np.intp)
        columns = Columns.of(main_label.codes, validation.concept.codes, validation.weight, fold)
        rows = StackedRows(
            rows_of(train.X, Columns.of(y.codes, concept.codes, train.weight)), rows_of(validation.X, columns)
        )
        remedy = Message("Pass more rows with {X_val}, or none and {cv}.", _HOLD_OUT)
        clusters = validation.clusters
    main = "main" if train.y is None else y.name
    names = group_names(y.classes, concept.classes, main, concept.name)
    counts = CellCounts.of(rows, group_names(y.classes, concept.classes), names)
    require_testable(counts, by_group=by_group, smallest=smallest_group, remedy=remedy, about=problem.title)
    if clusters is None:
        return FoldedRows(rows, counts)
    held_out = HeldOutClusters.of(clusters, columns.cell, columns.weight, by_group=by_group)
    copies = train.clusters_are_duplicates if validation is None else validation.clusters_are_duplicates
    require_clusters(held_out, counts.names, smallest=smallest_group, remedy=remedy, copies=copies, about=problem.title)
    if validation is None and isinstance(splitting.cv, Integral):
        _warn_of_few(held_out, counts.names, int(splitting.cv))
    return FoldedRows(rows, counts, held_out)


def _folds(
    splitting: HeldOutSplitter, group: IntArray, present: BoolArray, clusters: IntArray | None, copies: bool
) -> IntArray:
    """Fold of each row; raises if given folds split a cluster, and warns if they split copies of a row."""
    given = splitting.given
    fold = splitting.folds(group, present, None if given and copies else clusters)
    if clusters is None or not given:
        return fold
    torn = clusters_in_two(clusters[present], fold[present])
    if len(torn) and copies:
        warnings.warn(
            f"cv puts copies of {len(torn):,} rows into different test sets: noise that they share looks like a "
            "finding. Use an int, which keeps copies together.",
            ClusterWarning,
            stacklevel=2,
        )
    elif len(torn):
        raise InputError(
            f"cv: {len(torn)} clusters have rows in more than one test set, so that directions would be tested on "
            "clusters that they were estimated from. Use an int, or a splitter that keeps clusters together, such as "
            "GroupKFold()."
        )
    return fold


def _warn_of_few(clusters: HeldOutClusters, names: tuple[str, ...], folds: int) -> None:
    """Warn of groups that lie in fewer clusters than there are folds, so that some folds have none of their rows."""
    number = clusters.by_group((clusters.shares(clusters.weight) > 0)[None].astype(np.float64))[0]
    small = [f"({name}) lies in {count:.0f}" for name, count in zip(names, number, strict=False) if count < folds]
    if clusters.n_groups > 1 and small:
        warnings.warn(
            f"Group {', '.join(small)} clusters, fewer than the {folds} folds: some folds have none of its rows, and "
            "what is said about it rests on so many independent pieces.",
            ClusterWarning,
            stacklevel=2,
        )


def _require_different(y: ClassLabel, concept: ClassLabel, title: str) -> None:
    same = y.codes == concept.codes
    if same.all() or not same.any():
        raise LabelError(
            "{about}{label} is {how} {main} in all {rows} rows: removing it would remove the task, and no data could "
            "tell the two apart. Rows where they disagree are needed.",
            about=title and f"{title}: ",
            label=concept.name,
            how="equal to" if same.all() else "the exact opposite of",
            main=y.name,
            rows=len(same),
        )
