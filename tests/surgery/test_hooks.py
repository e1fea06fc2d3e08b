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
from unspur.datasets import make_toy
from unspur.exceptions import IllConditionedWarning, InputError, NothingRemovedWarning


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

    def run(self, wrap, **options):
        hidden = torch.from_numpy(rows(2, 7, D)).float()
        model = Returning(wrap)
        with surgery.attach(model, "", self.removal, **options):
            changed = model(hidden)
        return changed, model(hidden), self.removal(hidden.numpy())

    @pytest.mark.parametrize("container", [tuple, list])
    def test_the_only_tensor_of_a_sequence_that_fits(self, container):
        changed, plain, expected = self.run(lambda h: container([None, h[..., :3], h, "x", h.long()]))
        assert type(changed) is container
        assert error(changed[2], expected) < 1e-5
        assert torch.equal(changed[1], plain[1])
        assert (changed[0], changed[3]) == (None, "x")
        assert error(plain[2], expected) > 1e-2  # control

    def test_a_named_tuple_keeps_its_kind(self):
        changed, plain, expected = self.run(lambda h: self.Pair(None, h))
        assert isinstance(changed, self.Pair)
        assert error(changed.hidden, expected) < 1e-5
        assert error(plain.hidden, expected) > 1e-2

    def test_what_a_recurrent_network_returns(self):
        """Its states have the width of its outputs, and a network may go on with either."""
        lstm = nn.LSTM(4, D, batch_first=True)
        x = torch.from_numpy(rows(2, 5, 4)).float()
        plain, (plain_state, plain_cell) = lstm(x)
        with (
            surgery.attach(lstm, "", self.removal),
            pytest.raises(InputError, match=r"3 tensors.*as output= the one"),
        ):
            lstm(x)
        with surgery.attach(lstm, "", self.removal, output=0):
            hidden, (state, _) = lstm(x)
        assert error(hidden.detach(), self.removal(plain.detach().numpy())) < 1e-5
        assert torch.equal(state, plain_state)
        with surgery.attach(lstm, "", self.removal, output=(1, 0)):
            hidden, (state, cell) = lstm(x)
        assert error(state.detach(), self.removal(plain_state.detach().numpy())) < 1e-5
        assert torch.equal(hidden, plain)
        assert torch.equal(cell, plain_cell)

    @pytest.mark.parametrize("kind", [dict, OrderedDict])
    def test_one_tensor_of_a_mapping_by_name(self, kind):
        def wrap(h):
            return kind(cache=None, features=h, extra=h + 1)

        with pytest.raises(
            InputError, match=r"2 tensors of 24 features: 'features' \(2, 7, 24\), 'extra' \(2, 7, 24\)"
        ):
            self.run(wrap)
        changed, plain, expected = self.run(wrap, output="features")
        assert type(changed) is kind
        assert list(changed) == ["cache", "features", "extra"]
        assert error(changed["features"], expected) < 1e-5
        assert torch.equal(changed["extra"], plain["extra"])
        with pytest.raises(InputError, match="without 'logits'; it has 'cache', 'features', 'extra'"):
            self.run(wrap, output="logits")
        with pytest.raises(InputError, match="NoneType and not a tensor"):
            self.run(wrap, output="cache")

    def test_one_tensor_of_a_model_output_by_name(self):
        held = []

        def wrap(h):
            held.append(ModelOutput(last_hidden_state=h, pooler_output=h[:, 0], hidden_states=(h, h)))
            return held[-1]

        changed, plain, expected = self.run(wrap, output="last_hidden_state")
        assert isinstance(changed, ModelOutput)
        assert error(changed.last_hidden_state, expected) < 1e-5
        assert error(changed["last_hidden_state"], expected) < 1e-5
        assert torch.equal(changed.pooler_output, plain.pooler_output)
        assert len(changed.hidden_states) == 2
        assert changed is not held[0]
        assert torch.equal(held[0].last_hidden_state, plain.last_hidden_state)  # what the model holds is untouched
        pooled, plain, expected = self.run(wrap, output="pooler_output")
        assert error(pooled.pooler_output, expected[:, 0]) < 1e-5
        assert torch.equal(pooled.last_hidden_state, plain.last_hidden_state)
        nested, plain, expected = self.run(wrap, output=("hidden_states", 1))
        assert error(nested.hidden_states[1], expected) < 1e-5
        assert torch.equal(nested.hidden_states[0], plain.hidden_states[0])
        with pytest.raises(InputError, match="that the network goes on with"):
            self.run(wrap)
        reordered, _, expected = self.run(lambda h: {"logits": h[..., :2], "last_hidden_state": h})
        assert error(reordered["last_hidden_state"], expected) < 1e-5

    @pytest.mark.parametrize("wrap", [lambda _: "text", lambda _: (), lambda _: {"a": [1]}, lambda _: None])
    def test_outputs_without_a_tensor(self, wrap):
        with pytest.raises(InputError, match="without a tensor to transform"):
            self.run(wrap)

    def test_outputs_of_which_no_tensor_fits(self):
        with pytest.raises(InputError, match=r"none with 24 features along axis -1: 0 \(2, 7, 3\), 1 \(2, 7, 5\)"):
            self.run(lambda h: (h[..., :3], h[..., :5]))

    @pytest.mark.parametrize("wrap", [lambda h: h[..., :5], lambda h: h.sum(), lambda h: h.transpose(1, 2)])
    def test_outputs_of_another_width(self, wrap):
        with pytest.raises(InputError, match=r"The output of the model has shape .* last axis of 24"):
            self.run(wrap)

    def test_outputs_that_are_not_rows(self):
        with pytest.raises(InputError, match=r"torch.int64"):
            self.run(lambda h: h.long())


class TestInputs:
    removal = make("oblique remove")

    def test_the_input_of_a_module_passes_through(self, model, x):
        plain = model(x)
        with surgery.attach(model, "last", self.removal, where="input"):
            attached = model(x)
        assert not model.last._forward_pre_hooks
        assert not model._forward_pre_hooks
        assert error(attached.detach(), by_hand(model, x, self.removal)) < 1e-5
        assert error(plain.detach(), attached.detach()) > 1e-3  # control

    def test_one_argument_by_name_or_position(self):
        class Two(nn.Module):
            def forward(self, first, second=None, *, third=None):
                return torch.stack([first, second, third])

        module = Two()
        a, b, c = (torch.from_numpy(rows(3, D, seed=k)).float() for k in range(3))
        plain = module(a, b, third=c)
        for argument, changes in ((0, 0), ("first", 0), (1, 1), ("second", 1), (-1, 1), ("third", 2)):
            with surgery.attach(module, "", self.removal, where="input", argument=argument):
                got = module(a, b, third=c)
            expected = plain.numpy().copy()
            expected[changes] = self.removal(expected[changes])
            np.testing.assert_allclose(got, expected, atol=1e-5)
        attached = surgery.attach(module, "", self.removal, where="input")
        with attached, pytest.raises(InputError, match=r"3 tensors.*Pass as argument= the one"):
            module(a, b, third=c)
        with attached, pytest.raises(InputError, match="without a tensor"):
            module(1, 2)

    def test_choices_that_mean_nothing_are_errors(self, model):
        for wrong, said in (
            ({"where": "middle"}, "'output' or 'input'"),
            ({"argument": 0}, "the other one"),
            ({"where": "input", "output": 0}, "the other one"),
            ({"axis": 1.5}, "whole number"),
        ):
            with pytest.raises(InputError, match=said):
                surgery.attach(model, "body", self.removal, **wrong)


class TestAxes:
    removal = make("oblique remove")

    def test_channels_of_feature_maps(self):
        maps = torch.from_numpy(rows(2, 3, 5, D)).float().movedim(-1, 1)  # N × C × H × W
        identity = nn.Identity()
        for axis in (1, -3):
            with surgery.attach(identity, "", self.removal, axis=axis):
                got = identity(maps)
            expected = self.removal(maps.movedim(1, -1).numpy())
            assert got.shape == maps.shape
            assert error(got.movedim(1, -1), expected) < 1e-5
        assert error(maps.movedim(1, -1), expected) > 1e-2  # control

    def test_a_wrong_axis_is_an_error_that_names_the_right_one(self):
        identity = nn.Identity()
        with surgery.attach(identity, "", self.removal), pytest.raises(InputError, match=r"Axis 1 has: pass axis=1"):
            identity(torch.zeros(2, D, 3, 5))
        with (
            surgery.attach(identity, "", self.removal, axis=1),
            pytest.raises(InputError, match=r"needs an axis 1 of 24"),
        ):
            identity(torch.zeros(2, 3, D))
        with (
            surgery.attach(identity, "", self.removal, axis=2),
            pytest.raises(InputError, match=r"needs an axis 2 of 24"),
        ):
            identity(torch.zeros(2, D))
        with surgery.attach(identity, "", self.removal), pytest.raises(InputError, match=r"Pass axis=1 or axis=-1"):
            identity(torch.zeros(2, D, 3, D))
        with surgery.attach(identity, "", self.removal, axis=-1):
            assert identity(torch.zeros(2, D, 3, D)).shape == (2, D, 3, D)


def test_a_module_that_does_not_run_is_said(model, x):
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(6, D), nn.Linear(6, D)

        def forward(self, rows):
            return self.used(rows)

    aside = Aside()
    said = pytest.warns(NothingRemovedWarning, match="'unused' did not, so the removal changed nothing")
    with said, surgery.attach(aside, "unused", make("remove")):
        aside(x)
    with surgery.attach(aside, "used", make("remove")):
        aside(x)  # control
    with pytest.warns(NothingRemovedWarning, match="did not run"), surgery.attach(aside, "used", make("remove")):
        pass
    with pytest.raises(KeyError), surgery.attach(aside, "used", make("remove")):  # which says enough
        raise KeyError


@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
def test_a_model_that_was_compiled_before_is_said_to_take_no_notice(model, x):
    torch._dynamo.reset()
    compiled, removal = torch.compile(model, backend="eager"), make("remove")
    before = compiled(x)
    said = pytest.warns(NothingRemovedWarning, match=r"compiled and called before takes no notice.*_dynamo\.reset\(\)")
    with said, surgery.attach(model, "body", removal):
        assert torch.equal(compiled(x), before)
    torch._dynamo.reset()
    with surgery.attach(model, "body", removal):  # as the warning advises
        assert not torch.allclose(compiled(x), before)
    torch._dynamo.reset()


def test_an_attachment_that_is_never_entered_is_told(model, x):
    plain = model(x)
    with pytest.warns(NothingRemovedWarning, match="'body' was never entered, so the removal changed nothing"):
        surgery.attach(model, "body", make("remove"))  # as if it were a hook of torch
    assert torch.equal(model(x), plain)
    with surgery.attach(model, "body", make("remove")):  # control
        assert not torch.equal(model(x), plain)


def test_an_attachment_that_was_not_entered_cannot_be_left(model, x):
    attachment = surgery.attach(model, "body", make("remove"))
    with pytest.raises(InputError, match="'body' is left and was not entered"):
        attachment.__exit__(None, None, None)
    plain = model(x)
    with attachment:
        assert not torch.equal(model(x), plain)  # control: it still acts
    assert torch.equal(model(x), plain)


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

    @pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
    def test_buffers_have_the_digits_of_float32_whatever_the_default_is(self, half):
        removal, x = make("remove"), torch.from_numpy(rows(50, D)).float()
        torch.set_default_dtype(half)
        try:
            module, identity = surgery.as_module(removal), nn.Identity()
            with surgery.attach(identity, "", removal):
                attached = identity(x)
        finally:
            torch.set_default_dtype(torch.float32)
        assert module.right.dtype == torch.float32
        exact = removal(x.double().numpy())
        assert max(error(module(x), exact), error(attached, exact)) < 1e-6
        for dtype in (half, torch.int64):
            with pytest.raises(InputError, match=r"too few digits for a removal.*torch\.float32"):
                surgery.as_module(removal, dtype=dtype)

    @pytest.mark.parametrize("assign", [False, True])
    def test_a_state_dict_in_a_half_type_is_loaded_with_a_warning(self, assign):
        model = nn.Sequential(nn.Linear(D, D), surgery.as_module(make("remove")))
        saved = {
            name: value.bfloat16() if value.is_floating_point() else value for name, value in model.state_dict().items()
        }
        with pytest.warns(IllConditionedWarning, match=r"has 1\.centre, 1\.right, .* digits of the removal are lost"):
            model.load_state_dict(saved, assign=assign)
        assert model[1].right.dtype == torch.float32
        assert torch.equal(model[1].right, saved["1.right"].float())

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
    def test_a_wrong_path_lists_close_ones(self, model, x):
        with pytest.raises(InputError, match=r"Sequential has no module 'body.2'\. Close: .*body\.1"):
            surgery.attach(model, "body.2", make("remove"))
        with pytest.raises(InputError, match=r"no module 'zzz'\. It has first, body, body\.0, body\.1, last\."):
            surgery.attach(model, "zzz", make("remove"))
        nested = nn.ModuleDict({"encoder": nn.ModuleDict({"layer": nn.ModuleList([nn.Identity()] * 30)})})
        with pytest.raises(InputError, match=r"Close: encoder\.layer\.5"):
            surgery.attach(nested, "layer.5", make("remove"))
        with surgery.attach(model, "body.1", make("remove")):  # control
            model(x)

    def test_a_module_or_a_removal_in_place_of_the_name(self, model, x):
        with pytest.raises(InputError, match=r"for the name it got Tanh\. That module is called 'body\.1'\."):
            surgery.attach(model, model.body[1], make("remove"))
        with pytest.raises(InputError, match=r"in this order; for the name it got AffineMap\. model\.named_modules"):
            surgery.attach(model, make("remove"), "body.1")
        for other in (None, 1, nn.Linear(2, 2)):
            with pytest.raises(InputError, match="for the name"):
                surgery.attach(model, other, make("remove"))
        with surgery.attach(model, "body.1", make("remove")):  # control
            model(x)

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


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_an_encoder_are_refused_with_the_way_out():
    padded = torch.tensor([[False, False, True]] * 2)
    for nested in (True, False):
        layer = nn.TransformerEncoderLayer(D, 2, 8, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
        with torch.no_grad(), surgery.attach(encoder, "layers.0", make("remove")):
            if nested:
                with pytest.raises(InputError, match=r"nested tensor.*pass enable_nested_tensor=False"):
                    encoder(torch.randn(2, 3, D), src_key_padding_mask=padded)
            else:  # the control
                assert encoder(torch.randn(2, 3, D), src_key_padding_mask=padded).shape == (2, 3, D)
