"""The last convolution in plain torch: what the CPU runs and what the kernel must equal."""

from __future__ import annotations

from torch import Tensor


def last_conv(x: Tensor, weight: Tensor, bias: Tensor, bends: bool = False) -> Tensor:
    """Causal convolution to one channel, in float32, brought to -1..1.

    Args:
        x: [B, N, C] float.
        weight: [taps, C] f32.
        bias: [1] f32.
        bends: by tanh; else what is outside is cut off.

    Returns:
        [B, N] f32; NaN stays NaN.
    """
    taps, length = weight.shape[0], x.shape[1]
    total = bias.expand(x.shape[:2]).clone()
    for tap in range(taps):
        shift = taps - 1 - tap
        if shift < length:
            total[:, shift:] += x[:, : length - shift].float() @ weight[tap]
    return total.tanh() if bends else total.clamp(-1.0, 1.0)
