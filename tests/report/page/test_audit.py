"""The section of the page about other columns."""

from dataclasses import replace

import numpy as np

from tests.report.making import HOSTILE, toy_findings
from unspur import audit
from unspur.report.page import render


def audited(names):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=500)
    X = rng.normal(size=(500, 4)) + y[:, None]
    columns = {name: rng.integers(2, size=500) for name in names}
    return audit(X, y, {**columns, "constant": np.ones(500)}, probe_all=False, random_state=0)


def section(page):
    return page.partition('<section id="audit">')[2].partition("</section>")[0]


def test_columns_are_shown_with_their_verdicts_and_a_few_at_most():
    found = toy_findings()
    assert not section(render(found))  # there are no other columns
    shown = section(render(replace(found, audit=audited([f"column {i}" for i in range(30)]))))
    random = ("no sign that it is associated with the task", "its association with the task is not significant")
    assert [shown.count(words) for words in random] == [19, 1]
    assert "20 of 30 columns" in shown
    assert "constant: it is constant (1.0)" in shown


def test_names_of_columns_are_text():
    shown = section(render(replace(toy_findings(), audit=audited(HOSTILE))))
    assert "<img" not in shown
    assert "<script" not in shown
    assert "7 * 7" in shown
