"""Remove a concept from every layer of a network, one after the other, and measure what that does.

::

    batches, labels ──▶ Survey: classes and counts, without the model
    layer 1 ──▶ rows of every batch ──▶ sums, or a temporary file ──▶ remover
    layer 2 ──▶ the same, while layer 1 is clean ──▶ remover
    …                                                         ──▶ Scrubbing

Closed forms need sums only, so memory does not depend on the number of batches. Other removers go over the rows many
times; the rows of one layer at a time are then in a temporary file. `Scrubbing.measure` trains probes by layer, and
compares the output distribution.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone

from unspur._arrays import to_numpy
from unspur._extras import require
from unspur._files import Shapes, read_artifact, write_artifact
from unspur._reading import require_kinds
from unspur._typing import Array, BoolArray, FloatArray, IntArray
from unspur._version import __version__
from unspur.clusters import fingerprint
from unspur.exceptions import ArtifactError, InputError, LabelError
from unspur.labels import class_label
from unspur.metrics.leakage import Leakage, NumericLeakage, leakage
from unspur.removers import Remover, artifact_errors, restore
from unspur.removers.base import require_shapes
from unspur.removers.concepts import balanced_weights, indicators, read_concepts, require_few_codes
from unspur.removers.leace import LEACE, ClosedFormRemover, fit_moments
from unspur.removers.seen_rows import SeenRows, merged_fingerprints, rounded_hashes
from unspur.rows import RowLabels, rows_of
from unspur.solvers.statistics import Covariances
from unspur.surgery.activations import (
    IGNORED,
    Batch,
    Batches,
    Pooling,
    Survey,
    device_of,
    evaluating,
    layers_in_order,
    main_blocks,
    rows_at,
    tensor_at,
)
from unspur.surgery.folding import FoldedNetwork, fold_network
from unspur.surgery.hooks import Attachment, Place, find_module

if TYPE_CHECKING:
    import torch

#: What is said of batches that are not the same each time.
_CHANGING = (
    "The batches have {} rows this time, and had {:,} before: they change from pass to pass. A DataLoader that "
    "shuffles leaves out other rows each time if drop_last=True; pass drop_last=False. Only LEACE, SAL and "
    "SPLINCE can handle rows that change."
)
#: Most layers of a file.
MAX_LAYERS = 10_000


def scrub(
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    concept: Any,
    *,
    y: Any = None,
    remover: Remover | None = None,
    layers: Sequence[str] | None = None,
    pooling: Pooling | None = None,
    output: Place | None = None,
) -> Scrubbing:
    """Fit a removal in every layer of a network, each on activations that the layers before it have cleaned.

    ::

        scrubbing = surgery.scrub(bert, batches, concept="negated")
        with scrubbing.attach(bert):
            vectors = bert(**batch).last_hidden_state

    The model is run once over the batches for each layer, up to that layer, in evaluation mode and without gradients;
    it is not changed. Of LEACE, SAL and SPLINCE only sums over rows are kept. Other removers get the rows of one layer
    at a time from a temporary file.

    Parameters
    ----------
    model : torch.nn.Module
        Usually of transformers; any module that is called with the entries of a batch.
    batches : iterable of mappings from names of arguments to tensors
        As a tokenizer returns them. It is gone through several times: a list or a DataLoader, and no generator. Padding
        (``attention_mask == 0``) never counts.
    concept : str, array or list of arrays
        What to remove, one label for each sequence or for each token: the key of the batches that holds it (which the
        model does not get), one array (n,) or (n, tokens) for all sequences in their order, or a list with an array for
        each batch. Rows where it is missing, and tokens labelled −100, are left out.
    y : the same, optional
        Main-task label, for removers that use it (JSE, SPLINCE).
    remover : an unfitted remover, default=LEACE()
        Cloned for each layer.
    layers : list of str, optional
        Names of modules as in ``model.named_modules()``, in any order. By default the blocks of the longest list of
        modules of one class, such as ``encoder.layer.0`` to ``encoder.layer.11``.
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
    import torch

    if not isinstance(model, torch.nn.Module):
        raise InputError(f"scrub needs a torch.nn.Module; got a {type(model).__name__}.")
    if isinstance(getattr(model, "transformers_model", None), torch.nn.Module):
        raise InputError(
            f"A {type(model).__name__} is not called with the entries of a batch. Pass its network, "
            "model.transformers_model, here and to `attach`; model.encode then returns what the scrubbed network makes."
        )
    remover = LEACE() if remover is None else remover
    if not isinstance(remover, Remover):
        raise InputError(f"remover is a remover such as LEACE(); got a {type(remover).__name__}.")
    numbers = getattr(remover, "concept_type", "class") == "continuous"
    missing = getattr(remover, "missing_concept", None)
    names = _names(model, layers)
    labelled = Batches(batches, concept, y, pooling=pooling, missing=missing, device=device_of(model))
    survey = Survey.of(labelled, numbers=numbers)
    _require_classes(survey, remover, numbers=numbers)
    fit = fit_sums if isinstance(remover, ClosedFormRemover) else _fit_stored
    removals: dict[str, Remover] = {}
    with evaluating(model), ExitStack() as attached:
        places = layers_in_order(model, names, next(iter(labelled)), output)
        for layer, place in places.items():
            for before, fitted in list(removals.items())[-1:]:
                attached.enter_context(Attachment(model, before, fitted.removal_, output=places[before]))
            with _name_layer_in_errors(layer):
                removals[layer] = fit(clone(remover), survey, rows_at(model, layer, place, labelled))
    return Scrubbing(MappingProxyType(removals), MappingProxyType(places), labelled.pooling)


@contextmanager
def _name_layer_in_errors(layer: str) -> Iterator[None]:
    """Context in which errors about the input name the layer, if they do not yet."""
    try:
        yield
    except InputError as error:
        if repr(layer) in str(error):
            raise
        raise type(error)("Layer {layer!r}: {said}", layer=layer, said=error.message) from error


def _names(model: Any, layers: Sequence[str] | None) -> list[str]:
    if layers is None:
        return main_blocks(model)
    names = [layers] if isinstance(layers, str) else list(layers)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"layers is a list of names of modules, as model.named_modules() has them; got {layers!r}.")
    return names


def _require_classes(survey: Survey, remover: Remover, *, numbers: bool) -> None:
    """Raise LabelError unless the labels suit the remover."""
    if numbers:
        return
    classes = survey.classes(0)
    if len(classes) < 2:
        raise LabelError(
            f"concept has one class only ({classes[0]}) in all {survey.rows:,} rows; two are needed to find a "
            "direction that tells them apart."
        )
    if getattr(remover, "concept_type", "class") == "auto":
        require_few_codes(classes, survey.rows, "concept")
    if isinstance(remover, ClosedFormRemover) and remover._needs_y and None in survey.classes(1):
        raise LabelError(f"{type(remover).__name__} uses the labels of the task: pass y.")


def fit_sums(remover: Any, survey: Survey, visits: Iterator[tuple[Batch, Any]]) -> Remover:
    """Fit a closed form from sums over the batches."""
    numbers = remover.concept_type == "continuous"
    classes = () if numbers else survey.classes(0)
    task = survey.classes(1) if not numbers and remover._needs_y else ()
    weights = None if numbers else _group_weights(survey, remover.balance, classes, task)
    total, seen = None, ""
    for batch, rows in visits:
        n = len(batch)
        concepts = read_concepts(
            batch.concept,
            n,
            kind="continuous" if numbers else "class",
            classes=[classes] if classes else None,
            varying=False,
        )
        main = class_label(batch.y, "y", n, classes=task) if task else None
        targets = concepts.columns if main is None else np.concatenate([concepts.columns, indicators(main)])
        weight = np.ones(n) if weights is None else weights[concepts.group, 0 if main is None else main.codes]
        labels = RowLabels(targets, np.zeros(n, dtype=np.intp), weight, 0)
        moments = Covariances.of(rows_of(rows, labels), in_float64=True)
        total = moments if total is None else total.merge(moments)
        one = fingerprint(rounded_hashes(rows))
        seen = merged_fingerprints(seen, one) if seen else one
    assert total is not None  # the survey found rows
    return fit_moments(remover, total, concept_classes=classes, classes=task, row_set_hash=seen)


def _group_weights(survey: Survey, balance: str, classes: tuple[Any, ...], task: tuple[Any, ...]) -> FloatArray:
    """Weight of a row of each class of the concept and of the task, (k, m); m is 1 without a task."""
    counts = np.zeros((len(classes), max(1, len(task))))
    for (concept, y), count in survey.groups.items():
        counts[classes.index(concept), task.index(y) if task else 0] += count
    concept_codes, main_codes = (codes.reshape(-1) for codes in np.indices(counts.shape))
    weight = balanced_weights(counts.reshape(-1), balance, concept_codes, main_codes if task else None)
    return np.divide(weight.reshape(counts.shape), counts, out=np.zeros_like(counts), where=counts > 0)


def _fit_stored(remover: Any, survey: Survey, visits: Iterator[tuple[Batch, Any]]) -> Remover:
    """Fit a remover that goes over the rows many times: they are brought to the host."""
    Z, filled = None, 0
    concepts: list[Array] = []
    tasks: list[Array] = []
    sequences: list[Array] = []
    for batch, rows in visits:
        host = to_numpy(rows)
        if Z is None:
            Z = np.empty((survey.rows, host.shape[1]), host.dtype)
        if filled + len(batch) > survey.rows:
            raise InputError(_CHANGING.format(f"more than {survey.rows:,}", survey.rows))
        Z[filled : filled + len(batch)] = host
        filled += len(batch)
        concepts.append(batch.concept)
        tasks.append(batch.y)
        sequences.append(batch.sequence)
    if Z is None or filled < survey.rows:
        raise InputError(_CHANGING.format(f"{filled:,}", survey.rows))
    y = None if batch.y is None else np.concatenate(tasks)
    options = {}
    if batch.pooling == "tokens" and "clusters" in signature(remover.fit).parameters:
        options["clusters"] = np.concatenate(sequences)  # tokens of one sequence are not independent
    remover.fit(Z, y, concept=np.concatenate(concepts), **options)
    remover._store_row_hashes(SeenRows(None, remover.training_hash_))  # 40 bytes a row and layer
    fitted: Remover = remover
    return fitted


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
                stack.enter_context(Attachment(model, layer, remover.removal_, output=self.places[layer]))
            yield model

    def fold(self, model: Any, batch: Mapping[str, Any]) -> FoldedNetwork:
        """A copy of a model with the removals in its weights, wherever that is exact.

        A removal is folded into its layer if that is linear or an embedding, and into the maps that read its output if
        all of them are linear and nothing else reads it (in a transformer, the output of a norm before attention or
        before an MLP, or before the head). A block whose output also goes along the residual connection, or into a
        norm, keeps its hook.

        What the model returns for `batch` is the same as with hooks. The output of a layer whose removal was folded
        into its readers is not cleaned itself. So if you use hidden states, let the model return them for `batch`, for
        example by ``output_hidden_states=True``.

        Parameters
        ----------
        model : the model that was scrubbed, without hooks.
        batch : mapping from names of arguments to tensors
            The model is run on it to see which modules read the output of a layer, and to check the result.
        """
        return fold_network(model, self, batch)

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
        divergence); for causal language models the perplexity as well. For other models the last hidden states are
        compared, by their mean cosine.

        Parameters
        ----------
        model, batches, concept : as for `scrub`; rows are made as in the fit.
        max_rows : int, default=2000
            Rows on which each layer is probed, drawn at random with equal numbers of each class. They are kept in
            memory, for all layers, before and after.
        """
        return _measure(self, model, batches, concept, max_rows, random_state)

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
        """Read what `save` wrote.

        Raises ArtifactError for an inconsistent file. Safe for files from untrusted sources.
        """

        def check(metadata: dict[str, Any], shapes: Shapes) -> None:
            if metadata.get("method") != "Scrubbing":
                raise ArtifactError(
                    f"{path} holds one removal, and not those of a network. Read it with unspur.load, and use "
                    "surgery.attach."
                )
            with artifact_errors(path, "removals of a network"):
                _require_layers(metadata)
                for number in range(len(metadata["layers"])):
                    require_shapes(_of_layer(shapes, number))

        arrays, metadata = read_artifact(path, check)
        removals: dict[str, Remover] = {}
        with artifact_errors(path, "removals of a network"):
            for number, layer in enumerate(metadata["layers"]):
                removals[layer["name"]] = restore(path, _of_layer(arrays, number), layer["removal"])
        places = {layer["name"]: tuple(layer["place"]) for layer in metadata["layers"]}
        return cls(MappingProxyType(removals), MappingProxyType(places), metadata["pooling"])

    def __str__(self) -> str:
        if not self.removals:
            return "Scrubbing of no layer"
        width = max(map(len, self.layers))
        method = type(next(iter(self.removals.values()))).__name__
        what = "tokens" if self.pooling == "tokens" else f"the {self.pooling} token of each sequence"
        what = "the mean of each sequence" if self.pooling == "mean" else what
        lines = [f"{method} in {len(self.removals)} layers, fitted on {what}"]
        for name, remover in self.removals.items():
            removed = f"{remover.n_removed_} of {remover.removal_.ambient} directions removed{remover.strength_note}"
            lines.append(f"  {name:<{width}}  {removed}")
        return "\n".join(lines)

    __repr__ = __str__


#: Metadata of a file; removers check their own part.
_LAYERS = {"pooling": str, "layers": [{"name": str, "place": [(str, int)], "removal": {"method": str}}]}


def _require_layers(metadata: dict[str, Any]) -> None:
    require_kinds(metadata, _LAYERS, "the metadata")
    layers = metadata["layers"]
    if len(layers) > MAX_LAYERS or len({layer["name"] for layer in layers}) < len(layers):
        raise ValueError(f"its {len(layers):,} layers have the same name, or are too many")
    if metadata["pooling"] not in ("tokens", "mean", "first", "last"):
        raise ValueError(f"the pooling is {metadata['pooling']!r}")


def _of_layer(arrays: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The arrays of one layer, by the names that a removal gives them."""
    start = f"{number}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


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
    cosine : mean cosine between the last hidden states of a token before and after, for models without logits; None if
        they return no ``last_hidden_state`` either.
    """

    layers: tuple[LayerLeakage, ...]
    kl: float | None
    perplexity_before: float | None
    perplexity_after: float | None
    tokens: int
    rows: int
    cosine: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        layers = [
            {"layer": one.layer, "before": one.before.to_dict(), "after": one.after.to_dict()} for one in self.layers
        ]
        return {
            "layers": layers,
            "kl": self.kl,
            "perplexity_before": self.perplexity_before,
            "perplexity_after": self.perplexity_after,
            "tokens": self.tokens,
            "rows": self.rows,
            "cosine": self.cosine,
        }

    def __str__(self) -> str:
        width = max([len(one.layer) for one in self.layers] + [5])
        chance = next((one.before.chance for one in self.layers if isinstance(one.before, Leakage)), None)
        what = "R²" if chance is None else f"balanced accuracy in %, chance {100 * chance:.1f}; log loss after"
        lines = [f"linear probes by layer ({what}; {self.rows:,} rows)"]
        lines.append(f"{'layer':<{width}}  before   after" + ("" if chance is None else "  loss / chance"))
        for one in self.layers:
            after = one.after
            loss = f"  {after.loss:.3f} / {after.chance_loss:.3f}" if isinstance(after, Leakage) else ""
            lines.append(f"{one.layer:<{width}}  {_score(one.before)}  {_score(after)}{loss}")
        if self.kl is not None:
            lines.append(f"KL divergence of the output from the original: {self.kl:.4g} nats")
        elif self.cosine is not None:
            lines.append(f"mean cosine between last hidden states before and after: {self.cosine:.3f} (no logits)")
        else:
            lines.append("no logits and no last hidden states: what the removal costs was not measured")
        if self.perplexity_before is not None:
            lines.append(
                f"perplexity: {self.perplexity_before:.2f} before, {self.perplexity_after:.2f} after "
                f"({self.tokens:,} tokens)"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _score(measured: Leakage | NumericLeakage) -> str:
    return f"{measured.r2:6.3f}" if isinstance(measured, NumericLeakage) else f"{100 * measured.accuracy:6.1f}"


def _measure(
    scrubbing: Scrubbing,
    model: Any,
    batches: Iterable[Mapping[str, Any]],
    concept: Any,
    max_rows: int,
    random_state: Any,
) -> ScrubbingReport:
    """See `Scrubbing.measure`."""
    require("Measuring a network needs", "torch")
    if isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 10:
        raise InputError(f"max_rows is a whole number of 10 or more; got {max_rows!r}.")
    if not scrubbing.removals:
        raise InputError("There are no removals to measure: no layer was scrubbed, or all were folded.")
    rng = np.random.default_rng(random_state)
    first = next(iter(scrubbing.removals.values()))
    numbers = getattr(first, "concept_type", "class") == "continuous"
    missing = getattr(first, "missing_concept", None)
    labelled = Batches(batches, concept, pooling=scrubbing.pooling, missing=missing, device=device_of(model))
    sample = _Sample(Survey.of(labelled, numbers=numbers), max_rows, rng, numbers=numbers)
    output = _OutputSums()
    with evaluating(model):
        for batch in labelled:
            chosen = sample.of_batch(batch)
            before = _run(model, scrubbing, batch, chosen, sample.before, clean=False)
            after = _run(model, scrubbing, batch, chosen, sample.after, clean=True)
            output.add(model, batch, before, after)
    seed = int(rng.integers(2**31))
    clusters = sample.sequences if scrubbing.pooling == "tokens" else None
    kind: Any = "continuous" if numbers else "class"

    def probe(rows: list[Any]) -> Leakage | NumericLeakage:
        measured: Leakage | NumericLeakage = leakage(
            np.concatenate(rows), sample.labels, concept_type=kind, clusters=clusters, random_state=seed
        )
        return measured

    layers = tuple(
        LayerLeakage(layer, probe(sample.before[layer]), probe(sample.after[layer])) for layer in scrubbing.layers
    )
    return ScrubbingReport(layers, *output.results(), len(sample.labels), output.cosine)


class _Sample:
    """Rows drawn at random, as many of each class, and what each layer makes of them."""

    def __init__(self, survey: Survey, max_rows: int, rng: np.random.Generator, *, numbers: bool):
        counts = {None: survey.rows}
        if not numbers:
            counts = dict.fromkeys(survey.classes(0), 0)
            for (value, _), count in survey.groups.items():
                counts[value] += count
        each = max(1, max_rows // len(counts))
        self._chosen = {
            value: np.sort(rng.choice(count, min(count, each), replace=False)) for value, count in counts.items()
        }
        self._passed = dict.fromkeys(counts, 0)
        self._numbers = numbers
        self._labels: list[Array] = []
        self._sequences: list[IntArray] = []
        self.before: dict[str, list[Any]] = defaultdict(list)
        self.after: dict[str, list[Any]] = defaultdict(list)

    def of_batch(self, batch: Batch) -> BoolArray:
        """Which rows of a batch are in the sample, (m,); batches come in their order."""
        taken = np.zeros(len(batch), dtype=bool)
        for value, chosen in self._chosen.items():
            where = np.arange(len(batch)) if self._numbers else np.flatnonzero(batch.concept == value)
            start = self._passed[value]
            self._passed[value] = start + len(where)
            inside = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, start + len(where))] - start
            taken[where[inside]] = True
        self._labels.append(batch.concept[taken])
        self._sequences.append(batch.sequence[taken])
        return taken

    @property
    def labels(self) -> Array:
        """Concept of each row."""
        return np.concatenate(self._labels)

    @property
    def sequences(self) -> IntArray:
        """Sequence of each row."""
        return np.concatenate(self._sequences)


def _run(
    model: Any, scrubbing: Scrubbing, batch: Batch, chosen: BoolArray, into: dict[str, list[Any]], *, clean: bool
) -> Any:
    """Output of the model, scrubbed if `clean`; the chosen rows of every layer are put into the lists `into`."""
    import torch

    def keep(layer: str) -> Any:
        def note(_module: Any, _inputs: Any, returned: Any) -> None:
            rows = batch.rows(tensor_at(returned, scrubbing.places[layer], layer), layer)
            into[layer].append(to_numpy(rows[torch.from_numpy(chosen).to(rows.device)]))

        return note

    with scrubbing.attach(model) if clean else nullcontext(), ExitStack() as hooks, torch.no_grad():
        for layer in scrubbing.layers:
            hooks.callback(find_module(model, layer).register_forward_hook(keep(layer)).remove)
        return model(**batch.inputs)


class _OutputSums:
    """Sums of divergences and of log probabilities over tokens, or over sequences for logits of sequences.

    For models without logits, sums of cosines between last hidden states.
    """

    def __init__(self) -> None:
        self._divergence, self._places = 0.0, 0
        self._cosines, self._states = 0.0, 0
        self._losses, self._tokens = np.zeros(2), 0
        self._causal: bool | None = None

    def add(self, model: Any, batch: Batch, before: Any, after: Any) -> None:
        """Add a batch."""
        first, second = _logits(before), _logits(after)
        if first is None or second is None:
            self._add_states(model, batch, before, after)
            return
        if self._causal is None:
            self._causal = _is_causal(model, batch, first)
        mask = _output_mask(model, batch, tuple(first.shape[:-1]))
        ids = batch.inputs.get("input_ids")
        for log_p, log_q, counts, number in _by_sequence(first, second, mask):
            possible = log_p > -math.inf  # forbidden tokens have logit -inf, and 0 · log 0 is 0
            self._divergence += float((log_p[possible].exp() * (log_p - log_q)[possible]).sum())
            self._places += len(log_p)
            if self._causal and ids is not None:
                tokens = ids[number][counts][1:, None]
                losses = [-float(log[:-1].gather(1, tokens).sum()) for log in (log_p, log_q)]
                self._losses += losses
                self._tokens += len(tokens)

    def _add_states(self, model: Any, batch: Batch, before: Any, after: Any) -> None:
        import torch

        first, second = (_entry(output, "last_hidden_state") for output in (before, after))
        if first is None or second is None:
            return
        cosines = torch.cosine_similarity(first.double(), second.double(), dim=-1)
        cosines = cosines[torch.from_numpy(_output_mask(model, batch, tuple(cosines.shape))).to(cosines.device)]
        self._cosines += float(cosines.sum())
        self._states += cosines.numel()

    @property
    def cosine(self) -> float | None:
        """Mean cosine between last hidden states; None if there are none."""
        return self._cosines / self._states if self._states else None

    def results(self) -> tuple[float | None, float | None, float | None, int]:
        """Mean divergence, perplexity before and after, and tokens that were predicted."""
        kl = self._divergence / self._places if self._places else None
        if not self._tokens:
            return kl, None, None, 0
        before, after = (math.exp(min(loss / self._tokens, 700.0)) for loss in self._losses)
        return kl, before, after, self._tokens


def _output_mask(model: Any, batch: Batch, shape: tuple[int, ...]) -> BoolArray:
    """Places of the output that are not padding. Those of a decoder are tokens of its own, not of `input_ids`."""
    given, mask = batch.inputs, batch.mask
    decodes = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    if any(name.startswith("decoder_") for name in given) or (decodes and "labels" in given):
        own, labels = given.get("decoder_attention_mask"), given.get("labels")
        mask = None
        if own is not None:
            mask = np.asarray(to_numpy(own) != 0)
        elif labels is not None:
            mask = np.asarray(to_numpy(labels) != IGNORED)
    return mask if mask is not None and mask.shape == shape else np.ones(shape, dtype=bool)


def _by_sequence(
    first: torch.Tensor, second: torch.Tensor, mask: BoolArray
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]]:
    """Log probabilities (m, V) of the places that count, one sequence at a time: all at once may take gigabytes."""
    import torch

    counts = torch.from_numpy(mask.reshape(len(mask), -1)).to(first.device)
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        places = counts[number]
        rows = (logits.reshape(len(places), -1)[places].double() for logits in (one, other))
        log_p, log_q = (torch.log_softmax(row, dim=-1) for row in rows)
        yield log_p, log_q, places, number


def _logits(output: Any) -> torch.Tensor | None:
    return _entry(output, "logits")


def _entry(output: Any, name: str) -> torch.Tensor | None:
    """A tensor by sequence, or by token, that a model returned under this name; None if there is none."""
    tensor = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
    return tensor if getattr(tensor, "ndim", 0) in (2, 3) else None


def _is_causal(model: Any, batch: Batch, logits: torch.Tensor) -> bool:
    """Whether logits predict the next token: another last token leaves those of earlier ones as they are."""
    import torch

    ids, mask = batch.inputs.get("input_ids"), batch.mask
    if ids is None or mask is None or tuple(logits.shape[:2]) != mask.shape or logits.ndim != 3:
        return False
    longest = int(mask.sum(1).argmax())
    last = int(np.flatnonzero(mask[longest])[-1])
    if mask[longest].sum() < 2 or int(ids.max()) >= logits.shape[-1]:
        return False
    changed = ids.clone()
    changed[longest, last] = (changed[longest, last] + 1) % logits.shape[-1]
    with torch.no_grad():
        other = _logits(model(**{**batch.inputs, "input_ids": changed}))
    assert other is not None
    earlier = torch.tensor(mask[longest], device=logits.device)
    earlier[last] = False
    return bool(torch.allclose(logits[longest][earlier], other[longest][earlier], rtol=1e-4, atol=1e-4))
