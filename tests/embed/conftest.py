"""Real pictures that come with scikit-learn, and tiny untrained networks in the format of Hugging Face."""

import json
import shutil

import numpy as np
import pytest

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "bird",
    "on",
    "land",
    "water",
    "the",
    "is",
    "not",
    "green",
    "big",
    "fish",
    "sees",
    "over",
    "##s",
]

#: Squeezed to 32 × 32, then from [0, 255] to [-1, 1].
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


def crops(photograph, n, *, side=150, seed=0):
    """Random square cuts of a photograph, as PIL images."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    whole, rng = load_sample_image(photograph), np.random.default_rng(seed)
    corners = [[rng.integers(size - side) for size in whole.shape[:2]] for _ in range(n)]
    return [Image.fromarray(whole[top : top + side, left : left + side]) for top, left in corners]


def save(network, folder):
    from unspur.embed.encoders import _quietly

    with _quietly():  # writing shows bars as well
        network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def pictures():
    return crops("china.jpg", 4) + crops("flower.jpg", 4)


def tiny_vision(architecture, folder, *, classifier=False):
    """An untrained network and an image processor to 32 × 32."""
    import torch
    import transformers as hf

    blocks = {"hidden_sizes": [8, 16], "depths": [1, 1]}
    layers = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = {
        "ResNet": lambda: hf.ResNetConfig(embedding_size=8, **blocks),
        "ConvNext": lambda: hf.ConvNextConfig(num_stages=2, **blocks),
        "ViT": lambda: hf.ViTConfig(image_size=32, patch_size=16, **layers),
        "ViTMAE": lambda: hf.ViTMAEConfig(image_size=32, patch_size=8, **layers),
        "CLIP": lambda: hf.CLIPConfig(
            text_config={"vocab_size": 30, **layers}, vision_config={"image_size": 32, "patch_size": 16, **layers}
        ),
    }[architecture]()
    torch.manual_seed(0)
    network = getattr(hf, f"{architecture}{'ForImageClassification' if classifier else 'Model'}")(config)
    save(network, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder


@pytest.fixture(scope="session")
def tiny_resnet(tmp_path_factory):
    return tiny_vision("ResNet", tmp_path_factory.mktemp("models") / "tiny-resnet")


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    import torch
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("models") / "tiny-bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "model_max_length": 48}')
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=48,
        initializer_range=0.5,
    )
    return save(BertForMaskedLM(config), folder)  # as published: with a head, without the pooler


LAYERS = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
}


@pytest.fixture
def tiny_text(tiny_bert, tmp_path):
    """A way to make folders of other untrained networks with the vocabulary of `tiny_bert`."""

    def making(architecture, layers=LAYERS, **settings):
        import torch
        import transformers as hf

        torch.manual_seed(0)
        sizes = {"vocab_size": len(WORDS), "initializer_range": 0.5, "eos_token_id": 3}
        network = getattr(hf, f"{architecture}Model")(
            getattr(hf, f"{architecture}Config")(**layers, **sizes, **settings)
        )
        folder = shutil.copytree(tiny_bert, tmp_path / architecture, ignore=shutil.ignore_patterns("*model*"))
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings["model_input_names"] = ["input_ids", "attention_mask"]
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return save(network, folder)

    return making
