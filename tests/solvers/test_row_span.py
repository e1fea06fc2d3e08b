"""Rows with more features than rows are fitted in the coordinates of their span, with the same result."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

from unspur import INLP, JSE, LEACE, RLACE, SAL, SPLINCE, RobustClassifier
from unspur.exceptions import InputError, NothingRemovedWarning
from unspur.heads import AFR, DFR, ERM, JTT, SUBG, GroupDRO, GroupWeighted
from unspur.solvers import logistic
from unspur.solvers.coordinates import RowSpan
from unspur.subspace import AffineMap, Subspace

REMOVERS = [
    JSE(random_state=0),
    JSE(metric=0, random_state=0),
    JSE(metric=1, random_state=0),
    INLP(random_state=0),
    LEACE(),
    LEACE(balance="group"),
    SAL(),
    SPLINCE(),
    RLACE(),
]
HEADS = [ERM(), GroupWeighted(), SUBG(random_state=0), GroupDRO(), JTT(), DFR(random_state=0), AFR(random_state=0)]


def narrow(n=240, d=12, seed=0):
    """Rows with a task and a concept that travels with it, and more rows than features."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    concept = np.where(rng.random(n) < 0.8, y, 1 - y)
    Z = rng.normal(size=(n, d)) * np.geomspace(2.0, 0.3, d)
    Z[:, 0] += 1.5 * (2 * y - 1)
    Z[:, 1] += 2.0 * (2 * concept - 1)
    return Z, y, concept


class Embedded:
    """An isometry of R^12 into R^600, in which 240 rows are wide."""

    def __init__(self, d=12, wide=600):
        rng = np.random.default_rng(1)
        self.basis = np.linalg.qr(rng.normal(size=(wide, d)))[0]
        self.origin = 3.0 * rng.normal(size=wide)

    def __call__(self, Z):
        return Z @ self.basis.T + self.origin


def name(estimator):
    return repr(estimator)


@pytest.mark.parametrize("remover", REMOVERS, ids=name)
def test_a_removal_of_wide_rows_is_that_of_the_same_rows_in_fewer_features(remover):
    Z, y, concept = narrow()
    new, embedded = narrow(seed=2)[0], Embedded()
    expected = embedded(remover.fit(Z, y, concept=concept).transform(new))
    changed = np.abs(expected - embedded(new)).max()
    got = remover.fit(embedded(Z), y, concept=concept).transform(embedded(new))
    assert changed > 0.5  # a removal that did nothing would pass
    np.testing.assert_allclose(got, expected, atol=1e-6 * changed)
    assert remover.removal_.ambient == remover.n_features_in_ == 600


@pytest.mark.parametrize("head", HEADS, ids=name)
def test_a_head_on_wide_rows_is_that_of_the_same_rows_in_fewer_features(head):
    Z, y, concept = narrow()
    new, embedded = narrow(seed=2)[0], Embedded()
    expected = head.fit(Z, y, concept=concept).decision_function(new)
    got = head.fit(embedded(Z), y, concept=concept).decision_function(embedded(new))
    np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
    assert head.coef_.shape == (1, 600)


@pytest.mark.parametrize("head", [GroupWeighted(), DFR(), JTT(), AFR()], ids=name)
@pytest.mark.parametrize("validated", [False, True])
def test_the_classifier_on_wide_rows_is_that_of_the_same_rows_in_fewer_features(head, validated):
    Z, y, concept = narrow()
    Z_val, y_val, concept_val = narrow(n=200, seed=3)
    new, embedded = narrow(seed=2)[0], Embedded()

    def fit(change):
        validation = {"X_val": change(Z_val), "y_val": y_val, "concept_val": concept_val} if validated else {}
        model = RobustClassifier(head=head, random_state=0)
        return model.fit(change(Z), y, concept=concept, **validation)

    one, other = fit(lambda rows: rows), fit(embedded)
    expected = one.decision_function(new)
    np.testing.assert_allclose(other.decision_function(embedded(new)), expected, atol=1e-3 * np.abs(expected).max())
    assert other.selection_.penalty == one.selection_.penalty
    assert other.head_.n_features_in_ == other.n_features_in_ == 600


def test_components_outside_the_span_of_the_training_rows_stay():
    Z, y, concept = narrow()
    embedded = Embedded()
    outside = np.random.default_rng(4).normal(size=600)
    outside -= embedded.basis @ (embedded.basis.T @ outside)
    remover = JSE(random_state=0).fit(embedded(Z), y, concept=concept)
    moved = remover.transform(embedded(Z[:5]) + outside) - remover.transform(embedded(Z[:5]))
    np.testing.assert_allclose(moved, np.tile(outside, (5, 1)), atol=1e-9)


@pytest.mark.parametrize("fit", ["JSE", "LEACE", "SAL", "INLP", "RLACE", "RobustClassifier", "GroupDRO"])
def test_no_matrix_of_features_by_features_is_formed(fit):
    estimator = {
        "JSE": JSE(max_spurious=1, max_main=1, random_state=0),
        "LEACE": LEACE(),
        "SAL": SAL(),
        "INLP": INLP(max_directions=1, random_state=0),
        "RLACE": RLACE(),
        "RobustClassifier": RobustClassifier(JSE(max_spurious=1, max_main=1, random_state=0), random_state=0),
        "GroupDRO": GroupDRO(),
    }[fit]
    Z, y, concept = narrow(n=240, d=20_000)
    Z = Z.astype(np.float32)
    tracemalloc.start()
    try:
        estimator.fit(Z, y, concept=concept)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000 * 20_000 * 4 / 4, f"{peak / 1e6:.0f} MB"  # a quarter of such a matrix in float32


def test_leace_goes_on_from_a_fit_on_wide_rows():
    Z, y, concept = narrow(n=400)
    wide = Embedded()(Z)
    parts = LEACE().fit(wide[:200], y[:200], concept=concept[:200])
    parts.partial_fit(wide[200:], y[200:], concept=concept[200:])
    merged = LEACE().fit(wide[:200], concept=concept[:200]).merge(LEACE().fit(wide[200:], concept=concept[200:]))
    whole = LEACE().fit(wide, concept=concept)
    alone = LEACE().fit(wide[:200], concept=concept[:200])
    for one in (parts, merged):
        np.testing.assert_allclose(one.transform(wide), whole.transform(wide), atol=1e-8)
    assert np.abs(alone.transform(wide) - whole.transform(wide)).max() > 1e-3


def test_a_map_and_its_restriction_are_inverse_to_each_other():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(30, 100)) + 2.0
    span, (inside,) = RowSpan.of(rows)
    assert span.n_coordinates == 29
    np.testing.assert_allclose(span.lift(inside) + span.centre, rows, atol=1e-12)
    np.testing.assert_allclose(span.coordinates(rows), inside, atol=1e-12)
    subspace = Subspace.spanned_by(rng.normal(size=(29, 3)))
    for small in (AffineMap.removing(subspace, inside[0]), AffineMap.keeping(subspace, inside[0])):
        large = span.lift_map(small)
        np.testing.assert_allclose(span.coordinates(large(rows)), small(inside), atol=1e-10)
        back = span.restrict_map(large)
        np.testing.assert_allclose(back(inside), small(inside), atol=1e-10)
    elsewhere = AffineMap.removing(Subspace.spanned_by(rng.normal(size=(100, 2))), rows[0])
    assert span.restrict_map(elsewhere) is None


def test_rows_that_are_not_wide_all_the_same_or_far_from_zero_stay_as_they_are():
    rng = np.random.default_rng(6)
    narrow, short, far = rng.normal(size=(100, 100)), rng.normal(size=(10, 40)), 1e7 + rng.normal(size=(50, 100))
    for rows in (narrow, short, far, np.zeros((50, 100))):
        span, (same,) = RowSpan.of(rows)
        assert span is None
        assert same is rows


@pytest.mark.parametrize("rounded", ["float32", "float32 as float64", "six decimals"])
def test_rounding_errors_of_rows_of_low_rank_are_no_directions(rounded):
    rng = np.random.default_rng(0)
    y, basis = rng.integers(0, 2, 200), rng.normal(size=(20, 400))
    concept = np.where(rng.random(200) < 0.7, y, 1 - y)
    inside, new = rng.normal(size=(200, 20)), rng.normal(size=(500, 20))
    inside[:, 0] += 3 * y
    inside[:, 1] += 3 * concept
    Z, Z_new = inside @ basis, new @ basis
    if rounded == "six decimals":
        Z, Z_new = Z.round(6), Z_new.round(6)
    else:
        Z, Z_new = (rows.astype(np.float32).astype(rounded.split()[-1]) for rows in (Z, Z_new))
    leace = LEACE().fit(Z, concept=concept)
    assert leace.trace_.rank == 20
    unit = Z.std(axis=0, dtype=np.float64)
    scaled, cross = (Z - Z.mean(axis=0, dtype=np.float64)) / unit, concept - concept.mean()
    left = scaled.T @ cross / 200
    right = np.linalg.pinv(scaled.T @ scaled / 200, rcond=1e-8) @ left
    expected = Z_new - np.outer((Z_new - Z.mean(axis=0, dtype=np.float64)) / unit @ right, left * unit) / (left @ right)
    np.testing.assert_allclose(leace.transform(Z_new), expected, atol=1e-4)
    assert np.abs(expected - Z_new).max() > 1.0
    assert RowSpan.of(Z)[0].n_coordinates == 20


@pytest.mark.parametrize("remover", [LEACE(), SAL(), SPLINCE(), RLACE(), INLP(random_state=0)], ids=name)
def test_rows_that_are_left_out_of_a_fit_of_wide_rows_count_for_nothing(remover):
    Z, y, concept = narrow(n=240)
    Z = np.concatenate([Z, np.random.default_rng(7).normal(size=(240, 388))], axis=1)
    Z[:, 50], Z[:40, 50] = 0.1, 0.7  # constant where rows count
    new = np.random.default_rng(8).normal(size=(50, 400))
    known = concept.astype(float)
    known[:40] = np.nan
    missing = remover.fit(Z, y, concept=known).transform(new)
    Z[:40] *= 1e7
    again = remover.fit(Z, y, concept=known).transform(new)
    alone = remover.fit(Z[40:], y[40:], concept=concept[40:]).transform(new)
    np.testing.assert_allclose(missing, again, atol=1e-6)
    if not isinstance(remover, INLP):  # whose folds are drawn by row
        np.testing.assert_allclose(missing, alone, atol=1e-6)
    assert np.abs(missing - new).max() > 0.05


def test_many_classes_are_solved_in_groups_that_fit_the_memory(monkeypatch):
    rng = np.random.default_rng(0)
    y, concept = np.arange(600) % 6, rng.integers(0, 2, 600)
    Z = rng.normal(size=(600, 8)) + 2.0 * np.eye(8)[y] + concept[:, None]

    def fit():
        return RobustClassifier(LEACE(), random_state=0).fit(Z, y, concept=concept)

    whole = fit()
    calls = []
    original = logistic.minimize_many
    monkeypatch.setattr(logistic, "minimize_many", lambda *given: calls.append(len(given[1])) or original(*given))
    monkeypatch.setattr(logistic, "MAX_DESCENT_BYTES", 100_000)
    parts = fit()
    assert len(calls) > 1
    assert max(calls) < 35
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-6)
    losses = [[loss for _, loss in model.selection_.results] for model in (whole, parts)]
    np.testing.assert_allclose(losses[0], losses[1], atol=1e-5)


@pytest.mark.parametrize("head", [ERM(), GroupWeighted()], ids=name)
def test_large_rows_that_count_for_nothing_hide_no_direction(head):
    Z, y, concept = narrow(n=240)
    Z = np.concatenate([Z, np.random.default_rng(7).normal(size=(240, 388))], axis=1).astype(np.float32)
    weight = np.ones(240)
    weight[:3] = 0.0
    plain = head.fit(Z, y, concept=concept, sample_weight=weight).coef_
    robust = RobustClassifier(random_state=0).fit(Z, y, concept=concept, sample_weight=weight).coef_
    large = Z.copy()
    large[:3] *= 1e6
    unused = {"X_val": large[:20], "y_val": y[:20], "concept_val": concept[:20]}
    for validation in ({}, unused):
        found = head.fit(large, y, concept=concept, sample_weight=weight, **validation).coef_
        np.testing.assert_allclose(found, plain, atol=1e-3 * np.abs(plain).max())
    found = RobustClassifier(random_state=0).fit(large, y, concept=concept, sample_weight=weight).coef_
    np.testing.assert_allclose(found, robust, atol=1e-3 * np.abs(robust).max())


@pytest.mark.parametrize("estimator", [*REMOVERS[:1], LEACE(), RLACE(), ERM(), RobustClassifier()], ids=name)
@pytest.mark.parametrize("value", [0.0, 0.1])
def test_wide_rows_that_are_all_the_same_are_refused_in_words(estimator, value):
    y, concept = np.arange(120) % 2, np.arange(120) // 2 % 2
    with pytest.raises(InputError, match="All rows are the same"):
        estimator.fit(np.full((120, 200), value), y, concept=concept)


@pytest.mark.parametrize("size", [1e153, 1e155, 1e160])
@pytest.mark.parametrize("estimator", [JSE(), RLACE(), SAL(), LEACE(), GroupWeighted()], ids=lambda e: type(e).__name__)
def test_wide_rows_whose_squares_overflow_are_refused_in_words(estimator, size):
    rng = np.random.default_rng(0)
    Z, (y, concept) = rng.normal(size=(120, 300)), rng.integers(2, size=(2, 120))
    if size > 1e153 or type(estimator).__name__ != "LEACE":  # which scales columns first
        with pytest.raises(InputError, match="The covariance of X overflows"):
            estimator.fit(size * Z, y, concept=concept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingRemovedWarning)
        estimator.fit(1e100 * Z, y, concept=concept)  # the control
