"""`strength` of a remover: how much of the removal is applied, everywhere that a removal goes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from tests.probing import quick_probes
from tests.removers.test_contract import FAST
from unspur import ERM, LEACE, SAL, GroupWeighted, RobustClassifier, load
from unspur.datasets import make_toy
from unspur.exceptions import NothingRemovedWarning
from unspur.subspace import AffineMap

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


def test_a_file_has_the_strength(pair, toy, tmp_path):
    _, part = pair
    part.save(tmp_path / "part.safetensors")
    again = load(tmp_path / "part.safetensors")
    assert again.strength == again.strength_ == ALPHA
    np.testing.assert_array_equal(again.transform(toy.Z), part.transform(toy.Z))


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
