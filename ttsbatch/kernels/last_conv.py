"""A codec's last convolution, to a single channel, and what limits its samples, in one launch.

One output channel leaves a tensor core nothing to do, and libraries pick a bad kernel for it: this
one reads each row from memory once (the other taps find it in the L1 cache) and sums in registers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.launch import cdiv, jit, next_power_of_2, runs_kernel, tl
from ttsbatch.kernels.reference import last_conv as reference

_NUMBERS_PER_PROGRAM = 4096  # 32 per thread: with all taps on their way, what registers hold


@jit(do_not_specialize=["N", "tiles_per_item"])  # one binary for all batches
def _last_conv_kernel(
    x,
    weight,
    bias,
    out,
    N,
    tiles_per_item,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    BENDS: tl.constexpr,
):
    program = tl.program_id(0)
    item = (program // tiles_per_item).to(tl.int64)  # 64-bit before it meets a stride
    first_row = (program % tiles_per_item) * ROWS
    row = tl.arange(0, ROWS)
    channel = tl.arange(0, WIDTH)
    in_width = channel < C
    in_item = first_row + row < N
    source = x + (item * N + first_row) * C
    place = row[:, None] * C + channel[None, :]
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for tap in tl.static_range(TAPS):
        seen = in_item & (first_row + row >= TAPS - 1 - tap)
        values = tl.load(
            source + (place - (TAPS - 1 - tap) * C),
            mask=seen[:, None] & in_width[None, :],
            other=0.0,
        )
        weights = tl.load(weight + tap * C + channel, mask=in_width, other=0.0)
        total += values.to(tl.float32) * weights[None, :]
    sample = tl.sum(total, axis=1) + tl.load(bias)
    if BENDS:  # tanh, 1e-7 off
        small = tl.exp(-2.0 * tl.abs(sample))
        bent = (1.0 - small) / (1.0 + small)
        sample = tl.where(sample < 0.0, -bent, bent)
    else:
        sample = tl.where(sample > 1.0, 1.0, sample)  # NaN stays: a broken clip must show
        sample = tl.where(sample < -1.0, -1.0, sample)
    tl.store(out + item * N + first_row + row, sample, mask=in_item)


def last_conv(x: Tensor, weight: Tensor, bias: Tensor, bends: bool = False) -> Tensor:
    """Causal convolution to one channel, summed in float32 and brought to -1..1.

    Args:
        x: [B, N, C] float, contiguous.
        weight: [taps, C] f32, contiguous; the last tap meets the row itself.
        bias: [1] f32.
        bends: samples go through tanh; else they are cut.

    Returns:
        [B, N] f32; NaN stays NaN.

    Raises:
        ValueError: a weight of another width or dtype, or rows that aren't contiguous.
    """
    batch, length, channels = x.shape
    taps, width = weight.shape
    if width != channels or weight.dtype != torch.float32 or bias.dtype != torch.float32:
        raise ValueError(
            f"last_conv: weight is {tuple(weight.shape)} {weight.dtype}, bias {bias.dtype}; "
            f"expected (taps, {channels}) and torch.float32"
        )
    if not runs_kernel(x):
        return reference.last_conv(x, weight, bias, bends)
    if not x.is_contiguous() or not weight.is_contiguous():
        raise ValueError("last_conv needs contiguous tensors")
    out = torch.empty(batch, length, dtype=torch.float32, device=x.device)
    if out.numel() == 0:
        return out
    padded = next_power_of_2(channels)
    rows = max(_NUMBERS_PER_PROGRAM // padded, 1)
    tiles_per_item = cdiv(length, rows)
    _last_conv_kernel[(batch * tiles_per_item,)](
        x,
        weight,
        bias,
        out,
        length,
        tiles_per_item,
        C=channels,
        TAPS=taps,
        ROWS=rows,
        WIDTH=padded,
        BENDS=bends,
        num_warps=4,
    )
    return out
