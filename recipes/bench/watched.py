"""A `synth` run whose memory is watched, and may be confined to part of the device.

    python recipes/bench/watched.py [--confine-gb 24] -- CORPUS -o OUT --model MODEL ...

Takes the arguments of `ttsbatch synth` after `--`. Prints the memory of the process and what the
device's allocator holds, at tenths of the time in which the run spoke: they should be flat.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import torch

from ttsbatch.cli.app import app
from ttsbatch.report import load_report

EVERY_S = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--confine-gb", type=float)
    parser.add_argument("synth", nargs="+")
    args = parser.parse_args()
    if args.confine_gb is not None:
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction(args.confine_gb * 2**30 / total)
    samples: list[tuple[float, float, float]] = []
    over = threading.Event()
    watcher = threading.Thread(target=watch, args=(samples, over))
    watcher.start()
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
    spoken = [s for s in samples if ended - wall_s <= s[0] <= ended]
    for tenth in range(11):
        at, host, device = spoken[min(tenth * len(spoken) // 10, len(spoken) - 1)]
        print(f"{wall_s - (ended - at):7.1f} s  process {host:6.2f} GiB  device {device:6.2f} GiB")


def watch(samples: list[tuple[float, float, float]], over: threading.Event) -> None:
    """Append (time, GiB of the process, GiB that the device's allocator holds)."""
    page = os.sysconf("SC_PAGE_SIZE")
    while not over.wait(EVERY_S):
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * page
        device = torch.cuda.memory_reserved() if torch.cuda.is_initialized() else 0
        samples.append((time.monotonic(), resident / 2**30, device / 2**30))


if __name__ == "__main__":
    main()
