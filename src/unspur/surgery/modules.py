"""A removal in torch. Imports torch, so that only functions that need it import this module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Self

import torch

from unspur.exceptions import InputError
from unspur.subspace import AffineMap

#: Parts of an AffineMap that become tensors.
FACTORS = ("centre", "right", "left", "offset")


def factors_of(removal: AffineMap, dtype: torch.dtype, device: torch.device | None = None) -> list[torch.Tensor]:
    """The factors of a removal, rounded once."""
    # Outside of inference mode: a tensor that is made inside it can never take part in a gradient.
    with torch.inference_mode(False):
        arrays = (getattr(removal, name).copy() for name in FACTORS)  # an AffineMap is read-only, tensors are not
        return [torch.from_numpy(array).to(dtype).to(device) for array in arrays]


def require_rows(rows: torch.Tensor, width: int, where: str) -> None:
    """Raise InputError unless a tensor holds floating-point rows of this width."""
    if not rows.is_floating_point() or rows.ndim == 0 or rows.shape[-1] != width:
        raise InputError(
            f"{where} has shape {tuple(rows.shape)} and {rows.dtype}; the removal needs floating-point rows with a "
            f"last axis of {width} features. Choose the place where the embeddings it was fitted on arise."
        )


def remove(rows: torch.Tensor, factors: list[torch.Tensor], form: str) -> torch.Tensor:
    """Image of rows (..., d) under an AffineMap, in the dtype they came in; gradients flow."""
    work = torch.promote_types(rows.dtype, torch.float32)  # half types have too few digits for products
    centre, right, left, offset = (factor.to(work) for factor in factors)
    with nullcontext() if rows.is_meta else torch.autocast(rows.device.type, enabled=False):
        wide = rows.to(work)
        moved = ((wide - centre) @ right) @ left.T
        return ((wide - moved if form == "remove" else moved) + offset).to(rows.dtype)


class RemovalModule(torch.nn.Module):
    """An AffineMap as a module: rows (..., d) in and out, the factors as buffers.

    The state dict describes the map completely, its form included. ``.half()`` and ``.bfloat16()`` leave the buffers as
    they are, because a rounded projection is none; rows of those types are computed in float32.
    """

    def __init__(self, removal: AffineMap, dtype: torch.dtype | None = None):
        super().__init__()
        dtype = dtype or torch.promote_types(torch.get_default_dtype(), torch.float32)
        if not dtype.is_floating_point or dtype.itemsize < 4:
            raise InputError(f"dtype {dtype} has too few digits for a removal. Pass torch.float32 or torch.float64.")
        for name, factor in zip(FACTORS, factors_of(removal, dtype), strict=True):
            self.register_buffer(name, factor)
        with torch.inference_mode(False):
            self.register_buffer("keeps", torch.tensor(removal.form == "keep"))
        self.form: str = removal.form

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Image of rows (..., d) in the dtype they came in."""
        if not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            require_rows(rows, self.get_buffer("centre").shape[0], "The input")
        return remove(rows, [self.get_buffer(name) for name in FACTORS], self.form)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            if (new := self.get_buffer(name)).dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, old.to(new.device))
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.form = "keep" if bool(self.get_buffer("keeps")) else "remove"

    def extra_repr(self) -> str:
        """Form and sizes, as ``print(model)`` shows them."""
        width, directions = self.get_buffer("right").shape
        return f"{self.form}, features={width}, directions={directions}"
