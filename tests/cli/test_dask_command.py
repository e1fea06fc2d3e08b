"""`unspur fit --dask`: rows that workers read, from Zarr, Parquet and .npy, and what is said when they cannot."""

import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from click.testing import CliRunner
from distributed import Client, LocalCluster

from unspur import load, open_rows
from unspur.cli import main
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.io import dask_tables
from unspur.io.dask_tables import connected, read_dask_table
from unspur.rows.parquet import RowGroup, read_groups
from unspur.rows.source import slices

TOY = make_toy(900, rho=0.8, random_state=0)
Z = TOY.Z.astype(np.float32)
OPTIONS = ["--cv", "0", "--penalty", "0.01"]


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL") as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(dask_tables, "MIN_CHUNK_BYTES", 10_000)


def run(*arguments):
    return CliRunner().invoke(main, ["fit", *map(str, arguments)], catch_exceptions=False)


def npy(folder):
    np.save(folder / "z.npy", Z)
    np.save(folder / "bird.npy", TOY.y)
    np.save(folder / "background.npy", TOY.concept)
    return [folder / "z.npy"], [folder / "bird.npy", folder / "background.npy"]


def parquet(folder):
    for part, rows in enumerate(np.array_split(np.arange(len(Z)), 3)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(Z[rows].ravel()), Z.shape[1])
        table = pa.table({"emb": lists, "bird": TOY.y[rows], "background": TOY.concept[rows]})
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=90)
    return [folder], ["bird", "background"]


def create_array(group):
    """How an array is added to a group, in the third version of Zarr and in the second."""
    return group.create_array if hasattr(group, "create_array") else group.create_dataset


def zarr_group(folder):
    group = zarr.open_group(str(folder / "big.zarr"), mode="w")
    arrays = {"Z": (Z, (70, 6)), "bird": (TOY.y, (100,)), "background": (TOY.concept, (100,))}
    for name, (values, chunks) in arrays.items():
        create_array(group)(name, shape=values.shape, chunks=chunks, dtype=values.dtype)[:] = values
    return [folder / "big.zarr"], ["bird", "background"]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("write", [npy, parquet, zarr_group])
def test_workers_read_the_rows_that_are_in_the_files(write, tmp_path, client):
    files, labels = write(tmp_path)
    table = read_dask_table(files, tuple(map(str, labels)), (), client)
    assert table.Z.shape == Z.shape
    assert table.Z.numblocks[0] > 2
    np.testing.assert_array_equal(table.Z.compute(), Z)
    np.testing.assert_array_equal(table.label(str(labels[0])), TOY.y)
    some = table.where(str(labels[1]), "1")
    np.testing.assert_array_equal(some.Z.compute(), Z[TOY.concept == 1])


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("write", [npy, zarr_group])
def test_fit_on_a_cluster_saves_what_fit_saves(write, tmp_path, cluster):
    files, (bird, background) = write(tmp_path)
    labels = ["--task", bird, "--concept", background, *OPTIONS]
    done = run(*files, *labels, "--dask", cluster.scheduler_address, "--output", tmp_path / "on.safetensors", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n_spurious"] >= 1
    there, (bird, background) = npy(tmp_path)
    run(*there, "--task", bird, "--concept", background, *OPTIONS, "--output", tmp_path / "here.safetensors")
    found, expected = (load(tmp_path / f"{name}.safetensors").removal_.matrix() for name in ("on", "here"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)  # rows of float32, in other blocks
    assert np.abs(expected - np.eye(20)).max() > 0.1


def test_a_scheduler_file_is_as_good_as_an_address(tmp_path, cluster):
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"type": "Scheduler", "address": cluster.scheduler_address}))
    with connected(str(file)) as client:
        assert len(client.nthreads()) == 2


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{}", '{"address": 3}', "tcp://127.0.0.1:9"])
def test_another_file_is_no_file_of_a_scheduler(tmp_path, text):
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"scheduler\.json is not a file that a Dask scheduler wrote"):
        connected(str(file)).__enter__()


def test_a_cluster_of_this_machine_lives_as_long_as_the_run(tmp_path, monkeypatch):
    files, (bird, background) = zarr_group(tmp_path)
    done = run(*files, "--task", bird, "--concept", background, *OPTIONS, "--dask", "local", "--output", tmp_path / "r")
    assert done.exit_code == 0, done.output
    assert "carries background" in done.output


# What is said when it cannot be done


def test_a_scheduler_that_is_not_there_is_an_error_within_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_tables, "CONNECT_SECONDS", 1.0)
    files, (bird, background) = npy(tmp_path)
    start = time.monotonic()
    with (
        pytest.raises(InputError, match=r"No Dask scheduler answers at tcp://127\.0\.0\.1:9 "),
        connected("tcp://127.0.0.1:9"),
    ):
        pass
    assert time.monotonic() - start < 8
    done = run(*files, "--task", bird, "--concept", background, "--dask", "nonsense", "--output", tmp_path / "r")
    assert done.exit_code == 1
    assert "not the address of a Dask scheduler" in done.output


class Workers:
    """A client whose two workers answer as they are told."""

    def __init__(self, *answers):
        self.answers = answers

    def run(self, *_):
        return {f"tcp://worker:{i}": answer for i, answer in enumerate(self.answers)}

    def nthreads(self):
        return dict.fromkeys(range(len(self.answers)), 1)


def test_files_that_workers_do_not_see_are_named():
    dask_tables._require_visible(Workers([], []), [])
    with pytest.raises(InputError, match=r"1 of 2 workers do not see /big/z\.npy \(the first: tcp://worker:1\)"):
        dask_tables._require_visible(Workers([], ["/big/z.npy"]), [])


def test_workers_with_another_unspur_or_none_are_told_of(client):
    dask_tables._expect_this_version(client, "here")
    with pytest.raises(InputError, match=r"different versions of unspur: .*none"):
        dask_tables._expect_this_version(Workers("none"), "here")
    with pytest.raises(InputError, match=r"9\.9"):
        dask_tables._expect_this_version(Workers("9.9"), "here")


def test_a_file_that_is_gone_when_a_worker_looks_is_an_error_and_not_zeros(tmp_path, client):
    files, labels = zarr_group(tmp_path)
    table = read_dask_table(files, tuple(labels), (), client)
    (tmp_path / "big.zarr").rename(tmp_path / "elsewhere.zarr")
    with pytest.raises(InputError, match=r"big\.zarr cannot be read as Zarr"):
        table.Z.compute()


def ragged(folder, width=20):
    """Three files of lists whose length only they themselves say; that of the last is `width`."""
    for part, rows in enumerate(np.array_split(np.arange(len(Z)), 3)):
        z = Z[rows, : width if part == 2 else 20]
        offsets = pa.array(np.arange(len(z) + 1, dtype=np.int32) * z.shape[1])
        table = pa.table(
            {
                "emb": pa.ListArray.from_arrays(offsets, pa.array(z.ravel())),
                "bird": TOY.y[rows],
                "background": TOY.concept[rows],
            }
        )
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=90, use_dictionary=False)


@pytest.mark.usefixtures("small_chunks")
def test_files_of_another_width_are_refused_by_name_before_any_work(tmp_path, client):
    labels = ("bird", "background")
    ragged(tmp_path)
    assert read_dask_table([tmp_path], labels, (), client).Z.compute().shape == Z.shape  # control
    ragged(tmp_path, 15)
    with pytest.raises(InputError, match=r"2\.parquet, row group 0: column 'emb' has lists of 15 numbers; .* have 20"):
        read_dask_table([tmp_path], labels, (), client)
    parquet(tmp_path)
    pq.write_table(pq.read_table(tmp_path / "1.parquet").drop(["background"]), tmp_path / "1.parquet")
    with pytest.raises(InputError, match=r"1\.parquet has no column 'background'"):
        read_dask_table([tmp_path], labels, (), client)
    pq.write_table(pq.read_table(tmp_path / "0.parquet").drop(["emb"]), tmp_path / "2.parquet")
    with pytest.raises(InputError, match=r"2\.parquet has no column 'emb'"):
        read_dask_table([tmp_path], ("bird",), (), client)
    (tmp_path / "2.parquet").write_bytes(b"PAR1" + b"?" * 100 + b"PAR1")
    with pytest.raises(InputError, match=r"2\.parquet cannot be read as Parquet"):
        read_dask_table([tmp_path], ("bird",), (), client)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: ragged(folder, 15), r"2\.parquet, row group \d: .* a list of 15 numbers; the first row has 20"),
        (
            lambda folder: pq.write_table(pa.table({"emb": [[1.0] * 20]}), folder / "2.parquet"),
            r"2\.parquet, row group \d has other features than when it was found: 20 of type float",
        ),
        (
            lambda folder: pq.write_table(pq.read_table(folder / "2.parquet")[:95], folder / "2.parquet"),
            r"2\.parquet, row group \d has (95|0) rows; it had (90|30)",
        ),
        (lambda folder: (folder / "2.parquet").unlink(), r"2\.parquet cannot be read as Parquet"),
    ],
    ids=["width", "type", "rows", "gone"],
)
def test_a_chunk_that_is_not_as_it_was_found_is_named_by_the_worker(tmp_path, client, spoil, said):
    ragged(tmp_path)
    table = read_dask_table([tmp_path], ("bird", "background"), (), client)
    spoil(tmp_path)  # several chunks of the last file: whichever is read first speaks
    with pytest.raises(InputError, match=said):
        table.Z.compute()


def test_a_list_of_another_length_inside_a_file_is_named_by_file_and_row_group(tmp_path, cluster):
    ragged(tmp_path)
    table = pq.read_table(tmp_path / "1.parquet")
    emb = table["emb"].to_pylist()
    emb[200] = emb[200][:7]
    pq.write_table(
        table.set_column(0, "emb", pa.array(emb, pa.list_(pa.float32()))), tmp_path / "1.parquet", row_group_size=90
    )
    labels, output = ["--task", "bird", "--concept", "background"], f"{tmp_path}.safetensors"
    done = run(tmp_path, *labels, *OPTIONS, "--dask", cluster.scheduler_address, "--output", output)
    assert done.exit_code == 1
    assert "1.parquet, row group 2: column 'emb' has a list of 7 numbers" in done.output
    assert not Path(output).exists()


def test_row_groups_are_read_as_they_are(tmp_path):
    ragged(tmp_path)
    stored = open_rows(tmp_path)
    np.testing.assert_array_equal(read_groups(stored.groups[2:6], stored.layout), Z[180:480])


def test_a_budget_of_one_machine_is_refused_with_a_cluster(tmp_path):
    options = ["--dask", "local", "--memory", "1GB"]
    done = run(tmp_path, "--task", "a", "--concept", "b", *options, "--output", tmp_path / "r")
    assert done.exit_code == 2
    assert "--memory and --dask cannot be combined" in done.output


def test_files_that_have_to_be_read_as_a_whole_are_refused(tmp_path, client):
    with pytest.raises(InputError, match=r"rows come from Zarr, Parquet or \.npy"):
        read_dask_table([tmp_path / "z.npz"], (), (), client)
    group = zarr.open_group(str(tmp_path / "two.zarr"), mode="w")
    for name in ("a", "b"):
        create_array(group)(name, shape=(4, 2), dtype="f4")
    with pytest.raises(InputError, match="one named Z; found: a, b"):
        read_dask_table([tmp_path / "two.zarr"], (), (), client)
    with pytest.raises(InputError, match="no 'c' to ignore"):
        read_dask_table([tmp_path / "two.zarr"], (), ("c",), client)
    assert read_dask_table([tmp_path / "two.zarr"], (), ("b",), client).Z.shape == (4, 2)


def test_chunks_hold_whole_row_groups():
    def together(*sizes):
        """Rows of the groups of each chunk, if every group is a file of its own."""
        starts = np.cumsum([0, *sizes])
        groups = [RowGroup(Path(f"{k}.parquet"), 0, rows, int(starts[k])) for k, rows in enumerate(sizes)]
        return [[group.rows for group in chunk] for chunk in dask_tables._together(groups, 200)]

    assert together(90, 90, 90, 30) == [[90, 90], [90, 30]]
    assert together(500, 10) == [[500], [10]]
    assert len(together(*[1] * 5000)) == 25  # small files are read together
    assert list(slices(7, 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]


@pytest.mark.parametrize(
    ("rows", "threads", "size"),
    [
        (1000, 8, 1365),  # 4 MB are the least that is worth a task
        (200_000, 8, 12_500),  # two for each thread
        (10_000_000, 8, 43_690),  # 128 MB
        (1_000_000_000, 640, 500_000),  # 2000 chunks
    ],
)
def test_chunks_are_neither_too_small_nor_too_many(rows, threads, size):
    assert dask_tables._rows_per_chunk((rows, 768), 4, threads) == size
