# ruff: noqa: ARG002 — every source is made with a folder, whether it needs one or not
"""Rows in tensors: the contract, what travels, how exact sums are, and that fits do not care where their rows are."""

import importlib
import importlib.util
import warnings
from types import ModuleType

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

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
    _arrays,
)
from unspur._arrays import by_rows, exact_products, is_tensor, result_to_host, to_numpy
from unspur.clusters import row_hashes
from unspur.datasets import make_toy
from unspur.exceptions import InputError, NotFiniteError
from unspur.rows import MemoryRows, RowLabels, Weighting, backends, rows_of
from unspur.rows.torch import TorchRows
from unspur.solvers import fused
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
# Triton chooses between compiler and interpreter when it is imported, and other tests may import it first.
if importlib.util.find_spec("triton") is not None and not torch.cuda.is_available():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        importlib.import_module("triton.language")
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


class Travels(TorchFunctionMode):
    """Counts what makes the host wait for a device: transfers to it, and tests of values that are on it."""

    WAITING = (
        "cpu",
        "item",
        "tolist",
        "numpy",
        "nonzero",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__contains__",
    )

    def __init__(self):
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in self.WAITING:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


def waits(work) -> list[str]:
    with Travels() as mode:
        work()
    return [name for name in mode.seen if name != "numpy"]  # of what is on the host already


@pytest.mark.parametrize("name", STATISTICS)
def test_a_sum_waits_for_the_device_once(name):
    rows = TorchRows(torch.tensor(Z), COLUMNS, block_rows=100)
    rows.sum(STATISTICS[name])  # columns are in place
    assert waits(lambda: rows.sum(STATISTICS[name])) == ["cpu"]


def test_statistics_that_wait_in_every_block_would_be_seen():
    rows = TorchRows(torch.tensor(Z), COLUMNS, block_rows=100)
    assert waits(lambda: rows.sum(lambda block: float(block.z.sum()))).count("__float__") == 7
    assert waits(lambda: rows.sum(lambda block: 1.0 if (block.z.sum() > 0) else 0.0)).count("__bool__") == 7


def test_a_projection_waits_once_however_many_blocks_it_has():
    rows = TorchRows(torch.tensor(Z), COLUMNS, block_rows=100)
    assert waits(lambda: rows.project(np.eye(WIDTH)[:, :2], CENTRE)) == ["__bool__"]


def test_minibatches_are_those_of_rows_in_memory():
    here, there = MemoryRows(Z, COLUMNS), TorchRows(torch.tensor(Z), COLUMNS)
    batches = [rows.minibatches(33, np.random.default_rng(5), WEIGHTING) for rows in (here, there)]
    for a, b in zip(*batches, strict=True):
        for name in ("z", "targets", "cell", "weight"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_results_of_any_shape_come_to_the_host_in_one_piece():
    value = ([torch.arange(3), torch.tensor([True, False])], torch.tensor(2.5), 7, np.ones(2), torch.ones(2, 2).half())
    with Travels() as mode:
        found = result_to_host(value)
    assert mode.seen.count("cpu") == 1
    assert [part.dtype for part in found[0]] == [np.int64, bool]
    assert found[0][0].tolist() == [0, 1, 2]
    assert (found[1], type(found[1]), found[2]) == (2.5, np.float64, 7)
    assert found[4].dtype == np.float64
    assert found[4].shape == (2, 2)


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


class Foreign:
    """An array of another library on a device: it speaks DLPack, and NumPy must not look at it."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.shape, self.dtype, self.ndim = tuple(tensor.shape), tensor.dtype, tensor.ndim

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self, api_version=None):
        return FOREIGN

    def __array__(self, *given, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def __len__(self):
        return len(self.tensor)


FOREIGN = ModuleType("foreign")
FOREIGN.from_dlpack = lambda other: Foreign(torch.from_dlpack(other))


class TestArraysOfOtherLibraries:
    @pytest.fixture(params=DEVICES)
    def foreign(self, request, monkeypatch):
        """Makes them, on a GPU or on the host, which then passes for one."""
        monkeypatch.setattr(_arrays, "DLPACK_CUDA", int(torch.zeros(1, device=request.param).__dlpack_device__()[0]))
        return lambda values: Foreign(torch.tensor(values, device=request.param))

    def test_rows_labels_and_results_stay_with_their_library(self, foreign):
        z, y, concept = (foreign(values) for values in (TOY.Z, TOY.y, TOY.concept))
        for method in (LEACE(), JSE(cv=0.2, penalty=0.01, random_state=0)):
            expected = method.fit(TOY.Z, TOY.y, concept=TOY.concept).transform(TOY.Z)
            clean = method.fit(z, y, concept=concept, sample_weight=foreign(np.ones(800))).transform(z)
            assert type(clean) is Foreign
            assert clean.tensor.device == z.tensor.device
            np.testing.assert_allclose(to_numpy(clean), expected, rtol=0, atol=1e-9)
        held_out = {"X_val": foreign(JUDGES.Z), "y_val": foreign(JUDGES.y), "concept_val": foreign(JUDGES.concept)}
        assert JSE(penalty=0.1).fit(z, y, concept=concept, **held_out).spurious_.dim
        assert method.certificate(*held_out.values()).rows == 500

    def test_heads_answer_in_the_library_of_the_rows_and_classes_in_numpy(self, foreign):
        z, head = foreign(TOY.Z), ERM().fit(TOY.Z, TOY.y)
        assert np.abs(ERM().fit(z, foreign(TOY.y)).coef_ - head.coef_).max() < 1e-6
        for name in ("decision_function", "predict_proba"):
            answer = getattr(head, name)(z)
            assert type(answer) is Foreign
            np.testing.assert_allclose(to_numpy(answer), getattr(head, name)(TOY.Z), rtol=0, atol=1e-9)
        np.testing.assert_array_equal(head.predict(z), head.predict(TOY.Z))
        assert head.score(z, foreign(TOY.y)) == head.score(TOY.Z, TOY.y)

    def test_memory_is_shared(self, foreign):
        z = foreign(Z)
        assert _arrays.as_tensor(z).data_ptr() == z.tensor.data_ptr()

    def test_arrays_on_the_host_are_left_to_numpy(self):
        z = Foreign(torch.tensor(TOY.Z))
        assert _arrays.as_tensor(z) is z
        with pytest.raises(TypeError, match="not allowed"):
            LEACE().fit(z, concept=TOY.concept)


class TestFusedKernel:
    @pytest.fixture
    def place(self, monkeypatch):
        """Where the kernel runs: on a GPU, else step by step in Triton's interpreter."""
        if importlib.util.find_spec("triton") is None:
            pytest.skip("NO TRITON HERE: the fused kernel was not checked against the plain path")
        if torch.cuda.is_available():
            return "cuda"
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        return "cpu"

    def both(self, statistic, z, columns, setting=None):
        block = TorchRows(z, columns)._beside.block(z, slice(None))
        exact = statistic(columns.block(to_numpy(z.double()), slice(None)))
        return fused.fused_losses(statistic, block, setting), exact

    @pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize(("n", "d"), [(1, 1), (37, 5), (19, 40), (5, 300)])
    def test_gives_what_the_plain_path_gives_in_float64(self, place, n, d, kind):
        draw = np.random.default_rng(n)
        columns = RowLabels.of(
            draw.integers(0, 2, n), draw.integers(0, 2, n), draw.uniform(0, 1, n), draw.integers(0, 3, n)
        )
        z = torch.tensor(draw.standard_normal((n, d)), device=place).to(kind)
        for t, q in ((1, 2), (3, 1)):
            statistic = LogisticLosses(
                draw.standard_normal((t, q, d)),
                draw.standard_normal((t, q)),
                BOTH[-q:],
                draw.uniform(0, 1, (t, 12)),
                draw.standard_normal(d),
            )
            for setting in (fused.Setting.of(d), fused.Setting(2, 4, 1, 1, False)):
                found, exact = self.both(statistic, z, columns, setting)
                assert found.shape == (t, q, 2 + d)
                np.testing.assert_allclose(found, exact, rtol=0, atol=2e-6 * np.abs(exact).max())

    @pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    @pytest.mark.parametrize(("n", "d"), [(1, 1), (37, 5), (5000, 300)])
    @pytest.mark.parametrize(("t", "q"), [(6, 2), (9, 2), (3, 1)])
    def test_many_lines_are_those_of_the_plain_path_in_float64(self, place, n, d, t, q, kind):
        if place == "cpu" and (kind == torch.bfloat16 or n > 100):
            pytest.skip("Triton's interpreter has no products of bfloat16, and is slow")
        draw = np.random.default_rng(n)
        columns = RowLabels.of(
            draw.integers(0, 2, n), draw.integers(0, 2, n), draw.uniform(0, 1, n), draw.integers(0, 3, n)
        )
        z = torch.tensor(draw.standard_normal((n, d)), device=place).to(kind)
        statistic = LogisticLosses(
            draw.standard_normal((t, q, d)) / np.sqrt(d),
            draw.standard_normal((t, q)),
            BOTH[-q:],
            draw.uniform(0, 1, (t, 12)),
            draw.standard_normal(d),
        )
        found, exact = self.both(statistic, z, columns)
        assert found.shape == (t, q, 2 + d)
        tolerance = 3e-5 if kind == torch.bfloat16 else 3e-6
        np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance * np.abs(exact).max())

    def test_far_logits_neither_overflow_nor_become_nan(self, place):
        z = torch.tensor([[-1e4], [-100.0], [100.0], [1e4]], device=place)
        columns = RowLabels.of([0, 1, 0, 1], [1, 0, 0, 1])
        statistic = LogisticLosses(np.ones((1, 2, 1)), np.zeros((1, 2)), BOTH, np.ones((1, 4)), np.zeros(1))
        found, exact = self.both(statistic, z, columns)
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-30)

    def test_sums_use_it(self, place, monkeypatch):
        seen = []
        monkeypatch.setattr(fused, "launched", lambda *given: seen.append(given) or torch.zeros(2, 2 + WIDTH))
        TorchRows(torch.tensor(Z, device=place).float(), COLUMNS).sum(lines(1))
        assert len(seen) == 1

    @pytest.mark.parametrize(
        ("statistic", "make"),
        [
            (lines(1), lambda z: z),
            (lines(1, centred=True), lambda z: z.float()),
            (lines(1), lambda z: z.float().T.contiguous().T),
        ],
        ids=["float64", "centred", "columns first"],
    )
    def test_declines_what_it_is_not_made_for(self, place, statistic, make):
        z = make(torch.tensor(Z, device=place))
        assert self.both(statistic, z, COLUMNS)[0] is None
        assert self.both(lines(1), torch.tensor(Z, device=place).float(), COLUMNS)[0] is not None

    def test_without_triton_sums_take_the_plain_path(self, monkeypatch):
        monkeypatch.setattr(fused, "_failed", None)
        monkeypatch.setattr(fused, "runs_on", lambda _: True)
        monkeypatch.setitem(__import__("sys").modules, "unspur.solvers.fused_kernel", None)
        rows = TorchRows(torch.tensor(Z).float(), COLUMNS)
        np.testing.assert_allclose(rows.sum(lines(1)), MemoryRows(Z, COLUMNS).sum(lines(1)), rtol=1e-4, atol=1e-3)
        assert fused._failed == "triton is not installed"

    def test_a_kernel_that_cannot_be_run_is_said_once_and_replaced(self, monkeypatch):
        def broken(*given):
            raise RuntimeError("no compiler")

        monkeypatch.setattr(fused, "_failed", None)
        monkeypatch.setattr(fused, "runs_on", lambda _: True)
        monkeypatch.setattr(fused, "launched", broken)
        rows = TorchRows(torch.tensor(Z).float(), COLUMNS)
        with pytest.warns(fused.FusedWarning, match="no compiler"):
            first = rows.sum(lines(1))
        np.testing.assert_array_equal(rows.sum(lines(1)), first)

    @pytest.mark.parametrize(
        "error", [torch.cuda.OutOfMemoryError("no room"), RuntimeError("Triton Error [CUDA]: out of memory")], ids=repr
    )
    def test_a_device_that_is_full_for_a_moment_does_not_end_its_use(self, monkeypatch, error):
        def full(*given):
            raise error

        monkeypatch.setattr(fused, "_failed", None)
        monkeypatch.setattr(fused, "runs_on", lambda _: True)
        monkeypatch.setattr(fused, "launched", full)
        rows = TorchRows(torch.tensor(Z).float(), COLUMNS)
        with pytest.warns(fused.FusedWarning, match="No memory is left on the device"):
            found = rows.sum(lines(1))
        np.testing.assert_allclose(found, MemoryRows(Z, COLUMNS).sum(lines(1)), rtol=1e-4, atol=1e-3)
        seen = []
        monkeypatch.setattr(fused, "launched", lambda *given: seen.append(given) or torch.zeros(2, 2 + WIDTH))
        rows.sum(lines(1))
        assert seen

    @pytest.mark.parametrize("width", [1, 20, 128, 300, 512, 640, 768, 1000, 1024, 1536, 4096])
    def test_pieces_hold_every_column_and_are_powers_of_two(self, width):
        setting = fused.Setting.of(width)
        head, tail = setting.pieces(width)
        assert head + tail >= width
        for number in (head, tail or 1, setting.rows, setting.warps):
            assert number & (number - 1) == 0
        assert head + tail <= max(2 * width, 32)
