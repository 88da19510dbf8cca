"""The causal convolution in plain torch: what the CPU runs and what the kernel must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.reference.snake_beta import snake_beta

Table = tuple[Tensor, Tensor]


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
    pointwise: tuple[Table, Tensor, Tensor] | None = None,
) -> Tensor | None:
    """Tap by tap, summed in float32; see `ttsbatch.kernels.causal_conv.causal_conv`."""
    batch, length, _ = x.shape
    taps, _, columns = weight.shape
    channels = bias.shape[0]
    total = x.new_zeros(batch, length, columns, dtype=torch.float32)
    for tap in range(taps):
        shift = (taps - 1 - tap) * dilation
        if shift < length:
            total[:, shift:] += x[:, : length - shift].float() @ weight[tap].float()
    value = total.view(batch, -1, channels) + bias
    return finish(value, x.dtype, snake, affine, residual, raw, pointwise)


def finish(
    value: Tensor,
    dtype: torch.dtype,
    snake: Table | None,
    affine: Table | None,
    residual: Tensor | None,
    raw: Tensor | None,
    pointwise: tuple[Table, Tensor, Tensor] | None,
) -> Tensor | None:
    """What follows a convolution's sums [B, N, C] f32, which are changed; activated in `dtype`."""
    if pointwise is not None:
        between, weight, bias = pointwise
        value = _activated(value, between).to(dtype).float() @ weight.float() + bias
    if residual is not None:
        value += residual.float()
    if raw is not None:
        raw.copy_(value)
    if snake is None:
        return None
    if affine is not None:
        value = value * affine[0] + affine[1]
    return _activated(value, snake).to(dtype).contiguous()


def _activated(value: Tensor, snake: Table) -> Tensor:
    return snake_beta(value.transpose(1, 2), *snake).transpose(1, 2)
