"""What the verbs share: errors without tracebacks, options, and JSON output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import numpy as np

from unspur.exceptions import UnspurError

F = TypeVar("F", bound=Callable[..., Any])


class Program(click.Group):
    """The group of verbs; turns expected errors into one line and exit code 1 (2 for misused options)."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except (UnspurError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(str(error)) from error


def label_options(function: F) -> F:
    """Options that say which columns or arrays are the labels."""
    for option in (
        click.option("--ignore", multiple=True, metavar="NAME", help="A column that is neither feature nor label."),
        click.option("--concept", required=True, metavar="NAME", help="Concept to remove: a column, an array of the "
                     ".npz, or a .npy file."),
        click.option("--main", "main", required=True, metavar="NAME", help="Main-task label, given the same way."),
    ):  # fmt: skip
        function = option(function)
    return function


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
