"""What the process of a run itself does for each row, where GPUs would wait for nothing else.

    python -m recipes.bench.cost_per_row CORPUS [--workers 2] [--judges 1]

Takes a corpus whose rows have `max_seconds` (`recipes.bench.workload`) through `synthesize`, with
workers that answer each row with noise of that length at once, and prints the CPU time of the run's
process per row, of all its threads. Ten thousand rows or so, since its start counts too. Needs no
GPU and no weights.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ttsbatch import pipeline
from ttsbatch.models import open_card
from ttsbatch.models.protocol import Speaker
from ttsbatch.plan import RunPlan, make_plan
from ttsbatch.progress import make_progress
from ttsbatch.types import EngineStats, ModelCard, Segment, Waveform
from ttsbatch.workers.pool import WorkerPool

MODEL = "random:qwen3-tts-1.7b-customvoice"
LONGEST_S = 60.0


class Noise:
    """A speaker that has its answers ready."""

    def __init__(self, name: str) -> None:
        self.card, self.stats = open_card(MODEL), EngineStats(devices=[name])
        rate_hz = self.card.sample_rate_hz
        noise = np.random.default_rng(0).normal(0, 2000, int(LONGEST_S * rate_hz))
        self._samples = noise.astype(np.int16)
        self._stopped = False

    def speak(self, segments: Iterable[Segment]) -> Iterator[Waveform]:
        rate_hz = self.card.sample_rate_hz
        for segment in segments:
            if self._stopped:
                return
            seconds = segment.utterance.max_seconds or segment.expected_s
            samples = self._samples[: int(seconds * rate_hz)]
            yield Waveform(segment, samples, rate_hz, "length", num_frames=0)

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--judges", type=int, default=1)
    args = parser.parse_args()
    names = [f"cuda:{n}" for n in range(args.workers)]

    def load(card: ModelCard, plan: RunPlan) -> Speaker:
        return WorkerPool(card, names, [partial(Noise, name) for name in names])

    plan = make_plan({"corpus": args.corpus, "model": MODEL, "retries": 0})
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(pipeline, "num_judges", lambda devices: args.judges),
    ):
        progress = make_progress(sys.stderr, True)
        before = os.times()
        report = pipeline.synthesize(plan, Path(folder) / "out", progress, load=load).values
        after = os.times()
    made, wall_s = report["utterances"]["made"], report["wall_seconds"]
    print(f"{made} rows in {wall_s:.1f} s: {report['audio_seconds_per_second']:.0f} audio-s/s")
    user_s, system_s = after.user - before.user, after.system - before.system
    print(f"{1e3 * (user_s + system_s) / made:.2f} ms of CPU a row in the run's process")
    print(f"{1e3 * user_s / made:.2f} ms of them outside of the kernel")
    for stage in ("encode", "write"):
        busy_s = report["stages"][stage]["busy_seconds"]
        print(f"{1e3 * busy_s / made:.2f} ms a row in {stage}, on its threads")


if __name__ == "__main__":
    main()
