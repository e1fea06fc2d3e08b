"""`unspur fit`: from a file of embeddings to a saved classifier, or to a removal alone."""

from __future__ import annotations

import math
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unspur.cli.console import echo_json, print_path, say, say_command, show
from unspur.cli.data import conditions_on, read_splits, require_disjoint_clusters
from unspur.cli.options import (
    FITTED_NAMES,
    FITTING_PARAMETERS,
    LocalPath,
    RowOptions,
    check_output,
    cluster_option,
    collect_row_options,
    fitting_options,
    force_option,
    json_option,
    label_options,
    option_name,
    options_of_rows,
    require_removal_name,
    seed_option,
    where_option,
    with_default,
)
from unspur.cli.program import as_option

if TYPE_CHECKING:
    from unspur import RobustClassifier
    from unspur._data import LabelledData
    from unspur.io.table import Table
    from unspur.removers import Remover

#: The method of `RobustClassifier`; the others are removers alone.
RECOMMENDED = "recommended"
METHODS = (RECOMMENDED, *FITTED_NAMES)


@click.command()
@click.argument("file", type=LocalPath(), nargs=-1, required=True, metavar="FILE...")
@label_options
@cluster_option
@where_option()
@click.option(
    "--output", required=True, type=LocalPath(), help="Where removal and head are saved (a .safetensors file)."
)
@with_default(
    "--method",
    RECOMMENDED,
    "JSE and a group-weighted head after it (recommended), or a remover alone.",
    type=click.Choice(METHODS, case_sensitive=False),
)
@click.option(
    "--validation",
    type=LocalPath(),
    help="File with rows to test directions and choose penalties on; the head is trained on them as well. Without it, "
    "folds of FILE are used.",
)
@where_option("validation")
@fitting_options
@click.option("--trace", is_flag=True, help="Print every test, also where there are many.")
@seed_option
@force_option
@json_option
@collect_row_options
def fit(
    row_options: RowOptions[tuple[str, ...]],
    output: str,
    method: str,
    trace: bool,
    force: bool,
    as_json: bool,
    seed: int,
    **options: Any,
) -> None:
    r"""Fit a classifier that does not use the concept, or a removal.

    FILE is .npy, .npz, .csv or .parquet, or the folder of a store that unspur embed made; or several Parquet files, a
    folder of them or a quoted pattern. Parquet files have one column of lists, or a column for each feature.

    The concept is removed, and a head (a linear classifier) is trained on the transformed rows, with equal weight for
    every combination of the labels. One file has both, for unspur predict. --method NAME saves only a removal, for
    unspur apply.

    Example:
      unspur fit birds.npz --task bird --concept background \
          --output birds.safetensors
    """
    ctx = click.get_current_context()
    check_output(output, *row_options.file, ctx.params["validation"], overwrite=force)
    require_removal_name(output, "--output")
    show_progress = not as_json and sys.stderr.isatty()
    _refuse_unknown_options(ctx, method)
    splits = read_splits(
        row_options,
        together=not fits_each_concept(method),
    )
    table, train, validation = splits.tables["training"], splits.rows["training"], splits.rows.get("validation")
    require_disjoint_clusters(splits.rows, row_options.clusters)
    settings: Any = {"missing": splits.missing_concept, "seed": seed, "show_progress": show_progress, **options}
    classifier = fit_classifier(train, validation, **settings) if method == RECOMMENDED else None
    remover = classifier.remover_ if classifier else fit_from_options(train, validation, method=method, **settings)
    model = classifier or remover
    describe_columns(table, remover, model)
    model.save(output, overwrite=force)
    if as_json:
        found = _as_json(remover, classifier)
        echo_json({"output": output, "method": method, "concepts": list(train.concept_names), **found})
        return
    _print_trace(remover, whole=trace)
    _print_removal(remover, train.main.name, train.concept_names)
    if classifier is not None:
        say(_head_text(classifier))
        for note in classifier.selection_.notes:  # the other notes were already printed as warnings
            say(f"Note: {note}")
        print_path("Classifier", output)
        say_command("Next:", ["unspur", "predict", shlex.quote(output), "FILE", "--output predictions.csv"])
    else:
        print_path("Removal", output)
        beside = [] if table.features is None else [f"--label {shlex.quote(name)}" for name in table.columns]
        beside += [f"--ignore {shlex.quote(name)}" for name in row_options.ignore]
        say_command("Next:", ["unspur", "apply", shlex.quote(output), "FILE", *beside, "--output clean.npz"])
    if len(row_options.file) == 1:
        _say_report_command(row_options, output, ctx.params)


def _print_removal(remover: Remover, main: str, concepts: tuple[str, ...]) -> None:
    """Print what was removed, and what to do where the search or the metric call for it."""
    say(f"\n{_directions_text(remover, main, concepts)}")
    if not remover.n_removed_:
        say("No direction was removed; applying the saved file changes nothing.")
    elif remover.strength_ < 1:
        say(f"They are removed with a strength of {remover.strength_:g}; a part of each is left.")
    if losses := getattr(remover, "metric_losses_", {}):
        tried = ", ".join(f"{loss:.4f} at {metric:g}" for metric, (loss, _) in losses.items())
        say(f"The metric is τ = {remover.metric_:g}, chosen by the held-out loss of {main}: {tried}.")
    if unfinished := getattr(remover, "search_limit_warning", ""):
        say(f"{unfinished} Try a larger --penalty, or raise --max-pairs.")
    if task_lost := getattr(remover, "task_removed_warning", ""):
        say(f"{task_lost} Try --metric 1.")


def _say_report_command(row_options: RowOptions[tuple[str, ...]], output: str, params: Mapping[str, Any]) -> None:
    """Print the command of a report on rows that the fit has not seen: others of FILE if it used some, or a file."""
    if not row_options.where and any(name.endswith(".npy") for name in row_options.columns):
        say("A report on rows that were not used here needs labels beside them, such as in a .npz file.")
        return
    words = [f"{option} {shlex.quote(value)}" for option, value in options_of_rows(params)]
    columns = [column for column, _ in conditions_on(row_options.file, row_options.where)]
    words.append(f"--test-where {shlex.quote(columns[0])}=VALUE" if columns else "--test FILE")
    say_command(
        "Next:", ["unspur", "report", shlex.quote(row_options.file[0]), *words, f"--removal {shlex.quote(output)}"]
    )


def _directions_text(remover: Remover, main: str, concept: tuple[str, ...]) -> str:
    """How many directions carry the labels, or how many were removed by a method that does not test them."""
    from unspur import JSE
    from unspur.trace import Trace, Traces

    spurious, concepts = remover.spurious_.dim, " or ".join(concept)
    found = f"{spurious} of {remover.n_features_in_} directions"
    if not isinstance(remover.trace_, Trace | Traces) and remover.strength_ == 1:
        return f"{found} {'was' if spurious == 1 else 'were'} removed for {concepts}."
    task = f", {remover.main_.dim} {_carry(remover.main_.dim)} {main}" if isinstance(remover, JSE) else ""
    return f"{found} {_carry(spurious)} {concepts}{task}."


def _carry(directions: int) -> str:
    return "carries" if directions == 1 else "carry"


def fits_each_concept(method: str) -> bool:
    """Whether a method fits one concept after the other, so that a row may lack some of them."""
    if method == RECOMMENDED:
        return False
    from unspur.removers import REMOVERS
    from unspur.removers.direction_remover import DirectionRemover

    return issubclass(REMOVERS[method], DirectionRemover)


def _refuse_unknown_options(ctx: click.Context, method: str) -> None:
    """Raise UsageError for typed options that a method does not have."""
    if method == RECOMMENDED:
        return
    from unspur.removers import REMOVERS

    known = REMOVERS[method]().get_params()
    settings = {name: _parameter(name, known) for name in FITTING_PARAMETERS}
    typed = [name for name in settings if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if unknown := [name for name in typed if settings[name] not in known]:
        there = ", ".join(option_name(name) for name in settings if settings[name] in known)
        raise click.UsageError(f"{option_name(unknown[0])} is not a setting of {method}, which has {there}.")


def _parameter(option: str, known: Mapping[str, Any]) -> str:
    """The parameter of a remover that an option sets: all directions of INLP are spurious."""
    return "max_directions" if option == "max_spurious" and option not in known else option


def remover_from_options(method: str, *, missing: Any, seed: int, show_progress: bool, **options: Any) -> Remover:
    """An unfitted remover by name, with those of the options that it has."""
    from unspur import compare

    remover: Remover = compare.make_remover(method, options["balance"], seed)
    known = remover.get_params()
    given = {"missing_concept": missing, "verbose": show_progress, **options, "cv": options["cv"] or 0.2}
    settings = {_parameter(name, known): value for name, value in given.items()}
    remover.set_params(**{name: value for name, value in settings.items() if name in known})
    return remover


def fit_from_options(
    train: LabelledData, validation: LabelledData | None, *, method: str = "JSE", pool: bool = False, **settings: Any
) -> Any:
    """A fitted remover by name, with those of the settings that it has.

    With `pool`, validation rows that are too few are pooled with the training rows, as a classifier does.
    """
    from unspur.compare import REMOVERS
    from unspur.selection import fit_or_pool, fit_with_accepted_arguments

    remover = remover_from_options(method, **settings)
    with _fit_warnings_as_notes(), REMOVERS.named_errors(method):
        if pool:
            return fit_or_pool(remover, train, validation)[0]
        fit_with_accepted_arguments(remover, train, validation)
    return remover


def fit_classifier(train: LabelledData, validation: LabelledData | None, **settings: Any) -> RobustClassifier:
    """The fitted classifier that we recommend: JSE with these settings, then a group-weighted head."""
    from unspur import RobustClassifier
    from unspur.selection import fit_with_accepted_arguments

    folds = {"cv": settings["cv"]} if settings["cv"] else {}
    one, seed = settings["missing"], settings["seed"]
    model = RobustClassifier(remover_from_options("JSE", **settings), missing_concept=one, random_state=seed, **folds)
    with _fit_warnings_as_notes():
        fit_with_accepted_arguments(model, train, validation)
    return model


@contextmanager
def _fit_warnings_as_notes() -> Iterator[None]:
    """A context of a fit, whose warnings become notes, each once, or are ignored if the caller prints their content."""
    from unspur.exceptions import (
        ClusterWarning,
        FewRowsWarning,
        InputWarning,
        NothingRemovedWarning,
        SearchLimitWarning,
        TaskLostWarning,
        UsedRowsWarning,
        WithFields,
    )

    noted = (ClusterWarning, FewRowsWarning, InputWarning, UsedRowsWarning)
    show_otherwise, printed = warnings.showwarning, set[str]()

    def note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, noted):
            show_otherwise(message, category, *where, **more)
        elif str(message) not in printed:
            printed.add(str(message))
            say(f"Note: {message.format(as_option) if isinstance(message, WithFields) else message}", err=True)

    with warnings.catch_warnings():
        for category in noted:
            warnings.simplefilter("always", category)
        for printed_later in (NothingRemovedWarning, SearchLimitWarning, TaskLostWarning):
            warnings.simplefilter("ignore", printed_later)
        warnings.showwarning = note
        yield


def describe_columns(table: Table, *models: Any) -> None:
    """Set `feature_names_in_` of models if features have names, and `encoding_` if they are those of a store."""
    import numpy as np

    from unspur.embed.store import encoding_of

    encoding = encoding_of(table.path)
    for model in models:
        if table.features is not None:
            model.feature_names_in_ = np.array(table.features, dtype=object)
        if encoding is not None:
            model.encoding_ = encoding


def _print_trace(remover: Remover, *, whole: bool) -> None:
    trace = remover.trace_
    text = str(trace) if whole or not hasattr(trace, "summary") else trace.summary()
    show(text)
    if text != str(trace):
        say(f"All {len(trace)} tests: --trace prints them, --json has them, and unspur report draws them.")


def _head_text(classifier: RobustClassifier) -> str:
    chosen = classifier.selection_
    losses = ", ".join(f"{loss:.4f} at {tried['penalty']:g}" for tried, loss in chosen.results)
    edge = f" It is the {chosen.grid_edge} that was tried, so another may be better." if chosen.grid_edge else ""
    return (
        f"The head is {type(classifier.head_).__name__} with penalty {chosen.penalty:g}, which had the smallest "
        f"held-out loss: {losses}. Guessing has {math.log(len(classifier.classes_)):.4f}.{edge}"
    )


def _as_json(remover: Remover, classifier: RobustClassifier | None) -> dict[str, Any]:
    chosen = None if classifier is None else classifier.selection_
    return {
        "n_spurious": remover.spurious_.dim,
        "n_main": remover.main_.dim,
        "n_features": remover.n_features_in_,
        "strength": remover.strength_,
        "metric": getattr(remover, "metric_", None),
        "metric_losses": {f"{metric:g}": loss for metric, (loss, _) in getattr(remover, "metric_losses_", {}).items()},
        "penalty": None if chosen is None else chosen.penalty,
        "grid_edge": "" if chosen is None else chosen.grid_edge,
        "held_out_losses": [] if chosen is None else [{**tried, "loss": loss} for tried, loss in chosen.results],
        "notes": [] if classifier is None else list(classifier.notes_),
        "task_lost": bool(getattr(remover, "task_removed_warning", "")),
        "complete": getattr(remover.trace_, "complete", True),
        "trace": remover.trace_.to_dict(),
    }
