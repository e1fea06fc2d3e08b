"""The pair problem with quadratic losses: solved globally, in closed form but for one number.

With linear terms h and Hessians ``κ C + λI`` the problem for coordinates (a_s, a_y) along the principal axes is ::

    minimise   h·a + ½ a_sᵀ(κ_s C + λ)a_s + ½ a_yᵀ(κ_y C + λ)a_y    with   a_s · a_y = 0   and   Vᵀa = 0

Its only non-convexity is the one bilinear constraint. With a multiplier μ for it the Lagrangian is quadratic with the
Hessian ``[[κ_s C + λ, μI], [μI, κ_y C + λ]]``; where that is positive definite, its minimiser a(μ) with
``a_s · a_y = 0`` is the *global* solution (the dual of a problem with one quadratic constraint has no gap), and
``a_s · a_y`` falls with μ, so one root is sought. As in trust regions there is a hard case: no root before the Hessian
becomes singular; then the rest is taken along its null vector.

This is where a pair starts, and the Hessian is what its descent is preconditioned with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unspur._typing import FloatArray
from unspur.solvers.outcome import LocalModel
from unspur.solvers.spectrum import PairSpace

#: Share of the largest multiplier with a positive definite Hessian that is used: preconditioning must not blow up.
INSIDE = 0.98
#: Cosine of a_s and a_y that is left to the retraction.
NEARLY = 1e-2
#: Curvature of the logistic loss at logit zero.
QUARTER = 0.25
#: Share of a label's weights that must still be allowed for the model around them to say more than that at zero.
KEPT = 0.7
#: Least curvature, relative to that, that a label is trusted to have.
FLATTEST = 0.1


class PairModel:
    """Hessian ``B = [[κ_s C + λ, μI], [μI, κ_y C + λ]]`` on the allowed coordinates; κ alone for the intercepts.

    Vectors are flat, ``(a_s, a_y, b_s, b_y)`` of shape (2r + 2,). `multiplier` is brought inside the bounds within
    which B is positive definite.
    """

    def __init__(self, space: PairSpace, curvature: FloatArray, multiplier: float = 0.0):
        variance = space.spectrum.variance
        diagonal = curvature[:, None] * variance + space.decay
        product = diagonal[0] * diagonal[1]
        bound = INSIDE * float(np.sqrt(product.min()))
        self.bound, self.curvature = bound, curvature
        self.multiplier = min(max(multiplier, -bound), bound)
        determinant = product - self.multiplier**2
        self._own = diagonal[::-1] / determinant  # (2, r)
        self._cross = -self.multiplier / determinant
        self._forbidden = v = space.forbidden
        k = v.shape[1]
        if k:
            small = np.empty((2 * k, 2 * k))
            small[:k, :k] = v.T @ (self._own[0][:, None] * v)
            small[k:, k:] = v.T @ (self._own[1][:, None] * v)
            small[:k, k:] = small[k:, :k] = v.T @ (self._cross[:, None] * v)
            self._small = np.linalg.inv(small)

    def _divide(self, a: FloatArray) -> FloatArray:
        """Inverse of the unrestricted B, on coordinates (2, r)."""
        return np.asarray(self._own * a + self._cross * a[::-1])

    def solve(self, flat: FloatArray) -> FloatArray:
        """Minimiser of ``½ xᵀBx − flat·x`` over the allowed x, shape (2r + 2,)."""
        v = self._forbidden
        a = flat[:-2].reshape(2, -1)
        out = np.empty_like(flat)
        x = out[:-2].reshape(2, -1)
        x[:] = self._divide(a)
        if v.shape[1]:
            x -= self._divide((self._small @ (x @ v).ravel()).reshape(2, -1) @ v.T)
        out[-2:] = flat[-2:] / self.curvature
        return out


def swapped(flat: FloatArray) -> FloatArray:
    """Gradient of ``a_s · a_y`` at a flat vector: the halves exchanged, nothing for the intercepts."""
    r = (len(flat) - 2) // 2
    return np.concatenate([flat[r : 2 * r], flat[:r], [0.0, 0.0]])


def inner(flat: FloatArray) -> float:
    """``a_s · a_y`` of a flat vector."""
    r = (len(flat) - 2) // 2
    return float(flat[:r] @ flat[r : 2 * r])


def retract(flat: FloatArray, model: PairModel) -> FloatArray | None:
    """The nearest point with a_s · a_y = 0 along the normal ``B⁻¹ (a_y, a_s)``; None if there is none.

    The normal of the point itself, not of where it came from: a long step may have left that far behind.
    """
    value = inner(flat)
    if value == 0.0:
        return flat
    gradient = swapped(flat)
    normal = model.solve(gradient)
    linear, quadratic = float(gradient @ normal), inner(normal)
    root = linear**2 - 4.0 * value * quadratic
    if linear == 0.0 or root < 0.0:
        return None
    return np.asarray(flat - (2.0 * value / (linear + np.copysign(np.sqrt(root), linear))) * normal)


def curvature_of(losses: FloatArray) -> FloatArray:
    """Curvature κ of logistic losses whose means are these: it falls with the loss, from ¼ at chance.

    The curvature that matters is that of rows near the boundary, which falls more slowly than the mean; the power is
    the one that took fewest evaluations on embeddings of birds.
    """
    return np.asarray(QUARTER * np.clip((losses / np.log(2.0)) ** (2.0 / 3.0), FLATTEST, 1.0))


def best_of_model(
    space: PairSpace, slopes: FloatArray, near: Sequence[LocalModel | None] = (None, None)
) -> list[FloatArray]:
    """Flat solutions, a_s and a_y orthogonal, of the model whose gradient at zero weights is `slopes`.

    One, or the two of a hard case, which the model cannot tell apart.

    A logistic loss is flatter where it is well predicted than at zero. Were the classes Gaussian, the curvature that
    leads from zero to the minimum would be ``¼ (1 − R²)``, with R² the share of the label that a linear regression
    explains, here ``−slope · a``. So the model is solved twice. A label whose solution of a problem `near` (one for
    each label) is still allowed has the model around that instead.
    """
    r = len(space.spectrum.variance)
    slopes, curvature, known = slopes.copy(), np.full(2, QUARTER), [False, False]
    lines = slopes[:-2].reshape(2, r)
    for label, model in enumerate(near):
        if model is not None:
            at, own = model.at[label], model.curvature[label]
            if np.linalg.norm(space.allow(at)) > KEPT * np.linalg.norm(at):
                curvature[label], known[label] = own, True
                lines[label] = space.allow(model.slopes[label] - own * space.spectrum.variance * at)
    if not all(known):
        first = global_minima(space, slopes, curvature)[0]
        explained = -(slopes[:-2] * first[:-2]).reshape(2, r).sum(axis=1)
        curvature = np.where(known, curvature, QUARTER * np.clip(1.0 - explained, FLATTEST, 1.0))
    return global_minima(space, slopes, curvature)


def global_minima(space: PairSpace, slopes: FloatArray, curvature: FloatArray) -> list[FloatArray]:
    """Solutions of the model with these curvatures.

    Multipliers are sought up to where the Hessian on *all* coordinates becomes singular. Forbidden ones may put that
    off; then what is returned is a good point and not the solution.
    """

    def at(multiplier: float) -> tuple[FloatArray, float]:
        a = -PairModel(space, curvature, multiplier).solve(slopes)
        return a, inner(a)

    free = PairModel(space, curvature)
    a = -free.solve(slopes)
    value, r = inner(a), (len(a) - 2) // 2
    small = NEARLY * float(np.linalg.norm(a[:r]) * np.linalg.norm(a[r:-2]))
    found = _by_newton(free, at, a, small)
    if found is None:  # not within the first steps: between zero and the bound
        low, at_low = 0.0, value
        high = float(np.copysign(free.bound, value))
        a, at_high = at(high)
        if at_high * value > 0 and abs(at_high) > small:
            return _hard_case(space, free, a, at_high)
        for _ in range(20):  # false position, with the end that stays weighed down (Illinois)
            if abs(inner(a)) <= small:
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


def _by_newton(free: PairModel, at: Callable[[float], tuple[FloatArray, float]], a: FloatArray, small: float
               ) -> FloatArray | None:  # fmt: skip
    """The root by three steps of Newton's method from zero, where it comes that soon and stays inside the bound."""
    multiplier, value = 0.0, inner(a)
    gradient = swapped(a)
    slope = -2.0 * float(gradient @ free.solve(gradient))  # of a_s · a_y in μ
    for _ in range(3):
        if abs(value) <= small:
            return a
        if slope == 0.0 or abs(multiplier - value / slope) >= free.bound:
            return None
        before, earlier, multiplier = multiplier, value, multiplier - value / slope
        a, value = at(multiplier)
        slope = (value - earlier) / (multiplier - before)
    return a if abs(value) <= small else None


def _hard_case(space: PairSpace, model: PairModel, a: FloatArray, value: float) -> list[FloatArray]:
    """Make a_s · a_y zero by going either way along the null vector (e, ∓e) of the Hessian, which costs nothing."""
    e = _flattest(space)
    r = len(e)
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
    """Unit vector of least variance among the allowed ones, shape (r,), by inverse iteration."""
    variance = space.spectrum.variance
    # A little more than none, so that its inverse exists; nothing that would change the order.
    shifted = PairSpace(space.spectrum, float(1e-6 * variance.max()), space.forbidden)
    model, half = PairModel(shifted, np.ones(2)), np.zeros(len(variance) + 2)
    e = space.allow(1.0 / (variance + shifted.decay))
    for _ in range(8):
        e = model.solve(np.concatenate([e, half]))[: len(e)]
        e /= np.linalg.norm(e)
    return e
