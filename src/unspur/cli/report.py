"""`unspur report`: everything that a removal does, on one page."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unspur._text import counted
from unspur.cli.completion import column_names, columns_of
from unspur.cli.console import echo_json, print_path, progress_bar, say, say_command
from unspur.cli.data import caveat_about_test_rows, hold_out_test_rows, read_splits, require_disjoint_clusters
from unspur.cli.fit import describe_columns, fit_from_options
from unspur.cli.options import (
    FITTING_PARAMETERS,
    HEAD_NAMES,
    REMOVER_NAMES,
    LocalPath,
    MethodName,
    RowOptions,
    check_output,
    fitting_options,
    force_option,
    json_option,
    option_name,
    options_of_rows,
    outside_option,
    require_removal_name,
    seed_option,
    with_row_options,
)

if TYPE_CHECKING:
    from unspur._data import LabelledData
    from unspur.io.table import Table
    from unspur.report.results import Findings


#: What a removal can be compared with.
METHODS = [name for name in (*REMOVER_NAMES, *HEAD_NAMES) if name != "none"]
#: Test rows that a network is tried on before anything is fitted.
ROWS_TRIED = 16
#: Key of `Context.meta` for the words that were typed after the command.
ARGUMENTS = "unspur.typed"


class CommandWithArguments(click.Command):
    """A command that remembers its arguments, so that the page can show them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then parse them."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


def _shape(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[int, ...] | None:  # noqa: ARG001
    if given is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,4}[x×][1-9]\d{0,4}([x×]3)?", given):
        raise click.BadParameter(f"{given!r} is not HEIGHTxWIDTH, such as 64x64, or 64x64x3 for colours.")
    return tuple(int(side) for side in re.split("[x×]", given))


root_option = click.option(
    "--root", type=LocalPath(path_type=Path), help="Folder of the pictures. Default: folder of FILE."
)


@click.command("report", cls=CommandWithArguments)
@with_row_options("File with rows for testing directions and tuning heads.")
@click.option("--output", default="report.html", show_default=True, type=LocalPath(), help="Where the page goes.")
@click.option("--removal", type=LocalPath(), help="A removal that unspur fit saved; else one is fitted here.")
@click.option("--save", type=LocalPath(), help="Keep the removal that is fitted here (a .safetensors file).")
@click.option(
    "--with",
    "compared",
    multiple=True,
    type=MethodName(METHODS),
    metavar="NAME",
    help=f"A method to compare with, may be repeated: {', '.join(METHODS)}.",
)
@click.option(
    "--show",
    metavar="NAME",
    shell_complete=columns_of("file"),
    help="What to show for each row: a column of paths or texts, an array of pictures or, for a store, the .csv "
    "table or the dataset it was made from.",
)
@root_option
@outside_option
@click.option("--image-shape", metavar="HxW[x3]", callback=_shape, help="Rows are the pixels of pictures of this size.")
@click.option("--encoder", "encoder_name", metavar="NAME", help="Encoder that produced the rows; adds Grad-CAM maps.")
@click.option("--title", help="Title of the page.")
@fitting_options
@seed_option
@force_option
@json_option
def report_command(
    row_options: RowOptions[str],
    output: str,
    removal: str | None,
    save: str | None,
    compared: tuple[str, ...],
    show: str | None,
    root: Path | None,
    allow_outside: bool,
    image_shape: tuple[int, ...] | None,
    encoder_name: str | None,
    title: str | None,
    seed: int,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Measure a removal and write an HTML report.

    The page is one HTML file that opens in any browser, without a network. Without --removal the concept is found in
    the rows of FILE first; without test rows 30 % of each group are held out before that.

    Example:
      unspur report birds.csv --task bird --concept background \
          --show picture --with LEACE --output birds.html
      unspur report train.npz --test test.npz --task bird \
          --concept background --removal background.safetensors
    """
    import numpy as np

    from unspur.removers import load
    from unspur.report.measuring import N_STEPS, measure
    from unspur.report.page import check_page, write_page

    ctx = click.get_current_context()
    _refuse_contradictions(ctx, removal, save, show, encoder_name)
    check_page(output, overwrite=force)
    _refuse_in_the_way(output, save, (row_options.file, removal, row_options.test_file, row_options.validation), force)
    row_options = replace(
        row_options.with_other_files(), ignore=tuple(name for name in row_options.ignore if name != show)
    )
    saved = None if removal is None else load(removal)
    row_options, shown = _with_other_columns(row_options, _columns_to_show(show, row_options))
    splits = read_splits(row_options, saved, shown=shown)
    rows, notes = splits.rows, splits.notes
    if saved is not None:
        notes = [*notes, caveat_about_test_rows(saved, rows.get("test"), row_options.file)]
    held, table = hold_out_test_rows(rows, seed), splits.tables["training"]
    test = splits.tables["test"] if held is None else table.select(np.flatnonzero(held))
    table = table if held is None else table.select(np.flatnonzero(~held))
    # Before anything is fitted, so that errors about pictures and the network come at once.
    content = {} if show is None else row_content(show, test, root, allow_outside=allow_outside)
    network = {} if encoder_name is None else _network(encoder_name, table, rows["test"], content)
    require_disjoint_clusters(rows, row_options.clusters)
    show_progress = not as_json and sys.stderr.isatty()
    train, validation = rows["training"], rows.get("validation")
    remover = saved
    if remover is None:
        settings = {"missing": splits.missing_concept, "seed": seed, "show_progress": show_progress, **options}
        remover = fit_from_options(train, validation, pool=True, **settings)
        describe_columns(table, remover)
    if save is not None:
        remover.save(save, overwrite=force)
    test_numbers = range(len(test.Z)) if test.kept is None else test.kept.tolist()
    with progress_bar("report", N_STEPS + len(compared), shown=show_progress) as step:
        found = measure(
            remover,
            train,
            rows["test"],
            validation=validation,
            main=train.main.name,
            concept=train.concept_names,
            compare=compared,
            image_shape=image_shape,
            seed=seed,
            saved_path=removal or save,
            command=shlex.join(["unspur", "report", *ctx.meta[ARGUMENTS]]),
            **content,
            **network,
            ids=test.columns.get("id"),
            notes=notes,
            row_numbers=(row_options.test_file or row_options.file, test_numbers),
            cli_source=_cli_source(ctx),
            columns={  # neither features nor named by an option, for the audit
                name: column
                for name, column in table.columns.items()
                if name not in {*row_options.columns, show, "id"} and column.shape == (len(train),)
            },
            callback=step,
        )
    write_page(found, output, title=title, overwrite=force)
    _print_result(found, output, save, as_json)


def _refuse_contradictions(
    ctx: click.Context, removal: str | None, save: str | None, show: str | None, encoder: str | None
) -> None:
    typed = [name for name in FITTING_PARAMETERS if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if removal is not None and (typed or save is not None):
        option = "--save" if save is not None else option_name(typed[0])
        raise click.UsageError(
            f"{option} applies only to a removal that this command fits. It cannot be combined with --removal."
        )
    if encoder is not None and show is None:
        raise click.UsageError("--encoder shows where a network looks in pictures; say with --show where they are.")


def _refuse_in_the_way(output: str, save: str | None, inputs: tuple[str | None, ...], force: bool) -> None:
    check_output(output, *inputs, overwrite=force)
    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--output {output}: the page is HTML; give it a name that ends in .html.")
    if save is not None:
        if Path(save).resolve() == Path(output).resolve():
            raise click.UsageError(f"--save and --output both name {output}. Choose two different files.")
        require_removal_name(save, "--save")
        check_output(save, *inputs, overwrite=force, option="--save")


def _columns_to_show(show: str | None, row_options: RowOptions[str]) -> dict[str, tuple[str, ...]]:
    """The column to show, which is not a feature, for each split whose file has it; that of the test rows must."""
    test_file = row_options.test_file or row_options.file
    if show is None or not is_column(show, test_file):
        return {}
    refuse_unread_dataset(show, Path(test_file))
    files = {"training": row_options.file, "test": row_options.test_file, "validation": row_options.validation}
    return {
        split: (show,)
        for split, path in files.items()
        if path is not None and (path == test_file or show in column_names(path))
    }


def _with_other_columns(
    row_options: RowOptions[str], shown: dict[str, tuple[str, ...]]
) -> tuple[RowOptions[str], dict[str, tuple[str, ...]]]:
    """The options with columns of a table that are to be ignored read beside the features, so that they are audited.

    Those that conditions name are left out, and so are columns that no file has, which reading says.
    """
    from unspur._reading import TEXT_TABLES, suffix_of
    from unspur.io.files import is_parquet

    # Labels of other files are apart from the features.
    if suffix_of(row_options.file) not in TEXT_TABLES and not is_parquet((row_options.file,)):
        return row_options, shown
    conditions = {name for part in row_options.conditions for name, _ in part}
    files = {"training": row_options.file, "test": row_options.test_file, "validation": row_options.validation}
    there = {split: set(column_names(path)) for split, path in files.items() if path is not None}
    apart = conditions.union(row_options.columns)  # a label that is ignored is an error, which reading says
    moved = [name for name in row_options.ignore if name in there["training"] and name not in apart]
    kept = tuple(name for name in row_options.ignore if name not in moved)
    more = {split: tuple(name for name in moved if name in names) for split, names in there.items()}
    return replace(row_options, ignore=kept), {split: (*shown.get(split, ()), *more[split]) for split in more}


def _cli_source(ctx: click.Context) -> str:
    """Options with which other commands read these rows, and divide and weight them in the same way."""
    file, shown = ctx.params["file"], ctx.params["show"]
    words = [file, *chain.from_iterable(options_of_rows(ctx.params))]
    if shown is not None and is_column(shown, file) and shown not in ctx.params["ignore"]:
        words += ["--ignore", shown]  # other commands have no --show
    for option in ("seed", "balance"):
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            words += [f"--{option}", str(ctx.params[option])]
    return shlex.join(words)


def _network(name: str, table: Table, test: LabelledData, content: dict[str, Any]) -> dict[str, Any]:
    """The network and the principal components of a store, as arguments of `measure`, tried on a few test rows."""
    import numpy as np

    from unspur.embed.registry import load_encoder
    from unspur.embed.store import REDUCTION, Reduction
    from unspur.report.views import content_of, feature_maps

    encoder = load_encoder(name)
    reduction = Reduction.read(table.path / REDUCTION) if (table.path / REDUCTION).is_file() else None
    if test.n_classes == 2:  # others get no maps
        shown = content_of(content.get("pictures"), content.get("texts"), len(test))
        feature_maps(encoder, shown, np.asarray(test.X), np.arange(min(ROWS_TRIED, len(test))), reduction)
    return {"encoder": encoder, "reduction": reduction}


def _with_values(command: str) -> list[str]:
    """The words of a command, quoted for a shell, each option together with its value."""
    words: list[str] = []
    for word in shlex.split(command):
        value = not word.startswith("--") and words and words[-1].startswith("--") and " " not in words[-1]
        words[-1:] = [f"{words[-1]} {shlex.quote(word)}"] if value else [*words[-1:], shlex.quote(word)]
    return words


def _print_result(found: Findings, output: str, save: str | None, as_json: bool) -> None:
    from unspur.report.page import verdict

    if as_json:
        echo_json(
            {
                "report": output,
                "removal": save,
                "n_removed": found.n_removed,
                "n_main": found.n_main,
                "n_features": found.n_features,
                "strength": found.strength,
                "strengths": [result.to_dict() for result in found.strengths],
                "results": [result.to_dict() for result in found.results],
                "selection_notes": found.selection_notes,
                "verdict": verdict(found),
                "warnings": found.warnings,
            }
        )
        return
    for sentence in verdict(found):  # warnings come first
        what, colon, command = sentence.partition(": unspur ")
        if colon:
            say_command(f"{what}:", _with_values(f"unspur {command}"))
        else:
            say(sentence)
    if save is not None:
        say()
        print_path("Removal", save)
    say()
    print_path("Report", output)
    say("Open it in a browser.")


def refuse_unread_dataset(show: str, rows: Path) -> None:
    """Raise UsageError for the dataset of a store if no installed package can read it."""
    from unspur._extras import REPRODUCTION
    from unspur.embed.store import is_store, read_manifest

    if is_store(rows) and read_manifest(rows)["dataset"].get("name") == show:
        raise click.UsageError(
            f"{rows} was made of {show}, which no installed package can read. Datasets of the paper come with the "
            f"reproduction: {REPRODUCTION}."
        )


def is_column(show: str | None, rows: str | Path) -> bool:
    """Whether --show names a column of the file of rows, rather than a table, a folder or a dataset."""
    if show is None:
        return False
    from unspur.embed.registry import source_names
    from unspur.embed.tables import holds_examples

    if show in source_names():
        return False
    return not holds_examples(show) or (Path(show).is_dir() and show in column_names(rows))


def row_content(show: str, table: Table, root: Path | None, *, allow_outside: bool = False) -> dict[str, Any]:
    """Pictures or texts of the rows of a table, as arguments of `measure`.

    Pictures lie in `root`, by default the folder of the table. Others need `allow_outside`, because the page that shows
    them may be given to others.
    """
    from unspur.embed.examples import inside_of
    from unspur.embed.tables import PICTURE_SUFFIXES
    from unspur.exceptions import InputError

    if not is_column(show, table.path):
        return _store_content(show, table, root, allow_outside=allow_outside)
    values = table.label(show)
    if values.ndim > 1:
        return {"pictures": values}
    missing = sum(value is None or value != value for value in values.tolist())
    if missing:
        raise InputError(
            f"{show} of {table.path} is empty in {counted(missing, 'row')}; every row that is shown needs a value."
        )
    words = [str(value) for value in values.tolist()]
    if not all(Path(word).suffix.lower() in PICTURE_SUFFIXES for word in words):
        return {"texts": words}
    folder = (table.path if table.path.is_dir() else table.path.parent) if root is None else root
    return {"pictures": [inside_of(folder, word, table.path, allow_outside=allow_outside) for word in words]}


def _store_content(show: str, table: Table, root: Path | None, *, allow_outside: bool) -> dict[str, Any]:
    """The examples of the rows of a store, found by their ids.

    A dataset is drawn with the settings of the manifest. A table must not have changed since it was embedded, unless
    ids are paths, which say what to show anyway.
    """
    import numpy as np

    from unspur.embed.examples import Examples, TableExamples
    from unspur.embed.registry import read_source, source_names
    from unspur.embed.store import read_manifest
    from unspur.exceptions import InputError
    from unspur.report.views import ContentSubset

    if "id" not in table.columns:
        raise click.UsageError(
            f"--show {show} is for the rows of an embedding store, which have ids; {table.path} has "
            "none. Name one of its columns."
        )
    examples: Examples
    if show in source_names():
        examples = read_source(show, root, read_manifest(table.path)["dataset"]["settings"])
    else:
        made_of = read_manifest(table.path).get("dataset", {})
        settings = made_of.get("settings", {})
        text = settings.get("text") if isinstance(settings, dict) else None
        examples = own = TableExamples.read(show, root, allow_outside=allow_outside, text=text)
        # A file that was only renamed has the same rows.
        if not own.named_by_path and replace(own, name=made_of.get("name")).digest() != made_of.get("digest"):
            raise InputError(
                f"{own.table} is not the table that {table.path} was made of, or it was changed since, so that its "
                "rows may be others by now. Name the table as it was, or embed it again."
            )
    number = {name: i for i, name in enumerate(examples.ids)}
    ids = [str(name) for name in table.columns["id"].tolist()]
    unknown = [name for name in ids if name not in number]
    if unknown:
        raise InputError(
            f"{len(unknown)} rows of {table.path} are not among the examples of {show}, the first {unknown[0]!r}. Name "
            "what the store was made of."
        )
    part = ContentSubset(examples, np.array([number[name] for name in ids]))
    return {"pictures" if examples.kind == "image" else "texts": part}
