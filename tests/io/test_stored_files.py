"""Rows that stay in their files: what `fit` and `apply` make of Parquet files, folders, patterns and stores."""

import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.cli.test_cli import invoke
from tests.embed.strips import N, Pictures, Strips
from tests.optional import parquet
from tests.optional import pyarrow as pa
from tests.rows.test_parquet import flip, lists, middle_of, write
from unspur import JSE, open_rows
from unspur.datasets import make_toy
from unspur.embed.embedding import embed
from unspur.exceptions import InputError
from unspur.io.files import read_table
from unspur.io.table import as_strings
from unspur.removers import load
from unspur.rows import StoredRows
from unspur.rows.parquet import ParquetRows
from unspur.rows.stored import StoredNpy

LABELS = ("--task", "bird", "--concept", "background")


@pytest.fixture(scope="module")
def toy():
    return make_toy(900, d=6, rho=0.6, random_state=0)


@pytest.fixture
def here(toy, tmp_path, monkeypatch):
    """A folder with the rows as lists in big/, as columns in wide/, and as rows.npy."""
    monkeypatch.chdir(tmp_path)
    labels = {
        "bird": np.array(["land", "water"])[toy.y],
        "background": toy.concept,
        "split": np.where(np.arange(900) % 3 > 0, "train", "val"),
    }
    for name, columns in (("big", False), ("wide", True)):
        Path(name).mkdir()
        write(toy.Z, Path(name), cuts=(200, 500), row_group_size=64, labels=labels, columns=columns)
    np.save("rows.npy", toy.Z)
    np.save("bird.npy", toy.y)
    np.save("background.npy", toy.concept)
    return tmp_path


def fit(*arguments, output="r.safetensors"):
    invoke("fit", *arguments, "--output", output, "--force", code=0)
    return load(output)


@pytest.mark.parametrize(
    "arguments",
    [
        ["big/part-0.parquet", "big/part-1.parquet", "big/part-2.parquet", *LABELS],
        ["big", *LABELS],
        ["big/*.parquet", *LABELS],
        ["wide", *LABELS, "--ignore", "split"],
        ["rows.npy", "--task", "bird.npy", "--concept", "background.npy"],
    ],
    ids=["files", "folder", "pattern", "columns", "npy"],
)
def test_fit_finds_the_same_with_and_without_a_budget(toy, here, arguments):
    stored, loaded = fit(*arguments, "--memory", "1MB"), fit(*arguments)
    assert stored.spurious_.dim == 1
    assert_allclose(stored.removal_(toy.Z), loaded.removal_(toy.Z), rtol=0, atol=1e-9)
    assert stored.training_hash_ == loaded.training_hash_
    names = [f"z{j}" for j in range(6)] if arguments[0] == "wide" else None
    for removal in (stored, loaded):
        assert (list(removal.feature_names_in_) if hasattr(removal, "feature_names_in_") else None) == names


def test_some_of_the_rows_are_chosen_and_others_judge(toy, here):
    chosen = ["--where", "split=train", "--validation-where", "split=val"]
    stored, loaded = (fit("big", *LABELS, *chosen, *budget) for budget in (["--memory", "1MB"], []))
    assert_allclose(stored.removal_(toy.Z), loaded.removal_(toy.Z), rtol=0, atol=1e-9)
    assert stored.training_hash_ == loaded.training_hash_
    assert stored.training_hash_.startswith("600-")


@pytest.mark.parametrize(
    ("arguments", "too_little"),
    [
        (["big", *LABELS, "--where", "split=train", "--validation-where", "split=val"], "200kB"),
        (["wide", *LABELS, "--ignore", "split", "--validation", "wide/part-1.parquet"], "700kB"),
    ],
    ids=["other rows", "other files"],
)
def test_training_and_validation_rows_share_the_budget(here, monkeypatch, arguments, too_little):
    budgets = []

    def fitted(_, X, X_val, **options):
        budgets.extend([X.budget.total, X_val.budget.total])
        raise InputError("that was all")

    monkeypatch.setattr(JSE, "fit", fitted)
    assert "that was all" in invoke("fit", *arguments, "--memory", "2MB", "--output", "x.safetensors")
    assert len(budgets) == 2
    assert 1.9e6 < sum(budgets) <= 2e6
    said = invoke("fit", *arguments, "--memory", too_little, "--output", "x.safetensors")
    assert "too little for training and validation rows together" in said


def test_a_scratch_folder_changes_nothing_but_the_time(toy, here):
    Path("scratch").mkdir()
    scratch = fit("big", *LABELS, "--memory", "400kB", "--scratch", "scratch")
    plain = fit("big", *LABELS, "--memory", "400kB")
    assert_array_equal(scratch.removal_(toy.Z), plain.removal_(toy.Z))
    assert not list(Path("scratch").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["big", "--task", "brid", "--concept", "background"], "has no column 'brid' (its columns: bird, backg", 1),
        (["big", *LABELS, "--memory", "10kB"], "900 rows × 128 bytes", 1),
        (["big", *LABELS, "--memory", "much"], "'much' is not an amount of memory", 2),
        (["big", "rows.npy", *LABELS], "only Parquet files can be read together", 1),
        (["big", "big/part-0.parquet", *LABELS], "named twice", 1),
        (["nothing/*.parquet", *LABELS], "There is no file nothing/*.parquet", 1),
        (["empty", *LABELS], "not an embedding store", 1),
        (["wide", *LABELS], "column 'split' is not of numbers. If it is not a feature: --ignore split", 1),
        (["wide", *LABELS, "--ignore", "season"], "has no 'season' to ignore", 1),
        (["table.csv", *LABELS], "has to be read as a whole", 1),
    ],
    ids=["label", "memory", "amount", "mixed", "twice", "nothing", "no store", "text", "ignore", "csv"],
)
def test_what_cannot_be_done_is_said_in_one_line(here, arguments, message, code):
    Path("empty").mkdir()
    Path("table.csv").write_text("a,bird,background\n1,0,1\n")
    memory = [] if "--memory" in arguments else ["--memory", "1MB"]
    assert message in invoke("fit", *arguments, *memory, "--output", "x.safetensors", code=code)
    assert not Path("x.safetensors").exists()


def test_scratch_is_for_rows_that_stay_in_their_files(here):
    assert "--memory" in invoke("fit", "big", *LABELS, "--scratch", ".", "--output", "x.safetensors", code=2)


@pytest.mark.parametrize("memory", [[], ["--memory", "1MB"]], ids=["loaded", "stored"])
def test_damage_is_named_before_anything_is_written(here, memory):
    write(np.ones((300, 2)), Path("big"), row_group_size=100, write_page_checksum=True, use_dictionary=False)
    for path in list(Path("big").glob("part-[12]*")):
        path.unlink()
    flip(Path("big/part-0.parquet"), middle_of(Path("big/part-0.parquet"), 1), 4)
    labels = ["--task", "y.npy", "--concept", "c.npy"]
    np.save("y.npy", np.arange(300) % 2)
    np.save("c.npy", np.arange(300) // 2 % 2)
    said = invoke("fit", "big", *labels, *memory, "--output", "x.safetensors")
    assert "part-0.parquet, row group 1 is damaged" in said
    assert not Path("x.safetensors").exists()


def test_files_larger_than_memory_are_not_loaded(here, monkeypatch):
    monkeypatch.setattr("unspur.embed.tables.available_memory", lambda: 50_000)
    assert "Pass --memory 1GB" in invoke("fit", "big", *LABELS, "--output", "x.safetensors")
    monkeypatch.setattr("unspur.embed.tables.available_memory", lambda: None)  # where it cannot be told
    assert fit("big", *LABELS).spurious_.dim == 1


def test_small_files_with_a_column_of_lists_are_tables_like_others(toy, here):
    table = read_table("big/part-1.parquet")
    assert_array_equal(table.Z, toy.Z[200:500])
    assert table.features is None
    assert list(table.columns) == ["bird", "background", "split"]
    half = pa.table({"e": lists(np.ones((4, 2), np.float16), fixed=False), "y": [0, 1, None, 1]})
    parquet.write_table(half, "half.parquet")
    assert read_table("half.parquet").Z.dtype == np.float32
    ragged = pa.table({"e": [[1.0], [1.0, 2.0]]})
    parquet.write_table(ragged, "ragged.parquet")
    with pytest.raises(InputError, match="a list of 2 numbers; the first row has 1"):
        read_table("ragged.parquet")
    for rows, message in (([[1.0], None], "null in 1 rows"), ([[1.0], [None]], "1 nulls")):
        parquet.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float64()))}), "gaps.parquet")
        with pytest.raises(InputError, match=message):
            read_table("gaps.parquet")
    with pytest.raises(InputError, match=r"part-0.* has 6 features.*All files need the same"):
        read_table(["half.parquet", "big/part-0.parquet"])


def test_columns_of_several_files_are_matched_by_name(tmp_path):
    rows = {f"z{k}": np.arange(3.0) + k for k in range(3)} | {"bird": [0, 1, 0]}
    parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    parquet.write_table(pa.table(dict(reversed(rows.items()))), tmp_path / "b.parquet")
    table = read_table([tmp_path / "a.parquet", tmp_path / "b.parquet"], ("bird",))
    assert_array_equal(table.Z[3:], table.Z[:3])
    assert_array_equal(table.columns["bird"], [0, 1, 0, 0, 1, 0])
    other = {("other" if name == "z2" else name): values for name, values in rows.items()}
    parquet.write_table(pa.table(other), tmp_path / "c.parquet")
    with pytest.raises(InputError, match="Features that only one of them has: 'other', 'z2'"):
        read_table([tmp_path / "a.parquet", tmp_path / "c.parquet"], ("bird",))


ZONE = timezone(timedelta(hours=2))


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize(
    ("value", "word"),
    [
        (datetime(2024, 6, 1, 0, 30, tzinfo=ZONE), "2024-06-01 00:30:00+02:00"),
        (datetime(2024, 6, 1, 0, 30), "2024-06-01T00:30:00"),
        (date(2024, 6, 1), "2024-06-01"),
        (timedelta(seconds=90), "90000000 microseconds"),
        (7, "7"),
        (0.5, "0.5"),
        (True, "True"),
    ],
)
def test_columns_are_the_same_with_and_without_a_budget(tmp_path, value, word, gap):
    column = pa.array([value, None if gap else value, value])
    rows = {"f0": [0.0, 1.0, 2.0], "taken": column, "number": [1, 2, 3]}
    parquet.write_table(pa.table(rows), tmp_path / "a.parquet")
    labels = ("number", "taken")
    loaded, stored = (read_table(tmp_path / "a.parquet", labels, memory=memory).columns for memory in (None, "1MB"))
    assert list(loaded) == list(stored) == ["taken", "number"]
    assert as_strings(loaded["taken"]) == as_strings(stored["taken"]) == [word, "" if gap else word, word]
    assert loaded["taken"].dtype == stored["taken"].dtype
    written = pa.array(stored["taken"], from_pandas=True)  # as `predict` writes it
    assert written.cast(column.type).equals(column)
    assert getattr(written.type, "tz", None) == getattr(column.type, "tz", None)


@pytest.mark.parametrize("memory", [None, "1MB"])
@pytest.mark.parametrize("values", [["sea", None], [3, 4], [0.5, 1.5], [True, False], [None, None]])
def test_a_column_may_be_missing_in_all_rows_of_a_file(tmp_path, values, memory):
    """Such a column is of no type."""
    for number, column in enumerate(([None, None], values, [None, None])):
        table = pa.table({"f0": [0.0, 1.0], "background": pa.array(column)})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    found = read_table(tmp_path, ("background",), memory=memory).columns["background"]
    assert as_strings(found) == ["", "", *("" if value is None else str(value) for value in values), "", ""]


def test_columns_of_two_types_are_refused_with_a_budget(tmp_path):
    for number, column in enumerate(([None], [1], ["sea"])):
        table = pa.table({"f0": [0.0], "background": pa.array(column)})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    with pytest.raises(
        InputError, match=r"2.parquet: column 'background' is of type string; in \S*1.parquet it is int64"
    ):
        read_table(tmp_path, ("background",), memory="1MB")


def test_only_with_a_budget_rows_stay_in_their_files(here):
    for path, kind in (("big", ParquetRows), ("rows.npy", StoredNpy)):
        assert isinstance(read_table(path, memory="1MB").Z, kind)
        assert not isinstance(read_table(path).Z, StoredRows)


def test_a_store_with_a_budget_keeps_its_columns(tmp_path):
    store = embed(Pictures(), Strips(), tmp_path / "store", progress=False)
    table = read_table(store.folder, memory="1MB")
    assert isinstance(table.Z, StoredNpy)
    assert list(table.columns)[:2] == ["id", "odd"]
    odd = table.where("odd", "1")
    assert isinstance(odd.Z, StoredNpy)
    assert len(odd.Z) == len(odd.columns["id"]) < N
    assert_array_equal(np.concatenate([z for _, z in odd.Z.blocks()]), store.rows[1::2])


@pytest.mark.parametrize(
    ("name", "more"), [("big", []), ("wide", ["--label", "bird", "--label", "background", "--label", "split"])]
)
def test_apply_writes_the_same_files_with_clean_features(toy, here, name, more):
    removal = fit(name, *LABELS, "--ignore", "split")
    told = json.loads(invoke("apply", "r.safetensors", f"{name}/*.parquet", "--output", "clean", "--json", code=0))
    assert told == {"output": "clean", "rows": 900, "n_features": 6, "n_removed": 1, "strength": 1.0}
    assert sorted(path.name for path in Path("clean").iterdir()) == [f"part-{k}.parquet" for k in range(3)]
    features = None if name == "big" else [f"z{j}" for j in range(6)]
    clean = open_rows("clean", features=features)
    assert_allclose(np.concatenate([z for _, z in clean.blocks()]), removal.removal_(toy.Z), atol=1e-12)
    for k in range(3):
        before, after = (parquet.read_table(f"{folder}/part-{k}.parquet") for folder in (name, "clean"))
        assert before.schema.names == after.schema.names
        for column in ("bird", "background", "split"):
            assert before[column].equals(after[column])
    # Into a folder that is there: only when forced, and the input never.
    assert "exists and is kept" in invoke("apply", "r.safetensors", name, "--output", "clean")
    invoke("apply", "r.safetensors", name, "--output", "clean", "--force", "--ignore", "split", code=0)
    assert "split" not in parquet.read_schema("clean/part-0.parquet").names
    assert "holds the rows themselves" in invoke("apply", "r.safetensors", name, "--output", name, "--force")
    # One file of another kind, as before.
    invoke("apply", "r.safetensors", name, "--output", "clean.npz", *more, code=0)
    assert_allclose(np.load("clean.npz")["Z"], removal.removal_(toy.Z), atol=1e-12)


def test_apply_does_not_write_among_the_rows(here):
    fit("big", *LABELS)
    for rows in ("big", "big/**/*.parquet", "b*g", "."):
        said = invoke("apply", "r.safetensors", rows, "--output", "big/clean")
        assert "lies in the folder of the rows" in said, rows
    Path("big/deep").mkdir()
    assert "lies in the folder of the rows" in invoke("apply", "r.safetensors", "big", "--output", "big/deep/x.pq")
    assert not list(Path("big/deep").iterdir())
    assert not Path("big/clean").exists()
    # Files that were named one by one, or by a pattern that does not go deeper, are no folder.
    invoke("apply", "r.safetensors", "big/*.parquet", "--output", "big/clean", code=0)


def test_labels_to_carry_along_must_be_there(here):
    fit("big", *LABELS)
    said = invoke("apply", "r.safetensors", "big", "--output", "clean", "--label", "brid")
    assert "has no column 'brid' (its columns: bird, background" in said
    assert not Path("clean").exists()
    invoke("apply", "r.safetensors", "big", "--output", "clean", "--label", "bird", code=0)


@pytest.mark.parametrize("memory", [[], ["--memory", "1MB"]], ids=["loaded", "stored"])
@pytest.mark.parametrize("fixed", [True, False])
def test_files_without_rows_among_others_are_passed_over(toy, here, memory, fixed):
    Path("some").mkdir()
    labels = {"bird": toy.y, "background": toy.concept}
    write(toy.Z, Path("some"), cuts=(0, 400), labels=labels, fixed=fixed, row_group_size=500)
    assert parquet.read_metadata("some/part-0.parquet").num_rows == 0
    assert fit("some", *LABELS, *memory).spurious_.dim == 1
    said = invoke("fit", "some/part-0.parquet", *LABELS, *memory, "--output", "x.safetensors")
    assert "part-0.parquet has no rows" in said
    # What is missing is said before anything else that may be wrong.
    write(toy.Z[:10], Path("some"), labels={"bird": toy.y[:10]}, columns=True)
    said = invoke("fit", "some", *LABELS, *memory, "--output", "x.safetensors")
    assert "part-0.parquet has no column 'background'" in said


@pytest.mark.parametrize("memory", [[], ["--memory", "1MB"]], ids=["loaded", "stored"])
def test_columns_of_the_same_name_are_refused(here, memory):
    fit("wide", *LABELS, "--ignore", "split")
    columns = [pa.array([0.0, 1.0])] * 3
    for path in Path("wide").iterdir():
        parquet.write_table(pa.table([*columns, *columns[:2]], names=["z0", "z1", "z1", "bird", "background"]), path)
    said = "part-0.parquet has several columns named 'z1'. Rename or drop them."
    assert said in invoke("fit", "wide", *LABELS, *memory, "--output", "x.safetensors")
    assert said in invoke("apply", "r.safetensors", "wide", "--output", "clean")


def test_names_that_end_in_pq_are_parquet_everywhere(toy, here):
    expected = fit("big", *LABELS).removal_(toy.Z)
    for path in list(Path("big").iterdir()):
        path.rename(path.with_suffix(".pq"))
    for rows in ("big", "big/*.pq"):
        for memory in ([], ["--memory", "1MB"]):
            assert_allclose(fit(rows, *LABELS, *memory).removal_(toy.Z), expected, atol=1e-9)
        invoke("apply", "r.safetensors", rows, "--output", "clean", "--force", code=0)
    assert sorted(path.name for path in Path("clean").iterdir()) == [f"part-{k}.pq" for k in range(3)]
    invoke("apply", "r.safetensors", "big/part-0.pq", "--output", "one.pq", code=0)
    assert parquet.read_metadata("one.pq").num_rows == 200


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "s3://bucket/big.zarr", *LABELS, "--dask", "local", "--output", "x"],
        ["fit", "big", *LABELS, "--validation", "https://host/v.parquet", "--output", "x"],
        ["fit", "big", *LABELS, "--output", "gs://bucket/x"],
        ["apply", "r.safetensors", "s3://bucket/big", "--output", "x"],
        ["apply", "s3://bucket/r.safetensors", "big", "--output", "x"],
        ["evaluate", "r.safetensors", "s3://bucket/big", *LABELS],
        ["evaluate", "r.safetensors", "big", "--test", "s3://bucket/big", *LABELS],
        ["compare", "s3://bucket/big", *LABELS],
        ["compare", "big", "--test", "s3://bucket/big", *LABELS],
        ["embed", "s3://bucket/table.csv"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_urls_are_not_taken_for_local_paths(here, arguments):
    said = " ".join(invoke(*arguments, code=2).split())
    assert "is a URL; the command line reads and writes local paths" in said
    assert "da.from_zarr(url)" in said


def test_apply_leaves_nothing_behind_when_it_fails(toy, here):
    fit("big", *LABELS)
    z = toy.Z[:200].copy()
    z[150, 2] = np.nan
    write(z, Path("big"), row_group_size=64)
    before = sorted(Path().iterdir())
    said = invoke("apply", "r.safetensors", "big/part-0.parquet", "--output", "clean")
    assert "part-0.parquet, row group 2 has 1 values that are NaN" in said
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("kind", ["float16", "float32", "int8"])
def test_apply_keeps_the_type_of_features(here, kind):
    z = np.random.default_rng(0).integers(0, 9, (60, 6)).astype(kind)
    Path("typed").mkdir()
    fit("big", *LABELS)
    write(z, Path("typed"), fixed=False)
    invoke("apply", "r.safetensors", "typed", "--output", "clean", code=0)
    written = parquet.read_schema("clean/part-0.parquet").field("embedding").type
    assert written.list_size == 6
    assert str(written.value_type) == {"float16": "halffloat", "float32": "float", "int8": "double"}[kind]
    clean = np.concatenate([rows for _, rows in open_rows("clean").blocks()])
    assert_allclose(clean, load("r.safetensors").removal_(z.astype(float)), atol=1e-2 if kind == "float16" else 1e-5)


def test_files_of_the_same_name_are_not_written_over_each_other(here):
    fit("big", *LABELS)
    for folder in ("a", "b"):
        Path("both", folder).mkdir(parents=True)
        write(np.ones((5, 6)), Path("both", folder))
    invoke("apply", "r.safetensors", "both", "--output", "clean", code=0)
    assert sorted(map(str, Path("clean").rglob("*.parquet"))) == ["clean/a/part-0.parquet", "clean/b/part-0.parquet"]
    said = invoke("apply", "r.safetensors", "both/a/part-0.parquet", "both/b/part-0.parquet", "--output", "other")
    assert "would both be written as part-0.parquet" in said


def test_a_folder_that_was_there_and_empty_is_filled_in_one_piece(here, monkeypatch):
    """A process that is killed in between must not leave some of the files, which pass for all of them."""
    fit("big", *LABELS)
    (here / "clean").mkdir(0o750)
    moved, replace = [], Path.replace

    def watched(path, target):
        moved.append(Path(target).name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    invoke("apply", "r.safetensors", "big", "--output", "clean", code=0)
    assert moved == ["clean"]
    assert (here / "clean").stat().st_mode & 0o777 == 0o750
    assert {path.name for path in (here / "clean").iterdir()} == {path.name for path in (here / "big").iterdir()}
    moved.clear()
    invoke("apply", "r.safetensors", "big", "--output", "clean", "--force", code=0)
    assert set(moved) > {path.name for path in (here / "big").iterdir()}  # control: where files are, one by one


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of the same pictures, by one network twice, by another of the same width, and reduced in two ways."""
    folder = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    images = [picture for picture in Pictures().images for _ in range(3)]
    labels = {"bird": rng.integers(2, size=3 * N), "water": rng.integers(2, size=3 * N)}
    splits = (np.where(rng.random(3 * N) < 0.6, "train", "test") for _ in range(2))
    first, second = (Pictures(images, {**labels, "split": split}) for split in splits)
    other = Strips(name="other strips", digest="fedcba9876543210")
    for name, pictures, encoder, pca in (
        ("train", first, Strips(), None),
        ("test", second, Strips(), None),
        ("another", second, other, None),
        ("reduced", first, Strips(), 16),
        ("otherwise", second, Strips(), 16),
    ):
        embed(pictures, encoder, folder / name, pca=pca, progress=False)
    return folder


MIXED = {
    ("train", "another"): "embedded by different networks, strips (0123456789abcdef) and other strips (fedcba98",
    ("reduced", "otherwise"): "reduced to different principal components",
    ("train", "reduced"): "reduced to different principal components",
}
USES_TWO = (
    ("fit", "--validation", "--output", "none.safetensors"),
    ("report", "--test", "--output", "none.html"),
    ("compare", "--validation", "--remover", "LEACE"),
)


@pytest.mark.parametrize(("train", "other"), MIXED)
@pytest.mark.parametrize("words", USES_TWO, ids=lambda words: words[0])
def test_stores_whose_columns_mean_other_things_are_not_mixed(stores, monkeypatch, words, train, other):
    monkeypatch.chdir(stores)
    verb, option, *more = words
    given = ("--task", "bird", "--concept", "water", "--ignore", "split", option, other, *more)
    said = invoke(verb, train, *given, code=1)
    assert MIXED[train, other] in said
    assert "do not mean the same" in said


def test_a_saved_removal_knows_the_network_of_its_rows(stores, tmp_path, monkeypatch):
    monkeypatch.chdir(stores)
    labels, saved = ("--task", "bird", "--concept", "water", "--ignore", "split"), str(tmp_path / "r.safetensors")
    fitted = fit("train", *labels, "--validation", "test", "--penalty", "0.1", "--cv", "2", output=saved)
    assert fitted.encoding_ == {"encoder": "strips", "digest": "0123456789abcdef", "reduction": None}
    for store, noted in (("test", False), ("another", True), ("reduced", True)):
        for verb in ("apply", "predict"):
            said = invoke(verb, saved, store, "--output", str(tmp_path / "x.npz"), "--force", code=0)
            assert ("so their columns do not mean the same" in " ".join(said.split())) == noted
    said = " ".join(invoke("evaluate", saved, "another", *labels, code=0).split())
    assert "networks, strips (0123456789abcdef) and other strips (fedcba9876543210), so their columns" in said
    Z, y = np.random.default_rng(0).standard_normal((200, 16)), np.arange(200) % 2
    fitted.set_params(max_spurious=0).fit(Z, y, concept=np.arange(200) % 4 // 2)
    assert not hasattr(fitted, "encoding_")  # these rows are of no store
