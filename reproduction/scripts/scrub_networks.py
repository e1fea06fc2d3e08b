"""The page on removals in whole networks, from the record that unspur 0.1.0 computed on a GPU.

python reproduction/scripts/scrub_networks.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "whole-networks.json"
PAGE = Path(__file__).parents[1] / "docs" / "whole-networks.md"
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
Probes after the norms fall from {norms_before:.0f} % on average to {norms_after:.0f} %; the highest is {norms_most:.0f} %, in `{norms_layer}`.

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
        norms_before=100 * np.mean([line["before"] for line in norms]),
        norms_after=100 * np.mean([line["after"] for line in norms]),
        norms_most=100 * most["after"],
        norms_layer=most["layer"],
        beside="\n".join(beside_rows),
        b_rows=found["beside"][0]["rows"],
        memory=", ".join(f"{size:.0f} MB for {int(number):,} sentences" for number, size in found["memory"].items()),
    )


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
