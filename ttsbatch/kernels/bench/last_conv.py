"""`python -m ttsbatch.kernels.bench.last_conv`: the last convolutions of the published codecs."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.last_conv import last_conv
from ttsbatch.kernels.reference import last_conv as reference

BATCHES = (4, 16)
"""Clips at once; slots have no part in it."""
TAPS = 7


def works(batch: int) -> list[Work]:
    """Clips of five seconds: Qwen3-TTS's codec at 24 kHz, VoxCPM2's AudioVAE at 48."""
    return [
        _work("cut", batch, 62 * 1920, 96, torch.bfloat16, False),
        _work("tanh", batch, 125 * 1920, 32, torch.float16, True),
    ]


def _work(
    name: str, batch: int, samples: int, channels: int, dtype: torch.dtype, bends: bool
) -> Work:
    x = torch.randn(batch, samples, channels, device="cuda", dtype=dtype)
    weight = torch.randn(TAPS, channels, device="cuda") * 0.02
    inputs = (x, weight, torch.zeros(1, device="cuda"), bends)
    size = num_bytes(x) + 4 * batch * samples
    return Work(f"last_conv B={batch} {name}", last_conv, reference.last_conv, [inputs], size)


if __name__ == "__main__":
    main(works, BATCHES)
