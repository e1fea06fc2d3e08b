"""Tables for a terminal: every number is there, in 80 columns, and no name breaks a line."""

import numpy as np
import pytest

from tests.report.making import photo_findings, toy_findings
from unspur.metrics import group_accuracy
from unspur.report.figures.charts import probe_lines
from unspur.report.tables import audit_frame, group_table, probe_frame, trace_frame


@pytest.fixture(scope="module")
def judged():
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=(2, 400))
    names = np.array(["a class whose name is long enough, 1", "a class whose name is long enough, 2"])
    return [
        group_accuracy(names[y], names[np.where(rng.random(400) < p, y, 1 - y)], concept)
        for p in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
    ]


def test_many_methods_stand_below_each_other_and_no_number_is_lost(judged):
    results = {f"a method with a name of its own, {i}": result for i, result in enumerate(judged)}
    penalties = dict.fromkeys(results, 1e-3)
    text = group_table(results, "bird", "background " * 8, penalties=penalties)
    assert max(map(len, text.splitlines())) <= 80
    for result in judged:
        for value in (*result.accuracy.flat, result.worst, result.group_average, *result.worst_interval()):
            assert f"{100 * value:.1f}" in text
    assert text.count("worst group") == 2
    assert text.count("0.001") == 6
    assert group_table({"ERM": judged[0]}).count("worst group") == 1


def test_groups_without_rows_and_rows_without_a_group_are_there():
    y = np.array([0, 0, 1, 1] * 20)
    concept = np.array([0, None, 1, 1] * 20, dtype=object)
    lines = group_table({"ERM": group_accuracy(y, y, concept, empty="nan")}).splitlines()
    assert (
        next(line for line in lines if line.startswith("y=0, concept=1") or "=0, concept=1" in line).split()[-1] == "–"
    )
    assert next(line for line in lines if line.startswith("no concept, in no group")).split()[-2:] == ["20", "100.0"]


def test_names_do_not_break_lines_and_wide_ones_fit():
    y, concept = np.arange(80) % 2, np.arange(80) // 2 % 2
    names = np.array(["水の鳥と陸の鳥 " * 8, "li\nne [bold]"])
    text = group_table({"ERM": group_accuracy(names[y], names[y], concept)})
    assert "[bold]" in text
    assert "li\\nne" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def trace_frames_hold_every_probe_and_every_test():
    found = photo_findings()
    lines = probe_lines(found)
    probes = probe_frame(lines)
    assert len(probes) == sum(map(len, lines.values()))
    assert (
        probes["balanced accuracy, %"].iloc[0].startswith(f"{100 * found.certificate.probe['photo'][0].accuracy:.1f}")
    )
    tests = trace_frame(found.traces[""])
    assert list(tests.index) == [step.place for step in found.traces[""]]
    assert (tests["decision"] == "accepted").sum() == sum(step.verdict.proper for step in found.traces[""])
    assert audit_frame(toy_findings()) is None
