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
from unspur._reading import first_names
from unspur.exceptions import InputError, NothingRemovedWarning
from unspur.subspace import AffineMap, Subspace

if TYPE_CHECKING:
    import torch

    from unspur.surgery.modules import Factors, RemovalModule


#: Where a tensor is in an output: a key or position, or several where containers are nested.
Place: TypeAlias = str | int | tuple[str | int, ...]


def as_removal(thing: Any) -> AffineMap:
    """The AffineMap that was passed, or that a fitted remover holds."""
    if isinstance(thing, AffineMap):
        return thing
    if isinstance(thing, BaseEstimator):
        check_is_fitted(thing)
        removal = getattr(thing, "removal_", None)
        if isinstance(removal, AffineMap):
            return removal
    hint = " Build one with AffineMap.removing(subspace, centre)." if isinstance(thing, Subspace) else ""
    raise InputError(f"A removal is an AffineMap or a fitted remover; got a {type(thing).__name__}.{hint}")


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

    It is a `Dense` layer without activation, of sentence-transformers itself. A model with it is saved and loaded like
    any other: whoever loads it needs neither unspur nor ``trust_remote_code``. Rows that had length 1 do not have it
    afterwards; append `Normalize` where an index needs that.

    Parameters
    ----------
    removal : AffineMap or fitted remover, fitted on what the model's ``encode`` returned.

    Returns
    -------
    sentence_transformers.sentence_transformer.modules.Dense
        Its parameters are float32 and need no gradient. Converting them to a half type loses digits of the removal.
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
    axis: int | None = None,
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
    tuple, a list or a mapping such as a ``ModelOutput`` of transformers; the rest of that stays as it is. If more than
    one tensor in it has as many features as the removal, `output` must name the one that the network goes on with.
    Gradients flow. With activation checkpointing, call ``backward`` inside the block, since it runs the forward pass
    again. A block in which the module does not run issues a NothingRemovedWarning. The same happens with a model that
    was compiled (``torch.compile``) and called before the block: it ignores the hook.

    Parameters
    ----------
    model : torch.nn.Module
    path : name of a module as in ``model.named_modules()``; "" is the model itself.
    removal : AffineMap or fitted remover.
    where : {"output", "input"}, default="output"
        Whether what the module returns or what it is given passes through the removal.
    output : str, int or tuple of these, optional
        Which tensor of the output: a key, a position, or several of them where containers are nested.
    argument : str, int or tuple of these, optional
        Which argument, by name or position, with ``where="input"``.
    axis : int, optional
        Axis of the features; the last one by default. Of feature maps N × C × H × W it is 1, which is also the default
        where they were pooled to one position, N × C × 1 × 1.

    Returns
    -------
    A context manager that gives back `model`. It may be entered again, also inside itself, where it still acts once;
    others nest, and act in the order they were entered.
    """
    if not isinstance(path, str):
        raise InputError(_no_name(model, path))
    return Attachment(model, path, as_removal(removal), where=where, output=output, argument=argument, axis=axis)


class Attachment:
    """Context manager that applies a removal to the output or an input of one module; see `attach`."""

    _entered = True  # until there is something to enter

    def __init__(
        self,
        model: Any,
        path: str,
        removal: AffineMap,
        *,
        where: str = "output",
        output: Place | None = None,
        argument: Place | None = None,
        axis: int | None = None,
    ):
        require("Attaching to a network needs", "torch")
        import torch

        if not isinstance(model, torch.nn.Module):
            raise InputError(f"attach needs a torch.nn.Module; got a {type(model).__name__}.")
        if where not in ("output", "input"):
            raise InputError(f"where is 'output' or 'input'; got {where!r}.")
        if (output if where == "input" else argument) is not None:
            raise InputError("output= chooses with where='output', argument= with where='input'; got the other one.")
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
            raise InputError(f"axis is a whole number; got {axis!r}.")
        self.model, self.path, self.removal, self.where, self.axis = model, path, removal, where, axis
        chosen = output if where == "output" else argument
        self._chosen = chosen if chosen is None or isinstance(chosen, tuple) else (chosen,)
        self._module = find_module(model, path)
        self._factors: dict[tuple[Any, Any], Factors] = {}
        self._depth = 0
        self._handles: list[Any] = []
        self._runs = {"model": 0, "module": 0}
        self._entered = False

    def __del__(self) -> None:
        if not self._entered:
            message = (
                f"The attachment to {repr(self.path) if self.path else 'the model'} was never entered, so the removal "
                "changed nothing. Use it in a with statement: with surgery.attach(...):"
            )
            warnings.warn(message, NothingRemovedWarning, stacklevel=2)

    def __enter__(self) -> Any:
        self._entered = True
        if not self._depth:
            self._runs = {"model": 0, "module": 0}
            if self._module is not self.model:
                self._handles.append(self.model.register_forward_pre_hook(self._note_run))
            if self.where == "output":
                self._handles.append(self._module.register_forward_hook(self._on_output))
                _record_last(self._module)
            else:
                self._handles.append(self._module.register_forward_pre_hook(self._on_input, with_kwargs=True))
        self._depth += 1
        return self.model

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._depth:
            raise InputError(
                f"The attachment to {self.path!r} is left and was not entered. Use it in a with statement."
            )
        self._depth -= 1
        if self._depth:
            return
        while self._handles:
            self._handles.pop().remove()
        if kind is not None or self._runs["module"]:
            return
        ran = (
            f"The model ran and its module {self.path!r} did not"
            if self._runs["model"]
            else (f"{repr(self.path) if self.path else 'The model'} did not run in the block, as far as hooks can tell")
        )
        message = (
            f"{ran}, so the removal changed nothing. Attach to a module that the forward pass goes through. A model "
            "that was compiled and called before takes no notice of the removal: attach before the first call of the "
            "compiled model, or call torch._dynamo.reset() in between."
        )
        warnings.warn(message, NothingRemovedWarning, stacklevel=2)

    def _note_run(self, _module: Any, _inputs: Any) -> None:
        self._runs["model"] += 1

    def _on_output(self, _module: Any, _inputs: Any, output: Any) -> Any:
        self._runs["module"] += 1
        return self._with_one_changed(output)

    def _on_input(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._runs["module"] += 1
        names = [name for name, _ in zip(inspect.signature(module.forward).parameters, args, strict=False)]
        names += [str(place) for place in range(len(names), len(args))]  # of *args
        given = {**dict(zip(names, args, strict=True)), **kwargs}
        chosen = self._chosen
        if chosen and isinstance(chosen[0], int) and -len(names) <= chosen[0] < len(names):
            chosen = (names[chosen[0]], *chosen[1:])
        changed = self._with_one_changed(given, chosen)
        return tuple(changed[name] for name in names), {name: changed[name] for name in kwargs}

    @property
    def _what(self) -> str:
        whose = repr(self.path) if self.path else "the model"
        return f"The {self.where} of {whose}"

    def _with_one_changed(self, value: Any, chosen: tuple[str | int, ...] | None = None) -> Any:
        """The value with the chosen tensor, or the only one that fits, transformed."""
        chosen = chosen or self._chosen
        if chosen is None:
            chosen = self._only_one_that_fits(dict(tensors_in(value)), value)
        return replaced(value, chosen, self._transform, self._what)

    def _only_one_that_fits(self, tensors: dict[tuple[str | int, ...], Any], value: Any) -> tuple[str | int, ...]:
        """Place of the only tensor with the right width; InputError if there are none or several."""
        if not tensors:
            raise InputError(
                f"{self._what} is a {type(value).__name__} without a tensor to transform. "
                "Attach to a module that returns a tensor, or a tuple, list or mapping that holds one."
            )
        if len(tensors) == 1:
            return next(iter(tensors))
        width = self.removal.ambient
        fits = {place: tensor for place, tensor in tensors.items() if self._fits(tensor)}
        if len(fits) == 1:
            return next(iter(fits))
        keyword = "output" if self.where == "output" else "argument"
        held = ", ".join(
            f"{named_place(place)} {tuple(tensor.shape)}" for place, tensor in list((fits or tensors).items())[:8]
        )
        if not fits:
            raise InputError(
                f"{self._what} holds tensors, none with {width} features along axis "
                f"{-1 if self.axis is None else self.axis}: {held}. Choose the place "
                "where the embeddings that the removal was fitted on arise, or pass axis=."
            )
        raise InputError(
            f"{self._what} holds {len(fits)} tensors of {width} features: {held}. Pass as {keyword}= the one that the "
            "network goes on with, or attach to the module that uses it, with where='input'."
        )

    def _usual_axis(self, tensor: torch.Tensor) -> int:
        """The last axis, or the channels of feature maps that were pooled to one position, N × C × 1 × 1."""
        pooled = tensor.ndim > 2 and all(size == 1 for size in tensor.shape[2:])
        return 1 if pooled and tensor.shape[1] == self.removal.ambient != 1 else -1

    def _fits(self, tensor: torch.Tensor) -> bool:
        axis = self._usual_axis(tensor) if self.axis is None else self.axis
        return (
            tensor.is_floating_point()
            and -tensor.ndim <= axis < tensor.ndim
            and tensor.shape[axis] == self.removal.ambient
        )

    def _transform(self, tensor: torch.Tensor) -> torch.Tensor:
        from unspur.surgery import modules

        if tensor.is_nested:
            raise InputError(
                f"{self._what} is a nested tensor, which the removal cannot be applied to. A TransformerEncoder makes "
                "nested tensors of padded sequences when it evaluates; pass enable_nested_tensor=False to it."
            )
        axis = self._axis_of(tensor)
        rows = tensor if axis == -1 else tensor.movedim(axis, -1)
        modules.require_rows(rows, self.removal.ambient, self._what)
        key = rows.device, modules.working_dtype(rows)
        if key not in self._factors:
            self._factors[key] = modules.factors_of(self.removal, key[1], rows.device)
        changed = modules.remove(rows, self._factors[key], self.removal.form)
        return changed if axis == -1 else changed.movedim(-1, axis)

    def _axis_of(self, tensor: torch.Tensor) -> int:
        """Axis of the features, -1 for the last; InputError if its width is wrong or it is ambiguous."""
        width, shape = self.removal.ambient, tuple(tensor.shape)
        if self.axis is None and len(shape) == 4 and shape[1] == shape[3] == width:
            raise InputError(
                f"{self._what} has shape {shape}: both axis 1, the channels of a picture, and the last have {width} "
                "features. Pass axis=1 or axis=-1."
            )
        axis = self._usual_axis(tensor) if self.axis is None else self.axis
        if not -len(shape) <= axis < len(shape) or shape[axis] != width:
            others = [place for place, size in enumerate(shape) if size == width]
            found = f" Axis {others[0]} has: pass axis={others[0]} if it holds them." if others else ""
            last = "a last axis of" if axis == -1 else f"an axis {axis} of"
            raise InputError(
                f"{self._what} has shape {shape}; the removal needs {last} {width} features.{found} Choose the place "
                "where the embeddings it was fitted on arise."
            )
        return -1 if axis in (-1, len(shape) - 1) else axis


def _record_last(module: Any) -> None:
    """Let hooks of transformers, which record hidden states, run after all others.

    They are there only after a first call that asks for hidden states, and would record what is not removed yet.
    """
    for number, hook in list(module._forward_hooks.items()):
        if (getattr(hook, "__module__", None) or "").startswith("transformers."):
            module._forward_hooks.move_to_end(number)


def find_module(model: Any, path: str) -> Any:
    """The module of that name, also where several names share one module."""
    modules = dict(model.named_modules(remove_duplicate=False))
    if path in modules:
        return modules[path]
    names = [name for name in modules if name]
    close = difflib.get_close_matches(path, names, n=5, cutoff=0.5)
    ending = [name for name in names if name.endswith("." + path) and name not in close]
    hint = (
        f"Close: {', '.join((ending + close)[:5])}."
        if close or ending
        else f"It has {first_names(names) or 'no modules inside'}."
    )
    raise InputError(f"{type(model).__name__} has no module {path!r}. {hint} model.named_modules() lists all.")


def _no_name(model: Any, thing: Any) -> str:
    """Message for a `path` that is not a string, such as the module itself."""
    modules = model.named_modules(remove_duplicate=False) if hasattr(model, "named_modules") else ()
    called = next((name for name, module in modules if module is thing), None)
    hint = "" if called is None else f" That module is called {called!r}."
    return (
        "attach takes the model, the name of a module in it, and the removal, in this order; for the name it "
        f"got {type(thing).__name__}.{hint} model.named_modules() lists all."
    )


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


def named_place(place: tuple[str | int, ...]) -> str:
    """A place as `output=` takes it."""
    return repr(place[0] if len(place) == 1 else place)


def replaced(
    value: Any, place: tuple[str | int, ...], change: Callable[[torch.Tensor], torch.Tensor], what: str
) -> Any:
    """The value with the tensor at a place changed; containers are copied, since the model may keep them."""
    import torch

    if not place:
        if not isinstance(value, torch.Tensor):
            raise InputError(f"{what}, at the place that was asked for, is a {type(value).__name__} and not a tensor.")
        return change(value)
    here, rest = place[0], place[1:]
    if isinstance(value, Mapping) and here not in value and isinstance(here, int) and -len(value) <= here < len(value):
        here = list(value)[here]  # as a ModelOutput takes it
    if isinstance(value, Mapping) and here in value:
        changed: Any = copy.copy(value)
        changed[here] = replaced(value[here], rest, change, what)
        return changed
    if isinstance(value, tuple | list) and isinstance(here, int) and -len(value) <= here < len(value):
        items = list(value)
        items[here] = replaced(items[here], rest, change, what)
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    keys = value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, tuple | list) else ()
    places = ", ".join(map(repr, keys))
    there = f"; it has {places}" if places else ""
    raise InputError(f"{what} is a {type(value).__name__} without {here!r}{there}.")
