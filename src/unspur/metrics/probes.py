"""Fresh classifiers that try to read a label off rows: an exact linear one and a small network.

Both take weighted rows and return log-probabilities. How strongly they are regularised is chosen on rows they set aside
from those given, by weighted log loss, so that neither wide rows nor short directions need tuning by hand.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.neural_network import MLPClassifier

from unspur._arrays import on_numpy
from unspur._threads import one_scipy_thread
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.exceptions import InputError, NotFiniteError

Kind: TypeAlias = Literal["linear", "mlp"]

#: Penalties of the linear probe to choose from, strongest first, in units of the mean variance of the rows.
PENALTIES = (1e2, 1.0, 1e-2, 1e-4, 1e-6)
#: Directions whose variance is below this share of the largest are rounding errors, not information.
NOISE = {4: 1e-10, 8: 1e-13}
#: The small network: one hidden layer, at most this many passes over the rows, stopped after so many without gain.
HIDDEN, EPOCHS, PATIENCE = 64, 100, 10


class Probe(Protocol):
    """A fitted classifier of rows."""

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probability of each of k classes for rows of shape (n, d); shape (n, k)."""
        ...


def fit_probe(
    kind: Kind,
    Z: Array,
    codes: IntArray,
    n_classes: int,
    weight: FloatArray,
    rng: np.random.Generator,
    penalty: float | None = None,
) -> Probe:
    """Train a probe of codes 0…k−1 on rows (n, d) with positive weights (n,); each class needs two rows or more."""
    if kind == "linear":
        return LinearProbe.fit(Z, codes, n_classes, weight, rng, penalty)
    if kind == "mlp":
        return SmallNetwork(Z, codes, n_classes, weight, rng)
    raise InputError(f"probe is 'linear' or 'mlp'; got {kind!r}.")


def checked_rows(Z: Array, name: str = "Z") -> Array:
    """Rows as a finite two-dimensional array of float32 or float64, on the host wherever they were."""
    rows = np.asarray(on_numpy(Z))
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise InputError(f"{name} must be numbers in an array (n, d); got shape {rows.shape} of {rows.dtype}.")
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float32 if rows.dtype == np.float16 else np.float64)
    if not np.all(np.isfinite(rows)):
        raise NotFiniteError(
            f"{name} must be finite; {np.sum(~np.isfinite(rows).all(axis=1))} rows are not. Drop those rows."
        )
    return rows


class LinearProbe:
    """Logistic regression, solved exactly: log-probabilities are the log-softmax of ``(z − c) W + b``, W (d, k).

    ::

        minimise  Σ ω_i [log Σ_c exp(t_ic) − t_i,label] + λ/2 ‖W‖²,   λ = penalty · tr(C) / rank(C)

    with weights ω that sum to one and C the weighted covariance. Rescaling or shifting Z changes nothing.
    """

    def __init__(self, centre: FloatArray, weights: FloatArray, bias: FloatArray) -> None:
        self.centre, self.weights, self.bias = centre, weights, bias

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probabilities, shape (n, k)."""
        t = (Z - self.centre.astype(Z.dtype)) @ self.weights.astype(Z.dtype) + self.bias
        return np.asarray(t - logsumexp(t, axis=1, keepdims=True), dtype=np.float64)

    @classmethod
    def fit(
        cls,
        Z: Array,
        codes: IntArray,
        n_classes: int,
        weight: FloatArray,
        rng: np.random.Generator,
        penalty: float | None = None,
    ) -> LinearProbe:
        """Train; without a `penalty` take the one of `PENALTIES` with the lowest loss on a fifth set aside."""
        if penalty is None:
            aside = set_aside(codes, rng)
            trial = _Problem(Z[~aside], codes[~aside], n_classes, weight[~aside])
            held = Z[aside], codes[aside], weight[aside]
            losses: list[float] = []
            for value in PENALTIES:
                losses.append(log_loss(trial.solve(value, tolerance=1e-3), *held))
                if losses[-1] > min(losses) + np.log(n_classes):
                    break  # sure and wrong: weaker ones will be worse, and take longest
            penalty = PENALTIES[int(np.argmin(losses))]
        elif not penalty > 0:
            raise InputError(f"penalty must be positive, in units of the mean variance of Z; got {penalty}.")
        return _Problem(Z, codes, n_classes, weight).solve(penalty)


class _Problem:
    """One logistic regression in the principal axes of its rows, where any penalty is diagonal."""

    def __init__(self, Z: Array, codes: IntArray, n_classes: int, weight: FloatArray) -> None:
        self.codes, self.k = codes, n_classes
        self.weight = weight / weight.sum()
        self.centre = np.asarray(self.weight @ Z, dtype=np.float64)
        rows = Z - self.centre  # float64: a line search in float32 has no digits left to descend on
        if Z.shape[0] < Z.shape[1]:
            _, singular, axes = np.linalg.svd(rows * np.sqrt(self.weight)[:, None], full_matrices=False)
            variance, axes = singular**2, axes.T
        else:
            variance, axes = np.linalg.eigh((rows.T * self.weight) @ rows)
        real = variance > NOISE[Z.dtype.itemsize] * variance.max(initial=0.0)
        self.variance, self.axes = variance[real], axes[:, real]
        self.scores = rows @ self.axes
        self.prior = np.log(np.maximum(np.bincount(codes, weights=self.weight, minlength=n_classes), 1e-12))

    def solve(self, penalty: float, tolerance: float = 1e-6) -> LinearProbe:
        """The minimum; L-BFGS in coordinates ``W = T a`` in which the Hessian at zero is near the identity."""
        decay = penalty * float(self.variance.mean()) if len(self.variance) else penalty
        unit = 1.0 / np.sqrt(self.variance / self.k + decay)
        size = len(unit) * self.k
        at = np.arange(len(self.codes)), self.codes

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            w, b = unit[:, None] * x[:size].reshape(-1, self.k), x[size:]
            t = self.scores @ w + b
            t -= logsumexp(t, axis=1, keepdims=True)
            loss = -float(self.weight @ t[at]) + 0.5 * decay * float(np.sum(w**2))
            slope = np.exp(t)
            slope[at] -= 1.0
            slope *= self.weight[:, None]
            inner = unit[:, None] * (self.scores.T @ slope + decay * w)
            return loss, np.concatenate([inner.ravel(), slope.sum(axis=0)])

        start = np.concatenate([np.zeros(size), self.prior])
        # At least the gradient of a column of unit variance that says nothing about 100 rows: starts can be minima.
        small = max(float(np.abs(objective(start)[1]).max()), 0.1)
        with one_scipy_thread():
            found = minimize(
                objective, start, jac=True, method="L-BFGS-B",
                options={"maxiter": 2000, "maxfun": 4000, "gtol": tolerance * small, "ftol": 0.0, "maxcor": 20},
            )  # fmt: skip
        weights = self.axes @ (unit[:, None] * found.x[:size].reshape(-1, self.k))
        return LinearProbe(self.centre, np.asarray(weights, dtype=np.float64), found.x[size:])


class SmallNetwork:
    """One hidden layer of 64 ReLU units (scikit-learn's MLPClassifier, Adam) on columns of unit variance.

    Each pass sees a fresh draw of rows with probabilities proportional to their weights; of all passes the one with the
    lowest loss on a fifth set aside is kept.
    """

    def __init__(self, Z: Array, codes: IntArray, n_classes: int, weight: FloatArray, rng: np.random.Generator) -> None:
        self.centre = np.mean(Z, axis=0, dtype=np.float64)
        deviation = np.std(Z, axis=0, dtype=np.float64)
        # Columns far shorter than the rest stay short: what a removal leaves of its axis is rounding.
        self.unit = np.maximum(deviation, 1e-3 * np.sqrt(np.mean(deviation**2))) if deviation.any() else 1.0
        seed = int(rng.integers(2**31))
        self.model = MLPClassifier((HIDDEN,), alpha=1.0, learning_rate_init=3e-3, random_state=seed)
        aside = set_aside(codes, rng)
        held = Z[aside], codes[aside], weight[aside]
        rows, labels = self._scaled(Z[~aside]), codes[~aside]
        chance = weight[~aside] / weight[~aside].sum()
        best, kept, waited = np.inf, None, 0
        for _ in range(EPOCHS):
            drawn = rng.choice(len(rows), size=len(rows), p=chance)
            self.model.partial_fit(rows[drawn], labels[drawn], classes=np.arange(n_classes))
            loss = log_loss(self, *held)
            waited += 1
            if loss < best:
                best, waited = loss, 0
                kept = [w.copy() for w in self.model.coefs_], [b.copy() for b in self.model.intercepts_]
            if waited >= PATIENCE:
                break
        if kept is not None:
            self.model.coefs_, self.model.intercepts_ = kept

    def log_proba(self, Z: Array) -> FloatArray:
        """Log-probabilities, shape (n, k); none below 1e-7."""
        p = np.asarray(self.model.predict_proba(self._scaled(Z)), dtype=np.float64)
        return np.log(np.maximum(p, 1e-7))

    def _scaled(self, Z: Array) -> Any:
        return ((Z - self.centre) / self.unit).astype(np.float32)


def set_aside(codes: IntArray, rng: np.random.Generator, share: float = 0.2) -> BoolArray:
    """Mask of a random share of each class, of one row at least."""
    mask = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        mask[members[: max(1, round(share * len(members)))]] = True
    return mask


def balanced(weight: FloatArray, codes: IntArray) -> FloatArray:
    """Weights in which every class present has the same total, all of them summing to one."""
    total = np.bincount(codes, weights=weight)
    return np.asarray(weight / total[codes] / np.count_nonzero(total), dtype=np.float64)


def log_loss(probe: Probe, Z: Array, codes: IntArray, weight: FloatArray) -> float:
    """Weighted mean log loss in nats."""
    return -float(np.average(probe.log_proba(Z)[np.arange(len(codes)), codes], weights=weight))
