"""Several concepts, and labels of more than two classes, on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import pandas as pd
from unspur import JSE
from unspur.cli import main
from unspur.cli.data import shared_missing_value
from unspur.removers import load

FEATURES = [f"f{i}" for i in range(5)]
SEVERAL = ["--task", "bird", "--concept", "water", "--concept", "season"]
FAST = ["--penalty", "0.1", "--cv", "3", "--output", "r.safetensors", "--force"]


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """A task on the first feature, a concept of two classes on the second and one of three on the next two."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 900
    y = rng.integers(2, size=n)
    water = np.where(rng.random(n) < 0.7, y, 1 - y)
    season = np.where(rng.random(n) < 0.4, 2 * y, rng.integers(3, size=n))
    z = rng.standard_normal((n, 5))
    z[:, 0] += 2.0 * y
    z[:, 1] += 3.0 * water
    z[:, 2:4] += 3.0 * np.array([[1.0, 0.0], [-0.5, 0.87], [-0.5, -0.87]])[season]
    frame = pd.DataFrame(z, columns=FEATURES)
    frame["bird"] = np.array(["land", "sea"])[y]
    frame["water"] = water
    frame["season"] = np.array(["spring", "summer", "winter"])[season]
    return frame


def unspur(*arguments, code=0):
    """Run the program; return standard output and standard error, in which lines are joined."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout, " ".join(done.stderr.split())


def expected(birds):
    concepts = birds[["water", "season"]]
    return JSE(penalty=0.1, cv=3, random_state=0).fit(birds[FEATURES].to_numpy(), birds["bird"], concept=concepts)


def write(birds, kind):
    """The rows as a file of a kind; returns what names it and, where they are needed, further options."""
    if kind in ("csv", "parquet"):
        getattr(birds, f"to_{kind}")(f"rows.{kind}", index=False)
        return [f"rows.{kind}", *SEVERAL]
    z = birds[FEATURES].to_numpy()
    if kind == "npz":
        labels = {
            name: birds[name].to_numpy().astype(str if name != "water" else int) for name in ("bird", "water", "season")
        }
        np.savez("rows.npz", Z=z, **labels)
        return ["rows.npz", *SEVERAL]
    np.save("rows.npy", z)
    for name in ("bird", "water", "season"):
        np.save(f"{name}.npy", birds[name].to_numpy().astype(str if name != "water" else int))
    return ["rows.npy", "--task", "bird.npy", "--concept", "water.npy", "--concept", "season.npy"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "npy", "memory"])
def test_all_concepts_are_removed_and_none_is_a_feature(birds, kind):
    names = write(birds, "parquet" if kind == "memory" else kind)
    more = ["--memory", "100MB"] if kind == "memory" else []
    told = json.loads(unspur("fit", *names, *FAST, *more, "--json")[0])
    assert told["n_features"] == 5
    called = ["water", "season"]  # a file by its stem
    assert told["concepts"] == called
    assert list(told["trace"]["parts"]) == [called[0], *(f"{called[1]}={s}" for s in ("spring", "summer", "winter"))]
    assert {part["main"] for part in told["trace"]["parts"].values()} == {"bird"}
    reference = expected(birds)
    np.testing.assert_allclose(load("r.safetensors").removal_.matrix(), reference.removal_.matrix(), atol=1e-6)
    assert reference.spurious_.dim >= 3
    alone = JSE(penalty=0.1, cv=3, random_state=0).fit(
        birds[FEATURES].to_numpy(), birds["bird"], concept=birds["season"]
    )
    assert alone.spurious_.dim < reference.spurious_.dim  # control: the last alone is another removal


def test_the_terminal_says_which_concept_and_which_class_a_block_is_about(birds):
    shown = unspur("fit", *write(birds, "csv"), *FAST)[0]
    for name in ("water", "season=spring", "season=summer", "season=winter"):
        assert any(line.startswith(name) for line in shown.splitlines())
    assert "directions carry water or season" in shown


def test_labels_of_more_than_two_classes_are_fitted(birds):
    write(birds, "csv")
    shown = unspur("fit", "rows.csv", "--task", "season", "--concept", "water", "--ignore", "bird", *FAST)[0]
    for name in ("spring", "summer", "winter"):
        assert f"water, season={name} (each class against the rest)" in shown
    removal = load("r.safetensors")
    assert removal.classes_ == ("spring", "summer", "winter")
    assert np.abs(removal.spurious_.basis[1]).max() > 0.9


def test_python_and_command_of_a_comparison_have_the_value_of_missing_concepts(birds):
    gaps = birds.assign(season=birds["season"].where(birds.index >= 15, "?"))
    options = ["--remover", "LEACE", "--head", "ERM", "--missing-concept", "?", "--json"]
    (told,) = json.loads(unspur("compare", *write(gaps, "csv"), *options)[0])
    assert "missing_concept='?', random_state=0)" in told["python"]
    assert "--missing-concept '?'" in told["command"]


@pytest.mark.parametrize(
    ("missing", "value"),
    [({"a": -9, "b": None}, -9), ({"a": -9, "b": -9.0}, -9), ({"a": -9, "b": "-9"}, None), ({}, None)],
)
def test_estimators_take_the_one_value_that_concepts_share(missing, value):
    assert shared_missing_value(missing) == value


def test_rows_that_lack_a_concept_are_left_out_of_a_classifier(birds):
    gaps = birds.assign(season=birds["season"].where(birds.index >= 50), water=birds["water"].where(birds.index < 880))
    notes = unspur("fit", *write(gaps, "csv"), *FAST)[1]
    assert notes == "Note: 70 of 900 rows have no water or no season; they are left out of the fit."
    found = load("r.safetensors").removal_.matrix()
    gaps.dropna().to_csv("rows.csv", index=False)
    unspur("fit", "rows.csv", *SEVERAL, *FAST)
    np.testing.assert_allclose(found, load("r.safetensors").removal_.matrix(), atol=1e-6)


@pytest.mark.parametrize("method", ["LEACE", "RLACE"])
def test_methods_that_take_all_concepts_at_once_leave_out_rows_that_lack_one(birds, method):
    gaps = birds.assign(season=birds["season"].where(birds.index >= 50), water=birds["water"].where(birds.index < 880))
    notes = unspur("fit", *write(gaps, "csv"), "--output", "r.safetensors", "--force", "--method", method)[1]
    assert notes == "Note: 70 of 900 rows have no water or no season; they are left out of the fit."


@pytest.mark.parametrize("gaps", [False, True])
def test_a_comparison_says_that_a_removal_alone_is_fitted_on_more_rows(birds, gaps):
    """JSE and INLP alone fit each concept on the rows that have it, and a classifier on those that have all."""
    if gaps:
        birds.loc[100:199, "season"] = ""
    birds.to_csv("rows.csv", index=False)
    says = "The command fits the removal of each concept on all rows that have it."
    chosen = [word for name in ("INLP", "JSE", "LEACE", "none") for word in ("--remover", name)]
    results = json.loads(unspur("compare", "rows.csv", *SEVERAL, *chosen, "--json")[0])
    told = {f"{one['remover']} + {one['head']}" for one in results if any(says in note for note in one["notes"])}
    assert told == ({"INLP + ERM", "INLP + GroupWeighted", "JSE + ERM"} if gaps else set())
    said = " ".join(unspur("compare", "rows.csv", *SEVERAL, "--remover", "INLP", "--head", "ERM")[0].split())
    assert (says in said) == gaps
    if gaps:
        assert "on the rows that have water and season, as the Python code does: there it is model.remover_." in said


def test_gaps_of_one_concept_are_left_out_of_its_own_fit(birds):
    """A value for "not known" counts in every concept that can have it, whatever the type of the others."""
    gaps = birds.assign(season=birds["season"].where(birds.index >= 15, "?"))
    notes = unspur("fit", *write(gaps, "csv"), *FAST, "--method", "JSE", "--missing-concept", "?")[1]
    assert notes == "Note: 15 of 900 rows have no season; they are left out of the fit of season."
    removal = load("r.safetensors")
    assert removal.missing_concept == "?"
    assert removal.concept_classes_ == ((0, 1), ("spring", "summer", "winter"))
    unspur("fit", "rows.csv", *SEVERAL, *FAST, code=1)  # control: a class of its own, with too few rows
    said = unspur(
        "fit",
        "rows.csv",
        "--task",
        "bird",
        "--concept",
        "water",
        "--ignore",
        "season",
        *FAST,
        "--missing-concept",
        "?",
    )[1]
    assert "has water = ?; --missing-concept ? has no effect." in said  # water is a number in every row


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--task", "bird", "--concept", "water", "--concept", "water"], "'--concept': water is given twice", 2),
        (
            ["--task", "bird", "--task", "season", "--concept", "water"],
            "'--task': passed 2 times (bird, season); pass it once",
            2,
        ),
        ([*SEVERAL, "--ignore", "season"], "season is both a label and ignored", 2),
        ([*SEVERAL, "--where", "season=winter"], "season has one class only (winter)", 1),
        (["--task", "bird", "--concept", "water", "--concept", "seasons"], "no column 'seasons'", 1),
        (
            ["--task", "bird", "--concept", "water", "--concept", "f1", "--ignore", "season"],
            "f1 has 900 distinct values",
            1,
        ),
    ],
)
@pytest.mark.parametrize("verb", ["fit", "evaluate", "compare", "report"])
def test_labels_that_cannot_be_meant_are_refused(birds, verb, options, message, code):
    write(birds, "csv")
    output = {"fit": ["--output", "new.safetensors"], "report": ["--output", "r.html"]}.get(verb, [])
    removal = []
    if verb == "evaluate":
        expected(birds).save("r.safetensors")
        removal = ["r.safetensors"]
    assert message in unspur(verb, *removal, "rows.csv", *options, *output, code=code)[1]


def test_an_array_of_two_columns_is_no_label(birds):
    np.savez("rows.npz", Z=birds[FEATURES], bird=birds["bird"].to_numpy().astype(str), both=np.eye(2)[birds["water"]])
    said = unspur("fit", "rows.npz", "--task", "bird", "--concept", "both", *FAST, code=1)[1]
    assert "both is an array of shape (900, 2); a label is one column." in said
    assert "repeat --concept" in said


@pytest.mark.parametrize("output", ["clean.parquet", "folder"])
def test_a_label_to_carry_along_is_not_ignored(birds, output):
    unspur("fit", *write(birds, "parquet"), *FAST)
    labels = ["--label", "bird", "--label", "water", "--label", "season"]
    said = unspur("apply", "r.safetensors", "rows.parquet", *labels, "--ignore", "season", "--output", output, code=2)
    assert "season is both a label and ignored" in said[1]
    unspur("apply", "r.safetensors", "rows.parquet", *labels, "--output", output)  # control


def test_complaints_use_the_names_of_the_columns(birds):
    rare = birds.assign(season=birds["season"].where(birds.index >= 20, "storm"))
    said = unspur("fit", *write(rare, "csv"), *FAST, code=1)[1]
    assert "season=storm: Too few held-out rows: group (bird=land, season=storm) has " in said
    said = unspur("fit", "rows.csv", "--task", "season", "--concept", "water", "--ignore", "bird", *FAST, code=1)[1]
    assert "season=storm: Too few held-out rows: group (season=storm, water=" in said
    other = birds.assign(season=birds["season"].where(birds.index >= 20, "storm"))
    other.to_csv("val.csv", index=False)
    birds.to_csv("rows.csv", index=False)
    said = unspur("fit", "rows.csv", *SEVERAL, *FAST, "--validation", "val.csv", code=1)[1]
    assert "season of the validation rows has the value 'storm', which the training rows do not have" in said


def test_rows_may_be_chosen_by_a_label(birds):
    """A column that decides which rows are used may be a label as well."""
    write(birds, "csv")
    one = ["--task", "season", "--concept", "water", "--ignore", "bird", "--where", "season=winter"]
    assert "season has one class only (winter)" in unspur("fit", "rows.csv", *one, *FAST, code=1)[1]
    told = json.loads(
        unspur("fit", "rows.csv", "--task", "bird", "--concept", "water", "--where", "season=winter", *FAST, "--json")[
            0
        ]
    )
    assert told["n_features"] == 5


def test_methods_are_compared_on_all_combinations(birds):
    gaps = birds.assign(water=birds["water"].astype(object).where(birds.index >= 30))
    command = ["compare", *write(gaps, "csv"), "--remover", "none", "--remover", "LEACE", "--remover", "JSE"]
    out, notes = unspur(*command, "--head", "GroupWeighted", "--json")
    assert "30 of 900 rows have no water or no season; they are left out of the fit of removers." in notes
    lines = json.loads(out)
    assert not any(line["problem"] for line in lines)
    assert [line["n_removed"] for line in lines][:2] == [0, 3]
    assert lines[0]["accuracy"]["names"] == ["bird", "water", "season"]
    groups = lines[0]["accuracy"]["groups"]
    assert len(groups) == 2 * 2 * 3
    assert groups[0]["concept"] == {"water": 0, "season": "spring"}
    rare = (birds["bird"] == "sea") & (birds["season"] == "spring") & (birds["water"] == 0)
    birds[~rare].to_csv("rows.csv", index=False)
    shown = " ".join(unspur("compare", "rows.csv", *SEVERAL, "--remover", "none", "--head", "ERM")[0].split())
    assert "Groups without test rows, which are left out: bird=sea, water=0, season=spring." in shown


def test_last_layers_are_evaluated_in_all_combinations(birds):
    gaps = birds.assign(season=birds["season"].where(birds.index >= 30))
    unspur("fit", *write(gaps, "csv"), *FAST)
    gaps.iloc[::2].to_csv("test.csv", index=False)
    told = json.loads(unspur("evaluate", "r.safetensors", "rows.csv", *SEVERAL, "--test", "test.csv", "--json")[0])
    for name in ("no removal", "removed"):
        assert told[name]["names"] == ["bird", "water", "season"]
        assert len(told[name]["groups"]) == 12
        assert (told[name]["rows"], told[name]["ungrouped_rows"]) == (450, 15)
    assert told["removed"]["group_average"] != told["no removal"]["group_average"]
    classes = ["--task", "season", "--concept", "water", "--ignore", "bird"]
    birds.to_csv("rows.csv", index=False)
    told = json.loads(unspur("evaluate", "r.safetensors", "rows.csv", *classes, "--json")[0])
    assert len(told["removed"]["groups"]) == 6


def test_a_report_is_about_all_concepts(birds):
    command = ["report", *write(birds.iloc[:450], "csv"), "--output", "page.html", "--json"]
    told = json.loads(unspur(*command, "--penalty", "0.1")[0])
    assert set(told["results"][1]["leakage"]) == {"water", "season"}
    assert len(told["results"][1]["accuracy"]["groups"]) == 12
    page = Path("page.html").read_text(encoding="utf-8")
    for name in ("water", "season=spring", "season=winter"):
        assert f"<h3>{name}</h3>" in page
