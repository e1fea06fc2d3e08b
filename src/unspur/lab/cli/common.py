"""What the verbs share: options, how rows are read, and JSON output.

Nothing heavy is imported before it is used: a shell that completes options imports this module too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from unspur.lab.cli.completion import column_names, columns_of

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.lab.files import Table

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


def label_options(function: F) -> F:
    """Options that say which columns or arrays are the labels."""
    for option in (
        click.option("--missing-concept", help="Value of the concept that means not known, besides empty and NaN."),
        ignore_option("A column that is neither feature nor label; may be repeated."),
        click.option("--concept", required=True, metavar="NAME", shell_complete=columns_of("file", "files"),
                     help="Concept to remove, given the same way."),
        click.option("--main", "main", required=True, metavar="NAME", shell_complete=columns_of("file", "files"),
                     help="Main-task label: a column, an array of the .npz, or a .npy file."),
    ):  # fmt: skip
        function = option(function)
    return function


def aside(labels: tuple[str, ...], clusters: str | None, path: Any) -> tuple[str, ...]:
    """The labels to read of a file whose rows are only measured on: clusters if it has them."""
    if clusters is None or (isinstance(path, str) and clusters in column_names(path)):
        return labels
    return tuple(name for name in labels if name != clusters)


#: The option that says which rows belong together.
cluster_option = click.option(
    "--cluster", "clusters", metavar="NAME", shell_complete=columns_of("file", "files"),
    help="Rows with the same value belong together (one film, one person): held out together, counted once.",
)  # fmt: skip


def with_clusters(labels: tuple[str, ...], clusters: str | None) -> tuple[str, ...]:
    """Columns that are no features: labels, and what says which rows belong together."""
    return labels if clusters is None else (*labels, clusters)


def missing_value(text: str | None, concept: Array) -> Any:
    """The value behind --missing-concept, in the type of the concept."""
    if text is None or concept.dtype.kind not in "iuf":
        return text
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"the concept is a number, {text!r} is not.", param_hint="--missing-concept") from None


def _conditions(ctx: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Conditions:  # noqa: ARG001
    for text in given:
        if "=" not in text.lstrip("="):
            raise click.BadParameter(f"{text!r} is not of the form COLUMN=VALUE, such as split=train.")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in given))


def where_option(of: str | None = None) -> Callable[[F], F]:
    """The option that chooses rows of FILE; with `of` ("test"), rows of the file that option names."""
    text = f"Only rows of the --{of} file (of FILE, if none is given)" if of else "Only rows of FILE"
    return click.option(
        f"--{of}-where" if of else "--where", multiple=True, metavar="COLUMN=VALUE", callback=_conditions,
        help=f"{text} that have this value; may be repeated.",
    )  # fmt: skip


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
) -> Table:
    """The rows of a file, of several, or of a store that meet the conditions, whose columns are no features.

    With a Dask client as `cluster` its workers read them.
    """
    from unspur.lab.files import read_table

    deciding = [name for name, _ in where if name not in labels]
    names, unwanted = (*labels, *deciding), tuple(name for name in ignore if name not in deciding)
    if cluster is None:
        table = read_table(file, names, unwanted, memory=memory, scratch=scratch, progress=progress)
    else:
        from unspur.lab.files.clustered import read_clustered

        table = read_clustered([file] if isinstance(file, str) else file, names, unwanted, cluster)
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


def _sizes(ctx: click.Context, parameter: click.Parameter, given: str | None) -> dict[str, int] | None:  # noqa: ARG001
    if given is None:
        return None
    from unspur.lab.datasets.selected import SPLITS

    try:
        return dict(zip(SPLITS, map(int, given.split(",")), strict=True))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not three whole numbers, {','.join(SPLITS).upper()}.") from None


def sizes_option(text: str) -> Callable[[F], F]:
    """The option that says how large the three splits are."""
    return click.option("--sizes", metavar="TRAIN,VALIDATION,TEST", callback=_sizes, help=text)


def refuse_input_as_output(output: str, *inputs: str | None) -> None:
    """Results never replace what they were made from, nor get among it."""
    from unspur.exceptions import InputError
    from unspur.lab.encoders.store import MANIFEST
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
        from unspur.rows.budget import as_bytes

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
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")
seed_option = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1), help="Random seed."
)
