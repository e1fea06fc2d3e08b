"""Group DRO: the exact solution against a generic convex solver, and its optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import log_softmax

from unspur.exceptions import NotConvergedWarning
from unspur.heads import ERM, GroupDRO, GroupWeighted


def rows(k=2, concepts=2, n=300, seed=0, dtype=float):
    """Classes and concepts that go together, with groups of unequal size and difficulty."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    concept = np.where(rng.random(n) < 0.75, y % concepts, rng.integers(concepts, size=n))
    z = rng.standard_normal((n, 4)) * (1.0 + y[:, None])
    z[:, 0] += 1.5 * y
    z[:, 1] += 2.0 * concept
    z[:, 2] += (y == k - 1) * 1.0
    return z.astype(dtype), y, concept


def group_losses(z, y, concept, coef, intercept, adjustment=0.0):
    """Mean loss of every group that has rows, from scratch."""
    logits = z @ coef.T + intercept
    if logits.shape[1] == 1:
        logits = np.column_stack([np.zeros(len(z)), logits])
    loss = -log_softmax(logits, axis=1)[np.arange(len(y)), y]
    groups = [(y == a) & (concept == b) for a in np.unique(y) for b in np.unique(concept)]
    return np.array([loss[g].mean() + adjustment / np.sqrt(g.sum()) for g in groups if g.any()])


def penalty(z, y, concept, penalty):
    """λ: `penalty` times the mean variance of the rows when all groups weigh the same."""
    groups = [g for a in np.unique(y) for b in np.unique(concept) if (g := (y == a) & (concept == b)).any()]
    weight = sum(g / g.sum() for g in groups) / len(groups)
    centred = z - weight @ z
    return penalty * (weight @ centred**2).mean()


def objective(head, z, y, concept, adjustment=0.0):
    """What group DRO minimises, at a fitted head."""
    losses = group_losses(z, y, concept, head.coef_, head.intercept_, adjustment)
    return losses.max() + 0.5 * penalty(z, y, concept, head.penalty) * np.sum(head.coef_**2)


@pytest.mark.parametrize(("k", "concepts", "adjustment"), [(2, 2, 0.0), (2, 2, 3.0), (3, 2, 1.0), (2, 3, 0.0)])
def test_exact_solution_equals_a_generic_convex_solvers(k, concepts, adjustment):
    z, y, concept = rows(k, concepts, n=120)
    head = GroupDRO(penalty=0.1, adjustment=adjustment, tol=1e-8).fit(z, y, concept=concept)
    decay, lines = penalty(z, y, concept, 0.1), 1 if k == 2 else k

    def parts(x):
        return x[: 4 * lines].reshape(lines, 4), x[4 * lines : -1]

    epigraph = minimize(
        lambda x: x[-1] + 0.5 * decay * np.sum(parts(x)[0] ** 2),
        np.append(np.zeros(5 * lines), 5.0),
        constraints={"type": "ineq", "fun": lambda x: x[-1] - group_losses(z, y, concept, *parts(x), adjustment)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert epigraph.success
    assert_allclose(head.outcome_.objective, epigraph.fun, atol=1e-7)
    assert_allclose(objective(head, z, y, concept, adjustment), epigraph.fun, atol=1e-7)
    assert_allclose(head.coef_, parts(epigraph.x)[0], atol=1e-3)
    balanced = GroupWeighted(penalty=0.1).fit(z, y, concept=concept)
    assert objective(balanced, z, y, concept, adjustment) > epigraph.fun + 1e-3  # control: another problem


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_groups_with_weight_share_the_largest_loss(k, dtype):
    z, y, concept = rows(k, dtype=dtype)
    head = GroupDRO(adjustment=0.5, tol=1e-8).fit(z, y, concept=concept)
    assert head.outcome_.converged
    assert 0 <= head.outcome_.gap <= 1e-8 * np.log(k)
    q, losses = head.group_weights_.ravel(), head.group_losses_.ravel()
    assert_allclose(q.sum(), 1.0)
    assert_allclose(losses, group_losses(z, y, concept, head.coef_, head.intercept_, 0.5), atol=1e-6)
    active = q > 1e-3
    assert active.sum() >= 2
    assert_allclose(losses[active], losses.max(), atol=1e-5)
    assert np.ptp(group_losses(z, y, concept, *_plain(z, y), 0.5)) > 0.1  # control: ERM's are far apart
    # The weights found are those of the dual: fitting with them once more gives the same model.
    weight = q[2 * y + concept] / np.bincount(2 * y + concept)[2 * y + concept]
    keep = weight > 1e-9 * weight.max()
    again = ERM(penalty=0.0, tol=1e-9)
    decay = penalty(z, y, concept, 0.01)
    mean = weight[keep] @ z[keep] / weight[keep].sum()
    again.penalty = decay / (weight[keep] @ (z[keep] - mean) ** 2 / weight[keep].sum()).mean()
    again.fit(z[keep].astype(float), y[keep], sample_weight=weight[keep])
    assert_allclose(again.coef_, head.coef_, atol=2e-3 * np.abs(head.coef_).max())


def _plain(z, y):
    erm = ERM().fit(z, y)
    return erm.coef_, erm.intercept_


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_group_is_never_worse_than_under_equal_weights(seed):
    z, y, concept = rows(3, 2, seed=seed)
    exact, balanced = (h.fit(z, y, concept=concept) for h in (GroupDRO(penalty=0.03), GroupWeighted(penalty=0.03)))
    assert objective(exact, z, y, concept) <= objective(balanced, z, y, concept) + 1e-6
    light = [head(penalty=1e-6).fit(z, y, concept=concept) for head in (GroupDRO, GroupWeighted, ERM)]
    worst = [group_losses(z, y, concept, h.coef_, h.intercept_).max() for h in light]
    assert worst[0] < worst[1] - 0.01 < worst[2]


def test_adjustment_favours_the_small_groups():
    z, y, concept = rows()
    plain, adjusted = (GroupDRO(adjustment=c).fit(z, y, concept=concept) for c in (0.0, 3.0))
    sizes = np.array([[np.sum((y == a) & (concept == b)) for b in (0, 1)] for a in (0, 1)])
    small = sizes < sizes.mean()
    assert adjusted.group_weights_[small].sum() > plain.group_weights_[small].sum() + 0.1


def test_groups_without_rows_are_left_out():
    z, y, concept = rows(3, 3)
    keep = ~((y == 0) & (concept == 2))
    head = GroupDRO().fit(z[keep], y[keep], concept=concept[keep])
    assert head.outcome_.converged
    assert head.group_weights_[0, 2] == 0
    assert np.isnan(head.group_losses_).sum() == 1


def test_a_gap_that_does_not_close_is_reported():
    z, y, concept = rows()
    with pytest.warns(NotConvergedWarning, match="duality gap"):
        head = GroupDRO(max_iter=1, tol=1e-9).fit(z, y, concept=concept)
    assert head.outcome_.gap > 1e-9
