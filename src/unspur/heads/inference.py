"""Concepts that are known for few rows, inferred for the others with their uncertainty.

::

    P(s | x, y)  =  softmax over s of  [ a · η_s(x) + b_ys ]

η are the logits of a group-weighted regression of the concept: the roles of task and concept are exchanged, and under
equal weight for all groups nothing is gained by predicting the concept from the task. The slope a and the intercepts b
are then fitted on held-out logits of the labelled rows, so that probabilities are calibrated within each class of y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator

from unspur._arrays import renumbered
from unspur._data import LabelledData
from unspur._resources import one_blas_thread
from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.heads.base import Head, HeadData, fit_folds, held_out_logits
from unspur.solvers.coordinates import RowSpan
from unspur.solvers.descent import quiet

#: Penalties to choose from, in units of the mean variance of the labelled rows, and the tolerance of these fits.
INFERENCE_PENALTIES, PROBE_TOL = (10.0, 1.0, 0.1, 0.01, 1e-3), 1e-5
#: Folds of the labelled rows. Every class of the concept needs as many rows.
INFERENCE_FOLDS = 5
#: Gain in log-likelihood from which on a prediction is better than chance: half of the 99 % quantile of χ² with one
#: degree of freedom, for the slope. A cluster counts as one row.
MIN_GAIN = 3.32


@dataclass(frozen=True, slots=True)
class Inference:
    """Probabilities (n, m) of the classes of the concept, whether they are better than chance, and a note on them."""

    probability: FloatArray
    better_than_chance: bool
    note: str


@dataclass(frozen=True, slots=True)
class _Calibration:
    """Slope and intercepts (n_classes, m) of logits; log losses of labelled rows by chance within y, and by these.

    Groups that are left out have an intercept of −∞.
    """

    slope: float
    intercepts: FloatArray
    chance: float
    loss: float

    def probability(self, logits: FloatArray, main: IntArray, compatible: BoolArray) -> FloatArray:
        """Probabilities (n, m) of rows with logits (n, m) and main classes (n,); zero where not `compatible` (n, m).

        Rows whose compatible classes are all left out have equal probabilities of these.
        """
        logits = self.slope * logits + self.intercepts[main]
        known = (compatible & np.isfinite(logits)).any(axis=1, keepdims=True)
        return np.asarray(softmax(np.where(compatible, np.where(known, logits, 0.0), -np.inf), axis=1))


def infer_concept(head: Head, rows: LabelledData, rng: np.random.Generator) -> Inference | None:
    """Infer the concept of rows where it is missing from those where it is known; None if it is missing nowhere.

    If there are several concepts, those that are known for a row are kept: combinations with other classes of them have
    a probability of zero. If the concept cannot be predicted, the slope is zero, and a row has the shares of the
    labelled rows of its main class. A linear head cannot use a concept that cannot be predicted either, so such rows do
    no harm.

    Parameters
    ----------
    head : a group-weighted head, not fitted.
    rows : of each main class, labelled rows must be drawn at random.
    """
    labelled, missing = rows.concept_known & (rows.weight > 0), ~rows.concept_known & (rows.weight > 0)
    if not missing.any():
        return None
    counts = rows.counts.reshape(rows.n_classes_per_label)
    # A group without labelled rows may have others, unless less than one of them is expected.
    expected = np.bincount(rows.main.codes[missing], minlength=len(counts)) / (counts.sum(axis=1) + counts.shape[1])
    possible = (counts > 0) | ((expected >= 1)[:, None] & counts.any(axis=0))
    known = np.flatnonzero(labelled)
    labels = rows.main.codes[known], rows.concept.codes[known], rows.weight[known]
    found = _calibrate(np.zeros((len(known), counts.shape[1])), *labels, possible)
    logits = np.zeros((len(rows), counts.shape[1]))
    if np.all((of_class := counts.sum(axis=0)) >= np.where(of_class > 0, INFERENCE_FOLDS, 0)):
        data, fold = _exchanged(rows, labelled), rows.folds(INFERENCE_FOLDS, rng)
        everything = np.zeros(len(rows), dtype=np.intp)
        with quiet():  # calibration corrects for what did not converge
            fitted = fit_folds(head, INFERENCE_PENALTIES, data, BaseEstimator(), fold, INFERENCE_FOLDS)
            tried = [
                _calibrate(_all_logits(one[known]), *labels, possible)
                for one in held_out_logits(fitted, data.train, fold)
            ]
            best = min(range(len(tried)), key=lambda k: tried[k].loss)
            last = fit_folds(head, INFERENCE_PENALTIES[best : best + 1], data, BaseEstimator(), None, 1)
        found, logits = tried[best], _all_logits(held_out_logits(last, data.train, everything)[0])
    clusters = np.arange(len(known)) if rows.clusters is None else rows.clusters[known]
    better = _effective_number(clusters, rows.weight[known]) * (found.chance - found.loss) >= MIN_GAIN
    note = (
        f"The concept of {missing.sum():,} rows was inferred from {len(known):,} labelled rows (held-out log loss "
        f"{found.loss:.2f}, by chance {found.chance:.2f})."
    )
    if not better:
        note += " That is not clearly better than chance. Label more rows, drawn at random."
    if absent := [rows.group_name(int(g)) for g in np.flatnonzero(possible.ravel() & (counts.ravel() == 0))]:
        note += f" No labelled row is in {'; '.join(absent)}, so its share is a guess."
    compatible = _compatible(rows)
    if guessed := int(np.sum(missing & ~(compatible & possible[rows.main.codes]).any(axis=1))):
        note += f" No labelled row agrees with what is known of {guessed:,} rows, so their concept is a guess."
    return Inference(found.probability(logits, rows.main.codes, compatible), better, note)


def _compatible(rows: LabelledData) -> BoolArray:
    """Which classes of the joint concept agree with what is known of rows where some is missing, shape (n, m)."""
    shape = tuple(len(label.classes) for label in rows.concepts)
    agree = np.ones((len(rows), *shape), dtype=bool)
    for j, label in enumerate(rows.concepts):
        own = ~label.present[:, None] | (label.codes[:, None] == np.arange(shape[j]))
        agree &= own.reshape(-1, *(shape[j] if i == j else 1 for i in range(len(shape))))
    return agree.reshape(len(rows), -1) | rows.concept_known[:, None]


def _effective_number(clusters: IntArray, weight: FloatArray) -> float:
    """Effective number of clusters with these weights of rows; of as many rows, if each is a cluster of weight one."""
    total = np.bincount(renumbered(clusters), weights=weight)
    return float(total.sum() ** 2 / (total @ total))


def _exchanged(rows: LabelledData, labelled: BoolArray) -> HeadData:
    """The labelled rows with the concept as the task and the task as the concept; others have no weight."""
    weight = np.where(labelled, rows.weight, 0.0)
    exchanged = replace(rows, y=rows.concept, concepts=(rows.main,), weight=weight)
    span, (X,) = RowSpan.of(rows.X, live=[labelled])
    n_classes = rows.n_classes_per_label[1]
    return HeadData(exchanged if span is None else replace(exchanged, X=X), None, np.arange(n_classes), None)


def _all_logits(logits: FloatArray) -> FloatArray:
    """Logits (n, m) of all classes, of which the first of two has none."""
    return np.concatenate([np.zeros_like(logits), logits], axis=1) if logits.shape[1] == 1 else logits


def _calibrate(
    logits: FloatArray, main: IntArray, concept: IntArray, weight: FloatArray, possible: BoolArray
) -> _Calibration:
    """Fit slope and intercepts to logits (n, m) of labelled rows with these labels and weights (n,).

    Targets are those of Platt (1999): a row of a group of N rows has ``(N + 1) / (N + c)`` for its own class, where c
    groups (n_classes, m) are `possible` in its main class, and equal shares of the rest for the others. So the solution
    is finite even if the logits separate the classes, and groups without rows have a share.
    """
    (n, m), shape, weight = logits.shape, possible.shape, weight / weight.sum()
    counts = np.bincount(main * m + concept, minlength=possible.size).reshape(shape)
    own = counts[main, concept] + 1.0
    targets = possible[main] / (own + possible.sum(axis=1)[main] - 1.0)[:, None]
    targets[np.arange(n), concept] *= own
    shares = np.zeros(shape)
    np.add.at(shares, main, weight[:, None] * targets)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    chance = np.log(np.where(shares > 0, shares, 1.0))
    left_out = np.where(possible, 0.0, -np.inf)
    scale = max(float(np.abs(logits - logits.mean(axis=1, keepdims=True)).mean()), np.finfo(np.float64).tiny)

    def loss_and_residual(slope: float, intercepts: FloatArray) -> tuple[float, FloatArray]:
        """The mean log loss, and its derivatives in the logits of each row."""
        log_p = log_softmax(slope * logits / scale + (intercepts + left_out)[main], axis=1)
        finite = np.where(possible[main], log_p, 0.0)
        return -float(weight @ np.sum(targets * finite, axis=1)), weight[:, None] * (np.exp(log_p) - targets)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        loss, residual = loss_and_residual(x[0], x[1:].reshape(shape))
        slopes = np.zeros(shape)
        np.add.at(slopes, main, residual)
        return loss, np.append(np.sum(residual * logits) / scale, slopes)

    bounds = [(0.0, None), *[(None, None)] * possible.size]
    with one_blas_thread():
        end = minimize(objective, np.append(0.0, chance), jac=True, method="L-BFGS-B", bounds=bounds)
    slope, intercepts = float(end.x[0]) / scale, end.x[1:].reshape(shape) + left_out
    return _Calibration(slope, intercepts, loss_and_residual(0.0, chance)[0], float(end.fun))
