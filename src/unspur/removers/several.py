"""Several concepts, and concepts of more than two classes, for methods that know one binary concept at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from unspur._arrays import is_tensor
from unspur._typing import Array
from unspur.clusters import copies, measured_on_a_scale, shared_clusters
from unspur.exceptions import ClusterWarning, GroupSizeError, InputError, LabelError, UsedRowsWarning
from unspur.labels import class_label
from unspur.removers.concepts import concept_columns, numbered
from unspur.removers.inputs import LabelledRows, Sample, checked_z
from unspur.removers.joint import Subspaces
from unspur.removers.memory import Memory, remembered
from unspur.rows import StoredRows, backend_of, persisted, to_host
from unspur.subspace import Subspace
from unspur.trace import Step, Trace, Traces

#: Fits one binary concept and one binary main label, away from a subspace; or, with True, the main label alone.
FitBinary: TypeAlias = Callable[[Sample, Sample | None, Subspace | None, bool], tuple[Subspaces, Trace, LabelledRows]]


@dataclass(frozen=True, slots=True)
class _Task:
    """One binary label: what it is called, its values, None where it is not known, and its class against the rest."""

    name: str
    values: Array
    of_class: Any = None

    @property
    def full_name(self) -> str:
        """With the class where there are more than two: "season=winter"."""
        return self.name if self.of_class is None else f"{self.name}={self.of_class}"


def one_after_the_other(
    estimator: Any,
    train: Sample,
    validation: Sample | None,
    fit_binary: FitBinary,
) -> None:
    """Set `spurious_`, `main_`, `trace_`, `classes_` and `concept_classes_` of an estimator.

    Each concept, or class against the rest, is fitted away from what was found before; `spurious_` is the span of all,
    and `main_` that of the last fit, which is orthogonal to it.
    """
    z = persisted(checked_z(estimator, train.X, reset=True))
    n_rows = len(z)
    if validation is not None and backend_of(validation.X) == "dask":  # checked first: its length may not be known
        validation = replace(validation, X=persisted(checked_z(estimator, validation.X, reset=False)))
    memory = remembered(z)
    hashes = memory[0]
    used, of_validation = 0, None
    if validation is None:
        train = _with_copies(train, z, hashes)
    else:
        used, validation, of_validation = _independent_of(train, validation, estimator, hashes)
    columns = concept_columns(train.concept, n_rows, "concept")
    labels = [class_label(values, name, n_rows, missing=estimator.missing_concept) for name, values in columns.items()]
    others = None
    if validation is not None and validation.concept is not None and validation.X is not None:
        others = _same_columns(concept_columns(validation.concept, _length(validation.X), "concept_val"), columns)
    if len(labels) == 1 and len(labels[0].classes) == 2:
        ((name, column),) = columns.items()
        tasks, held_out = [_Task(name, column)], [None if others is None else others[name]]
    else:
        tasks = [task for name, values, label in zip(columns, columns.values(), labels, strict=True)
                 for task in _tasks(name, values, label.classes, estimator.missing_concept)]  # fmt: skip
        held_out = [None] * len(tasks)
        if others is not None:
            held_out = [task.values for name, values, label in zip(others, others.values(), labels, strict=True)
                        for task in _tasks(f"{name} of the validation rows", values, label.classes,
                                           estimator.missing_concept)]  # fmt: skip
    main = () if train.y is None else class_label(train.y, "y", n_rows).classes
    gone: Subspace | None = None
    traces: list[Trace] = []
    for task, values in zip(tasks, held_out, strict=True):
        judged_on = None if validation is None else replace(validation, concept=values)
        with _saying(task.full_name if len(tasks) > 1 else ""):
            found, told, data = _fit_one(replace(train, concept=task.values), judged_on, gone, main, fit_binary)
        traces += [replace(trace, concept=task.name, concept_class=task.of_class) for trace in told]
        gone = found.spurious if gone is None else gone.beside(found.spurious)
        estimator.main_, estimator.classes_ = found.main, main if len(main) > 2 else data.classes
        single = data.concept_classes
    assert gone is not None
    estimator.spurious_ = gone
    estimator._forget_rows()
    estimator._add_to_memory(*memory)
    if of_validation is not None:
        estimator._remember_validation(of_validation)
    classes = tuple(label.classes for label in labels)
    traces = [replace(trace, reused=used) for trace in traces]
    estimator.trace_ = traces[0] if len(traces) == 1 else Traces.of(traces)
    _warn_of_copies(train if validation is None else validation, estimator.reused)
    if len(tasks) == 1:
        estimator.concept_classes_ = single
    else:
        estimator.concept_classes_ = classes[0] if len(classes) == 1 else classes


def _with_copies(sample: Sample, z: Array, hashes: Any) -> Sample:
    """The sample with copies of a row as one cluster, where no clusters were given.

    A copy on the other side of a split makes noise look like a finding. Rows of a few small numbers are equal by
    chance, and stay as they are; so do rows too many to be compared.
    """
    if sample.clusters is not None or hashes is None:
        return sample
    concepts = concept_columns(sample.concept, len(hashes), "concept").values()
    found = copies(hashes, concepts if sample.y is None else [sample.y, *concepts])
    if found is None or not measured_on_a_scale(_first_rows(z)):
        return sample
    return replace(sample, clusters=found, copies=True)


def _warn_of_copies(judged_on: Sample, reused: str) -> None:
    """Say which of the rows that directions were judged on are copies of each other, or of rows they came from."""
    if reused:
        warnings.warn(f"{reused} Leave them out of one of the two.", UsedRowsWarning, stacklevel=4)
    if judged_on.copies:
        code = judged_on.clusters
        warnings.warn(
            f"{len(code) - int(code.max()) - 1:,} of {len(code):,} rows of X{judged_on.suffix} are exact copies of "
            "others. Copies count as one cluster in the tests, and share a fold unless cv says otherwise. Drop them, "
            "or say with clusters= which rows belong together.",
            ClusterWarning,
            stacklevel=4,
        )


def _independent_of(
    train: Sample, validation: Sample, estimator: Any, hashes: Any
) -> tuple[int, Sample, Memory | None]:
    """How many rows of a validation set are training rows, the set with copies of a row as clusters, and its memory.

    A cluster that is in both is an error.
    """
    if train.clusters is not None and validation.clusters is None:
        raise InputError(
            "clusters were passed and clusters_val was not: directions are judged on the rows of X_val, so the tests "
            "need to know which of those belong together."
        )
    if train.clusters is not None and (both := shared_clusters(train.clusters, validation.clusters)):
        raise InputError(
            f"{len(both)} clusters are in clusters and in clusters_val, such as {next(iter(both))!r}: their held-out "
            "rows would be judged by directions estimated from the same clusters. Leave them out of one of the two "
            "sets; if they are different clusters, give them different labels."
        )
    if validation.X is None or validation.concept is None:  # refused where rows are checked
        return 0, validation, None
    z = checked_z(estimator, validation.X, reset=False)
    memory = remembered(z)
    held_out = memory[0]
    if held_out is None or hashes is None:
        return 0, validation, memory
    used = int(np.isin(held_out, hashes).sum())
    used = used if used and measured_on_a_scale(_first_rows(z)) else 0
    return used, _with_copies(validation, z, held_out), memory


def _first_rows(z: Array, number: int = 2000) -> Array:
    """Some rows on the host, shape (m, d)."""
    if isinstance(z, StoredRows):
        with closing(z.blocks()) as blocks:
            return next(iter(blocks))[1][:number]
    first = z[:number]
    return to_host(first.float() if is_tensor(first) else first)[0]


def _fit_one(
    train: Sample, validation: Sample | None, gone: Subspace | None, classes: tuple[Any, ...], fit_binary: FitBinary
) -> tuple[Subspaces, tuple[Trace, ...], LabelledRows]:
    """What is found of one binary concept, away from what was removed before; `classes` are those of the main label."""
    if len(classes) > 2:
        return _each_main_class(train, validation, gone, classes, fit_binary)
    found, trace, data = fit_binary(train, validation, gone, False)
    return found, (trace,), data


def _each_main_class(
    train: Sample, validation: Sample | None, gone: Subspace | None, classes: tuple[Any, ...], fit_binary: FitBinary
) -> tuple[Subspaces, tuple[Trace, ...], LabelledRows]:
    """A main task of more than two classes: each class against the rest, none of them at the cost of another.

    First the main-task directions of every class are found (`fit_binary` with True looks for those alone), then the
    spurious ones, class by class, in the complement of what the *other* classes need. There is a trace for every class;
    its round 0 is the first of the two.
    """
    tasks = _tasks("y", train.y, classes, None)
    held_out: list[Array] = [None] * len(tasks)
    if validation is not None and validation.y is not None:
        held_out = [task.values for task in _tasks("y", validation.y, classes, None)]
    samples = [
        (replace(train, y=task.values), None if validation is None else replace(validation, y=values))
        for task, values in zip(tasks, held_out, strict=True)
    ]
    alone = []
    for task, sample in zip(tasks, samples, strict=True):
        with _saying(task.full_name):
            alone.append(fit_binary(*sample, gone, True)[0])
    needed, complete = [found.main for found in alone], all(found.complete for found in alone)
    steps: list[Step] = []
    traces, spurious, removed = [], gone, Subspace.empty(needed[0].ambient)
    for k, sample in enumerate(samples):
        bounds = Subspace.empty(needed[0].ambient) if spurious is None else spurious
        for j, main in enumerate(needed):
            bounds = bounds.union(main) if j != k else bounds
        with _saying(tasks[k].full_name):
            found, trace, data = fit_binary(*sample, bounds, False)
        removed = removed.beside(found.spurious)
        spurious = found.spurious if spurious is None else spurious.beside(found.spurious)
        told = (*(replace(step, outer=0) for step in alone[k].steps), *found.steps)
        whole = found.complete and alone[k].complete
        complete = complete and whole
        # A first search that met its limit is part of the story, too.
        stopped = found.stopped if alone[k].complete else f"in round 0 {alone[k].stopped}; then {found.stopped}"
        # What became of one class cannot be told here: directions of the others were out of bounds, and stay.
        trace = replace(trace, steps=told, stopped=stopped, complete=whole, task=None)
        traces.append(replace(trace, main="y", main_class=tasks[k].of_class))
        steps += told
    both = needed[0]
    for main in needed[1:]:
        both = both.union(main)
    kept = removed.reject(both.basis)
    main = Subspace.spanned_by(kept) if both.dim else both
    stopped = "; ".join(f"{task.full_name}: {trace.stopped}" for task, trace in zip(tasks, traces, strict=True))
    return Subspaces(removed, main, tuple(steps), stopped, complete), tuple(traces), data


@contextmanager
def _saying(name: str) -> Iterator[None]:
    """Complaints about labels say which concept, or class against the rest, they are about; none for no name."""
    try:
        yield
    except (LabelError, GroupSizeError) as error:
        text = str(error)
        if not name or text.startswith(("y ", "y_val ")):
            raise
        # Classes against the rest end in a space (see `_tasks`).
        raise type(error)(f"{name}: {text}".replace(" ,", ",").replace(" )", ")")) from error


def _same_columns(others: dict[str, Array], columns: dict[str, Array]) -> dict[str, Array]:
    """Concepts of validation rows by the names, and in the order, of those of the training rows.

    Columns of arrays have no names of their own and are taken in their order.
    """
    if len(others) != len(columns):
        raise LabelError(f"concept_val has {len(others)} columns and concept {len(columns)}; they must be the same.")
    if set(others) == set(columns):
        return {name: others[name] for name in columns}
    unnamed = (("concept_val", others), ("concept", columns))
    if not any(list(given) == list(numbered(name, len(given))) for name, given in unnamed):
        raise LabelError(
            f"concept_val has the columns {', '.join(others)} and concept {', '.join(columns)}; they must be the same."
        )
    return dict(zip(columns, others.values(), strict=True))


def _length(X: Array) -> int:
    """Rows of anything that has a shape or a length; what is neither is refused where rows are checked."""
    shape = getattr(X, "shape", None)
    return int(shape[0]) if shape else len(X) if hasattr(X, "__len__") else 0


def _tasks(name: str, values: Array, classes: tuple[Any, ...], missing: Any) -> list[_Task]:
    """The concept itself if it is binary, else each of its classes against the rest."""
    n_rows = len(values)
    label = class_label(values, name, n_rows, missing=missing, classes=classes)
    chosen = [1] if len(classes) == 2 else range(len(classes))
    tasks = []
    for code in chosen:
        # Two names that cannot be equal, whatever the classes are called, and neither the code for a missing one.
        task = np.where(label.codes == code, f"{classes[code]} ", "rest" if len(classes) > 2 else f"{classes[0]}")
        task = task.astype(object)
        task[~label.present] = None
        tasks.append(_Task(name, task, None if len(classes) == 2 else classes[code]))
    return tasks
