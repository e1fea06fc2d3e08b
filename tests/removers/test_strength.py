"""`strength` of a remover: how much of the removal is applied, everywhere that a removal goes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from tests.optional import torch
from tests.probing import quick_probes
from tests.removers.test_contract import FAST
from unspur import ERM, LEACE, SAL, GroupWeighted, PaperVariant, RobustClassifier, load
from unspur._files import read_artifact, write_artifact
from unspur.datasets import make_toy
from unspur.exceptions import ArtifactError, InputError, NothingRemovedWarning
from unspur.subspace import AffineMap, Subspace
from unspur.surgery import fold

ALPHA = 0.3


@pytest.fixture(scope="module")
def toy():
    return make_toy(1500, d=8, rho=0.6, random_state=0)


@pytest.fixture(scope="module", params=list(FAST))
def pair(request, toy):
    """A remover at full strength and at ALPHA, fitted on the same rows."""
    remover = FAST[request.param]
    return tuple(
        clone(remover).set_params(strength=strength).fit(toy.Z, toy.y, concept=toy.concept) for strength in (1.0, ALPHA)
    )


def test_transform_goes_the_share_of_the_way(pair, toy):
    full, part = pair
    removed = toy.Z - full.transform(toy.Z)
    assert np.abs(removed).max() > 0.1
    assert_allclose(part.transform(toy.Z), toy.Z - ALPHA * removed, atol=1e-10)
    assert part.spurious_.dim == full.spurious_.dim == part.n_removed_
    assert part.removal_.rank == 8 > full.removal_.rank


def test_a_file_has_the_strength_and_old_files_have_full_strength(pair, toy, tmp_path):
    full, part = pair
    part.save(tmp_path / "part.safetensors")
    again = load(tmp_path / "part.safetensors")
    assert again.strength == again.strength_ == ALPHA
    np.testing.assert_array_equal(again.transform(toy.Z), part.transform(toy.Z))
    full.save(tmp_path / "full.safetensors")
    arrays, metadata = read_artifact(tmp_path / "full.safetensors", lambda *_: None)
    del metadata["strength"], metadata["parameters"]["strength"]  # as before there was one
    write_artifact(tmp_path / "old.safetensors", arrays, metadata)
    assert load(tmp_path / "old.safetensors").strength_ == 1.0


@pytest.mark.filterwarnings("ignore::unspur.exceptions.EverythingRemovedWarning")
def test_nearly_the_whole_removal_of_all_dimensions_can_be_saved(toy, tmp_path):
    concept = {"one": toy.concept, "other": toy.y}
    for strength, form in ((float(np.nextafter(1.0, 0.0)), "remove"), (1.0, "keep")):
        leace = LEACE(strength=strength).fit(toy.Z[:, :2], concept=concept)
        leace.save(tmp_path / f"{form}.safetensors")
        again = load(tmp_path / f"{form}.safetensors")
        assert again.removal_.form == leace.removal_.form == form
        assert again.strength_ == strength


def test_the_strength_that_was_fitted_is_saved(toy, tmp_path):
    """Not one that was set afterwards."""
    sal = SAL(strength=ALPHA).fit(toy.Z, toy.y, concept=toy.concept)
    expected = sal.transform(toy.Z)
    sal.set_params(strength=0.9).save(tmp_path / "sal.safetensors")
    again = load(tmp_path / "sal.safetensors")
    assert again.strength_ == ALPHA
    np.testing.assert_array_equal(again.transform(toy.Z), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strength": 1.0}, "not a projection"),
        ({"strength": 0.31}, "not a projection of strength 0.31"),
        ({"strength": 0.0}, "not a projection of strength 0"),
        ({"strength": 1.3}, "not between 0 and 1"),
        ({"strength": float("nan")}, "strength"),
        ({"strength": "all"}, "strength"),
        ({"left": 0.0}, "not a projection"),
    ],
)
def test_a_file_whose_map_has_another_strength_is_refused(toy, tmp_path, changes, said):
    LEACE(strength=ALPHA).fit(toy.Z, toy.y, concept=toy.concept).save(tmp_path / "l.safetensors")
    arrays, metadata = read_artifact(tmp_path / "l.safetensors", lambda *_: None)
    if "left" in changes:
        arrays["left"] = changes["left"] * arrays["left"]
    else:
        metadata |= changes
    write_artifact(tmp_path / "changed.safetensors", arrays, metadata)
    with pytest.raises(ArtifactError, match=said):
        load(tmp_path / "changed.safetensors")


def test_fold_onnx_and_modules_follow(toy, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from unspur.surgery import as_module, to_onnx

    leace = LEACE(strength=ALPHA).fit(toy.Z, toy.y, concept=toy.concept)
    expected = leace.transform(toy.Z)
    assert np.abs(expected - LEACE().fit(toy.Z, toy.y, concept=toy.concept).transform(toy.Z)).max() > 0.1
    head = LogisticRegression().fit(expected, toy.y)
    assert_allclose(fold(leace, head).decision_function(toy.Z), head.decision_function(expected), atol=1e-10)
    module = as_module(leace, dtype=torch.float64)
    assert_allclose(module(torch.tensor(toy.Z)).numpy(), expected, atol=1e-12)
    to_onnx(leace, tmp_path / "leace.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "leace.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"rows": toy.Z.astype(np.float32)})
    assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), "half"])
def test_a_strength_outside_0_and_1_is_refused(pair, toy, value):
    remover = clone(pair[0]).set_params(strength=value)
    with pytest.raises(ValueError, match=r"'strength' parameter of \w+ must be a float in the range \[0.0, 1.0\]"):
        remover.fit(toy.Z, toy.y, concept=toy.concept)
    if not isinstance(value, str):
        with pytest.raises(InputError, match="from 0"):
            pair[0].removal_.scaled(value)


@quick_probes()
def test_strength_0_changes_nothing_and_says_so(pair, toy, tmp_path):
    full, _ = pair
    remover = clone(full).set_params(strength=0.0)
    with pytest.warns(NothingRemovedWarning, match="strength is 0, so transform does not change the rows"):
        remover.fit(toy.Z, toy.y, concept=toy.concept)
    np.testing.assert_array_equal(remover.transform(toy.Z), toy.Z)
    assert remover.n_removed_ == 0 < remover.spurious_.dim
    held_out = make_toy(400, d=8, rho=0.0, random_state=1)
    certificate = remover.certificate(held_out.Z, held_out.y, held_out.concept)
    assert certificate.removed == 0 == certificate.distortion
    assert "nothing was removed" in str(certificate)
    remover.save(tmp_path / "nothing.safetensors")
    again = load(tmp_path / "nothing.safetensors")
    np.testing.assert_array_equal(again.transform(toy.Z), toy.Z)


def test_a_certificate_says_that_the_removal_is_partial(toy):
    held_out = make_toy(600, d=8, rho=0.0, random_state=1)
    part, full = (SAL(strength=s).fit(toy.Z, toy.y, concept=toy.concept) for s in (0.5, 1.0))
    certificates = [one.certificate(held_out.Z, held_out.y, held_out.concept) for one in (part, full)]
    assert "strength 0.5: the concept is removed in part" in " ".join(str(certificates[0]).split())
    assert "strength" not in str(certificates[1])
    assert_allclose(certificates[0].distortion, 0.25 * certificates[1].distortion, rtol=1e-10)
    # The map can be inverted, and the probe has next to no penalty: it finds more than after the whole removal.
    assert certificates[0].probe["concept"][1].accuracy > certificates[1].probe["concept"][1].accuracy + 0.05


def test_a_projection_onto_the_task_has_strength_0_or_1(toy):
    jse = clone(FAST["JSE"]).set_params(variant=PaperVariant(output="onto_main"), strength=0.5)
    with pytest.raises(InputError, match=r"A projection onto a subspace has strength 0 or 1; got 0\.5"):
        jse.fit(toy.Z, toy.y, concept=toy.concept)
    keeping = AffineMap.keeping(Subspace.spanned_by(np.eye(8)[:, :2]), toy.Z.mean(axis=0))
    assert keeping.scaled(1) is keeping
    np.testing.assert_array_equal(keeping.scaled(0)(toy.Z), toy.Z)


def test_a_map_with_an_offset_goes_the_share_of_the_way(toy):
    rng = np.random.default_rng(0)
    removal = AffineMap(rng.normal(size=8), rng.normal(size=(8, 2)), rng.normal(size=(8, 2)), offset=rng.normal(size=8))
    assert_allclose(removal.scaled(0.25)(toy.Z), 0.75 * toy.Z + 0.25 * removal(toy.Z), atol=1e-12)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("head", [ERM, GroupWeighted])
def test_a_classifier_is_the_head_of_explicitly_transformed_rows(head, wide, toy):
    """RobustClassifier solves for heads in the geometry of rows that it never transforms."""
    Z, y, concept = toy.Z, toy.y, toy.concept
    if wide:
        rng = np.random.default_rng(0)
        Z, y, concept = np.hstack([Z, 0.3 * rng.normal(size=(len(Z), 292))])[:240], y[:240], concept[:240]
    remover = LEACE(strength=0.5) if wide else clone(FAST["JSE"]).set_params(strength=0.5)
    model = RobustClassifier(remover, head(tol=1e-9), random_state=0).fit(Z, y, concept=concept)
    clean = model.remover_.transform(Z)
    assert np.abs(clean - Z).max() > 0.1
    oracle = head(tol=1e-9, penalty=model.head_.penalty).fit(clean, y, concept=concept)
    assert_allclose(model.decision_function(Z), oracle.decision_function(clean), rtol=1e-4, atol=1e-4)
    whole = RobustClassifier(clone(remover).set_params(strength=1.0), head(tol=1e-9), random_state=0)
    whole.fit(Z, y, concept=concept)
    assert np.abs(whole.decision_function(Z) - oracle.decision_function(clean)).max() > 0.05


def test_a_saved_classifier_keeps_its_strength(toy, tmp_path):
    jse = clone(FAST["JSE"]).set_params(strength=0.5)
    model = RobustClassifier(jse, random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.remover_.strength_ == 0.5
    np.testing.assert_array_equal(again.predict_proba(toy.Z), model.predict_proba(toy.Z))
