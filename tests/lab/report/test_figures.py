"""Figures for papers: they show what they are given, as vectors, in names as they are, whatever the user's settings."""

import doctest
import importlib
import logging
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text

from tests.lab.report import making
from unspur import INLP, LEACE
from unspur.exceptions import InputError, OutputExistsError
from unspur.lab.datasets.toy import make_toy
from unspur.lab.disk import DiskError
from unspur.lab.experiments.gradcam_pictures import LookedAt, Seen
from unspur.lab.experiments.reproduce import find_experiments
from unspur.lab.experiments.summary import summarise
from unspur.lab.findings.values import Axis, Boundary, Looks, View
from unspur.lab.report import figures
from unspur.lab.report.colours import METHOD_COLOURS
from unspur.lab.report.figures.plane import MOST_VECTORS
from unspur.lab.report.figures.style import SMALL, literal
from unspur.metrics import GroupAccuracy
from unspur.trace import Traces

HOSTILE = (
    "$x_1$", "a & b <c>", "_hidden", r"\$5 of 10 % {or} $\frac{1}{2}$", "Übergröße, λ ≥ ½", "a very long name " * 12,
)  # fmt: skip
X = np.array([0.5, 0.7, 0.9])


def pictures(number):
    from PIL import Image

    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 255, (48, 48, 3), dtype=np.uint8)) for _ in range(number)]


def looks(methods=("as they are", "JSE"), rows=3):
    rng = np.random.default_rng(1)
    return Looks(np.arange(rows), pictures(rows), {name: rng.normal(size=(rows, 7, 7)) for name in methods})


@cache
def findings():
    return replace(making.toy_findings(), looks=looks())


@cache
def summary(name="toy-ood", preset="exact"):
    experiment = find_experiments([name])[0]
    cells, rng = experiment.cells(preset, runs=3), np.random.default_rng(0)
    results = [
        {
            "right": rng.integers(60, 90, 4).tolist(), "rows": [100] * 4, "mse_main": rng.random() / 10,
            "mse_spurious": rng.random(), "d_spurious": 1, "d_main": 1,
        }
        for _ in cells
    ]  # fmt: skip
    return summarise(experiment, preset, "0", cells, results)


def numbers():
    return {"JSE": (X, [90, 89, 87], [88, 87, 85], [92, 91, 89]), "ERM": (X, [91, 80, 60], [90, 78, 55], [92, 82, 65])}


#: One of each kind, by name.
EVERY = {
    "subspaces": lambda width="page": figures.subspaces(findings(), width=width),
    "ladder": lambda width="page": figures.ladder(findings(), width=width),
    "bars": lambda width="page": figures.group_bars(findings(), width=width),
    "curves": lambda width="page": figures.curves(numbers(), x_name="p", y_name="worst group, %", width=width),
    "one point": lambda width="page": figures.curves({"JSE": ([1], [2]), "ERM": ([1], [1])}, width=width),
    "ood": lambda width="page": figures.ood_curves(summary(), width=width),
    "reconstruction": lambda width="page": figures.reconstruction_curves(summary("toy-reconstruction"), width=width),
    "gradcam": lambda width="page": figures.gradcam_grid(findings(), width=width),
}
#: Something that must be written in it.
WORDS = {
    "subspaces": "boundary of the last layer", "ladder": "✓ accepted", "bars": "average over rows", "curves": "JSE",
    "one point": "ERM", "ood": "accuracy of the worst group, %", "reconstruction": "nothing left: 1",
    "gradcam": "as they are",
}  # fmt: skip


def texts(path):
    """Lines of text of an SVG, which parses as XML or fails here."""
    return ["".join(node.itertext()).strip() for node in ET.parse(path).iter() if node.tag.endswith("}text")]


def shown(figure):
    """Texts of a figure that are drawn; others are there too, such as names of ticks beyond the end of an axis."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        draw = Text.draw
        patch.setattr(Text, "draw", lambda text, *args, **kwargs: (found.append(text), draw(text, *args, **kwargs))[1])
        figure.draw_without_rendering()
    return [text for text in dict.fromkeys(found) if text.get_visible() and text.get_text().strip()]


def read(figure):
    """What is written in a figure, on one line each."""
    return [" ".join(text.get_text().replace(r"\$", "$").split()) for text in shown(figure)]


def squeezed(words):
    return "".join("".join(words).split())


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_figures_are_vectors_with_text_as_text(name, tmp_path):
    drawn = EVERY[name]()
    assert isinstance(drawn, Figure)
    first, second = (figures.write(drawn, tmp_path / f"{k}.svg").read_bytes() for k in range(2))
    assert first == second == figures.write(EVERY[name](), tmp_path / "another.svg").read_bytes()
    assert WORDS[name] in texts(tmp_path / "0.svg")
    pdf = figures.write(drawn, tmp_path / "figure.pdf").read_bytes()
    assert (b"/Subtype /Image" in pdf) == (name == "gradcam")  # pictures are pixels, all else is not
    assert b"/FontFile2" in pdf  # embedded
    assert b"/Type3" not in pdf


@pytest.mark.parametrize("kind", ["pdf", "eps", "png"])
@pytest.mark.parametrize("name", ["curves", "gradcam"])
def test_the_same_figure_gives_the_same_bytes(name, kind, tmp_path):
    first, second = (figures.write(EVERY[name](), tmp_path / f"{k}.{kind}").read_bytes() for k in range(2))
    assert first == second
    assert kind != "eps" or b"/FontType 42" in first


def test_a_figure_may_be_changed_and_written_again(tmp_path):
    drawn = EVERY["gradcam"]()
    top = max(axis.get_position().y1 for axis in drawn.axes)
    figures.write(drawn, tmp_path / "before.svg")
    drawn.suptitle("added later")
    figures.write(drawn, tmp_path / "after.svg")
    assert "added later" in texts(tmp_path / "after.svg")
    drawn.draw_without_rendering()
    assert max(axis.get_position().y1 for axis in drawn.axes) < top  # the layout still makes room


def test_other_data_give_other_bytes(tmp_path):
    other = {**numbers(), "ERM": (X, [91, 80, 61], [90, 78, 55], [92, 82, 65])}
    written = [figures.write(figures.curves(data), tmp_path / f"{k}.pdf") for k, data in enumerate((numbers(), other))]
    assert written[0].read_bytes() != written[1].read_bytes()


@pytest.mark.parametrize("name", EVERY)
def test_settings_of_the_user_neither_leak_in_nor_out(name, tmp_path):
    plain = figures.write(EVERY[name](), tmp_path / "plain.svg").read_bytes()
    mine = {
        "font.size": 20, "font.family": "monospace", "axes.grid": True, "lines.linewidth": 9, "svg.fonttype": "path",
        "svg.hashsalt": "mine", "savefig.dpi": 50, "axes.spines.top": True, "text.color": "red", "xtick.color": "red",
        "axes.prop_cycle": mpl.cycler(color=["red"]), "figure.constrained_layout.use": False,
    }  # fmt: skip
    ours = EVERY[name]()
    with mpl.rc_context(mine):
        ours.savefig(tmp_path / "saved.svg")  # by other means, in which case the format is theirs and the style is ours
        settings = dict(mpl.rcParams)
        assert figures.write(EVERY[name](), tmp_path / "mine.svg").read_bytes() == plain
        assert dict(mpl.rcParams) == settings
    assert not re.search("#ff0000", (tmp_path / "saved.svg").read_text(encoding="utf-8"))


def test_pyplot_knows_nothing_of_the_figures():
    from matplotlib import pyplot

    assert pyplot.get_fignums() == []
    for draw in EVERY.values():
        draw()
    assert pyplot.get_fignums() == []


def test_files_are_not_replaced_unless_asked_and_formats_are_named(tmp_path):
    drawn, path = figures.curves(numbers()), tmp_path / "figure.svg"
    figures.write(drawn, path)
    with pytest.raises(OutputExistsError, match=r"figure\.svg"):
        figures.write(drawn, path)
    figures.write(drawn, path, overwrite=True)
    for name in ("figure.gif", "figure"):
        with pytest.raises(InputError, match=r"one of \.eps, \.pdf, \.png, \.svg"):
            figures.write(drawn, tmp_path / name)
    with pytest.raises(DiskError, match="cannot be written"):
        figures.write(drawn, tmp_path / "nowhere" / "figure.pdf")
    assert [file.name for file in tmp_path.iterdir()] == ["figure.svg"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = figures.write(figures.curves(numbers()), tmp_path / "figure.pdf")
    before, drawn = path.read_bytes(), figures.curves({"JSE": (X, X)})
    engine = drawn.get_layout_engine()
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        figures.write(drawn, path, overwrite=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert drawn.get_layout_engine() is engine


@pytest.mark.parametrize("name", ["subspaces", "ladder", "bars", "ood"])
def test_eps_has_nothing_transparent_and_the_figure_keeps_its_own_colours(name, tmp_path, caplog):
    drawn = EVERY[name]()
    before = figures.write(drawn, tmp_path / "before.svg").read_bytes()
    with caplog.at_level(logging.WARNING):
        figures.write(drawn, tmp_path / "figure.eps")
    assert "transparency" not in caplog.text
    assert figures.write(drawn, tmp_path / "after.svg").read_bytes() == before


def test_very_many_rows_are_pixels(tmp_path):
    sizes = {}
    for rows in (MOST_VECTORS, MOST_VECTORS + 1):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(rows, 2))
        view = View((Axis("a 1", "spurious"), Axis("b 1", "main")), scores, scores, np.eye(2), None, None)
        many = replace(findings(), view=view, shown=np.arange(rows), group=rng.integers(4, size=rows))
        pdf = figures.write(figures.subspaces(many), tmp_path / f"{rows}.pdf").read_bytes()
        sizes[b"/Subtype /Image" in pdf] = len(pdf)
    assert sizes.keys() == {False, True}
    assert sizes[True] < sizes[False]


# Sizes and names ------------------------------------------------------------------------------------------------------


def named(names):
    """The findings with other names for everything that has one."""
    found, more = findings(), iter(names * 9)
    axes = tuple(replace(axis, name=f"{next(more)} {k}") for k, axis in enumerate(found.view.axes))
    judged = tuple(replace(one, name=name) for one, name in zip(found.judged, names, strict=False))
    trace = found.traces[""]
    return replace(
        found, method=names[0], main=names[1], concepts=(names[2],), classes=names[:2], groups=names[:4],
        judged=judged, view=replace(found.view, axes=axes), traces={names[0]: trace, names[3]: trace},
        looks=looks(names[:3]),
    )  # fmt: skip


def drawn_with(names, width):
    found = named(names)
    series = {name: (X, X + k) for k, name in enumerate(names[:4])}
    yield figures.subspaces(found, width=width)
    yield figures.ladder(found, width=width)
    yield figures.group_bars(found, width=width)
    yield figures.gradcam_grid(found, width=width)
    yield figures.curves({names[0]: series, names[3]: series}, x_name=names[1], y_name=names[3], width=width)
    yield figures.curves(series, x_name=names[1], y_name=names[0], reference={names[3]: 1.0}, width=width)


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize("names", [HOSTILE[:4], HOSTILE[2:], tuple("abcd")], ids=["signs", "long", "short"])
def test_texts_are_inside_the_figure_do_not_overlap_and_can_be_read(names, width):
    for figure in drawn_with(names, width):
        assert figure.get_figwidth() == {"column": 3.3, "page": 6.9}[width]
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown(figure)]
        assert min(text.get_fontsize() for text in shown(figure)) >= SMALL
        for k, (words, box) in enumerate(boxes):
            assert -2 <= box.x0 <= box.x1 <= figure.bbox.x1 + 2, words
            assert -2 <= box.y0 <= box.y1 <= figure.bbox.y1 + 2, words
            for other, beside in boxes[k + 1 :]:
                wide = min(box.x1, beside.x1) - max(box.x0, beside.x0)
                high = min(box.y1, beside.y1) - max(box.y0, beside.y0)
                assert min(wide, high) < 2, (words, other)


def test_names_are_shown_as_they_are(tmp_path):
    names, seen = HOSTILE[:4], []
    for k, figure in enumerate(drawn_with(names, "page")):
        seen.append(squeezed(texts(figures.write(figure, tmp_path / f"{k}.svg"))))
    for words in (*seen[:4:2], seen[4], seen[5]):  # all but the ladder and the maps have all four
        assert all(squeezed(name) in words for name in names)
    assert all(squeezed(name) in seen[1] for name in (names[0], names[3]))
    assert all(squeezed(name) in seen[3] for name in names[:3])


def test_names_that_are_too_long_end_with_a_sign_and_control_characters_do_not_break_the_file(tmp_path):
    assert literal("word " * 50, 20, 2).count("\n") == 1
    assert literal("word " * 50, 20, 2).endswith("…")
    assert literal("x" * 100, 20, 2).replace("\n", "") == "x" * 39 + "…"
    assert literal("as it is", 20) == "as it is"
    drawn = figures.curves({"a\x00b\x1b\ud800\nc\td": (X, X)})
    assert "a\ufffdb\ufffd\ufffd c d" in texts(figures.write(drawn, tmp_path / "figure.svg"))


def test_width_is_a_name_or_inches():
    assert figures.curves(numbers(), width=4.5).get_figwidth() == 4.5
    for width in ("wide", 0.5, None):
        with pytest.raises(InputError, match="'column'"):
            figures.curves(numbers(), width=width)


# Subspaces ------------------------------------------------------------------------------------------------------------


def points(axis):
    return np.vstack([np.asarray(part.get_offsets()) for part in axis.collections])


def test_subspaces_show_the_rows_along_the_chosen_directions():
    found = findings()
    before, _, after, _ = figures.subspaces(found).axes
    names = [axis.name for axis in found.view.axes]
    i, j = names.index("background 1"), names.index("bird 1")
    for axis, scores in ((before, found.view.before), (after, found.view.after)):
        expected = scores[found.shown][:, [i, j]]
        assert np.sort(points(axis), axis=0) == pytest.approx(np.sort(expected, axis=0))
    assert np.ptp(points(after)[:, 0]) < 1e-6 < np.ptp(points(before)[:, 0])
    chosen = figures.subspaces(found, x=names[-1], y=i).axes[0]
    assert chosen.get_xlabel() == names[-1]
    assert chosen.get_ylabel() == "background 1 (spurious)"


def test_groups_differ_in_colour_and_marker_and_rows_without_a_group_are_there():
    found = findings()
    group = np.where(np.arange(len(found.group)) % 10, found.group, -1)
    drawn = figures.subspaces(replace(found, group=group))
    legend = {" ".join(text.get_text().split()): handle for text, handle in zip(*_legend(drawn), strict=True)}
    assert {*found.groups, "concept not known"} < legend.keys()
    looks_of = {(handle.get_color(), handle.get_marker()) for name, handle in legend.items() if "boundary" not in name}
    colours, markers = zip(*looks_of, strict=True)
    assert len(set(colours)) == len(set(markers)) == 5
    assert len(points(drawn.axes[0])) == len(found.shown)


def _legend(figure):
    legend = figure.legends[0]
    return legend.get_texts(), legend.legend_handles


@pytest.mark.parametrize("angle", [90, 35])
def test_the_boundary_is_where_the_last_layer_changes_its_answer(angle):
    """Also for directions at an angle, whose scores are not coordinates."""
    turn = np.radians(angle)
    axes = np.array([[1.0, 0.0], [np.cos(turn), np.sin(turn)]])
    weights, offset = np.array([0.8, -1.7]), 0.3
    rows = np.random.default_rng(0).normal(size=(200, 2))
    boundary = Boundary(offset, axes @ weights)
    view = View((Axis("a", "spurious"), Axis("b", "main")), rows @ axes.T, rows @ axes.T, axes @ axes.T, boundary, None)
    found = replace(findings(), view=view, shown=np.arange(200), group=np.zeros(200, dtype=int))
    before, _, after, _ = figures.subspaces(found).axes
    line = next(line for line in before.lines if line.get_linestyle() == "--")
    assert not [line for line in after.lines if line.get_linestyle() == "--"]
    start, end = np.array([line.get_xy1(), line.get_xy2()])
    for scores in (start, end, 2 * end - start):
        point = np.linalg.solve(axes, scores)
        assert point @ weights + offset == pytest.approx(0, abs=1e-9)


def test_directions_that_are_not_there_are_refused():
    found = findings()
    with pytest.raises(InputError, match="no direction 'sky'; there are 0 'background 1'"):
        figures.subspaces(found, x="sky")
    with pytest.raises(InputError, match="both 'bird 1'"):
        figures.subspaces(found, x="bird 1", y="bird 1")
    alone = replace(found.view, axes=found.view.axes[:1])
    with pytest.raises(InputError, match="two directions; the findings have 'background 1'"):
        figures.subspaces(replace(found, view=alone))


def test_without_directions_of_its_own_a_removal_is_seen_along_the_layers():
    found = making.nothing_removed()
    axis = figures.subspaces(found).axes[0]
    assert [axis.get_xlabel(), axis.get_ylabel()] == [axis.name for axis in found.view.axes]
    assert {axis.role for axis in found.view.axes} == {"layer"}


# Ladder ---------------------------------------------------------------------------------------------------------------


def test_the_ladder_shows_every_test_and_decision():
    found = findings()
    trace = found.traces[""]
    drawn = figures.ladder(found, width="page")
    words = read(drawn)
    accepted = sum(step.verdict.proper for step in trace)
    assert 0 < accepted < len(trace)
    assert words.count("✓ accepted") == accepted
    assert words.count("✗ rejected") == len(trace) - accepted
    assert all(step.verdict.reason in words for step in trace)
    marks = [line for line in drawn.axes[0].lines if line.get_marker() in "oD" and len(line.get_xdata()) == 1]
    own = [step.verdict.own.t * (1 if step.verdict.role == "main" else -1) for step in trace]
    expected = [value for step, t in zip(trace, own, strict=True) for value in (-step.verdict.informative.t, t)]
    assert [line.get_xdata()[0] for line in marks] == pytest.approx(expected)
    filled = [to_hex(line.get_markerfacecolor()) != "#ffffff" for line in marks]
    assert filled == [value > 1.6448536 for value in expected]
    both = [all(pair) for pair in zip(filled[::2], filled[1::2], strict=True)]
    assert both == [step.verdict.proper for step in trace]


def test_the_threshold_follows_the_level():
    found = findings()
    for level, threshold in ((0.05, "1.64"), (0.001, "3.09")):
        assert f"threshold {threshold} ({100 * level:g} % level)" in read(
            figures.ladder(replace(found, significance_level=level))
        )
        assert f"threshold {threshold} ({100 * level:g} % level)" in read(
            figures.ladder(found.traces[""], significance_level=level)
        )
    with pytest.raises(InputError, match="significance_level"):
        figures.ladder(found.traces[""], significance_level=2)


def test_methods_with_one_test_show_one_and_several_concepts_have_a_part_each():
    toy = make_toy(800, rho=0.8, random_state=0)
    inlp = INLP(random_state=0).fit(toy.Z, toy.y, concept=toy.concept).trace_
    second = "… and better than the other label"
    assert second not in read(figures.ladder(inlp))
    assert second in read(figures.ladder(findings()))
    parts = read(figures.ladder(Traces({"place": findings().traces[""], "light": findings().traces[""]})))
    assert {"place", "light"} < set(parts)
    assert parts.count("spurious 1") == 2


def test_a_method_without_tests_has_no_ladder():
    with pytest.raises(InputError, match="LEACE tested no directions"):
        figures.ladder(making.closed_form_findings())
    toy = make_toy(200, random_state=0)
    with pytest.raises(InputError, match="got ClosedFormTrace"):
        figures.ladder(LEACE().fit(toy.Z, toy.y, concept=toy.concept).trace_)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e12])
def test_any_statistic_fits_on_the_ladder(size):
    trace = findings().traces[""]
    steps = [
        replace(
            step,
            verdict=replace(
                step.verdict,
                informative=replace(step.verdict.informative, t=size * step.verdict.informative.t),
                own=replace(step.verdict.own, t=size * step.verdict.own.t),
            ),
        )
        for step in trace
    ]
    drawn = figures.ladder(replace(trace, steps=tuple(steps)))
    low, high = drawn.axes[0].get_xlim()
    assert low < 0 < 1.6448536 < high
    assert all(low <= value <= high for line in drawn.axes[0].lines[:-2] for value in line.get_xdata())


# Bars -----------------------------------------------------------------------------------------------------------------


def widths(axis):
    return [bar.get_width() for container in axis.containers for bar in getattr(container, "patches", [])]


def test_bars_are_the_accuracies_with_their_intervals():
    found = findings()
    axis = figures.group_bars(found).axes[0]
    results = [judged.accuracy for judged in found.judged]
    expected = [[*result.accuracy.ravel(), result.group_average, result.average] for result in results]
    assert widths(axis) == pytest.approx(100 * np.ravel(expected))
    spans = np.vstack([np.array(part.get_segments())[:, :, 0] for part in axis.collections])
    intervals = [
        np.vstack([result.interval().reshape(-1, 2), result.group_average_interval(), result.average_interval()])
        for result in results
    ]
    assert spans == pytest.approx(100 * np.vstack(intervals))
    alone = figures.group_bars({"JSE": results[1]}, averages=False, groups=list("abcd"))
    assert len(widths(alone.axes[0])) == 4
    assert {"a", "b", "c", "d", "JSE"} < set(read(alone))


def test_methods_have_their_colours_and_the_worst_group_is_bold():
    found = findings()
    drawn = figures.group_bars(found)
    legend = {text.get_text(): to_hex(handle.get_facecolor()) for text, handle in zip(*_legend(drawn), strict=True)}
    assert legend == {judged.name: METHOD_COLOURS[judged.name].lower() for judged in found.judged}
    bold = [text.get_text() for text in drawn.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == [f"{100 * judged.accuracy.worst:.1f}" for judged in found.judged]


def test_a_method_without_a_result_is_mentioned_and_a_group_without_rows_too():
    found = findings()
    failed = replace(found.judged[2], accuracy=None, problem="did not converge")
    assert "no result: INLP" in read(figures.group_bars(replace(found, judged=(*found.judged[:2], failed))))
    empty = GroupAccuracy.of(np.ones(3, dtype=bool), [0, 0, 1], [0, 1, 0], empty="nan")
    assert "no rows" in read(figures.group_bars({"JSE": empty}))


def test_results_that_do_not_belong_together_are_refused():
    one, other = (
        GroupAccuracy.of(np.ones(4, dtype=bool), [0, 0, 1, 1], [0, 1, 0, 1], classes=classes)
        for classes in (("a", "b"), ("c", "d"))
    )
    with pytest.raises(InputError, match="'JSE' and 'ERM' were judged on other groups"):
        figures.group_bars({"JSE": one, "ERM": other})
    with pytest.raises(InputError, match="4 groups, and 1 names"):
        figures.group_bars({"JSE": one}, groups=["a"])
    with pytest.raises(InputError, match="no accuracies"):
        figures.group_bars({})


# Curves ---------------------------------------------------------------------------------------------------------------


def line_of(axis, method, dashed=False):
    return next(
        line
        for line in axis.lines
        if to_hex(line.get_color()) == METHOD_COLOURS[method].lower() and (line.get_linestyle() == "--") == dashed
    )


def test_curves_show_means_and_bands_in_the_colours_of_the_methods():
    axis = figures.curves(numbers(), reference={"best": 93.0}).axes[0]
    for name, (x, mean, _, _) in numbers().items():
        line = line_of(axis, name)
        assert line.get_xdata() == pytest.approx(x)
        assert line.get_ydata() == pytest.approx(mean)
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (85, 92)
    assert [line.get_ydata() for line in axis.lines if line.get_color() == "0.25"] == [[93.0, 93.0]]
    assert line_of(axis, "JSE").get_marker() != line_of(axis, "ERM").get_marker()
    backwards = figures.curves({"JSE": (X[::-1], [1, 2, 3])}).axes[0]
    assert line_of(backwards, "JSE").get_ydata() == pytest.approx([3, 2, 1])


def test_methods_that_share_a_colour_differ_in_marker_and_dashes():
    axis = figures.curves({"SPLINCE": (X, X), "SUBG": (X, X)}).axes[0]
    one, other = (line for line in axis.lines if to_hex(line.get_color()) == METHOD_COLOURS["SUBG"].lower())
    assert one.get_marker() != other.get_marker()
    assert one.get_linestyle() != other.get_linestyle()


def test_one_point_of_each_method_is_a_line_of_its_own():
    axis = figures.curves({"JSE": ([0.9], [80], [78], [83]), "ERM": ([0.9], [60])}, x_name="p", y_name="worst").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["JSE", "ERM"]
    assert axis.get_xlabel() == "worst, at p = 0.9"
    assert [line_of(axis, name).get_xdata()[0] for name in ("JSE", "ERM")] == [80, 60]


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ({}, "no curves"),
        ({"JSE": (X,)}, "1 columns"),
        ({"JSE": (X, [1, 2])}, "equally many; got 3, 2"),
        ({"JSE": (X, ["a", "b", "c"])}, "must be numbers"),
        ({"JSE": (X, [90, 80, 70], [2, 2, 2], [3, 3, 3])}, "bounds, not half widths"),
    ],
)
def test_series_that_are_none_are_refused(series, words):
    with pytest.raises(InputError, match=words):
        figures.curves(series)


def test_ood_curves_show_accuracies_alone_beside_what_was_published():
    drawn = figures.ood_curves(summary(), reference={"average": 84.0})
    assert [axis.get_title(loc="left") for axis in drawn.axes] == [
        "average accuracy, %", "accuracy of the worst group, %",
    ]  # fmt: skip
    ours = [line for line in summary().lines if line.method == "JSE" and line.metric == "worst_group"]
    assert line_of(drawn.axes[1], "JSE").get_ydata() == pytest.approx([line.mean for line in ours])
    published = [line.published.mean for line in ours]
    assert line_of(drawn.axes[1], "JSE", dashed=True).get_ydata() == pytest.approx(published)
    assert {"published", "Bayes accuracy: 84"} < set(read(drawn))
    assert "published" not in read(figures.ood_curves(summary(), published=False))


def test_reconstruction_curves_show_errors_alone():
    drawn = figures.reconstruction_curves(summary("toy-reconstruction"))
    assert len(drawn.axes) == 2
    ours = [line for line in summary("toy-reconstruction").lines if (line.method, line.metric) == ("JSE", "mse_main")]
    assert line_of(drawn.axes[0], "JSE").get_ydata() == pytest.approx([line.mean for line in ours])


def test_summaries_without_the_metric_or_with_another_axis_are_refused():
    with pytest.raises(InputError, match=r"toy-ood has no errors of reconstruction: it measured .*average"):
        figures.reconstruction_curves(summary())
    sizes = summary("toy-sample-size")
    with pytest.raises(InputError, match="vary rho only; toy-sample-size also varies n"):
        figures.ood_curves(sizes)
    n = max(sizes.experiment.dataset["n"])
    at = [line.mean for line in sizes.lines if (line.method, line.metric, line.at["n"]) == ("JSE", "average", n)]
    assert line_of(figures.ood_curves(sizes, at={"n": n}).axes[0], "JSE").get_ydata() == pytest.approx(at)
    with pytest.raises(InputError, match=r"no accuracies at \{'n': 7\}"):
        figures.ood_curves(sizes, at={"n": 7})


# Grad-CAM -------------------------------------------------------------------------------------------------------------


def images(axis):
    return [np.asarray(part.get_array()) for part in axis.get_children() if isinstance(part, AxesImage)]


def test_the_grid_has_every_picture_plain_and_under_every_map():
    drawn = figures.gradcam_grid(findings())
    assert [len(images(axis)) for axis in drawn.axes] == [1] * 9
    plain, *under = (images(axis)[0] for axis in drawn.axes[:3])
    assert np.array_equal(plain, np.asarray(findings().looks.pictures[0]))
    assert not np.array_equal(*under)
    assert {"picture", "as they are", "JSE", "speaks for landbird", "speaks for waterbird"} < set(read(drawn))


def test_maps_of_an_experiment_come_with_predictions_and_outlines():
    rng = np.random.default_rng(0)
    seen = Seen(rng.normal(size=(2, 7, 7)), np.array([0, 1]), np.array([True, False]), np.array([0.4, np.nan]))
    looked = LookedAt(("a", "b"), np.array([0, 2]), np.full(2, 0.2), None, "here", {"ERM": seen})
    mask = np.zeros((48, 48))
    mask[10:20, 10:20] = 1
    by_name = dict(zip("ab", pictures(2), strict=True))
    drawn = figures.gradcam_grid(looked, lambda name: (by_name[name], mask))
    assert {"✓ 40 % inside", "✗", "landbirds on land", "waterbirds on land"} < set(read(drawn))
    outlined = images(drawn.axes[0])[0]
    assert not np.array_equal(outlined, np.asarray(by_name["a"]))
    assert np.array_equal(outlined[30:], np.asarray(by_name["a"])[30:])
    with pytest.raises(InputError, match="without pictures"):
        figures.gradcam_grid(looked)


def test_findings_without_maps_and_names_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="no Grad-CAM maps"):
        figures.gradcam_grid(making.toy_findings())
    with pytest.raises(InputError, match="3 pictures, and 1 names"):
        figures.gradcam_grid(looks(), names=["a"])
    with pytest.raises(InputError, match="no pictures"):
        figures.gradcam_grid(looks(rows=0))


# All of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bars", "lines", "maps", "plane", "rungs", "summaries", "writing"])
def test_docstring_examples_run(name):
    module = importlib.import_module(f"unspur.lab.report.figures.{name}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3
    assert result.failed == 0


def test_the_library_is_loaded_by_drawing_alone():
    code = (
        "import sys, unspur.lab.report.figures as f; print('matplotlib' in sys.modules); f.curves({'JSE': ([1], [1])});"
    )
    code += "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
