"""Measure what the removals of a network do: probes by layer, and the output distribution."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspur._arrays import on_numpy
from unspur._extras import require
from unspur._text import padded
from unspur._typing import Array, BoolArray, IntArray
from unspur.exceptions import InputError
from unspur.metrics.leakage import Leakage, NumericLeakage, leakage
from unspur.surgery.activations import Batch, Batches, Survey, device_of, evaluating, tensor_at
from unspur.surgery.hooks import find_module

if TYPE_CHECKING:
    import torch

    from unspur.surgery.scrubbing import Scrubbing


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
        return {
            "layers": layers,
            "kl": self.kl,
            "perplexity_before": self.perplexity_before,
            "perplexity_after": self.perplexity_after,
            "tokens": self.tokens,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        width = max([len(one.layer) for one in self.layers] + [5])
        chance = next((one.before.chance for one in self.layers if isinstance(one.before, Leakage)), None)
        what = "R²" if chance is None else f"balanced accuracy in %, chance {100 * chance:.1f}; log loss after"
        lines = [f"linear probes by layer ({what}; {self.rows:,} rows)"]
        lines.append(f"{padded('layer', width)}  before   after" + ("" if chance is None else "  loss / chance"))
        for one in self.layers:
            after = one.after
            loss = f"  {after.loss:.3f} / {after.chance_loss:.3f}" if isinstance(after, Leakage) else ""
            lines.append(f"{padded(one.layer, width)}  {_score(one.before)}  {_score(after)}{loss}")
        if self.kl is not None:
            lines.append(f"KL divergence of the output from the original: {self.kl:.4g} nats")
        if self.perplexity_before is not None:
            lines.append(
                f"perplexity: {self.perplexity_before:.2f} before, {self.perplexity_after:.2f} after "
                f"({self.tokens:,} tokens)"
            )
        return "\n".join(lines)

    __repr__ = __str__


def _score(measured: Leakage | NumericLeakage) -> str:
    return f"{measured.r2:6.3f}" if isinstance(measured, NumericLeakage) else f"{100 * measured.accuracy:6.1f}"


def measure_scrubbing(
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
    return ScrubbingReport(layers, *output.results(), len(sample.labels))


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
            into[layer].append(on_numpy(rows[torch.from_numpy(chosen).to(rows.device)]))

        return note

    with scrubbing.attach(model) if clean else nullcontext(), ExitStack() as hooks, torch.no_grad():
        for layer in scrubbing.layers:
            hooks.callback(find_module(model, layer).register_forward_hook(keep(layer)).remove)
        return model(**batch.inputs)


class _OutputSums:
    """Sums of divergences and of log probabilities over tokens, or over sequences for logits of sequences."""

    def __init__(self) -> None:
        self._divergence, self._places = 0.0, 0
        self._losses, self._tokens = np.zeros(2), 0
        self._causal: bool | None = None

    def add(self, model: Any, batch: Batch, before: Any, after: Any) -> None:
        """Add a batch."""
        first, second = _logits(before), _logits(after)
        if first is None or second is None:
            return
        if self._causal is None:
            self._causal = _is_causal(model, batch, first)
        mask = np.ones(first.shape[:-1], dtype=bool)
        if batch.mask is not None and batch.mask.shape == mask.shape:
            mask = batch.mask
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

    def results(self) -> tuple[float | None, float | None, float | None, int]:
        """Mean divergence, perplexity before and after, and tokens that were predicted."""
        kl = self._divergence / self._places if self._places else None
        if not self._tokens:
            return kl, None, None, 0
        before, after = (math.exp(min(loss / self._tokens, 700.0)) for loss in self._losses)
        return kl, before, after, self._tokens


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
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return logits if getattr(logits, "ndim", 0) in (2, 3) else None


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
