"""Files that may be anything: what is in them, or one line about why not."""

import os
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspur import _reading
from unspur._reading import load_npy, parse_json, read_json, read_text, require_kinds
from unspur._text import brief

HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"


def npy(header=HEADER, body=bytes(48), version=1):
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + body


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("mapped", [True, False])
def test_arrays_come_back_as_they_were_saved(tmp_path, version, mapped):
    path, array = tmp_path / "a.npy", np.arange(6.0).reshape(2, 3)
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert_array_equal(load_npy(path, mapped=mapped), array)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy(HEADER.replace("(2, 3)", "(1000000000000, 3)")), "cut off"),  # not 24 TB of memory
        (npy(HEADER.replace("(2, 3)", "(2, -3)")), "its shape is"),
        (npy(HEADER.replace("(2, 3)", "(True, 3)")), "its shape is"),
        (npy(HEADER.replace("(2, 3)", "(18446744073709551616, 3)")), "its shape is"),
        (npy(HEADER.replace("(2, 3)", "(2, 3")), "header is damaged"),
        (npy("-" * 9000 + "1"), "would have 9,001 bytes"),  # which would end the stack of Python's parser
        (npy("(" * 1500 + ")" * 1500), "header is damaged"),
        (npy(HEADER.replace("<f8", "|O")), "Python objects"),
        (npy(HEADER, version=9), "version 9"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "4,294,967,295 bytes"),
        (b"PK\x03\x04", "not a .npy file"),
        (b"", "empty"),
    ],
)
def test_headers_that_lie_are_told_before_anything_is_read(tmp_path, mapped, content, says):
    path = tmp_path / "a.npy"
    path.write_bytes(npy())
    assert load_npy(path, mapped=mapped).shape == (2, 3)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        load_npy(path, mapped=mapped)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, b"\xff", "{"])
def test_texts_that_are_no_json_are_a_value_error(text):
    assert parse_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError):  # noqa: PT011 — words of the parser
        parse_json(text)


def test_json_has_so_many_values_and_goes_so_deep(monkeypatch):
    deep = "[" * _reading.MAX_JSON_DEPTH + "]" * _reading.MAX_JSON_DEPTH
    assert parse_json(deep) == parse_json(deep.encode())
    for nest in (f"[{deep}]", f'{{"a": {deep}}}'):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(nest)
    monkeypatch.setattr(_reading, "MAX_JSON_VALUES", 4)
    assert parse_json("[1, 2, 3, 4]") == [1, 2, 3, 4]
    for text in ("[1, 2, 3, 4, 5]", b"[[], [], {}]"):
        with pytest.raises(ValueError, match="more than the 4 that are read"):
            parse_json(text)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes")
def test_nobody_waits_for_a_pipe_or_reads_a_device_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        for read in (read_text, read_json, load_npy):
            with pytest.raises(ValueError, match="not a plain file"):
                read(path)


def test_texts_have_a_length_and_an_encoding(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("ä".encode() * 50)
    assert read_text(path, most=100) == "ä" * 50
    with pytest.raises(ValueError, match="100 bytes, more than the 99"):
        read_text(path, most=99)
    path.write_bytes(b"a\xe4")
    with pytest.raises(ValueError, match=r"not UTF-8 text \(byte 1\)"):
        read_text(path)


KIND = {"n": int, "x": (int, float), "list": [str], "table": {...: bool}, "inner": {"a": dict}}
SOUND = {"n": 1, "x": 0.5, "list": ["a"], "table": {"p": True}, "inner": {"a": {}}, "more": None}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n": True}, "'n' of it is True"),  # which Python counts as a number
        ({"n": 1.0}, "'n' of it"),
        ({"x": None}, "'x' of it"),
        ({"list": "a"}, "'list' of it"),
        ({"list": ["a", 1]}, r"'list' of it\[1\]"),
        ({"table": {"p": True, "q": 1}}, "'q' of 'table' of it"),
        ({"inner": {}}, "'inner' of it has no 'a'"),
        ({"n": "9" * 10_000}, "…"),
        ({"n": 2**63}, "'n' of it is a number of 19 digits"),  # which no array and no float may hold
        ({"x": -(10**400)}, "'x' of it is a number of 401 digits"),
    ],
)
def test_values_of_another_kind_are_named(change, says):
    require_kinds(SOUND, KIND)
    with pytest.raises(ValueError, match=says) as error:
        require_kinds({**SOUND, **change}, KIND)
    assert len(str(error.value)) < 200


def test_what_is_repeated_in_a_message_is_one_short_line():
    assert brief("a\n  b. ") == "a b"
    assert brief("x" * 500, 10) == "x" * 9 + "…"
