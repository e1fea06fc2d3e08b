"""`--cluster`: rows that belong together, on the command line."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from tests.optional import pandas as pd
from unspur.cli import main
from unspur.clusters import held_out_mask, split_clusters

DECAY = ("--penalty", "0.1")
LABELS = ("--task", "bird", "--concept", "background")


def invoke(*arguments, code=0):
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture(scope="module")
def drawn():
    """Frames of 60 films; the background is that of the film, and in no feature."""
    rng = np.random.default_rng(0)
    film = np.repeat(np.arange(60), 10)
    group = (np.arange(60) % 4)[film]
    y, s = group >> 1, group & 1
    Z = rng.normal(size=(60, 5))[film] + 0.2 * rng.normal(size=(600, 5))
    Z[:, 0] += 1.5 * (2 * y - 1)
    return Z, y, s, film


@pytest.fixture(scope="module")
def file(drawn, tmp_path_factory):
    Z, y, s, film = drawn
    path = tmp_path_factory.mktemp("films") / "rows.csv"
    lines = [
        ",".join([*map(repr, z.tolist()), str(a), str(b), f"film {c}"])
        for z, a, b, c in zip(Z, y, s, film, strict=True)
    ]
    path.write_text("f0,f1,f2,f3,f4,bird,background,film\n" + "\n".join(lines) + "\n")
    return path


def test_fit_counts_clusters_and_not_rows(file, tmp_path):
    told, untold = (
        json.loads(invoke("fit", file, *LABELS, *more, *DECAY, "--json", "--output", tmp_path / name).stdout)
        for name, more in (("a.safetensors", ["--cluster", "film"]), ("b.safetensors", ["--ignore", "film"]))
    )
    assert told["n_spurious"] == 0 < untold["n_spurious"]
    assert told["n_features"] == untold["n_features"] == 5  # the column is no feature


def test_one_seed_divides_the_rows_of_every_kind_of_file_alike(file, tmp_path):
    frame = pd.read_csv(file)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    losses = []
    for rows in (file, tmp_path / "rows.parquet"):
        done = invoke("fit", rows, *LABELS, "--cluster", "film", "--json", "--output", tmp_path / "m", "--force")
        losses.append(json.loads(done.stdout)["held_out_losses"])
    assert losses[0] == losses[1]


def test_too_few_clusters_are_told_by_the_names_of_the_columns(file, tmp_path):
    done = invoke(
        "fit", file, *LABELS, "--cluster", "bird", "--ignore", "film", "--output", tmp_path / "r.safetensors", code=1
    )
    assert "(bird=0, background=0) lies in 1" in " ".join(done.output.split())


@pytest.mark.parametrize("verb", [["fit", "--output", "r.safetensors"], ["compare"], ["report"], ["evaluate", "r"]])
def test_one_column_says_which_rows_belong_together(file, verb):
    done = invoke(*verb, file, *LABELS, "--cluster", "film", "--cluster", "f0", code=2)
    assert "'--cluster': passed 2 times (film, f0); pass it once." in " ".join(done.output.split())


@pytest.mark.parametrize(
    "verb", [("fit", "--output", "r.safetensors"), ("compare", "--remover", "none", "--head", "ERM")]
)
@pytest.mark.parametrize("word", ["", "NA", "n/a"])
def test_rows_without_a_cluster_are_refused_however_that_is_written(file, tmp_path, monkeypatch, verb, word):
    monkeypatch.chdir(tmp_path)
    gaps = file.read_text().replace(",film 3\n", f",{word}\n")
    (tmp_path / "gaps.csv").write_text(gaps)
    done = invoke(verb[0], "gaps.csv", *LABELS, "--cluster", "film", *verb[1:], code=1)
    said = " ".join(done.stderr.split())
    assert "Error: film is missing in 10 rows. Give each row that belongs to no cluster a label of its own." in said
    note = f"10 of 600 cells of film in gaps.csv are {word!r}, which was read as missing. If it is a cluster, give it"
    assert (note in said) == bool(word)


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_a_column_of_clusters_that_rows_lack_is_refused_in_every_kind_of_file(drawn, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    Z, *columns = drawn
    names = ["bird", "background", "film"]
    frame = pd.DataFrame({**dict(zip("abcde", Z.T, strict=True)), **dict(zip(names, columns, strict=True))})
    if kind == "npy":
        for name, values in zip(("rows", *names), drawn, strict=True):
            np.save(f"{name}.npy", values)
        names = [f"{name}.npy" for name in names]
    elif kind == "npz":
        np.savez("rows.npz", Z=Z, **dict(zip(names, columns, strict=True)))
    else:
        frame.to_csv("rows.csv", index=False) if kind == "csv" else frame.to_parquet("rows.parquet")
    rows, labels = f"rows.{kind}", ("--task", names[0], "--concept", names[1])
    fit = ("fit", rows, *DECAY, "--output", "r.safetensors", "--force")
    invoke(*fit, *labels, "--cluster", names[2])  # control
    verbs = [fit, ("evaluate", "r.safetensors", rows), ("compare", rows, "--remover", "none", "--head", "ERM")]
    for verb in [*verbs, ("card", "r.safetensors", rows), ("report", rows, *DECAY, "--output", "page.html")]:
        if verb[0] == "report":
            pytest.importorskip("jinja2")
        assert "'filmm'" in invoke(*verb, *labels, "--cluster", "filmm", code=1).stderr, verb


def test_only_rows_that_are_merely_measured_may_lack_clusters(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Z, bird, background, film = drawn
    np.savez("train.npz", Z=Z, bird=bird, background=background, film=film)
    np.savez("other.npz", Z=Z + 1e-3, bird=bird, background=background)
    chosen = ("train.npz", *LABELS, "--cluster", "film")
    done = invoke("fit", *chosen, *DECAY, "--validation", "other.npz", "--output", "r.safetensors", code=1)
    assert "other.npz has no array 'film'" in " ".join(done.stderr.split())
    invoke("fit", *chosen, *DECAY, "--output", "r.safetensors")
    invoke("evaluate", "r.safetensors", *chosen, "--test", "other.npz")
    invoke("evaluate", "r.safetensors", *chosen, "--validation", "other.npz", "--test", "other.npz")


def test_clusters_may_be_the_index_of_a_data_frame(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Z, bird, background, film = drawn
    frame = pd.DataFrame({"bird": bird, "background": background, "film": film, "embedding": list(Z)})
    frame.to_parquet("column.parquet")
    frame.set_index("film").to_parquet("index.parquet")
    found = []
    for rows, *more in (["column.parquet"], ["index.parquet"], ["index.parquet", "--memory", "1GB"]):
        fit = ("fit", rows, *LABELS, *DECAY, *more, "--json", "--output", "r.safetensors", "--force")
        found.append(json.loads(invoke(*fit, "--cluster", "film").stdout)["trace"])
    assert found[0] == found[1]
    assert [step["informative"]["degrees"] for step in found[2]["steps"]] == [
        step["informative"]["degrees"] for step in found[0]["steps"]
    ]
    apply = ("apply", "r.safetensors", "index.parquet", "--output", "clean.csv", "--where", "film=3", "--label", "film")
    invoke(*apply)
    assert set(pd.read_csv("clean.csv")["film"]) == {3}


def test_names_of_clusters_may_differ_by_case_alone(file, tmp_path):
    rows = tmp_path / "case.csv"
    rows.write_text(file.read_text().replace(",film 3\n", ",FILM 4\n"))
    done = invoke("fit", rows, *LABELS, "--cluster", "film", *DECAY, "--output", tmp_path / "r.safetensors")
    assert done.stderr == ""


def test_copies_are_a_note(file, tmp_path):
    header, *lines = file.read_text().splitlines()
    twice = tmp_path / "twice.csv"
    twice.write_text("\n".join([header, *lines, *lines]) + "\n")
    done = invoke("fit", twice, *LABELS, "--ignore", "film", *DECAY, "--output", tmp_path / "r.safetensors")
    assert "Note: 600 of 1,200 training rows are exact duplicates" in " ".join(done.stderr.split())


def test_evaluate_compare_and_report_hold_clusters_out_together(file, drawn, tmp_path, monkeypatch):
    removal = tmp_path / "r.safetensors"
    invoke("fit", file, *LABELS, "--cluster", "film", *DECAY, "--output", removal)
    seen = []

    def watched(group, share, rng, clusters=None):
        seen.append((clusters, held_out_mask(group, share, rng, clusters)))
        return seen[-1][1]

    monkeypatch.setattr("unspur._data.held_out_mask", watched)
    invoke("evaluate", removal, file, *LABELS, "--cluster", "film")
    invoke("compare", file, *LABELS, "--cluster", "film", "--remover", "none", "--head", "ERM")
    assert len(seen) >= 4  # test rows, and rows to choose penalties on, of each
    for films, aside in seen:
        assert not len(split_clusters(np.unique(films, return_inverse=True)[1], aside.astype(int)))
    pytest.importorskip("jinja2")
    page = tmp_path / "page.html"
    done = invoke("report", file, *LABELS, "--cluster", "film", *DECAY, "--json", "--output", page)
    # Eighteen films are test rows: intervals of probes count those, not 180 rows.
    probe = json.loads(done.stdout)["results"][0]["leakage"]["background"]
    assert probe["high"] - probe["low"] > 0.3
    assert page.exists()


@pytest.fixture
def noise(tmp_path):
    """Rows that say nothing of their labels, each of them twice; `number` tells the copies apart."""
    rng = np.random.default_rng(0)
    Z, group = np.tile(rng.normal(size=(160, 200)), (2, 1)), np.tile(np.arange(160) % 4, 2)
    np.savez(tmp_path / "r.npz", Z=Z, bird=group >> 1, background=group & 1, number=np.arange(320))
    np.savez(tmp_path / "small.npz", Z=Z > 1.0, bird=group >> 1, background=group & 1, number=np.arange(320))
    return tmp_path


def test_copies_are_on_one_side_of_a_split(noise):
    command = ["compare", noise / "r.npz", *LABELS, "--remover", "none", "--head", "ERM", "--json"]
    together, apart = invoke(*command), invoke(*command, "--cluster", "number")
    note = "Note: 160 of 320 rows are exact duplicates of others. Copies of a row are all training rows or all test"
    assert " ".join(together.stderr.split()).count(note) == 1
    average = [json.loads(done.stdout)[0]["accuracy"]["average"] for done in (together, apart)]
    assert average[0] < 0.65  # a coin flip
    assert average[1] > 0.75  # the control: rows that were learnt by heart
    assert "test rows are training rows as well" not in " ".join(together.stderr.split())
    assert "test rows are training rows as well; results" in " ".join(apart.stderr.split())
    command[1] = noise / "small.npz"  # rows of zeros and ones are equal by chance
    assert "Note" not in invoke(*command).stderr


def test_rows_to_train_and_to_test_on_that_are_the_same_are_noted(noise):
    removal, rows = noise / "r.safetensors", noise / "r.npz"
    invoke("fit", rows, *LABELS, *DECAY, "--output", removal)
    arrays = dict(np.load(rows))
    for name, part in (("train", slice(0, 160)), ("same", slice(150, 200))):
        np.savez(noise / f"{name}.npz", **{key: values[part] for key, values in arrays.items()})
    np.savez(noise / "new.npz", **(arrays | {"Z": arrays["Z"] + 1.0}))
    note = "50 of 50 test rows are training rows as well"
    commands = (["evaluate", removal, noise / "train.npz"], ["compare", noise / "train.npz", "--remover", "none"])
    for command in commands:
        done = invoke(*command, *LABELS, "--test", noise / "same.npz", "--json")
        assert " ".join(done.stderr.split()).count(note) == 1
        assert "Note" not in invoke(*command, *LABELS, "--test", noise / "new.npz", "--json").stderr  # the control
    done = invoke(*commands[0], *LABELS, "--test", noise / "same.npz", "--json")
    assert any(note in said for said in json.loads(done.stdout)["notes"])


def test_test_rows_are_whole_clusters(drawn):
    _, y, s, film = drawn
    group = 2 * np.unique(y, return_inverse=True)[1] + np.unique(s, return_inverse=True)[1]
    together = held_out_mask(group, 0.3, np.random.default_rng(0), film)
    apart = held_out_mask(group, 0.3, np.random.default_rng(0))
    assert not len(split_clusters(film, together.astype(int)))
    assert len(split_clusters(film, apart.astype(int))) > 50  # the control
    assert 0.2 < together.mean() < 0.4


def test_clusters_of_two_files_are_compared_as_they_are_written(file, tmp_path):
    """Ids of one file are numbers, those of the other words, since one of them is no number."""
    numbers = file.read_text().replace(",film ", ",")
    (tmp_path / "a.csv").write_text(numbers)
    header, *lines = numbers.splitlines()
    lines[-1] = lines[-1].rpartition(",")[0] + ",251b"
    (tmp_path / "b.csv").write_text("\n".join([header, *lines]) + "\n")
    chosen = (*LABELS, "--cluster", "film", *DECAY)
    fit = (
        "fit",
        tmp_path / "a.csv",
        "--validation",
        tmp_path / "b.csv",
        *chosen,
        "--output",
        tmp_path / "r.safetensors",
    )
    said = " ".join(invoke(*fit, code=1).stderr.split())
    assert "values of film are among the training rows and the validation rows" in said


def test_clusters_of_two_files_may_be_numbers_of_two_types(drawn, tmp_path):
    Z, y, s, film = drawn
    for name, numbers in (("a", film + 100), ("same", film + 100.0), ("others", film + 500.0)):
        np.savez(tmp_path / f"{name}.npz", Z=Z + (name != "a"), bird=y, background=s, film=numbers)

    def fit(other, code):
        output = ("--force", "--output", tmp_path / "r.safetensors")
        files = (tmp_path / "a.npz", "--validation", tmp_path / f"{other}.npz")
        return " ".join(invoke("fit", *files, *LABELS, "--cluster", "film", *DECAY, *output, code=code).stderr.split())

    assert "60 values of film are among the training rows and the validation rows, such as '100';" in fit("same", 1)
    assert fit("others", 0) == ""  # control


DAYS = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(60), "D")
TIMES = {
    "times": DAYS,
    "finer": DAYS.as_unit("ns"),
    "days": DAYS.date,
    "zoned": DAYS.tz_localize("UTC"),
    "hours": DAYS + pd.to_timedelta(1, "h"),
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *((f"{kind}.parquet", f"{kind}.csv") for kind in TIMES),
        ("days.csv", "times.parquet"),
        ("days.parquet", "times.parquet"),
        ("times.parquet", "finer.parquet"),
    ],
)
def test_clusters_may_be_dates_in_one_file_and_text_in_another(drawn, tmp_path, one, other):
    Z, y, s, film = drawn

    def compare(shift, code):
        for k, name in enumerate((one, other)):
            kind, end = name.split(".")
            frame = pd.DataFrame(Z + k, columns=[f"f{i}" for i in range(5)])
            days = pd.Series(TIMES[kind]) + pd.to_timedelta(100 * k * shift, "D")
            frame = frame.assign(bird=y, background=s, film=days[film].array)
            path = tmp_path / f"{k}.{end}"
            frame.to_csv(path, index=False) if end == "csv" else frame.to_parquet(path)
        files = (tmp_path / f"0.{one.split('.')[1]}", "--test", tmp_path / f"1.{other.split('.')[1]}")
        what = ("--cluster", "film", "--remover", "none", "--head", "ERM")
        return " ".join(invoke("compare", *files, *LABELS, *what, code=code).stderr.split())

    said = compare(0, 1)
    assert "60 values of film are among the training rows and the test rows, such as '2020-01-01" in said
    assert "are among the training rows" not in compare(1, 0)  # control


def test_clusters_among_training_and_test_rows_are_refused_and_the_next_command_names_them(file, tmp_path):
    header, *lines = file.read_text().splitlines()
    torn = tmp_path / "torn.csv"
    torn.write_text("\n".join([f"{header},split", *(f"{line},{'ab'[k % 2]}" for k, line in enumerate(lines))]) + "\n")
    chosen = ("--cluster", "film", "--where", "split=a", "--test-where", "split=b")
    for verb in (
        ("compare", "--remover", "none", "--head", "ERM"),
        ("report", *DECAY, "--output", tmp_path / "r.html"),
    ):
        if verb[0] == "report":
            pytest.importorskip("jinja2")
        done = CliRunner().invoke(main, [str(word) for word in (verb[0], torn, *LABELS, *chosen, *verb[1:])])
        assert done.exit_code == 1
        assert "values of film are among the training rows and the test rows" in " ".join(done.stderr.split())
    pytest.importorskip("jinja2")
    done = invoke("report", file, *LABELS, "--cluster", "film", *DECAY, "--output", tmp_path / "page.html")
    assert "--cluster film" in " ".join((done.stdout + (tmp_path / "page.html").read_text()).split())
