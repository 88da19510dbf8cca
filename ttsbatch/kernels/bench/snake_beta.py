"""`python -m ttsbatch.kernels.bench.snake_beta`: the activations of the published 12 Hz codec."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.reference import snake_beta as reference
from ttsbatch.kernels.snake_beta import snake_beta

BATCHES = (16,)
"""Clips at once; slots have no part in it."""
FRAMES = 325
WIDTHS = ((1536, 4), (768, 32), (384, 160), (192, 640), (96, 1920))
"""Channels, and samples per frame, after the head and after each upsampling block."""


def works(batch: int) -> list[Work]:
    """Clips of 26 seconds; the smallest fills the cache by itself at 16 of them."""
    return [_work(batch, channels, FRAMES * rate) for channels, rate in WIDTHS]


def _work(batch: int, channels: int, samples: int) -> Work:
    x = torch.randn(batch, channels, samples, device="cuda", dtype=torch.bfloat16)
    alpha, inv_beta = torch.rand(2, channels, device="cuda") + 0.5
    return Work(
        f"snake_beta B={batch} C={channels}",
        snake_beta,
        reference.snake_beta,
        [(x, alpha, inv_beta)],
        2 * num_bytes(x),
    )


if __name__ == "__main__":
    main(works, BATCHES)
