"""A store opens as it was written, or not at all."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("PIL")

from tests.embed.strips import N, Pictures, Strips
from unspur.embed.embedding import embed
from unspur.embed.store import EmbeddingStore
from unspur.exceptions import ArtifactError, InputError


@pytest.fixture
def folder(tmp_path):
    embed(Pictures(), Strips(), tmp_path / "store", progress=False)
    return tmp_path / "store"


def test_rows_stay_in_their_file_and_cannot_be_written(folder):
    store = EmbeddingStore.open(folder)
    assert isinstance(store.rows, np.memmap)
    assert not store.rows.flags.writeable
    assert len(store) == N
    assert_array_equal(store.column("odd"), np.arange(N) % 2)
    with pytest.raises(InputError, match=r"has no label 'even'; it has odd, split"):
        store.column("even")


def _cut(folder):
    path = folder / "rows.npy"
    path.write_bytes(path.read_bytes()[:-10])


def _replace_rows(array):
    return lambda folder: np.save(folder / "rows.npy", array)


def _zip_rows(folder):
    with (folder / "rows.npy").open("wb") as file:
        np.savez(file, rows=np.ones((N, 16)))


def _edit(old, new):
    def change(folder):
        path = folder / "labels.csv"
        text = path.read_bytes().decode()
        assert old in text
        path.write_bytes(text.replace(old, new, 1).encode())

    return change


def _manifest(**changes):
    def change(folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _without(key):
    def change(folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != key}))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "is damaged"),
        (lambda folder: (folder / "rows.npy").write_bytes(b""), "is damaged"),
        (lambda folder: (folder / "rows.npy").unlink(), "is damaged"),
        (_zip_rows, "is damaged"),
        (_replace_rows(np.ones((N, 16))), "float64"),
        (_replace_rows(np.ones((N, 4), dtype=np.float32)), r"promises \(60, 16\) numbers, rows.npy has \(60, 4\)"),
        (_edit("digit 3,1,train\r\n", ""), "59 lines"),
        (_edit("digit 3,1,train", "digit 3,0,train"), "labels.csv was changed after it was written"),
        (_edit("digit 3,1,train", "digit 4,1,train"), "labels.csv was changed"),
        (_edit("digit 3,1,train", "digit 3,1"), "is damaged"),
        (_edit("id,", "name,"), "starts with the column id"),
        (lambda folder: (folder / "labels.csv").write_bytes(b"\xff"), "is damaged"),
        (lambda folder: (folder / "labels.csv").write_bytes(b'id\n"' + 200_000 * b"x"), "is damaged"),
        (lambda folder: (folder / "manifest.json").write_text('{"format": 1, '), "manifest.json is damaged"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "manifest.json is damaged"),
        (_without("digest"), "manifest.json is damaged"),
        (_without("rows"), "is damaged"),
        (_manifest(format=2), "has format 2; this version reads 1. Upgrade unspur"),
        (_manifest(format="one"), "manifest.json is damaged"),
        (_manifest(format=float("inf")), "manifest.json is damaged"),
        (_manifest(rows="60"), "promises"),
        (_manifest(digest=3), "'digest' of it is 3"),
        (_manifest(encoder={"training": {"history": 3}}), "'history' of the training"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda folder: (folder / "manifest.json").write_bytes(b'{"' + b"x" * 9000 + b"\xff"), "not UTF-8 text"),
        (lambda folder: (folder / "rows.npy").write_bytes(b"\x93NUMPY\x01\x00\x06\x00(1, 2 "), "header is damaged"),
    ],
)
def test_damage_is_noticed_and_said(folder, damage, message):
    damage(folder)
    with pytest.raises(ArtifactError, match=message) as caught:
        EmbeddingStore.open(folder)
    assert len(str(caught.value)) < 500


def test_a_damaged_store_can_be_made_again(folder):
    digest = EmbeddingStore.open(folder).digest
    _cut(folder)
    with pytest.raises(ArtifactError, match="Embed again with overwrite=True"):
        embed(Pictures(), Strips(), folder, progress=False)
    assert embed(Pictures(), Strips(), folder, overwrite=True, progress=False).digest == digest


@pytest.mark.parametrize("text", ['{"mine": 1}', "[]", '{"format": 1, '])
def test_a_manifest_that_may_be_of_others_is_not_to_be_overwritten(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError, match="not a manifest of an embedding store") as caught:
        EmbeddingStore.open(folder)
    assert "overwrite" not in str(caught.value)


def test_verify_reads_what_open_does_not(folder):
    EmbeddingStore.open(folder).verify()
    path = folder / "rows.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    store = EmbeddingStore.open(folder)  # its size is right
    with pytest.raises(ArtifactError, match="has changed since it was written"):
        store.verify()


def test_other_folders_are_no_stores(tmp_path):
    with pytest.raises(InputError, match=r"is not an embedding store: it has no manifest\.json"):
        EmbeddingStore.open(tmp_path)
    with pytest.raises(InputError, match="is not an embedding store"):
        EmbeddingStore.open(tmp_path / "nowhere")


def test_notes_of_another_program_are_no_unfinished_store(tmp_path):
    (tmp_path / "progress.json").write_text('{"done": 3}')
    with pytest.raises(InputError, match=r"is not an embedding store: it has no manifest\.json"):
        EmbeddingStore.open(tmp_path)


def test_labels_and_names_come_back_as_they_were(tmp_path):
    odd = ["a,b", 'say "hi"', "two\nlines", "carriage\rreturn", "Ünï-名 🐦", "", " spaces ", "007", "-0", "٣"]
    labels = {
        "words, odd": np.array(odd),
        "leading zeros": np.array([f"{i:02}" for i in range(10)]),
        "numbers": np.array([2**53 + 1, *range(-4, 5)]),
        "yes or no": np.arange(10) % 2 == 0,
    }
    pictures = Pictures(Pictures().images[:10], labels=labels, ids=[f"{i}{word}" for i, word in enumerate(odd)])
    store = embed(pictures, Strips(), tmp_path / "store", progress=False)
    assert store.ids == tuple(pictures.ids)
    assert store.labels["words, odd"].tolist() == [word or None for word in odd]  # an empty field is a missing value
    for name in ("leading zeros", "numbers"):
        assert_array_equal(store.labels[name], labels[name])
        assert store.labels[name].dtype.kind == labels[name].dtype.kind
    assert list(store.labels["yes or no"]) == ["True", "False"] * 5
    EmbeddingStore.open(tmp_path / "store").verify()
