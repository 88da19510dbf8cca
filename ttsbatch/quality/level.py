"""Levels: peak, mean power, DC offset."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FULL_SCALE = 32768.0
FLOOR_DB = -120.0  # what digital silence counts as


@dataclass(frozen=True, slots=True)
class Level:
    """Levels of one clip."""

    peak_dbfs: float
    rms_dbfs: float
    dc_offset: float  # mean of the samples, -1..1


def to_db(amplitude: float) -> float:
    """An amplitude (1: full scale) in dB, not below FLOOR_DB."""
    return max(FLOOR_DB, 20 * math.log10(amplitude)) if amplitude > 0 else FLOOR_DB


def measure_level(samples: npt.NDArray[np.int16]) -> Level:
    """Levels of [N] int16 samples, N > 0."""
    peak = max(int(samples.max()), -int(samples.min()))
    scaled = samples.astype(np.float32)
    rms = math.sqrt(float(np.einsum("s,s->", scaled, scaled)) / len(samples))
    return Level(
        peak_dbfs=to_db(peak / FULL_SCALE),
        rms_dbfs=to_db(rms / FULL_SCALE),
        dc_offset=float(scaled.sum()) / len(samples) / FULL_SCALE,  # pairwise: exact enough
    )
