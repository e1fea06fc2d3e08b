"""Rows that belong together: folds, tests, copies, splitters, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold

from tests.optional import torch
from unspur import INLP, JSE, LEACE, load
from unspur.clusters import cluster_codes, folds_by_cluster, split_clusters
from unspur.compare import shared_rows
from unspur.criteria import DirectionTests
from unspur.exceptions import ClusterWarning, GroupSizeError, InputError, UsedRowsWarning
from unspur.metrics import leakage
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.held_out_losses import HeldOutClusters, average_error
from unspur.solvers.statistics import CellCounts


def draw(rng, n_clusters, size, *, correlation=0.9, concept=0.0, d=6, constant=True):
    """Rows of `n_clusters` clusters: the task on the first axis, the concept on the second, if at all."""
    cluster = np.repeat(np.arange(n_clusters), size)
    n = len(cluster)
    group = (rng.permutation(n_clusters) % 4)[cluster] if constant else rng.integers(4, size=n)
    y, s = group >> 1, group & 1
    Z = np.sqrt(correlation) * rng.normal(size=(n_clusters, d))[cluster]
    Z += np.sqrt(1 - correlation) * rng.normal(size=(n, d))
    Z[:, 0] += 0.5 * (2 * y - 1)
    Z[:, 1] += concept * (2 * s - 1)
    return Z, y, s, cluster


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_a_concept_that_is_not_there_is_found_in_clustered_rows_only_without_clusters():
    found = {True: 0, False: 0}
    for seed in range(5):
        Z, y, s, cluster = draw(np.random.default_rng(seed), 80, 10)
        for told in found:
            jse = JSE(random_state=0, penalty=0.1, max_spurious=1)
            found[told] += jse.fit(Z, y, concept=s, clusters=cluster if told else None).spurious_.dim
    assert found[False] >= 4  # the control: the level is lost
    assert found[True] == 0


def test_a_concept_that_is_there_is_found_in_clustered_rows(rng):
    Z, y, s, cluster = draw(rng, 20, 10, correlation=0.3, concept=1.5)
    jse = JSE(random_state=0, penalty=0.1).fit(Z, y, concept=s, clusters=cluster)
    assert jse.spurious_.dim
    assert abs(jse.spurious_.basis[1, 0]) > 0.8


@pytest.mark.parametrize("constant", [True, False])
def test_folds_hold_whole_clusters_and_about_the_same_share_of_every_group(constant, rng):
    _, y, s, cluster = draw(rng, 60, 10, constant=constant)
    cluster = np.random.default_rng(1).permutation(300)[cluster]
    group = 2 * y + s
    code = cluster_codes(cluster, "clusters", len(cluster))
    for shares in (np.full(5, 0.2), np.array([0.2, 0.8])):
        fold = folds_by_cluster(code, group, shares, np.random.default_rng(0))
        assert not len(split_clusters(code, fold))
        for k, share in enumerate(shares):
            part = np.bincount(group[fold == k], minlength=4) / np.bincount(group)
            assert_allclose(part, share, atol=0.07)
        assert np.array_equal(fold, folds_by_cluster(code, group, shares, np.random.default_rng(0)))
        assert not np.array_equal(fold, folds_by_cluster(code, group, shares, np.random.default_rng(1)))


def test_clusters_of_one_row_give_the_tests_of_independent_rows(rng):
    Z, y, s, _ = draw(rng, 400, 1, correlation=0.0)
    columns = RowLabels.of(y, s, fold=1 + np.arange(400) % 3)
    rows, directions, centre = MemoryRows(Z, columns), rng.normal(size=(3, 6)), np.zeros(6)
    single = HeldOutClusters.of(np.arange(400), columns.cell, columns.weight, by_group=True)
    plain, clustered = (
        tests.test("spurious", tests.losses(rows, CellCounts.of(rows), directions, centre))
        for tests in (DirectionTests(), DirectionTests(clusters=single))
    )
    assert_allclose(clustered.losses, plain.losses, rtol=1e-10)
    for one, other in ((clustered.specific, plain.specific), (clustered.informative, plain.informative)):
        assert_allclose([one.t, one.df], [other.t, other.df], rtol=1e-6)


def test_copies_add_nothing_to_a_test(rng):
    Z, y, s, _ = draw(rng, 200, 1, correlation=0.0)
    verdicts = []
    for times in (1, 3):
        cluster = np.repeat(np.arange(200), times)
        columns = RowLabels.of(y[cluster], s[cluster], fold=np.ones(200 * times, dtype=int))
        rows = MemoryRows(Z[cluster], columns)
        tests = DirectionTests(clusters=HeldOutClusters.of(cluster, columns.cell, columns.weight, by_group=True))
        verdicts.append(tests.test("main", tests.losses(rows, CellCounts.of(rows), np.eye(6)[:1], np.zeros(6))))
    once, thrice = verdicts
    assert_allclose([thrice.specific.t, thrice.specific.df], [once.specific.t, once.specific.df], rtol=1e-3)


def test_the_error_of_an_average_is_that_of_leaving_clusters_out(rng):
    """Of groups that share clusters of different sizes, against the jackknife."""
    size = rng.integers(2, 30, 200)
    cluster = np.repeat(np.arange(200), size)
    group = rng.integers(4, size=len(cluster))
    values = rng.normal(size=200)[cluster] + rng.normal(size=len(cluster)) + group
    clusters = HeldOutClusters.of(cluster, 4 + group, np.ones(len(cluster)), by_group=True)

    def average(kept):
        return np.mean([values[kept & (group == g)].mean() for g in range(4)])

    left_out = np.array([average(cluster != c) for c in range(200)])
    error, degrees = average_error(values, clusters)
    assert_allclose(error, np.sqrt(199 / 200 * np.sum((left_out - left_out.mean()) ** 2)), rtol=0.02)
    assert 50 < degrees < 200
    naive, _ = average_error(
        values, HeldOutClusters.of(np.arange(len(cluster)), 4 + group, np.ones(len(cluster)), by_group=True)
    )
    assert error > 2 * naive  # the control: as independent rows


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_copies_are_kept_together_with_a_warning(rng):
    Z, y, s, _ = draw(rng, 250, 1, correlation=0.0, d=60)
    twice = np.repeat(np.arange(250), 2)
    jse = JSE(random_state=0, penalty=0.1)
    with pytest.warns(ClusterWarning, match="250 of 500 training rows are exact duplicates of others") as told:
        jse.fit(Z[twice], y[twice], concept=s[twice])
    assert [w.filename for w in told if w.category is ClusterWarning] == [__file__]  # the line that called `fit`
    assert not jse.spurious_.dim
    assert jse.fit(Z[twice], y[twice], concept=s[twice], clusters=np.arange(500)).spurious_.dim  # the control
    with (
        pytest.warns(ClusterWarning, match="cv puts duplicates of .* rows into different test sets"),
        pytest.warns(ClusterWarning, match="exact duplicates"),
    ):
        JSE(random_state=0, cv=StratifiedKFold(), penalty=0.1).fit(Z[twice], y[twice], concept=s[twice])


def sorted_table(rng):
    """Equal rows first, as a table sorted by text has them where texts are empty; then 200 rows, three times each."""
    copied = np.repeat(np.arange(200), 3)
    Z, y, s, _ = draw(rng, 200, 1, correlation=0.0, d=30)
    empty = rng.integers(2, size=(2, 2000))
    return np.vstack([np.zeros((2000, 30)), Z[copied]]), np.append(empty[0], y[copied]), np.append(empty[1], s[copied])


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@pytest.mark.parametrize("kind", ["memory", "torch", "dask"])
def test_copies_are_found_in_a_table_whose_first_rows_are_equal(kind, rng):
    Z, y, s = sorted_table(rng)
    if kind == "torch":
        Z = torch.from_numpy(Z)
    elif kind == "dask":
        Z = pytest.importorskip("dask.array").from_array(Z, chunks=(500, 30))
    with pytest.warns(ClusterWarning, match="400 of 2,600 training rows are exact duplicates"):
        JSE(random_state=0, penalty=0.1).fit(Z, y, concept=s)


def test_copies_do_not_depend_on_the_order_of_the_rows(rng):
    Z, _, s = sorted_table(rng)
    mixed = rng.permutation(len(Z))
    for order in (np.arange(len(Z)), mixed):
        assert any("400 of 2,600 rows of X are duplicates" in note for note in leakage(Z[order], s[order]).notes)
        assert ("test", "training") in shared_rows(Z, Z[order])
    leace = LEACE().fit(Z[mixed], concept=s[mixed])
    with pytest.warns(UsedRowsWarning, match="2,600 of the 2,600"):
        assert any(
            "400 of the 2,600 rows measured are duplicates" in note for note in leace.certificate(Z, concept=s).notes
        )


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_rows_of_a_few_small_numbers_are_equal_by_chance(rng):
    Z = rng.integers(2, size=(400, 4)).astype(float)
    y, s = rng.integers(2, size=(2, 400))
    JSE(random_state=0, penalty=0.1).fit(Z, y, concept=s)  # warnings are errors here


def test_rows_of_the_validation_set_that_are_training_rows_are_noticed(rng, tmp_path):
    Z, y, s, _ = draw(rng, 800, 1, correlation=0.0, concept=1.0)
    jse = JSE(random_state=0, penalty=0.1)
    with pytest.warns(UsedRowsWarning, match="100 validation rows are training rows as well"):
        jse.fit(Z[:500], y[:500], concept=s[:500], X_val=Z[400:], y_val=y[400:], concept_val=s[400:])
    assert "tested on 100 validation rows that are training rows as well" in str(jse.trace_)
    jse.save(tmp_path / "jse.safetensors")
    fresh = draw(rng, 400, 1, correlation=0.0, concept=1.0)
    for remover in (jse, load(tmp_path / "jse.safetensors")):
        assert any(note.startswith("100 validation rows") for note in remover.certificate(*fresh[:3]).notes)


def test_clusters_of_training_and_validation_rows(rng):
    Z, y, s, cluster = draw(rng, 80, 10, concept=2.0, correlation=0.3)
    first, second = cluster < 40, cluster >= 40
    given = {"X_val": Z[second], "y_val": y[second], "concept_val": s[second]}
    jse = JSE(random_state=0, penalty=0.1)
    jse.fit(Z[first], y[first], concept=s[first], clusters=cluster[first], clusters_val=cluster[second], **given)
    assert jse.spurious_.dim
    assert max(step.verdict.specific.df for step in jse.trace_.steps) < 40  # clusters, not rows
    with pytest.raises(InputError, match="clusters_val was not"):
        jse.fit(Z[first], y[first], concept=s[first], clusters=cluster[first], **given)
    with pytest.raises(
        InputError, match="40 clusters are among the training rows and among the validation rows, such as 0"
    ):
        jse.fit(
            Z[first], y[first], concept=s[first], clusters=cluster[first], clusters_val=cluster[second] - 40, **given
        )


def test_splitters_by_cluster_and_generators(rng):
    Z, y, s, cluster = draw(rng, 60, 10, concept=2.0, correlation=0.3)
    options = {"random_state": 0, "penalty": 0.1}
    for cv in (GroupKFold(5), StratifiedGroupKFold(5), (split for split in GroupKFold(3).split(Z, y, cluster))):
        assert JSE(cv=cv, **options).fit(Z, y, concept=s, clusters=cluster).spurious_.dim
        several = np.stack([s, np.random.default_rng(1).permutation(s)], axis=1)
    lasting = (split for split in GroupKFold(3).split(Z, y, cluster))
    assert JSE(cv=lasting, **options).fit(Z, y, concept=several, clusters=cluster).spurious_.dim  # used twice
    with pytest.raises(InputError, match=r"GroupKFold cannot split these rows.*Pass clusters"):
        JSE(cv=GroupKFold(5), **options).fit(Z, y, concept=s)
    torn = list(StratifiedKFold(shuffle=True, random_state=0).split(Z, y))
    with pytest.raises(InputError, match="60 clusters have rows in more than one test set"):
        JSE(cv=torn, **options).fit(Z, y, concept=s, clusters=cluster)


def test_too_few_clusters_are_refused_in_words(rng):
    Z, y, s, cluster = draw(rng, 20, 30)
    with pytest.raises(GroupSizeError, match=r"\(y=0, concept=0\) lies in 1, .*clusters.*at least 2 in each.*cv 5"):
        JSE(cv=0.2, random_state=0).fit(Z, y, concept=s, clusters=cluster)
    with pytest.raises(GroupSizeError, match="they lie in 1 clusters"):
        INLP(random_state=0).fit(Z, y, concept=s, clusters=0 * cluster)
    Z, y, s, cluster = draw(rng, 12, 30, concept=2.0)
    with pytest.warns(ClusterWarning, match="lies in 3 clusters, fewer than the 5 folds"):
        JSE(random_state=0, penalty=0.1, max_spurious=0).fit(Z, y, concept=s, clusters=cluster)


def test_a_number_of_clusters_that_is_too_small_is_not_rounded_up(rng):
    Z, y, s, cluster = draw(rng, 8, 30)
    with pytest.raises(GroupSizeError, match=r"lies in 1\.9 .* at least 2"):
        JSE(random_state=0).fit(Z[1:], y[1:], concept=s[1:], clusters=cluster[1:])


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_inlp_takes_clusters(rng):
    Z, _, s, cluster = draw(rng, 80, 10)
    told, untold = (INLP(random_state=0, penalty=0.1).fit(Z, concept=s, clusters=c) for c in (cluster, None))
    assert told.spurious_.dim == 0 < untold.spurious_.dim


def test_weights_of_rows_count_in_clusters(rng):
    """A row of weight two is a row twice in the same cluster."""
    Z, y, s, cluster = draw(rng, 60, 6, constant=False)
    weight = rng.integers(1, 3, len(y))
    longer = np.repeat(np.arange(len(y)), weight)
    verdicts = []
    for rows, w in ((np.arange(len(y)), weight.astype(float)), (longer, np.ones(len(longer)))):
        columns = RowLabels.of(y[rows], s[rows], w, np.ones(len(rows), dtype=int))
        source = MemoryRows(Z[rows], columns)
        tests = DirectionTests(clusters=HeldOutClusters.of(cluster[rows], columns.cell, columns.weight, by_group=True))
        verdicts.append(tests.test("main", tests.losses(source, CellCounts.of(source), np.eye(6)[:1], np.zeros(6))))
    assert_allclose(verdicts[0].specific.t, verdicts[1].specific.t, rtol=1e-5)
    assert_allclose(verdicts[0].specific.df, verdicts[1].specific.df, rtol=1e-6)


def test_every_row_source_gives_the_same_trace(rng, tmp_path):
    da = pytest.importorskip("dask.array")
    Z, y, s, cluster = draw(rng, 40, 10, concept=1.5, correlation=0.3)
    np.save(tmp_path / "z.npy", Z)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    chunks = da.from_array(Z, chunks=(130, 6))
    jse = JSE(random_state=0, penalty=0.1)
    expected = [step.verdict.specific.t for step in jse.fit(Z, y, concept=s, clusters=cluster).trace_.steps]
    for rows in (mapped, chunks, torch.from_numpy(Z).to(torch.float64)):
        found = [step.verdict.specific.t for step in jse.fit(rows, y, concept=s, clusters=cluster).trace_.steps]
        assert_allclose(found, expected, rtol=1e-5)


def test_equal_rows_with_other_labels_are_no_copies(rng):
    """What an encoder makes of things it cannot see: as one cluster they would outweigh all other rows."""
    Z, y, s, _ = draw(rng, 300, 1, correlation=0.0, concept=2.0, constant=False)
    Z[: len(y) // 5] = 0.0
    assert JSE(random_state=0, penalty=0.1).fit(Z, y, concept=s).spurious_.dim == 1  # warnings are errors here
