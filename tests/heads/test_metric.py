"""Heads whose penalty is in a metric: the same as heads on rows that are transformed by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils._param_validation import InvalidParameterError

import unspur
from tests.heads.test_inference import inferred, partly_known
from unspur import LEACE, RobustClassifier
from unspur._data import decode_fit_arguments, fit_arguments
from unspur.heads import AFR, DFR, ERM, JTT, SUBG, GroupDRO, GroupWeighted
from unspur.heads.base import fit_folds
from unspur.rows import RowLabels, Weighting, rows_of
from unspur.solvers.statistics import Moments

HEADS = [ERM(), ERM(balance="main"), GroupWeighted(), GroupDRO(), SUBG(random_state=0), DFR(random_state=0), JTT()]
HEADS += [AFR(random_state=0)]


def rows(n=600, d=6, k=2, seed=0):
    """Rows of unequal variances and correlated columns; task of k classes, concept, weights."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    concept = np.where(rng.random(n) < 0.8, y % 2, 1 - y % 2)
    z = rng.standard_normal((n, d)) * np.geomspace(4.0, 0.5, d)
    z[:, 0] += 3.0 * concept
    z[:, -1] += y
    z = z @ (np.eye(d) + 0.2 * rng.standard_normal((d, d))) + 5.0
    return z, y, concept, rng.uniform(0.2, 2.0, n)


def root_of(z, kappa, weight=None):
    """M^(−1/2) on the range of the rows, by eigenvectors."""
    values, vectors = np.linalg.eigh(np.cov(z.T, aweights=weight, ddof=0))
    kept = values > 1e-10 * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    return vectors / np.sqrt((1 - kappa) * values.mean() + kappa * values)


def by_scikit_learn(z, y, omega, penalty, root):
    """Weights, on the rows as they come, of a ridge regression of rows x M^(−1/2) with weights omega."""
    omega = omega / omega.sum()
    turned = (z - z.mean(axis=0)) @ root
    decay = penalty * np.trace(np.cov(turned.T, aweights=omega, ddof=0)) / root.shape[1]
    peer = LogisticRegression(C=1.0 / decay, solver="newton-cg", tol=1e-12, max_iter=1000)
    return peer.fit(turned, y, sample_weight=omega).coef_ @ root.T


def balanced(y, concept, weight):
    group = 2 * y + concept
    return weight / np.bincount(group, weights=weight)[group]


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_it_is_scikit_learns_ridge_on_transformed_rows(k, kappa):
    z, y, concept, weight = rows(k=k)
    head = GroupWeighted(metric=kappa, penalty=0.1, tol=1e-9).fit(z, y, concept=concept, sample_weight=weight)
    coef = by_scikit_learn(z, y, balanced(y, concept, weight), 0.1, root_of(z, kappa, weight))
    assert_allclose(head.coef_, coef, atol=1e-6)
    ridge = GroupWeighted(penalty=0.1).fit(z, y, concept=concept, sample_weight=weight)
    assert np.abs(ridge.coef_ - coef).max() > 1e-2
    if k == 2:
        erm = ERM(metric=kappa, penalty=0.1, tol=1e-9).fit(z, y)
        assert_allclose(erm.coef_, by_scikit_learn(z, y, np.ones(len(y)), 0.1, root_of(z, kappa)), atol=1e-6)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_every_head_equals_itself_on_transformed_rows(head):
    z, y, concept, _ = rows()
    held_out = {"concept": concept, "X_val": z, "y_val": y, "concept_val": concept}
    head = clone(head)
    chosen = head.fit(z, y, concept=concept).drawn_ if isinstance(head, SUBG) else slice(None)
    root = root_of(z[chosen], 0.5)
    ours = head.set_params(tol=1e-9).fit(z, y, **held_out).coef_
    head.set_params(metric=0.5)
    found = head.fit(z, y, **held_out).coef_
    wanted = head.set_params(metric=0.0).fit(z @ root, y, **{**held_out, "X_val": z @ root}).coef_ @ root.T
    assert_allclose(found, wanted, atol=1e-5)
    assert np.abs(found - ours).max() > 1e-3


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_linear_maps_change_nothing_at_one_and_scales_never(head):
    z, y, concept, _ = rows()
    turn = np.random.default_rng(1).standard_normal((6, 6)) * np.geomspace(1e-2, 1e2, 6)

    def logits(kappa, z):
        return clone(head).set_params(metric=kappa, tol=1e-9).fit(z, y, concept=concept).decision_function(z)

    assert_allclose(logits(1.0, z @ turn), logits(1.0, z), atol=1e-4)
    assert_allclose(logits(0.5, 1e4 * z), logits(0.5, z), atol=1e-4)
    assert np.abs(logits(0.5, z @ turn) - logits(0.5, z)).max() > 1e-2


@pytest.mark.parametrize("kappa", [0.5, 1.0])
def test_wide_rows_and_constant_columns(kappa):
    z, y, concept, weight = rows(n=60, d=80)
    head = GroupWeighted(metric=kappa, tol=1e-9).fit(z, y, concept=concept, sample_weight=weight)
    coef = by_scikit_learn(z, y, balanced(y, concept, weight), 0.01, root_of(z, kappa, weight))
    assert_allclose(head.coef_, coef, atol=1e-5 * np.abs(coef).max())
    centred = z - z.mean(axis=0)
    assert_allclose(np.linalg.lstsq(centred.T, head.coef_.T)[1], 0.0, atol=1e-12)  # inside the span of the rows
    z, y, concept, weight = rows()
    padded = np.column_stack([z, np.full(len(z), 7.0), z[:, 0]])  # a constant, and a copy
    for head in (GroupWeighted(tol=1e-9), DFR(tol=1e-9, random_state=0), GroupDRO(tol=1e-9)):
        found = head.set_params(metric=kappa).fit(padded, y, concept=concept).coef_
        root = root_of(padded, kappa)
        if not isinstance(head, DFR):
            wanted = head.set_params(metric=0.0).fit(padded @ root, y, concept=concept).coef_ @ root.T
            assert_allclose(found, wanted, atol=1e-5)
        assert_allclose(found[:, 6], 0.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_of_very_different_scale(dtype):
    z, y, concept, _ = rows()
    scaled = z.copy()
    scaled[:, :3] *= 1e5
    for kappa in (0.0, 0.5, 1.0):
        head = GroupWeighted(metric=kappa, penalty=0.1, tol=1e-9).fit(scaled.astype(dtype), y, concept=concept)
        coef = by_scikit_learn(scaled, y, balanced(y, concept, np.ones(600)), 0.1, _unit_root(scaled, kappa))
        assert_allclose(scaled @ head.coef_[0], scaled @ coef[0], atol=1e-3)
    one = np.outer(z[:, -1], np.arange(1.0, 7.0))  # rank one: whatever the metric, ridge
    ends = [GroupWeighted(metric=kappa).fit(one, y, concept=concept).coef_ for kappa in (0.0, 0.5, 1.0)]
    assert_allclose(ends[1:], [ends[0]] * 2, atol=1e-8)


def _unit_root(z, kappa):
    """M^(−1/2) by Cholesky, which loses no digits in small columns."""
    covariance = np.cov(z.T, ddof=0)
    mixed = kappa * covariance + (1 - kappa) * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return np.linalg.inv(np.linalg.cholesky(mixed)).T


def test_rows_elsewhere():
    torch, da = pytest.importorskip("torch"), pytest.importorskip("dask.array")
    z, y, concept, weight = rows(n=900)
    z = z.astype(np.float32)
    tensor = torch.from_numpy(z)
    for head in (GroupWeighted(metric=0.5), GroupDRO(metric=0.5), ERM(metric=1.0)):
        here = head.fit(z, y, concept=concept, sample_weight=weight).coef_
        for elsewhere in (tensor, tensor.double(), da.from_array(z, chunks=(250, -1))):
            there = head.fit(elsewhere, y, concept=concept, sample_weight=weight).coef_
            assert_allclose(there, here, atol=1e-4)
    half = tensor.bfloat16()  # on torch itself
    exact = GroupWeighted(metric=0.5).fit(half.float().numpy(), y, concept=concept).coef_
    assert_allclose(GroupWeighted(metric=0.5).fit(half, y, concept=concept).coef_, exact, atol=1e-4)


def test_many_groups():
    z, y, _, weight = rows()
    concept = np.random.default_rng(2).integers(7, size=len(y))
    head = GroupWeighted(metric=0.5, tol=1e-9).fit(z, y, concept=concept, sample_weight=weight)
    group = 7 * y + concept
    omega = weight / np.bincount(group, weights=weight)[group]
    assert_allclose(head.coef_, by_scikit_learn(z, y, omega, 0.01, root_of(z, 0.5, weight)), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_two_second_moments_of_sorted_rows(dtype):
    """Blocks of rows that lack some groups, and rows of no weight."""
    z, y, concept, weight = rows(n=6000)
    order, weight = np.lexsort((concept, y)), weight * (np.arange(6000) % 3 > 0)
    source = rows_of(z[order].astype(dtype), RowLabels.of(y[order], concept[order], weight[order]))
    totals = np.bincount(2 * y + concept, weights=weight)
    both = Weighting(0.25 / totals), Weighting(np.full(4, 1.0 / weight.sum()))
    for found, weighting in zip(Moments.of_both(source, both), both, strict=True):
        wanted = Moments.of(source, weighting)
        assert_allclose(found.mean, wanted.mean, rtol=1e-12)
        assert_allclose(found.second, wanted.second, rtol=1e-10)


def test_the_covariance_of_inferred_groups_is_that_of_the_rows():
    z, y, concept, _ = rows()
    some = partly_known(200, concept)
    head = GroupWeighted(metric=0.5, unknown="infer", tol=1e-9, random_state=0).fit(z, y, concept=some)
    rows_ = decode_fit_arguments(GroupWeighted(), z, y, some)
    omega = replace(rows_, inferred=inferred(z, y, some).probability).with_inferred_groups().weight
    assert_allclose(head.coef_, by_scikit_learn(z, y, omega, 0.01, root_of(z, 0.5)), atol=1e-5)


@pytest.mark.parametrize("head", [GroupWeighted(metric=0.5), ERM(metric=1.0), GroupDRO(metric=0.5)])
@pytest.mark.parametrize("shape", [(600, 6), (150, 200)])
def test_after_a_removal_it_is_that_of_the_cleaned_rows(head, shape, tmp_path):
    z, y, concept, _ = rows(*shape)
    kept = clone(head).set_params(tol=1e-9)
    model = RobustClassifier(LEACE(), clone(kept), random_state=0).fit(z, y, concept=concept)
    kept.set_params(penalty=model.selection_.penalty)
    after = kept.fit(model.transform(z), y, concept=concept).decision_function(model.transform(z))
    assert_allclose(model.decision_function(z), after, atol=1e-6 * np.abs(after).max())
    control = kept.set_params(metric=0.0).fit(model.transform(z), y, concept=concept)
    assert np.abs(model.decision_function(z) - control.decision_function(model.transform(z))).max() > 1e-5
    model.save(tmp_path / "model.safetensors")
    again = unspur.load(tmp_path / "model.safetensors")
    assert again.head_.metric == again.head.metric == model.head_.metric
    assert_array_equal(again.coef_, model.coef_)


@pytest.mark.parametrize("shape", [(600, 6, 2), (600, 6, 3), (60, 80, 2)])
def test_penalties_and_folds_side_by_side(shape):
    z, y, concept, weight = rows(*shape)
    head, penalties = GroupWeighted(metric=0.5, tol=1e-9), [1.0, 0.01, 1e-4]
    data = head._decoded(clone(head), fit_arguments(z, y, concept, weight, None), {})
    fold = np.arange(len(y)) % 2
    for beside, penalty in zip(fit_folds(head, penalties, data, clone(head), None, 1)[0], penalties, strict=True):
        alone = clone(head).set_params(penalty=penalty).fit(z, y, concept=concept, sample_weight=weight)
        assert_allclose(beside.coef_, alone.coef_, atol=1e-5)
    for k, (without,) in enumerate(fit_folds(head, [0.01], data, clone(head), fold, 2)):
        omega = np.where(fold == k, 0.0, balanced(y, concept, np.where(fold == k, 1e-300, weight)))
        root = root_of(z, 0.5, weight)
        unit = [np.trace(np.cov((z @ root).T, aweights=own, ddof=0)) for own in (balanced(y, concept, weight), omega)]
        wanted = by_scikit_learn(z, y, omega, 0.01 * unit[0] / unit[1], root)  # penalties are in units of all rows
        assert_allclose(without.coef_, wanted, atol=1e-5)


@pytest.mark.parametrize("kappa", [-0.1, 1.1, np.nan, "auto"])
def test_other_metrics_are_refused(kappa):
    z, y, concept, _ = rows(60)
    with pytest.raises(InvalidParameterError, match="metric"):
        GroupWeighted(metric=kappa).fit(z, y, concept=concept)
