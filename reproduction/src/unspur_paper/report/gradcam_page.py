"""A page of pictures with Grad-CAM maps laid over them: one row a picture, one column a method."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation

from unspur._typing import Array, FloatArray
from unspur_paper.experiments.gradcam_pictures import LookedAt, Seen
from unspur_paper.report.picture_page import encoded, species, write_page

#: Colours of evidence for class 0 and class 1, distinguishable with the common kinds of colour blindness.
MAP_COLOURS = ((230, 97, 0), (0, 90, 200))
#: Share of the values of a method that get the full colour; scaled to the largest, the others would be pale.
FULL_COLOUR_SHARE = 0.02
#: How much of a picture the full colour covers.
_MAP_OPACITY = 0.8


@dataclass(frozen=True, slots=True)
class Words:
    """What a page calls its pictures: both classes, the groups, and the place that is outlined."""

    classes: tuple[str, str]
    groups: tuple[str, str, str, str]
    place: str


BIRDS = Words(
    ("landbird", "waterbird"),
    ("landbirds on land", "landbirds on water", "waterbirds on land", "waterbirds on water"),
    "bird",
)
FACES = Words(
    ("serious face", "smile"),
    ("serious men", "serious women", "smiling men", "smiling women"),
    "mouth",
)
_STYLE = """
body { max-width: 96rem; } th[scope=col] { font-size: .85rem; vertical-align: bottom; } td img { width: 8rem; }
td:first-child { position: sticky; left: 0; background: Canvas; } td p { margin: .15rem 0 0; font-size: .8rem; }
td:first-child p { max-width: 8rem; overflow-wrap: anywhere; }
.wrong { font-weight: 700; } .scale { display: inline-block; width: 12rem; height: 1em; vertical-align: -.15em; }
"""

#: Id of a picture -> the picture as the network is shown it (PIL, RGB), and its mask between 0 and 1 of the same size.
Pictures = Callable[[str], tuple[Any, Array]]


def write_maps_page(
    looked: LookedAt, pictures: Pictures, path: Path, title: str, *, words: Words = BIRDS, overwrite: bool = False
) -> Path:
    """Every picture plain and under the map of every method, with its outline, the prediction and the share inside."""
    full = {name: full_colour_value(seen.maps) for name, seen in looked.methods.items()}
    head = "".join(f"<th scope=col>{html.escape(name)}</th>" for name in ("picture", *looked.methods))
    parts = [_legend(looked, words)]
    for group, called in enumerate(words.groups):
        lines = []
        for i in np.flatnonzero(looked.group == group).tolist():
            name = looked.ids[i]
            picture, mask = pictures(name)
            cells = [_plain(name, picture, mask, looked.area[i], words)]
            cells += [
                _under(method, seen, i, picture, mask, full[method], words) for method, seen in looked.methods.items()
            ]
            lines.append(f"<tr>{''.join(cells)}</tr>")
        if lines:
            parts.append(f"<h2>{called}</h2><div class=scroll><table><tr>{head}</tr>{''.join(lines)}</table></div>")
    return write_page(path, title, "".join(parts), style=_STYLE, overwrite=overwrite)


def _legend(looked: LookedAt, words: Words) -> str:
    ends = [f"rgb{colour}" for colour in MAP_COLOURS]
    return (
        f"<p>{html.escape(looked.where)}.</p><p>speaks for a {words.classes[0]} <span class=scale style='background: "
        f"linear-gradient(to right, {ends[0]}, #bbb, {ends[1]})'></span> speaks for a {words.classes[1]}</p>"
        "<p>Grad-CAM of the network with removal and last layer as one layer. The maps of one method share a scale, "
        f"whose full colour {100 * FULL_COLOUR_SHARE:.0f} % of the values reach. The outline is the "
        f"{words.place}'s. “Inside” is the share of the map, positive and negative parts alike, that lies on the "
        f"{words.place}; of a map that is the same everywhere it is the {words.place}'s share of the picture, which "
        "stands in the first column. Maps add up to the logit but for a constant, so the larger part of a map need not "
        "decide.</p>"
    )


def _plain(name: str, picture: Any, mask: Array, area: float, words: Words) -> str:
    image = encoded(outline_mask(picture, mask), name, "JPEG")
    alt = html.escape(species(name) if words is BIRDS else name)
    return f"<td>{image}<p>{alt}</p><p>{words.place}: {100 * area:.0f} %</p></td>"


def _under(method: str, seen: Seen, i: int, picture: Any, mask: Array, full: float, words: Words) -> str:
    image = encoded(outline_mask(overlay_map(picture, seen.maps[i], full), mask), f"map of {method}", "JPEG")
    share = "no map" if np.isnan(seen.inside[i]) else f"{100 * seen.inside[i]:.0f} % inside"
    said = f"{'right' if seen.right[i] else 'wrong'}: {words.classes[seen.predicted[i]]}"
    return f"<td>{image}<p class={'right' if seen.right[i] else 'wrong'}>{said}</p><p>{share}</p></td>"


def overlay_map(picture: Any, signed: Array, full: float) -> Any:
    """A picture in grey under a signed map, scaled up to its size; values of ±`full` have the full colour.

    Grey, because a map could not be read on water that is blue itself.
    """
    from PIL import Image

    large = Image.fromarray(np.asarray(signed, dtype=np.float32)).resize(picture.size, Image.Resampling.BILINEAR)
    strength = np.clip(np.asarray(large, dtype=np.float64) / full, -1.0, 1.0)[:, :, None]
    grey = np.asarray(picture.convert("L"), dtype=np.float64)[:, :, None]
    colour = np.where(strength < 0, *np.array(MAP_COLOURS, dtype=np.float64))
    opaque = _MAP_OPACITY * np.abs(strength)
    return Image.fromarray(np.uint8(np.round((1.0 - opaque) * grey + opaque * colour)))


def outline_mask(picture: Any, mask: Array) -> Any:
    """A picture with the edge of its mask in white and black, visible on any background."""
    from PIL import Image

    values = np.array(picture.convert("RGB"))
    within = np.asarray(mask) >= 0.5
    values[binary_dilation(within) & ~within] = 0
    values[within & binary_dilation(~within)] = 255
    return Image.fromarray(values)


def full_colour_value(maps: Array) -> float:
    """The value that a share `FULL_COLOUR_SHARE` of a method's cells exceed."""
    sizes: FloatArray = np.abs(np.asarray(maps, dtype=np.float64))
    return float(np.quantile(sizes, 1.0 - FULL_COLOUR_SHARE)) or float(sizes.max()) or 1.0
