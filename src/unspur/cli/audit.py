"""`unspur audit`: which columns of a table are associated with the task, visible, and used."""

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
    RowOptions,
    cluster_option,
    collect_row_options,
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
    from collections.abc import Iterable, Mapping, Sequence

    from unspur._typing import Array
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
@click.option(
    "--labels",
    type=LocalPath(path_type=Path),
    help="Folder for the bins of flagged numeric columns, written as .npy label files.",
)
@seed_option
@force_option
@json_option
@collect_row_options
def audit_command(
    row_options: RowOptions[str],
    columns: tuple[str, ...],
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
    r"""Find columns that may be spurious.

    Each column is asked three things. Is it associated with the task? Does the embedding show it? Does an unweighted
    head err more often where it contradicts the task? A column is flagged if all three are significant after
    correction for the number of columns. Whether it is spurious is for you to decide.

    In a .csv or Parquet table, text, whole numbers and columns with empty cells are audited, and all other columns are
    features. With --column only the columns that you name are audited, and all others are features.

    Example:
      unspur audit birds.csv --task bird
      unspur audit store --task bird --show birds.csv
    """
    from unspur.auditing import as_measurement, audit

    asked, table = _read(row_options, columns, shown, row_options.where)
    n_rows_total = len(table.Z)
    table, sampling_notes = _sampled(table, max_rows, seed)
    names = asked if columns or table.features is not None else tuple(name for name in table.columns if name != "id")
    audited = {
        name: table.label(name) for name in names if name not in {*row_options.columns, shown, *row_options.ignore}
    }
    for name in audited if columns else ():  # whoever names a column of whole numbers does not mean an id
        audited[name] = as_measurement(audited[name])
    other_shapes = {  # such as the names of the features, or a seed, beside the rows of a .npz
        name: f"it is an array of shape {values.shape}, and not one value for each row"
        for name, values in audited.items()
        if values.shape[:1] != (len(table.Z),)
    }
    audited = {name: values for name, values in audited.items() if name not in other_shapes}
    progress = not as_json and sys.stderr.isatty()
    if shown is not None:
        audited |= _properties(shown, table, root, allow_outside=allow_outside, progress=progress)
    if not audited:
        others = "".join(f" ({name}: {reason})" for name, reason in other_shapes.items())
        raise click.UsageError(
            f"{row_options.file} has no columns to audit besides {row_options.main}{others}. Name some with --column, "
            "or use --show."
        )
    with progress_bar("audit", 2 + min(max_probes, len(audited)), shown=progress) as step:
        result = audit(
            table.Z,
            {row_options.main: table.label(row_options.main)},
            audited,
            clusters=None if row_options.clusters is None else table.label(row_options.clusters),
            level=level,
            max_rows=max_rows,
            max_probes=max_probes,
            random_state=seed,
            callback=step,
        )
    result = replace(
        result,
        skipped={**result.skipped, **other_shapes},
        notes=(*sampling_notes, *_notes_on_features(row_options.file, columns, table), *result.notes),
        n_rows_total=n_rows_total,
    )
    label_files = {}
    if labels is not None and (numbers := [column.name for column in result.flagged if column.kind == "number"]):
        # Bins are for all rows of the file; properties of content are known of those that were audited.
        whole = table if table.kept is None else _read(row_options, columns, shown, ())[1]
        label_files = _write_labels(labels, numbers, audited, table, whole, overwrite=force)
    first, next_command = result.recommended, None
    if first is not None and (first.kind != "number" or first.name in label_files):
        not_features = (*row_options.ignore, *(asked if table.features is not None else ()))
        next_command = _report_command(row_options, label_files.get(first.name, first.name), not_features)
        content = [] if shown is None else ["--show", shown, *(() if root is None else ("--root", str(root)))]
        content += ["--allow-outside"] if allow_outside else []
        next_command += [shlex.join(content)] if content else []
    if as_json:
        command = None if next_command is None else shlex.join(shlex.split(" ".join(next_command)))
        echo_json({**result.to_dict(), "next": command})
        return
    show(result)
    if next_command is not None:
        say()
        say_command("Next:", next_command)
    elif first is not None:
        say()
        say(
            f"Next: {first.name} is a number. Add --labels FOLDER to write its bins as labels, and this prints the "
            "command that removes them; or remove the number itself in Python, by LEACE(concept_type='continuous')."
        )


def _report_command(row_options: RowOptions[str], concept: str, not_features: Iterable[str]) -> list[str]:
    """The command that removes a column of these rows, in quoted words."""
    options = options_of_rows(vars(replace(row_options, concept=(concept,), ignore=())))
    options += [
        ("--ignore", name) for name in dict.fromkeys(not_features) if name not in {*row_options.columns, concept}
    ]
    words = [f"{option} {shlex.quote(value)}" for option, value in options]
    return ["unspur report", shlex.quote(row_options.file), *words]


def _read(
    row_options: RowOptions[str], columns: tuple[str, ...], shown: str | None, where: Conditions
) -> tuple[tuple[str, ...], Table]:
    """Columns to audit, and the rows that meet the conditions with all columns that are not features.

    In a store or a .npz, features are not columns, so the columns to audit are those of --column.
    """
    from unspur.io.files import label_like_columns

    if row_options.main in columns:
        raise click.UsageError(f"--column {row_options.main} is the task itself; name other columns.")
    not_features = {*row_options.columns, shown, *row_options.ignore}
    asked = tuple(name for name in (columns or label_like_columns(row_options.file)) if name not in not_features)
    content: tuple[str, ...] = ()
    if shown is not None and is_column(shown, row_options.file):
        refuse_unread_dataset(shown, Path(row_options.file))
        content = (shown,)
    names = tuple(dict.fromkeys((row_options.main, *asked, *row_options.columns, *content)))
    ignore = tuple(name for name in row_options.ignore if name not in names)
    # Of a store or .npz file, whose features are apart, every label is audited.
    classes = (row_options.main, *asked) if asked or content else None
    options: Any = {"others": (row_options.where,), "classes": classes, "cluster_column": row_options.clusters}
    table = read_rows(row_options.file, names, ignore, where, **options)
    check_labels(table, row_options.main, ())
    return asked, table


def _notes_on_features(file: str, columns: tuple[str, ...], table: Table) -> list[str]:
    """A note on columns that would be audited without --column, and are features with it."""
    from unspur.io.files import label_like_columns

    features = set(table.features or ())
    odd = [name for name in label_like_columns(file) if name in features] if columns and features else []
    if not odd or len(odd) == len(features):  # pixels, for example, are all whole numbers
        return []
    named = ", ".join(odd[:5]) + (f" and {len(odd) - 5} more" if len(odd) > 5 else "")
    return [
        f"{named}: whole numbers, or with empty cells, and used as features, since --column names other columns. "
        "Leave out with --ignore what is no feature."
    ]


def _sampled(table: Table, max_rows: int, seed: int) -> tuple[Table, list[str]]:
    """At most so many rows, drawn before pictures are read; and a note."""
    import numpy as np

    n = len(table.Z)
    if n <= max_rows:
        return table, []
    chosen = np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False))
    return table.select(chosen), [f"{max_rows:,} rows were drawn at random from {n:,}."]


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
    folder: Path, names: Sequence[str], audited: Mapping[str, Array], table: Table, whole: Table, *, overwrite: bool
) -> dict[str, str]:
    """Write the bins of numeric columns as .npy files of text; returns the file of each column.

    A file has a line for each row of the `whole` file: its bin of those that were audited, or "" if it is missing.
    """
    import numpy as np

    from unspur._files import atomic
    from unspur.auditing import bin_labels

    names_of_files, written = _file_names(audited), {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in whole.columns:
            labels = bin_labels(whole.label(name), audited[name])
        else:
            bins = bin_labels(audited[name])
            labels = np.full(len(whole.Z), "", dtype=bins.dtype)
            labels[slice(None) if table.kept is None else table.kept] = bins
        path = folder / names_of_files[name]
        with atomic(path, overwrite=overwrite) as temporary, temporary.open("wb") as file:
            np.save(file, labels, allow_pickle=False)
        written[name] = str(path)
    return written


def _file_names(columns: Iterable[str]) -> dict[str, str]:
    """A file for the bins of each column, in letters and digits of its name; none are the same if case does not count.

    They are not called as the column alone, which rows may have beside them.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in columns:
        plain = "".join(c if c.isalnum() else "-" for c in column)
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        name = next(name for name in numbered if name.casefold() not in taken)
        taken.add(name.casefold())
        names[column] = f"{name}-bins.npy"
    return names
