"""The causal convolution in plain torch: what the CPU runs and what the kernel must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from ttsbatch.kernels.reference.snake_beta import snake_beta


def causal_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dilation: int = 1,
    snake: tuple[Tensor, Tensor] | None = None,
    residual: Tensor | None = None,
    raw: Tensor | None = None,
    pointwise: tuple[tuple[Tensor, Tensor], Tensor, Tensor] | None = None,
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
    if pointwise is not None:
        between, point_weight, point_bias = pointwise
        value = _activated(value, between).to(x.dtype).float() @ point_weight.float() + point_bias
    if residual is not None:
        value += residual.float()
    if raw is not None:
        raw.copy_(value)
    if snake is None:
        return None
    return _activated(value, snake).to(x.dtype).contiguous()


def _activated(value: Tensor, snake: tuple[Tensor, Tensor]) -> Tensor:
    return snake_beta(value.transpose(1, 2), *snake).transpose(1, 2)
