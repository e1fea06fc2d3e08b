"""How well a label or a number can still be read off rows, out of sample.

A label is read by a fresh classifier, against chance; a number is predicted by a linear function of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.model_selection import KFold, StratifiedKFold

from unspur._arrays import on_numpy
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import cluster_codes, clusters_in_two, folds_by_cluster, shared_clusters, splits_of_known
from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur.labels import as_label
from unspur.metrics.groups import mean_interval, p_above
from unspur.metrics.probes import Kind, ScaledRows, Units, balanced, checked_rows, fit_probe, scale_notes, units_to_try
from unspur.solvers.held_out_losses import HeldOutClusters, average_error

#: Penalties of the ridge regression to choose from, in units of the mean variance of the rows.
PENALTIES = (1e4, 1e3, 1e2, 10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 0.0)
#: Folds of the training rows to choose on.
FOLDS = 3
#: Fewest rows to train on, and fewest to judge on.
MIN_TRAINING_ROWS, MIN_TEST_ROWS = 6, 10
#: Share of the values (one at least) that are few, share of the squared deviations from which they decide alone, and
#: how many times as far out as the next they are. Of 500 lognormal numbers, 2 % of samples have such values.
EXTREME_SHARE, EXTREME_DEVIATION_SHARE, EXTREME_DISTANCE_RATIO = 0.01, 0.5, 3.0
#: Most different values of more rows than that which may be codes: codes are few, and they repeat.
MAX_CODES = 3


@dataclass(frozen=True, slots=True)
class NumericLeakage:
    """How much of a number a linear probe predicts, on rows it was not trained on.

    Attributes
    ----------
    r2 : ``1 − Σ (y − ŷ)² / Σ (y − ȳ)²`` with ȳ the mean of the training rows: 0 where the rows say nothing, 1 where
        they say all, and below 0 where the mean would have been the better prediction.
    low, high : interval of it at `level`.
    p : one-sided test of "r2 is above 0"; low > 0 where p < 0.025 (at a level of 0.95).
    notes : what a reader should know about the rows, such as columns of very different scale.
    """

    r2: float
    low: float
    high: float
    p: float
    rows: int
    level: float = 0.95
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {**asdict(self), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> NumericLeakage:
        """Inverse of `to_dict`."""
        return cls(**{**saved, "notes": tuple(saved.get("notes", ()))})

    def __str__(self) -> str:
        p = "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"
        text = (
            f"linear probe: R² {self.r2:.3f} ({self.low:.3f} – {self.high:.3f}; nothing is 0; p {p}), {self.rows} rows"
        )
        return "; ".join([text, *self.notes])


def numbers_of(values: Array, n_rows: int, missing: Any) -> FloatArray:
    """A numeric concept, NaN where it is missing."""
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise LabelError("concept is not a column of numbers; use concept_type='class'.") from None
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.shape != (n_rows,):
        raise LabelError(f"concept has shape {numbers.shape}; {n_rows} numbers are needed, one per row of Z.")
    if np.isinf(numbers).any():
        raise LabelError(f"concept has {int(np.isinf(numbers).sum())} infinite values.")
    if missing is not None:
        numbers[numbers == missing] = np.nan
    if not np.isfinite(numbers).any():
        raise LabelError(f"concept is missing in all {n_rows} rows.")
    return numbers


def held_by_few(numbers: FloatArray, name: str, weight: FloatArray | None = None) -> str:
    """What to say of a number of which a few values, far from all others, hold most of the variance; or "".

    Few are 1 % of the rows, or up to half of them where they share one to three values, as codes do. Deviations are
    from the median, which the few do not move. A number whose other values are all the same is left alone: the few are
    what there is to know of it.
    """
    weight = np.ones(len(numbers)) if weight is None else weight
    known = np.isfinite(numbers) & (weight > 0)
    values, weight = numbers[known], weight[known]
    few = max(1, int(EXTREME_SHARE * len(values)))
    if len(values) < 3:
        return ""
    order = np.argsort(-np.abs(values - np.median(values)), kind="stable")
    away = np.abs(values - np.median(values))[order]
    held = np.cumsum(weight[order] * (away / away[0]) ** 2) if away[0] > 0 else np.zeros(len(away))
    jump = (away[:-1] > EXTREME_DISTANCE_RATIO * away[1:]) & (away[1:] > 0)
    ends = np.flatnonzero(jump & (held[:-1] > EXTREME_DEVIATION_SHARE * held[-1])) + 1
    apart = [k for k in ends.tolist() if k <= few or _may_be_codes(values[order[:k]], len(values))]
    if not apart:
        return ""
    k = apart[-1]
    outside = np.unique(values[order[:k]])
    shown = ", ".join(f"{value:.6g}" for value in outside[:4]) + (", …" if len(outside) > 4 else "")
    share = min(99.9, 100 * held[k - 1] / held[-1])
    asked = "Is it a code" if len(outside) == 1 else "Are they codes"
    return (
        f"{k:,} of {len(values):,} values of {name} {'holds' if k == 1 else 'hold'} {share:.3g} % of its variance: "
        f"{shown}. {asked} for a missing value? Then pass missing_concept={outside[-1]:.6g}, or NaN in these rows. If "
        "not, clip or transform the number (its logarithm, its rank): as it is, these rows decide alone on what is "
        "found of it"
    )


def _may_be_codes(outside: FloatArray, n_values: int) -> bool:
    return 2 * len(outside) < n_values and len(np.unique(outside)) <= min(MAX_CODES, len(outside) // 2)


def cross_fitted(
    rows: Array,
    numbers: FloatArray,
    weight: FloatArray,
    known: BoolArray,
    cv: Any,
    penalty: float | None,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, IntArray, int]:
    """Predictions and training means of every row that some fold holds out, those rows, and the number of folds.

    The rows are those of all that are `known`, into which index arrays in `cv` lead.
    """
    predicted, mean, seen, folds = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows), dtype=bool), 0
    for train, test in _folds_of_a_number(cv, known, rows, numbers, rng):
        predict, mean[test] = ridge(rows[train], numbers[train], weight[train], penalty, rng)
        predicted[test], seen[test] = predict(rows[test]), True
        folds += 1
    judged = np.flatnonzero(seen)
    return predicted[judged], mean[judged], judged, folds


def ridge(
    Z: Array, numbers: FloatArray, weight: FloatArray, penalty: float | None, rng: np.random.Generator
) -> tuple[Callable[[Array], FloatArray], float]:
    """Ridge regression as a function of rows, and the mean of the numbers.

    Without a penalty folds of the rows choose it, with the units of the columns in which it counts, by squared error.
    """
    if len(Z) < MIN_TRAINING_ROWS:
        raise GroupSizeError(f"There are {len(Z)} rows to train a probe on; at least {MIN_TRAINING_ROWS} are needed.")
    if penalty is not None and not penalty > 0:
        raise InputError(f"penalty must be positive, in units of the mean variance of Z; got {penalty}.")
    mean = float(np.average(numbers, weights=weight))
    if penalty is not None:
        chosen: tuple[Units, float] = ("raw", penalty)
    else:
        units = units_to_try(Z)
        cost = np.zeros((len(units), len(PENALTIES)))
        fold = rng.permutation(np.arange(len(Z)) % FOLDS)
        for k in range(FOLDS):
            train, test = fold != k, fold == k
            for i, name in enumerate(units):
                scaled, weights, bias = _solutions(Z[train], numbers[train], weight[train], name, PENALTIES)
                told = ((Z[test] - scaled.centre) / scaled.unit) @ weights + bias
                cost[i] += weight[test] @ (told - numbers[test, None]) ** 2
        best = np.unravel_index(int(np.argmin(cost)), cost.shape)
        chosen = (units[best[0]], PENALTIES[best[1]])
    scaled, weights, bias = _solutions(Z, numbers, weight, chosen[0], (chosen[1],))
    return lambda rows: np.asarray(((rows - scaled.centre) / scaled.unit) @ weights[:, 0] + bias), mean


def _solutions(
    Z: Array, numbers: FloatArray, weight: FloatArray, units: Units, penalties: tuple[float, ...]
) -> tuple[ScaledRows, FloatArray, float]:
    """Scaled rows, weights (d, m) of ridge regressions on them, and the bias of all."""
    scaled = ScaledRows(Z, weight, robust=units == "robust")
    axes = scaled.axes(units)
    mean = float(scaled.share @ numbers)
    covariance = axes.basis.T @ (scaled.rows.T @ (scaled.share * (numbers - mean)))
    decay = np.array([axes.decay(penalty) for penalty in penalties])
    return scaled, axes.basis @ (covariance[:, None] / (axes.variance[:, None] + decay)), mean


def summary_of_a_number(
    numbers: FloatArray, predicted: FloatArray, mean: Any, weight: FloatArray, meetings: float, level: float
) -> tuple[float, float, float, float]:
    """R², its bounds and p-value: a ratio of means of rows, with Fieller's interval at Student's quantile.

    The test is the interval turned round. On small sets the linearised error of a ratio is too small (a 95 % interval
    of 10 rows covers 86 %), and Fieller's covers at its level. `meetings` is how much larger the variance
    is since folds share rows.
    """
    share = weight / weight.sum()
    without, left = (numbers - mean) ** 2, (numbers - predicted) ** 2
    scale = float(share @ without)
    if not scale > 0:
        raise LabelError("concept is the same number in all rows that are judged; there is nothing to predict.")
    r2 = 1.0 - float(share @ left) / scale
    n = 1.0 / float(np.sum(share**2))
    if n < MIN_TEST_ROWS * (1 - 1e-9):
        raise GroupSizeError(
            f"There are {len(share)} rows to judge the probe on, {n:.3g} by their weights; at least {MIN_TEST_ROWS} "
            "are needed. Pass more rows."
        )

    def variance(one: FloatArray, other: FloatArray) -> float:
        """Covariance of two means of rows."""
        products = share**2 * (one - share @ one) * (other - share @ other)
        return meetings * float(np.sum(products)) * n / (n - 1)

    gain = without - left
    mean_gain, quantile = float(share @ gain), float(student.isf((1 - level) / 2, n - 1))
    error = float(np.sqrt(variance(gain, gain)))
    p = float(student.sf(mean_gain / error, n - 1)) if error > 0 else float(0.5 if r2 <= 0 else 0.0)
    # All v for which the mean of gain − v·without is not told from 0, between the roots of a v² − 2 b v + c.
    a = scale**2 - quantile**2 * variance(without, without)
    b = mean_gain * scale - quantile**2 * variance(gain, without)
    c = mean_gain**2 - quantile**2 * variance(gain, gain)
    if not a > 0:  # a few rows hold most of the variance: nothing bounds it but 1
        return r2, min(0.0, r2 - quantile * error / scale), 1.0, max(p, (1 - level) / 2)
    root = float(np.sqrt(max(0.0, b**2 - a * c)))
    return r2, min(r2, (b - root) / a), min(1.0, max(r2, (b + root) / a)), p


def _folds_of_a_number(
    cv: Any, known: BoolArray, rows: Array, numbers: FloatArray, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    if not isinstance(cv, Integral):
        return iter(splits_of_known(cv, known, numbers, None, rows))
    if cv < 2:
        raise InputError(f"cv must be 2 or more folds; got {cv}.")
    needed = max(2 * MIN_TRAINING_ROWS, int(cv))
    if len(rows) < needed:
        raise GroupSizeError(f"There are {len(rows)} rows with a concept in {cv} folds; at least {needed} are needed.")
    return iter(KFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31))).split(rows))


#: Cross-fitted rows tell as much as half as many independent ones: any two folds meet twice, each judged by a probe
#: that learnt from the other, and where the concept is independent of Z both meetings err the same way. So the variance
#: is up to twice the binomial one (1 + 2/π for a linear probe); ignoring it, a test at 5 % rejects in 8 to 11 %.
CROSS_FIT_VARIANCE_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class Leakage:
    """What a probe reads off rows it was not trained on; every class of the concept counts the same.

    Attributes
    ----------
    accuracy, chance : balanced accuracy (mean of the recalls) and 1/k, what guessing gets.
    low, high : interval of the accuracy at `level`, from the exact interval of each recall; with folds, from half as
        many rows, since folds are not independent.
    p : one-sided test of "accuracy is above chance"; it is the interval turned round, so low > chance where p < 0.025
        (at a level of 0.95).
    loss, chance_loss : class-balanced log loss in nats, and log k. A loss above it is a probe that is sure and wrong.
    recall : accuracy in each class, in the order of `classes`.
    notes : what a reader should know about the rows, such as columns of very different scale or outliers.
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
        """Whether the probe is wrong more often than a guess, as it is on rows that a removal was fitted on."""
        return self.high < self.chance

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {**asdict(self), "recall": list(self.recall), "classes": list(self.classes), "notes": list(self.notes)}

    def __str__(self) -> str:
        text = (
            f"{self.probe} probe: balanced accuracy {100 * self.accuracy:.1f} % ({100 * self.low:.1f} – "
            f"{100 * self.high:.1f}; chance {100 * self.chance:.1f}; p {_small(self.p)}), "
            f"loss {self.loss:.3f} (chance {self.chance_loss:.3f}), {self.rows} rows"
        )
        below = ["below chance: were these rows used to fit the removal?"] if self.below_chance else []
        return "; ".join([text, *below, *self.notes])


@overload
def leakage(
    Z: Array,
    concept: Array,
    *,
    probe: Kind = ...,
    concept_type: Literal["class"] = ...,
    cv: Any = ...,
    Z_test: Array | None = ...,
    concept_test: Array | None = ...,
    sample_weight: Array | None = ...,
    sample_weight_test: Array | None = ...,
    penalty: float | None = ...,
    missing_concept: Any = ...,
    level: float = ...,
    random_state: Any = ...,
    clusters: Array | None = ...,
    clusters_test: Array | None = ...,
) -> Leakage: ...
@overload
def leakage(
    Z: Array,
    concept: Array,
    *,
    probe: Kind = ...,
    concept_type: Literal["continuous"],
    cv: Any = ...,
    Z_test: Array | None = ...,
    concept_test: Array | None = ...,
    sample_weight: Array | None = ...,
    sample_weight_test: Array | None = ...,
    penalty: float | None = ...,
    missing_concept: Any = ...,
    level: float = ...,
    random_state: Any = ...,
    clusters: Array | None = ...,
    clusters_test: Array | None = ...,
) -> NumericLeakage: ...
def leakage(
    Z: Array,
    concept: Array,
    *,
    probe: Kind = "linear",
    concept_type: Literal["class", "continuous"] = "class",
    cv: Any = 5,
    Z_test: Array | None = None,
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
    """How well a fresh probe predicts the concept from rows it has not seen.

    Without a test set every row is predicted by a probe trained on the other folds. Probes give every class of the
    concept the same weight, in training and in what is reported, so guessing has accuracy 1/k and loss log k however
    unequal the classes are.

    Parameters
    ----------
    Z, concept : rows (n, d) and their label (n,) of two or more classes, or a number; rows where it is missing are left
        out.
    probe : "linear" (the best of several linear classifiers on folds of the training rows: logistic regression and
        discriminant analysis, in several units) or "mlp" (one hidden layer of 64 units).
    concept_type : "class", or "continuous" for a number. A number is predicted by ridge regression, and what comes back
        is a NumericLeakage: R² out of sample, 0 where the rows say nothing.
    cv : number of folds (stratified by concept, drawn at random), a splitter, or pairs of index arrays (train, test)
        into the rows of Z; those of them whose concept is missing are left out. A splitter splits the others.
    Z_test, concept_test : rows to judge on instead of folds.
    sample_weight, sample_weight_test : weights of rows, in training and in what is reported.
    penalty : of logistic (or ridge) regression on the columns as they are, in units of the mean variance; with None the
        probe and its penalty are chosen on folds of the training rows.
    clusters, clusters_test : which rows belong together (frames of one film), by labels of any hashable kind. Rows of a
        cluster share a fold, and interval and p count clusters; taken for independent rows they would be too sure. For
        classes only.

    Notes
    -----
    Use rows that the removal was *not* fitted on. A closed-form eraser fitted on these very rows makes the class means
    equal on them, so whatever difference is left in four folds has the opposite sign in the fifth: cross-validated
    probes then score *below* chance and say nothing about new rows. With a test set of its own (Z_test), train the
    probe on rows of the fit if need be, but judge on others.
    """
    if not 0 < level < 1:
        raise InputError(f"level is a probability between 0 and 1, such as 0.95; got {level}.")
    if (Z_test is None) != (concept_test is None):
        raise InputError("Z_test and concept_test go together: pass both, or neither for cross-fitting.")
    if Z_test is not None and clusters is not None:
        _require_other_clusters(clusters, clusters_test)
    if concept_type == "continuous":
        if clusters is not None or clusters_test is not None:
            raise InputError("clusters= is for concepts of classes; of a number, pass one row of each cluster.")
        if probe != "linear":
            raise InputError(f"A number is predicted by a linear probe only; got probe={probe!r}.")
        train = _numbered(Z, concept, sample_weight, missing_concept)
        test = None if Z_test is None else _numbered(Z_test, concept_test, sample_weight_test, missing_concept)
        return _of_a_number(train, test, cv, penalty, level, np.random.default_rng(random_state))
    if concept_type != "class":
        raise InputError(f"concept_type is 'class' or 'continuous'; got {concept_type!r}.")
    return class_leakage(
        Z,
        concept,
        probe=probe,
        cv=cv,
        Z_test=Z_test,
        concept_test=concept_test,
        sample_weight=sample_weight,
        sample_weight_test=sample_weight_test,
        penalty=penalty,
        clusters=clusters,
        clusters_test=clusters_test,
        missing_concept=missing_concept,
        level=level,
        random_state=random_state,
    )


def class_leakage(
    Z: Array,
    concept: Array,
    name: str = "concept",
    *,
    probe: Kind = "linear",
    cv: Any = 5,
    Z_test: Array | None = None,
    concept_test: Array | None = None,
    sample_weight: Array | None = None,
    sample_weight_test: Array | None = None,
    penalty: float | None = None,
    clusters: Array | None = None,
    clusters_test: Array | None = None,
    missing_concept: Any = None,
    level: float = 0.95,
    random_state: Any = None,
) -> Leakage:
    """`leakage` of a label of classes, whatever it is called."""
    rng = np.random.default_rng(random_state)
    rows, codes, weight, classes, known = _labelled(Z, concept, sample_weight, missing_concept, None, name)
    together = None if clusters is None else cluster_codes(clusters, "clusters", len(known))[known]
    taught, k = together, len(classes)

    def probabilities(train: Array, judged: Array) -> FloatArray:
        for code in range(k):
            _require(int(np.sum(codes[train] == code)), 2, f"{name}={classes[code]!s}", "to train a probe on")
        own = None if taught is None else taught[train]
        fitted = fit_probe(
            probe, rows[train], codes[train], k, balanced(weight[train], codes[train]), rng, penalty, own
        )
        return fitted.log_proba(judged)

    if Z_test is not None:
        judged, truth, importance, _, known = _labelled(
            Z_test, concept_test, sample_weight_test, missing_concept, classes, name
        )
        together = None if clusters_test is None else cluster_codes(clusters_test, "clusters_test", len(known))[known]
        _require_same_columns(rows, judged)
        log_p, meetings = probabilities(np.arange(len(rows)), judged), 1.0
    else:
        log_p, seen, folds = np.zeros((len(rows), k)), np.zeros(len(rows), dtype=bool), 0
        for train, test in _folds(cv, known, rows, codes, [f"{name}={value!s}" for value in classes], rng, together):
            log_p[test], seen[test] = probabilities(train, rows[test]), True
            folds += 1
        log_p, truth, importance = log_p[seen], codes[seen], weight[seen]
        together = None if together is None else together[seen]
        meetings = CROSS_FIT_VARIANCE_RATIO if folds > 1 else 1.0
    found = _summary(log_p, truth, importance, meetings, (classes, probe, level, name), together)
    return replace(found, notes=scale_notes(rows))


def _of_a_number(
    train: tuple[Array, FloatArray, FloatArray, BoolArray],
    test: tuple[Array, FloatArray, FloatArray, BoolArray] | None,
    cv: Any,
    penalty: float | None,
    level: float,
    rng: np.random.Generator,
) -> NumericLeakage:
    """What a linear probe predicts of a number: on test rows, or cross-fitted."""
    rows, numbers, weight, known = train
    said = [held_by_few(numbers, "concept", weight)]
    meetings = 1.0
    if test is not None:
        judged, truth, importance, _ = test
        said.append(held_by_few(truth, "concept_test", importance))
        _require_same_columns(rows, judged)
        predict, mean = ridge(rows, numbers, weight, penalty, rng)
        predicted, means = predict(judged), np.full(len(judged), mean)
    else:
        predicted, means, which, folds = cross_fitted(rows, numbers, weight, known, cv, penalty, rng)
        truth, importance, meetings = numbers[which], weight[which], CROSS_FIT_VARIANCE_RATIO if folds > 1 else 1.0
    r2, low, high, p = summary_of_a_number(truth, predicted, means, importance, meetings, level)
    return NumericLeakage(r2, low, high, p, len(truth), level, (*filter(None, said), *scale_notes(rows)))


def _numbered(
    Z: Array, concept: Array, sample_weight: Array | None, missing: Any
) -> tuple[Array, FloatArray, FloatArray, BoolArray]:
    """Rows, numbers and weights where the number is known and the weight is positive; and which rows those are."""
    rows = checked_rows(Z)
    numbers = numbers_of(on_numpy(concept), len(rows), missing)
    weight = _weights(sample_weight, len(rows))
    known = np.isfinite(numbers) & (weight > 0)
    return (rows, numbers, weight, known) if known.all() else (rows[known], numbers[known], weight[known], known)


def _require_other_clusters(clusters: Array, clusters_test: Array | None) -> None:
    if clusters_test is None:
        raise InputError(
            "clusters were passed and clusters_test was not: the probe is judged on the rows of Z_test, so the "
            "interval needs to know which of those belong together."
        )
    if both := shared_clusters(clusters, clusters_test):
        raise InputError(
            f"{len(both)} clusters are in clusters and in clusters_test, such as {next(iter(both))!r}: the probe would "
            "be judged on clusters that it knows. Leave them out of one of the two sets; if they are different "
            "clusters, give them different labels."
        )


def _require_same_columns(rows: Array, judged: Array) -> None:
    if judged.shape[1] != rows.shape[1]:
        raise InputError(f"Z_test has {judged.shape[1]} columns, Z has {rows.shape[1]}. They must be the same.")


def _summary(
    log_p: FloatArray,
    codes: IntArray,
    weight: FloatArray,
    meetings: float,
    about: tuple[tuple[Any, ...], Kind, float, str],
    clusters: IntArray | None,
) -> Leakage:
    classes, probe, level, name = about
    k = len(classes)
    rows = np.bincount(codes, minlength=k)
    for code in range(k):
        _require(int(rows[code]), 1, f"{name}={classes[code]!s}", "to judge the probe on")
    right = (np.argmax(log_p, axis=1) == codes) * 1.0
    total = np.bincount(codes, weights=weight)
    recall = np.bincount(codes, weights=weight * right) / total
    effective = _effective_rows(right, codes, weight)
    if clusters is not None:
        together = HeldOutClusters.in_groups(clusters, codes, k, weight)
        effective = _fewer_by_clusters(effective, recall, np.asarray(right, dtype=np.float64), together, level)
    effective = effective / meetings
    low, high = mean_interval(recall, effective, float(norm.ppf(0.5 + level / 2)))
    loss = -float(balanced(weight, codes) @ log_p[np.arange(len(codes)), codes])
    return Leakage(
        accuracy=float(recall.mean()),
        chance=1.0 / k,
        low=low,
        high=high,
        p=p_above(recall, effective, 1.0 / k),
        loss=loss,
        chance_loss=float(np.log(k)),
        recall=tuple(recall.tolist()),
        classes=classes,
        rows=len(codes),
        probe=probe,
        level=level,
    )


def _effective_rows(right: FloatArray, codes: IntArray, weight: FloatArray) -> FloatArray:
    """How many rows of equal weight would tell as much about each recall, shape (k,).

    ``(Σω)² / Σω²`` (Kish) where weight has nothing to do with being right. Where heavy rows are less often right the
    variance of the recall is larger than that, so as few as explain the variance seen, ``Σω²(r − r̄)² / (Σω)²``.
    """
    total, squares = np.bincount(codes, weights=weight), np.bincount(codes, weights=weight**2)
    recall = np.bincount(codes, weights=weight * right) / total
    seen = np.bincount(codes, weights=(weight * (right - recall[codes])) ** 2)
    usual = recall * (1 - recall) * squares
    return np.asarray(
        total**2 / squares / np.maximum(1.0, np.divide(seen, usual, out=np.ones_like(seen), where=usual > 0))
    )


def _fewer_by_clusters(
    effective: FloatArray, recall: FloatArray, right: FloatArray, clusters: HeldOutClusters, level: float
) -> FloatArray:
    """Effective rows of each class where rows come in clusters, shape (k,): as few as explain the variance seen.

    The variance of the mean recall is the cluster-robust one, and Student's quantile instead of the normal one makes it
    larger where clusters are few. Without any variation, as many as there are clusters.
    """
    usual = float(np.sum(recall * (1 - recall) / effective)) / len(recall) ** 2
    if usual <= 0:
        return np.minimum(effective, clusters.effective)
    error, degrees = average_error(right, clusters)
    tail = (1 - level) / 2
    wider = float(student.isf(tail, degrees) / norm.isf(tail))
    return np.asarray(effective / max(1.0, error**2 / usual) / wider**2)


def _labelled(
    Z: Array, concept: Array, sample_weight: Array | None, missing: Any, classes: tuple[Any, ...] | None, name: str
) -> tuple[Array, IntArray, FloatArray, tuple[Any, ...], BoolArray]:
    """Rows, codes and weights where the label is known and the weight is positive; the values behind the codes.

    Last, which rows those are.
    """
    rows = checked_rows(Z)
    label = as_label(concept, name, len(rows), missing=missing, classes=classes)
    weight = _weights(sample_weight, len(rows))
    known = label.present & (weight > 0)
    if known.all():
        return rows, label.codes, weight, label.classes, known
    return rows[known], label.codes[known], weight[known], label.classes, known


def _weights(sample_weight: Array | None, n_rows: int) -> FloatArray:
    weight = np.ones(n_rows) if sample_weight is None else np.asarray(on_numpy(sample_weight), dtype=np.float64)
    if weight.shape != (n_rows,) or not np.all(weight >= 0) or not np.all(np.isfinite(weight)):
        raise InputError(f"sample_weight must be {n_rows} finite numbers ≥ 0, one per row; got {weight.shape}.")
    largest = float(weight.max(initial=0.0))
    return weight / largest if largest > 0 else weight  # sums and squares of them neither overflow nor vanish


def _folds(
    cv: Any,
    known: BoolArray,
    rows: Array,
    codes: IntArray,
    named: list[str],
    rng: np.random.Generator,
    clusters: IntArray | None,
) -> Iterator[tuple[Array, Array]]:
    if not isinstance(cv, Integral):
        splits = splits_of_known(cv, known, codes, clusters, rows)
        if clusters is not None and any(_torn(clusters, *split) for split in splits):
            raise InputError(
                "cv: a cluster has rows in a training set and in its test set. Use an int, or a splitter that keeps "
                "clusters together, such as GroupKFold()."
            )
        return iter(splits)
    if cv < 2:
        raise InputError(f"cv must be 2 or more folds; got {cv}.")
    for code, count in enumerate(np.bincount(codes, minlength=len(named))):
        _require(int(count), max(int(cv), 3), named[code], f"in {cv} folds")
    if clusters is not None:
        for code, name in enumerate(named):
            if (number := len(np.unique(clusters[codes == code]))) < 2:
                raise GroupSizeError(
                    f"Rows with {name} lie in {number} cluster, and rows of one cluster share a fold; at "
                    "least 2 are needed. Pass rows of more clusters."
                )
        fold = folds_by_cluster(np.unique(clusters, return_inverse=True)[1], codes, np.full(int(cv), 1.0 / cv), rng)
        return ((np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold))
    splitter = StratifiedKFold(int(cv), shuffle=True, random_state=int(rng.integers(2**31)))
    return iter(splitter.split(codes, codes))  # only the labels are looked at


def _torn(clusters: IntArray, train: Array, test: Array) -> bool:
    both = np.concatenate([clusters[train], clusters[test]])
    return len(clusters_in_two(both, np.repeat([0, 1], [len(clusters[train]), len(clusters[test])]))) > 0


def _require(rows: int, least: int, which: str, why: str) -> None:
    if rows < least:
        raise GroupSizeError(
            f"There are {rows} rows with {which} {why}; at least {least} are needed. Pass more rows or fewer folds."
        )


def _small(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
