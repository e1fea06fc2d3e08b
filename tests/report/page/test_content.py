"""What the script gets: small, exact enough, and unable to end the element it stands in."""

import base64
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.report.making import HOSTILE, Pictures, Texts, closed_form_findings, photo_findings, toy_findings
from unspur.report.page.content import (
    axes_that_fit,
    clip_texts,
    first_pair,
    safe_json,
    scatter_data,
    sources,
    thumbnail_sheet,
    thumbnails,
)
from unspur.report.results import Axis, View


def unpacked(data, name):
    """Scores (n, m) as the script reads them."""
    codes = np.frombuffer(base64.b64decode(data[name]), dtype="<u2").reshape(len(data["axes"]), -1).T
    low, high = np.array(data["low"]), np.array(data["high"])
    return low + codes / 65535 * (high - low)


def test_scores_come_back_to_a_pixel():
    found = toy_findings()
    axes = axes_that_fit(found)
    data = scatter_data(found, axes, None)
    for name, scores in (("before", found.view.before), ("after", found.view.after)):
        reach = np.array(data["high"]) - np.array(data["low"])
        error = np.abs(unpacked(data, name) - scores[found.drawn_rows][:, axes]) / reach
        assert error.max() < 1e-4  # a screen has some thousand pixels
    assert np.abs(unpacked(data, "before") - unpacked(data, "after")).max() > 0.1  # and the two are not the same


def test_only_shown_rows_are_packed_and_groups_that_are_not_known_say_so():
    found = toy_findings()
    group = found.group.copy()
    group[3] = -1
    data = scatter_data(replace(found, drawn_rows=np.array([3, 5, 8]), group=group), axes_that_fit(found), None)
    assert data["rows"] == 3
    assert data["ids"] == [found.ids[i] for i in (3, 5, 8)]
    codes = np.frombuffer(base64.b64decode(data["group"]), dtype="<u2").tolist()
    assert codes == [65535, group[5], group[8]]


def test_means_are_of_all_rows_and_missing_groups_have_none():
    found = toy_findings()
    few = replace(found, drawn_rows=found.drawn_rows[:10], group=np.where(found.group == 2, 1, found.group))
    before, _ = scatter_data(few, [0, 1], None)["means"]
    assert before[0] == pytest.approx(found.view.before[found.group == 0][:, [0, 1]].mean(axis=0), rel=1e-5)
    assert before[2] == [None, None]


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


def test_pairs_of_texts_are_one_line():
    found = toy_findings()
    pairs = Texts([("a premise", "a hypothesis")] * len(found.ids))
    assert scatter_data(replace(found, content=pairs), [0, 1], None)["texts"][0] == "a premise ∥ a hypothesis"


def test_first_is_a_spurious_direction_against_a_main_task_one_or_else_last_layers():
    found = photo_findings()
    x, y = first_pair(found, axes_that_fit(found))
    assert [found.view.axes[k].role for k in (x, y)] == ["spurious", "main"]
    without = closed_form_findings()
    x, y = first_pair(without, axes_that_fit(without))
    assert without.view.axes[x].role == "spurious"
    assert without.view.axes[y].role == "head"


def test_many_directions_are_cut_to_the_budget_but_every_role_stays():
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
    assert {axes[k].role for k in kept} == {"spurious", "main", "head"}
    assert axes_that_fit(found) == list(range(len(found.view.axes)))


@pytest.fixture
def coloured():
    """Nine rows, each of one colour of its own."""
    values = np.linspace(0.1, 0.9, 9)
    images = np.broadcast_to(
        np.stack([values, values[::-1], np.full(9, 0.5)], axis=1)[:, None, None, :], (9, 80, 60, 3)
    )
    return Pictures(images.astype(np.float32))


def decoded(address):
    head, data = address.split(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"), dtype=float) / 255


def test_every_tile_shows_its_row(coloured):
    pictures = thumbnails(coloured, range(9), ())
    made = thumbnail_sheet([pictures[k] for k in range(9)], 10**6)
    whole = decoded(made.source)
    for k in range(9):
        row, column = divmod(k, made.columns)
        middle = whole[row * made.size + made.size // 2, column * made.size + made.size // 2]
        distances = np.abs(coloured.images[:, 0, 0] - middle).sum(axis=1)
        assert distances.argmin() == k


def test_rows_are_loaded_once(coloured):
    thumbnails(coloured, [0, 1, 1, 2], [2, 3])
    assert coloured.loaded.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_a_small_budget_means_smaller_tiles_then_fewer_and_says_so():
    noise = Pictures(np.random.default_rng(0).random((60, 64, 64, 3)).astype(np.float32))
    pictures = list(thumbnails(noise, range(60), ()).values())
    large, small, tiny = (thumbnail_sheet(pictures, budget) for budget in (10**7, 36_000, 2_400))
    assert large.size == 64
    assert small.size < large.size
    assert small.count == 60
    assert 0 < tiny.count < 60
    for made, budget in ((small, 36_000), (tiny, 2_400)):
        assert len(made.source) <= budget


def test_single_pictures_share_their_budget():
    noise = Pictures(np.random.default_rng(0).random((8, 192, 192, 3)).astype(np.float32))
    pictures = list(thumbnails(noise, (), range(8)).values())
    assert sum(map(len, sources(pictures, 40_000))) <= 40_000
    assert sum(map(len, sources(pictures, 10**7))) > 40_000
    none_left = sources(pictures, 2_000)
    assert none_left[0]
    assert none_left[-1] == ""
    assert sum(map(len, none_left)) <= 2_000


def test_no_pictures_no_sheet():
    assert thumbnail_sheet([], 1000) is None
