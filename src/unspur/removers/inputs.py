"""From what a user passes to `fit` to rows with columns: validation, missing concepts, splits and folds."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral
from os import PathLike
from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from unspur._arrays import as_tensor, is_of, on_numpy
from unspur._reading import brief
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import cluster_codes, clusters_in_two, folds_by_cluster
from unspur.criteria import require_clusters, require_testable
from unspur.exceptions import ClusterWarning, InputError, LabelError, NotFiniteError
from unspur.labels import BinaryLabel, binary_label, require_values
from unspur.rows import Columns, FileRows, RowSource, StackedRows, backend_of, rows_of, to_host
from unspur.solvers.held_out_losses import HeldOutClusters
from unspur.solvers.statistics import CellCounts, ColumnFaults, group_names


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows ready for estimation, their cell counts, and the values behind the label codes."""

    rows: RowSource
    counts: CellCounts
    classes: tuple[Any, Any]
    concept_classes: tuple[Any, Any]
    #: Which held-out rows belong together; None where all are independent.
    clusters: HeldOutClusters | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What was passed for one set of rows, named as the user named it; labels and weights come to the host, once."""

    X: Array
    y: Array
    concept: Array
    sample_weight: Array | None
    suffix: str = ""
    clusters: Any = None
    #: Whether the clusters are copies of rows that were found, not clusters that were given.
    copies: bool = False

    def __post_init__(self) -> None:
        for name in ("y", "concept"):
            require_values(getattr(self, name), f"{name}{self.suffix}")
        names = ("y", "concept", "sample_weight", "clusters")
        for name, value in zip(names, to_host(*(getattr(self, name) for name in names)), strict=True):
            object.__setattr__(self, name, value)

    @property
    def empty(self) -> bool:
        """Whether nothing was passed at all."""
        return all(given is None for given in (self.X, self.y, self.concept, self.sample_weight, self.clusters))

    def codes(self, n_rows: int) -> IntArray | None:
        """Cluster of each row, 0, 1, …; None where rows are independent."""
        return None if self.clusters is None else cluster_codes(self.clusters, f"clusters{self.suffix}", n_rows)


@dataclass(frozen=True, slots=True)
class Splitting:
    """How rows are held out without a validation set: `cv` folds in turn, a splitter's or given ones, or one share."""

    cv: Any
    share: float
    rng: np.random.Generator

    @staticmethod
    def lasting(cv: Any) -> Any:
        """`cv` so that it can be used for several concepts and classes: the splits of a generator are a list."""
        return cv if cv is None or isinstance(cv, Integral) or hasattr(cv, "split") else list(cv)

    def folds(self, group: IntArray, present: BoolArray, clusters: IntArray | None = None) -> IntArray:
        """Fold of each row, stratified by group: 1…cv in turn, or 1 for the held-out share and 0 for the rest.

        Rows of a cluster share a fold, unless a splitter or a list puts them into several.
        """
        fold = np.zeros(len(group), dtype=np.intp)
        if self.cv is not None and not isinstance(self.cv, Integral):
            return self._given(fold, group, clusters)
        if clusters is not None:
            shares = [self.share, 1.0 - self.share] if self.cv is None else [1.0 / int(self.cv)] * int(self.cv)
            numbers = np.array([1, 0]) if self.cv is None else np.arange(1, int(self.cv) + 1)
            known = np.unique(clusters[present], return_inverse=True)[1].reshape(-1)
            fold[present] = numbers[folds_by_cluster(known, group[present], np.array(shares), self.rng)]
            return fold
        for g in range(4):
            members = self.rng.permutation(np.flatnonzero(present & (group == g)))
            if self.cv is not None:
                fold[members] = np.arange(len(members)) % int(self.cv) + 1
            else:
                fold[members[: round(self.share * len(members))]] = 1
        return fold

    def _given(self, fold: IntArray, group: IntArray, clusters: IntArray | None) -> IntArray:
        """Folds from a splitter, whose y is the group and whose groups are the clusters, or from (train, test) pairs.

        Only test is read.
        """
        for k, split in enumerate(self._splits(group, clusters), start=1):
            try:
                _, test = split
                taken = fold[test]
            except (TypeError, ValueError, IndexError) as error:
                raise InputError(
                    f"cv: split {k} is not a pair of index arrays (train, test) into the rows: {error}."
                ) from None
            if np.any(taken):
                raise InputError("cv: a row is in two test sets; each row can be held out once.")
            fold[test] = k
        if not fold.any():
            raise InputError("cv: no row is in any test set. (A generator gives its splits once; pass a list of them.)")
        return fold

    def _splits(self, group: IntArray, clusters: IntArray | None) -> Iterable[Any]:
        if not hasattr(self.cv, "split"):
            return cast(Iterable[Any], self.cv)
        try:
            own = () if clusters is None else (clusters,)  # what does not use them warns of them
            return list(self.cv.split(np.zeros((len(group), 1)), group, *own))
        except ValueError as error:
            how = " Pass clusters=, which are what it calls groups." if clusters is None else ""
            raise InputError(f"cv: {type(self.cv).__name__} cannot split these rows: {error}{how}") from None


def labelled_rows(
    estimator: BaseEstimator,
    train: Sample,
    validation: Sample | None,
    splitting: Splitting,
    missing: Any,
    *,
    by_group: bool,
    smallest_group: int,
    needs_y: bool = True,
) -> LabelledRows:
    """Check everything that can be wrong with the data, and lay the rows out for estimation.

    Where y is not needed and not given, the concept stands in for it, so that every row has a group.
    """
    z = checked_z(estimator, train.X, reset=True)
    if not needs_y and train.y is None:
        concept = binary_label(train.concept, "concept", len(z), missing=missing)
        train = replace(train, y=concept.codes)
        if validation is not None and validation.y is None and validation.concept is not None:
            known = binary_label(validation.concept, "concept_val", len(validation.concept), missing=missing)
            validation = replace(validation, y=known.codes)
        needs_y = False
    if train.y is None:
        raise LabelError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    if z.shape[1] < 2:
        raise InputError("Z has 1 feature(s); two orthogonal directions need at least 2.")
    y, concept, weight = _labels(train, len(z), missing)
    present = concept.present & (weight > 0)
    if needs_y:
        _require_different(y, concept, present)
    elif not present.any():
        raise LabelError("No row has both a concept and a positive weight.")
    group = 2 * y.codes + concept.codes
    weight = np.where(present, weight, 0.0)
    clusters = train.codes(len(z))
    if validation is None:
        columns = Columns.of(y.codes, concept.codes, weight, _folds(splitting, group, present, clusters, train.copies))
        rows: RowSource = _finite(estimator, rows_of(z, columns))
        how = "Pass a larger share to hold out, cv=5, or a validation set (X_val, y_val, concept_val)."
        if splitting.cv is not None:
            how = "Pass more rows of that group, or a validation set (X_val, y_val, concept_val)."
    else:
        z_val, columns = _validation_rows(estimator, validation, y, concept, missing)
        rows = StackedRows(
            _finite(estimator, rows_of(z, Columns.of(y.codes, concept.codes, weight))),
            _finite(estimator, rows_of(z_val, columns), "X_val"),
        )
        how = "Pass a larger X_val, or none and cv=5."
        clusters = validation.codes(len(z_val))
    counts = CellCounts.of(rows, group_names(y.classes, concept.classes))
    require_testable(counts, by_group=by_group, smallest=smallest_group, how=how)
    held_out = None
    if clusters is not None:
        held_out = HeldOutClusters.of(clusters, columns.cell, columns.weight, by_group=by_group)
        copies = train.copies if validation is None else validation.copies
        require_clusters(held_out, counts.names, smallest=smallest_group, how=how, copies=copies)
        if validation is None and isinstance(splitting.cv, Integral):
            _warn_of_few(held_out, counts.names, int(splitting.cv))
    return LabelledRows(rows, counts, y.classes, concept.classes, held_out)


def checked_z(estimator: BaseEstimator, X: Array, *, reset: bool) -> Array:
    """Two-dimensional floating-point rows; arrays that already are pass through uncopied and stay where they are.

    CUDA arrays of other libraries than torch become tensors that share their memory.
    """
    X = as_tensor(X)
    if backend_of(X) != "memory":
        return _checked_elsewhere(estimator, X, reset=reset)
    if isinstance(X, str | PathLike):
        raise InputError(f"Z is a path, {str(X)!r}; pass its rows: numpy.load({str(X)!r}, mmap_mode='r').")
    if np.ma.isMaskedArray(X) and np.ma.getmaskarray(X).any():
        raise InputError(f"Z has {np.ma.getmaskarray(X).sum()} masked values. Drop those rows or fill the values in.")
    kinds = [np.float64, np.float32, np.float16]
    z = in_numbers(estimator, X, reset=reset, dtype=kinds)
    # A map of a file stays one: scikit-learn strips the type, which knows the file's name.
    return X if isinstance(X, np.memmap) and X.dtype == z.dtype else z


def in_numbers(estimator: BaseEstimator, X: Array, *, reset: bool, dtype: list[Any]) -> Array:
    """Rows as scikit-learn validates them; text in a column is an error that names it."""
    try:
        return validate_data(estimator, X, reset=reset, dtype=dtype, ensure_all_finite=False)
    except ValueError as error:
        if found := _text_in(X):
            raise InputError(found) from error
        raise


def _text_in(X: Array) -> str:
    """What to say of the first column of rows that holds text which is no number; "" where none does."""
    names = list(getattr(X, "columns", ()))
    columns = (X[name] for name in names) if names else np.asarray(X, dtype=object).T
    for number, column in enumerate(columns):
        for value in np.asarray(column, dtype=object).ravel():
            if isinstance(value, str) and not _is_number(value):
                which = repr(names[number]) if names else str(number)
                return (
                    f"Column {which} of X holds text, such as {brief(value, 40)!r}; features are numbers. Leave the "
                    "column out, or turn it into numbers first (an encoder for text, OneHotEncoder for categories)."
                )
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _checked_elsewhere(estimator: BaseEstimator, X: Array, *, reset: bool) -> Array:
    """Rows on a device, a cluster or in files: what scikit-learn would check of an array, without a look at them."""
    if backend_of(X) == "dask" and not is_of("dask", X, "Array"):
        raise InputError(
            f"Z is a {type(X).__name__} of Dask; pass an array, of a DataFrame Z.to_dask_array(lengths=True)."
        )
    # Integers and booleans become float64, as scikit-learn makes them.
    if backend_of(X) == "torch" and not X.is_floating_point() and not X.is_complex():
        X = X.double()
    if backend_of(X) == "dask" and X.dtype.kind in "biu":
        X = X.astype(np.float64)
    shape, kind = tuple(X.shape), str(X.dtype).removeprefix("torch.")
    if len(shape) != 2 or kind not in ("float64", "float32", "float16", "bfloat16"):
        raise InputError(f"Z is {kind} of shape {shape}; rows must be floating point of shape (n, d).")
    n_rows, n_features = shape
    if not n_rows > 0 or not n_features > 0:  # also of unknown length, which is NaN
        raise InputError(
            f"Z has shape {shape}; at least one row and one feature, and a known number of them, are needed."
            + (" Z.compute_chunk_sizes() counts the rows of a Dask array." if n_rows != n_rows else "")
        )
    if reset:
        estimator.n_features_in_ = n_features
        estimator.__dict__.pop("feature_names_in_", None)
        if getattr(X, "feature_names", None) is not None:
            estimator.feature_names_in_ = np.array(X.feature_names, dtype=object)
    elif estimator.n_features_in_ != n_features:
        name = type(estimator).__name__
        raise InputError(f"Z has {n_features} features, but {name} was fitted on {estimator.n_features_in_}.")
    elif (names := getattr(X, "feature_names", None)) is not None and hasattr(estimator, "feature_names_in_"):
        strange = [name for name, known in zip(names, estimator.feature_names_in_, strict=True) if name != known]
        if strange:
            raise InputError(
                f"{strange[0]!r} is not where it was when {type(estimator).__name__} was fitted: features must be the "
                "same columns in the same order. Name them with features=."
            )
    return X


def _finite(estimator: BaseEstimator, rows: RowSource, name: str = "Z") -> RowSource:
    if isinstance(rows, FileRows):
        rows.check()  # knows file and row group of a fault, and whether it has looked before
        return rows
    faults = ColumnFaults.of(rows)
    if faults:
        names = getattr(estimator, "feature_names_in_", None)
        found = faults.describe(None if names is None else list(names))
        raise NotFiniteError(f"{name} must be finite; found {found}. Drop those rows or fill the values in.")
    return rows


def require_finite(estimator: BaseEstimator, z: Array) -> None:
    """Raise NotFiniteError with columns and counts unless all rows are finite."""
    n = len(z)
    if not n:  # a chunk of a Dask array may be empty
        return
    one = np.broadcast_to(np.ones(1), n)  # no label is looked at: one number stands for all
    _finite(estimator, rows_of(z, Columns(one[None], np.broadcast_to(np.zeros(1, np.intp), n), one, 0)))


def finite_rows(estimator: BaseEstimator, z: Array, columns: Columns) -> RowSource:
    """Rows with columns, once they are known to be finite."""
    return _finite(estimator, rows_of(z, columns))


def _labels(sample: Sample, n: int, missing: Any, like: tuple[BinaryLabel, BinaryLabel] | None = None
            ) -> tuple[BinaryLabel, BinaryLabel, FloatArray]:  # fmt: skip
    """Main label, concept and weights of one set of rows, checked; `like` fixes the classes to expect."""
    known = (None, None) if like is None else (like[0].classes, like[1].classes)
    y = binary_label(sample.y, f"y{sample.suffix}", n, classes=known[0])
    if not y.present.all():
        raise LabelError(f"y{sample.suffix} is missing in {np.sum(~y.present)} rows; only concept may have gaps.")
    concept = binary_label(sample.concept, f"concept{sample.suffix}", n, missing=missing, classes=known[1])
    return y, concept, checked_weights(sample.sample_weight, f"sample_weight{sample.suffix}", n)


def checked_weights(given: Array | None, name: str, n: int, *, relative: bool = True) -> FloatArray:
    """Row weights (n,), ones when none are given; relative to the largest where only their ratios matter."""
    if given is None:
        return np.ones(n)
    if np.ma.isMaskedArray(given) and np.ma.getmaskarray(given).any():
        raise InputError(f"{name} has masked values. Use zero for rows that should not count.")
    weight = np.asarray(on_numpy(given))
    if weight.shape != (n,) or weight.dtype.kind not in "biuf":
        raise InputError(f"{name} is {weight.dtype} of shape {weight.shape}; {n} real numbers are needed, one per row.")
    weight = weight.astype(np.float64)
    if not np.all(np.isfinite(weight)) or weight.min() < 0 or not weight.max() > 0:
        raise InputError(f"{name} must be finite and not negative, with some weight above zero.")
    largest = weight.max()
    if weight[weight > 0].min() < 1e-12 * largest:
        raise InputError(
            f"{name} spans more than twelve orders of magnitude; rows that count so little should get zero."
        )
    return weight / largest if relative else weight


def _validation_rows(
    estimator: BaseEstimator, validation: Sample, y: BinaryLabel, concept: BinaryLabel, missing: Any
) -> tuple[Array, Columns]:
    """Rows that are only ever held out, as fold 1, and their columns."""
    if validation.X is None or validation.y is None or validation.concept is None:
        raise InputError("A validation set needs X_val, y_val and concept_val together.")
    z = checked_z(estimator, validation.X, reset=False)
    y_val, concept_val, weight = _labels(validation, len(z), missing, like=(y, concept))
    weight = np.where(concept_val.present, weight, 0.0)
    fold = np.ones(len(z), dtype=np.intp)
    return z, Columns.of(y_val.codes, concept_val.codes, weight, fold)


def _folds(
    splitting: Splitting, group: IntArray, present: BoolArray, clusters: IntArray | None, copies: bool
) -> IntArray:
    """Fold of each row; folds that were given and put rows of a cluster on both sides of a split are refused.

    Copies that were found and not given are worth a warning.
    """
    given = splitting.cv is not None and not isinstance(splitting.cv, Integral)
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
            f"cv: {len(torn)} clusters have rows in more than one test set, so that they would be judged by directions "
            "estimated from their own rows. Use an int, or a splitter that keeps clusters together, such as "
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


def _require_different(y: BinaryLabel, concept: BinaryLabel, present: BoolArray) -> None:
    if not present.any():
        raise LabelError("No row has both a concept and a positive weight.")
    same = y.codes[present] == concept.codes[present]
    if same.all() or not same.any():
        how = "equal to" if same.all() else "the exact opposite of"
        raise LabelError(
            f"concept is {how} y in all {present.sum()} rows: removing it would remove the task, and no data could "
            "tell the two apart. Rows where they disagree are needed."
        )
