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

import numpy as np
import soundfile

from ttsbatch.bench import workload

REFERENCE_S, RATE_HZ = 6.0, 24_000
REFERENCE_TEXT = "The reference says a sentence of about this length, and a second one after it."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--references", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("refs"))
    args = parser.parse_args()
    clips = [write_clip(args.folder, n) for n in range(args.references)]
    for n, row in enumerate(workload(args.count, voice=None if clips else "ryan")):
        if clips:
            row |= {"ref_audio": str(clips[n % len(clips)].resolve()), "ref_text": REFERENCE_TEXT}
        print(json.dumps({k: v for k, v in row.items() if v is not None}))


def write_clip(folder: Path, n: int) -> Path:
    """Noise whose loudness comes and goes a few times a second, different for each n."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(n)
    samples = int(REFERENCE_S * RATE_HZ)
    envelope = np.interp(np.arange(samples), np.linspace(0, samples, 30), rng.random(30))
    path = folder / f"ref-{n:03d}.wav"
    soundfile.write(path, 0.3 * envelope * rng.standard_normal(samples), RATE_HZ)
    return path


if __name__ == "__main__":
    main()
