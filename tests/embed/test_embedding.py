"""Every example is embedded once, whatever happens in between."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file

pytest.importorskip("PIL")
pytest.importorskip("resource")

from tests.embed.strips import N, Pictures, Strips, long_labels
from unspur._files import hold
from unspur.embed import embedding
from unspur.embed.embedding import embed
from unspur.embed.examples import TableExamples
from unspur.embed.registry import load_encoder
from unspur.embed.store import EmbeddingStore, Reduction, content_digest
from unspur.exceptions import InputError, OutputExistsError, UnspurError
from unspur.labels import class_label

REPOSITORY = Path(__file__).parents[2]


def elsewhere(folder, log, when, code=0):
    """Embed in a process of its own; return what it said."""
    command = [sys.executable, "-m", "tests.embed.strips", str(folder), str(log), str(when)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stderr


def calls(log):
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.fixture
def noting_often(monkeypatch):
    """Notes of progress after every second batch of four."""
    monkeypatch.setattr(embedding, "ROWS_BETWEEN_NOTES", 8)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "whole"
    embed(Pictures(), Strips(), folder, batch=4, progress=False)
    return folder


def test_rows_are_what_the_encoder_says_in_the_order_of_the_examples(tmp_path):
    pictures, encoder = Pictures(), load_encoder("grey-50")
    store = embed(pictures, encoder, tmp_path / "store", batch=7, progress=False)
    assert_array_equal(store.rows, encoder(pictures.images))
    assert len(np.unique(store.rows, axis=0)) == N
    assert store.ids == tuple(pictures.ids)
    for name, column in pictures.labels.items():
        assert_array_equal(store.labels[name], column)
    about = store.manifest
    assert (about["rows"], about["width"], about["encoder"]["name"]) == (N, 2500, "grey-50")
    assert about["dataset"] == {"name": "digits", "settings": {}, "digest": pictures.digest()}
    assert about["seconds"] >= 0
    assert about["peak_memory_mb"] > 10
    store.verify()
    assert sorted(path.name for path in store.folder.iterdir()) == ["labels.csv", "manifest.json", "rows.npy"]


def test_empty_cells_of_a_store_are_missing_values(tmp_path):
    negation = np.resize(["", "no", "yes", ""], N)
    pictures = Pictures(labels={"odd": np.arange(N) % 2, "negation": negation, "few": np.resize(["0", "", "1"], N)})
    store = embed(pictures, Strips(), tmp_path / "store", progress=False)
    assert store.column("negation").tolist() == [value or None for value in negation.tolist()]
    assert store.column("few")[:3].tolist() == [0, None, 1]
    assert store.column("odd").dtype == np.int64  # the control
    assert class_label(store.column("negation"), "negation", N).classes == ("no", "yes")
    store.verify()
    assert store.digest == content_digest(store.rows, store.ids, pictures.labels)  # stores of before have this one


def test_a_killed_run_goes_on_where_it_was(tmp_path, undisturbed):
    folder, log = tmp_path / "store", tmp_path / "log"
    elsewhere(folder, log, 7, code=-signal.SIGKILL)
    assert sum(calls(log)) == 28
    with pytest.raises(InputError, match="not finished; give the same command again"):
        EmbeddingStore.open(folder)
    elsewhere(folder, log, "never")
    again = sum(calls(log)) - 28
    assert again == N - 24  # the fourth note was not written any more
    assert (folder / "rows.npy").read_bytes() == (undisturbed / "rows.npy").read_bytes()
    assert EmbeddingStore.open(folder).digest == EmbeddingStore.open(undisturbed).digest


@pytest.mark.parametrize("moment", ["write_labels", "content_digest", "file_digest"])
def test_a_run_killed_when_all_was_embedded_embeds_nothing_again(tmp_path, undisturbed, moment):
    folder, log = tmp_path / "store", tmp_path / "log"
    elsewhere(folder, log, moment, code=-signal.SIGKILL)
    assert sum(calls(log)) == N
    assert not (folder / "manifest.json").exists()
    encoder = Strips()
    store = embed(Pictures(), encoder, folder, batch=4, progress=False)
    assert encoder.calls == []
    assert (folder / "rows.npy").read_bytes() == (undisturbed / "rows.npy").read_bytes()
    store.verify()


@pytest.mark.parametrize(("what", "embedded"), [("rows too large", 0), ("labels too large", N)])
def test_a_full_disk_is_said_and_what_is_finished_is_kept(tmp_path, what, embedded):
    folder, log = tmp_path / "store", tmp_path / "log"
    said = elsewhere(folder, log, what, code=1)
    assert "DiskError" in said
    assert "give the same command again" in said
    assert sum(calls(log)) == embedded
    assert not (folder / "manifest.json").exists()
    pictures, encoder = long_labels() if embedded else Pictures(), Strips()
    store = embed(pictures, encoder, folder, batch=4, progress=False)
    assert sum(encoder.calls) == N - embedded
    assert_array_equal(store.rows, Strips()(pictures.images))
    store.verify()


def test_what_a_process_left_that_died_after_the_manifest_is_removed(tmp_path, undisturbed):
    folder = shutil.copytree(undisturbed, tmp_path / "store")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    shutil.copy(folder / "rows.npy", folder / "rows.part.npy")
    noted = {**json.loads((folder / "manifest.json").read_text()), "done": N, "seconds": 1.0}
    (folder / "progress.json").write_text(json.dumps(noted))
    with hold(folder / ".lock"):
        embed(Pictures(), Strips(), folder, batch=4, progress=False)
        assert (folder / "progress.json").exists()  # control: somebody is still at work
    (folder / ".lock").write_text(str(dead.pid))
    embed(Pictures(), Strips(), folder, batch=4, progress=False)
    assert sorted(path.name for path in folder.iterdir()) == ["labels.csv", "manifest.json", "rows.npy"]
    # To embed again means to embed, whatever was left.
    (folder / "progress.json").write_text(json.dumps(noted))
    shutil.copy(folder / "rows.npy", folder / "rows.part.npy")
    encoder = Strips()
    embed(Pictures(), encoder, folder, overwrite=True, progress=False)
    assert sum(encoder.calls) == N


def test_a_finished_store_is_found_and_nothing_is_embedded(tmp_path):
    folder = tmp_path / "store"
    first = embed(Pictures(), Strips(), folder, progress=False)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    encoder = Strips()
    again = embed(Pictures(), encoder, folder, batch=5, progress=False)
    assert encoder.calls == []
    assert again.digest == first.digest
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


OTHER = {
    "data": (lambda: Pictures(Pictures().images[::-1]), Strips, None),
    "encoder": (Pictures, lambda: Strips(digest="fedcba9876543210"), None),
    "precision": (Pictures, lambda: Strips(device="cpu, bfloat16"), None),
    "reduction": (Pictures, Strips, 3),
}


@pytest.mark.parametrize("other", OTHER)
@pytest.mark.parametrize("state", ["whole", "begun"])
def test_other_rows_are_kept_unless_they_are_to_be_replaced(tmp_path, noting_often, other, state):
    folder = tmp_path / "store"
    if state == "begun":
        with pytest.raises(KeyboardInterrupt):
            embed(Pictures(), stopped_after(4), folder, batch=4, progress=False)
    else:
        embed(Pictures(), Strips(), folder, progress=False)
    there = {path.name: path.read_bytes() for path in folder.iterdir()}
    examples, encoder, pca = (value() if callable(value) else value for value in OTHER[other])
    with pytest.raises(
        OutputExistsError, match=r"other embeddings .*digits.* Choose another folder, or pass overwrite"
    ):
        embed(examples, encoder, folder, pca=pca, progress=False)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == there
    store = embed(examples, encoder, folder, pca=pca, overwrite=True, progress=False)
    assert sum(encoder.calls) == N
    store.verify()
    assert_array_equal(store.rows, embed(examples, encoder, tmp_path / "fresh", pca=pca, progress=False).rows)


def stopped_after(count, how=KeyboardInterrupt):
    """An encoder that is interrupted before its next call."""

    class Stopped(Strips):
        def __call__(self, examples):
            if len(self.calls) == count:
                raise how
            return super().__call__(examples)

    return Stopped()


@pytest.mark.parametrize("overwrite", [False, True])
def test_replacing_can_be_interrupted_and_the_old_store_stays_until_the_new_one_is_whole(
    tmp_path, noting_often, overwrite
):
    folder = tmp_path / "store"
    old = embed(Pictures(), Strips(), folder, pca=3, progress=False).digest
    backwards = Pictures(Pictures().images[::-1])
    with pytest.raises(KeyboardInterrupt):
        embed(backwards, stopped_after(5), folder, batch=4, overwrite=True, progress=False)
    there = EmbeddingStore.open(folder)
    there.verify()
    assert there.digest == old
    assert embed(Pictures(), Strips(), folder, pca=3, progress=False).digest == old  # found; what was begun stays
    with pytest.raises(OutputExistsError, match="holds other embeddings"):
        embed(Pictures(Pictures().images[:9]), Strips(), folder, progress=False)
    encoder = Strips()
    store = embed(backwards, encoder, folder, batch=4, overwrite=overwrite, progress=False)
    assert sum(encoder.calls) == N - 16
    assert_array_equal(store.rows, Strips()(backwards.images))
    assert sorted(path.name for path in folder.iterdir()) == ["labels.csv", "manifest.json", "rows.npy"]


FOREIGN = {
    "no manifest": {},
    "another manifest": {"manifest.json": '{"mine": 1}'},
    "a manifest with some of the words": {"manifest.json": '{"format": 1, "digest": "x", "encoder": {"name": "e"}}'},
    "another progress": {"progress.json": '{"done": 3, "seconds": 1.5}'},
    "no JSON": {"progress.json": "half"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_that_is_no_store_is_never_touched(tmp_path, files):
    files = {"labels.csv": "precious", **files}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for overwrite in (False, True):
        with pytest.raises(OutputExistsError, match=r"not an embedding store and holds other files, .* labels\.csv"):
            embed(Pictures(), Strips(), tmp_path, overwrite=overwrite, progress=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_the_table_that_is_embedded_does_not_lie_in_the_store(tmp_path, undisturbed):
    folder = shutil.copytree(undisturbed, tmp_path / "store")
    Pictures().images[0].save(tmp_path / "a.png")
    for place in (folder, tmp_path):
        (place / "labels.csv").write_text("image,bird\na.png,gull\n")
    table = TableExamples.read(folder / "labels.csv", tmp_path)
    with pytest.raises(OutputExistsError, match=r"holds .*labels\.csv, the table to embed"):
        embed(table, Strips(), folder, overwrite=True, progress=False)
    assert (folder / "labels.csv").read_text() == "image,bird\na.png,gull\n"
    table = TableExamples.read(tmp_path / "labels.csv")  # control
    assert len(embed(table, Strips(), folder, overwrite=True, progress=False)) == 1


def test_one_process_at_a_time(tmp_path):
    folder = tmp_path / "store"

    class Impatient(Strips):
        def __call__(self, examples):
            if not self.calls:
                with pytest.raises(UnspurError, match="already at work"):
                    embed(Pictures(), Strips(), folder, progress=False)
            return super().__call__(examples)

    embed(Pictures(), Impatient(), folder, progress=False).verify()


def test_rows_that_are_no_numbers_name_the_example(tmp_path):
    class Blind(Strips):
        def __call__(self, examples):
            made = super().__call__(examples)
            if len(self.calls) == 3:
                made[1, 5] = np.nan
            return made

    with pytest.raises(
        InputError, match=r"NaN or infinity for 1 examples, the first digit 9\..*precision='float32' and overwrite=True"
    ):
        embed(Pictures(), Blind(), tmp_path / "store", batch=4, progress=False)
    with pytest.raises(InputError, match="not finished"):
        EmbeddingStore.open(tmp_path / "store")


class Scaled(Strips):
    """Rows times a number."""

    def __init__(self, factor, digest="0123456789abcdef"):
        super().__init__(digest=digest)
        self.factor = factor

    def __call__(self, examples):
        return self.factor * super().__call__(examples)


def test_rows_that_are_all_the_same_are_refused(tmp_path):
    pictures = Pictures()
    same = Pictures(images=[pictures.images[0]] * N)
    for examples, encoder in ((pictures, Scaled(0.0)), (same, Strips())):
        with pytest.raises(InputError, match=rf"returned the same embedding for all {N} examples.*overwrite=True"):
            embed(examples, encoder, tmp_path / "store", overwrite=True, progress=False)
        with pytest.raises(InputError, match="not finished"):
            EmbeddingStore.open(tmp_path / "store")
    same.images[-1] = pictures.images[1]  # control: one other row is enough
    embed(same, Strips(), tmp_path / "store", overwrite=True, progress=False).verify()


def test_half_precision_is_a_choice_of_its_own(tmp_path):
    folder, pictures = tmp_path / "store", Pictures()
    half = embed(pictures, Strips(), folder, half=True, progress=False)
    assert half.rows.dtype == np.float16
    assert embed(pictures, Strips(), folder, half=True, progress=False).digest == half.digest
    with pytest.raises(OutputExistsError, match=r"pca None, half\) than those asked for \(.*pca None\)"):
        embed(pictures, Strips(), folder, progress=False)
    assert embed(pictures, Strips(), folder, overwrite=True, progress=False).rows.dtype == np.float32
    with pytest.raises(OutputExistsError, match="other embeddings"):
        embed(pictures, Strips(), folder, half=True, progress=False)


def test_values_that_half_precision_does_not_hold_are_refused(tmp_path):
    largest = np.abs(Strips()(Pictures().images)).max()
    embed(Pictures(), Scaled(65504 / largest), tmp_path / "fits", half=True, progress=False)
    for pca in (None, 2):
        with pytest.raises(InputError, match=r"values of up to .* Leave out half=True, and pass overwrite=True"):
            embed(
                Pictures(),
                Scaled(1e6 / largest),
                tmp_path / "store",
                half=True,
                pca=pca,
                overwrite=True,
                progress=False,
            )
        with pytest.raises(InputError, match="not finished"):
            EmbeddingStore.open(tmp_path / "store")


@pytest.mark.parametrize("pca", [None, 2])
def test_a_store_stays_if_the_rows_that_are_to_replace_it_cannot_be_written(tmp_path, pca):
    folder, options = tmp_path / "store", {"half": True, "pca": pca, "overwrite": True, "progress": False}
    old = embed(Pictures(), Strips(), folder, pca=3, progress=False)
    for embedded in (N, 0):  # given again, the command finds its rows
        encoder = Scaled(1e6, "fedcba9876543210")
        with pytest.raises(InputError, match="float16 does not hold"):
            embed(Pictures(), encoder, folder, **options)
        assert sum(encoder.calls) == embedded
        there = EmbeddingStore.open(folder)
        there.verify()
        assert there.digest == old.digest
        assert Reduction.read(folder / "reduction.safetensors").components.shape == (16, 3)
    small = embed(Pictures(), Scaled(0.5, "fedcba9876543211"), folder, **options)  # control: rows that can be
    small.verify()
    assert small.manifest["encoder"]["digest"] == "fedcba9876543211"
    names = {"labels.csv", "manifest.json", "rows.npy"} | ({"reduction.safetensors"} if pca else set())
    assert {path.name for path in folder.iterdir()} == names


def test_an_encoder_that_keeps_no_promise_is_refused(tmp_path):
    class Short(Strips):
        def __call__(self, examples):
            return super().__call__(examples)[:1]

    with pytest.raises(InputError, match=r"strips made \(1, 16\) of 4 examples; it promises 16 numbers for each"):
        embed(Pictures(), Short(), tmp_path / "store", batch=4, progress=False)


def bad_label():
    pictures = Pictures()
    pictures.labels["odd"] = pictures.labels["odd"][1:]
    return pictures


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        (lambda: Pictures(ids=["same"] * N), {}, "ids that all differ"),
        (lambda: Pictures(images=[]), {}, "it has 0"),
        (lambda: Pictures(kind="text"), {}, "strips embeds images; digits has texts"),
        (lambda: Pictures(labels={"id": np.arange(N)}), {}, "cannot be called 'id'"),
        (bad_label, {}, "odd does not have one value per row"),
        (Pictures, {"pca": 17}, "pca=17 is out of range: 40 training rows of 16 features allow at most 16"),
        (lambda: Pictures(labels={"split": np.array(["test"] * N)}), {"pca": 2}, "0 training rows"),
        (Pictures, {"batch": 0}, "1 at least"),
    ],
)
def test_what_cannot_end_well_is_not_begun(tmp_path, examples, options, message):
    encoder = Strips()
    with pytest.raises(InputError, match=message):
        embed(examples(), encoder, tmp_path / "store", progress=False, **options)
    assert encoder.calls == []
    assert not (tmp_path / "store").exists()


def test_components_are_those_of_training_rows(tmp_path):
    pictures = Pictures()
    whole = Strips()(pictures.images).astype(np.float64)
    training = pictures.labels["split"] == "train"
    store = embed(pictures, Strips(), tmp_path / "store", pca=3, progress=False)
    assert store.rows.shape == (N, 3)
    saved = load_file(tmp_path / "store" / "reduction.safetensors")
    assert_allclose(saved["mean"], whole[training].mean(axis=0))
    assert_allclose(saved["components"].T @ saved["components"], np.eye(3), atol=1e-12)
    assert_allclose(store.rows, (whole - saved["mean"]) @ saved["components"], rtol=1e-6, atol=1e-4)
    # As much variance as any three directions can have, in decreasing order and not correlated.
    covariance = np.cov(store.rows[training].T.astype(np.float64))
    largest = np.linalg.eigvalsh(np.cov(whole[training].T))[::-1][:3]
    assert_allclose(covariance, np.diag(largest), atol=1e-3 * largest[0])
    # Control: all rows have other components.
    assert np.abs(Reduction.fit(whole, 3).components - saved["components"]).max() > 0.01
    store.verify()


def test_components_of_all_rows_where_there_is_no_split(tmp_path):
    pictures = Pictures(labels={"odd": np.arange(N) % 2})
    embed(pictures, Strips(), tmp_path / "store", pca=2, progress=False)
    saved = load_file(tmp_path / "store" / "reduction.safetensors")
    assert_allclose(saved["components"], Reduction.fit(Strips()(pictures.images), 2).components, atol=1e-12)


def test_few_rows_and_many_have_the_same_components():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 8)) * np.arange(1, 9)
    wide = np.concatenate([rows, np.zeros((12, 10))], axis=1)  # more features than rows: another way to compute
    assert_allclose(Reduction.fit(wide, 3).components[:8], Reduction.fit(rows, 3).components, atol=1e-9)
    reduction = Reduction.fit(rows, 8)
    assert_allclose(reduction.back(reduction(rows)), rows, atol=1e-9)
    with pytest.raises(InputError, match="have no 9 principal components"):
        Reduction.fit(rows, 9)
