"""Leakage: nothing where there is nothing, something where there is something, and a test that holds its size."""

import json
from importlib import import_module

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from threadpoolctl import threadpool_limits

from unspur import AffineMap, Subspace
from unspur.exceptions import GroupSizeError, InputError, LabelError, NotFiniteError
from unspur.metrics import leakage
from unspur.metrics.groups import mean_interval, p_above
from unspur.metrics.leakage import r2_summary


@pytest.fixture(autouse=True)
def _one_thread():
    """Hundreds of tiny decompositions: BLAS threads would only wait for each other."""
    with threadpool_limits(1):
        yield


def sample(n=400, d=5, shift=0.0, seed=0, prevalence=(0.5, 0.5)):
    """Gaussian rows whose first column moves with the concept."""
    rng = np.random.default_rng(seed)
    concept = rng.choice(len(prevalence), size=n, p=prevalence)
    z = rng.standard_normal((n, d))
    z[:, 0] += shift * concept
    return z, concept


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ({"n": 120, "d": 10}, {}),
        ({"n": 200, "d": 5, "prevalence": (0.85, 0.15)}, {}),
        ({"n": 150, "d": 5, "prevalence": (0.5, 0.3, 0.2)}, {}),
        ({"n": 150, "d": 20, "prevalence": (0.2,) * 5}, {"cv": 3}),
        ({"n": 80, "d": 100}, {"cv": 3}),
    ],
    ids=["plain", "unequal", "three classes", "five classes", "wide"],
)
def test_size_and_power(setting, options, monkeypatch):
    """A concept independent of Z passes as leaked in 5 % of sets at most; with folds taken for independent, in more."""

    def p_values(shift, runs):
        sets = (sample(**setting, shift=shift, seed=seed) for seed in range(runs))
        return np.array([leakage(z, c, penalty=0.1, random_state=0, **options).p for z, c in sets])

    null = p_values(0.0, 120)
    assert np.mean(null < 0.05) <= 0.05 + 0.04  # two standard errors
    assert 0.3 < np.mean(null < 0.5) < 0.7
    assert np.mean(p_values(3.0, 10) < 0.05) >= 0.9
    if setting == {"n": 120, "d": 10}:
        monkeypatch.setattr(import_module("unspur.metrics.leakage"), "CROSS_FIT_VARIANCE_RATIO", 1.0)
        assert np.mean(p_values(0.0, 120) < 0.05) > np.mean(null < 0.05)


def test_with_a_test_set_the_size_is_as_stated():
    sets = [(sample(100, seed=seed), sample(150, seed=1000 + seed)) for seed in range(200)]
    p = [leakage(*a, X_test=b[0], concept_test=b[1], penalty=0.1).p for a, b in sets]
    assert 0.01 < np.mean(np.array(p) < 0.05) < 0.09


def test_the_small_network_sees_what_a_linear_probe_cannot():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((600, 4))
    concept = (z[:, 0] * z[:, 1] > 0).astype(int)
    linear, network = (leakage(z, concept, probe=probe, cv=3, random_state=0) for probe in ("linear", "mlp"))
    assert linear.p > 0.01
    assert linear.accuracy < 0.6
    assert network.accuracy > 0.8
    assert network.p < 1e-6
    assert network.loss < linear.loss
    shuffled = leakage(z, rng.permutation(concept), probe="mlp", cv=3, random_state=0)
    assert shuffled.p > 0.01
    assert leakage(z, concept, probe="mlp", cv=3, random_state=0) == network


def test_neither_unit_nor_offset_nor_dtype_matters():
    z, concept = sample(shift=1.0)
    plain = leakage(z, concept, random_state=0)
    for other in (1e-6 * z + 1e-4, 1e5 * z, (z + 1).astype(np.float32)):
        moved = leakage(other, concept, random_state=0)
        assert moved.accuracy == pytest.approx(plain.accuracy, abs=0.006)
        assert moved.loss == pytest.approx(plain.loss, abs=1e-3)
    assert plain.accuracy > 0.6


def test_a_column_in_other_units_does_not_hide_the_others_in_float32():
    z, concept = sample(600, 5, shift=3.0)
    wide = np.column_stack([z, 1e9 * np.random.default_rng(1).normal(size=600)]).astype(np.float32)
    assert leakage(wide, concept, random_state=0).accuracy > 0.9
    # The control: what a removal leaves of a column in float32 is rounding, and is not read.
    removed = np.column_stack([z[:, 1:], 1e-9 * np.where(concept, 1.0, -1.0)]).astype(np.float32)
    assert leakage(removed, concept, random_state=0).accuracy < 0.6


def test_unequal_classes_do_not_flatter():
    """A constant guess is right in 90 % of rows and at chance here."""
    z, concept = sample(1000, prevalence=(0.9, 0.1))
    none = leakage(z, concept, random_state=0)
    assert none.chance == 0.5
    assert none.chance_loss == pytest.approx(np.log(2))
    assert none.low < 0.5 < none.high
    assert none.accuracy == pytest.approx(np.mean(none.recall))
    some = leakage(*sample(1000, prevalence=(0.9, 0.1), shift=2.0), random_state=0)
    assert min(some.recall) > 0.7
    assert some.loss < some.chance_loss - 0.1


def test_weights_count_like_copies_in_the_probe_and_in_what_is_reported():
    z, concept = sample(200, shift=1.0)
    test, truth = sample(100, shift=1.0, seed=1)
    weight, importance = np.arange(200) % 3, np.arange(100) % 2 + 1
    options = {"X_test": test, "concept_test": truth, "penalty": 0.1}
    weighted = leakage(z, concept, **options, sample_weight=weight, sample_weight_test=importance)
    options |= {"X_test": np.repeat(test, importance, axis=0), "concept_test": np.repeat(truth, importance)}
    repeated = np.repeat(z, weight, axis=0), np.repeat(concept, weight)
    copied = leakage(*repeated, **options)
    independent = leakage(*repeated, **options, clusters_test=np.arange(importance.sum()))
    assert weighted.loss == pytest.approx(copied.loss, rel=0.02)
    assert weighted.accuracy == pytest.approx(copied.accuracy)
    assert weighted.high - weighted.low > independent.high - independent.low  # copies are no new rows
    assert_allclose([copied.low, copied.high, copied.p], [weighted.low, weighted.high, weighted.p], rtol=0.05)
    assert leakage(z, concept, **options).loss != pytest.approx(copied.loss, rel=0.02)


def test_rows_that_an_eraser_was_fitted_on_score_below_chance():
    """Documented trap: equal class means on all rows are opposite means in four folds and the fifth."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((300, 40))
    concept = rng.integers(2, size=300)

    def erased(rows, labels, onto):
        """Onto the complement of the whitened class-mean difference, as LEACE does."""
        spread = np.linalg.cholesky(np.cov(rows.T))
        white = np.linalg.solve(spread, (rows - rows.mean(0)).T).T
        difference = white[labels == 1].mean(0) - white[labels == 0].mean(0)
        off = AffineMap.removing(Subspace.spanned_by(difference[:, None]), np.zeros(40))
        return off(np.linalg.solve(spread, (onto - rows.mean(0)).T).T)

    same = leakage(erased(z, concept, z), concept, random_state=0, penalty=0.01)
    assert same.high < 0.5
    assert same.p > 0.99
    assert "below chance: were these rows used" in str(same)
    fresh, labels = rng.standard_normal((300, 40)), rng.integers(2, size=300)
    other = leakage(erased(z, concept, fresh), labels, random_state=0, penalty=0.01)
    assert other.low < 0.5 < other.high
    assert "below" not in str(other)


def test_mean_interval_is_close_to_newcombes_and_the_p_value_turns_it_round():
    """56/70 against 48/80: Newcombe (1998), from score intervals, gives 0.0524 to 0.3339 for the difference."""
    share, rows = np.array([56 / 70, 1 - 48 / 80]), np.array([70.0, 80.0])
    low, high = mean_interval(share, rows, norm.ppf(0.975))
    assert 0.0524 - 0.02 < 2 * low - 1 < 0.0524  # from exact ones a little wider
    assert 0.3339 < 2 * high - 1 < 0.3339 + 0.02
    for value in (0.5, 0.55, 0.7):
        p = p_above(share, rows, value)
        bound = mean_interval(share, rows, abs(norm.isf(p)))[0 if p < 0.5 else 1]
        assert bound == pytest.approx(value, abs=1e-6)
    assert p_above(share, rows, 0.5) < 0.025 < p_above(share, rows, 0.55)
    assert p_above(np.array([1.0, 0.0]), rows, 0.5) == 0.5
    assert p_above(np.array([0.505, 0.5]), rows, 0.5) == 0.5  # less than half a row above
    assert 0 < p_above(np.ones(10), np.full(10, 50.0), 0.1) < 1e-200


def test_folds_can_be_given_and_rows_without_concept_are_left_out():
    z, concept = sample(shift=1.0)
    listed = list(StratifiedKFold(4).split(z, concept))
    one, two = (leakage(z, concept, cv=cv, penalty=0.1) for cv in (StratifiedKFold(4), listed))
    assert one == two
    half = leakage(z, concept, cv=listed[:1], penalty=0.1)
    assert half.rows == len(listed[0][1])
    train, test = listed[0]
    alone = leakage(z[train], concept[train], X_test=z[test], concept_test=concept[test], penalty=0.1)
    assert half == alone  # one split has no folds that could depend on each other
    gaps = concept.astype(float)
    gaps[::4] = np.nan
    kept = np.arange(400) % 4 > 0
    left = leakage(z, gaps, penalty=0.1, random_state=1)
    assert left.accuracy == leakage(z[kept], concept[kept], penalty=0.1, random_state=1).accuracy
    assert left.rows == 300


def test_one_line_and_json():
    found = leakage(*sample(shift=2.0), penalty=0.1, random_state=0)
    assert "\n" not in str(found)
    assert all(part in str(found) for part in ("linear probe", "chance 50.0", "p < 0.001", "400 rows"))
    assert json.loads(json.dumps(found.to_dict()))["accuracy"] == found.accuracy


def test_bad_input_says_what_is_needed():
    z, concept = sample(40)
    few = np.r_[np.ones(3), np.zeros(37)]
    for error, match, call in (
        (GroupSizeError, "3 rows with concept=1.0 in 5 folds; at least 5", lambda: leakage(z, few)),
        (InputError, "probe is", lambda: leakage(z, concept, probe="forest")),
        (InputError, "go together", lambda: leakage(z, concept, X_test=z)),
        (InputError, "2 columns, X has 5", lambda: leakage(z, concept, X_test=z[:, :2], concept_test=concept)),
        (InputError, "cv must be", lambda: leakage(z, concept, cv=1)),
        (InputError, "penalty", lambda: leakage(z, concept, penalty=0)),
        (InputError, "sample_weight", lambda: leakage(z, concept, sample_weight=-np.ones(40))),
        (InputError, "level", lambda: leakage(z, concept, level=95)),
        (LabelError, "one class only", lambda: leakage(z, np.zeros(40))),
        (NotFiniteError, "1 rows are not", lambda: leakage(np.where(np.arange(40)[:, None] == 3, np.nan, z), concept)),
    ):
        with pytest.raises(error, match=match):
            call()


def films(seed, n_films=60, size=8, shift=0.0):
    """Frames of films that are much alike; the concept is that of the film."""
    rng = np.random.default_rng(seed)
    film = np.repeat(np.arange(n_films), size)
    concept = (np.arange(n_films) % 2)[film]
    Z = rng.normal(size=(n_films, 5))[film] + 0.2 * rng.normal(size=(len(film), 5))
    Z[:, 0] += shift * (2 * concept - 1)
    return Z, concept, film


def test_clusters_share_a_fold_and_are_counted_once():
    found = {True: 0, False: 0}
    for seed in range(6):
        Z, concept, film = films(seed)
        for told in found:
            part = leakage(Z, concept, clusters=film if told else None, penalty=1.0, random_state=seed)
            found[told] += part.p < 0.05
    assert found[True] <= 1
    assert found[False] >= 4  # the control: frames of one film are recognised
    Z, concept, film = films(0, shift=2.0)
    there = leakage(Z, concept, clusters=film, random_state=0)
    assert there.p < 1e-3
    fewer = leakage(Z, concept, clusters=film, random_state=0, cv=GroupKFold(4))
    assert fewer.accuracy > 0.85
    apart = leakage(Z, concept, random_state=0)
    assert there.high - there.low > 1.5 * (apart.high - apart.low)
    test = films(1, shift=2.0)
    narrow, wide = (
        leakage(Z, concept, X_test=test[0], concept_test=test[1], clusters_test=c, random_state=0)
        for c in (None, test[2])
    )
    assert wide.accuracy == narrow.accuracy
    assert wide.high - wide.low > narrow.high - narrow.low


def with_copies(seed=0):
    """Noise with labels, of which every third row is there twice, and which rows are copies of each other."""
    place = np.concatenate([np.arange(120), np.arange(40)])
    return np.random.default_rng(seed).normal(size=(120, 200))[place], place % 2, place


@pytest.mark.parametrize("kind", ["class", "continuous", "jittered"])
def test_copies_of_a_row_share_a_fold_and_a_note_says_so(kind):
    found, blind = [], []
    for seed in range(5):
        Z, concept, place = with_copies(seed)
        number = np.random.default_rng(100 + seed).normal(size=120)[place]
        if kind == "jittered":  # such as the time of an upload
            number += 1e-9 * np.random.default_rng(seed).normal(size=160)
        options = {"concept_type": "class" if kind == "class" else "continuous", "random_state": seed}
        one = leakage(Z, concept if kind == "class" else number, **options)
        apart = leakage(Z, concept if kind == "class" else number, **options, clusters=np.arange(160))
        assert one.notes == ("40 of 160 rows of X are duplicates of others and count once with them",)
        assert apart.notes == ()
        found.append(one.accuracy if kind == "class" else one.r2)
        blind.append(apart.accuracy if kind == "class" else apart.r2)
    if kind == "class":
        assert 0.4 < np.mean(found) < 0.6
        assert np.mean(blind) > 0.67  # control
    else:
        assert np.mean(found) < 0.05
        assert np.mean(blind) > np.mean(found) + 0.05  # control


def test_copies_in_given_folds_and_in_two_sets_are_noted():
    Z, concept, place = with_copies()
    apart = leakage(Z, concept, cv=StratifiedKFold(shuffle=True, random_state=0), random_state=0)
    assert "cv puts duplicates of a row on both sides of a fold" in apart.notes[1]
    fold = place % 5
    together = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(5)]
    assert len(leakage(Z, concept, cv=together, random_state=0).notes) == 1  # control
    both = leakage(Z[:120], concept[:120], X_test=Z[100:], concept_test=concept[100:], random_state=0)
    assert both.notes == ("60 rows of X_test are duplicates of rows of X, on which the probe was trained",)
    alone = leakage(Z[:100], concept[:100], X_test=Z[100:120], concept_test=concept[100:120], random_state=0)
    assert alone.notes == ()


def test_clusters_that_cannot_be_kept_together_are_refused():
    Z, concept, film = films(0)
    with pytest.raises(InputError, match="a cluster has rows in a training set and in its test set"):
        leakage(Z, concept, clusters=film, cv=StratifiedKFold(shuffle=True, random_state=0).split(Z, concept))
    with pytest.raises(GroupSizeError, match="concept=0 lie in 1 cluster"):
        leakage(Z, concept, clusters=concept)


def test_clusters_of_test_rows_are_needed_and_must_be_others():
    Z, concept, film = films(0)
    half = np.arange(len(Z)) % 2 == 0
    test = {"X_test": Z[half], "concept_test": concept[half]}
    with pytest.raises(InputError, match="clusters_test was not"):
        leakage(Z[~half], concept[~half], clusters=film[~half], **test)
    with pytest.raises(InputError, match="60 clusters are among the training rows and among the test rows"):
        leakage(Z[~half], concept[~half], clusters=film[~half], clusters_test=film[half], **test)
    other = film + 1000
    assert leakage(Z[~half], concept[~half], clusters=film[~half], clusters_test=other[half], **test).rows == half.sum()


def patients(seed, n_patients=60, pictures=10, d=30, shift=0.0):
    """Pictures of patients, nearly alike; the number is the patient's, and moves the first column by `shift`."""
    rng = np.random.default_rng(seed)
    patient, age = np.repeat(np.arange(n_patients), pictures), rng.normal(size=n_patients)
    Z = rng.normal(size=(n_patients, d))[patient] + 0.3 * rng.normal(size=(len(patient), d))
    Z[:, 0] += shift * age[patient]
    return Z, age[patient], patient


def test_a_number_of_the_cluster_is_predicted_for_other_clusters():
    found = {True: 0, False: 0}
    for seed in range(10):
        Z, age, patient = patients(seed)
        for told in found:
            clusters = patient if told else None
            found[told] += leakage(Z, age, concept_type="continuous", clusters=clusters, random_state=seed).p < 0.05
    assert found[True] <= 2
    assert found[False] == 10  # the control: patients are recognised by their other pictures
    Z, age, patient = patients(0, shift=2.0)
    there = leakage(Z, age, concept_type="continuous", clusters=patient, random_state=0)
    assert there.p < 0.01
    split = leakage(Z, age, concept_type="continuous", clusters=patient, cv=GroupKFold(4), random_state=0)
    assert split.r2 == pytest.approx(there.r2, abs=0.15)
    with pytest.raises(InputError, match="a cluster has rows in a training set and in its test set"):
        leakage(Z, age, concept_type="continuous", clusters=patient, cv=list(KFold(4, shuffle=True).split(Z)))
    with pytest.raises(GroupSizeError, match="9 clusters"):
        leakage(Z[:90], age[:90], concept_type="continuous", clusters=patient[:90])
    test = patients(1, shift=2.0)
    rows = {"X_test": test[0], "concept_test": test[1]}
    narrow = leakage(Z, age, concept_type="continuous", random_state=0, clusters_test=np.arange(len(age)), **rows)
    plain = leakage(Z, age, concept_type="continuous", random_state=0, **rows)
    assert (narrow.low, narrow.high) == pytest.approx((plain.low, plain.high))
    wide = leakage(Z, age, concept_type="continuous", random_state=0, clusters_test=test[2], **rows)
    assert wide.r2 == narrow.r2
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    few = leakage(Z, age, concept_type="continuous", clusters=np.minimum(patient, 1), clusters_test=test[2] + 9, **rows)
    assert few.r2 > 0.5  # two clusters to train on are too few to choose a penalty on others
    with pytest.raises(GroupSizeError, match=r"tested on 4\.\d+ clusters"):
        leakage(
            Z,
            age,
            concept_type="continuous",
            clusters_test=test[2],
            sample_weight_test=np.exp(-np.minimum(test[2], 50) / 2.0),
            **rows,
        )


def test_copies_of_a_row_tell_as_much_about_a_number_as_the_row():
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=(2, 40))
    told, copy = 0.6 * truth + 0.4 * noise, np.repeat(np.arange(40), 3)
    once = r2_summary(truth, told, 0.0, np.ones(40), 2.0, 0.95)
    thrice = (truth[copy], told[copy], 0.0, np.ones(120), 2.0, 0.95)
    assert r2_summary(*thrice, copy) == pytest.approx(once, rel=1e-12)
    assert r2_summary(truth, told, 0.0, np.ones(40), 2.0, 0.95, np.arange(40)) == pytest.approx(once, rel=1e-12)
    assert r2_summary(*thrice)[1] > once[1] + 0.05  # the control: rows that are taken for independent
