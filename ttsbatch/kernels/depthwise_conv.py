"""Causal depthwise convolution with its neighbours fused in, those of `causal_conv`.

It has 14 operations per value, so that memory decides: a program reads each row of its tile from
memory once, the other taps find it in the L1 cache. Its input is activated already, by whatever
stored it; SnakeBeta on the way in would be computed once per tap. Where one program holds all
channels of its rows, the 1x1 convolution of a residual unit follows without a trip through memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.conv_finish import (
    Pointwise,
    Table,
    activate,
    check_tensors,
    finish,
    named_tables,
    square,
)
from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import depthwise_conv as reference

__all__ = ["WIDEST_POINTWISE", "Pointwise", "depthwise_conv"]

WIDEST_POINTWISE = 128
"""Channels that one program holds, with a matrix of as many rows and columns beside them."""
_NUMBERS_PER_PROGRAM = 4096
_NUMBERS_PER_THREAD = 32  # four loads of 16 bytes on their way
_CHANNELS = 64  # of a program without a 1x1 convolution: a cache line of half precision
_FEWEST_CHANNELS = 16  # of a matrix product
_FEWEST_ROWS, _MOST_ROWS = 64, 128  # 64 are what a warp group multiplies


# One binary for all batches and for the units of a block.
@jit(do_not_specialize=["N", "tiles_per_item", "dilation"])
def _depthwise_conv_kernel(
    x,  # [B, N, C]
    weight,  # [TAPS, C] f32
    bias,  # [C] f32
    alpha,
    inv_beta,
    affine_scale,  # or none
    affine_shift,
    residual,  # [B, N, C], as are the outputs
    raw,
    activated,
    point_alpha,  # of the 1x1 convolution in the same launch, if any
    point_inv_beta,
    point_weight,
    point_bias,
    N,
    tiles_per_item,
    dilation,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    num_column_tiles: tl.constexpr = (C + WIDE - 1) // WIDE
    even: tl.constexpr = C % WIDE == 0
    program = tl.program_id(0)
    row_tile = program // num_column_tiles
    columns = (program % num_column_tiles) * WIDE + tl.arange(0, WIDE)
    first_row = (row_tile % tiles_per_item) * ROWS
    row = tl.arange(0, ROWS)
    in_item = first_row + row < N
    # 64-bit before it meets a stride.
    start = (row_tile // tiles_per_item).to(tl.int64) * N + first_row
    source = x + start * C
    place = row[:, None] * C + columns[None, :]
    total = tl.zeros([ROWS, WIDE], tl.float32)
    # A loop on purpose: unrolled, the compiler takes each tap through shared memory to the product
    # (61 barriers instead of 7, 184 registers instead of 84 at 64 channels).
    for tap in range(TAPS):
        back = (TAPS - 1 - tap) * dilation
        seen = (in_item & (first_row + row >= back))[:, None]
        if even:
            values = tl.load(source + (place - back * C), mask=seen, other=0.0)
            weights = tl.load(weight + tap * C + columns)
        else:
            in_width = columns < C
            known = seen & in_width[None, :]
            values = tl.load(source + (place - back * C), mask=known, other=0.0)
            weights = tl.load(weight + tap * C + columns, mask=in_width, other=0.0)
        total += values.to(tl.float32) * weights[None, :]

    if point_weight is not None:
        kind: tl.constexpr = point_weight.dtype.element_ty
        middle = activate(total, columns, bias, point_alpha, point_inv_beta, C, C).to(kind)
        matrix = square(point_weight, columns, columns, C)
        total = tl.dot(middle, matrix, input_precision=PRECISION)
        bias = point_bias
    if residual is not None:
        residual += start * C
    if raw is not None:
        raw += start * C
    if activated is not None:
        activated += start * C
    finish(
        total,
        columns,
        row,
        in_item,
        bias,
        alpha,
        inv_beta,
        affine_scale,
        affine_shift,
        residual,
        raw,
        activated,
        C,
        C,
    )


def depthwise_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dilation: int = 1,
    snake: Table | None = None,
    affine: Table | None = None,
    residual: Tensor | None = None,
    raw: Tensor | None = None,
    pointwise: Pointwise | None = None,
) -> Tensor | None:
    """Convolve each channel in time, seeing only the past, and finish as `causal_conv` does.

    v[b, n, c] = bias[c] + sum over taps t of x[b, n - (taps - 1 - t) * dilation, c] * weight[t, c],
    with zeros before an item's first row; then the 1x1 convolution, then v += residual.

    Args:
        x: [B, N, C] float, contiguous; activated.
        weight: [taps, C] f32, contiguous; the last tap meets the row itself.
        bias: [C] f32.
        dilation: rows between taps.
        snake: (alpha, inv_beta), each [C] f32, as `snake_beta` takes them: also give SnakeBeta
            of v.
        affine: (scale, shift), each [C] f32: SnakeBeta of v * scale + shift instead.
        residual: [B, N, C] float, contiguous, added to v.
        raw: [B, N, C] float, contiguous: is filled with v. May be `residual` itself.
        pointwise: comes before the residual; C is at most `WIDEST_POINTWISE`.

    Returns:
        [B, N, C] in the dtype of `x`, SnakeBeta of v; None without `snake`.

    Raises:
        ValueError: nothing to store, a tensor of another shape, dtype or layout, or more channels
            than a program holds.
    """
    batch, length, channels = x.shape
    taps = weight.shape[0]
    _check(x, weight, bias, snake, affine, residual, raw, pointwise)
    if not runs_kernel(x):
        return reference.depthwise_conv(
            x,
            weight,
            bias,
            dilation=dilation,
            snake=snake,
            affine=affine,
            residual=residual,
            raw=raw,
            pointwise=pointwise,
        )
    activated = torch.empty(x.shape, dtype=x.dtype, device=x.device) if snake else None
    if batch * length == 0:
        return activated
    alpha, inv_beta = snake or (None, None)
    scale, shift = affine or (None, None)
    point: tuple[Tensor | None, ...] = (None, None, None, None)
    wide = max(next_power_of_2(channels), _FEWEST_CHANNELS)
    if pointwise is None:
        wide = min(wide, _CHANNELS)
    else:
        point = (*pointwise.snake, pointwise.weight, pointwise.bias)
    rows = min(max(_NUMBERS_PER_PROGRAM // wide, _FEWEST_ROWS), _MOST_ROWS)
    tiles_per_item = cdiv(length, rows)
    _depthwise_conv_kernel[(batch * tiles_per_item * cdiv(channels, wide),)](
        x,
        weight,
        bias,
        alpha,
        inv_beta,
        scale,
        shift,
        residual,
        raw,
        activated,
        *point,
        length,
        tiles_per_item,
        dilation,
        C=channels,
        TAPS=taps,
        ROWS=rows,
        WIDE=wide,
        PRECISION="ieee",  # f32 runs stay f32; says nothing in half precision
        num_warps=max(rows * wide // (32 * _NUMBERS_PER_THREAD), 4),
    )
    return activated


def _check(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    snake: Table | None,
    affine: Table | None,
    residual: Tensor | None,
    raw: Tensor | None,
    pointwise: Pointwise | None,
) -> None:
    shape = tuple(x.shape)
    channels = shape[2]
    if snake is None and raw is None:
        raise ValueError("depthwise_conv has nothing to store: give `snake` or `raw`")
    if weight.dtype != torch.float32:
        raise ValueError(f"weight is {weight.dtype}; expected torch.float32")
    if pointwise is not None:
        if channels > WIDEST_POINTWISE:
            raise ValueError(
                f"a 1x1 convolution of {channels} channels in the same launch; expected at most "
                f"{WIDEST_POINTWISE}"
            )
        if pointwise.weight.dtype != x.dtype:
            raise ValueError(f"pointwise.weight is {pointwise.weight.dtype}; expected {x.dtype}")
    check_tensors(
        [
            ("x", x, shape),
            ("weight", weight, (weight.shape[0], channels)),
            ("residual", residual, shape),
            ("raw", raw, shape),
            ("pointwise.weight", pointwise.weight if pointwise else None, (channels, channels)),
        ],
        named_tables(bias, snake, affine, pointwise),
        channels,
    )
