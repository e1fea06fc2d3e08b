"""Logistic losses, and logistic regression for one label, solved exactly.

::

    minimise over W, b    Σ ω_i ℓ(W (z_i − c) + b, y_i)  +  λ/2 tr(W M Wᵀ),      λ = penalty · tr(C) / rank(C)

    ℓ(η, y) = log(1 + e^η) − y η                two classes, one logit
    ℓ(η, y) = log Σ_c exp(η_c) − η_y            K > 2 classes, K logits

c and C are centre and second moment of the rows, so neither their scale nor their offset matters. M is the identity,
or the metric of `Geometry.in_metric`. W = A Tᵀ in the coordinates of `solvers.coordinates`, in which the Hessian is
close to a multiple of the identity: L-BFGS needs a few dozen passes over the rows, even for features of very different
scales. Weights stay in the span of the rows.

Conventions
-----------
- m rows of a block; d features; r ≤ d, the rank of the rows.
- `LogisticLosses` are of several weightings and q binary labels, lines CONCEPT or MAIN of a block's targets: weights
  (weightings, q, d), logits η (weightings, q, m). A sum over rows is (weightings, q, 2 + d): loss, gradient in the
  intercept, gradient in the weights.
- `SoftmaxLoss` is of the task, whose line MAIN holds codes of classes, and k logits, 1 for two classes, else one
  per class: weights (k, d), intercepts (k,), logits (k, m), whitened coordinates A (k, r).
- Weights act on centred rows: logits are ``w · (z − centre) + b``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from unspur._arrays import (
    backward,
    cast,
    empty64,
    forward,
    namespace,
    sum_by,
    take_rows,
    to_device,
    to_device_like,
)
from unspur._typing import Array, FloatArray, IntArray
from unspur.rows import CONCEPT, MAIN, Block, RowSource, Weighting
from unspur.solvers.coordinates import Geometry, LogisticCoordinates
from unspur.solvers.descent import (
    MANY_CORRECTIONS,
    MIN_LABEL_GRADIENT,
    DescentResult,
    Outcome,
    minimize_many,
    outcome_of,
    rounding_error,
    warn_not_converged,
)

#: Largest logit, by the size of its type, for which ``log(1 + exp(−η)) + η`` gives the loss without overflow or visible
#: cancellation.
MAX_PLAIN_LOGIT = {4: 80.0, 8: 300.0}
#: Bound on the gradient over the objective, both relative to zero weights. On separable rows a small loss has a small
#: gradient everywhere, so a bound on the gradient alone ends a descent far from the minimum of a small penalty.
MAX_GRADIENT_TO_LOSS = 1e-3


def loss_and_probability(logits: Array, targets: Array) -> tuple[FloatArray, FloatArray]:
    """``ℓ(η, y) = log(1 + exp η) − y η`` and ``p = 1 / (1 + exp(−η))`` elementwise, without overflow.

    To an absolute 1e-13 for float64 logits, to the rounding of the logit for float32.
    """
    if not isinstance(logits, np.ndarray):  # a look at the largest would wait for the device
        xp = namespace(logits)
        return xp.logaddexp(logits, xp.zeros_like(logits)) - targets * logits, 1.0 / (1.0 + xp.exp(-logits))
    if logits.size and max(logits.max(), -logits.min()) > MAX_PLAIN_LOGIT[logits.itemsize]:
        small = np.exp(-np.abs(logits))
        probability = np.where(logits >= 0, 1.0, small) / (1.0 + small)
        return np.maximum(logits, 0.0) + np.log1p(small) - targets * logits, probability
    # Half the work of the stable form: exp and log run at full width, log1p and a branch do not.
    inverse = np.exp(-logits)
    inverse += 1.0
    return np.log(inverse) + (1.0 - targets) * logits, 1.0 / inverse


@dataclass(frozen=True, slots=True)
class LogisticLosses:
    """Σ ω ℓ(z·w + b, label) with its gradient, for several labels under several weightings, in one pass over the rows.

    Parameters
    ----------
    weights, intercepts : shapes (weightings, q, d) and (weightings, q).
    labels : shape (q,), CONCEPT or MAIN.
    factors : shape (weightings, cells): ω = weight · factor[cell].
    centre : shape (d,).
    centred : subtract `centre` from every block instead of from the logits; needed if rows are so far from zero that
        their products would lose the signal.
    in_float64 : compute losses in float64, not in the type of the rows; sums are float64 in any case.

    A call returns shape (weightings, q, 2 + d): loss, gradient in the intercept, gradient in the weights.
    """

    weights: FloatArray
    intercepts: FloatArray
    labels: IntArray
    factors: FloatArray
    centre: FloatArray
    centred: bool = False
    in_float64: bool = False

    @classmethod
    def of_one(
        cls,
        weights: FloatArray,
        intercepts: FloatArray,
        centre: FloatArray,
        weighting: Weighting,
        *,
        centred: bool = False,
        only: int | None = None,
    ) -> Self:
        """The losses under one weighting, for weights (q, d) of both labels, or of the label `only`."""
        labels = np.array([CONCEPT, MAIN] if only is None else [only])
        return cls(weights[None], intercepts[None], labels, weighting.factor[None], centre, centred, in_float64=True)

    @property
    def thin(self) -> bool:
        """Whether rows are only multiplied, by `forward` and `backward`, and not copied."""
        return not self.centred

    @property
    def shift(self) -> FloatArray:
        """Constants added to the products with the rows, shape (weightings, q)."""
        return self.intercepts if self.centred else self.intercepts - self.weights @ self.centre

    def __call__(self, block: Block) -> FloatArray:
        """Values and gradients over one block."""
        n_weightings, q, d = self.weights.shape
        n_models = n_weightings * q
        z = block.z - to_device_like(self.centre, block.z) if self.centred else block.z
        kind = np.float64 if self.in_float64 or z.dtype.itemsize == 8 else np.float32
        logits = empty64((n_models, len(z)), z, kind)
        forward(z, self.weights.reshape(n_models, d), logits)
        logits += to_device_like(self.shift.reshape(-1, 1), logits)
        targets = cast(take_rows(block.targets, self.labels), kind)  # (q, m)
        losses, residual = loss_and_probability(logits.reshape(n_weightings, q, -1), targets)
        omega = namespace(z).take(to_device_like(self.factors, logits), block.cell, axis=1)
        omega *= cast(block.weight, kind)
        omega = omega[:, None]  # (weightings, 1, m)
        residual -= targets
        residual *= omega
        losses *= omega
        out = empty64((n_weightings, q, 2 + d), z)
        out[..., 0] = namespace(z).sum(losses, axis=2, dtype=out.dtype)
        out[..., 1] = namespace(z).sum(residual, axis=2, dtype=out.dtype)
        gradient = empty64((n_models, d), z)
        backward(z, residual.reshape(n_models, -1), gradient)
        out[..., 2:] = gradient.reshape(n_weightings, q, d)
        if not self.centred:
            out[..., 2:] -= out[..., 1, None] * to_device_like(self.centre, out)
        return out


@dataclass(frozen=True, slots=True)
class Logistic:
    """Weights (d,) on centred rows, intercept, and how the solver did."""

    weights: FloatArray
    intercept: float
    outcome: Outcome


#: Memory for the correction pairs of descents side by side.
MAX_DESCENT_BYTES = 64 * 2**20
#: Intercepts are scaled by 2, so that their Hessian, at most ¼, becomes 1 like that of whitened coordinates.
INTERCEPT_SCALE = 2.0


def solve_logistic(
    rows: RowSource,
    problems: Sequence[tuple[Weighting, LogisticCoordinates]],
    label: int,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[Logistic]:
    """Minimise ``Σ ω ℓ(z·w + b, label) + λ/2 ‖w‖²`` for several problems side by side.

    Each has a weighting of its own, and weights in the subspace that its coordinates allow; all else they share. `tol`
    bounds the gradients in whitened coordinates, relative to zero weights.
    """
    weightings, spaces = zip(*problems, strict=True)
    geometry, transform, decay = spaces[0].geometry, spaces[0].transform, spaces[0].decay
    factors = np.stack([weighting.factor for weighting in weightings])

    def projected(a: FloatArray, which: IntArray) -> FloatArray:
        return np.stack([spaces[k].project(one) for k, one in zip(which, a, strict=True)])

    def at(x: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        weights = projected(x[:, :-1], which) @ transform.T
        intercepts, labels = INTERCEPT_SCALE * x[:, -1:], np.array([label])
        loss = LogisticLosses(
            weights[:, None], intercepts, labels, factors[which], geometry.centre, geometry.far_from_zero, True
        )
        sums = rows.sum(loss)[:, 0]
        slopes = projected((sums[:, 2:] + decay * weights) @ transform, which)
        values = sums[:, 0] + 0.5 * decay * np.sum(weights**2, axis=1)
        return values, np.concatenate([slopes, INTERCEPT_SCALE * sums[:, 1:2]], axis=1)

    zero, every = np.zeros((len(problems), transform.shape[1] + 1)), np.arange(len(problems))
    scale = np.maximum(np.linalg.norm(at(zero, every)[1], axis=1), np.finfo(np.float64).tiny)
    no_bound, noise = np.full(len(problems), np.inf), rounding_error(rows.dtype) * scale
    ends = minimize_many(at, zero, tol * scale, 2 * max_iter, noise, no_bound)
    weights = projected(np.stack([end.x[:-1] for end in ends]), every) @ transform.T
    return [
        Logistic(
            own, INTERCEPT_SCALE * float(end.x[-1]), outcome_of(end, tol * unit, unit, rows.dtype, end.evaluations + 1)
        )
        for own, end, unit in zip(weights, ends, scale.tolist(), strict=True)
    ]


def n_logits(n_classes: int) -> int:
    """Number of logits: 1 for two classes, else one per class."""
    return 1 if n_classes == 2 else n_classes


def loss_and_residual(logits: Array, codes: Array) -> tuple[FloatArray, FloatArray]:
    """Loss of each row, shape (m,), and its derivative in the logits ``p − [y = c]``, shape (k, m)."""
    if len(logits) == 1:
        loss, probability = loss_and_probability(logits, codes)
        return loss[0], probability - codes
    xp = namespace(logits)
    own = (cast(codes, np.int64), to_device(np.arange(logits.shape[1]), logits))
    shifted = logits - xp.max(logits, axis=0)  # the largest exponential is one: no overflow
    residual = xp.exp(shifted)
    total = residual.sum(0)
    loss = xp.log(total) - shifted[own]
    residual /= total
    residual[own] -= 1.0
    return loss, residual


@dataclass(frozen=True, slots=True)
class LinearLogits:
    """``η = W (z − centre) + b`` for the rows of a block, shape (k, m).

    Parameters
    ----------
    weights, intercepts, centre : shapes (k, d), (k,) and (d,).
    centred : as in `LogisticLosses`.
    in_float64 : convert the rows before products with them; logits are float64 in any case.
    """

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray
    centred: bool = False
    in_float64: bool = False

    def rows(self, block: Block) -> Array:
        """The rows to multiply, shape (m, d)."""
        z = cast(block.z, np.float64) if self.in_float64 else block.z
        return z - to_device_like(self.centre, z) if self.centred else z

    def of(self, z: Array) -> Array:
        """Logits of the result of `rows`."""
        logits = empty64((len(self.weights), len(z)), z)
        forward(z, self.weights, logits)
        shift = self.intercepts if self.centred else self.intercepts - self.weights @ self.centre
        logits += to_device_like(shift[:, None], logits)
        return logits

    @property
    def thin(self) -> bool:
        """Whether rows are only multiplied, by `forward` and `backward`, and not copied."""
        return not self.centred and not self.in_float64


@dataclass(frozen=True, slots=True)
class HeldOutLogits:
    """Logits of each row by models that were fitted without its fold: a list of arrays (m, models), in order of rows.

    Parameters
    ----------
    weights, intercepts : shapes (folds, models, d) and (folds, models), for rows that are not centred.
    n_groups : cells are ``fold · n_groups + group``; rows of no fold, whose cells come last, get those of the last.
    """

    weights: FloatArray
    intercepts: FloatArray
    n_groups: int

    def __call__(self, block: Block) -> list[Array]:
        """Logits of one block."""
        folds, models, _ = self.weights.shape
        z = cast(block.z, np.float64)
        found = empty64((len(z), models), z)
        fold = block.cell // self.n_groups
        for k in range(folds):
            own = fold >= k if k == folds - 1 else fold == k
            found[own] = z[own] @ to_device_like(self.weights[k].T, z) + to_device_like(self.intercepts[k], z)
        return [found]


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Σ ω ℓ with its gradient.

    A call returns a vector of length 1 + k + k·d: loss, gradient in the intercepts, gradient in the weights.
    """

    logits: LinearLogits
    weighting: Weighting

    def __call__(self, block: Block) -> FloatArray:
        """Value and gradient over one block."""
        z = self.logits.rows(block)
        losses, residual = loss_and_residual(self.logits.of(z), block.targets[MAIN])
        omega = self.weighting(block)
        residual *= omega
        k = len(residual)
        out = empty64(1 + k + self.logits.weights.size, z)
        out[0] = losses @ omega
        out[1 : 1 + k] = residual.sum(1)
        gradient = out[1 + k :].reshape(self.logits.weights.shape)
        backward(z, residual, gradient)
        if not self.logits.centred:
            gradient -= out[1 : 1 + k, None] * to_device_like(self.logits.centre, out)
        return out

    @property
    def thin(self) -> bool:
        """Whether rows are only multiplied, by `forward` and `backward`, and not copied."""
        return self.logits.thin


@dataclass(frozen=True, slots=True)
class CellLosses:
    """Σ weight · ℓ over the rows of each cell, shape (n_cells,): every group's loss in one pass."""

    logits: LinearLogits
    n_cells: int

    def __call__(self, block: Block) -> Array:
        """Loss per cell over one block."""
        losses, _ = loss_and_residual(self.logits.of(self.logits.rows(block)), block.targets[MAIN])
        return sum_by(block.cell, (block.weight * losses)[None], self.n_cells)[0]


@dataclass(frozen=True, slots=True)
class FitOutcome(Outcome):
    """How the fit of a head ended; `gap` is the duality gap of a minimax (0 for a plain fit)."""

    gap: float = 0.0

    def warn_unless_converged(self) -> None:
        """Issue a NotConvergedWarning with the reason and a remedy."""
        if not self.converged:
            warn_not_converged("layer", f"The head was not solved: {self.reason}. {self.remedy}")


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Weights (k, d) and intercepts (k,) of logits ``W (z − centre) + b``, and the outcome of the solver."""

    weights: FloatArray
    intercepts: FloatArray
    centre: FloatArray
    outcome: FitOutcome

    def logits(self, *, centred: bool = True) -> LinearLogits:
        """The logits as a function of blocks."""
        return LinearLogits(self.weights, self.intercepts, self.centre, centred)

    def intercepts_at(self, centre: FloatArray) -> FloatArray:
        """Intercepts for rows around another centre (d,), shape (k,)."""
        return np.asarray(self.intercepts + self.weights @ (centre - self.centre))

    @property
    def intercepts_uncentred(self) -> FloatArray:
        """Intercepts for rows that are not centred, shape (k,)."""
        return np.asarray(self.intercepts - self.weights @ self.centre)


class CountedObjective(Protocol):
    """A smooth function of coordinates x that counts its evaluations."""

    evaluations: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products with rows are taken in."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Value and gradient."""


@dataclass
class SoftmaxObjective:
    """Value and gradient in the coordinates ``x = (A, b / 2)``, shape (k·r + k,)."""

    rows: RowSource
    weighting: Weighting
    whitening: LogisticCoordinates
    n_logits: int
    in_float64: bool = False
    #: The model at x = 0, around which weights are penalised; None for zero weights and intercepts.
    origin: LinearModel | None = None
    evaluations: int = field(default=0, init=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type that products with rows are taken in."""
        return np.dtype(np.float64) if self.in_float64 else self.rows.dtype

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.n_logits * (int(self.whitening.transform.shape[1]) + 1)

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Objective and gradient at x."""
        self.evaluations += 1
        k, logits = self.n_logits, self.logits(x)
        sums = self.rows.sum(SoftmaxLoss(logits, self.weighting))
        decay, squared_lengths = self.whitening.decay, self.whitening.squared_lengths
        slopes = sums[1 + k :].reshape(logits.weights.shape)
        if squared_lengths is None:
            penalised = logits.weights if self.origin is None else logits.weights - self.origin.weights
            in_metric = self.whitening.in_metric(penalised)
            gradient = (slopes + decay * in_metric) @ self.whitening.transform
            length = float(np.sum(penalised * in_metric))
        else:  # the penalty is on the weights after the removal, whose lengths differ
            a = x[:-k].reshape(k, -1)
            gradient = slopes @ self.whitening.transform + decay * squared_lengths * a
            length = float(np.sum(squared_lengths * a**2))
        return float(sums[0]) + 0.5 * decay * length, np.append(gradient, INTERCEPT_SCALE * sums[1 : 1 + k])

    def logits(self, x: FloatArray) -> LinearLogits:
        """Weights and intercepts at x."""
        k, geometry = self.n_logits, self.whitening.geometry
        weights, intercepts = x[:-k].reshape(k, -1) @ self.whitening.transform.T, INTERCEPT_SCALE * x[-k:]
        if self.origin is not None:
            weights = weights + self.origin.weights
            intercepts = intercepts + self.origin.intercepts_at(geometry.centre)
        return LinearLogits(weights, intercepts, geometry.centre, geometry.far_from_zero, self.in_float64)

    def at(self, model: LinearModel) -> FloatArray:
        """The x whose logits are these (weights brought to the span of the rows)."""
        intercepts = model.intercepts_at(self.whitening.geometry.centre)
        return np.append(self.whitening.coordinates(model.weights.T).T, intercepts / INTERCEPT_SCALE)

    def start(self) -> tuple[FloatArray, float]:
        """Zero weights with the intercepts that fit the shares of the classes, and the gradient at x = 0 (a unit)."""
        k = self.n_logits
        x = np.zeros(self.size)
        gradient = self(x)[1]
        x[-k:] = first_intercepts(gradient[-k:])
        return x, float(np.linalg.norm(gradient))

    def model(self, x: FloatArray, outcome: FitOutcome) -> LinearModel:
        """The model at x."""
        logits = self.logits(x)
        return LinearModel(logits.weights, logits.intercepts, logits.centre, outcome)


def first_intercepts(gradient: FloatArray) -> FloatArray:
    """Intercepts (..., k), in their coordinates, that fit the shares of the classes, given their gradient at zero."""
    k = gradient.shape[-1]
    # At zero the gradient in an intercept is 1/K − share; shares of zero have no finite intercept.
    share = np.clip(1.0 / max(k, 2) - gradient / INTERCEPT_SCALE, 1e-6, 1.0 - 1e-6)
    logs = np.log(share)
    intercepts = np.log(share / (1.0 - share)) if k == 1 else logs - logs.mean(axis=-1, keepdims=True)
    return np.asarray(intercepts / INTERCEPT_SCALE)


def solve_softmax(
    rows: RowSource,
    weighting: Weighting,
    whitening: LogisticCoordinates,
    n_classes: int,
    *,
    start: LinearModel | None = None,
    origin: LinearModel | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> LinearModel:
    """Logistic regression of the task on the rows.

    Parameters
    ----------
    weighting : row weights ω, summing to one.
    whitening : coordinates and penalty.
    start : a solution of a neighbouring problem.
    origin : a model around which weights are penalised, ``λ/2 ‖W − W₀‖²``, and at which the descent starts.
    tol : bound on the gradient in whitened coordinates, relative to the one at zero weights and intercepts. The
        gradient is also bounded by the objective (`MAX_GRADIENT_TO_LOSS`).

    Non-convergence is an outcome with a reason; the weights are then those of the last iterate.
    """
    objective = SoftmaxObjective(rows, weighting, whitening, n_logits(n_classes))
    x, scale = objective.start()
    x = x if start is None else objective.at(start)
    if origin is not None:
        objective, x = replace(objective, origin=origin), np.zeros(objective.size)
    relative_tol = float(_gradient_to_loss(np.array(whitening.decay), n_classes))
    x, outcome = solve_whitened(objective, x, scale, tol, max_iter, relative_tol)
    return objective.model(x, outcome)


def _gradient_to_loss(decay: FloatArray, n_classes: int) -> FloatArray:
    """Bounds on the relative gradient over the objective; none without a penalty, since there may be no minimum."""
    return np.where(decay > 0, MAX_GRADIENT_TO_LOSS / np.log(n_classes), np.inf)


def solve_whitened(
    objective: CountedObjective, x: FloatArray, scale: float, tol: float, max_iter: int, relative_tol: float = np.inf
) -> tuple[FloatArray, FitOutcome]:
    """Descend from x until the gradient norm is below ``tol · scale``; returns the last point and the outcome.

    It must also be below ``relative_tol · scale`` times the objective.
    """
    scale = max(scale, MIN_LABEL_GRADIENT)
    gtol, relative_gtol = tol * scale, relative_tol * scale

    def alone(points: FloatArray, _: IntArray) -> tuple[FloatArray, FloatArray]:
        value, gradient = objective(points[0])
        return np.array([value]), gradient[None]

    limits = (np.array([limit]) for limit in (rounding_error(objective.dtype) * scale, relative_gtol))
    (end,) = minimize_many(alone, x[None], np.array([gtol]), 2 * max_iter, *limits)
    return end.x, _fit_outcome(end, min(gtol, relative_gtol * end.value), scale, objective.dtype, objective.evaluations)


def _fit_outcome(end: DescentResult, gtol: float, scale: float, dtype: np.dtype[Any], evaluations: int) -> FitOutcome:
    found = outcome_of(end, gtol, scale, dtype, evaluations)
    return FitOutcome(found.converged, found.reason, found.objective, found.gradient, found.evaluations)


@dataclass(frozen=True, slots=True)
class ManySoftmaxObjectives:
    """Objectives of m regressions on the same rows, under weightings and penalties of their own.

    Coordinates are ``x = (A, b / 2)``, shape (k·r + k,), as those of `SoftmaxObjective` along the principal axes: in
    all m problems the axes are the same, and only their units differ.
    """

    rows: RowSource
    geometry: Geometry
    weightings: Sequence[Weighting]
    decay: FloatArray
    n_logits: int
    loadings: FloatArray
    #: What a unit of each coordinate is in weights along the axes, shape (m, r).
    units: FloatArray

    @classmethod
    def of(
        cls, rows: RowSource, geometry: Geometry, problems: Sequence[tuple[Weighting, float]], n_logits: int
    ) -> Self:
        """Problems are weightings with penalties, in units of the mean variance."""
        axes, variance = geometry.principal_axes()
        loadings = axes if geometry.loadings is None else geometry.loadings
        decay = geometry.mean_variance * np.array([penalty for _, penalty in problems])
        units = 1.0 / np.sqrt(variance / 4.0 + decay[:, None])
        return cls(rows, geometry, [weighting for weighting, _ in problems], decay, n_logits, loadings, units)

    def weights(self, x: FloatArray, which: IntArray) -> FloatArray:
        """Coefficients on the original features, shape (a, k, d)."""
        along = self._along(x, which)
        return (along.reshape(-1, along.shape[-1]) @ self.loadings.T).reshape(*along.shape[:2], -1)

    def _along(self, x: FloatArray, which: IntArray) -> FloatArray:
        """Weights along the axes, shape (a, k, r)."""
        return np.asarray(x[:, : -self.n_logits].reshape(len(x), self.n_logits, -1) * self.units[which, None])

    def __call__(self, x: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Values (a,) and gradients (a, k·r + k) of the problems `which`, at a point of each."""
        k, along, weights = self.n_logits, self._along(x, which), self.weights(x, which)
        sums = self.rows.sum(self._losses(weights, INTERCEPT_SCALE * x[:, -k:], which)).reshape(len(x), -1)
        slopes = (sums[:, 1 + k :].reshape(-1, weights.shape[-1]) @ self.loadings).reshape(along.shape)
        decay = self.decay[which]
        gradient = (slopes + decay[:, None, None] * along) * self.units[which, None]
        values = sums[:, 0] + 0.5 * decay * np.sum(along**2, axis=(1, 2))
        return values, np.concatenate([gradient.reshape(len(x), -1), INTERCEPT_SCALE * sums[:, 1 : 1 + k]], axis=1)

    def _losses(
        self, weights: FloatArray, intercepts: FloatArray, which: IntArray
    ) -> LogisticLosses | ManySoftmaxLosses:
        """The statistic of all problems; of two classes as one product with the rows."""
        centre, centred = self.geometry.centre, self.geometry.far_from_zero
        weightings = [self.weightings[k] for k in which]
        if self.n_logits == 1:
            factors = np.stack([weighting.factor for weighting in weightings])
            return LogisticLosses(weights, intercepts, np.array([MAIN]), factors, centre, centred, in_float64=True)
        models = zip(weights, intercepts, weightings, strict=True)
        return ManySoftmaxLosses(
            tuple(SoftmaxLoss(LinearLogits(w, b, centre, centred), weighting) for w, b, weighting in models)
        )


@dataclass(frozen=True, slots=True)
class ManySoftmaxLosses:
    """Many losses in one pass; a call returns shape (losses, 1 + k + k·d)."""

    losses: tuple[SoftmaxLoss, ...]

    def __call__(self, block: Block) -> FloatArray:
        """Values and gradients over one block."""
        found = [loss(block) for loss in self.losses]
        stacked: FloatArray = namespace(found[0]).stack(found)
        return stacked

    @property
    def thin(self) -> bool:
        """Whether rows are only multiplied, by `forward` and `backward`, and not copied."""
        return self.losses[0].thin


def solve_softmax_many(
    rows: RowSource,
    geometry: Geometry,
    problems: Sequence[tuple[Weighting, float]],
    n_classes: int,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[LinearModel]:
    """Logistic regressions of the task on the same rows, side by side; problems are weightings and penalties.

    Each is what `solve_softmax` solves, to the same tolerance. A pass over the rows serves all that are not solved yet.
    Large problems, of many classes, are solved in groups, whose descents fit the memory.
    """
    size = n_logits(n_classes) * (geometry.rank + 1)
    at_once = max(1, MAX_DESCENT_BYTES // (2 * 8 * MANY_CORRECTIONS * size))
    if len(problems) > at_once:
        parts = [problems[k : k + at_once] for k in range(0, len(problems), at_once)]
        groups = [solve_softmax_many(rows, geometry, part, n_classes, tol=tol, max_iter=max_iter) for part in parts]
        return [model for group in groups for model in group]
    objective = ManySoftmaxObjectives.of(rows, geometry, problems, n_logits(n_classes))
    k, everything = objective.n_logits, np.arange(len(problems))
    x = np.zeros((len(problems), size))
    gradient = objective(x, everything)[1]
    x[:, -k:] = first_intercepts(gradient[:, -k:])
    scale = np.maximum(np.linalg.norm(gradient, axis=1), MIN_LABEL_GRADIENT)
    gtol, relative_gtol = tol * scale, _gradient_to_loss(objective.decay, n_classes) * scale
    ends = minimize_many(objective, x, gtol, 2 * max_iter, rounding_error(rows.dtype) * scale, relative_gtol)
    weights = objective.weights(np.stack([end.x for end in ends]), everything)
    models = []
    for own, end, unit, relative in zip(weights, ends, scale.tolist(), relative_gtol.tolist(), strict=True):
        outcome = _fit_outcome(end, min(tol * unit, relative * end.value), unit, rows.dtype, end.evaluations + 1)
        models.append(LinearModel(own, INTERCEPT_SCALE * end.x[-k:], geometry.centre, outcome))
    return models


def cell_losses(rows: RowSource, logits: LinearLogits, totals: FloatArray) -> FloatArray:
    """Mean loss in each cell, shape (n_cells,), with `totals` the weight of each; 0 for empty cells."""
    sums = rows.sum(CellLosses(logits, len(totals)))
    return np.asarray(sums / np.where(totals > 0, totals, 1.0))


def average(models: list[LinearModel]) -> LinearModel:
    """Mean of the weights and intercepts of models with one centre; the outcome is that of the worst."""
    worst = min((m.outcome for m in models), key=lambda outcome: (outcome.converged, -outcome.gradient))
    return replace(
        models[0],
        weights=np.mean([m.weights for m in models], axis=0),
        intercepts=np.mean([m.intercepts for m in models], axis=0),
        outcome=replace(worst, evaluations=sum(m.outcome.evaluations for m in models)),
    )
