"""A `synth` run whose memory is watched, and whose workers may be confined to part of a device.

    python -m recipes.bench.watched [--confine-gb 24] -- CORPUS -o OUT --model MODEL ...

Takes the arguments of `ttsbatch synth` after `--`. Prints the memory of all processes of the run,
and what is held on the device, at tenths of the time in which it spoke: they should be flat.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
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
from ttsbatch.types import Demand, ModelCard

EVERY_S = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--confine-gb", type=float)
    parser.add_argument("synth", nargs="+")
    args = parser.parse_args()
    opener = open_here if args.confine_gb is None else partial(open_confined, args.confine_gb)
    host: list[tuple[float, float]] = []
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(host, over))
    watcher.start()
    with (
        patch.object(pipeline, "open_speaker", partial(open_speaker, opener=opener)),
        DeviceCounters() as counters,
    ):
        try:
            app(["synth", *args.synth], standalone_mode=False)
        except SystemExit as e:
            print(f"exit code {e.code}")
        finally:
            ended = time.monotonic()
            over.set()
            watcher.join()
    report = load_report(Path(args.synth[args.synth.index("-o") + 1])).values
    wall_s = float(report["wall_seconds"])
    print(f"{report['utterances']}  {report['slots']}")
    print(f"{report['audio_seconds_per_second']:.0f} audio-s/s, {wall_s:.1f} s")
    spoken = [s for s in host if ended - wall_s <= s[0] <= ended]
    for tenth in range(11):
        at, used = spoken[min(tenth * len(spoken) // 10, len(spoken) - 1)]
        device = max((s.memory_bytes for s in counters.between(at - 1, at)), default=0)
        print(
            f"{wall_s - (ended - at):7.1f} s  processes {used:6.2f} GiB  "
            f"device {device / 2**30:6.2f} GiB"
        )


def open_confined(
    gigabytes: float, card: ModelCard, plan: EnginePlan, keep_codes: bool, demand: Demand
) -> Speaker:
    """In the worker: the model, in so much memory of the device."""
    import torch

    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(gigabytes * 2**30 / total)
    return open_here(card, plan, keep_codes, demand)


def watch(samples: list[tuple[float, float]], over: threading.Event) -> None:
    """Append (time, GiB that this process and its children hold by themselves)."""
    while not over.wait(EVERY_S):
        used = sum(map(private_bytes, [os.getpid(), *children(os.getpid())]))
        samples.append((time.monotonic(), used / 2**30))


def children(pid: int) -> list[int]:
    """The processes below one."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text().split()):
            found += [child, *children(child)]
    return found


def private_bytes(pid: int) -> int:
    """Resident memory, less what is shared with others; 0 of a process that has gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
