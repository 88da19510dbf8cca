"""How much of the steady phase the GPU is busy: a `synth` run under the profiler.

    python recipes/bench/busy.py CORPUS -o OUT --model random:qwen3-tts-1.7b-customvoice

Takes the arguments of `ttsbatch synth`. Busy is the union of all kernels and copies in the middle
half of the time in which the run spoke, over that time. The profiler slows the host down, so that
the true share is not lower.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from ttsbatch.cli.app import app
from ttsbatch.report import load_report


def main() -> None:
    with profile(activities=[ProfilerActivity.CUDA]) as recorder:
        app(["synth", *sys.argv[1:]], standalone_mode=False)
        torch.cuda.synchronize()
    spans = sorted(
        (e.start_ns(), e.start_ns() + e.duration_ns())
        for e in recorder.profiler.kineto_results.events()
        if e.device_type() == torch.autograd.DeviceType.CUDA and e.duration_ns() > 0
    )
    # Speaking is the end of the run: warm-up comes before it, and is as long as it is.
    end = spans[-1][1]
    begin = end - int(wall_of(sys.argv) * 1e9)
    first, last = begin + (end - begin) // 4, end - (end - begin) // 4
    busy, reached = 0, first
    for start, stop in spans:
        start, stop = max(start, reached), min(stop, last)
        if stop > start:
            busy, reached = busy + stop - start, stop
    share = busy / (last - first)
    print(f"busy {share:.1%} of {1e-9 * (last - first):.2f} s, {len(spans)} kernels and copies")


def wall_of(arguments: list[str]) -> float:
    """Seconds that the run spoke, from its report."""
    out = arguments[arguments.index("-o") + 1]
    return float(load_report(Path(out)).values["wall_seconds"])


if __name__ == "__main__":
    main()
