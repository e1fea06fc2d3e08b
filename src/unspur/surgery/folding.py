"""Fold removals into weights, so that the deployed model costs nothing extra.

`fold` puts a removal, and what comes before it, into the linear layer after it; `to_onnx` exports both.

Each step before the last layer is affine, ``z = x M + t`` on rows. A layer ``z Wᵀ + b`` after it equals the layer
``x W'ᵀ + b'`` before it with ``W' = W Mᵀ`` and ``b' = b + W t``; each kind of step (`Stage`) computes both from its own
factors.

`fold_network` puts the removals of a `Scrubbing` into the weights of a network, wherever that is exact:

- *into the layer* before the removal, if that is linear or an embedding: its weights are followed by the removal;
- *into its readers*, the modules that take its output, if all are linear: their weights are preceded by the removal.

That nothing but these modules reads the output is not derived from the code of a model, but seen: the output is
replaced by random numbers, once for everyone and once for these modules only. If the model returns the same both times,
nobody else has read it. So a residual connection, or a norm, is noticed in any architecture.
"""

from __future__ import annotations

import copy
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unspur._extras import require
from unspur._files import atomic
from unspur._typing import Array, FloatArray
from unspur._validation import require_same_columns
from unspur._version import __version__
from unspur.exceptions import InputError
from unspur.subspace import AffineMap
from unspur.surgery.activations import device_of, evaluating, tensor_at
from unspur.surgery.hooks import as_removal, find_module, replaced, tensors_in

if TYPE_CHECKING:
    import onnx
    import torch

    from unspur.surgery.scrubbing import Scrubbing

#: Weights (m, d) and bias (m,) of a linear layer.
Layer: TypeAlias = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Stage:
    """Affine step from rows of width `n_in` to rows of width `n_out`; `back` pulls a layer through it.

    Its output has the columns of its input, unless it makes features of its own.
    """

    name: str
    n_in: int
    n_out: int
    back: Callable[[FloatArray, FloatArray], Layer]
    makes_features: bool = False


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
        return Stage(name, removal.ambient, removal.ambient, removal.fold_into)
    known = next((kind for kind in (PCA, IncrementalPCA, TruncatedSVD, StandardScaler) if isinstance(step, kind)), None)
    if known is not None and type(step).transform is not known.transform:
        raise InputError(
            f"A {name} cannot be folded: it is a {known.__name__} with a transform of its own. Apply it to the rows "
            "first."
        )
    if isinstance(step, (PCA, IncrementalPCA, TruncatedSVD)):
        components = np.asarray(step.components_, dtype=np.float64)
        mean, scale = getattr(step, "mean_", None), _whitening_scale(step)
        n_out, n_in = components.shape
        return Stage(name, n_in, n_out, lambda w, b: _uncentred(w / scale @ components, b, mean), makes_features=True)
    if isinstance(step, StandardScaler):
        width = int(step.n_features_in_)
        centre = step.mean_ if step.with_mean else None
        spread = np.asarray(step.scale_, dtype=np.float64) if step.with_std else np.ones(width)
        return Stage(name, width, width, lambda w, b: _uncentred(w / spread, b, centre))
    raise InputError(
        f"A {name} cannot be folded. Steps before the last layer are an AffineMap, a fitted remover, "
        "PCA, IncrementalPCA, TruncatedSVD or StandardScaler; the linear layer comes last. "
        "Apply other steps to the rows first."
    )


def _uncentred(weight: FloatArray, bias: FloatArray, mean: Array | None) -> Layer:
    """The layer on rows that equals the layer on rows minus `mean`."""
    return weight, bias if mean is None else bias - weight @ np.asarray(mean, dtype=np.float64)


def _whitening_scale(step: Any) -> FloatArray:
    """Divisors of the components of PCA, shape (k,)."""
    if not getattr(step, "whiten", False):
        return np.ones(len(step.components_))
    scale = np.sqrt(step.explained_variance_)
    # The same floor as scikit-learn's, in the dtype of its fit: components without variance are not blown up.
    return np.asarray(np.maximum(scale, np.finfo(scale.dtype).eps), dtype=np.float64)


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
        Steps that know the names of their columns must agree on them, except across a step that makes new features
        (PCA).

    Returns
    -------
    The same kind of layer as the last step. A ``torch.nn.Linear`` keeps dtype, device and ``requires_grad``, always has
    a bias and carries no hooks. A scikit-learn model is a fitted copy: `coef_`, `intercept_`, `n_features_in_` and
    `feature_names_in_` are those of the folded model, other attributes still describe the original fit.

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
        return write_torch(last, weight, bias)
    # A bare AffineMap has no names for its columns, and does not change them: those of the next step hold.
    first = next(step for step in (*before, last) if not isinstance(step, AffineMap))
    return _write_sklearn(last, weight, bias, getattr(first, "feature_names_in_", None))


def folded_weights(*steps: Any) -> Layer:
    """Weights (m, d) and bias (m,), in float64, of the layer that `fold` makes of the same steps."""
    return _folded(steps)[2]


def _folded(steps: tuple[Any, ...]) -> tuple[list[Any], Any, Layer]:
    """The steps before the last layer, that layer, and its weights pulled back through all of them."""
    *before, last = list(flatten(steps)) or [None]
    if is_robust_classifier(last):
        return [*before, last], last.head_, _pulled_back(before, last.head_)
    if not before:
        got = ", ".join(type(step).__name__ for step in steps) or "none"
        inner = " Pass its best_estimator_." if hasattr(last, "best_estimator_") else ""
        raise InputError(
            f"fold needs at least two steps, the last of them the linear layer; got {got}. "
            f"Example: fold(removal, layer).{inner}"
        )
    return before, last, _pulled_back(before, last)


def _pulled_back(before: list[Any], last: Any) -> Layer:
    """Weights of the layer, through all steps before it."""
    stages = [as_stage(step) for step in before]
    weight, bias = read_torch(last) if _is_torch_module(last) else _read_sklearn(last)
    name = type(last).__name__
    for stage in reversed(stages):
        if weight.shape[1] != stage.n_out:
            raise InputError(
                f"{stage.name} gives rows of width {stage.n_out}, but {name} after it takes width {weight.shape[1]}. "
                "Pass steps that were fitted one after the other, in the order that rows pass through them."
            )
        weight, bias = stage.back(weight, bias)
        name = stage.name
    same: dict[str, Any] = {}  # steps that see the same columns
    for number, (step, stage) in enumerate(zip_longest([*before, last], stages), 1):
        same[f"step {number} ({type(step).__name__})"] = step
        require_same_columns(same, "Fit each step on the columns that the one before it gives, or on arrays.")
        if stage is not None and stage.makes_features:
            same = {}
    return weight, bias


def _is_torch_module(layer: Any) -> bool:
    """Whether `layer` is a torch module; imports nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(layer, torch.nn.Module)


def is_conv1d(layer: Any) -> bool:
    """Whether a layer is a ``Conv1D`` of transformers, as GPT-2 has them: a linear layer with transposed weights."""
    utils = sys.modules.get("transformers.pytorch_utils")
    return utils is not None and isinstance(layer, utils.Conv1D) and type(layer).forward is utils.Conv1D.forward


def is_linear(layer: Any) -> bool:
    """Whether a module computes x Wᵀ + b.

    A subclass with a forward of its own (quantised, low-rank adapters) computes something else.
    """
    import torch

    plain = isinstance(layer, torch.nn.Linear) and type(layer).forward is torch.nn.Linear.forward
    return plain or is_conv1d(layer)


def read_torch(layer: Any) -> Layer:
    """Weights (m, d) and bias (m,) of a torch layer, after a check that it is linear and has them."""
    import torch

    if not is_linear(layer):
        raise InputError(
            f"A removal folds into a torch.nn.Linear; got a {type(layer).__module__}.{type(layer).__name__}. "
            "Pass the linear layer that rows enter next, or use as_module or attach."
        )
    if torch.nn.parameter.is_lazy(layer.weight) or layer.weight.is_meta:
        raise InputError(f"The {type(layer).__name__} has no weights yet. Run the model once, or load its weights.")
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise InputError(
            f"The {type(layer).__name__} has hooks, which may change its weights or its output when it is called (as "
            "weight_norm and spectral_norm of torch.nn.utils do). Remove them, or use torch.nn.utils.parametrizations."
        )
    weight = layer.weight.detach().cpu().double().numpy()
    weight = np.ascontiguousarray(weight.T) if is_conv1d(layer) else weight
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().cpu().double().numpy()
    return weight, bias


def write_torch(like: Any, weight: FloatArray, bias: FloatArray) -> Any:
    """A new Linear, or Conv1D, with these weights, made without drawing random numbers."""
    import torch

    n_out, n_in = weight.shape
    old = like.weight
    largest = max(np.abs(values).max(initial=0.0) for values in (weight, bias))
    if largest > torch.finfo(old.dtype).max:
        raise InputError(
            f"Folded, the {type(like).__name__} has weights of up to {largest:.1e}, which do not fit its {old.dtype}. "
            "Convert it to float32 first; or fit the removal without columns that hardly vary, which get such factors."
        )
    if is_conv1d(like):
        conv = copy.deepcopy(like)
        with torch.no_grad():
            conv.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)).to(old.dtype))
            conv.bias.copy_(torch.from_numpy(bias).to(old.dtype))
        return conv
    layer = torch.nn.Linear(n_in, n_out, device="meta", dtype=old.dtype).to_empty(device=old.device)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight).to(old.dtype))
        layer.bias.copy_(torch.from_numpy(bias).to(old.dtype))
    return layer.requires_grad_(old.requires_grad).train(like.training)


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
    plain = _without_names(head)
    rows = np.random.default_rng(0).standard_normal((4, weight.shape[1]))
    seen = np.asarray(getattr(plain, score)(rows), dtype=np.float64).reshape(len(rows), -1)
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


#: Versions that current runtimes read; the defaults of onnx are newer than onnxruntime accepts.
OPSET, IR_VERSION = 21, 10


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

    steps = (removal,) if head is None else (removal, head)
    *before, last = flatten(steps)
    scores = head is not None or is_robust_classifier(last) or (bool(before) and hasattr(last, "coef_"))
    model = _head_model(*steps) if scores else _removal_model(as_removal(removal))
    onnx.checker.check_model(model, full_check=True)
    with atomic(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _removal_model(removal: AffineMap) -> onnx.ModelProto:
    """Two thin products: x ↦ x − (x − c) R Lᵀ + offset, or without the first term."""
    from onnx import helper

    # A column of zeros says the same as no column, and spares runtimes a product over an empty axis.
    right, left = (
        factor if factor.shape[1] else np.zeros((len(factor), 1)) for factor in (removal.right, removal.left)
    )
    constants = {"centre": removal.centre, "right": right, "left_t": left.T, "offset": removal.offset}
    nodes = [
        helper.make_node("Sub", ["rows", "centre"], ["centred"]),
        helper.make_node("MatMul", ["centred", "right"], ["coordinates"]),
        helper.make_node("MatMul", ["coordinates", "left_t"], ["moved"]),
    ]
    image = "moved"
    if removal.form == "remove":
        nodes.append(helper.make_node("Sub", ["rows", "moved"], ["image"]))
        image = "image"
    nodes.append(helper.make_node("Add", [image, "offset"], ["cleaned"]))
    return _model(nodes, constants, "cleaned", removal.ambient, removal.ambient)


def _head_model(*steps: Any) -> onnx.ModelProto:
    """One product: x ↦ x W'ᵀ + b' with the weights of the folded head."""
    from onnx import helper

    weight, bias = folded_weights(*steps)
    nodes = [helper.make_node("Gemm", ["rows", "weight", "bias"], ["scores"], transB=1)]
    return _model(nodes, {"weight": weight, "bias": bias}, "scores", weight.shape[1], len(weight))


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


#: Largest difference between the folded and the hooked model, relative to the largest output: rounding in float32, of
#: weights that were multiplied once more, through all layers. Half types have fewer digits.
MAX_DIFFERENCE = {"float64": 1e-8, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.1}
#: Module of transformers that records hidden states by hooks.
_CAPTURING = "transformers.utils.output_capturing"


@dataclass(frozen=True, eq=False, repr=False)
class FoldedNetwork:
    """A model with removals in its weights.

    Parameters
    ----------
    model : copy of the model that was folded.
    folded : names of the modules whose weights a removal went into, by the layer that it was fitted on.
    remaining : the removals that could not be folded. While there are any, use the model inside
        ``with folded.remaining.attach(folded.model)``.
    """

    model: Any
    folded: Mapping[str, tuple[str, ...]]
    remaining: Scrubbing

    def __str__(self) -> str:
        lines = [f"{layer}: folded into {', '.join(into)}" for layer, into in self.folded.items()]
        lines += [
            f"{layer}: not folded, because not only linear maps read its output" for layer in self.remaining.layers
        ]
        if before_readers := [layer for layer, into in self.folded.items() if layer not in into]:
            lines.append(
                f"The outputs of {', '.join(before_readers)} themselves are not cleaned. If you use them (hidden "
                "states), fold with a batch for which the model returns them, as with output_hidden_states=True"
            )
        if self.remaining.layers:
            lines.append("Use the model inside: with folded.remaining.attach(folded.model)")
        return "\n".join(lines)

    __repr__ = __str__


def fold_network(model: Any, scrubbing: Scrubbing, batch: Mapping[str, Any]) -> FoldedNetwork:
    """See `Scrubbing.fold`."""
    require("Folding into a network needs", "torch")
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(f"fold needs a torch.nn.Module; got a {type(model).__name__}.")
    if not isinstance(batch, Mapping):
        raise InputError(f"batch is one mapping from names of arguments to tensors; got a {type(batch).__name__}.")
    device = device_of(model)
    inputs = {name: value.to(device) if hasattr(value, "to") else value for name, value in batch.items()}
    for layer in scrubbing.layers:
        find_module(model, layer)
    changed = copy.deepcopy(model)
    folded: dict[str, tuple[str, ...]] = {}
    left = dict(scrubbing.removals)
    with evaluating(model), evaluating(changed), torch.no_grad():
        # From the last layer to the first: where two removals go into one map, the one that acts later goes first.
        for layer in reversed(scrubbing.layers):
            removal, place = left[layer].removal_, scrubbing.places[layer]
            into = _fold_layer(changed, layer, removal, place) or _fold_readers(changed, layer, removal, place, inputs)
            if into:
                folded[layer] = into
                del left[layer]
        remaining = replace(scrubbing, removals=MappingProxyType(left))
        with scrubbing.attach(model):
            expected = model(**inputs)
        with remaining.attach(changed):
            _require_same(expected, changed(**inputs))
    _drop_capturing_hooks(changed)
    in_order = {layer: folded[layer] for layer in scrubbing.layers if layer in folded}
    return FoldedNetwork(changed, MappingProxyType(in_order), remaining)


def _drop_capturing_hooks(model: Any) -> None:
    """Drop the hooks by which transformers records hidden states: they cannot be pickled.

    They change no output, and transformers installs them again when hidden states are asked for.
    """
    for module in model.modules():
        hooks = module._forward_hooks
        for key in [key for key, hook in hooks.items() if getattr(hook, "__module__", None) == _CAPTURING]:
            del hooks[key]
        module.__dict__.pop("_output_capturing_hooks_installed", None)


def _fold_layer(model: Any, layer: str, removal: AffineMap, place: tuple[str | int, ...]) -> tuple[str, ...]:
    """Let the removal follow a linear layer or an embedding; () if it is neither."""
    import torch

    module = find_module(model, layer)
    if place or module._forward_hooks or module._forward_pre_hooks:
        return ()
    if isinstance(module, torch.nn.Embedding) and type(module).forward is torch.nn.Embedding.forward:
        if module.max_norm is not None:
            return ()
        table = copy.deepcopy(module)
        table.weight = torch.nn.Parameter(removal(module.weight), requires_grad=module.weight.requires_grad)
        return _put(model, module, table)
    if not is_linear(module):
        return ()
    weight, bias = read_torch(module)
    moved = removal(weight.T) - removal(0.0 * weight.T[:1])  # the linear part, of the columns of x ↦ x Wᵀ
    return _put(model, module, write_torch(module, moved.T, removal(bias)))


def _fold_readers(
    model: Any, layer: str, removal: AffineMap, place: tuple[str | int, ...], inputs: dict[str, Any]
) -> tuple[str, ...]:
    """Let the removal precede the linear modules that read the output of a layer; () if others read it as well."""
    readers = _linear_readers(model, layer, place, inputs)
    if not readers or not _only_readers(model, layer, place, readers, inputs):
        return ()
    names: tuple[str, ...] = ()
    for module in readers:
        weight, bias = removal.fold_into(*read_torch(module))
        names += _put(model, module, write_torch(module, weight, bias))
    return names


def _linear_readers(model: Any, layer: str, place: tuple[str | int, ...], inputs: dict[str, Any]) -> list[Any]:
    """Linear modules that are called once in a forward pass, with the output of the layer."""
    returned: list[Any] = []
    calls: Counter[int] = Counter()
    readers: list[Any] = []

    def note(_module: Any, _inputs: Any, output: Any) -> None:
        returned.append(tensor_at(output, place, layer))

    def watch(module: Any, args: tuple[Any, ...]) -> None:
        calls[id(module)] += 1
        if returned and args and _is_same(args[0], returned[-1]):
            readers.append(module)

    linear = [module for module in model.modules() if is_linear(module) and not module._forward_hooks]
    with ExitStack() as hooks:
        hooks.callback(find_module(model, layer).register_forward_hook(note).remove)
        for module in linear:
            hooks.callback(module.register_forward_pre_hook(watch).remove)
        model(**inputs)
    return [module for module in readers if calls[id(module)] == 1]


def _is_same(one: Any, other: torch.Tensor) -> bool:
    """Whether two tensors are one, or views of all of the same numbers."""
    same: bool = one is other or (
        getattr(one, "shape", None) == other.shape
        and one.data_ptr() == other.data_ptr()
        and one.stride() == other.stride()
    )
    return same


def _only_readers(
    model: Any, layer: str, place: tuple[str | int, ...], readers: list[Any], inputs: dict[str, Any]
) -> bool:
    """Whether the model returns the same if random numbers replace the output for all, or for the readers only."""
    import torch

    noise: dict[tuple[int, ...], torch.Tensor] = {}

    def other(tensor: torch.Tensor) -> torch.Tensor:
        shape = tuple(tensor.shape)
        if shape not in noise:
            generator = torch.Generator().manual_seed(0)
            noise[shape] = torch.randn(shape, generator=generator, device="cpu").to(tensor.device, tensor.dtype)
        return noise[shape]

    def for_all(_module: Any, _inputs: Any, output: Any) -> Any:
        return replaced(output, place, other, f"The output of {layer!r}")

    def for_reader(_module: Any, args: tuple[Any, ...]) -> Any:
        return other(args[0]), *args[1:]

    outputs = []
    module = find_module(model, layer)
    register: list[list[Callable[[], Any]]] = [
        [lambda: module.register_forward_hook(for_all)],
        [lambda reader=reader: reader.register_forward_pre_hook(for_reader) for reader in readers],  # type: ignore[misc]
    ]
    for hooks in register:
        with ExitStack() as stack:
            for one in hooks:
                stack.callback(one().remove)
            outputs.append(model(**inputs))
    return _largest_difference(*outputs) == 0.0


def _put(model: Any, old: Any, new: Any) -> tuple[str, ...]:
    """Replace a module under all its names, which are returned."""
    names = tuple(name for name, module in model.named_modules(remove_duplicate=False) if module is old)
    if "" in names:
        raise InputError("The model itself is a linear layer. Use surgery.fold(removal, model).")
    for name in names:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new)
    return names


def _largest_difference(one: Any, other: Any) -> float:
    """Largest difference of the tensors of two outputs, relative to the largest value of each.

    Values that are not finite, such as the logits of forbidden tokens, must be the same. Infinite if they are not, or
    if no value is finite, so that nothing can be compared.
    """
    import torch

    first, second = dict(tensors_in(one)), dict(tensors_in(other))
    if {place: tensor.shape for place, tensor in first.items()} != {p: tensor.shape for p, tensor in second.items()}:
        return math.inf
    worst = []
    for place, tensor in first.items():
        here, there = tensor.double(), second[place].double()
        finite = here.isfinite() & there.isfinite()
        if not torch.allclose(here[~finite], there[~finite], equal_nan=True):
            return math.inf
        if finite.any():
            size, difference = float(here[finite].abs().max()), float((here - there)[finite].abs().max())
            worst.append(difference / size if size else difference)
    return max(worst, default=math.inf)


def _require_same(expected: Any, got: Any) -> None:
    """Raise InputError if the folded model returns something else than the hooked one."""
    kinds = {str(tensor.dtype).removeprefix("torch.") for _, tensor in tensors_in(expected)}
    allowed = max((MAX_DIFFERENCE[kind] for kind in kinds if kind in MAX_DIFFERENCE), default=1e-3)
    difference = _largest_difference(expected, got)
    if not any(tensor.isfinite().any() for _, tensor in tensors_in(expected)):
        raise InputError(
            "The model returns no tensor with finite values for this batch, so the folded model cannot be compared "
            "with the hooked one. Pass a batch for which it does, or use Scrubbing.attach instead."
        )
    if not difference <= allowed:
        raise InputError(
            f"The folded model differs from the hooked one by {difference:.1e} of the largest output, more than the "
            f"{allowed:.0e} that rounding explains. Does the model have random parts, or hooks of its own? Use "
            "Scrubbing.attach instead."
        )
