"""Principal components of training rows: fewer features for everything that comes after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from sklearn.decomposition import PCA

from unspur._reading import brief, require_regular
from unspur._typing import Array, FloatArray
from unspur.exceptions import ArtifactError, InputError
from unspur.io.artifact import atomic

#: Numbers up to which reduced rows stay finite.
LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Reduction:
    """z = (x - mean) @ components, with orthonormal components of shape (d, k); not whitened."""

    mean: FloatArray
    components: FloatArray

    @classmethod
    def fit(cls, rows: Array, k: int) -> Reduction:
        """The k directions of largest variance of rows of shape (n, d), exactly and always with the same signs."""
        if not 1 <= k <= min(rows.shape):
            raise InputError(f"{len(rows)} rows of {rows.shape[1]} features have no {k} principal components.")
        # Through the covariance where there are more rows than features; both ways are exact.
        solver = "covariance_eigh" if len(rows) > rows.shape[1] else "full"
        fitted = PCA(k, svd_solver=solver).fit(np.asarray(rows, dtype=np.float64))
        return cls(fitted.mean_, fitted.components_.T.copy())

    def write(self, path: Path) -> None:
        """Keep it in a file."""
        with atomic(path, overwrite=True) as temporary:
            temporary.write_bytes(save({"mean": self.mean, "components": self.components}))

    @classmethod
    def read(cls, path: Path) -> Reduction:
        """From a file that `write` made."""
        try:
            require_regular(path)
            found = load_file(path)
            mean, components = found["mean"], found["components"]
            if components.ndim != 2 or mean.shape != components.shape[:1]:
                raise ValueError(f"a mean of shape {mean.shape} does not go with components of {components.shape}")
            if not all(np.abs(array).max(initial=0.0) <= LARGEST for array in (mean, components)):  # also of NaN
                raise ValueError("it holds NaN, infinity or numbers as large")
        except (OSError, KeyError, ValueError, TypeError, AttributeError, SafetensorError) as error:
            raise ArtifactError(
                f"{path} cannot be read as a reduction ({brief(repr(error))}). Embed again with --force."
            ) from error
        return cls(mean, components)

    def __call__(self, rows: Array) -> FloatArray:
        """Reduced rows, shape (n, k)."""
        return np.asarray((rows - self.mean) @ self.components)

    def back(self, rows: Array) -> FloatArray:
        """Rows of the original width: what the components know of them."""
        return np.asarray(rows @ self.components.T + self.mean)
