"""Rows in a torch tensor on any device; only the results of sums leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from unspur._arrays import exact_products, multiplies_halves, result_to_host, to_device_like
from unspur._typing import Array, IntArray
from unspur.rows.source import (
    BLOCK_BYTES,
    MAX_BLOCK_ROWS,
    MAX_UNCENTRED_DISTANCE,
    MIN_BLOCK_ROWS,
    Block,
    LabelledRows,
    RowLabels,
    S,
    Weighting,
    add_up,
    slices,
)

#: Bytes of a float64 block on a device: large enough to hide kernel launches, and small beside Z.
DEVICE_BLOCK_BYTES = 2**27
#: Most rows of a block on a device: temporaries of narrow rows are larger than the rows themselves.
MAX_DEVICE_BLOCK_ROWS = 2**20
#: Rows of a block that is only multiplied with (see `TorchRows.sum`).
THIN_BLOCK_ROWS = 2**22


class TorchRows(LabelledRows):
    """Rows of a tensor of shape (n, d), float64, float32, float16 or bfloat16; never copied, never moved.

    float16 and bfloat16 rows become float32 block by block. Columns go to the device once, when they are first needed.
    A sum is added up on the device and comes to the host when it is complete: the one time that it waits for the
    device. Products of float32 are products of float32, whatever precision the user allows networks.
    """

    def __init__(self, z: torch.Tensor, labels: RowLabels, *, block_rows: int | None = None):
        super().__init__(z.shape, labels, np.dtype(np.float64 if z.dtype == torch.float64 else np.float32))
        self._z = z.detach()
        self._placed: RowLabels | None = None
        width = max(1, self.n_features)
        if block_rows is not None:
            self._block_rows = self._thin_rows = block_rows
        elif z.device.type == "cpu":
            fitting = BLOCK_BYTES // (width * self.dtype.itemsize)
            self._block_rows = self._thin_rows = min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, fitting))
        else:
            self._block_rows = min(MAX_DEVICE_BLOCK_ROWS, max(MIN_BLOCK_ROWS, DEVICE_BLOCK_BYTES // (8 * width)))
            self._thin_rows = THIN_BLOCK_ROWS if z.dtype.itemsize >= 4 else self._block_rows

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_placed": None}

    @property
    def _work(self) -> torch.dtype:
        return torch.float64 if self._z.dtype == torch.float64 else torch.float32

    @property
    def _beside(self) -> RowLabels:
        """The labels on the device."""
        if self._placed is None:
            targets, cell, weight = (
                _moved(column, self._z.device) for column in (self.labels.targets, self.labels.cell, self.labels.weight)
            )
            self._placed = RowLabels(targets, cell, weight, self.n_folds)  # type: ignore[arg-type]
        return self._placed

    def _read(self, rows: Any) -> torch.Tensor:
        return self._z[rows].to(self._work)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, in row order; added up on the device, one transfer to the host.

        A statistic that is `thin` makes no copy of the rows and gets large blocks, on a GPU also of half precision.
        """
        thin = bool(getattr(statistic, "thin", False))
        plain = thin and self._z.dtype.itemsize < 4 and multiplies_halves(str(self._z.device), self._z.dtype)
        size = self._thin_rows if thin else self._block_rows
        with exact_products(self._z):
            blocks = (
                self._beside.block(self._z[rows] if plain else self._read(rows), rows)
                for rows in slices(self.n_rows, size)
            )
            result: S = result_to_host(add_up(map(statistic, blocks)))
        return result

    def project(self, directions: Array, centre: Array) -> TorchRows:
        """Rows ``(z − centre) @ directions`` in float64, on the same device."""
        projected = self._z.new_empty((directions.shape[1], self.n_rows), dtype=torch.float64)
        if directions.shape[1]:
            with exact_products(self._z):
                self._fill(projected, to_device_like(directions, projected), to_device_like(centre, projected))
        source = TorchRows(projected.T, self.labels)
        source._placed = self._beside
        return source

    def _fill(self, projected: torch.Tensor, directions: torch.Tensor, centre: torch.Tensor) -> None:
        """Write the projected rows, centred before the product where they lie far from zero, else after."""
        vectors, shift = directions.to(self._work), centre.to(self._work)
        offset = (centre @ directions)[:, None]

        def plain(rows: slice) -> torch.Tensor:
            return (self._read(rows) @ vectors).T.to(torch.float64) - offset

        first = plain(slice(0, min(self._block_rows, self.n_rows)))
        reach = directions.abs().T @ centre.abs()
        # Decided once, on the first block, so that there is one wait for the device and not one for every block.
        far = bool((reach > MAX_UNCENTRED_DISTANCE * first.std(1, correction=0)).any())
        size = self._block_rows if far else self._thin_rows
        for rows in slices(self.n_rows, size):
            # A large common offset takes digits of the product with it: centre the rows first.
            projected[:, rows] = ((self._read(rows) - shift) @ vectors).T if far else plain(rows)

    def _take(self, rows: IntArray, labels: RowLabels) -> TorchRows:
        return TorchRows(self._z[torch.as_tensor(rows, device=self._z.device)], labels)

    def minibatches(self, size: int, rng: np.random.Generator, weighting: Weighting) -> Iterator[Block]:
        """One epoch of random blocks (see :class:`RowSource`), on the host: drawn here, fetched many at a time.

        A batch is so small that a device takes longer to be told what to do than a processor takes to do it.
        """
        return self._fetched_minibatches(
            size, rng, weighting, lambda rows: self._read(torch.as_tensor(rows, device=self._z.device)).cpu().numpy()
        )


def _moved(column: Array, device: torch.device) -> torch.Tensor:
    """A column on the device; a broadcast column is sent as one number."""
    same = column.size > 1 and not any(column.strides)
    values = np.array(column[(slice(1),) * column.ndim] if same else column)  # torch warns of what cannot be written
    placed = torch.from_numpy(values).to(device)
    return placed.expand(column.shape) if same else placed
