"""What a newcomer's files hold besides features and labels, and what the command line says of it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import pandas as pd
from unspur.cli import main
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.io.files import read_table
from unspur.io.table import suspicious_feature_notes
from unspur.removers import load

LABELS = ("--task", "bird", "--concept", "background")
FEATURES = [f"f{i}" for i in range(6)]


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """A frame of rows, in the folder that the program runs in."""
    monkeypatch.chdir(tmp_path)
    toy = make_toy(600, d=6, rho=0.6, random_state=0)
    frame = pd.DataFrame(toy.Z, columns=FEATURES)
    return frame.assign(bird=np.array(["land", "water"])[toy.y], background=np.array(["forest", "sea"])[toy.concept])


def unspur(*arguments, code=0):
    """Run the program; return standard output and standard error, in which lines are joined."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout, " ".join(done.stderr.split())


def fit(file="rows.csv", *options, code=0):
    return unspur("fit", file, *LABELS, "--force", "--output", "r.safetensors", *options, code=code)


# Labels in files of their own

NPY = ("--task", "bird.npy", "--concept", "background.npy")


@pytest.fixture
def arrays(birds):
    """Rows and labels in .npy files, and others in others.npy and others.npz."""
    np.save("rows.npy", birds[FEATURES].to_numpy())
    np.save("others.npy", birds[FEATURES].to_numpy()[::-1])
    np.save("part.npy", np.repeat([0, 1], 300))
    for name in LABELS[1::2]:
        np.save(f"{name}.npy", birds[name].to_numpy(str))
    labels = {f"{name}.npy": birds[name].to_numpy(str)[::-1] for name in LABELS[1::2]}
    np.savez("others.npz", Z=birds[FEATURES].to_numpy()[::-1], **labels)


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "--output", "r.safetensors", "--validation"),
        ("compare", "--validation"),
        ("compare", "--test"),
        ("report", "--test"),
    ],
)
def test_labels_of_one_file_are_not_those_of_another(arrays, command):
    verb, *options, option = command
    for labels in (NPY, (*LABELS[:2], *NPY[2:]), (*NPY, "--cluster", "part.npy")):
        said = unspur(verb, "rows.npy", *labels, *options, option, "others.npy", code=1)[1]
        assert f"{option} others.npy: " in said
        assert "for the rows of FILE, not for these. Put labels beside the rows of each file" in said


def test_labels_of_other_rows_of_a_file_and_beside_others_are_read(arrays):
    fit = ("fit", "rows.npy", *NPY, "--method", "LEACE", "--output", "r.safetensors", "--force")
    assert "A report on rows that were not used here needs labels beside them" in unspur(*fit)[0]
    some = unspur(*fit, "--where", "part.npy=0")[0].replace("\\\n", "")
    assert "--test-where part.npy=VALUE --removal r.safetensors" in " ".join(some.split())
    whole = ("--where", "part.npy=0", "--test-where", "part.npy=1")
    for test, rows in (
        (whole, 300),
        ((*whole[:2], "--test", "rows.npy", *whole[2:]), 300),
        (("--test", "others.npz"), 600),
    ):
        evaluated = json.loads(unspur("evaluate", "r.safetensors", "rows.npy", *NPY, *test, "--json")[0])
        assert evaluated["removed"]["rows"] == rows
        assert evaluated["removed"]["worst"] > 0.6  # with the labels of other rows it would be chance


@pytest.mark.parametrize("where", [(), ("--where", "part.npy=0")])
@pytest.mark.parametrize("word", ["NA", "", "null"])
def test_words_for_missing_values_in_files_of_labels_are_missing(arrays, birds, word, where):
    gaps = np.where(np.arange(600) % 10 == 0, word, birds["background"].to_numpy(str))
    np.save("background.npy", gaps)
    fit = ("fit", "rows.npy", *NPY, "--method", "LEACE", "--output", "r.safetensors", "--force", *where)
    noted = unspur(*fit)[1]
    assert f"60 of 600 cells of background.npy in rows.npy are {repr(word) if word else 'blank'}" in noted
    assert load("r.safetensors").concept_classes_ == ("forest", "sea")
    np.save("part.npy", np.where(np.arange(600) < 300, "0", word))
    if not where:
        clusters = unspur(*fit, "--method", "JSE", "--cluster", "part.npy", code=1)[1]
        assert "part.npy is missing in 300 rows" in clusters


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_labels_in_bytes_are_text(arrays, birds, kind):
    gaps = np.where(np.arange(600) % 10 == 0, "NA", birds["background"].to_numpy(str)).astype("S")
    frame = birds.assign(background=[bytes(value) for value in gaps])
    frame.to_parquet("rows.parquet")
    np.savez("rows.npz", Z=birds[FEATURES].to_numpy(), bird=birds["bird"].to_numpy(str), background=gaps)
    np.save("background.npy", gaps)
    labels = NPY if kind == "npy" else LABELS
    noted = unspur("fit", f"rows.{kind}", *labels, "--method", "LEACE", "--output", "r.safetensors")[1]
    assert "60 of 600 cells of background" in noted
    assert load("r.safetensors").concept_classes_ == ("forest", "sea")


def test_files_of_labels_are_written_under_their_names(arrays):
    fit = ("fit", "rows.npy", *NPY, "--output", "r.safetensors")
    unspur(*fit)
    unspur("predict", "r.safetensors", "rows.npy", *NPY, "--output", "p.csv")
    assert list(pd.read_csv("p.csv").columns[:3]) == ["bird", "background", "predicted"]


@pytest.mark.parametrize("size", [150, 599, 601])
def test_a_file_of_labels_has_as_many_as_there_are_rows(arrays, size):
    np.save("bird.npy", np.resize(["land", "water"], size))
    for where in ((), ("--where", "part.npy=0")):
        said = unspur("fit", "rows.npy", *NPY, "--output", "r.safetensors", *where, code=1)[1]
        assert f"bird.npy has {size} labels for the 600 rows of rows.npy. Each row needs one." in said


# Columns that are no features


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_row_numbers_among_the_features_are_noted(birds, kind):
    def written(frame):
        getattr(frame, f"to_{kind}")(f"rows.{kind}", index=False)
        return f"rows.{kind}"

    said = fit(written(birds.assign(id=np.arange(600))), "--json")
    assert "Note: the column 'id' counts the rows; is it a feature? If not: --ignore id." in said[1]
    assert json.loads(said[0])["n_features"] == 7  # a note is no refusal
    assert fit(written(birds.assign(id=np.arange(600))), "--ignore", "id")[1] == ""
    assert fit(written(birds))[1] == ""  # control


def table_of(birds, **columns):
    birds.assign(**columns).to_csv("rows.csv", index=False)
    return read_table("rows.csv", ("bird", "background"))


def test_what_is_taken_for_a_row_number_and_what_is_not(birds):
    rng = np.random.default_rng(0)
    counting = {"shuffled": 1 + rng.permutation(600), "the id": np.arange(1, 601)}
    notes = suspicious_feature_notes(table_of(birds, **counting))
    assert [note.split("; ")[0] for note in notes] == [
        "the column 'shuffled' counts the rows",
        "the column 'the id' counts the rows",
    ]
    assert notes[1].endswith("--ignore 'the id'.")
    assert "rises from row to row" in suspicious_feature_notes(table_of(birds, day=np.arange(600) * 2))[0]
    ordinary = {"pixel": rng.integers(0, 256, 600), "sorted": np.sort(rng.standard_normal(600)), "flag": [0, 1] * 300}
    assert suspicious_feature_notes(table_of(birds, **ordinary)) == []


@pytest.mark.parametrize(("scale", "power"), [(50, None), (2000, "10⁶ times"), (1e100, "times")])
def test_a_column_of_another_order_is_noted(birds, scale, power):
    number = scale * np.random.default_rng(0).standard_normal(600)
    notes = suspicious_feature_notes(table_of(birds, price=number))
    assert len(notes) == (power is not None)
    if power is not None:
        assert "'price'" in notes[0]
        assert f"{power} the median variance" in notes[0]


def test_unsigned_numbers_that_fall_do_not_rise(birds):
    falling = pd.DataFrame({"a": np.arange(40, 0, -2, dtype=np.uint8), "b": np.arange(20, dtype=np.uint8) % 7})
    falling.to_parquet("rows.parquet")
    assert suspicious_feature_notes(read_table("rows.parquet")) == []


def test_every_verb_that_learns_from_rows_notes_them(birds):
    birds.assign(id=np.arange(600)).to_csv("rows.csv", index=False)
    fit()
    for verb in (["evaluate", "r.safetensors"], ["compare", "--remover", "LEACE", "--head", "ERM"], ["report"]):
        out, noted = unspur(*verb, "rows.csv", *LABELS, "--json")
        assert "the column 'id' counts the rows" in noted
        json.loads(out)


def test_text_among_the_features_is_named_with_its_row_and_what_to_do(birds):
    birds.assign(note="hello", **{"my file": "a.jpg"}, f5=["", *["n/a"] * 599]).to_csv("rows.csv", index=False)
    said = fit(code=1)[1]
    assert (
        "column 'note' holds 'hello' in row 1, which is not a number (columns 'my file', 'f5' also contain text)"
        in said
    )
    assert "--ignore note --ignore 'my file' --ignore f5" in said
    assert "--show" not in said  # which fit does not have
    fit("rows.csv", "--ignore", "note", "--ignore", "my file", "--ignore", "f5")
    birds["f3"] = birds["f3"].astype(object)
    birds.loc[16, "f3"] = "n/a"
    birds.to_csv("rows.csv", index=False)
    said = fit(code=1)[1]
    assert "column 'f3' holds 'n/a' in row 17, which is not a number. If it is a missing value, drop the row" in said


def test_labels_in_files_are_called_by_their_stems(arrays):
    said, _ = unspur("fit", "rows.npy", *NPY, "--output", "r.safetensors")
    assert "directions carries background, 1 carries bird." in " ".join(said.split())
    for verb in (["predict", "r.safetensors"], ["evaluate", "r.safetensors"]):
        more = ["--output", "p.csv"] if verb[0] == "predict" else []
        shown = unspur(*verb, "rows.npy", *NPY, *more)[0]
        assert "bird=land, background=forest" in shown
        assert ".npy=" not in shown
    Path("other").mkdir()
    np.save("other/bird.npy", np.load("background.npy"))  # of two that share a stem both keep their names
    labels = ["--task", "bird.npy", "--concept", "other/bird.npy"]
    told = json.loads(unspur("fit", "rows.npy", *labels, "--json", "--output", "two.safetensors")[0])
    assert told["concepts"] == ["other/bird.npy"]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_than_commas_are_read(birds, separator):
    birds.rename(columns={"f0": "a, b"}).to_csv("rows.csv", index=False, sep=separator, quoting=csv.QUOTE_NONNUMERIC)
    table = read_table("rows.csv", ("bird", "background"))
    assert table.features == ["a, b", *FEATURES[1:]]
    np.testing.assert_allclose(table.Z, birds[FEATURES])


@pytest.mark.parametrize(("separator", "mark"), [(";", ","), ("\t", ";"), (",", ";")])
def test_one_mark_in_the_name_of_a_column_is_not_the_separator(birds, separator, mark):
    header = [f"a{mark} b", *birds.columns[1:]]  # without quotes, as spreadsheets write it
    lines = [separator.join(map(str, values)) for values in birds.itertuples(index=False)]
    Path("rows.csv").write_text("\n".join([separator.join(header), *lines]) + "\n")
    assert read_table("rows.csv", ("bird", "background")).features == [header[0], *FEATURES[1:]]


# Labels that are none


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_label_of_many_numbers_is_refused_before_anything_is_computed(birds, kind):
    getattr(birds, f"to_{kind}")(f"rows.{kind}", index=False)
    for verb in (["fit", "--output", "r.safetensors"], ["report"], ["compare"]):
        said = unspur(*verb, f"rows.{kind}", "--task", "bird", "--concept", "f3", "--ignore", "background", code=1)[1]
        assert f"f3 has 600 distinct values, such as {birds['f3'][0]:.4g}, " in said
        assert "concept_type='continuous'" in said
    said = unspur(
        "fit",
        f"rows.{kind}",
        "--task",
        "f3",
        "--concept",
        "background",
        "--ignore",
        "bird",
        "--output",
        "r.safetensors",
        code=1,
    )[1]
    assert "a label has a few classes." in said
    assert "continuous" not in said  # which is for concepts
    fit(f"rows.{kind}")  # control


@pytest.mark.parametrize("first", [None, ["forest"]])
def test_a_column_of_lists_is_no_label(birds, first):
    tags = [first, *([value, "tree"] for value in birds["background"][1:])]
    vectors = pd.DataFrame({"bird": birds["bird"], "tags": tags, "embedding": birds[FEATURES].to_numpy().tolist()})
    vectors.to_parquet("rows.parquet", index=False)
    for memory in ([], ["--memory", "1GB"]):
        chosen = ("rows.parquet", *LABELS[:2], "--concept", "tags", *memory, "--output", "r.safetensors")
        said = unspur("fit", *chosen, code=1)[1]
        assert "tags holds several values in a row, such as ['" in said
        assert "a label is one value for each row" in said


def test_rows_without_a_concept_are_counted(birds):
    birds.loc[:99, "background"] = None
    birds.to_csv("rows.csv", index=False)
    assert fit()[1] == "Note: 100 of 600 rows have no background; they are left out of the fit."
    birds.to_csv("rows.csv", index=False, na_rep="?")
    said = unspur("report", "rows.csv", *LABELS, "--missing-concept", "?", "--json", "--save", "s.safetensors")
    assert "100 of 600 rows have no background" in said[1]
    json.loads(said[0])
    assert (
        "left out"
        not in unspur("report", "rows.csv", *LABELS, "--missing-concept", "?", "--removal", "s.safetensors", "--force")[
            1
        ]
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_number_means_not_known_also_where_other_cells_are_empty(birds, kind):
    codes = (birds["background"] == "sea").astype(int).astype(object)
    codes[:90] = -1
    birds["background"] = codes.astype(int)
    getattr(birds, f"to_{kind}")(f"rows.{kind}", index=False)
    assert "90 of 600 rows have no background" in fit(f"rows.{kind}", "--missing-concept", "-1")[1]  # control
    codes[90] = None
    birds["background"] = codes.astype("Int64")
    getattr(birds, f"to_{kind}")(f"rows.{kind}", index=False)
    assert "91 of 600 rows have no background" in fit(f"rows.{kind}", "--missing-concept", "-1")[1]
    assert load("r.safetensors").concept_classes_ == (0, 1)


@pytest.mark.parametrize(
    ("word", "numbers"),
    [("NaN", False), ("nan", True), ("NA", False), ("N/A", True), ("null", False), ("None", True), ("  ", True)],
)
def test_words_for_a_value_that_is_not_there_are_gaps_of_a_label(birds, word, numbers):
    if numbers:
        birds["background"] = (birds["background"] == "sea").astype(int)
    birds["background"] = birds["background"].astype(object)
    birds.loc[:89, "background"] = None
    birds["old"] = birds["background"]
    birds.to_csv("rows.csv", index=False, na_rep=word)
    said = fit("rows.csv", "--ignore", "old")[1]
    seen = repr(word) if word.strip() else "blank"
    assert f"Note: 90 of 600 cells of background in rows.csv are {seen}, which was read as missing." in said
    assert "90 of 600 rows have no background" in said
    assert load("r.safetensors").concept_classes_ == ((0, 1) if numbers else ("forest", "sea"))
    assert "no row" not in fit("rows.csv", "--ignore", "old", "--missing-concept", word)[1]
    # What is carried along, and what rows are chosen by, is as it was written.
    unspur(
        "apply",
        "r.safetensors",
        "rows.csv",
        "--ignore",
        "bird",
        "--ignore",
        "background",
        "--label",
        "old",
        "--where",
        f"old={word}",
        "--output",
        "c.csv",
    )
    with open("c.csv", newline="", encoding="utf-8") as file:
        assert [line["old"] for line in csv.DictReader(file)] == 90 * [word]


def test_a_main_label_that_is_not_there_is_no_class(birds):
    birds.loc[:2, "bird"] = "NaN"
    birds.to_csv("rows.csv", index=False)
    assert "bird is missing in 3 rows; only background may have missing values" in fit(code=1)[1]


@pytest.mark.parametrize(
    ("other", "how"),
    [
        ("sea ", "'sea' and 'sea ', classes that differ by white space alone."),
        ("Sea", "'Sea' and 'sea', classes that differ by case alone."),
        ("SEA ", "'SEA ' and 'sea', classes that differ by white space and case alone."),
    ],
)
def test_classes_that_differ_by_white_space_or_case_are_noted(birds, other, how):
    birds.loc[(birds.index < 200) & (birds["background"] == "sea"), "background"] = other
    birds.to_csv("rows.csv", index=False)
    said = fit("rows.csv", "--smallest-group", "2")[1]
    assert f"rows.csv has {how}" in said
    assert len(load("r.safetensors").concept_classes_) == 3  # nothing is stripped


def test_a_value_for_not_known_that_no_row_has_is_noted(birds):
    birds.to_csv("rows.csv", index=False)
    said = fit("rows.csv", "--missing-concept", "unknown")[1]
    assert "Note: no row of rows.csv has background = unknown" in said
    birds.assign(background=birds["background"] == "sea").to_parquet("rows.parquet")
    assert "background has one class only (True)" in fit("rows.parquet", "--missing-concept", "False", code=1)[1]


# Labels in two files


def in_two_files(birds, gaps, *, word, kind="csv"):
    """Write 0 and 1 as the concept of two files; in one of them, a word instead in every tenth row."""
    files = []
    for file, half in (("a", birds[:300]), ("b", birds[300:])):
        half = half.assign(background=(half["background"] == "sea").astype(int))
        if file == gaps:
            half["background"] = half["background"].astype(str).where(np.arange(300) % 10 > 0, word)
        getattr(half, f"to_{kind}")(f"{file}.{kind}", index=False)
        files.append(f"{file}.{kind}")
    return files


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("gaps", ["a", "b"])
@pytest.mark.parametrize("verb", ["fit", "compare"])
def test_a_word_for_not_known_in_one_of_two_files_is_no_class(birds, kind, gaps, verb):
    """A word in one file makes its other classes text, too; they are the numbers of the other file."""
    option, *more = {
        "fit": ("--validation", "--method", "JSE", "--output", "r.safetensors", "--force"),
        "compare": ("--test", "--remover", "JSE", "--head", "ERM"),
    }[verb]

    def results(word, *missing):
        one, other = in_two_files(birds, gaps, word=word, kind=kind)
        said, noted = unspur(verb, one, option, other, *LABELS, *more, *missing, "--json")
        assert "has no effect" not in noted
        found = json.loads(said)
        return found["trace"] if verb == "fit" else found[0]["accuracy"]["worst"]

    assert results("?", "--missing-concept", "?") == results("")  # an empty cell
    if gaps == "b":  # the control: nobody says what it means
        one, other = in_two_files(birds, gaps, word="?", kind=kind)
        refused = unspur(verb, one, option, other, *LABELS, *more, code=1)[1]
        assert "has the value '?', which the training rows do not have (['0', '1'])" in refused


@pytest.mark.parametrize("gaps", ["a", "b"])
def test_parquet_files_that_are_read_together_have_one_type(birds, gaps):
    files = in_two_files(birds, gaps, word="?", kind="parquet")
    options = ("--missing-concept", "?", "--method", "LEACE", "--output", "r.safetensors")
    noted = unspur("fit", *files, *LABELS, *options)[1]
    assert "30 of 600 rows have no background" in noted
    assert load("r.safetensors").concept_classes_ == ("0", "1")


def test_numbers_of_a_saved_removal_are_those_of_a_file_in_which_they_are_text(birds):
    one, other = in_two_files(birds, "b", word="?")
    unspur("fit", one, *LABELS, "--output", "r.safetensors")
    with open(other, encoding="utf-8") as file:
        lines = [line.replace(",0\n", ",0.0\n").replace(",1\n", ",1.0\n") for line in file]
    with open(other, "w", encoding="utf-8") as file:
        file.writelines(lines)
    predict = ("predict", "r.safetensors", other, *LABELS, "--json", "--output", "p.csv", "--force")
    said = unspur(*predict, "--missing-concept", "?")[0]
    assert sum(group["rows"] for group in json.loads(said)["accuracy"]["groups"]) == 270
    assert "background has the value '?', and the removal was fitted for" in unspur(*predict, code=1)[1]  # control


# Names that are near


def test_a_near_miss_is_asked_after_and_many_columns_are_counted(birds):
    wide = pd.DataFrame(np.random.default_rng(0).standard_normal((600, 40))).add_prefix("z")
    wide.assign(bird=birds["bird"], background=birds["background"]).to_csv("rows.csv", index=False)
    said = unspur("fit", "rows.csv", "--task", "bird", "--concept", "Backgrond", "--output", "r", code=1)[1]
    assert said.endswith("z19 and 22 more). Did you mean 'background'?")
    said = fit("rows.csv", "--where", "season=summer", code=1)[1]
    assert "has no column 'season'" in said
    assert "Did you mean" not in said
    np.savez("rows.npz", Z=wide, bird=birds["bird"].to_numpy(str), background=birds["background"].to_numpy(str))
    said = unspur("fit", "rows.npz", "--task", "brid", "--concept", "background", "--output", "r", code=1)[1]
    assert "has no array 'brid' (it has: bird, background). Did you mean 'bird'?" in said
    with pytest.raises(InputError, match=r"no 'brd' to ignore .* Did you mean 'bird'\?"):
        read_table("rows.csv", (), ("brd",))
    birds.rename(columns={"bird": " y"}).to_csv("rows.csv", index=False)  # as after ", "
    with pytest.raises(InputError, match=r"no column 'y' .* Did you mean ' y'\?"):
        read_table("rows.csv", ("y",))


def test_a_command_has_the_whole_name_of_a_column_with_an_equals_sign(birds):
    birds.assign(**{"part=set": np.where(np.arange(600) < 400, "a", "b")}).to_csv("rows.csv", index=False)
    said = " ".join(fit("rows.csv", "--where", "part=set=a")[0].split())
    assert "--where part=set=a --test-where part=set=VALUE" in said


def test_a_note_about_a_file_is_printed_once(birds):
    birds.loc[::20, "background"] = "NA"
    part = np.where(np.arange(600) < 400, "a", "b")
    birds.assign(part=part).to_csv("rows.csv", index=False)
    command = ("compare", "rows.csv", *LABELS, "--remover", "none", "--head", "ERM", "--where", "part=a")
    said = unspur(*command, "--test-where", "part=b")[1]
    assert said.count("30 of 600 cells of background in rows.csv are 'NA'") == 1
    birds.assign(part=part).to_csv("others.csv", index=False)
    said = unspur(*command, "--test", "others.csv", "--test-where", "part=b")[1]
    assert said.count("30 of 600 cells of background in ") == 2  # control: of another file


def test_a_comparison_without_any_result_is_an_error(birds):
    birds.to_csv("rows.csv", index=False)
    birds.assign(**birds[FEATURES] + 0.1, background="").to_csv("unknown.csv", index=False)
    command = ("compare", "--remover", "none", "--remover", "LEACE", "--head", "ERM", *LABELS, "--csv", "table.csv")
    for options in ((), ("--json",)):
        shown, said = unspur(*command, "rows.csv", "--test", "unknown.csv", *options, code=1)
        assert said.startswith("Error: No combination could be evaluated. No test row has a known background")
        assert not shown
        assert not Path("table.csv").exists()
    birds.assign(background=birds["bird"]).to_csv("same.csv", index=False)
    shown, said = unspur(*command, "same.csv", "--json")  # control: a head without a removal can be fitted
    assert [bool(line["problem"]) for line in json.loads(shown)] == [False, True]


def test_validation_rows_without_a_concept_are_called_so(birds):
    birds.to_csv("rows.csv", index=False)
    birds.assign(**birds[FEATURES] + 0.1, background="").to_csv("unknown.csv", index=False)
    said = fit("rows.csv", "--validation", "unknown.csv", code=1)[1]
    assert "None of the validation rows has both a background and" in said


def test_test_rows_of_one_concept_are_noted_or_refused(birds):
    birds.to_csv("rows.csv", index=False)
    others = birds.assign(**birds[FEATURES] + 0.1)
    others.to_csv("both.csv", index=False)
    others[others["background"] == "sea"].to_csv("sea.csv", index=False)
    fit()
    same = "ll test rows have the same background (sea)"
    for verb in (("evaluate", "r.safetensors"), ("compare", "--remover", "none", "--head", "ERM")):
        said = {test: unspur(*verb, "rows.csv", *LABELS, "--test", f"{test}.csv")[1] for test in ("both", "sea")}
        assert same in said["sea"]
        assert same not in said["both"]
    told = json.loads(unspur("evaluate", "r.safetensors", "rows.csv", *LABELS, "--test", "sea.csv", "--json")[0])
    assert any(same in note for note in told["notes"])
    # A report is about probes as well.
    assert same in unspur("report", "rows.csv", *LABELS, "--test", "sea.csv", code=1)[1]


@pytest.mark.parametrize("train", ["csv", "parquet"])
def test_boolean_labels_may_be_words_in_one_of_the_files(birds, train):
    """A CSV file has False as text, and a Parquet file as a boolean; `predict` takes both as well."""
    words = birds.assign(bird=birds["bird"] == "water", background=birds["background"] == "sea")
    words.to_csv("train.csv", index=False)
    words.to_parquet("train.parquet", index=False)
    words.assign(**words[FEATURES] + 0.1).to_csv("test.csv", index=False)
    words.assign(**words[FEATURES] + 0.1).to_parquet("test.parquet", index=False)
    told = []
    for kind in ("csv", "parquet"):
        fit(f"train.{train}", "--validation", f"test.{kind}")
        files = (f"train.{train}", "--test", f"test.{kind}")
        evaluated = json.loads(unspur("evaluate", "r.safetensors", *files, *LABELS, "--json")[0])
        told.append([(group["rows"], group["correct"]) for group in evaluated["removed"]["groups"]])
    assert told[0] == told[1]
    assert len(told[0]) == 4


# Columns of some files only


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_to_ignore_need_be_in_one_of_the_files_only(birds, kind):
    write = getattr(pd.DataFrame, f"to_{kind}")
    for name, rows in (("train", birds), ("test", birds.assign(**birds[FEATURES] + 0.1, note="a text"))):
        write(rows, f"{name}.{kind}", index=False)
    files = (f"train.{kind}", *LABELS)
    fit(f"train.{kind}")
    for ignore, code in ((("--ignore", "note"), 0), ((), 1), (("--ignore", "note", "--ignore", "nosuch"), 1)):
        told = fit(f"train.{kind}", "--validation", f"test.{kind}", *ignore, code=code)[1]
        said = []
        for verb in (("evaluate", "r.safetensors"), ("compare", "--remover", "LEACE", "--head", "ERM")):
            said = unspur(*verb, *files, "--test", f"test.{kind}", *ignore, code=code)
            told += said[1]
        assert "note" not in said[0]  # the command that fits the removal has no test rows
        assert told.count(f"train.{kind} has no 'nosuch' to ignore") == (3 if "nosuch" in ignore else 0)
        assert told.count("If it is not a feature: --ignore note.") == (0 if ignore else 3)


@pytest.mark.parametrize("memory", [None, "1MB"])
def test_a_column_to_ignore_need_be_in_one_of_several_parquet_files_only(birds, memory):
    birds.to_parquet("0.parquet", index=False)
    birds.assign(note="a text").to_parquet("1.parquet", index=False)
    both, labels = ["0.parquet", "1.parquet"], ("bird", "background")
    assert read_table(both, labels, ("note",), memory=memory).Z.shape == (1200, 6)
    with pytest.raises(InputError, match=r"0\.parquet has no 'nosuch' to ignore"):
        read_table(both, labels, ("nosuch",), memory=memory)


# Files that are not there, or in the other's place


def test_files_that_are_not_there_or_swapped_are_told(birds):
    birds.to_csv("rows.csv", index=False)
    fit()
    assert "There is no file nosuch.csv." in unspur("embed", "nosuch.csv", "--encoder", "grey-50", code=1)[1]
    said = unspur("evaluate", "rows.csv", "r.safetensors", *LABELS, code=1)[1]
    assert "Is it a removal that unspur fit saved? FILE and REMOVAL may be swapped." in said
    assert load("r.safetensors").n_features_in_ == 6


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_times_are_labels_in_every_kind_of_file(birds, kind, zone):
    times = pd.Series(pd.to_datetime(np.where(birds["background"] == "sea", "2020-01-01", "2021-01-01")))
    rows = birds.assign(background=times.dt.tz_localize(zone))
    getattr(rows, f"to_{kind}")(f"rows.{kind}", index=False)
    fit(f"rows.{kind}", "--method", "LEACE")
    assert len(load("r.safetensors").concept_classes_) == 2
    fit(f"rows.{kind}")
    rows.to_csv("again.csv", index=False)
    for file in (f"rows.{kind}", "again.csv"):
        told, _ = unspur("predict", "r.safetensors", file, *LABELS, "--output", "p.csv", "--force")
        assert "worst group" in told


def test_a_duration_that_an_audit_recommends_can_be_removed(birds):
    sea = birds["background"] == "sea"
    birds.assign(background=pd.to_timedelta(np.where(sea, 5, 7), "h")).to_parquet("rows.parquet", index=False)
    told, _ = unspur("audit", "rows.parquet", "--task", "bird")
    assert "--concept background" in told
    fit("rows.parquet", "--method", "LEACE")
    assert load("r.safetensors").concept_classes_ == ("5:00:00", "7:00:00")
