"""How well a number can be predicted from rows by a linear function of them, out of sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.model_selection import KFold

from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import splits_of_known
from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur.metrics.probes import ScaledRows, Units, units_to_try

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
    for train, test in _folds(cv, known, rows, numbers, rng):
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


def summary(
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


def _folds(
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
