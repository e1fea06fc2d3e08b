"""How well a feature can be rebuilt from rows by least squares."""

from __future__ import annotations

import numpy as np

from unspur._arrays import to_numpy
from unspur._typing import Array
from unspur.exceptions import InputError
from unspur.metrics.probes import checked_rows


def reconstruction_error(rows: Array, feature: Array) -> float:
    """Root mean squared error of a least-squares fit of a feature (n,) on rows (n, d), in the unit of the feature.

    Rows are fitted and tested together, as in the paper (section 4.3). Use a large test set that no removal was fitted
    on and in which the features are independent, or one of them is rebuilt from the other.
    """
    z = checked_rows(rows, "rows").astype(np.float64)
    values = np.asarray(to_numpy(feature), dtype=np.float64)
    if values.shape != (len(z),) or not np.all(np.isfinite(values)):
        raise InputError(f"feature must be {len(z)} finite numbers, one per row; got shape {values.shape}.")
    if len(z) < z.shape[1] + 2:
        raise InputError(
            f"There are {len(z)} rows of {z.shape[1]} columns: any feature is rebuilt perfectly. Pass more rows."
        )
    z -= z.mean(axis=0)
    centred = values - values.mean()
    axes, widths, _ = np.linalg.svd(z, full_matrices=False)
    # Rows keep rounding errors along a removed axis, which the fit must not read.
    kind = str(getattr(rows, "dtype", "float64")).removeprefix("torch.")
    eps = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(kind) or 64 * np.finfo(checked_rows(rows).dtype).eps
    axes = axes[:, widths > max(eps, len(z) * 1e-16) * widths[0]]
    return float(np.sqrt(np.mean((centred - axes @ (axes.T @ centred)) ** 2)))
