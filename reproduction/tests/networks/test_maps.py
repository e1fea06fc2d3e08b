"""Maps that are kept give Grad-CAM for any last layer, without the network."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("PIL")
pytest.importorskip("torch")

import torch
from PIL import Image
from safetensors.numpy import save

from reproduction.tests.networks.mapping import left_half, photographs
from reproduction.tests.networks.tiny import PREPARATION, TinyConv
from unspur import AffineMap, Subspace
from unspur.exceptions import ArtifactError, InputError
from unspur_paper.embedding.base import resize_and_crop
from unspur_paper.embedding.store import Reduction
from unspur_paper.experiments.fitting import LinearHead, Removal
from unspur_paper.experiments.gradcam import Layer
from unspur_paper.files import BusyError, hold
from unspur_paper.networks import maps as layout
from unspur_paper.networks.maps import onto_cells, opacity, read_maps, write_maps

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tiny():
    return TinyConv()


@pytest.fixture(scope="module")
def shown():
    return photographs()


@pytest.fixture(scope="module")
def reduction(tiny, shown):
    return Reduction.fit(tiny.rows(shown.images), 6)


@pytest.fixture
def written(tiny, shown, reduction, tmp_path):
    return write_maps(shown, range(5, 20), tiny, reduction, left_half, tmp_path, batch=4, progress=False)


def layer_and_parts():
    """A last layer after a removal, on six features."""
    rng = np.random.default_rng(1)
    spurious = Subspace.spanned_by(rng.standard_normal((6, 2)))
    removal = Removal(AffineMap.removing(spurious, rng.standard_normal(6)), spurious, Subspace.empty(6))
    return LinearHead(rng.standard_normal(6), 0.7), removal


def logit(x, head, removal, reduction):
    """The layer as it is used, in torch: centre, reduce, remove, weigh."""
    z = (x - torch.tensor(reduction.mean)) @ torch.tensor(reduction.components)
    # An affine map is its values at zero and at the unit vectors.
    start = removal.map(np.zeros((1, 6)))
    matrix = removal.map(np.eye(6)) - start
    return (z @ torch.tensor(matrix) + torch.tensor(start[0])) @ torch.tensor(head.weights) + head.bias


def test_a_map_is_grad_cam_by_automatic_differentiation(tiny, shown, reduction, written):
    head, removal = layer_and_parts()
    layer = Layer.of(head, removal, None)
    ours = written.signed(layer.weights)
    inputs = tiny.batch([tiny.prepare(shown[i]) for i in range(5, 20)])
    features = tiny.feature_maps(inputs).double().detach().requires_grad_()
    total = logit(features.mean(dim=(2, 3)), head, removal, reduction)
    (gradient,) = torch.autograd.grad(total.sum(), features)
    expected = (gradient.mean(dim=(2, 3), keepdim=True) * features).sum(dim=1).detach().numpy()
    largest = np.abs(expected).max()
    assert_allclose(ours, expected, atol=2e-3 * largest)
    assert (ours > 0.1 * largest).any()  # evidence for either class
    assert (ours < -0.1 * largest).any()
    without = Layer.of(head, Removal.none(6), None)
    assert np.abs(written.signed(without.weights) - expected).max() > 0.1 * largest


def test_maps_add_up_to_the_logit(tiny, shown, reduction, written):
    head, removal = layer_and_parts()
    layer = Layer.of(head, removal, None)
    rows = reduction(tiny.rows(shown.images[5:]))
    constant = layer.bias - layer.weights @ (reduction.mean @ reduction.components)
    logits = layer(rows)
    assert np.std(logits) > 0.01
    assert_allclose(written.signed(layer.weights).sum(axis=(1, 2)) + constant, logits, atol=1e-2 * np.std(logits))
    assert_allclose(logits, logit(torch.tensor(tiny.rows(shown.images[5:])).double(), head, removal, reduction))


def test_halves_are_exact_to_three_digits(tiny, shown, reduction, written):
    with torch.inference_mode():
        features = tiny.feature_maps(tiny.batch([tiny.prepare(shown[i]) for i in range(5, 20)])).double().numpy()
    exact = np.einsum("bdhw,dk->bkhw", features, reduction.components) / 49
    assert written.values.dtype == np.float16
    # Half a unit of the last of eleven binary digits, and below 2⁻¹⁴ of the last place there is.
    assert np.all(np.abs(written.values - exact) <= 2**-11 * np.abs(exact) * 1.01 + 2**-25 + 1e-7)


def test_some_pictures_are_those_of_all(written):
    weights = np.arange(6.0)
    assert_array_equal(written.signed(weights, [7, 2]), written.signed(weights)[[7, 2]])
    with pytest.raises(InputError, match="6 weights"):
        written.signed(np.ones(5))


def test_what_was_written_is_read(tiny, shown, reduction, written, tmp_path):
    again = read_maps(tmp_path)
    assert again.ids == tuple(shown.ids[5:])
    assert again.values.shape == (15, 6, 7, 7)
    assert again.preparation == PREPARATION
    assert_array_equal(again.values, written.values)
    assert_allclose(again.coverage[:, :, :3], 1.0)
    assert_allclose(again.coverage[:, :, 4:], 0.0)
    assert_allclose(again.coverage[:, :, 3], 0.5, atol=0.02)
    again.verify()
    whole = write_maps(shown, range(5, 20), tiny, reduction, left_half, tmp_path, batch=100, progress=False)
    assert_allclose(whole.values, np.array(again.values), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coverage.npy", "maps.json", "maps.npy"]


def test_cells_share_the_pixels_on_their_borders():
    mask = np.zeros((5, 4))
    mask[2] = 1.0
    assert_allclose(onto_cells(mask, (2, 2)), [[0.2, 0.2], [0.2, 0.2]])
    mask = np.random.default_rng(0).random((224, 224))
    cells = onto_cells(mask, (7, 7))
    assert_allclose(cells, mask.reshape(7, 32, 7, 32).mean(axis=(1, 3)), rtol=1e-6)
    assert onto_cells(np.ones((50, 31)), (7, 7)).max() <= 1.0
    with pytest.raises(InputError, match="between 0 and 1"):
        onto_cells(255 * mask, (7, 7))


def test_a_mask_is_cut_like_its_picture():
    rng = np.random.default_rng(0)
    grey = Image.fromarray(rng.integers(256, size=(61, 47), dtype=np.uint8))
    assert_array_equal(
        opacity(grey, PREPARATION), resize_and_crop(grey.convert("RGB"), PREPARATION)[:, :, 0] / np.float32(255)
    )


class TestDamage:
    def test_where_nothing_was_written_there_are_none(self, tmp_path):
        assert read_maps(tmp_path) is None

    @pytest.mark.parametrize("name", [layout.MAPS, layout.COVERAGE])
    @pytest.mark.parametrize("how", ["missing", "cut", "other"])
    @pytest.mark.usefixtures("written")
    def test_damaged_files_are_an_error(self, tmp_path, name, how):
        path = tmp_path / name
        content = path.read_bytes()
        path.unlink()
        if how == "cut":
            path.write_bytes(content[: len(content) // 2])
        elif how == "other":
            np.save(path, np.zeros((15, 2)))
        with pytest.raises(ArtifactError, match="Write the maps again"):
            read_maps(tmp_path)

    @pytest.mark.parametrize(
        "change",
        [
            {"format": "1"},
            {"ids": 3},
            {"ids": [3] * 15},
            {"shape": []},
            {"shape": {}},
            {"digest": None},
            {"preparation": 3},
            {"preparation": {}},
            {"preparation": {"resize": 8, "crop": -1, "mean": [0, 0, 0], "scale": [1, 1, 1]}},
            {"preparation": {"resize": 8, "crop": 8, "mean": [0], "scale": [1, 1, 1]}},
        ],
    )
    @pytest.mark.usefixtures("written")
    def test_a_description_with_values_of_another_kind_is_an_error(self, tmp_path, change):
        path = tmp_path / layout.DESCRIPTION
        described = json.loads(path.read_text())
        path.write_text(json.dumps({**described, "preparation": None}))
        assert read_maps(tmp_path).preparation is None
        path.write_text(json.dumps({**described, **change}))
        with pytest.raises(ArtifactError, match="Write the maps again"):
            read_maps(tmp_path)

    @pytest.mark.usefixtures("written")
    def test_numbers_that_changed_are_found_by_verify(self, tmp_path):
        path = tmp_path / layout.MAPS
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match="have changed"):
            read_maps(tmp_path).verify()

    @pytest.mark.usefixtures("written")
    def test_a_description_that_cannot_be_read(self, tmp_path):
        (tmp_path / layout.DESCRIPTION).write_text('{"format": 1}')
        with pytest.raises(ArtifactError, match="damaged"):
            read_maps(tmp_path)

    def test_maps_of_other_rows_are_noticed(self, tiny, shown, reduction, tmp_path):
        manifest = tmp_path / layout.MANIFEST
        manifest.write_text('{"format": 1, "digest": "one"}')
        write_maps(shown, [0], tiny, reduction, left_half, tmp_path, progress=False)
        assert read_maps(tmp_path) is not None
        manifest.write_text('{"format": 1, "digest": "two"}')
        with pytest.raises(ArtifactError, match="for other rows"):
            read_maps(tmp_path)

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
    @pytest.mark.usefixtures("written")
    @pytest.mark.parametrize("at", ["features", "description"])
    def test_a_kill_leaves_no_maps_that_can_be_read_and_the_next_run_writes_them(
        self, tiny, shown, reduction, tmp_path, at
    ):
        before = json.loads((tmp_path / layout.DESCRIPTION).read_text())
        command = [sys.executable, "-m", "reproduction.tests.networks.mapping", str(tmp_path), at]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert read_maps(tmp_path) is None
        write_maps(shown, range(5, 20), tiny, reduction, left_half, tmp_path, batch=4, progress=False)
        assert json.loads((tmp_path / layout.DESCRIPTION).read_text()) == before
        assert not (tmp_path / layout.PART).exists()

    @pytest.mark.usefixtures("written")
    def test_an_error_in_the_middle_leaves_none_either(self, tiny, shown, reduction, tmp_path):
        def broken(number):
            return left_half(number) if number < 15 else np.full((28, 28), np.nan)

        with pytest.raises(InputError, match="between 0 and 1"):
            write_maps(shown, range(20), tiny, reduction, broken, tmp_path, batch=4, progress=False)
        assert read_maps(tmp_path) is None

    def test_a_picture_that_cannot_be_read_is_not_called_a_full_disk(self, tiny, shown, reduction, tmp_path):
        def unreadable(_):
            raise OSError("image file is truncated")

        with pytest.raises(OSError, match=r"^image file is truncated$"):
            write_maps(shown, [0], tiny, reduction, unreadable, tmp_path, progress=False)

    @pytest.mark.usefixtures("written")
    def test_maps_are_written_by_one_process_at_a_time(self, tiny, shown, reduction, tmp_path):
        with hold(tmp_path / ".lock"), pytest.raises(BusyError, match="already at work"):
            write_maps(shown, [0], tiny, reduction, left_half, tmp_path, progress=False)
        assert len(read_maps(tmp_path)) == 15  # those that were there
        assert len(write_maps(shown, [0], tiny, reduction, left_half, tmp_path, progress=False)) == 1


class TestMistakes:
    @pytest.mark.parametrize("chosen", [[], [0, 0], [-1], [20]])
    def test_pictures_that_are_not_there(self, tiny, shown, reduction, tmp_path, chosen):
        with pytest.raises(InputError, match="numbered 0 to 19"):
            write_maps(shown, chosen, tiny, reduction, left_half, tmp_path)

    def test_a_reduction_of_other_features(self, shown, reduction, tmp_path):
        with pytest.raises(InputError, match="makes 5 features; the reduction is of 12"):
            write_maps(shown, [0], TinyConv(width=5), reduction, left_half, tmp_path)

    def test_maps_that_do_not_fit_into_halves(self, tiny, shown, reduction, tmp_path):
        huge = Reduction(reduction.mean, 1e9 * reduction.components)
        with pytest.raises(InputError, match="too large for float16"):
            write_maps(shown, [0], tiny, huge, left_half, tmp_path, progress=False)

    def test_a_network_without_positions(self, shown, reduction, tmp_path):
        flat = TinyConv()
        flat.network = torch.nn.Sequential(flat.network, torch.nn.Flatten())
        with pytest.raises(InputError, match="it promises"):
            write_maps(shown, [0], flat, reduction, left_half, tmp_path, progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.zeros(3)},
        {"mean": np.array(1.0)},
        {"mean": np.full(4, np.nan)},
        {"components": np.ones(4)},
        {"components": np.full((4, 2), 1e300)},
        {"components": np.ones((5, 2))},
    ],
)
def test_a_reduction_whose_parts_do_not_go_together_is_refused(tmp_path, change):
    sound = {"mean": np.zeros(4), "components": np.eye(4)[:, :2]}
    path = tmp_path / "reduction.safetensors"
    path.write_bytes(save(sound))
    assert Reduction.read(path)(np.ones((3, 4))).shape == (3, 2)
    path.write_bytes(save({**sound, **change}))
    with pytest.raises(ArtifactError, match=r"reduction\.safetensors cannot be read as a reduction"):
        Reduction.read(path)
