"""Figures of experiments for papers: curves of summaries, and grids of Grad-CAM maps."""

import doctest
import logging
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text
from tests.report.drawing import pictures, read, texts
from tests.report.test_figures import images, line_of

from unspur.exceptions import InputError
from unspur.report import figures
from unspur_paper.experiments.gradcam_pictures import LookedAt, Seen
from unspur_paper.experiments.reproduce import find_experiments
from unspur_paper.experiments.summary import summarise
from unspur_paper.report import curves
from unspur_paper.report.curves import ood_curves, reconstruction_curves
from unspur_paper.report.gradcam_grid import gradcam_grid


@cache
def summary(name="toy-ood", preset="exact"):
    experiment = find_experiments([name])[0]
    cells, rng = experiment.cells(preset, runs=3), np.random.default_rng(0)
    results = [
        {
            "right": rng.integers(60, 90, 4).tolist(),
            "rows": [100] * 4,
            "mse_main": rng.random() / 10,
            "mse_spurious": rng.random(),
            "d_spurious": 1,
            "d_main": 1,
        }
        for _ in cells
    ]
    return summarise(experiment, preset, "0", cells, results)


#: One of each kind of curves, and something that must be written in it.
EVERY = {
    "ood": (lambda: ood_curves(summary()), "accuracy of the worst group, %"),
    "reconstruction": (lambda: reconstruction_curves(summary("toy-reconstruction")), "nothing left: 1"),
}


def test_ood_curves_show_accuracies_alone_beside_what_was_published():
    drawn = ood_curves(summary(), reference={"average": 84.0})
    assert [axis.get_title(loc="left") for axis in drawn.axes] == [
        "average accuracy, %",
        "accuracy of the worst group, %",
    ]
    ours = [line for line in summary().lines if line.method == "JSE" and line.metric == "worst_group"]
    assert line_of(drawn.axes[1], "JSE").get_ydata() == pytest.approx([line.mean for line in ours])
    published = [line.published.mean for line in ours]
    assert line_of(drawn.axes[1], "JSE", dashed=True).get_ydata() == pytest.approx(published)
    assert {"published", "Bayes accuracy: 84"} < set(read(drawn))
    assert "published" not in read(ood_curves(summary(), published=False))


def test_reconstruction_curves_show_errors_alone():
    drawn = reconstruction_curves(summary("toy-reconstruction"))
    assert len(drawn.axes) == 2
    ours = [line for line in summary("toy-reconstruction").lines if (line.method, line.metric) == ("JSE", "mse_main")]
    assert line_of(drawn.axes[0], "JSE").get_ydata() == pytest.approx([line.mean for line in ours])


def test_summaries_without_the_metric_or_with_another_axis_are_refused():
    with pytest.raises(InputError, match=r"toy-ood has no errors of reconstruction: it measured .*average"):
        reconstruction_curves(summary())
    sizes = summary("toy-sample-size")
    with pytest.raises(InputError, match="vary rho only; toy-sample-size also varies n"):
        ood_curves(sizes)
    n = max(sizes.experiment.dataset["n"])
    at = [line.mean for line in sizes.lines if (line.method, line.metric, line.at["n"]) == ("JSE", "average", n)]
    assert line_of(ood_curves(sizes, at={"n": n}).axes[0], "JSE").get_ydata() == pytest.approx(at)
    with pytest.raises(InputError, match=r"no accuracies at \{'n': 7\}"):
        ood_curves(sizes, at={"n": 7})


@pytest.mark.parametrize("name", EVERY)
def test_curves_are_vectors_with_text_as_text_and_the_same_bytes(name, tmp_path):
    draw, words = EVERY[name]
    plain = figures.write(draw(), tmp_path / "plain.svg")
    assert words in texts(plain)
    with mpl.rc_context({"font.size": 20, "axes.grid": True, "svg.fonttype": "path", "text.color": "red"}):
        assert figures.write(draw(), tmp_path / "mine.svg").read_bytes() == plain.read_bytes()
    pdf = figures.write(draw(), tmp_path / "figure.pdf").read_bytes()
    assert b"/Subtype /Image" not in pdf
    assert b"/FontFile2" in pdf


def test_eps_has_nothing_transparent(tmp_path, caplog):
    drawn = ood_curves(summary())
    for text in drawn.findobj(Text):
        text.set_visible(False)  # it is opaque, and fonts take longer than all the rest
    with caplog.at_level(logging.WARNING):
        figures.write(drawn, tmp_path / "figure.eps")
    assert "transparency" not in caplog.text


def test_docstring_examples_run():
    result = doctest.testmod(curves, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3
    assert result.failed == 0


def test_maps_of_an_experiment_come_with_predictions_and_outlines():
    rng = np.random.default_rng(0)
    seen = Seen(rng.normal(size=(2, 7, 7)), np.array([0, 1]), np.array([True, False]), np.array([0.4, np.nan]))
    looked = LookedAt(("a", "b"), np.array([0, 2]), np.full(2, 0.2), None, "here", {"ERM": seen})
    mask = np.zeros((48, 48))
    mask[10:20, 10:20] = 1
    by_name = dict(zip("ab", pictures(2), strict=True))
    drawn = gradcam_grid(looked, lambda name: (by_name[name], mask))
    assert {"✓ 40 % inside", "✗", "landbirds on land", "waterbirds on land"} < set(read(drawn))
    outlined = images(drawn.axes[0])[0]
    assert not np.array_equal(outlined, np.asarray(by_name["a"]))
    assert np.array_equal(outlined[30:], np.asarray(by_name["a"])[30:])
