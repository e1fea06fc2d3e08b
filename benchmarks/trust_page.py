"""reproduction/docs/trust.md and its picture, from the record that `make trust-full` writes; nothing on the page is typed in.

python benchmarks/trust_page.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from speed_page import paragraph, table
from unspur.criteria import SMALLEST_GROUP

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
try:
    from trust.simulating import DOUBT, smallest_held_out, upper_bound
    from trust.worlds import World
finally:
    sys.path.pop(0)
RECORD = ROOT / "trust" / "full.json"
DOCS = ROOT / "reproduction" / "docs"
PAGE = DOCS / "trust.md"
PICTURE = DOCS / "images" / "power.svg"
COLOURS = {"held out": "#d55e00", "cross-fitted": "#0072b2"}
#: Parts in the order of the page; others come after them.
ORDER = (
    "size",
    "clusters",
    "power",
    "audit",
    "no harm",
    "intervals",
    "probes",
    "numerics",
    "determinism",
    "files",
    "supply chain",
)
GROUPS = {
    "balanced": "even",
    "rare": "95/5, a rare concept",
    "correlated": "95/5, labels agree",
    "slightly correlated": "75/25, labels agree",
}

Line = dict[str, Any]


def page(lines: Sequence[Line]) -> str:
    """The page as Markdown."""
    known = {line["part"] for line in lines}
    parts = [part for part in ORDER if part in known] + sorted(known.difference(ORDER))
    tried, lost = sum(line["tried"] for line in lines), [line for line in lines if not line["held"]]
    out = [
        "# Can it be trusted?",
        "",
        *paragraph(
            f"{_held(lines, lost)} There were {tried:,} trials. `make trust-full` runs them and writes [trust/full.json](../../trust/full.json), and "
            "`python benchmarks/trust_page.py` writes this page. `make trust` is a shorter form of two minutes, and part of the tests of every change."
            + (" Lines marked *quick* are from the shorter form." if any(not line["full"] for line in lines) else "")
        ),
        "",
        "## Summary",
        "",
        *table(
            "part | claims | tried | survived | did not hold",
            [
                [
                    part,
                    f"{len(own)}",
                    f"{sum(line['tried'] for line in own):,}",
                    f"{sum(line['survived'] for line in own):,}",
                    f"{sum(not line['held'] for line in own) or 'none'}",
                ]
                for part in parts
                for own in [_of(lines, part)]
            ],
        ),
        "",
        *paragraph(
            "A trial survived if nothing was wrongly accepted (size), if intervals covered the truth as often as stated (intervals), or if the answer was right or "
            "the error clear (numerics, files). A claim about a rate holds if the count of each cell is within "
            f"the {100 * (1 - DOUBT):g} % range of that rate (there are about a hundred cells). Such a claim can hold although some trials did not survive."
        ),
        "",
        *size(lines),
        *boundary(lines),
        *looks(lines),
        *clusters(lines),
        *power(lines),
        *harm(lines),
        *coverage(lines),
        "## Every claim",
    ]
    for part in parts:
        own = sorted(_of(lines, part), key=lambda line: line["what"])
        out += [
            "",
            f"### {part}",
            "",
            *table("what was tried | tried | survived | <figure", [_line(line) for line in own]),
        ]
    return "\n".join(out).rstrip() + "\n"


def _held(lines: Sequence[Line], lost: Sequence[Line]) -> str:
    return f"{len(lost)} of {len(lines)} claims did not hold." if lost else f"All {len(lines)} claims held."


def _of(lines: Sequence[Line], part: str) -> list[Line]:
    return [line for line in lines if line["part"] == part]


def _line(line: Line) -> list[str]:
    figure = line["figure"] if line["held"] else f"**did not hold** {line['figure']}"
    figure = figure if line["full"] else f"*quick* {figure}"
    return [line["what"].replace("|", "\\|"), f"{line['tried']:,}", f"{line['survived']:,}", figure.replace("|", "\\|")]


def _rate(count: int, sets: int) -> str:
    return f"{100 * count / sets:.1f} ({100 * upper_bound(count, sets):.1f})"


def _numbers(counts: Iterable[int]) -> str:
    """The only one, or from the least to the most."""
    known = sorted(set(counts))
    return " to ".join(f"{number:,}" for number in dict.fromkeys((known[0], known[-1])))


def _cells(lines: Sequence[Line], part: str, key: str) -> list[Line]:
    """Cells of all lines of a part that have a count of that name."""
    found = [cell for line in _of(lines, part) for cell in line["data"].get("cells", []) if key in cell]
    return [cell for k, cell in enumerate(found) if cell not in found[:k]]


def size(lines: Sequence[Line]) -> list[str]:
    """Whole fits under nulls, a row for each null, groups, rows and design, a column for each n."""
    cells = [
        (line["data"]["null"], cell | {"full": line["full"]})
        for line in _of(lines, "size")
        if "null" in line["data"]
        for cell in line["data"]["cells"]
    ]
    if not cells:
        return []
    sizes = sorted({cell["n"] for _, cell in cells})
    keys = sorted({(null, c["groups"], c["rows"], c["design"]) for null, c in cells})
    found = {(null, c["groups"], c["rows"], c["design"], c["n"]): c for null, c in cells}

    def told(null: str, groups: Any, rows: str, design: str, n: int) -> str:
        cell = found.get((null, groups, rows, design, n))
        if cell is not None:
            return _rate(cell["spurious"], cell["sets"]) + ("" if cell["full"] else " *quick*")
        return "refused" if smallest_held_out(World("empty", groups, n), design) < SMALLEST_GROUP else "not tried"

    shown = [[key[0], GROUPS[key[1]], *key[2:], *(told(*key, n) for n in sizes)] for key in keys]
    small, large = ([c["sets"] for _, c in cells if (c["n"] > 2000) is above] for above in (False, True))
    told = [
        f"{_numbers(sets)} sets a cell {where}"
        for sets, where in ((small, "up to n = 2,000"), (large, "above"))
        if sets
    ]
    sets = " and ".join(told)
    return [
        "## Is something removed that should not be?",
        "",
        *paragraph(
            "Percent of simulated data sets in which a whole fit wrongly removed a direction, with its upper 95 % bound in brackets. Data sets have ten features; there are "
            f"{sets}. The level of a test is 5 %. Groups are *even*, or have 95 rows to 5. Rows are Gaussian, or *heavy*: Student's t with three degrees of freedom. "
            "*Refused* means that a group has fewer than ten held-out rows, and `fit` raises a `GroupSizeError` that names it."
        ),
        "",
        *paragraph(
            "In three of the nulls there is nothing to find, and the upper bound of every cell must be below 5 %. In *equal difficulty* one direction predicts both labels "
            f"equally well. The second test is at its boundary there and may reach 5 %. {_pooled(cells)}"
        ),
        "",
        *table("null | <groups | <rows | <judged | " + " | ".join(f"n = {n:,}" for n in sizes), shown),
        "",
        "Four causes made these figures too large at first:",
        "",
        *paragraph(
            "- *Small groups.* The variance of a group of ten rows is itself uncertain. Quantiles are now Student's, with Welch's degrees of freedom, and groups with fewer "
            "than ten held-out rows are refused (`smallest_group`)."
        ),
        *paragraph(
            "- *Folds.* Cross-fitted directions share the noise of their common rows. The second test had one and a half times the variance it assumed, and now divides by "
            "the right one ([criteria.py](../../src/unspur/criteria.py) derives it)."
        ),
        *paragraph(
            "- *Many folds.* With only four rows in each of fifty folds, a direction of noise points away from the rows that are left out, and a negative slope made that look "
            "like information. A direction must now point towards its label."
        ),
        *paragraph(
            "- *Row weights.* Rows with larger weights may vary more. The variance now uses their own deviations instead of an effective number of rows."
        ),
        "",
    ]


def clusters(lines: Sequence[Line]) -> list[str]:
    """Whole fits on rows in clusters, a row for each claim, a column for each correlation inside a cluster."""
    own = sorted((line for line in _of(lines, "clusters") if line["data"].get("cells")), key=lambda line: line["what"])
    own = [line for line in own if not line["what"].startswith("defaults")]
    if not own:
        return []
    correlations = sorted({cell["correlation"] for line in own for cell in line["data"]["cells"]})

    def told(line: Line, correlation: float) -> str:
        cell = next((one for one in line["data"]["cells"] if one["correlation"] == correlation), None)
        if cell is None or not cell["sets"]:
            return "not tried" if cell is None else "refused"
        roles = ("spurious", "main") if "equal" in line["what"] else ("spurious",)
        rates = " / ".join(f"{100 * cell[role] / cell['sets']:.1f}" for role in roles)
        return rates + ("" if line["full"] else " *quick*")

    sets = [cell["sets"] for line in own if line["full"] for cell in line["data"]["cells"]]
    return [
        "## And with clusters?",
        "",
        *paragraph(
            "Percent of data sets in which a whole fit with `clusters=` ([guide](../../docs/guides/clusters.md)) wrongly removed a direction. In *equal difficulty* the second "
            "figure counts those in which a main-task direction was accepted. Columns are the correlation of the rows of a cluster in every feature. Labels belong to the "
            "cluster or vary inside it. Sizes from 2 to 50 are drawn uniformly on a logarithmic scale. "
            + (
                f"{_numbers(sets)} data sets a cell; those with too few clusters in a group are refused and not counted."
                if sets
                else ""
            )
        ),
        "",
        *table(
            "null, labels, clusters, judged | " + " | ".join(f"correlation {value:g}" for value in correlations),
            [[line["what"], *(told(line, value) for value in correlations)] for line in own],
        ),
        "",
    ]


def _pooled(cells: Sequence[tuple[str, Line]]) -> str:
    """Rates at the boundary over all sizes, groups and rows."""
    told = []
    for design in ("held out", "cross-fitted"):
        own = [c for null, c in cells if (null, c["design"]) == ("equal difficulty", design)]
        if own:
            wrong, sets = (sum(c[name] for c in own) for name in ("spurious", "sets"))
            told.append(f"{_rate(wrong, sets)} % of {sets:,} data sets {design}")
    return f"Over all cells it is {' and '.join(told)}." if told else ""


def boundary(lines: Sequence[Line]) -> list[str]:
    """The two tests along given directions."""
    cells = _cells(lines, "size", "informative")
    if not cells:
        return []
    shown = [
        [
            GROUPS[c["groups"]],
            c["rows"],
            f"{c['n']:,}",
            f"{c['smallest']:,}",
            f"{c['sets']:,}",
            *(_rate(c[name], c["sets"]) for name in ("spurious", "main", "informative")),
        ]
        for c in sorted(cells, key=lambda c: (c["groups"], c["rows"], c["n"]))
    ]
    rates = [100 * c[name] / c["sets"] for c in cells if c["smallest"] >= 100 for name in ("spurious", "main")]
    large = f"{min(rates):.1f} to {max(rates):.1f} %" if rates else "not tried"
    return [
        "### The tests alone",
        "",
        "Rates of acceptance along a given direction, in percent (upper bound).",
        "",
        *paragraph(
            "*Second test*: a direction that predicts both labels equally well, accepted for the concept or for the task. With a hundred rows or more in a group the rates are "
            f"{large}, within the binomial interval of 5 %. In smaller groups they are lower, because scalars that are refitted without each row vary more between rows "
            "than their mean varies between data sets."
        ),
        "",
        *paragraph(
            "*First test*: a direction of noise. The test compares a fitted model with a constant, which is nested in it. A model fitted to noise predicts new rows worse than "
            "the constant, so the mean lies above zero while the test asks whether it lies below. The rate is a fraction of 5 %."
        ),
        "",
        *table(
            "groups | <rows | held-out rows | smallest group | sets | second: concept | second: task | first", shown
        ),
        "",
    ]


def looks(lines: Sequence[Line]) -> list[str]:
    """What repeated looks cost, and the correction."""
    cells = _cells(lines, "size", "either")
    if not cells:
        return []
    shown = [
        [
            c["rows"],
            c["design"],
            f"{c['n']:,}",
            f"{c['sets']:,}",
            _rate(c["without"], c["sets"]),
            _rate(c["either"], c["sets"]),
        ]
        for c in sorted(cells, key=lambda c: (c["design"], c["rows"]))
    ]
    return [
        "### Repeated tests",
        "",
        *paragraph(
            "A fit tests many directions. *Controlled*, with two classes each: a loop ends at its first failure, so a wrong spurious direction is accepted in at most 5 % of "
            "fits, however many are tested, and a wrong main-task direction in at most 5 % of rounds. This assumes that candidates are independent of the rows that test them. In "
            "later rounds they depend on them slightly, and the rates above are measured. *Not controlled by default*: both roles, all rounds, several classes and several "
            'concepts together. `correction="familywise"` spreads the level over both roles and all rounds of a concept (divide `significance_level` by the number of concepts).'
        ),
        "",
        "Data sets with a wrong direction of either role, if one direction predicts both labels equally well:",
        "",
        *table("rows | <judged | n | sets | default | corrected", shown),
        "",
    ]


def power(lines: Sequence[Line]) -> list[str]:
    """Power by strength."""
    cells = _cells(lines, "power", "strength")
    if not cells:
        return []
    strengths = sorted({c["strength"] for c in cells})
    keys = list(
        dict.fromkeys((c["n"], c["groups"], c["design"]) for c in sorted(cells, key=lambda c: (c["n"], c["groups"])))
    )
    found = {(c["n"], c["groups"], c["design"], c["strength"]): c for c in cells}
    shown = [
        [
            f"{n:,}",
            GROUPS[groups],
            design,
            *(
                f"{100 * found[n, groups, design, s]['found'] / found[n, groups, design, s]['sets']:.0f}"
                for s in strengths
            ),
        ]
        for n, groups, design in keys
    ]
    return [
        "## Is the concept found?",
        "",
        *paragraph(
            "Percent of data sets in which the concept's direction is found, by its strength: half the distance of the class means, in standard deviations of the noise. The "
            "task has a strength of 0.5."
        ),
        "",
        "![Share of sets in which the concept is found, against its strength, for both ways of judging](images/power.svg)",
        "",
        *table("n | <groups | <judged | " + " | ".join(f"{s:g}" for s in strengths), shown),
        "",
    ]


def harm(lines: Sequence[Line]) -> list[str]:
    """Sets with nothing to remove."""
    cells = [line["data"] for line in _of(lines, "no harm") if "lost" in line["data"]]
    if not cells:
        return []
    shown = [
        [
            GROUPS[c["groups"]],
            c["design"],
            f"{c['sets']:,}",
            _rate(c["removed"], c["sets"]),
            f"{sum(c['lost']) / len(c['lost']):.1f}" if c["lost"] else "—",
            f"{max(c['lost']):.1f}" if c["lost"] else "—",
        ]
        for c in sorted(cells, key=lambda c: (c["groups"], c["design"]))
    ]
    return [
        "## Does it do harm if there is nothing to remove?",
        "",
        *paragraph(
            "n = 2,000. The rows encode the task and not the concept. If nothing is removed, rows do not change by a single bit. If something is removed, the last columns "
            "show how many points a last layer loses on balanced rows."
        ),
        "",
        *table("groups | <judged | sets | something removed, % | lost on average | lost at most", shown),
        "",
        *paragraph(
            "If the assumptions of the method fail (concept and task are not orthogonal, overlap, or are the same), a certificate says so. The claims are below."
        ),
        "",
    ]


def coverage(lines: Sequence[Line]) -> list[str]:
    """Intervals of the metrics, worst cell of each."""
    shown = []
    for line in sorted(lines, key=lambda line: line["what"]):
        cells = [c for c in line["data"].get("cells", []) if "covered" in c]
        if cells and not line["what"].startswith("control"):
            rates = [c["covered"] / c["sets"] for c in cells]
            shown.append(
                [
                    line["what"],
                    f"{len(cells)}",
                    f"{sum(c['sets'] for c in cells):,}",
                    f"{100 * min(rates):.1f}",
                    f"{100 * sum(rates) / len(rates):.1f}",
                ]
            )
    if not shown:
        return []
    return [
        "## Do intervals cover?",
        "",
        *paragraph(
            "Percent of simulated data sets in which a 95 % interval covers the truth, over settings of group sizes, accuracies and weights."
        ),
        "",
        *table("interval | settings | sets | lowest | mean", shown),
        "",
    ]


def picture(lines: Sequence[Line]) -> None:
    """Power against strength, a panel for each kind of groups, a line for each n and way of judging."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "unspur"
    import matplotlib.pyplot as plt

    cells = _cells(lines, "power", "strength")
    kinds = list(dict.fromkeys(c["groups"] for c in cells))
    styles = dict(zip(sorted({c["n"] for c in cells}), (":", "--", "-"), strict=False))
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(4.2 * len(kinds), 3.4), sharey=True, layout="constrained", squeeze=False
    )
    for axis, kind in zip(axes[0], kinds, strict=True):
        for n, style in styles.items():
            for design, colour in COLOURS.items():
                own = sorted(
                    (c["strength"], 100 * c["found"] / c["sets"])
                    for c in cells
                    if (c["groups"], c["n"], c["design"]) == (kind, n, design)
                )
                if own:
                    axis.plot(
                        *zip(*own, strict=True),
                        color=colour,
                        linestyle=style,
                        marker="o" if design == "cross-fitted" else "s",
                        markersize=3.5,
                        label=f"n = {n:,}, {design}",
                    )
        axis.axhline(5, color="0.6", linewidth=0.8)
        axis.set_title(f"groups: {GROUPS[kind]}", fontsize=10)
        axis.set_xlabel("strength of the concept")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("found, % of sets")
    handles = {
        label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(page(recorded), encoding="utf-8")
    picture(recorded)
    print(f"{PAGE} and {PICTURE.name}: {len(recorded)} claims")
