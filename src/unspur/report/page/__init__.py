"""One HTML file from findings: words, tables and pictures, and a scatter to look around in. It loads nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from unspur._extras import require
from unspur._version import __version__
from unspur.report.page import words
from unspur.report.page.accuracy import accuracy_table, penalty_table
from unspur.report.page.examples import by_role, choice_of_axes, extreme_rows, look_rows, meanings, pixel_rows
from unspur.report.page.ladder import ladders
from unspur.report.page.leaks import concept_name, leaks
from unspur.report.page.marks import group_path, palette, series_path
from unspur.report.page.naming import with_short_names
from unspur.report.page.packing import axes_that_fit, first_pair, group_means, packed, safe_json, score_digits
from unspur.report.page.subspaces import subspaces
from unspur.report.page.thumbnails import require_pillow, sheet, shrunk
from unspur.report.page.tiles import tiles
from unspur.report.page.verdict import further, sentences, verdict
from unspur.report.results import Findings

__all__ = ["render", "verdict"]

#: Characters a page may have, and what thumbnails get of what the rest leaves: no more, and no less.
PAGE, MOST, LEAST = 2_900_000, 1_400_000, 300_000
_STYLE = "page.css"
#: Read one after the other into one function.
_SCRIPTS = ("data.js", "plane.js", "drawing.js", "picking.js", "controls.js", "copying.js")


def render(findings: Findings, *, title: str | None = None) -> str:
    """The page as text; the same findings give the same text."""
    environment, findings = _environment(), with_short_names(findings)
    style = _read(_STYLE) + palette(len(findings.groups), [judged.name for judged in findings.judged])
    script = "(() => {\n'use strict';\n" + "\n".join(_read(name) for name in _SCRIPTS) + "\n})();"
    pictures = _pictures(findings)
    axes = axes_that_fit(findings)
    x, y = first_pair(findings, axes)
    parts: dict[str, Any] = {
        "findings": findings,
        "title": title or _title(findings),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "sentences": sentences(findings),
        "further": further(findings),
        "tiles": tiles(findings),
        "accuracy": accuracy_table(findings),
        "penalties": penalty_table(findings),
        "ladders": ladders(findings),
        "level": f"{100 * findings.significance_level:g}",
        "leaks": leaks(findings),
        "subspaces": subspaces(findings),
        "axes": [(place, findings.view.axes[k]) for place, k in enumerate(axes)],
        "first": (x, y),
        "means": group_means(findings, axes),
        "digits": score_digits(findings, axes),
        "axis_choice": choice_of_axes(findings, axes),
        "meanings": by_role(findings, meanings(findings, pictures)),
        "pixels": pixel_rows(findings),
        "looks": look_rows(findings),
        "covariance": [
            (words.clipped(concept_name(findings, n), 80), left)
            for n, left in findings.certificate.covariance_left.items()
        ],
        "version": __version__,
    }
    template = environment.get_template("page.html.jinja")
    rest = len(template.render(**parts, sheet=None, data=safe_json(packed(findings, axes, None))).encode())
    budget = min(MOST, max(LEAST, PAGE - rest))
    thumbnails = sheet([pictures[row] for row in findings.shown.tolist() if row in pictures], budget)
    page: str = template.render(**parts, sheet=thumbnails, data=safe_json(packed(findings, axes, thumbnails)))
    return page.lstrip()


def _title(findings: Findings) -> str:
    concepts = words.listed([words.named(name) for name in findings.concepts])
    return f"Removing {concepts}, keeping {words.named(findings.main)}"


def _pictures(findings: Findings) -> dict[int, Any]:
    """Small pictures of all rows that are shown, by number."""
    if any(part is not None for part in (findings.content, findings.pixels, findings.looks)):
        require_pillow()
    if findings.content is None or findings.content.kind != "image":
        return {}
    return shrunk(findings.content, findings.shown.tolist(), extreme_rows(findings))


def _environment() -> Any:
    """Templates that escape whatever they are given."""
    require("The report needs", "jinja2")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_fit,
    )  # fmt: skip
    environment.filters |= {
        "count": words.count, "percent": words.percent, "plural": words.plural, "score": words.score,
        "capital": words.capital, "named": words.named,
    }  # fmt: skip
    environment.globals |= {"group_path": group_path, "series_path": series_path, "listed": words.listed}
    return environment


def _fit(value: Any) -> Any:
    """Names and texts without what no page should hold; what was rendered before stays."""
    return words.fit(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _read(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows this very style and script, and pictures inside of the page."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )
