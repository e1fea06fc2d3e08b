"""Make the output of any module of a torch model pass through a removal, for as long as a block lasts."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from unspur._extras import require
from unspur.exceptions import InputError
from unspur.subspace import AffineMap
from unspur.surgery.stages import as_removal

if TYPE_CHECKING:
    import torch

    from unspur.surgery.modules import Factors, RemovalModule


def as_module(removal: Any, *, dtype: torch.dtype | None = None) -> RemovalModule:
    """A removal as a ``torch.nn.Module``: rows (..., d) in and out, in the dtype they came in.

    Parameters
    ----------
    removal : AffineMap or fitted remover.
    dtype : of the buffers; torch's default dtype when None, as for other modules. Use ``torch.float64`` where rows of
        that type shall keep their digits.
    """
    require("A removal as a module needs", "torch")
    from unspur.surgery.modules import RemovalModule

    return RemovalModule(as_removal(removal), dtype)


def attach(model: Any, path: str, removal: Any) -> Attachment:
    """Context manager inside which the output of ``model.<path>`` passes through `removal`.

    ::

        with surgery.attach(bert, "encoder.layer.5", jse):
            logits = bert(**batch)

    The output may be a tensor (..., d) of any batch shape, device and floating dtype, which is kept; or a tuple or
    list, whose first tensor is transformed; or a mapping such as a ``ModelOutput`` of transformers: its
    `last_hidden_state`, or else its first tensor. Everything else in the output stays as it is. Gradients flow. With
    activation checkpointing, call ``backward`` inside the block, since it runs the forward pass again.

    Parameters
    ----------
    model : torch.nn.Module
    path : name of a module as in ``model.named_modules()``; "" is the model itself.
    removal : AffineMap or fitted remover.

    Returns
    -------
    A context manager that gives back `model`. It may be entered again, also inside itself, where it still acts once;
    others nest, and act in the order they were entered.
    """
    return Attachment(model, path, as_removal(removal))


class Attachment:
    """A removal that acts on the output of one module while the attachment is entered; see `attach`."""

    def __init__(self, model: Any, path: str, removal: AffineMap):
        require("Attaching to a network needs", "torch")
        import torch

        if not isinstance(model, torch.nn.Module):
            raise InputError(f"attach needs a torch.nn.Module; got a {type(model).__name__}.")
        self.model, self.path, self.removal = model, path, removal
        self._module = _find(model, path)
        self._factors: dict[tuple[Any, Any], Factors] = {}
        self._depth = 0
        self._handle: Any = None

    def __enter__(self) -> Any:
        if not self._depth:
            self._handle = self._module.register_forward_hook(self._hook)
        self._depth += 1
        return self.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._handle.remove()

    def _hook(self, _module: Any, _inputs: Any, output: Any) -> Any:
        return _with_first_tensor(output, self._transform, self._where)

    @property
    def _where(self) -> str:
        return f"The output of {self.path!r}" if self.path else "The output of the model"

    def _transform(self, rows: torch.Tensor) -> torch.Tensor:
        from unspur.surgery import modules

        modules.require_rows(rows, self.removal.ambient, self._where)
        key = rows.device, modules.working_dtype(rows)
        if key not in self._factors:
            self._factors[key] = modules.factors_of(self.removal, key[1], rows.device)
        return modules.remove(rows, self._factors[key], self.removal.form)


def _find(model: Any, path: str) -> Any:
    """The module of that name, also where several names share one module."""
    modules = dict(model.named_modules(remove_duplicate=False))
    if path in modules:
        return modules[path]
    names = [name for name in modules if name]
    close = difflib.get_close_matches(path, names, n=5, cutoff=0.5)
    ending = [name for name in names if name.endswith("." + path) and name not in close]
    hint = f"Close: {', '.join((ending + close)[:5])}." if close or ending else f"It has {_some(names)}."
    raise InputError(f"{type(model).__name__} has no module {path!r}. {hint} model.named_modules() lists all.")


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:8]) or "no modules inside"
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown


def _with_first_tensor(output: Any, change: Callable[[torch.Tensor], torch.Tensor], where: str) -> Any:
    """The output with its first tensor changed; containers are copied, since the model may hold on to them."""
    import torch

    def is_tensor(value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    if is_tensor(output):
        return change(output)
    if isinstance(output, Mapping):
        candidates = [key for key in ("last_hidden_state", *output) if is_tensor(output.get(key))]
        if candidates:
            changed: Any = copy.copy(output)
            changed[candidates[0]] = change(output[candidates[0]])
            return changed
    elif isinstance(output, (tuple, list)):
        places = [place for place, value in enumerate(output) if is_tensor(value)]
        if places:
            items = list(output)
            items[places[0]] = change(items[places[0]])
            return output._make(items) if hasattr(output, "_make") else type(output)(items)
    raise InputError(
        f"{where} is a {type(output).__name__} without a tensor to transform. "
        "Attach to a module that returns a tensor, or a tuple, list or mapping that holds one."
    )
