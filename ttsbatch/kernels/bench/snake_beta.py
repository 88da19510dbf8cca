"""Times SnakeBeta at the sizes of the 12 Hz codec: `python -m ttsbatch.kernels.bench.snake_beta`.

Prints, per shape, median and spread of the kernel, of the plain reference and of the compiled
reference, and the kernel's share of the bytes it must move per second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ttsbatch.kernels.reference import snake_beta as reference
from ttsbatch.kernels.snake_beta import snake_beta

BATCH, FRAMES = 16, 325
# (channels, samples per frame) after each of the codec's upsampling blocks.
WIDTHS = ((1536, 4), (768, 32), (384, 160), (192, 640), (96, 1920))


def time_ms(run: Callable[[], Tensor], repeats: int = 30) -> tuple[float, float]:
    """Median and interquartile range of the device time of one call, in milliseconds."""
    for _ in range(5):
        run()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    low, median, high = torch.tensor(times).quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    return median, high - low


def main() -> None:
    """Run the table on the current CUDA device."""
    print(f"{torch.cuda.get_device_name()}, bf16, batch {BATCH}, {FRAMES} frames")
    compiled = torch.compile(reference.snake_beta, dynamic=False)
    for channels, rate in WIDTHS:
        x = torch.randn(BATCH, channels, FRAMES * rate, dtype=torch.bfloat16, device="cuda")
        alpha, inv_beta = torch.rand(2, channels, device="cuda") + 0.5
        row = [f"[{BATCH}, {channels}, {x.shape[-1]}]"]
        for name, function in (
            ("kernel", snake_beta),
            ("reference", reference.snake_beta),
            ("compiled", compiled),
        ):
            median, spread = time_ms(partial(function, x, alpha, inv_beta))
            row.append(f"{name} {median:.3f} ms (iqr {spread:.3f})")
            if name == "kernel":
                row.append(f"{2 * x.nbytes / median / 1e9:.2f} TB/s")
        print("  ".join(row))


if __name__ == "__main__":
    main()
