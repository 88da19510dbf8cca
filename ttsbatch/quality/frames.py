"""The clip in 20 ms frames: what silence, steady sound and the end are measured on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ttsbatch.quality.level import FULL_SCALE, to_db

FRAME_S = 0.02
BELOW_SPEECH_DB = 40.0  # a frame this far under the level of the speech is silent
SILENT_BELOW_DBFS = -65.0  # and so is anything under this, whatever the speech does


@dataclass(frozen=True, slots=True)
class Frames:
    """Levels of the whole frames of a clip."""

    power: npt.NDArray[np.float64]  # [F] mean square, full scale 1; a shorter clip: one frame
    is_heard: npt.NDArray[np.bool_]  # [F] not silent
    speech_dbfs: float  # level of the louder half of the frames


def measure_frames(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> Frames:
    """Frame levels of [N] int16 samples, N > 0."""
    size = max(1, min(round(FRAME_S * sample_rate_hz), len(samples)))
    num_frames = len(samples) // size
    frames = samples[: num_frames * size].reshape(num_frames, size).astype(np.float32)
    power = np.einsum("fs,fs->f", frames, frames).astype(np.float64) / (size * FULL_SCALE**2)
    speech_dbfs = to_db(float(np.sqrt(loud_power(power))))
    limit_dbfs = max(speech_dbfs - BELOW_SPEECH_DB, SILENT_BELOW_DBFS)
    return Frames(power, power >= 10 ** (limit_dbfs / 10), speech_dbfs)


def loud_power(power: npt.NDArray[np.floating]) -> float:
    """Mean of the louder half of [F] frame powers, F > 0."""
    middle = len(power) // 2
    return float(np.partition(power, middle)[middle:].mean())
