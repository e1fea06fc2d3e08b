"""Operations that NumPy and torch spell differently, so that every statistic is written once for both.

Operators, slices and in-place arithmetic are the same in both libraries; the rest is here. For NumPy each helper costs
a fraction of a microsecond, and none imports torch: a tensor brings its library along. No helper reads values on a
device, which would have to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError

#: From this many numbers on, matrix-vector products one by one beat one product with a thin matrix (OpenBLAS packs
#: the large operand first, which costs as much as the product itself).
MIN_MATVEC_SIZE = 2**17
#: ... as long as there are few of them.
MAX_MATVECS = 6
#: Sums by code of at least so many lines into at most so many columns are one product with a one-hot matrix.
MIN_ONE_HOT_LINES, MAX_ONE_HOT_WIDTH = 4, 8
#: Rows of a tensor whose products are summed in their own dtype; sums of chunks are added in that of the result.
CHUNK_ROWS = 2048
#: What DLPack calls memory of a CUDA device.
DLPACK_CUDA = 2
#: Relative rounding error of types that are widened before rows are summed.
HALF_PRECISION = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
#: Looked up once for each type of array: asking takes some microseconds, and a sum asks often.
_namespaces: dict[type, Any] = {np.ndarray: array_api_compat.numpy}


def namespace(x: Array) -> Any:
    """The functions of the library that an array belongs to, by their array-API names."""
    try:
        return _namespaces[type(x)]
    except KeyError:
        return _namespaces.setdefault(type(x), array_api_compat.array_namespace(x))


def is_tensor(x: Any) -> bool:
    """Whether `x` is a torch tensor; imports nothing."""
    return is_instance(x, "torch", "Tensor")


def is_instance(x: Any, library: str, class_name: str | None = None) -> bool:
    """Whether `x` is an instance of a class of `library`, without importing it."""
    for base in type(x).__mro__:
        if base.__module__.partition(".")[0] == library and class_name in (None, base.__name__):
            return True
    return False


def require_dense(x: Any) -> None:
    """Raise InputError for sparse, nested, quantised and meta arrays: each entry needs a plain value."""
    if not is_tensor(x):
        if is_instance(x, "scipy") and hasattr(x, "toarray"):
            raise InputError(
                f"Got a sparse {type(x).__name__} of shape {x.shape}; dense values are needed. Pass .toarray() of it, "
                "or fewer components of it (sklearn.decomposition.TruncatedSVD)."
            )
        return
    if x.is_nested:
        raise InputError("Got a nested tensor, whose rows differ in length; rows must be of shape (n, d). Pool them.")
    kind, shape = str(x.dtype).removeprefix("torch."), tuple(x.shape)
    if x.device.type == "meta":
        raise InputError(
            f"Got a tensor of {kind} and shape {shape} on the device 'meta', which has no values. Load the weights of "
            "the network, and compute on a device that has memory."
        )
    if x.is_quantized:
        raise InputError(f"Got a quantised tensor ({kind}) of shape {shape}. Pass .dequantize() of it.")
    if str(x.layout) != "torch.strided":
        layout = str(x.layout).removeprefix("torch.").replace("_", " ").strip()
        raise InputError(f"Got a tensor of shape {shape} in the layout {layout}; pass .to_dense() of it.")


def as_tensor(x: Any) -> Any:
    """A CUDA array of another library (CuPy, JAX) as a tensor that shares its memory; anything else unchanged.

    Sparse arrays and tensors without values are an InputError.
    """
    require_dense(x)
    device = None if is_tensor(x) else getattr(x, "__dlpack_device__", None)
    if device is None or device()[0] != DLPACK_CUDA:
        return x
    try:
        from torch.utils.dlpack import from_dlpack
    except ImportError:  # then NumPy is asked, for which the library itself copies, or says why not
        return x
    return from_dlpack(x)


def to_original_type(result: Any, x: Any) -> Any:
    """Undo `as_tensor`: a tensor as an array of the library of `x`; anything else unchanged."""
    if not is_tensor(result) or is_tensor(x):
        return result
    return array_api_compat.array_namespace(x).from_dlpack(result)


def to_numpy(x: Any) -> Any:
    """A tensor as a NumPy array (bfloat16, which NumPy lacks, as float32); anything else unchanged.

    Masked values of an array become missing ones: NaN, NaT or None.
    """
    x = as_tensor(x)
    if np.ma.isMaskedArray(x):
        if not np.ma.getmaskarray(x).any():
            return x.data
        missing = {"f": np.nan, "m": "NaT", "M": "NaT"}.get(x.dtype.kind)
        plain = x.data.astype(object if missing is None else x.dtype)
        plain[np.ma.getmaskarray(x)] = missing
        return plain
    if not is_tensor(x):
        return x
    plain = x.detach().cpu()
    return (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy()


def to_device(host: Array, x: Array) -> Array:
    """A NumPy array on the device of `x`, in its own dtype."""
    if isinstance(x, np.ndarray):
        return host
    return _sent(host, x)


def to_device_like(host: Array, x: Array) -> Array:
    """A NumPy array on the device and in the dtype of `x`; copied only if necessary."""
    if isinstance(x, np.ndarray):
        return host.astype(x.dtype, copy=False)
    return _sent(host, x).to(x.dtype)


def to_python(value: Any) -> Any:
    """A NumPy scalar as a plain Python value; anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, or says of itself that it is missing."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas.NA compares to neither true nor false
        return True


def _sent(host: Array, x: Array) -> Array:
    """A NumPy array on the device of a tensor, without waiting for what the device is doing."""
    # Torch warns of arrays that cannot be written.
    plain = host if host.flags.c_contiguous and host.flags.writeable else host.copy(order="C")
    return namespace(x).from_numpy(plain).to(x.device, non_blocking=True)


def cast(x: Array, kind: np.dtype[Any] | type) -> Array:
    """`x` in a NumPy dtype; copied only if necessary."""
    if isinstance(x, np.ndarray | np.generic):
        return x.astype(kind, copy=False)
    return x.to(getattr(namespace(x), np.dtype(kind).name))


def rounded(x: Array, kind: str) -> Array:
    """`x` in its own dtype, rounded to the precision of another."""
    if isinstance(x, np.ndarray):
        return x.astype(kind).astype(x.dtype)
    return x.to(getattr(namespace(x), kind)).to(x.dtype)


def astype_like(x: Array, other: Array) -> Array:
    """`x` in the dtype of `other`, an array of the same library; copied only if necessary."""
    return x.astype(other.dtype, copy=False) if isinstance(x, np.ndarray) else x.to(other.dtype)


def arange_like(n: int, x: Array) -> Array:
    """0, 1, …, n − 1 on the device of `x`."""
    return np.arange(n) if isinstance(x, np.ndarray) else namespace(x).arange(n, device=x.device)


def empty(shape: tuple[int, ...], x: Array) -> Array:
    """An uninitialised array on the device and in the dtype of `x`."""
    return np.empty(shape, x.dtype) if isinstance(x, np.ndarray) else x.new_empty(shape)


def empty64(shape: tuple[int, ...] | int, x: Array) -> FloatArray:
    """An uninitialised float64 array on the device of `x`."""
    if isinstance(x, np.ndarray):
        return np.empty(shape)
    filled: FloatArray = x.new_empty(shape, dtype=namespace(x).float64)  # what it is once it is on the host
    return filled


def sum64(x: Array, axis: int) -> Array:
    """Sum along one axis, in float64."""
    return x.sum(axis, dtype=np.float64 if isinstance(x, np.ndarray) else namespace(x).float64)


def at_least(x: Array, least: float) -> Array:
    """The larger of `x` and a number."""
    return np.maximum(x, least) if isinstance(x, np.ndarray) else x.clamp(min=least)


def take_rows(x: Array, which: Array) -> Array:
    """Rows of a small matrix by index; `which` is on the host."""
    if isinstance(x, np.ndarray):
        return x[which]
    # Numbers of lines are few: basic indexing sends nothing to the device.
    return namespace(x).stack([x[int(i)] for i in which])


def columns_at(table: FloatArray, codes: Array, x: Array) -> Array:
    """Columns of a small table on the host by code, shape (k, m), on the device and in the dtype of `x`."""
    if isinstance(x, np.ndarray):
        return table.astype(x.dtype, copy=False).take(codes, axis=1)
    return to_device_like(table, x)[:, codes]


def take_along(x: Array, column: Array) -> Array:
    """Entry ``x[i, column[i]]`` of every row, shape (m,)."""
    if isinstance(x, np.ndarray):
        return x[np.arange(len(column)), column]
    return x.gather(1, column[:, None])[:, 0]


def sum_by(codes: Array, values: Array, width: int) -> Array:
    """Sums by code of each line of `values` (k, m), in float64: shape (k, width); one code may stand for all."""
    if isinstance(values, np.ndarray) and len(codes) == 1:
        sums = np.zeros((len(values), width))
        sums[:, codes[0]] = values.sum(axis=1)
        return sums
    if isinstance(values, np.ndarray) and (width > MAX_ONE_HOT_WIDTH or len(values) < MIN_ONE_HOT_LINES):
        return np.stack([np.bincount(codes, weights=line, minlength=width) for line in values])
    # For tensors never bincount, which waits for the device to say how long its result is and adds in no fixed order.
    return values @ to_device(np.eye(width), values)[codes]


def renumbered(codes: Array) -> IntArray:
    """Codes 0, 1, … without gaps, shape (n,), in the order of the values."""
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.intp)


def rows_at(x: Array, rows: Any) -> Array:
    """Rows of an array by slice or by an index array on the host."""
    return x[rows] if isinstance(x, np.ndarray) or isinstance(rows, slice) else x[to_device(rows, x)]


@contextmanager
def exact_products(x: Array) -> Iterator[None]:
    """Context in which products of float32 tensors like `x` have full precision, whatever the user's settings.

    TF32 and bfloat16 passes (`torch.set_float32_matmul_precision`, `allow_tf32`) leave ten bits of a product. The
    user's settings are restored at the end.
    """
    if isinstance(x, np.ndarray):
        yield
        return
    import torch

    backends = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        name, exact = "fp32_precision", "ieee"
    else:  # before torch 2.9
        name, exact = "allow_tf32", False  # type: ignore[assignment]
    given = [(backend, getattr(backend, name)) for backend in backends if hasattr(backend, name)]
    if all(setting == exact for _, setting in given):
        yield
        return
    try:
        for backend, _ in given:
            setattr(backend, name, exact)
        yield
    finally:
        for backend, setting in given:
            setattr(backend, name, setting)


def result_to_host(value: Any) -> Any:
    """The value of a statistic on the host, with floating-point tensors as float64 arrays, in a single transfer.

    Takes tensors, numbers, NumPy arrays, and lists, tuples and dataclasses of them; integers and booleans keep their
    dtype, and a zero-dimensional tensor becomes a number.
    """
    tensors = list(_tensors(value))
    return _replaced(value, iter(_transferred(tensors))) if tensors else value


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors of a nested value, in order."""
    if is_tensor(value):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


def _replaced(value: Any, arrays: Iterator[Any]) -> Any:
    """The same nested value with its tensors replaced, in order."""
    if is_tensor(value):
        return next(arrays)
    if isinstance(value, list | tuple):
        return type(value)([_replaced(part, arrays) for part in value])
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(*(_replaced(getattr(value, name), arrays) for name in value.__dataclass_fields__))
    return value


def _transferred(tensors: list[Any]) -> list[Any]:
    """Tensors of one device as NumPy arrays, packed into bytes so that there is one transfer."""
    xp = namespace(tensors[0])
    wide = [(tensor.to(xp.float64) if tensor.is_floating_point() else tensor).contiguous() for tensor in tensors]
    if len(wide) == 1:
        return [wide[0].cpu().numpy()[()]]
    packed = xp.concat([tensor.view(-1).view(xp.uint8) for tensor in wide]).cpu().numpy()
    arrays, start = [], 0
    for tensor in wide:
        kind = np.dtype(str(tensor.dtype).removeprefix("torch."))
        size = tensor.numel() * kind.itemsize
        arrays.append(packed[start : start + size].copy().view(kind).reshape(tuple(tensor.shape))[()])
        start += size
    return arrays


def by_rows(function: Any, x: Array, out: Array, numbers: int = 2**25) -> Array:
    """``out[rows] = function(x[rows])`` over blocks of rows of about `numbers` entries, in at least float32.

    A large half-precision tensor thus never gets a full copy in float32.
    """
    work = x.dtype if x.dtype.itemsize >= 4 else namespace(x).float32
    step = max(1, numbers // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        out[rows] = function(x[rows].to(work))
    return out


def forward(z: Array, vectors: Array, out: Array) -> None:
    """``vectors @ z.T`` into `out` of shape (k, m), for `vectors` (k, d) in the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        out[:] = vectors @ z.T
    elif len(vectors) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = (z @ vectors.T).T  # a third faster than vectors @ z.T for a dozen of them
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = z @ vector


def backward(z: Array, vectors: Array, out: Array) -> None:
    """``vectors @ z`` into `out` of shape (k, d), for `vectors` (k, m) in the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        _backward_in_chunks(z, vectors, out)
    elif len(vectors) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = vectors @ z
    else:
        for line, vector in zip(out, vectors, strict=True):
            line[:] = vector @ z


def _backward_in_chunks(z: Array, vectors: Array, out: Array) -> None:
    """`backward` for tensors, whose blocks may have a million rows: too many to sum products in float32."""
    k, m = vectors.shape
    chunks = m // CHUNK_ROWS
    whole = chunks * CHUNK_ROWS
    out[:] = vectors[:, whole:] @ z[whole:]
    if chunks:
        parts = vectors[:, :whole].reshape(k, chunks, CHUNK_ROWS).transpose(0, 1) @ z[:whole].reshape(
            chunks, CHUNK_ROWS, -1
        )
        out += parts.sum(0, dtype=out.dtype)
