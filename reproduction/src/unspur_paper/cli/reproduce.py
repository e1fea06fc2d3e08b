"""`unspur-paper reproduce`: the paper's experiments, beside what it published."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from unspur._extras import command
from unspur.datasets import bayes_accuracy
from unspur.exceptions import InputError, UnspurError
from unspur_paper.cli.program import echo_json, json_option, print_path, say
from unspur_paper.experiments.errors import DataMissingError
from unspur_paper.experiments.presets import PRESETS, preset_words
from unspur_paper.experiments.reproduce import PATIENCE, Reproduction, experiment_names, find_experiments, reproduce
from unspur_paper.experiments.spec import Experiment
from unspur_paper.experiments.spec_file import with_settings
from unspur_paper.experiments.stores import EMBEDDINGS
from unspur_paper.experiments.summary import Summary
from unspur_paper.files import hold
from unspur_paper.report.experiment_figures import draw
from unspur_paper.report.experiment_tables import agreement_lines, digest, write_index, write_tables

#: Failed cells whose errors are shown.
SHOWN = 3


@click.command("reproduce")
@click.argument(
    "names", nargs=-1, shell_complete=lambda *typed: [n for n in experiment_names() if n.startswith(typed[2])]
)
@click.option("--list", "list_only", is_flag=True, help="List the experiments and stop.")
@click.option(
    "--preset", "presets", multiple=True, type=click.Choice(list(PRESETS)), help="Only these (all of a spec)."
)
@click.option("--runs", type=click.IntRange(1), help="Runs of every cell (those of the spec).")
@click.option("--only", multiple=True, metavar="METHOD", help="Compute only this method; may be repeated.")
@click.option("--smoke", is_flag=True, help="A few small cells of each, to see that it works.")
@click.option("--jobs", default=-1, show_default=True, type=int, help="Processes; -1 for one per core.")
@click.option(
    "--output",
    default="unspur-results",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Folder for records, tables and figures.",
)
@click.option(
    "--embeddings",
    default=str(EMBEDDINGS),
    show_default=True,
    type=click.Path(file_okay=False),
    help="Folder of embedding stores (unspur-paper embed).",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another setting of the dataset, such as encoder=resnet50 or 'p=[0.9]'.",
)
@click.option("--fresh", is_flag=True, help="Compute cells again that have a record.")
@click.option("--draw", is_flag=True, help="Compute nothing; draw what the records say.")
@json_option
def reproduce_command(
    names: tuple[str, ...],
    list_only: bool,
    presets: tuple[str, ...],
    runs: int | None,
    only: tuple[str, ...],
    smoke: bool,
    jobs: int,
    output: str,
    embeddings: str,
    changes: tuple[str, ...],
    fresh: bool,
    draw: bool,
    as_json: bool,
) -> None:
    """Run experiments and set them beside the published values.

    NAMES are names of --list ("toy" means all on Toy), or TOML files of your own.

    To resume a stopped run, run the same command again.

    Example:
      unspur-paper reproduce toy-ood --preset exact --runs 20
    """
    if list_only:
        _list(find_experiments(experiment_names()), as_json)
        return
    if not names:
        raise click.UsageError("Name an experiment, or --list them.")
    for one, other in (("--smoke", "--runs"), ("--draw", "--fresh"), ("--draw", "--only")):
        given = {"--smoke": smoke, "--runs": runs, "--draw": draw, "--fresh": fresh, "--only": only}
        if given[one] and given[other]:
            raise click.UsageError(f"{one} and {other} contradict each other.")
    experiments = _chosen(find_experiments(names), presets, only)
    if changes:
        experiments = [with_settings(experiment, _settings(changes)) for experiment in experiments]
    folder = Path(output) / "smoke" if smoke else Path(output)
    done, failures = [], 0
    for experiment in experiments:
        chosen = experiment.smoke() if smoke else experiment
        methods = [method.name for method in chosen.methods if method.name in only]
        for preset in presets or chosen.presets:
            if preset not in chosen.presets:
                continue
            if methods and not presets and not any(preset in chosen.method(name).presets for name in methods):
                continue  # one of the spec's presets that was not asked for, and has none of the methods that were
            if not as_json:
                cells = len(chosen.cells(preset, None if smoke else runs, methods))
                words = preset_words(preset, chosen.dataset["name"])
                say(f"\n{chosen.title}")
                say(f"{chosen.name}, {cells} cells, preset {preset}: {words}", indent="  ")
            try:
                result = reproduce(
                    chosen,
                    preset,
                    folder,
                    runs=None if smoke else runs,
                    only=methods,
                    jobs=jobs,
                    progress=not as_json,
                    reuse=not fresh,
                    compute=not draw,
                    embeddings=Path(embeddings),
                    write=partial(_write, experiment=chosen, output=folder),
                )
            except DataMissingError as error:
                if len(experiments) == 1:
                    raise
                say(f"left out: {error}", indent="  ", err=True)
                continue
            failures += len(result.report.failures)
            done.append(
                {
                    **digest(result.summary),
                    "files": [str(path) for path in result.files],
                    "failures": [asdict(failure) for failure in result.report.failures],
                }
            )
            if not as_json:
                _tell(result, drawn=draw)
    with hold(folder / ".lock", patience=PATIENCE):
        index = write_index(folder)
    if as_json:
        echo_json(done)
    else:
        print_path("\nAll results", index)
    if failures:
        raise UnspurError(f"{failures} cells failed; they have no record, and the same command tries them again.")


def _list(experiments: list[Experiment], as_json: bool) -> None:
    if as_json:
        echo_json(
            [
                {
                    "name": experiment.name,
                    "title": experiment.title,
                    "presets": experiment.presets,
                    "runs": experiment.runs,
                    "dataset": experiment.dataset["name"],
                    "methods": _methods(experiment),
                }
                for experiment in experiments
            ]
        )
        return
    for experiment in experiments:
        say(experiment.name)
        say(f"{experiment.title} [{', '.join(experiment.presets)}]", indent="    ")


def _chosen(experiments: list[Experiment], presets: tuple[str, ...], only: tuple[str, ...]) -> list[Experiment]:
    """Those that have one of the presets and methods asked for; one that none has is an error."""
    for what, asked, has in (("preset", presets, _presets), ("method", only, _methods)):
        known = sorted({name for experiment in experiments for name in has(experiment)})
        for name in asked:
            if name not in known:
                raise InputError(f"No {what} {name!r} in what is to be run. There are: {', '.join(known)}.")
        experiments = [e for e in experiments if not asked or set(asked) & set(has(e))]
    return experiments


def _settings(changes: tuple[str, ...]) -> dict[str, str]:
    for change in changes:
        if "=" not in change:
            raise click.UsageError(f"--set needs KEY=VALUE; got {change!r}.")
    return dict((part.strip() for part in change.split("=", 1)) for change in changes)  # type: ignore[misc]


def _presets(experiment: Experiment) -> list[str]:
    return list(experiment.presets)


def _methods(experiment: Experiment) -> list[str]:
    return [method.name for method in experiment.methods]


def _write(summary: Summary, experiment: Experiment, output: Path) -> list[Path]:
    """Tables and, where matplotlib is installed, figures."""
    references, folder, figures = _references(experiment), output / experiment.name, list[Path]()
    if find_spec("matplotlib") is None:
        say(f"No figures: install matplotlib with {command('report')}.", indent="  ", err=True)
    elif summary.lines or summary.panels:
        lines = {metric: value for metric, (_, value) in references.items()}
        figures = draw(summary, folder, stem=summary.preset, reference=lines)
    return [*write_tables(summary, folder, references=references, figures=figures), *figures]


def _references(experiment: Experiment) -> dict[str, tuple[str, float]]:
    """Values to hold a metric against."""
    data = experiment.dataset
    if data["name"] != "toy" or isinstance(data["separability_main"], list) or isinstance(data["angle"], list):
        return {}
    best = bayes_accuracy(data["separability_main"], angle=data["angle"])
    return {"average": ("Bayes accuracy", best)}


def _tell(result: Reproduction, *, drawn: bool) -> None:
    report = result.report
    computed = f"{report.computed} cells computed, {report.reused} found, in {report.seconds:.0f} s"
    say("Drawn from the records; nothing computed." if drawn else computed, indent="  ")
    if result.waiting:
        say(f"{len(result.waiting)} cells wait for their data. {result.waiting[0]}", indent="  ")
    for path, reason in result.damaged:
        say(f"{path.name} could not be used: {reason}", indent="  ")
    for failure in report.failures[:SHOWN]:
        say(f"failed: {failure.message}\nspec: {failure.spec}", indent="  ", further="    ", err=True)
    if len(report.failures) > SHOWN:
        say(f"… and {len(report.failures) - SHOWN} more; --json shows all, with tracebacks", indent="  ", err=True)
    for line in agreement_lines(result.summary):
        say(line, indent="  ", further="    ")
    click.echo(f"  {next(path for path in result.files if path.suffix == '.md')}")
