"""JSE in a metric between weights and scores: the same as on transformed rows, in the coordinates of the user."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from unspur import JSE, SAL, PaperVariant, load, surgery
from unspur.datasets import make_toy
from unspur.exceptions import EmptySubspaceError, NothingRemovedWarning
from unspur.options import from_flat_parameters
from unspur.removers.direction_remover import FoldedRows
from unspur.rows import MemoryRows, RowLabels
from unspur.solvers.coordinates import Metric
from unspur.solvers.statistics import CellCounts, Moments
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

    def test_onto_the_main_task(self):
        jse = fitted(self.Z, self.y, self.c, metric=1.0, variant=PaperVariant(output="onto_main"))
        clean = jse.transform(self.Z)
        assert np.linalg.matrix_rank(clean - clean.mean(axis=0), tol=1e-6) == jse.main_.dim
        rng = np.random.default_rng(0)
        with pytest.raises(EmptySubspaceError):
            fitted(
                self.Z,
                rng.permutation(self.y),
                self.c,
                metric=1.0,
                variant=PaperVariant(output="onto_main"),
            )

    def test_rows_without_full_rank(self):
        doubled = np.hstack([self.Z, self.Z[:, :3]])
        jse = fitted(doubled, self.y, self.c, metric=1.0)
        assert jse.spurious_.dim == 1
        assert np.isfinite(jse.transform(doubled)).all()

    def test_several_concepts(self):
        both = np.column_stack([self.c, (self.Z[:, -1] > np.median(self.Z[:, -1])).astype(int)])
        jse = fitted(self.Z, self.y, both, metric=1.0)
        assert jse.spurious_.dim >= 2
        assert_allclose(jse.transform(jse.transform(self.Z)), jse.transform(self.Z), atol=1e-8)

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
    from unspur.subspace import Subspace

    Z, y, c = stretched()
    centred = Z - Z.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(Z))
    metric = Metric(
        Z.mean(axis=0), (vectors / np.sqrt(values)) @ vectors.T, (vectors * np.sqrt(values)) @ vectors.T, 1.0
    )
    sal = SAL().fit(centred @ metric.inverse_factor, y, concept=c)
    leace = LEACE().fit(Z, y, concept=c)
    assert_allclose(metric.removing(Subspace(sal.spurious_.basis))(Z), leace.transform(Z), atol=1e-8)


def test_a_removal_between_scales_far_apart_is_a_projection_to_the_last_digit():
    worst = {"factors": 0.0, "products": 0.0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = rng.standard_normal((200, 10)) * 10.0 ** rng.uniform(-4.0, 4.0, 10)
        Z[:, 5] = Z[:, 0]
        rows = MemoryRows(Z, RowLabels.of(np.arange(200) % 2, np.arange(200) // 2 % 2))
        counts = CellCounts.of(rows)
        metric = FoldedRows(rows, counts).metric(1.0)
        subspace = Subspace.spanned_by(
            metric.inverse_factor @ (metric.factor @ rng.standard_normal((10, 1)))
        )  # in their span
        removal = metric.removing(subspace)
        worst["factors"] = max(worst["factors"], abs(float((removal.left.T @ removal.right)[0, 0]) - 1.0))
        plain = (metric.factor @ subspace.basis).T @ (metric.inverse_factor @ subspace.basis)
        worst["products"] = max(worst["products"], abs(float(plain[0, 0]) - 1.0))
    assert worst["factors"] < 1e-14
    assert worst["products"] > 1e-12  # control: T and its inverse alone are not


@pytest.mark.parametrize("tau", [0.1, 0.25, 0.75])
def test_equals_the_paper_on_rows_that_are_transformed(tau):
    Z, y, c = stretched()
    held_out = dict(zip(("X_val", "y_val", "concept_val"), stretched(seed=1), strict=True))
    covariance = np.cov(Z.T, bias=True)
    values, vectors = np.linalg.eigh((1 - tau) * np.trace(covariance) / 12 * np.eye(12) + tau * covariance)
    root = vectors / np.sqrt(values) @ vectors.T
    here = JSE(metric=tau, tol=1e-8).fit(Z, y, concept=c, **held_out)
    there = JSE(metric=0.0, tol=1e-8).fit(Z @ root, y, concept=c, **{**held_out, "X_val": held_out["X_val"] @ root})
    assert here.metric_ == tau
    assert (here.spurious_.dim, here.main_.dim) == (there.spurious_.dim, there.main_.dim)
    assert here.spurious_.dim >= 1
    back = there.transform(Z @ root) @ np.linalg.inv(root)
    # Around another centre: that of rows as they come, there that of balanced groups.
    assert_allclose(here.transform(Z) - here.transform(Z)[0], back - back[0], atol=1e-5)
    paper = JSE(metric=0.0, tol=1e-8).fit(Z, y, concept=c, **held_out)  # control: it is another removal
    assert np.abs(paper.transform(Z) - here.transform(Z)).max() > 0.1


def test_no_rows_are_copied(monkeypatch):
    Z, y, c = stretched()
    widths = []
    project = MemoryRows.project
    monkeypatch.setattr(MemoryRows, "project", lambda self, v, c: widths.append(v.shape[1]) or project(self, v, c))
    JSE(metric=0.25, random_state=0).fit(Z, y, concept=c)
    assert widths
    assert max(widths) <= 10  # one direction of each label for each fold, never all twelve


def test_the_metric_can_be_chosen_by_held_out_loss(tmp_path):
    Z, y, c = stretched()
    jse = JSE(metric="auto", random_state=0).fit(Z, y, concept=c)
    assert set(jse.metric_losses_) == {0.0, 0.1, 0.25, 0.5, 0.75, 1.0}
    best, error = min(jse.metric_losses_.values())
    good = [tau for tau, (loss, _) in jse.metric_losses_.items() if loss <= best + error]
    assert jse.metric_ in good
    assert abs(jse.metric_ - 0.25) == min(abs(tau - 0.25) for tau in good)
    jse.save(tmp_path / "jse.safetensors")
    saved = load(tmp_path / "jse.safetensors")
    assert (saved.metric_, saved.metric_losses_) == (jse.metric_, jse.metric_losses_)
    again = JSE(metric=jse.metric_, random_state=0).fit(Z, y, concept=c)
    assert_allclose(again.transform(Z), jse.transform(Z))
    assert again.metric_losses_ == {}


def test_files_with_the_former_name_become_metrics():
    for name, metric in (("weights", {"metric": 0.0}), ("scores", {"metric": 1.0}), ("deprecated", {})):
        assert from_flat_parameters("JSE", {"orthogonality": name}) == metric


def test_files_with_the_former_correction_are_translated():
    assert from_flat_parameters("JSE", {"correction": "looks"}) == {"correction": "familywise"}
    assert from_flat_parameters("JSE", {"correction": "none"}) == {"correction": "none"}


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


def test_metrics_that_are_tried_share_their_second_moments(monkeypatch):
    toy, made = make_toy(600, d=6, rho=0.5, random_state=0), []
    original = Moments.of.__func__

    def counted(cls, *given, **more):
        made.append(cls)
        return original(cls, *given, **more)

    monkeypatch.setattr(Moments, "of", classmethod(counted))
    counts = {}
    for metric in (0.25, "auto"):
        made.clear()
        JSE(metric=metric, random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
        counts[metric] = len(made)
    assert counts == {0.25: 2, "auto": 2}  # of all rows for the metric, and of balanced groups for the solver
