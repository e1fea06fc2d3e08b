"""Audit: which columns are associated with the task, are visible in the embedding, and are used by an unweighted head.

Each column is asked three questions, on the rows where it is known:

*associated*: does it depend on the task? Cramér's V, and Fisher's exact test of each class against each value.

*visible*: does a linear probe predict it from the rows, where every combination of task and value weighs the same?
Without these weights, anything associated with the task would be visible through the task alone.

*used*: does an unweighted head (ERM) err more often where the column contradicts the task? Within a class of the task,
a row is *aligned* if its value is more frequent in that class than overall, and *conflicting* otherwise. The gap is the
accuracy on aligned rows minus that on conflicting rows, averaged over the classes of the task. Predictions are
cross-fitted, once for all columns.

A column is flagged if all three are significant. The largest of its three p-values is a p-value of "at least one of the
three does not hold", and Holm's procedure corrects it for the number of columns. Whether a flagged column is
spurious is not for a test to say: high cheekbones are associated with smiling, and rightly so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import chdtr, chndtrinc
from scipy.stats import hypergeom, norm
from scipy.stats import t as student

from unspur._arrays import renumbered
from unspur._data import TEST_SHARE, LabelledData, as_matrix
from unspur._resources import one_thread_if_small
from unspur._text import brief, counted, filled
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur.clusters import cluster_codes, row_hashes
from unspur.criteria import SMALLEST_GROUP
from unspur.exceptions import GroupSizeError, InputError, LabelError
from unspur.heads import ERM
from unspur.labels import (
    ClassLabel,
    as_labels,
    class_label,
    label_columns,
    main_column,
    require_no_missing,
    series_name,
)
from unspur.metrics import leakage
from unspur.metrics.groups import mean_interval, p_above
from unspur.metrics.leakage import cluster_effective_rows, fold_pairs
from unspur.metrics.probes import scale_notes
from unspur.selection import cross_fit
from unspur.solvers.held_out_losses import HeldOutClusters

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["classes", "number"]

#: Fewest rows (or clusters) of a class and a value for both to be compared.
MIN_CELL_ROWS = 10
#: Whole numbers with more distinct values are numbers, and of classes only the most frequent ones stay apart.
MAX_VALUES = 20
#: Numbers are cut into this many bins, at their quantiles.
BINS = 3
#: P-values of gaps below this are computed exactly, for up to so many classes, on a grid of so many points for each
#: standard deviation and class.
MAX_P_EXACT, MAX_EXACT_CLASSES, GRID_POINTS = 0.2, 10, 100
#: Folds of the head and of the probes.
AUDIT_FOLDS = 5
#: Most rows of a probe, and up to how many of them it is cross-fitted. With more it is trained on one half and tested
#: on the other, since cross-fitted rows tell as much as half as many tested once, and folds take five times as long.
MAX_PROBE_ROWS, MAX_CROSS_FITTED_ROWS = 3000, 1000
#: Cramér's V from which on a column is taken for the task under another name, and not recommended.
MAX_RECOMMENDED_ASSOCIATION = 0.95
#: Fewest rows of a group (class of the task, value) for a report that holds out `TEST_SHARE` of them: as many test rows
#: as the tests of a direction need, and more to fit it.
MIN_REMOVABLE_ROWS = math.ceil(SMALLEST_GROUP / TEST_SHARE)
#: Columns that a table shows, besides those that are flagged, and skipped columns that it lists.
COLUMNS_SHOWN, SKIPPED_SHOWN = 20, 10

FLAGGED = "associated with the task, visible, and used: you decide whether it is spurious"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval, its p-value, and the p-value corrected for the number of columns (Holm)."""

    value: float
    low: float
    high: float
    p: float
    p_corrected: float = 1.0

    def to_dict(self) -> dict[str, float]:
        """Plain numbers, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AuditedColumn:
    """What an audit found about one column.

    Attributes
    ----------
    name : of the column.
    kind : "classes", or "number" for a number that was cut into bins.
    values : its values, or its bins, as text.
    rows : number of rows in which it is known.
    smallest_group : rows of the rarest combination of a class of the task and a value, before rare values are pooled;
        of exact duplicates one counts.
    association : Cramér's V with the task, from 0 (independent) to 1, corrected for its bias; the test is two-sided.
    visibility : balanced accuracy of a linear probe; None if there was no time to train one (see `audit`).
    chance : accuracy of guessing, one over the number of values that are compared; a note names those left out.
    gap : accuracy of an unweighted head on aligned rows minus that on conflicting rows; the test is one-sided.
    aligned, conflicting : the two accuracies, averaged over the classes of the task.
    flagged : whether all three are significant after Holm's correction.
    verdict : the same in words.
    notes : what else a reader should know, such as bins or pooled values.
    """

    name: str
    kind: Kind
    values: tuple[str, ...]
    rows: int
    smallest_group: int
    association: Estimate
    visibility: Estimate | None
    chance: float
    gap: Estimate
    aligned: float
    conflicting: float
    flagged: bool = False
    verdict: str = ""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {**asdict(self), "values": list(self.values), "notes": list(self.notes)}

    @property
    def is_nearly_the_task(self) -> bool:
        """Whether the column says almost the same as the task, so that removing it would remove the task."""
        return self.association.value >= MAX_RECOMMENDED_ASSOCIATION


@dataclass(frozen=True, slots=True)
class Audit:
    """Columns of a table, ranked by how surely an unweighted head uses them.

    Attributes
    ----------
    main : name of the task.
    columns : those that were judged. Flagged ones come first, then the largest lower bound of the gap.
    skipped : the columns that were not judged, each with the reason.
    rows : rows that the audit used.
    n_rows_total : rows of which these are a random sample; the same number if all were used.
    accuracy : cross-fitted accuracy of the head, each class of the task counting the same.
    level : significance level of all columns together.
    notes : what else a reader should know.
    """

    main: str
    columns: tuple[AuditedColumn, ...]
    skipped: Mapping[str, str]
    rows: int
    n_rows_total: int
    accuracy: float
    level: float
    notes: tuple[str, ...] = ()

    @property
    def flagged(self) -> tuple[AuditedColumn, ...]:
        """Columns that are associated with the task, are visible, and are used."""
        return tuple(column for column in self.columns if column.flagged)

    @property
    def recommended(self) -> AuditedColumn | None:
        """The first flagged column whose removal can be fitted and tested, and that is not nearly the task itself."""
        removable = (
            column for column in self.flagged if not (column.is_nearly_the_task or self.has_small_group(column))
        )
        return next(removable, None)

    def has_small_group(self, column: AuditedColumn) -> bool:
        """Whether a report on all rows would have too few rows of the smallest group to fit or test a removal."""
        return column.smallest_group * (self.n_rows_total / self.rows) < MIN_REMOVABLE_ROWS

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, ready for JSON."""
        return {
            "main": self.main,
            "rows": self.rows,
            "accuracy": self.accuracy,
            "level": self.level,
            "columns": [column.to_dict() for column in self.columns],
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """A pandas DataFrame with one line for each column that was judged, with intervals and corrected p-values."""
        import pandas as pd

        lines = []
        for column in self.columns:
            line: dict[str, Any] = {"flagged": column.flagged}
            for name in ("association", "visibility", "gap"):
                found = getattr(column, name)
                parts = (np.nan,) * 4 if found is None else (found.value, found.low, found.high, found.p_corrected)
                line |= dict(zip((name, f"{name}_low", f"{name}_high", f"{name}_p"), parts, strict=True))
            lines.append({**line, "smallest_group": column.smallest_group, "verdict": column.verdict})
        return pd.DataFrame(lines, index=[column.name for column in self.columns])

    def __str__(self) -> str:
        shown = self.columns[: max(COLUMNS_SHOWN, len(self.flagged))]
        lines = [
            filled(
                f"Audit of {counted(len(self.columns) + len(self.skipped), 'column')} against {brief(self.main, 40)}: "
                f"{self.rows:,} rows, accuracy of an unweighted head {100 * self.accuracy:.1f} %"
            ),
            "",
            *(_table(shown, self) if shown else []),
        ]
        if hidden := len(self.columns) - len(shown):
            lines.append(f"… and {hidden:,} more columns, none of which is flagged; --json and `columns` have them")
        if self.skipped:
            listed = list(self.skipped.items())
            lines += ["", "Skipped:"]
            lines += [filled(f"{brief(name, 40)}: {reason}", "  ", "    ") for name, reason in listed[:SKIPPED_SHOWN]]
            if len(listed) > SKIPPED_SHOWN:
                lines.append(f"  … and {len(listed) - SKIPPED_SHOWN:,} more")
        return "\n".join([*lines, "", filled(self.conclusion), *(filled(f"Note: {note}") for note in self.notes)])

    @property
    def conclusion(self) -> str:
        """What was found, in one or two sentences."""
        if not self.columns:
            return "No column could be judged."
        corrected = f"level {self.level:g}, corrected for {counted(len(self.columns), 'column')}"
        if not self.flagged:
            return f"No column is associated with {self.main}, is visible, and is used ({corrected})."
        names = [brief(column.name, 40) for column in self.flagged]
        listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        are = "are" if len(names) > 1 else "is"
        end = "you decide whether they are spurious" if len(names) > 1 else FLAGGED.partition(": ")[2]
        found = f"{listed} {are} associated with {self.main}, {are} visible, and {are} used ({corrected}): {end}."
        return found if self.recommended is not None else f"{found} {self._why_none_is_recommended}"

    @property
    def _why_none_is_recommended(self) -> str:
        """Why no flagged column can be removed, in words."""
        small = [column for column in self.flagged if not column.is_nearly_the_task]
        if not small:
            return "None is recommended for removal: removing a column that is nearly the task would remove the task."
        most = max(small, key=lambda column: column.smallest_group)
        return (
            f"No removal could be tested: the smallest group of {brief(most.name, 40)} has {most.smallest_group:,} of "
            f"these rows, and a removal and its test need about {MIN_REMOVABLE_ROWS}. Collect rows of that group."
        )


def _table(columns: tuple[AuditedColumn, ...], found: Audit) -> list[str]:
    """The numbers of the columns as a table, and the verdict on each below it."""
    import pandas as pd

    def told(estimate: Estimate | None, unit: float, digits: int) -> str:
        if estimate is None:
            return "–"
        value, low, high = (f"{unit * number:.{digits}f}" for number in (estimate.value, estimate.low, estimate.high))
        return f"{value} ({low}–{high})"

    cells = {
        "association (V)": [told(column.association, 1.0, 2) for column in columns],
        "visible (%)": [told(column.visibility, 100.0, 0) for column in columns],
        "gap (points)": [told(column.gap, 100.0, 1) for column in columns],
        "smallest": [f"{column.smallest_group:,}" for column in columns],
    }
    names = [f"{'✓' if column.flagged else ' '} {brief(column.name, 14)}" for column in columns]
    lines = [pd.DataFrame(cells, index=names).to_string(), ""]
    for column in columns:
        notes = list(column.notes)
        if column.flagged and found.has_small_group(column):
            notes.append("too few rows in its smallest group to remove it and test that")
        lines.append(filled(f"{brief(column.name, 40)}: {'; '.join((column.verdict, *notes))}", "  ", "    "))
    return lines


def audit(
    X: Array,
    y: Any,
    columns: Any,
    *,
    clusters: Array | None = None,
    level: float = 0.05,
    max_rows: int = 10_000,
    max_probes: int = 50,
    probe_all: bool = True,
    random_state: Any = None,
    callback: Callable[[str], object] = lambda name: None,  # noqa: ARG005
) -> Audit:
    """Say of each column whether it is associated with the task, visible in the rows, and used by an unweighted head.

    Association and gap cost little and are measured for every column. Linear probes are trained for the `max_probes`
    columns that come first: those for which association and gap are significant, since only they can be flagged, and
    then the others. A column without a probe is never flagged. Holm's correction counts all columns that are judged.
    Intervals have a level of 95 % for each column by itself. The head is fitted here, to these rows: "used" is about
    what such a head does with them, and not about a model that was trained elsewhere.

    Numbers, and whole numbers of more than 20 values, are cut into three bins at their quantiles. Columns that cannot
    be judged are listed with a reason: constant columns, dates, ids, columns that determine the task or that the task
    determines, and columns with fewer than 10 rows (or clusters) in too many combinations with the task.

    Parameters
    ----------
    X : rows of shape (n, d) in memory.
    y : task of each row, of two or more classes; a Series gives it its name.
    columns : mapping from names to columns of n values, a DataFrame, or an array (n, m). Rows in which a column is
        missing are left out for this column.
    clusters : which rows belong together (frames of one film). They are kept together in folds, and every interval and
        test counts clusters. Without it, exact duplicates of a row are one cluster.
    level : probability of flagging any column for which one of the three does not hold.
    max_rows : largest number of rows to use; a random sample of more.
    max_probes : largest number of columns to train a probe for.
    probe_all : whether to probe columns that cannot be flagged as well. It takes longer, and changes no verdict on the
        others.
    random_state : of the sample and the folds.
    callback : called with the name of each step, of which there are at most ``2 + max_probes``.

    Examples
    --------
    >>> import numpy as np
    >>> from unspur import audit
    >>> rng = np.random.default_rng(0)
    >>> bird = rng.integers(2, size=1000)
    >>> background = np.where(rng.random(1000) < 0.9, bird, 1 - bird)
    >>> X = rng.normal(size=(1000, 8))
    >>> X[:, 0] += bird
    >>> X[:, 1] += 2 * background
    >>> found = audit(X, bird, {"background": background, "camera": rng.integers(3, size=1000)}, random_state=0)
    >>> [column.name for column in found.flagged]
    ['background']
    """
    if not 0 < level < 1:
        raise InputError(f"level is a probability between 0 and 1; got {level}.")
    if max_rows < 1 or max_probes < 0:
        raise InputError(f"max_rows must be positive and max_probes at least 0; got {max_rows} and {max_probes}.")
    rng = np.random.default_rng(random_state)
    data, given, notes = _decoded(X, y, columns, clusters, max_rows, rng)
    callback("unweighted head")
    with one_thread_if_small(data.X):
        differences, _ = cross_fit(ERM(), data, AUDIT_FOLDS, rng)
    right = differences.max(axis=1) <= 0
    recall = np.bincount(data.main.codes, weights=right) / np.bincount(data.main.codes)
    callback("columns")
    judged: list[tuple[AuditedColumn, _Cells]] = []
    reasons: dict[str, str] = {}
    for name, values in given.items():
        try:
            cells = _cells(values, data)
        except _NotAuditable as reason:
            reasons[name] = str(reason)
        else:
            judged.append((_association_and_gap(name, cells, data, right), cells))
    found = _with_probes(judged, data, level, max_probes, probe_all, rng, callback)
    return Audit(data.main.name, found, reasons, len(data), len(X), float(recall.mean()), level, notes)


def _decoded(
    X: Array, y: Any, columns: Any, clusters: Any, max_rows: int, rng: np.random.Generator
) -> tuple[LabelledData, dict[str, Array], tuple[str, ...]]:
    """Rows with their task and clusters, the columns by name, and notes; of at most `max_rows` rows."""
    X = as_matrix(X, "audited")
    name, values = main_column(y, series_name(y) or "y")
    main = class_label(values, name, len(X))
    require_no_missing(main, ["other columns"])
    if hasattr(columns, "dtypes") and hasattr(columns, "columns"):
        given = {str(name): columns[name] for name in columns.columns}  # which keep their dtypes
    else:
        given = label_columns(columns, len(X), "columns")
    code = None if clusters is None else cluster_codes(clusters, "clusters", len(X))
    data = LabelledData(X, main, (), np.ones(len(X)), code)
    notes = []
    if len(X) > max_rows:
        chosen = np.sort(rng.choice(len(X), max_rows, replace=False))
        notes.append(f"{max_rows:,} rows were drawn at random from {len(X):,}.")
        data = data.select(chosen)
        data = replace(data, y=data.main.occurring())
        given = {
            name: column.iloc[chosen] if hasattr(column, "iloc") else as_labels(column)[chosen]
            for name, column in given.items()
        }
    rows = np.bincount(data.main.codes)
    if rows.min() < MIN_CELL_ROWS:
        drawn = len(data) < len(X)
        raise GroupSizeError(
            f"{name} is {data.main.classes[int(np.argmin(rows))]} in {rows.min()} of {len(data):,} rows; an audit "
            f"needs at least {MIN_CELL_ROWS} rows of every class. "
            + (f"Pass max_rows {len(X)}, " if drawn else "Pass more rows, ")
            + "or leave the class out."
        )
    data = data.with_duplicate_clusters(row_hashes(data.X))
    if data.clusters_are_duplicates and data.clusters is not None:
        repeated = len(data) - len(np.unique(data.clusters))
        notes.append(f"{repeated:,} rows are exact duplicates of others; duplicates count once in all tests.")
    notes += (f"About the features: {note}" for note in scale_notes(data.X))
    return data, given, tuple(notes)


@dataclass(frozen=True, slots=True)
class _Coded:
    """A column as codes 0 … m − 1 (−1 where it is missing), and its values as text.

    `unpooled` has the codes of classes before rare ones were pooled; those of a number are its bins, with a largest
    value, of `edges`, for all but the last.
    """

    codes: IntArray
    unpooled: IntArray
    values: tuple[str, ...]
    kind: Kind
    notes: tuple[str, ...] = ()
    edges: FloatArray | None = None


class _NotAuditable(Exception):  # noqa: N818 — a reason, never seen by users
    """A column cannot be judged; the message is the reason."""


def _coded(values: Any) -> _Coded:
    """The classes or bins of a column, by its dtype in pandas; raises _NotAuditable if it has none."""
    from pandas.api import types

    column = _series(values)
    if not types.is_numeric_dtype(column) and types.infer_dtype(column, skipna=True) in _TIMES:
        raise _NotAuditable("it holds dates or times; audit their year or hour as a column of its own")
    numeric = types.is_numeric_dtype(column) and not types.is_bool_dtype(column)
    if types.is_complex_dtype(column):
        raise _NotAuditable("it holds complex numbers")
    present = column.notna().to_numpy()
    known = column[present]
    if not numeric:
        known = known.astype(str)
    seen, inverse, counts = np.unique(
        known.to_numpy(np.float64) if numeric and not types.is_integer_dtype(column) else known.to_numpy(),
        return_inverse=True,
        return_counts=True,
    )
    if len(seen) < 2:
        raise _NotAuditable(f"it is constant ({brief(seen[0], 40)})" if len(seen) else "it is missing in all rows")
    codes = np.full(len(column), -1, dtype=np.intp)
    many = len(seen) > MAX_VALUES
    if many and types.is_integer_dtype(column) and 2 * len(seen) > len(known):
        raise _NotAuditable(
            f"it looks like an id: {len(seen):,} distinct whole numbers in {len(known):,} rows. If it is a "
            "measurement, pass it as floats (on the command line, name it with --column)"
        )
    if many and numeric:
        numbers = known.to_numpy(np.float64)
        edges, bins = _bins(numbers)
        codes[present] = np.searchsorted(edges, numbers, side="left")
        return _Coded(codes, codes, bins, "number", (f"a number, in {len(bins)} bins at its quantiles",), edges)
    if MIN_CELL_ROWS * len(seen) > len(known):
        raise _NotAuditable(
            f"it has {len(seen):,} distinct values in {len(known):,} rows, fewer than {MIN_CELL_ROWS} rows each"
            if 2 * len(seen) <= len(known)
            else f"it is nearly unique: {len(seen):,} distinct values in {len(known):,} rows, as an id or a text has"
        )
    kept = counts >= MIN_CELL_ROWS
    if kept.sum() >= MAX_VALUES:
        kept = np.argsort(np.argsort(-counts, kind="stable")) < MAX_VALUES - 1
    unpooled = codes.copy()
    unpooled[present] = inverse.reshape(-1)
    codes[present] = np.where(kept, np.cumsum(kept) - 1, kept.sum())[inverse.reshape(-1)]
    names = tuple(brief(value, 40) for value in seen[kept])
    notes: tuple[str, ...] = ()
    if pooled := int((~kept).sum()):
        names += (brief(seen[~kept][0], 40) if pooled == 1 else "other",)
        notes = (f"{pooled:,} rare values count as one",) if pooled > 1 else ()
    return _Coded(codes, unpooled, names, "classes", notes)


#: What pandas calls columns of dates and times.
_TIMES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period", "interval")


def _series(values: Any) -> pd.Series:
    """A column as a Series of the dtype that its values have."""
    import pandas as pd

    if not isinstance(values, pd.Series):
        values = as_labels(values)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise _NotAuditable(f"it is an array of shape {values.shape}, and not one value for each row")
        values = pd.Series(values)
    return values.infer_objects()


def as_measurement(values: Any) -> pd.Series:
    """A column of whole numbers as floats, so that it is not taken for an id; others as they are."""
    from pandas.api.types import is_bool_dtype, is_integer_dtype

    column = _series(values)
    return column.astype("Float64") if is_integer_dtype(column) and not is_bool_dtype(column) else column


def bin_labels(numbers: Any, audited: Any = None) -> Array:
    """The bin of each number, as text, shape (n,); "" where it is missing.

    Bins are those of an audit of the numbers `audited`, a part of them; of all by default. Raises LabelError for
    numbers that have no bins.
    """
    try:
        column = _coded(numbers if audited is None else audited)
    except _NotAuditable as reason:
        raise LabelError(f"The column has no classes: {reason}.") from None
    if column.edges is None:
        raise LabelError("The column has no bins: it has few distinct values.")
    values = _series(numbers).to_numpy(np.float64, na_value=np.nan)
    codes = np.searchsorted(column.edges, values, side="left")
    return np.array([*column.values, ""])[np.where(np.isnan(values), -1, codes)]


def _bins(numbers: FloatArray) -> tuple[FloatArray, tuple[str, ...]]:
    """Largest values of the bins of a number at its quantiles, of all but the last bin, and the names of the bins."""
    edges = np.unique(np.quantile(numbers, np.arange(1, BINS) / BINS, method="lower"))
    if len(edges) == 1 and edges[0] == numbers.max():  # most rows have the largest value
        edges = numbers[numbers < edges[0]].max(keepdims=True)
    elif edges[-1] == numbers.max():  # nothing is above it
        edges = edges[:-1]
    for digits in range(3, 18):  # as many as tell the edges apart
        texts = [f"{edge:.0f}" if abs(edge) < 1e6 and edge == round(edge) else f"{edge:.{digits}g}" for edge in edges]
        if len(set(texts)) == len(texts):
            break
    return edges, (f"≤ {texts[0]}", *(f"{a} – {b}" for a, b in pairwise(texts)), f"> {texts[-1]}")


@dataclass(frozen=True, slots=True)
class _Cells:
    """A column against the task, on the `known` rows.

    Attributes
    ----------
    column : codes and values.
    counts : rows of each class and value, shape (K, m).
    aligned : whether a value is more frequent in a class than overall, shape (K, m).
    compared : classes and values with enough rows in all their combinations, two boolean masks.
    smallest : rows of the rarest combination before values are pooled; of copies one counts.
    """

    column: _Coded
    counts: IntArray
    aligned: BoolArray
    compared: tuple[BoolArray, BoolArray]
    smallest: int


def _cells(values: Any, data: LabelledData) -> _Cells:
    """The table of a column and the task; raises _NotAuditable if the column cannot be judged."""
    column = _coded(values)
    known, main = np.flatnonzero(column.codes >= 0), data.main
    shape = len(main.classes), len(column.values)
    cell = main.codes[known] * shape[1] + column.codes[known]
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    if reason := _same_as_task(main, column.unpooled):
        raise _NotAuditable(reason)
    units = counts
    if data.clusters is not None:
        pairs = np.unique(np.stack([data.clusters[known], cell]), axis=1)[1]
        units = np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)
    aligned = counts * counts.sum() > np.outer(counts.sum(axis=1), counts.sum(axis=0))
    if not aligned.any():
        raise _NotAuditable(f"it is independent of {main.name} in these rows: every value is as frequent in each class")
    compared = _compared(units)
    within = aligned[np.ix_(*compared)] if compared is not None else aligned[:0]
    if compared is None or not np.any(within.any(axis=1) & ~within.all(axis=1)):
        what = "rows" if data.clusters is None else "clusters"
        raise _NotAuditable(
            f"too few {what} in a cell: no class of {main.name} has at least {MIN_CELL_ROWS} {what} of a value that "
            "goes with it and of one that does not"
        )
    return _Cells(column, counts, aligned, compared, _smallest_group(column.unpooled, data))


def _smallest_group(codes: IntArray, data: LabelledData) -> int:
    """Rows of the rarest combination of a class of the task and a value; 0 if one does not occur."""
    known = np.flatnonzero(codes >= 0)
    group = data.main.codes[known] * (codes.max() + 1) + codes[known]
    if data.clusters_are_duplicates and data.clusters is not None:
        group = np.unique(np.stack([data.clusters[known], group]), axis=1)[1]
    return int(np.bincount(group, minlength=len(data.main.classes) * (int(codes.max()) + 1)).min())


def _same_as_task(main: ClassLabel, codes: IntArray) -> str:
    """Why a column says the same as the task, or less, or more; "" if it does not."""
    known = codes >= 0
    pairs = np.unique(np.stack([main.codes[known], codes[known]]), axis=1)
    one_value, one_class = (len(np.unique(part)) == pairs.shape[1] for part in pairs)
    if one_value and one_class:
        return f"it equals {main.name}"
    if one_class:
        return f"it determines {main.name}: each of its values occurs with one class only"
    return f"{main.name} determines it: each class has one of its values only" if one_value else ""


def _compared(units: IntArray) -> tuple[BoolArray, BoolArray] | None:
    """Masks of classes and values whose combinations all have enough rows; None if two values do not remain.

    The class or value with the largest share of small combinations is left out, one after the other.
    """
    classes, values = (np.ones(size, dtype=bool) for size in units.shape)
    while (few := (units < MIN_CELL_ROWS) & classes[:, None] & values).any():
        by_class, by_value = few.sum(axis=1) / values.sum(), few.sum(axis=0) / classes.sum()
        if values.sum() > 2 and (classes.sum() == 1 or by_value.max() >= by_class.max()):
            values[np.argmax(by_value)] = False
        elif classes.sum() > 1:
            classes[np.argmax(by_class)] = False
        else:
            return None
    return classes, values


def _association_and_gap(name: str, cells: _Cells, data: LabelledData, right: BoolArray) -> AuditedColumn:
    """Association and gap of a column, not yet probed."""
    known = np.flatnonzero(cells.column.codes >= 0)
    value, y = cells.column.codes[known], data.main.codes[known]
    clusters = None if data.clusters is None else data.clusters[known]
    classes, values = cells.compared
    within = cells.aligned & values
    classes = classes & within.any(axis=1) & (~cells.aligned & values).any(axis=1)
    used = classes[y] & values[value]
    place = np.cumsum(classes) - 1
    aligned = cells.aligned[y, value][used]
    group = 2 * place[y[used]] + ~aligned
    # The gap is 2 m − 1, with m the mean of the accuracies of aligned rows and the error rates of conflicting ones.
    success = (right[known][used] == aligned) * 1.0
    rows = np.bincount(group).astype(np.float64)
    share = np.bincount(group, weights=success) / rows
    effective = rows
    if clusters is not None:
        code = renumbered(clusters[used])
        held_out = HeldOutClusters.in_groups(code, group, len(rows), np.ones(len(group)))
        effective = cluster_effective_rows(rows, share, success, held_out, 0.95)
    low, high = mean_interval(share, effective, float(norm.isf(0.025)))
    p = p_above(share, effective, 0.5)
    if clusters is None and p < MAX_P_EXACT and len(rows) <= 2 * MAX_EXACT_CLASSES:
        p = _permutation_p(rows.astype(np.intp), np.bincount(group, weights=right[known][used]).astype(np.intp))
    gap = Estimate(2 * float(share.mean()) - 1, 2 * low - 1, 2 * high - 1, p)
    notes = cells.column.notes
    if not values.all():
        left_out = brief(", ".join(repr(cells.column.values[k]) for k in np.flatnonzero(~values)))
        notes += (f"visible and gap leave out {left_out}: too few rows with some class of {data.main.name}",)
    if not classes.all():
        notes += (f"the gap is that of {classes.sum()} of {len(classes)} classes: the others have too few rows",)
    return AuditedColumn(
        name=name,
        kind=cells.column.kind,
        values=cells.column.values,
        rows=len(known),
        smallest_group=cells.smallest,
        association=_association(cells.counts, y, value, clusters),
        visibility=None,
        chance=1.0 / int(values.sum()),
        gap=gap,
        aligned=float(share[::2].mean()),
        conflicting=1.0 - float(share[1::2].mean()),
        notes=notes,
    )


def _permutation_p(rows: IntArray, right: IntArray) -> float:
    """P-value of the gap if values were permuted within each class: a sum of independent hypergeometric numbers.

    `rows` and `right` are numbers of all rows and of right ones, aligned and conflicting in turn, class by class. The
    distribution is exact but for a grid to which every number is rounded up, so p is never too small.
    """
    n, aligned = rows.reshape(-1, 2), rows[::2]
    hits = right.reshape(-1, 2)
    total, correct = n.sum(axis=1), hits.sum(axis=1)
    unit = (1.0 / n).sum(axis=1)  # of the gap, times the number of classes
    variance = aligned * n[:, 1] * correct * (total - correct) / (total**2 * (total - 1.0))
    step = float(np.sqrt(np.sum(unit**2 * variance))) / (GRID_POINTS * len(n))
    if step == 0:  # all rows are right, or all are wrong
        return 1.0
    chances, first = np.ones(1), 0
    for k in range(len(n)):
        low, high = max(0, correct[k] + aligned[k] - total[k]), min(correct[k], aligned[k])
        number = np.arange(low, high + 1)
        place = np.ceil(unit[k] * (number - hits[k, 0]) / step - 1e-9).astype(np.intp)
        own = np.bincount(place - place[0], weights=hypergeom.pmf(number, total[k], correct[k], aligned[k]))
        chances, first = fftconvolve(chances, own), first + int(place[0])
    return float(np.clip(chances[max(0, -first) :].sum(), 0.0, 1.0))


def _association(counts: IntArray, y: IntArray, value: IntArray, clusters: IntArray | None) -> Estimate:
    """Cramér's V, its interval, and the p-value of independence.

    The interval is the wider of two: that of a noncentral χ², which is right if V is small, and that of the delta
    method, which is right if it is large.
    """
    n, (k, m) = int(counts.sum()), counts.shape
    p = counts / n
    p_y, p_value = p.sum(axis=1), p.sum(axis=0)
    ratio = p / np.outer(p_y, p_value)
    most, freedom = min(k, m) - 1, (k - 1) * (m - 1)
    squared = float(np.sum(p * ratio)) - 1.0
    influence = 2 * ratio - np.sum(p * ratio, axis=1, keepdims=True) / p_y[:, None]
    influence = (influence - np.sum(p * ratio, axis=0) / p_value)[y, value]
    variance = float(influence @ influence) / n**2
    effective = float(n)
    if clusters is not None:
        sums = np.bincount(clusters, weights=influence)
        by_cluster = float(sums @ sums) / n**2
        effective = n / max(1.0, by_cluster / variance) if variance > 0 else float(len(np.unique(clusters)))
        variance = max(variance, by_cluster)
    v = float(np.sqrt(max(0.0, squared) / most))
    statistic, tail, z = effective * max(0.0, squared), 0.025, float(norm.isf(0.025))
    bounds = []
    for probability in (1 - tail, tail):
        inside = chdtr(freedom, statistic) > probability
        bounds.append(float(np.sqrt(chndtrinc(statistic, freedom, probability) / effective / most)) if inside else 0.0)
    if v > 0:
        margin = z * float(np.sqrt(variance)) / (2 * v * most)
        bounds = [min(bounds[0], max(0.0, v - margin)), max(bounds[1], v + margin)]
    corrected = float(np.sqrt(max(0.0, squared - freedom / effective) / most))
    low, high = min(bounds[0], corrected), min(1.0, max(bounds[1], corrected))
    return Estimate(min(1.0, corrected), low, high, _independence(counts, y, value, clusters))


def _independence(counts: IntArray, y: IntArray, value: IntArray, clusters: IntArray | None) -> float:
    """P-value of independence: the smallest of one class against one value, times the number of such tests.

    Each is Fisher's exact test, which is right with small counts. With clusters it is also a t-test of cluster sums,
    and the larger p-value counts. Its degrees of freedom are Satterthwaite's for clusters whose rows are all alike, so
    few large clusters count as few.
    """
    of_class = range(1, 2) if counts.shape[0] == 2 else range(counts.shape[0])
    of_value = range(1, 2) if counts.shape[1] == 2 else range(counts.shape[1])
    part = counts[np.ix_(of_class, of_value)]
    rows, columns = counts.sum(axis=1)[list(of_class), None], counts.sum(axis=0)[list(of_value)]
    n = int(counts.sum())
    p = 2 * np.minimum(hypergeom.cdf(part, n, rows, columns), hypergeom.sf(part - 1, n, rows, columns))
    if clusters is not None:
        squares = np.bincount(clusters).astype(np.float64) ** 2
        number = np.count_nonzero(squares)
        degrees = max(1.0, float(squares.sum() ** 2 / (squares @ squares)) - 1.0)
        for i, k in enumerate(of_class):
            for j, m in enumerate(of_value):
                own = ((y == k) - rows[i, 0] / n) * ((value == m) - columns[j] / n)
                sums = np.bincount(clusters, weights=own)
                error = float(np.sqrt(sums @ sums * number / (number - 1)))
                t = abs(float(sums.sum())) / error if error > 0 else 0.0
                p[i, j] = max(p[i, j], 2 * float(student.sf(t, degrees)))
    return float(min(1.0, p.min() * p.size))


def _with_probes(
    judged: list[tuple[AuditedColumn, _Cells]],
    data: LabelledData,
    level: float,
    max_probes: int,
    probe_all: bool,
    rng: np.random.Generator,
    callback: Callable[[str], object],
) -> tuple[AuditedColumn, ...]:
    """The columns with their probes, corrected p-values and verdicts, ranked."""
    columns = [column for column, _ in judged]
    associated_and_used = holm([max(column.association.p, column.gap.p) for column in columns])
    order = sorted(range(len(judged)), key=lambda i: (associated_and_used[i] > level, -columns[i].gap.low))
    seeds = rng.integers(2**32, size=len(judged))
    worth_probing = len(columns) if probe_all else sum(p <= level for p in associated_and_used)
    for i in order[: min(max_probes, worth_probing)]:
        callback(columns[i].name)
        columns[i] = replace(columns[i], visibility=_visibility(judged[i][1], data, np.random.default_rng(seeds[i])))
    p = np.array([(c.association.p, 1.0 if c.visibility is None else c.visibility.p, c.gap.p) for c in columns])
    corrected = np.array([holm(test) for test in (*p.reshape(-1, 3).T, p.reshape(-1, 3).max(axis=1))]).T
    found = []
    for column, (associated, visible, used, all_three) in zip(columns, corrected.tolist(), strict=True):
        flags = (all_three <= level, associated <= level, visible <= level, used <= level)
        nearly = ("nearly the task itself, so its removal is not recommended",) if column.is_nearly_the_task else ()
        seen = column.visibility
        found.append(
            replace(
                column,
                association=replace(column.association, p_corrected=associated),
                visibility=None if seen is None else replace(seen, p_corrected=visible),
                gap=replace(column.gap, p_corrected=used),
                flagged=flags[0],
                verdict=_verdict(column, *flags, len(columns)),
                notes=column.notes + nearly,
            )
        )
    return tuple(sorted(found, key=lambda column: (not column.flagged, -column.gap.low)))


def holm(p: list[float]) -> list[float]:
    """P-values corrected by Holm's procedure: those up to a level are rejected at that level for all together."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate((len(p) - np.arange(len(p))) * np.asarray(p, dtype=np.float64)[order])
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1.0, steps)
    return [float(value) for value in corrected]


def _verdict(column: AuditedColumn, flagged: bool, associated: bool, visible: bool, used: bool, judged: int) -> str:
    """What the three tests say, in words; `judged` columns were tested."""
    corrected = f"not significant after correction for {counted(judged, 'column')}"
    seen = column.visibility
    use = f"its use is {corrected}" if column.gap.low > 0 else "no sign that an unweighted head uses it"
    if flagged:
        return FLAGGED
    if not associated:
        return (
            f"its association with the task is {corrected}"
            if column.association.low > 0
            else "no sign that it is associated with the task"
        )
    if seen is None:
        return "associated with the task" + (", and errors depend on it; not probed" if used else f"; {use}")
    if not visible:
        shown = f"its visibility is {corrected}" if seen.low > column.chance else "no sign that the embedding shows it"
        return f"associated with the task; {shown}"
    if used:
        return f"associated with the task, visible, and used, but the three together are {corrected}"
    return f"associated with the task and visible; {use}"


def _visibility(cells: _Cells, data: LabelledData, rng: np.random.Generator) -> Estimate | None:
    """Balanced accuracy of a linear probe of the column, with every combination of task and value weighing the same.

    None if clusters leave too few rows to train or test a probe on.
    """
    classes, values = cells.compared
    codes, y = cells.column.codes, data.main.codes
    usable = (codes >= 0) & classes[y] & values[codes]
    shape = len(classes), len(values)
    group = np.where(usable, y * shape[1] + codes, -1)
    groups = np.unique(group[usable])
    members = [rng.permutation(np.flatnonzero(group == g))[: MAX_PROBE_ROWS // len(groups)] for g in groups]
    rows = np.sort(np.concatenate(members))
    part = replace(data.select(rows), y=_label(group[rows], "group"))
    weight = 1.0 / np.bincount(part.main.codes)[part.main.codes]
    label, cross_fitted = _label(codes[rows], "column"), len(rows) <= MAX_CROSS_FITTED_ROWS
    fold = part.folds(AUDIT_FOLDS if cross_fitted else 2, rng)
    try:
        found = leakage(
            np.asarray(part.X),
            label,
            cv=fold_pairs(fold)[: AUDIT_FOLDS if cross_fitted else 1],
            sample_weight=weight,
            clusters=part.clusters,
            random_state=rng,
        )
    except (GroupSizeError, LabelError):
        return None
    return Estimate(found.accuracy, found.low, found.high, found.p)


def _label(values: IntArray, name: str) -> ClassLabel:
    """Codes, numbered without gaps, as a label."""
    seen, codes = np.unique(values, return_inverse=True)
    return ClassLabel(codes.reshape(-1).astype(np.intp), np.ones(len(values), dtype=bool), tuple(seen.tolist()), name)
