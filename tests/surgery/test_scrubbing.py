"""Removals in several layers of a network: `scrub`, `Scrubbing` and what it measures."""

import json
import warnings
import weakref

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose
from torch import nn

import unspur
from tests.probing import quick_probes
from tests.surgery.networks import BLOCKS, LENGTH, batches, blocks, hidden_rows, inputs, make, token_labels
from unspur import INLP, LEACE, SAL, SPLINCE, surgery
from unspur.exceptions import ArtifactError, InputError, LabelError, NotFiniteError, OutputExistsError
from unspur.surgery import Scrubbing, scrub

GPT2 = blocks("gpt2")
FIRST = GPT2[:1]


@pytest.fixture(scope="module")
def gpt2():
    return make("gpt2")


@pytest.fixture(scope="module")
def scrubbed(gpt2):
    return scrub(gpt2, batches(), "flag", layers=GPT2)


class TestProbes:
    @pytest.mark.parametrize("name", BLOCKS)
    def test_tokens_reveal_the_concept_in_every_layer_before_and_in_none_after(self, name):
        model = make(name)
        scrubbing = scrub(model, batches(number=32), "flag", layers=blocks(name)[::-1])
        assert scrubbing.layers == tuple(blocks(name))
        # Three draws: an interval of one draw misses the truth in one of twenty.
        reports = [scrubbing.measure(model, batches(draw), "flag", max_rows=800) for draw in (1, 2, 3)]
        for number, layer in enumerate(scrubbing.layers):
            found = [report.layers[number] for report in reports]
            assert all(one.layer == layer and one.before.accuracy > 0.97 for one in found), reports
            assert 0.46 < np.mean([one.after.accuracy for one in found]) < 0.54, reports

    @pytest.mark.parametrize("name", ["bert", "gpt2"])
    def test_pooled_vectors_of_sequences(self, name):
        model = make(name)
        scrubbing = scrub(model, batches(number=32), "kind", layers=blocks(name))
        assert scrubbing.pooling == "mean"
        report = scrubbing.measure(model, batches(1), "kind")
        assert all(one.before.accuracy > 0.9 and one.after.low < 0.5 for one in report.layers), report


class TestFit:
    def test_each_layer_is_fitted_on_activations_that_the_layers_before_it_have_cleaned(self, gpt2, scrubbed):
        first, second, _ = scrubbed.layers
        labels, removals = token_labels(batches()), scrubbed.removals
        rows = hidden_rows(gpt2, first, batches())
        expected = LEACE().fit(rows, concept=labels)
        unit = float(np.abs(rows).max())  # of float32 activations
        assert_allclose(removals[first].transform(rows), expected.transform(rows), atol=1e-4 * unit)
        rows = hidden_rows(gpt2, second, batches(), cleaned=[(first, expected)])
        expected = LEACE().fit(rows, concept=labels)
        assert_allclose(removals[second].transform(rows), expected.transform(rows), atol=1e-4 * unit)
        before = LEACE().fit(hidden_rows(gpt2, second, batches()), concept=labels)  # the control
        assert np.abs(before.transform(rows) - removals[second].transform(rows)).max() > 1e-3 * unit

    @pytest.mark.parametrize("name", ["gpt2", "t5"])
    def test_layer_by_layer_it_is_the_leace_of_concept_erasure(self, name):
        model, given = make(name), batches()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, which it still uses
            fitter_of = pytest.importorskip("concept_erasure").LeaceFitter
        scrubbing, cleaned = scrub(model, given, "flag", layers=blocks(name)), []
        labels = torch.from_numpy(token_labels(given)).double()[:, None]
        for layer, remover in scrubbing.removals.items():
            rows = torch.from_numpy(hidden_rows(model, layer, given, cleaned=cleaned)).double()
            exact = {"shrinkage": False, "constrain_cov_trace": False, "svd_tol": 1e-10}
            fitter = fitter_of(rows.shape[1], 1, dtype=torch.float64, **exact)
            fitter.update(rows, labels)
            theirs = fitter.eraser(rows).numpy()
            assert_allclose(remover.removal_(rows.numpy()), theirs, atol=1e-4 * np.abs(theirs).max())
            assert np.abs(rows.numpy() - theirs).max() > 2e-4 * np.abs(theirs).max()  # control
            cleaned.append((layer, remover))

    @pytest.mark.filterwarnings("ignore::unspur.exceptions.ClusterWarning")  # first tokens are copies of each other
    @pytest.mark.parametrize("remover", [SAL(), SPLINCE(balance="group"), LEACE(balance="concept")])
    def test_removals_are_those_of_the_rows(self, gpt2, remover):
        layer = GPT2[1]
        fitted = scrub(gpt2, batches(), "flag", y="parity", remover=remover, layers=[layer]).removals[layer]
        rows = hidden_rows(gpt2, layer, batches())
        expected = remover.fit(rows, token_labels(batches(), "parity"), concept=token_labels(batches()))
        assert_allclose(fitted.transform(rows), expected.transform(rows), atol=2e-4 * np.abs(rows).max())
        assert np.abs(fitted.transform(rows) - rows).max() > 0.1  # control

    def test_a_number_may_be_the_concept(self, gpt2):
        given, fresh = ([{**one, "size": one["input_ids"].float()} for one in batches(seed)] for seed in (0, 1))
        scrubbing = scrub(gpt2, given, "size", layers=GPT2, remover=LEACE(concept_type="continuous"))
        report = scrubbing.measure(gpt2, fresh, "size")
        assert all(one.before.r2 > 0.5 and one.after.r2 < 0.1 for one in report.layers), report
        assert "R²" in str(report)

    def test_padding_and_ignored_and_missing_tokens_never_count(self, gpt2, scrubbed):
        other = batches()
        for batch in other:
            padding = batch["attention_mask"] == 0
            batch["flag"][padding] = 1 - batch["flag"][padding]
            batch["input_ids"][padding] = 40
        same = scrub(gpt2, other, "flag", layers=GPT2)
        for layer in scrubbed.layers:
            one, two = (each.removals[layer].removal_.matrix() for each in (same, scrubbed))
            assert_allclose(one, two, atol=1e-6)
        rows, kept = hidden_rows(gpt2, FIRST[0], batches()), []
        for batch in other:
            batch["flag"][:, 0] = -100
            kept.append((batch["flag"] != -100)[batch["attention_mask"].bool()])
        kept = torch.cat(kept).numpy()
        expected = LEACE().fit(rows[kept], concept=token_labels(other)[kept]).removal_.matrix()
        ignored = scrub(gpt2, other, "flag", layers=FIRST)
        for batch in other:
            batch["flag"] = batch["flag"].float()
            batch["flag"][:, 0] = float("nan")
        missing = scrub(gpt2, other, "flag", layers=FIRST)
        for one in (ignored, missing):
            assert_allclose(one.removals[FIRST[0]].removal_.matrix(), expected, atol=1e-3)
        assert np.abs(expected - scrubbed.removals[FIRST[0]].removal_.matrix()).max() > 0.01  # control

    @pytest.mark.parametrize("padding", ["left", "right"])
    @pytest.mark.parametrize("pooling", ["first", "last", "mean"])
    def test_pooling_finds_the_tokens_of_a_sequence(self, padding, pooling):
        model, given, layer = make("bert"), batches(padding=padding), "encoder.layer.0"
        fitted = scrub(model, given, "kind", layers=[layer], pooling=pooling).removals[layer].removal_
        ends = np.cumsum([int(n) for batch in given for n in batch["attention_mask"].sum(1)])
        parts = np.split(hidden_rows(model, layer, given), ends[:-1])
        rows = np.stack([{"first": p[0], "last": p[-1], "mean": p.mean(0)}[pooling] for p in parts])
        expected = LEACE().fit(rows, concept=torch.cat([batch["kind"] for batch in given]).numpy())
        assert_allclose(fitted.matrix(), expected.removal_.matrix(), atol=1e-3)

    def test_labels_in_arrays_are_those_in_the_batches(self, gpt2):
        given = batches()
        kinds = torch.cat([batch["kind"] for batch in given])
        expected = scrub(gpt2, given, "kind", layers=FIRST).removals[FIRST[0]]
        for concept in (kinds, kinds.numpy() == 1, ["yes" if kind else "no" for kind in kinds.tolist()]):
            fitted = scrub(gpt2, given, concept, layers=FIRST).removals[FIRST[0]]
            assert_allclose(fitted.removal_.matrix(), expected.removal_.matrix(), atol=1e-12)
        assert fitted.concept_classes_ == ("no", "yes")

    def test_the_model_is_left_as_it_was(self):
        model = make("gpt2").train()
        model.transformer.h[1].eval()
        modes = [module.training for module in model.modules()]
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with quick_probes():
            scrub(model, batches(), "flag", layers=GPT2).measure(model, batches(1), "flag", max_rows=200)
        assert modes == [module.training for module in model.modules()]
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())

    def test_images_have_no_mask(self):
        torch.manual_seed(0)
        size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        vit = transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **size)).eval()
        bright = torch.arange(40) % 2
        pixels = [torch.randn(40, 3, 8, 8) + bright[:, None, None, None] for _ in range(20)]
        given = [{"pixel_values": one, "bright": bright} for one in pixels]
        layers = [name for name, module in vit.named_modules() if type(module).__name__ == "ViTLayer"]
        last = scrub(vit, given, "bright", layers=layers).measure(vit, given[:10], "bright").layers[-1]
        assert last.before.accuracy > 0.95 > 0.6 > last.after.accuracy


class Lazy:
    """Batches that are made when they are asked for, and how many earlier tensors are alive then."""

    def __init__(self, number, model):
        self.number, self.alive, self._seen = number, [], []
        for module in model.modules():
            module.register_forward_hook(self._note)

    def _note(self, _module, _inputs, output):
        if isinstance(output, torch.Tensor):
            self._seen.append(weakref.ref(output))

    def __iter__(self):
        for number in range(self.number):
            batch = batches(number, number=1)[0]
            self._seen += [weakref.ref(value) for value in batch.values()]
            yield batch
            self.alive.append(sum(seen() is not None for seen in self._seen))


def test_memory_does_not_depend_on_the_number_of_batches():
    most = []
    for number in (4, 24):
        model = make("gpt2")
        lazy = Lazy(number, model)
        scrub(model, lazy, "flag", y="parity", remover=SPLINCE(), layers=GPT2)
        most.append(max(lazy.alive))
    assert most[0] == most[1]
    model = make("gpt2")
    lazy = Lazy(24, model)
    hoard = list(lazy)  # control: what is kept is counted
    assert max(lazy.alive) > most[1]
    assert len(hoard) == 24


class TestAttach:
    def test_inside_the_block_every_layer_is_clean_and_after_it_none(self, gpt2, scrubbed):
        batch, last = batches(2, number=1), scrubbed.layers[-1]
        plain = hidden_rows(gpt2, last, batch)
        with scrubbed.attach(gpt2) as same:
            assert same is gpt2
            clean = hidden_rows(gpt2, last, batch)
        removals = [(layer, remover.removal_) for layer, remover in scrubbed.removals.items()]
        assert_allclose(clean, hidden_rows(gpt2, last, batch, cleaned=removals), atol=1e-5)
        assert np.abs(clean - plain).max() > 0.1
        assert_allclose(hidden_rows(gpt2, last, batch), plain, atol=0)

    @pytest.mark.parametrize("name", BLOCKS)
    def test_recorded_hidden_states_are_those_after_the_removal(self, name):
        model, layer, given = make(name), blocks(name)[1], batches()
        remover = LEACE().fit(hidden_rows(model, layer, given), concept=token_labels(given))
        asked = {**inputs(given[0]), "output_hidden_states": True}
        with torch.no_grad():
            plain = model(**asked).hidden_states[2]
            with surgery.attach(model, layer, remover, **({"output": 0} if name == "t5" else {})):
                found = model(**asked).hidden_states[2]
        assert_allclose(found, remover.removal_(plain.numpy()), atol=1e-4 * float(plain.abs().max()))
        assert float((found - plain).abs().max()) > 0.1  # control


class TestFiles:
    def test_one_file_holds_all_layers(self, gpt2, scrubbed, tmp_path):
        path = tmp_path / "all.safetensors"
        scrubbed.save(path)
        again = Scrubbing.load(path)
        assert (again.layers, again.places, again.pooling) == (scrubbed.layers, scrubbed.places, scrubbed.pooling)
        new = inputs(batches(3)[0])
        with torch.no_grad():
            with scrubbed.attach(gpt2):
                expected = gpt2(**new).logits
            with again.attach(gpt2):
                assert torch.equal(gpt2(**new).logits, expected)
        with pytest.raises(OutputExistsError):
            scrubbed.save(path)
        assert list(tmp_path.iterdir()) == [path]
        assert str(again) == str(scrubbed)

    def test_a_removal_and_a_scrubbing_are_told_apart(self, scrubbed, tmp_path):
        one, all_layers = tmp_path / "one.safetensors", tmp_path / "all.safetensors"
        scrubbed.removals[FIRST[0]].save(one)
        scrubbed.save(all_layers)
        with pytest.raises(ArtifactError, match=r"unspur\.load"):
            Scrubbing.load(one)
        with pytest.raises(ArtifactError):
            unspur.load(all_layers)

    @pytest.mark.parametrize("damage", ["array", "pooling", "numbers", "none", "place"])
    def test_parts_that_do_not_belong_together_are_refused(self, scrubbed, tmp_path, damage):
        from unspur._files import read_artifact, write_artifact

        path = tmp_path / "all.safetensors"
        scrubbed.save(path)
        arrays, metadata = read_artifact(path)
        if damage == "array":
            del arrays["1.left"]
        elif damage == "numbers":
            arrays["2.centre"] = arrays["2.centre"] * np.nan
        elif damage == "place":
            metadata["layers"][0]["place"] = 3
        elif damage == "pooling":
            metadata["pooling"] = "median"
        else:
            del metadata["layers"]
        write_artifact(path, arrays, metadata, overwrite=True)
        with pytest.raises(ArtifactError):
            Scrubbing.load(path)


class TestMeasure:
    """What the removals cost; `TestProbes` is about the probes."""

    @pytest.fixture(autouse=True)
    def _quick(self):
        with quick_probes():
            yield

    def test_perplexity_is_that_of_the_loss_of_transformers(self, gpt2, scrubbed):
        given = batches(1)
        report = scrubbed.measure(gpt2, given, "flag", max_rows=200)

        def perplexity():
            losses, tokens = 0.0, 0
            for batch in given:
                labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
                number = int((labels[:, 1:] != -100).sum())
                with torch.no_grad():
                    losses += number * float(gpt2(**inputs(batch), labels=labels).loss)
                tokens += number
            return np.exp(losses / tokens), tokens

        before, tokens = perplexity()
        with scrubbed.attach(gpt2):
            after, _ = perplexity()
        assert report.tokens == tokens
        assert_allclose([report.perplexity_before, report.perplexity_after], [before, after], rtol=1e-4)
        assert before != pytest.approx(after, rel=1e-3)  # control

    def test_divergence_is_that_of_the_distributions(self, gpt2, scrubbed):
        given = batches(1, number=1)
        (batch,) = given
        report = scrubbed.measure(gpt2, given, "flag", max_rows=100)
        with torch.no_grad():
            p = gpt2(**inputs(batch)).logits.double().log_softmax(-1)
            with scrubbed.attach(gpt2):
                q = gpt2(**inputs(batch)).logits.double().log_softmax(-1)
        each = (p.exp() * (p - q)).sum(-1)[batch["attention_mask"].bool()]
        assert report.kl == pytest.approx(float(each.mean()), rel=1e-6)
        assert report.kl > 1e-4

    def test_only_causal_models_have_a_perplexity(self):
        from tests.surgery.networks import SIZE, SPECIAL

        config = transformers.BertConfig(max_position_embeddings=16, **SIZE, **SPECIAL)
        torch.manual_seed(0)
        for model in (transformers.BertForMaskedLM(config), transformers.BertForSequenceClassification(config)):
            scrubbing = scrub(model, batches(), "flag", layers=["bert.encoder.layer.1"])
            report = scrubbing.measure(model, batches(1), "flag", max_rows=100)
            assert report.kl > 0
            assert (report.perplexity_before, report.perplexity_after, report.tokens) == (None, None, 0)
        plain = make("bert")
        scrubbing = scrub(plain, batches(), "flag", layers=blocks("bert"))
        assert scrubbing.measure(plain, batches(1), "flag", max_rows=100).kl is None

    def test_the_report_is_plain_numbers(self, gpt2, scrubbed):
        report = scrubbed.measure(gpt2, batches(1), "flag", max_rows=100)
        saved = json.loads(json.dumps(report.to_dict()))
        assert [one["layer"] for one in saved["layers"]] == list(scrubbed.layers)
        assert saved["rows"] == 100
        assert "perplexity" in str(report)


class Returning(nn.Module):
    """A network of one layer, whose output is wrapped in a tuple, a dict, or anything else."""

    def __init__(self, wrap, unwrap):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.layer, self.last = nn.Embedding(50, 8), nn.Module(), nn.Linear(8, 2)
        self.layer.forward = lambda x: wrap(x)
        self.unwrap = unwrap

    def forward(self, input_ids, **_):
        return self.last(self.unwrap(self.layer(self.embedding(input_ids))))


class TestInput:
    def test_the_hidden_states_of_an_output(self):
        first = Returning(lambda x: (x, x + 1), lambda out: out[0])
        assert scrub(first, batches(), "flag", layers=["layer"]).places == {"layer": (0,)}
        named = Returning(lambda x: {"a": x, "b": x + 1}, lambda out: out["b"])
        with pytest.raises(InputError, match="2 tensors"):
            scrub(named, batches(), "flag", layers=["layer"])
        assert scrub(named, batches(), "flag", layers=["layer"], output="b").places == {"layer": ("b",)}

    @pytest.mark.parametrize("how", ["shuffle", "sampler", "batch_sampler"])
    def test_a_loader_that_shuffles_needs_its_labels_in_the_batches(self, gpt2, how):
        data = torch.utils.data
        rows = [{name: value[0] for name, value in batch.items()} for batch in batches(number=40, size=1)]
        options = {
            "shuffle": {"shuffle": True, "batch_size": 8},
            "sampler": {"sampler": data.SubsetRandomSampler(range(40)), "batch_size": 8},
            "batch_sampler": {"batch_sampler": data.BatchSampler(data.RandomSampler(rows), 8, drop_last=False)},
        }
        labels = np.array([row["kind"] for row in rows])
        shuffled = data.DataLoader(rows, **options[how])
        with pytest.raises(LabelError, match="order of a"):
            scrub(gpt2, shuffled, labels, layers=FIRST)
        # Controls: labels in the batches, and an order that is kept.
        assert scrub(gpt2, shuffled, "kind", layers=FIRST).layers
        assert scrub(gpt2, data.DataLoader(rows, batch_size=8), labels, layers=FIRST).layers

    @pytest.mark.parametrize(
        ("layers", "said"),
        [
            (["transformer.h.O"], r"transformer\.h\.0"),
            (["transformer.h"], "runs 0 times"),
            ([], r"transformer\.h\.0"),
        ],
    )
    def test_layers_that_cannot_be_scrubbed(self, gpt2, layers, said):
        with pytest.raises(InputError, match=said):
            scrub(gpt2, batches(), "flag", layers=layers)

    def test_shared_modules_are_refused(self):
        size = {"vocab_size": 50, "hidden_size": 16, "embedding_size": 8, "intermediate_size": 32}
        config = transformers.AlbertConfig(num_hidden_layers=3, num_attention_heads=2, **size)
        albert = transformers.AlbertModel(config).eval()
        with pytest.raises(InputError, match="runs 3 times"):
            scrub(albert, batches(), "flag", layers=["encoder.albert_layer_groups.0"])
        assert scrub(albert, batches(), "flag", layers=["encoder"]).places["encoder"] == ("last_hidden_state",)

    @pytest.mark.parametrize(
        ("given", "concept", "said"),
        [
            (lambda: iter(batches()), "flag", "anew"),
            (lambda: batches()[0], "flag", "list of mappings"),
            (lambda: [torch.zeros(2, 3)], "flag", "no tensors"),
            (lambda: [{"input_ids": [[1, 2]], "flag": [0]}], "flag", "return_tensors"),
            (batches, "kinds", "'kinds' is not in batch 0"),
            (batches, np.arange(100) % 2, "shape"),
            (batches, np.arange(193) % 2, "193 labels"),
            (batches, np.zeros((192, LENGTH + 1), dtype=int), "shape"),
            (batches, np.zeros(192, dtype=int), "1 classes"),
            (batches, np.full((192, LENGTH), -100), "No row"),
            (batches, np.arange(192), "192 classes"),
        ],
    )
    def test_what_is_no_input_is_refused_in_words(self, gpt2, given, concept, said):
        with pytest.raises(InputError, match=said):
            scrub(gpt2, given(), concept, layers=FIRST)

    def test_parameters_are_checked(self, gpt2):
        with pytest.raises(InputError, match=r"torch\.nn\.Module"):
            scrub("gpt2", batches(), "flag", layers=FIRST)
        for remover in ("leace", INLP()):
            with pytest.raises(InputError, match="sums only"):
                scrub(gpt2, batches(), "flag", remover=remover, layers=FIRST)
        with pytest.raises(InputError, match="pooling"):
            scrub(gpt2, batches(), "flag", pooling="max", layers=FIRST)
        with pytest.raises(LabelError, match="pass y"):
            scrub(gpt2, batches(), "flag", remover=SPLINCE(), layers=FIRST)

    def test_activations_that_are_not_finite(self):
        model = make("gpt2")
        with torch.no_grad():
            model.transformer.wte.weight[30] = float("nan")
        with pytest.raises(NotFiniteError, match=r"'transformer\.h\.0' returns NaN"):
            scrub(model, batches(), "flag", layers=FIRST)
        assert not any(module._forward_hooks for module in model.modules())

    def test_an_empty_sequence(self, gpt2):
        given = batches()
        given[2]["attention_mask"][5] = 0
        with pytest.raises(InputError, match="Batch 2 has sequences without tokens"):
            scrub(gpt2, given, "flag", layers=FIRST)
