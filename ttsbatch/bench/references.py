"""Reference clips to voice vectors, codes or latents: many at once, each encoder alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from ttsbatch.bench.timing import Timing
from ttsbatch.bench.workload import REFERENCE_S, clip
from ttsbatch.models.protocol import ReferenceEncoders

DISTINCT = 8  # noise is slow to make, and as good a second time
REPEATS = 3


def bench_references(encoders: ReferenceEncoders, count: int) -> list[Timing]:
    """Each encoder over `count` clips of 6 s that wait on the device.

    `audio_seconds` are those of the clips.
    """
    noise = [clip(n, REFERENCE_S, encoders.sample_rate_hz) for n in range(min(count, DISTINCT))]
    made = [torch.from_numpy(samples).to(encoders.device) for samples in noise]
    clips = [made[n % len(made)] for n in range(count)]
    with torch.inference_mode():
        parts = encoders.parts().items()
        return [_time(name, call, clips, encoders.device) for name, call in parts]


def _time(
    name: str, call: Callable[[list[Tensor]], object], clips: list[Tensor], device: torch.device
) -> Timing:
    call(clips)
    _synchronize(device)
    started = time.perf_counter()
    for _ in range(REPEATS):
        call(clips)
    _synchronize(device)
    seconds = (time.perf_counter() - started) / REPEATS
    extra = {"clips": len(clips), "clips_per_s": len(clips) / seconds}
    return Timing(name, 0, seconds, len(clips) * REFERENCE_S, extra)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
