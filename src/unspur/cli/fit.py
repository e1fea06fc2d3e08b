"""`unspur fit`: from a file of embeddings to a saved classifier, or to a removal alone."""

from __future__ import annotations

import inspect
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from unspur.cli.console import echo_json, print_path, say, say_command, show, warnings_as_notes
from unspur.cli.data import Part, read_parts
from unspur.cli.options import (
    FITTED_NAMES,
    FITTING_PARAMETERS,
    PATH,
    RowOptions,
    check_output,
    fitting_options,
    force_option,
    json_option,
    row_options,
    seed_option,
    with_default,
)

if TYPE_CHECKING:
    from unspur import RobustClassifier
    from unspur.removers import Remover

#: The method of `RobustClassifier`; the others are removers alone.
RECOMMENDED = "recommended"


@click.command()
@row_options(
    validation="File with rows to test directions and choose penalties on. Without it, folds of FILE are used."
)
@click.option("--output", required=True, type=PATH, help="Where the model is saved (a .safetensors file).")
@with_default(
    "--method",
    RECOMMENDED,
    "JSE and a group-weighted head after it (recommended), or a remover alone.",
    type=click.Choice((RECOMMENDED, *FITTED_NAMES), case_sensitive=False),
)
@fitting_options
@click.option("--trace", is_flag=True, help="Print every test, also where there are many.")
@seed_option
@force_option
@json_option
def fit(
    rows: RowOptions, output: Path, method: str, trace: bool, seed: int, force: bool, as_json: bool, **options: Any
) -> None:
    r"""Fit a classifier that does not use the concept, or a removal.

    FILE is .csv, .parquet, .npz or .npy, or a folder of .parquet files, such as unspur embed writes. The concept is
    removed, and a head (a linear classifier) is trained on what is left, with equal weight for every combination of
    task and concept. Both are saved for unspur predict. --method NAME saves a removal alone, for unspur apply.

    Example:
      unspur fit birds.csv --task bird --concept background \
          --output birds.safetensors
    """
    check_output(output, rows.file, rows.validation, force=force, suffixes=(".safetensors",))
    _refuse_unknown_options(method)
    parts = read_parts(rows)
    verbose = not as_json and sys.stderr.isatty()
    model = fitted(method, parts["training"], parts.get("validation"), seed=seed, verbose=verbose, **options)
    remover = getattr(model, "remover_", model)
    model.save(output, overwrite=force)
    if as_json:
        echo_json({"output": str(output), "method": method, "concepts": list(rows.concept), **_as_json(model, remover)})
        return
    text = str(remover.trace_) if trace or not hasattr(remover.trace_, "summary") else remover.trace_.summary()
    show(text)
    if text != str(remover.trace_):
        say(f"All {len(remover.trace_)} tests: --trace prints them, and --json has them.")
    removed, d, names = remover.spurious_.dim, remover.n_features_in_, " or ".join(rows.concept)
    say(f"\n{removed} of {d} directions {'carries' if removed == 1 else 'carry'} {names}.")
    if remover.strength_ < 1:
        say(f"They are removed with a strength of {remover.strength_:g}; a part of each is left.")
    if model is remover:
        print_path("Removal", output)
        say_command(["unspur", "apply", str(output), "FILE", "--output", "clean.npz"])
    else:
        say(_about_head(model))
        print_path("Classifier", output)
        say_command(["unspur", "predict", str(output), "FILE", "--output", "predictions.csv"])
    other = ["--test-where", f"{rows.where[0][0]}=VALUE"] if rows.where else ["--test", "FILE"]
    say_command(["unspur", "report", str(rows.file), *rows.words(), *other, "--removal", str(output)])


def _refuse_unknown_options(method: str) -> None:
    """Raise UsageError for typed options that a method does not have."""
    if method == RECOMMENDED:
        return
    from unspur.removers import REMOVERS

    ctx = click.get_current_context()
    known = _settings(REMOVERS[method](), dict.fromkeys(FITTING_PARAMETERS))
    for name in FITTING_PARAMETERS:
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name not in known:
            there = ", ".join(f"--{one.replace('_', '-')}" for one in known)
            raise click.UsageError(
                f"--{name.replace('_', '-')} is no setting of {method}, which has {there or 'none'}."
            )


def _settings(remover: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings that a remover has."""
    known = remover.get_params()
    return {name: value for name, value in given.items() if name in known}


def fitted(method: str, train: Part, validation: Part | None, *, seed: int, verbose: bool, **options: Any) -> Any:
    """The fitted classifier that we recommend, or a fitted remover by name; warnings are printed as notes."""
    from unspur import RobustClassifier
    from unspur.removers import REMOVERS

    name = "JSE" if method == RECOMMENDED else method
    model = REMOVERS[name]()
    model.set_params(**_settings(model, {"random_state": seed, "verbose": verbose, **options}))
    if method == RECOMMENDED:
        model = RobustClassifier(model, random_state=seed)
        if isinstance(options["cv"], int):
            model.set_params(cv=options["cv"])
    with warnings_as_notes(), REMOVERS.named_errors(name):
        return fit_on(model, train, validation)


def fit_on(model: Any, train: Part, validation: Part | None) -> Any:
    """Fit a model on those arguments that its `fit` takes."""
    given = train.arguments() | ({} if validation is None else validation.arguments("_val"))
    accepted = inspect.signature(model.fit).parameters
    return model.fit(**{name: value for name, value in given.items() if name in accepted})


def _about_head(model: RobustClassifier) -> str:
    chosen = model.selection_
    losses = ", ".join(f"{loss:.4f} at {tried['penalty']:g}" for tried, loss in chosen.results)
    edge = f" It is the {chosen.grid_edge} that was tried, so another may be better." if chosen.grid_edge else ""
    return (
        f"The head is {type(model.head_).__name__} with penalty {chosen.penalty:g}, which had the smallest held-out "
        f"loss: {losses}. Guessing has {math.log(len(model.classes_)):.4f}.{edge}"
    )


def _as_json(model: Any, remover: Remover) -> dict[str, Any]:
    chosen = None if model is remover else model.selection_
    return {
        "n_spurious": remover.spurious_.dim,
        "n_main": remover.main_.dim,
        "n_features": remover.n_features_in_,
        "strength": remover.strength_,
        "metric": getattr(remover, "metric_", None),
        "penalty": None if chosen is None else chosen.penalty,
        "grid_edge": "" if chosen is None else chosen.grid_edge,
        "held_out_losses": [] if chosen is None else [{**tried, "loss": loss} for tried, loss in chosen.results],
        "notes": [] if chosen is None else list(model.notes_),
        "complete": getattr(remover.trace_, "complete", True),
        "trace": remover.trace_.to_dict(),
    }
