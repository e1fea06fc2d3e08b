"""reproduction/docs/trust.md and its picture, from the record that `make trust-full` writes; nothing on the page is typed in.

python benchmarks/trust_page.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from speed_page import table
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
    "no harm",
    "intervals",
    "probes",
    "numerics",
    "determinism",
    "bad files",
    "faults",
    "load",
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
        "Written by `python benchmarks/trust_page.py` from [trust/full.json](../../trust/full.json), which `make trust-full` writes; `make trust` tries most "
        "of it with fewer trials in three minutes, and is part of every change's tests. "
        f"{len(lines)} claims, {tried:,} trials; {len(lost) or 'none'} did not hold."
        + (
            " Lines marked *quick* have the counts of the short form."
            if any(not line["full"] for line in lines)
            else ""
        ),
        "",
        "## What was tried, how often, what survived",
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
        "Survived means: nothing was wrongly accepted (sizes), intervals held the truth as often as they say in a setting (intervals), the answer was right or the error "
        "clear (numbers, files), the rerun gave what an undisturbed run gives (faults). A claim about a rate holds if the count of each cell is inside what the rate allows "
        f"in {100 * (1 - DOUBT):g} % of tries (there are some hundred cells), so fewer than all may survive.",
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
        "Whole fits to simulated sets of ten features, in percent of sets in which a direction was removed wrongly, with the upper 95 % bound of that in brackets; "
        f"{sets}. The level of a test is 5 %. *Even* groups, or 95 rows to 5; Gaussian rows, or "
        "Student's t with three degrees of freedom. *Refused*: a group has fewer than ten held-out rows, and `fit` raises a `GroupSizeError` that names it.",
        "",
        "Three of the nulls have nothing to find: the upper bound of every cell must be below 5 %. In *equal difficulty* one direction says as much about either label: the "
        f"second test stands at its boundary there and is allowed its 5 %. {_pooled(cells)}",
        "",
        *table("null | <groups | <rows | <judged | " + " | ".join(f"n = {n:,}" for n in sizes), shown),
        "",
        "What made these figures too large at first, and what was done:",
        "",
        "- *Small groups.* The variance of a group of ten rows is itself uncertain. Quantiles are Student's, with Welch's degrees of freedom, and fewer than ten "
        "held-out rows in a group are refused (`smallest_group`).",
        "- *Folds.* Cross-fitted directions share the noise of the rows they have in common. The second test had one and a half times the variance it allowed for, "
        "and now divides by what it should ([criteria.py](../../src/unspur/criteria.py) derives it).",
        "- *Many folds.* With as few as four rows in each of fifty folds, a direction without information points away from the rows that are left out, which a slope of "
        "the other sign made look like knowledge. A direction has to point to its label.",
        "- *Row weights.* Rows that weigh more may vary more. The variance is that of their own deviations, not of all rows by an effective number.",
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
        "## And where rows belong together?",
        "",
        "Whole fits with `clusters=` ([guide](../../docs/guides/clusters.md)), in percent of sets in which a direction was removed wrongly; in *equal difficulty* also, after the "
        "stroke, those in which a main-task direction was accepted. Rows of a cluster are correlated by so much in every feature; labels are those of the cluster, or vary "
        "inside it. Sizes from 2 to 50 are drawn equally on a logarithmic scale. "
        + (
            f"{_numbers(sets)} sets a cell; sets with too few clusters in a group are refused in words and not counted."
            if sets
            else ""
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
            told.append(f"{design}, {_rate(wrong, sets)} of {sets:,} sets")
    return f"Over all of it: {'; '.join(told)}." if told else ""


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
        "Along a direction that is given, in percent (upper bound). *Second test*: a direction that says as much about either label, taken for the concept's or for the "
        f"task's. From a hundred rows a group on the sizes are {large}, inside the binomial interval of 5 %; in smaller groups they are less, since scalars that are refitted without "
        "each row vary more between rows than their mean does between sets. *First test*: a direction of noise. It compares a fitted model with the constant inside it "
        "(nested models); a fit to noise predicts rows it has not seen worse than the constant, so the mean lies above zero where the test asks whether it lies below, "
        "and the size is a fraction of 5 %.",
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
        "### Repeated looks",
        "",
        "A fit tests many directions. *Controlled*, for a concept and a task of two classes each: a loop ends at its first failure, so a wrong spurious direction is "
        "accepted in no more than 5 % of fits however many are tested, and a wrong main-task direction in no more than 5 % of rounds (the argument takes candidates that do "
        "not depend on their judges; those of later rounds do, a little, and the rates above are measured). *Not controlled by default*: either role, all rounds, several "
        "classes and several concepts together. "
        '`correction="looks"` spends the level over both roles and all rounds of a concept (divide `significance_level` by the number of concepts). Sets with a wrong '
        "direction of either role, where one direction says as much about either label:",
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
        "## Is it found when it is there?",
        "",
        "Percent of sets in which the concept's direction is found, by its strength (half the distance of the class means, in deviations of the noise; the task has 0.5).",
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
        "## Does it harm where there is nothing to remove?",
        "",
        "n = 2,000, the task in the rows and the concept not. Where nothing is removed, rows stay what they are, to the bit. Where something is, the accuracy of a last layer "
        "on balanced rows changes by so many points (positive: lost).",
        "",
        *table("groups | <judged | sets | something removed, % | lost on average | lost at most", shown),
        "",
        "Where the assumptions of the method fail (concept and task not orthogonal, overlapping, or one and the same) a certificate says so in words; the claims are below.",
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
        "Percent of simulated sets in which a stated 95 % interval holds the truth, over settings of group sizes, accuracies and weights.",
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
