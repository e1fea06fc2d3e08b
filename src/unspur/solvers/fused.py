"""`LogisticLosses` on a GPU, by kernels that know how few lines there are.

A *line* is one label under one weighting. With one or two lines, each program holds a few rows at a time, in their
stored type, and computes losses and gradients in one pass (`launched`). With more, such as the twelve of five folds and
all rows, gradients do not fit beside the rows. Then one kernel computes the logits and another one the gradients, each
in one pass at the speed of memory (`launched_in_two`); a library pads so few lines to a multiple of their number. Sums
of each program go to a line of their own, and lines are added in float64 without atomics, so results are reproducible.
`LogisticLosses.__call__` is the reference.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspur._typing import Array, FloatArray
from unspur.rows import Block

if TYPE_CHECKING:
    from unspur.solvers.logistic import LogisticLosses

#: Largest number of features that fits the registers of a program.
MAX_FEATURES = 4096
#: Registers of a thread for rows, weights and gradients.
REGISTERS_PER_THREAD = 192
#: Rows that one program adds up in float32; more rows get more programs.
MAX_PROGRAM_ROWS = 4096
#: Lines of one launch of the two kernels: the least number of tensor cores.
TILE_LINES = 16
#: Rows and columns of a tile, and stages of its loop, for logits and for gradients.
LOGITS_TILE, GRADIENTS_TILE = (64, 64, 4), (32, 128, 2)


@dataclass(frozen=True, slots=True)
class Setting:
    """How the kernel is run.

    Parameters
    ----------
    rows : rows a program holds at a time, a power of two.
    warps : of 32 threads, of each program.
    programs : for each multiprocessor.
    stages : tiles that are being loaded or used at a time.
    split : hold a row as two pieces, powers of two, instead of a padded one.
    """

    rows: int
    warps: int
    programs: int
    stages: int
    split: bool = True

    @classmethod
    def of(cls, width: int) -> Setting:
        """The default for rows of this width, for two lines.

        As few threads as can hold a row, since all of them do the work per row; and as many rows as then fit their
        registers, beside weights and gradients of both lines.
        """
        warps = max(1, _power_above(width) // 1024)
        columns = sum(cls(1, warps, 1, 1).pieces(width)) / (32 * warps)  # of each thread
        rows = min(16.0, max(1.0, REGISTERS_PER_THREAD / columns - 4.0))
        return cls(1 << int(np.log2(rows)), warps, max(1, 8 // warps), 2)

    def pieces(self, width: int) -> tuple[int, int]:
        """Columns of head and tail."""
        whole = _power_above(width)
        tail = max(_power_above(width - whole // 2), 128 * self.warps)  # four columns for every thread
        return (whole // 2, tail) if self.split and whole // 2 + tail < whole else (whole, 0)


class FusedWarning(RuntimeWarning):
    """The fused kernel cannot be used here; sums take the plain path, which is slower."""


_failed: str | None = None


def fused_losses(statistic: LogisticLosses, block: Block, setting: Setting | None = None) -> FloatArray | None:
    """Value of the statistic over rows on a GPU, on the host; None if the plain path must be taken."""
    global _failed
    z = block.z
    lines = statistic.weights.shape[0] * statistic.weights.shape[1]
    in_one = lines <= 2 and z.shape[1] <= MAX_FEATURES
    if (
        _failed is not None
        or statistic.centred
        or statistic.in_float64
        or z.dtype.itemsize > 4
        or z.stride(1) != 1
        or not lines * len(z)
    ):
        return None
    try:
        if in_one or setting is not None:
            sums: FloatArray = launched(statistic, block, setting or Setting.of(z.shape[1])).cpu().numpy()
        else:
            sums = launched_in_two(statistic, block).cpu().numpy()
    except ImportError:
        _failed = "triton is not installed"
    except Exception as error:  # no compiler, an architecture it does not know: nothing a fit should fail for
        if _out_of_memory(error):  # which may pass: the next sum tries again
            text = "No memory is left on the device for the fused kernel; this sum takes longer."
        else:
            _failed, text = str(error), f"The fused kernel cannot be run ({error!r}); sums take longer."
        warnings.warn(text, FusedWarning, stacklevel=4)
    else:
        sums = sums.reshape(*statistic.weights.shape[:2], -1)
        sums[..., 2:] -= sums[..., 1, None] * statistic.centre
        return sums
    return None


def _out_of_memory(error: Exception) -> bool:
    """Whether memory ran out (torch has a class for it, Triton a message)."""
    import torch

    return isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in str(error)


def runs_on(device: Any) -> bool:
    """Whether the kernel can be tried on a device (with TRITON_INTERPRET=1 on any, in Python)."""
    return bool(device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def launched(statistic: LogisticLosses, block: Block, setting: Setting) -> Array:
    """Sums over the uncentred rows, (weightings · q, 2 + d) in float64, on the device, without a synchronisation."""
    import torch

    from unspur.solvers.fused_kernel import logistic_losses

    n_weightings, q, d = statistic.weights.shape
    z, lines, n = block.z, n_weightings * q, len(block.z)
    head, tail = setting.pieces(d)
    tiles = -(-n // setting.rows)
    programs = _multiprocessors(z) * setting.programs
    programs = min(tiles, programs * -(-n // (programs * MAX_PROGRAM_ROWS)))
    constants = np.concatenate([statistic.weights.ravel(), statistic.shift.ravel(), statistic.factors.ravel()])
    placed = torch.from_numpy(constants.astype(np.float32)).to(z.device, non_blocking=True)  # one small transfer
    weights, shifts = placed[: lines * d], placed[lines * d : lines * (d + 1)]
    factors = placed[lines * (d + 1) :].view(n_weightings, -1)
    parts = []
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        for first in range(0, lines, 2):
            n_lines = min(2, lines - first)
            last = first + n_lines - 1
            partial = torch.empty((programs, n_lines, 2 + d), dtype=torch.float64, device=z.device)
            logistic_losses[(programs,)](
                z,
                block.targets[int(statistic.labels[first % q])],
                block.targets[int(statistic.labels[last % q])],
                block.cell,
                block.weight,
                weights[first * d :],
                shifts[first:],
                factors[first // q],
                factors[last // q],
                partial,
                n,
                tiles,
                programs,
                WIDTH=d,
                STRIDE=z.stride(0),
                LINES=n_lines,
                ROWS=setting.rows,
                HEAD=head,
                TAIL=tail,
                STAGES=setting.stages,
                num_warps=setting.warps,
            )
            parts.append(partial.sum(0))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def launched_in_two(statistic: LogisticLosses, block: Block) -> Array:
    """The same sums by two kernels, of `TILE_LINES` lines at a time."""
    import torch

    from unspur.solvers.fused_kernel import gradients, residuals

    n_weightings, q, d = statistic.weights.shape
    z, lines, n = block.z, n_weightings * q, len(block.z)
    padded = -(-lines // TILE_LINES) * TILE_LINES
    constants = np.zeros((padded, d + 1), dtype=np.float32)
    constants[:lines, :d] = statistic.weights.reshape(lines, d)
    constants[:lines, d] = statistic.shift.ravel()
    which = np.zeros((2, padded), dtype=np.int32)  # label and weighting of each line
    which[:, :lines] = np.tile(statistic.labels, n_weightings), np.repeat(np.arange(n_weightings), q)
    flat = np.concatenate([constants[:, :d].ravel(), constants[:, d], statistic.factors.ravel().astype(np.float32)])
    placed = torch.from_numpy(flat).to(z.device, non_blocking=True)
    weights, shifts, factors = placed[: padded * d], placed[padded * d : padded * (d + 1)], placed[padded * (d + 1) :]
    label, weighting = torch.from_numpy(which).to(z.device, non_blocking=True)
    rows, columns, stages = LOGITS_TILE
    tiles = -(-n // rows)
    programs = min(tiles, 8 * _multiprocessors(z))
    parts = -(-n // MAX_PROGRAM_ROWS)
    half = z.dtype == torch.bfloat16
    residual = torch.empty((n, TILE_LINES), dtype=torch.float32, device=z.device)
    found = []
    with torch.cuda.device_of(z):  # type: ignore[no-untyped-call]
        for first in range(0, padded, TILE_LINES):
            losses = torch.empty((programs, 2, TILE_LINES), dtype=torch.float64, device=z.device)
            slopes = torch.empty((parts, TILE_LINES, d), dtype=torch.float32, device=z.device)
            residuals[(programs,)](
                z,
                block.targets.contiguous(),
                block.cell.contiguous(),
                block.weight.contiguous(),
                weights[first * d :],
                shifts[first:],
                factors,
                label[first:],
                weighting[first:],
                residual,
                losses,
                n,
                statistic.factors.shape[1],
                tiles,
                programs,
                WIDTH=d,
                STRIDE=z.stride(0),
                LINES=TILE_LINES,
                ROWS=rows,
                COLUMNS=columns,
                HALF=half,
                num_warps=4,
                num_stages=stages,
            )
            grid = (-(-d // GRADIENTS_TILE[1]), parts)
            gradients[grid](
                z,
                residual,
                slopes,
                n,
                MAX_PROGRAM_ROWS,
                WIDTH=d,
                STRIDE=z.stride(0),
                LINES=TILE_LINES,
                ROWS=GRADIENTS_TILE[0],
                COLUMNS=GRADIENTS_TILE[1],
                HALF=half,
                num_warps=4,
                num_stages=GRADIENTS_TILE[2],
            )
            found.append(torch.cat([losses.sum(0).T, slopes.sum(0, dtype=torch.float64)], dim=1))
    return torch.cat(found)[:lines]


def _multiprocessors(z: Array) -> int:
    import torch

    return torch.cuda.get_device_properties(z.device).multi_processor_count if z.is_cuda else 4


def _power_above(width: int) -> int:
    """Smallest power of two that is at least the width."""
    return 1 << max(0, width - 1).bit_length()
