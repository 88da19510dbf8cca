"""Fuzzed corpus lines through the reader and the row rules, and some through `synth`.

    python -m recipes.fuzz.corpus_lines --lines 100000 --synth 5000 --seed 0

Run it from the repository's root. Ends with an AssertionError or a traceback if a row is lost,
doubled, or not what the rest of a run relies on; else prints the reasons and the slowest row. The
synth part has a speaker that makes noise, so it costs no model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.corpus import hostile
from tests.corpus.conftest import ALL_CARDS
from tests.corpus.fuzzing import num_rows_of, scan_all
from tests.corpus.test_fuzz import synthesize_lines
from ttsbatch.plan import RowDefaults


def main() -> None:
    """Make the lines, scan them as each kind of model, and speak a part."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--synth", type=int, default=5_000, help="of the lines, spoken too")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lines = list(hostile.lines(args.lines, args.seed))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hostile.jsonl"
        path.write_bytes(b"\n".join(lines))
        num_rows = num_rows_of(path.read_bytes())
        for card in ALL_CARDS:
            started = time.perf_counter()
            found = scan_all([path], card, RowDefaults(voice=(*card.voices, None)[0]))
            elapsed = time.perf_counter() - started
            assert found.num_rows == num_rows, f"{found.num_rows} rows came of {num_rows}"
            print(f"\n{card.name}: {num_rows:,} rows in {elapsed:.1f} s, {found.num_good:,} good")
            line = path.read_bytes().split(b"\n")[found.slowest[1] - 1]
            print(f"  slowest row {found.slowest_s:.3f} s, line {found.slowest[1]}: {line[:60]!r}")
            for reason, count in found.reasons.most_common():
                print(f"  {reason:22}{count:8,}")
        started = time.perf_counter()
        counts = synthesize_lines(lines[: args.synth], Path(folder))
        print(f"\nsynth: {counts} in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
