"""Folders of class folders, saved data sets, Parquet and packed tables become examples, or say what is wrong."""

import gzip
import json
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from tests.optional import datasets, parquet
from tests.optional import pyarrow as pa
from unspur.embed.embedding import embed
from unspur.embed.examples import TableExamples
from unspur.embed.registry import load_encoder
from unspur.exceptions import InputError, OutputExistsError

Image = pytest.importorskip("PIL.Image")


def lay(root, **greys):
    """Pictures of one grey each, by their paths: a__b__c=10 is a/b/c.png."""
    for name, grey in greys.items():
        path = root / (name.replace("__", "/") + ".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (6, 4), grey).save(path)
    return root


def greys(examples):
    return [examples[index].getpixel((0, 0))[0] for index in range(len(examples))]


def labels(examples):
    return {name: column.tolist() for name, column in examples.labels.items()}


@pytest.fixture(autouse=True)
def no_bars(monkeypatch):
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


# Class folders


def test_class_folders(tmp_path):
    own = TableExamples.read(lay(tmp_path / "birds", tern__b=20, gull__a=10, gull__c=30))
    assert (own.name, own.kind, own.ids) == ("birds", "image", ["gull/a.png", "gull/c.png", "tern/b.png"])
    assert labels(own) == {"class": ["gull", "gull", "tern"]}
    assert greys(own) == [10, 30, 20]
    assert own.notes == ()


def test_folders_of_splits_and_folders_inside_of_classes(tmp_path):
    own = TableExamples.read(
        lay(tmp_path, train__gull__sea__1=1, train__tern__land__1=2, test__gull__land__1=3, test__tern__sea__1=4)
    )
    assert labels(own) == {
        "class": ["gull", "tern", "gull", "tern"],
        "subfolder": ["land", "sea", "sea", "land"],
        "split": ["test", "test", "train", "train"],
    }
    lay(tmp_path, test__gull__loose=5)  # some have no folder inside of the class, so it is no label
    assert set(TableExamples.read(tmp_path).labels) == {"class", "split"}


def test_what_is_left_out_is_said(tmp_path):
    root = lay(tmp_path / "birds", gull__1=1)
    secret = lay(tmp_path / "elsewhere", gull__2=2) / "gull" / "2.png"
    (root / "gull" / "notes.txt").write_text("x")
    (root / "gull" / ".hidden.png").write_text("x")
    (root / "gull" / "link.png").symlink_to(secret)
    (root / "gull" / "within.png").symlink_to(root / "gull" / "1.png")
    (root / "tern").symlink_to(secret.parent)
    (root / "empty").mkdir()
    own = TableExamples.read(root)
    assert own.ids == ["gull/1.png", "gull/within.png"]
    said = " ".join(own.notes)
    assert "1 files that are not images were skipped, such as" in said
    assert "1 links that lead to files elsewhere were left out (--allow-outside reads them)" in said
    assert "1 linked folders were not entered" in said
    assert "1 folders hold nothing" in said
    assert "There is only one class, 'gull'." in said
    assert greys(TableExamples.read(root, allow_outside=True)) == [1, 2, 1]


@pytest.mark.parametrize(
    ("pictures", "message"),
    [
        ({}, r"holds no pictures, no Parquet files and no data set.*in a folder for each class"),
        ({"a": 1, "gull__b": 2}, r"1 of 2 pictures .* lie in no class folder, such as 'a\.png'"),
        ({"train__a": 1, "train__gull__b": 2}, r"1 of 2 pictures .* such as 'train/a\.png'"),
        ({"train__gull__a": 1, "extra__gull__b": 2}, r"the folders 'train' and 'extra': are they parts"),
    ],
)
def test_folders_that_are_no_class_folders(tmp_path, pictures, message):
    with pytest.raises(InputError, match=message):
        TableExamples.read(lay(tmp_path, **pictures))


def test_a_folder_of_pictures_alone_has_no_labels(tmp_path):
    own = TableExamples.read(lay(tmp_path / "new", b=2, a=1))
    assert (own.ids, greys(own), own.labels) == (["a.png", "b.png"], [1, 2], {})
    assert "they can be predicted, but not fitted on" in " ".join(own.notes)
    store = embed(own, load_encoder("grey-50"), tmp_path / "store", progress=False)
    assert (len(store), dict(store.labels)) == (2, {})
    store.verify()


def test_the_digest_of_class_folders_follows_names_and_pictures(tmp_path):
    root = lay(tmp_path / "birds", gull__a=10, tern__b=20)
    before = TableExamples.read(root).digest()
    shutil.copytree(root, tmp_path / "copy" / "birds")
    assert TableExamples.read(tmp_path / "copy" / "birds").digest() == before
    lay(root, tern__b=21)
    changed = TableExamples.read(root).digest()
    (root / "tern" / "b.png").rename(root / "tern" / "c.png")
    assert len({before, changed, TableExamples.read(root).digest()}) == 3


def test_a_store_of_class_folders_lies_outside_of_them(tmp_path):
    own = TableExamples.read(lay(tmp_path / "birds", gull__a=10, tern__b=20))
    grey = load_encoder("grey-50")
    with pytest.raises(OutputExistsError, match=r"lies in .*birds, the folder to embed"):
        embed(own, grey, tmp_path / "birds" / "store")
    store = embed(own, grey, tmp_path / "store", progress=False)
    assert store.column("class").tolist() == ["gull", "tern"]
    with pytest.raises(InputError, match="is an embedding store already"):
        TableExamples.read(tmp_path / "store")


# Text tables


@pytest.mark.parametrize("name", ["texts.tsv", "texts.csv.gz", "texts.tsv.gz"])
def test_other_tables_of_text(tmp_path, name):
    mark = "\t" if ".tsv" in name else ","
    text = "".join(f"{mark.join(line)}\n" for line in (("text", "y"), ("A man sleeps.", "1"), ("A bird.", "0")))
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    own = TableExamples.read(tmp_path / name)
    assert (own.name, list(own.content), labels(own)) == ("texts", ["A man sleeps.", "A bird."], {"y": [1, 0]})


# Parquet and data sets of Hugging Face


def birds(n=5):
    """A real data set of pictures with classes, a number, a missing value and a column that is no label."""
    return datasets.Dataset.from_dict(
        {
            "photo": [Image.new("L", (6, 4), 10 * i) for i in range(n)],
            "label": [i % 2 for i in range(n)],
            "place": ["sea", None, "land", "sea", "land"][:n],
            "box": [[0.0, 1.0]] * n,
        },
        features=datasets.Features(
            {
                "photo": datasets.Image(),
                "label": datasets.ClassLabel(names=["gull", "tern"]),
                "place": datasets.Value("string"),
                "box": datasets.Sequence(datasets.Value("float32")),
            }
        ),
    )


def test_a_data_set_that_was_saved(tmp_path):
    birds().save_to_disk(str(tmp_path / "birds"), num_shards=2)
    own = TableExamples.read(tmp_path / "birds")
    assert (own.name, own.kind, own.ids) == ("birds", "image", ["1", "2", "3", "4", "5"])
    assert labels(own) == {"label": ["gull", "tern"] * 2 + ["gull"], "place": ["sea", "", "land", "sea", "land"]}
    assert greys(own) == [0, 10, 20, 30, 40]
    assert greys(own)[::-1] == [own[index].getpixel((0, 0))[0] for index in (4, 3, 2, 1, 0)]
    said = " ".join(own.notes)
    assert "pictures are those of the column 'photo'" in said
    assert "'box'" in said
    assert "left out" in said
    own = TableExamples.read(tmp_path / "birds" / "data-00001-of-00002.arrow")  # one of its files
    assert greys(own) == [30, 40]


def test_splits_of_a_data_set_become_a_label(tmp_path):
    several = datasets.DatasetDict({"train": birds(4).shuffle(seed=0), "test": birds(2)})
    several.save_to_disk(str(tmp_path / "birds"))
    own = TableExamples.read(tmp_path / "birds")
    assert own.labels["split"].tolist() == ["train"] * 4 + ["test"] * 2
    expected = [
        several[split][i]["photo"].getpixel((0, 0)) for split, n in (("train", 4), ("test", 2)) for i in range(n)
    ]
    assert greys(own) == expected
    store = embed(own, load_encoder("grey-50"), tmp_path / "store", progress=False)
    assert np.round(255 * store.rows[:, 0]).astype(int).tolist() == expected


def test_parquet_as_the_hub_keeps_it(tmp_path):
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    for split, first in (("train", 0), ("test", 3)):
        table = birds().select(range(first, first + 2)).with_format("arrow")[:]
        parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet", row_group_size=1)
    own = TableExamples.read(tmp_path / "hub")
    assert own.labels["split"].tolist() == ["test", "test", "train", "train"]
    assert greys(own) == [30, 40, 0, 10]
    assert own.labels["label"].tolist() == ["tern", "gull", "gull", "tern"]


def test_parquet_files_called_like_splits(tmp_path):
    def write(*names):
        shutil.rmtree(tmp_path / "set", ignore_errors=True)
        (tmp_path / "set").mkdir()
        for name in names:
            parquet.write_table(pa.table({"text": ["a", "b"], "y": [0, 1]}), tmp_path / "set" / f"{name}.parquet")
        return TableExamples.read(tmp_path / "set")

    assert write("train", "test").labels["split"].tolist() == ["test"] * 2 + ["train"] * 2
    assert write("Validation", "train-00000-of-00001").labels["split"].tolist() == ["Validation"] * 2 + ["train"] * 2
    assert list(write("one", "two").labels) == ["y"]  # names that say nothing, as of files that Spark writes
    assert list(write("part-00000-of-00002", "two").labels) == ["y"]
    with pytest.raises(InputError, match=r"has test\.parquet, a part of a data set, and more\.parquet: which part"):
        write("test", "more")


@pytest.mark.parametrize("form", ["texts", "classes", "hub"])
def test_each_split_has_its_own_names_of_classes(tmp_path, form):
    texts = {"train": ["cat", "dog", "owl"] * 2, "test": ["dog", "owl"]}
    sets = {
        split: datasets.Dataset.from_dict({"text": [f"{split} {i}" for i in range(len(given))], "label": given})
        for split, given in texts.items()
    }
    several = datasets.DatasetDict(sets)
    if form != "texts":
        several = several.class_encode_column("label")  # dog is 1 in the training rows, and 0 in the test rows
    if form == "hub":
        for split, rows in several.items():
            rows.to_parquet(tmp_path / f"{split}-00000-of-00001.parquet")
    else:
        several.save_to_disk(str(tmp_path / "animals"))
    own = TableExamples.read(tmp_path if form == "hub" else tmp_path / "animals").labels
    assert {split: own["label"][own["split"] == split].tolist() for split in texts} == texts


def test_types_of_a_column_that_differ_between_splits(tmp_path):
    def read(train, test):
        for split, given in (("train", train), ("test", test)):
            table = pa.table({"text": [split] * len(given), "y": given})
            parquet.write_table(table, tmp_path / f"{split}-00000-of-00001.parquet")
        return list(map(str, TableExamples.read(tmp_path).labels["y"]))  # of the test rows first

    assert read(pa.array([True, False]), pa.array([True, None])) == ["True", "", "True", "False"]  # the same type
    assert read(pa.array([0.5, 1.0]), pa.array([0.0, 1.0])) == ["0.0", "1.0", "0.5", "1.0"]
    assert read(pa.array([True, False]), pa.array([1, 0])) == ["1", "0", "1", "0"]
    assert read(pa.array([1, None]), pa.array([1.0, 0.5])) == ["1", "0.5", "1", ""]
    assert read(pa.array([1.0, float("nan")]), pa.array([float("nan"), 0.0])) == ["", "0.0", "1.0", ""]
    assert read(pa.array([2**60 + 1]), pa.array([1.0, np.nan])) == ["1", "", str(2**60 + 1)]
    assert read(pa.array(["a", "b"]), pa.array([None, None])) == ["", "", "a", "b"]
    for train, test in ((["1", "0"], [1, 0]), ([1, 0], [date(2020, 1, 1)])):
        with pytest.raises(InputError, match=r"column 'y' .*int64 \(numbers\) in .*Write it with the same type"):
            read(pa.array(train), pa.array(test))


def test_parquet_with_texts_or_with_paths(tmp_path):
    table = pa.table({"text": ["one", "two"], "y": [1, None], "score": [0.5, 1.0], "sure": [True, False]})
    parquet.write_table(table, tmp_path / "texts.parquet")
    own = TableExamples.read(tmp_path / "texts.parquet")
    assert [own[0], own[1]] == ["one", "two"]
    assert labels(own) == {"y": ["1", ""], "score": ["0.5", "1.0"], "sure": ["True", "False"]}
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string())):  # as polars and pandas may write them
        parquet.write_table(pa.table({"text": pa.array(["b", "a"]).cast(kind)}), tmp_path / "texts.parquet")
        assert list(TableExamples.read(tmp_path / "texts.parquet").content) == ["b", "a"]
    lay(tmp_path, gull__1=10)
    parquet.write_table(pa.table({"image": ["gull/1.png"], "y": [1]}), tmp_path / "paths.parquet")
    own = TableExamples.read(tmp_path / "paths.parquet")
    assert (greys(own), own.ids) == ([10], ["gull/1.png"])
    parquet.write_table(pa.table({"image": ["../../etc/passwd"], "y": [1]}), tmp_path / "paths.parquet")
    with pytest.raises(InputError, match="which is not inside of"):
        TableExamples.read(tmp_path / "paths.parquet")


def test_the_digest_of_a_data_set_follows_its_pictures(tmp_path):
    for name, n in (("a", 5), ("b", 5), ("c", 4)):
        birds(n).save_to_disk(str(tmp_path / name / "birds"))
    a, b, c = (TableExamples.read(tmp_path / name / "birds").digest() for name in "abc")
    assert a == b != c


def test_pictures_that_are_damaged_or_missing_are_named(tmp_path):
    good = lay(tmp_path, x=1) / "x.png"
    images = [{"bytes": good.read_bytes()}, {"bytes": b"no picture"}, {"bytes": None}]
    parquet.write_table(pa.table({"image": images, "y": [0, 1, 1]}), tmp_path / "t.parquet")
    own = TableExamples.read(tmp_path / "t.parquet")
    assert own[0].size == (6, 4)
    with pytest.raises(InputError, match=r"t\.parquet: picture 2 cannot be read as an image"):
        own[1]
    with pytest.raises(InputError, match=r"row 3 has no picture in the column 'image', or only its path"):
        own[2]


def test_data_sets_that_cannot_be_used_say_why(tmp_path, monkeypatch):
    birds().save_to_disk(str(tmp_path / "birds"))
    state, arrow = tmp_path / "birds" / "state.json", tmp_path / "birds" / "data-00000-of-00001.arrow"
    whole, content = state.read_text(), arrow.read_bytes()
    state.write_text("{}")
    with pytest.raises(InputError, match="is not a complete Hugging Face dataset: it has no '_data_files'"):
        TableExamples.read(tmp_path / "birds")
    state.write_text(json.dumps({**json.loads(whole), "_indices_data_files": [{"filename": "i.arrow"}]}))
    with pytest.raises(InputError, match="as an old version of `datasets` wrote it"):
        TableExamples.read(tmp_path / "birds")
    state.write_text(whole)
    arrow.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"data-00000-of-00001\.arrow cannot be read"):
        TableExamples.read(tmp_path / "birds")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match=r"bad\.parquet cannot be read"):
        TableExamples.read(tmp_path / "bad.parquet")
    parquet.write_table(pa.table({"text": [1, 2], "y": [0, 1]}), tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="the column 'text' holds int64, and no texts"):
        TableExamples.read(tmp_path / "bad.parquet")
    parquet.write_table(pa.table({"text": ["a"] * 1000, "y": [0] * 1000}), tmp_path / "bad.parquet")
    assert len(TableExamples.read(tmp_path / "bad.parquet")) == 1000
    monkeypatch.setattr("unspur.embed.tables.available_memory", lambda: 100_000)
    with pytest.raises(InputError, match=r"would take 128 kB of the 100 kB of memory that are free. Embed it in parts"):
        TableExamples.read(tmp_path / "bad.parquet")


def test_files_of_two_data_sets_are_not_mixed(tmp_path):
    parquet.write_table(pa.table({"text": ["a"], "y": [0]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"text": ["a"], "z": [0]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet has the columns 'text', 'z'.*files of one data set"):
        TableExamples.read(tmp_path)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux says which files are open")
def test_a_data_set_may_have_more_files_than_can_be_open(tmp_path):
    def number_open():
        return len(list(Path("/proc/self/fd").iterdir()))

    content = (lay(tmp_path, x=7) / "x.png").read_bytes()
    for number in range(20):
        parquet.write_table(pa.table({"image": [content], "y": [number % 2]}), tmp_path / f"{number}.parquet")
    before = number_open()
    own = TableExamples.read(tmp_path)
    assert greys(own) == [7] * 20
    assert number_open() < before + 10
