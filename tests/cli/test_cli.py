"""The command line, run as a user runs it, on real files; in a process of its own where that may make a difference."""

import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from click.testing import CliRunner

from tests.entangled import entangled_rows
from tests.optional import pandas as pd
from unspur import LEACE, compare
from unspur.cli import embed, main, options
from unspur.datasets import make_toy
from unspur.embed import embedding
from unspur.embed import examples as loading
from unspur.embed.base import Precision
from unspur.embed.huggingface import Pooling
from unspur.heads import HEADS
from unspur.io.files import read_table
from unspur.removers import load

README = Path(__file__).parents[2] / "README.md"


def unspur(*arguments, cwd, code=0):
    """Run the program; return its standard output, or its error when it is meant to fail."""
    command = [sys.executable, "-W", "error", "-m", "unspur", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def invoke(*arguments, code=1):
    """Run the program in this process, where it is quicker; return all it said."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.fixture(scope="module")
def toy():
    return make_toy(800, d=6, rho=0.6, random_state=0)


def write(toy, folder, kind):
    """The toy set as a file of a kind; labels named bird and background. Returns the arguments that name it."""
    frame = pd.DataFrame(toy.Z, columns=[f"f{i}" for i in range(6)])
    frame.insert(0, "bird", np.array(["land", "water"])[toy.y])
    frame["background"] = toy.concept
    if kind == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
    elif kind == "parquet":
        frame.to_parquet(folder / "rows.parquet")
    elif kind == "npz":
        np.savez(folder / "rows.npz", Z=toy.Z, bird=frame["bird"].to_numpy().astype(str), background=toy.concept)
    else:
        np.save(folder / "rows.npy", toy.Z)
        np.save(folder / "bird.npy", toy.y)
        np.save(folder / "background.npy", toy.concept)
        return ["rows.npy", "--task", "bird.npy", "--concept", "background.npy"]
    return [f"rows.{kind}", "--task", "bird", "--concept", "background"]


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_fit_apply_and_evaluate_on_every_kind_of_file(toy, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    names = write(toy, tmp_path, kind)
    shown = invoke("fit", *names, "--output", "removal.safetensors", code=0)
    assert "1 of 6 directions carries" in shown
    removal = load(tmp_path / "removal.safetensors")
    labels = [] if kind == "npy" else ["--label", "bird", "--label", "background"]
    # In a process of its own, which has imported nothing that reads or writes this kind of file.
    unspur("apply", "removal.safetensors", names[0], "--output", f"clean.{kind}", *labels, cwd=tmp_path)
    readers = {
        "npy": np.load,
        "npz": lambda path: np.load(path)["Z"],
        "csv": lambda path: pd.read_csv(path).filter(like="f", axis=1).to_numpy(),
        "parquet": lambda path: pd.read_parquet(path).filter(like="f", axis=1).to_numpy(),
    }
    clean = readers[kind](tmp_path / f"clean.{kind}")
    np.testing.assert_allclose(clean, removal.removal_(toy.Z), atol=1e-12)
    assert np.abs((clean - removal.removal_.centre) @ removal.spurious_.basis).max() < 1e-9
    results = json.loads(invoke("evaluate", "removal.safetensors", *names, "--json", code=0))
    layers = {"no removal", "no removal, group-weighted", "removed", "removed, group-weighted"}
    assert layers | {"selection_notes", "verdict", "notes"} == set(results)
    for name in layers:  # each penalty, and what depends on it
        by_penalty = {line["penalty"]: line["worst"] for line in results[name]["worst_by_penalty"]}
        assert by_penalty[results[name]["penalty"]] == results[name]["worst"]
        assert len(by_penalty) >= 5
    assert "a fifth of each group of the training rows" in results["selection_notes"][0]
    assert 0.5 < results["removed"]["worst"] <= 1


def test_fit_with_a_strength(toy, tmp_path):
    names = write(toy, tmp_path, "npz")
    folder = str(tmp_path / names[0]), *names[1:]
    for strength, said in (("0.5", "removed with a strength of 0.5"), ("0", "No direction was removed")):
        for method in ("recommended", "LEACE"):
            output = tmp_path / f"{method}-{strength}.safetensors"
            shown = invoke("fit", *folder, "--method", method, "--strength", strength, "--output", output, code=0)
            assert said in " ".join(shown.split())
            assert load(output).strength_ == float(strength)
    clean = tmp_path / "clean.npz"
    for name, said in (
        ("LEACE-0.5", "1 of 6 directions removed with a strength of 0.5"),
        ("LEACE-0", "0 of 6 directions removed:"),
    ):
        shown = invoke("apply", tmp_path / f"{name}.safetensors", folder[0], "--output", clean, "--force", code=0)
        assert said in " ".join(shown.split())
    shown = invoke("fit", *folder, "--strength", "1.5", "--output", tmp_path / "no.safetensors", code=2)
    assert "1.5 is not in the range 0<=x<=1" in shown


def test_separate_validation_and_test_files(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, part in (("train", slice(0, 400)), ("val", slice(400, 600)), ("test", slice(600, 800))):
        np.savez(tmp_path / f"{name}.npz", Z=toy.Z[part].astype(np.float32), y=toy.y[part], c=toy.concept[part])
    labels = ["--task", "y", "--concept", "c"]
    files = ["train.npz", "--validation", "val.npz", "--output", "r.safetensors"]
    fit = json.loads(invoke("fit", *files, *labels, "--json", code=0))
    assert fit["n_features"] == 6
    assert fit["trace"]["steps"]
    text = unspur("evaluate", "r.safetensors", "train.npz", "--test", "test.npz", *labels, cwd=tmp_path)
    assert "worst group" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_existing_output_is_kept_unless_forced(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = write(toy, tmp_path, "npz")
    (tmp_path / "r.safetensors").write_text("precious")
    error = invoke("fit", *names, "--output", "r.safetensors", code=1)
    assert "exists and is kept" in error
    assert (tmp_path / "r.safetensors").read_text() == "precious"
    invoke("fit", *names, "--output", "r.safetensors", "--force", code=0)
    assert load(tmp_path / "r.safetensors").spurious_.dim == 1


def _saved(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def _pickled():
    return _saved(np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "There is no file"),
        ("empty.npy", b"", "is empty"),
        ("empty.csv", b"", "is empty"),
        ("rows.txt", b"1 2", "unknown kind of file"),
        ("broken.npz", b"PK\x03\x04 not really", "cannot be read as a .npz"),
        ("broken.parquet", b"PAR1 not really", "cannot be read as Parquet"),
        ("broken.npy", b"\x93NUMPY\x01\x00v\x00", "cannot be read as a .npy file"),
        ("header.csv", b"a,b,y,c\n", "no rows"),
        ("ragged.csv", b"a,b,y,c\n1,2,0,1\n1,2,0\n", "row 2 has 3 fields; the header has 4"),
        ("text.csv", b"a,b,y,c\n1,x,0,1\n2,y,1,0\n", "--ignore"),
        ("unlabelled.csv", b"a,b\n1,2\n3,4\n", "has no column 'y'"),
        ("decimals.csv", b"a;b;y;c\n1,5;2,5;0;1\n", "Write decimals with a point"),
        ("twice.csv", b"a,a,y,c\n1,2,0,1\n1,2,1,0\n", "several columns named 'a'"),
        ("gap.csv", b"a,b,y,c\n1,,0,1\n1,2,1,0\n", "1 NaN in column 'b'"),
        ("latin.csv", "é,b,y,c\n1,2,0,1\n".encode("latin-1"), "not UTF-8"),
        (
            "packed.csv",
            gzip.compress(b"a,b,y,c\n1,2,0,1\n", mtime=0),
            "it is compressed (gzip). Let its name end in .gz.",
        ),
        ("sheet.csv", b"PK\x03\x04...", "it is a zip archive, or a spreadsheet"),
        ("columns.csv", b"PAR1...", "it is a Parquet file. Let its name end in .parquet."),
        ("objects.npy", _pickled(), "Python objects"),
        ("renamed.npz", _saved(np.ones((4, 2))), "cannot be read as a .npz"),
        ("text.npy", _saved(np.array([["a", "b"]])), "rows must be numbers"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    error = invoke("fit", tmp_path / name, "--task", "y", "--concept", "c", "--output", tmp_path / "r.safetensors")
    assert message in error
    assert len(error) < 400
    assert not list(tmp_path.glob("*.safetensors"))


def test_labels_with_gaps_in_a_csv(tmp_path):
    toy = make_toy(800, d=4, rho=0.5, random_state=1)
    frame = pd.DataFrame(toy.Z, columns=list("abcd")).assign(y=toy.y, c=toy.concept.astype(object), note="hello")
    frame.loc[:50, "c"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    options = ["--task", "y", "--concept", "c", "--ignore", "note", "--output", tmp_path / "r.safetensors"]
    assert "directions carries c" in invoke("fit", tmp_path / "gaps.csv", *options, code=0)


def test_rows_that_are_not_finite_are_named_by_apply(toy, tmp_path):
    LEACE().fit(toy.Z, toy.y, concept=toy.concept).save(tmp_path / "r.safetensors")
    Z = toy.Z.copy()
    Z[5, 3] = np.nan
    np.save(tmp_path / "bad.npy", Z)
    error = invoke("apply", tmp_path / "r.safetensors", tmp_path / "bad.npy", "--output", tmp_path / "out.npy", code=1)
    assert "1 NaN in column 3" in error
    assert not (tmp_path / "out.npy").exists()


def test_demo_raises_the_worst_group_and_draws_a_figure(tmp_path):
    pytest.importorskip("matplotlib")
    result = json.loads(unspur("demo", "--json", "--output", "figure.png", cwd=tmp_path))
    before, after = result["accuracy"]["no removal"], result["accuracy"]["JSE"]
    assert after["worst"] > before["worst"] + 0.1
    assert after["group_average"] > before["group_average"]
    # What stands beside it: a group-weighted layer without any removal, and a removal of one direction, do as well.
    weighted = result["accuracy"]["no removal, group-weighted"]
    assert abs(weighted["worst"] - after["worst"]) < 0.03
    said = " ".join(result["verdict"])
    assert "A group-weighted head on the original rows, without a removal, does as well" in said
    assert "LEACE, with 1 direction instead of 7, does as well" in said
    assert "With a group-weighted head, the gap between the best group (" in said
    assert result["penalty"]["no removal"] == result["penalty"]["JSE"] == 1e-6
    (line,) = (line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| digits"))
    told = [float(figure) for figure in re.findall(r"\| (\d+\.\d) \(", line)]
    shown = [result["accuracy"][name]["worst"] for name in result["accuracy"]]
    leace = next(judged for judged in result["results"] if judged["name"] == "LEACE")
    assert told == [round(100 * worst, 1) for worst in (*shown, leace["accuracy"]["worst"])]
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "exists" in invoke("demo", "--output", tmp_path / "figure.png", code=1)


def test_demo_says_what_to_do_where_a_group_is_too_small(tmp_path):
    command = ["demo", "--output", str(tmp_path / "demo.png")]
    done = CliRunner().invoke(main, [*command, "--agreement", "0.95", "--seed", "233"])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert "With --agreement 0.95 and --seed 233 a group has 9 pictures to test directions on; 10 are needed." in said
    assert "Choose another seed, or a lower agreement." in said
    assert CliRunner().invoke(main, [*command, "--agreement", "0.96"]).exit_code == 2  # where chance does so often


def test_help_version_and_misuse(tmp_path):
    assert "demo" in unspur("--help", cwd=tmp_path)
    for verb in ("demo", "fit", "apply", "evaluate"):
        assert "Example:" in invoke(verb, "--help", code=0)
    assert unspur("--version", cwd=tmp_path).startswith("unspur 0.")
    assert "Missing option" in unspur("fit", "x.npy", cwd=tmp_path, code=2)


@pytest.fixture
def fitted(toy, tmp_path):
    """A folder with rows.csv and a removal fitted on it; the arguments that name the labels."""
    names = write(toy, tmp_path, "csv")
    invoke("fit", tmp_path / names[0], *names[1:], "--output", tmp_path / "r.safetensors", code=0)
    return tmp_path, names[1:]


def test_columns_are_matched_by_name(toy, fitted):
    folder, labels = fitted
    frame, words = (pd.read_csv(folder / "rows.csv", dtype=kind) for kind in (None, str))
    words[words.columns[::-1]].to_csv(folder / "turned.csv", index=False)  # words keep all digits
    keep = ["--label", "bird", "--label", "background"]
    for name in ("rows", "turned"):
        out = ["--output", folder / f"{name}-clean.csv"]
        invoke("apply", folder / "r.safetensors", folder / f"{name}.csv", *keep, *out, code=0)
    straight, turned = (pd.read_csv(folder / f"{name}-clean.csv") for name in ("rows", "turned"))
    pd.testing.assert_frame_equal(straight, turned[straight.columns])
    assert np.abs(straight["f0"] - frame["f0"]).max() > 0.1
    files = [folder / "r.safetensors", folder / "rows.csv", "--test"]
    reports = [invoke("evaluate", *files, folder / f"{name}.csv", *labels, code=0) for name in ("rows", "turned")]
    assert reports[0] == reports[1]
    frame.rename(columns={"f3": "g"}).to_csv(folder / "other.csv", index=False)
    assert "lacks the column 'f3'" in invoke(
        "apply", folder / "r.safetensors", folder / "other.csv", *keep, "--output", folder / "o.csv"
    )
    frame.assign(extra=1.0).to_csv(folder / "more.csv", index=False)
    assert "has a column 'extra' that the removal does not know" in invoke(
        "apply", folder / "r.safetensors", folder / "more.csv", *keep, "--output", folder / "o.csv"
    )


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_that_choose_rows_are_features_of_none(toy, fitted, kind):
    folder, labels = fitted
    frame = pd.read_csv(folder / "rows.csv")
    frame["split"], frame["site"] = np.arange(800) % 2, np.arange(800) // 2 % 3
    rows = folder / f"chosen.{kind}"
    frame.to_csv(rows, index=False) if kind == "csv" else frame.to_parquet(rows)
    first, output = ["--where", "split=0"], ["--output", folder / "new.safetensors", "--force"]

    def features(*options):
        invoke("fit", rows, *labels, *first, *options, *output, code=0)
        return load(folder / "new.safetensors").n_features_in_

    assert features() == 7  # the control: nobody said that the site is none
    assert features("--validation-where", "site=1") == 6
    for verb in (["compare", rows, "--remover", "none"], ["evaluate", folder / "r.safetensors", rows]):
        for option in ("--test-where", "--validation-where"):
            invoke(*verb, *labels, *first, option, "site=1", code=0)
    # A file that lacks a column which another is chosen by.
    frame.drop(columns="site").to_csv(folder / "others.csv", index=False)
    invoke(
        "compare",
        rows,
        *labels,
        "--where",
        "site=1",
        "--remover",
        "none",
        "--test",
        folder / "others.csv",
        "--test-where",
        "split=1",
        code=0,
    )


def test_gaps_in_labels_survive_every_kind_of_file(toy, fitted):
    folder, labels = fitted
    frame = pd.read_csv(folder / "rows.csv").astype({"background": object})
    frame.loc[:30, "background"] = None
    frame.to_csv(folder / "step0.csv", index=False)
    source = "step0.csv"
    keep = ["--label", "bird", "--label", "background"]
    for i, kind in enumerate(("parquet", "csv", "npz"), start=1):
        invoke(
            "apply", folder / "r.safetensors", folder / source, *keep, "--output", folder / f"step{i}.{kind}", code=0
        )
        source = f"step{i}.{kind}"
        shown = invoke("evaluate", folder / "r.safetensors", folder / source, *labels, code=0)
        assert "nan" not in shown.lower()


def test_many_tests_are_summed_up_unless_all_are_asked_for(tmp_path):
    rng = np.random.default_rng(0)
    y, c = rng.integers(2, size=(2, 2000))
    Z = rng.standard_normal((2000, 12))
    Z[:, :4] += np.outer(c - 0.5, [3.0, 1.0, 0.6, 0.4])
    Z[:, 4:8] += np.outer(y - 0.5, [3.0, 1.0, 0.6, 0.4])
    np.savez(tmp_path / "rows.npz", Z=Z @ rng.standard_normal((12, 12)), y=y, c=c)
    fit = ["fit", tmp_path / "rows.npz", "--task", "y", "--concept", "c", "--output", tmp_path / "r", "--force"]
    steps = len(json.loads(invoke(*fit, "--json", code=0))["trace"]["steps"])
    assert steps > 8
    said, whole = invoke(*fit, code=0), invoke(*fit, "--trace", code=0)
    assert f"All {steps} tests: --trace prints them" in said
    assert re.search(r"\n +… \d+ more tests?\n", said)
    assert len(re.findall(r"(?m)^[✓✗] ", said)) <= 4
    assert len(re.findall(r"(?m)^[✓✗] ", whole)) == steps
    assert "--trace" not in whole


def test_one_label_is_not_both_kept_and_removed(fitted):
    folder, _ = fitted
    for verb in (["fit", "--output", folder / "new"], ["report"], ["compare"]):
        for order in (["--task", "main", "--concept", "main"], ["--concept", "main", "--task", "main"]):
            said = invoke(*verb, folder / "rows.csv", *order, code=2)
            assert "--task and --concept both name 'main'; what is kept cannot be what is removed." in said
            assert not (folder / "new").exists()


def test_a_removal_is_not_called_what_it_is_not(fitted):
    folder, labels = fitted
    said = invoke("fit", folder / "rows.csv", *labels, "--output", folder / "a.pkl", code=2)
    assert f"a removal is written as a .safetensors file, and not as .pkl. Name it {folder / 'a.safetensors'}." in said
    save = ["--output", folder / "a.html", "--save", folder / "a.npz"]
    assert "--save" in (said := invoke("report", folder / "rows.csv", *labels, *save, code=2))
    assert "not as .npz" in said
    assert not list(folder.glob("a.*"))


def test_inputs_are_never_replaced(toy, fitted):
    folder, labels = fitted
    before = (folder / "rows.csv").read_bytes()
    for verb in (["fit", folder / "rows.csv", *labels], ["apply", folder / "r.safetensors", folder / "rows.csv"]):
        assert "--output" in (said := invoke(*verb, "--output", folder / "rows.csv", "--force"))
        assert "is an input file" in said
        assert "folder; name a file" in invoke(*verb, "--output", f"{folder / 'none'}/")
    assert not (folder / "none").exists()
    said = invoke("compare", folder / "rows.csv", *labels, "--csv", folder / "rows.csv", "--force")
    assert "--csv" in said
    assert "--output" not in said
    assert (folder / "rows.csv").read_bytes() == before


def test_cleaned_rows_are_not_lost_to_a_label_of_their_name(toy, fitted, monkeypatch):
    monkeypatch.chdir(fitted[0])
    frame = pd.read_csv("rows.csv").rename(columns={"background": "Z"})
    frame.to_csv("z.csv", index=False)
    labels = ["--label", "bird", "--label", "Z"]
    said = invoke("apply", "r.safetensors", "z.csv", "--output", "z.npz", *labels)
    assert "z.npz: 'Z' is the name of a label and, in a .npz, of the rows. Rename the label" in said
    assert not Path("z.npz").exists()
    invoke("apply", "r.safetensors", "z.csv", "--output", "clean.csv", *labels, code=0)  # control
    np.savez("x.npz", X=toy.Z, y=toy.y, Z=toy.concept)  # rows that have another name keep it
    invoke("apply", "r.safetensors", "x.npz", "--output", "clean.npz", code=0)
    with np.load("clean.npz") as clean:
        np.testing.assert_allclose(clean["X"], load("r.safetensors").removal_(toy.Z), atol=1e-12)
        np.testing.assert_array_equal(clean["Z"], toy.concept)


def test_two_label_files_of_one_name_are_refused(toy, fitted, monkeypatch):
    monkeypatch.chdir(fitted[0])
    np.save("rows.npy", toy.Z)
    for name, values in (("a", toy.y), ("b", toy.concept)):
        Path(name).mkdir()
        np.save(f"{name}/label.npy", values)
    apply = ["apply", "r.safetensors", "rows.npy", "--output", "clean.npz", "--label"]
    said = invoke(*apply, "a/label.npy", "--label", "b/label.npy")
    assert "b/label.npy would be written as 'label', but there already is a label of that name" in said
    invoke(*apply, "a/label.npy", code=0)  # control
    with np.load("clean.npz") as clean:
        np.testing.assert_array_equal(clean["label"], toy.y)


def test_labels_are_not_dropped_in_silence(toy, fitted):
    folder, _ = fitted
    np.savez(folder / "rows.npz", Z=toy.Z, y=toy.y)
    command = ["apply", folder / "r.safetensors", folder / "rows.npz", "--output"]
    assert "can hold no labels, and the rows have y;" in invoke(*command, folder / "clean.npy")
    invoke(*command, folder / "clean.npy", "--ignore", "y", code=0)
    assert "has no array 'nosuch'" in invoke(*command, folder / "clean.npz", "--label", "nosuch")
    assert "no 'nosuch' to ignore" in invoke(*command, folder / "clean.npz", "--ignore", "nosuch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--penalty", "-1"], "penalty"),
        (["--penalty", "nan"], "neither a number nor"),
        (["--cv", "1"], "one fold"),
        (["--seed", "-1"], "--seed"),
        (["--validation", "narrow.csv"], "lacks the columns 'f4', 'f5'"),
    ],
)
def test_odd_options_get_one_clear_line(toy, fitted, monkeypatch, options, message):
    folder, labels = fitted
    monkeypatch.chdir(folder)
    pd.read_csv("rows.csv").drop(columns=["f4", "f5"]).to_csv("narrow.csv", index=False)
    done = CliRunner().invoke(main, ["fit", "rows.csv", *labels, "--output", "new.safetensors", *options])
    assert done.exit_code in (1, 2)
    assert isinstance(done.exception, SystemExit)
    assert message in done.output
    assert not (folder / "new.safetensors").exists()


def test_files_of_spreadsheets_and_pandas_are_read_as_meant(toy, tmp_path):
    frame = pd.DataFrame(toy.Z, columns=list("abcdef"), index=np.arange(800) * 10 + 5).assign(y=toy.y, k=toy.concept)
    frame.to_csv(tmp_path / "BOM.CSV", index=False, encoding="utf-8-sig")
    frame.to_parquet(tmp_path / "index.parquet")
    np.save(tmp_path / "whole.npy", np.round(toy.Z * 10).astype(int))
    for name, features in (("BOM.CSV", list("abcdef")), ("index.parquet", list("abcdef")), ("whole.npy", None)):
        table = read_table(tmp_path / name, () if features is None else ("y", "k"))
        assert table.features == features
        assert table.Z.shape == (800, 6)
    labels = "y,c,a\n01,9007199254740992,1\n1,9007199254740993,2\n"
    (tmp_path / "exact.csv").write_text(labels)
    table = read_table(tmp_path / "exact.csv", ("y", "c"))
    assert len(set(table.label("y"))) == len(set(table.label("c"))) == 2


def test_apply_says_when_a_column_of_vectors_is_taken_apart(toy, tmp_path):
    removal = tmp_path / "removal.safetensors"
    LEACE().fit(toy.Z, toy.y, concept=toy.concept).save(removal)
    wide = pd.DataFrame(toy.Z, columns=list("abcdef"))
    pd.DataFrame({"id": range(800), "embedding": list(toy.Z)}).to_parquet(tmp_path / "lists.parquet")
    wide.to_parquet(tmp_path / "wide.parquet")
    note = "Note: the vectors became the columns z0 to z5."

    def applied(file, output):
        return " ".join(invoke("apply", removal, tmp_path / file, "--output", tmp_path / output, code=0).split())

    assert note in applied("lists.parquet", "new.parquet")
    assert note not in applied("lists.parquet", "folder")
    assert note not in applied("wide.parquet", "new-wide.parquet")
    assert list(pd.read_parquet(tmp_path / "new.parquet")) == ["id", *(f"z{i}" for i in range(6))]
    assert list(pd.read_parquet(tmp_path / "folder" / "lists.parquet")) == ["id", "embedding"]
    assert list(pd.read_parquet(tmp_path / "new-wide.parquet")) == list("abcdef")


@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=,", "sep=\t"])
def test_a_first_line_for_excel_is_no_header(tmp_path, line):
    (tmp_path / "rows.csv").write_text(f"{line}\ny;c;a\n0;1;2\n")
    said = " ".join(
        invoke("fit", tmp_path / "rows.csv", "--task", "y", "--concept", "c", "--output", tmp_path / "r").split()
    )
    assert "is for Excel and has no names of columns; delete that line" in said


def test_rows_are_chosen_by_a_column_with_an_equals_sign_in_its_name(toy, fitted, monkeypatch):
    monkeypatch.chdir(fitted[0])
    frame = pd.read_csv("rows.csv").assign(**{"split=a": ["x", "y=z"] * 400, "split": "a=x"})
    frame.to_csv("rows.csv", index=False)
    apply = [
        "apply",
        "r.safetensors",
        "rows.csv",
        "--ignore",
        "bird",
        "--ignore",
        "background",
        "--force",
        "--output",
        "c.npy",
        "--json",
    ]
    for where, rows in (("split=a=x", 400), ("split=a=y=z", 400)):
        options = ["--where", where, "--ignore", "split", "--ignore", "split=a"]
        assert json.loads(invoke(*apply, *options, code=0))["rows"] == rows
    invoke(
        "fit",
        "rows.csv",
        *fitted[1],
        "--where",
        "split=a=x",
        "--validation-where",
        "split=a=y=z",
        "--ignore",
        "split",
        "--output",
        "new.safetensors",
        code=0,
    )
    frame.drop(columns="split=a").to_csv("rows.csv", index=False)
    options = ["--where", "split=a=x", "--ignore", "split"]
    assert json.loads(invoke(*apply, *options, code=0))["rows"] == 800  # control: the shorter name, where it is the one


def test_last_layers_do_not_depend_on_scale_or_offset(toy, fitted):
    folder, labels = fitted
    reports = set()
    for i, move in enumerate((lambda z: z, lambda z: z * 1e-4, lambda z: z + 1e5)):
        np.savez(folder / f"{i}.npz", Z=move(toy.Z), bird=toy.y, background=toy.concept)
        invoke("fit", folder / f"{i}.npz", *labels, "--output", folder / f"{i}.safetensors", code=0)
        reports.add(
            invoke("evaluate", folder / f"{i}.safetensors", folder / f"{i}.npz", *labels, code=0).rsplit("Test", 1)[0]
        )
    assert len(reports) == 1


def test_a_figure_needs_a_known_kind(tmp_path):
    assert "a figure is one of" in invoke("demo", "--output", tmp_path / "noext")
    same = invoke("demo", "--output", tmp_path / "x.png", "--report", tmp_path / "x.png", code=2)
    assert "the page is HTML; give it a name that ends in .html" in " ".join(same.split())
    assert not list(tmp_path.iterdir())


def test_fit_says_in_its_own_words_when_the_task_is_lost_and_how_to_keep_it(tmp_path):
    z, y, c = entangled_rows()
    np.savez(tmp_path / "rows.npz", Z=z, y=y, c=c)
    command = ["fit", str(tmp_path / "rows.npz"), "--task", "y", "--concept", "c", "--cv", "0", "--output"]
    lost = CliRunner().invoke(main, [*command, str(tmp_path / "lost.safetensors"), "--metric", "0"])
    assert lost.exit_code == 0, lost.output
    assert "Try --metric 1." in " ".join(lost.output.split())
    kept = CliRunner().invoke(main, [*command, str(tmp_path / "kept.safetensors"), "--metric", "1"])
    assert "--metric" not in kept.output
    assert "1 carries y" in kept.output


def test_names_that_the_command_line_writes_out_are_those_of_the_library():
    assert compare.known_names(options.REMOVER_NAMES, compare.REMOVERS) == list(compare.REMOVERS)
    assert tuple(HEADS) == options.HEAD_NAMES
    assert get_args(Precision) == embed.PRECISIONS
    assert set(get_args(Pooling)) == set(embed.POOLINGS)
    said = {option.name: option.help for option in embed.embed_command.params if option.name in ("batch", "workers")}
    assert f"({embedding.BATCH}; on a GPU {embedding.GPU_BATCH})" in said["batch"]
    assert f"up to {loading.MAX_THREADS})" in said["workers"]
