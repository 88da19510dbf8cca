"""Time and memory of reading a large corpus: `check`, and the first row of `synth --limit 5`.

    python -m recipes.bench.check_rows --rows 1000000
    python -m recipes.bench.check_rows --rows 10000000 --folder /data
    python -m recipes.bench.check_rows --rows 1000000 --kind jsonl

Prints a line per command: wall seconds, user + sys seconds, peak memory of the process. On two
cores of a server CPU the first should stay below 60 s and 500 MB, the second's `synth --limit 5`
below 5 s to its first row. The file is kept in the folder and used again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TEXT = """the a of river walks slowly over many hills while children sing about winter light and old
stories that nobody remembers until morning comes again with rain or wind from far islands"""
WORDS = TEXT.split()
NUM_SENTENCES = 50_000
CHUNK_ROWS = 100_000
POLL_S = 0.02


def sentences(rng: np.random.Generator) -> list[str]:
    """Sentences of 4 to 20 words; one in ten has a comma, one in fifty other letters."""
    out = []
    for i in range(NUM_SENTENCES):
        words = [WORDS[k] for k in rng.integers(0, len(WORDS), rng.integers(4, 21))]
        if i % 10 == 0:
            words[2] += ","
        if i % 50 == 0:
            words[-1] = "café"
        out.append(" ".join(words).capitalize() + ".")
    return out


def chunks(num_rows: int) -> Iterator[dict[str, Any]]:
    """Columns of up to `CHUNK_ROWS` rows: id, text, language, and one that rides along."""
    rng = np.random.default_rng(0)
    pool = np.array(sentences(rng), dtype=object)
    for start in range(0, num_rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, num_rows)
        yield {
            "id": [f"utterance-{i:09d}" for i in range(start, stop)],
            "text": pool[rng.integers(0, NUM_SENTENCES, stop - start)].tolist(),
            "language": ["en"] * (stop - start),
            "speaker": rng.integers(0, 900, stop - start).tolist(),
        }


def make_corpus(path: Path, num_rows: int) -> None:
    """Write the rows as Parquet or JSONL, by the extension."""
    partial = path.with_suffix(".partial")
    if path.suffix == ".jsonl":
        with partial.open("w") as f:
            for columns in chunks(num_rows):
                for row in zip(*columns.values(), strict=True):
                    f.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        writer = None
        for columns in chunks(num_rows):
            table = pa.table(columns)
            writer = writer or pq.ParquetWriter(partial, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
    partial.rename(path)


def timed(command: list[str], first: Callable[[], bool] | None = None) -> dict[str, float]:
    """Run a command; its wall and CPU seconds, peak memory, and when `first` first held."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    found: dict[str, float] = {}
    while first is not None and process.poll() is None:
        if first():
            found["first_row_s"] = time.perf_counter() - started
            break
        time.sleep(POLL_S)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)}: failed")
    return {
        "wall_s": time.perf_counter() - started,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mb": usage.ru_maxrss / 1024,
        **found,
    }


def show(name: str, figures: dict[str, float]) -> None:
    """One line of the result."""
    load = os.getloadavg()[0]
    print(f"{name}: {', '.join(f'{k} {v:.1f}' for k, v in figures.items())} (load {load:.1f})")


def main() -> None:
    """Make the corpus if it is not there, and time the commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=("parquet", "jsonl"), default="parquet")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only-first-row", action="store_true", help="leave `check` out")
    args = parser.parse_args()
    corpus = args.folder / f"check_rows_{args.rows}.{args.kind}"
    if not corpus.exists():
        make_corpus(corpus, args.rows)
    print(f"{corpus}: {args.rows:,} rows, {corpus.stat().st_size / 1e6:.0f} MB")
    ttsbatch = [sys.executable, "-m", "ttsbatch"]
    if not args.only_first_row:
        check = [*ttsbatch, "check", str(corpus), "--no-normalize", "--quiet"]
        show("check --no-normalize", timed(check))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        synth = [*ttsbatch, "synth", str(corpus), "-o", str(out), "--limit", "5", "--quiet"]
        show("synth --limit 5", timed(synth, lambda: any(out.glob("audio/*/*.wav"))))


if __name__ == "__main__":
    main()
