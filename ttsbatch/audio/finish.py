"""What happens to a row's audio between the gates and the file: its sample rate, its level.

The gates judge what was spoken, before this: a gain could hide silence or clipping from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ttsbatch.audio.loudness import BLOCK_S, integrated_lufs, true_peak
from ttsbatch.audio.resample import resample

PEAK_LIMIT_DBTP = -1.0  # the highest true peak that a gain may lead to; EBU R 128
_FULL_SCALE = 32_768.0
_MAX = 32_767


@dataclass(frozen=True, slots=True)
class Finished:
    """Samples as they go to the file."""

    samples: npt.NDArray[np.int16]  # [N]
    sample_rate_hz: int
    checks: dict[str, Any]  # what to add to the row's checks


def finish(
    samples: npt.NDArray[np.int16],
    from_hz: int,
    sample_rate_hz: int | None = None,
    loudness_lufs: float | None = None,
) -> Finished:
    """Bring a clip to a sample rate and a loudness; rounded once, at the end, and never clipped.

    The gain is one number for the whole clip. It stops where the true peak reaches
    `PEAK_LIMIT_DBTP`, and is 0 dB for silence; a clip below 0.4 s is measured as one block. Where
    resampling alone would put a peak beyond full scale, the clip is made quieter by so much.

    Args:
        samples: [N] int16, joined.
        from_hz: their rate.
        sample_rate_hz: of the file; None: as it is.
        loudness_lufs: integrated, to aim at; None: as it is.
    """
    to_hz = sample_rate_hz or from_hz
    if not len(samples) or (to_hz == from_hz and loudness_lufs is None):
        return Finished(samples, to_hz, {})
    wave = resample(samples.astype(np.float32) / np.float32(_FULL_SCALE), from_hz, to_hz)
    checks: dict[str, Any] = {}
    gain_db = 0.0
    if loudness_lufs is not None:
        gain_db, checks["loudness"] = _gain(wave, to_hz, loudness_lufs)
    scaled = wave.astype(np.float64) * (10 ** (gain_db / 20) * _FULL_SCALE)
    peak = float(np.abs(scaled).max())
    if peak > _MAX + 0.5:  # only where resampling did it, or a peak between samples is not seen
        scaled *= _MAX / peak
        checks["overshoot_gain_db"] = round(20 * math.log10(_MAX / peak), 3)
    return Finished(np.rint(scaled).astype(np.int16), to_hz, checks)


def _gain(wave: npt.NDArray[np.float32], rate_hz: int, target: float) -> tuple[float, Any]:
    lufs = integrated_lufs(wave, rate_hz)
    if lufs == -math.inf:
        note = {"lufs": None, "gain_db": 0.0, "true_peak_dbtp": None, "limited_by": "silence"}
        return 0.0, {"target_lufs": target, **note}
    peak_db = 20 * math.log10(true_peak(wave, rate_hz))
    wanted_db, room_db = target - lufs, PEAK_LIMIT_DBTP - peak_db
    gain_db = min(wanted_db, room_db)
    return gain_db, {
        "target_lufs": target,
        "lufs": round(lufs + gain_db, 2),  # of the file
        "gain_db": round(gain_db, 3),
        "true_peak_dbtp": round(peak_db + gain_db, 2),  # of the file
        "limited_by": "peak" if room_db < wanted_db else None,
        "one_block": len(wave) < round(BLOCK_S * rate_hz),
    }
