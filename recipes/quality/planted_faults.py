"""How many planted faults the gates flag, and how many good rows: a table on stdout.

    python recipes/quality/planted_faults.py CORPUS [--each 20] [--good 200] [--seed 0] [--rate HZ]

CORPUS is spoken by the embedded default, some 40 s for 200 short rows on two cores. Faults are made
from its rows (`tests/quality/planted.py`), and judged as `synth` judges them; the last column is
what is left where nothing is known of the voice. Exits with 1 unless all faults are flagged (a
silent run-on: trimmed) and at most a hundredth of the good rows.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.quality.planted import FAULTS, TRIMMED, at_rate, judge, planted, speak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--good", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=int, default=24_000, help="as a model of that rate")
    args = parser.parse_args()
    rows = [at_rate(row, args.rate) for row in speak(args.corpus, args.good)]
    rng = np.random.default_rng(args.seed)
    print("| planted | rows | flagged | reasons | voice unknown |")
    print("| --- | --- | --- | --- | --- |")
    verdicts = [judge(r.waves) for r in rows]
    flagged = [v for v in verdicts if v["verdict"] == "flag"]
    unknown = sum(judge(r.waves, calibrated=False)["verdict"] == "flag" for r in rows)
    _line("nothing: good rows", len(rows), flagged, unknown)
    is_good = len(flagged) <= len(rows) / 100
    whole = [r for r in rows if r.is_whole]
    for fault in FAULTS:
        chosen = rng.choice(len(whole), min(args.each, len(whole)), replace=False)
        waves = [planted(whole[i], fault, rng) for i in chosen]
        verdicts = [judge([w]) for w in waves]
        unknown = [judge([w], calibrated=False) for w in waves]
        if fault == TRIMMED:
            found = [v for v in verdicts if v["verdict"] == "pass" and v["trimmed_s"] > 0]
            num_unknown = sum(v["verdict"] == "pass" and v["trimmed_s"] > 0 for v in unknown)
            _line(f"{fault}: trimmed", len(waves), found, num_unknown)
        else:
            found = [v for v in verdicts if v["verdict"] == "flag"]
            _line(fault, len(waves), found, sum(v["verdict"] == "flag" for v in unknown))
        is_good &= len(found) == len(waves)
    return 0 if is_good else 1


def _line(name: str, count: int, found: list[dict[str, object]], unknown: int) -> None:
    reasons = Counter(r for v in found for r in v["reasons"])
    text = ", ".join(f"{r} {n}" for r, n in reasons.most_common())
    print(f"| {name} | {count} | {len(found)} | {text or '-'} | {unknown} |")


if __name__ == "__main__":
    sys.exit(main())
