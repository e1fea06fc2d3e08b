"""`unspur report`: everything a removal does, on one page to look at."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unspur.cli.completion import column_names, columns_of
from unspur.cli.console import echo_json, progress_bar, say, say_where
from unspur.cli.data import (
    caveat_about_test_rows,
    check_labels,
    check_removal_labels,
    labelled_rows,
    labels_to_read,
    missing_values,
    note_left_out,
    read_like,
    read_rows,
    require_other_clusters,
    test_rows,
    with_clusters,
)
from unspur.cli.fit import fit_remover
from unspur.cli.options import (
    FITTING_PARAMETERS,
    Conditions,
    LocalPath,
    cluster_option,
    fitting_options,
    force_option,
    json_option,
    label_options,
    options_of_rows,
    other_file,
    outside_option,
    refuse_input_as_output,
    require_removal_name,
    seed_option,
    test_option,
    where_option,
)
from unspur.compare import REMOVERS
from unspur.heads import HEADS

if TYPE_CHECKING:
    from unspur._data import LabelledData
    from unspur._typing import Array
    from unspur.embed.examples import Examples
    from unspur.io.table import Table
    from unspur.report.results import Findings


#: What a removal can be compared with.
METHODS = [name for name in (*REMOVERS, *HEADS) if name != "none"]
#: Where a context keeps what was typed after the verb.
ARGUMENTS = "unspur.typed"


class CommandWithArguments(click.Command):
    """A verb that knows the words it was given, for the page to say how it was made."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words, then take them as options."""
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


def _shape(ctx: click.Context, parameter: click.Parameter, given: str | None) -> tuple[int, ...] | None:  # noqa: ARG001
    if given is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,4}[x×][1-9]\d{0,4}([x×]3)?", given):
        raise click.BadParameter(f"{given!r} is not HEIGHTxWIDTH, such as 64x64, or 64x64x3 for colours.")
    return tuple(int(side) for side in re.split("[x×]", given))


@click.command("report", cls=CommandWithArguments)
@click.argument("file", type=LocalPath())
@label_options
@cluster_option
@where_option()
@click.option("--output", default="report.html", show_default=True, type=LocalPath(), help="Where the page goes.")
@click.option("--removal", type=LocalPath(), help="A removal that unspur fit saved; else one is fitted here.")
@click.option("--save", type=LocalPath(), help="Keep the removal that is fitted here (a .safetensors file).")
@test_option
@where_option("test")
@click.option("--validation", type=LocalPath(), help="File with rows for testing directions and tuning last layers.")
@where_option("validation")
@click.option(
    "--with",
    "compared",
    multiple=True,
    type=click.Choice(METHODS),
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
@click.option("--root", type=LocalPath(path_type=Path), help="Folder of the pictures. Default: folder of FILE.")
@outside_option
@click.option("--image-shape", metavar="HxW[x3]", callback=_shape, help="Rows are the pixels of pictures of this size.")
@click.option("--encoder", "encoder_name", metavar="NAME", help="Network that made the rows: show where it looks.")
@click.option("--title", help="Title of the page.")
@fitting_options
@seed_option
@force_option
@json_option
def report_command(
    file: str,
    main: str,
    concept: tuple[str, ...],
    ignore: tuple[str, ...],
    missing_concept: str | None,
    clusters: str | None,
    where: Conditions,
    output: str,
    removal: str | None,
    save: str | None,
    test_file: str | None,
    test_where: Conditions,
    validation: str | None,
    validation_where: Conditions,
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
    r"""Write a page that shows all that a removal does.

    The page is one HTML file that opens in any browser, without a network. Without --removal the concept is found in
    the rows of FILE first; without test rows 30 % of each group are held out before that.

    Example:
      unspur report birds.csv --main bird --concept background \
          --show picture --with LEACE --output birds.html
      unspur report train.npz --test test.npz --main bird \
          --concept background --removal background.safetensors
    """
    import numpy as np

    from unspur.removers import load
    from unspur.report.page.rendering import check_page, write_page

    ctx = click.get_current_context()
    _refuse_contradictions(ctx, removal, save, show, encoder_name)
    check_page(output, overwrite=force)
    _refuse_in_the_way(output, save, (file, removal, test_file, validation), force)
    test_file = other_file(file, test_file, where, test_where, "test")
    validation = other_file(file, validation, where, validation_where, "validation")
    ignore = tuple(name for name in ignore if name != show)  # which is neither feature nor label
    labels = with_clusters((main, *concept), clusters)
    labels += _columns_to_show(show, file, needed=test_file in (None, file))
    conditions = (where, test_where, validation_where)
    table = read_rows(file, labels, ignore, where, others=conditions, classes=(main, *concept))
    notes = check_labels(table, main, concept)
    if removal is not None:  # its features, in its order
        fitted = load(removal)
        table = table.like(getattr(fitted, "feature_names_in_", None), fitted.n_features_in_)
    missing = missing_values(missing_concept, table, concept)
    table = replace(table, Z=np.asarray(table.Z))
    data = labelled_rows(table, main, concept, missing, clusters)
    if removal is None:
        notes += note_left_out(data)
    else:
        notes += check_removal_labels(fitted, data)
    others: dict[str, Table | None] = {}
    for name, path, chosen in (("test", test_file, test_where), ("validation", validation, validation_where)):
        labels = with_clusters((main, *concept), clusters)
        labels = labels if name == "validation" else labels_to_read(labels, clusters, path)
        labels += _columns_to_show(show, path, needed=name == "test")
        others[name] = (
            None if path is None else read_like(table, path, labels, ignore, chosen, conditions, (main, *concept))
        )
    test = others["test"]
    if removal is not None:
        notes = [*notes, caveat_about_test_rows(file, held_out=test is None)]
    rows = {
        name: labelled_rows(part, main, concept, missing, clusters, like=data, what=name)
        for name, part in others.items()
        if part is not None
    }
    rows["train"] = data
    if test is None:
        held = test_rows(data, seed)
        test = table.select(np.flatnonzero(held))
        rows |= {"train": data.select(~held), "test": data.select(held)}
    # Before anything is fitted: what is wrong with pictures is known at once.
    content = {} if show is None else row_content(show, test, root, allow_outside=allow_outside)
    watched = not as_json and sys.stderr.isatty()
    require_other_clusters(rows["train"], {name: part for name, part in rows.items() if name != "train"}, clusters)
    one = missing[concept[0]] if len(concept) == 1 else None
    remover = _load_or_fit(removal, table, rows, (seed, one, watched), options)
    if save is not None:
        remover.save(save, overwrite=force)
    found = _measured(
        remover,
        rows,
        compared,
        watched,
        main=main,
        concept=concept,
        image_shape=image_shape,
        seed=seed,
        saved=removal or save,
        command=shlex.join(["unspur", "report", *ctx.meta[ARGUMENTS]]),
        **content,
        **_network(encoder_name, table),
        ids=test.columns.get("id"),
        notes=notes,
        numbers=(file if test_file is None else test_file, range(len(test.Z)) if test.kept is None else test.kept),
        source=_source(ctx),
    )
    write_page(found, output, title=title, overwrite=force)
    _print_result(found, output, save, as_json)


def _refuse_contradictions(
    ctx: click.Context, removal: str | None, save: str | None, show: str | None, encoder: str | None
) -> None:
    typed = [name for name in FITTING_PARAMETERS if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if removal is not None and (typed or save is not None):
        option = "--save" if save is not None else f"--{typed[0].replace('_', '-')}"
        raise click.UsageError(f"{option} is for a removal that is fitted here; --removal names one that is there.")
    if encoder is not None and show is None:
        raise click.UsageError("--encoder shows where a network looks in pictures; say with --show where they are.")


def _refuse_in_the_way(output: str, save: str | None, inputs: tuple[str | None, ...], force: bool) -> None:
    from unspur.io.artifact import refuse_existing

    refuse_input_as_output(output, *inputs)
    if Path(output).suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"--output {output}: the page is HTML; give it a name that ends in .html.")
    if save is not None:
        if Path(save).resolve() == Path(output).resolve():
            raise click.UsageError(f"--save and --output are both {output}; they are two files.")
        require_removal_name(save, "--save")
        refuse_existing(save, overwrite=force)
        refuse_input_as_output(save, *inputs)


def _columns_to_show(show: str | None, path: str | None, *, needed: bool) -> tuple[str, ...]:
    """The column to show, which is no feature, if it is one; of files whose rows are not shown, if they have it."""
    if show is None or path is None or not is_column(show):
        return ()
    if needed:
        refuse_unread_dataset(show, Path(path))
    return (show,) if needed or show in column_names(path) else ()


def _load_or_fit(
    removal: str | None,
    table: Table,
    rows: dict[str, LabelledData],
    how: tuple[int, Any, bool],
    options: dict[str, Any],
) -> Any:
    """The removal that was saved, or one that is fitted on the training rows."""
    import numpy as np

    from unspur.removers import load

    seed, missing, watched = how
    if removal is not None:
        return load(removal)
    jse = fit_remover(rows["train"], rows.get("validation"), missing=missing, seed=seed, watched=watched, **options)
    if table.features is not None:
        jse.feature_names_in_ = np.array(table.features, dtype=object)
    return jse


def _source(ctx: click.Context) -> str:
    """The options that tell `unspur compare` of these rows, and how they are divided and weighed."""
    given = ctx.params
    words = [given["file"], *chain.from_iterable(options_of_rows(given))]
    if given["show"] is not None and is_column(given["show"]) and given["show"] not in given["ignore"]:
        words += ["--ignore", given["show"]]  # which other verbs do not show, and which is no feature
    for option in ("seed", "balance"):
        if ctx.get_parameter_source(option) is not ParameterSource.DEFAULT:
            words += [f"--{option}", str(given[option])]
    return shlex.join(words)


def _network(name: str | None, table: Table) -> dict[str, Any]:
    """The network and the principal components that a store's rows were reduced to, as arguments of `measure`."""
    if name is None:
        return {}
    from unspur.embed.registry import load_encoder
    from unspur.embed.store import REDUCTION, Reduction

    reduced = table.path / REDUCTION
    return {"encoder": load_encoder(name), "reduction": Reduction.read(reduced) if reduced.is_file() else None}


def _measured(
    remover: Any, rows: dict[str, LabelledData], compared: tuple[str, ...], watched: bool, **options: Any
) -> Findings:
    from unspur.report.measuring import STEPS, measure

    with progress_bar("report", STEPS + len(compared), shown=watched) as report:
        return measure(
            remover,
            rows["train"],
            rows["test"],
            validation=rows.get("validation"),
            compare=compared,
            report=report,
            **options,
        )


def _print_result(found: Findings, output: str, save: str | None, as_json: bool) -> None:
    from unspur.report.page import verdict

    if as_json:
        echo_json(
            {
                "report": output,
                "removal": save,
                "spurious": found.removed,
                "main": found.kept,
                "ambient": found.ambient,
                "judged": [line.to_dict() for line in found.judged],
                "choice": found.choice,
                "verdict": verdict(found),
                "warnings": found.warnings,
            }
        )
        return
    for sentence in verdict(found):  # warnings come first
        say(sentence)
    if save is not None:
        say()
        say_where("Removal", save)
    say()
    say_where("Report", output)
    say("Open it in a browser.")


def refuse_unread_dataset(show: str, rows: Path) -> None:
    """Refuse the name of the dataset that a store was made of, where no installed package can read it."""
    from unspur._extras import REPRODUCTION
    from unspur.embed.store import MANIFEST, read_manifest

    if (rows / MANIFEST).exists() and read_manifest(rows)["dataset"]["name"] == show:
        raise click.UsageError(
            f"{rows} was made of {show}, which no installed package can read. Datasets of the paper come with the "
            f"reproduction: {REPRODUCTION}."
        )


def is_column(show: str | None) -> bool:
    """Whether --show names something that is read with the rows."""
    from unspur.embed.registry import source_names

    return show is not None and show not in source_names() and Path(show).suffix.lower() != ".csv"


def row_content(show: str, table: Table, root: Path | None, *, allow_outside: bool = False) -> dict[str, Any]:
    """Pictures or texts of the rows of a table, as arguments of `measure`.

    Pictures lie in `root`, by default the folder of the table; elsewhere only with `allow_outside`: what they show gets
    onto a page that others may be given.
    """
    if not is_column(show):
        return _store_content(show, table, root, allow_outside=allow_outside)
    values = table.label(show)
    if values.ndim > 1:
        return {"pictures": values}
    _require_all(values, show, table.path)
    words = [str(value) for value in values.tolist()]
    if not _are_pictures(words):
        return {"texts": words}
    folder = (table.path if table.path.is_dir() else table.path.parent) if root is None else root
    from unspur.embed.examples import inside_of

    return {"pictures": [inside_of(folder, word, table.path, allow_outside=allow_outside) for word in words]}


def _are_pictures(words: Sequence[str]) -> bool:
    from unspur.report.views import PICTURE_SUFFIXES

    return all(Path(word).suffix.lower() in PICTURE_SUFFIXES for word in words)


def _require_all(values: Array, show: str, path: Path) -> None:
    from unspur.exceptions import InputError

    gaps = sum(value is None or value != value for value in values.tolist())
    if gaps:
        raise InputError(f"{show} of {path} is empty in {gaps} rows; all rows that are shown need something to show.")


def _store_content(show: str, table: Table, root: Path | None, *, allow_outside: bool) -> dict[str, Any]:
    """The examples of a store's rows, which are found by their ids."""
    import numpy as np

    from unspur.exceptions import InputError
    from unspur.report.views import Part

    if "id" not in table.columns:
        raise click.UsageError(
            f"--show {show} is for the rows of an embedding store, which have ids; {table.path} has "
            "none. Name one of its columns."
        )
    examples = _store_examples(show, table.path, root, allow_outside=allow_outside)
    number = {name: i for i, name in enumerate(examples.ids)}
    ids = [str(name) for name in table.columns["id"].tolist()]
    strange = [name for name in ids if name not in number]
    if strange:
        raise InputError(
            f"{len(strange)} rows of {table.path} are not among the examples of {show}, the first {strange[0]!r}. Name "
            "what the store was made of."
        )
    part = Part(examples, np.array([number[name] for name in ids]))
    return {"pictures" if examples.kind == "image" else "texts": part}


def _store_examples(show: str, store: Path, root: Path | None, *, allow_outside: bool) -> Examples:
    """The dataset that a store was made of, as its manifest says it was drawn."""
    from unspur.embed.examples import TableExamples
    from unspur.embed.registry import load_source, source_names
    from unspur.embed.store import read_manifest

    if show not in source_names():
        return TableExamples.read(show, root, allow_outside=allow_outside)
    if root is None:
        raise click.UsageError(f"--show {show} needs --root, the folder of its data.")
    return load_source(show).read(root, read_manifest(store)["dataset"]["settings"])
