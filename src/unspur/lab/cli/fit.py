"""`unspur fit`: from a file of embeddings to a saved removal."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import click

from unspur.lab.cli.common import (
    Conditions,
    LocalPath,
    echo_json,
    force_option,
    json_option,
    label_options,
    memory_option,
    missing_value,
    other_file,
    read_rows,
    refuse_input_as_output,
    scratch_option,
    seed_option,
    where_option,
)
from unspur.lab.cli.words import say, show


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


@click.command()
@click.argument("files", type=LocalPath(), nargs=-1, required=True, metavar="FILE...")
@label_options
@where_option()
@memory_option
@scratch_option
@click.option(
    "--dask", metavar="ADDRESS", help="Rows on a Dask cluster: tcp://HOST:PORT, a scheduler file, or local for one of "
    "this machine's cores. FILE may be a Zarr group as well."
)  # fmt: skip
@click.option("--output", required=True, type=LocalPath(), help="Where the removal goes (a .safetensors file).")
@click.option(
    "--validation", type=LocalPath(), help="File with rows to test directions on; else folds of FILE are used."
)
@where_option("validation")
@click.option(
    "--cv",
    default=5,
    show_default=True,
    type=click.IntRange(0),
    help="Folds to cross-fit in; 0 holds out 20 %.",
)
@click.option(
    "--significance-level", default=0.05, show_default=True, type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Chance at which a test may accept a useless direction.",
)  # fmt: skip
@click.option(
    "--delta", default="0", show_default=True, callback=_number_or_auto, help="Shift of the second test, or auto."
)
@click.option("--weight-decay", default="auto", show_default=True, callback=_number_or_auto, help="Penalty, or auto.")
@click.option("--balance", default="group", show_default=True, type=click.Choice(["none", "concept", "main", "group"]),
              help="Classes that get equal weight.")  # fmt: skip
@click.option("--orthogonality", default="weights", show_default=True, type=click.Choice(["weights", "scores", "auto"]),
              help="What of the two labels is orthogonal; auto: the lower loss on rows held out.")  # fmt: skip
@click.option("--solver", default="exact", show_default=True, type=click.Choice(["exact", "sgd"]),
              help="How a pair is estimated; sgd is the paper's.")  # fmt: skip
@click.option("--max-spurious", type=click.IntRange(0), help="Most directions to remove.")
@seed_option
@force_option
@json_option
def fit(
    files: tuple[str, ...],
    main: str,
    concept: str,
    ignore: tuple[str, ...],
    where: Conditions,
    memory: str | None,
    scratch: str | None,
    dask: str | None,
    output: str,
    validation: str | None,
    validation_where: Conditions,
    cv: int,
    force: bool,
    as_json: bool,
    seed: int,
    missing_concept: str | None,
    **options: Any,
) -> None:
    r"""Find the concept in the embeddings of FILE, save its removal.

    FILE is .npy, .npz, .csv or .parquet, or the folder of a store that unspur embed made; or several Parquet files, a
    folder of them or a quoted pattern. Parquet files have one column of lists, or a column for each feature.

    Example:
      unspur fit birds.npz --main bird --concept background \
          --output background.safetensors
      unspur fit big/*.parquet --memory 1GB --main bird --concept background \
          --output background.safetensors
      unspur fit big.zarr --dask tcp://host:8786 --main bird \
          --concept background --output background.safetensors
    """
    from unspur import JSE
    from unspur.exceptions import NothingRemovedWarning, TaskLostWarning
    from unspur.io import refuse_existing
    from unspur.lab.clusters import connected
    from unspur.lab.files import within
    from unspur.lab.selection import Rows, select_orthogonality
    from unspur.labels import binary_label

    if cv == 1:
        raise click.BadParameter("one fold cannot be cross-fitted; use 0 or at least 2.", param_hint="--cv")
    chosen = options.pop("orthogonality")
    if memory is not None and dask is not None:
        raise click.UsageError("--memory is for rows in the files of one machine; a cluster has its own. Give one.")
    if (memory is not None or dask is not None) and chosen == "auto":
        option = "--memory" if dask is None else "--dask"
        raise click.UsageError(f"--orthogonality auto transforms all rows; with {option} choose weights or scores.")
    if scratch is not None and memory is None:
        raise click.UsageError("--scratch is for rows that stay in their files; say with --memory that they shall.")
    refuse_input_as_output(output, *files, validation)
    refuse_existing(output, overwrite=force)
    watched = not as_json and sys.stderr.isatty()
    cluster = None if dask is None else click.get_current_context().with_resource(connected(dask))
    reading: Any = {"memory": memory, "scratch": scratch, "progress": watched, "cluster": cluster}
    table = read_rows(files, (main, concept), ignore, where, **reading)
    held_out = {}
    others = other_file(files, validation, where, validation_where, "validation")
    if others is not None:
        other = read_rows(others, (main, concept), ignore, validation_where, **reading)
        other = other.like(table.features, table.Z.shape[1])
        if memory is not None:
            table, other = within(memory, table, other)
        held_out = {"X_val": other.Z, "y_val": other.label(main), "concept_val": other.label(concept)}
    missing = missing_value(missing_concept, table.label(concept))
    binary_label(table.label(main), main, len(table.Z))  # complains by the name that was given
    known = binary_label(table.label(concept), concept, len(table.Z), missing=missing).present
    jse = JSE(
        cv=None if cv == 0 else cv, missing_concept=missing, random_state=seed,
        verbose=watched, orthogonality="weights" if chosen == "auto" else chosen, **options,
    )  # fmt: skip
    losses: dict[str, float] = {}
    with warnings.catch_warnings():
        for said_below in (NothingRemovedWarning, TaskLostWarning):
            warnings.simplefilter("ignore", said_below)
        if chosen == "auto":
            judged_on = Rows(*held_out.values()) if held_out else None
            train = Rows(table.Z, table.label(main), table.label(concept)).select(known)
            jse, losses = select_orthogonality(jse, train, judged_on, seed)
        else:
            jse.fit(table.Z, table.label(main), concept=table.label(concept), **held_out)
    if table.features is not None:
        import numpy as np

        jse.feature_names_in_ = np.array(table.features, dtype=object)
    jse.save(output, overwrite=force)
    if as_json:
        dims = {"spurious": jse.spurious_.dim, "main": jse.main_.dim, "ambient": jse.n_features_in_}
        echo_json({
            "output": output, **dims, "orthogonality": jse.orthogonality, "losses": losses,
            "task_lost": bool(jse.task_lost), "trace": jse.trace_.to_dict(),
        })  # fmt: skip
        return
    show(jse.trace_)
    if losses:
        told = ", ".join(f"{kind} {loss:.4f}" for kind, loss in losses.items())
        say(f"\nOrthogonal {jse.orthogonality}; loss of a last layer on rows held out: {told}.")
    say(f"\n{jse.spurious_.dim} of {jse.n_features_in_} directions carry {concept}, {jse.main_.dim} carry {main}.")
    if not jse.spurious_.dim:
        say("Nothing would be removed: the saved removal leaves rows as they are.")
    if jse.task_lost:
        say(f"{jse.task_lost} Try --orthogonality scores, or --delta auto.")
    say(f"Removal: {output}")
