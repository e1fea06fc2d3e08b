"""Fold the removals of a network into its weights, wherever that is exact.

A removal after a layer may be folded in two ways:

- *into the layer*, if that is linear or an embedding: its weights are followed by the removal;
- *into its readers*, the modules that take its output, if all are linear: their weights are preceded by the removal.

That nothing but these modules reads the output is not derived from the code of a model, but seen: the output is
replaced by random numbers, once for everyone and once for these modules only. If the model returns the same both times,
nobody else has read it. So a residual connection, or a norm, is noticed in any architecture.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from unspur._extras import require
from unspur.exceptions import InputError
from unspur.subspace import AffineMap
from unspur.surgery.activations import device_of, evaluating, tensor_at
from unspur.surgery.folding import is_linear, read_torch, through_removal, write_torch
from unspur.surgery.hooks import find_module, replaced, tensors_in

if TYPE_CHECKING:
    import torch

    from unspur.surgery.scrubbing import Scrubbing

#: Largest difference between the folded and the hooked model, relative to the largest output: rounding in float32, of
#: weights that were multiplied once more, through all layers. Half types have fewer digits.
MAX_DIFFERENCE = {"float64": 1e-8, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.1}


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
    in_order = {layer: folded[layer] for layer in scrubbing.layers if layer in folded}
    return FoldedNetwork(changed, MappingProxyType(in_order), remaining)


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
        weight, bias = through_removal(removal, *read_torch(module))
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
            noise[shape] = torch.randn(shape, generator=generator).to(tensor.device, tensor.dtype)
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
