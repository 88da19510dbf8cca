"""How much of a clip is silence, how much of that is at its end, and whether it ends in one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.frames import FRAME_S, Frames, measure_frames
from ttsbatch.quality.level import FULL_SCALE, to_db


@dataclass(frozen=True, slots=True)
class Silence:
    """Silent parts of one clip."""

    share: float  # of all frames, 0..1
    tail_s: float  # near-silence at the end, seconds
    end_db: float  # level of the last 20 ms, against the speech


def measure_silence(samples: npt.NDArray[np.int16], sample_rate_hz: int, frames: Frames) -> Silence:
    """Silence by 20 ms frames, against the clip's own speech level.

    Args:
        samples: [N] int16, N > 0.
        sample_rate_hz: of the samples.
        frames: of these samples.
    """
    heard = np.flatnonzero(frames.is_heard)
    num_frames = len(frames.is_heard)
    tail = num_frames - 1 - int(heard[-1]) if len(heard) else num_frames
    end = samples[-max(1, round(FRAME_S * sample_rate_hz)) :].astype(np.float32)
    end_dbfs = to_db(float(np.sqrt(np.dot(end, end) / len(end))) / FULL_SCALE)
    return Silence(
        share=1 - len(heard) / num_frames,
        tail_s=tail * FRAME_S,
        end_db=end_dbfs - frames.speech_dbfs,
    )


def silent_tail_s(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> float:
    """Seconds of near-silence after the last sound; 0 where there is no sound at all."""
    if not len(samples):
        return 0.0
    frames = measure_frames(samples, sample_rate_hz)
    if not frames.is_heard.any():
        return 0.0
    return measure_silence(samples, sample_rate_hz, frames).tail_s
