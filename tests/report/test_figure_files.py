"""Figures for papers as files: vectors, text as text, the same bytes; names as they are; no settings but ours."""

import doctest
import importlib
import logging
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from tests.report.drawing import (
    EVERY,
    FROM_FINDINGS,
    HOSTILE,
    WORDS,
    X,
    findings,
    looks,
    numbers,
    shown,
    squeezed,
    texts,
)
from unspur.exceptions import DiskError, InputError, OutputExistsError
from unspur.report import figures
from unspur.report.figures.rows import MAX_VECTOR_ROWS
from unspur.report.figures.style import MIN_FONT_SIZE, literal
from unspur.report.results import Axis, View

# Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Files of every kind of figure, as they are written where nobody has changed a setting."""
    folder = tmp_path_factory.mktemp("plain")
    return {name: figures.write(draw(), folder / f"{name}.svg") for name, draw in EVERY.items()}


@pytest.mark.parametrize("name", EVERY)
def test_figures_are_vectors_with_text_as_text(name, plain, tmp_path):
    drawn = EVERY[name]()
    assert isinstance(drawn, Figure)
    assert WORDS[name] in texts(plain[name])
    pdf = figures.write(drawn, tmp_path / "figure.pdf").read_bytes()
    assert (b"/Subtype /Image" in pdf) == (name == "gradcam_grid")  # pictures are pixels, all else is not
    assert b"/FontFile2" in pdf  # embedded
    assert b"/Type3" not in pdf


@pytest.mark.parametrize(("name", "kind"), [("gradcam_grid", "pdf"), ("curves", "eps"), ("curves", "png")])
def test_the_same_figure_gives_the_same_bytes(name, kind, tmp_path):
    first, second = (figures.write(EVERY[name](), tmp_path / f"{k}.{kind}").read_bytes() for k in range(2))
    assert first == second
    assert kind != "eps" or b"/FontType 42" in first


def test_a_figure_may_be_changed_and_written_again(tmp_path):
    drawn = EVERY["gradcam_grid"]()
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
def test_settings_of_the_user_neither_leak_in_nor_out(name, plain, tmp_path):
    """The same figure has the same bytes, whatever somebody has set."""
    mine = {
        "font.size": 20,
        "font.family": "monospace",
        "axes.grid": True,
        "lines.linewidth": 9,
        "svg.fonttype": "path",
        "svg.hashsalt": "mine",
        "savefig.dpi": 50,
        "axes.spines.top": True,
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


def test_pyplot_knows_nothing_of_the_figures(plain):
    from matplotlib import pyplot

    assert plain.keys() == EVERY.keys()  # all have been drawn
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


@pytest.mark.parametrize("name", ["subspaces", "ladder", "group_bars", "curves"])
def test_eps_has_nothing_transparent_and_the_figure_keeps_its_own_colours(name, tmp_path, caplog):
    drawn = EVERY[name]()
    for text in drawn.findobj(Text):
        text.set_visible(False)  # it is opaque, and fonts take longer than all the rest
    for axis in drawn.axes:
        axis.tick_params(labelleft=False, labelbottom=False)
    before = figures.write(drawn, tmp_path / "before.svg").read_bytes()
    with caplog.at_level(logging.WARNING):
        figures.write(drawn, tmp_path / "figure.eps")
    assert "transparency" not in caplog.text
    assert figures.write(drawn, tmp_path / "after.svg").read_bytes() == before


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
    found, more = findings(), iter(names * 9)
    axes = tuple(replace(axis, name=f"{next(more)} {k}") for k, axis in enumerate(found.view.axes))
    judged = tuple(replace(one, name=name) for one, name in zip(found.results, names, strict=False))
    trace = found.traces[""]
    return replace(
        found,
        method=names[0],
        main=names[1],
        concepts=(names[2],),
        classes=names[:2],
        groups=names[:4],
        results=judged,
        view=replace(found.view, axes=axes),
        traces={names[0]: trace, names[3]: trace},
        saliency=looks(names[:3]),
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
    for figure in drawn_with(names, width).values():
        assert figure.get_figwidth() == {"column": 3.3, "page": 6.9}[width]
        written = shown(figure)
        assert min(text.get_fontsize() for text in written) >= MIN_FONT_SIZE
        boxes = [(text.get_text(), text.get_window_extent()) for text in written]
        for k, (words, box) in enumerate(boxes):
            assert -2 <= box.x0 <= box.x1 <= figure.bbox.x1 + 2, words
            assert -2 <= box.y0 <= box.y1 <= figure.bbox.y1 + 2, words
            for other, beside in boxes[k + 1 :]:
                wide = min(box.x1, beside.x1) - max(box.x0, beside.x0)
                high = min(box.y1, beside.y1) - max(box.y0, beside.y0)
                assert min(wide, high) < 2, (words, other)


def test_names_are_shown_as_they_are(tmp_path):
    names = HOSTILE[:4]
    in_some = {"ladder": (names[0], names[3]), "gradcam_grid": names[:3]}  # all others have all four
    for kind, figure in drawn_with(names, "page").items():
        seen = squeezed(texts(figures.write(figure, tmp_path / f"{kind}.svg")))
        assert all(squeezed(name) in seen for name in in_some.get(kind, names)), kind


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


# All of them ----------------------------------------------------------------------------------------------------------


def test_every_figure_is_drawn_here():
    others = {"DemoFigure", "draw_demo", "check_format", "write"}  # with tests of their own
    assert set(figures.__all__) - others <= EVERY.keys()


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(figures.__path__)])
def test_docstring_examples_run(name):
    module = importlib.import_module(f"unspur.report.figures.{name}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3
    assert result.failed == 0


def test_the_library_is_loaded_by_drawing_alone():
    code = "import sys, unspur.report.figures as f; print('matplotlib' in sys.modules); f.curves({'JSE': ([1], [1])});"
    code += "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "False"]
