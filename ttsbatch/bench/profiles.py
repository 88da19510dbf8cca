"""Where a frame's time goes: a trace of its kernels, and a table of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ttsbatch.bench.parts import bench_step
from ttsbatch.counts import counted
from ttsbatch.errors import SinkError
from ttsbatch.models.protocol import CodecLM

TRACED_FRAMES, TABLED_FRAMES = 4, 8
SHOWN = 30


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What one kernel (on a CPU: one operation) takes of a frame."""

    name: str
    us: float
    calls: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def record_trace(
    model: CodecLM, slots: int, context: int, voice: dict[str, Any], folder: Path, file: Path
) -> None:
    """Write a Chrome trace of a few frames of all slots, launches and kernels.

    Raises:
        SinkError: the file cannot be written.
    """
    kinds = [ProfilerActivity.CPU]
    if model.device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    recorder = profile(activities=kinds)
    bench_step(model, slots, context, voice, folder, TRACED_FRAMES, around=recorder)
    try:
        recorder.export_chrome_trace(str(file))
    except OSError as e:
        raise SinkError(f"{file}: cannot be written: {e.strerror or e}") from e


def kernel_table(
    model: CodecLM, slots: int, context: int, voice: dict[str, Any], folder: Path
) -> list[KernelTime]:
    """Every kernel of one frame of all slots, longest first: device time, on a CPU its own."""
    cuda = model.device.type == "cuda"
    recorder = profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU])
    bench_step(model, slots, context, voice, folder, TABLED_FRAMES, around=recorder)
    kinds = torch.autograd.DeviceType  # type: ignore[attr-defined]
    kind = kinds.CUDA if cuda else kinds.CPU
    found = [
        KernelTime(
            event.key,
            (event.self_device_time_total if cuda else event.self_cpu_time_total) / TABLED_FRAMES,
            event.count / TABLED_FRAMES,
        )
        for event in recorder.key_averages()
        if event.device_type == kind
    ]
    return sorted(found, key=lambda k: -k.us)


def table_lines(kernels: list[KernelTime]) -> list[str]:
    """The table as text: microseconds, calls and name of the longest, and the sum of all."""
    lines = [f"{k.us:9.1f} {k.calls:6.1f}  {k.name[:90]}" for k in kernels[:SHOWN]]
    rest = kernels[SHOWN:]
    if rest:
        us, calls = sum(k.us for k in rest), sum(k.calls for k in rest)
        lines.append(f"{us:9.1f} {calls:6.1f}  {counted(len(rest), 'other')}")
    total = f"{sum(k.us for k in kernels):9.1f} {sum(k.calls for k in kernels):6.1f}  all"
    return ["       us  calls  of one frame", *lines, total]
