"""The coarse spectrum of a clip over time: 16 bands every 20 ms, below 4 kHz.

Half a millisecond for five seconds at 24 kHz on one core; numpy's FFT lets other threads run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ttsbatch.quality.frames import FRAME_S, loud_power

NUM_BANDS = 16
TARGET_HZ = 8_000  # samples are averaged down to this rate or a little above
FFT_SAMPLES = 256  # 32 ms at 8 kHz
LOWEST_HZ, HIGHEST_HZ = 100.0, 3_800.0
HEARD_BELOW_DB = 30.0  # under the louder half of the frames: not speech
MIN_RATE_HZ = 4_000  # below it there are no bands to tell speech by


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The frames of a clip that are heard; pauses are left out."""

    bands: npt.NDArray[np.float32]  # [F, NUM_BANDS] natural log of power
    level: npt.NDArray[np.float32]  # [F] power over all bands


def measure_spectrum(samples: npt.NDArray[np.int16], sample_rate_hz: int) -> Spectrum:
    """Band levels of the frames of [N] int16 samples; no frames where the clip is too short."""
    step = max(1, sample_rate_hz // TARGET_HZ)
    rate_hz = sample_rate_hz / step
    count = len(samples) // step
    # The average is a crude filter: what aliases does so alike in all frames. As a product it
    # takes a twentieth of the time of a sum over so short an axis.
    low = samples[: count * step].astype(np.float32).reshape(count, step) @ np.ones(step, "f4")
    if count < FFT_SAMPLES or rate_hz < MIN_RATE_HZ:
        return Spectrum(np.zeros((0, NUM_BANDS), np.float32), np.zeros(0, np.float32))
    frames = sliding_window_view(low, FFT_SAMPLES)[:: round(FRAME_S * rate_hz)]
    spectrum = np.fft.rfft(frames * _window(), axis=1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    bands = power @ _filters(rate_hz)
    level = bands.sum(axis=1)
    loud = loud_power(level)
    heard = level > loud * 10 ** (-HEARD_BELOW_DB / 10)
    floor = np.float32(1e-3 * loud / NUM_BANDS + 1e-6)
    return Spectrum(np.log(bands[heard] + floor), level[heard])


@lru_cache(maxsize=1)
def _window() -> npt.NDArray[np.float32]:
    return np.hanning(FFT_SAMPLES).astype(np.float32)


@lru_cache(maxsize=8)
def _filters(rate_hz: float) -> npt.NDArray[np.float32]:
    """[FFT bins, NUM_BANDS] which bins a band adds up: equal steps on the mel scale."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (LOWEST_HZ, HIGHEST_HZ))
    hz = 700 * (10 ** (np.linspace(low, high, NUM_BANDS + 1) / 2595) - 1)
    bins = np.round(np.minimum(hz / rate_hz, 0.5) * FFT_SAMPLES).astype(int)
    filters = np.zeros((FFT_SAMPLES // 2 + 1, NUM_BANDS), np.float32)
    for band, (start, stop) in enumerate(pairwise(bins)):
        filters[start : max(stop, start + 1), band] = 1
    return filters
