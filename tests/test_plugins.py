"""Removers and heads of other packages, which offer them by entry points."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from unspur import LEACE, GroupWeighted, RobustClassifier, compare, load
from unspur._registry import _entry_points
from unspur.datasets import make_toy
from unspur.exceptions import ArtifactError, InputError
from unspur.heads import HEADS
from unspur.removers import REMOVERS

#: A remover written from the docstring of `Remover`, a head, and what can be wrong with them.
MODULE = '''
import numpy as np

from unspur._data import decode_fit_arguments
from unspur.heads import ERM
from unspur.removers import Remover
from unspur.removers.leace import ClosedFormTrace
from unspur.removers.seen_rows import hash_finite_rows
from unspur.subspace import AffineMap, Subspace


class MeanGap(Remover):
    """Takes out the difference of two class means, and has none of our parameters."""

    trace_type = ClosedFormTrace

    def fit(self, X, y=None, *, concept, sample_weight=None):
        rows = decode_fit_arguments(self, X, y, concept, needs_y=False)
        X, label = np.asarray(rows.X, dtype=float), rows.concepts[0]
        gap = X[label.codes == 1].mean(axis=0) - X[label.codes == 0].mean(axis=0)
        spurious = Subspace.spanned_by(gap[:, None])
        self._set_removal(AffineMap.removing(spurious, X.mean(axis=0)), spurious, Subspace.empty(X.shape[1]))
        self.trace_ = ClosedFormTrace("MeanGap", 1, 1, (), X.shape[1], 1.0)
        self.classes_, self.concept_classes_ = (), label.classes
        self._store_row_hashes(hash_finite_rows(self, X)[1])
        return self


class Failing(MeanGap):
    """Cannot be fitted."""

    def fit(self, X, y=None, *, concept, sample_weight=None):
        raise ZeroDivisionError("of the plugin")


class Demanding(MeanGap):
    """Cannot be made without an argument."""

    def __init__(self, needed):
        self.needed = needed


class Lenient(ERM):
    """A head."""


class Crashing(ERM):
    """A head that cannot be fitted."""

    def _train(self, *arguments, **options):
        raise ZeroDivisionError("of the plugin")


not_a_class = 7
'''
POINTS = """
[unspur.removers]
MeanGap = acme:MeanGap
Failing = acme:Failing
Demanding = acme:Demanding
Misnamed = acme:MeanGap
NoClass = acme:not_a_class
Head = acme:Lenient
Missing = acme_nowhere:Thing
[unspur.heads]
Lenient = acme:Lenient
Crashing = acme:Crashing
"""


def install(folder, points=POINTS, name="acme"):
    """What pip leaves behind: a module, and the metadata of its distribution."""
    (folder / "acme.py").write_text(MODULE)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(points))
    return folder


@pytest.fixture
def acme(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(install(tmp_path / "site"))
    _entry_points.cache_clear()
    yield tmp_path
    sys.modules.pop("acme", None)
    _entry_points.cache_clear()


@pytest.fixture(scope="module")
def toy():
    return make_toy(300, d=5, rho=0.6, random_state=0)


def unspur(*arguments, cwd):
    path = os.pathsep.join([str(cwd / "site"), os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else ["site"])
    command = [sys.executable, "-W", "error", "-m", "unspur", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}
    )


def test_without_other_packages_there_are_ours_alone():
    assert list(REMOVERS) == list(REMOVERS.own)
    assert "MeanGap" not in REMOVERS
    with pytest.raises(KeyError):
        REMOVERS["MeanGap"]


def test_names_are_listed_without_importing_the_package(acme):
    assert {"JSE", "MeanGap", "Missing"} <= set(REMOVERS)
    assert {"ERM", "Lenient"} <= set(HEADS)
    assert len(HEADS) == len(HEADS.own) + 2
    assert "acme" not in sys.modules
    assert REMOVERS["MeanGap"].__module__ == "acme"
    assert "acme" in sys.modules


def test_they_are_compared_and_broken_ones_do_not_break_the_rest(acme, toy):
    rows = toy.Z, toy.y, toy.concept
    names = ["none", "LEACE", *(name for name in compare.REMOVERS if name not in compare.REMOVERS.own)]
    found = compare.compare(rows, rows, None, names, ["ERM", "Lenient", "Crashing"])
    by_name = {(one.remover, one.head): one for one in found}
    assert len(by_name) == 9 * 3
    gap, erm = by_name["MeanGap", "Lenient"], by_name["MeanGap", "ERM"]
    assert gap.n_removed == 1
    assert gap.accuracy.worst == erm.accuracy.worst > 0.5
    problems = {
        ("Failing", "ERM"): "Failing of the package acme failed (ZeroDivisionError: of the plugin)",
        ("Demanding", "ERM"): "Demanding of the package acme failed (TypeError",
        ("Misnamed", "ERM"): "Misnamed of the package acme failed (TypeError",
        ("NoClass", "ERM"): "NoClass of the package acme failed (TypeError",
        ("Head", "ERM"): "Head of the package acme failed (TypeError",
        ("Missing", "ERM"): "Missing of the package acme failed (ModuleNotFoundError: No module named 'acme_nowhere'",
        ("LEACE", "Crashing"): "Crashing of the package acme failed (ZeroDivisionError: of the plugin)",
    }
    for key, said in problems.items():
        assert said in by_name[key].problem
    assert by_name["LEACE", "ERM"].accuracy is not None


def test_files_of_theirs_can_be_read_while_the_package_is_there(acme, toy, monkeypatch):
    model = RobustClassifier(REMOVERS["MeanGap"](), HEADS["Lenient"](), random_state=0)
    model.fit(toy.Z, toy.y, concept=toy.concept).save(acme / "model.safetensors")
    RobustClassifier(LEACE(), HEADS["Lenient"]()).fit(toy.Z, toy.y, concept=toy.concept).save(acme / "head.safetensors")
    again = load(acme / "model.safetensors")
    assert type(again.remover_).__name__ == "MeanGap"
    assert type(again.head_).__name__ == "Lenient"
    np.testing.assert_array_equal(again.predict_proba(toy.Z), model.predict_proba(toy.Z))
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(acme / "site")])
    _entry_points.cache_clear()
    with pytest.raises(ArtifactError, match=r"holds a 'MeanGap'; this version knows JSE.*install that package"):
        load(acme / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"its head is a 'Lenient'; .*the package of another may not be installed"):
        load(acme / "head.safetensors")


def test_classes_that_nobody_offers_are_not_saved(tmp_path, toy):
    class MyLEACE(LEACE):
        """Of a notebook."""

    class MyHead(GroupWeighted):
        """Of a notebook."""

    path = tmp_path / "model.safetensors"
    another = type("LEACE", (LEACE,), {})  # which would be loaded as ours
    for model, name in (
        (MyLEACE(), "MyLEACE"),
        (another(), "LEACE"),
        (RobustClassifier(MyLEACE()), "MyLEACE"),
        (RobustClassifier(LEACE(), MyHead()), "MyHead"),
    ):
        model.fit(toy.Z, toy.y, concept=toy.concept)
        with pytest.raises(InputError, match=rf"^{name} of .* cannot be saved: .*load knows .*entry point"):
            model.save(path)
        assert not path.exists()
    RobustClassifier(LEACE(), GroupWeighted()).fit(toy.Z, toy.y, concept=toy.concept).save(path)
    assert type(load(path)) is RobustClassifier


def test_a_name_that_is_taken_stays_ours(acme):
    other = acme / "other"
    other.mkdir()
    install(other, "[unspur.removers]\nLEACE = acme:MeanGap\n", name="copycat")
    sys.path.append(str(other))
    assert REMOVERS["LEACE"] is LEACE
    assert list(REMOVERS).count("LEACE") == 1


def test_the_command_line_has_them(acme, toy):
    np.savez(acme / "rows.npz", Z=toy.Z, y=toy.y, c=toy.concept)
    labels = ["--task", "y", "--concept", "c"]
    done = unspur("fit", "rows.npz", *labels, "--method", "MeanGap", "--output", "gap.safetensors", cwd=acme)
    assert done.returncode == 0, done.stderr
    assert "1 of 5 directions" in done.stdout
    assert load(acme / "gap.safetensors").n_removed_ == 1
    done = unspur("fit", "rows.npz", *labels, "--method", "Missing", "--output", "no.safetensors", cwd=acme)
    assert done.returncode == 1
    assert "Error: Missing of the package acme failed (ModuleNotFoundError" in done.stderr
    done = unspur("fit", "rows.npz", *labels, "--method", "Failing", "--output", "no.safetensors", cwd=acme)
    assert done.returncode == 1
    assert "Error: Failing of the package acme failed (ZeroDivisionError: of the plugin)" in done.stderr
    done = unspur("compare", "rows.npz", *labels, "--remover", "MeanGap", "--head", "Lenient", "--json", cwd=acme)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["accuracy"]["worst"] > 0.5


def test_a_remover_by_name_gets_the_parameters_that_it_has(acme):
    assert compare.make_remover("MeanGap", "group", 3).get_params() == {}
    assert compare.make_remover("JSE", "main", 3).get_params()["balance"] == "main"
    assert GroupWeighted is HEADS["GroupWeighted"]
    with pytest.raises(InputError, match="Unknown method Nonsense"):
        compare.known_names(["Nonsense"], compare.REMOVERS)
