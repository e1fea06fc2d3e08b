"""The exact pair solver: right gradient, right minimum, right constraint."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.rows import CONCEPT, MAIN, MemoryRows, RowLabels
from unspur.solvers import descent
from unspur.solvers.coordinates import Geometry
from unspur.solvers.orthogonal_pair import (
    PairDescent,
    PairLosses,
    PairModel,
    PairSpace,
    Spectrum,
    _run_in_lockstep,
    best_of_model,
    constraint,
    directions,
    global_minima,
    retract,
    solve_pairs,
)
from unspur.solvers.statistics import CellCounts, Moments
from unspur.subspace import Subspace


def problem(z, y, concept, *, weight=None, penalty=0.01, removed=None, balance="none"):
    rows = MemoryRows(z, RowLabels.of(y, concept, weight))
    counts = CellCounts.of(rows)
    weighting = counts.weighting(counts.without(None), balance)
    geometry = Geometry.of(Moments.of(rows, weighting), z.dtype.itemsize)
    space = PairSpace.of(Spectrum.of(geometry), penalty)
    if removed is not None:
        space = space.excluding(removed)
    return rows, weighting, space


def toy_problem(n=400, d=6, rho=0.8, seed=0, **options):
    toy = make_toy(n, d=d, rho=rho, random_state=seed)
    return problem(toy.Z, toy.y, toy.concept, **options)


def hard_problem(seed):
    """One of a family: correlations up to 0.98, several sizes and decays, stretched axes, reduced subspaces."""
    rng = np.random.default_rng(seed)
    rho, d = (0.5, 0.8, 0.9, 0.95, 0.98)[seed % 5], (5, 8, 12)[seed % 3]
    toy = make_toy((250, 500)[seed % 2], d=d, rho=rho, random_state=seed)
    z, removed = toy.Z, None
    if seed % 7 == 0:
        z = (z * np.logspace(-1, 1, d)) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    if seed % 4 > 1:
        vectors = rng.standard_normal((d, seed % 4 - 1))
        if seed % 3 == 0:  # close to the direction of the main task, as after an accepted step
            vectors[:, 0] = np.linalg.lstsq(z, toy.y - 0.5, rcond=None)[0] + 0.02 * vectors[:, 0]
        removed = Subspace.spanned_by(vectors)
    decay = (0.0, 1e-3, 1e-2, 0.1)[(seed // 5) % 4]
    return problem(z, toy.y, toy.concept, penalty=decay, removed=removed)


def other_hard_problem(seed):
    """Features that are not orthogonal (odd seeds), or several directions per label and no axes (even seeds)."""
    d, decay, balance = (5, 8, 12, 20)[seed % 4], (1e-3, 1e-2, 0.1)[seed % 3], ("none", "group")[seed // 2 % 2]
    if seed % 2:
        toy = make_toy(400, d=d, rho=(0.8, 0.95, 0.98)[seed % 3], angle=(75, 45, 20)[seed // 2 % 3], random_state=seed)
        return problem(toy.Z, toy.y, toy.concept, penalty=decay, balance=balance)
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=400)
    concept = np.where(rng.random(400) < 0.9, y, 1 - y)
    z = rng.standard_normal((400, d))
    k = d // 2 - 1
    z[:, :k] += (2 * concept - 1)[:, None] * rng.uniform(0.2, 0.8, k)
    z[:, k : 2 * k] += (2 * y - 1)[:, None] * rng.uniform(0.2, 0.8, k)
    z = (z * np.geomspace(1, 0.1, d)) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    return problem(z, y, concept, penalty=decay, balance=balance)


def penalty(space):
    """λ, in the units of the rows."""
    return space.decay * space.spectrum.unit**2


def solve_pair(rows, weighting, space, **options):
    losses = PairLosses(rows, space.spectrum, (weighting,))
    return solve_pairs(losses, [space], losses.at_zero(), **options)[0]


def minimum_from(x, rows, weighting, space, tol=1e-6):
    """The objective at the end of a descent from a flat point."""
    losses = PairLosses(rows, space.spectrum, (weighting,))
    descent = PairDescent(space, losses.at_zero()[1][0], tol, rounding=1e-14, max_iter=1000)
    descent.setup((None, None))
    exact = retract(x, descent.model_at_zero)
    if exact is not None:
        descent.starts = [exact]
    _run_in_lockstep(losses, {0: descent})
    return descent.point.value


def random_start(space, rng):
    """A flat point: weights of twice the size that whitened rows would call for, in any direction."""
    scale = 2.0 / np.sqrt(space.spectrum.variance / 4 + space.decay)
    return np.append(space.project(scale * rng.standard_normal((2, len(scale)))), [0.0, 0.0])


def test_gradient_equals_finite_differences():
    rows, weighting, space = toy_problem()
    losses = PairLosses(rows, space.spectrum, (weighting,))
    x = np.random.default_rng(0).standard_normal(14)
    _, gradient = losses(x[None], [0])
    step = 1e-6 * np.eye(len(x))
    numeric = [(losses(x[None] + h, [0])[0].sum() - losses(x[None] - h, [0])[0].sum()) / 2e-6 for h in step]
    assert_allclose(gradient[0], numeric, atol=1e-8)
    assert np.linalg.norm(gradient) > 1e-2


class TestModel:
    """The quadratic model, against a dense solution of the same equations and against brute force."""

    space = toy_problem(removed=Subspace.spanned_by(np.random.default_rng(1).standard_normal((6, 2))))[2]
    curvature = np.array([0.2, 0.11])

    def hessian(self, multiplier):
        blocks = [np.diag(k * self.space.spectrum.variance + self.space.decay) for k in self.curvature]
        across = multiplier * np.eye(6)
        return np.block([[blocks[0], across], [across, blocks[1]]])

    def test_solve_is_the_inverse_on_the_allowed_coordinates(self):
        model = PairModel(self.space, self.curvature, 0.01)
        v = np.kron(np.eye(2), self.space.forbidden)
        free = np.linalg.svd(v)[0][:, v.shape[1] :]  # a basis of what is allowed
        g = np.random.default_rng(3).standard_normal(14)
        dense = free @ np.linalg.solve(free.T @ self.hessian(0.01) @ free, free.T @ g[:-2])
        assert model.multiplier == 0.01
        assert_allclose(model.solve(g), np.r_[dense, g[-2:] / self.curvature], atol=1e-10)
        assert np.abs(free @ (free.T @ np.linalg.solve(self.hessian(0.01), g[:-2])) - dense).max() > 1e-3

    def test_multipliers_are_kept_where_the_hessian_is_positive_definite(self):
        for asked in (-1e3, 1e3):
            model = PairModel(self.space, self.curvature, asked)
            assert np.linalg.eigvalsh(self.hessian(model.multiplier)).min() > 0
            assert abs(model.multiplier) == model.bound
        assert np.linalg.eigvalsh(self.hessian(1.1 * model.bound)).min() < 0

    @pytest.mark.parametrize("seed", range(12))
    def test_no_start_leads_lower_than_the_solution_of_the_model(self, seed):
        rng, space = np.random.default_rng(seed), replace(self.space, forbidden=np.empty((6, 0)))
        slopes = np.r_[rng.standard_normal(12), 0.0, 0.0]
        hard = seed % 3 == 0
        if hard:
            slopes[6:12] = slopes[:6] + 0.01 * slopes[6:12]  # both labels want the same direction,
            slopes[[0, 6]] = 1e-4  # and not that of least variance
        hessian = self.hessian(0.0)

        def value(a):
            return slopes[:-2] @ a + 0.5 * a @ hessian @ a

        found = global_minima(space, slopes, self.curvature)
        assert len(found) == (2 if hard else 1)
        orthogonal = {"type": "eq", "fun": lambda a: a[:6] @ a[6:]}
        starts = 3 * rng.standard_normal((15, 12))
        others = [scipy.optimize.minimize(value, a, constraints=[orthogonal], method="SLSQP").fun for a in starts]
        # Two percent are left to the descent, as the retraction and the bound on the multiplier may cost.
        assert min(value(x[:-2]) for x in found) <= 0.98 * min(others)

    @pytest.mark.parametrize("seed", range(6))
    def test_starts_satisfy_the_constraints(self, seed):
        slopes = np.r_[np.random.default_rng(seed).standard_normal(12), 0.0, 0.0]
        slopes[6:12] = slopes[:6] * (seed % 2) + 0.3 * slopes[6:12]
        slopes[:-2] = self.space.project(slopes[:-2].reshape(2, 6)).ravel()
        for x in best_of_model(self.space, slopes):
            assert abs(constraint(x)) <= 1e-9 * np.linalg.norm(x[:6]) * np.linalg.norm(x[6:12])
            assert_allclose(x[:-2].reshape(2, 6) @ self.space.forbidden, 0, atol=1e-9)
            assert np.linalg.norm(x) > 0.1

    def test_a_retracted_point_is_orthogonal_and_near(self):
        x = np.random.default_rng(5).standard_normal(14)
        x[6:12] = 0.2 * x[6:12] + 0.05 * x[:6]
        back = retract(x, PairModel(self.space, self.curvature))
        assert abs(constraint(back)) < 1e-12 < abs(constraint(x))
        assert np.linalg.norm(back - x) < 0.5 * np.linalg.norm(x)


def test_pairs_solved_side_by_side_are_those_solved_alone():
    toy = make_toy(600, d=6, rho=0.8, random_state=0)
    rows = MemoryRows(toy.Z, RowLabels.of(toy.y, toy.concept, None, np.arange(600) % 4))
    counts = CellCounts.of(rows)
    weightings = tuple(counts.weighting(counts.without(k), "group") for k in (None, 1, 2, 3))
    spectrum = Spectrum.of(Geometry.of(Moments.of(rows, weightings[0]), 8))
    space = PairSpace.of(spectrum, 0.01)
    spaces = [space, space.excluding(Subspace.spanned_by(np.eye(6)[:, :1])), space, space]
    losses = PairLosses(rows, spectrum, weightings)
    together = solve_pairs(losses, spaces, losses.at_zero(), tol=1e-9)
    for pair, weighting, own in zip(together, weightings, spaces, strict=True):
        alone = solve_pair(rows, weighting, own, tol=1e-9)
        assert_allclose(pair.weights, alone.weights, atol=1e-10)
        assert pair.outcome.evaluations == alone.outcome.evaluations
    visits = 0

    class Counted(MemoryRows):
        def sum(self, statistic):
            nonlocal visits
            visits += 1
            return super().sum(statistic)

    counted = PairLosses(Counted(toy.Z, rows.labels), spectrum, weightings)
    solve_pairs(counted, spaces, losses.at_zero(), tol=1e-9)
    assert visits == max(pair.outcome.evaluations for pair in together)
    assert visits < sum(pair.outcome.evaluations for pair in together)


def test_solution_is_orthogonal_and_inside_the_allowed_subspace():
    removed = Subspace.spanned_by(np.random.default_rng(2).standard_normal((6, 2)))
    pair = solve_pair(*toy_problem(rho=0.95, removed=removed))
    v = directions(pair)
    free = directions(solve_pair(*toy_problem(rho=0.95)))
    assert abs(v[CONCEPT] @ v[MAIN]) < 1e-14
    assert_allclose(removed.basis.T @ v.T, 0, atol=1e-10)
    assert np.abs(removed.basis.T @ free.T).max() > 0.1  # control: without the restriction it would lie inside


def test_solution_satisfies_the_conditions_of_the_constrained_problem():
    """∇f_s + μ w_y = 0 and ∇f_y + μ w_s = 0 with one multiplier μ, and both intercepts stationary."""
    rows, weighting, space = toy_problem(rho=0.9)
    pair = solve_pair(rows, weighting, space, tol=1e-9)
    spectrum = space.spectrum
    x = np.concatenate([space.project(spectrum.unit * (pair.weights @ spectrum.axes)).ravel(), pair.intercepts])
    _, flat = PairLosses(rows, space.spectrum, (weighting,))(x[None], [0])
    gradient = (
        space.spectrum.unit**2 * space.spectrum.weights(flat[0, :-2].reshape(2, -1)) + penalty(space) * pair.weights
    )
    gradient_b = flat[0, -2:]
    w_s, w_y = pair.weights
    multipliers = [-(gradient[0] @ w_y) / (w_y @ w_y), -(gradient[1] @ w_s) / (w_s @ w_s)]
    assert abs(multipliers[0]) > 1e-3  # the constraint is active
    assert_allclose(multipliers[0], multipliers[1], rtol=1e-5)
    assert_allclose(gradient + multipliers[0] * pair.weights[::-1], 0, atol=1e-8)
    assert_allclose(gradient_b, 0, atol=1e-8)


def test_objective_equals_that_of_a_generic_constrained_optimiser():
    toy = make_toy(300, d=4, rho=0.8, random_state=3)
    pair = solve_pair(*problem(toy.Z, toy.y, toy.concept, penalty=0.05))
    z = toy.Z - toy.Z.mean(axis=0)
    decay = 0.05 * z.var(axis=0).mean()

    def naive(x):
        w, b = x[:8].reshape(2, 4), x[8:]
        t = z @ w.T + b
        return (
            np.mean(np.logaddexp(0, t) - t * np.column_stack([toy.concept, toy.y]), axis=0).sum()
            + decay / 2 * (w @ w.T).trace()
        )

    orthogonal = {"type": "eq", "fun": lambda x: x[:4] @ x[4:8]}
    start = np.r_[pair.weights.ravel(), pair.intercepts] + 0.1
    peer = scipy.optimize.minimize(naive, start, constraints=[orthogonal], options={"ftol": 1e-14, "maxiter": 500})
    assert_allclose(pair.outcome.objective, peer.fun, atol=1e-7)
    assert_allclose(naive(np.r_[pair.weights.ravel(), pair.intercepts]), pair.outcome.objective, rtol=1e-12)


def test_no_random_start_finds_a_lower_minimum():
    misled = 0
    for seed in range(40):
        rows, weighting, space = hard_problem(seed)
        cold = solve_pair(rows, weighting, space).outcome
        assert cold.converged, (seed, cold)
        rng = np.random.default_rng(seed)
        values = [minimum_from(random_start(space, rng), rows, weighting, space, tol=1e-5) for _ in range(20)]
        assert cold.objective <= min(values) + 1e-7, (seed, cold.objective - min(values))
        misled += max(values) > cold.objective + 1e-4
    assert misled > 12  # control: many of these problems do have a worse minimum to fall into


def test_solutions_of_neighbouring_problems_save_time_and_change_nothing():
    """As in the inner loop: one direction of the main task after the other is taken away."""
    spent = {"cold": 0, "near": 0}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(2, size=1500)
        concept = np.where(rng.random(1500) < 0.8, y, 1 - y)
        z = rng.standard_normal((1500, 60))
        z[:, :5] += 0.7 * (2 * concept - 1)[:, None]
        z[:, 5:10] += 0.7 * (2 * y - 1)[:, None]
        rows, weighting, space = problem(z * np.geomspace(3, 0.3, 60), y, concept, balance="group")
        losses = PairLosses(rows, space.spectrum, (weighting,))
        pair, gone = solve_pair(rows, weighting, space), Subspace.empty(60)
        for _ in range(4):
            gone = gone.with_direction(directions(pair)[MAIN])
            allowed = space.excluding(gone)
            cold, near = (
                solve_pairs(losses, [allowed], losses.at_zero(), warm_start=given)[0]
                for given in (None, [(pair, pair)])
            )
            assert_allclose(near.outcome.objective, cold.outcome.objective, atol=1e-8)
            assert_allclose(directions(near), directions(cold), atol=1e-4)
            spent["cold"] += cold.outcome.evaluations
            spent["near"] += near.outcome.evaluations
            pair = near
    assert spent["near"] < 0.9 * spent["cold"]


def test_integer_weights_equal_repeated_rows():
    toy = make_toy(300, d=5, rho=0.7, random_state=5)
    weight = np.random.default_rng(0).integers(1, 4, size=300)
    weighted = solve_pair(*problem(toy.Z, toy.y, toy.concept, weight=weight), tol=1e-10)
    rows = np.repeat(np.arange(300), weight)
    repeated = solve_pair(*problem(toy.Z[rows], toy.y[rows], toy.concept[rows]), tol=1e-10)
    plain = solve_pair(*problem(toy.Z, toy.y, toy.concept), tol=1e-10)
    assert_allclose(weighted.weights, repeated.weights, atol=1e-8)
    assert np.abs(plain.weights - repeated.weights).max() > 1e-2


def test_rows_that_do_not_span_the_space_get_weights_in_their_span():
    """Outside the span of the rows weights cost nothing at λ = 0 and could buy orthogonality for free."""
    toy = make_toy(300, d=4, rho=0.9, random_state=1)
    flat = np.column_stack([toy.Z, toy.Z @ [1.0, 1, 0, 0], np.full(300, 3.0)])
    pair = solve_pair(*problem(flat, toy.y, toy.concept, penalty=0.0))
    span = np.linalg.svd(flat - flat.mean(axis=0))[2][:4]
    assert pair.outcome.converged
    assert_allclose(pair.weights, pair.weights @ span.T @ span, atol=1e-8 * np.abs(pair.weights).max())


def test_decay_is_relative_to_the_variance_of_the_rows():
    toy = make_toy(400, d=5, rho=0.8, random_state=2)
    plain = solve_pair(*problem(toy.Z, toy.y, toy.concept, penalty=0.1))
    for scale in (1e-8, 1e8):
        scaled = solve_pair(*problem(toy.Z * scale, toy.y, toy.concept, penalty=0.1))
        assert_allclose(scaled.weights * scale, plain.weights, atol=1e-6)
    wider = np.column_stack([toy.Z, np.full(400, 7.0)])
    padded = solve_pair(*problem(wider, toy.y, toy.concept, penalty=0.1))
    assert_allclose(padded.weights[:, :-1], plain.weights, atol=1e-6)
    other = solve_pair(*problem(toy.Z, toy.y, toy.concept, penalty=0.2))
    assert np.abs(other.weights - plain.weights).max() > 0.05


@pytest.mark.parametrize("power", [4, 8, 8.5, 9, 11])
def test_a_column_that_dwarfs_the_others_takes_nothing_from_them(power):
    """Without penalty; variances of the others are below the rounding error of the largest eigenvalue."""
    toy = make_toy(600, d=6, rho=0.6, random_state=0)
    z = toy.Z.copy()
    z[:, 5] *= 10.0**power
    pair = solve_pair(*problem(z, toy.y, toy.concept, penalty=0.0))
    known = directions(solve_pair(*problem(toy.Z[:, :5], toy.y, toy.concept, penalty=0.0)))
    assert pair.outcome.converged
    assert_allclose(np.abs(np.sum(directions(pair)[:, :5] * known, axis=1)), 1.0, atol=0.02)


def test_float32_rows_far_from_zero_give_the_float64_answer():
    toy = make_toy(2000, d=10, rho=0.8, random_state=4)
    exact = directions(solve_pair(*problem(toy.Z, toy.y, toy.concept)))
    for offset, tolerance in ((0.0, 1e-5), (30.0, 1e-5), (1000.0, 1e-3)):  # float32 itself rounds 1000 + z to 6e-5
        shifted = (toy.Z + offset).astype(np.float32)
        pair = solve_pair(*problem(shifted, toy.y, toy.concept))
        assert pair.outcome.converged
        assert_allclose(directions(pair), exact, atol=tolerance)


def test_stopping_early_is_an_outcome_with_a_reason():
    outcome = solve_pair(*toy_problem(rho=0.95), max_iter=2).outcome
    assert not outcome.converged
    assert "limit of 2 iterations" in outcome.reason
    assert outcome.gradient > 1e-6
    with pytest.warns(UserWarning, match=r"limit of 2.*Raise max_iter"):
        outcome.warn_unless_converged()


def test_a_label_without_any_linear_trace_is_an_outcome_too():
    z = np.random.default_rng(0).standard_normal((100, 4))
    z = np.concatenate([z, z])  # every row once with either label: class means are equal exactly
    concept = np.repeat([0, 1], 100)
    y = (z[:, 0] > 0).astype(int)
    rows, weighting, space = problem(z, y, concept)
    pair = solve_pair(rows, weighting, space)
    assert_allclose(pair.weights[CONCEPT], 0)
    peer = LogisticRegression(C=1 / (200 * penalty(space)), tol=1e-10).fit(z, y)  # and the other is free of it
    assert_allclose(pair.weights[MAIN], peer.coef_[0], atol=1e-5)
    neither = solve_pair(*problem(np.concatenate([z, z]), np.tile(concept, 2), np.repeat([0, 1], 200)))
    assert "no linear trace" not in pair.outcome.reason
    assert_allclose(directions(neither), 0)
    assert "no label has a linear trace" in neither.outcome.reason


def test_one_free_dimension_is_not_enough():
    removed = Subspace.spanned_by(np.eye(6)[:, :5])
    with pytest.raises(InputError, match="two free dimensions, and 1 of 6"):
        solve_pair(*toy_problem(removed=removed))


def test_labels_that_point_the_same_way_still_get_a_partner_direction():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((400, 3))
    y = (z[:, 0] > 0).astype(int)
    pair = solve_pair(*problem(z, y, y, penalty=0.1))
    assert pair.outcome.converged
    assert np.all(np.isfinite(pair.weights))


def test_small_changes_near_the_minimum_are_seen_through_the_gradient(monkeypatch):
    """With float32 rows the objective has too few digits to descend on; its gradient has them."""
    toy = make_toy(3000, d=60, rho=0.9, random_state=0)
    rows, weighting, space = problem(toy.Z.astype(np.float32), toy.y, toy.concept)
    fine = solve_pair(rows, weighting, space, tol=1e-7).outcome
    monkeypatch.setattr(descent, "FINE_CHANGE", 0.0)
    coarse = solve_pair(rows, weighting, space, tol=1e-7).outcome
    assert fine.gradient <= 1e-7
    assert coarse.gradient > fine.gradient or coarse.evaluations > 1.5 * fine.evaluations
    assert replace(fine, evaluations=0).converged


def test_quick_moments_are_used_only_where_the_rank_is_beyond_doubt():
    rng = np.random.default_rng(0)
    full = rng.standard_normal((500, 6)).astype(np.float32)
    flat = np.column_stack([full, full[:, 0] + full[:, 1]])
    for z, rank in ((full, 6), (flat, 6)):
        rows = MemoryRows(z, RowLabels.of(np.arange(500) % 2, np.arange(500) // 250))
        weighting = CellCounts.of(rows).weighting(np.array([True]), "none")
        quick, exact = Geometry.of_rows(rows, weighting), Geometry.of(Moments.of(rows, weighting), 4)
        assert quick.rank == exact.rank == rank
        assert_allclose(quick.second, exact.second, atol=1e-5)
    assert (
        np.abs(quick.second - Moments.of(rows, weighting, in_float64=False).second).max() > 0
    )  # these were done again
