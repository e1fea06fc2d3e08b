"""Options that commands share, and checks of them that need no data.

Nothing heavy is imported at the top: a shell that completes options imports this module too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import click

from unspur._registry import HEAD_POINTS, HEADS, REMOVER_POINTS, REMOVERS, entry_points_by_name
from unspur.cli.completion import columns_of

#: Pairs of a column and the value that rows must have in it.
Conditions: TypeAlias = tuple[tuple[str, str], ...]
F = TypeVar("F", bound=Callable[..., Any])
Balance: TypeAlias = Literal["none", "concept", "main", "group"]
#: Removers, those that can be compared, and heads, by name; those of other packages are last.
FITTED_NAMES = (*REMOVERS, *entry_points_by_name(REMOVER_POINTS, REMOVERS))
REMOVER_NAMES = ("none", "JSE", "JSE-metric-0", "JSE-metric-1", *(name for name in FITTED_NAMES if name != "JSE"))
HEAD_NAMES = (*HEADS, *entry_points_by_name(HEAD_POINTS, HEADS))
_OLD_METHOD_NAMES = {"JSE-w": "JSE-metric-0", "JSE-s": "JSE-metric-1"}
#: Options that are not called like the parameters that they set.
_OPTION_NAMES = {"overwrite": "force", "X_val": "validation", "clusters": "cluster", "test_file": "test"}
#: One file, or several.
Files = TypeVar("Files", str, tuple[str, ...])


def option_name(parameter: str) -> str:
    """The option that sets a parameter: "max_pairs" is "--max-pairs"."""
    return f"--{_OPTION_NAMES.get(parameter, parameter).replace('_', '-')}"


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


class LocalPath(click.Path):
    """A file or folder of this machine; URLs are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as click gives it."""
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(value)):
            self.fail(
                f"{value} is a URL; the command line reads and writes local paths. Copy or mount it, or use Python, "
                "where rows may come from URLs: JSE().fit(da.from_zarr(url), …) with import dask.array as da.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class MethodName(click.Choice[str]):
    """A remover or a head by name; earlier spellings are understood as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as the help has it."""
        return super().convert(_OLD_METHOD_NAMES.get(value, value), param, ctx)


def ignore_option(text: str) -> Callable[[F], F]:
    """``--ignore``, columns that are left out."""
    return click.option("--ignore", multiple=True, metavar="NAME", shell_complete=columns_of("file"), help=text)


def _require_two_labels(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    """Raise UsageError if --task and --concept name the same column."""
    other = ctx.params.get("concept" if parameter.name == "main" else "main")
    if both := set(given) & set(other if isinstance(other, tuple) else (other,)):
        raise click.UsageError(
            f"--task and --concept both name {min(both)!r}; what is kept cannot be what is removed. Name two labels.",
            ctx=ctx,
        )


def given_once(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:  # noqa: ARG001
    """A callback for options that must not be repeated; click would take the last in silence."""
    if len(given) > 1:
        raise click.BadParameter(f"passed {len(given)} times ({', '.join(given)}); pass it once.")
    return given[0] if given else None


cluster_option = click.option(
    "--cluster",
    "clusters",
    multiple=True,
    callback=given_once,
    metavar="NAME",
    shell_complete=columns_of("file"),
    help="Rows with the same value belong together (one film, one person). They stay in the same fold, and tests "
    "treat them as dependent.",
)


def _distinct_concepts(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """A callback for --concept, which may be repeated with different names."""
    if twice := [name for name in given if given.count(name) > 1]:
        raise click.BadParameter(f"{twice[0]} is given twice.")
    _require_two_labels(ctx, parameter, given)
    return given


def _one_main_label(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    """A callback for --task."""
    name = given_once(ctx, parameter, given)
    _require_two_labels(ctx, parameter, given)
    return name


main_option = partial(
    click.option,
    "--task",
    "main",
    multiple=True,
    metavar="NAME",
    callback=_one_main_label,
    shell_complete=columns_of("file"),
)
_concept_option = partial(
    click.option,
    "--concept",
    multiple=True,
    metavar="NAME",
    callback=_distinct_concepts,
    shell_complete=columns_of("file"),
)
_missing_concept_option = click.option(
    "--missing-concept",
    help="Value that marks an unknown concept, in addition to empty cells, NaN, NA, None and null.",
)
#: Options that say which columns or arrays are the labels.
label_options = in_order(
    main_option(required=True, help="Main-task label: a column, an array of the .npz, or a .npy file."),
    _concept_option(required=True, help="Concept to remove, given the same way; may be repeated."),
    ignore_option("A column that is neither feature nor label; may be repeated."),
    _missing_concept_option,
)
#: The same for commands that need no labels, and compare them with predictions if there are any.
optional_label_options = in_order(
    main_option(help="Main-task label, if the file has it, to measure the accuracy."),
    _concept_option(help="Concept label, if the file has it, to measure by group; may be repeated."),
    _missing_concept_option,
)


def _conditions(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Conditions:  # noqa: ARG001
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


@dataclass(frozen=True)
class RowOptions(Generic[Files]):
    """The options that say which rows a command reads, and which columns are labels; not every command has all."""

    file: Files
    #: None if a command does not require it, and it is not given.
    main: Any
    concept: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    missing_concept: str | None = None
    clusters: str | None = None
    where: Conditions = ()
    test_file: Files | str | None = None
    test_where: Conditions = ()
    validation: Files | str | None = None
    validation_where: Conditions = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that hold classes."""
        return (self.main, *self.concept)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are not features: labels, and clusters if they are named."""
        return self.labels if self.clusters is None else (*self.labels, self.clusters)

    @property
    def conditions(self) -> tuple[Conditions, ...]:
        """Those on the rows of every split."""
        return self.where, self.test_where, self.validation_where

    def with_other_files(self) -> RowOptions[Files]:
        """The same with FILE in place of a file that only --test-where or --validation-where stand for."""
        selected = {"test": self.test_where, "validation": self.validation_where}
        files = {"test": self.test_file, "validation": self.validation}
        for option, file in files.items():
            if file is None and selected[option]:
                if not self.where:
                    raise click.UsageError(
                        f"--{option}-where selects {option} rows from FILE, so --where must select the training rows."
                    )
                files[option] = self.file
        return replace(self, test_file=files["test"], validation=files["validation"])


def collect_row_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: it gets the options of `RowOptions` as one argument, `row_options`."""
    names = [field.name for field in fields(RowOptions)]

    @wraps(command)
    def with_row_options(**values: Any) -> None:
        command(row_options=RowOptions(**{name: values.pop(name) for name in names if name in values}), **values)

    return with_row_options


def with_row_options(validation: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The argument FILE and all options of `RowOptions`; `validation` is the help of --validation."""
    return in_order(
        click.argument("file", type=LocalPath()),
        label_options,
        cluster_option,
        where_option(),
        click.option(
            "--test", "test_file", type=LocalPath(), help="File with test rows; else 30 % of each group of FILE."
        ),
        where_option("test"),
        click.option("--validation", type=LocalPath(), help=validation),
        where_option("validation"),
        collect_row_options,
    )


def options_of_rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Options of `RowOptions`, with their values, that tell other commands of the same rows."""
    options = []
    for field in fields(RowOptions)[1:]:  # without the file
        value = values.get(field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None:
                text = "=".join(one) if isinstance(one, tuple) else str(one)
                options.append((option_name(field.name), text))
    return options


def check_output(output: str, *inputs: str | None, overwrite: bool, option: str = "--output") -> None:
    """Raise InputError if the output is an input file, lies in a folder that is read, or exists and is to be kept."""
    from unspur._files import refuse_existing
    from unspur._reading import PARQUET
    from unspur.embed.store import is_store
    from unspur.exceptions import InputError

    for name in inputs:
        if name is not None and Path(name).exists() and Path(output).exists() and Path(output).samefile(name):
            raise InputError(f"{option} {output} is an input file; choose another name.")
        above = Path(output).resolve().parents
        # Parquet files are found at any depth, others only where they lie.
        above = above if Path(output).suffix.lower() in PARQUET else above[:1]
        if name is not None and Path(name).is_dir() and Path(name).resolve() in above:
            kind = "embedding store" if is_store(Path(name)) else "folder of the rows,"
            raise InputError(f"{option} {output} lies in the {kind} {name}; choose another place.")
    refuse_existing(output, overwrite=overwrite)


def require_removal_name(path: str, option: str) -> None:
    """Raise UsageError if the name of a file for a removal ends in anything but .safetensors."""
    ending = Path(path).suffix
    if ending.lower() not in ("", ".safetensors"):
        raise click.UsageError(
            f"{option} {path}: a removal is written as a .safetensors file, and not as {ending}. Name it "
            f"{Path(path).with_suffix('.safetensors')}."
        )


outside_option = click.option(
    "--allow-outside",
    is_flag=True,
    help="Allow image paths that leave the image folder (.., absolute paths, symbolic links).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = with_default("--seed", 0, "Random seed.", type=click.IntRange(0, 2**32 - 1))


def _number_or_auto(ctx: click.Context, parameter: click.Parameter, value: str) -> Any:  # noqa: ARG001
    if value == "auto":
        return value
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise click.BadParameter(f"{value!r} is neither a number nor 'auto'.")
    return number


def _metric(ctx: click.Context, parameter: click.Parameter, value: str) -> Any:
    """A number from 0 to 1, or "auto"."""
    number = _number_or_auto(ctx, parameter, value)
    if number != "auto" and not 0 <= number <= 1:
        raise click.BadParameter(f"{value} is not between 0 and 1.")
    return number


def _folds(ctx: click.Context, parameter: click.Parameter, value: int) -> int:  # noqa: ARG001
    if value == 1:
        raise click.BadParameter("one fold cannot be cross-fitted; use 0 or at least 2.")
    return value


#: Options of a fit by the parameters that they set.
_FITTING_OPTIONS = {
    "cv": with_default("--cv", 5, "Folds to cross-fit in; 0 holds out 20 %.", type=click.IntRange(0), callback=_folds),
    "smallest_group": with_default(
        "--smallest-group",
        10,
        "Minimum number of held-out rows in each group (main, concept).",
        type=click.IntRange(2),
    ),
    "significance_level": with_default(
        "--significance-level",
        0.05,
        "Significance level of the tests.",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
    ),
    "correction": with_default(
        "--correction",
        "none",
        "Whether the level applies to each test (none) or to all tests of a concept (familywise).",
        type=click.Choice(("none", "familywise")),
    ),
    "delta": with_default("--delta", "0", "Shift Δ of the second test, or auto.", callback=_number_or_auto),
    "penalty": with_default(
        "--penalty", "auto", "Penalty of the direction fit (not of the head), or auto.", callback=_number_or_auto
    ),
    "balance": with_default(
        "--balance", "group", "Classes that get equal weight.", type=click.Choice(get_args(Balance))
    ),
    "metric": with_default(
        "--metric",
        "0.25",
        "Metric in which the weights of the two labels are orthogonal: 0 (weights are), 1 (scores are "
        "uncorrelated), between, or auto.",
        metavar="NUMBER|auto",
        callback=_metric,
    ),
    "solver": with_default(
        "--solver", "exact", "How a pair is estimated; sgd is the paper's.", type=click.Choice(("exact", "sgd"))
    ),
    "max_spurious": click.option("--max-spurious", type=click.IntRange(0), help="Most directions to remove."),
    "max_pairs": with_default("--max-pairs", 500, "Most pairs of directions to estimate.", type=click.IntRange(1)),
    "strength": with_default(
        "--strength",
        1.0,
        "Share of the removal to apply, from 0 (nothing) to 1 (all of it).",
        type=click.FloatRange(0, 1),
    ),
}
FITTING_PARAMETERS = tuple(_FITTING_OPTIONS)
#: The options of a fit.
fitting_options = in_order(*_FITTING_OPTIONS.values())
