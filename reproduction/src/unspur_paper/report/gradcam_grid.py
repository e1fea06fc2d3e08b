"""Where methods of an experiment look: a grid of pictures under their Grad-CAM maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unspur._typing import Array
from unspur.report import figures
from unspur.report.figures.rows import MapGrid
from unspur.report.figures.style import Width
from unspur_paper.experiments.gradcam_pictures import LookedAt
from unspur_paper.report.gradcam_page import BIRDS, Words

#: Id of a picture -> the picture as the network is shown it (PIL, RGB), and its mask of the same size.
Pictures = Callable[[str], tuple[Any, Array]]


def gradcam_grid(
    looked: LookedAt,
    pictures: Pictures,
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    width: Width | None = None,
    words: Words = BIRDS,
) -> Any:
    """The figure of `unspur.report.figures.gradcam_grid` for the methods of an experiment.

    Whether the prediction was right and which share of the map lies on the object stand under each map, and the outline
    of the object is drawn.

    Parameters
    ----------
    looked : what `unspur_paper.experiments.gradcam_pictures` returns.
    pictures : id -> picture and mask; `looked` has none itself.
    names, classes, width : as in `unspur.report.figures.gradcam_grid`.
    words : what classes and groups are called.
    """
    loaded = [pictures(name) for name in looked.ids]
    under = {
        name: [
            f"{'✓' if right else '✗'} {'' if np.isnan(inside) else f'{100 * inside:.0f} % inside'}".rstrip()
            for right, inside in zip(seen.right, seen.inside, strict=True)
        ]
        for name, seen in looked.methods.items()
    }
    maps = {name: seen.maps for name, seen in looked.methods.items()}
    rows = [words.groups[g] for g in looked.group.tolist()]
    grid = MapGrid([one for one, _ in loaded], rows, maps, words.classes, [mask for _, mask in loaded], under)
    return figures.gradcam_grid(grid, names=names, classes=classes, width=width)
