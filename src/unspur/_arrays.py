"""Operations that NumPy and torch spell differently, so that every statistic is written once for both.

Operators, slices and in-place arithmetic are the same in both libraries; the rest is here. A tensor brings its library
along, so nothing here imports torch before there is one. No helper but `result_to_host` waits for a device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import array_api_compat
import array_api_compat.numpy
import numpy as np

from unspur._typing import Array, FloatArray, IntArray
from unspur.exceptions import InputError

#: From this many numbers on, a few matrix-vector products one by one are faster than a product with a thin matrix,
#: for which OpenBLAS copies the large operand first.
MIN_MATVEC_SIZE, MAX_MATVECS = 2**17, 6
#: Sums by code of at least so many lines into at most so many columns are one product with a one-hot matrix.
MIN_ONE_HOT_LINES, MAX_ONE_HOT_WIDTH = 4, 8
#: Rows of a tensor whose products are summed in float32, and of half precision, where tensor cores cut digits off at
#: every step; sums of chunks are added in float64.
CHUNK_ROWS, HALF_CHUNK_ROWS = 8192, 512
#: Parts of half precision that together hold a float32, and the exponent that the largest number of a line gets.
N_PARTS, PART_EXPONENT, MAX_EXPONENT = 3, 12, 120
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


def is_instance(x: Any, library: str, class_name: str | None = None) -> bool:
    """Whether `x` is an instance of a class of `library`, without importing it."""
    return any(
        base.__module__.partition(".")[0] == library and class_name in (None, base.__name__) for base in type(x).__mro__
    )


def is_tensor(x: Any) -> bool:
    """Whether `x` is a torch tensor; imports nothing."""
    return is_instance(x, "torch", "Tensor")


def require_dense(x: Any) -> None:
    """Raise InputError for sparse arrays and tensors: each entry needs a plain value."""
    if is_tensor(x):
        if x.is_nested or x.is_quantized or x.device.type == "meta" or str(x.layout) != "torch.strided":
            raise InputError(
                f"Got a tensor of {x.dtype} on {x.device} that is sparse, nested, quantised or without values. Pass a "
                "dense tensor of plain numbers, such as .to_dense() of it."
            )
    elif is_instance(x, "scipy") and hasattr(x, "toarray"):
        raise InputError(
            f"Got a sparse {type(x).__name__} of shape {x.shape}; rows are dense. Pass .toarray() of it, or fewer "
            "components of it (sklearn.decomposition.TruncatedSVD)."
        )


def to_numpy(x: Any) -> Any:
    """A tensor as a NumPy array (bfloat16, which NumPy lacks, as float32); anything else unchanged.

    Masked values of an array become missing ones: NaN, or None where there is no NaN.
    """
    require_dense(x)
    if np.ma.isMaskedArray(x):
        mask = np.ma.getmaskarray(x)
        plain = x.data if not mask.any() else x.data.astype(x.dtype if x.dtype.kind == "f" else object)
        if mask.any():
            plain[mask] = np.nan if x.dtype.kind == "f" else None
        return plain
    if not is_tensor(x):
        return x
    plain = x.detach().cpu()
    return (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy()


def to_python(value: Any) -> Any:
    """A NumPy scalar as a plain Python value; anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def renumbered(codes: Array) -> IntArray:
    """Codes 0, 1, … without gaps, shape (n,), in the order of the values."""
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.intp)


# Between the host and a device


def to_device(host: Array, x: Array) -> Array:
    """A NumPy array on the device of `x`, in its own dtype, without waiting for what the device is doing."""
    if isinstance(x, np.ndarray):
        return host
    # Torch warns of arrays that cannot be written.
    plain = host if host.flags.c_contiguous and host.flags.writeable else host.copy(order="C")
    return namespace(x).from_numpy(plain).to(x.device, non_blocking=True)


def to_device_like(host: Array, x: Array) -> Array:
    """A NumPy array on the device and in the dtype of `x`; copied only if necessary."""
    return host.astype(x.dtype, copy=False) if isinstance(x, np.ndarray) else to_device(host, x).to(x.dtype)


def result_to_host(value: Any) -> Any:
    """The value of a statistic with its tensors as NumPy arrays, those of floating-point numbers in float64.

    Takes tensors, and lists, tuples and dataclasses of them. A tensor of no dimension becomes a number.
    """
    if is_tensor(value):
        return (value.double() if value.is_floating_point() else value).cpu().numpy()[()]
    if isinstance(value, list | tuple):
        return type(value)([result_to_host(part) for part in value])
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(*(result_to_host(getattr(value, name)) for name in value.__dataclass_fields__))
    return value


# Arithmetic


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


def empty64(shape: tuple[int, ...] | int, x: Array, kind: type = np.float64) -> FloatArray:
    """An uninitialised array on the device of `x`, of float64 or of another NumPy type."""
    if isinstance(x, np.ndarray):
        return np.empty(shape, kind)
    filled: FloatArray = x.new_empty(shape, dtype=getattr(namespace(x), kind.__name__))  # what it is once on the host
    return filled


def at_least(x: Array, least: float) -> Array:
    """The larger of `x` and a number."""
    return np.maximum(x, least) if isinstance(x, np.ndarray) else x.clamp(min=least)


def take_rows(x: Array, which: Array) -> Array:
    """Rows of a small matrix by index; `which` is on the host."""
    if isinstance(x, np.ndarray):
        return x[which]
    # Numbers of lines are few: basic indexing sends nothing to the device.
    return namespace(x).stack([x[int(i)] for i in which])


def take_along(x: Array, column: Array) -> Array:
    """Entry ``x[i, column[i]]`` of every row, shape (m,)."""
    return x[np.arange(len(column)), column] if isinstance(x, np.ndarray) else x.gather(1, column[:, None])[:, 0]


def rows_at(x: Array, rows: Any) -> Array:
    """Rows of an array by slice or by an index array on the host."""
    return x[rows] if isinstance(x, np.ndarray) or isinstance(rows, slice) else x[to_device(rows, x)]


def sum_by(codes: Array, values: Array, width: int) -> Array:
    """Sums by code of each line of `values` (k, m), in float64: shape (k, width); one code may stand for all."""
    if isinstance(values, np.ndarray) and len(codes) == 1:
        sums = np.zeros((len(values), width))
        sums[:, codes[0]] = values.sum(axis=1)
        return sums
    if isinstance(values, np.ndarray) and (width > MAX_ONE_HOT_WIDTH or len(values) < MIN_ONE_HOT_LINES):
        return np.stack([np.bincount(codes, weights=line, minlength=width) for line in values])
    # Not bincount for tensors: it waits for the device to know its length, and adds in no fixed order.
    return values @ to_device(np.eye(width), values)[codes]


# Products of rows z (m, d) with a few lines: w zᵀ (k, m) of weights, r z (k, d) of residuals


def forward(z: Array, weights: Array, out: Array) -> None:
    """``weights @ z.T`` into `out` of shape (k, m), for `weights` (k, d) in at least the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        weights = to_device(weights, z) if isinstance(weights, np.ndarray) else weights
        out[:] = _half_product(weights, z.T) if z.dtype.itemsize < 4 else weights.to(z.dtype) @ z.T
        return
    weights = weights.astype(z.dtype, copy=False)
    if len(weights) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = (z @ weights.T).T  # a third faster than weights @ z.T for a dozen of them
    else:
        for line, vector in zip(out, weights, strict=True):
            line[:] = z @ vector


def backward(z: Array, residual: Array, out: Array) -> None:
    """``residual @ z`` into `out` of shape (k, d), for `residual` (k, m) in at least the dtype of `z` (m, d)."""
    if not isinstance(z, np.ndarray):
        half = z.dtype.itemsize < 4
        product = _half_product if half else lambda r, rows: r.to(rows.dtype) @ rows
        size = HALF_CHUNK_ROWS if half else CHUNK_ROWS
        whole = len(z) // size * size
        out[:] = product(residual[:, whole:], z[whole:]) if whole < len(z) else 0.0
        if whole:
            parts = residual[:, :whole].reshape(len(residual), -1, size).transpose(0, 1)
            out += product(parts, z[:whole].reshape(-1, size, z.shape[1])).sum(0, dtype=out.dtype)
        return
    residual = residual.astype(z.dtype, copy=False)
    if len(residual) > MAX_MATVECS or z.size < MIN_MATVEC_SIZE:
        out[:] = residual @ z
    else:
        for line, vector in zip(out, residual, strict=True):
            line[:] = vector @ z


def _half_product(lines: Array, z: Array) -> Array:
    """``lines @ z`` in float32, for `lines` (…, k, m) of any precision and half-precision `z` (…, m, d) on a GPU.

    Each line is a power of two times the sum of `N_PARTS` lines of half precision, so tensor cores lose no digits.
    """
    xp, k = namespace(z), lines.shape[-2]
    exponent = (PART_EXPONENT - xp.frexp(abs(lines).amax(-1, keepdim=True)).exponent).clamp(max=MAX_EXPONENT)
    rest, parts = xp.ldexp(lines, exponent), []
    for _ in range(N_PARTS):
        parts.append(rest.to(z.dtype))
        rest = rest - parts[-1]
    product = xp.bmm if lines.ndim == 3 else xp.mm
    found = product(xp.concat(parts, axis=-2), z, out_dtype=xp.float32)
    return xp.ldexp(sum(found.split(k, dim=-2)), -exponent)


@functools.cache
def multiplies_halves(device: str, kind: Any) -> bool:
    """Whether torch multiplies half-precision numbers on a device with results in float32, as CUDA does since 2.8."""
    import torch

    numbers = torch.ones((16, 16), dtype=kind, device=device)
    try:
        torch.mm(numbers, numbers, out_dtype=torch.float32)
    except (TypeError, RuntimeError):  # NotImplementedError is one
        return False
    return True


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

    matmul = torch.backends.cuda.matmul
    name, exact = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", False)
    backends = [one for one in (matmul, getattr(torch.backends.mkldnn, "matmul", None)) if hasattr(one, name)]
    given = [getattr(backend, name) for backend in backends]
    try:
        for backend in backends:
            setattr(backend, name, exact)
        yield
    finally:
        for backend, setting in zip(backends, given, strict=True):
            setattr(backend, name, setting)


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
