"""`unspur audit`: which columns of a table travel with the task, are visible, and are used."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.completion import columns_of
from unspur.cli.console import echo_json, progress_bar, say, say_command, show
from unspur.cli.data import check_labels, read_rows
from unspur.cli.options import (
    Conditions,
    LocalPath,
    cluster_option,
    force_option,
    ignore_option,
    json_option,
    main_option,
    options_of_rows,
    outside_option,
    seed_option,
    where_option,
    with_default,
)
from unspur.cli.report import is_column, refuse_unread_dataset, root_option, row_content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unspur._typing import Array
    from unspur.auditing import Audit, AuditedColumn
    from unspur.io.table import Table


@click.command("audit")
@click.argument("file", type=LocalPath())
@main_option(required=True, help="Main-task label: a column, an array of the .npz, or a .npy file.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    shell_complete=columns_of("file"),
    help="A column to audit; may be repeated. Default: every column that is not a feature.",
)
@ignore_option("A column that is neither feature nor audited; may be repeated.")
@cluster_option
@where_option()
@click.option(
    "--show",
    "shown",
    metavar="NAME",
    shell_complete=columns_of("file"),
    help="Pictures or texts whose properties are audited as well: a column of paths or texts, an array of pictures or, "
    "for a store, the .csv table or the dataset it was made from.",
)
@root_option
@outside_option
@with_default("--level", 0.05, "Significance level of all columns together.", type=click.FloatRange(0, 1, True, True))
@with_default("--max-rows", 10_000, "Most rows to use, drawn at random.", type=click.IntRange(1))
@with_default("--max-probes", 50, "Most columns to train a probe for.", type=click.IntRange(0))
@click.option("--labels", type=LocalPath(path_type=Path), help="Folder for the bins of named numbers, as .npy labels.")
@seed_option
@force_option
@json_option
def audit_command(
    file: str,
    main: str,
    columns: tuple[str, ...],
    ignore: tuple[str, ...],
    clusters: str | None,
    where: Conditions,
    shown: str | None,
    root: Path | None,
    allow_outside: bool,
    level: float,
    max_rows: int,
    max_probes: int,
    labels: Path | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    r"""Say which columns travel with the task, are visible, and are used.

    Each column is asked three things. Is it associated with the task? Does the embedding show it? Does a plain layer
    err more often where it contradicts the task? A column for which all three are significant, after correction for
    the number of columns, is named; whether it is spurious is for you to decide.

    In a .csv or Parquet table, text, whole numbers and columns with empty cells are audited, and all other columns are
    features. With --column only the columns that are named are audited, and all others are features.

    Example:
      unspur audit birds.csv --main bird
      unspur audit store --main bird --show birds.csv
    """
    from unspur.auditing import audit

    asked = _columns_to_audit(file, main, columns, ignore, clusters, shown)
    table = _read(file, main, asked, ignore, clusters, where, shown)
    table, drawn = _sampled(table, max_rows, seed)
    given = _audited(table, main, asked, bool(columns), clusters, ignore, shown)
    progress = not as_json and sys.stderr.isatty()
    if shown is not None:
        given |= _properties(shown, table, root, allow_outside=allow_outside, progress=progress)
    if not given:
        raise click.UsageError(
            f"{file} has no columns to audit besides {main}. Name some with --column, or use --show."
        )
    cluster = None if clusters is None else table.label(clusters)
    with progress_bar("audit", 2 + min(max_probes, len(given)), shown=progress) as step:
        found = audit(
            table.Z,
            {main: table.label(main)},
            given,
            clusters=cluster,
            level=level,
            max_rows=max_rows,
            max_probes=max_probes,
            random_state=seed,
            report=step,
        )
    found = replace(found, notes=(*drawn, *found.notes))
    written = {} if labels is None else _write_labels(labels, found, given, table, overwrite=force)
    rows = {"main": main, "clusters": clusters, "where": where}
    content = [] if shown is None else ["--show", shown, *(() if root is None else ("--root", str(root)))]
    content += ["--allow-outside"] if allow_outside else []
    aside = (*ignore, *(name for name in asked if table.features is not None))
    words = _next_command(file, rows, aside, content, found.recommended, written)
    if as_json:
        echo_json({**found.to_dict(), "next": None if words is None else shlex.join(shlex.split(" ".join(words)))})
        return
    show(found)
    _print_next(found.recommended, words)


def _columns_to_audit(
    file: str, main: str, columns: tuple[str, ...], ignore: tuple[str, ...], clusters: str | None, shown: str | None
) -> tuple[str, ...]:
    """Columns to read beside the features; of a store or a .npz, whose features are apart, only those of --column."""
    from unspur.io.files import label_like_columns

    if main in columns:
        raise click.UsageError(f"--column {main} is the task itself; name other columns.")
    apart = {main, clusters, shown, *ignore}
    return tuple(name for name in (columns or label_like_columns(file)) if name not in apart)


def _read(
    file: str,
    main: str,
    asked: tuple[str, ...],
    ignore: tuple[str, ...],
    clusters: str | None,
    where: Conditions,
    shown: str | None,
) -> Table:
    """The rows of a file, with the columns that are not features."""
    content: tuple[str, ...] = ()
    if shown is not None and is_column(shown, file):
        refuse_unread_dataset(shown, Path(file))
        content = (shown,)
    apart = tuple(dict.fromkeys((main, *asked, *(() if clusters is None else (clusters,)), *content)))
    unwanted = tuple(name for name in ignore if name not in apart)
    table = read_rows(file, apart, unwanted, where, classes=(main, *asked), cluster_column=clusters)
    check_labels(table, main, ())
    return table


def _sampled(table: Table, max_rows: int, seed: int) -> tuple[Table, list[str]]:
    """At most so many rows, drawn before pictures are read; and a note."""
    import numpy as np

    n = len(table.Z)
    if n <= max_rows:
        return table, []
    chosen = np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False))
    return table.select(chosen), [f"{max_rows:,} rows were drawn at random from {n:,}."]


def _audited(
    table: Table,
    main: str,
    asked: tuple[str, ...],
    named: bool,
    clusters: str | None,
    ignore: tuple[str, ...],
    shown: str | None,
) -> dict[str, Array]:
    """The columns to audit; if none were `named`, all that the table has beside the features."""
    import numpy as np

    names = asked if named or table.features is not None else tuple(name for name in table.columns if name != "id")
    apart = {main, clusters, shown, *ignore}
    found = {name: table.label(name) for name in names if name not in apart}
    # Whoever names a column of whole numbers does not mean an id.
    return {
        name: column.astype(np.float64) if named and column.dtype.kind in "iu" else column
        for name, column in found.items()
    }


def _properties(name: str, table: Table, root: Path | None, *, allow_outside: bool, progress: bool) -> dict[str, Array]:
    """Properties of the pictures or texts of the rows."""
    from tqdm.auto import tqdm

    from unspur.embed.properties import content_properties
    from unspur.report.views import content_of

    given = row_content(name, table, root, allow_outside=allow_outside)
    content = content_of(given.get("pictures"), given.get("texts"), len(table.Z))
    assert content is not None
    with tqdm(total=len(content), desc="properties", disable=not progress, leave=False) as bar:
        return dict(content_properties(content, bar.update))


def _write_labels(
    folder: Path, found: Audit, given: dict[str, Array], table: Table, *, overwrite: bool
) -> dict[str, str]:
    """Write the bins of named numbers as .npy files of text; returns the file of each column.

    A file has a line for each row of the table, "" (missing) for rows that were not used.
    """
    import numpy as np

    from unspur.auditing import column_labels
    from unspur.io.artifact import atomic

    rows = len(table.Z) if table.file_rows is None else table.file_rows
    names_of_files, written = _file_names(given), {}
    for column in found.named:
        if column.kind != "number":
            continue
        path = folder / names_of_files[column.name]
        folder.mkdir(parents=True, exist_ok=True)
        names = column_labels(given[column.name])
        labels = np.full(rows, "", dtype=names.dtype)
        labels[slice(None) if table.kept is None else table.kept] = names
        with atomic(path, overwrite=overwrite) as temporary, temporary.open("wb") as file:
            np.save(file, labels, allow_pickle=False)
        written[column.name] = str(path)
    return written


def _file_names(columns: Iterable[str]) -> dict[str, str]:
    """A file for each column, in letters and digits of its name; no two are the same, whether or not case counts."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        plain = "".join(c if c.isalnum() else "-" for c in column)
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        name = next(name for name in numbered if name.casefold() not in taken)
        taken.add(name.casefold())
        names[column] = f"{name}.npy"
    return names


def _next_command(
    file: str,
    rows: dict[str, Any],
    aside: tuple[str, ...],
    content: list[str],
    first: AuditedColumn | None,
    written: dict[str, str],
) -> list[str] | None:
    """The command that removes the first column, each option with its value; None if there is none."""
    if first is None or (first.kind == "number" and first.name not in written):
        return None
    concept = written.get(first.name, first.name)
    options = options_of_rows({**rows, "concept": (concept,), "ignore": ()})
    apart = {rows["main"], rows["clusters"], concept}
    options += [("--ignore", name) for name in dict.fromkeys(aside) if name not in apart]
    words = [f"{name} {shlex.quote(value)}" for name, value in options]
    return ["unspur report", shlex.quote(file), *words, *([shlex.join(content)] if content else [])]


def _print_next(first: AuditedColumn | None, words: list[str] | None) -> None:
    """What to do next, if a column is named."""
    if words is not None:
        say()
        say_command("Next:", words)
    elif first is not None:
        say()
        say(
            f"Next: {first.name} is a number. Add --labels FOLDER to write its bins as labels, and this prints the "
            "command that removes them; or remove the number itself in Python, by LEACE(concept_type='continuous')."
        )
