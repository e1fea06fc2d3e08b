"""Linear probes that neither columns of other units, nor outliers, nor nearly equal columns make blind."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unspur.metrics import leakage
from unspur.metrics.probes import inner_folds, linear_probe, scale_notes


def hard(trouble, n=600, d=12, seed=0):
    """Rows with a concept that a linear classifier reads off well, and something that hides it from a careless one."""
    rng = np.random.default_rng(seed)
    concept = rng.integers(2, size=n)
    z = rng.standard_normal((n, d))
    z[:, 0] += 4.0 * concept
    if trouble == "huge column":
        z[:, 5] *= 1e6
    elif trouble == "outliers":
        far = rng.random(n) < 0.02
        z[far] = 1e6 * rng.standard_normal((int(far.sum()), d))
    elif trouble == "nearly collinear":
        z[:, 1] = z[:, 2] + 1e-5 * z[:, 0]
        z[:, 0] = rng.standard_normal(n)
    return z, concept


@pytest.mark.parametrize(
    ("trouble", "note"), [("huge column", "column 5 is"), ("outliers", "rows are outliers"), ("nearly collinear", "")]
)
def test_what_blinds_one_probe_does_not_blind_the_chosen_one(trouble, note):
    train, test = hard(trouble), hard(trouble, n=4000, seed=1)
    judged = {"X_test": test[0], "concept_test": test[1]}
    chosen = leakage(*train, **judged, random_state=0)
    if trouble != "huge column":
        assert leakage(*train, **judged, penalty=1e-2).accuracy < 0.7  # the control: one penalty, standard units
    assert chosen.accuracy > 0.94
    assert note in " ".join(chosen.notes)
    assert bool(chosen.notes) == bool(note)
    assert all(text in str(chosen) for text in chosen.notes)
    if trouble != "nearly collinear":
        peer = make_pipeline(StandardScaler(), LogisticRegression()).fit(*train)
        assert chosen.accuracy > peer.score(*test) - 0.02


def test_nothing_is_said_about_ordinary_rows():
    z, _ = hard("none")
    assert scale_notes(z) == ()
    assert scale_notes(z * 1e6 + 1e4) == ()
    assert "column 3 is" in scale_notes(np.column_stack([z[:, :3], 1e4 * z[:, 3], z[:, 4:]]))[0]


@pytest.mark.parametrize("trouble", ["none", "outliers"])
def test_the_chosen_probe_is_linear(trouble):
    """Training values may be cut off, those that are judged may not: log-odds half way are the mean of both ends."""
    z, concept = hard(trouble)
    fold = inner_folds(concept, np.random.default_rng(0))
    probe = linear_probe(z, concept, np.ones(600), fold)

    def odds(rows):
        return np.subtract(*probe.log_proba(rows).T)

    ends = np.random.default_rng(1).standard_normal((2, 50, 12)) * [[[1.0]], [[10.0]]]
    np.testing.assert_allclose(odds(ends.mean(axis=0)), (odds(ends[0]) + odds(ends[1])) / 2, atol=1e-8)
    assert np.ptp(odds(ends[0])) > 0


def test_a_rare_class_is_learnt_with_the_covariance_of_all_rows():
    """Logistic regression that counts a rare class as much as the other forgets what the many rows say."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(100) / 10

    def rows(n, rare):
        concept = (np.arange(n) < rare * n).astype(int)
        return rng.standard_normal((n, 100)) @ mix + 2.5 * np.outer(concept, direction) @ mix, concept

    mix = rng.standard_normal((100, 100))
    train, test = rows(1000, 0.03), rows(4000, 0.5)
    judged = {"X_test": test[0], "concept_test": test[1]}
    chosen = leakage(*train, **judged, random_state=0).accuracy
    logistic = max(leakage(*train, **judged, penalty=penalty).accuracy for penalty in (1.0, 1e-2, 1e-4))
    assert chosen > logistic + 0.02


def numbers(n, strength, seed, d=8):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, d))
    return z, strength * z[:, 0] + np.sqrt(1 - strength**2) * rng.standard_normal(n)


def test_numbers_are_predicted_as_well_as_they_can_be_and_not_better():
    z, age = numbers(800, np.sqrt(0.6), 0)
    found = leakage(z, age, concept_type="continuous", random_state=0)
    assert found.low < 0.6 < found.high
    assert found.p < 1e-6
    z[:, 3] *= 1e6  # of other units
    again = leakage(z, 50 + 10 * age, concept_type="continuous", random_state=0)
    assert again.r2 == pytest.approx(found.r2, abs=0.01)
    assert "column 3 is" in str(again)
    test, truth = numbers(800, np.sqrt(0.6), 1)
    held_out = leakage(*numbers(800, np.sqrt(0.6), 0), concept_type="continuous", X_test=test, concept_test=truth)
    assert held_out.low < 0.6 < held_out.high
    assert held_out.high - held_out.low < found.high - found.low  # folds tell less than as many test rows
    none = [leakage(*numbers(80, 0.0, seed), concept_type="continuous", random_state=0) for seed in range(20)]
    assert np.mean([leak.p < 0.05 for leak in none]) <= 0.15
    assert np.mean([leak.r2 for leak in none]) < 0.01


def test_the_interval_of_a_number_covers_on_few_rows_and_stays_narrow_on_many():
    from unspur.exceptions import GroupSizeError
    from unspur.metrics.leakage import r2_summary as summary

    rng = np.random.default_rng(0)
    for explained, n, widest in ((0.0, 12, 1.0), (0.5, 12, 6.0), (0.9, 200, 0.07)):
        found = []
        for _ in range(1000):
            noise = np.sqrt(explained * (1 - explained)) if explained else 0.05
            truth = rng.standard_normal(n)
            told = explained * truth + noise * rng.standard_normal(n)
            found.append(summary(truth, told, 0.0, np.ones(n), 1.0, 0.95))
        _, low, high, p = np.array(found).T
        aim = explained or -(0.05**2)
        assert 0.93 < np.mean((low <= aim) & (aim <= high)) < 0.99
        assert np.median(high - low) < widest
        assert np.array_equal(low > 0, p < 0.025)
    with pytest.raises(GroupSizeError, match="tested on 9 rows"):
        summary(truth[:9], told[:9], 0.0, np.ones(9), 1.0, 0.95)


def test_numbers_with_gaps_weights_and_mistakes():
    from unspur.exceptions import GroupSizeError, InputError, LabelError

    z, age = numbers(300, 0.9, 0)
    gaps = np.where(np.arange(300) % 3 == 0, np.nan, age)
    assert leakage(z, gaps, concept_type="continuous", random_state=0).rows == 200
    known = leakage(z, np.nan_to_num(gaps, nan=-1), concept_type="continuous", missing_concept=-1, random_state=0)
    assert known.rows == 200
    weight = (np.arange(300) % 3 > 0) * 1.0
    assert leakage(z, age, concept_type="continuous", sample_weight=weight, random_state=0).rows == 200
    for error, match, call in (
        (LabelError, "not a column of numbers", {"concept": np.array(["a"] * 300)}),
        (LabelError, "the same number", {"concept": np.ones(300)}),
        (LabelError, "infinite", {"concept": np.where(age > 1, np.inf, age)}),
        (InputError, "linear probe only", {"concept": age, "probe": "mlp"}),
        (GroupSizeError, "9 rows", {"concept": np.where(np.arange(300) < 9, age, np.nan)}),
    ):
        with pytest.raises(error, match=match):
            leakage(z, **{"concept_type": "continuous", **call})
    with pytest.raises(InputError, match="concept_type is"):
        leakage(z, age > 0, concept_type="number")
