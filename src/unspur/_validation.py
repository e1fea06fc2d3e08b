"""What estimators share: constraints of parameters, checks of rows and weights, random numbers, failed fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.validation import validate_data

from unspur._arrays import is_instance, require_dense, to_numpy
from unspur._text import brief
from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError, NotFiniteError
from unspur.labels import is_frame
from unspur.rows import RowLabels, RowSource, backend_of, rows_of
from unspur.solvers.statistics import count_not_finite

BALANCE: list[Any] = [StrOptions({"none", "concept", "main", "group"})]
MISSING: list[Any] = [None, str, Real, Options(bool, {True, False})]
STRENGTH: list[Any] = [Interval(Real, 0, 1, closed="both")]
OPTIONAL_COUNT: list[Any] = [None, Interval(Integral, 0, None, closed="left")]

#: Constraints of methods that test directions on held-out rows.
TEST_CONSTRAINTS: dict[str, list[Any]] = {
    "significance_level": [Interval(Real, 0, 1, closed="neither")],
    "balance": BALANCE,
    "penalty": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
    "cv": ["cv_object", HasMethods("split"), Interval(Real, 0, 1, closed="neither")],
    "smallest_group": [Interval(Integral, 2, None, closed="left")],
    "missing_concept": MISSING,
    "strength": STRENGTH,
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
#: Arguments of their `fit` that pipelines and searches route without a request for each.
FIT_METADATA = {
    "concept": True,
    "sample_weight": True,
    "X_val": True,
    "y_val": True,
    "concept_val": True,
    "sample_weight_val": True,
    "clusters": True,
    "clusters_val": True,
}


def check_rows(estimator: BaseEstimator, X: Array, *, reset: bool) -> Array:
    """Rows as a two-dimensional floating-point array, copied only if necessary, on their own backend."""
    require_dense(X)
    if backend_of(X) != "memory":
        return _checked_elsewhere(estimator, X, reset=reset)
    # Whole numbers become float64; those of a memory map in a fit stay where they are, and do so block by block.
    mapped = reset and isinstance(X, np.memmap) and X.dtype.kind in "iu"
    kinds = [X.dtype] if mapped else [np.float64, np.float32, np.float16]
    return validate_numeric(estimator, X, reset=reset, dtype=kinds)


def validate_numeric(estimator: BaseEstimator, X: Array, *, reset: bool, dtype: list[Any]) -> Array:
    """Rows validated by scikit-learn, which also compares names of columns with those of the fit."""
    names = column_names(X) or []
    if twice := [name for name in names if names.count(name) > 1] if len(set(names)) < len(names) else []:
        raise InputError(f"X has {len(twice)} columns called {twice[0]!r}. Give each a name of its own.")
    if np.ma.isMaskedArray(X) and np.ma.getmaskarray(X).any():
        raise InputError(f"X has {np.ma.getmaskarray(X).sum()} masked values. Drop those rows or fill the values in.")
    try:
        return validate_data(estimator, X, reset=reset, dtype=dtype, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        odd = next((name for name in names if not _is_numeric(X[name])), None)
        what = "X" if odd is None else f"Column {odd!r} of X"
        library = type(X).__module__.partition(".")[0]
        if "could not convert string" in str(error):
            what += f" holds text ({error})"
        elif odd is not None:
            what += f" holds {X[odd].dtype}"
        elif isinstance(error, TypeError) and library in ("cupy", "jax", "jaxlib", "tensorflow"):
            raise InputError(
                f"X is an array of {library}; pass one of NumPy, torch or Dask, or a DataFrame."
            ) from error
        else:
            raise
        raise InputError(
            f"{what}; features are numbers. Leave the column out, or turn it into numbers first."
        ) from error


def _is_numeric(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _checked_elsewhere(estimator: BaseEstimator, X: Array, *, reset: bool) -> Array:
    """The checks of scikit-learn for rows on a device or on a cluster, without reading them."""
    if backend_of(X) == "dask" and not is_instance(X, "dask", "Array"):
        raise InputError(
            f"X is a {type(X).__name__} of Dask; pass an array, of a DataFrame X.to_dask_array().compute_chunk_sizes()."
        )
    # Integers and booleans become float64, as scikit-learn makes them.
    if backend_of(X) == "torch" and not X.is_floating_point() and not X.is_complex():
        X = X.double()
    if backend_of(X) == "dask" and X.dtype.kind in "biu":
        X = X.astype(np.float64)
    shape, kind = tuple(X.shape), str(X.dtype).removeprefix("torch.")
    if len(shape) != 2 or kind not in ("float64", "float32", "float16", "bfloat16"):
        raise InputError(f"X is {kind} of shape {shape}; rows must be floating point of shape (n, d).")
    n_rows, n_features = shape
    if not n_rows > 0 or not n_features > 0:  # also of unknown length, which is NaN
        raise InputError(
            f"X has shape {shape}; at least one row and one feature, and a known number of them, are needed."
            + (" X.compute_chunk_sizes() counts the rows of a Dask array." if n_rows != n_rows else "")
        )
    if reset:
        estimator.n_features_in_ = n_features
        estimator.__dict__.pop("feature_names_in_", None)
    elif estimator.n_features_in_ != n_features:
        name = type(estimator).__name__
        raise InputError(f"X has {n_features} features, but {name} was fitted on {estimator.n_features_in_}.")
    return X


def column_names(rows: Any) -> list[Any] | None:
    """Names of the columns of a DataFrame, or those of a fit; else None. Raises InputError for a Series."""
    if hasattr(rows, "loc") and getattr(rows, "ndim", 2) == 1:
        raise InputError(
            f"X is a {type(rows).__name__} of {len(rows)} values; rows must be numbers in an array (n, d). A column of "
            "vectors becomes one by np.stack(X)."
        )
    names = rows.columns if is_frame(rows) else getattr(rows, "feature_names_in_", None)
    return None if names is None else list(names)


def require_same_columns(given: Mapping[str, Any], advice: str = "Select the same columns, in the same order.") -> None:
    """Raise InputError if columns differ in name or order from those of the first that has names.

    `given` maps descriptions to rows or estimators; those without names are not compared.
    """
    named = {what: names for what, rows in given.items() if (names := column_names(rows)) is not None}
    first, wanted = next(iter(named.items()), ("", []))
    for what, names in named.items():
        if names == wanted:
            continue
        moved = next(((one, other) for one, other in zip(names, wanted, strict=False) if one != other), None)
        seen = f"{len(names)}, not {len(wanted)}" if moved is None else f"{moved[0]!r} where {moved[1]!r} is expected"
        raise InputError(f"The columns of {what} are not those of {first}, in the same order: {seen}. {advice}")


def require_finite(estimator: BaseEstimator, z: Array, what: str = "X") -> None:
    """Raise NotFiniteError with columns and counts unless all rows are finite."""
    if not len(z):  # a chunk of a Dask array may be empty
        return
    if backend_of(z) == "dask":
        from unspur.rows.dask import per_chunk

        if all(per_chunk(z, is_finite)):
            return
    rows = unlabelled_source(z)
    counts = count_not_finite(rows)
    if counts.any():
        names = getattr(estimator, "feature_names_in_", np.arange(counts.shape[1]))
        found = "; ".join(
            f"{int(line.sum()):,} {kind} in column {brief(', '.join(map(str, names[line > 0])), 60)}"
            for kind, line in zip(("NaN", "infinite"), counts, strict=True)
            if line.any()
        )
        raise NotFiniteError(f"{what} must be finite; found {found}. Drop those rows or fill the values in.")


def is_finite(z: Array) -> bool:
    """Whether the sum of an array is finite; then all its values are, and else they may be."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(z.sum()))


def unlabelled_source(z: Array) -> RowSource:
    """Rows for statistics that look at no label: one number stands for those of all rows."""
    return rows_of(z, RowLabels.none(len(z)))


def checked_weights(given: Array | None, name: str, n: int, *, relative: bool = True) -> FloatArray:
    """Sample weights (n,), ones by default; divided by the largest if `relative`."""
    if given is None:
        return np.ones(n)
    weight = np.asarray(to_numpy(given))
    if weight.shape != (n,) or weight.dtype.kind not in "biuf":
        raise InputError(f"{name} is {weight.dtype} of shape {weight.shape}; {n} real numbers are needed, one per row.")
    weight = weight.astype(np.float64)
    if not np.all(np.isfinite(weight)) or weight.min() < 0 or not weight.max() > 0:
        faults = int(np.sum(~np.isfinite(weight)))  # masked values are NaN here
        found = f"; found {faults:,} missing or infinite. Use zero for rows that should not count" if faults else ""
        raise InputError(f"{name} must be finite and not negative, with some weight above zero{found}.")
    largest = weight.max()
    if weight[weight > 0].min() < 1e-12 * largest:
        raise InputError(
            f"{name} spans more than twelve orders of magnitude; rows that count so little should get zero."
        )
    return weight / largest if relative else weight


def generator(random_state: Any) -> np.random.Generator:
    """The generator of a fit, from the `random_state` of an estimator."""
    return np.random.default_rng(check_random_state(random_state).randint(2**31 - 1, size=4))


@contextmanager
def restore_on_failure(estimator: BaseEstimator) -> Iterator[None]:
    """Undo every change of the estimator if the block fails: a failed fit leaves it as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
