"""Linear probes that neither columns of other units, nor outliers, nor nearly equal columns make blind."""

import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from unspur.metrics import leakage, probes
from unspur.metrics.probes import LinearProbe, balanced, inner_folds, scale_notes


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
    """With one penalty on the columns as they are, which was all there was, nothing is read."""
    train, test = hard(trouble), hard(trouble, n=4000, seed=1)
    judged = {"X_test": test[0], "concept_test": test[1]}
    chosen = leakage(*train, **judged, random_state=0)
    blind = leakage(*train, **judged, penalty=1e-2)
    assert blind.accuracy < 0.6
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
    probe = LinearProbe.fit(z, concept, 2, balanced(np.ones(600), concept), fold)

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
    with pytest.raises(GroupSizeError, match="9 rows to test the probe on"):
        summary(truth[:9], told[:9], 0.0, np.ones(9), 1.0, 0.95)


def test_values_that_hold_most_of_the_variance_are_named_and_honest_tails_are_not():
    from unspur.metrics.leakage import extreme_values_note

    z, age = numbers(300, 0.9, 0)
    coded = np.where(np.arange(300) < 2, [999.0, -999.0] * 150, age)
    found = leakage(z, coded, concept_type="continuous", random_state=0)
    assert "2 of 300 values of concept hold 99" in str(found)
    assert "-999, 999. Are they codes" in str(found)
    test = leakage(z, age, concept_type="continuous", X_test=z, concept_test=coded)
    assert "values of concept_test" in str(test)
    weight = (np.arange(300) >= 2) * 1.0
    assert not leakage(z, coded, concept_type="continuous", sample_weight=weight, random_state=0).notes
    rng = np.random.default_rng(0)
    tails = [extreme_values_note(rng.lognormal(0, 1, 500), "income") for _ in range(300)]
    assert np.mean([said != "" for said in tails]) < 0.05


@pytest.mark.parametrize("codes", [(9999.0,), (-99.0, 9999.0), (7777.0, 8888.0, 9999.0)])
@pytest.mark.parametrize("share", [0.012, 0.05, 0.2, 0.45])
def test_codes_are_named_up_to_half_of_the_rows(share, codes):
    z, age = numbers(1000, 0.9, 0)
    coded = np.where(np.arange(1000) < 1000 * share, np.resize(codes, 1000), age)
    found = str(leakage(z, coded, concept_type="continuous", random_state=0))
    assert f"{1000 * share:.0f} of 1,000 values of concept hold" in found
    assert ", ".join(f"{code:.0f}" for code in codes) in found
    spread = np.where(np.arange(1000) < 1000 * share, np.linspace(9e3, 1e4, 1000), age)  # the control: no codes
    assert "values of concept" not in str(leakage(z, spread, concept_type="continuous", random_state=0))


@pytest.mark.parametrize("code", [-9223372036854775808.0, 1234567.5, 1 / 3 * 1e9, 9999.0])
def test_the_code_that_is_printed_can_be_passed(code):
    from unspur.metrics.leakage import extreme_values_note

    z, age = numbers(300, 0.9, 0)
    coded = np.where(np.arange(300) < 5, code, age)
    printed = float(re.search("pass missing_concept=(.*), or NaN", extreme_values_note(coded, "age"))[1])
    found = leakage(z, coded, concept_type="continuous", missing_concept=printed, random_state=0)
    assert found.rows == 295
    assert not found.notes


@pytest.mark.parametrize("n", [30, 100, 1000])
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda rng, n: rng.normal(size=n), id="normal"),
        pytest.param(lambda rng, n: rng.lognormal(size=n), id="lognormal"),
        pytest.param(lambda rng, n: rng.lognormal(size=n).round(), id="rounded"),
        pytest.param(lambda rng, n: rng.standard_t(3, size=n), id="t3"),
        pytest.param(lambda rng, n: 1.0 * rng.poisson(0.7, size=n), id="counts"),
        pytest.param(lambda rng, n: 1.0 * rng.integers(18, 90, size=n), id="ages"),
    ],
)
def test_more_rows_than_a_few_are_taken_for_codes_by_mistake_in_hardly_any_sample(n, draw):
    """More than 1 % of the rows are named only where their values repeat."""
    from unspur.metrics.leakage import extreme_values_note

    rng = np.random.default_rng(0)
    named = [re.match(r"(\d+) of", extreme_values_note(draw(rng, n), "number")) for _ in range(300)]
    assert np.mean([found is not None and int(found[1]) > max(1, n // 100) for found in named]) < 0.01


@pytest.mark.parametrize("unit", [2.0**-700, 2.0**700])
def test_the_unit_of_a_number_does_not_matter(unit):
    z, age = numbers(300, 0.9, 0)
    test = {"X_test": z[200:], "concept_test": age[200:]}
    for options, rows in (({}, slice(None)), (test, slice(0, 200))):
        plain = leakage(z[rows], age[rows], concept_type="continuous", random_state=0, **options)
        scaled = {name: unit * value if name == "concept_test" else value for name, value in options.items()}
        again = leakage(z[rows], unit * age[rows], concept_type="continuous", random_state=0, **scaled)
        assert again == plain
        assert plain.low > 0.5


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


def test_the_boundary_of_a_rare_class_is_where_held_out_rows_put_it(monkeypatch):
    """A probe knows the few rows of a rare class by heart and expects fresh ones farther away than they are."""

    def draw(n, share, seed):
        rng = np.random.default_rng(seed)
        concept = (rng.random(n) < share).astype(int)
        return rng.standard_normal((n, 200)) + 0.15 * concept[:, None], concept

    def recalls(share):
        train, (fresh, truth) = draw(1500, share, 0), draw(8000, 0.5, 1)
        fold = inner_folds(train[1], np.random.default_rng(0))
        found = LinearProbe.fit(*train, 2, balanced(np.ones(1500), train[1]), fold)
        predicted = found.log_proba(fresh).argmax(axis=1)
        return np.array([np.mean(predicted[truth == label] == label) for label in (0, 1)])

    rare, equal = recalls(0.02), recalls(0.5)
    assert abs(rare[0] - rare[1]) < 0.3
    monkeypatch.setattr(probes, "RARE_SHARE", 0.0)  # the control
    untold = recalls(0.02)
    assert untold[0] - untold[1] > 0.4
    assert rare.mean() > untold.mean() + 0.05
    np.testing.assert_array_equal(recalls(0.5), equal)


def test_biases_that_do_not_help_held_out_rows_are_left_out():
    """Most logits are small and a few are huge, which decide where the loss puts the boundary."""
    rng = np.random.default_rng(0)
    truth = (np.arange(1000) % 50 == 0).astype(int)
    bulk = np.where(truth == 1, 0.01, -0.01) + 0.002 * rng.standard_normal(1000)
    wide = np.where(np.arange(1000) % np.where(truth == 1, 200, 15) == 0, 1.0, bulk)
    chosen = probes._Candidate("discriminant", "unit", 1e-2)
    for odds, helps in ((wide, False), (bulk - 0.015, True)):
        log_p = np.column_stack([np.zeros(1000), odds])
        found = probes._HeldOutPredictions({chosen: [log_p]}, truth, balanced(np.ones(1000), truth))
        biases = found.biases({chosen: 1.0})
        assert biases.any() == helps
        assert biases.sum() == pytest.approx(0.0, abs=1e-12)
        known, untold = ((np.argmax(one, axis=1) == truth)[truth == 1].mean() for one in (log_p + biases, log_p))
        assert known == untold == 1.0 if not helps else known > untold + 0.5
