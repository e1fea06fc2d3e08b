"""The trace of a fit: every direction tested, in order, with the decision in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from unspur._text import filled
from unspur.criteria import TTest, Verdict
from unspur.labels import storable

#: Share of the gain over chance up to which the task counts as lost: inexact directions leave some of it behind.
MAX_LOST_SHARE = 0.2
#: Share of the gain over chance, with the concept held fixed, above which the task counts as kept.
MIN_KEPT_TASK_SHARE = 0.5
#: Longest trace whose summary is the whole trace.
MAX_SUMMARY_STEPS = 8


@dataclass(frozen=True, slots=True)
class Step:
    """One tested direction with its verdict and the solver's message.

    `outer` is the round of the outer loop, `inner` the step of the inner loop, 0 for the outer direction itself.
    Round 0 comes before the outer loop: main-task directions of one class, where y has more than two.
    """

    outer: int
    inner: int
    verdict: Verdict
    evaluations: int
    solver: str

    @property
    def place(self) -> str:
        """Round and step: "2.1" is the first main-task direction of round 2, "2" its spurious direction."""
        return f"{self.outer}.{self.inner}" if self.inner else f"{self.outer}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        place = {"outer": self.outer, "inner": self.inner}
        return place | self.verdict.to_dict() | {"evaluations": self.evaluations, "solver": self.solver}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Step:
        """Inverse of `to_dict`."""
        given = dict(saved)
        outer, inner, evaluations, solver = (given.pop(name) for name in ("outer", "inner", "evaluations", "solver"))
        return cls(outer, inner, Verdict.from_dict(given), evaluations, solver)


@dataclass(frozen=True, slots=True)
class TaskPredictability:
    """Held-out loss of the task before and after a removal, with rows of equal weight.

    `before`, `after` and `chance` are mean log losses in nats; `p_before` and `p_after` test each against chance.
    `fixed_before` and `fixed_after` are losses with the concept held fixed (groups of equal weight, chance is log 2).
    If the labels are correlated, much of what predicted the task was the concept, and is rightly removed.
    """

    before: float
    after: float
    chance: float
    p_before: float
    p_after: float
    fixed_before: float
    fixed_after: float
    level: float

    @property
    def lost(self) -> bool:
        """Whether the label was predicted better than by chance before the removal, and hardly is after it."""
        gain_before, gain_after = self.chance - self.before, self.chance - self.after
        fixed_gain_before, fixed_gain_after = (math.log(2.0) - loss for loss in (self.fixed_before, self.fixed_after))
        negligible = gain_after < MAX_LOST_SHARE * gain_before and not (
            fixed_gain_after > MIN_KEPT_TASK_SHARE * max(fixed_gain_before, 0.0)
        )
        return self.p_before < self.level and (self.p_after >= self.level or negligible)

    def __str__(self) -> str:
        losses = (
            f"held-out log loss {self.before:.3f} nats before and {self.after:.3f} after, where chance is "
            f"{self.chance:.3f}."
        )
        if not self.lost:
            return f"What is left still predicts the task: {losses}"
        better = "no better" if self.p_after >= self.level else "hardly better"
        return (
            f"What is left predicts the task {better} than chance: {losses} The removed directions carried most "
            "of the information about the task."
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps of a fit, the parameters it settled on, and why it stopped.

    Prints as a table; `to_frame` gives a DataFrame, and `to_dict` plain numbers.

    `penalty_scores` is the table that `penalty="auto"` decided from: group-weighted held-out loss of the
    first pair and its standard error, per value tried (averaged over all rows alike with ``tests="plain"``).

    `concept` and `main` are what the two labels are called. Where a label has more than two classes, each class is
    tested against the rest: `concept_class` and `main_class` say which one this is, and are None for labels of two.
    """

    steps: tuple[Step, ...]
    stopped: str
    delta: float
    penalty: float
    penalty_scores: dict[float, tuple[float, float]] = field(default_factory=dict)
    concept: str = "concept"
    concept_class: Any = None
    main: str = "y"
    main_class: Any = None
    #: Whether a test ended the search, and not a limit on the number of pairs.
    complete: bool = True
    #: What is left of the task, measured if the fit removed something and ended without a main-task direction.
    task: TaskPredictability | None = None
    #: Number of validation rows that are training rows as well.
    n_reused_rows: int = 0

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> Step:
        return self.steps[index]

    @property
    def name(self) -> str:
        """Its labels, such as "season=winter, bird=land"; classes are named for labels of more than two."""
        return self.concept_name if self.main_class is None else f"{self.concept_name}, {self.main}={self.main_class}"

    @property
    def concept_name(self) -> str:
        """The concept, with its class if it has more than two: "season=winter"."""
        return self.concept if self.concept_class is None else f"{self.concept}={self.concept_class}"

    @property
    def round_zero_note(self) -> str:
        """Explanation of round 0, which tasks of more than two classes have; or ""."""
        if not any(step.outer == 0 for step in self.steps):
            return ""
        return (
            f"directions that {self.main}={self.main_class} needs, found first; later rounds leave those of the other "
            "classes alone"
        )

    @property
    def most_evaluations(self) -> int:
        """Number of objective evaluations of the slowest pair."""
        return max((step.evaluations for step in self.steps), default=1)

    @property
    def accepted_counts(self) -> str:
        """Counts of accepted directions: "2 of 3 spurious and 4 of 7 main-task directions"."""
        parts = []
        for role, name in (("spurious", "spurious"), ("main", "main-task")):
            proper = [step.verdict.proper for step in self.steps if step.verdict.role == role]
            parts += [f"{sum(proper)} of {len(proper)} {name}"] if proper else []
        return f"{' and '.join(parts)} directions" if parts else "no direction"

    def renamed(self, main: str, concepts: Mapping[str, str] | None = None) -> Trace:
        """The same trace with other names of the labels; concepts that are not in `concepts` keep theirs."""
        return replace(self, main=main, concept=(concepts or {}).get(self.concept, self.concept))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        scores = [{"penalty": k, "loss": v[0], "standard_error": v[1]} for k, v in self.penalty_scores.items()]
        return {
            "concept": self.concept,
            "concept_class": storable(self.concept_class),
            "main": self.main,
            "main_class": storable(self.main_class),
            "steps": [step.to_dict() for step in self.steps],
            "stopped": self.stopped,
            "delta": self.delta,
            "penalty": self.penalty,
            "penalty_scores": scores,
            "complete": self.complete,
            "task": None if self.task is None else asdict(self.task),
            "n_reused_rows": self.n_reused_rows,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Trace | Traces:
        """Inverse of `to_dict`, here and of `Traces`."""
        if "parts" in saved:
            return Traces({name: cls(**_fields(part)) for name, part in saved["parts"].items()})
        return cls(**_fields(saved))

    def to_frame(self) -> Any:
        """One line for each test, as a pandas DataFrame."""
        import pandas as pd

        lines = []
        for step in self.steps:
            verdict, tests = step.verdict, {"informative": step.verdict.informative, "specific": step.verdict.specific}
            figures = {f"{name}_{kind}": getattr(test, kind) for name, test in tests.items() for kind in ("t", "p")}
            losses = {f"{name}_loss": float(np.mean(verdict.losses[k])) for k, name in enumerate(("concept", "main"))}
            place = {"outer": step.outer, "inner": step.inner, "role": verdict.role, "accepted": verdict.proper}
            lines.append({**place, **figures, **losses, "delta": verdict.delta, "reason": verdict.reason})
        return pd.DataFrame(lines)

    def _repr_html_(self) -> str:
        return str(self.to_frame()._repr_html_())

    def summary(self) -> str:
        """A short trace in full; of a long one what was accepted, and why it stopped."""
        if len(self) <= MAX_SUMMARY_STEPS:
            return str(self)
        return "\n".join(filled(line, further="  ") for line in (f"accepted: {self.accepted_counts}", *self._legend()))

    def __str__(self) -> str:
        head = f"{'':>7} {'direction':<10}{'informative: t':>16}{'p':>9}{'specific: t':>16}{'p':>9}  decision"
        lines = [head, "─" * len(head)]
        for step in self.steps:
            verdict: Verdict = step.verdict
            tests: tuple[TTest, TTest] = (verdict.informative, verdict.specific)
            figures = "".join(f"{test.t_text:>16}{test.p:>9.2g}" for test in tests)
            mark = "✓" if verdict.proper else "✗"
            lines.append(f"{mark} {step.place:<5} {verdict.role:<10}{figures}  {verdict.decision}")
            lines.append(filled(verdict.reason, " " * 8))
        legend = ["informative: t < 0 beats chance", "specific: t < 0 speaks for spurious, t > 0 for main"]
        return "\n".join([*lines, "─" * len(head), *(filled(line, further="  ") for line in legend + self._legend())])

    __repr__ = __str__

    def _legend(self) -> list[str]:
        """How the search ended."""
        notes = [f"round 0: {self.round_zero_note}"] if self.round_zero_note else []
        notes.append(f"stopped: {self.stopped}")
        if self.n_reused_rows:
            notes.append(f"tested on {self.n_reused_rows:,} validation rows that are training rows as well")
        return [*notes, f"penalty {self.penalty:g}, Δ = {self.delta:.3g}"]


def _fields(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `Trace` from what `to_dict` wrote."""
    given, task = dict(saved), saved["task"]
    given["steps"] = tuple(map(Step.from_dict, saved["steps"]))
    scores = saved["penalty_scores"]
    given["penalty_scores"] = {row["penalty"]: (row["loss"], row["standard_error"]) for row in scores}
    given["task"] = None if task is None else TaskPredictability(**task)
    return given


@dataclass(frozen=True, slots=True)
class Traces:
    """Traces by name: one for each concept, or class against the rest for labels of more than two classes."""

    parts: dict[str, Trace]

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> Traces:
        """Traces by their names; equal names are numbered."""
        parts: dict[str, Trace] = {}
        for trace in traces:
            name, twin = trace.name, 2
            while name in parts:
                name, twin = f"{trace.name} ({twin})", twin + 1
            parts[name] = trace
        return cls(parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def __iter__(self) -> Iterator[Step]:
        return (step for trace in self.parts.values() for step in trace)

    def __getitem__(self, name: str) -> Trace:
        return self.parts[name]

    @property
    def stopped(self) -> str:
        """Why each of them stopped."""
        return "; ".join(f"{name}: {trace.stopped}" for name, trace in self.parts.items())

    @property
    def complete(self) -> bool:
        """Whether tests ended all searches."""
        return all(trace.complete for trace in self.parts.values())

    @property
    def n_reused_rows(self) -> int:
        """Validation rows that are training rows as well."""
        return max(trace.n_reused_rows for trace in self.parts.values())

    @property
    def task(self) -> TaskPredictability | None:
        """What is left of the task in the first trace that lost it."""
        return next((trace.task for trace in self.parts.values() if trace.task and trace.task.lost), None)

    @property
    def most_evaluations(self) -> int:
        """Number of objective evaluations of the slowest pair."""
        return max(trace.most_evaluations for trace in self.parts.values())

    def renamed(self, main: str, concepts: Mapping[str, str] | None = None) -> Traces:
        """The same traces with other names of the labels (see `Trace.renamed`)."""
        return Traces.of(trace.renamed(main, concepts) for trace in self.parts.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {"parts": {name: trace.to_dict() for name, trace in self.parts.items()}}

    def to_frame(self) -> Any:
        """One line for each test, as a pandas DataFrame whose first column names the trace."""
        import pandas as pd

        frames = [trace.to_frame().assign(trace=name) for name, trace in self.parts.items()]
        frame = pd.concat(frames, ignore_index=True)
        return frame[["trace", *frame.columns.drop("trace")]]

    def _repr_html_(self) -> str:
        return str(self.to_frame()._repr_html_())

    def summary(self) -> str:
        """The summary of each part under its name."""
        return "\n\n".join(f"{filled(name)}\n{trace.summary()}" for name, trace in self.parts.items())

    def __str__(self) -> str:
        return "\n\n".join(f"{filled(name)}\n{trace}" for name, trace in self.parts.items())

    __repr__ = __str__


def task_removed_warning(steps: Iterable[Step], removed: int) -> str:
    """Warning from the tests of a fit that removed directions and ended without a main-task direction; or ""."""
    tried = [step.verdict for step in steps if step.verdict.role == "main"]
    if any(verdict.proper for verdict in tried):
        directions = f"{removed} spurious direction{'' if removed == 1 else 's'}"
        return (
            f"After removing {directions}, no direction predicts the task better than the concept, although some "
            "did at first. The removal may have taken the task with it."
        )
    # p of the test for "specific" is one-sided: close to 1, a main-task direction clearly predicts the concept better.
    if any(max(verdict.informative.p, 1.0 - verdict.specific.p) < verdict.level for verdict in tried):
        return (
            "No direction was found that predicts the task better than the concept, and directions that "
            "predict the task predict the concept clearly better: what is removed may hold part of the task."
        )
    return ""


def parts_of(trace: Any) -> Mapping[str, Trace]:
    """Traces by concept or class, "" if there is only one; none for a method without tests."""
    if isinstance(trace, Trace):
        return {"": trace}
    return trace.parts if isinstance(trace, Traces) else {}
