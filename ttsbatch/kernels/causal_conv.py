"""Causal convolution with its neighbours fused in: bias, residual sum and the next SnakeBeta.

An implicit GEMM over channels-last activations: a program takes rows of time and output columns and
walks over taps and input channels; the row tile of a tap is the same tile some rows earlier. A
transposed convolution of stride r and kernel 2r is the same thing with two taps and r times the
columns. The sums stay in float32 until they are stored, and no element-wise pass is left between
two convolutions. Where one program holds all channels of its rows, a 1x1 convolution can follow
without a trip through memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.causal_conv_tiles import Tile, takes_pointwise, tile_for
from ttsbatch.kernels.conv_finish import (
    Pointwise,
    Table,
    activate,
    check_tensors,
    finish,
    named_tables,
    square,
)
from ttsbatch.kernels.launch import cdiv, jit, runs_kernel, shared_bytes, tensor_descriptor, tl
from ttsbatch.kernels.reference import causal_conv as reference

__all__ = ["Pointwise", "Tile", "causal_conv", "pack_conv", "pack_upsampling"]


# Not specialised by lengths and dilation, so that a layer is compiled once for all batches, and the
# layers of a block once.
@jit(do_not_specialize=["N", "tiles_per_item", "num_row_tiles", "dilation"])
def _causal_conv_kernel(
    x,  # [B, N, CIN], or its descriptor
    weight,  # [TAPS * CIN, COLUMNS], or its descriptor
    more_weight,  # the same in tiles of MORE columns; unused without them
    bias,  # [C] f32
    alpha,
    inv_beta,
    affine_scale,  # or none
    affine_shift,
    residual,  # [B, N, COLUMNS], as are the outputs
    raw,
    activated,
    point_alpha,  # of the 1x1 convolution in the same launch, if any
    point_inv_beta,
    point_weight,
    point_bias,
    N,
    tiles_per_item,
    num_row_tiles,
    dilation,
    C: tl.constexpr,
    CIN: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    MORE: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
    BULK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    num_column_tiles: tl.constexpr = (COLUMNS + WIDE + MORE - 1) // (WIDE + MORE)
    program = tl.program_id(0)
    group = program // (GROUP * num_column_tiles)
    first_tile = group * GROUP
    group_size = tl.minimum(num_row_tiles - first_tile, GROUP)
    inside_group = program - first_tile * num_column_tiles
    row_tile = first_tile + inside_group % group_size
    first_column = (inside_group // group_size) * (WIDE + MORE)
    item = row_tile // tiles_per_item
    first_row = (row_tile % tiles_per_item) * ROWS

    row = tl.arange(0, ROWS)
    depth = tl.arange(0, DEPTH)
    columns = first_column + tl.arange(0, WIDE)
    in_item = first_row + row < N
    total = tl.zeros([ROWS, WIDE], tl.float32)
    even: tl.constexpr = COLUMNS % (WIDE + MORE) == 0
    whole: tl.constexpr = CIN % DEPTH == 0  # one tap per iteration
    if MORE > 0:
        more_columns = first_column + WIDE + tl.arange(0, MORE)
        more_total = tl.zeros([ROWS, MORE], tl.float32)
    start = item.to(tl.int64) * N + first_row  # 64-bit before it meets a stride
    if not BULK:
        source = x + start * CIN
        offsets = row[:, None] * CIN + depth[None, :]
        weight_offsets = depth[:, None] * COLUMNS + columns[None, :]

    for step in range((TAPS * CIN + DEPTH - 1) // DEPTH):
        at = step * DEPTH
        if BULK:
            tap = at // CIN
            shift = (TAPS - 1 - tap) * dilation
            # Rows before an item's first one are outside of the descriptor, and read as zeros.
            values = x.load([item, first_row - shift, at % CIN]).reshape(ROWS, DEPTH)
            total = tl.dot(
                values, weight.load([at, first_column]), total, input_precision=PRECISION
            )
            if MORE > 0:
                more_total = tl.dot(
                    values,
                    more_weight.load([at, first_column + WIDE]),
                    more_total,
                    input_precision=PRECISION,
                )
        else:
            if whole:
                shift = (TAPS - 1 - at // CIN) * dilation
                seen = (in_item & (first_row + row >= shift))[:, None]
                back = tl.multiple_of(
                    at % CIN - shift * CIN, 16
                )  # loads of 16 bytes need to see it
                values = tl.load(source + back + offsets, mask=seen, other=0.0)
            else:
                index = at + depth
                shift = (TAPS - 1 - index // CIN) * dilation
                seen = in_item[:, None] & (first_row + row[:, None] >= shift[None, :])
                seen = seen & (index < TAPS * CIN)[None, :]
                place = (row[:, None] - shift[None, :]) * CIN + (index % CIN)[None, :]
                values = tl.load(source + place, mask=seen, other=0.0)
            if whole and even:
                weights = tl.load(weight + at * COLUMNS + weight_offsets)
            else:
                known = (at + depth < TAPS * CIN)[:, None] & (columns < COLUMNS)[None, :]
                weights = tl.load(weight + at * COLUMNS + weight_offsets, mask=known, other=0.0)
            total = tl.dot(values, weights, total, input_precision=PRECISION)
            if MORE > 0:
                more_offsets = depth[:, None] * COLUMNS + more_columns[None, :]
                if whole and even:
                    more = tl.load(weight + at * COLUMNS + more_offsets)
                else:
                    known = (at + depth < TAPS * CIN)[:, None] & (more_columns < COLUMNS)[None, :]
                    more = tl.load(weight + at * COLUMNS + more_offsets, mask=known, other=0.0)
                more_total = tl.dot(values, more, more_total, input_precision=PRECISION)

    if point_weight is not None:
        kind: tl.constexpr = point_weight.dtype.element_ty
        middle = activate(total, columns, bias, point_alpha, point_inv_beta, C, COLUMNS).to(kind)
        part = square(point_weight, columns, columns, C)
        total = tl.dot(middle, part, input_precision=PRECISION)
        if MORE > 0:
            more_middle = activate(
                more_total, more_columns, bias, point_alpha, point_inv_beta, C, COLUMNS
            ).to(kind)
            part = square(point_weight, more_columns, columns, C)
            total = tl.dot(more_middle, part, total, input_precision=PRECISION)
            part = square(point_weight, columns, more_columns, C)
            more_total = tl.dot(middle, part, input_precision=PRECISION)
            part = square(point_weight, more_columns, more_columns, C)
            more_total = tl.dot(more_middle, part, more_total, input_precision=PRECISION)
        bias = point_bias
    if residual is not None:
        residual += start * COLUMNS
    if raw is not None:
        raw += start * COLUMNS
    if activated is not None:
        activated += start * COLUMNS
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
        COLUMNS,
    )
    if MORE > 0:
        finish(
            more_total,
            more_columns,
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
            COLUMNS,
        )


def causal_conv(
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
    tile: Tile | None = None,
) -> Tensor | None:
    """Convolve in time, seeing only the past, and finish with all that follows until the next one.

    v[b, n, c] = bias[c % C] + residual + sum over taps t and channels i of
    x[b, n - (taps - 1 - t) * dilation, i] * weight[t, i, c], with zeros before an item's first row.

    Args:
        x: [B, N, C'] float, contiguous.
        weight: [taps, C', r * C] in the dtype of `x`, contiguous; from `pack_conv` (r = 1) or
            `pack_upsampling`.
        bias: [C] f32.
        dilation: rows between taps.
        snake: (alpha, inv_beta), each [C] f32, as `snake_beta` takes them: also give SnakeBeta
            of v.
        affine: (scale, shift), each [C] f32: SnakeBeta of v * scale + shift instead.
        residual: [B, N * r, C] float, contiguous, added to v.
        raw: [B, N * r, C] float, contiguous: is filled with v. May be `residual` itself.
        pointwise: comes before the residual; r = 1 and a tile that spans all channels.
        tile: instead of the one of `tile_for`; with fewer stages where shared memory is short.

    Returns:
        [B, N * r, C] in the dtype of `x`, SnakeBeta of v; None without `snake`.

    Raises:
        ValueError: nothing to store, a tensor of another shape, dtype or layout, or a tile that
            the shape has no use for.
    """
    batch, length, width = x.shape
    taps, _, columns = weight.shape
    channels = bias.shape[0]
    _check(x, weight, bias, snake, affine, residual, raw, pointwise)
    if not runs_kernel(x):
        return reference.causal_conv(
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
    activated = None
    if snake is not None:
        shape = (batch, length * columns // channels, channels)
        activated = torch.empty(shape, dtype=x.dtype, device=x.device)
    if batch * length == 0:
        return activated
    tile = (tile or tile_for(width, columns, taps)).fitted(x.element_size(), shared_bytes(x))
    spans = tile.columns + tile.more_columns >= columns
    if pointwise is not None and not (takes_pointwise(tile, columns) if x.is_cuda else spans):
        raise ValueError(f"{tile} can't take a 1x1 convolution of {columns} channels along")
    alpha, inv_beta = snake or (None, None)
    scale, shift = affine or (None, None)
    point: tuple[Tensor | None, ...] = (None, None, None, None)
    if pointwise is not None:
        point = (*pointwise.snake, pointwise.weight, pointwise.bias)
    source, weights, more_weights = x, weight, weight
    if tile.bulk:
        if width % tile.depth or columns * x.element_size() % 16:
            raise ValueError(
                f"bulk tiles of {tile.depth} channels by 16 bytes of columns don't divide a "
                f"weight of {width} by {columns}"
            )
        flat = weight.view(taps * width, columns)
        source = tensor_descriptor(x, [1, tile.rows, tile.depth])
        weights = tensor_descriptor(flat, [tile.depth, tile.columns])
        if tile.more_columns:
            more_weights = tensor_descriptor(flat, [tile.depth, tile.more_columns])
    tiles_per_item = cdiv(length, tile.rows)
    num_row_tiles = batch * tiles_per_item
    num_column_tiles = cdiv(columns, tile.columns + tile.more_columns)
    _causal_conv_kernel[(num_row_tiles * num_column_tiles,)](
        source,
        weights,
        more_weights,
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
        num_row_tiles,
        dilation,
        C=channels,
        CIN=width,
        COLUMNS=columns,
        TAPS=taps,
        ROWS=tile.rows,
        WIDE=tile.columns,
        MORE=tile.more_columns,
        DEPTH=tile.depth,
        GROUP=tile.row_group,
        BULK=tile.bulk,
        PRECISION="ieee",  # f32 runs stay f32; says nothing in bf16
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    return activated


def pack_conv(weight: Tensor) -> Tensor:
    """[C, C', taps] of a convolution -> [taps, C', C] contiguous."""
    return weight.permute(2, 1, 0).contiguous()


def pack_upsampling(weight: Tensor, stride: int) -> Tensor:
    """[C', C, 2 * stride] of a transposed convolution -> [2, C', stride * C] contiguous.

    Sample n * stride + j is weight j times row n plus weight j + stride times row n - 1, so that
    the later half of the kernel is the first tap.

    Raises:
        ValueError: the kernel is not twice the stride.
    """
    inner, out, kernel = weight.shape
    if kernel != 2 * stride:
        raise ValueError(f"a kernel of {kernel} with stride {stride}; expected twice the stride")
    halves = weight.view(inner, out, 2, stride).flip(2)
    return halves.permute(2, 0, 3, 1).reshape(2, inner, stride * out).contiguous()


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
    batch, length, width = x.shape
    _, inner, columns = weight.shape
    channels = bias.shape[0]
    if snake is None and raw is None:
        raise ValueError("causal_conv has nothing to store: give `snake` or `raw`")
    if inner != width or columns % channels or weight.dtype != x.dtype:
        raise ValueError(
            f"weight is {tuple(weight.shape)} {weight.dtype}; expected (taps, {width}, a multiple "
            f"of {channels}) {x.dtype}"
        )
    out_shape = batch, length * (columns // channels), channels
    if pointwise is not None and (columns != channels or pointwise.weight.dtype != x.dtype):
        raise ValueError(
            f"a 1x1 convolution of {pointwise.weight.dtype} after {columns // channels} rows "
            f"per row of {x.dtype}; expected the same dtype and 1 row"
        )
    check_tensors(
        [
            ("x", x, tuple(x.shape)),
            ("weight", weight, tuple(weight.shape)),
            ("residual", residual, out_shape),
            ("raw", raw, out_shape),
            ("pointwise.weight", pointwise.weight if pointwise else None, (channels, channels)),
        ],
        named_tables(bias, snake, affine, pointwise),
        channels,
    )
