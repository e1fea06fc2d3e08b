"""Certificates: a fitted removal measured on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any

import numpy as np

from unspur._arrays import renumbered
from unspur._text import brief, counted, filled
from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError
from unspur.labels import ClassLabel, joint_label
from unspur.metrics import leakage
from unspur.metrics.leakage import Leakage, NumericLeakage
from unspur.metrics.probes import MIN_DEVIATION_SHARE, scale_notes
from unspur.subspace import AffineMap

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
    task : the same for the task; None without one.
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
        saved = {one.name: getattr(self, one.name) for one in fields(self)}
        pairs = {name: [_plain(part) for part in pair] for name, pair in self.probe.items()}
        numbers = {name: [part.to_dict() for part in pair] for name, pair in self.numbers.items()}
        tasks = {
            name: None if saved[name] is None else [_plain(part) for part in saved[name]]
            for name in ("task", "task_alone")
        }
        return {**saved, "probe": pairs, **tasks, "numbers": numbers, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Certificate:
        """Inverse of `to_dict`."""

        def pair(kind: Any, parts: Any) -> Any:
            return None if parts is None else tuple(map(kind.from_dict, parts))

        probe = {name: pair(Leakage, parts) for name, parts in saved["probe"].items()}
        numbers = {name: pair(NumericLeakage, parts) for name, parts in saved["numbers"].items()}
        tasks = {name: pair(Leakage, saved[name]) for name in ("task", "task_alone")}
        return cls(**{**saved, "probe": probe, **tasks, "numbers": numbers, "notes": tuple(saved["notes"])})

    def to_frame(self) -> Any:
        """A pandas DataFrame with one line for each label that was probed.

        Its columns are the accuracy (R² of numbers) before and after, that of guessing, and the interval and p-value of
        the one after.
        """
        import pandas as pd

        task = _task_name(self.probe)
        tasks = {task: self.task, f"{task}, concept held fixed": self.task_alone}
        lines = {
            name: (pair[0].accuracy, pair[1].accuracy, pair[1].chance, pair[1].low, pair[1].high, pair[1].p)
            for name, pair in {**self.probe, **tasks}.items()
            if pair is not None
        }
        lines |= {name: (was.r2, now.r2, 0.0, now.low, now.high, now.p) for name, (was, now) in self.numbers.items()}
        columns = ["before", "after", "chance", "low", "high", "p"]
        return pd.DataFrame(list(lines.values()), index=list(lines), columns=columns)

    @property
    def _heading(self) -> str:
        return (
            f"{self.method}: {counted(self.removed, 'direction')} removed, rank {self.rank} left, measured on "
            f"{self.rows} rows"
        )

    @property
    def _measure(self) -> str:
        """What the table has."""
        measures = ["balanced accuracy of a linear probe"] if self.probe or not self.numbers else []
        return ", ".join(measures + (["R² of a linear probe of a number"] if self.numbers else []))

    @property
    def _remarks(self) -> list[str]:
        """What is left, and the notes."""
        left = [f"covariance with {name} left: {100 * share:.1f} %" for name, share in self.covariance_left.items()]
        distortion = f"distortion: {100 * self.distortion:.1f} % of the variance"
        return [*left, distortion, *(f"note: {note}" for note in self.notes)]

    def __str__(self) -> str:
        frame = self.to_frame()
        frame.index = [brief(name, 34) for name in frame.index]
        table = frame.to_string(formatters={"p": "{:.2g}".format}, float_format="{:.3f}".format)
        lines = [filled(text, further="  ") for text in (self._heading, self._measure, *self._remarks)]
        return "\n".join([*lines[:2], table, *lines[2:]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(float_format="{:.3f}".format)
        remarks = "".join(f"<li>{escape(remark)}</li>" for remark in self._remarks)
        return f"<p>{escape(self._heading)}; {escape(self._measure)}</p>{table}<ul>{remarks}</ul>"


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
    found = list(notes)

    def measure(name: str, target: Any, **options: Any) -> Any:
        """A probe before and after, without its notes: the certificate has them once. None, and a note, on an error."""
        options |= {"random_state": random_state, "clusters": clusters}
        try:
            return tuple(replace(leakage(rows, target, **options), notes=()) for rows in (z, clean))
        except InputError as error:  # a class too rare to be probed does not spoil the rest
            found.append(f"{name}: not measured. {error}")
            return None

    probe = {}
    for name, label in concepts.items():
        probe[name] = measure(name, label)
        if y is not None:
            held_fixed = f"{name}, task held fixed"
            if (weight := _independence_weights(label, y)) is None:
                found.append(f"{held_fixed}: not measured, since some combinations have no rows")
            else:
                probe[held_fixed] = measure(held_fixed, label, sample_weight=weight)
    probe = {name: pair for name, pair in probe.items() if pair is not None}
    numbers = {
        name: measure(name, columns[0], concept_type="continuous")
        for name, columns in targets.items()
        if name not in concepts
    }
    numbers = {name: pair for name, pair in numbers.items() if pair is not None}
    task = task_alone = None
    if y is not None:
        task = measure(_task_name(concepts), y)
        weight = _independence_weights(joint_label(list(concepts.values())), y) if concepts else None
        if weight is not None:
            task_alone = measure(f"{_task_name(concepts)}, concept held fixed", y, sample_weight=weight)
    found += [
        f"{name}: not predictable before the removal either (R² {was.r2:.3f}), so this is no evidence about the removal"
        for name, (was, _) in numbers.items()
        if was.low <= 0
    ]
    gone = _task_removed_notes(task, task_alone)
    found += gone
    if y is not None:
        found += _nearly_the_task(concepts, y)
    if removed and removal.rank < len(removal.centre):  # all of it, and not a part
        found += _still_readable(probe, numbers, with_task=y is not None)
    if not gone:
        found += _task_got_worse(task, task_alone, numbers)
    found += [
        f"{name}: below chance after removal. {USED_ROWS_HINT}"
        for name, (_, after) in probe.items()
        if after.below_chance
    ]
    change = np.sum((clean - z) ** 2) / np.sum((z - z.mean(axis=0)) ** 2)
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
        distortion=float(change),
        notes=(*found, *scales),
        task_alone=task_alone,
        numbers=numbers,
    )


def _task_name(concepts: Iterable[str]) -> str:
    """What the task is called beside the concepts: "task", unless one of them is called that."""
    return next(name for name in ("task", "main label", "y", "main") if name not in concepts)


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


def _nearly_the_task(concepts: Mapping[str, ClassLabel], y: ClassLabel) -> list[str]:
    """Notes on concepts that are nearly the same label as the task."""
    apart = {name: _disagreeing_rows(label, y) for name, label in concepts.items()}
    return [
        f"{name} and the task are nearly the same label: they differ in only {rows:,} of {len(y.codes):,} rows, so "
        "every conclusion here rests on those rows"
        for name, rows in apart.items()
        if rows is not None
    ]


def _still_readable(
    probe: Mapping[str, tuple[Leakage, Leakage]],
    numbers: Mapping[str, tuple[NumericLeakage, NumericLeakage]],
    *,
    with_task: bool,
) -> list[str]:
    """Notes on concepts that are still predicted: of classes with the task held fixed, if there is one."""
    notes = []
    for name, (before, after) in probe.items():
        concept = name.removesuffix(", task held fixed")
        if (concept != name) != with_task or after.low - after.chance <= MIN_KEPT_GAIN_SHARE * max(0.0, _gain(before)):
            continue
        reason = (
            ", with the task held fixed. This happens when concept and task overlap, are not orthogonal, or have "
            "correlated features"
            if with_task
            else ". Pass y to tell whether the task, with which it may be correlated, reveals it"
        )
        notes.append(
            f"{concept} can still be predicted after the removal: {100 * after.accuracy:.1f} % where chance is "
            f"{100 * after.chance:.1f}{reason}"
        )
    return notes + [
        f"{name} can still be predicted after the removal: R² {now.r2:.3f}. A task that is correlated with it may "
        "reveal it"
        for name, (was, now) in numbers.items()
        if now.low > MIN_KEPT_GAIN_SHARE * max(0.0, was.r2)
    ]


def _task_got_worse(
    task: tuple[Leakage, Leakage] | None,
    task_alone: tuple[Leakage, Leakage] | None,
    numbers: Mapping[str, tuple[NumericLeakage, NumericLeakage]],
) -> list[str]:
    """A note if the task is predicted clearly worse, with the concept held fixed if it has classes."""
    measured = task_alone or (task if numbers else None)
    if measured is None or measured[1].high >= measured[0].low:
        return []
    then, now = (f"{100 * part.accuracy:.1f}" for part in measured)
    reason = (
        ", with the concept held fixed. This happens when concept and task overlap, are not orthogonal, or have "
        "correlated features"
        if task_alone
        else ". If it is correlated with the concept, part of what predicted it was the concept"
    )
    return [f"the task got worse: a probe predicts it with {then} % before and {now} % after{reason}"]


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
