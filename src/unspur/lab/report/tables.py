"""Results as plain text that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from unspur.lab.compare import Comparison
from unspur.metrics import GroupAccuracy


def group_table(results: dict[str, GroupAccuracy], main: str | None = None, concept: str | None = None) -> str:
    """One line per group, one column per method: accuracy in % with the half-width of its 95 % interval.

    `main` and `concept` name the labels in place of what the results call them (`concept` where there is one). The
    interval of the worst group is that of `GroupAccuracy.worst_interval`.
    """
    first = next(iter(results.values()))
    names = [*first.names]
    names[0] = main or names[0]
    if len(names) == 2:
        names[1] = concept or names[1]
    labels = [label if len(label) <= 34 else label[:33] + "…" for label in first.labels(tuple(names))]
    width = max(len(label) for label in [*labels, "average over groups"])
    lines = [f"{'accuracy, %':<{width}} {'rows':>7}" + "".join(f"{name:>16}" for name in results)]
    lines.append("─" * len(lines[0]))
    for label, (index, _) in zip(labels, first.groups(), strict=True):
        cells = []
        for result in results.values():
            low, high = result.interval()[index]
            known = f"{100 * result.accuracy[index]:>9.1f} ± {50 * (high - low):>4.1f}"
            cells.append(known if result.rows[index] else f"{'–':>9}{'':>7}")
        lines.append(f"{label:<{width}} {first.rows[index]:>7}" + "".join(cells))
    lines.append("─" * len(lines[0]))
    bounds = [result.worst_interval() for result in results.values()]
    for label, cells in (
        ("worst group", [_single(result.worst) for result in results.values()]),
        ("  95 % interval", [f"{100 * low:>9.1f} – {100 * high:>4.1f}" for low, high in bounds]),
        ("average over groups", [_single(result.group_average) for result in results.values()]),
        ("average over rows", [_single(result.average) for result in results.values()]),
    ):
        lines.append(f"{label:<{width}} {'':>7}" + "".join(cells))
    return "\n".join(line.rstrip() for line in lines)


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
            lines.append(f"{start}  {result.problem}")
            continue
        low, high = (100 * bound for bound in result.accuracy.worst_interval())
        worst = f"{100 * result.accuracy.worst:.1f} ({low:.1f} – {high:.1f})"
        averages = f"{100 * result.accuracy.group_average:>7.1f}{100 * result.accuracy.average:>7.1f}"
        loss = "" if result.validation_loss is None else f"{result.validation_loss:.3f}"
        lines.append(f"{start}{result.removed:>7}{worst:>22}{averages}{loss:>7}{result.seconds:>7.1f}")
    return "\n".join(lines)
