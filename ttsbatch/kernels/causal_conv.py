"""Causal convolution with its neighbours fused in: bias, residual sum and the next SnakeBeta.

An implicit GEMM over channels-last activations: a program takes rows of time and output columns and
walks over taps and input channels; the row tile of a tap is the same tile some rows earlier. A
transposed convolution of stride r and kernel 2r is the same thing with two taps and r times the
columns. The sums stay in float32 until they are stored, and no element-wise pass is left between
two convolutions. Where one program holds all channels of its rows, a 1x1 convolution can follow
without a trip through memory.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ttsbatch.kernels.causal_conv_tiles import Tile, takes_pointwise, tile_for
from ttsbatch.kernels.launch import cdiv, jit, runs_kernel, tensor_descriptor, tl
from ttsbatch.kernels.reference import causal_conv as reference

__all__ = ["Pointwise", "Tile", "causal_conv", "pack_conv", "pack_upsampling"]


class Pointwise(NamedTuple):
    """A 1x1 convolution in the same launch: v becomes bias + SnakeBeta(v) @ weight."""

    snake: tuple[Tensor, Tensor]  # alpha, inv_beta: [C] f32
    weight: Tensor  # [C, C] in the dtype of x, contiguous; from channel, to channel
    bias: Tensor  # [C] f32


@jit()
def _snake(value, alpha, inv_beta):
    # sin^2 has period pi and is an even polynomial of the distance to the nearest multiple: 1e-7
    # off, in half the instructions of a sine. Adding 1.5 * 2^23 rounds; the cap binds only where
    # float32 no longer resolves a period.
    turns = value * (alpha * 0.3183098861837907)
    away = turns - ((turns + 12582912.0) - 12582912.0)
    u = tl.minimum(away * away, 0.25)
    bump = 12.990730285644531 + u * -3.2729458808898926
    bump = -30.085952758789062 + u * bump
    bump = 42.72538375854492 + u * bump
    bump = -32.469581604003906 + u * bump
    bump = 9.869603157043457 + u * bump
    return value + (u * bump) * inv_beta


@jit()
def _activate(total, columns, bias, alpha, inv_beta, C, COLUMNS):
    """SnakeBeta of the sum and its bias; 0 in the columns that pad the tile."""
    in_width = columns < COLUMNS
    channel = columns % C
    return _snake(
        total + tl.load(bias + channel, mask=in_width, other=0.0)[None, :],
        tl.load(alpha + channel, mask=in_width, other=0.0)[None, :],
        tl.load(inv_beta + channel, mask=in_width, other=0.0)[None, :],
    )


@jit()
def _square(weight, rows, columns, C):
    """A part of a [C, C] matrix, zeros outside."""
    inside = (rows < C)[:, None] & (columns < C)[None, :]
    return tl.load(weight + rows[:, None] * C + columns[None, :], mask=inside, other=0.0)


@jit()
def _finish(
    total, columns, row, in_item, bias, alpha, inv_beta, residual, raw, activated, C, COLUMNS
):
    """Bias, residual, stores; `row` and the pointers are relative to the tile's first row."""
    in_width = columns < COLUMNS
    channel = columns % C
    value = total + tl.load(bias + channel, mask=in_width, other=0.0)[None, :]
    place = row[:, None] * COLUMNS + columns[None, :]
    real = in_item[:, None] & in_width[None, :]
    if residual is not None:
        value += tl.load(residual + place, mask=real, other=0.0).to(tl.float32)
    if raw is not None:
        tl.store(raw + place, value.to(raw.dtype.element_ty), mask=real)
    if activated is not None:
        value = _snake(
            value,
            tl.load(alpha + channel, mask=in_width, other=0.0)[None, :],
            tl.load(inv_beta + channel, mask=in_width, other=0.0)[None, :],
        )
        tl.store(activated + place, value.to(activated.dtype.element_ty), mask=real)


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
        middle = _activate(total, columns, bias, point_alpha, point_inv_beta, C, COLUMNS).to(kind)
        part = _square(point_weight, columns, columns, C)
        total = tl.dot(middle, part, input_precision=PRECISION)
        if MORE > 0:
            more_middle = _activate(
                more_total, more_columns, bias, point_alpha, point_inv_beta, C, COLUMNS
            ).to(kind)
            part = _square(point_weight, more_columns, columns, C)
            total = tl.dot(more_middle, part, total, input_precision=PRECISION)
            part = _square(point_weight, columns, more_columns, C)
            more_total = tl.dot(middle, part, input_precision=PRECISION)
            part = _square(point_weight, more_columns, more_columns, C)
            more_total = tl.dot(more_middle, part, more_total, input_precision=PRECISION)
        bias = point_bias
    if residual is not None:
        residual += start * COLUMNS
    if raw is not None:
        raw += start * COLUMNS
    if activated is not None:
        activated += start * COLUMNS
    _finish(
        total, columns, row, in_item, bias, alpha, inv_beta, residual, raw, activated, C, COLUMNS
    )
    if MORE > 0:
        _finish(
            more_total,
            more_columns,
            row,
            in_item,
            bias,
            alpha,
            inv_beta,
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
    snake: tuple[Tensor, Tensor] | None = None,
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
        residual: [B, N * r, C] float, contiguous, added to v.
        raw: [B, N * r, C] float, contiguous: is filled with v. May be `residual` itself.
        pointwise: comes before the residual; r = 1 and a tile that spans all channels.
        tile: instead of the one of `tile_for`.

    Returns:
        [B, N * r, C] in the dtype of `x`, SnakeBeta of v; None without `snake`.

    Raises:
        ValueError: nothing to store, a tensor of another shape, dtype or layout, or a tile that
            the shape has no use for.
    """
    batch, length, width = x.shape
    taps, _, columns = weight.shape
    channels = bias.shape[0]
    _check(x, weight, bias, snake, residual, raw, pointwise)
    if not runs_kernel(x):
        return reference.causal_conv(
            x,
            weight,
            bias,
            dilation=dilation,
            snake=snake,
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
    tile = tile or tile_for(width, columns, taps)
    spans = tile.columns + tile.more_columns >= columns
    if pointwise is not None and not (takes_pointwise(tile, columns) if x.is_cuda else spans):
        raise ValueError(f"{tile} can't take a 1x1 convolution of {columns} channels along")
    alpha, inv_beta = snake or (None, None)
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
    snake: tuple[Tensor, Tensor] | None,
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
    out_shape = (batch, length * (columns // channels), channels)
    each = (channels,)
    wanted: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("x", x, tuple(x.shape)),
        ("weight", weight, tuple(weight.shape)),
        ("residual", residual, out_shape),
        ("raw", raw, out_shape),
    ]
    tables = [("bias", bias)]
    if snake is not None:
        tables += [("alpha", snake[0]), ("inv_beta", snake[1])]
    if pointwise is not None:
        if columns != channels or pointwise.weight.dtype != x.dtype:
            raise ValueError(
                f"a 1x1 convolution of {pointwise.weight.dtype} after {columns // channels} rows "
                f"per row of {x.dtype}; expected the same dtype and 1 row"
            )
        wanted.append(("pointwise.weight", pointwise.weight, (channels, channels)))
        tables += [("pointwise.bias", pointwise.bias)]
        tables += zip(("pointwise.alpha", "pointwise.inv_beta"), pointwise.snake, strict=True)
    for name, table in tables:
        wanted.append((name, table, each))
        if table.dtype != torch.float32:
            raise ValueError(f"{name} is {table.dtype}; expected torch.float32")
    for name, tensor, shape in wanted:
        if tensor is not None and (tensor.shape != shape or not tensor.is_contiguous()):
            raise ValueError(f"{name} is {tuple(tensor.shape)}; expected {shape}, contiguous")
