"""Fold removals into weights, so that the deployed model costs nothing extra; and ONNX.

Each step before the last layer is affine, ``z = x M + t`` on rows. A layer ``z Wᵀ + b`` after it equals the layer
``x W'ᵀ + b'`` before it with ``W' = W Mᵀ`` and ``b' = b + W t``; each kind of step computes both from its own factors.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unspur._extras import require
from unspur._files import atomic
from unspur._typing import Array, FloatArray
from unspur._version import __version__
from unspur.exceptions import InputError
from unspur.subspace import AffineMap
from unspur.surgery.hooks import as_removal

if TYPE_CHECKING:
    import onnx

#: Weights (m, d) and bias (m,) of a linear layer.
Layer: TypeAlias = tuple[FloatArray, FloatArray]
#: Versions that current runtimes read; the defaults of onnx are newer than onnxruntime accepts.
OPSET, IR_VERSION = 21, 10


class Stage(NamedTuple):
    """Affine step to rows of width `n_out`; `back` pulls a layer through it."""

    name: str
    n_out: int
    back: Callable[[FloatArray, FloatArray], Layer]


def is_robust_classifier(thing: Any) -> bool:
    """Whether `thing` is a fitted classifier with a removal of its own and a `head_` on raw rows."""
    if not hasattr(type(thing), "removal_"):  # removers get theirs when they are fitted
        return False
    check_is_fitted(thing, "coef_")
    return True


def flatten(steps: tuple[Any, ...]) -> Iterator[Any]:
    """The steps in order, with pipelines expanded and "passthrough" left out."""
    from sklearn.pipeline import Pipeline

    for step in steps:
        if isinstance(step, Pipeline):
            yield from flatten(tuple(inner for _, inner in step.steps if inner not in (None, "passthrough")))
        else:
            yield step


def as_stage(step: Any) -> Stage:
    """A removal, or a fitted scikit-learn transformer that is affine, as a `Stage`."""
    from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
    from sklearn.preprocessing import StandardScaler

    if isinstance(step, BaseEstimator):
        check_is_fitted(step)
    name = type(step).__name__
    if isinstance(step, AffineMap) or isinstance(getattr(step, "removal_", None), AffineMap):
        removal = as_removal(step)
        return Stage(name, removal.ambient, removal.fold_into)
    kind = next((kind for kind in (PCA, IncrementalPCA, TruncatedSVD, StandardScaler) if isinstance(step, kind)), None)
    if kind is None or type(step).transform is not kind.transform:
        raise InputError(
            f"A {name} cannot be folded. Steps before the last layer are an AffineMap, a fitted remover, PCA, "
            "IncrementalPCA, TruncatedSVD or StandardScaler. Apply other steps to the rows first."
        )
    if kind is StandardScaler:
        matrix = np.diag(1.0 / step.scale_) if step.with_std else np.eye(step.n_features_in_)
        mean = step.mean_ if step.with_mean else None
    else:
        scale = np.ones(len(step.components_))
        if getattr(step, "whiten", False):
            # The same floor as scikit-learn's: components without variance are not blown up.
            scale = np.maximum(np.sqrt(step.explained_variance_), np.finfo(step.explained_variance_.dtype).eps)
        matrix, mean = step.components_ / scale[:, None], getattr(step, "mean_", None)
    matrix = np.asarray(matrix, dtype=np.float64)

    def back(weight: FloatArray, bias: FloatArray) -> Layer:
        weight = weight @ matrix
        return weight, bias if mean is None else bias - weight @ np.asarray(mean, dtype=np.float64)

    return Stage(name, len(matrix), back)


def fold(*steps: Any) -> Any:
    """One linear layer on raw rows that equals all `steps` one after the other; nothing passed is changed.

    ``scores = z Wᵀ + b`` after ``z = x − (x − c) R Lᵀ`` is the layer ``W' = W − (W L) Rᵀ``, ``b' = b + (W L)(Rᵀ c)``.
    Computed in float64 and rounded once, to the dtype of the last layer.

    Parameters
    ----------
    *steps :
        In the order that rows pass through them. First any number of removals (AffineMap or fitted remover) and fitted
        PCA, IncrementalPCA, TruncatedSVD or StandardScaler; last the linear layer: a ``torch.nn.Linear``, a ``Conv1D``
        of transformers, or a fitted scikit-learn model that scores rows by ``x @ coef_.T + intercept_``. Fitted
        pipelines stand for their steps. A fitted `RobustClassifier` is a removal and a layer, and may be the only step.

    Returns
    -------
    The same kind of layer as the last step. A ``torch.nn.Linear`` keeps dtype, device and ``requires_grad``, and always
    has a bias. A scikit-learn model is a fitted copy: `coef_`, `intercept_`, `n_features_in_` and `feature_names_in_`
    are those of the folded model, other attributes still describe the original fit.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from unspur import JSE, surgery
    >>> from unspur.datasets import make_toy
    >>> train = make_toy(2000, rho=0.8, random_state=0)
    >>> jse = JSE(random_state=0).fit(train.Z, train.y, concept=train.concept)
    >>> head = LogisticRegression().fit(jse.transform(train.Z), train.y)
    >>> surgery.fold(jse, head).predict(train.Z[:3])  # raw rows in
    array([0, 1, 0])
    """
    before, last, (weight, bias) = _folded(steps)
    if _is_torch_module(last):
        return _write_torch(last, weight, bias)
    # A bare AffineMap has no names for its columns, and does not change them: those of the next step hold.
    first = next(step for step in (*before, last) if not isinstance(step, AffineMap))
    return _write_sklearn(last, weight, bias, getattr(first, "feature_names_in_", None))


def folded_weights(*steps: Any) -> Layer:
    """Weights (m, d) and bias (m,), in float64, of the layer that `fold` makes of the same steps."""
    return _folded(steps)[2]


def _folded(steps: tuple[Any, ...]) -> tuple[list[Any], Any, Layer]:
    """The steps before the last layer, that layer, and its weights pulled back through all of them."""
    *before, last = list(flatten(steps)) or [None]
    classifier = is_robust_classifier(last)
    if not before and not classifier:
        got = ", ".join(type(step).__name__ for step in steps) or "none"
        inner = " Pass its best_estimator_." if hasattr(last, "best_estimator_") else ""
        raise InputError(f"fold needs two steps or more, the last of them the linear layer; got {got}.{inner}")
    layer = last.head_ if classifier else last
    weight, bias = _read_torch(layer) if _is_torch_module(layer) else _read_sklearn(layer)
    name = type(layer).__name__
    for stage in map(as_stage, reversed(before)):
        if weight.shape[1] != stage.n_out:
            raise InputError(
                f"{stage.name} gives rows of width {stage.n_out}, but {name} after it takes width {weight.shape[1]}. "
                "Pass steps that were fitted one after the other, in the order that rows pass through them."
            )
        weight, bias = stage.back(weight, bias)
        name = stage.name
    _require_same_columns([*before, last])
    return [*before, last] if classifier else before, layer, (weight, bias)


def _require_same_columns(steps: list[Any]) -> None:
    """Raise InputError if two steps that see the same columns know other names of them."""
    known = None
    for step in steps:
        names = getattr(step, "feature_names_in_", None)
        if known is not None and names is not None and list(names) != known:
            raise InputError(f"The columns of the {type(step).__name__} are not those of the steps before it.")
        known = known if names is None else list(names)
        if hasattr(step, "components_"):  # which makes features of its own
            known = None


def _is_torch_module(layer: Any) -> bool:
    """Whether `layer` is a torch module; imports nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(layer, torch.nn.Module)


def _is_conv1d(layer: Any) -> bool:
    """Whether a layer is a ``Conv1D`` of transformers, as GPT-2 has them: a linear layer with transposed weights."""
    utils = sys.modules.get("transformers.pytorch_utils")
    return utils is not None and isinstance(layer, utils.Conv1D) and type(layer).forward is utils.Conv1D.forward


def _read_torch(layer: Any) -> Layer:
    """Weights (m, d) and bias (m,) of a torch layer, after a check that it is linear and has them."""
    import torch

    # A subclass with a forward of its own (quantised, low-rank adapters) computes something else.
    plain = isinstance(layer, torch.nn.Linear) and type(layer).forward is torch.nn.Linear.forward
    if not plain and not _is_conv1d(layer):
        raise InputError(
            f"A removal folds into a torch.nn.Linear; got a {type(layer).__module__}.{type(layer).__name__}. "
            "Pass the linear layer that rows enter next, or use as_module or attach."
        )
    if torch.nn.parameter.is_lazy(layer.weight) or layer.weight.is_meta:
        raise InputError(f"The {type(layer).__name__} has no weights yet. Run the model once, or load its weights.")
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise InputError(
            f"The {type(layer).__name__} has hooks, which may change its weights or its output when it is called. "
            "Remove them, or use torch.nn.utils.parametrizations."
        )
    weight = layer.weight.detach().cpu().double().numpy()
    weight = weight if plain else np.ascontiguousarray(weight.T)
    return weight, np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().cpu().double().numpy()


def _write_torch(like: Any, weight: FloatArray, bias: FloatArray) -> Any:
    """A new Linear, or Conv1D, with these weights, made without drawing random numbers."""
    import torch

    old, largest = like.weight, max(np.abs(values).max(initial=0.0) for values in (weight, bias))
    if largest > torch.finfo(old.dtype).max:
        raise InputError(
            f"Folded, the {type(like).__name__} has weights of up to {largest:.1e}, which do not fit its {old.dtype}. "
            "Convert it to float32 first."
        )
    if _is_conv1d(like):
        layer, weight = copy.deepcopy(like), weight.T
    else:
        n_out, n_in = weight.shape
        layer = torch.nn.Linear(n_in, n_out, device="meta", dtype=old.dtype).to_empty(device=old.device)
        layer.requires_grad_(old.requires_grad).train(like.training)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)).to(old.dtype))
        layer.bias.copy_(torch.from_numpy(bias).to(old.dtype))
    return layer


def _read_sklearn(head: Any) -> Layer:
    """Weights (m, d) and bias (m,) of a fitted linear model, after a check that its scores are linear."""
    kind = type(head).__name__
    if isinstance(head, BaseEstimator):
        check_is_fitted(head)
    score = next((name for name in ("decision_function", "predict") if hasattr(head, name)), None)
    if not hasattr(head, "coef_") or not hasattr(head, "intercept_") or score is None or hasattr(head, "transform"):
        inner = " Pass its best_estimator_." if hasattr(head, "best_estimator_") else ""
        raise InputError(
            f"The last step must be a linear layer: a torch.nn.Linear, or a fitted scikit-learn model with coef_ and "
            f"intercept_ that only predicts; got a {kind}.{inner}"
        )
    sparse_or_dense = head.coef_.toarray() if hasattr(head.coef_, "toarray") else head.coef_
    weight = np.atleast_2d(np.asarray(sparse_or_dense, dtype=np.float64))
    bias = np.array(np.broadcast_to(np.asarray(head.intercept_, dtype=np.float64), (len(weight),)))
    # Some models with these attributes do more (centre rows, apply a link): a folded copy would be wrong, silently.
    rows = np.random.default_rng(0).standard_normal((4, weight.shape[1]))
    seen = np.asarray(getattr(_without_names(head), score)(rows), dtype=np.float64).reshape(len(rows), -1)
    expected = rows @ weight.T + bias
    if seen.shape != expected.shape or not np.allclose(seen, expected, rtol=0, atol=1e-5 * np.abs(expected).max()):
        raise InputError(
            f"{kind}.{score} is not x @ coef_.T + intercept_, so nothing can be folded into it. "
            "Use a model that is linear, such as LogisticRegression, LinearSVC, Ridge or RidgeClassifier."
        )
    return weight, bias


def _without_names(head: Any) -> Any:
    """A copy without feature names."""
    plain = copy.deepcopy(head)
    if hasattr(plain, "feature_names_in_"):
        del plain.feature_names_in_
    return plain


def _write_sklearn(head: Any, weight: FloatArray, bias: FloatArray, names: Any) -> Any:
    """A fitted copy of `head` with these weights, in its dtype and number of dimensions."""
    folded = _without_names(head)
    dtype = head.coef_.dtype if head.coef_.dtype.kind == "f" else np.dtype(np.float64)
    flat = np.ndim(head.coef_) == 1
    try:
        folded.coef_ = (weight[0] if flat else weight).astype(dtype)
        folded.intercept_ = (bias[0] if flat and np.ndim(head.intercept_) == 0 else bias).astype(dtype)
    except AttributeError as error:
        raise InputError(
            f"The weights of a {type(head).__name__} are computed from others and cannot be set. "
            "Use LinearSVC or LogisticRegression."
        ) from error
    folded.n_features_in_ = weight.shape[1]
    if names is not None:
        folded.feature_names_in_ = np.array(names, dtype=object)
    return folded


def to_onnx(removal: Any, path: str | PathLike[str], *, head: Any = None, overwrite: bool = False) -> None:
    """Write a removal to an ONNX file: input "rows" (batch, d) in float32, output "cleaned" (batch, d).

    With a `head`, of a `RobustClassifier` or of a pipeline that ends in a linear model, all steps are folded into one
    product and the output is "scores" (batch, m), ``x W'ᵀ + b'``: the logits of a torch layer, the decision function of
    a classifier (m = 1 for two classes), the prediction of a regressor.

    Parameters
    ----------
    removal : AffineMap, fitted remover or fitted `RobustClassifier`, or a pipeline that ends in the latter or in a
        linear model; with a `head`, anything that `fold` takes before one.
    path : file to write, in one piece or not at all.
    head : ``torch.nn.Linear`` or fitted scikit-learn linear model that takes the cleaned rows.
    overwrite : replace an existing file.
    """
    require("ONNX files need", "onnx")
    import onnx
    from onnx.helper import make_node

    steps = (removal,) if head is None else (removal, head)
    *before, last = flatten(steps)
    if head is not None or is_robust_classifier(last) or (before and hasattr(last, "coef_")):
        weight, bias = folded_weights(*steps)
        nodes = [make_node("Gemm", ["rows", "weight", "bias"], ["scores"], transB=1)]
        model = _model(nodes, {"weight": weight, "bias": bias}, "scores", *weight.shape[::-1])
    else:
        chosen = as_removal(removal)
        # A column of zeros says the same as no column, and spares runtimes a product over an empty axis.
        zeros = np.zeros((chosen.ambient, int(not chosen.right.shape[1])))
        right, left = np.hstack([chosen.right, zeros]), np.hstack([chosen.left, zeros])
        nodes = [
            make_node("Sub", ["rows", "centre"], ["centred"]),
            make_node("MatMul", ["centred", "right"], ["coordinates"]),
            make_node("MatMul", ["coordinates", "left_t"], ["moved"]),
            make_node("Sub", ["rows", "moved"], ["image"]),
            make_node("Add", ["image", "offset"], ["cleaned"]),
        ]
        if chosen.form == "keep":
            nodes[3:] = [make_node("Add", ["moved", "offset"], ["cleaned"])]
        constants = {"centre": chosen.centre, "right": right, "left_t": left.T, "offset": chosen.offset}
        model = _model(nodes, constants, "cleaned", chosen.ambient, chosen.ambient)
    onnx.checker.check_model(model, full_check=True)
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _model(nodes: list[Any], constants: dict[str, Array], output: str, n_in: int, n_out: int) -> onnx.ModelProto:
    """A model from "rows" (batch, n_in) to `output` (batch, n_out), all in float32."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "unspur",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["batch", n_in])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", n_out])],
        [numpy_helper.from_array(np.ascontiguousarray(a, dtype=np.float32), name) for name, a in constants.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="unspur",
        producer_version=__version__,
    )
