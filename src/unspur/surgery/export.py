"""A removal, alone or folded into its last layer, as an ONNX model."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from unspur._extras import require
from unspur._typing import Array
from unspur._version import __version__
from unspur.io import artifact
from unspur.subspace import AffineMap
from unspur.surgery.folding import as_removal, folded_weights

if TYPE_CHECKING:
    import onnx

#: Versions that current runtimes read; the defaults of onnx are newer than onnxruntime accepts.
OPSET, IR_VERSION = 21, 10


def to_onnx(removal: Any, path: str | PathLike[str], *, head: Any = None, overwrite: bool = False) -> None:
    """Write a removal to an ONNX file: input "rows" (batch, d) in float32, output "cleaned" (batch, d).

    With a `head` the two are folded into one product and the output is "scores" (batch, m), ``x W'ᵀ + b'``: the logits
    of a torch layer, the decision function of a classifier (m = 1 for two classes), the prediction of a regressor.

    Parameters
    ----------
    removal : AffineMap or fitted remover; with a `head`, anything that `fold` takes before one, such as a pipeline.
    path : file to write, in one piece or not at all.
    head : ``torch.nn.Linear`` or fitted scikit-learn linear model that takes the cleaned rows.
    overwrite : replace an existing file.
    """
    require("ONNX files need", "onnx")
    import onnx

    model = _removal_model(as_removal(removal)) if head is None else _head_model(removal, head)
    onnx.checker.check_model(model, full_check=True)
    with artifact.atomic(path, overwrite=overwrite) as temporary:
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


def _head_model(removal: Any, head: Any) -> onnx.ModelProto:
    """One product: x ↦ x W'ᵀ + b' with the weights of the folded head."""
    from onnx import helper

    weight, bias = folded_weights(removal, head)
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
