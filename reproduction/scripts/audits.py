"""What `unspur audit` ranks first on real birds, faces and sentence pairs, and whether removing it helps.

    python reproduction/scripts/audits.py run --root DATA --work audits      # ten minutes on two cores
    python reproduction/scripts/audits.py page

DATA holds CUB_200_2011, scenes, celeba and multinli_1.0. Tables and pictures go to the work folder, frozen networks
(EfficientNet-Lite0, MiniLM) embed them, and the record gets the audits of the training rows. Then the first column that
the audit recommends is removed, and everything is measured on the test rows.

birds    waterbird or landbird; columns: background, the bird's bounding box, properties of the picture. Training rows
         have water behind 90 % of waterbirds and 10 % of landbirds, test rows behind one half of both
faces    smiling; columns: the 39 other attributes of CelebA and properties of the picture
pairs    contradiction or not; columns: genre, a word of negation in the hypothesis, properties of the texts
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from unspur import audit
from unspur.auditing import AuditedColumn, Estimate
from unspur.compare import compare
from unspur.embed.properties import content_properties
from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.negation import is_negated
from unspur_paper.datasets.waterbirds import Birds, paste, read_scenes
from unspur_paper.embedding.examples import TableExamples
from unspur_paper.embedding.store import EmbeddingStore

RESULTS = Path(__file__).parents[1] / "results" / "audits.json"
PAGE = Path(__file__).parents[1] / "docs" / "audits.md"
ENCODERS = {"birds": "efficientnet-lite0", "faces": "efficientnet-lite0", "pairs": "minilm"}
TASKS = {"birds": "bird", "faces": "Smiling", "pairs": "contradiction"}
SHOWN = 6
TEST_SHARE = 1 / 3


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def birds_table(root: Path, work: Path, number: int, rng: np.random.Generator) -> None:
    """Birds pasted on scenes, with their boxes as shares of the picture."""
    birds, scenes = Birds.read(root), read_scenes(root)
    lines = (birds.root / "bounding_boxes.txt").read_text().splitlines()
    boxes = np.array([line.split()[1:] for line in lines], dtype=float)
    folder, rows = work / "birds", []
    folder.mkdir(exist_ok=True)
    for k, bird in enumerate(rng.choice(len(birds.files), number, replace=False)):
        test = k < TEST_SHARE * number
        agrees = rng.random() < (0.5 if test else 0.9)
        water = int(birds.y[bird]) if agrees else 1 - int(birds.y[bird])
        background = ("land", "water")[water]
        picture = paste(birds.image(bird), birds.mask(bird), root / "scenes" / rng.choice(scenes[background]))
        picture.save(folder / f"{k}.jpg", quality=92)
        left, top, width, height = boxes[bird] / max(boxes[bird][2:].max(), 1.0)
        rows.append(
            {
                "image": f"{k}.jpg",
                "split": "test" if test else "train",
                "bird": ("landbird", "waterbird")[birds.y[bird]],
            }
            | {"background": background, "box height / width": round(height / max(width, 1e-9), 3)}
            | {"box left": round(left, 3), "box top": round(top, 3)}
        )
    write_table(folder / "table.csv", rows)


def faces_table(root: Path, work: Path, number: int, rng: np.random.Generator) -> None:
    """Faces with their attributes."""
    faces = CelebA.read(root)
    folder, rows = work / "faces", []
    folder.mkdir(exist_ok=True)
    for k, face in enumerate(rng.choice(len(faces), number, replace=False)):
        faces[face].save(folder / f"{k}.png")
        attributes = {name: "yes" if values[face] else "no" for name, values in faces.labels.items()}
        rows.append({"image": f"{k}.png", "split": "test" if k < TEST_SHARE * number else "train", **attributes})
    write_table(folder / "table.csv", rows)


def pairs_table(root: Path, work: Path, number: int, rng: np.random.Generator) -> None:
    """Pairs without marks."""
    pairs = MultiNLI.read(root)
    folder, rows = work / "pairs", []
    folder.mkdir(exist_ok=True)
    y, genre = np.asarray(pairs.labels["y"])[::2], np.asarray(pairs.labels["genre"])[::2]
    for k, pair in enumerate(rng.choice(len(pairs.pairs), number, replace=False)):
        premise, hypothesis = pairs.pairs[pair]
        rows.append(
            {"text": premise, "text_pair": hypothesis, "split": "test" if k < TEST_SHARE * number else "train"}
            | {"contradiction": ("no", "yes")[y[pair]], "genre": genre[pair]}
            | {"negation in the hypothesis": ("no", "yes")[int(is_negated(hypothesis))]}
        )
    write_table(folder / "table.csv", rows)


TABLES = {"birds": birds_table, "faces": faces_table, "pairs": pairs_table}


def audited(name: str, work: Path) -> dict[str, Any]:
    """The audit of the training rows, and accuracies on test rows before and after the removal it recommends."""
    folder = work / name
    store = EmbeddingStore.open(folder / "store")
    task, X = TASKS[name], np.asarray(store.rows)
    labels = {label: np.asarray(store.column(label)) for label in store.labels if label not in (task, "split")}
    labels |= content_properties(TableExamples.read(folder / "table.csv"))
    y, split = np.asarray(store.column(task)), np.asarray(store.column("split"))
    train, test = split == "train", split == "test"
    found = audit(X[train], {task: y[train]}, {k: v[train] for k, v in labels.items()}, random_state=0)
    first = found.recommended
    kept = {"rows": int(train.sum()), "test_rows": int(test.sum()), "accuracy": found.accuracy}
    kept |= {"named": len(found.flagged), "judged": len(found.columns), "not_judged": len(found.skipped)}
    kept["columns"] = [described(column) for column in found.columns[:SHOWN]]
    kept["recommended"], kept["methods"] = first and first.name, []
    if first is not None and first.kind == "classes":
        concept = labels[first.name].astype(str)
        sets = [(X[rows], y[rows], concept[rows]) for rows in (train, test)]
        for one in compare(*sets, None, ["none", "JSE"], ["ERM", "GroupWeighted"]):
            assert one.accuracy is not None, one.problem
            low, high = one.accuracy.worst_interval()
            kept["methods"].append(
                {"remover": one.remover, "head": one.head, "removed": one.n_removed, "worst": one.accuracy.worst}
                | {"low": low, "high": high, "average": one.accuracy.average}
            )
    return kept


def described(column: AuditedColumn) -> dict[str, Any]:
    def of(estimate: Estimate | None) -> list[float] | None:
        return None if estimate is None else [round(v, 4) for v in (estimate.value, estimate.low, estimate.high)]

    return {
        "name": column.name,
        "named": column.flagged,
        "association": of(column.association),
        "visibility": of(column.visibility),
        "gap": of(column.gap),
        "smallest_group": column.smallest_group,
    }


TEXT = """# What the audit finds on real data

<!-- written by reproduction/scripts/audits.py page; do not edit -->

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, default=Path("audits"))
    parser.add_argument("--rows", type=int, default=4500, help="examples of each data set")
    parser.add_argument("--only", nargs="*", choices=TITLES, default=list(TITLES))
    given = parser.parse_args()
    if given.what == "run":
        given.work.mkdir(exist_ok=True)
        for name in given.only:
            if not (given.work / name / "table.csv").exists():
                TABLES[name](given.root, given.work, given.rows, np.random.default_rng(0))
            folder = given.work / name
            command = [sys.executable, "-m", "unspur", "embed", str(folder / "table.csv"), "--encoder", ENCODERS[name]]
            subprocess.run([*command, "--output", str(folder / "store")], check=True)
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(found | {name: audited(name, given.work)}, indent=1) + "\n")
    else:
        PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
