"""From the arguments of `fit` to binary problems with folds, for the removers that test directions (JSE, INLP).

Several concepts, and labels of more than two classes, become problems of one binary concept and one binary task.
In a problem every row gets a cell ``4·fold + 2·y + concept``. Fold 0 is never held out; fold k ≥ 1 is held out in
round k. A validation set is stacked under the training rows, all of it fold 1; a held-out share is fold 1;
cross-fitting is folds 1 to K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from unspur._arrays import renumbered
from unspur._data import LabelledData, decode_fit_arguments, require_complete, rows_on_host
from unspur._typing import BoolArray, FloatArray, IntArray
from unspur._validation import FIT_METADATA
from unspur.clusters import (
    distinct_row_indices,
    folds_by_cluster,
    has_continuous_columns,
    held_out_mask,
    require_disjoint_clusters,
    split_clusters,
    splits_from_cv,
)
from unspur.criteria import require_clusters, require_testable
from unspur.exceptions import ClusterWarning, InputError, LabelError, UsedRowsWarning, warn
from unspur.labels import ClassLabel
from unspur.removers.base import Remover
from unspur.removers.joint import SearchResult
from unspur.removers.seen_rows import SeenRows, hash_finite_rows
from unspur.rows import RowLabels, RowSource, StackedRows, rows_of
from unspur.solvers.coordinates import MAX_NATIVE_CONDITION, Geometry, Metric, RowSpan
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.statistics import Balance, CellCounts, group_names
from unspur.subspace import AffineMap, Subspace
from unspur.trace import Trace, Traces

#: What else can be done where most rows have no concept.
_INFER = (
    " In most rows the concept is missing: the head GroupWeighted(unknown='infer') learns from them as well, without a "
    "removal (docs/guides/missing-labels.md)."
)


@dataclass(frozen=True, slots=True)
class FitData:
    """Training and validation rows of a fit, and what certificates need to recognise them."""

    train: LabelledData
    validation: LabelledData | None
    seen_rows: SeenRows
    validation_seen_rows: SeenRows | None = None
    #: Number of validation rows that are training rows as well.
    n_reused_rows: int = 0

    @classmethod
    def read(cls, estimator: Any, train: dict[str, Any], validation: dict[str, Any], *, needs_y: bool) -> FitData:
        """Check and decode arguments of `fit`: X, y, concept, sample_weight and clusters of either set.

        If no clusters are passed, duplicate rows form clusters.
        """
        settings: Any = {"missing": estimator.missing_concept, "needs_y": needs_y, "check_finite": False}
        data = decode_fit_arguments(estimator, **train, **settings)
        hashes, seen = hash_finite_rows(estimator, data.X)
        seen = seen.select(data.contributes)
        if all(given is None for given in validation.values()):
            return cls(data.with_duplicate_clusters(hashes), None, seen)
        require_disjoint_clusters(train["clusters"], validation["clusters"], "val")
        require_complete(validation, ("X", "y", "concept") if needs_y else ("X", "concept"))
        if data.y is None:
            validation = {**validation, "y": None}
        held_out = decode_fit_arguments(estimator, **validation, like=data, **settings)
        hashes, tested = hash_finite_rows(estimator, held_out.X, "X of the validation rows")
        tested = tested.select(held_out.contributes)
        reused = 0
        if seen.hashes is not None and tested.hashes is not None:
            reused = int(np.isin(tested.hashes, seen.hashes).sum())
            if reused and not has_continuous_columns(rows_on_host(held_out.X, distinct_row_indices(hashes))):
                reused = 0
            held_out = held_out.with_duplicate_clusters(hashes)
        return cls(data, held_out, seen, tested, reused)

    def to_span_coordinates(self) -> tuple[FitData, RowSpan | None]:
        """The data in coordinates of the span of the training rows, and the span.

        Unchanged data and None if `RowSpan.of` has no span.
        """
        span, (X,) = RowSpan.of(self.train.X, live=[self.train.contributes])
        if span is None:
            return self, None
        validation = self.validation
        if validation is not None:
            validation = replace(validation, X=span.coordinates(validation.X))
        return replace(self, train=replace(self.train, X=X), validation=validation), span

    @property
    def concept_classes(self) -> tuple[Any, ...]:
        """Classes of the concept; of several, a tuple for each."""
        classes = tuple(label.classes for label in self.train.concepts)
        return classes[0] if len(classes) == 1 else classes

    def warn_about_reused_rows(self, reused: str) -> None:
        """Warn of held-out rows that are training rows as well, or copies of each other."""
        if reused:
            warn(f"{reused} Leave them out of one of the two.", UsedRowsWarning)
        tested_on = self.validation or self.train
        if tested_on.clusters_are_duplicates:
            code = tested_on.clusters
            assert code is not None
            copies, which = len(code) - int(code.max()) - 1, "validation" if tested_on.suffix else "training"
            warn(
                f"{copies:,} of {len(code):,} {which} rows are exact duplicates of others. Duplicates count as one "
                "cluster in the tests, and share a fold unless cv says otherwise. Drop them, or say with clusters "
                "which rows belong together.",
                ClusterWarning,
            )


@dataclass(frozen=True, slots=True)
class Problem:
    """Training and validation rows with one binary concept and one binary task.

    The title names the concept and class if there are several.
    """

    train: LabelledData
    validation: LabelledData | None
    title: str = ""


def binary_problems(data: FitData) -> list[tuple[ClassLabel, Problem]]:
    """Every concept, or class of it against the rest, as a problem with one binary concept."""
    held_out = [] if data.validation is None else [one for label in data.validation.concepts for one in label.binary()]
    labels = [one for label in data.train.concepts for one in label.binary()]
    found = []
    for k, label in enumerate(labels):
        train = data.train.with_labels(concept=label)
        validation = None if data.validation is None else data.validation.with_labels(concept=held_out[k])
        found.append((label, Problem(train, validation, label.full_name if len(labels) > 1 else "")))
    return found


def first_problem(data: FitData) -> Problem:
    """The first concept or class of it, with the first class of a task of more than two."""
    problem = binary_problems(data)[0][1]
    return _one_vs_rest(problem, 0) if problem.train.n_classes > 2 else problem


def _one_vs_rest(problem: Problem, k: int) -> Problem:
    """The problem with one class of the task against the rest."""
    label, validation = problem.train.main.binary()[k], problem.validation
    if validation is not None:
        validation = validation.with_labels(y=validation.main.binary()[k])
    title = f"{problem.title}: {label.full_name}" if problem.title else label.full_name
    return Problem(problem.train.with_labels(y=label), validation, title)


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Rows with folds, their cell counts, and the clusters of held-out rows (None: all are independent)."""

    rows: RowSource
    counts: CellCounts
    clusters: HeldOutClusters | None = None

    def geometry(self, balance: Balance, *, in_float64: bool = False) -> Geometry:
        """Centre and second moment of the rows that directions are estimated from."""
        weighting = self.counts.weighting(self.counts.estimated_on, balance)
        return Geometry.of_rows(self.rows, weighting, in_float64=in_float64)

    def metric(self, tau: float) -> Metric:
        """M(τ) of these rows; from float64 products where its inverse factor would magnify rounding."""
        metric = Metric.of(self.geometry("none"), tau)
        if metric.condition > MAX_NATIVE_CONDITION and self.rows.dtype.itemsize < 8:
            metric = Metric.of(self.geometry("none", in_float64=True), tau)
        return metric

    def sample(self, most: int) -> FoldedRows:
        """A random sample of at most `most` rows of each group; all rows if they are few or in clusters."""
        rows = self.rows if self.clusters is not None else self.rows.sample(most, np.random.default_rng(0))
        return self if rows is self.rows else FoldedRows(rows, CellCounts.of(rows, self.counts.keys, self.counts.names))


def reusable_cv(cv: Any) -> Any:
    """`cv` for repeated use: the splits of a generator become a list."""
    return list(cv) if isinstance(cv, Iterator) else cv


def _random_folds(
    cv: Real, rng: np.random.Generator, group: IntArray, present: BoolArray, clusters: IntArray | None
) -> IntArray:
    """Fold of each row, stratified by group: 1…cv in turn, or 1 for the held-out share `cv` and 0 for the rest.

    Rows of a cluster share a fold.
    """
    fold = np.zeros(len(group), dtype=np.intp)
    known = None if clusters is None else clusters[present]
    if not isinstance(cv, Integral):
        fold[present] = held_out_mask(group[present], float(cv), rng, known)
        return fold
    k = int(cv)
    if known is not None:
        fold[present] = 1 + folds_by_cluster(renumbered(known), group[present], np.full(k, 1.0 / k), rng)
        return fold
    for g in range(4):
        members = rng.permutation(np.flatnonzero(present & (group == g)))
        fold[members] = np.arange(len(members)) % k + 1
    return fold


def _folds_from_splits(cv: Any, group: IntArray, present: BoolArray, clusters: IntArray | None) -> IntArray:
    """Folds from a splitter, whose y is the group and whose groups are the clusters, or from (train, test) pairs.

    Directions are estimated from all rows outside the test set, so `train` must be those.
    """
    fold = np.zeros(len(group), dtype=np.intp)
    for k, (train, test) in enumerate(splits_from_cv(cv, group, clusters), start=1):
        fold[test] = k
        times = np.bincount(train, minlength=len(fold))[present & (fold != k)]
        if np.any(times != 1):
            left_out = int(np.sum(times == 0))
            what = f"{left_out} rows are neither in the training set nor in the test set of split {k}"
            if not left_out:
                what = f"{np.sum(times > 1)} rows are more than once in the training set of split {k}"
            raise InputError(
                f"cv: {what}, but directions are estimated from every row outside the test set, once. Leave rows "
                "out of X, or pass clusters= to keep rows that belong together on one side. For rows ordered in "
                "time, pass the later ones as validation rows (X_val, y_val, concept_val)."
            )
    return fold


def assign_folds(
    problem: Problem,
    cv: Any,
    rng: np.random.Generator,
    *,
    by_group: bool,
    smallest_group: int,
    needs_y: bool = True,
) -> FoldedRows:
    """Assign folds, and check that every group can be estimated and tested; with validation rows, `cv` is not used.

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
        _require_concept_differs_from_task(y.select(present), concept.select(present), problem.title)
    clusters = train.clusters
    if validation is None:
        group = 2 * y.codes + concept.codes
        fold = _folds(cv, rng, group, present, clusters, train.clusters_are_duplicates)
        labels = RowLabels.of(y.codes, concept.codes, train.weight, fold)
        rows: RowSource = rows_of(train.X, labels)
        share = isinstance(cv, Real) and not isinstance(cv, Integral)
        more = " cv 5 (which holds out all in turn)," if share else ""
        remedy = f"Pass more rows of that group,{more} or validation rows."
        remedy += _INFER if np.mean(concept.present) < 0.5 else ""
    else:
        main_label = validation.concept if validation.y is None else validation.y
        fold = np.ones(len(validation), dtype=np.intp)
        labels = RowLabels.of(main_label.codes, validation.concept.codes, validation.weight, fold)
        rows = StackedRows(
            rows_of(train.X, RowLabels.of(y.codes, concept.codes, train.weight)), rows_of(validation.X, labels)
        )
        remedy = "Pass more validation rows, or none and cv 5."
        clusters = validation.clusters
    main = "main" if train.y is None else y.name
    names = group_names(y.classes, concept.classes, main, concept.name)
    counts = CellCounts.of(rows, group_names(y.classes, concept.classes), names)
    require_testable(counts, by_group=by_group, smallest=smallest_group, remedy=remedy, about=problem.title)
    if clusters is None:
        return FoldedRows(rows, counts)
    held_out = HeldOutClusters.of(clusters, labels.cell, labels.weight, by_group=by_group)
    copies = train.clusters_are_duplicates if validation is None else validation.clusters_are_duplicates
    require_clusters(held_out, counts.names, smallest=smallest_group, remedy=remedy, copies=copies, about=problem.title)
    if validation is None and isinstance(cv, Integral):
        _warn_if_few_clusters(held_out, counts.names, int(cv))
    return FoldedRows(rows, counts, held_out)


def _folds(
    cv: Any,
    rng: np.random.Generator,
    group: IntArray,
    present: BoolArray,
    clusters: IntArray | None,
    copies: bool,
) -> IntArray:
    """Fold of each row; raises if given folds split a cluster, and warns if they split copies of a row."""
    if isinstance(cv, Real):
        return _random_folds(cv, rng, group, present, clusters)
    fold = _folds_from_splits(cv, group, present, None if copies else clusters)
    if clusters is None:
        return fold
    torn = split_clusters(clusters[present], fold[present])
    if len(torn) and copies:
        warn(
            f"cv puts duplicates of {len(torn):,} rows into different test sets: shared noise can make a useless "
            "direction pass the tests. Use an int, which keeps duplicates together.",
            ClusterWarning,
        )
    elif len(torn):
        raise InputError(
            f"cv: {len(torn)} clusters have rows in more than one test set, so that directions would be tested on "
            "clusters that they were estimated from. Use an int, or a splitter that keeps clusters together, such as "
            "GroupKFold()."
        )
    return fold


def _warn_if_few_clusters(clusters: HeldOutClusters, names: tuple[str, ...], folds: int) -> None:
    """Warn of groups that lie in fewer clusters than there are folds, so that some folds have none of their rows."""
    number = clusters.by_group((clusters.shares(clusters.weight) > 0)[None].astype(np.float64))[0]
    small = [f"({name}) lies in {count:.0f}" for name, count in zip(names, number, strict=False) if count < folds]
    if clusters.n_groups > 1 and small:
        warn(
            f"Group {', '.join(small)} clusters, fewer than the {folds} folds: some folds have no rows of this "
            "group, and its results rest on only that many independent clusters.",
            ClusterWarning,
        )


def _require_concept_differs_from_task(y: ClassLabel, concept: ClassLabel, title: str) -> None:
    same = y.codes == concept.codes
    if same.all() or not same.any():
        how = "equal to" if same.all() else "the same label, under other class names, as"
        about = f"{title}: " if title else ""
        raise LabelError(
            f"{about}{concept.name} is {how} {y.name} in all {len(same)} rows: removing it would remove the task, and "
            "no data could tell the two apart. Rows where they disagree are needed."
        )


@dataclass(frozen=True, slots=True)
class BinaryFit:
    """Result for one binary concept: subspaces, trace, and centre of the rows, shape (d,)."""

    found: SearchResult
    trace: Trace
    centre: FloatArray


#: Fits a problem orthogonally to a subspace; with True, finds main-task directions only.
FitBinary: TypeAlias = Callable[[Problem, Subspace, bool], BinaryFit]


@dataclass(frozen=True, slots=True)
class ConceptFits:
    """Result for all concepts: the span of the spurious directions, the main-task subspace, and one trace for each.

    The main-task subspace is that of the last fit, which is orthogonal to all earlier spurious directions.
    """

    spurious: Subspace
    main: Subspace
    traces: tuple[Trace, ...]
    centre: FloatArray

    @property
    def trace(self) -> Trace | Traces:
        """All traces, by name if there are several."""
        return self.traces[0] if len(self.traces) == 1 else Traces.of(self.traces)


def fit_each_concept(data: FitData, fit_binary: FitBinary) -> ConceptFits:
    """Fit one concept, or class against the rest, after the other, each orthogonal to the earlier ones."""
    spurious = main = Subspace.empty(data.train.X.shape[1])
    traces: list[Trace] = []
    centre: FloatArray | None = None
    for label, problem in binary_problems(data):
        if problem.train.y is not None and len(problem.train.y.classes) > 2:
            found, of_concept, row_centre = _fit_each_class(problem, spurious, fit_binary)
        else:
            fitted = fit_binary(problem, spurious, False)
            found, of_concept, row_centre = fitted.found, (fitted.trace,), fitted.centre
        main_name = "y" if problem.train.y is None else problem.train.y.name
        about: Any = {
            "concept": label.name,
            "concept_class": label.of_class,
            "main": main_name,
            "n_reused_rows": data.n_reused_rows,
        }
        traces += [replace(trace, **about) for trace in of_concept]
        spurious, main = spurious.beside(found.spurious), found.main
        centre = row_centre if centre is None else centre
    assert centre is not None
    return ConceptFits(spurious, main, tuple(traces), centre)


def _fit_each_class(
    problem: Problem, excluded: Subspace, fit_binary: FitBinary
) -> tuple[SearchResult, tuple[Trace, ...], FloatArray]:
    """A main task of more than two classes: each class against the rest, without removing another class's directions.

    First the main-task directions of every class are found (`fit_binary` with True), then the spurious ones, class by
    class, orthogonal to the main-task directions of the *other* classes. Every class has a trace, whose round 0 is the
    first step.
    """
    labels = problem.train.main.binary()
    parts = [_one_vs_rest(problem, k) for k in range(len(labels))]
    first = [fit_binary(part, excluded, True).found for part in parts]
    traces: list[Trace] = []
    spurious, removed = excluded, Subspace.empty(excluded.ambient)
    centre: FloatArray | None = None
    for k, part in enumerate(parts):
        forbidden = spurious
        for other in (*first[:k], *first[k + 1 :]):
            forbidden = forbidden.union(other.main)
        fitted = fit_binary(part, forbidden, False)
        found = fitted.found
        centre = fitted.centre if centre is None else centre
        removed, spurious = removed.beside(found.spurious), spurious.beside(found.spurious)
        trace = replace(
            fitted.trace,
            steps=(*(replace(step, outer=0) for step in first[k].steps), *found.steps),
            stopped=found.stopped if first[k].complete else f"in round 0 {first[k].stopped}; then {found.stopped}",
            complete=found.complete and first[k].complete,
            task=None,  # unknown for one class: directions of the others were excluded, and stay
            main_class=labels[k].of_class,
        )
        traces.append(trace)
    main = first[0].main
    for other in first[1:]:
        main = main.union(other.main)
    main = Subspace.spanned_by(removed.reject(main.basis)) if main.dim else main
    stopped = "; ".join(f"{label.full_name}: {trace.stopped}" for label, trace in zip(labels, traces, strict=True))
    assert centre is not None
    steps = tuple(step for trace in traces for step in trace)
    return SearchResult(removed, main, steps, stopped, all(trace.complete for trace in traces)), tuple(traces), centre


class DirectionRemover(Remover):
    """Base class of the methods that test directions on held-out rows, :class:`JSE` and :class:`INLP`."""

    __metadata_request__fit: ClassVar[dict[str, bool]] = FIT_METADATA
    trace_type = Trace
    trace_: Trace | Traces
    n_iter_: int

    def _set_fitted(
        self,
        data: FitData,
        span: RowSpan | None,
        trace: Trace | Traces,
        removal: AffineMap,
        spurious: Subspace,
        main: Subspace,
    ) -> None:
        """Set the attributes of a fit, and warn of reused rows; with a `span`, results are in its coordinates."""
        if span is not None:
            removal, spurious, main = span.lift_map(removal), span.lift_subspace(spurious), span.lift_subspace(main)
        self._set_removal(removal, spurious, main)
        self.trace_ = trace
        self.classes_ = () if data.train.y is None else data.train.y.classes
        self.concept_classes_ = data.concept_classes
        self.n_iter_ = self.trace_.most_evaluations
        self._store_row_hashes(data.seen_rows, data.validation_seen_rows)
        data.warn_about_reused_rows(self.reused_rows_warning)
