"""What is said of rows that cannot be used: what was seen, what is needed, what to do.

Each case is tried in Python, where messages name arguments, and on the command line, where they name columns and
options.
"""

import csv
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import unspur
from unspur import JSE
from unspur.cli import main
from unspur.cli.program import as_option
from unspur.datasets import make_toy
from unspur.embed.examples import TableExamples
from unspur.exceptions import (
    ClusterWarning,
    GroupSizeError,
    InputError,
    LabelError,
    OutputExistsError,
    Parameter,
    UsedRowsWarning,
)

TOY = make_toy(600, d=6, rho=0.6, random_state=0)
BIRDS = {
    "Z": TOY.Z,
    "bird": np.array(["land", "water"], dtype=object)[TOY.y],
    "background": np.array(["forest", "sea"], dtype=object)[TOY.concept],
}
RARE = np.flatnonzero((BIRDS["bird"] == "land") & (BIRDS["background"] == "sea"))
ALL, FEW = slice(None), slice(0, 3)


def changed(column, rows, value):
    """The birds with another value of a column in some rows."""
    values = np.array(BIRDS[column])
    values[rows] = value
    return {**BIRDS, column: values}


def without(gone):
    return {name: np.delete(values, gone, axis=0) for name, values in BIRDS.items()}


def films(number):
    """The birds with the film that each is from: so many of every group."""
    return {**BIRDS, "film": (2 * TOY.y + TOY.concept) * number + np.arange(600) % number}


@dataclass(frozen=True)
class Case:
    """Rows, and rows to validate on if there are any, with what is said of them; the fields of a message are below."""

    said: type
    rows: dict
    message: str
    validation: dict | None = None
    parameters: dict = field(default_factory=dict)
    options: tuple = ()
    typed: str | None = None  # what the command line says instead


#: What messages call labels that have no name, labels that have one, arguments of Python, and options.
UNNAMED = {"y": "y", "concept": "concept", "y_val": "y_val", "concept_val": "concept_val"}
NAMED = {
    "y": "bird",
    "concept": "background",
    "y_val": "bird of the validation rows",
    "concept_val": "background of the validation rows",
}
ARGUMENTS = {
    "cv": "cv=5",
    "X_val": "X_val=",
    "clusters": "clusters=",
    "smallest_group": "smallest_group=",
    "overwrite": "overwrite=True",
    "root": "root=",
    "allow_outside": "allow_outside=True",
}
OPTIONS = {
    "cv": "--cv 5",
    "X_val": "--validation",
    "clusters": "--cluster",
    "smallest_group": "--smallest-group ",
    "overwrite": "--force",
    "root": "--root",
    "allow_outside": "--allow-outside",
}


def fit(case, *, named=False):
    """Fit in Python; the labels have names only if that is asked for."""
    arguments = {}
    for suffix, rows in (("", case.rows), ("_val", case.validation)):
        if rows is not None:
            y, concept = ({name: rows[name]} if named else rows[name] for name in ("bird", "background"))
            arguments |= {f"X{suffix}": rows["Z"], f"y{suffix}": y, f"concept{suffix}": concept}
            arguments |= {f"clusters{suffix}": rows["film"]} if "film" in rows else {}
    return JSE(random_state=0, penalty=0.1, **case.parameters).fit(**arguments)


def written(rows, name):
    """A CSV file of rows; gaps are empty cells."""
    labels = [label for label in rows if label != "Z"]
    with open(name, "w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow([*(f"f{j}" for j in range(rows["Z"].shape[1])), *labels])
        lines.writerows(
            [*z.tolist(), *more] for z, *more in zip(rows["Z"], *(rows[label] for label in labels), strict=True)
        )
    return name


def typed(case):
    """Fit on the command line; returns the exit code, and what was said on standard error as one line."""
    files = [written(case.rows, "rows.csv")]
    files += [] if case.validation is None else ["--validation", written(case.validation, "validation.csv")]
    files += ["--cluster", "film"] if "film" in case.rows else []
    labels = ["--task", "bird", "--concept", "background", "--penalty", "0.1", "--output", "r.safetensors"]
    done = CliRunner().invoke(main, ["fit", "--method", "JSE", *files, *labels, *map(str, case.options)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.stderr.split())


REMOVES_THE_TASK = (
    "{concept} is %s {y} in all 600 rows: removing it would remove the task, and no data could tell the two apart. "
    "Rows where they disagree are needed."
)
SMALL = "Too few held-out rows: group (%s) has %s; the tests need at least 10 in each to keep their level. "
MORE_ROWS = "Pass more rows of that group, or a validation set with {X_val}."
ANYWAY = (
    " With {smallest_group}%s they are tested anyway, but wrong directions are then accepted more often than the "
    "significance level allows."
)
GROUPS = ", ".join(f"({{y}}={y}, {{concept}}={c}) lies in %s" for y in ("land", "water") for c in ("forest", "sea"))

CASES = {
    "one main class": Case(
        LabelError,
        changed("bird", ALL, "land"),
        "{y} has one class only (land); two are needed to find a direction that tells them apart.",
    ),
    "one class of the concept": Case(
        LabelError,
        changed("background", ALL, "sea"),
        "{concept} has one class only (sea); two are needed to find a direction that tells them apart.",
    ),
    "no concept is known": Case(LabelError, changed("background", ALL, None), "{concept} is missing in all 600 rows."),
    "gaps in the main label": Case(
        LabelError,
        changed("bird", FEW, None),
        "{y} is missing in 3 rows; only {concept} may have missing values. Drop such rows, or fill in the label.",
    ),
    "gaps in the main label of validation rows": Case(
        LabelError,
        BIRDS,
        "{y_val} is missing in 3 rows; only {concept} may have missing values. Drop such rows, or fill in the label.",
        validation=changed("bird", FEW, None),
    ),
    "a main class of validation rows alone": Case(
        LabelError,
        BIRDS,
        "{y_val} has the value 'owl', which the training rows do not have (['land', 'water']).",
        validation=changed("bird", FEW, "owl"),
    ),
    "a class of the concept in validation rows alone": Case(
        LabelError,
        BIRDS,
        "{concept_val} has the value 'sky', which the training rows do not have (['forest', 'sea']).",
        validation=changed("background", FEW, "sky"),
    ),
    "the concept is the task": Case(LabelError, {**BIRDS, "background": BIRDS["bird"]}, REMOVES_THE_TASK % "equal to"),
    "the concept is the task under other names": Case(
        LabelError,
        {**BIRDS, "background": np.where(TOY.y == 0, "w", "l")},
        REMOVES_THE_TASK % "the same label, under other class names, as",
    ),
    "a small group": Case(
        GroupSizeError, without(RARE[7:]), SMALL % ("{y}=land, {concept}=sea", 7) + MORE_ROWS + ANYWAY % 7
    ),
    "an empty group": Case(GroupSizeError, without(RARE), SMALL % ("{y}=land, {concept}=sea", 0) + MORE_ROWS),
    "a small group, and a share held out": Case(
        GroupSizeError,
        without(RARE[7:]),
        SMALL
        % ("{y}=land, {concept}=sea", 1)
        + "Pass more rows of that group, a larger share to hold out ({cv} holds out all in turn), or a validation set "
        "with {X_val}.",
        parameters={"cv": 0.2},
        options=("--cv", 0),
    ),
    "an empty group of validation rows": Case(
        GroupSizeError,
        BIRDS,
        SMALL % ("{y}=land, {concept}=sea", 0) + "Pass more rows with {X_val}, or none and {cv}.",
        validation=without(RARE),
    ),
    "a small class of the task": Case(
        GroupSizeError,
        changed("bird", slice(0, 20), "owl"),
        "{y}=owl: " + SMALL % ("{y}=owl, {concept}=forest", 9) + MORE_ROWS + ANYWAY % 9,
    ),
    "a small class of the concept, with braces in its name": Case(
        GroupSizeError,
        changed("background", slice(0, 20), "{sky}"),
        "{concept}={{sky}}: " + SMALL % ("{y}=land, {concept}={{sky}}", 8) + MORE_ROWS + ANYWAY % 8,
    ),
    "groups of one cluster": Case(
        GroupSizeError,
        films(1),
        f"Too few independent held-out rows: group {GROUPS} clusters; the tests count clusters, not rows, and need at "
        "least 2 in each. " % (1, 1, 1, 1) + MORE_ROWS,
    ),
    "clusters in both sets": Case(
        InputError,
        films(9),
        "36 clusters are among the training rows and among the validation rows, such as 0: tests on them "
        "would not be independent of the fit. Leave them out of one of the two sets; if they are different clusters, "
        "give them different labels.",
        validation=films(9),
        typed="36 values of film are among the training rows and the validation rows, such as '0'; the validation set "
        "would not be independent. Pass validation rows from other clusters, or no validation rows, to hold out whole "
        "clusters automatically.",
    ),
    "the same rows": Case(
        InputError,
        changed("Z", ALL, 1.0),
        "All rows are the same: every column of X is constant. Nothing can be estimated.",
    ),
    "copies": Case(
        ClusterWarning,
        {name: np.concatenate([values, values]) for name, values in BIRDS.items()},
        "600 of 1,200 training rows are exact duplicates of others. Duplicates count as one cluster in the tests, and "
        "share a fold unless cv says otherwise. Drop them, or say with {clusters} which rows belong together.",
    ),
    "fewer clusters than folds": Case(
        ClusterWarning,
        films(4),
        f"Group {GROUPS} clusters, fewer than the 5 folds: some folds have no rows of this group, and its results "
        "rest on only that many independent clusters." % (4, 4, 4, 4),
    ),
    "rows of both sets": Case(
        UsedRowsWarning,
        BIRDS,
        "600 validation rows are training rows as well: tests on them are too optimistic. Leave them out of one of "
        "the two.",
        validation=BIRDS,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("labels", [UNNAMED, NAMED], ids=["unnamed", "named"])
def test_messages_of_a_fit_in_python(case, labels):
    expected = re.escape(case.message.format(**labels, **ARGUMENTS))
    with (pytest.warns if issubclass(case.said, Warning) else pytest.raises)(case.said, match=f"^{expected}$"):
        fit(case, named=labels is NAMED)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_messages_of_a_fit_on_the_command_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note = issubclass(case.said, Warning)
    expected = f"{'Note' if note else 'Error'}: {(case.typed or case.message).format(**NAMED, **OPTIONS)}"
    assert typed(case) == (0 if note else 1, expected)


def test_a_small_group_where_most_rows_have_no_concept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = [*RARE[:7], *np.setdiff1d(np.arange(150), RARE)]
    unknown = np.setdiff1d(np.arange(600), known)
    small = SMALL % ("bird=land, background=sea", 7) + MORE_ROWS
    way_out = (
        " In most rows the concept is missing: in Python, the head GroupWeighted(unknown='infer') learns from them as "
        "well, without a removal (docs/guides/missing-labels.md)."
    )
    case = Case(GroupSizeError, changed("background", unknown, None), small + way_out + ANYWAY % 7)
    with pytest.raises(GroupSizeError, match=re.escape(case.message.format(**ARGUMENTS))):
        fit(case, named=True)
    code, said = typed(case)
    assert code == 1
    assert case.message.format(**OPTIONS) in said


def test_problems_of_a_comparison_name_options_of_the_verb(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = written(without(RARE[11:]), "rows.csv")  # of which three become test rows
    labels = ["--task", "bird", "--concept", "background", "--remover", "JSE", "--remover", "none", "--head", "ERM"]
    done = CliRunner().invoke(main, ["compare", rows, *labels])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "a validation set with --validation." in said
    assert "With smallest_group=8 in Python they are tested anyway" in said  # which compare has no option for


def test_validation_rows_that_are_too_few_are_pooled_for_a_classifier(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = CASES["an empty group of validation rows"]
    files = [written(case.rows, "rows.csv"), "--validation", written(case.validation, "validation.csv")]
    labels = ["--task", "bird", "--concept", "background", "--penalty", "0.1", "--output", "r.safetensors"]
    done = CliRunner().invoke(main, ["fit", *files, *labels])
    assert done.exit_code == 0
    reason = case.message.format(**NAMED, **OPTIONS)
    expected = (
        "There are too few rows to test directions on, so training and validation rows were pooled and cross-fitted. "
        f"({reason})"
    )
    assert expected in " ".join(done.stderr.split())
    labels[-1] = "r.html"
    done = CliRunner().invoke(main, ["report", *files, *labels])  # which has the same recommendation
    assert done.exit_code == 0
    assert expected in " ".join(done.stderr.split())


def test_names_of_labels_are_put_in_as_they_are():
    with pytest.raises(LabelError, match=re.escape(r"g{0} is equal to \\1 in all 600 rows")) as told:
        JSE().fit(TOY.Z, {r"\\1": TOY.y}, concept={"g{0}": TOY.y})
    assert told.value.fields["label"] == "g{0}"
    with pytest.raises(LabelError, match=r"y has 2 columns \(a, b\); the main label is one"):
        JSE().fit(TOY.Z, {"a": TOY.y, "b": TOY.y}, concept=TOY.concept)


def test_an_output_that_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jse = JSE(random_state=0, penalty=0.1).fit(TOY.Z, TOY.y, concept=TOY.concept)
    jse.save("r.safetensors")
    message = "r.safetensors exists and is kept. Choose another name, or pass {overwrite}."
    with pytest.raises(OutputExistsError, match=re.escape(message.format(**ARGUMENTS))):
        jse.save("r.safetensors")
    assert typed(Case(OutputExistsError, BIRDS, message)) == (1, f"Error: {message.format(**OPTIONS)}")


def test_pictures_outside_of_their_folder(tmp_path):
    pytest.importorskip("PIL")
    table = tmp_path / "birds.csv"
    table.write_text("image,bird\n/a.png,land\n")
    message = (
        "{table} names '/a.png', which is not inside of {folder}. Give the folder of the pictures with {root}; or, if "
        "you trust the table with all files that you can read, pass {allow_outside}."
    )
    names = {"table": table, "folder": tmp_path}
    with pytest.raises(InputError, match=re.escape(message.format(**names, **ARGUMENTS))):
        TableExamples.read(table)
    done = CliRunner().invoke(main, ["embed", str(table), "--encoder", "grey-50", "--output", str(tmp_path / "store")])
    assert done.stderr == f"Error: {message.format(**names, **OPTIONS)}\n"


def test_parameters_that_messages_name_are_options_of_the_program():
    assert as_option(Parameter("cv", 5)) == "--cv 5"
    assert as_option(Parameter("max_pairs", 1)) == "--max-pairs 1"
    assert as_option(Parameter("overwrite", True)) == "--force"
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    source = Path(unspur.__file__).parent.rglob("*.py")
    named = {name for path in source for name in re.findall(r'Parameter\("(\w+)"', path.read_text(encoding="utf-8"))}
    assert named >= {"cv", "X_val", "clusters", "smallest_group", "overwrite", "memory", "root"}
    assert {as_option(Parameter(name)) for name in named} <= known


def test_errors_keep_their_fields_when_they_come_from_another_process():
    with pytest.raises(GroupSizeError) as told:
        fit(CASES["a small group"])
    again = pickle.loads(pickle.dumps(told.value))
    assert (str(again), again.format(as_option)) == (str(told.value), told.value.format(as_option))
    assert again.fields["smallest"] == 10
