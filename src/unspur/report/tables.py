"""Tables of results: frames of text, which the page shows, and one renderer for terminals of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unspur._text import WIDTH, filled, one_line
from unspur.compare import Comparison
from unspur.metrics import GroupAccuracy, PairedDifference
from unspur.metrics.groups import NO_GROUP
from unspur.report.results import Findings, MethodResult
from unspur.report.words import bounds, clipped, count, number, p_value, signed, signed_bounds

if TYPE_CHECKING:
    import pandas as pd

    from unspur.metrics import Leakage
    from unspur.trace import Trace

#: Longest name of a row in a table, and columns of an audit that the page shows.
MAX_NAME, MAX_AUDIT_LINES = 80, 20
#: In a terminal: widest column of numbers, and methods side by side.
MAX_COLUMN, METHODS_BESIDE = 16, 4


def frame(index: Sequence[str], columns: Mapping[str, Sequence[str]], summaries: int = 0) -> pd.DataFrame:
    """A table of text, whose last rows may be summaries of those above."""
    import pandas as pd

    # Columns are numbered at first, since two may have the same name.
    made = pd.DataFrame(dict(enumerate(columns.values())), index=pd.Index(index, dtype=object), dtype=object)
    made.columns = pd.Index(columns, dtype=object)
    made.attrs["summaries"] = summaries
    return made


def as_text(table: pd.DataFrame, *, width: int = WIDTH) -> str:
    """A table for a terminal; lines of a cell stay lines."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    shown.add_column(str(table.index.name or ""), overflow="fold")
    numeric = numeric_columns(table)
    for k, name in enumerate(map(str, table.columns)):
        if k not in numeric:
            shown.add_column(name, overflow="fold")
            continue
        pieces = [line for cell in table.iloc[:, k] for line in cell.split("\n")] + name.split()
        shown.add_column(name, justify="right", overflow="fold", width=min(max(map(len, pieces)), MAX_COLUMN))
    last = len(table) - table.attrs.get("summaries", 0) - 1
    for k, (label, *cells) in enumerate(table.itertuples(name=None)):
        shown.add_row(one_line(str(label)), *cells, end_section=k == last)
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, markup=False, emoji=False, highlight=False).print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def numeric_columns(table: pd.DataFrame) -> list[int]:
    """Numbers of the columns whose cells are all numbers."""
    cells = zip(*table.to_numpy().tolist(), strict=True)
    return [k for k, column in enumerate(cells) if all(not cell or cell[0] in "0123456789−–<+" for cell in column)]


def group_frame(
    results: Mapping[str, GroupAccuracy],
    groups: Sequence[str] | None = None,
    changes: Mapping[str, Sequence[PairedDifference | None]] | None = None,
    further: Mapping[str, Sequence[str]] | None = None,
) -> pd.DataFrame:
    """Accuracy of every group and its summaries in %, with 95 % intervals: one column for each method.

    `changes` are those of the worst group and of the averages over groups and over rows, by method; `further` rows
    have a text for each method.
    """
    first = next(iter(results.values()))
    names = list(groups or first.labels())
    ungrouped = bool(first.ungrouped_rows)
    columns = {"rows": [*map(count, first.rows.ravel().tolist()), *[count(first.ungrouped_rows)] * ungrouped]}
    columns["rows"] += ["", count(int(first.rows.sum())), count(first.n_rows)]
    for method, result in results.items():
        shares = zip(result.accuracy.ravel().tolist(), result.interval().reshape(-1, 2).tolist(), strict=True)
        cells = [_cell(share, interval) if share == share else "–" for share, interval in shares]
        cells += [f"{100 * result.ungrouped_correct / result.ungrouped_rows:.1f}" for _ in range(ungrouped)]
        summaries = [
            (result.worst, result.worst_interval()),
            (result.group_average, result.group_average_interval()),
            (result.average, result.average_interval()),
        ]
        changed = (changes or {}).get(method) or (None, None, None)
        columns[method] = cells + [_cell(*part, change) for part, change in zip(summaries, changed, strict=True)]
    further = further or {}
    for k, cells in enumerate(columns.values()):
        cells += [row[k - 1] if k else "" for row in further.values()]
    index = [*names, *[NO_GROUP] * ungrouped, "worst group", "average over groups", "average over rows", *further]
    return frame(index, columns, summaries=3 + len(further))


def _cell(share: float, interval: Sequence[float], change: PairedDifference | None = None) -> str:
    text = f"{100 * share:.1f}\n{bounds(interval[0], interval[1])}"
    if change is None:
        return text
    return f"{text}\n{signed(change.value)} ({signed_bounds(change.low, change.high)})"


def group_table(
    results: Mapping[str, GroupAccuracy],
    main: str | None = None,
    concept: str | None = None,
    *,
    penalties: Mapping[str, float | None] | None = None,
) -> str:
    """Accuracy of every group, in %, for a terminal: one line per group, one column per method.

    `main` and `concept` replace the names of the labels in the results (`concept` if there is one); `penalties` are
    those of the heads.
    """
    blocks = [list(results)[k : k + METHODS_BESIDE] for k in range(0, len(results), METHODS_BESIDE)]
    if len(blocks) > 1:
        parts = ({name: results[name] for name in block} for block in blocks)
        return "\n\n".join(group_table(part, main, concept, penalties=penalties) for part in parts)
    names = next(iter(results.values())).names
    names = (main or names[0], concept or names[1]) if len(names) == 2 else (main or names[0], *names[1:])
    further = {"penalty": [number(penalties.get(name), 6) for name in results]} if penalties else {}
    made = group_frame({name: replace(result, names=names) for name, result in results.items()}, further=further)
    made.index.name = "accuracy, %"
    return as_text(made)


def accuracies_and_penalties(
    methods: Mapping[str, MethodResult],
) -> tuple[dict[str, GroupAccuracy], dict[str, float | None]]:
    """Accuracies and penalties of the unweighted and the group-weighted head of every method, by name."""
    accuracies: dict[str, GroupAccuracy] = {}
    penalties: dict[str, float | None] = {}
    for name, result in methods.items():
        for called, head in ((name, result), (f"{name}, group-weighted", result.weighted)):
            if head is not None and head.accuracy is not None:
                accuracies[called], penalties[called] = head.accuracy, head.penalty
    return accuracies, penalties


def accuracy_frame(findings: Findings, *, weighted: bool) -> pd.DataFrame | None:
    """Accuracies of all methods with unweighted or with group-weighted heads; None if no head could be fitted."""
    heads = {result.name: result.weighted if weighted else result for result in findings.results}
    known = {name: head for name, head in heads.items() if head is not None and head.accuracy is not None}
    if not known:
        return None
    changes = {name: (one.worst_change, one.group_average_change, one.average_change) for name, one in known.items()}
    accuracies = {name: head.accuracy for name, head in known.items() if head.accuracy is not None}
    further = {
        "directions removed": [str(head.n_removed) for head in known.values()],
        "penalty": [number(head.penalty, 6) for head in known.values()],
    }
    made = group_frame(accuracies, findings.groups, changes, further)
    made.index.name = "group"
    return made


def probe_frame(lines: Mapping[str, Mapping[str, Leakage]]) -> pd.DataFrame:
    """What probes find, by what was probed and by method."""
    rows = [(name, method, leak) for name, found in lines.items() for method, leak in found.items()]
    made = frame(
        [clipped(name, MAX_NAME) for name, _, _ in rows],
        {
            "rows": [method for _, method, _ in rows],
            "balanced accuracy, %": [f"{100 * leak.accuracy:.1f}\n{bounds(leak.low, leak.high)}" for *_, leak in rows],
            "chance": [f"{100 * leak.chance:.0f}" for *_, leak in rows],
            "p": [p_value(leak.p) for *_, leak in rows],
        },
    )
    made.index.name = "label"
    return made


def trace_frame(trace: Trace) -> pd.DataFrame:
    """Every direction that a fit tested, with its statistics and the decision."""
    tests = [(step.verdict.informative, step.verdict.specific) for step in trace]
    made = frame(
        [step.place for step in trace],
        {
            "direction": ["task" if step.verdict.role == "main" else "concept" for step in trace],
            "informative: t, p": [f"{number(one.t)}\n{p_value(one.p)}" for one, _ in tests],
            "specific: t, p": [f"{number(other.t)}\n{p_value(other.p)}" for _, other in tests],
            "decision": [step.verdict.decision for step in trace],
            "reason": [step.verdict.reason for step in trace],
        },
    )
    made.index.name = "step"
    return made


def audit_frame(findings: Findings) -> pd.DataFrame | None:
    """The first columns of the audit; None without one."""
    if findings.audit is None:
        return None
    shown = findings.audit.columns[:MAX_AUDIT_LINES]

    def told(estimate: Any, unit: float, digits: int) -> str:
        if estimate is None:
            return "–"
        value, low, high = (f"{unit * part:.{digits}f}" for part in (estimate.value, estimate.low, estimate.high))
        return f"{value}\n{low} – {high}".replace("-", "−")

    marks = [
        f"{'✓ ' if one.flagged else ''}{clipped(one.name, MAX_NAME)}"
        f"{' (removed here)' if one.name in findings.concepts else ''}"
        for one in shown
    ]
    made = frame(
        marks,
        {
            "association, V": [told(one.association, 1, 2) for one in shown],
            "visible, %": [told(one.visibility, 100, 0) for one in shown],
            "gap, points": [told(one.gap, 100, 1) for one in shown],
            "verdict": ["; ".join((one.verdict, *one.notes)) for one in shown],
        },
    )
    made.index.name = "column"
    return made


def comparison_table(results: Sequence[Comparison]) -> str:
    """One row per remover and head, for a terminal: directions removed, accuracies, loss, probe, penalty.

    The recommended combination has an arrow, and those tied with the best on held-out rows have a "=".
    """
    rows: list[tuple[str, ...]] = []
    previous, problems, notes = "", list[str](), dict.fromkeys(note for result in results for note in result.notes)
    for result in results:
        first, previous = result.remover != previous, result.remover
        start = ("→ " if result.recommended else "  ") + result.remover if first or result.recommended else ""
        if result.accuracy is None:
            problems.append(f"{result.remover} + {result.head}: {result.problem}")
            rows.append((start, result.head, *["–"] * 7))
            continue
        found = max((100 * one.accuracy for one in result.probes.values()), default=None) if first else None
        low, high = result.accuracy.worst_interval()
        rows.append(
            (
                start,
                result.head,
                str(result.n_removed),
                f"{100 * result.accuracy.worst:.1f} ({100 * low:.0f}–{100 * high:.0f})",
                f"{100 * result.accuracy.group_average:.1f}",
                f"{100 * result.accuracy.average:.1f}",
                "" if result.held_out is None else f"{result.held_out.loss:.3f}{'=' if result.tied_with_best else ' '}",
                "" if found is None else f"{found:.1f}",
                f"{result.parameters['penalty']:g}{'!' if result.grid_edge else ''}",
            )
        )
    names = ("head", "dirs", "worst (95 %)", "group", "rows", "loss", "probe", "penalty")
    made = frame([row[0] for row in rows], {name: [row[k] for row in rows] for k, name in enumerate(names, 1)})
    made.index.name = "  remover"
    chances = {name: one.chance for result in results for name, one in result.probes.items()}
    each = ", ".join(f"{name} {100 * share:.1f}" for name, share in chances.items())
    legend = [
        "Accuracy on test rows in %: worst group, average over groups, average over rows. dirs: directions removed; "
        "loss: on held-out rows.",
        *[f"probe: balanced accuracy of a fresh linear probe on test rows; chance: {each}."] * bool(chances),
        *["→ the recommended combination, that of RobustClassifier."] * any(one.recommended for one in results),
        *["= tied with the best: not clearly worse on held-out rows (paired by row, 95 % for all combinations)."]
        * any(one.tied_with_best for one in results),
        *["! the largest or smallest penalty that was tried; a better one may lie outside the grid."]
        * any(one.grid_edge for one in results),
    ]
    return "\n".join([as_text(made), "", *(filled(line, further="  ") for line in (*legend, *problems, *notes))])
