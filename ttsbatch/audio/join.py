"""The segments of one utterance, put together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ttsbatch.types import Waveform

DEFAULT_PAUSE_S = 0.15  # between two sentences, besides the silence that models leave themselves


def join_segments(
    waves: Sequence[Waveform], pause_s: float = DEFAULT_PAUSE_S
) -> npt.NDArray[np.int16]:
    """All samples in the order of the segments, a pause between two; one segment: as it is.

    Args:
        waves: the segments of one utterance, one each, in any order.
        pause_s: silence between two segments, seconds.

    Returns:
        [N] int16.

    Raises:
        ValueError: no segment, or different sample rates.
    """
    rates = {w.sample_rate_hz for w in waves}
    if len(rates) != 1:
        raise ValueError(f"segments at {sorted(rates)} Hz; expected one sample rate")
    waves = sorted(waves, key=lambda w: w.segment.index)
    if len(waves) == 1:
        return waves[0].samples
    pause = np.zeros(round(pause_s * rates.pop()), np.int16)
    pieces = [waves[0].samples]
    for wave in waves[1:]:
        pieces += [pause, wave.samples]
    return np.concatenate(pieces)
