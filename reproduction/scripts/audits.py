"""What `unspur audit` ranks first on real birds, faces and sentence pairs: the page, from the record of unspur 0.1.0.

    python reproduction/scripts/audits.py

Frozen networks (EfficientNet-Lite0, MiniLM) embedded the data, and the record has the audits of the training rows. The
first column that the audit recommends was removed, and everything was measured on the test rows.

birds    waterbird or landbird; columns: background, the bird's bounding box, properties of the picture. Training rows
         have water behind 90 % of waterbirds and 10 % of landbirds, test rows behind one half of both
faces    smiling; columns: the 39 other attributes of CelebA and properties of the picture
pairs    contradiction or not; columns: genre, a word of negation in the hypothesis, properties of the texts
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "audits.json"
PAGE = Path(__file__).parents[1] / "docs" / "audits.md"
TEXT = """# What the audit finds on real data

<!-- written by reproduction/scripts/audits.py; do not edit -->

`unspur audit` on embeddings of frozen networks (EfficientNet-Lite0, MiniLM), with all labels of the data and properties
of their pictures and texts as columns ([the guide](../../docs/guides/audit.md) explains the columns). Brackets are 95 %
intervals. A mark says that the column is flagged: associated with the task, visible, and used, after correction for the number of
columns. Then the first column that it recommends is removed by JSE, from two thirds of the rows, and accuracies are those
of the worst group of task and column among the other third. Heads have penalties chosen on held-out training rows.

{parts}

A flagged column is not wrong by itself. Cheekbones and an open mouth are part of a smile, and a negation is often part of a
contradiction. Removing them does not make a better model of smiles, and the audit leaves that to you.
"""
TITLES = {
    "birds": "Birds: background, boxes and pictures",
    "faces": "Faces: 39 attributes and pictures, against smiling",
    "pairs": "Sentence pairs: genre, negation and texts, against contradiction",
}


def part(name: str, found: dict[str, Any]) -> str:
    """One data set."""

    def with_interval(values: list[float] | None, scale: float, digits: int) -> str:
        if values is None:
            return ""
        value, low, high = (scale * v for v in values)
        return f"{value:.{digits}f} ({low:.{digits}f} – {high:.{digits}f})"

    lines = [
        f"## {TITLES[name]}",
        "",
        f"{found['rows']:,} rows; an unweighted head has {100 * found['accuracy']:.1f} %. {found['judged']} columns were judged, "
        f"{found['named']} are flagged, and {found['not_judged']} could not be judged.",
        "",
        "| column | association (V) | visible, % | gap, points | smallest group |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {'✓ ' if column['named'] else ''}{column['name']} | {with_interval(column['association'], 1, 2)} | "
        f"{with_interval(column['visibility'], 100, 0)} | {with_interval(column['gap'], 100, 1)} | {column['smallest_group']} |"
        for column in found["columns"]
    ]
    if not found["methods"]:
        return "\n".join([*lines, "", f"Recommended for removal: {found['recommended'] or 'none'}."])
    lines += ["", f"Recommended for removal: **{found['recommended']}**. On {found['test_rows']:,} test rows:", ""]
    lines += ["| removal | head | directions | worst group, % | average, % |", "| --- | --- | ---: | ---: | ---: |"]
    lines += [
        f"| {one['remover']} | {one['head']} | {one['removed']} | {100 * one['worst']:.1f} "
        f"({100 * one['low']:.1f} – {100 * one['high']:.1f}) | {100 * one['average']:.1f} |"
        for one in found["methods"]
    ]
    return "\n".join(lines)


def page(found: dict[str, Any]) -> str:
    """The page, from the record."""
    return TEXT.format(parts="\n\n".join(part(name, found[name]) for name in TITLES))


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
