import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from tests.optional import pandas as pd
from tests.probing import quick_probes
from unspur import JSE, SGD, PaperVariant, load
from unspur._files import atomic
from unspur.datasets import make_toy
from unspur.exceptions import ArtifactError, OutputExistsError, UnspurError

TOY = make_toy(600, rho=0.5, random_state=0)
NEW_ROWS = make_toy(50, rho=0.0, random_state=1).Z
SETTINGS = {"cv": 0.2, "penalty": 0.1, "random_state": 3}


@pytest.fixture(scope="module")
def fitted() -> JSE:
    jse = JSE(random_state=0).fit(TOY.Z, TOY.y, concept=TOY.concept)
    assert jse.spurious_.dim > 0
    assert jse.main_.dim > 0
    return jse


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "background.safetensors"


@pytest.fixture
def saved(fitted, path) -> Path:
    fitted.save(path)
    return path


class TestRoundTrip:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
    def test_transforms_to_the_same_bits(self, fitted, saved, dtype):
        rows = NEW_ROWS.astype(dtype)
        again = load(saved).transform(rows)
        assert again.dtype == dtype
        assert again.tobytes() == fitted.transform(rows).tobytes()
        assert again.tobytes() != rows.tobytes()

    @pytest.mark.parametrize(
        "settings",
        [{"variant": PaperVariant(output="onto_main")}, {"max_spurious": 0}, {"max_main": 0}, {"delta": "auto"}],
        ids=str,
    )
    def test_every_kind_of_removal_comes_back(self, path, settings):
        jse = JSE(**SETTINGS, **settings).fit(TOY.Z, TOY.y, concept=TOY.concept)
        jse.save(path)
        again = load(path)
        assert again.transform(NEW_ROWS).tobytes() == jse.transform(NEW_ROWS).tobytes()
        assert repr(again.removal_) == repr(jse.removal_)
        assert again.get_params() == jse.get_params()

    def test_subspaces_come_back_whole_and_frozen(self, fitted, saved):
        again = load(saved)
        for name in ("spurious_", "main_"):
            basis = getattr(again, name).basis
            np.testing.assert_array_equal(basis, getattr(fitted, name).basis)
            assert not basis.flags.writeable

    def test_trace_prints_the_same(self, fitted, saved):
        again = load(saved)
        assert str(again.trace_) == str(fitted.trace_)
        assert again.trace_.to_dict() == fitted.trace_.to_dict()
        assert "accepted" in str(fitted.trace_)

    def test_parameters_come_back(self, path):
        jse = JSE(significance_level=0.01, balance="concept", max_main=2, missing_concept="?", **SETTINGS)
        jse.fit(TOY.Z, TOY.y, concept=TOY.concept).save(path)
        assert type(load(path)) is JSE
        assert load(path).get_params() == jse.get_params()
        assert jse.get_params() != JSE().get_params()

    def test_a_parameter_that_is_no_plain_value_does_not_stop_a_removal_from_being_saved(self, path):
        settings = SETTINGS | {"random_state": np.random.RandomState(0)}
        jse = JSE(**settings).fit(TOY.Z, TOY.y, concept=TOY.concept)
        jse.save(path)
        assert load(path).transform(NEW_ROWS).tobytes() == jse.transform(NEW_ROWS).tobytes()

    def test_feature_names_are_kept(self, path):
        frame = pd.DataFrame(TOY.Z, columns=[f"größe {j}" for j in range(20)])
        jse = JSE(**SETTINGS).fit(frame, TOY.y, concept=TOY.concept)
        jse.save(path)
        again = load(path)
        assert list(again.feature_names_in_) == list(frame.columns)
        assert list(again.get_feature_names_out()) == list(frame.columns)
        np.testing.assert_array_equal(again.transform(frame), jse.transform(frame))
        with pytest.raises(ValueError, match="feature names"):
            again.transform(frame.rename(columns={"größe 3": "other"}))

    def test_rows_without_names_stay_without(self, saved):
        again = load(saved)
        assert not hasattr(again, "feature_names_in_")
        assert again.n_features_in_ == 20

    def test_a_loaded_removal_can_be_saved_again(self, saved, tmp_path):
        load(saved).save(tmp_path / "second.safetensors")
        assert str(load(tmp_path / "second.safetensors").trace_) == str(load(saved).trace_)

    def test_a_path_may_be_a_string(self, fitted, tmp_path):
        fitted.save(str(tmp_path / "a"))
        assert load(str(tmp_path / "a")).spurious_.dim == fitted.spurious_.dim

    def test_a_loaded_removal_refuses_rows_of_another_width(self, saved):
        with pytest.raises(ValueError, match="20 features"):
            load(saved).transform(NEW_ROWS[:, :19])


class TestWriting:
    def test_an_existing_file_is_kept(self, fitted, path):
        path.write_text("a year of work")
        with pytest.raises(OutputExistsError, match=str(path)):
            fitted.save(path)
        assert path.read_text() == "a year of work"
        assert list(path.parent.iterdir()) == [path]

    def test_an_existing_file_is_replaced_when_asked(self, fitted, path):
        path.write_text("a year of work")
        fitted.save(path, overwrite=True)
        assert load(path).spurious_.dim == fitted.spurious_.dim
        assert list(path.parent.iterdir()) == [path]

    def test_a_folder_is_never_replaced(self, fitted, tmp_path):
        with pytest.raises(OutputExistsError, match="folder"):
            fitted.save(tmp_path, overwrite=True)
        assert tmp_path.is_dir()

    def test_a_folder_that_does_not_exist_is_named(self, fitted, tmp_path):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            fitted.save(tmp_path / "nowhere" / "a.safetensors")

    @pytest.mark.parametrize("before", [None, "a year of work"])
    def test_a_failing_write_leaves_the_folder_as_it_was(self, fitted, path, monkeypatch, before):
        if before is not None:
            path.write_text(before)

        def disk_full(_arrays, filename, **_):
            Path(filename).write_bytes(b"half of it")
            raise OSError("No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(safetensors.numpy, "save_file", disk_full)
            with pytest.raises(OSError, match="No space left"):
                fitted.save(path, overwrite=True)
        if before is None:
            assert list(path.parent.iterdir()) == []
        else:
            assert list(path.parent.iterdir()) == [path]
            assert path.read_text() == before
        fitted.save(path, overwrite=True)  # control: the same write works once the disk does
        load(path)

    def test_a_file_that_appears_while_writing_is_kept(self, path):
        def write():
            with atomic(path) as temporary:
                temporary.write_text("mine")
                path.write_text("theirs")

        with pytest.raises(OutputExistsError):
            write()
        assert path.read_text() == "theirs"
        assert list(path.parent.iterdir()) == [path]

    def test_the_umask_holds_and_is_not_touched(self, tmp_path, monkeypatch):
        """To change it for a moment would change it for files that other threads make in that moment."""
        kept, before = tmp_path / "kept", os.umask(0o027)
        try:
            kept.touch(0o600)
            monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
            for path, mode in ((tmp_path / "new", 0o640), (kept, 0o600)):
                with atomic(path, overwrite=True) as temporary:
                    temporary.unlink()  # some libraries write a file of their own, with another mode
                    temporary.touch(0o666)
                    temporary.chmod(0o606)
                assert path.stat().st_mode & 0o777 == mode
        finally:
            monkeypatch.undo()
            os.umask(before)

    def test_threads_that_write_at_once_get_the_mode_of_new_files(self, tmp_path):
        before = os.umask(0o077)
        try:

            def write(number):
                for k in range(20):
                    with atomic(tmp_path / f"{number}-{k}") as temporary:
                        temporary.write_text("x")
                    (tmp_path / f"plain-{number}-{k}").touch()

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(write, range(4)))
        finally:
            os.umask(before)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert len(modes) == 160
        assert set(modes.values()) == {0o600}
        assert before != 0o077  # control: files made now have another mode
        (tmp_path / "later").touch()
        assert (tmp_path / "later").stat().st_mode & 0o777 != 0o600

    def test_a_removal_that_is_not_fitted_cannot_be_saved(self, path):
        with pytest.raises(ValueError, match="not fitted"):
            JSE().save(path)
        assert not path.exists()


LOST = object()


def rewritten(saved: Path, tensors: dict | None = None, **changes) -> Path:
    """A saved removal with other tensors or metadata; LOST takes an entry away."""
    with safetensors.safe_open(saved, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a dict
        metadata = json.loads(file.metadata()["unspur"])
    arrays = {name: array for name, array in (arrays | (tensors or {})).items() if array is not LOST}
    metadata = {name: value for name, value in (metadata | changes).items() if value is not LOST}
    safetensors.numpy.save_file(arrays, saved, metadata={"unspur": json.dumps(metadata)})
    return saved


class TestReading:
    def test_a_rewritten_file_reads_like_the_first(self, fitted, saved):
        """Control of the tests below: what they change is what is refused."""
        assert str(load(rewritten(saved)).trace_) == str(fitted.trace_)

    @pytest.mark.parametrize("kept", [0, 4, 8, 100, 0.5, -1], ids=str)
    def test_a_file_that_is_cut_off_is_refused_by_name(self, saved, kept):
        content = saved.read_bytes()
        saved.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
        with pytest.raises(ArtifactError, match=r"background\.safetensors is not a readable safetensors file"):
            load(saved)

    def test_a_damaged_header_is_refused(self, saved):
        content = bytearray(saved.read_bytes())
        content[:8] = b"\xff" * 8
        saved.write_bytes(content)
        with pytest.raises(ArtifactError, match="not a readable"):
            load(saved)

    def test_damaged_numbers_are_refused(self, fitted, saved):
        with pytest.raises(ArtifactError, match="orthonormal"):
            load(rewritten(saved, {"spurious": 2.0 * fitted.spurious_.basis}))

    @pytest.mark.parametrize("lost", ["centre", "right", "left", "offset", "spurious", "main"])
    def test_a_file_without_one_of_its_arrays_is_refused_by_what_is_lost(self, saved, lost):
        with pytest.raises(ArtifactError, match=lost):
            load(rewritten(saved, {lost: LOST}))

    @pytest.mark.parametrize("lost", ["parameters", "trace", "form", "feature_names"])
    def test_a_file_without_one_of_its_parts_is_refused_by_what_is_lost(self, saved, lost):
        with pytest.raises(ArtifactError, match=lost):
            load(rewritten(saved, **{lost: LOST}))

    def test_arrays_that_do_not_fit_together_are_refused(self, saved):
        with pytest.raises(ArtifactError, match="does not describe a fitted JSE"):
            load(rewritten(saved, {"centre": np.zeros(3)}))

    def test_a_parameter_of_another_version_is_refused_by_name(self, saved):
        with pytest.raises(ArtifactError, match="tomorrow"):
            load(rewritten(saved, parameters={"tomorrow": 1}))

    def test_a_safetensors_file_of_another_program_is_refused(self, path):
        safetensors.numpy.save_file({"weight": np.zeros(3)}, path, metadata={"format": "pt"})
        with pytest.raises(ArtifactError, match="not one that unspur wrote"):
            load(path)
        safetensors.numpy.save_file({"weight": np.zeros(3)}, path)
        with pytest.raises(ArtifactError, match="not one that unspur wrote"):
            load(path)

    def test_a_newer_format_is_refused_with_both_numbers(self, saved):
        with pytest.raises(ArtifactError, match=r"format 1000; this version reads up to \d+\. Upgrade"):
            load(rewritten(saved, format=1000))

    @pytest.mark.parametrize("method", ["Exorcism", None])
    def test_an_unknown_method_is_refused_with_those_that_are_known(self, saved, method):
        with pytest.raises(ArtifactError, match=rf"holds a '?{method}'?; this version knows .*JSE"):
            load(rewritten(saved, method=method))

    def test_a_missing_file_is_named(self, path):
        with pytest.raises(ArtifactError, match="no file"):
            load(path)
        with pytest.raises(ArtifactError, match="no file"):
            load(path.parent)

    def test_a_pickle_is_refused_and_not_run(self, path):
        trap = path.with_name("sprung")
        path.write_bytes(pickle.dumps(_Trap(trap)))
        with pytest.raises(ArtifactError, match="not a readable"):
            load(path)
        assert not trap.exists()
        pickle.loads(path.read_bytes())  # control: the trap works
        assert trap.exists()

    def test_a_saved_file_holds_arrays_and_json_only(self, saved):
        with safetensors.safe_open(saved, framework="numpy") as file:
            kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118 — not a dict
            assert json.loads(file.metadata()["unspur"])["method"] == "JSE"
        assert kinds == {np.dtype(np.float64)}

    def test_what_is_wrong_with_a_file_is_one_of_our_errors(self, path):
        path.write_bytes(b"hello")
        with pytest.raises(UnspurError):
            load(path)


class _Trap:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "text",
    ["nojson", "{}", "[]", '{"format": "x"}', '{"format": 1, "method": ["JSE"]}', '{"format": 1, "method": "JSE"}'],
)
def test_damaged_metadata_is_an_artifact_error(tmp_path, text):
    path = tmp_path / "odd.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(2)}, path, metadata={"unspur": text})
    with pytest.raises(ArtifactError):
        load(path)


def test_flipping_any_bit_of_the_header_never_escapes_as_another_error(tmp_path):
    toy = make_toy(600, rho=0.5, random_state=0)
    path = tmp_path / "jse.safetensors"
    JSE(random_state=0, cv=0.2, penalty=0.1).fit(toy.Z, toy.y, concept=toy.concept).save(path)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        broken = bytearray(whole)
        at = int(rng.integers(0, min(len(whole), 4000)))
        broken[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        try:
            load(path)
        except ArtifactError:
            refused += 1
    assert refused > 20


def test_numpy_parameters_and_class_names_survive_saving(tmp_path):
    toy = make_toy(600, rho=0.5, random_state=0)
    jse = JSE(cv=np.int64(3), max_main=np.int64(1), penalty=np.float64(0.1), random_state=np.int64(0))
    jse.fit(toy.Z, np.array(["land", "water"])[toy.y], concept=toy.concept.astype(bool)).save(
        tmp_path / "j.safetensors"
    )
    again = load(tmp_path / "j.safetensors")
    assert (again.cv, again.max_main, again.penalty, again.random_state) == (3, 1, 0.1, 0)
    assert again.classes_ == ("land", "water")
    assert again.concept_classes_ == (False, True)


@pytest.mark.filterwarnings("ignore::unspur.exceptions.NothingRemovedWarning")
def test_settings_with_numpy_numbers_survive_saving(tmp_path):
    toy = make_toy(300, rho=0.5, random_state=0)
    sgd = SGD(learning_rate=np.float32(0.5), batch_size=np.int32(64), max_epochs=np.int64(2))
    jse = JSE(solver=sgd, penalty=0.1, random_state=0, max_spurious=0)
    jse.fit(toy.Z, toy.y, concept=toy.concept).save(tmp_path / "j.safetensors")
    assert load(tmp_path / "j.safetensors").solver == sgd != SGD()


DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [DEEP, '{"format": ' + DEEP, '{"format": Infinity}', '{"format": true}', "1" * 5000])
def test_metadata_that_are_hard_to_read_are_an_artifact_error(tmp_path, text):
    path = tmp_path / "odd.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(2)}, path, metadata={"unspur": text})
    with pytest.raises(ArtifactError, match="damaged metadata") as error:
        load(path)
    assert len(str(error.value)) < 500


def _set(*keys, to):
    def change(metadata, arrays):
        for key in keys[:-1]:
            metadata = metadata[key]
        metadata[keys[-1]] = to

    return change


def _array(name, value):
    def change(metadata, arrays):
        arrays[name] = np.full_like(arrays[name], value)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("trace", "delta", to="x"), "'delta' of the trace"),
        (_set("trace", "steps", 0, "reason", to=[]), "'reason' of 'steps' of the trace"),
        (_set("trace", "steps", 0, "specific", "t", to=[1]), "'t' of 'specific'"),
        (_set("trace", "steps", 0, "specific", "degrees", to=-1), "-1 degrees of freedom"),
        (_set("trace", "steps", 0, "role", to="judge"), "role 'judge', and not of spurious or main"),
        (_set("trace", "steps", 0, "specific", "t", to=float("nan")), "a test has t = nan"),
        (_set("trace", "steps", 0, "level", to=None), "level of a test is None"),
        (_set("trace", "steps", 0, "level", to=2), "level of a test is 2, and not between"),
        (_set("trace", "steps", 0, "loss_main", to={"x": None}), "not those of four groups"),
        (_set("certificate", "covariance_left", to=3), "'covariance_left' of the certificate"),
        (_set("certificate", "task", 0, "accuracy", to=None), "'accuracy' of a probe"),
        (_set("certificate", "probe", "concept", to=[]), "has 0 parts, and not those before and after"),
        (_set("concept_classes", to=5), "'concept_classes' of the metadata"),
        (_set("feature_names", to=["a"]), "1 names for"),
        (_set("feature_names", to="abc"), "'feature_names' of the metadata"),
        (_set("encoding", to={"encoder": "resnet50"}), "'encoding' has no 'digest'"),
        (_array("centre", np.nan), "NaN, infinity or numbers as large"),
        (_array("right", 1e300), "NaN, infinity or numbers as large"),
    ],
)
@quick_probes()
def test_a_removal_with_parts_of_another_kind_is_refused_when_it_is_read(fitted, tmp_path, change, says):
    """Not when its story is printed, or its rows are transformed, a day later."""
    path = tmp_path / "jse.safetensors"
    if not hasattr(fitted, "certificate_"):
        fitted.certificate(NEW_ROWS, (NEW_ROWS[:, 0] > 0).astype(int), (NEW_ROWS[:, 1] > 0).astype(int))
    fitted.save(path)
    assert str(load(path).trace_) == str(fitted.trace_)
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["unspur"])
    arrays = safetensors.numpy.load_file(path)
    change(metadata, arrays)
    safetensors.numpy.save_file(arrays, path, metadata={"unspur": json.dumps(metadata)})
    with pytest.raises(ArtifactError, match=says) as error:
        load(path)
    assert str(path) in str(error.value)
