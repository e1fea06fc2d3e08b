# ruff: noqa: ARG005 — what is done to a table or a block need not look at it
"""Rows in Parquet files: the contract, faults by name, and memory."""

import gc
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tests.optional import pandas as pd
from tests.optional import parquet
from tests.optional import pyarrow as pa
from tests.rows.contract import RowSourceContract
from unspur import (
    AFR,
    DFR,
    ERM,
    INLP,
    JSE,
    JTT,
    LEACE,
    RLACE,
    SAL,
    SGD,
    SPLINCE,
    SUBG,
    GroupDRO,
    GroupWeighted,
    open_rows,
)
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotFiniteError
from unspur.metrics import principal_angles
from unspur.rows import MemoryRows, RowLabels, Weighting
from unspur.rows.parquet import ParquetRows
from unspur.rows.stored import read_ahead


def lists(z, *, fixed=True):
    """Rows as one column of lists."""
    values = pa.array(np.ascontiguousarray(z).ravel())
    if fixed:
        return pa.FixedSizeListArray.from_arrays(values, z.shape[1])
    return pa.ListArray.from_arrays(pa.array(np.arange(len(z) + 1, dtype=np.int32) * z.shape[1]), values)


def write(z, folder, *, cuts=(), fixed=True, columns=False, row_group_size=10, labels=None, **options):
    """Rows in one file per part between the cuts."""
    labels = {} if labels is None else labels
    paths = []
    for k, (start, stop) in enumerate(zip((0, *cuts), (*cuts, len(z)), strict=True)):
        part = {name: np.asarray(values)[start:stop] for name, values in labels.items()}
        if columns:
            features = {f"z{j}": z[start:stop, j].copy() for j in range(z.shape[1])}
        else:
            features = {"embedding": lists(z[start:stop], fixed=fixed)}
        paths.append(folder / f"part-{k}.parquet")
        parquet.write_table(pa.table({**part, **features}), paths[-1], row_group_size=row_group_size, **options)
    return paths


class TestParquetRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return ParquetRows(write(z, tmp_path, cuts=(20, 33))).source(columns)


class TestParquetRowsInTinyPieces(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return ParquetRows(write(z, tmp_path, row_group_size=17, fixed=False), block_rows=3).source(columns)


class TestParquetRowsByColumn(RowSourceContract):
    def make(self, z, columns, tmp_path):
        names = [f"z{j}" for j in range(z.shape[1])]
        labels = {"y": np.arange(len(z))}
        paths = write(z, tmp_path, cuts=(1, 40), columns=True, labels=labels)
        return ParquetRows(paths, features=names, block_rows=4).source(columns)


class TestSelectedParquetRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = np.repeat(z, 2, axis=0)
        wide[::2] = np.nan
        return ParquetRows(write(wide, tmp_path, cuts=(31,))).select(np.arange(len(z)) * 2 + 1).source(columns)


class TestCopiedParquetRows(RowSourceContract):
    """With room for all rows, which are read once and kept."""

    def make(self, z, columns, tmp_path):
        stored = ParquetRows(write(z, tmp_path, cuts=(20, 33)))
        stored.check()
        assert stored._copy is not None
        return stored.source(columns)


# -- the same answer as in memory ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy():
    return make_toy(1200, d=8, rho=0.6, random_state=0)


@pytest.fixture(scope="module")
def folder(toy, tmp_path_factory):
    """Three files with row groups of different size, texts among the labels, and what writers leave beside them."""
    folder = tmp_path_factory.mktemp("big")
    labels = {"bird": np.array(["land", "water"])[toy.y], "background": toy.concept}
    write(toy.Z, folder, cuts=(301, 302), row_group_size=170, labels=labels)
    (folder / "_SUCCESS").touch()
    (folder / "_metadata").write_bytes(b"no rows here")
    (folder / ".hidden.parquet").write_bytes(b"nor here")
    return folder


#: So little that nothing is kept: every pass reads the files.
LITTLE = 420_000


def angle(a, b):
    assert a.dim == b.dim > 0
    return float(np.max(principal_angles(a, b)))


@pytest.mark.parametrize(
    "remover",
    [
        JSE(random_state=0),
        JSE(random_state=0, metric=1.0),
        JSE(solver=SGD(max_epochs=2), random_state=0, cv=0.2),
        INLP(random_state=0, cv=0.2),
        RLACE(random_state=0),
        LEACE(),
        SAL(),
        SPLINCE(),
    ],
    ids=["JSE", "JSE scores", "JSE sgd", "INLP", "RLACE", "LEACE", "SAL", "SPLINCE"],
)
@pytest.mark.filterwarnings("ignore::unspur.exceptions.NotConvergedWarning")
def test_removers_find_in_files_what_they_find_in_memory(remover, toy, folder):
    rows = open_rows(folder, memory=LITTLE)
    in_files = remover.fit(rows, rows.column("bird"), concept=rows.column("background"))
    removal, mark = in_files.removal_, in_files.training_hash_
    in_memory = remover.fit(toy.Z, np.array(["land", "water"])[toy.y], concept=toy.concept)
    np.testing.assert_allclose(removal(toy.Z), in_memory.removal_(toy.Z), rtol=0, atol=1e-9)
    assert mark == in_memory.training_hash_
    assert rows._passes > 3


@pytest.mark.parametrize("head", [ERM, GroupWeighted, SUBG, GroupDRO, JTT, DFR, AFR])
def test_heads_find_in_files_what_they_find_in_memory(head, toy, folder):
    rows = open_rows(folder, memory=LITTLE)
    in_files = head(random_state=0).fit(rows, rows.column("bird"), concept=rows.column("background"))
    in_memory = head(random_state=0).fit(toy.Z, np.array(["land", "water"])[toy.y], concept=toy.concept)
    np.testing.assert_allclose(in_files.coef_, in_memory.coef_, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(in_files.predict(rows), in_memory.predict(toy.Z))


def test_single_precision_finds_the_direction_of_double_precision(toy, tmp_path):
    rows = open_rows(write(toy.Z.astype(np.float32), tmp_path, cuts=(500,), row_group_size=300))
    assert rows.dtype == np.float32
    single = JSE(random_state=0).fit(rows, toy.y, concept=toy.concept)
    double = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    assert angle(single.spurious_, double.spurious_) < 1e-5


def test_a_validation_set_may_be_in_files_too(toy, folder):
    rows = open_rows(folder)
    val = make_toy(600, d=8, rho=0.6, random_state=1)
    y, c = toy.y, toy.concept
    split = JSE(random_state=0).fit(val.Z, val.y, concept=val.concept, X_val=rows, y_val=y, concept_val=c)
    memory = JSE(random_state=0).fit(val.Z, val.y, concept=val.concept, X_val=toy.Z, y_val=y, concept_val=c)
    assert angle(split.spurious_, memory.spurious_) < 1e-7


# -- what can be opened ----------------------------------------------------------------------------------------------


def test_files_folders_patterns_and_lists_are_the_same_rows_in_order(toy, folder):
    files = sorted(folder.glob("part-*.parquet"))
    for paths in (folder, str(folder), str(folder / "*.parquet"), str(folder / "part-?.parquet"), files):
        rows = open_rows(paths)
        np.testing.assert_array_equal(np.concatenate([z for _, z in rows.blocks()]), toy.Z)
        assert rows.shape == toy.Z.shape
        assert rows.column_names == ["bird", "background"]
    np.testing.assert_array_equal(np.concatenate([z for _, z in open_rows(files[::-1]).blocks()])[-301:], toy.Z[:301])


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed", "variable"])
@pytest.mark.parametrize(
    ("stored", "arrives"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64"), ("int8", "float64")]
)
def test_values_arrive_in_the_type_that_holds_them(tmp_path, stored, arrives, fixed):
    z = np.arange(60).reshape(20, 3).astype(stored)
    rows = open_rows(write(z, tmp_path, fixed=fixed, cuts=(7,)))
    assert rows.dtype == arrives
    np.testing.assert_array_equal(np.concatenate([block for _, block in rows.blocks()]), z)


def test_lists_of_float32_are_not_copied(tmp_path):
    rows = ParquetRows(write(np.ones((20, 3), np.float32), tmp_path))
    assert all(not z.flags.owndata and not z.flags.writeable for _, z in rows._chunks())


def test_columns_as_features_arrive_in_the_order_asked_for(tmp_path):
    z = np.random.default_rng(0).standard_normal((30, 3))
    paths = write(z, tmp_path, columns=True, labels={"y": np.arange(30) % 2})
    rows = open_rows(paths, features=["z2", "z0"])
    np.testing.assert_array_equal(np.concatenate([block for _, block in rows.blocks()]), z[:, [2, 0]])
    assert (rows.feature_names, rows.column_names) == (["z2", "z0"], ["y", "z1"])
    assert open_rows(paths, labels=["y"]).feature_names == ["z0", "z1", "z2"]
    fitted = LEACE().fit(rows, concept=rows.column("y"))
    assert list(fitted.feature_names_in_) == ["z2", "z0"]
    with pytest.raises(InputError, match="'z0' is not where it was"):
        ERM().fit(rows, np.arange(30) % 2).predict(open_rows(paths, features=["z0", "z2"]))


def test_selected_rows_are_all_that_is_visited(toy, folder):
    rows = open_rows(folder)
    chosen = np.flatnonzero(toy.y[400:800]) + 400
    some = rows.select(chosen)
    np.testing.assert_array_equal(np.concatenate([z for _, z in some.blocks()]), toy.Z[chosen])
    assert set(some.column("bird")) == {"water"}
    again = some.select(toy.concept[chosen] == 1)
    np.testing.assert_array_equal(
        np.concatenate([z for _, z in again.blocks()]), toy.Z[chosen][toy.concept[chosen] == 1]
    )
    assert len(rows) == 1200


def test_files_and_row_groups_without_rows_are_passed_over(toy, tmp_path):
    write(toy.Z[:50], tmp_path)
    parquet.write_table(pa.table({"embedding": lists(toy.Z[:0])}), tmp_path / "a-first.parquet")
    parquet.write_table(pa.table({"embedding": lists(toy.Z[:0])}), tmp_path / "z-last.parquet")
    rows = open_rows(tmp_path)
    assert rows.shape == (50, 8)
    np.testing.assert_array_equal(np.concatenate([z for _, z in rows.blocks()]), toy.Z[:50])


def test_pickles_are_paths_and_work_elsewhere(toy, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder.parent)
    rows = open_rows(folder.name)
    packed = pickle.dumps(rows)
    assert len(packed) < 10_000 < toy.Z.nbytes
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(np.concatenate([z for _, z in pickle.loads(packed).blocks()]), toy.Z)


# -- faults, by name, before any work --------------------------------------------------------------------------------


def flip(path: Path, start: int, length: int = 40) -> None:
    content = bytearray(path.read_bytes())
    content[start : start + length] = bytes(255 - byte for byte in content[start : start + length])
    path.write_bytes(content)


def middle_of(path: Path, group: int, of: float = 0.5) -> int:
    """A byte amid the pages of the first column of a row group, or where they begin."""
    chunk = parquet.read_metadata(path).row_group(group).column(0)
    return chunk.data_page_offset + int(of * chunk.total_compressed_size)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"compression": "none", "write_page_checksum": True}, middle_of),
        ({"compression": "snappy", "write_page_checksum": True}, middle_of),
        ({"compression": "gzip"}, middle_of),
        ({"compression": "none"}, lambda path, group: middle_of(path, group, of=0)),
    ],
    ids=["checksum", "compressed with checksum", "gzip", "header of a page"],
)
def test_a_damaged_row_group_is_refused_by_name_before_any_work(toy, tmp_path, options, where):
    paths = write(toy.Z, tmp_path, cuts=(600,), row_group_size=200, use_dictionary=False, **options)
    assert open_rows(tmp_path).shape == toy.Z.shape  # control: it was whole
    flip(paths[1], where(paths[1], 2))
    assert parquet.read_metadata(paths[1]).num_rows == 600  # control: a look at the file does not show it
    with pytest.raises(InputError, match=r"part-1\.parquet, row group 2 is damaged"):
        open_rows(tmp_path)
    unchecked = open_rows(tmp_path, check=False)
    jse = JSE()
    with pytest.raises(InputError, match=r"part-1\.parquet, row group 2 is damaged"):
        jse.fit(unchecked, toy.y, concept=toy.concept)
    assert unchecked._passes == 1
    assert not [name for name in vars(jse) if name.endswith("_") and name != "n_features_in_"]


def test_a_changed_byte_in_a_page_without_checksum_is_another_number(toy, tmp_path):
    """The limit of what can be noticed: why files should have checksums."""
    paths = write(toy.Z, tmp_path, row_group_size=200, use_dictionary=False, compression="none")
    flip(paths[0], middle_of(paths[0], 2), 1)
    rows = np.concatenate([z for _, z in open_rows(tmp_path).blocks()])
    assert np.sum(rows != toy.Z) == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), r"part-1\.parquet cannot be read as Parquet"),
        (lambda path: path.write_bytes(path.read_bytes()[:600]), r"part-1\.parquet cannot be read as Parquet"),
        (lambda path: path.write_bytes(b"PAR1 and then something else"), r"part-1\.parquet cannot be read as Parquet"),
        (lambda path: path.write_bytes(b""), r"part-1\.parquet cannot be read as Parquet"),
        (lambda path: path.write_text("a,b\n1,2\n"), r"part-1\.parquet cannot be read as Parquet"),
    ],
    ids=["end cut off", "mostly gone", "foreign", "empty", "CSV"],
)
def test_files_that_are_not_whole_are_refused_by_name(toy, tmp_path, spoil, message):
    paths = write(toy.Z, tmp_path, cuts=(600,))
    spoil(paths[1])
    with pytest.raises(InputError, match=message):
        open_rows(tmp_path, check=False)  # a look is enough


def rewritten(path: Path, change) -> None:
    parquet.write_table(pa.table(change(parquet.read_table(path))), path, row_group_size=10)


def nulls_in_lists(table):
    return {"embedding": pa.array([[1.0, 2.0]] * 15 + [None] * 2 + [[3.0, None]], pa.list_(pa.float64(), 2))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {"embedding": lists(np.ones((18, 3)))}, r"part-1\.parquet: column 'embedding' .*\[3\].*\[2\]"),
        (lambda t: {"embedding": lists(np.ones((18, 2), "f4"))}, r"part-1\.parquet: .*float.*double"),
        (lambda t: {"vectors": t["embedding"]}, r"part-1\.parquet has no column 'embedding'"),
        (nulls_in_lists, r"part-1\.parquet, row group 1: column 'embedding' is null in 2 rows"),
        (
            lambda t: {"embedding": pa.array([[1.0, 2.0]] * 17 + [[3.0, None]], pa.list_(pa.float64(), 2))},
            r"part-1\.parquet, row group 1: column 'embedding' has 1 nulls among its numbers",
        ),
    ],
    ids=["width", "type", "name", "null rows", "null numbers"],
)
def test_files_that_do_not_go_together_and_nulls_are_refused_by_name(tmp_path, change, message):
    paths = write(np.ones((40, 2)), tmp_path, cuts=(22,))
    open_rows(tmp_path)
    try:
        rewritten(paths[1], change)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"this pyarrow cannot write such a file: {error}")
    with pytest.raises(InputError, match=message):
        open_rows(tmp_path)


def test_lists_of_different_length_are_refused_by_name(tmp_path):
    ragged = pa.array([[1.0, 2.0]] * 12 + [[1.0, 2.0, 3.0]] + [[1.0]])
    parquet.write_table(pa.table({"embedding": ragged}), tmp_path / "ragged.parquet", row_group_size=5)
    with pytest.raises(InputError, match=r"ragged\.parquet, row group 2: .*a list of 3 numbers; the first row has 2"):
        open_rows(tmp_path)


def test_nulls_and_huge_whole_numbers_in_plain_columns_are_refused_by_name(tmp_path):
    good = list(range(20))
    parquet.write_table(pa.table({"a": [None, *good[1:]], "b": good}), tmp_path / "x.parquet", row_group_size=10)
    with pytest.raises(InputError, match=r"x\.parquet, row group 0: column 'a' has 1 nulls"):
        open_rows(tmp_path, features=["a", "b"])
    parquet.write_table(pa.table({"a": good, "b": [*good[1:], 2**60]}), tmp_path / "x.parquet", row_group_size=10)
    with pytest.raises(InputError, match=rf"x\.parquet, row group 1: column 'b' holds the whole number {2**60}"):
        open_rows(tmp_path, features=["a", "b"])


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_values_that_are_not_finite_are_counted_and_placed(toy, tmp_path, value, kind):
    z = toy.Z.copy()
    z[[700, 1100], 3] = value
    write(z, tmp_path, cuts=(600,), row_group_size=50)
    message = rf"2 {kind} in column 3, the first in .*part-1\.parquet, row group 2 \(row 0 of it\)"
    with pytest.raises(NotFiniteError, match=message):
        open_rows(tmp_path)
    with pytest.raises(NotFiniteError, match=message):
        LEACE().fit(open_rows(tmp_path, check=False), concept=toy.concept)
    kept = np.flatnonzero(np.isfinite(z).all(axis=1))
    LEACE().fit(open_rows(tmp_path, check=False).select(kept), concept=toy.concept[kept])


def test_a_missing_label_column_is_refused_with_what_there_is(folder, tmp_path, toy):
    with pytest.raises(InputError, match=r"part-0\.parquet has no column 'brid' \(its columns: bird, background, emb"):
        open_rows(folder, labels=["brid"])
    with pytest.raises(InputError, match=r"no column 'brid' \(it has: bird, background\)"):
        open_rows(folder).column("brid")
    write(toy.Z, tmp_path, cuts=(600,), labels={"y": toy.y})
    rewritten(tmp_path / "part-1.parquet", lambda table: {"embedding": table["embedding"]})
    with pytest.raises(InputError, match=r"part-1\.parquet has no column 'y'"):
        open_rows(tmp_path, labels=["y"])


@pytest.mark.parametrize("fixed", [True, False])
def test_booleans_are_features_as_in_memory(tmp_path, fixed):
    rng = np.random.default_rng(0)
    z, y, concept = rng.random((400, 5)) < 0.4, rng.integers(2, size=400), rng.integers(2, size=400)
    expected = LEACE().fit(z, y, concept=concept)
    mixed = {**{f"z{j}": z[:, j] for j in range(4)}, "z4": z[:, 4].astype(np.int8), "y": y, "flag": concept > 0}
    parquet.write_table(pa.table(mixed), tmp_path / "columns.parquet", row_group_size=90)
    table = pa.table({"bits": lists(z, fixed=fixed), "y": y, "flag": concept > 0})
    parquet.write_table(table, tmp_path / "lists.parquet", row_group_size=90)
    for name in ("columns", "lists"):
        rows = open_rows(tmp_path / f"{name}.parquet", labels=["y", "flag"])
        assert rows.dtype == np.float64
        fitted = LEACE().fit(rows, y, concept=rows.column("flag"))
        np.testing.assert_allclose(fitted.removal_.matrix(), expected.removal_.matrix(), atol=1e-12)
    beside = pa.table({"bits": lists(z), "embedding": lists(z * 1.5), "y": y})  # lists of booleans are masks then
    parquet.write_table(beside, tmp_path / "masked.parquet")
    assert open_rows(tmp_path / "masked.parquet").layout.columns == ("embedding",)
    assert open_rows(tmp_path / "masked.parquet", features="bits").layout.columns == ("bits",)
    gaps = pa.table({"z0": pa.array([True, None, False]), "y": [0, 1, 0]})
    parquet.write_table(gaps, tmp_path / "gaps.parquet")
    with pytest.raises(InputError, match="column 'z0' has 1 nulls"):
        open_rows(tmp_path / "gaps.parquet", labels=["y"])
    parquet.write_table(pa.table({"z0": ["yes", "no"], "y": [0, 1]}), tmp_path / "words.parquet")
    with pytest.raises(InputError, match="features are numbers or booleans"):  # control
        open_rows(tmp_path / "words.parquet", labels=["y"])


def test_labels_of_different_type_are_refused_by_name(tmp_path):
    write(np.ones((20, 2)), tmp_path, cuts=(10,), labels={"y": np.arange(20)})
    rewritten(tmp_path / "part-1.parquet", lambda table: {"embedding": table["embedding"], "y": ["a"] * 10})
    with pytest.raises(InputError, match=r"part-1\.parquet: column 'y' is of type string; in .*part-0.* int64"):
        open_rows(tmp_path).column("y")


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ({}, {}, "holds no Parquet files"),
        ({"a": {"embedding": lists(np.ones((0, 2)))}}, {}, "no rows"),
        ({"a": {"x": [1.0], "y": [0]}}, {}, r"does not say which columns are features \(it has: x \(double\), y"),
        ({"a": {"e": lists(np.ones((2, 2))), "f": lists(np.ones((2, 2)))}}, {}, "several columns of lists: e, f"),
        ({"a": {"x": [1.0]}}, {"features": "z"}, "no column 'z' to take as a feature"),
        ({"a": {"x": ["one"], "y": [0]}}, {"labels": ["y"]}, "column 'x' is of type string"),
        ({"a": {"x": [1.0]}}, {"features": []}, "at least one"),
        ({"a": {"e": [[]]}}, {"features": "e"}, "null|empty lists|type"),
        ({"a": {"x": [1.0]}}, {"features": "x", "memory": "lots"}, "'lots' is not an amount of memory"),
    ],
    ids=["folder", "rows", "undecided", "several", "unknown", "text", "none", "empty lists", "memory"],
)
def test_what_cannot_be_opened_says_why(tmp_path, content, arguments, message):
    for name, columns in content.items():
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match=message):
        open_rows(tmp_path, **arguments)


def test_names_that_stand_for_nothing_or_for_one_file_twice_are_refused(folder):
    with pytest.raises(InputError, match=r"There is no file .*nothing-\*"):
        open_rows(str(folder / "nothing-*"))
    with pytest.raises(InputError, match=r"part-0\.parquet is named twice"):
        open_rows([folder, folder / "part-0.parquet"])
    with pytest.raises(InputError, match="No file was named"):
        open_rows([])


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser can read everything")
def test_a_file_that_may_not_be_read_is_refused_by_name(toy, tmp_path):
    paths = write(toy.Z, tmp_path)
    paths[0].chmod(0)
    with pytest.raises(InputError, match=r"part-0\.parquet"):
        open_rows(tmp_path)


def test_files_that_change_or_vanish_after_they_were_opened_are_noticed(toy, tmp_path):
    paths = write(toy.Z, tmp_path, cuts=(600,), labels={"y": toy.y})
    rows = open_rows(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes() + b"more")
    with pytest.raises(InputError, match=r"part-1\.parquet was changed after it was opened"):
        next(rows.blocks())
    with pytest.raises(InputError, match=r"part-1\.parquet was changed after it was opened"):
        rows.column("y")
    paths[0].unlink()
    with pytest.raises(InputError, match=r"part-0\.parquet cannot be read any more"):
        next(rows.blocks())


def test_what_needs_all_rows_at_once_says_what_to_do_instead(folder):
    rows = open_rows(folder)
    leace = LEACE().fit(rows, concept=rows.column("background"))
    with pytest.raises(InputError, match=r"`unspur apply`.*blocks\(\)"):
        leace.transform(rows)
    with pytest.raises(InputError, match=r"X\.select"):
        leace.certificate(rows, concept=rows.column("background"))
    with pytest.raises(InputError, match="not an array"):
        np.asarray(rows)


# -- reading ahead ---------------------------------------------------------------------------------------------------


def reading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "read-ahead" in thread.name]


def test_the_next_item_is_made_while_this_one_is_worked_on():
    made = []

    def slow():
        for i in range(5):
            made.append(i)
            yield i

    items = read_ahead(slow)
    assert next(items) == 0
    deadline = time.monotonic() + 5
    while len(made) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert made == [0, 1, 2]  # one waits, one is held by the thread, and no more than that
    assert list(items) == [1, 2, 3, 4]
    assert not reading()


class Stop(BaseException):
    """Like a KeyboardInterrupt."""


@pytest.mark.parametrize("where", ["statistic", "reading", "early end", "forgotten"])
def test_no_thread_is_left_behind(toy, tmp_path, where):
    paths = write(toy.Z, tmp_path, row_group_size=20)
    rows = open_rows(paths, memory=LITTLE, check=False)
    source = rows.source(RowLabels.of(toy.y, toy.concept))
    if where == "statistic":

        def stop(block):
            assert reading()  # control: there is a thread while there is work
            raise Stop

        with pytest.raises(Stop):
            source.sum(stop)
    elif where == "reading":
        rows._chunks = lambda: (1 / 0 for _ in range(1))
        with pytest.raises(ZeroDivisionError):
            source.sum(lambda block: 1)
    elif where == "early end":
        blocks = rows.blocks()
        next(blocks)
        assert reading()
        blocks.close()
    else:
        for _ in rows.blocks():
            break
        gc.collect()
    assert not reading()


# -- memory ----------------------------------------------------------------------------------------------------------


def most_at_once(rows) -> int:
    """Most bytes that Arrow holds while all rows are visited, looked at after every piece."""
    pool, most = pa.default_memory_pool(), 0
    before = pool.bytes_allocated()
    for _ in rows.blocks():
        most = max(most, pool.bytes_allocated() - before)
    return most


@pytest.mark.parametrize("columns", [False, True], ids=["lists", "columns"])
def test_reading_stays_within_the_budget(tmp_path, columns):
    z = np.random.default_rng(0).standard_normal((60_000, 64)).astype(np.float32)
    write(z, tmp_path, columns=columns, row_group_size=60_000 if not columns else 6_000)
    size = z.nbytes
    small, large = (
        open_rows(tmp_path, features=[f"z{j}" for j in range(64)] if columns else None, memory=memory, check=False)
        for memory in (20_000_000, 80_000_000)
    )
    little, much = most_at_once(small), most_at_once(large)
    assert little < small.budget.reading < 20_000_000 - 60_000 * 128 < size
    assert columns or much > 1.5 * little  # control: what is allowed is used


def test_a_budget_that_is_too_small_is_refused_with_the_sum(tmp_path):
    z = np.ones((2000, 64), np.float32)
    write(z, tmp_path, columns=True, row_group_size=2000)
    names = [f"z{j}" for j in range(64)]
    with pytest.raises(
        InputError, match=r"2,000 rows × 128 bytes .* 256 kB.* pages of one row group.*memory='(\d+)MB'"
    ) as seen:
        open_rows(tmp_path, features=names, memory="300kB")
    enough = seen.value.fields["enough"].value
    assert open_rows(tmp_path, features=names, memory=enough).shape == (2000, 64)


def test_projections_that_do_not_fit_go_to_a_file_that_is_removed(toy, tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    write(toy.Z, tmp_path, row_group_size=100)
    columns = RowLabels.of(toy.y, toy.concept)
    source = open_rows(tmp_path, memory=LITTLE).source(columns)
    directions = np.random.default_rng(0).standard_normal((8, 400))
    projected = source.project(directions, toy.Z.mean(axis=0))
    assert [path.stat().st_size > 1200 * 400 * 8 for path in spool.iterdir()] == [True]
    total = projected.sum(lambda block: block.z.sum(axis=0))
    np.testing.assert_allclose(total, ((toy.Z - toy.Z.mean(axis=0)) @ directions).sum(axis=0), atol=1e-8)
    del projected
    gc.collect()
    assert not list(spool.iterdir())
    few = source.project(directions[:, :2], toy.Z.mean(axis=0))
    assert few.n_features == 2
    assert not list(spool.iterdir())  # control: small ones stay in memory


def test_a_projection_keeps_the_scratch_folder_and_the_bars(toy, tmp_path, monkeypatch):
    (tmp_path / "scratch").mkdir()
    write(toy.Z, tmp_path, row_group_size=100)
    rows = open_rows(tmp_path, memory=LITTLE, scratch=tmp_path / "scratch", progress=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))  # so that only scratch will do
    directions = np.random.default_rng(0).standard_normal((8, 400))
    once = rows.source(RowLabels.of(toy.y, toy.concept)).project(directions, toy.Z.mean(axis=0))
    twice = once.project(np.eye(400), np.zeros(400))
    for projected in (once, twice):
        assert projected._stored._progress
        assert projected._stored._paths[0].parent == tmp_path / "scratch"


def test_an_index_of_pandas_is_no_feature(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]}, index=pd.Index([7, 8, 9], name="number"))
    frame.to_parquet(tmp_path / "x.parquet")
    rows = open_rows(tmp_path, labels=["y"])
    assert rows.feature_names == ["a"]
    np.testing.assert_array_equal(rows.column("number"), [7, 8, 9])
    assert open_rows(tmp_path, features=["a", "number"]).shape == (3, 2)  # by name it may be one


def test_columns_of_the_same_name_are_refused(tmp_path):
    for number, names in enumerate((["a", "y"], ["a", "a"])):
        parquet.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=names), tmp_path / f"{number}.parquet")
    with pytest.raises(InputError, match=r"1\.parquet has several columns named 'a'\. Rename or drop them"):
        open_rows(tmp_path, features=["a"])


def test_files_of_lists_of_another_length_are_refused_before_they_are_read(tmp_path):
    write(np.ones((20, 2)), tmp_path, fixed=False)
    (tmp_path / "more").mkdir()
    write(np.ones((20, 3)), tmp_path / "more", fixed=False)
    with pytest.raises(InputError, match=r"part-0\.parquet, row group 0: .* lists of 2 numbers; .* have 3"):
        open_rows(tmp_path, check=False)


def test_projection_onto_nothing_does_not_read_the_files(toy, tmp_path):
    paths = write(toy.Z, tmp_path)
    rows = open_rows(tmp_path, check=False)
    source = rows.source(RowLabels.of(toy.y, toy.concept))
    paths[0].unlink()
    assert source.project(np.empty((8, 0)), np.zeros(8)).sum(lambda block: len(block.cell)) == 1200
    with pytest.raises(InputError):
        source.project(np.ones((8, 1)), np.zeros(8))


@pytest.mark.parametrize("memory", [LITTLE, "1GB"])
def test_random_rows_of_files_are_those_of_memory(toy, folder, memory):
    columns = RowLabels.of(toy.y, toy.concept)
    stored = open_rows(folder, memory=memory)
    weighting = Weighting(np.ones(4))
    drawn = [
        list(rows.minibatches(64, np.random.default_rng(3), weighting))
        for rows in (stored.source(columns), MemoryRows(toy.Z, columns))
    ]
    for here, there in zip(*drawn, strict=True):
        np.testing.assert_array_equal(here.z, there.z)


def test_a_scratch_folder_holds_a_decoded_copy_while_the_rows_are_used(toy, tmp_path):
    (tmp_path / "scratch").mkdir()
    paths = write(toy.Z, tmp_path, cuts=(500,), row_group_size=130)
    rows = open_rows(paths, memory=LITTLE, scratch=tmp_path / "scratch")
    plain = open_rows(paths, memory=LITTLE)
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    rows._chunks = lambda: (1 / 0 for _ in range(1))  # the files are not read again
    total = [r.source(RowLabels.of(toy.y, toy.concept)).sum(lambda block: block.z.T @ block.z) for r in (rows, plain)]
    np.testing.assert_array_equal(*total)  # to the last bit
    del rows
    gc.collect()
    assert not list((tmp_path / "scratch").iterdir())
    with pytest.raises(InputError, match="There is no folder"):
        open_rows(paths, memory=LITTLE, scratch=tmp_path / "nowhere")


def test_a_bar_for_each_pass_counts_its_rows(toy, folder, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, **options):
            self.options, self.rows = options, 0
            shown.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, rows):
            self.rows += rows

    monkeypatch.setattr("unspur.rows.stored.tqdm", Bar)
    LEACE().fit(open_rows(folder, progress=True), concept=toy.concept)
    assert [bar.options["desc"] for bar in shown] == [f"pass {k}" for k in range(1, len(shown) + 1)]
    assert {bar.rows for bar in shown} == {1200}
    assert shown[0].options["disable"] is None  # shown on terminals only
    shown.clear()
    LEACE().fit(open_rows(folder), concept=toy.concept)
    assert not shown


def test_a_footer_that_contradicts_itself_does_not_end_the_process(toy, tmp_path):
    """Asked for one column of a row group, pyarrow aborts where it should raise: columns are not asked one by one."""
    code = """
import sys
from datetime import date
from pathlib import Path
from unspur.exceptions import InputError
from unspur.rows.backends import open_rows
path = Path(sys.argv[1])
whole = path.read_bytes()
size = int.from_bytes(whole[-8:-4], "little")
start, read, refused = len(whole) - 8 - size, 0, 0
open_rows(path, labels=["place"])
for at in range(start, start + 120):
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    try:
        open_rows(path, labels=["place"])
        read += 1
    except InputError as error:
        assert path.name in str(error)
        refused += 1
print(read, refused)
"""
    table = pa.table({"f0": toy.Z[:20, 0], "f1": toy.Z[:20, 1], "place": ["land", "water"] * 10})
    parquet.write_table(table, tmp_path / "a.parquet")
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "a.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    read, refused = map(int, done.stdout.split())
    assert read > 5
    assert refused > 5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
@pytest.mark.parametrize("name", ["a.npy", "a.parquet"])
def test_pipes_and_links_to_themselves_are_no_files_of_rows(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"{name} is not a plain file"):
        open_rows(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(name)
    with pytest.raises(InputError, match=name):
        open_rows(tmp_path / name)
