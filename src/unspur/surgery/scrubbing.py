"""Remove a concept from several layers of a network, one after the other, and measure what that does.

::

    layer 1 ──▶ rows of every batch ──▶ sums ──▶ removal
    layer 2 ──▶ the same, while layer 1 is clean ──▶ removal
    …                                                  ──▶ Scrubbing

Closed forms need sums only, so memory does not depend on the number of batches. A batch has B sequences of T tokens,
and a layer returns hidden states (B, T, d), or pooled ones (B, d). A *row* is what one label belongs to: a token that
is not padding, or the pooled vector of a sequence.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
from sklearn.base import clone

from unspur._arrays import to_numpy
from unspur._extras import require
from unspur._files import read_artifact, write_artifact
from unspur._text import brief
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur._version import __version__
from unspur.clusters import fingerprint
from unspur.exceptions import ArtifactError, InputError, LabelError, NotFiniteError
from unspur.metrics.leakage import Leakage, NumericLeakage, leakage
from unspur.removers import Remover, artifact_errors, restore
from unspur.removers.concepts import balanced_weights
from unspur.removers.leace import LEACE, ClosedFormRemover, fit_moments
from unspur.removers.seen_rows import merged_fingerprints, rounded_hashes
from unspur.rows import RowLabels, rows_of
from unspur.solvers.statistics import Covariances
from unspur.surgery.hooks import Attachment, Place, find_module, tensors_in

if TYPE_CHECKING:
    import torch

#: What a row is made of: every token, the mean of a sequence's tokens, or its first or last one.
Pooling: TypeAlias = Literal["tokens", "mean", "first", "last"]
#: Token-wise label of tokens that do not count, as in transformers.
IGNORED = -100
#: Most classes of a concept: each but one is a direction.
MAX_CLASSES = 100


class Batch(NamedTuple):
    """Inputs of a model, and which rows of its hidden states have which labels."""

    inputs: dict[str, Any]
    #: (B, T), False for padding; None if the inputs do not say how many tokens there are.
    mask: BoolArray | None
    #: Rows with a known label, (B, T) of tokens and (B,) of pooled rows.
    kept: BoolArray
    #: One value for each row that is kept, and the running number of its sequence.
    concept: Array
    y: Array | None
    sequence: IntArray
    pooling: Pooling

    def rows(self, hidden: torch.Tensor, layer: str) -> torch.Tensor:
        """The kept rows (m, d) of hidden states, in float32 at least; InputError if they have another shape."""
        import torch

        hidden = hidden.detach().to(torch.promote_types(hidden.dtype, torch.float32))
        shape = len(self.kept) if self.mask is None else self.mask.shape
        if self.pooling != "tokens" and hidden.ndim == 2 and len(hidden) == len(self.kept):
            rows = hidden
        elif hidden.ndim == 3 and (self.mask is None or tuple(hidden.shape[:2]) == shape):
            mask = torch.ones(hidden.shape[:2]) if self.mask is None else torch.from_numpy(self.mask)
            rows = _pooled(hidden, mask.to(hidden.device), self.pooling)
        else:
            raise InputError(
                f"Layer {layer!r} returns a tensor of shape {tuple(hidden.shape)} for {shape} sequences and tokens. "
                "Choose a layer that returns hidden states (sequences, tokens, features)."
            )
        rows = rows[torch.from_numpy(self.kept).to(hidden.device)]
        if not bool(torch.isfinite(rows).all()):
            raise NotFiniteError(f"Layer {layer!r} returns NaN or infinity. Use a model of a wider type.")
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
    first, last = torch.where(mask > 0, places, len(places)).amin(1), torch.where(mask > 0, places, -1).amax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first if pooling == "first" else last]


class Batches:
    """Batches of a user with their labels; see `scrub`. May be gone through any number of times."""

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
        if isinstance(batches, Mapping | str) or not isinstance(batches, Iterable) or iter(batches) is batches:
            raise InputError(
                f"batches is a {type(batches).__name__}. Pass a list of mappings or a DataLoader, since every layer "
                "goes through them anew."
            )
        self._batches, self._missing, self._device = batches, missing, device
        labels = {"concept": concept} if y is None else {"concept": concept, "y": y}
        self._labels = {
            name: one if isinstance(one, str) else np.asarray(to_numpy(one)) for name, one in labels.items()
        }
        if any(isinstance(one, np.ndarray) for one in self._labels.values()):
            _refuse_shuffling(batches)
        self.pooling: Pooling = pooling or "mean"
        if pooling is None:  # labels of tokens are of tokens
            first = next(iter(batches), None)
            given = first.get(concept, ()) if isinstance(concept, str) and isinstance(first, Mapping) else concept
            shape = np.shape(() if isinstance(given, str) else to_numpy(given))
            self.pooling = "tokens" if len(shape) == 2 and shape[1] > 1 else "mean"

    def __iter__(self) -> Iterator[Batch]:
        start = 0
        for number, given in enumerate(self._batches):
            batch = self._labelled(number, given, start)
            start += len(batch.kept)
            yield batch
        for name, labels in self._labels.items():
            if not isinstance(labels, str) and len(labels) != start:
                raise LabelError(
                    f"{name} has {len(labels)} labels, and there are {start} sequences. Pass one for each."
                )

    def _labelled(self, number: int, given: Any, start: int) -> Batch:
        import torch

        inputs = dict(given) if isinstance(given, Mapping) else {}
        keys = {labels for labels in self._labels.values() if isinstance(labels, str)}
        tensors = [value for name, value in inputs.items() if name not in keys and isinstance(value, torch.Tensor)]
        if not tensors:
            raise InputError(
                f"Batch {number} has no tensors by name. Pass what a tokenizer returns for return_tensors='pt'."
            )
        ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
        size = len(tensors[0] if ids is None else ids)
        mask = np.ones(tuple(ids.shape), bool) if mask is None and ids is not None else mask
        mask = None if mask is None else np.asarray(to_numpy(mask)) != 0
        if mask is not None and (mask.shape[:1] != (size,) or mask.ndim != 2 or not mask.any(axis=1).all()):
            raise InputError(f"Batch {number} has sequences without tokens, or a mask of shape {mask.shape}.")
        if self.pooling == "tokens" and mask is None:
            raise InputError(
                f"Batch {number} has no attention_mask, which tells its tokens. Add one, or pass pooling mean."
            )
        kept = mask.copy() if self.pooling == "tokens" and mask is not None else np.ones(size, dtype=bool)
        values = {}
        for name, labels in self._labels.items():
            if isinstance(labels, str) and labels not in inputs:
                raise LabelError(f"{name} {labels!r} is not in batch {number}, which has {brief(list(inputs), 200)}.")
            value = np.asarray(to_numpy(inputs[labels])) if isinstance(labels, str) else labels[start : start + size]
            value = value[:, 0] if value.ndim == 2 and value.shape[1] == 1 else value
            if value.shape not in ((size,), kept.shape):
                raise LabelError(
                    f"{name} of batch {number} has shape {value.shape}, for {size} sequences and rows {kept.shape}. "
                    "Pass one label for each sequence, or with pooling tokens for each token."
                )
            if value.ndim == 2:
                kept &= value != IGNORED
            values[name] = np.broadcast_to(value.reshape(value.shape + (1,) * (kept.ndim - value.ndim)), kept.shape)
        kept[kept] = ~_missing(values["concept"][kept], self._missing)
        sequence = start + np.broadcast_to(np.arange(size).reshape((size,) + (1,) * (kept.ndim - 1)), kept.shape)
        moved = {
            name: value.to(self._device) if self._device is not None and hasattr(value, "to") else value
            for name, value in inputs.items()
            if name not in keys
        }
        y = values["y"][kept] if "y" in values else None
        return Batch(moved, mask, kept, values["concept"][kept], y, sequence[kept], self.pooling)


def _refuse_shuffling(batches: Any) -> None:
    """Raise LabelError for a DataLoader whose rows do not come in the order of an array."""
    from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

    if not isinstance(batches, DataLoader) or isinstance(batches.dataset, IterableDataset):
        return
    sampler: Any = batches.sampler if batches.batch_sampler is None else batches.batch_sampler
    while hasattr(sampler, "sampler"):
        sampler = sampler.sampler
    if type(sampler) is not SequentialSampler:
        raise LabelError(
            f"The DataLoader has its rows in the order of a {type(sampler).__name__}, so labels in an array cannot be "
            "matched to them. Pass shuffle=False, or put the labels into the batches and pass their name."
        )


def _missing(values: Array, missing: Any) -> BoolArray:
    import pandas as pd

    found = np.asarray(pd.isna(values))
    return found if missing is None else found | np.asarray(values == missing)


def _count(batches: Batches, *, numbers: bool) -> Counter[tuple[Any, Any]]:
    """Rows of each pair of classes (concept, y), without running the model; numbers are one class, None."""
    groups = Counter[tuple[Any, Any]]()
    for batch in batches:
        n = len(batch.concept)
        if batch.y is not None and _missing(batch.y, None).any():
            raise LabelError("y is missing in some rows; only concept may have missing values.")
        concept = [None] * n if numbers else batch.concept.tolist()
        groups.update(zip(concept, [None] * n if batch.y is None else batch.y.tolist(), strict=True))
    if not groups:
        raise LabelError("No row has a known concept: all labels are missing, or all tokens are padding.")
    return groups


def _classes(values: Iterable[Any], name: str) -> tuple[Any, ...]:
    try:
        return tuple(sorted(set(values)))
    except TypeError:
        raise LabelError(f"{name} mixes values that cannot be ordered. Use one kind.") from None


def scrub(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    concept: Any,
    *,
    layers: Sequence[str],
    y: Any = None,
    remover: ClosedFormRemover | None = None,
    pooling: Pooling | None = None,
    output: Place | None = None,
) -> Scrubbing:
    """Fit a removal in several layers of a network, each on activations that the layers before it have cleaned.

    ::

        blocks = [f"encoder.layer.{k}" for k in range(12)]
        scrubbing = surgery.scrub(bert, batches, concept="negated", layers=blocks)
        with scrubbing.attach(bert):
            vectors = bert(**batch).last_hidden_state

    The model is run once over the batches for each layer, up to that layer, in evaluation mode and without gradients;
    it is not changed. Only sums over rows are kept.

    Parameters
    ----------
    model : torch.nn.Module
        Usually of transformers; any module that is called with the entries of a batch.
    batches : iterable of mappings from names of arguments to tensors
        As a tokenizer returns them. It is gone through several times: a list or a DataLoader, and no generator. Padding
        (``attention_mask == 0``) never counts.
    concept : str or array
        What to remove, one label for each sequence or for each token: the key of the batches that holds it (which the
        model does not get), or one array (n,) or (n, tokens) for all sequences in their order. Rows where it is
        missing, and tokens labelled −100, are left out.
    layers : list of str
        Names of modules as in ``model.named_modules()``, in any order.
    y : the same as `concept`, optional
        Task label, for SPLINCE.
    remover : an unfitted LEACE, SAL or SPLINCE, default=LEACE()
        Cloned for each layer.
    pooling : {"tokens", "mean", "first", "last"}, optional
        What the removals are fitted on: every token, or the mean, the first or the last token of each sequence. By
        default tokens for labels of tokens, and "mean" for labels of sequences. A removal always acts on every token,
        and so on their mean. Layers that return one vector for each sequence need no pooling.
    output : str, int or tuple of these, optional
        Which tensor of the layers' outputs, if several may be the hidden states. The first one of a tuple is taken
        without asking, as the blocks of transformers have it.

    Returns
    -------
    Scrubbing
        The removals by layer. It does not hold the model.
    """
    require("Scrubbing a network needs", "torch")
    remover = LEACE() if remover is None else remover
    if not isinstance(remover, ClosedFormRemover):
        raise InputError(f"remover is LEACE, SAL or SPLINCE, which need sums only; got a {type(remover).__name__}.")
    numbers = remover.concept_type == "continuous"
    names = [layers] if isinstance(layers, str) else list(layers or ())
    if not names:
        raise InputError(f"layers is empty. Name modules of {type(model).__name__}, such as {_candidates(model)}.")
    for name in names:
        find_module(model, name)
    labelled = Batches(batches, concept, y, pooling=pooling, missing=remover.missing_concept, device=_device_of(model))
    groups = _count(labelled, numbers=numbers)
    classes = () if numbers else _classes((one for one, _ in groups), "concept")
    if not numbers and not 2 <= len(classes) <= MAX_CLASSES:
        raise LabelError(
            f"concept has {len(classes)} classes in {groups.total():,} rows; 2 to {MAX_CLASSES} are possible. Numbers "
            "need a remover with concept_type='continuous'."
        )
    task = _classes((y for _, y in groups), "y") if remover._needs_y else ()
    if None in task:
        raise LabelError(f"{type(remover).__name__} uses the labels of the task: pass y.")
    weights = None if numbers else _group_weights(groups, remover.balance, classes, task)
    removals: dict[str, Remover] = {}
    with _evaluating(model), ExitStack() as attached:
        places = _layers_in_order(model, names, next(iter(labelled)), output)
        for layer, place in places.items():
            for before in list(removals)[-1:]:
                attached.enter_context(Attachment(model, before, removals[before].removal_, place=places[before]))
            try:
                removals[layer] = fit_sums(
                    clone(remover), classes, task, weights, rows_at(model, layer, place, labelled)
                )
            except InputError as error:
                error.add_note(f"This happened in layer {layer!r}.")
                raise
    return Scrubbing(MappingProxyType(removals), MappingProxyType(places), labelled.pooling)


def fit_sums(
    remover: Any,
    classes: tuple[Any, ...],
    task: tuple[Any, ...],
    weights: FloatArray | None,
    visits: Iterator[tuple[Batch, Any]],
) -> Remover:
    """Fit a closed form from sums over the batches; without `classes` the concept is a number."""
    total, seen = None, ""
    for batch, rows in visits:
        n = len(batch.concept)
        codes = np.asarray(np.searchsorted(classes, batch.concept)) if classes else np.zeros(n, dtype=np.intp)
        targets = _indicators(codes, len(classes)) if classes else batch.concept[None].astype(np.float64)
        main = np.zeros(n, dtype=np.intp)
        if task and batch.y is not None:
            main = np.asarray(np.searchsorted(task, batch.y))
            targets = np.concatenate([targets, _indicators(main, len(task))])
        weight = np.ones(n) if weights is None else weights[codes, main]
        labels = RowLabels(targets, np.zeros(n, dtype=np.intp), weight, 0)
        moments = Covariances.of(rows_of(rows, labels), in_float64=True)
        total = moments if total is None else total.merge(moments)
        one = fingerprint(rounded_hashes(rows))
        seen = merged_fingerprints(seen, one) if seen else one
    assert total is not None  # there are rows with a known concept
    return fit_moments(remover, total, concept_classes=classes, classes=task, row_set_hash=seen)


def _indicators(codes: IntArray, k: int) -> FloatArray:
    """Indicators of every class but the first, shape (k − 1, n)."""
    return np.asarray(codes == np.arange(1, k)[:, None], dtype=np.float64)


def _group_weights(
    groups: Counter[tuple[Any, Any]], balance: str, classes: tuple[Any, ...], task: tuple[Any, ...]
) -> FloatArray:
    """Weight of a row of each class of the concept and of the task, (k, m); m is 1 without a task."""
    counts = np.zeros((len(classes), max(1, len(task))))
    for (concept, y), count in groups.items():
        counts[classes.index(concept), task.index(y) if task else 0] += count
    concept_codes, task_codes = (codes.reshape(-1) for codes in np.indices(counts.shape))
    weight = balanced_weights(counts.reshape(-1), balance, concept_codes, task_codes if task else None)
    return np.divide(weight.reshape(counts.shape), counts, out=np.zeros_like(counts), where=counts > 0)


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Context in which a model is in evaluation mode, without dropout, and gets its modes back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _device_of(model: Any) -> Any:
    return next((one.device for tensors in (model.parameters(), model.buffers()) for one in tensors), None)


def _candidates(model: Any) -> str:
    """Names of modules in lists, as the blocks of transformers are."""
    import torch

    lists = [name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)]
    names = [name for name, _ in model.named_modules() if name.rpartition(".")[0] in lists or not lists]
    return brief(", ".join(filter(None, names)), 300)


def _layers_in_order(
    model: Any, layers: Sequence[str], batch: Batch, output: Place | None
) -> dict[str, tuple[str | int, ...]]:
    """Names of layers in the order in which they return, with the place of the hidden states in their output."""
    import torch

    places: dict[str, tuple[str | int, ...]] = {}
    runs: Counter[str] = Counter()

    def noting(layer: str) -> Any:
        def note(_module: Any, _inputs: Any, returned: Any) -> None:
            runs[layer] += 1
            places.setdefault(layer, _place_of_hidden(returned, batch, layer, output))

        return note

    with ExitStack() as hooks, torch.no_grad():
        for name in layers:
            hooks.callback(find_module(model, name).register_forward_hook(noting(name)).remove)
        model(**batch.inputs)
    for name in layers:
        if runs[name] != 1:
            raise InputError(
                f"Layer {name!r} runs {runs[name]} times in one forward pass. Name modules that run once; a ModuleList "
                "does not run, its blocks do."
            )
    return places


def _place_of_hidden(returned: Any, batch: Batch, layer: str, output: Place | None) -> tuple[str | int, ...]:
    """Place of the hidden states in the output of a layer: as asked for, the only ones, or the first of a tuple."""
    tensors = dict(tensors_in(returned))
    if output is not None:
        fits = [place for place in tensors if place == (output if isinstance(output, tuple) else (output,))]
    else:
        tokens = None if batch.mask is None else batch.mask.shape
        fits = [
            place
            for place, one in tensors.items()
            if one.is_floating_point()
            and (
                (one.ndim == 3 and tokens in (None, tuple(one.shape[:2])))
                or (one.ndim == 2 and len(one) == len(batch.kept) and batch.pooling != "tokens")
            )
        ]
    if len(fits) == 1 or (fits and isinstance(returned, tuple) and fits[0] == (0,)):
        return fits[0]  # the blocks of transformers return hidden states first
    held = ", ".join(f"{place} {tuple(one.shape)}" for place, one in tensors.items()) or type(returned).__name__
    raise InputError(
        f"The output of layer {layer!r} holds {len(fits)} tensors that may be the hidden states: {held}. Choose a "
        "layer that returns (sequences, tokens, features), or pass as output the place of the one that is used."
    )


class _LayerReached(Exception):  # noqa: N818 — ends a forward pass, and is no error
    """Ends a forward pass at the layer whose output was wanted."""


def rows_at(
    model: Any, layer: str, place: tuple[str | int, ...], batches: Batches
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Every batch with its rows at a layer. The forward pass ends there, so that later layers cost nothing."""
    import torch

    def stop(_module: Any, _inputs: Any, returned: Any) -> None:
        raise _LayerReached(dict(tensors_in(returned))[place])

    for batch in batches:
        # No hook stays while the caller has the rows: an error there must leave the model as it was.
        handle = find_module(model, layer).register_forward_hook(stop)
        try:
            with torch.no_grad():
                model(**batch.inputs)
            raise InputError(f"Layer {layer!r} does not run on every batch. Choose one that does.")
        except _LayerReached as reached:
            (hidden,) = reached.args
        finally:
            handle.remove()
        if len(batch.concept):
            yield batch, batch.rows(hidden, layer)


@dataclass(frozen=True, eq=False, repr=False)
class Scrubbing:
    """Removals for the layers of a network, as `scrub` fits them.

    Parameters
    ----------
    removals : fitted remover of each layer by its name, in the order in which layers run.
    places : where the hidden states are in the output of each layer: keys or positions, empty if the output is them.
    pooling : what the removals were fitted on: "tokens", or "mean", "first" or "last" of a sequence.
    """

    removals: Mapping[str, Remover]
    places: Mapping[str, tuple[str | int, ...]]
    pooling: Pooling

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, in the order in which they run."""
        return tuple(self.removals)

    @contextmanager
    def attach(self, model: Any) -> Iterator[Any]:
        """Context manager in which every layer of a model passes through its removal; gives back the model.

        What `surgery.attach` says of one layer holds for all: gradients flow, and a layer that does not run in the
        block issues a NothingRemovedWarning.
        """
        with ExitStack() as stack:
            for layer, remover in self.removals.items():
                stack.enter_context(Attachment(model, layer, remover.removal_, place=self.places[layer]))
            yield model

    def measure(
        self,
        model: Any,
        batches: Iterable[Mapping[str, Any]],
        concept: Any,
        *,
        max_rows: int = 2000,
        random_state: Any = 0,
    ) -> ScrubbingReport:
        """Measure what the removals do, on batches that they were not fitted on.

        A fresh linear probe predicts the concept in every layer, before and after, on held-out folds (tokens of one
        sequence share a fold). For models that return logits, their distribution is compared with the original one (KL
        divergence); for causal language models the perplexity as well.

        Parameters
        ----------
        model, batches, concept : as for `scrub`; rows are made as in the fit.
        max_rows : int, default=2000
            Rows on which each layer is probed, drawn at random with equal numbers of each class. They are kept in
            memory, for all layers, before and after.
        """
        first: Any = next(iter(self.removals.values()))
        numbers = first.concept_type == "continuous"
        labelled = Batches(
            batches, concept, pooling=self.pooling, missing=first.missing_concept, device=_device_of(model)
        )
        rng = np.random.default_rng(random_state)
        values = np.concatenate([batch.concept for batch in labelled])
        chosen = _sample(np.zeros(len(values)) if numbers else values, max_rows, rng)
        before, after = defaultdict[str, list[Array]](list), defaultdict[str, list[Array]](list)
        output, start, sequences = np.zeros(5), 0, []
        with _evaluating(model):
            for batch in labelled:
                taken = chosen[start : start + len(batch.concept)]
                start += len(taken)
                sequences.append(batch.sequence[taken])
                _add_output(
                    output,
                    model,
                    batch,
                    self._run(model, batch, taken, before),
                    self._run(model, batch, taken, after, True),
                )
        seed, clusters = int(rng.integers(2**31)), np.concatenate(sequences) if self.pooling == "tokens" else None
        kind: Any = "continuous" if numbers else "class"

        def probe(rows: list[Array]) -> Any:
            Z = np.concatenate(rows)
            return leakage(Z, values[chosen], concept_type=kind, clusters=clusters, random_state=seed)

        layers = tuple(LayerLeakage(layer, probe(before[layer]), probe(after[layer])) for layer in self.layers)
        return ScrubbingReport(layers, *_output_measures(output), int(chosen.sum()))

    def _run(
        self, model: Any, batch: Batch, taken: BoolArray, into: dict[str, list[Array]], clean: bool = False
    ) -> Any:
        """Output of the model, scrubbed if `clean`; the rows of every layer that are taken are put into `into`."""
        import torch

        def keep(layer: str) -> Any:
            def note(_module: Any, _inputs: Any, returned: Any) -> None:
                rows = batch.rows(dict(tensors_in(returned))[self.places[layer]], layer)
                into[layer].append(to_numpy(rows)[taken])

            return note

        with self.attach(model) if clean else nullcontext(), ExitStack() as hooks, torch.no_grad():
            for layer in self.layers:
                hooks.callback(find_module(model, layer).register_forward_hook(keep(layer)).remove)
            return model(**batch.inputs)

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write all layers to one safetensors file (no pickle); `Scrubbing.load` reads it back."""
        arrays: dict[str, Array] = {}
        layers = []
        for number, (name, remover) in enumerate(self.removals.items()):
            own, metadata = remover._to_artifact()
            arrays |= {f"{number}.{key}": array for key, array in own.items()}
            layers.append({"name": name, "place": list(self.places[name]), "removal": metadata})
        metadata = {"method": "Scrubbing", "version": __version__, "pooling": self.pooling, "layers": layers}
        write_artifact(path, arrays, metadata, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read what `save` wrote; ArtifactError for an inconsistent file."""
        arrays, metadata = read_artifact(path)
        if metadata.get("method") != "Scrubbing":
            raise ArtifactError(f"{path} holds one removal, and not those of a network. Read it with unspur.load.")
        removals: dict[str, Remover] = {}
        with artifact_errors(path, "removals of a network"):
            for number, layer in enumerate(metadata["layers"]):
                own = {name.partition(".")[2]: one for name, one in arrays.items() if name.startswith(f"{number}.")}
                removals[str(layer["name"])] = restore(path, own, layer["removal"])
            places = {str(layer["name"]): tuple(layer["place"]) for layer in metadata["layers"]}
            if metadata["pooling"] not in get_args(Pooling):
                raise ValueError(f"the pooling is {metadata['pooling']!r}")
            return cls(MappingProxyType(removals), MappingProxyType(places), metadata["pooling"])

    def __str__(self) -> str:
        kinds = ", ".join(sorted({type(remover).__name__ for remover in self.removals.values()}))
        lines = [f"{kinds} in {len(self.removals)} layers, fitted on rows of kind {self.pooling!r}"]
        for name, remover in self.removals.items():
            lines.append(f"  {name}: {remover.n_removed_} of {remover.removal_.ambient} directions removed")
        return "\n".join(lines)

    __repr__ = __str__


def _sample(values: Array, max_rows: int, rng: np.random.Generator) -> BoolArray:
    """Mask of rows drawn at random, as many of each value."""
    classes, codes = np.unique(values, return_inverse=True)
    chosen = np.zeros(len(values), dtype=bool)
    for code in range(len(classes)):
        rows = np.flatnonzero(codes == code)
        chosen[rng.choice(rows, min(len(rows), max(1, max_rows // len(classes))), replace=False)] = True
    return chosen


@dataclass(frozen=True, slots=True)
class LayerLeakage:
    """How well a probe predicts the concept in one layer, before and after the removals.

    Attributes
    ----------
    layer : name of the layer.
    before, after : Leakage of the original and of the scrubbed network; NumericLeakage if the concept is a number.
    """

    layer: str
    before: Leakage | NumericLeakage
    after: Leakage | NumericLeakage


@dataclass(frozen=True, slots=True)
class ScrubbingReport:
    """What the removals of a network do, on batches that they were not fitted on; prints as a table.

    Attributes
    ----------
    layers : LayerLeakage of each layer, in the order in which they run.
    kl : mean Kullback-Leibler divergence, in nats, of the scrubbed from the original distribution of the logits: by
        token, or by sequence for logits of sequences. None for a model without logits.
    perplexity_before, perplexity_after : of the next token, for causal language models, else None.
    tokens : tokens that were predicted.
    rows : rows on which the probes were trained and tested.
    """

    layers: tuple[LayerLeakage, ...]
    kl: float | None
    perplexity_before: float | None
    perplexity_after: float | None
    tokens: int
    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        layers = [
            {"layer": one.layer, "before": one.before.to_dict(), "after": one.after.to_dict()} for one in self.layers
        ]
        return {**asdict(self), "layers": layers}

    def __str__(self) -> str:
        chance = next((one.before.chance for one in self.layers if isinstance(one.before, Leakage)), None)
        what = "R²" if chance is None else f"balanced accuracy in %, chance {100 * chance:.1f}"
        wide = max(len(one.layer) for one in self.layers)
        lines = [f"linear probes by layer ({what}; {self.rows:,} rows)", f"{'layer':<{wide}}  before   after"]
        lines += [f"{one.layer:<{wide}}  {_score(one.before)}  {_score(one.after)}" for one in self.layers]
        if self.kl is not None:
            lines.append(f"KL divergence of the output from the original: {self.kl:.4g} nats")
        if self.perplexity_before is not None:
            lines.append(f"perplexity: {self.perplexity_before:.2f} before, {self.perplexity_after:.2f} after")
        return "\n".join(lines)

    __repr__ = __str__


def _score(measured: Leakage | NumericLeakage) -> str:
    return f"{measured.r2:6.3f}" if isinstance(measured, NumericLeakage) else f"{100 * measured.accuracy:6.1f}"


def _add_output(sums: Array, model: Any, batch: Batch, before: Any, after: Any) -> None:
    """Add the divergence of logits, their number, the losses of next tokens before and after, and their number."""
    import torch

    first, second = (getattr(output, "logits", None) for output in (before, after))
    if first is None or second is None or first.ndim not in (2, 3):
        return
    # Logits of a decoder are of tokens of its own.
    tokens = batch.mask if batch.mask is not None and first.shape[:-1] == batch.mask.shape else None
    ids = batch.inputs.get("input_ids")
    encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    generates = tokens is not None and getattr(model, "can_generate", bool)() and not encodes
    for number in range(len(first)):  # one sequence at a time: all at once may take gigabytes
        kept = slice(None) if tokens is None else torch.from_numpy(tokens[number]).to(first.device)
        log_p, log_q = (
            one[number].double().reshape(-1, one.shape[-1])[kept].log_softmax(-1) for one in (first, second)
        )
        possible = log_p > -math.inf  # forbidden tokens have logit -inf, and 0 · log 0 is 0
        sums[:2] += float((log_p[possible].exp() * (log_p - log_q)[possible]).sum()), len(log_p)
        if generates and ids is not None:
            following = ids[number][kept][1:, None]
            sums[2:4] += [-float(log[:-1].gather(1, following).sum()) for log in (log_p, log_q)]
            sums[4] += len(following)


def _output_measures(sums: Array) -> tuple[float | None, float | None, float | None, int]:
    """Mean divergence, perplexity before and after, and tokens that were predicted."""
    divergence, places, *losses, tokens = sums.tolist()
    kl = divergence / places if places else None
    before, after = (math.exp(min(loss / tokens, 700.0)) if tokens else None for loss in losses)
    return kl, before, after, int(tokens)
