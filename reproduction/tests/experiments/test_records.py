"""Records: what is read back is what was measured, or nothing."""

import json
import lzma
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unspur.exceptions import ArtifactError, InputError, OutputExistsError
from unspur_paper.experiments import records
from unspur_paper.experiments.records import Record, RecordStore, pack, record_key, unpack

FLOATS = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, float(np.nextafter(1, 2)), 1e22, 123456789.123456789]


def record(seed=0, **changes):
    spec = {"method": "JSE", "seed": seed, "rho": 0.5, "data": {"name": "toy", "n": 2000}, "note": "größer\u2028\n"}
    spec.update(changes)
    result = {"worst": math.sqrt(seed + 2), "floats": FLOATS, "groups": {"0,1": None, "1,1": True}, "count": 2**70}
    return Record(record_key(spec, "d1", "1.0"), spec, "d1", "1.0", result, 0.25, ("UserWarning: soso",))


def stored(folder, one):
    store = RecordStore(folder)
    store.put(one)
    return store, store.path(one.key)


def exact(one, other):
    """Equal with the sign of zero and the type of numbers, which == does not see."""
    return one == other and shown(one) == shown(other)


def shown(one):
    return json.dumps([one.spec, one.result, one.seconds], sort_keys=True)


# Keys


def test_a_key_depends_on_spec_data_and_version():
    spec = {"rho": 0.5, "method": "JSE", "inner": {"a": 1, "b": [1, 2]}}
    key = record_key(spec, "d1", "1.0")
    others = [({**spec, "rho": 0.6}, "d1", "1.0"), (spec, "d2", "1.0"), (spec, "d1", "1.1"), ({}, "d1", "1.0")]
    others += [({**spec, "inner": {"a": 1, "b": [2, 1]}}, "d1", "1.0"), ({**spec, "x": None}, "d1", "1.0")]
    assert len({key, *(record_key(*other) for other in others)}) == 1 + len(others)


def test_and_on_nothing_else():
    code = "from unspur_paper.experiments.records import record_key as key\n"
    code += "print(key({'b': {'y': 0.50, 'x': 'ö'}, 'a': 1}, 'd', 'v'))"
    keys = {record_key({"a": 1, "b": {"x": "ö", "y": 0.5}}, "d", "v")}
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONUTF8": "1"}  # another process, another order of hashes
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    keys.add(done.stdout.strip())
    assert len(keys) == 1
    assert record_key({"rho": np.float64(0.1)}, "d", "v") == record_key({"rho": 0.1}, "d", "v")


# One file each


def test_a_record_comes_back_exactly(tmp_path):
    one = record()
    store, path = stored(tmp_path / "new" / "folder", one)
    assert exact(store.get(one.key), one)
    assert exact(RecordStore(store.folder).get(one.key), one)
    assert not exact(replace(one, result={**one.result, "floats": [0.1, 1 / 3, 0.0, *FLOATS[3:]]}), one)  # minus zero
    assert [p.name for p in store.folder.iterdir()] == [path.name]
    assert store.get(record(1).key) is None
    assert not store.damaged


def test_the_last_put_counts(tmp_path):
    store, _ = stored(tmp_path, record())
    later = replace(record(), seconds=7.0)
    store.put(later)
    assert store.get(later.key) == later
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.99, "all but one byte"])
def test_a_record_that_is_cut_off_counts_as_absent_until_it_is_put_again(tmp_path, share):
    one = record()
    store, path = stored(tmp_path, one)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 1 if isinstance(share, str) else int(share * len(whole))])
    assert store.get(one.key) is None
    assert [found for found, _ in store.damaged] == [path]
    store.put(one)
    assert exact(store.get(one.key), one)


def test_one_altered_character_is_noticed_wherever_it_is(tmp_path):
    one = record()
    store, path = stored(tmp_path, one)
    text = path.read_text("utf-8")
    for position, letter in enumerate(text):
        if letter.isalnum():
            path.write_text(text[:position] + ("8" if letter != "8" else "9") + text[position + 1 :], "utf-8")
            assert store.get(one.key) is None, f"{letter} at {position}"
    path.write_text(text, "utf-8")
    assert store.get(one.key) == one


def test_a_record_under_the_name_of_another_is_noticed(tmp_path):
    store, path = stored(tmp_path, record(0))
    other = store.path(record(1).key)
    other.write_bytes(path.read_bytes())
    assert store.get(record(1).key) is None
    assert store.damaged == ((other, f"the record of another cell ({record(0).key})"),)
    assert store.get(record(0).key) == record(0)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "NaN", '{"checksum": 1}', "[" * 100_000, "\x00\xff", json.dumps({"a": 1})]
)
def test_foreign_files_count_as_absent(tmp_path, text):
    store = RecordStore(tmp_path)
    path = store.path(record().key)
    path.write_text(text, "latin-1")
    assert store.get(record().key) is None
    assert store.damaged[0][0] == path


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, r"record\['result'\]\['losses'\]\[1\] is nan"),
        (np.float64("inf"), "is inf"),
        (np.float32(1), "is of type float32"),
        ({1: 2}, "has the key 1, which is not a string"),
        ("\udc80", "not Unicode"),
    ],
)
def test_what_json_cannot_hold_is_refused_and_leaves_nothing_behind(tmp_path, value, said):
    store, path = stored(tmp_path, record())
    before = path.read_bytes()
    with pytest.raises(InputError, match=said):
        store.put(replace(record(), result={"losses": [0.5, value]}))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_keys_that_would_leave_the_folder_are_refused(tmp_path):
    for key in ("../" + "a" * 61, "A" * 64, ""):
        with pytest.raises(InputError, match="cannot name a record"):
            RecordStore(tmp_path).get(key)


# Several processes


def test_temporary_files_go_after_a_day(tmp_path):
    gone, kept = ".unspur-1-01.tmp", [".unspur-1-02.tmp", ".mine.tmp", "notes.json"]
    for name in (gone, *kept):
        (tmp_path / name).write_text("half a rec")
    os.utime(tmp_path / gone, (0, time.time() - 25 * 3600))
    store = RecordStore(tmp_path)
    store.get(record().key)
    assert len(list(tmp_path.iterdir())) == 4  # reading changes nothing
    store.put(record())
    assert {p.name for p in tmp_path.iterdir()} == {*kept, store.path(record().key).name}


WRITER = """
import sys
from reproduction.tests.experiments.test_records import record
from unspur_paper.experiments.records import RecordStore
for round in range(15):
    for seed in range(5):
        RecordStore(sys.argv[1]).put(record(seed))
"""


def test_two_processes_may_write_the_same_records(tmp_path):
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, cwd=root, stderr=subprocess.PIPE) for _ in range(2)]
    store, seen = RecordStore(tmp_path), 0
    while any(writer.poll() is None for writer in writers):
        seen += sum(store.get(record(seed).key) is not None for seed in range(5))
        time.sleep(0.002)
    assert [(writer.wait(), writer.communicate()[1]) for writer in writers] == [(0, b"")] * 2
    assert seen > 5
    assert not store.damaged  # at no time was half a record to be seen
    assert len(list(tmp_path.iterdir())) == 5


# Packs


def some():
    return [record(seed, rho=rho) for seed in range(20) for rho in (0.5, 0.9)]


def test_a_pack_comes_back_exactly_and_is_the_same_bytes_in_any_order(tmp_path):
    pack(some(), tmp_path / "a.xz")
    pack(reversed(some()), tmp_path / "b.xz")
    expected = sorted(some(), key=lambda one: one.key)
    assert all(map(exact, unpack(tmp_path / "a.xz"), expected))
    assert len(unpack(tmp_path / "a.xz")) == 40
    assert (tmp_path / "a.xz").read_bytes() == (tmp_path / "b.xz").read_bytes()
    pack([*some()[1:], replace(some()[0], seconds=9.0)], tmp_path / "b.xz", overwrite=True)
    assert (tmp_path / "a.xz").read_bytes() != (tmp_path / "b.xz").read_bytes()


def test_what_repeats_is_written_once(tmp_path):
    pack(some(), tmp_path / "a.xz")
    lines = lzma.decompress((tmp_path / "a.xz").read_bytes()).decode().split("\n")
    assert sum("größer" in line for line in lines) == 1
    assert sum(some()[0].key in line for line in lines) == 0  # keys follow from the rest
    single = some()[:1]
    pack(single, tmp_path / "b.xz")
    assert all(map(exact, unpack(tmp_path / "b.xz"), single))
    pack([], tmp_path / "c.xz")
    assert unpack(tmp_path / "c.xz") == []


def test_values_that_python_takes_for_equal_stay_apart(tmp_path):
    levels = [record(0, level=level) for level in (1, 1.0, True)]
    for name, mixed in (("levels", levels), ("gaps", [record(0, extra=None), record(0)])):
        assert len({one.key for one in mixed}) == len(mixed)
        pack(mixed, tmp_path / name)
        assert all(map(exact, unpack(tmp_path / name), sorted(mixed, key=lambda one: one.key)))


def test_keys_of_another_making_are_kept(tmp_path):
    own = [replace(record(seed), key=f"{seed:064x}") for seed in range(3)]
    pack(own, tmp_path / "a.xz")
    assert unpack(tmp_path / "a.xz") == own
    with pytest.raises(InputError, match="Two records have the key"):
        pack([own[0], own[0]], tmp_path / "b.xz")


def test_a_damaged_pack_is_refused(tmp_path):
    path = tmp_path / "a.xz"
    pack(some(), path)
    whole = path.read_bytes()
    text = lzma.decompress(whole)
    damaged = [whole[:-1], whole[: len(whole) // 2], b"", b"hello", whole + b"x", whole + whole]
    damaged += [lzma.compress(text.replace(b"0.25", b"0.26", 1)), lzma.compress(text[: len(text) // 2])]
    damaged += [
        lzma.compress(b"".join(text.splitlines(keepends=True)[:-1])),
        lzma.compress(b""),
        lzma.compress(b"1\n2\n"),
    ]
    for position in range(0, len(whole), 97):
        damaged.append(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"a\.xz is damaged.*Fetch it again"):
            unpack(path)
    path.write_bytes(whole)
    assert len(unpack(path)) == 40
    with pytest.raises(ArtifactError, match="There is no file"):
        unpack(tmp_path / "b.xz")


def test_a_pack_of_a_later_format_asks_for_an_upgrade(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FORMAT", 2)
    pack(some(), tmp_path / "a.xz")
    assert len(unpack(tmp_path / "a.xz")) == 40
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match="Upgrade"):
        unpack(tmp_path / "a.xz")


def test_a_bomb_is_refused_and_so_is_making_one(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.xz"
    encoder = lzma.LZMACompressor(preset=0)
    with bomb.open("wb") as file:
        for _ in range(records.LIMIT // 2**24 + 1):
            file.write(encoder.compress(bytes(2**24)))
        file.write(encoder.flush())
    assert bomb.stat().st_size < 2**20
    with pytest.raises(ArtifactError, match=f"unpacks to more than {records.LIMIT:,} bytes"):
        unpack(bomb)
    pack(some(), tmp_path / "a.xz")
    size = len(lzma.decompress((tmp_path / "a.xz").read_bytes()))
    monkeypatch.setattr(records, "LIMIT", size)
    assert len(unpack(tmp_path / "a.xz")) == 40
    monkeypatch.setattr(records, "LIMIT", size - 1)
    with pytest.raises(ArtifactError, match="unpacks to more than"):
        unpack(tmp_path / "a.xz")
    with pytest.raises(InputError, match="Pack them in parts"):
        pack(some(), tmp_path / "b.xz")
    assert not (tmp_path / "b.xz").exists()


def test_a_pack_is_kept_unless_told_otherwise(tmp_path):
    pack(some(), tmp_path / "a.xz")
    with pytest.raises(OutputExistsError):
        pack(some()[:1], tmp_path / "a.xz")
    pack(some()[:1], tmp_path / "a.xz", overwrite=True)
    assert len(unpack(tmp_path / "a.xz")) == 1


def test_a_store_reads_the_folder_first_and_then_its_packs(tmp_path):
    first, second, third = record(0), record(1), record(2)
    pack([first, second], tmp_path / "a.xz")
    folder = tmp_path / "records"
    store = RecordStore(folder, packed=unpack(tmp_path / "a.xz"))
    assert exact(store.get(first.key), first)
    assert store.get(third.key) is None
    assert not folder.exists()  # reading makes nothing
    newer = replace(first, seconds=7.0)
    store.put(newer)
    assert store.get(first.key) == newer
    store.path(second.key).write_text("cut o")
    assert exact(store.get(second.key), second)  # the pack helps out
    assert store.damaged[0][0] == store.path(second.key)
    (tmp_path / "a.xz").write_bytes(b"")
    with pytest.raises(ArtifactError, match="damaged"):
        unpack(tmp_path / "a.xz")


@pytest.mark.parametrize("change", [{"data": None}, {"result": 3}, {"seconds": "1"}, {"warnings": [1]}, {"spec": []}])
def test_fields_of_another_type_are_noticed_even_with_a_checksum_that_fits(tmp_path, change):
    store, path = stored(tmp_path, record())
    path.write_bytes(records._encode(replace(record(), **change)))
    assert store.get(record().key) is None
    assert "not a record" in dict(store.damaged)[path]
    path.write_bytes(records._encode(record()))
    assert store.get(record().key) == record()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
def test_a_pipe_in_the_place_of_a_record_counts_as_absent(tmp_path):
    store = RecordStore(tmp_path)
    os.mkfifo(store.path(record().key))
    assert store.get(record().key) is None
    assert "not a plain file" in store.damaged[0][1]
