"""A fitted removal and rows -> one HTML page."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from unspur._extras import require
from unspur.io.artifact import atomic, refuse_existing


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
    """Measure what a fitted removal does, and write it down as a page that opens in a browser, without a network.

    Parameters
    ----------
    remover : a fitted remover of this package.
    train, test : rows with their labels, tuples (Z, y, concept); last layers are trained on the first, and all is
        measured on the second, which the removal should not have seen.
    path : where the page goes; a file that is there is kept unless `overwrite`.
    title : of the page.
    **options : of `unspur.report.measuring`: names of the labels (`main`, `concept`), `validation` rows, other methods
        to `compare` with, `pictures` or `texts` of the test rows, an `encoder` to show where it looks, and more.

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
    check_page(path, overwrite=overwrite)
    from unspur.report import find

    return write_page(find(remover, train, test, **options), path, title=title, overwrite=overwrite)


def check_page(path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Whether a page can be written there, before anything is computed: minutes of work must not end in an error."""
    refuse_existing(path, overwrite=overwrite)
    require("The report needs", "jinja2")


def write_page(findings: Any, path: str | PathLike[str], *, title: str | None = None, overwrite: bool = False) -> Path:
    """Write the page of findings; a process that is killed leaves none, or the one that was there."""
    from unspur.report.page import render

    page = render(findings, title=title)
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)
