"""Results as plain text that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unspur._text import WIDTH, display_width, filled, lines_of, one_line, padded
from unspur.compare import Comparison
from unspur.metrics.groups import NO_GROUP, GroupAccuracy
from unspur.report.results import MethodResult

#: Widths in characters: names of groups at most, numbers of rows, a method.
NAME_COLUMNS, COUNT_COLUMNS, METHOD_COLUMNS = 36, 8, 18


def group_table(
    results: Mapping[str, GroupAccuracy],
    main: str | None = None,
    concept: str | None = None,
    *,
    penalties: Mapping[str, float | None] | None = None,
) -> str:
    """One line per group, one column per method: accuracy in % with its 95 % interval.

    `main` and `concept` replace the names of the labels in the results (`concept` if there is one); `penalties` are
    those of the heads. The interval of the worst group is `GroupAccuracy.worst_interval`. Long names of labels
    stand above the table, long names of classes take several lines, and methods that do not fit side by side stand
    below each other.
    """
    first = next(iter(results.values()))
    names = [*first.names]
    names[0] = main or names[0]
    if len(names) == 2:
        names[1] = concept or names[1]
    labels, above = first.labels(tuple(names)), ""
    if sum(map(display_width, names)) > NAME_COLUMNS:
        labels = [one_line(", ".join(map(str, classes))) for _, classes in first.groups()]
        above = filled(f"groups: {' × '.join(names)}", further="  ") + "\n\n"
    width = min(max(display_width(label) for label in [*labels, "average over groups", NO_GROUP]), NAME_COLUMNS)
    shown = [[label] if display_width(label) <= width else lines_of(label, width - 2) for label in labels]
    if len(set(map(tuple, shown))) < len(labels):  # cut short, two groups would look alike
        shown = [lines_of(label, width - 2, most=len(label)) for label in labels]
    at_once = (WIDTH - width - COUNT_COLUMNS) // METHOD_COLUMNS
    methods = list(results)
    at_once = -(-len(methods) // -(-len(methods) // at_once))  # blocks of about the same width
    blocks = [methods[start : start + at_once] for start in range(0, len(methods), at_once)]
    tables = ({name: results[name] for name in block} for block in blocks)
    return above + "\n\n".join(_group_block(table, shown, width, penalties or {}) for table in tables)


def _group_block(
    results: Mapping[str, GroupAccuracy],
    labels: Sequence[Sequence[str]],
    width: int,
    penalties: Mapping[str, float | None],
) -> str:
    """The table of methods that fit side by side."""
    first = next(iter(results.values()))
    lines = _heads(list(results), width)
    rule = "─" * (width + COUNT_COLUMNS + METHOD_COLUMNS * len(results))
    lines.append(rule)
    for (start, *others), (index, _) in zip(labels, first.groups(), strict=True):
        cells = []
        for result in results.values():
            low, high = result.interval()[index]
            known = f"{100 * result.accuracy[index]:>6.1f} {f'({_bound(low)}–{_bound(high)})':<11}"
            cells.append(known if result.rows[index] else f"{'–':>6}{'':>12}")
        lines.append(f"{padded(start, width)}{first.rows[index]:>{COUNT_COLUMNS}}" + "".join(cells))
        lines += [f"  {other}" for other in others]
    if first.ungrouped_rows:
        shares = [_single(result.ungrouped_correct / result.ungrouped_rows) for result in results.values()]
        lines.append(f"{NO_GROUP:<{width}}{first.ungrouped_rows:>{COUNT_COLUMNS}}" + "".join(shares))
    lines.append(rule)
    bounds = [result.worst_interval() for result in results.values()]
    for label, cells in (
        ("worst group", [_single(result.worst) for result in results.values()]),
        ("  95 % interval", [f"{100 * low:>6.1f} – {100 * high:<9.1f}" for low, high in bounds]),
        ("average over groups", [_single(result.group_average) for result in results.values()]),
        ("average over rows", [_single(result.average) for result in results.values()]),
    ):
        lines.append(f"{label:<{width}}{'':>{COUNT_COLUMNS}}" + "".join(cells))
    if any(name in penalties for name in results):
        chosen = ("–" if (penalty := penalties.get(name)) is None else f"{penalty:g}" for name in results)
        lines.append(
            f"{'penalty chosen':<{width}}{'':>{COUNT_COLUMNS}}" + "".join(f"{text:>6}{'':>12}" for text in chosen)
        )
    return "\n".join(line.rstrip() for line in lines)


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


def penalty_table(methods: Mapping[str, MethodResult]) -> str:
    """Worst group of the test rows in % at every penalty tried; chosen penalties have a star."""
    shown = {name: result for name, result in methods.items() if result.worst_by_penalty}
    heads = [(name, head) for name, result in shown.items() for head in (result, result.weighted)]
    cells = [name for name, _ in heads]
    kinds = ["unweighted", "weighted"] * len(shown)
    header = [
        f"{'worst group, %':<16}" + "".join(f"{name[:15]:>16}" for name in cells),
        f"{'at penalty':<16}" + "".join(f"{kind:>16}" for kind in kinds),
    ]
    text = [*header, "─" * len(header[0])]
    for penalty in next(iter(shown.values())).worst_by_penalty if shown else ():
        figures = []
        for _, head in heads:
            worst = None if head is None else head.worst_by_penalty.get(penalty)
            star = "*" if head is not None and head.penalty == penalty else " "
            figures.append(f"{'–':>15} " if worst is None else f"{100 * worst:>15.1f}{star}")
        text.append(f"{penalty:<16g}" + "".join(figures).rstrip())
    return "\n".join([*text, "* chosen on held-out rows; the test rows shown here are not used to choose."])


def _heads(methods: Sequence[str], width: int) -> list[str]:
    """Header lines, with names of methods aligned at the bottom."""
    names = [lines_of(name, METHOD_COLUMNS - 1) for name in methods]
    height = max(map(len, names))
    names = [[""] * (height - len(name)) + name for name in names]
    starts = [""] * (height - 1) + [f"{'accuracy, %':<{width}}{'rows':>{COUNT_COLUMNS}}"]
    lines = []
    for start, parts in zip(starts, zip(*names, strict=True), strict=True):
        cells = "".join(" " * (METHOD_COLUMNS - display_width(part)) + part for part in parts)
        lines.append(f"{start:<{width + COUNT_COLUMNS}}{cells}".rstrip())
    return lines


def _single(share: float) -> str:
    return f"{100 * share:>6.1f}{'':>12}"


def _bound(share: float) -> str:
    """A bound of an interval in %, at most four characters."""
    return f"{100 * share:.1f}" if share < 0.9995 else "100"


def comparison_table(results: Sequence[Comparison]) -> str:
    """One row per remover and head: directions removed, accuracies, held-out loss, accuracy of a probe, penalty.

    The recommended combination has an arrow, and those tied with the best on held-out rows have a "=".
    """
    wide = {"worst (95 %)": 15, "group": 6, "rows": 6, "loss": 6, " probe": 7, "penalty": 8}
    head_width = 1 + max(display_width(name) for name in ("head", *(result.head for result in results)))
    head = f"  {'remover':<11}{'head':<{head_width}}{'dirs':>5}" + "".join(f"{name:>{n}}" for name, n in wide.items())
    lines = [
        "accuracy on test rows, %: worst group, average over groups, over rows",
        "dirs: directions removed; loss on held-out rows; probe on test rows, %",
        "",
        head,
        "─" * len(head),
    ]
    previous, name, notes = "", list[str](), dict.fromkeys(note for result in results for note in result.notes)
    for result in results:
        first = result.remover != previous
        if first:
            lines += [f"  {part}" for part in name]  # of the remover before, which has too few heads for it
            previous, name = result.remover, lines_of(result.remover, 10)
        start = (
            f"{'→' if result.recommended else '':<2}{name.pop(0) if name else '':<11}{padded(result.head, head_width)}"
        )
        if result.accuracy is None:
            lines.append(filled(result.problem, f"{start}  ", " " * (len(start) + 2)))
            continue
        low, high = (100 * bound for bound in result.accuracy.worst_interval())
        worst = f"{100 * result.accuracy.worst:.1f} ({low:.0f}–{high:.0f})"
        averages = f"{100 * result.accuracy.group_average:>6.1f}{100 * result.accuracy.average:>6.1f}"
        loss = "" if result.held_out is None else f"{result.held_out.loss:.3f}"
        found = max((100 * found.accuracy for found in result.probes.values()), default=None) if first else None
        probe = "" if found is None else f"{found:.1f}"
        penalty = f"{result.parameters['penalty']:g}" + ("!" if result.grid_edge else "")
        tied = "=" if result.tied_with_best else ""
        lines.append(f"{start}{result.n_removed:>5}{worst:>15}{averages}{loss:>6}{tied:<1}{probe:>6}{penalty:>8}")
    lines += [f"  {part}" for part in name]
    return "\n".join([*lines, "", *_legend(results), *map(filled, notes)])


def _legend(results: Sequence[Comparison]) -> list[str]:
    """What the marks of a comparison mean."""
    legend = []
    if any(result.recommended for result in results):
        legend.append("→ the recommended combination, that of RobustClassifier")
    if any(result.tied_with_best for result in results):
        legend.append(
            "= tied with the best: not clearly worse on held-out rows (paired by row, 95 % for all combinations)"
        )
    if chances := {name: found.chance for result in results for name, found in result.probes.items()}:
        if len(chances) == 1:
            legend.append(
                f"probe: balanced accuracy of a fresh linear probe; chance is {100 * min(chances.values()):.1f}"
            )
        else:
            each = ", ".join(f"{name} {100 * chance:.1f}" for name, chance in chances.items())
            legend.append(f"probe: balanced accuracy of a fresh linear probe, the largest of all; chance: {each}")
    if any(result.grid_edge for result in results):
        legend.append("! the largest or smallest penalty that was tried; a better one may lie outside the grid.")
    return [filled(line, further="  ") for line in legend]
