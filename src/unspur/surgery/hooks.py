"""A removal as a module, and inside a context at the output or input of any module of a torch model."""

from __future__ import annotations

import copy
import difflib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from unspur._extras import require
from unspur._text import brief
from unspur.exceptions import InputError, NothingRemovedWarning
from unspur.subspace import AffineMap

if TYPE_CHECKING:
    import torch

    from unspur.surgery.modules import RemovalModule

#: Where a tensor is in an output: a key or position, or several where containers are nested.
Place: TypeAlias = str | int | tuple[str | int, ...]


def as_removal(thing: Any) -> AffineMap:
    """The AffineMap that was passed, or that a fitted remover holds."""
    if isinstance(thing, BaseEstimator):
        check_is_fitted(thing)
        thing = getattr(thing, "removal_", thing)
    if not isinstance(thing, AffineMap):
        raise InputError(f"A removal is an AffineMap or a fitted remover; got a {type(thing).__name__}.")
    return thing


def as_module(removal: Any, *, dtype: torch.dtype | None = None) -> RemovalModule:
    """A removal as a ``torch.nn.Module``: rows (..., d) in and out, in the dtype they came in.

    Parameters
    ----------
    removal : AffineMap or fitted remover; of a `RobustClassifier`, its removal (`fold` gives all of it).
    dtype : of the buffers, ``torch.float32`` or ``torch.float64``. When None, torch's default dtype, as for other
        modules, but float32 where that is a half type. Use ``torch.float64`` to keep float64 rows at full precision.
    """
    require("A removal as a module needs", "torch")
    from unspur.surgery.modules import RemovalModule

    return RemovalModule(as_removal(removal), dtype)


def as_sentence_module(removal: Any) -> Any:
    """A removal as a module of sentence-transformers, to be appended to the modules of a model.

    ::

        cleaned = SentenceTransformer(modules=[*model, surgery.as_sentence_module(jse)])
        cleaned.encode(sentences)
        cleaned.save("cleaned-model")

    It is a `Dense` layer without activation, in float32, so that whoever loads the model needs neither unspur nor
    ``trust_remote_code``. Rows that had length 1 do not have it afterwards; append `Normalize` where an index needs
    that.
    """
    require("A removal as a module of sentence-transformers needs", "sentence_transformers")
    import torch
    from sentence_transformers.sentence_transformer.modules import Dense

    chosen = as_removal(removal)
    weight, bias = chosen.fold_into(np.eye(chosen.ambient), np.zeros(chosen.ambient))
    layer = Dense(
        chosen.ambient,
        chosen.ambient,
        activation_function=torch.nn.Identity(),
        init_weight=torch.tensor(weight, dtype=torch.float32),
        init_bias=torch.tensor(bias, dtype=torch.float32),
    )
    return layer.requires_grad_(False).eval()


def attach(
    model: Any,
    path: str,
    removal: Any,
    *,
    where: str = "output",
    output: Place | None = None,
    argument: Place | None = None,
    axis: int = -1,
) -> Attachment:
    """Context manager inside which the output, or an input, of ``model.<path>`` passes through `removal`.

    ::

        with surgery.attach(bert, "encoder.layer.5", jse):
            logits = bert(**batch)
        with surgery.attach(classifier, "bert", jse, output="pooler_output"):
            logits = classifier(**batch)
        with surgery.attach(cnn, "layer4", jse, axis=1):  # channels of N × C × H × W
            logits = cnn(pictures)

    What passes through is a tensor of any batch shape, device and floating dtype, which is kept. It may be part of a
    tuple, a list or a mapping such as a ``ModelOutput`` of transformers; the rest of that stays as it is. Gradients
    flow. With activation checkpointing, call ``backward`` inside the block, since it runs the forward pass again. A
    block in which the module does not run issues a NothingRemovedWarning, as does a model that was compiled
    (``torch.compile``) and called before the block: it ignores the hook.

    Parameters
    ----------
    model : torch.nn.Module
    path : name of a module as in ``model.named_modules()``; "" is the model itself.
    removal : AffineMap or fitted remover.
    where : {"output", "input"}, default="output"
        Whether what the module returns or what it is given passes through the removal.
    output : str, int or tuple of these, optional
        Which tensor of the output: a key, a position, or several of them where containers are nested. It must be named
        where several tensors have as many features as the removal.
    argument : str, int or tuple of these, optional
        Which argument, by name or position, with ``where="input"``.
    axis : int, default=-1
        Axis of the features. Of feature maps N × C × H × W it is 1.

    Returns
    -------
    A context manager that gives back `model`. It may be entered again, also inside itself, where it still acts once;
    others nest, and act in the order they were entered.
    """
    return Attachment(model, path, as_removal(removal), where=where, place=output, argument=argument, axis=axis)


class Attachment:
    """Context manager that applies a removal to the output or an input of one module; see `attach`."""

    def __init__(
        self,
        model: Any,
        path: str,
        removal: AffineMap,
        *,
        where: str = "output",
        place: Place | None = None,
        argument: Place | None = None,
        axis: int = -1,
    ):
        require("Attaching to a network needs", "torch")
        if where not in ("output", "input"):
            raise InputError(f"where is 'output' or 'input'; got {where!r}.")
        if (place if where == "input" else argument) is not None:
            raise InputError(f"With where {where!r}, pass {'argument' if where == 'input' else 'output'}.")
        self.model, self.path, self.removal, self.where, self.axis = model, path, removal, where, axis
        place = place if where == "output" else argument
        self._place = place if place is None or isinstance(place, tuple) else (place,)
        self._module = find_module(model, path)
        self._factors: dict[Any, list[torch.Tensor]] = {}
        self._depth = self._runs = 0
        self._handle: Any = None

    def __enter__(self) -> Any:
        if not self._depth:
            self._runs = 0
            if self.where == "output":
                self._handle = self._module.register_forward_hook(self._on_output)
                _record_last(self._module)
            else:
                self._handle = self._module.register_forward_pre_hook(self._on_input, with_kwargs=True)
        self._depth += 1
        return self.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._handle.remove()
        if kind is None and not self._runs:
            message = (
                f"The module {self.path!r} did not run in the block, so the removal changed nothing. Attach to a "
                "module that the forward pass goes through, and before the first call of a compiled model."
            )
            warnings.warn(message, NothingRemovedWarning, stacklevel=2)

    def _on_output(self, _module: Any, _inputs: Any, output: Any) -> Any:
        return self._changed(output, self._place)

    def _on_input(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names: list[Any] = [name for name, _ in zip(inspect.signature(module.forward).parameters, args, strict=False)]
        names += range(len(names), len(args))  # of *args
        given = {**dict(zip(names, args, strict=True)), **kwargs}
        place = self._place
        if place and isinstance(place[0], int) and place[0] < len(names):
            place = (names[place[0]], *place[1:])
        changed = self._changed(given, place)
        return tuple(changed[name] for name in names), {name: changed[name] for name in kwargs}

    def _changed(self, value: Any, place: tuple[str | int, ...] | None) -> Any:
        """The value with the tensor at a place, or the only one that fits, transformed."""
        self._runs += 1
        what = f"The {self.where} of {self.path!r}"
        if place is None:
            place = self._only_place(what, dict(tensors_in(value)))
        return replaced(value, place, lambda tensor: self._transform(tensor, what), what)

    def _only_place(self, what: str, tensors: dict[tuple[str | int, ...], Any]) -> tuple[str | int, ...]:
        """Place of the only tensor, or the only one with the right width."""
        if len(tensors) == 1:
            return next(iter(tensors))
        width, axis = self.removal.ambient, self.axis
        fits = [
            place
            for place, one in tensors.items()
            if one.is_floating_point() and -one.ndim <= axis < one.ndim and one.shape[axis] == width
        ]
        if len(fits) != 1:
            held = ", ".join(f"{place} {tuple(tensors[place].shape)}" for place in list(fits or tensors)[:8])
            keyword = "output" if self.where == "output" else "argument"
            raise InputError(
                f"{what} holds {len(fits)} tensors of {width} features along axis {axis} ({held or 'no tensor'}). Pass "
                f"as {keyword} the place of the one that the network goes on with."
            )
        return fits[0]

    def _transform(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        import torch

        from unspur.surgery import modules

        if tensor.is_nested:
            raise InputError(
                f"{what} is a nested tensor. Pass enable_nested_tensor=False to the TransformerEncoder that makes it."
            )
        if not -tensor.ndim <= self.axis < tensor.ndim:
            raise InputError(f"{what} has shape {tuple(tensor.shape)}, which has no axis {self.axis}.")
        rows = tensor.movedim(self.axis, -1)
        if rows.shape[-1] != self.removal.ambient and self.removal.ambient in tensor.shape:
            other = tensor.shape.index(self.removal.ambient)
            raise InputError(
                f"{what} has shape {tuple(tensor.shape)}; the removal has {self.removal.ambient} features, as axis "
                f"{other}. Pass axis {other} if it holds them."
            )
        modules.require_rows(rows, self.removal.ambient, what)
        key = rows.device, rows.dtype
        if key not in self._factors:
            work = torch.promote_types(rows.dtype, torch.float32)
            self._factors[key] = modules.factors_of(self.removal, work, rows.device)
        return modules.remove(rows, self._factors[key], self.removal.form).movedim(-1, self.axis)


def _record_last(module: Any) -> None:
    """Let hooks of transformers, which record hidden states, run after all others."""
    for number, hook in list(module._forward_hooks.items()):
        if (getattr(hook, "__module__", None) or "").startswith("transformers."):
            module._forward_hooks.move_to_end(number)


def find_module(model: Any, path: str) -> Any:
    """The module of that name, also where several names share one module."""
    import torch

    if not isinstance(model, torch.nn.Module) or not isinstance(path, str):
        raise InputError(
            "Pass a torch.nn.Module, the name of a module in it, and the removal, in this order; got a "
            f"{type(model).__name__} and a {type(path).__name__}. model.named_modules() lists all names."
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    if path not in modules:
        close = [name for name in modules if name.endswith("." + path)] + difflib.get_close_matches(path, modules, n=5)
        names = brief(", ".join(close[:5] or filter(None, modules)), 200) or "no modules inside"
        raise InputError(f"{type(model).__name__} has no module {path!r}; it has {names}. named_modules() lists all.")
    return modules[path]


def tensors_in(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every tensor of an output with its place: itself, or inside tuples, lists and mappings."""
    import torch

    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, Mapping):
        for key in value:
            yield from tensors_in(value[key], (*place, key))
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from tensors_in(item, (*place, number))


def replaced(
    value: Any, place: tuple[str | int, ...], change: Callable[[torch.Tensor], torch.Tensor], what: str
) -> Any:
    """The value with the tensor at a place changed; containers are copied, since the model may keep them."""
    import torch

    if not place and isinstance(value, torch.Tensor):
        return change(value)
    here = place[0] if place else None
    keys = list(value) if isinstance(value, Mapping) else range(len(value)) if isinstance(value, tuple | list) else ()
    if isinstance(value, Mapping) and isinstance(here, int) and here not in keys and here < len(keys):
        here = keys[here]  # as a ModelOutput takes it
    if isinstance(value, tuple | list) and isinstance(here, int) and here < 0:
        here += len(value)
    if here not in keys:
        raise InputError(f"{what} is a {type(value).__name__} without {here!r}; it has {brief(list(keys), 200)}.")
    if isinstance(value, Mapping):
        changed: Any = copy.copy(value)
        changed[here] = replaced(value[here], place[1:], change, what)
        return changed
    items = list(value)
    items[here] = replaced(items[here], place[1:], change, what)  # type: ignore[index]
    return value._make(items) if hasattr(value, "_make") else type(value)(items)
