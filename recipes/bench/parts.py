"""Throughput of the parts on one GPU: frame step, AR alone, codec, and where a frame's time goes.

    python recipes/bench/parts.py [--model random:qwen3-tts-1.7b-customvoice] [--slots 64 256]

Prints one line a figure; state device and versions with them (the first line does).
"""

from __future__ import annotations

import argparse
import time

import torch

import ttsbatch
from ttsbatch.bench import bench_ar, bench_codec, bench_step
from ttsbatch.engine.device import choose_device
from ttsbatch.models.protocol import CodecLM
from ttsbatch.models.qwen3_tts.card import open_card
from ttsbatch.models.qwen3_tts.model import load
from ttsbatch.plan import EnginePlan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:qwen3-tts-1.7b-customvoice")
    parser.add_argument("--slots", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--context", type=int, default=250)
    parser.add_argument("--no-codec", action="store_true")
    parser.add_argument("--profile", action="store_true", help="kernel table of one frame")
    args = parser.parse_args()
    device, dtype = choose_device(EnginePlan())
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(f"ttsbatch {ttsbatch.__version__}, torch {torch.__version__}, {name}, {args.model}")
    started = time.perf_counter()
    model = load(open_card(args.model), device, dtype)
    print(f"load {time.perf_counter() - started:.1f} s", flush=True)
    for slots in args.slots:
        t = bench_step(model, slots, args.context)
        print(
            f"step  {slots:4d} slots  {t.extra['step_ms']:7.2f} ms  "
            f"{t.audio_seconds_per_second:7.0f} audio-s/s",
            flush=True,
        )
    for slots in args.slots:
        t = bench_ar(model, slots, args.count)
        print(
            f"ar    {slots:4d} slots  {t.seconds:7.2f} s   "
            f"{t.audio_seconds_per_second:7.0f} audio-s/s  {t.extra}",
            flush=True,
        )
    if not args.no_codec:
        for batch, frames in ((64, 62), (16, 325)):
            t = bench_codec(model, frames, batch)
            print(
                f"codec {batch:3d} x {frames:3d}    {t.extra['ms']:7.1f} ms  "
                f"{t.audio_seconds_per_second:7.0f} audio-s/s",
                flush=True,
            )
    if args.profile:
        profile(model, args.slots[-1], args.context)


def profile(model: CodecLM, slots: int, context: int) -> None:
    """Device time of one frame by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    frames = 8
    recorder = record(activities=[ProfilerActivity.CUDA])
    bench_step(model, slots, context, frames, around=recorder)
    print(f"one frame, {slots} slots: us, calls, kernel")
    events = sorted(recorder.key_averages(), key=lambda e: -e.self_device_time_total)
    for e in events[:30]:
        print(f"{e.self_device_time_total / frames:9.1f} {e.count / frames:6.1f}  {e.key[:90]}")
    print(f"{sum(e.self_device_time_total for e in events) / frames:9.1f}  all")


if __name__ == "__main__":
    main()
