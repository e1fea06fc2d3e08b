"""Probes, which predict a label from rows: a linear classifier and a small network.

Both take weighted rows and return log-probabilities. The linear one is discriminant analysis with shrinkage or
logistic regression, of columns that are standardised, scaled by their quantiles, or left as they are. Folds of its
training rows choose among them, so the choice never sees the rows that a probe is tested on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from unspur._arrays import to_numpy
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import folds_by_cluster, held_out_mask
from unspur.exceptions import InputError, NotFiniteError

Kind: TypeAlias = Literal["linear", "mlp"]
Scaling: TypeAlias = Literal["standard", "none", "robust"]
Candidate: TypeAlias = tuple[Literal["discriminant", "logistic"], float]

#: Most rows that a probe is trained on.
MAX_TRAINING_ROWS = 3000
#: Folds of the training rows for the choice.
PROBE_FOLDS = 3
#: Linear classifiers to choose from: discriminant analysis with a shrinkage, or logistic regression with a penalty, in
#: units of the mean variance. No shrinkage is for directions that are shorter than any penalty.
CANDIDATES: tuple[Candidate, ...] = (
    *(("discriminant", shrinkage) for shrinkage in (10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-6, 0.0)),
    *(("logistic", penalty) for penalty in (1.0, 0.1, 1e-2, 1e-4)),
)
#: Penalties of the ridge regression of a number, in the same units.
RIDGE_PENALTIES = (1e3, 1e2, 10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-5, 1e-8)
#: Factors of the logits to choose from, so that a loss does not punish confidence.
LOGIT_FACTORS = np.geomspace(1e-3, 10.0, 25)
#: Rows are also tried without scaling where columns differ in width by this factor, since those that tell most may be
#: the widest, and with robust scaling where outliers widen a column this much. Values are clipped at so many spreads.
MIN_WIDTH_RATIO, MIN_WIDENING, CLIP_SPREADS = 1.5, 2.0, 4.0
#: Variances below this share of the largest are rounding errors, by bytes of a number.
MIN_VARIANCE_SHARE = {4: 1e-10, 8: 1e-13}
#: The same for the standard deviation of a column, as a share of the median column.
MIN_DEVIATION_SHARE = {4: 1e-7, 8: 1e-12}
#: A note reports columns this many times as wide as most, and values this many spreads away from the median.
WIDE_COLUMN_RATIO, OUTLIER_SPREADS = 1000.0, 100.0
#: Rows that are sampled for the spread of columns.
SAMPLE_ROWS = 2000
#: The small network: units of its hidden layer, most epochs, epochs without gain after which it stops, and the spreads
#: at which its inputs are clipped.
HIDDEN_UNITS, EPOCHS, EPOCHS_WITHOUT_GAIN, MAX_INPUT_SPREADS = 64, 100, 10, 30.0


def checked_rows(X: Array, name: str = "X") -> Array:
    """Rows as a finite two-dimensional float32 or float64 array on the host."""
    rows = np.asarray(to_numpy(X))
    if rows.dtype.kind == "O" and hasattr(X, "dtypes"):  # pandas' nullable numbers, or those of Arrow
        with suppress(TypeError, ValueError):
            rows = X.to_numpy(np.float64, na_value=np.nan)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers in an array (n, d); got shape {rows.shape} of {rows.dtype}.")
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)
    if not np.all(np.isfinite(rows)):
        raise NotFiniteError(
            f"{name} must be finite; {np.sum(~np.isfinite(rows).all(axis=1))} rows are not. Drop those rows."
        )
    return rows


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """A linear classifier: log-probabilities are the log-softmax of ``(z − c) W + b``, W (d, k)."""

    centre: FloatArray
    weights: FloatArray
    bias: FloatArray

    def logits(self, Z: Array) -> FloatArray:
        """Logits, shape (n, k)."""
        # float64: nearly collinear columns have large weights of both signs
        return np.asarray((Z - self.centre) @ self.weights + self.bias)

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probabilities, shape (n, k)."""
        return np.asarray(log_softmax(self.logits(Z), axis=1))


def linear_probe(
    Z: Array, codes: IntArray, weight: FloatArray, fold: IntArray, penalty: float | None = None
) -> LinearProbe:
    """Train a linear classifier of codes 0 … k−1 (n,) with weights (n,): the one that predicts the folds (n,) best.

    Among those whose accuracy is within two standard errors of the highest it has the lowest loss, with logits times
    the best factor. With a `penalty` it is logistic regression of standardised columns, and nothing is chosen.
    """
    if penalty is not None:
        return _classifiers(Z, codes, weight, "standard", (("logistic", penalty),))["logistic", penalty]
    scalings = _scalings(Z)
    logits: dict[tuple[Scaling, Candidate], FloatArray] = {}
    for number in np.unique(fold):
        train, test = fold != number, fold == number
        for scaling in scalings:
            for candidate, probe in _classifiers(Z[train], codes[train], weight[train], scaling, CANDIDATES).items():
                found = logits.setdefault((scaling, candidate), np.zeros((len(Z), int(codes.max()) + 1)))
                found[test] = probe.logits(Z[test])
    share = weight / weight.sum()
    wrong = {one: (found.argmax(axis=1) != codes) * 1.0 for one, found in logits.items()}
    first = min(wrong, key=lambda one: float(share @ wrong[one]))
    near = [one for one in wrong if _not_worse(wrong[one] - wrong[first], share)]
    clipped = {one: _clipped(logits[one]) for one in near}
    factors = {one: _best_factor(clipped[one], codes, share) for one in near}
    best = min(near, key=lambda one: _loss(factors[one], clipped[one], codes, share))
    probe = _classifiers(Z, codes, weight, best[0], (best[1],))[best[1]]
    return LinearProbe(probe.centre, factors[best] * probe.weights, factors[best] * probe.bias)


def _not_worse(difference: FloatArray, share: FloatArray) -> bool:
    """Whether a mean difference is at most two standard errors."""
    mean = float(share @ difference)
    return mean <= 2.0 * float(np.sqrt(np.sum((share * (difference - mean)) ** 2)))


def _clipped(logits: FloatArray) -> FloatArray:
    """Logits with mean zero, clipped at twice the largest of nine in ten rows: outliers do not decide a loss."""
    centred = logits - logits.mean(axis=1, keepdims=True)
    reach = 2.0 * float(np.quantile(np.abs(centred).max(axis=1), 0.9))
    return np.asarray(np.clip(centred, -reach, reach))


def _loss(factor: float, logits: FloatArray, codes: IntArray, share: FloatArray) -> float:
    """Log loss of logits times a factor. One wrong row is added (Platt, 1999): being right on a few proves little."""
    doubt, scaled = 1.0 / (len(codes) + 2.0), factor * logits
    target = (1.0 - doubt) * scaled[np.arange(len(codes)), codes] + doubt * scaled.mean(axis=1)
    return float(share @ (np.logaddexp.reduce(scaled, axis=1) - target))


def _best_factor(logits: FloatArray, codes: IntArray, share: FloatArray) -> float:
    """The factor with the lowest loss, which is convex in it."""
    low, high = 0, len(LOGIT_FACTORS) - 1
    while low < high:
        middle = (low + high) // 2
        here, further = (_loss(LOGIT_FACTORS[k], logits, codes, share) for k in (middle, middle + 1))
        low, high = (low, middle) if here <= further else (middle + 1, high)
    return float(LOGIT_FACTORS[low])


def _classifiers(
    Z: Array, codes: IntArray, weight: FloatArray, scaling: Scaling, candidates: Sequence[Candidate]
) -> dict[Candidate, LinearProbe]:
    """Train several classifiers on rows in one scaling."""
    share = weight / weight.sum()
    rows, centre, unit = _scaled(Z, share, scaling)
    shrinkages = [value for method, value in candidates if method == "discriminant"]
    penalties = [value for method, value in candidates if method == "logistic"]
    solved = zip(shrinkages, _discriminants(rows, codes, share, shrinkages, Z.dtype.itemsize), strict=True)
    found: dict[Candidate, tuple[FloatArray, FloatArray]] = {("discriminant", value): one for value, one in solved}
    model = LogisticRegression(max_iter=200, warm_start=True)
    for value in penalties:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(C=1.0 / value).fit(rows, codes, sample_weight=share)
        weights, bias = model.coef_.T, model.intercept_
        if len(bias) == 1:  # of two classes scikit-learn has the difference
            weights, bias = np.hstack([-weights, weights]) / 2, np.append(-bias, bias) / 2
        found["logistic", value] = weights, bias
    return {one: LinearProbe(centre, weights / unit[:, None], bias) for one, (weights, bias) in found.items()}


def _scaled(Z: Array, share: FloatArray, scaling: Scaling) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows in units of their columns with weighted mean zero, centre and units (d,).

    Units are standard deviations, or one for all columns, or spreads, beyond four of which values are clipped. They are
    infinite for columns that are constant but for rounding.
    """
    deviation = np.std(Z, axis=0, dtype=np.float64)
    centre, unit = spreads(Z) if scaling == "robust" else (np.mean(Z, axis=0, dtype=np.float64), deviation)
    usual = np.median(deviation[deviation > 0]) if deviation.any() else 0.0
    rounding = 4 * np.finfo(Z.dtype).eps * np.abs(Z).max(axis=0, initial=0.0)
    real = unit > np.maximum(MIN_DEVIATION_SHARE[Z.dtype.itemsize] * usual, rounding)
    if scaling == "none":  # one unit for all columns
        unit = np.full_like(unit, np.sqrt(np.mean(unit**2)))
    rows = (Z - centre) / np.where(real, unit, np.inf)
    if scaling == "robust":
        np.clip(rows, -CLIP_SPREADS, CLIP_SPREADS, out=rows)
    middle = share @ rows
    return rows - middle, centre + middle * np.where(real, unit, 0.0), np.where(real, unit, np.inf)


def _principal_axes(rows: FloatArray, share: FloatArray, itemsize: int) -> tuple[FloatArray, FloatArray]:
    """Variances (r,) and axes (d, r) of centred rows, without directions that are rounding errors."""
    half, least = rows * np.sqrt(share)[:, None], MIN_VARIANCE_SHARE[itemsize]
    if len(half) < half.shape[1]:
        variance, left = np.linalg.eigh(half @ half.T)
        real = variance > least * variance[-1]
        return variance[real], half.T @ (left[:, real] / np.sqrt(variance[real]))
    variance, axes = np.linalg.eigh(half.T @ half)
    real = variance > least * variance[-1]
    return variance[real], axes[:, real]


def _discriminants(
    rows: FloatArray, codes: IntArray, share: FloatArray, shrinkages: Sequence[float], itemsize: int
) -> list[tuple[FloatArray, FloatArray]]:
    """Linear discriminant analysis with equal priors: weights (d, k) ``(S + λ)⁻¹ M`` and biases, for each shrinkage.

    scikit-learn's takes no weights of rows. S is the covariance within classes, which is that of all rows less that of
    the k means M. Covariances are of rows, whatever a class counts for: few rows of a rare class would stand for half.
    """
    if not shrinkages:
        return []
    total, counts = np.bincount(codes, weights=share), np.bincount(codes)
    frequency = counts / len(codes)
    of_rows = share * (frequency / total)[codes]
    middle = of_rows @ rows
    means = ((codes == np.arange(len(counts))[:, None]) * share / total[:, None]) @ rows - middle
    variance, axes = _principal_axes(rows - middle, of_rows, itemsize)
    along = axes.T @ means.T
    found = []
    for value in shrinkages:
        solved = along / (variance + value * (variance.mean() if len(variance) else 1.0))[:, None]
        within = np.eye(len(counts)) - frequency[:, None] * (along.T @ solved)
        inner = solved @ np.linalg.pinv(within, rcond=1e-12)
        weights = axes @ inner
        found.append((weights, -0.5 * np.sum(along * inner, axis=0) - middle @ weights))
    return found


def ridge(
    Z: Array, numbers: FloatArray, weight: FloatArray, fold: IntArray, penalty: float | None = None
) -> tuple[Callable[[Array], FloatArray], float]:
    """Fit a ridge regression of standardised columns, whose penalty the folds (n,) choose by squared error.

    Returns its predictor and the mean of the numbers.
    """
    if penalty is None:
        cost = np.zeros(len(RIDGE_PENALTIES))
        for number in np.unique(fold):
            train, test = fold != number, fold == number
            probe = _ridges(Z[train], numbers[train], weight[train], RIDGE_PENALTIES)
            cost += weight[test] @ (probe.logits(Z[test]) - numbers[test, None]) ** 2
        penalty = RIDGE_PENALTIES[int(np.argmin(cost))]
    probe = _ridges(Z, numbers, weight, (penalty,))
    return lambda rows: probe.logits(rows)[:, 0], float(np.average(numbers, weights=weight))


def _ridges(Z: Array, numbers: FloatArray, weight: FloatArray, penalties: Sequence[float]) -> LinearProbe:
    """Ridge regressions, one for each penalty; their predictions are the "logits"."""
    share = weight / weight.sum()
    rows, centre, unit = _scaled(Z, share, "standard")
    variance, axes = _principal_axes(rows, share, Z.dtype.itemsize)
    mean = float(share @ numbers)
    covariance = (rows @ axes).T @ (share * (numbers - mean))
    strength = np.array(penalties) * (variance.mean() if len(variance) else 1.0)
    weights = axes @ (covariance[:, None] / (variance[:, None] + strength))
    return LinearProbe(centre, weights / unit[:, None], np.full(len(penalties), mean))


class SmallNetwork:
    """One hidden layer of 64 ReLU units (scikit-learn's MLPClassifier, Adam) on columns of unit spread.

    Values beyond 30 spreads are clipped. Each epoch sees rows drawn with probabilities proportional to their weights;
    the epoch with the lowest loss on a fifth of the rows, which is held out, is kept.
    """

    def __init__(
        self,
        Z: Array,
        codes: IntArray,
        weight: FloatArray,
        rng: np.random.Generator,
        clusters: IntArray | None = None,
    ) -> None:
        self.centre, unit = spreads(Z)
        # Columns far shorter than the rest stay short: what a removal leaves of its axis is rounding.
        self.unit = np.maximum(unit, 1e-3 * np.median(unit[unit > 0])) if unit.any() else 1.0
        seed = int(rng.integers(2**31))
        self.model = MLPClassifier((HIDDEN_UNITS,), alpha=1.0, learning_rate_init=3e-3, random_state=seed)
        aside = set_aside(codes, rng, clusters)
        held = Z[aside], codes[aside], weight[aside]
        rows, labels = self._scaled(Z[~aside]), codes[~aside]
        chance = weight[~aside] / weight[~aside].sum()
        best, kept, waited = np.inf, None, 0
        for _ in range(EPOCHS):
            drawn = rng.choice(len(rows), size=len(rows), p=chance)
            self.model.partial_fit(rows[drawn], labels[drawn], classes=np.arange(int(codes.max()) + 1))
            log_p = self.log_proba(held[0])[np.arange(len(held[1])), held[1]]
            loss = -float(np.average(log_p, weights=held[2]))
            waited += 1
            if loss < best:
                best, waited = loss, 0
                kept = [w.copy() for w in self.model.coefs_], [b.copy() for b in self.model.intercepts_]
            if waited >= EPOCHS_WITHOUT_GAIN:
                break
        if kept is not None:
            self.model.coefs_, self.model.intercepts_ = kept

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probabilities, shape (n, k); none below 1e-7."""
        p = np.asarray(self.model.predict_proba(self._scaled(Z)), dtype=np.float64)
        return np.log(np.maximum(p, 1e-7))

    def _scaled(self, Z: Array) -> Any:
        return np.clip((Z - self.centre) / self.unit, -MAX_INPUT_SPREADS, MAX_INPUT_SPREADS).astype(np.float32)


def set_aside(codes: IntArray, rng: np.random.Generator, clusters: IntArray | None = None) -> BoolArray:
    """Mask of a fifth of each class, at least one row; whole clusters, unless a class has too few of them."""
    if clusters is not None:
        whole = held_out_mask(codes, 0.2, rng, clusters)
        if all(0 < whole[codes == code].sum() < np.sum(codes == code) for code in np.unique(codes)):
            return whole
    return held_out_mask(codes, 0.2, rng)


def _scalings(Z: Array) -> list[Scaling]:
    """Scalings that differ on these rows."""
    deviation, found = np.std(Z, axis=0, dtype=np.float64), list[Scaling](["standard"])
    real = deviation[deviation > 0]
    if len(real) and real.max() > MIN_WIDTH_RATIO * real.min():
        found.append("none")
    if np.any(deviation > MIN_WIDENING * spreads(Z)[1]):
        found.append("robust")
    return found


def inner_folds(codes: IntArray, rng: np.random.Generator, clusters: IntArray | None = None) -> IntArray:
    """Fold of each row (n,), stratified by class. Clusters are kept together, unless a class has too few of them."""
    fold: IntArray = np.zeros(len(codes), dtype=np.intp)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        fold[members] = np.arange(len(members)) % PROBE_FOLDS
    if clusters is not None:
        whole = folds_by_cluster(clusters, codes, np.full(PROBE_FOLDS, 1.0 / PROBE_FOLDS), rng)
        if all(np.isin(np.arange(PROBE_FOLDS), whole[codes == code]).all() for code in np.unique(codes)):
            return whole
    return fold


def spreads(Z: Array) -> tuple[FloatArray, FloatArray]:
    """Median and spread of each column, from at most so many rows.

    The spread is the range from the 5th to the 95th percentile over that of a standard Gaussian; for columns that are
    constant in nearly all rows (sparse features) it is the standard deviation.
    """
    sample = Z[:: max(1, len(Z) // SAMPLE_ROWS)]
    low, middle, high = np.quantile(np.sort(sample, axis=0), [0.05, 0.5, 0.95], axis=0)
    spread = np.asarray((high - low) / 3.29, dtype=np.float64)
    return np.asarray(middle, dtype=np.float64), np.where(spread > 0, spread, np.std(Z, axis=0, dtype=np.float64))


def scale_notes(Z: Array) -> tuple[str, ...]:
    """Warnings about the scales of columns: one far wider than the rest, or outliers."""
    (middle, spread), notes = spreads(Z), []
    known = spread[spread > 0]
    usual = float(np.median(known)) if len(known) else 0.0
    if usual > 0 and spread.max() > WIDE_COLUMN_RATIO * usual:
        column = int(np.argmax(spread))
        notes.append(
            f"column {column} is {spread[column] / usual:,.0f} times as wide as most columns; is it in other units?"
        )
    reach = np.where(spread > 0, OUTLIER_SPREADS * spread, np.inf)
    far = np.concatenate(
        [np.any(np.abs(Z[k : k + SAMPLE_ROWS] - middle) > reach, axis=1) for k in range(0, len(Z), SAMPLE_ROWS)]
    )
    if far.any():
        notes.append(
            f"{far.sum():,} of {len(Z):,} rows are outliers, farther than {OUTLIER_SPREADS:g} spreads from the median "
            "in some column"
        )
    return tuple(notes)


def reconstruction_error(rows: Array, feature: Array) -> float:
    """Root mean squared error of a least-squares fit of a feature (n,) on rows (n, d), in the unit of the feature.

    Rows are fitted and tested together, as in the paper (section 4.3). Use a large test set that no removal was fitted
    on and in which the features are independent, or one of them is rebuilt from the other.
    """
    z = checked_rows(rows, "rows").astype(np.float64)
    values = np.asarray(to_numpy(feature), dtype=np.float64)
    if values.shape != (len(z),) or not np.all(np.isfinite(values)):
        raise InputError(f"feature must be {len(z)} finite numbers, one per row; got shape {values.shape}.")
    if len(z) < z.shape[1] + 2:
        raise InputError(
            f"There are {len(z)} rows of {z.shape[1]} columns: any feature is rebuilt perfectly. Pass more rows."
        )
    z -= z.mean(axis=0)
    centred = values - values.mean()
    axes, widths, _ = np.linalg.svd(z, full_matrices=False)
    # Rows keep rounding errors along a removed axis, which the fit must not read.
    kind = str(getattr(rows, "dtype", "float64")).removeprefix("torch.")
    eps = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(kind) or 64 * np.finfo(checked_rows(rows).dtype).eps
    axes = axes[:, widths > max(eps, len(z) * 1e-16) * widths[0]]
    return float(np.sqrt(np.mean((centred - axes @ (axes.T @ centred)) ** 2)))
