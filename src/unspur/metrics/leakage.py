"""Leakage: how well a fresh probe predicts a concept from rows that it was not trained on.

Classes are predicted by a classifier and compared with guessing; a number is predicted by ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.model_selection import KFold, StratifiedKFold

from unspur._arrays import renumbered
from unspur._resources import one_blas_thread
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur._validation import checked_weights, require_same_columns
from unspur.clusters import (
    cluster_codes,
    distinct_row_indices,
    duplicate_clusters,
    folds_by_cluster,
    has_continuous_columns,
    require_disjoint_clusters,
    row_hashes,
    splits_of_known,
)
from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur.labels import ClassLabel, class_label, numeric_column, storable
from unspur.metrics.groups import mean_interval, p_above, require_level, tail_probability
from unspur.metrics.probes import (
    MAX_TRAINING_ROWS,
    Kind,
    SmallNetwork,
    checked_rows,
    inner_folds,
    linear_probe,
    ridge,
    scale_notes,
)
from unspur.solvers.held_out_losses import HeldOutClusters, average_error

#: Training and test rows of each fold.
Splits: TypeAlias = list[tuple[Array, Array]]
#: Fewest rows to train a probe of a number on, and fewest rows or clusters to test it on.
MIN_TRAINING_ROWS, MIN_TEST_ROWS = 6, 10
#: Cross-fitted rows carry the information of about half as many independent rows: any two folds meet twice, each tested
#: with a probe that was trained on the other, and where the concept is independent of X both meetings err the same way.
#: So the variance is up to twice the binomial one (1 + 2/π for a linear probe); ignoring it, a test at 5 % rejects in 8
#: to 11 %.
CROSS_FIT_VARIANCE_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class NumericLeakage:
    """How much of a number a linear probe predicts, on rows it was not trained on.

    Attributes
    ----------
    r2 : ``1 − Σ (y − ŷ)² / Σ (y − ȳ)²`` with ȳ the mean of the training rows: 0 if the rows say nothing, 1 if they
        say everything, and below 0 if the mean would have been the better prediction.
    low, high : confidence interval of `r2` at `level`.
    p : one-sided test of "r2 is above 0"; low > 0 where p < 0.025 (at a level of 0.95).
    notes : warnings about the rows, such as columns of very different scale.
    """

    r2: float
    low: float
    high: float
    p: float
    rows: int
    level: float = 0.95
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {**asdict(self), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> NumericLeakage:
        """Inverse of `to_dict`."""
        return cls(**{**saved, "notes": tuple(saved["notes"])})

    def __str__(self) -> str:
        text = (
            f"linear probe: R² {self.r2:.3f} ({self.low:.3f} – {self.high:.3f}; 0 = no information; "
            f"p {_p_text(self.p)}), {self.rows} rows"
        )
        return "; ".join([text, *self.notes])


@dataclass(frozen=True, slots=True)
class Leakage:
    """How well a probe predicts classes on rows it was not trained on; every class counts the same.

    Attributes
    ----------
    accuracy, chance : balanced accuracy (mean of the recalls) and 1/k, the accuracy of guessing.
    low, high : confidence interval of the accuracy at `level`, from the exact interval of each recall; with folds, from
        half as many rows, since folds are not independent.
    p : one-sided test of "accuracy is above chance". It inverts the interval, so low > chance where p < 0.025 (at a
        level of 0.95).
    loss, chance_loss : class-balanced log loss in nats, and log k. A larger loss means that the probe is overconfident.
    recall : accuracy in each class, in the order of `classes`.
    notes : warnings about the rows, such as columns of very different scale or outliers.
    """

    accuracy: float
    chance: float
    low: float
    high: float
    p: float
    loss: float
    chance_loss: float
    recall: tuple[float, ...]
    classes: tuple[Any, ...]
    rows: int
    probe: Kind
    level: float = 0.95
    notes: tuple[str, ...] = ()

    @property
    def below_chance(self) -> bool:
        """Whether the probe does worse than guessing, as it does on rows that a removal was fitted on."""
        return self.high < self.chance

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        lists = {"recall": list(self.recall), "classes": storable(self.classes), "notes": list(self.notes)}
        return {**asdict(self), **lists}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Leakage:
        """Inverse of `to_dict`."""
        return cls(**{**saved, **{name: tuple(saved[name]) for name in ("recall", "classes", "notes")}})

    def __str__(self) -> str:
        text = (
            f"{self.probe} probe: balanced accuracy {100 * self.accuracy:.1f} % ({100 * self.low:.1f} – "
            f"{100 * self.high:.1f}; chance {100 * self.chance:.1f}; p {_p_text(self.p)}), "
            f"loss {self.loss:.3f} (chance {self.chance_loss:.3f}), {self.rows} rows"
        )
        below = ["below chance: were these rows used to fit the removal?"] if self.below_chance else []
        return "; ".join([text, *below, *self.notes])


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"


def leakage(
    X: Array,
    concept: Array,
    *,
    probe: Kind = "linear",
    concept_type: Literal["class", "continuous"] = "class",
    cv: Any = 5,
    X_test: Array | None = None,
    concept_test: Array | None = None,
    sample_weight: Array | None = None,
    sample_weight_test: Array | None = None,
    penalty: float | None = None,
    clusters: Array | None = None,
    clusters_test: Array | None = None,
    missing_concept: Any = None,
    level: float = 0.95,
    random_state: Any = None,
) -> Any:
    """How well a fresh probe predicts the concept from rows it was not trained on.

    Without a test set every row is predicted by a probe trained on the other folds. Every class of the concept has the
    same weight, in training and in what is reported, so guessing has accuracy 1/k and loss log k however unequal the
    classes are. A probe is trained on at most 3,000 rows, drawn at random with the shares of the classes.

    Parameters
    ----------
    X, concept : rows (n, d) and their label (n,) of two or more classes, or a number; rows where it is missing are
        ignored.
    probe : "linear" (folds of the training rows choose among discriminant analysis with shrinkage and logistic
        regression, and how columns are scaled) or "mlp" (one hidden layer of 64 units).
    concept_type : "class", or "continuous" for a number, which is predicted by ridge regression.
    cv : number of folds (stratified by concept, drawn at random), a splitter of the rows with a known concept, or pairs
        of index arrays (train, test) into the rows of X. A PredefinedSplit may be of all rows of X too.
    X_test, concept_test : rows to test the probe on, instead of folds.
    sample_weight, sample_weight_test : weights of rows, in training and in what is reported.
    penalty : of logistic or ridge regression on standardised columns, when nothing is to be chosen.
    clusters, clusters_test : which rows belong together (frames of one film), by labels of any hashable kind. Rows of a
        cluster share a fold, and interval and p count clusters; ignoring clusters makes both too optimistic. Without
        them, exact duplicates of a row are a cluster, and a note says so.

    Returns
    -------
    Leakage or NumericLeakage
        Accuracy of a classifier with its interval; for a number R² out of sample, 0 if the rows say nothing.

    Notes
    -----
    Use rows that the removal was *not* fitted on. A closed-form eraser makes the class means equal on the rows it was
    fitted on, so a difference that is left in four folds has the opposite sign in the fifth: cross-validated probes
    then score *below* chance and say nothing about new rows. With a test set (X_test), the probe may be trained on rows
    of the fit, but must be tested on others.
    """
    require_level(level)
    if (X_test is None) != (concept_test is None):
        raise InputError("X_test and concept_test go together: pass both, or neither for cross-fitting.")
    if probe not in ("linear", "mlp"):
        raise InputError(f"probe is 'linear' or 'mlp'; got {probe!r}.")
    if concept_type not in ("class", "continuous"):
        raise InputError(f"concept_type is 'class' or 'continuous'; got {concept_type!r}.")
    if concept_type == "continuous" and probe != "linear":
        raise InputError(f"A number is predicted by a linear probe only; got probe={probe!r}.")
    if penalty is not None and not penalty > 0:
        raise InputError(f"penalty must be positive; got {penalty}.")
    if X_test is not None:
        require_disjoint_clusters(clusters, clusters_test, "test")
    require_same_columns({"X": X, "X_test": X_test})
    train = _Rows.of(X, concept, concept_type, missing_concept, sample_weight, clusters)
    test = None
    if X_test is not None:
        test = _Rows.of(
            X_test, concept_test, concept_type, missing_concept, sample_weight_test, clusters_test, train.label
        )
        if test.X.shape[1] != train.X.shape[1]:
            raise InputError(f"X_test has {test.X.shape[1]} columns, X has {train.X.shape[1]}. They must be the same.")
    rng = np.random.default_rng(random_state)
    with one_blas_thread():  # for the same result to the last bit on any number of cores
        if concept_type == "class":
            return _class_leakage(train, test, probe, cv, penalty, level, rng)
        return _number_leakage(train, test, cv, penalty, level, rng)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with a known target (codes or numbers) and a positive weight; `known` says which of all rows they are.

    `copies` says that the clusters are duplicates of rows, found here.
    """

    X: Array
    target: Array
    weight: FloatArray
    known: BoolArray
    clusters: IntArray | None
    copies: bool = False
    label: ClassLabel | None = None

    @classmethod
    def of(
        cls,
        X: Array,
        concept: Any,
        concept_type: str,
        missing: Any,
        sample_weight: Array | None,
        clusters: Array | None,
        like: ClassLabel | None = None,
    ) -> _Rows:
        """Check the rows; classes of test rows are those of `like`."""
        X = checked_rows(X)
        n, label = len(X), None
        weight = checked_weights(sample_weight, "sample_weight", n)
        if concept_type == "continuous":
            target: Array = numeric_column(concept, "concept", n, missing)
            present = np.isfinite(target)
            if not present.any():
                raise LabelError(f"concept is missing in all {n} rows.")
        else:
            name = concept.name if isinstance(concept, ClassLabel) and concept.name else "concept"
            label = class_label(concept, name, n, missing=missing, classes=None if like is None else like.classes)
            target, present = label.codes, label.present
        known = present & (weight > 0)
        X, target, weight = X[known], target[known], weight[known]
        if clusters is not None:
            return cls(X, target, weight, known, cluster_codes(clusters, "clusters", n)[known], label=label)
        # Numbers of copies may differ by anything, such as the time of an upload; different classes tell rows apart.
        hashes = row_hashes(X)
        found = duplicate_clusters(hashes, [] if label is None else [target])
        if found is None or not has_continuous_columns(X[distinct_row_indices(hashes)]):
            found = None
        return cls(X, target, weight, known, found, found is not None, label)

    def select(self, rows: Array) -> _Rows:
        """Some of the rows, by mask or index."""
        clusters = None if self.clusters is None else self.clusters[rows]
        return _Rows(self.X[rows], self.target[rows], self.weight[rows], rows, clusters, self.copies, self.label)


def _class_leakage(
    train: _Rows, test: _Rows | None, probe: Kind, cv: Any, penalty: float | None, level: float, rng: Any
) -> Leakage:
    label = train.label
    assert label is not None
    k, named = len(label.classes), [f"{label.name}={value!s}" for value in label.classes]

    def fit(rows: _Rows) -> Callable[[Array], FloatArray]:
        _require_rows(rows.target, named, 2, "to train a probe on")
        rows = rows.select(_drawn(rows.target, rng))
        weight = balanced(rows.weight, rows.target)
        if probe == "mlp":
            return SmallNetwork(rows.X, rows.target, weight, rng, rows.clusters).log_proba
        fold = inner_folds(rows.target, rng, rows.clusters)
        return linear_probe(rows.X, rows.target, weight, fold, penalty).log_proba

    splits = [] if test is not None else _class_folds(cv, train, named, rng)
    log_p, tested, inflation = _predictions(train, test, fit, splits)
    codes, weight = tested.target, tested.weight
    _require_rows(codes, named, 1, "to test the probe on")
    right = (np.argmax(log_p, axis=1) == codes) * 1.0
    recall = np.bincount(codes, weights=weight * right) / np.bincount(codes, weights=weight)
    effective = _effective_rows(right, codes, weight)
    if tested.clusters is not None:
        held_out = HeldOutClusters.in_groups(tested.clusters, codes, k, weight)
        effective = cluster_effective_rows(effective, recall, right, held_out, level)
    effective = effective / inflation
    low, high = mean_interval(recall, effective, float(norm.isf(tail_probability(level))))
    return Leakage(
        accuracy=float(recall.mean()),
        chance=1.0 / k,
        low=low,
        high=high,
        p=p_above(recall, effective, 1.0 / k),
        loss=-float(balanced(weight, codes) @ log_p[np.arange(len(codes)), codes]),
        chance_loss=float(np.log(k)),
        recall=tuple(recall.tolist()),
        classes=label.classes,
        rows=len(codes),
        probe=probe,
        level=level,
        notes=(*_notes_on_copies(train, test, splits), *scale_notes(train.X)),
    )


def _number_leakage(
    train: _Rows, test: _Rows | None, cv: Any, penalty: float | None, level: float, rng: np.random.Generator
) -> NumericLeakage:
    if np.ptp(train.target) == 0:
        raise LabelError("concept is the same number in all rows; there is nothing to predict.")

    def fit(rows: _Rows) -> Callable[[Array], FloatArray]:
        if len(rows.X) < MIN_TRAINING_ROWS:
            raise GroupSizeError(
                f"There are {len(rows.X)} rows to train a probe on; at least {MIN_TRAINING_ROWS} are needed."
            )
        rows = rows.select(_drawn(np.zeros(len(rows.X), dtype=np.intp), rng))
        fold = inner_folds(np.zeros(len(rows.X), dtype=np.intp), rng, rows.clusters)
        predict, mean = ridge(rows.X, rows.target, rows.weight, fold, penalty)
        return lambda X: np.column_stack([predict(X), np.full(len(X), mean)])

    splits = [] if test is not None else _number_folds(cv, train, rng)
    predicted, tested, inflation = _predictions(train, test, fit, splits)
    r2, low, high, p = r2_summary(
        tested.target, predicted[:, 0], predicted[:, 1], tested.weight, inflation, level, tested.clusters
    )
    notes = (*_notes_on_copies(train, test, splits), *scale_notes(train.X))
    return NumericLeakage(r2, low, high, p, len(predicted), level, notes)


def _predictions(
    train: _Rows, test: _Rows | None, fit: Callable[[_Rows], Callable[[Array], FloatArray]], splits: Splits
) -> tuple[FloatArray, _Rows, float]:
    """Predictions for the test rows, or for each fold from the others, with the rows that were predicted.

    Also returns the variance of their errors relative to independent rows.
    """
    if test is not None:
        return fit(train)(test.X), test, 1.0
    parts = [fit(train.select(others))(train.X[rows]) for others, rows in splits]
    order = np.concatenate([rows for _, rows in splits])
    sequence = np.argsort(order, kind="stable")
    inflation = CROSS_FIT_VARIANCE_RATIO if len(parts) > 1 else 1.0
    return np.concatenate(parts)[sequence], train.select(order[sequence]), inflation


def _drawn(codes: IntArray, rng: np.random.Generator) -> IntArray:
    """At most `MAX_TRAINING_ROWS` rows, drawn with the shares of the classes; 100 of a rare class."""
    counts = np.bincount(codes)
    if len(codes) <= MAX_TRAINING_ROWS:
        return np.arange(len(codes))
    wanted = np.minimum(counts, np.maximum(100, np.ceil(MAX_TRAINING_ROWS * counts / len(codes)).astype(np.intp)))
    drawn = [rng.permutation(np.flatnonzero(codes == code))[:count] for code, count in enumerate(wanted)]
    return np.sort(np.concatenate(drawn))


def balanced(weight: FloatArray, codes: IntArray) -> FloatArray:
    """Weights in which every class present has the same total, all of them summing to one."""
    total = np.bincount(codes, weights=weight)
    return np.asarray(weight / total[codes] / np.count_nonzero(total), dtype=np.float64)


def r2_summary(
    numbers: FloatArray,
    predicted: FloatArray,
    mean: Any,
    weight: FloatArray,
    inflation: float,
    level: float,
    clusters: IntArray | None = None,
) -> tuple[float, float, float, float]:
    """R², its bounds and p-value: a ratio of means of rows, with Fieller's interval at Student's quantile.

    The test inverts the interval. On small sets the linearised error of a ratio is too small (a 95 % interval of 10
    rows covers 86 %), and Fieller's covers at its level. `inflation` is how much larger the variance is since folds
    share rows. With `clusters` (n,) variances are cluster-robust, and so are the degrees of freedom.
    """
    share = weight / weight.sum()
    unit = np.abs(numbers).max() or 1.0  # R² does not depend on it, and squares do not overflow
    without, left = ((numbers - mean) / unit) ** 2, ((numbers - predicted) / unit) ** 2
    scale = float(share @ without)
    if not scale > 0:
        raise LabelError("concept is the same number in all test rows; there is nothing to predict.")
    r2 = 1.0 - float(share @ left) / scale
    gain = without - left
    covariance, degrees = _covariance_of_means(np.stack([gain, without]), share, clusters)
    (of_gain, of_both), (_, of_without) = (inflation * covariance).tolist()
    mean_gain, quantile = float(share @ gain), float(student.isf((1 - level) / 2, degrees))
    error = float(np.sqrt(of_gain))
    p = float(student.sf(mean_gain / error, degrees)) if error > 0 else float(0.5 if r2 <= 0 else 0.0)
    # All v for which the mean of gain − v·without is not told from 0, between the roots of a v² − 2 b v + c.
    a = scale**2 - quantile**2 * of_without
    b = mean_gain * scale - quantile**2 * of_both
    c = mean_gain**2 - quantile**2 * of_gain
    if not a > 0:  # a few rows hold most of the variance: nothing bounds it but 1
        return r2, min(0.0, r2 - quantile * error / scale), 1.0, max(p, (1 - level) / 2)
    root = float(np.sqrt(max(0.0, b**2 - a * c)))
    return r2, min(r2, (b - root) / a), min(1.0, max(r2, (b + root) / a)), p


def _covariance_of_means(values: FloatArray, share: FloatArray, clusters: IntArray | None) -> tuple[FloatArray, float]:
    """Covariance (k, k) of the means of k series (k, n) of rows with some shares, and its degrees of freedom."""
    held_out = None if clusters is None else HeldOutClusters.in_groups(clusters, np.zeros_like(clusters), 1, share)
    n = 1.0 / float(np.sum(share**2)) if held_out is None else float(held_out.effective[0])
    if n < MIN_TEST_ROWS * (1 - 1e-9):
        what = "rows" if clusters is None else "clusters"
        raise GroupSizeError(
            f"The probe is tested on {n:.3g} {what}, counted by their weights; at least {MIN_TEST_ROWS} are needed. "
            f"Pass more {what}."
        )
    if held_out is None:
        deviations = share * (values - (values @ share)[:, None])
        return deviations @ deviations.T * n / (n - 1), n - 1
    # The square of the error of one group is a quadratic form, so it gives covariances as well.
    sums = [[average_error(one + other, held_out) for other in values] for one in values]
    square = np.array([[error**2 for error, _ in line] for line in sums])
    own = np.diag(square) / 4.0
    return (square - own[:, None] - own) / 2.0, sums[0][0][1]


def _effective_rows(right: FloatArray, codes: IntArray, weight: FloatArray) -> FloatArray:
    """Effective number of rows of each class, shape (k,): as many rows of equal weight tell as much about its recall.

    ``(Σω)² / Σω²`` (Kish) if weights are unrelated to errors. If heavy rows have more errors, the variance of the
    recall is larger, so it is the number that explains the observed variance, ``Σω²(r − r̄)² / (Σω)²``.
    """
    total, squares = np.bincount(codes, weights=weight), np.bincount(codes, weights=weight**2)
    recall = np.bincount(codes, weights=weight * right) / total
    seen = np.bincount(codes, weights=(weight * (right - recall[codes])) ** 2)
    usual = recall * (1 - recall) * squares
    return np.asarray(
        total**2 / squares / np.maximum(1.0, np.divide(seen, usual, out=np.ones_like(seen), where=usual > 0))
    )


def cluster_effective_rows(
    effective: FloatArray, recall: FloatArray, right: FloatArray, clusters: HeldOutClusters, level: float
) -> FloatArray:
    """Effective rows of each class if rows come in clusters, shape (k,): the number that explains the variance.

    The variance of the mean recall is cluster-robust, and Student's quantile in place of the normal one accounts for
    few clusters. Without any variation it is the number of clusters.
    """
    usual = float(np.sum(recall * (1 - recall) / effective)) / len(recall) ** 2
    if usual <= 0:
        return np.minimum(effective, clusters.effective)
    error, degrees = average_error(right, clusters)
    tail = tail_probability(level)
    wider = float(student.isf(tail, degrees) / norm.isf(tail))
    return np.asarray(effective / max(1.0, error**2 / usual) / wider**2)


def _notes_on_copies(train: _Rows, test: _Rows | None, splits: Splits) -> tuple[str, ...]:
    """Notes on duplicates: in a set, on both sides of given folds, and in training and test set."""
    notes = []
    for rows, name in ((train, "X"), (test, "X_test")):
        if rows is not None and rows.copies:
            assert rows.clusters is not None
            which = f"{len(rows.X) - int(rows.clusters.max()) - 1:,} of {len(rows.X):,} rows of {name}"
            notes.append(f"{which} are duplicates of others and count once with them")
    if train.copies and _torn(train, splits):
        notes.append("cv puts duplicates of a row on both sides of a fold, so that noise looks like a finding")
    if test is not None:
        hashes = row_hashes(train.X)
        shared = int(np.isin(row_hashes(test.X), hashes).sum())
        if shared and has_continuous_columns(train.X[distinct_row_indices(hashes)]):
            notes.append(f"{shared:,} rows of X_test are duplicates of rows of X, on which the probe was trained")
    return tuple(notes)


def _torn(rows: _Rows, splits: Splits) -> bool:
    """Whether a cluster has rows in a training set and in its test set."""
    clusters = rows.clusters
    return clusters is not None and any(np.isin(clusters[train], clusters[test]).any() for train, test in splits)


def _given_folds(cv: Any, rows: _Rows) -> Splits:
    """Folds of a user; clusters must be on one side, unless they are copies of a row."""
    splits = splits_of_known(cv, rows.known, rows.target, None if rows.copies else rows.clusters, rows.X)
    if not rows.copies and _torn(rows, splits):
        raise InputError(
            "cv: a cluster has rows in a training set and in its test set. Use an int, or a splitter that keeps "
            "clusters together, such as GroupKFold()."
        )
    return splits


def fold_pairs(fold: IntArray) -> Splits:
    """Training and test rows of each fold that has rows."""
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]


def _cluster_folds(clusters: IntArray, folds: int, rng: np.random.Generator, group: IntArray) -> Splits:
    return fold_pairs(folds_by_cluster(renumbered(clusters), group, np.full(folds, 1.0 / folds), rng))


def _number_folds(cv: Any, rows: _Rows, rng: np.random.Generator) -> Splits:
    if not isinstance(cv, Integral):
        return _given_folds(cv, rows)
    cv = _checked_folds(cv)
    clusters, n = rows.clusters, len(rows.X)
    number = n if clusters is None else len(np.unique(clusters))
    needed = max(2 * MIN_TRAINING_ROWS if clusters is None else MIN_TEST_ROWS, cv)
    if number < needed:
        what = "rows" if clusters is None else "clusters"
        raise GroupSizeError(f"There are {number} {what} with a concept in {cv} folds; at least {needed} are needed.")
    if clusters is not None:
        return _cluster_folds(clusters, cv, rng, np.zeros(n, dtype=np.intp))
    return list(KFold(cv, shuffle=True, random_state=int(rng.integers(2**31))).split(rows.X))


def _class_folds(cv: Any, rows: _Rows, named: list[str], rng: np.random.Generator) -> Splits:
    codes, clusters = rows.target, rows.clusters
    if not isinstance(cv, Integral):
        return _given_folds(cv, rows)
    cv = _checked_folds(cv)
    _require_rows(codes, named, max(cv, 3), f"in {cv} folds")
    if clusters is None:
        splitter = StratifiedKFold(cv, shuffle=True, random_state=int(rng.integers(2**31)))
        return list(splitter.split(codes, codes))  # only the labels are looked at
    for code, name in enumerate(named):
        if (number := len(np.unique(clusters[codes == code]))) < 2:
            raise GroupSizeError(
                f"Rows with {name} lie in {number} cluster, and rows of one cluster share a fold; at least 2 are "
                "needed. Pass rows of more clusters."
            )
    return _cluster_folds(clusters, cv, rng, codes)


def _checked_folds(cv: Any) -> int:
    if cv < 2:
        raise InputError(f"cv must be 2 or more folds; got {cv}.")
    return int(cv)


def _require_rows(codes: IntArray, named: list[str], least: int, why: str) -> None:
    for count, name in zip(np.bincount(codes, minlength=len(named)), named, strict=True):
        if count < least:
            raise GroupSizeError(
                f"There are {count} rows with {name} {why}; at least {least} are needed. Pass more rows or fewer folds."
            )
