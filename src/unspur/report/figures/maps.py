"""Pictures under the Grad-CAM maps of heads, before and after removal or by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.report.colours import MAP_COLOURS, full_colour_value, outline_mask, overlay_map
from unspur.report.figures.style import MIN_FONT_SIZE, Width, add_legend, inches, inches_of, literal, new_figure, styled
from unspur.report.results import Findings, SaliencyMaps

#: Inches of the line under a picture, and pictures side by side in a column.
_UNDER, _MAX_COLUMN_PICTURES = 0.14, 4


@dataclass(frozen=True, slots=True)
class MapGrid:
    """k pictures with the names of their rows, signed maps (k, h, w) by method, and texts under the maps by method."""

    pictures: Sequence[Any]
    rows: Sequence[str]
    maps: Mapping[str, Array]
    classes: tuple[Any, ...]
    masks: Sequence[Array] = ()
    under: Mapping[str, Sequence[str]] = field(default_factory=dict)


@styled
def gradcam_grid(
    looks: SaliencyMaps | Findings | MapGrid,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    width: Width | None = None,
) -> Any:
    """A line for each picture: as the network gets it, then in grey under the map of every method.

    Maps of one method share a scale.

    Parameters
    ----------
    looks : saliency maps, findings that have them, or a grid.
    names : names of the lines, instead of the groups of the pictures.
    classes : the two classes that maps speak for, the second in blue.
    width : "column", "page", or inches; a column has room for three methods.

    Examples
    --------
    >>> import numpy as np
    >>> from PIL import Image
    >>> from unspur.report.results import SaliencyMaps
    >>> from unspur.report import figures
    >>> maps = {name: np.random.default_rng(k).normal(size=(2, 7, 7)) for k, name in enumerate(["no removal", "JSE"])}
    >>> looks = SaliencyMaps(np.arange(2), [Image.new("RGB", (64, 64), "grey")] * 2, maps)
    >>> figures.gradcam_grid(looks, names=["a bird", "another"], classes=["landbird", "waterbird"])
    <Figure size ...>
    """
    grid = _grid(looks)
    rows = grid.rows if names is None else list(names)
    if len(rows) != len(grid.pictures):
        raise InputError(f"There are {len(grid.pictures)} pictures, and {len(rows)} names for them. Name each.")
    columns = 1 + len(grid.maps)
    size = inches(width or ("column" if columns <= _MAX_COLUMN_PICTURES else "page"))
    labels = [literal(name, 16) for name in rows]
    side = (size - max(inches_of(label, MIN_FONT_SIZE) for label in labels) - 0.15) / columns - 0.06
    height = len(labels) * (side + 0.06 + (_UNDER if grid.under else 0.0)) + 0.2
    figure = new_figure(size, height)
    figure.get_layout_engine().set(wspace=0.0, hspace=0.0)
    axes = figure.subplots(len(labels), columns, squeeze=False)
    full = {name: full_colour_value(maps) for name, maps in grid.maps.items()}
    for k, line in enumerate(axes):
        shown = [grid.pictures[k], *(overlay_map(grid.pictures[k], maps[k], full[n]) for n, maps in grid.maps.items())]
        for axis, picture in zip(line, shown, strict=True):
            _draw_picture(axis, outline_mask(picture, grid.masks[k]) if grid.masks else picture)
        for axis, name in zip(line[1:], grid.maps, strict=True):
            axis.set_xlabel(grid.under[name][k] if grid.under else "", fontsize=MIN_FONT_SIZE, labelpad=1.5)
        line[0].set_ylabel(labels[k], rotation=0, ha="right", va="center", labelpad=4, fontsize=MIN_FONT_SIZE)
    for axis, name in zip(axes[0], ("picture", *grid.maps), strict=True):
        axis.set_title(literal(name, int(14 * side), 2), loc="center", fontsize=7.0)
    add_legend(figure, _legend(grid.classes if classes is None else tuple(classes)), size)
    return figure


def _grid(looks: SaliencyMaps | Findings | MapGrid) -> MapGrid:
    if isinstance(looks, MapGrid):
        return looks
    classes: tuple[Any, ...] = ("the first class", "the second class")
    names: Sequence[str] = ()
    if isinstance(looks, Findings):
        findings = looks
        if findings.saliency is None:
            raise InputError("The findings have no Grad-CAM maps; give `measure` an encoder whose maps can be made.")
        looks, classes = findings.saliency, findings.classes
        group = np.asarray(findings.group)[looks.rows]
        names = [findings.groups[g] if g >= 0 else "concept not known" for g in group.tolist()]
    if not len(looks.pictures) or not looks.maps:
        raise InputError("There are no pictures with maps to draw.")
    return MapGrid(looks.pictures, names or [f"row {row}" for row in looks.rows], looks.maps, classes)


def _draw_picture(axis: Any, picture: Any) -> None:
    axis.imshow(np.asarray(picture), interpolation="nearest", interpolation_stage="data")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def _legend(classes: tuple[Any, ...]) -> list[Any]:
    from matplotlib.patches import Patch

    colours = ["#{:02X}{:02X}{:02X}".format(*colour) for colour in MAP_COLOURS]
    words = [f"speaks for {literal(name, 24, 2)}" for name in classes[:2]]
    return [Patch(color=colour, label=label) for colour, label in zip(colours, words, strict=True)]
