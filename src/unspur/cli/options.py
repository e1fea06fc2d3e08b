"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from unspur._registry import HEAD_POINTS, HEADS, REMOVER_POINTS, REMOVERS, entry_points_by_name

F = TypeVar("F", bound=Callable[..., Any])
#: Removers, those that can be compared, and heads, by name; those of other packages are last.
FITTED_NAMES = (*REMOVERS, *entry_points_by_name(REMOVER_POINTS, REMOVERS))
REMOVER_NAMES = ("none", "JSE", "JSE-metric-0", "JSE-metric-1", *(name for name in FITTED_NAMES if name != "JSE"))
HEAD_NAMES = (*HEADS, *entry_points_by_name(HEAD_POINTS, HEADS))
BALANCES = ("none", "concept", "main", "group")
#: A path of this machine.
PATH = click.Path(path_type=Path)
#: Pairs of a column and the value that rows must have in it.
Conditions = tuple[tuple[str, str], ...]


def in_order(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in this order in the help."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def with_default(name: str, default: Any, text: str, **more: Any) -> Callable[[F], F]:
    """An option whose help shows its default."""
    return click.option(name, default=default, show_default=True, help=text, **more)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = with_default("--seed", 0, "Random seed.", type=click.IntRange(0, 2**32 - 1))


def _conditions(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Conditions:
    for text in given:
        if "=" not in text.lstrip("="):
            raise click.BadParameter(f"{text!r} is not of the form COLUMN=VALUE, such as split=train.")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def where_option(of: str | None = None) -> Callable[[F], F]:
    """``--where``, which selects rows of FILE; with `of`, ``--test-where`` or ``--validation-where``."""
    text = f"Only rows of the --{of} file (of FILE, if none is given)" if of else "Only rows of FILE"
    return click.option(
        f"--{of}-where" if of else "--where",
        multiple=True,
        metavar="COLUMN=VALUE",
        callback=_conditions,
        help=f"{text} that have this value; may be repeated.",
    )


def _distinct(ctx: click.Context, _: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """A callback for --concept: names that differ from each other and from the task."""
    for name in given:
        if given.count(name) > 1 or name == ctx.params.get("task"):
            raise click.BadParameter(f"{name!r} is named twice; task and concepts are different columns.")
    return given


@dataclass(frozen=True)
class RowOptions:
    """The options that say which rows a command reads, and which columns are labels; not every command has all."""

    file: Path
    labels: Path | None = None
    task: str = ""
    concept: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    missing_concept: str | None = None
    cluster: str | None = None
    where: Conditions = ()
    test: Path | None = None
    test_where: Conditions = ()
    validation: Path | None = None
    validation_where: Conditions = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are labels or say which rows belong together."""
        return tuple(name for name in (self.task, *self.concept, self.cluster) if name)

    def words(self, **changed: Any) -> list[str]:
        """These options, as other commands take them; `changed` replaces some."""
        words = []
        for option in fields(self)[1:]:
            given = changed.get(option.name, getattr(self, option.name))
            for one in given if isinstance(given, tuple) else (given,):
                if one is not None and one != "":
                    words.append(f"--{option.name.replace('_', '-')}")
                    words.append("=".join(one) if isinstance(one, tuple) else str(one))
        return words


def row_options(
    *, required: bool = True, concept: bool = True, test: bool = False, validation: str = ""
) -> Callable[[F], F]:
    """FILE and the options of `RowOptions`, which the command gets as one argument, `rows`."""
    options = [
        click.argument("file", type=PATH),
        click.option("--labels", type=PATH, help="A CSV file with more columns for FILE, row by row."),
        click.option("--task", required=required, metavar="NAME", is_eager=True, help="The label to predict."),
        click.option(
            "--concept",
            required=required,
            multiple=True,
            metavar="NAME",
            callback=_distinct,
            help="The concept to remove; may be repeated.",
        )
        if concept
        else None,
        click.option("--ignore", multiple=True, metavar="NAME", help="A column that is no feature; may be repeated."),
        click.option(
            "--missing-concept",
            metavar="VALUE",
            help="A value that stands for an unknown concept, beside empty cells, NaN, NA, None and null.",
        )
        if concept
        else None,
        click.option(
            "--cluster",
            metavar="NAME",
            help="Rows with the same value belong together (one film, one "
            "person): they stay in one fold, and tests count them as dependent.",
        ),
        where_option(),
        click.option("--test", type=PATH, help="File with test rows; else 30 % of each group of FILE.")
        if test
        else None,
        where_option("test") if test else None,
        click.option("--validation", type=PATH, help=validation) if validation else None,
        where_option("validation") if validation else None,
    ]

    def decorate(command: F) -> F:
        names = [one.name for one in fields(RowOptions)]

        @wraps(command)
        def collected(**values: Any) -> Any:
            given = {name: values.pop(name) for name in names if name in values}
            return command(rows=RowOptions(**{**given, "task": given.get("task") or ""}), **values)

        return in_order(*(option for option in options if option is not None))(collected)  # type: ignore[return-value]

    return decorate


def _number_or_auto(_: click.Context, __: click.Parameter, value: str) -> float | str:
    with suppress(ValueError):
        if value == "auto" or 0 <= float(value) < float("inf"):
            return value if value == "auto" else float(value)
    raise click.BadParameter(f"{value!r} is neither auto nor a number from 0 on.")


def _folds(_: click.Context, __: click.Parameter, value: float) -> float:
    if value >= 1 and (value < 2 or value != int(value)):
        raise click.BadParameter("pass a number of folds, 2 or more, or a share of the rows below 1.")
    return int(value) if value >= 1 else value


#: Options of a fit, called like the parameters of JSE.
_FITTING_OPTIONS: Mapping[str, Callable[..., Any]] = {
    "cv": with_default(
        "--cv",
        5,
        "Folds to cross-fit in, or a share to hold out, such as 0.2.",
        type=click.FloatRange(0, min_open=True),
        callback=_folds,
    ),
    "smallest_group": with_default(
        "--smallest-group", 10, "Fewest held-out rows in each group of task and concept.", type=click.IntRange(2)
    ),
    "significance_level": with_default(
        "--significance-level", 0.05, "Level of the tests.", type=click.FloatRange(0, 1, min_open=True, max_open=True)
    ),
    "correction": with_default(
        "--correction",
        "none",
        "Whether the level is that of each test (none) or of all tests of a concept (familywise).",
        type=click.Choice(("none", "familywise")),
    ),
    "delta": with_default("--delta", 0.0, "Shift Δ of the second test.", type=float),
    "penalty": with_default(
        "--penalty",
        "auto",
        "Penalty of the directions (not of the head), or auto.",
        metavar="NUMBER|auto",
        callback=_number_or_auto,
    ),
    "balance": with_default("--balance", "group", "Classes that get equal weight.", type=click.Choice(BALANCES)),
    "metric": with_default(
        "--metric",
        0.25,
        "In which metric the directions of the two labels are orthogonal: from 0 "
        "(weights are) to 1 (scores are uncorrelated).",
        type=click.FloatRange(0, 1),
    ),
    "max_spurious": click.option("--max-spurious", type=click.IntRange(0), help="Most directions to remove."),
    "max_main": click.option("--max-main", type=click.IntRange(0), help="Most directions of the task to find."),
    "strength": with_default(
        "--strength", 1.0, "Share of the removal to apply, from 0 to 1.", type=click.FloatRange(0, 1)
    ),
}
FITTING_PARAMETERS = tuple(_FITTING_OPTIONS)
fitting_options = in_order(*_FITTING_OPTIONS.values())


def check_output(output: Path, *inputs: Path | None, force: bool, suffixes: tuple[str, ...] = ()) -> None:
    """Raise an error before anything is read if the output is of the wrong kind, an input, or is to be kept."""
    from unspur._files import refuse_existing
    from unspur.exceptions import InputError

    if suffixes and output.suffix.lower() not in suffixes:
        raise click.UsageError(
            f"Give {output} a name that ends in {' or '.join(filter(None, (', '.join(suffixes[:-1]), suffixes[-1])))}."
        )
    for path in inputs:
        if path is not None and path.exists() and output.exists() and output.samefile(path):
            raise InputError(f"{output} is an input file; choose another name for the output.")
    refuse_existing(output, overwrite=force)
