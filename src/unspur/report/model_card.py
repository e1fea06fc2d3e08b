"""A removal card: the section of a model card that says what was removed, from what, and how well.

Nothing is measured here. A card has what the model, a certificate and accuracies by group already say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from unspur._text import MarkupTable, in_markdown
from unspur._version import __version__
from unspur.certificate import Certificate
from unspur.metrics import GroupAccuracy
from unspur.removers import Remover
from unspur.report.measuring import changed_parameters, fitted_remover
from unspur.report.page.formatting import CAVEAT, join_with_and, plural
from unspur.robust import RobustClassifier
from unspur.trace import MAX_SUMMARY_STEPS, Trace, Traces, parts_of

#: Classes of a label that are named; the others are counted.
MAX_CLASSES_NAMED = 10


def card(
    model: Remover | RobustClassifier,
    *,
    certificate: Certificate | None = None,
    accuracy: GroupAccuracy | None = None,
    title: str = "",
) -> str:
    """A Markdown section for a model card: what was removed, intended use, limits, provenance, tests and measurements.

    Parameters
    ----------
    model : a fitted remover or `RobustClassifier`.
    certificate : measurements of the removal on rows that it was not fitted on; by default those that the model keeps,
        if `certificate` was called before.
    accuracy : accuracy by group of the classifier on such rows, as `unspur.metrics.group_accuracy` returns.
    title : heading of the section.

    Returns
    -------
    Text that begins with a heading of the second level. Names of labels and classes are escaped.

    Examples
    --------
    >>> from unspur import RobustClassifier
    >>> from unspur.datasets import make_toy
    >>> from unspur.metrics import group_accuracy
    >>> from unspur.report import card
    >>> train, test = (make_toy(1000, rho=rho, random_state=k) for k, rho in enumerate((0.8, 0.0)))
    >>> model = RobustClassifier(random_state=0).fit(train.Z, {"bird": train.y}, concept={"background": train.concept})
    >>> text = card(
    ...     model,
    ...     certificate=model.certificate(test.Z, test.y, {"background": test.concept}),
    ...     accuracy=group_accuracy(test.y, model.predict(test.Z), test.concept),
    ... )
    >>> print(text.splitlines()[0])
    ## Removal of background
    """
    remover = fitted_remover(model)
    if certificate is None:
        certificate = getattr(remover, "certificate_", None)
    concepts, task = _names(remover, certificate)
    parts = [
        f"## {in_markdown(title) if title else f'Removal of {_listed(concepts)}'}",
        _what(model, remover, _listed(concepts), task),
        "### Intended use",
        _bullets(_use(model, remover, concepts)),
        "### Limits",
        _bullets(_limits(model, remover, certificate, accuracy)),
        "### Provenance",
        _provenance(model, remover).markdown(),
        "### Tests",
        _tests(remover),
    ]
    if certificate is not None:
        parts += ["### Certificate", *(table.markdown() for table in certificate._markup())]
    if accuracy is not None:
        parts += ["### Accuracy by group", replace(accuracy._markup(), caption="").markdown()]
    return "\n\n".join(parts) + "\n"


def _names(remover: Remover, certificate: Certificate | None) -> tuple[list[str], str]:
    """Names of the concepts and of the task, as far as the model or its certificate has them."""
    trace = remover.trace_
    traces = list(parts_of(trace).values())
    names = list(certificate.covariance_left) if certificate is not None else []
    names = list(dict.fromkeys(one.concept for one in traces)) or names
    task = traces[0].main if traces else "y"
    return [] if names == ["concept"] else names, "the task" if task == "y" else in_markdown(task)


def _listed(concepts: Sequence[str]) -> str:
    return in_markdown(join_with_and(concepts)) if concepts else "the concept"


def _what(model: Any, remover: Remover, about: str, task: str) -> str:
    """What the model does to rows."""
    rows = f"embeddings of {plural(remover.removal_.ambient, 'feature')}"
    said = [f"A map of {rows}, by {_kind(remover)}."]
    if isinstance(model, RobustClassifier):
        said = [f"A linear classifier of {rows}, after a removal by {_kind(remover)}."]
    found = plural(remover.spurious_.dim, "direction")
    if remover.n_removed_:
        said.append(f"It removes {found} for {about}.")
    else:
        reason = "its strength is 0" if remover.spurious_.dim else remover.trace_.stopped
        said.append(f"**Nothing was removed** for {about}, and rows are not changed: {in_markdown(reason)}.")
    if remover.removal_.form == "keep":
        said[-1] = f"It keeps {plural(remover.main_.dim, 'direction')} of {task} and removes all others."
    if remover.n_removed_ and remover.strength_ < 1:
        said.append(f"It does so with a **strength of {remover.strength_:g}**: a part of each direction is left.")
    if remover.main_.dim and remover.removal_.form != "keep":
        said.append(f"What it found of {task}, {plural(remover.main_.dim, 'direction')}, stays.")
    return " ".join(said)


def _kind(estimator: Any) -> str:
    return in_markdown(type(estimator).__name__)


def _use(model: Any, remover: Remover, concepts: Sequence[str]) -> Iterable[str]:
    encoding = getattr(remover, "encoding_", None)
    by = f" (encoder {in_markdown(encoding['encoder'])})" if encoding else ""
    yield f"On rows made in the same way as the training rows{by}, with the same columns in the same order."
    if isinstance(model, RobustClassifier):
        yield f"To predict {_classes(model.classes_.tolist())} where {_listed(concepts)} should not count."
    else:
        yield "Before a linear classifier that is trained on rows after the removal. Rows keep their width."
    known = remover.concept_classes_
    several = known if known and isinstance(known[0], tuple) else (known,)
    names = concepts if len(concepts) == len(several) else [""] * len(several)
    for name, classes in zip(names, several, strict=True):
        if classes:
            yield f"The concept{in_markdown(f' {name}') if name else ''} was labelled as {_classes(classes)}."


def _classes(values: Sequence[Any]) -> str:
    names = [in_markdown(str(value)) for value in values[:MAX_CLASSES_NAMED]]
    more = len(values) - len(names)
    return join_with_and([*names, f"{more} more"] if more else names)


def _limits(
    model: Any, remover: Remover, certificate: Certificate | None, accuracy: GroupAccuracy | None
) -> Iterable[str]:
    yield CAVEAT
    yield "Only what the labels of the concept show is removed; a wrong or coarse label leaves the rest."
    if remover.n_removed_ and remover.strength_ < 1:
        yield "Below strength 1 the map can be inverted: a linear classifier without a penalty may find the concept."
    for name in ("search_limit_warning", "task_removed_warning", "reused_rows_warning"):
        if said := getattr(remover, name, ""):
            yield in_markdown(said)
    if certificate is None:
        yield "There is no certificate: the removal was not measured on rows that it was not fitted on."
    if accuracy is None and isinstance(model, RobustClassifier):
        yield "Accuracy by group was not measured."
    elif isinstance(model, RobustClassifier):
        yield "Accuracies hold for rows like those measured, and are too high if some of these were used in the fit."


def _provenance(model: Any, remover: Remover) -> MarkupTable:
    """Where the model comes from: method, version, parameters, training rows, encoder."""
    lines = [
        ("method", type(remover).__name__),
        ("written by", f"unspur {remover.__dict__.get('_saved_by', __version__)}"),
        ("parameters", _parameters(remover)),
        ("features", f"{remover.removal_.ambient:,}"),
        ("fingerprint of the training rows", str(remover.training_hash_)),
    ]
    if encoding := getattr(remover, "encoding_", None):
        lines.append(("encoder", f"{encoding['encoder']}, digest {encoding['digest']}"))
        if encoding["reduction"] is not None:
            lines.append(("principal components", f"digest {encoding['reduction']}"))
    if isinstance(model, RobustClassifier):
        chosen = model.selection_
        lines += [
            ("head", type(model.head_).__name__),
            ("parameters of the head", _parameters(model.head_)),
            ("penalty of the head", f"{chosen.penalty:g}, of {len(chosen.results)} tried on held-out rows"),
        ]
        lines += [("note", note) for note in model.notes_]
    return MarkupTable("", ("what", "value"), tuple(lines))


def _parameters(estimator: Any) -> str:
    """Those that differ from the defaults."""
    changed = changed_parameters(estimator)
    return ", ".join(f"{name}={value!r}" for name, value in changed.items()) or "all at their defaults"


def _tests(remover: Remover) -> str:
    """Tests of the directions as tables, or the summary of a fit with many, or without tests."""
    trace = remover.trace_
    if isinstance(trace, Trace | Traces) and len(trace) <= MAX_SUMMARY_STEPS:
        return "\n\n".join(part._markup().markdown() for part in parts_of(trace).values())
    text = trace.summary() if isinstance(trace, Trace | Traces) else str(trace)
    return "\n".join(f"    {line}" for line in text.splitlines())  # a block of code, which no name can end


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
