"""Several concepts, and labels of more than two classes, for methods that fit one binary concept at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from unspur._data import LabelledData, decode_fit_arguments, first_rows, warn_if_on_another_scale
from unspur._typing import FloatArray
from unspur.clusters import has_continuous_columns, shared_clusters
from unspur.exceptions import ClusterWarning, InputError, Parameter, UsedRowsWarning
from unspur.labels import ClassLabel
from unspur.removers.folds import Problem
from unspur.removers.joint import Subspaces
from unspur.removers.seen_rows import SeenRows, check_and_remember
from unspur.solvers.row_span import RowSpan
from unspur.subspace import Subspace
from unspur.trace import Trace, Traces


@dataclass(frozen=True, slots=True)
class FitData:
    """Training and validation rows of a fit, and what certificates need to recognise them."""

    train: LabelledData
    validation: LabelledData | None
    seen_rows: SeenRows
    validation_seen_rows: SeenRows | None = None
    #: Number of validation rows that are training rows as well.
    n_reused_rows: int = 0

    @classmethod
    def read(cls, estimator: Any, train: dict[str, Any], validation: dict[str, Any], *, needs_y: bool) -> FitData:
        """Check and decode arguments of `fit`: X, y, concept, sample_weight and clusters of either set.

        If no clusters are passed, duplicate rows form clusters.
        """
        settings: Any = {"missing": estimator.missing_concept, "needs_y": needs_y, "check_finite": False}
        data = decode_fit_arguments(estimator, **train, **settings)
        seen = check_and_remember(estimator, data.X)
        hashes = seen[0]
        if all(given is None for given in validation.values()):
            return cls(data.with_duplicate_clusters(hashes), None, seen)
        require_disjoint_clusters(train["clusters"], validation["clusters"])
        if any(validation[name] is None for name in (("X", "y", "concept") if needs_y else ("X", "concept"))):
            raise InputError("A validation set needs X_val, y_val and concept_val together.")
        if data.y is None:
            validation = {**validation, "y": None}
        held_out = decode_fit_arguments(estimator, **validation, like=data, **settings)
        kept = check_and_remember(estimator, held_out.X, "X of the validation rows")
        warn_if_on_another_scale(data.X, held_out.X)
        reused = 0
        if hashes is not None and kept[0] is not None:
            reused = int(np.isin(kept[0], hashes).sum())
            reused = reused if reused and has_continuous_columns(first_rows(held_out.X)) else 0
            held_out = held_out.with_duplicate_clusters(kept[0])
        return cls(data, held_out, seen, kept, reused)

    def in_span(self) -> tuple[FitData, RowSpan | None]:
        """The data in coordinates of the span of the training rows, and that span; unchanged, and None, if not wide."""
        span, (X,) = RowSpan.of(self.train.X, live=[self.train.live])
        if span is None:
            return self, None
        validation = self.validation
        if validation is not None:
            validation = replace(validation, X=span.coordinates(validation.X))
        return replace(self, train=replace(self.train, X=X), validation=validation), span

    @property
    def concept_classes(self) -> tuple[Any, ...]:
        """Classes of the concept; of several, a tuple for each."""
        classes = tuple(label.classes for label in self.train.concepts)
        return classes[0] if len(classes) == 1 else classes

    def warn_about_reused_rows(self, reused: str) -> None:
        """Warn of held-out rows that are training rows as well, or copies of each other."""
        if reused:
            warnings.warn(f"{reused} Leave them out of one of the two.", UsedRowsWarning, stacklevel=3)
        tested_on = self.validation or self.train
        if tested_on.clusters_are_duplicates:
            code = tested_on.clusters
            assert code is not None
            message = ClusterWarning(
                "{copies:,} of {rows:,} {which} rows are exact copies of others. Copies count as one cluster in the "
                "tests, and share a fold unless cv says otherwise. Drop them, or say with {clusters} which rows belong "
                "together.",
                copies=len(code) - int(code.max()) - 1,
                rows=len(code),
                which="validation" if tested_on.suffix else "training",
                clusters=Parameter("clusters"),
            )
            warnings.warn(message, stacklevel=3)


def require_disjoint_clusters(train: Any, validation: Any) -> None:
    """Raise if training rows have clusters and validation rows have none, or share some."""
    if train is None:
        return
    if validation is None:
        raise InputError(
            "clusters were passed and clusters_val was not: directions are tested on the rows of X_val, so the tests "
            "need to know which of those belong together."
        )
    if both := shared_clusters(train, validation):
        raise InputError(
            "{clusters} clusters are among the training rows and among the validation rows, such as {value!r}: "
            "directions would be tested on clusters that they were estimated from. Leave them out of one of "
            "the two sets; if they are different clusters, give them different labels.",
            clusters=len(both),
            value=min(both, key=str),
        )


@dataclass(frozen=True, slots=True)
class BinaryFit:
    """Result for one binary concept: subspaces, trace, and centre of the rows, shape (d,).

    `task_log_loss` is the held-out loss of the main label after the removal and its standard error, if requested.
    """

    found: Subspaces
    trace: Trace
    centre: FloatArray
    task_log_loss: tuple[float, float] | None = None


#: Fits a problem orthogonally to a subspace; with True, finds main-task directions only.
FitBinary: TypeAlias = Callable[[Problem, Subspace, bool], BinaryFit]


@dataclass(frozen=True, slots=True)
class ConceptFits:
    """Result for all concepts: the span of the spurious directions, the main-task subspace, and one trace for each.

    The main-task subspace is that of the last fit, which is orthogonal to all earlier spurious directions.
    """

    spurious: Subspace
    main: Subspace
    traces: tuple[Trace, ...]
    centre: FloatArray
    #: Held-out losses of the main label after each removal, with standard errors, if requested.
    task_log_losses: tuple[tuple[float, float], ...] = ()

    @property
    def trace(self) -> Trace | Traces:
        """All traces, by name if there are several."""
        return self.traces[0] if len(self.traces) == 1 else Traces.of(self.traces)


def problems(data: FitData) -> list[tuple[ClassLabel, Problem]]:
    """Every concept, or class of it against the rest, as a problem with one binary concept."""
    held_out = [] if data.validation is None else [one for label in data.validation.concepts for one in label.binary()]
    labels = [one for label in data.train.concepts for one in label.binary()]
    found = []
    for k, label in enumerate(labels):
        train = data.train.with_labels(concept=label)
        validation = None if data.validation is None else data.validation.with_labels(concept=held_out[k])
        found.append((label, Problem(train, validation, label.full_name if len(labels) > 1 else "")))
    return found


def first_problem(data: FitData) -> Problem:
    """The first concept or class of it, with the first class of a main label of more than two."""
    problem = problems(data)[0][1]
    return _of_class(problem, 0) if problem.train.n_classes > 2 else problem


def _of_class(problem: Problem, k: int) -> Problem:
    """The problem with one class of the main label against the rest."""
    label, validation = problem.train.main.binary()[k], problem.validation
    if validation is not None:
        validation = validation.with_labels(y=validation.main.binary()[k])
    title = f"{problem.title}: {label.full_name}" if problem.title else label.full_name
    return Problem(problem.train.with_labels(y=label), validation, title)


def fit_each_concept(data: FitData, fit_binary: FitBinary) -> ConceptFits:
    """Fit one concept, or class against the rest, after the other, each orthogonal to the earlier ones."""
    spurious = main = Subspace.empty(data.train.X.shape[1])
    traces: list[Trace] = []
    centre: FloatArray | None = None
    losses: list[tuple[float, float]] = []

    def fit_and_keep_loss(problem: Problem, excluded: Subspace, main_only: bool) -> BinaryFit:
        fitted = fit_binary(problem, excluded, main_only)
        if fitted.task_log_loss is not None:
            losses.append(fitted.task_log_loss)
        return fitted

    for label, problem in problems(data):
        if problem.train.y is not None and len(problem.train.y.classes) > 2:
            found, of_concept, row_centre = _fit_each_class(problem, spurious, fit_and_keep_loss)
        else:
            fitted = fit_and_keep_loss(problem, spurious, False)
            found, of_concept, row_centre = fitted.found, (fitted.trace,), fitted.centre
        main_name = "y" if problem.train.y is None else problem.train.y.name
        about: Any = {
            "concept": label.name,
            "concept_class": label.of_class,
            "main": main_name,
            "reused": data.n_reused_rows,
        }
        traces += [replace(trace, **about) for trace in of_concept]
        spurious, main = spurious.beside(found.spurious), found.main
        centre = row_centre if centre is None else centre
    assert centre is not None
    return ConceptFits(spurious, main, tuple(traces), centre, tuple(losses))


def _fit_each_class(
    problem: Problem, excluded: Subspace, fit_binary: FitBinary
) -> tuple[Subspaces, tuple[Trace, ...], FloatArray]:
    """A main task of more than two classes: each class against the rest, without removing another class's directions.

    First the main-task directions of every class are found (`fit_binary` with True), then the spurious ones, class by
    class, orthogonal to the main-task directions of the *other* classes. Every class has a trace, whose round 0 is the
    first step.
    """
    labels = problem.train.main.binary()
    parts = [_of_class(problem, k) for k in range(len(labels))]
    first = [fit_binary(part, excluded, True).found for part in parts]
    traces: list[Trace] = []
    spurious, removed = excluded, Subspace.empty(excluded.ambient)
    centre: FloatArray | None = None
    for k, part in enumerate(parts):
        forbidden = spurious
        for other in (*first[:k], *first[k + 1 :]):
            forbidden = forbidden.union(other.main)
        fitted = fit_binary(part, forbidden, False)
        found = fitted.found
        centre = fitted.centre if centre is None else centre
        removed, spurious = removed.beside(found.spurious), spurious.beside(found.spurious)
        trace = replace(
            fitted.trace,
            steps=(*(replace(step, outer=0) for step in first[k].steps), *found.steps),
            stopped=found.stopped if first[k].complete else f"in round 0 {first[k].stopped}; then {found.stopped}",
            complete=found.complete and first[k].complete,
            task=None,  # unknown for one class: directions of the others were excluded, and stay
            main_class=labels[k].of_class,
        )
        traces.append(trace)
    main = first[0].main
    for other in first[1:]:
        main = main.union(other.main)
    main = Subspace.spanned_by(removed.reject(main.basis)) if main.dim else main
    stopped = "; ".join(f"{label.full_name}: {trace.stopped}" for label, trace in zip(labels, traces, strict=True))
    assert centre is not None
    steps = tuple(step for trace in traces for step in trace)
    return Subspaces(removed, main, steps, stopped, all(trace.complete for trace in traces)), tuple(traces), centre
