"""Results as plain text that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from unspur._text import WIDTH, columns, filled, lines_of, padded
from unspur.lab.compare import Comparison
from unspur.metrics import GroupAccuracy
from unspur.metrics.groups import NO_GROUP

#: Columns of the names of groups at most, of the numbers of rows, and of a method.
NAMES, COUNTS, CELL = 36, 8, 16


def group_table(results: dict[str, GroupAccuracy], main: str | None = None, concept: str | None = None) -> str:
    """One line per group, one column per method: accuracy in % with the half-width of its 95 % interval.

    `main` and `concept` name the labels in place of what the results call them (`concept` where there is one). The
    interval of the worst group is that of `GroupAccuracy.worst_interval`. Long names of labels stand above the table,
    long names of classes take several lines, and methods that do not fit beside each other stand below each other.
    """
    first = next(iter(results.values()))
    names = [*first.names]
    names[0] = main or names[0]
    if len(names) == 2:
        names[1] = concept or names[1]
    labels, above = first.labels(tuple(names)), ""
    if sum(map(columns, names)) > NAMES:
        labels = [", ".join(map(str, classes)) for _, classes in first.groups()]
        above = filled(f"groups: {' × '.join(names)}", further="  ") + "\n\n"
    width = min(max(columns(label) for label in [*labels, "average over groups", NO_GROUP]), NAMES)
    shown = [[label] if columns(label) <= width else lines_of(label, width - 2) for label in labels]
    if len(set(map(tuple, shown))) < len(labels):  # cut short, two groups would look alike
        shown = [lines_of(label, width - 2, most=len(label)) for label in labels]
    at_once = (WIDTH - width - COUNTS) // CELL
    methods = list(results)
    blocks = [methods[start : start + at_once] for start in range(0, len(methods), at_once)]
    return above + "\n\n".join(_group_block({name: results[name] for name in block}, shown, width) for block in blocks)


def _group_block(results: dict[str, GroupAccuracy], labels: Sequence[Sequence[str]], width: int) -> str:
    """The table of methods that fit beside each other."""
    first = next(iter(results.values()))
    lines = _heads(list(results), width)
    rule = "─" * (width + COUNTS + CELL * len(results))
    lines.append(rule)
    for (start, *others), (index, _) in zip(labels, first.groups(), strict=True):
        cells = []
        for result in results.values():
            low, high = result.interval()[index]
            known = f"{100 * result.accuracy[index]:>9.1f} ± {50 * (high - low):>4.1f}"
            cells.append(known if result.rows[index] else f"{'–':>9}{'':>7}")
        lines.append(f"{padded(start, width)}{first.rows[index]:>{COUNTS}}" + "".join(cells))
        lines += [f"  {other}" for other in others]
    if first.ungrouped_rows:
        shares = [_single(result.ungrouped_correct / result.ungrouped_rows) for result in results.values()]
        lines.append(f"{NO_GROUP:<{width}}{first.ungrouped_rows:>{COUNTS}}" + "".join(shares))
    lines.append(rule)
    bounds = [result.worst_interval() for result in results.values()]
    for label, cells in (
        ("worst group", [_single(result.worst) for result in results.values()]),
        ("  95 % interval", [f"{100 * low:>9.1f} – {100 * high:>4.1f}" for low, high in bounds]),
        ("average over groups", [_single(result.group_average) for result in results.values()]),
        ("average over rows", [_single(result.average) for result in results.values()]),
    ):
        lines.append(f"{label:<{width}}{'':>{COUNTS}}" + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def _heads(methods: Sequence[str], width: int) -> list[str]:
    """The lines above a rule, in which names of methods end at the bottom."""
    names = [lines_of(name, CELL - 1) for name in methods]
    height = max(map(len, names))
    names = [[""] * (height - len(name)) + name for name in names]
    starts = [""] * (height - 1) + [f"{'accuracy, %':<{width}}{'rows':>{COUNTS}}"]
    lines = []
    for start, parts in zip(starts, zip(*names, strict=True), strict=True):
        cells = "".join(" " * (CELL - columns(part)) + part for part in parts)
        lines.append(f"{start:<{width + COUNTS}}{cells}".rstrip())
    return lines


def _single(share: float) -> str:
    return f"{100 * share:>9.1f}{'':>7}"


def comparison_table(results: Sequence[Comparison]) -> str:
    """One line per remover and head: directions removed, accuracies, validation loss, seconds."""
    wide = {"worst group (95 %)": 22, "groups": 7, "rows": 7, "loss": 7, "s": 7}
    head = f"{'remover':<8}{'head':<14}{'removed':>7}" + "".join(f"{name:>{n}}" for name, n in wide.items())
    lines = ["accuracy, %: worst group, average over groups, over rows; validation loss", head, "─" * len(head)]
    previous = ""
    for result in results:
        name = "" if result.remover == previous else result.remover
        previous = result.remover
        start = f"{name:<8}{result.head:<14}"
        if result.accuracy is None:
            lines.append(filled(result.problem, f"{start}  ", " " * (len(start) + 2)))
            continue
        low, high = (100 * bound for bound in result.accuracy.worst_interval())
        worst = f"{100 * result.accuracy.worst:.1f} ({low:.1f} – {high:.1f})"
        averages = f"{100 * result.accuracy.group_average:>7.1f}{100 * result.accuracy.average:>7.1f}"
        loss = "" if result.validation_loss is None else f"{result.validation_loss:.3f}"
        lines.append(f"{start}{result.removed:>7}{worst:>22}{averages}{loss:>7}{result.seconds:>7.1f}")
    return "\n".join(lines)
