"""The study of what concept labels are worth: its page says what the records say, and every method runs."""

import sys
from pathlib import Path

import pytest

from unspur.datasets import make_toy
from unspur_paper.rows import Rows

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
try:
    import few_labels
finally:
    sys.path.pop(0)


@pytest.fixture(scope="module")
def lines():
    return few_labels.records(few_labels.RESULTS)


def test_pages_say_what_the_records_say(lines):
    page, guide = (path.read_text(encoding="utf-8") for path in (few_labels.PAGE, few_labels.GUIDE))
    assert few_labels.page(lines) == page
    assert few_labels.guide(lines, guide) == guide
    inferred = next(line for line in lines if line["method"] == "group-weighted, inferred" and line["labels"] == 50)
    changed = [{**line, "worst": 0.0} if line is inferred else line for line in lines]  # control
    assert few_labels.page(changed) != page
    assert few_labels.guide(changed, guide) != guide


def test_every_draw_has_every_method(lines):
    for name in {line["set"] for line in lines}:
        for labels, methods in ((0, few_labels.WITHOUT_LABELS), (50, few_labels.WITH_LABELS)):
            own = [line for line in lines if (line["set"], line["labels"]) == (name, labels)]
            assert {(line["run"], line["method"]) for line in own} == {
                (run, method) for run in few_labels.DRAWS for method in methods
            }


def test_methods_are_those_of_the_page_and_run_on_a_few_rows():
    drawn = [make_toy(n, d=6, rho=0.7, random_state=n) for n in (600, 200)]
    train, validation = (Rows(part.Z, part.y, part.concept) for part in drawn)
    found = list(few_labels.tasks(train, validation, 0))
    assert {method for method, labels, _ in found if labels == 0} == set(few_labels.WITHOUT_LABELS)
    assert {method for method, labels, _ in found if labels == 50} == set(few_labels.WITH_LABELS)
    for method, labels, fit in found:
        if labels == 200 and "Robust" not in method:
            assert fit()[0].score(validation.Z, validation.y) > 0.6
