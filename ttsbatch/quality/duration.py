"""Is a clip as long as its text? Seconds against what the text is expected to take.

What decides is fixed beforehand: the language, the row, and the voice where its speech has been
measured. The pace of the run so far decides nothing. If it did, a row's verdict, and so its
retries and its audio, would depend on which rows were done before it: on the order of the corpus,
on the number of devices, on where a killed run was resumed. The report compares each row with the
others of its voice instead, once the run is over (`quality/outliers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ttsbatch.types import Utterance, VoiceProfile


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a clip may take, as shares of the expected seconds."""

    least: float
    most: float


MEASURED = Pace(0.8, 1.35)
"""Of a voice whose own pace is known. 419 rows of the embedded default, numbers and single words
included, took 0.77 to 1.36 times the expected seconds, all within `LESS_S` and `MORE_S` of this."""
BY_LANGUAGE = {"en": Pace(0.68, 1.6)}
"""Of any voice: English from some 100 to 300 words a minute."""
OTHERWISE = Pace(0.5, 2.0)
"""Where the rates of `text/duration.py` are estimates, or the row asks for a manner of speaking."""
LESS_S, MORE_S = 0.1, 0.2  # edges: single words vary by these, whatever their length


def pace_of(utterance: Utterance, profile: VoiceProfile | None) -> Pace:
    """What a row is held to."""
    if utterance.instruct is not None:
        return OTHERWISE
    if profile is not None:
        return Pace(MEASURED.least * profile.pace, MEASURED.most * profile.pace)
    return BY_LANGUAGE.get(utterance.language, OTHERWISE)


def judge_duration(
    duration_s: float, expected_s: float, pace: Pace
) -> Literal["too_long", "too_short"] | None:
    """What is wrong with a duration, given the seconds that the text is expected to take."""
    if duration_s > pace.most * expected_s + MORE_S:
        return "too_long"
    if duration_s < pace.least * expected_s - LESS_S:
        return "too_short"
    return None
