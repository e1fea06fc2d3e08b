"""Results in notebooks: small tables whose text cannot become markup."""

from html.parser import HTMLParser

import numpy as np
import pytest

from unspur import JSE, LEACE
from unspur._text import MarkupTable, counted, in_markdown
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy

EVIL = "<script>alert(1)</script>&\"'|`*\n#"


class Reader(HTMLParser):
    """Elements that are open, all that were seen, and the text of the cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.cells = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def toy():
    return make_toy(800, d=6, rho=0.6, random_state=0)


@pytest.fixture(scope="module")
def results(toy):
    """Everything that has a table, with names that try to be markup."""
    y = np.where(toy.y == 1, f"water{EVIL}", "land")
    concept = {f"background{EVIL}": np.where(toy.concept == 1, f"sea{EVIL}", "shore")}
    jse = JSE(random_state=0, cv=0.2, penalty=0.1).fit(toy.Z, {f"bird{EVIL}": y}, concept=concept)
    three = {"season": np.arange(800) % 3, f"background{EVIL}": toy.concept}
    several = JSE(random_state=0, cv=0.2, penalty=0.1, max_spurious=1).fit(toy.Z, y, concept=three)
    held_out = make_toy(400, d=6, rho=0.0, random_state=1)
    values = {f"background{EVIL}": np.where(held_out.concept == 1, f"sea{EVIL}", "shore")}
    certificate = jse.certificate(held_out.Z, held_out.y, values)
    number = LEACE(concept_type="continuous").fit(toy.Z, toy.y, concept={EVIL: toy.Z[:, 0] + toy.concept})
    numeric = number.certificate(held_out.Z, held_out.y, {EVIL: held_out.Z[:, 0] + held_out.concept})
    groups = group_accuracy(y, y, concept)
    return {
        "trace": jse.trace_,
        "traces": several.trace_,
        "certificate": certificate,
        "numeric": numeric,
        "groups": groups,
    }


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@pytest.mark.parametrize("name", ["trace", "traces", "certificate", "numeric", "groups"])
def test_a_table_is_accessible_and_escaped(results, name):
    text = results[name]._repr_html_()
    read = Reader(text)
    assert not read.open
    assert {tag for tag, _ in read.seen} <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert not any(attributes.keys() - {"scope"} for _, attributes in read.seen)
    assert all(attributes["scope"] in ("col", "row") for tag, attributes in read.seen if tag == "th")
    assert sum(tag == "table" for tag, _ in read.seen) == sum(tag == "caption" for tag, _ in read.seen) > 0
    assert (
        "<script>" in f"{getattr(results[name], 'name', '')}{results[name]}"
    )  # the name is there, and would be markup if it were not escaped
    assert "&lt;script&gt;" in text


def test_the_tables_say_what_the_text_says(results):
    cells = Reader(results["trace"]._repr_html_()).cells
    for step in results["trace"]:
        assert {step.place, step.verdict.role, step.verdict.specific.t_text} <= set(cells)
    assert "stopped: " + results["trace"].stopped in results["trace"]._repr_html_().replace("&lt;", "<").replace(
        "&gt;", ">"
    ).replace("&amp;", "&").replace("&quot;", '"').replace("&#x27;", "'")
    certificate = results["certificate"]
    cells = Reader(certificate._repr_html_()).cells
    for before, after in certificate.probe.values():
        assert {f"{100 * before.accuracy:.1f}", f"{100 * after.accuracy:.1f}"} <= set(cells)
    groups = results["groups"]
    assert {f"{rows:,}" for rows in groups.rows.ravel()} <= set(Reader(groups._repr_html_()).cells)


def test_markdown_shows_names_as_they_are():
    assert in_markdown("a|b*c_d") == r"a\|b\*c\_d"
    assert in_markdown("two\nlines") == r"two\\nlines"
    assert "<" not in in_markdown("<b>").replace("\\<", "")
    text = MarkupTable("A caption", ("group", "rows"), ((EVIL, "7"), ("b", "8")), ("a note",)).markdown()
    caption, table, notes = text.split("\n\n")
    assert (caption, notes) == ("A caption:", "- a note")
    assert table.count("\n") == 3  # a name with a line end does not break it
    assert all(line.replace("\\|", "").count("|") == 3 for line in table.splitlines())


def test_one_thing_is_not_counted_as_several():
    assert [counted(n, "row") for n in (0, 1, 2, 1200)] == ["0 rows", "1 row", "2 rows", "1,200 rows"]
