"""How much of the steady phase the GPU is busy, of a `synth` run.

    python -m recipes.bench.busy [--profiler] -- CORPUS -o OUT --model MODEL ...

Takes the arguments of `ttsbatch synth` after `--`. The steady phase is the middle half of the time
in which the run spoke. The driver's own counter costs the run nothing. With `--profiler` the worker
also records every kernel and copy, and busy is their union, which slows its host side down: the
true share is not lower.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from recipes.bench.device_counters import DeviceCounters
from ttsbatch import pipeline
from ttsbatch.cli.app import app
from ttsbatch.loading import open_here, open_speaker
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import EnginePlan
from ttsbatch.report import load_report
from ttsbatch.types import Demand, Failure, ModelCard, Segment, Waveform


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiler", action="store_true")
    parser.add_argument("synth", nargs="+")
    args = parser.parse_args()
    out = Path(args.synth[args.synth.index("-o") + 1])
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "busy.json"
        opener = partial(open_recorded, found) if args.profiler else open_here
        with (
            patch.object(pipeline, "open_speaker", partial(open_speaker, opener=opener)),
            DeviceCounters() as counters,
        ):
            app(["synth", *args.synth], standalone_mode=False)
            ended_s = time.monotonic()
        report = load_report(out).values
        wall_s = float(report["wall_seconds"])
        print(f"{report['audio_seconds_per_second']:.0f} audio-s/s, {report['slots']}")
        if args.profiler:
            print(json.loads(found.read_text("utf8"))["text"])
            return
    steady = counters.between(ended_s - 0.75 * wall_s, ended_s - 0.25 * wall_s)
    busy = sum(s.busy for s in steady) / max(len(steady), 1)
    print(f"driver: busy {busy:.1%} of {wall_s / 2:.2f} s, {len(steady)} readings")


def open_recorded(
    found: Path, card: ModelCard, plan: EnginePlan, keep_codes: bool, demand: Demand
) -> Speaker:
    """In the worker: the model, whose kernels are recorded while it speaks."""
    return Recorded(open_here(card, plan, keep_codes, demand), found)


@dataclass
class Recorded:
    """A speaker that says afterwards how long the device was busy."""

    speaker: Speaker
    found: Path

    def __post_init__(self) -> None:
        self.card, self.stats = self.speaker.card, self.speaker.stats

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform | tuple[Segment, Failure]]:
        """Speak, record, and write what was found."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as recorder:
            begin_ns = time.time_ns()
            yield from self.speaker.speak(segments)
            torch.cuda.synchronize()
            end_ns = time.time_ns()
        spans = sorted(
            (e.start_ns(), e.start_ns() + e.duration_ns())
            for e in recorder.profiler.kineto_results.events()
            if e.device_type() == torch.autograd.DeviceType.CUDA and e.duration_ns() > 0
        )
        quarter = (end_ns - begin_ns) // 4
        first, last = begin_ns + quarter, end_ns - quarter
        share = covered(spans, first, last) / (last - first)
        text = f"profiler: busy {share:.1%} of {1e-9 * (last - first):.2f} s, {len(spans)} records"
        self.found.write_text(json.dumps({"text": text, "share": share}), "utf8")

    def stop(self) -> None:
        """Pass it on."""
        self.speaker.stop()

    def close(self) -> None:
        """Pass it on."""
        self.speaker.close()


def covered(spans: Iterable[tuple[int, int]], first: int, last: int) -> int:
    """How much of first..last the union of spans, sorted by their start, covers."""
    total, reached = 0, first
    for start, stop in spans:
        start, stop = max(start, reached), min(stop, last)
        if stop > start:
            total, reached = total + stop - start, stop
    return total


if __name__ == "__main__":
    main()
