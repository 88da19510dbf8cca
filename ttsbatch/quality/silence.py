"""How much of a clip is silence, and how much of that is at its end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.level import FULL_SCALE, to_db

FRAME_S = 0.02
BELOW_SPEECH_DB = 40.0  # a frame this far under the level of the speech is silent
SILENT_BELOW_DBFS = -65.0  # and so is anything under this, whatever the speech does


@dataclass(frozen=True, slots=True)
class Silence:
    """Silent parts of one clip."""

    share: float  # of all frames, 0..1
    tail_s: float  # near-silence at the end, seconds
    speech_dbfs: float  # level of the louder half of the frames


def measure_silence(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> Silence:
    """Silence by 20 ms frames, against the clip's own speech level.

    Args:
        samples: [N] int16.
        sample_rate_hz: of the samples.
    """
    size = max(1, round(FRAME_S * sample_rate_hz))
    num_frames = len(samples) // size
    if num_frames == 0:
        level = to_db(float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))) / FULL_SCALE)
        return Silence(share=0.0, tail_s=0.0, speech_dbfs=level)
    frames = samples[: num_frames * size].reshape(num_frames, size).astype(np.float32)
    power = np.einsum("fs,fs->f", frames, frames).astype(np.float64) / (size * FULL_SCALE**2)
    loud = power[power >= np.median(power)]
    speech_dbfs = to_db(float(np.sqrt(loud.mean())))
    limit_dbfs = max(speech_dbfs - BELOW_SPEECH_DB, SILENT_BELOW_DBFS)
    heard = np.flatnonzero(power >= 10 ** (limit_dbfs / 10))
    tail = num_frames - 1 - int(heard[-1]) if len(heard) else num_frames
    return Silence(
        share=1 - len(heard) / num_frames, tail_s=tail * FRAME_S, speech_dbfs=speech_dbfs
    )
