"""The trace of a fit: every direction tested, in order, with the decision in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from unspur._reading import MAYBE_NUMBER, NUMBER, require_kinds
from unspur._text import MarkupTable, brief, filled
from unspur.criteria import LABEL, Role, TTest, Verdict
from unspur.options import storable
from unspur.rows import CONCEPT, MAIN

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


@dataclass(frozen=True, slots=True)
class TaskPredictability:
    """Held-out loss of the main label before and after a removal, with rows of equal weight.

    `before`, `after` and `chance` are mean log losses in nats; `p_before` and `p_after` test each against chance.
    `fixed_before` and `fixed_after` are losses with the concept held fixed (groups of equal weight, chance is log 2).
    If the labels are correlated, much of what predicted the main label was the concept, and is rightly removed.
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
        if not self.lost:
            return (
                f"What is left still predicts the main label: held-out log loss {self.before:.3f} nats before and "
                f"{self.after:.3f} after, where chance is {self.chance:.3f}."
            )
        better = "no better" if self.p_after >= self.level else "hardly better"
        return (
            f"What is left predicts the main label {better} than chance: held-out log loss {self.before:.3f} nats "
            f"before and {self.after:.3f} after, where chance is {self.chance:.3f}. The removed directions "
            "carried most of the information about the task."
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """Steps of a fit, the parameters it settled on, and why it stopped.

    Prints as a table; `to_dict` gives plain numbers.

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
        name = self.concept_name
        return name if self.main_class is None else f"{name}, {self.main}={self.main_class}"

    @property
    def concept_name(self) -> str:
        """The concept, with its class if it has more than two: "season=winter"."""
        return self.concept if self.concept_class is None else f"{self.concept}={self.concept_class}"

    @property
    def round_zero_note(self) -> str:
        """Explanation of round 0, which main labels of more than two classes have; or ""."""
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

    def renamed(self, main: str, concepts: Mapping[str, str] | None = None) -> Trace:
        """The same trace with other names of the labels; concepts that are not in `concepts` keep theirs."""
        return replace(self, main=main, concept=(concepts or {}).get(self.concept, self.concept))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {
            "concept": self.concept,
            "concept_class": storable(self.concept_class),
            "main": self.main,
            "main_class": storable(self.main_class),
            "steps": [step.to_dict() for step in self.steps],
            "stopped": self.stopped,
            "delta": self.delta,
            "penalty": self.penalty,
            "penalty_scores": [
                {"penalty": k, "loss": v[0], "standard_error": v[1]} for k, v in self.penalty_scores.items()
            ],
            "complete": self.complete,
            "task": None if self.task is None else asdict(self.task),
            "reused": self.n_reused_rows,
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Trace | Traces:
        """Inverse of `to_dict`, here and of `Traces`, for reading saved removals."""
        if "parts" in saved:
            require_kinds(saved, {"parts": {...: {"steps": list}}}, "the trace")
            if not saved["parts"]:
                raise ValueError("the trace has no parts")
            # Files of the first versions name the parts only.
            parts = {name: cls.from_dict({"concept": name, **part}) for name, part in saved["parts"].items()}
            return Traces({name: part for name, part in parts.items() if isinstance(part, Trace)})
        saved = _with_current_names(saved)
        require_kinds(saved, _SAVED, "the trace")
        if not math.isfinite(saved["delta"]) or not 0.0 <= saved["penalty"] < math.inf:
            raise ValueError(f"the trace has Δ = {saved['delta']:.3g} and penalty {saved['penalty']:.3g}")
        scores = {row["penalty"]: (row["loss"], row["standard_error"]) for row in saved["penalty_scores"]}
        steps = tuple(_step_from_dict(step) for step in saved["steps"])
        later = {name: saved[name] for name in _SAVED_LATER if name in saved}
        require_kinds(later, {name: _SAVED_LATER[name] for name in later}, "the trace")
        later["n_reused_rows"] = later.pop("reused", 0)
        task = saved.get("task")
        if task is not None:
            require_kinds(task, _SAVED_TASK, "what is left of the task")
            task = TaskPredictability(**task)
        return cls(steps, saved["stopped"], saved["delta"], saved["penalty"], scores, **later, task=task)

    @property
    def accepted_counts(self) -> str:
        """Counts of accepted directions: "2 of 3 spurious and 4 of 7 main-task directions"."""
        parts = []
        for role, name in (("spurious", "spurious"), ("main", "main-task")):
            proper = [step.verdict.proper for step in self.steps if step.verdict.role == role]
            parts += [f"{sum(proper)} of {len(proper)} {name}"] if proper else []
        return f"{' and '.join(parts)} directions" if parts else "no direction"

    def summary(self) -> str:
        """The first and last test of each role, what was accepted, and why it stopped; short traces in full."""
        if len(self.steps) <= MAX_SUMMARY_STEPS:
            return str(self)
        roles = [[i for i, step in enumerate(self.steps) if step.verdict.role == role] for role in LABEL]
        return self._table(sorted({i for places in roles if places for i in (places[0], places[-1])}))

    def __str__(self) -> str:
        return self._table(range(len(self.steps)))

    def _table(self, shown: Sequence[int]) -> str:
        """A table of some steps, with counts of those between them, and a legend."""
        head = f"{'':>7} {'direction':<10}{'informative: t':>16}{'p':>9}{'specific: t':>16}{'p':>9}  decision"
        lines = [head, "─" * len(head)]
        for number, before in zip(shown, (-1, *shown), strict=False):
            step, between = self.steps[number], number - before - 1
            if between:
                lines.append(f"{' ' * 8}… {between} more test{'s' if between > 1 else ''}")
            verdict = step.verdict
            mark = "✓" if verdict.proper else "✗"
            figures = "".join(f"{test.t_text:>16}{test.p:>9.2g}" for test in (verdict.informative, verdict.specific))
            lines.append(f"{mark} {step.place:<5} {verdict.role:<10}{figures}  {verdict.decision}")
            lines.append(filled(verdict.reason, " " * 8))
        lines.append("─" * len(head))
        if len(shown) < len(self.steps):
            rounds = self.steps[-1].outer
            lines.append(f"accepted: {self.accepted_counts}, in {rounds} rounds")
            if rounds > 1:
                lines.append("every round estimates the main-task directions anew")
        return "\n".join([*lines, *(filled(line, further="  ") for line in self._legend())])

    __repr__ = __str__

    def _legend(self) -> list[str]:
        """What the statistics mean, and how the search ended."""
        legend = ["informative: t < 0 beats chance", "specific: t < 0 speaks for spurious, t > 0 for main"]
        if self.round_zero_note:
            legend.append(f"round 0: {self.round_zero_note}")
        legend.append(f"stopped: {self.stopped}")
        if self.n_reused_rows:
            legend.append(f"tested on {self.n_reused_rows:,} validation rows that are training rows as well")
        return [*legend, f"penalty {self.penalty:g}, Δ = {self.delta:.3g}"]

    def _markup(self) -> MarkupTable:
        """The table of `__str__`, for notebooks and cards."""
        head = ("step", "direction", "informative: t", "p", "specific: t", "p", "decision")
        lines = []
        for step in self.steps:
            verdict, tests = step.verdict, (step.verdict.informative, step.verdict.specific)
            figures = [figure for test in tests for figure in (test.t_text, f"{test.p:.2g}")]
            lines.append((step.place, verdict.role, *figures, f"{verdict.decision}: {verdict.reason}"))
        return MarkupTable(f"Tests of directions for {self.name}", head, tuple(lines), tuple(self._legend()))

    def _repr_html_(self) -> str:
        return self._markup().html()


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
        return sum(len(trace) for trace in self.parts.values())

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

    def summary(self) -> str:
        """For each part what was accepted and why it stopped; short traces in full."""
        if len(self) <= MAX_SUMMARY_STEPS:
            return str(self)
        return "\n".join(
            f"{filled(_heading(name, trace))}\n{filled(f'accepted: {trace.accepted_counts}', '  ')}\n"
            f"{filled(f'stopped: {trace.stopped}', '  ', '    ')}"
            for name, trace in self.parts.items()
        )

    def __str__(self) -> str:
        return "\n\n".join(f"{filled(_heading(name, trace))}\n{trace}" for name, trace in self.parts.items())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(trace._repr_html_() for trace in self.parts.values())


def _heading(name: str, trace: Trace) -> str:
    whole = trace.concept_class is None and trace.main_class is None
    return name if whole else f"{name} (each class against the rest)"


def task_removed_warning(steps: Iterable[Step], removed: int) -> str:
    """Warning from the tests of a fit that removed directions and ended without a main-task direction; or ""."""
    tried = [step.verdict for step in steps if step.verdict.role == "main"]
    if any(verdict.proper for verdict in tried):
        directions = f"{removed} spurious direction{'' if removed == 1 else 's'}"
        return (
            f"After removing {directions}, no direction predicts the main label better than the concept, although some "
            "did at first. The removal may have taken the task with it."
        )
    # p of the test for "specific" is one-sided: close to 1, a main-task direction clearly predicts the concept better.
    if any(max(verdict.informative.p, 1.0 - verdict.specific.p) < verdict.level for verdict in tried):
        return (
            "No direction was found that predicts the main label better than the concept, and directions that "
            "predict the main label predict the concept clearly better: what is removed may hold part of the task."
        )
    return ""


_SAVED_TASK = dict.fromkeys(
    ("before", "after", "chance", "p_before", "p_after", "fixed_before", "fixed_after", "level"), NUMBER
)
_SAVED_STEP = {
    "outer": int,
    "inner": int,
    "role": str,
    "proper": bool,
    "informative": {...: NUMBER},
    "specific": {...: NUMBER},
    "delta": NUMBER,
    "loss_concept": {...: MAYBE_NUMBER},
    "loss_main": {...: MAYBE_NUMBER},
    "reason": str,
    "evaluations": int,
    "solver": str,
}
#: Level of tests in files of the first versions, which do not say it.
_FIRST_LEVEL = 0.05
_CLASS = (str, *MAYBE_NUMBER)
#: What files of the first versions do not have.
_SAVED_LATER = {
    "concept": str,
    "concept_class": _CLASS,
    "main": str,
    "main_class": _CLASS,
    "complete": bool,
    "reused": int,
}
_SAVED = {
    "steps": [_SAVED_STEP],
    "stopped": str,
    "delta": NUMBER,
    "penalty": NUMBER,
    "penalty_scores": [{"penalty": NUMBER, "loss": NUMBER, "standard_error": NUMBER}],
}


def _with_current_names(saved: dict[str, Any]) -> dict[str, Any]:
    """A saved trace whose tests have their present names: "specific" was "own"."""
    steps = saved.get("steps")
    if not isinstance(steps, list):
        return saved
    renamed = [
        {"specific" if name == "own" else name: part for name, part in step.items()} if isinstance(step, dict) else step
        for step in steps
    ]
    return {**saved, "steps": renamed}


def _test_from_dict(saved: dict[str, Any]) -> TTest:
    test = TTest(**{"df" if name == "degrees" else name: value for name, value in saved.items()})
    if not all(map(math.isfinite, (test.difference, test.error, test.t, test.p))) or not test.df > 0.0:
        raise ValueError(f"a test has t = {test.t:.3g} and {test.df:.3g} degrees of freedom")
    if not 0.0 <= test.p <= 1.0 or test.error < 0.0:
        raise ValueError(f"a test has p = {test.p:.3g} and a standard error of {test.error:.3g}")
    return test


def _step_from_dict(saved: dict[str, Any]) -> Step:
    role: Role = saved["role"]
    if role not in LABEL:
        raise ValueError(f"a direction is of role {brief(role, 40)!r}, and not of {' or '.join(LABEL)}")
    if min(saved["outer"], saved["inner"], saved["evaluations"]) < 0:
        raise ValueError("a step of the trace has a negative count")
    losses = np.empty((2, 4))
    if list(saved["loss_concept"]) != list(saved["loss_main"]) or len(saved["loss_main"]) != 4:
        raise ValueError("the losses of a step are not those of four groups")
    for label, name in ((CONCEPT, "loss_concept"), (MAIN, "loss_main")):
        losses[label] = [np.nan if loss is None else loss for loss in saved[name].values()]
    informative, specific = _test_from_dict(saved["informative"]), _test_from_dict(saved["specific"])
    groups = tuple(saved["loss_main"])
    level = saved.get("level", _FIRST_LEVEL)
    require_kinds(level, NUMBER, "the level of a test")
    if not 0.0 < level < 1.0:
        raise ValueError(f"the level of a test is {level:.3g}, and not between 0 and 1")
    verdict = Verdict(
        role, saved["proper"], informative, specific, saved["delta"], losses, groups, saved["reason"], level
    )
    return Step(saved["outer"], saved["inner"], verdict, saved["evaluations"], saved["solver"])


def parts_of(trace: Any) -> Mapping[str, Trace]:
    """Traces by concept or class, "" if there is only one; none for a method without tests."""
    if isinstance(trace, Trace):
        return {"": trace}
    return trace.parts if isinstance(trace, Traces) else {}
