"""Specs: what a TOML file means, and what it may not say."""

import json
from pathlib import Path

import pytest

from unspur.exceptions import InputError
from unspur_paper.experiments.folder import experiments_folder
from unspur_paper.experiments.presets import hyperparameters
from unspur_paper.experiments.published import published_values
from unspur_paper.experiments.reproduce import experiment_names, find_experiments
from unspur_paper.experiments.spec_file import read_experiment

GOOD = """
title = "A test"
presets = ["exact", "released"]
runs = 3
metrics = ["average", "worst_group"]

[dataset]
name = "toy"
n = [300, 400]
rho = [0, 0.5, 0.9]

[[methods]]
name = "JSE"
remover = { name = "JSE", delta = "auto" }

[[methods]]
name = "ERM"
presets = ["exact"]
"""
NAMES = {
    "toy-ood",
    "toy-reweighting",
    "toy-reconstruction",
    "toy-nonorthogonal",
    "toy-sample-size",
    "toy-delta",
    "toy-illustration",
    "toy-power",
    "toy-exact",
}


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


class TestCells:
    def test_they_are_the_product_of_axes_methods_and_runs(self, tmp_path):
        experiment = read_experiment(written(tmp_path, GOOD))
        cells = experiment.cells("exact")
        assert experiment.axes == ("n", "rho")
        assert len(cells) == 2 * 3 * 2 * 3
        assert len({json.dumps(cell.spec, sort_keys=True) for cell in cells}) == len(cells)
        assert {cell.method for cell in experiment.cells("released")} == {"JSE"}
        assert len(experiment.cells("exact", runs=1, only=["ERM"])) == 6

    def test_a_method_may_have_fewer_runs_and_strengths(self, tmp_path):
        own = 'name = "ERM"\nruns = 2\nstrengths = [0, 0.9]'
        experiment = read_experiment(written(tmp_path, GOOD.replace('name = "ERM"', own)))
        cells = experiment.cells("exact", only=["ERM"])
        places = {(cell.at["n"], cell.at["rho"], cell.spec["run"]) for cell in cells}
        assert len(cells) == len(places) == 2 * 2 * 2
        assert {(rho, run) for _, rho, run in places} == {(0.0, 0), (0.0, 1), (0.9, 0), (0.9, 1)}
        assert len(experiment.cells("exact", runs=1, only=["ERM"])) == 4
        assert len(experiment.cells("exact", only=["JSE"])) == 2 * 3 * 3
        assert {cell.method for cell in experiment.smoke().cells("exact")} == {"JSE", "ERM"}

    def test_a_spec_says_all_and_in_one_way(self, tmp_path):
        """Defaults are written out, and 0 is 0.0: the same cell has the same record, however it is asked for."""
        spec = read_experiment(written(tmp_path, GOOD)).cells("exact", runs=1)[0].spec
        assert spec == {
            "dataset": {
                "name": "toy",
                "n": 300,
                "d": 20,
                "rho": 0.0,
                "separability_concept": 3.0,
                "separability_main": 3.0,
                "angle": 90.0,
            },
            "remover": {"name": "JSE", "delta": "auto"},
            "head": {"name": "ERM", "weight_decay": 0.0},
            "preset": "exact",
            "run": 0,
        }
        assert isinstance(spec["dataset"]["rho"], float)

    def test_hyperparameters_are_part_of_it(self, tmp_path):
        """Another learning rate is another cell, and a worker needs no file."""
        released = read_experiment(written(tmp_path, GOOD)).cells("released", runs=1)[0].spec
        assert released["remover"] == {"name": "JSE", "delta": "auto", "learning_rate": 0.01}
        assert released["head"] == {"name": "ERM", "learning_rate": 0.1}

    def test_an_illustration_is_one_more_cell(self, tmp_path):
        text = GOOD + '[illustration]\nrho = 0.5\nn = 300\nmethods = ["JSE"]\n'
        cells = read_experiment(written(tmp_path, text)).cells("exact", runs=1)
        assert len(cells) == 13
        assert cells[-1].spec["keep"] == ["panels"]

    def test_a_smoke_run_is_small(self, tmp_path):
        cells = read_experiment(written(tmp_path, GOOD)).smoke().cells("exact")
        assert len(cells) == 4
        assert {(c.spec["dataset"]["n"], c.spec["dataset"]["rho"]) for c in cells} == {(400, 0.9)}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name = "toy"', 'name = "toys"', "Did you mean 'toy'"),
        ("runs = 3", "runs = " + "9" * 5000, "mine.toml is not valid TOML"),  # more digits than Python converts
        ("runs = 3", "x = " + "[" * 50_000, "mine.toml is not valid TOML"),
        ("runs = 3", "y" * 5000 + " = 1", "yyy…. There are"),
        ('delta = "auto"', "delta = 1979-05-27", "the remover of mine.toml['delta'] is of type date"),
        ('delta = "auto"', "delta = nan", "the remover of mine.toml['delta'] is nan"),
        ('{ name = "JSE", delta = "auto" }', '"JES"', "Did you mean 'JSE'? There are: INLP, JSE, LEACE"),
        ('delta = "auto"', 'detla = "auto"', "Did you mean 'delta'? There are: balance"),
        ('{ name = "JSE", delta = "auto" }', "5", "must be a table"),
        ('{ name = "JSE", delta = "auto" }', "{}", "Unknown remover in mine.toml: None"),
        ('{ name = "JSE", delta = "auto" }', '"true axis"', "The preset 'released' has no 'true axis'"),
        ('name = "ERM"', 'name = "JSE"', "names of their own"),
        ('name = "ERM"', "name = 5", "must be a text"),
        ('presets = ["exact"]', 'presets = ["released-fresh"]', "There are: exact, released"),
        ('presets = ["exact", "released"]', "presets = 3", "must be a list"),
        ('metrics = ["average", "worst_group"]', "metrics = []", "empty list"),
        ("rho = [0, 0.5, 0.9]", 'rho = ["x"]', "must be a correlation between -1 and 1; got 'x'"),
        ("rho = [0, 0.5, 0.9]", "rho = [2]", "must be a correlation"),
        ("rho = [0, 0.5, 0.9]", "rho = [nan]", "must be a correlation"),
        ("rho = [0, 0.5, 0.9]", "rho = [true]", "must be a correlation"),
        ("rho = [0, 0.5, 0.9]", "rho = [[0.5]]", "must be a correlation"),
        ("rho = [0, 0.5, 0.9]", "rho = [0.5, 0.50]", "has a value twice"),
        ("rho = [0, 0.5, 0.9]", "rho = [0.5]\nd = [3, 4]", "a figure of 'sizes' needs 2"),
        ("rho = [0, 0.5, 0.9]", "rho = 0.5", "axis to draw over ('strength') in mine.toml: 'rho'"),
        ("n = [300, 400]", "n = -3", "must be a whole number of at least 50"),
        ("n = [300, 400]", "n = 300.0", "must be a whole number"),
        ("runs = 3", "runs = true", "positive whole number"),
        ("runs = 3", 'answers = "tab"', "must be a list"),
        ("runs = 3", "illustration = 5", "must be a table"),
        ("runs = 3", 'illustration = { methods = ["ERM"], n = 300, rho = 0.5 }', "There are: JSE"),
        ("runs = 3", 'illustration = { methods = ["JSE"] }', "needs methods and n, rho"),
        ("runs = 3", 'published = { source = "removal", dataset = "toy" }', "are not for {'n': [300, 400]}"),
        ("runs = 3", 'published = { source = "remoal", dataset = "toy" }', "Did you mean 'removal'"),
        ("runs = 3", 'published = { source = "reweighting", dataset = "toy" }', "No method of mine.toml"),
        ('presets = ["exact", "released"]', 'presets = ["exakt"]', "Did you mean 'exact'"),
        ('"worst_group"', '"worst"', "There are: accuracy"),
        ("n = [300, 400]", "rows = 300", "key of dataset 'toy' in mine.toml: 'rows'"),
        ("n = [300, 400]", "n = []", "empty list"),
        ("runs = 3", "runs = 0", "positive whole number"),
        ("runs = 3", 'run = "x"', "Did you mean 'runs'"),
        ('title = "A test"', "", "has no 'title'"),
        ('title = "A test"', 'title = "A', "not valid TOML"),
        ("runs = 3", 'strength = "size"', "to draw over ('strength') in mine.toml: 'size'"),
        ("runs = 3", 'figure = "pie"', "There are: curves, sizes"),
        ("runs = 3", 'published = { source = "removal" }', "needs a source and a dataset"),
        ("runs = 3", 'compare = ["JSE"]', "a list of pairs of methods"),
        ("runs = 3", 'compare = [["JSE", "INLP"]]', "There are: ERM, JSE"),
        ("runs = 3", 'comparable = "no"', "true or false"),
        ('name = "ERM"', 'name = "ERM"\nstrengths = [0.6]', "are some of [0.0, 0.5, 0.9]; got [0.6]"),
        ('name = "ERM"', 'name = "ERM"\nruns = 0', "positive whole number"),
        ('name = "ERM"', 'name = "ERM"\ndataset = { rho = 0.5 }', "Unknown setting of a method in mine.toml: 'rho'"),
        ('name = "ERM"', 'name = "ERM"\npublished = { source = "removal" }', "a name, or a source and a method"),
        ('name = "toy"', 'name = "waterbirds"', "Unknown key of dataset 'waterbirds' in mine.toml: 'rho'"),
    ],
)
def test_what_is_not_known_is_an_error_that_lists_what_is(tmp_path, old, new, says):
    assert old in GOOD
    read_experiment(written(tmp_path, GOOD))
    with pytest.raises(InputError) as caught:
        read_experiment(written(tmp_path, GOOD.replace(old, new, 1)))
    assert says in str(caught.value)


BIRDS = """
title = "Birds"
presets = ["exact"]
metrics = ["average"]

[dataset]
name = "waterbirds"
p = [0.9]

[[methods]]
name = "JSE"
remover = "JSE"
dataset = { pca = 0 }
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"exact"', '"released"', "Unknown preset on waterbirds in mine.toml: 'released'"),
        ("pca = 0", "n = 500", "Unknown setting of a method in mine.toml: 'n'"),
        ("pca = 0", "pca = -1", "pca of mine.toml must be"),
        ("p = [0.9]", "p = [0.9]\npca = [0, 300]", "pca of mine.toml is an axis"),
        ("p = [0.9]", "p = [1.2]", "must be the share of rows whose concept agrees"),
        ("p = [0.9]", "p = [0.9]\nencoder = 3", "must be the name of an encoder; got 3"),
        ("p = [0.9]", "p = [0.9]\nlabelled = 5", "20 at least, or 0 for all"),
    ],
)
def test_what_cannot_be_done_with_embeddings_is_refused(tmp_path, old, new, says):
    good = read_experiment(written(tmp_path, BIRDS))
    assert good.cells("exact", 1)[0].spec["dataset"]["pca"] == 0
    with pytest.raises(InputError) as caught:
        read_experiment(written(tmp_path, BIRDS.replace(old, new, 1)))
    assert says in str(caught.value)


def test_unknown_methods_experiments_and_files(tmp_path):
    experiment = read_experiment(written(tmp_path, GOOD))
    with pytest.raises(InputError, match="There are: JSE, ERM"):
        experiment.cells("exact", only=["jse"])
    with pytest.raises(InputError, match=r"There are: .*toy-delta"):
        find_experiments(["toys"])
    with pytest.raises(InputError, match="another experiment called 'toy-ood'"):
        find_experiments([str(written(tmp_path, GOOD).rename(tmp_path / "toy-ood.toml"))])
    with pytest.raises(InputError, match="cannot be called 'records'"):
        read_experiment(written(tmp_path, GOOD).rename(tmp_path / "records.toml"))
    with pytest.raises(InputError, match="no experiment file"):
        read_experiment(tmp_path / "none.toml")


class TestWhatComesWithThePackage:
    def test_names(self):
        assert set(experiment_names()) >= NAMES
        assert {e.name for e in find_experiments(["toy"])} == {n for n in experiment_names() if n.startswith("toy-")}
        assert [e.name for e in find_experiments(["toy-ood", "toy-ood"])] == ["toy-ood"]

    def test_published_values_are_all_there(self):
        values = published_values()
        assert len(values) == 1775
        assert sum(key[1].startswith("toy") for key in values) == 580
        delta = values["delta", "toy gamma_sp=6 gamma_mt=2", "JSE delta=0", 0.9, "average"]
        assert delta.mean == 64.59
        assert delta.error == pytest.approx((66.89 - 62.28) / 3.92, rel=1e-4)

    def test_every_published_value_on_toy_is_answered_once(self):
        """Each of the 580 has a cell, under the preset of the authors' program."""
        answered = set()
        for experiment in find_experiments(["toy-ood", "toy-reweighting", "toy-delta"]):
            source = experiment.published
            for cell in experiment.cells("released", runs=1):
                name = experiment.method(cell.method).published
                answered |= {
                    (source["source"], source["dataset"], name, cell.at["rho"], metric) for metric in experiment.metrics
                }
        assert {key for key in published_values() if key[1].startswith("toy")} <= answered

    def test_hyperparameters_of_the_last_table(self):
        assert hyperparameters("paper", "toy", "JSE") == {"learning_rate": 0.01, "weight_decay": 0.0}
        assert hyperparameters("paper", "multinli", "ERM")["weight_decay"] == 1.0
        assert hyperparameters("paper", "toy", "LEACE") == {}

    def test_specs_travel_in_the_wheel(self):
        """Installed, they are beside the package; in the repository, where they are written."""
        root = Path(__file__).parents[2]
        written = {path.name for path in (root / "experiments").iterdir()}
        assert {path.name for path in experiments_folder().iterdir()} == written
        assert '"experiments" = "unspur_paper/experiments/specs"' in (root / "pyproject.toml").read_text(
            encoding="utf-8"
        )
