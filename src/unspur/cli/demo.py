"""`unspur demo`: fit, report and figure on data that the package brings."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unspur.cli.console import echo_json, print_path, say, say_command, show
from unspur.cli.options import PATH, check_output, force_option, json_option, seed_option

if TYPE_CHECKING:
    from unspur import JSE
    from unspur._typing import Array
    from unspur.datasets import PhotoDigits
    from unspur.report.results import Findings

#: Names of the original rows and of the removal in `--json`.
JSON_NAMES = ("no removal", "JSE")


@click.command()
@click.option(
    "--agreement",
    default=0.9,
    show_default=True,
    type=click.FloatRange(0.5, 0.95),
    help="How often digit group and photograph agree in the training pictures.",
)
@seed_option
@click.option("--output", default="unspur-demo.png", show_default=True, type=PATH, help="Where the figure goes.")
@click.option("--report", type=PATH, help="Where the page goes; by default beside the figure, as .html.")
@force_option
@json_option
def demo(agreement: float, seed: int, output: Path, report: Path | None, force: bool, as_json: bool) -> None:
    """Run the whole method on digits placed on photographs.

    Example: unspur demo --agreement 0.95
    """
    from unspur import JSE
    from unspur._extras import require
    from unspur.report import measure
    from unspur.report.figures import check_format, draw_demo, write
    from unspur.report.page import write_page

    page = output.with_suffix(".html") if report is None else report
    require("The demonstration needs", "matplotlib", "PIL", "jinja2")
    check_output(output, force=force)
    check_output(page, force=force, suffixes=(".html", ".htm"))
    check_format(output)
    if not as_json:
        share = f"{100 * agreement:.0f} %"
        say(f"Digits 0–4 and 5–9 on two photographs that agree with the digit group in {share} of the rows.")
    rows, test = _embedded_photodigits(agreement, seed)
    jse = JSE(verbose=not as_json and sys.stderr.isatty())
    Z, y, photo = rows["train"]
    jse.fit(Z, y, concept=photo, **dict(zip(("X_val", "y_val", "concept_val"), rows["validation"], strict=True)))
    findings = measure(
        jse,
        rows["train"],
        rows["test"],
        validation=rows["validation"],
        main="digit",
        concept="photo",
        compare=("INLP", "LEACE"),
        pictures=test.images,
        command=shlex.join(["unspur", "demo", "--agreement", f"{agreement:g}", "--seed", str(seed)]),
        seed=seed,
        cli_source="",
    )
    write(draw_demo(**_figure(jse, findings, test)), output, overwrite=force, dpi=150)
    write_page(findings, page, title="Digits on two photographs", overwrite=force)
    if as_json:
        echo_json({**_as_json(jse, findings), "figure": str(output), "report": str(page)})
    else:
        _print_result(jse, findings, output, page)


def _embedded_photodigits(agreement: float, seed: int) -> tuple[dict[str, tuple[Array, ...]], PhotoDigits]:
    """Rows (X, y, concept) by split, and the test pictures."""
    from sklearn.decomposition import PCA

    from unspur.datasets import embed_images, make_photodigits

    sets = {
        name: make_photodigits(name, agreement=p, random_state=seed + i)  # type: ignore[arg-type]
        for i, (name, p) in enumerate((("train", agreement), ("validation", agreement), ("test", 0.5)))
    }
    _require_every_group(sets["validation"], agreement, seed)
    features = {name: embed_images(data.images) for name, data in sets.items()}
    pca = PCA(100, random_state=0).fit(features["train"])
    return {name: (pca.transform(features[name]), *_labels(data)) for name, data in sets.items()}, sets["test"]


def _as_json(jse: JSE, findings: Findings) -> dict[str, Any]:
    from unspur.report.page import verdict
    from unspur.report.tables import accuracies_and_penalties

    accuracies, penalties = accuracies_and_penalties(dict(zip(JSON_NAMES, findings.results, strict=False)))
    return {
        "n_removed": jse.n_removed_,
        "n_main": jse.main_.dim,
        "n_features": jse.n_features_in_,
        "verdict": verdict(findings),
        "selection_notes": findings.selection_notes,
        "accuracy": {name: accuracy.to_dict() for name, accuracy in accuracies.items()},
        "penalty": penalties,
        "results": [result.to_dict() for result in findings.results],
        "trace": jse.trace_.to_dict(),
    }


def _print_result(jse: JSE, findings: Findings, output: Path, page: Path) -> None:
    from unspur.report.page import verdict
    from unspur.report.tables import accuracies_and_penalties, group_table

    found = f"{jse.spurious_.dim} belong to the photograph, {jse.main_.dim} to the digits"
    say(f"\nJSE tested {len(jse.trace_)} directions among {jse.n_features_in_} dimensions: {found}.\n")
    say(
        "Accuracy on test pictures, where digit and photograph are independent. Heads (linear classifiers) are trained "
        "on the original rows (no removal) and with the photograph removed (JSE): one with equal weight for every row, "
        "and one with equal weight for every group. Penalties were chosen on the validation pictures.\n"
    )
    accuracies, penalties = accuracies_and_penalties({result.name: result for result in findings.results[:2]})
    show(group_table(accuracies, "digit", "photo", penalties=penalties))
    say("\nIn parentheses: 95 % intervals.\n")
    for sentence in verdict(findings)[:-1]:  # what to do next comes last
        say(sentence)
    say()
    print_path("Figure", output)
    print_path("Report", page)
    say("Open the report in a browser. With rows of your own:")
    say_command(["unspur", "report", "FILE", "--task", "COLUMN", "--concept", "COLUMN"])


def _require_every_group(data: PhotoDigits, agreement: float, seed: int) -> None:
    """Raise UsageError if a group happens to have too few pictures for tests: one seed in 300 at agreement 0.95."""
    import numpy as np

    from unspur import JSE

    smallest, needed = int(np.bincount(2 * data.y + data.concept, minlength=4).min()), JSE().smallest_group
    if smallest < needed:
        raise click.UsageError(
            f"With --agreement {agreement:g} and --seed {seed} a group has {smallest} pictures to test directions on; "
            f"{needed} are needed. Choose another seed, or a lower agreement."
        )


def _labels(data: PhotoDigits) -> tuple[Array, Array]:
    """Digit group and photograph of every picture, by name."""
    import numpy as np

    from unspur.datasets import CONCEPT_NAMES, MAIN_NAMES

    return np.array(MAIN_NAMES)[data.y], np.array(CONCEPT_NAMES)[data.concept]


def _figure(jse: JSE, findings: Findings, test: PhotoDigits) -> dict[str, Any]:
    """Arguments of `draw_demo`."""
    import numpy as np

    from unspur.datasets import CONCEPT_NAMES, MAIN_NAMES
    from unspur.report.tables import accuracies_and_penalties

    def most_colourful(rows: Array) -> int:
        """The row whose picture differs most between its colour channels: a patch with something to see."""
        return int(rows[np.argmax(test.images[rows].std(axis=3).mean(axis=(1, 2)))])

    def first_two(scores: Array) -> Any:
        """Scores (n, 2) along the first spurious and the first main-task direction; zero where there is none."""
        roles = [axis.role for axis in findings.view.axes]
        columns = [scores[:, roles.index(role)] if role in roles else 0 * scores[:, 0] for role in ("spurious", "main")]
        return np.column_stack(columns)

    return {
        "examples": test.images[[most_colourful(np.flatnonzero(findings.group == g)) for g in range(4)]],
        "before": first_two(findings.view.before),
        "after": first_two(findings.view.after),
        "group": findings.group,
        "group_names": [f"{m} on {c}" for m in MAIN_NAMES for c in CONCEPT_NAMES],
        "found": (jse.spurious_.dim, jse.main_.dim),
        "results": accuracies_and_penalties({result.name: result for result in findings.results[:2]})[0],
    }
