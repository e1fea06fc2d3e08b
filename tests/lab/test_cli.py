"""The command line, run as a user runs it: in a process of its own, on real files."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from unspur import load
from unspur.lab.datasets import make_toy


def unspur(*arguments, cwd, code=0):
    """Run the program; return its standard output, or its error when it is meant to fail."""
    command = [sys.executable, "-W", "error", "-m", "unspur", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


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
        return ["rows.npy", "--main", "bird.npy", "--concept", "background.npy"]
    return [f"rows.{kind}", "--main", "bird", "--concept", "background"]


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_fit_apply_and_evaluate_on_every_kind_of_file(toy, tmp_path, kind):
    names = write(toy, tmp_path, kind)
    shown = unspur("fit", *names, "--output", "removal.safetensors", cwd=tmp_path)
    assert "1 of 6 directions carry" in shown
    removal = load(tmp_path / "removal.safetensors")
    labels = [] if kind == "npy" else ["--label", "bird", "--label", "background"]
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
    results = json.loads(unspur("evaluate", "removal.safetensors", *names, "--json", cwd=tmp_path))
    assert set(results) == {"as it is", "removed"}
    assert 0.5 < results["removed"]["worst"] <= 1


def test_separate_validation_and_test_files(toy, tmp_path):
    for name, part in (("train", slice(0, 400)), ("val", slice(400, 600)), ("test", slice(600, 800))):
        np.savez(tmp_path / f"{name}.npz", Z=toy.Z[part].astype(np.float32), y=toy.y[part], c=toy.concept[part])
    labels = ["--main", "y", "--concept", "c"]
    files = ["train.npz", "--validation", "val.npz", "--output", "r.safetensors"]
    fit = json.loads(unspur("fit", *files, *labels, "--json", cwd=tmp_path))
    assert fit["ambient"] == 6
    assert fit["trace"]["steps"]
    text = unspur("evaluate", "r.safetensors", "train.npz", "--test", "test.npz", *labels, cwd=tmp_path)
    assert "worst group" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_existing_output_is_kept_unless_forced(toy, tmp_path):
    names = write(toy, tmp_path, "npz")
    (tmp_path / "r.safetensors").write_text("precious")
    error = unspur("fit", *names, "--output", "r.safetensors", cwd=tmp_path, code=1)
    assert "exists and is kept" in error
    assert (tmp_path / "r.safetensors").read_text() == "precious"
    unspur("fit", *names, "--output", "r.safetensors", "--force", cwd=tmp_path)
    assert load(tmp_path / "r.safetensors").spurious_.dim == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "There is no file"),
        ("empty.npy", b"", "is empty"),
        ("empty.csv", b"", "is empty"),
        ("rows.txt", b"1 2", "unknown kind of file"),
        ("broken.npz", b"PK\x03\x04 not really", "cannot be read as a .npz"),
        ("broken.parquet", b"PAR1 not really", "cannot be read as Parquet"),
        ("broken.npy", b"\x93NUMPY\x01\x00v\x00", "cannot be mapped"),
        ("header.csv", b"a,b,y,c\n", "no rows"),
        ("ragged.csv", b"a,b,y,c\n1,2,0,1\n1,2,0\n", "every row needs 4 fields"),
        ("text.csv", b"a,b,y,c\n1,x,0,1\n2,y,1,0\n", "--ignore"),
        ("unlabelled.csv", b"a,b\n1,2\n3,4\n", "has no label 'y'"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    error = unspur("fit", name, "--main", "y", "--concept", "c", "--output", "r.safetensors", cwd=tmp_path, code=1)
    assert message in error
    assert not list(tmp_path.glob("*.safetensors"))


def test_labels_with_gaps_in_a_csv(tmp_path):
    toy = make_toy(800, d=4, rho=0.5, random_state=1)
    frame = pd.DataFrame(toy.Z, columns=list("abcd")).assign(y=toy.y, c=toy.concept.astype(object), note="hello")
    frame.loc[:50, "c"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    options = ["gaps.csv", "--main", "y", "--concept", "c", "--ignore", "note", "--output", "r.safetensors"]
    assert "directions carry c" in unspur("fit", *options, cwd=tmp_path)


def test_rows_that_are_not_finite_are_named_by_apply(toy, tmp_path):
    unspur("fit", *write(toy, tmp_path, "npz"), "--output", "r.safetensors", cwd=tmp_path)
    Z = toy.Z.copy()
    Z[5, 3] = np.nan
    np.save(tmp_path / "bad.npy", Z)
    error = unspur("apply", "r.safetensors", "bad.npy", "--output", "out.npy", cwd=tmp_path, code=1)
    assert "1 NaN in column 3" in error
    assert not (tmp_path / "out.npy").exists()


def test_demo_raises_the_worst_group_and_draws_a_figure(tmp_path):
    result = json.loads(unspur("demo", "--json", "--output", "figure.png", cwd=tmp_path))
    before, after = result["accuracy"]["ERM"], result["accuracy"]["JSE"]
    assert after["worst"] > before["worst"] + 0.15
    assert after["group_average"] > before["group_average"]
    assert (tmp_path / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "exists" in unspur("demo", "--output", "figure.png", cwd=tmp_path, code=1)


def test_help_version_and_misuse(tmp_path):
    assert "demo" in unspur("--help", cwd=tmp_path)
    for verb in ("demo", "fit", "apply", "evaluate"):
        assert "Example:" in unspur(verb, "--help", cwd=tmp_path)
    assert unspur("--version", cwd=tmp_path).startswith("unspur, version")
    assert "Missing option" in unspur("fit", "x.npy", cwd=tmp_path, code=2)
