"""Results of `measure` as frozen values: everything that a page or a figure shows. Nothing here computes.

Rows are the test rows, except in fields that begin with `train_`. They are numbered 0 to n − 1 in the order they were
given; a scatter plot draws `drawn_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from unspur._typing import BoolArray, FloatArray, IntArray
from unspur.auditing import Audit
from unspur.certificate import Certificate
from unspur.embed.examples import Content
from unspur.metrics import GroupAccuracy, Leakage, PairedDifference
from unspur.trace import Trace

#: What a direction is about; "head" is the direction of a head.
Role: TypeAlias = Literal["spurious", "main", "head"]


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One method: directions it removed, and accuracy of a head on the transformed rows, or the `problem` it met."""

    name: str
    n_removed: int
    accuracy: GroupAccuracy | None
    #: Differences from an unweighted head on the original rows; None for that head itself.
    average_change: PairedDifference | None = None
    group_average_change: PairedDifference | None = None
    worst_change: PairedDifference | None = None
    #: Linear probes for the concepts, by name, on the transformed rows.
    leakage: Mapping[str, Leakage] = field(default_factory=dict)
    problem: str = ""
    #: Penalty of the head, chosen on held-out rows.
    penalty: float | None = None
    #: "largest" or "smallest" if the chosen penalty is at that end of the grid.
    grid_edge: str = ""
    #: The same method with a head that gives every group the same weight.
    weighted: MethodResult | None = None
    #: Differences from the same kind of head after the removal, of the worst group and of the average over groups.
    worst_relative_to_removal: PairedDifference | None = None
    average_relative_to_removal: PairedDifference | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        changes = {
            "worst": self.worst_change,
            "group_average": self.group_average_change,
            "average": self.average_change,
        }
        return {
            "name": self.name,
            "n_removed": self.n_removed,
            "problem": self.problem,
            "accuracy": None if self.accuracy is None else self.accuracy.to_dict(),
            "penalty": self.penalty,
            "grid_edge": self.grid_edge,
            "change": {
                name: {"value": change.value, "low95": change.low, "high95": change.high}
                for name, change in changes.items()
                if change is not None
            },
            "leakage": {name: part.to_dict() for name, part in self.leakage.items()},
            "group_weighted": None if self.weighted is None else self.weighted.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Axis:
    """Name and role of a direction that scores are taken along, such as "background 2"."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Boundary:
    """A head in terms of the axes: its logit at the centre of the rows, and w·a for each axis a, shape (m,)."""

    offset: float
    along: FloatArray


@dataclass(frozen=True, slots=True)
class View:
    """Scores of all rows along m axes, each of shape (n, m), from the centre of the removal.

    In the plane of axes i and j through the centre, the decision boundary of a head is
    ``offset + (along_i, along_j) · G⁻¹ (x, y) = 0``, with G the part of `gram` (m, m) that belongs to them. With more
    than two classes there is no single boundary, and the two are None.
    """

    axes: tuple[Axis, ...]
    before: FloatArray
    after: FloatArray
    gram: FloatArray
    boundary_before: Boundary | None
    boundary_after: Boundary | None

    def first_pair(self) -> tuple[int, int]:
        """Numbers of the axes to show first: of the concept across, and of the task up, where there are such."""
        by_role = {role: [k for k, axis in enumerate(self.axes) if axis.role == role] for role in _ROLES}
        x = [*by_role["spurious"], *by_role["head"], *by_role["main"]][0]
        others = [k for k in (*by_role["main"], *by_role["head"], *by_role["spurious"]) if k != x]
        return x, others[0] if others else x


_ROLES: tuple[Role, ...] = ("spurious", "main", "head")


@dataclass(frozen=True, slots=True)
class Extremes:
    """Rows that lie farthest out along an axis, farthest first, by number."""

    axis: int
    low: IntArray
    high: IntArray


@dataclass(frozen=True, slots=True)
class Origin:
    """How to reproduce the findings: parameters, versions and digests by name, the command, and remarks."""

    parameters: Mapping[str, Any]
    versions: Mapping[str, str]
    digests: Mapping[str, str]
    command: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that `measure` finds out about a removal.

    Attributes
    ----------
    method : class of the removal, such as "JSE".
    main, concepts : names of the task and of the concepts.
    n_removed, n_main, n_features : number of directions of the concept, of the task, and of the rows.
    results : what the methods achieve: the original rows, the removal, then the methods it is compared with.
    group, groups : number of each row's group, shape (n,), -1 if the concept is not known; names of the groups.
    ids : names of the rows.
    correct_before, correct_after : whether the prediction of the unweighted head is correct, shape (n,).
    angles : principal angles between the two subspaces in degrees, ascending; empty if a subspace is.
    shared_variance : share of variance that scores along the two have in common in the test rows; None if a subspace
        is empty.
    traces : tests of the fit by concept or class ("" if there is one trace); empty for methods without tests.
    significance_level : of the tests in `traces`.
    trace_text : `trace_` as text, for methods without tests.
    nonlinear, nonlinear_before : accuracy of a small network for each concept after the removal, and before.
    warnings : sentences for the top of the page, such as that the task was lost.
    selection_notes : sentences that say how the penalties of the heads were chosen.
    cli_source : "FILE --task … --concept …", which describes the rows to the command line; "" if no file has them.
    next_command : a command that saves the removal, or applies the saved one.
    train_rows : number of training rows; with `fitted_on_these`, of those that the removal was fitted on.
    fitted_on_these : whether the removal was fitted on the training rows, and it is known on which of them.
    numbered_in_file : the file in which "row 7" is the seventh row; "" if rows have other names.
    strength : share of the removal that was applied.
    oblique_angle : largest angle in degrees between the directions that a removal reads and those that it subtracts; 0
        for an orthogonal projection.
    audit : which other columns of the training rows an unweighted head uses; None if there are none.
    """

    method: str
    main: str
    concepts: tuple[str, ...]
    classes: tuple[Any, ...]
    n_removed: int
    n_main: int
    n_features: int
    train_rows: int
    results: tuple[MethodResult, ...]
    group: IntArray
    groups: tuple[str, ...]
    ids: Sequence[str]
    correct_before: BoolArray
    correct_after: BoolArray
    view: View
    drawn_rows: IntArray
    angles: tuple[float, ...]
    shared_variance: float | None
    traces: Mapping[str, Trace]
    significance_level: float
    trace_text: str
    certificate: Certificate
    nonlinear: Mapping[str, Leakage]
    nonlinear_before: Mapping[str, Leakage]
    extremes: tuple[Extremes, ...]
    origin: Origin
    content: Content | None = None
    warnings: tuple[str, ...] = ()
    selection_notes: tuple[str, ...] = ()
    cli_source: str = ""
    next_command: str = ""
    fitted_on_these: bool = True
    numbered_in_file: str = ""
    oblique_angle: float = 0.0
    strength: float = 1.0
    audit: Audit | None = None

    @property
    def before(self) -> MethodResult:
        """The original rows, without a removal."""
        return self.results[0]

    @property
    def after(self) -> MethodResult:
        """The removal that was measured."""
        return self.results[1]

    @property
    def recommended(self) -> MethodResult | None:
        """JSE with a group-weighted head, the default classifier of `unspur fit`, if it was measured."""
        weighted = self.after.weighted
        return None if self.method != "JSE" or weighted is None or weighted.accuracy is None else weighted

    @property
    def headline(self) -> MethodResult:
        """The result to show first: the recommended one, or an unweighted head after the removal."""
        return self.recommended or self.after
