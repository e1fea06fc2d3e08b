"""`unspur fit`: from a file of embeddings to a saved removal."""

from __future__ import annotations

import sys
from typing import Any

import click

from unspur.cli.common import (
    Conditions,
    LocalPath,
    cluster_option,
    concept_labels,
    concept_values,
    echo_json,
    force_option,
    json_option,
    label_options,
    memory_option,
    missing_values,
    other_file,
    read_rows,
    refuse_input_as_output,
    require_removal_name,
    scratch_option,
    seed_option,
    where_option,
    with_clusters,
)
from unspur.cli.fitting import fitted_jse, fitting_options
from unspur.cli.looking import look_at, say_left_out
from unspur.cli.words import say, say_where, show


@click.command()
@click.argument("files", type=LocalPath(), nargs=-1, required=True, metavar="FILE...")
@label_options
@cluster_option
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
@fitting_options
@click.option("--trace", is_flag=True, help="Print every test, also where there are many.")
@seed_option
@force_option
@json_option
def fit(
    files: tuple[str, ...],
    main: str,
    concept: tuple[str, ...],
    ignore: tuple[str, ...],
    clusters: str | None,
    where: Conditions,
    memory: str | None,
    scratch: str | None,
    dask: str | None,
    output: str,
    validation: str | None,
    validation_where: Conditions,
    trace: bool,
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
    from unspur.io.artifact import refuse_existing
    from unspur.io.table import within
    from unspur.labels import class_label
    from unspur.rows.dask_client import connected
    from unspur.selection import Rows

    chosen = options["orthogonality"]
    if memory is not None and dask is not None:
        raise click.UsageError("--memory is for rows in the files of one machine; a cluster has its own. Give one.")
    if (memory is not None or dask is not None) and chosen == "auto":
        option = "--memory" if dask is None else "--dask"
        raise click.UsageError(f"--orthogonality auto transforms all rows; with {option} choose weights or scores.")
    if scratch is not None and memory is None:
        raise click.UsageError("--scratch is for rows that stay in their files; say with --memory that they shall.")
    refuse_input_as_output(output, *files, validation)
    require_removal_name(output, "--output")
    refuse_existing(output, overwrite=force)
    watched = not as_json and sys.stderr.isatty()
    cluster = None if dask is None else click.get_current_context().with_resource(connected(dask))
    reading: Any = {"memory": memory, "scratch": scratch, "progress": watched, "cluster": cluster,
                    "others": (where, validation_where), "classes": (main, *concept)}  # fmt: skip
    labels = with_clusters((main, *concept), clusters)
    table = read_rows(files, labels, ignore, where, **reading)
    look_at(table, main, concept)
    judged_on = None
    others = other_file(files, validation, where, validation_where, "validation")
    if others is not None:
        other = read_rows(others, labels, ignore, validation_where, **reading)
        other = other.like(table.features, table.Z.shape[1])
        if memory is not None:
            table, other = within(memory, table, other)
    class_label(table.label(main), main, len(table.Z))  # complains by the name that was given
    missing = missing_values(missing_concept, table, concept)
    known = concept_labels(table, concept, missing)
    say_left_out(known, together=chosen == "auto")
    together = None if clusters is None else table.label(clusters)
    train = Rows(table.Z, table.label(main), concept_values(table, known), together)
    if others is not None:
        values = concept_values(other, concept_labels(other, concept, missing, known))
        together = None if clusters is None else other.label(clusters)
        judged_on = Rows(other.Z, other.label(main), values, together)
    one = missing[concept[0]] if len(concept) == 1 else None
    jse, losses = fitted_jse(train, judged_on, main, missing=one, seed=seed, watched=watched, **options)
    if table.features is not None:
        import numpy as np

        jse.feature_names_in_ = np.array(table.features, dtype=object)
    jse.save(output, overwrite=force)
    if as_json:
        dims = {"spurious": jse.spurious_.dim, "main": jse.main_.dim, "ambient": jse.n_features_in_}
        echo_json({
            "output": output, **dims, "concepts": list(concept), "orthogonality": jse.orthogonality, "losses": losses,
            "task_lost": bool(jse.task_lost), "complete": jse.trace_.complete, "trace": jse.trace_.to_dict(),
        })  # fmt: skip
        return
    show(jse.trace_ if trace else (told := jse.trace_.summary()))
    if not trace and told != str(jse.trace_):
        say(f"All {len(jse.trace_)} tests: --trace prints them, --json has them, and unspur report draws them.")
    if losses:
        told = ", ".join(f"{kind} {loss:.4f}" for kind, loss in losses.items())
        say(f"\nOrthogonal {jse.orthogonality}; loss of a last layer on rows held out: {told}.")
    spurious, kept = jse.spurious_.dim, jse.main_.dim
    told = " or ".join(concept)
    say(f"\n{spurious} of {jse.n_features_in_} directions {_carry(spurious)} {told}, {kept} {_carry(kept)} {main}.")
    if not jse.spurious_.dim:
        say("Nothing would be removed: the saved removal leaves rows as they are.")
    if jse.unfinished:
        say(f"{jse.unfinished} Try a larger --weight-decay, or raise --max-pairs.")
    if jse.task_lost:
        say(f"{jse.task_lost} Try --orthogonality scores.")
    say_where("Removal", output)


def _carry(directions: int) -> str:
    return "carries" if directions == 1 else "carry"
