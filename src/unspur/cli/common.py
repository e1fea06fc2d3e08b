"""What the verbs share: options, how rows are read, and JSON output.

Nothing heavy is imported before it is used: a shell that completes options imports this module too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from unspur.cli.completion import column_names, columns_of
from unspur.cli.words import say

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.io.tables import Table
    from unspur.labels import ClassLabel

#: Columns and the values they must have.
Conditions: TypeAlias = tuple[tuple[str, str], ...]
F = TypeVar("F", bound=Callable[..., Any])
#: One file, or several.
Named = TypeVar("Named", str, tuple[str, ...])


class LocalPath(click.Path):
    """A file or folder of this machine; a URL, which would be taken for one, is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path as click gives it."""
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", str(value)):
            self.fail(
                f"{value} is a URL; the command line reads and writes local paths. Copy or mount it, or use Python, "
                "where rows may come from URLs: JSE().fit(da.from_zarr(url), …) with import dask.array as da.",
                param, ctx,
            )  # fmt: skip
        return super().convert(value, param, ctx)


def ignore_option(text: str) -> Callable[[F], F]:
    """The option that says which columns are left out."""
    return click.option(
        "--ignore", multiple=True, metavar="NAME", shell_complete=columns_of("file", "files"), help=text
    )


def _require_two_labels(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> None:
    """The value of --main or --concept must not be that of the other as well."""
    other = ctx.params.get("concept" if parameter.name == "main" else "main")
    if both := set(given) & set(other if isinstance(other, tuple) else (other,)):
        raise click.UsageError(
            f"--main and --concept both name {min(both)!r}; what is kept cannot be what is removed. Name two labels.",
            ctx=ctx,
        )


def label_options(function: F) -> F:
    """Options that say which columns or arrays are the labels."""
    for option in (
        click.option("--missing-concept",
                     help="Value of a concept that means not known, besides empty cells and NaN, NA, None or null."),
        ignore_option("A column that is neither feature nor label; may be repeated."),
        click.option("--concept", required=True, multiple=True, metavar="NAME", callback=_concepts,
                     shell_complete=columns_of("file", "files"),
                     help="Concept to remove, given the same way; may be repeated."),
        click.option("--main", "main", required=True, multiple=True, metavar="NAME", callback=_main,
                     shell_complete=columns_of("file", "files"),
                     help="Main-task label: a column, an array of the .npz, or a .npy file."),
    ):  # fmt: skip
        function = option(function)
    return function


def aside(labels: tuple[str, ...], clusters: str | None, path: Any) -> tuple[str, ...]:
    """The labels to read of a file whose rows are only measured on: clusters if it has them."""
    if clusters is None or (isinstance(path, str) and clusters in column_names(path)):
        return labels
    return tuple(name for name in labels if name != clusters)


def only_one(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:  # noqa: ARG001
    """A callback for options of which the last would win in silence if there were two."""
    if len(given) > 1:
        raise click.BadParameter(f"it is given {len(given)} times ({', '.join(given)}); give one.")
    return given[0] if given else None


#: The option that says which rows belong together.
cluster_option = click.option(
    "--cluster", "clusters", multiple=True, callback=only_one, metavar="NAME",
    shell_complete=columns_of("file", "files"),
    help="Rows with the same value belong together (one film, one person): held out together, counted once.",
)  # fmt: skip


def with_clusters(labels: tuple[str, ...], clusters: str | None) -> tuple[str, ...]:
    """Columns that are no features: labels, and what says which rows belong together."""
    return labels if clusters is None else (*labels, clusters)


def _concepts(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names that may be several, each of them once."""
    if twice := [name for name in given if given.count(name) > 1]:
        raise click.BadParameter(f"{twice[0]} is given twice.")
    _require_two_labels(ctx, parameter, given)
    return given


def _main(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    """One name."""
    name = only_one(ctx, parameter, given)
    _require_two_labels(ctx, parameter, given)
    return name


def missing_values(text: str | None, table: Table, concepts: Sequence[str]) -> dict[str, Any]:
    """The value behind --missing-concept for each concept, in its type; None for concepts that cannot have it.

    A value that no row has is noted on standard error.
    """
    from unspur.io.tables import NOT_THERE

    if text is None:
        return dict.fromkeys(concepts)
    known = {name: [value for value in table.label(name).ravel().tolist() if value is not None] for name in concepts}
    found = {name: _value(text, values) for name, values in known.items()}
    if text in NOT_THERE or not text.strip():  # of a column of a file these are gaps already
        return found
    if all(value is None for value in found.values()):
        are = "the concept is a number" if len(found) == 1 else "the concepts are numbers"
        raise click.BadParameter(f"{are}, {text!r} is not.", param_hint="--missing-concept")
    if not any(found[name] is not None and found[name] in values for name, values in known.items()):
        say(f"Note: no row of {table.path} has {' or '.join(concepts)} = {text}; --missing-concept {text} marks none "
            "of them as not known.", err=True)  # fmt: skip
    return found


def _value(text: str, known: Sequence[Any]) -> Any:
    """What stands for `text` in a column of the values `known`; None where they are numbers, and it is not."""
    if any(isinstance(value, bool) for value in known):
        return {"True": True, "False": False}.get(text, text)
    if not known or not all(isinstance(value, int | float) for value in known):
        return text
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return None


def concept_labels(
    table: Table, concepts: Sequence[str], missing: Mapping[str, Any], like: Mapping[str, ClassLabel] | None = None
) -> dict[str, ClassLabel]:
    """Classes of every concept, by name; `missing` has the value of each that means not known.

    `like` are those of the training rows, which have the classes to expect.
    """
    from unspur.labels import class_label

    known = {name: None if like is None else like[name].classes for name in concepts}
    return {
        name: class_label(table.label(name), name, len(table.Z), missing=missing[name], classes=known[name])
        for name in concepts
    }


def concept_values(table: Table, labels: Mapping[str, ClassLabel]) -> dict[str, Array]:
    """The concepts as `fit` takes them: columns by name, None where a concept is not known."""
    import numpy as np

    columns = {name: (table.label(name), label.present) for name, label in labels.items()}
    return {
        name: values if known.all() else np.where(known, values.astype(object), None)
        for name, (values, known) in columns.items()
    }


def _conditions(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Conditions:  # noqa: ARG001
    for text in given:
        if "=" not in text.lstrip("="):
            raise click.BadParameter(f"{text!r} is not of the form COLUMN=VALUE, such as split=train.")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def _conditions_on(file: str | Sequence[str], where: Conditions) -> Conditions:
    """Conditions on the columns that a file has: with several "=", the longest name that one of them has."""
    if not any("=" in value for _, value in where):
        return where
    names = column_names(file if isinstance(file, str) else file[0])
    found = []
    for condition in where:
        text = "=".join(condition)
        name = max((name for name in names if text.startswith(f"{name}=")), key=len, default=condition[0])
        found.append((name, text[len(name) + 1 :]))
    return tuple(found)


def where_option(of: str | None = None) -> Callable[[F], F]:
    """The option that chooses rows of FILE; with `of` ("test"), rows of the file that option names."""
    text = f"Only rows of the --{of} file (of FILE, if none is given)" if of else "Only rows of FILE"
    return click.option(
        f"--{of}-where" if of else "--where", multiple=True, metavar="COLUMN=VALUE", callback=_conditions,
        help=f"{text} that have this value; may be repeated.",
    )  # fmt: skip


def refuse_ignored_labels(labels: Sequence[str], ignore: Sequence[str]) -> None:
    """A column is used or left out, not both."""
    if both := [name for name in labels if name in ignore]:
        raise click.UsageError(f"{both[0]} is named as a label and with --ignore; it can be one of the two.")


def read_rows(
    file: str | Sequence[str],
    labels: tuple[str, ...],
    ignore: tuple[str, ...],
    where: Conditions,
    *,
    memory: str | None = None,
    scratch: str | None = None,
    progress: bool = False,
    cluster: Any = None,
    others: Sequence[Conditions] = (),
    classes: Sequence[str] = (),
) -> Table:
    """The rows of a file, of several, or of a store that meet the conditions, whose columns are no features.

    Nor are the columns that the conditions of `others`, the rows to test or validate on, name, if the file has them.
    The labels `classes` have gaps where a cell says that there is no value, with a note on standard error.
    With a Dask client as `cluster` its workers read them.
    """
    from unspur.io.tables import read_table, with_gaps

    refuse_ignored_labels(labels, ignore)
    where = _conditions_on(file, where)
    deciding = [name for name, _ in where if name not in labels]
    elsewhere = {name for conditions in others for name, _ in _conditions_on(file, conditions)} - {
        *labels,
        *deciding,
        *ignore,
    }
    if elsewhere:
        elsewhere &= set(column_names(file if isinstance(file, str) else file[0]))
    names = (*labels, *deciding, *sorted(elsewhere))
    unwanted = tuple(name for name in ignore if name not in deciding)
    if cluster is None:
        table = read_table(file, names, unwanted, memory=memory, scratch=scratch, progress=progress)
    else:
        from unspur.io.clustered import read_clustered

        table = read_clustered([file] if isinstance(file, str) else file, names, unwanted, cluster)
    table, notes = with_gaps(table, classes)
    for note in notes:
        say(f"Note: {note}", err=True)
    for name, value in where:
        table = table.where(name, value)
    dropped = [name for name in deciding if name in ignore]
    return replace(table, columns={name: column for name, column in table.columns.items() if name not in dropped})


def other_file(
    file: Named, other: str | None, where: Conditions, other_where: Conditions, option: str
) -> Named | str | None:
    """Where test or validation rows come from: the file that was named, or other rows of FILE."""
    if other is not None or not other_where:
        return other
    if not where:
        raise click.UsageError(f"--{option}-where takes rows of FILE; say with --where which rows are the others.")
    return file


def refuse_input_as_output(output: str, *inputs: str | None) -> None:
    """Results never replace what they were made from, nor get among it."""
    from unspur.embed.store import MANIFEST
    from unspur.exceptions import InputError
    from unspur.rows.names import PARQUET

    for name in inputs:
        if name is not None and Path(name).exists() and Path(output).exists() and Path(output).samefile(name):
            raise InputError(f"--output {output} is an input file; choose another name.")
        above = Path(output).resolve().parents
        # Parquet files are found at any depth, others only where they lie.
        above = above if Path(output).suffix.lower() in PARQUET else above[:1]
        if name is not None and Path(name).is_dir() and Path(name).resolve() in above:
            kind = "embedding store" if (Path(name) / MANIFEST).exists() else "folder of the rows,"
            raise InputError(f"--output {output} lies in the {kind} {name}; choose another place.")


def require_removal_name(path: str, option: str) -> None:
    """Raise unless a file for a removal is called like one, or has no ending: other endings promise other contents."""
    ending = Path(path).suffix
    if ending.lower() not in ("", ".safetensors"):
        raise click.UsageError(
            f"{option} {path}: a removal is written as a .safetensors file, and not as {ending}. Name it "
            f"{Path(path).with_suffix('.safetensors')}."
        )


def echo_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _memory(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:  # noqa: ARG001
    if given is not None:
        from unspur.exceptions import InputError
        from unspur.rows.stored import as_bytes

        try:
            as_bytes(given)
        except InputError as error:
            raise click.BadParameter(str(error)) from None
    return given


memory_option = click.option(
    "--memory", metavar="SIZE", callback=_memory,
    help="Leave rows in their files (.npy, Parquet, stores) and use this much memory for them, such as 1GB.",
)  # fmt: skip
scratch_option = click.option(
    "--scratch", type=LocalPath(), metavar="FOLDER",
    help="With --memory: where temporary files go, and a decoded copy of Parquet rows, which makes passes faster.",
)  # fmt: skip
outside_option = click.option(
    "--allow-outside", is_flag=True, help="Let a table name pictures outside of their folder (.., /, or links out)."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Random seed."
)
