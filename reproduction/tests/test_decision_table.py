"""Tables on the pages of the documentation: written from records, and nowhere else are there figures."""

import csv
import re
import sys
from pathlib import Path

import pytest

from unspur_paper.experiments.reproduce import find_experiments, reproduce

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproduction" / "results"
sys.path.insert(0, str(ROOT / "reproduction" / "scripts"))
try:
    import decision_table
finally:
    sys.path.pop(0)


@pytest.fixture(scope="module")
def texts():
    return {page: page.read_text(encoding="utf-8") for page in decision_table.pages()}


def test_pages_say_what_the_records_say_and_a_changed_number_is_noticed(texts):
    named = {"decision-tables.md", "limits.md", "delta-and-level.md", "missing-labels.md"}
    assert {page.name for page in texts} >= named
    for page, text in texts.items():
        assert decision_table.rendered(text) == text, page
        value = re.search(r"\| (\d+\.\d) \(", text) or re.search(r"\| (\d+) %", text)
        assert value is not None
        changed = text[: value.start(1)] + "99.9" + text[value.end(1) :]
        assert decision_table.rendered(changed) == text


def test_every_table_is_on_a_page(texts):
    named = [found["name"] for text in texts.values() for found in decision_table.MARKED.finditer(text)]
    assert sorted(named) == sorted(decision_table.TABLES)


def test_prose_of_the_page_on_methods_has_no_figures_of_its_own(texts):
    (text,) = (text for page, text in texts.items() if page.name == "decision-tables.md")
    prose = re.sub(r"ρ = 0\.9|95 % interval", "", decision_table.MARKED.sub("", text))
    assert re.search(r"\d\.\d", text)
    assert not re.search(r"\d\.\d|\d %", prose)


@pytest.mark.parametrize(
    ("experiment", "method", "at"),
    [
        ("waterbirds-ood", "LEACE", {"p": 0.9}),
        ("toy-ood", "INLP", {"rho": 0.9}),
        ("multinli-ood", "JSE, scores", {"p": 0.9}),
    ],
)
def test_means_are_those_of_the_tables_of_results(experiment, method, at):
    (axis, strength), runs = next(iter(at.items())), decision_table.runs_of(experiment, method, **at)
    with (RESULTS / experiment / "exact.csv").open(encoding="utf-8", newline="") as file:
        lines = {(li["method"], li["metric"], float(li[axis])): li for li in csv.DictReader(file)}
    for metric in ("worst_group", "average"):
        line = lines[method, metric, strength]
        assert decision_table.mean(runs, metric) == f"{float(line['mean']):.1f} ({float(line['error']):.1f})"
    assert decision_table.mean(runs, "worst_group") != decision_table.mean(runs, "average")


def test_differences_are_those_of_the_summaries_and_pair_across_experiments():
    (experiment,) = [e for e in find_experiments(["waterbirds-ood"]) if e.name == "waterbirds-ood"]
    found = reproduce(experiment, "exact", RESULTS, compute=False, embeddings=Path("not-there")).summary.differences
    (line,) = [d for d in found if (d.method, d.other, d.metric, d.at) == ("JSE", "ERM", "worst_group", {"p": 0.9})]
    expected = f"{line.mean:+.1f} [{line.mean - line.half:+.1f}, {line.mean + line.half:+.1f}]"
    plain = decision_table.runs_of("waterbirds-ood", "ERM", p=0.9)
    assert decision_table.difference(decision_table.runs_of("waterbirds-ood", "JSE", p=0.9), plain) == expected
    grouped = decision_table.runs_of("waterbirds-ood-group", "ERM", p=0.9)
    assert decision_table.difference(grouped, plain) == "+0.0 [+0.0, +0.0]"  # the same draws under another name
    with pytest.raises(SystemExit, match="in common"):
        decision_table.difference(decision_table.runs_of("waterbirds-ood", "ERM", p=0.8), plain)
