"""The corpus of the end-to-end figures: JSONL on stdout.

    python -m recipes.bench.workload 2048 > bench.jsonl
    python -m recipes.bench.workload 2048 --references 64 --folder refs > bench.jsonl
    python -m recipes.bench.workload 2048 --references 256 --shortest 2 > bench.jsonl
    python -m recipes.bench.workload 2048 --no-voice > bench.jsonl
    python -m recipes.bench.workload 2000 --repeat mixed_lengths.jsonl > mixed.jsonl
    python -m recipes.bench.workload 2000 --repeat mixed_lengths.jsonl --uniform > uniform.jsonl

Lengths are log-normal with a mean of 5 s, cut at 20 s; each row's `max_seconds` is its length, to
which a `random:` model runs. With --references, rows clone one of so many clips of 6 s in context
(noise in bursts, written to --folder), or of --shortest to 6 s, each of another length; with
--no-voice they name none, for a model without named ones. With --repeat, the texts of a corpus in
turn, cut into pieces as `synth` cuts them, each as long as it is expected to be; --uniform makes as
many rows of their mean length instead.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ttsbatch.bench.workload import REFERENCE_S, REFERENCE_TEXT, workload, write_clip
from ttsbatch.text.duration import expected_seconds
from ttsbatch.text.normalize import normalized
from ttsbatch.text.segment import split_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--references", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("refs"))
    parser.add_argument("--shortest", type=float, default=REFERENCE_S, help="clip, seconds")
    parser.add_argument("--no-voice", action="store_true")
    parser.add_argument("--repeat", type=Path, help="JSONL with texts")
    parser.add_argument("--uniform", action="store_true")
    args = parser.parse_args()
    if args.repeat is not None:
        for row in repeated(args.repeat, args.count, args.uniform):
            print(json.dumps(row))
        return
    lengths = np.linspace(args.shortest, REFERENCE_S, args.references)
    clips = [
        write_clip(args.folder / f"ref-{n:03d}.wav", n, float(length))
        for n, length in enumerate(lengths)
    ]
    voices = [{"ref_audio": str(clip), "ref_text": REFERENCE_TEXT} for clip in clips]
    voices = voices or [{} if args.no_voice else {"voice": "ryan"}]
    for row in workload(args.count, voices=voices):
        print(json.dumps(row))


def repeated(corpus: Path, count: int, uniform: bool) -> Iterator[dict[str, Any]]:
    """Rows of the corpus's texts, over and over."""
    texts = [json.loads(line)["text"] for line in corpus.read_text("utf-8").splitlines()]
    pieces = [p for text in itertools.islice(itertools.cycle(texts), count) for p in cut(text)]
    seconds = [expected_seconds(piece, "en") for piece in pieces]
    if uniform:
        mean = sum(seconds) / len(seconds)
        nearest = min(zip(seconds, pieces, strict=True), key=lambda pair: abs(pair[0] - mean))
        seconds, pieces = [mean] * len(pieces), [nearest[1]] * len(pieces)
    for n, (piece, length_s) in enumerate(zip(pieces, seconds, strict=True)):
        row = {"id": f"row-{n:05d}", "text": piece, "max_seconds": round(length_s, 2)}
        yield row | {"voice": "ryan", "language": "en"}


def cut(text: str) -> list[str]:
    """Pieces that `synth` would speak on their own."""
    return split_text(normalized(text, "en"), "en")


if __name__ == "__main__":
    main()
