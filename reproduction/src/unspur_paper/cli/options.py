"""Options that the commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from unspur_paper.datasets.selected import SPLITS

F = TypeVar("F", bound=Callable[..., Any])


def _sizes(ctx: click.Context, parameter: click.Parameter, given: str | None) -> dict[str, int] | None:  # noqa: ARG001
    if given is None:
        return None
    try:
        return dict(zip(SPLITS, map(int, given.split(",")), strict=True))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not three whole numbers, {','.join(SPLITS).upper()}.") from None


def sizes_option(text: str) -> Callable[[F], F]:
    """The option that says how large the three splits are."""
    return click.option("--sizes", metavar="TRAIN,VALIDATION,TEST", callback=_sizes, help=text)
