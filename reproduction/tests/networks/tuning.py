"""Small problems to fine-tune tiny networks on: coloured pictures, and sentences.

Run as a program it trains in processes of its own, each of which dies on the way: KIND MODEL FOLDER MOMENT…
"""

import hashlib
import os
import sys

import numpy as np
import safetensors.numpy
import torch
from PIL import Image

from reproduction.tests.strips import Pictures, die
from unspur_paper.embedding.registry import load_encoder
from unspur_paper.networks import finetuning
from unspur_paper.networks.training import Training

N = 60
#: SGD with momentum and statistics of batches; Adam with dropout and patience.
TRAININGS = {
    "image": Training(learning_rate=0.05, batch=8, epochs=2, adversary=0.5, seed=1),
    "text": Training(optimizer="adam", learning_rate=3e-3, batch=8, epochs=3, patience=1, seed=1),
}


class Sentences(Pictures):
    """Sentences as a dataset."""

    def digest(self):
        return hashlib.sha256(repr([self.images, self.ids]).encode()).hexdigest()[:16]


def labels(n, p, seed):
    """y, a concept that agrees with it in a share p of the examples, and splits: two thirds are to train on."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    concept = np.where(rng.random(n) < p, y, 1 - y)
    return {"y": y, "concept": concept, "split": np.where(np.arange(n) < 2 * n // 3, "train", "validation")}


def coloured(n=N, p=0.5, seed=0):
    """Red pictures or green ones, which is the main label, with or without blue, which is the concept; and noise."""
    shown, rng = labels(n, p, seed), np.random.default_rng(seed + 1)
    pixels = rng.normal(128, 40, (n, 32, 32, 3))
    for channel, bright in enumerate((shown["y"], 1 - shown["y"], shown["concept"])):
        pixels[..., channel] += (60 * bright - 30)[:, None, None]
    return Pictures([Image.fromarray(picture) for picture in pixels.clip(0, 255).astype(np.uint8)], shown)


def sentences(n=N, p=0.5, seed=0):
    """Birds or fish, on land or on water, among other words; some are pairs."""
    shown, rng = labels(n, p, seed), np.random.default_rng(seed + 1)
    texts = []
    for y, concept in zip(shown["y"], shown["concept"], strict=True):
        around = " ".join(rng.choice(["a", "the", "big", "green", "sees", "over"], size=rng.integers(2, 7)))
        text = f"{around} {('fish', 'bird')[y]} is on {('land', 'water')[concept]}"
        texts.append((text, "the bird is not big") if rng.random() < 0.3 else text)
    return Sentences(texts, shown, kind="text")


PROBLEMS = {"image": coloured, "text": sentences}


def tune(kind, model, folder, training=None, examples=None, **more):
    """Fine-tune a new copy of a tiny network on its problem."""
    encoder = load_encoder(str(model), device="cpu", precision=more.pop("precision", "float32"), kind=kind)
    return finetuning.finetune(
        examples or PROBLEMS[kind](),
        encoder,
        folder,
        training or TRAININGS[kind],
        base=str(model),
        progress=False,
        **more,
    )


def dies_after(calls, original):
    """The same function, but the process dies instead of a call after so many."""
    left = [calls]

    def mortal(*arguments, **named):
        left[0] -= 1
        return die() if left[0] < 0 else original(*arguments, **named)

    return mortal


def train_until(moment, kind, model, folder):
    """Train, noting every step, until something is called once too often: "_learn 3" dies in the fourth step."""
    what, _, calls = moment.partition(" ")
    place = {"save": safetensors.numpy, "atomic": finetuning}.get(what, finetuning._Run)
    finetuning.NOTE_SECONDS = -1.0
    setattr(place, what, dies_after(int(calls), getattr(place, what)))
    tune(kind, model, folder)


def main(kind, model, folder, *moments):
    """Train in one process for each moment, in folders numbered alike; print how they ended."""
    torch.set_num_threads(1)  # there is no safe fork with more
    load_encoder(str(model), device="cpu", kind=kind)  # brings what all of them need
    ends = []
    for number, moment in enumerate(moments):
        child = os.fork()
        if not child:
            train_until(moment, kind, model, f"{folder}/{number}")
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(*ends)


if __name__ == "__main__":
    main(*sys.argv[1:])
