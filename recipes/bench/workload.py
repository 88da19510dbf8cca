"""The corpus of the end-to-end figures: JSONL on stdout.

    python recipes/bench/workload.py 2048 > bench.jsonl
    python recipes/bench/workload.py 2048 --references 64 --folder refs > bench.jsonl

Lengths are log-normal with a mean of 5 s, cut at 20 s; each row's `max_seconds` is its length, to
which a `random:` model runs. With --references, rows clone one of so many clips of 6 s in context
(noise in bursts, written to --folder).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ttsbatch.bench.workload import REFERENCE_TEXT, workload, write_clip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--references", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("refs"))
    args = parser.parse_args()
    clips = [write_clip(args.folder / f"ref-{n:03d}.wav", n) for n in range(args.references)]
    voices = [{"ref_audio": str(clip), "ref_text": REFERENCE_TEXT} for clip in clips]
    for row in workload(args.count, voices=voices or [{"voice": "ryan"}]):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
