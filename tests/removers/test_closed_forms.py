"""LEACE, SAL and SPLINCE: against a peer, against their own equations, and where neighbouring tools fail."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from tests.optional import torch
from tests.probing import quick_probes
from unspur import LEACE, RLACE, SAL, SPLINCE, AffineMap, load
from unspur.exceptions import (
    EverythingRemovedWarning,
    IllConditionedWarning,
    InputError,
    LabelError,
    NothingRemovedWarning,
    TaskLostWarning,
)
from unspur.metrics import leakage
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.statistics import Covariances


def sample(n=600, d=8, classes=2, seed=0, offset=3.0):
    """Rows with correlated features whose class means differ, and an unrelated task of three classes."""
    rng = np.random.default_rng(seed)
    concept, y = rng.integers(classes, size=n), rng.integers(3, size=n)
    z = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + offset
    return z + rng.standard_normal((classes, d))[concept] + 0.7 * rng.standard_normal((3, d))[y], y, concept


def peer(z, columns):
    """The eraser of `concept-erasure`, without the shrinkage and the absolute tolerance it has by default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, which it still uses
        fitter_of = pytest.importorskip("concept_erasure").LeaceFitter
    fitter = fitter_of(
        z.shape[1], columns.shape[1], dtype=torch.float64, shrinkage=False, constrain_cov_trace=False, svd_tol=1e-10
    )
    fitter.update(torch.tensor(z), torch.tensor(columns, dtype=torch.float64))
    return fitter.eraser(torch.tensor(z)).numpy()


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_leace_equals_concept_erasure(classes, seed):
    z, _, concept = sample(classes=classes, seed=seed)
    columns = concept[:, None] if classes == 2 else np.eye(classes)[concept]
    clean = LEACE().fit(z, concept=concept).transform(z)
    assert_allclose(clean, peer(z, columns), atol=1e-8)
    assert np.abs(clean - SAL().fit(z, concept=concept).transform(z)).max() > 1e-3  # another method differs


@pytest.mark.parametrize("classes", [2, 3])
def test_splince_removes_the_concept_and_keeps_the_task_exactly(classes):
    z, y, concept = sample(classes=classes)
    removal = SPLINCE().fit(z, y, concept=concept).removal_.matrix().T  # on columns

    def covariance(labels):
        return np.cov(z.T, np.eye(labels.max() + 1)[labels].T)[: z.shape[1], z.shape[1] :]

    a, b = covariance(concept), covariance(y)
    assert_allclose(removal @ a, 0, atol=1e-10)
    assert_allclose(removal @ b, b, atol=1e-10)
    leace = LEACE().fit(z, concept=concept).removal_.matrix().T
    assert np.abs(leace @ b - b).max() > 1e-3  # LEACE does not keep it


def test_leace_changes_the_rows_least_in_their_own_norm():
    """Any other map that removes the covariance moves rows further, measured by Σ⁻¹."""
    z, _, concept = sample()
    precision = np.linalg.inv(np.cov(z.T))

    def moved(clean):
        change = clean - z
        return np.einsum("ij,jk,ik->i", change, precision, change).mean()

    leace = moved(LEACE().fit(z, concept=concept).transform(z))
    assert leace < 0.999 * moved(SAL().fit(z, concept=concept).transform(z))


@pytest.mark.parametrize("method", [LEACE, SAL, SPLINCE])
def test_integer_codes_of_four_classes_are_four_classes(method):
    z, y, concept = sample(n=2000, classes=4)
    clean = method().fit(z, y, concept=concept).transform(z)
    probe = LogisticRegression(C=1e4, max_iter=2000)
    assert probe.fit(z, concept).score(z, concept) > 0.5
    assert probe.fit(clean, concept).score(clean, concept) < np.bincount(concept).max() / 2000 + 0.01
    as_a_number = method(concept_type="continuous").fit(z, y, concept=concept).transform(z)
    assert probe.fit(as_a_number, concept).score(as_a_number, concept) > 0.4  # one number is not enough


@pytest.mark.parametrize("method", [LEACE, SAL, SPLINCE])
def test_scale_and_rarity_do_not_make_it_the_identity(method):
    z, y, concept = sample(n=3000)
    rare = np.zeros(3000, dtype=int)
    rare[:16] = 1
    for rows, labels in ((z * 0.01, concept), (z * 1e-9, concept), (z + 0.5 * rare[:, None], rare)):
        clean = method().fit(rows, y, concept=labels).transform(rows)
        before, after = (np.abs(np.corrcoef(r.T, labels)[:-1, -1]).max() for r in (rows, clean))
        assert before > 0.01
        assert after < 1e-8


def test_several_concepts_are_removed_together():
    z, _, first = sample(n=2000, classes=3)
    second = np.random.default_rng(1).random(2000) < 0.3
    z = z + np.outer(second, np.linspace(1, -1, 8))
    frame = pd.DataFrame({"kind": np.array(["a", "b", "c"])[first], "flag": second})
    leace = LEACE().fit(z, concept=frame)
    assert leace.concept_classes_ == (("a", "b", "c"), (False, True))
    assert leace.spurious_.dim == 3
    clean = leace.transform(z)
    for labels in (first == 0, first == 1, second):
        assert np.abs(np.cov(clean.T, labels)[:-1, -1]).max() < 1e-12
    one = LEACE().fit(z, concept=first).transform(z)
    assert np.abs(np.cov(one.T, second)[:-1, -1]).max() > 1e-2  # one alone leaves the other
    array = LEACE().fit(z, concept=np.column_stack([first, second])).transform(z)
    assert_allclose(array, clean, atol=1e-10)


def test_numbers_need_to_be_called_numbers():
    z, _, _ = sample()
    age = z[:, 0] + np.random.default_rng(0).standard_normal(600)
    clean = LEACE(concept_type="continuous").fit(z, concept=age).transform(z)
    assert np.abs(np.cov(clean.T, age)[:-1, -1]).max() < 1e-12
    with pytest.raises(LabelError, match="no whole number"):
        LEACE().fit(z, concept=age)
    with pytest.raises(LabelError, match="not a column of numbers"):
        LEACE(concept_type="continuous").fit(z, concept=np.array(["a", "b"])[(age > 0).astype(int)])
    with pytest.raises(LabelError, match="same number"):
        LEACE(concept_type="continuous").fit(z, concept=np.ones(600))


@quick_probes()
def test_splince_needs_the_task_in_the_rows_that_count():
    z, y, concept = sample()
    for given in ({"concept": np.where(y == 1, concept, np.nan)}, {"concept": concept, "sample_weight": y == 1}):
        with pytest.raises(LabelError, match=r"none has y = 0, 2: .*SPLINCE would be LEACE"):
            SPLINCE().fit(z, y, **given)
    with pytest.warns(TaskLostWarning, match="y = 2: information that distinguishes this class is not preserved"):
        splince = SPLINCE().fit(z, y, concept=np.where(y == 2, np.nan, concept))
    assert any("none has y = 2" in note for note in splince.certificate(*sample(seed=1)).notes)


def aged(seed):
    """Rows of which the first column has an age."""
    rng = np.random.default_rng(seed)
    age, z = rng.normal(45, 12, 500), rng.standard_normal((500, 20))
    z[:, 0] += age / 12
    return z, age


def test_partial_fit_and_merge_equal_one_fit(tmp_path):
    z, _, concept = sample(n=900, classes=3)
    weight = np.random.default_rng(0).random(900) * 7
    whole = LEACE().fit(z, concept=concept, sample_weight=weight).removal_.matrix()
    parts = [slice(0, 100), slice(100, 450), slice(450, 900)]
    step = LEACE()
    for part in parts:
        step.partial_fit(z[part], concept=concept[part], sample_weight=weight[part], concept_classes=(0, 1, 2))
    assert_allclose(step.removal_.matrix(), whole, atol=1e-9)
    first, *others = (LEACE().partial_fit(z[p], concept=concept[p], sample_weight=weight[p]) for p in parts)
    for other in others:
        first = first.merge(other)
    assert_allclose(first.removal_.matrix(), whole, atol=1e-9)
    assert np.abs(others[0].removal_.matrix() - whole).max() > 1e-3
    started = LEACE().fit(z[:450], concept=concept[:450], sample_weight=weight[:450])
    started.partial_fit(z[450:], concept=concept[450:], sample_weight=weight[450:])
    assert_allclose(started.removal_.matrix(), whole, atol=1e-9)  # it goes on from a fit, and a fit starts anew
    assert_allclose(step.fit(z, concept=concept, sample_weight=weight).removal_.matrix(), whole, atol=1e-9)
    step.save(tmp_path / "leace.safetensors")
    for call in (lambda e: e.merge(first), lambda e: e.partial_fit(z, concept=concept)):
        with pytest.raises(ValueError, match="from a file"):
            call(load(tmp_path / "leace.safetensors"))
    with pytest.raises(InputError, match="only balance='none'"):
        LEACE(balance="concept").partial_fit(z, concept=concept)
    early = LEACE().partial_fit(z[:300], concept=np.minimum(concept[:300], 1))
    with pytest.raises(LabelError, match="do not have"):
        early.partial_fit(z[300:], concept=concept[300:])


def labelled(seed, order=("sex", "smoker")):
    """Rows as a frame, with two concepts by name."""
    rng = np.random.default_rng(seed)
    sex, smoker = rng.integers(2, size=(2, 800))
    z = rng.standard_normal((800, 5))
    z[:, 0] += 2 * sex
    z[:, 1] += 2 * smoker
    return pd.DataFrame(z, columns=list("abcde")), pd.DataFrame({"sex": sex, "smoker": smoker})[list(order)]


def test_partial_fit_matches_concepts_by_name():
    (first, one), (second, two) = labelled(0), labelled(1)
    whole = LEACE().fit(pd.concat([first, second]), concept=pd.concat([one, two])).removal_.matrix()
    leace = LEACE().partial_fit(first, concept=one).partial_fit(second, concept=two[["smoker", "sex"]])
    assert_allclose(leace.removal_.matrix(), whole, atol=1e-9)
    plain = LEACE().partial_fit(first, concept=one).partial_fit(second, concept=two[["smoker", "sex"]].to_numpy())
    assert np.abs(plain.removal_.matrix() - whole).max() > 0.1  # the control: arrays go by their order
    with pytest.raises(LabelError, match="columns sex, age and that of earlier rows sex, smoker"):
        leace.partial_fit(second, concept=two.rename(columns={"smoker": "age"}))
    with pytest.raises(LabelError, match="columns smoker and that of earlier rows sex"):
        LEACE().partial_fit(first, concept=one.sex).partial_fit(second, concept=two.smoker)
    with pytest.raises(LabelError, match="columns concept and that of earlier rows sex, smoker"):
        leace.partial_fit(second, concept=two.sex)
    LEACE().partial_fit(first, concept=one.sex).partial_fit(second, concept=two.sex.to_numpy())


def test_merge_refuses_other_concepts_other_features_and_balanced_fits():
    (first, one), (second, two) = labelled(0), labelled(1)
    whole = LEACE().fit(pd.concat([first, second]), concept=pd.concat([one, two])).removal_.matrix()

    def fit(rows, concept, **options):
        return LEACE(**options).fit(rows, concept=concept)

    both = fit(first, one)
    for same in (fit(second, two), fit(second.to_numpy(), two.to_numpy())):  # the control
        assert_allclose(both.merge(same).removal_.matrix(), whole, atol=1e-9)
    for other, message in (
        (fit(second, two[["smoker", "sex"]]), "concepts: sex, smoker and smoker, sex"),
        (fit(second[list("edcba")], two), "different features, or on the same in another order"),
        (fit(second, two, balance="concept"), "only balance='none'; got 'concept'"),
    ):
        with pytest.raises(InputError, match=message):
            both.merge(other)
    with pytest.raises(InputError, match="concepts: sex and smoker"):
        fit(first, one.sex).merge(fit(second, two.smoker))


@pytest.mark.parametrize("balance", ["concept", "group"])
def test_a_number_has_no_classes_to_balance(balance):
    z, y, _ = sample(n=60)
    for method in (LEACE, SAL, SPLINCE):
        with pytest.raises(InputError, match=f"balance='{balance}' gives classes of the concept equal weight, and the"):
            method(balance=balance, concept_type="continuous").fit(z, y, concept=z[:, 0])
        method(balance="main", concept_type="continuous").fit(z, y, concept=z[:, 0])


def test_flat_rows_and_fewer_rows_than_features_work():
    z, y, concept = sample(n=600)
    wide = np.column_stack([z, z[:, :3] * 2, np.ones((600, 2))])
    few = np.random.default_rng(0).standard_normal((40, 100)) + concept[:40, None]
    for rows, labels, task in ((wide, concept, y), (few, concept[:40], y[:40])):
        for method in (LEACE, SAL):
            clean = method().fit(rows, task, concept=labels).transform(rows)
            assert np.abs(np.cov(clean.T, labels)[:-1, -1]).max() < 1e-9
            assert np.all(np.isfinite(clean))


def test_a_task_that_is_nearly_the_concept_warns_with_the_condition_and_one_that_is_it_fails():
    rng = np.random.default_rng(0)
    concept = rng.integers(2, size=5000)
    y = np.where(rng.random(5000) < 0.9, concept, 1 - concept)
    z = rng.standard_normal((5000, 4))
    z[:, 0] += concept
    z[:, 1] += 0.01 * y
    with pytest.warns(IllConditionedWarning, match="condition number"):
        SPLINCE().fit(z, np.where(rng.random(5000) < 0.999, concept, 1 - concept), concept=concept)
    with pytest.raises(InputError, match="share a direction"):
        SPLINCE().fit(z[:, :1] * [1.0, 2.0], y, concept=concept)
    with pytest.raises(LabelError, match="requires y"):
        SPLINCE().fit(z, concept=concept)


def test_dropped_directions_are_in_the_trace():
    z, _, concept = sample()
    twice = LEACE().fit(z, concept=np.column_stack([concept, concept]))
    assert len(twice.trace_.dropped) == 1
    assert "dropped" in str(twice.trace_)
    once = LEACE().fit(z, concept=concept)
    assert once.trace_.dropped == ()
    assert_allclose(twice.removal_.matrix(), once.removal_.matrix(), atol=1e-9)
    assert isinstance(once.removal_, AffineMap)


@pytest.mark.parametrize("method", [LEACE, SAL, RLACE])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_gone_is_not_removed_again(method, dtype):
    """Rounding error points somewhere; it must not be taken for a direction."""
    z, _, concept = sample(n=3000)
    clean = LEACE().fit(z, concept=concept).transform(z).astype(dtype)
    with pytest.warns(NothingRemovedWarning, match="no covariance|equal"):
        again = method().fit(clean, concept=concept)
    np.testing.assert_array_equal(again.transform(clean), clean)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_concept_in_a_small_feature_is_found_beside_large_and_dependent_ones(dtype):
    rng = np.random.default_rng(0)
    concept = rng.integers(2, size=4000)
    big = 1000 * rng.standard_normal(4000)
    small = rng.standard_normal(4000)
    z = np.column_stack([big, small, small + 2 * concept, big]).astype(dtype)  # the last is a copy of the first
    wide = (rng.standard_normal((4000, 60)) * np.geomspace(1e4, 1, 60)).astype(dtype)
    wide[:, -1] += concept
    for rows in (z, wide):
        clean = LEACE().fit(rows, concept=concept).transform(rows).astype(np.float64)
        before, after = (np.abs(np.corrcoef(r.T, concept)[:-1, -1]).max() for r in (rows.astype(np.float64), clean))
        assert before > 0.3
        assert after < 1e-3


def with_dead_columns(z, concept, dead, size):
    """The rows with columns that have died down to this size, as units of a network do, but are not constant."""
    rows = z - z.mean(axis=0)
    noise = np.random.default_rng(1).standard_normal((len(z), int(dead.sum()))) + 0.3 * concept[:, None]
    rows[:, dead] = size * noise
    return rows


@pytest.mark.parametrize("method", [LEACE, SPLINCE])
@pytest.mark.parametrize(("n", "d"), [(600, 20), (50, 60), (200, 300)])
@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_that_have_died_are_left_alone(method, n, d, share, dtype):
    z, y, concept = sample(n=n, d=d)
    dead = np.arange(d) < share * d
    rows = with_dead_columns(z, concept, dead, 1e-33).astype(dtype)
    remover = method().fit(rows, y, concept=concept)
    clean = remover.transform(rows)
    assert_allclose(clean[:, dead], rows[:, dead], rtol=1e-12)
    live, mean, scale = ~dead, rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)

    def covariance(columns, label):
        return (((label - label.mean()) @ (columns - mean)) / scale / n)[live]

    assert np.abs(covariance(clean, concept)).max() < 1e-5 < 0.1 < np.abs(covariance(rows, concept)).max()
    rounded = rows.copy()
    rounded[:, dead] = 1.0  # a unit that comes to life
    assert_allclose(remover.transform(rounded)[:, live], clean[:, live], atol=1e-12)


@pytest.mark.parametrize("constant", [0.1, 1 / 3, -7e-5, 1.7e18])
@pytest.mark.parametrize("n", [7, 100_003])
def test_a_column_of_equal_numbers_is_constant_whatever_its_sums_are(n, constant):
    rng = np.random.default_rng(0)
    z = np.column_stack([np.full(n, constant), rng.standard_normal(n)])
    columns = RowLabels(np.zeros((1, n)), np.zeros(n, dtype=np.intp), rng.random(n), 0)
    parts = [Covariances.of(MemoryRows(rows, columns)) for rows in (z, z[::-1])]
    for moments in (*parts, parts[0].merge(parts[1])):
        assert moments.live.tolist() == [False, True]
        assert moments.mean_x[0] == constant


@pytest.mark.parametrize("constant", [0.0, 1e6 / 3.0])
@pytest.mark.parametrize("method", [LEACE, SAL, SPLINCE])
def test_nothing_is_written_into_a_constant_column_however_small_the_others_are(method, constant):
    z, y, concept = sample(n=300)
    z[:, 3] = constant
    small = z * np.where(np.arange(8) == 3, 1.0, 1e-14)
    one, other = method().fit(z, y, concept=concept), method().fit(small, y, concept=concept)
    assert one.trace_.rank == other.trace_.rank == 7
    np.testing.assert_array_equal(other.transform(small)[:, 3], small[:, 3])
    live = np.arange(8) != 3
    assert_allclose(other.removal_.matrix()[live][:, live], one.removal_.matrix()[live][:, live], atol=1e-9)
    assert np.abs(one.transform(z) - z)[:, live].max() > 0.1  # control: the others are changed


def test_many_whole_numbers_may_be_ages_or_classes_and_are_asked_about():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 88, size=2000)
    z = rng.standard_normal((2000, 32)) + np.outer(age / 20, np.eye(32)[0])
    for method in (LEACE, SAL, RLACE):
        with pytest.raises(LabelError, match=r"70 distinct whole numbers between 18 and 87.*concept_type='continuous'"):
            method().fit(z, concept=age)
    assert LEACE(concept_type="continuous").fit(z, concept=age).removal_.rank == 31
    with pytest.warns(EverythingRemovedWarning, match="takes all directions.*nothing is left"):
        assert LEACE(concept_type="class").fit(z, concept=age).removal_.rank == 0
    with pytest.raises(LabelError, match=r"15 distinct whole numbers.*4 rows each"):
        LEACE().fit(z[:60], concept=np.arange(60) % 15)
    for few in (age % 20, np.array(list("abcdefghijklmnopqrstuvwxy"))[age % 25], (age % 15).astype(float)):  # controls
        assert LEACE().fit(z, concept=few).spurious_.dim == len(np.unique(few)) - 1
    known = tuple(range(18, 88))
    with pytest.warns(EverythingRemovedWarning):
        LEACE().partial_fit(z, concept=age, concept_classes=known)  # who names them means classes


def test_a_removal_of_nearly_everything_is_said():
    z, _, concept = sample(n=2000, d=10, classes=10)
    with pytest.warns(EverythingRemovedWarning, match="takes 9 of the 10 directions.*hardly anything"):
        LEACE().fit(z, concept=concept)
    with pytest.warns(EverythingRemovedWarning, match="all directions"):
        SAL().fit(z[:, :1], concept=concept == 1)
    assert LEACE().fit(z, concept=concept % 9).spurious_.dim == 8  # control


@pytest.mark.parametrize("method", [LEACE, SAL, RLACE])
def test_a_removal_of_all_dimensions_leaves_no_digit_of_the_rows(tmp_path, method):
    z, y, concept = sample(n=600, d=3, classes=5, offset=0.0)
    z -= z.mean(axis=0)  # rounding errors are as large as the mean then
    with pytest.warns(EverythingRemovedWarning):
        fitted = method().fit(z, concept=concept)
    assert leakage(z, concept, random_state=0).low > 0.25  # control
    fitted.save(tmp_path / "all.safetensors")
    for one in (fitted, load(tmp_path / "all.safetensors")):
        for rows in (z, 10.0 * z, torch.tensor(z), z.astype(np.float32)):
            clean = np.asarray(one.transform(rows))
            assert np.array_equal(clean, np.broadcast_to(clean[:1], clean.shape))
    with pytest.warns(EverythingRemovedWarning):
        half = method().fit(z[::2], concept=concept[::2])
    found = half.certificate(z[1::2], y[1::2], concept[1::2])
    assert found.rank == 0
    assert found.probe["concept"][1].p > 0.05


@pytest.mark.parametrize("method", [LEACE, SAL, SPLINCE, RLACE])
def test_a_concept_that_is_the_task_is_refused_under_any_name(method):
    z, y, concept = sample()
    other = np.array(["c", "a", "b"])[y]
    both = np.column_stack([concept, 2 - y])
    for same in (y, other, pd.Series(other, dtype="category"), np.where(np.arange(600) < 9, None, other), both):
        with pytest.raises(LabelError, match=r"and y are the same label in all (600|591) rows"):
            method().fit(z, y, concept=same)
    nearly = y.copy()
    nearly[5] = (y[5] + 1) % 3
    weight = np.where(np.arange(600) == 5, 0.0, 1.0)
    with pytest.raises(LabelError, match="in all 599 rows"):
        method().fit(z, y, concept=nearly, sample_weight=weight)
    apart = np.where(np.arange(600) % 5, y, concept)
    assert method().fit(z, y, concept=apart).spurious_.dim == 2  # control
    if method is LEACE:
        assert LEACE().fit(z, z[:, 0], concept=y).spurious_.dim == 2  # a task it does not need may be anything
        assert LEACE().partial_fit(z[:4], y[:4], concept=y[:4]).spurious_.dim  # some rows prove nothing


def test_a_number_may_be_the_same_in_all_rows_of_a_batch():
    rng = np.random.default_rng(0)
    number = 0.1 * np.sort(rng.integers(0, 6, 600))
    Z = rng.normal(size=(600, 4))
    Z[:, 1] += 10 * number
    wanted = LEACE(concept_type="continuous").fit(Z, concept=number).transform(Z)
    parts = LEACE(concept_type="continuous")
    with pytest.warns(NothingRemovedWarning):  # so far the number is 0 in all rows
        parts.partial_fit(Z[:60], concept=number[:60])
    batches = np.split(np.arange(60, 600), [90, *range(130, 540, 40)])
    assert sum(np.ptp(number[rows]) == 0 for rows in batches) > 3
    for rows in batches:
        parts.partial_fit(Z[rows], concept=number[rows])
    assert_allclose(parts.transform(Z), wanted, atol=1e-9)
    one_by_one = LEACE(concept_type="continuous").partial_fit(Z[:599], concept=number[:599])
    assert_allclose(one_by_one.partial_fit(Z[599:], concept=number[599:]).transform(Z), wanted, atol=1e-9)
    same = np.full(600, 0.1)
    with pytest.warns(NothingRemovedWarning):
        LEACE(concept_type="continuous").partial_fit(Z, concept=same)
    with pytest.raises(LabelError, match="same number in all rows"):  # the control: these are all rows
        LEACE(concept_type="continuous").fit(Z, concept=same)
