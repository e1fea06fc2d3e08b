"""Measure everything that a page or a figure shows of a fitted removal.

`baselines` has the heads and the other methods, `views` the directions and the pictures.
"""

from __future__ import annotations

import copy
import platform
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.utils.validation import check_is_fitted

from unspur._arrays import to_python
from unspur._data import LabelledData, decode_rows, require_same_features
from unspur._resources import one_thread_if_small
from unspur._typing import Array
from unspur._version import __version__
from unspur.auditing import Audit, audit
from unspur.certificate import Certificate
from unspur.clusters import fingerprint
from unspur.compare import probe_concepts, probed_rows, shared_rows, stratified_sample
from unspur.exceptions import GroupSizeError, InputError, UsedRowsWarning
from unspur.labels import numbered
from unspur.metrics import principal_angles
from unspur.metrics.probes import scale_notes
from unspur.removers import Remover
from unspur.removers.seen_rows import rounded_hashes
from unspur.report.baselines import (
    Evaluator,
    compare_with,
    evaluate_removal,
    methods_to_compare,
    transform_splits,
)
from unspur.report.results import Findings, MethodResult, Origin
from unspur.report.views import (
    angles_and_shared_variance,
    content_of,
    directions_of,
    extremes_of,
    score_directions,
    view_of,
)
from unspur.robust import RobustClassifier
from unspur.subspace import AffineMap, Subspace
from unspur.trace import Trace, Traces, parts_of

#: Groups with fewer test rows are named in a warning.
SMALL_GROUP_ROWS = 10
#: Number of steps that `callback` is called with, besides one for each method compared.
N_STEPS = 3
#: Most training rows of an audit of other columns, and most columns that are probed for it.
MAX_AUDIT_ROWS, MAX_AUDIT_PROBES = 2000, 10
#: Parameters that do not change the result.
SILENT_PARAMETERS = ("verbose",)


def measure(
    remover: Remover | RobustClassifier,
    train: Any,
    test: Any,
    *,
    validation: Any = None,
    main: str = "main",
    concept: str | Sequence[str] = "concept",
    compare: Sequence[str] = (),
    pictures: Any = None,
    texts: Any = None,
    ids: Sequence[str] | None = None,
    row_numbers: tuple[str, Sequence[int]] | None = None,
    max_points: int = 5000,
    seed: int = 0,
    command: str = "",
    saved_path: str | None = None,
    notes: Sequence[str] | None = None,
    cli_source: str | None = None,
    columns: Mapping[str, Array] | None = None,
    callback: Callable[[str], object] = lambda name: None,  # noqa: ARG005
) -> Findings:
    """Measure what a fitted removal does.

    The same arguments give the same findings, and no argument is changed.

    Parameters
    ----------
    remover : a fitted remover of this package, or a `RobustClassifier`, whose removal is then measured.
    train, test, validation : tuples (X, y, concept) of arrays, DataFrames or tensors; with clusters a fourth.
        Heads, and methods that the removal is compared with, are trained on `train`, and chosen on `validation`
        or, without it, on a fifth of each group of `train`. Everything is measured on `test`, which the removal should
        not have seen. `y` and `concept` have two or more classes. Several concepts are a mapping from names to labels,
        a DataFrame, or an array (n, m). Rows whose concept is missing train unweighted heads and are drawn, but belong
        to no group.
    main, concept : names of the labels; for an array (n, m), as many names as columns.
    compare : names of other removers and heads, of `compare.REMOVERS` and `HEADS`.
    pictures, texts : the pictures or texts that the test rows are embeddings of. Pictures are an array (n, h, w) or
        (n, h, w, 3), paths, PIL images or `Examples`; texts are strings, or pairs of them.
    ids : names of the test rows.
    row_numbers : the file of the test rows and their indices in it, from which rows without names get a number. The
        page counts from 1.
    max_points : largest number of test rows that are drawn, a share of each group.
    command, saved_path : for the page: the command that was typed, and the file that holds the removal.
    cli_source : file and options that describe these rows to other commands, which the page suggests; "" if no file has
        them.
    columns : other columns of the training rows, by name. With some, all columns and the concepts are audited
        (`unspur.audit`) on up to 2,000 training rows.
    notes : warnings about the rows; by default, about columns that dominate the others.
    callback : called with the name of each step (`N_STEPS`, and one for each method compared).
    """
    remover = fitted_remover(remover)
    if max_points < 1:
        raise InputError(f"max_points, the number of test rows to draw, must be at least 1; got {max_points}.")
    methods = methods_to_compare(compare, remover)
    rows = _rows(remover, train, test, validation, (main, concept))
    training, testing = rows["training"], rows["test"]
    fitted_rows = _fitted_rows(remover, training)
    notes = [*scale_notes(training.X)] if notes is None else [note[:1].upper() + note[1:] for note in notes]
    content = content_of(pictures, texts, len(testing))
    names, numbered_in_file = _ids(ids, content, len(testing), row_numbers)
    drawing = np.random.default_rng(seed).spawn(1)[0]  # the second is that of `probed_rows`
    with one_thread_if_small(training.X):
        callback("heads")
        clean = transform_splits(remover, rows)
        evaluate = Evaluator.of(rows, seed)
        removal = evaluate_removal(evaluate, remover, clean)
        before, after = removal.before, removal.after
        callback("probes")
        probed = probed_rows(testing, seed)
        sample = testing.select(probed)
        certificate, remarks, used = _certificate(remover, sample, main, seed)
        linear = [
            {name: certificate.probe[name][k] for name in sample.concept_names if name in certificate.probe}
            for k in range(2)
        ]
        results = [replace(result, leakage=of) for result, of in zip(removal.results, linear, strict=True)]
        nonlinear_before, _ = probe_concepts(sample.X, sample, "mlp", seed)
        nonlinear, problems = probe_concepts(clean["test"][probed], sample, "mlp", seed)
        for name in methods:
            callback(name)
            results.append(compare_with(name, evaluate, removal, probed))
        callback("directions")
        heads = before.head, after.head
        directions = directions_of(remover, (_spurious_names(remover, testing), main), heads, testing.X)
        view = view_of(directions, remover, testing.X, clean["test"], heads)
        angles, shared_variance = angles_and_shared_variance(score_directions(remover), remover.main_.basis, testing.X)
    options = [word for name in testing.concept_names for word in ("--concept", name)]
    return Findings(
        main=main,
        concepts=testing.concept_names,
        classes=testing.main.classes,
        train_rows=len(training) if fitted_rows is None else fitted_rows,
        results=tuple(results),
        group=testing.group,
        groups=tuple(before.accuracy.labels()),
        ids=names,
        correct_before=before.correct,
        correct_after=after.correct,
        view=view,
        drawn_rows=stratified_sample(testing.group, max_points, drawing),
        angles=angles,
        shared_variance=shared_variance,
        certificate=certificate,
        nonlinear=nonlinear,
        nonlinear_before=nonlinear_before,
        extremes=extremes_of(directions, view.before),
        content=content,
        origin=origin_of(remover, rows, command=command, remarks=(*remarks, *problems)),
        warnings=tuple(dict.fromkeys((*_warnings(remover, rows, results, used), *notes))),
        selection_notes=removal.selection_notes,
        cli_source=shlex.join(["FILE", "--task", main, *options]) if cli_source is None else cli_source,
        next_command=_next_command(remover, command, saved_path),
        fitted_on_these=fitted_rows is not None,
        numbered_in_file=numbered_in_file,
        oblique_angle=_oblique_angle(remover.removal_),
        strength=remover.strength_,
        audit=_audit(training, columns, seed) if columns else None,
        **_of_the_fit(remover, testing, main),
    )


def _fitted_rows(remover: Remover, rows: LabelledData) -> int | None:
    """Number of these rows that a removal was fitted on; None if it was fitted on others, or if that cannot be told."""
    known = rows.concept_known
    if fingerprint(rounded_hashes(rows.X)) == remover.training_hash_:
        # A fit of several concepts may have used rows that lack one of them, or not: that is not recorded.
        certain = np.array_equal(known, np.any([label.present for label in rows.concepts], axis=0))
        return int(known.sum()) if certain else None
    return int(known.sum()) if fingerprint(rounded_hashes(rows.X[known])) == remover.training_hash_ else None


def _audit(rows: LabelledData, columns: Mapping[str, Array], seed: int) -> Audit | None:
    """An audit of the concepts and of other columns, on a few rows; None if a class has too few."""
    given = {**{label.name: label.values for label in rows.concepts}, **columns}
    try:
        return audit(
            rows.X,
            rows.main,
            given,
            clusters=rows.clusters,
            max_rows=MAX_AUDIT_ROWS,
            max_probes=MAX_AUDIT_PROBES,
            random_state=seed,
        )
    except GroupSizeError:
        return None


def _oblique_angle(removal: AffineMap) -> float:
    """Largest angle in degrees between the directions that a map reads and those that it subtracts."""
    if not removal.right.shape[1]:
        return 0.0
    return float(principal_angles(*(Subspace.spanned_by(factor) for factor in (removal.right, removal.left))).max())


def _of_the_fit(remover: Remover, rows: LabelledData, main: str) -> dict[str, Any]:
    """Fields of `Findings` that come from the removal alone."""
    trace = remover.trace_
    traces: Mapping[str, Trace] = {}
    if isinstance(trace, Trace | Traces):
        trace = renamed(trace, rows, main)
        traces = parts_of(trace)
    return {
        "method": type(remover).__name__,
        "n_removed": remover.n_removed_,
        "n_main": remover.main_.dim,
        "n_features": remover.removal_.ambient,
        "traces": traces,
        "significance_level": float(getattr(remover, "significance_level", 0.05)),
        "trace_text": "" if traces else str(trace),
    }


def _spurious_names(remover: Remover, rows: LabelledData) -> list[str]:
    """Names of the spurious directions, after the concept or class that each was found for where that is known."""
    trace, k = remover.trace_, remover.spurious_.dim
    together = " and ".join(rows.concept_names)
    if isinstance(trace, Traces):
        # Concepts are removed in turn, so accepted directions are in the order of the parts unless some were dropped.
        found: dict[str, int] = {}
        for part in renamed(trace, rows, "").parts.values():  # type: ignore[union-attr]
            accepted = sum(step.verdict.proper and step.verdict.role == "spurious" for step in part)
            found[part.concept_name] = found.get(part.concept_name, 0) + accepted
        if sum(found.values()) == k:
            return [f"{name} {i + 1}" for name, count in found.items() for i in range(count)]
    return [f"{together} {i + 1}" for i in range(k)]


def fitted_remover(remover: Any) -> Remover:
    """The remover itself, or that of a `RobustClassifier`."""
    if isinstance(remover, RobustClassifier):
        check_is_fitted(remover, "coef_")
        remover = remover.remover_
    if not isinstance(remover, Remover):
        inside = (
            " Pass the remover step of the pipeline, and the rows as transformed by the steps before it."
            if hasattr(remover, "steps")
            else ""
        )
        raise InputError(f"A report is about a fitted remover; got a {type(remover).__name__}.{inside}")
    check_is_fitted(remover, "removal_")
    return remover


def _rows(
    remover: Remover, train: Any, test: Any, validation: Any, names: tuple[str, str | Sequence[str]]
) -> dict[str, LabelledData]:
    """Training, test and validation rows, checked against each other and against the removal."""
    missing = getattr(remover, "missing_concept", None)
    require_same_features({"training": train, "test": test, "validation": validation}, remover)
    found = {"training": decode_rows(train, "training", names, missing=missing)}
    width = found["training"].X.shape[1]
    if width != remover.removal_.ambient:
        raise InputError(f"The removal was fitted on {remover.removal_.ambient} features; the rows have {width}.")
    for name, part in (("test", test), ("validation", validation)):
        if part is not None:
            found[name] = decode_rows(part, name, names, missing=missing, like=found["training"])
    for label in found["test"].concepts:
        if len(seen := label.occurring_classes) == 1:
            raise InputError(
                f"All test rows have the same {label.name} ({seen[0]!s:.60}); groups and probes need two values at "
                "least. Pass other test rows."
            )
    return found


def _next_command(remover: Remover, command: str, saved_path: str | None) -> str:
    """A command that applies a removal that was saved, or saves it."""
    if saved_path is not None:
        return shlex.join(["unspur", "apply", saved_path, "FILE", "--output", "clean.npz"])
    if command.startswith("unspur report "):
        return f"{command} --save removal.safetensors --force"
    return f'{type(remover).__name__.lower()}.save("removal.safetensors")'


def _ids(
    ids: Sequence[str] | None, content: Any, n: int, row_numbers: tuple[str, Sequence[int]] | None
) -> tuple[tuple[str, ...], str]:
    """Names of the test rows: those given, those that the pictures have, or their numbers; and the file of numbers."""
    given = ids if ids is not None else getattr(content, "ids", None)
    file = ""
    if given is None:
        file, numbers = ("", range(n)) if row_numbers is None else row_numbers
        given = [f"row {number + 1}" if file else str(number) for number in numbers]
    if len(given) != n:
        raise InputError(f"There are {len(given)} ids for {n} test rows; each row needs one.")
    return tuple(map(str, given)), file


def _warnings(
    remover: Remover, rows: Mapping[str, LabelledData], results: Sequence[MethodResult], used: str
) -> tuple[str, ...]:
    """Warnings for the top of the page, the most serious first."""
    found = []
    if not remover.n_removed_:
        found.append("Nothing was removed; the rows are unchanged.")
    warned = ("search_limit_warning", "task_removed_warning", "reused_rows_warning")
    found += [str(said) for name in warned if (said := getattr(remover, name, ""))]
    before, after = results[0].accuracy, results[1].accuracy
    assert before is not None
    assert after is not None
    change = results[1].worst_change
    if change is not None and change.high < 0.0:
        found.append(
            f"Worst-group accuracy fell from {100 * before.worst:.1f} % to {100 * after.worst:.1f} %; the removal "
            "hurts this task."
        )
    validation = rows["validation"].X if "validation" in rows else None
    shared = shared_rows(rows["training"].X, rows["test"].X, validation)
    if used:
        shared["test", "training"] = used  # more precise
    found += shared.values()
    small = [
        f"{label} ({count})"
        for label, count in zip(after.labels(), after.rows.ravel().tolist(), strict=True)
        if count < SMALL_GROUP_ROWS
    ]
    if small:
        named = "; ".join(small[:4]) + (f"; and {len(small) - 4} more" if len(small) > 4 else "")
        found.append(f"Groups with fewer than {SMALL_GROUP_ROWS} test rows, whose accuracy is uncertain: {named}.")
    return tuple(found)


def _certificate(remover: Remover, rows: LabelledData, main: str, seed: int) -> tuple[Certificate, list[str], str]:
    """The certificate on these rows, remarks about it, and a sentence about those that were used in the fit, or ""."""
    measured = copy.copy(remover)  # a certificate becomes an attribute, and the user's remover must not change
    measured.__dict__.pop("feature_names_in_", None)  # rows are an array here, and names were compared before
    if "concept_type" in measured.get_params():
        measured.set_params(concept_type="class")  # here concepts are classes, whatever they were in the fit
    remarks: list[str] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", UsedRowsWarning)
        given = {**rows.arguments(duplicate_clusters=False), "random_state": seed}
        try:
            certificate = measured.certificate(**given)
        except InputError as error:  # all test rows are of one class
            certificate = measured.certificate(**{**given, "y": None})
            remarks.append(f"{main}: not probed. {error}")
    task, notes = "task: not measured.", certificate.notes
    remarks += [f"{main}: not probed.{note.removeprefix(task)}" for note in notes if note.startswith(task)]
    certificate = replace(certificate, notes=tuple(note for note in notes if not note.startswith(task)))
    used = [str(warning.message) for warning in heard if issubclass(warning.category, UsedRowsWarning)]
    return certificate, remarks, used[0] if used else ""


def renamed(trace: Trace | Traces, rows: LabelledData, main: str) -> Trace | Traces:
    """The trace of a fit with the names of the labels in place of "concept[0]" and the like."""
    names = rows.concept_names
    return trace.renamed(main, dict(zip(numbered("concept", len(names)), names, strict=True)))


def origin_of(
    remover: Remover,
    rows: Mapping[str, LabelledData],
    *,
    command: str,
    remarks: tuple[str, ...],
) -> Origin:
    """How to reproduce the findings from `rows`, splits by name."""
    given = remover.get_params(deep=False)
    digests = {"rows of the fit": str(remover.training_hash_)}
    digests |= {f"{name} rows": fingerprint(rounded_hashes(part.X)) for name, part in rows.items()}
    return Origin(
        parameters={name: _json_value(value) for name, value in sorted(given.items()) if name not in SILENT_PARAMETERS},
        versions={
            "unspur": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
        },
        digests=digests,
        command=command,
        remarks=remarks,
    )


def _json_value(value: Any) -> Any:
    """A parameter as a plain number or word; anything else as its type, since its text may hold an address."""
    value = to_python(value)
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__
