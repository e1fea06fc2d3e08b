"""Cells on networks that were trained for a run: which store is read, what is drawn from it, what a probe finds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal

from reproduction.tests.experiments.test_embedded import cell, experiment, smoke, write_store
from unspur import RobustClassifier
from unspur.exceptions import InputError
from unspur_paper.cli import main
from unspur_paper.embedding import store as layout
from unspur_paper.experiments.cells import data_digest, run_cell
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.embedded import fitted_cell
from unspur_paper.experiments.errors import DataMissingError
from unspur_paper.experiments.metrics import METRICS
from unspur_paper.experiments.presets import hyperparameters
from unspur_paper.experiments.published import published_values
from unspur_paper.experiments.records import canonical, unpack
from unspur_paper.experiments.reproduce import reproduce
from unspur_paper.experiments.spec_file import read_experiment, with_settings
from unspur_paper.experiments.stores import found_folder, kept_epoch, open_embedded, store_folder, tuned_folder
from unspur_paper.experiments.synthetic import synthetic_rows

NOWHERE = Path("not-there")
RESULTS = Path(__file__).parents[2] / "results"
SPECS = ("waterbirds-finetuned", "celeba-finetuned", "multinli-ood", "multinli-reweighting", "multinli-clean-encoder")
WIDTH = 40
HISTORY = [
    {
        "epoch": 1.0,
        "train_loss": 0.5,
        "validation_loss": 0.4,
        "validation_accuracy": 0.8,
        "adversary_accuracy": 0.7,
        "adversary_balanced_accuracy": 0.65,
    },
    {
        "epoch": 2.0,
        "train_loss": 0.3,
        "validation_loss": 0.5,
        "validation_accuracy": 0.7,
        "adversary_accuracy": 0.6,
        "adversary_balanced_accuracy": 0.6,
    },
]


def data_of(name, method="JSE", **settings):
    return cell(name, method, encoder="small", **{"pca": WIDTH, **settings})["dataset"]


def tuned_store(embeddings, data, run=0, **training):
    """Made-up rows as `unspur-paper finetune` would leave them: float16, with a history."""
    source = data["name"].removesuffix("-finetuned")
    folder = tuned_folder(
        embeddings,
        source,
        data["encoder"],
        run,
        p=data["p"],
        adversary=data["adversary"],
        unmarked=data.get("trained_on") == "unmarked",
    )
    rows, ids, labels = synthetic_rows(data, run)
    write_store(folder, rows.astype(np.float16), ids, labels)
    path = folder / layout.MANIFEST
    manifest = {**json.loads(path.read_text(encoding="utf-8")), "encoder": {"name": "small", **training}}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def strength(rows):
    """Share of each class whose concept is its own."""
    return [float(np.mean(rows.concept[rows.y == y] == y)) for y in (0, 1)]


class TestFolders:
    def test_a_store_is_named_by_strength_adversary_and_seed(self):
        def folder(source, encoder="small", **how):
            return tuned_folder(Path("e"), source, encoder, 3, **how).as_posix()

        assert folder("waterbirds", p=0.9) == "e/waterbirds-finetuned/small/p-0.9/seed-3"
        assert folder("waterbirds", p=0.5, adversary=1.0) == "e/waterbirds-finetuned/small/p-0.5-adversary-1/seed-3"
        assert folder("multinli", "a/b", p=0.9, adversary=0.1).endswith("/a--b/p-0.9-adversary-0.1/seed-3")
        assert folder("multinli", p=0.9, unmarked=True) == "e/multinli-finetuned/small/unmarked/seed-3"
        with pytest.raises(InputError, match="no concept to hide from an adversary"):
            folder("multinli", p=0.9, unmarked=True, adversary=1.0)

    def test_stores_of_frozen_networks_stay_where_they_were(self):
        assert store_folder(Path("e"), "waterbirds", "a/b", 2).as_posix() == "e/waterbirds/a--b/seed-2"
        assert store_folder(Path("e"), "celeba", "small", 2).as_posix() == "e/celeba/small"

    @pytest.mark.parametrize(
        ("name", "method", "command"),
        [
            ("waterbirds-finetuned", "JSE", "waterbirds --root DATA --encoder small --p 0.9 --seed 0"),
            ("waterbirds-finetuned", "ADV", "waterbirds --root DATA --encoder small --p 0.9 --seed 0 --adversary 1"),
            ("multinli-ood", "ADV λ=0.1", "multinli --root DATA --encoder small --p 0.9 --seed 0 --adversary 0.1"),
            ("multinli-clean-encoder", "ERM", "multinli --root DATA --encoder small --seed 0 --unmarked"),
        ],
    )
    def test_a_missing_store_says_how_to_make_it(self, tmp_path, name, method, command):
        with pytest.raises(InputError) as caught:
            data_digest(cell(name, method, encoder="small"), tmp_path)
        assert str(caught.value).endswith(f"Make them with: unspur-paper finetune {command} --embeddings {tmp_path}")


class TestDraws:
    def test_rows_of_the_store_are_the_draw(self, tmp_path):
        data = data_of("waterbirds-finetuned")
        tuned_store(tmp_path, data)
        drawn, store = draw(data, 0, tmp_path), open_embedded(data, 0, tmp_path)
        assert store.rows.dtype == np.float16
        for rows, name in ((drawn.train, "train"), (drawn.validation, "validation"), (drawn.test, "test")):
            here = store.labels["split"] == name
            assert rows.Z.dtype == np.float32
            assert np.array_equal(rows.Z, store.rows[here].astype(np.float32))
            assert np.array_equal(rows.y, store.labels["y"][here])
            assert np.array_equal(rows.concept, store.labels["background"][here])
        assert drawn.reduction is None

    def test_rows_wider_than_asked_for_are_reduced_and_narrower_ones_refused(self, tmp_path):
        data = data_of("waterbirds-finetuned")
        tuned_store(tmp_path, data)
        assert draw({**data, "pca": 7}, 0, tmp_path).train.Z.shape[1] == 7
        assert draw({**data, "pca": 0}, 0, tmp_path).reduction is None
        with pytest.raises(InputError, match=r"have 40 features; pca is 41\. Set pca to 40 or less, or to 0"):
            draw({**data, "pca": 41}, 0, tmp_path)

    def test_with_an_adversary_another_store_is_read_with_the_same_labels(self, tmp_path):
        plain, adversary = (data_of("waterbirds-finetuned", method) for method in ("ERM", "ADV"))
        for data in (plain, adversary):
            tuned_store(tmp_path, data)
        digests = [data_digest({"dataset": data, "run": 0}, tmp_path) for data in (plain, adversary)]
        assert digests[0] != digests[1]
        one, other = (draw(data, 0, tmp_path).test for data in (plain, adversary))
        assert np.array_equal(one.concept, other.concept)
        assert np.array_equal(one.y, other.y)
        assert not np.array_equal(one.Z, other.Z)

    def test_of_a_network_that_saw_no_marks_any_strength_is_drawn(self, tmp_path):
        data = data_of("multinli-clean-encoder", p=[0.8])
        folder = tuned_store(tmp_path, data)
        for p in (0.8, 0.6):
            drawn = draw({**data, "p": p}, 0, tmp_path)  # both from the one store
            for rows, wanted in ((drawn.train, p), (drawn.validation, p), (drawn.test, 0.5)):
                smallest = min(np.bincount(rows.y))
                np.testing.assert_allclose(strength(rows), wanted, atol=0.51 / smallest)
        assert folder.parent.name == "unmarked"
        again = draw({**data, "p": 0.8}, 0, tmp_path)
        assert not np.array_equal(again.test.concept, drawn.test.concept)  # strengths have draws of their own

    def test_of_a_network_that_saw_no_marks_every_pair_is_drawn_once(self, tmp_path):
        data = data_of("multinli-clean-encoder")
        tuned_store(tmp_path, data)
        drawn, store = draw(data, 0, tmp_path), open_embedded(data, 0, tmp_path)
        pair_of = {
            row.astype(np.float32).tobytes(): pair for row, pair in zip(store.rows, store.labels["pair"], strict=True)
        }
        seen = [pair_of[z.tobytes()] for rows in (drawn.train, drawn.validation, drawn.test) for z in rows.Z]
        assert len(seen) == len(set(seen)) == len(store.ids) // 2

    def test_a_store_that_is_something_else_is_refused(self, tmp_path):
        data = data_of("multinli-clean-encoder")
        rows, ids, labels = synthetic_rows({**data, "trained_on": "drawn"}, 0)
        write_store(tuned_folder(tmp_path, "multinli", "small", 0, p=0.9, unmarked=True), rows, ids, labels)
        with pytest.raises(InputError, match="has every pair twice"):
            draw(data, 0, tmp_path)
        drawn = {**data, "trained_on": "drawn"}
        for p, change, words in (
            (0.6, {"concept": None}, "has none called concept"),
            (0.7, {"split": np.repeat("train", len(ids))}, "no rows in the split 'validation'"),
        ):
            other = {name: column for name, column in {**labels, **change}.items() if column is not None}
            write_store(tuned_folder(tmp_path, "multinli", "small", 0, p=p), rows, ids, other)
            with pytest.raises(InputError, match=words):
                draw({**drawn, "p": p}, 0, tmp_path)


class TestProbe:
    def test_it_finds_the_concept_before_and_not_after_a_removal(self):
        def found(method, p):
            return [run_cell(cell("multinli-ood", method, run, p=[p]), NOWHERE)["probe"] for run in (0, 1)]

        assert min(found("ERM", 0.5)) > 0.85  # nothing is removed
        assert all(abs(accuracy - 0.5) < 0.08 for accuracy in found("LEACE", 0.5))
        # Of a concept that goes with the main label, LEACE removes part of that instead; the probe is not misled.
        assert min(found("ERM", 0.9)) > 0.85
        assert max(found("JSE", 0.9)) < 0.6 < min(found("LEACE", 0.9))

    def test_a_cell_is_a_function_of_its_spec(self):
        spec = cell("waterbirds-finetuned", "JSE")
        assert json.dumps(run_cell(spec, NOWHERE)) == json.dumps(run_cell(spec, NOWHERE))


class TestTraining:
    def test_the_kept_epoch_is_told(self, tmp_path):
        data = data_of("waterbirds-finetuned", "ADV")
        for run, kept in ((0, 1), (1, 2)):
            tuned_store(tmp_path, data, run, training={"settings": {}, "history": HISTORY, "kept_epoch": kept})
        result = run_cell({**cell("waterbirds-finetuned", "ADV"), "dataset": data}, tmp_path)
        assert result["training"] == {"epochs": 1, "validation_accuracy": 0.8, "adversary_accuracy": 0.65}
        assert METRICS["adversary"](result) == pytest.approx(65.0)
        assert METRICS["probe"](result) == pytest.approx(100 * result["probe"])
        later = {"epochs": 2, "validation_accuracy": 0.7, "adversary_accuracy": 0.6}
        assert kept_epoch(data, 1, tmp_path) == later

    @pytest.mark.parametrize("training", [{}, {"training": None}, {"training": {"settings": {}}}])
    def test_what_a_store_does_not_tell_is_none(self, tmp_path, training):
        data = data_of("multinli-ood", "ERM")
        tuned_store(tmp_path, data, **training)
        told = kept_epoch(data, 0, tmp_path)
        assert told == {"epochs": None, "validation_accuracy": None, "adversary_accuracy": None}
        assert np.isnan(METRICS["adversary"]({"training": told}))

    def test_results_of_frozen_networks_have_no_more_than_they_had(self):
        assert set(run_cell(cell("waterbirds-ood", "ERM"), NOWHERE)) == {
            "right",
            "rows",
            "d_spurious",
            "d_main",
            "head_weight_decay",
        }


class TestSpecs:
    @pytest.mark.parametrize(
        "name", ["waterbirds-ood", "waterbirds-limited-labels", "celeba-ood", "celeba-two-concepts"]
    )
    def test_cells_of_frozen_networks_are_those_of_their_records(self, name):
        known = {canonical(record.spec, "spec") for record in unpack(RESULTS / name / "exact.jsonl.xz")}
        assert {canonical(dict(c.spec), "spec") for c in experiment(name).cells("exact")} <= known

    def test_parameters_are_those_of_the_data_it_was_trained_on(self):
        for method in ("JSE", "GroupDRO", "JTT"):
            for name in ("waterbirds", "multinli"):
                expected = hyperparameters("paper", name, method)
                assert hyperparameters("paper", f"{name}-finetuned", method) == expected != {}
        assert cell("multinli-reweighting", "GDRO")["head"]["adjustment"] == 5.0

    @pytest.mark.parametrize("name", SPECS)
    def test_every_published_line_has_a_method_and_none_is_counted(self, name):
        read = experiment(name)
        source = read.published["source"], read.published["dataset"]
        lines = {key[2] for key in published_values() if key[:2] == source}
        assert {method.published for method in read.methods if method.source is None} >= lines
        assert not any(method.counted for method in read.methods)

    def test_values_published_with_the_papers_network_are_counted_only_for_it(self, tmp_path):
        text = """
title = "Birds"
published = { source = "removal", dataset = "waterbirds" }
metrics = ["average", "probe"]
[dataset]
name = "waterbirds-finetuned"
p = [0.9]
[[methods]]
name = "ERM"
"""
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        assert read_experiment(path).dataset["encoder"] == "resnet50"
        path.write_text(text.replace("p = [0.9]", 'p = [0.9]\nencoder = "small"'), encoding="utf-8")
        with pytest.raises(InputError, match=r"are not for \{'encoder': 'small'\}"):
            read_experiment(path)
        path.write_text(text.replace("-finetuned", ""), encoding="utf-8")
        with pytest.raises(InputError, match="measures 'probe', which is for networks that were trained for a run"):
            read_experiment(path)

    def test_a_method_may_have_its_own_adversary_and_nothing_that_changes_the_rows(self):
        assert with_settings(experiment("multinli-ood"), {"p": "[0.6]"}).method("ADV λ=1").dataset == {"adversary": 1.0}
        for change, words in (({"adversary": "-1"}, "the weight of an adversary"), ({"trained_on": "x"}, "'unmarked'")):
            with pytest.raises(InputError, match=words):
                with_settings(experiment("multinli-ood"), change)

    def test_tables_show_the_published_values_beside_ours(self, tmp_path):
        read = experiment("multinli-clean-encoder")
        small = replace(read, dataset=smoke("multinli-clean-encoder").dataset, methods=read.methods[:2], runs=2)
        small = replace(small, compare=())
        done = reproduce(small, "exact", tmp_path, progress=False)
        line = next(li for li in done.summary.lines if li.method == "JSE" and li.metric == "average")
        assert line.published.mean == 84.0
        assert line.published.error == pytest.approx((84.46 - 83.54) / 3.92, rel=1e-4)  # published as a band
        assert not any(a.counted for a in done.summary.agreement)


class TestChoiceOfOrthogonality:
    """Like a weight decay, it is chosen by the validation loss of the last layer."""

    def spec(self, kind, p=0.9):
        of_jse = next(c for c in smoke("waterbirds-finetuned").cells("exact") if c.method == "JSE").spec
        data = {**of_jse["dataset"], "p": p}
        return {**of_jse, "dataset": data, "remover": {"name": "JSE", "orthogonality": kind}}

    def loss(self, kind):
        from unspur_paper.experiments.choosing import group_loss

        drawn, removal, last, _ = fitted_cell(self.spec(kind), NOWHERE)
        return group_loss(last, removal(drawn.validation)), removal.map

    def test_the_lower_loss_wins(self):
        losses = {kind: self.loss(kind) for kind in ("weights", "scores")}
        assert losses["weights"][0] != losses["scores"][0]
        chosen, found = self.loss("validation")
        assert chosen == min(loss for loss, _ in losses.values())
        best = min(losses.values(), key=lambda pair: pair[0])[1]
        assert_array_equal(found.right, best.right)


class TestMissingData:
    """What is there is computed; what is not is named."""

    def test_cells_whose_store_is_missing_wait(self, tmp_path, monkeypatch):
        from unspur_paper.experiments import reproduce as module

        small = replace(smoke("waterbirds-finetuned"), runs=1)

        def digest(spec, embeddings):
            if spec["dataset"]["adversary"]:
                raise DataMissingError("no network was trained against an adversary")
            return "made-up"

        monkeypatch.setattr(module, "data_digest", digest)
        done = module.reproduce(small, "exact", tmp_path, only=["ERM", "ADV"], progress=False)
        assert done.report.computed == 1
        assert done.waiting == ("no network was trained against an adversary",)
        assert {line.method for line in done.summary.lines} == {"ERM"}
        with pytest.raises(DataMissingError, match="no network was trained"):
            module.reproduce(small, "exact", tmp_path, only=["ADV"], progress=False)

    def test_a_store_that_is_not_finished_is_missing(self, tmp_path):
        data = data_of("waterbirds-finetuned")
        folder = tuned_folder(tmp_path, "waterbirds", "small", 0, p=data["p"])
        folder.mkdir(parents=True)
        (folder / layout.PROGRESS).write_text("{}")
        with pytest.raises(DataMissingError, match=r"not finished in .*: unspur-paper finetune waterbirds"):
            open_embedded(data, 0, tmp_path)

    def test_one_experiment_of_several_is_left_out(self, tmp_path):
        where = ["--embeddings", str(tmp_path), "--output", str(tmp_path / "out")]
        two = ["waterbirds-finetuned", "toy-exact", "--runs", "1", "--only", "ERM"]
        done = CliRunner().invoke(main, ["reproduce", *two, *where])
        assert done.exit_code == 0, done.output
        assert "left out: There are no embeddings" in done.output
        assert (tmp_path / "out" / "toy-exact" / "exact.md").exists()
        alone = CliRunner().invoke(main, ["reproduce", "waterbirds-finetuned", *where])
        assert alone.exit_code == 1
        assert "unspur-paper finetune waterbirds" in alone.output


class TestRecommendation:
    """`RobustClassifier` as a method: the library's own fit, measured like all others."""

    def test_its_cell_is_its_own_accuracy(self):
        spec = cell("celeba-finetuned", "RobustClassifier")
        drawn, removal, last, chosen = fitted_cell(spec, NOWHERE)
        held_out = drawn.validation.arguments("_val")
        result = run_cell(spec, NOWHERE)
        model = RobustClassifier(random_state=0).fit(**drawn.train.arguments(), **held_out)
        right = model.predict(drawn.test.Z) == drawn.test.y
        # Folds do not matter where there are validation rows.
        assert (sum(result["right"]), result["head_weight_decay"]) == (right.sum(), chosen["weight_decay"])
        assert removal.spurious.dim == model.remover_.spurious_.dim > 0
        assert_array_equal(last.right(removal(drawn.test)), right)
        plain = run_cell(cell("celeba-finetuned", "ERM"), NOWHERE)
        assert METRICS["worst_group"](result) > METRICS["worst_group"](plain)

    @pytest.mark.parametrize(("dataset", "more"), [("celeba", 'remover = "JSE"\n'), ("toy", "")])
    def test_it_brings_its_own_remover_and_is_for_embeddings(self, dataset, more, tmp_path):
        axis = "rho = [0.5]" if dataset == "toy" else "p = [0.9]"
        text = f'title = "T"\nmetrics = ["average"]\n[dataset]\nname = "{dataset}"\n{axis}\n'
        path = tmp_path / "mine.toml"
        path.write_text(f'{text}[[methods]]\nname = "R"\n{more}head = "RobustClassifier"\n', encoding="utf-8")
        with pytest.raises(InputError, match=r"RobustClassifier of mine\.toml has a remover of its own"):
            read_experiment(path)


class TestThreeClasses:
    def test_every_group_of_three_classes_is_counted(self):
        result = run_cell(cell("multinli-negation", "GW-ERM"), NOWHERE)
        assert len(result["right"]) == len(result["rows"]) == 6
        assert sum(result["rows"]) == 400
        chance = 100.0 / 3
        assert METRICS["worst_group"](result) > chance
        # Control: labels that say nothing are not predicted.
        drawn, _, last, _ = fitted_cell(cell("multinli-negation", "ERM"), NOWHERE)
        shuffled = np.random.default_rng(0).permutation(drawn.test.y)
        assert abs(np.mean(last.right(replace(drawn.test, y=shuffled))) - 0.4) < 0.15

    def test_chances_of_all_classes_add_up(self):
        drawn, removal, last, _ = fitted_cell(cell("multinli-negation", "LEACE"), NOWHERE)
        test = removal(drawn.test)
        chances = last.predict_proba(test.Z)
        assert chances.shape == (400, 3)
        assert_allclose(chances.sum(axis=1), 1.0)
        assert_array_equal(chances.argmax(axis=1) == test.y, last.right(test))


def test_a_network_for_other_attributes_is_not_taken(tmp_path):
    data = data_of("celeba-finetuned")
    tuned_store(tmp_path, data)
    folder = tuned_folder(tmp_path, "celeba", data["encoder"], 0, p=data["p"])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["dataset"] = {"settings": {"main": "Smiling", "concept": "not Male"}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert found_folder(data, 0, tmp_path) == folder
    with pytest.raises(
        InputError, match="was trained on Smiling and not Male; the experiment asks for Smiling and Young"
    ):
        found_folder({**data, "concept": "Young"}, 0, tmp_path)
