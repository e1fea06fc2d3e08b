# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
"""Rows in tensors: the contract, what travels, how exact sums are, and that fits do not care where their rows are."""

import warnings
from functools import partial

import array_api_compat.torch
import numpy as np
import pytest
import torch

from tests.probing import quick_probes
from tests.rows.contract import D, N, RowSourceContract
from unspur import (
    AFR,
    DFR,
    ERM,
    INLP,
    JSE,
    JTT,
    LEACE,
    RLACE,
    SAL,
    SGD,
    SPLINCE,
    SUBG,
    AffineMap,
    GroupDRO,
    GroupWeighted,
)
from unspur._arrays import by_rows, exact_products, is_tensor, to_numpy
from unspur.clusters import row_hashes
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotFiniteError
from unspur.rows import MemoryRows, RowLabels, Weighting, backends, rows_of
from unspur.rows.torch import TorchRows
from unspur.solvers.held_out_losses import (
    ColumnScore,
    FoldScore,
    HeldOutLosses,
    LeaveOneOut,
    ScalarLoss,
    ScalarModel,
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
    def make(self, z, columns, tmp_path):
        return TorchRows(torch.tensor(z), columns)


class TestTorchRowsInTinyBlocks(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return TorchRows(torch.tensor(z), columns, block_rows=3)


class TestStridedTorchRows(RowSourceContract):
    def make(self, z, columns, tmp_path):
        wide = torch.full((2 * len(z), 3 * z.shape[1]), torch.nan, dtype=torch.tensor(z).dtype)
        wide[1::2, ::3] = torch.tensor(z)
        return TorchRows(wide[1::2, ::3], columns, block_rows=10)


@on_a_gpu
class TestRowsOnAGPU(RowSourceContract):
    def make(self, z, columns, tmp_path):
        return TorchRows(torch.tensor(z, device="cuda"), columns)


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
MODEL = ScalarModel(
    np.array([1.0, -2.0]), np.array([0.2, 0.1]), FoldScore((3, 0), FOLDS), Standardisation(BOTH + 0.1, BOTH + 1.0), BOTH
)
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
    "score moments": ScoreMoments(FoldScore((2,), FOLDS), BOTH, WEIGHTING),
    "many scores": ScoreMoments(FoldScore((0, 1, 2, 3), 1), np.array([0, 1, 1, 0]), WEIGHTING),
    "scalar loss": ScalarLoss(BOTH + 1.0, BOTH - 0.5, FoldScore((0,), FOLDS), MODEL.standardise, BOTH, WEIGHTING),
    "scalar loss by group": ScalarLoss(
        BOTH + 1.0, BOTH - 0.5, ColumnScore(1, 2), MODEL.standardise, BOTH, WEIGHTING, by_group=True
    ),
    "held out": HeldOutLosses(MODEL, rng.uniform(size=(2, 2))),
    "one fold": HeldOutLosses(MODEL, rng.uniform(size=(2, 2)), 2),
    "leave one out": HeldOutLosses(
        ScalarModel(
            BOTH + 1.0,
            BOTH - 0.5,
            FoldScore((0,), FOLDS),
            MODEL.standardise,
            BOTH,
            LeaveOneOut(WEIGHTING, np.full(4, 300.0), DERIVATIVES, DERIVATIVES.sum(axis=0)),
        ),
        np.full((2, 2), 0.7),
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("of_rows", [FoldScore((0,), FOLDS), MODEL.losses])
def test_one_number_a_row_comes_to_the_host_in_the_order_of_the_rows(of_rows, device):
    def statistic(block):
        return [of_rows(block)]

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
    """Errors against float64 on the same rows: 1e-6 in loss and gradient, of 20,000 rows.

    A sum in half precision itself would end at 2048 or 256, where adding one changes nothing.
    """
    n, d = 20_000, 40
    draw = np.random.default_rng(4)
    columns = RowLabels.of(draw.integers(0, 2, n), draw.integers(0, 2, n))
    z = torch.tensor(draw.standard_normal((n, d)) + 0.5, device=device).to(kind)
    statistic = LogisticLosses(draw.standard_normal((1, 2, d)), np.zeros((1, 2)), BOTH, np.ones((1, 4)), np.zeros(d))
    exact = TorchRows(z.double(), columns).sum(statistic)
    found = TorchRows(z, columns).sum(statistic)
    np.testing.assert_allclose(found[..., 0], exact[..., 0], rtol=1e-6)
    np.testing.assert_allclose(found[..., 1:], exact[..., 1:], rtol=0, atol=1e-6 * np.abs(exact[..., 1:]).max())
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


@pytest.fixture(params=[(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=["float32", "bfloat16"])
def kind(request):
    return request.param


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """A device; float32 rows of the host are served as those of a device would be."""
    monkeypatch.setattr(backends, "_numpy_sees", lambda _: False)
    return request.param


def largest(found: Subspace, expected: Subspace) -> float:
    assert found.dim == expected.dim
    return float(found.angles(expected).max(initial=0.0))


REMOVERS = {
    "JSE": lambda: JSE(random_state=0, penalty=0.01),
    "JSE, one fold": lambda: JSE(random_state=0, cv=0.2),
    "JSE, scores": lambda: JSE(random_state=0, cv=0.2, metric=1.0, penalty=0.1),
    "JSE, SGD": lambda: JSE(solver=SGD(max_epochs=5), random_state=0, cv=0.2, penalty=1e-3, max_spurious=1),
    "INLP": lambda: INLP(random_state=0, cv=0.2, max_directions=2),
    "RLACE": RLACE,
    "LEACE": LEACE,
    "SAL": SAL,
    "SPLINCE": SPLINCE,
}


@pytest.mark.parametrize("name", REMOVERS)
def test_removers_find_in_a_tensor_what_they_find_in_float64(name, kind, device):
    dtype, tolerance = kind
    z = torch.tensor(TOY.Z, dtype=dtype, device=device)
    labels = [torch.tensor(label, device=device) for label in (TOY.y, TOY.concept)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a search that was told to be short
        here = REMOVERS[name]().fit(TOY.Z, TOY.y, concept=TOY.concept)
        there = REMOVERS[name]().fit(z, labels[0], concept=labels[1], sample_weight=torch.ones(len(z), device=device))
    assert here.spurious_.dim
    assert largest(there.spurious_, here.spurious_) <= tolerance
    assert largest(there.main_, here.main_) <= tolerance
    clean = there.transform(z)
    assert (clean.dtype, clean.device, clean.shape) == (z.dtype, z.device, z.shape)
    expected = there.removal_(z.double().cpu().numpy())
    assert np.abs(to_numpy(clean.double()) - expected).max() < (2e-6 if dtype == torch.float32 else 0.05)
    assert np.abs(expected - TOY.Z).max() > 0.1


def test_validation_rows_may_be_a_tensor(kind, device):
    dtype, tolerance = kind
    found = [
        JSE(penalty=0.1).fit(
            make(TOY.Z), TOY.y, concept=TOY.concept, X_val=make(JUDGES.Z), y_val=JUDGES.y, concept_val=JUDGES.concept
        )
        for make in (np.asarray, lambda z: torch.tensor(z, dtype=dtype, device=device))
    ]
    assert largest(found[1].spurious_, found[0].spurious_) <= tolerance


def test_leace_goes_on_with_tensors(kind, device):
    dtype, tolerance = kind
    z = torch.tensor(TOY.Z, dtype=dtype, device=device)
    concept = torch.tensor(TOY.concept, device=device)
    parts = LEACE().partial_fit(z[:300], concept=concept[:300]).partial_fit(z[300:], concept=concept[300:])
    assert largest(parts.spurious_, LEACE().fit(TOY.Z, concept=TOY.concept).spurious_) <= tolerance


HEADS = {
    "ERM": ERM,
    "group-weighted": GroupWeighted,
    "SUBG": SUBG,
    "group DRO": GroupDRO,
    "JTT": JTT,
    "DFR": lambda **given: DFR(n_draws=2, **given),
    "AFR": AFR,
    "ERM, SGD": lambda **given: ERM(solver=SGD(max_epochs=3), **given),
}


@pytest.mark.parametrize("labels", [TOY.y, THREE], ids=["two classes", "three classes"])
@pytest.mark.parametrize("name", HEADS)
def test_heads_find_in_a_tensor_what_they_find_in_float64(name, labels, kind, device):
    dtype, tolerance = kind
    z = torch.tensor(TOY.Z, dtype=dtype, device=device)
    y, concept = (torch.tensor(values, device=device) for values in (labels, TOY.concept))
    here = HEADS[name](random_state=0).fit(TOY.Z, labels, concept=TOY.concept)
    there = HEADS[name](random_state=0).fit(z, y, concept=concept)
    assert np.abs(there.coef_ - here.coef_).max() <= tolerance * np.abs(here.coef_).max()
    scores, odds, logs = there.decision_function(z), there.predict_proba(z), there.predict_log_proba(z)
    for given in (scores, odds, logs):
        assert (given.dtype, given.device) == (torch.float32, z.device)
    plain = z.double().cpu().numpy()
    np.testing.assert_allclose(to_numpy(scores), there.decision_function(plain), atol=2e-5)
    np.testing.assert_allclose(to_numpy(odds), there.predict_proba(plain), atol=2e-6)
    np.testing.assert_allclose(to_numpy(logs), there.predict_log_proba(plain), atol=2e-5)
    np.testing.assert_array_equal(there.predict(z), there.predict(plain))
    assert there.score(z, y) == there.score(plain, labels) > 0.6


class TestResults:
    def test_integers_become_float64_as_they_do_in_arrays(self):
        z = np.random.default_rng(6).integers(-9, 9, (200, 5))
        concept = z[:, 0] + z[:, 1] > 0
        here = LEACE().fit(z, concept=concept)
        there = LEACE().fit(torch.tensor(z), concept=torch.tensor(concept))
        clean = there.transform(torch.tensor(z))
        assert clean.dtype == torch.float64
        np.testing.assert_allclose(clean.numpy(), here.transform(z), atol=1e-12)

    def test_faults_and_other_widths_are_refused_as_in_arrays(self):
        leace = LEACE().fit(TOY.Z, concept=TOY.concept)
        z = torch.tensor(TOY.Z).bfloat16()
        with pytest.raises(InputError, match="19 features"):
            leace.transform(z[:, 1:])
        z[5, 3] = torch.nan
        with pytest.raises(NotFiniteError, match="1 NaN in column 3"):
            leace.transform(z)

    def test_a_large_half_precision_tensor_is_mapped_block_by_block(self, monkeypatch):
        z = torch.tensor(TOY.Z).half()
        sizes = []

        def copied(rows):
            sizes.append(len(rows))
            return rows

        assert torch.equal(by_rows(copied, z, torch.empty_like(z), numbers=100 * z.shape[1]), z)
        assert sizes == [100] * 8

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
        assert backends.backend_of(torch.tensor(Z).as_subclass(Wrapped)) == "torch"
        assert backends.backend_of(torch.nn.Linear(2, 2)) == "memory"

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
@pytest.mark.parametrize("models", [1, 6])
def test_half_products_of_a_gpu_keep_the_digits_of_weights_and_residuals(kind, models, monkeypatch):
    """Errors against float64 on the same rows: 1e-6 in loss and gradient; weights of tiny rows are not lost."""
    n, d, draw = 5000, 40, np.random.default_rng(4)
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
        np.testing.assert_allclose(sums[..., 0], exact[..., 0], rtol=1e-6)
        np.testing.assert_allclose(sums[..., 1:], exact[..., 1:], rtol=0, atol=1e-6 * np.abs(exact[..., 1:]).max())
    softmax = SoftmaxLoss(LinearLogits(weights[0], np.zeros(2), np.zeros(d)), Weighting(np.ones(4)))
    np.testing.assert_allclose(
        TorchRows(z, columns).sum(softmax), TorchRows(z.double(), columns).sum(softmax), rtol=1e-5, atol=1e-3
    )
