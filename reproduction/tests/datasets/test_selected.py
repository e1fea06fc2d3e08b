"""What a network is trained on has exactly the strength it is said to have, and nothing in two splits."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("PIL")

from reproduction.tests.datasets import test_celeba as celeba
from reproduction.tests.datasets import test_multinli as multinli
from reproduction.tests.datasets.birds import lay_birds, lay_scenes, plain
from unspur.exceptions import GroupSizeError
from unspur_paper.datasets.celeba import CelebA
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.selected import SPLITS, birds_at, faces_at, pairs_at, unmarked_pairs
from unspur_paper.datasets.waterbirds import Composites

SIZES = {"train": 40, "validation": 10, "test": 12}
#: Labels that give other examples, or the same ones another meaning.
FACES = [("Blond_Hair", "Male"), ("Male", "Blond_Hair"), ("Smiling", "not Male")]


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    root = lay_scenes(lay_birds(tmp_path_factory.mktemp("birds"), each=8))
    return Composites.draw(root, root, 0, {"train": 30, "validation": 12, "test": 14})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Two hundred sentence pairs, every third of which is a contradiction."""
    lines = [
        {"gold_label": "neutral" if i % 3 else "contradiction", "sentence1": f"Premise {i}.", "sentence2": f"Says {i}."}
        for i in range(200)
    ]
    return MultiNLI.read(multinli.write(tmp_path_factory.mktemp("data") / "multinli_1.0", lines))


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """Eighty faces, twenty of either hair and sex."""
    folder = tmp_path_factory.mktemp("data") / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    values = np.random.default_rng(0).choice([-1, 1], size=(80, 40))
    values[:, celeba.NAMES.index("Blond_Hair")] = np.tile([-1, 1], 40)
    values[:, celeba.NAMES.index("Male")] = np.tile([-1, -1, 1, 1], 20)
    celeba.write_list(folder, values)
    for i in range(len(values)):
        plain((3 * i, 0, 0), (18, 22)).save(folder / "img_align_celeba" / f"{i + 1:06}.jpg")
    return CelebA.read(folder)


def strengths(selected, concept):
    """Examples of each split and class, and how many of them have the concept of their class."""
    found = {}
    for split in SPLITS:
        for y in (0, 1):
            rows = (selected.labels["split"] == split) & (selected.labels["y"] == y)
            found[split, y] = int(rows.sum()), int((selected.labels[concept][rows] == y).sum())
    return found


def promised(counts, p):
    return {(split, y): (n, round((0.5 if split == "test" else p) * n)) for (split, y), n in counts.items()}


@pytest.mark.parametrize("p", [0.5, 0.9, 1.0])
def test_each_bird_has_one_picture_at_the_strength_of_its_split(birds, p):
    chosen = birds_at(birds, p, seed=0)
    assert sorted(chosen.labels["bird"].tolist()) == list(range(len(birds) // 2))
    found = strengths(chosen, "background")
    assert found == promised({key: n for key, (n, _) in found.items()}, p)
    assert all(n > 1 for n, _ in found.values())
    for i in range(0, len(chosen), 7):
        whole = int(chosen.members[i])
        assert chosen.ids[i] == birds.ids[whole]
        assert_array_equal(np.asarray(chosen[i]), np.asarray(birds[whole]))
        for name in ("y", "background", "bird", "split"):
            assert chosen.labels[name][i] == birds.labels[name][whole]
        assert chosen.ids[i].endswith(("@land", "@water")[chosen.labels["background"][i]])
    assert (chosen.name, chosen.kind, chosen.settings["p"]) == ("waterbirds", "image", p)


@pytest.mark.parametrize("p", [0.5, 0.7, 0.9])
def test_pairs_are_drawn_once_at_the_strength_of_their_split(pairs, p):
    chosen = pairs_at(pairs, p, 3, SIZES)
    assert len(set(chosen.labels["pair"].tolist())) == len(chosen) == sum(SIZES.values())
    halves = {(split, y): n // 2 for split, n in SIZES.items() for y in (0, 1)}
    assert strengths(chosen, "concept") == promised(halves, p)
    for i in range(0, len(chosen), 9):
        assert chosen[i][1].endswith("!!") == chosen.labels["concept"][i]
        assert pairs.pairs_y[chosen.labels["pair"][i]] == chosen.labels["y"][i]


def test_sizes_are_the_largest_that_fit_unless_given(pairs):
    chosen = pairs_at(pairs, 0.9, 0)
    few = replace(pairs, pairs=pairs.pairs[:3], labels={name: column[:6] for name, column in pairs.labels.items()})
    train, validation, test = (int(np.sum(chosen.labels["split"] == name)) for name in SPLITS)
    assert (validation, test) == (train // 10, train // 10)
    assert train > 50
    with pytest.raises(GroupSizeError, match="too few for three splits"):
        pairs_at(few, 0.9, 0)
    with pytest.raises(GroupSizeError, match="Too few pairs"):
        pairs_at(pairs, 0.9, 0, dict.fromkeys(SPLITS, 100))


def test_unmarked_pairs_are_trained_on_and_both_versions_embedded_side_by_side(pairs):
    plain, both = unmarked_pairs(pairs, 0, SIZES)
    assert not plain.labels["concept"].any()
    assert not any(plain[i][1].endswith("!!") for i in range(len(plain)))
    assert set(plain.labels["split"]) == {"train", "validation"}
    assert_array_equal(both.labels["concept"], np.tile([0, 1], sum(SIZES.values())))
    assert_array_equal(both.labels["pair"][::2], both.labels["pair"][1::2])
    assert_array_equal(both.labels["split"][::2], both.labels["split"][1::2])
    assert len(set(both.labels["pair"].tolist())) == sum(SIZES.values())
    assert both[0][1] + "!!" == both[1][1]
    for split in ("train", "validation"):
        same = [chosen.labels["pair"][chosen.labels["split"] == split] for chosen in (plain, both)]
        assert_array_equal(same[0], same[1][::2])
        y = plain.labels["y"][plain.labels["split"] == split]
        assert y.sum() == SIZES[split] // 2
    assert plain.digest() != both.digest()


def test_faces_are_drawn_balanced_at_the_strength_of_their_split(faces):
    sizes = {"train": 20, "validation": 8, "test": 8}
    chosen = faces_at(faces, 0.9, 0, "Blond_Hair", "not Male", sizes)
    assert len(set(chosen.members.tolist())) == len(chosen) == 36
    halves = {(split, y): n // 2 for split, n in sizes.items() for y in (0, 1)}
    assert strengths(chosen, "concept") == promised(halves, 0.9)
    assert_array_equal(chosen.labels["concept"], 1 - faces.labels["Male"][chosen.members])
    assert_array_equal(chosen.labels["y"], faces.labels["Blond_Hair"][chosen.members])
    assert_array_equal(np.asarray(chosen[5]), np.asarray(faces[int(chosen.members[5])]))
    digests = {faces_at(faces, 0.9, 0, *names, sizes).digest() for names in FACES}
    assert len({chosen.digest(), *digests}) == 1 + len(FACES)
    with pytest.raises(GroupSizeError, match=r"Group \(Blond_Hair=1, not Male=1\) has 20"):
        faces_at(faces, 0.9, 0, "Blond_Hair", "not Male", {**sizes, "train": 60})


@pytest.mark.parametrize("draw", ["birds", "pairs"])
def test_draws_depend_on_seed_and_strength_alone(draw, request):
    whole = request.getfixturevalue(draw)
    at = {"birds": birds_at, "pairs": pairs_at}[draw]
    first, again = at(whole, 0.9, 0), at(whole, 0.9, 0)
    assert_array_equal(first.members, again.members)
    assert first.digest() == again.digest()
    others = [at(whole, 0.8, 0), at(whole, 0.9, 1), at(whole, 0.9 + 1e-6, 0)]
    assert len({first.digest(), *(other.digest() for other in others)}) == 4
    assert not np.array_equal(first.members, others[1].members)
    told = replace(first, settings={**first.settings, "main": "another label"})  # the same examples, meant otherwise
    assert told.digest() != first.digest()
