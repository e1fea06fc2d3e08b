"""Rows of a file or store by what they are labelled."""

import gzip
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.optional import pandas as pd

pytest.importorskip("PIL")

from tests.embed.strips import N, Pictures, Strips
from unspur.embed.embedding import embed
from unspur.exceptions import ArtifactError, InputError, UnspurError
from unspur.io.files import read_table, write_rows
from unspur.io.table import columns_of_one_type

Z = np.random.default_rng(0).standard_normal((6, 2))
SPLIT = np.array(["train", "test", "train", "train", "test", "none"])
Y = np.array([0, 1, 1, 0, 1, 0])


@pytest.fixture(params=["npz", "csv", "parquet", "npy"])
def table(request, tmp_path, monkeypatch):
    """The same six rows in every kind of file, and the names of its labels."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"f0": Z[:, 0], "f1": Z[:, 1], "split": SPLIT, "y": Y})
    if request.param == "npy":
        for name, array in (("rows", Z), ("split", SPLIT), ("y", Y)):
            np.save(f"{name}.npy", array)
        return read_table("rows.npy"), "split.npy", "y.npy"
    if request.param == "npz":
        np.savez("rows.npz", Z=Z, split=SPLIT, y=Y, note=np.array("of no row"))
    elif request.param == "csv":
        frame.to_csv("rows.csv", index=False)
    else:
        frame.to_parquet("rows.parquet")
    return read_table(f"rows.{request.param}", ("split", "y")), "split", "y"


def test_rows_are_chosen_by_the_value_of_a_column(table):
    table, split, y = table
    chosen = table.where(split, "train")
    assert_array_equal(chosen.Z, Z[[0, 2, 3]])
    assert_array_equal(chosen.label(y), [0, 1, 0])
    both = chosen.where(y, "0")
    assert_array_equal(both.Z, Z[[0, 3]])
    assert_array_equal(both.label(split), ["train", "train"])
    assert_array_equal(table.where(y, "0").where(split, "train").Z, both.Z)
    assert_array_equal(table.Z, Z)  # control: the table is as it was


def test_values_and_columns_that_are_not_there_list_what_is(table):
    table, split, y = table
    with pytest.raises(InputError, match=r"no rows left where split\S* is 'validation'; .*'none', 'test', 'train'"):
        table.where(split, "validation")
    with pytest.raises(InputError, match=r"no rows left where y\S* is '1'; what there is: '0'"):
        table.where(split, "none").where(y, "1")
    with pytest.raises(InputError, match=r"has no (column|array) 'season'"):
        table.where("season", "summer")


def test_numbers_gaps_and_yes_or_no_are_chosen_as_they_are_written(tmp_path):
    columns = {"share": np.array([1.0, 0.5, np.nan]), "sure": np.array([True, False, True])}
    np.savez(tmp_path / "rows.npz", Z=Z[:3], name=np.array(["a", "", "c"]), **columns)
    table = read_table(tmp_path / "rows.npz")
    assert_array_equal(table.where("share", "1").Z, Z[[0]])
    assert_array_equal(table.where("share", "0.5").Z, Z[[1]])
    assert_array_equal(table.where("share", "").Z, Z[[2]])
    assert_array_equal(table.where("name", "").Z, Z[[1]])
    assert_array_equal(table.where("sure", "True").Z, Z[[0, 2]])


def test_labels_of_a_parquet_file_are_carried_along_as_they_are(tmp_path):
    large = 2**53 + 1  # which float64 cannot hold
    frame = pd.DataFrame(
        {
            "f0": Z[:, 0],
            "code": pd.array([large, None, 3, 4, 5, 6], dtype="Int64"),
            "day": pd.to_datetime(["2020-01-01", None, *4 * ["2021-06-01"]]).astype("datetime64[ns]"),
            "time": pd.to_datetime(6 * ["2020-01-01 12:30:00.5"]).astype("datetime64[ns]"),
            "kind": pd.Categorical([1, None, 2, 2, 1, 1]),
            "sure": pd.array([True, None, *4 * [False]], dtype="boolean"),
        }
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    names = ("code", "day", "time", "kind", "sure")
    table = read_table(tmp_path / "rows.parquet", names)
    write_rows(table, tmp_path / "again.parquet")
    again = pd.read_parquet(tmp_path / "again.parquet")
    assert again["code"].isna().tolist() == [False, True, False, False, False, False]
    assert again["day"].equals(frame["day"])
    assert read_table(tmp_path / "again.parquet", names).columns["code"].tolist() == [large, None, 3, 4, 5, 6]
    write_rows(table, tmp_path / "again.csv")
    lines = [line.split(",")[:5] for line in (tmp_path / "again.csv").read_text().splitlines()]
    assert lines[1] == [str(large), "2020-01-01", "2020-01-01T12:30:00.500", "1", "True"]
    assert lines[2] == ["", "", "2020-01-01T12:30:00.500", "", ""]
    write_rows(table, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as arrays:
        assert arrays["code"].tolist() == [str(large), "", "3", "4", "5", "6"]
        assert_array_equal(arrays["kind"], [1, np.nan, 2, 2, 1, 1])
        assert_array_equal(arrays["day"], frame["day"].to_numpy())


def test_columns_of_several_values_are_carried_along_as_they_are_or_as_text(tmp_path):
    tags = [["a"], ["b"], None, ["a", "b"], [], ["b"]]
    frame = pd.DataFrame({"embedding": list(Z), "tags": tags, "box": [{"x": 1}] * 6, "pairs": [["a", "b"]] * 6})
    frame.to_parquet(tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    write_rows(table, tmp_path / "again.csv")
    found = pd.read_csv(tmp_path / "again.csv", keep_default_na=False)
    texts = [str(value) if value is not None else "" for value in tags]
    assert found["tags"].tolist() == texts
    assert found["box"].tolist() == ["{'x': 1}"] * 6
    write_rows(table, tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as arrays:
        assert arrays["tags"].tolist() == texts
        assert arrays["pairs"].tolist() == ["['a', 'b']"] * 6
    write_rows(table, tmp_path / "again.parquet")
    again = read_table(tmp_path / "again.parquet", ("tags", "box", "pairs"))
    assert again.columns["tags"].tolist() == tags
    assert again.where("tags", "['b']").kept.tolist() == [1, 5]
    stored = read_table(tmp_path / "rows.parquet", ("tags",), memory="1GB")
    assert stored.columns["tags"].tolist() == tags


def test_a_column_that_parquet_cannot_hold_is_named(table, tmp_path):
    rows, *_ = table
    waves = replace(rows, columns={"wave function": np.full(len(Z), 1j)})
    with pytest.raises(InputError, match=r"'wave function' of .*complex128.*--ignore 'wave function'"):
        write_rows(waves, tmp_path / "waves.parquet")
    assert not (tmp_path / "waves.parquet").exists()
    write_rows(waves, tmp_path / "waves.npz")  # control


def test_rows_are_chosen_by_whole_numbers_with_gaps_and_by_dates(tmp_path):
    frame = pd.DataFrame({"f0": Z[:, 0], "code": pd.array([1, None, 1, 2, 2, 2], dtype="Int64")})
    frame["day"] = pd.to_datetime([*3 * ["2020-01-01"], *3 * ["2021-06-01"]]).astype("datetime64[ns]")
    frame.to_parquet(tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet", ("code", "day"))
    assert_array_equal(table.where("code", "1").Z, Z[[0, 2], :1])
    for written in ("2021-06-01", "2021-06-01T00:00:00", "2021-06-01 00:00"):
        assert_array_equal(table.where("day", written).Z, Z[3:, :1])
    with pytest.raises(InputError, match="what there is: '2020-01-01', '2021-06-01'"):
        table.where("day", "yesterday")


@pytest.mark.parametrize(
    ("numbers", "words", "decoded"),
    [
        ([0, 1], ["0", "1.0", "?"], (["0", "1"], ["0", "1", "?"])),
        ([0.0, 1.5, np.nan], ["0", "1.5", None], (["0", "1.5", None], ["0", "1.5", None])),
        ([True, False], ["True", "no"], (["True", "False"], ["True", "no"])),
        ([True, False], ["1", "0.0", None], (["1", "0"], ["1", "0", None])),
        ([True, None], ["1", "2"], (["1", None], ["1", "2"])),
        ([1, 2], ["01", "1"], (["1", "2"], ["01", "1"])),  # 01 is a name
        ([2**53 + 1], ["a"], ([str(2**53 + 1)], ["a"])),
        ([1, 2], [1.0, 2.0], ([1, 2], [1.0, 2.0])),  # equal numbers are equal
        ([1, 2], [None, None], ([1, 2], [None, None])),
        (["1.0", "2"], ["1", "b"], (["1.0", "2"], ["1", "b"])),  # all of them text
    ],
)
def test_parts_of_a_label_that_are_numbers_become_text_only_beside_text(numbers, words, decoded):
    parts = [np.array(numbers), np.array(words, dtype=object)]
    for order in (slice(None), slice(None, None, -1)):
        found = columns_of_one_type(parts[order])
        assert [column.tolist() for column in found] == list(decoded[order])


def test_labels_of_a_npz_file_may_be_columns(tmp_path):
    """Labels of shape (n, 1), as some programs write them, whether or not they are named."""
    np.savez(tmp_path / "rows.npz", X=Z, y=Y[:, None], split=SPLIT[:, None])
    for labels in ((), ("y",), ("y", "split")):
        found = read_table(tmp_path / "rows.npz", labels)
        assert_array_equal(found.Z, Z)
        assert_array_equal(found.label("y"), Y)
        assert found.where("split", "test").Z.shape == (2, 2)
        write_rows(found, tmp_path / "rows.csv", overwrite=True)
    np.savez(tmp_path / "two.npz", X=Z, other=Z)
    with pytest.raises(InputError, match="one named Z; found: X, other"):  # control: two may be rows
        read_table(tmp_path / "two.npz")
    np.savez(tmp_path / "one.npz", Z=Z[:, :1], other=Z)
    assert read_table(tmp_path / "one.npz").Z.shape == (6, 1)


def test_labels_in_files_of_their_own_must_be_as_many_as_the_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", Z)
    np.save("split.npy", SPLIT)
    np.save("labels.npy", Y)
    table = read_table("rows.npy")
    some = table.where("split.npy", "test")
    assert_array_equal(some.label("labels.npy"), Y[some.kept])
    for count in (3, 5, 7):
        np.save("labels.npy", np.resize(Y, count))
        for call in (lambda: table.where("labels.npy", "1"), lambda: some.label("labels.npy")):
            with pytest.raises(InputError, match=rf"labels\.npy has {count} labels for the 6 rows of rows\.npy"):
                call()


@pytest.fixture
def store(tmp_path):
    pictures = Pictures()
    pictures.labels["seen"] = np.array(["1", "0", ""] * (N // 3))
    return embed(pictures, Strips(), tmp_path / "store", progress=False)


def test_a_store_is_a_table_whose_rows_stay_in_their_file(store, tmp_path):
    table = read_table(store.folder)
    assert isinstance(table.Z, np.memmap)
    assert table.features is None
    assert_array_equal(table.Z, store.rows)
    assert list(table.columns) == ["id", "odd", "split", "seen"]
    assert list(table.columns["seen"][:3]) == [1, 0, None]  # what is empty is not known
    assert isinstance(table.where("split", "train").Z, np.memmap)  # rows in a row
    assert_array_equal(table.where("odd", "1").Z, store.rows[1::2])
    write_rows(table.where("id", "digit 7"), tmp_path / "one.csv")
    assert pd.read_csv(tmp_path / "one.csv").loc[0, ["id", "odd"]].tolist() == ["digit 7", 1]


def test_columns_of_a_store_can_be_left_out(store):
    assert list(read_table(store.folder, ignore=("seen", "id")).columns) == ["odd", "split"]
    with pytest.raises(InputError, match="has no 'season' to ignore"):
        read_table(store.folder, ignore=("season",))


def test_folders_that_are_no_store_and_damaged_stores_are_refused(store, tmp_path):
    with pytest.raises(InputError, match="not an embedding store"):
        read_table(tmp_path)
    (store.folder / "rows.npy").write_bytes(b"cut")
    with pytest.raises(ArtifactError, match="is damaged"):
        read_table(store.folder)


@pytest.mark.parametrize("name", ["manifest.json", "progress.json"])
def test_parquet_files_beside_notes_of_another_program_are_read(store, tmp_path, name):
    folder = tmp_path / "rows"
    folder.mkdir()
    pd.DataFrame({"a": [1.0, 2.0], "bird": [0, 1]}).to_parquet(folder / "part.parquet")
    (folder / name).write_text('{"job": "nightly", "files": ["part.parquet"]}')
    assert_array_equal(read_table(folder, ("bird",)).Z, [[1.0], [2.0]])
    (folder / name).write_bytes((store.folder / "manifest.json").read_bytes())  # control: of a store
    with pytest.raises(UnspurError, match="damaged" if name == "manifest.json" else "not finished"):
        read_table(folder, ("bird",))


def _npy_that_claims(rows, cells=b"\0" * 96):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, 3), }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + cells


def _zipped(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def test_an_array_is_refused_for_what_it_claims_before_memory_is_asked_for(tmp_path):
    sound = _npy_that_claims(4)
    assert read_table(_zipped(tmp_path / "a.npz", Z=sound)).Z.shape == (4, 3)
    for claimed in (5, 10**12, 2**64):
        with pytest.raises(InputError, match=r"a\.npz cannot be read as a \.npz file: 'Z\.npy'"):
            read_table(_zipped(tmp_path / "a.npz", Z=_npy_that_claims(claimed)))
        (tmp_path / "y.npy").write_bytes(_npy_that_claims(claimed))
        with pytest.raises(InputError, match=r"y\.npy cannot be read as a \.npy file of labels"):
            read_table(_zipped(tmp_path / "a.npz", Z=sound)).label(str(tmp_path / "y.npy"))


def test_a_zip_that_is_no_set_of_arrays_is_refused(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"'y\.npy': it is not a \.npy file"):
        read_table(_zipped(tmp_path / "a.npz", Z=_npy_that_claims(4), y=b"hello"))
    whole = _zipped(tmp_path / "a.npz", Z=_npy_that_claims(4)).read_bytes()
    table = whole.index(b"PK\x01\x02")
    lies = whole[: table + 24] + (2**31).to_bytes(4, "little") + whole[table + 28 :]  # the size of the member
    (tmp_path / "a.npz").write_bytes(lies)
    with pytest.raises(InputError, match=r"claims 2,147,483,648 bytes, more than .* packed ones hold"):
        read_table(tmp_path / "a.npz")
    (tmp_path / "a.npz").write_bytes(whole)
    monkeypatch.setattr("unspur.embed.tables.available_memory", lambda: 200)
    with pytest.raises(InputError, match=r"a\.npz would take .* of memory that are free"):
        read_table(tmp_path / "a.npz")


def test_a_limit_of_the_process_counts_as_memory_that_is_not_there():
    code = """
import resource
from unspur._resources import available_memory
print(available_memory())
resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 64 << 30))
print(available_memory())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    free, limited = map(int, done.stdout.split())
    assert limited < 2**30
    assert limited < free


def test_names_of_any_length_give_a_short_message(tmp_path):
    (tmp_path / "a.csv").write_text('"' + "x" * 50_000 + '",b\n1,2\n')
    with pytest.raises(InputError, match="has no column 'y'") as error:
        read_table(tmp_path / "a.csv", ("y",))
    assert len(str(error.value)) < 500


def test_underscores_are_no_part_of_a_number(tmp_path):
    (tmp_path / "rows.csv").write_text("f0,f1,y\n1,2,1_0\n1_00.25,4,b\n")
    with pytest.raises(InputError, match=r"column 'f0' holds '1_00\.25' in row 2, which is not a number"):
        read_table(tmp_path / "rows.csv", ("y",))
    (tmp_path / "rows.csv").write_text("f0,f1,y\n1,2,1_0\n100.25,4,b\n")  # control
    assert read_table(tmp_path / "rows.csv", ("y",)).columns["y"].tolist() == ["1_0", "b"]


PACKED_AND_PLAIN = {
    "rows.csv": b"f0,f1,y\n1,2,a\n3,4,b\n",
    "rows.tsv": b"f0\tf1, in mm\ty\n1\t2\ta\n3\t4\tb\n",  # a comma in a header is no separator here
    "rows.csv.gz": gzip.compress(b"\xef\xbb\xbff0;f1;y\n1;2;a\n3;4;b\n"),
    "ROWS.TSV.GZ": gzip.compress(b"f0\tf1\ty\n1\t2\ta\n3\t4\tb\n"),
}


@pytest.mark.parametrize("name", PACKED_AND_PLAIN)
def test_text_tables_may_have_tabs_and_be_packed(tmp_path, name):
    (tmp_path / name).write_bytes(PACKED_AND_PLAIN[name])
    table = read_table(tmp_path / name, ("y",))
    assert_array_equal(table.Z, [[1, 2], [3, 4]])
    assert table.columns["y"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"f0,f1,y\n" + b"1,2,a\n" * (12 * 2**20)), r"unpacks to more than 67,108,864 bytes"),
        (gzip.compress(b"f0,f1,y\n1,2,a\n")[:-9], r"cannot be unpacked: .*ended before.*complete"),
        (b"f0,f1,y\n1,2,a\n", r"cannot be unpacked: Not a gzipped file"),
        (gzip.compress(b"f0,f1,y\n1,\xff,a\n"), r"not UTF-8"),
    ],
    ids=["bomb", "cut off", "not packed", "no text"],
)
def test_packed_tables_that_cannot_be_read_say_why(tmp_path, content, message):
    (tmp_path / "rows.csv.gz").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "rows.csv.gz", ("y",))
