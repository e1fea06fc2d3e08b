"""A folder of parts holds all rows of its examples and encoder, or says what is wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from tests.optional import pyarrow  # noqa: F401 — parts are Parquet files
from unspur.embed import Encoder, Examples, embed, parts, read_embeddings
from unspur.exceptions import InputError, OutputExistsError
from unspur.io import read_table


class Lengths(Encoder):
    """Length of a text and its number of spaces; remembers what it was shown, and may stop after some calls."""

    name, kind = "lengths", "text"

    def __init__(self, weights="a", last=None):
        self.options, self.last, self.shown = {"weights": weights}, last, []

    def rows(self, prepared):
        if self.last is not None and len(self.shown) >= self.last:
            raise KeyboardInterrupt
        self.shown += prepared
        return np.array([[len(text), text.count(" "), len(self.options["weights"])] for text in prepared])


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_ROWS", 10)


def texts(n=35):
    items = ["x" * (i % 7) + " y" * (i % 3) for i in range(n)]
    labels = pd.DataFrame({"n": range(n), "odd": [None if i == 3 else ["no", "yes"][i % 2] for i in range(n)]})
    return Examples("text", items, labels)


def expected(examples):
    return Lengths().rows([examples[i] for i in range(len(examples))])


def test_rows_and_labels_come_back_in_order(tmp_path):
    examples = texts()
    assert embed(examples, Lengths(), tmp_path / "e", batch=4, workers=3) == tmp_path / "e"
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == [f"part-{k:05d}.parquet" for k in range(4)]
    Z, labels = read_embeddings(tmp_path / "e")
    assert Z.dtype == np.float32
    assert_array_equal(Z, expected(examples))
    pd.testing.assert_frame_equal(labels, examples.labels, check_dtype=False)


def test_other_commands_read_the_same(tmp_path):
    examples = texts()
    embed(examples, Lengths(), tmp_path / "e")
    table = read_table(tmp_path / "e")
    assert_array_equal(table.X, expected(examples))
    assert table.columns["n"].tolist() == list(range(35))
    assert table.columns["odd"].isna().sum() == 1


class TestResuming:
    def test_a_stopped_run_goes_on_behind_the_last_part(self, tmp_path):
        examples = texts()
        with pytest.raises(KeyboardInterrupt):
            embed(examples, Lengths(last=24), tmp_path, batch=4)
        with pytest.raises(InputError, match="not complete"):
            read_embeddings(tmp_path)
        with pytest.raises(InputError, match="20 of 35 rows"):
            read_table(tmp_path)
        again = Lengths()
        embed(examples, again, tmp_path, batch=4)
        assert again.shown == [examples[i] for i in range(20, 35)]
        assert_array_equal(read_embeddings(tmp_path)[0], expected(examples))

    def test_what_is_complete_is_left_alone(self, tmp_path):
        embed(texts(), Lengths(), tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        again = Lengths()
        embed(texts(), again, tmp_path)
        assert again.shown == []
        assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before

    def test_a_missing_part_is_made_again(self, tmp_path):
        embed(texts(), Lengths(), tmp_path)
        (tmp_path / "part-00001.parquet").unlink()
        embed(texts(), Lengths(), tmp_path)
        assert_array_equal(read_embeddings(tmp_path)[0], expected(texts()))


def changed(what):
    examples = texts()
    if what == "a text":
        examples.items[12] = "another"
    elif what == "a label":
        examples.labels.loc[12, "odd"] = "maybe"
    elif what == "more rows":
        examples = texts(45)
    elif what == "fewer rows":
        examples = texts(15)
    return examples


class TestMismatch:
    @pytest.mark.parametrize("what", ["a text", "a label", "more rows", "fewer rows", "the encoder"])
    def test_other_parts_are_refused_or_replaced(self, what, tmp_path):
        embed(texts(), Lengths(), tmp_path)
        examples, encoder = changed(what), Lengths("bb" if what == "the encoder" else "a")
        with pytest.raises(OutputExistsError, match="weights a" if what == "the encoder" else "other examples"):
            embed(examples, encoder, tmp_path)
        assert_array_equal(read_embeddings(tmp_path)[0], expected(texts()))  # as it was
        embed(examples, encoder, tmp_path, overwrite=True)
        Z, labels = read_embeddings(tmp_path)
        assert_array_equal(Z[:, :2], expected(examples)[:, :2])
        assert (Z[:, 2] == len(encoder.options["weights"])).all()
        pd.testing.assert_frame_equal(labels, examples.labels, check_dtype=False)
        if what in ("a text", "a label"):
            assert len(encoder.shown) == 10  # one part

    def test_a_folder_with_other_files_is_left_alone(self, tmp_path):
        (tmp_path / "mine.txt").write_text("x")
        with pytest.raises(OutputExistsError, match=r"mine\.txt"):
            embed(texts(), Lengths(), tmp_path, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    def test_a_damaged_part_is_named(self, tmp_path):
        embed(texts(), Lengths(), tmp_path)
        (tmp_path / "part-00001.parquet").write_bytes(b"PAR1")
        for use in (lambda: read_embeddings(tmp_path), lambda: embed(texts(), Lengths(), tmp_path)):
            with pytest.raises(InputError, match="part-00001"):
                use()


class TestRefusals:
    def test_pictures_for_an_encoder_of_texts(self, tmp_path):
        with pytest.raises(InputError, match="embeds texts"):
            embed(replace(texts(), kind="image"), Lengths(), tmp_path)

    def test_a_label_of_the_name_of_the_rows(self, tmp_path):
        examples = texts()
        examples.labels["embedding"] = 0
        with pytest.raises(InputError, match="embedding"):
            embed(examples, Lengths(), tmp_path)

    def test_rows_that_are_not_finite(self, tmp_path):
        class Broken(Lengths):
            def rows(self, prepared):
                return np.where(super().rows(prepared) == 0, np.nan, 1.0)

        with pytest.raises(InputError, match="row 1"):
            embed(texts(), Broken(), tmp_path)

    def test_a_folder_without_parts(self, tmp_path):
        with pytest.raises(InputError, match="no embeddings"):
            read_embeddings(tmp_path)

    def test_as_many_labels_as_examples(self):
        with pytest.raises(InputError, match="2 examples"):
            Examples("text", ["a", "b"], pd.DataFrame({"y": [1]}))
