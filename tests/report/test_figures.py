"""Figures show what they are given; as files they are vectors, the same bytes, with no settings but ours."""

import re
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.stats import norm
from scipy.stats import t as student

from tests.report import making
from tests.report.drawing import (
    EVERY,
    FROM_FINDINGS,
    HOSTILE,
    WORDS,
    X,
    findings,
    numbers,
    read,
    shown,
    squeezed,
    texts,
)
from unspur import INLP, LEACE
from unspur.datasets import make_toy
from unspur.exceptions import InputError, OutputExistsError
from unspur.metrics import GroupAccuracy
from unspur.report import figures
from unspur.report.colours import METHOD_COLOURS
from unspur.report.figures.rows import MAX_VECTOR_ROWS
from unspur.report.figures.style import MIN_FONT_SIZE, literal
from unspur.report.results import Axis, Boundary, View
from unspur.trace import Traces


def points(axis):
    return np.vstack([np.asarray(part.get_offsets()) for part in axis.collections])


def legend_of(figure):
    legend = figure.legends[0]
    return dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))


def line_of(axis, method, dashed=False):
    return next(
        line
        for line in axis.lines
        if to_hex(line.get_color()) == METHOD_COLOURS[method].lower() and (line.get_linestyle() == "--") == dashed
    )


def test_subspaces_show_the_rows_along_the_chosen_directions():
    found = findings()
    before, _, after, _ = figures.subspaces(found).axes
    names = [axis.name for axis in found.view.axes]
    i, j = names.index("background 1"), names.index("bird 1")
    for axis, scores in ((before, found.view.before), (after, found.view.after)):
        expected = scores[found.drawn_rows][:, [i, j]]
        assert np.sort(points(axis), axis=0) == pytest.approx(np.sort(expected, axis=0))
    assert np.ptp(points(after)[:, 0]) < 1e-6 < np.ptp(points(before)[:, 0])
    chosen = figures.subspaces(found, x=names[-1], y=i).axes[0]
    assert chosen.get_xlabel() == names[-1]
    assert chosen.get_ylabel().startswith("background 1")
    assert figures.subspaces(found, y=i).axes[0].get_xlabel().startswith("bird 1")


def test_groups_differ_in_colour_and_marker_and_rows_without_a_group_are_there():
    found = findings()
    group = np.where(np.arange(len(found.group)) % 10, found.group, -1)
    drawn = figures.subspaces(replace(found, group=group))
    legend = {" ".join(name.split()): handle for name, handle in legend_of(drawn).items()}
    assert {*found.groups, "concept not known"} < legend.keys()
    looks_of = {(handle.get_color(), handle.get_marker()) for name, handle in legend.items() if "boundary" not in name}
    colours, markers = zip(*looks_of, strict=True)
    assert len(set(colours)) == len(set(markers)) == 5
    assert len(points(drawn.axes[0])) == len(found.drawn_rows)


@pytest.mark.parametrize("angle", [90, 35])
def test_the_boundary_is_where_the_head_changes_its_answer(angle):
    """Also for directions at an angle, whose scores are not coordinates."""
    turn = np.radians(angle)
    axes = np.array([[1.0, 0.0], [np.cos(turn), np.sin(turn)]])
    weights, offset = np.array([0.8, -1.7]), 0.3
    rows = np.random.default_rng(0).normal(size=(200, 2))
    boundary = Boundary(offset, axes @ weights)
    view = View((Axis("a", "spurious"), Axis("b", "main")), rows @ axes.T, rows @ axes.T, axes @ axes.T, boundary, None)
    found = replace(findings(), view=view, drawn_rows=np.arange(200), group=np.zeros(200, dtype=int))
    before, _, after, _ = figures.subspaces(found).axes
    line = next(line for line in before.lines if line.get_linestyle() == "--")
    assert not [line for line in after.lines if line.get_linestyle() == "--"]
    start, end = np.array([line.get_xy1(), line.get_xy2()])
    for scores in (start, end, 2 * end - start):
        assert np.linalg.solve(axes, scores) @ weights + offset == pytest.approx(0, abs=1e-9)


def test_directions_that_are_not_there_are_refused():
    found = findings()
    alone = replace(found, view=replace(found.view, axes=found.view.axes[:1]))
    for given, axes, word in (
        (found, {"x": "sky"}, "sky"),
        (found, {"x": 1, "y": "bird 1"}, "both"),
        (alone, {}, "two"),
    ):
        with pytest.raises(InputError, match=word):
            figures.subspaces(given, **axes)
    heads = making.nothing_removed()
    axis = figures.subspaces(heads).axes[0]
    assert [axis.get_xlabel(), axis.get_ylabel()] == [axis.name for axis in heads.view.axes]


def test_the_ladder_shows_every_test_and_decision():
    found = findings()
    trace = found.traces[""]
    drawn = figures.ladder(found, width="page")
    words = read(drawn)
    accepted = [step.verdict.proper for step in trace]
    assert 0 < sum(accepted) < len(trace)
    assert words.count("✓ accepted") == sum(accepted)
    assert words.count("✗ rejected") == len(trace) - sum(accepted)
    assert all(step.verdict.reason in words for step in trace)
    marks = {}
    for line in drawn.axes[0].lines:
        if line.get_marker() in ("o", "D"):
            filled = to_hex(line.get_markerfacecolor()) != "#ffffff"
            for x, y in line.get_xydata():
                marks[line.get_marker(), round(y)] = (x, filled)
    for y, verdict in enumerate(step.verdict for step in trace):
        both = []
        for marker, test, sign in (
            ("o", verdict.informative, -1),
            ("D", verdict.specific, 1 if verdict.role == "main" else -1),
        ):  # t, in units in which its own critical value is the threshold's
            x, filled = marks[marker, y]
            assert x == pytest.approx(sign * test.t * norm.ppf(0.05) / student.ppf(0.05, test.df))
            assert filled == (x > 1.6448536)
            both.append(filled)
        assert all(both) == verdict.proper


def test_the_threshold_follows_the_level_and_several_concepts_have_a_part_each():
    found, toy = findings(), make_toy(800, rho=0.8, random_state=0)
    second = "specific: … and better than the other label"
    for level, threshold in ((0.05, "1.64"), (0.001, "3.09")):
        words = f"threshold {threshold} ({100 * level:g} % level)"
        inlp = INLP(random_state=0, significance_level=level).fit(toy.Z, toy.y, concept=toy.concept)
        assert words in read(figures.ladder(inlp.trace_))
        assert second not in read(figures.ladder(inlp.trace_))
        assert words in read(figures.ladder(found.traces[""], significance_level=level))
    assert second in read(figures.ladder(found))
    parts = read(figures.ladder(Traces({"place": found.traces[""], "light": found.traces[""]})))
    assert {"place", "light"} < set(parts)
    assert parts.count("concept 1") == 2
    leace = LEACE().fit(toy.Z, toy.y, concept=toy.concept).trace_
    for given, options, word in (
        (found, {"significance_level": 2}, "significance_level"),
        (making.closed_form_findings(), {}, "LEACE"),
        (leace, {}, "ladder"),
    ):
        with pytest.raises(InputError, match=word):
            figures.ladder(given, **options)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e12])
def test_any_statistic_fits_on_the_ladder(size):
    def larger(step):
        tests = {name: getattr(step.verdict, name) for name in ("informative", "specific")}
        changed = {name: replace(test, t=size * test.t) for name, test in tests.items()}
        return replace(step, verdict=replace(step.verdict, **changed))

    trace = findings().traces[""]
    axis = figures.ladder(replace(trace, steps=tuple(map(larger, trace)))).axes[0]
    low, high = axis.get_xlim()
    assert low < 0 < 1.6448536 < high
    assert all(low <= x <= high for line in axis.lines if line.get_marker() in ("o", "D") for x in line.get_xdata())


def widths(axis):
    return [bar.get_width() for container in axis.containers for bar in getattr(container, "patches", [])]


def test_bars_are_the_accuracies_with_their_intervals():
    found = findings()
    drawn = figures.group_bars(found)
    axis = drawn.axes[0]
    results = [judged.accuracy for judged in found.results]
    expected = [[*result.accuracy.ravel(), result.group_average, result.average] for result in results]
    assert widths(axis) == pytest.approx(100 * np.ravel(expected))
    spans = np.vstack([np.array(part.get_segments())[:, :, 0] for part in axis.collections])
    intervals = [
        np.vstack([result.interval().reshape(-1, 2), result.group_average_interval(), result.average_interval()])
        for result in results
    ]
    assert spans == pytest.approx(100 * np.vstack(intervals))
    colours = {name: to_hex(handle.get_facecolor()) for name, handle in legend_of(drawn).items()}
    assert colours == {judged.name: METHOD_COLOURS[judged.name].lower() for judged in found.results}
    bold = [text.get_text() for text in axis.texts if text.get_fontweight() == "bold"]
    assert bold == [f"{100 * judged.accuracy.worst:.1f}" for judged in found.results]
    alone = figures.group_bars({"JSE": results[1]}, averages=False, groups=list("abcd"))
    assert len(widths(alone.axes[0])) == 4
    assert {"a", "b", "c", "d", "JSE"} < set(read(alone))
    empty = GroupAccuracy.of(np.ones(3, dtype=bool), [0, 0, 1], [0, 1, 0], empty="nan")
    assert "no rows" in read(figures.group_bars({"JSE": empty}))


def test_results_that_do_not_belong_together_are_refused():
    one, other = (
        GroupAccuracy.of(np.ones(4, dtype=bool), [0, 0, 1, 1], [0, 1, 0, 1], classes=classes)
        for classes in (("a", "b"), ("c", "d"))
    )
    for results, options, word in (
        ({"JSE": one, "ERM": other}, {}, "different"),
        ({"JSE": one}, {"groups": ["a"]}, "names"),
        ({}, {}, "no accuracies"),
    ):
        with pytest.raises(InputError, match=word):
            figures.group_bars(results, **options)


def test_probes_are_drawn_before_and_after_every_removal():
    found = findings()
    axis = figures.probes(found).axes[0]
    labels = [" ".join(label.get_text().split()) for label in axis.get_yticklabels()]
    assert labels[0] == "background"
    assert "background, small network" in labels
    assert labels[-1] == "task: bird"
    drawn = {
        (to_hex(container.lines[0].get_color()), round(y)): x
        for container in axis.containers
        for x, y in container.lines[0].get_xydata()
    }
    for result in found.results:
        leak = result.leakage["background"]
        assert drawn[METHOD_COLOURS[result.name].lower(), 0] == pytest.approx(100 * leak.accuracy)
    network = labels.index("background, small network")
    was, now = found.nonlinear_before["background"], found.nonlinear["background"]
    assert drawn[METHOD_COLOURS["no removal"].lower(), network] == pytest.approx(100 * was.accuracy)
    assert drawn[METHOD_COLOURS["JSE"].lower(), network] == pytest.approx(100 * now.accuracy)


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
    same = figures.curves({"SPLINCE": (X, X), "SUBG": (X, X)}).axes[0]
    one, other = (line for line in same.lines if to_hex(line.get_color()) == METHOD_COLOURS["SUBG"].lower())
    assert one.get_marker() != other.get_marker()
    assert one.get_linestyle() != other.get_linestyle()


@pytest.mark.parametrize(
    ("series", "word"),
    [
        ({}, "no curves"),
        ({"JSE": (X,)}, "columns"),
        ({"JSE": (X, [1, 2])}, "equally"),
        ({"JSE": (X, ["a", "b", "c"])}, "numbers"),
        ({"JSE": (X, [90, 80, 70], [2, 2, 2], [3, 3, 3])}, "bounds"),
    ],
)
def test_series_that_are_none_are_refused(series, word):
    with pytest.raises(InputError, match=word):
        figures.curves(series)


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Files of every kind of figure, as they are written where nobody has changed a setting."""
    folder = tmp_path_factory.mktemp("plain")
    return {name: figures.write(draw(), folder / f"{name}.svg") for name, draw in EVERY.items()}


@pytest.mark.parametrize("name", EVERY)
def test_figures_are_vectors_with_text_as_text(name, plain, tmp_path):
    assert WORDS[name] in texts(plain[name])
    pdf = figures.write(EVERY[name](), tmp_path / "figure.pdf").read_bytes()
    assert b"/Subtype /Image" not in pdf
    assert b"/FontFile2" in pdf  # embedded
    assert b"/Type3" not in pdf


@pytest.mark.parametrize("name", EVERY)
def test_settings_of_the_user_neither_leak_in_nor_out(name, plain, tmp_path):
    """The same figure has the same bytes, whatever somebody has set."""
    mine = {
        "font.size": 20,
        "font.family": "monospace",
        "axes.grid": True,
        "svg.fonttype": "path",
        "svg.hashsalt": "mine",
        "text.color": "red",
        "xtick.color": "red",
        "axes.prop_cycle": mpl.cycler(color=["red"]),
        "figure.constrained_layout.use": False,
    }
    ours = EVERY[name]()
    with mpl.rc_context(mine):
        ours.savefig(tmp_path / "saved.svg")  # by other means, in which case the format is theirs and the style is ours
        settings = dict(mpl.rcParams)
        assert figures.write(EVERY[name](), tmp_path / "mine.svg").read_bytes() == plain[name].read_bytes()
        assert dict(mpl.rcParams) == settings
    assert not re.search("#ff0000", (tmp_path / "saved.svg").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_the_same_figure_gives_the_same_bytes_and_other_data_others(kind, tmp_path):
    other = {**numbers(), "ERM": (X, [91, 80, 61], [90, 78, 55], [92, 82, 65])}
    written = [
        figures.write(figures.curves(data), tmp_path / f"{k}.{kind}").read_bytes()
        for k, data in enumerate((numbers(), numbers(), other))
    ]
    assert written[0] == written[1] != written[2]


def test_a_figure_may_be_changed_and_written_again(tmp_path):
    drawn = EVERY["group_bars"]()
    top = max(axis.get_position().y1 for axis in drawn.axes)
    figures.write(drawn, tmp_path / "before.svg")
    drawn.suptitle("added later")
    figures.write(drawn, tmp_path / "after.svg")
    assert "added later" in texts(tmp_path / "after.svg")
    drawn.draw_without_rendering()
    assert max(axis.get_position().y1 for axis in drawn.axes) < top  # the layout still makes room


def test_files_are_not_replaced_unless_asked_and_formats_are_named(tmp_path, monkeypatch):
    drawn, path = figures.curves(numbers()), tmp_path / "figure.svg"
    figures.write(drawn, path)
    with pytest.raises(OutputExistsError, match="figure"):
        figures.write(drawn, path)
    figures.write(drawn, path, overwrite=True)
    before = path.read_bytes()
    for name in ("figure.eps", "figure"):
        with pytest.raises(InputError, match="svg"):
            figures.write(drawn, tmp_path / name)
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        figures.write(drawn, path, overwrite=True)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["figure.svg"]
    assert drawn.get_layout_engine() is not None


def test_very_many_rows_are_pixels(tmp_path):
    sizes = {}
    for rows in (MAX_VECTOR_ROWS, MAX_VECTOR_ROWS + 1):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=(rows, 2))
        view = View((Axis("a 1", "spurious"), Axis("b 1", "main")), scores, scores, np.eye(2), None, None)
        many = replace(findings(), view=view, drawn_rows=np.arange(rows), group=rng.integers(4, size=rows))
        pdf = figures.write(figures.subspaces(many), tmp_path / f"{rows}.pdf").read_bytes()
        sizes[b"/Subtype /Image" in pdf] = len(pdf)
    assert sizes.keys() == {False, True}
    assert sizes[True] < sizes[False]


# Sizes and names ------------------------------------------------------------------------------------------------------


def named(names):
    """The findings with other names for everything that has one."""
    found = findings()
    axes = tuple(replace(axis, name=f"{names[k % 4]} {k}") for k, axis in enumerate(found.view.axes))
    judged = tuple(replace(one, name=name) for one, name in zip(found.results, names, strict=False))
    trace, probe = found.traces[""], found.certificate.probe
    return replace(
        found,
        method=names[0],
        main=names[1],
        concepts=(names[2],),
        groups=names[:4],
        results=judged,
        view=replace(found.view, axes=axes),
        traces={names[0]: trace, names[3]: trace},
        certificate=replace(found.certificate, probe=dict(zip((names[2], names[3]), probe.values(), strict=False))),
        nonlinear={},
    )


def drawn_with(names, width):
    found, size = named(names), {"width": width}
    series = {name: (X, X + k) for k, name in enumerate(names[:4])}
    panels = {names[0]: series, names[3]: series}
    return {
        **{name: getattr(figures, name)(found, **size) for name in FROM_FINDINGS},
        "curves": figures.curves(series, x_name=names[1], y_name=names[0], reference={names[3]: 1.0}, **size),
        "panels": figures.curves(panels, x_name=names[1], y_name=names[3], **size),
    }


@pytest.mark.parametrize(
    ("names", "width"),
    [(HOSTILE[:4], "column"), (HOSTILE[2:], "column"), (HOSTILE[2:], "page"), (tuple("abcd"), "page")],
    ids=["signs-column", "long-column", "long-page", "short-page"],
)
def test_texts_are_inside_the_figure_do_not_overlap_and_can_be_read(names, width):
    for kind, figure in drawn_with(names, width).items():
        assert figure.get_figwidth() == {"column": 3.3, "page": 6.9}[width]
        written = shown(figure)
        assert min(text.get_fontsize() for text in written) >= MIN_FONT_SIZE
        boxes = [(text.get_text(), text.get_window_extent()) for text in written]
        for k, (words, box) in enumerate(boxes):
            assert -2 <= box.x0 <= box.x1 <= figure.bbox.x1 + 2, (kind, words)
            assert -2 <= box.y0 <= box.y1 <= figure.bbox.y1 + 2, (kind, words)
            for other, beside in boxes[k + 1 :]:
                wide = min(box.x1, beside.x1) - max(box.x0, beside.x0)
                high = min(box.y1, beside.y1) - max(box.y0, beside.y0)
                assert min(wide, high) < 2, (kind, words, other)


def test_names_are_shown_as_they_are_and_long_ones_end_with_a_sign(tmp_path):
    names = HOSTILE[:4]
    for kind in ("subspaces", "group_bars", "curves"):
        seen = squeezed(texts(figures.write(drawn_with(names, "page")[kind], tmp_path / f"{kind}.svg")))
        assert all(squeezed(name) in seen for name in names), kind
    assert literal("word " * 50, 20, 2).count("\n") == 1
    assert literal("x" * 100, 20, 2).replace("\n", "") == "x" * 39 + "…"
    drawn = figures.curves({"a\x00b\x1b\ud800\nc\td": (X, X)})
    assert "a\ufffdb\ufffd\ufffd c d" in texts(figures.write(drawn, tmp_path / "figure.svg"))


def test_width_is_a_name_or_inches():
    assert figures.curves(numbers(), width=4.5).get_figwidth() == 4.5
    for width in ("wide", 0.5, None):
        with pytest.raises(InputError, match="width"):
            figures.curves(numbers(), width=width)


def test_the_library_is_loaded_by_drawing_alone_and_pyplot_never():
    code = "import sys, unspur.report.figures as f; print('matplotlib' in sys.modules); f.curves({'JSE': ([1], [1])});"
    code += "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
    assert set(figures.__all__) - {"draw_demo", "check_format", "write"} == EVERY.keys()
