"""Pages of pictures that are made where the data are: one HTML file each, nothing else needed to look at it."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unspur._files import atomic
from unspur._typing import FloatArray
from unspur_paper.experiments.changed_pictures import Changed

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .5rem; text-align: center; vertical-align: top; }
th[scope=row] { text-align: left; font-weight: 600; } img { display: block; image-rendering: auto; width: 6.5rem; }
.scroll { overflow-x: auto; } figure { margin: 0; display: inline-block; } figure img { width: 11rem; }
figcaption { font-size: .8rem; max-width: 11rem; overflow-wrap: anywhere; }
"""


def write_changed(changed: Changed, path: Path, title: str, *, overwrite: bool = False) -> Path:
    """Pictures before and after every method, and the change: light where a pixel became lighter, dark where darker."""
    head = "<th scope=col>before</th>" + "".join(f"<th scope=col>{html.escape(name)}</th>" for name in changed.after)
    body = []
    for i, name in enumerate(changed.names):
        before, alt = changed.before[i], html.escape(name)
        after = [f"<td>{_img(pictures[i], f'{alt} after {method}')}</td>" for method, pictures in changed.after.items()]
        body.append(f"<tr><th scope=row>{alt}</th><td>{_img(before, alt)}</td>{''.join(after)}</tr>")
        apart = [
            f"<td>{_img(_difference(pictures[i] - before), f'change by {method}')}</td>"
            for method, pictures in changed.after.items()
        ]
        body.append(f"<tr><th scope=row>change, enlarged</th><td></td>{''.join(apart)}</tr>")
    table = f"<div class=scroll><table><tr><th></th>{head}</tr>{''.join(body)}</table></div>"
    return write_page(path, title, table, overwrite=overwrite)


def write_gallery(
    groups: Mapping[str, Sequence[tuple[str, Any]]], path: Path, title: str, *, overwrite: bool = False
) -> Path:
    """Pictures (PIL) with their names, group by group."""
    parts = []
    for group, pictures in groups.items():
        figures = "".join(
            f"<figure>{encoded(picture, name)}<figcaption>{html.escape(name)}</figcaption></figure> "
            for name, picture in pictures
        )
        parts.append(f"<h2>{html.escape(group)}</h2><div>{figures}</div>")
    return write_page(path, title, "".join(parts), overwrite=overwrite)


def write_page(path: Path, title: str, content: str, *, style: str = "", overwrite: bool = False) -> Path:
    """One HTML file of a title and content that is HTML itself; `style` is added to that of all pages."""
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}{style}</style><h1>{html.escape(title)}</h1>"
        f"{content}"
        "<p>Made from a research dataset on this machine: for looking at, not for passing on.</p></html>\n"
    )
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _difference(change: FloatArray) -> FloatArray:
    """Around middle grey, the largest change of the picture at black or white."""
    largest = float(np.abs(change).max()) or 1.0
    return np.asarray(0.5 + 0.5 * change / largest)


def _img(grey: FloatArray, alt: str) -> str:
    from PIL import Image

    return encoded(Image.fromarray(np.uint8(255 * np.clip(grey, 0.0, 1.0))), alt)


def species(name: str) -> str:
    """Of an id such as ``141.Artic_Tern/Artic_Tern_0001@land``."""
    return name.split("/", maxsplit=1)[0].split(".", 1)[-1].replace("_", " ")


def encoded(picture: Any, alt: str, kind: Literal["PNG", "JPEG"] = "PNG") -> str:
    """A picture (PIL) as an element of a page."""
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" src="data:image/{kind.lower()};base64,{data}">'
