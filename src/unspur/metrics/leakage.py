"""Leakage: how well a fresh probe predicts a concept from rows that it was not trained on.

Classes are predicted by a classifier and compared with guessing; a number is predicted by ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.model_selection import KFold, StratifiedKFold

from unspur._arrays import renumbered
from unspur._resources import map_blocks, one_blas_thread
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
from unspur.labels import ClassLabel, class_label, numeric_column
from unspur.metrics.groups import mean_interval, p_above, require_level, tail_probability
from unspur.metrics.probes import (
    Kind,
    ScaledRows,
    Units,
    balanced,
    checked_rows,
    prepare_probe,
    scale_notes,
    units_to_try,
)
from unspur.options import storable
from unspur.solvers.held_out_losses import HeldOutClusters, average_error

#: Penalties of the ridge regression to choose from, in units of the mean variance of the rows.
RIDGE_PENALTIES = (1e4, 1e3, 1e2, 10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 0.0)
#: Largest value of rows below which their squares may vanish.
MIN_SIZE = 1e-100
#: Folds of the training rows on which a penalty is chosen.
RIDGE_FOLDS = 3
#: Fewest rows to train a probe of a number on, and fewest rows or clusters to test it on.
MIN_TRAINING_ROWS, MIN_TEST_ROWS = 6, 10
#: Extreme values are at most this share of all values (or one value), hold more than this share of the squared
#: deviations, and lie this many times as far out as the next. Of 500 lognormal numbers, 2 % of samples have some.
EXTREME_SHARE, EXTREME_DEVIATION_SHARE, EXTREME_DISTANCE_RATIO = 0.01, 0.5, 3.0
#: More rows than that may be extreme if they share at most this many values, as codes for "missing" do.
MAX_EXTREME_CODES = 3
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
        return cls(**{**saved, "notes": tuple(saved.get("notes", ()))})

    def __str__(self) -> str:
        text = (
            f"linear probe: R² {self.r2:.3f} ({self.low:.3f} – {self.high:.3f}; 0 = no information; "
            f"p {_p_text(self.p)}), {self.rows} rows"
        )
        return "; ".join([text, *self.notes])


def extreme_values_note(numbers: FloatArray, name: str, weight: FloatArray | None = None) -> str:
    """A warning if a few values, far from all others, hold most of the variance of a number; else "".

    "A few" is 1 % of the rows, or up to half of them if they share one to three values, as codes do. Deviations are
    from the median, which few values do not move. A number whose other values are all the same gets no warning: the few
    are all that there is to predict.
    """
    weight = np.ones(len(numbers)) if weight is None else weight
    known = np.isfinite(numbers) & (weight > 0)
    values, weight = numbers[known], weight[known]
    most_extremes = max(1, int(EXTREME_SHARE * len(values)))
    if len(values) < 3:
        return ""
    order = np.argsort(-np.abs(values - np.median(values)), kind="stable")
    distance = np.abs(values - np.median(values))[order]
    cumulative = np.zeros(len(distance))
    if distance[0] > 0:
        cumulative = np.cumsum(weight[order] * (distance / distance[0]) ** 2)
    jump = (distance[:-1] > EXTREME_DISTANCE_RATIO * distance[1:]) & (distance[1:] > 0)
    candidates = np.flatnonzero(jump & (cumulative[:-1] > EXTREME_DEVIATION_SHARE * cumulative[-1])) + 1

    def look_like_codes(k: int) -> bool:
        return 2 * k < len(values) and len(np.unique(values[order[:k]])) <= min(MAX_EXTREME_CODES, k // 2)

    ends = [k for k in candidates.tolist() if k <= most_extremes or look_like_codes(k)]
    if not ends:
        return ""
    k = ends[-1]
    outside = np.unique(values[order[:k]])
    shown = ", ".join(map(_exact, outside[:4])) + (", …" if len(outside) > 4 else "")
    share = min(99.9, 100 * cumulative[k - 1] / cumulative[-1])
    question = "Is it a code" if len(outside) == 1 else "Are they codes"
    return (
        f"{k:,} of {len(values):,} values of {name} {'holds' if k == 1 else 'hold'} {share:.3g} % of its variance: "
        f"{shown}. {question} for a missing value? Then pass missing_concept={_exact(outside[-1])}, or NaN in these "
        "rows. If not, clip or transform the number (its logarithm, its rank); otherwise the result depends on these "
        "rows alone"
    )


def _exact(value: float) -> str:
    """A number in as few digits as give the same number again."""
    short = f"{value:.6g}"
    return short if float(short) == value else repr(float(value))


def _ridge(
    X: Array,
    numbers: FloatArray,
    weight: FloatArray,
    penalty: float | None,
    rng: np.random.Generator,
    clusters: IntArray | None = None,
) -> tuple[Callable[[Array], FloatArray], float]:
    """Fit a ridge regression; return its predictor and the mean of the numbers.

    If no penalty is given, cross-validation chooses it, and the units of the columns, by squared error. Its folds keep
    clusters together, unless there are too few of them.
    """
    if len(X) < MIN_TRAINING_ROWS:
        raise GroupSizeError(f"There are {len(X)} rows to train a probe on; at least {MIN_TRAINING_ROWS} are needed.")
    if penalty is not None and not penalty > 0:
        raise InputError(f"penalty must be positive, in units of the mean variance of X; got {penalty}.")
    mean = float(np.average(numbers, weights=weight))
    if penalty is not None:
        chosen: tuple[Units, float] = ("raw", penalty)
    else:
        units = units_to_try(X)
        cost = np.zeros((len(units), len(RIDGE_PENALTIES)))
        if clusters is not None and len(np.unique(clusters)) >= RIDGE_FOLDS:
            fold = _whole_clusters(clusters, RIDGE_FOLDS, rng)
        else:
            fold = rng.permutation(np.arange(len(X)) % RIDGE_FOLDS)
        for k in range(RIDGE_FOLDS):
            train, test = fold != k, fold == k
            for i, name in enumerate(units):
                scaled, weights, bias = _solutions(X[train], numbers[train], weight[train], name, RIDGE_PENALTIES)
                predicted = ((X[test] - scaled.centre) / scaled.unit) @ weights + bias
                cost[i] += weight[test] @ (predicted - numbers[test, None]) ** 2
        best = np.unravel_index(int(np.argmin(cost)), cost.shape)
        chosen = (units[best[0]], RIDGE_PENALTIES[best[1]])
    scaled, weights, bias = _solutions(X, numbers, weight, chosen[0], (chosen[1],))
    return lambda rows: np.asarray(((rows - scaled.centre) / scaled.unit) @ weights[:, 0] + bias), mean


def _solutions(
    X: Array, numbers: FloatArray, weight: FloatArray, units: Units, penalties: tuple[float, ...]
) -> tuple[ScaledRows, FloatArray, float]:
    """Scaled rows, weights (d, m) of ridge regressions on them, and the bias of all."""
    scaled = ScaledRows(X, weight, robust=units == "robust")
    axes = scaled.axes(units)
    mean = float(scaled.share @ numbers)
    covariance = scaled.scores(axes).T @ (scaled.share * (numbers - mean))
    decay = np.array([axes.decay(penalty) for penalty in penalties])
    return scaled, axes.lift(covariance[:, None] / (axes.variance[:, None] + decay)), mean


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
    without, left = (numbers - mean) ** 2, (numbers - predicted) ** 2
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
    n = 1.0 / float(np.sum(share**2))
    if clusters is None:
        if n < MIN_TEST_ROWS * (1 - 1e-9):
            raise GroupSizeError(
                f"There are {len(share)} rows to test the probe on, {n:.3g} by their weights; at least "
                f"{MIN_TEST_ROWS} are needed. Pass more rows."
            )
        deviations = share * (values - (values @ share)[:, None])
        return deviations @ deviations.T * n / (n - 1), n - 1
    held_out = HeldOutClusters.in_groups(clusters, np.zeros_like(clusters), 1, share)
    effective = float(held_out.effective[0])
    if effective < MIN_TEST_ROWS * (1 - 1e-9):
        raise GroupSizeError(
            f"There are {len(np.unique(clusters))} clusters to test the probe on, {effective:.3g} by their sizes and "
            f"weights; at least {MIN_TEST_ROWS} are needed. Pass rows of more clusters."
        )
    # The square of the error of one group is a quadratic form, so it gives covariances as well.
    sums = [[average_error(one + other, held_out) for other in values] for one in values]
    square = np.array([[error**2 for error, _ in line] for line in sums])
    own = np.diag(square) / 4.0
    return (square - own[:, None] - own) / 2.0, sums[0][0][1]


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
        return {
            **asdict(self),
            "recall": list(self.recall),
            "classes": storable(self.classes),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        text = (
            f"{self.probe} probe: balanced accuracy {100 * self.accuracy:.1f} % ({100 * self.low:.1f} – "
            f"{100 * self.high:.1f}; chance {100 * self.chance:.1f}; p {_p_text(self.p)}), "
            f"loss {self.loss:.3f} (chance {self.chance_loss:.3f}), {self.rows} rows"
        )
        below = ["below chance: were these rows used to fit the removal?"] if self.below_chance else []
        return "; ".join([text, *below, *self.notes])


class _Options(TypedDict, total=False):
    """Keywords of `leakage` that do not decide what it returns."""

    probe: Kind
    cv: Any
    X_test: Array | None
    concept_test: Array | None
    sample_weight: Array | None
    sample_weight_test: Array | None
    penalty: float | None
    clusters: Array | None
    clusters_test: Array | None
    missing_concept: Any
    level: float
    random_state: Any


@overload
def leakage(
    X: Array, concept: Array, *, concept_type: Literal["class"] = ..., **options: Unpack[_Options]
) -> Leakage: ...
@overload
def leakage(
    X: Array, concept: Array, *, concept_type: Literal["continuous"], **options: Unpack[_Options]
) -> NumericLeakage: ...
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
) -> Leakage | NumericLeakage:
    """How well a fresh probe predicts the concept from rows it was not trained on.

    Without a test set every row is predicted by a probe trained on the other folds. Every class of the concept has the
    same weight, in training and in what is reported, so guessing has accuracy 1/k and loss log k however unequal the
    classes are.

    Parameters
    ----------
    X, concept : rows (n, d) and their label (n,) of two or more classes, or a number; rows where it is missing are
        ignored.
    probe : "linear" (the best of several linear classifiers on folds of the training rows: logistic regression and
        discriminant analysis, in several units) or "mlp" (one hidden layer of 64 units).
    concept_type : "class", or "continuous" for a number. A number is predicted by ridge regression, and the result is a
        NumericLeakage: R² out of sample, 0 if the rows say nothing.
    cv : number of folds (stratified by concept, drawn at random), a splitter of the rows with a known concept, or pairs
        of index arrays (train, test) into the rows of X. A PredefinedSplit may be of all rows of X too.
    X_test, concept_test : rows to test the probe on, instead of folds.
    sample_weight, sample_weight_test : weights of rows, in training and in what is reported.
    penalty : of logistic (or ridge) regression on the unscaled columns, in units of the mean variance; with None the
        probe and its penalty are chosen on folds of the training rows.
    clusters, clusters_test : which rows belong together (frames of one film), by labels of any hashable kind. Rows of a
        cluster share a fold, and interval and p count clusters; ignoring clusters makes both too optimistic. Without
        them, exact duplicates of a row are a cluster, and a note says so.

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
    if X_test is not None:
        require_disjoint_clusters(clusters, clusters_test, "test")
    for name, given in (("concept", concept), ("concept_test", concept_test)):
        if isinstance(given, Mapping):
            raise LabelError(
                f"{name} is a mapping of columns ({', '.join(map(str, given))}), and leakage measures one. Pass the "
                f"column itself, such as {name}[{next(iter(given), '…')!r}]."
            )
    rng = np.random.default_rng(random_state)
    require_same_columns({"X": X, "X_test": X_test})
    X, X_test = _in_range(checked_rows(X), None if X_test is None else checked_rows(X_test))
    if concept_type == "continuous":
        if probe != "linear":
            raise InputError(f"A number is predicted by a linear probe only; got probe={probe!r}.")
        numbers = _numbers(concept, len(X), missing_concept)
        train = _known_rows(X, numbers, np.isfinite(numbers), sample_weight, clusters)
        test = None
        if X_test is not None:
            truth = _numbers(concept_test, len(X_test), missing_concept)
            test = _known_rows(X_test, truth, np.isfinite(truth), sample_weight_test, clusters_test, "_test")
        return _number_leakage(train, test, cv, penalty, level, rng)
    if concept_type != "class":
        raise InputError(f"concept_type is 'class' or 'continuous'; got {concept_type!r}.")
    label = _decoded(concept, len(X), missing_concept)
    train = _known_rows(X, label.codes, label.present, sample_weight, clusters)
    test = None
    if X_test is not None:
        tested = _decoded(concept_test, len(X_test), missing_concept, label)
        test = _known_rows(X_test, tested.codes, tested.present, sample_weight_test, clusters_test, "_test")
    return _class_leakage(train, test, label, probe, cv, penalty, level, rng)


def _in_range(X: Array, X_test: Array | None) -> tuple[Array, Array | None]:
    """The rows, times a power of two if their squares would vanish; probes do not depend on the unit."""
    largest = max(float(np.abs(rows).max(initial=0.0)) for rows in (X, X_test) if rows is not None)
    if largest == 0.0 or largest > MIN_SIZE:
        return X, X_test
    unit = -int(np.frexp(largest)[1])
    return np.ldexp(X, unit), None if X_test is None else np.ldexp(X_test, unit)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows with a known target (codes or numbers) and a positive weight; `known` says which of all rows they are.

    `duplicates` says that the clusters are copies of rows, found here.
    """

    X: Array
    target: Array
    weight: FloatArray
    known: BoolArray
    clusters: IntArray | None
    duplicates: bool = False


def _known_rows(
    X: Array, target: Array, present: BoolArray, sample_weight: Array | None, clusters: Array | None, suffix: str = ""
) -> _Rows:
    n = len(X)
    weight = checked_weights(sample_weight, f"sample_weight{suffix}", n)
    known = present & (weight > 0)
    if not known.all():
        X, target, weight = X[known], target[known], weight[known]
    if clusters is not None:
        return _Rows(X, target, weight, known, cluster_codes(clusters, f"clusters{suffix}", n)[known])
    # Numbers of copies may differ by anything, such as the time of an upload; different classes tell rows apart.
    hashes = row_hashes(X)
    found = duplicate_clusters(hashes, [] if target.dtype.kind == "f" else [target])
    if found is None or not has_continuous_columns(X[distinct_row_indices(hashes)]):
        return _Rows(X, target, weight, known, None)
    return _Rows(X, target, weight, known, found, duplicates=True)


def _notes_on_copies(train: _Rows, test: _Rows | None, splits: list[tuple[Array, Array]]) -> tuple[str, ...]:
    """Notes on copies of rows: in a set, on both sides of given folds, and in training and test set."""
    notes = []
    for rows, name in ((train, "X"), (test, "X_test")):
        if rows is not None and rows.duplicates:
            assert rows.clusters is not None
            which = f"{len(rows.X) - int(rows.clusters.max()) - 1:,} of {len(rows.X):,} rows of {name}"
            notes.append(f"{which} are duplicates of others and count once with them")
    if train.duplicates and _torn(train, splits):
        notes.append("cv puts duplicates of a row on both sides of a fold, so that noise looks like a finding")
    if test is not None:
        hashes = row_hashes(train.X)
        shared = int(np.isin(row_hashes(test.X), hashes).sum())
        if shared and has_continuous_columns(train.X[distinct_row_indices(hashes)]):
            notes.append(f"{shared:,} rows of X_test are duplicates of rows of X, on which the probe was trained")
    return tuple(notes)


def _torn(rows: _Rows, splits: list[tuple[Array, Array]]) -> bool:
    """Whether a cluster has rows in a training set and in its test set."""
    clusters = rows.clusters
    return clusters is not None and any(np.isin(clusters[train], clusters[test]).any() for train, test in splits)


def _decoded(concept: Array, n_rows: int, missing: Any, like: ClassLabel | None = None) -> ClassLabel:
    """The classes of the concept; a label that is decoded already keeps its name."""
    name = like.name if like is not None else (concept.name if isinstance(concept, ClassLabel) else "") or "concept"
    return class_label(concept, name, n_rows, missing=missing, classes=None if like is None else like.classes)


def _class_leakage(
    train: _Rows,
    test: _Rows | None,
    label: ClassLabel,
    probe: Kind,
    cv: Any,
    penalty: float | None,
    level: float,
    rng: np.random.Generator,
) -> Leakage:
    k, codes = len(label.classes), train.target
    named = [f"{label.name}={value!s}" for value in label.classes]

    def prepare(rows: Array) -> Callable[[Array], FloatArray]:
        for code in range(k):
            _require(int(np.sum(codes[rows] == code)), 2, named[code], "to train a probe on")
        weight = balanced(train.weight[rows], codes[rows])
        cluster = None if train.clusters is None else train.clusters[rows]
        fit = prepare_probe(probe, codes[rows], k, weight, rng, penalty, cluster)
        return lambda tested: fit(train.X[rows]).log_proba(tested)

    splits = [] if test is not None else _class_folds(cv, train, named, rng)
    log_p, tested, inflation = _predictions(train, test, prepare, splits, in_threads=probe == "linear")
    codes, weight = tested.target, tested.weight
    rows = np.bincount(codes, minlength=k)
    for code in range(k):
        _require(int(rows[code]), 1, named[code], "to test the probe on")
    right = (np.argmax(log_p, axis=1) == codes) * 1.0
    recall = np.bincount(codes, weights=weight * right) / np.bincount(codes, weights=weight)
    effective = _effective_rows(right, codes, weight)
    if tested.clusters is not None:
        held_out = HeldOutClusters.in_groups(tested.clusters, codes, k, weight)
        effective = cluster_effective_rows(effective, recall, np.asarray(right, dtype=np.float64), held_out, level)
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
    train: _Rows,
    test: _Rows | None,
    cv: Any,
    penalty: float | None,
    level: float,
    rng: np.random.Generator,
) -> NumericLeakage:
    if np.ptp(train.target) == 0:
        raise LabelError("concept is the same number in all rows; there is nothing to predict.")
    notes = [extreme_values_note(train.target, "concept", train.weight)]
    largest = np.abs(train.target).max(initial=0.0)
    if test is not None:
        notes.append(extreme_values_note(test.target, "concept_test", test.weight))
        largest = max(largest, np.abs(test.target).max(initial=0.0))
    # R² does not depend on the unit, and squares in this one neither overflow nor vanish.
    unit = -int(np.frexp(largest)[1])
    train = replace(train, target=np.ldexp(train.target, unit))
    test = None if test is None else replace(test, target=np.ldexp(test.target, unit))

    def prepare(rows: Array) -> Callable[[Array], FloatArray]:
        cluster = None if train.clusters is None else train.clusters[rows]
        predict, mean = _ridge(train.X[rows], train.target[rows], train.weight[rows], penalty, rng, cluster)
        return lambda tested: np.column_stack([predict(tested), np.full(len(tested), mean)])

    splits = [] if test is not None else _number_folds(cv, train, rng)
    predicted, tested, inflation = _predictions(train, test, prepare, splits)
    r2, low, high, p = r2_summary(
        tested.target, predicted[:, 0], predicted[:, 1], tested.weight, inflation, level, tested.clusters
    )
    notes += [*_notes_on_copies(train, test, splits), *scale_notes(train.X)]
    return NumericLeakage(r2, low, high, p, len(predicted), level, tuple(filter(None, notes)))


def _predictions(
    train: _Rows,
    test: _Rows | None,
    prepare: Callable[[Array], Callable[[Array], FloatArray]],
    splits: list[tuple[Array, Array]],
    *,
    in_threads: bool = False,
) -> tuple[FloatArray, _Rows, float]:
    """Predictions for the test rows, or for each fold from the others, by ``prepare(training rows)(X)``.

    With `in_threads`, functions that were prepared run at the same time; `prepare` itself is called fold by fold. Also
    returns the rows that were predicted, and the variance of their errors relative to independent rows.
    """
    if test is not None:
        if test.X.shape[1] != train.X.shape[1]:
            raise InputError(f"X_test has {test.X.shape[1]} columns, X has {train.X.shape[1]}. They must be the same.")
        return prepare(np.arange(len(train.X)))(test.X), test, 1.0
    tasks = [(prepare(others), rows) for others, rows in splits]
    with one_blas_thread():  # in any thread, for the same result to the last bit
        parts = list((map_blocks if in_threads else map)(lambda task: task[0](train.X[task[1]]), tasks))
    seen = np.zeros(len(train.X), dtype=bool)
    found = np.zeros((len(train.X), parts[0].shape[1]))
    for (_, rows), values in zip(splits, parts, strict=True):
        seen[rows], found[rows] = True, values
    inflation = CROSS_FIT_VARIANCE_RATIO if len(parts) > 1 else 1.0
    if seen.all():
        return found, train, inflation
    cluster = None if train.clusters is None else train.clusters[seen]
    return found[seen], _Rows(train.X[seen], train.target[seen], train.weight[seen], seen, cluster), inflation


def _numbers(values: Array, n_rows: int, missing: Any) -> FloatArray:
    """A numeric concept, shape (n,), NaN where it is missing; LabelError if that is everywhere."""
    numbers = numeric_column(values, "concept", n_rows, missing)
    if not np.isfinite(numbers).any():
        raise LabelError(f"concept is missing in all {n_rows} rows.")
    return numbers


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


def _whole_clusters(clusters: IntArray, folds: int, rng: np.random.Generator, group: Any = None) -> IntArray:
    """Fold of each row, shape (n,), with all rows of a cluster in one."""
    codes = renumbered(clusters)
    return folds_by_cluster(codes, np.zeros_like(codes) if group is None else group, np.full(folds, 1.0 / folds), rng)


def _given_folds(cv: Any, rows: _Rows) -> list[tuple[Array, Array]]:
    """Folds of a user; clusters must be on one side, unless they are copies of a row."""
    given = None if rows.duplicates else rows.clusters
    splits = splits_of_known(cv, rows.known, rows.target, given, rows.X)
    if not rows.duplicates and _torn(rows, splits):
        raise InputError(
            "cv: a cluster has rows in a training set and in its test set. Use an int, or a splitter that keeps "
            "clusters together, such as GroupKFold()."
        )
    return splits


def fold_pairs(fold: IntArray) -> list[tuple[Array, Array]]:
    """Training and test rows of each fold that has rows."""
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]


def _number_folds(cv: Any, rows: _Rows, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    if not isinstance(cv, Integral):
        return _given_folds(cv, rows)
    _require_folds(cv)
    if rows.clusters is not None:
        if (number := len(np.unique(rows.clusters))) < max(MIN_TEST_ROWS, int(cv)):
            raise GroupSizeError(
                f"Rows with a concept lie in {number} clusters, and rows of one cluster share a fold; at least "
                f"{max(MIN_TEST_ROWS, int(cv))} are needed in {cv} folds. Pass rows of more clusters."
            )
        return fold_pairs(_whole_clusters(rows.clusters, int(cv), rng))
    needed, n = max(2 * MIN_TRAINING_ROWS, int(cv)), len(rows.X)
    if n < needed:
        raise GroupSizeError(f"There are {n} rows with a concept in {cv} folds; at least {needed} are needed.")
    return list(KFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31))).split(rows.X))


def _class_folds(cv: Any, rows: _Rows, named: list[str], rng: np.random.Generator) -> list[tuple[Array, Array]]:
    codes, clusters = rows.target, rows.clusters
    if not isinstance(cv, Integral):
        return _given_folds(cv, rows)
    _require_folds(cv)
    for code, count in enumerate(np.bincount(codes, minlength=len(named))):
        _require(int(count), max(int(cv), 3), named[code], f"in {cv} folds")
    if clusters is None:
        splitter = StratifiedKFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
        return list(splitter.split(codes, codes))  # only the labels are looked at
    for code, name in enumerate(named):
        if (number := len(np.unique(clusters[codes == code]))) < 2:
            raise GroupSizeError(
                f"Rows with {name} lie in {number} cluster, and rows of one cluster share a fold; at least 2 are "
                "needed. Pass rows of more clusters."
            )
    return fold_pairs(_whole_clusters(clusters, int(cv), rng, codes))


def _require_folds(cv: Any) -> None:
    if cv < 2:
        raise InputError(f"cv must be 2 or more folds; got {cv}.")


def _require(rows: int, least: int, which: str, why: str) -> None:
    if rows < least:
        raise GroupSizeError(
            f"There are {rows} rows with {which} {why}; at least {least} are needed. Pass more rows or fewer folds."
        )


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
