# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
"""Rows in tensors: the contract, and how exact sums are."""

from dataclasses import replace
from functools import partial

import array_api_compat.torch
import numpy as np
import pytest
import torch

from tests.probing import quick_probes
from tests.rows.contract import D, N, RowSourceContract
from unspur import LEACE, AffineMap
from unspur._arrays import exact_products, is_tensor, to_numpy
from unspur.clusters import row_hashes
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotFiniteError
from unspur.rows import MemoryRows, RowLabels, Weighting, backend_of, rows_of
from unspur.rows.torch import TorchRows
from unspur.solvers.held_out_losses import (
    HeldOutLosses,
    LeaveOneOut,
    ScalarFit,
    ScalarLoss,
    ScoreMoments,
    Standardisation,
)
from unspur.solvers.logistic import CellLosses, LinearLogits, LogisticLosses, SoftmaxLoss, loss_and_probability
from unspur.solvers.statistics import CellCounts, Covariances, Moments, count_not_finite
from unspur.subspace import Subspace

NO_GPU = "NO GPU HERE: what is promised of tensors on a GPU was not checked"
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
DEVICES = ["cpu", pytest.param("cuda", marks=on_a_gpu)]


class TestTorchRows(RowSourceContract):
    @pytest.fixture(autouse=True, params=DEVICES)
    def _device(self, request):
        self.device = request.param

    def make(self, z, columns, tmp_path):
        return TorchRows(torch.tensor(z, device=self.device), columns)


class TestStridedTorchRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = torch.full((2 * len(z), 3 * z.shape[1]), torch.nan, dtype=torch.tensor(z).dtype)
        wide[1::2, ::3] = torch.tensor(z)
        return TorchRows(wide[1::2, ::3], columns, block_rows=10)


class TestHalfPrecisionRows(RowSourceContract):
    """Blocks are float32, which holds every value of both."""

    @pytest.fixture(params=[torch.bfloat16, torch.float16], ids=str)
    def kind(self, request):
        return request.param

    @pytest.fixture
    def z(self, kind):
        z = np.random.default_rng(0).standard_normal((N, D))
        z[:, 0] = np.arange(N)
        return torch.tensor(z).to(kind).float().numpy()

    @pytest.fixture(autouse=True)
    def _kind(self, kind):
        self.kind_of_rows = kind

    def make(self, z, columns, tmp_path):
        return TorchRows(torch.tensor(z).to(self.kind_of_rows), columns, block_rows=10)

    # At an offset of 1e4 neighbouring numbers are 8 and 64 apart: no signal is left that could be lost.
    test_projection_keeps_the_signal_behind_a_large_common_offset = None


rng = np.random.default_rng(1)
ROWS, WIDTH, FOLDS = 700, 6, 3
Z = rng.standard_normal((ROWS, WIDTH)) + 0.3
COLUMNS = RowLabels.of(
    rng.integers(0, 2, ROWS), rng.integers(0, 2, ROWS), rng.uniform(0, 2, ROWS), rng.integers(0, FOLDS + 1, ROWS)
)
WEIGHTING = Weighting(rng.uniform(0, 1, 4 * (FOLDS + 1)))
BOTH = np.array([0, 1])
CENTRE = 0.1 * rng.standard_normal(WIDTH)
SCALE = Standardisation(BOTH + 0.1, BOTH + 1.0)
DERIVATIVES = np.array([1.0, -1.0, 300.0, 20.0, 250.0])[:, None] * rng.uniform(1, 2, (4, 1, 2))


def lines(t: int = 2, *, centred: bool = False, width: int = WIDTH) -> LogisticLosses:
    draw = np.random.default_rng(2)
    return LogisticLosses(
        draw.standard_normal((t, 2, width)),
        draw.standard_normal((t, 2)),
        BOTH,
        draw.uniform(0, 1, (t, 4 * (FOLDS + 1))),
        0.1 * draw.standard_normal(width),
        centred,
    )


def logits(k: int, **options: bool) -> LinearLogits:
    draw = np.random.default_rng(3)
    return LinearLogits(draw.standard_normal((k, WIDTH)), draw.standard_normal(k), CENTRE, **options)


STATISTICS = {
    "losses": lines(),
    "losses, centred": lines(centred=True),
    "losses of one label": LogisticLosses(
        np.ones((1, 1, WIDTH)), np.ones((1, 1)), np.array([1]), WEIGHTING.factor[None], CENTRE
    ),
    "pair": LogisticLosses.of_one(rng.standard_normal((2, WIDTH)), np.ones(2), CENTRE, WEIGHTING),
    "one label": LogisticLosses.of_one(
        rng.standard_normal((1, WIDTH)), np.ones(1), CENTRE, WEIGHTING, centred=True, only=1
    ),
    "two classes": SoftmaxLoss(logits(1), WEIGHTING),
    "three classes": SoftmaxLoss(logits(3, centred=True, in_float64=True), WEIGHTING),
    "cells": CellLosses(logits(1), 4 * (FOLDS + 1)),
}
DERIVED = LeaveOneOut(WEIGHTING, np.full(4, 300.0), DERIVATIVES, DERIVATIVES.sum(axis=0))
HELD_OUT = HeldOutLosses(
    ScalarFit(BOTH + 1.0, BOTH - 0.5, BOTH, BOTH, SCALE, converged=True), DERIVED, rng.uniform(size=(2, 2))
)
#: Of rows with a score for either label, or one for both.
OF_SCORES = {
    "score moments": ScoreMoments(WEIGHTING),
    "scalar loss": ScalarLoss(BOTH + 1.0, BOTH - 0.5, SCALE, WEIGHTING),
    "scalar loss by group": ScalarLoss(BOTH + 1.0, BOTH - 0.5, SCALE, WEIGHTING, by_group=True),
    "held out": HELD_OUT,
}
STATISTICS |= {
    f"{name}, {k}": lambda block, k=k, of=of: of(replace(block, z=block.z[:, :k]))
    for name, of in OF_SCORES.items()
    for k in (1, 2)
}


@pytest.mark.parametrize("device", DEVICES)
def test_one_number_a_row_comes_to_the_host_in_the_order_of_the_rows(device):
    def statistic(block):
        return [HELD_OUT.losses(replace(block, z=block.z[:, :2]))]

    here = np.concatenate(MemoryRows(Z, COLUMNS).sum(statistic), axis=-1)
    there = np.concatenate(TorchRows(torch.tensor(Z, device=device), COLUMNS, block_rows=256).sum(statistic), axis=-1)
    assert here.shape[-1] == len(Z)
    np.testing.assert_allclose(there, here, rtol=1e-5)


def numbers(value) -> list[np.ndarray]:
    """What a sum gave, as arrays."""
    return (
        [part for name in value.__dataclass_fields__ if not isinstance(part := getattr(value, name), float | tuple)]
        if hasattr(value, "__dataclass_fields__")
        else [value]
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_gives_for_tensors_what_it_gives_for_arrays(name, device):
    here = MemoryRows(Z, COLUMNS).sum(STATISTICS[name])
    there = TorchRows(torch.tensor(Z, device=device), COLUMNS, block_rows=256).sum(STATISTICS[name])
    assert type(there) is type(here)
    for a, b in zip(numbers(here), numbers(there), strict=True):
        assert type(b) is np.ndarray
        assert b.dtype == np.float64
        np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11 * np.abs(a).max())


@pytest.mark.parametrize("device", DEVICES)
def test_moments_counts_and_faults_are_those_of_arrays(device):
    z = Z + 100.0
    here, there = MemoryRows(z, COLUMNS), TorchRows(torch.tensor(z, device=device), COLUMNS, block_rows=256)
    for of in (lambda rows: Moments.of(rows, WEIGHTING), Covariances.of, CellCounts.of):
        for a, b in zip(numbers(of(here)), numbers(of(there)), strict=True):
            if not isinstance(a, tuple):
                np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11 * np.abs(a).max())
    z[[3, 500, 501], [1, 2, 2]] = np.nan, np.inf, -np.inf
    faults = count_not_finite(TorchRows(torch.tensor(z, device=device), COLUMNS, block_rows=256))
    np.testing.assert_array_equal(faults[:, 1:3], [[1, 0], [0, 2]])
    assert faults.sum() == 3
    assert not count_not_finite(there).any()


def test_large_logits_neither_overflow_nor_lose_their_digits():
    t = np.array([-1000.0, -400.0, -40.0, -1e-3, 0.0, 1e-3, 25.0, 400.0, 1000.0])
    for target in (0.0, 1.0):
        here, there = (loss_and_probability(x, target) for x in (t, torch.tensor(t)))
        for a, b in zip(here, there, strict=True):
            assert np.all(np.abs(b.numpy() - a) <= 1e-13 * np.maximum(1, np.abs(t)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_sums_of_narrow_rows_are_added_up_accurately(kind, device):
    """Errors against float64 on the same rows: 5e-6 in loss and gradient, of 20,000 rows.

    A sum in half precision itself would end at 2048 or 256, where adding one changes nothing.
    """
    n, d = 20_000, 40
    draw = np.random.default_rng(4)
    columns = RowLabels.of(draw.integers(0, 2, n), draw.integers(0, 2, n))
    z = torch.tensor(draw.standard_normal((n, d)) + 0.5, device=device).to(kind)
    statistic = LogisticLosses(draw.standard_normal((1, 2, d)), np.zeros((1, 2)), BOTH, np.ones((1, 4)), np.zeros(d))
    exact = TorchRows(z.double(), columns).sum(statistic)
    found = TorchRows(z, columns).sum(statistic)
    np.testing.assert_allclose(found[..., 0], exact[..., 0], rtol=5e-6)
    np.testing.assert_allclose(found[..., 1:], exact[..., 1:], rtol=0, atol=5e-6 * np.abs(exact[..., 1:]).max())
    if kind is not torch.float32:
        assert abs(float(z[:, 0].cumsum(0)[-1]) / float(z[:, 0].double().sum()) - 1) > 1e-4 or device == "cuda"
    moments = Moments.of(TorchRows(z, columns), Weighting(np.ones(4)), in_float64=False)
    exactly = Moments.of(TorchRows(z.double(), columns), Weighting(np.ones(4)))
    np.testing.assert_allclose(moments.second, exactly.second, atol=2e-6)


class TestPrecisionOfProducts:
    @pytest.fixture
    def fast(self):
        torch.set_float32_matmul_precision("medium")
        yield
        torch.set_float32_matmul_precision("highest")

    @staticmethod
    def settings():
        return [backend.matmul.fp32_precision for backend in (torch.backends.cuda, torch.backends.mkldnn)]

    def test_what_a_user_allows_networks_is_not_allowed_in_sums_and_allowed_again_after(self, fast):
        before = self.settings()
        assert "ieee" not in before  # control: products would be short of digits
        inside = TorchRows(torch.tensor(Z), COLUMNS).sum(lambda _: [tuple(self.settings())])
        assert inside == [("ieee", "ieee")]
        assert self.settings() == before

    def test_setting_is_back_after_an_error(self, fast):
        before = self.settings()
        with pytest.raises(ZeroDivisionError), exact_products(torch.tensor(Z)):
            raise ZeroDivisionError
        assert self.settings() == before

    @on_a_gpu
    def test_products_on_a_gpu_keep_their_digits(self, fast):
        z = torch.randn(4096, 256, device="cuda")
        columns = RowLabels.of(np.zeros(4096), np.zeros(4096))
        exact = (z.double().T @ z.double()).cpu().numpy()
        found = TorchRows(z, columns).sum(lambda block: block.z.T @ block.z)
        assert np.abs(found - exact).max() < 1e-5 * exact.max()
        assert np.abs((z.T @ z).cpu().numpy() - exact).max() > 1e-5 * exact.max()


class TestChoice:
    def test_a_tensor_on_the_host_is_seen_by_numpy_where_it_is(self):
        z = torch.tensor(Z, requires_grad=True)
        rows = rows_of(z, COLUMNS)
        assert type(rows) is MemoryRows
        assert rows.sum(lambda block: int(np.shares_memory(block.z, z.detach().numpy()))) == 1

    def test_what_numpy_has_no_type_for_stays_a_tensor(self):
        rows = rows_of(torch.tensor(Z).bfloat16(), COLUMNS)
        assert type(rows) is TorchRows
        assert rows.dtype == np.float32

    def test_rows_that_do_not_go_with_their_labels_are_refused(self):
        with pytest.raises(InputError, match=r"\(5, 3\).* 700 labels"):
            TorchRows(torch.zeros(5, 3), COLUMNS)

    def test_rows_are_never_copied_as_a_whole(self):
        z = torch.tensor(Z)
        seen = TorchRows(z, COLUMNS, block_rows=100).sum(lambda block: [block.z.data_ptr() - z.data_ptr()])
        assert seen == [k * 100 * WIDTH * 8 for k in range(7)]


TOY = make_toy(800, rho=0.8, random_state=0)
JUDGES = make_toy(500, rho=0.8, random_state=1)
THREE = np.where(TOY.Z[:, 5] > 0.8, 2, TOY.y)


class TestResults:
    def test_faults_and_other_widths_are_refused_as_in_arrays(self):
        leace = LEACE().fit(TOY.Z, concept=TOY.concept)
        z = torch.tensor(TOY.Z).bfloat16()
        with pytest.raises(InputError, match="19 features"):
            leace.transform(z[:, 1:])
        z[5, 3] = torch.nan
        with pytest.raises(NotFiniteError, match="1 NaN in column 3"):
            leace.transform(z)

    @pytest.mark.parametrize("shape", [(20,), (3, 20), (2, 3, 20), (0, 20)])
    def test_maps_take_tensors_of_any_shape(self, shape):
        directions = np.random.default_rng(7).standard_normal((20, 3))
        x = np.random.default_rng(8).standard_normal(shape)
        for make in (AffineMap.removing, AffineMap.keeping):
            mapping = make(Subspace.spanned_by(directions), np.ones(20))
            image = mapping(torch.tensor(x))
            assert image.shape == shape
            np.testing.assert_allclose(image.numpy(), mapping(x), atol=1e-12)
        with pytest.raises(InputError, match="20 features"):
            mapping(torch.zeros(3, 19))

    @pytest.mark.parametrize("device", DEVICES)
    def test_rows_have_the_same_hashes_on_a_device(self, device, monkeypatch):
        z = np.random.default_rng(9).standard_normal((50, 7)) * 10.0 ** np.arange(-300, 330, 90)[:7]
        z[3, 2] = -0.0
        monkeypatch.setattr("unspur.clusters.DEVICE_BLOCK_SIZE", 70)
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            rows = torch.tensor(z).to(dtype)
            expected = row_hashes(rows.double().numpy())
            np.testing.assert_array_equal(row_hashes(rows.to(device)), expected)
        assert len(set(row_hashes(torch.tensor(z)))) == 50

    @pytest.mark.parametrize("device", DEVICES)
    @quick_probes()
    def test_a_certificate_is_measured_on_tensors_and_knows_the_rows_of_the_fit(self, device):
        z, judges = (torch.tensor(data.Z, device=device).bfloat16() for data in (TOY, JUDGES))
        leace = LEACE().fit(z, concept=torch.tensor(TOY.concept))
        labels = [torch.tensor(label, device=device) for label in (JUDGES.y, JUDGES.concept)]
        assert leace.certificate(judges, *labels).rows == 500
        with pytest.warns(UserWarning, match="800 of the 800 rows measured were used in the fit"):
            leace.certificate(z, torch.tensor(TOY.y), torch.tensor(TOY.concept))


class Wrapped(torch.Tensor):
    """A tensor of a class that torch does not have."""


class TestOtherClasses:
    def test_a_tensor_of_another_class_is_a_tensor(self):
        assert is_tensor(torch.tensor(Z).as_subclass(Wrapped))
        assert is_tensor(torch.nn.Parameter(torch.tensor(Z)))
        assert not is_tensor(torch.nn.Linear(2, 2))
        assert backend_of(torch.tensor(Z).as_subclass(Wrapped)) == "torch"
        assert backend_of(torch.nn.Linear(2, 2)) == "memory"

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
    def test_it_is_fitted_and_cleaned_as_any_other(self, dtype):
        z = torch.tensor(TOY.Z).to(dtype)
        plain, other = (LEACE().fit(rows, concept=TOY.concept) for rows in (z, z.as_subclass(Wrapped)))
        np.testing.assert_array_equal(other.removal_.matrix(), plain.removal_.matrix())
        clean = other.transform(z.as_subclass(Wrapped))
        assert isinstance(clean, Wrapped)
        assert torch.equal(clean.as_subclass(torch.Tensor), plain.transform(z))

    @pytest.mark.parametrize("output", ["pandas", "polars"])
    @pytest.mark.parametrize(("dtype", "kind"), [(torch.bfloat16, "float32"), (torch.float16, "float16")], ids=str)
    def test_data_frames_of_half_precision_are_asked_for_and_given(self, output, dtype, kind):
        if output == "polars":
            pytest.importorskip("polars")
        z = torch.tensor(TOY.Z).to(dtype)
        leace = LEACE().fit(z, concept=TOY.concept)
        expected = to_numpy(leace.transform(z))
        frame = leace.set_output(transform=output).transform(z)
        assert type(frame).__module__.startswith(output)
        assert {str(column).lower() for column in frame.dtypes} == {kind}
        np.testing.assert_array_equal(frame.to_numpy(), expected)


class HalfProducts:
    """Stands for the products of a GPU: half precision in, float32 out."""

    def __init__(self, monkeypatch):
        self.calls = 0
        for name in ("mm", "bmm"):
            monkeypatch.setattr(array_api_compat.torch, name, partial(self.product, getattr(torch, name)))
        monkeypatch.setattr("unspur.rows.torch.multiplies_halves", lambda *_: True)

    def product(self, plain, one, other, out_dtype=None):
        assert one.dtype == other.dtype
        self.calls += 1
        return plain(one.to(out_dtype), other.to(out_dtype))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("models", "n"), [(1, 5000), (6, 5120)])
def test_half_products_of_a_gpu_keep_the_digits_of_weights_and_residuals(kind, models, n, monkeypatch):
    """Errors against float64 on the same rows: 5e-6 in loss and gradient; weights of tiny rows are not lost."""
    d, draw = 40, np.random.default_rng(4)
    columns = RowLabels.of(draw.integers(0, 2, n), draw.integers(0, 2, n))
    z = torch.tensor(draw.standard_normal((n, d)) + 0.5).to(kind)
    weights = draw.standard_normal((models, 2, d)) * np.logspace(-9, 0, models)[:, None, None]
    statistic = LogisticLosses(weights, np.zeros((models, 2)), BOTH, np.full((models, 4), 1e-12), np.zeros(d))
    exact = TorchRows(z.double(), columns).sum(statistic)
    plain = TorchRows(z, columns).sum(statistic)
    products = HalfProducts(monkeypatch)
    found = TorchRows(z, columns).sum(statistic)
    assert products.calls
    for sums in (plain, found):
        np.testing.assert_allclose(sums[..., 0], exact[..., 0], rtol=5e-6)
        np.testing.assert_allclose(sums[..., 1:], exact[..., 1:], rtol=0, atol=5e-6 * np.abs(exact[..., 1:]).max())
    softmax = SoftmaxLoss(LinearLogits(weights[0], np.zeros(2), np.zeros(d)), Weighting(np.ones(4)))
    np.testing.assert_allclose(
        TorchRows(z, columns).sum(softmax), TorchRows(z.double(), columns).sum(softmax), rtol=1e-5, atol=1e-3
    )
