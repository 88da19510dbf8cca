"""The time per patch of one VoxCPM2 utterance alone, short and long: it should not grow.

    python -m recipes.bench.flow_lengths [--seconds 10,60,180] [--json FILE]

Each length is spoken by the engine in one slot, from prompt to samples: language models and LocDiT
patch by patch, then the AudioVAE in windows. Milliseconds per patch of decoding alone (`ar`), of
what follows (`codec`) and of both should agree within 5 %. The last lines are steps alone at fixed
contexts, which show where time would grow.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from recipes.bench.flow_results import Results, numbers, open_model, parser, synchronize
from ttsbatch.bench.parts import bench_step, jobs_of
from ttsbatch.bench.workload import CHARS_PER_S, WORDS
from ttsbatch.engine.decode import FinishedFrames
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.engine.speak import CodecLMSpeaker
from ttsbatch.errors import PlanError
from ttsbatch.models.voxcpm2.model import VoxCPM2
from ttsbatch.types import Waveform

MOST_SPREAD = 0.05


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--seconds", type=numbers, default=[10, 60, 180])
    p.add_argument("--contexts", type=numbers, default=[128, 512, 1000, 1200, 2000, 4000])
    p.add_argument("--chars-per-s", type=float, default=CHARS_PER_S, help="of the text")
    p.add_argument("--repeats", type=int, default=3, help="of each length; the best counts")
    args = p.parse_args()
    model = open_model(args)
    results = Results(model, args.json)
    speaker = CodecLMSpeaker(model, slots=1)
    steps = {"steps": args.steps}
    rows = [row_of(seconds, args.chars_per_s) | steps for seconds in args.seconds]
    jobs = jobs_of(model, rows)
    for job in jobs:
        positions = job.prompt.num_positions + job.cap_frames
        if positions > model.spec.max_positions or job.cap_frames == model.spec.max_frames:
            raise SystemExit(
                f"{job.prompt.segment.utterance.id} takes {positions} positions; "
                f"{model.card.name} has {model.spec.max_positions}"
            )
    spoken(model, speaker, jobs[0])  # compiles what was not captured
    totals = []
    for job in jobs:
        best = min(
            (spoken(model, speaker, job) for _ in range(args.repeats)), key=lambda x: x["ms"]
        )
        results.add(
            job.prompt.segment.utterance.id, prompt_positions=job.prompt.num_positions, **best
        )
        totals.append(best["ms"])
    spread = max(totals) / min(totals) - 1
    results.add("longest over shortest time per patch", spread=spread, most=MOST_SPREAD)
    speaker.close()
    with TemporaryDirectory() as folder:
        for context in args.contexts:
            try:
                timing = bench_step(model, 1, context, steps, Path(folder))
            except PlanError:  # more positions than this model has
                continue
            results.add("step alone", context=context, ms=timing.extra["step_ms"])


def row_of(seconds: int, chars_per_s: float) -> dict[str, Any]:
    """A row that lasts so long, of a text that long."""
    words, length = [], 0
    while not words or length < seconds * chars_per_s:
        words.append(WORDS[len(words) % len(WORDS)])
        length += len(words[-1]) + 1
    return {"id": f"{seconds} s", "text": " ".join(words), "max_seconds": float(seconds)}


def spoken(model: VoxCPM2, speaker: CodecLMSpeaker, job: Job) -> dict[str, float]:
    """Milliseconds per patch of a row alone: the decoding, what follows it, and both."""
    synchronize(model.device)
    started = time.perf_counter()
    with torch.inference_mode():
        frames = decoded(speaker, job)
    synchronize(model.device)
    ar_s = time.perf_counter() - started
    started = time.perf_counter()
    (wave,) = speaker.speak([job.prompt.segment])
    total_s = time.perf_counter() - started
    assert isinstance(wave, Waveform)
    assert wave.num_frames == frames
    per_patch = 1e3 / frames
    return {
        "patches": frames,
        "ar": ar_s * per_patch,
        "codec": (total_s - ar_s) * per_patch,
        "ms": total_s * per_patch,
    }


def decoded(speaker: CodecLMSpeaker, job: Job) -> int:
    """Patches of a row that is decoded and not spoken."""
    items: list[Job | Refusal] = [job]
    with Prefetch(items, 1, "job") as incoming:
        (finished,) = speaker._loop.run(JobQueue(incoming, 1))
    assert isinstance(finished, FinishedFrames)
    return len(finished.frames)


if __name__ == "__main__":
    main()
