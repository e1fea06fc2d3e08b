"""Cells on embeddings: the rows of a run, who sees which, and what is measured."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from unspur.exceptions import GroupSizeError, InputError
from unspur_paper.cli import main
from unspur_paper.datasets.celeba import label
from unspur_paper.embedding import store as layout
from unspur_paper.experiments import draws
from unspur_paper.experiments.cells import data_digest, run_cell
from unspur_paper.experiments.changed_pictures import changed_pictures
from unspur_paper.experiments.draws import draw
from unspur_paper.experiments.pixels import picture_change
from unspur_paper.experiments.reproduce import find_experiments, reproduce
from unspur_paper.experiments.spec_file import with_settings
from unspur_paper.experiments.stores import Embedded, open_embedded, store_folder
from unspur_paper.experiments.synthetic import SIDE, synthetic_rows
from unspur_paper.rows import Rows

NOWHERE = Path("not-there")


def experiment(name):
    return next(found for found in find_experiments([name]) if found.name == name)


def smoke(name, **settings):
    small = experiment(name).smoke()
    return replace(small, dataset={**small.dataset, **settings})


def cell(name, method, run=0, **settings):
    cells = smoke(name, **settings).cells("exact")
    return next(c.spec for c in cells if c.method == method and c.spec["run"] == run)


def rows_of(name, method="JSE", run=0, **settings):
    spec = cell(name, method, run, **settings)
    return draw(spec["dataset"], run, NOWHERE)


class TestDraws:
    def test_strength_holds_in_training_and_validation_and_not_in_test_rows(self):
        drawn = rows_of("waterbirds-ood", p=[0.9])
        for rows, p in ((drawn.train, 0.9), (drawn.validation, 0.9), (drawn.test, 0.5)):
            for y in (0, 1):
                mine = rows.concept[rows.y == y] == y
                assert abs(mine.sum() - p * len(mine)) <= 0.5

    def test_splits_share_no_bird_and_each_is_seen_once(self):
        data = cell("waterbirds-ood", "JSE")["dataset"]
        drawn, store = draw({**data, "pca": 0}, 0, NOWHERE), open_embedded(data, 0, NOWHERE)
        known = {row.tobytes(): bird for row, bird in zip(store.rows, store.labels["bird"], strict=True)}
        parts = [[known[z.tobytes()] for z in rows.Z] for rows in (drawn.train, drawn.validation, drawn.test)]
        birds = [bird for part in parts for bird in part]
        assert len(set(birds)) == len(birds) == len(drawn.train) + len(drawn.validation) + len(drawn.test)

    def test_methods_see_the_same_rows_and_runs_and_strengths_others(self):
        one, other = (rows_of("waterbirds-variants", method) for method in ("JSE", "JSE onto main-task"))
        assert np.array_equal(one.train.Z, other.train.Z)
        again = rows_of("waterbirds-variants", run=1)
        assert not np.array_equal(one.test.concept, again.test.concept)
        weaker = rows_of("waterbirds-variants", p=[0.8])
        assert not np.array_equal(one.test.concept, weaker.test.concept)

    def test_a_method_without_pca_sees_the_same_rows_in_all_their_features(self):
        with_pca, without = (rows_of("waterbirds-variants", method) for method in ("JSE", "JSE no PCA"))
        assert without.train.Z.shape[1] > with_pca.train.Z.shape[1] == 20
        assert np.array_equal(with_pca.train.concept, without.train.concept)
        np.testing.assert_allclose(
            with_pca.reduction(without.test.Z).astype(np.float32), with_pca.test.Z, rtol=1e-5, atol=1e-5
        )

    def test_components_are_those_of_training_rows(self):
        drawn, whole = rows_of("waterbirds-variants"), rows_of("waterbirds-variants", "JSE no PCA")
        assert abs(drawn.train.Z.mean()) < 1e-5 < abs(drawn.test.Z.mean(axis=0)).max()
        np.testing.assert_allclose(drawn.reduction.mean, whole.train.Z.mean(axis=0, dtype=float), atol=1e-6)

    def test_labelled_rows_are_as_many_as_asked_and_hold_each_group_in_proportion(self):
        drawn = rows_of("waterbirds-limited-labels", p=[0.9], labelled=[150])
        assert drawn.known.sum() == 150 < len(drawn.known)
        shares = [
            np.bincount(group, minlength=4) / len(group)
            for group in (drawn.train.group, drawn.train.group[drawn.known])
        ]
        assert np.abs(shares[0] - shares[1]).max() <= 1.5 / 150
        assert rows_of("waterbirds-ood").known is None

    def test_the_label_rule_is_applied_to_species(self, monkeypatch):
        rows, ids, labels = synthetic_rows({"name": "waterbirds"}, 0)
        towhees = tuple(name.replace("002.Some_Wren", "021.Eastern_Towhee") for name in ids)
        monkeypatch.setattr(draws, "open_embedded", lambda *_: Embedded(rows, towhees, labels))
        draws._draw.cache_clear()
        circulated, right = (
            rows_of("waterbirds-circulated-labels", rule=rule).train.y for rule in ("circulated", "species")
        )
        draws._draw.cache_clear()
        assert 0 < right.mean() < 1.0 == circulated.mean()

    def test_faces_are_balanced_and_the_second_concept_comes_along(self):
        spec = cell("celeba-two-concepts", "JSE both")
        drawn, store = draw(spec["dataset"], 0, NOWHERE), open_embedded(spec["dataset"], 0, NOWHERE)
        assert np.mean(drawn.train.y) == 0.5
        assert np.mean(drawn.train.concept == drawn.train.y) == pytest.approx(0.8, abs=0.01)
        assert set(drawn.second) == {"train", "validation", "test"}
        assert len(drawn.second["test"]) == len(drawn.test)
        assert label(store.labels, "Eyeglasses").mean() == pytest.approx(drawn.second["train"].mean(), abs=0.1)

    def test_too_few_rows_say_how_many(self):
        with pytest.raises(GroupSizeError, match=r"Group \(Smiling=1, not Male=1\) has \d+; .* would fit"):
            rows_of("celeba-ood", n=3000)
        with pytest.raises(InputError, match="has 400 birds to train on; n is 4775"):
            rows_of("waterbirds-ood", n=4775)


class TestCells:
    def test_a_cell_is_a_function_of_its_spec(self):
        spec = cell("waterbirds-ood", "JSE + GW-ERM")
        first = run_cell(spec, NOWHERE)
        draws._draw.cache_clear()
        assert json.dumps(run_cell(spec, NOWHERE)) == json.dumps(first)
        assert sum(first["rows"]) == 400

    def test_removing_the_background_lifts_the_worst_group_of_plain_erm(self):
        def worst(method):
            found = [run_cell(cell("waterbirds-ood-group", method, run, p=[0.95]), NOWHERE) for run in (0, 1)]
            return np.mean([min(np.divide(result["right"], result["rows"])) for result in found])

        assert worst("LEACE") > worst("ERM") + 0.1

    def test_weight_decay_is_chosen_where_the_spec_leaves_it_open_and_kept_where_not(self):
        spec = cell("waterbirds-ood", "ERM")
        assert spec["head"]["weight_decay"] == "validation"
        decays = {run_cell(cell("waterbirds-ood", method), NOWHERE)["head_weight_decay"] for method in ("ERM", "DFR")}
        assert decays <= {1.0, 0.1, 0.01, 1e-3, 1e-4}
        fixed = {**spec, "head": {**spec["head"], "weight_decay": 0.5}}
        assert run_cell(fixed, NOWHERE)["head_weight_decay"] == 0.5

    def test_gamma_of_afr_is_chosen_on_held_out_rows_like_the_weight_decay(self):
        from unspur_paper.experiments.choosing import GRIDS

        for spec in (cell("waterbirds-ood", "AFR"), cell("celeba-limited-labels", "AFR", labelled=[150], p=[0.8])):
            assert spec["head"]["gamma"] == spec["head"]["weight_decay"] == "validation"
            result = run_cell(spec, NOWHERE)
            assert result["head_gamma"] in GRIDS["AFR"]["gamma"]
            assert result["head_weight_decay"] in GRIDS["AFR"]["weight_decay"]

    def test_last_layers_that_need_the_concept_never_see_rows_without_it(self, monkeypatch):
        from unspur_paper.experiments import embedded

        seen = []
        real = embedded._cross_selected

        def watch(head, grid, train, known, allowed):
            seen.append((type(head).__name__, int(known.sum()), int(allowed.sum()), bool(allowed[known].all())))
            return real(head, grid, train, known, allowed)

        monkeypatch.setattr(embedded, "_cross_selected", watch)
        for method in ("GW-ERM", "JSE"):
            run_cell(cell("waterbirds-limited-labels", method, labelled=[150], p=[0.8]), NOWHERE)
        assert seen == [("GroupWeighted", 150, 150, True), ("ERM", 150, 400, True)]

    def test_weight_decay_chosen_in_folds_is_the_one_that_predicts_rows_it_was_not_fitted_on(self):
        from unspur import GroupWeighted
        from unspur_paper.experiments.embedded import _cross_selected

        rng = np.random.default_rng(0)
        z, y = rng.standard_normal((200, 150)), np.arange(200) % 2  # nothing to learn: the more decay, the better
        rows = Rows(z, y, np.arange(200) // 2 % 2)
        everything = np.ones(200, dtype=bool)

        def chosen(*decays):
            return _cross_selected(GroupWeighted(), {"weight_decay": decays}, rows, everything, everything)[1]

        assert chosen(1e-4, 1.0) == {"weight_decay": 1.0}
        z[:, 0] += 8.0 * y
        assert chosen(1e-4, 100.0) == {"weight_decay": 1e-4}

    def test_parameters_that_cannot_be_fitted_are_not_chosen(self):
        from unspur import AFR
        from unspur_paper.experiments.embedded import _cross_selected

        rng = np.random.default_rng(0)
        rows = Rows(rng.standard_normal((200, 5)), np.arange(200) % 2, np.arange(200) // 2 % 2)
        everything = np.ones(200, dtype=bool)
        # With the larger γ, all the weight goes to one row, which the layer refuses.
        grid = {"gamma": (1e6, 1.0), "weight_decay": (1.0,)}
        assert _cross_selected(AFR(), grid, rows, everything, everything)[1] == {"gamma": 1.0, "weight_decay": 1.0}

    def test_two_concepts_are_counted_both(self):
        both, neither = (run_cell(cell("celeba-two-concepts", m, p=[0.8]), NOWHERE) for m in ("JSE both", "ERM"))
        assert sum(both["right"]) == sum(both["right_second"])
        assert both["d_spurious"] >= 1 > neither["d_spurious"]
        with pytest.raises(InputError, match="no second concept"):
            run_cell(cell("celeba-two-concepts", "JSE both", second="none"), NOWHERE)
        with pytest.raises(InputError, match="needs a 'second' concept"):
            with_settings(experiment("celeba-two-concepts"), {"second": "none"})


class TestPixels:
    def test_shares_are_of_the_squared_change_and_none_without_any(self):
        before = np.zeros((3, 2500))
        after = before.copy()
        after[:, 35 * 50 + 25] = 2.0  # in the mouth
        after[:, 0] = 1.0  # in a corner
        found = picture_change(before, after)
        assert found["mouth_share"] == pytest.approx(0.8)
        assert found["eyes_share"] == 0.0
        assert found["picture"][0] == 1.0
        assert picture_change(before, before)["mouth_share"] is None

    def test_jse_changes_the_mouth_and_the_mean_difference_also_the_eyes(self):
        jse, sal = (run_cell(cell("celeba-pixels", method), NOWHERE) for method in ("JSE", "SAL"))
        assert sal["eyes_share"] > 0.15  # the two labels go together, so a smile is also seen in glasses
        assert jse["eyes_share"] < 0.6 * sal["eyes_share"]
        assert jse["mouth_share"] > sal["mouth_share"]

    def test_a_removal_in_components_is_shown_in_pixels(self):
        result = run_cell(cell("celeba-pixels", "RLACE"), NOWHERE)
        assert len(result["picture"]) == SIDE * SIDE
        assert result["mouth_share"] > result["eyes_share"]

    def test_pictures_before_and_after_for_every_remover(self):
        small = experiment("celeba-pixels").smoke()
        changed = changed_pictures(small, NOWHERE, each=1)
        assert set(changed.after) == {m.name for m in small.methods} - {"ERM"}
        assert changed.before.shape == (4, SIDE, SIDE)
        assert all(np.abs(after - changed.before).max() > 0.01 for after in changed.after.values())
        with pytest.raises(InputError, match="pictures need 'grey-50'"):
            changed_pictures(experiment("celeba-ood").smoke(), NOWHERE)


def write_store(folder, rows, ids, labels):
    """A store as `embed` writes it."""
    folder.mkdir(parents=True)
    np.save(folder / layout.ROWS, rows)
    layout.write_labels(folder / layout.LABELS, ids, labels)
    manifest = {
        "format": layout.FORMAT,
        "rows": len(rows),
        "width": rows.shape[1],
        "digest": layout.content_digest(rows, ids, labels),
    }
    (folder / layout.MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


@pytest.fixture
def embeddings(tmp_path):
    """Stores of made-up birds, as if a network called 'small' had made them."""
    for run in (0, 1):
        rows = synthetic_rows({"name": "waterbirds"}, run)
        write_store(store_folder(tmp_path / "embeddings", "waterbirds", "small", run), *rows)
    return tmp_path / "embeddings"


class TestStores:
    def test_rows_come_from_the_store_of_the_run(self, embeddings):
        spec = cell("waterbirds-ood", "ERM", run=1, encoder="small")
        made_up = cell("waterbirds-ood", "ERM", run=1)
        assert data_digest(spec, embeddings) != data_digest({**spec, "run": 0}, embeddings)
        stored = open_embedded(spec["dataset"], 1, embeddings)
        assert np.array_equal(stored.rows, open_embedded(made_up["dataset"], 1, NOWHERE).rows)

    def test_a_missing_store_says_how_to_make_it(self, embeddings):
        spec = cell("waterbirds-ood", "ERM", encoder="other")
        with pytest.raises(InputError, match=r"unspur-paper embed waterbirds --root DATA --encoder other --seed 0"):
            data_digest(spec, embeddings)

    def test_other_rows_are_other_records_and_drawing_needs_no_rows(self, embeddings, tmp_path):
        small = smoke("waterbirds-reweighting", encoder="small")
        small = replace(small, methods=tuple(m for m in small.methods if m.name in ("JSE", "GW-ERM")), compare=())
        output = tmp_path / "out"
        first = reproduce(small, "exact", output, embeddings=embeddings, progress=False)
        assert first.report.computed == 4
        assert reproduce(small, "exact", output, embeddings=embeddings, progress=False).report.computed == 0
        drawn = reproduce(small, "exact", output, embeddings=NOWHERE, compute=False)
        assert drawn.summary.lines == first.summary.lines
        with pytest.raises(InputError, match="There are no embeddings"):
            reproduce(small, "exact", output, embeddings=NOWHERE, progress=False)
        folder = store_folder(embeddings, "waterbirds", "small", 0)
        rows, ids, labels = synthetic_rows({"name": "waterbirds"}, 7)
        shutil.rmtree(folder)
        write_store(folder, rows, ids, labels)
        from unspur_paper.experiments import stores

        stores._digest.cache_clear()
        assert reproduce(small, "exact", output, embeddings=embeddings, progress=False).report.computed == 2
        with pytest.raises(InputError, match="on different data"):
            reproduce(small, "exact", output, embeddings=NOWHERE, compute=False)


class TestSettings:
    def test_settings_can_be_changed_and_the_page_says_so(self, tmp_path):
        changed = with_settings(experiment("celeba-ood"), {"encoder": "resnet50", "p": "[0.9]", "main": "Blond_Hair"})
        assert changed.dataset["encoder"] == "resnet50"
        assert len(changed.cells("exact", 1)) == len(changed.methods)
        arguments = [
            "reproduce",
            "waterbirds-variants",
            "--set",
            "encoder=made-up",
            "--set",
            "n=300",
            "--set",
            "pca=10",
        ]
        arguments += ["--set", "p=[0.8]", "--runs", "2", "--only", "JSE", "--jobs", "1", "--output", str(tmp_path)]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        page = (tmp_path / "waterbirds-variants" / "exact.md").read_text(encoding="utf-8")
        assert "--set encoder=made-up" in page

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"rho": "0.5"}, "Unknown setting of 'waterbirds'"),
            ({"p": "2.0"}, "p of waterbirds-variants must be"),
            ({"pca": "[100, 300]"}, "figure of 'curves' needs 1|pca of waterbirds-variants is an axis"),
            ({"encoder": "3"}, "encoder of waterbirds-variants must be"),
            ({"rule": "guess"}, "'species' or 'circulated'"),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, change, words):
        with pytest.raises(InputError, match=words):
            with_settings(experiment("waterbirds-variants"), change)

    def test_published_values_of_other_data_are_shown_and_not_counted(self, tmp_path):
        small = replace(experiment("waterbirds-ood"), dataset=smoke("waterbirds-ood", p=[0.9]).dataset, runs=2)
        small = replace(small, methods=small.methods[:2], compare=())
        done = reproduce(small, "exact", tmp_path, progress=False)
        line = next(li for li in done.summary.lines if li.method == "JSE" and li.metric == "worst_group")
        assert line.published.mean == 87.77
        assert not any(a.counted for a in done.summary.agreement)
