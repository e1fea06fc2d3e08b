"""The verbs of the command line on bad files: they end with a code that says so, and one paragraph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from trust.hostile import arrays, datasets, experiments, saved
from trust.hostile.trials import Attacks, Reader, promised
from trust.nursery import program_of
from unspur.exceptions import InputError

LABELS = ("--task", "y", "--concept", "place")


def _run(path: Path, *arguments: object) -> None:
    """Run a verb on `path` and other things. Exit codes 1 and 2 are refusals; 0 is done; anything else a fault."""
    done = CliRunner().invoke(program_of(str(arguments[0])), [str(argument) for argument in arguments])
    said = done.output if done.exit_code else ""
    promised("Traceback" not in done.output, f"a traceback: {done.output[-300:]}")
    promised("not enough memory" not in done.output, f"too much memory: {done.output[-300:]}")
    promised(done.exit_code in (0, 1, 2), f"exit code {done.exit_code}: {done.output[-300:]}")
    if done.exit_code:
        last = said.strip().rsplit("\n\n", 1)[-1]
        promised(
            "Error: " in last and len(last.split("Error: ", 1)[1].splitlines()) == 1, f"no paragraph: {said[-300:]}"
        )
        # What is wrong with a label that could be read is told by its name.
        named = any(word in last for word in (path.name, path.parent.name, "y=", "y has", " y ", "place"))
        promised(named, f"the message names neither the file nor a label: {last[:300]}")
        raise InputError(f"{path.name}: {last}")


def _table(folder: Path, places: tuple[str, str] = ("water", "land")) -> Path:
    """Rows with two labels, as the verbs need them."""
    z, y, concept = saved._rows()
    lines = [
        ",".join([*(f"{value:.6g}" for value in row), str(a), places[b]])
        for row, a, b in zip(z, y, concept, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(["f0,f1,f2,f3,y,place", *lines]) + "\n")
    return folder / "rows.csv"


def _archive(folder: Path) -> Path:
    _table(folder)
    z, y, concept = saved._rows()
    np.savez(folder / "rows.npz", Z=z, y=y, place=np.where(concept == 1, "land", "water"))
    return folder / "rows.npz"


def _with_rows(make: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def both(folder: Path) -> Path:
        _table(folder, ("0", "1"))  # as the concept of the removal is written
        return make(folder)

    return both


def _fit(path: Path) -> None:
    _run(path, "fit", path, *LABELS, "--output", path.parent / "new.safetensors", "--force")


def _apply(path: Path) -> None:
    rows = path.parent / "rows.csv"
    _run(
        path, "apply", path, rows, "--label", "y", "--label", "place", "--output", path.parent / "clean.csv", "--force"
    )


def _predict(path: Path) -> None:
    _run(path, "predict", path, path.parent / "rows.csv", *LABELS, "--output", path.parent / "new.csv", "--force")


def _evaluate(path: Path) -> None:
    _run(path, "evaluate", path, path.parent / "rows.csv", *LABELS)


def _report(path: Path) -> None:
    _run(path, "report", path, *LABELS, "--output", path.parent / "page.html", "--force")


def _report_removal(path: Path) -> None:
    rows = path.parent / "rows.csv"
    _run(path, "report", rows, *LABELS, "--removal", path, "--output", path.parent / "page.html", "--force")


def _data(path: Path) -> None:
    _run(path, "data", "waterbirds", "--root", path.parent / "root", "--archive", path, "--unverified")


def _reproduce(path: Path) -> None:
    _run(path, "reproduce", path, "--smoke", "--jobs", 1, "--output", path.parent / "out", "--only", "ERM")


def _csv_attacks(sound: bytes) -> Attacks:
    large = ("million", "MB")  # the same rows that `read_table` is tried with, without the slow ones
    return [(what, bad) for what, bad in arrays.csv_attacks(sound) if not any(word in what for word in large)]


def _tarred(folder: Path) -> Path:
    path = folder / "waterbirds.tar.gz"
    path.write_bytes(datasets.waterbirds_archive())
    return path


fit_csv = Reader(_table, _fit, _csv_attacks, text=True)
fit_npz = Reader(_archive, _fit, arrays.npz_attacks)
apply = Reader(_with_rows(saved.leace.make), _apply, saved.artifact_attacks, forged=saved.forged_artifact)
evaluate = Reader(_with_rows(saved.leace.make), _evaluate, saved.artifact_attacks, forged=saved.forged_artifact)
predict = Reader(_with_rows(saved.classifier.make), _predict, saved.layer_attacks, forged=saved.forged_artifact)
report_removal = Reader(
    _with_rows(saved.jse.make), _report_removal, saved.artifact_attacks, forged=saved.forged_artifact
)
report = Reader(_table, _report, _csv_attacks, text=True)
data = Reader(_tarred, _data, datasets.tar_attacks)
reproduce = Reader(experiments.spec.make, _reproduce, experiments.spec_attacks, text=True)
__all__ = ["apply", "data", "evaluate", "fit_csv", "fit_npz", "predict", "report", "report_removal", "reproduce"]
