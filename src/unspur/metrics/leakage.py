"""How well a label can still be read off rows: by a fresh classifier, against chance, with interval and test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.model_selection import StratifiedKFold

from unspur._arrays import on_numpy
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import cluster_codes, clusters_in_two, folds_by_cluster, shared_clusters, splits_of_known
from unspur.exceptions import GroupSizeError, InputError
from unspur.labels import class_label
from unspur.metrics import numeric
from unspur.metrics.intervals import mean_interval, p_above
from unspur.metrics.numeric import NumericLeakage
from unspur.metrics.probes import Kind, balanced, checked_rows, fit_probe, scale_notes
from unspur.solvers.held_out_losses import HeldOutClusters, average_error

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
    said = [numeric.held_by_few(numbers, "concept", weight)]
    meetings = 1.0
    if test is not None:
        judged, truth, importance, _ = test
        said.append(numeric.held_by_few(truth, "concept_test", importance))
        _require_same_columns(rows, judged)
        predict, mean = numeric.ridge(rows, numbers, weight, penalty, rng)
        predicted, means = predict(judged), np.full(len(judged), mean)
    else:
        predicted, means, which, folds = numeric.cross_fitted(rows, numbers, weight, known, cv, penalty, rng)
        truth, importance, meetings = numbers[which], weight[which], CROSS_FIT_VARIANCE_RATIO if folds > 1 else 1.0
    r2, low, high, p = numeric.summary(truth, predicted, means, importance, meetings, level)
    return NumericLeakage(r2, low, high, p, len(truth), level, (*filter(None, said), *scale_notes(rows)))


def _numbered(
    Z: Array, concept: Array, sample_weight: Array | None, missing: Any
) -> tuple[Array, FloatArray, FloatArray, BoolArray]:
    """Rows, numbers and weights where the number is known and the weight is positive; and which rows those are."""
    rows = checked_rows(Z)
    numbers = numeric.numbers_of(on_numpy(concept), len(rows), missing)
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
    label = class_label(concept, name, len(rows), missing=missing, classes=classes)
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
