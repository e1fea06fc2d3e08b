"""RLACE: the projection after which the best linear classifier does worst.

*Exact responses* (`ascend`). For fewer directions than the class means differ in, ascent on the loss of the best linear
response ::

    G(V) = min_w Σ_c loss_c(w_c)   over w_c ⟂ V,        V (d, k) with orthonormal columns

At the minimum ``∇loss_c + V ν_c = 0``, so that by the envelope theorem ``∂G/∂V = −Σ_c w_c (Vᵀ ∇loss_c)ᵀ``: every step
costs one exact best response. What can be reached is bounded by the loss of a constant.

*The published schedule* (`descend_and_ascend`). The Fantope ``{P : 0 ≼ P ≼ I, tr P = k}`` is the convex hull of the
projections of rank k. In turn, a logistic regression takes a step down the loss of the rows ``(I − P) z``, and P a step
up it, back onto the Fantope.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from tqdm.auto import tqdm

from unspur._arrays import cast, to_device_like
from unspur._reading import NUMBER, require_kinds
from unspur._typing import Array, FloatArray
from unspur._validation import BALANCE, MISSING, STRENGTH, generator, keyword_only_after_y, sgd_settings
from unspur.exceptions import InputError, NotConvergedWarning
from unspur.options import SGD, SOLVER
from unspur.removers.leace import ConceptRemover, solve_closed_form
from unspur.rows import CONCEPT, Block, RowSource, Weighting
from unspur.solvers.coordinates import Geometry, LogisticCoordinates, covariances_of, to_span_coordinates
from unspur.solvers.logistic import Logistic, LogisticLosses, solve_logistic
from unspur.solvers.sgd import SGDSettings, minibatches
from unspur.solvers.statistics import Balance, Covariances, Moments
from unspur.subspace import AffineMap, Subspace

#: Learning rate and penalty of the published schedule, and iterations between its measurements.
LEARNING_RATE, DEFAULT_PENALTY, CHECK_EVERY = 5e-3, 1e-5, 100
#: Penalty of the best response, in units of the mean variance: just enough for finite weights of separable classes.
RESPONSE_DECAY = 1e-6
#: Limit on rotations of the directions, and on the gradient relative to the loss at which they end.
MAX_ROTATIONS, ROTATION_TOL = 200, 1e-6
#: Share of the loss of a constant that a classifier must gain to count as better than it.
MIN_GAIN = 1e-6


def ascend(respond: Callable[[FloatArray], tuple[float, FloatArray]], v: FloatArray) -> tuple[FloatArray, int, str]:
    """Rotate orthonormal directions (d, k) until the best response gets no worse; returns them, steps and reason.

    `respond` returns the loss of the best response and its gradient ∂G/∂V. Gradient steps along the Grassmannian
    double while they help and are halved until they do.
    """
    loss, gradient = respond(v)
    size = 1.0
    for step in range(1, MAX_ROTATIONS + 1):
        turn = gradient - v @ (v.T @ gradient)
        length = float(np.linalg.norm(turn))
        if length <= ROTATION_TOL * max(loss, np.finfo(np.float64).tiny):
            return v, step, "converged: no rotation increases the loss of the best classifier"
        while True:
            trial = np.linalg.qr(v + size * turn / length)[0]
            trial_loss, trial_gradient = respond(trial)
            if trial_loss > loss or size < 1e-9:
                break
            size /= 2.0
        if trial_loss <= loss:
            return v, step, "converged: no rotation increases the loss of the best classifier"
        v, loss, gradient, size = trial, trial_loss, trial_gradient, 2.0 * size
    return v, MAX_ROTATIONS, f"not converged after {MAX_ROTATIONS} rotations"


def onto_fantope(matrix: FloatArray, rank: int) -> FloatArray:
    """Closest point of the Fantope: eigenvalues shifted and clipped to [0, 1] so that they sum to `rank`."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    low, high = values.min() - 1.0, values.max()
    for _ in range(100):  # the clipped sum falls with the shift: bisection to machine precision
        shift = 0.5 * (low + high)
        if np.clip(values - shift, 0.0, 1.0).sum() > rank:
            low = shift
        else:
            high = shift
    clipped = np.clip(values - high, 0.0, 1.0)
    return np.asarray((vectors * clipped) @ vectors.T)


def top_directions(matrix: FloatArray, rank: int) -> FloatArray:
    """Orthonormal eigenvectors (d, rank) of the largest eigenvalues."""
    return np.asarray(np.linalg.eigh(matrix)[1][:, ::-1][:, :rank])


@np.errstate(over="ignore", invalid="ignore")  # too large a learning rate is noticed where it diverges
def descend_and_ascend(
    rows: RowSource,
    weighting: Weighting,
    centre: FloatArray,
    rank: int,
    settings: SGDSettings,
    max_iter: int,
    stop_below: float,
    accuracy: Callable[[FloatArray, FloatArray, float], float],
    rng: np.random.Generator,
    progress: Callable[[int], object],
) -> tuple[FloatArray, int, str]:
    """Directions to remove (d, rank), the number of iterations, and why they ended.

    `accuracy(directions, weights, bias)` is that of the current classifier after the removal; the directions with the
    lowest are kept. (Stopping on the current classifier, not on the best one, gives the published figures.)
    """
    d = rows.n_features
    p = np.eye(d) * rank / d
    weights, bias = rng.standard_normal(d) * 1e-2, 0.0
    speed, speed_b, speed_p = np.zeros(d), 0.0, np.zeros((d, d))
    best, done = (np.inf, top_directions(p, rank)), 0
    while done < max_iter:
        for block in minibatches(rows, settings.batch_size, rng, weighting):
            x = block.z - centre
            target = block.targets[CONCEPT]
            for player in ("classifier", "projection"):
                kept = x - x @ p
                residual = (1.0 / (1.0 + np.exp(-(kept @ weights + bias))) - target) / len(x)
                if player == "classifier":
                    speed = settings.momentum * speed + kept.T @ residual + settings.penalty * weights
                    speed_b = settings.momentum * speed_b + residual.sum()
                    weights, bias = weights - settings.learning_rate * speed, bias - settings.learning_rate * speed_b
                else:
                    # loss(P) through logits θᵀ(I − P)x: its gradient is −sym(θ gᵀ) with g = Σ r x
                    g = x.T @ residual
                    speed_p = settings.momentum * speed_p - 0.5 * (np.outer(weights, g) + np.outer(g, weights))
                    moved = p + settings.learning_rate * speed_p
                    if not np.isfinite(moved).all():
                        return best[1], done, f"it diverged after {done} iterations, with too large a learning_rate"
                    p = onto_fantope(moved, rank)
            done += 1
            if done % CHECK_EVERY == 0 or done >= max_iter:
                progress(CHECK_EVERY)
                found = top_directions(p, rank)
                score = accuracy(found, weights, bias)
                if score < best[0]:
                    best = (score, found)
                if score < stop_below:
                    return found, done, f"the adversary is right in {100 * score:.1f} %"
            if done >= max_iter:
                break
    return best[1], done, f"{done} iterations, at best with the adversary right in {100 * best[0]:.1f} %"


@dataclass(frozen=True, slots=True)
class MinimaxTrace:
    """How good the best linear response still is on the rows of the fit, and how the search ended.

    The minimax value cannot exceed `chance_loss`, the loss of a constant; a projection that reaches it is optimal.
    """

    rank: int
    response_loss: float
    chance_loss: float
    response_accuracy: float
    majority: float
    iterations: int
    reason: str

    @property
    def stopped(self) -> str:
        """Why the search ended."""
        return self.reason

    @property
    def most_evaluations(self) -> int:
        """Iterations it took."""
        return max(1, self.iterations)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> MinimaxTrace:
        """Inverse of `to_dict`."""
        require_kinds(saved, {"rank": int, "iterations": int, "reason": str, ...: NUMBER}, "the trace")
        return cls(**saved)

    def __str__(self) -> str:
        return (
            f"RLACE of rank {self.rank}: {self.reason}\n"
            f"best linear response: loss {self.response_loss:.6f} (a constant: {self.chance_loss:.6f}), "
            f"accuracy {100 * self.response_accuracy:.2f} % (majority: {100 * self.majority:.2f} %)"
        )

    __repr__ = __str__


class RLACE(ConceptRemover):
    """Relaxed linear adversarial concept erasure (Ravfogel et al., 2022).

    ``max_P min_w loss(concept | (I − P) z)`` over orthogonal projections P of rank `rank`. A linear classifier can beat
    a constant if and only if class means differ, so a projection off the differences of the class means reaches the
    largest possible value, the loss of a constant: with one direction for every class but one, that is the solution,
    and it needs no iterations. The published search, by descent and ascent over the Fantope, is
    ``solver="sgd"``; it stops wherever its schedule does.

    Parameters
    ----------
    rank : int or "auto", default="auto"
        Directions to remove. "auto": as many as the class means differ in, one fewer than there are classes. With fewer
        the concept cannot be removed; the exact solver then rotates them until the best response gets no worse.
    solver : "exact", "sgd" or SGD, default="exact"
    max_iter, stop_below :
        Of SGD, the published schedule: 50,000 iterations at most, stopped when the adversary is right in fewer than
        51 % of balanced rows (of others: when it beats the majority by less than that).
    balance, missing_concept, strength :
        As in :class:`LEACE`.
    random_state, verbose :
        Of ``solver="sgd"``.

    Attributes
    ----------
    trace_ : MinimaxTrace
        How good the best response is at the end.
    """

    trace_type = MinimaxTrace
    trace_: MinimaxTrace

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012 — scikit-learn's protocol
        "rank": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "solver": SOLVER,
        "balance": BALANCE,
        "missing_concept": MISSING,
        "strength": STRENGTH,
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "stop_below": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        rank: Any = "auto",
        solver: Literal["exact", "sgd"] | SGD = "exact",
        balance: Balance = "none",
        missing_concept: Any = None,
        strength: float = 1.0,
        max_iter: int = 50_000,
        stop_below: float = 0.51,
        random_state: Any = None,
        verbose: bool = False,
    ):
        # There is no concept_type: a minimax over classifiers knows classes only.
        self.rank = rank
        self.solver = solver
        self.balance = balance
        self.missing_concept = missing_concept
        self.strength = strength
        self.max_iter = max_iter
        self.stop_below = stop_below
        self.random_state = random_state
        self.verbose = verbose

    @keyword_only_after_y
    def fit(self, X: Array, y: Array | None = None, *, concept: Array, sample_weight: Array | None = None) -> Self:
        """Estimate the projection; arguments are those of :meth:`LEACE.fit`."""
        with self._fitting(X):
            self._validate_params()
            self._reset()
            sgd, span = SGD.of(self.solver), None
            rows, n_concept = self._rows(X, y, concept, sample_weight, reset=True)
            if sgd is None:
                rows, span = to_span_coordinates(rows)
            moments, whitener = covariances_of(rows, rotated=span is not None)
            means = solve_closed_form(moments, n_concept, "sal", whitener, method=type(self).__name__)
            spurious = means.spurious
            iterations, reason = 0, "class means are equal: no linear classifier beats a constant"
            rank = spurious.dim if self.rank == "auto" else int(self.rank)
            if sgd is None and 0 < spurious.dim < rank:
                raise InputError(
                    f"rank={rank}, but the class means of this concept differ in {spurious.dim} direction(s): more "
                    "would remove what is not the concept's. Use rank='auto'."
                )
            weighting = Weighting(np.full(1, 1.0 / moments.weight))
            response = _BestResponse(rows, weighting, n_concept)
            if sgd is not None:
                if n_concept > 1:
                    raise InputError("solver='sgd' is the published schedule, for a binary concept; use 'exact'.")
                spurious, iterations, reason = self._by_schedule(sgd, rows, weighting, moments, response, max(1, rank))
            elif rank < spurious.dim:
                first = np.linalg.svd(moments.cross[:, :n_concept], full_matrices=False)[0][:, :rank]
                directions, iterations, reason = ascend(response.with_gradient, first)
                spurious = Subspace.spanned_by(directions)
            loss, accuracy = response(spurious)
            chance, majority = response.constant(moments.mean_t)
            if chance - loss <= MIN_GAIN * chance:  # weights are rounding errors, and so would be their accuracy
                accuracy = majority
            removal = AffineMap.removing(spurious, moments.mean_x)
            if span is not None:
                removal, spurious = span.lift_map(removal), span.lift_subspace(spurious)
            self._set_removal(removal, spurious, Subspace.empty(removal.ambient))
            self.trace_ = MinimaxTrace(spurious.dim, loss, chance, accuracy, majority, iterations, reason)
            self.n_iter_ = self.trace_.most_evaluations
            self.warn_if_nothing_removed(None)
            self._warn_if_little_is_left(spurious.dim, means.trace.rank)
            if sgd is not None and accuracy > majority + 0.02:
                warnings.warn(
                    f"The search ended before the concept was gone ({reason}): the best linear response is right in "
                    f"{100 * accuracy:.1f} % of the rows, a constant in {100 * majority:.1f} %. Use solver='exact'.",
                    NotConvergedWarning,
                    stacklevel=3,
                )
        return self

    def _notes(self) -> list[str]:
        excess, notes = self.trace_.response_accuracy - self.trace_.majority, super()._notes()
        if excess > 0.01:
            notes.append(f"the best response still beats the majority by {100 * excess:.1f} points")
        return notes

    def _by_schedule(
        self,
        sgd: SGD,
        rows: RowSource,
        weighting: Weighting,
        moments: Covariances,
        response: _BestResponse,
        rank: int,
    ) -> tuple[Subspace, int, str]:
        settings, rng = sgd_settings(sgd, DEFAULT_PENALTY, LEARNING_RATE), generator(self.random_state)
        majority = response.constant(moments.mean_t)[1]

        def accuracy(directions: FloatArray, weights: FloatArray, bias: float) -> float:
            """Accuracy of weights after the removal of directions, as if the classes were balanced."""
            kept = Subspace.spanned_by(directions).reject(weights)
            return response.accuracy(kept[:, None], np.array([bias])) - majority + 0.5

        with tqdm(desc="RLACE", unit=" iterations", total=self.max_iter, disable=not self.verbose) as bar:
            found, iterations, reason = descend_and_ascend(
                rows,
                weighting,
                moments.mean_x,
                rank,
                settings,
                self.max_iter,
                self.stop_below,
                accuracy,
                rng,
                bar.update,
            )
        return Subspace.spanned_by(found), iterations, reason


class _BestResponse:
    """Loss (summed over the concept's columns) and accuracy of the best linear classifier after a removal."""

    def __init__(self, rows: RowSource, weighting: Weighting, n_columns: int):
        self._rows, self._weighting, self._columns = rows, weighting, range(n_columns)
        self._geometry = Geometry.of(Moments.of(rows, weighting), rows.dtype.itemsize)
        self._whitening = LogisticCoordinates.of(self._geometry, RESPONSE_DECAY)

    def __call__(self, removed: Subspace) -> tuple[float, float]:
        fits = [self._solve(k, removed, tol=1e-5) for k in self._columns]
        weights, biases = np.stack([fit.weights for fit in fits], axis=1), np.array([fit.intercept for fit in fits])
        return float(sum(fit.outcome.objective for fit in fits)), self.accuracy(weights, biases)

    def _solve(self, label: int, removed: Subspace, tol: float) -> Logistic:
        return solve_logistic(self._rows, self._weighting, self._whitening.excluding(removed), label, tol=tol)

    def with_gradient(self, directions: FloatArray) -> tuple[float, FloatArray]:
        """Loss of the best response to the removal of orthonormal directions (d, k), and its gradient in them."""
        geometry, loss, gradient = self._geometry, 0.0, np.zeros_like(directions)
        for k in self._columns:
            fit = self._solve(k, Subspace(directions), tol=1e-8)
            at = LogisticLosses.of_one(
                fit.weights[None],
                np.array([fit.intercept]),
                geometry.centre,
                self._weighting,
                centred=geometry.far_from_zero,
                only=k,
            )
            slope = self._rows.sum(at)[0, 0, 2:]
            loss += fit.outcome.objective
            gradient -= np.outer(fit.weights, directions.T @ slope)
        return loss, gradient

    def accuracy(self, weights: FloatArray, biases: FloatArray) -> float:
        """Accuracy of weights (d, k) and biases (k,), averaged over the columns."""
        scores = self._rows.project(weights, self._geometry.centre)
        weighting = self._weighting  # a local, since a statistic is sent to the rows, and `self` holds them all

        def right(block: Block) -> Array:
            correct = ((block.z + to_device_like(biases, block.z)).T > 0) == (block.targets[: len(biases)] > 0.5)
            return cast(correct, np.float64) @ weighting(block)

        return float(np.mean(scores.sum(right)))

    def constant(self, shares: FloatArray) -> tuple[float, float]:
        """Loss and accuracy of the best constant."""
        p = np.clip(shares[list(self._columns)], 1e-300, 1.0 - 1e-16)
        loss = -(p * np.log(p) + (1.0 - p) * np.log1p(-p))
        return float(loss.sum()), float(np.mean(np.maximum(p, 1.0 - p)))
