"""`unspur audit`, from files as people have them to the command that removes the first column."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import Image
from tests.optional import pandas as pd
from unspur.auditing import bin_labels
from unspur.cli import main
from unspur.embed.examples import TableExamples
from unspur.embed.properties import content_properties, picture_properties
from unspur.io.files import label_like_columns

N = 1200


def unspur(*arguments, code=0):
    """Run the program; return its output, and its errors where it is meant to fail."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output if code else done.stdout


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    bird = rng.integers(2, size=N)
    place = np.where(rng.random(N) < 0.85, bird, 1 - bird)
    X = rng.normal(size=(N, 4))
    X[:, 0] += bird
    X[:, 1] += 3.0 * place
    return {
        "id": np.arange(N),
        "bird": np.array(["gull", "wren"])[bird],
        "place": np.array(["sea", "wood"])[place],
        "camera": rng.choice(["a", "b"], N),
        "tide": [
            round(value, 3) if i % 9 else "" for i, value in enumerate((place + 0.4 * rng.normal(size=N)).tolist())
        ],
        "copy": bird,
        **{f"z{i}": X[:, i] for i in range(4)},
    }


@pytest.fixture
def table(columns, tmp_path, monkeypatch):
    """birds.csv in the folder that the program runs in."""
    monkeypatch.chdir(tmp_path)
    with open("birds.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return columns


def test_label_like_columns_are_told_from_features(table):
    assert label_like_columns("birds.csv") == ["id", "bird", "place", "camera", "tide", "copy"]


@pytest.mark.parametrize("name", ["birds.tsv", "birds.csv.gz", "birds.tsv.gz", "BIRDS.CSV", "parts", "parts/*.parquet"])
def test_an_audit_is_the_same_of_every_kind_of_table(table, name):
    frame = pd.read_csv("birds.csv")
    if name.startswith("parts"):
        Path("parts").mkdir()
        for k in range(3):
            frame.iloc[400 * k : 400 * (k + 1)].to_parquet(f"parts/{k}.parquet", index=False)
    else:
        frame.to_csv(name, index=False, sep="\t" if "tsv" in name else ",")
    options = ("--task", "bird", "--ignore", "tide", "--json")  # a number with gaps is a float in Parquet
    told, other = (json.loads(unspur("audit", file, *options)) for file in ("birds.csv", name))
    assert told.pop("next").replace("birds.csv", shlex.quote(name)) == other.pop("next")
    assert told == other
    assert {column["name"] for column in told["columns"]} == {"place", "camera"}


def test_the_audit_names_the_place_and_the_next_command_runs(table):
    told = unspur("audit", "birds.csv", "--task", "bird")
    assert "✓ place" in told
    assert "✓ camera" not in told
    assert "copy: it equals bird" in told
    assert "id: it looks like an id" in told
    command = shlex.split(told.partition("Next: ")[2].replace("\\\n", ""))
    assert command[:5] == ["unspur", "report", "birds.csv", "--task", "bird"]
    assert "--ignore" in command
    assert "copy" in command
    assert "Report: report.html" in unspur(*command[1:], "--max-pairs", 2)


def test_json_has_the_same_and_the_command(table):
    told = json.loads(unspur("audit", "birds.csv", "--task", "bird", "--json", "--max-rows", 900))
    assert told["columns"][0]["flagged"]
    assert told["notes"] == ["900 rows were drawn at random from 1,200."]
    assert told["next"].startswith("unspur report birds.csv --task bird --concept place")
    assert set(told["skipped"]) == {"id", "copy"}


def test_a_column_that_could_not_be_tested_is_named_but_no_command_removes_it(table):
    """The report would hold out 30 % of each group: four rows of one with 13."""
    bird, place = (np.array(table[name]) for name in ("bird", "place"))
    rare = np.flatnonzero((bird == "gull") & (place == "wood"))
    kept = np.setdiff1d(np.arange(N), rare[13:])
    with open("few.csv", "w", newline="", encoding="utf-8") as file:
        lines = zip(*(np.array(column, dtype=object)[kept] for column in table.values()), strict=True)
        csv.writer(file).writerows([table, *lines])
    aside = [word for name in ("id", "tide", "camera", "copy") for word in ("--ignore", name)]
    told = json.loads(unspur("audit", "few.csv", "--task", "bird", "--json", *aside))
    (column,) = told["columns"]
    assert (column["name"], column["flagged"], column["smallest_group"]) == ("place", True, 13)
    assert told["next"] is None
    said = " ".join(unspur("audit", "few.csv", "--task", "bird", *aside).split())
    assert "Next:" not in said
    assert "With these rows no removal could be tested: place has 13 in its smallest group" in said
    assert "too few rows in its smallest group to remove it and test that" in said
    enough = json.loads(unspur("audit", "birds.csv", "--task", "bird", "--json", *aside))  # the control
    assert enough["columns"][0]["smallest_group"] == min(len(rare), np.sum((bird == "wren") & (place == "sea"))) > 33
    assert enough["next"].startswith("unspur report birds.csv --task bird --concept place")


def test_named_columns_alone_and_bins_as_labels(table):
    aside = [word for name in ("id", "camera", "copy", "place") for word in ("--ignore", name)]
    told = unspur("audit", "birds.csv", "--task", "bird", "--column", "tide", *aside)
    assert "✓ tide" in told
    assert "camera" not in told
    assert "Next: tide is a number. Add --labels FOLDER" in told.replace("\n", " ")
    told = unspur("audit", "birds.csv", "--task", "bird", "--column", "tide", *aside, "--labels", "bins")
    labels = np.load("bins/tide-bins.npy")
    assert len(labels) == N
    assert len(set(labels[labels != ""])) == 3
    command = shlex.split(told.partition("Next: ")[2].replace("\\\n", ""))
    assert command[command.index("--concept") + 1] == "bins/tide-bins.npy"
    assert "Report: report.html" in unspur(*command[1:], "--max-pairs", 2)
    assert "exists" in unspur(
        "audit", "birds.csv", "--task", "bird", "--column", "tide", *aside, "--labels", "bins", code=1
    )


def test_whole_numbers_that_become_features_are_named(table):
    aside = [word for name in ("id", "copy", "tide", "place") for word in ("--ignore", name)]
    rows = pd.read_csv("birds.csv").assign(camera=np.arange(N) % 7)
    rows.to_csv("whole.csv", index=False)
    told = unspur("audit", "whole.csv", "--task", "bird", "--column", "place", *aside[:-2])
    assert "camera: whole numbers, or with empty cells, and used as features" in " ".join(told.split())
    told = unspur("audit", "whole.csv", "--task", "bird", "--column", "place", *aside[:-2], "--ignore", "camera")
    assert "used as features" not in told


def test_numbers_with_nulls_in_parquet_are_audited_as_empty_cells_of_a_csv_are(columns, table):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({name: columns[name] for name in ("bird", "z0", "z1", "z2", "z3")})
    camera = pd.Series(np.arange(N) % 3).astype(float)
    camera[::9] = np.nan
    frame.assign(camera=camera).to_parquet("nulls.parquet")
    frame.assign(camera=camera).to_csv("nulls.csv", index=False)
    of = {
        file: json.loads(unspur("audit", file, "--task", "bird", "--json")) for file in ("nulls.parquet", "nulls.csv")
    }
    assert [column["name"] for column in of["nulls.parquet"]["columns"]] == ["camera"]
    assert of["nulls.parquet"]["columns"][0]["gap"] == pytest.approx(of["nulls.csv"]["columns"][0]["gap"], abs=1e-6)


def test_a_measurement_in_whole_numbers_that_is_named_is_audited_with_gaps_as_well(columns, table):
    place = np.array(columns["place"]) == "wood"
    days = (1000 * place + np.random.default_rng(5).integers(1_000_000, size=N) // 300).astype(str)
    days[0] = ""
    rows = {**{name: columns[name] for name in ("bird", "z0", "z1", "z2", "z3")}, "days": days.tolist()}
    with Path("days.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows, *zip(*rows.values(), strict=True)])
    told = json.loads(unspur("audit", "days.csv", "--task", "bird", "--column", "days", "--json"))
    assert [column["kind"] for column in told["columns"]] == ["number"]


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_bins_are_labels_of_all_rows_of_the_file(columns, table, suffix):
    half = np.where(np.arange(N) % 2, "train", "test")
    Z = np.column_stack([columns[name] for name in ("z0", "z1", "z2", "z3")])
    tide = np.array([float(value) if value != "" else np.nan for value in columns["tide"]])
    if suffix == "npz":
        np.savez("half.npz", Z=Z, bird=columns["bird"], tide=tide, part=half)
        options = ()
    else:
        rows = {**{name: columns[name] for name in ("bird", "z0", "z1", "z2", "z3", "tide")}, "part": half.tolist()}
        with Path("half.csv").open("w", newline="") as file:
            csv.writer(file).writerows([rows, *zip(*rows.values(), strict=True)])
        options = ("--column", "tide")
    file, main = f"half.{suffix}", ("--task", "bird")
    unspur("audit", file, *main, *options, "--where", "part=train", "--labels", "bins")
    labels = np.load("bins/tide-bins.npy")
    assert labels[half == "train"].tolist() == bin_labels(tide[half == "train"]).tolist()
    assert ((labels == "") == np.isnan(tide)).all()
    concept = ("--concept", "bins/tide-bins.npy", *(("--ignore", "tide") if suffix == "csv" else ()))
    aside = ("--where", "part=train", "--test-where", "part=test", "--max-pairs", 2)
    assert "Report: report.html" in unspur("report", file, *main, *concept, *aside)
    unspur("fit", file, *main, *concept, "--where", "part=train", "--max-spurious", 1, "--output", "r.safetensors")
    told = unspur("predict", "r.safetensors", file, *main, *concept, "--where", "part=test", "--output", "p.npz")
    assert "worst group" in told  # the bins stand beside the column that they are the bins of


@pytest.mark.parametrize("names", [("light a", "light_a"), ("Light", "light")])
def test_bins_of_columns_whose_names_are_nearly_the_same_go_to_two_files(columns, table, names):
    first, second = names
    noise = np.random.default_rng(1).normal(size=N)
    place = np.array(columns["place"]) == "wood"
    other = [round(value, 3) if i % 9 else "" for i, value in enumerate((place + 0.5 * noise).tolist())]
    rows = {**{name: columns[name] for name in ("bird", "z0", "z1", "z2", "z3")}, first: columns["tide"], second: other}
    with Path("light.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows, *zip(*rows.values(), strict=True)])
    told = unspur("audit", "light.csv", "--task", "bird", "--labels", "bins", "--force")
    assert f"✓ {first}" in told
    assert f"✓ {second}" in told
    files = sorted(path.name.casefold() for path in Path("bins").iterdir())
    assert len(files) == 2
    command = shlex.split(told.partition("Next: ")[2].replace("\\\n", ""))
    removed = np.load(command[command.index("--concept") + 1])
    recommended = json.loads(unspur("audit", "light.csv", "--task", "bird", "--json"))["columns"][0]["name"]
    assert removed.tolist() == _bins(rows[recommended])
    assert removed.tolist() != _bins(rows[second if recommended == first else first])  # control


def _bins(cells):
    """Bins of the numbers in the cells of a column; "" where there is none."""
    return bin_labels(np.array([float(cell) if cell != "" else np.nan for cell in cells])).tolist()


def test_an_npz_and_a_parquet_file(table):
    rows = np.stack([table[f"z{i}"] for i in range(4)], axis=1)
    np.savez("birds.npz", Z=rows, **{name: np.array(table[name]) for name in ("bird", "place", "camera")})
    assert "✓ place" in unspur("audit", "birds.npz", "--task", "bird")
    frame = pd.DataFrame({name: column for name, column in table.items() if name != "tide"})
    frame.to_parquet("birds.parquet")
    told = unspur("audit", "birds.parquet", "--task", "bird", "--cluster", "id")
    assert "✓ place" in told


@pytest.mark.parametrize("note", [np.array(list("wxyz")), np.array(3), np.zeros((5, 2)), np.zeros((N, 2))])
def test_arrays_of_an_npz_that_are_of_no_row_are_not_judged(table, note):
    rows = np.stack([table[f"z{i}"] for i in range(4)], axis=1)
    arrays = {"Z": rows, **{name: table[name] for name in ("bird", "place", "camera")}}
    np.savez("plain.npz", **arrays)
    np.savez("noted.npz", **arrays, note=note)
    for options in ([], ["--max-rows", 900], ["--where", "camera=a"]):
        plain, told = (
            json.loads(unspur("audit", file, "--task", "bird", "--json", *options))
            for file in ("plain.npz", "noted.npz")
        )
        assert "not one value for each row" in told["skipped"].pop("note")
        plain.pop("next"), told.pop("next")
        assert told == plain
    unspur("report", "noted.npz", "--task", "bird", "--concept", "place", "--max-pairs", 2)
    np.savez("alone.npz", Z=rows, bird=table["bird"], note=np.array(3))
    said = " ".join(unspur("audit", "alone.npz", "--task", "bird", code=2).split())
    assert "no columns to audit besides bird (note: it is an array of shape (), and not one value for each row)" in said


def test_words_for_missing_values_are_no_class_in_files_whose_features_are_apart(table):
    rows = np.column_stack([np.array(table[name]) for name in table if name.startswith("z")]).astype(float)
    place = np.array(table["place"], dtype="U8")
    place[::10] = "nan"
    np.savez("missing.npz", Z=rows, bird=table["bird"], place=place)
    audited, named = (
        json.loads(unspur("audit", "missing.npz", "--task", "bird", "--json", *more))["columns"][0]
        for more in ((), ("--column", "place"))
    )
    assert audited["rows"] == named["rows"] == N - len(place[::10])
    assert audited["values"] == named["values"]
    assert "nan" not in audited["values"]


def test_bad_input_is_refused_in_words(table):
    np.save("rows.npy", np.ones((N, 3)))
    np.save("bird.npy", np.array(table["bird"]))
    assert "no columns to audit" in unspur("audit", "rows.npy", "--task", "bird.npy", code=2)
    assert "the task itself" in unspur("audit", "birds.csv", "--task", "bird", "--column", "bird", code=2)
    assert "no column 'brid'" in unspur("audit", "birds.csv", "--task", "brid", code=1).replace("\n", " ")
    assert "no 'nothing' to ignore" in unspur("audit", "birds.csv", "--task", "bird", "--ignore", "nothing", code=1)


def test_properties_of_pictures_are_audited_and_paths_stay_inside(table, columns):
    rng = np.random.default_rng(0)
    names = []
    for i, place in enumerate(columns["place"]):
        light = 60 + 120 * (place == "sea") + rng.integers(40)
        Image.new("RGB", (6, 4 + i % 3), (int(light),) * 3).save(f"{i}.png")
        names.append(f"{i}.png")
    frame = pd.DataFrame(
        {**{k: v for k, v in columns.items() if k in ("bird", "z0", "z1", "z2", "z3")}, "picture": names}
    )
    frame.to_csv("shots.csv", index=False)
    told = json.loads(unspur("audit", "shots.csv", "--task", "bird", "--show", "picture", "--json"))
    flagged = [column["name"] for column in told["columns"] if column["flagged"]]
    assert flagged[0] == "picture brightness"
    assert "picture aspect" not in flagged
    assert told["skipped"]["picture contrast"].startswith("it is constant")
    frame.loc[3, "picture"] = "../3.png"
    frame.to_csv("shots.csv", index=False)
    assert "not inside of" in unspur("audit", "shots.csv", "--task", "bird", "--show", "picture", code=1).replace(
        "\n", " "
    )


def test_properties_of_a_picture_are_what_they_say():
    wide = picture_properties(Image.new("RGB", (40, 20), (255, 0, 0)))
    assert wide["picture aspect"] == 2
    assert wide["picture size"] == 800
    assert wide["picture red"] == 1
    assert wide["picture saturation"] == 1
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3)).astype(np.uint8)
    sharp = Image.fromarray(noise)
    blurred = sharp.resize((8, 8)).resize((64, 64))
    assert picture_properties(sharp)["picture sharpness"] > 0.5 + picture_properties(blurred)["picture sharpness"]
    assert np.isnan(picture_properties(Image.new("RGB", (1, 1)))["picture sharpness"])


def test_texts_of_a_table_are_measured(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\nSee https://a.b,1\nno,0\n", encoding="utf-8")
    found = content_properties(TableExamples.read(tmp_path / "texts.csv"))
    assert found["text links"].tolist() == [1, 0]
    assert found["text length"].tolist() == [15, 2]


def test_a_report_audits_the_columns_that_are_ignored(table):
    aside = [word for name in ("id", "camera", "tide", "copy") for word in ("--ignore", name)]
    unspur("report", "birds.csv", "--task", "bird", "--concept", "place", *aside, "--max-pairs", 2)
    page = Path("report.html").read_text(encoding="utf-8")
    section = page.partition('<section id="audit">')[2].partition("</section>")[0]
    assert "✓ place (removed here)" in section
    assert "✓ camera" not in section
    assert "copy: it equals bird" in section
    assert "✓ tide" in section
    Path("parts").mkdir()
    pd.read_csv("birds.csv").to_parquet("parts/0.parquet", index=False)
    unspur("report", "parts", "--task", "bird", "--concept", "place", *aside, "--max-pairs", 2, "--force")
    assert "✓ tide" in Path("report.html").read_text(encoding="utf-8")
    rows = np.stack([table[f"z{i}"] for i in range(4)], axis=1)
    np.savez("plain.npz", Z=rows, bird=table["bird"], place=table["place"])
    unspur("report", "plain.npz", "--task", "bird", "--concept", "place", "--max-pairs", 2, "--force")
    assert 'id="audit"' not in Path("report.html").read_text(encoding="utf-8")
