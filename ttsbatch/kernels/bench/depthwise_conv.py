"""`python -m ttsbatch.kernels.bench.depthwise_conv`: the residual units of VoxCPM2's AudioVAE."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.conv_finish import Pointwise
from ttsbatch.kernels.depthwise_conv import WIDEST_POINTWISE, depthwise_conv
from ttsbatch.kernels.reference import depthwise_conv as reference

LATENTS, TAPS, DILATION = 8, 7, 9  # a third of a second; the unit that reads farthest back
WIDTHS = ((1024, 8), (512, 48), (256, 240), (128, 480), (64, 960), (32, 1920))
"""Channels, and rows per latent, after each upsampling of the decoder."""


def works(batch: int) -> list[Work]:
    """One unit of each block: its depthwise half, or all of it where that is one launch."""
    return [_work(batch, channels, LATENTS * rate) for channels, rate in WIDTHS]


def _work(batch: int, channels: int, rows: int) -> Work:
    def half(*shape: int) -> Tensor:
        return torch.randn(shape, device="cuda", dtype=torch.float16)

    def table() -> Tensor:
        return torch.rand(channels, device="cuda") + 0.5

    x, weight = half(batch, rows, channels), torch.randn(TAPS, channels, device="cuda") * 0.4
    options: dict[str, Any] = {"dilation": DILATION, "snake": (table(), table())}
    size = 2 * num_bytes(x)
    name = f"depthwise_conv B={batch} C={channels}"
    if channels <= WIDEST_POINTWISE:
        square = half(channels, channels) * (0.3 * channels**-0.5)
        options["pointwise"] = Pointwise((table(), table()), square, table())
        options["residual"], options["raw"] = half(*x.shape), torch.empty_like(x)
        size *= 2
        name += " +1x1"
    return Work(
        name,
        partial(depthwise_conv, **options),
        partial(reference.depthwise_conv, **options),
        [(x, weight, table())],
        size,
    )


if __name__ == "__main__":
    main(works, (64, 256))
