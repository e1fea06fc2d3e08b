"""Results as plain text that fits a terminal of 80 columns."""

from __future__ import annotations

from unspur.metrics import GroupAccuracy


def group_table(results: dict[str, GroupAccuracy], main: str = "main", concept: str = "concept") -> str:
    """One line per group, one column per method: accuracy in % with the half-width of its 95 % interval."""
    first = next(iter(results.values()))
    labels = [f"{main}={first.classes[y]}, {concept}={first.concept_classes[c]}" for y in (0, 1) for c in (0, 1)]
    labels = [label if len(label) <= 34 else label[:33] + "…" for label in labels]
    width = max(len(label) for label in [*labels, "average over groups"])
    lines = [f"{'accuracy, %':<{width}} {'rows':>7}" + "".join(f"{name:>16}" for name in results)]
    lines.append("─" * len(lines[0]))
    for i, label in enumerate(labels):
        y, c = divmod(i, 2)
        cells = []
        for result in results.values():
            low, high = result.interval()[y, c]
            cells.append(f"{100 * result.accuracy[y, c]:>9.1f} ± {50 * (high - low):>4.1f}")
        lines.append(f"{label:<{width}} {first.rows[y, c]:>7}" + "".join(cells))
    lines.append("─" * len(lines[0]))
    for label, values in (
        ("worst group", [r.worst for r in results.values()]),
        ("average over groups", [r.group_average for r in results.values()]),
        ("average over rows", [r.average for r in results.values()]),
    ):
        lines.append(f"{label:<{width}} {'':>7}" + "".join(f"{100 * value:>9.1f}{'':>7}" for value in values))
    return "\n".join(line.rstrip() for line in lines)
