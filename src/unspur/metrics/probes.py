"""Probes, which predict a label from rows: a linear classifier and a small network.

Both take weighted rows and return log-probabilities. The kind and the regularisation of the linear classifier are
chosen by cross-validation on its training rows, so that wide rows, short directions, columns in other units and
outliers need no manual tuning. The choice never sees the rows that a probe is tested on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax
from sklearn.neural_network import MLPClassifier

from unspur._arrays import to_numpy
from unspur._resources import one_scipy_thread
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import folds_by_cluster, held_out_mask
from unspur.exceptions import InputError, NotFiniteError

Kind: TypeAlias = Literal["linear", "mlp"]
#: Units of the columns in which a penalty counts: raw, standard deviations, or spreads that outliers do not
#: change, with training values beyond `CLIP_SPREADS` of them cut off.
Units: TypeAlias = Literal["raw", "unit", "robust"]

#: Units to choose from; the first only where columns differ in width, the last only where there are outliers.
UNITS: tuple[Units, ...] = ("raw", "unit", "robust")
#: Penalties of logistic regression to choose from, strongest first, in units of the mean variance of the rows.
PROBE_PENALTIES = (1e2, 1.0, 1e-1, 1e-2, 1e-4, 1e-6)
#: The same of discriminant analysis. Zero is for directions that are shorter than any penalty.
SHRINKAGES = (1e2, 10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-6, 0.0)
#: The shrinkage that suits most rows; one of those above.
USUAL_SHRINKAGE = 1e-2
#: Folds for the choice, which ends early once this many rows, in all and of each class, have been held out.
PROBE_FOLDS, ENOUGH_HELD_OUT_ROWS, ENOUGH_HELD_OUT_PER_CLASS = 3, 1200, 100
#: A class is rare if it has less than this share of the rows of an average class. Then biases of the classes are
#: fitted, with a prior that halves them where about 35 rows of two classes are of the rare one.
RARE_SHARE, BIAS_PRIOR = 0.5, 12.0
#: Factors of the logits to choose from.
LOGIT_FACTORS = np.geomspace(1e-4, 30.0, 32)
#: Largest loss of a held-out row, in units of the loss of a guess, when a path of penalties is stopped early.
MAX_ROW_LOSS = 2.0
#: Rows that are sampled to detect outliers.
OUTLIER_SAMPLE_ROWS = 2000
#: Directions whose variance is below this share of the largest are rounding errors, not information.
MIN_VARIANCE_SHARE = {4: 1e-10, 8: 1e-13}
#: The same for the standard deviation of a column, as a share of this quantile of all columns: some columns in other
#: units may be far wider than those that carry the information.
MIN_DEVIATION_SHARE, WIDTH_QUANTILE = {4: 1e-7, 8: 1e-12}, 0.5
#: Variances above this share of the largest keep enough digits in products of rows with each other.
MIN_GRAM_SHARE = 1e-8
#: A note reports columns this many times as wide as most, and values this many spreads away from the median.
WIDE_COLUMN_RATIO, OUTLIER_SPREADS = 1000.0, 100.0
#: Spreads at which training values are clipped, how much outliers must widen a column for clipping to be tried, and how
#: much wider than another a column must be for raw units to be tried.
CLIP_SPREADS, MIN_WIDENING, MAX_WIDTH_RATIO = 4.0, 2.0, 1.5
#: The small network: units of its hidden layer, most epochs, and epochs without gain after which it stops.
HIDDEN_UNITS, EPOCHS, EPOCHS_WITHOUT_GAIN = 64, 100, 10
#: Spreads at which its inputs are clipped.
MAX_INPUT_SPREADS = 30.0


class Probe(Protocol):
    """A fitted classifier of rows."""

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probability of each of k classes for rows of shape (n, d); shape (n, k)."""
        ...


def prepare_probe(
    kind: Kind,
    codes: IntArray,
    n_classes: int,
    weight: FloatArray,
    rng: np.random.Generator,
    penalty: float | None = None,
    clusters: IntArray | None = None,
) -> Callable[[Array], Probe]:
    """The function that trains a probe of codes 0…k−1 (n,), with positive weights (n,), on rows (n, d).

    Each class needs two rows or more. A linear probe makes its random draws here, so that several can be trained at
    once; a network makes them in training. `clusters` (n,) are kept together in the folds that choose a linear probe,
    and in the rows that a network sets aside.
    """
    if kind == "linear":
        fold = None if penalty is not None else inner_folds(codes, rng, clusters)
        return lambda Z: LinearProbe.fit(Z, codes, n_classes, weight, fold, penalty)
    if kind == "mlp":
        return lambda Z: SmallNetwork(Z, codes, n_classes, weight, rng, clusters)
    raise InputError(f"probe is 'linear' or 'mlp'; got {kind!r}.")


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
    """A linear classifier: log-probabilities are the log-softmax of ``(z − c) W + b``, W (d, k).

    With a penalty it is logistic regression, solved exactly::

        minimise  Σ ω_i [log Σ_c exp(t_ic) − t_i,label] + λ/2 ‖W‖²,   λ = penalty · tr(C) / rank(C)

    with weights ω that sum to one and C the weighted covariance. Without one, several linear classifiers are tried:
    discriminant analysis and logistic regression, each with several penalties, in raw columns, in columns of unit
    variance and, if there are outliers, in columns of unit spread with clipped training values. Cross-validation
    chooses by accuracy, and by loss among those within two standard errors of the best; the logits of several that do
    as well are averaged, which is a linear classifier again. If a class is rare, the held-out rows also fit the bias of
    each class. Rescaling or shifting Z changes nothing.
    """

    centre: FloatArray
    weights: FloatArray
    bias: FloatArray

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probabilities, shape (n, k)."""
        # float64: nearly collinear columns have large weights of both signs
        return np.asarray(log_softmax((Z - self.centre) @ self.weights + self.bias, axis=1))

    @classmethod
    def fit(
        cls,
        Z: Array,
        codes: IntArray,
        n_classes: int,
        weight: FloatArray,
        fold: IntArray | None,
        penalty: float | None = None,
    ) -> LinearProbe:
        """Train: logistic regression with the given `penalty`, or the classifier that the folds (n,) prefer."""
        if penalty is not None:
            if not penalty > 0:
                raise InputError(f"penalty must be positive, in units of the mean variance of Z; got {penalty}.")
            return _Problem(Z, codes, n_classes, weight).solve(_Candidate("logistic", "raw", penalty))
        assert fold is not None, "folds choose the penalty"
        members, biases = _select_candidates(Z, codes, n_classes, weight, fold)
        problems: dict[bool, _Problem] = {}
        parts = []
        for one in members:
            if one.robust not in problems:
                problems[one.robust] = _Problem(Z, codes, n_classes, weight, robust=one.robust)
            parts.append(problems[one.robust].solve(one))
        probe = cls._sum(parts, list(members.values()))
        return replace(probe, bias=probe.bias + biases)

    @classmethod
    def _sum(cls, parts: list[LinearProbe], factors: list[float]) -> LinearProbe:
        """The linear probe whose logits are a weighted sum of those of others."""
        centre = parts[0].centre
        weights, bias = np.zeros_like(parts[0].weights), np.zeros_like(parts[0].bias)
        for part, factor in zip(parts, factors, strict=True):
            weights += factor * part.weights
            bias += factor * (part.bias + (centre - part.centre) @ part.weights)
        return cls(centre, weights, bias)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One linear classifier to try."""

    method: Literal["discriminant", "logistic"]
    units: Units
    penalty: float

    @property
    def robust(self) -> bool:
        return self.units == "robust"


def _select_candidates(
    Z: Array, codes: IntArray, k: int, weight: FloatArray, fold: IntArray
) -> tuple[dict[_Candidate, float], FloatArray]:
    """The candidates that cross-validation chooses, with the factors of their logits; and biases of the classes (k,).

    Discriminant analysis takes no time once the principal axes are known, so it is tried in all units. Logistic
    regression is tried in columns of unit variance, and in the units in which discriminant analysis did best.
    """
    units = units_to_try(Z)
    found: dict[_Candidate, list[FloatArray]] = {}
    held: list[IntArray] = []
    slow: set[Units] = set()
    for train, test in _splits(fold, codes):
        held.append(test)
        problems = {
            robust: _Problem(Z[train], codes[train], k, weight[train], robust=robust)
            for robust in {name == "robust" for name in units}
        }
        for name in units:
            tried = [_Candidate("discriminant", name, value) for value in SHRINKAGES]
            for one, log_p in zip(tried, problems[name == "robust"].discriminants(tried, Z[test]), strict=True):
                found.setdefault(one, []).append(log_p)
        if not slow:
            predictions = _HeldOutPredictions(found, codes[test], weight[test])
            slow = {predictions.best(list(found)).units, "unit" if "unit" in units else units[0]}
        for name in sorted(slow):
            tried = [_Candidate("logistic", name, value) for value in PROBE_PENALTIES]
            for one, log_p in problems[name == "robust"].path(tried, Z[test], codes[test], weight[test]):
                found.setdefault(one, []).append(log_p)
    rows = np.concatenate(held)
    complete = {one: parts for one, parts in found.items() if len(parts) == len(held)}
    predictions = _HeldOutPredictions(complete, codes[rows], weight[rows])
    members = predictions.members()
    return members, predictions.biases(members)


class _HeldOutPredictions:
    """Held-out predictions of the candidates, and the choice among them."""

    def __init__(self, found: dict[_Candidate, list[FloatArray]], truth: IntArray, weight: FloatArray) -> None:
        self.truth, self.share = truth, weight / weight.sum()
        self.log_p = {one: np.concatenate(parts) for one, parts in found.items()}
        self.right = {one: (np.argmax(log_p, axis=1) == truth) * 1.0 for one, log_p in self.log_p.items()}
        self._losses: dict[_Candidate, FloatArray] = {}

    def best(self, candidates: list[_Candidate]) -> _Candidate:
        """The lowest loss among those whose accuracy is within two standard errors of the highest."""
        leader = max(candidates, key=lambda one: float(self.share @ self.right[one]))
        near = [one for one in candidates if self._not_worse(self.right[leader] - self.right[one])]
        return min(near, key=lambda one: float(self.share @ self.losses(one)))

    def members(self) -> dict[_Candidate, float]:
        """The best candidate of each method and units, unless it is worse than the best of all; and their factors.

        For a class with few rows the best of many candidates is best by luck. So several that do as well are averaged,
        and discriminant analysis with little shrinkage is one of them, unless it does worse.
        """
        families: dict[tuple[str, str], list[_Candidate]] = {}
        for one in self.log_p:
            families.setdefault((one.method, one.units), []).append(one)
        finalists = [self.best(family) for family in families.values()]
        winner = self.best(finalists)
        units: Units = "robust" if ("discriminant", "robust") in families else "unit"
        usual = _Candidate("discriminant", units, USUAL_SHRINKAGE)
        finalists += [usual] if usual in self.log_p and usual not in finalists else []
        chosen = [
            one
            for one in finalists
            if self._not_worse(self.right[winner] - self.right[one])
            and self._not_worse(self.losses(one) - self.losses(winner))
        ]
        factors = {one: self._best_factor(_clipped(self._lead(self.log_p[one]))) / len(chosen) for one in chosen}
        total = np.sum([factor * self.log_p[one] for one, factor in factors.items()], axis=0)
        again = self._best_factor(self._lead(total))
        return {one: again * factor for one, factor in factors.items()}

    def biases(self, members: dict[_Candidate, float]) -> FloatArray:
        """What to add to the summed logits of each class, shape (k,), with sum zero; zero unless a class is rare.

        A classifier learns the few rows of a rare class by heart, so that fresh ones lie nearer to the other classes
        than it expects. The biases, with a factor, minimise the held-out loss of clipped logits; they are zero as well
        if they do not raise the held-out accuracy.
        """
        logits = np.sum([factor * self.log_p[one] for one, factor in members.items()], axis=0)
        n, k = logits.shape
        smallest = int(np.bincount(self.truth, minlength=k).min())
        if smallest * k >= RARE_SHARE * n:
            return np.zeros(k)
        clipped = _clipped(logits - logits.mean(axis=1, keepdims=True))
        unit = self._best_factor(self._lead(clipped))
        target = np.full((n, k), 1.0 / (n + 2.0) / k)  # with doubt, as in `_loss`
        target[np.arange(n), self.truth] += 1.0 - 1.0 / (n + 2.0)

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            factor, bias = unit * np.exp(x[0]), x[1:] - x[1:].mean()
            log_p = log_softmax(factor * clipped + bias, axis=1)
            slope = self.share[:, None] * (np.exp(log_p) - target)
            pull = BIAS_PRIOR / smallest * bias
            inner = slope.sum(axis=0) + pull
            value = -float(self.share @ np.sum(target * log_p, axis=1)) + 0.5 * float(pull @ bias)
            return value, np.append(factor * np.sum(slope * clipped), inner - inner.mean())

        with one_scipy_thread():
            found = minimize(objective, np.zeros(1 + k), jac=True, method="L-BFGS-B").x
        biases = (found[1:] - found[1:].mean()) / (unit * np.exp(found[0]))
        before, after = (self.share @ (np.argmax(one, axis=1) == self.truth) for one in (logits, logits + biases))
        return np.asarray(biases if after > before else np.zeros(k))

    def _not_worse(self, difference: FloatArray) -> bool:
        """Whether a mean difference is at most two standard errors."""
        mean = float(self.share @ difference)
        return mean <= 2.0 * float(np.sqrt(np.sum((self.share * (difference - mean)) ** 2)))

    def losses(self, one: _Candidate) -> FloatArray:
        """Log loss of each row at the best factor, with extreme logits clipped."""
        if one not in self._losses:
            lead = _clipped(self._lead(self.log_p[one]))
            self._losses[one] = self._loss(np.array([self._best_factor(lead)]), lead)[0]
        return self._losses[one]

    def _lead(self, logits: FloatArray) -> FloatArray:
        """How far the logit of each class is above that of the right one, shape (n, k)."""
        return np.asarray(logits - logits[np.arange(len(logits)), self.truth][:, None])

    def _loss(self, factors: FloatArray, lead: FloatArray) -> FloatArray:
        """Log loss of each row with logits times each of m factors, shape (m, n).

        One wrong prediction is added to the rows (Platt, 1999), since being right on a few rows proves little.
        """
        doubt, top = 1.0 / (len(lead) + 2.0), lead.max(axis=1)
        loss = np.log(np.exp(factors[:, None, None] * (lead - top[:, None])).sum(axis=2))
        return np.asarray(loss + factors[:, None] * (top - doubt * lead.mean(axis=1)))

    def _best_factor(self, lead: FloatArray) -> float:
        """The factor of the logits with the lowest held-out loss.

        Discriminant analysis is overconfident in wide rows, and a strong penalty underconfident. The loss is convex in
        the factor, so a bisection finds the lowest of the grid.
        """
        low, high = 0, len(LOGIT_FACTORS) - 1
        while low < high:
            middle = (low + high) // 2
            here, further = self._loss(LOGIT_FACTORS[middle : middle + 2], lead) @ self.share
            low, high = (low, middle) if here <= further else (middle + 1, high)
        return float(LOGIT_FACTORS[low])


def _clipped(logits: FloatArray) -> FloatArray:
    """Logits or leads (n, k) clipped at twice the largest of nine in ten rows."""
    reach = 2.0 * float(np.quantile(np.abs(logits).max(axis=1), 0.9))
    return np.asarray(np.clip(logits, -reach, reach))


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


def _splits(fold: IntArray, codes: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Training and held-out rows of each fold, until enough rows have been held out."""
    held_out = np.zeros(len(codes), dtype=bool)
    for k in range(PROBE_FOLDS):
        test = fold == k
        held_out |= test
        yield np.flatnonzero(~test), np.flatnonzero(test)
        if held_out.sum() >= ENOUGH_HELD_OUT_ROWS and np.bincount(codes[held_out]).min() >= ENOUGH_HELD_OUT_PER_CLASS:
            return


def spreads(Z: Array) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Median, spread and standard deviation of each column.

    The spread is the range from the 5th to the 95th percentile over that of a standard Gaussian; for columns that are
    constant in nearly all rows (sparse features) it is the standard deviation.
    """
    # Sorting whole columns is several times faster than the partition that quantiles make of them in place.
    low, middle, high = np.quantile(np.sort(np.ascontiguousarray(Z.T), axis=1), [0.05, 0.5, 0.95], axis=1)
    deviation = np.std(Z, axis=0, dtype=np.float64)
    spread = np.asarray((high - low) / 3.29, dtype=np.float64)
    return np.asarray(middle, dtype=np.float64), np.where(spread > 0, spread, deviation), deviation


def units_to_try(Z: Array) -> list[Units]:
    """The `UNITS` that differ on these rows, according to a sample."""
    deviation = np.std(Z, axis=0, dtype=np.float64)
    spread = spreads(Z[:: max(1, len(Z) // OUTLIER_SAMPLE_ROWS)])[1]
    real = deviation[deviation > 0]
    alike = len(real) == 0 or real.max() < MAX_WIDTH_RATIO * real.min()
    skipped = {"raw"} if alike and "unit" in UNITS else set()
    if not np.any(deviation > MIN_WIDENING * spread):
        skipped.add("robust")
    return [name for name in UNITS if name not in skipped]


def scale_notes(Z: Array) -> tuple[str, ...]:
    """Warnings about the scales of columns: one far wider than the rest, or outliers."""
    sample = Z[:: max(1, len(Z) // OUTLIER_SAMPLE_ROWS)]
    middle, spread, _ = spreads(sample)
    notes = []
    known = spread[spread > 0]
    usual = float(np.median(known)) if len(known) else 0.0
    wide = np.flatnonzero(spread > WIDE_COLUMN_RATIO * usual) if usual > 0 else np.array([], dtype=np.intp)
    if len(wide):
        column = int(wide[np.argmax(spread[wide])])
        more = f" ({len(wide)} columns are more than {WIDE_COLUMN_RATIO:g} times as wide)" if len(wide) > 1 else ""
        notes.append(
            f"column {column} is {spread[column] / usual:,.0f} times as wide as most columns{more}; is it in other "
            "units?"
        )
    far = np.zeros(len(Z), dtype=bool)
    reach = np.where(spread > 0, OUTLIER_SPREADS * spread, np.inf)
    worst, most = 0, 0.0
    for start in range(0, len(Z), OUTLIER_SAMPLE_ROWS):
        out = np.abs(Z[start : start + OUTLIER_SAMPLE_ROWS] - middle) / reach
        far[start : start + OUTLIER_SAMPLE_ROWS] = np.any(out > 1, axis=1)
        if out.size and float(out.max()) > most:
            worst, most = int(np.argmax(out.max(axis=0))), float(out.max())
    if far.any():
        notes.append(
            f"{far.sum():,} of {len(Z):,} rows are outliers, farther than {OUTLIER_SPREADS:g} spreads from the median "
            f"in some column (column {worst}: {OUTLIER_SPREADS * most:,.0f} spreads)"
        )
    return tuple(notes)


class ScaledRows:
    """Rows with columns of unit variance, or of unit spread with outliers clipped, and their principal axes.

    Columns that are constant but for rounding become zero.
    """

    def __init__(self, Z: Array, share: FloatArray, *, robust: bool = False) -> None:
        if robust:
            self.centre, unit, _ = spreads(Z)
        else:
            self.centre, unit = np.mean(Z, axis=0, dtype=np.float64), np.std(Z, axis=0, dtype=np.float64)
        self.kind = Z.dtype.itemsize
        largest = np.abs(Z).max(axis=0, initial=0.0)
        varying = unit[unit > 0]
        usual = np.quantile(varying, WIDTH_QUANTILE, method="higher") if len(varying) else 0.0
        shortest = MIN_DEVIATION_SHARE[self.kind] * usual
        real = unit > np.maximum(shortest, 4 * np.finfo(Z.dtype).eps * largest)
        self.unit = np.where(real, unit, np.inf)
        self.rows = (Z - self.centre) / self.unit  # float64: a line search in float32 has no digits left to descend on
        if robust:
            np.clip(self.rows, -CLIP_SPREADS, CLIP_SPREADS, out=self.rows)
        self.share = share / share.sum()
        middle = self.share @ self.rows
        self.rows -= middle
        self.centre = self.centre + middle * np.where(real, unit, 0.0)
        self._covariance: FloatArray | None = None

    def axes(self, units: Units) -> PrincipalAxes:
        """Principal axes of the rows; in "raw" units of the columns as given, up to a common factor."""
        factor = np.ones(len(self.unit))
        if units == "raw" and np.isfinite(self.unit).any():
            factor = np.where(np.isfinite(self.unit), self.unit, 0.0)
            factor /= factor.max()
        if len(self.rows) < self.rows.shape[1]:
            root = np.sqrt(self.share)[:, None]
            return _axes_of_wide_rows(self.rows * (factor * root), factor, root, self.kind)
        if self._covariance is None:
            half = self.rows * np.sqrt(self.share)[:, None]
            self._covariance = half.T @ half
        variance, axes = np.linalg.eigh(self._covariance * factor * factor[:, None])
        real = variance > MIN_VARIANCE_SHARE[self.kind] * variance.max(initial=0.0)
        return PrincipalAxes(variance[real], factor[:, None] * axes[:, real])

    def scores(self, axes: PrincipalAxes) -> FloatArray:
        """Coordinates (n, r) of the rows along their axes."""
        return axes.coordinates(self.rows) if axes.scores is None else axes.scores


def _axes_of_wide_rows(rows: FloatArray, factor: FloatArray, root: FloatArray, itemsize: int) -> PrincipalAxes:
    """Axes of rows that are fewer than their features, given times a factor (d,) and the roots (n, 1) of their shares.

    They come from products of the rows with each other, unless some variances are so small that these lose them.
    """
    variance, left = np.linalg.eigh(rows @ rows.T)
    large, least = variance > MIN_GRAM_SHARE * variance[-1], MIN_VARIANCE_SHARE[itemsize]
    if np.any(variance[~large] > least * variance[-1]):
        _, singular, axes = np.linalg.svd(rows, full_matrices=False)
        real = singular**2 > least * singular[0] ** 2
        return PrincipalAxes(singular[real] ** 2, factor[:, None] * axes[real].T)
    left, length = left[:, large], np.sqrt(variance[large])
    return PrincipalAxes(variance[large], (factor * rows).T, left / length, left * length / root)


@dataclass(frozen=True, slots=True)
class PrincipalAxes:
    """Variances (r,) along the principal axes of scaled rows.

    The axes are ``columns`` (d, m), or those of wide rows their product with a `turn` (m, r), which need not be
    computed; `scores` (n, r) are coordinates of wide rows.
    """

    variance: FloatArray
    columns: FloatArray
    turn: FloatArray | None = None
    scores: FloatArray | None = None

    def coordinates(self, rows: FloatArray) -> FloatArray:
        """Coordinates (m, r) of scaled rows (m, d)."""
        found = rows @ self.columns
        return np.asarray(found if self.turn is None else found @ self.turn)

    def lift(self, weights: FloatArray) -> FloatArray:
        """Weights (r, m) along the axes as weights (d, m) of scaled rows."""
        return np.asarray(self.columns @ (weights if self.turn is None else self.turn @ weights))

    def decay(self, penalty: float) -> float:
        """A penalty in units of the mean variance."""
        return penalty * float(self.variance.mean()) if len(self.variance) else penalty


class _Problem:
    """Linear classifiers of rows in their principal axes, where any penalty is diagonal."""

    def __init__(self, Z: Array, codes: IntArray, n_classes: int, weight: FloatArray, *, robust: bool = False) -> None:
        self.codes, self.k = codes, n_classes
        self.weight = weight / weight.sum()
        total = np.bincount(codes, weights=self.weight, minlength=n_classes)
        # Covariances are of rows, whatever a class counts for: few rows of a rare class would stand for half of them.
        rows = np.bincount(codes, minlength=n_classes) / np.maximum(total, np.finfo(float).tiny)
        self.scaled = ScaledRows(Z, self.weight * rows[codes], robust=robust)
        self.frequency = np.bincount(codes, weights=self.scaled.share, minlength=n_classes)
        belongs = (codes == np.arange(n_classes)[:, None]) * self.weight / np.maximum(total, 1e-300)[:, None]
        self.means = belongs @ self.scaled.rows
        self.prior = np.log(np.maximum(total, 1e-12))
        self._axes: dict[Units, tuple[PrincipalAxes, FloatArray]] = {}

    def axes(self, units: Units) -> tuple[PrincipalAxes, FloatArray]:
        """Principal axes, and the means of the classes along them, shape (r, k)."""
        if units not in self._axes:
            axes = self.scaled.axes(units)
            self._axes[units] = axes, axes.coordinates(self.means).T
        return self._axes[units]

    def solve(self, candidate: _Candidate) -> LinearProbe:
        """One candidate, on all rows."""
        if candidate.method == "discriminant":
            along, bias = self._discriminant(candidate)
            weights = self.axes(candidate.units)[0].lift(along)
        else:
            weights, bias = _Logistic(self, candidate.units).solve(candidate.penalty)
        return LinearProbe(self.scaled.centre, weights / self.scaled.unit[:, None], bias)

    def discriminants(self, candidates: list[_Candidate], Z: Array) -> list[FloatArray]:
        """Log-probabilities of each for other rows; all are in the same units."""
        rows = (Z - self.scaled.centre) / self.scaled.unit
        solved = [self._discriminant(one) for one in candidates]
        axes, _ = self.axes(candidates[0].units)
        logits = rows @ axes.lift(np.concatenate([along for along, _ in solved], axis=1))
        parts = np.split(logits, len(solved), axis=1)
        return [log_softmax(part + bias, axis=1) for part, (_, bias) in zip(parts, solved, strict=True)]

    def path(
        self, candidates: list[_Candidate], Z: Array, codes: IntArray, weight: FloatArray
    ) -> Iterator[tuple[_Candidate, FloatArray]]:
        """Log-probabilities of other rows by logistic regressions, each started from the solution of the last."""
        rows = (Z - self.scaled.centre) / self.scaled.unit
        problem, lowest = _Logistic(self, candidates[0].units), np.inf
        at = np.arange(len(codes)), codes
        for one in candidates:
            weights, bias = problem.solve(one.penalty, tolerance=1e-3, steps=100)
            log_p = log_softmax(rows @ weights + bias, axis=1)
            yield one, log_p
            loss = float(np.average(np.minimum(-log_p[at], MAX_ROW_LOSS * np.log(self.k)), weights=weight))
            if loss > lowest + np.log(self.k) / 2:
                return  # sure and wrong: weaker penalties will be worse, and take longest
            lowest = min(lowest, loss)

    def _discriminant(self, candidate: _Candidate) -> tuple[FloatArray, FloatArray]:
        """Linear discriminant analysis with equal priors: ``W = (S + λ)⁻¹ M`` of the covariance within classes S.

        Along the principal axes the covariance of all rows is diagonal, and S is that less that of the k means. Returns
        weights (r, k) along the axes, and the bias.
        """
        axes, means = self.axes(candidate.units)
        solved = means / (axes.variance + axes.decay(candidate.penalty))[:, None]
        within = np.eye(self.k) - self.frequency[:, None] * (means.T @ solved)
        weights = solved @ np.linalg.pinv(within, rcond=1e-12)
        return weights, -0.5 * np.sum(means * weights, axis=0)


class _Logistic:
    """Logistic regression by L-BFGS, in coordinates in which the Hessian at zero is near the identity.

    For two classes only the difference of their weights is fitted, and each gets half of it.
    """

    def __init__(self, problem: _Problem, units: Units) -> None:
        self.codes, self.k, self.weight, self.prior = problem.codes, problem.k, problem.weight, problem.prior
        self.axes = axes = problem.axes(units)[0]
        self.scores = problem.scaled.scores(axes)
        mean = self.weight @ self.scores
        # Under the weights given, in which penalties are counted; never quite zero.
        self.variance = np.maximum(self.weight @ self.scores**2 - mean**2, 1e-3 * axes.variance)
        self.width = 1 if self.k == 2 else self.k
        self.solution: tuple[FloatArray, FloatArray] | None = None

    def solve(self, penalty: float, tolerance: float = 1e-6, steps: int = 2000) -> tuple[FloatArray, FloatArray]:
        """Weights (d, k) of scaled rows and bias at the minimum; starts from the last solution."""
        decay = penalty * float(self.variance.mean()) if len(self.variance) else penalty
        width, binary = self.width, self.width == 1
        pull = decay / 2 if binary else decay
        unit = 1.0 / np.sqrt(self.variance / (2 * self.k if binary else self.k) + pull)
        size = len(unit) * width
        at = np.arange(len(self.codes)), self.codes
        sign = 2.0 * self.codes - 1.0

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            w, b = unit[:, None] * x[:size].reshape(-1, width), x[size:]
            t = self.scores @ w + b
            if binary:
                log_p = log_expit(sign * t[:, 0])
                loss = -float(self.weight @ log_p)
                slope = (self.weight * sign * np.expm1(log_p))[:, None]
            else:
                t = log_softmax(t, axis=1)
                loss = -float(self.weight @ t[at])
                slope = np.exp(t)
                slope[at] -= 1.0
                slope *= self.weight[:, None]
            inner = unit[:, None] * (self.scores.T @ slope + pull * w)
            return loss + 0.5 * pull * float(np.sum(w**2)), np.concatenate([inner.ravel(), slope.sum(axis=0)])

        start = np.concatenate([np.zeros(size), self.prior[1:] - self.prior[:1] if binary else self.prior])
        # At least the gradient of a column of unit variance that says nothing about 100 rows: starts can be minima.
        small = max(float(np.abs(objective(start)[1]).max()), 0.1)
        if self.solution is not None:
            start = np.concatenate([(self.solution[0] / unit[:, None]).ravel(), self.solution[1]])
        with one_scipy_thread():
            found = minimize(
                objective,
                start,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": steps, "maxfun": 2 * steps, "gtol": tolerance * small, "ftol": 0.0, "maxcor": 20},
            )
        w, b = unit[:, None] * found.x[:size].reshape(-1, width), found.x[size:]
        self.solution = w, b
        if binary:
            w, b = np.concatenate([-w, w], axis=1) / 2, np.concatenate([-b, b]) / 2
        return self.axes.lift(w), np.asarray(b)


class SmallNetwork:
    """One hidden layer of 64 ReLU units (scikit-learn's MLPClassifier, Adam) on columns of unit spread.

    Values beyond 30 spreads are clipped. Each epoch sees rows drawn with probabilities proportional to their weights;
    the epoch with the lowest loss on a fifth of the rows, which is held out, is kept.
    """

    def __init__(
        self,
        Z: Array,
        codes: IntArray,
        n_classes: int,
        weight: FloatArray,
        rng: np.random.Generator,
        clusters: IntArray | None = None,
    ) -> None:
        self.centre, unit, _ = spreads(Z)
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
            self.model.partial_fit(rows[drawn], labels[drawn], classes=np.arange(n_classes))
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


def balanced(weight: FloatArray, codes: IntArray) -> FloatArray:
    """Weights in which every class present has the same total, all of them summing to one."""
    total = np.bincount(codes, weights=weight)
    return np.asarray(weight / total[codes] / np.count_nonzero(total), dtype=np.float64)
