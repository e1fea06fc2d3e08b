"""How well a known feature can be rebuilt from rows by least squares: for data whose truth is known, such as Toy."""

from __future__ import annotations

import numpy as np

from unspur._arrays import on_numpy
from unspur._typing import Array, FloatArray
from unspur.exceptions import InputError
from unspur.metrics.probes import checked_rows


def explained_variance(rows: Array, feature: Array) -> float:
    """Share of a feature's variance in % that a least-squares fit on rows explains: ``100 (1 − var(f − f̂)/var(f))``.

    `rows` (n, d) and `feature` (n,) are fitted and judged together, as in the paper (section 4.3). Use a large test set
    that no removal was fitted on and in which the features are independent, or one of them is rebuilt from the other;
    with n rows chance alone explains about ``100 d / n``.
    """
    residual, values = _residual(rows, feature)
    return float(100 * (1 - residual.var() / values.var()))


def reconstruction_error(rows: Array, feature: Array) -> float:
    """Root of the mean squared error of the same fit, in the unit of the feature; its square is the paper's MSE."""
    residual, _ = _residual(rows, feature)
    return float(np.sqrt(np.mean(residual**2)))


def _residual(rows: Array, feature: Array) -> tuple[FloatArray, FloatArray]:
    rows = on_numpy(rows)
    z = checked_rows(rows, "rows")
    values = np.asarray(on_numpy(feature), dtype=np.float64)
    if values.shape != (len(z),) or not np.all(np.isfinite(values)):
        raise InputError(f"feature must be {len(z)} finite numbers, one per row; got shape {values.shape}.")
    if not values.std() > 1e-13 * np.abs(values).max(initial=0.0):
        raise InputError("feature is constant: there is no variance to explain.")
    if len(z) < z.shape[1] + 2:
        raise InputError(
            f"There are {len(z)} rows of {z.shape[1]} columns: any feature is rebuilt perfectly. Pass more rows."
        )
    # float32 rows keep rounding errors along a removed axis; a least-squares fit must not read them.
    narrow = float(np.finfo(np.asarray(rows).dtype).eps) if np.asarray(rows).dtype.kind == "f" else 0.0
    z = z.astype(np.float64)
    z -= z.mean(axis=0)
    centred = values - values.mean()
    cut = max(64 * narrow, len(z) * float(np.finfo(np.float64).eps))
    return centred - z @ np.linalg.lstsq(z, centred, rcond=cut)[0], values
