"""What the tests of `fairlearn` assert, restated for our group accuracies and removers on random problems.

Its ``MetricFrame`` and ``CorrelationRemover`` are the oracles: by group, overall, smallest, largest, difference, ratio,
combinations without rows, kinds of features, errors; residuals, new rows, predictions that become more alike.

Without a counterpart here:

- metrics other than accuracy (recall, selection rate, custom functions): group accuracy is the one that is reported
- row weights of group metrics: groups are counted; weighted shares are those of `leakage`, tried below
- control features: a further concept is a further axis of the table, tried below
- bootstrap quantiles: intervals are exact, and `test_coverage` counts how often they cover
- ``alpha`` between 0 and 1: a concept is removed or not
- sensitive columns taken out of X: rows keep their width here, with a column that is constant
- a label of one class: both need two here, and are an error in words otherwise
- plots, reductions, post-processing: not here; estimator checks of scikit-learn are in `tests/removers`
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score

from unspur import LEACE
from unspur.exceptions import InputError, LabelError
from unspur.metrics import group_accuracy, leakage

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fairlearn.metrics import MetricFrame, demographic_parity_difference, equalized_odds_difference
    from fairlearn.preprocessing import CorrelationRemover

PART = "peers: fairlearn"
KINDS = ("integers", "strings", "booleans", "categories", "floats")


def column(rng, n, kind):
    """A feature of two to four classes, each with some rows, in one of the ways in which features come."""
    codes = rng.permutation(np.arange(n) % (2 if kind == "booleans" else rng.integers(2, 5)))
    return {
        "integers": codes * 3 - 2,
        "strings": np.array(["ant", "Bee", "c d", "ü"])[codes],
        "booleans": codes == 1,
        "categories": pd.Series(pd.Categorical.from_codes(codes, ["low", "mid", "high", "top"])),
        "floats": codes + 1.0,
    }[kind]


def problem(seed, features=1):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 400))
    y = np.array(["no", "yes", "so"])[rng.permutation(np.arange(n) % (2 + seed % 2))]
    predicted = np.where(rng.random(n) < 0.7, y, rng.choice(np.unique(y), size=n))
    kinds = rng.choice(KINDS, size=features)
    return y, predicted, {f"feature {i}": column(rng, n, kind) for i, kind in enumerate(kinds)}


def frame_of(y, predicted, features, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the peer's use of pandas
        return MetricFrame(metrics=accuracy_score, y_true=y, y_pred=predicted, sensitive_features=features, **options)


def by_group(result):
    """Accuracy of each combination, as a mapping."""
    return {at: result.accuracy[index] for index, at in result.groups()}


def same(ours, theirs):
    """Whether two mappings from groups to accuracies are the same, NaN included."""
    theirs = {key if isinstance(key, tuple) else (key,): value for key, value in theirs.items()}
    if ours.keys() != theirs.keys():
        return False
    return all(np.isclose(ours[at], theirs[at], rtol=1e-12, equal_nan=True) for at in ours)


def test_groups_are_those_of_the_peer(tally, effort):
    """One to three features of any kind beside the task; combinations without rows are NaN on both sides."""
    groups, totals = (
        tally("accuracy by group is MetricFrame's"),
        tally("overall, min, max, difference, ratio are MetricFrame's"),
    )
    empty = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(effort.times(24, 400)):
            y, predicted, features = problem(seed, 1 + seed % 3)
            theirs = frame_of(y, predicted, {"main": y, **features})
            ours = group_accuracy(y, predicted, features, empty="nan")
            groups.trial(same(by_group(ours), theirs.by_group.to_dict()))
            empty += bool(np.isnan(ours.accuracy).any())
            largest = float(np.nanmax(ours.accuracy))
            pairs = [
                (ours.average, theirs.overall),
                (ours.worst, theirs.group_min()),
                (largest, theirs.group_max()),
                (largest - ours.worst, theirs.difference()),
                (ours.worst / largest, theirs.ratio()),
                (np.nanmax(np.abs(ours.accuracy - ours.average)), theirs.difference(method="to_overall")),
                (by_group(ours)[ours.worst_group], theirs.group_min()),
            ]
            for one, other in pairs:
                totals.trial(bool(np.isclose(one, other, rtol=1e-12)))
            if ours.rows.all():
                totals.trial(group_accuracy(y, predicted, features).worst == ours.worst)
            else:
                with pytest.raises(InputError, match="No rows with"):
                    group_accuracy(y, predicted, features)
    groups.figure = f"{empty} of them with combinations that have no rows"
    assert groups.all_survived
    assert totals.all_survived
    assert 0 < empty < groups.tried


def test_each_feature_alone_and_under_control(tally, effort):
    """Tables of one concept at a time, and a concept within each class of another, are frames of those."""
    line = tally("one feature alone, or within another: its own frame")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(effort.times(4, 100)):
            y, predicted, features = problem(seed, 2)
            ours = group_accuracy(y, predicted, features, empty="nan")
            for name, table in ours.per_concept().items():
                theirs = frame_of(y, predicted, {"main": y, name: features[name]})
                line.trial(same(by_group(table), theirs.by_group.to_dict()))
            first, second = features.values()
            within = frame_of(y, predicted, {"main": y, "one": first}, control_features={"two": second})
            ordered = {(main, one, two): value for (two, main, one), value in within.by_group.to_dict().items()}
            line.trial(same(by_group(ours), ordered))
    assert line.all_survived


def test_ways_to_pass_features_agree(tally, effort):
    """Lists, arrays, series with any index, frames, mappings; rows in any order."""
    line = tally("features as lists, arrays, frames: one answer")
    for seed in range(effort.times(25, 200)):
        y, predicted, features = problem(seed)
        (values,) = features.values()
        whole = group_accuracy(y, predicted, values, empty="nan")
        order = np.random.default_rng(seed).permutation(len(y))
        array = np.asarray(values)
        for arguments in (
            (list(y), list(predicted), array.tolist()),
            (pd.Series(y, index=order), pd.Series(predicted), pd.Series(array, index=order[::-1])),
            (pd.Categorical(y), predicted, pd.DataFrame({"a": values})),
            (y, predicted[:, None], {"a": values}),
            (y[order], predicted[order], array[order]),
        ):
            again = group_accuracy(*arguments, empty="nan")
            line.trial(np.array_equal(again.correct, whole.correct) and again.levels == whole.levels)
    assert line.all_survived


def test_rows_without_a_feature_are_in_no_group(tally, effort):
    """As the peer has it for NaN and None: a gap is not a group, nor part of one."""
    line = tally("gaps in a feature are no group")
    for seed in range(effort.times(8, 150)):
        y, predicted, _ = problem(seed)
        rng = np.random.default_rng(seed)
        codes, gaps = rng.permutation(np.arange(len(y)) % 3), rng.random(len(y)) < 0.2
        for gappy in (np.where(gaps, np.nan, codes), np.where(gaps, None, np.array(list("abc"))[codes])):
            ours = group_accuracy(y, predicted, gappy, empty="nan")
            theirs = frame_of(y[~gaps], predicted[~gaps], {"main": y[~gaps], "a": gappy[~gaps]})
            line.trial(same(by_group(ours), theirs.by_group.to_dict()) and ours.rows.sum() == np.sum(~gaps))
    assert line.all_survived


def test_what_does_not_fit_is_an_error(tally):
    line = tally("what does not fit together is an error in words")
    y, predicted, concept = np.arange(12) % 2, np.arange(12) % 2, np.arange(12) % 3
    for arguments, match in (
        ((y[:-1], predicted, concept), "12 predictions for 11 rows"),
        ((y, predicted[:-1], concept), "11 predictions for 12 rows"),
        ((y, predicted, concept[:-1]), "11 labels for 12 rows"),
        ((y, predicted, [concept, concept]), "2 labels for 12 rows"),
        ((y, predicted, {"a": concept, "b": concept[1:]}), "11 labels for 12 rows"),
        ((y, predicted, pd.DataFrame(np.column_stack([concept, y]), columns=["a", "a"])), "Two concepts are called"),
        ((y, predicted, {1: concept, "1": y}), "Two concepts are called"),
        ((y, predicted, {}), "no columns"),
        ((y, predicted, {"a": np.column_stack([concept, y])}), "one column"),
        ((y, predicted, np.zeros(12)), "one class only"),
        ((np.where(y == 0, np.nan, y), predicted, concept), "one class only"),
        ((np.where(np.arange(12) == 3, None, y), predicted, concept), "y is missing"),
        ((y.astype(str), predicted, concept), "no class of y"),
        (([], [], []), "missing in all 0 rows"),
    ):
        with pytest.raises((LabelError, InputError), match=match):
            group_accuracy(*arguments)
        line.trial()
    assert line.all_survived


def test_weighted_shares(tally, effort):
    """Recall of each class with row weights, of a probe whose answers are known, against the peer's weighted frame."""
    line = tally("weighted recalls are those of a weighted frame")
    train = np.array([[-1.0], [-1.0], [1.0], [1.0]]), np.array([0, 0, 1, 1])
    for seed in range(effort.times(20, 200)):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 200))
        concept = rng.permutation(np.arange(n) % 2)
        answers, weight = np.where(rng.random(n) < 0.7, concept, 1 - concept), np.exp(rng.standard_normal(n))
        found = leakage(
            *train, X_test=2.0 * answers[:, None] - 1, concept_test=concept, sample_weight_test=weight, penalty=0.1
        )
        theirs = frame_of(concept, answers, concept, sample_params={"sample_weight": weight})
        line.trial(np.allclose(found.recall, theirs.by_group.to_numpy(), rtol=1e-12))
        line.trial(np.isclose(found.accuracy, theirs.by_group.mean(), rtol=1e-12))
    assert line.all_survived


def test_residuals_are_those_of_the_correlation_remover(tally, effort):
    """Where rows hold the concept as columns, LEACE takes the regression on it out of the others, as the peer does."""
    line, worst = tally("LEACE, rows that hold the concept: CorrelationRemover"), []
    uncorrelated = tally("no correlation with the concept is left")
    for seed in range(effort.times(40, 300)):
        rng = np.random.default_rng(seed)
        n, d, k = int(rng.integers(50, 400)), int(rng.integers(2, 12)), int(rng.integers(1, 4))
        s = rng.standard_normal((n, k)) * np.exp(rng.uniform(-2, 2, size=k)) + 3
        x = s @ rng.standard_normal((k, d)) + rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
        both, fresh = np.hstack([s, x]), np.hstack([rng.standard_normal((30, k)), rng.standard_normal((30, d))])
        theirs = CorrelationRemover(sensitive_feature_ids=list(range(k))).fit(both)
        ours = LEACE(concept_type="continuous").fit(both, concept=s)
        # The best that can be had: rounding of the moments, times what their inverse makes of it on rows far off.
        condition = np.linalg.cond(np.corrcoef(both.T))
        for rows, bound in ((both, 1e-10), (fresh, 1e-12 + np.finfo(float).eps * condition)):
            clean, expected = ours.transform(rows), theirs.transform(rows)
            error = np.abs(clean[:, k:] - expected).max() / np.abs(expected).max()
            worst.append(error)
            line.trial(bool(error < bound and np.allclose(clean[:, :k], s.mean(axis=0), atol=1e-8 * np.abs(s).max())))
        clean = ours.transform(both)[:, k:]
        left = np.abs(np.corrcoef(clean.T, s.T)[:d, d:]).max()
        before = np.abs(np.corrcoef(x.T, s.T)[:d, d:]).max()
        uncorrelated.trial(bool(left < 1e-8 < 0.01 < before))
    line.figure = f"{-np.log10(max(worst)):.1f} digits at worst"
    assert line.all_survived, line.figure
    assert uncorrelated.all_survived


def test_predictions_become_more_alike(tally, effort):
    """The peer's measures of unfairness fall on new rows when the concept is erased from the old ones.

    Decisions depended on the concept, so odds are those of the label as it should have been: with the decided one,
    equal odds and equal rates exclude each other.
    """
    line, fall = tally("parity and odds differences fall on new rows"), []
    for seed in range(effort.times(4, 60)):
        rng = np.random.default_rng(seed)
        concept, y = rng.integers(2, size=(2, 3000))
        z = rng.standard_normal((3000, 6))
        z[:, 0] += 1.5 * y
        z[:, 1:3] += np.outer(concept, rng.uniform(1, 2, size=2))
        label = np.where(rng.random(3000) < 0.3, concept, y)  # what was decided depended on the concept
        train, test = slice(0, 2000), slice(2000, 3000)
        remover = LEACE().fit(z[train], concept=concept[train])
        found = []
        for rows in (z, remover.transform(z)):
            guess = LogisticRegression().fit(rows[train], label[train]).predict(rows[test])
            measures = demographic_parity_difference, equalized_odds_difference
            found.append([measure(y[test], guess, sensitive_features=concept[test]) for measure in measures])
        before, after = np.array(found)
        fall.append(before - after)
        # Rates of some 500 rows (parity) and 250 (odds) a side differ by chance: four standard errors at most.
        line.trial(bool(np.all(after < before) and np.all(after < 4 * np.sqrt(0.5 / np.array([500, 250])))))
    parity, odds = np.median(fall, axis=0)
    line.figure = f"by {parity:.2f} and {odds:.2f} in the median"
    assert line.all_survived, line.figure
