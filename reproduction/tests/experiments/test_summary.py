"""Summaries: means, standard errors, agreement and differences, from results made by hand."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from unspur.datasets import bayes_accuracy, make_toy
from unspur_paper.experiments.metrics import METRICS
from unspur_paper.experiments.presets import complete_head
from unspur_paper.experiments.reproduce import find_experiments
from unspur_paper.experiments.summary import EXPECTED, summarise
from unspur_paper.report.experiment_tables import agreement_lines, markdown


def result(share, d=(1, 1)):
    """A cell in which every group of 100 rows has `share` right, the last ten fewer."""
    return {
        "right": [share, share, share, share - 10],
        "rows": [100] * 4,
        "mse_main": 0.0,
        "mse_spurious": 1.0,
        "d_spurious": d[0],
        "d_main": d[1],
    }


def summary(values, name="toy-delta", preset="released"):
    """Values by method and run, at ρ = 0.9; other cells have no record."""
    experiment = find_experiments([name])[0]
    cells = experiment.cells(preset, runs=len(next(iter(values.values()))))
    found = [values[c.method][c.spec["run"]] if c.at["rho"] == 0.9 and c.method in values else None for c in cells]
    return summarise(experiment, preset, "1", cells, found), cells


def test_metrics_of_a_cell():
    cell = result(90)
    assert METRICS["average"](cell) == pytest.approx(87.5)
    assert METRICS["worst_group"](cell) == pytest.approx(80.0)
    assert METRICS["main=1,spurious=1"](cell) == pytest.approx(80.0)
    assert METRICS["found"](cell) == 100.0
    assert METRICS["found"](result(90, (2, 1))) == 0.0


def test_groups_are_counted_in_the_order_of_their_names():
    """2·main + concept, the order of `Rows.group` and of the published metrics."""
    from unspur_paper.experiments.toy import toy_cell

    data = {
        "name": "toy",
        "n": 400,
        "d": 4,
        "rho": 0.0,
        "separability_concept": 3.0,
        "separability_main": 3.0,
        "angle": 90.0,
    }
    for preset, rows in (("exact", 20_000), ("released", 400), ("released-fresh", 400)):
        head = complete_head(preset, "toy", {"name": "ERM"})
        spec = {"dataset": data, "remover": {"name": "none"}, "head": head, "run": 0}
        found = toy_cell({**spec, "preset": preset})
        assert sum(found["rows"]) == rows
        assert found == toy_cell({**spec, "preset": preset})  # a pure function
        assert found != toy_cell({**spec, "preset": preset, "run": 1})


def test_mean_error_and_distance():
    values = {"JSE delta=0": [result(70), result(74), result(66)]}
    found, cells = summary(values)
    line = next(line for line in found.lines if line.metric == "average")
    numbers = np.array([67.5, 71.5, 63.5])
    assert line.mean == pytest.approx(numbers.mean())
    assert line.error == pytest.approx(numbers.std(ddof=1) / math.sqrt(3))
    assert (line.published.mean, line.runs) == (64.59, 3)
    assert line.distance == pytest.approx((67.5 - 64.59) / math.hypot(line.error, line.published.error))
    assert found.missing == len(cells) - 3


def test_agreement_counts_values_within_two_errors():
    near, far = ({"JSE delta=0": [result(at), result(at + 1)]} for at in (67, 95))
    assert [(a.method, a.within, a.total) for a in summary(near)[0].agreement] == [("JSE delta=0", 2, 2)]
    assert [(a.method, a.within, a.total) for a in summary(far)[0].agreement] == [("JSE delta=0", 0, 2)]
    assert "0 of   2 published values" in agreement_lines(summary(far)[0])[0]
    assert pytest.approx(norm.cdf(2) - norm.cdf(-2)) == EXPECTED


def test_a_line_that_is_not_counted_stands_beside_the_published_one():
    values = {name: [result(95), result(96)] for name in ("GDRO", "GDRO as released")}
    found, _ = summary(values, "toy-reweighting")
    assert [(a.method, a.total, a.counted) for a in found.agreement] == [
        ("GDRO", 6, True),
        ("GDRO as released", 6, False),
    ]
    page = markdown(found, {}, [])
    assert "| GDRO as released (not counted) | 0 | 6 |" in page
    assert "| all |" not in page  # one counted line is all


def test_a_single_run_has_no_error_and_agrees_with_nothing():
    found, _ = summary({"JSE delta=0": [result(67)]})
    assert {line.error for line in found.lines} == {None}
    assert found.agreement == ()
    assert agreement_lines(found) == ["One run has no standard error: nothing is compared."]


def test_differences_are_taken_run_by_run():
    a, b = [result(70), result(80)], [result(69), result(79)]
    found, _ = summary({"JSE adjusted delta": a, "JSE delta=0": b})
    difference = next(d for d in found.differences if d.metric == "average")
    assert (difference.method, difference.other, difference.runs) == ("JSE adjusted delta", "JSE delta=0", 2)
    assert difference.mean == pytest.approx(1.0)
    assert difference.error == pytest.approx(0.0, abs=1e-12)  # each alone has an error of five
    assert all(line.error > 4 for line in found.lines if line.metric == "average")


def test_the_page_shows_ours_beside_the_published():
    found, _ = summary({"JSE delta=0": [result(95), result(96)]})
    page = markdown(found, {"average": ("Bayes accuracy", 77.8)}, ["released.svg"])
    assert "| JSE delta=0 | 0 | 2 | 0.0 % |" in page
    assert "64.59 (1.18); **+" in page
    assert "Bayes accuracy: 77.80" in page
    assert "![released](released.svg)" in page
    assert "cells have no record yet" in page


@pytest.mark.parametrize(("gamma", "angle", "known"), [(3.0, 90.0, 83.59), (2.0, 90.0, 77.80)])
def test_bayes_accuracy(gamma, angle, known):
    assert bayes_accuracy(gamma, angle=angle) == pytest.approx(known, abs=0.005)


def test_no_rule_beats_bayes_and_the_true_one_reaches_it():
    for angle in (90.0, 75.0):
        toy = make_toy(400_000, d=2, angle=angle, random_state=0)
        reached = 100 * np.mean((toy.Z @ toy.main_axis > 0) == toy.y)
        assert reached == pytest.approx(bayes_accuracy(3.0, angle=angle), abs=0.2)
        assert 100 * np.mean((toy.Z @ toy.spurious_axis > 0) == toy.y) < reached - 10
