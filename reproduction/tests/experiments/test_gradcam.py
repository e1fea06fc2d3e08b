"""Where last layers look: shares of maps inside masks, and the page that shows them."""

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose

pytest.importorskip("PIL")

from PIL import Image

from reproduction.tests.datasets.birds import lay_birds, lay_scenes
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.cli import main
from unspur_paper.datasets.selected import birds_at
from unspur_paper.datasets.waterbirds import Composites
from unspur_paper.embedding import store as layout
from unspur_paper.embedding.store import Reduction
from unspur_paper.experiments.cells import data_digest
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.fitting import LinearHead, fit_removal
from unspur_paper.experiments.gradcam import Layer, groups_of, inside, looked_at, open_maps, shares
from unspur_paper.experiments.gradcam_pictures import gradcam_pictures
from unspur_paper.experiments.metrics import INSIDE_GROUPS, METRICS
from unspur_paper.experiments.reproduce import find_experiments, reproduce
from unspur_paper.experiments.stores import open_embedded, tuned_folder
from unspur_paper.experiments.synthetic_maps import synthetic_maps
from unspur_paper.networks.maps import Maps, opacity, write_maps
from unspur_paper.report.gradcam_page import MAP_COLOURS, outline_mask, overlay_map, write_maps_page

NOWHERE = Path("not-there")


def finetuned():
    return next(found for found in find_experiments(["waterbirds-finetuned"]))


def only(experiment, *names):
    return replace(experiment, methods=tuple(m for m in experiment.methods if m.name in names))


def constructed():
    """Eight pictures of 2 × 2 cells: feature 0 is on the mask, feature 1 beside it, feature 2 everywhere."""
    coverage = np.zeros((8, 2, 2), dtype=np.float32)
    coverage[:, 0, 0] = 1.0
    coverage[4:, 0, 1] = 0.5
    values = np.zeros((8, 3, 2, 2), dtype=np.float16)
    values[:, 0, 0, 0] = np.linspace(-1, 1, 8)
    values[:, 1, 1, :] = np.linspace(1, -2, 8)[:, None]
    values[:, 2] = 0.25
    return Maps(tuple("abcdefgh"), values, coverage, {"digest": "none"})


GROUP = np.array([0, 1, 2, 3, 0, 1, 2, 2])


class TestShares:
    def test_a_layer_that_looks_at_the_mask_alone_and_one_that_looks_elsewhere(self):
        assert inside(np.array([2.0, 0, 0]), constructed(), GROUP)["inside"] == [1.0] * 4
        assert inside(np.array([0, -1.0, 0]), constructed(), GROUP)["inside"] == [0.0] * 4

    def test_a_map_that_is_the_same_everywhere_has_the_area(self):
        found = inside(np.array([0, 0, 3.0]), constructed(), GROUP)
        assert_allclose(found["inside"], found["inside_area"])
        assert_allclose(found["inside_area"], [0.3125, 0.3125, (0.25 + 0.375 + 0.375) / 3, 0.25])

    def test_evidence_for_and_against_does_not_cancel(self):
        signed = np.array([[[3.0, -1.0], [0.0, 0.0]]])
        assert shares(signed, np.array([[[1.0, 0.0], [0.0, 0.0]]])) == [0.75]
        assert shares(-signed, np.array([[[1.0, 0.0], [0.0, 0.0]]])) == [0.75]

    def test_what_has_no_share_is_left_out(self):
        nothing = inside(np.zeros(3), constructed(), GROUP)
        assert nothing["inside"] == [None] * 4
        assert None not in nothing["inside_area"]
        some = inside(np.ones(3), constructed(), np.where(GROUP == 1, -1, GROUP))
        assert [share is None for share in some["inside"]] == [False, True, False, False]
        assert json.loads(json.dumps(some)) == some


class TestLayer:
    @pytest.mark.parametrize("remover", [{"name": "none"}, {"name": "LEACE"}, {"name": "JSE", "output": "onto_main"}])
    @pytest.mark.parametrize("pca", [0, 12])
    def test_it_is_components_removal_and_last_layer_in_one(self, remover, pca):
        data = finetuned().smoke().cells("exact")[0].spec["dataset"]
        drawn = draw({**data, "pca": pca}, 0, NOWHERE)
        assert (drawn.reduction is None) == (pca == 0)
        rng = np.random.default_rng(0)
        removal = fit_removal(remover, drawn.train, drawn.validation, rng)
        last = LinearHead(rng.standard_normal(drawn.train.Z.shape[1]), 0.3)
        rows = open_embedded(data, 0, NOWHERE)
        expected = removal(drawn.test).Z @ last.weights + last.bias
        test = np.asarray(rows.rows[rows.labels["split"] == "test"], dtype=np.float64)
        assert_allclose(Layer.of(last, removal, drawn.reduction)(test), expected, atol=1e-4)


class TestMadeUp:
    """Made-up birds carry the background beside them, so what is measured is known."""

    data = property(lambda _: finetuned().smoke().cells("exact")[0].spec["dataset"])

    def test_maps_add_up_to_rows(self):
        maps, rows = synthetic_maps(self.data, 0), open_embedded(self.data, 0, NOWHERE)
        test = rows.labels["split"] == "test"
        assert_allclose(maps.values.astype(float).sum(axis=(2, 3)), rows.rows[test], atol=0.01)
        counts = np.bincount(groups_of(maps, rows), minlength=4)
        assert counts.sum() == test.sum()
        assert counts.min() > 0

    def test_a_layer_on_the_birds_is_told_from_one_on_the_background(self):
        bird, background = Layer(np.eye(40)[0], 0.0), Layer(np.eye(40)[1], 0.0)
        assert looked_at(bird, self.data, 0, NOWHERE)["inside"] == pytest.approx([1.0] * 4)
        assert looked_at(background, self.data, 0, NOWHERE)["inside"] == pytest.approx([0.0] * 4)

    def test_without_pictures_there_is_nothing_to_look_at(self):
        (experiment,) = find_experiments(["multinli-ood"])
        data = experiment.smoke().cells("exact")[0].spec["dataset"]
        assert open_maps(data, 0, NOWHERE) is None
        assert looked_at(Layer(np.ones(40), 0.0), data, 0, NOWHERE) == {}

    def test_jse_moves_the_map_to_the_bird_and_every_method_has_its_own(self):
        small = finetuned().smoke()
        looked = gradcam_pictures(small, NOWHERE, each=20)
        assert set(looked.methods) == {method.name for method in small.methods}
        assert np.bincount(looked.group).tolist() == [20] * 4
        mean = {name: seen.inside.mean() for name, seen in looked.methods.items()}
        assert mean["JSE"] > mean["ERM"] + 0.05
        # What LEACE removes is a mixture of both labels, so its layer reads the background against the bird.
        assert mean["JSE"] > mean["LEACE"] + 0.05
        assert mean["ERM"] > looked.area.mean()
        right = {name: seen.right.mean() for name, seen in looked.methods.items()}
        assert right["JSE"] > 0.8
        assert all(
            (seen.predicted == looked.group // 2).tolist() == seen.right.tolist() for seen in looked.methods.values()
        )

    def test_pictures_of_a_page_do_not_depend_on_the_methods(self):
        few, more = (
            gradcam_pictures(only(finetuned().smoke(), *names), NOWHERE) for names in (["ERM"], ["ERM", "SAL"])
        )
        assert few.ids == more.ids
        assert_allclose(few.methods["ERM"].maps, more.methods["ERM"].maps)


class TestCells:
    def test_shares_are_part_of_a_result_and_of_the_tables(self, tmp_path):
        (small,) = (experiment.smoke() for experiment in find_experiments(["waterbirds-gradcam"]))
        small = only(small, "JSE", "ERM")
        summary = reproduce(small, "exact", tmp_path, embeddings=NOWHERE, progress=False).summary
        lines = {(line.method, line.metric): line.mean for line in summary.lines}
        assert lines["JSE", "inside"] > lines["ERM", "inside"] + 5
        groups = [lines["JSE", metric] for metric in INSIDE_GROUPS]
        assert lines["JSE", "inside"] == pytest.approx(np.mean(groups))
        assert lines["JSE", "area"] == pytest.approx(100 * 4 / 25)

    def test_cells_are_those_of_the_fine_tuned_network(self):
        (maps,) = find_experiments(["waterbirds-gradcam"])
        others = [cell.spec for cell in finetuned().cells("exact")]
        assert all(cell.spec in others for cell in maps.cells("exact"))

    @pytest.mark.parametrize("metric", ["inside", *INSIDE_GROUPS, "area"])
    def test_where_nothing_was_measured_there_is_no_number(self, metric):
        for result in ({}, {"inside": [None] * 4, "inside_area": [None] * 4}):
            assert np.isnan(METRICS[metric](result))
        measured = {"inside": [0.1, 0.2, 0.3, 0.4], "inside_area": [0.25] * 4}
        expected = {"inside": 25.0, "area": 25.0, **dict(zip(INSIDE_GROUPS, (10.0, 20.0, 30.0, 40.0), strict=True))}
        assert METRICS[metric](measured) == pytest.approx(expected[metric])

    def test_maps_written_later_are_noticed(self, birds, tmp_path):
        from shutil import copytree

        spec = tiny_experiment().cells("exact")[0].spec
        without = copytree(birds[1], tmp_path / "embeddings")
        (tuned_folder(without, "waterbirds", "tiny", 0, p=0.9) / "maps.json").unlink()
        assert data_digest(spec, without) != data_digest(spec, birds[1])


class TestDrawing:
    def test_colours_say_which_class_and_how_much(self):
        grey = Image.new("RGB", (40, 40), (128, 128, 128))
        over = np.asarray(overlay_map(grey, np.array([[-1.0, 1.0], [0.0, 5.0]]), 1.0)).astype(int)
        towards = [np.abs(over - np.array(colour)).sum(axis=2) for colour in MAP_COLOURS]
        assert towards[0][0, 0] < towards[1][0, 0]
        assert towards[1][0, -1] < towards[0][0, -1]
        assert over[-1, 0].tolist() == [128, 128, 128]
        assert over[0, -1].tolist() == over[-1, -1].tolist()  # nothing is beyond the full colour

    def test_the_outline_is_where_the_mask_ends(self):
        mask = np.zeros((20, 20))
        mask[5:15, 5:15] = 1.0
        drawn = np.asarray(outline_mask(Image.new("RGB", (20, 20), (128, 128, 128)), mask))
        assert np.all(drawn[5, 5:15] == 255)
        assert np.all(drawn[4, 5:15] == 0)
        assert np.all(drawn[7:13, 7:13] == 128)
        assert np.all(drawn[:3] == 128)


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """Tiny birds, and a store of a tiny network with maps of their test pictures."""
    pytest.importorskip("torch")
    from reproduction.tests.networks.tiny import TinyConv

    root, embeddings = tmp_path_factory.mktemp("birds"), tmp_path_factory.mktemp("embeddings")
    lay_scenes(lay_birds(root, each=20))
    composites = Composites.draw(root, root, 0)
    chosen, tiny = birds_at(composites, 0.9, 0), TinyConv()
    features = tiny.rows([chosen[i] for i in range(len(chosen))])
    reduction = Reduction.fit(features[chosen.labels["split"] == "train"], 5)
    folder = tuned_folder(embeddings, "waterbirds", "tiny", 0, p=0.9)
    folder.mkdir(parents=True)
    rows = reduction(features).astype(np.float32)
    np.save(folder / layout.ROWS, rows)
    layout.write_labels(folder / layout.LABELS, chosen.ids, chosen.labels)
    manifest = {
        "format": layout.FORMAT,
        "rows": len(rows),
        "width": 5,
        "digest": layout.content_digest(rows, chosen.ids, chosen.labels),
    }
    (folder / layout.MANIFEST).write_text(json.dumps(manifest))
    write_maps(
        chosen,
        np.flatnonzero(chosen.labels["split"] == "test"),
        tiny,
        reduction,
        lambda i: opacity(composites.mask(int(chosen.members[i])), tiny.preparation),
        folder,
        progress=False,
    )
    return root, embeddings


def tiny_experiment():
    experiment = only(finetuned(), "ERM", "LEACE", "SAL")
    return replace(experiment, dataset={**experiment.dataset, "encoder": "tiny", "pca": 5, "p": [0.9]})


class TestPage:
    def make(self, birds, output, monkeypatch, experiment=None, *more):
        root, embeddings = birds
        command = importlib.import_module("unspur_paper.cli.pictures")  # the package has the function by that name
        monkeypatch.setattr(command, "find_experiments", lambda _: [experiment or tiny_experiment()])
        words = [
            "pictures",
            "waterbirds-gradcam",
            "--root",
            root,
            "--embeddings",
            embeddings,
            "--output",
            output,
            *more,
        ]
        return CliRunner().invoke(main, [str(word) for word in words])

    def test_it_has_every_method_for_every_picture(self, birds, tmp_path, monkeypatch):
        odd = tiny_experiment()
        odd = replace(odd, methods=(*odd.methods[:2], replace(odd.methods[2], name="<i>SAL</i> & more")))
        done = self.make(birds, tmp_path / "page.html", monkeypatch, odd, "--each", "3")
        assert done.exit_code == 0, done.output
        page = (tmp_path / "page.html").read_text()
        assert "<i>SAL" not in page
        assert "&lt;i&gt;SAL&lt;/i&gt; &amp; more" in page
        assert page.count("<img") == 12 * 4
        assert page.count("% inside") == 12 * 3
        assert page.count("right: ") + page.count("wrong: ") == 12 * 3
        assert page.count("bird: ") == 12
        assert all(
            f"<h2>{bird}s on {place}</h2>" in page for bird in ("landbird", "waterbird") for place in ("land", "water")
        )
        assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing else is needed

    def test_species_are_escaped(self, birds, tmp_path):
        looked = gradcam_pictures(tiny_experiment(), birds[1], each=1)
        looked = replace(looked, ids=tuple(f"001.<b>{i}/x" for i in range(len(looked.ids))), where="<script>")
        shown = Image.new("RGB", (28, 28)), np.zeros((28, 28))
        page = write_maps_page(looked, lambda _: shown, tmp_path / "page.html", "a < b").read_text()
        assert "<b>" not in page
        assert "<script>" not in page
        assert "a &lt; b" in page

    def test_birds_that_are_not_there_are_named(self, birds, tmp_path, monkeypatch):
        other = tmp_path / "other"
        lay_scenes(lay_birds(other, each=6))
        done = self.make((other, birds[1]), tmp_path / "page.html", monkeypatch)
        assert done.exit_code != 0
        assert "was fine-tuned on" in done.output

    def test_a_page_that_is_there_is_kept(self, birds, tmp_path, monkeypatch):
        (tmp_path / "page.html").write_text("mine")
        assert self.make(birds, tmp_path / "page.html", monkeypatch).exit_code != 0
        assert (tmp_path / "page.html").read_text() == "mine"

    def test_maps_of_other_pictures_and_no_maps_are_errors(self, birds, tmp_path):
        from shutil import copytree

        embeddings = copytree(birds[1], tmp_path / "embeddings")
        folder = tuned_folder(embeddings, "waterbirds", "tiny", 0, p=0.9)
        described = json.loads((folder / "maps.json").read_text())
        described["ids"][0] = "another"
        (folder / "maps.json").write_text(json.dumps(described))
        with pytest.raises(ArtifactError, match="not of the same pictures"):
            gradcam_pictures(tiny_experiment(), embeddings)
        (folder / "maps.json").unlink()
        with pytest.raises(InputError, match="--maps N"):
            gradcam_pictures(tiny_experiment(), embeddings)
