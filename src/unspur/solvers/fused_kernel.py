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
