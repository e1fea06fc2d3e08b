"""The page as text: complete for every kind of findings, escaped, small, and the same for the same findings."""

import base64
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from tests.report.making import (
    HOSTILE,
    Pictures,
    Texts,
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
from unspur import audit
from unspur.exceptions import InputError
from unspur.report.page import axes_that_fit, clip_texts, render, safe_json, scatter_data, sources, thumbnail_sheet
from unspur.report.results import Axis, View

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
SECTIONS = ["verdict", "groups", "subspaces", "tests", "meaning", "leakage", "reproduce"]
VOID = {"meta", "img", "br", "input", "link"}


class Reader(HTMLParser):
    """Elements, texts and whether everything that is opened is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in ("p", "option") and self.open[-1] != tag:
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def text_of(page):
    return " ".join(" ".join(Reader(page).texts).split())


def section(page, name):
    return page.partition(f'<section id="{name}"')[2].partition("</section>")[0]


@pytest.mark.parametrize("make", KINDS)
def test_every_kind_of_findings_makes_a_whole_page(make):
    reader = Reader(render(make()))
    assert reader.open == []
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("h1") == 1
    assert [attrs["id"] for tag, attrs in reader.elements if tag == "section"] == SECTIONS
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [
        attrs["id"] for tag, attrs in reader.elements if "id" in attrs and tag not in ("path", "clippath", "pattern")
    ]
    assert len(ids) == len(set(ids))


def test_what_users_call_things_stays_text():
    page = render(hostile_findings())
    reader = Reader(page)
    images = [attrs for tag, attrs in reader.elements if tag == "img"]
    assert images  # the control: there are some, all of them ours
    assert all(attrs["src"].startswith("data:image/") for attrs in images)
    assert not any(name.startswith("on") for _, attrs in reader.elements for name in attrs)
    assert [tag for tag, _ in reader.elements].count("script") == 2
    text = " ".join(reader.texts)
    for name in HOSTILE[:3]:
        assert name in text
    assert (
        "49"
        not in render(replace(toy_findings(), main="{{ 7 * 7 }}"), title="t").split("<body>")[1].split("</header>")[0]
    )


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


def test_charts_have_their_colours_in_light_and_dark_and_no_fonts_of_their_own():
    page = render(toy_findings())
    charts = re.findall(r'<div class="chart".*?</svg>', page, re.DOTALL)
    assert len(charts) == 3
    used = set(re.findall(r"var\((--c\w{6})\)", page))
    light, dark = re.findall(r":root\{((?:--c\w{6}:#\w{6};)+)", page)[:2]
    assert used <= set(re.findall(r"--c\w{6}", light)) == set(re.findall(r"--c\w{6}", dark))
    assert "--c000000:#000000" in light
    assert "--c000000:#E6E6E6" in dark
    assert not any(re.search(r"#[0-9a-f]{6}\b|DejaVu", chart) for chart in charts)
    assert "DejaVu" not in page


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


def test_of_many_directions_the_page_says_how_many_it_has():
    found = photo_findings()
    concept = sum(axis.role == "spurious" for axis in found.view.axes)
    assert f"This page has the first {concept} of 11 concept directions" in text_of(
        render(replace(found, n_removed=11))
    )
    whole = render(replace(found, n_removed=concept, n_main=min(found.n_main, 6)))
    assert "This page has the first" not in whole


def test_every_test_is_there_and_closed_at_first():
    for found in (toy_findings(), photo_findings()):
        page = render(found)
        tests = section(page, "tests")
        assert "<details open" not in page
        assert tests.partition("<details>")[2].count('<th scope="row">') == sum(map(len, found.traces.values()))
        assert 'class="chart"' not in tests.partition("<details>")[0]
        assert "directions were accepted" in tests
    trace = photo_findings().traces[""]
    long = render(replace(photo_findings(), traces={"": replace(trace, steps=trace.steps * (1 + 250 // len(trace)))}))
    shown = sum(not step.inner for step in trace) * (1 + 250 // len(trace))
    assert section(long, "tests").count("✓ accepted") + section(long, "tests").count("✗ rejected") == shown < 200
    closed = closed_form_findings()
    assert closed.trace_text in text_of(render(closed))


def test_pictures_are_called_by_the_names_of_their_files():
    found = photo_findings()
    ids = [f"/home/me/a-long-way/down/the/tree/{i % 3}/digit_picture_{i:06d}.png" for i in range(len(found.ids))]
    page = render(replace(found, ids=ids))
    assert 'title="digit_picture_' in page
    assert "a-long-way" not in page  # nor where they lie


def test_every_figure_of_every_method_is_in_a_table():
    found = photo_findings()
    text = text_of(render(found))
    for line in found.results:
        for head in (line, line.weighted):
            assert f"{100 * head.accuracy.worst:.1f}" in text
            assert f"{100 * head.accuracy.group_average:.1f}" in text
            assert f"{head.penalty:g}".replace("-", "−") in text
    for leak in (*found.nonlinear.values(), *found.nonlinear_before.values(), *found.results[2].leakage.values()):
        assert f"{100 * leak.accuracy:.1f}" in text
    assert found.selection_notes[0] in text
    broken = text_of(render(lost()))
    assert "Group (bird=1, background=0) has 1 row; 2 are needed." in broken
    assert "The task may be lost." in broken


def test_figures_stand_out_in_sentences_and_commands_are_code():
    page = section(render(toy_findings()), "verdict")
    assert re.search(r"<strong>\d+\.\d %</strong> <span class=\"interval\">\(\d", page)
    assert "<strong>1 of 20 directions</strong>" in page
    assert re.search(r"<code>unspur compare FILE --task bird --concept background</code>", page)


def test_texts_of_extreme_rows_are_quoted_and_pictures_have_names():
    found = text_findings()
    row = int(found.extremes[0].low[0])
    assert f"<blockquote>{found.content[row][:100]}" in render(found)
    pictures = [attrs for tag, attrs in Reader(render(photo_findings())).elements if tag == "img"]
    assert pictures
    assert all(attrs["alt"] for attrs in pictures)


@pytest.mark.parametrize(
    ("module", "make"), [("jinja2", toy_findings), ("matplotlib", toy_findings), ("PIL", photo_findings)]
)
def test_a_missing_library_is_named_with_what_installs_it(monkeypatch, module, make):
    found = make()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="report"):
        render(found)


def test_names_that_are_not_unicode_or_turn_the_text_do_no_harm():
    found = toy_findings()
    name = "caf\udce9 \u202eabc\x00"  # a name of a file in Latin-1, an override of direction, a control
    odd = replace(
        found,
        main=name,
        groups=(name, *found.groups[1:]),
        ids=[name] * len(found.ids),
        origin=replace(found.origin, command=f"unspur report {name}.csv"),
    )
    page = render(odd)
    page.encode()  # as UTF-8, which the name itself is not
    assert "caf\ufffd abc\ufffd.csv" in page
    assert "\u202e" not in re.sub(r'<script type="application/json".*?</script>', "", page)
    assert json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["ids"][0] == name


def test_long_names_are_cut_and_still_told_apart():
    page = render(long_findings())
    assert len(page) < len(render(toy_findings())) + 80_000
    names = [group["name"] for group in json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["groups"]]
    assert len(set(names)) == 4
    assert max(map(len, names)) < 120


def audited(names):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=500)
    X = rng.normal(size=(500, 4)) + y[:, None]
    columns = {name: rng.integers(2, size=500) for name in names}
    return audit(X, y, {**columns, "constant": np.ones(500)}, probe_all=False, random_state=0)


def test_what_was_not_probed_has_no_chart():
    found = toy_findings()
    bare = replace(found, certificate=replace(found.certificate, probe={}, task=None), nonlinear={})
    assert 'class="chart"' not in section(render(bare), "leakage")
    assert 'class="chart"' in section(render(found), "leakage")


def test_other_columns_are_shown_with_their_verdicts_and_a_few_at_most():
    found = toy_findings()
    assert not section(render(found), "audit")  # there are no other columns
    shown = section(render(replace(found, audit=audited([f"column {i}" for i in range(30)]))), "audit")
    assert shown.count('<th scope="row">') == 20
    assert "20 of 30 columns" in shown
    assert "constant: it is constant" in shown
    hostile = section(render(replace(found, audit=audited(HOSTILE))), "audit")
    assert "<img" not in hostile
    assert "<script" not in hostile
    assert "7 * 7" in hostile


# What the script gets -------------------------------------------------------------------------------------------------


def unpacked(data, name):
    """Scores (n, m) as the script reads them."""
    codes = np.frombuffer(base64.b64decode(data[name]), dtype="<u2").reshape(len(data["axes"]), -1).T
    low, high = np.array(data["low"]), np.array(data["high"])
    return low + codes / 65535 * (high - low)


def test_scores_come_back_to_a_pixel():
    found = toy_findings()
    axes = axes_that_fit(found)
    data = scatter_data(found, axes, (0, 1), None)
    for name, scores in (("before", found.view.before), ("after", found.view.after)):
        reach = np.array(data["high"]) - np.array(data["low"])
        error = np.abs(unpacked(data, name) - scores[found.drawn_rows][:, axes]) / reach
        assert error.max() < 1e-4  # a screen has some thousand pixels
    assert np.abs(unpacked(data, "before") - unpacked(data, "after")).max() > 0.1  # and the two are not the same


def test_only_shown_rows_are_packed_and_means_are_of_all():
    found = toy_findings()
    group = np.where(found.group == 2, 1, found.group)
    group[3] = -1
    few = replace(found, drawn_rows=np.array([3, 5, 8]), group=group)
    data = scatter_data(few, [0, 1], (0, 1), None)
    assert data["rows"] == 3
    assert data["ids"] == [found.ids[i] for i in (3, 5, 8)]
    codes = np.frombuffer(base64.b64decode(data["group"]), dtype="<u2").tolist()
    assert codes == [65535, group[5], group[8]]
    before, _ = data["means"]
    assert before[0] == pytest.approx(found.view.before[group == 0][:, [0, 1]].mean(axis=0), abs=0.05)
    assert before[2] == [None, None]
    pairs = Texts([("a premise", "a hypothesis")] * len(found.ids))
    assert scatter_data(replace(few, content=pairs), [0, 1], (0, 1), None)["texts"][0] == "a premise ∥ a hypothesis"


@pytest.mark.parametrize("text", [*HOSTILE, "\u2028\u2029", "<!--"])
def test_json_survives_and_holds_nothing_that_a_page_could_read(text):
    made = safe_json({"text": text})
    assert json.loads(made) == {"text": text}
    assert not set(made) & set("<>&\u2028\u2029")


def test_texts_are_cut_to_a_budget():
    texts = ["word " * 400] * 500
    assert all(len(text) <= 160 for text in clip_texts(texts, 160, 10**6))
    small = clip_texts(texts, 160, 20_000)
    assert len(safe_json(small).encode()) <= 20_000
    assert small[0].endswith("…")
    assert clip_texts(["short"], 160, 10**6) == ["short"]


def test_many_directions_are_cut_to_the_budget_but_the_first_pair_stays():
    found, n, m = toy_findings(), 5000, 60
    axes = (
        *(Axis(f"a {k}", "spurious") for k in range(m - 3)),
        Axis("b", "main"),
        Axis("c", "head"),
        Axis("d", "head"),
    )
    view = View(axes, np.zeros((n, m)), np.zeros((n, m)), np.eye(m), None, None)
    kept = axes_that_fit(replace(found, view=view, drawn_rows=np.arange(n)))
    assert 2 < len(kept) < m
    assert {0, m - 3} < set(kept)
    assert axes_that_fit(found) == list(range(len(found.view.axes)))
    assert [found.view.axes[k].role for k in found.view.first_pair()] == ["spurious", "main"]
    without = closed_form_findings().view
    assert [without.axes[k].role for k in without.first_pair()] == ["spurious", "head"]


def coloured(n, side):
    """Pictures of one colour each."""
    values = np.linspace(0.1, 0.9, n)
    colours = np.stack([values, values[::-1], np.full(n, 0.5)], axis=1)[:, None, None, :]
    return Pictures(np.broadcast_to(colours, (n, side, side - 20, 3)).astype(np.float32))


def test_every_tile_shows_its_row():
    content = coloured(9, 80)
    made = thumbnail_sheet([content[k] for k in range(9)], 10**6)
    head, data = made.source.split(",")
    assert head == "data:image/webp;base64"
    whole = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=float) / 255
    for k in range(9):
        row, column = divmod(k, made.columns)
        middle = whole[row * made.size + made.size // 2, column * made.size + made.size // 2]
        assert np.abs(content.images[:, 0, 0] - middle).sum(axis=1).argmin() == k
    assert thumbnail_sheet([], 1000) is None


def test_a_small_budget_means_smaller_pictures_then_fewer():
    noise = Pictures(np.random.default_rng(0).random((60, 64, 64, 3)).astype(np.float32))
    pictures = [noise[k] for k in range(60)]
    large, small, tiny = (thumbnail_sheet(pictures, budget) for budget in (10**7, 36_000, 2_400))
    assert large.size == 64
    assert small.size < large.size
    assert small.count == 60
    assert 0 < tiny.count < 60
    for made, budget in ((small, 36_000), (tiny, 2_400)):
        assert len(made.source) <= budget
    few = pictures[:8]
    assert sum(map(len, sources(few, 20_000))) <= 20_000 < sum(map(len, sources(few, 10**7)))
    none_left = sources(few, 2_000)
    assert none_left[0]
    assert none_left[-1] == ""
