"""What verbs that fit a removal share: the options of JSE, and the fit."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unspur.cli.words import say

if TYPE_CHECKING:
    from unspur import JSE
    from unspur.selection import Rows

F = TypeVar("F", bound=Callable[..., Any])


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


def _folds(ctx: click.Context, parameter: click.Parameter, value: int) -> int:  # noqa: ARG001
    if value == 1:
        raise click.BadParameter("one fold cannot be cross-fitted; use 0 or at least 2.")
    return value


_OPTIONS = (
    click.option("--cv", default=5, show_default=True, type=click.IntRange(0), callback=_folds,
                 help="Folds to cross-fit in; 0 holds out 20 %."),
    click.option("--smallest-group", default=10, show_default=True, type=click.IntRange(2),
                 help="Fewest held-out rows of each group (main, concept) for it to be tested."),
    click.option("--significance-level", default=0.05, show_default=True,
                 type=click.FloatRange(0, 1, min_open=True, max_open=True),
                 help="Chance at which a test may accept a useless direction."),
    click.option("--correction", default="none", show_default=True, type=click.Choice(["none", "looks"]),
                 help="What that is for: each test, or all of a fit together."),
    click.option("--delta", default="0", show_default=True, callback=_number_or_auto,
                 help="Shift of the second test, or auto."),
    click.option("--weight-decay", default="auto", show_default=True, callback=_number_or_auto,
                 help="Penalty, or auto."),
    click.option("--balance", default="group", show_default=True,
                 type=click.Choice(["none", "concept", "main", "group"]), help="Classes that get equal weight."),
    click.option("--orthogonality", default="weights", show_default=True,
                 type=click.Choice(["weights", "scores", "auto"]),
                 help="What of the two labels is orthogonal; auto: the lower loss on rows held out."),
    click.option("--solver", default="exact", show_default=True, type=click.Choice(["exact", "sgd"]),
                 help="How a pair is estimated; sgd is the paper's."),
    click.option("--max-spurious", type=click.IntRange(0), help="Most directions to remove."),
    click.option("--max-pairs", default=500, show_default=True, type=click.IntRange(1),
                 help="Most pairs of directions to estimate."),
)  # fmt: skip
#: Names of the parameters that these options set.
FITTING = (
    "cv", "smallest_group", "significance_level", "correction", "delta", "weight_decay", "balance", "orthogonality",
    "solver", "max_spurious", "max_pairs",
)  # fmt: skip


def fitting_options(function: F) -> F:
    """The options of a fit."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@contextmanager
def _by_name(main: str, concepts: Sequence[str]) -> Iterator[None]:
    """Complaints about y and concept, which are names of Python, use those that the user gave."""
    from unspur.exceptions import InputError

    try:
        yield
    except InputError as error:
        text = in_names(str(error), main, concepts)
        if text == str(error):
            raise
        raise type(error)(text) from error


def in_names(text: str, main: str, concepts: Sequence[str]) -> str:
    """What the library says of y, of concept and of groups, by the names of the columns.

    With several concepts, or classes, it says first which one it is about: "season=winter: y=land: …".
    """
    about, concept = "", concepts[0] if len(concepts) == 1 else "concept"
    for name in concepts:
        if found := re.match(rf"{re.escape(name)}(=.*?)?: ", text):
            about, concept, text = found[0], name, text[found.end() :]
            break
    if found := re.match(r"y(=.*?: )", text):
        about, text = f"{about}{main}{found[1]}", text[found.end() :]
    group = r"\(main=(.*?), concept=(.*?)\) (has|lies)"
    text = re.sub(group, lambda g: f"({main}={g[1]}, {concept}={g[2]}) {g[3]}", text)
    for word, name in (("y", main), ("concept", concept)):
        of = {"": name, "_val": f"{name} of the validation rows"}
        text = re.sub(f"^{word}(|_val)(?= (?:is|has) )", lambda g, of=of: of[g[1]], text)  # type: ignore[misc]
    text = re.sub("(equal to|exact opposite of) y (?=in all)", lambda g: f"{g[1]} {main} ", text)
    return about + text.replace("only concept may have gaps", f"only {' and '.join(concepts)} may have gaps")


def fitted_jse(
    train: Rows,
    validation: Rows | None,
    main: str,
    *,
    cv: int,
    orthogonality: str,
    missing: Any,
    seed: int,
    watched: bool,
    **options: Any,
) -> tuple[JSE, dict[str, float]]:
    """JSE by its options, fitted; and, where it was to choose what is orthogonal, the losses that it chose by.

    Concepts of the rows are columns by name, None where one is not known. What warnings would say is for the caller to
    tell.
    """
    from unspur import JSE
    from unspur.exceptions import (
        ClusterWarning,
        NothingRemovedWarning,
        SearchLimitWarning,
        TaskLostWarning,
        UsedRowsWarning,
    )
    from unspur.selection import select_orthogonality

    jse = JSE(
        cv=0.2 if cv == 0 else cv, missing_concept=missing, random_state=seed, verbose=watched,
        orthogonality="scores" if orthogonality == "scores" else "weights", **options,
    )  # fmt: skip
    losses: dict[str, float] = {}
    with warnings.catch_warnings(), _by_name(main, list(train.concept)), _noted(ClusterWarning, UsedRowsWarning):
        for told_later in (NothingRemovedWarning, SearchLimitWarning, TaskLostWarning):
            warnings.simplefilter("ignore", told_later)
        if orthogonality == "auto":
            judged_on = None if validation is None else _known(validation)
            jse, losses = select_orthogonality(jse, _known(train), judged_on, seed)
        else:
            held_out = {} if validation is None else {**validation.held_out(), **validation.together("_val")}
            jse.fit(train.Z, train.y, concept=train.concept, **train.together(), **held_out)
    jse.trace_ = jse.trace_.renamed(main)
    return jse, losses


def _known(rows: Rows) -> Rows:
    """Those rows whose every concept is known."""
    from unspur.labels import class_label, joint_label

    labels = [class_label(values, name, len(rows)) for name, values in rows.concept.items()]
    return rows.select(joint_label(labels).present)


@contextmanager
def _noted(*categories: type[Warning]) -> Iterator[None]:
    """Warnings of these categories as notes on standard error, each once; others as they are."""
    show, said = warnings.showwarning, set[str]()

    def note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, categories):
            show(message, category, *where, **more)
        elif str(message) not in said:
            said.add(str(message))
            text = str(message).replace("clusters=", "--cluster").replace("rows of X_val", "validation rows")
            text = text.replace("rows of X ", "rows ")
            say(f"Note: {text}", err=True)

    with warnings.catch_warnings():
        for category in categories:
            warnings.simplefilter("always", category)
        warnings.showwarning = note
        yield
