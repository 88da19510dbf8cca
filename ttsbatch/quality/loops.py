"""Is a part of a clip heard twice? A model that loops says the same sounds in the same way again.

Each frame is compared with those a lag later, as in the alignment of two sequences: a stretch of
neighbouring frames scores by how much more alike than `ALIKE` they are, and one that isn't alike
sets it back. One person saying a word twice never scores much; a copy does, frame by frame. What
the text itself repeats is allowed for. A third of a millisecond for five seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from ttsbatch.quality.frames import FRAME_S
from ttsbatch.quality.repeats import longest_echo_s, longest_run_of_words_s
from ttsbatch.quality.spectrum import Spectrum

ALIKE = 0.7  # cosine of two frames' bands; frames of a copy have 0.9 and more
MIN_LAG = round(0.2 / FRAME_S)
MAX_LAG = round(8 / FRAME_S)  # of heard frames: pauses don't count
BLOCK, OVERLAP = 512, 64  # frames compared at once; bounds the memory of a long row
ADJACENT_S = 0.15  # a copy that begins this soon after its original is a stutter

# Excess seconds: length of a stretch times (likeness - ALIKE). 419 rows of the embedded default
# have at most 0.042 adjacent and 0.029 elsewhere; copies of 0.5 s or more of speech have 0.08 to
# 0.3, and fifty in one that a phrase repeated by the text does.
MIN_ADJACENT, MIN_ELSEWHERE = 0.05, 0.04
ALLOWED_PER_S = 0.35  # of the seconds that a repeated part of the text should take
_WORTH_A_LOOK = 0.03


@dataclass(frozen=True, slots=True)
class Loop:
    """A part that is heard again."""

    excess_s: float  # how much of it, and how alike
    seconds: float  # without pauses
    lag_s: float  # from its beginning to that of the copy, without pauses
    is_adjacent: bool  # the copy follows its original at once


NO_LOOP = Loop(0.0, 0.0, 0.0, False)


def find_loops(spectrum: Spectrum) -> list[Loop]:
    """The clearest stretch that comes again at once, and the clearest that comes later; 0 to 2."""
    bands = spectrum.bands
    if len(bands) <= 2 * MIN_LAG:
        return []
    shape = bands - bands.mean(axis=0)
    shape /= np.maximum(np.sqrt(np.einsum("fb,fb->f", shape, shape)), 1e-6)[:, None]
    best: dict[bool, Loop] = {}
    for start in range(0, len(shape), BLOCK):
        for loop in _loops_of_block(shape[start : start + BLOCK + OVERLAP + MAX_LAG]):
            if loop.excess_s > best.get(loop.is_adjacent, NO_LOOP).excess_s:
                best[loop.is_adjacent] = loop
    return list(best.values())


def _loops_of_block(shape: npt.NDArray[np.float32]) -> list[Loop]:
    """Loops that begin in the first frames of [F, bands] unit vectors."""
    first = shape[: BLOCK + OVERLAP]
    count, num_lags = len(first), min(MAX_LAG + 1, len(shape))
    if num_lags <= MIN_LAG:
        return []
    # Row t holds frame t against all; one step more per row turns its diagonals into rows.
    width = count + num_lags
    table = np.full((count, width), -1, np.float32)
    table[:, : len(shape)] = (first @ shape.T)[:, :width] - np.float32(ALIKE)
    item = table.itemsize
    by_lag = as_strided(table[:, MIN_LAG:], (num_lags - MIN_LAG, count), (item, (width + 1) * item))
    sums = np.zeros((len(by_lag), count + 1), np.float32)
    np.cumsum(by_lag, axis=1, out=sums[:, 1:])
    lowest = np.minimum.accumulate(sums, axis=1)
    scores = sums - lowest
    lags = np.flatnonzero(scores.max(axis=1) * FRAME_S > _WORTH_A_LOOK)
    if not len(lags):
        return []
    end = scores[lags].argmax(axis=1)
    at = np.arange(count + 1)
    # A stretch begins where the sum was at its lowest, the last time before the stretch's end.
    begins = np.maximum.accumulate(np.where(sums[lags] == lowest[lags], at, 0), axis=1)
    rows = np.arange(len(lags))
    seconds = (end - begins[rows, end]) * FRAME_S
    excess = scores[lags, end] * FRAME_S
    lags_s = (lags + MIN_LAG) * FRAME_S
    adjacent = lags_s <= seconds + ADJACENT_S
    loops = []
    for which in (adjacent, ~adjacent):
        if which.any():
            i = int(np.argmax(np.where(which, excess, 0)))
            loops.append(
                Loop(float(excess[i]), float(seconds[i]), float(lags_s[i]), bool(adjacent[i]))
            )
    return loops


def is_unasked(loop: Loop, text: str, language: str) -> bool:
    """Whether the text has nothing that would sound like this loop.

    Args:
        loop: what was found.
        text: what was to be said.
        language: its ISO 639 code or "auto".
    """
    least = MIN_ADJACENT if loop.is_adjacent else MIN_ELSEWHERE
    if loop.excess_s <= least:
        return False
    repeated_s = longest_run_of_words_s if loop.is_adjacent else longest_echo_s
    return loop.excess_s > least + ALLOWED_PER_S * repeated_s(text, language)
