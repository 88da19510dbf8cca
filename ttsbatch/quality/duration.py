"""Is a clip as long as its text?"""

from __future__ import annotations

from typing import Literal

# 56 clips of the embedded default took 0.77 to 1.68 times the expected seconds, the extremes being
# single words; hence the constant parts. A clip of one to four characters stays below 3 s.
TOO_LONG_FACTOR, TOO_LONG_EXTRA_S = 2.0, 0.4
TOO_SHORT_FACTOR, TOO_SHORT_LESS_S = 0.4, 0.3


def judge_duration(duration_s: float, expected_s: float) -> Literal["too_long", "too_short"] | None:
    """What is wrong with a duration, given the seconds that the text is expected to take."""
    if duration_s > TOO_LONG_FACTOR * expected_s + TOO_LONG_EXTRA_S:
        return "too_long"
    if duration_s < TOO_SHORT_FACTOR * expected_s - TOO_SHORT_LESS_S:
        return "too_short"
    return None
