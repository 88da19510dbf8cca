"""What convolution kernels do with their sums before they store them, and how their inputs look.

Parts of `causal_conv` and `depthwise_conv`: bias, residual sum, condition and SnakeBeta, and the
1x1 convolution that may come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ttsbatch.kernels.launch import jit, tl

__all__ = [
    "Pointwise",
    "Table",
    "activate",
    "check_tensors",
    "finish",
    "named_tables",
    "snaked",
    "square",
]

Table = tuple[Tensor, Tensor]
"""Two numbers per channel, [C] f32 each."""


class Pointwise(NamedTuple):
    """A 1x1 convolution in the same launch: v becomes bias + SnakeBeta(v) @ weight."""

    snake: Table  # alpha, inv_beta
    weight: Tensor  # [C, C] in the dtype of x, contiguous; from channel, to channel
    bias: Tensor  # [C] f32


@jit()
def snaked(value, alpha, inv_beta):
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
def activate(total, columns, bias, alpha, inv_beta, C, COLUMNS):
    """SnakeBeta of the sum and its bias; 0 in the columns that pad the tile."""
    in_width = columns < COLUMNS
    channel = columns % C
    return snaked(
        total + tl.load(bias + channel, mask=in_width, other=0.0)[None, :],
        tl.load(alpha + channel, mask=in_width, other=0.0)[None, :],
        tl.load(inv_beta + channel, mask=in_width, other=0.0)[None, :],
    )


@jit()
def square(weight, rows, columns, C):
    """A part of a [C, C] matrix, zeros outside."""
    inside = (rows < C)[:, None] & (columns < C)[None, :]
    return tl.load(weight + rows[:, None] * C + columns[None, :], mask=inside, other=0.0)


@jit()
def finish(
    total,
    columns,
    row,
    in_item,
    bias,
    alpha,
    inv_beta,
    scale,
    shift,
    residual,
    raw,
    activated,
    C,
    COLUMNS,
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
        if scale is not None:
            value = value * tl.load(scale + channel, mask=in_width, other=0.0)[None, :]
            value += tl.load(shift + channel, mask=in_width, other=0.0)[None, :]
        value = snaked(
            value,
            tl.load(alpha + channel, mask=in_width, other=0.0)[None, :],
            tl.load(inv_beta + channel, mask=in_width, other=0.0)[None, :],
        )
        tl.store(activated + place, value.to(activated.dtype.element_ty), mask=real)


def check_tensors(
    tensors: Iterable[tuple[str, Tensor | None, tuple[int, ...]]],
    tables: Iterable[tuple[str, Tensor]],
    channels: int,
) -> None:
    """Look at what a kernel takes on trust.

    Args:
        tensors: by name, each with the shape that it must have; None is not looked at.
        tables: by name, each [channels] f32.
        channels: of a table.

    Raises:
        ValueError: a tensor of another shape or layout, or a table of another dtype.
    """
    wanted = list(tensors)
    for name, table in tables:
        wanted.append((name, table, (channels,)))
        if table.dtype != torch.float32:
            raise ValueError(f"{name} is {table.dtype}; expected torch.float32")
    for name, tensor, shape in wanted:
        if tensor is not None and (tensor.shape != shape or not tensor.is_contiguous()):
            raise ValueError(f"{name} is {tuple(tensor.shape)}; expected {shape}, contiguous")


def named_tables(
    bias: Tensor, snake: Table | None, affine: Table | None, pointwise: Pointwise | None
) -> list[tuple[str, Tensor]]:
    """The tables of a call by their names, for `check_tensors`."""
    tables = [("bias", bias)]
    if snake is not None:
        tables += zip(("alpha", "inv_beta"), snake, strict=True)
    if affine is not None:
        tables += zip(("scale", "shift"), affine, strict=True)
    if pointwise is not None:
        tables.append(("pointwise.bias", pointwise.bias))
        tables += zip(("pointwise.alpha", "pointwise.inv_beta"), pointwise.snake, strict=True)
    return tables
