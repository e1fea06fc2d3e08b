"""Tables of rows: what is read is what was written, in every kind of file, and damage is one sentence."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from unspur import io
from unspur.exceptions import InputError, NotFiniteError, OutputExistsError
from unspur.io import column_names, plain, read_batches, read_table, writing

pytest.importorskip("pyarrow")

N = 60
APART = ("bird", "sea", "film", "wet")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    features = pd.DataFrame(rng.normal(size=(N, 3)), columns=["a", "b", "c"])
    return features.assign(
        bird=np.arange(N) % 2,
        sea=[None, *(["sea", "land"] * N)[: N - 1]],
        film=pd.array([*([3, 4, 5] * N)[: N - 1], None], dtype="Int64"),
        wet=np.arange(N) % 3 == 0,
    )


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        sea = frame.sea.fillna("").to_numpy(str)
        film = frame.film.to_numpy(float, na_value=np.nan)
        Z = frame[["a", "b", "c"]].to_numpy()
        np.savez(path, Z=Z, bird=frame.bird, sea=sea, film=film, wet=frame.wet)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.fixture(params=["rows.csv", "ROWS.CSV", "rows.csv.gz", "rows.parquet", "rows.npz"])
def table(frame, tmp_path, request):
    return read_table(write(frame, tmp_path / request.param), APART)


def same(one, other):
    assert_array_equal(np.asarray(one.X), np.asarray(other.X))
    assert list(one.columns) == list(other.columns)
    for name in one.columns:
        assert_array_equal(io.as_text(one.columns[name]), io.as_text(other.columns[name]))


def test_every_kind_of_file_has_the_same_rows_and_labels(table, frame):
    assert_array_equal(np.asarray(table.X), frame[["a", "b", "c"]])
    assert (table.features or list("abc")) == list("abc")
    labels = {name: plain(table.column(name)) for name in APART}
    assert_array_equal(labels["bird"], frame.bird)
    assert labels["sea"].tolist() == [None, *frame.sea[1:]]
    assert np.isnan(labels["film"][-1])
    assert_array_equal(labels["film"][:-1], frame.film[:-1])
    assert labels["wet"].dtype == bool


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.npz"])
def test_what_is_written_is_read_again(table, tmp_path, name):
    with writing(tmp_path / name) as put:
        put(table)
    same(read_table(tmp_path / name, APART), table)
    with pytest.raises(OutputExistsError), writing(tmp_path / name) as put:
        put(table)


def test_a_file_appears_whole_or_not_at_all(table, tmp_path):
    before = set(tmp_path.iterdir())

    def fails(name):
        with writing(tmp_path / name) as put:
            put(table)
            raise ZeroDivisionError

    for name in ("out.csv", "out.parquet"):
        with pytest.raises(ZeroDivisionError):
            fails(name)
    assert set(tmp_path.iterdir()) == before


def test_an_array_is_mapped_and_takes_labels_from_a_csv_file(frame, tmp_path):
    np.save(tmp_path / "z.npy", frame[["a", "b"]].to_numpy())
    frame[list(APART)].to_csv(tmp_path / "labels.csv", index=False)
    table = read_table(tmp_path / "z.npy", APART, labels=tmp_path / "labels.csv")
    assert isinstance(table.X, np.memmap)
    assert_array_equal(plain(table.column("bird")), frame.bird)
    with writing(tmp_path / "out.npy") as put:
        put(read_table(tmp_path / "z.npy"))
    assert_array_equal(np.load(tmp_path / "out.npy"), table.X)
    with pytest.raises(InputError, match="no columns"), writing(tmp_path / "no.npy") as put:
        put(table)
    frame[:9].to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(InputError, match="has 9 rows"):
        read_table(tmp_path / "z.npy", labels=tmp_path / "short.csv")


def test_a_folder_of_parts_with_a_column_of_vectors_is_a_table(frame, tmp_path):
    Z = frame[["a", "b", "c"]].to_numpy("float32")
    for part, rows in enumerate((slice(0, 40), slice(40, N))):
        whole = frame.drop(columns=["a", "b", "c"]).assign(embedding=list(Z))[rows]
        whole.to_parquet(tmp_path / f"part-{part}.parquet", index=False)
    table = read_table(tmp_path, ("bird",))
    assert table.X.dtype == np.float32
    assert_array_equal(table.X, Z)
    assert list(table.columns) == list(APART)
    out = tmp_path / "out" / "z.parquet"
    out.parent.mkdir()
    with writing(out) as put:
        for batch in read_batches(tmp_path, ("bird",)):
            put(batch)
    again = read_table(out)
    assert again.array == "embedding"
    same(again, table)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"without \.parquet"):
        read_table(tmp_path / "empty")


def test_parquet_goes_through_in_batches_and_keeps_types(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(io, "BATCH_BYTES", 500)
    path = write(frame.assign(day=pd.Timestamp("2024-01-01")), tmp_path / "rows.parquet")
    apart = (*APART, "day")
    assert len(list(read_batches(path, apart))) > 3
    with writing(tmp_path / "out.parquet") as put:
        for batch in read_batches(path, apart):
            put(batch)
    same(read_table(tmp_path / "out.parquet", apart), read_table(path, apart))
    from pyarrow import parquet

    before, after = (parquet.read_schema(one) for one in (path, tmp_path / "out.parquet"))
    assert all(after.field(name).type == before.field(name).type for name in apart)


def test_rows_are_chosen_by_a_value_as_it_is_written(table):
    assert len(table.where([("sea", "sea"), ("bird", "1")])) == len(table.where([("sea", "sea")]))
    assert table.where([("film", "")]).columns.index.tolist() == [N - 1]
    assert table.where([("wet", "True")]).columns.index.tolist() == list(range(0, N, 3))
    with pytest.raises(InputError, match="there are '', 'land', 'sea'"):
        table.where([("sea", "lake")])
    with pytest.raises(InputError, match="Did you mean 'film'"):
        table.where([("filn", "3")])


def test_an_audit_keeps_all_but_numbers_with_a_point_apart(frame, tmp_path):
    path = write(frame.assign(age=np.where(np.arange(N) == 5, np.nan, 1.5)), tmp_path / "rows.csv")
    table = read_table(path, guess=True)
    assert table.features == ["a", "b", "c"]
    assert list(table.columns) == [*APART, "age"]


def test_features_that_are_known_are_found_by_name(frame, tmp_path):
    path = write(frame, tmp_path / "rows.csv")
    assert read_table(path, features=["c", "a"]).features == ["c", "a"]
    with pytest.raises(InputError, match="no column 'zz'"):
        read_table(path, features=["a", "zz"])
    with pytest.raises(InputError, match="--ignore sea"):
        read_table(path, ("bird", "film"))
    assert column_names(path) == ["a", "b", "c", *APART]


def test_arrays_beside_the_rows_of_a_npz_file(tmp_path):
    Z = np.ones((4, 2))
    np.savez(tmp_path / "z.npz", rows=Z, y=np.arange(4)[:, None], faces=np.zeros((4, 8, 8)), note=np.arange(3))
    table = read_table(tmp_path / "z.npz", ("y",))
    assert (table.array, list(table.columns), list(table.pictures)) == ("rows", ["y"], ["faces"])
    np.savez(tmp_path / "two.npz", a=Z, b=Z)
    with pytest.raises(InputError, match="an array Z"):
        read_table(tmp_path / "two.npz")


BAD = {
    "rows.csv": [b"a,b\n1,2,3\n", b"a,a\n1,2\n", b"a,\n1,2\n", b"\xff\xfe,b\n1,2\n", b"a,b\n", b"a,b\n1,two\n", b"x"],
    "rows.npz": [b"PK\x03\x04 no", b"no"],
    "rows.npy": [b"no", b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'"],
    "rows.parquet": [b"PAR1", b"no"],
    "rows.csv.gz": [b"\x1f\x8bno"],
    "rows.txt": [b"1 2"],
}


@pytest.mark.parametrize(("name", "content"), [(name, one) for name, all_ in BAD.items() for one in (*all_, b"")])
def test_damaged_and_odd_files_are_one_sentence_that_names_them(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_table(tmp_path / name)


def test_rows_are_finite_numbers_that_are_there(frame, tmp_path):
    with pytest.raises(NotFiniteError, match=r"'b' .* row 3"):
        read_table(write(frame.assign(b=frame.b.where(frame.index != 2)), tmp_path / "rows.csv"), APART)
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(InputError, match=r"objects\.npy"):
        read_table(tmp_path / "objects.npy")
    with pytest.raises(InputError, match="There is no file"):
        read_table(tmp_path / "gone.csv")


@pytest.mark.parametrize("name", ["rows.csv", "rows.npz", "rows.parquet"])
def test_a_file_larger_than_memory_is_refused_before_it_is_read(frame, tmp_path, monkeypatch, name):
    path = write(frame, tmp_path / name)
    monkeypatch.setattr(io, "available_memory", lambda: 1000)
    with pytest.raises(InputError, match=r"mmap_mode[\s\S]*dask"):
        read_table(path, APART)
    np.save(tmp_path / "mapped.npy", frame[["a"]])
    assert read_table(tmp_path / "mapped.npy").X.shape == (N, 1)  # which stays on the disk
