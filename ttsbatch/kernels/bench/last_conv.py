"""`python -m ttsbatch.kernels.bench.last_conv`: the codec's last convolution."""

from __future__ import annotations

import torch

from ttsbatch.kernels.bench.timing import Work, main, num_bytes
from ttsbatch.kernels.last_conv import last_conv
from ttsbatch.kernels.reference import last_conv as reference

CHANNELS, TAPS, SAMPLES = 96, 7, 62 * 1920


def works(batch: int) -> list[Work]:
    """Clips of five seconds."""
    x = torch.randn(batch, SAMPLES, CHANNELS, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(TAPS, CHANNELS, device="cuda") * 0.02
    bias = torch.zeros(1, device="cuda")
    size = num_bytes(x) + 4 * batch * SAMPLES
    return [Work(f"last_conv B={batch}", last_conv, reference.last_conv, [(x, weight, bias)], size)]


if __name__ == "__main__":
    main(works, (4, 16))
