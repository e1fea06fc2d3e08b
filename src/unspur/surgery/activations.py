"""Activations inside a network, one batch at a time, beside the labels of their rows.

Conventions
-----------
- A batch has B sequences of T tokens; a layer returns hidden states (B, T, d), or pooled ones (B, d).
- A *row* is what one label belongs to: a token that is not padding, or the pooled vector of a sequence.
- Nothing is kept from one batch to the next.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from unspur._arrays import to_numpy
from unspur._reading import first_names
from unspur._text import brief
from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError, LabelError, NotFiniteError
from unspur.labels import class_label, missing_values
from unspur.surgery.hooks import Place, find_module, named_place, tensors_in

if TYPE_CHECKING:
    import torch

#: What a row is made of: every token, the mean of a sequence's tokens, or its first or last one.
Pooling: TypeAlias = Literal["tokens", "mean", "first", "last"]
#: Token-wise label of tokens that do not count, as in transformers.
IGNORED = -100
#: Most classes of a concept: each but one is a direction.
MAX_CLASSES = 1000


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of a model, and which rows of its hidden states have which labels.

    Parameters
    ----------
    number : of the batch, from 0.
    inputs : what the model is called with.
    mask : (B, T), False for padding; None if the inputs do not say how many tokens there are.
    kept : rows with a known label, (B, T) of tokens and (B,) of pooled rows.
    concept, y : one value for each row that is kept.
    sequence : running number of the sequence that each kept row belongs to.
    pooling : what rows are made of.
    """

    number: int
    inputs: dict[str, Any]
    mask: BoolArray | None
    kept: BoolArray
    concept: Array
    y: Array | None
    sequence: IntArray
    pooling: Pooling

    def __len__(self) -> int:
        return int(self.kept.sum())

    def rows(self, hidden: torch.Tensor, layer: str) -> torch.Tensor:
        """The kept rows (m, d) of hidden states, in float32 at least; InputError if they have another shape."""
        import torch

        hidden = hidden.detach().to(torch.promote_types(hidden.dtype, torch.float32))
        kept = torch.from_numpy(self.kept).to(hidden.device)
        if hidden.ndim == 2 and self.pooling != "tokens" and len(hidden) == len(kept):
            rows = hidden[kept]
        else:
            mask = np.ones(hidden.shape[:2], dtype=bool) if self.mask is None else self.mask
            if hidden.ndim != 3 or tuple(hidden.shape[:2]) != mask.shape:
                raise InputError(
                    f"Layer {layer!r} returns a tensor of shape {tuple(hidden.shape)} for {mask.shape[0]} sequences of "
                    f"{mask.shape[1]} tokens. Choose a layer that returns hidden states (sequences, tokens, features) "
                    "of the tokens that attention_mask describes."
                )
            rows = _pooled(hidden, torch.from_numpy(mask).to(hidden.device), self.pooling)[kept]
        if not bool(torch.isfinite(rows).all()):
            raise NotFiniteError(
                f"Layer {layer!r} returns NaN or infinity for batch {self.number}. Use a model of a wider type, and "
                "check that the inputs are right."
            )
        return rows


def _pooled(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """Rows of hidden states (B, T, d): all of them, or one (B, d) for each sequence."""
    import torch

    if pooling == "tokens":
        return hidden
    if pooling == "mean":
        share = mask.to(hidden.dtype)
        return torch.einsum("btd,bt->bd", hidden, share) / share.sum(1, keepdim=True)
    places = torch.arange(mask.shape[1], device=mask.device)
    if pooling == "first":
        place = torch.where(mask, places, mask.shape[1]).amin(1)
    else:
        place = torch.where(mask, places, -1).amax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), place]


class Batches:
    """Batches of a user with their labels; may be gone through any number of times.

    Parameters
    ----------
    batches : mappings from names of arguments to tensors.
    concept, y : see `scrub`.
    pooling : None for what the labels are of: tokens, or the mean of a sequence.
    missing : value of `concept` that means "not known".
    device : where inputs go.
    """

    def __init__(
        self,
        batches: Iterable[Mapping[str, Any]],
        concept: Any,
        y: Any = None,
        *,
        pooling: Pooling | None = None,
        missing: Any = None,
        device: Any = None,
    ):
        if pooling is not None and pooling not in get_args(Pooling):
            raise InputError(f"pooling is one of {', '.join(get_args(Pooling))}, or None; got {pooling!r}.")
        if isinstance(batches, Mapping):
            raise InputError("batches is one mapping; pass a list of such mappings, or a DataLoader that gives them.")
        if not isinstance(batches, Iterable) or isinstance(batches, str):
            raise InputError(f"batches is a list of mappings, or a DataLoader; got a {type(batches).__name__}.")
        if iter(batches) is batches:
            raise InputError(
                f"batches is a {type(batches).__name__} that can be gone through once, and each layer needs a pass. "
                "Pass a list, a DataLoader, or an object whose __iter__ starts anew."
            )
        self._batches, self._missing, self._device = batches, missing, device
        self._labels = {"concept": _Labels(concept, "concept")}
        if y is not None:
            self._labels["y"] = _Labels(y, "y")
        forms = {labels.form for labels in self._labels.values()}
        if forms != {"key"} and (sampler := _own_order(batches, "array" not in forms)):
            raise LabelError(
                f"The DataLoader has its rows in the order of a sampler ({sampler}), so labels in an array cannot be "
                "matched to them. Pass one without (shuffle=False), or put the labels into the batches and name their "
                "key."
            )
        self.pooling = pooling or self._natural_pooling()

    def _natural_pooling(self) -> Pooling:
        """Token rows of token-wise labels, else the mean of each sequence."""
        for number, inputs in enumerate(self._batches):
            size, mask = _size(number, _checked(number, inputs)), _mask(number, inputs)
            values = self._labels["concept"].of_batch(number, inputs, 0, size)
            return "tokens" if mask is not None and values.shape == mask.shape else "mean"
        raise InputError("There are no batches. Pass some, each a mapping from names of arguments to tensors.")

    def __iter__(self) -> Iterator[Batch]:
        start, number = 0, -1
        for number, given in enumerate(self._batches):
            batch = self._labelled(number, dict(_checked(number, given)), start)
            start += len(batch.kept)
            yield batch
        for labels in self._labels.values():
            labels.require_used(start, number + 1)

    def _labelled(self, number: int, inputs: dict[str, Any], start: int) -> Batch:
        size, mask = _size(number, inputs), _mask(number, inputs)
        if mask is not None and not mask.any(1).all():
            raise InputError(
                f"Sequence {int(np.argmin(mask.any(1)))} of batch {number} has no token: its attention_mask is 0 "
                "throughout. Leave it out."
            )
        values = {name: labels.of_batch(number, inputs, start, size) for name, labels in self._labels.items()}
        for labels in self._labels.values():
            inputs.pop(labels.key, None)
        if self.pooling == "tokens":
            if mask is None:
                raise InputError(
                    f"Batch {number} has neither input_ids nor attention_mask, so that its tokens cannot be counted. "
                    "Add an attention_mask, or pass pooling='mean'."
                )
            kept, shape = mask.copy(), mask.shape
        else:
            kept, shape = np.ones(size, dtype=bool), (size,)
        for name, value in values.items():
            spread = _spread(value, shape, name, number)
            if value.ndim == 2:
                kept &= spread != IGNORED
            values[name] = spread
        kept[kept] = ~missing_values(values["concept"][kept], self._missing)
        sequence = start + np.broadcast_to(np.arange(size).reshape(-1, *[1] * (len(shape) - 1)), shape)
        y = values["y"][kept] if "y" in values else None
        inputs = {name: _moved(value, self._device) for name, value in inputs.items()}
        return Batch(number, inputs, mask, kept, values["concept"][kept], y, sequence[kept], self.pooling)


def _own_order(batches: Any, by_batch: bool) -> str:
    """Name of a sampler that may change the order of a DataLoader's rows; "" if there is none.

    The order of indices in a list is known to who has labels `by_batch`. Rows of an iterable dataset come in its order.
    """
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, SequentialSampler

    if not isinstance(batches, DataLoader) or isinstance(batches.dataset, IterableDataset):
        return ""
    sampler = batches.sampler if batches.batch_sampler is None else batches.batch_sampler
    while type(sampler) is BatchSampler:  # others may have an order of their own
        sampler = sampler.sampler
    in_order = isinstance(sampler, DistributedSampler) and not sampler.shuffle
    known = by_batch and isinstance(sampler, list | tuple | range)
    return "" if type(sampler) is SequentialSampler or in_order or known else type(sampler).__name__


class _Labels:
    """Labels in any of the forms that users have them: a key of the batches, one array, or one array for each batch."""

    def __init__(self, given: Any, name: str):
        if given is None:
            raise LabelError(f"{name} is missing. Pass one label for each sequence, or for each token.")
        self.name, self.key, self._each, self._all = name, "", None, None
        if isinstance(given, str):
            self.key = given
        elif isinstance(given, list | tuple) and given and all(_is_array(value) for value in given):
            self._each = given
        else:
            self._all = np.asarray(to_numpy(given))
            if not self._all.ndim:
                raise LabelError(f"{name} is a {type(given).__name__}; pass one label for each sequence or token.")

    @property
    def form(self) -> Literal["key", "batches", "array"]:
        """Where the labels are: in the batches, in an array for each batch, or in one array."""
        return "key" if self.key else "array" if self._each is None else "batches"

    def of_batch(self, number: int, inputs: Mapping[str, Any], start: int, size: int) -> Array:
        """The labels of a batch, (B,) or (B, T)."""
        if self.key:
            if self.key not in inputs:
                close = difflib.get_close_matches(self.key, list(inputs), n=1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                raise LabelError(
                    f"Batch {number} has no labels: {self.name}={self.key!r} is a key of the batches, and this one has "
                    f"{first_names(list(inputs))}.{hint}"
                )
            values = np.asarray(to_numpy(inputs[self.key]))
        elif self._each is not None:
            if number >= len(self._each):
                raise LabelError(
                    f"Batch {number} has no labels: {self.name} has those of {len(self._each)} batches. Pass labels "
                    "for each batch."
                )
            values = np.asarray(to_numpy(self._each[number]))
        else:
            assert self._all is not None
            values = self._all[start : start + size]
            if len(values) < size:
                raise LabelError(
                    f"Batch {number} has no labels for {size - len(values)} of its {size} sequences: {self.name} has "
                    f"{len(self._all)} labels, and the batches have at least {start + size} sequences. Pass labels for "
                    "all."
                )
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim not in (1, 2) or len(values) != size:
            raise LabelError(
                f"Batch {number} has {size} sequences and {self.name} of shape {values.shape}. Pass one label for each "
                "sequence, or one for each token, as input_ids has them."
            )
        return values

    def require_used(self, sequences: int, batches: int) -> None:
        """Raise LabelError if there are more labels than sequences, or than batches."""
        given, seen, what = (
            (self._each, batches, "batches") if self._each is not None else (self._all, sequences, "sequences")
        )
        if given is not None and len(given) != seen:
            raise LabelError(
                f"{self.name} has labels of {len(given)} {what}, and there are {seen}. Pass those of these {what}."
            )


def _is_array(value: Any) -> bool:
    return not isinstance(value, str | bytes) and (isinstance(value, Sequence) or bool(getattr(value, "ndim", 0)))


def _spread(values: Array, shape: tuple[int, ...], name: str, number: int) -> Array:
    """One value for each row: labels of sequences are those of all their tokens."""
    if values.ndim == 1:
        return np.broadcast_to(values.reshape(-1, *[1] * (len(shape) - 1)), shape)
    if values.shape != shape:
        rows = f"{shape[1]} tokens each" if len(shape) == 2 else "one pooled row each"
        raise LabelError(
            f"{name} of batch {number} has shape {values.shape}, for {shape[0]} sequences of {rows}. Labels of tokens "
            "have the shape of input_ids and need pooling='tokens'; others are one for each sequence."
        )
    return values


def _checked(number: int, inputs: Any) -> Mapping[str, Any]:
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"Batch {number} is a {type(inputs).__name__}; a batch is a mapping from names of arguments to tensors, as "
            "a tokenizer returns it with return_tensors='pt'."
        )
    return inputs


def _size(number: int, inputs: Mapping[str, Any]) -> int:
    """Number of sequences: those of input_ids, or of the first tensor."""
    import torch

    shown = [inputs[name] for name in ("input_ids", "attention_mask") if name in inputs] + list(inputs.values())
    for value in shown:
        if isinstance(value, torch.Tensor) and value.ndim:
            return len(value)
    raise InputError(
        f"Batch {number} holds no tensor ({first_names(list(inputs)) or 'it is empty'}). Ask the tokenizer for "
        "tensors: return_tensors='pt'."
    )


def _mask(number: int, inputs: Mapping[str, Any]) -> BoolArray | None:
    """Tokens that are not padding, (B, T); None where the inputs do not tell."""
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    shape = getattr(ids, "shape", None)
    if mask is None:
        return None if shape is None or len(shape) != 2 else np.ones(tuple(shape), dtype=bool)
    array = np.asarray(to_numpy(mask))
    if array.ndim != 2 or (shape is not None and array.shape != tuple(shape)):
        raise InputError(
            f"Batch {number} has an attention_mask of shape {array.shape}; it must be (sequences, tokens)"
            f"{'' if shape is None else f', here {tuple(shape)}'}."
        )
    return np.asarray(array != 0)


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if device is not None and hasattr(value, "to") else value


@dataclass(frozen=True)
class Survey:
    """What a pass over the labels finds.

    Parameters
    ----------
    rows : number of rows with a known concept.
    groups : rows of each pair of classes (concept, y); y is None without labels of the task. Of numbers, empty.
    """

    rows: int
    groups: Mapping[tuple[Any, Any], int]

    @classmethod
    def of(cls, batches: Batches, *, numbers: bool = False) -> Survey:
        """Count rows and classes, without running the model; a concept that is `numbers` has no classes."""
        rows, groups = 0, Counter[tuple[Any, Any]]()
        for batch in batches:
            rows += len(batch)
            if numbers or not len(batch):
                continue
            concept = class_label(batch.concept, "concept", len(batch), min_classes=1)
            y = None if batch.y is None else class_label(batch.y, "y", len(batch), min_classes=1)
            if y is not None and not y.present.all():
                raise LabelError(f"y is missing in rows of batch {batch.number}; only concept may have missing values.")
            codes = concept.codes * (1 if y is None else len(y.classes)) + (0 if y is None else y.codes)
            for code in np.unique(codes).tolist():
                one, other = divmod(code, 1 if y is None else len(y.classes))
                groups[concept.classes[one], None if y is None else y.classes[other]] += int(np.sum(codes == code))
            if len({concept for concept, _ in groups}) > MAX_CLASSES:
                raise LabelError(
                    f"concept has more than {MAX_CLASSES:,} classes. Pass one label for each sequence or token, and "
                    "LEACE(concept_type='continuous') for numbers."
                )
        if not rows:
            raise LabelError("No row has a known concept: all labels are missing, or all tokens are padding.")
        return cls(rows, dict(groups))

    def classes(self, which: int) -> tuple[Any, ...]:
        """The classes of the concept (0) or of y (1), in their order."""
        seen = {pair[which] for pair in self.groups}
        try:
            return tuple(sorted(seen))
        except TypeError:
            kinds = sorted({type(value).__name__ for value in seen})
            raise LabelError(
                f"{('concept', 'y')[which]} mixes values that cannot be ordered ({', '.join(kinds)}). Use one kind."
            ) from None


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Context in which a model is in evaluation mode, without dropout, and gets its modes back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def device_of(model: Any) -> Any:
    """Device of the first parameter or buffer; None for a model without any."""
    first = next((tensor for tensors in (model.parameters(), model.buffers()) for tensor in tensors), None)
    return None if first is None else first.device


def main_blocks(model: Any) -> list[str]:
    """Names of the main blocks: the longest list of modules of one class, the first where several are as long."""
    import torch

    found: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) > len(found) and len(set(map(type, module))) == 1:
            found = [f"{name}.{number}" if name else str(number) for number in range(len(module))]
    if not found:
        raise InputError(
            f"{type(model).__name__} has no list of equal blocks. Name the layers, as model.named_modules() has them: "
            "layers=['...']."
        )
    return found


def layers_in_order(
    model: Any, layers: Sequence[str], batch: Batch, output: Place | None
) -> dict[str, tuple[str | int, ...]]:
    """Names of layers in the order in which they return, with the place of the hidden states in their output.

    One forward pass. Raises InputError for names that are not in the model, for a module that does not run, and for one
    that runs several times: a removal would change what it was fitted on.
    """
    import torch

    modules: dict[int, str] = {}
    for name in layers:
        module = find_module(model, name)
        if id(module) in modules:
            same = modules[id(module)]
            said = "is named twice" if same == name else f"is the same module as {same!r}"
            raise InputError(f"Layer {name!r} {said}. Name it once.")
        modules[id(module)] = name
    places: dict[str, tuple[str | int, ...]] = {}
    runs: Counter[str] = Counter()

    def note(module: Any, _inputs: Any, returned: Any) -> None:
        name = modules[id(module)]
        runs[name] += 1
        places.setdefault(name, _place_of_hidden(returned, batch, name, output))

    handles = [find_module(model, name).register_forward_hook(note) for name in layers]
    try:
        with torch.no_grad():
            model(**batch.inputs)
    finally:
        for handle in handles:
            handle.remove()
    for name in layers:
        if runs[name] == 1:
            continue
        if not runs[name]:
            raise InputError(
                f"Layer {name!r} does not run in the forward pass of {type(model).__name__}, as far as hooks can tell. "
                "Choose modules that do; a ModuleList does not run, its blocks do."
            )
        raise InputError(
            f"Layer {name!r} runs {runs[name]} times in one forward pass: its weights are shared. A removal there "
            "would change the activations that it was fitted on. Choose layers that run once, such as the module "
            "around it."
        )
    return places


def _place_of_hidden(returned: Any, batch: Batch, layer: str, output: Place | None) -> tuple[str | int, ...]:
    """Place of the hidden states in the output of a layer: as asked for, the only ones, or the first of a tuple."""
    tensors = dict(tensors_in(returned))
    if output is not None:
        place = output if isinstance(output, tuple) else (output,)
        if place not in tensors:
            held = ", ".join(named_place(other) for other in tensors) or "no tensor"
            raise InputError(f"The output of layer {layer!r} has no tensor {named_place(place)}; it has {held}.")
        return place
    size = len(batch.kept)
    fits = [
        place
        for place, tensor in tensors.items()
        if tensor.is_floating_point()
        and (
            (tensor.ndim == 3 and (batch.mask is None or tuple(tensor.shape[:2]) == batch.mask.shape))
            or (tensor.ndim == 2 and len(tensor) == size and batch.pooling != "tokens")
        )
    ]
    if len(fits) == 1 or (fits and isinstance(returned, tuple) and fits[0] == (0,)):
        return fits[0]  # the blocks of transformers return hidden states first
    held = ", ".join(f"{named_place(place) if place else 'a tensor'} {tuple(t.shape)}" for place, t in tensors.items())
    tokens = "" if batch.mask is None else f" of {batch.mask.shape[1]} tokens"
    if not fits:
        raise InputError(
            f"The output of layer {layer!r} holds no hidden states of {size} sequences{tokens}: "
            f"{held or f'it is a {type(returned).__name__}'}. Choose a layer that returns them, "
            "as (sequences, tokens, features)."
        )
    raise InputError(
        f"The output of layer {layer!r} holds {len(fits)} tensors that may be the hidden states: {held}. Pass as "
        "output= the one that the network goes on with."
    )


class _LayerReached(Exception):  # noqa: N818 — ends a forward pass, and is no error
    """Ends a forward pass at the layer whose output was wanted."""

    def __init__(self, returned: Any):
        super().__init__()
        self.returned = returned


def rows_at(
    model: Any, layer: str, place: tuple[str | int, ...], batches: Batches
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Every batch with its rows at a layer. The forward pass ends there, so that later layers cost nothing."""
    import torch

    def stop(_module: Any, _inputs: Any, returned: Any) -> None:
        raise _LayerReached(returned)

    module = find_module(model, layer)
    for batch in batches:
        returned = None
        # No hook stays while the caller has the rows: an error there must leave the model as it was.
        handle = module.register_forward_hook(stop)
        try:
            with torch.no_grad():
                model(**batch.inputs)
        except _LayerReached as reached:
            returned = reached.returned
        finally:
            handle.remove()
        if returned is None:
            raise InputError(f"Layer {layer!r} does not run on batch {batch.number}, though it does on the first.")
        if len(batch):
            yield batch, batch.rows(tensor_at(returned, place, layer), layer)


def tensor_at(returned: Any, place: tuple[str | int, ...], layer: str) -> torch.Tensor:
    """The tensor at a place of an output."""
    found: torch.Tensor | None = dict(tensors_in(returned)).get(place)
    if found is None:
        raise InputError(
            f"The output of layer {layer!r} has no tensor {brief(named_place(place))}, though it had one in "
            "the first batch."
        )
    return found
