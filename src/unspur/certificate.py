"""Certificates: a fitted removal measured on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from unspur._arrays import renumbered
from unspur._reading import NUMBER, require_kinds
from unspur._text import MarkupTable, filled, lines_of, padded
from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.labels import ClassLabel, joint_label
from unspur.metrics import leakage
from unspur.metrics.leakage import Leakage, NumericLeakage, extreme_values_note
from unspur.metrics.probes import MIN_DEVIATION_SHARE, scale_notes
from unspur.subspace import AffineMap

#: How far a share may be outside [0, 1] as a sum of weights.
SHARE_TOL = 1e-9
USED_ROWS_HINT = "Were these rows, or copies of them, used to fit the removal?"
#: Share of a probe's gain over chance before the removal above which the gain after it counts as kept.
MIN_KEPT_GAIN_SHARE = 0.25
#: Share of rows in which two labels disagree, relative to independent labels, below which a note says so.
MAX_DISAGREEING_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Certificate:
    """Measurements of a removal; prints as a small table.

    Attributes
    ----------
    rows, removed, rank : rows it was measured on, directions taken out, rank of what is left.
    covariance_left : ``‖Cov(x', s)‖ / ‖Cov(x, s)‖`` for each concept; about ``1/√n`` is expected by chance.
    probe : for each concept, what a fresh linear classifier reads off the rows before and after; with a task also under
        weights that make the two independent ("task held fixed"), where the label of the task does not give it away
        (features that belong to the task still may).
    task : the same for the main label; None without one.
    task_alone : the task under weights that make it independent of all concepts, so that no concept helps; None where a
        combination has no rows.
    distortion : ``E‖x' − x‖² / E‖x − x̄‖²``.
    numbers : for each concept that is a number, how much of it a linear probe predicts before and after (R²).
    notes : what a reader should know, such as directions that a tolerance dropped, or that an assumption of the method
        does not hold; empty if nothing.
    """

    method: str
    rows: int
    removed: int
    rank: int
    covariance_left: dict[str, float]
    probe: dict[str, tuple[Leakage, Leakage]]
    task: tuple[Leakage, Leakage] | None
    distortion: float
    notes: tuple[str, ...]
    task_alone: tuple[Leakage, Leakage] | None = None
    numbers: dict[str, tuple[NumericLeakage, NumericLeakage]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {
            "method": self.method,
            "rows": self.rows,
            "removed": self.removed,
            "rank": self.rank,
            "covariance_left": self.covariance_left,
            "probe": {name: [_plain(part) for part in pair] for name, pair in self.probe.items()},
            "task": None if self.task is None else [_plain(part) for part in self.task],
            "task_alone": None if self.task_alone is None else [_plain(part) for part in self.task_alone],
            "numbers": {name: [part.to_dict() for part in pair] for name, pair in self.numbers.items()},
            "distortion": self.distortion,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Certificate:
        """Inverse of `to_dict`."""
        require_kinds(saved, _SAVED_CERTIFICATE_FIELDS, "the certificate")
        if min(saved["rows"], saved["removed"], saved["rank"]) < 0:
            raise ValueError("the certificate has a negative count")
        probe = {name: _before_and_after(pair) for name, pair in saved["probe"].items()}
        tasks = {
            name: None if saved.get(name) is None else _before_and_after(saved[name]) for name in ("task", "task_alone")
        }
        numbers = {name: (_numeric(pair[0]), _numeric(pair[1])) for name, pair in saved.get("numbers", {}).items()}
        return cls(**{**saved, "probe": probe, **tasks, "numbers": numbers, "notes": tuple(saved["notes"])})

    @property
    def _heading(self) -> str:
        taken = f"{self.removed} direction{'' if self.removed == 1 else 's'} removed"
        return f"{self.method}: {taken}, rank {self.rank} left, measured on {self.rows} rows"

    @property
    def _pairs(self) -> list[tuple[str, tuple[Leakage, Leakage]]]:
        """All probes of classes by name: of the concepts, then of the task."""
        task = _task_name(self.probe)
        tasks = [(task, self.task), (f"{task}, concept held fixed", self.task_alone)]
        return [*self.probe.items(), *((name, pair) for name, pair in tasks if pair is not None)]

    @property
    def _remarks(self) -> list[str]:
        """What is left, and the notes."""
        left = [f"covariance with {name} left: {100 * share:.1f} %" for name, share in self.covariance_left.items()]
        distortion = f"distortion: {100 * self.distortion:.1f} % of the variance"
        return [*left, distortion, *(f"note: {note}" for note in self.notes)]

    @property
    def _cells(self) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        """Lines of the tables of classes and of numbers: label, before, after, chance, interval after, p."""
        probes = [
            (
                name,
                *(f"{100 * value:.1f}" for value in (before.accuracy, after.accuracy, after.chance)),
                f"{100 * after.low:.1f} – {100 * after.high:.1f}",
                f"{after.p:.2g}",
            )
            for name, (before, after) in self._pairs
        ]
        numbers: list[tuple[str, ...]] = [
            (name, f"{was.r2:.3f}", f"{now.r2:.3f}", "0", f"{now.low:.3f} – {now.high:.3f}", f"{now.p:.2g}")
            for name, (was, now) in self.numbers.items()
        ]
        return probes, numbers

    @property
    def _interval(self) -> str:
        """Heading of the intervals."""
        levels = [now.level for _, (_, now) in self._pairs] + [now.level for _, now in self.numbers.values()]
        return f"after, {100 * max(levels, default=0.95):.3g} %"

    def _markup(self) -> list[MarkupTable]:
        """The tables of `__str__`, for notebooks and cards; the last one has the notes."""
        probes, numbers = self._cells
        head = ("label", "before", "after", "chance", self._interval, "p")
        tables = [MarkupTable(f"{self._heading}; balanced accuracy of a linear probe, %", head, tuple(probes))]
        if numbers:
            shown = tables if probes else []
            tables = [*shown, MarkupTable(f"{self._heading}; R² of a linear probe", head, tuple(numbers))]
        return [*tables[:-1], replace(tables[-1], notes=tuple(self._remarks))]

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self._markup())

    def __str__(self) -> str:
        lines, (probes, numbers) = [filled(self._heading, further="  ")], self._cells
        tables = [(probes, "chance", 15, "balanced accuracy of a linear probe, %")] if probes or not numbers else []
        tables += [(numbers, "none", 17, "R² of a linear probe on rows it was not trained on")] if numbers else []
        for cells, chance, width, title in tables:
            lines.append(title)
            head = [("", "before", "after", chance, self._interval, "p")] if cells else []
            for name, before, after, guess, bounds, p in [*head, *cells]:
                first, *others = lines_of(name, 29)
                lines.append(f"{padded(first, 30)}{before:>8}{after:>8}{guess:>8}{bounds:>{width}}{p:>9}")
                lines += [f"  {line}" for line in others]
        return "\n".join([*lines, *(filled(remark, further="  ") for remark in self._remarks)])

    __repr__ = __str__


def certify(
    method: str,
    removal: AffineMap,
    removed: int,
    z: Array,
    y: ClassLabel | None,
    concepts: Mapping[str, ClassLabel],
    targets: Mapping[str, FloatArray],
    notes: tuple[str, ...],
    random_state: Any,
    clusters: IntArray | None = None,
) -> Certificate:
    """Measure a removal on rows `z` (n, d).

    Parameters
    ----------
    concepts : class labels of those that are classes.
    targets : numeric columns (k, n) of every concept, by name: indicators of classes, or the number itself.
    clusters : shape (n,), of rows that are not independent.
    """
    scales = scale_notes(z)
    z = np.asarray(z, dtype=np.float64)  # measures the map, not its rounding in float32
    if np.all(z == z[0]):
        raise InputError("All rows are the same: nothing can be measured on them. Pass rows that differ.")
    clean = removal(z)
    if np.all(clean.std(axis=0) <= MIN_DEVIATION_SHARE[8] * z.std(axis=0)):
        clean[:] = clean.mean(axis=0)  # nothing is left but rounding errors, which probes would scale up

    def measure(concept: Any, **options: Any) -> tuple[Any, Any]:
        found = (leakage(rows, concept, random_state=random_state, clusters=clusters, **options) for rows in (z, clean))
        before, after = (replace(one, notes=()) for one in found)  # the certificate has them, once
        return before, after

    all_notes = list(notes)
    probe = _probe_labels(concepts, y, measure, all_notes)
    task, task_alone = None, _probe_task_alone(concepts, y, measure, all_notes)
    numbers = {name: columns[0] for name, columns in targets.items() if name not in concepts}
    measured = _probe_numbers(numbers, measure, all_notes)
    if y is not None:
        with _error_as_note(_task_name(concepts), all_notes):
            task = measure(y)
    erased = removed > 0 and removal.rank < len(removal.centre)  # not a part of it only
    task_removed = _task_removed_notes(task, task_alone)
    all_notes += task_removed
    all_notes += _broken_assumptions(concepts, y, probe if erased else {}, task_alone)
    if y is None and erased:
        all_notes += _still_readable(probe)
    if erased:
        all_notes += _notes_on_numbers(measured, None if task_removed else task)
    all_notes += [
        f"{name}: below chance after removal. {USED_ROWS_HINT}"
        for name, (_, after) in probe.items()
        if after.below_chance
    ]
    all_notes += scales
    centred = z - np.mean(z, axis=0, dtype=np.float64)
    change = clean - z
    return Certificate(
        method=method,
        rows=len(z),
        removed=removed,
        rank=removal.rank,
        covariance_left={
            name: _covariance_left(z, clean, columns)
            for name, columns in targets.items()
            if name in concepts or np.ptp(columns) > 0
        },
        probe=probe,
        task=task,
        distortion=float(np.sum(change**2, dtype=np.float64) / np.sum(centred**2, dtype=np.float64)),
        notes=tuple(all_notes),
        task_alone=task_alone,
        numbers=measured,
    )


def _task_name(concepts: Iterable[str]) -> str:
    """What the main label is called beside the concepts: "task", unless one of them is called that."""
    return next(name for name in ("task", "main label", "y", "main") if name not in concepts)


def _probe_labels(
    concepts: Mapping[str, ClassLabel], y: ClassLabel | None, measure: Callable[..., Any], notes: list[str]
) -> dict[str, tuple[Leakage, Leakage]]:
    """Probes of the concepts, also with the task held fixed; adds what could not be measured."""
    wanted: dict[str, tuple[ClassLabel, FloatArray | None]] = {}
    for name, labels in concepts.items():
        wanted[name] = (labels, None)
        if y is None:
            continue
        weight = _independence_weights(labels, y)
        if weight is None:
            notes.append(f"{name}, task held fixed: not measured, since some combinations have no rows")
        else:
            wanted[f"{name}, task held fixed"] = (labels, weight)
    probe: dict[str, tuple[Leakage, Leakage]] = {}
    for name, (labels, weight) in wanted.items():
        with _error_as_note(name, notes):  # a class too rare to be probed does not spoil the rest
            probe[name] = measure(labels, sample_weight=weight)
    return probe


def _probe_task_alone(
    concepts: Mapping[str, ClassLabel], y: ClassLabel | None, measure: Callable[..., Any], notes: list[str]
) -> tuple[Leakage, Leakage] | None:
    """Probes of the task with the concepts held fixed; None, and a note, if that could not be measured."""
    weight = None
    if y is not None and concepts:
        weight = _independence_weights(joint_label(list(concepts.values())), y)
    if weight is not None:
        with _error_as_note(f"{_task_name(concepts)}, concept held fixed", notes):
            found: tuple[Leakage, Leakage] = measure(y, sample_weight=weight)
            return found
    return None


def _probe_numbers(
    numbers: Mapping[str, FloatArray], measure: Callable[..., Any], notes: list[str]
) -> dict[str, tuple[NumericLeakage, NumericLeakage]]:
    """Probes of the concepts that are numbers; adds what could not be measured, and what makes it uncertain."""
    measured: dict[str, tuple[NumericLeakage, NumericLeakage]] = {}
    for name, values in numbers.items():
        with _error_as_note(name, notes):
            measured[name] = measure(values, concept_type="continuous")
    for name, (was, _) in measured.items():
        if outside := extreme_values_note(numbers[name], name):
            notes.append(f"of the rows measured: {outside}")
        if was.low <= 0:
            notes.append(
                f"{name}: not predictable before the removal either (R² {was.r2:.3f}), so this is no evidence about "
                "the removal"
            )
    return measured


@contextmanager
def _error_as_note(name: str, notes: list[str]) -> Iterator[None]:
    """Turn an InputError of a measurement into a note."""
    try:
        yield
    except InputError as error:
        notes.append(f"{name}: not measured. {error}")


def _task_removed_notes(task: tuple[Leakage, Leakage] | None, alone: tuple[Leakage, Leakage] | None) -> list[str]:
    """A note if the task fell to chance or nearly so; it is gone if the interval ends below half of what was there.

    If concept and task are correlated, much of what predicted the task was the concept, and the task gets worse without
    being removed. So it is gone only if it is as well where it is predicted `alone`, with the concept held fixed.
    """
    if task is None or task[0].low <= task[0].chance:
        return []
    if alone is not None and alone[1].low > alone[1].chance:
        return []
    before, after = task
    at_chance = after.low <= after.chance
    lost = alone is None or _is_lost(*alone)
    if not at_chance and (not lost or _gain(after) > MIN_KEPT_GAIN_SHARE * _gain(before)):
        return []
    figures = (
        f"a probe predicts it with {100 * before.accuracy:.1f} % before and {100 * after.accuracy:.1f} % after, where "
        f"chance is {100 * after.chance:.1f}"
    )
    if at_chance and (not lost or after.high - after.chance > 0.5 * _gain(before)):
        return [
            f"the task cannot be distinguished from chance on these rows: {figures} (95 %: up to "
            f"{100 * after.high:.1f}). Measure on more rows to tell whether the task was removed"
        ]
    verdict = "gone" if at_chance else "nearly gone"
    return [f"the task is {verdict}: {figures}. The removed directions carried most of the information about the task"]


def _is_lost(before: Leakage, after: Leakage) -> bool:
    """Whether a label was predicted before, and the little that is left of it is clearly less."""
    predicted = before.low > before.chance
    return predicted and after.high < before.accuracy and _gain(after) <= MIN_KEPT_GAIN_SHARE * _gain(before)


def _gain(probe: Leakage) -> float:
    return probe.accuracy - probe.chance


def _broken_assumptions(
    concepts: Mapping[str, ClassLabel],
    y: ClassLabel | None,
    probe: Mapping[str, tuple[Leakage, Leakage]],
    task_alone: tuple[Leakage, Leakage] | None,
) -> list[str]:
    """Notes if the measurements contradict that concept and task are different labels in different directions.

    `probe` is empty if nothing was removed, or a part only.
    """
    notes = []
    for name, labels in concepts.items():
        if y is not None and (apart := _disagreeing_rows(labels, y)) is not None:
            notes.append(
                f"{name} and the task are nearly the same label: they differ in only {apart:,} of {len(y.codes):,} "
                "rows, so every conclusion here rests on those rows"
            )
        held_fixed = probe.get(f"{name}, task held fixed")
        if held_fixed is not None:
            before, after = held_fixed
            if after.low - after.chance > MIN_KEPT_GAIN_SHARE * max(0.0, before.accuracy - before.chance):
                notes.append(
                    f"{name} can still be predicted after the removal: {100 * after.accuracy:.1f} % where chance is "
                    f"{100 * after.chance:.1f}, with the task held fixed. This happens when concept and task overlap, "
                    "are not orthogonal, or have correlated features"
                )
    if task_alone is not None and task_alone[1].high < task_alone[0].low:
        then, now = (f"{100 * part.accuracy:.1f}" for part in task_alone)
        notes.append(
            f"the task got worse: a probe predicts it with {then} % before and {now} % after, with the concept held "
            "fixed. This happens when concept and task overlap, are not orthogonal, or have correlated features"
        )
    return notes


def _still_readable(probe: Mapping[str, tuple[Leakage, Leakage]]) -> list[str]:
    """Notes on classes that are still predicted, where no task was passed that could be held fixed."""
    return [
        f"{name} can still be predicted after the removal: {100 * after.accuracy:.1f} % where chance is "
        f"{100 * after.chance:.1f}. Pass y to tell whether the task, with which it may be correlated, reveals it"
        for name, (before, after) in probe.items()
        if after.low - after.chance > MIN_KEPT_GAIN_SHARE * max(0.0, before.accuracy - before.chance)
    ]


def _notes_on_numbers(
    numbers: Mapping[str, tuple[NumericLeakage, NumericLeakage]], task: tuple[Leakage, Leakage] | None
) -> list[str]:
    """Notes on numbers that are still predicted, and on a task that got worse; neither is held fixed."""
    notes = [
        f"{name} can still be predicted after the removal: R² {after.r2:.3f}. A task that is correlated with it may "
        "reveal it"
        for name, (before, after) in numbers.items()
        if after.low > MIN_KEPT_GAIN_SHARE * max(0.0, before.r2)
    ]
    if numbers and task is not None and task[1].high < task[0].low:
        then, now = (f"{100 * part.accuracy:.1f}" for part in task)
        notes.append(
            f"the task got worse: a probe predicts it with {then} % before and {now} % after. If it is correlated with "
            "the concept, part of what predicted it was the concept"
        )
    return notes


def _disagreeing_rows(label: ClassLabel, y: ClassLabel) -> int | None:
    """Number of rows in which two binary labels disagree, up to renaming, if it is small; else None.

    Independent labels disagree in about twice as many rows as the rarest class has, or more.
    """
    codes = renumbered(label.codes), renumbered(y.codes)
    counts = [np.bincount(code) for code in codes]
    if any(len(count) != 2 for count in counts):
        return None
    same = int(np.sum(codes[0] == codes[1]))
    apart = min(same, len(codes[0]) - same)
    return apart if apart < MAX_DISAGREEING_SHARE * 2 * min(count.min() for count in counts) else None


def _independence_weights(label: ClassLabel, y: ClassLabel) -> FloatArray | None:
    """Sample weights that make label and task independent, equal for all combinations; None if one has no rows."""
    codes = renumbered(label.codes), renumbered(y.codes)
    group = codes[0] * (codes[1].max() + 1) + codes[1]
    counts = np.bincount(group, minlength=(codes[0].max() + 1) * (codes[1].max() + 1))
    return None if counts.min() == 0 else np.asarray(1.0 / counts[group])


def _covariance_left(before: Array, after: Array, columns: FloatArray) -> float:
    """Share of the covariance with some columns (k, n) that is left."""
    columns = columns / (np.abs(columns).max(initial=0.0) or 1.0)  # squares neither overflow nor vanish
    centred = columns - columns.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred @ before)
    return float(np.linalg.norm(centred @ after) / length) if length > 0 else 0.0


def _plain(part: Leakage) -> dict[str, Any]:
    return {**part.to_dict(), "classes": [str(value) for value in part.classes]}


_SAVED_LEAKAGE = {
    **dict.fromkeys(("accuracy", "chance", "low", "high", "p", "loss", "chance_loss", "level"), NUMBER),
    "recall": [NUMBER],
    "classes": [str],
    "rows": int,
    "probe": str,
}
_SAVED_NUMERIC = {**dict.fromkeys(("r2", "low", "high", "p", "level"), NUMBER), "rows": int, "notes": [str]}
_SAVED_CERTIFICATE_FIELDS = {
    "method": str,
    "rows": int,
    "removed": int,
    "rank": int,
    "covariance_left": {...: NUMBER},
    "distortion": NUMBER,
    "probe": {...: list},
    "task": (list, type(None)),
    "notes": [str],
}


def _before_and_after(saved: Any) -> tuple[Leakage, Leakage]:
    require_kinds(saved, [dict], "a probe of the certificate")
    if len(saved) != 2:
        raise ValueError(f"a probe of the certificate has {len(saved)} parts, and not those before and after")
    return _leakage(saved[0]), _leakage(saved[1])


def _leakage(saved: dict[str, Any]) -> Leakage:
    require_kinds(saved, _SAVED_LEAKAGE, "a probe of the certificate")
    shares = (saved[name] for name in ("accuracy", "chance", "low", "high", "p"))
    if saved["rows"] < 0 or not all(-SHARE_TOL <= share <= 1.0 + SHARE_TOL for share in shares):
        raise ValueError("a probe of the certificate has a negative count, or a share that is not between 0 and 1")
    require_kinds(saved.get("notes", []), [str], "the notes of a probe of the certificate")
    known = {
        "recall": tuple(saved["recall"]),
        "classes": tuple(saved["classes"]),
        "notes": tuple(saved.get("notes", ())),
    }
    return Leakage(**{**saved, **known})


def _numeric(saved: dict[str, Any]) -> NumericLeakage:
    require_kinds(saved, _SAVED_NUMERIC, "a numeric concept of the certificate")
    return NumericLeakage.from_dict(saved)
