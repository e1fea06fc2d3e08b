import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

from tests.surgery.maps import KINDS, D, error, make, rows
from unspur import JSE, LEACE, RobustClassifier, surgery
from unspur.datasets import make_toy
from unspur.exceptions import InputError, OutputExistsError


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_inputs()] == ["rows"]
    (output,) = session.run(None, {"rows": x.astype(np.float32)})
    assert output.dtype == np.float32
    return output


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_computes_the_map(kind, tmp_path):
    removal, path = make(kind), tmp_path / "removal.onnx"
    surgery.to_onnx(removal, path)
    for n in (1, 17):  # the batch axis is free
        x = rows(n, D, seed=n)
        assert error(run(path, x), removal(x)) < 1e-5
        assert error(x, removal(x)) > 1e-2  # control
    assert [file.name for file in tmp_path.iterdir()] == ["removal.onnx"]
    assert all(0 not in constant.dims for constant in onnx.load(path).graph.initializer)


def test_a_fitted_remover_with_its_head(tmp_path):
    toy = make_toy(2000, rho=0.8, random_state=0)
    jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    head = LogisticRegression().fit(toy.Z, toy.y)  # on raw rows, so that the removal matters to it
    surgery.to_onnx(jse, tmp_path / "jse.onnx")
    assert error(run(tmp_path / "jse.onnx", toy.Z), jse.transform(toy.Z)) < 1e-5
    surgery.to_onnx(jse, tmp_path / "scores.onnx", head=head)
    expected = head.decision_function(jse.transform(toy.Z))[:, None]
    assert error(run(tmp_path / "scores.onnx", toy.Z), expected) < 1e-5
    assert error(head.decision_function(toy.Z)[:, None], expected) > 1e-2  # control
    assert len(onnx.load(tmp_path / "scores.onnx").graph.node) == 1


def test_heads_of_other_kinds_and_pipelines_before_them(tmp_path):
    x = rows(300, D)
    y = np.digitize(x[:, 0], [1.5, 2.5])
    removal = make("oblique remove", 7)
    pca = PCA(7).fit(x)
    clean = removal(pca.transform(x))
    three = LogisticRegression(max_iter=1000).fit(clean, y)
    number = Ridge().fit(clean, x[:, 0])
    layer = torch.nn.Linear(7, 4, dtype=torch.float64)
    for name, head, expected in (
        ("three", three, three.decision_function(clean)),
        ("number", number, number.predict(clean)[:, None]),
        ("torch", layer, layer(torch.from_numpy(clean)).detach().numpy()),
    ):
        path = tmp_path / f"{name}.onnx"
        surgery.to_onnx(make_pipeline(pca), path, head=surgery.fold(removal, head))
        assert error(run(path, x), expected) < 1e-5


def test_a_pipeline_that_ends_in_a_linear_model_is_its_own_head(tmp_path):
    toy = make_toy(600, rho=0.8, random_state=0)
    jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    pipe = make_pipeline(jse, LogisticRegression().fit(jse.transform(toy.Z), toy.y))
    surgery.to_onnx(pipe, tmp_path / "a.onnx")
    assert error(run(tmp_path / "a.onnx", toy.Z), pipe.decision_function(toy.Z)[:, None]) < 1e-5
    for alone in (pipe[-1], make_pipeline(PCA(2).fit(toy.Z), jse)):
        with pytest.raises(InputError, match="AffineMap"):
            surgery.to_onnx(alone, tmp_path / "b.onnx")


def test_existing_files_are_kept(tmp_path):
    path = tmp_path / "removal.onnx"
    path.write_text("mine")
    with pytest.raises(OutputExistsError):
        surgery.to_onnx(make("remove"), path)
    assert path.read_text() == "mine"
    surgery.to_onnx(make("remove"), path, overwrite=True)
    assert error(run(path, rows(3, D)), make("remove")(rows(3, D))) < 1e-5


def test_nothing_is_written_when_the_model_cannot_be_made(tmp_path):
    with pytest.raises(InputError, match="Ridge"):
        surgery.to_onnx(Ridge().fit(np.eye(3), np.arange(3.0)), tmp_path / "a.onnx")
    with pytest.raises(InputError, match="width 3"):
        surgery.to_onnx(make("remove"), tmp_path / "a.onnx", head=torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match="not fitted"):
        surgery.to_onnx(JSE(), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_is_one_product(classes, tmp_path):
    toy = make_toy(1200, rho=0.7, random_state=0)
    y = toy.y + (classes == 3) * (toy.y & (toy.Z[:, 1] > 0))
    model = RobustClassifier(LEACE(), random_state=0).fit(toy.Z, y, concept=toy.concept)
    surgery.to_onnx(model, tmp_path / "scores.onnx")
    expected = model.decision_function(toy.Z).reshape(len(y), -1)
    assert error(run(tmp_path / "scores.onnx", toy.Z), expected) < 1e-5
    assert len(onnx.load(tmp_path / "scores.onnx").graph.node) == 1
    with_head = model.remover_.transform(toy.Z) @ np.ones(
        (toy.Z.shape[1], 1)
    )  # the removal alone, before another layer
    surgery.to_onnx(model, tmp_path / "other.onnx", head=Ridge(alpha=1e-9).fit(toy.Z, toy.Z.sum(axis=1)))
    assert error(run(tmp_path / "other.onnx", toy.Z), with_head) < 1e-4
