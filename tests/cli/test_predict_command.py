"""`unspur fit` saves a classifier, and `unspur predict` uses it on files of every kind."""

import json
import shlex
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import pandas as pd
from unspur import JSE, RobustClassifier, load
from unspur.cli import main
from unspur.cli.fit import METHODS, RECOMMENDED
from unspur.cli.options import FITTING_PARAMETERS
from unspur.compare import make_remover
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy
from unspur.removers import REMOVERS

D = 6
LABELS = ["--task", "bird", "--concept", "background"]
FAST = ["--penalty", "0.1", "--cv", "2"]


def unspur(*arguments, code=0):
    """Run the program; return what it printed, or all it said when it is meant to fail."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split()) if code else done.stdout


def frame_of(seed, n=600, rho=0.6):
    toy = make_toy(n, d=D, rho=rho, random_state=seed)
    frame = pd.DataFrame(toy.Z, columns=[f"f{i}" for i in range(D)])
    frame.insert(0, "id", [f"row {i}" for i in range(n)])
    frame["bird"] = np.array(["land", "water"])[toy.y]
    return frame.assign(background=np.array(["forest", "sea"])[toy.concept])


TRAIN, NEW = frame_of(0), frame_of(1, n=300, rho=0.0)
FEATURES = [f"f{i}" for i in range(D)]
CLASSIFIER = RobustClassifier(JSE(random_state=0, penalty=0.1, cv=2), cv=2, random_state=0).fit(
    TRAIN[FEATURES].to_numpy(), TRAIN["bird"], concept=TRAIN["background"]
)


def write(frame, name):
    """A table as a file of the kind that its name says."""
    kind = name.rpartition(".")[2]
    if kind == "npz":
        labels = {key: frame[key].to_numpy().astype(str) for key in frame.columns if key not in FEATURES}
        np.savez(name, Z=frame[FEATURES].to_numpy(), **labels)
    elif kind == "parquet":
        frame.to_parquet(name, row_group_size=90)
    else:
        frame.to_csv(name, index=False)
    return name


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A classifier that was fitted on the command line."""
    folder = tmp_path_factory.mktemp("fitted")
    write(TRAIN, str(folder / "train.csv"))
    unspur("fit", folder / "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", folder / "m.safetensors")
    return folder / "m.safetensors"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_strength_is_part_of_the_file(saved, here):
    write(NEW, "new.csv")
    said = unspur("apply", saved, "new.csv", "--strength", 0.5, "--output", "clean.csv", code=2)
    assert "The strength is part of the file. Fit with --strength 0.5" in said
    named = [word for name in ("id", "bird", "background") for word in ("--label", name)]
    unspur("apply", saved, "new.csv", *named, "--output", "clean.csv")  # the control


def test_accuracies_by_group_have_intervals_within_0_and_100(saved, here):
    write(NEW, "new.csv")
    said = unspur("predict", saved, "new.csv", *LABELS, "--output", "p.csv")
    accuracy = group_accuracy(NEW["bird"], pd.read_csv("p.csv")["predicted"], NEW["background"])
    for (low, high), value in zip(accuracy.interval().reshape(-1, 2), accuracy.accuracy.reshape(-1), strict=True):
        assert f"{100 * value:.1f} ({100 * low:.1f}–{100 * high:.1f})".replace("100.0)", "100)") in said
    assert "±" not in said


@pytest.mark.parametrize(("column", "value"), [("text", "gull"), ("review", "a gull by the sea"), ("file", "x.jpg")])
def test_texts_and_pictures_are_to_be_embedded_first(saved, here, column, value):
    Path("new.csv").write_text(f"id,{column}\n1,{value}\n")
    said = unspur("predict", saved, "new.csv", "--output", "p.csv", code=1)
    assert "by the same network as all other rows: unspur embed new.csv --encoder NAME --output STORE" in said
    Path("new.csv").write_text("id,colour\n1,grey\n")  # the control
    assert "unspur embed" not in unspur("predict", saved, "new.csv", "--output", "p.csv", code=1)


def test_fit_saves_the_classifier_of_python_and_says_what_was_chosen(here):
    write(TRAIN, "train.csv")
    said = unspur("fit", "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", "m.safetensors")
    model = load("m.safetensors")
    np.testing.assert_allclose(model.coef_, CLASSIFIER.coef_, atol=1e-6)
    assert list(model.feature_names_in_) == FEATURES
    words = " ".join(said.split())
    assert "1 of 6 directions carries background, 1 carries bird." in words
    assert f"with penalty {model.selection_.penalty:g}, which had the smallest held-out loss" in words
    assert "Guessing has 0.6931." in words
    assert ("that was tried, so another may be better" in words) == bool(model.selection_.grid_edge)
    assert all(f"{loss:.4f} at {tried['penalty']:g}" in words for tried, loss in model.selection_.results)
    assert max(map(len, said.splitlines())) <= 80
    following = [line.removeprefix("Next: ") for line in said.replace("\\\n", "").splitlines() if "Next: " in line]
    assert following[0] == "unspur predict m.safetensors FILE --output predictions.csv"
    assert following[1].split() == [
        "unspur",
        "report",
        "train.csv",
        *LABELS,
        "--ignore",
        "id",
        "--test",
        "FILE",
        "--removal",
        "m.safetensors",
    ]
    told = json.loads(
        unspur("fit", "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", "again.safetensors", "--json")
    )
    assert told["penalty"] == model.selection_.penalty
    assert [line["loss"] for line in told["held_out_losses"]] == [loss for _, loss in model.selection_.results]
    assert told["notes"] == []


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_method_is_a_remover_alone_with_the_settings_of_compare(method, here):
    write(TRAIN, "train.npz")
    said = unspur("fit", "train.npz", *LABELS, "--method", method.lower(), "--output", "r.safetensors")
    assert "Next: unspur apply r.safetensors FILE --output clean.npz" in said
    words = " ".join(said.split())
    assert ("6 directions carr" in words) == (method in ("JSE", "INLP"))  # those that test directions
    assert (" removed for background." in words) == (method not in ("JSE", "INLP"))
    expected = make_remover(method, "group", 0)
    Z, y, concept = (TRAIN[FEATURES].to_numpy(), TRAIN["bird"].to_numpy(), TRAIN["background"].to_numpy())
    expected.fit(Z, y, concept=concept)
    found = load("r.safetensors")
    assert type(found) is REMOVERS[method]
    np.testing.assert_allclose(found.transform(Z), expected.transform(Z), atol=1e-8)


def test_options_of_a_fit_have_the_defaults_of_jse():
    given = ["rows.csv", *LABELS, "--output", "r.safetensors"]
    options = main.get_command(None, "fit").make_context("fit", given).params
    defaults = JSE().get_params()
    assert {name: options[name] for name in FITTING_PARAMETERS} == {name: defaults[name] for name in FITTING_PARAMETERS}


def test_the_metric_may_be_chosen(here):
    write(TRAIN, "train.npz")
    fit = ["fit", "train.npz", *LABELS, *FAST, "--metric", "auto", "--output"]
    said = " ".join(unspur(*fit, "a.safetensors").split())
    told = json.loads(unspur(*fit, "b.safetensors", "--json"))
    assert f"The metric is τ = {told['metric']:g}, chosen by the held-out loss of bird: " in said
    assert f"{told['metric']:g}" in told["metric_losses"]
    assert len(told["metric_losses"]) > 1


def test_methods_are_the_removers_and_have_their_own_options_only(here):
    assert (RECOMMENDED, *REMOVERS) == METHODS
    write(TRAIN, "train.npz")
    fit = ["fit", "train.npz", *LABELS, "--output", "r.safetensors"]
    assert "--cv is not a setting of LEACE, which has --balance, --strength." in unspur(
        *fit, "--method", "LEACE", "--cv", 3, code=2
    )
    unspur(*fit, "--method", "INLP", "--max-spurious", 1)
    assert load("r.safetensors").max_directions == 1
    unspur(*fit, "--metric", "0.5", "--force", *FAST)
    assert load("r.safetensors").remover_.metric == 0.5
    assert "2 is not between 0 and 1" in unspur(*fit, "--metric", "2", code=2)


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
def test_predictions_go_to_files_of_every_kind(saved, here, kind):
    write(NEW, f"new.{kind}")
    labels = [] if kind == "npz" else ["--label", "id", "--label", "bird", "--label", "background"]
    unspur("predict", saved, f"new.{kind}", *labels, "--output", f"out.{kind}")
    shares = CLASSIFIER.predict_proba(NEW[FEATURES].to_numpy())
    predicted = CLASSIFIER.predict(NEW[FEATURES].to_numpy())
    if kind == "npz":
        with np.load("out.npz") as out:
            assert set(out) == {"id", "bird", "background", "predicted", "classes", "probability"}
            np.testing.assert_array_equal(out["id"], NEW["id"])
            np.testing.assert_array_equal(out["predicted"], predicted)
            np.testing.assert_array_equal(out["classes"], ["land", "water"])
            np.testing.assert_allclose(out["probability"], shares, atol=1e-6)
        return
    out = pd.read_csv("out.csv") if kind == "csv" else pd.read_parquet("out.parquet")
    names = ["id", "bird", "background", "predicted", "probability_land", "probability_water"]
    assert sorted(out.columns) == sorted(names)
    np.testing.assert_array_equal(out["id"], NEW["id"])
    np.testing.assert_array_equal(out["predicted"], predicted)
    np.testing.assert_allclose(out[["probability_land", "probability_water"]], shares, atol=1e-6)


def test_accuracy_is_printed_by_group_where_labels_are_named(saved, here):
    write(NEW, "new.csv")
    right = group_accuracy(NEW["bird"], CLASSIFIER.predict(NEW[FEATURES].to_numpy()), NEW["background"])
    predict = ["predict", saved, "new.csv", "--label", "id", "--output", "out.csv", "--force"]
    said = unspur(*predict, *LABELS)
    assert "bird=land, background=sea" in said
    assert f"{100 * right.worst:.1f}" in said
    told = json.loads(unspur(*predict, *LABELS, "--json"))
    assert told["accuracy"]["worst"] == pytest.approx(right.worst)
    assert sum(told["predicted"].values()) == told["rows"] == 300
    alone = unspur(*predict, "--task", "bird", "--label", "background")
    assert f"{100 * told['accuracy']['average']:.1f} % are right." in alone
    gaps = NEW.assign(bird=NEW["bird"].where(NEW.index >= 100), background=NEW["background"].where(NEW.index < 280))
    write(gaps, "new.csv")
    told = json.loads(unspur(*predict, *LABELS, "--json"))
    assert told["rows"] == 300
    assert told["accuracy"]["rows"] == 200  # of those that have a label
    assert told["accuracy"]["ungrouped_rows"] == 20
    write(NEW[(NEW["bird"] == "land") & (NEW["background"] == "sea")], "new.csv")
    assert len(json.loads(unspur(*predict, *LABELS, "--json"))["accuracy"]["groups"]) == 1  # one group is enough


def test_columns_are_matched_by_name_and_rows_chosen(saved, here):
    turned = NEW[["bird", *FEATURES[::-1], "id", "background"]]
    write(turned.assign(split=np.where(NEW.index < 100, "a", "b")), "new.csv")
    labels = ["--label", "id", "--label", "bird", "--label", "background"]
    unspur("predict", saved, "new.csv", *labels, "--where", "split=a", "--output", "out.csv")
    out = pd.read_csv("out.csv")
    np.testing.assert_array_equal(out["id"], NEW["id"][:100])
    np.testing.assert_array_equal(out["predicted"], CLASSIFIER.predict(NEW[FEATURES].to_numpy()[:100]))


def test_rows_may_stay_in_their_files(saved, here):
    write(TRAIN, "train.parquet")
    fit = ["fit", "train.parquet", *LABELS, "--ignore", "id", *FAST, "--memory", "1MB", "--output", "m.safetensors"]
    assert "Next: unspur report" not in unspur(*fit)  # which needs them in memory
    np.testing.assert_allclose(load("m.safetensors").coef_, CLASSIFIER.coef_, atol=1e-5)
    write(NEW, "new.parquet")
    predict = ["predict", saved, "new.parquet", "--label", "id", *LABELS]
    unspur(*predict, "--output", "whole.csv")
    unspur(*predict, "--memory", "1MB", "--output", "stored.csv")
    whole, stored = pd.read_csv("whole.csv"), pd.read_csv("stored.csv")
    pd.testing.assert_frame_equal(whole, stored)


def test_labels_of_more_than_two_classes(here):
    kinds = np.where(TRAIN["f2"] > 0.5, "duck", TRAIN["bird"])
    write(TRAIN.assign(bird=kinds, background=TRAIN["background"].where(TRAIN.index >= 20)), "train.csv")
    unspur("fit", "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", "m.safetensors")
    model = load("m.safetensors")
    unspur("predict", "m.safetensors", "train.csv", *LABELS, "--label", "id", "--output", "out.csv")
    out = pd.read_csv("out.csv")
    columns = [f"probability_{name}" for name in ("duck", "land", "water")]
    np.testing.assert_allclose(out[columns], model.predict_proba(TRAIN[FEATURES]), atol=1e-9)
    assert set(out["predicted"]) == {"duck", "land", "water"}


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["r.safetensors", "new.csv", "--output", "out.csv"], "unspur fit without --method saves a classifier", 1),
        (["m.safetensors", "new.csv", "--output", "out.npy"], "predictions are written as .csv, .npz, .parquet", 2),
        (["m.safetensors", "new.csv", "--output", "out"], "predictions are written as .csv, .npz, .parquet", 2),
        (["m.safetensors", "new.csv", "--output", "kept.csv"], "exists and is kept", 1),
        (["m.safetensors", "new.csv", "--output", "new.csv", "--force"], "is an input file", 1),
        (["m.safetensors", "narrow.csv", "--output", "out.csv"], "lacks the column 'f0'", 1),
        (["m.safetensors", "narrow.npz", "--output", "out.csv"], "has 5 features; the removal was fitted on 6", 1),
        (["m.safetensors", "new.csv", "--concept", "background", "--output", "out.csv"], "with --task", 2),
        (["m.safetensors", "new.csv", "--task", "place", "--output", "out.csv"], "has no column 'place'", 1),
        (["m.safetensors", "clash.csv", "--label", "predicted", "--output", "out.csv"], "a column 'predicted'", 1),
        (["new.csv", "m.safetensors", "--output", "out.csv"], "FILE and REMOVAL may be swapped", 1),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(saved, here, arguments, message, code):
    model = load(saved)
    model.save("m.safetensors")
    model.remover_.save("r.safetensors")
    rows = NEW[FEATURES]
    write(rows, "new.csv")
    write(rows.drop(columns="f0"), "narrow.csv")
    np.savez("narrow.npz", Z=rows.to_numpy()[:, 1:])
    write(rows.assign(predicted="land"), "clash.csv")
    write(rows, "kept.csv")
    assert message in unspur("predict", *arguments, code=code)
    assert not list(Path().glob("out*"))
    assert list(pd.read_csv("kept.csv").columns) == FEATURES


@pytest.mark.parametrize(("word", "options"), [("", []), ("NA", []), ("?", ["--missing-concept", "?"])])
def test_accuracy_is_that_of_all_rows_where_no_row_has_a_concept(saved, here, word, options):
    write(NEW.assign(background=word), "new.csv")
    given = ["new.csv", *LABELS, "--label", "id", *options, "--output", "p.csv", "--force"]
    right = np.mean(NEW["bird"] == CLASSIFIER.predict(NEW[FEATURES].to_numpy()))
    assert json.loads(unspur("predict", saved, *given, "--json"))["accuracy"] == pytest.approx(right)
    done = CliRunner().invoke(main, ["predict", str(saved), *given])
    assert f"{100 * right:.1f} % are right." in done.stdout
    assert "background is empty in all rows, so accuracy is not by group of background." in " ".join(
        done.stderr.split()
    )


@pytest.mark.parametrize("also", [[], ["--concept", "season"]])
def test_groups_are_those_of_the_concepts_that_some_row_has(saved, here, also):
    write(NEW.assign(season=""), "new.csv")
    given = ["new.csv", *LABELS, *also, "--label", "id", "--label", "season", "--output", "p.csv", "--json"]
    assert len(json.loads(unspur("predict", saved, *given))["accuracy"]["groups"]) == 4


def test_a_label_that_the_classifier_does_not_predict_is_refused(saved, here):
    write(NEW, "new.csv")
    wrong = ["--task", "background", "--label", "bird", "--label", "id"]
    said = unspur("predict", saved, "new.csv", *wrong, "--output", "out.csv", code=1)
    assert "background has the class 'forest', and the classifier was fitted for the classes land, water" in said


def test_other_verbs_use_the_removal_of_a_classifier(saved, here):
    write(NEW, "new.csv")
    write(TRAIN, "train.csv")
    labels = ["--label", "id", "--label", "bird", "--label", "background"]
    unspur("apply", saved, "new.csv", *labels, "--output", "clean.csv")
    clean = pd.read_csv("clean.csv")[FEATURES].to_numpy()
    np.testing.assert_allclose(clean, CLASSIFIER.transform(NEW[FEATURES].to_numpy()), atol=1e-6)
    told = json.loads(unspur("evaluate", saved, "train.csv", "--test", "new.csv", *LABELS, "--ignore", "id", "--json"))
    assert 0 < told["removed"]["worst"] <= 1
    page = ["report", "train.csv", "--test", "new.csv", *LABELS, "--ignore", "id", "--removal", saved, "--json"]
    assert json.loads(unspur(*page))["n_removed"] == 1


def test_groups_have_the_names_of_the_fit_where_gaps_made_whole_numbers_fractions(here):
    def numbers(frame):
        return frame.assign(bird=(frame["bird"] == "water") * 1, background=(frame["background"] == "sea") * 1)

    write(numbers(TRAIN), "train.parquet")
    new = numbers(NEW).astype({"bird": float, "background": float})
    new.loc[:9, ["bird", "background"]] = np.nan
    write(new, "new.parquet")
    unspur("fit", "train.parquet", *LABELS, "--ignore", "id", *FAST, "--output", "model.safetensors")
    rows = ["new.parquet", *LABELS, "--ignore", "id"]
    said = unspur("predict", "model.safetensors", *rows, "--output", "out.csv")
    assert "bird=0, background=1" in said
    assert "0.0" not in said


def test_accuracies_on_rows_of_the_fit_are_not_passed_off_as_those_of_new_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(TRAIN, "train.csv")
    write(NEW, "new.csv")
    unspur("fit", "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", "model.safetensors")

    def said(file):
        given = [*LABELS, "--ignore", "id", "--output", f"of-{file}"]
        return " ".join(CliRunner().invoke(main, ["predict", "model.safetensors", file, *given]).stderr.split())

    assert "the classifier was trained on these rows" in said("train.csv")
    assert "does not record its training and validation rows" in said("new.csv")
    swapped = ["--task", "background", "--concept", "bird", "--ignore", "id", "--output", "swapped.csv"]
    assert "Name the label that it predicts" in unspur("predict", "model.safetensors", "new.csv", *swapped, code=1)


def test_whole_numbers_may_be_written_with_a_decimal_and_labels_may_be_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = TRAIN.assign(bird=(TRAIN["bird"] == "water") * 1, background=(TRAIN["background"] == "sea") * 1)
    write(numbers, "train.csv")
    unspur("fit", "train.csv", *LABELS, "--ignore", "id", *FAST, "--output", "model.safetensors")
    given = [
        "predict",
        "model.safetensors",
        "new.csv",
        *LABELS,
        "--ignore",
        "id",
        "--force",
        "--json",
        "--output",
        "p.csv",
    ]
    new = NEW.assign(bird=(NEW["bird"] == "water") * 1, background=(NEW["background"] == "sea") * 1)
    write(new, "new.csv")
    whole = json.loads(unspur(*given))
    write(new.assign(bird=new["bird"].astype(float)), "new.csv")  # 0.0 and 1.0
    assert json.loads(unspur(*given))["accuracy"] == whole["accuracy"]
    write(new.assign(bird=new["bird"] + 0.5), "new.csv")  # the control: other numbers are other classes
    assert "has the class" in unspur(*given, code=1)
    write(new.assign(bird=""), "new.csv")
    assert json.loads(unspur(*given))["accuracy"] is None


@pytest.mark.parametrize("where", [(), ("--where", "split=new")])
@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
def test_labels_are_carried_along_as_they_are_in_the_file(saved, here, kind, where):
    """Words for missing values are read as missing for the accuracy alone."""
    gaps = np.where(np.arange(300) % 3 == 0, "n/a", NEW["background"])
    split = np.where(np.arange(300) < 200, "new", "old")
    write(NEW.assign(background=gaps, split=split), f"gaps.{kind}")
    command = ("predict", saved, f"gaps.{kind}", *LABELS, *where, "--json", "--force", "--output", "p.csv")
    if not where:
        command += ("--label", "split")
    told = json.loads(unspur(*command, "--label", "id"))
    carried = pd.read_csv("p.csv", keep_default_na=False)
    n = 200 if where else 300
    assert carried["background"].tolist() == gaps[:n].tolist()
    assert carried["id"].tolist() == NEW["id"][:n].tolist()
    assert sum(group["rows"] for group in told["accuracy"]["groups"]) == np.sum(gaps[:n] != "n/a")


@pytest.mark.parametrize(
    "days",
    [
        [date(2020, 1, 1), date(2020, 1, 2)],
        [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2)],
        [time(1), time(2)],
        [Decimal("1.50"), Decimal("2.50")],
    ],
    ids=lambda days: type(days[0]).__name__,
)
def test_classes_that_json_does_not_know_are_text(here, days):
    sea = TRAIN["background"] == "sea"
    write(TRAIN.assign(background=[days[one] for one in sea]), "train.parquet")
    given = ["train.parquet", *LABELS, "--ignore", "id", "--remover", "LEACE", "--head", "ERM", "--json"]
    groups = json.loads(unspur("compare", *given))[0]["accuracy"]["groups"]
    assert {group["concept"] for group in groups} == set(map(str, days))


@pytest.mark.parametrize("files", [["a.parquet", "b.parquet"], ["rows"], ["rows/*.parquet"]])
def test_a_column_to_ignore_may_be_in_some_of_the_files_alone(here, files):
    Path("rows").mkdir()
    more = TRAIN.assign(extra=1.0)
    for folder in (".", "rows"):
        write(TRAIN[:300], f"{folder}/a.parquet")
        write(more[300:], f"{folder}/b.parquet")
    write(more.assign(f0=more["f0"] + 0.01), "v.parquet")
    given = [*LABELS, "--ignore", "id", *FAST, "--output", "m.safetensors", "--validation", "v.parquet"]
    unspur("fit", *files, *given, "--ignore", "extra")
    assert list(load("m.safetensors").feature_names_in_) == FEATURES
    assert "no 'nosuch' to ignore" in unspur("fit", *files, *given, "--force", "--ignore", "nosuch", code=1)


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
@pytest.mark.parametrize("method", [[], ["--method", "LEACE"]])
def test_the_next_command_of_a_fit_works_on_a_file_like_that_of_the_fit(here, kind, method):
    """It has columns that are no features, one that was ignored and one that chose rows."""
    write(TRAIN.assign(split=np.where(TRAIN.index < 500, "a", "b")), f"train.{kind}")
    given = [*LABELS, "--ignore", "id", "--where", "split=a", *(method or FAST), "--output", "m.safetensors"]
    said = unspur("fit", f"train.{kind}", *given).replace("\\\n", "")
    (line,) = (line for line in said.splitlines() if line.startswith(("Next: unspur predict", "Next: unspur apply")))
    unspur(*shlex.split(line.replace("FILE", f"train.{kind}"))[2:])


def test_features_are_found_by_name_among_other_columns(saved, here):
    rows = NEW[FEATURES]
    wide = NEW[FEATURES[::-1]].assign(f9=np.nan, note="a word")
    write(rows, "new.csv")
    for kind, memory in (("csv", []), ("parquet", []), ("parquet", ["--memory", "1MB"])):
        write(wide[[*(FEATURES if memory else FEATURES[::-1]), "f9", "note"]], f"wide.{kind}")
        unspur("predict", saved, f"wide.{kind}", *memory, "--output", "wide-out.csv", "--force")
        unspur("predict", saved, "new.csv", "--output", "out.csv", "--force")
        pd.testing.assert_frame_equal(pd.read_csv("wide-out.csv"), pd.read_csv("out.csv"))
    write(wide.drop(columns="f0"), "narrow.csv")
    assert "lacks the column 'f0'" in unspur("predict", saved, "narrow.csv", "--output", "none.csv", code=1)
    assert not Path("none.csv").exists()


def test_rows_that_have_a_main_label_or_a_concept_and_never_both_are_predicted(saved, here):
    half = NEW.index < 150
    write(NEW.assign(bird=NEW["bird"].where(half), background=NEW["background"].where(~half)), "new.csv")
    right = np.mean((NEW["bird"] == CLASSIFIER.predict(NEW[FEATURES].to_numpy()))[half])
    done = CliRunner().invoke(main, ["predict", str(saved), "new.csv", *LABELS, "--output", "p.csv", "--json"])
    assert json.loads(done.stdout)["accuracy"] == pytest.approx(right)
    assert "no row has bird and background together, so accuracy is not by group" in " ".join(done.stderr.split())
    assert len(pd.read_csv("p.csv")) == 300


def test_features_that_options_name(saved, here):
    write(NEW, "new.csv")
    write(NEW, "new.parquet")
    unspur("predict", saved, "new.csv", "--label", "f3", "--label", "id", "--output", "with.csv")
    unspur("predict", saved, "new.csv", "--label", "id", "--output", "without.csv")
    beside, alone = (pd.read_csv(name) for name in ("with.csv", "without.csv"))
    np.testing.assert_allclose(beside.pop("f3"), NEW["f3"])
    pd.testing.assert_frame_equal(beside, alone)
    for option in (["--ignore", "f3"], ["--task", "bird", "--concept", "f3"]):
        said = unspur("predict", saved, "new.csv", *option, "--output", "no.csv", code=1)
        assert f"{option[-2]} f3: f3 is a feature of the model, which needs it. Leave out the option" in said
    said = unspur("predict", saved, "new.parquet", "--label", "f3", "--memory", "1GB", "--output", "no.csv", code=1)
    assert "--label f3 is a feature of the model. With --memory" in said
    others = ["--label", "bird", "--label", "background", "--label", "id"]
    for output in ("no.csv", "folder"):
        said = unspur("apply", saved, "new.parquet", *others, "--label", "f3", "--output", output, code=1)
        assert "--label f3: f3 is a feature of the model" in said
    unspur("apply", saved, "new.parquet", *others, "--output", "clean.csv")  # the control
    write(NEW.drop(columns="f3"), "lacks.csv")
    assert "lacks the column 'f3'" in unspur("predict", saved, "lacks.csv", "--output", "no.csv", code=1)
