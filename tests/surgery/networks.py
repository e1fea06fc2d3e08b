"""Small transformers with a concept planted into their embeddings, and batches of padded sequences."""

import numpy as np
import torch
import transformers

from unspur.surgery import attach
from unspur.surgery.hooks import tensors_in

VOCABULARY, LENGTH, D = 50, 9, 16
SPECIAL = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
SIZE = {"hidden_size": D, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}


def _gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=D, n_layer=3, n_head=2, n_positions=16, **SPECIAL)
    )


MODELS = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(max_position_embeddings=16, **SIZE, **SPECIAL)),
    "gpt2": _gpt2,
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZE, **SPECIAL)),
    "t5": lambda: transformers.T5EncoderModel(
        transformers.T5Config(
            d_model=D, num_layers=3, num_heads=2, d_ff=32, d_kv=8, decoder_start_token_id=2, **SPECIAL
        )
    ),
}
BLOCKS = {"bert": "encoder.layer", "gpt2": "transformer.h", "llama": "model.layers", "t5": "encoder.block"}


def blocks(name):
    """Names of the blocks of a network."""
    return [f"{BLOCKS[name]}.{number}" for number in range(3)]


def make(name):
    """A random network whose embeddings of tokens from 25 on lie far from the others, in one direction."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    direction = torch.randn(D, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table /= table.std()
        table[25:] += 6.0 * direction / direction.norm()
    return model


def batches(seed=0, number=8, size=24, padding="right"):
    """Token-wise label "flag", label "kind" of sequences that have more tokens of one half, and a task "parity"."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(number):
        kind = rng.integers(2, size=size)
        upper = (rng.random((size, LENGTH)) < 0.85) == kind[:, None]
        ids = np.where(
            upper, rng.integers(25, VOCABULARY, size=(size, LENGTH)), rng.integers(3, 25, size=(size, LENGTH))
        )
        lengths = rng.integers(4, LENGTH + 1, size=size)
        mask = np.arange(LENGTH) < lengths[:, None]
        if padding == "left":
            ids, mask = ids[:, ::-1].copy(), mask[:, ::-1].copy()
        made.append(
            {
                "input_ids": torch.from_numpy(np.where(mask, ids, 2)),
                "attention_mask": torch.from_numpy(mask.astype(np.int64)),
                "flag": torch.from_numpy((ids >= 25).astype(np.int64)),
                "kind": torch.from_numpy(kind),
                "parity": torch.from_numpy(ids % 2),
            }
        )
    return made


def inputs(batch):
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def hidden_rows(model, layer, given, pooling="tokens", cleaned=()):
    """Rows of a layer from a plain forward pass with hooks, without the code that is tested."""
    rows, seen = [], []
    place = 0 if layer.startswith("encoder.block") else ()  # T5 returns tuples
    attached = [attach(model, name, removal, output=place) for name, removal in cleaned]
    for one in attached:
        one.__enter__()
    handle = dict(model.named_modules())[layer].register_forward_hook(
        lambda _m, _i, output: seen.append(next(tensors_in(output))[1])
    )
    for batch in given:
        with torch.no_grad():
            model(**inputs(batch))
        mask = batch["attention_mask"].bool()
        rows += [
            hidden[keep] if pooling == "tokens" else hidden[keep].mean(0, keepdim=True)
            for hidden, keep in zip(seen.pop(), mask, strict=True)
        ]
    for one in attached:
        one.__exit__(None, None, None)
    handle.remove()
    return torch.cat(rows).numpy()


def token_labels(given, name="flag"):
    return torch.cat([batch[name][batch["attention_mask"].bool()] for batch in given]).numpy()
