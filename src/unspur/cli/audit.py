"""`unspur audit`: which columns of a table are associated with the task, visible, and used."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.console import echo_json, print_path, progress_bar, say, say_command, show
from unspur.cli.options import (
    PATH,
    RowOptions,
    check_output,
    force_option,
    json_option,
    row_options,
    seed_option,
    with_default,
)
from unspur.cli.report import root_option, shown_content

if TYPE_CHECKING:
    from unspur._typing import Array
    from unspur.auditing import Audit
    from unspur.io import Table


@click.command("audit")
@row_options(concept=False)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME",
    help="A column to audit; may be repeated. Default: every column but numbers with a decimal point.",
)
@click.option(
    "--show",
    "shown",
    metavar="NAME",
    help="Pictures or texts whose properties are audited as well: a column of paths or texts, or an array.",
)
@root_option
@with_default("--level", 0.05, "Significance level of all columns together.", type=click.FloatRange(0, 1, True, True))
@with_default("--max-rows", 10_000, "Most rows to use, drawn at random.", type=click.IntRange(1))
@with_default("--max-probes", 50, "Most columns to train a probe for.", type=click.IntRange(0))
@click.option(
    "--bins", type=PATH, help="A CSV file for the bins of flagged numbers, which other commands take as --labels."
)
@seed_option
@force_option
@json_option
def audit_command(
    rows: RowOptions,
    columns: tuple[str, ...],
    shown: str | None,
    root: Path | None,
    level: float,
    max_rows: int,
    max_probes: int,
    bins: Path | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    r"""Find columns that may be spurious.

    Each column is asked three things. Is it associated with the task? Does the embedding show it? Does an unweighted
    head err more often where it contradicts the task? A column is flagged if all three are significant after
    correction for the number of columns. Whether it is spurious is for you to decide.

    Without --column, numbers with a decimal point are features and all other columns are audited.

    Example:
      unspur audit birds.csv --task bird
    """
    import numpy as np

    from unspur.auditing import as_measurement, audit
    from unspur.io import plain

    if rows.task in columns:
        raise click.UsageError(f"--column {rows.task} is the task itself; name other columns.")
    if bins is not None:
        check_output(bins, rows.file, force=force, suffixes=(".csv",))
    table = _read(rows, columns, shown)
    n, notes = len(table), []
    if n > max_rows:  # before pictures are read
        table = table.select(np.sort(np.random.default_rng(seed).choice(n, max_rows, replace=False)))
        notes.append(f"{max_rows:,} rows were drawn at random from {n:,}.")
    aside = {rows.task, rows.cluster, shown, *rows.ignore, *(name for name, _ in rows.where)}
    names = columns or [name for name in table.columns if name not in aside]
    audited = {name: plain(table.column(name)) for name in names}
    for name in columns:  # whoever names a column of whole numbers does not mean an id
        audited[name] = as_measurement(audited[name])
    progress = not as_json and sys.stderr.isatty()
    if shown is not None:
        audited |= _properties(shown_content(shown, table, root), len(table), progress)
    if not audited:
        raise click.UsageError(f"{rows.file} has no columns to audit besides {rows.task}; name some with --column.")
    with progress_bar("audit", 2 + min(max_probes, len(audited)), shown=progress) as step:
        found = audit(
            np.asarray(table.X),
            _task(table, rows.task),
            audited,
            clusters=None if rows.cluster is None else plain(table.column(rows.cluster)),
            level=level,
            max_rows=max_rows,
            max_probes=max_probes,
            random_state=seed,
            callback=step,
        )
    found = replace(found, notes=(*notes, *found.notes), n_rows_total=n)
    binned = [] if bins is None else _write_bins(bins, found, audited, rows, force)
    command = _report_command(found, rows, columns, shown, binned, bins)
    if as_json:
        echo_json({**found.to_dict(), "next": command and shlex.join(command)})
        return
    show(found)
    if bins is not None:
        print_path("Bins", bins)
    if command is not None:
        say_command(command)
    elif found.recommended is not None:
        say(f"Next: {found.recommended.name} is a number. Add --bins FILE.csv to write its bins as labels.")


def _read(rows: RowOptions, columns: tuple[str, ...], shown: str | None) -> Table:
    """The rows; without --column every column that may be no feature is kept apart."""
    from unspur.io import column_names, read_table

    named = [rows.task, rows.cluster, *rows.ignore, *columns, *(name for name, _ in rows.where)]
    apart = [name for name in dict.fromkeys(named) if name is not None]
    if shown is not None and shown in column_names(rows.file):
        apart.append(shown)
    return read_table(rows.file, apart, labels=rows.labels, guess=not columns).where(rows.where)


def _task(table: Table, name: str) -> Any:
    from unspur.io import plain
    from unspur.labels import class_label

    return class_label(plain(table.column(name)), name, len(table))


def _properties(content: dict[str, Any], n: int, progress: bool) -> dict[str, Array]:
    """Properties of the pictures or texts of the rows."""
    from tqdm.auto import tqdm

    from unspur.embed.properties import content_properties
    from unspur.report.views import content_of

    shown: Any = content_of(content.get("pictures"), content.get("texts"), n)
    with tqdm(total=n, desc="properties", disable=not progress, leave=False) as bar:
        return dict(content_properties(shown, bar.update))


def _write_bins(bins: Path, found: Audit, audited: dict[str, Array], rows: RowOptions, force: bool) -> list[str]:
    """Write the bins of flagged numbers as columns, a line for each row of FILE, and return the numbers."""
    import pandas as pd

    from unspur._files import atomic
    from unspur.auditing import bin_labels
    from unspur.io import column_names, plain, read_table

    numbers = [one.name for one in found.flagged if one.kind == "number"]
    there = column_names(rows.file)
    whole = read_table(rows.file, [name for name in numbers if name in there], labels=rows.labels, guess=True)
    columns = {} if rows.labels is None else dict(whole.columns)
    numbers = [name for name in numbers if name in whole.columns]
    columns |= {f"{name} bin": bin_labels(plain(whole.column(name)), audited[name]) for name in numbers}
    with atomic(bins, overwrite=force) as temporary:
        pd.DataFrame(columns, index=range(len(whole))).to_csv(temporary, index=False)
    return numbers


def _report_command(
    found: Audit, rows: RowOptions, columns: tuple[str, ...], shown: str | None, binned: list[str], bins: Path | None
) -> list[str] | None:
    """Words of the command that removes the first recommended column; None if it is a number without bins."""
    first = found.recommended
    if first is None or (first.kind == "number" and first.name not in binned):
        return None
    concept = f"{first.name} bin" if first.name in binned else first.name
    audited = [*columns, *(one.name for one in found.columns), *found.skipped] if rows.file.suffix != ".npz" else []
    ignore = dict.fromkeys(name for name in (*rows.ignore, *audited) if name not in (concept, shown))
    words = rows.words(concept=(concept,), ignore=tuple(ignore), labels=bins if first.name in binned else rows.labels)
    content = [] if shown is None else ["--show", shown]
    return ["unspur", "report", str(rows.file), *words, *content]
