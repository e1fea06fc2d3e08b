"""Files are written whole or not at all, and what is damaged is refused in a sentence."""

import json
import os
import stat
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from unspur._files import FORMAT, atomic, read_artifact, write_artifact
from unspur.exceptions import ArtifactError, OutputExistsError

ARRAYS, METADATA = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2, dtype=np.int64)}, {"kind": "test"}


def test_a_file_comes_into_being_when_the_block_ends(tmp_path):
    path = tmp_path / "table.csv"
    with atomic(path) as temporary:
        temporary.write_text("a\n")
        (temporary.parent / "of a library").touch()
        assert not path.exists()
    assert path.read_text() == "a\n"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def broken(path, error):
    path.write_text("half")
    raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "table.csv"
    path.write_text("old\n")
    with pytest.raises(type(error)), atomic(path, overwrite=True) as temporary:
        broken(temporary, error)
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_replaced_unasked(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old\n")
    with pytest.raises(OutputExistsError, match="overwrite"), atomic(path):
        pass
    with pytest.raises(OutputExistsError, match="no file"), atomic(tmp_path, overwrite=True):
        pass
    with pytest.raises(FileNotFoundError, match="not there"), atomic(tmp_path / "not there" / "table.csv"):
        pass
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    with atomic(link, overwrite=True) as temporary:
        temporary.write_text("new\n")
    assert link.is_symlink()
    assert path.read_text() == "new\n"


def test_an_artifact_comes_back(tmp_path):
    path = tmp_path / "a.safetensors"
    write_artifact(path, ARRAYS, METADATA)
    arrays, metadata = read_artifact(path)
    assert metadata == {"format": FORMAT, **METADATA}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    ("arrays", "header", "said"),
    [
        (ARRAYS, None, "not one that unspur wrote"),
        (ARRAYS, "[]", "not one that unspur wrote"),
        (ARRAYS, "{", "not a readable file"),
        (ARRAYS, json.dumps({"format": FORMAT + 1}), "later version"),
        (ARRAYS, json.dumps({"format": 1}), "version 0.1.*fit again"),
        ({"a": np.array([np.nan])}, json.dumps({"format": FORMAT}), "NaN or infinity in 'a'"),
    ],
)
def test_other_files_are_refused(tmp_path, arrays, header, said):
    path = tmp_path / "a.safetensors"
    save_file(arrays, path, metadata=None if header is None else {"unspur": header})
    with pytest.raises(ArtifactError, match=said):
        read_artifact(path)
    with pytest.raises(ArtifactError, match="no file"):
        read_artifact(tmp_path / "b.safetensors")


@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=0), st.binary(max_size=20), st.booleans())
def test_a_damaged_file_is_read_or_refused_by_one_error(tmp_path_factory, place, change, cut):
    path = tmp_path_factory.mktemp("files") / "a.safetensors"
    write_artifact(path, ARRAYS, METADATA)
    whole = path.read_bytes()
    start = place % len(whole)
    path.write_bytes(whole[:start] + change + (b"" if cut else whole[start + len(change) :]))
    with suppress(ArtifactError):
        read_artifact(path)
