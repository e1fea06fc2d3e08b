"""From what a user passes to `fit` to labelled rows: validation, missing concepts, groups and held-out shares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import assert_all_finite, column_or_1d

from unspur._arrays import rows_at
from unspur._typing import Array, FloatArray, IntArray
from unspur.clusters import folds_by_cluster
from unspur.exceptions import InputError, LabelError
from unspur.labels import ClassLabel, class_label
from unspur.removers.concepts import concept_columns, read_concepts
from unspur.removers.inputs import Sample, checked_weights, checked_z, require_finite
from unspur.rows import Columns, RowSource, Weighting, backend_of, persisted, rows_of
from unspur.solvers.statistics import Moments
from unspur.solvers.whitening import Geometry


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows (n, d) with codes of main label and concept and a weight, each (n,); weight 0: the row does not count.

    Row i belongs to group ``shape[1] · y + concept``, with `shape` the numbers of classes of main label and concept.
    """

    z: Array
    y: IntArray
    concept: IntArray
    weight: FloatArray
    shape: tuple[int, int]
    classes: tuple[Any, ...]
    #: Cluster of each row, (n,): rows of one are held out together; None where rows are independent.
    clusters: IntArray | None = None
    _geometries: dict[bool, Geometry] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_classes(self) -> int:
        """Classes of the main label."""
        return self.shape[0]

    @property
    def n_groups(self) -> int:
        """Groups, with those that have no rows."""
        return self.shape[0] * self.shape[1]

    @property
    def group(self) -> IntArray:
        """Group of each row, shape (n,)."""
        return np.asarray(self.shape[1] * self.y + self.concept)

    @property
    def counts(self) -> IntArray:
        """Rows that count in each group, shape (G,)."""
        return np.bincount(self.group[self.weight > 0], minlength=self.n_groups)

    @property
    def totals(self) -> FloatArray:
        """Weight of each group, shape (G,)."""
        return np.asarray(np.bincount(self.group, weights=self.weight, minlength=self.n_groups), dtype=np.float64)

    @property
    def effective(self) -> FloatArray:
        """Effective size (Σw)² / Σw² of each group, shape (G,): the number of rows when they weigh the same."""
        squares = np.bincount(self.group, weights=self.weight**2, minlength=self.n_groups)
        return np.asarray(self.totals**2 / np.where(squares > 0, squares, 1.0))

    def weighting(self, *, balanced: bool) -> Weighting:
        """Row weights summing to one; `balanced` gives every group that has rows the same total."""
        totals = self.totals
        if not balanced:
            return Weighting(np.full(len(totals), 1.0 / totals.sum()))
        present = totals > 0
        return Weighting(np.where(present, 1.0, 0.0) / (present.sum() * np.where(present, totals, 1.0)))

    def geometry(self, source: RowSource, *, balanced: bool) -> Geometry:
        """Where the rows lie under these weights; computed once, whatever the penalty of the fits that need it."""
        if balanced not in self._geometries:
            moments = Moments.of(source, self.weighting(balanced=balanced))
            self._geometries[balanced] = Geometry.of(moments, source.dtype.itemsize)
        return self._geometries[balanced]

    def reweighted(self, weight: FloatArray) -> Self:
        """The same rows with other weights."""
        return replace(self, weight=weight)

    def only(self, rows: IntArray) -> Self:
        """The same rows, of which only these count."""
        chosen = np.zeros(len(self.y), dtype=bool)
        chosen[rows] = True
        return self.reweighted(np.where(chosen, self.weight, 0.0))

    def source(self) -> RowSource:
        """The rows as a source whose cells are the groups."""
        live = np.flatnonzero(self.weight > 0)
        # Copied only when less than half of them count: a few subsampled rows are cheaper to copy than all to visit.
        copied = backend_of(self.z) in ("memory", "torch") and 2 * len(live) < len(self.y)
        rows: Any = live if copied else slice(None)
        targets = np.stack([self.concept[rows], self.y[rows]]).astype(np.float64)
        z = rows_at(self.z, rows) if copied else self.z
        return rows_of(z, Columns(targets, self.group[rows], self.weight[rows], 0))

    def split(self, share: float, rng: np.random.Generator) -> tuple[Self, Self]:
        """The rows, and `share` of every group held out; groups of two rows and more are in both.

        Of rows in clusters, about that share of every group, in whole clusters.
        """
        if self.clusters is not None:
            return self._split_clusters(self.clusters, share, rng)
        held_out = []
        for g in range(self.n_groups):
            members = rng.permutation(np.flatnonzero((self.group == g) & (self.weight > 0)))
            held_out.append(members[: min(max(round(share * len(members)), 1), len(members) - 1)])
        there = np.concatenate(held_out)
        if not len(there):
            raise InputError("No group has two rows, so none can be held out. Pass a validation set (X_val, y_val, …).")
        return self.only(np.setdiff1d(np.arange(len(self.y)), there)), self.only(there)

    def _split_clusters(self, clusters: IntArray, share: float, rng: np.random.Generator) -> tuple[Self, Self]:
        live = np.flatnonzero(self.weight > 0)
        code = np.unique(clusters[live], return_inverse=True)[1].reshape(-1)
        fold = folds_by_cluster(code, self.group[live], np.array([share, 1.0 - share]), rng)
        kept, there = live[fold == 1], live[fold == 0]
        if not len(kept) or not len(there):
            raise InputError(
                f"The rows lie in {code.max() + 1} clusters, which are held out as a whole; none is left on one of the "
                "two sides. Pass rows of more clusters, or a validation set (X_val, y_val, …)."
            )
        return self.only(kept), self.only(there)

    def equal_groups(self, rng: np.random.Generator) -> IntArray:
        """Rows, as many of every group that has any as the smallest has, drawn without replacement and sorted."""
        counts = self.counts
        size = counts[counts > 0].min()
        live = self.weight > 0
        drawn = [
            rng.choice(np.flatnonzero(live & (self.group == g)), size, replace=False) for g in np.flatnonzero(counts)
        ]
        return np.sort(np.concatenate(drawn))

    def require_classes(self, why: str) -> None:
        """Raise LabelError unless every class of the main label has a row that counts."""
        seen = np.bincount(self.y[self.weight > 0], minlength=self.n_classes)
        if seen.min() == 0:
            name = self.classes[int(np.argmin(seen))]
            raise LabelError(
                f"Class {name!r} of y has no row {why}, so it cannot be told from the others. Pass such rows, or "
                "leave the class out."
            )


@dataclass(frozen=True, slots=True)
class HeadData:
    """Training rows, rows to judge on if any were passed, and the values behind the codes."""

    train: LabelledRows
    validation: LabelledRows | None
    classes: Array
    concept_classes: tuple[Any, ...] | None


def head_data(
    estimator: BaseEstimator, train: Sample, validation: Sample, missing: Any, *, needs_concept: bool
) -> HeadData:
    """Check everything that can be wrong with the data.

    Without `needs_concept` that of the training rows is not looked at: they have one group per class. That of a
    validation set is, where it is passed.
    """
    z = _rows(estimator, train, reset=True)
    if train.y is None:
        raise LabelError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    y = _main_label(train, len(z))
    concept = _concept(train.concept, "concept", len(z), missing) if needs_concept else None
    rows = _labelled(z, y, concept, train)
    rows.require_classes("with a positive weight" + (" and a known concept" if needs_concept else ""))
    given = np.asarray(train.y).dtype
    classes = np.array(y.classes, dtype=given if given.kind in "biufUO" else None)
    known = None if concept is None else concept.classes
    if validation.empty:
        return HeadData(rows, None, classes, known)
    if validation.X is None or validation.y is None or (needs_concept and validation.concept is None):
        raise InputError("A validation set needs X_val, y_val and concept_val together.")
    z = _rows(estimator, validation, reset=False)
    y_val = _main_label(validation, len(z), y.classes)
    concept_val = None
    if validation.concept is not None:
        concept_val = _concept(validation.concept, "concept_val", len(z), missing, known)
    return HeadData(rows, _labelled(z, y_val, concept_val, validation), classes, known)


def _rows(estimator: BaseEstimator, sample: Sample, *, reset: bool) -> Array:
    z = persisted(checked_z(estimator, sample.X, reset=reset))
    require_finite(estimator, z)
    return z


def _main_label(sample: Sample, n: int, classes: tuple[Any, ...] | None = None) -> ClassLabel:
    name = f"y{sample.suffix}"
    values = column_or_1d(sample.y, warn=True) if getattr(sample.y, "ndim", 1) != 1 else sample.y
    if getattr(values, "dtype", np.dtype(object)).kind == "f":
        assert_all_finite(values, allow_nan=True, input_name=name)
    label = class_label(values, name, n, classes=classes)
    if not label.present.all():
        raise LabelError(f"{name} is missing in {np.sum(~label.present)} rows; only concept may have gaps.")
    return label


def _concept(values: Array, name: str, n_rows: int, missing: Any, classes: tuple[Any, ...] | None = None) -> ClassLabel:
    """The concept; of several (an array (n, m) or a DataFrame) their combination, whose classes are tuples."""
    columns = concept_columns(values, n_rows, name)
    if len(columns) == 1:
        return class_label(next(iter(columns.values())), name, n_rows, missing=missing, classes=classes)
    nested = None if classes is None else [tuple(dict.fromkeys(parts)) for parts in zip(*classes, strict=True)]
    concepts = read_concepts(values, n_rows, missing=missing, classes=nested, name=name)
    return ClassLabel(concepts.group, concepts.present, tuple(product(*concepts.classes)))


def _labelled(z: Array, y: ClassLabel, concept: ClassLabel | None, sample: Sample) -> LabelledRows:
    """Rows and codes; those whose concept is asked for and missing get weight zero."""
    n = len(z)
    weight = checked_weights(sample.sample_weight, f"sample_weight{sample.suffix}", n)
    together = sample.codes(n)
    if concept is None:
        alone = np.zeros(n, dtype=np.intp)
        return LabelledRows(z, y.codes, alone, weight, (len(y.classes), 1), y.classes, together)
    weight = np.where(concept.present, weight, 0.0)
    if not weight.any():
        raise LabelError(f"No row has both a concept{sample.suffix} and a positive weight.")
    shape = (len(y.classes), len(concept.classes))
    return LabelledRows(z, y.codes, concept.codes, weight, shape, y.classes, together)
