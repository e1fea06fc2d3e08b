"""Figures of experiments: every spec can be drawn, shows what the summary says, and is the same each time."""

import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from unspur.exceptions import InputError
from unspur_paper.experiments.cells import run_cell
from unspur_paper.experiments.folder import experiments_folder
from unspur_paper.experiments.spec_file import read_experiment
from unspur_paper.experiments.summary import summarise
from unspur_paper.report.experiment_figures import METHOD_COLOURS, draw, method_colours

#: On embeddings two stand for all: a smoke run of every spec, with its figure, is in test_reproduce.py.
#: One of each kind; smoke runs of the command draw all of them.
SPECS = [
    *("toy-ood", "toy-sample-size", "toy-illustration", "toy-nonorthogonal", "toy-pool-size", "toy-delta"),
    *("celeba-pixels", "celeba-two-concepts", "waterbirds-variants", "waterbirds-limited-labels"),
]


def read(name):
    return read_experiment(experiments_folder() / f"{name}.toml")


def without_rlace(experiment):
    return [method.name for method in experiment.methods if method.name != "RLACE"]


@cache
def smoke_summary(name):
    """Few rows, really computed, under the preset that takes the least time."""
    experiment = replace(read(name).smoke(), published=read(name).published)  # which smoke runs are not held to
    preset = "released" if "released" in experiment.presets else "exact"
    cells = experiment.cells(preset, only=without_rlace(experiment))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return summarise(experiment, preset, "0", cells, [run_cell(cell.spec) for cell in cells])


@cache
def full_summary(name):
    """The whole grid of a spec, with numbers made up; where the spec asks for panels, those of two steps."""
    experiment = read(name)
    cells = experiment.cells(experiment.presets[0], runs=3)
    rng = np.random.default_rng(0)
    return summarise(experiment, experiment.presets[0], "0", cells, [made_up(cell, rng) for cell in cells])


def made_up(cell, rng):
    if "keep" in cell.spec:
        return {"panels": [made_up_panel(removed, rng) for removed in range(3 if cell.method == "INLP" else 2)]}
    return {
        "right": rng.integers(20, 90, 4).tolist(),
        "rows": [100] * 4,
        "mse_spurious": rng.random(),
        "mse_main": rng.random(),
        "right_second": rng.integers(20, 90, 4).tolist(),
        "rows_second": [100] * 4,
        **(
            {"mouth_share": 0.3, "eyes_share": 0.1, "change": 0.01, "picture": rng.random(256).tolist()}
            if "pixels" in cell.spec["dataset"].get("encoder", "") or cell.spec["dataset"].get("encoder") == "grey-50"
            else {}
        ),
        "d_spurious": int(rng.integers(3)),
        "d_main": 1,
    }


def made_up_panel(removed, rng):
    labels = np.arange(20)
    arrows = [{"role": "spurious", "at": [1.0, 0.0]}, {"role": "true main", "at": [0.0, 1.0]}]
    return {
        "removed": removed,
        "points": rng.standard_normal((20, 2)).tolist(),
        "main": (labels % 2).tolist(),
        "concept": (labels // 2 % 2).tolist(),
        "arrows": arrows,
    }


def texts(path):
    """Lines of text of an SVG, which parses as XML or fails here."""
    return ["".join(node.itertext()).strip() for node in ET.parse(path).iter() if node.tag.endswith("}text")]


def drawn_axes(summary, folder, monkeypatch, **options):
    """Axes that carry data, as they are just before they are written."""
    figures, save = [], Figure.savefig
    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *to, **how: figures.append(figure) or save(figure, *to, **how))
        draw(summary, folder, **options)
    return [axis for axis in figures[0].axes if axis.get_title(loc="left") or axis.get_title()]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """Files of a spec's smoke summary, drawn once."""
    return cache(lambda name: draw(smoke_summary(name), tmp_path_factory.mktemp("gallery") / name))


@pytest.mark.parametrize("name", SPECS)
def test_every_experiment_can_be_drawn(name, gallery):
    summary, files = smoke_summary(name), gallery(name)
    stems = [
        "figure",
        *(["figure-pictures"] if summary.pictures else []),
        *(["figure-illustration"] if summary.panels else []),
    ]
    assert [file.name for file in files] == [f"{stem}.{kind}" for stem in stems for kind in ("svg", "png")]
    assert sorted(files[0].parent.iterdir()) == sorted(files)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files[1::2])
    seen = texts(files[0])
    assert summary.experiment.title in " ".join(seen)
    joined = "".join("".join(seen).split())  # long names stand in two lines
    shown = summary.experiment.shown or without_rlace(summary.experiment)
    assert all("".join(method.split()) in joined for method in shown)
    assert "RLACE" not in seen  # a method without runs
    assert ("published" in seen) == any(line.published is not None for line in summary.lines)


def test_some_experiments_have_published_values_and_some_an_illustration():
    summaries = [smoke_summary(name) for name in SPECS]
    published = [any(line.published is not None for line in summary.lines) for summary in summaries]
    assert any(published)
    assert not all(published)
    assert {summary.experiment.name for summary in summaries if summary.panels} == {
        "toy-illustration",
        "toy-nonorthogonal",
    }


@pytest.mark.parametrize("name", ["toy-illustration", "toy-pool-size"])
def test_same_summary_same_bytes(name, gallery, tmp_path):
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": "another", "axes.grid": True}):
        again = draw(smoke_summary(name), tmp_path)
        assert mpl.rcParams["font.size"] == 20
    assert [file.read_bytes() for file in gallery(name)] == [file.read_bytes() for file in again]


def test_another_summary_other_bytes_in_the_same_files(gallery, tmp_path):
    summary = smoke_summary("toy-shared-draws")
    before = [file.read_bytes() for file in draw(summary, tmp_path)]
    assert before == [file.read_bytes() for file in gallery("toy-shared-draws")]
    shifted = tuple(replace(line, mean=line.mean - 1.0) for line in summary.lines)
    after = [file.read_bytes() for file in draw(replace(summary, lines=shifted), tmp_path)]
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_curves_show_means_bands_and_published_values(tmp_path, monkeypatch):
    summary = full_summary("toy-ood")
    average, worst = drawn_axes(summary, tmp_path, monkeypatch)
    assert average.get_title(loc="left") == "average accuracy, %"
    assert worst.get_title(loc="left") == "accuracy of the worst group, %"
    ours = [line for line in summary.lines if line.method == "JSE" and line.metric == "average"]
    curves = [line for line in average.lines if to_hex(line.get_color()) == METHOD_COLOURS["JSE"].lower()]
    solid = next(line for line in curves if line.get_linestyle() == "-")
    dashed = next(line for line in curves if line.get_linestyle() == "--")
    assert solid.get_xdata() == pytest.approx([line.at["rho"] for line in ours])
    assert solid.get_ydata() == pytest.approx([line.mean for line in ours])
    assert dashed.get_ydata() == pytest.approx([line.published.mean for line in ours])
    band = average.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(max(line.mean + line.half for line in ours))
    assert band.min() == pytest.approx(min(line.mean - line.half for line in ours))


def test_what_a_probe_reads_is_a_share_of_rows(tmp_path, monkeypatch):
    summary = full_summary("toy-ood")
    read = tuple(replace(li, metric="probe", mean=97.0, error=9.0) for li in summary.lines if li.metric == "average")
    summary = replace(summary, experiment=replace(summary.experiment, metrics=("probe",)), lines=read)
    (probe,) = drawn_axes(summary, tmp_path, monkeypatch)
    assert max(path.vertices[:, 1].max() for band in probe.collections for path in band.get_paths()) == 100.0
    assert probe.get_ylim()[1] <= 102.5


def test_sizes_show_one_line_per_number_of_rows(tmp_path, monkeypatch):
    summary = full_summary("toy-sample-size")
    jse, inlp = drawn_axes(summary, tmp_path, monkeypatch)
    assert [jse.get_title(), inlp.get_title()] == ["JSE", "INLP"]
    for axis in (jse, inlp):
        assert len(axis.lines) == len(summary.experiment.dataset["n"])
    largest = [line for line in summary.lines if line.method == "INLP" and line.at["n"] == 10_000]
    expected = [line.mean for line in largest if line.metric == "average"]
    assert inlp.lines[-1].get_ydata() == pytest.approx(expected)


def test_a_long_name_above_a_narrow_column_is_broken_between_words(tmp_path, monkeypatch):
    axes = drawn_axes(full_summary("celeba-limited-labels"), tmp_path, monkeypatch)
    titles = [axis.get_title() for axis in axes]
    assert "Robust\nClassifier" in titles
    assert "GW-ERM" in titles


def test_a_published_line_of_two_methods_is_drawn_once(tmp_path, monkeypatch):
    average, _ = drawn_axes(full_summary("toy-reweighting"), tmp_path, monkeypatch)
    dashed = [to_hex(line.get_color()) for line in average.lines if line.get_linestyle() == "--"]
    assert METHOD_COLOURS["GDRO as released"].lower() in dashed
    assert METHOD_COLOURS["GDRO"].lower() not in dashed
    assert len(dashed) == 4


@pytest.mark.parametrize("name", ["toy-delta", "toy-pool-size"])
def test_a_method_without_runs_is_left_out(name, gallery, tmp_path):
    whole = smoke_summary(name)
    kept, gone = (method.name for method in whole.experiment.methods)
    assert gone in texts(gallery(name)[0])
    part = replace(whole, lines=tuple(line for line in whole.lines if line.method != gone), missing=3)
    seen = texts(draw(part, tmp_path)[0])
    assert gone not in seen
    assert kept in seen
    assert any("3 cells not yet run" in text for text in seen)


def test_points_that_are_missing_are_gaps_and_a_single_run_has_no_interval(tmp_path):
    whole = full_summary("toy-pool-size")
    part = tuple(replace(line, error=None, runs=1) for line in whole.lines[::3])
    seen = " ".join(texts(draw(replace(whole, lines=part), tmp_path)[0]))
    assert "1 run a point" in seen
    assert "95 %" not in seen


def test_nothing_measured_is_no_figure(tmp_path):
    assert draw(replace(full_summary("toy-illustration"), lines=(), panels={}), tmp_path) == []


def test_illustration_puts_inlp_first_and_letters_every_panel(gallery, tmp_path):
    summary = full_summary("toy-illustration")
    assert list(summary.panels) == ["JSE", "INLP"]
    seen = texts(draw(replace(summary, lines=()), tmp_path)[0])
    assert [text for text in seen if text[1:3] == "  "] == [
        "A  INLP: before",
        "B  INLP: one direction removed",
        "C  INLP: two directions removed",
        "D  JSE: before",
        "E  JSE: one direction removed",
    ]
    assert "true label vectors" in seen
    assert "main-task direction" not in seen  # the made-up panels have no such arrow
    assert "A  JSE: before" in texts(gallery("toy-nonorthogonal")[2])  # where JSE is alone


def test_reference_is_a_dotted_line_with_a_name(gallery, tmp_path, monkeypatch):
    summary = full_summary("toy-ood")
    plain = drawn_axes(summary, tmp_path, monkeypatch)
    marked = drawn_axes(summary, tmp_path, monkeypatch, reference={"average": 83.5})
    assert [len(axis.lines) for axis in marked] == [len(plain[0].lines) + 1, len(plain[1].lines)]
    summary = smoke_summary("toy-reconstruction")
    seen = texts(draw(summary, tmp_path, reference={"mse_main": 0.25}, reference_label="a quarter")[0])
    assert {"a quarter: 0.25", "nothing left: 1"} <= set(seen)
    assert "a quarter: 0.25" not in texts(gallery("toy-reconstruction")[0])


def test_a_method_keeps_its_colour_and_variants_differ():
    for name in (name for name in SPECS if name.startswith("toy")):
        colours = method_colours(method.name for method in read(name).methods)
        assert len(set(colours.values())) == len(colours)
        known = set(colours) & set(METHOD_COLOURS)
        assert {method: colours[method] for method in known} == {method: METHOD_COLOURS[method] for method in known}
    variants = method_colours(method.name for method in read("toy-delta").methods)
    assert set(variants) == {"JSE adjusted delta", "JSE delta=0"}


@pytest.mark.parametrize(("name", "figure"), [("toy-sample-size", "curves"), ("toy-ood", "sizes")])
def test_a_figure_that_does_not_fit_the_axes_is_refused(name, figure, tmp_path):
    summary = full_summary(name)
    with pytest.raises(InputError, match=f"'{figure}' vary rho"):
        draw(replace(summary, experiment=replace(summary.experiment, figure=figure)), tmp_path)
