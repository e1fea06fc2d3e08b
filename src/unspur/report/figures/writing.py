"""Figures as files: vectors with their text as text, and the same bytes for the same figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unspur._files import disk_error
from unspur.exceptions import InputError
from unspur.io.artifact import atomic
from unspur.report.figures.style import in_style, matplotlib

#: Suffix -> what is left out of a file, because it says when it was written.
FORMATS: dict[str, dict[str, Any]] = {
    ".eps": {}, ".pdf": {"CreationDate": None}, ".png": {}, ".svg": {"Date": None},
}  # fmt: skip


def write(figure: Any, path: str | PathLike[str], *, overwrite: bool = False, dpi: float = 300.0) -> Path:
    """Write a figure in the format that the suffix of `path` names: .svg, .pdf, .eps or .png; return the path.

    The same figure gives the same bytes. Text stays text in SVG, and fonts are embedded in PDF and EPS, where
    publishers ask for that. `dpi` counts for PNG, and for the parts of other formats that are pixels (pictures, and
    scatters of very many rows). EPS knows no transparency: there colours are mixed with white instead.

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


def check_format(path: str | PathLike[str]) -> Path:
    """A path whose suffix names a format, or an error that says which there are, or that matplotlib is missing."""
    matplotlib()
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a figure is one of {', '.join(FORMATS)}; end the name of the file with one of them.")
    return path


def save(figure: Any, path: Path, *, overwrite: bool, dpi: float) -> None:
    """Write a figure under the settings that matplotlib has now."""
    kind = path.suffix.lower()
    try:
        with atomic(path, overwrite=overwrite) as temporary, _laid_out(figure), _opaque(figure, kind == ".eps"):
            figure.savefig(temporary, format=kind[1:], dpi=dpi, metadata=FORMATS[kind] or None)
            if kind == ".eps":
                _remove_origin(temporary)
    except FileExistsError:
        raise
    except OSError as error:
        raise disk_error(error, path, "Choose another place, or make room.") from error


@contextmanager
def _laid_out(figure: Any) -> Iterator[None]:
    """The layout is made once, rounded, and taken back afterwards: a figure may be written again, or changed."""
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    before = [(axis, axis.get_in_layout(), *_positions(axis)) for axis in figure.axes]
    engine.execute(figure)
    figure.set_layout_engine("none")
    for axis in figure.axes:
        # The layout's last digits depend on addresses in memory, and names inside an SVG on every digit.
        axis.set_position(np.round(axis.get_position(original=True).bounds, 6))
    try:
        yield
    finally:
        for axis, in_layout, original, active in before:
            axis.set_position(original, which="original")
            axis.set_position(active, which="active")
            axis.set_in_layout(in_layout)  # which a position that is set ends
        figure.set_layout_engine(engine)


def _positions(axis: Any) -> tuple[Any, Any]:
    """What the layout gave an axis, and what its aspect left of that."""
    return axis.get_position(original=True).frozen(), axis.get_position().frozen()


@contextmanager
def _opaque(figure: Any, needed: bool) -> Iterator[None]:
    """Colours of transparent areas and markers mixed with white, and put back afterwards."""
    from matplotlib.collections import Collection

    changed = []
    for part in figure.findobj(Collection) if needed else []:
        colours = part.get_facecolor(), part.get_edgecolor()
        if any(np.any(colour[:, 3] < 1) for colour in colours if len(colour)):
            changed.append((part, part.get_alpha(), *colours))
            part.set_alpha(None)
            part.set_facecolor(_mixed(colours[0]))
            part.set_edgecolor(_mixed(colours[1]))
    try:
        yield
    finally:
        for part, alpha, face, edge in changed:
            part.set_facecolor(face)
            part.set_edgecolor(edge)
            part.set_alpha(alpha)


def _mixed(colours: Any) -> Any:
    """Colours (n, 4) over white; what cannot be seen at all stays so."""
    mixed = np.array(colours, dtype=float)
    seen = mixed[:, 3] > 0
    share = mixed[seen, 3:]
    mixed[seen] = np.hstack([share * mixed[seen, :3] + (1 - share), np.ones_like(share)])
    return mixed


def _remove_origin(path: Path) -> None:
    """Time, and name of the temporary file, which matplotlib writes into every EPS."""
    path.write_bytes(re.sub(rb"%%(CreationDate|Title):[^\n]*\n", b"", path.read_bytes(), count=2))
