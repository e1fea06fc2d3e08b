"""Rows in a torch tensor on any device; only the results of sums leave it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

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
    RowLabels,
    RowSource,
    S,
    add_up,
    slices,
)

#: Bytes of a float64 block on a device: large enough to hide kernel launches, and small beside Z.
DEVICE_BLOCK_BYTES = 2**27
#: Most rows of a block on a device, and rows of a block that is only multiplied: temporaries of narrow rows are large.
MAX_DEVICE_BLOCK_ROWS, THIN_BLOCK_ROWS = 2**20, 2**22


class TorchRows(RowSource):
    """Rows of a tensor of shape (n, d), float64, float32, float16 or bfloat16; never copied, never moved.

    Labels go to the device once, when they are first needed. A sum is added up on the device and comes to the host when
    it is complete. Products of float32 are products of float32, whatever precision the user allows networks.
    """

    def __init__(self, z: torch.Tensor, labels: RowLabels, *, block_rows: int | None = None):
        super().__init__(z.shape, labels, np.dtype(np.float64 if z.dtype == torch.float64 else np.float32))
        self._z, width = z.detach(), max(1, self.n_features)
        self._kind = torch.float64 if z.dtype == torch.float64 else torch.float32
        if block_rows is None and z.device.type == "cpu":
            block_rows = min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, BLOCK_BYTES // (width * self.dtype.itemsize)))
        fitting = min(MAX_DEVICE_BLOCK_ROWS, max(MIN_BLOCK_ROWS, DEVICE_BLOCK_BYTES // (8 * width)))
        self._block_rows = block_rows or fitting
        #: Half precision is multiplied as it is where the device can; elsewhere a block of it is a copy, and smaller.
        self._as_stored = z.dtype.itemsize >= 4 or multiplies_halves(z.device.type, z.dtype)
        self._thin_rows = block_rows or (THIN_BLOCK_ROWS if self._as_stored else fitting)

    @cached_property
    def _beside(self) -> RowLabels:
        """The labels on the device; a label that is one number for all rows is sent as one number."""

        def moved(column: Array) -> torch.Tensor:
            same = column.size > 1 and not any(column.strides)
            values = np.array(column[(slice(1),) * column.ndim] if same else column)  # torch warns of read-only ones
            return torch.from_numpy(values).to(self._z.device).expand(column.shape)

        given = self.labels
        return RowLabels(moved(given.targets), moved(given.cell), moved(given.weight), given.n_folds)  # type: ignore[arg-type]

    def _read(self, rows: slice) -> torch.Tensor:
        return self._z[rows].to(self._kind)

    def sum(self, statistic: Callable[[Block], S]) -> S:
        """Sum of `statistic` over blocks of rows, in row order; added up on the device.

        A statistic that is `thin` makes no copy of the rows and gets large blocks, of half precision if possible.
        """
        thin = bool(getattr(statistic, "thin", False))
        read = self._z.__getitem__ if thin and self._as_stored else self._read
        blocks = (
            self._beside.block(read(rows), rows)
            for rows in slices(self.n_rows, self._thin_rows if thin else self._block_rows)
        )
        with exact_products(self._z):
            result: S = result_to_host(add_up(map(statistic, blocks)))
        return result

    def project(self, directions: Array, centre: Array) -> TorchRows:
        """Rows ``(z − centre) @ directions`` in float64, on the same device."""
        projected = self._z.new_empty((directions.shape[1], self.n_rows), dtype=torch.float64)
        if directions.shape[1]:
            with exact_products(self._z):
                self._fill(projected, to_device_like(directions, projected), to_device_like(centre, projected))
        source = TorchRows(projected.T, self.labels)
        source.__dict__["_beside"] = self._beside
        return source

    def _fill(self, projected: torch.Tensor, directions: torch.Tensor, centre: torch.Tensor) -> None:
        """Write the projected rows, centred before the product where they lie far from zero, else after."""
        vectors, shift = directions.to(self._kind), centre.to(self._kind)
        offset = (centre @ directions)[:, None]

        def plain(rows: slice) -> torch.Tensor:
            return (self._read(rows) @ vectors).T.to(torch.float64) - offset

        first = plain(slice(0, min(self._block_rows, self.n_rows)))
        reach = directions.abs().T @ centre.abs()
        # Decided once, on the first block, so that there is one wait for the device and not one for every block.
        far = bool((reach > MAX_UNCENTRED_DISTANCE * first.std(1, correction=0)).any())
        for rows in slices(self.n_rows, self._block_rows):
            projected[:, rows] = ((self._read(rows) - shift) @ vectors).T if far else plain(rows)

    def _take(self, rows: IntArray, labels: RowLabels) -> TorchRows:
        return TorchRows(self._z[torch.as_tensor(rows, device=self._z.device)], labels)
