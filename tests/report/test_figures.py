"""Figures for papers show what they are given."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.image import AxesImage
from scipy.stats import norm
from scipy.stats import t as student

from tests.report import making
from tests.report.drawing import X, findings, looks, numbers, read
from unspur import INLP, LEACE
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.metrics import GroupAccuracy
from unspur.report import figures
from unspur.report.colours import METHOD_COLOURS
from unspur.report.results import Axis, Boundary, View
from unspur.trace import Traces

# Subspaces ------------------------------------------------------------------------------------------------------------


def points(axis):
    return np.vstack([np.asarray(part.get_offsets()) for part in axis.collections])


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
    assert len(points(drawn.axes[0])) == len(found.drawn_rows)


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
    found = replace(findings(), view=view, drawn_rows=np.arange(200), group=np.zeros(200, dtype=int))
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
    assert {axis.role for axis in found.view.axes} == {"head"}


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
    expected = []
    for verdict in (step.verdict for step in trace):  # t, in units in which its own critical value is the threshold's
        for test, sign in ((verdict.informative, -1), (verdict.specific, 1 if verdict.role == "main" else -1)):
            expected.append(sign * test.t * norm.ppf(0.05) / student.ppf(0.05, test.df))
    assert [line.get_xdata()[0] for line in marks] == pytest.approx(expected)
    filled = [to_hex(line.get_markerfacecolor()) != "#ffffff" for line in marks]
    assert filled == [value > 1.6448536 for value in expected]
    both = [all(pair) for pair in zip(filled[::2], filled[1::2], strict=True)]
    assert both == [step.verdict.proper for step in trace]


def test_the_threshold_follows_the_level():
    found, toy = findings(), make_toy(800, rho=0.8, random_state=0)
    for level, threshold in ((0.05, "1.64"), (0.001, "3.09")):
        words = f"threshold {threshold} ({100 * level:g} % level)"
        inlp = INLP(random_state=0, significance_level=level).fit(toy.Z, toy.y, concept=toy.concept)
        assert words in read(figures.ladder(inlp.trace_))
        assert words in read(figures.ladder(replace(found, traces={"": inlp.trace_})))
        assert words in read(figures.ladder(found.traces[""], significance_level=level))
    with pytest.raises(InputError, match="significance_level"):
        figures.ladder(found.traces[""], significance_level=2)


def test_methods_with_one_test_show_one_and_several_concepts_have_a_part_each():
    toy = make_toy(800, rho=0.8, random_state=0)
    inlp = INLP(random_state=0).fit(toy.Z, toy.y, concept=toy.concept).trace_
    second = "specific: … and better than the other label"
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
                specific=replace(step.verdict.specific, t=size * step.verdict.specific.t),
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
    results = [judged.accuracy for judged in found.results]
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
    assert legend == {judged.name: METHOD_COLOURS[judged.name].lower() for judged in found.results}
    bold = [text.get_text() for text in drawn.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == [f"{100 * judged.accuracy.worst:.1f}" for judged in found.results]


def test_a_method_without_a_result_is_mentioned_and_a_group_without_rows_too():
    found = findings()
    failed = replace(found.results[2], accuracy=None, problem="did not converge")
    assert "no result: INLP" in read(figures.group_bars(replace(found, results=(*found.results[:2], failed))))
    empty = GroupAccuracy.of(np.ones(3, dtype=bool), [0, 0, 1], [0, 1, 0], empty="nan")
    assert "no rows" in read(figures.group_bars({"JSE": empty}))


def test_results_that_do_not_belong_together_are_refused():
    one, other = (
        GroupAccuracy.of(np.ones(4, dtype=bool), [0, 0, 1, 1], [0, 1, 0, 1], classes=classes)
        for classes in (("a", "b"), ("c", "d"))
    )
    with pytest.raises(InputError, match="'JSE' and 'ERM' were evaluated on different groups"):
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


# Grad-CAM -------------------------------------------------------------------------------------------------------------


def images(axis):
    return [np.asarray(part.get_array()) for part in axis.get_children() if isinstance(part, AxesImage)]


def test_the_grid_has_every_picture_plain_and_under_every_map():
    drawn = figures.gradcam_grid(findings())
    assert [len(images(axis)) for axis in drawn.axes] == [1] * 9
    plain, *under = (images(axis)[0] for axis in drawn.axes[:3])
    assert np.array_equal(plain, np.asarray(findings().saliency.pictures[0]))
    assert not np.array_equal(*under)
    assert {"picture", "no removal", "JSE", "speaks for landbird", "speaks for waterbird"} < set(read(drawn))


def test_findings_without_maps_and_names_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="no Grad-CAM maps"):
        figures.gradcam_grid(making.toy_findings())
    with pytest.raises(InputError, match="3 pictures, and 1 names"):
        figures.gradcam_grid(looks(), names=["a"])
    with pytest.raises(InputError, match="no pictures"):
        figures.gradcam_grid(looks(rows=0))
