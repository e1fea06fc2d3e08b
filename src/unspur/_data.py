"""Rows with their labels, decoded once per call and passed down from there.

::

    X, y, concept, sample_weight, clusters  ──read_data──▶  LabelledData
                                                               │ .with_labels(y, concept): with other labels
                                                               ▼
                                          the same rows with one binary concept and one binary main label

Conventions: labels are codes (n,) with the values behind them (`ClassLabel`). A *group* is a combination of main class
and concept classes, numbered main class by main class. A *cluster* is a set of rows that are not independent of each
other. A row that does not count (its concept is missing, or the user gave it no weight) has weight zero and stays.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from unspur._arrays import is_tensor, rows_at
from unspur._typing import Array, FloatArray, IntArray
from unspur._validation import checked_weights, checked_z, require_finite
from unspur.clusters import cluster_codes, copies, folds_by_cluster, has_continuous_columns
from unspur.exceptions import InputError, LabelError
from unspur.labels import ClassLabel, class_label, columns_in_order, joint_label, label_columns, require_values
from unspur.rows import Columns, RowSource, StoredRows, Weighting, backend_of, persisted, rows_of, to_host
from unspur.solvers.statistics import Moments
from unspur.solvers.whitening import Geometry


@dataclass(frozen=True)
class LabelledData:
    """Rows with decoded labels.

    Attributes
    ----------
    X : rows of shape (n, d), where they live.
    y : main label; None where there is none.
    concepts : one label for each concept, by its name; empty where none is needed.
    weight : shape (n,); zero for rows that do not count.
    clusters : cluster of each row, shape (n,); None where rows are independent.
    copies : whether the clusters are copies of rows that were found, not clusters that were given.
    suffix : what the user's arguments end in, "_val" for a validation set.
    """

    X: Array
    y: ClassLabel | None
    concepts: tuple[ClassLabel, ...]
    weight: FloatArray
    clusters: IntArray | None = None
    copies: bool = False
    suffix: str = ""
    _geometries: dict[bool, Geometry] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.weight)

    @cached_property
    def concept(self) -> ClassLabel:
        """The concepts as one label, each combination a class; one class where there are none."""
        if not self.concepts:
            return ClassLabel(np.zeros(len(self), dtype=np.intp), np.ones(len(self), dtype=bool), ("",))
        return joint_label(self.concepts)

    @property
    def main(self) -> ClassLabel:
        """The main label, which must be there."""
        assert self.y is not None
        return self.y

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of classes of the main label and of the concept."""
        return len(self.main.classes), len(self.concept.classes)

    @property
    def n_classes(self) -> int:
        """Classes of the main label."""
        return len(self.main.classes)

    @property
    def n_groups(self) -> int:
        """Groups, with those that have no rows."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def group(self) -> IntArray:
        """Group of each row, shape (n,)."""
        return np.asarray(self.shape[1] * self.main.codes + self.concept.codes)

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

    def source(self) -> RowSource:
        """The rows as a source whose cells are the groups."""
        live = np.flatnonzero(self.weight > 0)
        # Copied only when less than half of them count: a few subsampled rows are cheaper to copy than all to visit.
        copied = backend_of(self.X) in ("memory", "torch") and 2 * len(live) < len(self)
        rows: Any = live if copied else slice(None)
        targets = np.stack([self.concept.codes[rows], self.main.codes[rows]]).astype(np.float64)
        z = rows_at(self.X, rows) if copied else self.X
        return rows_of(z, Columns(targets, self.group[rows], self.weight[rows], 0))

    def reweighted(self, weight: FloatArray) -> Self:
        """The same rows with other weights."""
        return replace(self, weight=weight)

    def only(self, rows: IntArray) -> Self:
        """The same rows, of which only these count."""
        chosen = np.zeros(len(self), dtype=bool)
        chosen[rows] = True
        return self.reweighted(np.where(chosen, self.weight, 0.0))

    def with_labels(self, y: ClassLabel | None = None, concept: ClassLabel | None = None) -> Self:
        """The rows with these labels in the place of theirs; those whose concept is missing do not count."""
        data = replace(self, y=y or self.y, concepts=self.concepts if concept is None else (concept,))
        data = data.reweighted(np.where(data.concept.present, data.weight, 0.0))
        if not data.weight.any():
            raise LabelError(f"No row has both a concept{self.suffix} and a positive weight.")
        return data

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
        return self.only(np.setdiff1d(np.arange(len(self)), there)), self.only(there)

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

    def subsample_groups(self, rng: np.random.Generator) -> IntArray:
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
        seen = np.bincount(self.main.codes[self.weight > 0], minlength=self.n_classes)
        if seen.min() == 0:
            name = self.main.classes[int(np.argmin(seen))]
            raise LabelError(
                f"Class {name!r} of y has no row {why}, so it cannot be told from the others. Pass such rows, or "
                "leave the class out."
            )

    def with_duplicate_clusters(self, hashes: Any) -> Self:
        """The rows with copies of a row as one cluster, where no clusters were given.

        A copy on the other side of a split makes noise look like a finding. Rows of a few small numbers are equal by
        chance, and stay as they are; so do rows too many to be compared (no hashes).
        """
        if self.clusters is not None or hashes is None:
            return self
        labels = self.concepts if self.y is None else (self.y, *self.concepts)
        found = copies(hashes, [np.where(label.present, label.codes, -1) for label in labels])
        if found is None or not has_continuous_columns(first_rows(self.X)):
            return self
        return replace(self, clusters=found, copies=True)


def read_data(
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
) -> LabelledData:
    """Check and decode what was passed to `fit`; a validation set is read `like` the training rows.

    Rows stay where they are; labels and weights come to the host, once. A concept that is not needed is not looked at,
    but for that of a validation set.
    """
    suffix = "" if like is None else "_val"
    require_values(y, f"y{suffix}")
    require_values(concept, f"concept{suffix}")
    y, concept, sample_weight, clusters = to_host(y, concept, sample_weight, clusters)
    X = persisted(checked_z(estimator, X, reset=like is None))
    n_rows = len(X)
    if y is None and needs_y:
        raise LabelError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    main = None
    if y is not None:
        main = class_label(y, f"y{suffix}", n_rows, classes=None if like is None else like.main.classes)
        if not main.present.all():
            raise LabelError(f"y{suffix} is missing in {np.sum(~main.present)} rows; only concept may have gaps.")
        main = replace(main, name="y")
    concepts: tuple[ClassLabel, ...] = ()
    if needs_concept or (like is not None and concept is not None):
        concepts = _concepts(concept, n_rows, missing, like)
    weight = checked_weights(sample_weight, f"sample_weight{suffix}", n_rows)
    together = None if clusters is None else cluster_codes(clusters, f"clusters{suffix}", n_rows)
    require_finite(estimator, X, "Z" if like is None else "X_val")
    return LabelledData(X, main, concepts, weight, together, suffix=suffix)


def _concepts(values: Any, n_rows: int, missing: Any, like: LabelledData | None) -> tuple[ClassLabel, ...]:
    """A label for each concept; those of a validation set by the names, classes and order of the training rows."""
    if like is None:
        columns = label_columns(values, n_rows, "concept")
        return tuple(class_label(column, name, n_rows, missing=missing) for name, column in columns.items())
    others = label_columns(values, n_rows, "concept_val")
    if not like.concepts:
        return tuple(class_label(column, name, n_rows, missing=missing) for name, column in others.items())
    known = {label.name: label for label in like.concepts}
    ordered = columns_in_order(others, tuple(known), "concept_val", "concept")
    found = []
    for (name, label), column in zip(known.items(), ordered, strict=True):
        called = "concept_val" if len(known) == 1 else f"{name} of the validation rows"
        found.append(replace(class_label(column, called, n_rows, missing=missing, classes=label.classes), name=name))
    return tuple(found)


def first_rows(X: Array, number: int = 2000) -> Array:
    """Some rows on the host, shape (m, d)."""
    if isinstance(X, StoredRows):
        with closing(X.blocks()) as blocks:
            return next(iter(blocks))[1][:number]
    first = X[:number]
    return to_host(first.float() if is_tensor(first) else first)[0]
