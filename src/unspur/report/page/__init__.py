"""The page: findings as one HTML file that opens in any browser, without a network.

::

    verdict.py      what came of it, in sentences
    charts.py       key figures, accuracy of every group, what probes find, the tests of a fit
    content.py      scores, texts and pictures within a budget; rows that show what directions mean
    formatting.py   numbers and names
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from unspur._extras import require
from unspur._files import atomic, refuse_existing
from unspur._version import __version__
from unspur.report.page import charts, content, formatting
from unspur.report.page.formatting import with_short_names
from unspur.report.page.verdict import accuracy_verdict, context_sentences, sentences, subspaces, verdict
from unspur.report.results import Findings

__all__ = ["accuracy_verdict", "build", "check_page", "render", "verdict", "write_page"]

#: Characters of a page, and the most and the least that thumbnails get of what the rest leaves.
MAX_PAGE_BYTES, MAX_THUMBNAIL_BYTES, MIN_THUMBNAIL_BYTES = 2_900_000, 1_400_000, 300_000


def render(findings: Findings, *, title: str | None = None) -> str:
    """The page as text, which depends on the findings alone."""
    environment, findings = _environment(), with_short_names(findings)
    style = _read("page.css") + charts.palette(len(findings.groups), [result.name for result in findings.results])
    script = f"(() => {{\n'use strict';\n{_read('page.js')}\n}})();"
    pictures = _pictures(findings)
    axes = content.axes_that_fit(findings)
    x, y = content.first_pair(findings, axes)
    parts: dict[str, Any] = {
        "findings": findings,
        "title": title or _title(findings),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "sentences": sentences(findings),
        "further": context_sentences(findings),
        "tiles": charts.tiles(findings),
        "recommended": findings.recommended is not None,
        "accuracy": charts.accuracy_table(findings),
        "penalties": charts.penalty_table_data(findings),
        "strengths": charts.strength_chart(findings),
        "ladders": charts.ladders(findings),
        "level": f"{100 * findings.significance_level:g}",
        "leaks": charts.leakage_sections(findings),
        "audit_lines": charts.audit_lines(findings),
        "subspaces": subspaces(findings),
        "axes": [(place, findings.view.axes[k]) for place, k in enumerate(axes)],
        "first": (x, y),
        "means": content.group_means(findings, axes),
        "digits": content.score_digits(findings, axes),
        "axis_choice": content.choice_of_axes(findings, axes),
        "meanings": content.direction_examples(findings, pictures),
        "pixels": content.pixel_rows(findings),
        "saliency": content.saliency_rows(findings),
        "covariance": [
            (formatting.clipped(charts.concept_name(findings, n), 80), left)
            for n, left in findings.certificate.covariance_left.items()
        ],
        "caveat": formatting.CAVEAT,
        "version": __version__,
    }
    template = environment.get_template("page.html.jinja")

    def page(sheet: content.Sheet | None) -> str:
        data = content.safe_json(content.scatter_data(findings, axes, sheet))
        return str(template.render(**parts, sheet=sheet, data=data))

    rest = len(page(None).encode())
    budget = min(MAX_THUMBNAIL_BYTES, max(MIN_THUMBNAIL_BYTES, MAX_PAGE_BYTES - rest))
    drawn = [pictures[row] for row in findings.drawn_rows.tolist() if row in pictures]
    return page(content.thumbnail_sheet(drawn, budget)).lstrip()


def _title(findings: Findings) -> str:
    concepts = formatting.join_with_and([formatting.named(name) for name in findings.concepts])
    return f"Removing {concepts}, keeping {formatting.named(findings.main)}"


def _pictures(findings: Findings) -> dict[int, Any]:
    """Small pictures of all rows on the page, by number."""
    if any(part is not None for part in (findings.content, findings.pixels, findings.saliency)):
        require("A page with pictures needs", "PIL")
    if findings.content is None or findings.content.kind != "image":
        return {}
    return content.thumbnails(findings.content, findings.drawn_rows.tolist(), content.extreme_rows(findings))


def _environment() -> Any:
    """Templates with escaping."""
    require("The report needs", "jinja2")
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_controls,
    )
    environment.filters |= {
        "count": formatting.count,
        "percent": formatting.percent,
        "plural": formatting.plural,
        "score": formatting.score,
        "capital": formatting.capital,
        "named": formatting.named,
    }
    environment.globals |= {
        "group_path": charts.group_path,
        "series_path": charts.series_path,
        "join_with_and": formatting.join_with_and,
    }
    return environment


def _without_controls(value: Any) -> Any:
    """Text without characters that a page must not hold; rendered markup stays."""
    return formatting.fit(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _read(name: str) -> str:
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows only this style, this script, and pictures inside the page."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)
    )
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'; "
        "base-uri 'none'; form-action 'none'"
    )


def build(
    remover: Any,
    train: Any,
    test: Any,
    path: str | PathLike[str],
    *,
    title: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Measure what a fitted removal does, and write a page that opens in a browser, without a network.

    Parameters
    ----------
    remover : a fitted remover of this package, or a `RobustClassifier`.
    train, test : rows with their labels, tuples (X, y, concept). Heads are trained on the first, and everything
        is measured on the second, which the removal should not have seen.
    path : the file of the page; an existing file is kept unless `overwrite`.
    title : title of the page.
    **options : options of `unspur.report.measure`: names of the labels (`main`, `concept`), `validation` rows, other
        methods to `compare` with, `pictures` or `texts` of the test rows, an `encoder` for saliency maps, and more.

    Returns
    -------
    The path.

    Examples
    --------
    >>> from unspur import JSE
    >>> from unspur.datasets import make_toy
    >>> from unspur.report import build
    >>> train = make_toy(2000, rho=0.8, random_state=0)
    >>> test = make_toy(2000, rho=0.0, random_state=1)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> build(
    ...     jse,
    ...     (train.Z, train.y, train.concept),
    ...     (test.Z, test.y, test.concept),
    ...     "report.html",
    ...     main="bird",
    ...     concept="background",
    ...     compare=["LEACE", "GroupWeighted"],
    ... )  # doctest: +SKIP
    PosixPath('report.html')
    """
    from unspur.report.measuring import measure

    check_page(path, overwrite=overwrite)
    return write_page(measure(remover, train, test, **options), path, title=title, overwrite=overwrite)


def check_page(path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Raise unless a page can be written there, before minutes are spent on its content."""
    refuse_existing(path, overwrite=overwrite)
    require("The report needs", "jinja2")


def write_page(findings: Any, path: str | PathLike[str], *, title: str | None = None, overwrite: bool = False) -> Path:
    """Write the page of findings atomically: a process that is killed leaves no half-written page."""
    page = render(findings, title=title)
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)
