import copy
import subprocess
import sys

import numpy as np
import pandas
import pytest
import sklearn
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR

from tests.optional import torch
from tests.surgery.maps import KINDS, D, error, make, rows
from unspur import JSE, LEACE, RobustClassifier, load, surgery
from unspur.datasets import make_toy
from unspur.exceptions import InputError
from unspur.heads import GroupDRO

#: What float32 and float64 promise, relative to the largest score.
TOLERANCE = {"float32": 1e-6, "float64": 1e-13}


@pytest.fixture(scope="module")
def toy():
    return make_toy(2000, rho=0.8, random_state=0)


@pytest.fixture(scope="module")
def fitted(toy):
    """Raw rows (n, 40) in which Toy is a subspace, and a pipeline fitted on them the way users fit one."""
    rng = np.random.default_rng(2)
    raw = toy.Z @ np.linalg.qr(rng.standard_normal((40, 20)))[0].T + rng.standard_normal(40)
    pipeline = make_pipeline(PCA(20, whiten=True), JSE(random_state=0), StandardScaler(), LogisticRegression())
    with sklearn.config_context(enable_metadata_routing=True):
        return raw, pipeline.fit(raw, toy.y, concept=toy.concept)


def linear(dtype="float32", *, bias=True, n_in=D):
    torch.manual_seed(0)
    return torch.nn.Linear(n_in, 5, bias=bias, dtype=getattr(torch, dtype))


def scores(head, x):
    return head.decision_function(x) if hasattr(head, "decision_function") else head.predict(x)


class TestTorch:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("bias", [True, False])
    def test_folded_layer_equals_removal_and_layer(self, kind, dtype, bias):
        removal, layer = make(kind), linear(dtype, bias=bias)
        before = copy.deepcopy(layer.state_dict())
        folded = surgery.fold(removal, layer)
        assert type(folded) is torch.nn.Linear
        assert {folded.weight.dtype, folded.bias.dtype} == {getattr(torch, dtype)}
        x = torch.from_numpy(rows(50, D)).to(layer.weight.dtype)
        with torch.no_grad():
            expected = copy.deepcopy(layer).double()(torch.from_numpy(removal(x.double().numpy())))
            assert error(folded(x), expected) < TOLERANCE[dtype]
            assert error(layer(x), expected) > 1e-2  # control: the layer alone is something else
            assert error(folded.weight.double() @ x.double().T, expected.T) > 1e-3  # control: the bias matters
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())

    def test_weights_that_do_not_fit_the_type_of_the_layer_are_an_error(self):
        removal, layer = make("oblique remove"), linear("float16")
        with torch.no_grad():
            layer.weight.copy_(6e4 * torch.sign(layer.weight))
        with pytest.raises(InputError, match="float16"):
            surgery.fold(removal, layer)
        assert torch.isfinite(surgery.fold(removal, layer.float()).weight).all()

    def test_bfloat16_is_rounded_once(self):
        removal, layer = make("oblique remove"), linear("bfloat16")
        folded = surgery.fold(removal, layer)
        exact = surgery.fold(removal, copy.deepcopy(layer).double())
        assert torch.equal(folded.weight, exact.weight.bfloat16())
        assert not torch.equal(folded.weight, layer.weight)

    def test_scikit_learn_steps_fold_into_a_torch_layer(self):
        x = rows(200, D).astype(np.float32)
        pca = PCA(7).fit(x)
        layer = linear(n_in=7)
        folded = surgery.fold(pca, make("remove", 7), layer)
        expected = layer(torch.from_numpy(make("remove", 7)(pca.transform(x))))
        assert folded.in_features == D
        assert error(folded(torch.from_numpy(x)).detach(), expected.detach()) < 1e-5

    def test_layers_with_hooks_are_refused(self):
        hooked = linear()
        surgery.fold(make("remove"), hooked)  # the control
        hooked.register_forward_hook(lambda *call: 2 * call[2])
        with pytest.raises(InputError, match="hooks"):
            surgery.fold(make("remove"), hooked)

    def test_layers_that_compute_something_else_are_refused(self):
        class Scaled(torch.nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        for layer in (Scaled(D, 2), torch.nn.Conv1d(D, 2, 1), torch.nn.Sequential(linear())):
            with pytest.raises(InputError, match="Linear"):
                surgery.fold(make("remove"), layer)
        for layer in (torch.nn.LazyLinear(2), torch.nn.Linear(D, 2, device="meta")):
            with pytest.raises(InputError, match="no weights yet"):
                surgery.fold(make("remove"), layer)

    def test_parametrised_weights_fold_as_they_act(self):
        layer = torch.nn.utils.parametrizations.spectral_norm(linear("float64")).eval()
        x = torch.from_numpy(rows(20, D))
        folded, expected = surgery.fold(make("keep"), layer), layer(torch.from_numpy(make("keep")(x.numpy())))
        assert error(folded(x).detach(), expected.detach()) < 1e-12


HEADS = {
    "logistic, two classes": (LogisticRegression(max_iter=1000), "two"),
    "logistic, three classes": (LogisticRegression(max_iter=1000), "three"),
    "logistic without intercept": (LogisticRegression(max_iter=1000, fit_intercept=False), "three"),
    "linear svc": (LinearSVC(), "two"),
    "linear svc, three classes": (LinearSVC(), "three"),
    "ridge classifier": (RidgeClassifier(), "three"),
    "sgd classifier": (SGDClassifier(random_state=0), "three"),
    "linear regression": (LinearRegression(), "number"),
    "linear regression without intercept": (LinearRegression(fit_intercept=False), "number"),
    "linear regression, two targets": (LinearRegression(), "numbers"),
    "ridge": (Ridge(), "number"),
    "lasso": (Lasso(0.01), "number"),
    "linear svr": (LinearSVR(C=0.01, max_iter=50_000, random_state=0), "number"),
    "sgd regressor": (SGDRegressor(random_state=0, eta0=1e-3), "number"),
}


def targets(x):
    noise = np.random.default_rng(9).standard_normal((len(x), 2))
    numbers = x[:, :2] + x[:, 2:4] + noise
    number = numbers[:, 0]
    labels = np.array(["a", "b", "c"])
    return {
        "two": (number > np.median(number)).astype(int),
        "three": labels[np.digitize(number, np.quantile(number, [0.3, 0.6]))],
        "number": number,
        "numbers": numbers,
    }


class TestScikitLearn:
    @pytest.mark.parametrize("name", HEADS)
    @pytest.mark.parametrize("kind", ["remove", "keep", "oblique remove"])
    def test_folded_model_equals_removal_and_model(self, name, kind):
        removal, x = make(kind), rows(300, D)
        x[:, :4] *= 3.0
        head, target = HEADS[name]
        y = targets(x)[target]
        clean = removal(x)
        head = sklearn.clone(head).fit(x, y)  # on raw rows: fitted on clean ones, some would not need the removal
        before = head.coef_.copy(), copy.copy(head.intercept_)
        folded = surgery.fold(removal, head)
        assert type(folded) is type(head)
        assert folded.coef_.shape == head.coef_.shape
        assert error(scores(folded, x), scores(head, clean)) < 1e-12
        assert error(scores(head, x), scores(head, clean)) > 1e-2  # control
        if target in ("two", "three"):
            np.testing.assert_array_equal(folded.predict(x), head.predict(clean))
        if hasattr(head, "predict_proba") and target != "number" and "sgd" not in name:
            np.testing.assert_allclose(folded.predict_proba(x), head.predict_proba(clean), atol=1e-12)
        assert np.array_equal(head.coef_, before[0])
        assert np.array_equal(head.intercept_, before[1])

    @pytest.mark.parametrize(
        "step",
        [
            PCA(6),
            PCA(6, whiten=True),
            IncrementalPCA(6, whiten=True),
            TruncatedSVD(6),
            StandardScaler(),
            StandardScaler(with_mean=False),
            StandardScaler(with_std=False),
            PCA(svd_solver="covariance_eigh", whiten=True),
        ],
        ids=str,
    )
    def test_every_step_before_the_removal_folds(self, step):
        x = rows(300, D) * np.linspace(0.5, 3.0, D)
        step = sklearn.clone(step).fit(x)
        z = step.transform(x)
        removal = make("oblique remove", z.shape[1])
        head = LogisticRegression(max_iter=1000).fit(removal(z), targets(x)["three"])
        folded = surgery.fold(step, removal, head)
        assert folded.n_features_in_ == D
        expected = head.decision_function(removal(z))
        assert error(folded.decision_function(x), expected) < 1e-10
        without = surgery.fold(step, head)  # control: the removal does something here
        assert error(without.decision_function(x), expected) > 1e-2

    def test_removals_chain(self):
        x, first, second = rows(50, D), make("remove"), make("oblique keep")
        head = Ridge().fit(x, x[:, 0])
        expected = head.predict(second(first(x)))
        assert error(surgery.fold(first, second, head).predict(x), expected) < 1e-12
        assert error(surgery.fold(second, first, head).predict(x), expected) > 1e-2  # control: order matters


class TestEndToEnd:
    def test_a_fitted_pipeline_becomes_one_layer_on_raw_rows(self, fitted):
        x, fitted = fitted
        assert fitted.named_steps["jse"].spurious_.dim >= 1
        folded = surgery.fold(fitted)
        expected = fitted.decision_function(x)
        assert folded.coef_.shape == (1, 40)
        assert error(folded.decision_function(x), expected) < 1e-10
        np.testing.assert_array_equal(folded.predict(x), fitted.predict(x))
        pca, jse, scaler, head = (step for _, step in fitted.steps)
        assert error(surgery.fold(pca, jse.removal_, fitted[2:]).decision_function(x), expected) < 1e-10
        # Control: without the removal, or in another order, it is another model.
        assert error(surgery.fold(pca, scaler, head).decision_function(x), expected) > 1e-2
        assert error(surgery.fold(pca, scaler, jse, head).decision_function(x), expected) > 1e-3

    def test_the_folded_head_does_not_see_the_concept(self, toy):
        jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
        head = LogisticRegression().fit(jse.transform(toy.Z), toy.y)
        direction = jse.removal_.left[:, 0]  # along which rows are moved
        assert abs(surgery.fold(jse, head).coef_ @ direction)[0] < 1e-12
        plain = LogisticRegression().fit(toy.Z, toy.y)
        assert abs(plain.coef_ @ direction)[0] > 1e-2

    def test_names_of_columns_are_those_of_the_raw_rows(self, toy):
        import pandas as pd

        frame = pd.DataFrame(toy.Z, columns=[f"unit {i}" for i in range(toy.Z.shape[1])])
        with sklearn.config_context(enable_metadata_routing=True):
            pipeline = make_pipeline(PCA(), JSE(random_state=0), LogisticRegression()).set_output(transform="pandas")
            pipeline.fit(frame, toy.y, concept=toy.concept)
        folded = surgery.fold(pipeline)
        assert list(folded.feature_names_in_) == list(frame.columns)
        assert error(folded.decision_function(frame), pipeline.decision_function(frame)) < 1e-10
        named = LogisticRegression().fit(frame, toy.y)
        assert list(surgery.fold(make("remove", 20), named).feature_names_in_) == list(frame.columns)
        assert not hasattr(surgery.fold(PCA(20).fit(toy.Z), named), "feature_names_in_")

    def test_steps_that_were_fitted_on_other_columns_are_refused(self, toy):
        frame = pandas.DataFrame(toy.Z[:300]).add_prefix("z")
        y, concept, moved = toy.y[:300], toy.concept[:300], frame[frame.columns[::-1]]
        leace = LEACE().fit(frame, y, concept=concept)
        head, moved_head = (LogisticRegression().fit(rows, y) for rows in (frame, moved))
        moved_scaler, moved_pca = StandardScaler().fit(moved), PCA().fit(moved)
        for steps in ((leace, moved_head), (leace, leace.removal_, moved_head), (moved_scaler, leace, head)):
            with pytest.raises(InputError, match="columns"):
                surgery.fold(*steps)
        surgery.fold(moved_pca, leace, head)  # other features before it than after it


class TestErrors:
    def test_width_mismatch_names_both_sides(self):
        x = rows(50, D)
        head = Ridge().fit(x[:, :7], x[:, 0])
        with pytest.raises(InputError, match="24, but Ridge"):
            surgery.fold(make("remove"), head)
        with pytest.raises(InputError, match="5, but AffineMap"):
            surgery.fold(PCA(5).fit(x), make("remove"), linear())
        surgery.fold(PCA(7).fit(x), head)  # control

    @pytest.mark.parametrize(
        "steps",
        [
            (JSE(), Ridge()),
            (PCA(), Ridge()),
            (StandardScaler(), Ridge().fit(np.eye(D), np.arange(D))),
            (make("remove"), LogisticRegression()),
        ],
        ids=["remover", "pca", "scaler", "head"],
    )
    def test_unfitted_steps(self, steps):
        with pytest.raises(NotFittedError):
            surgery.fold(*steps)

    def test_steps_that_cannot_be_folded(self):
        class Clipping(PCA):
            def transform(self, X):
                return np.clip(super().transform(X), -1, 1)

        x = rows(50, D)
        steps = (
            (),
            (make("remove"),),
            (linear(),),
            (linear(), make("remove", 5)),
            (PolynomialFeatures().fit(x), linear()),
            (Clipping(D).fit(x), linear()),
        )
        for one in steps:
            with pytest.raises(InputError):
                surgery.fold(*one)
        surgery.fold(PCA(D).fit(x), linear())  # the control

    def test_last_steps_that_are_not_linear_layers(self):
        x, removal = rows(80, D), make("remove")
        y, number = targets(x)["two"], np.abs(x[:, 0])
        for head, word in (
            (PCA(3).fit(x), "PCA"),
            (removal, "AffineMap"),
            (LinearDiscriminantAnalysis().fit(x, y), "only predicts"),
            (GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2).fit(x, number), "best_estimator_"),
            (PLSRegression(2).fit(x, number), "only predicts"),
            (PoissonRegressor(max_iter=1000).fit(x, number), "PoissonRegressor"),
            (SVC(kernel="linear").fit(x, y), "cannot be set"),
        ):
            with pytest.raises(InputError, match=word):
                surgery.fold(removal, head)
        best = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2).fit(x, number).best_estimator_
        surgery.fold(removal, best)  # control: what the message says to do works

    def test_a_model_that_centres_its_rows_is_noticed(self):
        class Centred(Ridge):
            def predict(self, X):
                return super().predict(X - 1.0)

        x = rows(80, D)
        with pytest.raises(InputError, match=r"is not x @ coef_\.T"):
            surgery.fold(make("remove"), Centred().fit(x, x[:, 0]))


def test_importing_surgery_loads_neither_torch_nor_onnx():
    pytest.importorskip("torch")  # which is loaded in the end
    code = """
import sys, numpy as np, unspur
from unspur import surgery
from sklearn.linear_model import Ridge
head = Ridge().fit(np.eye(3), np.arange(3.0))
surgery.fold(unspur.AffineMap.removing(unspur.Subspace.spanned_by(np.ones((3, 1))), np.zeros(3)), head)
print([m for m in ("torch", "onnx", "onnxruntime") if m in sys.modules])
removal = unspur.AffineMap.removing(unspur.Subspace.spanned_by(np.ones((3, 1))), np.zeros(3))
surgery.as_module(removal)
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"]


@pytest.mark.parametrize("head", [None, GroupDRO()], ids=["GroupWeighted", "GroupDRO"])
def test_a_classifier_is_a_removal_and_a_layer(toy, head, tmp_path):
    frame = pandas.DataFrame(toy.Z, columns=[f"f{i}" for i in range(toy.Z.shape[1])])
    model = RobustClassifier(LEACE(), head, random_state=0).fit(frame, toy.y, concept=toy.concept)
    model.save(tmp_path / "model.safetensors")
    for one in (model, load(tmp_path / "model.safetensors")):
        layer = surgery.fold(one)
        assert not hasattr(layer, "removal_")
        assert type(layer) is type(model.head_)
        assert list(layer.feature_names_in_) == list(frame.columns)
        np.testing.assert_allclose(layer.decision_function(frame), model.decision_function(frame), atol=1e-12)
        np.testing.assert_array_equal(layer.predict(frame), model.predict(frame))
        clean = pandas.DataFrame(model.remover_.transform(frame), columns=frame.columns)
        np.testing.assert_allclose(layer.decision_function(clean), model.decision_function(frame), atol=1e-9)


def test_a_classifier_after_other_steps(toy):
    scaler = StandardScaler().fit(toy.Z)
    model = RobustClassifier(LEACE(), random_state=0).fit(scaler.transform(toy.Z), toy.y, concept=toy.concept)
    expected = model.decision_function(scaler.transform(toy.Z))
    for steps in ((scaler, model), (make_pipeline(scaler, model),)):
        np.testing.assert_allclose(surgery.fold(*steps).decision_function(toy.Z), expected, atol=1e-10)
    with pytest.raises(NotFittedError):
        surgery.fold(RobustClassifier())
