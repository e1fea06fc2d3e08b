"""A removal in torch. Imports torch, so that only functions that need it import this module."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self

import torch

from unspur.exceptions import IllConditionedWarning, InputError
from unspur.subspace import AffineMap


class Factors(NamedTuple):
    """Centre (d,), right and left (d, k) and offset (d,) of an AffineMap as tensors."""

    centre: torch.Tensor
    right: torch.Tensor
    left: torch.Tensor
    offset: torch.Tensor


def factors_of(removal: AffineMap, dtype: torch.dtype, device: torch.device | None = None) -> Factors:
    """The factors of a removal, rounded once."""
    # Copies, because an AffineMap is read-only and torch tensors are not. Outside inference mode, because a tensor that
    # is made inside it can never take part in a gradient.
    with torch.inference_mode(False):
        arrays = (removal.centre, removal.right, removal.left, removal.offset)
        return Factors(*(torch.from_numpy(array.copy()).to(dtype).to(device) for array in arrays))


def working_dtype(rows: torch.Tensor) -> torch.dtype:
    """The dtype of the rows, or float32 for the half types: they have too few digits for products."""
    return torch.promote_types(rows.dtype, torch.float32)


def require_rows(rows: torch.Tensor, width: int, where: str) -> None:
    """Raise InputError unless a tensor holds floating-point rows of this width."""
    if not rows.is_floating_point():
        raise InputError(f"{where} is a tensor of {rows.dtype}; a removal needs floating-point rows.")
    if rows.ndim == 0 or rows.shape[-1] != width:
        raise InputError(
            f"{where} has shape {tuple(rows.shape)}; the removal needs a last axis of {width} features. "
            "Choose the place where the embeddings it was fitted on arise, or move their axis to the end."
        )


def remove(rows: torch.Tensor, factors: Factors, form: str) -> torch.Tensor:
    """Image of rows (..., d) under an AffineMap, in the dtype they came in; gradients flow."""
    work = working_dtype(rows)
    centre, right, left, offset = (factor.to(work) for factor in factors)
    with _full_precision(rows.device.type):
        wide = rows.to(work)
        moved = ((wide - centre) @ right) @ left.T
        image = wide - moved if form == "remove" else moved
        return (image + offset).to(rows.dtype)


def _full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Context in which autocast does not use half precision."""
    block: AbstractContextManager[Any] = nullcontext()
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        block = torch.autocast(device_type, enabled=False)
    return block


class RemovalModule(torch.nn.Module):
    """An AffineMap as a module: rows (..., d) in and out, the factors as buffers.

    The state dict describes the map completely, its form included. ``.half()`` and ``.bfloat16()`` leave the buffers as
    they are, because a rounded projection is none; rows of those types are computed in float32. The buffers have
    float32 at least, whatever torch's default dtype is.
    """

    centre: torch.Tensor
    right: torch.Tensor
    left: torch.Tensor
    offset: torch.Tensor
    keeps: torch.Tensor

    def __init__(self, removal: AffineMap, dtype: torch.dtype | None = None):
        super().__init__()
        if dtype is not None and (not dtype.is_floating_point or dtype.itemsize < 4):
            raise InputError(
                f"dtype={dtype} has too few digits for a removal, which would leave part of the concept; pass "
                "torch.float32 or torch.float64. Rows may be of any floating type: theirs is kept."
            )
        self.form: str = removal.form
        dtype = dtype or torch.promote_types(torch.get_default_dtype(), torch.float32)
        for name, factor in factors_of(removal, dtype)._asdict().items():
            self.register_buffer(name, factor)
        with torch.inference_mode(False):
            self.register_buffer("keeps", torch.tensor(removal.form == "keep", device="cpu"))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Image of rows (..., d) in the dtype they came in."""
        # A trace would warn that it cannot record the check.
        if not torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            require_rows(rows, self.centre.shape[0], "The input")
        return remove(rows, Factors(self.centre, self.right, self.left, self.offset), self.form)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype != old.dtype and new.dtype in (torch.float16, torch.bfloat16):
                setattr(self, name, old.to(new.device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        half = {}
        for name in Factors._fields:
            value = state_dict.get(f"{prefix}{name}")
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype.itemsize < 4:
                half[f"{prefix}{name}"] = value.to(torch.float32)
        if half:
            warnings.warn(
                f"The state dict has {', '.join(half)} in a half type: digits of the removal are lost, and part of the "
                "concept stays. Make the module from the removal itself (surgery.as_module), or save it in float32.",
                IllConditionedWarning,
                stacklevel=2,
            )
        super()._load_from_state_dict({**state_dict, **half}, prefix, *args, **kwargs)
        self.form = "keep" if bool(self.keeps) else "remove"

    def extra_repr(self) -> str:
        """Form and sizes, as ``print(model)`` shows them."""
        width, directions = self.right.shape
        return f"{self.form}, features={width}, directions={directions}"
