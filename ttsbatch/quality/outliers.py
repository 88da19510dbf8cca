"""The rows of a run against each other: who is much slower or faster than the rest of a voice.

This is where the run itself is the measure. It is looked at when the run is over and changes no
verdict (`duration.py` says why): the report names the rows, and who listens decides. Groups are
language and voice. The result depends on which rows there are, not on their order, and takes the
same memory for ten rows as for ten million.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MIN_EXPECTED_S = 1.5  # single words vary too much
MIN_ROWS = 20  # fewer say nothing about a voice
BINS_PER_E = 200  # half a percent
MAX_SPREADS = 4.5  # robust standard deviations; of good rows one in some 100,000 is beyond
MIN_DEVIATION = 1.25  # and nobody hears less than this factor
NUM_NAMED = 10  # rows named on each side, the farthest first

_MAD_TO_SIGMA = 1.4826
# As manifest.py writes a line; quotes inside strings are escaped, so no text can pass for this.
# Patterns match at a mark that is found first: ten times as fast as a search by pattern.
_VOICE_MARK, _CHECKS_MARK = b', "voice": ', b', "checks": {'
_ID = re.compile(rb'\{"id": ("(?:[^"\\]|\\.)*")')
_VOICE = re.compile(rb', "voice": (null|"(?:[^"\\]|\\.)*"), "language": "([^"]*)"')
_CHECKS = re.compile(
    rb', "checks": \{"verdict": "\w+", "reasons": \[([^\]]*)\], '
    rb'"duration_s": ([\d.e+-]+), "expected_s": ([\d.e+-]+)'
)
_REASON = re.compile(rb'"(\w+)"')


@dataclass(slots=True)
class _Group:
    """The paces of one language and voice: a histogram, and both ends by name."""

    bins: Counter[int] = field(default_factory=Counter)
    slow: list[tuple[float, str]] = field(default_factory=list)  # (log ratio, id), a heap
    fast: list[tuple[float, str]] = field(default_factory=list)  # (-log ratio, id), a heap

    def add(self, ratio: float, row_id: str) -> None:
        log = math.log(ratio)
        self.bins[round(log * BINS_PER_E)] += 1
        for heap, value in ((self.slow, log), (self.fast, -log)):
            if len(heap) < NUM_NAMED:
                heapq.heappush(heap, (value, row_id))
            else:
                heapq.heappushpop(heap, (value, row_id))

    def summary(self) -> dict[str, Any]:
        rows = self.bins.total()
        middle = _median(self.bins)
        deviations: Counter[int] = Counter()
        for value, count in self.bins.items():
            deviations[abs(value - middle)] += count
        spread = max(_MAD_TO_SIGMA * _median(deviations) / BINS_PER_E, 1 / BINS_PER_E)
        median = middle / BINS_PER_E
        limit = max(MAX_SPREADS * spread, math.log(MIN_DEVIATION))
        is_enough = rows >= MIN_ROWS
        count = sum(n for b, n in self.bins.items() if abs(b / BINS_PER_E - median) > limit)
        ends = [*self.slow, *((-value, row_id) for value, row_id in self.fast)]
        named = {i: value - median for value, i in ends if abs(value - median) > limit}
        return {
            "rows": rows,
            "pace": round(math.exp(median), 4),
            "spread": round(spread, 4),
            "outliers": count if is_enough else 0,
            "examples": [
                {"id": i, "times_the_pace": round(math.exp(off), 3)}
                for i, off in sorted(named.items(), key=lambda x: (-abs(x[1]), x[0]))
            ]
            if is_enough
            else [],
        }


def _median(bins: Counter[int]) -> int:
    left = (bins.total() + 1) // 2
    for value in sorted(bins):
        left -= bins[value]
        if left <= 0:
            return value
    return 0


class RunSurvey:
    """What the checks found over a whole run."""

    def __init__(self) -> None:
        self._flags: Counter[str] = Counter()
        self._groups: dict[tuple[str, str], _Group] = {}

    def add_lines(self, lines: Iterable[bytes]) -> None:
        """Add rows as they stand in manifest.jsonl."""
        for line in lines:
            at_voice, at_checks = line.find(_VOICE_MARK), line.find(_CHECKS_MARK)
            row = _ID.match(line)
            voice = _VOICE.match(line, max(at_voice, 0))
            checks = _CHECKS.match(line, max(at_checks, 0))
            if row is None or voice is None or checks is None:
                continue  # checks without a length: of another version
            reasons, duration_s, expected_s = checks.groups()
            for name in _REASON.findall(reasons):
                self._flags[name.decode()] += 1
            duration, expected = float(duration_s), float(expected_s)
            if duration > 0 and expected >= MIN_EXPECTED_S:
                key = (voice[2].decode(), json.loads(voice[1]) or "-")
                group = self._groups.setdefault(key, _Group())
                group.add(duration / expected, json.loads(row[1]))

    def result(self) -> dict[str, Any]:
        """`flags`: rows by reason, most first; `paces`: each language and voice."""
        return {
            "flags": dict(sorted(self._flags.items(), key=lambda x: (-x[1], x[0]))),
            "paces": [
                {"language": language, "voice": voice, **group.summary()}
                for (language, voice), group in sorted(self._groups.items())
            ],
        }
