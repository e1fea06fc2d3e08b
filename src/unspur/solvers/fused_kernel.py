"""The Triton kernel behind `solvers.fused`; importing this module needs triton."""

from __future__ import annotations

import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _loss_and_residual(logit, target, omega):  # type: ignore[no-untyped-def]
    """Weighted loss and its derivative in the logit, without overflow; both float32 of shape (rows,)."""
    small = tl.exp(-tl.abs(logit))
    loss = tl.maximum(logit, 0.0) + tl.log(1.0 + small) - target * logit
    probability = tl.where(logit >= 0, 1.0, small) / (1.0 + small)
    return loss * omega, (probability - target) * omega


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _add_pairs(a_0, a_1, b_0, b_1):  # type: ignore[no-untyped-def]
    return a_0 + b_0, a_1 + b_1


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _two_products(x, w_0, w_1):  # type: ignore[no-untyped-def]
    """``x @ w_0`` and ``x @ w_1``, of shape (rows,): added up together, so that threads meet once and not twice."""
    return tl.reduce((x * w_0[None, :], x * w_1[None, :]), 1, _add_pairs)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def logistic_losses(  # type: ignore[no-untyped-def]
    z,
    target_0,
    target_1,
    cell,
    weight,
    weights,
    shifts,
    factor_0,
    factor_1,
    partial,
    n,
    tiles,
    programs,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    LINES: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Losses and gradients of one or two lines over every `programs`-th tile of ROWS rows.

    z (n, WIDTH) with rows STRIDE apart; targets, cell and weight (n,); weights (LINES, WIDTH), shifts (LINES,) and the
    factors (cells,) of each line in float32. Adds up to `partial` (programs, LINES, 2 + WIDTH) in float64: loss,
    gradient in the intercept, gradient in the weights. A row is held as two pieces, HEAD and TAIL columns (powers of
    two; TAIL may be 0), so that little of them is padding. Threads lie along the columns: a gradient is added up
    within each thread, and only logits cross between threads.
    """
    program = tl.program_id(0)
    head = tl.arange(0, HEAD)
    in_head = head < WIDTH
    w_0 = tl.load(weights + head, mask=in_head, other=0.0)
    shift_0 = tl.load(shifts)
    g_0 = tl.zeros([HEAD], tl.float32)
    loss_0 = tl.full((), 0.0, tl.float64)
    slope_0 = tl.full((), 0.0, tl.float64)
    if LINES == 2:
        w_1 = tl.load(weights + WIDTH + head, mask=in_head, other=0.0)
        shift_1 = tl.load(shifts + 1)
        g_1 = tl.zeros([HEAD], tl.float32)
        loss_1 = tl.full((), 0.0, tl.float64)
        slope_1 = tl.full((), 0.0, tl.float64)
    if TAIL > 0:
        tail = HEAD + tl.arange(0, TAIL)
        in_tail = tail < WIDTH
        v_0 = tl.load(weights + tail, mask=in_tail, other=0.0)
        h_0 = tl.zeros([TAIL], tl.float32)
        if LINES == 2:
            v_1 = tl.load(weights + WIDTH + tail, mask=in_tail, other=0.0)
            h_1 = tl.zeros([TAIL], tl.float32)

    for tile in tl.range(program, tiles, programs, num_stages=STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        live = rows < n
        start = rows.to(tl.int64) * STRIDE  # more than 2³¹ numbers in all
        x = tl.load(
            z + start[:, None] + head[None, :],
            mask=live[:, None] & in_head[None, :],
            other=0.0,
            eviction_policy="evict_first",
        ).to(tl.float32)
        if LINES == 2:
            logit_0, logit_1 = _two_products(x, w_0, w_1)
        else:
            logit_0 = tl.sum(x * w_0[None, :], axis=1)
        if TAIL > 0:
            y = tl.load(
                z + start[:, None] + tail[None, :],
                mask=live[:, None] & in_tail[None, :],
                other=0.0,
                eviction_policy="evict_first",
            ).to(tl.float32)
            if LINES == 2:
                rest_0, rest_1 = _two_products(y, v_0, v_1)
                logit_0 += rest_0
                logit_1 += rest_1
            else:
                logit_0 += tl.sum(y * v_0[None, :], axis=1)
        group = tl.load(cell + rows, mask=live, other=0)
        own = tl.load(weight + rows, mask=live, other=0.0).to(tl.float32)
        label_0 = tl.load(target_0 + rows, mask=live, other=0.0).to(tl.float32)
        omega_0 = own * tl.load(factor_0 + group, mask=live, other=0.0)
        value_0, r_0 = _loss_and_residual(logit_0 + shift_0, label_0, omega_0)
        loss_0 += tl.sum(value_0, axis=0).to(tl.float64)
        slope_0 += tl.sum(r_0, axis=0).to(tl.float64)
        g_0 += tl.sum(r_0[:, None] * x, axis=0)
        if LINES == 2:
            label_1 = tl.load(target_1 + rows, mask=live, other=0.0).to(tl.float32)
            omega_1 = own * tl.load(factor_1 + group, mask=live, other=0.0)
            value_1, r_1 = _loss_and_residual(logit_1 + shift_1, label_1, omega_1)
            loss_1 += tl.sum(value_1, axis=0).to(tl.float64)
            slope_1 += tl.sum(r_1, axis=0).to(tl.float64)
            g_1 += tl.sum(r_1[:, None] * x, axis=0)
        if TAIL > 0:
            h_0 += tl.sum(r_0[:, None] * y, axis=0)
            if LINES == 2:
                h_1 += tl.sum(r_1[:, None] * y, axis=0)

    out = partial + program.to(tl.int64) * (LINES * (2 + WIDTH))
    tl.store(out, loss_0)
    tl.store(out + 1, slope_0)
    tl.store(out + 2 + head, g_0.to(tl.float64), mask=in_head)
    if TAIL > 0:
        tl.store(out + 2 + tail, h_0.to(tl.float64), mask=in_tail)
    if LINES == 2:
        second = out + 2 + WIDTH
        tl.store(second, loss_1)
        tl.store(second + 1, slope_1)
        tl.store(second + 2 + head, g_1.to(tl.float64), mask=in_head)
        if TAIL > 0:
            tl.store(second + 2 + tail, h_1.to(tl.float64), mask=in_tail)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def residuals(  # type: ignore[no-untyped-def]
    z,
    targets,
    cell,
    weight,
    weights,
    shifts,
    factors,
    label,
    weighting,
    residual,
    partial,
    n,
    cells,
    tiles,
    programs,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    LINES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Losses of many lines, and their derivatives in the logits, over every `programs`-th tile of ROWS rows.

    z (n, WIDTH) with rows STRIDE apart; targets (2, n); cell and weight (n,); weights (LINES, WIDTH), shifts (LINES,)
    and factors (weightings, cells) in float32; label and weighting (LINES,) of each line. Writes `residual` (n, LINES)
    in float32, and adds up to `partial` (programs, 2, LINES) in float64: loss, gradient in the intercept.
    """
    program = tl.program_id(0)
    line = tl.arange(0, LINES)
    shift = tl.load(shifts + line)
    of_main = tl.load(label + line)
    factor = tl.load(weighting + line) * cells
    losses = tl.zeros((LINES,), tl.float64)
    slopes = tl.zeros((LINES,), tl.float64)
    for tile in range(program, tiles, programs):
        rows = tile * ROWS + tl.arange(0, ROWS)
        live = rows < n
        start = z + rows.to(tl.int64)[:, None] * STRIDE
        logit = tl.zeros((ROWS, LINES), tl.float32)
        for first in range(0, WIDTH, COLUMNS):
            column = first + tl.arange(0, COLUMNS)
            inside = column < WIDTH
            x = tl.load(start + column[None, :], mask=live[:, None] & inside[None, :], other=0.0)
            w = tl.load(weights + line[None, :] * WIDTH + column[:, None], mask=inside[:, None], other=0.0)
            if HALF:
                high = w.to(tl.bfloat16)
                logit = tl.dot(x, high, logit)
                logit = tl.dot(x, (w - high.to(tl.float32)).to(tl.bfloat16), logit)
            else:
                logit = tl.dot(x.to(tl.float32), w, logit, input_precision="tf32x3")
        group = tl.load(cell + rows, mask=live, other=0)
        own = tl.load(weight + rows, mask=live, other=0.0).to(tl.float32)
        concept = tl.load(targets + rows, mask=live, other=0.0).to(tl.float32)
        main = tl.load(targets + n + rows, mask=live, other=0.0).to(tl.float32)
        omega = own[:, None] * tl.load(factors + factor[None, :] + group[:, None])
        target = tl.where(of_main[None, :] == 1, main[:, None], concept[:, None])
        loss, slope = _loss_and_residual(logit + shift[None, :], target, omega)
        losses += tl.sum(loss, axis=0).to(tl.float64)
        slopes += tl.sum(slope, axis=0).to(tl.float64)
        tl.store(residual + rows.to(tl.int64)[:, None] * LINES + line[None, :], slope, mask=live[:, None])
    out = partial + program.to(tl.int64) * (2 * LINES)
    tl.store(out + line, losses)
    tl.store(out + LINES + line, slopes)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def gradients(  # type: ignore[no-untyped-def]
    z,
    residual,
    partial,
    n,
    part_rows,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    LINES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Gradients in COLUMNS of the weights over `part_rows` rows: ``residualᵀ z``, into `partial` (parts, LINES, WIDTH).

    Programs lie on a grid of columns and parts of the rows; float32 sums are of one part.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    line = tl.arange(0, LINES)
    inside = column < WIDTH
    sums = tl.zeros((LINES, COLUMNS), tl.float32)
    first = part.to(tl.int64) * part_rows
    for start in range(0, part_rows, ROWS):
        rows = first + start + tl.arange(0, ROWS)
        live = rows < n
        x = tl.load(z + rows[:, None] * STRIDE + column[None, :], mask=live[:, None] & inside[None, :], other=0.0)
        slope = tl.trans(tl.load(residual + rows[:, None] * LINES + line[None, :], mask=live[:, None], other=0.0))
        if HALF:
            high = slope.to(tl.bfloat16)
            sums = tl.dot(high, x, sums)
            sums = tl.dot((slope - high.to(tl.float32)).to(tl.bfloat16), x, sums)
        else:
            sums = tl.dot(slope, x.to(tl.float32), sums, input_precision="tf32x3")
    out = partial + part.to(tl.int64) * (LINES * WIDTH)
    tl.store(out + line[:, None] * WIDTH + column[None, :], sums, mask=inside[None, :])
