"""JSE in a metric between weights and scores: the same as on transformed rows, in the coordinates of the user."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from unspur import JSE, SAL, load, surgery
from unspur.datasets import make_toy
from unspur.exceptions import NothingRemovedWarning
from unspur.solvers.coordinates import Metric
from unspur.subspace import Subspace


def stretched(n=1500, seed=0, rho=0.4):
    """Toy seen through a map that makes its features correlated and of very different size."""
    rng = np.random.default_rng(7)
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0] * np.geomspace(0.1, 10.0, 12)
    toy = make_toy(n, d=12, rho=rho, random_state=seed)
    return toy.Z @ turn + 3.0, toy.y, toy.concept


def fitted(Z, y, c, **options):
    return JSE(random_state=0, cv=0.2, **options).fit(Z, y, concept=c)


class TestScores:
    Z, y, c = stretched()

    def test_equals_the_method_on_whitened_rows(self):
        here = fitted(self.Z, self.y, self.c, metric=1.0)
        # Rows that are held out do not decide how rows are whitened; which they are does not depend on Z.
        pca = PCA(whiten=True).fit(self.Z)
        there = fitted(pca.transform(self.Z), self.y, self.c)
        assert (here.spurious_.dim, here.main_.dim) == (there.spurious_.dim, there.main_.dim) == (1, 1)
        scores = [
            f.removal_.right[:, 0] @ (z - z.mean(axis=0)).T for f, z in ((here, self.Z), (there, pca.transform(self.Z)))
        ]
        assert abs(np.corrcoef(*scores)[0, 1]) > 0.999

    def test_scores_are_uncorrelated_over_the_training_rows_and_the_weights_need_not_be_orthogonal(self):
        held_out = dict(zip(("X_val", "y_val", "concept_val"), stretched(seed=1), strict=True))
        for kind, uncorrelated in ((1.0, True), (0.0, False)):
            jse = JSE(metric=kind).fit(self.Z, self.y, concept=self.c, **held_out)
            spurious, main = (self.Z @ part.basis[:, 0] for part in (jse.spurious_, jse.main_))
            assert (abs(np.corrcoef(spurious, main)[0, 1]) < 1e-6) == uncorrelated
            assert (abs(jse.spurious_.basis[:, 0] @ jse.main_.basis[:, 0]) < 1e-9) == (not uncorrelated)

    def test_what_is_left_does_not_vary_along_the_removed_score(self):
        jse = fitted(self.Z, self.y, self.c, metric=1.0)
        left = (jse.transform(self.Z) - jse.removal_.centre) @ jse.removal_.right
        assert np.abs(left).max() < 1e-9 * np.abs((self.Z - jse.removal_.centre) @ jse.removal_.right).max()
        assert_allclose(jse.transform(jse.transform(self.Z)), jse.transform(self.Z), atol=1e-9)

    def test_any_invertible_map_of_the_rows_gives_the_same_removal(self):
        """Which orthogonal weights do not: they depend on the units of the features."""
        shape = np.diag(np.geomspace(1.0, 50.0, 12))
        same, other = (
            [
                fitted(Z, self.y, self.c, penalty=0.01, max_spurious=1, metric=kind).removal_(Z) @ back
                for Z, back in ((self.Z, np.eye(12)), (self.Z @ shape, np.linalg.inv(shape)))
            ]
            for kind in (1.0, 0.0)
        )
        assert np.abs(same[0] - same[1]).max() < 1e-3 * np.abs(self.Z).max()
        assert np.abs(other[0] - other[1]).max() > 1e-2 * np.abs(self.Z).max()

    def test_rows_without_full_rank(self):
        doubled = np.hstack([self.Z, self.Z[:, :3]])
        jse = fitted(doubled, self.y, self.c, metric=1.0)
        assert jse.spurious_.dim == 1
        assert np.isfinite(jse.transform(doubled)).all()

    def test_is_saved_and_folded(self, tmp_path):
        from sklearn.linear_model import LogisticRegression

        jse = fitted(self.Z, self.y, self.c, metric=1.0)
        jse.save(tmp_path / "jse.safetensors")
        assert_allclose(load(tmp_path / "jse.safetensors").transform(self.Z), jse.transform(self.Z))
        head = LogisticRegression(solver="newton-cholesky").fit(jse.transform(self.Z), self.y)
        assert_allclose(
            surgery.fold(jse, head).decision_function(self.Z), head.decision_function(jse.transform(self.Z)), atol=1e-8
        )


def test_the_frame_turns_sal_into_leace():
    """An oracle for the coordinates: LEACE is SAL on whitened rows."""
    from unspur import LEACE

    Z, y, c = stretched()
    centred = Z - Z.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(Z))
    metric = Metric(
        Z.mean(axis=0), (vectors / np.sqrt(values)) @ vectors.T, (vectors * np.sqrt(values)) @ vectors.T, 1.0
    )
    sal = SAL().fit(centred @ metric.inverse_factor, y, concept=c)
    leace = LEACE().fit(Z, y, concept=c)
    assert_allclose(metric.removing(Subspace(sal.spurious_.basis))(Z), leace.transform(Z), atol=1e-8)


@pytest.mark.parametrize("tau", [0.1, 0.25, 0.75])
def test_equals_the_paper_on_rows_that_are_transformed(tau):
    Z, y, c = stretched()
    held_out = dict(zip(("X_val", "y_val", "concept_val"), stretched(seed=1), strict=True))
    covariance = np.cov(Z.T, bias=True)
    values, vectors = np.linalg.eigh((1 - tau) * np.trace(covariance) / 12 * np.eye(12) + tau * covariance)
    root = vectors / np.sqrt(values) @ vectors.T
    here = JSE(metric=tau).fit(Z, y, concept=c, **held_out)
    there = JSE(metric=0.0).fit(Z @ root, y, concept=c, **{**held_out, "X_val": held_out["X_val"] @ root})
    assert here.metric_ == tau
    assert (here.spurious_.dim, here.main_.dim) == (there.spurious_.dim, there.main_.dim)
    assert here.spurious_.dim >= 1
    back = there.transform(Z @ root) @ np.linalg.inv(root)
    # Around another centre: that of rows as they come, there that of balanced groups.
    assert_allclose(here.transform(Z) - here.transform(Z)[0], back - back[0], atol=1e-5)
    paper = JSE(metric=0.0).fit(Z, y, concept=c, **held_out)  # control: it is another removal
    assert np.abs(paper.transform(Z) - here.transform(Z)).max() > 0.1


@pytest.mark.parametrize("tau", [-0.1, 1.1, "scores", None])
def test_a_metric_lies_between_0_and_1(tau):
    Z, y, c = stretched(200)
    with pytest.raises(ValueError, match=r"'metric' parameter of JSE must be .*\[0.0, 1.0\]"):
        JSE(metric=tau).fit(Z, y, concept=c)


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_rows_along_one_line_are_refused(tau):
    _, y, c = stretched(400)
    Z = np.outer(np.random.default_rng(0).standard_normal(400) + y + c, np.arange(1.0, 6.0))
    with pytest.raises(ValueError, match="needs two free dimensions"):
        JSE(metric=tau, random_state=0).fit(Z, y, concept=c)


def test_a_column_of_another_scale_hides_the_rest_unless_scores_are_compared():
    toy = make_toy(3000, d=8, rho=0.5, random_state=1)
    Z = np.column_stack([toy.Z, 1e5 * np.random.default_rng(0).standard_normal(3000)])
    jse = JSE(metric=1.0, random_state=0).fit(Z, toy.y, concept=toy.concept)
    assert jse.spurious_.dim == 1
    assert abs(jse.spurious_.basis[0, 0]) > 0.9
    assert np.isfinite(jse.transform(Z)).all()
    with pytest.warns(NothingRemovedWarning):  # never in silence
        JSE(metric=0.25, random_state=0).fit(Z, toy.y, concept=toy.concept)
