"""What this package wrote itself: removals, embedding stores, maps, and networks in training."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from trust.hostile.arrays import csv_attacks, npy_attacks
from trust.hostile.damage import ODD_JSON, as_json, forged, odd_fields
from trust.hostile.trials import NOT_FILES, Attacks, Reader, promised
from unspur import INLP, JSE, LEACE, RLACE, SPLINCE, PaperVariant, RobustClassifier, load, surgery
from unspur._files import write_artifact
from unspur.criteria import LABEL
from unspur.embed.store import EmbeddingStore, Reduction, content_digest, file_digest, write_labels
from unspur.io.files import read_table
from unspur_paper.networks.checkpoint import load_checkpoint
from unspur_paper.networks.maps import read_maps
from unspur_paper.networks.tuned import read_record

ROWS, WIDTH = 80, 4
#: One in so many removals that are read is measured, which takes longer than to read it.
CERTIFIED = 50


def _rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    y, concept = rng.integers(2, size=ROWS), rng.integers(2, size=ROWS)
    z = rng.normal(size=(ROWS, WIDTH))
    z[:, 0] += 3 * y
    z[:, 1] += 3 * concept
    return z, y, concept


# Removals


def _saved(remover: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        z, y, concept = _rows()
        fitted = remover().fit(z, y, concept=concept)
        fitted.certificate(z[::2] + 0.01, y[::2], concept[::2])
        fitted.save(folder / "removal.safetensors")
        return folder / "removal.safetensors"

    return make


def _make_classifier(folder: Path) -> Path:
    z, y, concept = _rows()
    RobustClassifier(LEACE(), random_state=0).fit(z, y, concept=concept).save(folder / "model.safetensors")
    return folder / "model.safetensors"


def _load_classifier(path: Path) -> None:
    """A classifier that was read predicts, folds into one layer, and its removal is one."""
    model = load(path)
    if not isinstance(model, RobustClassifier):  # without what is said of the layer it is a removal
        _use(model, path)
        return
    _use(model.remover_, path)
    z = _rows()[0][:, : model.n_features_in_]
    k = len(model.classes_)
    promised(model.classes_.shape == (k,) and len(set(model.classes_.tolist())) == k >= 2, "classes are none")
    if z.shape[1] == model.n_features_in_:
        shares = model.predict_proba(z)
        promised(shares.shape == (ROWS, k) and np.isfinite(shares).all(), "probabilities are none")
        promised(np.isin(model.predict(z), model.classes_).all(), "it predicts what is no class")
        clean, folded = model.predict_proba(model.transform(z)), surgery.fold(model).predict_proba(z)
        near = np.abs(model.removal_.centre).max() < 1e6  # else rounding is all that is left of rows that are cleaned
        promised(not near or np.allclose(clean, shares, atol=1e-4), "the layer looks at what is removed")
        promised(np.array_equal(folded, shares), "it folds into another layer")
    promised(np.isfinite(model.selection_.penalty) and all(isinstance(note, str) for note in model.notes_), "no layer")
    again = path.with_name("again.safetensors")
    model.save(again, overwrite=True)
    load(again)
    again.unlink()


def layer_attacks(sound: bytes) -> Attacks:
    """Those of a removal, and layers that are forged: classes, penalties, coefficients that see the concept again."""
    arrays, metadata = _arrays_of(sound)
    plain = json.loads(metadata["unspur"])
    coef, d = arrays["coef"], WIDTH
    for what, changed in {
        "three classes for one line": {"coef": np.zeros((3, d)), "intercept": np.zeros(3)},
        "a million lines": {"coef": np.zeros((10**6, d)), "intercept": np.zeros(10**6)},
        "no lines": {"coef": np.empty((0, d)), "intercept": np.empty(0)},
        "coefficients along the concept": {"coef": coef + arrays["right"].T},
        "coefficients of random numbers": {"coef": np.random.default_rng(0).normal(size=coef.shape)},
        "coefficients of 1e99": {"coef": 1e99 * coef},
        "an intercept of 1e99": {"intercept": np.full(1, 1e99)},
        "coefficients of another space": {"coef": np.zeros((1, d + 3))},
    }.items():
        yield what, bytes(safetensors.numpy.save({**arrays, **changed}, metadata))
    for name, values in {
        "classes": [[], [0], [0, 0], [0, "a"], [[0], [1]], [None, 1], [0, {}], [float("nan"), 1], ["x" * 10**6, "y"]],
        "head": ["JSE", "__import__('os')", "", "GroupDRO", None],
        "penalty": [-1.0, float("nan"), float("inf"), "0.1", 10**400],
        "table": [[[1.0]], [["a", 1.0]], [[1.0, float("nan")]], [[[1.0], 1.0]], {}, [[1.0, 2.0]] * 100_000],
        "notes": [["x" * 10**6], [1], "a", [["b"]]],
        "cv": [0, -1, 2**70, True],
    }.items():
        for value in values:
            layer = {**plain["classifier"], name: value}
            yield (
                f"{name} of the layer: {str(value)[:40]}",
                _with_metadata(arrays, json.dumps({**plain, "classifier": layer})),
            )
    for value in ({}, [], None, "x"):
        yield f"a layer that is {value!r}", _with_metadata(arrays, json.dumps({**plain, "classifier": value}))
    yield from artifact_attacks(sound)


def _load(path: Path) -> None:
    """A removal that was read can be used, looked at and saved again."""
    _use(load(path), path)


def _use(remover: Any, path: Path) -> None:
    z = _rows()[0][:, : remover.n_features_in_]
    if z.shape[1] == remover.n_features_in_:
        clean = remover.transform(z)
        promised(clean.shape == z.shape and np.isfinite(clean).all(), "rows it transforms are not finite")
    promised(str(remover.trace_) and len(str(getattr(remover, "certificate_", "-"))), "it has no story")
    for verdict in (step.verdict for step in remover.trace_) if isinstance(remover, JSE | INLP) else ():
        drawn = [test.scaled(verdict.level, 1.0) for test in (verdict.informative, verdict.specific)]
        promised(np.isfinite(drawn).all() and verdict.role in LABEL, "its tests cannot be drawn")
    promised(isinstance(remover.get_params(), dict) and isinstance(repr(remover), str), "it has no parameters")
    promised(remover._repr_html_() and 0 <= remover.removal_.rank <= remover.n_features_in_, "its map has no rank")
    promised(np.isfinite(remover.spurious_.angles(remover.main_)).all(), "its subspaces have no angles")
    if zlib.crc32(path.read_bytes()) % CERTIFIED == 0:
        z, y, concept = _rows()
        promised("rows" in str(remover.certificate(z + 0.01, y, concept)), "it has no certificate")
    names = getattr(remover, "feature_names_in_", None)
    promised(names is None or len(names) == remover.n_features_in_, "names do not fit the features")
    for classes in (remover.classes_, remover.concept_classes_):
        promised(isinstance(classes, tuple), "classes are no tuple")
    again = path.with_name("again.safetensors")
    remover.save(again, overwrite=True)
    again.unlink()


def _arrays_of(sound: bytes) -> tuple[dict[str, Any], Any]:
    size = int.from_bytes(sound[:8], "little")
    return safetensors.numpy.load(sound), json.loads(sound[8 : 8 + size])["__metadata__"]


def _header(header: bytes | dict[str, Any], body: bytes = bytes(64)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def artifact_attacks(sound: bytes) -> Attacks:
    """Headers that lie, metadata of another kind, arrays of other shapes and types."""
    arrays, metadata = _arrays_of(sound)
    for size in (0, 1, 7, 2**31, 2**40, 2**60, 2**63, 2**64 - 1):
        yield f"a header of {size} bytes", size.to_bytes(8, "little") + sound[8:]
    for what, text in ODD_JSON.items():
        yield f"header: {what}", _header(text)
        yield f"metadata: {what}", _with_metadata(arrays, text.decode("latin1"))
    kinds = ("F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "X", 3)
    for kind in kinds:
        for shape in ([2], [-1], [2**60], [2**32, 2**32], [], [0], "x", [1.5]):
            entry = {"dtype": kind, "shape": shape, "data_offsets": [0, 16]}
            yield f"centre: {kind} {shape}", _header({"centre": entry, "__metadata__": metadata}, bytes(16))
    for offsets in ([0, 2**60], [2**60, 0], [-1, 4], [8, 0], [0], None, [0, 64, 64]):
        entry = {"dtype": "F64", "shape": [8], "data_offsets": offsets}
        yield f"offsets {offsets}", _header({"centre": entry, "__metadata__": metadata})
    for name, array in arrays.items():
        for what, other in _other_arrays(array):
            yield f"{name}: {what}", safetensors.numpy.save({**arrays, name: other}, metadata)
        yield f"{name} left out", safetensors.numpy.save({k: v for k, v in arrays.items() if k != name}, metadata)
    plain = json.loads(metadata["unspur"])
    for what, value in odd_fields(plain):  # thousands, of which some are tried, and only those are written
        yield what, partial(_write_with_metadata, arrays, value)
    yield from _meanings(arrays, plain)
    yield "a parameter too many", _with_metadata(arrays, json.dumps({**plain, "parameters": {"x": 1}}))
    yield "code for a method", _with_metadata(arrays, json.dumps({**plain, "method": "__import__('os')"}))
    yield "no metadata", safetensors.numpy.save(arrays)
    yield from NOT_FILES


def _meanings(arrays: dict[str, Any], plain: dict[str, Any]) -> Attacks:
    """Sound files with parts that do not belong together."""
    if "right" not in arrays:  # of a network in training
        return
    text, d, none = json.dumps(plain), len(arrays["centre"]), np.empty(0)
    for n in (10**9, 2**40, 10**14, 2**62):
        wide, long, empty = (none, [0, n]), (none, [n, 0]), (none, [0])
        bases = {"spurious": long, "main": long}
        yield (
            f"{n} features and no direction",
            _declared(text, {"centre": empty, "offset": empty, "right": long, "left": long, **bases}),
        )
        yield (
            f"{n} directions of nothing",
            _declared(text, {"centre": empty, "offset": empty, "right": wide, "left": wide, **bases}),
        )
        both = {"right": wide, "left": wide, "spurious": wide, "main": wide}
        yield f"{n} directions everywhere", _declared(text, {"centre": empty, "offset": empty, **both})
        yield f"subspaces of {n} features", _declared(text, {**{k: (v, v.shape) for k, v in arrays.items()}, **bases})
    other = {
        "more directions than features": {"right": np.ones((d, 3 * d)), "left": np.ones((d, 3 * d))},
        "20,000 directions": {"right": np.zeros((d, 20_000)), "left": np.zeros((d, 20_000))},
        "a main basis of another space": {"main": np.eye(d + 3)[:, :1]},
        "a spurious basis of another space": {"spurious": np.eye(d + 3)[:, :1]},
        "a larger spurious subspace": {"spurious": np.eye(d)[:, : d - 1]},
        "another spurious subspace": {"spurious": np.eye(d)[:, [d - 1]]},
        "no spurious subspace": {"spurious": np.empty((d, 0))},
        "a map of nothing": {"right": np.empty((d, 0)), "left": np.empty((d, 0))},
        "factors of zero": {"right": np.zeros((d, 1)), "left": np.zeros((d, 1))},
        "a stretched factor": {"right": 5.0 * arrays["right"]},
        "factors of 1e60": {"right": 1e60 * arrays["right"], "left": 1e60 * arrays["left"]},
        "a factor of another sign": {"right": -arrays["right"]},
        "an offset": {"offset": np.full(d, 1e99)},
        "a centre far away": {"centre": np.full(d, 1e99)},
        "an array that nobody knows": {"more": np.zeros(1000)},
    }
    for what, changed in other.items():
        yield what, bytes(safetensors.numpy.save({**arrays, **changed}, {"unspur": text}))
    deep = json.loads("[" * 900 + "]" * 900)
    names = {
        "names of megabytes": ["x" * 1_000_000] * d,
        "names that are numbers": list(range(d)),
        "no names": [],
        "names that are lists": [["x"]] * d,
        "names that are none": [None] * d,
    }
    for what, value in names.items():
        yield what, _with_metadata(arrays, json.dumps({**plain, "feature_names": value}))
    classes = {
        "a million classes": list(range(10**6)),
        "classes nested 900 times": deep,
        "classes that are tables": [{"a": 1}],
        "a class of megabytes": ["x" * 4_000_000, "y"],
        "a million empty lists": [[]] * 10**6,
    }
    for what, value in classes.items():
        yield what, _with_metadata(arrays, json.dumps({**plain, "classes": value}))
    yield "the other form", _with_metadata(arrays, json.dumps({**plain, "form": "keep"}))
    for what, value in {"-1": -1, "10^400": 10**400, "nested": deep}.items():
        for name in plain["parameters"]:
            changed = {**plain["parameters"], name: value}
            yield f"{name} = {what}", _with_metadata(arrays, json.dumps({**plain, "parameters": changed}))
    steps = plain["trace"].get("steps")
    if steps:
        many = {**plain["trace"], "steps": steps[:1] * 20_000}
        yield "20,000 steps", _with_metadata(arrays, json.dumps({**plain, "trace": many}))
        yield "a trace of no parts", _with_metadata(arrays, json.dumps({**plain, "trace": {"parts": {}}}))


def _declared(text: str, arrays: dict[str, tuple[Any, Any]]) -> bytes:
    """A file whose header gives arrays any shape that takes as many bytes as there are."""
    header: dict[str, Any] = {"__metadata__": {"unspur": text}}
    body = b""
    for name, (array, shape) in arrays.items():
        content = array.tobytes()
        header[name] = {"dtype": "F64", "shape": list(shape), "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    return _header(header, body)


def forged_artifact(sound: bytes, rng: np.random.Generator) -> bytes:
    """A sound safetensors file with other metadata, or another array, than the one it was made from."""
    arrays, metadata = _arrays_of(sound)
    plain = json.loads(metadata["unspur"])
    if rng.integers(2):
        return _with_metadata(arrays, as_json(forged(plain, rng)).decode("utf-8", "surrogatepass"))
    names = sorted(arrays)
    for _ in range(int(rng.choice([1, 1, 2]))):
        name = names[rng.integers(len(names))]
        arrays[name] = _forged_array(arrays[name], arrays[names[rng.integers(len(names))]], rng)
    return bytes(safetensors.numpy.save(arrays, metadata))


def _forged_array(array: Any, other: Any, rng: np.random.Generator) -> Any:
    number = float(rng.choice([0.0, -1.0, 1e-9, 0.5, 2.0, 1e20, 1e99, 1e200, np.nan, np.inf]))
    grow = int(rng.choice([1, 2, 50]))
    ways: list[Callable[[], Any]] = [
        lambda: other,
        lambda: array.T,
        lambda: array * number,
        lambda: array + number,
        lambda: array[:-1],
        lambda: np.repeat(array, grow, axis=0),
        lambda: np.repeat(array, grow, axis=-1),
        lambda: array[..., :0],
        lambda: array[None],
        lambda: array.reshape(-1),
        lambda: array[:, None],
        lambda: array + 1e-4 * rng.normal(size=array.shape),
        lambda: rng.normal(size=array.shape),
        lambda: np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0][:, :grow],
        lambda: array.astype(str(rng.choice(["<f2", "<f4", "<i8", "|b1", "<u2"]))),
        lambda: array[::-1],
        lambda: np.where(rng.random(array.shape) < 0.2, number, array),
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.ascontiguousarray(ways[rng.integers(len(ways))]())
        except (IndexError, ValueError):  # of an array that was forged before
            return other


def forged_json(sound: bytes, rng: np.random.Generator) -> bytes:
    """Sound JSON in which some values are others."""
    return as_json(forged(json.loads(sound), rng))


def _write_with_metadata(arrays: dict[str, Any], value: Any, path: Path) -> None:
    path.write_bytes(_with_metadata(arrays, as_json(value).decode()))


def _with_metadata(arrays: dict[str, Any], text: str) -> bytes:
    return bytes(safetensors.numpy.save(arrays, {"unspur": text}))


def _other_arrays(array: Any) -> Iterator[tuple[str, Any]]:
    yield "NaN", np.full_like(array, np.nan)
    yield "infinity", np.full_like(array, np.inf)
    yield "the largest numbers there are", np.full_like(array, np.finfo(np.float64).max)
    yield "half precision", array.astype(np.float16)
    yield "whole numbers", array.astype(np.int64)
    yield "truth", array.astype(bool)
    yield "one longer", np.concatenate([array, array[:1]])
    yield "empty", array[:0]
    yield "a number", np.array(1.0)
    yield "one more axis", array[None]
    yield "wide", np.ones((WIDTH, 50))


# Reductions, checkpoints, records of training


def _make_reduction(folder: Path) -> Path:
    Reduction.fit(_rows()[0], 2).write(folder / "reduction.safetensors")
    return folder / "reduction.safetensors"


def _read_reduction(path: Path) -> None:
    found = Reduction.read(path)
    k = found.components.shape[1]
    reduced = found(np.ones((3, len(found.mean))))
    promised(reduced.shape == (3, k) and np.isfinite(reduced).all(), "reduced rows are not finite")
    promised(found.back(reduced).shape == (3, len(found.mean)), "there is no way back")


def reduction_attacks(sound: bytes) -> Attacks:
    """Arrays of other shapes and types."""
    arrays = safetensors.numpy.load(sound)
    for name, array in arrays.items():
        for what, other in _other_arrays(array):
            yield f"{name}: {what}", safetensors.numpy.save({**arrays, name: other})
        yield f"{name} left out", safetensors.numpy.save({k: v for k, v in arrays.items() if k != name})
    for size in (0, 1, 2**31, 2**60, 2**64 - 1):
        yield f"a header of {size} bytes", size.to_bytes(8, "little") + sound[8:]
    for kind in ("BF16", "F8_E4M3", "X"):
        entry = {"dtype": kind, "shape": [2], "data_offsets": [0, 4]}
        yield f"type {kind}", _header({"mean": entry}, bytes(4))
    yield from NOT_FILES


def _make_checkpoint(folder: Path) -> Path:
    note = {"epoch": 1, "history": [{"epoch": 1, "validation_loss": 0.5}]}
    arrays = {"network.weight": np.ones((2, 3), dtype=np.float32), "head.weight": np.ones(2, dtype=np.float32)}
    write_artifact(folder / "checkpoint.safetensors", arrays, {"note": note})
    return folder / "checkpoint.safetensors"


def _read_checkpoint(path: Path) -> None:
    parts, note = load_checkpoint(path)
    promised(isinstance(note, dict), "the note is no table")
    for part in parts.values():
        promised(all(isinstance(array, np.ndarray) for array in part.values()), "tensors are no arrays")


def _make_training(folder: Path) -> Path:
    record = {
        "format": 1,
        "unspur": "1",
        "base": {"address": "lite0"},
        "digest": "0" * 16,
        "settings": {"epochs": 1},
        "history": [{"epoch": 1, "validation_accuracy": 0.9}],
        "kept_epoch": 1,
        "dataset": {"name": "x"},
        "seconds": 1.0,
    }
    (folder / "training.json").write_text(json.dumps(record))
    return folder / "training.json"


def _read_training(path: Path) -> None:
    record = read_record(path.parent)
    promised(isinstance(record["base"]["address"], str) and isinstance(record["digest"], str), "texts are none")
    promised(isinstance(record["history"], list) and isinstance(record["seconds"], int | float), "no history")


def json_attacks(sound: bytes) -> Attacks:
    """Other JSON, and every value of another kind."""
    yield from ODD_JSON.items()
    for what, value in odd_fields(json.loads(sound)):
        yield what, as_json(value)
    yield from NOT_FILES


# Stores


def _make_store(folder: Path) -> Path:
    z, y, concept = _rows()
    ids = tuple(f"{k}.jpg" for k in range(ROWS))
    labels = {"y": y, "place": np.where(concept == 1, "water", "land")}
    np.save(folder / "rows.npy", z.astype(np.float32))
    write_labels(folder / "labels.csv", ids, labels)
    training = {"history": [{"epoch": 1, "validation_accuracy": 0.9}], "kept_epoch": 1}
    manifest = {
        "format": 1,
        "unspur": "1",
        "rows": ROWS,
        "width": WIDTH,
        "labels": ["place", "y"],
        "seconds": 1.0,
        "dataset": {"name": "x", "digest": "0"},
        "encoder": {"name": "x", "device": "cpu", "training": training},
        "pca": None,
        "digest": content_digest(z.astype(np.float32), ids, labels),
        "labels_digest": file_digest(folder / "labels.csv"),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "manifest.json"


def _make_store_labels(folder: Path) -> Path:
    """Without the digest of the labels: whoever attacks writes that too."""
    manifest = json.loads(_make_store(folder).read_text())
    del manifest["labels_digest"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder / "labels.csv"


def _make_store_rows(folder: Path) -> Path:
    return _make_store(folder).with_name("rows.npy")


def _read_store(path: Path) -> None:
    store = EmbeddingStore.open(path.parent)
    n = len(store)
    promised(
        store.rows.shape == (n, WIDTH) and store.rows.dtype in (np.float32, np.float16), "rows are of another shape"
    )
    promised(all(column.shape == (n,) for column in store.labels.values()), "labels are of another shape")
    promised(isinstance(store.digest, str) and all(isinstance(name, str) for name in store.ids), "texts are none")
    table = read_table(path.parent)
    promised(table.Z.shape == (n, WIDTH) and len(table.label("id")) == n, "the table is of another shape")
    training = store.manifest.get("encoder", {}).get("training") or {}
    promised(all(isinstance(line, dict) for line in training.get("history", [])), "a history of no epochs")


def _labels_attacks(sound: bytes) -> Attacks:
    yield from csv_attacks(sound)
    yield from {
        "another first column": b"name,y\n",
        "no lines": b"id,y,place\n",
        "only ids": b"id\n" * 81,
    }.items()
    yield "numbers too large", sound.replace(b",1,", b"," + b"9" * 5000 + b",")
    yield "a label twice", sound.replace(b"place", b"y", 1)


def _make_maps(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    np.save(folder / "maps.npy", rng.normal(size=(3, 2, 4, 4)).astype(np.float16))
    np.save(folder / "coverage.npy", rng.uniform(size=(3, 4, 4)).astype(np.float32))
    described = {
        "format": 1,
        "unspur": "1",
        "encoder": "x",
        "ids": ["a", "b", "c"],
        "shape": [3, 2, 4, 4],
        "digest": "0" * 16,
        "store": None,
        "preparation": {"resize": 8, "crop": 8, "mean": [1.0, 1.0, 1.0], "scale": [1.0, 1.0, 1.0]},
    }
    (folder / "maps.json").write_text(json.dumps(described))
    return folder / "maps.json"


def _make_map_values(folder: Path) -> Path:
    return _make_maps(folder).with_name("maps.npy")


def _make_coverage(folder: Path) -> Path:
    return _make_maps(folder).with_name("coverage.npy")


def _read_maps(path: Path) -> None:
    maps = read_maps(path.parent)
    if maps is None:  # without a description there are none
        promised(not (path.parent / "maps.json").exists(), "maps that are there are not read")
        return
    m, k, h, w = maps.values.shape
    promised(len(maps) == m and all(isinstance(name, str) for name in maps.ids), "ids are none")
    promised(maps.signed(np.zeros(k)).shape == (m, h, w), "maps cannot be weighed")
    promised(maps.coverage.shape == (m, h, w) and isinstance(maps.digest, str), "coverage is of another shape")
    prepared = maps.preparation
    promised(prepared is None or (prepared.crop >= 1 and len(prepared.mean) == 3), "pictures are prepared in no way")


jse = Reader(_saved(JSE), _load, artifact_attacks, forged=forged_artifact)
scores = Reader(_saved(lambda: JSE(metric=1.0)), _load, artifact_attacks, forged=forged_artifact)
onto_main = Reader(
    _saved(lambda: JSE(variant=PaperVariant(output="onto_main"))), _load, artifact_attacks, forged=forged_artifact
)
inlp = Reader(_saved(INLP), _load, artifact_attacks, forged=forged_artifact)
rlace = Reader(_saved(RLACE), _load, artifact_attacks, forged=forged_artifact)
leace = Reader(_saved(LEACE), _load, artifact_attacks, forged=forged_artifact)
classifier = Reader(_make_classifier, _load_classifier, layer_attacks, forged=forged_artifact)
splince = Reader(_saved(SPLINCE), _load, artifact_attacks, forged=forged_artifact)
reduction = Reader(_make_reduction, _read_reduction, reduction_attacks)
checkpoint = Reader(_make_checkpoint, _read_checkpoint, artifact_attacks, forged=forged_artifact)
training = Reader(_make_training, _read_training, json_attacks, text=True, forged=forged_json)
store_manifest = Reader(_make_store, _read_store, json_attacks, text=True, forged=forged_json)
store_labels = Reader(_make_store_labels, _read_store, _labels_attacks, text=True)
store_rows = Reader(_make_store_rows, _read_store, npy_attacks)
maps_description = Reader(_make_maps, _read_maps, json_attacks, text=True, forged=forged_json)
maps_values = Reader(_make_map_values, _read_maps, npy_attacks)
maps_coverage = Reader(_make_coverage, _read_maps, npy_attacks)
