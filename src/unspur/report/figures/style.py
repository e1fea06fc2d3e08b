"""What figures share: sizes, a style independent of the user's settings, looks of methods and groups, and files."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeAlias

import numpy as np

from unspur._extras import require
from unspur._files import atomic
from unspur.exceptions import InputError
from unspur.report.colours import MARKERS, METHOD_COLOURS, group_look, method_colours
from unspur.report.words import fit

#: Width of a figure: one column or the whole page of a paper, or inches.
Width: TypeAlias = Literal["column", "page"] | float
WIDTHS = {"column": 3.3, "page": 6.9}
#: Narrower figures have no room for text that can be read.
MIN_WIDTH = 2.0
GREY = "0.4"
#: Smallest font size, in points, and inches of a line of text.
MIN_FONT_SIZE, LINE = 6.5, 0.117
STYLE: dict[str, Any] = {
    # A name first: "sans-serif" is looked up when a figure is drawn, in settings that may be the user's.
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.0,
    "xtick.labelsize": MIN_FONT_SIZE,
    "ytick.labelsize": MIN_FONT_SIZE,
    "legend.fontsize": 7.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 4.0,
    "axes.labelpad": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "figure.dpi": 200.0,
    # Text stays text, fonts are embedded, and identifiers inside a file are not random.
    "svg.fonttype": "none",
    "svg.hashsalt": "unspur",
    "pdf.fonttype": 42,
}
#: Markers of methods, in the order of their colours, so that a method has the same marker everywhere.
_METHOD_MARKERS = "osD^vPX<>ph*dH8"
#: Areas in these colours are hatched, as colour-blind readers may take them for the green of JSE or for each other.
_HATCHES = {"#6E6E6E": "//////", "#0072B2": "||||||", "#882255": "\\\\\\\\\\\\"}
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
#: Suffix -> metadata that is left out of a file because it has the time of writing.
FORMATS: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".png": {}, ".svg": {"Date": None}}
Arguments = ParamSpec("Arguments")


def styled(draw: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
    """A decorator that draws in the style above, whatever the user's settings are, and restores those."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Any:
        with in_style():
            figure = draw(*args, **kwargs)
            figure.draw_without_rendering()  # in older releases ticks get the style of when they are first drawn
        return figure

    return drawn


@contextmanager
def in_style() -> Iterator[None]:
    """A context in which matplotlib has our style."""
    require("Figures need", "matplotlib")
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def inches(width: Width) -> float:
    """Width of a figure in inches."""
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    if isinstance(width, int | float) and width >= MIN_WIDTH:
        return float(width)
    raise InputError(f'width {width!r} is not "column", "page" or a number of inches from {MIN_WIDTH:g} on.')


def new_figure(width: float, height: float) -> Any:
    """A figure of this size in inches, unknown to pyplot."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.02)
    return figure


def literal(name: Any, wrap: int | None = None, lines: int = 3) -> str:
    """A name from the user's data as text that matplotlib shows verbatim: a $ does not start a formula.

    With `wrap` it has at most so many `lines` of at most `wrap` characters, and an ellipsis for what does not fit.
    """
    words: str = fit(" ".join(str(name).split()))
    if wrap is not None and len(words) > wrap:
        parts = textwrap.wrap(words, wrap)
        if len(parts) > lines:
            parts = [*parts[: lines - 1], f"{parts[lines - 1][: wrap - 1]}…"]
        words = "\n".join(parts)
    return words.replace("$", r"\$")


def method_looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each method.

    Colour and marker are the same in every figure. No two methods share a marker while there are enough, and of two
    methods of the same colour the second is dashed.
    """
    colours, known, looks = method_colours(names), list(METHOD_COLOURS), dict[str, dict[str, Any]]()
    own = {name: _METHOD_MARKERS[known.index(name) % len(_METHOD_MARKERS)] for name in colours if name in known}
    free = [marker for marker in _METHOD_MARKERS if marker not in own.values()] or list(_METHOD_MARKERS)
    variants = [name for name in colours if name not in known]
    own |= {name: free[k % len(free)] for k, name in enumerate(variants)}
    for name, colour in colours.items():
        before = sum(look["color"] == colour for look in looks.values())
        looks[name] = {"color": colour, "marker": own[name], "linestyle": _DASHES[before % len(_DASHES)]}
    return looks


def method_areas(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Keywords of a patch for each method: its colour, and hatching where colours are easily confused."""
    areas = dict[str, dict[str, Any]]()
    for name, colour in method_colours(names).items():
        again = any(area["facecolor"] == colour for area in areas.values())
        hatch = "xxxxxx" if again else _HATCHES.get(colour, "")
        parts = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
        lighter = "#" + "".join(f"{round(part + 0.3 * (255 - part)):02X}" for part in parts)
        areas[name] = {"facecolor": colour, "edgecolor": lighter, "hatch": hatch, "linewidth": 0.0}
    return areas


def group_style(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of a group; a negative `number` stands for rows without a known group."""
    if number < 0:
        return {"color": "0.6", "marker": ".", "linestyle": _DASHES[2]}
    colour, marker = group_look(number)
    return {"color": colour, "marker": MARKERS[marker], "linestyle": _DASHES[number % len(_DASHES)]}


def handle(label: str, **look: Any) -> Any:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def add_legend(figure: Any, handles: Sequence[Any], width: float) -> None:
    """Add a legend below the panels, with as many columns as fit; the figure grows by its height."""
    if not handles:
        return
    labels = [entry.get_label() for entry in handles]
    widest = max(0.44 + 0.062 * max(map(len, label.split("\n"))) for label in labels)
    columns = min(len(labels), max(1, int((width - 0.1) / widest)))
    in_rows = [k for column in range(columns) for k in range(column, len(labels), columns)]
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + 0.1 + rows * (LINE * max(map(lines_of, labels)) + 0.04))
    figure.legend(
        handles=[handles[k] for k in in_rows],
        labels=[labels[k] for k in in_rows],
        ncols=columns,
        loc="outside lower center",
        frameon=False,
        borderpad=0.2,
        borderaxespad=0.0,
        columnspacing=1.2,
        handlelength=2.0,
        handletextpad=0.6,
        labelspacing=0.35,
    )


def lines_of(text: str) -> int:
    """Number of lines of a text."""
    return text.count("\n") + 1


def check_format(path: str | PathLike[str]) -> Path:
    """The path, if its suffix names a format; raise InputError otherwise, or if matplotlib is missing."""
    require("Figures need", "matplotlib")
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a figure is one of {', '.join(FORMATS)}; end the name of the file with one of them.")
    return path


def write(figure: Any, path: str | PathLike[str], *, overwrite: bool = False, dpi: float = 300.0) -> Path:
    """Write a figure in the format that the suffix of `path` names: .svg, .pdf or .png; return the path.

    The same figure gives the same bytes. Text stays text in SVG, and fonts are embedded in PDF, where publishers ask
    for that. `dpi` counts for PNG, and for the parts of other formats that are pixels (pictures, and scatters of very
    many rows).

    Examples
    --------
    >>> import tempfile
    >>> from unspur.report import figures
    >>> figure = figures.curves({"JSE": ([0.5, 0.9], [92.0, 90.5])})
    >>> figures.write(figure, tempfile.mkdtemp() + "/curve.pdf").name
    'curve.pdf'
    """
    path = check_format(path)
    with in_style():
        save(figure, path, overwrite=overwrite, dpi=dpi)
    return path


def save(figure: Any, path: Path, *, overwrite: bool, dpi: float) -> None:
    """Write a figure under the current settings of matplotlib."""
    kind = path.suffix.lower()
    with atomic(path, overwrite=overwrite) as temporary, _laid_out(figure):
        figure.savefig(temporary, format=kind[1:], dpi=dpi, metadata=FORMATS[kind] or None)


@contextmanager
def _laid_out(figure: Any) -> Iterator[None]:
    """A context in which the layout is fixed and rounded; afterwards the figure can be changed and written again.

    The last digits of a layout depend on addresses in memory, and identifiers inside an SVG on every digit.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    engine.execute(figure)
    figure.set_layout_engine("none")
    for axis in figure.axes:
        axis.set_position(np.round(axis.get_position(original=True).bounds, 6))
    try:
        yield
    finally:
        for axis in figure.axes:
            axis.set_in_layout(True)  # setting a position takes an axis out of the layout
        figure.set_layout_engine(engine)


def as_svg(draw: Callable[..., Any], *args: Any) -> str:
    """A figure as an SVG element for a page, in whose fonts it is shown; without names of its parts and times."""
    file = io.StringIO()
    with warnings.catch_warnings(), in_style():
        warnings.filterwarnings("ignore", "Glyph")  # the fonts of the page may have it
        figure = draw(*args, width="page")
        with _laid_out(figure):
            figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()[file.getvalue().index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"=\"[^\"]*\"", lambda value: re.sub(r"(\.\d\d)\d+|\n", r"\1", value.group()), text)
    return re.sub(r">\s+<", "><", text)
