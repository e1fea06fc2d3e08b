"""Every command: a good run with the files it writes, its JSON, and input that it refuses."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

from unspur import JSE, RobustClassifier, load
from unspur.cli import main
from unspur.datasets import make_toy

pytest.importorskip("pyarrow")
pytest.importorskip("jinja2")

D = 6
FEATURES = [f"f{j}" for j in range(D)]
TWO = ["--task", "bird", "--concept", "background"]
LABELS = [*TWO, "--ignore", "id"]


def run(*words, code=0):
    """What a command prints on standard output; on standard error if it fails."""
    done = CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "80"}, prog_name="unspur")
    assert done.exit_code == code, (words, done.output, done.exception)
    return done.stdout if code == 0 else done.stderr


def noted(*words):
    """The notes of a command, on one line."""
    return " ".join(CliRunner().invoke(main, [str(word) for word in words]).stderr.split())


def next_command(text):
    """Words of the command that a command suggests."""
    return shlex.split(text[text.rindex("Next:") + 5 :].split("\n\n")[0].replace("\\\n", " ").strip())[1:]


def written(path):
    """What a command wrote."""
    if path.suffix != ".npz":
        return {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".npy": np.load}[path.suffix](path)
    with np.load(path) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def frames():
    frames = {}
    for name, seed, rho in (("train", 0, 0.6), ("test", 1, 0.0)):
        toy = make_toy(800, d=D, rho=rho, random_state=seed)
        labels = {"bird": np.array(["land", "water"])[toy.y], "background": toy.concept}
        frames[name] = pd.DataFrame(toy.Z, columns=FEATURES).assign(**labels, id=[f"r{i}" for i in range(800)])
    return frames


@pytest.fixture(scope="module")
def folder(frames, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, frame in frames.items():
        Z = frame[FEATURES].to_numpy()
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet")
        np.savez(folder / f"{name}.npz", Z=Z, bird=frame.bird.to_numpy(str), background=frame.background)
        np.save(folder / f"{name}.npy", Z)
        frame[["bird", "background"]].to_csv(folder / f"{name}-labels.csv", index=False)
    run("fit", folder / "train.csv", *LABELS, "--output", folder / "model.safetensors")
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


# fit


def test_fit_is_the_classifier_in_python(frames, folder):
    model, train, test = load("model.safetensors"), frames["train"], frames["test"]
    assert isinstance(model, RobustClassifier)
    again = RobustClassifier(JSE(random_state=0), random_state=0).fit(
        train[FEATURES], train.bird, concept=train.background
    )
    assert_allclose(model.coef_, again.coef_, atol=1e-6)
    assert list(model.feature_names_in_) == FEATURES
    assert model.score(test[FEATURES], test.bird) > 0.7


@pytest.mark.parametrize("kind", ["parquet", "npz", "npy"])
def test_fit_is_the_same_on_every_kind_of_file(tmp_path, kind):
    more = {"parquet": ["--ignore", "id"], "npz": [], "npy": ["--labels", "train-labels.csv"]}[kind]
    run("fit", f"train.{kind}", *TWO, *more, "--output", tmp_path / "m.safetensors")
    assert_allclose(load(tmp_path / "m.safetensors").coef_, load("model.safetensors").coef_, atol=1e-9)


@pytest.mark.parametrize("method", ["JSE", "INLP", "LEACE", "SAL", "SPLINCE"])
def test_fit_saves_a_removal_alone(tmp_path, method):
    text = run("fit", "train.npz", *TWO, "--method", method, "--output", tmp_path / "r.safetensors")
    assert type(load(tmp_path / "r.safetensors")).__name__ == method
    assert "carr" in text
    assert next_command(text)[:2] == ["report", "train.npz"]


def test_settings_are_called_like_the_parameters(tmp_path):
    settings = {"cv": 0.2, "penalty": 0.1, "metric": 1.0, "max_spurious": 1, "significance_level": 0.01}
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", value)]
    run("fit", "train.npz", *TWO, "--method", "JSE", *words, "--output", tmp_path / "r.safetensors")
    found = load(tmp_path / "r.safetensors").get_params()
    assert {name: found[name] for name in settings} == settings
    error = run("fit", "train.npz", *TWO, "--method", "LEACE", "--metric", 1, "--output", "r.safetensors", code=2)
    assert "--metric is no setting of LEACE" in error


def test_fit_prints_json_with_the_trace():
    found = json.loads(run("fit", "train.npz", *TWO, "--json", "--force", "--output", "again.safetensors"))
    assert found["concepts"] == ["background"]
    assert found["n_spurious"] >= 1
    assert found["trace"]["main"] == "bird"
    assert found["held_out_losses"]


def test_rows_are_chosen_by_columns(frames, tmp_path):
    both = pd.concat([frames["train"].assign(split="train"), frames["test"].assign(split="val")])
    both.to_csv(tmp_path / "both.csv", index=False)
    chosen = ["--where", "split=train", "--validation-where", "split=val"]
    run("fit", tmp_path / "both.csv", *LABELS, *chosen, "--output", tmp_path / "one.safetensors")
    run("fit", "train.csv", *LABELS, "--validation", "test.csv", "--output", tmp_path / "two.safetensors")
    one, two = (load(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    assert_allclose(one.coef_, two.coef_, atol=1e-9)
    assert list(one.feature_names_in_) == FEATURES
    run("fit", tmp_path / "both.csv", *LABELS, *chosen[2:], "--output", tmp_path / "no.safetensors", code=2)


def test_unknown_concepts_and_clusters(frames, tmp_path):
    gaps = frames["train"].assign(film=np.arange(800) // 2)
    gaps["background"] = gaps.background.astype(str).where(np.arange(800) % 10 > 0, "unknown")
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    fit = ["fit", tmp_path / "gaps.csv", *LABELS, "--cluster", "film", "--output", tmp_path / "m.safetensors"]
    assert "80 of 800 rows have no background" in noted(*fit, "--missing-concept", "unknown")
    assert load(tmp_path / "m.safetensors").remover_.concept_classes_ == ("0", "1")


def test_a_feature_that_numbers_the_rows_is_noted(frames, tmp_path):
    frames["train"].drop(columns="id").assign(number=range(800)).to_csv(tmp_path / "rows.csv", index=False)
    fit = ["fit", tmp_path / "rows.csv", *TWO, "--output", tmp_path / "m.safetensors"]
    assert "pass --ignore number" in noted(*fit)
    assert noted(*fit, "--force", "--ignore", "number") == ""


def test_several_concepts(frames, tmp_path):
    frame = frames["train"].assign(season=np.array(["spring", "summer", "winter"])[np.arange(800) % 3])
    frame.to_parquet(tmp_path / "rows.parquet")
    words = [tmp_path / "rows.parquet", *LABELS, "--concept", "season"]
    run("fit", *words, "--output", tmp_path / "m.safetensors")
    assert len(load(tmp_path / "m.safetensors").remover_.concept_classes_) == 2
    run("predict", tmp_path / "m.safetensors", *words, "--output", tmp_path / "p.csv")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["train.csv", *TWO], 1, "--ignore id"),
        (["train.csv", "--task", "brid", "--concept", "background", "--ignore", "id"], 1, "'bird'"),
        (["train.csv", *LABELS, "--concept", "bird"], 2, "named twice"),
        (["train.csv", "--task", "id", "--concept", "background", "--ignore", "bird"], 1, "800 values"),
        (["train.csv", "--task", "f0", "--concept", "background", "--ignore", "id", "--ignore", "bird"], 1, "f0"),
        (["train.csv", *LABELS, "--where", "bird=sea"], 1, "'land'"),
        (["train.csv", *LABELS, "--where", "bird"], 2, "COLUMN=VALUE"),
        (["train.csv", *LABELS, "--metric", "2"], 2, "--metric"),
        (["train.csv", *LABELS, "--penalty", "much"], 2, "--penalty"),
        (["train.csv", *LABELS, "--smallest-group", "500"], 1, "500"),
        (["train.npy", *TWO], 1, "bird"),
        (["gone.csv", *TWO], 1, "no file"),
        (["train.csv", *LABELS, "--memory", "1GB"], 2, "--memory"),
    ],
)
def test_fit_refuses(tmp_path, words, code, says):
    assert says in run("fit", *words, "--output", tmp_path / "m.safetensors", code=code)
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_kept_and_called_what_they_are(folder):
    before = (folder / "model.safetensors").read_bytes()
    assert "exists" in run("fit", "train.csv", *LABELS, "--output", "model.safetensors", code=1)
    assert "input file" in run("apply", "model.safetensors", "test.csv", "--output", "test.csv", "--force", code=1)
    assert ".safetensors" in run("fit", "train.csv", *LABELS, "--output", "model.csv", code=2)
    assert (folder / "model.safetensors").read_bytes() == before


# predict and apply


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_predict_is_what_the_model_says(frames, tmp_path, kind):
    output = tmp_path / f"p.{kind}"
    text = run("predict", "model.safetensors", f"test.{kind}", *TWO, "--output", output)
    assert "worst group" in text
    test, model = frames["test"], load("model.safetensors")
    found = written(output)
    assert_array_equal(found["predicted"], model.predict(test[FEATURES]))
    assert_array_equal(found["bird"], test.bird)
    probability = found["probability"][:, 1] if kind == "npz" else found["probability_water"]
    assert_allclose(probability, model.predict_proba(test[FEATURES])[:, 1])


def test_predict_counts_what_is_right(frames):
    words = ["predict", "model.safetensors", "test.csv", "--force", "--json", "--output", "p.csv"]
    by_group = json.loads(run(*words, *TWO))["accuracy"]
    share = json.loads(run(*words, "--task", "bird"))["accuracy"]
    assert (
        share
        == pytest.approx(by_group["average"])
        == pytest.approx(load("model.safetensors").score(frames["test"][FEATURES], frames["test"].bird))
    )
    assert json.loads(run(*words))["accuracy"] is None
    gaps = frames["test"].assign(background=frames["test"].background.where(np.arange(800) > 9))
    gaps.to_csv("gaps.csv", index=False)
    found = json.loads(run(*words[:2], "gaps.csv", *words[3:], *TWO))["accuracy"]
    assert [group["concept"] for group in found["groups"]] == [0, 1, 0, 1]
    assert found["ungrouped_rows"] == 10
    frames["test"].assign(predicted=0).to_csv("again.csv", index=False)
    assert "'predicted'" in run("predict", "model.safetensors", "again.csv", "--output", "q.csv", code=1)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "npy"])
def test_apply_is_what_the_model_does(frames, tmp_path, kind):
    output = tmp_path / f"clean.{kind}"
    run("apply", "model.safetensors", f"test.{kind}", "--output", output)
    clean = load("model.safetensors").transform(frames["test"][FEATURES])
    found = written(output)
    rows = found["Z"] if kind == "npz" else found if kind == "npy" else found[FEATURES]
    assert_allclose(rows, clean, atol=1e-12)
    if kind in ("csv", "parquet"):
        assert sorted(found) == sorted(frames["test"])


def test_columns_are_left_out_chosen_and_named(frames, tmp_path):
    words = ["apply", "model.safetensors", "test.csv", "--ignore", "id", "--where", "bird=land"]
    run(*words, "--output", tmp_path / "clean.csv")
    found = pd.read_csv(tmp_path / "clean.csv")
    assert list(found) == ["bird", "background", *FEATURES]
    assert len(found) == (frames["test"].bird == "land").sum()
    frames["test"].drop(columns="f3").to_csv(tmp_path / "few.csv", index=False)
    assert "'f3'" in run("apply", "model.safetensors", tmp_path / "few.csv", "--output", "no.csv", code=1)
    assert "f1 is a feature" in run(
        "apply", "model.safetensors", "test.csv", "--ignore", "f1", "--output", "n.csv", code=1
    )


def test_a_removal_cannot_predict(tmp_path):
    run("fit", "train.npz", *TWO, "--method", "LEACE", "--output", tmp_path / "r.safetensors")
    error = run("predict", tmp_path / "r.safetensors", "test.npz", "--output", "no.csv", code=1)
    assert "without a head" in error
    (tmp_path / "bad.safetensors").write_bytes(b"no")
    run("apply", tmp_path / "bad.safetensors", "test.npz", "--output", "no.npz", code=1)


# compare, audit, report, demo


def test_compare_names_the_combination_to_take(tmp_path):
    words = ["compare", "train.csv", *LABELS, "--test", "test.csv", "--remover", "JSE", "--remover", "none"]
    text = run(*words, "--csv", tmp_path / "t.csv")
    assert "Take" in text
    table = pd.read_csv(tmp_path / "t.csv")
    assert table[["remover", "head"]].values.tolist() == [
        [remover, head] for remover in ("JSE", "none") for head in ("ERM", "GroupWeighted")
    ]
    found = json.loads(run(*words, "--json"))
    assert_allclose([one["accuracy"]["worst"] for one in found], table.worst)
    assert found[3]["command"] is None
    run(*shlex.split(found[1]["command"])[1:-1], tmp_path / "m.safetensors")
    assert isinstance(load(tmp_path / "m.safetensors"), RobustClassifier)
    run("compare", "train.csv", *LABELS, "--remover", "Exorcism", code=2)


def test_audit_finds_the_background_and_its_command_runs(tmp_path):
    text = run("audit", "train.csv", "--task", "bird")
    assert "✓ background" in text
    words = next_command(text)
    assert words[:6] == ["report", "train.csv", "--task", "bird", "--concept", "background"]
    run(*words, "--output", tmp_path / "page.html")
    found = json.loads(run("audit", "train.csv", "--task", "bird", "--json", "--max-rows", 500))
    assert [column["name"] for column in found["columns"]] == ["background"]
    assert list(found["skipped"]) == ["id"]
    assert found["next"].startswith("unspur report train.csv")
    run("audit", "train.csv", "--task", "bird", "--column", "bird", code=2)
    run("audit", "train.npy", "--labels", "train-labels.csv", "--task", "bird")


def test_bins_of_a_number_are_labels_for_other_commands(frames, tmp_path):
    rng = np.random.default_rng(0)
    frame = frames["train"].assign(light=frames["train"].background + rng.normal(size=800) / 4)
    frame.drop(columns="background").to_csv(tmp_path / "rows.csv", index=False)
    words = ["audit", tmp_path / "rows.csv", "--task", "bird", "--ignore", "id", "--column", "light"]
    assert "--bins" in run(*words)
    text = run(*words, "--bins", tmp_path / "bins.csv")
    assert pd.read_csv(tmp_path / "bins.csv")["light bin"].nunique() == 3
    run("fit", *next_command(text)[1:], "--output", tmp_path / "m.safetensors")


def test_report_writes_a_page_and_saves_the_removal(tmp_path):
    page = tmp_path / "page.html"
    text = run(
        "report", "train.csv", *LABELS, "--with", "LEACE", "--output", page, "--save", tmp_path / "r.safetensors"
    )
    assert "Recommended" in text
    assert "<html" in page.read_text()
    assert isinstance(load(tmp_path / "r.safetensors"), JSE)
    words = ["--test", "test.csv", "--removal", tmp_path / "r.safetensors"]
    found = json.loads(run("report", "train.csv", *LABELS, *words, "--json", "--output", page, "--force"))
    assert found["results"][0]["name"] == "no removal"
    assert found["n_removed"] == load(tmp_path / "r.safetensors").n_removed_
    error = run("report", "train.csv", *LABELS, *words, "--metric", 1, "--output", page, "--force", code=2)
    assert "--metric" in error
    run("report", "train.csv", *LABELS, "--output", tmp_path / "page.png", code=2)


def test_report_and_audit_show_pictures_that_lie_in_their_folder(frames, tmp_path):
    image = pytest.importorskip("PIL.Image")
    frame = frames["train"].assign(picture=[f"p{i % 5}.png" for i in range(800)])
    for i in range(5):
        image.new("RGB", (8, 8), (40 * i, 0, 0)).save(tmp_path / f"p{i}.png")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    words = [tmp_path / "rows.csv", "--ignore", "id", "--show", "picture"]
    run("report", *words, *TWO, "--output", tmp_path / "page.html")
    assert "data:image" in (tmp_path / "page.html").read_text()
    assert "brightness" in run("audit", *words, "--task", "bird", "--max-rows", 300)
    error = run("report", *words, *TWO, "--root", tmp_path / "other", "--output", tmp_path / "no.html", code=1)
    assert "p" in error
    frame.assign(picture="../p.png").to_csv(tmp_path / "rows.csv", index=False)
    assert "not inside of" in run("report", *words, *TWO, "--output", tmp_path / "no.html", code=1)


def test_test_rows_are_whole_clusters_and_copies(frames, tmp_path):
    from unspur.cli.data import read_parts, with_test_rows
    from unspur.cli.options import RowOptions

    doubled = pd.concat([frames["train"]] * 2).assign(film=[*range(800)] * 2)
    doubled.to_csv(tmp_path / "rows.csv", index=False)
    for cluster in ("film", None):
        rows = RowOptions(tmp_path / "rows.csv", None, "bird", ("background",), ("id", "film"), cluster=cluster)
        parts = with_test_rows(read_parts(rows), seed=0)
        films = [set(parts[name].table.column("film")) for name in ("training", "test")]
        assert not films[0] & films[1]
        assert len(films[1]) == pytest.approx(240, abs=20)


def test_demo_raises_the_worst_group(tmp_path):
    found = json.loads(run("demo", "--output", tmp_path / "demo.png", "--json"))
    before, after = (found["results"][i]["accuracy"]["worst"] for i in (0, 1))
    assert after > before + 0.05
    assert (tmp_path / "demo.html").exists()
    assert (tmp_path / "demo.png").exists()
    assert "exists" in run("demo", "--output", tmp_path / "demo.png", code=1)
