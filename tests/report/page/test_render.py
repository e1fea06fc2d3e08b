"""The page as text: complete for every kind of findings, escaped, small, and the same for the same findings."""

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from tests.report.making import (
    HOSTILE,
    closed_form_findings,
    hostile_findings,
    long_findings,
    lost,
    many_findings,
    nothing_removed,
    photo_findings,
    several_findings,
    text_findings,
    toy_findings,
)
from unspur.exceptions import InputError
from unspur.report.page import render
from unspur.report.page.charts import MAX_SINGLE_TABLE_STEPS

KINDS = [
    closed_form_findings,
    hostile_findings,
    lost,
    nothing_removed,
    photo_findings,
    several_findings,
    text_findings,
    toy_findings,
]
SECTIONS = ["verdict", "groups", "subspaces", "ladder", "meaning", "leakage", "reproduce"]
VOID = {"meta", "img", "br", "input", "link", "hr", "col"}


class Reader(HTMLParser):
    """Elements, texts and whether everything that is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag == "p" and self.open[-1] != "p":
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


@pytest.mark.parametrize("make", KINDS)
def test_every_kind_of_findings_makes_a_whole_page(make):
    reader = read(render(make()))
    assert reader.open == []
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("h1") == 1
    assert tags.count("main") == 1
    assert [attrs["id"] for tag, attrs in reader.elements if tag == "section"] == SECTIONS
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_what_users_call_things_stays_text():
    page = render(hostile_findings())
    reader = read(page)
    images = [attrs for tag, attrs in reader.elements if tag == "img"]
    assert images  # the control: there are some, all of them ours
    assert all(attrs["src"].startswith("data:image/") for attrs in images)
    assert not any(name.startswith("on") for _, attrs in reader.elements for name in attrs)
    assert [tag for tag, _ in reader.elements].count("script") == 2
    text = " ".join(reader.texts)
    for name in HOSTILE[:3]:
        assert name in text
    assert "49" not in render(replace(toy_findings(), main="{{ 7 * 7 }}"), title="t").split("</header>")[0]


def test_only_this_very_script_and_style_may_run_and_nothing_may_be_loaded():
    page = render(toy_findings())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1).replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for element in ("style", "script"):
        content = re.search(rf"<{element}>(.*?)</{element}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert not re.search(r'(src|href|action)="(?!data:|#)', page)
    assert " style=" not in page  # the policy would drop it
    assert "innerHTML" not in page


def test_the_same_findings_give_the_same_bytes():
    assert render(photo_findings()) == render(photo_findings())
    assert render(photo_findings()) != render(photo_findings(), title="Another")


def test_five_thousand_rows_with_colour_pictures_stay_below_three_megabytes():
    found = many_findings(5000)
    page = render(found)
    assert len(page.encode()) < 3_000_000
    assert found.content.loaded.max() == 1
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))
    assert data["rows"] == data["sheet"]["count"] == 5000
    assert data["sheet"]["size"] >= 24


def test_rows_and_directions_that_are_left_out_are_counted():
    found = toy_findings()
    assert "All 600 test rows are drawn." in render(found)
    assert "Of 600 test rows 100 are drawn." in render(replace(found, drawn_rows=np.arange(100)))
    group = found.group.copy()
    group[:7] = -1
    assert "In 7 test rows the concept is not known" in render(replace(found, group=group))


def test_of_many_directions_the_page_says_how_many_it_has():
    found = photo_findings()
    spurious = sum(axis.role == "spurious" for axis in found.view.axes)
    text = " ".join(read(render(replace(found, n_removed=11))).texts)
    assert f"This page has the first {spurious} of 11 spurious directions" in text
    assert f"{spurious - 2} more of the 11 spurious directions" in text
    assert f"The first {spurious} of 11 spurious directions can be chosen" in text
    whole = " ".join(read(render(replace(found, n_removed=spurious, n_main=min(found.n_main, 6)))).texts)
    assert "This page has the first" not in whole
    assert "can be chosen" not in whole
    assert f"{spurious - 2} more spurious directions" in whole


def test_every_test_is_there_and_closed_at_first():
    for found in (toy_findings(), photo_findings()):
        page = render(found)
        ladder = page[page.index('<section id="ladder">') : page.index('<section id="meaning">')]
        long = [trace for trace in found.traces.values() if len(trace) > MAX_SINGLE_TABLE_STEPS]
        alone = sum(step.inner == 0 for trace in long for step in trace)
        assert ladder.count("<tr class=") == sum(map(len, found.traces.values())) + alone
        assert "<details open" not in page
        assert ladder.count("<table") == ladder.count("<details")  # no table outside of them
        assert "directions were accepted" in ladder


def test_pictures_are_called_by_the_names_of_their_files():
    found = photo_findings()
    ids = [f"/home/me/a-long-way/down/the/tree/{i % 3}/digit_picture_{i:06d}.png" for i in range(len(found.ids))]
    page = render(replace(found, ids=ids))
    assert 'title="digit_picture_' in page
    assert "a-long-way" not in page  # nor where they lie


def test_both_averages_and_every_method_with_its_problem_are_there():
    text = " ".join(read(render(lost())).texts)
    assert "average over groups" in text
    assert "average over rows" in text
    assert "Group (bird=1, background=0) has 1 row; 2 are needed." in text
    assert "The task may be lost." in text


def test_every_penalty_is_on_the_page_with_what_depends_on_it():
    found = photo_findings()
    text = " ".join(re.sub(r"<[^>]+>", " ", render(found)).split())
    for line in found.results:
        for head in (line, line.weighted):
            assert f"{100 * head.accuracy.worst:.1f}" in text
            assert f"{head.penalty:g}" in text
    assert found.selection_notes[0] in text
    assert "This table is not used to choose." in text
    lines = text.split("This table is not used to choose.")[1]
    for penalty, worst in found.before.worst_by_penalty.items():
        assert re.search(rf" {penalty:g} {100 * worst:.1f} ", lines), penalty
    assert f"{100 * found.after.accuracy.worst:.1f} (chosen)" in lines
    bare = (
        replace(found.before, worst_by_penalty={}, weighted=None),
        replace(found.after, worst_by_penalty={}, weighted=None),
    )
    assert 'id="penalties"' not in render(replace(found, results=bare))


def test_the_story_is_told_where_there_is_no_ladder():
    found = closed_form_findings()
    text = " ".join(read(render(found)).texts)
    assert found.trace_text in text
    assert "ladder" in text


def test_texts_of_extreme_rows_are_quoted_and_pictures_have_names():
    found = text_findings()
    page = render(found)
    row = int(found.extremes[0].low[0])
    assert f"<blockquote>{found.content[row][:100]}" in page
    pictures = [attrs for tag, attrs in read(render(photo_findings())).elements if tag == "img"]
    assert all(attrs["alt"] for attrs in pictures)


@pytest.mark.parametrize(("module", "make"), [("jinja2", toy_findings), ("PIL", photo_findings)])
def test_a_missing_library_is_named_with_what_installs_it(monkeypatch, module, make):
    found = make()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"'\.\[report\]'"):
        render(found)


def test_names_that_are_not_unicode_or_turn_the_text_do_no_harm():
    found = toy_findings()
    name = "caf\udce9 \u202eabc\x00"  # a name of a file in Latin-1, an override of direction, a control
    odd = replace(
        found,
        main=name,
        groups=(name, *found.groups[1:]),
        ids=[name] * len(found.ids),
        content=None,
        origin=replace(found.origin, command=f"unspur report {name}.csv"),
    )
    page = render(odd)
    page.encode()  # as UTF-8, which the name itself is not
    assert "caf\ufffd abc\ufffd.csv" in page
    assert "\u202e" not in re.sub(r'<script type="application/json".*?</script>', "", page)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["ids"][0] == name


def test_long_names_are_cut_and_still_told_apart():
    page = render(long_findings())
    assert len(page) < len(render(toy_findings())) + 80_000
    names = [group["name"] for group in json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["groups"]]
    assert len(set(names)) == 4
    assert max(map(len, names)) < 120


def test_large_rows_as_pixels_keep_to_the_budget():
    found, rng = photo_findings(), np.random.default_rng(0)
    rows = np.arange(40)
    noise = rng.random((40, 224, 224, 3))
    pixels = replace(found.pixels, rows=rows, before=noise, after=noise[::-1], directions={0: noise[0] - 0.5})
    page = render(replace(found, pixels=pixels))
    assert len(page.encode()) < 3_000_000
    assert re.search(r"<p class=\"quiet\">\d+ of 40 rows, so that the page stays small", page)
    assert "rows, so that the page stays small" not in render(found)  # the control: small ones are all there


@pytest.mark.parametrize(("scale", "said"), [(1e-12, "× 10⁻¹²"), (1e9, "× 10⁹"), (0.01, "0.0123")])
def test_scores_are_readable_on_every_scale(scale, said):
    found = toy_findings()
    view = found.view
    before = view.before * (1.234 / np.abs(view.before).max(axis=0)) * scale
    page = render(replace(found, view=replace(view, before=before, after=before)))
    assert said in page
    assert ">0.00</td>" not in page
    assert said not in render(found)
