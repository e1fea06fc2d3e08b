"""The exact solver for one pair of orthogonal directions (paper eq. 2 and appendix C.1), for many pairs at once.

::

    minimise    Σ ω_i [ ℓ(z_i·w_s + b_s, s_i) + ℓ(z_i·w_y + b_y, y_i) ]  +  λ/2 (‖w_s‖² + ‖w_y‖²)
    over        w_s, w_y in the allowed subspace,  w_s · w_y = 0,  b_s, b_y free

Conventions
-----------
- d features; r ≤ d, the rank of the rows; k directions that weights stay orthogonal to; m problems in one
  pass over the data.
- The first axis of length 2 is the label: row 0 (CONCEPT, index s) for the concept, row 1 (MAIN, index y) for the
  main task.
- weights (2, d) act on centred rows. Coordinates a (2, r) are those along the principal axes (`Spectrum`):
  ``w = E a / u``. Rotations keep angles, so w_s · w_y = 0 if and only if a_s · a_y = 0.
- forbidden (r, k) is V: coordinates are allowed where Vᵀa = 0 (`PairSpace`).
- A flat vector x (2r + 2,) is ``(a_s, a_y, b_s, b_y)``; so are gradients and steps.
- κ (2,) are the curvatures of the two losses, ¼ at zero weights; μ is the multiplier of a_s · a_y = 0.

Steps
-----
1. `PairDescent.setup` solves a quadratic model of the problem globally (`best_of_model`), which gives the start.
2. `PairDescent.descend` is a preconditioned L-BFGS descent on the set of orthogonal pairs: `update_model`,
   `check_convergence`, `inner_solve`, `line_search`, `restart`.
3. `solve_pairs` runs many of them. A descent is a generator: it yields the point whose losses and gradients it needs,
   so one pass over the data serves all problems that have not ended, at little more than the cost of one
   (`_run_in_lockstep`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np

from unspur._typing import FloatArray
from unspur.exceptions import InputError
from unspur.rows import CONCEPT, MAIN, RowSource, Weighting
from unspur.solvers.coordinates import Geometry, orthonormal_range
from unspur.solvers.descent import (
    MIN_LABEL_GRADIENT,
    SUFFICIENT_DECREASE,
    CorrectionPairs,
    DescentResult,
    Outcome,
    objective_change,
    outcome_of,
    rounding_error,
)
from unspur.solvers.logistic import LogisticLosses
from unspur.subspace import Subspace

#: Curvature of the logistic loss at logit zero.
CURVATURE_AT_ZERO = 0.25
#: Share of the largest multiplier with a positive definite Hessian, which bounds multipliers.
MAX_MULTIPLIER_SHARE = 0.98
#: Largest cosine of a_s and a_y at the root of the model; the retraction removes the rest.
MAX_MODEL_COSINE = 1e-2
#: Least allowed share of a label's weights for which the model around them is better than that at zero.
MIN_ALLOWED_SHARE = 0.7
#: Least curvature of a label, relative to the one at zero.
MIN_CURVATURE_SHARE = 0.1
#: Relative gradient to which the two starts of a hard case are followed before one is dropped.
TWO_STARTS_TOL = 1e-2
#: Number of correction pairs.
N_CORRECTIONS = 12
#: Limit on the points of one line search.
MAX_LINE_SEARCH_POINTS = 10
#: Limit on steps without halving the gradient, where it may be a rounding error.
MAX_IDLE_STEPS = 4
#: Largest relative change of curvatures or multiplier without a new model.
MAX_MODEL_DRIFT = 0.1

T = TypeVar("T")
#: Yields points x (2r + 2,), and is sent the losses (2,) and their gradient (2r + 2,) there.
ObjectiveRequests: TypeAlias = Generator[FloatArray, tuple[FloatArray, FloatArray], T]


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Losses of both labels around a solution: its coordinates and their slopes, both (2, r), and curvatures (2,).

    Without penalty, so it also holds for problems with another penalty or other excluded directions.
    """

    at: FloatArray
    slopes: FloatArray
    curvature: FloatArray


@dataclass(frozen=True, slots=True)
class Pair:
    """Orthogonal weights for both labels, shape (2, d): row 0 for the concept, row 1 for the main task."""

    weights: FloatArray
    intercepts: FloatArray
    outcome: Outcome
    local: LocalModel | None = None


#: Solutions of neighbouring problems, for the concept and for the task.
WarmStart: TypeAlias = tuple[Pair | None, Pair | None]


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Principal axes E (d, r) of the rows around `centre` (d,), the unit u, and variances (r,) in units of u².

    With an `inverse_factor` T (d, d), axes and weights are those of the rows ``(x − centre) T``, which are never
    computed: such weights w act on the original rows as ``T w``, and `loadings` are ``T E``.

    The second moment C is diagonal in these coordinates, so combinations of C and the identity are inverted
    elementwise, for any penalty. ``u² = tr(C) / r`` makes variances one on average, so penalty is independent
    of scale.
    """

    centre: FloatArray
    axes: FloatArray
    unit: float
    variance: FloatArray
    far_from_zero: bool
    loadings: FloatArray

    @classmethod
    def of(cls, geometry: Geometry, inverse_factor: FloatArray | None = None, itemsize: int = 8) -> Spectrum:
        """The eigenvectors of the second moment on its range."""
        if inverse_factor is not None:
            geometry = geometry.transformed(inverse_factor, itemsize)
        axes, variance = geometry.principal_axes()
        axes, unit = np.ascontiguousarray(axes), float(np.sqrt(variance.mean()))
        loadings = axes if geometry.loadings is None else geometry.loadings
        return cls(geometry.centre, axes, unit, variance / unit**2, geometry.far_from_zero, loadings)

    def weights(self, a: FloatArray) -> FloatArray:
        """``E a / u``, shape (..., d)."""
        return self._product(a, self.axes.T)

    def feature_weights(self, a: FloatArray) -> FloatArray:
        """Coefficients on the original features, ``T E a / u``."""
        return self._product(a, self.loadings.T)

    def gradient(self, slopes: FloatArray) -> FloatArray:
        """A gradient in these coefficients, shape (..., d), as a gradient in the coordinates, (..., r)."""
        return self._product(slopes, self.loadings)

    def _product(self, a: FloatArray, matrix: FloatArray) -> FloatArray:
        """``a @ matrix / u`` as one product, not one for each leading index."""
        flat = a.reshape(-1, a.shape[-1]) @ matrix
        flat /= self.unit
        return flat.reshape(*a.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class PairSpace:
    """The allowed coordinates of a pair, orthogonal to `forbidden` (r, k), and their penalty."""

    spectrum: Spectrum
    decay: float
    forbidden: FloatArray

    @classmethod
    def of(cls, spectrum: Spectrum, penalty: float) -> PairSpace:
        """The whole span of the rows; λ = penalty · tr(C) / rank(C)."""
        return cls(spectrum, penalty, np.empty((len(spectrum.variance), 0)))

    def excluding(self, subspace: Subspace) -> PairSpace:
        """The same space with coordinates orthogonal to `subspace` (and no longer to `forbidden`)."""
        axes = self.spectrum.axes
        rotated = axes.T @ subspace.basis
        if len(axes) > axes.shape[1]:  # part of the basis may lie outside the span of the rows
            rotated = orthonormal_range(rotated)
        return PairSpace(self.spectrum, self.decay, rotated)

    @property
    def n_free(self) -> int:
        """Dimension of the allowed coordinates."""
        return int(self.forbidden.shape[0] - self.forbidden.shape[1])

    def project(self, a: FloatArray) -> FloatArray:
        """Orthogonal projection of coordinates, shape (..., r), onto the allowed ones."""
        if not self.forbidden.shape[1]:
            return a
        return np.asarray(a - (a @ self.forbidden) @ self.forbidden.T)


@dataclass(frozen=True, slots=True)
class PairLosses:
    """Losses of both labels and their gradients in flat coordinates, for several weightings."""

    rows: RowSource
    spectrum: Spectrum
    weightings: tuple[Weighting, ...]

    def __call__(self, x: FloatArray, which: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Losses (m, 2) and gradients (m, 2r + 2) at points x (m, 2r + 2), under the weightings `which`: one pass."""
        m, r = len(x), len(self.spectrum.variance)
        weights = self.spectrum.feature_weights(x[:, :-2].reshape(m, 2, r))
        factors = np.array([self.weightings[k].factor for k in which])
        labels, centre, far = np.array([CONCEPT, MAIN]), self.spectrum.centre, self.spectrum.far_from_zero
        statistic = LogisticLosses(weights, x[:, -2:], labels, factors, centre, far)
        sums = self.rows.sum(statistic)
        gradient = self.spectrum.gradient(sums[..., 2:]).reshape(m, 2 * r)
        return sums[..., 0], np.concatenate([gradient, sums[..., 1]], axis=1)

    def at_zero(self) -> tuple[FloatArray, FloatArray]:
        """Losses and gradients at zero weights: chance, and minus the class-mean differences, which give the starts."""
        zero = np.zeros((len(self.weightings), 2 * len(self.spectrum.variance) + 2))
        return self(zero, range(len(zero)))


class PairModel:
    """The pair problem with quadratic losses, solved globally, in closed form except for one number.

    With linear terms h and Hessians ``κ C + λI`` the problem for coordinates (a_s, a_y) is ::

        minimise   h·a + ½ a_sᵀ(κ_s C + λ)a_s + ½ a_yᵀ(κ_y C + λ)a_y    with   a_s · a_y = 0   and   Vᵀa = 0

    Its only non-convexity is the one bilinear constraint. With a multiplier μ for it the Lagrangian is quadratic with
    the Hessian B below; where that is positive definite, its minimiser a(μ) with ``a_s · a_y = 0`` is the *global*
    solution (the dual of a problem with one quadratic constraint has no gap), and ``a_s · a_y`` falls with μ, so one
    root is sought (`global_minima`). As in trust regions there is a hard case: no root before the Hessian becomes
    singular; then the rest is taken along its null vector.

    ``B = [[κ_s C + λ, μI], [μI, κ_y C + λ]]`` on the allowed coordinates; κ alone for the intercepts. `multiplier` is
    brought inside the bounds within which B is positive definite.
    """

    def __init__(self, space: PairSpace, curvature: FloatArray, multiplier: float = 0.0):
        variance = space.spectrum.variance
        diagonal = curvature[:, None] * variance + space.decay
        product = diagonal[0] * diagonal[1]
        bound = MAX_MULTIPLIER_SHARE * float(np.sqrt(product.min()))
        self.bound, self.curvature = bound, curvature
        self.multiplier = min(max(multiplier, -bound), bound)
        determinant = product - self.multiplier**2
        self._own = diagonal[::-1] / determinant  # (2, r)
        self._cross = -self.multiplier / determinant
        self._forbidden = v = space.forbidden
        k = v.shape[1]
        if k:
            schur = np.empty((2 * k, 2 * k))
            schur[:k, :k] = v.T @ (self._own[0][:, None] * v)
            schur[k:, k:] = v.T @ (self._own[1][:, None] * v)
            schur[:k, k:] = schur[k:, :k] = v.T @ (self._cross[:, None] * v)
            self._schur = np.linalg.inv(schur)

    def _divide(self, a: FloatArray) -> FloatArray:
        """Inverse of the unrestricted B, on coordinates (2, r)."""
        return np.asarray(self._own * a + self._cross * a[::-1])

    def solve(self, flat: FloatArray) -> FloatArray:
        """Minimiser of ``½ xᵀBx − flat·x`` over the allowed x, shape (2r + 2,)."""
        v, out = self._forbidden, np.empty_like(flat)
        x = out[:-2].reshape(2, -1)
        x[:] = self._divide(flat[:-2].reshape(2, -1))
        if v.shape[1]:
            x -= self._divide((self._schur @ (x @ v).ravel()).reshape(2, -1) @ v.T)
        out[-2:] = flat[-2:] / self.curvature
        return out


def swapped(flat: FloatArray) -> FloatArray:
    """Gradient of ``a_s · a_y`` at a flat vector: the halves exchanged, nothing for the intercepts."""
    r = (len(flat) - 2) // 2
    return np.concatenate([flat[r : 2 * r], flat[:r], [0.0, 0.0]])


def constraint(flat: FloatArray) -> float:
    """``a_s · a_y`` of a flat vector, which is zero for orthogonal weights."""
    r = (len(flat) - 2) // 2
    return float(flat[:r] @ flat[r : 2 * r])


def retract(flat: FloatArray, model: PairModel) -> FloatArray | None:
    """The nearest point with a_s · a_y = 0 along the normal ``B⁻¹ (a_y, a_s)``; None if there is none."""
    # The normal at the point itself, since a long step may have moved far from the last one.
    value = constraint(flat)
    if value == 0.0:
        return flat
    gradient = swapped(flat)
    normal = model.solve(gradient)
    linear, quadratic = float(gradient @ normal), constraint(normal)
    root = linear**2 - 4.0 * value * quadratic
    if linear == 0.0 or root < 0.0:
        return None
    return np.asarray(flat - (2.0 * value / (linear + np.copysign(np.sqrt(root), linear))) * normal)


def curvature_of(losses: FloatArray) -> FloatArray:
    """Curvature κ of logistic losses whose means are these: it falls with the loss, from ¼ at chance."""
    # The curvature of rows near the boundary matters, and falls more slowly than the mean; this power took the fewest
    # evaluations on embeddings of birds.
    return np.asarray(CURVATURE_AT_ZERO * np.clip((losses / np.log(2.0)) ** (2.0 / 3.0), MIN_CURVATURE_SHARE, 1.0))


def best_of_model(
    space: PairSpace, slopes: FloatArray, warm_start: Sequence[LocalModel | None] = (None, None)
) -> list[FloatArray]:
    """Flat solutions with orthogonal a_s and a_y of the model whose gradient at zero weights is `slopes`.

    There is one, or two equally good ones in a hard case.

    A logistic loss is flatter where it is well predicted than at zero. Were the classes Gaussian, the curvature that
    leads from zero to the minimum would be ``¼ (1 − R²)``, with R² the share of the label that a linear regression
    explains, here ``−slope · a``. So the model is solved twice. A label whose solution of a
    neighbouring problem (`warm_start`, one for each label) is still allowed has the model around that instead.
    """
    r = len(space.spectrum.variance)
    slopes, curvature, known = slopes.copy(), np.full(2, CURVATURE_AT_ZERO), [False, False]
    by_label = slopes[:-2].reshape(2, r)
    for label, model in enumerate(warm_start):
        if model is not None:
            at, own = model.at[label], model.curvature[label]
            if np.linalg.norm(space.project(at)) > MIN_ALLOWED_SHARE * np.linalg.norm(at):
                curvature[label], known[label] = own, True
                by_label[label] = space.project(model.slopes[label] - own * space.spectrum.variance * at)
    if not all(known):
        first = global_minima(space, slopes, curvature)[0]
        explained = -(slopes[:-2] * first[:-2]).reshape(2, r).sum(axis=1)
        curvature = np.where(known, curvature, CURVATURE_AT_ZERO * np.clip(1.0 - explained, MIN_CURVATURE_SHARE, 1.0))
    return global_minima(space, slopes, curvature)


def global_minima(space: PairSpace, slopes: FloatArray, curvature: FloatArray) -> list[FloatArray]:
    """Solutions of the model with these curvatures.

    Multipliers are sought up to where the Hessian on *all* coordinates becomes singular. Forbidden ones may put that
    off; then what is returned is a good point and not the solution.
    """

    def at(multiplier: float) -> tuple[FloatArray, float]:
        a = -PairModel(space, curvature, multiplier).solve(slopes)
        return a, constraint(a)

    free = PairModel(space, curvature)
    a = -free.solve(slopes)
    value, r = constraint(a), len(a) // 2 - 1
    threshold = MAX_MODEL_COSINE * float(np.linalg.norm(a[:r]) * np.linalg.norm(a[r:-2]))
    found = _by_newton(free, at, a, threshold)
    if found is None:  # not found in the first steps, so between zero and the bound
        low, at_low = 0.0, value
        high = float(np.copysign(free.bound, value))
        a, at_high = at(high)
        if at_high * value > 0 and abs(at_high) > threshold:
            return _hard_case(space, free, a, at_high)
        for _ in range(20):  # false position with halved weight of the end that stays (Illinois)
            if abs(constraint(a)) <= threshold:
                break
            middle = high - at_high * (high - low) / (at_high - at_low)
            a, value = at(middle)
            if value * at_high < 0:
                low, at_low = high, at_high
            else:
                at_low *= 0.5
            high, at_high = middle, value
        found = a
    exact = retract(found, free)
    return [found if exact is None else exact]


def _by_newton(
    free: PairModel, at: Callable[[float], tuple[FloatArray, float]], a: FloatArray, threshold: float
) -> FloatArray | None:
    """The root by three Newton steps from zero; None if they do not reach it inside the bound."""
    multiplier, value = 0.0, constraint(a)
    gradient = swapped(a)
    slope = -2.0 * float(gradient @ free.solve(gradient))  # of a_s · a_y in μ
    for _ in range(3):
        if abs(value) <= threshold:
            return a
        if slope == 0.0 or abs(multiplier - value / slope) >= free.bound:
            return None
        before, earlier, multiplier = multiplier, value, multiplier - value / slope
        a, value = at(multiplier)
        slope = (value - earlier) / (multiplier - before)
    return a if abs(value) <= threshold else None


def _hard_case(space: PairSpace, model: PairModel, a: FloatArray, value: float) -> list[FloatArray]:
    """Make a_s · a_y zero by moving either way along the null vector (e, ∓e) of the Hessian, at no cost."""
    r, e = len(space.spectrum.variance), _flattest(space)
    diagonal = model.curvature[:, None] * space.spectrum.variance + space.decay
    along = np.sqrt([e**2 @ diagonal[1], e**2 @ diagonal[0]]) * [1.0, -np.sign(value)]
    # (a_s + τ α_s e)·(a_y + τ α_y e) = value + τ (α_y a_s·e + α_s a_y·e) + τ² α_s α_y, first and last of opposite signs
    linear = along[1] * float(a[:r] @ e) + along[0] * float(a[r:-2] @ e)
    both = np.stack([a, a])
    for moved, tau in zip(both, np.roots([along[0] * along[1], linear, value]).real, strict=True):
        moved[:r] += tau * along[0] * e
        moved[r:-2] += tau * along[1] * e
    return list(both)


def _flattest(space: PairSpace) -> FloatArray:
    """Allowed unit vector of least variance, shape (r,), by inverse iteration."""
    variance = space.spectrum.variance
    # A small shift, so that the inverse exists and the order of variances stays.
    shifted = PairSpace(space.spectrum, float(1e-6 * variance.max()), space.forbidden)
    model, half = PairModel(shifted, np.ones(2)), np.zeros(len(variance) + 2)
    e = space.project(1.0 / (variance + shifted.decay))
    for _ in range(8):
        e = model.solve(np.concatenate([e, half]))[: len(e)]
        e /= np.linalg.norm(e)
    return e


@dataclass(slots=True)
class _Point:
    """A point with value, gradient and losses."""

    x: FloatArray
    value: float
    gradient: FloatArray
    losses: FloatArray


@dataclass(slots=True)
class _Tangent:
    """The Lagrangian at a point: model B, normal ``B⁻¹t`` of the constraint, μ, gradient, and its norm under B⁻¹."""

    model: PairModel
    t: FloatArray
    normal: FloatArray
    length: float
    multiplier: float
    gradient: FloatArray
    norm: float

    @classmethod
    def at(cls, point: _Point, model: PairModel, *, constrained: bool) -> _Tangent:
        """Choose μ so that the Lagrangian gradient is orthogonal to t under B⁻¹."""
        step = model.solve(point.gradient)
        t = swapped(point.x) if constrained else np.zeros_like(point.x)
        normal = model.solve(t)
        length = max(float(t @ normal), float(np.finfo(np.float64).tiny))
        multiplier = -float(t @ step) / length
        gradient = point.gradient + multiplier * t
        norm = float(np.sqrt(max(float(gradient @ (step + multiplier * normal)), 0.0)))
        return cls(model, t, normal, length, multiplier, gradient, norm)

    def project(self, step: FloatArray) -> FloatArray:
        """Component of a step in the tangent space."""
        return step - self.normal * (float(self.t @ step) / self.length)


class PairDescent:
    """One pair problem, and the state of its descent.

    Iterates stay on the set ``a_s · a_y = 0``, ``Vᵀa = 0``. With t the gradient of the first constraint, the Lagrangian
    gradient is ``g + μ t``, and μ is chosen to make it smallest in the norm of the model's inverse. A step is the
    two-loop recursion of L-BFGS on differences of Lagrangian gradients, with the model's Hessian (`PairModel`, with the
    curvatures and the μ of the moment) as its first guess, restricted to the tangent space. Then it is brought back
    onto the set (`retract`).

    Parameters
    ----------
    space : where coordinates may lie, and their penalty.
    slopes : gradient of the losses at zero weights, shape (2r + 2,).
    tol : bound on the norm of the Lagrangian gradient, relative to `scale`.
    rounding : relative norm below which the rows may have no digits left for the gradient.
    max_iter : most steps of a descent.

    Attributes
    ----------
    predictable : shape (2,), labels that are predictable from the rows; others keep weights of zero.
    constrained : whether both are, so that their weights must be kept orthogonal.
    scale : norm of the gradient at zero weights under the inverse Hessian there.
    starts : one flat point that satisfies the constraints, or the two of a hard case.
    point, tangent : the iterate, and the Lagrangian there.
    memory : correction pairs since the last restart.
    step, slope : what `inner_solve` proposes, and the derivative of the objective along it.
    smallest_norm, idle_steps : of the gradient, and the steps since it was last halved.
    n_evaluations, reason : points evaluated so far, and why the descent ended.
    """

    def __init__(self, space: PairSpace, slopes: FloatArray, tol: float, rounding: float, max_iter: int):
        self.space, self.max_iter = space, max_iter
        self._shape = (2, len(space.spectrum.variance))
        self.slopes = slopes.copy()
        self.slopes[:-2] = space.project(slopes[:-2].reshape(self._shape)).ravel()
        self.model_at_zero = PairModel(space, np.full(2, CURVATURE_AT_ZERO))
        downhill = self.slopes * self.model_at_zero.solve(self.slopes)
        self.predictable = np.sqrt(downhill[:-2].reshape(self._shape).sum(axis=1)) > MIN_LABEL_GRADIENT
        self.constrained = bool(self.predictable.all())
        self._moving = np.concatenate([np.repeat(self.predictable.astype(np.float64), self._shape[1]), np.ones(2)])
        self.scale = float(np.sqrt(downhill.sum()))
        self.gtol, self.rounding = tol * self.scale, rounding * self.scale
        self.n_evaluations = 0

    def setup(self, warm_start: WarmStart) -> None:
        """Set `starts` to the solutions of the quadratic model."""
        if self.constrained:
            models = [None if pair is None else pair.local for pair in warm_start]
            self.starts = best_of_model(self.space, self.slopes, models)
        else:
            self.starts = [-self._moving * self.model_at_zero.solve(self.slopes * self._moving)]

    def solve(self) -> ObjectiveRequests[None]:
        """Descend from the better start; two starts are both followed up to a looser tolerance."""
        start, *others = self.starts
        if others:
            loose = max(TWO_STARTS_TOL * self.scale, self.gtol)
            yield from self.descend(start, loose)
            first = self.point
            yield from self.descend(others[0], loose)
            start = first.x if first.value <= self.point.value else self.point.x
        yield from self.descend(start, self.gtol)

    def descend(self, start: FloatArray, gtol: float) -> ObjectiveRequests[None]:
        """Take steps from `start`, which satisfies the constraints, until one of the checks stops."""
        self.point = yield from self.evaluate(start)
        model = PairModel(self.space, curvature_of(self.point.losses))
        self.tangent = _Tangent.at(self.point, model, constrained=self.constrained)
        self.memory = CorrectionPairs(N_CORRECTIONS)
        self.smallest_norm, self.idle_steps = np.inf, 0
        for iteration in range(self.max_iter + 1):
            self.update_model()
            if self.check_convergence(gtol, iteration):
                break
            self.inner_solve()
            accepted = yield from self.line_search()
            if not accepted and not self.restart():
                break

    def evaluate(self, x: FloatArray) -> ObjectiveRequests[_Point]:
        """Ask for losses and gradients at x, and add penalty."""
        losses, gradient = yield x
        self.n_evaluations += 1
        full = (gradient[:-2] + self.space.decay * x[:-2]).reshape(self._shape)
        gradient = self._moving * np.concatenate([self.space.project(full).ravel(), gradient[-2:]])
        value = float(losses.sum()) + 0.5 * self.space.decay * float(x[:-2] @ x[:-2])
        return _Point(x, value, gradient, losses)

    def update_model(self) -> None:
        """Rebuild the model if the curvatures or the multiplier have changed; sets `tangent`."""
        model, curvature = self.tangent.model, curvature_of(self.point.losses)
        multiplier = min(max(self.tangent.multiplier, -model.bound), model.bound)
        same_curvature = (np.abs(curvature - model.curvature) <= MAX_MODEL_DRIFT * model.curvature).all()
        if not (same_curvature and abs(multiplier - model.multiplier) <= MAX_MODEL_DRIFT * model.bound):
            model = PairModel(self.space, curvature, self.tangent.multiplier)
            self.tangent = _Tangent.at(self.point, model, constrained=self.constrained)

    def check_convergence(self, gtol: float, iteration: int) -> bool:
        """Whether to stop here; sets `reason`."""
        norm = self.tangent.norm
        if norm <= gtol:
            self.reason = "gradient below tolerance"
            return True
        if norm <= 0.5 * self.smallest_norm:
            self.smallest_norm, self.idle_steps = norm, 0
        else:
            self.idle_steps += 1
        if norm <= self.rounding and self.idle_steps > MAX_IDLE_STEPS:
            self.reason = "no step lowers the gradient"
            return True
        self.reason = f"the limit of {self.max_iter} iterations is reached"
        return iteration == self.max_iter

    def inner_solve(self) -> None:
        """Minus the approximate inverse Hessian times the Lagrangian gradient; sets `step` and `slope`."""
        tangent = self.tangent
        full = self.memory.solve(tangent.gradient, lambda q: tangent.project(tangent.model.solve(q)))
        self.step = -tangent.project(full)
        self.slope = float(tangent.gradient @ self.step)

    def line_search(self) -> ObjectiveRequests[bool]:
        """Backtrack along the step, on the set; whether a point was low enough.

        If so, it sets `point`, `tangent` and `memory`.
        """
        length = 1.0
        for _ in range(MAX_LINE_SEARCH_POINTS if self.slope < 0 else 0):
            moved = self.point.x + length * self.step
            x = retract(moved, self.tangent.model) if self.constrained else moved
            if x is None:
                length *= 0.5
                continue
            x[:-2] = self.space.project(x[:-2].reshape(self._shape)).ravel()
            trial = yield from self.evaluate(x)
            change = self._change(trial)
            if change <= SUFFICIENT_DECREASE * length * self.slope:
                self._accept(trial)
                return True
            # The minimum of the parabola through value and slope here and the value there.
            bend = change / length - self.slope
            length *= min(max(-0.5 * self.slope / bend if bend > 0 else 0.5, 0.1), 0.6)
        return False

    def _change(self, trial: _Point) -> float:
        """Change of the objective; a small one is computed from the Lagrangian, which is equal on the set."""
        tangent = self.tangent  # its gradient is zero across the tangent space, where steps have rounding errors
        across = tangent.multiplier * swapped(trial.x) if tangent.multiplier else 0.0
        gradients = tangent.gradient + trial.gradient + across
        return float(objective_change(trial.value - self.point.value, gradients, trial.x - self.point.x))

    def _accept(self, trial: _Point) -> None:
        """Move to a point, and store the correction pair."""
        after = _Tangent.at(trial, self.tangent.model, constrained=self.constrained)
        before = self.point.gradient + after.multiplier * self.tangent.t  # under the new multiplier
        self.memory.add(trial.x - self.point.x, after.gradient - before)
        self.point, self.tangent = trial, after

    def restart(self) -> bool:
        """Clear the correction pairs after a failed line search; False, which ends the descent, if there are none."""
        if not len(self.memory):
            self.reason = "no step lowers the objective"
            return False
        self.memory.clear()
        return True

    def finalize(self, dtype: np.dtype[Any]) -> Pair:
        """The pair at the last iterate, with the outcome and the local model."""
        x, point = self.point.x, self.point
        a = x[:-2].reshape(self._shape)
        slopes = point.gradient[:-2].reshape(self._shape) - self.space.decay * a
        end = DescentResult(x, point.value, self.tangent.norm, self.reason)
        outcome = outcome_of(end, self.gtol, self.scale, dtype, self.n_evaluations)
        local = LocalModel(a, slopes, curvature_of(point.losses))
        return Pair(self.space.spectrum.weights(a), x[-2:], outcome, local)


def solve_pairs(
    losses: PairLosses,
    spaces: Sequence[PairSpace],
    at_zero: tuple[FloatArray, FloatArray],
    *,
    warm_start: Sequence[WarmStart] | None = None,
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> list[Pair]:
    """One pair for each weighting of `losses`, in its space.

    Parameters
    ----------
    at_zero : result of ``losses.at_zero()``.
    warm_start : for each weighting and each label, the solution of a problem with another penalty or other
        excluded directions, which improves the model.
    tol : bound on the norm of the Lagrangian gradient, relative to the gradient at zero weights.

    Non-convergence is an outcome with a reason; the weights are then those of the last iterate.
    """
    found: dict[int, Pair] = {}
    descents: dict[int, PairDescent] = {}
    dtype, d = losses.rows.dtype, losses.rows.n_features
    for k, space in enumerate(spaces):
        descent = PairDescent(space, at_zero[1][k], tol, rounding_error(dtype), max_iter)
        if descent.predictable.all():
            require_room(space.n_free, d)
        if not descent.predictable.any():
            chance = float(at_zero[0][k].sum())
            outcome = Outcome(True, "no label has a linear trace in these rows", chance, 0.0, 1)
            found[k] = Pair(np.zeros((2, d)), np.zeros(2), outcome)
            continue
        descent.setup((None, None) if warm_start is None else warm_start[k])
        descents[k] = descent
    _run_in_lockstep(losses, descents)
    return [found[k] if k in found else descents[k].finalize(dtype) for k in range(len(spaces))]


def _run_in_lockstep(losses: PairLosses, descents: dict[int, PairDescent]) -> None:
    """Run descents side by side; each round is one pass over the data, for all that have not ended."""
    running = {k: descent.solve() for k, descent in descents.items()}
    points = {k: next(steps) for k, steps in running.items()}
    while points:
        which = list(points)
        values, gradients = losses(np.stack(list(points.values())), which)
        points = {}
        for k, value, gradient in zip(which, values, gradients, strict=True):
            with suppress(StopIteration):  # it has ended
                points[k] = running[k].send((value, gradient))


def require_room(n_free: int, n_features: int) -> None:
    """Raise InputError unless two dimensions are free."""
    if n_free < 2:
        raise InputError(
            f"A pair of directions needs two free dimensions, and {n_free} of {n_features} are left. Constant "
            "and linearly dependent features do not count, nor do features too small to be distinguished from rounding "
            "errors; rescale X in that case."
        )


def directions(pair: Pair) -> FloatArray:
    """Unit directions v_s, v_y of a pair, shape (2, d), orthogonal to machine precision; zero for zero weights."""

    def unit(vector: FloatArray) -> FloatArray:
        length = float(np.linalg.norm(vector))
        return vector / length if length > 0 else vector

    v_s = unit(pair.weights[CONCEPT])
    return np.stack([v_s, unit(pair.weights[MAIN] - v_s * (v_s @ pair.weights[MAIN]))])
