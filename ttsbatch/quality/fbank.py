"""Mel filter banks as Kaldi makes them, which most speaker encoders were trained on.

25 ms frames every 10 ms at 16 kHz, 80 bands from 20 Hz to 8 kHz, natural logarithm.
Source: Kaldi, `src/feat/feature-fbank.cc`, `mel-computations.cc`; no dither.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

NUM_BANDS = 80
_RATE_HZ, _FRAME, _HOP, _FFT = 16_000, 400, 160, 512
_LOWEST_HZ, _HIGHEST_HZ = 20.0, 8_000.0
_PREEMPHASIS = 0.97
_FLOOR = float(np.finfo(np.float32).eps)

_Floats = npt.NDArray[np.float32]


def fbank(wave: _Floats) -> _Floats:
    """[N] f32 in -1..1 at 16 kHz -> [F, 80]; F = 1 + (N - 400) // 160, none below 400 samples."""
    if len(wave) < _FRAME:
        return np.zeros((0, NUM_BANDS), np.float32)
    frames = sliding_window_view(wave * np.float32(32_768), _FRAME)[::_HOP]
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    frames = (frames - _PREEMPHASIS * before) * np.hamming(_FRAME)
    power = np.square(np.abs(np.fft.rfft(frames, _FFT, axis=1)))
    bands: _Floats = np.log(np.maximum(power[:, : _FFT // 2] @ _filters(), _FLOOR))
    return bands.astype(np.float32)


@lru_cache(maxsize=1)
def _filters() -> npt.NDArray[np.float64]:
    """[FFT / 2, bands] triangles that are even on the mel scale."""
    edges = np.linspace(_mel(_LOWEST_HZ), _mel(_HIGHEST_HZ), NUM_BANDS + 2)
    bins = _mel(np.arange(_FFT // 2) * (_RATE_HZ / _FFT))[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (bins - left) / (centre - left), (right - bins) / (right - centre)
    return np.maximum(0, np.minimum(rising, falling))


def _mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    mel: npt.NDArray[np.float64] = 1127 * np.log(1 + np.asarray(hz, np.float64) / 700)
    return mel
