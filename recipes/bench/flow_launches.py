"""What the host does for a VoxCPM2 patch: launches before and after graphs, waits for the device.

    python -m recipes.bench.flow_launches [--slots 64,256] [--json FILE]

Two kinds of lines for each number of slots, without and with CUDA graphs. Of steps alone, per step:
kernels, launches (of a kernel, or of a graph), copies and waits. Of the engine's loop, a whole run
of one row a slot: every call that waits for the device, by name (the profiler's own at its end is
one of them), and what `torch.cuda.set_sync_debug_mode` finds. Steps should have no wait at all; the
loop waits for an event once a round of some steps, by when the next round is launched, so that the
device goes on.
On a CPU, where nothing is launched, only the operations of torch are counted.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from recipes.bench.flow_results import Results, numbers, open_model, parser, synchronize
from ttsbatch.bench.parts import bench_step, jobs_of, pages_for, release
from ttsbatch.bench.workload import workload
from ttsbatch.engine.decode import DecodeLoop, FinishedFrames
from ttsbatch.engine.queue import JobQueue, Prefetch, Refusal
from ttsbatch.engine.slots import Job
from ttsbatch.models.protocol import PAGE_SIZE
from ttsbatch.models.voxcpm2.model import VoxCPM2
from ttsbatch.types import EngineStats

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cuLaunchKernel",
)  # and their Ex, ExC
WAITS = frozenset(
    {
        "cudaDeviceSynchronize",
        "cudaEventSynchronize",
        "cudaMemcpy",
        "cudaStreamSynchronize",
        "cuCtxSynchronize",
        "cuEventSynchronize",
        "cuStreamSynchronize",
    }
)
Event = tuple[str, bool]
"""Name, and whether it ran on the device."""


def main() -> None:
    p = parser(__doc__)
    p.add_argument("--slots", type=numbers, default=[64, 256])
    p.add_argument("--context", type=int, default=150, help="mean positions of the steps alone")
    p.add_argument("--frames", type=int, default=8, help="steps alone")
    p.add_argument("--seconds", type=float, default=6.4, help="of every row of the loop")
    args = p.parse_args()
    model = open_model(args)
    results = Results(model, args.json)
    for slots in args.slots:
        for use_graphs in (False, True) if model.device.type == "cuda" else (False,):
            how = "CUDA graphs" if use_graphs else "eager"
            counts = of_steps(model, slots, args, use_graphs)
            results.add(f"per step, {how}", slots=slots, **counts)
            results.add(f"the loop, {how}", slots=slots, **of_loop(model, slots, args, use_graphs))


def of_steps(
    model: VoxCPM2, slots: int, args: argparse.Namespace, use_graphs: bool
) -> dict[str, float]:
    """What one more step takes: the mean over the second half of some back to back.

    So what the profiler adds, and the wait at the end, are not in.
    """
    few, many = (
        tally(steps_alone(model, slots, args, n * args.frames, use_graphs)) for n in (1, 2)
    )
    return {name: (count - few[name]) / args.frames for name, count in many.items()}


def steps_alone(
    model: VoxCPM2, slots: int, args: argparse.Namespace, frames: int, use_graphs: bool
) -> list[Event]:
    """Of so many steps back to back."""
    with recorded(model) as found, TemporaryDirectory() as folder:
        where = (slots, args.context, {"steps": args.steps}, Path(folder), frames)
        bench_step(model, *where, around=found.recorder, use_graphs=use_graphs)
    return found.events()


def of_loop(
    model: VoxCPM2, slots: int, args: argparse.Namespace, use_graphs: bool
) -> dict[str, Any]:
    """The waits of a run of one row a slot, all of one length, after one that warms up."""
    release(model)
    own = {"max_seconds": args.seconds, "steps": args.steps}
    rows = [row | own for row in workload(slots)]
    jobs = jobs_of(model, rows)
    longest = max(j.num_pages for j in jobs) * PAGE_SIZE
    stats = EngineStats()
    loop = DecodeLoop(model, slots, pages_for(slots, longest), longest, stats, use_graphs)
    run(loop, jobs)
    synchronize(model.device)
    stats.num_steps = 0
    with recorded(model) as found, sync_warnings(model) as warned, found.recorder:
        run(loop, jobs)
    steps = stats.num_steps
    counts = tally(found.events())
    return {
        "steps": steps,
        "rounds": math.ceil(steps / loop.frames_per_round),
        "waits": counts["waits"],
        **{n: c for n, c in Counter(name for name, _ in found.events()).items() if n in WAITS},
        "synchronizing calls": len(warned),
        "launches per step": counts["launches"] / steps,
        "eager steps": loop.num_eager if use_graphs else steps,
    }


def run(loop: DecodeLoop, jobs: list[Job]) -> None:
    """Decode all of them; what was made is dropped."""
    items: list[Job | Refusal] = [*jobs]
    with Prefetch(items, len(items), "jobs") as incoming:
        made = sum(isinstance(f, FinishedFrames) for f in loop.run(JobQueue(incoming, len(jobs))))
    assert made == len(jobs)


class Recorded:
    """A profiler, and what it found."""

    def __init__(self, model: VoxCPM2) -> None:
        kinds = [ProfilerActivity.CPU]
        if model.device.type == "cuda":
            kinds.append(ProfilerActivity.CUDA)
        self.recorder = profile(activities=kinds)
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """Of the time that it was entered for."""
        if not self._events:
            on_host = torch.autograd.DeviceType.CPU
            self._events = [
                (e.name(), e.device_type() != on_host)
                for e in self.recorder.profiler.kineto_results.events()
            ]
        return self._events


@contextmanager
def recorded(model: VoxCPM2) -> Iterator[Recorded]:
    """A profiler to enter, with the device at rest before and after."""
    synchronize(model.device)
    yield Recorded(model)
    synchronize(model.device)


@contextmanager
def sync_warnings(model: VoxCPM2) -> Iterator[list[warnings.WarningMessage]]:
    """What torch finds that waits for the device, on any thread; nothing on a CPU."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if model.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("warn")
        found: list[warnings.WarningMessage] = []
        try:
            yield found
        finally:
            if model.device.type == "cuda":
                torch.cuda.set_sync_debug_mode("default")
            found += [w for w in caught if "synchronizing CUDA operation" in str(w.message)]


def tally(events: Iterable[Event]) -> dict[str, int]:
    """Counts of what the host called and the device ran."""
    counts = dict.fromkeys(("kernels", "launches", "graph launches", "copies", "waits"), 0)
    counts["operations"] = 0
    for name, on_device in events:
        if on_device:
            counts["copies" if name.startswith(("Memcpy", "Memset")) else "kernels"] += 1
        elif name == "cudaGraphLaunch":
            counts["graph launches"] += 1
        elif name.startswith(LAUNCHES):
            counts["launches"] += 1
        elif name in WAITS:
            counts["waits"] += 1
        elif name.startswith("aten::"):
            counts["operations"] += 1
    return counts


if __name__ == "__main__":
    main()
