"""`unspur fit`: from a file of embeddings to a saved removal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.console import echo_json, say, say_where, show
from unspur.cli.data import (
    check_labels,
    labelled_rows,
    missing_values,
    note_left_out,
    read_rows,
    with_clusters,
)
from unspur.cli.errors import as_option
from unspur.cli.options import (
    Conditions,
    LocalPath,
    cluster_option,
    fitting_options,
    force_option,
    json_option,
    label_options,
    memory_option,
    other_file,
    refuse_input_as_output,
    require_removal_name,
    scratch_option,
    seed_option,
    where_option,
)

if TYPE_CHECKING:
    from unspur import JSE
    from unspur._data import LabelledData


@click.command()
@click.argument("files", type=LocalPath(), nargs=-1, required=True, metavar="FILE...")
@label_options
@cluster_option
@where_option()
@memory_option
@scratch_option
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Rows on a Dask cluster: tcp://HOST:PORT, a scheduler file, or local for one of "
    "this machine's cores. FILE may be a Zarr group as well.",
)
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
    from unspur.io.dask_tables import connected
    from unspur.io.table import within

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
    reading: Any = {
        "memory": memory,
        "scratch": scratch,
        "progress": watched,
        "cluster": cluster,
        "others": (where, validation_where),
        "classes": (main, *concept),
    }
    labels = with_clusters((main, *concept), clusters)
    table = read_rows(files, labels, ignore, where, **reading)
    check_labels(table, main, concept)
    validation_rows = None
    others = other_file(files, validation, where, validation_where, "validation")
    if others is not None:
        other = read_rows(others, labels, ignore, validation_where, **reading)
        other = other.like(table.features, table.Z.shape[1])
        if memory is not None:
            table, other = within(memory, table, other)
    missing = missing_values(missing_concept, table, concept)
    train = labelled_rows(table, main, concept, missing, clusters)
    note_left_out(train, together=chosen == "auto")
    if others is not None:
        validation_rows = labelled_rows(other, main, concept, missing, clusters, like=train)
    one = missing[concept[0]] if len(concept) == 1 else None
    jse, losses = fit_jse(train, validation_rows, missing=one, seed=seed, watched=watched, **options)
    if table.features is not None:
        import numpy as np

        jse.feature_names_in_ = np.array(table.features, dtype=object)
    jse.save(output, overwrite=force)
    if as_json:
        dims = {"spurious": jse.spurious_.dim, "main": jse.main_.dim, "ambient": jse.n_features_in_}
        echo_json(
            {
                "output": output,
                **dims,
                "concepts": list(concept),
                "metric": jse.metric,
                "losses": losses,
                "task_lost": bool(jse.task_lost),
                "complete": jse.trace_.complete,
                "trace": jse.trace_.to_dict(),
            }
        )
        return
    show(jse.trace_ if trace else (told := jse.trace_.summary()))
    if not trace and told != str(jse.trace_):
        say(f"All {len(jse.trace_)} tests: --trace prints them, --json has them, and unspur report draws them.")
    if losses:
        told = ", ".join(f"{kind} {loss:.4f}" for kind, loss in losses.items())
        say(f"\nOrthogonal {'scores' if jse.metric else 'weights'}; loss of a last layer on rows held out: {told}.")
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


def fit_jse(
    train: LabelledData,
    validation: LabelledData | None,
    *,
    cv: int,
    orthogonality: str,
    missing: Any,
    seed: int,
    watched: bool,
    **options: Any,
) -> tuple[JSE, dict[str, float]]:
    """JSE by its options, fitted; and, where it was to choose what is orthogonal, the losses that it chose by.

    What warnings would say is for the caller to tell.
    """
    from unspur import JSE
    from unspur.exceptions import (
        ClusterWarning,
        NothingRemovedWarning,
        SearchLimitWarning,
        TaskLostWarning,
        UsedRowsWarning,
    )
    from unspur.selection import fit_rows, select_orthogonality

    jse = JSE(
        cv=0.2 if cv == 0 else cv,
        missing_concept=missing,
        random_state=seed,
        verbose=watched,
        metric=float(orthogonality == "scores"),
        **options,
    )
    losses: dict[str, float] = {}
    with (
        warnings.catch_warnings(),
        _warnings_as_notes(ClusterWarning, UsedRowsWarning),
    ):
        for told_later in (NothingRemovedWarning, SearchLimitWarning, TaskLostWarning):
            warnings.simplefilter("ignore", told_later)
        if orthogonality == "auto":
            judged_on = None if validation is None else validation.with_known_concept()
            jse, losses = select_orthogonality(jse, train.with_known_concept(), judged_on, seed)
        else:
            fit_rows(jse, train, validation)
    return jse, losses


@contextmanager
def _warnings_as_notes(*categories: type[Warning]) -> Iterator[None]:
    """Warnings of these categories as notes on standard error, each once; others as they are."""
    from unspur.exceptions import WithFields

    show, said = warnings.showwarning, set[str]()

    def note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, categories):
            show(message, category, *where, **more)
        elif str(message) not in said:
            said.add(str(message))
            say(f"Note: {message.format(as_option) if isinstance(message, WithFields) else message}", err=True)

    with warnings.catch_warnings():
        for category in categories:
            warnings.simplefilter("always", category)
        warnings.showwarning = note
        yield
