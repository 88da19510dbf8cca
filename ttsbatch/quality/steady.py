"""Sound that does not move: hum, hiss, a vowel that never ends. Speech changes its level."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ttsbatch.quality.frames import FRAME_S, Frames

WINDOW_S = 0.6
RANGE_DB = 6.0  # levels within it count as one; syllables differ by more


def steady_seconds(frames: Frames) -> float:
    """The longest stretch of sound whose level stays within `RANGE_DB`; 0 below `WINDOW_S`.

    Over longer stretches the level may drift: every window of `WINDOW_S` within is steady.
    """
    size = round(WINDOW_S / FRAME_S)
    if len(frames.power) < size:
        return 0.0
    windows = sliding_window_view(frames.power, size)
    least, most = windows.min(axis=1), windows.max(axis=1)
    heard = sliding_window_view(frames.is_heard, size).all(axis=1)
    is_steady = heard & (most <= least * 10 ** (RANGE_DB / 10))
    at = np.arange(1, len(is_steady) + 1)
    last_miss = np.maximum.accumulate(np.where(is_steady, 0, at))
    run = int((at - last_miss).max())
    return (run + size - 1) * FRAME_S if run else 0.0
