"""What each head does with its weights, each promise with a control."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from unspur._data import LabelledData
from unspur.datasets import make_toy
from unspur.exceptions import InputError, LabelError, NoErrorsWarning
from unspur.heads import AFR, DFR, ERM, JTT, SUBG, GroupWeighted
from unspur.metrics import GroupAccuracy


@pytest.fixture(scope="module")
def toy():
    return make_toy(900, d=5, rho=0.8, random_state=0)


def groups_of(data):
    return 2 * data.y + data.concept


def stretched(n, agreement, seed):
    """Rows whose loudest axis is the concept and whose main axis is quiet, so that penalised ERM leans on the first."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    concept = np.where(rng.random(n) < agreement, y, 1 - y)
    z = rng.standard_normal((n, 20))
    z[:, 0] = 6.0 * (2 * concept - 1) + 3.0 * z[:, 0]
    z[:, 1] += 1.5 * (2 * y - 1)
    return z, y, concept


def worst(head, z, y, concept):
    return GroupAccuracy.of(head.predict(z) == y, y, concept).worst


def test_erm_equals_scikit_learns_and_ignores_the_concept(toy):
    erm = ERM(penalty=0.02, tol=1e-8).fit(toy.Z, toy.y)
    peer = LogisticRegression(C=1.0 / (0.02 * toy.Z.var(axis=0).mean() * len(toy.y)), tol=1e-10).fit(toy.Z, toy.y)
    assert_allclose(erm.coef_, peer.coef_, atol=1e-5)
    assert_allclose(erm.intercept_, peer.intercept_, atol=1e-5)
    assert_array_equal(ERM(penalty=0.02, tol=1e-8).fit(toy.Z, toy.y, concept=["odd"] * 3).coef_, erm.coef_)
    assert np.abs(ERM(penalty=0.2).fit(toy.Z, toy.y).coef_ - peer.coef_).max() > 0.1


def test_group_weighted_equals_erm_with_those_weights(toy):
    group = groups_of(toy)
    head = GroupWeighted(tol=1e-8).fit(toy.Z, toy.y, concept=toy.concept)
    by_hand = ERM(tol=1e-8).fit(toy.Z, toy.y, sample_weight=1.0 / np.bincount(group)[group])
    assert_allclose(head.coef_, by_hand.coef_, atol=1e-6)
    assert_array_equal(head.group_counts_.ravel(), np.bincount(group))
    assert np.abs(ERM().fit(toy.Z, toy.y).coef_ - head.coef_).max() > 0.05


@pytest.mark.parametrize("head", [ERM, GroupWeighted])
def test_whole_weights_are_repetition(head, toy):
    weight = np.random.default_rng(0).integers(0, 4, len(toy.y))
    weighted = head(tol=1e-8).fit(toy.Z, toy.y, concept=toy.concept, sample_weight=weight)
    again = np.repeat(np.arange(len(toy.y)), weight)
    repeated = head(tol=1e-8).fit(toy.Z[again], toy.y[again], concept=toy.concept[again])
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    assert_allclose(weighted.intercept_, repeated.intercept_, atol=1e-6)
    assert np.abs(head().fit(toy.Z, toy.y, concept=toy.concept).coef_ - repeated.coef_).max() > 1e-2


def test_subg_draws_equal_groups_without_replacement(toy):
    group = groups_of(toy)
    head = SUBG(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    assert len(np.unique(head.drawn_)) == len(head.drawn_)
    assert_array_equal(np.bincount(group[head.drawn_]), np.full(4, np.bincount(group).min()))
    assert np.ptp(np.bincount(group)) > 100
    chosen = head.drawn_
    assert_allclose(ERM().fit(toy.Z[chosen], toy.y[chosen]).coef_, head.coef_, atol=1e-6)
    same, other = (SUBG(random_state=s).fit(toy.Z, toy.y, concept=toy.concept) for s in (0, 1))
    assert_array_equal(same.drawn_, chosen)
    assert not np.array_equal(other.drawn_, chosen)


def test_jtt_upweights_what_the_first_model_gets_wrong(toy):
    jtt = JTT(upweight=7, tol=1e-8).fit(toy.Z, toy.y)
    first = ERM(penalty=0.1).fit(toy.Z, toy.y)
    assert_array_equal(jtt.errors_, np.flatnonzero(first.predict(toy.Z) != toy.y))
    weight = np.ones(len(toy.y))
    weight[jtt.errors_] = 7
    assert_allclose(jtt.coef_, ERM(tol=1e-8).fit(toy.Z, toy.y, sample_weight=weight).coef_, atol=1e-6)
    assert_allclose(JTT(upweight=1, tol=1e-8).fit(toy.Z, toy.y).coef_, ERM(tol=1e-8).fit(toy.Z, toy.y).coef_, atol=1e-6)
    assert np.abs(jtt.coef_ - first.coef_).max() > 0.1


def test_jtt_without_errors_is_erm_and_says_so():
    y = np.arange(40) % 2
    z = np.column_stack([10.0 * y, np.random.default_rng(0).standard_normal(40)])
    with pytest.warns(NoErrorsWarning, match="Raise identification_penalty"):
        jtt = JTT().fit(z, y)
    assert len(jtt.errors_) == 0
    assert "this is ERM" in jtt.outcome_.reason
    assert_allclose(jtt.coef_, ERM().fit(z, y).coef_, atol=1e-8)
    z[0, 0] = 10.0  # control: one row on the wrong side, and it is found without a warning
    assert 0 in JTT().fit(z, y).errors_


def test_dfr_balances_classes_without_a_concept(toy):
    rare = (toy.y == 0) | (np.arange(900) % 5 == 0)
    Z, y = toy.Z[rare], toy.y[rare]
    head = DFR(balance="main", n_draws=200, random_state=0).fit(Z, y, X_val=Z, y_val=y)
    assert_array_equal(head.group_counts_[:, 0], np.bincount(y))
    assert not hasattr(head, "concept_classes_")
    balanced, plain = ERM(balance="main").fit(Z, y), ERM().fit(Z, y)
    assert abs(head.predict(Z).mean() - balanced.predict(Z).mean()) < 0.02
    assert plain.predict(Z).mean() < balanced.predict(Z).mean() - 0.05  # control: the classes are not balanced
    ignored = {"concept": ["odd"] * 3, "concept_val": ["odd"] * 3}
    same = DFR(balance="main", n_draws=200, random_state=0).fit(Z, y, X_val=Z, y_val=y, **ignored)
    assert_array_equal(same.coef_, head.coef_)


def afr_by_scipy(Z, y, Z_held, y_held, gamma, first_decay, decay):
    """Both stages of AFR, written out and minimised by SciPy; weights (k, d) and intercepts (k,) for k classes."""
    k = y.max() + 1

    def fit(Z, y, weight, decay, origin):
        def objective(x):
            W, b = x[: k * Z.shape[1]].reshape(k, -1), x[k * Z.shape[1] :]
            eta = Z @ W.T + b
            p = softmax(eta, axis=1)
            residual = weight[:, None] * (p - np.eye(k)[y])
            loss = weight @ (logsumexp(eta, axis=1) - eta[np.arange(len(y)), y]) + 0.5 * decay * np.sum(
                (W - origin) ** 2
            )
            return loss, np.append(residual.T @ Z + decay * (W - origin), residual.sum(axis=0))

        start = np.append(origin, np.zeros(k))
        x = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000}).x
        return x[: k * Z.shape[1]].reshape(k, -1), x[k * Z.shape[1] :]

    def variance(Z, weight):
        return (weight @ (Z - weight @ Z) ** 2).mean()

    even = np.full(len(y), 1.0 / len(y))
    first = fit(Z, y, even, first_decay * variance(Z, even), np.zeros((k, Z.shape[1])))
    own = softmax(Z_held @ first[0].T + first[1], axis=1)[np.arange(len(y_held)), y_held]
    weight = np.exp(-gamma * own) / np.bincount(y_held)[y_held]
    weight /= weight.sum()
    return fit(Z_held, y_held, weight, decay * variance(Z_held, weight), first[0]), 1.0 / np.sum(weight**2)


def test_afr_solves_its_two_stages(toy):
    # Three classes, whose weights SciPy and AFR both have one line each for.
    y = np.digitize(toy.Z[:, 0] + toy.Z[:, 1] + np.random.default_rng(0).standard_normal(900), [-1.0, 1.0])
    parts = (toy.Z[:600], y[:600], toy.Z[600:], y[600:])
    head = AFR(gamma=3.0, first_penalty=0.05, penalty=0.2, tol=1e-9)
    head.fit(*parts[:2], X_val=parts[2], y_val=parts[3])
    (weights, intercepts), size = afr_by_scipy(*parts, 3.0, 0.05, 0.2)
    assert_allclose(head.coef_, weights, atol=1e-6)
    assert_allclose(head.predict_proba(toy.Z), softmax(toy.Z @ weights.T + intercepts, axis=1), atol=1e-6)
    assert_allclose(head.effective_size_, size, rtol=1e-6)
    for wrong in ((0.0, 0.05, 0.2), (3.0, 0.5, 0.2), (3.0, 0.05, 0.02)):  # control: each parameter counts
        assert np.abs(head.coef_ - afr_by_scipy(*parts, *wrong)[0][0]).max() > 1e-3


def test_afr_stays_at_the_first_model_or_leaves_it(toy):
    held = {"X_val": toy.Z[600:], "y_val": toy.y[600:]}
    first = ERM(tol=1e-8).fit(toy.Z[:600], toy.y[:600])
    near, far = (AFR(penalty=decay, tol=1e-8).fit(toy.Z[:600], toy.y[:600], **held) for decay in (1e6, 1e-4))
    assert_allclose(near.coef_, first.coef_, atol=1e-4)
    assert np.abs(far.coef_ - first.coef_).max() > 0.1
    sizes = [AFR(gamma=gamma, random_state=0).fit(toy.Z, toy.y).effective_size_ for gamma in (0.0, 4.0, 12.0)]
    assert 170 < sizes[0] < 190  # a fifth of the rows
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(InputError, match="a single row has all the weight"):
        AFR(gamma=1e5, random_state=0).fit(toy.Z, toy.y)


def test_the_first_model_of_afr_has_not_seen_copies_of_the_rows_held_out():
    """Wide rows that it has seen are all likely, so that their weights are nearly equal."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=150)
    z = rng.standard_normal((150, 300))
    z[:, 0] += y

    def size(copies, **given):
        z_copied, y_copied = np.repeat(z, copies, axis=0), np.repeat(y, copies)
        heads = [AFR(random_state=seed).fit(z_copied, y_copied, **given) for seed in range(3)]
        return np.mean([head.effective_size_ for head in heads]) / copies

    assert size(5) < 1.3 * size(1)
    assert size(5, clusters=np.arange(750)) > 2 * size(1)  # control: copies on both sides


@pytest.mark.parametrize("n", [50, 400])
def test_penalties_count_directions_that_vary_and_not_columns(n):
    rng = np.random.default_rng(0)
    z, y, concept = rng.normal(size=(n, 100)), np.arange(n) % 2, np.arange(n) // 2 % 2
    turned = z @ np.linalg.qr(rng.normal(size=(100, 100)))[0]
    wider = np.hstack([z, np.full((n, 300), 0.1)])
    for head in (ERM(tol=1e-9), GroupWeighted(tol=1e-9)):
        one, *others = (head.fit(rows, y, concept=concept).decision_function(rows) for rows in (z, turned, wider))
        for other in others:
            assert_allclose(other, one, atol=1e-5)
        more = clone(head).set_params(penalty=0.04).fit(wider, y, concept=concept)
        assert np.abs(more.decision_function(wider) - one).max() > 0.1  # control: four times the penalty


def test_afr_needs_every_class_among_the_rows_held_out(toy):
    y = np.where(np.arange(900) == 7, 2, toy.y)
    with pytest.raises(LabelError, match="Class 2 of y has no row among those held out"):
        AFR(random_state=0).fit(toy.Z, y)


@pytest.mark.parametrize("seed", range(3))
def test_balanced_last_layers_repair_the_worst_group(seed):
    z, y, concept = stretched(1500, 0.95, seed)
    test = stretched(4000, 0.5, seed + 100)
    erm = worst(ERM(penalty=0.3).fit(z, y), *test)
    for head in (
        GroupWeighted(penalty=0.3),
        SUBG(random_state=0, penalty=0.3),
        DFR(random_state=0, penalty=0.3),
    ):
        assert worst(head.fit(z, y, concept=concept), *test) > erm + 0.1
    assert worst(JTT(penalty=0.3).fit(z, y), *test) > erm + 0.05
    assert worst(AFR(first_penalty=0.3, random_state=0).fit(z, y), *test) > erm + 0.05
    fair = stretched(1500, 0.5, seed)  # control: without a spurious correlation there is nothing to repair
    gain = worst(DFR(random_state=0).fit(fair[0], fair[1], concept=fair[2]), *test)
    assert gain < worst(ERM().fit(fair[0], fair[1]), *test) + 0.05


def test_dfr_is_the_mean_of_balanced_fits_of_the_validation_rows(toy):
    n = 500
    val = {"X_val": toy.Z[n:], "y_val": toy.y[n:], "concept_val": toy.concept[n:]}
    one = DFR(n_draws=1, random_state=0).fit(toy.Z[:n], toy.y[:n], concept=toy.concept[:n], **val)
    rng = np.random.default_rng(5)
    elsewhere = DFR(n_draws=1, random_state=0).fit(
        rng.standard_normal((n, 5)), toy.y[:n], concept=toy.concept[:n], **val
    )
    assert_array_equal(one.coef_, elsewhere.coef_)  # X is not trained on when there are validation rows
    counts = np.bincount(groups_of(toy)[n:])
    assert_array_equal(one.group_counts_.ravel(), counts)
    draws = [DFR(n_draws=d, random_state=s) for d in (1, 40) for s in range(6)]
    coef = np.array([h.fit(toy.Z[:n], toy.y[:n], concept=toy.concept[:n], **val).coef_[0] for h in draws])
    assert coef[6:].std(axis=0).mean() < 0.4 * coef[:6].std(axis=0).mean()


def test_dfr_holds_out_a_share_of_every_group(toy):
    head = DFR(validation_fraction=0.25, random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    assert_array_equal(head.group_counts_.ravel(), np.round(0.25 * np.bincount(groups_of(toy))))


def test_a_class_without_held_out_rows_is_an_error(toy):
    only = toy.y == 0
    with pytest.raises(LabelError, match="Class 1 of y has no row among those held out"):
        DFR().fit(
            toy.Z, toy.y, concept=toy.concept, X_val=toy.Z[only], y_val=toy.y[only], concept_val=toy.concept[only]
        )


@pytest.mark.parametrize("head", [DFR(), AFR()])
def test_rows_of_a_cluster_are_held_out_together(head, monkeypatch):
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(40), 10)
    group = (np.arange(40) % 4)[cluster]
    y, concept = group >> 1, group & 1
    Z = rng.normal(size=(400, 4)) + y[:, None]
    held = []
    plain = LabelledData.split

    def watched(rows, share, rng):
        parts = plain(rows, share, rng)
        held.append(parts[1].weight > 0)
        return parts

    monkeypatch.setattr(LabelledData, "split", watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head.set_params(random_state=0).fit(Z, y, concept=concept, clusters=[f"film {c}" for c in cluster])
        head.fit(Z, y, concept=concept)
    together, apart = (np.bincount(cluster[mask], minlength=40) for mask in held)
    assert set(together.tolist()) == {0, 10}
    assert 0 < together.sum() < 400
    assert set(apart.tolist()) != {0, 10}  # the control
