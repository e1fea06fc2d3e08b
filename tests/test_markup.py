"""Results in notebooks are tables whose text cannot become markup."""

from html.parser import HTMLParser

import numpy as np
import pytest

from unspur import JSE, LEACE
from unspur._text import brief, counted
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy

EVIL = "<script>alert(1)</script>&\"'|`*\n#"


class Reader(HTMLParser):
    """The elements of a text, and the text of its cells."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.cells = [], set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, _):
        self.open.append(tag)
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
@pytest.mark.parametrize("kind", ["trace", "certificate", "numbers", "groups"])
def test_a_table_is_escaped_and_says_what_the_text_says(kind):
    toy, held_out = make_toy(600, d=6, rho=0.6, random_state=0), make_toy(300, d=6, rho=0.0, random_state=1)
    if kind == "numbers":
        number = LEACE(concept_type="continuous").fit(toy.Z, toy.y, concept={EVIL: toy.Z[:, 0] + toy.concept})
        found = number.certificate(held_out.Z, held_out.y, {EVIL: held_out.Z[:, 0] + held_out.concept})
        wanted = EVIL
    else:
        names = np.array(["shore", f"sea{EVIL}"])
        concept = {f"place{EVIL}": names[toy.concept]}
        if kind == "groups":
            found, wanted = group_accuracy(toy.y, toy.y, concept), f"{np.bincount(2 * toy.y + toy.concept)[0]:,}"
        else:
            jse = JSE(random_state=0, cv=0.2, penalty=0.1).fit(toy.Z, toy.y, concept=concept)
            found, wanted = jse.trace_, "main"
            if kind == "certificate":
                found = jse.certificate(held_out.Z, held_out.y, {f"place{EVIL}": names[held_out.concept]})
                wanted = f"{100 * next(iter(found.probe.values()))[0].accuracy:.1f}"
    text = found._repr_html_()
    read = Reader(text)
    assert not read.open
    assert "table" in read.tags
    assert "script" not in read.tags
    assert "<script>" in f"{getattr(found, 'name', '')}{found}"  # control
    assert "&lt;script&gt;" in text
    assert any(" ".join(wanted.split()) in " ".join(cell.split()) for cell in read.cells)


def test_texts_are_short_and_on_one_line():
    assert [counted(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert brief("two\nlines  of words.", 12) == "two lines o…"
