"""`unspur report`, from files as people have them to the page."""

import html
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import Image
from tests.optional import pandas as pd
from unspur import INLP, JSE, load, report
from unspur.cli import main
from unspur.cli.report import row_content
from unspur.datasets import make_toy
from unspur.embed.embedding import embed
from unspur.embed.examples import TableExamples
from unspur.exceptions import InputError, OutputExistsError
from unspur.io.files import read_table

BIRDS, PLACES = np.array(["land", "water"]), np.array(["forest", "sea"])


def unspur(*arguments, code=0):
    """Run the program; return its output, and its errors where it is meant to fail."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output if code else done.stdout


@pytest.fixture(scope="module")
def toy():
    return make_toy(700, d=6, rho=0.7, random_state=0)


@pytest.fixture
def table(toy, tmp_path, monkeypatch):
    """rows.csv in the folder that the program runs in, with a picture for each row."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shots").mkdir()
    for k, colour in enumerate(("red", "green", "blue", "grey")):
        Image.new("RGB", (12, 9), colour).save(tmp_path / "shots" / f"{k}.png")
    frame = pd.DataFrame(toy.Z, columns=[f"f{i}" for i in range(6)])
    frame["bird"], frame["place"] = BIRDS[toy.y], PLACES[toy.concept]
    frame["shot"] = [f"shots/{k}.png" for k in 2 * toy.y + toy.concept]
    frame.to_csv("rows.csv", index=False)
    return frame


LABELS = ("--task", "bird", "--concept", "place")


def test_a_table_with_pictures_becomes_a_page(table, tmp_path):
    said = unspur("report", "rows.csv", *LABELS, "--show", "shot", "--with", "LEACE", "--save", "r.safetensors")
    assert "Report: report.html\nOpen it in a browser." in said
    assert "Removal: r.safetensors" in said
    assert "linear probe" in said  # the verdict
    assert max(map(len, said.splitlines())) <= 80
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "data:image" in page  # thumbnails
    assert "LEACE" in page
    assert "bird=land" in page or "land" in page
    typed = "unspur report rows.csv --task bird --concept place --show shot --with LEACE --save r.safetensors"
    assert typed in html.unescape(page)
    removal = load("r.safetensors")
    assert removal.n_features_in_ == 6  # pictures are no feature
    assert list(removal.feature_names_in_) == [f"f{i}" for i in range(6)]


def test_without_test_rows_some_are_held_out_before_the_fit(table):
    told = json.loads(unspur("report", "rows.csv", *LABELS, "--ignore", "shot", "--save", "r.safetensors", "--json"))
    counts = [group["rows"] for group in told["results"][0]["accuracy"]["groups"]]
    assert sum(counts) == pytest.approx(210, abs=3)
    assert load("r.safetensors").training_hash_.startswith(f"{700 - sum(counts)}-")
    assert not any("used in the fit" in warning for warning in told["warnings"])
    assert told["results"][1]["name"] == "JSE"
    assert told["verdict"]
    assert told["n_removed"] == told["results"][1]["n_removed"] == load("r.safetensors").spurious_.dim


@pytest.mark.parametrize(
    ("method", "said"), [((), "350 rows to fit on"), (("--method", "JSE"), "550 rows to train heads on")]
)
def test_rows_that_lack_one_of_two_concepts_are_not_said_to_be_fitted_on(table, method, said):
    table["time"] = np.where(table["f4"] > 0, "day", "night")
    table.loc[:99, "place"] = np.nan
    table.loc[50:199, "time"] = np.nan
    table.iloc[:550].to_csv("train.csv", index=False)
    table.iloc[550:].to_csv("test.csv", index=False)
    options = (*LABELS, "--concept", "time", "--ignore", "shot")
    unspur("fit", "train.csv", *options, *method, "--output", "r.safetensors")
    unspur("report", "train.csv", "--test", "test.csv", *options, "--removal", "r.safetensors")
    # A classifier was fitted on the 350 rows that have both. A removal was fitted on the 500 that have
    # one of them, which its file does not record.
    assert said in Path("report.html").read_text(encoding="utf-8")


def test_rows_may_be_chosen_by_a_column(table):
    table["split"] = np.resize(["train", "train", "test", "val"], len(table))
    table.to_csv("rows.csv", index=False)
    told = json.loads(
        unspur(
            "report",
            "rows.csv",
            *LABELS,
            "--show",
            "shot",
            "--ignore",
            "split",
            "--where",
            "split=train",
            "--test-where",
            "split=test",
            "--validation-where",
            "split=val",
            "--with",
            "SUBG",
            "--json",
        )
    )
    assert sum(group["rows"] for group in told["results"][0]["accuracy"]["groups"]) == 175
    assert [judged["name"] for judged in told["results"]] == ["no removal", "JSE", "SUBG"]


def test_rows_may_be_chosen_by_two_columns(table):
    table["split"] = np.resize(["train", "train", "test", "val"], len(table))
    table.to_csv("rows.csv", index=False)
    chosen = ["report", "rows.csv", *LABELS, "--ignore", "shot", "--test-where", "bird=water", "--json"]
    told = json.loads(unspur(*chosen, "--where", "split=train"))
    assert told["n_features"] == 6
    assert "column 'split' holds 'train'" in unspur(*chosen, "--where", "place=sea", "--force", code=1)  # the control


def test_rows_that_are_not_shown_need_nothing_to_show(table):
    table.iloc[:500].drop(columns="shot").to_csv("train.csv", index=False)
    table.iloc[500:].to_csv("test.csv", index=False)
    unspur("report", "train.csv", *LABELS, "--test", "test.csv", "--show", "shot")
    assert "has no column 'shot'" in unspur("report", "train.csv", *LABELS, "--show", "shot", "--force", code=1)


def test_pictures_lie_in_their_folder_unless_it_is_said_that_they_need_not(table, tmp_path):
    (tmp_path / "rows").mkdir()
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8), "white").save(secret)
    (tmp_path / "rows" / "link.png").symlink_to(secret)
    options = ["rows/rows.csv", *LABELS, "--show", "shot", "--save", "r.safetensors"]
    for name in ("../secret.png", str(secret), "link.png"):
        table["shot"] = name
        table.to_csv("rows/rows.csv", index=False)
        said = unspur("report", *options, code=1)
        assert "which is not inside of rows. Give the folder of the pictures with --root; or" in said
        assert "pass --allow-outside." in said
        assert not (tmp_path / "report.html").exists()
        assert not (tmp_path / "r.safetensors").exists()  # nothing was fitted in vain
    unspur("report", *options, "--allow-outside")
    assert "data:image" in (tmp_path / "report.html").read_text("utf-8")
    table["shot"] = "secret.png"  # the control: inside of what was named
    table.to_csv("rows/rows.csv", index=False)
    unspur("report", *options, "--root", ".", "--force")


def test_links_in_a_circle_are_no_pictures(table, tmp_path):
    for name, target in (("shots/a.png", "b.png"), ("shots/b.png", "a.png"), ("shots/link.png", "0.png")):
        (tmp_path / name).symlink_to(target)
    report = ["report", "rows.csv", *LABELS, "--show", "shot"]
    embed = ["embed", "mine.csv", "--encoder", "grey-50", "--output", "store"]

    def name(picture):
        table.assign(shot=picture).to_csv("rows.csv", index=False)
        (tmp_path / "mine.csv").write_text(f"image,bird\n{picture},land\nshots/1.png,water\n")

    name("shots/a.png")
    for options in (report, [*report, "--allow-outside"], embed, [*embed, "--allow-outside"]):
        assert "a.png" in unspur(*options, code=1)
    name("shots/link.png")  # the control
    unspur(*report)
    unspur(*embed)


def test_pictures_in_an_archive_and_texts_in_a_column(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shots = np.random.default_rng(0).random((700, 8, 8, 3)).astype(np.float32)
    np.savez("rows.npz", Z=toy.Z, bird=toy.y, place=toy.concept, shots=shots)
    unspur("report", "rows.npz", *LABELS, "--show", "shots", "--output", "a.html")
    assert "data:image" in (tmp_path / "a.html").read_text()
    frame = pd.DataFrame(toy.Z, columns=list("abcdef")).assign(bird=toy.y, place=toy.concept)
    frame["words"] = [f"a sentence, the {i}th" for i in range(700)]
    frame.to_parquet("rows.parquet")
    unspur("report", "rows.parquet", *LABELS, "--show", "words", "--output", "b.html")
    page = (tmp_path / "b.html").read_text()
    assert re.search(r"a sentence, the \d+th", page)
    assert "data:image/" not in page.replace("img-src data:", "")


def test_a_store_shows_the_table_it_was_made_of(table, tmp_path):
    """Its rows are pixels here, so that directions are pictures as well."""
    frame = pd.DataFrame({"image": [f"shots/{i}.png" for i in range(120)]})
    rng = np.random.default_rng(0)
    frame["bird"], frame["place"] = rng.choice(BIRDS, 120), rng.choice(PLACES, 120)
    for i, (bird, place) in enumerate(zip(frame["bird"], frame["place"], strict=True)):
        pixels = rng.integers(60, 120, size=(50, 50), dtype=np.uint8)
        pixels[:25, :25] += 100 if bird == "water" else 0
        pixels[25:] += 90 if place == "sea" else 0
        Image.fromarray(pixels).save(f"shots/{i}.png")
    frame.to_csv("mine.csv", index=False)
    unspur("embed", "mine.csv", "--encoder", "grey-50", "--output", "store")
    inlp = INLP(max_directions=1, cv=0.2, random_state=0)  # of 2500 features, quicker than JSE
    inlp.fit(read_table("store").Z, frame["bird"], concept=frame["place"]).save("r.safetensors")
    options = ["report", "store", *LABELS, "--show", "mine.csv", "--removal", "r.safetensors"]
    unspur(*options)
    assert "data:image" in (tmp_path / "report.html").read_text()
    frame[::-1].to_csv("mine.csv", index=False)  # paths say which pictures are meant, in any order
    assert len(row_content("mine.csv", read_table("store"), None)["pictures"]) == 120
    frame.iloc[:50].to_csv("mine.csv", index=False)
    assert "rows of store are not among the examples of mine.csv" in unspur(*options, "--force", code=1)


@pytest.mark.parametrize("ids", [{}, {"id": list("abcd")}])
def test_texts_are_those_that_were_embedded(tmp_path, monkeypatch, ids):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"text": ["a seagull", "a duck", "an owl", "a wren"], "bird": [1, 1, 0, 0], **ids})
    frame.to_csv("mine.csv", index=False)
    embed(TableExamples.read("mine.csv"), Lengths(), "store", progress=False)
    rows = read_table("store").where("bird", "0")
    Path("mine.csv").rename("renamed.csv")
    assert list(row_content("renamed.csv", rows, None)["texts"]) == ["an owl", "a wren"]
    for changed in (frame.sort_values("text"), frame.replace("an owl", "a hawk"), frame.assign(bird=1)):
        changed.to_csv("changed.csv", index=False)
        with pytest.raises(InputError, match=r"changed\.csv is not the table that store was made of, or"):
            row_content("changed.csv", rows, None)


class Lengths:
    """The length of each text."""

    name, digest, device, kind, width = "lengths", "0123456789abcdef", "cpu", "text", 1

    def __call__(self, texts):
        return np.array([[len(text)] for text in texts], dtype=np.float32)


def test_names_from_the_data_stay_text(table, tmp_path):
    hostile = "<img src=x onerror=alert(1)>"
    table["place"] = np.where(table["place"] == "sea", hostile, "</script><script>alert(2)</script>")
    table["bird"] = np.where(table["bird"] == "land", '" onmouseover="alert(3)', "water")
    table["words"] = "</script><b>bold</b>"
    table = table.rename(columns={"place": "<i>place</i>"})
    table.to_csv("rows.csv", index=False)
    unspur(
        "report",
        "rows.csv",
        "--task",
        "bird",
        "--concept",
        "<i>place</i>",
        "--show",
        "words",
        "--ignore",
        "shot",
        "--title",
        "<b>title</b>",
    )
    page = (tmp_path / "report.html").read_text()
    for raw in (hostile, "<script>alert(2)", "<b>bold</b>", "<i>place</i>", "<b>title</b>"):
        assert raw not in page
    assert "onerror=alert(1)" in html.unescape(page)  # it is there, as text


def test_the_same_command_gives_the_same_bytes(table, tmp_path):
    command = ["report", "rows.csv", *LABELS, "--show", "shot"]
    unspur(*command)
    first = (tmp_path / "report.html").read_bytes()
    unspur(*command, "--force")
    again = (tmp_path / "report.html").read_bytes()
    assert again.replace(b" --force", b"") == first


def test_an_existing_page_is_kept_unless_forced(table, tmp_path):
    (tmp_path / "report.html").write_text("precious")
    assert "exists and is kept" in unspur("report", "rows.csv", *LABELS, "--ignore", "shot", code=1)
    assert (tmp_path / "report.html").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (
            ["--show", "shoot"],
            "has no column 'shoot' (its columns: f0, f1, f2, f3, f4, f5, bird, place, shot). Did you mean 'shot'?",
            1,
        ),
        ([], "column 'shot' holds 'shots/", 1),
        (["--ignore", "shot", "--output", "page.pdf"], "a name that ends in .html", 2),
        (["--show", "shot", "--root", "elsewhere"], "pictures do not exist: elsewhere/shots/", 1),
        (["--ignore", "shot", "--removal", "r.safetensors", "--cv", "3"], "--cv applies only to a removal", 2),
        (
            ["--ignore", "shot", "--removal", "r.safetensors", "--save", "s.safetensors"],
            "--save applies only to a removal",
            2,
        ),
        (["--ignore", "shot", "--with", "MAGIC"], "MAGIC", 2),
        (["--ignore", "shot", "--cv", "1"], "one fold", 2),
        (["--ignore", "shot", "--test-where", "bird=land"], "--where must select the training rows", 2),
        (["--show", "shots", "--ignore", "shot"], "Name one of its columns", 2),
        (["--ignore", "shot", "--output", "rows.csv"], "exists and is kept", 1),
        (["--ignore", "shot", "--output", "rows.csv", "--force"], "is an input file", 1),
        (["--ignore", "shot", "--output", "a.html", "--save", "a.html"], "Choose two different files", 2),
        (["--ignore", "shot", "--output", "nowhere/a.html"], "nowhere does not exist", 1),
    ],
)
def test_what_cannot_be_done_is_said_in_words(table, options, message, code):
    said = unspur("report", "rows.csv", *LABELS, *options, code=code)
    assert message in " ".join(said.split())
    assert "Traceback" not in said


def test_a_picture_that_is_missing_in_the_table_is_counted(table):
    table.loc[[3, 8], "shot"] = ""
    table.to_csv("rows.csv", index=False)
    said = unspur("report", "rows.csv", *LABELS, "--show", "shot", "--seed", "1", code=1)
    assert re.search(r"shot of rows\.csv is empty in \d rows?", said)


def test_a_removal_of_other_columns_is_refused(table):
    unspur("fit", "rows.csv", *LABELS, "--ignore", "shot", "--output", "r.safetensors")
    table.rename(columns={"f0": "g0"}).to_csv("other.csv", index=False)
    said = unspur("report", "other.csv", *LABELS, "--ignore", "shot", "--removal", "r.safetensors", code=1)
    assert "lacks the column 'f0'" in said


@pytest.mark.parametrize("how", ["held out", "chosen", "a file"])
def test_rows_without_a_name_are_called_by_their_number_in_the_file(table, how):
    table["part"] = ["train", "test"] * 350
    table.to_csv("rows.csv", index=False)
    table[table["part"] == "test"].to_csv("test.csv", index=False)
    chosen = ["--where", "part=train", "--test-where", "part=test"]
    options = {"held out": [], "chosen": chosen, "a file": ["--test", "test.csv"]}[how]
    unspur("report", "rows.csv", *LABELS, "--ignore", "shot", "--ignore", "part", "--cv", "0", *options)
    page = html.unescape(Path("report.html").read_text(encoding="utf-8"))
    frame = pd.read_csv("test.csv" if how == "a file" else "rows.csv")
    assert f"“row 7” is the seventh row of {'test' if how == 'a file' else 'rows'}.csv, not counting the line" in page
    rows = re.findall(r'class="about">(.*?)class="id" title="row (\d+)"', page, re.DOTALL)
    assert len(rows) >= 8
    for group, number in rows:
        line = frame.iloc[int(number) - 1]
        assert line["bird"] in group, (number, group)
        assert line["place"] in group, (number, group)
    if how == "chosen":
        assert all(int(number) % 2 == 0 for _, number in rows)


def test_concepts_that_are_not_known_are_in_no_group(table):
    table.loc[:99, "place"] = "unknown"
    table.to_csv("rows.csv", index=False)
    told = json.loads(
        unspur(
            "report", "rows.csv", *LABELS, "--show", "shot", "--missing-concept", "unknown", "--with", "INLP", "--json"
        )
    )
    assert len(told["results"][0]["accuracy"]["groups"]) == 4
    assert not any(judged["problem"] for judged in told["results"])
    note = "100 of 700 rows have no place; they are left out of the fit."
    assert note in told["warnings"]
    page = Path("report.html").read_text(encoding="utf-8")
    assert note in page
    assert int(re.search(r"(\d+) rows to fit on", page)[1]) == pytest.approx(0.7 * 600, abs=5)


def test_build_writes_the_page_from_python(toy, tmp_path):
    train, test = ((toy.Z[part], toy.y[part], toy.concept[part]) for part in (slice(0, 500), slice(500, 700)))
    jse = JSE(random_state=0).fit(train[0], train[1], concept=train[2])
    path = report.build(jse, train, test, tmp_path / "page.html", main="bird", title="Birds & places")
    assert path == tmp_path / "page.html"
    page = path.read_text()
    assert "Birds &amp; places" in page
    assert page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>")
    with pytest.raises(OutputExistsError):
        report.build(jse, None, None, path)  # before anything is looked at
    with pytest.raises(InputError, match="three things"):
        report.build(jse, train, test[:2], path, overwrite=True)
    assert path.read_text() == page  # what was there is kept where something fails
    report.build(jse, train, test, path, main="bird", title="Birds & places", overwrite=True)
    assert path.read_text() == page


def test_what_was_noted_of_columns_is_on_the_page(table):
    table.assign(f0=1e4 * table["f0"]).to_csv("wide.csv", index=False)
    command = ["report", "wide.csv", "--task", "bird", "--concept", "place", "--ignore", "shot", "--cv", "0", "--json"]
    told = json.loads(unspur(*command, "--output", "wide.html"))
    (note,) = (warning for warning in told["warnings"] if "will dominate" in warning)
    assert re.match("The column 'f0' has 10[⁷⁸⁹] times the median variance of the features and will dominate", note)
    with open("wide.html", encoding="utf-8") as page:
        assert note in html.unescape(page.read())
    assert told["verdict"][-1].endswith("unspur compare wide.csv --task bird --concept place --ignore shot")
    command[1] = "rows.csv"
    assert not any(
        "column" in warning for warning in json.loads(unspur(*command, "--output", "level.html"))["warnings"]
    )


def test_the_command_to_go_on_with_divides_and_weighs_rows_as_the_report_does(table):
    options = [*LABELS, "--ignore", "shot", "--seed", "3", "--balance", "concept"]
    told = json.loads(unspur("report", "rows.csv", *options, "--json"))
    command = shlex.split(told["verdict"][-1].split("unspur ")[1])
    assert command == ["compare", "rows.csv", *options]
    compared = json.loads(unspur(*command, "--remover", "none", "--remover", "JSE", "--head", "ERM", "--json"))
    for line, judged in zip(compared, told["results"], strict=True):
        assert line["accuracy"]["groups"] == judged["accuracy"]["groups"]


def test_columns_in_another_order_are_those_of_the_removal(table):
    labels = ["--task", "bird", "--concept", "place", "--ignore", "shot"]
    unspur("fit", "rows.csv", *labels, "--cv", "0", "--output", "r.safetensors")
    table[list(table.columns[::-1])].to_csv("turned.csv", index=False)
    told = [
        json.loads(
            unspur("report", f"{name}.csv", *labels, "--removal", "r.safetensors", "--json", "--output", f"{name}.html")
        )["results"]
        for name in ("rows", "turned")
    ]
    assert told[0][1]["accuracy"] == told[1][1]["accuracy"]
    assert told[0][1]["leakage"] == told[1][1]["leakage"]
