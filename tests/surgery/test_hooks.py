import copy
import io
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch
from torch import nn

from tests.surgery.maps import KINDS, D, error, make, rows
from unspur import JSE, Subspace, surgery
from unspur.exceptions import InputError
from unspur.lab.datasets import make_toy


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(first=nn.Linear(6, D), body=nn.Sequential(nn.Linear(D, D), nn.Tanh()), last=nn.Linear(D, 2))
    )


@pytest.fixture
def x():
    return torch.from_numpy(rows(3, 5, 6)).float()


def by_hand(model, x, removal):
    """The model with the removal after its `body`, without any hook."""
    hidden = model.body(model.first(x)).detach().double().numpy()
    return model.last.double()(torch.from_numpy(removal(hidden))).detach()


class Returning(nn.Module):
    """A module whose output is whatever `wrap` makes of its input."""

    def __init__(self, wrap):
        super().__init__()
        self.inner = nn.Identity()
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(self.inner(x))


@dataclass
class ModelOutput(OrderedDict):
    """The behaviour of transformers.utils.ModelOutput that matters here: a dict and a dataclass that agree."""

    last_hidden_state: torch.Tensor | None = None
    pooler_output: torch.Tensor | None = None
    hidden_states: tuple | None = None

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __reduce__(self):
        made, _, *rest = super().__reduce__()
        return made, tuple(getattr(self, field.name) for field in fields(self)), *rest


class TestAttach:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_output_passes_through_the_removal_until_the_block_ends(self, model, x, kind):
        removal, plain = make(kind), model(x)
        with surgery.attach(model, "body", removal) as same:
            assert same is model
            attached = model(x)
        assert error(plain.detach(), model(x).detach()) == 0.0
        assert not model.body._forward_hooks
        expected = by_hand(model, x, removal)
        assert error(attached.detach(), expected) < 1e-5
        assert error(plain.detach(), expected) > 1e-3  # control

    def test_the_hook_is_gone_after_an_exception(self, model, x):
        plain = model(x)

        def fail_inside():
            with surgery.attach(model, "body", make("remove")):
                assert not torch.equal(model(x), plain)
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            fail_inside()
        assert not model.body._forward_hooks
        assert torch.equal(model(x), plain)

    @pytest.mark.parametrize("shape", [(6,), (1, 6), (0, 6), (2, 3, 4, 6)])
    def test_any_batch_shape(self, model, shape):
        x = torch.from_numpy(rows(*shape)).float()
        with surgery.attach(model, "first", make("oblique remove")):
            got = model.first(x)
        expected = make("oblique remove")(model.first(x).detach().numpy())
        assert got.shape == (*shape[:-1], D)
        np.testing.assert_allclose(got.detach(), expected, atol=1e-5)

    def test_attachments_nest_and_act_in_order(self, model, x):
        first, second = make("oblique remove"), make("oblique keep")
        plain = model.body(model.first(x)).detach().numpy()
        with surgery.attach(model, "body", first), surgery.attach(model, "body", second):
            both = model.body(model.first(x)).detach()
        assert error(both, second(first(plain))) < 1e-5
        assert error(first(second(plain)), second(first(plain))) > 1e-2  # control: order matters

    def test_one_attachment_entered_twice_acts_once(self, model, x):
        removal = make("oblique remove")
        attachment = surgery.attach(model, "body", removal)
        plain = model.body(model.first(x)).detach().numpy()
        for _ in range(2):
            with attachment:
                with attachment:
                    inside = model.body(model.first(x)).detach()
                still = model.body(model.first(x)).detach()
            assert error(inside, removal(plain)) < 1e-5
            assert error(still, removal(plain)) < 1e-5
            assert not model.body._forward_hooks
        assert error(removal(removal(plain)), removal(plain)) > 1e-2  # control: twice would show

    def test_the_model_itself_and_shared_modules_have_paths(self, x):
        shared = nn.Linear(6, D)
        model = nn.ModuleDict({"a": shared, "b": shared})
        with surgery.attach(model, "b", make("keep")):
            assert error(model["a"](x).detach(), make("keep")(shared.forward(x).detach().numpy())) < 1e-5
        with surgery.attach(shared, "", make("keep")):
            assert error(shared(x).detach(), make("keep")(shared.forward(x).detach().numpy())) < 1e-5

    def test_factors_are_made_once_per_device_and_dtype(self, monkeypatch):
        from unspur.surgery import modules

        made = []
        original = modules.factors_of
        monkeypatch.setattr(modules, "factors_of", lambda *args: made.append(args[1:]) or original(*args))
        identity = nn.Identity()
        with surgery.attach(identity, "", make("remove")):
            for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.float32):
                assert identity(torch.ones(2, D, dtype=dtype)).dtype == dtype
            assert identity(torch.ones(2, D, device="meta")).device.type == "meta"
        cpu, meta = torch.device("cpu"), torch.device("meta")
        assert made == [(torch.float32, cpu), (torch.float64, cpu), (torch.float32, meta)]


class TestOutputs:
    removal = make("oblique remove")
    Pair = namedtuple("Pair", "mask hidden")

    def run(self, wrap):
        hidden = torch.from_numpy(rows(2, 7, D)).float()
        model = Returning(wrap)
        with surgery.attach(model, "", self.removal):
            changed = model(hidden)
        return changed, model(hidden), self.removal(hidden.numpy())

    @pytest.mark.parametrize("container", [tuple, list])
    def test_the_first_tensor_of_a_sequence(self, container):
        changed, plain, expected = self.run(lambda h: container([None, h, h + 1, "x"]))
        assert type(changed) is container
        assert error(changed[1], expected) < 1e-5
        assert torch.equal(changed[2], plain[2])
        assert (changed[0], changed[3]) == (None, "x")
        assert error(plain[1], expected) > 1e-2  # control

    def test_a_named_tuple_keeps_its_kind(self):
        changed, plain, expected = self.run(lambda h: self.Pair(None, h))
        assert isinstance(changed, self.Pair)
        assert error(changed.hidden, expected) < 1e-5
        assert error(plain.hidden, expected) > 1e-2

    def test_what_a_recurrent_network_returns(self):
        lstm = nn.LSTM(4, D, batch_first=True)
        x = torch.from_numpy(rows(2, 5, 4)).float()
        with surgery.attach(lstm, "", self.removal):
            hidden, (state, _) = lstm(x)
        plain, (plain_state, _) = lstm(x)
        assert error(hidden.detach(), self.removal(plain.detach().numpy())) < 1e-5
        assert torch.equal(state, plain_state)

    @pytest.mark.parametrize("kind", [dict, OrderedDict])
    def test_the_first_tensor_of_a_mapping(self, kind):
        changed, plain, expected = self.run(lambda h: kind(cache=None, features=h, extra=h + 1))
        assert type(changed) is kind
        assert list(changed) == ["cache", "features", "extra"]
        assert error(changed["features"], expected) < 1e-5
        assert torch.equal(changed["extra"], plain["extra"])

    def test_the_last_hidden_state_of_a_model_output(self):
        held = []

        def wrap(h):
            held.append(ModelOutput(last_hidden_state=h, pooler_output=h[:, 0], hidden_states=(h, h)))
            return held[-1]

        changed, plain, expected = self.run(wrap)
        assert isinstance(changed, ModelOutput)
        assert error(changed.last_hidden_state, expected) < 1e-5
        assert error(changed["last_hidden_state"], expected) < 1e-5
        assert torch.equal(changed.pooler_output, plain.pooler_output)
        assert len(changed.hidden_states) == 2
        assert changed is not held[0]
        assert torch.equal(held[0].last_hidden_state, plain.last_hidden_state)  # what the model holds is untouched
        reordered, _, expected = self.run(lambda h: {"logits": h[..., :2], "last_hidden_state": h})
        assert error(reordered["last_hidden_state"], expected) < 1e-5

    @pytest.mark.parametrize("wrap", [lambda _: "text", lambda _: (), lambda h: {"a": [h]}, lambda _: None])
    def test_outputs_without_a_tensor(self, wrap):
        with pytest.raises(InputError, match="without a tensor to transform"):
            self.run(wrap)

    @pytest.mark.parametrize("wrap", [lambda h: h[..., :5], lambda h: h.sum(), lambda h: h.transpose(1, 2)])
    def test_outputs_of_another_width(self, wrap):
        with pytest.raises(InputError, match=r"The output of the model has shape .* last axis of 24"):
            self.run(wrap)

    def test_outputs_that_are_not_rows(self):
        with pytest.raises(InputError, match=r"torch.int64"):
            self.run(lambda h: h.long())


class TestNumbers:
    def test_gradients_flow(self):
        removal = make("remove")
        model = nn.Sequential(nn.Linear(D, D), nn.Tanh()).double()
        x = torch.from_numpy(rows(4, D)).requires_grad_()
        with surgery.attach(model, "0", removal):
            assert torch.autograd.gradcheck(model, x)

    def test_no_gradient_leaves_along_the_removed_directions(self):
        removal = make("remove")
        identity, x = nn.Identity(), torch.from_numpy(rows(4, D)).requires_grad_()
        weights = torch.from_numpy(rows(4, D, seed=3))
        with surgery.attach(identity, "", removal):
            (identity(x) * weights).sum().backward()
        directions = torch.from_numpy(removal.right.copy())
        assert (x.grad @ directions).abs().max() < 1e-12
        assert (weights @ directions).abs().max() > 0.1  # control: the gradient without the removal

    def test_training_works_after_inference_mode(self, model, x):
        with surgery.attach(model, "body", make("remove")):
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
        assert got.dtype == torch.float32
        assert error(got, removal(x.double().numpy())) < 1e-6
        assert error(naive.float(), x.double() @ right.double()) > 1e-4  # control: autocast is on


class TestModule:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_equals_the_map(self, kind, dtype):
        removal, x = make(kind), torch.from_numpy(rows(2, 3, D)).to(dtype)
        module = surgery.as_module(removal, dtype=dtype)
        assert not list(module.parameters())
        assert module.centre.dtype == dtype
        assert error(module(x), removal(x.double().numpy())) < {torch.float32: 1e-6, torch.float64: 1e-14}[dtype]

    def test_state_dict_carries_the_whole_map(self):
        x = torch.from_numpy(rows(4, D)).float()
        source, target = surgery.as_module(make("oblique keep")), surgery.as_module(make("oblique remove"))
        assert error(target(x), source(x)) > 1e-2
        file = io.BytesIO()
        torch.save(source.state_dict(), file)
        file.seek(0)
        target.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(target(x), source(x))
        assert "keep, features=24, directions=3" in repr(target)

    def test_copies_pickles_and_stands_in_a_sequence(self):
        x = torch.from_numpy(rows(4, 6)).float()
        model = nn.Sequential(nn.Linear(6, D), surgery.as_module(make("remove")), nn.Linear(D, 2))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            assert torch.equal(other(x), model(x))
        folded = nn.Sequential(model[0], surgery.fold(make("remove"), model[2]))
        assert error(folded(x).detach(), model(x).detach()) < 1e-5

    def test_double_and_devices_move_the_buffers(self):
        module = surgery.as_module(make("remove"))
        assert module.double().right.dtype == torch.float64
        assert module.half().right.dtype == torch.float64  # kept: a rounded projection is none
        assert module.to("meta").right.device.type == "meta"

    def test_torch_export_with_a_dynamic_batch(self):
        module, x = surgery.as_module(make("oblique remove")), torch.from_numpy(rows(4, D)).float()
        program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        other = torch.from_numpy(rows(9, D, seed=2)).float()
        assert error(program.module()(other), module(other)) < 1e-6

    @pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
    def test_torch_jit_trace(self):
        module, x = surgery.as_module(make("oblique remove")), torch.from_numpy(rows(4, D)).float()
        traced = torch.jit.trace(module, x)
        other = torch.from_numpy(rows(9, D, seed=2)).float()
        assert error(traced(other), module(other)) < 1e-6

    def test_width_mismatch(self):
        with pytest.raises(InputError, match=r"has shape \(2, 5\); the removal needs a last axis of 24"):
            surgery.as_module(make("remove"))(torch.ones(2, 5))


class TestErrors:
    def test_a_wrong_path_lists_close_ones(self, model):
        with pytest.raises(InputError, match=r"Sequential has no module 'body.2'\. Close: .*body\.1"):
            surgery.attach(model, "body.2", make("remove"))
        with pytest.raises(InputError, match=r"no module 'zzz'\. It has first, body, body\.0, body\.1, last\."):
            surgery.attach(model, "zzz", make("remove"))
        nested = nn.ModuleDict({"encoder": nn.ModuleDict({"layer": nn.ModuleList([nn.Identity()] * 30)})})
        with pytest.raises(InputError, match=r"Close: encoder\.layer\.5"):
            surgery.attach(nested, "layer.5", make("remove"))
        surgery.attach(model, "body.1", make("remove"))  # control

    def test_things_that_are_no_removal(self, model):
        with pytest.raises(InputError, match=r"AffineMap\.removing"):
            surgery.attach(model, "body", Subspace.empty(D))
        with pytest.raises(ValueError, match="not fitted"):
            surgery.as_module(JSE())
        with pytest.raises(InputError, match=r"needs a torch\.nn\.Module; got a dict"):
            surgery.attach({}, "body", make("remove"))


def test_a_fitted_remover_acts_in_a_network():
    toy = make_toy(2000, rho=0.8, random_state=0)
    jse = JSE(random_state=0).fit(toy.Z, toy.y, concept=toy.concept)
    model = nn.Sequential(OrderedDict(embed=nn.Identity(), head=nn.Linear(20, 1))).double()
    z = torch.from_numpy(toy.Z)
    with torch.no_grad(), surgery.attach(model, "embed", jse):
        attached = model(z)
        hidden = model.embed(z)
    assert error(hidden, jse.transform(toy.Z)) < 1e-12
    assert error(surgery.fold(jse, model.head)(z).detach(), attached) < 1e-12
    assert error(model(z).detach(), attached) > 1e-2  # control
