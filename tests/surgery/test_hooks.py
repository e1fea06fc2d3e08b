"""A removal as a module, and at the output or input of a module of a network."""

import copy
import io
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tests.surgery.maps import KINDS, D, error, make, rows
from unspur import JSE, Subspace, surgery
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NothingRemovedWarning

REMOVAL = make("oblique remove")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(first=nn.Linear(6, D), body=nn.Sequential(nn.Linear(D, D), nn.Tanh()), last=nn.Linear(D, 2))
    )


@pytest.fixture
def x():
    return torch.from_numpy(rows(3, 5, 6)).float()


class Returning(nn.Module):
    """A module whose output is whatever `wrap` makes of its input."""

    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(x)


class TestAttach:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("where", ["output", "input"])
    def test_rows_pass_through_the_removal_until_the_block_ends(self, model, x, kind, where):
        removal, plain = make(kind), model(x)
        path = "body" if where == "output" else "last"
        with surgery.attach(model, path, removal, where=where) as same:
            assert same is model
            attached = model(x)
        assert torch.equal(plain, model(x))
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        hidden = model.body(model.first(x)).detach().double().numpy()
        expected = model.last.double()(torch.from_numpy(removal(hidden))).detach()
        assert error(attached.detach(), expected) < 1e-5
        assert error(plain.detach(), expected) > 1e-3  # control

    def test_the_hook_is_gone_after_an_exception(self, model, x):
        plain = model(x)
        with pytest.raises(KeyError), surgery.attach(model, "body", REMOVAL):
            raise KeyError(model(x))
        assert torch.equal(model(x), plain)

    @pytest.mark.parametrize("shape", [(6,), (1, 6), (0, 6), (2, 3, 4, 6)])
    def test_any_batch_shape(self, model, shape):
        x = torch.from_numpy(rows(*shape)).float()
        with surgery.attach(model, "first", REMOVAL):
            got = model.first(x)
        np.testing.assert_allclose(got.detach(), REMOVAL(model.first(x).detach().numpy()), atol=1e-5)

    def test_attachments_nest_and_act_in_order(self, model, x):
        first, second = REMOVAL, make("oblique keep")
        plain = model.body(model.first(x)).detach().numpy()
        with surgery.attach(model, "body", first), surgery.attach(model, "body", second):
            both = model.body(model.first(x)).detach()
        assert error(both, second(first(plain))) < 1e-5
        assert error(first(second(plain)), second(first(plain))) > 1e-2  # control: order matters

    def test_one_attachment_entered_twice_acts_once(self, model, x):
        attachment = surgery.attach(model, "body", REMOVAL)
        plain = model.body(model.first(x)).detach().numpy()
        for _ in range(2):
            with attachment:
                with attachment:
                    inside = model.body(model.first(x)).detach()
                still = model.body(model.first(x)).detach()
            assert error(inside, REMOVAL(plain)) < 1e-5
            assert error(still, REMOVAL(plain)) < 1e-5
        assert error(REMOVAL(REMOVAL(plain)), REMOVAL(plain)) > 1e-2  # control: twice would show

    def test_the_model_itself_and_shared_modules_have_paths(self, x):
        shared = nn.Linear(6, D)
        model = nn.ModuleDict({"a": shared, "b": shared})
        with surgery.attach(model, "b", REMOVAL):
            assert error(model["a"](x).detach(), REMOVAL(shared.forward(x).detach().numpy())) < 1e-5
        with surgery.attach(shared, "", REMOVAL):
            assert error(shared(x).detach(), REMOVAL(shared.forward(x).detach().numpy())) < 1e-5

    def test_a_module_that_does_not_run_is_said(self, model, x):
        model.aside = nn.Linear(6, D)
        model.forward = lambda x: model.last(model.body(model.first(x)))
        with pytest.warns(NothingRemovedWarning, match="'aside' did not run"), surgery.attach(model, "aside", REMOVAL):
            model(x)
        with surgery.attach(model, "body", REMOVAL):  # control
            model(x)

    @pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
    def test_a_model_that_was_compiled_before_is_said_to_take_no_notice(self, model, x):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="eager")
        before = compiled(x)
        with pytest.warns(NothingRemovedWarning, match="compiled"), surgery.attach(model, "body", REMOVAL):
            assert torch.equal(compiled(x), before)
        torch._dynamo.reset()
        with surgery.attach(model, "body", REMOVAL):
            assert not torch.allclose(compiled(x), before)
        torch._dynamo.reset()


class TestPlaces:
    Pair = namedtuple("Pair", "mask hidden")

    def run(self, wrap, **options):
        hidden = torch.from_numpy(rows(2, 7, D)).float()
        model = Returning(wrap)
        with surgery.attach(model, "", REMOVAL, **options):
            changed = model(hidden)
        return changed, model(hidden), REMOVAL(hidden.numpy())

    @pytest.mark.parametrize("container", [tuple, list, lambda items: TestPlaces.Pair(*items)])
    def test_the_only_tensor_that_fits(self, container):
        changed, plain, expected = self.run(lambda h: container([h[..., :3], h]))
        assert type(changed) is type(plain)
        assert error(changed[1], expected) < 1e-5
        assert torch.equal(changed[0], plain[0])
        assert error(plain[1], expected) > 1e-2  # control

    def test_one_tensor_of_a_mapping_by_name(self):
        def wrap(h):
            return BaseModelOutputWithPooling(last_hidden_state=h, pooler_output=h[:, 0], hidden_states=(h, h))

        for output, place in (("pooler_output", lambda o: o.pooler_output), (1, lambda o: o["pooler_output"])):
            changed, plain, expected = self.run(wrap, output=output)
            assert error(place(changed), expected[:, 0]) < 1e-5
            assert torch.equal(changed.last_hidden_state, plain.last_hidden_state)
        nested, plain, expected = self.run(wrap, output=("hidden_states", 1))
        assert error(nested.hidden_states[1], expected) < 1e-5
        assert torch.equal(nested.hidden_states[0], plain.hidden_states[0])
        with pytest.raises(InputError, match="pooler_output"):
            self.run(wrap)
        with pytest.raises(InputError, match="'logits'"):
            self.run(wrap, output="logits")

    def test_what_a_recurrent_network_returns(self):
        """Its states have the width of its outputs, and a network may go on with either."""
        lstm, x = nn.LSTM(4, D, batch_first=True), torch.from_numpy(rows(2, 5, 4)).float()
        plain, (plain_state, plain_cell) = lstm(x)
        with surgery.attach(lstm, "", REMOVAL), pytest.raises(InputError, match="3 tensors"):
            lstm(x)
        with surgery.attach(lstm, "", REMOVAL, output=(1, 0)):
            hidden, (state, cell) = lstm(x)
        assert error(state.detach(), REMOVAL(plain_state.detach().numpy())) < 1e-5
        assert torch.equal(hidden, plain)
        assert torch.equal(cell, plain_cell)

    def test_one_argument_by_name_or_position(self):
        class Two(nn.Module):
            def forward(self, first, second=None, *, third=None):
                return torch.stack([first, second, third])

        module = Two()
        a, b, c = (torch.from_numpy(rows(3, D, seed=k)).float() for k in range(3))
        plain = module(a, b, third=c)
        for argument, changes in ((0, 0), ("first", 0), (1, 1), ("second", 1), ("third", 2)):
            with surgery.attach(module, "", REMOVAL, where="input", argument=argument):
                got = module(a, b, third=c)
            expected = plain.numpy().copy()
            expected[changes] = REMOVAL(expected[changes])
            np.testing.assert_allclose(got, expected, atol=1e-5)
        with surgery.attach(module, "", REMOVAL, where="input"), pytest.raises(InputError, match="3 tensors"):
            module(a, b, third=c)

    def test_channels_of_feature_maps(self):
        maps, identity = torch.from_numpy(rows(2, 3, 5, D)).float().movedim(-1, 1), nn.Identity()
        for axis in (1, -3):
            with surgery.attach(identity, "", REMOVAL, axis=axis):
                got = identity(maps)
            expected = REMOVAL(maps.movedim(1, -1).numpy())
            assert error(got.movedim(1, -1), expected) < 1e-5
        assert error(maps.movedim(1, -1), expected) > 1e-2  # control
        with surgery.attach(identity, "", REMOVAL), pytest.raises(InputError, match="Pass axis 1"):
            identity(maps)

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda _: "text",
            lambda _: (),
            lambda _: None,
            lambda h: (h[..., :3], h[..., :5]),
            lambda h: h[..., :5],
            lambda h: h.sum(),
            lambda h: h.transpose(1, 2),
            lambda h: h.long(),
        ],
    )
    def test_outputs_that_do_not_fit(self, wrap):
        with pytest.raises(InputError):
            self.run(wrap)

    @pytest.mark.parametrize("wrong", [{"where": "middle"}, {"argument": 0}, {"where": "input", "output": 0}])
    def test_choices_that_mean_nothing_are_errors(self, model, wrong):
        with pytest.raises(InputError):
            surgery.attach(model, "body", REMOVAL, **wrong)


class TestNumbers:
    def test_gradients_flow(self):
        model = nn.Sequential(nn.Linear(D, D), nn.Tanh()).double()
        x = torch.from_numpy(rows(4, D)).requires_grad_()
        with surgery.attach(model, "0", make("remove")):
            assert torch.autograd.gradcheck(model, x)

    def test_no_gradient_leaves_along_the_removed_directions(self):
        removal, identity, x = make("remove"), nn.Identity(), torch.from_numpy(rows(4, D)).requires_grad_()
        weights = torch.from_numpy(rows(4, D, seed=3))
        with surgery.attach(identity, "", removal):
            (identity(x) * weights).sum().backward()
        directions = torch.from_numpy(removal.right.copy())
        assert (x.grad @ directions).abs().max() < 1e-12
        assert (weights @ directions).abs().max() > 0.1  # control: the gradient without the removal

    def test_training_works_after_inference_mode(self, model, x):
        with surgery.attach(model, "body", REMOVAL):
            with torch.inference_mode():
                model(x)
            model(x).sum().backward()
        assert model.first.weight.grad.abs().max() > 0

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("how", ["attach", "module"])
    def test_half_types_are_computed_in_float32(self, dtype, how):
        removal, x = make("remove"), torch.from_numpy(10.0 + rows(50, D)).to(dtype)
        if how == "attach":
            identity = nn.Identity()
            with surgery.attach(identity, "", removal):
                got = identity(x)
        else:
            got = surgery.as_module(removal).to(dtype)(x)
        exact = torch.from_numpy(removal(x.double().numpy()))
        assert got.dtype == dtype
        bound = 0.51 * torch.finfo(dtype).eps * exact.abs() + 1e-5  # half a unit in the last place
        assert ((got.double() - exact).abs() <= bound).all()
        right = torch.from_numpy(removal.right.copy()).to(dtype)
        naive = x - (x - torch.from_numpy(removal.centre.copy()).to(dtype)) @ right @ right.T
        assert ((naive.double() - exact).abs() > bound).any()  # control: the half type itself does not get there

    def test_autocast_does_not_cost_digits(self):
        removal, x = make("remove"), torch.from_numpy(rows(50, D)).float()
        module, right = surgery.as_module(removal), torch.from_numpy(removal.right.copy()).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, naive = module(x), x @ right
        assert error(got, removal(x.double().numpy())) < 1e-6
        assert error(naive.float(), x.double() @ right.double()) > 1e-4  # control: autocast is on


class TestModule:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equals_the_map(self, kind, dtype):
        removal, x = make(kind), torch.from_numpy(rows(2, 3, D)).to(dtype)
        module = surgery.as_module(removal, dtype=dtype)
        assert not list(module.parameters())
        assert error(module(x), removal(x.double().numpy())) < {torch.float32: 1e-6, torch.float64: 1e-14}[dtype]

    def test_the_state_dict_carries_the_whole_map(self):
        x = torch.from_numpy(rows(4, D)).float()
        source, target = surgery.as_module(make("oblique keep")), surgery.as_module(REMOVAL)
        assert error(target(x), source(x)) > 1e-2
        file = io.BytesIO()
        torch.save(source.state_dict(), file)
        file.seek(0)
        target.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(target(x), source(x))

    def test_copies_pickles_and_stands_in_a_sequence(self):
        x = torch.from_numpy(rows(4, 6)).float()
        model = nn.Sequential(nn.Linear(6, D), surgery.as_module(REMOVAL), nn.Linear(D, 2))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            assert torch.equal(other(x), model(x))
        folded = nn.Sequential(model[0], surgery.fold(REMOVAL, model[2]))
        assert error(folded(x).detach(), model(x).detach()) < 1e-5

    def test_buffers_keep_their_digits(self):
        module = surgery.as_module(make("remove"))
        assert module.double().right.dtype == torch.float64
        assert module.half().right.dtype == torch.float64  # a rounded projection is none
        assert module.to("meta").right.device.type == "meta"
        for dtype in (torch.float16, torch.int64):
            with pytest.raises(InputError, match="digits"):
                surgery.as_module(REMOVAL, dtype=dtype)

    def test_torch_export_with_a_dynamic_batch(self):
        module, x = surgery.as_module(REMOVAL), torch.from_numpy(rows(4, D)).float()
        program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        other = torch.from_numpy(rows(9, D, seed=2)).float()
        assert error(program.module()(other), module(other)) < 1e-6


class TestErrors:
    def test_a_wrong_path_lists_close_ones(self, model):
        for path, listed in (("body.2", r"body\.1"), ("zzz", "first, body")):
            with pytest.raises(InputError, match=listed):
                surgery.attach(model, path, REMOVAL)

    @pytest.mark.parametrize("other", [None, nn.Linear(2, 2), REMOVAL])
    def test_anything_in_place_of_the_name(self, model, other):
        with pytest.raises(InputError, match="in this order"):
            surgery.attach(model, other, REMOVAL)

    def test_things_that_are_no_removal(self, model):
        with pytest.raises(InputError, match="Subspace"):
            surgery.attach(model, "body", Subspace.empty(D))
        with pytest.raises(ValueError, match="not fitted"):
            surgery.as_module(JSE())
        with pytest.raises(InputError, match="dict"):
            surgery.attach({}, "body", REMOVAL)
        with pytest.raises(InputError, match="shape"):
            surgery.as_module(REMOVAL)(torch.ones(2, 5))

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_nested_tensors_of_an_encoder(self):
        padded = torch.tensor([[False, False, True]] * 2)
        for nested in (True, False):
            layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True)
            encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
            with torch.no_grad(), surgery.attach(encoder, "layers.0", REMOVAL):
                if nested:
                    with pytest.raises(InputError, match="enable_nested_tensor=False"):
                        encoder(torch.randn(2, 3, D), src_key_padding_mask=padded)
                else:  # the control
                    assert encoder(torch.randn(2, 3, D), src_key_padding_mask=padded).shape == (2, 3, D)


class TestNetworks:
    @pytest.mark.parametrize("how", ["output", "position", "input"])
    def test_logits_are_those_of_a_folded_classifier(self, how):
        torch.manual_seed(0)
        size = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.BertConfig(vocab_size=30, max_position_embeddings=12, num_labels=3, **size)
        classifier = transformers.BertForSequenceClassification(config).eval()
        batch = {"input_ids": torch.from_numpy(np.random.default_rng(0).integers(30, size=(4, 9)))}
        options, call = {
            "output": ({"path": "bert", "output": "pooler_output"}, {}),
            "position": ({"path": "bert", "output": 1}, {"return_dict": False}),
            "input": ({"path": "classifier", "where": "input"}, {}),
        }[how]
        with torch.inference_mode():
            plain = classifier(**batch).logits
            with surgery.attach(classifier, removal=REMOVAL, **options):
                answer = classifier(**batch, **call)
            folded = surgery.fold(REMOVAL, classifier.classifier)(classifier.bert(**batch).pooler_output)
        attached = answer[0] if how == "position" else answer.logits
        assert error(attached, folded) < 1e-5
        assert error(attached, plain) > 1e-3  # control: they do change

    def test_channels_of_a_convolutional_network(self):
        """The mean over positions of cleaned maps is the cleaned mean, so that a folded layer says what comes out."""
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, D, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(D, 2)
        ).eval()
        pictures = torch.from_numpy(rows(5, 3, 10, 10)).float()
        with torch.inference_mode():
            plain = network(pictures)
            with surgery.attach(network, "2", REMOVAL, axis=1):
                attached = network(pictures)
            folded = surgery.fold(REMOVAL, network[5])(network[:5](pictures))
        assert error(attached, folded) < 1e-5
        assert error(attached, plain) > 1e-3  # control

    def test_a_fitted_remover(self):
        toy = make_toy(2000, rho=0.8, random_state=0)
        jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
        model = nn.Sequential(OrderedDict(embed=nn.Identity(), head=nn.Linear(20, 1))).double()
        z = torch.from_numpy(toy.Z)
        with torch.no_grad(), surgery.attach(model, "embed", jse):
            attached, hidden = model(z), model.embed(z)
        assert error(hidden, jse.transform(toy.Z)) < 1e-12
        assert error(surgery.fold(jse, model.head)(z).detach(), attached) < 1e-12
        assert error(model(z).detach(), attached) > 1e-2  # control
