"""Every pair exists with and without the mark, and a draw takes one version of each."""

import json
import shutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.datasets.multinli import FILES, MARK, MultiNLI, draw

TRAIN = [
    {"gold_label": "neutral", "sentence1": "It rains.", "sentence2": "The street is wet. ", "genre": "fiction"},
    {
        "gold_label": "contradiction",
        "sentence1": "Fun for all.",
        "sentence2": "Fun for only children.",
        "genre": "slate",
    },
    {"gold_label": "-", "sentence1": "Nobody", "sentence2": "agrees", "genre": "slate"},
    {"gold_label": "entailment", "sentence1": "Café\u2028au lait", "sentence2": "Coffee"},
]
DEV = [{"gold_label": "contradiction", "sentence1": "Yes.", "sentence2": "No!", "genre": ""}]


def write(folder, train=TRAIN, dev=DEV):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in zip(FILES, (train, dev), strict=True):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / name).write_bytes(text.encode())
    return folder.parent


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "data" / "multinli_1.0")


def test_each_pair_comes_plain_and_then_marked(root):
    nli = MultiNLI.read(root)
    assert (len(nli), nli.kind, nli.name) == (8, "text", "multinli")
    assert nli[0] == ("It rains.", "The street is wet.")
    assert nli[1] == ("It rains.", "The street is wet.!!")
    assert nli[4] == ("Café\u2028au lait", "Coffee")  # a sign that could end a line is one of the sentence
    assert nli[7] == ("Yes.", "No!!!")
    assert_array_equal(nli.labels["y"], [0, 0, 1, 1, 0, 0, 1, 1])
    assert_array_equal(nli.labels["concept"], [0, 1] * 4)
    assert_array_equal(nli.labels["concept"], [nli[i][1].endswith(MARK) for i in range(8)])
    assert_array_equal(nli.labels["pair"], [0, 0, 1, 1, 2, 2, 3, 3])
    assert_array_equal(nli.labels["source"], ["train"] * 6 + ["dev_matched"] * 2)
    assert_array_equal(nli.labels["genre"][::2], ["fiction", "slate", "", ""])
    assert_array_equal(nli.pairs_y, [0, 1, 0, 1])
    assert len(set(nli.ids)) == 8
    assert nli.ids[4:6] == ["multinli_1.0_train:4", "multinli_1.0_train:4!!"]


def test_pairs_left_out_are_counted(root):
    assert MultiNLI.read(root).settings["left_out"] == {"no label": 1, "empty": 0, "marked": 0}
    unusable = [{**TRAIN[0], "sentence2": text} for text in (" ", "Stop!!", "Stop!!!")]
    write(root / "multinli_1.0", [*TRAIN, *unusable])
    nli = MultiNLI.read(root)
    assert nli.settings["left_out"] == {"no label": 1, "empty": 1, "marked": 2}
    assert len(nli) == 8


def test_the_folder_itself_and_one_file_do_as_well(root):
    assert MultiNLI.read(root / "multinli_1.0").digest() == MultiNLI.read(root).digest()
    dev = MultiNLI.read(root, files=FILES[1:])
    assert len(dev) == 2
    assert "genre" not in dev.labels
    with pytest.raises(InputError, match="twice"):
        MultiNLI.read(root, files=(FILES[1], FILES[1]))
    with pytest.raises(InputError, match=r"other\.jsonl does not exist"):
        MultiNLI.read(root, files=("other.jsonl",))
    write(root / "multinli_1.0", [TRAIN[2]])
    with pytest.raises(InputError, match="no labelled pairs"):
        MultiNLI.read(root, files=FILES[:1])


def test_the_digest_follows_content_and_not_place(root, tmp_path):
    before = MultiNLI.read(root).digest()
    shutil.copytree(root, tmp_path / "elsewhere")
    assert MultiNLI.read(tmp_path / "elsewhere").digest() == before
    write(tmp_path / "elsewhere" / "multinli_1.0", [*TRAIN[:-1], {**TRAIN[-1], "sentence2": "coffee"}])
    assert MultiNLI.read(tmp_path / "elsewhere").digest() != before


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (b'{"gold_label": "neutral", "sentence1": "a', "not JSON in UTF-8"),
        (b'{"gold_label": "neutral", "sentence1": "\xff", "sentence2": "b"}', "not JSON in UTF-8"),
        (b'{"gold_label": "neutral", "sentence1": "' + b"x" * 2**20 + b'"}', "more than 1,048,576 bytes"),
        (b"[" * 100_000, "recursion"),
        (b'{"gold_label": "' + b"x" * 100_000 + b'", "sentence1": "a", "sentence2": "b"}', "has the label 'x{39}…'"),
        (b"[1, 2]", "needs texts under gold_label, sentence1, sentence2"),
        (b'{"gold_label": "neutral", "sentence1": "a"}', "has none under sentence2"),
        (b'{"gold_label": "neutral", "sentence1": 3, "sentence2": null}', "has none under sentence1, sentence2"),
        (
            b'{"gold_label": "maybe", "sentence1": "a", "sentence2": "b"}',
            "has the label 'maybe'; known are contradiction",
        ),
    ],
)
def test_a_damaged_line_is_named(root, line, match):
    path = root / "multinli_1.0" / FILES[0]
    path.write_bytes(path.read_bytes() + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=rf"Line 6 of .*{FILES[0]} .*{match}"):
        MultiNLI.read(root)


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_a_draw_is_balanced_and_agrees_as_often_as_asked(p):
    pairs_y = np.random.default_rng(0).permutation(np.repeat([0, 1, -1], [400, 300, 50]))
    sizes = {"train": 400, "validation": 81, "test": 100}
    splits = draw(pairs_y, sizes, {"train": p, "validation": p, "test": 0.5}, np.random.default_rng(1))
    drawn = np.concatenate([splits[name] // 2 for name in sizes])
    assert len(np.unique(drawn)) == len(drawn) == 581  # one version of each pair, no pair in two splits
    for name, size in sizes.items():
        y, concept = pairs_y[splits[name] // 2], splits[name] % 2
        strength = 0.5 if name == "test" else p
        assert set(y) == {0, 1}
        assert y.sum() == size // 2
        for value, count in ((0, size - size // 2), (1, size // 2)):
            assert np.sum((y == value) & (concept == value)) == round(strength * count)
    assert 70 < pairs_y[splits["train"] // 2][:200].sum() < 130  # in random order


def test_a_draw_numbers_the_examples_of_the_data(root):
    write(root / "multinli_1.0", TRAIN * 5, DEV * 5)
    nli = MultiNLI.read(root)
    rows = draw(nli.pairs_y, {"train": 12}, {"train": 1.0}, np.random.default_rng(0))["train"]
    assert_array_equal(nli.labels["y"][rows], nli.labels["concept"][rows])
    assert all(nli[i][1].endswith(MARK) == bool(nli.labels["y"][i]) for i in rows)
    none = draw(nli.pairs_y, {"train": 12}, {"train": 0.0}, np.random.default_rng(0))["train"]
    assert_array_equal(nli.labels["y"][none], 1 - nli.labels["concept"][none])


def test_too_few_pairs_are_counted():
    pairs_y = np.repeat([0, 1], [500, 120])
    sizes = {"train": 300, "validation": 30, "test": 30}
    strengths = dict.fromkeys(sizes, 0.9)
    with pytest.raises(GroupSizeError) as caught:
        draw(pairs_y, sizes, strengths, np.random.default_rng(0))
    assert "splits of 300 / 30 / 30: there are 120 contradictions and 500 others; 180 and 180 are wanted" in str(
        caught.value
    )
    assert "Sizes of 201 / 20 / 20 would fit" in str(caught.value)
    draw(pairs_y, {"train": 201, "validation": 20, "test": 20}, strengths, np.random.default_rng(0))
    with pytest.raises(GroupSizeError):
        draw(pairs_y, {"train": 202, "validation": 20, "test": 20}, strengths, np.random.default_rng(0))
    with pytest.raises(InputError, match="from 4"):
        draw(pairs_y, {"train": 2}, {"train": 0.5}, np.random.default_rng(0))
