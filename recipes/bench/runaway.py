"""What one row that never ends by itself costs a run: AR decoding with and without it, in turns.

    python -m recipes.bench.runaway [--rows 8192] [--slots 512]

Every row is expected as long as its text says and lasts what was drawn beforehand; the runaway is a
short row, seated among the last, that goes on to the cap of its text. Prints the best of each in
seconds, frames and slot-frames. Decoding is about 60 % of a run of `synth`, of which
the difference should be below 1 %.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace

import torch

from ttsbatch.bench.parts import jobs_of, pages_for
from ttsbatch.bench.workload import workload
from ttsbatch.engine.budget import CAP_FACTOR, CAP_SLACK_S
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.device import choose_device
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.models.qwen3_tts.card import open_card
from ttsbatch.models.qwen3_tts.model import load
from ttsbatch.plan import EnginePlan
from ttsbatch.types import EngineStats

POSITIONS = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:qwen3-tts-1.7b-customvoice")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    device, dtype = choose_device(EnginePlan())
    model = load(open_card(args.model), device, dtype)
    stats = EngineStats()
    loop = DecodeLoop(model, args.slots, pages_for(args.slots, POSITIONS), POSITIONS, stats)
    jobs = jobs_of(model, workload(args.rows, voices=[{"voice": "ryan"}]))
    shortest = min(range(len(jobs)), key=lambda n: jobs[n].cap_frames)
    short = jobs[shortest]
    rate_hz = model.spec.frame_rate_hz
    cap = math.ceil(short.cap_frames * CAP_FACTOR + CAP_SLACK_S * rate_hz)
    with_runaway = list(jobs)
    with_runaway[shortest] = replace(short, cap_frames=cap)
    print(f"{len(jobs)} rows, {args.slots} slots; the runaway: {short.cap_frames} -> {cap} frames")
    best: dict[str, float] = {}
    run(loop, jobs[: 4 * args.slots])
    for _ in range(args.rounds):
        for name, rows in (("without", jobs), ("with", with_runaway)):
            before = replace(stats)
            seconds = run(loop, rows)
            steps = stats.num_steps - before.num_steps
            slot_steps = stats.total_slot_steps - before.total_slot_steps
            best[name] = min(best.get(name, math.inf), seconds)
            print(f"{name:8s} {seconds:7.3f} s  {steps} frames  {slot_steps} slot-frames")
    print(f"the runaway costs {best['with'] / best['without'] - 1:+.2%}")


def run(loop: DecodeLoop, jobs: list[Job]) -> float:
    """Seconds to decode these jobs."""
    items: list[Job | Refusal] = [*jobs]
    started = time.perf_counter()
    with Prefetch(items, len(items), "jobs") as incoming:
        done = sum(isinstance(f, FinishedFrames) for f in loop.run(JobQueue(incoming, 4 * 1024)))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    assert done == len(jobs)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
