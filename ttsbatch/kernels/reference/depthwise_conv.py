"""The depthwise convolution in plain torch: what the CPU runs and what the kernel must equal."""

from __future__ import annotations

from torch import Tensor

from ttsbatch.kernels.reference.causal_conv import Table, finish


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
    pointwise: tuple[Table, Tensor, Tensor] | None = None,
) -> Tensor | None:
    """Tap by tap, summed in float32; see `ttsbatch.kernels.depthwise_conv.depthwise_conv`."""
    taps, length = weight.shape[0], x.shape[1]
    value = bias.expand(x.shape).clone()
    for tap in range(taps):
        shift = (taps - 1 - tap) * dilation
        if shift < length:
            value[:, shift:] += x[:, : length - shift].float() * weight[tap]
    return finish(value, x.dtype, snake, affine, residual, raw, pointwise)
