"""Rows with their labels, decoded once per call and passed down from there.

::

    X, y, concept, sample_weight, clusters  ──decode_fit_arguments──▶  LabelledData  ◀──decode_rows──  (X, y, concept)
                                                                             │ .with_labels(y, concept): other labels
                                                                             ▼
                                              the same rows with one binary concept and one binary task

Conventions: labels are codes (n,) with the values behind them and a name (`ClassLabel`), and a label that is decoded
may be passed wherever a column of values may. A *group* is a combination of main class and concept classes, numbered
main class by main class. A *cluster* is a set of rows that are not independent of each other. In an estimator, a row
that does not count (its concept is missing, or the user gave it no weight) has weight zero and stays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from unspur._arrays import is_tensor, renumbered, rows_at, to_numpy
from unspur._text import brief
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur._validation import check_rows, checked_weights, require_finite, require_same_columns
from unspur.clusters import (
    cluster_codes,
    cluster_labels,
    distinct_row_indices,
    duplicate_clusters,
    folds_by_cluster,
    has_continuous_columns,
    held_out_mask,
)
from unspur.exceptions import InputError, LabelError
from unspur.labels import (
    ClassLabel,
    class_label,
    columns_in_order,
    joint_label,
    label_columns,
    named_concepts,
    require_no_missing,
)
from unspur.rows import (
    RowLabels,
    RowSource,
    StackedRows,
    Weighting,
    backend_of,
    persisted,
    rows_of,
    to_host,
)
from unspur.solvers.coordinates import Geometry
from unspur.solvers.statistics import Moments
from unspur.subspace import AffineMap

#: Share of each group that becomes test rows, where there are none.
TEST_SHARE = 0.3


@dataclass(frozen=True)
class LabelledData:
    """Rows with decoded labels.

    Attributes
    ----------
    X : rows of shape (n, d), on any backend.
    y : task, or None.
    concepts : one label for each concept; empty if none is needed.
    weight : sample weights, shape (n,); zero for rows that do not count.
    clusters : cluster of each row, shape (n,), as a code in estimators; None if rows are independent.
    clusters_are_duplicates : whether the clusters are duplicate rows found here, rather than given by the user.
    suffix : end of the user's argument names, "_val" for a validation set.
    weight_unit : sample weight that was scaled to one.
    inferred : probabilities (n, m) of the m classes of `concept`, used where it is not known; None if not inferred.
    expected_counts : expected number of rows in each group, shape (n_classes, n_concepts), if the weights give groups
        equal totals already (`with_inferred_groups`); else None.
    removal : map that is applied before a head and folded into its weights, or None.
    unweighted : the rows as they were, if a method has changed their weights; a penalty's metric has their covariance.
    stacked_sets : the data sets that were stacked (`stacked`), each on its own backend. X then has the rows of the
        first only, so rows are read by `source`, and cannot be selected.
    """

    X: Array
    y: ClassLabel | None
    concepts: tuple[ClassLabel, ...]
    weight: FloatArray
    clusters: Array | None = None
    clusters_are_duplicates: bool = False
    suffix: str = ""
    weight_unit: float = 1.0
    inferred: FloatArray | None = None
    expected_counts: FloatArray | None = None
    removal: AffineMap | None = None
    unweighted: LabelledData | None = None
    stacked_sets: tuple[LabelledData, ...] = ()
    _moments: dict[bool, Moments] = field(default_factory=dict, init=False, repr=False, compare=False)
    _geometries: dict[tuple[bool, float], Geometry] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def concept(self) -> ClassLabel:
        """The concepts as one label whose classes are their combinations; a single class if there are none."""
        if not self.concepts:
            return ClassLabel(np.zeros(len(self), dtype=np.intp), np.ones(len(self), dtype=bool), ("",))
        return joint_label(self.concepts)

    @property
    def main(self) -> ClassLabel:
        """The task; it must not be None."""
        assert self.y is not None
        return self.y

    @property
    def n_classes_per_label(self) -> tuple[int, int]:
        """Numbers of classes of the task and of the concept."""
        return len(self.main.classes), len(self.concept.classes)

    @property
    def n_classes(self) -> int:
        """Number of classes of the task."""
        return len(self.main.classes)

    @property
    def contributes(self) -> BoolArray:
        """Whether a row counts for anything, shape (n,): it has weight, and a concept of it is known or inferred."""
        known = np.full(len(self), not self.concepts or self.inferred is not None)
        for label in self.concepts:
            known |= label.present
        return np.asarray((self.weight > 0) & known)

    @property
    def n_groups(self) -> int:
        """Number of groups, empty ones included."""
        return math.prod(self.n_classes_per_label)

    @property
    def concept_names(self) -> tuple[str, ...]:
        """Names of the concepts."""
        return tuple(label.name for label in self.concepts)

    @property
    def concept_known(self) -> BoolArray:
        """Whether all concepts of a row are known, shape (n,)."""
        return self.concept.present

    @cached_property
    def group(self) -> IntArray:
        """Group of each row, shape (n,); -1 if a concept is unknown."""
        return np.where(self.concept_known, self._group_code, -1)

    @cached_property
    def _group_code(self) -> IntArray:
        """Group of each row, shape (n,); arbitrary for rows whose concept is unknown."""
        return np.asarray(self.n_classes_per_label[1] * self.main.codes + self.concept.codes)

    @cached_property
    def _group_weight(self) -> FloatArray:
        """Weight of each row in its group, shape (n,); zero for rows whose concept is unknown, which have none."""
        return np.where(self.concept_known, self.weight, 0.0)

    @property
    def counts(self) -> IntArray:
        """Number of rows in each group, shape (G,): those of known concept and positive weight."""
        return np.bincount(self._group_code[self._group_weight > 0], minlength=self.n_groups)

    def group_name(self, number: int) -> str:
        """Name of a group: its classes."""
        main, concept = divmod(number, self.n_classes_per_label[1])
        if not self.concepts:
            return str(self.main.classes[main])
        classes = self.concept.classes[concept]
        return ", ".join(map(str, (self.main.classes[main], *(classes if len(self.concepts) > 1 else (classes,)))))

    def select(self, rows: Array) -> Self:
        """Some of the rows, by mask or index."""
        assert not self.stacked_sets
        return replace(
            self,
            X=self.X[rows],
            y=None if self.y is None else self.y.select(rows),
            concepts=tuple(label.select(rows) for label in self.concepts),
            weight=self.weight[rows],
            clusters=None if self.clusters is None else self.clusters[rows],
            inferred=None if self.inferred is None else self.inferred[rows],
            unweighted=None if self.unweighted is None else self.unweighted.select(rows),
        )

    def with_known_concept(self) -> Self:
        """The rows whose concepts are known."""
        return self if self.concept_known.all() else self.select(self.concept_known)

    def arguments(self, suffix: str = "", *, clusters: bool = True, duplicate_clusters: bool = True) -> dict[str, Any]:
        """Keyword arguments of `fit`, weights and clusters included; `suffix` is "_val" for held-out rows.

        Without `duplicate_clusters`, clusters of duplicate rows are left out, for a method that finds them itself and
        says so. In transformed rows it may not: copies there differ in their last bits.
        """
        given = {"X": self.X, "y": self.y, "concept": {label.name: label for label in self.concepts}}
        if not np.all(self.weight == 1.0):
            given["sample_weight"] = self.weight
        if clusters and self.clusters is not None and (duplicate_clusters or not self.clusters_are_duplicates):
            given["clusters"] = self.clusters
        return {f"{name}{suffix}": value for name, value in given.items()}

    @property
    def group_weights(self) -> FloatArray:
        """Total weight of each group, shape (G,)."""
        total = np.bincount(self._group_code, weights=self._group_weight, minlength=self.n_groups)
        return np.asarray(total, dtype=np.float64)

    @property
    def effective_group_sizes(self) -> FloatArray:
        """Effective size (Σw)² / Σw² of each group, shape (G,): the number of rows if all weigh the same."""
        squares = np.bincount(self._group_code, weights=self._group_weight**2, minlength=self.n_groups)
        return np.asarray(self.group_weights**2 / np.where(squares > 0, squares, 1.0))

    def weighting(self, *, balanced: bool) -> Weighting:
        """Row weights that sum to one; `balanced` gives every non-empty group the same total."""
        totals = self.group_weights
        if not balanced or self.expected_counts is not None:
            return Weighting(np.full(len(totals), 1.0 / totals.sum()))
        present = totals > 0
        return Weighting(np.where(present, 1.0, 0.0) / (present.sum() * np.where(present, totals, 1.0)))

    def row_weights(self, *, balanced: bool) -> FloatArray:
        """The weight of each row under `weighting`, shape (n,)."""
        return np.asarray(self._group_weight * self.weighting(balanced=balanced).factor[self._group_code])

    def geometry(self, source: RowSource, *, balanced: bool, metric: float = 0.0) -> Geometry:
        """Mean and principal axes of the weighted rows, once for all penalties that are in this `metric`."""
        if (balanced, metric) not in self._geometries:
            moments = self._moments_of(source, balanced=balanced, metric=metric)
            if metric:
                rows, at = (self, source) if self.unweighted is None else (self.unweighted, self.unweighted.source())
                total = rows._moments_of(at, balanced=False).second
                geometry = self.geometry(source, balanced=balanced).in_metric(total, metric)
            else:
                geometry = Geometry.of(moments, source.dtype.itemsize)
                if self.removal is not None:
                    geometry = geometry.transformed(self.removal.matrix(), source.dtype.itemsize)
            self._geometries[balanced, metric] = geometry
        return self._geometries[balanced, metric]

    def _moments_of(self, source: RowSource, *, balanced: bool, metric: float = 0.0) -> Moments:
        """Mean and second moment of the rows before a removal; for a metric also those of rows of equal weight."""
        if balanced not in self._moments:
            if metric and balanced and self.unweighted is None and not self._moments:
                weightings = self.weighting(balanced=True), self.weighting(balanced=False)
                self._moments[True], self._moments[False] = Moments.of_both(source, weightings)
            else:
                self._moments[balanced] = Moments.of(source, self.weighting(balanced=balanced))
        return self._moments[balanced]

    def with_removal(self, removal: AffineMap) -> Self:
        """The same rows, to be fitted after a removal; what is known of their moments is kept."""
        rows = replace(self, removal=removal)
        rows._moments.update(self._moments)
        return rows

    def column_variances(self, *, balanced: bool, metric: float = 0.0) -> FloatArray:
        """Variance of each column, shape (d,), with rows or groups of equal weight; `metric` is that of later fits."""
        wide = backend_of(self.X) in ("memory", "torch") and len(self) <= self.X.shape[1]
        if balanced in self._moments or not wide:
            source = self.source()
            self._moments_of(source, balanced=balanced, metric=metric)
            return np.diag(self.geometry(source, balanced=balanced).second)
        X, weight = np.asarray(to_numpy(self.X), dtype=np.float64), self.row_weights(balanced=balanced)
        return np.asarray(weight @ (X - weight @ X) ** 2)

    def source(self) -> RowSource:
        """The rows as a row source whose cells are the groups."""
        if self.stacked_sets:
            return StackedRows(*(one.source() for one in self.stacked_sets))
        return self._source_with(self._group_code)

    def folded_source(self, fold: IntArray, n_folds: int) -> RowSource:
        """The rows as a row source whose cells are the groups within each fold (n,); negative folds come last."""
        return self._source_with(self._fold_cell(fold, n_folds))

    def _fold_cell(self, fold: IntArray, n_folds: int) -> IntArray:
        return np.asarray(np.where(fold >= 0, fold, n_folds) * self.n_groups + self._group_code)

    def weightings_without_folds(self, fold: IntArray, n_folds: int, *, balanced: bool) -> list[Weighting]:
        """For each fold, weights of the rows of a `folded_source` that sum to one without it.

        Rows of a negative fold do not count. `balanced` gives every non-empty group the same total.
        """
        balanced = balanced and self.expected_counts is None
        shape, cell = (n_folds + 1, self.n_groups), self._fold_cell(fold, n_folds)
        totals = np.bincount(cell, weights=self._group_weight, minlength=math.prod(shape)).reshape(shape)[:-1]
        weightings = []
        for k in range(n_folds):
            rest = np.delete(totals, k, axis=0).sum(axis=0)
            present = rest > 0
            factor = np.zeros(shape)
            factor[:-1] = present / (present.sum() * np.where(present, rest, 1.0)) if balanced else 1.0 / rest.sum()
            factor[k] = 0.0
            weightings.append(Weighting(factor.ravel()))
        return weightings

    def _source_with(self, cell: IntArray) -> RowSource:
        """The rows as a row source with these cells."""
        live = np.flatnonzero(self._group_weight > 0)
        # Copied only when less than half of them count: a few subsampled rows are cheaper to copy than all to visit.
        copied = backend_of(self.X) in ("memory", "torch") and 2 * len(live) < len(self)
        rows: Any = live if copied else slice(None)
        targets = np.stack([self.concept.codes[rows], self.main.codes[rows]]).astype(np.float64)
        z = rows_at(self.X, rows) if copied else self.X
        return rows_of(z, RowLabels(targets, cell[rows], self._group_weight[rows], 0))

    def reweighted(self, weight: FloatArray) -> Self:
        """The same rows with other weights."""
        return replace(self, weight=weight)

    def with_weight_on(self, rows: IntArray) -> Self:
        """The same rows, with weight zero for all but these."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[rows] = True
        return self.reweighted(np.where(chosen, self.weight, 0.0))

    def folds(self, number: int, rng: np.random.Generator) -> IntArray:
        """Fold of each row, shape (n,), stratified by group; −1 for rows that do not count.

        Clusters are kept together.
        """
        live = np.flatnonzero((self.weight > 0) & (self.group >= 0))
        fold = np.full(len(self), -1)
        if self.clusters is None:
            order = rng.permutation(live)
            order = order[np.argsort(self.group[order], kind="stable")]
            fold[order] = np.arange(len(order)) % number
        else:
            code = renumbered(self.clusters[live])
            fold[live] = folds_by_cluster(code, self.group[live], np.full(number, 1.0 / number), rng)
        return fold

    def without_concept(self) -> Self:
        """The same rows in one group for each class of the task."""
        stacked_sets = tuple(one.without_concept() for one in self.stacked_sets)
        rows = replace(self, concepts=(), inferred=None, stacked_sets=stacked_sets)
        if False in self._moments and self.inferred is None:  # else they are of rows whose concept is known
            rows._moments[False] = self._moments[False]
        return rows

    def with_inferred_groups(self) -> Self:
        """The same rows, with weights under which all groups, known and inferred, have the same total.

        ::

            ω_i = weight_i Σ_s P(s | x_i, y_i) / N(y_i, s),      N(y, s) = Σ_i weight_i P(s | x_i, y_i)  over rows of y

        P is 0 or 1 where the concept is known. The loss of a head does not depend on the concept, so this is its
        expected mean over groups. The result has a group for each class of the task.
        """
        if self.inferred is None:
            return self
        known = self.concept_known[:, None]
        probability = np.where(known, np.eye(self.inferred.shape[1])[self.concept.codes], self.inferred)
        totals, counts = np.zeros(self.n_classes_per_label), np.zeros(self.n_classes_per_label)
        np.add.at(totals, self.main.codes, self.weight[:, None] * probability)
        np.add.at(counts, self.main.codes, (self.weight > 0)[:, None] * probability)
        share = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        weight = self.weight * np.sum(probability * share[self.main.codes], axis=1)
        ends = np.cumsum([len(one) for one in self.stacked_sets])[:-1]
        parts = zip(self.stacked_sets, np.split(weight, ends), strict=True) if self.stacked_sets else ()
        rows = self.without_concept()
        rows = replace(rows, weight=weight, expected_counts=counts, unweighted=rows)
        return replace(rows, stacked_sets=tuple(one.without_concept().reweighted(own) for one, own in parts))

    def fold_subset(self, rows: BoolArray) -> Self:
        """Like `with_weight_on`, with the geometry, and so the penalty units, of all rows.

        The result has all rows; rows of the other part have weight zero.
        """
        part = self.with_weight_on(np.flatnonzero(rows))
        part._moments.update(self._moments)
        part._geometries.update(self._geometries)
        return part

    def stacked(self, other: LabelledData) -> Self:
        """These rows with others, decoded with the same classes, appended."""

        def both(one: ClassLabel, two: ClassLabel) -> ClassLabel:
            codes, present = ([getattr(label, name) for label in (one, two)] for name in ("codes", "present"))
            return replace(one, codes=np.concatenate(codes), present=np.concatenate(present))

        clusters = None
        if self.clusters is not None or other.clusters is not None:
            clusters = np.concatenate(_common_cluster_codes(self, other))
        inferred = None
        if self.inferred is not None:
            nothing = np.zeros((len(other), self.inferred.shape[1]))
            inferred = np.concatenate([self.inferred, nothing if other.inferred is None else other.inferred])
        return replace(
            self,
            y=both(self.main, other.main),
            concepts=tuple(both(*pair) for pair in zip(self.concepts, other.concepts, strict=True)),
            weight=np.concatenate([self.weight, other.weight]),
            clusters=clusters,
            inferred=inferred,
            stacked_sets=(self, other),
        )

    def with_labels(self, y: ClassLabel | None = None, concept: ClassLabel | None = None) -> Self:
        """The same rows with other labels; rows whose concept is missing do not count."""
        data = replace(self, y=y or self.y, concepts=self.concepts if concept is None else (concept,))
        data = data.reweighted(np.where(data.concept.present, data.weight, 0.0))
        if not data.weight.any():
            which = "None of the validation rows" if self.suffix else "No row"
            raise LabelError(f"{which} has both a {data.concept.name} and a positive weight.")
        return data

    def held_out_mask(self, share: float, rng: np.random.Generator) -> BoolArray:
        """Mask of a random share of each group, shape (n,), in whole clusters; see `clusters.held_out_mask`."""
        return held_out_mask(np.where(self.weight > 0, self.group, -1), share, rng, self.clusters)

    def split(self, share: float, rng: np.random.Generator) -> tuple[Self, Self]:
        """Training rows and held-out rows, `share` of every group; groups of two or more rows are in both.

        Both results have all rows; rows of the other part have weight zero. Clusters are held out as a whole, so their
        share is approximate.
        """
        held, live = self.held_out_mask(share, rng), self._group_weight > 0
        kept, aside = np.flatnonzero(live & ~held), np.flatnonzero(live & held)
        if len(kept) and len(aside):
            return self.with_weight_on(kept), self.with_weight_on(aside)
        if self.clusters is None:
            raise InputError("No group has two rows, so none can be held out. Pass validation rows.")
        raise InputError(
            f"The rows lie in {len(np.unique(self.clusters[live]))} clusters, which are held out as a whole, so there "
            "are not enough clusters for a training and a held-out set. Pass rows of more clusters, or validation rows."
        )

    def subsample_groups(self, rng: np.random.Generator) -> IntArray:
        """Indices of rows drawn without replacement, as many of each non-empty group as the smallest has; sorted."""
        counts = self.counts
        size = counts[counts > 0].min()
        live = self.weight > 0
        drawn = [
            rng.choice(np.flatnonzero(live & (self.group == g)), size, replace=False) for g in np.flatnonzero(counts)
        ]
        return np.sort(np.concatenate(drawn))

    def require_classes(self, why: str) -> None:
        """Raise LabelError unless every class of the task has a row that counts."""
        seen = np.bincount(self.main.codes[self.weight > 0], minlength=self.n_classes)
        if seen.min() == 0:
            name = self.main.classes[int(np.argmin(seen))]
            raise LabelError(
                f"Class {name!r} of {self.main.name} has no row {why}, so it cannot be told from the others. Pass such "
                "rows, or leave the class out."
            )

    def with_duplicate_clusters(self, hashes: Any) -> Self:
        """The data with duplicate rows as clusters, unless clusters were given.

        A duplicate on the other side of a split makes noise look like a finding. Rows of a few small numbers are equal
        by chance and are left alone, as are rows too many to be compared (`hashes` is None).
        """
        if self.clusters is not None or hashes is None:
            return self
        labels = self.concepts if self.y is None else (self.y, *self.concepts)
        found = duplicate_clusters(hashes, (np.where(label.present, label.codes, np.nan) for label in labels))
        if found is None or not has_continuous_columns(rows_on_host(self.X, distinct_row_indices(hashes))):
            return self
        return replace(self, clusters=found, clusters_are_duplicates=True)

    def without_duplicate_clusters(self) -> Self:
        """The data without clusters, if those are duplicate rows."""
        return replace(self, clusters=None, clusters_are_duplicates=False) if self.clusters_are_duplicates else self


def _common_cluster_codes(one: LabelledData, other: LabelledData) -> tuple[IntArray, IntArray]:
    """Clusters of two sets that are named alike; rows of a set without clusters are independent of each other."""
    if one.clusters is not None and other.clusters is not None:
        return one.clusters, other.clusters
    one, other = (
        rows if rows.clusters is None else replace(rows, clusters=renumbered(rows.clusters)) for rows in (one, other)
    )
    first = max(int(rows.clusters.max()) for rows in (one, other) if rows.clusters is not None) + 1
    independent = first + np.arange(len(one) + len(other))
    return (
        independent[: len(one)] if one.clusters is None else one.clusters,
        independent[len(one) :] if other.clusters is None else other.clusters,
    )


def fit_arguments(
    X: Any = None, y: Any = None, concept: Any = None, sample_weight: Any = None, clusters: Any = None
) -> dict[str, Any]:
    """Arguments of `fit` for one set of rows, by the names that `decode_fit_arguments` has for them."""
    return {"X": X, "y": y, "concept": concept, "sample_weight": sample_weight, "clusters": clusters}


def require_complete(validation: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raise InputError unless a validation set, as `fit_arguments`, has what is needed."""
    if any(validation[name] is None for name in needed):
        *first, last = (f"{name}_val" for name in needed)
        raise InputError(f"A validation set needs {', '.join(first)} and {last} together.")


def decode_fit_arguments(
    estimator: BaseEstimator,
    X: Array,
    y: Array | None,
    concept: Any,
    sample_weight: Array | None = None,
    clusters: Any = None,
    *,
    missing: Any = None,
    like: LabelledData | None = None,
    needs_y: bool = True,
    needs_concept: bool = True,
    check_finite: bool = True,
) -> LabelledData:
    """Check and decode the arguments of `fit`; a validation set is read `like` the training rows.

    Rows stay on their backend; labels and weights are copied to the host once. A concept that is not needed is ignored,
    except in a validation set. Without `check_finite`, rows are not visited.
    """
    suffix = "" if like is None else "_val"
    y, concept, sample_weight, clusters = to_host(y, concept, sample_weight, clusters)
    X = persisted(check_rows(estimator, X, reset=like is None))
    n_rows = len(X)
    if y is None and needs_y:
        raise LabelError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    wanted = needs_concept or (like is not None and concept is not None)
    columns = label_columns(concept, n_rows, f"concept{suffix}") if wanted else {}
    main, concepts = _decoded_labels(y, columns, n_rows, "y", "validation", like, missing=missing)
    weight = checked_weights(sample_weight, f"sample_weight{suffix}", n_rows, relative=False)
    # In units of the largest of the training rows, so that weights of both sets mean the same.
    unit = float(weight.max()) if like is None else like.weight_unit
    weight = weight / unit
    cluster = None if clusters is None else cluster_codes(clusters, f"clusters{suffix}", n_rows)
    if check_finite:
        require_finite(estimator, X, "X" if like is None else "X of the validation rows")
    return LabelledData(X, main, concepts, weight, cluster, suffix=suffix, weight_unit=unit)


def _decoded_labels(
    y: Any,
    columns: Mapping[str, Array],
    n_rows: int,
    name: str,
    what: str,
    like: LabelledData | None,
    *,
    missing: Any = None,
    min_classes: int = 2,
) -> tuple[ClassLabel | None, tuple[ClassLabel, ...]]:
    """The task, called `name` or as it was decoded, and each concept; with the classes and order of rows `like`."""
    whose = "" if like is None else f" of the {what} rows"

    def decoded(values: Any, name: str, classes: tuple[Any, ...] | None, missing: Any = None) -> ClassLabel:
        options = {"missing": missing, "classes": classes, "min_classes": min_classes}
        return replace(class_label(values, name + whose, n_rows, **options), name=name)

    if like is not None and like.concepts and columns:
        ordered = columns_in_order(columns, like.concept_names, f"concept{whose}", "concept of the training rows")
        columns = dict(zip(like.concept_names, ordered, strict=True))
    known = {} if like is None else {label.name: label.classes for label in like.concepts}
    concepts = tuple(decoded(values, called, known.get(called), missing) for called, values in columns.items())
    if y is None:
        return None, concepts
    name = y.name if isinstance(y, ClassLabel) else name if like is None or like.y is None else like.main.name
    main = decoded(y, name, None if like is None or like.y is None else like.main.classes)
    require_no_missing(replace(main, name=name + whose), [label.name for label in concepts])
    return main, concepts


def rows_on_host(X: Array, numbers: IntArray) -> Array:
    """Rows by increasing number, copied to the host, shape (m, d)."""
    return to_host(rows_at(X, numbers).float() if is_tensor(X) else X[numbers])[0]


def decode_rows(
    rows: Any,
    what: str = "training",
    names: tuple[str, str | Sequence[str]] = ("y", "concept"),
    *,
    missing: Any = None,
    like: LabelledData | None = None,
    min_classes: int = 2,
    needs_concept: bool = True,
) -> LabelledData:
    """Decode rows in memory: a tuple (X, y, concept) or (X, y, concept, clusters), or `LabelledData`.

    `names` are those of the task and of the concept. Several concepts bring their names in a mapping or a
    DataFrame; columns of an array need a list of names. `like` has the classes to expect; without it, each label must
    have at least `min_classes` classes. The concept may be None unless `needs_concept`.
    """
    if isinstance(rows, LabelledData):
        X, y, clusters = rows.X, rows.y, rows.clusters
        columns = {label.name: label for label in rows.concepts}
    else:
        if not isinstance(rows, tuple | list) or len(rows) not in (3, 4):
            kind = f"a {type(rows).__name__}" + (f" of {len(rows)}" if isinstance(rows, tuple | list) else "")
            raise InputError(f"The {what} rows are three things, (X, y, concept); got {kind}.")
        X, y, concept, clusters = (*rows, None)[:4]
        columns = {} if concept is None and not needs_concept else named_concepts(concept, names[1])
    X = as_matrix(X, what)
    if like is not None and X.shape[1] != like.X.shape[1]:
        raise InputError(f"The {what} rows have {X.shape[1]} features, the training rows {like.X.shape[1]}.")
    if y is None:
        raise LabelError(f"The {what} rows have no {names[0]}. Pass a label for each row.")
    main, concepts = _decoded_labels(y, columns, len(X), names[0], what, like, missing=missing, min_classes=min_classes)
    cluster = None if clusters is None else cluster_labels(clusters, f"clusters of the {what} rows", len(X))
    return LabelledData(X, main, concepts, np.ones(len(X)), cluster)


def require_same_features(sets: Mapping[str, Any], estimator: Any = None) -> None:
    """Raise InputError unless named features of tuples (X, y, concept) are those of a fit, or of the first of them."""
    named = {f"the {name} rows": rows[0] for name, rows in sets.items() if isinstance(rows, tuple | list) and len(rows)}
    require_same_columns({"the fit": estimator, **named})


def as_matrix(rows: Any, what: str) -> Array:
    """Rows as a NumPy array of shape (n, d); rows that are not in memory are an error."""
    if hasattr(rows, "compute") or hasattr(rows, "blocks"):
        raise InputError(f"The {what} rows have type {type(rows).__name__}; a few thousand rows in memory are needed.")
    try:
        z = check_array(to_numpy(rows), dtype=[np.float64, np.float32, np.float16], ensure_all_finite=False)
    except ValueError as error:
        raise InputError(f"The {what} rows must be numbers of shape (n, d): {brief(error)}.") from None
    if not np.isfinite(z).all():
        raise InputError(f"The {what} rows hold NaN or infinity. Drop those rows or fill the values in.")
    return z
