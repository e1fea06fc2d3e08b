"""Fine-tune an encoder on the main label of its training examples; a run that is killed goes on where it was.

::

    examples ─▶ network ─▶ z ─▶ last layer ─▶ loss of the main label
                            └─▶ gradient reversal ─▶ adversary ─▶ loss of the concept           (adversary > 0)

    checkpoint.safetensors      while it runs: weights, optimiser, how far; replaced every minute
    network.safetensors         the network, its last layer and its adversary
    training.json               what it was trained on and how, and how it went; written last

Random numbers of a step are drawn from the seed and the number of the step, and those of an epoch from its number. So a
run that goes on from a checkpoint does what it would have done; on a CPU to the last bit.

On a GPU all examples are kept on the device if they fit, and steps are launched as CUDA graphs. That changes how long a
step takes and nothing else, with one exception: texts are padded to other lengths, so that dropout draws others.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from unspur._files import atomic
from unspur._typing import Array, IntArray
from unspur._version import __version__
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.embedding.base import NetworkEncoder
from unspur_paper.embedding.examples import Examples
from unspur_paper.files import DISK_FULL_ERRORS, disk_error, hold
from unspur_paper.networks.adversary import reverse
from unspur_paper.networks.captured import CapturedSteps, own_stream
from unspur_paper.networks.checkpoint import (
    AGAIN,
    load_checkpoint,
    optimizer_tensors,
    restore,
    restore_optimizer,
    save_checkpoint,
)
from unspur_paper.networks.on_device import OnDevice, on_device
from unspur_paper.networks.prepared import Prepared
from unspur_paper.networks.training import Training
from unspur_paper.networks.training_data import TrainingData
from unspur_paper.networks.tuned import CHECKPOINT, FORMAT, LOCK, NETWORK, RECORD, read_record, require_same, tuned

#: Seconds after which it is noted how far we are.
NOTE_SECONDS = 60.0


def finetune(
    examples: Examples,
    encoder: NetworkEncoder,
    folder: str | Path,
    training: Training,
    *,
    main: str = "y",
    concept: str = "concept",
    base: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: bool = True,
    classes: int = 2,
    tuned_kernels: bool = False,
) -> NetworkEncoder:
    """Train on the examples whose split is "train", judge on those of "validation", and keep the network in `folder`.

    `encoder` itself is trained and returned; where training stops early, load it anew before the next attempt. A folder
    that holds the finished network is read instead; one that holds the beginning of the same training is continued;
    another training is an error unless `overwrite`.

    Parameters
    ----------
    main, concept : labels of two values. The concept is needed by an adversary or for its balance only.
    classes : values of the main label, if more than two.
    base : what `load_encoder` knows the encoder by; by default its name.
    tuned_kernels : whether a GPU tries several kernels first and takes the fastest.
    """
    if not isinstance(encoder, NetworkEncoder):
        raise InputError(f"{encoder.name} is no network that could be trained; choose another encoder.")
    if examples.kind != encoder.kind:
        raise InputError(f"{encoder.name} takes {encoder.kind}s; {examples.name} has {examples.kind}s.")
    data = TrainingData.of(examples, training, main, concept, classes)
    address = base or encoder.name
    wanted = {
        "base": {"address": address, "digest": encoder.digest, "device": encoder.device},
        "dataset": {"name": examples.name, "settings": dict(examples.settings), "digest": examples.digest()},
        "main": main,
        "concept": concept,
        "settings": training.to_dict(),
    }
    place = Path(folder)
    if encoder.training and Path(address).expanduser().resolve() == place.resolve():
        raise InputError(f"{place} holds the network that training would begin from; choose another folder.")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with hold(place / LOCK):
            if overwrite:
                for name in (RECORD, NETWORK, CHECKPOINT):
                    (place / name).unlink(missing_ok=True)
            if (place / RECORD).exists():
                require_same(read_record(place), wanted, place)
                (place / CHECKPOINT).unlink(missing_ok=True)
            else:
                run = _Run(place, wanted, encoder, data, training, tuned_kernels=tuned_kernels)
                run.train(examples, workers, progress=progress)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        raise disk_error(error, place, "Make room and give the same command again.") from error
    return tuned(place, encoder)


class _Run:
    """One training: network, last layer, adversary, optimiser, and how far it is."""

    def __init__(
        self,
        folder: Path,
        wanted: Mapping[str, Any],
        encoder: NetworkEncoder,
        data: TrainingData,
        training: Training,
        *,
        tuned_kernels: bool = False,
    ) -> None:
        import torch

        self.tuned_kernels = tuned_kernels
        self.folder, self.wanted, self.encoder, self.data, self.training = folder, wanted, encoder, data, training
        with self._own_numbers():
            torch.manual_seed(training.seed)
            # One logit for two classes, else one for each.
            layers = [torch.nn.Linear(encoder.width, 1 if k == 2 else k) for k in (data.classes, 2)]
        self.head, self.adversary = (layer.to(encoder.where.device) for layer in layers)
        modules = [encoder.network, self.head, *([self.adversary] if training.adversary else [])]
        self.parameters = [p for module in modules for p in module.requires_grad_(True).parameters()]
        if training.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(
                self.parameters, training.learning_rate, momentum=training.momentum, weight_decay=training.weight_decay
            )
        else:
            self.optimizer = torch.optim.Adam(
                self.parameters,
                training.learning_rate,
                weight_decay=training.weight_decay,
                capturable=encoder.where.device != "cpu",
            )
        #: Epochs that are finished, and steps of the one that is not; sum of its losses, and examples in them.
        self.epoch, self.step, self.lost, self.seen = 0, 0, 0.0, 0
        self.history: list[dict[str, float]] = []
        self.best: tuple[int, dict[str, Any]] | None = None
        self.spent = 0.0

    def train(self, examples: Examples, workers: int | None, *, progress: bool) -> None:
        """Train to the end and write the network."""
        self.feed = self._feed(examples, workers)
        self.main, self.concept = (self._labels(column) for column in (self.data.main, self.data.concept))
        self.captured = None
        if isinstance(self.feed, OnDevice) and self.encoder.where.device != "cpu":
            self.captured = CapturedSteps(self._step, self.feed)
        steps = -(-len(self.data.train) // self.training.batch)
        self._began = self._noted = time.perf_counter()
        try:
            self._resume()
            bar = tqdm(
                total=self.training.epochs * steps,
                initial=self.epoch * steps + self.step,
                unit="step",
                disable=None if progress else True,
            )
            with self._own_numbers(), own_stream(self.encoder.where.device), bar:
                while not self._finished():
                    self._epoch(bar)
                    self.history.append(self._judge())
                    self.epoch, self.step, self.lost, self.seen = self.epoch + 1, 0, 0.0, 0
                    self._remember_best()
                    if time.perf_counter() - self._noted > NOTE_SECONDS:
                        self._note()
                    bar.set_postfix({k: f"{v:.3f}" for k, v in self.history[-1].items() if k.startswith("validation")})
            self._write()
        except BaseException:
            self._settle()  # so that what is left does not pass for the network that training began from
            raise
        finally:
            self.feed.close()

    def _feed(self, examples: Examples, workers: int | None) -> Prepared | OnDevice:
        """Examples on the GPU, if there is one and they fit; else they come batch by batch."""
        if self.encoder.where.device != "cpu":
            numbers = np.concatenate([self.data.train, self.data.validation])
            if (found := on_device(examples, self.encoder, numbers, workers)) is not None:
                return found
        return Prepared(examples, self.encoder, workers)

    def _own_numbers(self) -> Any:
        """A context after which the caller's random numbers go on as if nothing had been drawn."""
        import torch

        device = self.encoder.where.device
        return torch.random.fork_rng(devices=[] if device == "cpu" else [device])

    def _settle(self) -> None:
        """Have the encoder embed again, and say by its digest what it is now."""
        self.optimizer.zero_grad(set_to_none=True)
        self.encoder.network.requires_grad_(False).eval()
        self.encoder.update_digest()

    def _epoch(self, bar: Any) -> None:
        """The steps of an epoch that are not done yet."""
        import torch

        order = self.data.order(self.training, self.epoch)
        chunks = np.array_split(order, -(-len(order) // self.training.batch))[self.step :]
        self.encoder.network.train()
        total = torch.tensor(self.lost, device=self.encoder.where.device, dtype=torch.float64)
        for chunk, batch in zip(chunks, self.feed.batches(chunks), strict=True):
            state = np.random.SeedSequence([self.training.seed, self.epoch, self.step]).generate_state(1, np.uint64)
            torch.manual_seed(int(state[0]))
            total += self._learn(batch, chunk) * len(chunk)
            self.step, self.seen = self.step + 1, self.seen + len(chunk)
            bar.update()
            if time.perf_counter() - self._noted > NOTE_SECONDS:
                self.lost = float(total)
                self._require_finite([self.lost])
                self._note()
        self.lost = float(total)
        self._require_finite([self.lost])

    def _require_finite(self, losses: Iterable[float]) -> None:
        """Stop a training that has diverged, and forget its checkpoint, whose weights may be broken already."""
        odd = [loss for loss in losses if not math.isfinite(loss)]
        if odd:
            (self.folder / CHECKPOINT).unlink(missing_ok=True)
            raise InputError(
                f"The loss became {odd[0]} in epoch {self.epoch + 1}: training diverged. Try a smaller learning rate, "
                "or --precision float32."
            )

    def _learn(self, batch: Any, chunk: IntArray) -> Any:
        """One step; the loss of the main label."""
        if self.captured is not None:
            return self.captured(chunk)
        return self._step(self.feed.inputs(batch), self.feed.rows(chunk))

    def _step(self, inputs: Any, rows: Any) -> Any:
        """The same for inputs and places of labels that are on the device, where all of it happens."""
        import torch

        where = self.encoder.where
        self.optimizer.zero_grad(set_to_none=True)
        with where.kernels(tuned=self.tuned_kernels):
            with where.autocast():
                z = self.encoder.features(inputs)
            loss = _loss(self.head(z), self.main[rows])
            total: Any = loss
            if self.training.adversary:
                hidden = self.adversary(reverse(z, self.training.adversary))
                total = loss + _loss(hidden, self.concept[rows])
            total.backward()
        self.optimizer.step()
        return loss.detach().to(torch.float64)

    def _labels(self, column: Array | None) -> Any:
        """A label of the examples in the order of the feed, on the device."""
        import torch

        if column is None:
            return None
        return torch.from_numpy(column[self.feed.numbers].astype(np.int64)).to(self.encoder.where.device)

    def _judge(self) -> dict[str, float]:
        """How the epoch went: losses, and accuracies on validation examples."""
        import torch

        self.encoder.network.eval()
        rows = self.data.validation
        chunks = np.array_split(rows, -(-len(rows) // self.feed.at_once))
        with torch.inference_mode():
            z = [
                self.encoder.where.run(self.encoder.features, self.feed.inputs(batch))
                for batch in self.feed.batches(chunks)
            ]
            features = torch.cat(z).float()
            found = {"epoch": float(self.epoch + 1), "train_loss": self.lost / max(1, self.seen)}
            found |= _scores("validation", self.head(features).cpu().numpy(), self.data.main[rows])
            if self.training.adversary:
                assert self.data.concept is not None
                logits = self.adversary(features).cpu().numpy()
                found |= _scores("adversary", logits, self.data.concept[rows])
        self._require_finite(found.values())
        return found

    def _finished(self) -> bool:
        if self.epoch >= self.training.epochs:
            return True
        patience = self.training.patience
        return patience is not None and self.best is not None and self.epoch - self.best[0] >= patience

    def _remember_best(self) -> None:
        if self.training.patience is None:
            return
        losses = [line["validation_loss"] for line in self.history]
        if losses[-1] < min(losses[:-1], default=math.inf):
            self.best = (self.epoch, {k: v.detach().cpu().clone() for k, v in self._weights().items()})

    def _weights(self) -> dict[str, Any]:
        parts = {"network": self.encoder.network, "head": self.head, "adversary": self.adversary}
        return {
            f"{part}.{name}": value for part, module in parts.items() for name, value in module.state_dict().items()
        }

    def _note(self) -> None:
        """Write the checkpoint."""
        self._count_time()
        parts = {"now": self._weights(), "optimizer": optimizer_tensors(self.optimizer)}
        if self.best is not None:
            parts["best"] = self.best[1]
        note = {
            "wanted": self.wanted,
            "epoch": self.epoch,
            "step": self.step,
            "lost": self.lost,
            "seen": self.seen,
            "history": self.history,
            "best": None if self.best is None else self.best[0],
            "seconds": self.spent,
        }
        save_checkpoint(self.folder / CHECKPOINT, parts, note)
        self._noted = time.perf_counter()

    def _count_time(self) -> None:
        now = time.perf_counter()
        self.spent, self._began = self.spent + now - self._began, now

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one of the same training."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            return
        parts, note = load_checkpoint(path)
        try:
            require_same(note["wanted"], self.wanted, self.folder)
            self._take_up(parts, note, path)
        except ArtifactError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            raise ArtifactError(f"{path} is damaged ({error!r}). {AGAIN}") from error

    def _take_up(self, parts: Mapping[str, Mapping[str, Array]], note: Mapping[str, Any], path: Path) -> None:
        """Weights, optimiser and counts of a checkpoint."""
        import torch

        self._set_weights(parts["now"], path)
        restore_optimizer(self.optimizer, parts.get("optimizer", {}), self.parameters)
        self.epoch, self.step, self.seen = int(note["epoch"]), int(note["step"]), int(note["seen"])
        self.lost, self.spent, self.history = float(note["lost"]), float(note["seconds"]), list(note["history"])
        if note["best"] is not None:
            like = self._weights()
            best = {k: torch.from_numpy(v).reshape(like[k].shape) for k, v in parts["best"].items()}
            self.best = (int(note["best"]), best)

    def _set_weights(self, found: Mapping[str, Array], path: Path) -> None:
        for part, module in (("network", self.encoder.network), ("head", self.head), ("adversary", self.adversary)):
            restore(module, {k.removeprefix(f"{part}."): v for k, v in found.items() if k.startswith(f"{part}.")}, path)

    def _write(self) -> None:
        """Write the network that is kept, and the record."""
        self._count_time()
        kept = self.epoch
        if self.best is not None:
            kept, weights = self.best
            self._set_weights({k: v.numpy() for k, v in weights.items()}, self.folder / CHECKPOINT)
        self._settle()
        modules = {"network": self.encoder.network, "head": self.head}
        if self.training.adversary:
            modules["adversary"] = self.adversary
        save_checkpoint(self.folder / NETWORK, {part: m.state_dict() for part, m in modules.items()}, {"epoch": kept})
        record = {
            "format": FORMAT,
            "unspur": __version__,
            **self.wanted,
            "history": self.history,
            "kept_epoch": kept,
            "digest": self.encoder.digest,
            "seconds": round(self.spent, 1),
        }
        with atomic(self.folder / RECORD, overwrite=True) as temporary:
            temporary.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (self.folder / CHECKPOINT).unlink(missing_ok=True)


def _loss(logits: Any, labels: Any) -> Any:
    """Mean log loss of logits (n, 1) of two classes, or (n, k) of k."""
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

    if logits.shape[1] == 1:
        return binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype))
    return cross_entropy(logits, labels)


def _scores(name: str, logits: Array, labels: Array) -> dict[str, float]:
    """Mean log loss, accuracy, and the mean of the classes' accuracies, of those that there are."""
    if logits.shape[1] == 1:
        logits = np.column_stack([np.zeros_like(logits), logits])
    logits = logits.astype(np.float64)
    own = logits[np.arange(len(labels)), labels]
    others = np.where(np.arange(logits.shape[1]) == labels[:, None], -np.inf, logits)
    right = own > others.max(axis=1)
    classes = [float(right[labels == value].mean()) for value in np.unique(labels)]
    with np.errstate(invalid="ignore"):  # of a training that has diverged
        loss = float((np.logaddexp.reduce(logits, axis=1) - own).mean())
    return {
        f"{name}_loss": loss,
        f"{name}_accuracy": float(right.mean()),
        f"{name}_balanced_accuracy": float(np.mean(classes)),
    }
